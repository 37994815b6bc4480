/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tiles of bf16 in shared memory, and the products of 16 of their rows by a warp. See device-mma.cuh. */

#include "kernels/device-mma.cuh"
#include "kernels/device-private.cuh"

#define TILE 64          /* rows */
#define TILE_THREADS 128 /* a warp for each 16 rows */

/* Of a tile of D features. */
template <int D> struct Stride {
  static constexpr int value = D + 8;
  static constexpr int elements = TILE * value;
};

/* Starts copying `rows` rows of `columns` elements (a multiple of 8), `stride` apart; the rest of the tile is zeros. */
template <int D>
static __device__ inline void
tile_load (uint16_t *tile, const uint16_t *from, int64_t stride, int64_t rows, int64_t columns)
{
#pragma unroll 4
  for (int i = threadIdx.x; i < TILE * D / 8; i += TILE_THREADS) {
    int row = i / (D / 8), column = i % (D / 8) * 8;
    bool is_valid = row < rows && column < columns;

    copy_16 (tile + row * Stride<D>::value + column, is_valid ? from + row * stride + column : from, is_valid);
  }
}

/* a = 16 by 16 elements of a tile, from its row and column on; or the transpose of what is there. */
template <int D>
static __device__ inline void
tile_a (uint32_t a[4], const uint16_t *tile, int row, int column)
{
  int lane = threadIdx.x % 32;

  load_matrices (a, tile + (row + lane % 16) * Stride<D>::value + column + lane / 16 * 8);
}

template <int D>
static __device__ inline void
tile_a_transposed (uint32_t a[4], const uint16_t *tile, int row, int column)
{
  int lane = threadIdx.x % 32;

  load_matrices_transposed (a, tile + (row + lane / 16 * 8 + lane % 8) * Stride<D>::value + column + lane / 8 % 2 * 8);
}

/* b of two products side by side, b[0], b[1] and b[2], b[3]: 16 rows by 16 columns of what is there (its rows are
 * summed over), or of its transpose (its columns are). */
template <int D>
static __device__ inline void
tile_b (uint32_t b[4], const uint16_t *tile, int row, int column)
{
  int lane = threadIdx.x % 32;

  load_matrices_transposed (b, tile + (row + lane % 16) * Stride<D>::value + column + lane / 16 * 8);
}

template <int D>
static __device__ inline void
tile_b_transposed (uint32_t b[4], const uint16_t *tile, int row, int column)
{
  int lane = threadIdx.x % 32;

  load_matrices (b, tile + (row + lane / 16 * 8 + lane % 8) * Stride<D>::value + column + lane / 8 % 2 * 8);
}

/* c[16, 8 N] += x y^T of 16 rows of x and 8 N rows of y, both of D features. */
template <int D, int N>
static __device__ inline void
multiply_transposed (float c[N][4], const uint16_t *x, int x_row, const uint16_t *y, int y_row)
{
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    uint32_t a[4], b[4];

    tile_a<D> (a, x, x_row, k);
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      tile_b_transposed<D> (b, y, y_row + 8 * j, k);
      mma (c[j], a, b[0], b[1]);
      mma (c[j + 1], a, b[2], b[3]);
    }
  }
}

/* c[16, 8 N] += p y, where p[16, 8 K] is what products left in a warp, rounded to bf16, and y 8 K rows of a tile, of
 * which 8 N columns. */
template <int D, int K, int N>
static __device__ inline void
multiply_kept (float c[N][4], const float p[K][4], const uint16_t *y, int y_row, int y_column)
{
#pragma unroll
  for (int k = 0; k < K; k += 2) {
    uint32_t a[4] = { bf16_pair (p[k][0], p[k][1]), bf16_pair (p[k][2], p[k][3]), bf16_pair (p[k + 1][0], p[k + 1][1]),
                      bf16_pair (p[k + 1][2], p[k + 1][3]) },
             b[4];
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      tile_b<D> (b, y, y_row + 8 * k, y_column + 8 * j);
      mma (c[j], a, b[0], b[1]);
      mma (c[j + 1], a, b[2], b[3]);
    }
  }
}
