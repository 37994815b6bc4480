/* SPDX-License-Identifier: Apache-2.0 */
/* The delta rule's passes against the order of tokens: the gradient of the state before a segment, and r and dS' of each
 * chunk. */
#include "kernels/device-delta-passes.cuh"

template <typename F>
static __host__ __device__ constexpr int
stage_bytes (void)
{
  return 2 * F::key_bytes + F::value_bytes + 2 * F::score_bytes;
}

/* out^T += v^T of 16 tokens times the rows that these have of a lower triangular tile. */
template <typename F>
static __device__ inline void
rows_read (Outputs<F> &out, const uint32_t v[F::tiles][4], uint32_t tile, int token)
{
#pragma unroll
  for (int n = 0; n < token / 8 + 2; n += 2) {
    uint32_t b[4];

    fragment_b (b, tile, token, 8 * n);
#pragma unroll
    for (int i = 0; i < F::tiles; i++) {
      mma (out.o[i][n], v[i], b[0], b[1]);
      mma (out.o[i][n + 1], v[i], b[2], b[3]);
    }
  }
}

/* Values of 16 tokens as an operand, each weighed, rounded once. */
template <typename F, typename W>
static __device__ inline void
values_operand (const uint32_t v[F::tiles][4], int token, W f, uint32_t a[F::tiles][4])
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float2 w = f (token + 8 * half + (int) threadIdx.x % 4 * 2);
#pragma unroll
    for (int i = 0; i < F::tiles; i++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        a[i][2 * half + e] = bf16_pair (bf16_at (v[i][2 * half + e], 0) * w.x, bf16_at (v[i][2 * half + e], 1) * w.y);
  }
}

template <typename F, bool ERRORS>
static __global__ void
__launch_bounds__ (F::threads, 2) pass_bwd_kernel (DeltaPass p)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  constexpr int stage = stage_bytes<F> ();
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
    uint32_t weighed[CHUNK / 16][F::tiles][4];
    Outputs<F> dw = {};
    auto since = [&] (int token) { return delta_weights (weights.at, DELTA_SINCE, token); };
    auto beta = [&] (int token) { return delta_weights (weights.at, DELTA_BETA, token); };
    auto minus = [&] (int token) {
      float2 w = since (token), f = beta (token);
      return make_float2 (-w.x * f.x, -w.y * f.y);
    };

    copy_wait<0> ();
    __syncthreads (); /* the chunk is there, and the one before has been read */
    weights.put ();
    if (chunk > b.first) {
      start (chunk - 1);
      weights.fetch (a, b.head, chunk - 1);
    }
#pragma unroll
    for (int k = 0; k < F::D / 16; k++) {
      uint32_t s[F::tiles][4];

      state_operand (state, k, s);
      outputs_add<F> (dw, s, x_tile, k);
      if (ERRORS)
        pass_state_keep<F> (a, b, a.states_d, chunk, s, k);
    }
    __syncthreads (); /* the weights are there */
    pass_each (
        dw, [&] (int token) { return delta_weights (weights.at, DELTA_LEFT, token); },
        [] (float &e, float left) { e *= left; });
    state_decay (state, delta_load_float (weights.at + (DELTA_SINCE * CHUNK + CHUNK - 1) * 4));
#pragma unroll
    for (int token = 0; token < CHUNK; token += 16) {
      uint32_t v[F::tiles][4], w[F::tiles][4];
      values_load<F> (v, y_tile, token);
      rows_read (dw, v, scores, token);
      values_operand<F> (v, token, since, w);
      state_add (state, w, z_tile, token);
    }
#pragma unroll
    for (int token = 0; token < CHUNK; token += 16)
      pass_operand (dw, token, beta, weighed[token / 16]);
#pragma unroll
    for (int token = 0; token < CHUNK; token += 16)
      rows_read (dw, weighed[token / 16], inverse, token);
#pragma unroll
    for (int token = 0; token < CHUNK; token += 16) {
      uint32_t w[F::tiles][4];
      pass_operand (dw, token, minus, w);
      state_add (state, w, x_tile, token);
    }
    if (ERRORS)
      pass_store (a, b, dw, y_tile, a.errors_d, chunk);
  }
  pass_end (p, b, state, b.first == 0);
}

template <bool ERRORS>
static cudaError_t
run (const DeltaPass &p, cudaStream_t stream)
{
  typedef Form<64, 16, 4> Narrow;
  typedef Form<128, 16, 4> Wide;

  if (p.a.d <= 64)
    return launch (pass_bwd_kernel<Narrow, ERRORS>, pass_grid<Narrow> (p, true), Narrow::threads,
                   2 * stage_bytes<Narrow> () + PASS_WEIGHT_BYTES, stream, p);
  return launch (pass_bwd_kernel<Wide, ERRORS>, pass_grid<Wide> (p, true), Wide::threads,
                 2 * stage_bytes<Wide> () + PASS_WEIGHT_BYTES, stream, p);
}

cudaError_t
delta_own_bwd (const DeltaPass &p, cudaStream_t stream)
{
  return run<false> (p, stream);
}

cudaError_t
delta_errors_bwd (const DeltaPass &p, cudaStream_t stream)
{
  return run<true> (p, stream);
}
