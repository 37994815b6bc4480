/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of linear attention whose decay follows the data; those of a decay a feature are made in
 * device-linear-decay-feature-bwd.cu. First the states before all chunks and the gradients of
 * those after them (device-linear-decay-states.cu); then a block makes all gradients of a chunk, for the heads that share
 * its keys one after the other: four warps dq, four dk, four dv. Keys of more than 128 features go in two parts, the second
 * of which adds to what the first made of values and decays.
 */
#include "kernels/device-linear-bwd.cuh"
#include "kernels/device-linear-decay-head.cuh"
#include "kernels/device-linear-decay-tables.cuh"

/* --- values ------------------------------------------------------------------------------------------------------- */

/* dv of 64 columns; `past` += what E has of them, without beta, times v. */
template <typename F>
static __device__ inline void
values_slice (const Gradients &a, const Item &i, const Tiles<F> &t, const uint32_t (&p)[4][4], uint32_t slice,
              int column, int w, float (&o)[8][4], float (&past)[2])
{
  const float *b = (const float *) t.gates;
  uint32_t k_tile = afresh (t.k);

  slice = afresh (slice);
#pragma unroll
  for (int n = 0; n < 8; n++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      o[n][e] = 0;
#pragma unroll 1
  for (int k = 0; k < F::D; k += 16) {
    uint32_t x[4], y[4];

    fragment_a (x, k_tile, 16 * w, k);
#pragma unroll
    for (int n = 0; n < 64; n += 16) {
      fragment_b_transposed (y, slice, n, k);
      mma (o[n / 8], x, y[0], y[1]);
      mma (o[n / 8 + 1], x, y[2], y[3]);
    }
  }
  float factor[2] = { exp2_fast (b[CHUNK - 1] - b[row_of (w, 0)]), exp2_fast (b[CHUNK - 1] - b[row_of (w, 1)]) },
        dots[2];
#pragma unroll
  for (int n = 0; n < 8; n++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      o[n][e] *= factor[e / 2];
  row_dots<64> (o, t.v, column, w, dots);
  past[0] += dots[0];
  past[1] += dots[1];
  rows_by_columns<64> (o, p, t.d, column, w, true);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int token = row_of (w, half);
    float beta = b[CHUNK + token];
    int64_t at = scalar_of (a, i, token) * a.c + column;
#pragma unroll
    for (int n = 0; n < 8; n++) {
      float low = 0, high = 0;
      if (token >= i.tokens || column + index_of (n, 0) >= a.c)
        continue;
      if (a.first > 0)
        load_pair (a.dvalues, at + index_of (n, 0), &low, &high);
      store_pair (a.dvalues, at + index_of (n, 0), low + beta * o[n][2 * half], high + beta * o[n][2 * half + 1]);
    }
  }
}

/* --- the kernel --------------------------------------------------------------------------------------------------- */

template <int D>
static __device__ inline void
rows_store (const Gradients &a, const Item &i, SpDevTensor to, const float (&acc)[D / 8][4], int w)
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int64_t at = key_row_of (a, i, row_of (w, half));
#pragma unroll
    for (int n = 0; n < D / 8; n++)
      if (row_of (w, half) < i.tokens && a.first + index_of (n, 0) < a.d)
        store_pair (to, at + index_of (n, 0), acc[n][2 * half], acc[n][2 * half + 1]);
  }
}

enum { QUERIES, KEYS, VALUES };

template <typename F>
static __device__ inline void
pairs_of (const Tiles<F> &t, int group, int w, Pairs &r)
{
  const float *b = (const float *) t.gates;
  HeadSums h = {};

#pragma unroll
  for (int block = 0; block < 4; block += 2) {
    float s[4][4] = {};

    if (group == QUERIES)
      rows_by_rows<F::N> (t.d, t.v, w, false, block, s);
    else if (group == KEYS)
      rows_by_rows<F::N> (t.v, t.d, w, true, block, s);
    else
      rows_by_rows<F::D> (t.k, t.q, w, true, block, s);
    if (group == KEYS) {
      float a[4][4] = {};
      rows_by_rows<F::D> (t.k, t.q, w, true, block, a);
      head_pairs (s, a, b, w, 16 * block, h, t.sums);
    }
    head_weigh (s, b, w, group != QUERIES, 16 * block, group != VALUES);
    operand_of (s, r.p + block);
  }
  if (group == KEYS)
    head_sums_store (h, w, t.sums);
}

/* Tokens' weights in what goes through the states. */
static __device__ inline float
head_row_weight (const float *b, int group, int token)
{
  return group == QUERIES ? exp2_fast (b[token]) : b[CHUNK + token] * exp2_fast (b[CHUNK - 1] - b[token]);
}

template <typename F>
static __global__ void
__launch_bounds__ (THREADS, 1) gradients_kernel (Gradients a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  Tiles<F> t (dynamic);
  const float *b = (const float *) t.gates;
  float acc[F::D / 8][4] = {};
  int group = threadIdx.x / 128, w = threadIdx.x / 32 % 4, share = (int) (a.heads / a.kv_heads);
  Item i = { (int) blockIdx.x,
             (int) (blockIdx.y / a.kv_heads),
             (int) (blockIdx.y % a.kv_heads),
             0,
             0,
             (int64_t) blockIdx.x * CHUNK };

  i.tokens = (int) min (a.m - i.first, (int64_t) CHUNK);
#pragma unroll 1
  for (int head = 0; head < share; head++) {
    Pairs pairs = {};
    float states = 0, past[2] = {}, before[2] = {}, inter[2], low = 1, high = 1;

    i.h = i.kv * share + head;
    w = (int) afresh ((uint32_t) w); /* nor is what follows from it, here and for each slice */
    if (head > 0)
      __syncthreads (); /* the one before has been read */
    load_head (a, i, t, head == 0);
    if (threadIdx.x < 32) {
      HeadGates gates = { a.gates, a.beta, scalar_of (a, i, 0), a.batch * a.heads, i.tokens, {}, {} };
      gates.fetch (0);
      gates.put (t.gates, false);
    }
    copy_wait<0> ();
    __syncthreads ();
    pairs_of (t, group, w, pairs);
    if (group != VALUES) {
      low = head_row_weight (b, group, row_of (w, 0));
      high = head_row_weight (b, group, row_of (w, 1));
      if (head > 0 && group == QUERIES)
        row_dots<F::D> (acc, t.q, 0, w, before);
    }
#pragma unroll 1
    for (int slice = 0; slice < F::N / 64; slice += F::slices) {
      w = (int) afresh ((uint32_t) w);
      if (slice > 0) {
        __syncthreads ();
        load_slices (a, i, t, slice);
        copy_commit ();
        copy_wait<0> ();
        __syncthreads ();
      }
      states += states_product (t);
#pragma unroll 1
      for (int j = 0; j < F::slices; j++) {
        int column = 64 * (slice + j);
        if (group == QUERIES)
          rows_by_state<F::D, true> (acc, t.d, column, t.m + j * F::slice_bytes, w, low, high);
        else if (group == KEYS)
          rows_by_state<F::D, true> (acc, t.v, column, t.e + j * F::slice_bytes, w, low, high);
        else
          values_slice (a, i, t, pairs.p, t.e + j * F::slice_bytes, column, w, *(float (*)[8][4]) acc, past);
      }
    }
    states = warp_sum (states);
    if (threadIdx.x % 32 == 0)
      t.sums[SUM_STATES * CHUNK + threadIdx.x / 32] = states;
    if (group == QUERIES) {
      row_dots<F::D> (acc, t.q, 0, w, inter);
      rows_by_columns<F::D> (acc, pairs.p, t.k, 0, w, false);
    } else if (group == KEYS)
      rows_by_columns<F::D> (acc, pairs.p, t.q, 0, w, true);
    if (group != KEYS && threadIdx.x % 4 == 0)
#pragma unroll
      for (int half = 0; half < 2; half++)
        t.sums[(group == QUERIES ? SUM_INTER : SUM_AFTER) * CHUNK + row_of (w, half)] =
            group == QUERIES ? inter[half] - before[half] : past[half];
    __syncthreads ();
    if (threadIdx.x < 32)
      head_gates (a, i, b, t.sums);
  }
  if (group != VALUES)
    rows_store<F::D> (a, i, group == QUERIES ? a.dq : a.dkeys, acc, w);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static size_t
kept_bytes (SpDevShape s)
{
  return (size_t) (div_up (s.m, CHUNK) * s.batch * s.heads * s.k * s.n) * sizeof (uint16_t);
}

size_t
sp_dev_recurrent_bwd_scratch_bytes (const SpDevRecurrence *r)
{
  if (r->decay == SP_DEV_DECAY_FEATURE)
    return feature_bwd_scratch (*r);
  size_t by_groups = 0, by_warps = 2 * ((kept_bytes (r->shape) + 255) / 256 * 256) + decay_tables_bytes (*r) +
                                   decay_states_scratch (*r);

#ifdef SP_SM90
  if (is_warpgroup_shape (r->shape))
    by_groups = recurrent_bwd_sm90_scratch (*r);
#endif
  return max (by_warps, by_groups);
}

template <typename F>
static cudaError_t
run (const Gradients &a, cudaStream_t stream)
{
  dim3 grid ((unsigned) div_up (a.m, CHUNK), (unsigned) (a.batch * a.kv_heads));

  return launch (gradients_kernel<F>, grid, THREADS, F::bytes, stream, a);
}

/* Tiles of few features for short values alone. */
static cudaError_t
run_part (const Gradients &a, cudaStream_t stream)
{
  if (a.d - a.first <= 64 && a.c <= 128)
    return a.c <= 64 ? run<Whole<64, 64, 1>> (a, stream) : run<Whole<64, 128, 2>> (a, stream);
  return a.c <= 64    ? run<Whole<128, 64, 1>> (a, stream)
         : a.c <= 128 ? run<Whole<128, 128, 2>> (a, stream)
                      : run<Whole<128, 256, 2>> (a, stream);
}

cudaError_t
sp_dev_recurrent_bwd (const SpDevRecurrence *r, SpDevTensor q, SpDevTensor keys, SpDevTensor values, const float *gates,
                      SpDevTensor beta, SpDevTensor d_o, const float *state_in, const float *dstate_out, SpDevTensor dq,
                      SpDevTensor dkeys, SpDevTensor dvalues, float *dgates, SpDevTensor dbeta, float *dstate_in,
                      void *scratch, cudaStream_t stream)
{
  SpDevShape s = r->shape;
  size_t kept = (kept_bytes (s) + 255) / 256 * 256;
  uint16_t *states[2] = { (uint16_t *) scratch, (uint16_t *) ((char *) scratch + kept) };
  void *rest = (char *) scratch + 2 * kept;
  float *tables = (float *) rest;
  const float *before;
  cudaError_t error;

  if (!decay_is_legal (*r, { q, keys, values, d_o }, beta) || !are_floats ({ dq, dkeys, dvalues, dbeta }) ||
      s.batch * s.kv_heads > 65535)
    return cudaErrorInvalidValue;
  if (decay_is_empty (s))
    return cudaSuccess;
  if (r->decay == SP_DEV_DECAY_FEATURE)
    return feature_bwd (
        { *r, q, keys, values, gates, d_o, state_in, dstate_out, dq, dkeys, dvalues, dgates, dstate_in, scratch },
        stream);
#ifdef SP_SM90
  if (is_warpgroup_shape (s) && is_warpgroup_output (dq) && is_warpgroup_output (dkeys) &&
      is_warpgroup_output (dvalues) && has_groups ())
    return recurrent_bwd_sm90 (
        *r, { s, nullptr, q, keys, values, d_o, state_in, dstate_out, dq, dkeys, dvalues, dstate_in, scratch },
        { gates, beta, dbeta, dgates }, stream);
#endif
  error = decay_tables (*r, gates, beta, tables, stream);
  if (error != cudaSuccess)
    return error;
  rest = (char *) rest + decay_tables_bytes (*r);
  error = decay_states ({ *r, gates, tables, false, keys, values, state_in, nullptr, nullptr, states[0], rest },
                        &before, stream);
  if (error == cudaSuccess)
    error = decay_states ({ *r, gates, tables, true, q, d_o, dstate_out, dstate_in, nullptr, states[1], rest }, &before,
                          stream);
  Gradients a = { s.m,
                  s.batch,
                  s.heads,
                  s.kv_heads,
                  (int) s.k,
                  (int) s.n,
                  0,
                  (const uint16_t *) q.data,
                  (const uint16_t *) keys.data,
                  (const uint16_t *) values.data,
                  (const uint16_t *) d_o.data,
                  gates,
                  beta,
                  { states[0], states[1] },
                  dq,
                  dkeys,
                  dvalues,
                  dbeta,
                  dgates };
  for (; error == cudaSuccess && a.first < a.d; a.first += PART)
    error = run_part (a, stream);
  return error;
}
