/* SPDX-License-Identifier: Apache-2.0 */
#include "models/layers/families.h"
#include "models/strategies/strategies.h"
#include "models/writer.h"

/*
 * A layer with a recurrent mixer, of any family (families.h): projections to q, k, v, the output gate, beta and the
 * decay; a short convolution over q, k and v; maps; the core; a norm and a gate of the output; projection.
 *
 * The projections are GEMMs of their own, as in flash-linear-attention; Mamba2 and Qwen3-Next have them in one or two,
 * of the same FLOP and weights. q, k and v come out of one GEMM and go through one convolution.
 */

/* From the normed rows, or from a low-rank part of them. */
typedef struct {
  SpWeightSlots low, weight;
  gint32 width, rank;
  guint8 narrow, d_narrow; /* [rows, rank] */
  guint8 out, d_out;       /* [rows, width] */
} Projection;

typedef struct {
  const SpFamily *family;
  SpLinearShape shape; /* heads of this tensor rank */
  SpNormSlots out_norm;
  Projection qkv, beta, decay, gate;
  SpConvSlots conv;
  SpWeightSlots decay_bias, rates, skip, projection;
  guint8 mixed;           /* [rows, q k v], after the convolution */
  guint8 q, k, v;         /* before the exchange of heads */
  guint8 betas, gates;    /* likewise */
  guint8 core_out, gated; /* [rows, value heads] */
  guint8 result;          /* what is projected */
} Mixer;

static gint32
key_width (const Mixer *m)
{
  return m->shape.key_heads * m->shape.key_size;
}

static gint32
value_width (const Mixer *m)
{
  return m->shape.heads * m->shape.value_size;
}

static gboolean
has_decay (const Mixer *m)
{
  return (m->family->rule & (SP_OP_HEAD_DECAY | SP_OP_FEATURE_DECAY)) != 0;
}

/* What is left to the map. */
static guint
map_flags (const Mixer *m)
{
  return m->shape.conv > 0 ? m->family->map & ~m->family->map_without : m->family->map;
}

static gboolean
map_needs_input (const Mixer *m)
{
  return (map_flags (m) & (SP_OP_SILU | SP_OP_SILU_VALUES | SP_OP_L2)) != 0;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static void
low_weight (SpWriter *w, const char *name, gint32 rank, Projection *p)
{
  p->rank = rank;
  p->low = sp_write_weight (w, name, rank, w->hidden, SP_SPLIT_NONE, NULL, 0, w->layout->tensor > 1);
}

/* Every tensor rank has them, and its part of their gradient. */
static void
write_partial_weights (SpWriter *w, Mixer *m)
{
  gint32 rank = m->shape.gate_rank;

  if (m->family->norm == SP_OUTPUT_HEAD)
    m->out_norm.gain =
        sp_write_weight (w, "out.norm", 1, m->shape.value_size, SP_SPLIT_NONE, NULL, 0, w->layout->tensor > 1);
  if (m->family->low_rank && rank > 0)
    low_weight (w, "decay.low", rank, &m->decay);
  if (m->family->low_rank_gate && rank > 0 && m->shape.output_gate)
    low_weight (w, "gate.low", rank, &m->gate);
}

static SpWeightSlots
rows_weight (SpWriter *w, const char *name, gint32 rows, gint32 cols)
{
  return sp_write_weight (w, name, rows, cols, SP_SPLIT_ROWS, NULL, 0, FALSE);
}

static void
main_weight (SpWriter *w, const char *name, gint32 width, Projection *p)
{
  p->width = width;
  p->weight = rows_weight (w, name, width, p->rank > 0 ? p->rank : w->hidden);
}

static void
write_own_weights (SpWriter *w, Mixer *m)
{
  const gint32 sections[] = { key_width (m), key_width (m), value_width (m) };
  gint32 features = 2 * key_width (m) + value_width (m), decay = (gint32) sp_family_decays (m->family, &m->shape);

  m->qkv.width = features;
  m->qkv.weight = sp_write_weight (w, "qkv", features, w->hidden, SP_SPLIT_ROWS, sections, 3, FALSE);
  if (m->shape.conv > 0)
    sp_write_conv_weights (w, &m->conv, &m->shape, features, sections, 3);
  if (m->shape.output_gate)
    main_weight (w, "gate", value_width (m), &m->gate);
  if (m->family->beta == SP_BETA_SIGMOID)
    main_weight (w, "beta", m->shape.heads, &m->beta);
  if (has_decay (m)) {
    main_weight (w, "decay", decay, &m->decay);
    if (m->family->decay_bias)
      m->decay_bias = rows_weight (w, "decay.bias", decay, 1);
    if (m->family->rates)
      m->rates = rows_weight (w, "log.rate", m->shape.heads, 1);
  }
  if (m->family->skip)
    m->skip = rows_weight (w, "skip", m->shape.heads, 1);
  if (m->family->norm != SP_OUTPUT_HEAD && !m->family->no_gain)
    m->out_norm.gain = sp_write_weight (w, "out.norm", 1, value_width (m), SP_SPLIT_COLS, NULL, 0, FALSE);
  m->projection = sp_write_weight (w, "proj", w->hidden, value_width (m), SP_SPLIT_COLS, NULL, 0, FALSE);
}

static void
write_weights (SpWriter *w, gpointer self, SpWeightPass pass)
{
  if (pass == SP_WEIGHTS_PARTIAL)
    write_partial_weights (w, self);
  else if (pass == SP_WEIGHTS_OWN)
    write_own_weights (w, self);
}

/* --- projections -------------------------------------------------------------------------------------------------- */

static void
project (SpWriter *w, Projection *p, guint8 rows, gboolean keep)
{
  gint32 in = w->hidden;

  if (p->width == 0)
    return;
  if (p->rank > 0) {
    p->narrow = sp_write_stash (w, SP_TIER_KEEP, (gint64) w->rows * p->rank);
    sp_write_linear (w, w->rows, p->rank, w->hidden, rows, p->low, 0, p->narrow);
    rows = p->narrow;
    in = p->rank;
  }
  gint64 n = (gint64) w->rows * p->width;
  p->out = keep ? sp_write_stash (w, SP_TIER_KEEP, n) : sp_write_temporary (w, n);
  sp_write_linear (w, w->rows, p->width, in, rows, p->weight, 0, p->out);
}

/* dx, or dx += with SP_OP_ACCUMULATE. */
static void
project_dgrad (SpWriter *w, Projection *p, guint8 dx, guint flags)
{
  if (p->width == 0)
    return;
  if (p->rank == 0) {
    sp_write_gemm (w, w->rows, w->hidden, p->width, p->d_out, p->weight.value, dx, 0, flags);
    return;
  }
  p->d_narrow = sp_write_temporary (w, (gint64) w->rows * p->rank);
  sp_write_linear_dgrad (w, w->rows, p->width, p->rank, p->d_out, p->weight, p->d_narrow);
  sp_write_gemm (w, w->rows, w->hidden, p->rank, p->d_narrow, p->low.value, dx, 0, flags);
}

static void
project_wgrad (SpWriter *w, const Projection *p, guint8 rows)
{
  if (p->width == 0)
    return;
  if (p->rank == 0) {
    sp_write_linear_wgrad (w, w->rows, p->width, w->hidden, p->d_out, rows, p->weight);
    return;
  }
  sp_write_linear_wgrad (w, w->rows, p->width, p->rank, p->d_out, p->narrow, p->weight);
  sp_write_linear_wgrad (w, w->rows, p->rank, w->hidden, p->d_narrow, rows, p->low);
}

/* --- q, k, v ------------------------------------------------------------------------------------------------------ */

static SpOp *
map_op (SpWriter *w, const Mixer *m, SpOpKind kind)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows;
  op->n = m->shape.value_size;
  op->k = m->shape.key_size;
  op->heads = m->shape.heads;
  op->kv_heads = m->shape.key_heads;
  op->flags = map_flags (m);
  return op;
}

static void
make_keys (SpWriter *w, Mixer *m, guint8 rows)
{
  gint64 keys = (gint64) w->rows * key_width (m), values = (gint64) w->rows * value_width (m);

  project (w, &m->qkv, rows, m->shape.conv > 0 || map_needs_input (m));
  m->mixed = m->qkv.out;
  if (m->shape.conv > 0)
    m->mixed = sp_write_conv (w, &m->conv, m->qkv.out, map_needs_input (m) ? SP_TIER_ELEMENTWISE : SP_N_TIERS);
  m->q = sp_ulysses_operand (w, keys);
  m->k = sp_ulysses_operand (w, keys);
  m->v = m->family->skip ? sp_write_stash (w, SP_TIER_KEEP, values) : sp_ulysses_operand (w, values);
  SpOp *op = map_op (w, m, SP_OP_KEY_MAP);
  op->in[0] = m->mixed;
  op->out[0] = m->q;
  op->out[1] = m->k;
  op->out[2] = m->v;
  sp_write_op_done (w, op);
}

static void
make_keys_backward (SpWriter *w, Mixer *m, guint8 dq, guint8 dk, guint8 dv)
{
  guint8 d_mixed = sp_write_temporary (w, (gint64) w->rows * m->qkv.width);
  SpOp *op = map_op (w, m, SP_OP_KEY_MAP_BWD);

  op->in[0] = map_needs_input (m) ? m->mixed : 0;
  op->in[1] = dq;
  op->in[2] = dk;
  op->in[3] = dv;
  op->out[0] = d_mixed;
  sp_write_op_done (w, op);
  m->qkv.d_out = m->shape.conv > 0 ? sp_write_conv_backward (w, &m->conv, d_mixed) : d_mixed;
}

/* --- beta and the decay ------------------------------------------------------------------------------------------- */

static SpOp *
decay_op (SpWriter *w, const Mixer *m, SpOpKind kind)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows;
  op->n = m->decay.width;
  op->heads = m->shape.heads;
  op->in[0] = m->decay.out;
  op->in[1] = m->decay_bias.value;
  op->in[2] = m->rates.value;
  return op;
}

static guint8
fp32_operand (SpWriter *w, gint64 elements)
{
  return w->program->groups[w->exchange].size > 1 ? sp_write_temporary_of (w, SP_DTYPE_FP32, elements)
                                                  : sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_FP32, elements);
}

static void
make_gates (SpWriter *w, Mixer *m, guint8 rows)
{
  gint64 heads = (gint64) w->rows * m->shape.heads;

  project (w, &m->beta, rows, FALSE);
  project (w, &m->decay, rows, TRUE);
  if (m->family->beta == SP_BETA_SIGMOID) {
    m->betas = sp_write_stash (w, SP_TIER_KEEP, heads);
    sp_write_rows (w, SP_OP_SIGMOID, w->rows, m->shape.heads, m->beta.out, 0, 0, m->betas, 0, 0);
  }
  if (!has_decay (m))
    return;
  m->gates = fp32_operand (w, (gint64) w->rows * m->decay.width);
  if (m->family->beta == SP_BETA_STEP)
    m->betas = fp32_operand (w, heads);
  SpOp *op = decay_op (w, m, SP_OP_DECAY);
  op->out[0] = m->gates;
  op->out[1] = m->family->beta == SP_BETA_STEP ? m->betas : 0;
  sp_write_op_done (w, op);
}

static void
make_gates_backward (SpWriter *w, Mixer *m, guint8 d_gates, guint8 d_betas)
{
  if (m->family->beta == SP_BETA_SIGMOID) {
    m->beta.d_out = sp_write_temporary (w, (gint64) w->rows * m->shape.heads);
    sp_write_rows (w, SP_OP_SIGMOID_BWD, w->rows, m->shape.heads, d_betas, m->betas, 0, m->beta.d_out, 0, 0);
  }
  if (!has_decay (m))
    return;
  m->decay.d_out = sp_write_temporary (w, (gint64) w->rows * m->decay.width);
  SpOp *op = decay_op (w, m, SP_OP_DECAY_BWD);
  op->in[3] = d_gates;
  op->in[4] = m->family->beta == SP_BETA_STEP ? d_betas : 0;
  op->out[0] = m->decay.d_out;
  op->out[1] = m->decay_bias.grad;
  op->out[2] = m->rates.grad;
  sp_write_op_done (w, op);
}

/* --- the output --------------------------------------------------------------------------------------------------- */

static guint
gate_flags (const Mixer *m)
{
  return m->family->silu_gate ? SP_OP_SILU : 0;
}

static void
gate (SpWriter *w, Mixer *m, guint8 in)
{
  m->gated = in;
  if (m->gate.width == 0)
    return;
  m->gated = sp_write_stash (w, SP_TIER_ELEMENTWISE, (gint64) w->rows * value_width (m));
  sp_write_gate (w, SP_OP_GATE, m->gate.width, m->gate.width, (const guint8[]){ in, m->gate.out, 0 }, m->gated, 0,
                 gate_flags (m));
}

static guint8
gate_backward (SpWriter *w, Mixer *m, guint8 in, guint8 d)
{
  gint64 n = (gint64) w->rows * value_width (m);

  if (m->gate.width == 0)
    return d;
  guint8 d_in = sp_write_temporary (w, n);
  m->gate.d_out = sp_write_temporary (w, n);
  sp_write_gate (w, SP_OP_GATE_BWD, m->gate.width, m->gate.width, (const guint8[]){ d, in, m->gate.out }, d_in,
                 m->gate.d_out, gate_flags (m));
  return d_in;
}

static void
make_output (SpWriter *w, Mixer *m)
{
  if (m->family->skip)
    sp_write_skip (w, &m->shape, m->skip, m->v, m->core_out);
  if (m->family->norm == SP_OUTPUT_GATED_ROW) {
    gate (w, m, m->core_out);
    sp_write_row_norm (w, &m->out_norm, m->gated, value_width (m));
    m->result = m->out_norm.y;
    return;
  }
  if (m->family->norm == SP_OUTPUT_HEAD) /* shorter rows */
    sp_write_norm (w, &m->out_norm, m->core_out, w->rows * m->shape.heads, m->shape.value_size);
  else
    sp_write_row_norm (w, &m->out_norm, m->core_out, value_width (m));
  gate (w, m, m->out_norm.y);
  m->result = m->gated;
}

/* From the gradient of what is projected to that of the core's output, with the skip. */
static guint8
make_output_backward (SpWriter *w, Mixer *m, guint8 d)
{
  guint8 d_out;

  if (m->family->norm == SP_OUTPUT_GATED_ROW) {
    guint8 d_gated = sp_write_temporary (w, (gint64) w->rows * value_width (m));
    sp_write_row_norm_backward (w, &m->out_norm, d, d_gated);
    return gate_backward (w, m, m->core_out, d_gated);
  }
  guint8 d_normed = gate_backward (w, m, m->out_norm.y, d);
  d_out = sp_write_temporary (w, (gint64) w->rows * value_width (m));
  if (m->family->norm == SP_OUTPUT_HEAD)
    sp_write_norm_backward (w, &m->out_norm, d_normed, 0, d_out);
  else
    sp_write_row_norm_backward (w, &m->out_norm, d_normed, d_out);
  return d_out;
}

/* --- the layer ---------------------------------------------------------------------------------------------------- */

static SpRows
write_forward (SpWriter *w, gpointer self, SpPort *port)
{
  Mixer *m = self;
  SpCoreSlots *c = &w->slots;

  guint8 whole = sp_branch_whole (w, port);
  make_keys (w, m, whole);
  make_gates (w, m, whole);
  project (w, &m->gate, whole, TRUE);
  c->rule = m->family->rule;
  c->q = m->q;
  c->k = m->k;
  c->v = m->v;
  c->gates = m->gates;
  c->beta = m->betas;
  m->core_out = sp_write_recurrent_core (w, &m->shape);
  make_output (w, m);

  guint8 partial = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  sp_write_linear (w, w->rows, w->hidden, value_width (m), m->result, m->projection, 0, partial);
  return (SpRows){ partial, TRUE };
}

static SpRows
write_backward (SpWriter *w, gpointer self, SpPort *port)
{
  Mixer *m = self;
  SpCoreSlots *c = &w->slots;
  Projection *const projections[] = { &m->qkv, &m->gate, &m->beta, &m->decay };

  guint8 whole = sp_branch_d_whole (w, port);
  guint8 d_result = sp_write_temporary (w, (gint64) w->rows * value_width (m));
  sp_write_linear_dgrad (w, w->rows, w->hidden, value_width (m), whole, m->projection, d_result);
  sp_write_linear_wgrad (w, w->rows, w->hidden, value_width (m), whole, m->result, m->projection);

  guint8 d_out = make_output_backward (w, m, d_result);
  sp_write_recurrent_core_backward (w, &m->shape, d_out);
  if (m->family->skip)
    c->dv = sp_write_skip_backward (w, &m->shape, m->skip, m->v, d_out, c->dv);
  make_keys_backward (w, m, c->dq, c->dk, c->dv);
  make_gates_backward (w, m, c->d_gates, c->d_beta);

  guint8 d_input = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  for (guint i = 0; i < G_N_ELEMENTS (projections); i++)
    project_dgrad (w, projections[i], d_input, i > 0 ? SP_OP_ACCUMULATE : 0);
  guint8 rows = sp_branch_again (w, port);
  for (guint i = 0; i < G_N_ELEMENTS (projections); i++)
    project_wgrad (w, projections[i], rows);
  return (SpRows){ d_input, TRUE };
}

static const SpBranch recurrent = { write_weights, write_forward, write_backward };

void
sp_write_recurrent_layer (SpWriter *w)
{
  Mixer m = { .family = sp_family_get ((SpLinearFamily) w->arch->linear.family),
              .shape = sp_architecture_linear (w->arch) };

  m.shape.heads /= w->layout->tensor;
  m.shape.key_heads /= w->layout->tensor;
  sp_write_layer (w, &recurrent, &m);
}

void
sp_write_linear_layer (SpWriter *w)
{
  const SpLinearShape *linear = &w->arch->linear;

  if (linear->family == SP_LINEAR_TRANSNORMER && linear->heads == 0)
    sp_write_transnormer_layer (w);
  else if (linear->family == SP_LINEAR_MAMBA)
    sp_write_mamba_layer (w);
  else
    sp_write_recurrent_layer (w);
}
