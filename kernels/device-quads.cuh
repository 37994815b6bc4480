/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Four elements a thread, where fp32 is written: of eight a warp's store would leave every second 16 bytes to the next
 * one, which costs a tenth of the rate.
 */

#include "kernels/device-private.cuh"

template <> struct Raw<4> {
  uint4 a;
};

template <>
__device__ inline Raw<4>
fetch<4, false> (SpDevTensor t, int64_t i)
{
  Raw<4> raw;

  if (t.dtype == SP_DEV_FP32)
    raw.a = *(const uint4 *) ((const float *) t.data + i);
  else {
    uint2 words = *(const uint2 *) ((const uint16_t *) t.data + i);
    raw.a = make_uint4 (words.x << 16, words.x & 0xffff0000u, words.y << 16, words.y & 0xffff0000u);
  }
  return raw;
}

template <>
__device__ inline Vec<4>
floats_of<4, false> (SpDevTensor, const Raw<4> &raw)
{
  return { { __uint_as_float (raw.a.x), __uint_as_float (raw.a.y), __uint_as_float (raw.a.z),
             __uint_as_float (raw.a.w) } };
}

template <>
__device__ inline void
store<4, false> (SpDevTensor t, int64_t i, Vec<4> v)
{
  if (t.dtype == SP_DEV_FP32)
    *(float4 *) ((float *) t.data + i) = make_float4 (v.x[0], v.x[1], v.x[2], v.x[3]);
  else
    *(uint2 *) ((uint16_t *) t.data + i) = make_uint2 (bf16_pair (v.x[0], v.x[1]), bf16_pair (v.x[2], v.x[3]));
}

/* As each, of n elements that 8 divides. */
template <typename F>
static cudaError_t
each_four (const F &f, int64_t n, cudaStream_t stream)
{
  int64_t blocks = div_up (n / 4, EACH_THREADS);

  if (n == 0)
    return cudaSuccess;
  return launch_early (each_kernel<4, F>, dim3 ((unsigned) (blocks > INT32_MAX ? INT32_MAX : blocks)), EACH_THREADS, 0,
                       stream, f, n / 4);
}
