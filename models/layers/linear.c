/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

/*
 * TransNormerLLM's layer (Qin et al., 2307.14995): q, k, v and an output gate u in one GEMM, silu on q and k, linear
 * attention with a decay a head, a norm over the whole row of the output, the gate, projection, MLP. Over tensor ranks
 * the norm's row is split, so its sum of squares is reduced: one fp32 a token each way, beside the two large
 * reductions.
 */

typedef struct {
  SpWeightSlots qkvu, projection;
  guint8 inputs;   /* [rows, 4 heads]: q, k, v, u before the feature map */
  guint8 core_out; /* [rows, heads] */
  SpNormSlots out_norm;
  guint8 gated;
} Attention;

static gint32
width (const SpWriter *w)
{
  return w->heads * w->head_size;
}

static void
write_weights (SpWriter *w, gpointer self, SpWeightPass pass)
{
  const gint32 sections[] = { width (w), width (w), width (w), width (w) };
  Attention *a = self;

  if (pass != SP_WEIGHTS_OWN)
    return;
  a->qkvu = sp_write_weight (w, "qkvu", 4 * width (w), w->hidden, SP_SPLIT_ROWS, sections, 4, FALSE);
  a->projection = sp_write_weight (w, "proj", w->hidden, width (w), SP_SPLIT_COLS, NULL, 0, FALSE);
}

static SpOp *
feature_op (SpWriter *w, SpOpKind kind, guint8 inputs)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows;
  op->k = w->head_size;
  op->heads = op->kv_heads = w->heads;
  op->in[0] = inputs;
  return op;
}

static SpRows
write_forward (SpWriter *w, gpointer self, SpPort *port)
{
  Attention *a = self;
  gint64 elements = (gint64) w->rows * width (w);

  guint8 whole = sp_branch_whole (w, port);
  a->inputs = sp_write_stash (w, SP_TIER_KEEP, 4 * elements);
  sp_write_linear (w, w->rows, 4 * width (w), w->hidden, whole, a->qkvu, 0, a->inputs);

  guint8 q = sp_ulysses_operand (w, elements), k = sp_ulysses_operand (w, elements),
         v = sp_ulysses_operand (w, elements);
  SpOp *op = feature_op (w, SP_OP_FEATURE, a->inputs);
  op->out[0] = q;
  op->out[1] = k;
  op->out[2] = v;
  sp_write_op_done (w, op);

  a->core_out = sp_write_core (w, q, k, v);
  sp_write_row_norm (w, &a->out_norm, a->core_out, width (w));
  a->gated = sp_write_stash (w, SP_TIER_ELEMENTWISE, elements);
  sp_write_gate (w, SP_OP_GATE, width (w), 4 * width (w), (const guint8[]){ a->out_norm.y, a->inputs, 0 }, a->gated, 0,
                 0);

  guint8 partial = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  sp_write_linear (w, w->rows, w->hidden, width (w), a->gated, a->projection, 0, partial);
  return (SpRows){ partial, TRUE };
}

static SpRows
write_backward (SpWriter *w, gpointer self, SpPort *port)
{
  Attention *a = self;
  gint64 elements = (gint64) w->rows * width (w);
  guint8 dq, dk, dv;

  guint8 whole = sp_branch_d_whole (w, port);
  guint8 d_gated = sp_write_temporary (w, elements);
  sp_write_linear_dgrad (w, w->rows, w->hidden, width (w), whole, a->projection, d_gated);
  sp_write_linear_wgrad (w, w->rows, w->hidden, width (w), whole, a->gated, a->projection);

  guint8 d_normed = sp_write_temporary (w, elements), du = sp_write_temporary (w, elements);
  sp_write_gate (w, SP_OP_GATE_BWD, width (w), 4 * width (w), (const guint8[]){ d_gated, a->out_norm.y, a->inputs },
                 d_normed, du, 0);
  guint8 d_out = sp_write_temporary (w, elements);
  sp_write_row_norm_backward (w, &a->out_norm, d_normed, d_out);

  sp_write_core_backward (w, d_out, &dq, &dk, &dv);

  guint8 d_inputs = sp_write_temporary (w, 4 * elements);
  SpOp *op = feature_op (w, SP_OP_FEATURE_BWD, a->inputs);
  op->in[1] = dq;
  op->in[2] = dk;
  op->in[3] = dv;
  op->in[4] = du;
  op->out[0] = d_inputs;
  sp_write_op_done (w, op);

  return sp_branch_input_backward (w, port, 4 * width (w), d_inputs, a->qkvu, (SpWeightSlots){ 0 });
}

static const SpBranch attention = { write_weights, write_forward, write_backward };

void
sp_write_transnormer_layer (SpWriter *w)
{
  sp_write_layer (w, &attention, &(Attention){ 0 });
}
