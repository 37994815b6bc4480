/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

/*
 * Softmax attention: q, k, v in one GEMM, with a gate as wide as q after them where the model has one; norms of query and
 * key heads and the rotary embedding in one kernel; the core; the gate; projection. The gains of those norms are shared
 * by heads that tensor ranks split, so each has a part of their gradient.
 */

typedef struct {
  SpWeightSlots qkv, qkv_bias, projection, q_gain, k_gain, sinks;
  guint8 qkv_rows, head_statistics; /* kept for the gate, and for the norms of heads */
  guint8 core_out;                  /* [rows, heads] after the heads are back */
  guint8 gated;                     /* what the projection reads */
} Attention;

static gint32
q_width (const SpWriter *w)
{
  return w->heads * w->head_size;
}

static gint32
qkv_width (const SpWriter *w)
{
  return (w->arch->attention_gate ? 2 : 1) * q_width (w) + 2 * w->kv_heads * w->head_size;
}

static void
write_weights (SpWriter *w, gpointer self, SpWeightPass pass)
{
  gint32 kv = w->kv_heads * w->head_size;
  const gint32 sections[] = { q_width (w), kv, kv, q_width (w) };
  guint n_sections = w->arch->attention_gate ? 4 : 3;
  Attention *a = self;

  if (pass == SP_WEIGHTS_PARTIAL && w->arch->qk_norm) {
    a->q_gain = sp_write_weight (w, "q.norm", 1, w->head_size, SP_SPLIT_NONE, NULL, 0, w->layout->tensor > 1);
    a->k_gain = sp_write_weight (w, "k.norm", 1, w->head_size, SP_SPLIT_NONE, NULL, 0, w->layout->tensor > 1);
  }
  if (pass != SP_WEIGHTS_OWN)
    return;
  if (w->arch->sinks)
    a->sinks = sp_write_weight (w, "sinks", w->heads, 1, SP_SPLIT_ROWS, NULL, 0, FALSE);
  if (w->arch->qkv_bias)
    a->qkv_bias = sp_write_weight (w, "qkv.bias", qkv_width (w), 1, SP_SPLIT_ROWS, sections, n_sections, FALSE);
  a->qkv = sp_write_weight (w, "qkv", qkv_width (w), w->hidden, SP_SPLIT_ROWS, sections, n_sections, FALSE);
  sp_lora_attach (w, &a->qkv, (const guint8[]){ SP_LORA_Q, SP_LORA_K, SP_LORA_V, SP_LORA_Q });
  a->projection = sp_write_weight (w, "proj", w->hidden, q_width (w), SP_SPLIT_COLS, NULL, 0, FALSE);
  sp_lora_attach (w, &a->projection, (const guint8[]){ SP_LORA_O });
}

static SpOp *
rope_op (SpWriter *w, SpOpKind kind)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows;
  op->n = w->arch->rotary ? w->arch->rotary_size : 0;
  op->k = w->head_size;
  op->heads = w->heads;
  op->kv_heads = w->kv_heads;
  op->flags = (w->arch->rotary ? 0 : SP_OP_NO_ROTATE) | (w->arch->attention_gate ? SP_OP_GATED : 0);
  return op;
}

static void
write_rope (SpWriter *w, Attention *a, guint8 q, guint8 k, guint8 v)
{
  if (a->q_gain.value)
    a->head_statistics =
        sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_FP32, (gint64) w->rows * (w->heads + w->kv_heads));
  SpOp *op = rope_op (w, SP_OP_ROPE);
  op->in[0] = a->qkv_rows;
  op->in[1] = a->q_gain.value;
  op->in[2] = a->k_gain.value;
  op->out[0] = q;
  op->out[1] = k;
  op->out[2] = v;
  op->out[3] = a->head_statistics;
  sp_write_op_done (w, op);
}

static SpRows
write_forward (SpWriter *w, gpointer self, SpPort *port)
{
  Attention *a = self;
  gint64 rows = w->rows, head = w->head_size;
  gboolean kept = w->arch->qk_norm || w->arch->attention_gate;

  guint8 whole = sp_branch_whole (w, port);
  a->qkv_rows =
      kept ? sp_write_stash (w, SP_TIER_KEEP, rows * qkv_width (w)) : sp_write_temporary (w, rows * qkv_width (w));
  sp_write_autocast (w, whole, w->rows, w->hidden, 3);
  sp_write_linear (w, w->rows, qkv_width (w), w->hidden, whole, a->qkv, a->qkv_bias.value, a->qkv_rows);

  guint8 q = sp_ulysses_operand (w, rows * w->heads * head);
  guint8 k = sp_ulysses_key_operand (w, 0, rows * w->kv_heads * head);
  guint8 v = sp_ulysses_key_operand (w, 1, rows * w->kv_heads * head);
  write_rope (w, a, q, k, v);

  w->slots.sinks = a->sinks;
  a->gated = a->core_out = sp_write_core (w, q, k, v);
  if (w->arch->attention_gate) {
    a->gated = sp_write_stash (w, SP_TIER_ELEMENTWISE, rows * q_width (w));
    sp_write_gate (w, SP_OP_GATE, q_width (w), qkv_width (w), (const guint8[]){ a->core_out, a->qkv_rows, 0 }, a->gated,
                   0, 0);
  }
  if (w->framework->attention_copied) {
    guint8 copy = sp_write_stash (w, SP_TIER_KEEP, rows * q_width (w));
    sp_write_rows (w, SP_OP_COPY, w->rows, q_width (w), a->gated, 0, 0, copy, 0, 0);
    a->gated = copy;
  }
  guint8 partial = sp_write_temporary (w, rows * w->hidden);
  sp_write_linear (w, w->rows, w->hidden, q_width (w), a->gated, a->projection, 0, partial);
  return (SpRows){ partial, TRUE };
}

static void
write_rope_backward (SpWriter *w, const Attention *a, guint8 dq, guint8 dk, guint8 dv, guint8 du, guint8 d_qkv)
{
  SpOp *op = rope_op (w, SP_OP_ROPE_BWD);

  op->in[0] = dq;
  op->in[1] = dk;
  op->in[2] = dv;
  op->in[3] = du;
  op->out[0] = d_qkv;
  if (a->q_gain.value) {
    op->in[4] = a->qkv_rows;
    op->in[5] = a->head_statistics;
    op->in[6] = a->q_gain.value;
    op->in[7] = a->k_gain.value;
    op->out[1] = a->q_gain.grad;
    op->out[2] = a->k_gain.grad;
  }
  sp_write_op_done (w, op);
}

static SpRows
write_backward (SpWriter *w, gpointer self, SpPort *port)
{
  Attention *a = self;
  gint64 rows = w->rows;
  guint8 dq, dk, dv, du = 0;

  guint8 whole = sp_branch_d_whole (w, port);
  guint8 d_out = sp_write_temporary (w, rows * q_width (w));
  sp_write_linear_dgrad (w, w->rows, w->hidden, q_width (w), whole, a->projection, d_out);
  sp_write_linear_wgrad (w, w->rows, w->hidden, q_width (w), whole, a->gated, a->projection);
  if (w->arch->attention_gate) {
    guint8 d_gated = d_out;
    d_out = sp_write_temporary (w, rows * q_width (w));
    du = sp_write_temporary (w, rows * q_width (w));
    sp_write_gate (w, SP_OP_GATE_BWD, q_width (w), qkv_width (w), (const guint8[]){ d_gated, a->core_out, a->qkv_rows },
                   d_out, du, 0);
  }

  sp_write_core_backward (w, d_out, &dq, &dk, &dv);

  guint8 d_qkv = sp_write_temporary (w, rows * qkv_width (w));
  write_rope_backward (w, a, dq, dk, dv, du, d_qkv);
  return sp_branch_input_backward (w, port, qkv_width (w), d_qkv, a->qkv, a->qkv_bias);
}

static const SpBranch attention = { write_weights, write_forward, write_backward };

void
sp_write_softmax_layer (SpWriter *w)
{
  if (w->arch->latent.kv_rank > 0)
    sp_write_latent_layer (w);
  else
    sp_write_layer (w, &attention, &(Attention){ 0 });
}
