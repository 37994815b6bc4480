/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Gradients of a segment's chunks, of device-linear-bwd-kernel.cuh. */

#include "kernels/device-linear-bwd-weights.cuh"

/* --- outputs ------------------------------------------------------------------------------------------------------ */

/* A warp's 16 rows of a chunk's gradient by way of a tile that its warpgroup has read, 8 N columns from `column` on. */
template <int N>
static __device__ inline void
store_rows (const CUtensorMap *map, const Item &x, int chunk, int column, const float (&d)[N][4], uint32_t tile,
            const Lane &l)
{
  int lane = threadIdx.x % 32, matrix = lane / 8, first = l.warp % 4 * 16, row = first + matrix % 2 * 8 + lane % 8;

#pragma unroll
  for (int j = 0; j < N; j += 2) {
    int piece = j % 8 + matrix / 2;

    store_matrices (tile + j / 8 * HALF_BYTES + row * 128 + ((piece ^ row % 8) << 4), bf16_pair (d[j][0], d[j][1]),
                    bf16_pair (d[j][2], d[j][3]), bf16_pair (d[j + 1][0], d[j + 1][1]),
                    bf16_pair (d[j + 1][2], d[j + 1][3]));
  }
  fence_async ();
  __syncwarp ();
  if (lane == 0) {
#pragma unroll
    for (int j = 0; j < N; j += 8)
      store_box (map, column + 8 * j, x.vector, x.first + chunk * CHUNK + first,
                 tile + j / 8 * HALF_BYTES + first * 128);
    store_commit ();
  }
}

/* --- chunks ------------------------------------------------------------------------------------------------------- */

/* d = x y^T of two tiles, over all features; x is 64 rows, y 8 N. */
template <int N>
static __device__ inline void
product_by_rows (float (&d)[N][4], uint32_t x_tile, uint32_t y_tile, uint32_t y_half)
{
  Operand x = operand (x_tile, 16), y = operand (y_tile, 16);

#pragma unroll
  for (int k = 0; k < SIZE / 16; k++)
    wgmma<false> (d, descriptor (x, k / 4 * HALF_BYTES + k % 4 * 32), descriptor (y, k / 4 * y_half + k % 4 * 32),
                  k > 0);
}

/* d = x y of a tile and a state. */
static __device__ inline void
product_by_columns (float (&d)[16][4], uint32_t x_tile, uint32_t y_tile)
{
  Operand x = operand (x_tile, 16), y = operand (y_tile, STATE_HALF);

#pragma unroll
  for (int k = 0; k < SIZE / 16; k++)
    wgmma<true> (d, descriptor (x, k / 4 * HALF_BYTES + k % 4 * 32), descriptor (y, k * 2048), k > 0);
}

template <int N>
static __device__ inline void
scale_rows (float (&d)[N][4], float first, float second)
{
#pragma unroll
  for (int j = 0; j < N; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      d[j][e] *= e < 2 ? first : second;
}

/* Of this thread's two rows: sums over columns of d times the tile's, which has them in its halves from `tile` on. The
 * first lane of four has them. */
template <int N>
static __device__ inline void
row_products (float (&ret)[2], const float (&d)[N][4], uint32_t tile, const Lane &l)
{
  int row = l.row;

  asm volatile("" : "+r"(row)); /* what follows from it is not worth registers for a whole loop */
  uint32_t at = tile + row * 128 + l.pair * 2;
  ret[0] = ret[1] = 0;
#pragma unroll
  for (int j = 0; j < N; j++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t x = load_word (at + j / 8 * HALF_BYTES + i * 1024 + ((j % 8 ^ row % 8) << 4));
      ret[i] += bf16_at (x, 0) * d[j][2 * i] + bf16_at (x, 1) * d[j][2 * i + 1];
    }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    ret[i] += __shfl_xor_sync (0xffffffffu, ret[i], 1);
    ret[i] += __shfl_xor_sync (0xffffffffu, ret[i], 2);
  }
}

/* f (token of the segment's first chunk on, i) for the rows that are there, once a row. */
template <typename F>
static __device__ inline void
row_each (const Item &x, int chunk, const Lane &l, F f)
{
  if (l.pair == 0)
#pragma unroll
    for (int i = 0; i < 2; i++)
      if (chunk * CHUNK + l.row + 8 * i < x.tokens)
        f (x.first + chunk * CHUNK + l.row + 8 * i, i);
}

/* d += the scores' fragments by rows of a tile, as a group of its own. */
template <int N>
static __device__ inline void
add_weighed (float (&d)[N][4], const Fragments &weighed, uint32_t tile)
{
  wgmma_fence ();
  Operand y = operand (tile, HALF_BYTES);
#pragma unroll
  for (int k = 0; k < 4; k++)
    wgmma<true> (d, weighed[k], descriptor (y, k * 2048), 1);
  wgmma_commit ();
}

/* The order of a chunk's products is such that the tensor cores have work before them: its scores, what the state gives
 * and what the chunk gives the next state are started together, then the scores' values. A warpgroup walks one of the two chains. */
template <typename W> struct Chains {
  const Bwd &a;
  const Item &x;
  const Block &b;
  const Lane &l;
  const W &w;
  bool is_given;
  uint32_t &phase;
  int &stored;

  /* --- queries' gradients of a segment, from the state before it --- */

  template <bool IS_LAST> __device__ inline void chunk_of_queries (State &state, int p)
  {
    int pair = pair_of<W> (x, p), other = other_of<W> (x, p);
    uint32_t keys = b.tiles + pair * TILE_BYTES, values = keys + TILE_BYTES, q = b.tiles + other * TILE_BYTES;
    uint32_t mine = keys + l.group * HALF_BYTES, d_o = W::gated ? q + TILE_BYTES : q;
    float scores[8][4], dq[8][4], rows[2], beta[2] = {}, next = 1;
    Fragments weighed, tokens;

    if (!is_given || p >= kept_of<W> (x))
      wait_full (b, phase, pair);
    wait_full (b, phase, other);
    wgmma_fence ();
    product_by_rows (scores, d_o, values, HALF_BYTES);
    wgmma_commit ();
    product_by_rows (dq, d_o, b.state + l.group * 64 * 128, STATE_HALF);
    wgmma_commit ();
    if constexpr (!IS_LAST) {
      weigh_tokens (tokens, keys, w.tokens (pair), 1, l);
      add_tokens (state, tokens, values);
    }
    set_stored_free (b, stored);
    wgmma_wait<IS_LAST ? 1 : 2> ();
    wgmma_hold (scores);
    w.template weigh_scores<false> (weighed, scores, pair, beta);
    w.template rows<false> (rows, p, pair, beta);
    if constexpr (!IS_LAST)
      next = w.over_chunk (p + 1);
    wgmma_wait<IS_LAST ? 0 : 1> ();
    wgmma_hold (dq);
    scale_rows (dq, rows[0], rows[1]);
    wgmma_hold (dq);
    add_weighed (dq, weighed, mine);
    named_barrier (1 + l.group, 128); /* the state has been read */
    if constexpr (!IS_LAST) {
      wgmma_wait<1> ();
      wgmma_hold (state);
      store_state (state, b.state, l);
      scale (state, next);
      wgmma_hold (state);
    }
    wgmma_wait<0> ();
    wgmma_hold (dq);
    if constexpr (W::gated) {
      row_products (rows, dq, q + l.group * HALF_BYTES, l);
      float *to = a.x[l.group] + (int64_t) x.vector * a.m;
      row_each (x, p, l, [&] (int token, int i) { to[token] = rows[i]; });
      __syncwarp (); /* all have read the queries */
    }
    set_free (b, other);
    named_barrier (1 + l.group, 128); /* the state is there, and these keys have been read */
    store_rows (&a.dq, x, p, l.group * 64, dq, mine, l);
    stored = pair;
  }

  __device__ inline void queries (State &state)
  {
    store_state (state, b.state, l);
    scale (state, w.over_chunk (0));
    wgmma_hold (state);
    named_barrier (1 + l.group, 128);
    for (int p = 0; p + 1 < x.chunks; p++)
      chunk_of_queries<false> (state, p);
    chunk_of_queries<true> (state, x.chunks - 1);
  }

  /* --- keys' and values' gradients, from the state after it. The warpgroups take turns in starting products, so that one
   * computes between its products while the other's are under way. --- */

  __device__ inline void arrive (int barrier)
  {
    __syncwarp ();
    if (threadIdx.x % 32 == 0)
      barrier_arrive (b.barriers + 8 * barrier);
  }

  __device__ inline void wait (int barrier)
  {
    barrier_wait (b.barriers + 8 * barrier, phase >> barrier & 1);
    phase ^= 1u << barrier;
  }

  /* y, or beta's gradient. */
  __device__ inline void sums (float (&d)[16][4], int chunk, int pair, uint32_t tile) const
  {
    float rows[2], beta[2];

    row_products (rows, d, tile, l);
    if (l.group == 0) {
      float *to = a.y + (int64_t) x.vector * a.m;
      row_each (x, chunk, l, [&] (int token, int i) { to[token] = rows[i]; });
      return;
    }
    if (a.dbeta.data != nullptr)
      row_each (x, chunk, l,
                [&] (int token, int i) { store1 (a.dbeta, (int64_t) token * a.vectors + x.vector, rows[i]); });
    w.betas (beta, pair);
    scale_rows (d, beta[0], beta[1]);
    __syncwarp (); /* all have read beta */
  }

  template <bool IS_LAST> __device__ inline void chunk_of_keys (State &state, int p)
  {
    int chunk = chunk_of (x, p), pair = pair_of<W> (x, p), other = other_of<W> (x, p);
    uint32_t q = b.tiles + pair * TILE_BYTES, d_o = q + TILE_BYTES, keys = b.tiles + other * TILE_BYTES,
             values = keys + TILE_BYTES;
    float scores[8][4], d[16][4], rows[2], beta[2] = { 1, 1 }, next = 1;
    Fragments weighed, tokens;

    if (!is_given || p >= kept_of<W> (x))
      wait_full (b, phase, pair);
    if constexpr (!IS_LAST)
      weigh_tokens (tokens, q, w.tokens (pair), 1, l);
    wait_full (b, phase, other);
    if (l.group == 1 || p > 0)
      named_barrier (4 + l.group, CONSUMERS); /* my turn */
    wgmma_fence ();
    product_by_rows (scores, l.group == 0 ? values : keys, l.group == 0 ? d_o : q, HALF_BYTES);
    wgmma_commit ();
    wait (WRITTEN);
    if (l.group == 0)
      product_by_rows (d, values, b.state, STATE_HALF);
    else
      product_by_columns (d, keys, b.state);
    wgmma_commit ();
    if constexpr (!IS_LAST)
      add_tokens (state, tokens, d_o);
    if (l.group == 0 || !IS_LAST)
      named_barrier_arrive (5 - l.group, CONSUMERS);
    set_stored_free (b, stored);
    wgmma_wait<IS_LAST ? 1 : 2> ();
    wgmma_hold (scores);
    if constexpr (W::gated)
      if (l.group == 0)
        w.betas (beta, pair); /* of values' gradients they come last */
    w.template weigh_scores<true> (weighed, scores, pair, beta);
    w.template rows<true> (rows, p, pair, beta);
    if constexpr (!IS_LAST)
      next = w.over_chunk (p + 1);
    wgmma_wait<IS_LAST ? 0 : 1> ();
    wgmma_hold (d);
    arrive (READ);
    scale_rows (d, rows[0], rows[1]);
    wgmma_hold (d);
    add_weighed (d, weighed, l.group == 0 ? q : d_o);
    wait (READ);
    if constexpr (!IS_LAST) {
      wgmma_wait<1> ();
      wgmma_hold (state);
      store_state (state, b.state, l);
      arrive (WRITTEN);
      scale (state, next);
      wgmma_hold (state);
    }
    wgmma_wait<0> ();
    wgmma_hold (d);
    uint32_t mine = l.group == 0 ? keys : values; /* both have been read */
    if constexpr (W::gated)
      sums (d, chunk, pair, mine);
    set_free (b, pair);
    store_rows (l.group == 0 ? &a.dkeys : &a.dvalues, x, chunk, 0, d, mine, l);
    stored = other;
  }

  __device__ inline void keys (State &state)
  {
    store_state (state, b.state, l);
    arrive (WRITTEN);
    scale (state, w.over_chunk (0)); /* the last chunk alone, which comes first, may have less */
    wgmma_hold (state);
    for (int p = 0; p + 1 < x.chunks; p++)
      chunk_of_keys<false> (state, p);
    chunk_of_keys<true> (state, x.chunks - 1);
  }
};
