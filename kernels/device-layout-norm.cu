/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotations of heads whose items are neighbouring lanes of one warp, all of them turned. A thread has the same item of
 * each of its rows, so that where that lies is worked out once. Where heads are normed their sums are over those lanes;
 * the gains' gradients are summed in registers. Values and gates go along as heads that are not turned.
 */
#include "kernels/device-mma.cuh"
#include "kernels/device-rope.cuh"

/* Features of an item: 8 of a head's lower half, and those that they turn with. */
#define ITEM_FEATURES 16
#define MOST_NORMED 256 /* of whose gradients what is on its way has room on any card */
bool
has_head_lanes (const Rope &a)
{
  int lanes = (int) a.k / ITEM_FEATURES;

  return rope_width (a) == 8 && a.rotated == a.k && a.k <= (is_present (a.q_gain) ? MOST_NORMED : MOST_ROTATED) &&
         a.k % ITEM_FEATURES == 0 && lanes >= 2 && lanes <= 32 && (lanes & (lanes - 1)) == 0 && a.gate % a.k == 0 &&
         a.m * a.width <= INT32_MAX;
}

/* Of heads, lanes and items; all fit in 32 bits. */
struct LaneShape {
  int m, k, shift, heads, both, all; /* 2^shift lanes a head; heads of queries, with those of keys, with all others */
  int kv_heads, width;
  int threads, pieces; /* threads of a block, and blocks that share a row */
  float inverse;       /* 1/k */
};

static LaneShape
lane_shape (const Rope &a, int most_threads)
{
  LaneShape s = {};
  int items;

  s.m = (int) a.m;
  s.k = (int) a.k;
  while (ITEM_FEATURES << s.shift < s.k)
    s.shift++;
  s.heads = (int) a.heads;
  s.kv_heads = (int) a.kv_heads;
  s.both = s.heads + s.kv_heads;
  s.all = s.both + s.kv_heads + (is_present (a.du) ? (int) (a.gate / a.k) : 0);
  s.width = (int) a.width;
  s.inverse = 1 / (float) a.k;
  items = s.all << s.shift;
  s.pieces = (int) div_up (items, most_threads);
  s.threads = (int) div_up (div_up (items, s.pieces), 32) * 32;
  return s;
}

enum LaneKind { LANE_QUERY, LANE_KEY, LANE_OTHER };

/* Of a thread: where its item lies in row 0 of qkv and of the other tensor, and how far it is to that of the next row. What
 * it turns with is k / 2 further in both. Threads beyond the last item do as the last, and store nothing. */
struct LaneItem {
  SpDevTensor side, gain;
  int wide, narrow, step;
  int head, first; /* first: of the head's features */
  LaneKind kind;
  bool is_there;

  __device__ LaneItem (const Rope &a, const LaneShape &s, int piece)
  {
    int i = piece * s.threads + threadIdx.x, own;

    is_there = i >> s.shift < s.all;
    head = min (i >> s.shift, s.all - 1);
    first = (i & ((1 << s.shift) - 1)) * 8;
    wide = head * s.k + first;
    kind = head < s.heads ? LANE_QUERY : head < s.both ? LANE_KEY : LANE_OTHER;
    gain = kind == LANE_QUERY ? a.q_gain : a.key_gain;
    if (head < s.heads) {
      side = a.q;
      step = s.heads;
      own = head;
    } else if (head < s.both + s.kv_heads) {
      side = head < s.both ? a.keys : a.values;
      step = s.kv_heads;
      own = head - (head < s.both ? s.heads : s.both);
    } else {
      side = a.du;
      step = s.all - s.both - s.kv_heads;
      own = head - s.both - s.kv_heads;
    }
    narrow = own * s.k + first;
    step *= s.k;
  }
};

/* What a thread takes of a row: features of the lower half, and those that they turn with. */
struct Pair {
  Vec<8> x, y;
};

template <bool HALF>
static __device__ inline void
store_item (SpDevTensor t, int64_t i, int half, const Pair &p)
{
  store<8, HALF> (t, i, p.x);
  store<8, HALF> (t, i + half, p.y);
}

/* Of the 2^shift lanes of a head, which all call it. */
static __device__ inline float
lanes_sum (float x, int shift)
{
  unsigned lanes = 1u << shift, first = threadIdx.x % 32 & ~(lanes - 1), mask = (0xffffffffu >> (32 - lanes)) << first;

  for (unsigned offset = lanes / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync (mask, x, offset);
  return x;
}

/* --- forward, and back where there is no norm --------------------------------------------------------------------- */

#define LANE_THREADS 128
#define LANE_ROWS 2

/* Normed, where it is a head's, and its 1/rms stored. */
static __device__ inline void
norm_item (const Rope &a, const LaneShape &s, const LaneItem &item, const Pair &gains, int row, bool is_there, Pair *p)
{
  float squares = 0;

#pragma unroll
  for (int l = 0; l < 8; l++)
    squares += p->x.x[l] * p->x.x[l] + p->y.x[l] * p->y.x[l];
  squares = lanes_sum (squares, s.shift);
  if (item.kind == LANE_OTHER)
    return;
  float scale = rsqrtf (squares * s.inverse + a.epsilon);
#pragma unroll
  for (int l = 0; l < 8; l++) {
    p->x.x[l] *= scale * gains.x.x[l];
    p->y.x[l] *= scale * gains.y.x[l];
  }
  if (item.first == 0 && is_there)
    a.stat[row * s.both + item.head] = scale;
}

/* A block has LANE_ROWS rows, all of which are under way at once. Whole warps go through all of it, as lanes speak with
 * each other. */
template <bool HALF, bool NORMED, bool BACK>
static __global__ void
__launch_bounds__ (LANE_THREADS, HALF ? 8 : 4) rope_lanes_kernel (Rope a, LaneShape s)
{
  extern __shared__ __align__ (16) float angles[];
  int some = s.pieces > 1 ? blockIdx.x / s.pieces : blockIdx.x, from = some * LANE_ROWS, half = s.k / 2;
  LaneItem item (a, s, blockIdx.x - some * s.pieces);
  SpDevTensor in = BACK ? item.side : a.qkv, out = BACK ? a.qkv : item.side;
  RopeTable table = { angles, angles + LANE_ROWS * half, nullptr, nullptr };
  Raw<8> raw_x[LANE_ROWS], raw_y[LANE_ROWS];
  Raw<8> gain_x, gain_y;

  take_turn ();
#pragma unroll
  for (int r = 0; r < LANE_ROWS; r++) {
    int row = min (from + r, s.m - 1), at = BACK ? item.narrow + row * item.step : item.wide + row * s.width;
    raw_x[r] = fetch<8, HALF> (in, at);
    raw_y[r] = fetch<8, HALF> (in, at + half);
  }
  if (NORMED) {
    gain_x = fetch<8, HALF> (item.gain, item.first);
    gain_y = fetch<8, HALF> (item.gain, item.first + half);
  }
  angles_of (a.pos + from, min (LANE_ROWS, s.m - from), s.k, a.frequencies, table.cosine, table.sine);
  __syncthreads ();
#pragma unroll
  for (int r = 0; r < LANE_ROWS; r++) {
    int row = from + r, at = BACK ? item.wide + row * s.width : item.narrow + row * item.step;
    bool is_there = item.is_there && row < s.m;
    Pair p = { floats_of<8, HALF> (in, raw_x[r]), floats_of<8, HALF> (in, raw_y[r]) };

    if (NORMED)
      norm_item (a, s, item, { floats_of<8, HALF> (item.gain, gain_x), floats_of<8, HALF> (item.gain, gain_y) }, row,
                 is_there, &p);
    if (item.kind != LANE_OTHER)
      rope_turn<8> (table, r * half + item.first, BACK, &p.x, &p.y);
    if (is_there)
      store_item<HALF> (out, at, half, p);
  }
}

template <bool NORMED, bool BACK>
static cudaError_t
launch_lanes (const Rope &a, cudaStream_t stream)
{
  LaneShape s = lane_shape (a, LANE_THREADS);

  return launch_early (rope_is_half (a) ? rope_lanes_kernel<true, NORMED, BACK>
                                        : rope_lanes_kernel<false, NORMED, BACK>,
                       dim3 ((unsigned) (div_up (s.m, LANE_ROWS) * s.pieces)), s.threads,
                       (size_t) (LANE_ROWS * s.k) * sizeof (float), stream, a, s);
}

cudaError_t
rope_lanes (const Rope &a, cudaStream_t stream)
{
  return is_present (a.q_gain) ? launch_lanes<true, false> (a, stream) : launch_lanes<false, false> (a, stream);
}

/* --- back through the norm ---------------------------------------------------------------------------------------- */

/* What is on its way to shared memory: some rows, each thread's items at a place of its own. A row's has x, y, and the
 * norm's input to both, each of one or of two units. */
#define BACK_THREADS 384
#define BACK_BLOCKS 256 /* no more than MOST_ROW_BLOCKS, and powers of two of rows go round evenly */

template <bool HALF> struct ItemSlots {
  uint4 *slots;  /* [AHEAD,UNITS,threads] */
  float *scales; /* [AHEAD,threads] */
  static constexpr int UNITS = HALF ? 4 : 8, AHEAD = 2;

  static __host__ __device__ int scales_at (int threads)
  {
    return AHEAD * UNITS * threads * (int) sizeof (uint4);
  }
  static __host__ __device__ int bytes (int threads)
  {
    return scales_at (threads) + AHEAD * threads * (int) sizeof (float);
  }
  __device__ uint4 *at (int slot, int unit) const
  {
    return slots + (slot * UNITS + unit) * blockDim.x + threadIdx.x;
  }
  __device__ void copy (int slot, int operand, SpDevTensor t, int64_t i) const
  {
    bool is_wide = !HALF && t.dtype == SP_DEV_FP32;
    const char *from = (const char *) t.data + (i << (is_wide ? 2 : 1));

    copy_16 ((uint32_t) __cvta_generic_to_shared (at (slot, operand)), from, true);
    if (is_wide)
      copy_16 ((uint32_t) __cvta_generic_to_shared (at (slot, operand + 4)), from + 16, true);
  }
  __device__ Vec<8> get (int slot, int operand, SpDevTensor t) const
  {
    Raw<8> raw;

    raw.a = *at (slot, operand);
    raw.b = !HALF && t.dtype == SP_DEV_FP32 ? *at (slot, operand + 4) : uint4{};
    return floats_of<8, HALF> (t, raw);
  }
  __device__ void issue (const Rope &a, const LaneShape &s, const LaneItem &item, int slot, int row,
                         bool is_there) const
  {
    if (is_there) {
      copy (slot, 0, item.side, item.narrow + row * item.step);
      copy (slot, 1, item.side, item.narrow + row * item.step + s.k / 2);
      if (item.kind != LANE_OTHER) {
        uint32_t to = (uint32_t) __cvta_generic_to_shared (scales + slot * blockDim.x + threadIdx.x);
        copy (slot, 2, a.input, item.wide + row * s.width);
        copy (slot, 3, a.input, item.wide + row * s.width + s.k / 2);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(a.stat_in + row * s.both + item.head)
                     : "memory");
      }
    }
    copy_commit ();
  }
};

/* Through the turn and the norm: p is the gradient, `in` the norm's input. All lanes of a head do the same. */
static __device__ inline void
norm_item_back (const LaneShape &s, const RopeTable &t, int angle, const Pair &gains, const Pair &in, float scale,
                Pair *p, Pair *sums)
{
  float dot = 0;

  rope_turn<8> (t, angle, true, &p->x, &p->y);
#pragma unroll
  for (int l = 0; l < 8; l++) {
    float x = p->x.x[l] * scale, y = p->y.x[l] * scale;
    sums->x.x[l] += x * in.x.x[l];
    sums->y.x[l] += y * in.y.x[l];
    p->x.x[l] = x * gains.x.x[l];
    p->y.x[l] = y * gains.y.x[l];
    dot += p->x.x[l] * in.x.x[l] + p->y.x[l] * in.y.x[l];
  }
  dot = lanes_sum (dot, s.shift) * (scale * scale * s.inverse);
#pragma unroll
  for (int l = 0; l < 8; l++) {
    p->x.x[l] -= in.x.x[l] * dot;
    p->y.x[l] -= in.y.x[l] * dot;
  }
}

/* A block's part, of queries and of keys: lanes of the same features in a warp, and then the warps in their order. shared:
 * [warps,2,k]. */
static __device__ inline void
store_gain_sums (const Rope &a, int lanes, LaneKind kind, const Pair &sums, float *shared)
{
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = (int) a.k;

#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int l = 0; l < 8; l++) {
      float sum = kind != i % 2 ? 0 : i < 2 ? sums.x.x[l] : sums.y.x[l];
      for (int offset = lanes; offset < 32; offset *= 2)
        sum += __shfl_xor_sync (0xffffffffu, sum, offset);
      if (lane < lanes)
        shared[(2 * warp + i % 2) * k + (i < 2 ? 0 : k / 2) + lane * 8 + l] = sum;
    }
  __syncthreads ();
  for (int i = threadIdx.x; i < 2 * k; i += blockDim.x) {
    float sum = 0;
    for (int w = 0; w < (int) blockDim.x / 32; w++)
      sum += shared[2 * w * k + i];
    a.parts[blockIdx.x * 2 * a.k + i] = sum;
  }
}

/* Angles of ANGLE_ROWS rows of the block's at once; those that come next are made while these are read. */
#define ANGLE_ROWS 8

static __device__ inline void
make_angles (const Rope &a, const RopeTable &t, int first, int end, int group)
{
  int from = first + group * ANGLE_ROWS, at = group % 2 * ANGLE_ROWS * (int) (a.rotated / 2);

  if (from < end)
    angles_of (a.pos + from, min (ANGLE_ROWS, end - from), (int) a.rotated, a.frequencies, t.cosine + at, t.sine + at);
}

template <bool HALF>
static __global__ void
__launch_bounds__ (BACK_THREADS, HALF ? 2 : 1) rope_bwd_lanes_kernel (Rope a, LaneShape s)
{
  extern __shared__ __align__ (16) unsigned char dynamic[];
  typedef ItemSlots<HALF> Slots;
  int some = blockIdx.x / s.pieces, somes = gridDim.x / s.pieces, half = s.k / 2;
  int first = (int) divide ((int64_t) some * s.m, somes), end = (int) divide ((some + 1ll) * s.m, somes);
  LaneItem item (a, s, blockIdx.x - some * s.pieces);
  Slots slots = { (uint4 *) dynamic, (float *) (dynamic + Slots::scales_at (blockDim.x)) };
  float *cosine = (float *) (dynamic + Slots::bytes (blockDim.x));
  RopeTable table = { cosine, cosine + 2 * ANGLE_ROWS * half, nullptr, nullptr };
  Pair sums = {};

  take_turn ();
  for (int i = 0; i < Slots::AHEAD; i++)
    slots.issue (a, s, item, i, first + i, first + i < end);
  const Raw<8> gain_x = fetch<8, HALF> (item.gain, item.first), gain_y = fetch<8, HALF> (item.gain, item.first + half);
  make_angles (a, table, first, end, 0);
  for (int i = 0, slot = 0; first + i < end; i++) {
    int row = first + i;
    if (i % ANGLE_ROWS == 0) {
      __syncthreads (); /* what was made is there, and what was before it is no longer read */
      make_angles (a, table, first, end, i / ANGLE_ROWS + 1);
    }
    copy_wait<Slots::AHEAD - 1> ();
    Pair p = { slots.get (slot, 0, item.side), slots.get (slot, 1, item.side) };
    if (item.kind != LANE_OTHER) {
      Pair gains = { floats_of<8, HALF> (item.gain, gain_x), floats_of<8, HALF> (item.gain, gain_y) };
      Pair in = { slots.get (slot, 2, a.input), slots.get (slot, 3, a.input) };
      norm_item_back (s, table, i % (2 * ANGLE_ROWS) * half + item.first, gains, in,
                      slots.scales[slot * blockDim.x + threadIdx.x], &p, &sums);
    }
    slots.issue (a, s, item, slot, row + Slots::AHEAD, row + Slots::AHEAD < end);
    slot = slot + 1 < Slots::AHEAD ? slot + 1 : 0;
    if (item.is_there)
      store_item<HALF> (a.qkv, item.wide + row * s.width, half, p);
  }
  copy_wait<0> ();
  __syncthreads ();
  if (a.parts != nullptr)
    store_gain_sums (a, 1 << s.shift, item.is_there ? item.kind : LANE_OTHER, sums, (float *) dynamic);
}

/* As many as have a row, and no more than others have that sum rows. */
int64_t
rope_lane_blocks (const Rope &a)
{
  int64_t pieces = lane_shape (a, BACK_THREADS).pieces, most = BACK_BLOCKS / pieces;

  return (a.m < most ? a.m : most) * pieces;
}

template <bool HALF>
static cudaError_t
launch_bwd_lanes (const Rope &a, cudaStream_t stream)
{
  LaneShape s = lane_shape (a, BACK_THREADS);
  size_t bytes = (size_t) ItemSlots<HALF>::bytes (s.threads) + (size_t) (2 * ANGLE_ROWS * s.k) * sizeof (float);
  size_t sums = (size_t) (s.threads / 32 * 2 * s.k) * sizeof (float);

  return launch_early (rope_bwd_lanes_kernel<HALF>, dim3 ((unsigned) rope_lane_blocks (a)), s.threads,
                       bytes > sums ? bytes : sums, stream, a, s);
}

cudaError_t
rope_bwd_lanes (const Rope &a, cudaStream_t stream)
{
  if (!is_present (a.q_gain))
    return launch_lanes<false, true> (a, stream);
  return rope_is_half (a) ? launch_bwd_lanes<true> (a, stream) : launch_bwd_lanes<false> (a, stream);
}
