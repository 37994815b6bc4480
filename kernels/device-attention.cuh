/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the forward and the backward of softmax attention share.
 *
 * Mask. Whatever hides keys, be it causality, a window or documents, a query sees the keys whose positions lie in one
 * interval [low, high]. A kernel before the others writes the interval of each query, and for each tile of queries and
 * keys the range of these numbers: from two ranges follows that a pair of tiles is hidden (skipped), seen whole (not
 * masked), or neither. Keys beyond the last have a position that no interval holds.
 */

#include "kernels/device-tile.cuh"

#include <math.h>

#define NO_POSITION INT32_MAX

struct QueryRange {
  int32_t low_min, low_max, high_min, high_max;
};

struct KeyRange {
  int32_t min, max;
};

struct Interval {
  int32_t low, high;
};

struct Attention {
  int64_t m, n, batch, heads, kv_heads, k, v;
  const uint16_t *q, *keys, *values, *d_o;
  const int32_t *kpos;           /* NULL: nothing is hidden, and neither are the next three there */
  const Interval *intervals;     /* [batch,m] */
  const QueryRange *query_tiles; /* [batch,tiles] */
  const KeyRange *key_tiles;
  float scale; /* of scores */
  SpDevTensor o, dq, dkeys, dvalues;
  float *lse;
  const float *lse_in, *delta;
};

#define LOG2_E 1.4426950408889634f

static __device__ inline bool
sees (Interval i, int32_t position)
{
  return i.low <= position && position <= i.high;
}

static __device__ inline Interval
interval_of (const Attention &a, int64_t b, int64_t i)
{
  if (i >= a.m)
    return { 1, 0 };
  return a.intervals ? a.intervals[b * a.m + i] : Interval{ INT32_MIN, NO_POSITION - 1 };
}

static __device__ inline int32_t
key_position (const Attention &a, int64_t j)
{
  return j >= a.n ? NO_POSITION : a.kpos ? a.kpos[j] : 0;
}

static __device__ inline int64_t
kv_head (const Attention &a, int64_t head)
{
  return head * a.kv_heads / a.heads;
}

/* First element of a head of a token, of `size` features. */
static __device__ inline int64_t
head_at (const Attention &a, int64_t token, int64_t b, int64_t heads, int64_t head, int64_t size)
{
  return ((token * a.batch + b) * heads + head) * size;
}

static __device__ inline int64_t
row_at (const Attention &a, int64_t token, int64_t b, int64_t head)
{
  return (token * a.batch + b) * a.heads + head;
}

/* The tiles that are not hidden, in order. Every warp of a block goes through the same. */
template <typename Range> struct Walk {
  const Range *tiles; /* NULL: none is hidden */
  int64_t tile, n_tiles, rows;
  unsigned seen, whole; /* of 32 tiles, the first of which is `tile` */
};

static __device__ inline bool
ranges_meet (QueryRange q, KeyRange k)
{
  return k.max >= q.low_min && k.min <= q.high_max;
}

static __device__ inline bool
ranges_cover (QueryRange q, KeyRange k)
{
  return k.min >= q.low_max && k.max <= q.high_min;
}

static __device__ inline bool
ranges_meet (KeyRange k, QueryRange q)
{
  return ranges_meet (q, k);
}

static __device__ inline bool
ranges_cover (KeyRange k, QueryRange q)
{
  return ranges_cover (q, k);
}

template <typename Range>
static __device__ inline Walk<Range>
walk_begin (const Range *tiles, int64_t rows)
{
  return { tiles, -32, (rows + TILE - 1) / TILE, rows, 0, 0 };
}

/* The next tile, or -1; whether all of the pair is seen. */
template <typename Range, typename Other>
static __device__ inline int64_t
walk_next (Walk<Range> &w, Other other, bool *ret_whole)
{
  while (w.seen == 0) {
    w.tile += 32;
    if (w.tile >= w.n_tiles)
      return -1;

    int64_t t = w.tile + threadIdx.x % 32;
    bool is_there = t < w.n_tiles, seen = is_there, whole = is_there && (t + 1) * TILE <= w.rows;
    if (is_there && w.tiles != nullptr) {
      Range range = w.tiles[t];
      seen = ranges_meet (other, range);
      whole = whole && ranges_cover (other, range);
    }
    w.seen = __ballot_sync (0xffffffffu, seen);
    w.whole = __ballot_sync (0xffffffffu, whole);
  }

  int bit = __ffs ((int) w.seen) - 1;
  w.seen &= w.seen - 1;
  *ret_whole = w.whole >> bit & 1;
  return w.tile + bit;
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* Fills in the mask, with a kernel that writes it to the scratch. In device-attention.cu. */
cudaError_t sp_attention_prepare (Attention *a, SpDevShape shape, bool causal, const int32_t *qpos, const int32_t *kpos,
                                  void *scratch, cudaStream_t stream);

static inline Attention
attention_of (SpDevShape s, SpDevTensor q, SpDevTensor keys, SpDevTensor values)
{
  Attention a = {};

  a.m = s.m;
  a.n = s.n;
  a.batch = s.batch;
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.k = s.k;
  a.v = s.v > 0 ? s.v : s.k;
  a.q = (const uint16_t *) q.data;
  a.keys = (const uint16_t *) keys.data;
  a.values = (const uint16_t *) values.data;
  a.scale = (float) (1 / sqrt ((double) s.k));
  return a;
}

/* What tensor cores take. */
static inline bool
are_tiles (std::initializer_list<SpDevTensor> tensors)
{
  for (SpDevTensor t : tensors)
    if (t.dtype != SP_DEV_BF16 || !is_aligned (t.data, 16))
      return false;
  return true;
}

static inline bool
attention_is_legal (const Attention &a)
{
  return a.k % 8 == 0 && a.v % 8 == 0 && a.k > 0 && a.k <= 256 && a.v <= 256 && a.kv_heads > 0 &&
         a.heads <= 65535 / 2 && a.batch <= 65535 && a.m <= INT32_MAX && a.n <= INT32_MAX;
}

static inline int64_t
attention_features (const Attention &a)
{
  return a.k > a.v ? a.k : a.v;
}
