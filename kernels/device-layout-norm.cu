/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotations of heads that are normed first, where a head's items are neighbouring lanes of one warp: each operand is read
 * once, and a head's sums are those lanes'. The gains' gradients are summed in registers, as a thread has the same
 * features of each head.
 */
#include "kernels/device-mma.cuh"
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

/* As rope_item, where all is turned and lanes are a power of two. */
static __device__ inline RopeItem
lane_item (const Rope &a, int64_t row, int i, int lanes)
{
  int both = (int) (a.heads + a.kv_heads), head = i / lanes;

  if (head >= both)
    return rope_item<8> (a, row, i);
  int first = (i & (lanes - 1)) * 8;
  return { rope_side (a, head),
           row * a.width + head * (int) a.k + first,
           rope_head (a, row, head) + first,
           (int) a.k / 2,
           first,
           head };
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

/* Lanes of items that a block has of its rows, at most. */
#define LANE_ITEMS (ROPE_ITEMS * ROPE_THREADS)

/* Whole warps go through all of it, as lanes speak with each other. What is read is asked for before the angles. */
template <bool HALF>
static __global__ void
__launch_bounds__ (ROPE_THREADS, 3) rope_lanes_kernel (Rope a, int of_row, int rows)
{
  extern __shared__ __align__ (16) float angles[];
  int64_t start = (int64_t) blockIdx.x * LANE_ITEMS, from = divide (start, of_row), both = a.heads + a.kv_heads;
  RopeTable table = { angles, angles + rows * a.rotated / 2, nullptr, nullptr };
  int skipped = (int) (start - from * of_row), lanes = (int) a.k / ITEM_FEATURES, row[ROPE_ITEMS];
  RopeItem items[ROPE_ITEMS];
  Raw<8> raw_x[ROPE_ITEMS], raw_y[ROPE_ITEMS];

#pragma unroll
  for (int p = 0; p < ROPE_ITEMS; p++) {
    int here = skipped + p * ROPE_THREADS + threadIdx.x;
    row[p] = here / of_row;
    items[p] = lane_item (a, min (from + row[p], a.m - 1), here - row[p] * of_row, lanes);
    raw_x[p] = fetch<8, HALF> (a.qkv, items[p].wide);
    raw_y[p] = fetch<8, HALF> (a.qkv, items[p].wide + items[p].partner);
  }
  angles_of (a.pos + from, (int) min ((int64_t) rows, a.m - from), (int) a.rotated, a.log2_theta, table.cosine,
             table.sine);
  __syncthreads ();
#pragma unroll
  for (int p = 0; p < ROPE_ITEMS; p++) {
    Vec<8> x = floats_of<8, HALF> (a.qkv, raw_x[p]), y = floats_of<8, HALF> (a.qkv, raw_y[p]), gx, gy;
    float squares = 0;
#pragma unroll
    for (int l = 0; l < 8; l++)
      squares += x.x[l] * x.x[l] + y.x[l] * y.x[l];
    squares = lanes_sum (squares, lanes);
    if (from + row[p] >= a.m)
      continue;
    if (items[p].head >= 0) {
      float scale = 1 / sqrtf (squares / a.k + a.epsilon);
      item_gains<HALF> (a, items[p], &gx, &gy);
#pragma unroll
      for (int l = 0; l < 8; l++) {
        x.x[l] *= scale * gx.x[l];
        y.x[l] *= scale * gy.x[l];
      }
      rope_turn<8> (table, row[p] * (int) a.rotated / 2 + items[p].first, false, &x, &y);
      store<8, HALF> (items[p].side, items[p].narrow + items[p].partner, y);
      if (threadIdx.x % lanes == 0)
        a.stat[(from + row[p]) * both + items[p].head] = scale;
    }
    store<8, HALF> (items[p].side, items[p].narrow, x);
  }
}

cudaError_t
rope_lanes (const Rope &a, cudaStream_t stream)
{
  int of_row = rope_items<8> (a), rows = (LANE_ITEMS - 1) / of_row + 2;

  return launch (rope_is_half (a) ? rope_lanes_kernel<true> : rope_lanes_kernel<false>,
                 dim3 ((unsigned) div_up (a.m * of_row, LANE_ITEMS)), ROPE_THREADS,
                 (size_t) (rows * a.rotated) * sizeof (float), stream, a, of_row, rows);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* A thread's sums for the gains of its features: of heads of queries, and of keys. */
struct GainSums {
  Vec<8> x[2], y[2];
};

/* What is on its way to shared memory: items of some rounds of the block, each thread's at a place of its own. */
#define LANES_AHEAD 3
#define ANGLE_ROWS 8 /* of a table; while one is read the next is made */

/* x, y and the norm's input to both, each of one or of two halves. */
template <bool HALF> struct ItemSlots {
  uint4 *slots;  /* [LANES_AHEAD,4 or 8,threads] */
  float *scales; /* [LANES_AHEAD,threads] */
  static constexpr int UNITS = HALF ? 4 : 8;
  static constexpr int scales_at = LANES_AHEAD * UNITS * ROPE_THREADS * (int) sizeof (uint4);
  static constexpr int bytes = scales_at + LANES_AHEAD * ROPE_THREADS * (int) sizeof (float);

  __device__ uint32_t at (int slot, int unit) const
  {
    return (uint32_t) __cvta_generic_to_shared (slots + (slot * UNITS + unit) * ROPE_THREADS + threadIdx.x);
  }
  __device__ void copy (int slot, int operand, SpDevTensor t, int64_t i) const
  {
    bool is_wide = !HALF && t.dtype == SP_DEV_FP32;
    const char *from = (const char *) t.data + (i << (is_wide ? 2 : 1));

    copy_16 (at (slot, operand), from, true);
    if (is_wide)
      copy_16 (at (slot, operand + 4), from + 16, true);
  }
  __device__ void copy_scale (int slot, const float *from) const
  {
    uint32_t to = (uint32_t) __cvta_generic_to_shared (scales + slot * ROPE_THREADS + threadIdx.x);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(from) : "memory");
  }
  __device__ Vec<8> get (int slot, int operand, SpDevTensor t) const
  {
    const uint4 *from = slots + (slot * UNITS + operand) * ROPE_THREADS + threadIdx.x;
    Raw<8> raw;

    raw.a = *from;
    raw.b = !HALF && t.dtype == SP_DEV_FP32 ? from[4 * ROPE_THREADS] : uint4{};
    return floats_of<8, HALF> (t, raw);
  }
  __device__ void issue (const Rope &a, int slot, int64_t row, int i, int lanes, bool is_there) const
  {
    if (is_there && row < a.m) {
      RopeItem item = lane_item (a, row, i, lanes);
      copy (slot, 0, item.side, item.narrow);
      if (item.head >= 0) {
        copy (slot, 1, item.side, item.narrow + item.partner);
        copy (slot, 2, a.input, item.wide);
        copy (slot, 3, a.input, item.wide + item.partner);
        copy_scale (slot, a.stat_in + row * (a.heads + a.kv_heads) + item.head);
      }
    }
    copy_commit ();
  }
};

/* Item i of a row, which may be beyond the last: all lanes of a head do the same. */
template <bool HALF>
static __device__ inline void
item_back (const Rope &a, const RopeTable &t, int angle, int64_t row, int i, const ItemSlots<HALF> &slots, int slot,
           int lanes, GainSums *sums)
{
  bool is_there = row < a.m;
  RopeItem item = lane_item (a, is_there ? row : 0, i, lanes);
  bool is_head = is_there && item.head >= 0;
  Vec<8> x = slots.get (slot, 0, item.side), y = {}, gx = {}, gy = {}, in_x = {}, in_y = {};
  float dot = 0, scale = 0;

  if (is_head) {
    y = slots.get (slot, 1, item.side);
    in_x = slots.get (slot, 2, a.input);
    in_y = slots.get (slot, 3, a.input);
    scale = slots.scales[slot * ROPE_THREADS + threadIdx.x];
    rope_turn<8> (t, angle + item.first, true, &x, &y);
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

/* Rounds of a block, of no more blocks than others have that sum rows. */
static int64_t
lane_rounds (const Rope &a)
{
  return div_up (a.m * rope_items<8> (a), (int64_t) ROPE_THREADS * MOST_ROW_BLOCKS);
}

int64_t
rope_lane_blocks (const Rope &a)
{
  return div_up (a.m * rope_items<8> (a), ROPE_THREADS * lane_rounds (a));
}

/* Where a thread is in its block's items, which begin in the middle of a row. */
struct Cursor {
  int row, item; /* row: from the block's first */

  __device__ void advance (int items, int of_row)
  {
    for (item += items; item >= of_row; item -= of_row)
      row++;
  }
};

/* Angles of the block's rows, by groups of `rows` of which there are three: one, that before it, from which a round may
 * still read, and the next, which is made meanwhile. */
struct AngleGroups {
  float *cosine, *sine; /* [3,rows,half] */
  int rows;

  __device__ void make (const Rope &a, int64_t first, int group) const
  {
    int64_t from = first + (int64_t) group * rows, at = group % 3 * rows * (a.rotated / 2);
    if (from < a.m)
      angles_of (a.pos + from, (int) min ((int64_t) rows, a.m - from), (int) a.rotated, a.log2_theta, cosine + at,
                 sine + at);
  }
};

template <bool HALF>
static __global__ void
__launch_bounds__ (ROPE_THREADS, 2) rope_bwd_lanes_kernel (Rope a, int of_row, int rounds, int angle_rows)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  typedef ItemSlots<HALF> Slots;
  int64_t start = (int64_t) blockIdx.x * rounds * ROPE_THREADS, first = divide (start, of_row);
  int lanes = (int) a.k / ITEM_FEATURES, half = (int) a.rotated / 2, seen = -1;
  Slots slots = { (uint4 *) dynamic, (float *) (dynamic + Slots::scales_at) };
  float *cosine = (float *) (dynamic + Slots::bytes);
  AngleGroups angles = { cosine, cosine + 3 * angle_rows * half, angle_rows };
  RopeTable table = { angles.cosine, angles.sine, nullptr, nullptr };
  Cursor top = { 0, (int) (start - first * of_row) }, own = top, ahead;
  GainSums sums = {};

  release_next ();
  own.advance (threadIdx.x, of_row);
  top.advance (ROPE_THREADS - 1, of_row);
  ahead = own;
  for (int i = 0; i < LANES_AHEAD; i++) {
    slots.issue (a, i, first + ahead.row, ahead.item, lanes, i < rounds);
    ahead.advance (ROPE_THREADS, of_row);
  }
  angles.make (a, first, 0);
  for (int i = 0, slot = 0; i < rounds; i++) {
    if (top.row / angle_rows > seen) {
      __syncthreads (); /* what was made is there, and the group before the last is no longer read */
      seen++;
      angles.make (a, first, seen + 1);
    }
    copy_wait<LANES_AHEAD - 1> ();
    item_back<HALF> (a, table, own.row % (3 * angle_rows) * half, first + own.row, own.item, slots, slot, lanes, &sums);
    slots.issue (a, slot, first + ahead.row, ahead.item, lanes, i + LANES_AHEAD < rounds);
    slot = slot + 1 < LANES_AHEAD ? slot + 1 : 0;
    top.advance (ROPE_THREADS, of_row);
    own.advance (ROPE_THREADS, of_row);
    ahead.advance (ROPE_THREADS, of_row);
  }
  copy_wait<0> ();
  __syncthreads ();
  if (a.parts != nullptr)
    store_gain_sums (a, lanes, sums, (float *) dynamic);
}

template <bool HALF>
static cudaError_t
launch_bwd_lanes (const Rope &a, cudaStream_t stream)
{
  int of_row = rope_items<8> (a), rows = ROPE_THREADS / of_row + 2, angle_rows = rows < ANGLE_ROWS ? ANGLE_ROWS : rows;
  size_t bytes = ItemSlots<HALF>::bytes + (size_t) (3 * angle_rows * a.rotated) * sizeof (float);
  size_t sums = (size_t) (ROPE_WARPS * 2 * a.k) * sizeof (float);

  return launch (rope_bwd_lanes_kernel<HALF>, dim3 ((unsigned) rope_lane_blocks (a)), ROPE_THREADS,
                 bytes > sums ? bytes : sums, stream, a, of_row, (int) lane_rounds (a), angle_rows);
}

cudaError_t
rope_bwd_lanes (const Rope &a, cudaStream_t stream)
{
  return rope_is_half (a) ? launch_bwd_lanes<true> (a, stream) : launch_bwd_lanes<false> (a, stream);
}
