/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/attention.h"

/*
 * Ring attention (Liu et al., 2310.01889), point to point: K and V go around the ring in P - 1 hops while each rank
 * attends to what it has. In the backward K and V go around again, and the gradients of K and V travel with them, P
 * hops, so that they end at home (zhuzilin/ring-flash-attention). Contiguous: a rank skips keys that are all in its
 * future, so the last place does all steps. Zigzag (Megatron-LM context parallelism): a rank holds parts r and 2P - 1 -
 * r, and every step costs half a block. With a window, steps whose keys are all before it do no work, though K and V
 * still go around; the others are priced alike, with what the last place does in all of them (no place does more).
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

static gint32
ring_size (const SpWriter *w)
{
  return w->program->groups[SP_GROUP_RING].size;
}

/* Steps but the first in which the last place has work. */
static gint32
away_steps (const SpWriter *w, const SpCoreSlots *c)
{
  gint32 ends = w->program->token_split == SP_TOKENS_ZIGZAG ? 2 : 1;

  return sp_core_window (w) > 0 ? MIN (ends * sp_core_reach (w, c), ring_size (w) - 1) : ring_size (w) - 1;
}

static guint
away_guard (const SpWriter *w, const SpCoreSlots *c)
{
  gboolean contiguous = w->program->token_split == SP_TOKENS_CONTIGUOUS;
  guint guard = SP_GUARD_NOT_FIRST_STEP | (sp_core_is_causal (w) && contiguous ? SP_GUARD_VISIBLE : 0);

  if (away_steps (w, c) < ring_size (w) - 1)
    guard |= contiguous ? SP_GUARD_NEAR : SP_GUARD_NEAR_ENDS;
  return guard;
}

static double
home_pairs (const SpWriter *w, const SpCoreSlots *c)
{
  return sp_attention_pairs (w->program->token_split, ring_size (w), ring_size (w) - 1, 0, c->tokens,
                             sp_core_is_causal (w), sp_core_window (w));
}

/* Of the sequence's first tokens. */
static double
first_pairs (const SpWriter *w, double tokens)
{
  return sp_attention_pairs (SP_TOKENS_CONTIGUOUS, 1, 0, 0, tokens, TRUE, sp_core_window (w));
}

/* The last place has the last tokens, or in zigzag those in the middle: all pairs of these but those at home, over the
 * steps. */
static double
away_pairs (const SpWriter *w, const SpCoreSlots *c)
{
  gint32 steps = away_steps (w, c), ring = ring_size (w);
  double tokens = c->tokens,
         end = w->program->token_split == SP_TOKENS_ZIGZAG ? (ring + 1) * tokens / 2 : ring * tokens;

  if (!sp_core_is_causal (w))
    return tokens * tokens;
  return steps > 0 ? (first_pairs (w, end) - first_pairs (w, end - tokens) - home_pairs (w, c)) / steps : 0;
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
copy_rows (SpWriter *w, const SpCoreSlots *c, guint8 in, guint8 out)
{
  gint64 n = w->block->buffers[in].elements;

  sp_write_rows (w, SP_OP_COPY, c->tokens, (gint32) (n / c->tokens), in, 0, 0, out, 0, 0);
}

static void
forward (SpWriter *w, SpCoreSlots *c)
{
  gint64 keys = sp_core_elements (w, c, c->kv_heads), values = sp_core_values (w, c, c->kv_heads);

  sp_write_attention_outputs (w, c);
  SpCoreSlots block = *c;
  block.o = sp_write_temporary (w, sp_core_values (w, c, c->heads));
  block.lse = sp_write_temporary_of (w, SP_DTYPE_FP32, w->block->buffers[c->lse].elements);
  guint8 sum = sp_write_temporary_of (w, SP_DTYPE_FP32, sp_core_values (w, c, c->heads));
  SpLoop *loop = sp_write_loop_begin (w, SP_GROUP_RING);
  loop->n_carries = 2;
  loop->carries[0] = carry (w, w->dtype, c->k, keys);
  loop->carries[1] = carry (w, w->dtype, c->v, values);
  guint8 k = loop->carries[0].current, v = loop->carries[1].current;

  pass_on (w, &loop->carries[0], &loop->carries[1], SP_GUARD_NOT_LAST_STEP);
  sp_write_attention (w, &block, k, v, home_pairs (w, c), SP_GUARD_FIRST_STEP);
  sp_write_attention (w, &block, k, v, away_pairs (w, c), away_guard (w, c));
  sp_write_attention_merge (w, &block, sum, c->lse, 0, SP_GUARD_FIRST_STEP);
  sp_write_attention_merge (w, &block, sum, c->lse, SP_OP_ACCUMULATE, away_guard (w, c));
  sp_write_loop_end (w, loop);
  copy_rows (w, c, sum, c->o);
  sp_write_attention_sink (w, c);
}

static void
add_block (SpWriter *w, const SpCoreSlots *c, guint8 block, guint8 sum)
{
  gint64 n = w->block->buffers[block].elements;

  for (guint first = 0; first < 2; first++) {
    SpOp *op = sp_write_op (w, first == 0 ? SP_OP_COPY : SP_OP_ACCUMULATE_INTO);
    op->m = c->tokens;
    op->n = (gint32) (n / c->tokens);
    op->in[0] = block;
    op->out[0] = sum;
    op->group = SP_GROUP_RING;
    op->guard = first == 0 ? SP_GUARD_FIRST_STEP : away_guard (w, c);
    op->reach = op->guard & (SP_GUARD_NEAR | SP_GUARD_NEAR_ENDS) ? sp_core_reach (w, c) : 0;
    op->flags = first == 0 ? 0 : SP_OP_ACCUMULATE;
    sp_write_op_done (w, op);
  }
}

static guint8
to_dtype (SpWriter *w, const SpCoreSlots *c, guint8 slot)
{
  if (w->block->buffers[slot].dtype == w->dtype)
    return slot;
  guint8 out = sp_write_temporary (w, w->block->buffers[slot].elements);
  copy_rows (w, c, slot, out);
  return out;
}

static void
backward (SpWriter *w, SpCoreSlots *c)
{
  SpDtype sum_dtype = w->layout->ring_gradient_dtype;
  gint64 keys = sp_core_elements (w, c, c->kv_heads), values = sp_core_values (w, c, c->kv_heads);
  guint8 delta = sp_write_attention_delta (w, c);
  guint8 dk_block = sp_write_temporary (w, keys), dv_block = sp_write_temporary (w, values);

  sp_write_attention_sink_backward (w, c, delta);
  guint8 dq_sum = sp_write_temporary_of (w, sum_dtype, sp_core_elements (w, c, c->heads));
  c->dq = sp_write_temporary (w, sp_core_elements (w, c, c->heads));
  SpLoop *loop = sp_write_loop_begin (w, SP_GROUP_RING);
  loop->n_carries = 4;
  loop->carries[0] = carry (w, w->dtype, c->k, keys);
  loop->carries[1] = carry (w, w->dtype, c->v, values);
  loop->carries[2] = carry (w, sum_dtype, 0, keys);
  loop->carries[3] = carry (w, sum_dtype, 0, values);
  guint8 k = loop->carries[0].current, v = loop->carries[1].current;

  pass_on (w, &loop->carries[0], &loop->carries[1], SP_GUARD_NOT_LAST_STEP);
  sp_write_attention_backward (w, c, k, v, delta, dk_block, dv_block, home_pairs (w, c), SP_GUARD_FIRST_STEP);
  sp_write_attention_backward (w, c, k, v, delta, dk_block, dv_block, away_pairs (w, c), away_guard (w, c));
  add_block (w, c, c->dq, dq_sum);
  add_block (w, c, dk_block, loop->carries[2].current);
  add_block (w, c, dv_block, loop->carries[3].current);
  pass_on (w, &loop->carries[2], &loop->carries[3], 0);
  sp_write_loop_end (w, loop);

  c->dq = to_dtype (w, c, dq_sum);
  c->dk = to_dtype (w, c, loop->carries[2].current);
  c->dv = to_dtype (w, c, loop->carries[3].current);
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
