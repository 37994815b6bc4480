/* SPDX-License-Identifier: Apache-2.0 */
/* Between the projections and the attention: cut QKV into heads and pieces, turn them, and put them back. */
#include "kernels/device-parts.cuh"
#include "kernels/device-rope.cuh"

/* --- rotary embedding --------------------------------------------------------------------------------------------- */

static size_t
rope_table_bytes (const Rope &a)
{
  return (size_t) (ROPE_ROWS * (a.rotated + a.heads + a.kv_heads) + 2 * a.k) * sizeof (float);
}

/* 1/rms of each head, a warp a head. */
static __device__ inline void
rope_norms (const Rope &a, const RopeTable &t, int64_t row)
{
  int64_t both = a.heads + a.kv_heads;

  for (int64_t h = threadIdx.x / 32; h < both; h += ROPE_THREADS / 32) {
    float sum = 0;

    for (int64_t j = threadIdx.x % 32; j < a.k; j += 32) {
      float x = load1 (a.qkv, row * a.width + h * a.k + j);
      sum += x * x;
    }
    float r = 1 / sqrtf (warp_sum (sum) / a.k + a.epsilon);
    if (threadIdx.x % 32 == 0)
      t.norm[h] = a.stat[row * both + h] = r;
  }
}

template <int V, bool HALF>
static __device__ inline void
rope_norm (const Rope &a, const RopeTable &t, int64_t head, int first, Vec<V> *x)
{
  Vec<V> g = load<V, HALF> (rope_gain (a, head), first);

#pragma unroll
  for (int l = 0; l < V; l++)
    x->x[l] *= t.norm[head] * g.x[l];
}

template <int V, bool HALF, bool NORMED>
static __device__ inline void
rope_store (const Rope &a, const RopeTable &t, const RopeItem &item, const Raw<V> &raw_x, const Raw<V> &raw_y)
{
  Vec<V> x = floats_of<V, HALF> (a.qkv, raw_x);

  if (NORMED && item.head >= 0)
    rope_norm<V, HALF> (a, t, item.head, item.first, &x);
  if (item.partner > 0) {
    Vec<V> y = floats_of<V, HALF> (a.qkv, raw_y);
    if (NORMED)
      rope_norm<V, HALF> (a, t, item.head, item.first + item.partner, &y);
    rope_turn<V> (t, item.first, false, &x, &y);
    store<V, HALF> (item.side, item.narrow + item.partner, y);
  }
  store<V, HALF> (item.side, item.narrow, x);
}

template <int V, bool HALF, bool NORMED>
static __global__ void
__launch_bounds__ (ROPE_THREADS, NORMED ? 2
                                 : HALF ? 4
                                        : 3) rope_kernel (Rope a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  RopeTable table = rope_table (a, dynamic);
  int64_t first = blockIdx.x * (int64_t) ROPE_ROWS;
  int rows = (int) min ((int64_t) ROPE_ROWS, a.m - first), of_row = rope_items<V> (a), all = rows * of_row;

  rope_angles (a, table, first, rows);
  for (int r = 0; NORMED && r < rows; r++)
    rope_norms (a, rope_row_table (a, table, r), first + r);
  __syncthreads ();

  for (int i = threadIdx.x; i < all; i += ROPE_ITEMS * ROPE_THREADS) {
    RopeItem items[ROPE_ITEMS];
    Raw<V> x[ROPE_ITEMS], y[ROPE_ITEMS];
#pragma unroll
    for (int p = 0; p < ROPE_ITEMS; p++) {
      int here = i + p * ROPE_THREADS, r = here / of_row;
      if (here >= all)
        continue;
      items[p] = rope_item<V> (a, first + r, here - r * of_row);
      x[p] = fetch<V, HALF> (a.qkv, items[p].wide);
      y[p] = fetch<V, HALF> (a.qkv, items[p].wide + items[p].partner);
    }
#pragma unroll
    for (int p = 0; p < ROPE_ITEMS; p++) {
      int here = i + p * ROPE_THREADS;
      if (here < all)
        rope_store<V, HALF, NORMED> (a, rope_row_table (a, table, here / of_row), items[p], x[p], y[p]);
    }
  }
}

#define MOST_ROPE_BYTES (96 * 1024)

static bool
rope_is_legal (const Rope &a)
{
  return are_floats ({ a.qkv, a.q, a.keys, a.values, a.q_gain, a.key_gain, a.input, a.du }) && a.rotated <= a.k &&
         a.rotated % 2 == 0 && a.k <= MOST_ROTATED && a.m <= INT32_MAX && a.width <= INT32_MAX &&
         rope_table_bytes (a) <= MOST_ROPE_BYTES && is_present (a.q_gain) == is_present (a.key_gain);
}

#define ROPE_KERNEL(name, a)                                                                                           \
  (is_present (a.q_gain) ? (rope_width (a) == 1 ? name<1, false, true>                                                 \
                            : rope_is_half (a)  ? name<8, true, true>                                                  \
                                                : name<8, false, true>)                                                 \
                         : (rope_width (a) == 1 ? name<1, false, false>                                                \
                            : rope_is_half (a)  ? name<8, true, false>                                                 \
                                                : name<8, false, false>) )

static Rope
rope_of (SpDevShape s, const SpDevHeads *how, SpDevTensor qkv, const int32_t *pos)
{
  Rope a = {};

  a.m = s.m;
  a.k = s.k;
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.rotated = how->rotated;
  a.gate = how->gate;
  a.width = (s.heads + 2 * s.kv_heads) * s.k + how->gate;
  a.frequencies = frequencies_of (how->rotated, how->theta);
  a.epsilon = (float) how->epsilon;
  a.q_gain = how->q_gain;
  a.key_gain = how->key_gain;
  a.pos = pos;
  a.qkv = qkv;
  return a;
}

cudaError_t
sp_dev_rope (SpDevShape shape, const SpDevHeads *how, SpDevTensor qkv, const int32_t *pos, SpDevTensor q,
             SpDevTensor keys, SpDevTensor values, float *stat, cudaStream_t stream)
{
  Rope a = rope_of (shape, how, qkv, pos);

  a.q = q;
  a.keys = keys;
  a.values = values;
  a.stat = stat;
  if (!rope_is_legal (a))
    return cudaErrorInvalidValue;
  if (shape.m == 0)
    return cudaSuccess;
  if (has_head_lanes (a))
    return rope_lanes (a, stream);
  auto kernel = ROPE_KERNEL (rope_kernel, a);
  return launch (kernel, dim3 ((unsigned) div_up (shape.m, ROPE_ROWS)), ROPE_THREADS, rope_table_bytes (a), stream, a);
}

/* --- its backward ------------------------------------------------------------------------------------------------- */

/* Feature j of a head's gradient, turned back. */
static __device__ inline float
rope_back (const Rope &a, const RopeTable &t, int64_t row, int64_t h, int64_t j)
{
  SpDevTensor d = rope_side (a, h);
  int64_t at = rope_head (a, row, h), half = a.rotated / 2;

  if (j >= a.rotated)
    return load1 (d, at + j);
  if (j < half)
    return load1 (d, at + j) * t.cosine[j] + load1 (d, at + j + half) * t.sine[j];
  return load1 (d, at + j) * t.cosine[j - half] - load1 (d, at + j - half) * t.sine[j - half];
}

/* The mean over a head of g z, where z is the normed head and g its gradient times the gain. */
static __device__ inline void
rope_bwd_means (const Rope &a, const RopeTable &t, int64_t row)
{
  int64_t both = a.heads + a.kv_heads;

  for (int64_t h = threadIdx.x / 32; h < both; h += ROPE_THREADS / 32) {
    float r = a.stat_in[row * both + h], sum = 0;

    for (int64_t j = threadIdx.x % 32; j < a.k; j += 32)
      sum += rope_back (a, t, row, h, j) * load1 (rope_gain (a, h), j) * load1 (a.input, row * a.width + h * a.k + j);
    sum = warp_sum (sum);
    if (threadIdx.x % 32 == 0)
      t.norm[h] = sum * r / a.k;
  }
}

/* Adds a row's part of the gains' gradients: a thread has a feature of all heads of one kind. */
static __device__ inline void
rope_bwd_gains (const Rope &a, const RopeTable &t, int64_t row)
{
  int64_t both = a.heads + a.kv_heads;

  for (int64_t i = threadIdx.x; i < 2 * a.k; i += ROPE_THREADS) {
    int64_t j = i % a.k, first = i < a.k ? 0 : a.heads, end = i < a.k ? a.heads : both;
    float sum = 0;

    for (int64_t h = first; h < end; h++)
      sum += rope_back (a, t, row, h, j) * load1 (a.input, row * a.width + h * a.k + j) * a.stat_in[row * both + h];
    t.sums[i] += sum;
  }
}

/* V features of a head, turned back: through the norm. */
template <int V, bool HALF>
static __device__ inline void
rope_norm_back (const Rope &a, const RopeTable &t, int64_t row, int64_t head, int first, Vec<V> *d)
{
  Vec<V> g = load<V, HALF> (rope_gain (a, head), first);
  Vec<V> x = load<V, HALF> (a.input, row * a.width + head * a.k + first);
  float r = a.stat_in[row * (a.heads + a.kv_heads) + head];

#pragma unroll
  for (int l = 0; l < V; l++)
    d->x[l] = r * (g.x[l] * d->x[l] - x.x[l] * r * t.norm[head]);
}

template <int V, bool HALF, bool NORMED>
static __device__ inline void
rope_bwd_store (const Rope &a, const RopeTable &t, int64_t row, const RopeItem &item, const Raw<V> &raw_x,
                const Raw<V> &raw_y)
{
  Vec<V> x = floats_of<V, HALF> (item.side, raw_x);

  if (item.partner > 0) {
    Vec<V> y = floats_of<V, HALF> (item.side, raw_y);
    rope_turn<V> (t, item.first, true, &x, &y);
    if (NORMED)
      rope_norm_back<V, HALF> (a, t, row, item.head, item.first + item.partner, &y);
    store<V, HALF> (a.qkv, item.wide + item.partner, y);
  }
  if (NORMED && item.head >= 0)
    rope_norm_back<V, HALF> (a, t, row, item.head, item.first, &x);
  store<V, HALF> (a.qkv, item.wide, x);
}

template <int V, bool HALF, bool NORMED>
static __device__ inline void
rope_bwd_rows (const Rope &a, const RopeTable &table, int64_t first, int rows)
{
  int of_row = rope_items<V> (a), all = rows * of_row;

  for (int i = threadIdx.x; i < all; i += ROPE_ITEMS * ROPE_THREADS) {
    RopeItem items[ROPE_ITEMS];
    Raw<V> x[ROPE_ITEMS], y[ROPE_ITEMS];
#pragma unroll
    for (int p = 0; p < ROPE_ITEMS; p++) {
      int here = i + p * ROPE_THREADS, r = here / of_row;
      if (here >= all)
        continue;
      items[p] = rope_item<V> (a, first + r, here - r * of_row);
      x[p] = fetch<V, HALF> (items[p].side, items[p].narrow);
      y[p] = fetch<V, HALF> (items[p].side, items[p].narrow + items[p].partner);
    }
#pragma unroll
    for (int p = 0; p < ROPE_ITEMS; p++) {
      int here = i + p * ROPE_THREADS, r = here / of_row;
      if (here < all)
        rope_bwd_store<V, HALF, NORMED> (a, rope_row_table (a, table, r), first + r, items[p], x[p], y[p]);
    }
  }
}

template <int V, bool HALF, bool NORMED>
static __global__ void
__launch_bounds__ (ROPE_THREADS, NORMED ? 2
                                 : HALF ? 4
                                        : 3) rope_bwd_kernel (Rope a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  RopeTable table = rope_table (a, dynamic);
  int64_t first = blockIdx.x * a.rows, end = min (first + a.rows, a.m);

  release_next ();
  for (int64_t i = threadIdx.x; a.parts != nullptr && i < 2 * a.k; i += ROPE_THREADS)
    table.sums[i] = 0;
  for (int64_t row = first; row < end; row += ROPE_ROWS) {
    int rows = (int) min ((int64_t) ROPE_ROWS, end - row);

    __syncthreads (); /* the rows before have been read */
    rope_angles (a, table, row, rows);
    __syncthreads ();
    if (NORMED) {
      for (int r = 0; r < rows; r++) {
        RopeTable t = rope_row_table (a, table, r);
        rope_bwd_means (a, t, row + r);
        if (a.parts != nullptr)
          rope_bwd_gains (a, t, row + r);
      }
      __syncthreads ();
    }
    rope_bwd_rows<V, HALF, NORMED> (a, table, row, rows);
  }
  for (int64_t i = threadIdx.x; a.parts != nullptr && i < 2 * a.k; i += ROPE_THREADS)
    a.parts[blockIdx.x * 2 * a.k + i] = table.sums[i];
}

/* Without gains no sums tie rows to a block. */
size_t
sp_dev_rope_bwd_scratch_bytes (SpDevShape shape, const SpDevHeads *how)
{
  return is_present (how->q_gain) ? (size_t) (MOST_ROW_BLOCKS * 2 * shape.k) * sizeof (float) : 0;
}

cudaError_t
sp_dev_rope_bwd (SpDevShape shape, const SpDevHeads *how, SpDevTensor dq, SpDevTensor dkeys, SpDevTensor dvalues,
                 SpDevTensor qkv, const float *stat, SpDevTensor du, const int32_t *pos, SpDevTensor dqkv,
                 SpDevTensor dq_gain, SpDevTensor dkey_gain, void *scratch, cudaStream_t stream)
{
  Rope a = rope_of (shape, how, dqkv, pos);
  bool has_gains = is_present (how->q_gain), sums = has_gains && (is_present (dq_gain) || is_present (dkey_gain));
  int64_t blocks = sums ? row_blocks (shape.m) : div_up (shape.m, ROPE_ROWS);

  a.q = dq;
  a.keys = dkeys;
  a.values = dvalues;
  a.input = has_gains ? qkv : SpDevTensor{};
  a.du = how->gate > 0 ? du : SpDevTensor{};
  a.stat_in = stat;
  a.rows = sums ? rows_per_block (shape.m) : ROPE_ROWS;
  a.parts = sums ? (float *) scratch : nullptr;
  if (!rope_is_legal (a) || !are_floats ({ dq_gain, dkey_gain }))
    return cudaErrorInvalidValue;
  if (shape.m == 0)
    return cudaSuccess;

  if (has_head_lanes (a))
    blocks = rope_lane_blocks (a);
  auto kernel = ROPE_KERNEL (rope_bwd_kernel, a);
  cudaError_t error = has_head_lanes (a)
                          ? rope_bwd_lanes (a, stream)
                          : launch (kernel, dim3 ((unsigned) blocks), ROPE_THREADS, rope_table_bytes (a), stream, a);
  if (error == cudaSuccess && sums) {
    AddParts parts = { a.parts, blocks, 2 * shape.k, { shape.k, shape.k }, { dq_gain, dkey_gain }, { 0, shape.k } };
    error = add_parts (parts, 2, 1, stream);
  }
  return error;
}
