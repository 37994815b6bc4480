/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Outputs of linear attention, for which a block goes through a segment from the state before it. What decays is a
 * parameter: a struct with what a chunk's weights are, in `bytes` of shared memory of its own.
 *     start ()                      before the first chunk
 *     turn (chunk, tokens)          once all have read the chunk before; read by state_add, and by what follows it
 *     score (query, key, score)     a score with its decay, or 0
 *     outputs (out)                 what comes from the state before the chunk, decayed to each token
 *     factor (), weights ()         of the state over the chunk; of the tokens' values in the state after it
 */

#include "kernels/device-linear-fwd.cuh"

/* By the distance alone: one decay a head. */
template <typename F> struct ByDistance {
  static constexpr int bytes = F::weight_bytes;
  float slope2, over_chunk;
  uint32_t at;

  __device__ ByDistance (const Forward &, const Place &p, unsigned char *shared)
      : slope2 (p.slope2), over_chunk (decay2 (slope2, CHUNK)), at ((uint32_t) __cvta_generic_to_shared (shared))
  {
  }
  __device__ void start ()
  {
    if (threadIdx.x < 32)
      weights_set (at, slope2, CHUNK);
  }
  __device__ void turn (int, int tokens)
  {
    if (tokens < CHUNK) {
      if (threadIdx.x < 32)
        weights_set (at, slope2, tokens);
      over_chunk = decay2 (slope2, tokens);
    }
  }
  __device__ float score (int query, int key, float s) const
  {
    int distance = query - key;
    return distance >= 0 ? s * decay2 (slope2, distance) : 0;
  }
  __device__ void outputs (Outputs<F> &out) const
  {
    outputs_decay (out, slope2, 0);
  }
  __device__ float factor () const
  {
    return over_chunk;
  }
  __device__ uint32_t weights () const
  {
    return at;
  }
};

/* --- outputs ------------------------------------------------------------------------------------------------------ */

template <typename F, template <typename> typename DECAY>
static constexpr size_t
output_bytes (void)
{
  return 2 * (2 * F::key_bytes + F::value_bytes) + F::score_bytes + F::W * F::staged_bytes + DECAY<F>::bytes;
}

template <typename F, int BLOCKS, template <typename> typename DECAY>
static __global__ void
__launch_bounds__ (F::threads, BLOCKS) output_kernel (Forward a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  constexpr int stage = 2 * F::key_bytes + F::value_bytes;
  uint32_t tiles = (uint32_t) __cvta_generic_to_shared (dynamic), scores = tiles + 2 * stage;
  uint32_t staged = scores + F::score_bytes;
  Place p = place_of (a, F::C);
  DECAY<F> decay (a, p, dynamic + 2 * stage + F::score_bytes + F::W * F::staged_bytes);
  State<F> state = {};
  int end = (p.tokens + CHUNK - 1) / CHUNK;

  auto start = [&] (int chunk) {
    uint32_t to = tiles + chunk % 2 * stage;
    int64_t first = p.first + chunk * CHUNK, key = key_of (a, p, first);
    int64_t key_stride = a.batch * a.kv_heads * a.d;
    int rows = p.tokens - chunk * CHUNK;
    load_tile<F::key_row, F::threads> (to, a.queries + key, key_stride, rows, a.d);
    load_tile<F::key_row, F::threads> (to + F::key_bytes, a.keys + key, key_stride, rows, a.d);
    load_tile<F::value_row, F::threads> (to + 2 * F::key_bytes, a.values + element_of (a, p, first, a.c) + p.column,
                                         a.batch * a.heads * a.c, rows, a.c - p.column);
    copy_commit ();
  };

  start (0);
  decay.start ();
  if (a.before != nullptr)
    state_load (a, p, a.before + state_at (a, p, p.segment), state);
  for (int chunk = 0; chunk < end; chunk++) {
    uint32_t z_tile = tiles + chunk % 2 * stage, x_tile = z_tile + F::key_bytes, y_tile = x_tile + F::key_bytes;
    int tokens = p.tokens - chunk * CHUNK;
    Outputs<F> out = {};

    copy_wait<0> ();
    __syncthreads (); /* the chunk is there, and the one before has been read */
    if (chunk + 1 < end)
      start (chunk + 1);
    decay.turn (chunk, tokens);
    score_chunk<F> (z_tile, x_tile, scores, tokens,
                    [&] (int query, int key, float s) { return decay.score (query, key, s); });
    state_read (out, state, z_tile);
    decay.outputs (out);
    state_decay (state, decay.factor ());
    __syncthreads (); /* the scores are there */
#pragma unroll
    for (int token = 0; token < CHUNK; token += 16) {
      uint32_t v[F::tiles][4], weighed[F::tiles][4];

      values_load<F> (v, y_tile, token);
      scores_read (out, v, scores, token);
      values_weighed<F> (v, decay.weights (), token, weighed);
      state_add (state, weighed, x_tile, token);
    }
    outputs_store (a, p, out, staged, p.first + chunk * CHUNK, tokens);
  }
  if (a.after != nullptr && p.first + p.tokens == a.m)
    state_store (a, p, state, a.after + state_at (a, p, 0));
}
