/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short causal convolution before a recurrence, with its silu. A thread has some features of one sequence and goes
 * through a run of tokens: the rows that it sees again stay in registers. Sums over tokens are of two passes.
 */
#include "kernels/device-parts.cuh"

#define CONV_THREADS 128
#define MOST_WIDTH 4
#define MOST_RUNS 256 /* whatever the card, so that sums have one order */
#define LEAST_RUN 16

struct Conv {
  int64_t m, row, n; /* row: batch * n */
  int64_t run;       /* tokens of a thread */
  SpDevTensor x, weight, bias, halo, out;
  SpDevTensor d_out, dx, dhalo; /* of the backward */
  float *parts;                 /* [runs,batch,n (width + 1)]: of dweight, then dbias */
};

static __device__ inline float
sigmoid (float x)
{
  return 1 / (1 + expf (-x));
}

/* Token t's features, t from 1 - width on. */
template <int V, int W>
static __device__ inline Vec<V>
conv_row (const Conv &c, int64_t t, int64_t column)
{
  return t >= 0 ? load<V> (c.x, t * c.row + column) : load_or<V> (c.halo, (t + W - 1) * c.row + column, 0);
}

template <int V, int W> struct Window {
  Vec<V> x[W], weight[W], bias;

  __device__ Window (const Conv &c, int64_t t, int64_t column)
  {
    int64_t feature = column % c.n;

    bias = load_or<V> (c.bias, feature, 0);
#pragma unroll
    for (int j = 0; j < W; j++) {
      x[j] = j > 0 ? conv_row<V, W> (c, t - W + j, column) : Vec<V>{};
#pragma unroll
      for (int l = 0; l < V; l++)
        weight[j].x[l] = load1 (c.weight, (feature + l) * W + j);
    }
  }
  /* The next token's. */
  __device__ void push (const Vec<V> &next)
  {
#pragma unroll
    for (int j = 0; j + 1 < W; j++)
      x[j] = x[j + 1];
    x[W - 1] = next;
  }
  __device__ float sum (int l) const
  {
    float s = bias.x[l];
#pragma unroll
    for (int j = 0; j < W; j++)
      s += weight[j].x[l] * x[j].x[l];
    return s;
  }
};

template <int V, int W>
static __global__ void
__launch_bounds__ (CONV_THREADS) conv_kernel (Conv c)
{
  int64_t column = ((int64_t) blockIdx.x * CONV_THREADS + threadIdx.x) * V, first = blockIdx.y * c.run;
  int64_t end = min (first + c.run, c.m);

  if (column >= c.row)
    return;
  Window<V, W> window (c, first, column);
#pragma unroll 4
  for (int64_t t = first; t < end; t++) {
    Vec<V> y;

    window.push (load<V> (c.x, t * c.row + column));
#pragma unroll
    for (int l = 0; l < V; l++) {
      float s = window.sum (l);
      y.x[l] = s * sigmoid (s);
    }
    store<V> (c.out, t * c.row + column, y);
  }
}

/* Of d, the gradient before the silu: dx of a token is of it and the width - 1 after it. */
template <int V, int W>
static __global__ void
__launch_bounds__ (CONV_THREADS) conv_bwd_kernel (Conv c)
{
  int64_t column = ((int64_t) blockIdx.x * CONV_THREADS + threadIdx.x) * V, first = blockIdx.y * c.run;
  int64_t end = min (first + c.run, c.m);
  Vec<V> d[W] = {}, dweight[W] = {}, dbias = {};

  release_next ();
  if (column >= c.row)
    return;
  Window<V, W> window (c, first, column);
#pragma unroll 2
  for (int64_t t = first; t < end + W - 1; t++) {
    int64_t to = t - W + 1;
    Vec<V> dx = {};

#pragma unroll
    for (int j = 0; j + 1 < W; j++)
      d[j] = d[j + 1];
    d[W - 1] = {};
    if (t < c.m) {
      Vec<V> dy = load<V> (c.d_out, t * c.row + column);
      window.push (load<V> (c.x, t * c.row + column));
#pragma unroll
      for (int l = 0; l < V; l++) {
        float s = window.sum (l), share = sigmoid (s);
        d[W - 1].x[l] = dy.x[l] * (share + s * share * (1 - share));
        if (t < end) {
          dbias.x[l] += d[W - 1].x[l];
#pragma unroll
          for (int j = 0; j < W; j++)
            dweight[j].x[l] += d[W - 1].x[l] * window.x[j].x[l];
        }
      }
    }
    if (to < first && (first > 0 || c.dhalo.data == nullptr))
      continue;
#pragma unroll
    for (int j = 0; j < W; j++)
#pragma unroll
      for (int l = 0; l < V; l++)
        dx.x[l] += d[W - 1 - j].x[l] * window.weight[j].x[l];
    if (to >= 0)
      store<V> (c.dx, to * c.row + column, dx);
    else
      store<V> (c.dhalo, (to + W - 1) * c.row + column, dx);
  }
  float *part = c.parts + ((int64_t) blockIdx.y * (c.row / c.n) + column / c.n) * c.n * (W + 1);
#pragma unroll
  for (int l = 0; l < V; l++) {
    int64_t feature = column % c.n + l;
#pragma unroll
    for (int j = 0; j < W; j++)
      part[feature * W + j] = dweight[j].x[l];
    part[c.n * W + feature] = dbias.x[l];
  }
}

static int64_t
run_of (int64_t m)
{
  int64_t run = div_up (m, MOST_RUNS);

  return run < LEAST_RUN ? LEAST_RUN : run;
}

template <int V, int W>
static cudaError_t
run (const Conv &c, bool backward, cudaStream_t stream)
{
  dim3 grid ((unsigned) div_up (c.row, CONV_THREADS * V), (unsigned) div_up (c.m, c.run));

  return launch (backward ? conv_bwd_kernel<V, W> : conv_kernel<V, W>, grid, CONV_THREADS, 0, stream, c);
}

template <int V>
static cudaError_t
run_width (const Conv &c, int64_t width, bool backward, cudaStream_t stream)
{
  return width == 1   ? run<V, 1> (c, backward, stream)
         : width == 2 ? run<V, 2> (c, backward, stream)
         : width == 3 ? run<V, 3> (c, backward, stream)
                      : run<V, 4> (c, backward, stream);
}

cudaError_t
sp_dev_conv (int64_t m, int64_t batch, int64_t n, int64_t width, SpDevTensor x, SpDevTensor weight, SpDevTensor bias,
             SpDevTensor halo, SpDevTensor out, cudaStream_t stream)
{
  Conv c = { m, batch * n, n, run_of (m), x, weight, bias, halo, out, {}, {}, {}, nullptr };

  if (width < 1 || width > MOST_WIDTH || !are_floats ({ x, weight, bias, halo, out }))
    return cudaErrorInvalidValue;
  if (m == 0 || c.row == 0)
    return cudaSuccess;
  return width_of ({ n }, { x, bias, halo, out }) == 8 ? run_width<8> (c, width, false, stream)
                                                       : run_width<1> (c, width, false, stream);
}

size_t
sp_dev_conv_bwd_scratch_bytes (int64_t m, int64_t batch, int64_t n, int64_t width)
{
  return (size_t) (div_up (m, run_of (m)) * batch * n * (width + 1)) * sizeof (float);
}

cudaError_t
sp_dev_conv_bwd (int64_t m, int64_t batch, int64_t n, int64_t width, SpDevTensor d_out, SpDevTensor x,
                 SpDevTensor weight, SpDevTensor bias, SpDevTensor halo, SpDevTensor dx, SpDevTensor dweight,
                 SpDevTensor dbias, SpDevTensor dhalo, void *scratch, cudaStream_t stream)
{
  Conv c = { m, batch * n, n, run_of (m), x, weight, bias, halo, {}, d_out, dx, dhalo, (float *) scratch };
  int64_t parts = div_up (m, c.run) * batch, stride = n * (width + 1);

  if (width < 1 || width > MOST_WIDTH || !are_floats ({ d_out, x, weight, bias, halo, dx, dweight, dbias, dhalo }))
    return cudaErrorInvalidValue;
  if (m == 0 || c.row == 0)
    return cudaSuccess;
  cudaError_t error = width_of ({ n }, { d_out, x, bias, halo, dx, dhalo }) == 8
                          ? run_width<8> (c, width, true, stream)
                          : run_width<1> (c, width, true, stream);
  if (error == cudaSuccess)
    error = add_parts ({ c.parts, parts, stride, n * width, { dweight, {} }, { 0, 0 } }, 1, 1, stream);
  if (error == cudaSuccess && is_present (dbias))
    error = add_parts ({ c.parts, parts, stride, n, { dbias, {} }, { n * width, 0 } }, 1, 1, stream);
  return error;
}
