/* SPDX-License-Identifier: Apache-2.0 */
/* The delta rule's triangular matrices, a block for each chunk and head: Z by substitution of blocks of 16 by 16, in
 * fp32 but for products of blocks, which are of tf32; P as it comes. */
#include "kernels/device-delta-solve.cuh"

#define THREADS 128

/* The scores of a block's keys, and of its queries if there are any, by keys. */
template <int D>
static __device__ inline void
block_scores (uint32_t keys, uint32_t queries, bool has_queries, int i, int j, float kk[2][4], float qk[2][4])
{
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    uint32_t a[4], b[4];

    fragment_b_transposed (b, keys, 16 * j, k);
    fragment_a (a, keys, 16 * i, k);
    mma (kk[0], a, b[0], b[1]);
    mma (kk[1], a, b[2], b[3]);
    if (has_queries) {
      fragment_a (a, queries, 16 * i, k);
      mma (qk[0], a, b[0], b[1]);
      mma (qk[1], a, b[2], b[3]);
    }
  }
}

/* N in fp32, P in bf16, by blocks on and below the diagonal. */
template <int D>
static __device__ inline void
fill_blocks (uint32_t keys, uint32_t queries, bool has_queries, const float *logs, float *n_rows, uint16_t *scores)
{
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

  for (int u = threadIdx.x / 32; u < 10; u += THREADS / 32) {
    int i = u < 1 ? 0 : u < 3 ? 1 : u < 6 ? 2 : 3, j = u - i * (i + 1) / 2;
    float kk[2][4] = {}, qk[2][4] = {};

    block_scores<D> (keys, queries, has_queries, i, j, kk, qk);
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        int row = 16 * i + g + 8 * half, column = 16 * j + 8 * n + 2 * t;
        float p[2], z[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float decay = exp2_fast (logs[row] - logs[column + e]);
          z[e] = row > column + e ? kk[n][2 * half + e] * decay : 0;
          p[e] = row >= column + e ? qk[n][2 * half + e] * decay : 0;
        }
        *(float2 *) (n_rows + row * ROW + column) = make_float2 (z[0], z[1]);
        if (has_queries)
          *(uint32_t *) (scores + row * CHUNK + column) = bf16_pair (p[0], p[1]);
      }
  }
}

/* By a warp: sums of the logarithms, in powers of 2, and what follows from them. */
static __device__ inline void
fill_weights (const Delta &a, const DeltaHead &head, int64_t first, float *logs, float *beta, float *weights)
{
  int lane = threadIdx.x;
  float g[2], b[2], sum, all;

#pragma unroll
  for (int e = 0; e < 2; e++) {
    int64_t token = first + 2 * lane + e, at = token * a.batch * a.heads + head.scalar;
    bool is_there = token < a.m;
    g[e] = is_there && a.gates != nullptr ? a.gates[at] * LOG2_E : 0;
    b[e] = !is_there ? 0 : a.beta.data != nullptr ? load1 (a.beta, at) : 1;
  }
  sum = g[0] + g[1];
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    float before = __shfl_up_sync (0xffffffffu, sum, offset);
    sum += lane >= offset ? before : 0;
  }
  all = __shfl_sync (0xffffffffu, sum, 31);
#pragma unroll
  for (int e = 0; e < 2; e++) {
    int token = 2 * lane + e;
    float log = e == 0 ? sum - g[1] : sum;
    logs[token] = log;
    beta[token] = b[e];
    weights[DELTA_SINCE * CHUNK + token] = exp2f (log);
    weights[DELTA_LEFT * CHUNK + token] = exp2f (all - log);
    weights[DELTA_BETA * CHUNK + token] = b[e];
    weights[DELTA_LOG * CHUNK + token] = log;
  }
}

template <int D>
static constexpr size_t
chunk_bytes (void)
{
  return tile_bytes<D> () + CHUNK * ROW * 4;
}

template <int D>
static __global__ void
__launch_bounds__ (THREADS, 4) chunk_kernel (Delta a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  __shared__ __align__ (16) float logs[CHUNK], beta[CHUNK];
  uint32_t keys = (uint32_t) __cvta_generic_to_shared (dynamic), queries = keys + CHUNK * 2 * D;
  float *z_rows = (float *) dynamic, *n_rows = (float *) (dynamic + tile_bytes<D> ());
  DeltaHead head = delta_head (a, blockIdx.y);
  int64_t chunk = delta_chunk (a, head, blockIdx.x), first = (int64_t) blockIdx.x * CHUNK;
  int rows = (int) min (a.m - first, (int64_t) CHUNK);
  bool has_queries = a.q != nullptr;

  load_tile<2 * D, THREADS> (keys, a.keys + head.key + first * head.key_stride, head.key_stride, rows, (int) a.d);
  if (has_queries)
    load_tile<2 * D, THREADS> (queries, a.q + head.key + first * head.key_stride, head.key_stride, rows, (int) a.d);
  copy_commit ();
  if (threadIdx.x < 32)
    fill_weights (a, head, first, logs, beta, a.weights + chunk * DELTA_WEIGHTS * CHUNK);
  copy_wait<0> ();
  __syncthreads ();
  fill_blocks<D> (keys, queries, has_queries, logs, n_rows, a.scores + chunk * CHUNK * CHUNK);
  __syncthreads (); /* keys and queries have been read */
  solve_diagonal (n_rows, beta, z_rows);
  __syncthreads ();
  solve_below (n_rows, beta, z_rows);
  __syncthreads ();
  store_inverse<THREADS> (z_rows, a.inverse + chunk * CHUNK * CHUNK,
                          has_queries ? a.scores + chunk * CHUNK * CHUNK : nullptr);
}

cudaError_t
delta_chunks (const Delta &a, cudaStream_t stream)
{
  dim3 grid ((unsigned) a.chunks, (unsigned) (a.batch * a.heads));

  if (a.d <= 64)
    return launch (chunk_kernel<64>, grid, THREADS, chunk_bytes<64> (), stream, a);
  return launch (chunk_kernel<128>, grid, THREADS, chunk_bytes<128> (), stream, a);
}
