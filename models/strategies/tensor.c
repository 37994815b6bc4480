/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"

/*
 * Tensor parallelism (Shoeybi et al., 1909.08053), with sequence regions (Korthikanti et al., 2205.05198): heads and
 * the MLP's width are split; with regions the rows between are split too, an all-reduce becomes a reduce-scatter and an
 * all-gather, and what the weight gradient reads is gathered again in the backward instead of being kept.
 */

static gboolean
is_split (const SpWriter *w)
{
  return w->layout->tensor > 1;
}

gboolean
sp_tensor_overlaps (const SpWriter *w)
{
  return is_split (w) && w->framework->overlaps_tensor && w->layout->overlap;
}

static guint
beside_products (const SpWriter *w)
{
  return sp_tensor_overlaps (w) ? SP_OP_ASYNC : 0;
}

static void
collective (SpWriter *w, SpOpKind kind, guint8 in, guint8 out, guint flags)
{
  sp_write_collective (w, kind, SP_GROUP_TENSOR, SP_AXIS_TENSOR, SP_STREAM_TENSOR, in, out, flags);
}

static guint8
gather (SpWriter *w, guint8 rows, guint flags)
{
  if (!w->program->sequence_regions)
    return rows;
  guint8 whole = sp_write_temporary (w, w->block->buffers[rows].elements * w->layout->tensor);
  collective (w, SP_OP_ALL_GATHER, rows, whole, flags);
  return whole;
}

static guint8
sum (SpWriter *w, guint8 partial, guint flags)
{
  if (!is_split (w))
    return partial;
  if (!w->program->sequence_regions) {
    collective (w, SP_OP_ALL_REDUCE, partial, partial, flags);
    return partial;
  }
  guint8 rows = sp_write_temporary (w, w->block->buffers[partial].elements / w->layout->tensor);
  collective (w, SP_OP_REDUCE_SCATTER, partial, rows, flags);
  return rows;
}

guint8
sp_tensor_enter (SpWriter *w, guint8 rows)
{
  return gather (w, rows, 0);
}

guint8
sp_tensor_leave (SpWriter *w, guint8 partial)
{
  return sum (w, partial, 0);
}

guint8
sp_tensor_leave_backward (SpWriter *w, guint8 d_rows)
{
  return gather (w, d_rows, 0);
}

guint8
sp_tensor_enter_backward (SpWriter *w, guint8 d_partial)
{
  return sum (w, d_partial, beside_products (w));
}

guint8
sp_tensor_regather (SpWriter *w, guint8 rows)
{
  return gather (w, rows, SP_OP_WEIGHT | beside_products (w));
}

gboolean
sp_tensor_keeps (SpWriter *w, guint8 rows, guint8 whole)
{
  if (!w->framework->keeps_whole || whole == rows)
    return FALSE;
  sp_write_keep (w, whole, SP_TIER_KEEP);
  return TRUE;
}

void
sp_tensor_sum (SpWriter *w, guint8 vector, guint flags)
{
  if (is_split (w))
    sp_write_collective (w, SP_OP_ALL_REDUCE, SP_GROUP_TENSOR, SP_AXIS_TENSOR, SP_STREAM_TENSOR, vector, vector, flags);
}

void
sp_tensor_gather_columns (SpWriter *w, gint32 rows, gint32 columns, guint8 part, guint8 whole)
{
  gint32 n = w->layout->tensor;
  guint8 parts = sp_write_buffer (w, w->block->buffers[part].class, w->block->buffers[part].dtype, SP_LIFE_SEGMENT,
                                  (gint64) rows * columns * n);

  collective (w, SP_OP_ALL_GATHER, part, parts, 0);
  SpOp *op = sp_write_op (w, SP_OP_UNPACK);
  op->m = rows;
  op->n = op->heads = n;
  op->k = columns;
  op->group = SP_GROUP_TENSOR;
  op->in[0] = parts;
  op->out[0] = whole;
  sp_write_op_done (w, op);
}

void
sp_tensor_own_columns (SpWriter *w, gint32 rows, gint32 columns, guint8 whole, guint8 part)
{
  SpOp *op = sp_write_op (w, SP_OP_PART);

  op->m = rows;
  op->n = columns;
  op->group = SP_GROUP_TENSOR;
  op->in[0] = whole;
  op->out[0] = part;
  op->bytes = 2 * w->block->buffers[part].bytes; /* what it takes of `whole` alone moves */
  sp_write_op_done (w, op);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static gboolean
heads_divide (const SpCase *c)
{
  return !sp_architecture_has (c->arch, SP_LAYER_SOFTMAX) ||
         (c->arch->heads % c->layout->tensor == 0 && c->arch->kv_heads % c->layout->tensor == 0);
}

static void
explain_heads (const SpCase *c, GString *out)
{
  g_string_append_printf (out, "tensor = %d must divide the %d query heads and the %d key/value heads; legal: ",
                          c->layout->tensor, c->arch->heads, c->arch->kv_heads);
  sp_rule_nearest (c, G_STRUCT_OFFSET (SpLayout, tensor), c->arch->heads, heads_divide, out);
}

/* The key heads too: Megatron-Core's rule for Mamba-2's groups. Those of a scan are made on every rank. */
static gboolean
linear_heads_divide (const SpCase *c)
{
  SpLinearShape l = sp_architecture_linear (c->arch);

  return !sp_architecture_has (c->arch, SP_LAYER_LINEAR) ||
         (l.heads % c->layout->tensor == 0 &&
          (l.family == SP_LINEAR_MAMBA || l.key_heads % c->layout->tensor == 0));
}

static void
explain_linear_heads (const SpCase *c, GString *out)
{
  SpLinearShape l = sp_architecture_linear (c->arch);

  g_string_append_printf (out, "tensor = %d must divide the %d heads of linear layers", c->layout->tensor, l.heads);
  if (l.key_heads < l.heads && l.family != SP_LINEAR_MAMBA)
    g_string_append_printf (out, " and their %d key heads (Mamba's groups)", l.key_heads);
  g_string_append (out, "; legal: ");
  sp_rule_nearest (c, G_STRUCT_OFFSET (SpLayout, tensor), l.heads, linear_heads_divide, out);
}

static gboolean
width_divides (const SpCase *c)
{
  return c->arch->ffn % c->layout->tensor == 0;
}

static void
explain_width (const SpCase *c, GString *out)
{
  g_string_append_printf (out, "tensor = %d must divide the MLP width %d; legal: ", c->layout->tensor, c->arch->ffn);
  sp_rule_nearest (c, G_STRUCT_OFFSET (SpLayout, tensor), c->arch->heads, width_divides, out);
}

static const SpRule rules[] = {
  { "tensor-heads", heads_divide, explain_heads },
  { "tensor-linear-heads", linear_heads_divide, explain_linear_heads },
  { "tensor-width", width_divides, explain_width },
};

const SpStrategy sp_strategy_tensor = {
  "tensor", SP_AXIS_TENSOR,       "heads and MLP width split; with sequence regions the rows between are split too",
  rules,    G_N_ELEMENTS (rules), NULL,
};
