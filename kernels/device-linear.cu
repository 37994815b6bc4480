/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear attention with a decay. All of it is one form: with keys x[D], values y[C] and queries z[D], in the order of
 * tokens or against it,
 *     o_i   = sum over j up to i of lambda^|i-j| (z_i . x_j) y_j
 *     state = sum over j of lambda^(distance to the end) x_j y_j^T
 * which is the forward with (z, x, y) = (q, k, v), dq with (dO, v, k), and, against the order, dk with (v, dO, q), dv
 * with (k, q, dO), whose state is dM but for one lambda.
 *
 * Tokens are cut in chunks of 64, and these in segments. First the state of each segment alone, then the chain of
 * segments, then the outputs: a block goes through the chunks of a segment from the state before it, which it has in
 * fp32 in registers. Within a chunk o comes from the products z x^T, decayed, and from the state. Blocks have 64 of the
 * C columns each.
 */
#include "kernels/device-tile.cuh"

#define SEGMENT 1024 /* tokens */
#define LOG2_E 1.4426950408889634f

struct Linear {
  int64_t m, batch, heads, d, c; /* features of keys and of values */
  bool reverse;
  const float *slopes;
  const uint16_t *queries, *keys, *values;
  SpDevTensor o;
  float *states; /* [segments,batch,heads,d,c]: of each alone, then before it; NULL: zero before the only one */
};

static __host__ __device__ inline int64_t
segments_of (int64_t m)
{
  return div_up (m, SEGMENT);
}

/* lambda^power */
static __device__ inline float
decay (float slope, int64_t power)
{
  return exp2f (-slope * LOG2_E * (float) power);
}

/* What a block works on. */
struct Place {
  int64_t segment, b, h, column; /* first of its columns */
  int64_t first, tokens;         /* of the segment */
  float slope;
};

static __device__ inline Place
place_of (const Linear &a)
{
  Place p;

  p.segment = blockIdx.x;
  p.b = blockIdx.y / a.heads;
  p.h = blockIdx.y % a.heads;
  p.column = (int64_t) blockIdx.z * TILE;
  p.first = p.segment * SEGMENT;
  p.tokens = min (a.m - p.first, (int64_t) SEGMENT);
  p.slope = a.slopes[p.h];
  return p;
}

static __device__ inline int64_t
element_of (const Linear &a, const Place &p, int64_t token, int64_t size)
{
  return ((token * a.batch + p.b) * a.heads + p.h) * size;
}

static __device__ inline float *
state_of (const Linear &a, const Place &p)
{
  return a.states + ((p.segment * a.batch + p.b) * a.heads + p.h) * a.d * a.c + p.column;
}

/* A warp's rows of the state, D / 4 of them by 64 columns. */
template <int D> struct State {
  float s[D / 64][8][4];
};

/* Row and column of element e of s[i][j]. */
template <int D>
static __device__ inline int
state_row (int i, int e)
{
  return (int) threadIdx.x / 32 * (D / 4) + i * 16 + (int) threadIdx.x % 32 / 4 + e / 2 * 8;
}

static __device__ inline int
state_column (int j, int e)
{
  return j * 8 + (int) threadIdx.x % 4 * 2 + e % 2;
}

template <int D, typename F>
static __device__ inline void
state_each (State<D> &state, F f)
{
#pragma unroll
  for (int i = 0; i < D / 64; i++)
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        f (state.s[i][j][e], state_row<D> (i, e), state_column (j, e));
}

/* Token r of `tokens` counts for a chunk's state by its distance to the end of the chunk. */
static __device__ inline float
token_weight (bool reverse, float slope, int r, int tokens)
{
  return decay (slope, reverse ? r : tokens - 1 - r);
}

/* to = from, its rows weighed. */
static __device__ inline void
weigh_values (bool reverse, float slope, int tokens, const uint16_t *from, uint16_t *to)
{
  for (int i = threadIdx.x; i < TILE * TILE / 2; i += TILE_THREADS) {
    int row = i / (TILE / 2), at = row * Stride<TILE>::value + i % (TILE / 2) * 2;
    uint32_t pair = *(const uint32_t *) (from + at);
    float w = row < tokens ? token_weight (reverse, slope, row, tokens) : 0;

    *(uint32_t *) (to + at) = bf16_pair (bf16_at (pair, 0) * w, bf16_at (pair, 1) * w);
  }
}

/* state = lambda^tokens state + x^T (weighed y) */
template <int D>
static __device__ inline void
state_step (State<D> &state, float slope, int tokens, const uint16_t *x_tile, const uint16_t *weighed)
{
  float factor = decay (slope, tokens);

  state_each (state, [&] (float &s, int, int) { s *= factor; });
#pragma unroll
  for (int i = 0; i < D / 64; i++)
#pragma unroll
    for (int k = 0; k < TILE; k += 16) {
      uint32_t a[4], b[4];

      tile_a_transposed<D> (a, x_tile, k, threadIdx.x / 32 * (D / 4) + i * 16);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        tile_b<TILE> (b, weighed, k, 8 * j);
        mma (state.s[i][j], a, b[0], b[1]);
        mma (state.s[i][j + 1], a, b[2], b[3]);
      }
    }
}

/* --- states of segments ------------------------------------------------------------------------------------------- */

/* First token of the chunk-th chunk of a segment, in the order that the chain has. */
static __device__ inline int64_t
chunk_first (const Linear &a, const Place &p, int64_t chunk)
{
  int64_t chunks = div_up (p.tokens, TILE);

  return p.first + (a.reverse ? chunks - 1 - chunk : chunk) * TILE;
}

template <int D>
static constexpr size_t
segment_bytes (void)
{
  return (Stride<D>::elements + 2 * Stride<TILE>::elements) * sizeof (uint16_t);
}

template <int D>
static __global__ void
__launch_bounds__ (TILE_THREADS) segment_kernel (Linear a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  uint16_t *x_tile = (uint16_t *) dynamic, *y_tile = x_tile + Stride<D>::elements;
  uint16_t *weighed = y_tile + Stride<TILE>::elements;
  Place p = place_of (a);
  State<D> state = {};

  for (int64_t chunk = 0; chunk * TILE < p.tokens; chunk++) {
    int64_t first = chunk_first (a, p, chunk), tokens = min (p.first + p.tokens - first, (int64_t) TILE);

    __syncthreads (); /* the chunk before has been read */
    tile_load<D> (x_tile, a.keys + element_of (a, p, first, a.d), a.batch * a.heads * a.d, tokens, a.d);
    tile_load<TILE> (y_tile, a.values + element_of (a, p, first, a.c) + p.column, a.batch * a.heads * a.c, tokens,
                     a.c - p.column);
    copy_commit ();
    copy_wait<0> ();
    __syncthreads ();
    weigh_values (a.reverse, p.slope, (int) tokens, y_tile, weighed);
    __syncthreads ();
    state_step<D> (state, p.slope, (int) tokens, x_tile, weighed);
  }

  float *out = state_of (a, p);
  state_each (state, [&] (float &s, int row, int column) {
    if (row < a.d && p.column + column < a.c)
      out[row * a.c + column] = s;
  });
}

/* By elements of a state [batch,heads,size]: the chain, from each segment's own state to that before it. */
struct Chain {
  int64_t m, heads, size, all; /* all: elements of a segment's states */
  bool reverse;
  int64_t power; /* of lambda that the last state is multiplied by */
  const float *slopes;
  float *states, *last; /* last may be NULL */

  template <int V> __device__ void at (int64_t i) const
  {
    float slope = slopes[i / size % heads], running = 0;
    int64_t segments = segments_of (m);

    for (int64_t step = 0; step < segments; step++) {
      int64_t segment = reverse ? segments - 1 - step : step;
      float *own = states + segment * all + i, mine = *own;
      *own = running;
      running = decay (slope, min (m - segment * SEGMENT, (int64_t) SEGMENT)) * running + mine;
    }
    if (last != nullptr)
      last[i] = decay (slope, power) * running;
  }
};

/* --- outputs ------------------------------------------------------------------------------------------------------ */

template <int D>
static constexpr size_t
output_bytes (void)
{
  return (2 * Stride<D>::elements + 2 * Stride<TILE>::elements + D * Stride<TILE>::value) * sizeof (uint16_t);
}

/* s[16,64] of queries from `row` on: decayed by distance, zero where the key comes after. */
static __device__ inline void
decay_scores (float s[8][4], bool reverse, float slope, int row)
{
#pragma unroll
  for (int j = 0; j < 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int distance = row + e / 2 * 8 - state_column (j, e);
      if (reverse)
        distance = -distance;
      s[j][e] = distance >= 0 ? s[j][e] * decay (slope, distance) : 0;
    }
}

/* o[16,64] = what comes from the state before the chunk. */
template <int D>
static __device__ inline void
read_state (float o[8][4], const uint16_t *z_tile, const uint16_t *s_tile)
{
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    uint32_t a[4], b[4];

    tile_a<D> (a, z_tile, threadIdx.x / 32 * 16, k);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      tile_b<TILE> (b, s_tile, k, 8 * j);
      mma (o[j], a, b[0], b[1]);
      mma (o[j + 1], a, b[2], b[3]);
    }
  }
}

template <int D>
static __global__ void
__launch_bounds__ (TILE_THREADS) output_kernel (Linear a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  uint16_t *z_tile = (uint16_t *) dynamic, *x_tile = z_tile + Stride<D>::elements;
  uint16_t *y_tile = x_tile + Stride<D>::elements, *weighed = y_tile + Stride<TILE>::elements;
  uint16_t *s_tile = weighed + Stride<TILE>::elements;
  Place p = place_of (a);
  int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  State<D> state = {};

  if (a.states != nullptr) {
    const float *before = state_of (a, p);
    state_each (state, [&] (float &s, int r, int column) {
      if (r < a.d && p.column + column < a.c)
        s = before[r * a.c + column];
    });
  }

  for (int64_t chunk = 0; chunk * TILE < p.tokens; chunk++) {
    int64_t first = chunk_first (a, p, chunk);
    int tokens = (int) min (p.first + p.tokens - first, (int64_t) TILE);
    float o[8][4] = {}, s[8][4] = {};

    __syncthreads (); /* the chunk before has been read */
    tile_load<D> (z_tile, a.queries + element_of (a, p, first, a.d), a.batch * a.heads * a.d, tokens, a.d);
    tile_load<D> (x_tile, a.keys + element_of (a, p, first, a.d), a.batch * a.heads * a.d, tokens, a.d);
    tile_load<TILE> (y_tile, a.values + element_of (a, p, first, a.c) + p.column, a.batch * a.heads * a.c, tokens,
                     a.c - p.column);
    copy_commit ();
    state_each (state, [&] (float &x, int r, int column) {
      s_tile[r * Stride<TILE>::value + column] = (uint16_t) bf16_pair (x, 0);
    });
    copy_wait<0> ();
    __syncthreads ();
    weigh_values (a.reverse, p.slope, tokens, y_tile, weighed);
    read_state<D> (o, z_tile, s_tile);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int r = row + e / 2 * 8;
      float weight = decay (p.slope, a.reverse ? tokens - r : r + 1);
#pragma unroll
      for (int j = 0; j < 8; j++)
        o[j][e] *= weight;
    }
    multiply_transposed<D, 8> (s, z_tile, threadIdx.x / 32 * 16, x_tile, 0);
    decay_scores (s, a.reverse, p.slope, row);
    multiply_kept<TILE, 8, 8> (o, s, y_tile, 0, 0);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int64_t at = element_of (a, p, first + row + 8 * i, a.c) + p.column;
#pragma unroll
      for (int j = 0; j < 8; j++)
        if (row + 8 * i < tokens && p.column + j * 8 < a.c)
          store_pair (a.o, at + state_column (j, 0), o[j][2 * i], o[j][2 * i + 1]);
    }
    __syncthreads (); /* the values are weighed */
    state_step<D> (state, p.slope, tokens, x_tile, weighed);
  }
}

/* --- both --------------------------------------------------------------------------------------------------------- */

static int
tile_features (int64_t d)
{
  return d <= 64 ? 64 : d <= 128 ? 128 : 256;
}

/* last = lambda^power times the state after all, unless NULL; no outputs if o is absent. */
static cudaError_t
linear (const Linear &a, float *last, int64_t power, cudaStream_t stream)
{
  int64_t segments = segments_of (a.m), all = a.batch * a.heads * a.d * a.c;
  dim3 grid ((unsigned) segments, (unsigned) (a.batch * a.heads), (unsigned) div_up (a.c, TILE));
  int features = tile_features (a.d);
  cudaError_t error = cudaSuccess;
  Linear outputs = a;

  if (last != nullptr || segments > 1) {
    error = features == 64    ? launch (segment_kernel<64>, grid, TILE_THREADS, segment_bytes<64> (), stream, a)
            : features == 128 ? launch (segment_kernel<128>, grid, TILE_THREADS, segment_bytes<128> (), stream, a)
                              : launch (segment_kernel<256>, grid, TILE_THREADS, segment_bytes<256> (), stream, a);
    if (error == cudaSuccess)
      error = each (Chain{ a.m, a.heads, a.d * a.c, all, a.reverse, power, a.slopes, a.states, last }, all, 1, stream);
  } else
    outputs.states = nullptr;
  if (error != cudaSuccess || !is_present (a.o))
    return error;
  return features == 64    ? launch (output_kernel<64>, grid, TILE_THREADS, output_bytes<64> (), stream, outputs)
         : features == 128 ? launch (output_kernel<128>, grid, TILE_THREADS, output_bytes<128> (), stream, outputs)
                           : launch (output_kernel<256>, grid, TILE_THREADS, output_bytes<256> (), stream, outputs);
}

size_t
sp_dev_linear_scratch_bytes (SpDevShape shape)
{
  return (size_t) (segments_of (shape.m) * shape.batch * shape.heads * shape.k * shape.n) * sizeof (float);
}

static bool
linear_is_legal (SpDevShape s, std::initializer_list<SpDevTensor> tiles, std::initializer_list<SpDevTensor> outs)
{
  for (SpDevTensor t : tiles)
    if (is_present (t) && (t.dtype != SP_DEV_BF16 || !is_aligned (t.data, 16)))
      return false;
  return s.k % 8 == 0 && s.n % 8 == 0 && s.k <= 256 && s.n <= 256 && s.batch * s.heads <= 65535 && are_floats (outs);
}

static Linear
linear_of (SpDevShape s, bool values_are_keys, bool reverse, const float *slopes, SpDevTensor queries, SpDevTensor keys,
           SpDevTensor values, SpDevTensor o, void *scratch)
{
  return { s.m,
           s.batch,
           s.heads,
           values_are_keys ? s.n : s.k,
           values_are_keys ? s.k : s.n,
           reverse,
           slopes,
           (const uint16_t *) queries.data,
           (const uint16_t *) keys.data,
           (const uint16_t *) values.data,
           o,
           (float *) scratch };
}

cudaError_t
sp_dev_linear_local (SpDevShape shape, const float *slopes, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
                     SpDevTensor o, float *state, void *scratch, cudaStream_t stream)
{
  if (!linear_is_legal (shape, { q, keys, values }, { o }))
    return cudaErrorInvalidValue;
  if (shape.m == 0 || shape.batch * shape.heads * shape.k * shape.n == 0)
    return cudaSuccess;
  return linear (linear_of (shape, false, false, slopes, q, keys, values, o, scratch), state, 0, stream);
}
