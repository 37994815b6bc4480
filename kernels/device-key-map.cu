/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maps from a projection to q, keys and values, and back. Where a head's vectors are neighbouring lanes of one warp, a
 * norm is over these and a rotation between the two vectors that a lane has, and each operand is read once, 16 bytes at a
 * time. Maps that know no heads go element by element; other heads have a warp each.
 */
#include "kernels/device-angles.cuh"
#include "kernels/device-unary.cuh"

#define L2_EPSILON 1e-6f

struct KeyMap {
  int64_t m, k, keys, values; /* keys, values: features of all heads */
  unsigned map;
  Frequencies frequencies;
  const int32_t *pos;
  SpDevTensor qkv, side[3]; /* of the backward side: dq, dkeys, dvalues; qkv may be absent where no map needs it */
  SpDevTensor dqkv;
  bool backward;

  /* Element by element. */
  template <int V> __device__ void at (int64_t i) const
  {
    int64_t width = 2 * keys + values, row = divide (i, width), column = i - row * width;
    int which = column < keys ? 0 : column < 2 * keys ? 1 : 2;
    int64_t own = which < 2 ? row * keys + column - which * keys : row * values + column - 2 * keys;
    SpDevTensor to = which == 0 ? side[0] : which == 1 ? side[1] : side[2];
    bool is_mapped = map & (which < 2 ? SP_DEV_MAP_SILU : SP_DEV_MAP_SILU_VALUES);
    Vec<V> x = load_or<V> (backward && !is_mapped ? SpDevTensor{} : qkv, i, 0);

    if (backward) {
      Vec<V> d = load<V> (to, own);
#pragma unroll
      for (int l = 0; l < V; l++)
        d.x[l] *= is_mapped ? silu_slope (x.x[l]) : 1;
      store<V> (dqkv, i, d);
      return;
    }
#pragma unroll
    for (int l = 0; l < V; l++)
      x.x[l] = is_mapped ? silu (x.x[l]) : x.x[l];
    store<V> (to, own, x);
  }
};

/* --- heads whose vectors are lanes -------------------------------------------------------------------------------- */

#define MAP_THREADS 256
#define MAP_ITEMS 2      /* of a thread at once */
#define ITEM_FEATURES 16 /* two vectors of 8 */

/* What a lane takes at once: of queries and keys a vector of a head's lower half and the one that it turns with, of the
 * values two vectors. */
struct MapItem {
  int wide, narrow; /* in qkv, in the other */
  int second;       /* from the first vector to the second */
  int row, first;   /* row: of the block's; first: of the head's */
  int side;         /* of the three */
  bool is_there, has_second;
};

static int
map_lanes (const KeyMap &a)
{
  return (int) a.k / ITEM_FEATURES;
}

static bool
has_map_lanes (const KeyMap &a)
{
  std::initializer_list<SpDevTensor> all = { a.qkv, a.side[0], a.side[1], a.side[2], a.dqkv };
  int lanes = map_lanes (a);

  return are_half (all) && width_of ({ a.keys, a.values }, all) == 8 && a.k % ITEM_FEATURES == 0 && lanes >= 1 &&
         lanes <= 32 && (lanes & (lanes - 1)) == 0 && a.m * (2 * a.keys + a.values) <= INT32_MAX;
}

/* Lanes of a row, in whole heads: of queries, keys, and values as if they were heads of keys. */
static int
map_items (const KeyMap &a)
{
  return (int) ((2 * a.keys + div_up (a.values, a.k) * a.k) / ITEM_FEATURES);
}

/* Item i from the first of row `from`; what is beyond the last is of it, and has no side. */
static __device__ inline MapItem
map_item (const KeyMap &a, int lanes, int of_row, int from, int i)
{
  int in_block = i / of_row, of_keys = (int) a.keys / ITEM_FEATURES, row = min (from + in_block, (int) a.m - 1);
  int in_row = i - in_block * of_row, side = in_row < of_keys ? 0 : in_row < 2 * of_keys ? 1 : 2;
  int own = in_row - side * of_keys, in_head = own & (lanes - 1), width = (int) (side < 2 ? a.keys : a.values);
  int column = (own - in_head) * ITEM_FEATURES + in_head * 8;
  bool is_there = from + in_block < a.m && column < width, has_second = column + 8 * lanes < width;
  MapItem item;

  column = min (column, width - 8);
  item.wide = row * (int) (2 * a.keys + a.values) + side * (int) a.keys + column;
  item.narrow = row * width + column;
  item.second = has_second ? 8 * lanes : 0;
  item.row = in_block;
  item.first = in_head * 8;
  item.side = side;
  item.is_there = is_there;
  item.has_second = is_there && has_second;
  return item;
}

static __device__ inline SpDevTensor
side_of (const KeyMap &a, int side)
{
  return side == 0 ? a.side[0] : side == 1 ? a.side[1] : a.side[2];
}

static __device__ inline float
lanes_sum (float x, int lanes)
{
  for (int offset = lanes / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync (0xffffffffu, x, offset);
  return x;
}

/* By the angle or, backward, against it. */
static __device__ inline void
turn_item (const float *cosine, const float *sine, bool back, Vec<8> *x, Vec<8> *y)
{
#pragma unroll
  for (int l = 0; l < 8; l += 4) {
    const float4 cs = *(const float4 *) (cosine + l), ss = *(const float4 *) (sine + l);
    const float c[4] = { cs.x, cs.y, cs.z, cs.w }, s[4] = { ss.x, ss.y, ss.z, ss.w };
#pragma unroll
    for (int e = 0; e < 4; e++) {
      float low = x->x[l + e], high = y->x[l + e], signed_sine = back ? -s[e] : s[e];
      x->x[l + e] = low * c[e] - high * signed_sine;
      y->x[l + e] = high * c[e] + low * signed_sine;
    }
  }
}

/* Its norm's sum is over all lanes of a warp that share a head, whatever these hold. */
static __device__ inline void
map_forward (const KeyMap &a, int lanes, const MapItem &item, const float *cosine, const float *sine, Vec<8> *x,
             Vec<8> *y)
{
  bool is_key = item.side < 2;
  float squares = 0;

  if (a.map & (is_key ? SP_DEV_MAP_SILU : SP_DEV_MAP_SILU_VALUES))
#pragma unroll
    for (int l = 0; l < 8; l++) {
      x->x[l] = silu (x->x[l]);
      y->x[l] = silu (y->x[l]);
    }
  if (a.map & SP_DEV_MAP_L2) {
#pragma unroll
    for (int l = 0; l < 8; l++)
      squares += x->x[l] * x->x[l] + y->x[l] * y->x[l];
    float scale = is_key ? rsqrt_fast (lanes_sum (squares, lanes) + L2_EPSILON) : 1;
#pragma unroll
    for (int l = 0; l < 8; l++) {
      x->x[l] *= scale;
      y->x[l] *= scale;
    }
  }
  if (a.map & SP_DEV_MAP_ROTATE && is_key)
    turn_item (cosine, sine, false, x, y);
}

/* dx, dy: the gradients; x, y: what was mapped. */
static __device__ inline void
map_backward (const KeyMap &a, int lanes, const MapItem &item, const float *cosine, const float *sine, Vec<8> *dx,
              Vec<8> *dy, Vec<8> *x, Vec<8> *y)
{
  bool is_key = item.side < 2, has_silu = a.map & (is_key ? SP_DEV_MAP_SILU : SP_DEV_MAP_SILU_VALUES);
  Vec<8> slope_x, slope_y;
  float squares = 0, dot = 0;

#pragma unroll
  for (int l = 0; l < 8; l++)
    slope_x.x[l] = slope_y.x[l] = 1;
  if (a.map & SP_DEV_MAP_ROTATE && is_key)
    turn_item (cosine, sine, true, dx, dy);
  if (has_silu)
#pragma unroll
    for (int l = 0; l < 8; l++) {
      float s = sigmoid (x->x[l]), t = sigmoid (y->x[l]);
      x->x[l] *= s;
      y->x[l] *= t;
      slope_x.x[l] = s + x->x[l] * (1 - s);
      slope_y.x[l] = t + y->x[l] * (1 - t);
    }
  if (a.map & SP_DEV_MAP_L2) {
#pragma unroll
    for (int l = 0; l < 8; l++) {
      squares += x->x[l] * x->x[l] + y->x[l] * y->x[l];
      dot += x->x[l] * dx->x[l] + y->x[l] * dy->x[l];
    }
    squares = lanes_sum (squares, lanes) + L2_EPSILON;
    dot = lanes_sum (dot, lanes);
    float scale = is_key ? rsqrt_fast (squares) : 1, share = is_key ? dot * scale * scale : 0;
#pragma unroll
    for (int l = 0; l < 8; l++) {
      dx->x[l] = (dx->x[l] - x->x[l] * share) * scale;
      dy->x[l] = (dy->x[l] - y->x[l] * share) * scale;
    }
  }
#pragma unroll
  for (int l = 0; l < 8; l++) {
    dx->x[l] *= slope_x.x[l];
    dy->x[l] *= slope_y.x[l];
  }
}

/* What maps its input back has that to read too. Whole warps go through all of it, as lanes speak with each other. */
template <bool BACKWARD, bool INPUT>
static __global__ void
__launch_bounds__ (MAP_THREADS, INPUT ? 3 : 4) key_map_lanes_kernel (KeyMap a, int lanes, int of_row, int rows)
{
  extern __shared__ __align__ (16) float angles[];
  int64_t start = (int64_t) blockIdx.x * MAP_ITEMS * MAP_THREADS;
  int from = (int) divide (start, of_row), first = (int) (start - (int64_t) from * of_row) + threadIdx.x;
  float *cosine = angles, *sine = angles + rows * (a.k / 2);
  Raw<8> raw[MAP_ITEMS][2], input[MAP_ITEMS][2] = {};

  take_turn ();
#pragma unroll
  for (int p = 0; p < MAP_ITEMS; p++) {
    MapItem item = map_item (a, lanes, of_row, from, first + p * MAP_THREADS);
    SpDevTensor in = BACKWARD ? side_of (a, item.side) : a.qkv;
    int at = BACKWARD ? item.narrow : item.wide;

    raw[p][0] = fetch<8, true> (in, at);
    raw[p][1] = fetch<8, true> (in, at + item.second);
    if (INPUT) {
      input[p][0] = fetch<8, true> (a.qkv, item.wide);
      input[p][1] = fetch<8, true> (a.qkv, item.wide + item.second);
    }
  }
  if (a.map & SP_DEV_MAP_ROTATE) {
    angles_of (a.pos + from, min (rows, (int) a.m - from), (int) a.k, a.frequencies, cosine, sine);
    __syncthreads ();
  }
#pragma unroll
  for (int p = 0; p < MAP_ITEMS; p++) {
    MapItem item =
        map_item (a, lanes, of_row, from, first + p * MAP_THREADS); /* again: it is not worth its registers */
    int angle = item.row * ((int) a.k / 2) + item.first, at = BACKWARD ? item.wide : item.narrow;
    SpDevTensor out = BACKWARD ? a.dqkv : side_of (a, item.side);
    Vec<8> x = floats_of<8, true> (a.qkv, raw[p][0]), y = floats_of<8, true> (a.qkv, raw[p][1]);

    if (INPUT) {
      Vec<8> in_x = floats_of<8, true> (a.qkv, input[p][0]), in_y = floats_of<8, true> (a.qkv, input[p][1]);
      map_backward (a, lanes, item, cosine + angle, sine + angle, &x, &y, &in_x, &in_y);
    } else if (!BACKWARD)
      map_forward (a, lanes, item, cosine + angle, sine + angle, &x, &y);
    else if (a.map & SP_DEV_MAP_ROTATE && item.side < 2)
      turn_item (cosine + angle, sine + angle, true, &x, &y);
    if (item.is_there)
      store<8, true> (out, at, x);
    if (item.has_second)
      store<8, true> (out, at + item.second, y);
  }
}

static cudaError_t
map_by_lanes (const KeyMap &a, cudaStream_t stream)
{
  int of_row = map_items (a), of_block = MAP_ITEMS * MAP_THREADS, rows = (of_block - 1) / of_row + 2;
  int64_t blocks = div_up (a.m * of_row, of_block);
  size_t bytes = a.map & SP_DEV_MAP_ROTATE ? (size_t) (rows * a.k) * sizeof (float) : 0;

  bool needs_input = a.map & (SP_DEV_MAP_SILU | SP_DEV_MAP_SILU_VALUES | SP_DEV_MAP_L2);
  auto kernel = !a.backward   ? key_map_lanes_kernel<false, false>
                : needs_input ? key_map_lanes_kernel<true, true>
                              : key_map_lanes_kernel<true, false>;

  return launch_early (kernel, dim3 ((unsigned) blocks), MAP_THREADS, bytes, stream, a, map_lanes (a), of_row, rows);
}

/* --- other heads -------------------------------------------------------------------------------------------------- */

#define MAP_WARPS 8
#define MAP_PIECES 4 /* of 64 features of half a head: up to 512 */

/* A head of queries or keys a warp: of both halves a lane has every 64 features two neighbours. */
struct HeadRow {
  float x[MAP_PIECES][2][2]; /* half, neighbour */
};

template <typename G>
static __device__ inline void
head_each (int64_t k, G g)
{
#pragma unroll
  for (int r = 0; r < MAP_PIECES; r++)
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        int i = 64 * r + 2 * (int) (threadIdx.x % 32) + e;
        if (i < k / 2)
          g (r, half, e, half * k / 2 + i);
      }
}

/* By the row's position or, backward, against it. */
static __device__ inline void
head_turn (const KeyMap &a, int64_t row, HeadRow &h)
{
#pragma unroll
  for (int r = 0; r < MAP_PIECES; r++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      int i = 64 * r + 2 * (int) (threadIdx.x % 32) + e;
      float sine, cosine, low = h.x[r][0][e], high = h.x[r][1][e];
      if (i >= a.k / 2)
        continue;
      double turns = a.pos[row] * frequency (a.frequencies, i);
      sincospif (2 * (float) (turns - rint (turns)), &sine, &cosine);
      sine = a.backward ? -sine : sine;
      h.x[r][0][e] = low * cosine - high * sine;
      h.x[r][1][e] = high * cosine + low * sine;
    }
}

static __device__ inline void
head_forward (const KeyMap &a, int64_t row, int64_t from, SpDevTensor to, int64_t at)
{
  HeadRow h = {};
  float squares = 0;

  head_each (a.k, [&] (int r, int half, int e, int64_t i) {
    float x = load1 (a.qkv, from + i);
    h.x[r][half][e] = a.map & SP_DEV_MAP_SILU ? silu (x) : x;
    squares += h.x[r][half][e] * h.x[r][half][e];
  });
  float scale = a.map & SP_DEV_MAP_L2 ? 1 / sqrtf (warp_sum (squares) + L2_EPSILON) : 1;
  head_each (a.k, [&] (int r, int half, int e, int64_t) { h.x[r][half][e] *= scale; });
  if (a.map & SP_DEV_MAP_ROTATE)
    head_turn (a, row, h);
  head_each (a.k, [&] (int r, int half, int e, int64_t i) { store1 (to, at + i, h.x[r][half][e]); });
}

static __device__ inline void
head_backward (const KeyMap &a, int64_t row, int64_t to, SpDevTensor from, int64_t at)
{
  HeadRow d = {}, x = {};
  bool has_input = a.map & (SP_DEV_MAP_SILU | SP_DEV_MAP_L2);
  float squares = 0, dot = 0;

  head_each (a.k, [&] (int r, int half, int e, int64_t i) {
    d.x[r][half][e] = load1 (from, at + i);
    x.x[r][half][e] = has_input ? load1 (a.qkv, to + i) : 0;
  });
  if (a.map & SP_DEV_MAP_ROTATE)
    head_turn (a, row, d);
  head_each (a.k, [&] (int r, int half, int e, int64_t) {
    float y = a.map & SP_DEV_MAP_SILU ? silu (x.x[r][half][e]) : x.x[r][half][e];
    squares += y * y;
    dot += y * d.x[r][half][e];
  });
  squares = warp_sum (squares) + L2_EPSILON;
  dot = warp_sum (dot);
  float scale = 1 / sqrtf (squares);
  head_each (a.k, [&] (int r, int half, int e, int64_t i) {
    float own = x.x[r][half][e], y = a.map & SP_DEV_MAP_SILU ? silu (own) : own, dx = d.x[r][half][e];
    dx = a.map & SP_DEV_MAP_L2 ? (dx - y * dot / squares) * scale : dx;
    store1 (a.dqkv, to + i, a.map & SP_DEV_MAP_SILU ? dx * silu_slope (own) : dx);
  });
}

/* Heads of queries, then of keys, then the values, in pieces as long as a head. */
static __global__ void __launch_bounds__ (32 * MAP_WARPS) key_map_kernel (KeyMap a)
{
  int64_t heads = a.keys / a.k, pieces = 2 * heads + (a.values + a.k - 1) / a.k;
  int64_t item = (int64_t) blockIdx.x * MAP_WARPS + threadIdx.x / 32, row = divide (item, pieces),
          piece = item - row * pieces;
  int64_t width = 2 * a.keys + a.values;

  if (row >= a.m)
    return;
  if (piece < 2 * heads) {
    SpDevTensor side = piece < heads ? a.side[0] : a.side[1];
    int64_t at = row * a.keys + piece % heads * a.k, wide = row * width + piece * a.k;
    if (a.backward)
      head_backward (a, row, wide, side, at);
    else
      head_forward (a, row, wide, side, at);
    return;
  }
  for (int64_t i = (piece - 2 * heads) * a.k + threadIdx.x % 32; i < min (a.values, (piece - 2 * heads + 1) * a.k);
       i += 32)
    a.at<1> (row * width + 2 * a.keys + i);
}

static cudaError_t
key_map (const KeyMap &a, cudaStream_t stream)
{
  int64_t heads = a.k > 0 ? a.keys / a.k : 0, width = 2 * a.keys + a.values;
  bool needs = a.map & (SP_DEV_MAP_SILU | SP_DEV_MAP_SILU_VALUES | SP_DEV_MAP_L2);

  if (!are_floats ({ a.qkv, a.side[0], a.side[1], a.side[2], a.dqkv }) || a.k % 2 != 0 || a.k > 128 * MAP_PIECES ||
      (a.backward && needs && !is_present (a.qkv)))
    return cudaErrorInvalidValue;
  if (a.m * width == 0)
    return cudaSuccess;
  if (has_map_lanes (a))
    return map_by_lanes (a, stream);
  if (!(a.map & (SP_DEV_MAP_L2 | SP_DEV_MAP_ROTATE)))
    return each (a, a.m * width, width_of ({ a.keys, a.values }, { a.qkv, a.side[0], a.side[1], a.side[2], a.dqkv }),
                 stream);
  int64_t items = a.m * (2 * heads + div_up (a.values, a.k));
  return launch (key_map_kernel, dim3 ((unsigned) div_up (items, MAP_WARPS)), 32 * MAP_WARPS, 0, stream, a);
}

cudaError_t
sp_dev_key_map (SpDevShape s, unsigned map, SpDevTensor qkv, const int32_t *pos, double theta, SpDevTensor q,
                SpDevTensor keys, SpDevTensor values, cudaStream_t stream)
{
  return key_map ({ s.m,
                    s.k,
                    s.kv_heads * s.k,
                    s.heads * s.n,
                    map,
                    frequencies_of (s.k, theta),
                    pos,
                    qkv,
                    { q, keys, values },
                    {},
                    false },
                  stream);
}

cudaError_t
sp_dev_key_map_bwd (SpDevShape s, unsigned map, SpDevTensor qkv, SpDevTensor dq, SpDevTensor dkeys, SpDevTensor dvalues,
                    const int32_t *pos, double theta, SpDevTensor dqkv, cudaStream_t stream)
{
  return key_map ({ s.m,
                    s.k,
                    s.kv_heads * s.k,
                    s.heads * s.n,
                    map,
                    frequencies_of (s.k, theta),
                    pos,
                    qkv,
                    { dq, dkeys, dvalues },
                    dqkv,
                    true },
                  stream);
}
