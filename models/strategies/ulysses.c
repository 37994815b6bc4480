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

/* [rows, heads] of `size` features each -> [rows x degree, heads / degree]. */
static void
heads_out (SpWriter *w, gint32 heads, gint32 size, guint8 in, guint8 out)
{
  guint8 packed = sp_write_temporary (w, exchanged_elements (w, heads, size));
  pack (w, SP_OP_PACK, heads, size, in, packed);
  all_to_all (w, packed, out);
}

static void
heads_back (SpWriter *w, gint32 heads, gint32 size, guint8 in, guint8 out)
{
  guint8 received = sp_write_temporary (w, exchanged_elements (w, heads, size));
  all_to_all (w, in, received);
  pack (w, SP_OP_UNPACK, heads, size, received, out);
}

guint8
sp_ulysses_operand (SpWriter *w, gint64 elements)
{
  return degree (w) > 1 ? sp_write_temporary (w, elements) : sp_write_stash (w, SP_TIER_KEEP, elements);
}

static gint32
kv_heads_of (const SpWriter *w)
{
  return w->block->kind == SP_BLOCK_LINEAR ? w->heads : w->kv_heads;
}

void
sp_ulysses_enter (SpWriter *w, guint8 q, guint8 k, guint8 v)
{
  SpCoreSlots *c = &w->slots;
  gint32 kv = kv_heads_of (w);

  c->tokens = w->rows / w->batch * degree (w);
  c->heads = w->heads / degree (w);
  c->kv_heads = kv / parts_of (w, kv);
  if (degree (w) == 1) {
    c->q = q;
    c->k = k;
    c->v = v;
    return;
  }
  c->q = sp_write_stash (w, SP_TIER_KEEP, exchanged_elements (w, w->heads, w->head_size));
  heads_out (w, w->heads, w->head_size, q, c->q);
  c->k = sp_write_stash (w, SP_TIER_KEEP, exchanged_elements (w, kv, w->head_size));
  heads_out (w, kv, w->head_size, k, c->k);
  c->v = sp_write_stash (w, SP_TIER_KEEP, exchanged_elements (w, kv, w->value_size));
  heads_out (w, kv, w->value_size, v, c->v);
}

guint8
sp_ulysses_leave (SpWriter *w, guint8 o)
{
  if (degree (w) == 1)
    return o;
  guint8 out = sp_write_stash (w, SP_TIER_KEEP, (gint64) w->rows * w->heads * w->value_size);
  heads_back (w, w->heads, w->value_size, o, out);
  return out;
}

void
sp_ulysses_leave_backward (SpWriter *w, guint8 d_o)
{
  w->slots.d_o = d_o;
  if (degree (w) == 1)
    return;
  w->slots.d_o = sp_write_temporary (w, exchanged_elements (w, w->heads, w->value_size));
  heads_out (w, w->heads, w->value_size, d_o, w->slots.d_o);
}

static guint8
gradient_back (SpWriter *w, gint32 heads, gint32 size, guint8 d)
{
  if (degree (w) == 1)
    return d;
  guint8 out = sp_write_temporary (w, (gint64) w->rows * heads * size);
  heads_back (w, heads, size, d, out);
  return out;
}

void
sp_ulysses_enter_backward (SpWriter *w, guint8 *ret_dq, guint8 *ret_dk, guint8 *ret_dv)
{
  *ret_dq = gradient_back (w, w->heads, w->head_size, w->slots.dq);
  *ret_dk = gradient_back (w, kv_heads_of (w), w->head_size, w->slots.dk);
  *ret_dv = gradient_back (w, kv_heads_of (w), w->value_size, w->slots.dv);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static gboolean
heads_divide (const SpCase *c)
{
  gint32 heads = c->arch->heads / c->layout->tensor, kv = c->arch->kv_heads / c->layout->tensor;
  gint32 p = c->layout->ulysses;

  if (!sp_architecture_has (c->arch, SP_LAYER_SOFTMAX))
    return heads % p == 0;
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
linear_heads_divide (const SpCase *c)
{
  if (!sp_architecture_has (c->arch, SP_LAYER_LINEAR))
    return TRUE;
  gint32 p = sp_layout_linear_ulysses (c->layout, c->arch);
  return p > 0 && c->arch->heads / c->layout->tensor % p == 0;
}

/* Only in a hybrid: elsewhere these are the ranks of `ulysses`, which its own rule asks. */
static void
explain_linear_heads (const SpCase *c, GString *out)
{
  gint32 ranks = sp_layout_sequence_ranks (c->layout, c->arch), heads = c->arch->heads / c->layout->tensor;
  const char *separator = "";

  g_string_append_printf (
      out,
      "linear layers exchange heads over sequence ranks / lasp = %d ranks, which must divide their %d "
      "heads; legal lasp: ",
      sp_layout_linear_ulysses (c->layout, c->arch), heads);
  for (gint32 exchange = heads; exchange >= 1; exchange--)
    if (heads % exchange == 0 && ranks % exchange == 0) {
      g_string_append_printf (out, "%s%d", separator, ranks / exchange);
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
