/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The backward of a decay a head: weights of pairs of tokens, and the sums that make the gradients of decays and beta. */

#include "kernels/device-linear-decay-bwd.cuh"

/* w_ij of the warp's rows; both are tokens. 0 where the query is before the key. */
static __device__ inline float
head_weight (const float *b, int query, int key)
{
  return query >= key ? exp2_fast (b[query] - b[key]) : 0;
}

/* dq's and dk's scores from P, or dv's from A without beta, of the columns from `first` on, in place. */
static __device__ inline void
head_weigh (float (&s)[4][4], const float *b, int w, bool reverse, int first, bool has_beta)
{
#pragma unroll
  for (int n = 0; n < 4; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int row = row_of (w, e / 2), column = first + index_of (n, e), query = reverse ? column : row,
          key = reverse ? row : column;
      s[n][e] *= head_weight (b, query, key) * (has_beta ? b[CHUNK + key] : 1);
    }
}

/* By rows (keys) of dk's warps: sums over queries of w A P, without beta, of different tokens, and of the same. */
struct HeadSums {
  float columns[2], own[2];
};

/* The columns' (queries') own go to `sums`. */
static __device__ inline void
head_pairs (const float (&p)[4][4], const float (&a)[4][4], const float *b, int w, int first, HeadSums &h, float *sums)
{
#pragma unroll
  for (int n = 0; n < 4; n++)
#pragma unroll
    for (int u = 0; u < 2; u++) {
      int query = first + index_of (n, u);
      float of_query = 0;
#pragma unroll
      for (int half = 0; half < 2; half++) {
        int key = row_of (w, half);
        float c = p[n][2 * half + u] * a[n][2 * half + u], pair = query > key ? head_weight (b, query, key) * c : 0;
        h.columns[half] += pair;
        h.own[half] += query == key ? c : 0;
        of_query += pair * b[CHUNK + key];
      }
      of_query = rows_sum (of_query);
      if (threadIdx.x % 32 < 4)
        sums[(SUM_ROWS + w) * CHUNK + query] = of_query;
    }
}

static __device__ inline void
head_sums_store (const HeadSums &h, int w, float *sums)
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float columns = quad_sum (h.columns[half]), own = quad_sum (h.own[half]);
    if (threadIdx.x % 4 == 0) {
      sums[SUM_COLUMNS * CHUNK + row_of (w, half)] = columns;
      sums[SUM_OWN * CHUNK + row_of (w, half)] = own;
    }
  }
}

/* M E, of all elements that are there. */
template <typename F>
static __device__ inline float
states_product (const Tiles<F> &t)
{
  float sum = 0;

  for (int i = threadIdx.x; i < F::slices * F::slice_bytes / 16; i += THREADS) {
    uint4 m = load_words (t.m + 16 * i), e = load_words (t.e + 16 * i);
    const uint32_t x[4] = { m.x, m.y, m.z, m.w }, y[4] = { e.x, e.y, e.z, e.w };
#pragma unroll
    for (int j = 0; j < 4; j++)
      sum += bf16_at (x[j], 0) * bf16_at (y[j], 0) + bf16_at (x[j], 1) * bf16_at (y[j], 1);
  }
  return sum;
}

/* By the first warp, two tokens a lane, once all sums are there. */
static __device__ inline void
head_gates (const Gradients &a, const Item &i, const float *b, const float *sums)
{
  int lane = threadIdx.x % 32;
  float x[2], after = 0, states = warp_sum (lane < THREADS / 32 ? sums[SUM_STATES * CHUNK + lane] : 0);

#pragma unroll
  for (int e = 0; e < 2; e++) {
    int t = 2 * lane + e;
    float beta = b[CHUNK + t], key = sums[SUM_COLUMNS * CHUNK + t], past = sums[SUM_AFTER * CHUNK + t];
    float query = sums[SUM_INTER * CHUNK + t];
#pragma unroll
    for (int w = 0; w < 4; w++)
      query += sums[(SUM_ROWS + w) * CHUNK + t];
    x[e] = query - beta * (key + past);
    after += beta * past;
    if (a.dbeta.data != nullptr && t < i.tokens) {
      int64_t at = scalar_of (a, i, t);
      store1 (a.dbeta, at, key + past + sums[SUM_OWN * CHUNK + t] + (a.first > 0 ? load1 (a.dbeta, at) : 0));
    }
  }
  float end = exp2_fast (b[CHUNK - 1]) * states + warp_sum (after), sum = x[0] + x[1];
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    float other = __shfl_down_sync (0xffffffffu, sum, offset);
    sum += lane + offset < 32 ? other : 0;
  }
  float later = __shfl_down_sync (0xffffffffu, sum, 1);
  later = x[1] + (lane < 31 ? later : 0);
#pragma unroll
  for (int e = 0; e < 2; e++)
    if (2 * lane + e < i.tokens) {
      float *to = a.dgates + scalar_of (a, i, 2 * lane + e);
      *to = end + (e == 0 ? sum : later) + (a.first > 0 ? *to : 0);
    }
}
