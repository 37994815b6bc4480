/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pass over segments of device-linear-decay-states.cu, of a decay a feature: keys (or queries, in reverse) are scaled in
 * their tiles to the chunk's end (or start), so that none of their exponents is above 0. The states that are kept are scaled
 * to the chunk's middle in fp32, but for steep features.
 */
#include "kernels/device-linear-decay-feature.cuh"

/* Two stages of keys and values; one of gates, which are read before the products. */
template <typename F> struct Pass {
  using Columns = ::Columns<F::D, F::threads>;
  static constexpr int stage = F::key_bytes + F::value_bytes, gates_at = 2 * stage;
  static constexpr int parts_at = gates_at + CHUNK * F::D * 4, factors_at = parts_at + Columns::sum_bytes;
  static constexpr int totals_at =
      factors_at + 2 * F::D * 4; /* factors of the whole chunk, and of that until its middle */
  static constexpr int bytes = totals_at + F::D * 4;
};

/* Times factors, [D] in shared memory. */
template <typename F>
static __device__ inline void
state_keep (const States &a, const Place &p, const State<F> &state, uint32_t factors, int first, int chunk)
{
  int64_t vectors = a.f.batch * a.f.heads, vector = p.b * a.f.heads + p.h;
  uint16_t *to = a.kept + ((p.first / CHUNK + chunk) * vectors + vector) * a.f.c * a.f.d;

#pragma unroll
  for (int n = 0; n < F::D / 8; n += 4) {
    int feature = first + 8 * (n + (int) threadIdx.x % 4);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int column = p.column + column_of<F::R> (0, 2 * half);
      uint32_t w[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float2 factor = load_floats (factors + index_of (n + j, 0) * 4);
        w[j] = bf16_pair (state.s[0][n + j][2 * half] * factor.x, state.s[0][n + j][2 * half + 1] * factor.y);
      }
      quad_turn (w);
      if (feature < a.f.d && column < a.f.c)
        *(uint4 *) (to + column * a.f.d + feature) = make_uint4 (w[0], w[1], w[2], w[3]);
    }
  }
}

/* Scales the keys; factors and, of kept states, the mask of steep features. */
template <typename F, bool KEEP>
static __device__ inline void
keys_scale (const States &a, const Place &p, unsigned char *shared, uint32_t keys, int first, int chunk)
{
  using C = typename Pass<F>::Columns;
  C c;
  const float *gates = (const float *) (shared + Pass<F>::gates_at);
  float *factors = (float *) (shared + Pass<F>::factors_at);
  Sums s = sums_of<C, F::D> (c, (const float *) (shared + Pass<F>::parts_at));
  int feature = c.feature;
  bool reverse = a.reverse;

  gates_each<C, F::D> (c, gates, s, [&] (int i, float2 b) {
    scale_word (pair_place (keys, c.first + i, feature), exp2_fast (reverse ? b.x : s.end.x - b.x),
                exp2_fast (reverse ? b.y : s.end.y - b.y));
  });
  if (c.part > 0)
    return;
  *(float2 *) (factors + feature) = make_float2 (exp2_fast (s.end.x), exp2_fast (s.end.y));
  if (KEEP) {
    Steep steep = steep_of (s);
    float2 half = reverse ? make_float2 (s.end.x - s.middle.x, s.end.y - s.middle.y) : s.middle;
    int64_t at = (p.first / CHUNK + chunk) * gridDim.y + blockIdx.y;
    *(float2 *) (factors + F::D + feature) =
        make_float2 (steep.x ? 1 : exp2_fast (half.x), steep.y ? 1 : exp2_fast (half.y));
    if (p.column == 0 && !reverse)
      mask_put (a.masks + at * masks_of (a.f.d) * MASK_WORDS, first + feature, steep);
  } else {
    float2 *total = (float2 *) (shared + Pass<F>::totals_at + feature * 4);
    *total = plus (*total, s.end);
  }
}

/* g (element, where it is in a state) of what is there. */
template <typename F, typename G>
static __device__ inline void
state_places (const States &a, const Place &p, State<F> &state, int first, G g)
{
  state_each (state, [&] (float &s, int row, int column) {
    g (s, first + row < a.f.d && p.column + column < a.f.c, (first + row) * a.f.c + column);
  });
}

/* blockIdx.x: by columns of values, by parts of the features. */
template <typename F, bool KEEP>
static __global__ void
__launch_bounds__ (F::threads, BLOCKS_OF (2, Pass<F>::bytes)) states_kernel (States a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  using C = typename Pass<F>::Columns;
  uint32_t tiles = (uint32_t) __cvta_generic_to_shared (dynamic), factors = tiles + Pass<F>::factors_at;
  float *parts = (float *) (dynamic + Pass<F>::parts_at);
  float *totals = (float *) (dynamic + Pass<F>::totals_at);
  int segments = (int) ((a.f.m + a.f.segment - 1) / a.f.segment);
  Place p = place_at (a.f, F::C, a.reverse ? segments - 1 - (int) blockIdx.z : (int) blockIdx.z);
  int sides = (int) ((a.f.c + F::C - 1) / F::C), first = (int) blockIdx.x / sides * F::D;
  State<F> state = {};
  int count = (p.tokens + CHUNK - 1) / CHUNK;

  p.column = (int) blockIdx.x % sides * F::C;
  auto chunk_of = [&] (int i) { return a.reverse ? count - 1 - i : i; };
  auto start = [&] (int i) {
    if (i < count) {
      int chunk = chunk_of (i), rows = p.tokens - chunk * CHUNK;
      uint32_t to = tiles + i % 2 * Pass<F>::stage;
      int64_t token = p.first + chunk * CHUNK;
      asm volatile("" : "+l"(token)); /* as in the tiles */
      load_tile<F::key_row, F::threads> (to, a.f.keys + element_of (a.f, p, token, a.f.d) + first,
                                         a.f.batch * a.f.heads * a.f.d, rows, (int) a.f.d - first);
      load_tile<F::value_row, F::threads> (to + F::key_bytes, a.f.values + element_of (a.f, p, token, a.f.c) + p.column,
                                           a.f.batch * a.f.heads * a.f.c, rows, (int) a.f.c - p.column);
    }
    copy_commit ();
  };
  auto start_gates = [&] (int i) {
    if (i < count) {
      int64_t token = p.first + chunk_of (i) * CHUNK;
      asm volatile("" : "+l"(token));
      gates_load<F::D, F::threads> (tiles + Pass<F>::gates_at, a.f.gates + element_of (a.f, p, token, a.f.d) + first,
                                    a.f.batch * a.f.heads * a.f.d, p.tokens - chunk_of (i) * CHUNK,
                                    (int) a.f.d - first);
    }
    copy_commit ();
  };

  start_gates (0);
  start (0);
  for (int j = threadIdx.x; j < F::D; j += F::threads)
    totals[j] = 0;
  if (KEEP && a.f.before != nullptr) {
    const float *from = a.f.before + state_at (a.f, p, p.segment);
    state_places (a, p, state, first, [&] (float &s, bool is_there, int64_t at) { s = is_there ? from[at] : 0; });
  }
  for (int i = 0; i < count; i++) {
    uint32_t keys = tiles + i % 2 * Pass<F>::stage;

    copy_wait<0> ();
    __syncthreads (); /* the chunk is there, and the one before has been read */
    start (i + 1);
    gates_sum<C, F::D> ((const float *) (dynamic + Pass<F>::gates_at), parts);
    __syncthreads ();
    keys_scale<F, KEEP> (a, p, dynamic, keys, first, chunk_of (i));
    __syncthreads (); /* keys are scaled, gates have been read */
    start_gates (i + 1);
    if (KEEP) {
      state_keep (a, p, state, factors + F::D * 4, first, chunk_of (i));
      if (i + 1 == count)
        return;
    }
    state_scale (state, factors);
#pragma unroll 1 /* more would spill */
    for (int token = 0; token < CHUNK; token += 16) {
      uint32_t v[F::tiles][4];

      values_load<F> (v, keys + F::key_bytes, token);
      state_add (state, v, keys, token);
    }
  }
  if (KEEP)
    return;
  float *to = a.f.own + state_at (a.f, p, p.segment);
  state_places (a, p, state, first, [&] (float &s, bool is_there, int64_t at) {
    if (is_there)
      to[at] = s;
  });
  for (int j = threadIdx.x; p.column == 0 && j < min (F::D, (int) a.f.d - first); j += F::threads)
    a.totals[((int64_t) p.segment * gridDim.y + blockIdx.y) * a.f.d + first + j] = totals[j];
}

template <typename F>
static cudaError_t
run (const States &a, int64_t segments, cudaStream_t stream)
{
  dim3 grid ((unsigned) (div_up (a.f.c, F::C) * div_up (a.f.d, F::D)), (unsigned) (a.f.batch * a.f.heads),
             (unsigned) segments);

  return a.kept != nullptr ? launch (states_kernel<F, true>, grid, F::threads, Pass<F>::bytes, stream, a)
                           : launch (states_kernel<F, false>, grid, F::threads, Pass<F>::bytes, stream, a);
}

cudaError_t
feature_states (const States &a, int64_t segments, cudaStream_t stream)
{
  if (a.f.d <= 64)
    return a.f.c <= 64 ? run<Form<64, 16, 4>> (a, segments, stream) : run<Form<64, 16, 8>> (a, segments, stream);
  return a.f.c <= 64 ? run<Form<128, 16, 4>> (a, segments, stream) : run<Form<128, 16, 8>> (a, segments, stream);
}
