/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pieces of device-linear-bwd-kernel.cuh: its items, the copies to shared memory, the states. */

#include "kernels/device-linear-bwd.cuh"
#include "kernels/device-linear-decay-tables.cuh"
#include "kernels/device-linear.cuh"
#include "kernels/device-swizzle.cuh"
#include "kernels/device-wgmma.cuh"

#define WARPS 8
#define CONSUMERS (WARPS * 32)
#define THREADS (CONSUMERS + 128)
#define CHUNK 64
#define SIZE 128 /* features */
#define HALF_BYTES (CHUNK * 64 * 2)
#define TILE_BYTES (2 * HALF_BYTES)
#define STATE_HALF (SIZE * 64 * 2)
#define STATE_BYTES (2 * STATE_HALF)
#define TILES 12
#define MOST_BLOCKS 240 /* a place is told from 512 turns of its chain; two items a block may be under way */
#define BARRIERS 32
#define SHARED_BYTES (TILES * TILE_BYTES + STATE_BYTES + BARRIERS * 8) /* and the weights */
#define STATE_FLOATS (SIZE * SIZE)
#define PLACES 2                 /* of a chain, for a state each */
#define PLACE (STATE_FLOATS / 4) /* in vectors of four */

/* Barriers: full and empty by tile, of which pairs use the first's; of the items; of E's state, which both warpgroups
 * read and write. */
enum { FULL = 0, EMPTY = TILES, ITEM_FULL = 24, ITEM_EMPTY = 26, WRITTEN = 28, READ = 29, ITEMS = 30 };

struct Bwd {
  CUtensorMap q, keys, values, d_o, dq, dkeys, dvalues;
  int m, vectors, heads, dk, dv; /* vectors: batch * heads */
  int share;                     /* heads that have the same queries and keys */
  int segments, items, segment;  /* segment: tokens */
  bool has_dq, has_dkv, has_e;
  const float *slopes, *first[2]; /* states before each chain, after it: NULL: zero, or not wanted */
  float *last[2];
  int *ticket;
  uint4 *places;
  /* Of decays that follow the data, device-linear-decay-tables.cuh: */
  const float *tables;
  float *x[2], *y;
  uint4 *between; /* states between segments */
  SpDevTensor dbeta;
};

/* An item. */
struct Item {
  bool reverse;
  int vector, step, first, tokens, chunks;
};

template <typename W>
static __device__ inline Item
item_of (const Bwd &a, int i)
{
  Item x;
  int chains = (int) a.has_dq + (int) a.has_e, segment;

  x.reverse = chains == 2 ? i % 2 : a.has_e;
  i /= chains;
  x.vector = i % a.vectors;
  x.step = i / a.vectors;
  segment = x.reverse ? a.segments - 1 - x.step : x.step;
  x.first = segment * a.segment;
  x.tokens = min (a.m - x.first, a.segment);
  x.chunks = (x.tokens + CHUNK - 1) / CHUNK;
  return x;
}

static __device__ inline int
chunk_of (const Item &x, int step)
{
  return x.reverse ? x.chunks - 1 - step : step;
}

/* Where the chunk that is the step-th has what the state is made of: a pair of tiles. The last few of what an item reads
 * for the state stay there for its gradients; the others come again. */
template <typename W>
static __device__ inline int
kept_of (const Item &x)
{
  return W::gated || x.reverse ? 3 : 4;
}

template <typename W>
static __device__ inline int
pair_of (const Item &x, int step)
{
  return 2 * ((x.chunks - 1 - step % kept_of<W> (x)) % kept_of<W> (x));
}

/* And where the others are: a pair of tiles, or dO alone. */
template <typename W>
static __device__ inline int
other_of (const Item &x, int step)
{
  return kept_of<W> (x) == 3 ? 6 + step % 3 * 2 : 8 + step % 4;
}

/* Whether what the segment adds to the state is wanted. */
static __device__ inline bool
is_handed_on (const Bwd &a, const Item &x)
{
  return x.step + 1 < a.segments || a.last[x.reverse] != nullptr;
}

static __device__ inline const float *
table_of (const Bwd &a, const Item &x, int chunk)
{
  int chunks = (a.m + CHUNK - 1) / CHUNK;

  return a.tables + ((int64_t) x.vector * chunks + x.first / CHUNK + chunk) * TABLE_FLOATS;
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

static __device__ inline void
load_tile (uint32_t to, const CUtensorMap *map, int vector, int token, uint32_t barrier)
{
  copy_box (to, map, 0, vector, token, barrier);
  copy_box (to + HALF_BYTES, map, 64, vector, token, barrier);
}

/* One thread's. */
template <typename W> struct Copies {
  const Bwd &a;
  uint32_t tiles, barriers, weights, phase; /* bit b of phase: parity of what empty barrier b waits for */

  __device__ inline void wait_empty (int tile)
  {
    barrier_wait (barriers + 8 * (EMPTY + tile), phase >> tile & 1);
  }

  /* A tile of queries or keys, unless NULL, and the next of values or dO; of which the last `more` bytes are the
   * caller's. */
  __device__ inline void load (const Item &x, int step, int tile, const CUtensorMap *keys, const CUtensorMap *values,
                               uint32_t more)
  {
    uint32_t full = barriers + 8 * (FULL + tile), to = tiles + tile * TILE_BYTES;
    int token = x.first + chunk_of (x, step) * CHUNK;

    wait_empty (tile);
    phase ^= 1u << tile;
    if (!W::gated && keys != nullptr && tile >= 8)
      wait_empty (tile + 1); /* which an item of the first chain may have had alone */
    barrier_expect (full, (keys != nullptr ? 2 * TILE_BYTES : TILE_BYTES) + more);
    if (keys != nullptr) {
      load_tile (to, keys, x.vector / a.share, token, full);
      to += TILE_BYTES;
    }
    load_tile (to, values, x.vector, token, full);
  }

  __device__ inline void load_pair (const Item &x, int step, int tile)
  {
    load (x, step, tile, x.reverse ? &a.q : &a.keys, x.reverse ? &a.d_o : &a.values, W::chunk_bytes);
    if (W::gated)
      copy_bytes (weights + tile / 2 * W::chunk_bytes,
                  table_of (a, x, chunk_of (x, step)) + (x.reverse ? TABLE_B : TABLE_END), W::chunk_bytes,
                  barriers + 8 * (FULL + tile));
  }

  __device__ inline void load_other (const Item &x, int step)
  {
    load (x, step, other_of<W> (x, step),
          x.reverse  ? &a.keys
          : W::gated ? &a.q
                     : nullptr,
          x.reverse ? &a.values : &a.d_o, 0);
  }

  /* For the state from the last chunk to the first, for gradients from the first. */
  __device__ inline void item (const Item &x)
  {
    bool is_given = is_handed_on (a, x);

    for (int i = 0; is_given && i < x.chunks; i++)
      load_pair (x, x.chunks - 1 - i, 2 * (i % kept_of<W> (x)));
    for (int step = 0; (!x.reverse || a.has_dkv) && step < x.chunks; step++) {
      if (!is_given || step >= kept_of<W> (x))
        load_pair (x, step, pair_of<W> (x, step));
      load_other (x, step);
    }
  }
};

template <typename W>
static __device__ void
produce (const Bwd &a, uint32_t tiles, uint32_t barriers, uint32_t weights, int *items)
{
  Copies<W> copies = { a, tiles, barriers, weights, 0xffffffffu };

  for (int n = 0;; n++) {
    int i = atomicAdd (a.ticket, 1) + 1, at = n % 2;

    barrier_wait (barriers + 8 * (ITEM_EMPTY + at), n / 2 % 2 ^ 1);
    items[at] = i < a.items ? i : -1;
    barrier_arrive (barriers + 8 * (ITEM_FULL + at));
    if (i >= a.items)
      return;
    copies.item (item_of<W> (a, i));
  }
}

/* --- states ------------------------------------------------------------------------------------------------------- */

typedef float State[16][4]; /* of a warpgroup's 64 rows: 16 rows a warp */

/* What threads know of their place. */
struct Lane {
  int warp, group, row, pair; /* warp of 8, warpgroup, row of 64, first column of 8 */
};

typedef uint32_t Fragments[4][4]; /* of a warp's 16 rows of x^T, 64 tokens */

/* state += x^T y of a chunk; starts it. */
static __device__ inline void
add_tokens (State &state, const Fragments &x, uint32_t y_tile)
{
  Operand y = operand (y_tile, HALF_BYTES);

  wgmma_hold (state);
  wgmma_fence ();
#pragma unroll
  for (int k = 0; k < 4; k++)
    wgmma<true> (state, x[k], descriptor (y, k * 2048), 1);
  wgmma_commit ();
}

static __device__ inline void
scale (State &state, float factor)
{
#pragma unroll
  for (int j = 0; j < 16; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      state[j][e] *= factor;
}

/* To shared memory, in bf16. */
static __device__ inline void
store_state (const State &state, uint32_t to, const Lane &l)
{
  int lane = threadIdx.x % 32, matrix = lane / 8, row = l.warp * 16 + matrix % 2 * 8 + lane % 8;

#pragma unroll
  for (int j = 0; j < 16; j += 2) {
    int piece = j % 8 + matrix / 2;

    store_matrices (to + j / 8 * STATE_HALF + row * 128 + ((piece ^ row % 8) << 4),
                    bf16_pair (state[j][0], state[j][1]), bf16_pair (state[j][2], state[j][3]),
                    bf16_pair (state[j + 1][0], state[j + 1][1]), bf16_pair (state[j + 1][2], state[j + 1][3]));
  }
  fence_async ();
}

/* f (pair of floats, index of the first) over a state [dk,dv] in device memory. */
template <typename F>
static __device__ inline void
state_each (const Bwd &a, State &state, const Lane &l, F f)
{
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < 16; j++) {
      int row = l.group * 64 + l.row + 8 * i, column = 8 * j + l.pair;

      f (state[j][2 * i], state[j][2 * i + 1], row < a.dk && column < a.dv, row * a.dv + column);
    }
}

/* What is written to a place in a chain's turn is told from what was there before by the last two bits of each float,
 * which are the turn's: so a state needs no flag, and no fence before one. Vectors of 16 bytes are read and written
 * whole. */
struct Mark {
  uint32_t bits[4];
};

static __device__ inline Mark
mark_of (int step)
{
  Mark mark;

#pragma unroll
  for (int i = 0; i < 4; i++)
    mark.bits[i] = step / PLACES >> 2 * i & 3;
  return mark;
}

static __device__ inline void
load_place (float (&x)[4], const uint4 *place)
{
  asm volatile("{\n"
               ".reg .b128 all;\n"
               ".reg .b64 low, high;\n"
               "ld.relaxed.gpu.global.b128 all, [%4];\n"
               "mov.b128 {low, high}, all;\n"
               "mov.b64 {%0, %1}, low;\n"
               "mov.b64 {%2, %3}, high;\n"
               "}\n"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "l"(place)
               : "memory");
}

static __device__ inline void
store_place (uint4 *place, const float (&x)[4], const Mark &mark)
{
  uint32_t w[4];

#pragma unroll
  for (int i = 0; i < 4; i++)
    w[i] = (__float_as_uint (x[i]) & ~3u) | mark.bits[i];
  asm volatile("{\n"
               ".reg .b128 all;\n"
               ".reg .b64 low, high;\n"
               "mov.b64 low, {%1, %2};\n"
               "mov.b64 high, {%3, %4};\n"
               "mov.b128 all, {low, high};\n"
               "st.relaxed.gpu.global.b128 [%0], all;\n"
               "}\n" ::"l"(place),
               "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
               : "memory");
}

static __device__ inline uint32_t
marks_off (const float (&x)[4], const Mark &mark)
{
  uint32_t off = 0;

#pragma unroll
  for (int i = 0; i < 4; i++)
    off |= (__float_as_uint (x[i]) ^ mark.bits[i]) & 3;
  return off;
}

/* The state before the first segment. */
static __device__ inline void
first_state (const Bwd &a, const Item &x, State &state, const Lane &l)
{
  const float *in = a.first[x.reverse];

  state_each (a, state, l, [&] (float &low, float &high, bool is_there, int i) {
    float2 s =
        in != nullptr && is_there ? *(const float2 *) (in + (int64_t) x.vector * a.dk * a.dv + i) : make_float2 (0, 0);
    low = s.x;
    high = s.y;
  });
}

static __device__ inline void
load_state (State &state, const uint4 *place)
{
#pragma unroll
  for (int j = 0; j < 16; j++)
    load_place (state[j], place + j * 32);
}

/* Until all of the neighbour's state is there, of which load_state had what was. */
static __device__ inline void
wait_state (State &state, const uint4 *from, const Mark &mark)
{
  for (;;) {
    uint32_t off = 0;

#pragma unroll
    for (int j = 0; j < 16; j++)
      off |= marks_off (state[j], mark);
    if (__all_sync (0xffffffffu, off == 0))
      return;
    /* Who waits for long asks for what comes last alone. */
    do
      load_place (state[15], from + 15 * 32);
    while (!__all_sync (0xffffffffu, marks_off (state[15], mark) == 0));
    load_state (state, from);
  }
}

/* To the neighbour, or outside. */
static __device__ inline void
give_state (State &own, uint4 *to, const Mark &mark)
{
#pragma unroll
  for (int j = 0; j < 16; j++)
    store_place (to + j * 32, own[j], mark);
}

static __device__ inline void
last_state (const Bwd &a, const Item &x, State &state, const Lane &l)
{
  state_each (a, state, l, [&] (float &low, float &high, bool is_there, int i) {
    if (is_there)
      *(float2 *) (a.last[x.reverse] + (int64_t) x.vector * a.dk * a.dv + i) = make_float2 (low, high);
  });
}

/* The state before the segment, in bf16 as it lies in registers. */
static __device__ inline void
keep_state (const Bwd &a, const Item &x, const State &state)
{
  int boundary = x.reverse ? a.segments - 1 - x.step : x.step - 1;
  uint4 *to = a.between + (((int64_t) x.reverse * (a.segments - 1) + boundary) * a.vectors + x.vector) * KNOT;

#pragma unroll
  for (int j = 0; j < 16; j += 2)
    to[j / 2 * CONSUMERS + threadIdx.x] =
        make_uint4 (bf16_pair (state[j][0], state[j][1]), bf16_pair (state[j][2], state[j][3]),
                    bf16_pair (state[j + 1][0], state[j + 1][1]), bf16_pair (state[j + 1][2], state[j + 1][3]));
}

/* --- what is full and free ---------------------------------------------------------------------------------------- */

struct Block {
  uint32_t tiles, state, barriers;
};

static __device__ inline void
wait_full (const Block &b, uint32_t &phase, int barrier)
{
  barrier_wait (b.barriers + 8 * (FULL + barrier), phase >> barrier & 1);
  phase ^= 1u << barrier;
}

static __device__ inline void
set_free (const Block &b, int barrier)
{
  if (threadIdx.x % 32 == 0)
    barrier_arrive (b.barriers + 8 * (EMPTY + barrier));
}

/* `stored`, if not -1, is free as soon as outputs that lie there have been read. */
static __device__ inline void
set_stored_free (const Block &b, int &stored)
{
  if (stored >= 0 && threadIdx.x % 32 == 0) {
    store_wait_read ();
    barrier_arrive (b.barriers + 8 * (EMPTY + stored));
  }
  stored = -1;
}
