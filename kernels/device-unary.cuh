/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Functions of one number, by the special function unit: some roundings of fp32 in error, relative to the largest of what
 * they return, and no branch for arguments that do not occur.
 */

#include "kernels/device-private.cuh"

#define LN_2 0.69314718055994531f

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

static __device__ inline float
silu_slope (float x)
{
  float s = sigmoid (x);

  return s * (1 + x * (1 - s));
}

/* log (1 + u), u from 0 to 1. The logarithm of what is hardly more than 1 has lost u; there its series serves. */
static __device__ inline float
log_of_1_and (float u)
{
  float log2, series = u * (1 - u * (1 / 2.f - u * (1 / 3.f - u * (1 / 4.f - u * (1 / 5.f - u * (1 / 6.f))))));

  asm("lg2.approx.ftz.f32 %0, %1;\n" : "=f"(log2) : "f"(1 + u));
  return u < 0.125f ? series : LN_2 * log2;
}
