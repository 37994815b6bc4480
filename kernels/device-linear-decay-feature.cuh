/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The backward of a decay a feature: the rows that P makes, whose operands and sums are scaled block by block and within a
 * block level by level (device-linear-decay.cuh), and the gradients of decays. */

#include "kernels/device-linear-decay-bwd.cuh"

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
        factor[u] = level_factor (token, level, x[e][u], at[level_middle (token, level) * row + g + e / 2 * 8]);
      }
      scale_apart (y[e], factor[0], factor[1], &scaled[e], &rest[e]);
      /* of p: rows g and g + 8, then 8 columns on */
      int from = g + e % 2 * 8, to = 2 * t + e / 2 * 8;
      pairs[e] =
          p[e] & (((from ^ to) >> level == 1 ? 0xffffu : 0) | ((from ^ (to + 1)) >> level == 1 ? 0xffff0000u : 0));
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

/* Where x of a token and feature is: another order in each row, so that those at once lie in different banks. */
template <int D>
static __device__ inline int
turned (int token, int feature)
{
  return token * D + (feature ^ (token & 7) << 3);
}

/* g (n, half, of two features b, and b at the end) */
template <int D, typename G>
static __device__ inline void
feature_each (const float *b, int w, G g)
{
  constexpr int row = Gates<D>::row;

#pragma unroll
  for (int n = 0; n < D / 8; n++) {
    float2 end = *(const float2 *) (b + (CHUNK - 1) * row + index_of (n, 0));
#pragma unroll
    for (int half = 0; half < 2; half++)
      g (n, half, *(const float2 *) (b + row_of (w, half) * row + index_of (n, 0)), end);
  }
}

/* Of P: what no query sees away, what it gives the token itself apart. */
static __device__ inline void
feature_mask (float (&s)[4][4], int w, bool reverse, int first, Pairs &r)
{
#pragma unroll
  for (int n = 0; n < 4; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int row = row_of (w, e / 2), column = first + index_of (n, e);
      s[n][e] = (reverse ? column >= row : row >= column) ? s[n][e] : 0;
      r.itself[e / 2] += row == column ? s[n][e] : 0;
    }
}

/* A^T of dv's warps, decayed. */
template <int D>
static __device__ inline void
feature_scores (uint32_t k_tile, uint32_t q_tile, const float *b, int w, Pairs &r)
{
  {
    float own[2][4];
    feature_diagonal<D> (k_tile, q_tile, b, w, true, own);
#pragma unroll
    for (int e = 0; e < 4; e++)
      r.own[e] = bf16_pair (own[e / 2][e % 2 * 2], own[e / 2][e % 2 * 2 + 1]);
  }
#pragma unroll
  for (int block = 0; block < 4; block++) {
#pragma unroll
    for (int e = 0; e < 4; e++)
      r.p[block][e] = block == w ? r.own[e] : 0;
    if (block <= w)
      continue;
    float s[2][4] = {};
    feature_block<D> (k_tile, q_tile, b, w, block, 16 * w + 15, s);
#pragma unroll
    for (int e = 0; e < 4; e++)
      r.p[block][e] = bf16_pair (s[e / 2][e % 2 * 2], s[e / 2][e % 2 * 2 + 1]);
  }
}

/* dq's or dk's rows from those of the state and P, without what a token gives itself; dk's sums over tokens of k times
 * the state's rows go to `sums`. */
template <int D>
static __device__ inline void
feature_gradient (float (&acc)[D / 8][4], const Pairs &pairs, uint32_t own_tile, uint32_t other_tile, const float *b,
                  int w, bool reverse, float *sums)
{
  feature_each<D> (b, w, [&] (int n, int half, float2 own, float2 end) {
    acc[n][2 * half] *= exp2_fast (reverse ? end.x - own.x : own.x);
    acc[n][2 * half + 1] *= exp2_fast (reverse ? end.y - own.y : own.y);
  });
  if (reverse)
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
      uint32_t x = pair_at (own_tile, w, n, 0), y = pair_at (own_tile, w, n, 1);
      float low = column_sum (bf16_at (x, 0) * acc[n][0] + bf16_at (y, 0) * acc[n][2]);
      float high = column_sum (bf16_at (x, 1) * acc[n][1] + bf16_at (y, 1) * acc[n][3]);
      if (threadIdx.x % 32 < 4)
        *(float2 *) (sums + w * D + index_of (n, 0)) = make_float2 (low, high);
    }
#pragma unroll
  for (int c = 0; c < D; c += 16) {
    feature_others<D> (acc, pairs.p, other_tile, b, c, w, reverse);
    feature_own<D> (acc, pairs.own, other_tile, b, c, w);
  }
}

/* x = q dq, and later less k dk; then what a token gives itself, of which both would have the same. */
template <int D>
static __device__ inline void
feature_products (float (&acc)[D / 8][4], const Pairs &pairs, uint32_t own_tile, uint32_t other_tile, float *x, int w,
                  bool reverse)
{
#pragma unroll
  for (int n = 0; n < D / 8; n++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t own = pair_at (own_tile, w, n, half), other = pair_at (other_tile, w, n, half);
      float2 *to = (float2 *) (x + turned<D> (row_of (w, half), index_of (n, 0)));
      float2 old = reverse ? *to : make_float2 (0, 0);
      float sign = reverse ? -1 : 1;
      *to = make_float2 (old.x + sign * bf16_at (own, 0) * acc[n][2 * half],
                         old.y + sign * bf16_at (own, 1) * acc[n][2 * half + 1]);
      acc[n][2 * half] += pairs.itself[half] * bf16_at (other, 0);
      acc[n][2 * half + 1] += pairs.itself[half] * bf16_at (other, 1);
    }
}

/* By a thread a feature, once all is there. */
template <typename F>
static __device__ inline void
feature_gates (const Gradients &a, const Item &i, const float *b, const float *x, const float *sums)
{
  int f = threadIdx.x;
  float states = 0;

  if (f >= F::D || a.first + f >= a.d)
    return;
  for (int j = 0; j < F::shares; j++)
    states += sums[j * F::D + f];
  float running = exp2_fast (b[(CHUNK - 1) * Gates<F::D>::row + f]) * states;
  for (int w = 0; w < 4; w++)
    running += sums[(F::shares + w) * F::D + f];
  for (int t = i.tokens - 1; t >= 0; t--) {
    running += x[turned<F::D> (t, f)];
    a.dgates[scalar_of (a, i, t) * a.d + a.first + f] = running;
  }
}
