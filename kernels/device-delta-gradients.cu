/* SPDX-License-Identifier: Apache-2.0 */
/* The delta rule's gradients by warps, and which of the two ways a card and a shape take. */
#include "kernels/device-delta-gradients.cuh"

cudaError_t
delta_gradients (const DeltaGradients &g, cudaStream_t stream)
{
  dim3 grid ((unsigned) g.a.chunks, (unsigned) (g.a.batch * g.a.heads));

  if (g.a.d <= 64)
    return launch (gradient_kernel<SumsByWarps, 64>, grid, THREADS, Tiles<64>::bytes, stream, g);
#ifdef SP_SM90
  if (delta_has_groups ())
    return delta_gradients_sm90 (g, stream);
#endif
  return launch (gradient_kernel<SumsByWarps, 128>, grid, THREADS, Tiles<128>::bytes, stream, g);
}
