/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax attention's kernels of rows [k], a row a query and head. A row has as many lanes of a warp as it has work for:
 * a warp's loads are of whole rows one after the other. */
#include "kernels/device-private.cuh"

#define ROW_THREADS 256

/* A kernel's form for rows of k elements, and the rows of a block of it. */
#define FORM(kernel) (width == 1 ? kernel<1, 32> : k <= 64 ? kernel<8, 8> : k <= 128 ? kernel<8, 16> : kernel<8, 32>)

static int
rows_at_once (int64_t k, int width)
{
  return ROW_THREADS / (width == 1 ? 32 : k <= 64 ? 8 : k <= 128 ? 16 : 32);
}

static cudaError_t
row_grid (int64_t rows, int64_t k, int width, dim3 *ret_grid)
{
  int64_t blocks = div_up (rows, rows_at_once (k, width));

  *ret_grid = dim3 ((unsigned) blocks);
  return blocks > INT32_MAX ? cudaErrorInvalidValue : cudaSuccess;
}

/* Beyond the last row lanes have it too, so that whole warps meet, but write nothing. */
template <int LANES>
static __device__ inline int64_t
row_of (int64_t rows, bool *ret_is_there)
{
  int64_t row = (int64_t) blockIdx.x * (ROW_THREADS / LANES) + threadIdx.x / LANES;

  *ret_is_there = row < rows;
  return row < rows ? row : rows - 1;
}

/* exp (x - max), of which max may be -inf where x is too. */
static __device__ inline float
share_of (float x, float max)
{
  return x == -INFINITY ? 0 : expf (x - max);
}

/* --- merge -------------------------------------------------------------------------------------------------------- */

template <int V, int LANES>
static __global__ void
__launch_bounds__ (ROW_THREADS) merge_kernel (int64_t rows, int64_t k, bool accumulate, SpDevTensor block_o,
                                              const float *block_lse, SpDevTensor o, float *lse)
{
  bool is_there;
  int64_t row = row_of<LANES> (rows, &is_there);
  float before = 0, here = 1, all = block_lse[row];

  if (accumulate) {
    float old = lse[row], max = fmaxf (old, all);
    if (all == -INFINITY)
      is_there = false;
    before = share_of (old, max);
    here = share_of (all, max);
    all = max + logf (before + here);
    float sum = before + here;
    before /= sum;
    here /= sum;
  }
  __syncwarp (); /* all lanes have read the lse */
  if (!is_there)
    return;
  for (int64_t j = threadIdx.x % LANES * V; j < k; j += LANES * V) {
    Vec<V> x = load<V> (block_o, row * k + j);
    if (accumulate) {
      Vec<V> y = load<V> (o, row * k + j);
#pragma unroll
      for (int l = 0; l < V; l++)
        x.x[l] = y.x[l] * before + x.x[l] * here;
    }
    store<V> (o, row * k + j, x);
  }
  if (threadIdx.x % LANES == 0)
    lse[row] = all;
}

cudaError_t
sp_dev_attention_merge (int64_t rows, int64_t k, bool accumulate, SpDevTensor block_o, const float *block_lse,
                        SpDevTensor o, float *lse, cudaStream_t stream)
{
  int width = width_of ({ k }, { block_o, o });
  dim3 grid;

  if (row_grid (rows, k, width, &grid) != cudaSuccess || !are_floats ({ block_o, o }))
    return cudaErrorInvalidValue;
  if (rows == 0)
    return cudaSuccess;
  return launch (FORM (merge_kernel), grid, ROW_THREADS, 0, stream, rows, k, accumulate, block_o, block_lse, o, lse);
}

/* --- delta -------------------------------------------------------------------------------------------------------- */

template <int V, int LANES>
static __global__ void
__launch_bounds__ (ROW_THREADS) delta_kernel (int64_t rows, int64_t k, SpDevTensor d_o, SpDevTensor o, float *delta)
{
  bool is_there;
  int64_t row = row_of<LANES> (rows, &is_there);
  float sum = 0;

  for (int64_t j = threadIdx.x % LANES * V; j < k; j += LANES * V) {
    Vec<V> x = load<V> (d_o, row * k + j), y = load<V> (o, row * k + j);
#pragma unroll
    for (int l = 0; l < V; l++)
      sum += x.x[l] * y.x[l];
  }
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2)
    sum += __shfl_xor_sync (0xffffffffu, sum, offset);
  if (is_there && threadIdx.x % LANES == 0)
    delta[row] = sum;
}

cudaError_t
sp_dev_attention_delta (int64_t rows, int64_t k, SpDevTensor d_o, SpDevTensor o, float *delta, cudaStream_t stream)
{
  int width = width_of ({ k }, { d_o, o });
  dim3 grid;

  if (row_grid (rows, k, width, &grid) != cudaSuccess || !are_floats ({ d_o, o }))
    return cudaErrorInvalidValue;
  if (rows == 0)
    return cudaSuccess;
  return launch (FORM (delta_kernel), grid, ROW_THREADS, 0, stream, rows, k, d_o, o, delta);
}

/* --- sinks -------------------------------------------------------------------------------------------------------- */

template <int V, int LANES>
static __global__ void
__launch_bounds__ (ROW_THREADS)
    sink_kernel (int64_t rows, int64_t k, int64_t heads, SpDevTensor sinks, SpDevTensor o, float *lse)
{
  bool is_there;
  int64_t row = row_of<LANES> (rows, &is_there);
  float sink = load1 (sinks, row % heads), old = lse[row], max = fmaxf (old, sink);
  float all = max + logf (share_of (old, max) + share_of (sink, max)), share = share_of (old, all);

  __syncwarp (); /* all lanes have read the lse */
  if (!is_there)
    return;
  for (int64_t j = threadIdx.x % LANES * V; j < k; j += LANES * V) {
    Vec<V> x = load<V> (o, row * k + j);
#pragma unroll
    for (int l = 0; l < V; l++)
      x.x[l] *= share;
    store<V> (o, row * k + j, x);
  }
  if (threadIdx.x % LANES == 0)
    lse[row] = all;
}

cudaError_t
sp_dev_attention_sink (int64_t rows, int64_t k, int64_t heads, SpDevTensor sinks, SpDevTensor o, float *lse,
                       cudaStream_t stream)
{
  int width = width_of ({ k }, { o });
  dim3 grid;

  if (row_grid (rows, k, width, &grid) != cudaSuccess || !are_floats ({ sinks, o }))
    return cudaErrorInvalidValue;
  if (rows == 0)
    return cudaSuccess;
  return launch (FORM (sink_kernel), grid, ROW_THREADS, 0, stream, rows, k, heads, sinks, o, lse);
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
