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

#include "kernels/device-private.cuh"

#include <math.h>

#define NO_POSITION INT32_MAX
#define MASK_TILE 64 /* rows that a range is of */

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
  int splits; /* of the heads that share keys; dkeys and dvalues are then [splits,n,batch,kv_heads,..], to be summed */
  float *lse;
  const float *lse_in, *delta;
};

static __device__ inline uint32_t
shared_at (const void *p)
{
  return (uint32_t) __cvta_generic_to_shared (p);
}

/* Starts copying 4 or 8 bytes, aligned to as many, to shared memory; zeros if not valid. */
template <int BYTES>
static __device__ inline void
copy_few_at (uint32_t to, const void *from, bool is_valid)
{
  int bytes = is_valid ? BYTES : 0;

  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(to), "l"(from), "n"(BYTES), "r"(bytes)
               : "memory");
}

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

/* Of the heads that share head hk of keys, those of a split: first, and how many. */
static __device__ inline int
heads_of (const Attention &a, int hk, int split, int *ret_heads)
{
  int first = (int) (((int64_t) hk * a.heads + a.kv_heads - 1) / a.kv_heads);
  int end = (int) (((int64_t) (hk + 1) * a.heads + a.kv_heads - 1) / a.kv_heads);
  int each = (end - first + a.splits - 1) / a.splits;

  *ret_heads = max (min (each, end - first - split * each), 0);
  return first + split * each;
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

/* What the backward knows of a row besides its mask. Rows beyond the last have p = exp (-inf) = 0. */
static __device__ inline float
lse_log2 (const Attention &a, int64_t i, int64_t b, int64_t h)
{
  return i < a.m ? a.lse_in[row_at (a, i, b, h)] * LOG2_E : INFINITY;
}

static __device__ inline float
delta_of (const Attention &a, int64_t i, int64_t b, int64_t h)
{
  return i < a.m ? a.delta[row_at (a, i, b, h)] : 0;
}

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

static __device__ inline QueryRange
ranges_join (QueryRange a, QueryRange b)
{
  return { min (a.low_min, b.low_min), max (a.low_max, b.low_max), min (a.high_min, b.high_min),
           max (a.high_max, b.high_max) };
}

static __device__ inline KeyRange
ranges_join (KeyRange a, KeyRange b)
{
  return { min (a.min, b.min), max (a.max, b.max) };
}

/* Of tile `tile` of ROWS rows, of the ranges of MASK_TILE rows of `rows` rows. */
template <int ROWS, typename Range>
static __device__ inline Range
range_at (const Range *tiles, int tile, int rows)
{
  int first = tile * (ROWS / MASK_TILE);
  Range range = tiles[first];

#pragma unroll
  for (int i = 1; i < ROWS / MASK_TILE; i++)
    if ((first + i) * MASK_TILE < rows)
      range = ranges_join (range, tiles[first + i]);
  return range;
}

/* The tiles of ROWS rows that are not hidden, in order. Every warp of a block goes through the same. */
struct Walk {
  int tile;
  unsigned seen, whole; /* of 32 tiles, the first of which is `tile` */
};

static __device__ inline Walk
walk_begin (void)
{
  return { -32, 0, 0 };
}

/* The next tile of `rows` rows, or -1; whether all of the pair is seen. `tiles`: NULL if none is hidden. */
template <int ROWS, typename Range, typename Other>
static __device__ inline int
walk_next (Walk &w, const Range *tiles, int64_t rows, const Other &other, bool *ret_whole)
{
  while (w.seen == 0) {
    w.tile += 32;
    if ((int64_t) w.tile * ROWS >= rows)
      return -1;

    int t = w.tile + (int) threadIdx.x % 32;
    bool is_there = (int64_t) t * ROWS < rows, seen = is_there, whole = is_there && (int64_t) (t + 1) * ROWS <= rows;
    if (is_there && tiles != nullptr) {
      Range range = range_at<ROWS> (tiles, t, (int) rows);
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

/*
 * Order of blocks. Heads are taken in groups whose keys and values stay in the L2 while all tiles of theirs are done;
 * within a group tiles go one after the other, each of all heads, so that those with most to do come first.
 */
struct Order {
  int tiles, heads, pairs; /* pairs: of a sequence and a head */
  int group;               /* pairs that are done together */
};

struct Place {
  int tile, head, batch;
};

static __device__ inline Place
place_of (Order o, int block)
{
  int section = block / (o.tiles * o.group), first = section * o.group;
  int group = min (o.group, o.pairs - first), within = block - first * o.tiles;
  int pair = first + within % group;

  return { within / group, pair % o.heads, pair / o.heads };
}

#define GROUP_BYTES (24ll << 20)

/* Blocks for each tile and pair, and what of is read `bytes` are a head's, which `sharing` heads read. */
static inline Order
order_of (int64_t tiles, int64_t heads, int64_t batch, int64_t bytes, int64_t sharing)
{
  int64_t pairs = heads * batch, group = (GROUP_BYTES / (bytes > 0 ? bytes : 1)) * sharing;

  group = group < sharing ? sharing : group;
  group = group < 1 ? 1 : group;
  return { (int) tiles, (int) heads, (int) pairs, (int) (group < pairs ? group : pairs) };
}

/* --- softmax ------------------------------------------------------------------------------------------------------ */

/*
 * Of a product's N / 2 columns a lane has the elements c[4 j] to c[4 j + 3]: rows g and g + 8 of 16, columns 8 j + 2 t
 * and 8 j + 2 t + 1, with g = lane / 4 and t = lane % 4. Both mma.sync and wgmma leave it so.
 */

/* A lane's two rows: the base, a power of 2, that weights are relative to, and the lane's part of their sum. */
struct Softmax {
  float base[2], sum[2];
};

/* Weights are at most 2^SLACK: the base follows the largest score only where it lags by more, so that in most steps what
 * was summed so far needs no other scale. */
#define SLACK 8

/* The largest of each row's scores times scale_log2. */
template <int N>
static __device__ inline void
softmax_tops (float top[2], const float (&s)[N], float scale_log2)
{
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float max = -INFINITY;
#pragma unroll
    for (int j = 2 * i; j < N; j += 4)
      max = fmaxf (max, fmaxf (s[j], s[j + 1]));
    max = fmaxf (max, __shfl_xor_sync (0xffffffffu, max, 1));
    max = fmaxf (max, __shfl_xor_sync (0xffffffffu, max, 2));
    top[i] = max * scale_log2;
  }
}

static __device__ inline bool
softmax_lags (const Softmax &r, const float top[2])
{
  return top[0] > r.base[0] + SLACK || top[1] > r.base[1] + SLACK;
}

/* New bases; `before` is what sums so far are to be multiplied by. */
static __device__ inline void
softmax_follow (Softmax &r, const float top[2], float before[2])
{
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float base = fmaxf (r.base[i], top[i]);
    before[i] = r.base[i] == -INFINITY ? 0 : exp2_fast (r.base[i] - base);
    r.base[i] = base;
    r.sum[i] *= before[i];
  }
}

/* s becomes 2^(scale_log2 s - base). */
template <int N>
static __device__ inline void
softmax_weights (Softmax &r, float (&s)[N], float scale_log2)
{
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float base = r.base[i] == -INFINITY ? 0 : r.base[i]; /* a row that has seen nothing yet */
#pragma unroll
    for (int j = 2 * i; j < N; j += 4) {
      s[j] = exp2_fast (s[j] * scale_log2 - base);
      s[j + 1] = exp2_fast (s[j + 1] * scale_log2 - base);
      r.sum[i] += s[j] + s[j + 1];
    }
  }
}

template <int N>
static __device__ inline void
scale_rows (float (&c)[N], const float factor[2])
{
#pragma unroll
  for (int i = 0; i < N; i++)
    c[i] *= factor[i / 2 % 2];
}

/* Of the lane's rows the first or the second, of which the first `size` columns are there. */
template <int N>
static __device__ inline void
store_row (SpDevTensor out, int64_t at, int64_t size, const float (&c)[N], int half, float factor)
{
#pragma unroll
  for (int j = 0; j < N / 4; j++)
    if (j * 8 < size)
      store_pair (out, at + j * 8 + threadIdx.x % 4 * 2, c[4 * j + 2 * half] * factor,
                  c[4 * j + 2 * half + 1] * factor);
}

/* o and lse of the lane's rows, `row` and the eighth after it. */
template <int N>
static __device__ inline void
store_attention (const Attention &a, const float (&o)[N], const Softmax &r, int64_t row, int64_t b, int64_t h)
{
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float sum = r.sum[i];
    sum += __shfl_xor_sync (0xffffffffu, sum, 1);
    sum += __shfl_xor_sync (0xffffffffu, sum, 2);

    if (row + 8 * i >= a.m)
      continue;
    store_row (a.o, head_at (a, row + 8 * i, b, a.heads, h, a.v), a.v, o, i, sum == 0 ? 0 : 1 / sum);
    if (threadIdx.x % 4 == 0)
      a.lse[row_at (a, row + 8 * i, b, h)] = sum == 0 ? -INFINITY : r.base[i] / LOG2_E + logf (sum);
  }
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* Fills in the mask, with a kernel that writes it to the scratch. In device-attention.cu. */
cudaError_t sp_attention_prepare (Attention *a, SpDevShape shape, bool causal, const int32_t *qpos, const int32_t *kpos,
                                  void *scratch, cudaStream_t stream);

/* Whether the current device runs what is compiled for sm_90a, and may. In device-attention.cu. */
bool sp_attention_is_sm90 (void);

/* In device-attention-sm90.cu, which is there if SP_SM90 is defined. There are keys. */
cudaError_t sp_attention_sm90 (const Attention &a, cudaStream_t stream);

/* In device-attention-bwd-sm90.cu, likewise; there are queries too. */
cudaError_t sp_attention_bwd_sm90 (const Attention &a, cudaStream_t stream);

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
  a.splits = 1;
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

static inline int64_t
attention_features (const Attention &a)
{
  return a.k > a.v ? a.k : a.v;
}

/* Blocks are counted in 32 bits, and so are elements from a token to the 16th after it. */
static inline bool
attention_is_legal (const Attention &a)
{
  int64_t tokens = a.m > a.n ? a.m : a.n, heads = a.heads > a.kv_heads ? a.heads : a.kv_heads;

  return a.k % 8 == 0 && a.v % 8 == 0 && a.k > 0 && a.k <= 256 && a.v <= 256 && a.kv_heads > 0 && heads <= 65535 / 2 &&
         a.batch <= 65535 && tokens <= INT32_MAX && heads * a.batch * attention_features (a) <= 1 << 27 &&
         div_up (tokens, MASK_TILE) * heads * a.batch <= INT32_MAX;
}
