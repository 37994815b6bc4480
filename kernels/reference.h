/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The references: what each compute op of a program means, as plain C in double precision.
 *
 * One function for each compute kind of sim/program.h, operands in the same order, less those that no formula needs.
 * The rehearsal runs whole programs on them; the CUDA kernels are checked against them. So they are written to be read:
 * the formula, its sums in index order, no blocking. The one exception to "obvious" is linear attention, where the
 * recurrence is both shorter and faster than the double sum; the test has the double sum.
 *
 * Arrays are `double`, row-major and contiguous, whatever the op's dtype: masks are 0.0 or 1.0, statistics and lse are
 * doubles. Ids, labels and positions are gint64, because they are never data of the model.
 *
 * Writing. An output is overwritten whole, whatever was in it (NaN too), unless its function says "+=" or "merges".
 * Inputs are never written. An output may be the same array as an input only where the function says "in place".
 *
 * Sharding. Nothing here knows of ranks, but what a rank needs to hold a part is an argument: positions of its tokens,
 * global ids of rows and columns (dropout), first vocabulary entry of its part, sums over whole rows. Each function is
 * then exact on the part: results differ from the unsharded ones by rounding of sums alone.
 *
 * Rows. `m` rows are tokens of all sequences, sequence-major (row s * batch + b), where a function takes no batch. The
 * attentions take `m` and `n` as tokens of one sequence and batch beside them, which is the same memory.
 *
 * Head sharing (GQA). Query head h reads K/V head h * kv_heads / heads.
 *
 * Failure. Wrong arguments are the caller's bug (g_return_if_fail). Numbers are never checked: NaN in, NaN out.
 */

#include <glib.h>

G_BEGIN_DECLS

/* Dimensions, named as in SpOp. A function reads those that its line names. */
typedef struct {
  gint64 m, n, k, batch, heads, kv_heads;
  gint64 v;      /* attention: features of a value head, 0: k */
  gint64 window; /* causal attention: key j is visible to query i if 0 <= i - j < window; 0: any before */
  /* Fused attention: [m,batch] first position of a query's document and the one behind its last, of which alone keys are
   * visible; NULL: all. */
  const gint64 *first, *end;
} SpRefShape;

/* --- matrix product: reference-gemm.c ----------------------------------------------------------------------------- */

/* c[m,n] = op(a) op(b) [+ bias[n]], c += with `accumulate` (the bias is then added too), `batch` times with each array
 * advanced by its stride in elements (0: shared). op(a) is [m,k]; a is stored [k,m] with trans_a. op(b) is [k,n]; b is
 * stored [n,k] with trans_b. bias may be NULL. k = 0 is an empty sum. */
void sp_ref_gemm (gboolean trans_a, gboolean trans_b, gboolean accumulate, gint64 batch, gint64 m, gint64 n, gint64 k,
                  const double *a, gint64 stride_a, const double *b, gint64 stride_b, const double *bias,
                  gint64 stride_bias, double *c, gint64 stride_c);

/* --- attention in steps: reference-attention.c -------------------------------------------------------------------- */

/* Arrays of shape (m n k batch heads kv_heads): q[m,batch,heads,k], keys[n,batch,kv_heads,k], values as keys,
 * s and p [batch,heads,m,n]. The scale 1/sqrt(k) is in the scores, not in the softmax. */

/* s = q keys^T / sqrt(k) */
void sp_ref_scores (SpRefShape shape, const double *q, const double *keys, double *s);
/* dq and dkeys are written; dkeys sums over the query heads that share a head. */
void sp_ref_scores_bwd (SpRefShape shape, const double *q, const double *keys, const double *ds, double *dq,
                        double *dkeys);

/* p = softmax over n of s[parts,m,n], parts = batch * heads. With `causal` key j is visible to query i if
 * kpos[j] <= qpos[i], and qpos[i] - kpos[j] < window unless that is 0 (qpos[m], kpos[n]; not read otherwise, may be
 * NULL). Hidden entries are 0, and so is a row that sees nothing. sinks[heads], unless NULL: a logit of each head that
 * counts in the sum and has no entry. In place: p may be s. */
void sp_ref_softmax (gint64 parts, gint64 m, gint64 n, const double *s, gboolean causal, gint64 window,
                     const gint64 *qpos, const gint64 *kpos, gint64 heads, const double *sinks, double *p);
/* ds[parts,m,n]. Hidden entries get 0 because p is 0 there. dsinks[heads] += unless NULL. In place: ds may be dp. */
void sp_ref_softmax_bwd (gint64 parts, gint64 m, gint64 n, const double *p, const double *dp, gint64 heads,
                         double *dsinks, double *ds);

/* o[m,batch,heads,k] = p values */
void sp_ref_context (SpRefShape shape, const double *p, const double *values, double *o);
void sp_ref_context_bwd (SpRefShape shape, const double *p, const double *values, const double *d_o, double *dp,
                         double *dvalues);

/* --- fused attention, in blocks of keys: reference-attention.c ---------------------------------------------------- */

/* Softmax attention to one block of n keys: o[m,batch,heads,v] (normalised) and lse[m,batch,heads] = log of the sum of
 * exp(scaled score); values[n,batch,kv_heads,v]. A row that sees no key of the block gets o = 0 and lse = -inf.
 * `causal`, qpos and kpos as in the softmax. Read: m n k batch heads kv_heads v window. */
void sp_ref_attention (SpRefShape shape, const double *q, const double *keys, const double *values, gboolean causal,
                       const gint64 *qpos, const gint64 *kpos, double *o, double *lse);

/* Merges what rows attended to in one block of keys, block_o[rows,k] and block_lse[rows], into o and lse over the
 * blocks so far: lse = log (exp (lse) + exp (block_lse)), o = the mean of both by their shares in it. Blocks may come
 * in any order. Where a lse is -inf its side saw no key, and the other's values stay. rows = m * batch * heads. */
void sp_ref_attention_merge (gint64 rows, gint64 k, const double *block_o, const double *block_lse, double *o,
                             double *lse);

/* delta[m,batch,heads] = sum over k of d_o * o, of the merged o. rows = m * batch * heads. */
void sp_ref_attention_delta (gint64 rows, gint64 k, const double *d_o, const double *o, double *delta);

/* One block's part of the gradients, from the lse and delta of all blocks: its part of dq, and its dkeys and
 * dvalues. */
void sp_ref_attention_bwd (SpRefShape shape, const double *q, const double *keys, const double *values,
                           const double *d_o, const double *lse, const double *delta, gboolean causal,
                           const gint64 *qpos, const gint64 *kpos, double *dq, double *dkeys, double *dvalues);

/* A logit of each head, sinks[heads], that takes its share of every row's softmax and gives nothing (gpt-oss): of the
 * merged o[rows,k] and lse[rows], row = ... * heads + head, in place: lse = log (exp (lse) + exp (sink)), o = o * its
 * share. The backward of the attention from these is exact; the sinks' own from its lse and delta, dsinks[heads] +=. */
void sp_ref_attention_sink (gint64 rows, gint64 k, gint64 heads, const double *sinks, double *o, double *lse);
void sp_ref_attention_sink_bwd (gint64 rows, gint64 heads, const double *lse, const double *delta, const double *sinks,
                                double *dsinks);

/* --- linear attention with a decay: reference-linear.c ------------------------------------------------------------ */

/*
 * Head h has lambda = exp (-slopes[h]). With S after token i = lambda * S before + k_i v_i^T,
 *     o_i = S_i^T q_i = sum over j <= i of lambda^(i-j) (q_i . k_j) v_j                      (no scale, no norm)
 * A rank has m consecutive tokens of each sequence, i = 0 .. m-1 here, and S_in from before them:
 *     o_i   = (local: the sum over own tokens) + (inter: lambda^(i+1) S_in^T q_i)
 *     M     = sum over own i of lambda^(m-1-i) k_i v_i^T,        S_out = lambda^m S_in + M
 *     dM    = sum over own i of lambda^(i+1) q_i dO_i^T,         dS_in = lambda^m dS_out + dM
 * The backward chain has the form of the forward one, so state_update and state_prefix serve both.
 *
 * Shape: m n k batch heads; q and keys [m,batch,heads,k], values and o [m,batch,heads,n], states [batch,heads,k,n],
 * slopes[heads] of the heads that are here.
 */

/* slopes[i] = decay of head first + i of `heads` in layer `layer` of `layers` (counted from 0), as published for
 * TransNormerLLM and lightning attention: the ALiBi slope, 2^(-8 (h+1) / heads) for a power of two, times
 * 1 - layer / (layers - 1) + 1e-5. For other head counts, ALiBi's rule: the slopes of the power of two below, then
 * every second one of the power of two above. layers = 1 counts as layer 0 of many. */
double sp_ref_decay_slope (gint64 head, gint64 heads, gint64 layer, gint64 layers);
void sp_ref_decay_slopes (gint64 first, gint64 n, gint64 heads, gint64 layer, gint64 layers, double *slopes);

/* o of the own tokens; state = M unless NULL. */
void sp_ref_linear_local (SpRefShape shape, const double *slopes, const double *q, const double *keys,
                          const double *values, double *o, double *state);
/* o += what state_in (S_in) gives. */
void sp_ref_linear_inter (SpRefShape shape, const double *slopes, const double *q, const double *state_in, double *o);
/* dq, dkeys, dvalues of the own tokens are written; dstate = dM unless NULL. */
void sp_ref_linear_local_bwd (SpRefShape shape, const double *slopes, const double *q, const double *keys,
                              const double *values, const double *d_o, double *dq, double *dkeys, double *dvalues,
                              double *dstate);
/* dq += from state_in (S_in); dkeys += and dvalues += from dstate_out (dS_out). Either state may be NULL for zero: the
 * first place has no S_in, the last no dS_out. q is not needed: what it gives is in dM. */
void sp_ref_linear_inter_bwd (SpRefShape shape, const double *slopes, const double *keys, const double *values,
                              const double *d_o, const double *state_in, const double *dstate_out, double *dq,
                              double *dkeys, double *dvalues);
/* out = lambda^m * in + own; in may be NULL for zero. Forward: own = M, backward: own = dM. In place: out may be
 * either. Read: m n k batch heads; m = tokens of one sequence on one rank. */
void sp_ref_state_update (SpRefShape shape, const double *slopes, const double *in, const double *own, double *out);
/* The same chain at once: states = `places` states one after the other, M of every place (with `reverse` dM), all
 * places with m tokens. out = S_in of `place`: sum over p < place of lambda^(m (place-1-p)) M_p; with `reverse` dS_out:
 * sum over p > place of lambda^(m (p-place-1)) dM_p. */
void sp_ref_state_prefix (SpRefShape shape, const double *slopes, gint64 places, gint64 place, gboolean reverse,
                          const double *states, double *out);

/* --- recurrences: reference-recurrent.c --------------------------------------------------------------------------- */

/*
 * Linear attention whose decay follows the data, and delta rules. Per value head a state S [k,n]; for each token
 *     S = A S + beta k v^T,    o = S^T q,     A = diag (a), with the delta rule (I - beta k k^T) diag (a)
 * (delta rule: Yang et al., 2406.06484, gated 2412.06464; the decay comes first). a = exp (gates), which are
 *     HEAD     one a token and head: gates[m,batch,heads]                      (Mamba-2, gated delta rule)
 *     FEATURE  one a token, head and key feature: gates[m,batch,heads,k]       (GLA, KDA)
 *     SCAN     exp (-exp (rates[heads,k]) * step), beta = step: gates holds the steps [m,batch,heads]  (Mamba)
 *     NONE     a = 1, gates not read
 * beta[m,batch,heads] may be NULL for 1. q and keys [m,batch,kv_heads,k], shared by value heads as K/V heads are;
 * values and o [m,batch,heads,n], states [batch,heads,k,n].
 *
 * A rank has m consecutive tokens of each sequence. With its own state M (from S = 0) and its transfer T, the product
 * of its A:     S_out = T S_in + M,      dS_in = T^T dS_out + dM,      dM from the own tokens' dO alone.
 * T [batch,heads,t]: t = k k with the delta rule (row-major, [k,k]), else 1 (HEAD), k (FEATURE, SCAN) or none (NONE).
 */
typedef enum { SP_REF_DECAY_NONE, SP_REF_DECAY_HEAD, SP_REF_DECAY_FEATURE, SP_REF_DECAY_SCAN } SpRefDecay;

typedef struct {
  SpRefShape shape; /* all of it */
  SpRefDecay decay;
  gboolean delta;
  const double *rates; /* of SCAN */
} SpRefRecurrence;

/* Of T. */
gint64 sp_ref_transfer_elements (const SpRefRecurrence *r);
/* state = M; transfer = T unless NULL. */
void sp_ref_recurrent_own (const SpRefRecurrence *r, const double *keys, const double *values, const double *gates,
                           const double *beta, double *state, double *transfer);
/* o of the own tokens after state_in (S_in; NULL for zero). */
void sp_ref_recurrent (const SpRefRecurrence *r, const double *q, const double *keys, const double *values,
                       const double *gates, const double *beta, const double *state_in, double *o);
/* dstate = dM */
void sp_ref_recurrent_own_bwd (const SpRefRecurrence *r, const double *q, const double *keys, const double *gates,
                               const double *beta, const double *d_o, double *dstate);
/* All gradients of the own tokens, from d_o and from dstate_out (dS_out; NULL for zero). dgates as gates, dbeta as beta
 * or NULL; drates += of SCAN, whose dgates is all of the steps' gradient. */
void sp_ref_recurrent_bwd (const SpRefRecurrence *r, const double *q, const double *keys, const double *values,
                           const double *gates, const double *beta, const double *d_o, const double *state_in,
                           const double *dstate_out, double *dq, double *dkeys, double *dvalues, double *dgates,
                           double *dbeta, double *drates);
/* out = T in + own, with `reverse` T^T in + own; in may be NULL for zero. In place: out may be in or own. */
void sp_ref_transfer_update (const SpRefRecurrence *r, gboolean reverse, const double *transfer, const double *in,
                             const double *own, double *out);
/* The same chain at once: parts = of each place M (with `reverse` dM), then T. out = S_in of `place` (dS_out). */
void sp_ref_transfer_prefix (const SpRefRecurrence *r, gint64 places, gint64 place, gboolean reverse,
                             const double *parts, double *out);

/* --- around a recurrence: reference-conv.c, reference-features.c -------------------------------------------------- */

/* Depthwise causal convolution over m tokens of each sequence, then silu:
 *     out[t,f] = silu (bias[f] + sum over j < width of weight[f,j] * x[t - width + 1 + j, f])
 * x and out [m,batch,n], weight[n,width], bias[n] or NULL; halo[width-1,batch,n]: the rows before x, NULL for zero. */
typedef struct {
  gint64 m, batch, n, width;
} SpRefConv;

void sp_ref_conv (const SpRefConv *c, const double *x, const double *weight, const double *bias, const double *halo,
                  double *out);
/* dweight += and dbias +=; dbias may be NULL. dhalo unless NULL: what the rows before x have from these tokens. */
void sp_ref_conv_bwd (const SpRefConv *c, const double *d_out, const double *x, const double *weight,
                      const double *bias, const double *halo, double *dx, double *dweight, double *dbias,
                      double *dhalo);

/* qkv[m, 2 kv_heads k + heads n]: q, keys, values of all heads -> q, keys, values apart. q and keys through silu, then
 * l2 norm (x / sqrt (|x|^2 + 1e-6)) of each head, then rotary embedding as rope has it, each where `map` has it. */
typedef enum {
  SP_REF_MAP_SILU = 1 << 0,
  SP_REF_MAP_L2 = 1 << 1,
  SP_REF_MAP_ROTATE = 1 << 2,     /* pos[m], else not read */
  SP_REF_MAP_SILU_VALUES = 1 << 3 /* the values through silu too */
} SpRefMap;

void sp_ref_key_map (SpRefShape shape, guint map, const double *qkv, const gint64 *pos, double theta, double *q,
                     double *keys, double *values);
void sp_ref_key_map_bwd (SpRefShape shape, guint map, const double *qkv, const double *dq, const double *dkeys,
                         const double *dvalues, const gint64 *pos, double theta, double *dqkv);

void sp_ref_sigmoid_rows (gint64 n, const double *x, double *y);
/* From the output y. In place: dx may be dy. */
void sp_ref_sigmoid_rows_bwd (gint64 n, const double *dy, const double *y, double *dx);

/* Logarithms of decays from x = raw[m,n] + bias[n] (NULL: 0), n = heads or heads * k:
 *     with log_rate[heads]:  steps = softplus (x),  gates = -exp (log_rate) * steps        (Mamba-2, gated delta, KDA)
 *     without:               gates = log (sigmoid (x)) / 16                                (GLA)
 * gates and steps may be NULL; a scan takes steps alone. */
void sp_ref_decay (gint64 m, gint64 n, gint64 heads, const double *raw, const double *bias, const double *log_rate,
                   double *gates, double *steps);
/* dgates, dsteps may be NULL for zero; dbias += and dlog_rate += unless NULL. */
void sp_ref_decay_bwd (gint64 m, gint64 n, gint64 heads, const double *raw, const double *bias, const double *log_rate,
                       const double *dgates, const double *dsteps, double *draw, double *dbias, double *dlog_rate);

/* out[m,heads,n] = o + scale[heads] * values. In place: out may be o. */
void sp_ref_skip (gint64 m, gint64 heads, gint64 n, const double *o, const double *values, const double *scale,
                  double *out);
/* out = dvalues + scale * d, dscale +=. In place: out may be dvalues. */
void sp_ref_skip_bwd (gint64 m, gint64 heads, gint64 n, const double *d, const double *values, const double *scale,
                      const double *dvalues, double *out, double *dscale);

/* --- between the projections and the attention: reference-layout.c ------------------------------------------------ */

/* How q and keys are made of their projections. */
typedef struct {
  gint64 rotated;                  /* features of a head that turn, from the first on; 0: none */
  gint64 gate;                     /* features at the end of a row that are not of q, keys or values */
  double theta;                    /* of the rotation */
  double epsilon;                  /* of the norms */
  const double *q_gain, *key_gain; /* [k], or NULL: no norms */
} SpRefHeads;

/* qkv[m, (heads + 2 kv_heads) k + gate]: all q heads, then all key heads, then all value heads -> q[m,heads,k],
 * keys[m,kv_heads,k], values[m,kv_heads,k]. With gains each q and key head is first brought to RMS 1 and scaled, and
 * stat[m, heads + kv_heads] is 1/rms. Rotary embedding on q and keys, rotate-half convention: elements i and
 * i + rotated/2 of a head (rotated even) turn by pos[row] * theta^(-2i/rotated). pos[m] is not read without.
 * Read: m k heads kv_heads. */
void sp_ref_rope (SpRefShape shape, const SpRefHeads *how, const double *qkv, const gint64 *pos, double *q,
                  double *keys, double *values, double *stat);
/* du[m,gate] is the gradient of a row's end. qkv, stat, and dq_gain += and dkey_gain +=: with gains alone. */
void sp_ref_rope_bwd (SpRefShape shape, const SpRefHeads *how, const double *dq, const double *dkeys,
                      const double *dvalues, const double *qkv, const double *stat, const double *du,
                      const gint64 *pos, double *dqkv, double *dq_gain, double *dkey_gain);

/* Latent attention: q_up[m,heads,k] and kv_up[m,heads,k - n + v] (of each head the keys' part without position, then
 * the values), and the part with position that all key heads share, shared[m,n] -> q with its last n features of a head
 * rotated, keys = (their part, shared rotated), values[m,heads,v]. pos NULL: nothing is rotated. Read: m n k v heads. */
void sp_ref_latent (SpRefShape shape, const double *q_up, const double *kv_up, const double *shared, const gint64 *pos,
                    double theta, double *q, double *keys, double *values);
void sp_ref_latent_bwd (SpRefShape shape, const double *dq, const double *dkeys, const double *dvalues,
                        const gint64 *pos, double theta, double *dq_up, double *dkv_up, double *dshared);

/* x[m, n + k] -> a[m,n], b[m,k], and back. */
void sp_ref_split (gint64 m, gint64 n, gint64 k, const double *x, double *a, double *b);
void sp_ref_join (gint64 m, gint64 n, gint64 k, const double *a, const double *b, double *x);

/* qkvu[m,4w]: q, keys, values, u of w = heads * k features each -> silu (q), silu (keys), values, each [m,w]. */
void sp_ref_feature (gint64 m, gint64 w, const double *qkvu, double *q, double *keys, double *values);
/* du[m,w] is the gradient that the output gate gave u. */
void sp_ref_feature_bwd (gint64 m, gint64 w, const double *qkvu, const double *dq, const double *dkeys,
                         const double *dvalues, const double *du, double *dqkvu);

/* x[m, parts * k] -> out[n][m][k] for an all-to-all over n ranks: destination j gets part floor (j * parts / n), so
 * with parts < n (parts divides n) each part goes to n / parts ranks. */
void sp_ref_pack (gint64 m, gint64 n, gint64 k, gint64 parts, const double *x, double *out);
/* in[n][m][k] -> x[m, parts * k]: each part is the sum of its copies. The transpose of pack, hence its backward, and
 * its inverse where parts = n. */
void sp_ref_unpack (gint64 m, gint64 n, gint64 k, gint64 parts, const double *in, double *x);
/* out[m,n] = columns [place n, (place + 1) n) of x[m, parts * n]. */
void sp_ref_part (gint64 m, gint64 n, gint64 parts, gint64 place, const double *x, double *out);

/* --- norms: reference-norm.c -------------------------------------------------------------------------------------- */

/*
 * RMS:       y = gain * x * r,                     r = 1 / sqrt (mean of x^2 + epsilon)
 * LayerNorm: y = gain * (x - mean) * r + bias,     r = 1 / sqrt (variance + epsilon)
 * over rows of `whole` features, of which n are here. stat: r[m]; for LayerNorm mean[m], then r[m]. gain[n] and bias[n]
 * may be NULL (1 and 0); both forms take both.
 * A row is split over ranks (n < whole) only for RMS: then sum_of_squares[m] and dot[m] over the whole row come from
 * norm_stat and norm_stat_bwd, summed over the ranks. NULL: taken from the n features here, whole = n.
 */

/* In place: y may be x. */
void sp_ref_norm (gboolean layernorm, gint64 m, gint64 n, gint64 whole, const double *x, const double *gain,
                  const double *bias, const double *sum_of_squares, double epsilon, double *y, double *stat);
/* sum_of_squares[m] of x[m,n] */
void sp_ref_norm_stat (gint64 m, gint64 n, const double *x, double *sum_of_squares);

/* RMS: dx = r gain dy - x r^3 / whole * dot, dot = sum over the whole row of dy gain x. LayerNorm, g = gain dy,
 * z = (x - mean) r: dx = r (g - mean of g - z * mean of g z). dr[m,n], unless NULL, is the gradient that came past the
 * norm and is added to the result. dgain[n] += and dbias[n] += unless NULL. In place: dx may be dy or dr. */
void sp_ref_norm_bwd (gboolean layernorm, gint64 m, gint64 n, gint64 whole, const double *dy, const double *x,
                      const double *stat, const double *gain, const double *dr, const double *dot, double *dx,
                      double *dgain, double *dbias);
/* dot[m] = sum over the n features here of dy gain x. It needs no statistics: r is factored out (see norm_bwd). */
void sp_ref_norm_stat_bwd (gint64 m, gint64 n, const double *dy, const double *x, const double *gain, double *dot);

/* --- elementwise and rows: reference-elementwise.c ---------------------------------------------------------------- */

/* Element (i, j) of [m,n] is kept, mask 1, if u >= p, and scaled by 1 / (1 - p); else it is 0, mask 0. u in [0, 1) is a
 * hash of seed, row = row_ids[i] and col = col_ids[j]: with mix = splitmix64's finaliser, G = 0x9e3779b97f4a7c15, all
 * modulo 2^64,
 *     u = 2^-53 * (mix (mix (mix (seed + G) + (row + 1) G) + (col + 1) G) >> 11)
 * The ids are global, so that every split of rows and columns draws the same mask. On scores the caller passes
 * m = batch * heads * queries with row ids that name (sequence, head, position), and key positions as column ids.
 * p < 1. In place: y may be x. */
void sp_ref_dropout (gint64 m, gint64 n, const double *x, guint64 seed, const gint64 *row_ids, const gint64 *col_ids,
                     double p, double *y, double *mask);
/* dx = dy * mask / (1 - p), over m n elements. In place: dx may be dy. */
void sp_ref_dropout_bwd (gint64 m, gint64 n, const double *dy, const double *mask, double p, double *dx);

/* f of a gated unit. */
typedef enum { SP_REF_SILU, SP_REF_IDENTITY, SP_REF_GELU } SpRefGate;

/* gu[m,2n]: gate g in the first n columns, up u in the last. out[m,n] = f(g) * u. */
void sp_ref_glu (SpRefGate f, gint64 m, gint64 n, const double *gu, double *out, double *gate);
void sp_ref_glu_bwd (SpRefGate f, gint64 m, gint64 n, const double *da, const double *gu, const double *gate,
                     double *dgu);

/* gelu, tanh form, over n elements: x/2 (1 + tanh (sqrt (2/pi) (x + 0.044715 x^3))). In place: out may be x, dx da. */
void sp_ref_gelu (gint64 n, const double *x, double *out);
void sp_ref_gelu_bwd (gint64 n, const double *da, const double *x, double *dx);
/* max (x, 0), or its square. In place: as gelu. */
void sp_ref_relu (gboolean squared, gint64 n, const double *x, double *out);
void sp_ref_relu_bwd (gboolean squared, gint64 n, const double *da, const double *x, double *dx);

/* out[m,n] = o * sigmoid (u), or o * silu (u); u = last n columns of gates[m,width]. In place: out may be o. */
void sp_ref_gate (gboolean silu, gint64 m, gint64 n, gint64 width, const double *o, const double *gates, double *out);
/* du[m,n]. In place: d_o may be d. */
void sp_ref_gate_bwd (gboolean silu, gint64 m, gint64 n, gint64 width, const double *d, const double *o,
                      const double *gates, double *d_o, double *du);

/* Over n elements. In place: out of add may be a or b. */
void sp_ref_add (gint64 n, const double *a, const double *b, double *out);
void sp_ref_accumulate (gint64 n, const double *x, double *out); /* out += x */
void sp_ref_copy (gint64 n, const double *x, double *out);
void sp_ref_zero (gint64 n, double *out);
void sp_ref_column_sum (gint64 m, gint64 n, const double *x, double *out); /* out[n] += sum over m of x[m,n] */

/* x[i] = table[ids[i] - first] of table[n,k], the vocabulary part [first, first + n); a row of zeros for an id outside
 * it, so that the parts' results sum to the whole. */
void sp_ref_embed (gint64 m, gint64 n, gint64 k, const gint64 *ids, gint64 first, const double *table, double *x);
void sp_ref_embed_bwd (gint64 m, gint64 n, gint64 k, const gint64 *ids, gint64 first, const double *dx,
                       double *dtable); /* += */
/* out[i] = x[i] + table[pos[i]] of table[n,k]; every position is in [0, n). In place: out may be x. */
void sp_ref_position (gint64 m, gint64 n, gint64 k, const gint64 *pos, const double *x, const double *table,
                      double *out);
void sp_ref_position_bwd (gint64 m, gint64 n, gint64 k, const gint64 *pos, const double *dx, double *dtable); /* += */

/* --- mixture of experts: reference-experts.c ---------------------------------------------------------------------- */

/*
 * Each token goes to `per_token` of the experts: those with the largest logits, ties to the lower number; or, with
 * positions, expert (position * per_token + j) mod experts for j = 0, 1 .. It weighs them by the softmax over their logits
 * alone. An expert has a buffer of `capacity` rows, filled in the order of tokens; what does not fit is dropped: its slot
 * is -1, its weight 0 (the others' stay).
 */
typedef struct {
  gint64 tokens, experts, per_token, capacity;
} SpRefRoute;

/* logits[tokens,experts] -> weights[tokens,per_token], slots[tokens,per_token]: row of buffers[experts,capacity], or -1.
 * positions[tokens] or NULL. Returns how many were dropped. */
gint64 sp_ref_route (const SpRefRoute *route, const double *logits, const gint64 *positions, double *weights,
                     double *slots);
void sp_ref_route_bwd (const SpRefRoute *route, const double *logits, const gint64 *positions, const double *d_weights,
                       const double *slots, double *d_logits);

/* x[tokens,n] -> buffer[experts,capacity,n], zeros where no token is. Backward: the sum over a token's copies. */
void sp_ref_dispatch (const SpRefRoute *route, gint64 n, const double *x, const double *slots, double *buffer);
void sp_ref_dispatch_bwd (const SpRefRoute *route, gint64 n, const double *d_buffer, const double *slots, double *dx);
/* out[tokens,n] = sum over a token's slots of weight * row. */
void sp_ref_combine (const SpRefRoute *route, gint64 n, const double *buffer, const double *weights, const double *slots,
                     double *out);
void sp_ref_combine_bwd (const SpRefRoute *route, gint64 n, const double *d, const double *buffer, const double *weights,
                         const double *slots, double *d_buffer, double *d_weights);

/* out[m,n] = x * sigmoid (u[m]). In place: out may be x, dx may be d. */
void sp_ref_row_gate (gint64 m, gint64 n, const double *x, const double *u, double *out);
void sp_ref_row_gate_bwd (gint64 m, gint64 n, const double *d, const double *x, const double *u, double *dx, double *du);

/* --- loss: reference-loss.c --------------------------------------------------------------------------------------- */

/*
 * Cross entropy over a vocabulary cut in parts; logits[m,n] are columns [first, first + n). In turn, on each part:
 * loss_max, then the maximum over parts; loss_sum, then the sum over parts; loss. labels[m] are global ids; a label in
 * no part (padding) has no target, its weight must be 0. weights[m]: 1 / (tokens that count in the global batch), or 0.
 */

/* max[m] = row maximum of the part */
void sp_ref_loss_max (gint64 m, gint64 n, const double *logits, double *max);
/* sums[m,2]: sum over the part of exp (logit - max), then the label's logit, or 0 if it is not in the part. */
void sp_ref_loss_sum (gint64 m, gint64 n, const double *logits, const double *max, const gint64 *labels, gint64 first,
                      double *sums);
/* *ret_loss (unless NULL) = sum over rows of weight * (max + log sum - label's logit). max and sums are the whole
 * vocabulary's, so every part returns the same loss: count it once. dlogits[m,n] = weight * (softmax - one-hot). In
 * place: dlogits may be logits. */
void sp_ref_loss (gint64 m, gint64 n, const double *logits, const double *max, const double *sums, const gint64 *labels,
                  gint64 first, const double *weights, double *ret_loss, double *dlogits);

/* --- optimizer: reference-optimizer.c ----------------------------------------------------------------------------- */

/* AdamW without weight decay on n elements, at step `step` (the first is 1):
 *     moment1 = beta1 moment1 + (1 - beta1) g,    moment2 = beta2 moment2 + (1 - beta2) g^2
 *     master -= rate * (moment1 / (1 - beta1^step)) / (sqrt (moment2 / (1 - beta2^step)) + epsilon)
 *     parameter = master */
void sp_ref_adam (gint64 n, const double *gradient, gint64 step, double rate, double beta1, double beta2,
                  double epsilon, double *master, double *moment1, double *moment2, double *parameter);

/* momentum = beta momentum + g, update = g + beta momentum (Nesterov's). */
void sp_ref_momentum (gint64 n, const double *gradient, double beta, double *momentum, double *update);
/* x[rows,cols], in place: divided by its Frobenius norm, then five times, of the shape whose rows are not more than its
 * columns,
 *     A = x x^T,    x = 3.4445 x + (-4.7750 A + 2.0315 A A) x
 * (Jordan's coefficients), which takes singular values to about 1. */
void sp_ref_orthogonalize (gint64 rows, gint64 cols, double *x);
/* master -= rate * update, parameter = master. */
void sp_ref_descend (gint64 n, const double *update, double rate, double *master, double *parameter);

G_END_DECLS
