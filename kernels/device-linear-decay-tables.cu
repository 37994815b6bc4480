/* SPDX-License-Identifier: Apache-2.0 */
/* Before and after the kernels by warpgroups of a decay a head that follows the data: its tables, and its gradient. */
#include "kernels/device-linear-decay-tables.cuh"
#include "kernels/device-linear-decay.cuh"

/* --- tables ------------------------------------------------------------------------------------------------------- */

#define TABLE_WARPS 8

struct Tables {
  int64_t m, vectors, chunks;
  const float *gates;
  SpDevTensor beta;
  float *tables;
};

/* As two bf16 each. */
static __device__ inline void
store_halves (uint32_t *to, const float (&x)[2])
{
  int lane = threadIdx.x % 32;
  float high[2] = { __bfloat162float (__float2bfloat16_rn (x[0])), __bfloat162float (__float2bfloat16_rn (x[1])) };

  to[lane] = bf16_pair (high[0], high[1]);
  to[lane + 32] = bf16_pair (x[0] - high[0], x[1] - high[1]);
}

/* A warp a table; those side by side are of vectors side by side, whose decays are. */
static __global__ void __launch_bounds__ (32 * TABLE_WARPS) tables_kernel (Tables a)
{
  int64_t i = (int64_t) blockIdx.x * TABLE_WARPS + threadIdx.x / 32, vector = i % a.vectors, chunk = i / a.vectors;
  int lane = threadIdx.x % 32;

  if (chunk >= a.chunks)
    return;
  HeadGates gates = {
    a.gates, a.beta, chunk * CHUNK * a.vectors + vector, a.vectors, (int) min (a.m - chunk * CHUNK, (int64_t) CHUNK),
    {},      {}
  };
  float b[2], end[2], start[2];
  gates.fetch (0);
  float total = gates.add_up (b);
#pragma unroll
  for (int e = 0; e < 2; e++) {
    end[e] = gates.w[e] * exp2f (total - b[e]);
    start[e] = exp2f (b[e]);
  }
  float *to = a.tables + (vector * a.chunks + chunk) * TABLE_FLOATS;
  ((float2 *) (to + TABLE_END))[lane] = make_float2 (end[0], end[1]);
  ((float2 *) (to + TABLE_B))[lane] = make_float2 (b[0], b[1]);
  ((float2 *) (to + TABLE_BETA))[lane] = make_float2 (gates.w[0], gates.w[1]);
  ((float2 *) (to + TABLE_START))[lane] = make_float2 (start[0], start[1]);
  store_halves ((uint32_t *) (to + TABLE_HALVES), end);
  store_halves ((uint32_t *) (to + TABLE_START_HALVES), start);
}

size_t
decay_tables_bytes (const SpDevRecurrence &r)
{
  return (size_t) (r.shape.batch * r.shape.heads * div_up (r.shape.m, CHUNK)) * TABLE_FLOATS * sizeof (float);
}

cudaError_t
decay_tables (const SpDevRecurrence &r, const float *gates, SpDevTensor beta, float *tables, cudaStream_t stream)
{
  SpDevShape s = r.shape;
  Tables a = { s.m, s.batch * s.heads, div_up (s.m, CHUNK), gates, beta, tables };

  return launch (tables_kernel, dim3 ((unsigned) div_up (a.vectors * a.chunks, TABLE_WARPS)), 32 * TABLE_WARPS, 0,
                 stream, a);
}

/* --- the gradient of decays --------------------------------------------------------------------------------------- */

#define SUM_THREADS 256

/* This thread's part of M E between segments `after` - 1 and `after`. */
static __device__ inline float
states_product (const DecaySums &a, int after, int64_t vector)
{
  float sum = 0;

  if (after > 0 && after < a.segments) {
    const uint4 *m = a.states + ((int64_t) (after - 1) * a.vectors + vector) * KNOT;
    const uint4 *e = m + (int64_t) (a.segments - 1) * a.vectors * KNOT;
#pragma unroll
    for (int i = 0; i < KNOT / SUM_THREADS; i++)
      sum += product_of_eight (m[i * SUM_THREADS + threadIdx.x], e[i * SUM_THREADS + threadIdx.x]);
    return sum;
  }
  const float *m = after == 0 ? a.first[0] : a.last[0], *e = after == 0 ? a.first[1] : a.last[1];
  if (m != nullptr && e != nullptr)
    for (int i = threadIdx.x; i < a.size; i += SUM_THREADS)
      sum += m[vector * a.size + i] * e[vector * a.size + i];
  return sum;
}

/* Sum over the threads before this one; *ret_all: over all. `parts` as block_sum's. */
static __device__ inline float
block_sum_before (float x, float *parts, float *ret_all)
{
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sum = x, before = 0, all = 0;

#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    float other = __shfl_up_sync (0xffffffffu, sum, offset);
    sum += lane >= offset ? other : 0;
  }
  __syncthreads ();
  if (lane == 31)
    parts[warp] = sum;
  __syncthreads ();
  for (int w = 0; w < SUM_THREADS / 32; w++) {
    before += w < warp ? parts[w] : 0;
    all += parts[w];
  }
  *ret_all = all;
  return before + sum - x;
}

#define MOST_TOKENS 4 /* of a segment a thread */

/* A block a segment of a vector. */
static __global__ void
__launch_bounds__ (SUM_THREADS) gradients_kernel (DecaySums a)
{
  __shared__ float parts[32];
  int64_t vector = blockIdx.x % a.vectors, segment = blockIdx.x / a.vectors;
  int64_t first = segment * a.segment, row = vector * a.m + first;
  int tokens = (int) min (a.m - first, (int64_t) a.segment), each = (tokens + SUM_THREADS - 1) / SUM_THREADS;
  int own = (int) threadIdx.x * each;
  float net[MOST_TOKENS], sum = 0, all;

#pragma unroll
  for (int i = 0; i < MOST_TOKENS; i++) {
    int64_t at = row + own + i;
    net[i] = i < each && own + i < tokens ? a.y[at] - (a.x[0][at] + a.x[1][at]) : 0;
    sum += net[i];
  }
  float start = block_sum (states_product (a, (int) segment, vector), parts);
  float end = block_sum (states_product (a, (int) segment + 1, vector), parts);
  float running = start + block_sum_before (sum, parts, &all);
  float missed = (end - start - all) / (float) tokens; /* a token */
#pragma unroll
  for (int i = 0; i < MOST_TOKENS; i++)
    if (i < each && own + i < tokens) {
      a.dgates[(first + own + i) * a.vectors + vector] = running + missed * (float) (own + i);
      running += net[i];
    }
}

cudaError_t
decay_gradients (const DecaySums &s, cudaStream_t stream)
{
  if (s.segment > MOST_TOKENS * SUM_THREADS)
    return cudaErrorInvalidValue;
  return launch (gradients_kernel, dim3 ((unsigned) (s.vectors * s.segments)), SUM_THREADS, 0, stream, s);
}

/* --- heads that share keys ---------------------------------------------------------------------------------------- */

struct SumHeads {
  int64_t k, share;
  SpDevTensor parts, out;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t row = divide (i, k), from = row * share * k + (i - row * k);
    Vec<V> sum = {};

#pragma unroll 4
    for (int64_t h = 0; h < share; h++) {
      Vec<V> x = load<V, true> (parts, from + h * k);
#pragma unroll
      for (int j = 0; j < V; j++)
        sum.x[j] += x.x[j];
    }
    store<V> (out, i, sum);
  }
};

cudaError_t
sum_heads (const SpDevShape &s, const void *parts, SpDevTensor out, cudaStream_t stream)
{
  return each (SumHeads{ s.k, s.heads / s.kv_heads, { (void *) parts, SP_DEV_BF16 }, out },
               s.m * s.batch * s.kv_heads * s.k, width_of ({ s.k }, { out }), stream);
}
