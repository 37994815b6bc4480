/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax attention, backward, and the kernels of rows around it. One kernel has a tile of queries and goes through
 * keys for dQ, one has a tile of keys and goes through queries for dK and dV; both make the scores again, from the lse.
 * So no sum crosses blocks.
 */
#include "kernels/device-attention.cuh"

/* --- dQ ----------------------------------------------------------------------------------------------------------- */

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

template <int D>
static constexpr size_t
query_pass_bytes (void)
{
  return 4 * Stride<D>::elements * sizeof (uint16_t) + TILE * sizeof (int32_t);
}

/* s = scores and dp = gradients of probabilities -> s = gradients of scores, but for the scale. */
static __device__ inline void
score_gradients (float s[8][4], const float dp[8][4], const float lse[2], const float delta[2], float scale_log2,
                 bool is_whole, const Interval see[2], const int32_t *positions)
{
#pragma unroll
  for (int j = 0; j < 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int i = e / 2;
      bool seen = is_whole || sees (see[i], positions[j * 8 + threadIdx.x % 4 * 2 + e % 2]);
      float p = seen ? exp2f (s[j][e] * scale_log2 - lse[i]) : 0;
      s[j][e] = p * (dp[j][e] - delta[i]);
    }
}

template <int D>
static __device__ inline void
store_head (SpDevTensor out, int64_t at, int64_t size, const float c[D / 8][4], int half, float factor)
{
#pragma unroll
  for (int j = 0; j < D / 8; j++)
    if (j * 8 < size)
      store_pair (out, at + j * 8 + threadIdx.x % 4 * 2, c[j][2 * half] * factor, c[j][2 * half + 1] * factor);
}

template <int D>
static __global__ void
__launch_bounds__ (TILE_THREADS) query_pass_kernel (Attention a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  uint16_t *q_tile = (uint16_t *) dynamic, *do_tile = q_tile + Stride<D>::elements;
  uint16_t *k_tile = do_tile + Stride<D>::elements, *v_tile = k_tile + Stride<D>::elements;
  int32_t *positions = (int32_t *) (v_tile + Stride<D>::elements);
  int64_t tile = gridDim.x - 1 - blockIdx.x, h = blockIdx.y, b = blockIdx.z, hk = kv_head (a, h);
  int warp = threadIdx.x / 32;
  int64_t row = tile * TILE + warp * 16 + threadIdx.x % 32 / 4;
  int64_t k_stride = a.batch * a.kv_heads * a.k, v_stride = a.batch * a.kv_heads * a.v;
  QueryRange range = a.query_tiles ? a.query_tiles[b * div_up (a.m, TILE) + tile] : QueryRange{};
  Interval see[2] = { interval_of (a, b, row), interval_of (a, b, row + 8) };
  float lse[2] = { lse_log2 (a, row, b, h), lse_log2 (a, row + 8, b, h) };
  float delta[2] = { delta_of (a, row, b, h), delta_of (a, row + 8, b, h) };
  Walk<KeyRange> walk = walk_begin (a.key_tiles, a.n);
  bool is_whole = false, next_whole = false;
  int64_t j = walk_next (walk, range, &is_whole), next;
  float dq[D / 8][4] = {};

  tile_load<D> (q_tile, a.q + head_at (a, tile * TILE, b, a.heads, h, a.k), a.batch * a.heads * a.k, a.m - tile * TILE,
                a.k);
  tile_load<D> (do_tile, a.d_o + head_at (a, tile * TILE, b, a.heads, h, a.v), a.batch * a.heads * a.v,
                a.m - tile * TILE, a.v);
  if (j >= 0) {
    tile_load<D> (k_tile, a.keys + head_at (a, j * TILE, b, a.kv_heads, hk, a.k), k_stride, a.n - j * TILE, a.k);
    tile_load<D> (v_tile, a.values + head_at (a, j * TILE, b, a.kv_heads, hk, a.v), v_stride, a.n - j * TILE, a.v);
  }
  copy_commit ();

  for (; j >= 0; j = next, is_whole = next_whole) {
    float s[8][4] = {}, dp[8][4] = {};

    if (threadIdx.x < TILE)
      positions[threadIdx.x] = key_position (a, j * TILE + threadIdx.x);
    copy_wait<0> ();
    __syncthreads ();
    multiply_transposed<D, 8> (s, q_tile, warp * 16, k_tile, 0);
    multiply_transposed<D, 8> (dp, do_tile, warp * 16, v_tile, 0);
    score_gradients (s, dp, lse, delta, a.scale * LOG2_E, is_whole, see, positions);
    __syncthreads (); /* values and positions have been read: the next values may come while the keys are used again */
    next = walk_next (walk, range, &next_whole);
    if (next >= 0)
      tile_load<D> (v_tile, a.values + head_at (a, next * TILE, b, a.kv_heads, hk, a.v), v_stride, a.n - next * TILE,
                    a.v);
    multiply_kept<D, 8, D / 8> (dq, s, k_tile, 0, 0);
    __syncthreads ();
    if (next >= 0)
      tile_load<D> (k_tile, a.keys + head_at (a, next * TILE, b, a.kv_heads, hk, a.k), k_stride, a.n - next * TILE,
                    a.k);
    copy_commit ();
  }
  copy_wait<0> ();
#pragma unroll
  for (int i = 0; i < 2; i++)
    if (row + 8 * i < a.m)
      store_head<D> (a.dq, head_at (a, row + 8 * i, b, a.heads, h, a.k), a.k, dq, i, a.scale);
}

/* --- dK and dV ---------------------------------------------------------------------------------------------------- */

/*
 * A warp has 16 keys, so scores stand here with keys in rows: s^T = K Q^T. Of D features a block makes the gradients of
 * C, from blockIdx.y's part on: with 256 both at once would not fit a thread's registers, and the scores are made
 * twice.
 */

#define QUERIES 32 /* that are done at once, of a tile's */

struct QueryTile {
  float lse[TILE], delta[TILE];
  Interval see[TILE];
};

template <int D>
static constexpr size_t
key_pass_bytes (void)
{
  return 4 * Stride<D>::elements * sizeof (uint16_t) + sizeof (QueryTile);
}

static __device__ inline void
load_queries (const Attention &a, QueryTile *t, int64_t tile, int64_t b, int64_t h)
{
  if (threadIdx.x < TILE) {
    int64_t i = tile * TILE + threadIdx.x;
    t->lse[threadIdx.x] = lse_log2 (a, i, b, h);
    t->delta[threadIdx.x] = delta_of (a, i, b, h);
    t->see[threadIdx.x] = interval_of (a, b, i);
  }
}

/* s -> p, dp -> gradients of scores; both transposed, of queries from `first` on. */
static __device__ inline void
key_gradients (float s[QUERIES / 8][4], float dp[QUERIES / 8][4], const QueryTile *t, int first, float scale_log2,
               bool is_whole, const int32_t positions[2])
{
#pragma unroll
  for (int j = 0; j < QUERIES / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int query = first + j * 8 + threadIdx.x % 4 * 2 + e % 2;
      bool seen = is_whole || sees (t->see[query], positions[e / 2]);
      s[j][e] = seen ? exp2f (s[j][e] * scale_log2 - t->lse[query]) : 0;
      dp[j][e] = s[j][e] * (dp[j][e] - t->delta[query]);
    }
}

template <int D, int C>
static __global__ void
__launch_bounds__ (TILE_THREADS) key_pass_kernel (Attention a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  uint16_t *k_tile = (uint16_t *) dynamic, *v_tile = k_tile + Stride<D>::elements;
  uint16_t *q_tile = v_tile + Stride<D>::elements, *do_tile = q_tile + Stride<D>::elements;
  QueryTile *queries = (QueryTile *) (do_tile + Stride<D>::elements);
  int64_t tile = blockIdx.x, hk = blockIdx.y / (D / C), b = blockIdx.z;
  int column = blockIdx.y % (D / C) * C, warp = threadIdx.x / 32;
  int64_t row = tile * TILE + warp * 16 + threadIdx.x % 32 / 4;
  int64_t first_head = div_up (hk * a.heads, a.kv_heads), end_head = div_up ((hk + 1) * a.heads, a.kv_heads);
  int64_t k_stride = a.batch * a.heads * a.k, v_stride = a.batch * a.heads * a.v;
  KeyRange range = a.key_tiles ? a.key_tiles[tile] : KeyRange{};
  int32_t positions[2] = { key_position (a, row), key_position (a, row + 8) };
  float dk[C / 8][4] = {}, dv[C / 8][4] = {};

  tile_load<D> (k_tile, a.keys + head_at (a, tile * TILE, b, a.kv_heads, hk, a.k), a.batch * a.kv_heads * a.k,
                a.n - tile * TILE, a.k);
  tile_load<D> (v_tile, a.values + head_at (a, tile * TILE, b, a.kv_heads, hk, a.v), a.batch * a.kv_heads * a.v,
                a.n - tile * TILE, a.v);
  copy_commit ();

  for (int64_t h = first_head; h < end_head; h++) {
    Walk<QueryRange> walk = walk_begin (a.query_tiles ? a.query_tiles + b * div_up (a.m, TILE) : nullptr, a.m);
    bool is_whole = false;

    for (int64_t i = walk_next (walk, range, &is_whole); i >= 0; i = walk_next (walk, range, &is_whole)) {
      __syncthreads (); /* the queries before have been read */
      tile_load<D> (q_tile, a.q + head_at (a, i * TILE, b, a.heads, h, a.k), k_stride, a.m - i * TILE, a.k);
      tile_load<D> (do_tile, a.d_o + head_at (a, i * TILE, b, a.heads, h, a.v), v_stride, a.m - i * TILE, a.v);
      copy_commit ();
      load_queries (a, queries, i, b, h);
      copy_wait<0> ();
      __syncthreads ();
#pragma unroll 1
      for (int first = 0; first < TILE; first += QUERIES) {
        float s[QUERIES / 8][4] = {}, dp[QUERIES / 8][4] = {};

        multiply_transposed<D, QUERIES / 8> (s, k_tile, warp * 16, q_tile, first);
        multiply_transposed<D, QUERIES / 8> (dp, v_tile, warp * 16, do_tile, first);
        key_gradients (s, dp, queries, first, a.scale * LOG2_E, is_whole, positions);
        multiply_kept<D, QUERIES / 8, C / 8> (dv, s, do_tile, first, column);
        multiply_kept<D, QUERIES / 8, C / 8> (dk, dp, q_tile, first, column);
      }
    }
  }
  copy_wait<0> ();
#pragma unroll
  for (int i = 0; i < 2; i++)
    if (row + 8 * i < a.n) {
      store_head<C> (a.dkeys, head_at (a, row + 8 * i, b, a.kv_heads, hk, a.k) + column, a.k - column, dk, i, a.scale);
      store_head<C> (a.dvalues, head_at (a, row + 8 * i, b, a.kv_heads, hk, a.v) + column, a.v - column, dv, i, 1);
    }
}

/* --- both --------------------------------------------------------------------------------------------------------- */

template <int D, int C>
static cudaError_t
backward (const Attention &a, cudaStream_t stream)
{
  dim3 queries ((unsigned) div_up (a.m, TILE), (unsigned) a.heads, (unsigned) a.batch);
  dim3 keys ((unsigned) div_up (a.n, TILE), (unsigned) (a.kv_heads * (D / C)), (unsigned) a.batch);
  cudaError_t error = cudaSuccess;

  if (a.m > 0)
    error = launch (query_pass_kernel<D>, queries, TILE_THREADS, query_pass_bytes<D> (), stream, a);
  if (error == cudaSuccess && a.n > 0)
    error = launch (key_pass_kernel<D, C>, keys, TILE_THREADS, key_pass_bytes<D> (), stream, a);
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
  int64_t features = attention_features (a);
  return features <= 64    ? backward<64, 64> (a, stream)
         : features <= 128 ? backward<128, 128> (a, stream)
                           : backward<256, 128> (a, stream);
}
