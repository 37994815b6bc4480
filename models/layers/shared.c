/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

#include <string.h>

/* What the layers share: norms, the residual, the gate, the attention core and that of recurrences. */

/* --- norm --------------------------------------------------------------------------------------------------------- */

void
sp_write_norm_weights (SpWriter *w, SpNormSlots *norm, const char *name, gint32 features)
{
  char bias_name[12];
  gboolean partial = w->program->sequence_regions;

  *norm = (SpNormSlots){ 0 };
  if (w->arch->norm == SP_NORM_RMS_NO_GAIN)
    return;
  norm->gain = sp_write_weight (w, name, 1, features, SP_SPLIT_NONE, NULL, 0, partial);
  if (w->arch->norm == SP_NORM_LAYER) {
    norm->flags = SP_OP_LAYERNORM;
    g_snprintf (bias_name, sizeof bias_name, "%s.bias", name);
    norm->bias = sp_write_weight (w, bias_name, 1, features, SP_SPLIT_NONE, NULL, 0, partial);
  }
}

void
sp_write_norm_to (SpWriter *w, SpNormSlots *norm, guint8 x, gint32 rows, gint32 features, guint8 y)
{
  norm->x = x;
  norm->y = y;
  norm->rows = rows;
  norm->features = features;
  norm->statistics = sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_FP32, (gint64) rows * (norm->flags ? 2 : 1));

  SpOp *op = sp_write_op (w, SP_OP_NORM);
  op->m = rows;
  op->n = op->k = features;
  op->in[0] = x;
  op->in[1] = norm->gain.value;
  op->in[2] = norm->bias.value;
  op->out[0] = norm->y;
  op->out[1] = norm->statistics;
  op->flags = norm->flags;
  sp_write_op_done (w, op);
}

void
sp_write_norm (SpWriter *w, SpNormSlots *norm, guint8 x, gint32 rows, gint32 features)
{
  sp_write_norm_to (w, norm, x, rows, features, sp_write_stash (w, SP_TIER_ELEMENTWISE, (gint64) rows * features));
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
  op->flags = norm->flags;
  sp_write_op_done (w, op);
}

/* --- a norm of split rows ----------------------------------------------------------------------------------------- */

static SpOp *
row_norm_op (SpWriter *w, SpOpKind kind, const SpNormSlots *norm)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = norm->rows;
  op->n = norm->features;
  op->k = norm->features * w->layout->tensor;
  return op;
}

void
sp_write_row_norm (SpWriter *w, SpNormSlots *norm, guint8 x, gint32 features)
{
  guint8 squares = 0;

  norm->x = x;
  norm->rows = w->rows;
  norm->features = features;
  norm->y = sp_write_stash (w, SP_TIER_ELEMENTWISE, (gint64) w->rows * features);
  norm->statistics = sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_FP32, w->rows);
  if (w->layout->tensor > 1) {
    squares = sp_write_temporary_of (w, SP_DTYPE_FP32, w->rows);
    sp_write_rows (w, SP_OP_NORM_STAT, w->rows, features, x, 0, 0, squares, 0, 0);
    sp_tensor_sum (w, squares, 0);
  }
  SpOp *op = row_norm_op (w, SP_OP_NORM, norm);
  op->in[0] = x;
  op->in[1] = norm->gain.value;
  op->in[3] = squares;
  op->out[0] = norm->y;
  op->out[1] = norm->statistics;
  sp_write_op_done (w, op);
}

void
sp_write_row_norm_backward (SpWriter *w, const SpNormSlots *norm, guint8 dy, guint8 dx)
{
  guint8 dot = 0;

  if (w->layout->tensor > 1) {
    dot = sp_write_temporary_of (w, SP_DTYPE_FP32, w->rows);
    sp_write_rows (w, SP_OP_NORM_STAT_BWD, w->rows, norm->features, dy, norm->x, norm->gain.value, dot, 0, 0);
    sp_tensor_sum (w, dot, 0);
  }
  SpOp *op = row_norm_op (w, SP_OP_NORM_BWD, norm);
  op->in[0] = dy;
  op->in[1] = norm->x;
  op->in[2] = norm->statistics;
  op->in[3] = norm->gain.value;
  op->in[5] = dot;
  op->out[0] = dx;
  op->out[1] = norm->gain.grad;
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

/* --- gate --------------------------------------------------------------------------------------------------------- */

void
sp_write_gate (SpWriter *w, SpOpKind kind, gint32 n, gint32 gates_width, const guint8 in[3], guint8 out0, guint8 out1,
               guint flags)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows;
  op->n = n;
  op->k = gates_width;
  for (guint i = 0; i < 3; i++)
    op->in[i] = in[i];
  op->out[0] = out0;
  op->out[1] = out1;
  op->flags = flags;
  sp_write_op_done (w, op);
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

/* --- the core of a recurrence ------------------------------------------------------------------------------------- */

/* Features of a head that decay apart. */
static gint32
gate_size (const SpCoreSlots *c, const SpLinearShape *s)
{
  return c->rule & SP_OP_FEATURE_DECAY ? s->key_size : 1;
}

guint8
sp_write_recurrent_core (SpWriter *w, const SpLinearShape *s)
{
  SpCoreSlots *c = &w->slots;

  w->flags = SP_OP_CORE;
  c->key_size = s->key_size;
  c->value_size = s->value_size;
  sp_ulysses_shape (w, s->heads, s->key_heads);
  c->q = sp_ulysses_heads_out (w, s->key_heads, s->key_size, c->q, TRUE);
  c->k = sp_ulysses_heads_out (w, s->key_heads, s->key_size, c->k, TRUE);
  c->v = sp_ulysses_heads_out (w, s->heads, s->value_size, c->v, TRUE);
  c->gates = c->gates ? sp_ulysses_heads_out (w, s->heads, gate_size (c, s), c->gates, TRUE) : 0;
  c->beta = c->beta ? sp_ulysses_heads_out (w, s->heads, 1, c->beta, TRUE) : 0;
  w->core->forward (w, c);
  guint8 out = sp_ulysses_heads_back (w, s->heads, s->value_size, c->o, TRUE);
  w->flags = 0;
  return out;
}

void
sp_write_recurrent_core_backward (SpWriter *w, const SpLinearShape *s, guint8 d_out)
{
  SpCoreSlots *c = &w->slots;

  w->flags = SP_OP_CORE;
  c->d_o = sp_ulysses_heads_out (w, s->heads, s->value_size, d_out, FALSE);
  w->core->backward (w, c);
  c->dq = sp_ulysses_heads_back (w, s->key_heads, s->key_size, c->dq, FALSE);
  c->dk = sp_ulysses_heads_back (w, s->key_heads, s->key_size, c->dk, FALSE);
  c->dv = sp_ulysses_heads_back (w, s->heads, s->value_size, c->dv, FALSE);
  c->d_gates = c->d_gates ? sp_ulysses_heads_back (w, s->heads, gate_size (c, s), c->d_gates, FALSE) : 0;
  c->d_beta = c->d_beta ? sp_ulysses_heads_back (w, s->heads, 1, c->d_beta, FALSE) : 0;
  w->flags = 0;
}

static SpOp *
skip_op (SpWriter *w, SpOpKind kind, const SpLinearShape *s, SpWeightSlots scale, guint8 v)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows;
  op->n = s->value_size;
  op->heads = s->heads;
  op->in[1] = v;
  op->in[2] = scale.value;
  return op;
}

void
sp_write_skip (SpWriter *w, const SpLinearShape *s, SpWeightSlots scale, guint8 v, guint8 out)
{
  SpOp *op = skip_op (w, SP_OP_SKIP, s, scale, v);

  op->in[0] = op->out[0] = out;
  sp_write_op_done (w, op);
}

guint8
sp_write_skip_backward (SpWriter *w, const SpLinearShape *s, SpWeightSlots scale, guint8 v, guint8 d_out, guint8 dv)
{
  guint8 sum = sp_write_temporary (w, (gint64) w->rows * s->heads * s->value_size);
  SpOp *op = skip_op (w, SP_OP_SKIP_BWD, s, scale, v);

  op->in[0] = d_out;
  op->in[3] = dv;
  op->out[0] = sum;
  op->out[1] = scale.grad;
  sp_write_op_done (w, op);
  return sum;
}
