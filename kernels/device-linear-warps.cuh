/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The state of linear attention in the registers of warps, turned: of S^T[C,D] each has R = 16 F::tiles of the C columns
 * of the values, in fp32. */

template <typename F> struct State {
  float s[F::tiles][F::D / 8][4];
};

/* Column, and feature of keys or token, of element e of the n-th 8 of a warp's i-th 16 columns. */
template <int R>
static __device__ inline int
column_of (int i, int e)
{
  return (int) threadIdx.x / 32 * R + i * 16 + (int) threadIdx.x % 32 / 4 + e / 2 * 8;
}

static __device__ inline int
index_of (int n, int e)
{
  return n * 8 + (int) threadIdx.x % 4 * 2 + e % 2;
}

/* g (element, feature of keys, column) */
template <typename F, typename G>
static __device__ inline void
state_each (State<F> &state, G g)
{
#pragma unroll
  for (int i = 0; i < F::tiles; i++)
#pragma unroll
    for (int n = 0; n < F::D / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        g (state.s[i][n][e], index_of (n, e), column_of<F::R> (i, e));
}

template <typename F>
static __device__ inline void
state_decay (State<F> &state, float factor)
{
  state_each (state, [&] (float &s, int, int) { s *= factor; });
}

/* Over the four lanes that share a row of an accumulator. */
static __device__ inline float
quad_sum (float x)
{
  x += __shfl_xor_sync (0xffffffffu, x, 1);
  return x + __shfl_xor_sync (0xffffffffu, x, 2);
}

/* Over the eight rows. */
static __device__ inline float
rows_sum (float x)
{
#pragma unroll
  for (int offset = 4; offset < 32; offset *= 2)
    x += __shfl_xor_sync (0xffffffffu, x, offset);
  return x;
}
