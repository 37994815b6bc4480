/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The ways that linear attention's backward goes: see device-linear-bwd.cu. */

#include "kernels/device-linear.cuh"

/* Operands as sp_dev_linear_bwd has them. */
struct LinearBwd {
  SpDevShape shape;
  const float *slopes;
  SpDevTensor q, keys, values, d_o;
  const float *state_in, *dstate_out;
  SpDevTensor dq, dkeys, dvalues;
  float *dstate_in;
  void *scratch;
};

/* By warps: any card. */
size_t linear_bwd_sm80_scratch (SpDevShape shape);
cudaError_t linear_bwd_sm80 (const LinearBwd &x, cudaStream_t stream);

/* By warpgroups: compute capability 9.0; k and n up to 128. */
#ifdef SP_SM90 /* else it was not built */
size_t linear_bwd_sm90_scratch (SpDevShape shape);
cudaError_t linear_bwd_sm90 (const LinearBwd &x, int multiprocessors, cudaStream_t stream);
#endif
