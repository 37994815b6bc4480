/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the delta rule's passes over chunks share. A block has 64 columns of the values, or of a transfer, and a warp
 * 16 of them: as linear attention's forward has them (device-linear-fwd.cuh), turned, so that no warp waits for
 * another but for what is copied.
 *
 * FEATURE: with a decay a feature, whose queries and keys come scaled, keys as two tiles. Tiles are there twice, so that a
 * chunk is copied while the one before is worked on; but of these what a chunk reads first and what it reads last are there
 * once: the next chunk's first is copied when this one's has been read, the last when the chunk begins. */

#include "kernels/device-delta-feature.cuh"

/* Three of the weights, those that passes use: one buffer, filled while the chunk's first products are made. */
#define PASS_WEIGHT_BYTES (3 * CHUNK * 4)
#define PASS_WEIGHT_VECTORS (3 * CHUNK / 4)

/* Columns that a block works on, and chunks. */
struct PassBlock {
  DeltaHead head;
  int segment, first, end; /* chunks */
  int column;
  bool is_transfer;
};

template <typename F>
static __device__ inline PassBlock
pass_block (const DeltaPass &p)
{
  int value_blocks = p.transfers != nullptr && p.own == nullptr ? 0 : (int) ((p.a.c + F::C - 1) / F::C);
  PassBlock b;

  b.head = delta_head (p.a, blockIdx.y);
  b.segment = blockIdx.z;
  b.first = (int) (b.segment * p.a.segment);
  b.end = (int) min (p.a.chunks, b.first + p.a.segment);
  b.is_transfer = (int) blockIdx.x >= value_blocks;
  b.column = ((int) blockIdx.x - (b.is_transfer ? value_blocks : 0)) * F::C;
  return b;
}

/* Blocks of columns: of values if they are wanted, then of transfers. */
template <typename F>
static dim3
pass_grid (const DeltaPass &p, bool has_values)
{
  int64_t columns = (has_values ? div_up (p.a.c, F::C) : 0) + (p.transfers != nullptr ? div_up (p.a.d, F::C) : 0);

  return dim3 ((unsigned) columns, (unsigned) (p.a.batch * p.a.heads), (unsigned) p.segments);
}

/* --- tiles of a chunk --------------------------------------------------------------------------------------------- */

/* Rows of keys or queries, from an array of key heads or, FEATURE, one that is scaled for each value head. */
template <typename F, bool FEATURE>
static __device__ inline void
pass_load_keys (const Delta &a, const PassBlock &b, uint32_t tile, const uint16_t *from, int chunk)
{
  int64_t stride = FEATURE ? a.batch * a.heads * a.d : b.head.key_stride, first = (int64_t) chunk * CHUNK;
  int64_t at = FEATURE ? b.head.scalar * a.d : b.head.key;
  load_tile<F::key_row, F::threads> (tile, from + at + first * stride, stride, (int) min (a.m - first, (int64_t) CHUNK),
                                     (int) a.d);
}

template <typename F>
static __device__ inline void
pass_load_values (const Delta &a, const PassBlock &b, uint32_t tile, const uint16_t *from, int chunk)
{
  int64_t first = (int64_t) chunk * CHUNK;

  load_tile<F::value_row, F::threads> (tile, from + b.head.value + first * b.head.value_stride + b.column,
                                       b.head.value_stride, (int) min (a.m - first, (int64_t) CHUNK),
                                       (int) a.c - b.column);
}

/* Z or P. */
template <typename F>
static __device__ inline void
pass_load_square (const Delta &a, const PassBlock &b, uint32_t tile, const uint16_t *from, int chunk)
{
  load_tile<F::score_row, F::threads> (tile, from + delta_chunk (a, b.head, chunk) * CHUNK * CHUNK, CHUNK, CHUNK,
                                       CHUNK);
}

/* --- states ------------------------------------------------------------------------------------------------------- */

/* Where the state of a head begins, of an array [.. ,batch,heads,d,columns] whose index-th is meant. */
static __device__ inline int64_t
pass_state_at (const Delta &a, const PassBlock &b, int64_t index, int64_t columns)
{
  return (index * a.batch * a.heads + b.head.index) * a.d * columns + b.column;
}

template <typename F>
static __device__ inline void
pass_state_load (const Delta &a, const PassBlock &b, const float *from, State<F> &state)
{
  state_each (state, [&] (float &s, int row, int column) {
    s = row < a.d && b.column + column < a.c ? from[row * a.c + column] : 0;
  });
}

template <typename F>
static __device__ inline void
pass_state_identity (const PassBlock &b, State<F> &state)
{
  state_each (state, [&] (float &s, int row, int column) { s = row == b.column + column ? 1 : 0; });
}

template <typename F>
static __device__ inline void
pass_state_store (const Delta &a, const PassBlock &b, State<F> &state, float *to, int64_t columns)
{
  state_each (state, [&] (float &s, int row, int column) {
    if (row < a.d && b.column + column < columns)
      to[row * columns + column] = s;
  });
}

/* What a segment leaves. `is_last`: behind all others. */
template <typename F>
static __device__ inline void
pass_end (const DeltaPass &p, const PassBlock &b, State<F> &state, bool is_last)
{
  if (b.is_transfer)
    pass_state_store (p.a, b, state, p.transfers + pass_state_at (p.a, b, b.segment, p.a.d), p.a.d);
  else if (p.own != nullptr)
    pass_state_store (p.a, b, state, p.own + pass_state_at (p.a, b, b.segment, p.a.c), p.a.c);
  else if (p.last != nullptr && is_last)
    pass_state_store (p.a, b, state, p.last + pass_state_at (p.a, b, 0, p.a.c), p.a.c);
}

/* 16 features of a chunk's state, rounded, as rows of the state turned. */
template <typename F>
static __device__ inline void
pass_state_keep (const Delta &a, const PassBlock &b, uint16_t *states, int chunk, const uint32_t s[F::tiles][4], int k)
{
  int column = b.column + column_of<F::R> (0, 0), lane = threadIdx.x % 4;
  uint32_t *to = (uint32_t *) (states + (delta_chunk (a, b.head, chunk) * a.c + column) * F::D) + 8 * k + lane;

  static_assert (F::tiles == 1);
  if (column < a.c) {
    to[0] = s[0][0];
    to[4] = s[0][2];
  }
  if (column + 8 < a.c) {
    to[4 * F::D] = s[0][1];
    to[4 * F::D + 4] = s[0][3];
  }
}

/* To the chunk's end. */
template <bool FEATURE, typename F>
static __device__ inline void
pass_state_decay (State<F> &state, uint32_t weights)
{
  if (FEATURE)
    state_scale (state, weights + DELTA_ENDS * CHUNK * 4);
  else
    state_decay (state, delta_load_float (weights + (DELTA_SINCE * CHUNK + CHUNK - 1) * 4));
}

/* --- tokens ------------------------------------------------------------------------------------------------------- */

/* A warp's columns of 64 tokens, turned back in its own columns of a tile that it has read, to rows of memory. */
template <typename F>
static __device__ inline void
pass_store (const Delta &a, const PassBlock &b, const Outputs<F> &out, uint32_t tile, uint16_t *to, int chunk)
{
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = (int) (a.m - (int64_t) chunk * CHUNK);
  int row = lane / 2, piece = 2 * warp + lane % 2;
  bool is_column = b.column + 8 * piece < a.c;
  uint16_t *at = to + b.head.value + ((int64_t) chunk * CHUNK + row) * b.head.value_stride + b.column + 8 * piece;

  static_assert (F::tiles == 1 && F::value_row == 128);
  __syncwarp ();
#pragma unroll
  for (int n = 0; n < CHUNK / 8; n += 2) {
    const uint32_t r[4] = { bf16_pair (out.o[0][n][0], out.o[0][n][1]), bf16_pair (out.o[0][n][2], out.o[0][n][3]),
                            bf16_pair (out.o[0][n + 1][0], out.o[0][n + 1][1]),
                            bf16_pair (out.o[0][n + 1][2], out.o[0][n + 1][3]) };
    store_matrices_transposed (tile + swizzled (8 * (n + lane / 16) + lane % 8, 2 * warp + lane / 8 % 2), r);
  }
  __syncwarp ();
#pragma unroll
  for (int i = 0; i < CHUNK; i += 16, at += 16 * b.head.value_stride)
    if (row + i < rows && is_column)
      *(uint4 *) at = load_words (tile + swizzled (row + i, piece));
}

/* Of 16 tokens of accumulators, each weighed with what f says of its token, an operand. */
template <typename F, typename W>
static __device__ inline void
pass_operand (const Outputs<F> &x, int token, W f, uint32_t a[F::tiles][4])
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float2 w = f (token + 8 * half + (int) threadIdx.x % 4 * 2);
#pragma unroll
    for (int i = 0; i < F::tiles; i++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        a[i][2 * half + e] =
            bf16_pair (x.o[i][token / 8 + half][2 * e] * w.x, x.o[i][token / 8 + half][2 * e + 1] * w.y);
  }
}

/* Of all 64 tokens. */
template <typename F, typename W>
static __device__ inline void
pass_operands (const Outputs<F> &x, W f, uint32_t (&a)[CHUNK / 16][F::tiles][4])
{
#pragma unroll
  for (int token = 0; token < CHUNK; token += 16)
    pass_operand (x, token, f, a[token / 16]);
}

/* f (element, weight of its token) of all elements, by pairs of tokens. */
template <typename F, typename W, typename G>
static __device__ inline void
pass_each (Outputs<F> &x, W weight, G g)
{
#pragma unroll
  for (int n = 0; n < CHUNK / 8; n++) {
    float2 w = weight (index_of (n, 0));
#pragma unroll
    for (int i = 0; i < F::tiles; i++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        g (x.o[i][n][e], e % 2 == 0 ? w.x : w.y);
  }
}

/* Two neighbours' weights. Those that tell keys and queries how far they are from the chunk's ends are in these, FEATURE. */
template <bool FEATURE>
static __device__ inline float2
pass_weights (uint32_t weights, int which, int token)
{
  return FEATURE && which != DELTA_BETA ? make_float2 (1, 1) : delta_weights (weights, which, token);
}

/* The chunk's weights, by way of a register: the buffer is free once all have passed the chunk's first barrier. */
struct PassWeights {
  uint32_t at;
  float4 next;

  __device__ void fetch (const Delta &a, const DeltaHead &head, int64_t chunk)
  {
    if (threadIdx.x < PASS_WEIGHT_VECTORS)
      next = ((const float4 *) (a.weights + delta_chunk (a, head, chunk) * DELTA_WEIGHTS * CHUNK))[threadIdx.x];
  }
  __device__ void put () const
  {
    if (threadIdx.x < PASS_WEIGHT_VECTORS)
      asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};\n" ::"r"(at + 16 * threadIdx.x), "f"(next.x), "f"(next.y),
                   "f"(next.z), "f"(next.w)
                   : "memory");
  }
};
