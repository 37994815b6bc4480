/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The delta rule, by chunks of 64 tokens. With L_t the sum of a chunk's logarithms of decays up to token t, and S the
 * state before the chunk, all that tokens do to each other is two lower triangular matrices of a chunk and head:
 *     N_tj = e^(L_t - L_j) k_t . k_j  (j < t),     P_tj = e^(L_t - L_j) q_t . k_j  (j <= t)
 * and with b_t for beta, x_t = v_t - e^(L_t) S^T k_t, what the tokens leave out of S alone, the errors are
 *     u = (I + N b)^-1 x = x + Z (b x),     Z = -N (I + b Z), strictly lower
 *     o_t = e^(L_t) S^T q_t + sum over j of P_tj b_j u_j
 *     S' = e^(L_63) S + sum over j of k_j e^(L_63 - L_j) b_j u_j^T
 * (the WY form of 2406.06484 with the decays of 2412.06464, solved for u instead of for b u, so that the identity's part
 * is never rounded and no beta is divided by). Z, P and the tokens' weights are made first, of all chunks at once:
 * device-delta-chunks.cu. The passes over the chunks in their order, device-delta-fwd.cuh and device-delta-bwd.cuh, then
 * need nothing of one column of the values for another. Those of a transfer are columns like them: of v = 0, from S = I.
 *
 * Backward, with w = b u: from dS', against the order of tokens,
 *     dw_j = sum over t of P_tj do_t + e^(L_63 - L_j) dS'^T k_j,     r = dw + Z^T (b dw),     dv = b r
 *     dS = e^(L_63) dS' + sum over t of e^(L_t) (q_t do_t^T - k_t dv_t^T)
 * where r is the gradient of v - S^T k before beta. What is left is local to a chunk: device-delta-gradients.cu.
 */

#include "kernels/device-linear-fwd.cuh"

/* Of a chunk and head, [DELTA_WEIGHTS,64] in fp32: e^L_t, e^(L_63 - L_t), beta, and L_t in powers of 2. Tokens
 * behind the end have no decay and a beta of 0. */
enum { DELTA_SINCE, DELTA_LEFT, DELTA_BETA, DELTA_LOG, DELTA_WEIGHTS };
/* With a decay a feature instead of the first two: e^L_63 of each, [128]. L_t is then 0. */
#define DELTA_ENDS DELTA_SINCE

struct Delta {
  int64_t m, batch, heads, kv_heads, d, c; /* features of keys and of values */
  int64_t chunks, segment;                 /* of a sequence; chunks of each segment but the last */
  const uint16_t *q, *keys, *values, *d_o;
  const float *gates; /* NULL: no decay */
  bool by_feature;
  SpDevTensor beta;
  uint16_t *inverse, *scores; /* Z and P, [batch,heads,chunks,64,64] */
  float *weights;             /* [batch,heads,chunks,DELTA_WEIGHTS,64] */
  /* Of a decay a feature, [m,batch,heads,d]: queries and keys by e^L_t, keys by e^(L_63 - L_t). */
  uint16_t *since_q, *since_keys, *left_keys;
  /* Backward. */
  uint16_t *errors, *errors_d; /* u and r, as values lie */
  uint16_t *states, *states_d; /* S^T and dS'^T of each chunk, [batch,heads,chunks,c,D], D = 64 or 128 */
};

static inline bool
delta_is_legal (const SpDevRecurrence &r, const float *gates, std::initializer_list<SpDevTensor> tensors)
{
  SpDevShape s = r.shape;

  for (SpDevTensor t : tensors)
    if (is_present (t) && (t.dtype != SP_DEV_BF16 || !is_aligned (t.data, 16)))
      return false;
  return s.k % 8 == 0 && s.n % 8 == 0 && s.k <= SP_DEV_DELTA_MOST_K && s.n <= SP_DEV_DELTA_MOST_N && s.kv_heads > 0 &&
         s.heads % s.kv_heads == 0 && s.batch * s.heads <= 65535 && s.m <= INT32_MAX - CHUNK &&
         (r.decay == SP_DEV_DECAY_HEAD || (gates != nullptr && is_aligned (gates, 16)));
}

/* One of heads * batch, and where its arrays begin. */
struct DeltaHead {
  int64_t index, key, value, scalar; /* index: of [batch,heads] */
  int64_t key_stride, value_stride;  /* elements from a token to the next */
};

static __device__ inline DeltaHead
delta_head (const Delta &a, uint32_t index)
{
  int64_t b = index / (uint32_t) a.heads, h = index % (uint32_t) a.heads;
  DeltaHead head;

  head.index = index;
  head.key = (b * a.kv_heads + h * a.kv_heads / a.heads) * a.d;
  head.scalar = b * a.heads + h;
  head.value = head.scalar * a.c;
  head.key_stride = a.batch * a.kv_heads * a.d;
  head.value_stride = a.batch * a.heads * a.c;
  return head;
}

/* From a token on, of a decay a feature. */
static __device__ inline const float *
delta_gates (const Delta &a, const DeltaHead &head, int64_t token)
{
  return a.gates + (token * a.batch * a.heads + head.scalar) * a.d;
}

/* Of a chunk among all chunks of all heads. */
static __device__ inline int64_t
delta_chunk (const Delta &a, const DeltaHead &head, int64_t chunk)
{
  return head.index * a.chunks + chunk;
}

static __device__ inline float
delta_load_float (uint32_t at)
{
  return __uint_as_float (load_word (at));
}

/* Two neighbours' weights, from an even token on. */
static __device__ inline float2
delta_weights (uint32_t weights, int which, int token)
{
  float2 w;

  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];\n"
               : "=f"(w.x), "=f"(w.y)
               : "r"(weights + (which * CHUNK + token) * 4)
               : "memory");
  return w;
}

/* --- what one launch does; all of them are said in the files' own heads ------------------------------------------- */

/* Z, weights and, if a.q is there, P. */
cudaError_t delta_chunks (const Delta &a, cudaStream_t stream);
/* These, and queries and keys scaled: device-delta-feature.cuh. */
cudaError_t delta_feature_chunks (const Delta &a, cudaStream_t stream);

/* A pass over segments, of all of them or of some of their columns. Begins with `before`, of each segment
 * [segments,batch,heads,d,c]; NULL: zero. */
struct DeltaPass {
  Delta a;
  int64_t segments;    /* that are gone through */
  const float *before; /* in the backward what comes after */
  float *own;          /* what segments leave, [segments,batch,heads,d,c]: NULL: not wanted */
  float *transfers;    /* [segments,batch,heads,d,d]; NULL: not wanted */
  float *last;         /* what all leave, [batch,heads,d,c]: of the last segment, backward of the first; or NULL */
  uint16_t *o;
};

cudaError_t delta_own (const DeltaPass &p, cudaStream_t stream);
cudaError_t delta_outputs (const DeltaPass &p, cudaStream_t stream); /* o, last */
cudaError_t delta_errors (const DeltaPass &p, cudaStream_t stream);  /* u and the states, last */
cudaError_t delta_own_bwd (const DeltaPass &p, cudaStream_t stream);
cudaError_t delta_errors_bwd (const DeltaPass &p, cudaStream_t stream); /* r and dS', last */
#ifdef SP_SM90 /* some by warpgroups, for cards that have them; else they are not built */
bool delta_has_groups (void);
cudaError_t delta_own_sm90 (const DeltaPass &p, cudaStream_t stream);
cudaError_t delta_outputs_sm90 (const DeltaPass &p, cudaStream_t stream);
cudaError_t delta_own_bwd_sm90 (const DeltaPass &p, cudaStream_t stream);
#endif

/* X = T X + M, step by step: X from `in` (NULL: zero, or with `identity` I), d rows of c columns a head. */
struct DeltaChain {
  int64_t heads, d, c, steps;        /* heads: times batch */
  bool reverse, identity;            /* reverse: T^T, and the steps from the last to the first */
  const float *transfers, *own, *in; /* own NULL: zero */
  int64_t transfer_step, own_step;   /* elements from a step to the next */
  float *befores;                    /* X before each step, [steps,heads,d,c]; or NULL */
  float *last;                       /* X after all; or NULL */
};

cudaError_t delta_chain (const DeltaChain &c, cudaStream_t stream);

/* dq and dkeys of each value head, dvalues, dgates, dbeta. */
struct DeltaGradients {
  Delta a;
  SpDevTensor dq, dkeys; /* bf16, or of value heads that share a key [m,batch,heads,d] in fp32 */
  uint16_t *dvalues;
  float *dgates; /* NULL: no decay */
  SpDevTensor dbeta;
};

cudaError_t delta_gradients (const DeltaGradients &g, cudaStream_t stream);
cudaError_t delta_feature_gradients (const DeltaGradients &g, cudaStream_t stream);
