/* SPDX-License-Identifier: Apache-2.0 */
/* Between the projections and the attention: cut QKV into heads and pieces, turn them, and put them back. */
#include "kernels/device-private.cuh"

/* --- rotary embedding --------------------------------------------------------------------------------------------- */

/*
 * A block has a row at a time, and its angles in a table that all heads share. An item is V features of one head, with
 * the V that they turn with, if they turn.
 */

#define ROPE_THREADS 256
#define MOST_HEAD_SIZE 512

struct Rope {
  int64_t m, k, heads, kv_heads;
  int64_t rotated, gate, width; /* width: of a row of qkv */
  double theta;
  float epsilon;
  SpDevTensor q_gain, key_gain;
  const int32_t *pos;
  SpDevTensor qkv, q, keys, values; /* of the backward: dqkv, dq, dkeys, dvalues */
  float *stat;
  /* of the backward alone */
  SpDevTensor input, du;
  const float *stat_in;
  int64_t rows; /* of a block */
  float *parts; /* [blocks,2,k] */
};

/* In dynamic shared memory. */
struct RopeTable {
  float *cosine, *sine; /* [rotated / 2] */
  float *norm;          /* [heads + kv_heads]: 1/rms, or the mean of g z */
  float *sums;          /* [2,k] */
};

static size_t
rope_table_bytes (const Rope &a)
{
  return (size_t) (a.rotated + a.heads + a.kv_heads + 2 * a.k) * sizeof (float);
}

static __device__ inline RopeTable
rope_table (const Rope &a, unsigned char *shared)
{
  RopeTable t;

  t.cosine = (float *) shared;
  t.sine = t.cosine + a.rotated / 2;
  t.norm = t.cosine + a.rotated;
  t.sums = t.norm + a.heads + a.kv_heads;
  return t;
}

/* Angles need more than fp32: at position 2^20 its last bit is 1/16 of a radian. */
static __device__ inline void
rope_angles (const Rope &a, const RopeTable &t, int64_t row)
{
  for (int i = threadIdx.x; i < a.rotated / 2; i += ROPE_THREADS) {
    double s, c;

    sincos (a.pos[row] * exp2 (-2.0 * i / a.rotated * log2 (a.theta)), &s, &c);
    t.cosine[i] = (float) c;
    t.sine[i] = (float) s;
  }
}

static __device__ inline SpDevTensor
rope_gain (const Rope &a, int64_t h)
{
  return h < a.heads ? a.q_gain : a.key_gain;
}

/* Where a head of a row stands in q or keys. */
static __device__ inline int64_t
rope_head (const Rope &a, int64_t row, int64_t h)
{
  return (h < a.heads ? row * a.heads + h : row * a.kv_heads + h - a.heads) * a.k;
}

static __device__ inline SpDevTensor
rope_side (const Rope &a, int64_t h)
{
  return h < a.heads ? a.q : a.keys;
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

/* What an item is: `first` of V features, turned with those at `partner`, or none (-1). */
struct RopeItem {
  int64_t head;
  int first, partner;
};

template <int V>
static __device__ inline RopeItem
rope_item (const Rope &a, int i)
{
  int half = (int) a.rotated / 2 / V, items = (int) a.k / V - half, within = i % items;
  RopeItem item = { i / items, 0, -1 };

  if (within < half) {
    item.first = within * V;
    item.partner = item.first + (int) a.rotated / 2;
  } else
    item.first = (within - half) * V + (int) a.rotated;
  return item;
}

template <int V>
static __device__ inline int
rope_items (const Rope &a)
{
  return (int) ((a.heads + a.kv_heads) * (a.k / V - a.rotated / 2 / V));
}

template <int V>
static __device__ inline Vec<V>
rope_normed (const Rope &a, const RopeTable &t, int64_t row, int64_t h, int first)
{
  Vec<V> x = load<V> (a.qkv, row * a.width + h * a.k + first);

  if (a.q_gain.data != nullptr) {
    Vec<V> g = load<V> (rope_gain (a, h), first);
    for (int l = 0; l < V; l++)
      x.x[l] *= t.norm[h] * g.x[l];
  }
  return x;
}

template <int V>
static __global__ void
__launch_bounds__ (ROPE_THREADS) rope_kernel (Rope a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  RopeTable t = rope_table (a, dynamic);
  int64_t row = blockIdx.x, kv_width = a.kv_heads * a.k;

  rope_angles (a, t, row);
  if (a.q_gain.data != nullptr)
    rope_norms (a, t, row);
  __syncthreads ();

  for (int i = threadIdx.x; i < rope_items<V> (a); i += ROPE_THREADS) {
    RopeItem item = rope_item<V> (a, i);
    int64_t to = rope_head (a, row, item.head);
    Vec<V> x = rope_normed<V> (a, t, row, item.head, item.first);

    if (item.partner >= 0) {
      Vec<V> y = rope_normed<V> (a, t, row, item.head, item.partner);
#pragma unroll
      for (int l = 0; l < V; l++) {
        float c = t.cosine[item.first + l], s = t.sine[item.first + l], turned = x.x[l] * c - y.x[l] * s;
        y.x[l] = y.x[l] * c + x.x[l] * s;
        x.x[l] = turned;
      }
      store<V> (rope_side (a, item.head), to + item.partner, y);
    }
    store<V> (rope_side (a, item.head), to + item.first, x);
  }
  for (int64_t j = (int64_t) threadIdx.x * V; j < kv_width; j += ROPE_THREADS * V)
    store<V> (a.values, row * kv_width + j, load<V> (a.qkv, row * a.width + (a.heads + a.kv_heads) * a.k + j));
}

static bool
rope_is_legal (const Rope &a)
{
  return are_floats ({ a.qkv, a.q, a.keys, a.values, a.q_gain, a.key_gain, a.input, a.du }) && a.rotated <= a.k &&
         a.rotated % 2 == 0 && a.k <= MOST_HEAD_SIZE && a.m <= INT32_MAX && a.width <= INT32_MAX &&
         rope_table_bytes (a) <= 48 * 1024 && is_present (a.q_gain) == is_present (a.key_gain);
}

static int
rope_width (const Rope &a)
{
  return width_of ({ a.k, a.rotated / 2, a.gate },
                   { a.qkv, a.q, a.keys, a.values, a.q_gain, a.key_gain, a.input, a.du });
}

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
  a.theta = how->theta;
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
  return launch (rope_width (a) == 8 ? rope_kernel<8> : rope_kernel<1>, dim3 ((unsigned) shape.m), ROPE_THREADS,
                 rope_table_bytes (a), stream, a);
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

/* V features, turned back and through the norm, to their place in dqkv. */
template <int V>
static __device__ inline void
rope_bwd_store (const Rope &a, const RopeTable &t, int64_t row, int64_t h, int first, Vec<V> d)
{
  int64_t at = row * a.width + h * a.k + first;

  if (a.q_gain.data != nullptr) {
    Vec<V> g = load<V> (rope_gain (a, h), first), x = load<V> (a.input, at);
    float r = a.stat_in[row * (a.heads + a.kv_heads) + h];
    for (int l = 0; l < V; l++)
      d.x[l] = r * (g.x[l] * d.x[l] - x.x[l] * r * t.norm[h]);
  }
  store<V> (a.qkv, at, d);
}

template <int V>
static __device__ inline void
rope_bwd_row (const Rope &a, const RopeTable &t, int64_t row)
{
  int64_t kv_width = a.kv_heads * a.k, values_at = row * a.width + (a.heads + a.kv_heads) * a.k;

  for (int i = threadIdx.x; i < rope_items<V> (a); i += ROPE_THREADS) {
    RopeItem item = rope_item<V> (a, i);
    SpDevTensor side = rope_side (a, item.head);
    int64_t from = rope_head (a, row, item.head);
    Vec<V> x = load<V> (side, from + item.first);

    if (item.partner >= 0) {
      Vec<V> y = load<V> (side, from + item.partner);
#pragma unroll
      for (int l = 0; l < V; l++) {
        float c = t.cosine[item.first + l], s = t.sine[item.first + l], turned = x.x[l] * c + y.x[l] * s;
        y.x[l] = y.x[l] * c - x.x[l] * s;
        x.x[l] = turned;
      }
      rope_bwd_store<V> (a, t, row, item.head, item.partner, y);
    }
    rope_bwd_store<V> (a, t, row, item.head, item.first, x);
  }
  for (int64_t j = (int64_t) threadIdx.x * V; j < kv_width; j += ROPE_THREADS * V)
    store<V> (a.qkv, values_at + j, load<V> (a.values, row * kv_width + j));
  for (int64_t j = (int64_t) threadIdx.x * V; j < a.gate; j += ROPE_THREADS * V)
    store<V> (a.qkv, values_at + kv_width + j, load<V> (a.du, row * a.gate + j));
}

template <int V>
static __global__ void
__launch_bounds__ (ROPE_THREADS) rope_bwd_kernel (Rope a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  RopeTable t = rope_table (a, dynamic);
  int64_t first = blockIdx.x * a.rows, end = min (first + a.rows, a.m);

  for (int64_t i = threadIdx.x; i < 2 * a.k; i += ROPE_THREADS)
    t.sums[i] = 0;
  for (int64_t row = first; row < end; row++) {
    __syncthreads (); /* the row before has been read */
    rope_angles (a, t, row);
    __syncthreads ();
    if (a.q_gain.data != nullptr) {
      rope_bwd_means (a, t, row);
      if (a.parts != nullptr)
        rope_bwd_gains (a, t, row);
      __syncthreads ();
    }
    rope_bwd_row<V> (a, t, row);
  }
  for (int64_t i = threadIdx.x; a.parts != nullptr && i < 2 * a.k; i += ROPE_THREADS)
    a.parts[blockIdx.x * 2 * a.k + i] = t.sums[i];
}

/* Without gains no sums tie rows to a block. */
size_t
sp_dev_rope_bwd_scratch_bytes (SpDevShape shape, const SpDevHeads *how)
{
  return is_present (how->q_gain) ? (size_t) (row_blocks (shape.m) * 2 * shape.k) * sizeof (float) : 0;
}

cudaError_t
sp_dev_rope_bwd (SpDevShape shape, const SpDevHeads *how, SpDevTensor dq, SpDevTensor dkeys, SpDevTensor dvalues,
                 SpDevTensor qkv, const float *stat, SpDevTensor du, const int32_t *pos, SpDevTensor dqkv,
                 SpDevTensor dq_gain, SpDevTensor dkey_gain, void *scratch, cudaStream_t stream)
{
  Rope a = rope_of (shape, how, dqkv, pos);
  bool has_gains = is_present (how->q_gain), sums = has_gains && (is_present (dq_gain) || is_present (dkey_gain));
  int64_t blocks = sums ? row_blocks (shape.m) : shape.m;

  a.q = dq;
  a.keys = dkeys;
  a.values = dvalues;
  a.input = has_gains ? qkv : SpDevTensor{};
  a.du = how->gate > 0 ? du : SpDevTensor{};
  a.stat_in = stat;
  a.rows = sums ? rows_per_block (shape.m) : 1;
  a.parts = sums ? (float *) scratch : nullptr;
  if (!rope_is_legal (a) || !are_floats ({ dq_gain, dkey_gain }))
    return cudaErrorInvalidValue;
  if (shape.m == 0)
    return cudaSuccess;

  cudaError_t error = launch (rope_width (a) == 8 ? rope_bwd_kernel<8> : rope_bwd_kernel<1>, dim3 ((unsigned) blocks),
                              ROPE_THREADS, rope_table_bytes (a), stream, a);
  if (error == cudaSuccess && sums && is_present (dq_gain))
    error = each (AddParts{ a.parts, blocks, 2 * shape.k, dq_gain }, shape.k, 1, stream);
  if (error == cudaSuccess && sums && is_present (dkey_gain))
    error = each (AddParts{ a.parts + shape.k, blocks, 2 * shape.k, dkey_gain }, shape.k, 1, stream);
  return error;
}
