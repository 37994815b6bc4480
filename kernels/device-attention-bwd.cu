/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax attention, backward. One kernel has a tile of queries and goes through keys for dQ, one has a tile of keys and
 * goes through queries for dK and dV; both make the scores again, from the lse. So no sum crosses blocks.
 */
#include "kernels/device-attention-tile.cuh"

#define ROWS 64 /* keys or queries of a tile that a block goes through */
#define PART 32 /* of which so many are done at once */

/* What a pass knows of a query. Beyond the last all is 0, and then so are its gradients. */
struct RowValues {
  float lse, delta;
};

/* --- dQ ----------------------------------------------------------------------------------------------------------- */

/* K features of queries and keys, V of values; a warp has 16 MT queries. */
template <int K, int V, int MT, int WARPS, int STAGES> struct QueryPass {
  static constexpr int threads = 32 * WARPS, queries = 16 * MT * WARPS;
  static constexpr int k_bytes = ROWS * Tile<K>::row_bytes, v_bytes = ROWS * Tile<V>::row_bytes;
  static constexpr int do_at = queries * Tile<K>::row_bytes, k_at = do_at + queries * Tile<V>::row_bytes;
  static constexpr int v_at = k_at + STAGES * k_bytes, kept_at = v_at + STAGES * v_bytes;

  /* What a block has one of: in shared memory, where it takes no registers of the loop. */
  struct Kept {
    RowValues rows[queries];
    Interval see[queries];
    int32_t positions[STAGES][ROWS];
    KeyWalk<WARPS> walk;
  };
  static constexpr int bytes = kept_at + (int) sizeof (Kept);

  static __device__ inline void copy_queries (const Attention &a, unsigned char *shared)
  {
    Kept *kept = (Kept *) (shared + kept_at);
    int tile = kept->walk.place.tile, b = kept->walk.place.batch, h = kept->walk.place.head;

    for (int i = threadIdx.x; i < queries; i += threads) {
      bool is_there = tile * queries + i < a.m;
      int64_t at = row_at (a, tile * queries + i, b, h);
      kept->rows[i] = is_there ? RowValues{ a.lse_in[at], a.delta[at] } : RowValues{};
      kept->see[i] = interval_of (a, b, tile * queries + i);
    }
    tile_of_head<K, queries, threads> (shared_at (shared), a.q + head_at (a, 0, b, a.heads, h, a.k), tile,
                                       a.batch * a.heads * a.k, a.m, a.k);
    tile_of_head<V, queries, threads> (shared_at (shared) + do_at, a.d_o + head_at (a, 0, b, a.heads, h, a.v), tile,
                                       a.batch * a.heads * a.v, a.m, a.v);
    copy_commit ();
  }

  static __device__ inline void copy_keys (const Attention &a, unsigned char *shared, int tile, int stage,
                                           bool is_whole)
  {
    Kept *kept = (Kept *) (shared + kept_at);

    tile_of_head<K, ROWS, threads> (shared_at (shared) + k_at + stage * k_bytes, kept->walk.keys, tile,
                                    a.batch * a.kv_heads * a.k, a.n, a.k);
    tile_of_head<V, ROWS, threads> (shared_at (shared) + v_at + stage * v_bytes, kept->walk.values, tile,
                                    a.batch * a.kv_heads * a.v, a.n, a.v);
    if (!is_whole)
      for (int i = threadIdx.x; i < ROWS; i += threads)
        kept->positions[stage][i] = key_position (a, tile * ROWS + i);
    copy_commit ();
  }
};

/* s = scores and dp = gradients of probabilities -> s = gradients of scores, but for the scale. */
template <int MT>
static __device__ inline void
score_gradients (float (&s)[MT][PART / 2], const float (&dp)[MT][PART / 2], const RowValues *rows, const Interval *see,
                 const int32_t *positions, bool is_whole, float scale_log2)
{
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
  for (int i = 0; i < 2 * MT; i++) {
    RowValues row = rows[i / 2 * 16 + i % 2 * 8 + g];
    float lse = row.lse * LOG2_E;
#pragma unroll
    for (int j = 0; j < PART / 8; j++)
#pragma unroll
      for (int e = i % 2 * 2; e < i % 2 * 2 + 2; e++) {
        float p = exp2_fast (s[i / 2][4 * j + e] * scale_log2 - lse);
        if (!is_whole && !sees (see[i / 2 * 16 + i % 2 * 8 + g], positions[j * 8 + t * 2 + e % 2]))
          p = 0;
        s[i / 2][4 * j + e] = p * (dp[i / 2][4 * j + e] - row.delta);
      }
  }
}

template <int K, int V, int MT, int WARPS, int STAGES>
static __global__ void __launch_bounds__ (32 * WARPS) query_pass_kernel (Attention a, Order order)
{
  typedef QueryPass<K, V, MT, WARPS, STAGES> P;
  extern __shared__ __align__ (16) unsigned char dynamic[];
  typename P::Kept *kept = (typename P::Kept *) (dynamic + P::kept_at);
  int warp = threadIdx.x / 32;

  key_walk_begin<P::queries> (kept->walk, a, order);
  bool is_whole = false, next_whole = false;
  int j = key_walk_next<ROWS> (kept->walk, a, &is_whole), next = -1, stage = 0;
  uint32_t q_lane = shared_at (dynamic) + warp * 16 * MT * Tile<K>::row_bytes + lane_by_rows<K> ();
  uint32_t do_lane = shared_at (dynamic) + P::do_at + warp * 16 * MT * Tile<V>::row_bytes + lane_by_rows<V> ();
  uint32_t k_lane = shared_at (dynamic) + P::k_at + lane_by_columns<K> ();
  uint32_t k_lane_by_rows = shared_at (dynamic) + P::k_at + lane_by_rows<K> ();
  uint32_t v_lane = shared_at (dynamic) + P::v_at + lane_by_columns<V> ();
  float dq[MT][K / 2] = {};

  P::copy_queries (a, dynamic);
  if (j >= 0)
    P::copy_keys (a, dynamic, j, 0, is_whole);

  for (; j >= 0; j = next, is_whole = next_whole) {
    next = key_walk_next<ROWS> (kept->walk, a, &next_whole);
    copy_wait<0> ();
    __syncthreads ();
    if (STAGES == 2 && next >= 0)
      P::copy_keys (a, dynamic, next, stage ^ 1, next_whole);
#pragma unroll 1
    for (int first = 0; first < ROWS; first += PART) {
      float s[MT][PART / 2] = {}, dp[MT][PART / 2] = {};
      uint32_t k_from = stage * P::k_bytes + first * Tile<K>::row_bytes;

      product_of_rows<K> (s, q_lane, k_lane + k_from);
      product_of_rows<V> (dp, do_lane, v_lane + stage * P::v_bytes + first * Tile<V>::row_bytes);
      score_gradients<MT> (s, dp, kept->rows + warp * 16 * MT, kept->see + warp * 16 * MT,
                           kept->positions[stage] + first, is_whole, a.scale * LOG2_E);
      product_of_kept<K> (dq, s, k_lane_by_rows + k_from);
    }
    if (STAGES == 2)
      stage ^= 1;
    else {
      __syncthreads ();
      if (next >= 0)
        P::copy_keys (a, dynamic, next, 0, next_whole);
    }
  }
  copy_wait<0> ();

  Place place = kept->walk.place;
  int64_t row = place.tile * P::queries + warp * 16 * MT + threadIdx.x % 32 / 4;
#pragma unroll
  for (int i = 0; i < 2 * MT; i++)
    if (row + 8 * i < a.m)
      store_row (a.dq, head_at (a, row + 8 * i, place.batch, a.heads, place.head, a.k), a.k, dq[i / 2], i % 2, a.scale);
}

/* --- dK and dV ---------------------------------------------------------------------------------------------------- */

/* Where a warp is in the queries of several heads. */
struct QueryWalk {
  Walk walk;
  int head, left;
};

/*
 * A warp has 16 keys, so scores stand here with keys in rows: s^T = K Q^T. A block makes the gradients of the features
 * of one part of PARTS: of more than 128 features all would not fit a thread's registers, and the scores are made twice.
 */
template <int K, int V, int PARTS, int WARPS, int STAGES> struct KeyPass {
  static constexpr int threads = 32 * WARPS, keys = 16 * WARPS;
  static constexpr int q_bytes = ROWS * Tile<K>::row_bytes, do_bytes = ROWS * Tile<V>::row_bytes;
  static constexpr int v_at = keys * Tile<K>::row_bytes, q_at = v_at + keys * Tile<V>::row_bytes;
  static constexpr int do_at = q_at + STAGES * q_bytes, kept_at = do_at + STAGES * do_bytes;

  struct Kept {
    Interval see[STAGES][ROWS];
    float lse[STAGES][ROWS], delta[STAGES][ROWS];
    KeyRange range;
    Place place;
    QueryWalk walks[WARPS];
  };
  static constexpr int bytes = kept_at + (int) sizeof (Kept);

  /* The warp's next tile of queries, or -1. */
  static __device__ inline int next (const Attention &a, Kept *kept, bool *ret_whole)
  {
    const QueryRange *tiles = a.query_tiles ? a.query_tiles + kept->place.batch * div_up (a.m, MASK_TILE) : nullptr;
    QueryWalk w = kept->walks[threadIdx.x / 32];
    int tile = -1;

    for (; w.left > 0; w = { walk_begin (), w.head + 1, w.left - 1 }) {
      tile = walk_next<ROWS> (w.walk, tiles, a.m, kept->range, ret_whole);
      if (tile >= 0)
        break;
    }
    __syncwarp ();
    if (threadIdx.x % 32 == 0)
      kept->walks[threadIdx.x / 32] = w;
    __syncwarp ();
    return tile;
  }

  static __device__ inline void copy_keys (const Attention &a, unsigned char *shared, const Place &place)
  {
    tile_of_head<K, keys, threads> (shared_at (shared),
                                    a.keys + head_at (a, 0, place.batch, a.kv_heads, place.head, a.k), place.tile,
                                    a.batch * a.kv_heads * a.k, a.n, a.k);
    tile_of_head<V, keys, threads> (shared_at (shared) + v_at,
                                    a.values + head_at (a, 0, place.batch, a.kv_heads, place.head, a.v), place.tile,
                                    a.batch * a.kv_heads * a.v, a.n, a.v);
    copy_commit ();
  }

  /* Of the head that the warp's walk is in. */
  static __device__ inline void copy_queries (const Attention &a, unsigned char *shared, int tile, int stage,
                                              bool is_whole)
  {
    Kept *kept = (Kept *) (shared + kept_at);
    int b = kept->place.batch, h = kept->walks[threadIdx.x / 32].head, i = threadIdx.x;

    tile_of_head<K, ROWS, threads> (shared_at (shared) + q_at + stage * q_bytes,
                                    a.q + head_at (a, 0, b, a.heads, h, a.k), tile, a.batch * a.heads * a.k, a.m, a.k);
    tile_of_head<V, ROWS, threads> (shared_at (shared) + do_at + stage * do_bytes,
                                    a.d_o + head_at (a, 0, b, a.heads, h, a.v), tile, a.batch * a.heads * a.v, a.m,
                                    a.v);
    if (i < ROWS) {
      bool is_there = tile * ROWS + i < a.m;
      int64_t row = is_there ? row_at (a, tile * ROWS + i, b, h) : 0;
      copy_few_at<4> (shared_at (&kept->lse[stage][i]), a.lse_in + row, is_there);
      copy_few_at<4> (shared_at (&kept->delta[stage][i]), a.delta + row, is_there);
      if (!is_whole)
        kept->see[stage][i] = interval_of (a, b, tile * ROWS + i);
    }
    copy_commit ();
  }
};

/* s -> p, dp -> gradients of scores; both transposed. */
static __device__ inline void
key_gradients (float (&s)[PART / 2], float (&dp)[PART / 2], const float *lse, const float *delta, const Interval *see,
               const int32_t positions[2], bool is_whole, float scale_log2)
{
#pragma unroll
  for (int j = 0; j < PART / 8; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      int query = j * 8 + threadIdx.x % 4 * 2 + e;
      float base = lse[query] * LOG2_E;
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float p = exp2_fast (s[4 * j + 2 * i + e] * scale_log2 - base);
        if (!is_whole && !sees (see[query], positions[i]))
          p = 0;
        s[4 * j + 2 * i + e] = p;
        dp[4 * j + 2 * i + e] = p * (dp[4 * j + 2 * i + e] - delta[query]);
      }
    }
}

template <int K, int V, int PARTS, int WARPS, int STAGES>
static __global__ void __launch_bounds__ (32 * WARPS) key_pass_kernel (Attention a, Order order)
{
  typedef KeyPass<K, V, PARTS, WARPS, STAGES> P;
  extern __shared__ __align__ (16) unsigned char dynamic[];
  typename P::Kept *kept = (typename P::Kept *) (dynamic + P::kept_at);
  constexpr int k_part = K / PARTS, v_part = V / PARTS;
  int warp = threadIdx.x / 32, split = blockIdx.y / PARTS;
  int k_column = blockIdx.y % PARTS * k_part, v_column = blockIdx.y % PARTS * v_part;

  if (threadIdx.x == 0) {
    kept->place = place_of (order, blockIdx.x);
    if (a.key_tiles != nullptr)
      kept->range = range_at<P::keys> (a.key_tiles, kept->place.tile, (int) a.n);
  }
  __syncthreads ();
  int first_key = kept->place.tile * P::keys + warp * 16 + threadIdx.x % 32 / 4;
  int32_t positions[2] = { key_position (a, first_key), key_position (a, first_key + 8) };
  int heads, first_head = heads_of (a, kept->place.head, split, &heads);
  if (threadIdx.x % 32 == 0)
    kept->walks[warp] = { walk_begin (), first_head, heads };
  __syncwarp ();
  bool is_whole = false, next_whole = false;
  int i = P::next (a, kept, &is_whole), next = -1, stage = 0;
  uint32_t k_lane = shared_at (dynamic) + warp * 16 * Tile<K>::row_bytes + lane_by_rows<K> ();
  uint32_t v_lane = shared_at (dynamic) + P::v_at + warp * 16 * Tile<V>::row_bytes + lane_by_rows<V> ();
  uint32_t q_lane = shared_at (dynamic) + P::q_at + lane_by_columns<K> ();
  uint32_t q_lane_by_rows = shared_at (dynamic) + P::q_at + lane_by_rows<K> () + 2 * k_column;
  uint32_t do_lane = shared_at (dynamic) + P::do_at + lane_by_columns<V> ();
  uint32_t do_lane_by_rows = shared_at (dynamic) + P::do_at + lane_by_rows<V> () + 2 * v_column;
  float dk[1][k_part / 2] = {}, dv[1][v_part / 2] = {};

  P::copy_keys (a, dynamic, kept->place);
  if (i >= 0)
    P::copy_queries (a, dynamic, i, 0, is_whole);

  for (; i >= 0; i = next, is_whole = next_whole) {
    next = P::next (a, kept, &next_whole);
    copy_wait<0> ();
    __syncthreads ();
    if (STAGES == 2 && next >= 0)
      P::copy_queries (a, dynamic, next, stage ^ 1, next_whole);
#pragma unroll 1
    for (int first = 0; first < ROWS; first += PART) {
      float s[1][PART / 2] = {}, dp[1][PART / 2] = {};
      uint32_t q_from = stage * P::q_bytes + first * Tile<K>::row_bytes;
      uint32_t do_from = stage * P::do_bytes + first * Tile<V>::row_bytes;

      product_of_rows<K> (s, k_lane, q_lane + q_from);
      product_of_rows<V> (dp, v_lane, do_lane + do_from);
      key_gradients (s[0], dp[0], kept->lse[stage] + first, kept->delta[stage] + first, kept->see[stage] + first,
                     positions, is_whole, a.scale * LOG2_E);
      product_of_kept<V> (dv, s, do_lane_by_rows + do_from);
      product_of_kept<K> (dk, dp, q_lane_by_rows + q_from);
    }
    if (STAGES == 2)
      stage ^= 1;
    else {
      __syncthreads ();
      if (next >= 0)
        P::copy_queries (a, dynamic, next, 0, next_whole);
    }
  }
  copy_wait<0> ();

  Place place = kept->place;
  int64_t row = place.tile * P::keys + warp * 16 + threadIdx.x % 32 / 4, from = (int64_t) split * a.n;
#pragma unroll
  for (int half = 0; half < 2; half++)
    if (row + 8 * half < a.n) {
      store_row (a.dkeys, head_at (a, from + row + 8 * half, place.batch, a.kv_heads, place.head, a.k) + k_column,
                 a.k - k_column, dk[0], half, a.scale);
      store_row (a.dvalues, head_at (a, from + row + 8 * half, place.batch, a.kv_heads, place.head, a.v) + v_column,
                 a.v - v_column, dv[0], half, 1);
    }
}

/* --- both --------------------------------------------------------------------------------------------------------- */

template <int K, int V, int MT, int Q_WARPS, int Q_STAGES, int PARTS, int K_WARPS, int K_STAGES>
static cudaError_t
backward (const Attention &a, cudaStream_t stream)
{
  typedef QueryPass<K, V, MT, Q_WARPS, Q_STAGES> Queries;
  typedef KeyPass<K, V, PARTS, K_WARPS, K_STAGES> Keys;
  int64_t bytes = 2 * (a.k + a.v), sharing = a.heads / a.kv_heads;
  Order queries = order_of (div_up (a.m, Queries::queries), a.heads, a.batch, a.n * bytes, sharing);
  Order keys = order_of (div_up (a.n, Keys::keys), a.kv_heads, a.batch, a.m * bytes * sharing, 1);
  cudaError_t error = cudaSuccess;

  if (a.m > 0)
    error = launch (query_pass_kernel<K, V, MT, Q_WARPS, Q_STAGES>, dim3 ((unsigned) (queries.tiles * queries.pairs)),
                    Queries::threads, Queries::bytes, stream, a, queries);
  if (error == cudaSuccess && a.n > 0)
    error = launch (key_pass_kernel<K, V, PARTS, K_WARPS, K_STAGES>,
                    dim3 ((unsigned) (keys.tiles * keys.pairs), (unsigned) (PARTS * a.splits)), Keys::threads,
                    Keys::bytes, stream, a, keys);
  return error;
}

static cudaError_t
run (const Attention &a, cudaStream_t stream)
{
#ifdef SP_SM90
  if (sp_attention_is_sm90 () && a.m > 0 && a.n > 0)
    return sp_attention_bwd_sm90 (a, stream);
#endif
  int64_t features = attention_features (a);
  return features <= 64             ? backward<64, 64, 2, 4, 1, 1, 8, 2> (a, stream)
         : features <= 128          ? backward<128, 128, 2, 4, 1, 1, 8, 2> (a, stream)
         : a.k <= 192 && a.v <= 128 ? backward<192, 128, 1, 4, 1, 2, 4, 1> (a, stream)
                                    : backward<256, 256, 1, 4, 1, 2, 4, 1> (a, stream);
}

/* --- split heads -------------------------------------------------------------------------------------------------- */

/* Where many heads share few keys, these give too few blocks: then the heads are split, by the shape alone, and what
 * the splits give is summed in order. */
#define KEYS_OF_A_BLOCK 128
#define FULL_GRID 264 /* blocks: about two for each SM of an H100 */

static int
splits_of (const Attention &a)
{
  int64_t blocks = div_up (a.n, KEYS_OF_A_BLOCK) * a.kv_heads * a.batch, sharing = a.heads / a.kv_heads;
  int64_t splits = blocks > 0 ? FULL_GRID / blocks : 1;

  splits = splits < sharing ? splits : sharing;
  return splits > 1 ? (int) splits : 1;
}

static size_t
mask_bytes (SpDevShape shape)
{
  return (sp_dev_attention_scratch_bytes (shape) + 255) / 256 * 256;
}

size_t
sp_dev_attention_bwd_scratch_bytes (SpDevShape shape)
{
  Attention a = attention_of (shape, {}, {}, {});
  int splits = splits_of (a);

  return mask_bytes (shape) +
         (splits > 1 ? (size_t) (splits * a.n * a.batch * a.kv_heads * (a.k + a.v)) * sizeof (float) : 0);
}

/* out = sum over splits of parts[splits,elements] */
struct SumSplits {
  const float *parts;
  int64_t elements;
  int splits;
  SpDevTensor out;

  template <int V> __device__ void at (int64_t i) const
  {
    Vec<V> sum = load<V> ({ (void *) parts, SP_DEV_FP32 }, i);

#pragma unroll 1
    for (int split = 1; split < splits; split++) {
      Vec<V> more = load<V> ({ (void *) parts, SP_DEV_FP32 }, split * elements + i);
#pragma unroll
      for (int j = 0; j < V; j++)
        sum.x[j] += more.x[j];
    }
    store<V> (out, i, sum);
  }
};

static cudaError_t
run_split (Attention a, float *parts, cudaStream_t stream)
{
  int64_t keys = a.n * a.batch * a.kv_heads;
  SumSplits dkeys = { parts, keys * a.k, a.splits, a.dkeys };
  SumSplits dvalues = { parts + a.splits * keys * a.k, keys * a.v, a.splits, a.dvalues };

  a.dkeys = { (void *) dkeys.parts, SP_DEV_FP32 };
  a.dvalues = { (void *) dvalues.parts, SP_DEV_FP32 };
  cudaError_t error = run (a, stream);
  if (error == cudaSuccess)
    error = each (dkeys, dkeys.elements, width_of ({ a.k }, { dkeys.out }), stream);
  if (error == cudaSuccess)
    error = each (dvalues, dvalues.elements, width_of ({ a.v }, { dvalues.out }), stream);
  return error;
}

cudaError_t
sp_dev_attention_bwd (SpDevShape shape, SpDevTensor q, SpDevTensor keys, SpDevTensor values, SpDevTensor d_o,
                      const float *lse, const float *delta, bool causal, const int32_t *qpos, const int32_t *kpos,
                      SpDevTensor dq, SpDevTensor dkeys, SpDevTensor dvalues, void *scratch, cudaStream_t stream)
{
  Attention a = attention_of (shape, q, keys, values);

  if (!attention_is_legal (a) || !are_tiles ({ q, keys, values, d_o }) || !are_floats ({ dq, dkeys, dvalues }))
    return cudaErrorInvalidValue;
  if ((shape.m == 0 && shape.n == 0) || shape.batch == 0 || shape.heads == 0)
    return cudaSuccess;
  a.d_o = (const uint16_t *) d_o.data;
  a.lse_in = lse;
  a.delta = delta;
  a.dq = dq;
  a.dkeys = dkeys;
  a.dvalues = dvalues;

  cudaError_t error = sp_attention_prepare (&a, shape, causal, qpos, kpos, scratch, stream);
  if (error != cudaSuccess)
    return error;
  a.splits = splits_of (a);
  return a.splits == 1 ? run (a, stream) : run_split (a, (float *) ((char *) scratch + mask_bytes (shape)), stream);
}
