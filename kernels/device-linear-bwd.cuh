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

/* What a decay a head that follows the data has beside them. */
struct HeadBwd {
  const float *gates;
  SpDevTensor beta, dbeta;
  float *dgates;
};

/* By warps: any card. */
size_t linear_bwd_sm80_scratch (SpDevShape shape);
cudaError_t linear_bwd_sm80 (const LinearBwd &x, cudaStream_t stream);

/* By warpgroups: compute capability 9.0; k and n up to 128. */
#ifdef SP_SM90 /* else it was not built */
size_t linear_bwd_sm90_scratch (SpDevShape shape);
cudaError_t linear_bwd_sm90 (const LinearBwd &x, int multiprocessors, cudaStream_t stream);
size_t recurrent_bwd_sm90_scratch (const SpDevRecurrence &r);
cudaError_t recurrent_bwd_sm90 (const SpDevRecurrence &r, const LinearBwd &x, const HeadBwd &h, cudaStream_t stream);

static inline bool
is_warpgroup_shape (SpDevShape s)
{
  return s.k <= 128 && s.n <= 128 && s.m <= INT32_MAX - 512 && s.m * s.batch * s.heads <= (int64_t) INT32_MAX * 64;
}

static inline bool
is_warpgroup_output (SpDevTensor t)
{
  return t.dtype == SP_DEV_BF16 && is_aligned (t.data, 16);
}
#endif
