/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A row in registers: a warp has one of up to 2048 elements, a block one of up to 32768, in pieces of 16 bytes, all of
 * which are under way at once.
 */

#include "kernels/device-private.cuh"

#define ROW_WARPS 8 /* of a block that has a row a warp */

/* Threads that share a row, and R pieces of each. */
template <int R, bool WARP, bool HALF> struct Row {
  int64_t row, at; /* at: the row's first element */
  int n, thread, threads;

  __device__ Row (int64_t elements) : n ((int) elements)
  {
    row = WARP ? blockIdx.x * (int64_t) ROW_WARPS + threadIdx.x / 32 : blockIdx.x;
    at = row * elements;
    thread = WARP ? threadIdx.x % 32 : threadIdx.x;
    threads = WARP ? 32 : blockDim.x;
  }

  /* The first element of a piece, and whether it is one. */
  __device__ int first (int r) const
  {
    return (r * threads + thread) * 8;
  }
  __device__ bool has (int r) const
  {
    return first (r) < n;
  }

  __device__ void fetch_all (SpDevTensor t, Raw<8> (&raw)[R]) const
  {
#pragma unroll
    for (int r = 0; r < R; r++)
      if (has (r))
        raw[r] = fetch<8, HALF> (t, at + first (r));
  }

  /* Elements of the row that a warp of its threads has. */
  __device__ int in_warp (int warp) const
  {
    int count = 0;

    if (WARP)
      return n;
    if (n == R * threads * 8)
      return R * 32 * 8;
#pragma unroll
    for (int r = 0; r < R; r++)
      count += min (max (n - (r * threads + warp * 32) * 8, 0), 32 * 8);
    return count;
  }

  __device__ float sum (float x, float *parts) const
  {
    return WARP ? warp_sum (x) : block_sum (x, parts);
  }
};

/* Sums of a row by its warps. */
#define MOST_ROW_WARPS 16

static __device__ inline float
half_warp_sum (float x)
{
#pragma unroll
  for (int offset = MOST_ROW_WARPS / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync (0xffffffffu, x, offset);
  return x;
}

/* Of all threads of the row, given to all, once in a kernel. */
template <bool WARP>
static __device__ inline float
row_total (float x, float2 *parts)
{
  int warp = threadIdx.x % MOST_ROW_WARPS;

  x = warp_sum (x);
  if (WARP)
    return x;
  if (threadIdx.x % 32 == 0)
    parts[threadIdx.x / 32].x = x;
  __syncthreads ();
  return half_warp_sum (warp < (int) blockDim.x / 32 ? parts[warp].x : 0);
}

/* Starts f.start<R, WARP> (blocks, threads) if rows are held. */
template <typename F>
static cudaError_t
hold_row (int64_t m, int64_t n, int width, const F &f, bool *ret_is_held)
{
  int64_t pieces = n / 8;
  dim3 warps ((unsigned) div_up (m, ROW_WARPS)), blocks ((unsigned) m);

  *ret_is_held = width == 8 && pieces <= 512 * 8;
  if (!*ret_is_held)
    return cudaSuccess;
  if (pieces <= 32)
    return f.template start<1, true> (warps, 32 * ROW_WARPS);
  if (pieces <= 64)
    return f.template start<2, true> (warps, 32 * ROW_WARPS);
  if (pieces <= 128)
    return f.template start<4, true> (warps, 32 * ROW_WARPS);
  if (pieces <= 256)
    return f.template start<8, true> (warps, 32 * ROW_WARPS);
  if (pieces <= 512)
    return f.template start<2, false> (blocks, row_threads (n, 16, 256));
  if (pieces <= 1024)
    return f.template start<4, false> (blocks, row_threads (n, 32, 256));
  return f.template start<8, false> (blocks, row_threads (n, 64, 512));
}
