/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

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
 *
 * Decays of a token's own take the same chains, with lambda_i for lambda and beta_i k_i for k_i in M; what weighs on a chunk's
 * tokens comes with their tiles (GateWeights). The first chain then reads the queries too, and leaves q_i dq_i, the second
 * k_i dk_i, and both the states between segments: device-linear-decay-tables.cuh makes the decays' gradient of these.
 */

#include "kernels/device-linear-bwd-chunks.cuh"
#include "kernels/device-map.cuh"

/* What the segment adds to its state, weighed to the segment's end in the chain's order, and the chain: then `state` is
 * the one before the segment. */
template <typename W>
static __device__ inline void
chain_step (const Bwd &a, const Item &x, const Block &b, State &state, W &w, uint32_t &phase, const Lane &l)
{
  uint4 *places =
      a.places + ((int64_t) x.vector * 2 + x.reverse) * PLACES * PLACE + l.warp * (PLACE / WARPS) + threadIdx.x % 32;
  const uint4 *before = places + (x.step + PLACES - 1) % PLACES * PLACE;
  bool is_given = is_handed_on (a, x), is_last = x.step + 1 == a.segments;
  int kept = x.reverse && !a.has_dkv ? 0 : kept_of<W> (x);
  State own = {};
  Fragments tokens, next;
  auto tile_of = [&] (int i) { return 2 * (i % kept_of<W> (x)); };
  auto weigh = [&] (Fragments &to, int i) {
    wait_full (b, phase, tile_of (i));
    weigh_tokens (to, b.tiles + tile_of (i) * TILE_BYTES, w.tokens (tile_of (i)),
                  w.beyond (chunk_of (x, x.chunks - 1 - i), tile_of (i)), l);
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
  float factor = w.over_segment ();
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

template <typename W>
static __device__ void
consume (const Bwd &a, const Block &b, float *weights, const int *items)
{
  uint32_t phase = 0;
  int stored = -1;
  Lane l;

  l.warp = __shfl_sync (0xffffffffu, threadIdx.x / 32, 0);
  l.group = l.warp / 4;
  l.row = l.warp % 4 * 16 + threadIdx.x % 32 / 4;
  l.pair = threadIdx.x % 4 * 2;
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

    Item x = item_of<W> (a, i);
    W w (a, x, weights, l);
    State state;

    set_stored_free (b, stored);
    chain_step (a, x, b, state, w, phase, l);
    if (W::gated && x.step > 0)
      keep_state (a, x, state);
    if (!x.reverse)
      Chains<W>{ a, x, b, l, w, is_handed_on (a, x), phase, stored }.queries (state);
    else if (a.has_dkv)
      Chains<W>{ a, x, b, l, w, is_handed_on (a, x), phase, stored }.keys (state);
  }
}

template <typename W>
static __global__ void
__launch_bounds__ (THREADS, 1) bwd_kernel (const __grid_constant__ Bwd a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  Block b;
  int *items = (int *) (dynamic + TILES * TILE_BYTES + STATE_BYTES + ITEMS * 8);
  float *weights = (float *) (dynamic + SHARED_BYTES);

  b.tiles = shared_address (dynamic);
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
      produce<W> (a, b.tiles, b.barriers, shared_address (weights), items);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;\n");
    consume<W> (a, b, weights, items);
  }
}

/* --- launch ------------------------------------------------------------------------------------------------------- */

#define TICKET_BYTES 256

/* Tokens of a segment. A short sequence is one item for each of 128 blocks; else segments are the longer the fewer chains
 * there are, for a state is handed on at most so often in the time that the blocks take. The figures are measured. */
static inline int
segment_of (SpDevShape s)
{
  int64_t vectors = s.batch * s.heads, fill = div_up (div_up (s.m, CHUNK) * 2 * vectors, 128), chain = 32 / vectors;

  if (fill <= 8)
    return CHUNK * (fill < 2 ? 2 : (int) fill);
  return CHUNK * (chain < 6 ? 6 : chain > 16 ? 16 : (int) chain);
}

/* Of the ticket and the places, which are first in the scratch. */
static inline size_t
chains_bytes (SpDevShape s)
{
  return TICKET_BYTES +
         (s.m > segment_of (s) ? (size_t) (2 * s.batch * s.heads) * PLACES * STATE_FLOATS * sizeof (float) : 0);
}

/* In boxes of so many tokens; of what is there. */
static bool
make_map (CUtensorMap *map, SpDevTensor t, const Bwd &a, int vectors, int size, int tokens)
{
  return !is_present (t) || map_of (map, t.data, a.m, vectors, size, tokens) == cudaSuccess;
}

/* What both forms have; false: a tensor has no map. */
static bool
make_bwd (const LinearBwd &x, int share, Bwd *ret)
{
  SpDevShape s = x.shape;
  Bwd a = {};
  int keys = (int) (s.batch * s.heads) / share;

  a.m = (int) s.m;
  a.vectors = (int) (s.batch * s.heads);
  a.heads = (int) s.heads;
  a.dk = (int) s.k;
  a.dv = (int) s.n;
  a.share = share;
  a.has_dq = is_present (x.dq);
  a.has_dkv = is_present (x.dkeys);
  a.has_e = a.has_dkv || x.dstate_in != nullptr;
  a.segment = segment_of (s);
  a.segments = (int) div_up (s.m, a.segment);
  a.items = a.segments * a.vectors * ((int) a.has_dq + (int) a.has_e);
  a.slopes = x.slopes;
  a.first[0] = x.state_in;
  a.first[1] = x.dstate_out;
  a.last[1] = x.dstate_in;
  a.ticket = (int *) x.scratch;
  a.places = (uint4 *) ((char *) x.scratch + TICKET_BYTES);
  if (!make_map (&a.q, x.q, a, keys, a.dk, CHUNK) || !make_map (&a.keys, x.keys, a, keys, a.dk, CHUNK) ||
      !make_map (&a.values, x.values, a, a.vectors, a.dv, CHUNK) ||
      !make_map (&a.d_o, x.d_o, a, a.vectors, a.dv, CHUNK) || !make_map (&a.dq, x.dq, a, a.vectors, a.dk, 16) ||
      !make_map (&a.dkeys, x.dkeys, a, a.vectors, a.dk, 16) ||
      !make_map (&a.dvalues, x.dvalues, a, a.vectors, a.dv, 16))
    return false;
  *ret = a;
  return true;
}

template <typename W>
static cudaError_t
run_bwd (const Bwd &a, int multiprocessors, cudaStream_t stream)
{
  /* All marks are 1, and the first ticket is 0. */
  size_t bytes =
      TICKET_BYTES + (a.segments > 1 ? (size_t) (2 * a.vectors) * PLACES * STATE_FLOATS * sizeof (float) : 0);
  cudaError_t error = cudaMemsetAsync (a.ticket, 0xff, bytes, stream);

  if (error != cudaSuccess)
    return error;
  return launch (bwd_kernel<W>, dim3 ((unsigned) min (a.items, min (multiprocessors, MOST_BLOCKS))), THREADS,
                 SHARED_BYTES + W::shared_bytes, stream, a);
}
