/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The delta rule's passes against the order of tokens: the gradient of the state before a segment, and r and dS' of
 * each chunk. */
#include "kernels/device-delta-products.cuh"

template <typename F>
static __host__ __device__ constexpr int
stage_bwd_bytes (void)
{
  return 2 * F::key_bytes + F::value_bytes + 2 * F::score_bytes;
}

/* Values of 16 tokens, each weighed, rounded once. */
template <typename F, typename W>
static __device__ inline void
values_weigh (uint32_t v[F::tiles][4], int token, W f)
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float2 w = f (token + 8 * half + (int) threadIdx.x % 4 * 2);
#pragma unroll
    for (int i = 0; i < F::tiles; i++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        uint32_t &pair = v[i][2 * half + e];
        pair = bf16_pair (bf16_at (pair, 0) * w.x, bf16_at (pair, 1) * w.y);
      }
  }
}

template <typename P, typename F, bool ERRORS>
static __global__ void
__launch_bounds__ (F::threads, 2) pass_bwd_kernel (DeltaPass p)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  constexpr int stage = stage_bwd_bytes<F> ();
  const Delta &a = p.a;
  uint32_t tiles = (uint32_t) __cvta_generic_to_shared (dynamic);
  PassBlock b = pass_block<F> (p);
  PassWeights weights = { tiles + 2 * stage, {} };
  State<F> state = {};

  auto start = [&] (int chunk) {
    uint32_t to = tiles + (chunk - b.first) % 2 * stage;
    int64_t first = (int64_t) chunk * CHUNK, key = b.head.key + first * b.head.key_stride;
    int64_t square = delta_chunk (a, b.head, chunk) * CHUNK * CHUNK;
    int rows = (int) min (a.m - first, (int64_t) CHUNK);
    load_tile<F::key_row, F::threads> (to, a.keys + key, b.head.key_stride, rows, (int) a.d);
    load_tile<F::key_row, F::threads> (to + F::key_bytes, a.q + key, b.head.key_stride, rows, (int) a.d);
    load_tile<F::value_row, F::threads> (to + 2 * F::key_bytes,
                                         a.d_o + b.head.value + first * b.head.value_stride + b.column,
                                         b.head.value_stride, rows, (int) a.c - b.column);
    to += 2 * F::key_bytes + F::value_bytes;
    load_tile<F::score_row, F::threads> (to, a.inverse + square, CHUNK, CHUNK, CHUNK);
    load_tile<F::score_row, F::threads> (to + F::score_bytes, a.scores + square, CHUNK, CHUNK, CHUNK);
    copy_commit ();
  };

  start (b.end - 1);
  weights.fetch (a, b.head, b.end - 1);
  if (p.before != nullptr)
    pass_state_load (a, b, p.before + pass_state_at (a, b, b.segment, a.c), state);
  for (int chunk = b.end - 1; chunk >= b.first; chunk--) {
    uint32_t x_tile = tiles + (chunk - b.first) % 2 * stage, z_tile = x_tile + F::key_bytes;
    uint32_t y_tile = z_tile + F::key_bytes, inverse = y_tile + F::value_bytes, scores = inverse + F::score_bytes;
    uint32_t v[PARTS][F::tiles][4];
    Outputs<F> dw = {};
    auto since = [&] (int token) { return delta_weights (weights.at, DELTA_SINCE, token); };
    auto beta = [&] (int token) { return delta_weights (weights.at, DELTA_BETA, token); };
    auto minus = [&] (int token) {
      float2 w = since (token), f = beta (token);
      return make_float2 (-w.x * f.x, -w.y * f.y);
    };

    copy_wait<0> ();
    P::ready ();
    __syncthreads (); /* the chunk is there, and the one before has been read */
    weights.put ();
    if (chunk > b.first) {
      start (chunk - 1);
      weights.fetch (a, b.head, chunk - 1);
    }
    P::template state_read<F, false> (state, dw, x_tile, dw, x_tile, [&] (const uint32_t s[F::tiles][4], int k) {
      if (ERRORS)
        pass_state_keep<F> (a, b, a.states_d, chunk, s, k);
    });
    __syncthreads (); /* the weights are there */
    pass_each (
        dw, [&] (int token) { return delta_weights (weights.at, DELTA_LEFT, token); },
        [] (float &e, float left) { e *= left; });
    state_decay (state, delta_load_float (weights.at + (DELTA_SINCE * CHUNK + CHUNK - 1) * 4));
#pragma unroll
    for (int i = 0; i < PARTS; i++)
      values_load<F> (v[i], y_tile, 16 * i);
    P::by_columns (dw, v, scores);
#pragma unroll
    for (int i = 0; i < PARTS; i++)
      values_weigh<F> (v[i], 16 * i, since);
    P::state_add (state, v, z_tile);
    pass_operands (dw, beta, v);
    P::by_columns (dw, v, inverse);
    pass_operands (dw, minus, v);
    P::state_add (state, v, x_tile);
    if (ERRORS)
      pass_store (a, b, dw, y_tile, a.errors_d, chunk);
  }
  pass_end (p, b, state, b.first == 0);
}

template <typename P, bool ERRORS>
static cudaError_t
pass_bwd_run (const DeltaPass &p, cudaStream_t stream)
{
  typedef Form<64, 16, 4> Narrow;
  typedef Form<128, 16, 4> Wide;

  if (p.a.d <= 64)
    return launch (pass_bwd_kernel<P, Narrow, ERRORS>, pass_grid<Narrow> (p, true), Narrow::threads,
                   2 * stage_bwd_bytes<Narrow> () + PASS_WEIGHT_BYTES, stream, p);
  return launch (pass_bwd_kernel<P, Wide, ERRORS>, pass_grid<Wide> (p, true), Wide::threads,
                 2 * stage_bwd_bytes<Wide> () + PASS_WEIGHT_BYTES, stream, p);
}
