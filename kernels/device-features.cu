/* SPDX-License-Identifier: Apache-2.0 */
/* What stands around a recurrence: the maps to q, keys and values, the decays, the skip past it. */
#include "kernels/device-parts.cuh"

static __device__ inline float
sigmoid (float x)
{
  return 1 / (1 + expf (-x));
}

static __device__ inline float
silu (float x)
{
  return x * sigmoid (x);
}

static __device__ inline float
silu_slope (float x)
{
  float s = sigmoid (x);
  return s + x * s * (1 - s);
}

/* --- q, keys, values ---------------------------------------------------------------------------------------------- */

struct KeyMap {
  int64_t m, k, keys, values; /* keys, values: features of all heads */
  unsigned map;
  double log2_theta;
  const int32_t *pos;
  SpDevTensor qkv, side[3]; /* of the backward side: dq, dkeys, dvalues; qkv may be absent where no map needs it */
  SpDevTensor dqkv;
  bool backward;

  /* Element by element. */
  template <int V> __device__ void at (int64_t i) const
  {
    int64_t width = 2 * keys + values, row = divide (i, width), column = i - row * width;
    int which = column < keys ? 0 : column < 2 * keys ? 1 : 2;
    int64_t own = which < 2 ? row * keys + column - which * keys : row * values + column - 2 * keys;
    SpDevTensor to = which == 0 ? side[0] : which == 1 ? side[1] : side[2];
    bool is_mapped = map & (which < 2 ? SP_DEV_MAP_SILU : SP_DEV_MAP_SILU_VALUES);
    Vec<V> x = load_or<V> (backward && !is_mapped ? SpDevTensor{} : qkv, i, 0);

    if (backward) {
      Vec<V> d = load<V> (to, own);
#pragma unroll
      for (int l = 0; l < V; l++)
        d.x[l] *= is_mapped ? silu_slope (x.x[l]) : 1;
      store<V> (dqkv, i, d);
      return;
    }
#pragma unroll
    for (int l = 0; l < V; l++)
      x.x[l] = is_mapped ? silu (x.x[l]) : x.x[l];
    store<V> (to, own, x);
  }
};

#define L2_EPSILON 1e-6f
#define MAP_WARPS 8
#define MAP_PIECES 4 /* of 64 features of half a head: up to 512 */

/* A head of queries or keys a warp: of both halves a lane has every 64 features two neighbours. */
struct HeadRow {
  float x[MAP_PIECES][2][2]; /* half, neighbour */
};

template <typename G>
static __device__ inline void
head_each (int64_t k, G g)
{
#pragma unroll
  for (int r = 0; r < MAP_PIECES; r++)
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        int i = 64 * r + 2 * (int) (threadIdx.x % 32) + e;
        if (i < k / 2)
          g (r, half, e, half * k / 2 + i);
      }
}

/* By the row's position or, backward, against it. */
static __device__ inline void
head_turn (const KeyMap &a, int64_t row, HeadRow &h)
{
  const double turn = 0.15915494309189535; /* 1 / (2 pi) */

#pragma unroll
  for (int r = 0; r < MAP_PIECES; r++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      int i = 64 * r + 2 * (int) (threadIdx.x % 32) + e;
      float sine, cosine, low = h.x[r][0][e], high = h.x[r][1][e];
      if (i >= a.k / 2)
        continue;
      double turns = a.pos[row] * (turn * exp2 (-2.0 * i / (double) a.k * a.log2_theta));
      sincospif (2 * (float) (turns - rint (turns)), &sine, &cosine);
      sine = a.backward ? -sine : sine;
      h.x[r][0][e] = low * cosine - high * sine;
      h.x[r][1][e] = high * cosine + low * sine;
    }
}

static __device__ inline void
head_forward (const KeyMap &a, int64_t row, int64_t from, SpDevTensor to, int64_t at)
{
  HeadRow h = {};
  float squares = 0;

  head_each (a.k, [&] (int r, int half, int e, int64_t i) {
    float x = load1 (a.qkv, from + i);
    h.x[r][half][e] = a.map & SP_DEV_MAP_SILU ? silu (x) : x;
    squares += h.x[r][half][e] * h.x[r][half][e];
  });
  float scale = a.map & SP_DEV_MAP_L2 ? 1 / sqrtf (warp_sum (squares) + L2_EPSILON) : 1;
  head_each (a.k, [&] (int r, int half, int e, int64_t) { h.x[r][half][e] *= scale; });
  if (a.map & SP_DEV_MAP_ROTATE)
    head_turn (a, row, h);
  head_each (a.k, [&] (int r, int half, int e, int64_t i) { store1 (to, at + i, h.x[r][half][e]); });
}

static __device__ inline void
head_backward (const KeyMap &a, int64_t row, int64_t to, SpDevTensor from, int64_t at)
{
  HeadRow d = {}, x = {};
  bool has_input = a.map & (SP_DEV_MAP_SILU | SP_DEV_MAP_L2);
  float squares = 0, dot = 0;

  head_each (a.k, [&] (int r, int half, int e, int64_t i) {
    d.x[r][half][e] = load1 (from, at + i);
    x.x[r][half][e] = has_input ? load1 (a.qkv, to + i) : 0;
  });
  if (a.map & SP_DEV_MAP_ROTATE)
    head_turn (a, row, d);
  head_each (a.k, [&] (int r, int half, int e, int64_t) {
    float y = a.map & SP_DEV_MAP_SILU ? silu (x.x[r][half][e]) : x.x[r][half][e];
    squares += y * y;
    dot += y * d.x[r][half][e];
  });
  squares = warp_sum (squares) + L2_EPSILON;
  dot = warp_sum (dot);
  float scale = 1 / sqrtf (squares);
  head_each (a.k, [&] (int r, int half, int e, int64_t i) {
    float own = x.x[r][half][e], y = a.map & SP_DEV_MAP_SILU ? silu (own) : own, dx = d.x[r][half][e];
    dx = a.map & SP_DEV_MAP_L2 ? (dx - y * dot / squares) * scale : dx;
    store1 (a.dqkv, to + i, a.map & SP_DEV_MAP_SILU ? dx * silu_slope (own) : dx);
  });
}

/* Heads of queries, then of keys, then the values, in pieces as long as a head. */
static __global__ void __launch_bounds__ (32 * MAP_WARPS) key_map_kernel (KeyMap a)
{
  int64_t heads = a.keys / a.k, pieces = 2 * heads + (a.values + a.k - 1) / a.k;
  int64_t item = (int64_t) blockIdx.x * MAP_WARPS + threadIdx.x / 32, row = divide (item, pieces),
          piece = item - row * pieces;
  int64_t width = 2 * a.keys + a.values;

  if (row >= a.m)
    return;
  if (piece < 2 * heads) {
    SpDevTensor side = piece < heads ? a.side[0] : a.side[1];
    int64_t at = row * a.keys + piece % heads * a.k, wide = row * width + piece * a.k;
    if (a.backward)
      head_backward (a, row, wide, side, at);
    else
      head_forward (a, row, wide, side, at);
    return;
  }
  for (int64_t i = (piece - 2 * heads) * a.k + threadIdx.x % 32; i < min (a.values, (piece - 2 * heads + 1) * a.k);
       i += 32)
    a.at<1> (row * width + 2 * a.keys + i);
}

static cudaError_t
key_map (const KeyMap &a, cudaStream_t stream)
{
  int64_t heads = a.k > 0 ? a.keys / a.k : 0, width = 2 * a.keys + a.values;
  bool needs = a.map & (SP_DEV_MAP_SILU | SP_DEV_MAP_SILU_VALUES | SP_DEV_MAP_L2);

  if (!are_floats ({ a.qkv, a.side[0], a.side[1], a.side[2], a.dqkv }) || a.k % 2 != 0 || a.k > 128 * MAP_PIECES ||
      (a.backward && needs && !is_present (a.qkv)))
    return cudaErrorInvalidValue;
  if (a.m * width == 0)
    return cudaSuccess;
  if (!(a.map & (SP_DEV_MAP_L2 | SP_DEV_MAP_ROTATE)))
    return each (a, a.m * width, width_of ({ a.keys, a.values }, { a.qkv, a.side[0], a.side[1], a.side[2], a.dqkv }),
                 stream);
  int64_t items = a.m * (2 * heads + div_up (a.values, a.k));
  return launch (key_map_kernel, dim3 ((unsigned) div_up (items, MAP_WARPS)), 32 * MAP_WARPS, 0, stream, a);
}

cudaError_t
sp_dev_key_map (SpDevShape s, unsigned map, SpDevTensor qkv, const int32_t *pos, double theta, SpDevTensor q,
                SpDevTensor keys, SpDevTensor values, cudaStream_t stream)
{
  return key_map (
      { s.m, s.k, s.kv_heads * s.k, s.heads * s.n, map, log2 (theta), pos, qkv, { q, keys, values }, {}, false },
      stream);
}

cudaError_t
sp_dev_key_map_bwd (SpDevShape s, unsigned map, SpDevTensor qkv, SpDevTensor dq, SpDevTensor dkeys, SpDevTensor dvalues,
                    const int32_t *pos, double theta, SpDevTensor dqkv, cudaStream_t stream)
{
  return key_map (
      { s.m, s.k, s.kv_heads * s.k, s.heads * s.n, map, log2 (theta), pos, qkv, { dq, dkeys, dvalues }, dqkv, true },
      stream);
}

/* --- decays ------------------------------------------------------------------------------------------------------- */

#define GATE_NORMALIZER 16

static __device__ inline float
softplus (float x)
{
  return x > 0 ? x + log1pf (expf (-x)) : log1pf (expf (x));
}

struct Decay {
  int64_t n, each; /* each: columns of a head */
  SpDevTensor raw, bias, log_rate, gates, steps;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t column = i - divide (i, n) * n;
    Vec<V> x = load<V> (raw, i), b = load_or<V> (bias, column, 0), step, gate;

#pragma unroll
    for (int l = 0; l < V; l++) {
      float own = x.x[l] + b.x[l];
      step.x[l] = softplus (own);
      gate.x[l] = log_rate.data != nullptr ? -expf (load1 (log_rate, divide (column + l, each))) * step.x[l]
                                           : -softplus (-own) / GATE_NORMALIZER;
    }
    if (steps.data != nullptr)
      store<V> (steps, i, step);
    if (gates.data != nullptr)
      store<V> (gates, i, gate);
  }
};

cudaError_t
sp_dev_decay (int64_t m, int64_t n, int64_t heads, SpDevTensor raw, SpDevTensor bias, SpDevTensor log_rate,
              SpDevTensor gates, SpDevTensor steps, cudaStream_t stream)
{
  if (!are_floats ({ raw, bias, log_rate, gates, steps }) || heads <= 0 || n % heads != 0)
    return cudaErrorInvalidValue;
  return each (Decay{ n, n / heads, raw, bias, log_rate, gates, steps }, m * n,
               width_of ({ n }, { raw, bias, gates, steps }), stream);
}

#define DECAY_ROWS 8 /* that a block goes through at once: one a warp */

struct DecayBwd {
  int64_t m, n, each, rows; /* rows: of a block */
  SpDevTensor raw, bias, log_rate, dgates, dsteps, draw;
  float *biases, *rates; /* [blocks,n], [blocks,each,heads] */
};

static __global__ void __launch_bounds__ (32 * DECAY_ROWS) decay_bwd_kernel (DecayBwd a)
{
  __shared__ float sums[2][DECAY_ROWS][32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t column = blockIdx.x * 32ll + lane, head = column / a.each, end = min ((blockIdx.y + 1) * a.rows, a.m);
  float bias = 0, rate = 0, of_bias = 0, of_rate = 0;

  release_next ();
  if (column < a.n) {
    bias = a.bias.data != nullptr ? load1 (a.bias, column) : 0;
    rate = a.log_rate.data != nullptr ? -expf (load1 (a.log_rate, head)) : 0;
#pragma unroll 4
    for (int64_t row = blockIdx.y * a.rows + warp; row < end; row += DECAY_ROWS) {
      int64_t i = row * a.n + column;
      float x = load1 (a.raw, i) + bias, dgate = a.dgates.data != nullptr ? load1 (a.dgates, i) : 0;
      float dstep = a.dsteps.data != nullptr ? load1 (a.dsteps, i) : 0, slope = sigmoid (x);
      float dx = (dstep + rate * dgate) * slope;

      if (a.log_rate.data == nullptr)
        dx += dgate * sigmoid (-x) / GATE_NORMALIZER;
      store1 (a.draw, i, dx);
      of_bias += dx;
      of_rate += rate * softplus (x) * dgate;
    }
  }
  sums[0][warp][lane] = of_bias;
  sums[1][warp][lane] = of_rate;
  __syncthreads ();
  if (warp > 1 || column >= a.n)
    return;
  float sum = 0;
  for (int w = 0; w < DECAY_ROWS; w++)
    sum += sums[warp][w][lane];
  if (warp == 0)
    a.biases[blockIdx.y * a.n + column] = sum;
  else
    a.rates[(blockIdx.y * a.each + column % a.each) * (a.n / a.each) + head] = sum;
}

size_t
sp_dev_decay_bwd_scratch_bytes (int64_t m, int64_t n)
{
  return (size_t) (2 * row_blocks (m) * n) * sizeof (float);
}

cudaError_t
sp_dev_decay_bwd (int64_t m, int64_t n, int64_t heads, SpDevTensor raw, SpDevTensor bias, SpDevTensor log_rate,
                  SpDevTensor dgates, SpDevTensor dsteps, SpDevTensor draw, SpDevTensor dbias, SpDevTensor dlog_rate,
                  void *scratch, cudaStream_t stream)
{
  int64_t blocks = row_blocks (m);
  cudaError_t error;

  if (!are_floats ({ raw, bias, log_rate, dgates, dsteps, draw, dbias, dlog_rate }) || heads <= 0 || n % heads != 0)
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return cudaSuccess;
  DecayBwd a = { m,      n,    n / heads,         rows_per_block (m),
                 raw,    bias, log_rate,          dgates,
                 dsteps, draw, (float *) scratch, (float *) scratch + blocks * n };
  error = launch (decay_bwd_kernel, dim3 ((unsigned) div_up (n, 32), (unsigned) blocks), 32 * DECAY_ROWS, 0, stream, a);
  if (error == cudaSuccess && is_present (dbias))
    error = add_parts ({ a.biases, blocks, n, n, { dbias, {} }, { 0, 0 } }, 1, 1, stream);
  if (error == cudaSuccess && is_present (dlog_rate) && is_present (log_rate))
    error = add_parts ({ a.rates, blocks * a.each, heads, heads, { dlog_rate, {} }, { 0, 0 } }, 1, 1, stream);
  return error;
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

  release_next ();
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

size_t
sp_dev_skip_bwd_scratch_bytes (int64_t m, int64_t heads)
{
  return (size_t) (row_blocks (m) * heads) * sizeof (float);
}

cudaError_t
sp_dev_skip_bwd (int64_t m, int64_t heads, int64_t n, SpDevTensor d, SpDevTensor values, SpDevTensor scale,
                 SpDevTensor dvalues, SpDevTensor out, SpDevTensor dscale, void *scratch, cudaStream_t stream)
{
  int64_t blocks = row_blocks (m);
  int width = width_of ({ n }, { d, values });
  cudaError_t error;

  if (!are_floats ({ d, values, scale, dvalues, out, dscale }))
    return cudaErrorInvalidValue;
  if (m * heads * n == 0)
    return cudaSuccess;
  error = launch (width == 8 ? skip_sums_kernel<8> : skip_sums_kernel<1>, dim3 ((unsigned) heads, (unsigned) blocks),
                  SKIP_THREADS, 0, stream, m, heads, n, rows_per_block (m), d, values, (float *) scratch);
  if (error == cudaSuccess)
    error = add_parts ({ (const float *) scratch, blocks, heads, heads, { dscale, {} }, { 0, 0 } }, 1, 1, stream);
  if (error == cudaSuccess)
    error =
        each (Skip{ heads, n, dvalues, d, scale, out }, m * heads * n, width_of ({ n }, { d, dvalues, out }), stream);
  return error;
}
