/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention's backward by warpgroups, with a slope a head. */
#include "kernels/device-linear-bwd-kernel.cuh"

size_t
linear_bwd_sm90_scratch (SpDevShape s)
{
  return chains_bytes (s);
}

cudaError_t
linear_bwd_sm90 (const LinearBwd &x, int multiprocessors, cudaStream_t stream)
{
  Bwd a;

  if (!make_bwd (x, 1, &a))
    return cudaErrorInvalidValue;
  return run_bwd<SlopeWeights> (a, multiprocessors, stream);
}
