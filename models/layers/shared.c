/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

#include <string.h>

/* What every kind of layer has: norms, the residual, the MLP. */

/* --- norm --------------------------------------------------------------------------------------------------------- */

void
sp_write_norm_weights (SpWriter *w, SpNormSlots *norm, const char *name)
{
  char bias_name[12];
  gboolean partial = w->program->sequence_regions;

  *norm = (SpNormSlots){ 0 };
  if (w->arch->norm == SP_NORM_RMS_NO_GAIN)
    return;
  norm->gain = sp_write_weight (w, name, 1, w->hidden, SP_SPLIT_NONE, NULL, 0, partial);
  if (w->arch->norm == SP_NORM_LAYER) {
    g_snprintf (bias_name, sizeof bias_name, "%s.bias", name);
    norm->bias = sp_write_weight (w, bias_name, 1, w->hidden, SP_SPLIT_NONE, NULL, 0, partial);
  }
}

static guint
norm_flags (const SpWriter *w)
{
  return w->arch->norm == SP_NORM_LAYER ? SP_OP_LAYERNORM : 0;
}

void
sp_write_norm (SpWriter *w, SpNormSlots *norm, guint8 x, gint32 rows, gint32 features)
{
  norm->x = x;
  norm->rows = rows;
  norm->features = features;
  norm->y = sp_write_stash (w, SP_TIER_ELEMENTWISE, (gint64) rows * features);
  norm->statistics = sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_FP32, (gint64) rows * (norm_flags (w) ? 2 : 1));

  SpOp *op = sp_write_op (w, SP_OP_NORM);
  op->m = rows;
  op->n = op->k = features;
  op->in[0] = x;
  op->in[1] = norm->gain.value;
  op->in[2] = norm->bias.value;
  op->out[0] = norm->y;
  op->out[1] = norm->statistics;
  op->flags = norm_flags (w);
  sp_write_op_done (w, op);
}

void
sp_write_norm_backward (SpWriter *w, const SpNormSlots *norm, guint8 dy, guint8 residual, guint8 dx)
{
  SpOp *op = sp_write_op (w, SP_OP_NORM_BWD);

  op->m = norm->rows;
  op->n = op->k = norm->features;
  op->in[0] = dy;
  op->in[1] = norm->x;
  op->in[2] = norm->statistics;
  op->in[3] = norm->gain.value;
  op->in[4] = residual;
  op->out[0] = dx;
  op->out[1] = norm->gain.grad;
  op->out[2] = norm->bias.grad;
  op->flags = norm_flags (w);
  sp_write_op_done (w, op);
}

/* --- residual ----------------------------------------------------------------------------------------------------- */

void
sp_write_residual (SpWriter *w, SpResidualSlots *r, guint8 x, guint8 branch, guint8 y)
{
  gint32 rows = w->region_rows, n = w->hidden;
  guint8 bias = r->bias.value;

  if (w->arch->dropout > 0) {
    guint8 dropped = sp_write_temporary (w, (gint64) rows * n);
    r->mask = sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_UINT8, (gint64) rows * n);
    sp_write_rows (w, SP_OP_DROPOUT, rows, n, branch, bias, 0, dropped, r->mask, 0);
    branch = dropped;
    bias = 0;
  }
  sp_write_rows (w, SP_OP_ADD, rows, n, x, branch, bias, y, 0, 0);
}

guint8
sp_write_residual_backward (SpWriter *w, const SpResidualSlots *r, guint8 dy)
{
  gint32 rows = w->region_rows, n = w->hidden;
  guint8 d = dy;

  if (w->arch->dropout > 0) {
    d = sp_write_temporary (w, (gint64) rows * n);
    sp_write_rows (w, SP_OP_DROPOUT_BWD, rows, n, dy, r->mask, 0, d, 0, 0);
  }
  sp_write_bias_grad (w, rows, n, d, r->bias);
  return d;
}

/* --- MLP ---------------------------------------------------------------------------------------------------------- */

typedef struct {
  SpNormSlots norm;
  SpExpertSlots experts; /* of a layer that has them, in the place of what follows */
  SpWeightSlots up, up_bias, down;
  SpResidualSlots residual;
  guint8 x, gate_up, act;
} Mlp;

static gboolean
has_experts (const SpWriter *w)
{
  return (w->traits & SP_LAYER_EXPERTS) != 0;
}

static gboolean
is_gated (const SpWriter *w)
{
  return w->arch->mlp != SP_MLP_GELU;
}

static void
write_mlp_weights (SpWriter *w, Mlp *mlp)
{
  gint32 up = is_gated (w) ? 2 * w->ffn : w->ffn;
  const gint32 sections[] = { w->ffn, w->ffn };

  if (w->arch->mlp_bias)
    mlp->up_bias = sp_write_weight (w, "up.bias", up, 1, SP_SPLIT_ROWS, sections, is_gated (w) ? 2 : 1, FALSE);
  mlp->up = sp_write_weight (w, "up", up, w->hidden, SP_SPLIT_ROWS, sections, is_gated (w) ? 2 : 1, FALSE);
  mlp->down = sp_write_weight (w, "down", w->hidden, w->ffn, SP_SPLIT_COLS, NULL, 0, FALSE);
}

static void
write_mlp (SpWriter *w, Mlp *mlp, guint8 x, guint8 y)
{
  gint32 up = is_gated (w) ? 2 * w->ffn : w->ffn;

  mlp->x = x;
  sp_write_norm (w, &mlp->norm, x, w->region_rows, w->hidden);
  if (has_experts (w)) {
    sp_write_residual (w, &mlp->residual, x, sp_write_experts (w, &mlp->experts, mlp->norm.y), y);
    return;
  }
  guint8 whole = sp_tensor_enter (w, mlp->norm.y);
  mlp->gate_up = sp_write_stash (w, SP_TIER_KEEP, (gint64) w->rows * up);
  sp_write_linear (w, w->rows, up, w->hidden, whole, mlp->up, mlp->up_bias.value, mlp->gate_up);
  mlp->act = sp_write_stash (w, SP_TIER_ELEMENTWISE, (gint64) w->rows * w->ffn);
  sp_write_rows (w, is_gated (w) ? SP_OP_GLU : SP_OP_GELU, w->rows, w->ffn, mlp->gate_up, 0, 0, mlp->act, 0,
                 w->arch->mlp == SP_MLP_LINEAR_GLU ? SP_OP_LINEAR_GATE : 0);
  guint8 partial = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  sp_write_linear (w, w->rows, w->hidden, w->ffn, mlp->act, mlp->down, 0, partial);
  sp_write_residual (w, &mlp->residual, x, sp_tensor_leave (w, partial), y);
}

static void
write_mlp_backward (SpWriter *w, Mlp *mlp, guint8 dy, guint8 dx)
{
  gint32 up = is_gated (w) ? 2 * w->ffn : w->ffn;

  guint8 d = sp_write_residual_backward (w, &mlp->residual, dy);
  if (has_experts (w)) {
    sp_write_norm_backward (w, &mlp->norm, sp_write_experts_backward (w, &mlp->experts, mlp->norm.y, d), dy, dx);
    return;
  }
  guint8 whole = sp_tensor_leave_backward (w, d);
  guint8 d_act = sp_write_temporary (w, (gint64) w->rows * w->ffn);
  sp_write_linear_dgrad (w, w->rows, w->hidden, w->ffn, whole, mlp->down, d_act);
  sp_write_linear_wgrad (w, w->rows, w->hidden, w->ffn, whole, mlp->act, mlp->down);
  guint8 d_up = sp_write_temporary (w, (gint64) w->rows * up);
  sp_write_rows (w, is_gated (w) ? SP_OP_GLU_BWD : SP_OP_GELU_BWD, w->rows, w->ffn, d_act, mlp->gate_up, 0, d_up, 0,
                 w->arch->mlp == SP_MLP_LINEAR_GLU ? SP_OP_LINEAR_GATE : 0);
  guint8 d_norm = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  sp_write_linear_dgrad (w, w->rows, up, w->hidden, d_up, mlp->up, d_norm);
  sp_write_linear_wgrad (w, w->rows, up, w->hidden, d_up, sp_tensor_regather (w, mlp->norm.y), mlp->up);
  sp_write_bias_grad (w, w->rows, up, d_up, mlp->up_bias);
  sp_write_norm_backward (w, &mlp->norm, sp_tensor_enter_backward (w, d_norm), dy, dx);
}

/* --- the attention core ------------------------------------------------------------------------------------------- */

guint8
sp_write_core (SpWriter *w, guint8 q, guint8 k, guint8 v)
{
  w->flags = SP_OP_CORE;
  sp_ulysses_enter (w, q, k, v);
  w->core->forward (w, &w->slots);
  guint8 out = sp_ulysses_leave (w, w->slots.o);
  w->flags = 0;
  return out;
}

void
sp_write_core_backward (SpWriter *w, guint8 d_out, guint8 *ret_dq, guint8 *ret_dk, guint8 *ret_dv)
{
  w->flags = SP_OP_CORE;
  sp_ulysses_leave_backward (w, d_out);
  w->core->backward (w, &w->slots);
  sp_ulysses_enter_backward (w, ret_dq, ret_dk, ret_dv);
  w->flags = 0;
}

/* --- a layer ------------------------------------------------------------------------------------------------------ */

static void
write_bias (SpWriter *w, const char *name, gboolean there, SpResidualSlots *residual)
{
  if (there)
    residual->bias = sp_write_weight (w, name, 1, w->hidden, SP_SPLIT_NONE, NULL, 0, w->program->sequence_regions);
}

void
sp_write_layer (SpWriter *w, const SpAttentionPart *part, gpointer attention)
{
  SpLayerSlots layer = { 0 };
  Mlp mlp = { 0 };

  if (has_experts (w))
    sp_write_expert_partial_weights (w, &mlp.experts);
  sp_write_norm_weights (w, &layer.norm, "norm1");
  sp_write_norm_weights (w, &mlp.norm, "norm2");
  write_bias (w, "proj.bias", w->arch->projection_bias, &layer.residual);
  write_bias (w, "down.bias", w->arch->mlp_bias && !has_experts (w), &mlp.residual);
  part->weights (w, attention, &layer);
  if (has_experts (w))
    sp_write_expert_weights (w, &mlp.experts);
  else
    write_mlp_weights (w, &mlp);
  sp_zero_end_weights (w, &(const SpTied){ 0 });
  if (w->state_only)
    return;

  sp_write_begin (w, SP_PHASE_FORWARD);
  sp_offload_input (w);
  write_mlp (w, &mlp, part->forward (w, attention), SP_SLOT_Y);
  sp_write_end (w);

  sp_write_begin (w, SP_PHASE_BACKWARD);
  guint8 d_middle = sp_write_temporary (w, (gint64) w->region_rows * w->hidden);
  write_mlp_backward (w, &mlp, SP_SLOT_DY, d_middle);
  part->backward (w, attention, d_middle);
  sp_write_end (w);
}
