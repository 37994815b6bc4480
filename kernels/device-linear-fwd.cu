/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear attention's forward with a decay,
 *     S_i = lambda S_{i-1} + k_i v_i^T,    o_i = S_i^T q_i
 * The sequence is cut in segments, as many as fill a card: first what each segment adds to the state, then the chain of
 * segments, then the outputs, for which a block goes through a segment from the state before it.
 */
#include "kernels/device-linear-output.cuh"

/* --- what a segment adds ------------------------------------------------------------------------------------------ */

template <typename F, int STAGES>
static constexpr size_t
own_bytes (void)
{
  return STAGES * (F::key_bytes + F::value_bytes) + 2 * F::weight_bytes;
}

/* Chunks at the start of a segment whose weight is zero in fp32. */
static __device__ inline int
chunks_forgotten (const Place &p)
{
  float remembered = 150 / p.slope2; /* tokens; no slope: infinite */

  return remembered < (float) p.tokens ? (p.tokens - (int) remembered - 1) / CHUNK : 0;
}

/* From the last chunk to the first: those that the outputs begin with are then in the L2. */
template <typename F, int STAGES, int BLOCKS>
static __global__ void
__launch_bounds__ (F::threads, BLOCKS) own_kernel (Forward a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  uint32_t tiles = (uint32_t) __cvta_generic_to_shared (dynamic);
  uint32_t weights = tiles + STAGES * (F::key_bytes + F::value_bytes);
  Place p = place_of (a, F::C);
  State<F> state = {};
  int last = (p.tokens - 1) / CHUNK, count = last + 1 - chunks_forgotten (p);

  auto start = [&] (int i) {
    if (i < count) {
      uint32_t to = tiles + i % STAGES * (F::key_bytes + F::value_bytes);
      int64_t first = p.first + (last - i) * CHUNK;
      int rows = p.tokens - (last - i) * CHUNK;
      load_tile<F::key_row, F::threads> (to, a.keys + element_of (a, p, first, a.d), a.batch * a.heads * a.d, rows,
                                         a.d);
      load_tile<F::value_row, F::threads> (to + F::key_bytes, a.values + element_of (a, p, first, a.c) + p.column,
                                           a.batch * a.heads * a.c, rows, a.c - p.column);
    }
    copy_commit ();
  };
  auto weigh_chunk = [&] (int i) {
    if (threadIdx.x < 32)
      weights_set (weights + i % 2 * F::weight_bytes, p.slope2, p.tokens - (last - i) * CHUNK);
  };

  for (int i = 0; i < STAGES - 1; i++)
    start (i);
  weigh_chunk (0);
  for (int i = 0; i < count; i++) {
    uint32_t x_tile = tiles + i % STAGES * (F::key_bytes + F::value_bytes), y_tile = x_tile + F::key_bytes;

    copy_wait<STAGES - 2> ();
    __syncthreads (); /* the chunk is there, and the one before has been read */
    start (i + STAGES - 1);
    weigh_chunk (i + 1);
#pragma unroll
    for (int token = 0; token < CHUNK; token += 16) {
      uint32_t v[F::tiles][4], weighed[F::tiles][4];

      values_load<F> (v, y_tile, token);
      values_weighed<F> (v, weights + i % 2 * F::weight_bytes, token, weighed);
      state_add (state, weighed, x_tile, token);
    }
  }
  state_store (a, p, state, a.own + state_at (a, p, p.segment));
}

/* --- the chain ---------------------------------------------------------------------------------------------------- */

/* From what each segment adds to the state before it, for the `all` elements of states [batch,heads,size]. */
struct Chain {
  int64_t m, heads, size, all;
  int64_t segment, segments, known; /* known: segments whose own state there is */
  const float *slopes, *in;         /* in: before all; may be NULL */
  float *states, *last;             /* last may be NULL */
};

#define CHAIN_THREADS 128
#define CHAIN_AHEAD 8 /* states read before any is written */

static __global__ void
__launch_bounds__ (CHAIN_THREADS) chain_kernel (Chain c)
{
  int64_t i = ((int64_t) blockIdx.x * CHAIN_THREADS + threadIdx.x) * 4;

#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n"); /* the outputs' first tiles need no states */
#endif
  if (i >= c.all)
    return;
  float slope2 = c.slopes[i / c.size % c.heads] * LOG2_E, factor = decay2 (slope2, (int) c.segment);
  float4 running = make_float4 (0, 0, 0, 0);

  if (c.in != nullptr)
    running = make_float4 (c.in[i], c.in[i + 1], c.in[i + 2], c.in[i + 3]);

  for (int64_t first = 0; first < c.known; first += CHAIN_AHEAD) {
    float4 own[CHAIN_AHEAD];
#pragma unroll
    for (int j = 0; j < CHAIN_AHEAD; j++)
      if (first + j < c.known)
        own[j] = *(const float4 *) (c.states + (first + j) * c.all + i);
#pragma unroll
    for (int j = 0; j < CHAIN_AHEAD; j++)
      if (first + j < c.known) {
        if (first + j + 1 == c.segments)
          factor = decay2 (slope2, (int) (c.m - (first + j) * c.segment));
        *(float4 *) (c.states + (first + j) * c.all + i) = running;
        running.x = factor * running.x + own[j].x;
        running.y = factor * running.y + own[j].y;
        running.z = factor * running.z + own[j].z;
        running.w = factor * running.w + own[j].w;
      }
  }
  if (c.known < c.segments)
    *(float4 *) (c.states + c.known * c.all + i) = running;
  if (c.last != nullptr) {
    c.last[i] = running.x;
    c.last[i + 1] = running.y;
    c.last[i + 2] = running.z;
    c.last[i + 3] = running.w;
  }
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* Of an H100, whatever the card: the cut decides the order of sums. */
#define MULTIPROCESSORS 132

/* As many segments as finish first. A block takes a time for each chunk, half more with the states' pass, and one for
 * its state, which goes to memory and back twice; a chunk's keys, values, queries and outputs count as 2. */
Cut
linear_cut_of (SpDevShape s, bool by_groups)
{
  Cut cut = { by_groups, s.n <= 64 ? 64 : 128, 0, 0, 0 };
  int64_t chunks = div_up (s.m, CHUNK), blocks = s.batch * s.heads * div_up (s.n, cut.columns);
  int64_t best = 1, least = INT64_MAX;

  cut.at_once = MULTIPROCESSORS * (by_groups && s.n > 64 ? 1 : 2);
  for (int64_t n = 1; n <= chunks && n <= cut.at_once; n++) {
    int64_t block = n == 1 ? 2 * chunks : 3 * div_up (chunks, n) + 16, time = div_up (blocks * n, cut.at_once) * block;
    if (time < least) {
      least = time;
      best = n;
    }
  }
  cut.segment = div_up (chunks, best) * CHUNK;
  cut.segments = div_up (s.m, cut.segment); /* none is empty */
  return cut;
}

/* Enough for either way, so that it can be asked where there is no card. */
size_t
sp_dev_linear_scratch_bytes (SpDevShape s)
{
  return (size_t) (max (linear_cut_of (s, true).segments, linear_cut_of (s, false).segments) * s.batch * s.heads * s.k *
                   s.n) *
         sizeof (float);
}

template <typename F, int STAGES, int BLOCKS>
static cudaError_t
run (const Forward &a, const Cut &cut, const float *in, cudaStream_t stream)
{
  Forward outputs = a;
  int64_t size = a.d * a.c, all = a.batch * a.heads * size;
  int64_t known = is_present (a.o) ? cut.segments - 1 : cut.segments;
  dim3 grid ((unsigned) div_up (a.c, F::C), (unsigned) (a.batch * a.heads), (unsigned) known);
  cudaError_t error = cudaSuccess;

  outputs.before = in;
  if (known > 0) {
    Chain chain = {
      a.m, a.heads, size, all, a.segment, cut.segments, known, a.slopes, in, a.own, is_present (a.o) ? nullptr : a.after
    };
    error = launch (own_kernel<F, STAGES, BLOCKS>, grid, F::threads, own_bytes<F, STAGES> (), stream, a);
    if (error == cudaSuccess)
      error = launch (chain_kernel, dim3 ((unsigned) div_up (all, 4 * CHAIN_THREADS)), CHAIN_THREADS, 0, stream, chain);
    outputs.before = a.own;
  }
  if (error != cudaSuccess || !is_present (a.o))
    return error;
#ifdef SP_SM90
  if (cut.by_groups)
    return linear_outputs_sm90 (outputs, cut.segments, stream);
#endif
  grid.z = (unsigned) cut.segments;
  return launch (output_kernel<F, BLOCKS, ByDistance>, grid, F::threads, output_bytes<F, ByDistance> (), stream,
                 outputs);
}

static cudaError_t
forward (SpDevShape s, const Cut &cut, const float *slopes, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
         const float *state_in, SpDevTensor o, float *state, void *scratch, cudaStream_t stream)
{
  Forward a = forward_of (s, cut.segment, q, keys, values, o);

  a.kv_heads = s.heads;
  a.slopes = slopes;
  a.own = (float *) scratch;
  a.after = state;
  if (s.k <= 64)
    return s.n <= 64 ? run<Form<64, 16, 4>, 3, 3> (a, cut, state_in, stream)
                     : run<Form<64, 32, 4>, 3, 2> (a, cut, state_in, stream);
  if (s.k <= 128)
    return s.n <= 64 ? run<Form<128, 16, 4>, 3, 2> (a, cut, state_in, stream)
                     : run<Form<128, 32, 4>, 3, 2> (a, cut, state_in, stream);
  return s.n <= 64 ? run<Form<256, 16, 4>, 3, 1> (a, cut, state_in, stream)
                   : run<Form<256, 16, 8>, 3, 1> (a, cut, state_in, stream);
}

cudaError_t
sp_dev_linear_forward (SpDevShape shape, const float *slopes, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
                       const float *state_in, SpDevTensor o, float *state, void *scratch, cudaStream_t stream)
{
  if (!linear_is_legal (shape, { q, keys, values }, { o }))
    return cudaErrorInvalidValue;
  if (shape.m == 0 || shape.batch * shape.heads * shape.k * shape.n == 0)
    return cudaSuccess;
  return forward (shape, linear_cut_of (shape, shape.k <= 128 && has_groups ()), slopes, q, keys, values, state_in, o,
                  state, scratch, stream);
}

cudaError_t
sp_dev_linear_local (SpDevShape shape, const float *slopes, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
                     SpDevTensor o, float *state, void *scratch, cudaStream_t stream)
{
  return sp_dev_linear_forward (shape, slopes, q, keys, values, nullptr, o, state, scratch, stream);
}
