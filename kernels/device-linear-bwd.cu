/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of linear attention with a decay: which of two ways a card and a shape take. */
#include "kernels/device-linear-bwd.cuh"

size_t
sp_dev_linear_bwd_scratch_bytes (SpDevShape shape)
{
  size_t by_warps = linear_bwd_sm80_scratch (shape), by_groups = 0;

#ifdef SP_SM90
  if (is_warpgroup_shape (shape))
    by_groups = linear_bwd_sm90_scratch (shape);
#endif
  return by_warps > by_groups ? by_warps : by_groups;
}

cudaError_t
sp_dev_linear_bwd (SpDevShape shape, const float *slopes, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
                   SpDevTensor d_o, const float *state_in, const float *dstate_out, SpDevTensor dq, SpDevTensor dkeys,
                   SpDevTensor dvalues, float *dstate_in, void *scratch, cudaStream_t stream)
{
  LinearBwd x = { shape, slopes, q, keys, values, d_o, state_in, dstate_out, dq, dkeys, dvalues, dstate_in, scratch };
  int device, major = 0, multiprocessors = 0;
  cudaError_t error;

  if (!linear_is_legal (shape, { q, keys, values, d_o }, { dq, dkeys, dvalues }))
    return cudaErrorInvalidValue;
  if (shape.m == 0 || shape.batch * shape.heads * shape.k * shape.n == 0 || (!is_present (dq) && dstate_in == nullptr))
    return cudaSuccess;
  error = cudaGetDevice (&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute (&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute (&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess)
    return error;
#ifdef SP_SM90
  if (major == 9 && is_warpgroup_shape (shape) &&
      (!is_present (dq) || (is_warpgroup_output (dq) && is_warpgroup_output (dkeys) && is_warpgroup_output (dvalues))))
    return linear_bwd_sm90 (x, multiprocessors, stream);
#endif
  return linear_bwd_sm80 (x, stream);
}

cudaError_t
sp_dev_linear_local_bwd (SpDevShape shape, const float *slopes, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
                         SpDevTensor d_o, SpDevTensor dq, SpDevTensor dkeys, SpDevTensor dvalues, float *dstate,
                         void *scratch, cudaStream_t stream)
{
  return sp_dev_linear_bwd (shape, slopes, q, keys, values, d_o, nullptr, nullptr, dq, dkeys, dvalues, dstate, scratch,
                            stream);
}
