/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forward of linear attention whose decay follows the data. Of a decay a head it is device-linear-output.cuh's, with
 * weights that are read; of a decay a feature device-linear-decay-feature-fwd.cu.
 */
#include "kernels/device-linear-decay-tables.cuh"
#include "kernels/device-linear-decay.cuh"
#include "kernels/device-linear-output.cuh"

/* --- a decay a head ----------------------------------------------------------------------------------------------- */

/* A chunk's B, BETA and HALVES, copied a chunk ahead. */
template <typename F> struct ByHead {
  static constexpr int slot = HEAD_BYTES, bytes = 2 * slot;
  const float *table; /* of the segment's first chunk */
  unsigned char *slots;
  const float *b;
  int chunks;

  __device__ ByHead (const Forward &a, const Place &p, unsigned char *shared)
      : table (a.tables +
               ((p.b * a.heads + p.h) * ((a.m + CHUNK - 1) / CHUNK) + p.first / CHUNK) * (int64_t) TABLE_FLOATS),
        slots (shared), b (nullptr), chunks ((p.tokens + CHUNK - 1) / CHUNK)
  {
  }
  __device__ void copy (int chunk) const
  {
    constexpr int sums = 2 * CHUNK * 4 / 16;
    int piece = threadIdx.x;

    asm volatile("" : "+r"(piece)); /* what follows from it is not worth registers for a whole loop */

    if (chunk < chunks && piece < slot / 16)
      copy_16 ((uint32_t) __cvta_generic_to_shared (slots) + chunk % 2 * slot + piece * 16,
               table + chunk * TABLE_FLOATS + 4 * piece + (piece < sums ? TABLE_B : TABLE_HALVES - sums * 4), true);
    copy_commit ();
  }
  __device__ void start ()
  {
    copy (0);
  }
  __device__ void turn (int chunk, int)
  {
    b = (const float *) (slots + chunk % 2 * slot);
    copy (chunk + 1);
  }
  __device__ float score (int query, int key, float s) const
  {
    return query >= key ? s * exp2_fast (b[query] - b[key]) * b[CHUNK + key] : 0;
  }
  __device__ void outputs (Outputs<F> &out) const
  {
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++) {
      float2 own = *(const float2 *) (b + index_of (n, 0));
      float w[2] = { exp2_fast (own.x), exp2_fast (own.y) };
#pragma unroll
      for (int i = 0; i < F::tiles; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          out.o[i][n][e] *= w[e % 2];
    }
  }
  __device__ float factor () const
  {
    return exp2_fast (b[CHUNK - 1]);
  }
  __device__ uint32_t weights () const
  {
    return (uint32_t) __cvta_generic_to_shared (b) + HEAD_WEIGHTS;
  }
};

/* --- launches ----------------------------------------------------------------------------------------------------- */

template <typename F, int BLOCKS>
static cudaError_t
run_head (const Forward &a, int64_t segments, cudaStream_t stream)
{
  dim3 grid ((unsigned) div_up (a.c, F::C), (unsigned) (a.batch * a.heads), (unsigned) segments);

  return launch (output_kernel<F, BLOCKS, ByHead>, grid, F::threads, output_bytes<F, ByHead> (), stream, a);
}

static cudaError_t
head_outputs (const Forward &a, int64_t segments, cudaStream_t stream)
{
  if (a.d <= 64)
    return a.c <= 64 ? run_head<Form<64, 16, 4>, 3> (a, segments, stream)
                     : run_head<Form<64, 32, 4>, 2> (a, segments, stream);
  if (a.d <= 128)
    return a.c <= 64 ? run_head<Form<128, 16, 4>, 2> (a, segments, stream)
                     : run_head<Form<128, 32, 4>, 2> (a, segments, stream);
  return a.c <= 64 ? run_head<Form<256, 16, 4>, 1> (a, segments, stream)
                   : run_head<Form<256, 16, 8>, 1> (a, segments, stream);
}

/* Whether the outputs are by groups, as those of a slope. */
static bool
is_by_groups (const SpDevRecurrence *r)
{
  return r->decay == SP_DEV_DECAY_HEAD && r->shape.k <= 128 && has_groups ();
}

/* Tables first. Enough for either way, so that it can be asked where there is no card. */
static size_t
tables_bytes (const SpDevRecurrence *r)
{
  return r->decay == SP_DEV_DECAY_HEAD ? decay_tables_bytes (*r) : 0;
}

static cudaError_t
states_with_tables (DecayStates s, SpDevTensor beta, const float **before, cudaStream_t stream)
{
  cudaError_t error = cudaSuccess;

  if (s.r.decay == SP_DEV_DECAY_HEAD)
    error = decay_tables (s.r, s.gates, beta, (float *) s.scratch, stream);
  s.tables = (const float *) s.scratch;
  s.scratch = (char *) s.scratch + tables_bytes (&s.r);
  return error == cudaSuccess ? decay_states (s, before, stream) : error;
}

size_t
sp_dev_recurrent_scratch_bytes (const SpDevRecurrence *r)
{
  return tables_bytes (r) + decay_states_scratch (*r);
}

cudaError_t
sp_dev_recurrent_own (const SpDevRecurrence *r, SpDevTensor keys, SpDevTensor values, const float *gates,
                      SpDevTensor beta, float *state, float *transfer, void *scratch, cudaStream_t stream)
{
  const float *before;

  if (!decay_is_legal (*r, { keys, values }, beta))
    return cudaErrorInvalidValue;
  if (decay_is_empty (r->shape))
    return cudaSuccess;
  return states_with_tables ({ *r, gates, nullptr, false, keys, values, nullptr, state, transfer, nullptr, scratch },
                             beta, &before, stream);
}

cudaError_t
sp_dev_recurrent_own_bwd (const SpDevRecurrence *r, SpDevTensor q, const float *gates, SpDevTensor d_o, float *dstate,
                          float *transfer, void *scratch, cudaStream_t stream)
{
  const float *before;

  if (!decay_is_legal (*r, { q, d_o }, {}))
    return cudaErrorInvalidValue;
  if (decay_is_empty (r->shape))
    return cudaSuccess;
  return states_with_tables ({ *r, gates, nullptr, true, q, d_o, nullptr, dstate, transfer, nullptr, scratch }, {},
                             &before, stream);
}

cudaError_t
sp_dev_recurrent (const SpDevRecurrence *r, SpDevTensor q, SpDevTensor keys, SpDevTensor values, const float *gates,
                  SpDevTensor beta, const float *state_in, SpDevTensor o, float *state, void *scratch,
                  cudaStream_t stream)
{
  SpDevShape s = r->shape;
  bool by_groups = is_by_groups (r);
  Cut cut = linear_cut_of (s, by_groups);
  const float *before;
  cudaError_t error;

  if (!decay_is_legal (*r, { q, keys, values }, beta) || !are_floats ({ o }))
    return cudaErrorInvalidValue;
  if (decay_is_empty (s))
    return cudaSuccess;
  error = states_with_tables (
      { *r, gates, nullptr, false, keys, values, state_in, nullptr, nullptr, nullptr, scratch, by_groups }, beta,
      &before, stream);
  if (error != cudaSuccess)
    return error;
  Forward a = forward_of (s, cut.segment, q, keys, values, o);
  a.before = before;
  a.after = state;
  a.gates = gates;
  a.beta = beta;
  a.tables = (const float *) scratch;
#ifdef SP_SM90
  if (by_groups)
    return linear_outputs_sm90 (a, cut.segments, stream);
#endif
  return r->decay == SP_DEV_DECAY_HEAD ? head_outputs (a, cut.segments, stream)
                                       : feature_outputs (a, cut.segments, stream);
}
