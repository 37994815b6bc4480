/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of linear attention with a decay a feature: a block makes all of a chunk and head, of up to 128 features of
 * keys. Where there are more, the second part adds to what the first made of values. Chunks in which a feature is steep are
 * left to a second launch.
 */
#include "kernels/device-linear-decay-feature-bwd.cuh"

/* --- from global memory and back ---------------------------------------------------------------------------------- */

/* b of the thread's tokens from before the first of them on. */
template <typename C>
static __device__ inline void
gates_fetch (C c, const Gradients &a, const Item &i, float2 (&b)[C::length])
{
  int64_t stride = a.batch * a.heads * a.d;
  const float *at = a.gates + row_at (a, i, c.first, a.d) + a.first + c.feature;

#pragma unroll
  for (int j = 0; j < C::length; j++, at += stride) {
    bool is_there = c.first + j < i.tokens && a.first + c.feature < a.d;
    b[j] = is_there ? *(const float2 *) at : make_float2 (0, 0);
  }
#pragma unroll
  for (int j = 0; j < C::length; j++)
    b[j] = j == 0 ? log2_decays (b[0]) : plus (b[j - 1], log2_decays (b[j]));
}

/* 64 columns of the values, of which states have rows. */
static __device__ inline int64_t
slice_at (const Gradients &a, const Item &i, int column)
{
  return ((i.chunk * a.batch * a.heads + i.vector) * a.c + column) * a.d + a.first;
}

template <typename F>
static __device__ inline void
slices_load (const Gradients &a, const Item &i, const Tiles<F> &t, int column)
{
  if (F::together)
    load_tile<2 * F::D, THREADS> (t.m, a.states[0] + slice_at (a, i, column), a.d, a.c - column, a.d - a.first);
  load_tile<2 * F::D, THREADS> (t.e, a.states[1] + slice_at (a, i, column), a.d, a.c - column, a.d - a.first);
  copy_commit ();
}

/* M where E was, between barriers. */
template <typename F>
static __device__ inline void
slice_change (const Gradients &a, const Item &i, const Tiles<F> &t, int column)
{
  __syncthreads ();
  load_tile<2 * F::D, THREADS> (t.m, a.states[0] + slice_at (a, i, column), a.d, a.c - column, a.d - a.first);
  copy_commit ();
  copy_wait<0> ();
  __syncthreads ();
}

template <typename F>
static __device__ inline void
tiles_load (const Gradients &a, const Item &i, const Tiles<F> &t)
{
  int64_t keys = row_at (a, i, 0, a.d) + a.first, values = row_at (a, i, 0, a.c), stride = a.batch * a.heads;

  load_tile<2 * F::D, THREADS> (t.q, a.q + keys, stride * a.d, i.tokens, a.d - a.first);
  load_tile<2 * F::D, THREADS> (t.k, a.keys + keys, stride * a.d, i.tokens, a.d - a.first);
  copy_commit ();
  load_tile<2 * F::N, THREADS> (t.v, a.values + values, stride * a.c, i.tokens, a.c);
  load_tile<2 * F::N, THREADS> (t.d, a.d_o + values, stride * a.c, i.tokens, a.c);
  slices_load (a, i, t, 0);
}

/* Queries and keys to q' and k', but of steep features, of which b goes to where it is looked up. */
template <typename F>
static __device__ inline void
tiles_scale (const Gradients &a, const Item &i, const Tiles<F> &t, const uint32_t *mask)
{
  using C = typename F::Columns;
  C c;
  float2 b[C::length];
  bool x = F::steep && mask_has (mask, c.feature), y = F::steep && mask_has (mask, c.feature + 1);

  gates_fetch (c, a, i, b);
  *(float2 *) (t.floats (F::parts_at) + c.part * F::D + c.feature) = b[C::length - 1];
  copy_wait<1> ();
  __syncthreads (); /* queries and keys are there */
  Sums s = sums_of<C, F::D> (c, t.floats (F::parts_at));
#pragma unroll
  for (int j = 0; j < C::length; j++) {
    uint32_t at = pair_place (t.q, c.first + j, c.feature);
    float2 own = plus (s.before, b[j]);
    float2 up = make_float2 (x ? 0 : own.x - s.middle.x, y ? 0 : own.y - s.middle.y);
    scale_word (at, exp2_fast (up.x), exp2_fast (up.y));
    scale_word (at + F::key_bytes, exp2_fast (-up.x), exp2_fast (-up.y));
    if (F::steep)
      *(float2 *) (t.floats (F::b_at) + (c.first + j) * F::b_row + c.feature) = own;
  }
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* Of rows g or g + 8, as `side` says, 32 columns. */
static __device__ inline void
values_store (const Gradients &a, const Item &i, const float (&o)[4][4], int token, int first, int side)
{
  int64_t at = row_at (a, i, token, a.c) + first;

  if (a.is_wide && a.first == 0) {
    int column = 8 * ((int) threadIdx.x % 4);
    uint32_t words[4];
#pragma unroll
    for (int n = 0; n < 4; n++)
      words[n] = bf16_pair (o[n][2 * side], o[n][2 * side + 1]);
    quad_turn (words);
    if (token < i.tokens && first + column < a.c)
      *(uint4 *) ((uint16_t *) a.dvalues.data + at + column) = make_uint4 (words[0], words[1], words[2], words[3]);
    return;
  }
#pragma unroll
  for (int n = 0; n < 4; n++) {
    int column = index_of (n, 0);
    float low = 0, high = 0;
    if (token >= i.tokens || first + column >= a.c)
      continue;
    if (a.first > 0)
      load_pair (a.dvalues, at + column, &low, &high);
    store_pair (a.dvalues, at + column, low + o[n][2 * side], high + o[n][2 * side + 1]);
  }
}

/* The warp's 32 columns of a slice of 64: dv. */
template <typename F>
static __device__ inline void
values_slice (const Gradients &a, const Item &i, const Tiles<F> &t, const uint32_t *mask, int slice, int w, int half)
{
  const float *b = t.floats (F::b_at);
  float o[4][4] = {};

#pragma unroll 2
  for (int k = 0; k < F::D; k += 16) {
    uint32_t x[4];

    fragment_a (x, t.k, 16 * w, k);
    if (F::steep)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int feature = k + (int) threadIdx.x % 4 * 2 + e / 2 * 8;
        const float *own = b + token_of (w, e % 2) * F::b_row + feature, *end = b + (CHUNK - 1) * F::b_row + feature;
        x[e] = scale_pair (x[e], mask_has (mask, feature) ? exp2_fast (end[0] - own[0]) : 1,
                           mask_has (mask, feature + 1) ? exp2_fast (end[1] - own[1]) : 1);
      }
#pragma unroll
    for (int n = 0; n < 32; n += 16) {
      uint32_t y[4];

      fragment_b_transposed (y, t.e, 32 * half + n, k);
      mma (o[n / 8], x, y[0], y[1]);
      mma (o[n / 8 + 1], x, y[2], y[3]);
    }
  }
  pairs_by_rows<32, true> (o, t.a, t.d, 64 * slice + 32 * half, w);
#pragma unroll
  for (int side = 0; side < 2; side++)
    values_store (a, i, o, token_of (w, side), 64 * slice + 32 * half, side);
}

/* M E of the thread's two features and its rows of a slice; where E has gone it is read again. */
template <typename F>
static __device__ inline void
states_products (const Gradients &a, const Item &i, const Tiles<F> &t, int column, float2 *sum)
{
  typename F::Columns c;
  const uint16_t *from = a.states[1] + slice_at (a, i, column) + c.feature;

#pragma unroll 4
  for (int j = 0; j < F::Columns::length; j++) {
    int row = c.first + j;
    uint32_t at = pair_place (t.m, row, c.feature), m = load_word (at), e = 0;
    if (F::together)
      e = load_word (at + F::slice_bytes);
    else if (column + row < a.c && a.first + c.feature < a.d)
      e = *(const uint32_t *) (from + row * a.d);
    sum->x += bf16_at (m, 0) * bf16_at (e, 0);
    sum->y += bf16_at (m, 1) * bf16_at (e, 1);
  }
}

/* --- queries, keys and decays ------------------------------------------------------------------------------------- */

template <typename F>
static __device__ inline void
rows_put (const float (&acc)[F::D / 16][4], float *rows, int w, int column)
{
#pragma unroll
  for (int n = 0; n < F::D / 16; n++)
#pragma unroll
    for (int side = 0; side < 2; side++)
      *(float2 *) (rows + turned<F::D> (token_of (w, side), column + index_of (n, 0))) =
          make_float2 (acc[n][2 * side], acc[n][2 * side + 1]);
}

/* dq and dk of the thread's tokens, and the sums of x from each of them to the last of them. */
template <typename F>
static __device__ inline void
rows_finish (const Gradients &a, const Item &i, const Tiles<F> &t, const Sums &s, const uint32_t *mask,
             float2 (&b)[F::Columns::length])
{
  using C = typename F::Columns;
  C c;
  const float *dq = t.floats (F::rows_at), *dk = dq + CHUNK * F::D;
  bool x = F::steep && mask_has (mask, c.feature), y = F::steep && mask_has (mask, c.feature + 1);
  int64_t stride = a.batch * a.heads * a.d, to = row_at (a, i, c.first + C::length, a.d) + a.first + c.feature;
  float2 sum = make_float2 (0, 0);

#pragma unroll
  for (int j = C::length - 1; j >= 0; j--) {
    int token = c.first + j;
    uint32_t at = pair_place (t.q, token, c.feature), q = load_word (at), k = load_word (at + F::key_bytes);
    float2 own = plus (s.before, b[j]);
    float2 up = make_float2 (x ? 0 : own.x - s.middle.x, y ? 0 : own.y - s.middle.y);
    float2 of_q = *(const float2 *) (dq + turned<F::D> (token, c.feature));
    float2 of_k = *(const float2 *) (dk + turned<F::D> (token, c.feature));

    to -= stride;
    if (token < i.tokens && a.first + c.feature < a.d) {
      store_pair (a.dq, to, of_q.x * exp2_fast (up.x), of_q.y * exp2_fast (up.y));
      store_pair (a.dkeys, to, of_k.x * exp2_fast (-up.x), of_k.y * exp2_fast (-up.y));
    }
    sum.x += bf16_at (q, 0) * of_q.x - bf16_at (k, 0) * of_k.x;
    sum.y += bf16_at (q, 1) * of_q.y - bf16_at (k, 1) * of_k.y;
    b[j] = sum;
  }
}

/* From the rows in shared memory to the gradients. The thread's tokens' b are read again. */
template <typename F>
static __device__ inline void
finish (const Gradients &a, const Item &i, const Tiles<F> &t, const uint32_t *mask)
{
  using C = typename F::Columns;
  C c;
  float2 b[C::length];
  float *parts = t.floats (F::pairs_at) + c.feature;
  const float *after = t.floats (F::after_at) + c.feature, *states = t.floats (F::states_at) + c.feature;
  Sums s = sums_of<C, F::D> (c, t.floats (F::parts_at));

  gates_fetch (c, a, i, b);
  rows_finish (a, i, t, s, mask, b);
  *(float2 *) (parts + c.part * F::D) = b[0];
  __syncthreads ();
  float2 end = make_float2 (0, 0), later = make_float2 (0, 0);
#pragma unroll
  for (int p = 0; p < C::parts; p++) {
    end = plus (end, *(const float2 *) (states + p * F::D));
    if (p > c.part)
      later = plus (later, *(const float2 *) (parts + p * F::D));
  }
  if (F::steep) {
    end.x *= mask_has (mask, c.feature) ? exp2_fast (s.end.x) : 1;
    end.y *= mask_has (mask, c.feature + 1) ? exp2_fast (s.end.y) : 1;
  }
#pragma unroll
  for (int w = 0; w < CHUNK / 16; w++)
    end = plus (end, *(const float2 *) (after + w * F::D));
  later = plus (later, end);
  float *to = a.dgates + row_at (a, i, c.first, a.d) + a.first + c.feature;
#pragma unroll
  for (int j = 0; j < C::length; j++, to += a.batch * a.heads * a.d)
    if (c.first + j < i.tokens && a.first + c.feature < a.d)
      *(float2 *) to = plus (b[j], later);
}

/* --- the kernel --------------------------------------------------------------------------------------------------- */

/* Words for features that are not there were not written. */
template <typename F>
static __device__ inline bool
is_ours (const uint32_t *mask, int features)
{
  uint32_t any = 0;

#pragma unroll
  for (int j = 0; j < F::D / 32; j++)
    any |= 32 * j < (features + 63) / 64 * 64 ? mask[j] : 0;
  return (any != 0) == F::steep;
}

template <typename F, int BLOCKS>
static __global__ void
__launch_bounds__ (THREADS, BLOCKS_OF (BLOCKS, F::bytes)) gradients_kernel (Gradients a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  Tiles<F> t (dynamic);
  Item i (a);
  const uint32_t *mask =
      a.masks + ((i.chunk * a.batch * a.heads + i.vector) * masks_of (a.d) + a.first / MASK_FEATURES) * MASK_WORDS;
  int w = threadIdx.x / 32 % 4, half = threadIdx.x / 128, column = F::D / 2 * half;
  float dq[F::D / 16][4] = {}, dk[F::D / 16][4] = {};
  float2 states = make_float2 (0, 0);
  [[maybe_unused]] const float *b = t.floats (F::b_at);

  if (!is_ours<F> (mask, a.d - a.first))
    return;
  tiles_load (a, i, t);
  tiles_scale (a, i, t, mask);
  copy_wait<0> ();
  __syncthreads ();
  pairs_make (t, mask);
  __syncthreads ();
#pragma unroll 1
  for (int slice = 0; slice < F::N / 64; slice++) {
    if (slice > 0) {
      __syncthreads (); /* the one before has been read */
      slices_load (a, i, t, 64 * slice);
      copy_wait<0> ();
      __syncthreads ();
    }
    rows_by_slice<F::D / 2> (dk, t.v, 64 * slice, t.e, column, w);
    values_slice (a, i, t, mask, slice, w, half);
    if (!F::together)
      slice_change (a, i, t, 64 * slice);
    rows_by_slice<F::D / 2> (dq, t.d, 64 * slice, t.m, column, w);
    states_products (a, i, t, 64 * slice, &states);
  }
  {
    typename F::Columns c;
    *(float2 *) (t.floats (F::states_at) + c.part * F::D + c.feature) = states;
  }
  if (F::steep) {
    steep_factors<F, false> (dq, b, mask, w, column);
    steep_factors<F, true> (dk, b, mask, w, column);
  }
  after_sums (t, dk, w, column, t.floats (F::after_at) + w * F::D);
  pairs_by_rows<F::D / 2, false> (dq, t.p, t.k, column, w);
  pairs_by_rows<F::D / 2, true> (dk, t.p, t.q, column, w);
  __syncthreads (); /* values, d_o and states have been read */
  rows_put<F> (dq, t.floats (F::rows_at), w, column);
  rows_put<F> (dk, t.floats (F::rows_at) + CHUNK * F::D, w, column);
  __syncthreads ();
  if (F::steep) {
    steep_pairs (t, mask, t.floats (F::rows_at));
    __syncthreads ();
  }
  finish (a, i, t, mask);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

template <int D, int N, int BLOCKS>
static cudaError_t
run (const Gradients &a, cudaStream_t stream)
{
  dim3 grid ((unsigned) (div_up (a.m, CHUNK) * a.batch * a.heads));
  cudaError_t error =
      launch (gradients_kernel<Whole<D, N, false>, BLOCKS>, grid, THREADS, Whole<D, N, false>::bytes, stream, a);

  return error != cudaSuccess
             ? error
             : launch (gradients_kernel<Whole<D, N, true>, 1>, grid, THREADS, Whole<D, N, true>::bytes, stream, a);
}

/* Tiles of few features for short values alone. */
static cudaError_t
run_part (const Gradients &a, cudaStream_t stream)
{
  if (a.d - a.first <= 64 && a.c <= 128)
    return a.c <= 64 ? run<64, 64, 2> (a, stream) : run<64, 128, 2> (a, stream);
  return a.c <= 64    ? run<128, 64, 2> (a, stream)
         : a.c <= 128 ? run<128, 128, 2> (a, stream)
                      : run<128, 256, 1> (a, stream);
}

static size_t
kept_bytes (SpDevShape s)
{
  return (size_t) div_up (div_up (s.m, CHUNK) * s.batch * s.heads * s.k * s.n * 2, 256) * 256;
}

static size_t
mask_bytes (SpDevShape s)
{
  return (size_t) div_up (div_up (s.m, CHUNK) * s.batch * s.heads * masks_of (s.k) * MASK_WORDS * 4, 256) * 256;
}

size_t
feature_bwd_scratch (const SpDevRecurrence &r)
{
  return 2 * kept_bytes (r.shape) + mask_bytes (r.shape) + decay_states_scratch (r);
}

cudaError_t
feature_bwd (const DecayBackward &x, cudaStream_t stream)
{
  SpDevShape s = x.r.shape;
  uint16_t *states[2] = { (uint16_t *) x.scratch, (uint16_t *) ((char *) x.scratch + kept_bytes (s)) };
  uint32_t *masks = (uint32_t *) ((char *) states[1] + kept_bytes (s));
  void *rest = (char *) masks + mask_bytes (s);
  const float *before;
  cudaError_t error = decay_states (
      { x.r, x.gates, nullptr, false, x.keys, x.values, x.state_in, nullptr, nullptr, states[0], rest, false, masks },
      &before, stream);

  if (error == cudaSuccess)
    error = decay_states (
        { x.r, x.gates, nullptr, true, x.q, x.d_o, x.dstate_out, x.dstate_in, nullptr, states[1], rest, false, masks },
        &before, stream);
  Gradients a = { s.m,
                  s.batch,
                  s.heads,
                  (int) s.k,
                  (int) s.n,
                  0,
                  (const uint16_t *) x.q.data,
                  (const uint16_t *) x.keys.data,
                  (const uint16_t *) x.values.data,
                  (const uint16_t *) x.d_o.data,
                  x.gates,
                  { states[0], states[1] },
                  masks,
                  x.dq,
                  x.dkeys,
                  x.dvalues,
                  x.dvalues.dtype == SP_DEV_BF16 && is_aligned (x.dvalues.data, 16),
                  x.dgates };
  for (; error == cudaSuccess && a.first < a.d; a.first += MASK_FEATURES)
    error = run_part (a, stream);
  return error;
}
