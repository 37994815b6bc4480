/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the delta rule's gradients are made of and where they go, of a chunk and head: what the passes kept, by slices of
 * the values, through shared memory. */

#include "kernels/device-delta-sums.cuh"

/* Tiles in shared memory. What a slice needs is loaded anew for each of the sums over slices, in steps: of one three
 * tiles of values, of the others one and one of the state. Two steps have room, so that one is loaded while one is
 * worked on. */
template <typename G> struct Tiles {
  static constexpr int row = 2 * G::D, rows_bytes = CHUNK * row, rows_of_step = SQUARE + rows_bytes,
                       step_bytes = 3 * SQUARE > rows_of_step ? 3 * SQUARE : rows_of_step;
  static constexpr int bytes = 2 * rows_bytes + 2 * step_bytes + 2 * SQUARE;
  uint32_t q, keys, steps, f, e;

  __device__ explicit Tiles (uint32_t at)
  {
    q = at;
    keys = q + rows_bytes;
    steps = keys + rows_bytes;
    f = steps + 2 * step_bytes;
    e = f + SQUARE;
  }
};

/* --- loads -------------------------------------------------------------------------------------------------------- */

template <typename G>
static __device__ inline void
load_values (const Delta &a, const Spot &s, uint32_t tile, const uint16_t *from, int slice)
{
  load_tile<2 * SLICE, G::threads> (tile, from + s.head.value + s.first * s.head.value_stride + slice,
                                    s.head.value_stride, s.rows, (int) a.c - slice);
}

template <typename G>
static __device__ inline void
load_state (const Delta &a, const Spot &s, uint32_t tile, const uint16_t *from, int slice)
{
  load_tile<2 * G::D, G::threads> (tile, from + (s.chunk * a.c + slice) * G::D, G::D, (int) a.c - slice, G::D);
}

/* Queries and keys of the chunk; who calls commits them. */
template <typename G>
static __device__ inline void
load_rows (const Delta &a, const Spot &s, const Tiles<G> &tiles)
{
  int64_t at = s.head.key + s.first * s.head.key_stride;

  load_tile<2 * G::D, G::threads> (tiles.q, a.q + at, s.head.key_stride, s.rows, (int) a.d);
  load_tile<2 * G::D, G::threads> (tiles.keys, a.keys + at, s.head.key_stride, s.rows, (int) a.d);
}

/* The sums over slices, one behind the other: of do u and r u, of S do, then of S r and dS' u in turn. */
typedef enum { STEP_SQUARES, STEP_DQ, STEP_READ, STEP_WRITTEN } StepKind;

template <typename G> struct Steps {
  const Delta &a;
  const Spot &s;
  const Tiles<G> &tiles;
  int slices, next; /* next: step that is loaded */

  __device__ Steps (const Delta &a_, const Spot &s_, const Tiles<G> &tiles_) : a (a_), s (s_), tiles (tiles_)
  {
    slices = (int) ((a.c + SLICE - 1) / SLICE);
    next = 0;
    start ();
  }

  __device__ StepKind kind (int step) const
  {
    return step < slices ? STEP_SQUARES : step < 2 * slices ? STEP_DQ : step % 2 == 0 ? STEP_READ : STEP_WRITTEN;
  }

  __device__ void start ()
  {
    StepKind k = kind (next);
    int slice = (k == STEP_SQUARES ? next : k == STEP_DQ ? next - slices : next / 2 - slices) * SLICE;
    uint32_t to = tiles.steps + next % 2 * Tiles<G>::step_bytes;
    if (next < 4 * slices) {
      load_values<G> (a, s, to, k == STEP_READ ? a.errors_d : k == STEP_WRITTEN ? a.errors : a.d_o, slice);
      if (k == STEP_SQUARES) {
        load_values<G> (a, s, to + SQUARE, a.errors, slice);
        load_values<G> (a, s, to + 2 * SQUARE, a.errors_d, slice);
      } else
        load_state<G> (a, s, to + SQUARE, k == STEP_WRITTEN ? a.states_d : a.states, slice);
    }
    copy_commit ();
    next++;
  }

  /* Where the next step's tiles are; those of the one before are given up. */
  __device__ uint32_t advance ()
  {
    uint32_t at = tiles.steps + (next + 1) % 2 * Tiles<G>::step_bytes;
    copy_wait<0> ();
    __syncthreads ();
    start ();
    return at;
  }
};

/* --- what goes to memory ------------------------------------------------------------------------------------------ */

/* dvalues = beta r, of a slice. */
template <typename G>
static __device__ inline void
store_dvalues (const Delta &a, const Spot &s, uint32_t tile, const float *weights, int slice, uint16_t *dvalues)
{
  for (int i = threadIdx.x; i < CHUNK * SLICE / 8; i += G::threads) {
    int row = i / 8, piece = i % 8;
    if (row < s.rows && slice + 8 * piece < a.c) {
      uint4 w = load_words (tile + swizzled (row, piece));
      float beta = weights[DELTA_BETA * CHUNK + row];
      uint32_t words[4] = { w.x, w.y, w.z, w.w };
#pragma unroll
      for (int j = 0; j < 4; j++)
        words[j] = bf16_pair (beta * bf16_at (words[j], 0), beta * bf16_at (words[j], 1));
      *(uint4 *) (dvalues + s.head.value + (s.first + row) * s.head.value_stride + slice + 8 * piece) =
          make_uint4 (words[0], words[1], words[2], words[3]);
    }
  }
}

/* F, E and dbeta, read after more barriers; dvalues. */
template <typename G>
static __device__ inline void
make_squares (const DeltaGradients &g, const Spot &s, Steps<G> &steps, const float *weights, float *dbeta)
{
  Squares<G> squares = {};

  for (int slice = 0; slice < g.a.c; slice += SLICE) {
    uint32_t d_o = steps.advance (), errors = d_o + SQUARE, errors_d = errors + SQUARE;
    add_squares (s, squares, d_o, errors_d, errors);
    store_dvalues<G> (g.a, s, errors_d, weights, slice, g.dvalues);
  }
  store_squares (s, squares, weights, steps.tiles.f, steps.tiles.e, dbeta);
}

/* Of value heads that share a key, in fp32, for each. */
template <typename G>
static __device__ inline void
store_sums (const Delta &a, const Spot &s, const RowSums<G> &sums, SpDevTensor out)
{
  bool is_shared = out.dtype == SP_DEV_FP32;
  int64_t stride = is_shared ? a.batch * a.heads * a.d : s.head.key_stride;
  int64_t at = (is_shared ? s.head.scalar * a.d : s.head.key) + s.first * stride;
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
  for (int n = 0; n < G::blocks; n++)
#pragma unroll
    for (int below = 0; below < 2; below++) {
      int row = 16 * s.i + g + 8 * below, column = s.part * G::own + 8 * n + 2 * t;
      if (row < s.rows && column < a.d)
        store_pair (out, at + row * stride + column, sums.x[n][2 * below], sums.x[n][2 * below + 1]);
    }
}

static __device__ inline void
store_dbeta (const DeltaGradients &g, const Spot &s, const float *dbeta)
{
  if (g.dbeta.data != nullptr && (int) threadIdx.x < s.rows)
    store1 (g.dbeta, (s.first + threadIdx.x) * g.a.batch * g.a.heads + s.head.scalar, dbeta[threadIdx.x]);
}
