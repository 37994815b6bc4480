/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pieces of the backward of linear attention with a decay a head that follows the data: products of a warp that has 16 of a chunk's 64
 * tokens, which are rows of all that it accumulates. With M the state before the chunk and E the gradient of the one after
 * it, P_ij = dO_i v_j and A_ij = q_i k_j, both without decay, w_ij = 2^(b_i - b_j) and the sums over j up to i:
 *     dq_i = sum w_ij beta_j P_ij k_j + 2^b_i M dO_i
 *     dk_j = beta_j (sum w_ij P_ij q_i + 2^(b_end - b_j) E v_j)
 *     dv_j = beta_j (sum w_ij A_ij dO_i + 2^(b_end - b_j) E^T k_j)
 * Of the decays, x_i = q_i dq_i - k_i dk_i (over all features) is the gradient of b_i, and that of token t's logarithm is
 * the sum of x_i from t on, and of 2^b_end M E + sum k_j beta_j 2^(b_end - b_j) E v_j, which is what passes the chunk's end.
 * The x of pairs are sums of w_ij beta_j A_ij P_ij, of which one number counts for i and against j: what both have cancels as
 * if it were exact.
 */

#include "kernels/device-linear-decay.cuh"

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
template <int D_, int N_, int SLICES_> struct Whole {
  static constexpr int D = D_, N = N_, slices = SLICES_;
  static constexpr int key_bytes = CHUNK * 2 * D, value_bytes = CHUNK * 2 * N, slice_bytes = 64 * 2 * D;
  static constexpr int gates_at = 2 * key_bytes + 2 * value_bytes + 2 * slices * slice_bytes;
  static constexpr int sums_at = gates_at + HEAD_BYTES;
  static constexpr int bytes = sums_at + 4 * 9 * CHUNK;
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
        d (v + F::value_bytes), m (d + F::value_bytes), e (m + F::slices * F::slice_bytes),
        gates (shared + F::gates_at), sums ((float *) (shared + F::sums_at))
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
  int thread = threadIdx.x;

  asm volatile("" : "+r"(thread)); /* what follows from it is not worth registers for a whole loop */
  for (int i = thread; i < 64 * D / 8; i += THREADS) {
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
  int64_t stride = a.batch * a.kv_heads * a.d, values = scalar_of (a, i, 0) * a.c,
          value_stride = a.batch * a.heads * a.c;

  if (with_keys) {
    load_rows<F::D> (t.q, a.q + key_row_of (a, i, 0), stride, i.tokens, columns);
    load_rows<F::D> (t.k, a.keys + key_row_of (a, i, 0), stride, i.tokens, columns);
  }
  load_rows<F::N> (t.v, a.values + values, value_stride, i.tokens, a.c);
  load_rows<F::N> (t.d, a.d_o + values, value_stride, i.tokens, a.c);
  load_slices (a, i, t, 0);
  copy_commit ();
}

/* Of rows g and g + 8. */
static __device__ inline int
row_of (int w, int half)
{
  return 16 * w + (int) threadIdx.x % 32 / 4 + 8 * half;
}

/* --- products ------------------------------------------------------------------------------------------------------ */

/* An address that is not known to be the one before: what follows from it is not kept in registers from phase to phase. */
static __device__ inline uint32_t
afresh (uint32_t at)
{
  asm volatile("" : "+r"(at));
  return at;
}

/* s[16 rows of a by 32 of b], of the two blocks of columns from `first` on, up to the warp's own or, `reverse`, from it
 * on: half of a chunk, as registers are few. */
template <int K>
static __device__ inline void
rows_by_rows (uint32_t a_tile, uint32_t b_tile, int w, bool reverse, int first, float (&s)[4][4])
{
  if (reverse ? first + 1 < w : first > w)
    return;
  a_tile = afresh (a_tile);
  b_tile = afresh (b_tile);
#pragma unroll 2
  for (int k = 0; k < K; k += 16) {
    uint32_t a[4], b[4];

    fragment_a (a, a_tile, 16 * w, k);
#pragma unroll
    for (int block = 0; block < 2; block++) {
      if (reverse ? first + block < w : first + block > w)
        continue;
      fragment_b_transposed (b, b_tile, 16 * (first + block), k);
      mma (s[2 * block], a, b[0], b[1]);
      mma (s[2 * block + 1], a, b[2], b[3]);
    }
  }
}

/* Two blocks of what was accumulated as operands. */
static __device__ inline void
operand_of (const float (&s)[4][4], uint32_t (*p)[4])
{
#pragma unroll
  for (int block = 0; block < 2; block++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      p[block][e] = bf16_pair (s[2 * block + e / 2][e % 2 * 2], s[2 * block + e / 2][e % 2 * 2 + 1]);
}

/* acc[16,C] += p[16,64] tile, from a column of the tile on. */
template <int C>
static __device__ inline void
rows_by_columns (float (&acc)[C / 8][4], const uint32_t (&p)[4][4], uint32_t tile, int column, int w, bool reverse)
{
  tile = afresh (tile);
#pragma unroll
  for (int c = 0; c < C; c += 16)
#pragma unroll
    for (int block = 0; block < 4; block++) {
      uint32_t b[4];

      if (reverse ? block < w : block > w)
        continue;
      fragment_b (b, tile, 16 * block, column + c);
      mma (acc[c / 8], p[block], b[0], b[1]);
      mma (acc[c / 8 + 1], p[block], b[2], b[3]);
    }
}

/* acc[16,D] += rows [16,64] of x, from a column on, by a slice [64,D] of a state. SCALED: rows g times low, g + 8 high. */
template <int D, bool SCALED>
static __device__ inline void
rows_by_state (float (&acc)[D / 8][4], uint32_t x_tile, int column, uint32_t slice, int w, float low, float high)
{
  x_tile = afresh (x_tile);
  slice = afresh (slice);
#pragma unroll 1
  for (int k = 0; k < 64; k += 16) {
    uint32_t a[4];

    fragment_a (a, x_tile, 16 * w, column + k);
#pragma unroll
    for (int e = 0; e < 4 && SCALED; e++)
      a[e] = scale_pair (a[e], e % 2 ? high : low, e % 2 ? high : low);
#pragma unroll
    for (int c = 0; c < D; c += 16) {
      uint32_t b[4];

      fragment_b (b, slice, k, c);
      mma (acc[c / 8], a, b[0], b[1]);
      mma (acc[c / 8 + 1], a, b[2], b[3]);
    }
  }
}

/* The pair of a tile that stands where an accumulator's elements 0 and 1, or with half 2 and 3, of its n-th 8 columns do. */
static __device__ inline uint32_t
pair_at (uint32_t tile, int w, int n, int half)
{
  int lane = threadIdx.x % 32;

  return load_word (tile + swizzled (16 * w + lane / 4 + 8 * half, n) + lane % 4 * 4);
}

/* Of rows g and g + 8: sums over columns of tile times acc. */
template <int C>
static __device__ inline void
row_dots (const float (&acc)[C / 8][4], uint32_t tile, int column, int w, float (&ret)[2])
{
  tile = afresh (tile);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    ret[half] = 0;
#pragma unroll
    for (int n = 0; n < C / 8; n++) {
      uint32_t x = pair_at (tile, w, column / 8 + n, half);
      ret[half] += bf16_at (x, 0) * acc[n][2 * half] + bf16_at (x, 1) * acc[n][2 * half + 1];
    }
    ret[half] = quad_sum (ret[half]);
  }
}

/* A head's operands of pairs of tokens. */
struct Pairs {
  uint32_t p[4][4];
};
