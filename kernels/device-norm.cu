/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms: a block goes through a row twice, the second time from a cache near it. Sums over rows (dgain, dbias, column
 * sums) are of two passes: each block sums its rows, then one thread a column sums the blocks', in their order.
 */
#include "kernels/device-private.cuh"

/* --- forward ------------------------------------------------------------------------------------------------------ */

template <int V>
static __device__ inline float
row_sum (int64_t n, SpDevTensor x, int64_t at, float *parts)
{
  float sum = 0;

  for (int64_t j = (int64_t) threadIdx.x * V; j < n; j += (int64_t) blockDim.x * V) {
    Vec<V> v = load<V> (x, at + j);
#pragma unroll
    for (int l = 0; l < V; l++)
      sum += v.x[l];
  }
  return block_sum (sum, parts);
}

template <int V>
static __device__ inline float
row_squares (int64_t n, SpDevTensor x, int64_t at, float mean, float *parts)
{
  float sum = 0;

  for (int64_t j = (int64_t) threadIdx.x * V; j < n; j += (int64_t) blockDim.x * V) {
    Vec<V> v = load<V> (x, at + j);
#pragma unroll
    for (int l = 0; l < V; l++)
      sum += (v.x[l] - mean) * (v.x[l] - mean);
  }
  return block_sum (sum, parts);
}

template <int V>
static __global__ void
norm_kernel (bool layernorm, int64_t m, int64_t n, float whole, SpDevTensor x, SpDevTensor gain, SpDevTensor bias,
             const float *sum_of_squares, float epsilon, SpDevTensor y, float *stat)
{
  __shared__ float parts[32];
  int64_t row = blockIdx.x, at = row * n;
  float mean = layernorm ? row_sum<V> (n, x, at, parts) / n : 0;
  float squares = sum_of_squares ? sum_of_squares[row] : row_squares<V> (n, x, at, mean, parts);
  float r = 1 / sqrtf (squares / whole + epsilon);

  for (int64_t j = (int64_t) threadIdx.x * V; j < n; j += (int64_t) blockDim.x * V) {
    Vec<V> v = load<V> (x, at + j), g = load_or<V> (gain, j, 1), b = load_or<V> (bias, j, 0);
#pragma unroll
    for (int l = 0; l < V; l++)
      v.x[l] = g.x[l] * (v.x[l] - mean) * r + b.x[l];
    store<V> (y, at + j, v);
  }
  if (threadIdx.x == 0) {
    stat[layernorm ? m + row : row] = r;
    if (layernorm)
      stat[row] = mean;
  }
}

cudaError_t
sp_dev_norm (bool layernorm, int64_t m, int64_t n, int64_t whole, SpDevTensor x, SpDevTensor gain, SpDevTensor bias,
             const float *sum_of_squares, double epsilon, SpDevTensor y, float *stat, cudaStream_t stream)
{
  int width = width_of ({ n }, { x, gain, bias, y });

  if (!are_floats ({ x, gain, bias, y }) || m > INT32_MAX || (sum_of_squares ? layernorm : whole != n))
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return cudaSuccess;
  return launch (width == 8 ? norm_kernel<8> : norm_kernel<1>, dim3 ((unsigned) m), row_threads (n, width, 512), 0,
                 stream, layernorm, m, n, (float) whole, x, gain, bias, sum_of_squares, (float) epsilon, y, stat);
}

template <int V>
static __global__ void
norm_stat_kernel (int64_t n, SpDevTensor x, float *sum_of_squares)
{
  __shared__ float parts[32];
  float sum = row_squares<V> (n, x, blockIdx.x * n, 0, parts);

  if (threadIdx.x == 0)
    sum_of_squares[blockIdx.x] = sum;
}

cudaError_t
sp_dev_norm_stat (int64_t m, int64_t n, SpDevTensor x, float *sum_of_squares, cudaStream_t stream)
{
  int width = width_of ({ n }, { x });

  if (!are_floats ({ x }) || m > INT32_MAX)
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return sp_dev_zero (m, { sum_of_squares, SP_DEV_FP32 }, stream);
  return launch (width == 8 ? norm_stat_kernel<8> : norm_stat_kernel<1>, dim3 ((unsigned) m),
                 row_threads (n, width, 512), 0, stream, n, x, sum_of_squares);
}

template <int V>
static __global__ void
norm_stat_bwd_kernel (int64_t n, SpDevTensor dy, SpDevTensor x, SpDevTensor gain, float *dot)
{
  __shared__ float parts[32];
  int64_t at = blockIdx.x * n;
  float sum = 0;

  for (int64_t j = (int64_t) threadIdx.x * V; j < n; j += (int64_t) blockDim.x * V) {
    Vec<V> a = load<V> (dy, at + j), b = load<V> (x, at + j), g = load_or<V> (gain, j, 1);
#pragma unroll
    for (int l = 0; l < V; l++)
      sum += a.x[l] * g.x[l] * b.x[l];
  }
  sum = block_sum (sum, parts);
  if (threadIdx.x == 0)
    dot[blockIdx.x] = sum;
}

cudaError_t
sp_dev_norm_stat_bwd (int64_t m, int64_t n, SpDevTensor dy, SpDevTensor x, SpDevTensor gain, float *dot,
                      cudaStream_t stream)
{
  int width = width_of ({ n }, { dy, x, gain });

  if (!are_floats ({ dy, x, gain }) || m > INT32_MAX)
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return sp_dev_zero (m, { dot, SP_DEV_FP32 }, stream);
  return launch (width == 8 ? norm_stat_bwd_kernel<8> : norm_stat_bwd_kernel<1>, dim3 ((unsigned) m),
                 row_threads (n, width, 512), 0, stream, n, dy, x, gain, dot);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Sums of a block's rows are kept in shared memory, if they are not more than this; else in the scratch. */
#define MOST_SUM_BYTES (96 * 1024)

struct NormBwd {
  bool layernorm;
  int64_t m, n, rows; /* rows: of a block */
  float whole;
  SpDevTensor dy, x;
  const float *stat;
  SpDevTensor gain, dr;
  const float *dot;
  SpDevTensor dx;
  bool sums_gain, sums_bias, is_shared;
  float *parts; /* [blocks, sums, n] */
};

/* The means over a row that its gradient needs: of g, and of g z. */
template <int V>
static __device__ inline void
norm_bwd_means (const NormBwd &a, int64_t at, float mean, float r, float *shared, float *ret_shift, float *ret_gz)
{
  float shift = 0, gz = 0;

  for (int64_t j = (int64_t) threadIdx.x * V; j < a.n; j += (int64_t) blockDim.x * V) {
    Vec<V> d = load<V> (a.dy, at + j), x = load<V> (a.x, at + j), g = load_or<V> (a.gain, j, 1);
#pragma unroll
    for (int l = 0; l < V; l++) {
      shift += g.x[l] * d.x[l];
      gz += g.x[l] * d.x[l] * (x.x[l] - mean) * r;
    }
  }
  *ret_shift = a.layernorm ? block_sum (shift, shared) / a.n : 0;
  *ret_gz = block_sum (gz, shared) / a.whole;
}

template <int V>
static __global__ void
norm_bwd_kernel (NormBwd a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  __shared__ float shared[32];
  int n_sums = a.sums_gain + a.sums_bias;
  float *part = a.parts + blockIdx.x * n_sums * a.n, *sums = a.is_shared ? (float *) dynamic : part;
  float *dgain = sums, *dbias = sums + (a.sums_gain ? a.n : 0);
  int64_t first = blockIdx.x * a.rows, end = min (first + a.rows, a.m);

  /* A thread has the same columns in each row, so that no other sees its sums. */
  for (int64_t j = (int64_t) threadIdx.x * V; j < a.n; j += (int64_t) blockDim.x * V)
    for (int l = 0; l < V; l++) {
      if (a.sums_gain)
        dgain[j + l] = 0;
      if (a.sums_bias)
        dbias[j + l] = 0;
    }

  for (int64_t row = first; row < end; row++) {
    int64_t at = row * a.n;
    float mean = a.layernorm ? a.stat[row] : 0, r = a.stat[a.layernorm ? a.m + row : row], shift = 0, gz;

    if (a.dot)
      gz = a.dot[row] * r / a.whole;
    else
      norm_bwd_means<V> (a, at, mean, r, shared, &shift, &gz);
    for (int64_t j = (int64_t) threadIdx.x * V; j < a.n; j += (int64_t) blockDim.x * V) {
      Vec<V> d = load<V> (a.dy, at + j), x = load<V> (a.x, at + j), g = load_or<V> (a.gain, j, 1);
      Vec<V> past = load_or<V> (a.dr, at + j, 0);
#pragma unroll
      for (int l = 0; l < V; l++) {
        float z = (x.x[l] - mean) * r;
        past.x[l] += r * (g.x[l] * d.x[l] - shift - z * gz);
        if (a.sums_gain)
          dgain[j + l] += d.x[l] * z;
        if (a.sums_bias)
          dbias[j + l] += d.x[l];
      }
      store<V> (a.dx, at + j, past);
    }
  }

  for (int64_t j = (int64_t) threadIdx.x * V; a.is_shared && j < a.n; j += (int64_t) blockDim.x * V)
    for (int64_t i = j; i < n_sums * a.n; i += a.n)
      for (int l = 0; l < V; l++)
        part[i + l] = sums[i + l];
}

size_t
sp_dev_norm_bwd_scratch_bytes (int64_t m, int64_t n)
{
  return (size_t) (row_blocks (m) * 2 * n) * sizeof (float);
}

cudaError_t
sp_dev_norm_bwd (bool layernorm, int64_t m, int64_t n, int64_t whole, SpDevTensor dy, SpDevTensor x, const float *stat,
                 SpDevTensor gain, SpDevTensor dr, const float *dot, SpDevTensor dx, SpDevTensor dgain,
                 SpDevTensor dbias, void *scratch, cudaStream_t stream)
{
  int width = width_of ({ n }, { dy, x, gain, dr, dx });
  bool sums_gain = is_present (dgain), sums_bias = is_present (dbias);
  int n_sums = sums_gain + sums_bias;
  size_t sum_bytes = (size_t) (n_sums * n) * sizeof (float);
  bool is_shared = sum_bytes <= MOST_SUM_BYTES;
  int64_t blocks = row_blocks (m);

  if (!are_floats ({ dy, x, gain, dr, dx, dgain, dbias }) || (dot ? layernorm : whole != n))
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return cudaSuccess;

  NormBwd a = { layernorm, m,         n,         rows_per_block (m), (float) whole,    dy, x, stat, gain, dr, dot,
                dx,        sums_gain, sums_bias, is_shared,          (float *) scratch };
  cudaError_t error = launch (width == 8 ? norm_bwd_kernel<8> : norm_bwd_kernel<1>, dim3 ((unsigned) blocks),
                              row_threads (n, width, 512), is_shared ? sum_bytes : 0, stream, a);
  if (error == cudaSuccess && sums_gain)
    error = each (AddParts{ a.parts, blocks, n_sums * n, dgain }, n, 1, stream);
  if (error == cudaSuccess && sums_bias)
    error = each (AddParts{ a.parts + (sums_gain ? n : 0), blocks, n_sums * n, dbias }, n, 1, stream);
  return error;
}

/* --- column sums -------------------------------------------------------------------------------------------------- */

#define SUM_ROWS 8           /* that a block adds at once: one a warp */
#define MOST_COLUMN_PARTS 64 /* pieces of the rows */

static int64_t
column_rows (int64_t m)
{
  int64_t rows = div_up (m, MOST_COLUMN_PARTS);
  return rows < 16 * SUM_ROWS ? 16 * SUM_ROWS : rows;
}

/* parts[batch,pieces,n]: 32 V columns of one piece of the rows. */
template <int V>
static __global__ void __launch_bounds__ (32 * SUM_ROWS)
    column_sum_kernel (int64_t m, int64_t n, int64_t rows, SpDevTensor x, float *parts)
{
  __shared__ float sums[SUM_ROWS][32 * V];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t column = (blockIdx.x * 32ll + lane) * V, first = blockIdx.y * rows, end = min (first + rows, m);
  Vec<V> sum = {};

  if (column < n)
    for (int64_t i = first + warp; i < end; i += SUM_ROWS) {
      Vec<V> v = load<V> (x, (blockIdx.z * m + i) * n + column);
#pragma unroll
      for (int l = 0; l < V; l++)
        sum.x[l] += v.x[l];
    }
#pragma unroll
  for (int l = 0; l < V; l++)
    sums[warp][l * 32 + lane] = sum.x[l];
  __syncthreads ();
  for (int i = threadIdx.x; i < 32 * V; i += 32 * SUM_ROWS) {
    int64_t to = (blockIdx.x * 32ll + i % 32) * V + i / 32;
    float all = 0;

    for (int w = 0; w < SUM_ROWS; w++)
      all += sums[w][i];
    if (to < n)
      parts[(blockIdx.z * (int64_t) gridDim.y + blockIdx.y) * n + to] = all;
  }
}

size_t
sp_dev_column_sum_scratch_bytes (int64_t batch, int64_t m, int64_t n)
{
  return (size_t) (batch * div_up (m, column_rows (m)) * n) * sizeof (float);
}

cudaError_t
sp_dev_column_sum (int64_t batch, int64_t m, int64_t n, SpDevTensor x, SpDevTensor out, void *scratch,
                   cudaStream_t stream)
{
  int width = width_of ({ n }, { x });
  int64_t rows = column_rows (m), pieces = div_up (m, rows), blocks = div_up (n, 32 * width);
  size_t out_bytes = out.dtype == SP_DEV_BF16 ? 2 : 4;

  if (!are_floats ({ x, out }) || batch > 65535 || blocks > INT32_MAX)
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0 || batch == 0)
    return cudaSuccess;

  cudaError_t error = launch (width == 8 ? column_sum_kernel<8> : column_sum_kernel<1>,
                              dim3 ((unsigned) blocks, (unsigned) pieces, (unsigned) batch), 32 * SUM_ROWS, 0, stream,
                              m, n, rows, x, (float *) scratch);
  for (int64_t i = 0; error == cudaSuccess && i < batch; i++) {
    SpDevTensor to = { (char *) out.data + i * n * out_bytes, out.dtype };
    error = each (AddParts{ (const float *) scratch + i * pieces * n, pieces, n, to }, n, 1, stream);
  }
  return error;
}
