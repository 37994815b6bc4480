/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of linear attention with a decay, by products of warps: for every card, and for sizes that
 * device-linear-bwd-kernel.cuh does not take.
 *
 * A gradient is one form of three: with queries z[D], keys x[D] and values y[C], in the order of tokens or against it,
 *     o_i = sum over j up to i of lambda^|i-j| (z_i . x_j) y_j
 * which is dq with (dO, v, k), and, against the order, dk with (v, dO, q) and dv with (k, q, dO). The sequence is cut in
 * segments: first what each adds to M and to E (see device-linear-bwd-kernel.cuh), then the chains of both, then all three
 * gradients from the states before (or after) each segment, in chunks of 64 tokens.
 *
 * A warp has R of the C columns, and all that it accumulates is turned: the state S^T[R,D] and the outputs o^T[R,64], in
 * fp32 in registers. The state then is an operand of the outputs as it lies there, and never leaves its warp. Only the
 * scores within a chunk are shared.
 */
#include "kernels/device-linear-bwd-tiles.cuh"
#include "kernels/device-linear-warps.cuh"

#define CHUNK 64
#define CHAIN_THREADS 256

enum { DQ, DKEYS, DVALUES, GRADIENTS };

struct Gradients {
  int64_t m, vectors, heads, segment; /* vectors: batch * heads; segment: tokens, a multiple of CHUNK */
  int segments, dk, dv;
  const float *slopes;
  const uint16_t *q, *keys, *values, *d_o;
  SpDevTensor out[GRADIENTS];
  float *states[2]; /* of M and E [segments,vectors,dk,dv]: what each adds; then M before it, E after it */
  int first, roles; /* the gradients, or the chains, that a launch makes */
  bool has_last;    /* E before the first token is wanted */
};

/* A block's columns are W warps' R each, of keys of up to D features. */
template <int D_, int R_, int W_, int STAGES_> struct Form {
  static constexpr int D = D_, R = R_, W = W_, stages = STAGES_;
  static constexpr int C = R * W, threads = 32 * W, tiles = R / 16;
  static constexpr int key_row = 2 * D, value_row = 2 * C, score_row = 2 * CHUNK; /* bytes */
  static constexpr int key_bytes = CHUNK * key_row, value_bytes = CHUNK * value_row, score_bytes = CHUNK * score_row;
  static constexpr int weight_bytes = CHUNK * 4;
  static constexpr int segment_bytes = (stages + 1) * (key_bytes + value_bytes) + weight_bytes;
  static constexpr int gradient_bytes = stages * (2 * key_bytes + value_bytes) + score_bytes + weight_bytes;
};

/* One gradient's operands. */
struct Operands {
  const uint16_t *z, *x, *y;
  int d, c;
  bool reverse;
};

static __device__ inline Operands
operands_of (const Gradients &a, int gradient)
{
  return gradient == DQ      ? Operands{ a.d_o, a.values, a.keys, a.dv, a.dk, false }
         : gradient == DKEYS ? Operands{ a.values, a.d_o, a.q, a.dv, a.dk, true }
                             : Operands{ a.keys, a.q, a.d_o, a.dk, a.dv, true };
}

/* What a block works on. */
struct Place {
  int64_t vector, first; /* token of the segment */
  int segment, tokens, chunks, column;
  float slope2;
};

static __device__ inline Place
place_of (const Gradients &a, int columns)
{
  Place p;

  p.segment = blockIdx.x;
  p.vector = blockIdx.y;
  p.column = (int) blockIdx.z / a.roles * columns;
  p.first = p.segment * a.segment;
  p.tokens = (int) min (a.m - p.first, a.segment);
  p.chunks = (p.tokens + CHUNK - 1) / CHUNK;
  p.slope2 = a.slopes[p.vector % a.heads] * LOG2_E;
  return p;
}

/* --- states ------------------------------------------------------------------------------------------------------- */

/* Weights of a whole chunk's tokens in its state; where a chunk is not whole no state is wanted of M, and E's are the
 * same. */
static __device__ inline void
set_weights (float *weights, bool reverse, float slope2)
{
  int j = threadIdx.x;

  if (j < CHUNK)
    weights[j] = decay2 (slope2, reverse ? j + 1 : CHUNK - 1 - j);
}

/* Fragments of 16 tokens' values, turned. */
template <typename F>
static __device__ inline void
load_values (uint32_t v[F::tiles][4], uint32_t y_tile, int token)
{
#pragma unroll
  for (int i = 0; i < F::tiles; i++)
    columns_a<F::value_row> (v[i], y_tile, token, (int) threadIdx.x / 32 * F::R + 16 * i);
}

/* state += (weighed y)^T x of 16 tokens, whose y are in v */
template <typename F>
static __device__ inline void
add_tokens (State<F> &state, uint32_t v[F::tiles][4], const float *weights, uint32_t x_tile, int token)
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float2 w = *(const float2 *) (weights + token + 8 * half + threadIdx.x % 4 * 2);
#pragma unroll
    for (int i = 0; i < F::tiles; i++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        uint32_t &pair = v[i][2 * half + e];
        pair = bf16_pair (bf16_at (pair, 0) * w.x, bf16_at (pair, 1) * w.y);
      }
  }
#pragma unroll
  for (int n = 0; n < F::D / 8; n += 2) {
    uint32_t b[4];

    columns_b<F::key_row> (b, x_tile, token, 8 * n);
#pragma unroll
    for (int i = 0; i < F::tiles; i++) {
      mma (state.s[i][n], v[i], b[0], b[1]);
      mma (state.s[i][n + 1], v[i], b[2], b[3]);
    }
  }
}

/* What segments add to M (columns: keys' features, against values) and to E. */
template <typename F>
static __global__ void
__launch_bounds__ (F::threads) segment_kernel (Gradients a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  constexpr int stages = F::stages + 1, stage_bytes = F::key_bytes + F::value_bytes;
  bool reverse = a.first + blockIdx.z % a.roles != 0;
  Place p = place_of (a, F::C);
  const uint16_t *x = (reverse ? a.d_o : a.values) + (p.first * a.vectors + p.vector) * a.dv;
  const uint16_t *y = (reverse ? a.q : a.keys) + (p.first * a.vectors + p.vector) * a.dk + p.column;
  uint32_t tiles = (uint32_t) __cvta_generic_to_shared (dynamic);
  float *weights = (float *) (dynamic + stages * stage_bytes);
  State<F> state = {};
  auto load = [&] (int step) {
    int from = (reverse ? p.chunks - 1 - step : step) * CHUNK;
    uint32_t to = tiles + step % stages * stage_bytes;

    if (step < p.chunks) {
      load_tile<F::key_row, CHUNK, F::threads> (to, x + from * a.vectors * a.dv, a.vectors * a.dv, p.tokens - from,
                                                a.dv);
      load_tile<F::value_row, CHUNK, F::threads> (to + F::key_bytes, y + from * a.vectors * a.dk, a.vectors * a.dk,
                                                  p.tokens - from, a.dk - p.column);
    }
    copy_commit ();
  };

  /* The last of a chain adds to nobody's state. */
  if (reverse ? p.segment == 0 && !a.has_last : p.segment == a.segments - 1)
    return;
  for (int step = 0; step < stages - 1; step++)
    load (step);
  set_weights (weights, reverse, p.slope2);
  for (int step = 0; step < p.chunks; step++) {
    int tokens = min (p.tokens - (reverse ? p.chunks - 1 - step : step) * CHUNK, CHUNK);
    float factor = decay2 (p.slope2, tokens);
    uint32_t x_tile = tiles + step % stages * stage_bytes;

    copy_wait<stages - 2> ();
    __syncthreads ();
    load (step + stages - 1);
    state_decay (state, factor);
#pragma unroll
    for (int token = 0; token < CHUNK; token += 16) {
      uint32_t v[F::tiles][4];

      load_values<F> (v, x_tile + F::key_bytes, token);
      add_tokens<F> (state, v, weights, x_tile, token);
    }
  }
  float *to = a.states[reverse] + (p.segment * a.vectors + p.vector) * a.dk * a.dv;
#pragma unroll
  for (int i = 0; i < F::tiles; i++)
#pragma unroll
    for (int n = 0; n < F::D / 8; n++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        int row = p.column + column_of<F::R> (i, 2 * half), column = index_of (n, 0);
        if (row < a.dk && column < a.dv)
          *(float2 *) (to + row * a.dv + column) = make_float2 (state.s[i][n][2 * half], state.s[i][n][2 * half + 1]);
      }
}

/* Of one chain, four elements of a state a thread. */
struct Chains {
  int64_t m, segment, heads, size, all; /* floats of a state, of all vectors' */
  int segments;
  const float *slopes;
  float *m_states, *e_states;
  const float *m_first, *e_first;
  float *e_last;
};

static __global__ void
__launch_bounds__ (CHAIN_THREADS) chain_kernel (Chains c)
{
  int64_t i = ((int64_t) blockIdx.x * CHAIN_THREADS + threadIdx.x) * 4;
  int reverse = blockIdx.y;
  float4 s = make_float4 (0, 0, 0, 0);

  float *states = reverse ? c.e_states : c.m_states;
  const float *first = reverse ? c.e_first : c.m_first;

  if (i >= c.all || states == nullptr)
    return;
  float slope2 = c.slopes[i / c.size % c.heads] * LOG2_E;
  float whole = exp2f (-slope2 * (float) c.segment),
        last = exp2f (-slope2 * (float) (c.m - (c.segments - 1) * c.segment));

  if (first != nullptr)
    s = *(const float4 *) (first + i);
#pragma unroll 8
  for (int step = 0; step < c.segments; step++) {
    int segment = reverse ? c.segments - 1 - step : step;
    float4 *at = (float4 *) (states + segment * c.all + i);
    float factor = segment == c.segments - 1 ? last : whole;
    bool is_added = reverse ? segment > 0 || c.e_last != nullptr : segment < c.segments - 1;
    float4 own = is_added ? __ldcs (at) : s;

    *at = s;
    s = make_float4 (factor * s.x + own.x, factor * s.y + own.y, factor * s.z + own.z, factor * s.w + own.w);
  }
  if (reverse && c.e_last != nullptr)
    *(float4 *) (c.e_last + i) = s;
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* The scores of 16 queries by 16 keys, blocks i and j of them, decayed by distance, zero where the key comes after. */
template <typename F>
static __device__ inline void
score_block (uint32_t z_tile, uint32_t x_tile, uint32_t scores, int i, int j, bool reverse, float slope2)
{
  float s[2][4] = {};
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
  for (int k = 0; k < F::D; k += 16) {
    uint32_t a[4], b[4];

    rows_a<F::key_row> (a, z_tile, 16 * i, k);
    rows_b<F::key_row> (b, x_tile, 16 * j, k);
    mma (s[0], a, b[0], b[1]);
    mma (s[1], a, b[2], b[3]);
  }
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      int distance = 16 * (i - j) + g + e / 2 * 8 - index_of (n, 0), to = reverse ? -1 : 1;
      float low = to * distance >= 0 ? s[n][e] * decay2 (slope2, to * distance) : 0;
      float high = to * (distance - 1) >= 0 ? s[n][e + 1] * decay2 (slope2, to * (distance - 1)) : 0;
      uint32_t at = scores + piece_at<F::score_row> (16 * i + g + 4 * e, 2 * j + n) + 4 * t;

      asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(at), "r"(bf16_pair (low, high)) : "memory");
    }
}

/* Blocks on the diagonal and where the key comes before, dealt to the warps. */
template <typename F>
static __device__ inline void
score_chunk (uint32_t z_tile, uint32_t x_tile, uint32_t scores, bool reverse, float slope2)
{
  constexpr int blocks = (CHUNK / 16) * (CHUNK / 16 + 1) / 2;

  for (int u = threadIdx.x / 32; u < blocks; u += F::W) {
    int i = u < 1 ? 0 : u < 3 ? 1 : u < 6 ? 2 : 3, j = u - i * (i + 1) / 2;
    score_block<F> (z_tile, x_tile, scores, reverse ? j : i, reverse ? i : j, reverse, slope2);
  }
}

template <typename F> struct Outputs {
  float o[F::tiles][CHUNK / 8][4];
};

/* o^T = S^T z^T, decayed from the state to each token */
template <typename F>
static __device__ inline void
read_state (Outputs<F> &out, const State<F> &state, uint32_t z_tile, bool reverse, int tokens, float slope2)
{
#pragma unroll
  for (int k = 0; k < F::D / 8; k += 2) {
    uint32_t a[F::tiles][4], b[4];

#pragma unroll
    for (int i = 0; i < F::tiles; i++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        a[i][e] = bf16_pair (state.s[i][k + e / 2][e % 2 * 2], state.s[i][k + e / 2][e % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n += 2) {
      rows_b<F::key_row> (b, z_tile, 8 * n, 8 * k);
#pragma unroll
      for (int i = 0; i < F::tiles; i++) {
        mma (out.o[i][n], a[i], b[0], b[1]);
        mma (out.o[i][n + 1], a[i], b[2], b[3]);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      int r = index_of (n, e);
      float w = decay2 (slope2, reverse ? max (tokens - 1 - r, 0) : r + 1);
#pragma unroll
      for (int i = 0; i < F::tiles; i++) {
        out.o[i][n][e] *= w;
        out.o[i][n][e + 2] *= w;
      }
    }
}

/* o^T += y^T P^T for 16 keys, and the queries that see them */
template <typename F>
static __device__ inline void
read_scores (Outputs<F> &out, const uint32_t v[F::tiles][4], uint32_t scores, int token, bool reverse)
{
#pragma unroll
  for (int n = 0; n < CHUNK / 8; n += 2) {
    uint32_t b[4];

    if (reverse ? 8 * n > token : 8 * n < token)
      continue;
    rows_b<F::score_row> (b, scores, 8 * n, token);
#pragma unroll
    for (int i = 0; i < F::tiles; i++) {
      mma (out.o[i][n], v[i], b[0], b[1]);
      mma (out.o[i][n + 1], v[i], b[2], b[3]);
    }
  }
}

/* Of a warp's 16 columns by 8 tokens at a time: each lane has two tokens of two columns, and gets them for four. */
template <typename F>
static __device__ inline void
store_outputs (const Gradients &a, const Place &p, SpDevTensor to, int c, const Outputs<F> &out, int64_t first,
               int tokens)
{
#pragma unroll
  for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
    for (int i = 0; i < F::tiles; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        /* Columns g and g + 1 of one token rather than tokens r and r + 1 of one column. */
        int lane = threadIdx.x % 32, is_odd = lane / 4 % 2;
        float low = out.o[i][n][2 * half], high = out.o[i][n][2 * half + 1];
        float got = __shfl_xor_sync (0xffffffffu, is_odd ? low : high, 4);
        int token = index_of (n, is_odd), column = p.column + column_of<F::R> (i, 2 * half) - is_odd;

        if (token < tokens && column < c)
          store_pair (to, ((first + token) * a.vectors + p.vector) * c + column, is_odd ? got : low,
                      is_odd ? high : got);
      }
}

template <typename F>
static __global__ void
__launch_bounds__ (F::threads) gradient_kernel (Gradients a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  constexpr int stage_bytes = 2 * F::key_bytes + F::value_bytes;
  int gradient = a.first + blockIdx.z % a.roles;
  Operands o = operands_of (a, gradient);
  bool reverse = o.reverse;
  Place p = place_of (a, F::C);
  uint32_t tiles = (uint32_t) __cvta_generic_to_shared (dynamic), scores = tiles + F::stages * stage_bytes;
  float *weights = (float *) (dynamic + F::stages * stage_bytes + F::score_bytes);
  State<F> state = {};
  auto load = [&] (int step) {
    int from = (reverse ? p.chunks - 1 - step : step) * CHUNK;
    int64_t key = ((p.first + from) * a.vectors + p.vector) * o.d,
            value = ((p.first + from) * a.vectors + p.vector) * o.c;
    uint32_t to = tiles + step % F::stages * stage_bytes;

    if (step < p.chunks) {
      load_tile<F::key_row, CHUNK, F::threads> (to, o.z + key, a.vectors * o.d, p.tokens - from, o.d);
      load_tile<F::key_row, CHUNK, F::threads> (to + F::key_bytes, o.x + key, a.vectors * o.d, p.tokens - from, o.d);
      load_tile<F::value_row, CHUNK, F::threads> (to + 2 * F::key_bytes, o.y + value + p.column, a.vectors * o.c,
                                                  p.tokens - from, o.c - p.column);
    }
    copy_commit ();
  };

  if (p.column >= o.c)
    return;
  if (F::stages > 1)
    load (0);
  set_weights (weights, reverse, p.slope2);
  const float *from = a.states[reverse];
  if (from != nullptr) {
    from += (p.segment * a.vectors + p.vector) * a.dk * a.dv;
    state_each (state, [&] (float &s, int index, int column) {
      column += p.column;
      if (index < o.d && column < o.c)
        s = from[gradient == DVALUES ? index * a.dv + column : column * a.dv + index];
    });
  }
  for (int step = 0; step < p.chunks; step++) {
    int chunk = reverse ? p.chunks - 1 - step : step, tokens = min (p.tokens - chunk * CHUNK, CHUNK);
    uint32_t z_tile = tiles + step % F::stages * stage_bytes, x_tile = z_tile + F::key_bytes,
             y_tile = x_tile + F::key_bytes;
    Outputs<F> out = {};

    if (F::stages == 1)
      load (step);
    copy_wait<0> ();
    __syncthreads ();
    if (F::stages > 1)
      load (step + 1);
    score_chunk<F> (z_tile, x_tile, scores, reverse, p.slope2);
    read_state<F> (out, state, z_tile, reverse, tokens, p.slope2);
    __syncthreads ();
    float factor = decay2 (p.slope2, tokens);
    state_decay (state, factor);
#pragma unroll 2
    for (int token = 0; token < CHUNK; token += 16) {
      uint32_t v[F::tiles][4];

      load_values<F> (v, y_tile, token);
      read_scores<F> (out, v, scores, token, reverse);
      if (step + 1 < p.chunks)
        add_tokens<F> (state, v, weights, x_tile, token);
    }
    if (F::stages == 1)
      __syncthreads ();
    store_outputs<F> (a, p, a.out[gradient], o.c, out, p.first + chunk * CHUNK, tokens);
  }
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* Tokens of a segment: the longest that leave some hundreds of blocks. */
static int64_t
segment_of (SpDevShape s)
{
  int64_t chunks = div_up (s.m, CHUNK), most = chunks * s.batch * s.heads / 512;

  return CHUNK * (most < 2 ? 2 : most > 16 ? 16 : most);
}

static int64_t
states_of (SpDevShape s)
{
  return div_up (s.m, segment_of (s)) * s.batch * s.heads * s.k * s.n;
}

size_t
linear_bwd_sm80_scratch (SpDevShape s)
{
  return (size_t) (2 * states_of (s)) * sizeof (float);
}

typedef Form<64, 16, 4, 2> Form64;
typedef Form<128, 32, 4, 2> Form128;
typedef Form<256, 16, 8, 1> Form256;

template <typename F>
static cudaError_t
launch_segments (const Gradients &a, cudaStream_t stream)
{
  dim3 grid ((unsigned) a.segments, (unsigned) a.vectors, (unsigned) (div_up (a.dk, F::C) * a.roles));

  return launch (segment_kernel<F>, grid, F::threads, F::segment_bytes, stream, a);
}

template <typename F>
static cudaError_t
launch_gradients (const Gradients &a, cudaStream_t stream)
{
  int widest = a.first == DVALUES ? a.dv : a.roles < GRADIENTS || a.dk > a.dv ? a.dk : a.dv;
  dim3 grid ((unsigned) a.segments, (unsigned) a.vectors, (unsigned) (div_up (widest, F::C) * a.roles));

  return launch (gradient_kernel<F>, grid, F::threads, F::gradient_bytes, stream, a);
}

/* Those of `roles` gradients from `first` on, whose keys have `size` features. */
static cudaError_t
make_gradients (Gradients a, int first, int roles, int size, cudaStream_t stream)
{
  a.first = first;
  a.roles = roles;
  return tile_size (size) == 64    ? launch_gradients<Form64> (a, stream)
         : tile_size (size) == 128 ? launch_gradients<Form128> (a, stream)
                                   : launch_gradients<Form256> (a, stream);
}

/* The states that segments begin from, where they are not all zero. */
static cudaError_t
make_states (Gradients &a, const LinearBwd &x, cudaStream_t stream)
{
  int64_t size = x.shape.k * x.shape.n, all = a.vectors * size;
  bool has_m = is_present (x.dq), has_e = is_present (x.dkeys) || x.dstate_in != nullptr;
  Chains c = { a.m,      a.segment, a.heads, size,       all,          a.segments,
               a.slopes, nullptr,   nullptr, x.state_in, x.dstate_out, x.dstate_in };
  cudaError_t error = cudaSuccess;

  a.states[0] = has_m && (a.segments > 1 || x.state_in != nullptr) ? (float *) x.scratch : nullptr;
  a.states[1] = has_e && (a.segments > 1 || x.dstate_out != nullptr || x.dstate_in != nullptr)
                    ? (float *) x.scratch + states_of (x.shape)
                    : nullptr;
  a.first = a.states[0] == nullptr;
  a.roles = (a.states[0] != nullptr) + (a.states[1] != nullptr);
  a.has_last = x.dstate_in != nullptr;
  if (a.roles == 0)
    return cudaSuccess;
  if (a.segments > 1 || a.has_last)
    error = tile_size (a.dv) == 64    ? launch_segments<Form64> (a, stream)
            : tile_size (a.dv) == 128 ? launch_segments<Form<128, 16, 8, 2>> (a, stream)
                                      : launch_segments<Form256> (a, stream);
  if (error != cudaSuccess)
    return error;
  c.m_states = a.states[0];
  c.e_states = a.states[1];
  return launch (chain_kernel, dim3 ((unsigned) div_up (all / 4, CHAIN_THREADS), 2), CHAIN_THREADS, 0, stream, c);
}

cudaError_t
linear_bwd_sm80 (const LinearBwd &x, cudaStream_t stream)
{
  SpDevShape s = x.shape;
  Gradients a = {};
  cudaError_t error;

  a.m = s.m;
  a.vectors = s.batch * s.heads;
  a.heads = s.heads;
  a.segment = segment_of (s);
  a.segments = (int) div_up (s.m, a.segment);
  a.dk = (int) s.k;
  a.dv = (int) s.n;
  a.slopes = x.slopes;
  a.q = (const uint16_t *) x.q.data;
  a.keys = (const uint16_t *) x.keys.data;
  a.values = (const uint16_t *) x.values.data;
  a.d_o = (const uint16_t *) x.d_o.data;
  a.out[DQ] = x.dq;
  a.out[DKEYS] = x.dkeys;
  a.out[DVALUES] = x.dvalues;
  error = make_states (a, x, stream);
  if (error != cudaSuccess || !is_present (x.dq))
    return error;
  if (tile_size (s.k) == tile_size (s.n))
    return make_gradients (a, DQ, GRADIENTS, a.dv, stream);
  error = make_gradients (a, DQ, 2, a.dv, stream);
  return error != cudaSuccess ? error : make_gradients (a, DVALUES, 1, a.dk, stream);
}
