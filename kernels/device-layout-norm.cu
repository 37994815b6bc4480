/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotations of heads whose items are neighbouring lanes of one warp, all of them turned. A block has some items in a row,
 * wherever in a token's they begin, and asks for them before it makes the angles. Where heads are normed their sums are
 * those lanes'; the gains' gradients are summed in registers, as a thread has the same features of each head.
 */
#include "kernels/device-mma.cuh"
#include "kernels/device-rope.cuh"

#define ROPE_WARPS (ROPE_THREADS / 32)

/* Features of an item and of what it turns with. */
#define ITEM_FEATURES 16
#define MOST_NORMED 256 /* of whose gradients what is on its way has room on any card */

bool
has_head_lanes (const Rope &a)
{
  int lanes = (int) a.k / ITEM_FEATURES;

  return rope_width (a) == 8 && a.rotated == a.k && a.k <= (is_present (a.q_gain) ? MOST_NORMED : MOST_ROTATED) &&
         a.k % ITEM_FEATURES == 0 && lanes >= 2 && lanes <= 32 && (lanes & (lanes - 1)) == 0 &&
         a.gate % (8 * lanes) == 0 && a.m * a.width <= INT32_MAX;
}

/* Of heads, lanes and items; all fit in 32 bits. */
struct LaneShape {
  int m, k, shift, heads, both, kv_width, gate, width; /* 2^shift lanes a head; both: heads of q and keys */
  int of_row;                                          /* items */
};

static LaneShape
lane_shape (const Rope &a)
{
  LaneShape s = { (int) a.m,
                  (int) a.k,
                  0,
                  (int) a.heads,
                  (int) (a.heads + a.kv_heads),
                  (int) (a.kv_heads * a.k),
                  (int) a.gate,
                  (int) a.width,
                  rope_items<8> (a) };

  while (ITEM_FEATURES << s.shift < s.k)
    s.shift++;
  return s;
}

/* V features of a head's lower half, with those that they turn with, `partner` further in both tensors; or of values or a
 * gate, which are not turned: head is -1. */
struct LaneItem {
  SpDevTensor side;
  int wide, narrow; /* in qkv, in the other */
  int partner, first, head;
};

static __device__ inline LaneItem
lane_item (const Rope &a, const LaneShape &s, int row, int i)
{
  int head = i >> s.shift, first = (i & ((1 << s.shift) - 1)) * 8, j = (i - (s.both << s.shift)) * 8;
  int wide = row * s.width;

  if (head < s.heads)
    return { a.q, wide + head * s.k + first, (row * s.heads + head) * s.k + first, s.k / 2, first, head };
  if (head < s.both)
    return {
      a.keys, wide + head * s.k + first, row * s.kv_width + (head - s.heads) * s.k + first, s.k / 2, first, head
    };
  wide += s.both * s.k + j;
  return j < s.kv_width ? LaneItem{ a.values, wide, row * s.kv_width + j, 0, 0, -1 }
                        : LaneItem{ a.du, wide, row * s.gate + j - s.kv_width, 0, 0, -1 };
}

static __device__ inline float
lanes_sum (float x, int shift)
{
  for (int offset = (1 << shift) / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync (0xffffffffu, x, offset);
  return x;
}

/* Gains of an item's features. */
template <bool HALF>
static __device__ inline void
item_gains (const Rope &a, const LaneItem &item, Vec<8> *ret_x, Vec<8> *ret_y)
{
  SpDevTensor gain = rope_gain (a, item.head);

  *ret_x = load<8, HALF> (gain, item.first);
  *ret_y = load<8, HALF> (gain, item.first + item.partner);
}

/* --- forward, and back where there is no norm --------------------------------------------------------------------- */

#define LANE_ITEMS 2 /* of a thread, all of which are under way at once */

/* Normed, where it is a head's, and its 1/rms stored. */
template <bool HALF>
static __device__ inline void
norm_item (const Rope &a, const LaneShape &s, const LaneItem &item, int row, bool is_there, Vec<8> *x, Vec<8> *y)
{
  float squares = 0;
  Vec<8> gx, gy;

#pragma unroll
  for (int l = 0; l < 8; l++)
    squares += x->x[l] * x->x[l] + y->x[l] * y->x[l];
  squares = lanes_sum (squares, s.shift);
  if (!is_there || item.head < 0)
    return;
  float scale = 1 / sqrtf (squares / a.k + a.epsilon);
  item_gains<HALF> (a, item, &gx, &gy);
#pragma unroll
  for (int l = 0; l < 8; l++) {
    x->x[l] *= scale * gx.x[l];
    y->x[l] *= scale * gy.x[l];
  }
  if (item.first == 0)
    a.stat[row * s.both + item.head] = scale;
}

/* Whole warps go through all of it, as lanes speak with each other. */
template <bool HALF, bool NORMED, bool BACK>
static __global__ void
__launch_bounds__ (ROPE_THREADS, HALF ? 4 : 2) rope_lanes_kernel (Rope a, LaneShape s, int rows)
{
  extern __shared__ __align__ (16) float angles[];
  int64_t start = (int64_t) blockIdx.x * LANE_ITEMS * ROPE_THREADS;
  int from = (int) divide (start, s.of_row), first = (int) (start - (int64_t) from * s.of_row) + threadIdx.x;
  RopeTable table = { angles, angles + rows * s.k / 2, nullptr, nullptr };
  Raw<8> raw_x[LANE_ITEMS], raw_y[LANE_ITEMS];

#pragma unroll
  for (int p = 0; p < LANE_ITEMS; p++) {
    int here = first + p * ROPE_THREADS, row = here / s.of_row;
    LaneItem item = lane_item (a, s, min (from + row, s.m - 1), here - row * s.of_row);
    SpDevTensor in = BACK ? item.side : a.qkv;
    int at = BACK ? item.narrow : item.wide;
    raw_x[p] = fetch<8, HALF> (in, at);
    raw_y[p] = fetch<8, HALF> (in, at + item.partner);
  }
  angles_of (a.pos + from, min (rows, s.m - from), s.k, a.frequencies, table.cosine, table.sine);
  __syncthreads ();
#pragma unroll
  for (int p = 0; p < LANE_ITEMS; p++) {
    int here = first + p * ROPE_THREADS, row = here / s.of_row;
    bool is_there = from + row < s.m;
    LaneItem item = lane_item (a, s, is_there ? from + row : 0, here - row * s.of_row); /* not worth its registers */
    SpDevTensor in = BACK ? item.side : a.qkv, out = BACK ? a.qkv : item.side;
    int at = BACK ? item.wide : item.narrow;
    Vec<8> x = floats_of<8, HALF> (in, raw_x[p]), y = floats_of<8, HALF> (in, raw_y[p]);

    if (NORMED)
      norm_item<HALF> (a, s, item, from + row, is_there, &x, &y);
    if (!is_there)
      continue;
    if (item.head >= 0) {
      rope_turn<8> (table, row * (s.k / 2) + item.first, BACK, &x, &y);
      store<8, HALF> (out, at + item.partner, y);
    }
    store<8, HALF> (out, at, x);
  }
}

template <bool NORMED, bool BACK>
static cudaError_t
launch_lanes (const Rope &a, cudaStream_t stream)
{
  LaneShape s = lane_shape (a);
  int of_block = LANE_ITEMS * ROPE_THREADS, rows = (of_block - 1) / s.of_row + 2;

  return launch (rope_is_half (a) ? rope_lanes_kernel<true, NORMED, BACK> : rope_lanes_kernel<false, NORMED, BACK>,
                 dim3 ((unsigned) div_up (a.m * s.of_row, of_block)), ROPE_THREADS,
                 (size_t) (rows * s.k) * sizeof (float), stream, a, s, rows);
}

cudaError_t
rope_lanes (const Rope &a, cudaStream_t stream)
{
  return is_present (a.q_gain) ? launch_lanes<true, false> (a, stream) : launch_lanes<false, false> (a, stream);
}

/* --- back through the norm ---------------------------------------------------------------------------------------- */

/* A thread's sums for the gains of its features: of heads of queries, and of keys. */
struct GainSums {
  Vec<8> x[2], y[2];
};

/* What is on its way to shared memory: items of some rounds of the block, each thread's at a place of its own. */
#define LEAST_ANGLE_SHIFT 3 /* of the rows whose angles are made at once */

/* x, y and the norm's input to both, each of one or of two halves. */
template <bool HALF> struct ItemSlots {
  uint4 *slots;  /* [AHEAD,4 or 8,threads] */
  float *scales; /* [AHEAD,threads] */
  static constexpr int UNITS = HALF ? 4 : 8, AHEAD = HALF ? 3 : 2;
  static constexpr int scales_at = AHEAD * UNITS * ROPE_THREADS * (int) sizeof (uint4);
  static constexpr int bytes = scales_at + AHEAD * ROPE_THREADS * (int) sizeof (float);

  __device__ uint32_t at (int slot, int unit) const
  {
    return (uint32_t) __cvta_generic_to_shared (slots + (slot * UNITS + unit) * ROPE_THREADS + threadIdx.x);
  }
  __device__ void copy (int slot, int operand, SpDevTensor t, int i) const
  {
    bool is_wide = !HALF && t.dtype == SP_DEV_FP32;
    const char *from = (const char *) t.data + ((int64_t) i << (is_wide ? 2 : 1));

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
  __device__ void issue (const Rope &a, const LaneShape &s, int slot, int row, int i, bool is_there) const
  {
    if (is_there && row < s.m) {
      LaneItem item = lane_item (a, s, row, i);
      copy (slot, 0, item.side, item.narrow);
      if (item.head >= 0) {
        copy (slot, 1, item.side, item.narrow + item.partner);
        copy (slot, 2, a.input, item.wide);
        copy (slot, 3, a.input, item.wide + item.partner);
        copy_scale (slot, a.stat_in + row * s.both + item.head);
      }
    }
    copy_commit ();
  }
};

/* Adds x z to a sum, where z is the normed input: u is x times the input. */
static __device__ inline void
add_gains (Vec<8> *sum_x, Vec<8> *sum_y, const Vec<8> &ux, const Vec<8> &uy, float scale)
{
#pragma unroll
  for (int l = 0; l < 8; l++) {
    sum_x->x[l] += ux.x[l] * scale;
    sum_y->x[l] += uy.x[l] * scale;
  }
}

/* Item i of a row, which may be beyond the last. All lanes of a head do the same. */
template <bool HALF>
static __device__ inline void
item_back (const Rope &a, const LaneShape &s, const RopeTable &t, int angle, int row, int i,
           const ItemSlots<HALF> &slots, int slot, GainSums *sums)
{
  bool is_there = row < s.m;
  LaneItem item = lane_item (a, s, is_there ? row : 0, i);
  Vec<8> x = slots.get (slot, 0, item.side), y = {}, ux = {}, uy = {}, gx = {}, gy = {}, in_x = {}, in_y = {};
  float dot = 0, scale = 0;

  if (is_there && item.head >= 0) {
    y = slots.get (slot, 1, item.side);
    in_x = slots.get (slot, 2, a.input);
    in_y = slots.get (slot, 3, a.input);
    scale = slots.scales[slot * ROPE_THREADS + threadIdx.x];
    rope_turn<8> (t, angle + item.first, true, &x, &y);
    item_gains<HALF> (a, item, &gx, &gy);
#pragma unroll
    for (int l = 0; l < 8; l++) {
      ux.x[l] = x.x[l] * in_x.x[l];
      uy.x[l] = y.x[l] * in_y.x[l];
      dot += gx.x[l] * ux.x[l] + gy.x[l] * uy.x[l];
    }
    if (item.head < s.heads)
      add_gains (&sums->x[0], &sums->y[0], ux, uy, scale);
    else
      add_gains (&sums->x[1], &sums->y[1], ux, uy, scale);
  }
  dot = lanes_sum (dot, s.shift) * scale * scale * scale / a.k;
  if (!is_there)
    return;
  if (item.head >= 0) {
#pragma unroll
    for (int l = 0; l < 8; l++) {
      x.x[l] = scale * (gx.x[l] * x.x[l]) - in_x.x[l] * dot;
      y.x[l] = scale * (gy.x[l] * y.x[l]) - in_y.x[l] * dot;
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

/* Where a thread is in its block's items, which begin in the middle of a row. */
struct Cursor {
  int row, item; /* row: from the block's first */

  __device__ void advance (int items, int of_row)
  {
    for (item += items; item >= of_row; item -= of_row)
      row++;
  }
};

/* Angles of the block's rows, by groups of 2^shift, of which four have a place: one, that before it, from which a round may
 * still read, and the next, which is made meanwhile. */
#define ANGLE_GROUPS 4

struct AngleGroups {
  float *cosine, *sine; /* [ANGLE_GROUPS,rows,half] */
  int shift;

  __device__ void make (const Rope &a, int first, int group) const
  {
    int from = first + (group << shift), at = (group % ANGLE_GROUPS << shift) * (int) (a.rotated / 2);
    if (from < a.m)
      angles_of (a.pos + from, min (1 << shift, (int) a.m - from), (int) a.rotated, a.frequencies, cosine + at,
                 sine + at);
  }
  /* Where those of a row are. */
  __device__ int at (int row, int half) const
  {
    return (row & ((ANGLE_GROUPS << shift) - 1)) * half;
  }
};

template <bool HALF>
static __global__ void
__launch_bounds__ (ROPE_THREADS, 2) rope_bwd_lanes_kernel (Rope a, LaneShape s, int rounds, int angle_shift)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  typedef ItemSlots<HALF> Slots;
  int64_t start = (int64_t) blockIdx.x * rounds * ROPE_THREADS;
  int first = (int) divide (start, s.of_row), half = s.k / 2, seen = -1;
  Slots slots = { (uint4 *) dynamic, (float *) (dynamic + Slots::scales_at) };
  float *cosine = (float *) (dynamic + Slots::bytes);
  AngleGroups angles = { cosine, cosine + (ANGLE_GROUPS << angle_shift) * half, angle_shift };
  RopeTable table = { angles.cosine, angles.sine, nullptr, nullptr };
  Cursor top = { 0, (int) (start - (int64_t) first * s.of_row) }, own = top, ahead;
  GainSums sums = {};

  release_next ();
  own.advance (threadIdx.x, s.of_row);
  top.advance (ROPE_THREADS - 1, s.of_row);
  ahead = own;
  for (int i = 0; i < Slots::AHEAD; i++) {
    slots.issue (a, s, i, first + ahead.row, ahead.item, i < rounds);
    ahead.advance (ROPE_THREADS, s.of_row);
  }
  angles.make (a, first, 0);
  for (int i = 0, slot = 0; i < rounds; i++) {
    if (top.row >> angle_shift > seen) {
      __syncthreads (); /* what was made is there, and the group before the last is no longer read */
      seen++;
      angles.make (a, first, seen + 1);
    }
    copy_wait<Slots::AHEAD - 1> ();
    item_back<HALF> (a, s, table, angles.at (own.row, half), first + own.row, own.item, slots, slot, &sums);
    slots.issue (a, s, slot, first + ahead.row, ahead.item, i + Slots::AHEAD < rounds);
    slot = slot + 1 < Slots::AHEAD ? slot + 1 : 0;
    top.advance (ROPE_THREADS, s.of_row);
    own.advance (ROPE_THREADS, s.of_row);
    ahead.advance (ROPE_THREADS, s.of_row);
  }
  copy_wait<0> ();
  __syncthreads ();
  if (a.parts != nullptr)
    store_gain_sums (a, 1 << s.shift, sums, (float *) dynamic);
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

template <bool HALF>
static cudaError_t
launch_bwd_lanes (const Rope &a, cudaStream_t stream)
{
  LaneShape s = lane_shape (a);
  int angle_shift = LEAST_ANGLE_SHIFT;

  while (1 << angle_shift < ROPE_THREADS / s.of_row + 2)
    angle_shift++;
  size_t bytes = ItemSlots<HALF>::bytes + (size_t) ((ANGLE_GROUPS << angle_shift) * s.k) * sizeof (float);
  size_t sums = (size_t) (ROPE_WARPS * 2 * s.k) * sizeof (float);

  return launch (rope_bwd_lanes_kernel<HALF>, dim3 ((unsigned) rope_lane_blocks (a)), ROPE_THREADS,
                 bytes > sums ? bytes : sums, stream, a, s, (int) lane_rounds (a), angle_shift);
}

cudaError_t
rope_bwd_lanes (const Rope &a, cudaStream_t stream)
{
  if (!is_present (a.q_gain))
    return launch_lanes<false, true> (a, stream);
  return rope_is_half (a) ? launch_bwd_lanes<true> (a, stream) : launch_bwd_lanes<false> (a, stream);
}
