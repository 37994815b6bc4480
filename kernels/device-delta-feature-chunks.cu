/* SPDX-License-Identifier: Apache-2.0 */
/* The delta rule's triangular matrices with a decay a feature, a block for each chunk and head: N and P by levels
 * (device-delta-feature.cuh), Z of them, and queries and keys as the passes want them. */
#include "kernels/device-delta-feature.cuh"
#include "kernels/device-delta-solve.cuh"

#define THREADS 256
#define BLOCKS 2 /* of a multiprocessor */

/* In shared memory. Z takes the place of keys and queries. */
template <int D> struct Chunk {
  using Columns = ::Columns<D, THREADS>;
  static constexpr int logs_at = (int) tile_bytes<D> (), parts_at = logs_at + CHUNK * log_row<D> () * 4;
  static constexpr int n_at = parts_at + Columns::sum_bytes, bytes = n_at + CHUNK * ROW * 4;
};

/* 16 rows of a tile and 16 features as an operand, as queries or (sign -1) as keys of a level. Turned, its words 0 and 2 are
 * the first 8 rows, 1 and 3 the others. Level 0: as they are. */
struct Factors {
  float2 x[4];
};

template <int D>
static __device__ inline Factors
operand_factors (const float *logs, int level, float most, float sign, int block, int k)
{
  int row = 16 * block + (int) threadIdx.x % 32 / 4, feature = k + (int) threadIdx.x % 4 * 2;
  Factors f;

#pragma unroll
  for (int e = 0; e < 4; e++) {
    float2 d = level_distance<D> (logs + feature + e / 2 * 8, level, row + e % 2 * 8);
    f.x[e] = make_float2 (level_factor (sign * d.x, most), level_factor (sign * d.y, most));
  }
  return f;
}

static __device__ inline void
scaled_operand (uint32_t a[4], uint32_t tile, const Factors &f, int block, int k)
{
  fragment_a (a, tile, 16 * block, k);
#pragma unroll
  for (int e = 0; e < 4; e++)
    a[e] = scale_pair (a[e], f.x[e].x, f.x[e].y);
}

/* The scores of a block's keys, and of its queries if there are any, by keys, right of the level's pairs. */
template <int D>
static __device__ inline void
block_scores (uint32_t keys, uint32_t queries, bool has_queries, const float *logs, int level, float most, int i, int j,
              float kk[2][4], float qk[2][4])
{
#pragma unroll 2
  for (int k = 0; k < D; k += 16) {
    Factors of_keys = operand_factors<D> (logs, level, most, -1, j, k);
    Factors of_queries = operand_factors<D> (logs, level, most, 1, i, k);
    uint32_t a[4], b[4];

    scaled_operand (b, keys, of_keys, j, k);
    scaled_operand (a, keys, of_queries, i, k);
    mma (kk[0], a, b[0], b[2]);
    mma (kk[1], a, b[1], b[3]);
    if (has_queries) {
      scaled_operand (a, queries, of_queries, i, k);
      mma (qk[0], a, b[0], b[2]);
      mma (qk[1], a, b[1], b[3]);
    }
  }
}

/* Two neighbours of a block of N and P, which are 0 on and above the diagonal, and above it. */
static __device__ inline void
store_pair_of_scores (int row, int column, const float *kk, const float *qk, bool has_queries, float *n_rows,
                      uint16_t *scores)
{
  *(float2 *) (n_rows + row * ROW + column) = make_float2 (row > column ? kk[0] : 0, row > column + 1 ? kk[1] : 0);
  if (has_queries)
    *(uint32_t *) (scores + row * CHUNK + column) =
        bf16_pair (row >= column ? qk[0] : 0, row >= column + 1 ? qk[1] : 0);
}

/* The same where the level's pairs alone are wanted; level 0 has those above the diagonal too. */
static __device__ inline void
store_level_of_scores (int level, int row, int column, float kk, float qk, bool has_queries, float *n_rows,
                       uint16_t *scores)
{
  if (level == 0 ? row > column : row <= column || !level_has (level, row, column))
    return;
  n_rows[row * ROW + column] = row > column ? kk : 0;
  if (has_queries)
    scores[row * CHUNK + column] = (uint16_t) bf16_pair (row >= column ? qk : 0, 0);
}

/* Of all D features. By a warp. */
template <int D>
static __device__ inline bool
is_block_gentle (const float *logs, int block)
{
  bool all = true;

#pragma unroll
  for (int feature = 0; feature < D; feature += 32)
    all &= is_gentle<D> (logs, block, feature + (int) threadIdx.x % 32);
  return __all_sync (0xffffffffu, all);
}

/* N in fp32, P in bf16, by blocks on and below the diagonal, dealt to the warps. */
template <int D>
static __device__ inline void
fill_blocks (uint32_t keys, uint32_t queries, bool has_queries, const float *logs, float *n_rows, uint16_t *scores)
{
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

  for (int u = threadIdx.x / 32; u < 10; u += THREADS / 32) {
    int i = u < 1 ? 0 : u < 3 ? 1 : u < 6 ? 2 : 3, j = u - i * (i + 1) / 2;
    int level = i == j ? 8 : i / 2 == j / 2 ? 16 : 32;
    bool is_level = i == j && !is_block_gentle<D> (logs, i);

    for (bool is_last = false; !is_last; level /= 2) {
      float kk[2][4] = {}, qk[2][4] = {};
      block_scores<D> (keys, queries, has_queries, logs, level, i == j && !is_level ? STEEP : 0, i, j, kk, qk);
#pragma unroll
      for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          int row = 16 * i + g + e / 2 * 8, column = 16 * j + 8 * n + 2 * t + e % 2;
          if (is_level)
            store_level_of_scores (level, row, column, kk[n][e], qk[n][e], has_queries, n_rows, scores);
          else if (e % 2 == 0)
            store_pair_of_scores (row, column, kk[n] + e, qk[n] + e, has_queries, n_rows, scores);
        }
      is_last = !is_level || level == 0;
    }
  }
}

/* Queries and keys of the chunk, brought to its start, and keys to its end. */
template <int D>
static __device__ inline void
store_scaled (const Delta &a, const DeltaHead &head, int64_t first, int rows, uint32_t keys, const float *logs)
{
  typename Chunk<D>::Columns c;
  int64_t stride = a.batch * a.heads * a.d, at = head.scalar * a.d + (first + c.first) * stride + c.feature;
  float2 end = *(const float2 *) (logs + (CHUNK - 1) * log_row<D> () + c.feature);

  if (c.feature >= a.d)
    return;
#pragma unroll 4
  for (int i = 0; i < Chunk<D>::Columns::length; i++, at += stride) {
    int token = c.first + i;
    uint32_t place = pair_place (keys, token, c.feature), key = load_word (place);
    float2 own = *(const float2 *) (logs + token * log_row<D> () + c.feature);
    float low = exp2_fast (own.x), high = exp2_fast (own.y);
    if (token < rows) {
      *(uint32_t *) (a.since_keys + at) = scale_pair (key, low, high);
      *(uint32_t *) (a.left_keys + at) = scale_pair (key, exp2_fast (end.x - own.x), exp2_fast (end.y - own.y));
      if (a.q != nullptr)
        *(uint32_t *) (a.since_q + at) = scale_pair (load_word (place + CHUNK * 2 * D), low, high);
    }
  }
}

/* By as many threads as a row of weights has: e^L_63 of each feature, beta, and no logarithms. */
template <int D>
static __device__ inline void
fill_weights (const Delta &a, const DeltaHead &head, int64_t first, const float *logs, float *beta, float *weights)
{
  int i = threadIdx.x;
  int64_t token = first + i, at = token * a.batch * a.heads + head.scalar;
  float b = token >= a.m ? 0 : a.beta.data != nullptr ? load1 (a.beta, at) : 1;

  beta[i] = b;
  weights[DELTA_BETA * CHUNK + i] = b;
  weights[DELTA_LOG * CHUNK + i] = 0;
  for (int feature = i; feature < D; feature += CHUNK)
    weights[DELTA_ENDS * CHUNK + feature] = exp2_fast (logs[(CHUNK - 1) * log_row<D> () + feature]);
}

template <int D>
static __global__ void
__launch_bounds__ (THREADS, BLOCKS) chunk_kernel (Delta a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  __shared__ __align__ (16) float beta[CHUNK];
  using C = typename Chunk<D>::Columns;
  uint32_t keys = (uint32_t) __cvta_generic_to_shared (dynamic), queries = keys + CHUNK * 2 * D;
  float *z_rows = (float *) dynamic, *n_rows = (float *) (dynamic + Chunk<D>::n_at);
  float *logs = (float *) (dynamic + Chunk<D>::logs_at);
  DeltaHead head = delta_head (a, blockIdx.y);
  int64_t chunk = delta_chunk (a, head, blockIdx.x), first = (int64_t) blockIdx.x * CHUNK;
  int rows = (int) min (a.m - first, (int64_t) CHUNK);
  bool has_queries = a.q != nullptr;
  uint16_t *scores = has_queries ? a.scores + chunk * CHUNK * CHUNK : nullptr;

  gates_load<D, THREADS, log_row<D> ()> (keys + Chunk<D>::logs_at, delta_gates (a, head, first),
                                         a.batch * a.heads * a.d, rows, (int) a.d);
  load_tile<2 * D, THREADS> (keys, a.keys + head.key + first * head.key_stride, head.key_stride, rows, (int) a.d);
  if (has_queries)
    load_tile<2 * D, THREADS> (queries, a.q + head.key + first * head.key_stride, head.key_stride, rows, (int) a.d);
  copy_commit ();
  copy_wait<0> ();
  __syncthreads ();
  logs_make<C, D> (logs, (float *) (dynamic + Chunk<D>::parts_at));
  if (threadIdx.x < CHUNK)
    fill_weights<D> (a, head, first, logs, beta, a.weights + chunk * DELTA_WEIGHTS * CHUNK);
  fill_blocks<D> (keys, queries, has_queries, logs, n_rows, scores);
  store_scaled<D> (a, head, first, rows, keys, logs);
  __syncthreads (); /* keys and queries have been read */
  if (threadIdx.x < 128)
    solve_diagonal (n_rows, beta, z_rows);
  __syncthreads ();
  if (threadIdx.x < 128)
    solve_below (n_rows, beta, z_rows);
  __syncthreads ();
  store_inverse<THREADS> (z_rows, a.inverse + chunk * CHUNK * CHUNK, scores);
}

cudaError_t
delta_feature_chunks (const Delta &a, cudaStream_t stream)
{
  dim3 grid ((unsigned) a.chunks, (unsigned) (a.batch * a.heads));

  if (a.d <= 64)
    return launch (chunk_kernel<64>, grid, THREADS, Chunk<64>::bytes, stream, a);
  return launch (chunk_kernel<128>, grid, THREADS, Chunk<128>::bytes, stream, a);
}
