/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax attention's kernels of rows [k], a row a query and head: a warp has a row. */
#include "kernels/device-private.cuh"

#define ROW_THREADS 256
#define ROWS_AT_ONCE (ROW_THREADS / 32)

static cudaError_t
row_grid (int64_t rows, dim3 *ret_grid)
{
  int64_t blocks = div_up (rows, ROWS_AT_ONCE);

  *ret_grid = dim3 ((unsigned) blocks);
  return blocks > INT32_MAX ? cudaErrorInvalidValue : cudaSuccess;
}

/* exp (x - max), of which max may be -inf where x is too. */
static __device__ inline float
share_of (float x, float max)
{
  return x == -INFINITY ? 0 : expf (x - max);
}

/* --- merge -------------------------------------------------------------------------------------------------------- */

template <int V>
static __global__ void
merge_kernel (int64_t rows, int64_t k, bool accumulate, SpDevTensor block_o, const float *block_lse, SpDevTensor o,
              float *lse)
{
  int64_t row = (int64_t) blockIdx.x * ROWS_AT_ONCE + threadIdx.x / 32;
  float before = 0, here = 1, all;

  if (row >= rows)
    return;
  all = block_lse[row];
  if (accumulate) {
    float old = lse[row], max = fmaxf (old, all);
    if (all == -INFINITY)
      return;
    before = share_of (old, max);
    here = share_of (all, max);
    all = max + logf (before + here);
  }
  float sum = before + here;
  for (int64_t j = threadIdx.x % 32 * V; j < k; j += 32 * V) {
    Vec<V> x = load<V> (block_o, row * k + j);
    if (accumulate) {
      Vec<V> y = load<V> (o, row * k + j);
#pragma unroll
      for (int l = 0; l < V; l++)
        x.x[l] = (y.x[l] * before + x.x[l] * here) / sum;
    }
    store<V> (o, row * k + j, x);
  }
  __syncwarp (); /* all lanes have read the lse */
  if (threadIdx.x % 32 == 0)
    lse[row] = all;
}

cudaError_t
sp_dev_attention_merge (int64_t rows, int64_t k, bool accumulate, SpDevTensor block_o, const float *block_lse,
                        SpDevTensor o, float *lse, cudaStream_t stream)
{
  int width = width_of ({ k }, { block_o, o });
  dim3 grid;

  if (row_grid (rows, &grid) != cudaSuccess || !are_floats ({ block_o, o }))
    return cudaErrorInvalidValue;
  if (rows == 0)
    return cudaSuccess;
  return launch (width == 8 ? merge_kernel<8> : merge_kernel<1>, grid, ROW_THREADS, 0, stream, rows, k, accumulate,
                 block_o, block_lse, o, lse);
}

/* --- delta -------------------------------------------------------------------------------------------------------- */

template <int V>
static __global__ void
delta_kernel (int64_t rows, int64_t k, SpDevTensor d_o, SpDevTensor o, float *delta)
{
  int64_t row = (int64_t) blockIdx.x * ROWS_AT_ONCE + threadIdx.x / 32;
  float sum = 0;

  if (row >= rows)
    return;
  for (int64_t j = threadIdx.x % 32 * V; j < k; j += 32 * V) {
    Vec<V> x = load<V> (d_o, row * k + j), y = load<V> (o, row * k + j);
#pragma unroll
    for (int l = 0; l < V; l++)
      sum += x.x[l] * y.x[l];
  }
  sum = warp_sum (sum);
  if (threadIdx.x % 32 == 0)
    delta[row] = sum;
}

cudaError_t
sp_dev_attention_delta (int64_t rows, int64_t k, SpDevTensor d_o, SpDevTensor o, float *delta, cudaStream_t stream)
{
  int width = width_of ({ k }, { d_o, o });
  dim3 grid;

  if (row_grid (rows, &grid) != cudaSuccess || !are_floats ({ d_o, o }))
    return cudaErrorInvalidValue;
  if (rows == 0)
    return cudaSuccess;
  return launch (width == 8 ? delta_kernel<8> : delta_kernel<1>, grid, ROW_THREADS, 0, stream, rows, k, d_o, o, delta);
}

/* --- sinks -------------------------------------------------------------------------------------------------------- */

template <int V>
static __global__ void
sink_kernel (int64_t rows, int64_t k, int64_t heads, SpDevTensor sinks, SpDevTensor o, float *lse)
{
  int64_t row = (int64_t) blockIdx.x * ROWS_AT_ONCE + threadIdx.x / 32;

  if (row >= rows)
    return;
  float sink = load1 (sinks, row % heads), old = lse[row], max = fmaxf (old, sink);
  float all = max + logf (share_of (old, max) + share_of (sink, max)), share = share_of (old, all);
  for (int64_t j = threadIdx.x % 32 * V; j < k; j += 32 * V) {
    Vec<V> x = load<V> (o, row * k + j);
#pragma unroll
    for (int l = 0; l < V; l++)
      x.x[l] *= share;
    store<V> (o, row * k + j, x);
  }
  __syncwarp ();
  if (threadIdx.x % 32 == 0)
    lse[row] = all;
}

cudaError_t
sp_dev_attention_sink (int64_t rows, int64_t k, int64_t heads, SpDevTensor sinks, SpDevTensor o, float *lse,
                       cudaStream_t stream)
{
  int width = width_of ({ k }, { o });
  dim3 grid;

  if (row_grid (rows, &grid) != cudaSuccess || !are_floats ({ sinks, o }))
    return cudaErrorInvalidValue;
  if (rows == 0)
    return cudaSuccess;
  return launch (width == 8 ? sink_kernel<8> : sink_kernel<1>, grid, ROW_THREADS, 0, stream, rows, k, heads, sinks, o,
                 lse);
}

/* A block a head: its rows are few numbers. */
static __global__ void
sink_bwd_kernel (int64_t tokens, int64_t heads, const float *lse, const float *delta, SpDevTensor sinks,
                 SpDevTensor dsinks)
{
  __shared__ float parts[32];
  int64_t h = blockIdx.x;
  float sink = load1 (sinks, h), sum = 0;

  for (int64_t i = threadIdx.x; i < tokens; i += ROW_THREADS)
    sum += expf (sink - lse[i * heads + h]) * delta[i * heads + h];
  sum = block_sum (sum, parts);
  if (threadIdx.x == 0)
    store1 (dsinks, h, load1 (dsinks, h) - sum);
}

cudaError_t
sp_dev_attention_sink_bwd (int64_t rows, int64_t heads, const float *lse, const float *delta, SpDevTensor sinks,
                           SpDevTensor dsinks, cudaStream_t stream)
{
  if (heads < 1 || rows % heads != 0 || heads > INT32_MAX || !are_floats ({ sinks, dsinks }))
    return cudaErrorInvalidValue;
  return launch (sink_bwd_kernel, dim3 ((unsigned) heads), ROW_THREADS, 0, stream, rows / heads, heads, lse, delta,
                 sinks, dsinks);
}
