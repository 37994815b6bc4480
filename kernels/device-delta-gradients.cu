/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The delta rule's gradients within a chunk, a block for each chunk and value head, from what the passes kept. With
 * A_tj = e^(L_t - L_j), r_t.u_j and do_t.u_j over the features of values,
 *     F_tj = A_tj b_j do_t.u_j  (j <= t),     E_tj = -A_tj b_t b_j r_t.u_j  (j < t)
 *     dq = F k + e^L_t S do_t
 *     dk = (E k - e^L_t b_t S r_t) + (F^T q + E^T k + e^(L_63 - L_t) b_t dS' u_t),  what reads the state, what writes it
 *     dbeta_t = r_t.u_t
 *     dL_t = q_t.dq_t + k_t.(read - written),  and of the last token <dS', S'> besides
 * A token's decay is in L of all tokens from it on. F and E are rounded once for rows and columns, so that what cancels
 * in these sums does so but for fp32.
 */
#include "kernels/device-delta-sums.cuh"

#define THREADS 256
/* Of a multiprocessor; an A100's has no room for two. */
#if __CUDA_ARCH__ >= 900
#define BLOCKS 2
#else
#define BLOCKS 1
#endif

/* Tiles in shared memory. What a slice needs is loaded anew for each of the sums over slices, in steps: of one three
 * tiles of values, of the others one and one of the state. Two steps have room, so that one is loaded while one is
 * worked on. */
template <int D> struct Tiles {
  static constexpr int row = 2 * D, rows_bytes = CHUNK * row, rows_of_step = SQUARE + rows_bytes,
                       step_bytes = 3 * SQUARE > rows_of_step ? 3 * SQUARE : rows_of_step;
  static constexpr int bytes = 2 * rows_bytes + 2 * step_bytes + 2 * SQUARE;
  static constexpr int half = D / 2, blocks = half / 8; /* of features that a warp has */
  uint32_t q, keys, steps, f, e;

  __device__ explicit Tiles (uint32_t at)
  {
    q = at;
    keys = q + rows_bytes;
    steps = keys + rows_bytes;
    f = steps + 2 * step_bytes;
    e = f + SQUARE;
  }
};

/* --- loads -------------------------------------------------------------------------------------------------------- */

static __device__ inline void
load_values (const Delta &a, const Spot &s, uint32_t tile, const uint16_t *from, int slice)
{
  load_tile<2 * SLICE, THREADS> (tile, from + s.head.value + s.first * s.head.value_stride + slice, s.head.value_stride,
                                 s.rows, (int) a.c - slice);
}

template <int D>
static __device__ inline void
load_state (const Delta &a, const Spot &s, uint32_t tile, const uint16_t *from, int slice)
{
  load_tile<2 * D, THREADS> (tile, from + (s.chunk * a.c + slice) * D, D, (int) a.c - slice, D);
}

/* The sums over slices, one behind the other: of do u and r u, of S do, then of S r and dS' u in turn. */
typedef enum { STEP_SQUARES, STEP_DQ, STEP_READ, STEP_WRITTEN } StepKind;

template <int D> struct Steps {
  const Delta &a;
  const Spot &s;
  const Tiles<D> &tiles;
  int slices, next; /* next: step that is loaded */

  __device__ Steps (const Delta &a_, const Spot &s_, const Tiles<D> &tiles_) : a (a_), s (s_), tiles (tiles_)
  {
    slices = (int) ((a.c + SLICE - 1) / SLICE);
    next = 0;
    start ();
  }

  __device__ StepKind kind (int step) const
  {
    return step < slices ? STEP_SQUARES : step < 2 * slices ? STEP_DQ : step % 2 == 0 ? STEP_READ : STEP_WRITTEN;
  }

  __device__ void start ()
  {
    StepKind k = kind (next);
    int slice = (k == STEP_SQUARES ? next : k == STEP_DQ ? next - slices : next / 2 - slices) * SLICE;
    uint32_t to = tiles.steps + next % 2 * Tiles<D>::step_bytes;
    if (next < 4 * slices) {
      load_values (a, s, to, k == STEP_READ ? a.errors_d : k == STEP_WRITTEN ? a.errors : a.d_o, slice);
      if (k == STEP_SQUARES) {
        load_values (a, s, to + SQUARE, a.errors, slice);
        load_values (a, s, to + 2 * SQUARE, a.errors_d, slice);
      } else
        load_state<D> (a, s, to + SQUARE, k == STEP_WRITTEN ? a.states_d : a.states, slice);
    }
    copy_commit ();
    next++;
  }

  /* Where the next step's tiles are; those of the one before are given up. */
  __device__ uint32_t advance ()
  {
    uint32_t at = tiles.steps + (next + 1) % 2 * Tiles<D>::step_bytes;
    copy_wait<0> ();
    __syncthreads ();
    start ();
    return at;
  }
};

/* dvalues = beta r, of a slice. */
static __device__ inline void
store_dvalues (const Delta &a, const Spot &s, uint32_t tile, const float *weights, int slice, uint16_t *dvalues)
{
  for (int i = threadIdx.x; i < CHUNK * SLICE / 8; i += THREADS) {
    int row = i / 8, piece = i % 8;
    if (row < s.rows && slice + 8 * piece < a.c) {
      uint4 w = load_words (tile + swizzled (row, piece));
      float beta = weights[DELTA_BETA * CHUNK + row];
      uint32_t words[4] = { w.x, w.y, w.z, w.w };
#pragma unroll
      for (int j = 0; j < 4; j++)
        words[j] = bf16_pair (beta * bf16_at (words[j], 0), beta * bf16_at (words[j], 1));
      *(uint4 *) (dvalues + s.head.value + (s.first + row) * s.head.value_stride + slice + 8 * piece) =
          make_uint4 (words[0], words[1], words[2], words[3]);
    }
  }
}

/* --- sums
 * ---------------------------------------------------------------------------------------------------------- */

template <int D>
static __device__ inline void
scale_rows (const Spot &s, Sums<D> &sums, float low, float high)
{
#pragma unroll
  for (int n = 0; n < D / 16; n++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      sums.x[n][e] *= e < 2 ? low : high;
}

/* Of each of the lane's two rows, its columns' product with those of a tile: the quad's sum. */
template <int D>
static __device__ inline float2
dot_rows (const Spot &s, const Sums<D> &sums, uint32_t tile)
{
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float2 dot = make_float2 (0, 0);

#pragma unroll
  for (int n = 0; n < D / 16; n++) {
    int piece = s.half * (D / 16) + n;
    uint32_t low = load_word (tile + swizzled (16 * s.i + g, piece) + 4 * t);
    uint32_t high = load_word (tile + swizzled (16 * s.i + g + 8, piece) + 4 * t);
    dot.x += sums.x[n][0] * bf16_at (low, 0) + sums.x[n][1] * bf16_at (low, 1);
    dot.y += sums.x[n][2] * bf16_at (high, 0) + sums.x[n][3] * bf16_at (high, 1);
  }
#pragma unroll
  for (int offset = 1; offset < 4; offset *= 2) {
    dot.x += __shfl_xor_sync (0xffffffffu, dot.x, offset);
    dot.y += __shfl_xor_sync (0xffffffffu, dot.y, offset);
  }
  return dot;
}

template <int D>
static __device__ inline void
store_sums (const Delta &a, const Spot &s, const Sums<D> &sums, SpDevTensor out)
{
  bool is_shared = out.dtype == SP_DEV_FP32;
  int64_t stride = is_shared ? a.batch * a.heads * a.d : s.head.key_stride;
  int64_t at = (is_shared ? s.head.scalar * a.d : s.head.key) + s.first * stride;
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
  for (int n = 0; n < D / 16; n++)
#pragma unroll
    for (int below = 0; below < 2; below++) {
      int row = 16 * s.i + g + 8 * below, column = s.half * (D / 2) + 8 * n + 2 * t;
      if (row < s.rows && column < a.d)
        store_pair (out, at + row * stride + column, sums.x[n][2 * below], sums.x[n][2 * below + 1]);
    }
}

/* --- gates -------------------------------------------------------------------------------------------------------- */

static __device__ inline float
product_of (uint4 a, uint4 b)
{
  const uint32_t x[4] = { a.x, a.y, a.z, a.w }, y[4] = { b.x, b.y, b.z, b.w };
  float sum = 0;

#pragma unroll
  for (int j = 0; j < 4; j++)
    sum += bf16_at (x[j], 0) * bf16_at (y[j], 0) + bf16_at (x[j], 1) * bf16_at (y[j], 1);
  return sum;
}

/* Of a slice of a state's tile and the same of another in memory: a thread's part of the sum of their elements'
 * products. */
template <int D>
static __device__ inline float
state_product (const Delta &a, const Spot &s, uint32_t tile, const uint16_t *states, int slice)
{
  float sum = 0;

#pragma unroll
  for (int i = threadIdx.x; i < SLICE * D / 8; i += THREADS) {
    int row = i / (D / 8), piece = i % (D / 8);
    if (slice + row < a.c)
      sum += product_of (load_words (tile + swizzled (row, piece)),
                         *(const uint4 *) (states + (s.chunk * a.c + slice + row) * D + 8 * piece));
  }
  return sum;
}

/* By a warp: dL of 64 tokens, of which parts has both halves, to sums from each token on. */
static __device__ inline void
store_dgates (const DeltaGradients &g, const Spot &s, const float *parts, float after)
{
  int lane = threadIdx.x;
  float d[2], sum;

#pragma unroll
  for (int e = 0; e < 2; e++)
    d[e] = parts[2 * lane + e] + parts[CHUNK + 2 * lane + e];
  sum = d[0] + d[1];
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    float more = __shfl_down_sync (0xffffffffu, sum, offset);
    sum += lane + offset < 32 ? more : 0;
  }
#pragma unroll
  for (int e = 0; e < 2; e++) {
    int token = 2 * lane + e;
    if (token < s.rows)
      g.dgates[(s.first + token) * g.a.batch * g.a.heads + s.head.scalar] = after + (e == 0 ? sum : sum - d[0]);
  }
}

/* --- the kernel --------------------------------------------------------------------------------------------------- */

template <int D>
static __device__ inline void
make_squares (const DeltaGradients &g, const Spot &s, Steps<D> &steps, const float *weights, float *dbeta)
{
  Squares squares = {};

  for (int slice = 0; slice < g.a.c; slice += SLICE) {
    uint32_t d_o = steps.advance (), errors = d_o + SQUARE, errors_d = errors + SQUARE;
    add_squares (s, squares, d_o, errors_d, errors);
    store_dvalues (g.a, s, errors_d, weights, slice, g.dvalues);
  }
  store_squares (s, squares, weights, steps.tiles.f, steps.tiles.e, dbeta); /* read after more barriers */
}

/* ret: q.dq of the lane's two rows. */
template <int D>
static __device__ inline float2
make_dq (const DeltaGradients &g, const Spot &s, Steps<D> &steps, float since_low, float since_high)
{
  Sums<D> dq = {};

  for (int i = 0; i < steps.slices; i++) {
    uint32_t d_o = steps.advance ();
    add_state (s, dq, d_o, d_o + SQUARE);
  }
  scale_rows<D> (s, dq, since_low, since_high);
  add_square (s, dq, steps.tiles.f, steps.tiles.keys);
  store_sums<D> (g.a, s, dq, g.dq);
  return dot_rows<D> (s, dq, steps.tiles.q);
}

/* What the gates need of the keys' gradients: k.(read - written) of the lane's two rows, k.written by the state's
 * gradient, of all of the warp's rows, and the thread's part of <dS', S>. */
struct KeyDots {
  float2 rows;
  float written, states;
};

template <int D>
static __device__ inline KeyDots
make_dkeys (const DeltaGradients &g, const Spot &s, Steps<D> &steps, const float *weights)
{
  const float *since = weights + DELTA_SINCE * CHUNK, *left = weights + DELTA_LEFT * CHUNK;
  const float *beta = weights + DELTA_BETA * CHUNK;
  int low = 16 * s.i + (int) threadIdx.x % 32 / 4, high = low + 8;
  const Tiles<D> &tiles = steps.tiles;
  Sums<D> read = {}, written = {};
  KeyDots dots = {};

  for (int slice = 0; slice < steps.slices; slice++) {
    uint32_t errors_d = steps.advance (), state = errors_d + SQUARE;
    add_state (s, read, errors_d, state);
    uint32_t errors = steps.advance (), state_d = errors + SQUARE;
    add_state (s, written, errors, state_d);
    dots.states += state_product<D> (g.a, s, state_d, g.a.states, slice * SLICE);
  }
  scale_rows<D> (s, read, -beta[low] * since[low], -beta[high] * since[high]);
  scale_rows<D> (s, written, beta[low] * left[low], beta[high] * left[high]);
  float2 by_state = dot_rows<D> (s, written, tiles.keys);
  dots.written = threadIdx.x % 4 == 0 ? by_state.x + by_state.y : 0;
  add_square (s, read, tiles.e, tiles.keys);
  add_square_turned (s, written, tiles.f, tiles.q);
  add_square_turned (s, written, tiles.e, tiles.keys);
  float2 plus = dot_rows<D> (s, read, tiles.keys), minus = dot_rows<D> (s, written, tiles.keys);
  dots.rows = make_float2 (plus.x - minus.x, plus.y - minus.y);
#pragma unroll
  for (int n = 0; n < D / 16; n++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      read.x[n][e] += written.x[n][e];
  store_sums<D> (g.a, s, read, g.dkeys);
  return dots;
}

template <int D>
static __global__ void
__launch_bounds__ (THREADS, BLOCKS) gradient_kernel (DeltaGradients g)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  __shared__ float weights[DELTA_WEIGHTS * CHUNK], parts[2 * CHUNK], dbeta[CHUNK], warps[32];
  Tiles<D> tiles ((uint32_t) __cvta_generic_to_shared (dynamic));
  const Delta &a = g.a;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Spot s;

  s.head = delta_head (a, blockIdx.y);
  s.chunk = delta_chunk (a, s.head, blockIdx.x);
  s.first = (int64_t) blockIdx.x * CHUNK;
  s.rows = (int) min (a.m - s.first, (int64_t) CHUNK);
  s.i = warp % 4;
  s.half = warp / 4;
  static_assert (DELTA_WEIGHTS * CHUNK == THREADS);
  weights[threadIdx.x] = a.weights[s.chunk * THREADS + threadIdx.x];
  load_tile<2 * D, THREADS> (tiles.q, a.q + s.head.key + s.first * s.head.key_stride, s.head.key_stride, s.rows,
                             (int) a.d);
  load_tile<2 * D, THREADS> (tiles.keys, a.keys + s.head.key + s.first * s.head.key_stride, s.head.key_stride, s.rows,
                             (int) a.d);
  Steps<D> steps (a, s, tiles);
  make_squares<D> (g, s, steps, weights, dbeta);
  int low = 16 * s.i + lane / 4;
  float2 of_q = make_dq<D> (g, s, steps, weights[low], weights[low + 8]);
  KeyDots of_keys = make_dkeys<D> (g, s, steps, weights);
  if (lane % 4 == 0) {
    parts[s.half * CHUNK + low] = of_q.x + of_keys.rows.x;
    parts[s.half * CHUNK + low + 8] = of_q.y + of_keys.rows.y;
  }
  /* <dS', S'> */
  float after = block_sum (of_keys.written + weights[DELTA_SINCE * CHUNK + CHUNK - 1] * of_keys.states, warps);
  if (g.dbeta.data != nullptr && (int) threadIdx.x < s.rows)
    store1 (g.dbeta, (s.first + threadIdx.x) * a.batch * a.heads + s.head.scalar, dbeta[threadIdx.x]);
  if (g.dgates != nullptr && warp == 0)
    store_dgates (g, s, parts, after);
}

cudaError_t
delta_gradients (const DeltaGradients &g, cudaStream_t stream)
{
  dim3 grid ((unsigned) g.a.chunks, (unsigned) (g.a.batch * g.a.heads));

  if (g.a.d <= 64)
    return launch (gradient_kernel<64>, grid, THREADS, Tiles<64>::bytes, stream, g);
  return launch (gradient_kernel<128>, grid, THREADS, Tiles<128>::bytes, stream, g);
}
