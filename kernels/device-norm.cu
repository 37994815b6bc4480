/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms, forward, and sums over rows and over columns. Rows that are too long to be held, or that 16 bytes do not divide,
 * are gone through again and again.
 */
#include "kernels/device-parts.cuh"
#include "kernels/device-rows.cuh"

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
  float inverse, whole; /* inverse: 1/n; whole: 1 / features of all parts */
  SpDevTensor x, gain, bias;
  const float *sum_of_squares;
  float epsilon;
  SpDevTensor y;
  float *stat;
};

static __device__ inline float
norm_scale (const Norm &a, float squares)
{
  return rsqrtf (squares * a.whole + a.epsilon);
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

/* Of a row: its mean, and the sum of squares about it. */
struct Moments {
  float mean, squares;
};

/* Of all of a row's threads: a warp's first, about its own mean, then those of the warps by what their means differ, so that
 * nothing cancels and one barrier does. `sum` is of a thread's elements, squares (mean) of their squares about a mean. */
template <typename R, bool WARP, typename F>
static __device__ inline Moments
row_moments (const R &row, float inverse, float sum, float2 *parts, F squares)
{
  int warp = threadIdx.x / 32, other = threadIdx.x % MOST_ROW_WARPS;
  float total = warp_sum (sum), count = (float) row.in_warp (warp), own;

  if (WARP) {
    total *= inverse;
    return { total, warp_sum (squares (total)) };
  }
  own = warp_sum (squares (count > 0 ? __fdividef (total, count) : 0));
  if (threadIdx.x % 32 == 0)
    parts[warp] = make_float2 (total, own);
  __syncthreads ();
  float2 part = other < (int) blockDim.x / 32 ? parts[other] : float2{};
  float mean = half_warp_sum (part.x) * inverse;
  count = other < (int) blockDim.x / 32 ? (float) row.in_warp (other) : 0;
  float apart = count > 0 ? __fdividef (part.x, count) - mean : 0;
  return { mean, half_warp_sum (part.y + count * apart * apart) };
}

/* It is the raw pieces that are held: to turn them to floats again takes less than the registers would. */
template <int R, bool WARP, bool HALF, bool LAYERNORM>
static __global__ void
__launch_bounds__ (WARP ? 256 : 512) norm_held_kernel (Norm a)
{
  __shared__ float2 parts[MOST_ROW_WARPS];
  Row<R, WARP, HALF> row (a.n);
  Raw<8> raw[R];
  float mean = 0, squares;

  take_turn ();
  if (row.row >= a.m)
    return;
  row.fetch_all (a.x, raw);
  auto squares_about = [&] (float middle) {
    float sum = 0;
#pragma unroll
    for (int r = 0; r < R; r++)
      if (row.has (r)) {
        Vec<8> v = floats_of<8, HALF> (a.x, raw[r]);
#pragma unroll
        for (int l = 0; l < 8; l++)
          sum += LAYERNORM ? (v.x[l] - middle) * (v.x[l] - middle) : v.x[l] * v.x[l];
      }
    return sum;
  };
  if (LAYERNORM) {
    float sum = 0;
#pragma unroll
    for (int r = 0; r < R; r++)
      if (row.has (r)) {
        Vec<8> v = floats_of<8, HALF> (a.x, raw[r]);
#pragma unroll
        for (int l = 0; l < 8; l++)
          sum += v.x[l];
      }
    Moments moments = row_moments<Row<R, WARP, HALF>, WARP> (row, a.inverse, sum, parts, squares_about);
    mean = moments.mean;
    squares = moments.squares;
  } else
    squares = a.sum_of_squares != nullptr ? a.sum_of_squares[row.row] : row_total<WARP> (squares_about (0), parts);
  float scale = norm_scale (a, squares), shift = -mean * scale;
#pragma unroll
  for (int r = 0; r < R; r++)
    if (row.has (r)) {
      Vec<8> v = floats_of<8, HALF> (a.x, raw[r]), g = load_or<8, HALF> (a.gain, row.first (r), 1);
#pragma unroll
      for (int l = 0; l < 8; l++)
        v.x[l] = (LAYERNORM ? v.x[l] * scale + shift : v.x[l] * scale) * g.x[l];
      if (a.bias.data != nullptr) {
        Vec<8> b = load<8, HALF> (a.bias, row.first (r));
#pragma unroll
        for (int l = 0; l < 8; l++)
          v.x[l] += b.x[l];
      }
      store<8, HALF> (a.y, row.at + row.first (r), v);
    }
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
    /* What a thread does once weighs more where there are two sums: half as many, with twice the pieces. */
    if constexpr (!WARP && R == 2)
      if (a.layernorm)
        return start<4, WARP> (blocks, row_threads (a.n, 32, 256));
    auto kernel = a.layernorm
                      ? (is_half ? norm_held_kernel<R, WARP, true, true> : norm_held_kernel<R, WARP, false, true>)
                      : (is_half ? norm_held_kernel<R, WARP, true, false> : norm_held_kernel<R, WARP, false, false>);
    return launch_early (kernel, blocks, threads, 0, stream, a);
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

  Norm a = {
    layernorm,       m, n,   (float) (1.0 / (double) n), (float) (1.0 / (double) whole), x, gain, bias, sum_of_squares,
    (float) epsilon, y, stat
  };
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

#define SUM_PIECES 2 /* of a thread that are under way at once, where a block has a row */
#define WARP_SUM_PIECES 4
#define WARP_SUM_WARPS 8
#define MOST_WARP_SUM 2048 /* elements of a row that a warp sums */

/* Pieces from j on, `stride` elements apart, P of them under way at once. */
template <int V, bool HALF, bool PRODUCT, int P>
static __device__ inline float
sum_pieces (const RowSum &a, int64_t at, int64_t j, int64_t stride)
{
  float sum = 0;

  for (; j < a.n; j += P * stride) {
    Raw<V> x[P] = {}, dy[P] = {};
#pragma unroll
    for (int r = 0; r < P; r++)
      if (j + r * stride < a.n) {
        x[r] = fetch<V, HALF> (a.x, at + j + r * stride);
        if constexpr (PRODUCT)
          dy[r] = fetch<V, HALF> (a.dy, at + j + r * stride);
      }
#pragma unroll
    for (int r = 0; r < P; r++) {
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
  return sum;
}

template <int V, bool HALF, bool PRODUCT> static __global__ void __launch_bounds__ (256) row_sum_kernel (RowSum a)
{
  __shared__ float parts[32];
  int64_t at = blockIdx.x * a.n;

  take_turn ();
  float sum = block_sum (
      sum_pieces<V, HALF, PRODUCT, SUM_PIECES> (a, at, (int64_t) threadIdx.x * V, (int64_t) blockDim.x * V), parts);
  if (threadIdx.x == 0)
    a.out[blockIdx.x] = sum;
}

/* A row a warp: of short ones a block would have one only for as long as it takes to sum up its threads. */
template <bool PRODUCT> static __global__ void __launch_bounds__ (32 * WARP_SUM_WARPS) warp_sum_kernel (RowSum a)
{
  int64_t row = blockIdx.x * (int64_t) WARP_SUM_WARPS + threadIdx.x / 32;
  constexpr int P = PRODUCT ? WARP_SUM_PIECES / 2 : WARP_SUM_PIECES;

  take_turn ();
  if (row >= a.m)
    return;
  float sum = warp_sum (sum_pieces<8, true, PRODUCT, P> (a, row * a.n, threadIdx.x % 32 * 8, 32 * 8));
  if (threadIdx.x % 32 == 0)
    a.out[row] = sum;
}

template <bool PRODUCT>
static cudaError_t
row_sums (const RowSum &a, cudaStream_t stream)
{
  int width = width_of ({ a.n }, { a.dy, a.x, a.gain });
  bool is_half = width == 8 && are_half ({ a.dy, a.x, a.gain });
  auto kernel = width == 1 ? row_sum_kernel<1, false, PRODUCT>
                : is_half  ? row_sum_kernel<8, true, PRODUCT>
                           : row_sum_kernel<8, false, PRODUCT>;

  if (!are_floats ({ a.dy, a.x, a.gain }) || a.m > INT32_MAX)
    return cudaErrorInvalidValue;
  if (a.m == 0)
    return cudaSuccess;
  if (is_half && a.n <= MOST_WARP_SUM)
    return launch_early (warp_sum_kernel<PRODUCT>, dim3 ((unsigned) div_up (a.m, WARP_SUM_WARPS)), 32 * WARP_SUM_WARPS,
                         0, stream, a);
  return launch_early (kernel, dim3 ((unsigned) a.m), row_threads (a.n > 0 ? a.n : 1, width, 256), 0, stream, a);
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
#define SUM_LOADS 4          /* of a warp that are under way at once */
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

  take_turn ();
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

/* Where there are columns enough for most of a card, a block has some of them, all rows: one kernel. */
#define COLUMN_THREADS 1024
#define COLUMN_WARPS (COLUMN_THREADS / 32)
#define COLUMN_BLOCKS 132 /* of an H100, whatever the card, so that sums have one order */
#define LEAST_COLUMN_BLOCKS 100

/* Lanes that share a row, each with 8 columns: so that there are as many blocks, or the fewest that are more. */
static int
column_lanes (int64_t n)
{
  int lanes = 4;

  while (lanes < 32 && div_up (n, 8 * lanes) > COLUMN_BLOCKS)
    lanes *= 2;
  return lanes;
}

static __global__ void
__launch_bounds__ (COLUMN_THREADS) column_once_kernel (int64_t m, int64_t n, int lanes, SpDevTensor x, SpDevTensor out)
{
  __shared__ float sums[COLUMN_WARPS][32][8 + 1];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, step = COLUMN_THREADS / lanes;
  int64_t column = ((int64_t) blockIdx.x * lanes + lane % lanes) * 8, at = blockIdx.z * m * n + column;
  Vec<8> sum = {};

  take_turn ();
  for (int64_t i = threadIdx.x / lanes; i < m && column < n; i += SUM_LOADS * step) {
    Raw<8> raw[SUM_LOADS];
#pragma unroll
    for (int r = 0; r < SUM_LOADS; r++)
      if (i + r * step < m)
        raw[r] = fetch<8, true> (x, at + (i + r * step) * n);
#pragma unroll
    for (int r = 0; r < SUM_LOADS; r++)
      if (i + r * step < m) {
        Vec<8> v = floats_of<8, true> (x, raw[r]);
#pragma unroll
        for (int l = 0; l < 8; l++)
          sum.x[l] += v.x[l];
      }
  }
#pragma unroll
  for (int l = 0; l < 8; l++) {
    for (int offset = lanes; offset < 32; offset *= 2)
      sum.x[l] += __shfl_xor_sync (0xffffffffu, sum.x[l], offset);
    sums[warp][lane][l] = sum.x[l];
  }
  __syncthreads ();
  if ((int) threadIdx.x >= 8 * lanes)
    return;
  int64_t own = (int64_t) blockIdx.x * 8 * lanes + threadIdx.x;
  float all = 0;
#pragma unroll 8
  for (int w = 0; w < COLUMN_WARPS; w++)
    all += sums[w][threadIdx.x / 8][threadIdx.x % 8];
  if (own < n)
    store1 (out, blockIdx.z * n + own, load1 (out, blockIdx.z * n + own) + all);
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

  int lanes = column_lanes (n);
  int64_t once = div_up (n, 8 * lanes);
  if (width == 8 && x.dtype == SP_DEV_BF16 && once * batch >= LEAST_COLUMN_BLOCKS)
    return launch_early (column_once_kernel, dim3 ((unsigned) once, 1, (unsigned) batch), COLUMN_THREADS, 0, stream, m,
                         n, lanes, x, out);
  auto kernel = width == 1               ? column_sum_kernel<1, false>
                : x.dtype == SP_DEV_BF16 ? column_sum_kernel<8, true>
                                         : column_sum_kernel<8, false>;
  cudaError_t error = launch_early (kernel, dim3 ((unsigned) blocks, (unsigned) pieces, (unsigned) batch),
                                    32 * SUM_ROWS, 0, stream, m, n, rows, x, (float *) scratch);
  if (error == cudaSuccess)
    error = add_parts ({ (const float *) scratch, pieces, n, { n }, { out }, { 0 } }, 1, batch, stream);
  return error;
}
