/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pieces of the backward of linear attention whose decay follows the data: products of a warp that has 16 of a chunk's 64
 * tokens, which are rows of all that it accumulates. With M the state before the chunk and E the gradient of the one after
 * it, P_ij = dO_i v_j and A_ij = q_i k_j, both without decay, w_ij = 2^(b_i - b_j) and the sums over j up to i:
 *     dq_i = sum w_ij beta_j P_ij k_j + 2^b_i M dO_i
 *     dk_j = beta_j (sum w_ij P_ij q_i + 2^(b_end - b_j) E v_j)
 *     dv_j = beta_j (sum w_ij A_ij dO_i + 2^(b_end - b_j) E^T k_j)
 * Of the decays, x_i = q_i dq_i - k_i dk_i (over all features, or each) is the gradient of b_i, and that of token t's
 * logarithm is the sum of x_i from t on, and of 2^b_end M E + sum k_j beta_j 2^(b_end - b_j) E v_j, which is what passes
 * the chunk's end. Of a decay a head, the x of pairs are sums of w_ij beta_j A_ij P_ij, of which one number counts for i and
 * against j: what both have cancels as if it were exact.
 */

#include "kernels/device-linear-decay.cuh"

/* An address that is not known to be the one before: what follows from it is not kept in registers from phase to phase. */
static __device__ inline uint32_t
afresh (uint32_t at)
{
  asm volatile("" : "+r"(at));
  return at;
}

/* s[16 rows of a by 32 of b], of the two blocks of columns from `first` on, up to the warp's own or, `reverse`, from it
 * on: half of a chunk, as registers are few. */
template <int K>
static __device__ inline void
rows_by_rows (uint32_t a_tile, uint32_t b_tile, int w, bool reverse, int first, float (&s)[4][4])
{
  if (reverse ? first + 1 < w : first > w)
    return;
  a_tile = afresh (a_tile);
  b_tile = afresh (b_tile);
#pragma unroll 2
  for (int k = 0; k < K; k += 16) {
    uint32_t a[4], b[4];

    fragment_a (a, a_tile, 16 * w, k);
#pragma unroll
    for (int block = 0; block < 2; block++) {
      if (reverse ? first + block < w : first + block > w)
        continue;
      fragment_b_transposed (b, b_tile, 16 * (first + block), k);
      mma (s[2 * block], a, b[0], b[1]);
      mma (s[2 * block + 1], a, b[2], b[3]);
    }
  }
}

/* Two blocks of what was accumulated as operands. */
static __device__ inline void
operand_of (const float (&s)[4][4], uint32_t (*p)[4])
{
#pragma unroll
  for (int block = 0; block < 2; block++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      p[block][e] = bf16_pair (s[2 * block + e / 2][e % 2 * 2], s[2 * block + e / 2][e % 2 * 2 + 1]);
}

/* acc[16,C] += p[16,64] tile, from a column of the tile on. */
template <int C>
static __device__ inline void
rows_by_columns (float (&acc)[C / 8][4], const uint32_t (&p)[4][4], uint32_t tile, int column, int w, bool reverse)
{
  tile = afresh (tile);
#pragma unroll
  for (int c = 0; c < C; c += 16)
#pragma unroll
    for (int block = 0; block < 4; block++) {
      uint32_t b[4];

      if (reverse ? block < w : block > w)
        continue;
      fragment_b (b, tile, 16 * block, column + c);
      mma (acc[c / 8], p[block], b[0], b[1]);
      mma (acc[c / 8 + 1], p[block], b[2], b[3]);
    }
}

/* acc[16,D] += rows [16,64] of x, from a column on, by a slice [64,D] of a state. SCALED: rows g times low, g + 8 high. */
template <int D, bool SCALED>
static __device__ inline void
rows_by_state (float (&acc)[D / 8][4], uint32_t x_tile, int column, uint32_t slice, int w, float low, float high)
{
  x_tile = afresh (x_tile);
  slice = afresh (slice);
#pragma unroll 1
  for (int k = 0; k < 64; k += 16) {
    uint32_t a[4];

    fragment_a (a, x_tile, 16 * w, column + k);
#pragma unroll
    for (int e = 0; e < 4 && SCALED; e++)
      a[e] = scale_pair (a[e], e % 2 ? high : low, e % 2 ? high : low);
#pragma unroll
    for (int c = 0; c < D; c += 16) {
      uint32_t b[4];

      fragment_b (b, slice, k, c);
      mma (acc[c / 8], a, b[0], b[1]);
      mma (acc[c / 8 + 1], a, b[2], b[3]);
    }
  }
}

/* The pair of a tile that stands where an accumulator's elements 0 and 1, or with half 2 and 3, of its n-th 8 columns do. */
static __device__ inline uint32_t
pair_at (uint32_t tile, int w, int n, int half)
{
  int lane = threadIdx.x % 32;

  return load_word (tile + swizzled (16 * w + lane / 4 + 8 * half, n) + lane % 4 * 4);
}

static __device__ inline float
quad_sum (float x)
{
  x += __shfl_xor_sync (0xffffffffu, x, 1);
  return x + __shfl_xor_sync (0xffffffffu, x, 2);
}

/* Over the warp's 8 rows of each half. */
static __device__ inline float
column_sum (float x)
{
#pragma unroll
  for (int offset = 4; offset < 32; offset *= 2)
    x += __shfl_xor_sync (0xffffffffu, x, offset);
  return x;
}

/* Of rows g and g + 8: sums over columns of tile times acc. */
template <int C>
static __device__ inline void
row_dots (const float (&acc)[C / 8][4], uint32_t tile, int column, int w, float (&ret)[2])
{
  tile = afresh (tile);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    ret[half] = 0;
#pragma unroll
    for (int n = 0; n < C / 8; n++) {
      uint32_t x = pair_at (tile, w, column / 8 + n, half);
      ret[half] += bf16_at (x, 0) * acc[n][2 * half] + bf16_at (x, 1) * acc[n][2 * half + 1];
    }
    ret[half] = quad_sum (ret[half]);
  }
}

/* --- a decay a feature -------------------------------------------------------------------------------------------- */

/* A pair scaled, as two bf16 each: what q and k have of a pair of tokens must cancel in the gradients of decays. */
static __device__ inline void
scale_apart (uint32_t pair, float low, float high, uint32_t *first, uint32_t *rest)
{
  low *= bf16_at (pair, 0);
  high *= bf16_at (pair, 1);
  *first = bf16_pair (low, high);
  *rest = bf16_pair (low - bf16_at (*first, 0), high - bf16_at (*first, 1));
}

/* acc[16,D] += what p[16,64] makes of the other tokens' rows in the tile, each scaled to the warp's: of earlier ones, or
 * later in reverse. A token's own is not among them. */
template <int D>
static __device__ inline void
feature_others (float (&acc)[D / 8][4], const uint32_t (&p)[4][4], uint32_t tile, const float *b, int c, int w,
                bool reverse)
{
  constexpr int row = Gates<D>::row;
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float sign = reverse ? -1 : 1, temp[2][4] = {};
  const float *middle = b + (reverse ? 16 * w + 15 : 16 * w - 1) * row + c;

  if (reverse ? w == 3 : w == 0)
    return;
  float m[2] = { middle[g], middle[g + 8] };
#pragma unroll
  for (int block = 0; block < 4; block++) {
    uint32_t y[4], rest[4];

    if (reverse ? block <= w : block >= w)
      continue;
    fragment_b (y, tile, 16 * block, c);
#pragma unroll
    for (int e = 0; e < 4; e++) { /* tokens 2t and the next, then 8 on; then 8 features on */
      const float *x = b + (16 * block + 2 * t + e % 2 * 8) * row + c + g + e / 2 * 8;
      scale_apart (y[e], exp2_fast (sign * (m[e / 2] - x[0])), exp2_fast (sign * (m[e / 2] - x[row])), &y[e], &rest[e]);
    }
    mma (temp[0], p[block], y[0], y[1]);
    mma (temp[1], p[block], y[2], y[3]);
    mma (temp[0], p[block], rest[0], rest[1]);
    mma (temp[1], p[block], rest[2], rest[3]);
  }
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      float2 own = *(const float2 *) (b + (16 * w + g + e * 4) * row + c + 8 * n + 2 * t);
      float2 r = *(const float2 *) (middle + 8 * n + 2 * t);
      acc[c / 8 + n][e] += temp[n][e] * exp2_fast (sign * (own.x - r.x));
      acc[c / 8 + n][e + 1] += temp[n][e + 1] * exp2_fast (sign * (own.y - r.y));
    }
}

/* The same within the block of 16, whose operand is `p`. */
template <int D>
static __device__ inline void
feature_own (float (&acc)[D / 8][4], const uint32_t (&p)[4], uint32_t tile, const float *b, int c, int w)
{
  constexpr int row = Gates<D>::row;
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const float *at = b + 16 * w * row + c;
  uint32_t y[4];
  float x[4][2];

  fragment_b (y, tile, 16 * w, c);
#pragma unroll
  for (int e = 0; e < 4; e++)
#pragma unroll
    for (int u = 0; u < 2; u++)
      x[e][u] = at[(2 * t + e % 2 * 8 + u) * row + g + e / 2 * 8];
#pragma unroll
  for (int level = 0; level < 4; level++) {
    uint32_t scaled[4], rest[4], pairs[4];
    float temp[2][4] = {};

#pragma unroll
    for (int e = 0; e < 4; e++) {
      float factor[2];
#pragma unroll
      for (int u = 0; u < 2; u++) {
        int token = 2 * t + e % 2 * 8 + u;
        factor[u] =
            level_factor (token, level, x[e][u], at[level_middle (token, level) * row + g + e / 2 * 8]);
      }
      scale_apart (y[e], factor[0], factor[1], &scaled[e], &rest[e]);
      /* of p: rows g and g + 8, then 8 columns on */
      int from = g + e % 2 * 8, to = 2 * t + e / 2 * 8;
      pairs[e] = p[e] & (((from ^ to) >> level == 1 ? 0xffffu : 0) | ((from ^ (to + 1)) >> level == 1 ? 0xffff0000u : 0));
    }
    mma (temp[0], pairs, scaled[0], scaled[1]);
    mma (temp[1], pairs, scaled[2], scaled[3]);
    mma (temp[0], pairs, rest[0], rest[1]);
    mma (temp[1], pairs, rest[2], rest[3]);
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        int token = g + e * 4;
        float2 own = *(const float2 *) (at + token * row + 8 * n + 2 * t);
        float2 r = *(const float2 *) (at + level_middle (token, level) * row + 8 * n + 2 * t);
        acc[c / 8 + n][e] += temp[n][e] * level_factor (token, level, own.x, r.x);
        acc[c / 8 + n][e + 1] += temp[n][e + 1] * level_factor (token, level, own.y, r.y);
      }
  }
}
