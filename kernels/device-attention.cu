/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax attention, forward: FlashAttention-2's tiling (Dao, 2307.08691) by mma.sync, with 32 queries a warp, so that
 * what a warp reads of keys and values serves two products; with 256 features 16.
 */
#include "kernels/device-attention-tile.cuh"

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
    for (int64_t j = tile * MASK_TILE + threadIdx.x; j < min (a.n, (tile + 1) * MASK_TILE); j += 32) {
      range.min = min (range.min, a.kpos[j]);
      range.max = max (range.max, a.kpos[j]);
    }
    range = { warp_min (range.min), warp_most (range.max) };
    if (threadIdx.x == 0 && tile * MASK_TILE < a.n)
      a.key_tiles[tile] = range;
    return;
  }

  QueryRange range = { INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN };
  for (int64_t i = tile * MASK_TILE + threadIdx.x; i < min (a.m, (tile + 1) * MASK_TILE); i += 32) {
    Interval see = mask_interval (a, b, i);
    a.intervals[b * a.m + i] = see;
    range = { min (range.low_min, see.low), max (range.low_max, see.low), min (range.high_min, see.high),
              max (range.high_max, see.high) };
  }
  range = { warp_min (range.low_min), warp_most (range.low_max), warp_min (range.high_min),
            warp_most (range.high_max) };
  if (threadIdx.x == 0 && tile * MASK_TILE < a.m)
    a.query_tiles[b * div_up (a.m, MASK_TILE) + tile] = range;
}

size_t
sp_dev_attention_scratch_bytes (SpDevShape shape)
{
  return (size_t) (shape.batch * div_up (shape.m, MASK_TILE)) * sizeof (QueryRange) +
         (size_t) (shape.batch * shape.m) * sizeof (Interval) +
         (size_t) div_up (shape.n, MASK_TILE) * sizeof (KeyRange);
}

cudaError_t
sp_attention_prepare (Attention *a, SpDevShape shape, bool causal, const int32_t *qpos, const int32_t *kpos,
                      void *scratch, cudaStream_t stream)
{
  int64_t tiles = div_up (shape.m > shape.n ? shape.m : shape.n, MASK_TILE);

  if (!causal && shape.first == nullptr)
    return cudaSuccess;

  QueryRange *query_tiles = (QueryRange *) scratch;
  Interval *intervals = (Interval *) (query_tiles + shape.batch * div_up (shape.m, MASK_TILE));
  KeyRange *key_tiles = (KeyRange *) (intervals + shape.batch * shape.m);
  a->kpos = kpos;
  a->intervals = intervals;
  a->query_tiles = query_tiles;
  a->key_tiles = key_tiles;
  return launch (mask_kernel, dim3 ((unsigned) tiles, (unsigned) shape.batch + 1), 32, 0, stream,
                 Mask{ shape.m, shape.n, shape.batch, shape.window, causal, qpos, kpos, shape.first, shape.end,
                       intervals, query_tiles, key_tiles });
}

/* --- what the device has ------------------------------------------------------------------------------------------ */

static bool takes_baseline;

void
sp_dev_attention_baseline (bool on)
{
  takes_baseline = on;
}

static int
device_has (cudaDeviceAttr attribute)
{
  int device = 0, value = 0;

  return cudaGetDevice (&device) == cudaSuccess && cudaDeviceGetAttribute (&value, attribute, device) == cudaSuccess
             ? value
             : 0;
}

bool
sp_attention_is_sm90 (void)
{
  return !takes_baseline && device_has (cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_has (cudaDevAttrComputeCapabilityMinor) == 0;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* K features of queries and keys, V of values; a warp has 16 MT queries. With two stages a tile of keys and values is
 * under way while the one before is multiplied; with one its keys are while values are multiplied, and the other way
 * round. */
template <int K, int V, int MT, int WARPS, int KEYS, int STAGES> struct Forward {
  static constexpr int threads = 32 * WARPS, queries = 16 * MT * WARPS;
  static constexpr int k_bytes = KEYS * Tile<K>::row_bytes, v_bytes = KEYS * Tile<V>::row_bytes;
  static constexpr int k_at = queries * Tile<K>::row_bytes, v_at = k_at + STAGES * k_bytes;
  static constexpr int see_at = v_at + STAGES * v_bytes, positions_at = see_at + queries * (int) sizeof (Interval);
  static constexpr int walk_at = positions_at + STAGES * KEYS * (int) sizeof (int32_t);
  static constexpr int bytes = walk_at + (int) sizeof (KeyWalk<WARPS>);

  static __device__ inline void copy_queries (const Attention &a, unsigned char *shared, const Place &place)
  {
    Interval *see = (Interval *) (shared + see_at);

    for (int i = threadIdx.x; i < queries; i += threads)
      see[i] = interval_of (a, place.batch, place.tile * queries + i);
    tile_of_head<K, queries, threads> (shared_at (shared), a.q + head_at (a, 0, place.batch, a.heads, place.head, a.k),
                                       place.tile, a.batch * a.heads * a.k, a.m, a.k);
  }

  static __device__ inline void copy_keys (const Attention &a, unsigned char *shared, int tile, int stage,
                                           bool is_whole)
  {
    const KeyWalk<WARPS> *walk = (const KeyWalk<WARPS> *) (shared + walk_at);
    int32_t *positions = (int32_t *) (shared + positions_at) + stage * KEYS;

    tile_of_head<K, KEYS, threads> (shared_at (shared) + k_at + stage * k_bytes, walk->keys, tile,
                                    a.batch * a.kv_heads * a.k, a.n, a.k);
    if (!is_whole)
      for (int i = threadIdx.x; i < KEYS; i += threads)
        positions[i] = key_position (a, tile * KEYS + i);
  }

  static __device__ inline void copy_values (const Attention &a, unsigned char *shared, int tile, int stage)
  {
    const KeyWalk<WARPS> *walk = (const KeyWalk<WARPS> *) (shared + walk_at);

    tile_of_head<V, KEYS, threads> (shared_at (shared) + v_at + stage * v_bytes, walk->values, tile,
                                    a.batch * a.kv_heads * a.v, a.n, a.v);
  }
};

template <int MT, int KEYS>
static __device__ inline void
mask_scores (float (&s)[MT][KEYS / 2], const Interval *see, const int32_t *positions)
{
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
  for (int i = 0; i < MT; i++) {
    Interval upper = see[i * 16 + g], lower = see[i * 16 + g + 8];
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (!sees (e < 2 ? upper : lower, positions[j * 8 + t * 2 + e % 2]))
          s[i][4 * j + e] = -INFINITY;
  }
}

/* s becomes weights, and what was summed so far is brought to new bases. */
template <int V, int MT, int KEYS>
static __device__ inline void
soften (Softmax (&softmax)[MT], float (&o)[MT][V / 2], float (&s)[MT][KEYS / 2], float scale_log2)
{
  float top[MT][2], before[2];
  bool lags = false;

#pragma unroll
  for (int i = 0; i < MT; i++) {
    softmax_tops (top[i], s[i], scale_log2);
    lags |= softmax_lags (softmax[i], top[i]);
  }
  if (__any_sync (0xffffffffu, lags))
#pragma unroll
    for (int i = 0; i < MT; i++) {
      softmax_follow (softmax[i], top[i], before);
      scale_rows (o[i], before);
    }
#pragma unroll
  for (int i = 0; i < MT; i++)
    softmax_weights (softmax[i], s[i], scale_log2);
}

template <int K, int V, int MT, int WARPS, int KEYS, int STAGES>
static __global__ void __launch_bounds__ (32 * WARPS) attention_kernel (Attention a, Order order)
{
  typedef Forward<K, V, MT, WARPS, KEYS, STAGES> F;
  extern __shared__ __align__ (16) unsigned char dynamic[];
  const Interval *see = (const Interval *) (dynamic + F::see_at);
  const int32_t *positions = (const int32_t *) (dynamic + F::positions_at);
  KeyWalk<WARPS> &walk = *(KeyWalk<WARPS> *) (dynamic + F::walk_at);
  int warp = threadIdx.x / 32;

  key_walk_begin<F::queries> (walk, a, order);
  bool is_whole = false, next_whole = false;
  int j = key_walk_next<KEYS> (walk, a, &is_whole), next = -1, stage = 0;
  uint32_t q_lane = shared_at (dynamic) + warp * 16 * MT * Tile<K>::row_bytes + lane_by_rows<K> ();
  uint32_t k_lane = shared_at (dynamic) + F::k_at + lane_by_columns<K> ();
  uint32_t v_lane = shared_at (dynamic) + F::v_at + lane_by_rows<V> ();
  float o[MT][V / 2] = {};
  Softmax softmax[MT];
#pragma unroll
  for (int i = 0; i < MT; i++)
    softmax[i] = { { -INFINITY, -INFINITY }, {} };

  F::copy_queries (a, dynamic, walk.place);
  if (j >= 0) {
    F::copy_keys (a, dynamic, j, 0, is_whole);
    if (STAGES == 2)
      F::copy_values (a, dynamic, j, 0);
  }
  copy_commit ();

  for (; j >= 0; j = next, is_whole = next_whole) {
    float s[MT][KEYS / 2] = {};

    if (STAGES == 2)
      next = key_walk_next<KEYS> (walk, a, &next_whole);
    copy_wait<0> (); /* keys, and with two stages values, are there */
    __syncthreads ();
    if (STAGES == 1) {
      next = key_walk_next<KEYS> (walk, a, &next_whole);
      F::copy_values (a, dynamic, j, 0);
    } else if (next >= 0) {
      F::copy_keys (a, dynamic, next, stage ^ 1, next_whole);
      F::copy_values (a, dynamic, next, stage ^ 1);
    }
    copy_commit ();

    product_of_rows<K> (s, q_lane, k_lane + stage * F::k_bytes);
    if (!is_whole)
      mask_scores<MT, KEYS> (s, see + warp * 16 * MT, positions + stage * KEYS);
    if (STAGES == 1) {
      copy_wait<0> ();
      __syncthreads ();
      if (next >= 0)
        F::copy_keys (a, dynamic, next, 0, next_whole);
      copy_commit ();
    }
    soften<V, MT, KEYS> (softmax, o, s, a.scale * LOG2_E);
    product_of_kept<V> (o, s, v_lane + stage * F::v_bytes);
    if (STAGES == 2)
      stage ^= 1;
  }
  copy_wait<0> ();
  Place place = walk.place;
#pragma unroll
  for (int i = 0; i < MT; i++)
    store_attention (a, o[i], softmax[i], place.tile * F::queries + (warp * MT + i) * 16 + threadIdx.x % 32 / 4,
                     place.batch, place.head);
}

template <int K, int V, int MT, int WARPS, int KEYS, int STAGES>
static cudaError_t
forward (const Attention &a, cudaStream_t stream)
{
  typedef Forward<K, V, MT, WARPS, KEYS, STAGES> F;
  Order order = order_of (div_up (a.m, F::queries), a.heads, a.batch, 2 * a.n * (a.k + a.v), a.heads / a.kv_heads);

  return launch (attention_kernel<K, V, MT, WARPS, KEYS, STAGES>, dim3 ((unsigned) (order.tiles * order.pairs)),
                 F::threads, F::bytes, stream, a, order);
}

/* With two stages where a multiprocessor has room for two blocks of them, without where not. */
template <int K, int V, int MT, int WARPS, int KEYS>
static cudaError_t
forward_staged (const Attention &a, cudaStream_t stream)
{
  int bytes = 2 * (Forward<K, V, MT, WARPS, KEYS, 2>::bytes + 1024);

  return device_has (cudaDevAttrMaxSharedMemoryPerMultiprocessor) >= bytes
             ? forward<K, V, MT, WARPS, KEYS, 2> (a, stream)
             : forward<K, V, MT, WARPS, KEYS, 1> (a, stream);
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
#ifdef SP_SM90
  if (sp_attention_is_sm90 () && shape.n > 0)
    return sp_attention_sm90 (a, stream);
#endif
  int64_t features = attention_features (a);
  return features <= 64             ? forward_staged<64, 64, 2, 4, 64> (a, stream)
         : features <= 96           ? forward_staged<96, 96, 2, 4, 64> (a, stream)
         : features <= 128          ? forward_staged<128, 128, 2, 4, 64> (a, stream)
         : a.k <= 192 && a.v <= 128 ? forward<192, 128, 2, 4, 64, 1> (a, stream)
                                    : forward<256, 256, 1, 8, 64, 1> (a, stream);
}
