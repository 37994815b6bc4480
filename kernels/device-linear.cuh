/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the kernels of linear attention with a decay share. */

#include "kernels/device-private.cuh"

/* Whether there are kernels for these. */
static inline bool
linear_is_legal (SpDevShape s, std::initializer_list<SpDevTensor> in, std::initializer_list<SpDevTensor> out)
{
  for (SpDevTensor t : in)
    if (is_present (t) && (t.dtype != SP_DEV_BF16 || !is_aligned (t.data, 16)))
      return false;
  return s.k % 8 == 0 && s.n % 8 == 0 && s.k <= 256 && s.n <= 256 && s.batch * s.heads <= 65535 && are_floats (out);
}

/* Whether the card has kernels by warpgroups. */
static inline bool
has_groups (void)
{
#ifdef SP_SM90
  int device, major = 0;

  return cudaGetDevice (&device) == cudaSuccess &&
         cudaDeviceGetAttribute (&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major == 9;
#else
  return false;
#endif
}

/* lambda^distance, of the slope times log2 e */
static __device__ inline float
decay2 (float slope2, int distance)
{
  return exp2f (-slope2 * (float) distance);
}

/* Of eight elements of bf16 each. */
static __device__ inline float
product_of_eight (uint4 a, uint4 b)
{
  const uint32_t x[4] = { a.x, a.y, a.z, a.w }, y[4] = { b.x, b.y, b.z, b.w };
  float sum = 0;

#pragma unroll
  for (int j = 0; j < 4; j++)
    sum += bf16_at (x[j], 0) * bf16_at (y[j], 0) + bf16_at (x[j], 1) * bf16_at (y[j], 1);
  return sum;
}
