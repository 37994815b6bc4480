/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms, forward, and sums over rows and over columns. A row is held in registers: a warp has one of up to 2048 elements,
 * a block one of up to 32768, in pieces of 16 bytes, all of which are under way at once. Rows that are longer, or that 16
 * bytes do not divide, are gone through again and again.
 */
#include "kernels/device-parts.cuh"

/* --- a row in registers ------------------------------------------------------------------------------------------- */

#define ROW_WARPS 8 /* of a block that has a row a warp */

/* Threads that share a row, and R pieces of each. */
template <int R, bool WARP, bool HALF> struct Row {
  int64_t row, n;
  int thread, threads;

  __device__ Row (int64_t elements) : n (elements)
  {
    row = WARP ? blockIdx.x * (int64_t) ROW_WARPS + threadIdx.x / 32 : blockIdx.x;
    thread = WARP ? threadIdx.x % 32 : threadIdx.x;
    threads = WARP ? 32 : blockDim.x;
  }

  /* The first element of a piece, and whether it is one. */
  __device__ int64_t first (int r) const
  {
    return ((int64_t) r * threads + thread) * 8;
  }
  __device__ bool has (int r) const
  {
    return first (r) < n;
  }

  __device__ void fetch_all (SpDevTensor t, Raw<8> (&raw)[R]) const
  {
#pragma unroll
    for (int r = 0; r < R; r++)
      if (has (r))
        raw[r] = fetch<8, HALF> (t, row * n + first (r));
  }

  __device__ float sum (float x, float *parts) const
  {
    return WARP ? warp_sum (x) : block_sum (x, parts);
  }
};

/* Starts f.start<R, WARP> (blocks, threads) if rows are held. */
template <typename F>
static cudaError_t
hold_row (int64_t m, int64_t n, int width, const F &f, bool *ret_is_held)
{
  int64_t pieces = n / 8;
  dim3 warps ((unsigned) div_up (m, ROW_WARPS)), blocks ((unsigned) m);

  *ret_is_held = width == 8 && pieces <= 512 * 8;
  if (!*ret_is_held)
    return cudaSuccess;
  if (pieces <= 32)
    return f.template start<1, true> (warps, 32 * ROW_WARPS);
  if (pieces <= 64)
    return f.template start<2, true> (warps, 32 * ROW_WARPS);
  if (pieces <= 128)
    return f.template start<4, true> (warps, 32 * ROW_WARPS);
  if (pieces <= 256)
    return f.template start<8, true> (warps, 32 * ROW_WARPS);
  if (pieces <= 512)
    return f.template start<2, false> (blocks, row_threads (n, 16, 256));
  if (pieces <= 1024)
    return f.template start<4, false> (blocks, row_threads (n, 32, 256));
  return f.template start<8, false> (blocks, row_threads (n, 64, 512));
}

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

struct Norm {
  bool layernorm;
  int64_t m, n;
  float whole;
  SpDevTensor x, gain, bias;
  const float *sum_of_squares;
  float epsilon;
  SpDevTensor y;
  float *stat;
};

static __device__ inline float
norm_scale (const Norm &a, float squares)
{
  return 1 / sqrtf (squares / a.whole + a.epsilon);
}

static __device__ inline void
norm_store_stat (const Norm &a, int64_t row, float mean, float r)
{
  a.stat[a.layernorm ? a.m + row : row] = r;
  if (a.layernorm)
    a.stat[row] = mean;
}

/* V elements of a row, normed, to their place. */
template <int V, bool HALF = false>
static __device__ inline void
norm_store (const Norm &a, int64_t row, int64_t j, Vec<V> v, float mean, float r)
{
  Vec<V> g = load_or<V, HALF> (a.gain, j, 1), b = load_or<V, HALF> (a.bias, j, 0);

#pragma unroll
  for (int l = 0; l < V; l++)
    v.x[l] = g.x[l] * (v.x[l] - mean) * r + b.x[l];
  store<V, HALF> (a.y, row * a.n + j, v);
}

/* It is the raw pieces that are held: to turn them to floats three times takes less than the registers would. */
template <int R, bool WARP, bool HALF>
static __global__ void
__launch_bounds__ (WARP ? 256 : 512) norm_held_kernel (Norm a)
{
  __shared__ float parts[32];
  Row<R, WARP, HALF> row (a.n);
  Raw<8> raw[R];
  float sum = 0, squares = 0, mean = 0;

  if (row.row >= a.m)
    return;
  row.fetch_all (a.x, raw);
  if (a.layernorm) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      Vec<8> v = floats_of<8, HALF> (a.x, raw[r]);
#pragma unroll
      for (int l = 0; l < 8; l++)
        sum += row.has (r) ? v.x[l] : 0;
    }
    mean = row.sum (sum, parts) / a.n;
  }
  if (a.sum_of_squares == nullptr) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      Vec<8> v = floats_of<8, HALF> (a.x, raw[r]);
#pragma unroll
      for (int l = 0; l < 8; l++)
        squares += row.has (r) ? (v.x[l] - mean) * (v.x[l] - mean) : 0;
    }
    squares = row.sum (squares, parts);
  } else
    squares = a.sum_of_squares[row.row];
  float scale = norm_scale (a, squares);
#pragma unroll
  for (int r = 0; r < R; r++)
    if (row.has (r))
      norm_store<8, HALF> (a, row.row, row.first (r), floats_of<8, HALF> (a.x, raw[r]), mean, scale);
  if (row.thread == 0)
    norm_store_stat (a, row.row, mean, scale);
}

template <int V>
static __global__ void
norm_kernel (Norm a)
{
  __shared__ float parts[32];
  int64_t row = blockIdx.x, at = row * a.n;
  float mean = a.layernorm ? row_sum<V> (a.n, a.x, at, parts) / a.n : 0;
  float squares = a.sum_of_squares ? a.sum_of_squares[row] : row_squares<V> (a.n, a.x, at, mean, parts);
  float scale = norm_scale (a, squares);

  for (int64_t j = (int64_t) threadIdx.x * V; j < a.n; j += (int64_t) blockDim.x * V)
    norm_store<V> (a, row, j, load<V> (a.x, at + j), mean, scale);
  if (threadIdx.x == 0)
    norm_store_stat (a, row, mean, scale);
}

struct StartNorm {
  const Norm &a;
  bool is_half;
  cudaStream_t stream;

  template <int R, bool WARP> cudaError_t start (dim3 blocks, int threads) const
  {
    return launch (is_half ? norm_held_kernel<R, WARP, true> : norm_held_kernel<R, WARP, false>, blocks, threads, 0,
                   stream, a);
  }
};

cudaError_t
sp_dev_norm (bool layernorm, int64_t m, int64_t n, int64_t whole, SpDevTensor x, SpDevTensor gain, SpDevTensor bias,
             const float *sum_of_squares, double epsilon, SpDevTensor y, float *stat, cudaStream_t stream)
{
  int width = width_of ({ n }, { x, gain, bias, y });

  if (!are_floats ({ x, gain, bias, y }) || m > INT32_MAX || (sum_of_squares ? layernorm : whole != n))
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return cudaSuccess;

  Norm a = { layernorm, m, n, (float) whole, x, gain, bias, sum_of_squares, (float) epsilon, y, stat };
  bool is_held;
  cudaError_t error = hold_row (m, n, width, StartNorm{ a, are_half ({ x, gain, bias, y }), stream }, &is_held);
  if (is_held)
    return error;
  return launch (width == 8 ? norm_kernel<8> : norm_kernel<1>, dim3 ((unsigned) m), row_threads (n, width, 512), 0,
                 stream, a);
}

/* --- statistics of rows that are split ---------------------------------------------------------------------------- */

/* Of a row the sum of x^2, or of dy * gain * x. */
struct RowSum {
  int64_t m, n;
  SpDevTensor dy, x, gain; /* dy, gain: may be absent */
  float *out;
};

#define SUM_PIECES 2 /* of a thread that are under way at once */

template <int V, bool HALF, bool PRODUCT> static __global__ void __launch_bounds__ (256) row_sum_kernel (RowSum a)
{
  __shared__ float parts[32];
  int64_t at = blockIdx.x * a.n, stride = (int64_t) blockDim.x * V;
  float sum = 0;

  for (int64_t j = (int64_t) threadIdx.x * V; j < a.n; j += SUM_PIECES * stride) {
    Raw<V> x[SUM_PIECES] = {}, dy[SUM_PIECES] = {};
#pragma unroll
    for (int r = 0; r < SUM_PIECES; r++)
      if (j + r * stride < a.n) {
        x[r] = fetch<V, HALF> (a.x, at + j + r * stride);
        if constexpr (PRODUCT)
          dy[r] = fetch<V, HALF> (a.dy, at + j + r * stride);
      }
#pragma unroll
    for (int r = 0; r < SUM_PIECES; r++) {
      Vec<V> v = floats_of<V, HALF> (a.x, x[r]), d = v;
      if constexpr (PRODUCT) {
        Vec<V> g = j + r * stride < a.n ? load_or<V, HALF> (a.gain, j + r * stride, 1) : Vec<V>{};
        d = floats_of<V, HALF> (a.dy, dy[r]);
#pragma unroll
        for (int l = 0; l < V; l++)
          d.x[l] *= g.x[l];
      }
#pragma unroll
      for (int l = 0; l < V; l++)
        sum += d.x[l] * v.x[l];
    }
  }
  sum = block_sum (sum, parts);
  if (threadIdx.x == 0)
    a.out[blockIdx.x] = sum;
}

template <bool PRODUCT>
static cudaError_t
row_sums (const RowSum &a, cudaStream_t stream)
{
  int width = width_of ({ a.n }, { a.dy, a.x, a.gain });
  auto kernel = width == 1                         ? row_sum_kernel<1, false, PRODUCT>
                : are_half ({ a.dy, a.x, a.gain }) ? row_sum_kernel<8, true, PRODUCT>
                                                   : row_sum_kernel<8, false, PRODUCT>;

  if (!are_floats ({ a.dy, a.x, a.gain }) || a.m > INT32_MAX)
    return cudaErrorInvalidValue;
  if (a.m == 0)
    return cudaSuccess;
  return launch (kernel, dim3 ((unsigned) a.m), row_threads (a.n > 0 ? a.n : 1, width, 256), 0, stream, a);
}

cudaError_t
sp_dev_norm_stat (int64_t m, int64_t n, SpDevTensor x, float *sum_of_squares, cudaStream_t stream)
{
  return row_sums<false> ({ m, n, {}, x, {}, sum_of_squares }, stream);
}

cudaError_t
sp_dev_norm_stat_bwd (int64_t m, int64_t n, SpDevTensor dy, SpDevTensor x, SpDevTensor gain, float *dot,
                      cudaStream_t stream)
{
  return row_sums<true> ({ m, n, dy, x, gain, dot }, stream);
}

/* --- column sums -------------------------------------------------------------------------------------------------- */

#define SUM_ROWS 8           /* that a block adds at once: one a warp */
#define SUM_LOADS 8          /* of a warp that are under way at once */
#define MOST_COLUMN_PARTS 64 /* pieces of the rows */

static int64_t
column_rows (int64_t m)
{
  int64_t rows = div_up (m, MOST_COLUMN_PARTS);
  return rows < 16 * SUM_ROWS ? 16 * SUM_ROWS : rows;
}

/* parts[batch,pieces,n]: 32 V columns of one piece of the rows. */
template <int V, bool HALF>
static __global__ void __launch_bounds__ (32 * SUM_ROWS)
    column_sum_kernel (int64_t m, int64_t n, int64_t rows, SpDevTensor x, float *parts)
{
  __shared__ float sums[SUM_ROWS][32 * V];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t column = (blockIdx.x * 32ll + lane) * V, first = blockIdx.y * rows, end = min (first + rows, m);
  Vec<V> sum = {};

  release_next ();
  if (column < n)
    for (int64_t i = first + warp; i < end; i += SUM_LOADS * SUM_ROWS) {
      Raw<V> raw[SUM_LOADS];
#pragma unroll
      for (int r = 0; r < SUM_LOADS; r++)
        if (i + r * SUM_ROWS < end)
          raw[r] = fetch<V, HALF> (x, (blockIdx.z * m + i + r * SUM_ROWS) * n + column);
#pragma unroll
      for (int r = 0; r < SUM_LOADS; r++)
        if (i + r * SUM_ROWS < end) {
          Vec<V> v = floats_of<V, HALF> (x, raw[r]);
#pragma unroll
          for (int l = 0; l < V; l++)
            sum.x[l] += v.x[l];
        }
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

  if (!are_floats ({ x, out }) || batch > 65535 || blocks > INT32_MAX)
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0 || batch == 0)
    return cudaSuccess;

  auto kernel = width == 1               ? column_sum_kernel<1, false>
                : x.dtype == SP_DEV_BF16 ? column_sum_kernel<8, true>
                                         : column_sum_kernel<8, false>;
  cudaError_t error = launch (kernel, dim3 ((unsigned) blocks, (unsigned) pieces, (unsigned) batch), 32 * SUM_ROWS, 0,
                              stream, m, n, rows, x, (float *) scratch);
  if (error == cudaSuccess)
    error = add_parts ({ (const float *) scratch, pieces, n, n, { out }, { 0 } }, 1, batch, stream);
  return error;
}
