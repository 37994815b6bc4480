/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pieces of the backward of linear attention with a decay a feature, of a chunk and head. With q' and k' as scaled
 * (device-linear-decay-feature.cuh), M the state before the chunk and E the gradient of that after it, both scaled to the
 * chunk's middle, P_ij = dO_i v_j and A_ij = q'_i k'_j, of j up to i:
 *     dq'_i = sum P_ij k'_j + M dO_i       dq_i = 2^(b_i - r) dq'_i
 *     dk'_j = sum P_ij q'_i + E v_j        dk_j = 2^(r - b_j) dk'_j
 *     dv_j = sum A_ij dO_i + E^T k'_j
 * The gradient of token t's logarithm is the sum of x_i = q'_i dq'_i - k'_i dk'_i from t on, and of M E + sum k'_j E v_j over
 * all tokens, which is what passes the chunk's end. A pair of tokens has the same rounded operands in q' dq' and in k' dk',
 * so that what it has outside t cancels as if it were exact.
 *
 * A warp has 16 tokens, and half of the columns of all that it makes.
 */

#include "kernels/device-linear-decay-feature.cuh"

#define THREADS 256

struct Gradients {
  int64_t m, batch, heads;
  int d, c, first; /* features of keys, of values; the first of this part */
  const uint16_t *q, *keys, *values, *d_o;
  const float *gates;
  const uint16_t *states[2]; /* M and E [chunks,batch,heads,c,d] */
  const uint32_t *masks;
  SpDevTensor dq, dkeys, dvalues;
  bool is_wide; /* dvalues is bf16 and aligned to 16 bytes */
  float *dgates;
};

#define PAIRS_BYTES (10 * 512) /* P or A: blocks of 16 by 16 on and below the diagonal */

/* Of D features and N values, of chunks with steep features or without. 64 rows of each state are there at a time, but of
 * steep features and long values first of E, then of M in the same place: compute capability 8.0 has 163 KiB. What is
 * added up of dq' and dk', in fp32, lies in the end where values, d_o and states were. */
template <int D_, int N_, bool STEEP_> struct Whole {
  static constexpr int D = D_, N = N_;
  static constexpr bool steep = STEEP_, together = !STEEP_ || N_ <= 128;
  using Columns = ::Columns<D, THREADS>;
  static constexpr int key_bytes = CHUNK * 2 * D, value_bytes = CHUNK * 2 * N, slice_bytes = 64 * 2 * D;
  static constexpr int values_at = 2 * key_bytes, slices_at = values_at + 2 * value_bytes;
  static constexpr int rows_at = values_at, rows_end = rows_at + 2 * CHUNK * D * 4;
  static constexpr int slices_end = slices_at + (together ? 2 : 1) * slice_bytes;
  static constexpr int pairs_at = rows_end > slices_end ? rows_end : slices_end;
  static constexpr int parts_at = pairs_at + 2 * PAIRS_BYTES;     /* of b; where P was later those of x */
  static constexpr int states_at = parts_at + Columns::sum_bytes; /* M E, by threads' rows */
  static constexpr int after_at = states_at + Columns::sum_bytes; /* k' E v, by 16 tokens */
  static constexpr int b_at = after_at + CHUNK / 16 * D * 4;
  static constexpr int b_row = D + 8; /* rows of a warp's in different banks */
  static constexpr int bytes = b_at + (steep ? CHUNK * b_row * 4 : 0);
  static_assert (Columns::sum_bytes <= PAIRS_BYTES && bytes <= 163 * 1024);
};

/* What a block works on. */
struct Item {
  int64_t chunk, vector, first; /* of batch and heads; token */
  int tokens;

  __device__ Item (const Gradients &a)
  {
    int64_t vectors = a.batch * a.heads;

    chunk = divide (blockIdx.x, vectors);
    vector = blockIdx.x - chunk * vectors;
    first = chunk * CHUNK;
    tokens = (int) min (a.m - first, (int64_t) CHUNK);
  }
};

template <typename F> struct Tiles {
  unsigned char *shared;
  uint32_t q, k, v, d, m, e, p, a; /* m, e: slices of states; p, a: pairs */

  __device__ Tiles (unsigned char *shared_)
      : shared (shared_), q ((uint32_t) __cvta_generic_to_shared (shared)), k (q + F::key_bytes), v (q + F::values_at),
        d (v + F::value_bytes), m (q + F::slices_at), e (m + (F::together ? F::slice_bytes : 0)), p (q + F::pairs_at),
        a (p + PAIRS_BYTES)
  {
  }
  __device__ float *floats (int at) const
  {
    return (float *) (shared + at);
  }
};

/* Of a token, rows of so many elements. */
static __device__ inline int64_t
row_at (const Gradients &a, const Item &i, int token, int size)
{
  return ((i.first + token) * a.batch * a.heads + i.vector) * size;
}

/* Rows g and g + 8 of the warp's. */
static __device__ inline int
token_of (int w, int half)
{
  return 16 * w + (int) threadIdx.x % 32 / 4 + 8 * half;
}

/* --- pairs of tokens ---------------------------------------------------------------------------------------------- */

/* Where 16 bytes of a row of a block of queries by keys are: rows of 32 bytes, turned so that 8 lie in different banks. */
static __device__ inline uint32_t
pairs_place (uint32_t pairs, int i, int j, int row, int piece)
{
  return pairs + (i * (i + 1) / 2 + j) * 512 + row * 32 + ((piece ^ (row >> 2 & 1)) << 4);
}

static __device__ inline void
pairs_store (uint32_t pairs, int i, int j, const float (&s)[2][4])
{
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int e = 0; e < 4; e += 2)
      store_word (pairs_place (pairs, i, j, g + 4 * e, n) + 4 * t, bf16_pair (s[n][e], s[n][e + 1]));
}

/* Operands: rows are queries or, turned, keys. */
static __device__ inline void
pairs_operand (uint32_t a[4], uint32_t pairs, int i, int j)
{
  int lane = threadIdx.x % 32;

  load_matrices (a, pairs_place (pairs, i, j, lane % 16, lane / 16));
}

static __device__ inline void
pairs_operand_turned (uint32_t a[4], uint32_t pairs, int i, int j)
{
  int lane = threadIdx.x % 32;

  load_matrices_transposed (a, pairs_place (pairs, i, j, lane / 16 * 8 + lane % 8, lane / 8 % 2));
}

static __device__ inline float
pair_at (uint32_t pairs, int query, int key)
{
  uint32_t at = pairs_place (pairs, query / 16, key / 16, query % 16, key % 16 / 8);

  return query >= key ? bf16_at (load_word (at + key % 8 / 2 * 4), key % 2) : 0;
}

/* P and A, 20 blocks dealt to the warps. */
template <typename F>
static __device__ inline void
pairs_make (const Tiles<F> &t, const uint32_t *mask)
{
  for (int u = threadIdx.x / 32; u < 20; u += THREADS / 32) {
    int v = u % 10, i = v < 1 ? 0 : v < 3 ? 1 : v < 6 ? 2 : 3, j = v - i * (i + 1) / 2;
    float s[2][4] = {};

    if (u < 10)
      rows_by_rows<F::N> (t.d, t.v, i, j, s);
    else {
      rows_by_rows<F::D> (t.q, t.k, i, j, s);
      if (F::steep)
        steep_scores<F::D, F::b_row> (t.q, t.k, t.floats (F::b_at), mask, i, j, s);
    }
    causal (i, j, s);
    pairs_store (u < 10 ? t.p : t.a, i, j, s);
  }
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* acc[16,C] += x[16,64] y[64,C], from a column of x and of y on. */
template <int C>
static __device__ inline void
rows_by_slice (float (&acc)[C / 8][4], uint32_t x_tile, int x_column, uint32_t y_tile, int y_column, int w)
{
#pragma unroll 2
  for (int k = 0; k < 64; k += 16) {
    uint32_t a[4];

    fragment_a (a, x_tile, 16 * w, x_column + k);
#pragma unroll
    for (int c = 0; c < C; c += 16) {
      uint32_t b[4];

      fragment_b (b, y_tile, k, y_column + c);
      mma (acc[c / 8], a, b[0], b[1]);
      mma (acc[c / 8 + 1], a, b[2], b[3]);
    }
  }
}

/* acc[16,C] += what pairs make of a tile's rows from a column on: of queries' pairs with keys up to them or, turned, of
 * keys' with queries from them on. */
template <int C, bool TURNED>
static __device__ inline void
pairs_by_rows (float (&acc)[C / 8][4], uint32_t pairs, uint32_t tile, int column, int w)
{
#pragma unroll 1
  for (int block = TURNED ? w : 0; TURNED ? block < 4 : block <= w; block++) {
    uint32_t a[4];

    if (TURNED)
      pairs_operand_turned (a, pairs, block, w);
    else
      pairs_operand (a, pairs, w, block);
#pragma unroll
    for (int c = 0; c < C; c += 16) {
      uint32_t b[4];

      fragment_b (b, tile, 16 * block, column + c);
      mma (acc[c / 8], a, b[0], b[1]);
      mma (acc[c / 8 + 1], a, b[2], b[3]);
    }
  }
}

/* The sums over the warp's tokens of k' times what E makes, to sums [D]. */
template <typename F>
static __device__ inline void
after_sums (const Tiles<F> &t, const float (&acc)[F::D / 16][4], int w, int column, float *sums)
{
#pragma unroll
  for (int n = 0; n < F::D / 16; n++) {
    int feature = column + index_of (n, 0);
    uint32_t x = load_word (pair_place (t.k, token_of (w, 0), feature)),
             y = load_word (pair_place (t.k, token_of (w, 1), feature));
    float low = rows_sum (bf16_at (x, 0) * acc[n][0] + bf16_at (y, 0) * acc[n][2]);
    float high = rows_sum (bf16_at (x, 1) * acc[n][1] + bf16_at (y, 1) * acc[n][3]);
    if (threadIdx.x % 32 < 4)
      *(float2 *) (sums + feature) = make_float2 (low, high);
  }
}

/* --- steep features ----------------------------------------------------------------------------------------------- */

/* What comes from the states: queries' to the chunk's start, or keys' to its end. */
template <typename F, bool KEYS>
static __device__ inline void
steep_factors (float (&acc)[F::D / 16][4], const float *b, const uint32_t *mask, int w, int column)
{
#pragma unroll
  for (int n = 0; n < F::D / 16; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int feature = column + index_of (n, e);
      float own = b[token_of (w, e / 2) * F::b_row + feature], end = b[(CHUNK - 1) * F::b_row + feature];
      acc[n][e] *= mask_has (mask, feature) ? exp2_fast (KEYS ? end - own : own) : 1;
    }
}

/* Where an element of a row is, in fp32: another order in each row, so that those at once lie in different banks. */
template <int D>
static __device__ inline int
turned (int token, int feature)
{
  return token * D + (feature ^ (token & 7) << 3);
}

/* What pairs lack of dq and dk, [2,64,D] in shared memory. Four lanes have a token, and every fourth other one each: a key
 * of the token's query or, after it, a query of its key. */
template <typename F>
static __device__ inline void
steep_pairs (const Tiles<F> &t, const uint32_t *mask, float *rows)
{
  int own = (int) threadIdx.x / 4, lane = threadIdx.x % 4;
  const float *b = t.floats (F::b_at);

  steep_each<F::D> (mask, [&] (int feature, Steep steep) {
    float2 from = *(const float2 *) (b + own * F::b_row + feature);
    float sum[2][2] = {}; /* of dq, dk; of two features */
#pragma unroll 4
    for (int other = lane; other < CHUNK; other += 4) {
      int is_query = other > own;
      uint32_t word = load_word (pair_place (is_query ? t.q : t.k, other, feature));
      float2 to = *(const float2 *) (b + other * F::b_row + feature);
      float p = pair_at (t.p, max (own, other), min (own, other));
      float x = p * bf16_at (word, 0) * lack_of (is_query ? to.x : from.x, is_query ? from.x : to.x);
      float y = p * bf16_at (word, 1) * lack_of (is_query ? to.y : from.y, is_query ? from.y : to.y);
      sum[0][0] += is_query ? 0 : x;
      sum[0][1] += is_query ? 0 : y;
      sum[1][0] += is_query ? x : 0;
      sum[1][1] += is_query ? y : 0;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float x = quad_sum (sum[i][0]), y = quad_sum (sum[i][1]);
      float2 *to = (float2 *) (rows + i * CHUNK * F::D + turned<F::D> (own, feature));
      if (lane == 0)
        *to = plus (*to, make_float2 (steep.x ? x : 0, steep.y ? y : 0));
    }
  });
}
