/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention's states between ranks: what a state from elsewhere adds to the tokens here, and the chain. */
#include "kernels/device-tile.cuh"

#define LOG2_E 1.4426950408889634f
#define ROWS (4 * TILE) /* tokens of a block: a state is read for that many */

/* lambda^power */
static __device__ inline float
decay (float slope, int64_t power)
{
  return exp2f (-slope * LOG2_E * (float) power);
}

/* --- states and tokens -------------------------------------------------------------------------------------------- */

/* out[c] += weight * sum over d of x[d] state[d,c], weight = lambda^(i + 1), or from the end lambda^(m - 1 - i); the
 * state is stored [c,d] if `transposed`. */
struct Apply {
  int64_t m, batch, heads, d, c;
  bool from_end, transposed;
  const float *slopes;
  const uint16_t *x;
  const float *state;
  SpDevTensor out;
};

template <int D>
static constexpr size_t
apply_bytes (void)
{
  return (Stride<D>::elements + D * Stride<TILE>::value) * sizeof (uint16_t);
}

template <int D>
static __device__ inline void
load_state (const Apply &a, const float *state, int64_t column, uint16_t *tile)
{
  for (int i = threadIdx.x; i < D * TILE; i += TILE_THREADS) {
    /* Neighbours in memory to neighbouring threads, either way. */
    int row = a.transposed ? i % D : i / TILE, at = a.transposed ? i / D : i % TILE;
    bool is_there = row < a.d && column + at < a.c;
    float s = !is_there ? 0 : a.transposed ? state[(column + at) * a.d + row] : state[row * a.c + column + at];

    tile[row * Stride<TILE>::value + at] = (uint16_t) bf16_pair (s, 0);
  }
}

template <int D>
static __global__ void
__launch_bounds__ (TILE_THREADS) apply_kernel (Apply a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  uint16_t *x_tile = (uint16_t *) dynamic, *s_tile = x_tile + Stride<D>::elements;
  int64_t b = blockIdx.y / a.heads, h = blockIdx.y % a.heads, column = (int64_t) blockIdx.z * TILE;
  int64_t begin = (int64_t) blockIdx.x * ROWS, end = min (begin + ROWS, a.m);
  float slope = a.slopes[h];
  int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;

  load_state<D> (a, a.state + (b * a.heads + h) * a.d * a.c, column, s_tile);
  for (int64_t first = begin; first < end; first += TILE) {
    float o[8][4] = {};

    __syncthreads (); /* the rows before have been read */
    tile_load<D> (x_tile, a.x + ((first * a.batch + b) * a.heads + h) * a.d, a.batch * a.heads * a.d, end - first, a.d);
    copy_commit ();
    copy_wait<0> ();
    __syncthreads ();
#pragma unroll
    for (int k = 0; k < D; k += 16) {
      uint32_t x[4], s[4];

      tile_a<D> (x, x_tile, threadIdx.x / 32 * 16, k);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        tile_b<TILE> (s, s_tile, k, 8 * j);
        mma (o[j], x, s[0], s[1]);
        mma (o[j + 1], x, s[2], s[3]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int64_t token = first + row + 8 * i, at = ((token * a.batch + b) * a.heads + h) * a.c + column;
      float weight = decay (slope, a.from_end ? a.m - 1 - token : token + 1);

#pragma unroll
      for (int j = 0; j < 8; j++) {
        float low, high;
        int64_t to = at + j * 8 + threadIdx.x % 4 * 2;

        if (token >= end || column + j * 8 >= a.c)
          continue;
        load_pair (a.out, to, &low, &high);
        store_pair (a.out, to, low + weight * o[j][2 * i], high + weight * o[j][2 * i + 1]);
      }
    }
  }
}

static cudaError_t
apply (SpDevShape s, bool values_are_x, bool from_end, const float *slopes, SpDevTensor x, const float *state,
       SpDevTensor out, cudaStream_t stream)
{
  Apply a = { s.m,      s.batch,      s.heads, values_are_x ? s.n : s.k,  values_are_x ? s.k : s.n,
              from_end, values_are_x, slopes,  (const uint16_t *) x.data, state,
              out };
  dim3 grid ((unsigned) div_up (s.m, ROWS), (unsigned) (s.batch * s.heads), (unsigned) div_up (a.c, TILE));

  if (x.dtype != SP_DEV_BF16 || !is_aligned (x.data, 16) || !are_floats ({ out }) || s.k % 8 != 0 || s.n % 8 != 0 ||
      s.k > 256 || s.n > 256 || s.batch * s.heads > 65535)
    return cudaErrorInvalidValue;
  if (s.m == 0 || s.batch * s.heads * s.k * s.n == 0)
    return cudaSuccess;
  return a.d <= 64    ? launch (apply_kernel<64>, grid, TILE_THREADS, apply_bytes<64> (), stream, a)
         : a.d <= 128 ? launch (apply_kernel<128>, grid, TILE_THREADS, apply_bytes<128> (), stream, a)
                      : launch (apply_kernel<256>, grid, TILE_THREADS, apply_bytes<256> (), stream, a);
}

cudaError_t
sp_dev_linear_inter (SpDevShape shape, const float *slopes, SpDevTensor q, const float *state_in, SpDevTensor o,
                     cudaStream_t stream)
{
  return apply (shape, false, false, slopes, q, state_in, o, stream);
}

/* --- the chain ---------------------------------------------------------------------------------------------------- */

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
