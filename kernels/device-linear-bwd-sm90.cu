/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of linear attention with a decay, by warpgroup products and TMA of sm_90a. Head sizes up to 128; smaller
 * ones are filled up with zeros in shared memory, not in device memory.
 *
 * There are two chains. In the order of tokens, with M_i = lambda M_(i-1) + k_i v_i^T,
 *     dq_i = M_i dO_i
 * and against it, with E_i = lambda (E_(i+1) + q_i dO_i^T), which is lambda times the gradient of M_i,
 *     dk_i = (E_(i+1) + q_i dO_i^T) v_i,  dv_i = (E_(i+1) + q_i dO_i^T)^T k_i.
 * The sequence is cut in segments of some hundred tokens, these in chunks of 64. An item is one segment of one head in
 * one chain. It first makes what the segment alone adds to the state, from its last chunk in the chain's order to its
 * first, takes the state before it from its neighbour, hands on the sum, and goes through its chunks with the state in
 * fp32 in registers, in bf16 in shared memory. Of the two tensors that make the state the last few chunks stay in shared
 * memory meanwhile, and the others are still in L2: from device memory each chain reads what it needs once, and 10
 * tensors are moved in all.
 *
 * Blocks take items by a ticket, in the order of the chains: whoever waits, waits for an item that is being worked on,
 * so that any number of blocks at a time comes to an end. A state goes from neighbour to neighbour warp by warp, through
 * two places for each chain: who writes one again has a state from a neighbour whose own has read the place.
 *
 * A block is two warpgroups and a warp that copies. In the first chain each makes 64 columns of dq and has those 64 rows
 * of M. In the second one makes dk, the other dv; each has 64 rows of E.
 */
#include "kernels/device-linear-bwd-sm90.cuh"
#include "kernels/device-map.cuh"

/* --- outputs ------------------------------------------------------------------------------------------------------ */

/* A warp's 16 rows of a chunk's gradient by way of a tile that its warpgroup has read, 8 N columns from `column` on. */
template <int N>
static __device__ inline void
store_rows (const CUtensorMap *map, const Item &x, int chunk, int column, const float (&d)[N][4], uint32_t tile,
            const Lane &l)
{
  int lane = threadIdx.x % 32, matrix = lane / 8, first = l.warp % 4 * 16, row = first + matrix % 2 * 8 + lane % 8;

#pragma unroll
  for (int j = 0; j < N; j += 2) {
    int piece = j % 8 + matrix / 2;

    store_matrices (tile + j / 8 * HALF_BYTES + row * 128 + ((piece ^ row % 8) << 4), bf16_pair (d[j][0], d[j][1]),
                    bf16_pair (d[j][2], d[j][3]), bf16_pair (d[j + 1][0], d[j + 1][1]),
                    bf16_pair (d[j + 1][2], d[j + 1][3]));
  }
  fence_async ();
  __syncwarp ();
  if (lane == 0) {
#pragma unroll
    for (int j = 0; j < N; j += 8)
      store_box (map, column + 8 * j, x.vector, x.first + chunk * CHUNK + first,
                 tile + j / 8 * HALF_BYTES + first * 128);
    store_commit ();
  }
}

/* --- chunks ------------------------------------------------------------------------------------------------------- */

/* d = x y^T of two tiles, over all features; x is 64 rows, y 8 N. */
template <int N>
static __device__ inline void
product_by_rows (float (&d)[N][4], uint32_t x_tile, uint32_t y_tile, uint32_t y_half)
{
  Operand x = operand (x_tile, 16), y = operand (y_tile, 16);

#pragma unroll
  for (int k = 0; k < SIZE / 16; k++)
    wgmma<false> (d, descriptor (x, k / 4 * HALF_BYTES + k % 4 * 32), descriptor (y, k / 4 * y_half + k % 4 * 32),
                  k > 0);
}

/* d = x y of a tile and a state. */
static __device__ inline void
product_by_columns (float (&d)[16][4], uint32_t x_tile, uint32_t y_tile)
{
  Operand x = operand (x_tile, 16), y = operand (y_tile, STATE_HALF);

#pragma unroll
  for (int k = 0; k < SIZE / 16; k++)
    wgmma<true> (d, descriptor (x, k / 4 * HALF_BYTES + k % 4 * 32), descriptor (y, k * 2048), k > 0);
}

/* p = scores[query,key], or [key,query], decayed and zero where the key comes after, as the next product's operand. */
static __device__ inline void
decay_scores (Fragments &p, const float (&s)[8][4], bool reverse, const float *powers, const Lane &l)
{
  int base = NEGATIVE + (reverse ? l.pair - l.row : l.row - l.pair), step = reverse ? 1 : -1;
  float above[2]; /* of the rows 8 further down, which are as near as this one's to the 8 columns before */

  above[0] = powers[base - 8 * step];
  above[1] = powers[base - 7 * step];
#pragma unroll
  for (int j = 0; j < 8; j++) {
    float low = powers[base + 8 * j * step], high = powers[base + (8 * j + 1) * step];

    p[j / 2][j % 2 * 2] = bf16_pair (s[j][0] * low, s[j][1] * high);
    p[j / 2][j % 2 * 2 + 1] = bf16_pair (s[j][2] * above[0], s[j][3] * above[1]);
    above[0] = low;
    above[1] = high;
  }
}

template <int N>
static __device__ inline void
scale_rows (float (&d)[N][4], float first, float second)
{
#pragma unroll
  for (int j = 0; j < N; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      d[j][e] *= e < 2 ? first : second;
}

/* The order of a chunk's products is such that the tensor cores have work before them: its scores, what the state gives
 * and what the chunk gives the next state are started together, then the scores' values. */

/* Queries' gradients of a segment, from the state before it. */
struct Queries {
  const Bwd &a;
  const Item &x;
  const Block &b;
  const Lane &l;
  const float *powers;
  bool is_given;
  uint32_t &phase;
  int &stored;

  template <bool IS_LAST> __device__ inline void chunk (State &state, int p)
  {
    int pair = pair_of (x, p), other = other_of (x, p);
    uint32_t keys = b.tiles + pair * TILE_BYTES, values = keys + TILE_BYTES, d_o = b.tiles + other * TILE_BYTES;
    uint32_t mine = keys + l.group * HALF_BYTES;
    float scores[8][4], dq[8][4];
    Fragments weighed, tokens;

    if (!is_given || p >= kept_of (x))
      wait_full (b, phase, pair);
    wait_full (b, phase, other);
    wgmma_fence ();
    product_by_rows (scores, d_o, values, HALF_BYTES);
    wgmma_commit ();
    product_by_rows (dq, d_o, b.state + l.group * 64 * 128, STATE_HALF);
    wgmma_commit ();
    if constexpr (!IS_LAST) {
      weigh_tokens (tokens, keys, false, powers, 1, l);
      add_tokens (state, tokens, values);
    }
    set_stored_free (b, stored);
    wgmma_wait<IS_LAST ? 1 : 2> ();
    wgmma_hold (scores);
    decay_scores (weighed, scores, false, powers, l);
    wgmma_wait<IS_LAST ? 0 : 1> ();
    wgmma_hold (dq);
    scale_rows (dq, powers[NEGATIVE + l.row + 1], powers[NEGATIVE + l.row + 9]);
    wgmma_hold (dq);
    wgmma_fence ();
    Operand y = operand (mine, HALF_BYTES);
#pragma unroll
    for (int k = 0; k < 4; k++)
      wgmma<true> (dq, weighed[k], descriptor (y, k * 2048), 1);
    wgmma_commit ();
    named_barrier (1 + l.group, 128); /* the state has been read */
    if constexpr (!IS_LAST) {
      wgmma_wait<1> ();
      wgmma_hold (state);
      store_state (state, b.state, l);
      scale (state, powers[NEGATIVE + CHUNK]);
      wgmma_hold (state);
    }
    wgmma_wait<0> ();
    wgmma_hold (dq);
    set_free (b, other);
    named_barrier (1 + l.group, 128); /* the state is there, and these keys have been read */
    store_rows (&a.dq, x, p, l.group * 64, dq, mine, l);
    stored = pair;
  }

  __device__ inline void segment (State &state)
  {
    store_state (state, b.state, l);
    scale (state, powers[NEGATIVE + CHUNK]);
    wgmma_hold (state);
    named_barrier (1 + l.group, 128);
    for (int p = 0; p + 1 < x.chunks; p++)
      chunk<false> (state, p);
    chunk<true> (state, x.chunks - 1);
  }
};

/* Keys' and values' gradients of a segment, from the state after it. The warpgroups take turns in starting products, so
 * that one computes between its products while the other's are under way. */
struct Keys {
  const Bwd &a;
  const Item &x;
  const Block &b;
  const Lane &l;
  const float *powers;
  bool is_given;
  uint32_t &phase;
  int &stored;

  __device__ inline void arrive (int barrier)
  {
    __syncwarp ();
    if (threadIdx.x % 32 == 0)
      barrier_arrive (b.barriers + 8 * barrier);
  }

  __device__ inline void wait (int barrier)
  {
    barrier_wait (b.barriers + 8 * barrier, phase >> barrier & 1);
    phase ^= 1u << barrier;
  }

  template <bool IS_LAST> __device__ inline void chunk (State &state, int p)
  {
    int chunk = chunk_of (x, p), left = min (x.tokens - chunk * CHUNK, CHUNK);
    int pair = pair_of (x, p), other = other_of (x, p);
    uint32_t q = b.tiles + pair * TILE_BYTES, d_o = q + TILE_BYTES, keys = b.tiles + other * TILE_BYTES,
             values = keys + TILE_BYTES, mine = l.group == 0 ? values : keys;
    float scores[8][4], d[16][4];
    Fragments weighed, tokens;

    if (!is_given || p >= kept_of (x))
      wait_full (b, phase, pair);
    if constexpr (!IS_LAST)
      weigh_tokens (tokens, q, true, powers, 1, l);
    wait_full (b, phase, other);
    if (l.group == 1 || p > 0)
      named_barrier (4 + l.group, CONSUMERS); /* my turn */
    wgmma_fence ();
    product_by_rows (scores, mine, l.group == 0 ? d_o : q, HALF_BYTES);
    wgmma_commit ();
    wait (WRITTEN);
    if (l.group == 0)
      product_by_rows (d, values, b.state, STATE_HALF);
    else
      product_by_columns (d, keys, b.state);
    wgmma_commit ();
    if constexpr (!IS_LAST)
      add_tokens (state, tokens, d_o);
    if (l.group == 0 || !IS_LAST)
      named_barrier_arrive (5 - l.group, CONSUMERS);
    set_stored_free (b, stored);
    wgmma_wait<IS_LAST ? 1 : 2> ();
    wgmma_hold (scores);
    decay_scores (weighed, scores, true, powers, l);
    wgmma_wait<IS_LAST ? 0 : 1> ();
    wgmma_hold (d);
    arrive (READ);
    scale_rows (d, powers[NEGATIVE + max (left - 1 - l.row, 0)], powers[NEGATIVE + max (left - 9 - l.row, 0)]);
    wgmma_hold (d);
    wgmma_fence ();
    Operand y = operand (l.group == 0 ? q : d_o, HALF_BYTES);
#pragma unroll
    for (int k = 0; k < 4; k++)
      wgmma<true> (d, weighed[k], descriptor (y, k * 2048), 1);
    wgmma_commit ();
    wait (READ);
    if constexpr (!IS_LAST) {
      wgmma_wait<1> ();
      wgmma_hold (state);
      store_state (state, b.state, l);
      arrive (WRITTEN);
      scale (state, powers[NEGATIVE + CHUNK]); /* the last chunk alone, which comes first, may have less */
      wgmma_hold (state);
    }
    wgmma_wait<0> ();
    wgmma_hold (d);
    set_free (b, pair);
    store_rows (l.group == 0 ? &a.dkeys : &a.dvalues, x, chunk, 0, d, mine, l);
    stored = other;
  }

  __device__ inline void segment (State &state)
  {
    store_state (state, b.state, l);
    arrive (WRITTEN);
    scale (state, powers[NEGATIVE + min (x.tokens - chunk_of (x, 0) * CHUNK, CHUNK)]);
    wgmma_hold (state);
    for (int p = 0; p + 1 < x.chunks; p++)
      chunk<false> (state, p);
    chunk<true> (state, x.chunks - 1);
  }
};

/* What the segment adds to its state, weighed to the segment's end in the chain's order, and the chain: then `state` is
 * the one before the segment. */
static __device__ inline void
chain_step (const Bwd &a, const Item &x, const Block &b, State &state, float slope2, const float *powers,
            uint32_t &phase, const Lane &l)
{
  uint4 *places =
      a.places + ((int64_t) x.vector * 2 + x.reverse) * PLACES * PLACE + l.warp * (PLACE / WARPS) + threadIdx.x % 32;
  const uint4 *before = places + (x.step + PLACES - 1) % PLACES * PLACE;
  bool is_given = is_handed_on (a, x), is_last = x.step + 1 == a.segments;
  int kept = x.reverse && !a.has_dkv ? 0 : kept_of (x);
  State own = {};
  Fragments tokens, next;
  auto tile_of = [&] (int i) { return 2 * (i % kept_of (x)); };
  auto weigh = [&] (Fragments &to, int i) {
    int chunk = chunk_of (x, x.chunks - 1 - i);

    wait_full (b, phase, tile_of (i));
    weigh_tokens (to, b.tiles + tile_of (i) * TILE_BYTES, x.reverse, powers,
                  decay2 (slope2, x.reverse ? chunk * CHUNK : x.tokens - (chunk + 1) * CHUNK), l);
  };

  if (x.step > 0)
    load_state (state, before);
  else
    first_state (a, x, state, l);
  if (is_given) {
    weigh (tokens, 0);
    for (int i = 0; i < x.chunks; i++) {
      add_tokens (own, tokens, b.tiles + (tile_of (i) + 1) * TILE_BYTES);
      if (i + 1 < x.chunks)
        weigh (next, i + 1);
      wgmma_wait<0> ();
      wgmma_hold (own);
      if (x.chunks - 1 - i >= kept)
        set_free (b, tile_of (i));
#pragma unroll
      for (int j = 0; j < 16; j++)
        tokens[j / 4][j % 4] = next[j / 4][j % 4];
    }
  }
  if (x.step > 0)
    wait_state (state, before, mark_of (x.step - 1));
  if (!is_given)
    return;
  float factor = decay2 (slope2, x.tokens);
#pragma unroll
  for (int j = 0; j < 16; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      own[j][e] += factor * state[j][e];
  if (is_last)
    last_state (a, x, own, l);
  else
    give_state (own, places + x.step % PLACES * PLACE, mark_of (x.step));
}

static __device__ void
consume (const Bwd &a, const Block &b, float *powers, const int *items)
{
  uint32_t phase = 0;
  int stored = -1;
  Lane l;

  l.warp = __shfl_sync (0xffffffffu, threadIdx.x / 32, 0);
  l.group = l.warp / 4;
  l.row = l.warp % 4 * 16 + threadIdx.x % 32 / 4;
  l.pair = threadIdx.x % 4 * 2;
  powers += l.group * POWERS;
  for (int n = 0;; n++) {
    int at = n % 2, i;

    barrier_wait (b.barriers + 8 * (ITEM_FULL + at), n / 2 % 2);
    i = threadIdx.x % 32 == 0 ? items[at] : 0;
    if (threadIdx.x % 32 == 0)
      barrier_arrive (b.barriers + 8 * (ITEM_EMPTY + at));
    i = __shfl_sync (0xffffffffu, i, 0); /* the same in all lanes, which the compiler has to know */
    if (i < 0) {
      set_stored_free (b, stored);
      return;
    }

    Item x = item_of (a, i);
    float slope2 = a.slopes[x.vector % a.heads] * LOG2_E;
    State state;

    set_powers (powers, slope2, l);
    set_stored_free (b, stored);
    chain_step (a, x, b, state, slope2, powers, phase, l);
    if (!x.reverse)
      Queries{ a, x, b, l, powers, is_handed_on (a, x), phase, stored }.segment (state);
    else if (a.has_dkv)
      Keys{ a, x, b, l, powers, is_handed_on (a, x), phase, stored }.segment (state);
  }
}

static __global__ void
__launch_bounds__ (THREADS, 1) bwd_kernel (const __grid_constant__ Bwd a)
{
  extern __shared__ unsigned char dynamic[];
  unsigned char *base = dynamic + (-(int) shared_address (dynamic) & 1023);
  Block b;
  int *items = (int *) (base + TILES * TILE_BYTES + STATE_BYTES + ITEMS * 8);
  float *powers = (float *) (base + TILES * TILE_BYTES + STATE_BYTES + BARRIERS * 8);

  b.tiles = shared_address (base);
  b.state = b.tiles + TILES * TILE_BYTES;
  b.barriers = b.state + STATE_BYTES;
  if (threadIdx.x == 0) {
    for (int i = 0; i < TILES; i++) {
      barrier_init (b.barriers + 8 * (FULL + i), 1);
      barrier_init (b.barriers + 8 * (EMPTY + i), WARPS);
    }
    for (int i = 0; i < 2; i++) {
      barrier_init (b.barriers + 8 * (ITEM_FULL + i), 1);
      barrier_init (b.barriers + 8 * (ITEM_EMPTY + i), WARPS);
      barrier_init (b.barriers + 8 * (WRITTEN + i), WARPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    fence_async ();
  }
  __syncthreads ();
  if (threadIdx.x >= CONSUMERS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;\n");
    if (threadIdx.x == CONSUMERS)
      produce (a, b.tiles, b.barriers, items);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;\n");
    consume (a, b, powers, items);
  }
}

/* --- launch ------------------------------------------------------------------------------------------------------- */

#define TICKET_BYTES 256

/* Tokens of a segment. A short sequence is one item for each of 128 blocks; else segments are the longer the fewer chains
 * there are, for a state is handed on at most so often in the time that the blocks take. The figures are measured. */
static int
segment_of (SpDevShape s)
{
  int64_t vectors = s.batch * s.heads, fill = div_up (div_up (s.m, CHUNK) * 2 * vectors, 128), chain = 32 / vectors;

  if (fill <= 8)
    return CHUNK * (fill < 2 ? 2 : (int) fill);
  return CHUNK * (chain < 6 ? 6 : chain > 16 ? 16 : (int) chain);
}

size_t
linear_bwd_sm90_scratch (SpDevShape s)
{
  return TICKET_BYTES +
         (s.m > segment_of (s) ? (size_t) (2 * s.batch * s.heads) * PLACES * STATE_FLOATS * sizeof (float) : 0);
}

/* In boxes of so many tokens; of what is there. */
static bool
make_map (CUtensorMap *map, SpDevTensor t, const Bwd &a, int size, int tokens)
{
  return !is_present (t) || map_of (map, t.data, a.m, a.vectors, size, tokens) == cudaSuccess;
}

cudaError_t
linear_bwd_sm90 (const LinearBwd &x, int multiprocessors, cudaStream_t stream)
{
  SpDevShape s = x.shape;
  Bwd a = {};
  /* All marks are 1, and the first ticket is 0. */
  cudaError_t error = cudaMemsetAsync (x.scratch, 0xff, linear_bwd_sm90_scratch (s), stream);

  if (error != cudaSuccess)
    return error;
  a.m = (int) s.m;
  a.vectors = (int) (s.batch * s.heads);
  a.heads = (int) s.heads;
  a.dk = (int) s.k;
  a.dv = (int) s.n;
  a.has_dq = is_present (x.dq);
  a.has_dkv = is_present (x.dkeys);
  a.has_e = a.has_dkv || x.dstate_in != nullptr;
  a.segment = segment_of (s);
  a.segments = (int) div_up (s.m, a.segment);
  a.items = a.segments * a.vectors * ((int) a.has_dq + (int) a.has_e);
  a.slopes = x.slopes;
  a.state_in = x.state_in;
  a.dstate_out = x.dstate_out;
  a.dstate_in = x.dstate_in;
  a.ticket = (int *) x.scratch;
  a.places = (uint4 *) ((char *) x.scratch + TICKET_BYTES);
  if (!make_map (&a.q, x.q, a, a.dk, CHUNK) || !make_map (&a.keys, x.keys, a, a.dk, CHUNK) ||
      !make_map (&a.values, x.values, a, a.dv, CHUNK) || !make_map (&a.d_o, x.d_o, a, a.dv, CHUNK) ||
      !make_map (&a.dq, x.dq, a, a.dk, 16) || !make_map (&a.dkeys, x.dkeys, a, a.dk, 16) ||
      !make_map (&a.dvalues, x.dvalues, a, a.dv, 16))
    return cudaErrorInvalidValue;
  return launch (bwd_kernel, dim3 ((unsigned) min (a.items, min (multiprocessors, MOST_BLOCKS))), THREADS, SHARED_BYTES,
                 stream, a);
}
