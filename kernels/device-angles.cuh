/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Cosines and sines of rotations, which all heads of a row share. */

#include "kernels/device-private.cuh"

#include <math.h>

#define MOST_ROTATED 512
#define FREQUENCY_BITS 8 /* of half as many frequencies */

/* Frequency i is theta^(-2 i / rotated) turns a position over 2 pi: the product of the powers that i's bits name. An
 * exponential in double costs a thread far more than these. */
struct Frequencies {
  double power[FREQUENCY_BITS];
};

static inline Frequencies
frequencies_of (int64_t rotated, double theta)
{
  Frequencies f;

  f.power[0] = rotated > 0 ? exp2 (-2.0 / (double) rotated * log2 (theta)) : 1;
  for (int b = 1; b < FREQUENCY_BITS; b++)
    f.power[b] = f.power[b - 1] * f.power[b - 1];
  return f;
}

/* In turns. */
static __device__ inline double
frequency (const Frequencies &f, int i)
{
  double product = 0.15915494309189535; /* 1 / (2 pi) */

#pragma unroll
  for (int b = 0; b < FREQUENCY_BITS; b++)
    product *= i >> b & 1 ? f.power[b] : 1;
  return product;
}

/* Of `rows` rows from pos on: [rows,rotated / 2] each, by all threads of a block. Angles need more than fp32: at position
 * 2^20 its last bit is 1/16 of a radian. What is left of whole turns does not. Where the threads are a multiple of the
 * frequencies, each has one. */
static __device__ inline void
angles_of (const int32_t *pos, int rows, int rotated, const Frequencies &f, float *cosine, float *sine)
{
  int half = rotated / 2, known = -1;
  double own = 0;

  for (int i = threadIdx.x; i < rows * half; i += blockDim.x) {
    int r = i / half, of_row = i - r * half;
    if (of_row != known)
      own = frequency (f, of_row);
    known = of_row;
    double turns = pos[r] * own;
    sincospif (2 * (float) (turns - rint (turns)), &sine[i], &cosine[i]);
  }
}
