/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The delta rule's passes in the order of tokens: what a segment leaves and its transfer, its outputs, and what the
 * backward wants of it. */
#include "kernels/device-delta-products.cuh"

/* What a pass writes: states at its end, outputs, or errors and each chunk's state. */
typedef enum { PASS_OWN, PASS_OUTPUTS, PASS_ERRORS } Pass;

template <typename F, Pass PASS>
static __host__ __device__ constexpr int
stage_bytes (void)
{
  int of_queries = PASS == PASS_OUTPUTS ? F::key_bytes + F::score_bytes : 0;

  return F::key_bytes + F::value_bytes + F::score_bytes + of_queries;
}

/* From x^T = S^T k^T to the errors u^T. Weights are the chunk's. */
template <typename P, typename F>
static __device__ inline void
errors_solve (Outputs<F> &x, bool has_values, uint32_t v_tile, uint32_t inverse, uint32_t weights)
{
  uint32_t weighed[PARTS][F::tiles][4];
  auto beta = [&] (int token) { return delta_weights (weights, DELTA_BETA, token); };

  pass_each (
      x, [&] (int token) { return delta_weights (weights, DELTA_SINCE, token); },
      [] (float &e, float since) { e *= -since; });
#pragma unroll
  for (int token = 0; token < CHUNK; token += 16) {
    if (has_values) {
      uint32_t v[F::tiles][4];
      values_load<F> (v, v_tile, token);
#pragma unroll
      for (int i = 0; i < F::tiles; i++)
#pragma unroll
        for (int e = 0; e < 8; e++)
          x.o[i][token / 8 + e / 4][e % 4] += bf16_at (v[i][e / 2], e % 2);
    }
    pass_operand (x, token, beta, weighed[token / 16]);
  }
  P::by_rows (x, weighed, inverse);
}

template <typename P, typename F, Pass PASS, int BLOCKS>
static __global__ void
__launch_bounds__ (F::threads, BLOCKS) pass_kernel (DeltaPass p)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  constexpr int stage = stage_bytes<F, PASS> ();
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
    if (!b.is_transfer)
      load_tile<F::value_row, F::threads> (to + F::key_bytes,
                                           a.values + b.head.value + first * b.head.value_stride + b.column,
                                           b.head.value_stride, rows, (int) a.c - b.column);
    to += F::key_bytes + F::value_bytes;
    load_tile<F::score_row, F::threads> (to, a.inverse + square, CHUNK, CHUNK, CHUNK);
    if (PASS == PASS_OUTPUTS) {
      load_tile<F::score_row, F::threads> (to + F::score_bytes, a.scores + square, CHUNK, CHUNK, CHUNK);
      load_tile<F::key_row, F::threads> (to + 2 * F::score_bytes, a.q + key, b.head.key_stride, rows, (int) a.d);
    }
    copy_commit ();
  };

  start (b.first);
  weights.fetch (a, b.head, b.first);
  if (b.is_transfer)
    pass_state_identity (b, state);
  else if (p.before != nullptr)
    pass_state_load (a, b, p.before + pass_state_at (a, b, b.segment, a.c), state);
  for (int chunk = b.first; chunk < b.end; chunk++) {
    uint32_t x_tile = tiles + (chunk - b.first) % 2 * stage, y_tile = x_tile + F::key_bytes;
    uint32_t inverse = y_tile + F::value_bytes, scores = inverse + F::score_bytes, z_tile = scores + F::score_bytes;
    uint32_t weighed[PARTS][F::tiles][4];
    Outputs<F> x = {}, out = {};
    auto since = [&] (int token) { return delta_weights (weights.at, DELTA_SINCE, token); };
    auto beta = [&] (int token) { return delta_weights (weights.at, DELTA_BETA, token); };
    auto left = [&] (int token) {
      float2 w = delta_weights (weights.at, DELTA_LEFT, token), f = beta (token);
      return make_float2 (w.x * f.x, w.y * f.y);
    };

    copy_wait<0> ();
    P::ready ();
    __syncthreads (); /* the chunk is there, and the one before has been read */
    weights.put ();
    if (chunk + 1 < b.end) {
      start (chunk + 1);
      weights.fetch (a, b.head, chunk + 1);
    }
    P::template state_read<F, PASS == PASS_OUTPUTS> (state, x, x_tile, out, z_tile,
                                                     [&] (const uint32_t s[F::tiles][4], int k) {
                                                       if (PASS == PASS_ERRORS)
                                                         pass_state_keep<F> (a, b, a.states, chunk, s, k);
                                                     });
    __syncthreads (); /* the weights are there */
    errors_solve<P> (x, !b.is_transfer, y_tile, inverse, weights.at);
    if (PASS == PASS_OUTPUTS) {
      pass_each (out, since, [] (float &o, float w) { o *= w; });
      pass_operands (x, beta, weighed);
      P::by_rows (out, weighed, scores);
    }
    state_decay (state, delta_load_float (weights.at + (DELTA_SINCE * CHUNK + CHUNK - 1) * 4));
    pass_operands (x, left, weighed);
    P::state_add (state, weighed, x_tile);
    if (PASS == PASS_OUTPUTS)
      pass_store (a, b, out, y_tile, p.o, chunk);
    if (PASS == PASS_ERRORS)
      pass_store (a, b, x, y_tile, a.errors, chunk);
  }
  pass_end (p, b, state, b.end == a.chunks);
}

/* NARROW and WIDE: blocks of a multiprocessor. */
template <typename P, Pass PASS, int NARROW, int WIDE>
static cudaError_t
pass_run (const DeltaPass &p, cudaStream_t stream)
{
  typedef Form<64, 16, 4> Narrow;
  typedef Form<128, 16, 4> Wide;
  bool has_values = PASS != PASS_OWN || p.own != nullptr;

  if (p.a.d <= 64)
    return launch (pass_kernel<P, Narrow, PASS, NARROW>, pass_grid<Narrow> (p, has_values), Narrow::threads,
                   2 * stage_bytes<Narrow, PASS> () + PASS_WEIGHT_BYTES, stream, p);
  return launch (pass_kernel<P, Wide, PASS, WIDE>, pass_grid<Wide> (p, has_values), Wide::threads,
                 2 * stage_bytes<Wide, PASS> () + PASS_WEIGHT_BYTES, stream, p);
}
