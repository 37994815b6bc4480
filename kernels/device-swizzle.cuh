/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Tiles of 64 rows of bf16 in shared memory without padding. They lie in panels of 128 bytes of each row, and a panel's
 * row keeps its 16-byte pieces in an order turned by the row, so that the 8 rows of a matrix that are read at once lie
 * in different banks: what wgmma calls a swizzle of 128 bytes. A tile of rows of B bytes, a multiple of 128, is named by
 * its address in shared memory, aligned to 1024. See device-mma.cuh for the fragments.
 */

#include "kernels/device-mma.cuh"

#define PANEL (64 * 128) /* bytes */

/* Of the piece-th 16 bytes of a row. */
static __device__ inline uint32_t
swizzled (int row, int piece)
{
  return piece / 8 * PANEL + row * 128 + ((piece % 8 ^ (row & 7)) << 4);
}

static __device__ inline void
store_word (uint32_t at, uint32_t word)
{
  asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(at), "r"(word) : "memory");
}

static __device__ inline uint32_t
load_word (uint32_t at)
{
  uint32_t word;

  asm volatile("ld.shared.b32 %0, [%1];\n" : "=r"(word) : "r"(at) : "memory");
  return word;
}

static __device__ inline uint4
load_words (uint32_t at)
{
  uint4 w;

  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
               : "r"(at)
               : "memory");
  return w;
}

/* Starts copying `rows` rows of `columns` of B / 2 elements (multiples of 8), `stride` apart; what is beyond is
 * zeros. By THREADS threads. */
template <int B, int THREADS>
static __device__ inline void
load_tile (uint32_t tile, const uint16_t *from, int64_t stride, int rows, int columns)
{
  constexpr int pieces = B / 16, step = THREADS / pieces; /* rows at once */
  static_assert (THREADS % pieces == 0 && 64 % step == 0);
  int thread = threadIdx.x;

  asm volatile("" : "+r"(thread)); /* what follows from it is not worth registers for a whole loop */
  int row = thread / pieces, piece = thread % pieces;
  bool is_column = piece * 8 < columns;
  const uint16_t *at = from + row * stride + piece * 8;

#pragma unroll 4
  for (int i = 0; i < 64; i += step, at += step * stride) {
    bool is_valid = is_column && row + i < rows;
    copy_16 (tile + swizzled (row + i, piece), is_valid ? at : from, is_valid);
  }
}

/* Address of what a lane names of 16 by 16 elements from a row and a column on, both multiples of 16. Columns turn the
 * lane's piece at column 0: exclusive-or takes one register where sums would take one for each column. */
static __device__ inline uint32_t
named (uint32_t tile, uint32_t lane_offset, int row, int column)
{
  return ((tile + lane_offset) ^ column % 64 * 2) + column / 64 * PANEL + row * 128;
}

/* Lanes name rows 0-15 of the left 8 columns, then those of the right. */
static __device__ inline uint32_t
named_down (uint32_t tile, int row, int column)
{
  int lane = threadIdx.x % 32;

  return named (tile, swizzled (lane % 16, lane / 16), row, column);
}

/* Lanes name rows 0-7 of the left 8 columns and of the right, then rows 8-15. */
static __device__ inline uint32_t
named_across (uint32_t tile, int row, int column)
{
  int lane = threadIdx.x % 32;

  return named (tile, swizzled (lane / 16 * 8 + lane % 8, lane / 8 % 2), row, column);
}

/* A fragment's operands of 16 by 16 elements. */
static __device__ inline void
fragment_a (uint32_t a[4], uint32_t tile, int row, int column)
{
  load_matrices (a, named_down (tile, row, column));
}

static __device__ inline void
fragment_a_transposed (uint32_t a[4], uint32_t tile, int row, int column)
{
  load_matrices_transposed (a, named_across (tile, row, column));
}

/* Of two products side by side, b[0], b[1] and b[2], b[3]: rows of the tile are summed over, or columns. */
static __device__ inline void
fragment_b (uint32_t b[4], uint32_t tile, int row, int column)
{
  load_matrices_transposed (b, named_down (tile, row, column));
}

static __device__ inline void
fragment_b_transposed (uint32_t b[4], uint32_t tile, int row, int column)
{
  load_matrices (b, named_across (tile, row, column));
}
