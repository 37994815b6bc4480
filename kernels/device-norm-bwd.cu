/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The norms' backward with sums over rows. As many blocks as there are rows of sums go through the rows in order, each its
 * own. A thread has the same columns of each row, so that its sums stay in registers; the rows that come next are on their
 * way to shared memory, each thread's pieces to a place of its own, so that no thread waits for another's. Sums over rows
 * are of two passes: each block sums its rows, then the blocks' are summed in their order.
 */
#include "kernels/device-norm-bwd.cuh"
#include "kernels/device-parts.cuh"

/* A block's first row: some have one more than others. */
static __device__ inline int64_t
first_row (int64_t m, int64_t block)
{
  return block * (m / gridDim.x) + min (block, m % gridDim.x);
}

/* --- rows on their way to shared memory --------------------------------------------------------------------------- */

#define BWD_THREADS 512
#define BWD_ROW_BYTES (96 * 1024)   /* of dy, x and dr: more are not held */
#define BWD_AHEAD_BYTES (48 * 1024) /* of as many rows as go in there, but of two if these are no more than the above */
#define BWD_MOST_AHEAD 4
#define LEAST_TWO 2048 /* features of a row of which a thread has two pieces: what it does once a row weighs less */
#define KEPT_PIECES 2  /* of which the first pass's terms stay in registers for the second */

static __device__ inline void
copy_16 (uint32_t to, const void *from)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* One operand's rows on their way: of each a thread's R pieces, of one or two halves, to a place of its own. */
template <int R, bool HALF> struct Rows {
  SpDevTensor t;
  int at; /* of a row's slot, in units for all threads */

  __device__ int shift () const
  {
    return !HALF && t.dtype == SP_DEV_FP32 ? 2 : 1;
  }
  /* What the next operand's units begin with. */
  __device__ int end () const
  {
    return t.data == nullptr ? at : at + R * shift ();
  }
  /* From element i on. */
  __device__ void copy (uint32_t slot, int r, int64_t i) const
  {
    uint32_t to = slot + (at + r * shift ()) * blockDim.x * (uint32_t) sizeof (uint4);
    const char *from = (const char *) t.data + (i << shift ());

    copy_16 (to, from);
    if (shift () == 2)
      copy_16 (to + blockDim.x * (uint32_t) sizeof (uint4), from + 16);
  }
  __device__ Vec<8> get (const uint4 *slot, int r) const
  {
    const uint4 *from = slot + (at + r * shift ()) * blockDim.x;
    Raw<8> raw;

    raw.a = *from;
    raw.b = shift () == 2 ? from[blockDim.x] : uint4{};
    return floats_of<8, HALF> (t, raw);
  }
};

#define BWD_WARPS (BWD_THREADS / 32)

/* The sum of all threads, of at most 16 warps; `parts` is another at each second call, so that one barrier does. */
static __device__ inline float
row_block_sum (float x, float *parts)
{
  int warps = blockDim.x / 32, lane = threadIdx.x % 32;

  x = warp_sum (x);
  if (lane == 0)
    parts[threadIdx.x / 32] = x;
  __syncthreads ();
  x = lane % BWD_WARPS < warps ? parts[lane % BWD_WARPS] : 0;
#pragma unroll
  for (int offset = BWD_WARPS / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync (0xffffffffu, x, offset);
  return x;
}

/* Two of them: the lower half of a warp has the one, the upper half the other. */
static __device__ inline void
two_row_block_sums (float *x, float *y, float *parts)
{
  int warps = blockDim.x / 32, lane = threadIdx.x % 32, other = lane / 16;
  float mine = other ? *y : *x;

  mine += __shfl_xor_sync (0xffffffffu, other ? *x : *y, 16);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2)
    mine += __shfl_xor_sync (0xffffffffu, mine, offset);
  if (lane % 16 == 0)
    parts[other * BWD_WARPS + threadIdx.x / 32] = mine;
  __syncthreads ();
  mine = lane % 16 < warps ? parts[lane] : 0;
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2)
    mine += __shfl_xor_sync (0xffffffffu, mine, offset);
  *x = __shfl_sync (0xffffffffu, mine, 0);
  *y = __shfl_sync (0xffffffffu, mine, 16);
}

/* cp.async.wait_group takes a constant. */
static __device__ inline void
wait_row (int ahead)
{
  switch (ahead) {
  case 1:
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    break;
  case 2:
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    break;
  case 3:
    asm volatile("cp.async.wait_group 2;" ::: "memory");
    break;
  default:
    asm volatile("cp.async.wait_group 3;" ::: "memory");
  }
}

/* What stands in a row's gradient for a piece: the gradient times the gain, and the normed element. */
struct Terms {
  Vec<8> w, z;
};

/* A thread's part of a block's rows. CENTERED: of a LayerNorm, or with the sum that is dbias; else what these need is
 * left out. */
template <int R, bool HALF, bool CENTERED> struct Held {
  const NormBwd &a;
  int n, slot_units; /* slot_units: of a row */
  uint4 *slots;      /* [ahead,units,threads], this thread's place */
  int64_t next;      /* the first element of the row that is asked for next */
  Rows<R, HALF> dy, x, dr;
  Raw<8> gain[R];
  Vec<8> dgain[R], dbias[R];
  Terms kept[R];
  float mean, scale; /* of the row */

  __device__ Held (const NormBwd &bwd, int64_t row, uint4 *shared)
      : a (bwd), n ((int) bwd.n), slots (shared + threadIdx.x),
        next (row * bwd.n), dy{ bwd.dy, 0 }, x{ bwd.x, dy.end () }, dr{ bwd.dr, x.end () }, gain{}, dgain{}, dbias{}
  {
    slot_units = dr.end () * blockDim.x;
#pragma unroll
    for (int r = 0; r < R; r++)
      if (R <= KEPT_PIECES && a.gain.data != nullptr && has (r))
        gain[r] = fetch<8, HALF> (a.gain, first (r));
  }

  /* The first element of a piece, and whether it is one. */
  __device__ int first (int r) const
  {
    return (r * blockDim.x + threadIdx.x) * 8;
  }
  __device__ bool has (int r) const
  {
    return first (r) < n;
  }

  /* Asks for the next row, if it is one. */
  __device__ void issue (int slot, bool is_row)
  {
    uint32_t to = (uint32_t) __cvta_generic_to_shared (slots + slot * slot_units);

#pragma unroll
    for (int r = 0; r < R; r++)
      if (is_row && has (r)) {
        dy.copy (to, r, next + first (r));
        x.copy (to, r, next + first (r));
        if (dr.t.data != nullptr)
          dr.copy (to, r, next + first (r));
      }
    asm volatile("cp.async.commit_group;" ::: "memory");
    next += n;
  }

  __device__ Terms terms (const uint4 *slot, int r, Vec<8> *ret_d) const
  {
    Vec<8> d = dy.get (slot, r), in = x.get (slot, r);
    Vec<8> g = R <= KEPT_PIECES ? floats_of<8, HALF> (a.gain, gain[r]) : load_or<8, HALF> (a.gain, first (r), 1);
    float shift = -mean * scale;
    Terms t;

#pragma unroll
    for (int l = 0; l < 8; l++) {
      t.w.x[l] = a.gain.data != nullptr ? g.x[l] * d.x[l] : d.x[l];
      t.z.x[l] = CENTERED ? in.x[l] * scale + shift : in.x[l] * scale;
    }
    *ret_d = d;
    return t;
  }

  /* Adds the row to the sums, and returns its own: of w, and of w z. */
  __device__ void add_row (int slot, float *ret_shift, float *ret_gz)
  {
    float shift = 0, gz = 0;

#pragma unroll
    for (int r = 0; r < R; r++) {
      Vec<8> d;
      if (!has (r))
        continue;
      Terms t = terms (slots + slot * slot_units, r, &d);
      if (R <= KEPT_PIECES)
        kept[r] = t;
#pragma unroll
      for (int l = 0; l < 8; l++) {
        gz += t.w.x[l] * t.z.x[l];
        dgain[r].x[l] += d.x[l] * t.z.x[l];
        if constexpr (CENTERED) {
          shift += t.w.x[l];
          dbias[r].x[l] += d.x[l];
        }
      }
    }
    *ret_shift = shift;
    *ret_gz = gz;
  }

  /* Given the means of both. */
  __device__ void store_row (int slot, int64_t row, float shift, float gz) const
  {
#pragma unroll
    for (int r = 0; r < R; r++) {
      Vec<8> d, past = {};
      if (!has (r))
        continue;
      Terms t = R <= KEPT_PIECES ? kept[r] : terms (slots + slot * slot_units, r, &d);
      if (dr.t.data != nullptr)
        past = dr.get (slots + slot * slot_units, r);
#pragma unroll
      for (int l = 0; l < 8; l++)
        past.x[l] += scale * ((CENTERED ? t.w.x[l] - shift : t.w.x[l]) - t.z.x[l] * gz);
      store<8, HALF> (a.dx, row * n + first (r), past);
    }
  }

  /* The block's sums, to its part. */
  __device__ void store_sums (int sum, const Vec<8> (&sums)[R]) const
  {
    SpDevTensor part = { a.parts + (blockIdx.x * (a.sums_gain + a.sums_bias) + sum) * a.n, SP_DEV_FP32 };

#pragma unroll
    for (int r = 0; r < R; r++)
      if (has (r))
        store<8> (part, first (r), sums[r]);
  }
};

template <int R, bool HALF, bool CENTERED>
static __global__ void
__launch_bounds__ (BWD_THREADS, R == 1 && (HALF || !CENTERED) ? 2 : 1) norm_bwd_held_kernel (NormBwd a, int ahead)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  __shared__ float parts[2][2 * BWD_WARPS];
  int64_t first = first_row (a.m, blockIdx.x), end = first_row (a.m, blockIdx.x + 1);
  bool layernorm = CENTERED && a.layernorm;
  const float *means = a.stat, *scales = a.stat + (layernorm ? a.m : 0);
  float of_row = 1 / (float) a.n, of_whole = 1 / a.whole;
  int slot = 0, turn = 0;

  take_turn ();
  Held<R, HALF, CENTERED> held (a, first, (uint4 *) dynamic);
  float next_mean = layernorm && first < end ? means[first] : 0, next_scale = first < end ? scales[first] : 0;
  for (int i = 0; i < ahead; i++)
    held.issue (i, first + i < end);
  for (int64_t row = first; row < end; row++) {
    float shift, gz;

    held.mean = next_mean;
    held.scale = next_scale;
    if (row + 1 < end) {
      next_scale = scales[row + 1];
      next_mean = layernorm ? means[row + 1] : 0;
    }
    wait_row (ahead);
    held.add_row (slot, &shift, &gz);
    if (a.dot)
      gz = a.dot[row] * held.scale;
    else if (CENTERED)
      two_row_block_sums (&shift, &gz, parts[turn]);
    else
      gz = row_block_sum (gz, parts[turn]);
    held.store_row (slot, row, layernorm ? shift * of_row : 0, gz * of_whole);
    held.issue (slot, row + ahead < end);
    slot = slot + 1 < ahead ? slot + 1 : 0;
    turn ^= 1;
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  if (a.sums_gain)
    held.store_sums (0, held.dgain);
  if (CENTERED && a.sums_bias)
    held.store_sums (a.sums_gain, held.dbias);
}

/* Of a row, with R pieces a thread, in shared memory. */
static size_t
held_row_bytes (const NormBwd &a, int pieces, int threads)
{
  size_t halves = 0;

  for (SpDevTensor t : { a.dy, a.x, a.dr })
    halves += !is_present (t) ? 0 : t.dtype == SP_DEV_FP32 ? 2 : 1;
  return halves * (size_t) (pieces * threads) * sizeof (uint4);
}

template <int R>
static cudaError_t
launch_held (const NormBwd &a, int64_t blocks, int threads, size_t row_bytes, cudaStream_t stream)
{
  bool is_half = are_half ({ a.dy, a.x, a.gain, a.dr, a.dx });
  bool centered = a.layernorm || a.sums_bias;
  auto kernel = is_half ? (centered ? norm_bwd_held_kernel<R, true, true> : norm_bwd_held_kernel<R, true, false>)
                        : (centered ? norm_bwd_held_kernel<R, false, true> : norm_bwd_held_kernel<R, false, false>);
  size_t ahead = BWD_AHEAD_BYTES / row_bytes;

  ahead = ahead < 2 && 2 * row_bytes <= BWD_ROW_BYTES ? 2 : ahead < 1 ? 1 : ahead;
  ahead = ahead > BWD_MOST_AHEAD ? BWD_MOST_AHEAD : ahead;
  return launch_early (kernel, dim3 ((unsigned) blocks), threads, ahead * row_bytes, stream, a, (int) ahead);
}

/* --- other rows --------------------------------------------------------------------------------------------------- */

/* Sums of a block's rows are kept in shared memory, if they are not more than this; else in the scratch. */
#define MOST_SUM_BYTES (96 * 1024)

/* The means over a row that its gradient needs: of g, and of g z. */
template <int V>
static __device__ inline void
norm_bwd_means (const NormBwd &a, int64_t at, float mean, float r, float *shared, float *ret_shift, float *ret_gz)
{
  float shift = 0, gz = 0;

  for (int64_t j = (int64_t) threadIdx.x * V; j < a.n; j += (int64_t) blockDim.x * V) {
    Vec<V> d = load<V> (a.dy, at + j), x = load<V> (a.x, at + j), g = load_or<V> (a.gain, j, 1);
#pragma unroll
    for (int l = 0; l < V; l++) {
      shift += g.x[l] * d.x[l];
      gz += g.x[l] * d.x[l] * (x.x[l] - mean) * r;
    }
  }
  *ret_shift = a.layernorm ? block_sum (shift, shared) / a.n : 0;
  *ret_gz = block_sum (gz, shared) / a.whole;
}

template <int V>
static __global__ void
norm_bwd_kernel (NormBwd a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  __shared__ float shared[32];
  int n_sums = a.sums_gain + a.sums_bias;
  float *part = a.parts + blockIdx.x * n_sums * a.n, *sums = a.is_shared ? (float *) dynamic : part;
  float *dgain = sums, *dbias = sums + (a.sums_gain ? a.n : 0);
  int64_t first = first_row (a.m, blockIdx.x), end = first_row (a.m, blockIdx.x + 1);

  release_next ();
  /* A thread has the same columns in each row, so that no other sees its sums. */
  for (int64_t j = (int64_t) threadIdx.x * V; j < a.n; j += (int64_t) blockDim.x * V)
    for (int l = 0; l < V; l++) {
      if (a.sums_gain)
        dgain[j + l] = 0;
      if (a.sums_bias)
        dbias[j + l] = 0;
    }

  for (int64_t row = first; row < end; row++) {
    int64_t at = row * a.n;
    float mean = a.layernorm ? a.stat[row] : 0, r = a.stat[a.layernorm ? a.m + row : row], shift = 0, gz;

    if (a.dot)
      gz = a.dot[row] * r / a.whole;
    else
      norm_bwd_means<V> (a, at, mean, r, shared, &shift, &gz);
    for (int64_t j = (int64_t) threadIdx.x * V; j < a.n; j += (int64_t) blockDim.x * V) {
      Vec<V> d = load<V> (a.dy, at + j), x = load<V> (a.x, at + j), g = load_or<V> (a.gain, j, 1);
      Vec<V> past = load_or<V> (a.dr, at + j, 0);
#pragma unroll
      for (int l = 0; l < V; l++) {
        float z = (x.x[l] - mean) * r;
        past.x[l] += r * (g.x[l] * d.x[l] - shift - z * gz);
        if (a.sums_gain)
          dgain[j + l] += d.x[l] * z;
        if (a.sums_bias)
          dbias[j + l] += d.x[l];
      }
      store<V> (a.dx, at + j, past);
    }
  }

  for (int64_t j = (int64_t) threadIdx.x * V; a.is_shared && j < a.n; j += (int64_t) blockDim.x * V)
    for (int64_t i = j; i < n_sums * a.n; i += a.n)
      for (int l = 0; l < V; l++)
        part[i + l] = sums[i + l];
}

/* As many as an H100 has at once, or a few less, so that powers of two of rows go round evenly. */
static int64_t
bwd_blocks (int64_t m, int64_t n)
{
  int64_t most = n <= 1024 ? 1024 : n <= 2048 ? 512 : n <= 4096 ? 256 : 128;

  return m < most ? m : most;
}

size_t
sp_dev_norm_bwd_scratch_bytes (int64_t m, int64_t n)
{
  return (size_t) (bwd_blocks (m, n) * 2 * n) * sizeof (float);
}

static cudaError_t
start_bwd (const NormBwd &a, int64_t blocks, int width, size_t sum_bytes, cudaStream_t stream)
{
  int64_t pieces = div_up (a.n, 8 * BWD_THREADS);
  int held = pieces > 2                       ? 4
             : pieces > 1 || a.n >= LEAST_TWO ? 2
                                              : 1,
      threads = row_threads (a.n, 8 * held, BWD_THREADS);
  size_t row_bytes = held_row_bytes (a, held, threads);

  if (width < 8 || pieces > held || row_bytes > BWD_ROW_BYTES)
    return launch (width == 8 ? norm_bwd_kernel<8> : norm_bwd_kernel<1>, dim3 ((unsigned) blocks),
                   row_threads (a.n, width, 512), sum_bytes, stream, a);
  if (held == 4)
    return launch_held<4> (a, blocks, threads, row_bytes, stream);
  return held == 2 ? launch_held<2> (a, blocks, threads, row_bytes, stream)
                   : launch_held<1> (a, blocks, threads, row_bytes, stream);
}

cudaError_t
sp_dev_norm_bwd (bool layernorm, int64_t m, int64_t n, int64_t whole, SpDevTensor dy, SpDevTensor x, const float *stat,
                 SpDevTensor gain, SpDevTensor dr, const float *dot, SpDevTensor dx, SpDevTensor dgain,
                 SpDevTensor dbias, void *scratch, cudaStream_t stream)
{
  int width = width_of ({ n }, { dy, x, gain, dr, dx });
  bool sums_gain = is_present (dgain), sums_bias = is_present (dbias);
  int n_sums = sums_gain + sums_bias;
  size_t sum_bytes = (size_t) (n_sums * n) * sizeof (float);
  int64_t blocks = bwd_blocks (m, n);

  if (!are_floats ({ dy, x, gain, dr, dx, dgain, dbias }) || (dot ? layernorm : whole != n))
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return cudaSuccess;

  NormBwd a = { layernorm,
                m,
                n,
                (float) whole,
                dy,
                x,
                stat,
                gain,
                dr,
                dot,
                dx,
                sums_gain,
                sums_bias,
                sum_bytes <= MOST_SUM_BYTES,
                (float *) scratch };
  bool is_held = false;
  cudaError_t error = n_sums == 0 ? norm_bwd_rows (a, width, stream, &is_held) : cudaSuccess;
  if (is_held)
    return error;
  error = start_bwd (a, blocks, width, a.is_shared ? sum_bytes : 0, stream);
  if (error == cudaSuccess && n_sums > 0) {
    AddParts sums = { a.parts, blocks, n_sums * n, { n, n }, { dgain, dbias }, { 0, n } };
    if (!sums_gain)
      sums.out[0] = dbias;
    error = add_parts (sums, n_sums, 1, stream);
  }
  return error;
}
