/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

/*
 * Mamba's layer (Gu and Dao, 2312.00752), as Jamba has it too: x and a gate from the norm; x through the convolution;
 * from x the steps' low-rank part and B and C, which all channels share; a scan of each channel, of value size 1; a
 * skip, the gate, projection. Jamba norms the low-rank part, B and C (shape.output_gate says so; the gate itself is
 * always there).
 *
 * Over tensor ranks the channels are split; what is made from all of them, the low-rank part, B and C, is summed, and
 * so are its gradients: rows of rank + 2 k features each way, beside the two large reductions. Megatron-Core splits
 * only Mamba-2; this is the pair of row and column splits that the shapes ask for.
 */

typedef struct {
  SpLinearShape shape;  /* heads: channels of this tensor rank, of value size 1; B and C are a key head of all */
  SpNormSlots parts[3]; /* of C, B and the low-rank part: their norms, or the plain slot in y */
  SpConvSlots conv;
  SpWeightSlots x, gate, mix, step, step_bias, rates, skip, projection;
  guint8 x_out, gate_out, mixed, mix_out; /* mixed: x after the convolution; mix_out: C, B, low-rank part */
  guint8 raw, steps;                      /* [rows, channels], before and after softplus */
  guint8 core_out, gated;
} Mamba;

static gint32
mix_width (const Mamba *m)
{
  return 2 * m->shape.key_size + m->shape.gate_rank;
}

static gint32
part_width (const Mamba *m, guint part)
{
  return part < 2 ? m->shape.key_size : m->shape.gate_rank;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static void
write_partial_weights (SpWriter *w, Mamba *m)
{
  static const char *const names[] = { "c.norm", "b.norm", "step.norm" };

  for (guint i = 0; i < G_N_ELEMENTS (names) && m->shape.output_gate; i++)
    m->parts[i].gain =
        sp_write_weight (w, names[i], 1, part_width (m, i), SP_SPLIT_NONE, NULL, 0, w->layout->tensor > 1);
}

static void
write_own_weights (SpWriter *w, Mamba *m)
{
  gint32 channels = m->shape.heads;

  m->x = sp_write_weight (w, "x", channels, w->hidden, SP_SPLIT_ROWS, NULL, 0, FALSE);
  m->gate = sp_write_weight (w, "gate", channels, w->hidden, SP_SPLIT_ROWS, NULL, 0, FALSE);
  sp_write_conv_weights (w, &m->conv, &m->shape, channels, NULL, 0);
  m->mix = sp_write_weight (w, "mix", mix_width (m), channels, SP_SPLIT_COLS, NULL, 0, FALSE);
  m->step = sp_write_weight (w, "step", channels, m->shape.gate_rank, SP_SPLIT_ROWS, NULL, 0, FALSE);
  m->step_bias = sp_write_weight (w, "step.bias", channels, 1, SP_SPLIT_ROWS, NULL, 0, FALSE);
  m->rates = sp_write_weight (w, "log.rate", channels, m->shape.key_size, SP_SPLIT_ROWS, NULL, 0, FALSE);
  m->skip = sp_write_weight (w, "skip", channels, 1, SP_SPLIT_ROWS, NULL, 0, FALSE);
  m->projection = sp_write_weight (w, "proj", w->hidden, channels, SP_SPLIT_COLS, NULL, 0, FALSE);
}

static void
write_weights (SpWriter *w, gpointer self, SpWeightPass pass)
{
  if (pass == SP_WEIGHTS_PARTIAL)
    write_partial_weights (w, self);
  else if (pass == SP_WEIGHTS_OWN)
    write_own_weights (w, self);
}

/* --- C, B and the steps ------------------------------------------------------------------------------------------- */

/* Cuts rows of C, B and the low-rank part apart, and puts their gradients together: as q, k and one head of v. */
static SpOp *
cut_op (SpWriter *w, const Mamba *m, SpOpKind kind)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows;
  op->n = m->shape.gate_rank;
  op->k = m->shape.key_size;
  op->heads = op->kv_heads = 1;
  return op;
}

static guint8
norm_part_backward (SpWriter *w, const Mamba *m, guint part, guint8 dy)
{
  if (!m->shape.output_gate)
    return dy;
  guint8 dx = sp_write_temporary (w, (gint64) w->rows * part_width (m, part));
  sp_write_norm_backward (w, &m->parts[part], dy, 0, dx);
  return dx;
}

static void
make_parts (SpWriter *w, Mamba *m)
{
  guint8 cut[3];

  m->mix_out = sp_write_temporary (w, (gint64) w->rows * mix_width (m));
  sp_write_linear (w, w->rows, mix_width (m), m->shape.heads, m->mixed, m->mix, 0, m->mix_out);
  sp_tensor_sum (w, m->mix_out, 0);
  for (guint i = 0; i < 3; i++) { /* the steps' GEMM reads its part again; C and B are exchanged first */
    gint64 n = (gint64) w->rows * part_width (m, i);
    m->parts[i].y = i == 2 ? sp_write_stash (w, SP_TIER_KEEP, n) : sp_ulysses_operand (w, n);
    cut[i] = m->shape.output_gate ? sp_write_stash (w, SP_TIER_KEEP, n) : m->parts[i].y;
  }
  SpOp *op = cut_op (w, m, SP_OP_KEY_MAP);
  op->in[0] = m->mix_out;
  for (guint i = 0; i < 3; i++)
    op->out[i] = cut[i];
  sp_write_op_done (w, op);
  for (guint i = 0; i < 3 && m->shape.output_gate; i++)
    sp_write_norm_to (w, &m->parts[i], cut[i], w->rows, part_width (m, i), m->parts[i].y);
}

/* Each tensor rank has the parts' gradients from its own channels. Adds to x's gradient. */
static void
make_parts_backward (SpWriter *w, const Mamba *m, const guint8 d[3], guint8 d_mixed)
{
  gint32 channels = m->shape.heads;
  guint8 d_mix = sp_write_temporary (w, (gint64) w->rows * mix_width (m)), d_cut[3];

  for (guint i = 0; i < 3; i++)
    d_cut[i] = norm_part_backward (w, m, i, d[i]);
  SpOp *op = cut_op (w, m, SP_OP_KEY_MAP_BWD);
  for (guint i = 0; i < 3; i++)
    op->in[i + 1] = d_cut[i];
  op->out[0] = d_mix;
  sp_write_op_done (w, op);
  sp_tensor_sum (w, d_mix, 0);
  sp_write_gemm (w, w->rows, channels, mix_width (m), d_mix, m->mix.value, d_mixed, 0, SP_OP_ACCUMULATE);
  sp_write_linear_wgrad (w, w->rows, mix_width (m), channels, d_mix, m->mixed, m->mix);
}

static SpOp *
step_op (SpWriter *w, const Mamba *m, SpOpKind kind)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows;
  op->n = op->heads = m->shape.heads;
  op->in[0] = m->raw;
  op->in[1] = m->step_bias.value;
  return op;
}

static void
make_steps (SpWriter *w, Mamba *m)
{
  gint64 n = (gint64) w->rows * m->shape.heads;

  m->raw = sp_write_stash (w, SP_TIER_KEEP, n);
  sp_write_linear (w, w->rows, m->shape.heads, m->shape.gate_rank, m->parts[2].y, m->step, 0, m->raw);
  m->steps = sp_ulysses_operand (w, n);
  SpOp *op = step_op (w, m, SP_OP_DECAY);
  op->out[1] = m->steps;
  sp_write_op_done (w, op);
}

/* To the low-rank part's gradient. */
static guint8
make_steps_backward (SpWriter *w, const Mamba *m, guint8 d_steps)
{
  gint32 channels = m->shape.heads, rank = m->shape.gate_rank;
  guint8 d_raw = sp_write_temporary (w, (gint64) w->rows * channels);
  guint8 d_low = sp_write_temporary (w, (gint64) w->rows * rank);

  SpOp *op = step_op (w, m, SP_OP_DECAY_BWD);
  op->in[4] = d_steps;
  op->out[0] = d_raw;
  op->out[1] = m->step_bias.grad;
  sp_write_op_done (w, op);
  sp_write_linear_dgrad (w, w->rows, channels, rank, d_raw, m->step, d_low);
  sp_write_linear_wgrad (w, w->rows, channels, rank, d_raw, m->parts[2].y, m->step);
  return d_low;
}

/* --- the layer ---------------------------------------------------------------------------------------------------- */

static SpRows
write_forward (SpWriter *w, gpointer self, SpPort *port)
{
  Mamba *m = self;
  SpCoreSlots *c = &w->slots;
  gint32 channels = m->shape.heads;
  gint64 n = (gint64) w->rows * channels;

  guint8 whole = sp_branch_whole (w, port);
  m->x_out = sp_write_stash (w, SP_TIER_KEEP, n);
  sp_write_linear (w, w->rows, channels, w->hidden, whole, m->x, 0, m->x_out);
  m->gate_out = sp_write_stash (w, SP_TIER_KEEP, n);
  sp_write_linear (w, w->rows, channels, w->hidden, whole, m->gate, 0, m->gate_out);
  m->mixed = sp_write_conv (w, &m->conv, m->x_out, SP_TIER_ELEMENTWISE);
  make_parts (w, m);
  make_steps (w, m);
  c->rule = SP_OP_SCAN;
  c->q = m->parts[0].y;
  c->k = m->parts[1].y;
  c->v = m->mixed;
  c->gates = m->steps;
  c->rates = m->rates;
  m->core_out = sp_write_recurrent_core (w, &m->shape);
  sp_write_skip (w, &m->shape, m->skip, m->mixed, m->core_out);
  m->gated = sp_write_stash (w, SP_TIER_ELEMENTWISE, n);
  sp_write_gate (w, SP_OP_GATE, channels, channels, (const guint8[]){ m->core_out, m->gate_out, 0 }, m->gated, 0,
                 SP_OP_SILU);

  guint8 partial = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  sp_write_linear (w, w->rows, w->hidden, channels, m->gated, m->projection, 0, partial);
  return (SpRows){ partial, TRUE };
}

static SpRows
write_backward (SpWriter *w, gpointer self, SpPort *port)
{
  Mamba *m = self;
  SpCoreSlots *c = &w->slots;
  gint32 channels = m->shape.heads;
  gint64 n = (gint64) w->rows * channels;

  guint8 whole = sp_branch_d_whole (w, port);
  guint8 d_gated = sp_write_temporary (w, n), d_out = sp_write_temporary (w, n), d_gate = sp_write_temporary (w, n);
  sp_write_linear_dgrad (w, w->rows, w->hidden, channels, whole, m->projection, d_gated);
  sp_write_linear_wgrad (w, w->rows, w->hidden, channels, whole, m->gated, m->projection);
  sp_write_gate (w, SP_OP_GATE_BWD, channels, channels, (const guint8[]){ d_gated, m->core_out, m->gate_out }, d_out,
                 d_gate, SP_OP_SILU);

  sp_write_recurrent_core_backward (w, &m->shape, d_out);
  guint8 d_mixed = sp_write_skip_backward (w, &m->shape, m->skip, m->mixed, d_out, c->dv);
  const guint8 d_parts[3] = { c->dq, c->dk, make_steps_backward (w, m, c->d_gates) };
  make_parts_backward (w, m, d_parts, d_mixed);
  guint8 d_x = sp_write_conv_backward (w, &m->conv, d_mixed);

  guint8 d_input = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  sp_write_linear_dgrad (w, w->rows, channels, w->hidden, d_x, m->x, d_input);
  sp_write_gemm (w, w->rows, w->hidden, channels, d_gate, m->gate.value, d_input, 0, SP_OP_ACCUMULATE);
  guint8 rows = sp_branch_again (w, port);
  sp_write_linear_wgrad (w, w->rows, channels, w->hidden, d_x, rows, m->x);
  sp_write_linear_wgrad (w, w->rows, channels, w->hidden, d_gate, rows, m->gate);
  return (SpRows){ d_input, TRUE };
}

static const SpBranch mamba = { write_weights, write_forward, write_backward };

void
sp_write_mamba_layer (SpWriter *w)
{
  Mamba m = { .shape = w->arch->linear };

  m.shape.heads /= w->layout->tensor;
  m.shape.key_heads = m.shape.value_size = 1;
  sp_write_layer (w, &mamba, &m);
}
