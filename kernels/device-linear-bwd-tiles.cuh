/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tiles of the backward's kernels by warps: rows of B bytes, whose 16-byte pieces are turned by the row, so that the 8
 * rows of a matrix that are read at once lie in different banks. They begin at multiples of 1024 bytes. */

#include "kernels/device-linear-bwd.cuh"
#include "kernels/device-mma.cuh"

/* Features that a tile has. */
static inline int
tile_size (int64_t size)
{
  return size <= 64 ? 64 : size <= 128 ? 128 : 256;
}

template <int B>
static __device__ inline uint32_t
piece_at (int row, int piece)
{
  return row * B + ((piece ^ (row & 7)) << 4);
}

template <int B>
static __device__ inline void
rows_a (uint32_t a[4], uint32_t tile, int row, int column)
{
  int lane = threadIdx.x % 32;

  load_matrices (a, tile + piece_at<B> (row + lane % 16, column / 8 + lane / 16));
}

template <int B>
static __device__ inline void
columns_a (uint32_t a[4], uint32_t tile, int row, int column)
{
  int lane = threadIdx.x % 32;

  load_matrices_transposed (a, tile + piece_at<B> (row + lane / 16 * 8 + lane % 8, column / 8 + lane / 8 % 2));
}

/* Of two products side by side: the tile's columns are summed over, or its rows. */
template <int B>
static __device__ inline void
rows_b (uint32_t b[4], uint32_t tile, int row, int column)
{
  int lane = threadIdx.x % 32;

  load_matrices (b, tile + piece_at<B> (row + lane / 16 * 8 + lane % 8, column / 8 + lane / 8 % 2));
}

template <int B>
static __device__ inline void
columns_b (uint32_t b[4], uint32_t tile, int row, int column)
{
  int lane = threadIdx.x % 32;

  load_matrices_transposed (b, tile + piece_at<B> (row + lane % 16, column / 8 + lane / 16));
}

/* Starts copying `rows` rows of `columns` elements, `stride` apart; the rest of the tile is zeros. */
template <int B, int ROWS, int THREADS>
static __device__ inline void
load_tile (uint32_t tile, const uint16_t *from, int64_t stride, int rows, int columns)
{
  constexpr int pieces = B / 16, step = THREADS / pieces;
  static_assert (THREADS % pieces == 0 && ROWS % step == 0, "a thread has one column of pieces");
  int row = threadIdx.x / pieces, piece = threadIdx.x % pieces;
  bool is_column = piece * 8 < columns;
  const uint16_t *at = from + row * stride + piece * 8;

#pragma unroll
  for (int i = 0; i < ROWS; i += step, at += step * stride) {
    bool is_valid = is_column && row + i < rows;
    copy_16 (tile + piece_at<B> (row + i, piece), is_valid ? at : from, is_valid);
  }
}
