/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax attention, backward, for sm_90a, in the two kernels of device-attention-bwd.cu. In both a warp of one
 * warpgroup fetches tiles by the TMA, and two warpgroups have 64 queries or 64 keys each; what they make of scores stays
 * in registers and goes from there into the next product.
 */
#include "kernels/device-attention-wgmma.cuh"

struct Maps {
  CUtensorMap q, d_o, keys, values;
};

#define GROUPS 2
#define THREADS (128 * (GROUPS + 1))

/* --- dQ ----------------------------------------------------------------------------------------------------------- */

/* K features of queries and keys, V of values. */
template <int K, int V, int KEYS, int K_STAGES, int V_STAGES> struct QueryPass {
  static constexpr int queries = 64 * GROUPS;
  static constexpr int k_bytes = KEYS * K * 2, v_bytes = KEYS * V * 2;
  static constexpr int do_at = queries * K * 2, k_at = do_at + queries * V * 2, v_at = k_at + K_STAGES * k_bytes;
  static constexpr int state_at = v_at + V_STAGES * v_bytes;

  struct State {
    uint64_t q_full, k_full[K_STAGES], k_empty[K_STAGES], v_full[V_STAGES], v_empty[V_STAGES];
    Step steps[K_STAGES];
  };
  static constexpr int bytes = state_at + (int) sizeof (State);
};

template <int K, int V, int KEYS, int K_STAGES, int V_STAGES>
static __device__ inline void
fetch_keys (const Attention &a, const Maps &maps, unsigned char *shared,
            typename QueryPass<K, V, KEYS, K_STAGES, V_STAGES>::State *state, Place place)
{
  typedef QueryPass<K, V, KEYS, K_STAGES, V_STAGES> P;
  int b = place.batch, q_head = b * (int) a.heads + place.head;
  int kv = b * (int) a.kv_heads + (int) kv_head (a, place.head);
  QueryRange range = {};
  if (a.query_tiles != nullptr)
    range = range_at<P::queries> (a.query_tiles + b * div_up (a.m, MASK_TILE), place.tile, (int) a.m);
  Walk walk = walk_begin ();
  bool is_whole = false, leads = threadIdx.x % 32 == 0;
  Turn<K_STAGES> k_turn = { 0, 1 };
  Turn<V_STAGES> v_turn = { 0, 1 };

  if (leads) {
    barrier_expect (&state->q_full, P::k_at);
    tile_fetch<K, P::queries> (shared, &maps.q, &state->q_full, q_head, place.tile * P::queries);
    tile_fetch<V, P::queries> (shared + P::do_at, &maps.d_o, &state->q_full, q_head, place.tile * P::queries);
  }
  for (int j = 0; j >= 0; k_turn.next (), v_turn.next ()) {
    j = walk_next<KEYS> (walk, a.key_tiles, a.n, range, &is_whole);
    if (leads) {
      uint64_t *k_full = &state->k_full[k_turn.stage], *v_full = &state->v_full[v_turn.stage];
      barrier_wait (&state->k_empty[k_turn.stage], k_turn.phase);
      state->steps[k_turn.stage] = { j, is_whole };
      if (j < 0)
        barrier_arrive (k_full);
      else {
        barrier_expect (k_full, P::k_bytes);
        tile_fetch<K, KEYS> (shared + P::k_at + k_turn.stage * P::k_bytes, &maps.keys, k_full, kv, j * KEYS);
        barrier_wait (&state->v_empty[v_turn.stage], v_turn.phase);
        barrier_expect (v_full, P::v_bytes);
        tile_fetch<V, KEYS> (shared + P::v_at + v_turn.stage * P::v_bytes, &maps.values, v_full, kv, j * KEYS);
      }
    }
    __syncwarp ();
  }
}

/* p of hidden pairs is 0. */
template <int KEYS>
static __device__ inline void
hide_keys (const Attention &a, float (&p)[KEYS / 2], const Interval see[2], int tile)
{
#pragma unroll
  for (int j = 0; j < KEYS / 2; j++)
    if (!sees (see[j / 2 % 2], key_position (a, tile * KEYS + j / 4 * 8 + (int) threadIdx.x % 4 * 2 + j % 2)))
      p[j] = 0;
}

template <int K, int V, int KEYS, int K_STAGES, int V_STAGES>
static __device__ inline void
gather_keys (const Attention &a, unsigned char *shared,
             typename QueryPass<K, V, KEYS, K_STAGES, V_STAGES>::State *state, Place place)
{
  typedef QueryPass<K, V, KEYS, K_STAGES, V_STAGES> P;
  int group = threadIdx.x / 128 - 1, b = place.batch, h = place.head;
  int64_t row = (int64_t) place.tile * P::queries + group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  Interval see[2] = { interval_of (a, b, row), interval_of (a, b, row + 8) };
  float lse[2] = { lse_log2 (a, row, b, h), lse_log2 (a, row + 8, b, h) };
  float delta[2] = { delta_of (a, row, b, h), delta_of (a, row + 8, b, h) };
  float dq[K / 2] = {}, s[KEYS / 2], dp[KEYS / 2], scale_log2 = a.scale * LOG2_E;
  uint32_t p[KEYS / 4], at = shared_at (shared), own = at + group * 64 * 128;
  Turn<K_STAGES> k_turn = {};
  Turn<V_STAGES> v_turn = {};
  int before = -1; /* the stage of the keys that dq is being summed with */

  barrier_wait (&state->q_full, 0);
  for (;; k_turn.next (), v_turn.next ()) {
    barrier_wait (&state->k_full[k_turn.stage], k_turn.phase);
    Step step = state->steps[k_turn.stage];
    if (step.tile < 0)
      break;
    hold (s);
    products_begin ();
    product_by_features<K, P::queries, KEYS> (s, own, at + P::k_at + k_turn.stage * P::k_bytes);
    products_commit ();
    products_wait<1> ();
    hold (dq);
    hold (p);
    if (before >= 0)
      barrier_arrive_warp (&state->k_empty[before]);
    before = k_turn.stage;

    barrier_wait (&state->v_full[v_turn.stage], v_turn.phase);
    hold (dp);
    products_begin ();
    product_by_features<V, P::queries, KEYS> (dp, own + P::do_at, at + P::v_at + v_turn.stage * P::v_bytes);
    products_commit ();
    products_wait<1> ();
    hold (s);
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++)
      s[i] = exp2_fast (s[i] * scale_log2 - lse[i / 2 % 2]);
    if (!step.is_whole)
      hide_keys<KEYS> (a, s, see, step.tile);
    products_wait<0> ();
    hold (dp);
    barrier_arrive_warp (&state->v_empty[v_turn.stage]);
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++)
      s[i] *= dp[i] - delta[i / 2 % 2];
    pack (p, s);
    hold (dq);
    hold (p);
    products_begin ();
    product_by_rows<KEYS, K> (dq, p, at + P::k_at + k_turn.stage * P::k_bytes, true);
    products_commit ();
  }
  products_wait<0> ();
  hold (dq);
#pragma unroll
  for (int i = 0; i < 2; i++)
    if (row + 8 * i < a.m)
      store_row (a.dq, head_at (a, row + 8 * i, b, a.heads, h, a.k), a.k, dq, i, a.scale);
}

template <int K, int V, int KEYS, int K_STAGES, int V_STAGES>
static __global__ void
__launch_bounds__ (THREADS, 1) query_pass_kernel (Attention a, Order order, const __grid_constant__ Maps maps)
{
  typedef QueryPass<K, V, KEYS, K_STAGES, V_STAGES> P;
  extern __shared__ __align__ (1024) unsigned char shared[];
  typename P::State *state = (typename P::State *) (shared + P::state_at);
  Place place = place_of (order, blockIdx.x);

  place.tile = order.tiles - 1 - place.tile; /* the last queries first: under a causal mask they have most to do */
  if (threadIdx.x == 0) {
    barrier_init (&state->q_full, 1);
    for (int i = 0; i < K_STAGES; i++) {
      barrier_init (&state->k_full[i], 1);
      barrier_init (&state->k_empty[i], 4 * GROUPS);
    }
    for (int i = 0; i < V_STAGES; i++) {
      barrier_init (&state->v_full[i], 1);
      barrier_init (&state->v_empty[i], 4 * GROUPS);
    }
    barrier_init_end ();
  }
  __syncthreads ();
  if (threadIdx.x < 128) {
    registers_give<40> ();
    if (threadIdx.x < 32)
      fetch_keys<K, V, KEYS, K_STAGES, V_STAGES> (a, maps, shared, state, place);
  } else {
    registers_take<232> ();
    gather_keys<K, V, KEYS, K_STAGES, V_STAGES> (a, shared, state, place);
  }
}

/* --- dK and dV ---------------------------------------------------------------------------------------------------- */

/* Scores stand here with keys in rows: s^T = K Q^T. A warpgroup has keys of its own, or, where the gradients of all
 * features would not fit its registers, SHARED ones, of which each makes all scores and half of the features. */
template <int K, int V, int QUERIES, int STAGES, bool SHARED> struct KeyPass {
  static constexpr int keys = SHARED ? 64 : 64 * GROUPS;
  static constexpr int k_part = SHARED ? K / GROUPS : K, v_part = SHARED ? V / GROUPS : V;
  static constexpr int q_bytes = QUERIES * K * 2, do_bytes = QUERIES * V * 2;
  static constexpr int v_at = keys * K * 2, q_at = v_at + keys * V * 2, do_at = q_at + STAGES * q_bytes;
  static constexpr int state_at = do_at + STAGES * do_bytes;

  struct State {
    float lse[STAGES][QUERIES], delta[STAGES][QUERIES];
    Interval see[STAGES][QUERIES];                                /* where not all is seen */
    uint64_t kv_full, full[STAGES], empty[STAGES], ready[STAGES]; /* ready: steps and heads */
    Step steps[STAGES];
    int heads[STAGES];
    KeyRange range;
    Place place;
  };
  static constexpr int bytes = state_at + (int) sizeof (State);
};

/* Goes through the queries of a split's heads. */
struct QueryWalk {
  Walk walk;
  int head, left;
};

static __device__ inline QueryWalk
query_walk_begin (const Attention &a, Place place)
{
  int heads, first = heads_of (a, place.head, blockIdx.y, &heads);

  return { walk_begin (), place.batch * (int) a.heads + first, heads };
}

template <int QUERIES>
static __device__ inline int
query_walk_next (QueryWalk &w, const Attention &a, int batch, const KeyRange &range, bool *ret_whole)
{
  while (w.left > 0) {
    const QueryRange *tiles = a.query_tiles ? a.query_tiles + batch * div_up (a.m, MASK_TILE) : nullptr;
    int tile = walk_next<QUERIES> (w.walk, tiles, a.m, range, ret_whole);
    if (tile >= 0)
      return tile;
    w.left--;
    w.head++;
    w.walk = walk_begin ();
  }
  return -1;
}

template <int K, int V, int QUERIES, int STAGES, bool SHARED>
static __device__ inline void
fetch_queries (const Attention &a, const Maps &maps, unsigned char *shared,
               typename KeyPass<K, V, QUERIES, STAGES, SHARED>::State *state, Place place)
{
  typedef KeyPass<K, V, QUERIES, STAGES, SHARED> P;
  QueryWalk walk = query_walk_begin (a, place);
  bool is_whole = false;
  Turn<STAGES> turn = { 0, 1 };

  if (threadIdx.x == 0) {
    int kv = place.batch * (int) a.kv_heads + place.head;
    barrier_expect (&state->kv_full, P::q_at);
    tile_fetch<K, P::keys> (shared, &maps.keys, &state->kv_full, kv, place.tile * P::keys);
    tile_fetch<V, P::keys> (shared + P::v_at, &maps.values, &state->kv_full, kv, place.tile * P::keys);
  }
  for (int i = 0; i >= 0; turn.next ()) {
    i = query_walk_next<QUERIES> (walk, a, place.batch, state->range, &is_whole);
    if (threadIdx.x == 0) {
      uint64_t *full = &state->full[turn.stage];
      barrier_wait (&state->empty[turn.stage], turn.phase);
      state->steps[turn.stage] = { i, is_whole };
      state->heads[turn.stage] = walk.head;
      barrier_arrive (&state->ready[turn.stage]);
      if (i < 0)
        barrier_arrive (full);
      else {
        barrier_expect (full, P::q_bytes + P::do_bytes);
        tile_fetch<K, QUERIES> (shared + P::q_at + turn.stage * P::q_bytes, &maps.q, full, walk.head, i * QUERIES);
        tile_fetch<V, QUERIES> (shared + P::do_at + turn.stage * P::do_bytes, &maps.d_o, full, walk.head, i * QUERIES);
      }
    }
    __syncwarp ();
  }
}

/* A second warp follows, for what is known of each query. Beyond the last all is 0, and so are its gradients then. */
template <int K, int V, int QUERIES, int STAGES, bool SHARED>
static __device__ inline void
fetch_rows (const Attention &a, typename KeyPass<K, V, QUERIES, STAGES, SHARED>::State *state)
{
  Turn<STAGES> turn = {};

  for (;; turn.next ()) {
    barrier_wait (&state->ready[turn.stage], turn.phase);
    Step step = state->steps[turn.stage];
    if (step.tile < 0) {
      barrier_arrive (&state->full[turn.stage]);
      return;
    }
#pragma unroll 1
    for (int row = threadIdx.x % 32; row < QUERIES; row += 32) {
      int query = step.tile * QUERIES + row;
      bool is_there = query < a.m;
      query = is_there ? query : 0;
      int64_t at = query * (a.batch * a.heads) + state->heads[turn.stage];
      copy_few_at<4> (shared_at (&state->lse[turn.stage][row]), a.lse_in + at, is_there);
      copy_few_at<4> (shared_at (&state->delta[turn.stage][row]), a.delta + at, is_there);
      if (!step.is_whole && a.intervals != nullptr)
        copy_few_at<8> (shared_at (&state->see[turn.stage][row]), a.intervals + state->place.batch * a.m + query,
                        is_there);
    }
    barrier_arrive_copied (&state->full[turn.stage]);
  }
}

/* The lane's first key, of a tile of those that a block has. */
template <typename P>
static __device__ inline int64_t
key_row (int tile)
{
  int group = P::keys == 64 ? 0 : threadIdx.x / 128 - 1;

  return (int64_t) tile * P::keys + group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
}

/* p of hidden pairs is 0. */
template <int QUERIES>
static __device__ inline void
hide_queries (const Attention &a, float (&p)[QUERIES / 2], const Interval *queries, int64_t row)
{
  int32_t positions[2] = { key_position (a, row), key_position (a, row + 8) };

#pragma unroll
  for (int j = 0; j < QUERIES / 2; j++)
    if (!sees (queries[j / 4 * 8 + threadIdx.x % 4 * 2 + j % 2], positions[j / 2 % 2]))
      p[j] = 0;
}

/* Scores become p. */
template <int QUERIES>
static __device__ inline void
weigh_queries (float (&s)[QUERIES / 2], const float *lse, float scale_log2)
{
#pragma unroll
  for (int j = 0; j < QUERIES / 8; j++) {
    float2 pair = *(const float2 *) &lse[8 * j + threadIdx.x % 4 * 2];
#pragma unroll
    for (int e = 0; e < 4; e++)
      s[4 * j + e] = exp2_fast (s[4 * j + e] * scale_log2 - (e % 2 ? pair.y : pair.x) * LOG2_E);
  }
}

/* p becomes gradients of scores, but for the scale. */
template <int QUERIES>
static __device__ inline void
differentiate_queries (float (&p)[QUERIES / 2], const float (&dp)[QUERIES / 2], const float *delta)
{
#pragma unroll
  for (int j = 0; j < QUERIES / 8; j++) {
    float2 pair = *(const float2 *) &delta[8 * j + threadIdx.x % 4 * 2];
#pragma unroll
    for (int e = 0; e < 4; e++)
      p[4 * j + e] *= dp[4 * j + e] - (e % 2 ? pair.y : pair.x);
  }
}

template <typename P>
static __device__ inline void
store_keys (const Attention &a, const Place &place, const float (&dk)[P::k_part / 2], const float (&dv)[P::v_part / 2],
            int part)
{
  int64_t row = key_row<P> (place.tile), from = (int64_t) blockIdx.y * a.n;

#pragma unroll
  for (int i = 0; i < 2; i++)
    if (row + 8 * i < a.n) {
      int64_t token = from + row + 8 * i;
      store_row (a.dkeys, head_at (a, token, place.batch, a.kv_heads, place.head, a.k) + part * P::k_part,
                 a.k - part * P::k_part, dk, i, a.scale);
      store_row (a.dvalues, head_at (a, token, place.batch, a.kv_heads, place.head, a.v) + part * P::v_part,
                 a.v - part * P::v_part, dv, i, 1);
    }
}

template <int K, int V, int QUERIES, int STAGES, bool SHARED>
static __device__ inline void
gather_queries (const Attention &a, unsigned char *shared,
                typename KeyPass<K, V, QUERIES, STAGES, SHARED>::State *state)
{
  typedef KeyPass<K, V, QUERIES, STAGES, SHARED> P;
  int group = threadIdx.x / 128 - 1;
  float dk[P::k_part / 2] = {}, dv[P::v_part / 2] = {}, s[QUERIES / 2], dp[QUERIES / 2];
  uint32_t p[QUERIES / 4], at = shared_at (shared), own = at + (SHARED ? 0 : group * 64 * 128);
  Turn<STAGES> turn = {};

  int part = SHARED ? group : 0; /* of the features; its place in tiles of queries */
  uint32_t k_from = part * (P::k_part / 64) * QUERIES * 128, v_from = part * (P::v_part / 64) * QUERIES * 128;

  auto before = [&] (void) { return turn.stage == 0 ? STAGES - 1 : turn.stage - 1; }; /* p is of those queries */
  auto score = [&] (void) {
    if (SHARED) /* or all places of the many features would be kept in registers */
      asm volatile("" : "+r"(own));
    hold (s);
    products_begin ();
    product_by_features<K, P::keys, QUERIES> (s, own, at + P::q_at + turn.stage * P::q_bytes);
    products_commit ();
  };
  auto gather_dk = [&] (void) {
    hold (dk);
    hold (p);
    products_begin ();
    product_by_rows<QUERIES, P::k_part> (dk, p, at + P::q_at + before () * P::q_bytes + k_from, true);
    products_commit ();
  };
  auto weigh = [&] (const Step &step) {
    hold (s);
    weigh_queries<QUERIES> (s, state->lse[turn.stage], a.scale * LOG2_E);
    if (!step.is_whole && a.intervals != nullptr)
      hide_queries<QUERIES> (a, s, state->see[turn.stage], key_row<P> (state->place.tile));
  };
  /* Ends with p as score gradients. */
  auto gather_dv = [&] (void) {
    pack (p, s);
    hold (dp);
    hold (dv);
    hold (p);
    products_begin ();
    product_by_features<V, P::keys, QUERIES> (dp, own + P::v_at, at + P::do_at + turn.stage * P::do_bytes);
    products_commit ();
    product_by_rows<QUERIES, P::v_part> (dv, p, at + P::do_at + turn.stage * P::do_bytes + v_from, true);
    products_commit ();
    products_wait<1> ();
    hold (dp);
    differentiate_queries<QUERIES> (s, dp, state->delta[turn.stage]);
    products_wait<0> ();
    hold (dv);
    hold (p);
    pack (p, s);
    turn.next ();
  };

  barrier_wait (&state->kv_full, 0);
  barrier_wait (&state->full[0], 0);
  Step step = state->steps[0];
  if (step.tile >= 0) {
    score ();
    products_wait<0> ();
    weigh (step);
    gather_dv ();
    for (;;) {
      barrier_wait (&state->full[turn.stage], turn.phase);
      step = state->steps[turn.stage];
      if (step.tile < 0)
        break;
      score ();
      gather_dk ();
      products_wait<1> ();
      weigh (step);
      products_wait<0> ();
      hold (dk);
      hold (p);
      barrier_arrive_warp (&state->empty[before ()]);
      gather_dv ();
    }
    gather_dk ();
    products_wait<0> ();
    hold (dk);
  }
  store_keys<P> (a, state->place, dk, dv, part);
}

template <int K, int V, int QUERIES, int STAGES, bool SHARED>
static __global__ void
__launch_bounds__ (THREADS, 1) key_pass_kernel (Attention a, Order order, const __grid_constant__ Maps maps)
{
  typedef KeyPass<K, V, QUERIES, STAGES, SHARED> P;
  extern __shared__ __align__ (1024) unsigned char shared[];
  typename P::State *state = (typename P::State *) (shared + P::state_at);
  Place place = place_of (order, blockIdx.x);

  if (threadIdx.x == 0) {
    state->place = place;
    if (a.key_tiles != nullptr)
      state->range = range_at<P::keys> (a.key_tiles, place.tile, (int) a.n);
    barrier_init (&state->kv_full, 1);
    for (int i = 0; i < STAGES; i++) {
      barrier_init (&state->full[i], 1 + 32);
      barrier_init (&state->ready[i], 1);
      barrier_init (&state->empty[i], 4 * GROUPS);
    }
    barrier_init_end ();
  }
  __syncthreads ();
  if (threadIdx.x < 128) {
    registers_give<24> ();
    if (threadIdx.x < 32)
      fetch_queries<K, V, QUERIES, STAGES, SHARED> (a, maps, shared, state, place);
    else if (threadIdx.x < 64)
      fetch_rows<K, V, QUERIES, STAGES, SHARED> (a, state);
  } else {
    registers_take<240> ();
    gather_queries<K, V, QUERIES, STAGES, SHARED> (a, shared, state);
  }
}

/* --- both --------------------------------------------------------------------------------------------------------- */

static cudaError_t
maps_of (Maps *maps, const Attention &a, int query_rows, int key_rows)
{
  cudaError_t error = map_of (&maps->q, a.q, a.m, a.batch * a.heads, a.k, query_rows);

  if (error == cudaSuccess)
    error = map_of (&maps->d_o, a.d_o, a.m, a.batch * a.heads, a.v, query_rows);
  if (error == cudaSuccess)
    error = map_of (&maps->keys, a.keys, a.n, a.batch * a.kv_heads, a.k, key_rows);
  if (error == cudaSuccess)
    error = map_of (&maps->values, a.values, a.n, a.batch * a.kv_heads, a.v, key_rows);
  return error;
}

template <int K, int V, int KEYS, int K_STAGES, int V_STAGES, int QUERIES, int STAGES, bool SHARED>
static cudaError_t
backward (const Attention &a, cudaStream_t stream)
{
  typedef QueryPass<K, V, KEYS, K_STAGES, V_STAGES> Queries;
  typedef KeyPass<K, V, QUERIES, STAGES, SHARED> Keys;
  int64_t bytes = 2 * (a.k + a.v), sharing = a.heads / a.kv_heads;
  Order queries = order_of (div_up (a.m, Queries::queries), a.heads, a.batch, a.n * bytes, sharing);
  Order keys = order_of (div_up (a.n, Keys::keys), a.kv_heads, a.batch, a.m * bytes * sharing, 1);
  Maps maps;
  cudaError_t error = maps_of (&maps, a, Queries::queries, KEYS);

  if (error == cudaSuccess)
    error =
        launch (query_pass_kernel<K, V, KEYS, K_STAGES, V_STAGES>, dim3 ((unsigned) (queries.tiles * queries.pairs)),
                THREADS, Queries::bytes, stream, a, queries, maps);
  if (error == cudaSuccess)
    error = maps_of (&maps, a, QUERIES, Keys::keys);
  if (error == cudaSuccess)
    error = launch (key_pass_kernel<K, V, QUERIES, STAGES, SHARED>,
                    dim3 ((unsigned) (keys.tiles * keys.pairs), (unsigned) a.splits), THREADS, Keys::bytes, stream, a,
                    keys, maps);
  return error;
}

cudaError_t
sp_attention_bwd_sm90 (const Attention &a, cudaStream_t stream)
{
  return a.k <= 64 && a.v <= 64     ? backward<64, 64, 128, 2, 2, 64, 3, false> (a, stream)
         : a.k <= 128 && a.v <= 128 ? backward<128, 128, 128, 2, 2, 64, 3, false> (a, stream)
         : a.v <= 128               ? backward<256, 128, 64, 2, 2, 64, 3, true> (a, stream)
                                    : backward<256, 256, 64, 2, 1, 64, 2, true> (a, stream);
}
