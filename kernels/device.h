/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The CUDA kernels: what kernels/reference.h has in double on the host, on a GPU's memory, for sm_80 and later.
 *
 * One function for each compute kind, named after its reference and with the operands in the same order; what a shape
 * or a formula is stands there and not here. They are fused: each operand goes over the memory bus about once. What bounds
 * them and how near they come to it: kernels/elementwise.md.
 *
 * Call. Every function launches on `stream` and returns at once: cudaSuccess, cudaErrorInvalidValue for a dtype or a
 * size that it has no kernel for (then nothing was launched), or what the launch gave. Nothing is allocated, nothing
 * waits, so all of them can be captured into a graph. From compute capability 9.0 on a kernel may be there before the one
 * before it in its stream is over (programmatic dependent launch); it waits for that before it touches memory, so that
 * streams and events mean what they always do. Scratch is the caller's, of at least as many bytes as the
 * function beside it says, aligned to 256; its contents mean nothing before and after. It may be NULL where that
 * function says 0.
 *
 * Types. A tensor says its own: SP_DEV_BF16 or SP_DEV_FP32 in any mix, unless a function says otherwise; arithmetic is
 * fp32. An operand that the reference lets be NULL may have data = NULL. Statistics, lse, delta, sums and slopes are
 * fp32, ids, labels and positions int32, masks uint8. All of them lie in device memory. A tensor's data is aligned to
 * its element; where it is aligned to 16 bytes and rows are multiples of 8 elements, the kernels move 16 bytes at a
 * time. The attentions take bf16, aligned to 16 bytes.
 *
 * Writing. As the reference: outputs whole, "+=" where it says so, in place where it says so. Two runs on the same
 * input give the same bytes, whatever the card's number of SMs: sums have a fixed order, and no kernel adds floats by
 * atomics.
 *
 * Sizes. Elements are counted in 64 bits. A size of 0 is an empty tensor: nothing is launched.
 *
 * Known lies. Sums are in fp32, of rounded inputs; probabilities, their gradients and the states of linear attention
 * enter tensor cores rounded to bf16 (the states themselves stay fp32).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbered as the program's dtypes. */
typedef enum { SP_DEV_BF16 = 0, SP_DEV_FP32 = 2, SP_DEV_UINT8 = 3, SP_DEV_INT32 = 4 } SpDevDtype;

typedef struct {
  void *data; /* NULL: an operand that is not there */
  SpDevDtype dtype;
} SpDevTensor;

/* As SpRefShape. */
typedef struct {
  int64_t m, n, k, batch, heads, kv_heads;
  int64_t v;                  /* 0: k */
  int64_t window;             /* of causal attention, 0: none */
  const int32_t *first, *end; /* [m,batch], or NULL */
} SpDevShape;

/* --- elementwise: device-elementwise.cu --------------------------------------------------------------------------- */

typedef enum { SP_DEV_SILU, SP_DEV_IDENTITY, SP_DEV_GELU } SpDevGate;

cudaError_t sp_dev_glu (SpDevGate f, int64_t m, int64_t n, SpDevTensor gu, SpDevTensor out, cudaStream_t stream);
cudaError_t sp_dev_glu_bwd (SpDevGate f, int64_t m, int64_t n, SpDevTensor da, SpDevTensor gu, SpDevTensor dgu,
                            cudaStream_t stream);
cudaError_t sp_dev_gelu (int64_t n, SpDevTensor x, SpDevTensor out, cudaStream_t stream);
cudaError_t sp_dev_gelu_bwd (int64_t n, SpDevTensor da, SpDevTensor x, SpDevTensor dx, cudaStream_t stream);
cudaError_t sp_dev_relu (bool squared, int64_t n, SpDevTensor x, SpDevTensor out, cudaStream_t stream);
cudaError_t sp_dev_relu_bwd (bool squared, int64_t n, SpDevTensor da, SpDevTensor x, SpDevTensor dx,
                             cudaStream_t stream);
cudaError_t sp_dev_sigmoid_rows (int64_t n, SpDevTensor x, SpDevTensor y, cudaStream_t stream);
cudaError_t sp_dev_sigmoid_rows_bwd (int64_t n, SpDevTensor dy, SpDevTensor y, SpDevTensor dx, cudaStream_t stream);

cudaError_t sp_dev_gate (bool silu, int64_t m, int64_t n, int64_t width, SpDevTensor o, SpDevTensor gates,
                         SpDevTensor out, cudaStream_t stream);
cudaError_t sp_dev_gate_bwd (bool silu, int64_t m, int64_t n, int64_t width, SpDevTensor d, SpDevTensor o,
                             SpDevTensor gates, SpDevTensor d_o, SpDevTensor du, cudaStream_t stream);

cudaError_t sp_dev_row_gate (int64_t m, int64_t n, SpDevTensor x, SpDevTensor u, SpDevTensor out, cudaStream_t stream);
cudaError_t sp_dev_row_gate_bwd (int64_t m, int64_t n, SpDevTensor d, SpDevTensor x, SpDevTensor u, SpDevTensor dx,
                                 SpDevTensor du, cudaStream_t stream);

/* out[m,n] = a + b [+ bias[n]] [+ more[n]] */
cudaError_t sp_dev_add (int64_t m, int64_t n, SpDevTensor a, SpDevTensor b, SpDevTensor bias, SpDevTensor more,
                        SpDevTensor out, cudaStream_t stream);
cudaError_t sp_dev_accumulate (int64_t n, SpDevTensor x, SpDevTensor out, cudaStream_t stream); /* out += x */
/* The two may differ in dtype; of the same dtype any is taken. */
cudaError_t sp_dev_copy (int64_t n, SpDevTensor x, SpDevTensor out, cudaStream_t stream);
cudaError_t sp_dev_zero (int64_t n, SpDevTensor out, cudaStream_t stream);

/* --- dropout: device-dropout.cu ----------------------------------------------------------------------------------- */

/* mask is uint8; bias[n] may be absent: it is added first. Ids are int64, because those on scores name (sequence, head,
 * position). The mask is the reference's, bit for bit. */
cudaError_t sp_dev_dropout (int64_t m, int64_t n, SpDevTensor x, SpDevTensor bias, uint64_t seed,
                            const int64_t *row_ids, const int64_t *col_ids, double p, SpDevTensor y, SpDevTensor mask,
                            cudaStream_t stream);
cudaError_t sp_dev_dropout_bwd (int64_t m, int64_t n, SpDevTensor dy, SpDevTensor mask, double p, SpDevTensor dx,
                                cudaStream_t stream);

/* --- norms and sums over rows: device-norm.cu, device-norm-bwd.cu ------------------------------------------------- */

cudaError_t sp_dev_norm (bool layernorm, int64_t m, int64_t n, int64_t whole, SpDevTensor x, SpDevTensor gain,
                         SpDevTensor bias, const float *sum_of_squares, double epsilon, SpDevTensor y, float *stat,
                         cudaStream_t stream);
cudaError_t sp_dev_norm_stat (int64_t m, int64_t n, SpDevTensor x, float *sum_of_squares, cudaStream_t stream);
size_t sp_dev_norm_bwd_scratch_bytes (int64_t m, int64_t n);
cudaError_t sp_dev_norm_bwd (bool layernorm, int64_t m, int64_t n, int64_t whole, SpDevTensor dy, SpDevTensor x,
                             const float *stat, SpDevTensor gain, SpDevTensor dr, const float *dot, SpDevTensor dx,
                             SpDevTensor dgain, SpDevTensor dbias, void *scratch, cudaStream_t stream);
cudaError_t sp_dev_norm_stat_bwd (int64_t m, int64_t n, SpDevTensor dy, SpDevTensor x, SpDevTensor gain, float *dot,
                                  cudaStream_t stream);

/* out[batch,n] += sum over m of x[batch,m,n] */
size_t sp_dev_column_sum_scratch_bytes (int64_t batch, int64_t m, int64_t n);
cudaError_t sp_dev_column_sum (int64_t batch, int64_t m, int64_t n, SpDevTensor x, SpDevTensor out, void *scratch,
                               cudaStream_t stream);

/* --- between the projections and the attention: device-layout.cu, device-layout-norm.cu, device-pieces.cu --------- */

/* As SpRefHeads. Angles are computed in double, so that long sequences are turned right. k is at most 512. */
typedef struct {
  int64_t rotated;
  int64_t gate;
  double theta;
  double epsilon;
  SpDevTensor q_gain, key_gain; /* [k], or absent: no norms */
} SpDevHeads;

/* stat[m, heads + kv_heads] is written with gains alone. */
cudaError_t sp_dev_rope (SpDevShape shape, const SpDevHeads *how, SpDevTensor qkv, const int32_t *pos, SpDevTensor q,
                         SpDevTensor keys, SpDevTensor values, float *stat, cudaStream_t stream);
size_t sp_dev_rope_bwd_scratch_bytes (SpDevShape shape, const SpDevHeads *how);
cudaError_t sp_dev_rope_bwd (SpDevShape shape, const SpDevHeads *how, SpDevTensor dq, SpDevTensor dkeys,
                             SpDevTensor dvalues, SpDevTensor qkv, const float *stat, SpDevTensor du,
                             const int32_t *pos, SpDevTensor dqkv, SpDevTensor dq_gain, SpDevTensor dkey_gain,
                             void *scratch, cudaStream_t stream);

cudaError_t sp_dev_split (int64_t m, int64_t n, int64_t k, SpDevTensor x, SpDevTensor a, SpDevTensor b,
                          cudaStream_t stream);
cudaError_t sp_dev_join (int64_t m, int64_t n, int64_t k, SpDevTensor a, SpDevTensor b, SpDevTensor x,
                         cudaStream_t stream);

cudaError_t sp_dev_feature (int64_t m, int64_t w, SpDevTensor qkvu, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
                            cudaStream_t stream);
cudaError_t sp_dev_feature_bwd (int64_t m, int64_t w, SpDevTensor qkvu, SpDevTensor dq, SpDevTensor dkeys,
                                SpDevTensor dvalues, SpDevTensor du, SpDevTensor dqkvu, cudaStream_t stream);

cudaError_t sp_dev_pack (int64_t m, int64_t n, int64_t k, int64_t parts, SpDevTensor x, SpDevTensor out,
                         cudaStream_t stream);
cudaError_t sp_dev_unpack (int64_t m, int64_t n, int64_t k, int64_t parts, SpDevTensor in, SpDevTensor x,
                           cudaStream_t stream);
cudaError_t sp_dev_part (int64_t m, int64_t n, int64_t parts, int64_t place, SpDevTensor x, SpDevTensor out,
                         cudaStream_t stream);

/* --- softmax attention: device-attention*.cu ---------------------------------------------------------------------- */

/* q, keys, values, d_o: bf16. k and v are multiples of 8 up to 256. qpos[m] and kpos[n] are read if `causal` or with
 * documents. Tiles of queries by keys that no query sees are skipped, those that all see are not masked: causal costs
 * half, a window or documents what they are. Each card gets the tiles that suit it, and they decide how sums are
 * rounded. The scratch holds what each query sees, and ranges of it for each 64 queries and keys. */
size_t sp_dev_attention_scratch_bytes (SpDevShape shape);
cudaError_t sp_dev_attention (SpDevShape shape, SpDevTensor q, SpDevTensor keys, SpDevTensor values, bool causal,
                              const int32_t *qpos, const int32_t *kpos, SpDevTensor o, float *lse, void *scratch,
                              cudaStream_t stream);
/* For tests and benchmarks: from here on, of all threads, whether every card gets the kernels of sm_80. */
void sp_dev_attention_baseline (bool on);
/* Without `accumulate` the block is the first: it is copied. */
cudaError_t sp_dev_attention_merge (int64_t rows, int64_t k, bool accumulate, SpDevTensor block_o,
                                    const float *block_lse, SpDevTensor o, float *lse, cudaStream_t stream);
cudaError_t sp_dev_attention_delta (int64_t rows, int64_t k, SpDevTensor d_o, SpDevTensor o, float *delta,
                                    cudaStream_t stream);
/* No pass needs dq of the other: one kernel makes dq by queries, one dkeys and dvalues by keys, 7 products where 5 would
 * do; 9 with more than 128 features on compute capability 9.0. Where many heads share few keys the scratch also has what
 * several blocks make of one key. */
size_t sp_dev_attention_bwd_scratch_bytes (SpDevShape shape);
cudaError_t sp_dev_attention_bwd (SpDevShape shape, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
                                  SpDevTensor d_o, const float *lse, const float *delta, bool causal,
                                  const int32_t *qpos, const int32_t *kpos, SpDevTensor dq, SpDevTensor dkeys,
                                  SpDevTensor dvalues, void *scratch, cudaStream_t stream);
cudaError_t sp_dev_attention_sink (int64_t rows, int64_t k, int64_t heads, SpDevTensor sinks, SpDevTensor o, float *lse,
                                   cudaStream_t stream);
cudaError_t sp_dev_attention_sink_bwd (int64_t rows, int64_t heads, const float *lse, const float *delta,
                                       SpDevTensor sinks, SpDevTensor dsinks, cudaStream_t stream);

/* --- beside another library's attention: device-attention-library.cu ---------------------------------------------- */

/* Of numbers that rows have, x[m,heads] -> out[heads,m], and back: x[heads,m - hidden] -> out[m,heads], of which the
 * first `hidden` rows become -inf, the lse of what sees no key. */
cudaError_t sp_dev_attention_by_head (int64_t m, int64_t heads, const float *x, float *out, cudaStream_t stream);
cudaError_t sp_dev_attention_by_row (int64_t m, int64_t heads, int64_t hidden, const float *x, float *out,
                                     cudaStream_t stream);
/* An o[rows,k] whose product with d_o is delta, for who asks for o and wants that product of it alone: d_o delta /
 * |d_o|^2. Rounded to bf16, its product is off by at most 2^-9 of delta. */
cudaError_t sp_dev_attention_stand_in (int64_t rows, int64_t k, SpDevTensor d_o, const float *delta, SpDevTensor o,
                                       cudaStream_t stream);

/* --- linear attention with a decay: device-linear*.cu ------------------------------------------------------------- */

/* q, keys, values, d_o: bf16; k and n are multiples of 8 up to 256. Chunks of 64 tokens by tensor cores. The forward's
 * chain of states is cut in segments, as many as fill an H100, and the states of these are the scratch. */
size_t sp_dev_linear_scratch_bytes (SpDevShape shape); /* of local and forward */
/* Either output may be absent (o.data, state NULL); without o q is not read. What has decayed to nothing in fp32 is not
 * read for states: steep slopes take less time. */
cudaError_t sp_dev_linear_local (SpDevShape shape, const float *slopes, SpDevTensor q, SpDevTensor keys,
                                 SpDevTensor values, SpDevTensor o, float *state, void *scratch, cudaStream_t stream);
/* Both phases at once, of a sequence that is whole here: local, inter and state_update. state_in is the state before the
 * tokens, [batch,heads,k,n] (NULL: zero), state that after them; it may be the memory of state_in. */
cudaError_t sp_dev_linear_forward (SpDevShape shape, const float *slopes, SpDevTensor q, SpDevTensor keys,
                                   SpDevTensor values, const float *state_in, SpDevTensor o, float *state,
                                   void *scratch, cudaStream_t stream);
cudaError_t sp_dev_linear_inter (SpDevShape shape, const float *slopes, SpDevTensor q, const float *state_in,
                                 SpDevTensor o, cudaStream_t stream);
size_t sp_dev_linear_bwd_scratch_bytes (SpDevShape shape); /* of linear_bwd and linear_local_bwd */
/* Local and inter at once, and the chain: from the state before these tokens and the gradient of the one after them to
 * the gradients, and to that of the state before. Any of the states may be NULL: zero, or not wanted. The rest as
 * linear_local_bwd. On compute capability 9.0, up to 128 features, with outputs of bf16 aligned to 16 bytes, each of the
 * two chains reads its tensors once, and blocks hand on states of fp32 less two bits; else there are passes over segments.
 */
cudaError_t sp_dev_linear_bwd (SpDevShape shape, const float *slopes, SpDevTensor q, SpDevTensor keys,
                               SpDevTensor values, SpDevTensor d_o, const float *state_in, const float *dstate_out,
                               SpDevTensor dq, SpDevTensor dkeys, SpDevTensor dvalues, float *dstate_in, void *scratch,
                               cudaStream_t stream);
/* dq, dkeys and dvalues may be absent together (dq.data NULL), and keys and values are then not read; so may dstate. */
cudaError_t sp_dev_linear_local_bwd (SpDevShape shape, const float *slopes, SpDevTensor q, SpDevTensor keys,
                                     SpDevTensor values, SpDevTensor d_o, SpDevTensor dq, SpDevTensor dkeys,
                                     SpDevTensor dvalues, float *dstate, void *scratch, cudaStream_t stream);
/* Either state may be NULL for zero. */
cudaError_t sp_dev_linear_inter_bwd (SpDevShape shape, const float *slopes, SpDevTensor keys, SpDevTensor values,
                                     SpDevTensor d_o, const float *state_in, const float *dstate_out, SpDevTensor dq,
                                     SpDevTensor dkeys, SpDevTensor dvalues, cudaStream_t stream);
cudaError_t sp_dev_state_update (SpDevShape shape, const float *slopes, const float *in, const float *own, float *out,
                                 cudaStream_t stream);
cudaError_t sp_dev_state_prefix (SpDevShape shape, const float *slopes, int64_t places, int64_t place, bool reverse,
                                 const float *states, float *out, cudaStream_t stream);

/* --- recurrences -------------------------------------------------------------------------------------------------- */

typedef enum { SP_DEV_DECAY_HEAD, SP_DEV_DECAY_FEATURE } SpDevDecay;

/* As SpRefRecurrence. Logarithms of decays are at most 0. */
typedef struct {
  SpDevShape shape;
  SpDevDecay decay;
} SpDevRecurrence;

/* --- the delta rule: device-delta*.cu ----------------------------------------------------------------------------- */

/* Recurrences of the reference with its delta rule, and a decay a head (gates NULL: none) or a feature. q, keys, values, d_o
 * and their gradients, o: bf16, aligned to 16 bytes; k and n are multiples of 8; gates and dgates fp32, of a decay a feature
 * aligned to 16 bytes. beta may be absent, for 1. Where the states of few heads would leave most of a card idle, the
 * sequence is cut, and the states before the segments come from their transfers: the same chain as between ranks. */
#define SP_DEV_DELTA_MOST_K 128
#define SP_DEV_DELTA_MOST_N 256
size_t sp_dev_delta_scratch_bytes (const SpDevRecurrence *r); /* of delta, delta_own and delta_own_bwd */
/* state_in NULL: zero. state, that behind the tokens, may be NULL; it is not state_in. */
cudaError_t sp_dev_delta (const SpDevRecurrence *r, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
                          const float *gates, SpDevTensor beta, const float *state_in, SpDevTensor o, float *state,
                          void *scratch, cudaStream_t stream);
/* transfer may be NULL. */
cudaError_t sp_dev_delta_own (const SpDevRecurrence *r, SpDevTensor keys, SpDevTensor values, const float *gates,
                              SpDevTensor beta, float *state, float *transfer, void *scratch, cudaStream_t stream);
cudaError_t sp_dev_delta_own_bwd (const SpDevRecurrence *r, SpDevTensor q, SpDevTensor keys, const float *gates,
                                  SpDevTensor beta, SpDevTensor d_o, float *dstate, float *transfer, void *scratch,
                                  cudaStream_t stream);
/* Any of the states may be NULL: zero, or not wanted; so may dgates, and dbeta be absent. Each chunk's state and its
 * gradient are in the scratch, in bf16. */
size_t sp_dev_delta_bwd_scratch_bytes (const SpDevRecurrence *r);
cudaError_t sp_dev_delta_bwd (const SpDevRecurrence *r, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
                              const float *gates, SpDevTensor beta, SpDevTensor d_o, const float *state_in,
                              const float *dstate_out, SpDevTensor dq, SpDevTensor dkeys, SpDevTensor dvalues,
                              float *dgates, SpDevTensor dbeta, float *dstate_in, void *scratch, cudaStream_t stream);
/* As the reference's transfer_update and transfer_prefix, of transfers [k,k]. */
cudaError_t sp_dev_delta_update (SpDevShape shape, bool reverse, const float *transfer, const float *in,
                                 const float *own, float *out, cudaStream_t stream);
cudaError_t sp_dev_delta_prefix (SpDevShape shape, int64_t places, int64_t place, bool reverse, const float *parts,
                                 float *out, cudaStream_t stream);

/* --- linear attention whose decay follows the data: device-linear-decay*.cu ----------------------------------------- */

/* Without the delta rule. With a decay a feature beta is absent and kv_heads = heads.
 * q, keys, values, d_o: bf16; k and n are multiples of 8 up to 256; gates fp32, aligned to 16 bytes; beta may be absent.
 * Segments and chunks as above. */
size_t sp_dev_recurrent_scratch_bytes (const SpDevRecurrence *r); /* of own, own_bwd and recurrent */
/* state and transfer may each be NULL. */
cudaError_t sp_dev_recurrent_own (const SpDevRecurrence *r, SpDevTensor keys, SpDevTensor values, const float *gates,
                                  SpDevTensor beta, float *state, float *transfer, void *scratch, cudaStream_t stream);
/* What reads neither keys nor beta, T included. */
cudaError_t sp_dev_recurrent_own_bwd (const SpDevRecurrence *r, SpDevTensor q, const float *gates, SpDevTensor d_o,
                                      float *dstate, float *transfer, void *scratch, cudaStream_t stream);
/* state: that after the tokens, unless NULL. */
cudaError_t sp_dev_recurrent (const SpDevRecurrence *r, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
                              const float *gates, SpDevTensor beta, const float *state_in, SpDevTensor o, float *state,
                              void *scratch, cudaStream_t stream);
/* The scratch has the states before and after all chunks in bf16: k n / 16 bytes a token and head. dstate_in: the
 * gradient of the state before the tokens, unless NULL. dbeta may be absent; dgates is aligned to 8 bytes. A decay a head
 * goes the way of linear_bwd where that has kernels by warpgroups; each of the heads that share keys then has gradients of
 * its own, in bf16, before they are summed. */
size_t sp_dev_recurrent_bwd_scratch_bytes (const SpDevRecurrence *r);
cudaError_t sp_dev_recurrent_bwd (const SpDevRecurrence *r, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
                                  const float *gates, SpDevTensor beta, SpDevTensor d_o, const float *state_in,
                                  const float *dstate_out, SpDevTensor dq, SpDevTensor dkeys, SpDevTensor dvalues,
                                  float *dgates, SpDevTensor dbeta, float *dstate_in, void *scratch,
                                  cudaStream_t stream);
cudaError_t sp_dev_transfer_update (const SpDevRecurrence *r, const float *transfer, const float *in, const float *own,
                                    float *out, cudaStream_t stream);
cudaError_t sp_dev_transfer_prefix (const SpDevRecurrence *r, int64_t places, int64_t place, bool reverse,
                                    const float *parts, float *out, cudaStream_t stream);

/* --- around a recurrence: device-conv.cu, device-key-map.cu, device-features.cu ----------------------------------- */

/* width is at most 4. */
cudaError_t sp_dev_conv (int64_t m, int64_t batch, int64_t n, int64_t width, SpDevTensor x, SpDevTensor weight,
                         SpDevTensor bias, SpDevTensor halo, SpDevTensor out, cudaStream_t stream);
size_t sp_dev_conv_bwd_scratch_bytes (int64_t m, int64_t batch, int64_t n, int64_t width);
/* dbias and dhalo may be absent. */
cudaError_t sp_dev_conv_bwd (int64_t m, int64_t batch, int64_t n, int64_t width, SpDevTensor d_out, SpDevTensor x,
                             SpDevTensor weight, SpDevTensor bias, SpDevTensor halo, SpDevTensor dx,
                             SpDevTensor dweight, SpDevTensor dbias, SpDevTensor dhalo, void *scratch,
                             cudaStream_t stream);

/* Numbered as SpRefMap. */
enum { SP_DEV_MAP_SILU = 1 << 0, SP_DEV_MAP_L2 = 1 << 1, SP_DEV_MAP_ROTATE = 1 << 2, SP_DEV_MAP_SILU_VALUES = 1 << 3 };

/* k is at most 512. */
cudaError_t sp_dev_key_map (SpDevShape shape, unsigned map, SpDevTensor qkv, const int32_t *pos, double theta,
                            SpDevTensor q, SpDevTensor keys, SpDevTensor values, cudaStream_t stream);
/* qkv may be absent where the map has neither silu nor l2 norm. */
cudaError_t sp_dev_key_map_bwd (SpDevShape shape, unsigned map, SpDevTensor qkv, SpDevTensor dq, SpDevTensor dkeys,
                                SpDevTensor dvalues, const int32_t *pos, double theta, SpDevTensor dqkv,
                                cudaStream_t stream);

cudaError_t sp_dev_decay (int64_t m, int64_t n, int64_t heads, SpDevTensor raw, SpDevTensor bias, SpDevTensor log_rate,
                          SpDevTensor gates, SpDevTensor steps, cudaStream_t stream);
size_t sp_dev_decay_bwd_scratch_bytes (int64_t m, int64_t n);
cudaError_t sp_dev_decay_bwd (int64_t m, int64_t n, int64_t heads, SpDevTensor raw, SpDevTensor bias,
                              SpDevTensor log_rate, SpDevTensor dgates, SpDevTensor dsteps, SpDevTensor draw,
                              SpDevTensor dbias, SpDevTensor dlog_rate, void *scratch, cudaStream_t stream);

cudaError_t sp_dev_skip (int64_t m, int64_t heads, int64_t n, SpDevTensor o, SpDevTensor values, SpDevTensor scale,
                         SpDevTensor out, cudaStream_t stream);
size_t sp_dev_skip_bwd_scratch_bytes (int64_t m, int64_t heads);
cudaError_t sp_dev_skip_bwd (int64_t m, int64_t heads, int64_t n, SpDevTensor d, SpDevTensor values, SpDevTensor scale,
                             SpDevTensor dvalues, SpDevTensor out, SpDevTensor dscale, void *scratch,
                             cudaStream_t stream);

/* --- the ends of a model: device-ends.cu -------------------------------------------------------------------------- */

cudaError_t sp_dev_embed (int64_t m, int64_t n, int64_t k, const int32_t *ids, int64_t first, SpDevTensor table,
                          SpDevTensor x, cudaStream_t stream);
size_t sp_dev_embed_bwd_scratch_bytes (int64_t m, int64_t n); /* of position_bwd too */
cudaError_t sp_dev_embed_bwd (int64_t m, int64_t n, int64_t k, const int32_t *ids, int64_t first, SpDevTensor dx,
                              SpDevTensor dtable, void *scratch, cudaStream_t stream);
/* A position outside the table is the caller's bug; here nothing is added for it. */
cudaError_t sp_dev_position (int64_t m, int64_t n, int64_t k, const int32_t *pos, SpDevTensor x, SpDevTensor table,
                             SpDevTensor out, cudaStream_t stream);
cudaError_t sp_dev_position_bwd (int64_t m, int64_t n, int64_t k, const int32_t *pos, SpDevTensor dx,
                                 SpDevTensor dtable, void *scratch, cudaStream_t stream);

/* Of the n columns of logits those from `columns` on are padding: they count as -inf, and their dlogits are 0. */
cudaError_t sp_dev_loss_max (int64_t m, int64_t n, int64_t columns, SpDevTensor logits, float *max,
                             cudaStream_t stream);
cudaError_t sp_dev_loss_sum (int64_t m, int64_t n, int64_t columns, SpDevTensor logits, const float *max,
                             const int32_t *labels, int64_t first, float *sums, cudaStream_t stream);
/* *loss += the rows' sum, unless loss is NULL. */
cudaError_t sp_dev_loss (int64_t m, int64_t n, int64_t columns, SpDevTensor logits, const float *max, const float *sums,
                         const int32_t *labels, int64_t first, const float *weights, double *loss, SpDevTensor dlogits,
                         cudaStream_t stream);

/* --- optimizer: device-optimizer.cu ------------------------------------------------------------------------------- */

/* Any of the tensors in fp32 or bf16; parameter may be absent. */
cudaError_t sp_dev_adam (int64_t n, SpDevTensor gradient, int64_t step, double rate, double beta1, double beta2,
                         double epsilon, SpDevTensor master, SpDevTensor moment1, SpDevTensor moment2,
                         SpDevTensor parameter, cudaStream_t stream);
cudaError_t sp_dev_momentum (int64_t n, SpDevTensor gradient, double beta, SpDevTensor momentum, SpDevTensor update,
                             cudaStream_t stream);
cudaError_t sp_dev_descend (int64_t n, SpDevTensor update, double rate, SpDevTensor master, SpDevTensor parameter,
                            cudaStream_t stream);

#ifdef __cplusplus
}
#endif
