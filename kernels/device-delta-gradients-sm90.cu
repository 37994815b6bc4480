/* SPDX-License-Identifier: Apache-2.0 */
/* The delta rule's gradients by warpgroups of compute capability 9.0, of keys of more than 64 features. */
#define DELTA_GROUPS
#include "kernels/device-delta-gradients.cuh"

cudaError_t
delta_gradients_sm90 (const DeltaGradients &g, cudaStream_t stream)
{
  dim3 grid ((unsigned) g.a.chunks, (unsigned) (g.a.batch * g.a.heads));

  return launch (gradient_kernel<SumsByGroups, 128>, grid, THREADS, Tiles<128>::bytes, stream, g);
}
