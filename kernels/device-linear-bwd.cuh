/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The ways that linear attention's backward goes: see device-linear-bwd.cu. */

#include "kernels/device-private.cuh"

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

/* Whether there are kernels for these. */
static inline bool
linear_bwd_is_legal (SpDevShape s, std::initializer_list<SpDevTensor> in, std::initializer_list<SpDevTensor> out)
{
  for (SpDevTensor t : in)
    if (is_present (t) && (t.dtype != SP_DEV_BF16 || !is_aligned (t.data, 16)))
      return false;
  return s.k % 8 == 0 && s.n % 8 == 0 && s.k <= 256 && s.n <= 256 && s.batch * s.heads <= 65535 && are_floats (out);
}

/* By warps: any card. */
size_t linear_bwd_sm80_scratch (SpDevShape shape);
cudaError_t linear_bwd_sm80 (const LinearBwd &x, cudaStream_t stream);

/* By warpgroups: compute capability 9.0; k and n up to 128. */
#ifdef SP_SM90 /* else it was not built */
size_t linear_bwd_sm90_scratch (SpDevShape shape);
cudaError_t linear_bwd_sm90 (const LinearBwd &x, int multiprocessors, cudaStream_t stream);
#endif
