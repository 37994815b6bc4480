/* SPDX-License-Identifier: Apache-2.0 */
/* Decays of a recurrence, and the skip past it. */
#include "kernels/device-parts.cuh"
#include "kernels/device-quads.cuh"
#include "kernels/device-unary.cuh"

/* --- rows that a thread goes through: it has V columns of them --------------------------------------------------- */

#define WALK_WARPS 8

/* Lanes of a warp that share a row: all, or fewer where it is short. */
static int
row_lanes (int64_t n, int width)
{
  int lanes = 1;

  while (lanes < 32 && lanes * width < n)
    lanes *= 2;
  return lanes;
}

/* Of a thread. */
struct Walk {
  int64_t column, row, end;
  int step; /* rows of a block at once */
  bool is_there;

  __device__ Walk (int64_t m, int64_t n, int width, int lanes, int64_t rows)
  {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    column = ((int64_t) blockIdx.x * lanes + lane % lanes) * width;
    is_there = column < n;
    column = is_there ? column : 0;
    step = WALK_WARPS * 32 / lanes;
    row = blockIdx.y * rows + warp * (32 / lanes) + lane / lanes;
    end = min ((blockIdx.y + 1) * rows, m);
  }
};

/* --- decays ------------------------------------------------------------------------------------------------------- */

#define GATE_NORMALIZER 16

/* Of V columns: -exp (log_rate) of their heads, `each` columns a head. */
template <int V>
static __device__ inline Vec<V>
rates_of (SpDevTensor log_rate, int64_t column, int64_t each)
{
  Vec<V> rate;

  if (each == 1)
    rate = load<V> (log_rate, column);
  else
#pragma unroll
    for (int l = 0; l < V; l++)
      rate.x[l] = load1 (log_rate, divide (column + l, each));
#pragma unroll
  for (int l = 0; l < V; l++)
    rate.x[l] = -expf (rate.x[l]);
  return rate;
}

struct Decay {
  int64_t m, n, each, rows; /* each: columns of a head; rows: of a block */
  int lanes;                /* of a row */
  SpDevTensor raw, bias, log_rate, gates, steps;
};

#define DECAY_ROWS 4 /* of a thread at once */

/* V columns of some rows. */
template <int V, bool RATES> static __global__ void __launch_bounds__ (32 * WALK_WARPS) decay_kernel (Decay a)
{
  take_turn ();
  Walk walk (a.m, a.n, V, a.lanes, a.rows);
  Vec<V> bias = load_or<V> (a.bias, walk.column, 0), rate = {};

  if (RATES)
    rate = rates_of<V> (a.log_rate, walk.column, a.each);
  for (int64_t row = walk.row; row < walk.end && walk.is_there; row += DECAY_ROWS * walk.step) {
    Raw<V> raw[DECAY_ROWS];

#pragma unroll
    for (int p = 0; p < DECAY_ROWS; p++)
      raw[p] = fetch<V> (a.raw, min (row + p * walk.step, walk.end - 1) * a.n + walk.column);
#pragma unroll
    for (int p = 0; p < DECAY_ROWS; p++) {
      Vec<V> x = floats_of<V> (a.raw, raw[p]), step, gate;
      int64_t i = (row + p * walk.step) * a.n + walk.column;
      if (row + p * walk.step >= walk.end)
        break;
#pragma unroll
      for (int l = 0; l < V; l++) {
        float own = x.x[l] + bias.x[l], log1 = log_of_1_and (exp2_fast (-LOG2_E * fabsf (own)));
        step.x[l] = fmaxf (own, 0) + log1;
        gate.x[l] = RATES ? rate.x[l] * step.x[l] : (fminf (own, 0) - log1) / GATE_NORMALIZER;
      }
      if (a.steps.data != nullptr)
        store<V> (a.steps, i, step);
      if (a.gates.data != nullptr)
        store<V> (a.gates, i, gate);
    }
  }
}

cudaError_t
sp_dev_decay (int64_t m, int64_t n, int64_t heads, SpDevTensor raw, SpDevTensor bias, SpDevTensor log_rate,
              SpDevTensor gates, SpDevTensor steps, cudaStream_t stream)
{
  int width = width_of ({ n }, { raw, bias, log_rate, gates, steps }) == 8 ? 4 : 1, lanes = row_lanes (n, width);
  bool has_rates = is_present (log_rate);

  if (!are_floats ({ raw, bias, log_rate, gates, steps }) || heads <= 0 || n % heads != 0)
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return cudaSuccess;
  Decay a = { m, n, n / heads, rows_per_block (m), lanes, raw, bias, log_rate, gates, steps };
  auto kernel = width == 4 ? (has_rates ? decay_kernel<4, true> : decay_kernel<4, false>)
                           : (has_rates ? decay_kernel<1, true> : decay_kernel<1, false>);
  return launch_early (kernel, dim3 ((unsigned) div_up (n, lanes * width), (unsigned) row_blocks (m)), 32 * WALK_WARPS,
                       0, stream, a);
}

#define SUM_ROWS 2 /* of a thread at once */

/* V sums of each thread over those that have its columns, in one order: lanes first, then warps. The first warp's first
 * lanes get them. */
template <int V>
static __device__ inline Vec<V>
sum_walks (Vec<V> own, int lanes, float (*shared)[32][V])
{
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

#pragma unroll
  for (int l = 0; l < V; l++) {
    for (int offset = lanes; offset < 32; offset *= 2)
      own.x[l] += __shfl_xor_sync (0xffffffffu, own.x[l], offset);
    shared[warp][lane][l] = own.x[l];
  }
  __syncthreads ();
  if (warp == 0)
#pragma unroll
    for (int l = 0; l < V; l++)
      for (int w = 1; w < WALK_WARPS; w++)
        own.x[l] += shared[w][lane][l];
  return own;
}

struct DecayBwd {
  int64_t m, n, each, rows; /* rows: of a block */
  int lanes;                /* of a row */
  SpDevTensor raw, bias, log_rate, dgates, dsteps, draw;
  float *biases, *rates; /* [blocks,n], [blocks,each,heads] */
};

/* Of one row; adds to the sums. */
template <int V, bool RATES>
static __device__ inline Vec<V>
decay_back (const Vec<V> &raw, const Vec<V> &bias, const Vec<V> &rate, const Vec<V> &dgate, const Vec<V> &dstep,
            Vec<V> *biases, Vec<V> *rates)
{
  Vec<V> d;

#pragma unroll
  for (int l = 0; l < V; l++) {
    float x = raw.x[l] + bias.x[l], e = exp2_fast (-LOG2_E * fabsf (x)), r = reciprocal_fast (1 + e);
    float slope = x > 0 ? r : e * r, other = x > 0 ? e * r : r; /* sigmoids of x and -x */

    if (RATES) {
      d.x[l] = (dstep.x[l] + rate.x[l] * dgate.x[l]) * slope;
      rates->x[l] += rate.x[l] * (fmaxf (x, 0) + log_of_1_and (e)) * dgate.x[l];
    } else
      d.x[l] = dstep.x[l] * slope + dgate.x[l] * (other / GATE_NORMALIZER);
    biases->x[l] += d.x[l];
  }
  return d;
}

/* HALF: raw, its bias and gradient are bf16, the others fp32. STEPS: they have a gradient. */
template <int V, bool HALF, bool RATES, bool STEPS>
static __global__ void __launch_bounds__ (32 * WALK_WARPS, HALF && !RATES ? 3 : 2) decay_bwd_kernel (DecayBwd a)
{
  __shared__ float shared[2][WALK_WARPS][32][V];
  take_turn ();
  Walk walk (a.m, a.n, V, a.lanes, a.rows);
  Vec<V> bias = load_or<V, HALF> (a.bias, walk.column, 0), rate = {}, biases = {}, rates = {};

  if (RATES)
    rate = rates_of<V> (a.log_rate, walk.column, a.each);
  for (int64_t row = walk.row; row < walk.end && walk.is_there; row += SUM_ROWS * walk.step) {
    Raw<V> raw[SUM_ROWS], dgate[SUM_ROWS] = {}, dstep[SUM_ROWS] = {};

#pragma unroll
    for (int p = 0; p < SUM_ROWS; p++) {
      int64_t i = min (row + p * walk.step, walk.end - 1) * a.n + walk.column;
      raw[p] = fetch<V, HALF> (a.raw, i);
      if (a.dgates.data != nullptr)
        dgate[p] = fetch<V> (a.dgates, i);
      if (STEPS)
        dstep[p] = fetch<V> (a.dsteps, i);
    }
#pragma unroll
    for (int p = 0; p < SUM_ROWS; p++) {
      if (row + p * walk.step >= walk.end)
        break;
      Vec<V> d =
          decay_back<V, RATES> (floats_of<V, HALF> (a.raw, raw[p]), bias, rate, floats_of<V> (a.dgates, dgate[p]),
                                floats_of<V> (a.dsteps, dstep[p]), &biases, &rates);
      store<V, HALF> (a.draw, (row + p * walk.step) * a.n + walk.column, d);
    }
  }
  biases = sum_walks<V> (biases, a.lanes, shared[0]);
  if (RATES)
    rates = sum_walks<V> (rates, a.lanes, shared[1]);
  if (threadIdx.x >= a.lanes || !walk.is_there)
    return;
#pragma unroll
  for (int l = 0; l < V; l++) {
    int64_t column = walk.column + l, head = divide (column, a.each);
    a.biases[blockIdx.y * a.n + column] = biases.x[l];
    if (RATES)
      a.rates[(blockIdx.y * a.each + column - head * a.each) * (a.n / a.each) + head] = rates.x[l];
  }
}

size_t
sp_dev_decay_bwd_scratch_bytes (int64_t m, int64_t n)
{
  return (size_t) (2 * row_blocks (m) * n) * sizeof (float);
}

template <int V, bool HALF>
static auto
decay_bwd_kernel_of (bool has_rates, bool has_steps)
{
  return has_rates ? (has_steps ? decay_bwd_kernel<V, HALF, true, true> : decay_bwd_kernel<V, HALF, true, false>)
                   : (has_steps ? decay_bwd_kernel<V, HALF, false, true> : decay_bwd_kernel<V, HALF, false, false>);
}

/* Where each column is a head, both sums are of as many parts, and one kernel adds them up. */
static cudaError_t
add_decay_parts (const DecayBwd &a, int64_t blocks, SpDevTensor dbias, SpDevTensor dlog_rate, cudaStream_t stream)
{
  bool has_bias = is_present (dbias), has_rate = is_present (dlog_rate) && is_present (a.log_rate);
  cudaError_t error = cudaSuccess;

  if (has_bias && has_rate && a.each == 1)
    return add_parts ({ a.biases, blocks, a.n, { a.n, a.n }, { dbias, dlog_rate }, { 0, a.rates - a.biases } }, 2, 1,
                      stream);
  if (has_bias)
    error = add_parts ({ a.biases, blocks, a.n, { a.n }, { dbias }, { 0 } }, 1, 1, stream);
  if (error == cudaSuccess && has_rate)
    error =
        add_parts ({ a.rates, blocks * a.each, a.n / a.each, { a.n / a.each }, { dlog_rate }, { 0 } }, 1, 1, stream);
  return error;
}

cudaError_t
sp_dev_decay_bwd (int64_t m, int64_t n, int64_t heads, SpDevTensor raw, SpDevTensor bias, SpDevTensor log_rate,
                  SpDevTensor dgates, SpDevTensor dsteps, SpDevTensor draw, SpDevTensor dbias, SpDevTensor dlog_rate,
                  void *scratch, cudaStream_t stream)
{
  int64_t blocks = row_blocks (m);
  int width = width_of ({ n }, { raw, bias, log_rate, dgates, dsteps, draw }), lanes = row_lanes (n, width);
  bool has_rates = is_present (log_rate);

  if (!are_floats ({ raw, bias, log_rate, dgates, dsteps, draw, dbias, dlog_rate }) || heads <= 0 || n % heads != 0)
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return cudaSuccess;
  DecayBwd a = { m,
                 n,
                 n / heads,
                 rows_per_block (m),
                 lanes,
                 raw,
                 bias,
                 log_rate,
                 dgates,
                 dsteps,
                 draw,
                 (float *) scratch,
                 (float *) scratch + blocks * n };
  bool is_half = are_half ({ raw, bias, draw }), has_steps = is_present (dsteps);
  auto kernel = width == 8 && is_half ? decay_bwd_kernel_of<8, true> (has_rates, has_steps)
                : width == 8          ? decay_bwd_kernel_of<8, false> (has_rates, has_steps)
                                      : decay_bwd_kernel_of<1, false> (has_rates, has_steps);
  cudaError_t error = launch_early (kernel, dim3 ((unsigned) div_up (n, lanes * width), (unsigned) blocks),
                                    32 * WALK_WARPS, 0, stream, a);
  return error == cudaSuccess ? add_decay_parts (a, blocks, dbias, dlog_rate, stream) : error;
}

/* --- skip --------------------------------------------------------------------------------------------------------- */

/* Of o or dv and of values or d_o: out = x + scale * y. */
struct Skip {
  int64_t heads, n;
  SpDevTensor x, y, scale, out;

  template <int V> __device__ void at (int64_t i) const
  {
    float s = load1 (scale, divide (i, n) % heads);
    Vec<V> a = load<V> (x, i), b = load<V> (y, i);

#pragma unroll
    for (int l = 0; l < V; l++)
      a.x[l] += s * b.x[l];
    store<V> (out, i, a);
  }
};

cudaError_t
sp_dev_skip (int64_t m, int64_t heads, int64_t n, SpDevTensor o, SpDevTensor values, SpDevTensor scale, SpDevTensor out,
             cudaStream_t stream)
{
  if (!are_floats ({ o, values, scale, out }))
    return cudaErrorInvalidValue;
  return each (Skip{ heads, n, o, values, scale, out }, m * heads * n, width_of ({ n }, { o, values, out }), stream);
}

#define SKIP_THREADS 256

/* d_o times values of some rows of a head, by blocks; V neighbours a thread. */
template <int V>
static __global__ void
__launch_bounds__ (SKIP_THREADS) skip_sums_kernel (int64_t m, int64_t heads, int64_t n, int64_t rows, SpDevTensor d,
                                                   SpDevTensor values, float *parts)
{
  __shared__ float sums[32];
  int64_t head = blockIdx.x, first = blockIdx.y * rows, count = (min (first + rows, m) - first) * n / V;
  float sum = 0;

  take_turn ();
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < count; i += SKIP_THREADS) {
    int64_t row = divide (i, n / V), at = ((first + row) * heads + head) * n + (i - row * (n / V)) * V;
    Vec<V> x = load<V> (d, at), y = load<V> (values, at);
#pragma unroll
    for (int l = 0; l < V; l++)
      sum += x.x[l] * y.x[l];
  }
  sum = block_sum (sum, sums);
  if (threadIdx.x == 0)
    parts[blockIdx.y * heads + head] = sum;
}

/* The backward in one pass, where a head's columns are neighbouring lanes: its gradients by rows as Skip has them, and
 * d times values on the way. */
struct SkipBwd {
  int64_t m, heads, n, rows; /* rows: of a block */
  int lanes;                 /* of a row */
  SpDevTensor d, values, scale, dvalues, out;
  float *parts; /* [blocks,heads] */
};

template <bool HALF>
static __global__ void __launch_bounds__ (32 * WALK_WARPS, HALF ? 3 : 2) skip_bwd_kernel (SkipBwd a)
{
  __shared__ float shared[WALK_WARPS][32][1];
  take_turn ();
  Walk walk (a.m, a.heads * a.n, 8, a.lanes, a.rows);
  int64_t row_elements = a.heads * a.n, head = divide (walk.column, a.n);
  float scale = load1 (a.scale, head);
  Vec<1> sum = {};

  for (int64_t row = walk.row; row < walk.end && walk.is_there; row += SUM_ROWS * walk.step) {
    Raw<8> d[SUM_ROWS], value[SUM_ROWS], dvalue[SUM_ROWS];

#pragma unroll
    for (int p = 0; p < SUM_ROWS; p++) {
      int64_t i = min (row + p * walk.step, walk.end - 1) * row_elements + walk.column;
      d[p] = fetch<8, HALF> (a.d, i);
      value[p] = fetch<8, HALF> (a.values, i);
      dvalue[p] = fetch<8, HALF> (a.dvalues, i);
    }
#pragma unroll
    for (int p = 0; p < SUM_ROWS; p++) {
      if (row + p * walk.step >= walk.end)
        break;
      Vec<8> x = floats_of<8, HALF> (a.d, d[p]), v = floats_of<8, HALF> (a.values, value[p]);
      Vec<8> dv = floats_of<8, HALF> (a.dvalues, dvalue[p]);
#pragma unroll
      for (int l = 0; l < 8; l++) {
        sum.x[0] += x.x[l] * v.x[l];
        dv.x[l] += scale * x.x[l];
      }
      store<8, HALF> (a.out, (row + p * walk.step) * row_elements + walk.column, dv);
    }
  }
  for (int offset = 1; offset < a.n / 8; offset *= 2)
    sum.x[0] += __shfl_xor_sync (0xffffffffu, sum.x[0], offset);
  sum = sum_walks<1> (sum, a.lanes, shared);
  if (threadIdx.x < a.lanes && walk.is_there && walk.column == head * a.n)
    a.parts[blockIdx.y * a.heads + head] = sum.x[0];
}

static bool
has_head_lanes (int64_t n, int width)
{
  return width == 8 && n <= 256 && (n & (n - 1)) == 0;
}

size_t
sp_dev_skip_bwd_scratch_bytes (int64_t m, int64_t heads)
{
  return (size_t) (row_blocks (m) * heads) * sizeof (float);
}

cudaError_t
sp_dev_skip_bwd (int64_t m, int64_t heads, int64_t n, SpDevTensor d, SpDevTensor values, SpDevTensor scale,
                 SpDevTensor dvalues, SpDevTensor out, SpDevTensor dscale, void *scratch, cudaStream_t stream)
{
  int64_t blocks = row_blocks (m), rows = rows_per_block (m);
  int width = width_of ({ n }, { d, values, dvalues, out }), lanes = row_lanes (heads * n, width);
  AddParts parts = { (const float *) scratch, blocks, heads, { heads }, { dscale }, { 0 } };
  cudaError_t error;

  if (!are_floats ({ d, values, scale, dvalues, out, dscale }))
    return cudaErrorInvalidValue;
  if (m * heads * n == 0)
    return cudaSuccess;
  if (has_head_lanes (n, width)) {
    SkipBwd a = { m, heads, n, rows, lanes, d, values, scale, dvalues, out, (float *) scratch };
    auto kernel = are_half ({ d, values, dvalues, out }) ? skip_bwd_kernel<true> : skip_bwd_kernel<false>;
    error = launch_early (kernel, dim3 ((unsigned) div_up (heads * n, 8 * lanes), (unsigned) blocks), 32 * WALK_WARPS,
                          0, stream, a);
    return error == cudaSuccess ? add_parts (parts, 1, 1, stream) : error;
  }
  error =
      launch_early (width == 8 ? skip_sums_kernel<8> : skip_sums_kernel<1>, dim3 ((unsigned) heads, (unsigned) blocks),
                    SKIP_THREADS, 0, stream, m, heads, n, rows, d, values, (float *) scratch);
  if (error == cudaSuccess)
    error = add_parts (parts, 1, 1, stream);
  if (error == cudaSuccess)
    error = each (Skip{ heads, n, dvalues, d, scale, out }, m * heads * n, width, stream);
  return error;
}
