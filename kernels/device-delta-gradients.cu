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
#include "kernels/device-delta-steps.cuh"

/* Blocks of a multiprocessor; an A100's has no room for two. */
#if __CUDA_ARCH__ >= 900
#define BLOCKS 2
#else
#define BLOCKS 1
#endif

/* --- sums --------------------------------------------------------------------------------------------------------- */

template <typename G>
static __device__ inline void
scale_rows (const Spot &s, RowSums<G> &sums, float low, float high)
{
#pragma unroll
  for (int n = 0; n < G::blocks; n++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      sums.x[n][e] *= e < 2 ? low : high;
}

/* Of each of the lane's two rows, its columns' product with those of a tile: the quad's sum. */
template <typename G>
static __device__ inline float2
dot_rows (const Spot &s, const RowSums<G> &sums, uint32_t tile)
{
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float2 dot = make_float2 (0, 0);

#pragma unroll
  for (int n = 0; n < G::blocks; n++) {
    int piece = s.part * G::blocks + n;
    uint32_t low = load_word (tile + swizzled (16 * s.i + g, piece) + 4 * t);
    uint32_t high = load_word (tile + swizzled (16 * s.i + g + 8, piece) + 4 * t);
    dot.x += sums.x[n][0] * bf16_at (low, 0) + sums.x[n][1] * bf16_at (low, 1);
    dot.y += sums.x[n][2] * bf16_at (high, 0) + sums.x[n][3] * bf16_at (high, 1);
  }
  return make_float2 (quad_sum (dot.x), quad_sum (dot.y));
}

/* --- gates -------------------------------------------------------------------------------------------------------- */

/* Of a slice of a state's tile and the same of another in memory: a thread's part of the sum of their elements'
 * products. */
template <typename G>
static __device__ inline float
state_product (const Delta &a, const Spot &s, uint32_t tile, const uint16_t *states, int slice)
{
  float sum = 0;

#pragma unroll
  for (int i = threadIdx.x; i < SLICE * G::D / 8; i += G::threads) {
    int row = i / (G::D / 8), piece = i % (G::D / 8);
    if (slice + row < a.c)
      sum += product_of_eight (load_words (tile + swizzled (row, piece)),
                               *(const uint4 *) (states + (s.chunk * a.c + slice + row) * G::D + 8 * piece));
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

/* ret: q.dq of the lane's two rows. */
template <typename G>
static __device__ inline float2
make_dq (const DeltaGradients &g, const Spot &s, Steps<G> &steps, float since_low, float since_high)
{
  RowSums<G> dq = {};

  for (int i = 0; i < steps.slices; i++) {
    uint32_t d_o = steps.advance ();
    add_state<G> (s, dq, d_o, d_o + SQUARE);
  }
  scale_rows<G> (s, dq, since_low, since_high);
  add_square<G> (s, dq, steps.tiles.f, steps.tiles.keys);
  store_sums<G> (g.a, s, dq, g.dq);
  return dot_rows<G> (s, dq, steps.tiles.q);
}

/* What the gates need of the keys' gradients: k.(read - written) of the lane's two rows, k.written by the state's
 * gradient, of all of the warp's rows, and the thread's part of <dS', S>. */
struct KeyDots {
  float2 rows;
  float written, states;
};

template <typename G>
static __device__ inline KeyDots
make_dkeys (const DeltaGradients &g, const Spot &s, Steps<G> &steps, const float *weights)
{
  const float *since = weights + DELTA_SINCE * CHUNK, *left = weights + DELTA_LEFT * CHUNK;
  const float *beta = weights + DELTA_BETA * CHUNK;
  int low = 16 * s.i + (int) threadIdx.x % 32 / 4, high = low + 8;
  const Tiles<G> &tiles = steps.tiles;
  RowSums<G> read = {}, written = {};
  KeyDots dots = {};

  for (int slice = 0; slice < steps.slices; slice++) {
    uint32_t errors_d = steps.advance (), state = errors_d + SQUARE;
    add_state<G> (s, read, errors_d, state);
    uint32_t errors = steps.advance (), state_d = errors + SQUARE;
    add_state<G> (s, written, errors, state_d);
    dots.states += state_product<G> (g.a, s, state_d, g.a.states, slice * SLICE);
  }
  scale_rows<G> (s, read, -beta[low] * since[low], -beta[high] * since[high]);
  scale_rows<G> (s, written, beta[low] * left[low], beta[high] * left[high]);
  float2 by_state = dot_rows<G> (s, written, tiles.keys);
  dots.written = threadIdx.x % 4 == 0 ? by_state.x + by_state.y : 0;
  add_square<G> (s, read, tiles.e, tiles.keys);
  add_square_turned<G> (s, written, tiles.f, tiles.q);
  add_square_turned<G> (s, written, tiles.e, tiles.keys);
  float2 plus = dot_rows<G> (s, read, tiles.keys), minus = dot_rows<G> (s, written, tiles.keys);
  dots.rows = make_float2 (plus.x - minus.x, plus.y - minus.y);
#pragma unroll
  for (int n = 0; n < G::blocks; n++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      read.x[n][e] += written.x[n][e];
  store_sums<G> (g.a, s, read, g.dkeys);
  return dots;
}

template <typename G>
static __global__ void
__launch_bounds__ (G::threads, BLOCKS) gradient_kernel (DeltaGradients g)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  __shared__ float weights[DELTA_WEIGHTS * CHUNK], parts[2 * CHUNK], dbeta[CHUNK], warps[32];
  Tiles<G> tiles ((uint32_t) __cvta_generic_to_shared (dynamic));
  const Delta &a = g.a;
  int lane = threadIdx.x % 32;
  Spot s (a);

  static_assert (DELTA_WEIGHTS * CHUNK == G::threads);
  weights[threadIdx.x] = a.weights[s.chunk * G::threads + threadIdx.x];
  load_rows (a, s, tiles);
  Steps<G> steps (a, s, tiles);
  make_squares<G> (g, s, steps, weights, dbeta);
  int low = 16 * s.i + lane / 4;
  float2 of_q = make_dq<G> (g, s, steps, weights[low], weights[low + 8]);
  KeyDots of_keys = make_dkeys<G> (g, s, steps, weights);
  if (lane % 4 == 0) {
    parts[s.part * CHUNK + low] = of_q.x + of_keys.rows.x;
    parts[s.part * CHUNK + low + 8] = of_q.y + of_keys.rows.y;
  }
  /* <dS', S'> */
  float after = block_sum (of_keys.written + weights[DELTA_SINCE * CHUNK + CHUNK - 1] * of_keys.states, warps);
  store_dbeta (g, s, dbeta);
  if (g.dgates != nullptr && threadIdx.x < 32)
    store_dgates (g, s, parts, after);
}

cudaError_t
delta_gradients (const DeltaGradients &g, cudaStream_t stream)
{
  typedef Split<64, 2> Narrow;
  typedef Split<128, 2> Wide;
  dim3 grid ((unsigned) g.a.chunks, (unsigned) (g.a.batch * g.a.heads));

  if (g.a.d <= 64)
    return launch (gradient_kernel<Narrow>, grid, Narrow::threads, Tiles<Narrow>::bytes, stream, g);
  return launch (gradient_kernel<Wide>, grid, Wide::threads, Tiles<Wide>::bytes, stream, g);
}
