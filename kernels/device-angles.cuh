/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Cosines and sines of rotations, which all heads of a row share. */

#include "kernels/device-private.cuh"

/* Of `rows` rows from pos on: [rows,rotated / 2] each, by all threads of a block. Angles need more than fp32: at position
 * 2^20 its last bit is 1/16 of a radian. What is left of whole turns does not. Where the threads are a multiple of the
 * frequencies, each has one. */
static __device__ inline void
angles_of (const int32_t *pos, int rows, int rotated, double log2_theta, float *cosine, float *sine)
{
  const double turn = 0.15915494309189535; /* 1 / (2 pi) */
  int half = rotated / 2, known = -1;
  double frequency = 0;

  for (int i = threadIdx.x; i < rows * half; i += blockDim.x) {
    int r = i / half, of_row = i - r * half;
    if (of_row != known)
      frequency = turn * exp2 (-2.0 * of_row / rotated * log2_theta);
    known = of_row;
    double turns = pos[r] * frequency;
    sincospif (2 * (float) (turns - rint (turns)), &sine[i], &cosine[i]);
  }
}
