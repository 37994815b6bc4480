/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention's states between ranks: the chain. */
#include "kernels/device-private.cuh"

/* lambda^power */
static __device__ inline float
decay (float slope, int64_t power)
{
  return exp2f (-slope * LOG2_E * (float) power);
}

/* By elements of a state [batch,heads,size]. */
struct Prefix {
  int64_t m, heads, size, all, places, steps;
  bool reverse;
  const float *slopes, *states;
  float *out;

  template <int V> __device__ void at (int64_t i) const
  {
    float factor = decay (slopes[i / size % heads], m), sum = 0;

    for (int64_t step = 0; step < steps; step++)
      sum = factor * sum + states[(reverse ? places - 1 - step : step) * all + i];
    out[i] = sum;
  }
};

cudaError_t
sp_dev_state_prefix (SpDevShape shape, const float *slopes, int64_t places, int64_t place, bool reverse,
                     const float *states, float *out, cudaStream_t stream)
{
  int64_t size = shape.k * shape.n, all = shape.batch * shape.heads * size;

  if (place < 0 || place >= places)
    return cudaErrorInvalidValue;
  return each (Prefix{ shape.m, shape.heads, size, all, places, reverse ? places - 1 - place : place, reverse, slopes,
                       states, out },
               all, 1, stream);
}

struct Update {
  int64_t m, heads, size;
  const float *slopes, *in, *own;
  float *out;

  template <int V> __device__ void at (int64_t i) const
  {
    out[i] = (in != nullptr ? decay (slopes[i / size % heads], m) * in[i] : 0) + own[i];
  }
};

cudaError_t
sp_dev_state_update (SpDevShape shape, const float *slopes, const float *in, const float *own, float *out,
                     cudaStream_t stream)
{
  int64_t size = shape.k * shape.n;

  return each (Update{ shape.m, shape.heads, size, slopes, in, own, out }, shape.batch * shape.heads * size, 1, stream);
}
