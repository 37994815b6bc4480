/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/attention.h"
#include "sim/op-cost.h"

#include <math.h>

/*
 * Softmax attention where a rank holds all keys of its heads: a fused kernel (Dao, 2307.08691), or, as frameworks of
 * 2022 did, score matrices that are written, softmaxed, dropped out and kept (Korthikanti et al., 2205.05198, section
 * 4.1).
 */

gint64
sp_core_elements (const SpWriter *w, const SpCoreSlots *c, gint32 heads)
{
  return (gint64) c->tokens * w->batch * heads * w->head_size;
}

gint64
sp_core_values (const SpWriter *w, const SpCoreSlots *c, gint32 heads)
{
  return (gint64) c->tokens * w->batch * heads * w->value_size;
}

void
sp_write_attention_outputs (SpWriter *w, SpCoreSlots *c)
{
  c->o = sp_write_stash (w, SP_TIER_KEEP, sp_core_values (w, c, c->heads));
  c->lse = sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_FP32, (gint64) c->tokens * w->batch * c->heads);
}

/* `features` of a head, of those that the op has one size of. */
static SpOp *
core_op (SpWriter *w, SpOpKind kind, const SpCoreSlots *c, gint32 features, guint flags, guint guard)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = op->n = c->tokens;
  op->k = features;
  op->batch = w->batch;
  op->heads = c->heads;
  op->kv_heads = c->kv_heads;
  op->window = sp_core_window (w);
  op->flags = flags | (sp_core_is_causal (w) ? SP_OP_CAUSAL : 0);
  op->guard = guard;
  op->reach = guard & (SP_GUARD_NEAR | SP_GUARD_NEAR_ENDS) ? sp_core_reach (w, c) : 0;
  op->group = w->program->groups[SP_GROUP_RING].size > 1 ? SP_GROUP_RING : 0;
  return op;
}

/* Keys of all places of a ring, in order: in a causal mask without a window later places have more work (of
 * packed documents all are priced as the slowest). */
static void
set_keys (const SpWriter *w, SpOp *op, guint8 k)
{
  op->n = (gint32) (w->block->buffers[k].elements / ((gint64) op->batch * op->kv_heads * op->k));
  if (op->n > op->m && op->group == SP_GROUP_RING && sp_core_is_causal (w) && op->window == 0 &&
      w->program->token_split == SP_TOKENS_CONTIGUOUS && w->run->packing == NULL)
    op->flags |= SP_OP_BY_PLACE;
}

void
sp_write_attention (SpWriter *w, const SpCoreSlots *c, guint8 k, guint8 v, double pairs, guint guard)
{
  SpOp *op = core_op (w, SP_OP_ATTENTION, c, w->head_size, 0, guard);

  set_keys (w, op, k);
  op->in[0] = c->q;
  op->in[1] = k;
  op->in[2] = v;
  op->out[0] = c->o;
  op->out[1] = c->lse;
  op->value_size = w->value_size;
  op->flops = sp_op_flops (op, pairs);
  sp_write_op_done (w, op);
}

void
sp_write_attention_merge (SpWriter *w, const SpCoreSlots *block, guint8 o, guint8 lse, guint flags, guint guard)
{
  SpOp *op = core_op (w, SP_OP_ATTENTION_MERGE, block, w->value_size, flags, guard);

  op->in[0] = block->o;
  op->in[1] = block->lse;
  op->out[0] = o;
  op->out[1] = lse;
  sp_write_op_done (w, op);
}

guint8
sp_write_attention_delta (SpWriter *w, const SpCoreSlots *c)
{
  guint8 delta = sp_write_temporary_of (w, SP_DTYPE_FP32, (gint64) c->tokens * w->batch * c->heads);
  SpOp *op = core_op (w, SP_OP_ATTENTION_DELTA, c, w->value_size, 0, 0);

  op->in[0] = c->d_o;
  op->in[1] = c->o;
  op->out[0] = delta;
  sp_write_op_done (w, op);
  return delta;
}

void
sp_write_attention_backward (SpWriter *w, const SpCoreSlots *c, guint8 k, guint8 v, guint8 delta, guint8 dk, guint8 dv,
                             double pairs, guint guard)
{
  SpOp *op = core_op (w, SP_OP_ATTENTION_BWD, c, w->head_size, 0, guard);

  set_keys (w, op, k);
  op->in[0] = c->q;
  op->in[1] = k;
  op->in[2] = v;
  op->in[3] = c->d_o;
  op->in[4] = c->lse;
  op->in[5] = delta;
  op->out[0] = c->dq;
  op->out[1] = dk;
  op->out[2] = dv;
  op->value_size = w->value_size;
  op->flops = sp_op_flops (op, pairs);
  sp_write_op_done (w, op);
}

void
sp_write_attention_sink (SpWriter *w, const SpCoreSlots *c)
{
  if (!c->sinks.value)
    return;
  SpOp *op = core_op (w, SP_OP_ATTENTION_SINK, c, w->value_size, SP_OP_ACCUMULATE, 0);
  op->in[0] = c->sinks.value;
  op->out[0] = c->o;
  op->out[1] = c->lse;
  sp_write_op_done (w, op);
}

void
sp_write_attention_sink_backward (SpWriter *w, const SpCoreSlots *c, guint8 delta)
{
  if (!c->sinks.grad)
    return;
  SpOp *op = core_op (w, SP_OP_ATTENTION_SINK_BWD, c, w->value_size, SP_OP_ACCUMULATE, 0);
  op->in[0] = c->lse;
  op->in[1] = delta;
  op->in[2] = c->sinks.value;
  op->out[0] = c->sinks.grad;
  sp_write_op_done (w, op);
}

/* --- pairs -------------------------------------------------------------------------------------------------------- */

gboolean
sp_core_is_causal (const SpWriter *w)
{
  return w->run->causal && !w->arch->bidirectional;
}

gint32
sp_core_window (const SpWriter *w)
{
  gboolean cuts = w->traits & SP_LAYER_WINDOW && w->arch->window < w->program->sequence;

  return cuts ? w->arch->window : 0;
}

gboolean
sp_core_packed_pairs (const SpWriter *w, SpPackedPairs *ret)
{
  if (w->run->packing == NULL)
    return FALSE;
  sp_packing_pairs (w->run->packing, w->program->sequence, w->program->token_split, w->layout->ring,
                    sp_core_is_causal (w), sp_core_window (w), ret);
  return TRUE;
}

/* Of the sequence's first tokens. */
static double
first_pairs (const SpWriter *w, double tokens)
{
  return sp_attention_pairs (SP_TOKENS_CONTIGUOUS, 1, 0, 0, tokens, TRUE, sp_core_window (w));
}

double
sp_core_pairs (const SpWriter *w, const SpCoreSlots *c)
{
  SpPackedPairs packed;

  if (sp_core_packed_pairs (w, &packed))
    return packed.all;
  if (sp_slices_are (w))
    return first_pairs (w, (double) (w->variant->first + c->tokens)) - first_pairs (w, (double) w->variant->first);
  return sp_attention_pairs (SP_TOKENS_CONTIGUOUS, 1, 0, 0, c->tokens, sp_core_is_causal (w), sp_core_window (w));
}

guint16
sp_core_reach (const SpWriter *w, const SpCoreSlots *c)
{
  gint64 part = w->program->token_split == SP_TOKENS_ZIGZAG ? c->tokens / 2 : c->tokens;
  gint64 parts = (sp_core_window (w) + part - 2) / part;

  return (guint16) MIN (parts, w->program->groups[SP_GROUP_RING].size - 1);
}

/* Of h queries and h keys that follow each other, those with i - j <= x within their parts: h - |t| have i - j = t. */
static double
pairs_up_to (double h, double x)
{
  if (x < 0)
    return x <= -h ? 0 : (h + x) * (h + x + 1) / 2;
  return x >= h ? h * h : h * h - (h - x - 1) * (h - x) / 2;
}

/* Of two such parts, the queries' `parts` parts after the keys'. */
static double
part_pairs (double h, double parts, double window)
{
  double visible = h * h - pairs_up_to (h, -parts * h - 1);

  return window == 0 ? visible : visible - (h * h - pairs_up_to (h, window - 1 - parts * h));
}

/* Of queries that are tokens q, q + ring ... and keys k, k + ring ..., `m` of each. */
static double
striped_pairs (double m, double ring, double q, double k, double window)
{
  double most = window == 0 ? m : floor ((window - 1 - (q - k)) / ring);

  return MAX (0.0, pairs_up_to (m, most) - pairs_up_to (m, q >= k ? -1 : 0));
}

double
sp_attention_pairs (SpTokenSplit split, gint32 ring, gint32 place, gint32 step, double tokens, gboolean causal,
                    double window)
{
  gint32 from = (place - step + ring) % ring, last = 2 * ring - 1;

  if (!causal)
    return tokens * tokens;
  if (split == SP_TOKENS_CONTIGUOUS || ring == 1)
    return part_pairs (tokens, place - from, window);
  if (split == SP_TOKENS_STRIPED)
    return striped_pairs (tokens, ring, place, from, window);
  double h = tokens / 2; /* zigzag: parts place and last - place */
  return part_pairs (h, place - from, window) + part_pairs (h, place - (last - from), window) +
         part_pairs (h, last - place - from, window) + part_pairs (h, from - place, window);
}

/* Attention is priced with what the slowest place does; how much less the mean one, the block says. */
static gboolean
packed_ring_pairs (const SpWriter *w, SpPackedPairs *ret)
{
  if (!sp_core_packed_pairs (w, ret))
    return FALSE;
  w->block->attention_pairs = ret->all / w->layout->ring;
  return TRUE;
}

double
sp_core_home_pairs (const SpWriter *w, const SpCoreSlots *c)
{
  gint32 ring = w->program->groups[SP_GROUP_RING].size;
  SpPackedPairs packed;

  if (packed_ring_pairs (w, &packed))
    return packed.home;

  return sp_attention_pairs (w->program->token_split, ring, ring - 1, 0, c->tokens, sp_core_is_causal (w),
                             sp_core_window (w));
}

double
sp_core_ring_pairs (const SpWriter *w, const SpCoreSlots *c)
{
  SpPackedPairs packed;

  return packed_ring_pairs (w, &packed) ? packed.slowest : sp_core_home_pairs (w, c) + sp_core_away_pairs (w, c);
}

/* The last place has the last tokens, or in zigzag those in the middle: all pairs of these but those at home. */
double
sp_core_away_pairs (const SpWriter *w, const SpCoreSlots *c)
{
  gint32 ring = w->program->groups[SP_GROUP_RING].size;
  double tokens = c->tokens, sum = 0;
  SpPackedPairs packed;

  if (packed_ring_pairs (w, &packed))
    return packed.away;
  if (!sp_core_is_causal (w))
    return (ring - 1) * tokens * tokens;
  if (w->program->token_split == SP_TOKENS_STRIPED) {
    for (gint32 step = 1; step < ring; step++)
      for (gint32 place = 0; place < ring; place += ring - 1)
        sum += sp_attention_pairs (SP_TOKENS_STRIPED, ring, place, step, tokens, TRUE, sp_core_window (w)) / 2;
    return sum;
  }
  double end = w->program->token_split == SP_TOKENS_ZIGZAG ? (ring + 1) * tokens / 2 : ring * tokens;
  return first_pairs (w, end) - first_pairs (w, end - tokens) - sp_core_home_pairs (w, c);
}

/* --- keys that the queries see ------------------------------------------------------------------------------------ */

/* Those of a sequence's slices up to this one, or the queries' own. */
static guint8
keys_of (const SpCoreSlots *c)
{
  return c->all[0] ? c->all[0] : c->k;
}

static guint8
values_of (const SpCoreSlots *c)
{
  return c->all[1] ? c->all[1] : c->v;
}

static gint32
count_keys (const SpWriter *w, const SpCoreSlots *c)
{
  return (gint32) (c->tokens + (sp_slices_are (w) ? w->variant->first : 0));
}

/* Of their gradients, what the core writes: dk and dv; and, once it has, what is of the queries' own tokens. */
typedef struct {
  SpSliceGradient dk, dv;
} KeyGradients;

static guint8
begin_gradient (SpWriter *w, SpSliceGradient *g, gint64 own)
{
  return sp_slices_are (w) ? sp_slices_gradient (w, g, own) : sp_write_temporary (w, own);
}

static void
end_key_gradients (SpWriter *w, SpCoreSlots *c, const KeyGradients *g)
{
  if (!sp_slices_are (w))
    return;
  c->dk = sp_slices_add (w, &g->dk, c->kv_heads * w->head_size);
  c->dv = sp_slices_add (w, &g->dv, c->kv_heads * w->value_size);
}

/* --- fused -------------------------------------------------------------------------------------------------------- */

static gboolean
fused_serves (const SpWriter *w)
{
  return w->layout->ring == 1 && w->framework->fused_attention;
}

/* A ring's sums where there is but one block. */
static gboolean
sums_alone (const SpWriter *w)
{
  return w->framework->sums_alone && w->layout->ulysses > 1;
}

static void
fused_forward (SpWriter *w, SpCoreSlots *c)
{
  sp_write_attention_outputs (w, c);
  SpCoreSlots block = *c;
  guint8 sum = 0;

  if (sums_alone (w)) {
    gint64 n = sp_core_values (w, c, c->heads);
    block.o = sp_write_temporary (w, n);
    block.lse = sp_write_temporary_of (w, SP_DTYPE_FP32, w->block->buffers[c->lse].elements);
    sum = sp_write_temporary_of (w, SP_DTYPE_FP32, n);
  }
  sp_write_attention (w, &block, keys_of (c), values_of (c), sp_core_pairs (w, c), 0);
  if (sum != 0) {
    sp_write_attention_merge (w, &block, sum, c->lse, 0, 0);
    sp_write_copy (w, c, sum, c->o);
  }
  sp_write_attention_sink (w, c);
}

/* In the dtype of activations, by way of a sum in fp32. */
static guint8
by_way_of_sum (SpWriter *w, const SpCoreSlots *c, guint8 gradient)
{
  if (!sums_alone (w))
    return gradient;
  guint8 sum = sp_write_temporary_of (w, w->layout->ring_gradient_dtype, w->block->buffers[gradient].elements);
  sp_write_copy (w, c, gradient, sum);
  return sp_write_to_dtype (w, c, sum);
}

static void
fused_backward (SpWriter *w, SpCoreSlots *c)
{
  guint8 delta = sp_write_attention_delta (w, c);
  KeyGradients gradients;

  c->dq = sp_write_temporary (w, sp_core_elements (w, c, c->heads));
  c->dk = begin_gradient (w, &gradients.dk, sp_core_elements (w, c, c->kv_heads));
  c->dv = begin_gradient (w, &gradients.dv, sp_core_values (w, c, c->kv_heads));
  sp_write_attention_sink_backward (w, c, delta);
  sp_write_attention_backward (w, c, keys_of (c), values_of (c), delta, c->dk, c->dv, sp_core_pairs (w, c), 0);
  end_key_gradients (w, c, &gradients);
  c->dq = by_way_of_sum (w, c, c->dq);
  c->dk = by_way_of_sum (w, c, c->dk);
  c->dv = by_way_of_sum (w, c, c->dv);
}

static const SpCore fused = { "fused", SP_BLOCK_SOFTMAX, fused_serves, fused_forward, fused_backward };

/* --- unfused ------------------------------------------------------------------------------------------------------ */

static gboolean
unfused_serves (const SpWriter *w)
{
  return w->layout->ring == 1 && !w->framework->fused_attention;
}

/* A product over all pairs: the mask is applied by the softmax, the GEMM computes both halves. */
static void
scores_op (SpWriter *w, SpOpKind kind, const SpCoreSlots *c, guint8 in0, guint8 in1, guint8 in2, guint8 out0,
           guint8 out1)
{
  gboolean values = kind == SP_OP_CONTEXT || kind == SP_OP_CONTEXT_BWD;
  gint32 features = values ? w->value_size : w->head_size;
  SpOp *op = core_op (w, kind, c, features, 0, 0);
  gboolean backward = kind == SP_OP_SCORES_BWD || kind == SP_OP_CONTEXT_BWD;
  gboolean gemm = backward || kind == SP_OP_SCORES || kind == SP_OP_CONTEXT;

  op->n = count_keys (w, c);
  op->in[0] = in0;
  op->in[1] = in1;
  op->in[2] = in2;
  op->out[0] = out0;
  op->out[1] = out1;
  if (gemm)
    op->flops = (backward ? 4.0 : 2.0) * op->m * op->n * features * c->heads * w->batch;
  sp_write_op_done (w, op);
}

static gint64
score_elements (const SpWriter *w, const SpCoreSlots *c)
{
  return (gint64) c->tokens * count_keys (w, c) * c->heads * w->batch;
}

static void
unfused_forward (SpWriter *w, SpCoreSlots *c)
{
  gint64 n = score_elements (w, c);
  guint8 raw = sp_write_temporary (w, n);

  scores_op (w, SP_OP_SCORES, c, c->q, keys_of (c), 0, raw, 0);
  c->scores[0] = c->scores[2] = sp_write_stash (w, SP_TIER_SCORES, n);
  scores_op (w, SP_OP_SOFTMAX, c, raw, c->sinks.value, 0, c->scores[0], 0);
  if (w->arch->dropout > 0) {
    c->scores[1] = sp_write_stash_of (w, SP_TIER_SCORES, SP_DTYPE_UINT8, n);
    c->scores[2] = sp_write_stash (w, SP_TIER_SCORES, n);
    scores_op (w, SP_OP_DROPOUT, c, c->scores[0], 0, 0, c->scores[2], c->scores[1]);
  }
  c->o = sp_ulysses_operand (w, sp_core_values (w, c, c->heads));
  scores_op (w, SP_OP_CONTEXT, c, c->scores[2], values_of (c), 0, c->o, 0);
}

static void
unfused_backward (SpWriter *w, SpCoreSlots *c)
{
  gint64 n = score_elements (w, c);
  guint8 d_dropped = sp_write_temporary (w, n), d_probabilities = d_dropped;
  KeyGradients gradients;

  c->dv = begin_gradient (w, &gradients.dv, sp_core_values (w, c, c->kv_heads));
  scores_op (w, SP_OP_CONTEXT_BWD, c, c->scores[2], values_of (c), c->d_o, d_dropped, c->dv);
  if (w->arch->dropout > 0) {
    d_probabilities = sp_write_temporary (w, n);
    scores_op (w, SP_OP_DROPOUT_BWD, c, d_dropped, c->scores[1], 0, d_probabilities, 0);
  }
  guint8 d_scores = sp_write_temporary (w, n);
  scores_op (w, SP_OP_SOFTMAX_BWD, c, c->scores[0], d_probabilities, 0, d_scores, c->sinks.grad);
  c->dq = sp_write_temporary (w, sp_core_elements (w, c, c->heads));
  c->dk = begin_gradient (w, &gradients.dk, sp_core_elements (w, c, c->kv_heads));
  scores_op (w, SP_OP_SCORES_BWD, c, c->q, keys_of (c), d_scores, c->dq, c->dk);
  end_key_gradients (w, c, &gradients);
}

static const SpCore unfused = { "unfused", SP_BLOCK_SOFTMAX, unfused_serves, unfused_forward, unfused_backward };

static const SpCore *const cores[] = { &fused, &unfused, NULL };

/* --- rules -------------------------------------------------------------------------------------------------------- */

/* What a model may have that `show model` counts and no writer writes yet. */
static const char *
unwritten (const SpArchitecture *arch)
{
  gboolean after_norm = arch->form == SP_FORM_SANDWICH || arch->form == SP_FORM_BRANCH_NORM;

  if (sp_architecture_has_bit (arch, SP_LAYER_WINDOW) && arch->bidirectional)
    return "a window that looks both ways";
  if (arch->latent.kv_rank > 0 && (arch->qk_norm || arch->attention_gate || arch->sinks || arch->qkv_bias))
    return "latent attention with biases, a gate, sinks or norms of heads";
  if (after_norm && (arch->projection_bias || arch->mlp_bias || arch->dropout > 0))
    return "biases or dropout between a branch and its norm";
  if (sp_architecture_has (arch, SP_LAYER_LINEAR) && arch->linear.family == SP_LINEAR_MAMBA &&
      (arch->linear.conv == 0 || arch->linear.value_size != 1 || arch->linear.key_heads != 1))
    return "a scan without a convolution, or of more than one value or key a channel";
  return NULL;
}

static gboolean
is_written (const SpCase *c)
{
  return unwritten (c->arch) == NULL;
}

static void
explain_written (const SpCase *c, GString *out)
{
  g_string_append_printf (out, "%s has %s, which no program has yet; show model counts it", c->arch->name,
                          unwritten (c->arch));
}

static const SpRule rules[] = { { "model", is_written, explain_written } };

const SpStrategy sp_strategy_local = {
  "local", SP_AXIS_ULYSSES,      "softmax attention on one rank, fused or with kept scores",
  rules,   G_N_ELEMENTS (rules), cores,
};
