/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the neighbours' states add to the gradients of linear attention with a decay:
 *     dq_i += lambda^(i+1) M dO_i,  dk_i += lambda^(m-1-i) E v_i,  dv_i += lambda^(m-1-i) E^T k_i
 * with M the state before the tokens and E the gradient that comes from after them. Each is out[C] += weight x[D] S[D,C],
 * and one launch makes all three. A block has S in shared memory, in bf16, and goes through some hundreds of tokens; what
 * it adds to is on its way from memory during the product.
 */
#include "kernels/device-linear-bwd-tiles.cuh"

#define WARPS 8
#define THREADS (32 * WARPS)
#define ROWS (16 * WARPS) /* tokens at a time: 16 a warp */
#define MOST_STEPS 8      /* of a block */
#define WIDTH 64          /* columns at a time */

enum { DQ, DKEYS, DVALUES, GRADIENTS };

struct Inter {
  int64_t m, vectors, heads;
  int dk, dv, steps;
  int first, roles; /* the gradients that a launch adds to */
  const float *slopes, *states[2];
  const uint16_t *x[GRADIENTS];
  SpDevTensor out[GRADIENTS];
};

/* What a block works on. */
struct Place {
  int gradient, d, c, column;
  int64_t vector, first;
  float slope2;
  SpDevTensor out;
  bool is_wide; /* bf16, aligned to 16 bytes */
};

template <int D, int C>
static __device__ inline Place
place_of (const Inter &a)
{
  Place p;

  p.gradient = a.first + (int) blockIdx.z % a.roles;
  p.d = p.gradient == DVALUES ? a.dk : a.dv;
  p.c = p.gradient == DVALUES ? a.dv : a.dk;
  p.column = (int) blockIdx.z / a.roles * C;
  p.vector = blockIdx.y;
  p.first = (int64_t) blockIdx.x * a.steps * ROWS;
  p.slope2 = a.slopes[p.vector % a.heads] * LOG2_E;
  p.out = p.gradient == DQ ? a.out[DQ] : p.gradient == DKEYS ? a.out[DKEYS] : a.out[DVALUES];
  p.is_wide = p.out.dtype == SP_DEV_BF16 && (uint64_t) p.out.data % 16 == 0;
  return p;
}

/* The state turned: a row for each of the C columns. */
template <int D, int C>
static __device__ inline void
load_state (const Inter &a, const Place &p, uint32_t tile)
{
  const float *state = (p.gradient == DQ ? a.states[0] : a.states[1]) + p.vector * a.dk * a.dv;
  bool is_turned = p.gradient != DVALUES; /* as it lies */

  for (int i = threadIdx.x; i < C * D; i += THREADS) {
    /* Neighbours in memory to neighbouring threads, either way. */
    int row = is_turned ? i / D : i % C, index = is_turned ? i % D : i / C, column = p.column + row;
    float s = column >= p.c || index >= p.d ? 0 : state[is_turned ? column * a.dv + index : index * a.dv + column];

    asm volatile("st.shared.b16 [%0], %1;\n" ::"r"(tile + piece_at<2 * D> (row, index / 8) + index % 8 * 2),
                 "h"((uint16_t) bf16_pair (s, 0))
                 : "memory");
  }
}

/* Four lanes' words of four columns of 8, two elements each, become one column of 8 a lane; and back. */
static __device__ inline void
turn_words (uint32_t (&w)[4])
{
  int t = threadIdx.x % 4;

#pragma unroll
  for (int n = 0; n < 4; n += 2) {
    uint32_t got = __shfl_xor_sync (0xffffffffu, t & 1 ? w[n] : w[n + 1], 1);
    w[n] = t & 1 ? got : w[n];
    w[n + 1] = t & 1 ? w[n + 1] : got;
  }
#pragma unroll
  for (int n = 0; n < 2; n++) {
    uint32_t got = __shfl_xor_sync (0xffffffffu, t & 2 ? w[n] : w[n + 2], 2);
    w[n] = t & 2 ? got : w[n];
    w[n + 2] = t & 2 ? w[n + 2] : got;
  }
}

static __device__ inline void
load_old (const Place &p, const Inter &a, int64_t token, int column_0, uint4 (&old)[2][WIDTH / 32])
{
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < WIDTH / 32; j++) {
      int64_t row = token + 8 * i;
      int column = column_0 + 8 * (4 * j + (int) threadIdx.x % 4);

      if (p.is_wide && row < a.m && column < p.c)
        old[i][j] = *(const uint4 *) ((const uint16_t *) p.out.data + (row * a.vectors + p.vector) * p.c + column);
    }
}

/* out += weight * o of a warp's 16 rows, of which `old` has two of each lane's, where that is wide. */
static __device__ inline void
add_rows (const Inter &a, const Place &p, int64_t token, int column_0, const float (&o)[WIDTH / 8][4],
          const uint4 (&old)[2][WIDTH / 32])
{
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int64_t row = token + 8 * i, at = (row * a.vectors + p.vector) * p.c + column_0;
    int64_t distance = p.gradient == DQ ? row + 1 : a.m - 1 - row;
    float weight = exp2f (-p.slope2 * (float) distance);

    if (p.is_wide) {
#pragma unroll
      for (int j = 0; j < WIDTH / 8; j += 4) {
        uint32_t w[4] = { old[i][j / 4].x, old[i][j / 4].y, old[i][j / 4].z, old[i][j / 4].w };
        int column = 8 * (j + (int) threadIdx.x % 4);

        turn_words (w);
#pragma unroll
        for (int n = 0; n < 4; n++)
          w[n] = bf16_pair (bf16_at (w[n], 0) + weight * o[j + n][2 * i],
                            bf16_at (w[n], 1) + weight * o[j + n][2 * i + 1]);
        turn_words (w);
        if (row < a.m && column_0 + column < p.c)
          *(uint4 *) ((uint16_t *) p.out.data + at + column) = make_uint4 (w[0], w[1], w[2], w[3]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < WIDTH / 8; j++) {
        int column = 8 * j + (int) threadIdx.x % 4 * 2;
        float low, high;

        if (row >= a.m || column_0 + column >= p.c)
          continue;
        load_pair (p.out, at + column, &low, &high);
        store_pair (p.out, at + column, low + weight * o[j][2 * i], high + weight * o[j][2 * i + 1]);
      }
    }
  }
}

template <int D, int C>
static constexpr size_t
inter_bytes (void)
{
  return (2 * ROWS + C) * D * sizeof (uint16_t);
}

template <int D, int C>
static __global__ void
__launch_bounds__ (THREADS, D <= 128 ? 2 : 1) inter_kernel (Inter a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  uint32_t tiles = (uint32_t) __cvta_generic_to_shared (dynamic), state = tiles + 2 * ROWS * D * 2;
  Place p = place_of<D, C> (a);
  const uint16_t *x = p.gradient == DQ ? a.x[DQ] : p.gradient == DKEYS ? a.x[DKEYS] : a.x[DVALUES];
  int first_row = (int) threadIdx.x / 32 * 16, row = first_row + (int) threadIdx.x % 32 / 4;
  int steps = (int) min ((int64_t) a.steps, (a.m - p.first + ROWS - 1) / ROWS);
  auto load = [&] (int step) {
    int64_t token = p.first + step * ROWS;

    if (step < steps)
      load_tile<2 * D, ROWS, THREADS> (tiles + step % 2 * ROWS * D * 2, x + (token * a.vectors + p.vector) * p.d,
                                       a.vectors * p.d, (int) min (a.m - token, (int64_t) ROWS), p.d);
    copy_commit ();
  };

  if (p.column >= p.c)
    return;
  load (0);
  load_state<D, C> (a, p, state);
  for (int step = 0; step < steps; step++) {
    uint32_t tile = tiles + step % 2 * ROWS * D * 2;
    int64_t token = p.first + step * ROWS + row;
    uint4 old[2][WIDTH / 32] = {};

    load_old (p, a, token, p.column, old);
    copy_wait<0> ();
    __syncthreads ();
    load (step + 1);
#pragma unroll 1
    for (int part = 0; part < C; part += WIDTH) {
      float o[WIDTH / 8][4] = {};

      if (part > 0)
        load_old (p, a, token, p.column + part, old);
#pragma unroll
      for (int k = 0; k < D; k += 16) {
        uint32_t f[4], b[4];

        rows_a<2 * D> (f, tile, first_row, k);
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j += 2) {
          rows_b<2 * D> (b, state, part + 8 * j, k);
          mma (o[j], f, b[0], b[1]);
          mma (o[j + 1], f, b[2], b[3]);
        }
      }
      add_rows (a, p, token, p.column + part, o, old);
    }
  }
}

/* To those of `roles` gradients from `first` on, whose x have `size` features. */
static cudaError_t
add (Inter a, int first, int roles, int size, cudaStream_t stream)
{
  int columns = tile_size (size) == 128 ? 128 : 64, widest = first + roles > DVALUES && a.dv > a.dk ? a.dv : a.dk;
  int64_t steps = a.m * a.vectors * roles / (ROWS * 512);

  if (first == DVALUES)
    widest = a.dv;
  a.first = first;
  a.roles = roles;
  a.steps = (int) (steps < 1 ? 1 : steps > MOST_STEPS ? MOST_STEPS : steps);
  dim3 grid ((unsigned) div_up (a.m, a.steps * ROWS), (unsigned) a.vectors,
             (unsigned) (div_up (widest, columns) * roles));
  return tile_size (size) == 64    ? launch (inter_kernel<64, 64>, grid, THREADS, inter_bytes<64, 64> (), stream, a)
         : tile_size (size) == 128 ? launch (inter_kernel<128, 128>, grid, THREADS, inter_bytes<128, 128> (), stream, a)
                                   : launch (inter_kernel<256, 64>, grid, THREADS, inter_bytes<256, 64> (), stream, a);
}

cudaError_t
sp_dev_linear_inter_bwd (SpDevShape s, const float *slopes, SpDevTensor keys, SpDevTensor values, SpDevTensor d_o,
                         const float *state_in, const float *dstate_out, SpDevTensor dq, SpDevTensor dkeys,
                         SpDevTensor dvalues, cudaStream_t stream)
{
  int first = state_in != nullptr ? DQ : DKEYS, count = (dstate_out != nullptr ? GRADIENTS : DKEYS) - first;
  Inter a = { s.m,
              s.batch * s.heads,
              s.heads,
              (int) s.k,
              (int) s.n,
              0,
              0,
              0,
              slopes,
              { state_in, dstate_out },
              { (const uint16_t *) d_o.data, (const uint16_t *) values.data, (const uint16_t *) keys.data },
              { dq, dkeys, dvalues } };
  cudaError_t error;

  if (!linear_is_legal (s, { keys, values, d_o }, { dq, dkeys, dvalues }))
    return cudaErrorInvalidValue;
  if (s.m == 0 || s.batch * s.heads * s.k * s.n == 0 || count == 0)
    return cudaSuccess;
  if (tile_size (s.k) == tile_size (s.n) || first + count == DKEYS)
    return add (a, first, count, a.dv, stream);
  error = add (a, first, DVALUES - first, a.dv, stream);
  return error != cudaSuccess ? error : add (a, DVALUES, 1, a.dk, stream);
}
