/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/attention.h"

/*
 * Ring attention (Liu et al., 2310.01889), point to point: K and V go around the ring in P - 1 hops while each rank
 * attends to what it has. In the backward K and V go around again, and the gradients of K and V travel with them, P
 * hops, so that they end at home (zhuzilin/ring-flash-attention). Contiguous: a rank skips keys that are all in its
 * future, so the last place does all steps. Zigzag (Megatron-LM context parallelism): a rank holds parts r and 2P - 1 -
 * r, and every step costs half a block.
 *
 * The fused kernel knows one block of keys: a kernel of its own merges a step's output and lse into fp32 sums, and
 * another adds a step's dQ. Known lies: each of them is one kernel here, as if a compiler had fused
 * its elementwise parts; and in zigzag it is over all queries at every step, where those steps that attend with half of
 * the queries (all but the first r + 1) need only half: right for the last place.
 */

static gboolean
serves (const SpWriter *w)
{
  return w->layout->ring > 1;
}

static guint
away_guard (const SpWriter *w)
{
  gboolean skips = w->run->causal && w->program->token_split == SP_TOKENS_CONTIGUOUS;

  return SP_GUARD_NOT_FIRST_STEP | (skips ? SP_GUARD_VISIBLE : 0);
}

static double
away_pairs (const SpWriter *w, const SpCoreSlots *c)
{
  double all = (double) c->tokens * c->tokens;

  return w->run->causal && w->program->token_split == SP_TOKENS_ZIGZAG ? all / 2 : all;
}

static guint8
travelling (SpWriter *w, SpDtype dtype, gint64 elements)
{
  return sp_write_buffer (w, SP_CLASS_COMMUNICATION, dtype, SP_LIFE_SEGMENT, elements);
}

static SpCarry
carry (SpWriter *w, SpDtype dtype, guint8 init, gint64 elements)
{
  return (SpCarry){ .init = init, .current = travelling (w, dtype, elements), .next = travelling (w, dtype, elements) };
}

static void
pass_on (SpWriter *w, const SpCarry *a, const SpCarry *b, guint guard)
{
  sp_write_message (w, SP_OP_SEND_RECEIVE, SP_GROUP_RING, SP_AXIS_RING, SP_STREAM_SEQUENCE, a->current, b->current,
                    a->next, b->next, w->layout->overlap ? SP_OP_ASYNC : 0, guard);
}

static void
copy_rows (SpWriter *w, guint8 in, guint8 out)
{
  gint64 n = w->block->buffers[in].elements;

  sp_write_rows (w, SP_OP_COPY, (gint32) (n / w->head_size), w->head_size, in, 0, 0, out, 0, 0);
}

static void
forward (SpWriter *w, SpCoreSlots *c)
{
  gint64 kv = sp_core_elements (w, c, c->kv_heads);

  sp_write_attention_outputs (w, c);
  SpCoreSlots block = *c;
  block.o = sp_write_temporary (w, sp_core_elements (w, c, c->heads));
  block.lse = sp_write_temporary_of (w, SP_DTYPE_FP32, w->block->buffers[c->lse].elements);
  guint8 sum = sp_write_temporary_of (w, SP_DTYPE_FP32, sp_core_elements (w, c, c->heads));
  SpLoop *loop = sp_write_loop_begin (w, SP_GROUP_RING);
  loop->n_carries = 2;
  loop->carries[0] = carry (w, w->dtype, c->k, kv);
  loop->carries[1] = carry (w, w->dtype, c->v, kv);
  guint8 k = loop->carries[0].current, v = loop->carries[1].current;

  pass_on (w, &loop->carries[0], &loop->carries[1], SP_GUARD_NOT_LAST_STEP);
  sp_write_attention (w, &block, k, v, sp_attention_pairs (c->tokens, c->tokens, w->run->causal), SP_GUARD_FIRST_STEP);
  sp_write_attention (w, &block, k, v, away_pairs (w, c), away_guard (w));
  sp_write_attention_merge (w, &block, sum, c->lse, 0, SP_GUARD_FIRST_STEP);
  sp_write_attention_merge (w, &block, sum, c->lse, SP_OP_ACCUMULATE, away_guard (w));
  sp_write_loop_end (w, loop);
  copy_rows (w, sum, c->o);
}

static void
add_block (SpWriter *w, guint8 block, guint8 sum)
{
  gint64 n = w->block->buffers[block].elements;
  gint32 width = w->head_size;

  for (guint first = 0; first < 2; first++) {
    SpOp *op = sp_write_op (w, first == 0 ? SP_OP_COPY : SP_OP_ACCUMULATE_INTO);
    op->m = (gint32) (n / width);
    op->n = width;
    op->in[0] = block;
    op->out[0] = sum;
    op->group = SP_GROUP_RING;
    op->guard = first == 0 ? SP_GUARD_FIRST_STEP : away_guard (w);
    op->flags = first == 0 ? 0 : SP_OP_ACCUMULATE;
    sp_write_op_done (w, op);
  }
}

static guint8
to_dtype (SpWriter *w, guint8 slot)
{
  if (w->block->buffers[slot].dtype == w->dtype)
    return slot;
  guint8 out = sp_write_temporary (w, w->block->buffers[slot].elements);
  copy_rows (w, slot, out);
  return out;
}

static void
backward (SpWriter *w, SpCoreSlots *c)
{
  SpDtype sum_dtype = w->layout->ring_gradient_dtype;
  gint64 kv = sp_core_elements (w, c, c->kv_heads);
  guint8 delta = sp_write_attention_delta (w, c);
  guint8 dk_block = sp_write_temporary (w, kv), dv_block = sp_write_temporary (w, kv);

  guint8 dq_sum = sp_write_temporary_of (w, sum_dtype, sp_core_elements (w, c, c->heads));
  c->dq = sp_write_temporary (w, sp_core_elements (w, c, c->heads));
  SpLoop *loop = sp_write_loop_begin (w, SP_GROUP_RING);
  loop->n_carries = 4;
  loop->carries[0] = carry (w, w->dtype, c->k, kv);
  loop->carries[1] = carry (w, w->dtype, c->v, kv);
  loop->carries[2] = carry (w, sum_dtype, 0, kv);
  loop->carries[3] = carry (w, sum_dtype, 0, kv);
  guint8 k = loop->carries[0].current, v = loop->carries[1].current;

  pass_on (w, &loop->carries[0], &loop->carries[1], SP_GUARD_NOT_LAST_STEP);
  sp_write_attention_backward (w, c, k, v, delta, dk_block, dv_block,
                               sp_attention_pairs (c->tokens, c->tokens, w->run->causal), SP_GUARD_FIRST_STEP);
  sp_write_attention_backward (w, c, k, v, delta, dk_block, dv_block, away_pairs (w, c), away_guard (w));
  add_block (w, c->dq, dq_sum);
  add_block (w, dk_block, loop->carries[2].current);
  add_block (w, dv_block, loop->carries[3].current);
  pass_on (w, &loop->carries[2], &loop->carries[3], 0);
  sp_write_loop_end (w, loop);

  c->dq = to_dtype (w, dq_sum);
  c->dk = to_dtype (w, loop->carries[2].current);
  c->dv = to_dtype (w, loop->carries[3].current);
}

static const SpCore core = { "ring", SP_BLOCK_SOFTMAX, serves, forward, backward };
static const SpCore *const cores[] = { &core, NULL };

/* --- rules -------------------------------------------------------------------------------------------------------- */

static gboolean
has_softmax (const SpCase *c)
{
  return c->layout->ring == 1 || sp_architecture_has (c->arch, SP_LAYER_SOFTMAX);
}

static void
explain_softmax (const SpCase *c, GString *out)
{
  g_string_append_printf (out, "ring = %d on a model of linear-attention layers alone; use lasp = %d, ring = 1",
                          c->layout->ring, c->layout->ring);
}

static gboolean
zigzag_allowed (const SpCase *c)
{
  return c->layout->ring == 1 || c->layout->token_split != SP_TOKENS_ZIGZAG ||
         !sp_architecture_has (c->arch, SP_LAYER_LINEAR);
}

static void
explain_zigzag (const SpCase *c, GString *out)
{
  (void) c;
  g_string_append (out, "ring-split = zigzag reorders tokens, and linear-attention layers need them in order; use "
                        "ring-split = contiguous");
}

static gboolean
zigzag_parts_divide (const SpCase *c)
{
  return c->layout->ring == 1 || c->layout->token_split != SP_TOKENS_ZIGZAG ||
         c->run->sequence % (2 * c->layout->ring) == 0;
}

static void
explain_parts (const SpCase *c, GString *out)
{
  gint64 part = 2 * (gint64) c->layout->ring;

  g_string_append_printf (out,
                          "sequence = %" G_GINT64_FORMAT " must be a multiple of 2 x ring = %" G_GINT64_FORMAT
                          " for zigzag; pad it to %" G_GINT64_FORMAT,
                          c->run->sequence, part, sp_rule_padded_sequence (c));
}

static gboolean
kernel_is_fused (const SpCase *c)
{
  return c->layout->ring == 1 || c->framework->fused_attention;
}

static void
explain_fused (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "ring = %d needs a fused attention kernel that returns its log-sum-exp, and framework %s "
                          "keeps score matrices; use ring = 1 or another framework",
                          c->layout->ring, c->framework->name);
}

static const SpRule rules[] = {
  { "ring-softmax", has_softmax, explain_softmax },
  { "ring-zigzag-linear", zigzag_allowed, explain_zigzag },
  { "ring-zigzag-parts", zigzag_parts_divide, explain_parts },
  { "ring-fused", kernel_is_fused, explain_fused },
};

const SpStrategy sp_strategy_ring = {
  "ring", SP_AXIS_RING,         "K and V go around a ring, contiguous or zigzag; with ulysses it is USP",
  rules,  G_N_ELEMENTS (rules), cores,
};
