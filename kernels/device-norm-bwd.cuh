/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the two ways of the norms' backward share. */

#include "kernels/device-private.cuh"

struct NormBwd {
  bool layernorm;
  int64_t m, n;
  float whole;
  SpDevTensor dy, x;
  const float *stat;
  SpDevTensor gain, dr;
  const float *dot;
  SpDevTensor dx;
  bool sums_gain, sums_bias, is_shared; /* is_shared: the sums of rows that are not held */
  float *parts;                         /* [blocks, sums, n] */
};

/* Without sums over rows, where all is bf16 and a row can be held in registers; *ret_is_held says so.
 * device-norm-bwd-rows.cu. */
cudaError_t norm_bwd_rows (const NormBwd &a, int width, cudaStream_t stream, bool *ret_is_held);
