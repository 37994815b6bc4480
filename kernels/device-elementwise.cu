/* SPDX-License-Identifier: Apache-2.0 */
/* What takes elements of the same place of its operands, and the gates, which take those of a row. */
#include "kernels/device-quads.cuh"
#include "kernels/device-rows.cuh"
#include "kernels/device-several.cuh"
#include "kernels/device-unary.cuh"

/* --- gates and activations ---------------------------------------------------------------------------------------- */

#define GELU_SCALE 0.7978845608028654f /* sqrt (2 / pi) */
#define GELU_CUBE 0.044715f

/* (1 + tanh (y)) / 2 = sigmoid (2 y), which does not cancel where y is far below 0. */
static __device__ inline float
gelu_share (float x)
{
  return sigmoid (2 * GELU_SCALE * (x + GELU_CUBE * x * x * x));
}

static __device__ inline float
gelu_slope (float x)
{
  float s = gelu_share (x);
  return s + 2 * x * s * (1 - s) * GELU_SCALE * (1 + 3 * GELU_CUBE * x * x);
}

static __device__ inline float
gate_of (SpDevGate f, float x)
{
  return f == SP_DEV_SILU ? silu (x) : f == SP_DEV_GELU ? x * gelu_share (x) : x;
}

static __device__ inline float
gate_slope (SpDevGate f, float x)
{
  return f == SP_DEV_SILU ? silu_slope (x) : f == SP_DEV_GELU ? gelu_slope (x) : 1;
}

struct Glu {
  SpDevGate f;
  int64_t n;
  SpDevTensor gu, out;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t in = i + divide (i, n) * n;
    Vec<V> g = load<V> (gu, in), u = load<V> (gu, in + n);

#pragma unroll
    for (int j = 0; j < V; j++)
      u.x[j] *= gate_of (f, g.x[j]);
    store<V> (out, i, u);
  }
};

cudaError_t
sp_dev_glu (SpDevGate f, int64_t m, int64_t n, SpDevTensor gu, SpDevTensor out, cudaStream_t stream)
{
  if (!are_floats ({ gu, out }))
    return cudaErrorInvalidValue;
  return each (Glu{ f, n, gu, out }, m * n, width_of ({ n }, { gu, out }), stream);
}

struct GluBwd {
  SpDevGate f;
  int64_t n;
  SpDevTensor da, gu, dgu;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t in = i + divide (i, n) * n;
    Vec<V> d = load<V> (da, i), g = load<V> (gu, in), u = load<V> (gu, in + n);

#pragma unroll
    for (int j = 0; j < V; j++) {
      float x = g.x[j];
      g.x[j] = d.x[j] * u.x[j] * gate_slope (f, x);
      u.x[j] = d.x[j] * gate_of (f, x);
    }
    store<V> (dgu, in, g);
    store<V> (dgu, in + n, u);
  }
};

cudaError_t
sp_dev_glu_bwd (SpDevGate f, int64_t m, int64_t n, SpDevTensor da, SpDevTensor gu, SpDevTensor dgu, cudaStream_t stream)
{
  if (!are_floats ({ da, gu, dgu }))
    return cudaErrorInvalidValue;
  return each (GluBwd{ f, n, da, gu, dgu }, m * n, width_of ({ n }, { da, gu, dgu }), stream);
}

/* Maps of one element, or of a gradient and an element. */
typedef enum { MAP_GELU, MAP_RELU, MAP_RELU_SQUARED, MAP_SIGMOID } Map;

static __device__ inline float
map_of (Map map, float x)
{
  float y = x < 0 ? 0 : x; /* NaN in, NaN out: it is not below 0 */

  switch (map) {
  case MAP_GELU:
    return x * gelu_share (x);
  case MAP_RELU:
    return y;
  case MAP_RELU_SQUARED:
    return y * y;
  default:
    return sigmoid (x);
  }
}

/* x is the input; of the sigmoid the output. */
static __device__ inline float
map_bwd (Map map, float d, float x)
{
  switch (map) {
  case MAP_GELU:
    return d * gelu_slope (x);
  case MAP_RELU:
    return x < 0 ? 0 : d;
  case MAP_RELU_SQUARED:
    return d * 2 * (x < 0 ? 0 : x);
  default:
    return d * x * (1 - x);
  }
}

struct MapEach {
  Map map;
  SpDevTensor x, out;

  template <int V> __device__ void at (int64_t i) const
  {
    Vec<V> v = load<V> (x, i);

#pragma unroll
    for (int j = 0; j < V; j++)
      v.x[j] = map_of (map, v.x[j]);
    store<V> (out, i, v);
  }
};

struct MapBwdEach {
  Map map;
  SpDevTensor d, x, dx;

  template <int V> __device__ void at (int64_t i) const
  {
    Vec<V> a = load<V> (d, i), b = load<V> (x, i);

#pragma unroll
    for (int j = 0; j < V; j++)
      a.x[j] = map_bwd (map, a.x[j], b.x[j]);
    store<V> (dx, i, a);
  }
};

static cudaError_t
map_each (Map map, int64_t n, SpDevTensor x, SpDevTensor out, cudaStream_t stream)
{
  if (!are_floats ({ x, out }))
    return cudaErrorInvalidValue;
  return each (MapEach{ map, x, out }, n, width_of ({ n }, { x, out }), stream);
}

static cudaError_t
map_bwd_each (Map map, int64_t n, SpDevTensor d, SpDevTensor x, SpDevTensor dx, cudaStream_t stream)
{
  if (!are_floats ({ d, x, dx }))
    return cudaErrorInvalidValue;
  return each (MapBwdEach{ map, d, x, dx }, n, width_of ({ n }, { d, x, dx }), stream);
}

cudaError_t
sp_dev_gelu (int64_t n, SpDevTensor x, SpDevTensor out, cudaStream_t stream)
{
  return map_each (MAP_GELU, n, x, out, stream);
}

cudaError_t
sp_dev_gelu_bwd (int64_t n, SpDevTensor da, SpDevTensor x, SpDevTensor dx, cudaStream_t stream)
{
  return map_bwd_each (MAP_GELU, n, da, x, dx, stream);
}

cudaError_t
sp_dev_relu (bool squared, int64_t n, SpDevTensor x, SpDevTensor out, cudaStream_t stream)
{
  return map_each (squared ? MAP_RELU_SQUARED : MAP_RELU, n, x, out, stream);
}

cudaError_t
sp_dev_relu_bwd (bool squared, int64_t n, SpDevTensor da, SpDevTensor x, SpDevTensor dx, cudaStream_t stream)
{
  return map_bwd_each (squared ? MAP_RELU_SQUARED : MAP_RELU, n, da, x, dx, stream);
}

cudaError_t
sp_dev_sigmoid_rows (int64_t n, SpDevTensor x, SpDevTensor y, cudaStream_t stream)
{
  return map_each (MAP_SIGMOID, n, x, y, stream);
}

cudaError_t
sp_dev_sigmoid_rows_bwd (int64_t n, SpDevTensor dy, SpDevTensor y, SpDevTensor dx, cudaStream_t stream)
{
  return map_bwd_each (MAP_SIGMOID, n, dy, y, dx, stream);
}

/* --- gates of an output ------------------------------------------------------------------------------------------- */

struct Gate {
  bool is_silu;
  int64_t n, width;
  SpDevTensor o, gates, out;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t row = divide (i, n);
    Vec<V> a = load<V> (o, i), u = load<V> (gates, (row + 1) * width - n + i - row * n);

#pragma unroll
    for (int j = 0; j < V; j++)
      a.x[j] *= is_silu ? silu (u.x[j]) : sigmoid (u.x[j]);
    store<V> (out, i, a);
  }
};

cudaError_t
sp_dev_gate (bool silu, int64_t m, int64_t n, int64_t width, SpDevTensor o, SpDevTensor gates, SpDevTensor out,
             cudaStream_t stream)
{
  if (!are_floats ({ o, gates, out }) || width < n)
    return cudaErrorInvalidValue;
  return each (Gate{ silu, n, width, o, gates, out }, m * n, width_of ({ n, width }, { o, gates, out }), stream);
}

struct GateBwd {
  bool is_silu;
  int64_t n, width;
  SpDevTensor d, o, gates, d_o, du;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t row = divide (i, n);
    Vec<V> a = load<V> (d, i), b = load<V> (o, i), u = load<V> (gates, (row + 1) * width - n + i - row * n);

#pragma unroll
    for (int j = 0; j < V; j++) {
      float s = sigmoid (u.x[j]), x = u.x[j];
      u.x[j] = a.x[j] * b.x[j] * (is_silu ? silu_slope (x) : s * (1 - s));
      a.x[j] *= is_silu ? x * s : s;
    }
    store<V> (d_o, i, a);
    store<V> (du, i, u);
  }
};

cudaError_t
sp_dev_gate_bwd (bool silu, int64_t m, int64_t n, int64_t width, SpDevTensor d, SpDevTensor o, SpDevTensor gates,
                 SpDevTensor d_o, SpDevTensor du, cudaStream_t stream)
{
  if (!are_floats ({ d, o, gates, d_o, du }) || width < n)
    return cudaErrorInvalidValue;
  return each (GateBwd{ silu, n, width, d, o, gates, d_o, du }, m * n,
               width_of ({ n, width }, { d, o, gates, d_o, du }), stream);
}

struct RowGate {
  int64_t n;
  SpDevTensor x, u, out;
  struct Fetched {
    uint4 x;
    uint16_t u;
  };

  /* Where all is bf16. */
  __device__ Fetched fetch (int64_t i) const
  {
    return { ::fetch<8, true> (x, i).a, *((const uint16_t *) u.data + divide (i, n)) };
  }
  __device__ void put (int64_t i, const Fetched &fetched) const
  {
    Vec<8> v = floats_of<8, true> (x, { fetched.x, {} });
    float s = sigmoid (bf16_at (fetched.u, 0));

#pragma unroll
    for (int j = 0; j < 8; j++)
      v.x[j] *= s;
    store<8, true> (out, i, v);
  }
  template <int V> __device__ void at (int64_t i) const
  {
    Vec<V> v = load<V> (x, i);
    float s = sigmoid (load1 (u, divide (i, n)));

#pragma unroll
    for (int j = 0; j < V; j++)
      v.x[j] *= s;
    store<V> (out, i, v);
  }
};

cudaError_t
sp_dev_row_gate (int64_t m, int64_t n, SpDevTensor x, SpDevTensor u, SpDevTensor out, cudaStream_t stream)
{
  if (!are_floats ({ x, u, out }))
    return cudaErrorInvalidValue;
  int width = width_of ({ n }, { x, out });
  if (width == 8 && are_half ({ x, u, out }))
    return each_several (RowGate{ n, x, u, out }, m * n, stream);
  return each (RowGate{ n, x, u, out }, m * n, width, stream);
}

/* Of the gradient and the input: the sum of their products to the gate, and the gradient times the gate. */
struct RowGateBwd {
  int64_t m, n;
  SpDevTensor d, x, u, dx, du;

  __device__ void put (int64_t row, float s, float sum) const
  {
    store1 (du, row, sum * s * (1 - s));
  }
};

/* All bf16, held. */
template <int R, bool WARP>
static __global__ void
__launch_bounds__ (WARP ? 256 : 512) row_gate_held_kernel (RowGateBwd a)
{
  __shared__ float2 parts[MOST_ROW_WARPS];
  Row<R, WARP, true> row (a.n);
  Raw<8> d[R] = {}, x[R] = {};
  float sum = 0;

  take_turn ();
  if (row.row >= a.m)
    return;
  row.fetch_all (a.d, d);
  row.fetch_all (a.x, x);
  float s = sigmoid (load1 (a.u, row.row));
#pragma unroll
  for (int r = 0; r < R; r++) {
    Vec<8> v = floats_of<8, true> (a.d, d[r]), w = floats_of<8, true> (a.x, x[r]);
#pragma unroll
    for (int l = 0; l < 8; l++) {
      sum += v.x[l] * w.x[l];
      v.x[l] *= s;
    }
    if (row.has (r))
      store<8, true> (a.dx, row.at + row.first (r), v);
  }
  sum = row_total<WARP> (sum, parts);
  if (row.thread == 0)
    a.put (row.row, s, sum);
}

struct StartRowGateBwd {
  const RowGateBwd &a;
  cudaStream_t stream;

  template <int R, bool WARP> cudaError_t start (dim3 blocks, int threads) const
  {
    return launch_early (row_gate_held_kernel<R, WARP>, blocks, threads, 0, stream, a);
  }
};

/* A block a row. */
template <int V>
static __global__ void
row_gate_bwd_kernel (RowGateBwd a)
{
  __shared__ float parts[32];
  int64_t row = blockIdx.x;

  take_turn ();
  float s = sigmoid (load1 (a.u, row)), sum = 0;
  for (int64_t j = (int64_t) threadIdx.x * V; j < a.n; j += (int64_t) blockDim.x * V) {
    Vec<V> d = load<V> (a.d, row * a.n + j), x = load<V> (a.x, row * a.n + j);
#pragma unroll
    for (int l = 0; l < V; l++) {
      sum += d.x[l] * x.x[l];
      d.x[l] *= s;
    }
    store<V> (a.dx, row * a.n + j, d);
  }
  sum = block_sum (sum, parts);
  if (threadIdx.x == 0)
    a.put (row, s, sum);
}

cudaError_t
sp_dev_row_gate_bwd (int64_t m, int64_t n, SpDevTensor d, SpDevTensor x, SpDevTensor u, SpDevTensor dx, SpDevTensor du,
                     cudaStream_t stream)
{
  int width = width_of ({ n }, { d, x, dx });
  RowGateBwd a = { m, n, d, x, u, dx, du };
  bool is_held = false;

  if (!are_floats ({ d, x, u, dx, du }) || m > INT32_MAX)
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return cudaSuccess;
  cudaError_t error = are_half ({ d, x, dx }) && n <= 2048
                          ? hold_row (m, n, width, StartRowGateBwd{ a, stream }, &is_held)
                          : cudaSuccess;
  if (is_held)
    return error;
  return launch_early (width == 8 ? row_gate_bwd_kernel<8> : row_gate_bwd_kernel<1>, dim3 ((unsigned) m),
                       row_threads (n, width, 256), 0, stream, a);
}

/* --- sums and copies ---------------------------------------------------------------------------------------------- */

struct Add {
  int64_t n;
  SpDevTensor a, b, bias, more, out;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t column = i - divide (i, n) * n;
    Vec<V> x = load<V> (a, i), y = load<V> (b, i);
    Vec<V> z = load_or<V> (bias, column, 0), w = load_or<V> (more, column, 0);

#pragma unroll
    for (int j = 0; j < V; j++)
      x.x[j] += y.x[j] + z.x[j] + w.x[j];
    store<V> (out, i, x);
  }
};

cudaError_t
sp_dev_add (int64_t m, int64_t n, SpDevTensor a, SpDevTensor b, SpDevTensor bias, SpDevTensor more, SpDevTensor out,
            cudaStream_t stream)
{
  if (!are_floats ({ a, b, bias, more, out }))
    return cudaErrorInvalidValue;
  return each (Add{ n, a, b, bias, more, out }, m * n, width_of ({ n }, { a, b, bias, more, out }), stream);
}

cudaError_t
sp_dev_accumulate (int64_t n, SpDevTensor x, SpDevTensor out, cudaStream_t stream)
{
  return sp_dev_add (1, n, out, x, {}, {}, out, stream);
}

struct Copy {
  SpDevTensor x, out;

  template <int V> __device__ void at (int64_t i) const
  {
    store<V> (out, i, load<V> (x, i));
  }
};

static size_t
bytes_of (SpDevTensor t, int64_t n)
{
  return (size_t) n * (t.dtype == SP_DEV_BF16 ? 2 : t.dtype == SP_DEV_UINT8 ? 1 : 4);
}

cudaError_t
sp_dev_copy (int64_t n, SpDevTensor x, SpDevTensor out, cudaStream_t stream)
{
  if (n == 0)
    return cudaSuccess;
  if (x.dtype == out.dtype)
    return cudaMemcpyAsync (out.data, x.data, bytes_of (x, n), cudaMemcpyDeviceToDevice, stream);
  if (!are_floats ({ x, out }))
    return cudaErrorInvalidValue;
  if (width_of ({ n }, { x, out }) == 8)
    return each_four (Copy{ x, out }, n, stream);
  return each (Copy{ x, out }, n, 1, stream);
}

cudaError_t
sp_dev_zero (int64_t n, SpDevTensor out, cudaStream_t stream)
{
  return n == 0 ? cudaSuccess : cudaMemsetAsync (out.data, 0, bytes_of (out, n), stream);
}
