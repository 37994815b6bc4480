/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The program: what every GPU does in one training step.
 *
 * models/ writes it from (architecture, layout, batch); the estimate prices it, the simulator runs it in simulated
 * time, the rehearsal runs it on real numbers, the executor runs it on GPUs. No reader knows a strategy: all that a
 * strategy means stands in the ops below.
 *
 * Shape. Nothing is written out per layer, micro-batch or rank:
 *  - a BLOCK is a kind of layer (or the embedding, or the head with the loss); layers of which some are recomputed and
 *    some are not are two. It has one table of buffers and one op
 *    list per PHASE. A model is a sequence of block instances ("layers"), cut into pipeline stages.
 *  - ranks differ by their place in a GROUP (a set of mixed-radix digits of the rank number) and ops carry GUARDS on
 *    the place; there are no op lists per rank.
 *  - a ring is a LOOP written once; buffers that travel around it are CARRIED. So is work that is done tile by tile:
 *    views of whole buffers MOVE on with each step.
 *  - the order in which a stage runs its slots (forward or backward of a micro-batch) is the SCHEDULE.
 *
 * Where a step's time goes, in order, on a rank of stage s:
 *    for each slot (phase, chunk, micro-batch) of the schedule:
 *      forward slot:  pipe-receive; for each layer of the chunk: GATHER, FORWARD; pipe-send
 *      backward slot: pipe-receive; for each layer, last to first: GATHER (if it was resharded), RECOMPUTE, BACKWARD,
 *                     SYNC (ops flagged SP_OP_PER_MICRO_BATCH); pipe-send
 *    for each layer, last to first: SYNC (ops not flagged so);  for each layer: OPTIMIZER
 * sim/walk.h goes through it. A chunk is one of the virtual stages that a stage holds (sim/schedules.h), plainly the
 * only one; first and last in the lines above are the model's order.
 * Once-a-step lists (OPTIMIZER, and the ops of SYNC not flagged) are variant 0's. Parameters that ZeRO-3 keeps gathered
 * are gathered for each micro-batch all the same, as FSDP does.
 * The backward list mixes backward-input and backward-weight ops in the order an eager framework issues them; each op
 * is flagged, so that a schedule that splits them runs the list twice, filtered: the first time with GATHER, RECOMPUTE
 * and the pipeline's ops, the second time with SYNC.
 * The SCOPE may be less than a step (SpScope): then only part of the above is walked. Blocks, groups and stages are the
 * same, and so is what each op costs.
 *
 * Units. Bytes are int64 counts, FLOP are counted in double. Shapes are in elements. `bytes` of a kernel is its HBM
 * traffic, of a communication its PAYLOAD as nccl-tests counts sizes: the full (unsharded) buffer of an all-gather or
 * reduce-scatter, the buffer of an all-reduce, the whole send buffer of an all-to-all, the message of a send.
 *
 * Tokens are stored sequence-major: row (s * batch + b) of a [tokens, features] matrix, so that gathering the sequence
 * over ranks is concatenation.
 *
 * Ownership. SpProgram owns all its arrays; they are grown, never shrunk, so a search that writes programs into the
 * same SpProgram allocates nothing. Programs are plain data: no pointers into models/.
 */

#include <glib.h>

#include "sim/schedules.h"

G_BEGIN_DECLS

#define SP_PROGRAM_VERSION 3

typedef enum {
  SP_DTYPE_BF16,
  SP_DTYPE_FP16,
  SP_DTYPE_FP32,
  SP_DTYPE_UINT8, /* dropout masks */
  SP_DTYPE_INT32, /* token ids */
  SP_N_DTYPES
} SpDtype;

static inline guint
sp_dtype_bytes (SpDtype dtype)
{
  static const guint8 bytes[SP_N_DTYPES] = { 2, 2, 4, 1, 4 };

  return bytes[dtype];
}

/* What communication is accounted under. */
typedef enum {
  SP_AXIS_TENSOR,
  SP_AXIS_ULYSSES,
  SP_AXIS_RING,
  SP_AXIS_LASP,
  SP_AXIS_DATA, /* gradient reduction and ZeRO, over data x sequence ranks */
  SP_AXIS_PIPELINE,
  SP_AXIS_EXPERT, /* a second use of data and sequence ranks: it has no digits of its own */
  SP_AXIS_HOST,   /* between a GPU and its host memory: no ranks */
  SP_N_AXES
} SpAxis;

#define SP_N_RANK_AXES SP_AXIS_EXPERT /* those that have digits */

typedef enum {
  SP_STREAM_COMPUTE,
  SP_STREAM_TENSOR,
  SP_STREAM_SEQUENCE, /* ulysses, ring, lasp, expert */
  SP_STREAM_OUTER,    /* the outer ring of a double one: runs beside whole loops */
  SP_STREAM_DATA,
  SP_STREAM_PIPELINE,
  SP_STREAM_OFFLOAD, /* copies to and from host memory */
  SP_STREAM_HOST,
  SP_N_STREAMS
} SpStream;

/* --- ranks ---------------------------------------------------------------------------------------------------- */

/* rank = sum over digits of value * stride. Digits are stored in order of stride; an axis may own several digits. */
typedef struct {
  guint8 axis; /* SpAxis */
  gint32 size;
  gint32 stride; /* in ranks */
} SpDigit;

#define SP_MAX_DIGITS 12

typedef enum {
  SP_GROUP_NONE,
  SP_GROUP_TENSOR,
  SP_GROUP_ULYSSES,        /* the ranks that exchange heads for tokens in softmax layers */
  SP_GROUP_RING,           /* the ranks of one ring */
  SP_GROUP_RING_INNER,     /* where a ring is cut in two: of its ranks the near ones ... */
  SP_GROUP_RING_OUTER,     /* ... and those that differ in the rest; place = inner + outer x inner's size */
  SP_GROUP_ULYSSES_LINEAR, /* as ULYSSES, for linear layers */
  SP_GROUP_LASP,           /* the chain (LASP) or the gather (LASP-2) of states */
  SP_GROUP_SEQUENCE,       /* all ranks that share one sequence: place = index of the sequence part (contiguous) */
  SP_GROUP_DATA,           /* replicas that see other sequences */
  SP_GROUP_ZERO,           /* data x sequence: ranks that hold the same weights, but for experts'; of a hybrid shard
                              those that share them among each other, and ... */
  SP_GROUP_REPLICA,        /* ... the rest of data x sequence: ranks that hold the same part */
  SP_GROUP_EXPERT,         /* of these, the ones that experts are spread over; place = index of the experts' part */
  SP_GROUP_EXPERT_DATA,    /* the rest of ZERO: ranks that hold the same experts; of one where there are none */
  SP_GROUP_PIPELINE,
  SP_GROUP_SELF,   /* the rank alone: what it exchanges with its host */
  SP_GROUP_TIE,    /* first and last pipeline stage, for tied embeddings; place 0 and 1 */
  SP_GROUP_MIRROR, /* stages s and p - 1 - s, which hold the same layers under a mirrored schedule; place 0 the lower */
  SP_N_GROUPS
} SpGroupId;

/* Members differ in the listed digits. A rank's PLACE in the group is the mixed-radix number of those digits,
 * digits[0] least significant: the logical order, whatever the strides. */
typedef struct {
  gint32 size;
  guint8 n_digits;
  guint8 digits[SP_MAX_DIGITS]; /* indices into SpProgram.digits */
} SpGroup;

/* --- ops ------------------------------------------------------------------------------------------------------ */

/*
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
 * LINEAR_INTER_BWD in0 = K, in1 = V, in2 = dO, in3 = state before (counts as zero at the first place), in4 = dS
 * gradient
 *                 of the state after (zero at the last) -> out0 = dQ +=, out1 = dK +=, out2 = dV +=
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
 * GLU             in0 = GU[m,2n] -> out0 = f(G) * U [m,n]; f = silu, or the identity with SP_OP_LINEAR_GATE, or gelu
 *                 with SP_OP_GELU_GATE
 * GLU_BWD         in0 = dA, in1 = GU -> out0 = dGU
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
 * Communication, over `group`; dtype is the buffers':
 * ALL_GATHER      in0 part -> out0 whole (parts in order of place)
 * REDUCE_SCATTER  in0 whole -> out0 part (SP_OP_ACCUMULATE: +=)
 * ALL_REDUCE      in0 -> out0 (may be the same slot); SP_OP_MAX takes the maximum
 * ALL_TO_ALL      in0 = n parts -> out0 = n parts
 * SEND            in0, [in1] to place + 1 (SP_OP_REVERSE: - 1)
 * RECEIVE         out0, [out1] from place - 1 (SP_OP_REVERSE: + 1)
 * TO_HOST         in0 -> out0, which lies in host memory (SP_OP_ACCUMULATE: +=, added by the host); dtype may change.
 *                 Over SP_GROUP_SELF
 * FROM_HOST       in0, in host memory -> out0; payload is that of the type that moves, the narrower one
 * SEND_RECEIVE    in0 [in1] to place + 1, out0 [out1] from place - 1, around the ring, at once
 */
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
  SP_OP_FP8 = 1 << 30, /* a GEMM of fp8 operands */
  SP_OP_BY_PLACE = 1u << 31,       /* of a kernel over all places' tokens in order: each place has more work than the one
                                       before; flops are the last one's. See sp_op_share */
  SP_OP_QUERIES = SP_OP_TRANS_A,   /* of attention: queries go around a ring, keys stay */
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
  guint16 reach; /* in steps of the loop; of SP_GUARD_NEAR and SP_GUARD_NEAR_ENDS */
} SpOp;

G_STATIC_ASSERT (sizeof (SpOp) == 80);

/* --- buffers -------------------------------------------------------------------------------------------------- */

typedef enum {
  SP_CLASS_PARAMETERS,
  SP_CLASS_GRADIENTS,
  SP_CLASS_OPTIMIZER,
  SP_CLASS_ACTIVATIONS,
  SP_CLASS_LOGITS,
  SP_CLASS_COMMUNICATION,
  SP_CLASS_WORKSPACE,
  SP_CLASS_RESERVED, /* CUDA context, NCCL, allocator: from the framework profile, never a buffer */
  SP_N_CLASSES
} SpClass;

typedef enum {
  SP_LIFE_SEGMENT,  /* from its first to its last use in one op list (RECOMPUTE and BACKWARD count as one); in
                       OPTIMIZER to the list's end */
  SP_LIFE_STASH,    /* from FORWARD (first use) to BACKWARD (last use) of the same micro-batch and layer */
  SP_LIFE_REBUILT,  /* a stash that recompute drops: SEGMENT in FORWARD, then again from RECOMPUTE to BACKWARD */
  SP_LIFE_HANDOFF,  /* X, Y, DX, DY: passed between blocks */
  SP_LIFE_GATHERED, /* parameters gathered for use: from GATHER to the end of the phase that it serves, or to the end
                       of BACKWARD where the program does not reshard */
  SP_LIFE_SUMMED,   /* gradients that SYNC scatters after every backward: from the start of BACKWARD to SYNC */
  SP_LIFE_STEP_END, /* from SYNC to the end of the step: shards of what else lives whole (reduced gradients, updated
                       parameters of ZeRO-1 and 2) */
  SP_LIFE_ALWAYS,
  SP_N_LIVES
} SpLife;

typedef struct {
  gint64 bytes; /* 0 for a view */
  gint64 elements;
  gint64 offset;    /* of a view, in elements, within `alias` */
  guint8 class;     /* SpClass */
  guint8 dtype;     /* SpDtype */
  guint8 life;      /* SpLife */
  guint8 alias;     /* slot that it is a view of, 0 none */
  guint8 moves;     /* 1: a view that lies its own length further on at each step of the loop whose ops use it */
  guint8 tied;      /* 1: the embedding block's buffer of this slot number stands in, where the rank has both blocks */
  guint8 tied_slot; /* slot in block 0 */
  guint8 host;      /* 1: in host memory, `bytes` = 0 */
} SpBuffer;

/* Slots that every block has. X: input activation, Y: output; DY, DX their gradients. Block 0 has no X and DX, the head
 * has no Y and DY. */
enum { SP_SLOT_NONE, SP_SLOT_X, SP_SLOT_Y, SP_SLOT_DY, SP_SLOT_DX, SP_SLOT_FIRST_FREE };
#define SP_MAX_SLOTS 240

/* Buffers that move around a ring. At step s (from 0) slot `current` is `init` if s = 0 (if init is 0: fresh), else
 * what `next` was at step s - 1; the two memories alternate. After the loop `current` is what arrived last. */
typedef struct {
  guint8 init, current, next;
} SpCarry;

/* Of a loop over tiles (group NONE, no carries) what is written and read within one step, life SEGMENT and none of the
 * views that move lie in it, ends with the step; what else is used in a loop is used until its end. */

#define SP_MAX_CARRIES 6
#define SP_MAX_LOOPS 48

typedef struct {
  guint8 phase; /* SpPhase whose list it stands in */
  guint8 group; /* the ring: steps = its size; NONE: tiles, as many as it says */
  guint8 round; /* of RING_INNER: hops around RING_OUTER that what its carries start from has behind it */
  gint32 steps;
  guint16 first, end; /* ops [first, end) of the segment */
  guint8 n_carries;
  SpCarry carries[SP_MAX_CARRIES];
} SpLoop;

/* How a parameter tensor is cut over the tensor group: needed to start, check and store it. Local shape rows x cols,
 * row-major, out-features first. VOCABULARY: by rows, of which those from SpNumbers.vocabulary on are padding (see
 * EMBED) and no part of the model's tensor. */
typedef enum { SP_SPLIT_NONE, SP_SPLIT_ROWS, SP_SPLIT_COLS, SP_SPLIT_VOCABULARY, SP_N_SPLITS } SpSplit;

#define SP_MAX_WEIGHTS 40
#define SP_MAX_SECTIONS 4

/* `experts` of a weight: that many local parts of equal shape, stacked by rows, each cut over the tensor group by itself;
 * the model has as many for each place of SP_GROUP_EXPERT, in order. 0: it is one. */
typedef struct {
  char name[12]; /* "qkv", "norm1" ... */
  guint8 flat;   /* index of its flat: slot and grad are views of that */
  guint8 slot;   /* parameter view */
  guint8 grad;   /* gradient view; 0: frozen */
  guint8 split;  /* SpSplit */
  guint8 n_sections;
  gint32 experts;
  gint32 rows, cols;
  gint32 sections[SP_MAX_SECTIONS]; /* local rows of each section (q, k, v ...) of an expert; a row split cuts each */
} SpWeight;

/* Parameters of the block that the same ranks hold, in one flat buffer (the weights are views of it), padded with zeros
 * to a multiple of `group`; a shard is the equal part of this rank's place in it, shard_* = 0 where there is none. Which
 * of the two lives ALWAYS, and so holds the values at the start of a step, says its life. The optimizer's three belong
 * to the shard if there is one; Muon has no moment2. */
typedef struct {
  guint8 group;  /* SpGroupId of the ranks that hold the same: ZERO, or EXPERT_DATA of experts */
  guint8 frozen; /* 1: not trained, so without gradients and the optimizer's three */
  guint8 parameters, gradients, shard_parameters, shard_gradients, master, moment1, moment2;
  guint8 host_gradients; /* where the optimizer runs on the host: what it reads; else 0 */
} SpFlat;

#define SP_MAX_FLATS 6

/* --- blocks, segments ----------------------------------------------------------------------------------------- */

typedef enum {
  SP_PHASE_GATHER,
  SP_PHASE_FORWARD,
  SP_PHASE_RECOMPUTE,
  SP_PHASE_BACKWARD,
  SP_PHASE_SYNC,
  SP_PHASE_OPTIMIZER,
  SP_N_PHASES
} SpPhase;

typedef struct {
  guint32 first; /* index into SpProgram.ops */
  guint32 n;
} SpSegment;

/* Parameters that are not trained; of the last, those before them are not either, so that BACKWARD is empty: the
 * block's turn in the backward does not come, and nothing is handed to it. */
typedef enum { SP_FROZEN_NOT, SP_FROZEN_PARAMETERS, SP_FROZEN_FORWARD_ONLY, SP_N_FROZENS } SpFrozen;

typedef enum { SP_BLOCK_EMBEDDING, SP_BLOCK_SOFTMAX, SP_BLOCK_LINEAR, SP_BLOCK_HEAD, SP_N_BLOCK_KINDS } SpBlockKind;

typedef struct {
  guint8 kind;      /* SpBlockKind */
  guint8 traits;    /* of a layer, what else tells its kind from the model's others; 0 is plain. Names alone use it */
  guint8 recomputes; /* 1: the layout has its layers recomputed, in part or whole */
  guint8 frozen;     /* SpFrozen: what tells layers of one kind apart, some of which are not trained */
  guint8 n_buffers; /* slots 1 .. n_buffers - 1 */
  guint8 n_loops;
  guint8 n_weights;
  guint8 regather; /* what was gathered ends with FORWARD; GATHER again before BACKWARD, if there is one */
  guint8 n_flats;
  double attention_pairs; /* of packed documents on a ring: those of one head and sequence that the mean place has. Its
                           * attention is priced with the slowest place's at each step. 0: as priced */
  SpFlat flats[SP_MAX_FLATS];
  SpSegment segments[SP_N_PHASES];
  SpLoop loops[SP_MAX_LOOPS];
  SpWeight weights[SP_MAX_WEIGHTS];
  SpBuffer buffers[SP_MAX_SLOTS];
  /* first and last use of each slot: [0] in FORWARD, [1] in RECOMPUTE then BACKWARD counted as one list; op index + 1,
   * 0 = not used */
  guint16 first_use[2][SP_MAX_SLOTS];
  guint16 last_use[2][SP_MAX_SLOTS];
} SpBlock;

#define SP_MAX_BLOCKS 18 /* 8 kinds of layers, recomputed or not, and the ends */

/* The blocks at one batch size. Variant 0 is the full micro-batch; variant 1, where it exists, the smaller last one.
 * Slots and parameters are the same in both. blocks[0] is the embedding, blocks[n_blocks - 1] the head. */
typedef struct {
  gint32 batch; /* sequences */
  SpBlock blocks[SP_MAX_BLOCKS];
  /* Forward; the backward runs them with SP_OP_REVERSE on DX and DY. To and from the stage of the neighbouring virtual
   * stage, which may be at the pipeline's other end. */
  SpOp pipe_send, pipe_receive;
} SpVariant;

/* What of the step is run. LAYER and ATTENTION need one stage of one chunk. */
typedef enum {
  SP_SCOPE_STEP,
  SP_SCOPE_FORWARD,   /* the forward slots alone */
  SP_SCOPE_LAYER,     /* FORWARD, RECOMPUTE and BACKWARD of the first layer for the first micro-batch */
  SP_SCOPE_ATTENTION, /* as LAYER, of which only ops flagged SP_OP_CORE */
  SP_N_SCOPES
} SpScope;

/* How the tokens of a sequence lie on the ranks. */
typedef enum { SP_TOKENS_CONTIGUOUS, SP_TOKENS_ZIGZAG, SP_TOKENS_STRIPED, SP_N_TOKEN_SPLITS } SpTokenSplit;

typedef struct {
  /* What a kernel needs to know besides its op. */
  double norm_epsilon, rope_theta, dropout, learning_rate, adam_beta1, adam_beta2, adam_epsilon;
  double muon_momentum;              /* 0: there is no MOMENTUM */
  gint32 heads, kv_heads, head_size; /* of the whole model */
  gint32 linear_heads;               /* of its linear layers */
  gint32 hidden, vocabulary;
  double expert_imbalance; /* of ops flagged SP_OP_VARIES: what the busiest rank does over the mean; 0 where none is */
  gint32 position_offset; /* rows of a table of positions before the first position's */
} SpNumbers;

/* Packed documents: runs of the same length, in their order. They are put one behind the other, and gone through again
 * after the last; sequence s of the global batch has tokens from s * sequence on, and what a sequence cuts off a document
 * begins the next one as another. A query sees keys of its own document alone, and positions start at 0 with each. */
typedef struct {
  gint64 length; /* tokens of each */
  gint64 count;
} SpDocuments;

#define SP_MAX_DOCUMENTS 4096 /* runs that a program keeps */

typedef struct {
  SpDigit digits[SP_MAX_DIGITS];
  guint n_digits;
  SpGroup groups[SP_N_GROUPS];
  gint32 world;

  gint64 sequence;         /* tokens of one sequence */
  gint64 local_sequence;   /* of one sequence on one rank of the sequence group */
  guint8 token_split;      /* SpTokenSplit */
  guint8 sequence_regions; /* 1: outside the tensor-split parts, rows are split again over the tensor group */
  guint8 zero_stage;
  guint8 offloads; /* 1: some buffers lie in host memory */
  guint8 packed;   /* 1: sequences are packed documents, */
  guint n_documents; /* of these runs; 0: of more than a program keeps */
  SpDocuments *documents;
  gint32 global_batch;  /* sequences */
  gint32 micro_batches; /* a rank runs */
  gint32 n_variants;

  guint n_blocks;
  guint8 *layer_block; /* [n_layers] block index of each layer, embedding and head not among them */
  guint n_layers;
  gint32 *stage_first; /* [virtual stages + 1] first layer of each; the first has the embedding, the last the head */
  gint32 stages;       /* of the pipeline: ranks */
  gint32 chunks;       /* virtual stages that each holds */
  guint8 schedule;     /* row of the schedule table; says which */
  guint8 scope;        /* SpScope */

  SpNumbers numbers;
  SpVariant variants[2];
  SpOp *ops;
  guint n_ops;
  guint ops_capacity;
  guint layers_capacity, stages_capacity, documents_capacity; /* stages_capacity: of stage_first's numbers */
} SpProgram;

SpProgram *sp_program_new (void);
void sp_program_free (SpProgram *program);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpProgram, sp_program_free)

/* Ops of one phase of a block of a variant. */
static inline const SpOp *
sp_program_segment (const SpProgram *program, const SpBlock *block, SpPhase phase, guint *ret_n)
{
  *ret_n = block->segments[phase].n;
  return program->ops + block->segments[phase].first;
}

static inline gboolean
sp_block_has_backward (const SpBlock *block)
{
  return block->frozen != SP_FROZEN_FORWARD_ONLY;
}

static inline gboolean
sp_block_gathers_again (const SpBlock *block)
{
  return block->regather && sp_block_has_backward (block);
}

/* Virtual stages of the model, and which one chunk `chunk` of a stage is. */
static inline gint32
sp_program_virtual_stages (const SpProgram *program)
{
  return sp_schedule_virtual_stages (sp_schedule_get (program->schedule), program->stages, program->chunks);
}

static inline gint32
sp_program_virtual_stage (const SpProgram *program, gint32 stage, gint32 chunk)
{
  return sp_schedule_virtual_stage (sp_schedule_get (program->schedule), program->stages, stage, chunk);
}

/* Whether one layer is run, for one micro-batch, and nothing around it. */
static inline gboolean
sp_program_is_one_layer (const SpProgram *program)
{
  return program->scope == SP_SCOPE_LAYER || program->scope == SP_SCOPE_ATTENTION;
}

/* Whether a buffer lives within a step of a loop over tiles: the writer left its uses as they are. */
static inline gboolean
sp_block_is_of_tile (const SpBlock *block, const SpLoop *loop, guint slot)
{
  guint list = loop->phase == SP_PHASE_FORWARD ? 0 : 1;
  guint offset = loop->phase == SP_PHASE_BACKWARD ? block->segments[SP_PHASE_RECOMPUTE].n : 0;

  return loop->group == SP_GROUP_NONE && block->buffers[slot].life == SP_LIFE_SEGMENT &&
         block->first_use[list][slot] > offset + loop->first && block->last_use[list][slot] <= offset + loop->end;
}

/* What ops of FORWARD, RECOMPUTE and BACKWARD must be flagged with to be run: flags, and mask. */
static inline guint
sp_program_scope_flags (const SpProgram *program)
{
  return program->scope == SP_SCOPE_ATTENTION ? SP_OP_CORE : 0;
}

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

/* Part of an op's FLOP that a place of its group of `size` has: of causal attention of m queries, m x m pairs with the
 * keys of each place before it and m (m + 1) / 2 with its own. */
static inline double
sp_op_share (const SpOp *op, gint32 place, gint32 size)
{
  if (!(op->flags & SP_OP_BY_PLACE))
    return 1;
  return (2.0 * place * op->m + op->m + 1) / (2.0 * (size - 1) * op->m + op->m + 1);
}

/* Place of `rank` in a group, and the rank of a member. */
gint32 sp_program_place (const SpProgram *program, SpGroupId group, gint32 rank);
gint32 sp_program_member (const SpProgram *program, SpGroupId group, gint32 rank, gint32 place);

/* For each place of a group, whether what it sends to the next one (reverse: the one before; around the ends) stays in
 * its node, in every instance of the group: ranks fill nodes of `node` GPUs in order. ret: [size of the group]. */
void sp_program_near_hops (const SpProgram *program, SpGroupId group, gboolean reverse, gint32 node, guint8 *ret);

/* The document of token `position` of sequence `number` of the global batch, as far as it lies in that sequence: its
 * first position and the one behind its last. Goes through the runs. The program has documents. */
void sp_program_document (const SpProgram *program, gint64 number, gint64 position, gint64 *ret_begin, gint64 *ret_end);
/* Sets them: at most SP_MAX_DOCUMENTS are kept. n = 0: not packed. */
void sp_program_set_documents (SpProgram *program, const SpDocuments *documents, guint n);

/* Position in the sequence of row `row` (0 .. local_sequence - 1) on sequence place `place` (of SP_GROUP_SEQUENCE).
 * With ZIGZAG the sequence is cut in 2 R parts (R = ring size) and ring place r holds parts r and 2R - 1 - r; with
 * STRIPED it holds tokens r, r + R, r + 2R and so on. The Ulysses ranks of r share these rows in order. */
gint64 sp_program_position (const SpProgram *program, gint32 place, gint64 row);

const char *sp_dtype_name (SpDtype dtype);
const char *sp_axis_name (SpAxis axis);
const char *sp_stream_name (SpStream stream);
const char *sp_group_name (SpGroupId group);
const char *sp_op_name (SpOpKind kind);
const char *sp_class_name (SpClass class);
const char *sp_life_name (SpLife life);
const char *sp_phase_name (SpPhase phase);
const char *sp_block_name (SpBlockKind kind);
const char *sp_scope_name (SpScope scope);
const char *sp_token_split_name (SpTokenSplit split);

/* The program as text: versioned, one op a line, readable and diffable; see program-text.c for the grammar. */
void sp_program_write_text (const SpProgram *program, GString *out);
SpProgram *sp_program_read_text (const char *text, gsize length, const char *file_name, GError **error);

G_END_DECLS
