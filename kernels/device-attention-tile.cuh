/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Products of attention by mma.sync: tiles in shared memory whose rows are D + 8 elements apart, so that the 8 rows of a
 * matrix which ldmatrix reads lie in different banks and a place in a tile is a constant beside the lane's own place.
 * Places are 32-bit addresses of shared memory.
 */

#include "kernels/device-attention.cuh"
#include "kernels/device-mma.cuh"

template <int D> struct Tile {
  static constexpr int stride = D + 8; /* elements */
  static constexpr int row_bytes = 2 * stride;
};

/* A lane's place for 16 by 16 elements as an operand: a, or b of rows that are summed over. */
template <int D>
static __device__ inline uint32_t
lane_by_rows (void)
{
  int lane = threadIdx.x % 32;

  return (uint32_t) (lane % 16 * Tile<D>::row_bytes + lane / 16 * 16);
}

/* b of columns that are summed over, or the transpose of a. */
template <int D>
static __device__ inline uint32_t
lane_by_columns (void)
{
  int lane = threadIdx.x % 32;

  return (uint32_t) ((lane / 16 * 8 + lane % 8) * Tile<D>::row_bytes + lane / 8 % 2 * 16);
}

/* Starts copying `rows` rows of `columns` elements (a multiple of 8), `stride` apart, to a tile of ROWS by D; the rest is
 * zeros. Of D the largest power of 2 goes first. */
template <int D, int ROWS, int THREADS, int STRIDE = D>
static __device__ inline void
tile_copy (uint32_t tile, const uint16_t *from, uint32_t stride, int rows, int columns)
{
  constexpr int part = D >= 256 ? 256 : D >= 128 ? 128 : D >= 64 ? 64 : 32, pieces = part / 8;
  int row = threadIdx.x / pieces, column = threadIdx.x % pieces * 8;
  const uint16_t *piece = from + (uint64_t) row * stride + column;
  uint32_t at = tile + row * Tile<STRIDE>::row_bytes + 2 * column;
  int left = column < columns ? rows - row : 0;

#pragma unroll
  for (int i = 0; i < ROWS * pieces / THREADS; i++) {
    bool is_valid = i * (THREADS / pieces) < left;

    copy_16 (at + i * (THREADS / pieces) * Tile<STRIDE>::row_bytes, is_valid ? piece : from, is_valid);
    piece += THREADS / pieces * stride;
  }
  if constexpr (D > part)
    tile_copy<D - part, ROWS, THREADS, STRIDE> (tile + 2 * part, columns > part ? from + part : from, stride, rows,
                                                columns - part);
}

/* The same of a head's tokens from at * ROWS on, of `tokens`; `head` is its first element of the first. */
template <int D, int ROWS, int THREADS>
static __device__ inline void
tile_of_head (uint32_t tile, const uint16_t *head, int at, int64_t stride, int64_t tokens, int64_t size)
{
  tile_copy<D, ROWS, THREADS> (tile, head + (uint64_t) (at * ROWS) * (uint32_t) stride, (uint32_t) stride,
                               (int) tokens - at * ROWS, (int) size);
}

/* A block's queries and the keys that it goes through. In shared memory, where it takes no registers of the loop. */
template <int WARPS> struct KeyWalk {
  const uint16_t *keys, *values; /* of its head */
  QueryRange range;
  Place place;
  Walk walks[WARPS];
};

/* Ends with a barrier. The last queries go first: under a causal mask they have most to do. */
template <int QUERIES, int WARPS>
static __device__ inline void
key_walk_begin (KeyWalk<WARPS> &w, const Attention &a, Order order)
{
  if (threadIdx.x == 0) {
    Place place = place_of (order, blockIdx.x);
    int64_t hk = kv_head (a, place.head);
    place.tile = order.tiles - 1 - place.tile;
    w.place = place;
    w.keys = a.keys + head_at (a, 0, place.batch, a.kv_heads, hk, a.k);
    w.values = a.values + head_at (a, 0, place.batch, a.kv_heads, hk, a.v);
    if (a.query_tiles != nullptr)
      w.range = range_at<QUERIES> (a.query_tiles + place.batch * div_up (a.m, MASK_TILE), place.tile, (int) a.m);
  }
  if (threadIdx.x % 32 == 0)
    w.walks[threadIdx.x / 32] = walk_begin ();
  __syncthreads ();
}

/* The warp's next tile of keys, or -1. */
template <int KEYS, int WARPS>
static __device__ inline int
key_walk_next (KeyWalk<WARPS> &w, const Attention &a, bool *ret_whole)
{
  Walk walk = w.walks[threadIdx.x / 32];
  int tile = walk_next<KEYS> (walk, a.key_tiles, a.n, w.range, ret_whole);

  __syncwarp ();
  if (threadIdx.x % 32 == 0)
    w.walks[threadIdx.x / 32] = walk;
  __syncwarp ();
  return tile;
}

/* c[MT][16, N / 2] += x y^T of 16 MT rows of x and N / 2 rows of y, both of D features. x and y: this lane's places. */
template <int D, int MT, int N>
static __device__ inline void
product_of_rows (float (&c)[MT][N], uint32_t x, uint32_t y)
{
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    uint32_t a[MT][4], b[4];

#pragma unroll
    for (int i = 0; i < MT; i++)
      load_matrices (a[i], x + i * 16 * Tile<D>::row_bytes + 2 * k);
#pragma unroll
    for (int j = 0; j < N; j += 8) {
      load_matrices (b, y + 2 * j * Tile<D>::row_bytes + 2 * k);
#pragma unroll
      for (int i = 0; i < MT; i++) {
        mma (&c[i][j], a[i], b[0], b[1]);
        mma (&c[i][j + 4], a[i], b[2], b[3]);
      }
    }
  }
}

/* c[MT][16, N / 2] += p y, where p[MT][16, K / 2] is what products left in a warp, rounded to bf16, and y K / 2 rows of a
 * tile of D features, of which N / 2. */
template <int D, int MT, int K, int N>
static __device__ inline void
product_of_kept (float (&c)[MT][N], const float (&p)[MT][K], uint32_t y)
{
#pragma unroll
  for (int k = 0; k < K; k += 8) {
    uint32_t a[MT][4], b[4];

#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        a[i][e] = bf16_pair (p[i][k + 2 * e], p[i][k + 2 * e + 1]);
#pragma unroll
    for (int j = 0; j < N; j += 8) {
      load_matrices_transposed (b, y + 2 * k * Tile<D>::row_bytes + 4 * j);
#pragma unroll
      for (int i = 0; i < MT; i++) {
        mma (&c[i][j], a[i], b[0], b[1]);
        mma (&c[i][j + 4], a[i], b[2], b[3]);
      }
    }
  }
}
