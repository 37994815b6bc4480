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
