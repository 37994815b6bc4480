/* SPDX-License-Identifier: Apache-2.0 */
/* The delta rule's passes by warps, and which of the two ways a card takes: what keeps each chunk's state waits for
 * memory, and is no quicker by warpgroups. */
#include "kernels/device-delta-bwd.cuh"
#include "kernels/device-delta-fwd.cuh"

#ifdef SP_SM90
#define BY_GROUP(name)                                                                                                 \
  if (delta_has_groups ())                                                                                             \
  return name##_sm90 (p, stream)
#else
#define BY_GROUP(name)
#endif

cudaError_t
delta_own (const DeltaPass &p, cudaStream_t stream)
{
  BY_GROUP (delta_own);
  return pass_run<ByWarps, PASS_OWN, 2, 2> (p, stream);
}

cudaError_t
delta_outputs (const DeltaPass &p, cudaStream_t stream)
{
  BY_GROUP (delta_outputs);
  return pass_run<ByWarps, PASS_OUTPUTS, 2, 2> (p, stream);
}

cudaError_t
delta_errors (const DeltaPass &p, cudaStream_t stream)
{
  return pass_run<ByWarps, PASS_ERRORS, 2, 2> (p, stream);
}

cudaError_t
delta_own_bwd (const DeltaPass &p, cudaStream_t stream)
{
  BY_GROUP (delta_own_bwd);
  return pass_bwd_run<ByWarps, false> (p, stream);
}

cudaError_t
delta_errors_bwd (const DeltaPass &p, cudaStream_t stream)
{
  return pass_bwd_run<ByWarps, true> (p, stream);
}
