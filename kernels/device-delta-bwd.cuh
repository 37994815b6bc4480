/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The delta rule's passes against the order of tokens: the gradient of the state before a segment, and r and dS' of
 * each chunk. */
#include "kernels/device-delta-products.cuh"

/* Where tiles are in shared memory. What is read first are the keys that the state's gradient is read by. */
template <typename F, bool FEATURE> struct PassBwdTiles {
  static constexpr int keys = FEATURE ? 0 : F::key_bytes; /* of those that are there twice */
  static constexpr int q_at = keys, values_at = q_at + F::key_bytes, inverse_at = values_at + F::value_bytes;
  static constexpr int scores_at = inverse_at + F::score_bytes, stage = scores_at + F::score_bytes;
  static constexpr int first_at = 2 * stage, last_at = first_at + (FEATURE ? F::key_bytes : 0);
  static constexpr int weights_at = last_at + (FEATURE ? F::key_bytes : 0), bytes = weights_at + PASS_WEIGHT_BYTES;
};

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

template <typename P, typename F, bool ERRORS, bool FEATURE>
static __global__ void
__launch_bounds__ (F::threads, 2) pass_bwd_kernel (DeltaPass p)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  using T = PassBwdTiles<F, FEATURE>;
  const Delta &a = p.a;
  uint32_t tiles = (uint32_t) __cvta_generic_to_shared (dynamic);
  PassBlock b = pass_block<F> (p);
  PassWeights weights = { tiles + T::weights_at, {} };
  State<F> state = {};

  auto start = [&] (int chunk) {
    uint32_t to = tiles + (chunk - b.first) % 2 * T::stage;
    if (!FEATURE)
      pass_load_keys<F, false> (a, b, to, a.keys, chunk);
    pass_load_keys<F, FEATURE> (a, b, to + T::q_at, FEATURE ? a.since_q : a.q, chunk);
    pass_load_values<F> (a, b, to + T::values_at, a.d_o, chunk);
    pass_load_square<F> (a, b, to + T::inverse_at, a.inverse, chunk);
    pass_load_square<F> (a, b, to + T::scores_at, a.scores, chunk);
    copy_commit ();
  };
  auto start_first = [&] (int chunk) {
    pass_load_keys<F, true> (a, b, tiles + T::first_at, a.left_keys, chunk);
    copy_commit ();
  };

  start (b.end - 1);
  if (FEATURE)
    start_first (b.end - 1);
  weights.fetch (a, b.head, b.end - 1);
  if (p.before != nullptr)
    pass_state_load (a, b, p.before + pass_state_at (a, b, b.segment, a.c), state);
  for (int chunk = b.end - 1; chunk >= b.first; chunk--) {
    uint32_t at = tiles + (chunk - b.first) % 2 * T::stage, y_tile = at + T::values_at;
    uint32_t x_tile = FEATURE ? tiles + T::first_at : at, last_tile = FEATURE ? tiles + T::last_at : at;
    uint32_t v[PARTS][F::tiles][4];
    Outputs<F> dw = {};
    auto since = [&] (int token) { return pass_weights<FEATURE> (weights.at, DELTA_SINCE, token); };
    auto beta = [&] (int token) { return pass_weights<FEATURE> (weights.at, DELTA_BETA, token); };
    auto minus = [&] (int token) {
      float2 w = since (token), f = beta (token);
      return make_float2 (-w.x * f.x, -w.y * f.y);
    };

    copy_wait<0> ();
    P::ready ();
    __syncthreads (); /* the chunk is there, and the one before has been read */
    weights.put ();
    if (FEATURE) {
      pass_load_keys<F, true> (a, b, last_tile, a.since_keys, chunk);
      copy_commit ();
    }
    if (chunk > b.first) {
      start (chunk - 1);
      weights.fetch (a, b.head, chunk - 1);
    }
    P::template state_read<F, false> (state, dw, x_tile, dw, x_tile, [&] (const uint32_t s[F::tiles][4], int k) {
      if (ERRORS)
        pass_state_keep<F> (a, b, a.states_d, chunk, s, k);
    });
    __syncthreads (); /* the weights are there */
    if (FEATURE && chunk > b.first)
      start_first (chunk - 1);
    pass_each (
        dw, [&] (int token) { return pass_weights<FEATURE> (weights.at, DELTA_LEFT, token); },
        [] (float &e, float left) { e *= left; });
    pass_state_decay<FEATURE> (state, weights.at);
#pragma unroll
    for (int i = 0; i < PARTS; i++)
      values_load<F> (v[i], y_tile, 16 * i);
    P::by_columns (dw, v, at + T::scores_at);
    if (!FEATURE)
#pragma unroll
      for (int i = 0; i < PARTS; i++)
        values_weigh<F> (v[i], 16 * i, since);
    P::state_add (state, v, at + T::q_at);
    pass_operands (dw, beta, v);
    P::by_columns (dw, v, at + T::inverse_at);
    pass_operands (dw, minus, v);
    if (FEATURE)
      pass_wait_last<P> (chunk > b.first);
    P::state_add (state, v, last_tile);
    if (ERRORS)
      pass_store (a, b, dw, y_tile, a.errors_d, chunk);
  }
  pass_end (p, b, state, b.first == 0);
}

template <typename P, typename F, bool ERRORS, bool FEATURE>
static cudaError_t
pass_bwd_run_form (const DeltaPass &p, cudaStream_t stream)
{
  return launch (pass_bwd_kernel<P, F, ERRORS, FEATURE>, pass_grid<F> (p, true), F::threads,
                 PassBwdTiles<F, FEATURE>::bytes, stream, p);
}

template <typename P, bool ERRORS>
static cudaError_t
pass_bwd_run (const DeltaPass &p, cudaStream_t stream)
{
  typedef Form<64, 16, 4> Narrow;
  typedef Form<128, 16, 4> Wide;

  if (p.a.by_feature)
    return p.a.d <= 64 ? pass_bwd_run_form<P, Narrow, ERRORS, true> (p, stream)
                       : pass_bwd_run_form<P, Wide, ERRORS, true> (p, stream);
  return p.a.d <= 64 ? pass_bwd_run_form<P, Narrow, ERRORS, false> (p, stream)
                     : pass_bwd_run_form<P, Wide, ERRORS, false> (p, stream);
}
