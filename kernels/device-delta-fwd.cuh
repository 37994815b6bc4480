/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The delta rule's passes in the order of tokens: what a segment leaves and its transfer, its outputs, and what the
 * backward wants of it. */
#include "kernels/device-delta-products.cuh"

/* What a pass writes: states at its end, outputs, or errors and each chunk's state. */
typedef enum { PASS_OWN, PASS_OUTPUTS, PASS_ERRORS } Pass;

/* Where tiles are in shared memory. */
template <typename F, Pass PASS, bool FEATURE> struct PassTiles {
  static constexpr bool outputs = PASS == PASS_OUTPUTS;
  static constexpr int keys = FEATURE ? 0 : F::key_bytes; /* of those that are there twice */
  static constexpr int values_at = keys, inverse_at = values_at + F::value_bytes,
                       scores_at = inverse_at + F::score_bytes;
  static constexpr int q_at = scores_at + (outputs ? F::score_bytes : 0), stage = q_at + (outputs ? keys : 0);
  static constexpr int first_at = 2 * stage, last_at = first_at + (FEATURE ? (outputs ? 2 : 1) * F::key_bytes : 0);
  static constexpr int weights_at = last_at + (FEATURE ? F::key_bytes : 0), bytes = weights_at + PASS_WEIGHT_BYTES;
};

/* From x^T = S^T k^T to the errors u^T. Weights are the chunk's. */
template <typename P, bool FEATURE, typename F>
static __device__ inline void
errors_solve (Outputs<F> &x, bool has_values, uint32_t v_tile, uint32_t inverse, uint32_t weights)
{
  uint32_t weighed[PARTS][F::tiles][4];
  auto beta = [&] (int token) { return delta_weights (weights, DELTA_BETA, token); };

  pass_each (
      x, [&] (int token) { return pass_weights<FEATURE> (weights, DELTA_SINCE, token); },
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

template <typename P, typename F, Pass PASS, bool FEATURE, int BLOCKS>
static __global__ void
__launch_bounds__ (F::threads, BLOCKS) pass_kernel (DeltaPass p)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  using T = PassTiles<F, PASS, FEATURE>;
  const Delta &a = p.a;
  uint32_t tiles = (uint32_t) __cvta_generic_to_shared (dynamic);
  PassBlock b = pass_block<F> (p);
  PassWeights weights = { tiles + T::weights_at, {} };
  State<F> state = {};

  auto start = [&] (int chunk) {
    uint32_t to = tiles + (chunk - b.first) % 2 * T::stage;
    if (!FEATURE)
      pass_load_keys<F, false> (a, b, to, a.keys, chunk);
    if (!b.is_transfer)
      pass_load_values<F> (a, b, to + T::values_at, a.values, chunk);
    pass_load_square<F> (a, b, to + T::inverse_at, a.inverse, chunk);
    if (PASS == PASS_OUTPUTS) {
      pass_load_square<F> (a, b, to + T::scores_at, a.scores, chunk);
      if (!FEATURE)
        pass_load_keys<F, false> (a, b, to + T::q_at, a.q, chunk);
    }
    copy_commit ();
  };
  auto start_first = [&] (int chunk) {
    pass_load_keys<F, true> (a, b, tiles + T::first_at, a.since_keys, chunk);
    if (PASS == PASS_OUTPUTS)
      pass_load_keys<F, true> (a, b, tiles + T::first_at + F::key_bytes, a.since_q, chunk);
    copy_commit ();
  };

  start (b.first);
  if (FEATURE)
    start_first (b.first);
  weights.fetch (a, b.head, b.first);
  if (b.is_transfer)
    pass_state_identity (b, state);
  else if (p.before != nullptr)
    pass_state_load (a, b, p.before + pass_state_at (a, b, b.segment, a.c), state);
  for (int chunk = b.first; chunk < b.end; chunk++) {
    uint32_t at = tiles + (chunk - b.first) % 2 * T::stage, y_tile = at + T::values_at;
    uint32_t x_tile = FEATURE ? tiles + T::first_at : at, last_tile = FEATURE ? tiles + T::last_at : at;
    uint32_t z_tile = FEATURE ? x_tile + F::key_bytes : at + T::q_at;
    uint32_t weighed[PARTS][F::tiles][4];
    Outputs<F> x = {}, out = {};
    auto since = [&] (int token) { return pass_weights<FEATURE> (weights.at, DELTA_SINCE, token); };
    auto beta = [&] (int token) { return pass_weights<FEATURE> (weights.at, DELTA_BETA, token); };
    auto left = [&] (int token) {
      float2 w = pass_weights<FEATURE> (weights.at, DELTA_LEFT, token), f = beta (token);
      return make_float2 (w.x * f.x, w.y * f.y);
    };

    copy_wait<0> ();
    P::ready ();
    __syncthreads (); /* the chunk is there, and the one before has been read */
    weights.put ();
    if (FEATURE) {
      pass_load_keys<F, true> (a, b, last_tile, a.left_keys, chunk);
      copy_commit ();
    }
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
    if (FEATURE && chunk + 1 < b.end)
      start_first (chunk + 1);
    errors_solve<P, FEATURE> (x, !b.is_transfer, y_tile, at + T::inverse_at, weights.at);
    if (PASS == PASS_OUTPUTS) {
      pass_each (out, since, [] (float &o, float w) { o *= w; });
      pass_operands (x, beta, weighed);
      P::by_rows (out, weighed, at + T::scores_at);
    }
    pass_state_decay<FEATURE> (state, weights.at);
    pass_operands (x, left, weighed);
    if (FEATURE)
      pass_wait_last<P> (chunk + 1 < b.end);
    P::state_add (state, weighed, last_tile);
    if (PASS == PASS_OUTPUTS)
      pass_store (a, b, out, y_tile, p.o, chunk);
    if (PASS == PASS_ERRORS)
      pass_store (a, b, x, y_tile, a.errors, chunk);
  }
  pass_end (p, b, state, b.end == a.chunks);
}

template <typename P, typename F, Pass PASS, bool FEATURE, int BLOCKS>
static cudaError_t
pass_run_form (const DeltaPass &p, cudaStream_t stream)
{
  bool has_values = PASS != PASS_OWN || p.own != nullptr;

  return launch (pass_kernel<P, F, PASS, FEATURE, BLOCKS>, pass_grid<F> (p, has_values), F::threads,
                 PassTiles<F, PASS, FEATURE>::bytes, stream, p);
}

/* NARROW and WIDE: blocks of a multiprocessor. */
template <typename P, Pass PASS, int NARROW, int WIDE>
static cudaError_t
pass_run (const DeltaPass &p, cudaStream_t stream)
{
  typedef Form<64, 16, 4> Narrow;
  typedef Form<128, 16, 4> Wide;

  if (p.a.by_feature)
    return p.a.d <= 64 ? pass_run_form<P, Narrow, PASS, true, NARROW> (p, stream)
                       : pass_run_form<P, Wide, PASS, true, WIDE> (p, stream);
  return p.a.d <= 64 ? pass_run_form<P, Narrow, PASS, false, NARROW> (p, stream)
                     : pass_run_form<P, Wide, PASS, false, WIDE> (p, stream);
}
