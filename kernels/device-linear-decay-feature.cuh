/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A decay of each feature, as part of the products. With b_i the sum of the logarithms of a chunk's decays up to token i,
 * itself included, in powers of 2, and r that of its middle, queries and keys are scaled once, in their tiles:
 *     q'_i = q_i 2^(b_i - r)    k'_j = k_j 2^(r - b_j)
 * whose products have each pair's decay. States are then scaled to the middle too, that before the chunk by 2^r and the
 * gradient of that after it by 2^(b_end - r), and all is as without decay.
 *
 * Exponents stay within STEEP of zero, where neither fp32 nor bf16 overflows or loses bits, unless a feature forgets more
 * than that in a half of the chunk. Such a feature is steep there. Its queries and keys are left as they are, its states
 * unscaled, and what pairs of tokens lack is added in fp32, pair by pair: the product as it is, times 2^(b_i - b_j) - 1,
 * which no decay is too steep for.
 */

#include "kernels/device-linear-decay.cuh"

/* Powers of 2. What is up to 2^26 stays below fp32's 2^127, and of what is down to 2^-26 bf16 keeps all bits. */
#define STEEP 100

/* Blocks that a multiprocessor has shared memory for, of at most so many. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define SHARED_BYTES (164 * 1024)
#else
#define SHARED_BYTES (228 * 1024)
#endif
#define BLOCKS_OF(most, bytes) ((most) * ((bytes) + 1024) <= SHARED_BYTES ? (most) : 1)

/* Features of which a chunk has a mask of steep ones: words of even and of odd features, 64 by 64. */
#define MASK_FEATURES 128
#define MASK_WORDS 4

static __host__ __device__ inline int64_t
masks_of (int64_t features)
{
  return (features + MASK_FEATURES - 1) / MASK_FEATURES;
}

static __device__ inline bool
mask_has (const uint32_t *mask, int feature)
{
  return mask[feature / 64 * 2 + feature % 2] >> feature % 64 / 2 & 1;
}

/* Any of the 8 features from one on. */
static __device__ inline bool
mask_has_any (const uint32_t *mask, int feature)
{
  return ((mask[feature / 64 * 2] | mask[feature / 64 * 2 + 1]) >> feature % 64 / 2 & 15) != 0;
}

/* --- by pairs of features ----------------------------------------------------------------------------------------- */

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

static __device__ inline bool
is_steep (float middle, float end)
{
  return middle < -STEEP || end - middle < -STEEP;
}

/* Steep, each of the two. */
struct Steep {
  bool x, y;

  __device__ bool any () const
  {
    return x || y;
  }
};

static __device__ inline Steep
steep_of (const Sums &s)
{
  return { is_steep (s.middle.x, s.end.x), is_steep (s.middle.y, s.end.y) };
}

/* A warp has 64 features. */
static __device__ inline void
mask_put (uint32_t *mask, int feature, Steep steep)
{
  uint32_t even = __ballot_sync (0xffffffffu, steep.x), odd = __ballot_sync (0xffffffffu, steep.y);

  if (threadIdx.x % 32 == 0) {
    mask[feature / 64 * 2] = even;
    mask[feature / 64 * 2 + 1] = odd;
  }
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

/* A chunk's gates, 64 rows of D in fp32. */
template <int D, int THREADS>
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
    copy_16 (to + ((row + i) * D + feature) * 4, is_valid ? at : from, is_valid);
  }
}

/* What the thread's tokens add to b, of gates in shared memory. */
template <typename C, int D>
static __device__ inline void
gates_sum (const float *gates, float *parts)
{
  C c;
  float2 sum = make_float2 (0, 0);

  gates += c.first * D + c.feature;
#pragma unroll 8
  for (int i = 0; i < C::length; i++)
    sum = plus (sum, log2_decays (*(const float2 *) (gates + i * D)));
  *(float2 *) (parts + c.part * D + c.feature) = sum;
}

/* g (i, b) of the thread's tokens. */
template <typename C, int D, typename G>
static __device__ inline void
gates_each (C c, const float *gates, const Sums &s, G g)
{
  float2 b = s.before;

  gates += c.first * D + c.feature;
#pragma unroll 8
  for (int i = 0; i < C::length; i++) {
    b = plus (b, log2_decays (*(const float2 *) (gates + i * D)));
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

/* A lane of four has a word of each of four pieces of 16 bytes, and gets a piece. */
static __device__ inline void
quad_turn (uint32_t (&w)[4])
{
  int t = threadIdx.x % 4;

#pragma unroll
  for (int step = 1; step < 4; step *= 2)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i & step)
        continue;
      uint32_t other = __shfl_xor_sync (0xffffffffu, t & step ? w[i] : w[i + step], step);
      w[i] = t & step ? other : w[i];
      w[i + step] = t & step ? w[i + step] : other;
    }
}

/* s[16,16]: 16 rows of a by 16 of b, of K columns; blocks i and j of 16. */
template <int K>
static __device__ inline void
rows_by_rows (uint32_t a_tile, uint32_t b_tile, int i, int j, float (&s)[2][4])
{
  float odd[2][4] = {}; /* sums over every other 16 columns: products wait for those before them */

#pragma unroll
  for (int k = 0; k < K; k += 16) {
    uint32_t a[4], b[4];

    fragment_a (a, a_tile, 16 * i, k);
    fragment_b_transposed (b, b_tile, 16 * j, k);
    mma (k % 32 == 0 ? s[0] : odd[0], a, b[0], b[1]);
    mma (k % 32 == 0 ? s[1] : odd[1], a, b[2], b[3]);
  }
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      s[n][e] += odd[n][e];
}

/* Queries by keys: what no query sees is 0. */
static __device__ inline void
causal (int i, int j, float (&s)[2][4])
{
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      s[n][e] = 16 * i + (int) threadIdx.x % 32 / 4 + e / 2 * 8 >= 16 * j + index_of (n, e) ? s[n][e] : 0;
}

/* --- steep features, pair by pair --------------------------------------------------------------------------------- */

/* g (feature, which of it and the next are steep) of each pair of features with a steep one. */
template <int D, typename G>
static __device__ inline void
steep_each (const uint32_t *mask, G g)
{
#pragma unroll 1
  for (int word = 0; word < D / 32; word += 2)
#pragma unroll 1
    for (uint32_t even = mask[word], odd = mask[word + 1], left = even | odd; left != 0; left &= left - 1) {
      int bit = __ffs ((int) left) - 1;
      g (32 * word + 2 * bit, Steep{ (even >> bit & 1) != 0, (odd >> bit & 1) != 0 });
    }
}

/* 2^(b_query - b_key) - 1; of a query before the key anything finite. */
static __device__ inline float
lack_of (float query, float key)
{
  return exp2_fast (fminf (query - key, 0)) - 1;
}

/* To scores of 16 queries by 16 keys, blocks i and j, what steep features lack. */
template <int D, int ROW>
static __device__ inline void
steep_scores (uint32_t q_tile, uint32_t k_tile, const float *b, const uint32_t *mask, int i, int j, float (&s)[2][4])
{
  int g = threadIdx.x % 32 / 4;

  steep_each<D> (mask, [&] (int feature, Steep steep) {
    float q[2][2];
    float2 from[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int query = 16 * i + g + 8 * half;
      uint32_t x = load_word (pair_place (q_tile, query, feature));
      q[half][0] = steep.x ? bf16_at (x, 0) : 0;
      q[half][1] = steep.y ? bf16_at (x, 1) : 0;
      from[half] = *(const float2 *) (b + query * ROW + feature);
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
      for (int u = 0; u < 2; u++) {
        int key = 16 * j + index_of (n, u);
        uint32_t k = load_word (pair_place (k_tile, key, feature));
        float2 to = *(const float2 *) (b + key * ROW + feature);
#pragma unroll
        for (int half = 0; half < 2; half++)
          s[n][2 * half + u] += q[half][0] * bf16_at (k, 0) * lack_of (from[half].x, to.x) +
                                q[half][1] * bf16_at (k, 1) * lack_of (from[half].y, to.y);
      }
  });
}
