/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the rotations share. A block has some rows at a time, and their angles in a table that all heads share. An item is
 * V features of one head, with the V that they turn with, if they turn; V of the values, or of the gate.
 */

#include "kernels/device-angles.cuh"

#define ROPE_THREADS 256
#define ROPE_ROWS 2

struct Rope {
  int64_t m, k, heads, kv_heads;
  int64_t rotated, gate, width; /* width: of a row of qkv */
  Frequencies frequencies;
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
  float *cosine, *sine; /* [rows, rotated / 2] */
  float *norm;          /* [rows, heads + kv_heads]: 1/rms, or the mean of g z */
  float *sums;          /* [2,k] */
};

static __device__ inline RopeTable
rope_table (const Rope &a, unsigned char *shared)
{
  RopeTable t;

  t.cosine = (float *) shared;
  t.sine = t.cosine + ROPE_ROWS * a.rotated / 2;
  t.norm = t.cosine + ROPE_ROWS * a.rotated;
  t.sums = t.norm + ROPE_ROWS * (a.heads + a.kv_heads);
  return t;
}

/* Of one of the rows. */
static __device__ inline RopeTable
rope_row_table (const Rope &a, RopeTable t, int r)
{
  t.cosine += r * a.rotated / 2;
  t.sine += r * a.rotated / 2;
  t.norm += r * (a.heads + a.kv_heads);
  return t;
}

static __device__ inline void
rope_angles (const Rope &a, const RopeTable &t, int64_t row, int rows)
{
  angles_of (a.pos + row, rows, (int) a.rotated, a.frequencies, t.cosine, t.sine);
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

/* Cosines and sines of V neighbours. */
template <int V>
static __device__ inline void
rope_pairs (const RopeTable &t, int first, Vec<V> *ret_cosine, Vec<V> *ret_sine)
{
  if constexpr (V == 8)
#pragma unroll
    for (int l = 0; l < 8; l += 4) {
      *(float4 *) &ret_cosine->x[l] = *(const float4 *) &t.cosine[first + l];
      *(float4 *) &ret_sine->x[l] = *(const float4 *) &t.sine[first + l];
    }
  else {
    ret_cosine->x[0] = t.cosine[first];
    ret_sine->x[0] = t.sine[first];
  }
}

/* What a thread takes at once: V neighbours of a row of qkv and of the tensor that they go to or come from, and those
 * that they turn with, `partner` elements further in both, or 0. */
struct RopeItem {
  SpDevTensor side;
  int64_t wide, narrow; /* in qkv, in the other */
  int partner;
  int first;    /* of the head */
  int64_t head; /* -1: values, or a gate: neither turned nor normed */
};

template <int V>
static __host__ __device__ inline int
rope_turned_items (const Rope &a)
{
  return (int) ((a.heads + a.kv_heads) * (a.k / V - a.rotated / 2 / V));
}

/* Of a row: heads of q and keys, values, and of the backward the gate. */
template <int V>
static __host__ __device__ inline int
rope_items (const Rope &a)
{
  return rope_turned_items<V> (a) + (int) ((a.kv_heads * a.k + (a.du.data != nullptr ? a.gate : 0)) / V);
}

template <int V>
static __device__ inline RopeItem
rope_item (const Rope &a, int64_t row, int i)
{
  int half = (int) a.rotated / 2 / V, of_head = (int) a.k / V - half, turned = rope_turned_items<V> (a);
  int64_t kv_width = a.kv_heads * a.k, both = a.heads + a.kv_heads;

  if (i < turned) {
    int head = i / of_head, within = i - head * of_head;
    int partner = within < half ? (int) a.rotated / 2 : 0, first = (within < half ? within : within + half) * V;
    return {
      rope_side (a, head), row * a.width + head * a.k + first, rope_head (a, row, head) + first, partner, first, head
    };
  }
  int64_t j = (int64_t) (i - turned) * V, wide = row * a.width + both * a.k + j;
  return j < kv_width ? RopeItem{ a.values, wide, row * kv_width + j, 0, 0, -1 }
                      : RopeItem{ a.du, wide, row * a.gate + j - kv_width, 0, 0, -1 };
}

/* Two items at once, so that a thread has four loads under way. */
#define ROPE_ITEMS 2

/* By the angle, or back. */
template <int V>
static __device__ inline void
rope_turn (const RopeTable &t, int first, bool back, Vec<V> *x, Vec<V> *y)
{
  Vec<V> c, s;

  rope_pairs<V> (t, first, &c, &s);
#pragma unroll
  for (int l = 0; l < V; l++) {
    float sine = back ? -s.x[l] : s.x[l], turned = x->x[l] * c.x[l] - y->x[l] * sine;
    y->x[l] = y->x[l] * c.x[l] + x->x[l] * sine;
    x->x[l] = turned;
  }
}

/* --- which of them ------------------------------------------------------------------------------------------------ */

static inline int
rope_width (const Rope &a)
{
  return width_of ({ a.k, a.rotated / 2, a.gate },
                   { a.qkv, a.q, a.keys, a.values, a.q_gain, a.key_gain, a.input, a.du });
}

static inline bool
rope_is_half (const Rope &a)
{
  return are_half ({ a.qkv, a.q, a.keys, a.values, a.q_gain, a.key_gain, a.input, a.du });
}

/* Of heads that are normed: whether a head's items are neighbouring lanes of one warp, all of them turned, so that its sums
 * are over these; device-layout-norm.cu. */
bool has_head_lanes (const Rope &a);
cudaError_t rope_lanes (const Rope &a, cudaStream_t stream);
int64_t rope_lane_blocks (const Rope &a); /* of the backward, each of which leaves a part of the sums */
cudaError_t rope_bwd_lanes (const Rope &a, cudaStream_t stream);
