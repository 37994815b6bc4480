/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short causal convolution before a recurrence, with its silu. A thread has some features of one sequence and goes
 * through a run of tokens: the rows that it sees again stay in registers, and those that come are on their way to shared
 * memory, each thread's to a place of its own, so that no thread waits for another's. Sums over tokens are of two passes.
 */
#include "kernels/device-mma.cuh"
#include "kernels/device-parts.cuh"
#include "kernels/device-unary.cuh"

#define MOST_WIDTH 4
#define LEAST_RUN 16

struct Conv {
  int64_t m, row, n; /* row: batch * n */
  int64_t run;       /* tokens of a thread */
  SpDevTensor x, weight, bias, halo, out;
  SpDevTensor d_out, dx, dhalo; /* of the backward */
  float *parts;                 /* [parts,batch,n (width + 1)]: of dweight, then dbias */
};

/* The last W rows, and what they are multiplied by. */
template <int V, int W> struct Window {
  float x[W][V], weight[W][V], bias[V];

  __device__ Window (const Conv &c, int64_t column)
  {
    int64_t feature = column % c.n;

#pragma unroll
    for (int l = 0; l < V; l++) {
      bias[l] = c.bias.data != nullptr ? load1 (c.bias, feature + l) : 0;
#pragma unroll
      for (int j = 0; j < W; j++) {
        x[j][l] = 0;
        weight[j][l] = load1 (c.weight, (feature + l) * W + j);
      }
    }
  }
  __device__ void push (const float (&next)[V])
  {
#pragma unroll
    for (int l = 0; l < V; l++) {
#pragma unroll
      for (int j = 0; j + 1 < W; j++)
        x[j][l] = x[j + 1][l];
      x[W - 1][l] = next[l];
    }
  }
  __device__ float sum (int l) const
  {
    float s = bias[l];
#pragma unroll
    for (int j = 0; j < W; j++)
      s += weight[j][l] * x[j][l];
    return s;
  }
};

/* What a run of the backward keeps: gradients before the silu, of the last W rows, and its sums. */
template <int V, int W> struct Gradients {
  float d[W][V], dweight[W][V], dbias[V];

  __device__ Gradients () : d{}, dweight{}, dbias{}
  {
  }
  /* Of the window's last row. */
  __device__ void push (const Window<V, W> &window, const float (&dy)[V])
  {
#pragma unroll
    for (int l = 0; l < V; l++)
#pragma unroll
      for (int j = 0; j + 1 < W; j++)
        d[j][l] = d[j + 1][l];
    if constexpr (V == 1)
      d[W - 1][0] = dy[0] * silu_slope (window.sum (0));
    else
#pragma unroll
      for (int l = 0; l < V; l += 2) {
        float x[2] = { window.sum (l), window.sum (l + 1) }, share[2];
        sigmoids (x[0], x[1], &share[0], &share[1]);
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float y = x[e] * share[e];
          d[W - 1][l + e] = dy[l + e] * (share[e] + y - y * share[e]);
        }
      }
  }
  __device__ void add (const Window<V, W> &window)
  {
#pragma unroll
    for (int l = 0; l < V; l++) {
      dbias[l] += d[W - 1][l];
#pragma unroll
      for (int j = 0; j < W; j++)
        dweight[j][l] += d[W - 1][l] * window.x[j][l];
    }
  }
  /* Of the row that is W - 1 behind. */
  __device__ float dx (const Window<V, W> &window, int l) const
  {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < W; j++)
      sum += d[W - 1 - j][l] * window.weight[j][l];
    return sum;
  }
};

/* --- bf16, whole vectors ------------------------------------------------------------------------------------------ */

/* How either way goes: features of a thread, warps of a block, rows that are on their way, neighbouring runs whose warps
 * stand together, and blocks: as many as run once or twice at once on an H100, whatever the card, so that sums have one
 * order. */
struct Forward {
  static constexpr int V = 4, WARPS = 4, AHEAD = 8, TOGETHER = 4, BLOCKS = 132 * 16, RESIDENT = 8;
};
struct Backward {
  static constexpr int V = 4, WARPS = 16, AHEAD = 4, TOGETHER = 1, BLOCKS = 132, RESIDENT = 1;
};

/* V neighbours in bf16, as they lie in memory. */
template <int V> struct __align__ (2 * V) Halves
{
  uint32_t words[V / 2];
};

template <int V>
static __device__ inline void
halves_to (const Halves<V> &raw, float (&ret)[V])
{
#pragma unroll
  for (int l = 0; l < V; l++)
    ret[l] = bf16_at (raw.words[l / 2], l % 2);
}

template <int V>
static __device__ inline Halves<V>
halves_of (const float (&x)[V])
{
  Halves<V> raw;

#pragma unroll
  for (int l = 0; l < V; l += 2)
    raw.words[l / 2] = bf16_pair (x[l], x[l + 1]);
  return raw;
}

template <int V>
static __device__ inline Halves<V> *
halves_at (SpDevTensor t, int64_t i)
{
  return (Halves<V> *) ((uint16_t *) t.data + i);
}

/* Rows of one tensor on their way: a thread's V features of each, from token `at` on. What is beyond the last token is
 * zeros. */
template <typename Way> struct Rows {
  static constexpr int V = Way::V;
  const uint16_t *from;
  int64_t row, left; /* left: tokens that are still to come */
  uint32_t slots;    /* [AHEAD,threads] */

  __device__ Rows (SpDevTensor t, const Conv &c, int64_t at, int64_t column, Halves<V> *shared)
      : from ((const uint16_t *) t.data + at * c.row + column), row (c.row), left (c.m - at),
        slots ((uint32_t) __cvta_generic_to_shared (shared + threadIdx.x))
  {
  }
  __device__ void issue (int slot)
  {
    uint32_t to = slots + slot * 32 * Way::WARPS * (int) sizeof (Halves<V>);

    if constexpr (V == 8)
      copy_16 (to, from, left > 0);
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(to), "l"(from), "n"(2 * V),
                   "r"(left > 0 ? 2 * V : 0)
                   : "memory");
    from += row;
    left--;
  }
};

/* The window before token `first`: rows of the run before, or of the halo. */
template <int V, int W>
static __device__ inline void
fill_window (const Conv &c, int64_t first, int64_t column, Window<V, W> *window)
{
#pragma unroll
  for (int j = 1; j < W; j++) {
    int64_t t = first - W + j;
    SpDevTensor from = t >= 0 ? c.x : c.halo;
    Halves<V> raw = {};
    float x[V];

    if (from.data != nullptr)
      raw = *halves_at<V> (from, (t >= 0 ? t : t + W - 1) * c.row + column);
    halves_to (raw, x);
    window->push (x);
  }
}

/* Where a thread is. Lanes beyond the last feature do as the last, and store nothing. */
template <typename Way> struct Place {
  int64_t column, run, first;
  bool is_there;

  __device__ Place (const Conv &c)
  {
    int64_t warp = (int64_t) blockIdx.x * Way::WARPS + threadIdx.x / 32, across = div_up (c.row, 32 * Way::V);
    int64_t some = divide (warp, Way::TOGETHER), along = divide (some, across);

    run = along * Way::TOGETHER + warp % Way::TOGETHER;
    first = run * c.run;
    column = ((some - along * across) * 32 + threadIdx.x % 32) * Way::V;
    is_there = column < c.row;
    column = is_there ? column : c.row - Way::V;
  }
};

template <typename Way, int W>
static __global__ void __launch_bounds__ (32 * Way::WARPS, Way::RESIDENT) conv_kernel (Conv c)
{
  constexpr int V = Way::V, AHEAD = Way::AHEAD;
  __shared__ Halves<V> slots[AHEAD][32 * Way::WARPS];
  take_turn ();
  Place<Way> place (c);
  Rows<Way> rows (c.x, c, place.first, place.column, &slots[0][0]);

  if (place.first >= c.m)
    return;
#pragma unroll
  for (int i = 0; i < AHEAD; i++) {
    rows.issue (i);
    copy_commit ();
  }
  Window<V, W> window (c, place.column);
  fill_window<V, W> (c, place.first, place.column, &window);
  uint16_t *to = (uint16_t *) c.out.data + place.first * c.row + place.column;
  int64_t left = min (c.run, c.m - place.first);

  for (int64_t i = 0; i < c.run; i += AHEAD)
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      float x[V];

      copy_wait<AHEAD - 1> ();
      halves_to (slots[u][threadIdx.x], x);
      rows.issue (u);
      copy_commit ();
      window.push (x);
#pragma unroll
      for (int l = 0; l < V; l += 2) {
        float low = window.sum (l), high = window.sum (l + 1), share[2];
        sigmoids (low, high, &share[0], &share[1]);
        x[l] = low * share[0];
        x[l + 1] = high * share[1];
      }
      if (i + u < left && place.is_there)
        *(Halves<V> *) to = halves_of (x);
      to += c.row;
    }
  copy_wait<0> ();
}

template <typename Way, int V, int W>
static __device__ inline void
store_part (const Conv &c, const Place<Way> &place, const Gradients<V, W> &g)
{
  float *part = c.parts + (place.run * (c.row / c.n) + place.column / c.n) * c.n * (W + 1);
  int64_t feature = place.column % c.n;

  if (!place.is_there)
    return;
#pragma unroll
  for (int l = 0; l < V; l++) {
#pragma unroll
    for (int j = 0; j < W; j++)
      part[(feature + l) * W + j] = g.dweight[j][l];
    part[c.n * W + feature + l] = g.dbias[l];
  }
}

/* dx of a token is of the gradients of it and the width - 1 after it, so that a run goes on for as many. */
template <typename Way, int W>
static __global__ void __launch_bounds__ (32 * Way::WARPS, Way::RESIDENT) conv_bwd_kernel (Conv c)
{
  constexpr int V = Way::V, AHEAD = Way::AHEAD;
  __shared__ Halves<V> slots[2][AHEAD][32 * Way::WARPS];
  Place<Way> place (c);
  Gradients<V, W> g;

  take_turn ();
  if (place.first >= c.m)
    return;
  Rows<Way> xs (c.x, c, place.first, place.column, &slots[0][0][0]);
  Rows<Way> ds (c.d_out, c, place.first, place.column, &slots[1][0][0]);
#pragma unroll
  for (int i = 0; i < AHEAD; i++) {
    xs.issue (i);
    ds.issue (i);
    copy_commit ();
  }
  Window<V, W> window (c, place.column);
  fill_window<V, W> (c, place.first, place.column, &window);
  /* Tokens from here on count from the run's first. */
  const int own = (int) c.run, end = (int) min (c.m - place.first, c.run + W - 1);
  const int least = place.first > 0 ? 0 : c.dhalo.data != nullptr ? 1 - W : 0, in_halo = place.first > 0 ? 1 - W : 0;
  uint16_t *to = (uint16_t *) c.dx.data + (place.first - (W - 1)) * c.row + place.column;

  auto step = [&] (int u, int i, bool is_own) {
    float x[V], dy[V];
    int token = i - (W - 1);

    copy_wait<AHEAD - 1> ();
    halves_to (slots[0][u][threadIdx.x], x);
    halves_to (slots[1][u][threadIdx.x], dy);
    xs.issue (u);
    ds.issue (u);
    copy_commit ();
    window.push (x);
    g.push (window, dy);
    if (is_own)
      g.add (window);
#pragma unroll
    for (int l = 0; l < V; l++)
      x[l] = g.dx (window, l);
    if (place.is_there && token >= least && token < end) {
      if (token < in_halo)
        *halves_at<V> (c.dhalo, (token + W - 1) * c.row + place.column) = halves_of (x);
      else
        *(Halves<V> *) to = halves_of (x);
    }
    to += c.row;
  };
  for (int i = 0; i < own; i += AHEAD)
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
      step (u, i + u, true);
#pragma unroll
  for (int u = 0; u + 1 < W; u++)
    step (u, own + u, false);
  copy_wait<0> ();
  store_part<Way, V, W> (c, place, g);
}

/* --- the rest: a feature a thread --------------------------------------------------------------------------------- */

#define ONE_THREADS 128

/* Token t's, t from 1 - width on. */
template <int W>
static __device__ inline float
feature_at (const Conv &c, int64_t t, int64_t column)
{
  if (t >= 0)
    return t < c.m ? load1 (c.x, t * c.row + column) : 0;
  return c.halo.data != nullptr ? load1 (c.halo, (t + W - 1) * c.row + column) : 0;
}

template <int W>
static __global__ void
__launch_bounds__ (ONE_THREADS) conv_one_kernel (Conv c)
{
  int64_t column = (int64_t) blockIdx.x * ONE_THREADS + threadIdx.x, first = blockIdx.y * c.run;

  if (column >= c.row)
    return;
  Window<1, W> window (c, column);
  for (int64_t t = first - W + 1; t < min (first + c.run, c.m); t++) {
    window.push ({ feature_at<W> (c, t, column) });
    if (t >= first)
      store1 (c.out, t * c.row + column, silu (window.sum (0)));
  }
}

template <int W>
static __global__ void
__launch_bounds__ (ONE_THREADS) conv_bwd_one_kernel (Conv c)
{
  int64_t column = (int64_t) blockIdx.x * ONE_THREADS + threadIdx.x, first = blockIdx.y * c.run;
  int64_t least = first > 0 ? first : c.dhalo.data != nullptr ? 1 - W : 0;

  release_next ();
  if (column >= c.row)
    return;
  Window<1, W> window (c, column);
  Gradients<1, W> g;
  for (int64_t t = first - W + 1; t < first + c.run + W - 1; t++) {
    int64_t to = t - W + 1;

    window.push ({ feature_at<W> (c, t, column) });
    g.push (window, { t >= first && t < c.m ? load1 (c.d_out, t * c.row + column) : 0 });
    if (t < first + c.run)
      g.add (window);
    if (to >= least && to < c.m)
      store1 (to >= 0 ? c.dx : c.dhalo, (to >= 0 ? to : to + W - 1) * c.row + column, g.dx (window, 0));
  }
  float *part = c.parts + ((int64_t) blockIdx.y * (c.row / c.n) + column / c.n) * c.n * (W + 1);
#pragma unroll
  for (int j = 0; j < W; j++)
    part[column % c.n * W + j] = g.dweight[j][0];
  part[c.n * W + column % c.n] = g.dbias[0];
}

/* --- which of them ------------------------------------------------------------------------------------------------ */

/* Tokens of a run, so many that all warps fit in the blocks; whole rounds of what is on its way. */
template <typename Way>
static int64_t
run_of (int64_t m, int64_t row)
{
  int64_t most = Way::BLOCKS * Way::WARPS / div_up (row, 32 * Way::V), runs = most < 1 ? 1 : most;
  int64_t run = div_up (div_up (m, runs), Way::AHEAD) * Way::AHEAD;

  return run < LEAST_RUN ? LEAST_RUN : run;
}

template <typename Way>
static dim3
blocks_of (const Conv &c)
{
  int64_t some = div_up (div_up (c.m, c.run), Way::TOGETHER) * div_up (c.row, 32 * Way::V);

  return dim3 ((unsigned) div_up (some * Way::TOGETHER, Way::WARPS));
}

static bool
has_vectors (const Conv &c)
{
  std::initializer_list<SpDevTensor> rows = { c.x, c.halo, c.out, c.d_out, c.dx, c.dhalo };

  return width_of ({ c.n }, rows) == 8 && are_half (rows);
}

template <int W>
static cudaError_t
run_width (const Conv &c, cudaStream_t stream)
{
  bool backward = is_present (c.d_out);
  int64_t runs = div_up (c.m, c.run);


  if (has_vectors (c))
    return backward ? launch_early (conv_bwd_kernel<Backward, W>, blocks_of<Backward> (c), 32 * Backward::WARPS, 0,
                                    stream, c)
                    : launch_early (conv_kernel<Forward, W>, blocks_of<Forward> (c), 32 * Forward::WARPS, 0, stream, c);
  return launch (backward ? conv_bwd_one_kernel<W> : conv_one_kernel<W>,
                 dim3 ((unsigned) div_up (c.row, ONE_THREADS), (unsigned) runs), ONE_THREADS, 0, stream, c);
}

static cudaError_t
run_conv (const Conv &c, int64_t width, cudaStream_t stream)
{
  return width == 1   ? run_width<1> (c, stream)
         : width == 2 ? run_width<2> (c, stream)
         : width == 3 ? run_width<3> (c, stream)
                      : run_width<4> (c, stream);
}

cudaError_t
sp_dev_conv (int64_t m, int64_t batch, int64_t n, int64_t width, SpDevTensor x, SpDevTensor weight, SpDevTensor bias,
             SpDevTensor halo, SpDevTensor out, cudaStream_t stream)
{
  Conv c = { m, batch * n, n, 0, x, weight, bias, halo, out, {}, {}, {}, nullptr };

  if (width < 1 || width > MOST_WIDTH || !are_floats ({ x, weight, bias, halo, out }))
    return cudaErrorInvalidValue;
  if (m == 0 || c.row == 0)
    return cudaSuccess;
  c.run = run_of<Forward> (m, c.row);
  return run_conv (c, width, stream);
}

size_t
sp_dev_conv_bwd_scratch_bytes (int64_t m, int64_t batch, int64_t n, int64_t width)
{
  return (size_t) (div_up (m, run_of<Backward> (m, batch * n)) * batch * n * (width + 1)) * sizeof (float);
}

cudaError_t
sp_dev_conv_bwd (int64_t m, int64_t batch, int64_t n, int64_t width, SpDevTensor d_out, SpDevTensor x,
                 SpDevTensor weight, SpDevTensor bias, SpDevTensor halo, SpDevTensor dx, SpDevTensor dweight,
                 SpDevTensor dbias, SpDevTensor dhalo, void *scratch, cudaStream_t stream)
{
  Conv c = { m, batch * n, n, 0, x, weight, bias, halo, {}, d_out, dx, dhalo, (float *) scratch };

  if (width < 1 || width > MOST_WIDTH || !are_floats ({ d_out, x, weight, bias, halo, dx, dweight, dbias, dhalo }))
    return cudaErrorInvalidValue;
  if (m == 0 || c.row == 0)
    return cudaSuccess;
  c.run = run_of<Backward> (m, c.row);
  int64_t parts = div_up (m, c.run) * batch;
  cudaError_t error = run_conv (c, width, stream);
  if (error == cudaSuccess)
    error = add_parts ({ c.parts, parts, n * (width + 1), { n * width, n }, { dweight, dbias }, { 0, n * width } },
                       is_present (dbias) ? 2 : 1, 1, stream);
  return error;
}
