/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States of linear attention whose decay follows the data: what each segment adds, the chain of segments, and from there the
 * state before each chunk, which the backward wants. One kernel goes through a segment for the first and for the last: here
 * of a decay a head, in device-linear-decay-feature-states.cu of one a feature.
 */
#include "kernels/device-linear-decay-tables.cuh"
#include "kernels/device-linear-decay.cuh"

/* Of a chunk's table of a decay a head: weights of tokens, and the last of B. */
#define WEIGHT_BYTES (2 * CHUNK * 2 + 16)

template <typename F, int STAGES>
static constexpr size_t
states_bytes (void)
{
  return STAGES * (F::key_bytes + F::value_bytes + WEIGHT_BYTES);
}

template <typename F>
static __device__ inline void
state_keep (const States &a, const Place &p, State<F> &state, int chunk)
{
  int64_t vectors = a.f.batch * a.f.heads, vector = p.b * a.f.heads + p.h;
  uint16_t *to = a.kept + ((p.first / CHUNK + chunk) * vectors + vector) * a.f.c * a.f.d;

#pragma unroll
  for (int i = 0; i < F::tiles; i++)
#pragma unroll
    for (int n = 0; n < F::D / 8; n++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        int feature = index_of (n, 0), column = p.column + column_of<F::R> (i, 2 * half);
        if (feature < a.f.d && column < a.f.c)
          *(uint32_t *) (to + column * a.f.d + feature) =
              bf16_pair (state.s[i][n][2 * half], state.s[i][n][2 * half + 1]);
      }
}

static __device__ inline float
total_of (const unsigned char *weights)
{
  return *(const float *) (weights + WEIGHT_BYTES - 4);
}

/* The chunk's part, by weights of values. */
template <typename F>
static __device__ inline void
state_chunk (State<F> &state, const unsigned char *own, uint32_t x_tile)
{
  uint32_t weights = (uint32_t) __cvta_generic_to_shared (own);

  state_decay (state, exp2_fast (total_of (own)));
#pragma unroll
  for (int token = 0; token < CHUNK; token += 16) {
    uint32_t v[F::tiles][4], weighed[F::tiles][4];

    values_load<F> (v, x_tile + F::key_bytes, token);
    values_weighed<F> (v, weights, token, weighed);
    state_add (state, weighed, x_tile, token);
  }
}

template <typename F, int STAGES, int BLOCKS>
static __global__ void
__launch_bounds__ (F::threads, BLOCKS) states_kernel (States a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  constexpr int stage = F::key_bytes + F::value_bytes;
  uint32_t tiles = (uint32_t) __cvta_generic_to_shared (dynamic);
  unsigned char *gates = dynamic + STAGES * stage;
  int segments = (int) ((a.f.m + a.f.segment - 1) / a.f.segment);
  Place p = place_at (a.f, F::C, a.reverse ? segments - 1 - (int) blockIdx.z : (int) blockIdx.z);
  State<F> state = {};
  int count = (p.tokens + CHUNK - 1) / CHUNK;
  float total = 0;

  auto chunk_of = [&] (int i) { return i < count ? (a.reverse ? count - 1 - i : i) : -1; };
  auto start = [&] (int i) {
    if (i < count) {
      int chunk = chunk_of (i), rows = p.tokens - chunk * CHUNK;
      uint32_t to = tiles + i % STAGES * stage;
      int64_t first = p.first + chunk * CHUNK, vectors = a.f.batch * a.f.heads;
      load_tile<F::key_row, F::threads> (to, a.f.keys + key_of (a.f, p, first), a.f.batch * a.f.kv_heads * a.f.d, rows,
                                         (int) a.f.d);
      load_tile<F::value_row, F::threads> (to + F::key_bytes, a.f.values + element_of (a.f, p, first, a.f.c) + p.column,
                                           vectors * a.f.c, rows, (int) a.f.c - p.column);
      if (threadIdx.x <= 2 * CHUNK * 2 / 16) {
        const float *table =
            a.f.tables +
            ((int64_t) blockIdx.y * ((a.f.m + CHUNK - 1) / CHUNK) + p.first / CHUNK + chunk) * TABLE_FLOATS;
        bool is_last = threadIdx.x == 2 * CHUNK * 2 / 16;
        copy_16 (tiles + STAGES * stage + i % STAGES * WEIGHT_BYTES + threadIdx.x * 16,
                 table + (is_last     ? TABLE_B + CHUNK - 4
                          : a.reverse ? TABLE_START_HALVES + threadIdx.x * 4
                                      : TABLE_HALVES + threadIdx.x * 4),
                 true);
      }
    }
    copy_commit ();
  };

  for (int i = 0; i < STAGES - 1; i++)
    start (i);
  if (a.f.before != nullptr)
    state_load (a.f, p, a.f.before + state_at (a.f, p, p.segment), state);
  for (int i = 0; i < count; i++) {
    uint32_t x_tile = tiles + i % STAGES * stage;
    unsigned char *own = gates + i % STAGES * WEIGHT_BYTES;

    copy_wait<STAGES - 2> ();
    __syncthreads (); /* the chunk is there, and the one before has been read */
    start (i + STAGES - 1);
    if (a.kept != nullptr) {
      state_keep (a, p, state, chunk_of (i));
      if (i + 1 == count)
        break;
    }
    state_chunk<F> (state, own, x_tile);
    total += total_of (own);
  }
  if (a.kept != nullptr)
    return;
  state_store (a.f, p, state, a.f.own + state_at (a.f, p, p.segment));
  if (blockIdx.x == 0 && threadIdx.x == 0)
    a.totals[(int64_t) p.segment * gridDim.y + blockIdx.y] = total;
}

/* --- the chain ---------------------------------------------------------------------------------------------------- */

/* From what each segment adds to the state before it, four elements of [vectors,d,c] a thread. */
struct Chain {
  int64_t d, c, all;
  int segments, known, decays; /* known: segments whose own state there is; decays: 1 or d a vector */
  bool reverse;
  const float *totals, *in;
  float *states, *last;
};

#define CHAIN_THREADS 128
#define CHAIN_AHEAD 4

static __global__ void
__launch_bounds__ (CHAIN_THREADS) decay_chain_kernel (Chain c)
{
  int64_t i = ((int64_t) blockIdx.x * CHAIN_THREADS + threadIdx.x) * 4, row = i / c.c;
  int64_t decay = c.decays == 1 ? row / c.d : row, totals = c.all / (c.d * c.c) * c.decays;
  float4 running = make_float4 (0, 0, 0, 0);

  release_next ();
  if (i >= c.all)
    return;
  if (c.in != nullptr)
    running = *(const float4 *) (c.in + i);
  for (int first = 0; first < c.known; first += CHAIN_AHEAD) {
    float4 own[CHAIN_AHEAD];
    float total[CHAIN_AHEAD];
#pragma unroll
    for (int j = 0; j < CHAIN_AHEAD; j++)
      if (first + j < c.known) {
        int64_t segment = c.reverse ? c.segments - 1 - first - j : first + j;
        own[j] = *(const float4 *) (c.states + segment * c.all + i);
        total[j] = c.totals[segment * totals + decay];
      }
#pragma unroll
    for (int j = 0; j < CHAIN_AHEAD; j++)
      if (first + j < c.known) {
        int64_t segment = c.reverse ? c.segments - 1 - first - j : first + j;
        float factor = exp2f (total[j]);
        *(float4 *) (c.states + segment * c.all + i) = running;
        running.x = factor * running.x + own[j].x;
        running.y = factor * running.y + own[j].y;
        running.z = factor * running.z + own[j].z;
        running.w = factor * running.w + own[j].w;
      }
  }
  if (c.known < c.segments)
    *(float4 *) (c.states + (c.reverse ? c.segments - 1 - c.known : c.known) * c.all + i) = running;
  if (c.last != nullptr)
    *(float4 *) (c.last + i) = running;
}

/* T of all segments. */
struct Transfer {
  int64_t n;
  int segments;
  const float *totals;
  float *transfer;

  template <int V> __device__ void at (int64_t i) const
  {
    float sum = 0;

    for (int segment = 0; segment < segments; segment++)
      sum += totals[segment * n + i];
    transfer[i] = exp2f (sum);
  }
};

/* --- launches ----------------------------------------------------------------------------------------------------- */

static int64_t
decays_of (const SpDevRecurrence &r)
{
  return r.decay == SP_DEV_DECAY_FEATURE ? r.shape.k : 1;
}

size_t
decay_states_scratch (const SpDevRecurrence &r)
{
  SpDevShape s = r.shape;
  int64_t segments = linear_cut_of (s, false).segments;

  if (r.decay == SP_DEV_DECAY_HEAD)
    segments = max (segments, linear_cut_of (s, true).segments);
  return (size_t) (segments * s.batch * s.heads * (s.k * s.n + decays_of (r))) * sizeof (float);
}

template <typename F, int STAGES, int BLOCKS>
static cudaError_t
run (const States &a, int64_t segments, cudaStream_t stream)
{
  dim3 grid ((unsigned) div_up (a.f.c, F::C), (unsigned) (a.f.batch * a.f.heads), (unsigned) segments);

  return launch (states_kernel<F, STAGES, BLOCKS>, grid, F::threads, states_bytes<F, STAGES> (), stream, a);
}

static cudaError_t
head_states (const States &a, int64_t segments, cudaStream_t stream)
{
  if (a.f.d <= 64)
    return a.f.c <= 64 ? run<Form<64, 16, 4>, 3, 3> (a, segments, stream)
                       : run<Form<64, 32, 4>, 3, 2> (a, segments, stream);
  if (a.f.d <= 128)
    return a.f.c <= 64 ? run<Form<128, 16, 4>, 3, 2> (a, segments, stream)
                       : run<Form<128, 32, 4>, 3, 2> (a, segments, stream);
  return a.f.c <= 64 ? run<Form<256, 16, 4>, 3, 1> (a, segments, stream)
                     : run<Form<256, 16, 8>, 3, 1> (a, segments, stream);
}

cudaError_t
decay_states (const DecayStates &x, const float **before, cudaStream_t stream)
{
  SpDevShape s = x.r.shape;
  Cut cut = linear_cut_of (s, x.by_groups);
  auto walk = x.r.decay == SP_DEV_DECAY_FEATURE ? feature_states : head_states;
  bool is_whole = x.last != nullptr || x.transfer != nullptr;
  int64_t known = is_whole ? cut.segments : cut.segments - 1, all = s.batch * s.heads * s.k * s.n;
  float *states = (float *) x.scratch, *totals = states + cut.segments * all;
  States a = {};
  cudaError_t error = cudaSuccess;

  a.f = forward_of (s, cut.segment, {}, x.keys, x.values, {});
  a.f.own = states;
  a.f.gates = x.gates;
  a.f.tables = x.tables;
  a.reverse = x.reverse;
  a.totals = totals;
  if (known > 0) {
    Chain chain = { s.k,     s.n,    all,   (int) cut.segments, (int) known, (int) decays_of (x.r), x.reverse, totals,
                    x.first, states, x.last };
    error = walk (a, known, stream);
    if (error == cudaSuccess)
      error = launch (decay_chain_kernel, dim3 ((unsigned) div_up (all, 4 * CHAIN_THREADS)), CHAIN_THREADS, 0, stream,
                      chain);
  }
  *before = known > 0 ? states : x.first;
  if (error == cudaSuccess && x.transfer != nullptr) {
    int64_t n = s.batch * s.heads * decays_of (x.r);
    error = each (Transfer{ n, (int) cut.segments, totals, x.transfer }, n, 1, stream);
  }
  if (error != cudaSuccess || x.kept == nullptr)
    return error;
  a.f.before = *before;
  a.kept = x.kept;
  a.masks = x.masks;
  return walk (a, cut.segments, stream);
}
