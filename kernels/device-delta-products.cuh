/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The products of the delta rule's passes, by a block of four warps that have 16 columns each. Two ways of the same sums:
 * by warps, on any card, whose operands come from shared memory by way of registers, and by a warpgroup of compute
 * capability 9.0 (where DELTA_GROUPS is defined before this), whose operands tensor cores fetch themselves. Operands in
 * registers are of 16 tokens or features each, and those of all 64 tokens are there before a sum begins.
 */

#include "kernels/device-delta-passes.cuh"
#ifdef DELTA_GROUPS
#include "kernels/device-wgmma.cuh"
#endif

#define PARTS (CHUNK / 16) /* operands of 64 tokens */

struct ByWarps {
  /* After copies to shared memory have come, before the block's barrier. */
  static __device__ inline void ready (void)
  {
  }

  /* x^T = S^T x_tile^T and, of a second tile, out^T; keep (operand, k) of each 16 features of the rounded state. */
  template <typename F, bool TWO, typename K>
  static __device__ inline void state_read (State<F> &state, Outputs<F> &x, uint32_t x_tile, Outputs<F> &out,
                                            uint32_t z_tile, K keep)
  {
#pragma unroll
    for (int k = 0; k < F::D / 16; k++) {
      uint32_t s[F::tiles][4];

      state_operand (state, k, s);
      outputs_add<F> (x, s, x_tile, k);
      if (TWO)
        outputs_add<F> (out, s, z_tile, k);
      keep (s, k);
    }
  }

  /* x^T += v^T tile^T, of a lower triangular tile. */
  template <typename F>
  static __device__ inline void by_rows (Outputs<F> &x, const uint32_t (&v)[PARTS][F::tiles][4], uint32_t tile)
  {
#pragma unroll
    for (int i = 0; i < PARTS; i++)
      scores_read (x, v[i], tile, 16 * i);
  }

  /* x^T += v^T tile, likewise. */
  template <typename F>
  static __device__ inline void by_columns (Outputs<F> &x, const uint32_t (&v)[PARTS][F::tiles][4], uint32_t tile)
  {
#pragma unroll
    for (int i = 0; i < PARTS; i++)
#pragma unroll
      for (int n = 0; n < 2 * i + 2; n += 2) {
        uint32_t b[4];

        fragment_b (b, tile, 16 * i, 8 * n);
#pragma unroll
        for (int j = 0; j < F::tiles; j++) {
          mma (x.o[j][n], v[i][j], b[0], b[1]);
          mma (x.o[j][n + 1], v[i][j], b[2], b[3]);
        }
      }
  }

  /* S^T += v^T tile. */
  template <typename F>
  static __device__ inline void state_add (State<F> &state, const uint32_t (&v)[PARTS][F::tiles][4], uint32_t tile)
  {
#pragma unroll
    for (int i = 0; i < PARTS; i++)
      ::state_add (state, v[i], tile, 16 * i);
  }
};

#ifdef DELTA_GROUPS
struct ByGroup {
  static __device__ inline void ready (void)
  {
    fence_async ();
  }

  template <int N> static __device__ inline void hold (const uint32_t (&v)[N][1][4])
  {
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        asm volatile("" ::"r"(v[i][0][e]) : "memory");
  }

  template <typename F, bool TWO, typename K>
  static __device__ inline void state_read (State<F> &state, Outputs<F> &x, uint32_t x_tile, Outputs<F> &out,
                                            uint32_t z_tile, K keep)
  {
    Operand of_x = operand (x_tile, PANEL), of_z = operand (z_tile, PANEL);
    uint32_t s[F::D / 16][1][4];

#pragma unroll
    for (int k = 0; k < F::D / 16; k++)
      state_operand (state, k, s[k]);
    hold (s);
    wgmma_fence ();
#pragma unroll
    for (int k = 0; k < F::D / 16; k++)
      wgmma<false> (x.o[0], s[k][0], descriptor (of_x, k / 4 * PANEL + k % 4 * 32), k > 0);
#pragma unroll
    for (int k = 0; k < F::D / 16 && TWO; k++)
      wgmma<false> (out.o[0], s[k][0], descriptor (of_z, k / 4 * PANEL + k % 4 * 32), k > 0);
    wgmma_commit ();
#pragma unroll
    for (int k = 0; k < F::D / 16; k++)
      keep (s[k], k);
    wgmma_wait<0> ();
    wgmma_hold (x.o[0]);
    if (TWO)
      wgmma_hold (out.o[0]);
    hold (s);
  }

  template <bool COLUMNS, int N>
  static __device__ inline void add (float (&d)[N][4], const uint32_t (&v)[PARTS][1][4], uint32_t tile)
  {
    Operand of = operand (tile, PANEL);

    wgmma_hold (d);
    hold (v);
    wgmma_fence ();
#pragma unroll
    for (int i = 0; i < PARTS; i++)
      wgmma<COLUMNS> (d, v[i][0], descriptor (of, COLUMNS ? 16 * i * 128 : 32 * i), 1);
    wgmma_commit ();
    wgmma_wait<0> ();
    wgmma_hold (d);
    hold (v);
  }

  template <typename F>
  static __device__ inline void by_rows (Outputs<F> &x, const uint32_t (&v)[PARTS][F::tiles][4], uint32_t tile)
  {
    add<false> (x.o[0], v, tile);
  }

  template <typename F>
  static __device__ inline void by_columns (Outputs<F> &x, const uint32_t (&v)[PARTS][F::tiles][4], uint32_t tile)
  {
    add<true> (x.o[0], v, tile);
  }

  template <typename F>
  static __device__ inline void state_add (State<F> &state, const uint32_t (&v)[PARTS][F::tiles][4], uint32_t tile)
  {
    add<true> (state.s[0], v, tile);
  }
};
#endif

/* Until what a chunk reads last is there; of the next chunk, if there is one, two groups of copies may be under way. */
template <typename P>
static __device__ inline void
pass_wait_last (bool has_next)
{
  if (has_next)
    copy_wait<2> ();
  else
    copy_wait<0> ();
  P::ready ();
  __syncthreads ();
}
