/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The delta rule's gradients within a chunk with a decay a feature, a block for each chunk and value head. F, E and dbeta are
 * those of device-delta-gradients.cu without A, which is part of what they are multiplied by: with (.) elementwise
 *     dq_t = e^L_t (.) S do_t + sum over j of F_tj e^(L_t - L_j) (.) k_j
 *     dk_t = read - e^L_t (.) b_t S r_t, written + e^(L_63 - L_t) (.) b_t dS' u_t, where read and written of pairs are
 *     read_t = sum over j of E_tj e^(L_t - L_j) (.) k_j,   written_j = sum over t of e^(L_t - L_j) (.) (F_tj q_t + E_tj k_t)
 *     dL_t = q_t (.) dq_t + k_t (.) (read - written),  and of the last token the rows of dS' (.) S' besides
 * Pairs go by levels (device-delta-feature.cuh): what those of a level make of a token is multiplied by the token's factor,
 * and dL has it times the rounded operand that the other token of the pair is multiplied with, so that pairs cancel in its
 * sums.
 */
#include "kernels/device-delta-feature.cuh"
#include "kernels/device-delta-steps.cuh"

/* In shared memory, behind the tiles. In the end dL and its sums take the place of the steps. */
template <typename G> struct Space {
  using Columns = ::Columns<G::D, G::threads>;
  static constexpr int logs_at = Tiles<G>::bytes, parts_at = logs_at + CHUNK * log_row<G::D> () * 4;
  static constexpr int bytes = parts_at + Columns::sum_bytes;
  static constexpr int d_logs_at = 2 * Tiles<G>::rows_bytes, states_at = d_logs_at + CHUNK * log_row<G::D> () * 4;
  static constexpr int written_at = states_at + G::threads / 32 * G::D * 4; /* by warps; by 16 tokens */
  static_assert (written_at + CHUNK / 16 * G::D * 4 <= d_logs_at + 2 * Tiles<G>::step_bytes);
  static_assert (bytes <= 160 * 1024); /* compute capability 8.0 has 163 KiB, 2 of which are weights */
};

/* Of a warp's 16 tokens and its features. */
template <typename G> struct Rows {
  RowSums<G> dq, dkeys, d_logs;
};

/* Rows g and g + 8 of the warp's. */
static __device__ inline int
row_of (const Spot &s, int half)
{
  return 16 * s.i + (int) threadIdx.x % 32 / 4 + 8 * half;
}

template <typename G>
static __device__ inline int
feature_of (const Spot &s, int n)
{
  return s.part * G::own + index_of (n, 0);
}

/* --- by the states ------------------------------------------------------------------------------------------------ */

/* A thread's part of the rows of dS' (.) S: of 8 features, those of its 16 bytes in each row. */
struct StateDots {
  float x[8];
};

template <typename G>
static __device__ inline void
add_state_dots (const Delta &a, const Spot &s, uint32_t tile, int slice, StateDots &dots)
{
  constexpr int pieces = G::D / 8;
  int piece = threadIdx.x % pieces;

  static_assert (G::threads % pieces == 0);
#pragma unroll
  for (int row = threadIdx.x / pieces; row < SLICE; row += G::threads / pieces)
    if (slice + row < a.c) {
      uint4 d = load_words (tile + swizzled (row, piece));
      uint4 x = *(const uint4 *) (a.states + (s.chunk * a.c + slice + row) * G::D + 8 * piece);
      const uint32_t y[4] = { d.x, d.y, d.z, d.w }, z[4] = { x.x, x.y, x.z, x.w };
#pragma unroll
      for (int j = 0; j < 8; j++)
        dots.x[j] += bf16_at (y[j / 2], j % 2) * bf16_at (z[j / 2], j % 2);
    }
}

/* The warp's sums, [D] of each warp. */
template <typename G>
static __device__ inline void
store_state_dots (StateDots dots, float *sums)
{
  constexpr int pieces = G::D / 8;
  int lane = threadIdx.x % 32;

#pragma unroll
  for (int offset = pieces; offset < 32; offset *= 2)
#pragma unroll
    for (int j = 0; j < 8; j++)
      dots.x[j] += __shfl_xor_sync (0xffffffffu, dots.x[j], offset);
  if (lane < pieces)
#pragma unroll
    for (int j = 0; j < 8; j++)
      sums[threadIdx.x / 32 * G::D + 8 * lane + j] = dots.x[j];
}

/* The sums over slices: dq has S do, dkeys S r and d_logs dS' u. */
template <typename G>
static __device__ inline void
add_states (const Delta &a, const Spot &s, Steps<G> &steps, Rows<G> &rows, StateDots &dots)
{
  for (int i = 0; i < steps.slices; i++) {
    uint32_t d_o = steps.advance ();
    add_state<G> (s, rows.dq, d_o, d_o + SQUARE);
  }
  for (int i = 0; i < steps.slices; i++) {
    uint32_t errors_d = steps.advance ();
    add_state<G> (s, rows.dkeys, errors_d, errors_d + SQUARE);
    uint32_t errors = steps.advance ();
    add_state<G> (s, rows.d_logs, errors, errors + SQUARE);
    add_state_dots<G> (a, s, errors + SQUARE, i * SLICE, dots);
  }
}

/* From these sums to gradients, and, unless the pairs of 16 tokens have it, what a token has of itself: F_tt. The sums over
 * rows of k (.) written go to `sums`, [D]. */
template <typename G>
static __device__ inline void
finish_states (const Spot &s, const Tiles<G> &tiles, const float *logs, const float *beta, bool is_gentle,
               Rows<G> &rows, float *sums)
{
  constexpr int row_floats = log_row<G::D> ();
  float own[2];

#pragma unroll
  for (int half = 0; half < 2; half++) {
    int row = row_of (s, half);
    own[half] = is_gentle ? 0 : bf16_at (load_word (tiles.f + swizzled (row, row / 8) + row % 8 / 2 * 4), row % 2);
  }
#pragma unroll
  for (int n = 0; n < G::blocks; n++) {
    int feature = feature_of<G> (s, n);
    float2 end = *(const float2 *) (logs + (CHUNK - 1) * row_floats + feature);
    float by_row[2] = {};
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int row = row_of (s, e / 2);
      uint32_t place = pair_place (tiles.q, row, feature);
      float q = bf16_at (load_word (place), e % 2), key = bf16_at (load_word (place + Tiles<G>::rows_bytes), e % 2);
      float log = logs[row * row_floats + feature + e % 2];
      float since = exp2_fast (log), left = exp2_fast ((e % 2 ? end.y : end.x) - log);
      float dq = rows.dq.x[n][e] * since, read = -beta[row] * since * rows.dkeys.x[n][e];
      float written = beta[row] * left * rows.d_logs.x[n][e];
      rows.dq.x[n][e] = dq + own[e / 2] * key;
      rows.dkeys.x[n][e] = read + written + own[e / 2] * q;
      rows.d_logs.x[n][e] = q * dq + key * (read - written);
      by_row[e % 2] += key * written;
    }
    float low = rows_sum (by_row[0]), high = rows_sum (by_row[1]);
    if (threadIdx.x % 32 < 4)
      *(float2 *) (sums + feature) = make_float2 (low, high);
  }
}

/* --- by pairs of tokens ------------------------------------------------------------------------------------------- */

/* What all pairs of a warp's features go by: levels, the last of which may have all pairs of 16 tokens. */
struct Level {
  int level;
  float most;   /* as of level_factor */
  bool is_part; /* of the pairs of 16 tokens */
};

/* Factors of 16 tokens, that are summed over, and 16 features: as queries, or (sign -1) as keys. */
struct Factors {
  float x[4][2];
};

template <typename G>
static __device__ inline Factors
fragment_factors (const float *logs, const Level &l, float sign, int block, int feature)
{
  int token = 16 * block + (int) threadIdx.x % 4 * 2;
  Factors f;

  logs += feature + (int) threadIdx.x % 32 / 4;
#pragma unroll
  for (int e = 0; e < 4; e++)
#pragma unroll
    for (int j = 0; j < 2; j++) {
      int own = token + e % 2 * 8 + j, middle = level_middle (l.level, own);
      const float *at = logs + e / 2 * 8;
      f.x[e][j] = level_factor (sign * (at[own * log_row<G::D> ()] - at[middle * log_row<G::D> ()]), l.most);
    }
  return f;
}

/* Such rows of a tile, scaled. */
static __device__ inline void
scaled_fragment (uint32_t b[4], uint32_t tile, const Factors &f, int block, int feature)
{
  fragment_b (b, tile, 16 * block, feature);
#pragma unroll
  for (int e = 0; e < 4; e++)
    b[e] = scale_pair (b[e], f.x[e][0], f.x[e][1]);
}

/* Of 16 by 16 on the diagonal the level's pairs. */
static __device__ inline void
keep_level (uint32_t a[4], int level)
{
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
  for (int e = 0; e < 4; e++) {
    int row = g + e % 2 * 8, column = 2 * t + e / 2 * 8;
    a[e] &= (level_has (level, row, column) ? 0xffffu : 0) | (level_has (level, row, column + 1) ? 0xffff0000u : 0);
  }
}

/* sums += a b of 16 features. */
static __device__ inline void
add_pairs (float (&sums)[2][4], uint32_t a[4], const Level &l, const uint32_t b[4])
{
  if (l.is_part)
    keep_level (a, l.level);
  mma (sums[0], a, b[0], b[1]);
  mma (sums[1], a, b[2], b[3]);
}

/* What pairs make of the warp's tokens and 16 features, before the tokens' own factors: x of queries, or of keys that are
 * written, y of keys that read. */
struct PairSums {
  float x[2][4], y[2][4];
};

/* As queries, of keys of a block: dq, and of keys that read. */
template <typename G>
static __device__ inline void
add_keys (const Spot &s, const Tiles<G> &tiles, const float *logs, const Level &l, int block, int feature,
          PairSums &sums)
{
  Factors f = fragment_factors<G> (logs, l, -1, block, feature);
  uint32_t a[4], b[4];

  scaled_fragment (b, tiles.keys, f, block, feature);
  fragment_a (a, tiles.f, 16 * s.i, 16 * block);
  add_pairs (sums.x, a, l, b);
  fragment_a (a, tiles.e, 16 * s.i, 16 * block);
  add_pairs (sums.y, a, l, b);
}

/* As keys, of queries of a block and of keys there that read: those that are written. */
template <typename G>
static __device__ inline void
add_queries (const Spot &s, const Tiles<G> &tiles, const float *logs, const Level &l, int block, int feature,
             PairSums &sums)
{
  Factors f = fragment_factors<G> (logs, l, 1, block, feature);
  uint32_t a[4], b[4];

  scaled_fragment (b, tiles.q, f, block, feature);
  fragment_a_transposed (a, tiles.f, 16 * block, 16 * s.i);
  add_pairs (sums.x, a, l, b);
  scaled_fragment (b, tiles.keys, f, block, feature);
  fragment_a_transposed (a, tiles.e, 16 * block, 16 * s.i);
  add_pairs (sums.x, a, l, b);
}

/* f (n, element, factor, its rounded q, its rounded key) of the warp's rows and 16 features from the n-th 8 on. */
template <typename G, typename F>
static __device__ inline void
each_own (const Spot &s, const Tiles<G> &tiles, const float *logs, const Level &l, float sign, int n, F f)
{
#pragma unroll
  for (int m = 0; m < 2; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int row = row_of (s, half), feature = feature_of<G> (s, n + m);
      uint32_t place = pair_place (tiles.q, row, feature);
      float2 d = level_distance<G::D> (logs + feature, l.level, row);
      float low = level_factor (sign * d.x, l.most), high = level_factor (sign * d.y, l.most);
      uint32_t q = scale_pair (load_word (place), low, high);
      uint32_t key = scale_pair (load_word (place + Tiles<G>::rows_bytes), low, high);
      f (m, 2 * half, low, bf16_at (q, 0), bf16_at (key, 0));
      f (m, 2 * half + 1, high, bf16_at (q, 1), bf16_at (key, 1));
    }
}

/* Of 16 features. blocks: of a half; 0: pairs are the warp's own. */
template <typename G>
static __device__ inline void
add_level (const Spot &s, const Tiles<G> &tiles, const float *logs, const Level &l, int n, Rows<G> &rows)
{
  int blocks = l.level / 16, first = blocks == 0 ? s.i : (s.i & -2 * blocks) + (s.i & blocks ? 0 : blocks);
  int end = first + max (blocks, 1), feature = s.part * G::own + 8 * n;

  if (first <= s.i) {
    PairSums sums = {};
#pragma unroll 1
    for (int block = first; block < end; block++)
      add_keys<G> (s, tiles, logs, l, block, feature, sums);
    each_own<G> (s, tiles, logs, l, 1, n, [&] (int m, int e, float own, float q, float key) {
      rows.dq.x[n + m][e] += own * sums.x[m][e];
      rows.dkeys.x[n + m][e] += own * sums.y[m][e];
      rows.d_logs.x[n + m][e] += q * sums.x[m][e] + key * sums.y[m][e];
    });
  }
  if (first >= s.i) {
    PairSums sums = {};
#pragma unroll 1
    for (int block = first; block < end; block++)
      add_queries<G> (s, tiles, logs, l, block, feature, sums);
    each_own<G> (s, tiles, logs, l, -1, n, [&] (int m, int e, float own, float, float key) {
      rows.dkeys.x[n + m][e] += own * sums.x[m][e];
      rows.d_logs.x[n + m][e] -= key * sums.x[m][e];
    });
  }
}

template <typename G>
static __device__ inline void
add_levels (const Spot &s, const Tiles<G> &tiles, const float *logs, bool is_gentle, Rows<G> &rows)
{
#pragma unroll 1
  for (int level = CHUNK / 2; level >= (is_gentle ? 8 : 1); level /= 2) {
    const Level l = { level, is_gentle && level == 8 ? (float) STEEP : 0.0f, !is_gentle && level < 16 };
    Spot own = s;
#pragma unroll
    for (int n = 0; n < G::blocks; n += 2) {
      /* What follows from these is not worth registers for a whole loop. */
      asm volatile("" : "+l"(logs), "+r"(own.i), "+r"(own.part)::"memory");
      add_level<G> (own, tiles, logs, l, n, rows);
    }
  }
}

/* --- gates -------------------------------------------------------------------------------------------------------- */

/* dL to sums from each token on, with what the states make of all. Ends the kernel. */
template <typename G>
static __device__ inline void
store_dgates (const DeltaGradients &g, const Spot &s, unsigned char *shared, const float *ends)
{
  typename Space<G>::Columns c;
  constexpr int row_floats = log_row<G::D> ();
  const float *d_logs = (const float *) (shared + Space<G>::d_logs_at) + c.first * row_floats + c.feature;
  const float *written = (const float *) (shared + Space<G>::written_at) + c.feature;
  const float *states = (const float *) (shared + Space<G>::states_at) + c.feature;
  float *parts = (float *) (shared + Space<G>::parts_at) + c.feature;
  int64_t stride = g.a.batch * g.a.heads * g.a.d;
  float2 d[Space<G>::Columns::length], sum = make_float2 (0, 0), later = sum;

#pragma unroll
  for (int i = Space<G>::Columns::length - 1; i >= 0; i--)
    d[i] = sum = plus (sum, *(const float2 *) (d_logs + i * row_floats));
  *(float2 *) (parts + c.part * G::D) = sum;
  __syncthreads ();
  if (c.feature >= g.a.d)
    return;
#pragma unroll
  for (int w = 0; w < G::threads / 32; w++)
    later = plus (later, *(const float2 *) (states + w * G::D));
  later = make_float2 (later.x * ends[c.feature], later.y * ends[c.feature + 1]);
#pragma unroll
  for (int i = 0; i < CHUNK / 16; i++)
    later = plus (later, *(const float2 *) (written + i * G::D));
  for (int p = c.part + 1; p < Space<G>::Columns::parts; p++)
    later = plus (later, *(const float2 *) (parts + p * G::D));
  float *to = g.dgates + ((s.first + c.first) * g.a.batch * g.a.heads + s.head.scalar) * g.a.d + c.feature;
#pragma unroll
  for (int i = 0; i < Space<G>::Columns::length; i++, to += stride)
    if (c.first + i < s.rows)
      *(float2 *) to = plus (d[i], later);
}

template <typename G>
static __device__ inline void
store_d_logs (const Spot &s, const RowSums<G> &sums, float *to)
{
#pragma unroll
  for (int n = 0; n < G::blocks; n++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      *(float2 *) (to + row_of (s, half) * log_row<G::D> () + feature_of<G> (s, n)) =
          make_float2 (sums.x[n][2 * half], sums.x[n][2 * half + 1]);
}

/* --- the kernel --------------------------------------------------------------------------------------------------- */

template <typename G>
static __global__ void
__launch_bounds__ (G::threads, 1) gradient_kernel (DeltaGradients g)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  __shared__ float weights[DELTA_WEIGHTS * CHUNK], dbeta[CHUNK];
  Tiles<G> tiles ((uint32_t) __cvta_generic_to_shared (dynamic));
  float *logs = (float *) (dynamic + Space<G>::logs_at);
  const Delta &a = g.a;
  Rows<G> rows = {};
  StateDots dots = {};
  Spot s (a);

  for (int i = threadIdx.x; i < DELTA_WEIGHTS * CHUNK; i += G::threads)
    weights[i] = a.weights[s.chunk * DELTA_WEIGHTS * CHUNK + i];
  load_rows (a, s, tiles);
  gates_load<G::D, G::threads, log_row<G::D> ()> (tiles.q + Space<G>::logs_at, delta_gates (a, s.head, s.first),
                                                  a.batch * a.heads * a.d, s.rows, (int) a.d);
  Steps<G> steps (a, s, tiles);
  make_squares<G> (g, s, steps, weights, dbeta);
  logs_make<typename Space<G>::Columns, G::D> (logs, (float *) (dynamic + Space<G>::parts_at));
  add_states (a, s, steps, rows, dots);
  __syncthreads (); /* steps have been read */
  store_state_dots<G> (dots, (float *) (dynamic + Space<G>::states_at));
  bool gentle = __all_sync (0xffffffffu, is_gentle<G::D> (logs, s.i, s.part * G::own + (int) threadIdx.x % G::own));
  finish_states (s, tiles, logs, weights + DELTA_BETA * CHUNK, gentle, rows,
                 (float *) (dynamic + Space<G>::written_at) + s.i * G::D);
  add_levels (s, tiles, logs, gentle, rows);
  store_sums<G> (a, s, rows.dq, g.dq);
  store_sums<G> (a, s, rows.dkeys, g.dkeys);
  store_dbeta (g, s, dbeta);
  if (g.dgates == nullptr)
    return;
  store_d_logs (s, rows.d_logs, (float *) (dynamic + Space<G>::d_logs_at));
  __syncthreads ();
  store_dgates<G> (g, s, dynamic, weights + DELTA_ENDS * CHUNK);
}

cudaError_t
delta_feature_gradients (const DeltaGradients &g, cudaStream_t stream)
{
  typedef Split<64, 4> Narrow;
  typedef Split<128, 4> Wide;
  dim3 grid ((unsigned) g.a.chunks, (unsigned) (g.a.batch * g.a.heads));

  if (g.a.d <= 64)
    return launch (gradient_kernel<Narrow>, grid, Narrow::threads, Space<Narrow>::bytes, stream, g);
  return launch (gradient_kernel<Wide>, grid, Wide::threads, Space<Wide>::bytes, stream, g);
}
