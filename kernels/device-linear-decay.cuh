/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Linear attention whose decay follows the data: of each token and head (Mamba-2, simple GLA), or also of each feature of
 * keys (GLA). See reference.h for the rule. With b_i the sum of the logarithms of a chunk's decays up to token i, itself
 * included, in powers of 2, what stands at token j counts at i by 2^(b_i - b_j). No exponent is above 0 where decays are
 * at most 1, however steep.
 *
 * A decay a head is a weight of a score. One a feature is part of the products: device-linear-decay-feature.cuh.
 */

#include "kernels/device-linear-columns.cuh"

/* Of one direction: states in the order of tokens, or gradients of states against it, which have the same form with q and
 * d_o for keys and values. */
struct DecayStates {
  SpDevRecurrence r;
  const float *gates;
  const float *tables; /* of a decay a head, device-linear-decay-tables.cuh */
  bool reverse;
  SpDevTensor keys, values;
  const float *first;     /* [batch,heads,k,n]: before all; NULL: zero */
  float *last, *transfer; /* after all; T; or NULL */
  uint16_t *kept;         /* [chunks,batch,heads,n,k] in bf16: before each chunk; or NULL */
  void *scratch;
  bool by_groups = false;    /* the cut of outputs by groups */
  uint32_t *masks = nullptr; /* with kept, of a decay a feature, whose states are kept at the middles of chunks */
};

/* One pass over segments, those that come first in their order. */
struct States {
  Forward f;
  bool reverse;
  float *totals;   /* [segments,batch,heads,1 or d]: of the logarithms of decays; f.own goes with it */
  uint16_t *kept;  /* [chunks,batch,heads,c,d], or NULL: then from f.before the states before chunks */
  uint32_t *masks; /* of which features are steep: device-linear-decay-feature.cuh */
};

/* `before` gets the states before segments of linear_cut_of, or NULL: zero, of the only one. */
cudaError_t decay_states (const DecayStates &s, const float **before, cudaStream_t stream);
size_t decay_states_scratch (const SpDevRecurrence &r);

/* The operands of sp_dev_recurrent_bwd, without beta. */
struct DecayBackward {
  SpDevRecurrence r;
  SpDevTensor q, keys, values;
  const float *gates;
  SpDevTensor d_o;
  const float *state_in, *dstate_out;
  SpDevTensor dq, dkeys, dvalues;
  float *dgates, *dstate_in;
  void *scratch;
};

/* Of a decay a feature: device-linear-decay-feature-*.cu. */
cudaError_t feature_states (const States &s, int64_t segments, cudaStream_t stream);
cudaError_t feature_outputs (const Forward &f, int64_t segments, cudaStream_t stream);
cudaError_t feature_bwd (const DecayBackward &x, cudaStream_t stream);
size_t feature_bwd_scratch (const SpDevRecurrence &r);

/* Whether there are kernels for these. */
static inline bool
decay_is_legal (const SpDevRecurrence &r, std::initializer_list<SpDevTensor> in, SpDevTensor beta)
{
  SpDevShape s = r.shape;

  return linear_is_legal (s, in, { beta }) && s.kv_heads > 0 && s.heads % s.kv_heads == 0 &&
         (r.decay == SP_DEV_DECAY_HEAD ||
          (r.decay == SP_DEV_DECAY_FEATURE && !is_present (beta) && s.kv_heads == s.heads));
}

static inline bool
decay_is_empty (SpDevShape s)
{
  return s.m == 0 || s.batch * s.heads * s.k * s.n == 0;
}

/* Whether a block may have as much shared memory on this card. */
static inline bool
fits_in_block (size_t bytes)
{
  int device, most = 0;

  return cudaGetDevice (&device) == cudaSuccess &&
         cudaDeviceGetAttribute (&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
         bytes <= (size_t) most;
}

/* --- a decay a head ----------------------------------------------------------------------------------------------- */

/* Of a chunk: b, beta, and the tokens' weights in the state after it as two bf16. */
#define HEAD_BYTES (3 * CHUNK * 4)
#define HEAD_BETA (CHUNK * 4)
#define HEAD_WEIGHTS (2 * CHUNK * 4)

/* Fetched a chunk ahead by the first warp, two tokens a lane. */
struct HeadGates {
  const float *gates;
  SpDevTensor beta;
  int64_t at, stride; /* of the first token; between tokens */
  int tokens;
  float g[2], w[2];

  __device__ void fetch (int chunk)
  {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      int token = chunk * CHUNK + (int) threadIdx.x % 32 * 2 + e;
      bool is_there = chunk >= 0 && token < tokens;
      g[e] = is_there ? log2_decay (gates[at + token * stride]) : 0;
      w[e] = is_there ? load_or<1> (beta, at + token * stride, 1).x[0] : 0;
    }
  }

  /* b of both; the sum over all. */
  __device__ float add_up (float (&b)[2]) const
  {
    int lane = threadIdx.x % 32;
    float sum = g[0] + g[1];

#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      float other = __shfl_up_sync (0xffffffffu, sum, offset);
      sum += lane >= offset ? other : 0;
    }
    float before = __shfl_up_sync (0xffffffffu, sum, 1);
    b[0] = (lane > 0 ? before : 0) + g[0];
    b[1] = sum;
    return __shfl_sync (0xffffffffu, sum, 31);
  }

  __device__ void put (unsigned char *to, bool reverse) const
  {
    int lane = threadIdx.x % 32;
    float b[2], high[2], weight[2], total = add_up (b);

#pragma unroll
    for (int e = 0; e < 2; e++) {
      weight[e] = reverse ? exp2f (b[e]) : w[e] * exp2f (total - b[e]);
      high[e] = __bfloat162float (__float2bfloat16_rn (weight[e]));
    }
    ((float2 *) to)[lane] = make_float2 (b[0], b[1]);
    ((float2 *) (to + HEAD_BETA))[lane] = make_float2 (w[0], w[1]);
    ((uint32_t *) (to + HEAD_WEIGHTS))[lane] = bf16_pair (high[0], high[1]);
    ((uint32_t *) (to + HEAD_WEIGHTS))[lane + 32] = bf16_pair (weight[0] - high[0], weight[1] - high[1]);
  }
};
