/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outputs of linear attention with a decay a feature: a block goes through a segment from the state before it. In each
 * chunk the state in registers is brought to the middle, is read and added to there, and is brought on to the end: not at
 * once to the next middle, as both factors together may be less than fp32's least.
 */
#include "kernels/device-linear-decay-feature.cuh"

/* One stage: two blocks of 8 warps share a multiprocessor where there is room. The parts' sums lie where scores come to
 * lie. Factors bring the state to the chunk's middle, and carries from there to its end. */
template <typename F> struct Outer {
  using Columns = ::Columns<F::D, F::threads>;
  static constexpr int gates_at = 2 * F::key_bytes + F::value_bytes, scores_at = gates_at + CHUNK * F::D * 4;
  static constexpr int staged_at = scores_at + F::score_bytes, factors_at = staged_at + F::W * F::staged_bytes;
  static constexpr int carries_at = factors_at + F::D * 4, mask_at = carries_at + F::D * 4;
  static constexpr int bytes = mask_at + F::D / 64 * 8;
  static_assert (Columns::sum_bytes <= F::score_bytes);
};

/* Scales queries and keys, but of steep features, of which b goes where the gates were. Whether any is. */
template <typename F>
static __device__ inline bool
tiles_scale (unsigned char *shared, uint32_t q_tile)
{
  using C = typename Outer<F>::Columns;
  C c;
  int feature = c.feature;
  float *gates = (float *) (shared + Outer<F>::gates_at);
  Sums s = sums_of<C, F::D> (c, (const float *) (shared + Outer<F>::scores_at));
  Steep steep = steep_of (s);

  gates_each<C, F::D> (c, gates, s, [&] (int i, float2 b) {
    uint32_t at = pair_place (q_tile, c.first + i, feature);
    float2 up = make_float2 (steep.x ? 0 : b.x - s.middle.x, steep.y ? 0 : b.y - s.middle.y);
    scale_word (at, exp2_fast (up.x), exp2_fast (up.y));
    scale_word (at + F::key_bytes, exp2_fast (-up.x), exp2_fast (-up.y));
    if (steep.any ())
      *(float2 *) (gates + (c.first + i) * F::D + feature) = b;
  });
  if (c.part == 0) {
    float2 *factors = (float2 *) (shared + Outer<F>::factors_at + feature * 4);
    float2 *carries = (float2 *) (shared + Outer<F>::carries_at + feature * 4);
    *factors = make_float2 (steep.x ? 1 : exp2_fast (s.middle.x), steep.y ? 1 : exp2_fast (s.middle.y));
    *carries =
        make_float2 (steep.x ? 1 : exp2_fast (s.end.x - s.middle.x), steep.y ? 1 : exp2_fast (s.end.y - s.middle.y));
    mask_put ((uint32_t *) (shared + Outer<F>::mask_at), feature, steep);
  }
  return steep.any ();
}

/* Once scores are there: steep features' queries to the chunk's start and keys to its end, and what brings the state there
 * once it has been read. */
template <typename F>
static __device__ inline void
steep_scale (unsigned char *shared, uint32_t q_tile)
{
  using C = typename Outer<F>::Columns;
  C c;
  int feature = c.feature;
  const uint32_t *mask = (const uint32_t *) (shared + Outer<F>::mask_at);
  const float *gates = (const float *) (shared + Outer<F>::gates_at) + feature;
  Steep steep = { mask_has (mask, feature), mask_has (mask, feature + 1) };
  float2 end = *(const float2 *) (gates + (CHUNK - 1) * F::D);

  if (steep.any ())
#pragma unroll 1
    for (int i = 0; i < C::length; i++) {
      uint32_t at = pair_place (q_tile, c.first + i, feature);
      float2 b = *(const float2 *) (gates + (c.first + i) * F::D);
      scale_word (at, steep.x ? exp2_fast (b.x) : 1, steep.y ? exp2_fast (b.y) : 1);
      scale_word (at + F::key_bytes, steep.x ? exp2_fast (end.x - b.x) : 1, steep.y ? exp2_fast (end.y - b.y) : 1);
    }
  if (c.part == 0)
    *(float2 *) (shared + Outer<F>::factors_at + feature * 4) =
        make_float2 (steep.x ? exp2_fast (end.x) : 1, steep.y ? exp2_fast (end.y) : 1);
}

/* Blocks on and below the diagonal, dealt to the warps. */
template <typename F>
static __device__ inline void
scores_make (unsigned char *shared, uint32_t q_tile, bool is_steep)
{
  const float *b = (const float *) (shared + Outer<F>::gates_at);
  const uint32_t *mask = (const uint32_t *) (shared + Outer<F>::mask_at);

  for (int u = threadIdx.x / 32; u < 10; u += F::W) {
    int i = u < 1 ? 0 : u < 3 ? 1 : u < 6 ? 2 : 3, j = u - i * (i + 1) / 2;
    float s[2][4] = {};

    rows_by_rows<F::D> (q_tile, q_tile + F::key_bytes, i, j, s);
    if (is_steep)
      steep_scores<F::D, F::D> (q_tile, q_tile + F::key_bytes, b, mask, i, j, s);
    causal (i, j, s);
    score_store (q_tile + Outer<F>::scores_at, i, j, s);
  }
}

template <typename F, int BLOCKS>
static __global__ void
__launch_bounds__ (F::threads, BLOCKS_OF (BLOCKS, Outer<F>::bytes)) outputs_kernel (Forward a)
{
  extern __shared__ __align__ (1024) unsigned char dynamic[];
  using C = typename Outer<F>::Columns;
  uint32_t q_tile = (uint32_t) __cvta_generic_to_shared (dynamic), values = q_tile + 2 * F::key_bytes;
  uint32_t scores = q_tile + Outer<F>::scores_at, staged = q_tile + Outer<F>::staged_at;
  uint32_t factors = q_tile + Outer<F>::factors_at, carries = q_tile + Outer<F>::carries_at;
  Place p = place_of (a, F::C);
  State<F> state = {};

  auto start = [&] (int64_t first, int rows) {
    asm volatile("" : "+l"(first)); /* as in the tiles */
    int64_t key = element_of (a, p, first, a.d), stride = a.batch * a.heads;
    gates_load<F::D, F::threads> (q_tile + Outer<F>::gates_at, a.gates + key, stride * a.d, rows, (int) a.d);
    load_tile<F::key_row, F::threads> (q_tile, a.queries + key, stride * a.d, rows, (int) a.d);
    load_tile<F::key_row, F::threads> (q_tile + F::key_bytes, a.keys + key, stride * a.d, rows, (int) a.d);
    load_tile<F::value_row, F::threads> (values, a.values + element_of (a, p, first, a.c) + p.column, stride * a.c,
                                         rows, (int) a.c - p.column);
    copy_commit ();
  };

  if (a.before != nullptr)
    state_load (a, p, a.before + state_at (a, p, p.segment), state);
  for (int done = 0; done < p.tokens; done += CHUNK) {
    Outputs<F> out = {};

    __syncthreads (); /* the chunk before has been read */
    start (p.first + done, p.tokens - done);
    if (done > 0)
      state_scale (state, carries);
    copy_wait<0> ();
    __syncthreads ();
    gates_sum<C, F::D> ((const float *) (dynamic + Outer<F>::gates_at), (float *) (dynamic + Outer<F>::scores_at));
    __syncthreads ();
    bool is_steep = __syncthreads_or (tiles_scale<F> (dynamic, q_tile));
    scores_make<F> (dynamic, q_tile, is_steep);
    state_scale (state, factors);
    __syncthreads (); /* the scores are there */
    if (is_steep) {
      steep_scale<F> (dynamic, q_tile);
      __syncthreads ();
    }
    state_read (out, state, q_tile);
    if (is_steep)
      state_scale (state, factors);
#pragma unroll
    for (int token = 0; token < CHUNK; token += 16) {
      uint32_t v[F::tiles][4];

      values_load<F> (v, values, token);
      scores_read (out, v, scores, token);
      state_add (state, v, q_tile + F::key_bytes, token);
    }
    outputs_store (a, p, out, staged, p.first + done, p.tokens - done);
  }
  if (a.after == nullptr || p.first + p.tokens < a.m)
    return;
  state_scale (state, carries);
  state_store (a, p, state, a.after + state_at (a, p, 0));
}

template <typename F, int BLOCKS>
static cudaError_t
run (const Forward &a, int64_t segments, cudaStream_t stream)
{
  dim3 grid ((unsigned) div_up (a.c, F::C), (unsigned) (a.batch * a.heads), (unsigned) segments);

  return launch (outputs_kernel<F, BLOCKS>, grid, F::threads, Outer<F>::bytes, stream, a);
}

cudaError_t
feature_outputs (const Forward &a, int64_t segments, cudaStream_t stream)
{
  if (a.d <= 64)
    return a.c <= 64 ? run<Form<64, 16, 4>, 3> (a, segments, stream) : run<Form<64, 16, 8>, 2> (a, segments, stream);
  if (a.d <= 128)
    return a.c <= 64 ? run<Form<128, 16, 4>, 2> (a, segments, stream) : run<Form<128, 16, 8>, 2> (a, segments, stream);
  return run<Form<256, 16, 8>, 1> (a, segments, stream);
}
