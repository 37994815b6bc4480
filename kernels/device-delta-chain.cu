/* SPDX-License-Identifier: Apache-2.0 */
/* The delta rule's states between segments and between ranks: X = T X + M, in fp32, of 16 columns a block. */
#include "kernels/device-delta.cuh"

#define THREADS 256
#define COLUMNS 16
#define MOST SP_DEV_DELTA_MOST_K
#define DEPTH 32 /* of T's columns, or rows if turned, at a time: a piece */
#define PIECES (MOST / DEPTH)
#define ROW (DEPTH + 4)   /* floats of a piece's row, */
#define TURNED (MOST + 4) /* and if turned */
#define PIECE (MOST * ROW > DEPTH * TURNED ? MOST * ROW : DEPTH * TURNED)

/* Starts copying T's columns from `first` on, turned its rows; what is beyond is zeros. */
template <bool TURN>
static __device__ inline void
load_piece (const DeltaChain &c, const float *from, int first, float *piece)
{
  constexpr int rows = TURN ? DEPTH : MOST, vectors = (TURN ? MOST : DEPTH) / 4, row_floats = TURN ? TURNED : ROW;
  uint32_t to = (uint32_t) __cvta_generic_to_shared (piece);

#pragma unroll
  for (int i = threadIdx.x; i < rows * vectors; i += THREADS) {
    int row = i / vectors, column = i % vectors * 4;
    int64_t at = TURN ? (first + row) * c.d + column : row * c.d + first + column;
    bool is_there = TURN ? first + row < c.d && column < c.d : row < c.d && first + column < c.d;
    copy_16 (to + (row * row_floats + column) * 4, is_there ? from + at : from, is_there);
  }
  copy_commit ();
}

/* sum += T x, of a piece: a row of T by 8 columns of x. */
template <bool TURN>
static __device__ inline void
add_piece (const float *piece, int row, const float (*x)[COLUMNS], float sum[8])
{
#pragma unroll
  for (int k = 0; k < DEPTH; k += 4) {
    float t[4];
    if (TURN)
#pragma unroll
      for (int j = 0; j < 4; j++)
        t[j] = piece[(k + j) * TURNED + row];
    else
      *(float4 *) t = *(const float4 *) (piece + row * ROW + k);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float4 *y = (const float4 *) x[k + j];
      float4 low = y[0], high = y[1];
      sum[0] += t[j] * low.x;
      sum[1] += t[j] * low.y;
      sum[2] += t[j] * low.z;
      sum[3] += t[j] * low.w;
      sum[4] += t[j] * high.x;
      sum[5] += t[j] * high.y;
      sum[6] += t[j] * high.z;
      sum[7] += t[j] * high.w;
    }
  }
}

/* A thread has a row of X and 8 columns. Pieces come one ahead, and those of the next step too. */
template <bool REVERSE>
static __global__ void
__launch_bounds__ (THREADS) chain_kernel (DeltaChain c)
{
  __shared__ __align__ (16) float x[MOST][COLUMNS];
  __shared__ __align__ (16) float pieces[2][PIECE];
  int row = threadIdx.x / 2, own = threadIdx.x % 2 * 8, column = blockIdx.x * COLUMNS + own;
  int64_t head = blockIdx.y, all = c.heads * c.d * c.c, at = (head * c.d + row) * c.c + column;
  bool is_there = row < c.d && column < c.c; /* c is a multiple of 8 */
  int count = (int) (c.last != nullptr ? c.steps : c.steps - 1) * PIECES;

  auto step_of = [&] (int64_t i) { return REVERSE ? c.steps - 1 - i : i; };
  auto start = [&] (int i) {
    if (i < count)
      load_piece<REVERSE> (c, c.transfers + step_of (i / PIECES) * c.transfer_step + head * c.d * c.d,
                           i % PIECES * DEPTH, pieces[i % 2]);
  };

  start (0);
#pragma unroll
  for (int i = 0; i < 8; i++)
    x[row][own + i] = !is_there         ? 0
                      : c.in != nullptr ? c.in[at + i]
                      : c.identity      ? (row == column + i ? 1.0f : 0.0f)
                                        : 0;
  for (int64_t i = 0; i < c.steps; i++) {
    int64_t step = step_of (i);
    float sum[8] = {}, mine[8];
#pragma unroll
    for (int j = 0; j < 8; j++) {
      mine[j] = c.own != nullptr && is_there ? c.own[step * c.own_step + at + j] : 0;
      if (c.befores != nullptr && is_there)
        c.befores[step * all + at + j] = x[row][own + j];
    }
    if (i * PIECES == count)
      return;
    for (int p = 0; p < PIECES; p++) {
      copy_wait<0> ();
      __syncthreads (); /* the piece is there, x is whole, and the piece before has been read */
      start ((int) i * PIECES + p + 1);
      add_piece<REVERSE> (pieces[p % 2], row, (const float (*)[COLUMNS]) (x[p * DEPTH] + own), sum);
    }
    __syncthreads (); /* x has been read */
#pragma unroll
    for (int j = 0; j < 8; j++)
      x[row][own + j] = sum[j] + mine[j];
  }
#pragma unroll
  for (int j = 0; j < 8; j++)
    if (is_there)
      c.last[at + j] = x[row][own + j];
}

cudaError_t
delta_chain (const DeltaChain &c, cudaStream_t stream)
{
  dim3 grid ((unsigned) div_up (c.c, COLUMNS), (unsigned) c.heads);

  return c.reverse ? launch (chain_kernel<true>, grid, THREADS, 0, stream, c)
                   : launch (chain_kernel<false>, grid, THREADS, 0, stream, c);
}

static bool
is_legal (SpDevShape s)
{
  return s.k % 8 == 0 && s.n % 8 == 0 && s.k <= MOST && s.batch * s.heads <= 65535;
}

cudaError_t
sp_dev_delta_update (SpDevShape s, bool reverse, const float *transfer, const float *in, const float *own, float *out,
                     cudaStream_t stream)
{
  DeltaChain c = {};

  if (!is_legal (s))
    return cudaErrorInvalidValue;
  c.heads = s.batch * s.heads;
  c.d = s.k;
  c.c = s.n;
  c.steps = 1;
  c.reverse = reverse;
  c.transfers = transfer;
  c.own = own;
  c.in = in;
  c.last = out;
  return c.heads * s.k * s.n > 0 ? delta_chain (c, stream) : cudaSuccess;
}

cudaError_t
sp_dev_delta_prefix (SpDevShape s, int64_t places, int64_t place, bool reverse, const float *parts, float *out,
                     cudaStream_t stream)
{
  int64_t heads = s.batch * s.heads, state = heads * s.k * s.n;
  DeltaChain c = {};

  if (!is_legal (s) || place < 0 || place >= places)
    return cudaErrorInvalidValue;
  c.heads = heads;
  c.d = s.k;
  c.c = s.n;
  c.steps = reverse ? places - 1 - place : place;
  c.reverse = reverse;
  c.own_step = c.transfer_step = state + heads * s.k * s.k;
  c.own = parts + (reverse ? place + 1 : 0) * c.own_step;
  c.transfers = c.own + state;
  c.last = out;
  return state > 0 ? delta_chain (c, stream) : cudaSuccess;
}
