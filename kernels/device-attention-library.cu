/* SPDX-License-Identifier: Apache-2.0 */
/* What another library's attention wants in another form: numbers of rows head by head, and an o for a delta. */
#include "kernels/device-private.cuh"

/* --- numbers of rows ---------------------------------------------------------------------------------------------- */

#define SIDE 32 /* of a tile that is turned */
#define TURN_THREADS 256

/* x[rows,columns] -> out[columns,rows], a tile a block. */
static __global__ void
turn_kernel (int64_t rows, int64_t columns, const float *x, float *out)
{
  __shared__ float tile[SIDE][SIDE + 1];
  int64_t across = div_up (columns, SIDE), row = blockIdx.x / across * SIDE, column = blockIdx.x % across * SIDE;
  int lane = threadIdx.x % SIDE;

  for (int i = threadIdx.x / SIDE; i < SIDE; i += TURN_THREADS / SIDE)
    if (row + i < rows && column + lane < columns)
      tile[i][lane] = x[(row + i) * columns + column + lane];
  __syncthreads ();
  for (int i = threadIdx.x / SIDE; i < SIDE; i += TURN_THREADS / SIDE)
    if (column + i < columns && row + lane < rows)
      out[(column + i) * rows + row + lane] = tile[lane][i];
}

static cudaError_t
turn (int64_t rows, int64_t columns, const float *x, float *out, cudaStream_t stream)
{
  int64_t tiles = div_up (rows, SIDE) * div_up (columns, SIDE);

  if (tiles > INT32_MAX)
    return cudaErrorInvalidValue;
  return tiles == 0 ? cudaSuccess
                    : launch (turn_kernel, dim3 ((unsigned) tiles), TURN_THREADS, 0, stream, rows, columns, x, out);
}

struct Hide {
  SpDevTensor out;

  template <int V> __device__ void at (int64_t i) const
  {
    Vec<V> v;
#pragma unroll
    for (int j = 0; j < V; j++)
      v.x[j] = -INFINITY;
    store<V> (out, i, v);
  }
};

cudaError_t
sp_dev_attention_by_head (int64_t m, int64_t heads, const float *x, float *out, cudaStream_t stream)
{
  return turn (m, heads, x, out, stream);
}

cudaError_t
sp_dev_attention_by_row (int64_t m, int64_t heads, int64_t hidden, const float *x, float *out, cudaStream_t stream)
{
  if (hidden < 0 || hidden > m)
    return cudaErrorInvalidValue;
  cudaError_t error = each (Hide{ { out, SP_DEV_FP32 } }, hidden * heads, 1, stream);
  return error != cudaSuccess ? error : turn (heads, m - hidden, x, out + hidden * heads, stream);
}

/* --- an o --------------------------------------------------------------------------------------------------------- */

#define ROW_THREADS 256
#define ROWS_AT_ONCE (ROW_THREADS / 32)

/* A warp has a row. Its sum of squares is that of the row over its largest, which no float is too small for. */
template <int V>
static __global__ void
stand_in_kernel (int64_t rows, int64_t k, SpDevTensor d_o, const float *delta, SpDevTensor o)
{
  int64_t row = (int64_t) blockIdx.x * ROWS_AT_ONCE + threadIdx.x / 32;
  float most = 0, sum = 0;

  if (row >= rows)
    return;
  for (int64_t j = threadIdx.x % 32 * V; j < k; j += 32 * V) {
    Vec<V> x = load<V> (d_o, row * k + j);
#pragma unroll
    for (int l = 0; l < V; l++)
      most = fmaxf (most, fabsf (x.x[l]));
  }
  most = warp_max (most);
  for (int64_t j = threadIdx.x % 32 * V; j < k; j += 32 * V) {
    Vec<V> x = load<V> (d_o, row * k + j);
#pragma unroll
    for (int l = 0; l < V; l++)
      sum += most > 0 ? x.x[l] / most * (x.x[l] / most) : 0;
  }
  sum = warp_sum (sum);
  float share = most > 0 ? delta[row] / most / sum : 0;
  for (int64_t j = threadIdx.x % 32 * V; j < k; j += 32 * V) {
    Vec<V> x = load<V> (d_o, row * k + j);
#pragma unroll
    for (int l = 0; l < V; l++)
      x.x[l] = most > 0 ? x.x[l] / most * share : 0;
    store<V> (o, row * k + j, x);
  }
}

cudaError_t
sp_dev_attention_stand_in (int64_t rows, int64_t k, SpDevTensor d_o, const float *delta, SpDevTensor o,
                           cudaStream_t stream)
{
  int width = width_of ({ k }, { d_o, o });
  int64_t blocks = div_up (rows, ROWS_AT_ONCE);

  if (blocks > INT32_MAX || !are_floats ({ d_o, o }))
    return cudaErrorInvalidValue;
  if (rows == 0)
    return cudaSuccess;
  return launch (width == 8 ? stand_in_kernel<8> : stand_in_kernel<1>, dim3 ((unsigned) blocks), ROW_THREADS, 0, stream,
                 rows, k, d_o, delta, o);
}
