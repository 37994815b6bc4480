/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A chunk's matrix Z of the delta rule, of N and beta: by substitution of blocks of 16 by 16, in fp32 but for products of
 * blocks, which are of tf32. By the block's first four warps. */

#include "kernels/device-delta.cuh"

#define ROW 68 /* floats of a row of N or Z: 16 bytes a quarter of the banks apart */

/* Z's blocks on the diagonal: a warp each, a lane a column. */
static __device__ inline void
solve_diagonal (const float *n_rows, const float *beta, float *z_rows)
{
  int first = threadIdx.x / 32 * 16, column = threadIdx.x % 16;
  float weighed[16];

#pragma unroll
  for (int t = 0; t < 16; t++) {
    const float *row = n_rows + (first + t) * ROW + first;
    float sum = row[column], even = 0;
#pragma unroll
    for (int j = 0; j < t; j += 4) {
      float4 x = *(const float4 *) (row + j); /* on and above the diagonal 0 */
      sum += x.x * weighed[j];
      even += j + 1 < t ? x.y * weighed[j + 1] : 0;
      sum += j + 2 < t ? x.z * weighed[j + 2] : 0;
      even += j + 3 < t ? x.w * weighed[j + 3] : 0;
    }
    sum += even;
    weighed[t] = -sum * beta[first + t];
    if (threadIdx.x % 32 < 16)
      z_rows[(first + t) * ROW + first + column] = -sum;
  }
}

/* To 11 bits, of which bf16 keeps 8. */
static __device__ inline uint32_t
tf32_of (float x)
{
  uint32_t y;

  asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(y) : "f"(x));
  return y;
}

static __device__ inline void
mma_tf32 (float c[4], const uint32_t a[4], const uint32_t b[2])
{
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};\n"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* sums += a diag (beta) b of blocks of 16 by 16 that begin there. */
static __device__ inline void
add_product (float sums[2][4], const float *a_block, const float *beta, const float *b_block)
{
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
  for (int k = 0; k < 16; k += 8) {
    float low = beta[k + t], high = beta[k + t + 4];
    uint32_t a[4], b[2];
#pragma unroll
    for (int e = 0; e < 4; e++)
      a[e] = tf32_of (a_block[(g + e % 2 * 8) * ROW + k + t + e / 2 * 4] * (e < 2 ? low : high));
#pragma unroll
    for (int n = 0; n < 2; n++) {
      b[0] = tf32_of (b_block[(k + t) * ROW + 8 * n + g]);
      b[1] = tf32_of (b_block[(k + t + 4) * ROW + 8 * n + g]);
      mma_tf32 (sums[n], a, b);
    }
  }
}

static __device__ inline void
store_block (float *block, const float sums[2][4], float factor)
{
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      *(float2 *) (block + (g + 8 * half) * ROW + 8 * n + 2 * t) =
          make_float2 (factor * sums[n][2 * half], factor * sums[n][2 * half + 1]);
}

/* Z's blocks below the diagonal, of a column of blocks for each warp, from the top: with
 * Y = N_ab + sum of N_ax beta Z_xb,  Z_ab = -(Y + Z_aa beta Y). */
static __device__ inline void
solve_below (const float *n_rows, const float *beta, float *z_rows)
{
  int b = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

  for (int a = b + 1; a < 4; a++) {
    const float *n_row = n_rows + 16 * a * ROW;
    float *z_block = z_rows + 16 * a * ROW + 16 * b;
    float sums[2][4];
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        sums[n][e] = n_row[(g + e / 2 * 8) * ROW + 16 * b + 8 * n + 2 * t + e % 2];
    for (int x = b; x < a; x++)
      add_product (sums, n_row + 16 * x, beta + 16 * x, z_rows + 16 * x * ROW + 16 * b);
    store_block (z_block, sums, 1);
    __syncwarp ();
    add_product (sums, z_rows + 16 * a * ROW + 16 * a, beta + 16 * a, z_block);
    __syncwarp ();
    store_block (z_block, sums, -1);
    __syncwarp ();
  }
}

/* With zeros in blocks above the diagonal, of P too. */
template <int THREADS>
static __device__ inline void
store_inverse (const float *z_rows, uint16_t *to, uint16_t *scores)
{
  for (int i = threadIdx.x; i < CHUNK * CHUNK / 8; i += THREADS) {
    int row = i / 8, column = i % 8 * 8;
    const float4 *z = (const float4 *) (z_rows + row * ROW + column);
    bool is_below = column / 16 <= row / 16;
    *(uint4 *) (to + i * 8) = is_below ? make_uint4 (bf16_pair (z[0].x, z[0].y), bf16_pair (z[0].z, z[0].w),
                                                     bf16_pair (z[1].x, z[1].y), bf16_pair (z[1].z, z[1].w))
                                       : make_uint4 (0, 0, 0, 0);
    if (scores != nullptr && !is_below)
      *(uint4 *) (scores + i * 8) = make_uint4 (0, 0, 0, 0);
  }
}

/* Z takes the place of keys and queries. */
template <int D>
static __host__ __device__ constexpr size_t
tile_bytes (void)
{
  return 2 * CHUNK * 2 * D > CHUNK * ROW * 4 ? 2 * CHUNK * 2 * D : CHUNK * ROW * 4;
}
