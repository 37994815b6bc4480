/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pieces of linear attention's forward, by chunks of 64 tokens. A block has C columns of the values and a warp R of
 * them, so that all that a warp accumulates is turned: the state S^T[R,D] and the outputs o^T[R,64], in fp32 in
 * registers. The state then is an operand of the outputs as it lies there, and never leaves its warp. Only the scores
 * within a chunk are shared: 16 by 16 of them at a time are some warp's.
 */

#include "kernels/device-linear-warps.cuh"
#include "kernels/device-linear.cuh"
#include "kernels/device-swizzle.cuh"

#define CHUNK 64 /* tokens */

struct Forward {
  int64_t m, batch, heads, d, c; /* features of keys and of values */
  int64_t segment;               /* tokens, a multiple of CHUNK */
  const float *slopes;
  const uint16_t *queries, *keys, *values;
  SpDevTensor o;
  bool is_wide;        /* o is bf16 and aligned to 16 bytes */
  const float *before; /* [segments,batch,heads,d,c]: the state before each segment; NULL: zero, of the only one */
  float *own;          /* of the same shape: what each segment adds */
  float *after;        /* [batch,heads,d,c]: the last state, or NULL */
  /* Of decays that follow the data, device-linear-decay.cuh: */
  int64_t kv_heads; /* heads of queries and keys */
  const float *gates;
  SpDevTensor beta;
  const float *tables = nullptr; /* device-linear-decay-tables.cuh, for the outputs by groups */
};

/* With these operands and no others. */
static inline Forward
forward_of (SpDevShape s, int64_t segment, SpDevTensor q, SpDevTensor keys, SpDevTensor values, SpDevTensor o)
{
  Forward f = {};

  f.m = s.m;
  f.batch = s.batch;
  f.heads = s.heads;
  f.kv_heads = s.kv_heads;
  f.d = s.k;
  f.c = s.n;
  f.segment = segment;
  f.queries = (const uint16_t *) q.data;
  f.keys = (const uint16_t *) keys.data;
  f.values = (const uint16_t *) values.data;
  f.o = o;
  f.is_wide = is_aligned (o.data, 16);
  return f;
}

/* How a shape is cut: device-linear-fwd.cu. */
struct Cut {
  bool by_groups;            /* outputs by device-linear-fwd-sm90.cu */
  int64_t columns;           /* of the values that a block has */
  int64_t at_once;           /* blocks */
  int64_t segment, segments; /* tokens of each but the last */
};
Cut linear_cut_of (SpDevShape s, bool by_groups);

/* The outputs by device-linear-fwd-sm90.cu: compute capability 9, keys of up to 128 features. */
cudaError_t linear_outputs_sm90 (const Forward &f, int64_t segments, cudaStream_t stream);

/* Of a block of W warps. */
template <int D_, int R_, int W_> struct Form {
  static constexpr int D = D_, R = R_, W = W_;
  static constexpr int C = R * W, threads = 32 * W, tiles = R / 16; /* of 16 columns */
  static constexpr int key_row = 2 * D, value_row = 2 * C;          /* bytes */
  static constexpr int key_bytes = CHUNK * key_row, value_bytes = CHUNK * value_row;
  static constexpr int score_row = 2 * CHUNK, score_bytes = CHUNK * score_row;
  static constexpr int weight_bytes = 2 * CHUNK * 2;
  static constexpr int staged_row = 2 * R, staged_bytes = CHUNK / 2 * staged_row; /* a warp's outputs of 32 tokens */
};

/* What a block works on. */
struct Place {
  int segment, b, h, column; /* the first of its columns */
  int64_t first;             /* token of the segment */
  int tokens;
  float slope2;
};

static __device__ inline Place
place_at (const Forward &a, int columns, int segment)
{
  Place p;

  p.column = (int) blockIdx.x * columns;
  p.b = (int) (blockIdx.y / (uint32_t) a.heads);
  p.h = (int) (blockIdx.y % (uint32_t) a.heads);
  p.segment = segment;
  p.first = p.segment * a.segment;
  p.tokens = (int) min (a.m - p.first, a.segment);
  p.slope2 = a.slopes != nullptr ? a.slopes[p.h] * LOG2_E : 0;
  return p;
}

static __device__ inline Place
place_of (const Forward &a, int columns)
{
  return place_at (a, columns, blockIdx.z);
}

static __device__ inline int64_t
element_of (const Forward &a, const Place &p, int64_t token, int64_t size)
{
  return ((token * a.batch + p.b) * a.heads + p.h) * size;
}

/* Of queries and keys, which heads may share. */
static __device__ inline int64_t
key_of (const Forward &a, const Place &p, int64_t token)
{
  return ((token * a.batch + p.b) * a.kv_heads + p.h * a.kv_heads / a.heads) * a.d;
}

/* Of a [batch,heads,d,c] that is the index-th. */
static __device__ inline int64_t
state_at (const Forward &a, const Place &p, int64_t index)
{
  return ((index * a.batch + p.b) * a.heads + p.h) * a.d * a.c + p.column;
}

template <typename F>
static __device__ inline void
state_load (const Forward &a, const Place &p, const float *from, State<F> &state)
{
  state_each (state, [&] (float &s, int row, int column) {
    s = row < a.d && p.column + column < a.c ? from[row * a.c + column] : 0;
  });
}

template <typename F>
static __device__ inline void
state_store (const Forward &a, const Place &p, State<F> &state, float *to)
{
  state_each (state, [&] (float &s, int row, int column) {
    if (row < a.d && p.column + column < a.c)
      to[row * a.c + column] = s;
  });
}

/* Token j of a chunk counts for the state after `tokens` from its first on by its distance to the last of them: a
 * weight, kept as two bf16. By a warp. */
static __device__ inline void
weights_set (uint32_t weights, float slope2, int tokens)
{
  int j = threadIdx.x % 32;
  float w[2], high[2];

#pragma unroll
  for (int e = 0; e < 2; e++) {
    w[e] = 2 * j + e < tokens ? decay2 (slope2, tokens - 1 - 2 * j - e) : 0;
    high[e] = __bfloat162float (__float2bfloat16_rn (w[e]));
  }
  store_word (weights + 4 * j, bf16_pair (high[0], high[1]));
  store_word (weights + 2 * CHUNK + 4 * j, bf16_pair (w[0] - high[0], w[1] - high[1]));
}

static __device__ inline uint32_t
weigh (uint32_t pair, uint32_t high, uint32_t low)
{
  __nv_bfloat162 x = *(__nv_bfloat162 *) &pair, h = *(__nv_bfloat162 *) &high, l = *(__nv_bfloat162 *) &low;
  __nv_bfloat162 y = __hfma2 (x, h, __hmul2 (x, l));

  return *(uint32_t *) &y;
}

/* Fragments of 16 tokens' values, turned, and the same weighed. */
template <typename F>
static __device__ inline void
values_weighed (const uint32_t v[F::tiles][4], uint32_t weights, int token, uint32_t weighed[F::tiles][4])
{
  uint32_t at = weights + 2 * token + threadIdx.x % 4 * 4;

#pragma unroll
  for (int half = 0; half < 2; half++) {
    uint32_t high = load_word (at + 16 * half), low = load_word (at + 16 * half + 2 * CHUNK);
#pragma unroll
    for (int i = 0; i < F::tiles; i++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        weighed[i][2 * half + e] = weigh (v[i][2 * half + e], high, low);
  }
}

/* state^T += weighed^T x of 16 tokens */
template <typename F>
static __device__ inline void
state_add (State<F> &state, const uint32_t weighed[F::tiles][4], uint32_t x_tile, int token)
{
#pragma unroll
  for (int n = 0; n < F::D / 8; n += 2) {
    uint32_t b[4];

    fragment_b (b, x_tile, token, 8 * n);
#pragma unroll
    for (int i = 0; i < F::tiles; i++) {
      mma (state.s[i][n], weighed[i], b[0], b[1]);
      mma (state.s[i][n + 1], weighed[i], b[2], b[3]);
    }
  }
}

template <typename F>
static __device__ inline void
values_load (uint32_t v[F::tiles][4], uint32_t y_tile, int token)
{
#pragma unroll
  for (int i = 0; i < F::tiles; i++)
    fragment_a_transposed (v[i], y_tile, token, (int) threadIdx.x / 32 * F::R + 16 * i);
}

/* --- outputs of a chunk ------------------------------------------------------------------------------------------- */

/* Scores of 16 queries by 16 keys, blocks i and j of them, to where the chunk's are. */
static __device__ inline void
score_store (uint32_t scores, int i, int j, const float (&s)[2][4])
{
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int e = 0; e < 4; e += 2)
      store_word (scores + swizzled (16 * i + g + 4 * e, 2 * j + n) + 4 * t, bf16_pair (s[n][e], s[n][e + 1]));
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

/* Each is weight (query, key, score), which is zero where the key comes after. */
template <typename F, typename W>
static __device__ inline void
score_block (uint32_t z_tile, uint32_t x_tile, uint32_t scores, int i, int j, W weight)
{
  float s[2][4] = {};
  int g = threadIdx.x % 32 / 4;

  rows_by_rows<F::D> (z_tile, x_tile, i, j, s);
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      s[n][e] = weight (16 * i + g + e / 2 * 8, 16 * j + index_of (n, e), s[n][e]);
  score_store (scores, i, j, s);
}

/* Blocks on and below the diagonal, dealt to the warps. */
template <typename F, typename W>
static __device__ inline void
score_chunk (uint32_t z_tile, uint32_t x_tile, uint32_t scores, int tokens, W weight)
{
  constexpr int blocks = (CHUNK / 16) * (CHUNK / 16 + 1) / 2;

  for (int u = threadIdx.x / 32; u < blocks; u += F::W) {
    int i = u < 1 ? 0 : u < 3 ? 1 : u < 6 ? 2 : 3;
    if (16 * i < tokens)
      score_block<F> (z_tile, x_tile, scores, i, u - i * (i + 1) / 2, weight);
  }
}

template <typename F> struct Outputs {
  float o[F::tiles][CHUNK / 8][4];
};

/* 16 features of the state as an operand. */
template <typename F>
static __device__ inline void
state_operand (const State<F> &state, int k, uint32_t a[F::tiles][4])
{
#pragma unroll
  for (int i = 0; i < F::tiles; i++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      a[i][e] = bf16_pair (state.s[i][2 * k + e / 2][e % 2 * 2], state.s[i][2 * k + e / 2][e % 2 * 2 + 1]);
}

/* o^T += S^T z^T of 16 features */
template <typename F>
static __device__ inline void
outputs_add (Outputs<F> &out, const uint32_t a[F::tiles][4], uint32_t z_tile, int k)
{
#pragma unroll
  for (int n = 0; n < CHUNK / 8; n += 2) {
    uint32_t b[4];

    fragment_b_transposed (b, z_tile, 8 * n, 16 * k);
#pragma unroll
    for (int i = 0; i < F::tiles; i++) {
      mma (out.o[i][n], a[i], b[0], b[1]);
      mma (out.o[i][n + 1], a[i], b[2], b[3]);
    }
  }
}

template <typename F>
static __device__ inline void
state_read (Outputs<F> &out, const State<F> &state, uint32_t z_tile)
{
#pragma unroll
  for (int k = 0; k < F::D / 16; k++) {
    uint32_t a[F::tiles][4];

    state_operand (state, k, a);
    outputs_add<F> (out, a, z_tile, k);
  }
}

/* What comes from the state `before` tokens before the chunk decays with the token. */
template <typename F>
static __device__ inline void
outputs_decay (Outputs<F> &out, float slope2, int before)
{
  asm volatile("" : "+f"(slope2)); /* the weights are not worth registers for a whole loop */
  float w[2] = { decay2 (slope2, before + 1 + index_of (0, 0)), decay2 (slope2, before + 1 + index_of (0, 1)) };
  float step = decay2 (slope2, 8);

#pragma unroll
  for (int n = 0; n < CHUNK / 8; n++) {
#pragma unroll
    for (int i = 0; i < F::tiles; i++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        out.o[i][n][e] *= w[e % 2];
    w[0] *= step;
    w[1] *= step;
  }
}

/* o^T += y^T P^T for 16 keys, and the queries that see them */
template <typename F>
static __device__ inline void
scores_read (Outputs<F> &out, const uint32_t v[F::tiles][4], uint32_t scores, int token)
{
#pragma unroll
  for (int n = token / 8; n < CHUNK / 8; n += 2) {
    uint32_t b[4];

    fragment_b_transposed (b, scores, 8 * n, token);
#pragma unroll
    for (int i = 0; i < F::tiles; i++) {
      mma (out.o[i][n], v[i], b[0], b[1]);
      mma (out.o[i][n + 1], v[i], b[2], b[3]);
    }
  }
}

/* Four 8 by 8 matrices of a warp's registers, turned, to rows of 16 bytes that lanes 0-7, 8-15, 16-23, 24-31 name. */
static __device__ inline void
store_matrices_transposed (uint32_t at, const uint32_t r[4])
{
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(at), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint32_t turned, row = __shfl_sync (0xffffffffu, at, 8 * i + (int) threadIdx.x % 32 / 4);

    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(turned) : "r"(r[i]));
    store_word (row + threadIdx.x % 4 * 4, turned);
  }
#endif
}

/* Where a piece of 16 bytes of a staged row lies: rows are shorter than a line of banks. */
template <typename F>
static __device__ inline uint32_t
staged_at (int row, int piece)
{
  constexpr int pieces = F::staged_row / 16, lines = 128 / F::staged_row;

  return row * F::staged_row + ((piece ^ (row / lines & (pieces - 1))) << 4);
}

/* 16 bytes of bf16 to o, of data that may be aligned to an element alone. */
static __device__ inline void
store_piece (const Forward &a, int64_t at, uint4 w)
{
  uint16_t *to = (uint16_t *) a.o.data + at;

  if (a.is_wide)
    *(uint4 *) to = w;
  else {
    const uint32_t words[4] = { w.x, w.y, w.z, w.w };
#pragma unroll
    for (int i = 0; i < 8; i++)
      to[i] = (uint16_t) (words[i / 2] >> i % 2 * 16);
  }
}

/* Turned back in a corner of shared memory of the warp's own, 32 tokens at a time. */
template <typename F>
static __device__ inline void
outputs_store_bf16 (const Forward &a, const Place &p, const Outputs<F> &out, uint32_t staged, int64_t first, int tokens)
{
  constexpr int pieces = F::staged_row / 16, rows = 32 / pieces; /* rows that a warp stores at once */
  constexpr int together = 2 / F::tiles;                         /* of 8 tokens: four matrices */
  int lane = threadIdx.x % 32, piece = lane % pieces;
  int column = (int) threadIdx.x / 32 * F::R + piece * 8;
  int64_t stride = a.batch * a.heads * a.c, at = element_of (a, p, first + lane / pieces, a.c) + p.column + column;

  asm volatile("" : "+l"(at)); /* as the weights */

  staged += threadIdx.x / 32 * F::staged_bytes;
#pragma unroll
  for (int half = 0; half < CHUNK / 32; half++) {
#pragma unroll
    for (int n = 0; n < 4; n += together) {
      uint32_t r[4];
#pragma unroll
      for (int x = 0; x < 4; x++) {
        const float *o = out.o[x / 2 % F::tiles][4 * half + n + x / 2 / F::tiles];
        r[x] = bf16_pair (o[x % 2 * 2], o[x % 2 * 2 + 1]);
      }
      store_matrices_transposed (
          staged + staged_at<F> ((n + lane / 16 / F::tiles) * 8 + lane % 8, lane / 8 % (2 * F::tiles)), r);
    }
    __syncwarp ();
#pragma unroll
    for (int row = 0; row < 32; row += rows, at += rows * stride) {
      int own = row + lane / pieces;
      if (32 * half + own < tokens && p.column + column < a.c)
        store_piece (a, at, load_words (staged + staged_at<F> (own, piece)));
    }
    __syncwarp ();
  }
}

template <typename F>
static __device__ inline void
outputs_store (const Forward &a, const Place &p, const Outputs<F> &out, uint32_t staged, int64_t first, int tokens)
{
  if (a.o.dtype == SP_DEV_BF16) {
    outputs_store_bf16 (a, p, out, staged, first, tokens);
    return;
  }
  float *to = (float *) a.o.data + element_of (a, p, first + index_of (0, 0), a.c) + p.column + column_of<F::R> (0, 0);
  int64_t stride = a.batch * a.heads * a.c;

  asm volatile("" : "+l"(to)); /* as the weights */
#pragma unroll
  for (int n = 0; n < CHUNK / 8; n++, to += 6 * stride)
#pragma unroll
    for (int e = 0; e < 2; e++, to += stride)
#pragma unroll
      for (int i = 0; i < F::tiles; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
          if (index_of (n, e) < tokens && p.column + column_of<F::R> (i, 2 * half) < a.c)
            to[16 * i + 8 * half] = out.o[i][n][2 * half + e];
}
