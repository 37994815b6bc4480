/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"

/*
 * DeepSpeed-Ulysses (Jacobs et al., 2309.14509): before the attention core an all-to-all gives each rank all tokens of
 * the group and its part of the heads, after it another one gives them back. K/V heads that are fewer than the ranks
 * are repeated, so that each rank gets the one that its query heads use; their gradients are summed on the way back.
 */

static gint32
degree (const SpWriter *w)
{
  return w->program->groups[w->exchange].size;
}

/* Parts that a tensor of `heads` heads is cut into, and the features of one. */
static gint32
parts_of (const SpWriter *w, gint32 heads)
{
  return MIN (heads, degree (w));
}

static void
pack (SpWriter *w, SpOpKind kind, gint32 heads, gint32 size, guint8 in, guint8 out)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows;
  op->n = degree (w);
  op->heads = parts_of (w, heads);
  op->k = heads / op->heads * size;
  op->group = w->exchange;
  op->in[0] = in;
  op->out[0] = out;
  sp_write_op_done (w, op);
}

static gint64
exchanged_elements (const SpWriter *w, gint32 heads, gint32 size)
{
  return (gint64) w->rows * degree (w) * (heads / parts_of (w, heads)) * size;
}

static void
all_to_all (SpWriter *w, guint8 in, guint8 out)
{
  sp_write_collective (w, SP_OP_ALL_TO_ALL, w->exchange, SP_AXIS_ULYSSES, SP_STREAM_SEQUENCE, in, out, 0);
}

static guint8
result_of (SpWriter *w, guint8 in, gint64 elements, gboolean keep)
{
  SpDtype dtype = w->block->buffers[in].dtype;

  return keep ? sp_write_stash_of (w, SP_TIER_KEEP, dtype, elements) : sp_write_temporary_of (w, dtype, elements);
}

/* [rows, heads] -> [rows x degree, heads / degree]. */
static void
heads_out (SpWriter *w, gint32 heads, gint32 size, guint8 in, guint8 out)
{
  guint8 packed = result_of (w, in, exchanged_elements (w, heads, size), FALSE);

  pack (w, SP_OP_PACK, heads, size, in, packed);
  all_to_all (w, packed, out);
}

guint8
sp_ulysses_heads_out (SpWriter *w, gint32 heads, gint32 size, guint8 in, gboolean keep)
{
  if (degree (w) == 1)
    return in;
  guint8 out = result_of (w, in, exchanged_elements (w, heads, size), keep);
  heads_out (w, heads, size, in, out);
  return out;
}

/* Of keys or values, which a slice has among its sequence's. */
static guint8
keys_out (SpWriter *w, guint which, gint32 heads, gint32 size, guint8 in)
{
  if (degree (w) == 1 || !sp_slices_are (w))
    return sp_ulysses_heads_out (w, heads, size, in, TRUE);
  guint8 out = sp_slices_operand (w, which, exchanged_elements (w, heads, size));
  heads_out (w, heads, size, in, out);
  return out;
}

guint8
sp_ulysses_heads_back (SpWriter *w, gint32 heads, gint32 size, guint8 in, gboolean keep)
{
  if (degree (w) == 1)
    return in;
  guint8 out = result_of (w, in, (gint64) w->rows * heads * size, keep);
  guint8 received = result_of (w, in, exchanged_elements (w, heads, size), FALSE);
  all_to_all (w, in, received);
  pack (w, SP_OP_UNPACK, heads, size, received, out);
  return out;
}

guint8
sp_ulysses_operand (SpWriter *w, gint64 elements)
{
  return degree (w) > 1 ? sp_write_temporary (w, elements) : sp_write_stash (w, SP_TIER_KEEP, elements);
}

guint8
sp_ulysses_key_operand (SpWriter *w, guint which, gint64 elements)
{
  if (degree (w) == 1 && sp_slices_are (w))
    return sp_slices_operand (w, which, elements);
  return sp_ulysses_operand (w, elements);
}

static gint32
kv_heads_of (const SpWriter *w)
{
  return w->block->kind == SP_BLOCK_LINEAR ? w->heads : w->kv_heads;
}

void
sp_ulysses_shape (SpWriter *w, gint32 heads, gint32 kv_heads)
{
  w->slots.tokens = w->rows / w->batch * degree (w);
  w->slots.heads = heads / degree (w);
  w->slots.kv_heads = kv_heads / parts_of (w, kv_heads);
}

void
sp_ulysses_enter (SpWriter *w, guint8 q, guint8 k, guint8 v)
{
  SpCoreSlots *c = &w->slots;
  gint32 kv = kv_heads_of (w);

  sp_ulysses_shape (w, w->heads, kv);
  c->key_size = w->head_size;
  c->value_size = w->value_size;
  c->q = sp_ulysses_heads_out (w, w->heads, w->head_size, q, TRUE);
  c->k = keys_out (w, 0, kv, w->head_size, k);
  c->v = keys_out (w, 1, kv, w->value_size, v);
}

guint8
sp_ulysses_leave (SpWriter *w, guint8 o)
{
  return sp_ulysses_heads_back (w, w->heads, w->value_size, o, TRUE);
}

void
sp_ulysses_leave_backward (SpWriter *w, guint8 d_o)
{
  w->slots.d_o = sp_ulysses_heads_out (w, w->heads, w->value_size, d_o, FALSE);
}

void
sp_ulysses_enter_backward (SpWriter *w, guint8 *ret_dq, guint8 *ret_dk, guint8 *ret_dv)
{
  gint32 kv = kv_heads_of (w);

  *ret_dq = sp_ulysses_heads_back (w, w->heads, w->head_size, w->slots.dq, FALSE);
  *ret_dk = sp_ulysses_heads_back (w, kv, w->head_size, w->slots.dk, FALSE);
  *ret_dv = sp_ulysses_heads_back (w, kv, w->value_size, w->slots.dv, FALSE);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

/* Without softmax layers these are the ranks of linear layers, whose rule is below. */
static gboolean
heads_divide (const SpCase *c)
{
  gint32 heads = c->arch->heads / c->layout->tensor, kv = c->arch->kv_heads / c->layout->tensor;
  gint32 p = c->layout->ulysses;

  if (!sp_architecture_has (c->arch, SP_LAYER_SOFTMAX))
    return TRUE;
  return heads % p == 0 && (kv % p == 0 || p % kv == 0);
}

static void
explain_heads (const SpCase *c, GString *out)
{
  gint32 heads = c->arch->heads / c->layout->tensor, kv = c->arch->kv_heads / c->layout->tensor;

  g_string_append_printf (
      out,
      "ulysses = %d must divide the %d query heads%s and divide, or be a multiple of, the %d key/value "
      "heads; legal: ",
      c->layout->ulysses, heads, c->layout->tensor > 1 ? " of a tensor rank" : "", kv);
  sp_rule_nearest (c, G_STRUCT_OFFSET (SpLayout, ulysses), heads, heads_divide, out);
  g_string_append (out, "; the rest of the sequence ranks can be a ring");
}

static gboolean
exchange_divides (const SpCase *c, gint32 p)
{
  SpLinearShape l = sp_architecture_linear (c->arch);
  gint32 heads = l.heads / c->layout->tensor, keys = MAX (l.key_heads / c->layout->tensor, 1);

  return p > 0 && heads % p == 0 && (keys % p == 0 || p % keys == 0);
}

static gboolean
linear_heads_divide (const SpCase *c)
{
  return !sp_architecture_has (c->arch, SP_LAYER_LINEAR) ||
         exchange_divides (c, sp_layout_linear_ulysses (c->layout, c->arch));
}

static void
explain_linear_heads (const SpCase *c, GString *out)
{
  SpLinearShape l = sp_architecture_linear (c->arch);
  gint32 ranks = sp_layout_sequence_ranks (c->layout, c->arch), heads = l.heads / c->layout->tensor;
  gboolean hybrid = sp_architecture_has (c->arch, SP_LAYER_SOFTMAX);
  const char *separator = "";

  g_string_append_printf (out, "linear layers exchange heads over %s = %d ranks, which must divide their %d heads",
                          hybrid ? "sequence ranks / lasp" : "ulysses",
                          sp_layout_linear_ulysses (c->layout, c->arch), heads);
  if (l.key_heads < l.heads)
    g_string_append_printf (out, " and divide, or be a multiple of, the %d key heads", l.key_heads / c->layout->tensor);
  g_string_append (out, hybrid ? "; legal lasp: " : "; legal ulysses: ");
  for (gint32 i = 1; i <= heads; i++) {
    gint32 exchange = hybrid ? heads + 1 - i : i;
    if (!exchange_divides (c, exchange) || (hybrid && ranks % exchange != 0))
      continue;
    g_string_append_printf (out, "%s%d", separator, hybrid ? ranks / exchange : exchange);
    separator = ", ";
  }
}

static const SpRule rules[] = {
  { "ulysses-heads", heads_divide, explain_heads },
  { "linear-ulysses-heads", linear_heads_divide, explain_linear_heads },
};

const SpStrategy sp_strategy_ulysses = {
  "ulysses", SP_AXIS_ULYSSES,      "all-to-all: heads for tokens around the attention core; with ring it is USP",
  rules,     G_N_ELEMENTS (rules), NULL,
};
