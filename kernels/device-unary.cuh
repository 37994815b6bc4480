/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Functions of one number, by the special function unit: some roundings of fp32 in error, relative to the largest of what
 * they return, and no branch for arguments that do not occur.
 */

#include "kernels/device-private.cuh"

/* To a unit in the last place; 0 for what is beyond 2^126. */
static __device__ inline float
reciprocal_fast (float x)
{
  float y;

  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

static __device__ inline float
rsqrt_fast (float x)
{
  float y;

  asm("rsqrt.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

static __device__ inline float
sigmoid (float x)
{
  return reciprocal_fast (1 + exp2_fast (-LOG2_E * x));
}

static __device__ inline float
silu (float x)
{
  return x * sigmoid (x);
}

/* Of two, with one reciprocal, of the product. */
static __device__ inline void
sigmoids (float x, float y, float *ret_x, float *ret_y)
{
  const float most = 60; /* binary orders: so that the product is no infinity; what is beyond is 1e-18 */
  float a = 1 + exp2_fast (fminf (-LOG2_E * x, most)), b = 1 + exp2_fast (fminf (-LOG2_E * y, most));
  float both = reciprocal_fast (a * b);

  *ret_x = both * b;
  *ret_y = both * a;
}

static __device__ inline float
silu_slope (float x)
{
  float s = sigmoid (x);

  return s * (1 + x * (1 - s));
}

/* log (1 + u), u from 0 to 1, to some 2^-22 of itself: the series of 2 atanh (u / (2 + u)). The unit's own logarithm has lost
 * what little u adds to 1. */
static __device__ inline float
log_of_1_and (float u)
{
  float s = u * reciprocal_fast (2 + u), t = s * s;

  return 2 * s * (1 + t * (1 / 3.f + t * (1 / 5.f + t * (1 / 7.f + t * (1 / 9.f + t * (1 / 11.f))))));
}
