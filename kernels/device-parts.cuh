/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sums of which each block has left a part: the second of two passes. The first calls release_next. */

#include "kernels/device-private.cuh"

#define PARTS_ROWS 32 /* that a block goes through at once: one a warp */

/* Up to two sums, as many batches of each. */
struct AddParts {
  const float *parts; /* [batch, blocks, stride] */
  int64_t blocks, stride;
  int64_t n[2];
  SpDevTensor out[2]; /* [batch,n]; may be absent */
  int64_t first[2];   /* column of each in the parts */
};

/* out += sum over blocks: 32 columns a block, the parts of a column by warps, and then the warps' sums in their order. */
static __global__ void __launch_bounds__ (32 * PARTS_ROWS) add_parts_kernel (AddParts a)
{
  __shared__ float sums[PARTS_ROWS][32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t j = blockIdx.x * 32ll + lane, n = blockIdx.y == 0 ? a.n[0] : a.n[1];
  const float *from =
      a.parts + (int64_t) blockIdx.z * a.blocks * a.stride + (blockIdx.y == 0 ? a.first[0] : a.first[1]) + j;
  float sum = 0;

  if (blockIdx.x * 32ll >= n)
    return;
  wait_for_grid ();
  if (j < n)
#pragma unroll 8
    for (int64_t i = warp; i < a.blocks; i += PARTS_ROWS)
      sum += from[i * a.stride];
  sums[warp][lane] = sum;
  __syncthreads ();
  if (warp == 0 && j < n) {
    SpDevTensor out = blockIdx.y == 0 ? a.out[0] : a.out[1];
    int64_t to = (int64_t) blockIdx.z * n + j;
    for (int w = 1; w < PARTS_ROWS; w++)
      sum += sums[w][lane];
    if (out.data != nullptr)
      store1 (out, to, load1 (out, to) + sum);
  }
}

static cudaError_t
add_parts (const AddParts &a, int n_sums, int64_t batch, cudaStream_t stream)
{
  return launch_early (add_parts_kernel,
                       dim3 ((unsigned) div_up (n_sums > 1 && a.n[1] > a.n[0] ? a.n[1] : a.n[0], 32), (unsigned) n_sums,
                             (unsigned) batch),
                       32 * PARTS_ROWS, 0, stream, a);
}
