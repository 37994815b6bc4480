/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The delta rule with a decay a feature (Kimi Delta Attention, 2510.26692). L_t of device-delta.cuh is then one of each
 * feature, and what stood there as a weight of a product is part of its operands: with (.) elementwise
 *     N_tj = k_t . (e^(L_t - L_j) (.) k_j),     P_tj = q_t . (e^(L_t - L_j) (.) k_j)
 *     x_t = v_t - S^T (e^L_t (.) k_t),     o_t = S^T (e^L_t (.) q_t) + sum over j of P_tj b_j u_j
 *     S' = e^L_63 (.) S + sum over j of (e^(L_63 - L_j) (.) k_j) b_j u_j^T
 * Queries and keys so scaled are made once, beside Z and P, and the passes read them instead. No exponent is above 0.
 *
 * Pairs of tokens go by levels, so that theirs are not either. The level of two tokens is the highest bit in which their
 * numbers within the chunk differ: 32, 16, 8, 4, 2, 1. A pair of a level lies in one block of twice so many tokens, the
 * query in its later half and the key in its earlier one. With r the last token of the earlier half,
 *     e^(L_t - L_j) = e^(L_t - L_r) e^(L_r - L_j)
 * and both are at most 1, however steep the decays; of the blocks' products those of the level's pairs are kept. The pairs
 * of 16 tokens need no levels below 8 where no feature forgets more than 2^-STEEP in a half of them: exponents above 0 are
 * then small enough that the level's r serves them all.
 */

#include "kernels/device-delta.cuh"
#include "kernels/device-linear-columns.cuh"

/* Floats of a token's row of L: rows that a warp reads at once lie in different banks. */
template <int D>
static __host__ __device__ constexpr int
log_row (void)
{
  return D + 8;
}

/* Gates in place to L, in powers of 2. parts: Columns::sum_bytes. Begins where gates are there, ends with a barrier. */
template <typename C, int D>
static __device__ inline void
logs_make (float *logs, float *parts)
{
  C c;

  gates_sum<C, D, log_row<D> ()> (logs, parts);
  __syncthreads ();
  Sums s = sums_of<C, D> (c, parts);
  gates_each<C, D, log_row<D> ()> (
      c, logs, s, [&] (int i, float2 b) { *(float2 *) (logs + (c.first + i) * log_row<D> () + c.feature) = b; });
  __syncthreads ();
}

/* The last token of the earlier half. Level 0 has tokens with themselves. */
static __device__ inline int
level_middle (int level, int token)
{
  return level == 0 ? token : (token & -2 * level) + level - 1;
}

/* Whether two tokens are of a level. */
static __device__ inline bool
level_has (int level, int a, int b)
{
  return level == 0 ? a == b : ((a ^ b) & -level) == level;
}

/* Whether 16 tokens are pairs of level 8 all together, as far as a feature goes. */
template <int D>
static __device__ inline bool
is_gentle (const float *logs, int block, int feature)
{
  const float *at = logs + 16 * block * log_row<D> () + feature;

  return at[0] - at[7 * log_row<D> ()] <= STEEP && at[7 * log_row<D> ()] - at[15 * log_row<D> ()] <= STEEP;
}

/* L_t - L_r of two features, of which `logs` begins with the first. */
template <int D>
static __device__ inline float2
level_distance (const float *logs, int level, int token)
{
  float2 own = *(const float2 *) (logs + token * log_row<D> ());
  float2 middle = *(const float2 *) (logs + level_middle (level, token) * log_row<D> ());

  return make_float2 (own.x - middle.x, own.y - middle.y);
}

/* A token's factor as a query, of its distance, or as a key, of minus that. most: 0, but STEEP where pairs go together. */
static __device__ inline float
level_factor (float distance, float most)
{
  return exp2_fast (fminf (distance, most));
}
