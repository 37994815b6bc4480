/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the state from before adds to the outputs, o_i += lambda^(i + 1) S^T q_i. A block keeps its columns of the state
 * in registers, as an operand of products, and goes through some of the tokens, up to where the state has decayed to
 * nothing.
 */
#include "kernels/device-linear-fwd.cuh"

#define STAGES 3
#define BLOCKS_AT_ONCE 264 /* of an H100; the cut decides no sum */

template <typename F>
static constexpr size_t
inter_bytes (void)
{
  return STAGES * (F::key_bytes + F::value_bytes) + F::W * F::staged_bytes;
}

/* o as it is, in a tile, to which is added. */
template <typename F>
static __device__ inline void
outputs_add_tile (Outputs<F> &out, uint32_t tile)
{
#pragma unroll
  for (int token = 0; token < CHUNK; token += 16)
#pragma unroll
    for (int i = 0; i < F::tiles; i++) {
      uint32_t old[4];

      fragment_a_transposed (old, tile, token, (int) threadIdx.x / 32 * F::R + 16 * i);
#pragma unroll
      for (int e = 0; e < 4; e++)
#pragma unroll
        for (int half = 0; half < 2; half++)
          out.o[i][token / 8 + e / 2][e % 2 * 2 + half] += bf16_at (old[e], half);
    }
}

/* The same of what no tile takes, from memory. */
template <typename F>
static __device__ inline void
outputs_add_each (const Forward &a, const Place &p, Outputs<F> &out, int64_t first, int tokens)
{
#pragma unroll
  for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
    for (int i = 0; i < F::tiles; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int token = index_of (n, e), column = p.column + column_of<F::R> (i, e);
        if (token < tokens && column < a.c)
          out.o[i][n][e] += load1 (a.o, element_of (a, p, first + token, a.c) + column);
      }
}

template <typename F, int BLOCKS>
static __global__ void
__launch_bounds__ (F::threads, BLOCKS) inter_kernel (Forward a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  uint32_t tiles = (uint32_t) __cvta_generic_to_shared (dynamic);
  uint32_t staged = tiles + STAGES * (F::key_bytes + F::value_bytes), s[F::D / 16][F::tiles][4];
  Place p = place_of (a, F::C);
  float remembered = 150 / p.slope2; /* tokens; no slope: infinite */
  bool is_tile = a.is_wide && a.o.dtype == SP_DEV_BF16;

  if (remembered < (float) (p.first + p.tokens))
    p.tokens = (int) max ((int64_t) remembered - p.first, (int64_t) 0);
  if (p.tokens == 0)
    return;
  int end = (p.tokens + CHUNK - 1) / CHUNK;
  auto start = [&] (int chunk) {
    if (chunk < end) {
      uint32_t to = tiles + chunk % STAGES * (F::key_bytes + F::value_bytes);
      int64_t first = p.first + chunk * CHUNK;
      int rows = p.tokens - chunk * CHUNK;
      load_tile<F::key_row, F::threads> (to, a.queries + element_of (a, p, first, a.d), a.batch * a.heads * a.d, rows,
                                         (int) a.d);
      if (is_tile)
        load_tile<F::value_row, F::threads> (to + F::key_bytes,
                                             (const uint16_t *) a.o.data + element_of (a, p, first, a.c) + p.column,
                                             a.batch * a.heads * a.c, rows, (int) a.c - p.column);
    }
    copy_commit ();
  };

  for (int i = 0; i < STAGES - 1; i++)
    start (i);
  {
    State<F> state;
    state_load (a, p, a.before + state_at (a, p, 0), state);
#pragma unroll
    for (int k = 0; k < F::D / 16; k++)
      state_operand (state, k, s[k]);
  }
  for (int chunk = 0; chunk < end; chunk++) {
    uint32_t z_tile = tiles + chunk % STAGES * (F::key_bytes + F::value_bytes);
    int64_t first = p.first + chunk * CHUNK;
    int tokens = p.tokens - chunk * CHUNK;
    Outputs<F> out = {};

    copy_wait<STAGES - 2> ();
    __syncthreads (); /* the chunk is there, and the one before has been read */
    start (chunk + STAGES - 1);
#pragma unroll
    for (int k = 0; k < F::D / 16; k++)
      outputs_add<F> (out, s[k], z_tile, k);
    outputs_decay (out, p.slope2, (int) first);
    if (is_tile)
      outputs_add_tile (out, z_tile + F::key_bytes);
    else
      outputs_add_each (a, p, out, first, tokens);
    outputs_store (a, p, out, staged, first, tokens);
  }
}

template <typename F, int BLOCKS>
static cudaError_t
run (const Forward &a, cudaStream_t stream)
{
  dim3 grid ((unsigned) div_up (a.c, F::C), (unsigned) (a.batch * a.heads), (unsigned) div_up (a.m, a.segment));

  return launch (inter_kernel<F, BLOCKS>, grid, F::threads, inter_bytes<F> (), stream, a);
}

cudaError_t
sp_dev_linear_inter (SpDevShape s, const float *slopes, SpDevTensor q, const float *state_in, SpDevTensor o,
                     cudaStream_t stream)
{
  if (!linear_is_legal (s, { q }, { o }))
    return cudaErrorInvalidValue;
  if (s.m == 0 || s.batch * s.heads * s.k * s.n == 0)
    return cudaSuccess;
  int64_t chunks = div_up (s.m, CHUNK), blocks = s.batch * s.heads * div_up (s.n, s.n <= 64 ? 64 : 128);
  int64_t parts = max (min (chunks, BLOCKS_AT_ONCE / blocks), (int64_t) 1);
  Forward a = { s.m,      s.batch,
                s.heads,  s.k,
                s.n,      div_up (chunks, parts) * CHUNK,
                slopes,   (const uint16_t *) q.data,
                nullptr,  nullptr,
                o,        is_aligned (o.data, 16),
                state_in, nullptr,
                nullptr,  s.heads,
                nullptr,  {} };

  if (s.k <= 64)
    return s.n <= 64 ? run<Form<64, 16, 4>, 3> (a, stream) : run<Form<64, 32, 4>, 2> (a, stream);
  if (s.k <= 128)
    return s.n <= 64 ? run<Form<128, 16, 4>, 2> (a, stream) : run<Form<128, 32, 4>, 2> (a, stream);
  return s.n <= 64 ? run<Form<256, 16, 4>, 1> (a, stream) : run<Form<256, 16, 8>, 1> (a, stream);
}
