/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forward of linear attention whose decay follows the data. Of a decay a head it is device-linear-output.cuh's, with
 * weights that are read; of a decay a feature device-linear-decay-feature-fwd.cu.
 */
#include "kernels/device-linear-decay.cuh"
#include "kernels/device-linear-output.cuh"

/* --- a decay a head ----------------------------------------------------------------------------------------------- */

template <typename F> struct ByHead {
  static constexpr int bytes = 2 * HEAD_BYTES;
  HeadGates gates;
  unsigned char *slots;
  const float *b;

  __device__ ByHead (const Forward &a, const Place &p, unsigned char *shared)
      : gates (head_gates_of (a, p)), slots (shared), b (nullptr)
  {
  }
  __device__ void start ()
  {
    if (threadIdx.x < 32) {
      gates.fetch (0);
      gates.put (slots, false);
      gates.fetch (1);
    }
  }
  __device__ void turn (int chunk, int)
  {
    b = (const float *) (slots + chunk % 2 * HEAD_BYTES);
    if (threadIdx.x < 32) {
      gates.put (slots + (chunk + 1) % 2 * HEAD_BYTES, false);
      gates.fetch (chunk + 2);
    }
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

size_t
sp_dev_recurrent_scratch_bytes (const SpDevRecurrence *r)
{
  return decay_states_scratch (*r);
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
  return decay_states ({ *r, gates, beta, false, keys, values, nullptr, state, transfer, nullptr, scratch, nullptr },
                       &before, stream);
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
  return decay_states ({ *r, gates, {}, true, q, d_o, nullptr, dstate, transfer, nullptr, scratch, nullptr }, &before,
                       stream);
}

cudaError_t
sp_dev_recurrent (const SpDevRecurrence *r, SpDevTensor q, SpDevTensor keys, SpDevTensor values, const float *gates,
                  SpDevTensor beta, const float *state_in, SpDevTensor o, float *state, void *scratch,
                  cudaStream_t stream)
{
  SpDevShape s = r->shape;
  Cut cut = linear_cut_of (s, false);
  const float *before;
  cudaError_t error;

  if (!decay_is_legal (*r, { q, keys, values }, beta) || !are_floats ({ o }))
    return cudaErrorInvalidValue;
  if (decay_is_empty (s))
    return cudaSuccess;
  error = decay_states ({ *r, gates, beta, false, keys, values, state_in, nullptr, nullptr, nullptr, scratch, nullptr },
                        &before, stream);
  if (error != cudaSuccess)
    return error;
  Forward a = { s.m,
                s.batch,
                s.heads,
                s.k,
                s.n,
                cut.segment,
                nullptr,
                (const uint16_t *) q.data,
                (const uint16_t *) keys.data,
                (const uint16_t *) values.data,
                o,
                is_aligned (o.data, 16),
                before,
                nullptr,
                state,
                s.kv_heads,
                gates,
                beta };
  return r->decay == SP_DEV_DECAY_HEAD ? head_outputs (a, cut.segments, stream)
                                       : feature_outputs (a, cut.segments, stream);
}
