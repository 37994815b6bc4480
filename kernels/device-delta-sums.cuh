/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sums of the delta rule's gradients within a chunk, of a block that has several warps for each 16 tokens: of features, and
 * of the columns of the two squares of scores, each of these has as many. */

#include "kernels/device-delta.cuh"

#define SLICE 64 /* columns of the values at a time */
#define SQUARE (CHUNK * 2 * CHUNK)

/* A block of W warps for each 16 tokens. */
template <int D_, int W_> struct Split {
  static constexpr int D = D_, W = W_, threads = CHUNK / 16 * 32 * W;
  static constexpr int own = D / W, blocks = own / 8;             /* features that a warp has */
  static constexpr int columns = CHUNK / W, pairs = columns / 16; /* of a square */
};

/* Where a block, and a warp of it, works: 16 tokens, and a part of the features or of the other tokens. */
struct Spot {
  DeltaHead head;
  int64_t chunk, first; /* chunk: among all of all heads; first token */
  int rows;             /* tokens that there are */
  int i, part;

  __device__ explicit Spot (const Delta &a)
  {
    int warp = threadIdx.x / 32;

    head = delta_head (a, blockIdx.y);
    chunk = delta_chunk (a, head, blockIdx.x);
    first = (int64_t) blockIdx.x * CHUNK;
    rows = (int) min (a.m - first, (int64_t) CHUNK);
    i = warp % 4;
    part = warp / 4;
  }
};

template <typename G> struct RowSums {
  float x[G::blocks][4];
};

/* Two neighbours of F, or of E, whose diagonal is dbeta before it is masked, to their tile. */
static __device__ inline void
square_store (bool is_e, const float *weights, uint32_t tile, int row, int column, float low, float high, float *dbeta)
{
  const float *logs = weights + DELTA_LOG * CHUNK, *betas = weights + DELTA_BETA * CHUNK;
  const float x[2] = { low, high };
  float y[2];

#pragma unroll
  for (int e = 0; e < 2; e++) {
    float weight = exp2_fast (logs[row] - logs[column + e]) * betas[column + e] * (is_e ? -betas[row] : 1);
    y[e] = column + e < row || (!is_e && column + e == row) ? weight * x[e] : 0;
    if (is_e && column + e == row)
      dbeta[row] = x[e];
  }
  store_word (tile + swizzled (row, column / 8) + column % 8 * 2, bf16_pair (y[0], y[1]));
}

/* --- within the chunk --------------------------------------------------------------------------------------------- */

template <typename G> struct Squares {
  float p[G::columns / 8][4], r[G::columns / 8][4];
};

/* s += z x^T over a slice, of the warp's columns those that are not above the diagonal. */
template <typename G>
static __device__ inline void
add_scores (const Spot &s, uint32_t z_tile, uint32_t x_tile, float (&sums)[G::columns / 8][4])
{
#pragma unroll
  for (int k = 0; k < SLICE; k += 16) {
    uint32_t a[4], b[4];

    fragment_a (a, z_tile, 16 * s.i, k);
#pragma unroll
    for (int j = 0; j < G::pairs; j++)
      if (G::pairs * s.part + j <= s.i) {
        fragment_b_transposed (b, x_tile, 16 * (G::pairs * s.part + j), k);
        mma (sums[2 * j], a, b[0], b[1]);
        mma (sums[2 * j + 1], a, b[2], b[3]);
      }
  }
}

/* do u^T and r u^T of a slice. */
template <typename G>
static __device__ inline void
add_squares (const Spot &s, Squares<G> &squares, uint32_t d_o, uint32_t errors_d, uint32_t errors)
{
  add_scores<G> (s, d_o, errors, squares.p);
  add_scores<G> (s, errors_d, errors, squares.r);
}

template <typename G>
static __device__ inline void
store_squares (const Spot &s, const Squares<G> &squares, const float *weights, uint32_t f_tile, uint32_t e_tile,
               float *dbeta)
{
  int row = 16 * s.i + (int) threadIdx.x % 32 / 4, column = G::columns * s.part + (int) threadIdx.x % 4 * 2;

#pragma unroll
  for (int n = 0; n < G::columns / 8; n++)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const float *p = squares.p[n] + e, *r = squares.r[n] + e;
      square_store (false, weights, f_tile, row + 4 * e, column + 8 * n, p[0], p[1], dbeta);
      square_store (true, weights, e_tile, row + 4 * e, column + 8 * n, r[0], r[1], dbeta);
    }
}

/* sums += a b, of 16 that are summed over: rows of the b tile. */
template <typename G>
static __device__ inline void
add_rows (const Spot &s, RowSums<G> &sums, const uint32_t a[4], uint32_t b_tile, int row)
{
#pragma unroll
  for (int n = 0; n < G::blocks; n += 2) {
    uint32_t b[4];

    fragment_b (b, b_tile, row, s.part * G::own + 8 * n);
    mma (sums.x[n], a, b[0], b[1]);
    mma (sums.x[n + 1], a, b[2], b[3]);
  }
}

/* Of a slice: rows of values by the state. */
template <typename G>
static __device__ inline void
add_state (const Spot &s, RowSums<G> &sums, uint32_t values, uint32_t state)
{
#pragma unroll
  for (int k = 0; k < SLICE; k += 16) {
    uint32_t a[4];

    fragment_a (a, values, 16 * s.i, k);
    add_rows<G> (s, sums, a, state, k);
  }
}

/* Rows of a lower triangular square by rows of x. */
template <typename G>
static __device__ inline void
add_square (const Spot &s, RowSums<G> &sums, uint32_t square, uint32_t x_tile)
{
  for (int j = 0; j <= s.i; j++) {
    uint32_t a[4];

    fragment_a (a, square, 16 * s.i, 16 * j);
    add_rows<G> (s, sums, a, x_tile, 16 * j);
  }
}

/* Its columns. */
template <typename G>
static __device__ inline void
add_square_turned (const Spot &s, RowSums<G> &sums, uint32_t square, uint32_t x_tile)
{
  for (int j = s.i; j < CHUNK / 16; j++) {
    uint32_t a[4];

    fragment_a_transposed (a, square, 16 * j, 16 * s.i);
    add_rows<G> (s, sums, a, x_tile, 16 * j);
  }
}
