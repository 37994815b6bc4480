/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The ops of a program (sim/program.h): what each kind does to its operands, when it runs, what it costs.
 *
 * Kinds, with dims (m n k batch heads kv_heads) and operands. "T" is tokens = sequence part x batch.
 * `in`/`out` list buffer slots, 0 for none; an operand in brackets may be 0. += means accumulate.
 *
 * GEMM            out0[m,n] = op(in0) op(in1) [+ in2[n] bias], `batch` times with all operands strided. Flags
 *                 SP_OP_TRANS_A (in0 is [k,m]), SP_OP_TRANS_B (in1 is [n,k]), SP_OP_ACCUMULATE (out0 +=). With a group
 *                 out0 is a summand of what its places make together, and each adds the bias divided by its size. Where
 *                 batch is 1 in0 may be columns of something wider, whose rows are `heads` > 0 elements apart, and out0,
 *                 of which they are kv_heads apart
 * SCORES          unfused attention: out0[batch,heads,m,n] = scale * Q K^T from in0 = Q[m,batch,heads,k],
 *                 in1 = K[n,batch,kv_heads,k]
 * SCORES_BWD      [in0 = Q], [in1 = K], in2 = dS -> [out0 = dQ, of K], [out1 = dK, of Q]
 * SOFTMAX         in0 = S, [in1 = sinks] -> out0 = P[batch,heads,m,n], causal by position if SP_OP_CAUSAL, then of the
 *                 last `window` keys if that is not 0. sinks: a logit of each head of this tensor rank, of which the op
 *                 takes those of its own heads, that counts in the sum
 * SOFTMAX_BWD     in0 = P, in1 = dP -> out0 = dS, [out1 = dsinks +=]
 * CONTEXT         in0 = P, in1 = V[n,batch,kv_heads,k] -> out0 = O[m,batch,heads,k]
 * CONTEXT_BWD     [in0 = P], [in1 = V], in2 = dO -> [out0 = dP, of V], [out1 = dV, of P]
 *                 These four in a loop around a ring: a score matrix has the columns of all places' keys, of which the
 *                 op reads or writes those of the n keys that are here at this step; O and dQ: +=
 * DROPOUT         in0[m,n] [+ in1[n] bias] -> out0[m,n], out1 = mask[m,n] (uint8). m = T. With heads > 0 it is on
 *                 scores: [batch,heads,m,n].
 * DROPOUT_BWD     in0 = d, in1 = mask -> out0
 * NORM            in0 = X[m,n], [in1 = gain[n]], [in2 = bias[n]], [in3 = sum of squares[m] over the whole row, of
 *                 k features; RMS only] -> out0 = Y[m,n], out1 = statistics fp32 (1/rms [m]; LayerNorm: mean[m] then
 *                 1/std[m]). SP_OP_LAYERNORM, else RMS. k = features that the statistics are taken over (= n unless
 *                 in3).
 * NORM_STAT       in0 = X[m,n] -> out0[m] = sum of squares (a row split over tensor ranks; reduced after)
 * NORM_BWD        in0 = dY, in1 = X, in2 = statistics, [in3 = gain], [in4 = dR[m,n] added to the result],
 *                 [in5 = dot[m] over the whole row] -> out0 = dX, [out1 = dgain +=], [out2 = dbias +=]
 * NORM_STAT_BWD   in0 = dY, in1 = X, [in2 = gain] -> out0[m] = sum of dY * gain * X over the row part (RMS)
 * ROPE            in0 = QKV[m, (heads + 2 kv_heads) k], with SP_OP_GATED heads k features more at a row's end, [in1 =
 *                 gain of queries[k], in2 = gain of keys[k]: each head to RMS 1 first] -> out0 = Q[m,heads,k], out1 =
 *                 K[m,kv_heads,k], out2 = V, [out3 = 1/rms[m, heads + kv_heads], fp32]; rotary embedding on the first n
 *                 features (0: all) of Q and K heads unless SP_OP_NO_ROTATE. m = T; position of a row by the token map
 * ROPE_BWD        in0 = dQ, in1 = dK, in2 = dV, [in3 = gradient of the row's end], [in4 = QKV, in5 = 1/rms, in6 and in7
 *                 = gains] -> out0 = dQKV, [out1 = dgain of queries +=, out2 = of keys +=]
 * LATENT          in0 = q[m, heads k], in1 = kv[m, heads (k - n + value_size)] (of each head the keys' part, then the
 *                 values), in2 = the keys' n features that all heads share -> out0 = Q[m,heads,k], out1 = K, out2 =
 *                 V[m,heads,value_size]; rotary embedding on the last n features of Q and K heads unless
 *                 SP_OP_NO_ROTATE
 * LATENT_BWD      in0 = dQ, in1 = dK, in2 = dV -> out0 = dq, out1 = dkv, out2 = gradient of what is shared
 * SPLIT           in0[m, n + k] -> out0[m,n], out1[m,k]
 * JOIN            in0[m,n], in1[m,k] -> out0[m, n + k]
 * FEATURE         linear attention's input: in0 = QKVU[m, 4 heads k] -> out0 = silu(Q), out1 = silu(K), out2 = V, each
 *                 [m,heads,k]
 * FEATURE_BWD     in0 = QKVU, in1 = dQ, in2 = dK, in3 = dV, in4 = dU -> out0 = dQKVU
 * PACK            in0[m, heads*k] -> out0[n][m][k]: n = group size, destination j gets part floor(j * heads / n) of
 *                 `heads` parts of k features (heads = n, or a divisor of it: K/V heads repeated)
 * UNPACK          in0[n][m][k] -> out0[m, heads*k]: PACK's transpose; what was repeated is summed
 * PART            in0[m, n * group size] -> out0[m,n]: the columns of this rank's place in the group
 * ATTENTION       in0 = Q[m,batch,heads,k], in1 = K[n,batch,kv_heads,k], in2 = V[n,batch,kv_heads,value_size] -> out0 =
 *                 O[m,batch,heads,value_size], out1 = lse[m,batch,heads] fp32, of these keys alone. Mask: as SOFTMAX
 * ATTENTION_MERGE in0 = O of a block of keys [m,batch,heads,k] (k = features of a value head), in1 = its lse -> out0 =
 *                 O, out1 = lse, fp32, of all blocks so far: with SP_OP_ACCUMULATE the block is merged into them,
 *                 without it (the first) copied
 * ATTENTION_SINK  in0 = sinks, as SOFTMAX's -> out0 = O[m,batch,heads,k] and out1 = lse as if the sink had been a key
 *                 whose value is 0, in place; k as in ATTENTION_MERGE
 * ATTENTION_SINK_BWD in0 = lse, in1 = delta, in2 = sinks -> out0 = dsinks +=
 * ATTENTION_DELTA in0 = dO, in1 = O -> out0 = delta[m,batch,heads] = sum over k of dO * O, fp32; k as in ATTENTION_MERGE
 * ATTENTION_BWD   in0 = Q, in1 = K, in2 = V, in3 = dO, in4 = lse, in5 = delta -> out0 = dQ, out1 = dK, out2 = dV:
 *                 these keys' part of dQ, and their dK and dV. SP_OP_QUERIES: in a ring's loop K and V are the own
 *                 ones, and what is of queries has come here
 * LINEAR_LOCAL    in0 = Q[m,batch,heads,k], in1 = K, in2 = V[m,batch,heads,n] -> [out0 = O (own tokens only); without
 *                 it no in0], [out1 = M[batch,heads,k,n] fp32, the state that the own tokens leave]
 * LINEAR_INTER    in0 = Q, in1 = state from before -> out0 = O +=
 * LINEAR_LOCAL_BWD in0 = Q, in1 = K, in2 = V, in3 = dO -> [out0 = dQ, out1 = dK, out2 = dV; without them
 *                 no in1, in2], [out3 = dM: gradient of the
 *                 state from before]
 * LINEAR_INTER_BWD [in2 = dO, in3 = state before -> out0 = dQ +=], [in0 = K, in1 = V, in4 = gradient of the state after
 *                 -> out1 = dK +=, out2 = dV +=]: either or both. The first place has no state before, the last none
 *                 after
 * STATE_UPDATE    out0 = decay^m * in0 + in1, over m tokens; in0 counts as zero at the first place (SP_OP_REVERSE:
 *                 last). Of a recurrence out0 = T in0 + in1 with in2 = T (SP_OP_REVERSE: its transpose)
 * STATE_PREFIX    in0 = states of all places -> out0 = state before this place. SP_OP_REVERSE: gradient after it. Of a
 *                 recurrence in0 is each place's M, then its T
 *
 * Recurrences (kernels/reference.h has their formulas): state S [k,n] a head, `heads` value heads that share kv_heads
 * query and key heads. Flags say the rule: SP_OP_DELTA the delta rule; SP_OP_HEAD_DECAY a decay a token and head, G =
 * [m,batch,heads]; SP_OP_FEATURE_DECAY also a key feature, G = [m,batch,heads,k]; SP_OP_SCAN a step a token and head, G
 * as the first, and where beta stands the logarithms of the rates [heads,k] (of all heads of the exchange group, of
 * which an op takes its own). G in logarithms, fp32. M and T: what the own tokens leave, and the transfer of a state
 * through them, fp32; T [batch,heads,t] with t = k * k with the delta rule, else 1, k or (no decay) 0.
 * STATE_OWN       in0 = K[m,batch,kv_heads,k], in1 = V[m,batch,heads,n], [in2 = G], [in3 = beta[m,batch,heads]] ->
 *                 out0 = M[batch,heads,k,n], [out1 = T]
 * RECURRENT       in0 = Q, in1 = K, in2 = V, [in3 = G], [in4 = beta], [in5 = state before (counts as zero at the first
 *                 place)] -> out0 = O
 * STATE_OWN_BWD   in0 = Q, in1 = K, [in2 = G], [in3 = beta], in4 = dO -> out0 = dM, [out1 = T]
 * RECURRENT_BWD   in0 = Q, in1 = K, in2 = V, [in3 = G], [in4 = beta], in5 = dO, [in6 = state before (zero at the first
 *                 place)], [in7 = gradient of the state after (zero at the last)] -> out0 = dQ, out1 = dK, out2 = dV,
 *                 [out3 = dG], [out4 = dbeta; of a scan d rates +=]
 * CONV            causal convolution of each feature over `window` tokens, then silu: in0 = X[m,batch,n], in1 =
 *                 weight[n,window], [in2 = bias[n]], [in3 = X's last window - 1 tokens of the place before, zero at the
 *                 first place] -> out0[m,batch,n]
 * CONV_BWD        in0 = dY, in1 = X, in2 = weight, [in3 = bias], [in4 = as CONV's in3] -> out0 = dX, out1 = dweight +=,
 *                 [out2 = dbias +=], [out3 = gradient of in4]
 * KEY_MAP         in0 = QKV[m, 2 kv_heads k + heads n] -> out0 = Q[m,kv_heads,k], out1 = K, out2 = V[m,heads,n]; Q and
 *                 K through silu (SP_OP_SILU; SP_OP_SILU_VALUES: V too), l2 norm a head (SP_OP_L2), rotation
 *                 (SP_OP_ROTATE), where flagged
 * KEY_MAP_BWD     [in0 = QKV; not read without silu and l2 norm], in1 = dQ, in2 = dK, in3 = dV -> out0 = dQKV
 * SIGMOID         in0[m,n] -> out0
 * SIGMOID_BWD     in0 = d, in1 = output -> out0
 * DECAY           in0 = x[m,n], n = heads or heads * k, [in1 = bias[n]], [in2 = logarithms of rates[heads]] -> [out0 =
 *                 G], [out1 = softplus (x + bias)]: G = -rate * that, or without rates logsigmoid (x + bias) / 16
 * DECAY_BWD       in0 = x, [in1], [in2] as DECAY's, [in3 = dG], [in4 = d out1] -> out0 = dx, [out1 = dbias +=],
 *                 [out2 = d in2 +=]
 * SKIP            in0 = O[m,heads,n], in1 = V, in2 = scale[heads] -> out0 = O + scale * V
 * SKIP_BWD        in0 = dY, in1 = V, in2 = scale, in3 = dV -> out0 = dV + scale * dY, out1 = dscale +=
 * GLU             in0 = GU[m,2n] -> out0 = f(G) * U [m,n], [out1 = f(G)]; f = silu, or the identity with
 *                 SP_OP_LINEAR_GATE, or gelu with SP_OP_GELU_GATE
 * GLU_BWD         in0 = dA, in1 = GU, [in2 = GLU's out1] -> out0 = dGU
 * GELU            in0[m,n] -> out0 (tanh form); with SP_OP_RELU max (in0, 0), with SP_OP_SQUARE too the square of that
 * GELU_BWD        in0 = dA, in1 = input -> out0
 * GATE            in0 = O[m,n], in1 = [m,k] (U its last n columns) -> out0 = O * sigmoid(U), with SP_OP_SILU silu(U)
 * GATE_BWD        in0 = d, in1 = O, in2 = as GATE's in1 -> out0 = dO, out1 = dU[m,n]
 * ROW_GATE        in0 = X[m,n], in1 = u[m] -> out0 = X * sigmoid(u)
 * ROW_GATE_BWD    in0 = d, in1 = X, in2 = u -> out0 = dX, out1 = du[m]
 * ROUTE           in0 = logits[m,heads] of m tokens and `heads` experts -> out0 = weights[m,k] fp32, out1 = slots[m,k]
 *                 int32. A token goes to the k experts with the largest logits (ties: the lower number), weighed by the
 *                 softmax over theirs alone; with SP_OP_BALANCED to experts (position * k + j) mod heads, what frameworks
 *                 call forced load balancing. An expert's buffer has kv_heads rows, filled in the order of tokens; a slot
 *                 is a row of [heads,kv_heads], or -1 of a token that found no room, whose weight is 0
 * ROUTE_BWD       in0 = logits, in1 = dweights, in2 = slots -> out0 = dlogits
 * DISPATCH        in0 = X[m,n], in1 = slots -> out0[heads,kv_heads,n]: each token in its k slots, zeros elsewhere
 * DISPATCH_BWD    in0 = d[heads,kv_heads,n], in1 = slots -> out0 = dX[m,n]
 * COMBINE         in0 = Y[heads,kv_heads,n], in1 = weights, in2 = slots -> out0[m,n] = sum over k of weight * row
 * COMBINE_BWD     in0 = d[m,n], in1 = Y, in2 = weights, in3 = slots -> out0 = dY, out1 = dweights[m,k] fp32
 * ADD             out0[m,n] = in0 + in1 [+ in2[n] bias] [+ in3[n] bias]
 * ACCUMULATE_INTO out0[m,n] += in0
 * COPY            out0[m,n] = in0 (dtype may change); of an in0 that is `group` size times as long, this place's part
 * COLUMN_SUM      out0[n] += sum over m of in0[m,n]: bias gradient; `batch` times (0: once), as a GEMM's operands
 * EMBED           in0 = table[n,k] (n = vocabulary part: rows place * n on, over the tensor group; those from
 *                 SpNumbers.vocabulary on are padding that no id names) -> out0[m,k]; ids outside the part give zero
 * EMBED_BWD       in0 = dX[m,k] -> out0 = dtable +=
 * POSITION        in0 = X[m,k], in1 = table[n,k] -> out0 = X + row SpNumbers.position_offset + the token's position;
 *                 with SP_OP_SEGMENT the row of its n-th part of the sequence
 * POSITION_BWD    in0 = dX[m,k] -> out0 = dtable +=
 * LOSS_MAX        in0 = logits[m,n] (n = vocabulary part, as in EMBED) -> out0[m] = row maximum, fp32. In LOSS_MAX,
 *                 LOSS_SUM and LOSS the padding's columns count as -inf, whatever is in them; their dlogits are 0
 * LOSS_SUM        in0 = logits, in1 = maximum -> out0[m,2] = (sum of exp, target's logit or 0), fp32
 * LOSS            in0 = logits, in1 = maximum, in2 = sums -> out0 = dlogits[m,n] of the mean loss over the global
 *                 batch, [out1 = scratch of the same size]
 * ADAM            in0 = gradient shard, out0 = master (fp32), out1 = moment 1, out2 = moment 2, [out3 = parameter shard];
 *                 n elements
 * MOMENTUM        in0 = gradient -> out0 = M = beta M + in0, fp32; out1 = in0 + beta M, bf16; n elements
 * ORTHOGONALIZE   in0 = G[kv_heads,batch,k,n] -> out0, in place: of each of the batch the m rows from `heads` on, joined
 *                 over kv_heads parts by rows (SP_OP_TRANS_B: by columns), are a matrix, which five Newton-Schulz
 *                 iterations make orthogonal; it is scaled by 0.2 sqrt (longer side). With a group only those that the
 *                 place's equal part of what in1 is a view of has some of; a part's rows lie as in in1. The FLOP are the
 *                 mean place's. out1 = scratch
 * DESCEND         in0 = update -> out0 = master -= rate in0, out1 = parameter; n elements. With a group in0 is `group`
 *                 size times as long, and this place's part counts
 * ZERO            out0[m,n] = 0
 *
 * Communication, over `group`; dtype is the buffers'. `batch` of a collective: in as many calls, one after the other,
 * each of an equal part (0: one); it says when, and nothing of what comes out:
 * ALL_GATHER      in0 part -> out0 whole (parts in order of place)
 * REDUCE_SCATTER  in0 whole -> out0 part (SP_OP_ACCUMULATE: +=)
 * ALL_REDUCE      in0 -> out0 (may be the same slot); SP_OP_MAX takes the maximum
 * ALL_TO_ALL      in0 = n parts -> out0 = n parts
 * SEND            in0, [in1] to place + 1 (SP_OP_REVERSE: - 1)
 * RECEIVE         out0, [out1] from place - 1 (SP_OP_REVERSE: + 1)
 *                 With SP_OP_OWN_PART of what is sent and received, and of an ALL_GATHER's in0, only this rank's equal
 *                 part counts: that of its place in the tensor group. Such an ALL_GATHER may be in place
 * TO_HOST         in0 -> out0, which lies in host memory (SP_OP_ACCUMULATE: +=, added by the host); dtype may change.
 *                 Over SP_GROUP_SELF
 * FROM_HOST       in0, in host memory -> out0; payload is that of the type that moves, the narrower one
 * SEND_RECEIVE    in0 [in1] to place + 1, out0 [out1] from place - 1, around the ring, at once
 */

#include <glib.h>

G_BEGIN_DECLS

typedef enum {
  SP_OP_GEMM,
  SP_OP_SCORES,
  SP_OP_SCORES_BWD,
  SP_OP_SOFTMAX,
  SP_OP_SOFTMAX_BWD,
  SP_OP_CONTEXT,
  SP_OP_CONTEXT_BWD,
  SP_OP_DROPOUT,
  SP_OP_DROPOUT_BWD,
  SP_OP_NORM,
  SP_OP_NORM_STAT,
  SP_OP_NORM_BWD,
  SP_OP_NORM_STAT_BWD,
  SP_OP_ROPE,
  SP_OP_ROPE_BWD,
  SP_OP_LATENT,
  SP_OP_LATENT_BWD,
  SP_OP_SPLIT,
  SP_OP_JOIN,
  SP_OP_FEATURE,
  SP_OP_FEATURE_BWD,
  SP_OP_PACK,
  SP_OP_UNPACK,
  SP_OP_PART,
  SP_OP_ATTENTION,
  SP_OP_ATTENTION_MERGE,
  SP_OP_ATTENTION_SINK,
  SP_OP_ATTENTION_SINK_BWD,
  SP_OP_ATTENTION_DELTA,
  SP_OP_ATTENTION_BWD,
  SP_OP_LINEAR_LOCAL,
  SP_OP_LINEAR_INTER,
  SP_OP_LINEAR_LOCAL_BWD,
  SP_OP_LINEAR_INTER_BWD,
  SP_OP_STATE_UPDATE,
  SP_OP_STATE_PREFIX,
  SP_OP_STATE_OWN,
  SP_OP_RECURRENT,
  SP_OP_STATE_OWN_BWD,
  SP_OP_RECURRENT_BWD,
  SP_OP_CONV,
  SP_OP_CONV_BWD,
  SP_OP_KEY_MAP,
  SP_OP_KEY_MAP_BWD,
  SP_OP_SIGMOID,
  SP_OP_SIGMOID_BWD,
  SP_OP_DECAY,
  SP_OP_DECAY_BWD,
  SP_OP_SKIP,
  SP_OP_SKIP_BWD,
  SP_OP_GLU,
  SP_OP_GLU_BWD,
  SP_OP_GELU,
  SP_OP_GELU_BWD,
  SP_OP_GATE,
  SP_OP_GATE_BWD,
  SP_OP_ROW_GATE,
  SP_OP_ROW_GATE_BWD,
  SP_OP_ROUTE,
  SP_OP_ROUTE_BWD,
  SP_OP_DISPATCH,
  SP_OP_DISPATCH_BWD,
  SP_OP_COMBINE,
  SP_OP_COMBINE_BWD,
  SP_OP_ADD,
  SP_OP_ACCUMULATE_INTO,
  SP_OP_COPY,
  SP_OP_COLUMN_SUM,
  SP_OP_EMBED,
  SP_OP_EMBED_BWD,
  SP_OP_POSITION,
  SP_OP_POSITION_BWD,
  SP_OP_LOSS_MAX,
  SP_OP_LOSS_SUM,
  SP_OP_LOSS,
  SP_OP_ADAM,
  SP_OP_MOMENTUM,
  SP_OP_ORTHOGONALIZE,
  SP_OP_DESCEND,
  SP_OP_ZERO,
  /* communication from here on */
  SP_OP_ALL_GATHER,
  SP_OP_REDUCE_SCATTER,
  SP_OP_ALL_REDUCE,
  SP_OP_ALL_TO_ALL,
  SP_OP_SEND,
  SP_OP_RECEIVE,
  SP_OP_SEND_RECEIVE,
  SP_OP_TO_HOST,
  SP_OP_FROM_HOST,
  SP_N_OPS
} SpOpKind;

#define sp_op_is_communication(kind) ((kind) >= SP_OP_ALL_GATHER)
#define sp_op_is_host_copy(kind) ((kind) >= SP_OP_TO_HOST)
#define sp_op_is_one_way(kind) ((kind) == SP_OP_SEND || (kind) == SP_OP_RECEIVE)

typedef enum {
  SP_OP_TRANS_A = 1 << 0,
  SP_OP_TRANS_B = 1 << 1,
  SP_OP_ACCUMULATE = 1 << 2,
  SP_OP_CAUSAL = 1 << 3,
  SP_OP_REVERSE = 1 << 4,
  SP_OP_LAYERNORM = 1 << 5,
  SP_OP_NO_ROTATE = 1 << 6,
  SP_OP_LINEAR_GATE = 1 << 7,
  SP_OP_MAX = 1 << 8,
  SP_OP_ASYNC = 1 << 9,            /* may run beside compute of its window (its loop step, or its segment) */
  SP_OP_WEIGHT = 1 << 10,          /* backward-weight: only gradients of parameters depend on it */
  SP_OP_PER_MICRO_BATCH = 1 << 11, /* in SYNC: after every backward, not once a step */
  SP_OP_AFTER_OPTIMIZER = 1 << 12, /* in OPTIMIZER: the gather of updated parameters */
  SP_OP_CORE = 1 << 13,            /* of the attention core: what scope = attention keeps */
  SP_OP_BALANCED = 1 << 14,        /* of ROUTE: every expert gets as many tokens as the others */
  SP_OP_VARIES = 1 << 15,          /* ranks have more or less to do: this is the busiest one's, the mean is
                                      1 / SpNumbers.expert_imbalance of it */
  SP_OP_ON_HOST = 1 << 16,         /* a kernel that the host's processors run, on host memory */
  SP_OP_GATED = 1 << 17,           /* rows end with the features of a gate */
  SP_OP_GELU_GATE = 1 << 18,       /* f of a GLU: gelu */
  SP_OP_RELU = 1 << 19,            /* in place of gelu: max (x, 0), */
  SP_OP_SQUARE = 1 << 20,          /* its square */
  SP_OP_SEGMENT = 1 << 21,         /* the table's rows are for equal parts of the sequence */
  SP_OP_DELTA = 1 << 22,           /* the rule of a recurrence: this and the next three */
  SP_OP_HEAD_DECAY = 1 << 23,
  SP_OP_FEATURE_DECAY = 1 << 24,
  SP_OP_SCAN = 1 << 25,
  SP_OP_SILU = 1 << 26, /* maps of elements: this and the next three */
  SP_OP_SILU_VALUES = 1 << 27,
  SP_OP_L2 = 1 << 28,
  SP_OP_ROTATE = 1 << 29,
  SP_OP_FP8 = 1 << 30,            /* a GEMM of fp8 operands */
  SP_OP_BY_PLACE = 1u << 31,      /* of a kernel over all places' tokens in order: each place has more work than the one
                                       before; flops are the last one's. See sim/op-place.h */
  SP_OP_QUERIES = SP_OP_TRANS_A,  /* of attention: queries go around a ring, keys stay */
  SP_OP_UNMASKED = SP_OP_TRANS_B, /* of attention: the mask hides whole parts, which a kernel leaves out, and no pair
                                     of the others */
  SP_OP_OWN_PART = SP_OP_TRANS_A, /* of messages and gathers: of an operand this tensor rank's part */
} SpOpFlags;

/* An op runs on a rank if all bits of its guard hold there. Places are those of the op's `group`. */
typedef enum {
  SP_GUARD_NOT_FIRST = 1 << 0,  /* place > 0 */
  SP_GUARD_NOT_LAST = 1 << 1,   /* place < size - 1 */
  SP_GUARD_FIRST_STEP = 1 << 2, /* of the loop */
  SP_GUARD_NOT_FIRST_STEP = 1 << 3,
  SP_GUARD_NOT_LAST_STEP = 1 << 4,
  SP_GUARD_VISIBLE = 1 << 5,  /* the keys that are here at this step are not all in the future: step <= place */
  SP_GUARD_NEAR = 1 << 6,     /* nor all before the window: step <= reach */
  SP_GUARD_NEAR_ENDS = 1 << 7 /* the same around the ring's end too: step <= reach or step >= steps - reach */
} SpGuard;

#define SP_MAX_IN 8
#define SP_MAX_OUT 6 /* with `reach` they fill the structure: tests compare ops as memory */

typedef struct {
  guint8 kind;     /* SpOpKind */
  guint8 stream;   /* SpStream */
  guint8 group;    /* SpGroupId; of a kernel with place guards, the group that they speak of */
  guint8 guard;    /* SpGuard bits */
  guint8 axis;     /* SpAxis, communication only */
  guint8 loop;     /* 1 + index of its loop in the block, 0 outside */
  guint16 wait[3]; /* 1 + index in the segment of ops on other streams that must be over; 0 none */
  guint32 flags;   /* SpOpFlags */
  gint32 m, n, k, batch, heads, kv_heads;
  gint32 value_size; /* of attention: features of a value head, 0: k */
  gint32 window;     /* of attention: keys that a query sees, itself counted; 0: all. Of a convolution: its width */
  gint64 bytes;
  double flops; /* a count; of a long sequence it does not fit 64 bits */
  guint8 in[SP_MAX_IN];
  guint8 out[SP_MAX_OUT];
  /* In steps of the loop, of SP_GUARD_NEAR and SP_GUARD_NEAR_ENDS. Of a gather or scatter of shards: layers that it may be
   * away from its own; 0: one. */
  guint16 reach;
} SpOp;

G_STATIC_ASSERT (sizeof (SpOp) == 80);

/* Whether an op runs at a place of its group of `size`, in a step of its loop of `steps` (outside: step 0 of 1): as far
 * as its guard says it alone, as far as its reach does, and both. */
static inline gboolean
sp_guard_holds (guint guard, gint32 place, gint32 size, gint32 step, gint32 steps)
{
  return !((guard & SP_GUARD_NOT_FIRST && place == 0) || (guard & SP_GUARD_NOT_LAST && place >= size - 1) ||
           (guard & SP_GUARD_FIRST_STEP && step != 0) || (guard & SP_GUARD_NOT_FIRST_STEP && step == 0) ||
           (guard & SP_GUARD_NOT_LAST_STEP && step == steps - 1) || (guard & SP_GUARD_VISIBLE && step > place));
}

static inline gboolean
sp_op_in_reach (const SpOp *op, gint32 step, gint32 steps)
{
  return !(op->guard & (SP_GUARD_NEAR | SP_GUARD_NEAR_ENDS)) || step <= op->reach ||
         (op->guard & SP_GUARD_NEAR_ENDS && step >= steps - op->reach);
}

static inline gboolean
sp_op_holds (const SpOp *op, gint32 place, gint32 size, gint32 step, gint32 steps)
{
  return sp_guard_holds (op->guard, place, size, step, steps) && sp_op_in_reach (op, step, steps);
}

G_END_DECLS
