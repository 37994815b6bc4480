/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outputs of linear attention's forward by warpgroup products and TMA of sm_90a, for keys of up to 128 features. A
 * block is one warp that copies and a warpgroup for each 64 columns of the values. These need nothing from each other:
 * each computes all scores within a chunk, and so each waits for products while the other computes.
 *
 * As in device-linear-fwd.cuh all is turned: the state S^T[64,D] and the outputs o^T[64,64] are what products accumulate,
 * and S^T is an operand of the outputs as it lies in registers.
 */
#include "kernels/device-linear-decay-tables.cuh"
#include "kernels/device-linear-fwd.cuh"
#include "kernels/device-map.cuh"
#include "kernels/device-wgmma.cuh"

#include <type_traits>

/* GATED: decays follow the data, and chunks bring their weights: of their tables B and what is after it. */
template <int D_, int G_, bool GATED_> struct Group {
  static constexpr int D = D_, G = G_, C = 64 * G, threads = 128 * (G + 1);
  static constexpr bool gated = GATED_;
  static constexpr int key_bytes = D / 64 * PANEL, value_bytes = G * PANEL, stage = 2 * key_bytes + value_bytes;
  static constexpr int blocks = G == 1 ? 2 : 1; /* of an SM */
  static constexpr int stages = blocks == 2 ? (D == 64 ? 3 : 2) : gated ? 3 : 4;
  /* For each warpgroup: scores, outputs on their way, weights; or weights of each stage. */
  static constexpr int scores = stages * stage, staged = scores + G * PANEL, weights = staged + G * PANEL;
  static constexpr int table = gated ? 4 * (TABLE_START_HALVES - TABLE_B) : 0;
  static constexpr int barriers = weights + (gated ? stages * table : G * 4 * CHUNK), bytes = barriers + 2 * stages * 8;
  static_assert (bytes <= 227 * 1024 / blocks);
};

struct Boxed {
  CUtensorMap queries, keys, values, o;
  bool is_boxed; /* o is bf16 and aligned to 16 bytes */
  Forward f;
};

/* --- copies ------------------------------------------------------------------------------------------------------- */

/* One thread. */
template <typename F>
static __device__ inline void
produce (const Boxed &a, const Place &p, uint32_t shared, int chunks)
{
  int vector = p.b * (int) a.f.heads + p.h, keys = vector / (int) (a.f.heads / a.f.kv_heads);
  int64_t table = (vector * ((a.f.m + CHUNK - 1) / CHUNK) + p.first / CHUNK) * TABLE_FLOATS + TABLE_B;

  for (int chunk = 0; chunk < chunks; chunk++) {
    int stage = chunk % F::stages, token = (int) p.first + chunk * CHUNK;
    uint32_t full = shared + F::barriers + 8 * stage, empty = full + 8 * F::stages, to = shared + stage * F::stage;

    barrier_wait (empty, chunk / F::stages % 2 ^ 1);
    barrier_expect (full, F::stage + F::table);
    if (F::gated)
      copy_bytes (shared + F::weights + stage * F::table, a.f.tables + table + chunk * TABLE_FLOATS, F::table, full);
#pragma unroll
    for (int i = 0; i < F::D / 64; i++)
      copy_box (to + i * PANEL, &a.queries, 64 * i, keys, token, full);
#pragma unroll
    for (int i = 0; i < F::D / 64; i++)
      copy_box (to + F::key_bytes + i * PANEL, &a.keys, 64 * i, keys, token, full);
#pragma unroll
    for (int i = 0; i < F::G; i++)
      copy_box (to + 2 * F::key_bytes + i * PANEL, &a.values, p.column + 64 * i, vector, token, full);
  }
}

/* Until what this thread stores is there. */
static __device__ inline void
store_wait_all (void)
{
  asm volatile("cp.async.bulk.wait_group 0;\n" ::: "memory");
}

/* --- a warpgroup -------------------------------------------------------------------------------------------------- */

template <int N>
static __device__ inline void
hold_operand (uint32_t (&a)[N][4])
{
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      asm volatile("" : "+r"(a[i][e])::"memory");
}

/* --- weights: of a slope, or a chunk's own ------------------------------------------------------------------------ */

/* The first of this thread's rows and columns among scores of 64 queries by 64 keys. */
static __device__ inline int
score_row (void)
{
  return threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
}

static __device__ inline int
score_column (void)
{
  return threadIdx.x % 4 * 2;
}

template <typename F> struct SlopeWeights {
  float slope2, over_chunk; /* lambda^64 */
  uint32_t at;              /* of the tokens' values in the state after the chunk: two bf16 each */

  __device__ SlopeWeights (const Place &p, unsigned char *dynamic, int group)
      : slope2 (p.slope2), over_chunk (decay2 (p.slope2, CHUNK)),
        at (shared_address (dynamic) + F::weights + group * 4 * CHUNK)
  {
    if (threadIdx.x % 128 < 32)
      weights_set (at, slope2, CHUNK);
  }

  /* Before a chunk's scores are known to all. */
  __device__ void turn (int, int tokens)
  {
    if (tokens < CHUNK) {
      if (threadIdx.x % 128 < 32)
        weights_set (at, slope2, tokens);
      over_chunk = decay2 (slope2, tokens);
    }
  }

  /* Decayed by distance, zero where the key comes after. */
  __device__ void scores_keep (const float (&s)[8][4], uint32_t scores) const
  {
    int ahead = score_row () - score_column (); /* distance of s[0][0] */
    float exponent = -slope2 * (float) ahead;

#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        float x[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
          int further = 8 * n + j - 4 * e;
          x[j] = ahead >= further ? s[n][e + j] * exp2_fast (exponent + slope2 * (float) further) : 0;
        }
        store_word (scores + swizzled (score_row () + 4 * e, n) + 2 * score_column (), bf16_pair (x[0], x[1]));
      }
  }

  __device__ void outputs (float (&o)[8][4]) const
  {
    float w[2] = { decay2 (slope2, index_of (0, 0) + 1), decay2 (slope2, index_of (0, 1) + 1) };
    float step = decay2 (slope2, 8);

#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++)
        o[n][e] *= w[e % 2];
      w[0] *= step;
      w[1] *= step;
    }
  }
};

template <typename F> struct GateWeights {
  const float *tables, *b;
  float over_chunk;
  uint32_t at;

  __device__ GateWeights (const Place &, unsigned char *dynamic, int)
      : tables ((const float *) (dynamic + F::weights)), b (nullptr), over_chunk (1), at (0)
  {
  }

  __device__ void turn (int chunk, int)
  {
    b = tables + chunk % F::stages * (F::table / 4);
    over_chunk = exp2_fast (b[CHUNK - 1]);
    at = shared_address (b + TABLE_HALVES - TABLE_B);
  }

  __device__ void scores_keep (const float (&s)[8][4], uint32_t scores) const
  {
    const float *columns = b + score_column ();
    float own[2] = { b[score_row ()], b[score_row () + 8] };

#pragma unroll
    for (int n = 0; n < 8; n++) {
      float2 other = *(const float2 *) (columns + 8 * n);
      float2 beta = *(const float2 *) (columns + 8 * n + TABLE_BETA - TABLE_B);
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        int ahead = score_row () + 4 * e - score_column () - 8 * n;
        float low = s[n][e] * (exp2_fast (own[e / 2] - other.x) * beta.x);
        float high = s[n][e + 1] * (exp2_fast (own[e / 2] - other.y) * beta.y);
        store_word (scores + swizzled (score_row () + 4 * e, n) + 2 * score_column (),
                    bf16_pair (ahead >= 0 ? low : 0, ahead >= 1 ? high : 0));
      }
    }
  }

  __device__ void outputs (float (&o)[8][4]) const
  {
#pragma unroll
    for (int n = 0; n < 8; n++) {
      float2 w = *(const float2 *) (b + TABLE_START - TABLE_B + index_of (n, 0));
#pragma unroll
      for (int e = 0; e < 4; e++)
        o[n][e] *= e % 2 ? w.y : w.x;
    }
  }
};

/* --- outputs ------------------------------------------------------------------------------------------------------ */

/* The outputs, turned back, to shared memory: rows of 64 columns. */
static __device__ inline void
outputs_keep (const float (&o)[8][4], uint32_t staged)
{
  int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;

#pragma unroll
  for (int n = 0; n < 8; n += 2) {
    uint32_t at = staged + swizzled ((n + lane / 16) * 8 + lane % 8, 2 * warp + lane / 8 % 2);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(at),
                 "r"(bf16_pair (o[n][0], o[n][1])), "r"(bf16_pair (o[n][2], o[n][3])),
                 "r"(bf16_pair (o[n + 1][0], o[n + 1][1])), "r"(bf16_pair (o[n + 1][2], o[n + 1][3]))
                 : "memory");
  }
}

/* Straight from registers, for what no box takes. */
static __device__ inline void
outputs_store_each (const Forward &a, const Place &p, const float (&o)[8][4], int column, int64_t first, int tokens)
{
#pragma unroll
  for (int n = 0; n < 8; n++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (index_of (n, e) < tokens && column + e / 2 * 8 < a.c)
        store1 (a.o, element_of (a, p, first + index_of (n, e), a.c) + column + e / 2 * 8, o[n][e]);
}

template <typename F, typename W> struct Consumer {
  const Boxed &a;
  const Place &p;
  W w;
  uint32_t shared, scores, staged;
  int group, warp; /* of the block, of the group */
  int column;      /* this thread's first, of all */
  float state[F::D / 8][4];

  template <typename G> __device__ void state_each (G g)
  {
#pragma unroll
    for (int n = 0; n < F::D / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int row = index_of (n, e), at = column + e / 2 * 8;
        g (state[n][e], row < a.f.d && at < a.f.c, row * a.f.c + at);
      }
  }

  __device__ void release (int chunk) const
  {
    __syncwarp ();
    if (threadIdx.x % 32 == 0)
      barrier_arrive (shared + F::barriers + 8 * (F::stages + chunk % F::stages));
  }

  /* Whether the state after a chunk is of any use. */
  __device__ bool goes_on (int chunk, int chunks) const
  {
    return chunk + 1 < chunks || (a.f.after != nullptr && p.first + p.tokens == a.f.m);
  }

  __device__ void values_load (uint32_t y_tile, uint32_t (&v)[4][4], uint32_t (&weighed)[4][4]) const
  {
#pragma unroll
    for (int k = 0; k < 4; k++) {
      fragment_a_transposed (v[k], y_tile + group * PANEL, 16 * k, 16 * warp);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        uint32_t at = w.at + 2 * (16 * k + 8 * half) + threadIdx.x % 4 * 4;
        uint32_t high = load_word (at), low = load_word (at + 2 * CHUNK);
#pragma unroll
        for (int e = 0; e < 2; e++)
          weighed[k][2 * half + e] = weigh (v[k][2 * half + e], high, low);
      }
    }
  }

  __device__ void store (float (&o)[8][4], int64_t first, int tokens) const
  {
    if (!a.is_boxed) {
      outputs_store_each (a.f, p, o, column, first, tokens);
      named_barrier (1 + group, 128); /* all have read the scores */
      return;
    }
    outputs_keep (o, staged);
    fence_async ();
    named_barrier (1 + group, 128);
    if (threadIdx.x % 128 == 0) {
      store_box (&a.o, p.column + 64 * group, p.b * (int) a.f.heads + p.h, (int) first, staged);
      store_commit ();
    }
  }

  __device__ void step (int chunk, int chunks)
  {
    int stage = chunk % F::stages, tokens = p.tokens - chunk * CHUNK;
    uint32_t z_tile = shared + stage * F::stage, x_tile = z_tile + F::key_bytes, y_tile = x_tile + F::key_bytes;
    Operand z = operand (z_tile, PANEL), x = operand (x_tile, PANEL);
    uint32_t s_operand[F::D / 16][4], v[4][4], weighed[4][4];
    float s[8][4], o[8][4];

    barrier_wait (shared + F::barriers + 8 * stage, chunk / F::stages % 2);
    wgmma_fence ();
#pragma unroll
    for (int k = 0; k < F::D / 16; k++)
      wgmma<false> (s, descriptor (z, k / 4 * PANEL + k % 4 * 32), descriptor (x, k / 4 * PANEL + k % 4 * 32), k > 0);
    wgmma_commit ();
    wgmma_wait<1> (); /* nothing is left of the chunk before: without this the compiler waits for all */
    wgmma_hold (state);
#pragma unroll
    for (int n = 0; n < F::D / 16; n++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        s_operand[n][e] = bf16_pair (state[2 * n + e / 2][e % 2 * 2], state[2 * n + e / 2][e % 2 * 2 + 1]);
    hold_operand (s_operand);
    wgmma_fence ();
#pragma unroll
    for (int k = 0; k < F::D / 16; k++)
      wgmma<false> (o, s_operand[k], descriptor (z, k / 4 * PANEL + k % 4 * 32), k > 0);
    wgmma_commit ();
    wgmma_wait<1> ();
    wgmma_hold (s);
    w.turn (chunk, tokens);
    w.scores_keep (s, scores);
    fence_async ();
    if (threadIdx.x % 128 == 0)
      store_wait_read ();
    named_barrier (1 + group, 128); /* the scores are there, and the last outputs have left */
    values_load (y_tile, v, weighed);
    wgmma_wait<0> ();
    wgmma_hold (o);
    hold_operand (s_operand);
    w.outputs (o);
    wgmma_hold (o);
    hold_operand (v);
    wgmma_fence ();
    Operand y = operand (scores, PANEL);
#pragma unroll
    for (int k = 0; k < 4; k++)
      wgmma<false> (o, v[k], descriptor (y, 32 * k), 1);
    wgmma_commit ();
    if (goes_on (chunk, chunks)) {
#pragma unroll
      for (int n = 0; n < F::D / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          state[n][e] *= w.over_chunk;
      wgmma_hold (state);
      hold_operand (weighed);
      wgmma_fence ();
#pragma unroll
      for (int k = 0; k < 4; k++)
        wgmma<true> (state, weighed[k], descriptor (x, 16 * k * 128), 1);
      wgmma_commit ();
      wgmma_wait<1> ();
    } else
      wgmma_wait<0> ();
    wgmma_hold (o);
    store (o, p.first + chunk * CHUNK, tokens);
    wgmma_wait<0> ();
    wgmma_hold (state);
    release (chunk);
  }
};

template <typename F>
static __global__ void
__launch_bounds__ (F::threads, F::blocks) group_output_kernel (const __grid_constant__ Boxed a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  uint32_t shared = shared_address (dynamic);
  Place p = place_of (a.f, F::C);
  int chunks = (p.tokens + CHUNK - 1) / CHUNK;

  if (threadIdx.x == 0) {
    for (int i = 0; i < F::stages; i++) {
      barrier_init (shared + F::barriers + 8 * i, 1);
      barrier_init (shared + F::barriers + 8 * (F::stages + i), 4 * F::G);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    fence_async ();
  }
  __syncthreads ();
  if (threadIdx.x >= 128 * F::G) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;\n");
    if (threadIdx.x == 128 * F::G)
      produce<F> (a, p, shared, chunks);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(F::G == 1 ? 224 : 240));
  int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
  typedef std::conditional_t<F::gated, GateWeights<F>, SlopeWeights<F>> Weights;
  Consumer<F, Weights> c = { a,
                             p,
                             Weights (p, dynamic, group),
                             shared,
                             shared + F::scores + group * PANEL,
                             shared + F::staged + group * PANEL,
                             group,
                             warp,
                             p.column + 64 * group + 16 * warp + (int) threadIdx.x % 32 / 4,
                             {} };
  asm volatile("griddepcontrol.wait;\n" ::: "memory"); /* the states are there */
  const float *before = a.f.before != nullptr ? a.f.before + state_at (a.f, p, p.segment) - p.column : nullptr;
  c.state_each ([&] (float &s, bool is_there, int64_t at) { s = before != nullptr && is_there ? before[at] : 0; });
  for (int chunk = 0; chunk < chunks; chunk++)
    c.step (chunk, chunks);
  if (threadIdx.x % 128 == 0)
    store_wait_all ();
  if (a.f.after != nullptr && p.first + p.tokens == a.f.m) {
    float *after = a.f.after + state_at (a.f, p, 0) - p.column;
    c.state_each ([&] (float &s, bool is_there, int64_t at) {
      if (is_there)
        after[at] = s;
    });
  }
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* Boxes of 64 tokens. What the L2 gets is no wider than a head's row, lest a fetch reach into another's. */
static bool
make_map (CUtensorMap *map, const void *data, const Forward &f, int64_t heads, int64_t size)
{
  CUtensorMapL2promotion fetch = size % 128 == 0  ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
                                 : size % 64 == 0 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                                                  : CU_TENSOR_MAP_L2_PROMOTION_NONE;

  return map_of (map, data, f.m, f.batch * heads, size, CHUNK, fetch) == cudaSuccess;
}

template <typename F>
static cudaError_t
run_outputs (const Boxed &a, int64_t segments, cudaStream_t stream)
{
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute early = {};
  cudaError_t error =
      cudaFuncSetAttribute (group_output_kernel<F>, cudaFuncAttributeMaxDynamicSharedMemorySize, F::bytes);

  if (error != cudaSuccess)
    return error;
  config.gridDim = dim3 ((unsigned) div_up (a.f.c, F::C), (unsigned) (a.f.batch * a.f.heads), (unsigned) segments);
  config.blockDim = dim3 (F::threads);
  config.dynamicSmemBytes = F::bytes;
  config.stream = stream;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = segments > 1 ? 1 : 0; /* after the chain, which says when */
  return cudaLaunchKernelEx (&config, group_output_kernel<F>, a);
}

template <bool GATED>
static cudaError_t
run_sized (const Boxed &a, int64_t segments, cudaStream_t stream)
{
  if (a.f.d <= 64)
    return a.f.c <= 64 ? run_outputs<Group<64, 1, GATED>> (a, segments, stream)
                       : run_outputs<Group<64, 2, GATED>> (a, segments, stream);
  return a.f.c <= 64 ? run_outputs<Group<128, 1, GATED>> (a, segments, stream)
                     : run_outputs<Group<128, 2, GATED>> (a, segments, stream);
}

cudaError_t
linear_outputs_sm90 (const Forward &f, int64_t segments, cudaStream_t stream)
{
  Boxed a = {};

  a.f = f;
  a.is_boxed = f.is_wide && f.o.dtype == SP_DEV_BF16;
  if (!make_map (&a.queries, f.queries, f, f.kv_heads, f.d) || !make_map (&a.keys, f.keys, f, f.kv_heads, f.d) ||
      !make_map (&a.values, f.values, f, f.heads, f.c) || (a.is_boxed && !make_map (&a.o, f.o.data, f, f.heads, f.c)))
    return cudaErrorInvalidValue;
  return f.tables != nullptr ? run_sized<true> (a, segments, stream) : run_sized<false> (a, segments, stream);
}
