/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax attention, forward, for sm_90a: a warp of one warpgroup fetches tiles of keys and values by the TMA, two or
 * three other warpgroups have 64 queries each. While a warpgroup's weights of one tile are multiplied with values, it
 * makes those of the next (Shah et al., 2407.08608, without its turns between warpgroups).
 */
#include "kernels/device-attention-wgmma.cuh"

/* K features of queries and keys, V of values; GROUPS warpgroups of 64 queries. */
template <int K, int V, int GROUPS, int KEYS, int STAGES> struct Forward {
  static constexpr int threads = 128 * (GROUPS + 1), queries = 64 * GROUPS;
  static constexpr int k_bytes = KEYS * K * 2, v_bytes = KEYS * V * 2;
  static constexpr int k_at = queries * K * 2, v_at = k_at + STAGES * k_bytes, state_at = v_at + STAGES * v_bytes;

  struct State {
    uint64_t q_full, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    Step steps[STAGES];
  };
  static constexpr int bytes = state_at + (int) sizeof (State);
};

struct Maps {
  CUtensorMap q, keys, values;
};

/* --- the fetching warp -------------------------------------------------------------------------------------------- */

template <typename F, int K, int V, int KEYS, int STAGES>
static __device__ inline void
fetch (const Attention &a, const Maps &maps, unsigned char *shared, typename F::State *state, Place place, int tile)
{
  int h = place.head, b = place.batch, hk = (int) kv_head (a, h);
  QueryRange range = {};
  if (a.query_tiles != nullptr)
    range = range_at<F::queries> (a.query_tiles + b * div_up (a.m, MASK_TILE), tile, (int) a.m);
  Walk walk = walk_begin ();
  bool is_whole = false, leads = threadIdx.x % 32 == 0;
  Turn<STAGES> turn = { 0, 1 };

  if (leads) {
    barrier_expect (&state->q_full, F::queries * K * 2);
    tile_fetch<K, F::queries> (shared, &maps.q, &state->q_full, b * (int) a.heads + h, tile * F::queries);
  }
  for (int j = 0; j >= 0; turn.next ()) {
    j = walk_next<KEYS> (walk, a.key_tiles, a.n, range, &is_whole);
    if (leads) {
      uint64_t *k_full = &state->k_full[turn.stage], *v_full = &state->v_full[turn.stage];
      barrier_wait (&state->k_empty[turn.stage], turn.phase);
      state->steps[turn.stage] = { j, is_whole };
      if (j < 0)
        barrier_arrive (k_full);
      else {
        barrier_expect (k_full, F::k_bytes);
        tile_fetch<K, KEYS> (shared + F::k_at + turn.stage * F::k_bytes, &maps.keys, k_full, b * (int) a.kv_heads + hk,
                             j * KEYS);
        barrier_wait (&state->v_empty[turn.stage], turn.phase);
        barrier_expect (v_full, F::v_bytes);
        tile_fetch<V, KEYS> (shared + F::v_at + turn.stage * F::v_bytes, &maps.values, v_full,
                             b * (int) a.kv_heads + hk, j * KEYS);
      }
    }
    __syncwarp ();
  }
}

/* --- the others --------------------------------------------------------------------------------------------------- */

template <int KEYS>
static __device__ inline void
mask_scores (const Attention &a, float (&s)[KEYS / 2], const Interval see[2], int tile)
{
#pragma unroll
  for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      int32_t position = key_position (a, tile * KEYS + j * 8 + (int) threadIdx.x % 4 * 2 + e);
      if (!sees (see[0], position))
        s[4 * j + e] = -INFINITY;
      if (!sees (see[1], position))
        s[4 * j + 2 + e] = -INFINITY;
    }
}

/* s becomes weights. Whether what was summed so far has to be multiplied by `before`. */
template <int N>
static __device__ inline bool
soften (Softmax &softmax, float (&s)[N], float before[2], float scale_log2)
{
  float top[2];

  softmax_tops (top, s, scale_log2);
  bool lags = __any_sync (0xffffffffu, softmax_lags (softmax, top));
  if (lags)
    softmax_follow (softmax, top, before);
  softmax_weights (softmax, s, scale_log2);
  return lags;
}

template <typename F, int K, int V, int KEYS, int STAGES>
static __device__ inline void
attend (const Attention &a, unsigned char *shared, typename F::State *state, Place place, int tile)
{
  int group = threadIdx.x / 128 - 1;
  int64_t row = (int64_t) tile * F::queries + group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  Interval see[2] = { interval_of (a, place.batch, row), interval_of (a, place.batch, row + 8) };
  float o[V / 2] = {}, s[KEYS / 2], before[2], scale_log2 = a.scale * LOG2_E;
  uint32_t p[KEYS / 4], q_at = shared_at (shared) + group * 64 * 128;
  uint32_t k_at = shared_at (shared) + F::k_at, v_at = shared_at (shared) + F::v_at;
  Softmax softmax = { { -INFINITY, -INFINITY }, {} };
  Turn<STAGES> k_turn = {}, v_turn = {};

  /* Scores with the next keys; weights of the tile before times its values. */
  auto score = [&] (void) {
    hold (s);
    products_begin ();
    product_by_features<K, F::queries, KEYS> (s, q_at, k_at + k_turn.stage * F::k_bytes);
    products_commit ();
  };
  auto gather = [&] (void) {
    barrier_wait (&state->v_full[v_turn.stage], v_turn.phase);
    hold (o);
    hold (p);
    products_begin ();
    product_by_rows<KEYS, V> (o, p, v_at + v_turn.stage * F::v_bytes, true);
    products_commit ();
  };
  auto scored = [&] (const Step &step) {
    hold (s);
    barrier_arrive_warp (&state->k_empty[k_turn.stage]);
    k_turn.next ();
    if (!step.is_whole)
      mask_scores<KEYS> (a, s, see, step.tile);
    return soften (softmax, s, before, scale_log2);
  };
  auto gathered = [&] (void) {
    products_wait<0> ();
    hold (o);
    hold (p);
  };

  barrier_wait (&state->q_full, 0);
  barrier_wait (&state->k_full[0], 0);
  Step step = state->steps[0];
  if (step.tile >= 0) {
    score ();
    products_wait<0> ();
    scored (step);
    pack (p, s);
    for (;;) {
      barrier_wait (&state->k_full[k_turn.stage], k_turn.phase);
      step = state->steps[k_turn.stage];
      if (step.tile < 0)
        break;
      score ();
      gather ();
      products_wait<1> ();
      bool lagged = scored (step);
      gathered ();
      barrier_arrive_warp (&state->v_empty[v_turn.stage]);
      v_turn.next ();
      if (lagged)
        scale_rows (o, before);
      pack (p, s);
    }
    gather ();
    gathered ();
  }
  store_attention (a, o, softmax, row, place.batch, place.head);
}

template <int K, int V, int GROUPS, int KEYS, int STAGES>
static __global__ void __launch_bounds__ (128 * (GROUPS + 1), 1)
    attention_kernel (Attention a, Order order, const __grid_constant__ Maps maps)
{
  typedef Forward<K, V, GROUPS, KEYS, STAGES> F;
  extern __shared__ __align__ (1024) unsigned char shared[];
  typename F::State *state = (typename F::State *) (shared + F::state_at);
  Place place = place_of (order, blockIdx.x);
  int tile = order.tiles - 1 - place.tile; /* the last queries first: under a causal mask they have most to do */

  if (threadIdx.x == 0) {
    barrier_init (&state->q_full, 1);
    for (int i = 0; i < STAGES; i++) {
      barrier_init (&state->k_full[i], 1);
      barrier_init (&state->v_full[i], 1);
      barrier_init (&state->k_empty[i], 4 * GROUPS);
      barrier_init (&state->v_empty[i], 4 * GROUPS);
    }
    barrier_init_end ();
  }
  __syncthreads ();
  if (threadIdx.x < 128) {
    registers_give<GROUPS == 2 ? 40 : 32> ();
    if (threadIdx.x < 32)
      fetch<F, K, V, KEYS, STAGES> (a, maps, shared, state, place, tile);
  } else {
    registers_take<GROUPS == 2 ? 232 : 160> ();
    attend<F, K, V, KEYS, STAGES> (a, shared, state, place, tile);
  }
}

template <int K, int V, int GROUPS, int KEYS, int STAGES>
static cudaError_t
forward (const Attention &a, cudaStream_t stream)
{
  typedef Forward<K, V, GROUPS, KEYS, STAGES> F;
  Order order = order_of (div_up (a.m, F::queries), a.heads, a.batch, 2 * a.n * (a.k + a.v), a.heads / a.kv_heads);
  Maps maps;
  cudaError_t error = map_of (&maps.q, a.q, a.m, a.batch * a.heads, a.k, F::queries);

  if (error == cudaSuccess)
    error = map_of (&maps.keys, a.keys, a.n, a.batch * a.kv_heads, a.k, KEYS);
  if (error == cudaSuccess)
    error = map_of (&maps.values, a.values, a.n, a.batch * a.kv_heads, a.v, KEYS);
  if (error != cudaSuccess)
    return error;
  return launch (attention_kernel<K, V, GROUPS, KEYS, STAGES>, dim3 ((unsigned) (order.tiles * order.pairs)),
                 F::threads, F::bytes, stream, a, order, maps);
}

cudaError_t
sp_attention_sm90 (const Attention &a, cudaStream_t stream)
{
  return a.k <= 64 && a.v <= 64     ? forward<64, 64, 3, 128, 2> (a, stream)
         : a.k <= 128 && a.v <= 128 ? forward<128, 128, 2, 128, 2> (a, stream)
         : a.v <= 128               ? forward<192, 128, 2, 128, 2> (a, stream)
                                    : forward<256, 256, 2, 64, 2> (a, stream);
}
