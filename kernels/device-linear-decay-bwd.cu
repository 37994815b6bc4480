/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of linear attention whose decay follows the data. First the states before all chunks and the gradients of
 * those after them (device-linear-decay-states.cu); then a block makes all gradients of a chunk, for the heads that share
 * its keys one after the other: four warps dq, four dk, four dv. Keys of more than 128 features go in two parts, the second
 * of which adds to what the first made of values and decays.
 */
#include "kernels/device-linear-decay-bwd.cuh"

#define THREADS 384
#define PART 128 /* features of keys */

struct Gradients {
  int64_t m, batch, heads, kv_heads;
  int d, c, first; /* features of keys, of values; the first of this part */
  const uint16_t *q, *keys, *values, *d_o;
  const float *gates;
  SpDevTensor beta;
  const uint16_t *states[2]; /* M and E [chunks,batch,heads,c,d] */
  SpDevTensor dq, dkeys, dvalues, dbeta;
  float *dgates;
};

/* Keys of D features in tiles, values of N; so many slices of 64 rows of both states are there at a time. */
template <int D_, int N_, int SLICES_, bool FEATURE_> struct Whole {
  static constexpr int D = D_, N = N_, slices = SLICES_;
  static constexpr bool feature = FEATURE_;
  static constexpr int key_bytes = CHUNK * 2 * D, value_bytes = CHUNK * 2 * N, slice_bytes = 64 * 2 * D;
  static constexpr int gates_at = 2 * key_bytes + 2 * value_bytes + 2 * slices * slice_bytes;
  static constexpr int gate_bytes = feature ? Gates<D>::bytes : HEAD_BYTES;
  static constexpr int sums_at = gates_at + gate_bytes;
  static constexpr int shares = THREADS / (D / 2); /* of the rows of a state, for M E */
  static constexpr int sum_bytes = 4 * (feature ? (shares + 4) * D : 9 * CHUNK);
  static constexpr int bytes = sums_at + sum_bytes;
};

/* What a block works on, of one head. */
struct Item {
  int chunk, b, kv, h, tokens;
  int64_t first;
};

/* Tiles, in shared memory. */
template <typename F> struct Tiles {
  uint32_t q, k, v, d, m, e; /* m, e: slices of states */
  unsigned char *gates;
  float *sums;

  __device__ Tiles (unsigned char *shared)
      : q ((uint32_t) __cvta_generic_to_shared (shared)), k (q + F::key_bytes), v (k + F::key_bytes),
        d (v + F::value_bytes), m (d + F::value_bytes), e (m + F::slices * F::slice_bytes), gates (shared + F::gates_at),
        sums ((float *) (shared + F::sums_at))
  {
  }
};

/* Sums of a decay a head, by token. */
enum { SUM_ROWS, SUM_INTER = 4, SUM_COLUMNS, SUM_OWN, SUM_AFTER, SUM_STATES };

/* 64 rows of D elements, by all threads. */
template <int D>
static __device__ inline void
load_rows (uint32_t tile, const uint16_t *from, int64_t stride, int rows, int columns)
{
  for (int i = threadIdx.x; i < 64 * D / 8; i += THREADS) {
    int row = i / (D / 8), piece = i % (D / 8);
    bool is_valid = row < rows && piece * 8 < columns;
    copy_16 (tile + swizzled (row, piece), is_valid ? from + row * stride + piece * 8 : from, is_valid);
  }
}

static __device__ inline int64_t
scalar_of (const Gradients &a, const Item &i, int64_t token)
{
  return ((i.first + token) * a.batch + i.b) * a.heads + i.h;
}

static __device__ inline int64_t
key_row_of (const Gradients &a, const Item &i, int64_t token)
{
  return (((i.first + token) * a.batch + i.b) * a.kv_heads + i.kv) * a.d + a.first;
}

template <typename F>
static __device__ inline void
load_slices (const Gradients &a, const Item &i, const Tiles<F> &t, int slice)
{
  int64_t vector = (i.chunk * a.batch + i.b) * a.heads + i.h;

#pragma unroll
  for (int j = 0; j < F::slices; j++) {
    int64_t at = (vector * a.c + 64 * (slice + j)) * a.d + a.first;
    int rows = a.c - 64 * (slice + j), columns = a.d - a.first;
    load_rows<F::D> (t.m + j * F::slice_bytes, a.states[0] + (rows > 0 ? at : 0), a.d, rows, columns);
    load_rows<F::D> (t.e + j * F::slice_bytes, a.states[1] + (rows > 0 ? at : 0), a.d, rows, columns);
  }
}

template <typename F>
static __device__ inline void
load_head (const Gradients &a, const Item &i, const Tiles<F> &t, bool with_keys)
{
  int columns = a.d - a.first;
  int64_t stride = a.batch * a.kv_heads * a.d, values = scalar_of (a, i, 0) * a.c, value_stride = a.batch * a.heads * a.c;

  if (with_keys) {
    load_rows<F::D> (t.q, a.q + key_row_of (a, i, 0), stride, i.tokens, columns);
    load_rows<F::D> (t.k, a.keys + key_row_of (a, i, 0), stride, i.tokens, columns);
  }
  load_rows<F::N> (t.v, a.values + values, value_stride, i.tokens, a.c);
  load_rows<F::N> (t.d, a.d_o + values, value_stride, i.tokens, a.c);
  if (F::feature)
    gates_load<F::D, THREADS> ((uint32_t) __cvta_generic_to_shared (t.gates),
                               a.gates + scalar_of (a, i, 0) * a.d + a.first, a.batch * a.heads * a.d, i.tokens, columns);
  load_slices (a, i, t, 0);
  copy_commit ();
}

/* --- a decay a head: weights -------------------------------------------------------------------------------------- */

/* w_ij of the warp's rows; both are tokens. 0 where the query is before the key. */
static __device__ inline float
head_weight (const float *b, int query, int key)
{
  return query >= key ? exp2_fast (b[query] - b[key]) : 0;
}

/* Of rows g and g + 8. */
static __device__ inline int
row_of (int w, int half)
{
  return 16 * w + (int) threadIdx.x % 32 / 4 + 8 * half;
}

/* dq's and dk's scores from P, or dv's from A without beta, of the columns from `first` on, in place. */
static __device__ inline void
head_weigh (float (&s)[4][4], const float *b, int w, bool reverse, int first, bool has_beta)
{
#pragma unroll
  for (int n = 0; n < 4; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int row = row_of (w, e / 2), column = first + index_of (n, e), query = reverse ? column : row,
          key = reverse ? row : column;
      s[n][e] *= head_weight (b, query, key) * (has_beta ? b[CHUNK + key] : 1);
    }
}

/* By rows (keys) of dk's warps: sums over queries of w A P, without beta, of different tokens, and of the same. */
struct HeadSums {
  float columns[2], own[2];
};

/* The columns' (queries') own go to `sums`. */
static __device__ inline void
head_pairs (const float (&p)[4][4], const float (&a)[4][4], const float *b, int w, int first, HeadSums &h, float *sums)
{
#pragma unroll
  for (int n = 0; n < 4; n++)
#pragma unroll
    for (int u = 0; u < 2; u++) {
      int query = first + index_of (n, u);
      float of_query = 0;
#pragma unroll
      for (int half = 0; half < 2; half++) {
        int key = row_of (w, half);
        float c = p[n][2 * half + u] * a[n][2 * half + u], pair = query > key ? head_weight (b, query, key) * c : 0;
        h.columns[half] += pair;
        h.own[half] += query == key ? c : 0;
        of_query += pair * b[CHUNK + key];
      }
      of_query = column_sum (of_query);
      if (threadIdx.x % 32 < 4)
        sums[(SUM_ROWS + w) * CHUNK + query] = of_query;
    }
}

static __device__ inline void
head_sums_store (const HeadSums &h, int w, float *sums)
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float columns = quad_sum (h.columns[half]), own = quad_sum (h.own[half]);
    if (threadIdx.x % 4 == 0) {
      sums[SUM_COLUMNS * CHUNK + row_of (w, half)] = columns;
      sums[SUM_OWN * CHUNK + row_of (w, half)] = own;
    }
  }
}

/* M E, of all elements that are there. */
template <typename F>
static __device__ inline float
states_product (const Tiles<F> &t)
{
  float sum = 0;

  for (int i = threadIdx.x; i < F::slices * F::slice_bytes / 16; i += THREADS) {
    uint4 m = load_words (t.m + 16 * i), e = load_words (t.e + 16 * i);
    const uint32_t x[4] = { m.x, m.y, m.z, m.w }, y[4] = { e.x, e.y, e.z, e.w };
#pragma unroll
    for (int j = 0; j < 4; j++)
      sum += bf16_at (x[j], 0) * bf16_at (y[j], 0) + bf16_at (x[j], 1) * bf16_at (y[j], 1);
  }
  return sum;
}

/* The same of each of two features. */
template <typename F>
static __device__ inline void
states_products (const Tiles<F> &t, float (&sum)[2])
{
  int feature = threadIdx.x % (F::D / 2) * 2;

  for (int j = 0; j < F::slices; j++)
    for (int row = threadIdx.x / (F::D / 2); row < 64; row += F::shares) {
      uint32_t at = j * F::slice_bytes + swizzled (row, feature / 8) + feature % 8 * 2;
      uint32_t x = load_word (t.m + at), y = load_word (t.e + at);
      sum[0] += bf16_at (x, 0) * bf16_at (y, 0);
      sum[1] += bf16_at (x, 1) * bf16_at (y, 1);
    }
}

/* By the first warp, two tokens a lane, once all sums are there. */
static __device__ inline void
head_gates (const Gradients &a, const Item &i, const float *b, const float *sums)
{
  int lane = threadIdx.x % 32;
  float x[2], after = 0, states = warp_sum (lane < THREADS / 32 ? sums[SUM_STATES * CHUNK + lane] : 0);

#pragma unroll
  for (int e = 0; e < 2; e++) {
    int t = 2 * lane + e;
    float beta = b[CHUNK + t], key = sums[SUM_COLUMNS * CHUNK + t], past = sums[SUM_AFTER * CHUNK + t];
    float query = sums[SUM_INTER * CHUNK + t];
#pragma unroll
    for (int w = 0; w < 4; w++)
      query += sums[(SUM_ROWS + w) * CHUNK + t];
    x[e] = query - beta * (key + past);
    after += beta * past;
    if (a.dbeta.data != nullptr && t < i.tokens) {
      int64_t at = scalar_of (a, i, t);
      store1 (a.dbeta, at, key + past + sums[SUM_OWN * CHUNK + t] + (a.first > 0 ? load1 (a.dbeta, at) : 0));
    }
  }
  float end = exp2_fast (b[CHUNK - 1]) * states + warp_sum (after), sum = x[0] + x[1];
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    float other = __shfl_down_sync (0xffffffffu, sum, offset);
    sum += lane + offset < 32 ? other : 0;
  }
  float later = __shfl_down_sync (0xffffffffu, sum, 1);
  later = x[1] + (lane < 31 ? later : 0);
#pragma unroll
  for (int e = 0; e < 2; e++)
    if (2 * lane + e < i.tokens) {
      float *to = a.dgates + scalar_of (a, i, 2 * lane + e);
      *to = end + (e == 0 ? sum : later) + (a.first > 0 ? *to : 0);
    }
}

/* --- a decay a feature -------------------------------------------------------------------------------------------- */

/* Where x of a token and feature is: another order in each row, so that those at once lie in different banks. */
template <int D>
static __device__ inline int
turned (int token, int feature)
{
  return token * D + (feature ^ (token & 7) << 3);
}

/* g (n, half, of two features b, and b at the end) */
template <int D, typename G>
static __device__ inline void
feature_each (const float *b, int w, G g)
{
  constexpr int row = Gates<D>::row;

#pragma unroll
  for (int n = 0; n < D / 8; n++) {
    float2 end = *(const float2 *) (b + (CHUNK - 1) * row + index_of (n, 0));
#pragma unroll
    for (int half = 0; half < 2; half++)
      g (n, half, *(const float2 *) (b + row_of (w, half) * row + index_of (n, 0)), end);
  }
}

/* A head's operands of pairs of tokens; of a decay a feature also those of the warp's own block, and what a token gives
 * itself. */
struct Pairs {
  uint32_t p[4][4], own[4];
  float itself[2];
};

/* Of P: what no query sees away, what it gives the token itself apart. */
static __device__ inline void
feature_mask (float (&s)[4][4], int w, bool reverse, int first, Pairs &r)
{
#pragma unroll
  for (int n = 0; n < 4; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int row = row_of (w, e / 2), column = first + index_of (n, e);
      s[n][e] = (reverse ? column >= row : row >= column) ? s[n][e] : 0;
      r.itself[e / 2] += row == column ? s[n][e] : 0;
    }
}

/* A^T of dv's warps, decayed. */
template <int D>
static __device__ inline void
feature_scores (uint32_t k_tile, uint32_t q_tile, const float *b, int w, Pairs &r)
{
  {
    float own[2][4];
    feature_diagonal<D> (k_tile, q_tile, b, w, true, own);
#pragma unroll
    for (int e = 0; e < 4; e++)
      r.own[e] = bf16_pair (own[e / 2][e % 2 * 2], own[e / 2][e % 2 * 2 + 1]);
  }
#pragma unroll
  for (int block = 0; block < 4; block++) {
#pragma unroll
    for (int e = 0; e < 4; e++)
      r.p[block][e] = block == w ? r.own[e] : 0;
    if (block <= w)
      continue;
    float s[2][4] = {};
    feature_block<D> (k_tile, q_tile, b, w, block, 16 * w + 15, s);
#pragma unroll
    for (int e = 0; e < 4; e++)
      r.p[block][e] = bf16_pair (s[e / 2][e % 2 * 2], s[e / 2][e % 2 * 2 + 1]);
  }
}

/* dq's or dk's rows from those of the state and P, without what a token gives itself; dk's sums over tokens of k times
 * the state's rows go to `sums`. */
template <int D>
static __device__ inline void
feature_gradient (float (&acc)[D / 8][4], const Pairs &pairs, uint32_t own_tile, uint32_t other_tile,
                  const float *b, int w, bool reverse, float *sums)
{
  feature_each<D> (b, w, [&] (int n, int half, float2 own, float2 end) {
    acc[n][2 * half] *= exp2_fast (reverse ? end.x - own.x : own.x);
    acc[n][2 * half + 1] *= exp2_fast (reverse ? end.y - own.y : own.y);
  });
  if (reverse)
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
      uint32_t x = pair_at (own_tile, w, n, 0), y = pair_at (own_tile, w, n, 1);
      float low = column_sum (bf16_at (x, 0) * acc[n][0] + bf16_at (y, 0) * acc[n][2]);
      float high = column_sum (bf16_at (x, 1) * acc[n][1] + bf16_at (y, 1) * acc[n][3]);
      if (threadIdx.x % 32 < 4)
        *(float2 *) (sums + w * D + index_of (n, 0)) = make_float2 (low, high);
    }
#pragma unroll
  for (int c = 0; c < D; c += 16) {
    feature_others<D> (acc, pairs.p, other_tile, b, c, w, reverse);
    feature_own<D> (acc, pairs.own, other_tile, b, c, w);
  }
}

/* x = q dq, and later less k dk; then what a token gives itself, of which both would have the same. */
template <int D>
static __device__ inline void
feature_products (float (&acc)[D / 8][4], const Pairs &pairs, uint32_t own_tile, uint32_t other_tile, float *x,
                  int w, bool reverse)
{
#pragma unroll
  for (int n = 0; n < D / 8; n++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t own = pair_at (own_tile, w, n, half), other = pair_at (other_tile, w, n, half);
      float2 *to = (float2 *) (x + turned<D> (row_of (w, half), index_of (n, 0)));
      float2 old = reverse ? *to : make_float2 (0, 0);
      float sign = reverse ? -1 : 1;
      *to = make_float2 (old.x + sign * bf16_at (own, 0) * acc[n][2 * half],
                         old.y + sign * bf16_at (own, 1) * acc[n][2 * half + 1]);
      acc[n][2 * half] += pairs.itself[half] * bf16_at (other, 0);
      acc[n][2 * half + 1] += pairs.itself[half] * bf16_at (other, 1);
    }
}

/* By a thread a feature, once all is there. */
template <typename F>
static __device__ inline void
feature_gates (const Gradients &a, const Item &i, const float *b, const float *x, const float *sums)
{
  int f = threadIdx.x;
  float states = 0;

  if (f >= F::D || a.first + f >= a.d)
    return;
  for (int j = 0; j < F::shares; j++)
    states += sums[j * F::D + f];
  float running = exp2_fast (b[(CHUNK - 1) * Gates<F::D>::row + f]) * states;
  for (int w = 0; w < 4; w++)
    running += sums[(F::shares + w) * F::D + f];
  for (int t = i.tokens - 1; t >= 0; t--) {
    running += x[turned<F::D> (t, f)];
    a.dgates[scalar_of (a, i, t) * a.d + a.first + f] = running;
  }
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* dv of 64 columns; of a decay a head `past` += what E has of them, without beta, times v. */
template <typename F>
static __device__ inline void
values_slice (const Gradients &a, const Item &i, const Tiles<F> &t, const uint32_t (&p)[4][4], uint32_t slice, int column,
              int w, float (&o)[8][4], float (&past)[2])
{
  const float *b = (const float *) t.gates;
  uint32_t k_tile = afresh (t.k);
  int lane = threadIdx.x % 32;

  slice = afresh (slice);
#pragma unroll
  for (int n = 0; n < 8; n++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      o[n][e] = 0;
#pragma unroll 1
  for (int k = 0; k < F::D; k += 16) {
    uint32_t x[4], y[4];

    fragment_a (x, k_tile, 16 * w, k);
    if (F::feature)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int feature = k + lane % 4 * 2 + e / 2 * 8;
        float2 own = *(const float2 *) (b + row_of (w, e % 2) * Gates<F::D>::row + feature);
        float2 end = *(const float2 *) (b + (CHUNK - 1) * Gates<F::D>::row + feature);
        x[e] = scale_pair (x[e], exp2_fast (end.x - own.x), exp2_fast (end.y - own.y));
      }
#pragma unroll
    for (int n = 0; n < 64; n += 16) {
      fragment_b_transposed (y, slice, n, k);
      mma (o[n / 8], x, y[0], y[1]);
      mma (o[n / 8 + 1], x, y[2], y[3]);
    }
  }
  if (!F::feature) {
    float factor[2] = { exp2_fast (b[CHUNK - 1] - b[row_of (w, 0)]), exp2_fast (b[CHUNK - 1] - b[row_of (w, 1)]) }, dots[2];
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        o[n][e] *= factor[e / 2];
    row_dots<64> (o, t.v, column, w, dots);
    past[0] += dots[0];
    past[1] += dots[1];
  }
  rows_by_columns<64> (o, p, t.d, column, w, true);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int token = row_of (w, half);
    float beta = F::feature ? 1 : b[CHUNK + token];
    int64_t at = scalar_of (a, i, token) * a.c + column;
#pragma unroll
    for (int n = 0; n < 8; n++) {
      float low = 0, high = 0;
      if (token >= i.tokens || column + index_of (n, 0) >= a.c)
        continue;
      if (a.first > 0)
        load_pair (a.dvalues, at + index_of (n, 0), &low, &high);
      store_pair (a.dvalues, at + index_of (n, 0), low + beta * o[n][2 * half], high + beta * o[n][2 * half + 1]);
    }
  }
}

/* --- the kernel --------------------------------------------------------------------------------------------------- */

template <int D>
static __device__ inline void
rows_store (const Gradients &a, const Item &i, SpDevTensor to, const float (&acc)[D / 8][4], int w)
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int64_t at = key_row_of (a, i, row_of (w, half));
#pragma unroll
    for (int n = 0; n < D / 8; n++)
      if (row_of (w, half) < i.tokens && a.first + index_of (n, 0) < a.d)
        store_pair (to, at + index_of (n, 0), acc[n][2 * half], acc[n][2 * half + 1]);
  }
}

enum { QUERIES, KEYS, VALUES };

template <typename F>
static __device__ inline void
pairs_of (const Tiles<F> &t, int group, int w, Pairs &r)
{
  const float *b = (const float *) t.gates;
  HeadSums h = {};
  [[maybe_unused]] int lane = threadIdx.x % 32;

  if (F::feature && group == VALUES) {
    feature_scores<F::D> (t.k, t.q, b, w, r);
    return;
  }
  r.itself[0] = r.itself[1] = 0;
#pragma unroll
  for (int block = 0; block < 4; block += 2) {
    float s[4][4] = {};

    if (group == QUERIES)
      rows_by_rows<F::N> (t.d, t.v, w, false, block, s);
    else if (group == KEYS)
      rows_by_rows<F::N> (t.v, t.d, w, true, block, s);
    else
      rows_by_rows<F::D> (t.k, t.q, w, true, block, s);
    if (F::feature)
      feature_mask (s, w, group == KEYS, 16 * block, r);
    else {
      if (group == KEYS) {
        float a[4][4] = {};
        rows_by_rows<F::D> (t.k, t.q, w, true, block, a);
        head_pairs (s, a, b, w, 16 * block, h, t.sums);
      }
      head_weigh (s, b, w, group != QUERIES, 16 * block, group != VALUES);
    }
    operand_of (s, r.p + block);
  }
  if constexpr (F::feature) {
#pragma unroll
    for (int half = 0; half < 2; half++) /* the lane of the quad that has it */
      r.itself[half] = __shfl_sync (0xffffffffu, r.itself[half], (lane & ~3) | lane / 8);
#pragma unroll
    for (int e = 0; e < 4; e++)
      r.own[e] = w == 0 ? r.p[0][e] : w == 1 ? r.p[1][e] : w == 2 ? r.p[2][e] : r.p[3][e];
  } else if (group == KEYS)
    head_sums_store (h, w, t.sums);
}

/* Tokens' weights in what goes through the states. */
static __device__ inline float
head_row_weight (const float *b, int group, int token)
{
  return group == QUERIES ? exp2_fast (b[token]) : b[CHUNK + token] * exp2_fast (b[CHUNK - 1] - b[token]);
}

template <typename F>
static __global__ void
__launch_bounds__ (THREADS, 1) gradients_kernel (Gradients a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  Tiles<F> t (dynamic);
  float *b = (float *) t.gates, *x = (float *) (dynamic + 2 * F::key_bytes + 2 * F::value_bytes);
  float acc[F::D / 8][4] = {};
  int group = threadIdx.x / 128, w = threadIdx.x / 32 % 4, share = (int) (a.heads / a.kv_heads);
  Item i = { (int) blockIdx.x, (int) (blockIdx.y / a.kv_heads), (int) (blockIdx.y % a.kv_heads), 0, 0,
             (int64_t) blockIdx.x * CHUNK };

  i.tokens = (int) min (a.m - i.first, (int64_t) CHUNK);
#pragma unroll 1
  for (int head = 0; head < share; head++) {
    Pairs pairs = {};
    float states[2] = {}, past[2] = {}, before[2] = {}, inter[2], low = 1, high = 1;

    i.h = i.kv * share + head;
    if (head > 0)
      __syncthreads (); /* the one before has been read */
    load_head (a, i, t, head == 0);
    if (!F::feature && threadIdx.x < 32) {
      HeadGates gates = { a.gates, a.beta, scalar_of (a, i, 0), a.batch * a.heads, i.tokens, {}, {} };
      gates.fetch (0);
      gates.put (t.gates, false);
    }
    copy_wait<0> ();
    __syncthreads ();
    if (F::feature)
      gates_scan<F::D, THREADS> (b, t.sums);
    pairs_of (t, group, w, pairs);
    if (!F::feature && group != VALUES) {
      low = head_row_weight (b, group, row_of (w, 0));
      high = head_row_weight (b, group, row_of (w, 1));
      if (head > 0 && group == QUERIES)
        row_dots<F::D> (acc, t.q, 0, w, before);
    }
#pragma unroll 1
    for (int slice = 0; slice < F::N / 64; slice += F::slices) {
      if (slice > 0) {
        __syncthreads ();
        load_slices (a, i, t, slice);
        copy_commit ();
        copy_wait<0> ();
        __syncthreads ();
      }
      if (F::feature)
        states_products (t, states);
      else
        states[0] += states_product (t);
#pragma unroll 1
      for (int j = 0; j < F::slices; j++) {
        int column = 64 * (slice + j);
        if (group == QUERIES)
          rows_by_state<F::D, !F::feature> (acc, t.d, column, t.m + j * F::slice_bytes, w, low, high);
        else if (group == KEYS)
          rows_by_state<F::D, !F::feature> (acc, t.v, column, t.e + j * F::slice_bytes, w, low, high);
        else
          values_slice (a, i, t, pairs.p, t.e + j * F::slice_bytes, column, w, *(float (*)[8][4]) acc, past);
      }
    }
    if (F::feature) {
      float *by_share = t.sums + threadIdx.x / (F::D / 2) * F::D + threadIdx.x % (F::D / 2) * 2;
      *(float2 *) by_share = make_float2 (states[0], states[1]);
      uint32_t own = group == QUERIES ? t.q : t.k, other = group == QUERIES ? t.k : t.q;
      if (group != VALUES)
        feature_gradient<F::D> (acc, pairs, own, other, b, w, group == KEYS, t.sums + F::shares * F::D);
      __syncthreads (); /* states have been read */
      if (group == QUERIES)
        feature_products<F::D> (acc, pairs, own, other, x, w, false);
      __syncthreads ();
      if (group == KEYS)
        feature_products<F::D> (acc, pairs, own, other, x, w, true);
      __syncthreads ();
      feature_gates<F> (a, i, b, x, t.sums);
    } else {
      states[0] = warp_sum (states[0]);
      if (threadIdx.x % 32 == 0)
        t.sums[SUM_STATES * CHUNK + threadIdx.x / 32] = states[0];
      if (group == QUERIES) {
        row_dots<F::D> (acc, t.q, 0, w, inter);
        rows_by_columns<F::D> (acc, pairs.p, t.k, 0, w, false);
      } else if (group == KEYS)
        rows_by_columns<F::D> (acc, pairs.p, t.q, 0, w, true);
      if (group != KEYS && threadIdx.x % 4 == 0)
#pragma unroll
        for (int half = 0; half < 2; half++)
          t.sums[(group == QUERIES ? SUM_INTER : SUM_AFTER) * CHUNK + row_of (w, half)] =
              group == QUERIES ? inter[half] - before[half] : past[half];
      __syncthreads ();
      if (threadIdx.x < 32)
        head_gates (a, i, b, t.sums);
    }
  }
  if (group != VALUES)
    rows_store<F::D> (a, i, group == QUERIES ? a.dq : a.dkeys, acc, w);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static size_t
kept_bytes (SpDevShape s)
{
  return (size_t) (div_up (s.m, CHUNK) * s.batch * s.heads * s.k * s.n) * sizeof (uint16_t);
}

size_t
sp_dev_recurrent_bwd_scratch_bytes (const SpDevRecurrence *r)
{
  return 2 * ((kept_bytes (r->shape) + 255) / 256 * 256) + decay_states_scratch (*r);
}

template <typename F>
static cudaError_t
run (const Gradients &a, cudaStream_t stream)
{
  dim3 grid ((unsigned) div_up (a.m, CHUNK), (unsigned) (a.batch * a.kv_heads));

  return launch (gradients_kernel<F>, grid, THREADS, F::bytes, stream, a);
}

template <int D, int N>
static cudaError_t
run_sized (const Gradients &a, bool feature, cudaStream_t stream)
{
  constexpr int slices = N == 64 ? 1 : 2;

  if (!feature)
    return run<Whole<D, N, slices, false>> (a, stream);
  if (slices == 1 || fits_in_block (Whole<D, N, slices, true>::bytes))
    return run<Whole<D, N, slices, true>> (a, stream);
  return run<Whole<D, N, 1, true>> (a, stream);
}

template <int D>
static cudaError_t
run_part (const Gradients &a, bool feature, cudaStream_t stream)
{
  return a.c <= 64    ? run_sized<D, 64> (a, feature, stream)
         : a.c <= 128 ? run_sized<D, 128> (a, feature, stream)
                      : run_sized<D, 256> (a, feature, stream);
}

cudaError_t
sp_dev_recurrent_bwd (const SpDevRecurrence *r, SpDevTensor q, SpDevTensor keys, SpDevTensor values, const float *gates,
                      SpDevTensor beta, SpDevTensor d_o, const float *state_in, const float *dstate_out, SpDevTensor dq,
                      SpDevTensor dkeys, SpDevTensor dvalues, float *dgates, SpDevTensor dbeta, float *dstate_in,
                      void *scratch, cudaStream_t stream)
{
  SpDevShape s = r->shape;
  size_t kept = (kept_bytes (s) + 255) / 256 * 256;
  uint16_t *states[2] = { (uint16_t *) scratch, (uint16_t *) ((char *) scratch + kept) };
  void *rest = (char *) scratch + 2 * kept;
  bool feature = r->decay == SP_DEV_DECAY_FEATURE;
  const float *before;
  cudaError_t error;

  if (!decay_is_legal (*r, { q, keys, values, d_o }, beta) || !are_floats ({ dq, dkeys, dvalues, dbeta }) ||
      s.batch * s.kv_heads > 65535)
    return cudaErrorInvalidValue;
  if (decay_is_empty (s))
    return cudaSuccess;
  error = decay_states ({ *r, gates, beta, false, keys, values, state_in, nullptr, nullptr, states[0], rest }, &before,
                        stream);
  if (error == cudaSuccess)
    error = decay_states ({ *r, gates, {}, true, q, d_o, dstate_out, dstate_in, nullptr, states[1], rest }, &before,
                          stream);
  Gradients a = { s.m,
                  s.batch,
                  s.heads,
                  s.kv_heads,
                  (int) s.k,
                  (int) s.n,
                  0,
                  (const uint16_t *) q.data,
                  (const uint16_t *) keys.data,
                  (const uint16_t *) values.data,
                  (const uint16_t *) d_o.data,
                  gates,
                  beta,
                  { states[0], states[1] },
                  dq,
                  dkeys,
                  dvalues,
                  dbeta,
                  dgates };
  for (; error == cudaSuccess && a.first < a.d; a.first += PART)
    error = a.d - a.first <= 64 ? run_part<64> (a, feature, stream) : run_part<128> (a, feature, stream);
  return error;
}
