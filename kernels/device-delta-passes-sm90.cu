/* SPDX-License-Identifier: Apache-2.0 */
/* The delta rule's passes by warpgroups of compute capability 9.0. */
#define DELTA_GROUPS
#include "kernels/device-delta-bwd.cuh"
#include "kernels/device-delta-fwd.cuh"

cudaError_t
delta_own_sm90 (const DeltaPass &p, cudaStream_t stream)
{
  return pass_run<ByGroup, PASS_OWN, 3, 3> (p, stream);
}

cudaError_t
delta_outputs_sm90 (const DeltaPass &p, cudaStream_t stream)
{
  return pass_run<ByGroup, PASS_OUTPUTS, 3, 2> (p, stream);
}

cudaError_t
delta_own_bwd_sm90 (const DeltaPass &p, cudaStream_t stream)
{
  return pass_bwd_run<ByGroup, false> (p, stream);
}
