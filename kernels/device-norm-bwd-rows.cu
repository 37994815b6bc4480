/* SPDX-License-Identifier: Apache-2.0 */
/* The norms' backward without sums over rows: nothing ties rows to a block, so that each is held by its own threads. */
#include "kernels/device-norm-bwd.cuh"
#include "kernels/device-rows.cuh"

/* Blocks that an SM shall have room for, or 0: as the compiler likes. */
template <int R, bool WARP> constexpr int LEAST_BLOCKS = !WARP && R == 1 ? 4 : 0;

template <int R, bool WARP>
static __global__ void
__launch_bounds__ (WARP ? 256 : 512, LEAST_BLOCKS<R, WARP>) norm_bwd_rows_kernel (NormBwd a)
{
  __shared__ float parts[32];
  Row<R, WARP, true> row (a.n);
  Raw<8> dy[R] = {}, x[R] = {}, dr[R] = {};
  float shift = 0, gz = 0;
  constexpr bool EARLY = WARP || R < 8; /* three operands of eight pieces take more registers than there are */

  take_turn ();
  if (row.row >= a.m)
    return;
  row.fetch_all (a.dy, dy);
  row.fetch_all (a.x, x);
  if (EARLY && a.dr.data != nullptr)
    row.fetch_all (a.dr, dr);
  float mean = a.layernorm ? a.stat[row.row] : 0, scale = a.stat[a.layernorm ? a.m + row.row : row.row];
  if (a.dot == nullptr) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      Vec<8> d = floats_of<8, true> (a.dy, dy[r]), v = floats_of<8, true> (a.x, x[r]);
      Vec<8> g = row.has (r) ? load_or<8, true> (a.gain, row.first (r), 1) : Vec<8>{};
#pragma unroll
      for (int l = 0; l < 8; l++) {
        shift += g.x[l] * d.x[l];
        gz += g.x[l] * d.x[l] * ((v.x[l] - mean) * scale);
      }
    }
    shift = a.layernorm ? row.sum (shift, parts) / a.n : 0;
    gz = row.sum (gz, parts) / a.whole;
  } else
    gz = a.dot[row.row] * scale / a.whole;
#pragma unroll
  for (int r = 0; r < R; r++) {
    if (!row.has (r))
      continue;
    Vec<8> d = floats_of<8, true> (a.dy, dy[r]), v = floats_of<8, true> (a.x, x[r]);
    Vec<8> g = load_or<8, true> (a.gain, row.first (r), 1), past;
    past = EARLY ? floats_of<8, true> (a.dr, dr[r]) : load_or<8, true> (a.dr, row.at + row.first (r), 0);
#pragma unroll
    for (int l = 0; l < 8; l++)
      past.x[l] += scale * (g.x[l] * d.x[l] - shift - (v.x[l] - mean) * scale * gz);
    store<8, true> (a.dx, row.at + row.first (r), past);
  }
}

struct StartNormBwd {
  const NormBwd &a;
  cudaStream_t stream;

  /* Of a block's rows, twice as many threads with half the pieces of two operands. */
  template <int R, bool WARP> cudaError_t start (dim3 blocks, int threads) const
  {
    if constexpr (!WARP && R <= 4)
      return launch_early (norm_bwd_rows_kernel<R / 2, WARP>, blocks, 2 * threads, 0, stream, a);
    else
      return launch_early (norm_bwd_rows_kernel<R, WARP>, blocks, threads, 0, stream, a);
  }
};

cudaError_t
norm_bwd_rows (const NormBwd &a, int width, cudaStream_t stream, bool *ret_is_held)
{
  if (are_half ({ a.dy, a.x, a.gain, a.dr, a.dx }) && a.m <= INT32_MAX)
    return hold_row (a.m, a.n, width, StartNormBwd{ a, stream }, ret_is_held);
  *ret_is_held = false;
  return cudaSuccess;
}
