/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

/* A transformer layer with softmax attention: norm, q k v in one GEMM, rotary embedding, the core, projection, MLP. */

typedef struct {
  SpNormSlots norm;
  SpWeightSlots qkv, qkv_bias, projection;
  SpResidualSlots residual;
  guint8 core_out; /* [rows, heads] after the heads are back */
} Attention;

static gint32
qkv_width (const SpWriter *w)
{
  return (w->heads + 2 * w->kv_heads) * w->head_size;
}

static void
write_weights (SpWriter *w, gpointer attention, const SpLayerSlots *layer)
{
  const gint32 sections[] = { w->heads * w->head_size, w->kv_heads * w->head_size, w->kv_heads * w->head_size };
  Attention *a = attention;

  a->norm = layer->norm;
  a->residual = layer->residual;
  if (w->arch->qkv_bias)
    a->qkv_bias = sp_write_weight (w, "qkv.bias", qkv_width (w), 1, SP_SPLIT_ROWS, sections, 3, FALSE);
  a->qkv = sp_write_weight (w, "qkv", qkv_width (w), w->hidden, SP_SPLIT_ROWS, sections, 3, FALSE);
  a->projection = sp_write_weight (w, "proj", w->hidden, w->heads * w->head_size, SP_SPLIT_COLS, NULL, 0, FALSE);
}

static SpOp *
rope_op (SpWriter *w, SpOpKind kind)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows;
  op->k = w->head_size;
  op->heads = w->heads;
  op->kv_heads = w->kv_heads;
  op->flags = w->arch->rotary ? 0 : SP_OP_NO_ROTATE;
  return op;
}

static guint8
write_forward (SpWriter *w, gpointer attention)
{
  Attention *a = attention;
  gint64 rows = w->rows, head = w->head_size;

  sp_write_norm (w, &a->norm, SP_SLOT_X, w->region_rows, w->hidden);
  guint8 whole = sp_tensor_enter (w, a->norm.y);
  guint8 qkv = sp_write_temporary (w, rows * qkv_width (w));
  sp_write_linear (w, w->rows, qkv_width (w), w->hidden, whole, a->qkv, a->qkv_bias.value, qkv);

  guint8 q = sp_ulysses_operand (w, rows * w->heads * head);
  guint8 k = sp_ulysses_operand (w, rows * w->kv_heads * head);
  guint8 v = sp_ulysses_operand (w, rows * w->kv_heads * head);
  SpOp *op = rope_op (w, SP_OP_ROPE);
  op->in[0] = qkv;
  op->out[0] = q;
  op->out[1] = k;
  op->out[2] = v;
  sp_write_op_done (w, op);

  a->core_out = sp_write_core (w, q, k, v);
  guint8 partial = sp_write_temporary (w, rows * w->hidden);
  sp_write_linear (w, w->rows, w->hidden, w->heads * w->head_size, a->core_out, a->projection, 0, partial);
  guint8 middle = sp_write_stash (w, SP_TIER_KEEP, (gint64) w->region_rows * w->hidden);
  sp_write_residual (w, &a->residual, SP_SLOT_X, sp_tensor_leave (w, partial), middle);
  return middle;
}

static void
write_backward (SpWriter *w, gpointer attention, guint8 d_middle)
{
  Attention *a = attention;
  gint64 rows = w->rows;
  gint32 width = w->heads * w->head_size;
  guint8 dq, dk, dv;

  guint8 whole = sp_tensor_leave_backward (w, sp_write_residual_backward (w, &a->residual, d_middle));
  guint8 d_out = sp_write_temporary (w, rows * width);
  sp_write_linear_dgrad (w, w->rows, w->hidden, width, whole, a->projection, d_out);
  sp_write_linear_wgrad (w, w->rows, w->hidden, width, whole, a->core_out, a->projection);

  sp_write_core_backward (w, d_out, &dq, &dk, &dv);

  guint8 d_qkv = sp_write_temporary (w, rows * qkv_width (w));
  SpOp *op = rope_op (w, SP_OP_ROPE_BWD);
  op->in[0] = dq;
  op->in[1] = dk;
  op->in[2] = dv;
  op->out[0] = d_qkv;
  sp_write_op_done (w, op);

  guint8 d_norm = sp_write_temporary (w, rows * w->hidden);
  sp_write_linear_dgrad (w, w->rows, qkv_width (w), w->hidden, d_qkv, a->qkv, d_norm);
  sp_write_linear_wgrad (w, w->rows, qkv_width (w), w->hidden, d_qkv, sp_tensor_regather (w, a->norm.y), a->qkv);
  sp_write_bias_grad (w, w->rows, qkv_width (w), d_qkv, a->qkv_bias);
  sp_write_norm_backward (w, &a->norm, sp_tensor_enter_backward (w, d_norm), d_middle, SP_SLOT_DX);
}

void
sp_write_softmax_layer (SpWriter *w)
{
  Attention a = { 0 };

  sp_write_layer (w, &(const SpAttentionPart){ write_weights, write_forward, write_backward }, &a);
}
