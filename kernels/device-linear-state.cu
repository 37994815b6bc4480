/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention's states between ranks: the chain, by a fixed decay or by the tokens' own. */
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

/* --- decays that follow the data ---------------------------------------------------------------------------------- */

/* Of what a rank passes on: its own state [rows,n], rows of all heads' features, then T, one for so many rows. */
struct Parts {
  int64_t n, all, each, rows, places, steps; /* each: floats of a part */
  bool reverse;
  const float *parts;
  float *out;

  template <int V> __device__ void at (int64_t i) const
  {
    float sum = 0;

    for (int64_t step = 0; step < steps; step++) {
      const float *part = parts + (reverse ? places - 1 - step : step) * each;
      sum = part[all + i / n / rows] * sum + part[i];
    }
    out[i] = sum;
  }
};

static int64_t
decay_rows (const SpDevRecurrence *r)
{
  return r->decay == SP_DEV_DECAY_HEAD ? r->shape.k : 1;
}

cudaError_t
sp_dev_transfer_prefix (const SpDevRecurrence *r, int64_t places, int64_t place, bool reverse, const float *parts,
                        float *out, cudaStream_t stream)
{
  SpDevShape s = r->shape;
  int64_t rows = decay_rows (r), features = s.batch * s.heads * s.k, all = features * s.n;

  if (place < 0 || place >= places)
    return cudaErrorInvalidValue;
  return each (
      Parts{ s.n, all, all + features / rows, rows, places, reverse ? places - 1 - place : place, reverse, parts, out },
      all, 1, stream);
}

struct Moved {
  int64_t n, rows;
  const float *transfer, *in, *own;
  float *out;

  template <int V> __device__ void at (int64_t i) const
  {
    out[i] = (in != nullptr ? transfer[i / n / rows] * in[i] : 0) + own[i];
  }
};

cudaError_t
sp_dev_transfer_update (const SpDevRecurrence *r, const float *transfer, const float *in, const float *own, float *out,
                        cudaStream_t stream)
{
  SpDevShape s = r->shape;

  return each (Moved{ s.n, decay_rows (r), transfer, in, own, out }, s.batch * s.heads * s.k * s.n, 1, stream);
}
