/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A chunk's decays of each feature: a block has them by pairs of features in shared memory, and what follows from them is
 * multiplied into tiles of queries and keys and into states. */

#include "kernels/device-linear-fwd.cuh"

/* Powers of 2. What is up to 2^26 stays below fp32's 2^127, and of what is down to 2^-26 bf16 keeps all bits. */
#define STEEP 100

/* A logarithm in powers of 2. What is 0 in fp32 need not be smaller, and sums of 64 stay exact enough. */
static __device__ inline float
log2_decay (float gate)
{
  return fmaxf (gate * LOG2_E, -150);
}

static __device__ inline uint32_t
scale_pair (uint32_t pair, float low, float high)
{
  return bf16_pair (bf16_at (pair, 0) * low, bf16_at (pair, 1) * high);
}

/* A thread has the same two features of tokens that follow each other. What is global or shared is read a row by threads
 * next to each other. */
template <int D, int THREADS> struct Columns {
  static constexpr int pairs = D / 2, parts = THREADS / pairs, length = CHUNK / parts;
  static constexpr int sum_bytes = parts * D * 4;
  static_assert (parts % 2 == 0, "a half of the chunk is some parts");

  int part, feature, first; /* token */

  __device__ Columns ()
  {
    int thread = threadIdx.x;

    asm volatile("" : "+r"(thread)); /* what follows from it is not worth registers for a whole loop */
    part = thread / pairs;
    feature = thread % pairs * 2;
    first = part * length;
  }
};

/* Of two features: b before the thread's tokens, in the middle and at the end. */
struct Sums {
  float2 before, middle, end;
};

static __device__ inline float2
plus (float2 a, float2 b)
{
  return make_float2 (a.x + b.x, a.y + b.y);
}

static __device__ inline float2
log2_decays (float2 gate)
{
  return make_float2 (log2_decay (gate.x), log2_decay (gate.y));
}

/* From what each part adds: [parts,D]. */
template <typename C, int D>
static __device__ inline Sums
sums_of (C c, const float *parts)
{
  Sums s = {};

#pragma unroll
  for (int p = 0; p < C::parts; p++) {
    float2 x = *(const float2 *) (parts + p * D + c.feature);
    s.before = p < c.part ? plus (s.before, x) : s.before;
    s.middle = p < C::parts / 2 ? plus (s.middle, x) : s.middle;
    s.end = plus (s.end, x);
  }
  return s;
}

static __device__ inline void
scale_word (uint32_t at, float low, float high)
{
  store_word (at, scale_pair (load_word (at), low, high));
}

/* Where the thread's pair of a token is in a tile. */
static __device__ inline uint32_t
pair_place (uint32_t tile, int token, int feature)
{
  return tile + swizzled (token, feature / 8) + feature % 8 * 2;
}

/* A chunk's gates, 64 rows of D in fp32, ROW apart. */
template <int D, int THREADS, int ROW = D>
static __device__ inline void
gates_load (uint32_t to, const float *from, int64_t stride, int rows, int features)
{
  constexpr int pieces = D / 4, step = THREADS / pieces; /* rows at once */
  int thread = threadIdx.x;

  asm volatile("" : "+r"(thread)); /* as above */
  int row = thread / pieces, feature = thread % pieces * 4;
  const float *at = from + row * stride + feature;

#pragma unroll 4
  for (int i = 0; i < CHUNK; i += step, at += step * stride) {
    bool is_valid = row + i < rows && feature < features;
    copy_16 (to + ((row + i) * ROW + feature) * 4, is_valid ? at : from, is_valid);
  }
}

/* What the thread's tokens add to b, of gates in shared memory. */
template <typename C, int D, int ROW = D>
static __device__ inline void
gates_sum (const float *gates, float *parts)
{
  C c;
  float2 sum = make_float2 (0, 0);

  gates += c.first * ROW + c.feature;
#pragma unroll 8
  for (int i = 0; i < C::length; i++)
    sum = plus (sum, log2_decays (*(const float2 *) (gates + i * ROW)));
  *(float2 *) (parts + c.part * D + c.feature) = sum;
}

/* g (i, b) of the thread's tokens. */
template <typename C, int D, int ROW = D, typename G>
static __device__ inline void
gates_each (C c, const float *gates, const Sums &s, G g)
{
  float2 b = s.before;

  gates += c.first * ROW + c.feature;
#pragma unroll 8
  for (int i = 0; i < C::length; i++) {
    b = plus (b, log2_decays (*(const float2 *) (gates + i * ROW)));
    g (i, b);
  }
}

static __device__ inline float2
load_floats (uint32_t at)
{
  float2 x;

  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];\n" : "=f"(x.x), "=f"(x.y) : "r"(at) : "memory");
  return x;
}

/* Each feature of a state times its factor, [D] in shared memory. */
template <typename F>
static __device__ inline void
state_scale (State<F> &state, uint32_t factors)
{
#pragma unroll
  for (int n = 0; n < F::D / 8; n++) {
    float2 factor = load_floats (factors + index_of (n, 0) * 4);
#pragma unroll
    for (int i = 0; i < F::tiles; i++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        state.s[i][n][e] *= e % 2 ? factor.y : factor.x;
  }
}
