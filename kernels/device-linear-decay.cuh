/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Linear attention whose decay follows the data: of each token and head (Mamba-2, simple GLA), or also of each feature of
 * keys (GLA). See reference.h for the rule. With b_i the sum of the logarithms of a chunk's decays up to token i, itself
 * included, in powers of 2, what stands at token j counts at i by 2^(b_i - b_j). No exponent is above 0 where decays are
 * at most 1, however steep.
 *
 * A decay a head is a weight of a score. One a feature is part of the products, both sides of which are scaled to a token
 * between: q_i 2^(b_i - r) times k_j 2^(r - b_j), r = b of one from j to i - 1. Between blocks of 16 tokens that is a last
 * one of a block. Within one it depends on the highest bit in which i and j differ: pairs of level l are in the same
 * 2^(l+1) tokens, not in the same half, and r is of the last token of the first half. Each level is a product of its own,
 * whose other pairs are left out.
 */

#include "kernels/device-linear-fwd.cuh"

/* Of one direction: states in the order of tokens, or gradients of states against it, which have the same form with q and
 * d_o for keys and values. */
struct DecayStates {
  SpDevRecurrence r;
  const float *gates;
  const float *tables; /* of a decay a head, device-linear-decay-tables.cuh */
  bool reverse;
  SpDevTensor keys, values;
  const float *first;     /* [batch,heads,k,n]: before all; NULL: zero */
  float *last, *transfer; /* after all; T; or NULL */
  uint16_t *kept;         /* [chunks,batch,heads,n,k] in bf16: before each chunk; or NULL */
  void *scratch;
  bool by_groups = false; /* the cut of outputs by groups */
};

/* `before` gets the states before segments of linear_cut_of, or NULL: zero, of the only one. */
cudaError_t decay_states (const DecayStates &s, const float **before, cudaStream_t stream);
size_t decay_states_scratch (const SpDevRecurrence &r);

/* Whether there are kernels for these. */
static inline bool
decay_is_legal (const SpDevRecurrence &r, std::initializer_list<SpDevTensor> in, SpDevTensor beta)
{
  SpDevShape s = r.shape;

  return linear_is_legal (s, in, { beta }) && s.kv_heads > 0 && s.heads % s.kv_heads == 0 &&
         (r.decay == SP_DEV_DECAY_HEAD ||
          (r.decay == SP_DEV_DECAY_FEATURE && !is_present (beta) && s.kv_heads == s.heads));
}

static inline bool
decay_is_empty (SpDevShape s)
{
  return s.m == 0 || s.batch * s.heads * s.k * s.n == 0;
}

/* Whether a block may have as much shared memory on this card. */
static inline bool
fits_in_block (size_t bytes)
{
  int device, most = 0;

  return cudaGetDevice (&device) == cudaSuccess &&
         cudaDeviceGetAttribute (&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
         bytes <= (size_t) most;
}

/* A logarithm in powers of 2. What is 0 in fp32 need not be smaller, and sums of 64 stay exact enough. */
static __device__ inline float
log2_decay (float gate)
{
  return fmaxf (gate * LOG2_E, -150);
}

/* --- a decay a head ----------------------------------------------------------------------------------------------- */

/* Of a chunk: b, beta, and the tokens' weights in the state after it as two bf16. */
#define HEAD_BYTES (3 * CHUNK * 4)
#define HEAD_BETA (CHUNK * 4)
#define HEAD_WEIGHTS (2 * CHUNK * 4)

/* Fetched a chunk ahead by the first warp, two tokens a lane. */
struct HeadGates {
  const float *gates;
  SpDevTensor beta;
  int64_t at, stride; /* of the first token; between tokens */
  int tokens;
  float g[2], w[2];

  __device__ void fetch (int chunk)
  {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      int token = chunk * CHUNK + (int) threadIdx.x % 32 * 2 + e;
      bool is_there = chunk >= 0 && token < tokens;
      g[e] = is_there ? log2_decay (gates[at + token * stride]) : 0;
      w[e] = is_there ? load_or<1> (beta, at + token * stride, 1).x[0] : 0;
    }
  }

  /* b of both; the sum over all. */
  __device__ float add_up (float (&b)[2]) const
  {
    int lane = threadIdx.x % 32;
    float sum = g[0] + g[1];

#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      float other = __shfl_up_sync (0xffffffffu, sum, offset);
      sum += lane >= offset ? other : 0;
    }
    float before = __shfl_up_sync (0xffffffffu, sum, 1);
    b[0] = (lane > 0 ? before : 0) + g[0];
    b[1] = sum;
    return __shfl_sync (0xffffffffu, sum, 31);
  }

  __device__ void put (unsigned char *to, bool reverse) const
  {
    int lane = threadIdx.x % 32;
    float b[2], high[2], weight[2], total = add_up (b);

#pragma unroll
    for (int e = 0; e < 2; e++) {
      weight[e] = reverse ? exp2f (b[e]) : w[e] * exp2f (total - b[e]);
      high[e] = __bfloat162float (__float2bfloat16_rn (weight[e]));
    }
    ((float2 *) to)[lane] = make_float2 (b[0], b[1]);
    ((float2 *) (to + HEAD_BETA))[lane] = make_float2 (w[0], w[1]);
    ((uint32_t *) (to + HEAD_WEIGHTS))[lane] = bf16_pair (high[0], high[1]);
    ((uint32_t *) (to + HEAD_WEIGHTS))[lane + 32] = bf16_pair (weight[0] - high[0], weight[1] - high[1]);
  }
};

/* --- a decay a feature -------------------------------------------------------------------------------------------- */

/* A chunk's b, of tokens by features: rows so long that what a warp reads lies in different banks. */
template <int D> struct Gates {
  static constexpr int row = D + (D <= 128 ? 8 : 4), bytes = CHUNK * row * 4;
};

template <int D, int THREADS>
static __device__ inline void
gates_load (uint32_t to, const float *from, int64_t stride, int rows, int features)
{
  for (int i = threadIdx.x; i < CHUNK * D / 4; i += THREADS) {
    int row = i / (D / 4), feature = i % (D / 4) * 4;
    bool is_valid = row < rows && feature < features;
    copy_16 (to + (row * Gates<D>::row + feature) * 4, is_valid ? from + row * stride + feature : from, is_valid);
  }
}

/* Threads that share a feature. */
template <int D, int THREADS> struct Scan {
  static constexpr int parts = THREADS / D >= 4 ? 4 : THREADS / D >= 2 ? 2 : 1, bytes = parts * D * 4;
};

/* From logarithms of decays to b, in place; sums [parts,D]. Ends with a barrier. */
template <int D, int THREADS>
static __device__ inline void
gates_scan (float *b, float *sums)
{
  constexpr int parts = Scan<D, THREADS>::parts, length = CHUNK / parts, row = Gates<D>::row;
  int part = threadIdx.x / D, feature = threadIdx.x % D;

  if (parts > 1) {
    float sum = 0;
    if (part < parts)
#pragma unroll 16
      for (int i = 0; i < length; i++)
        sum += log2_decay (b[(part * length + i) * row + feature]);
    if (part < parts)
      sums[part * D + feature] = sum;
    __syncthreads ();
  }
  for (int f = feature; f < D && part < parts; f += THREADS) {
    float running = 0;
    for (int i = 0; i < part; i++)
      running += sums[i * D + f];
#pragma unroll 16
    for (int i = 0; i < length; i++) {
      float *at = b + (part * length + i) * row + f;
      running += log2_decay (*at);
      *at = running;
    }
  }
  __syncthreads ();
}

static __device__ inline uint32_t
scale_pair (uint32_t pair, float low, float high)
{
  return bf16_pair (bf16_at (pair, 0) * low, bf16_at (pair, 1) * high);
}

/* A tile of keys to what they are in the state after the chunk or, from its start, of queries to what they read of the
 * state before it. In place. */
template <int D, int THREADS>
static __device__ inline void
tile_scale (uint32_t tile, const float *b, bool from_start)
{
  constexpr int pieces = D / 8, row = Gates<D>::row;

  for (int i = threadIdx.x; i < CHUNK * pieces; i += THREADS) {
    int token = i / pieces, feature = i % pieces * 8;
    uint32_t at = tile + swizzled (token, feature / 8);
    uint4 w = load_words (at);
    const float *own = b + token * row + feature, *end = b + (CHUNK - 1) * row + feature;
    uint32_t words[4] = { w.x, w.y, w.z, w.w };
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float2 x = *(const float2 *) (own + 2 * j), last = *(const float2 *) (end + 2 * j);
      words[j] = scale_pair (words[j], exp2_fast (from_start ? x.x : last.x - x.x),
                             exp2_fast (from_start ? x.y : last.y - x.y));
    }
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};\n" ::"r"(at), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
  }
}

/* The token that pairs of a level with this one are scaled to, and whether it is in the later half. */
static __device__ inline int
level_middle (int token, int level)
{
  return ((token >> level | 1) << level) - 1;
}

static __device__ inline float
level_factor (int token, int level, float own, float middle)
{
  return exp2_fast (token >> level & 1 ? own - middle : middle - own);
}

/* Scores of 16 rows of one tile by 16 of another, blocks i and j, all of one's tokens after the other's, scaled to token
 * `middle`. */
template <int D>
static __device__ inline void
feature_block (uint32_t a_tile, uint32_t b_tile, const float *b, int i, int j, int middle, float (&s)[2][4])
{
  constexpr int row = Gates<D>::row;
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float sign = i > j ? 1 : -1;
  const float *rows = b + (16 * i + g) * row + 2 * t, *columns = b + (16 * j + g) * row + 2 * t;
  const float *between = b + middle * row + 2 * t;

#pragma unroll
  for (int k = 0; k < D; k += 16) {
    uint32_t x[4], y[4];

    fragment_a (x, a_tile, 16 * i, k);
    fragment_b_transposed (y, b_tile, 16 * j, k);
#pragma unroll
    for (int e = 0; e < 4; e++) { /* of a: rows g and g + 8, then 8 features on; of b the features first */
      float2 own = *(const float2 *) (rows + e % 2 * 8 * row + k + e / 2 * 8);
      float2 other = *(const float2 *) (columns + e / 2 * 8 * row + k + e % 2 * 8);
      float2 r = *(const float2 *) (between + k + e / 2 * 8), r_other = *(const float2 *) (between + k + e % 2 * 8);
      x[e] = scale_pair (x[e], exp2_fast (sign * (own.x - r.x)), exp2_fast (sign * (own.y - r.y)));
      y[e] = scale_pair (y[e], exp2_fast (sign * (r_other.x - other.x)), exp2_fast (sign * (r_other.y - other.y)));
    }
    mma (s[0], x, y[0], y[1]);
    mma (s[1], x, y[2], y[3]);
  }
}

/* The same of block i by itself, row and column of a tile each: pairs of which the row's token is not before the column's
 * or, `reverse`, not after. */
template <int D>
static __device__ inline void
feature_diagonal (uint32_t a_tile, uint32_t b_tile, const float *b, int i, bool reverse, float (&s)[2][4])
{
  constexpr int row = Gates<D>::row;
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float sums[5][2][4] = {};
  const float *at = b + 16 * i * row + 2 * t;

#pragma unroll 2
  for (int k = 0; k < D; k += 16) {
    uint32_t x[4], y[4];
    float2 own[2][2];

    fragment_a (x, a_tile, 16 * i, k);
    fragment_b_transposed (y, b_tile, 16 * i, k);
    mma (sums[4][0], x, y[0], y[1]);
    mma (sums[4][1], x, y[2], y[3]);
#pragma unroll
    for (int e = 0; e < 4; e++)
      own[e % 2][e / 2] = *(const float2 *) (at + (g + e % 2 * 8) * row + k + e / 2 * 8);
#pragma unroll
    for (int level = 0; level < 4; level++) {
      uint32_t x_scaled[4], y_scaled[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int token = g + e % 2 * 8;
        float2 middle = *(const float2 *) (at + level_middle (token, level) * row + k + e / 2 * 8);
        float low = level_factor (token, level, own[e % 2][e / 2].x, middle.x);
        float high = level_factor (token, level, own[e % 2][e / 2].y, middle.y);
        x_scaled[e] = scale_pair (x[e], low, high);
        y_scaled[e % 2 * 2 + e / 2] = scale_pair (y[e % 2 * 2 + e / 2], low, high);
      }
      mma (sums[level][0], x_scaled, y_scaled[0], y_scaled[1]);
      mma (sums[level][1], x_scaled, y_scaled[2], y_scaled[3]);
    }
  }
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int from = g + e / 2 * 8, to = index_of (n, e), differ = from ^ to;
      float x = differ == 0 ? sums[4][n][e] : 0;
#pragma unroll
      for (int level = 0; level < 4; level++)
        x = differ >> level == 1 && (reverse ? from < to : from > to) ? sums[level][n][e] : x;
      s[n][e] = x;
    }
}
