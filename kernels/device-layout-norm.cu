/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotations of heads that are normed first, where a head's items are neighbouring lanes of one warp: each operand is read
 * once, and a head's sums are those lanes'. The gains' gradients are summed in registers, as a thread has the same
 * features of each head.
 */
#include "kernels/device-rope.cuh"

#define ROPE_WARPS (ROPE_THREADS / 32)

/* Features of an item and of what it turns with. */
#define ITEM_FEATURES 16

static int
head_lanes (const Rope &a)
{
  return (int) a.k / ITEM_FEATURES;
}

bool
has_head_lanes (const Rope &a)
{
  int lanes = head_lanes (a);

  return is_present (a.q_gain) && rope_width (a) == 8 && a.rotated == a.k && a.k % ITEM_FEATURES == 0 && lanes >= 2 &&
         lanes <= 32 && (lanes & (lanes - 1)) == 0 && a.gate % (8 * lanes) == 0;
}

static __device__ inline float
lanes_sum (float x, int lanes)
{
  for (int offset = lanes / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync (0xffffffffu, x, offset);
  return x;
}

/* Gains of an item's features. */
template <bool HALF>
static __device__ inline void
item_gains (const Rope &a, const RopeItem &item, Vec<8> *ret_x, Vec<8> *ret_y)
{
  SpDevTensor gain = rope_gain (a, item.head);

  *ret_x = load<8, HALF> (gain, item.first);
  *ret_y = load<8, HALF> (gain, item.first + item.partner);
}

template <bool HALF>
static __global__ void
__launch_bounds__ (ROPE_THREADS, 3) rope_lanes_kernel (Rope a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  RopeTable table = rope_table (a, dynamic);
  int64_t first = blockIdx.x * (int64_t) ROPE_ROWS, both = a.heads + a.kv_heads;
  int rows = (int) min ((int64_t) ROPE_ROWS, a.m - first), of_row = rope_items<8> (a), all = rows * of_row;
  int lanes = (int) a.k / ITEM_FEATURES;

  rope_angles (a, table, first, rows);
  __syncthreads ();
  /* Whole warps go through the loop, as lanes speak with each other. */
  for (int base = 0; base < all; base += ROPE_ITEMS * ROPE_THREADS) {
    RopeItem items[ROPE_ITEMS];
    Raw<8> raw_x[ROPE_ITEMS] = {}, raw_y[ROPE_ITEMS] = {};
#pragma unroll
    for (int p = 0; p < ROPE_ITEMS; p++) {
      int here = base + p * ROPE_THREADS + threadIdx.x, r = here / of_row;
      if (here >= all)
        continue;
      items[p] = rope_item<8> (a, first + r, here - r * of_row);
      raw_x[p] = fetch<8, HALF> (a.qkv, items[p].wide);
      raw_y[p] = fetch<8, HALF> (a.qkv, items[p].wide + items[p].partner);
    }
#pragma unroll
    for (int p = 0; p < ROPE_ITEMS; p++) {
      int here = base + p * ROPE_THREADS + threadIdx.x, r = here / of_row;
      Vec<8> x = floats_of<8, HALF> (a.qkv, raw_x[p]), y = floats_of<8, HALF> (a.qkv, raw_y[p]), gx, gy;
      float squares = 0;
#pragma unroll
      for (int l = 0; l < 8; l++)
        squares += x.x[l] * x.x[l] + y.x[l] * y.x[l];
      squares = lanes_sum (squares, lanes);
      if (here >= all)
        continue;
      if (items[p].head >= 0) {
        float scale = 1 / sqrtf (squares / a.k + a.epsilon);
        item_gains<HALF> (a, items[p], &gx, &gy);
#pragma unroll
        for (int l = 0; l < 8; l++) {
          x.x[l] *= scale * gx.x[l];
          y.x[l] *= scale * gy.x[l];
        }
        rope_turn<8> (rope_row_table (a, table, r), items[p].first, false, &x, &y);
        store<8, HALF> (items[p].side, items[p].narrow + items[p].partner, y);
        if (threadIdx.x % lanes == 0)
          a.stat[(first + r) * both + items[p].head] = scale;
      }
      store<8, HALF> (items[p].side, items[p].narrow, x);
    }
  }
}

cudaError_t
rope_lanes (const Rope &a, cudaStream_t stream)
{
  return launch (rope_is_half (a) ? rope_lanes_kernel<true> : rope_lanes_kernel<false>,
                 dim3 ((unsigned) div_up (a.m, ROPE_ROWS)), ROPE_THREADS, rope_table_bytes (a), stream, a);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* A thread's sums for the gains of its features: of heads of queries, and of keys. */
struct GainSums {
  Vec<8> x[2], y[2];
};

/* What is in memory for an item, with the norm's input. */
struct RawItem {
  Raw<8> x, y, input_x, input_y;
  float scale;
};

template <bool HALF>
static __device__ inline RawItem
fetch_item (const Rope &a, const RopeItem &item, int64_t row)
{
  RawItem raw = {};

  raw.x = fetch<8, HALF> (item.side, item.narrow);
  if (item.head >= 0) {
    raw.y = fetch<8, HALF> (item.side, item.narrow + item.partner);
    raw.input_x = fetch<8, HALF> (a.input, item.wide);
    raw.input_y = fetch<8, HALF> (a.input, item.wide + item.partner);
    raw.scale = a.stat_in[row * (a.heads + a.kv_heads) + item.head];
  }
  return raw;
}

/* All lanes call it; `is_there`: this one has an item. */
template <bool HALF>
static __device__ inline void
item_back (const Rope &a, const RopeTable &t, const RopeItem &item, const RawItem &raw, bool is_there, int lanes,
           GainSums *sums)
{
  bool is_head = is_there && item.head >= 0;
  SpDevTensor side = is_there ? item.side : a.q;
  Vec<8> x = floats_of<8, HALF> (side, raw.x), y = floats_of<8, HALF> (side, raw.y), gx = {}, gy = {};
  Vec<8> in_x = floats_of<8, HALF> (a.input, raw.input_x), in_y = floats_of<8, HALF> (a.input, raw.input_y);
  float dot = 0, scale = raw.scale;

  if (is_head) {
    rope_turn<8> (t, item.first, true, &x, &y);
    item_gains<HALF> (a, item, &gx, &gy);
#pragma unroll
    for (int l = 0; l < 8; l++)
      dot += gx.x[l] * x.x[l] * in_x.x[l] + gy.x[l] * y.x[l] * in_y.x[l];
  }
  dot = lanes_sum (dot, lanes) * scale * scale * scale / a.k;
  if (!is_there)
    return;
  if (is_head) {
    bool is_key = item.head >= a.heads;
#pragma unroll
    for (int l = 0; l < 8; l++) {
      float part_x = x.x[l] * in_x.x[l] * scale, part_y = y.x[l] * in_y.x[l] * scale;
      sums->x[0].x[l] += is_key ? 0 : part_x;
      sums->x[1].x[l] += is_key ? part_x : 0;
      sums->y[0].x[l] += is_key ? 0 : part_y;
      sums->y[1].x[l] += is_key ? part_y : 0;
      x.x[l] = scale * gx.x[l] * x.x[l] - in_x.x[l] * dot;
      y.x[l] = scale * gy.x[l] * y.x[l] - in_y.x[l] * dot;
    }
    store<8, HALF> (a.qkv, item.wide + item.partner, y);
  }
  store<8, HALF> (a.qkv, item.wide, x);
}

/* A block's part: lanes of the same features in a warp, and then the warps in their order. shared: [warps,2,k]. */
static __device__ inline void
store_gain_sums (const Rope &a, int lanes, const GainSums &sums, float *shared)
{
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = (int) a.k;

#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int l = 0; l < 8; l++) {
      float sum = i < 2 ? sums.x[i % 2].x[l] : sums.y[i % 2].x[l];
      for (int offset = lanes; offset < 32; offset *= 2)
        sum += __shfl_xor_sync (0xffffffffu, sum, offset);
      if (lane < lanes)
        shared[(2 * warp + i % 2) * k + (i < 2 ? 0 : k / 2) + lane * 8 + l] = sum;
    }
  __syncthreads ();
  for (int i = threadIdx.x; i < 2 * k; i += ROPE_THREADS) {
    float sum = 0;
    for (int w = 0; w < ROPE_WARPS; w++)
      sum += shared[2 * w * k + i];
    a.parts[blockIdx.x * 2 * a.k + i] = sum;
  }
}

/* There are two tables, so that the next rows' is made while this is read. */
static __device__ inline RopeTable
turn_table (const Rope &a, unsigned char *shared, int turn)
{
  return rope_table (a, shared + turn * ROPE_ROWS * a.rotated * sizeof (float));
}

template <bool HALF>
static __global__ void
__launch_bounds__ (ROPE_THREADS, 2) rope_bwd_lanes_kernel (Rope a)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  int64_t first = blockIdx.x * a.rows, end = min (first + a.rows, a.m);
  int of_row = rope_items<8> (a), lanes = (int) a.k / ITEM_FEATURES, turn = 0;
  GainSums sums = {};

  release_next ();
  rope_angles (a, turn_table (a, dynamic, 0), first, (int) min ((int64_t) ROPE_ROWS, end - first));
  for (int64_t row = first; row < end; row += ROPE_ROWS, turn ^= 1) {
    int all = (int) min ((int64_t) ROPE_ROWS, end - row) * of_row;
    int64_t next = row + ROPE_ROWS;
    RopeTable table = turn_table (a, dynamic, turn);

    __syncthreads (); /* these rows' angles are there, and those before the last are no longer read */
    if (next < end)
      rope_angles (a, turn_table (a, dynamic, turn ^ 1), next, (int) min ((int64_t) ROPE_ROWS, end - next));
    for (int base = 0; base < all; base += ROPE_THREADS) {
      int here = base + threadIdx.x, r = here / of_row;
      bool is_there = here < all;
      RopeItem item = {};
      RawItem raw = {};

      if (is_there) {
        item = rope_item<8> (a, row + r, here - r * of_row);
        raw = fetch_item<HALF> (a, item, row + r);
      }
      item_back<HALF> (a, rope_row_table (a, table, r), item, raw, is_there, lanes, &sums);
    }
  }
  if (a.parts != nullptr)
    store_gain_sums (a, lanes, sums, (float *) (dynamic + 2 * ROPE_ROWS * a.rotated * sizeof (float)));
}

cudaError_t
rope_bwd_lanes (const Rope &a, int64_t blocks, cudaStream_t stream)
{
  size_t bytes =
      (size_t) (2 * ROPE_ROWS * a.rotated + (a.parts != nullptr ? ROPE_WARPS * 2 * a.k : 0)) * sizeof (float);

  return launch (rope_is_half (a) ? rope_bwd_lanes_kernel<true> : rope_bwd_lanes_kernel<false>,
                 dim3 ((unsigned) blocks), ROPE_THREADS, bytes, stream, a);
}
