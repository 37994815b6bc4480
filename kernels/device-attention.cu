/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax attention, forward: FlashAttention-2's tiling (Dao, 2307.08691) with 64 queries a block, 16 a warp, and 64
 * keys at a time. While a tile of keys is multiplied its values are under way, and the other way round.
 */
#include "kernels/device-attention.cuh"

/* --- the mask ----------------------------------------------------------------------------------------------------- */

struct Mask {
  int64_t m, n, batch, window; /* window 0: none */
  bool causal;
  const int32_t *qpos, *kpos, *first, *end;
  Interval *intervals;
  QueryRange *query_tiles;
  KeyRange *key_tiles;
};

static __device__ inline int32_t
warp_min (int32_t x)
{
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    x = min (x, __shfl_xor_sync (0xffffffffu, x, offset));
  return x;
}

static __device__ inline int32_t
warp_most (int32_t x)
{
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    x = max (x, __shfl_xor_sync (0xffffffffu, x, offset));
  return x;
}

static __device__ inline Interval
mask_interval (const Mask &a, int64_t b, int64_t i)
{
  int64_t low = INT32_MIN, high = NO_POSITION - 1;

  if (a.causal) {
    high = a.qpos[i];
    low = a.window > 0 ? max (low, high - a.window + 1) : low;
  }
  if (a.first != nullptr) {
    low = max (low, (int64_t) a.first[i * a.batch + b]);
    high = min (high, (int64_t) a.end[i * a.batch + b] - 1);
  }
  return { (int32_t) low, (int32_t) high };
}

/* A warp has a tile, of queries of a sequence (blockIdx.y), or of keys (the last blockIdx.y). */
static __global__ void
mask_kernel (Mask a)
{
  int64_t tile = blockIdx.x, b = blockIdx.y;

  if (b == a.batch) {
    KeyRange range = { INT32_MAX, INT32_MIN };
    for (int64_t j = tile * TILE + threadIdx.x; j < min (a.n, (tile + 1) * TILE); j += 32) {
      range.min = min (range.min, a.kpos[j]);
      range.max = max (range.max, a.kpos[j]);
    }
    range = { warp_min (range.min), warp_most (range.max) };
    if (threadIdx.x == 0 && tile * TILE < a.n)
      a.key_tiles[tile] = range;
    return;
  }

  QueryRange range = { INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN };
  for (int64_t i = tile * TILE + threadIdx.x; i < min (a.m, (tile + 1) * TILE); i += 32) {
    Interval see = mask_interval (a, b, i);
    a.intervals[b * a.m + i] = see;
    range = { min (range.low_min, see.low), max (range.low_max, see.low), min (range.high_min, see.high),
              max (range.high_max, see.high) };
  }
  range = { warp_min (range.low_min), warp_most (range.low_max), warp_min (range.high_min),
            warp_most (range.high_max) };
  if (threadIdx.x == 0 && tile * TILE < a.m)
    a.query_tiles[b * div_up (a.m, TILE) + tile] = range;
}

size_t
sp_dev_attention_scratch_bytes (SpDevShape shape)
{
  return (size_t) (shape.batch * div_up (shape.m, TILE)) * sizeof (QueryRange) +
         (size_t) (shape.batch * shape.m) * sizeof (Interval) + (size_t) div_up (shape.n, TILE) * sizeof (KeyRange);
}

cudaError_t
sp_attention_prepare (Attention *a, SpDevShape shape, bool causal, const int32_t *qpos, const int32_t *kpos,
                      void *scratch, cudaStream_t stream)
{
  int64_t tiles = div_up (shape.m > shape.n ? shape.m : shape.n, TILE);

  if (!causal && shape.first == nullptr)
    return cudaSuccess;

  QueryRange *query_tiles = (QueryRange *) scratch;
  Interval *intervals = (Interval *) (query_tiles + shape.batch * div_up (shape.m, TILE));
  KeyRange *key_tiles = (KeyRange *) (intervals + shape.batch * shape.m);
  a->kpos = kpos;
  a->intervals = intervals;
  a->query_tiles = query_tiles;
  a->key_tiles = key_tiles;
  return launch (mask_kernel, dim3 ((unsigned) tiles, (unsigned) shape.batch + 1), 32, 0, stream,
                 Mask{ shape.m, shape.n, shape.batch, shape.window, causal, qpos, kpos, shape.first, shape.end,
                       intervals, query_tiles, key_tiles });
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

template <int D>
static constexpr size_t
forward_bytes (void)
{
  return 3 * Stride<D>::elements * sizeof (uint16_t) + 2 * TILE * sizeof (int32_t);
}

/* A warp's 16 rows by D features; this lane's two rows have maxima and its part of their sums. */
template <int D> struct Rows {
  float o[D / 8][4];
  float max[2], sum[2];
};

static __device__ inline void
mask_scores (float s[8][4], const Interval see[2], const int32_t *positions)
{
#pragma unroll
  for (int j = 0; j < 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (!sees (see[e / 2], positions[j * 8 + threadIdx.x % 4 * 2 + e % 2]))
        s[j][e] = -INFINITY;
}

/* s becomes exp (scale * (s - max)), and what was summed so far is brought to the new maxima. */
template <int D>
static __device__ inline void
soften (Rows<D> &r, float s[8][4], float scale_log2)
{
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float max = r.max[i], sum = 0;

#pragma unroll
    for (int j = 0; j < 8; j++)
      max = fmaxf (max, fmaxf (s[j][2 * i], s[j][2 * i + 1]));
    max = fmaxf (max, __shfl_xor_sync (0xffffffffu, max, 1));
    max = fmaxf (max, __shfl_xor_sync (0xffffffffu, max, 2));

    /* A row that has seen nothing yet: any finite maximum gives zeros. */
    float base = max == -INFINITY ? 0 : max * scale_log2;
    float before = exp2f (r.max[i] * scale_log2 - base);
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 2 * i; e < 2 * i + 2; e++) {
        s[j][e] = exp2f (s[j][e] * scale_log2 - base);
        sum += s[j][e];
      }
    r.max[i] = max;
    r.sum[i] = r.sum[i] * before + sum;
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
      r.o[j][2 * i] *= before;
      r.o[j][2 * i + 1] *= before;
    }
  }
}

template <int D>
static __device__ inline void
store_rows (const Attention &a, const Rows<D> &r, int64_t row, int64_t b, int64_t h)
{
  int t = threadIdx.x % 4;

#pragma unroll
  for (int i = 0; i < 2; i++) {
    float sum = r.sum[i];
    sum += __shfl_xor_sync (0xffffffffu, sum, 1);
    sum += __shfl_xor_sync (0xffffffffu, sum, 2);
    float share = sum == 0 ? 0 : 1 / sum;

    if (row + 8 * i >= a.m)
      continue;
    int64_t at = head_at (a, row + 8 * i, b, a.heads, h, a.v);
#pragma unroll
    for (int j = 0; j < D / 8; j++)
      if (j * 8 < a.v)
        store_pair (a.o, at + j * 8 + 2 * t, r.o[j][2 * i] * share, r.o[j][2 * i + 1] * share);
    if (t == 0)
      a.lse[row_at (a, row + 8 * i, b, h)] = sum == 0 ? -INFINITY : r.max[i] * a.scale + logf (sum);
  }
}

template <int D>
static __global__ void
__launch_bounds__ (TILE_THREADS) attention_kernel (Attention a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  uint16_t *q_tile = (uint16_t *) dynamic, *k_tile = q_tile + Stride<D>::elements,
           *v_tile = k_tile + Stride<D>::elements;
  int32_t *positions = (int32_t *) (v_tile + Stride<D>::elements);
  /* The last queries first: under a causal mask they have most to do. */
  int64_t tile = gridDim.x - 1 - blockIdx.x, h = blockIdx.y, b = blockIdx.z, hk = kv_head (a, h);
  int warp = threadIdx.x / 32;
  int64_t row = tile * TILE + warp * 16 + threadIdx.x % 32 / 4;
  int64_t k_stride = a.batch * a.kv_heads * a.k, v_stride = a.batch * a.kv_heads * a.v;
  QueryRange range = a.query_tiles ? a.query_tiles[b * div_up (a.m, TILE) + tile] : QueryRange{};
  Interval see[2] = { interval_of (a, b, row), interval_of (a, b, row + 8) };
  Walk<KeyRange> walk = walk_begin (a.key_tiles, a.n);
  bool is_whole = false, next_whole = false;
  int64_t j = walk_next (walk, range, &is_whole), next;
  float scale_log2 = a.scale * LOG2_E;
  Rows<D> rows = { {}, { -INFINITY, -INFINITY }, {} };
  int turn = 0;

  tile_load<D> (q_tile, a.q + head_at (a, tile * TILE, b, a.heads, h, a.k), a.batch * a.heads * a.k, a.m - tile * TILE,
                a.k);
  if (j >= 0) {
    tile_load<D> (k_tile, a.keys + head_at (a, j * TILE, b, a.kv_heads, hk, a.k), k_stride, a.n - j * TILE, a.k);
    if (threadIdx.x < TILE)
      positions[threadIdx.x] = key_position (a, j * TILE + threadIdx.x);
  }
  copy_commit ();
  if (j >= 0)
    tile_load<D> (v_tile, a.values + head_at (a, j * TILE, b, a.kv_heads, hk, a.v), v_stride, a.n - j * TILE, a.v);
  copy_commit ();

  for (; j >= 0; j = next, is_whole = next_whole, turn ^= 1) {
    float s[8][4] = {};

    copy_wait<1> (); /* the keys are there */
    __syncthreads ();
    multiply_transposed<D, 8> (s, q_tile, warp * 16, k_tile, 0);
    __syncthreads ();
    next = walk_next (walk, range, &next_whole);
    if (next >= 0) {
      tile_load<D> (k_tile, a.keys + head_at (a, next * TILE, b, a.kv_heads, hk, a.k), k_stride, a.n - next * TILE,
                    a.k);
      if (threadIdx.x < TILE)
        positions[(turn ^ 1) * TILE + threadIdx.x] = key_position (a, next * TILE + threadIdx.x);
    }
    copy_commit ();

    if (!is_whole)
      mask_scores (s, see, positions + turn * TILE);
    soften (rows, s, scale_log2);

    copy_wait<1> (); /* the values are there */
    __syncthreads ();
    multiply_kept<D, 8, D / 8> (rows.o, s, v_tile, 0, 0);
    __syncthreads ();
    if (next >= 0)
      tile_load<D> (v_tile, a.values + head_at (a, next * TILE, b, a.kv_heads, hk, a.v), v_stride, a.n - next * TILE,
                    a.v);
    copy_commit ();
  }
  copy_wait<0> ();
  store_rows<D> (a, rows, row, b, h);
}

template <int D>
static cudaError_t
forward (const Attention &a, cudaStream_t stream)
{
  return launch (attention_kernel<D>, dim3 ((unsigned) div_up (a.m, TILE), (unsigned) a.heads, (unsigned) a.batch),
                 TILE_THREADS, forward_bytes<D> (), stream, a);
}

cudaError_t
sp_dev_attention (SpDevShape shape, SpDevTensor q, SpDevTensor keys, SpDevTensor values, bool causal,
                  const int32_t *qpos, const int32_t *kpos, SpDevTensor o, float *lse, void *scratch,
                  cudaStream_t stream)
{
  Attention a = attention_of (shape, q, keys, values);

  if (!attention_is_legal (a) || !are_tiles ({ q, keys, values }) || !are_floats ({ o }))
    return cudaErrorInvalidValue;
  if (shape.m == 0 || shape.batch == 0 || shape.heads == 0)
    return cudaSuccess;
  a.o = o;
  a.lse = lse;

  cudaError_t error = sp_attention_prepare (&a, shape, causal, qpos, kpos, scratch, stream);
  if (error != cudaSuccess)
    return error;
  int64_t features = attention_features (a);
  return features <= 64    ? forward<64> (a, stream)
         : features <= 128 ? forward<128> (a, stream)
                           : forward<256> (a, stream);
}
