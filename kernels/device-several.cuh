/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Several vectors a thread, all of which are fetched before the first is stored: where one is read for each that is
 * written, a thread with a single one leaves the memory bus idle.
 */

#include "kernels/device-private.cuh"

#define SEVERAL 2
#define SEVERAL_THREADS 128

/* f.fetch (i) of what stands for elements i .. i + 7, and f.put (i, that). */
template <typename F>
static __global__ void
__launch_bounds__ (SEVERAL_THREADS) several_kernel (F f, int64_t vectors)
{
  int64_t first = (int64_t) blockIdx.x * SEVERAL * SEVERAL_THREADS + threadIdx.x;
  typename F::Fetched fetched[SEVERAL];

  take_turn ();
#pragma unroll
  for (int p = 0; p < SEVERAL; p++)
    fetched[p] = f.fetch (8 * min (first + p * SEVERAL_THREADS, vectors - 1));
#pragma unroll
  for (int p = 0; p < SEVERAL; p++)
    if (first + p * SEVERAL_THREADS < vectors)
      f.put (8 * (first + p * SEVERAL_THREADS), fetched[p]);
}

/* n elements, which 8 divides. */
template <typename F>
static cudaError_t
each_several (const F &f, int64_t n, cudaStream_t stream)
{
  int64_t blocks = div_up (n / 8, SEVERAL * SEVERAL_THREADS);

  if (n == 0)
    return cudaSuccess;
  if (blocks > INT32_MAX)
    return cudaErrorInvalidValue;
  return launch_early (several_kernel<F>, dim3 ((unsigned) blocks), SEVERAL_THREADS, 0, stream, f, n / 8);
}
