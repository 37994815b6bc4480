/* SPDX-License-Identifier: Apache-2.0 */
/* The reference's generator, bit for bit: a hash of seed, row and column, so that every split draws the same mask. */
#include "kernels/device-private.cuh"

#define GOLDEN_GAMMA 0x9e3779b97f4a7c15ull

static __device__ inline uint64_t
mix (uint64_t x)
{
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

struct Dropout {
  int64_t n;
  SpDevTensor x, bias;
  uint64_t seed;
  const int64_t *row_ids, *col_ids;
  uint64_t least; /* of the 53 bits of what is kept */
  float scale;
  SpDevTensor y, mask;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t row = divide (i, n), column = i - row * n;
    uint64_t key = mix (mix (seed + GOLDEN_GAMMA) + ((uint64_t) row_ids[row] + 1) * GOLDEN_GAMMA);
    Vec<V> v = load<V> (x, i), b = load_or<V> (bias, column, 0), kept;

#pragma unroll
    for (int j = 0; j < V; j++) {
      bool keep = mix (key + ((uint64_t) col_ids[column + j] + 1) * GOLDEN_GAMMA) >> 11 >= least;
      kept.x[j] = keep ? 1 : 0;
      v.x[j] = keep ? (v.x[j] + b.x[j]) * scale : 0;
    }
    store<V> (y, i, v);
    store<V> (mask, i, kept);
  }
};

cudaError_t
sp_dev_dropout (int64_t m, int64_t n, SpDevTensor x, SpDevTensor bias, uint64_t seed, const int64_t *row_ids,
                const int64_t *col_ids, double p, SpDevTensor y, SpDevTensor mask, cudaStream_t stream)
{
  if (!are_floats ({ x, bias, y }) || mask.dtype != SP_DEV_UINT8 || !(p >= 0 && p < 1))
    return cudaErrorInvalidValue;

  /* 2^-53 bits >= p, p 2^53 exact: bits >= the whole number at or above it. */
  double scaled = p * 0x1p53;
  uint64_t least = (uint64_t) scaled;
  least += (double) least < scaled;
  return each (Dropout{ n, x, bias, seed, row_ids, col_ids, least, (float) (1 / (1 - p)), y, mask }, m * n,
               width_of ({ n }, { x, bias, y, mask }), stream);
}

struct DropoutBwd {
  SpDevTensor dy, mask, dx;
  float scale;

  template <int V> __device__ void at (int64_t i) const
  {
    Vec<V> v = load<V> (dy, i), kept = load_bytes<V> (mask, i);

#pragma unroll
    for (int j = 0; j < V; j++)
      v.x[j] *= kept.x[j] * scale;
    store<V> (dx, i, v);
  }
};

cudaError_t
sp_dev_dropout_bwd (int64_t m, int64_t n, SpDevTensor dy, SpDevTensor mask, double p, SpDevTensor dx,
                    cudaStream_t stream)
{
  if (!are_floats ({ dy, dx }) || mask.dtype != SP_DEV_UINT8 || !(p >= 0 && p < 1))
    return cudaErrorInvalidValue;
  return each (DropoutBwd{ dy, mask, dx, (float) (1 / (1 - p)) }, m * n, width_of ({ m * n }, { dy, mask, dx }),
               stream);
}
