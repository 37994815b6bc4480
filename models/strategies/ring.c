/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/attention.h"

#include <string.h>

/*
 * Ring attention (Liu et al., 2310.01889), point to point: K and V go around the ring in P - 1 hops while each rank
 * attends to what it has. In the backward K and V go around again, and the gradients of K and V travel with them, P
 * hops, so that they end at home (zhuzilin/ring-flash-attention). Contiguous: a rank skips keys that are all in its
 * future, so the last place does all steps. Zigzag (Megatron-LM context parallelism): a rank holds parts r and 2P - 1 -
 * r, and every step costs half a block. Of packed documents a step takes what its slowest place has to do. Striped (Brandon et al., 2311.09431): a rank holds every P-th token; of m x m
 * pairs it sees m (m + 1) / 2 at steps up to its place and m (m - 1) / 2 after, of which each op here has the mean: right
 * over all places, and at a place but for 1 part in m. With a window, steps whose keys are all before it do no work,
 * though K and V still go around; the others are priced alike, with what the last place does in all of them (no place
 * does more). A double ring, a striped one, and a contiguous one whose queries go around skip none.
 *
 * ring-backward = q (BurstAttention, Sun et al., 2403.09347): keys stay, and Q, dO, lse and delta go around, P - 1 hops,
 * with dQ, P hops: 3 B A (N / P) D and two rows a hop, less than 4 of K, V and their gradients unless heads are grouped.
 *
 * ring-kind = double (BurstAttention; LoongTrain, 2406.18485): the ring is cut in an inner one of near ranks and an outer
 * one. While what a rank has goes around the inner ring, the same goes on to the next place of the outer one, on a
 * stream of its own: every rank uses its adapter, and a whole round hides the hop. K and V make P - 1 hops as in the
 * plain ring, P / w - 1 of them outer; gradients w inner hops and an outer one a round, P + P / w, because each round
 * has to end where it began. A round's loop stands in the list once for each.
 *
 * The fused kernel knows one block of keys: a kernel of its own merges a step's output and lse into fp32 sums, and
 * another adds a step's dQ. Known lies: each of them is one kernel here, as if a compiler had fused its elementwise parts
 * (a framework's merge-time says how many the merge is); and in zigzag it is over all queries at every step, where those
 * steps that attend with half of the queries (all but the first r + 1) need only half: right for the last place, while
 * attention is priced as at the slowest. What
 * goes around together is sent in messages of two buffers, each with a latency of its own.
 */

#define MOST_ROUNDS 16
#define MOST_TRAVELLERS 4

/* What goes around together: read at every step, or added to. */
typedef struct {
  guint n;
  guint8 start[MOST_TRAVELLERS];    /* what a round begins with; 0: nothing yet */
  guint8 outer[MOST_TRAVELLERS][2]; /* what comes by the outer ring, by turns */
  SpCarry carry[MOST_TRAVELLERS];
} Tour;

static gboolean
serves (const SpWriter *w)
{
  return w->layout->ring > 1 && (w->layout->ring_kind == SP_RING_P2P || w->layout->ring_kind == SP_RING_DOUBLE);
}

/* Of the outer ring; a plain one has one round of all steps. */
static gint32
rounds_of (const SpWriter *w)
{
  return w->program->groups[SP_GROUP_RING_OUTER].size;
}

static SpGroupId
inner_ring (const SpWriter *w)
{
  return rounds_of (w) > 1 ? SP_GROUP_RING_INNER : SP_GROUP_RING;
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
  SpTokenSplit split = w->program->token_split;
  gboolean queries = w->layout->ring_backward == SP_RING_BACKWARD_Q;
  gboolean skips = split == SP_TOKENS_ZIGZAG || (split == SP_TOKENS_CONTIGUOUS && !queries);
  gint32 ends = split == SP_TOKENS_ZIGZAG ? 2 : 1, all = ring_size (w) - 1;

  return sp_core_window (w) > 0 && skips && rounds_of (w) == 1 ? MIN (ends * sp_core_reach (w, c), all) : all;
}

/* Of steps with another place's keys: all but the very first, and not where these are in the future or too far. */
static guint
away_guard (const SpWriter *w, const SpCoreSlots *c, gint32 round)
{
  gboolean contiguous = w->program->token_split == SP_TOKENS_CONTIGUOUS;
  guint guard = round == 0 ? SP_GUARD_NOT_FIRST_STEP : 0;

  if (sp_core_is_causal (w) && contiguous)
    guard |= SP_GUARD_VISIBLE;
  if (away_steps (w, c) < ring_size (w) - 1)
    guard |= contiguous ? SP_GUARD_NEAR : SP_GUARD_NEAR_ENDS;
  return guard;
}

/* Zigzag, a query half sees all keys of a key half of another place or none, contiguous all of them. */
static void
set_unmasked (SpWriter *w)
{
  if (w->program->token_split != SP_TOKENS_STRIPED && sp_core_window (w) == 0 && w->run->packing == NULL)
    w->program->ops[w->program->n_ops - 1].flags |= SP_OP_UNMASKED;
}

static double
away_pairs (const SpWriter *w, const SpCoreSlots *c)
{
  gint32 steps = away_steps (w, c);

  return steps > 0 ? sp_core_away_pairs (w, c) / steps : 0;
}

/* --- hops --------------------------------------------------------------------------------------------------------- */

static guint8
travelling (SpWriter *w, SpDtype dtype, gint64 elements)
{
  return sp_write_buffer (w, SP_CLASS_COMMUNICATION, dtype, SP_LIFE_SEGMENT, elements);
}

static void
tour_add (SpWriter *w, Tour *tour, SpDtype dtype, guint8 start, gint64 elements)
{
  tour->start[tour->n] = start;
  tour->carry[tour->n].current = travelling (w, dtype, elements);
  tour->carry[tour->n++].next = travelling (w, dtype, elements);
}

static void
tour_add_slot (SpWriter *w, Tour *tour, guint8 slot)
{
  tour_add (w, tour, w->block->buffers[slot].dtype, slot, w->block->buffers[slot].elements);
}

static void
hop (SpWriter *w, SpGroupId group, const guint8 *in, const guint8 *out, guint n, guint guard)
{
  for (guint i = 0; i < n; i += 2)
    sp_write_message (w, SP_OP_SEND_RECEIVE, group, SP_AXIS_RING,
                      group == SP_GROUP_RING_OUTER ? SP_STREAM_OUTER : SP_STREAM_SEQUENCE, in[i],
                      i + 1 < n ? in[i + 1] : 0, out[i], i + 1 < n ? out[i + 1] : 0,
                      w->layout->overlap ? SP_OP_ASYNC : 0, guard);
}

static void
inner_hop (SpWriter *w, const Tour *tour, guint guard)
{
  guint8 current[MOST_TRAVELLERS], next[MOST_TRAVELLERS];

  for (guint i = 0; i < tour->n; i++) {
    current[i] = tour->carry[i].current;
    next[i] = tour->carry[i].next;
  }
  hop (w, inner_ring (w), current, next, tour->n, guard);
}

/* To the next place of the outer ring, where the next round begins with it. */
static void
outer_hop (SpWriter *w, Tour *tour, const guint8 *from, guint turn, guint8 *ret_come)
{
  for (guint i = 0; i < tour->n; i++) {
    const SpBuffer *like = &w->block->buffers[tour->carry[i].current];
    if (tour->outer[i][turn] == 0)
      tour->outer[i][turn] = travelling (w, like->dtype, like->elements);
    ret_come[i] = tour->outer[i][turn];
  }
  hop (w, SP_GROUP_RING_OUTER, from, ret_come, tour->n, 0);
}

static void
carry_on (SpLoop *loop, const Tour *tour)
{
  for (guint i = 0; i < tour->n; i++) {
    SpCarry *carry = &loop->carries[loop->n_carries++];
    *carry = tour->carry[i];
    carry->init = tour->start[i];
  }
}

/* Opens a round's loop, with the hops of what is read. `summed` may be NULL; `ret_come`: what the next round reads. */
static SpLoop *
begin_round (SpWriter *w, Tour *read, const Tour *summed, gint32 round, guint8 *ret_come)
{
  if (round + 1 < rounds_of (w))
    outer_hop (w, read, read->start, round % 2, ret_come);
  SpLoop *loop = sp_write_loop_begin (w, inner_ring (w));
  loop->round = (guint8) round;
  carry_on (loop, read);
  if (summed)
    carry_on (loop, summed);
  inner_hop (w, read, SP_GUARD_NOT_LAST_STEP);
  for (guint i = 0; i < read->n && round > 0; i++)
    sp_write_wait_for (w, read->start[i]);
  return loop;
}

static void
end_round (SpWriter *w, SpLoop *loop, Tour *read, Tour *summed, const guint8 *come)
{
  guint8 home[MOST_TRAVELLERS];

  if (summed)
    inner_hop (w, summed, 0);
  sp_write_loop_end (w, loop);
  memcpy (read->start, come, sizeof read->start);
  for (guint i = 0; summed && i < summed->n; i++)
    home[i] = summed->start[i] = summed->carry[i].current;
  if (summed && rounds_of (w) > 1)
    outer_hop (w, summed, home, 0, summed->start);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

void
sp_write_copy (SpWriter *w, const SpCoreSlots *c, guint8 in, guint8 out)
{
  gint64 n = w->block->buffers[in].elements;

  sp_write_rows (w, SP_OP_COPY, c->tokens, (gint32) (n / c->tokens), in, 0, 0, out, 0, 0);
}

guint8
sp_write_to_dtype (SpWriter *w, const SpCoreSlots *c, guint8 slot)
{
  if (w->block->buffers[slot].dtype == w->dtype)
    return slot;
  guint8 out = sp_write_temporary (w, w->block->buffers[slot].elements);
  sp_write_copy (w, c, slot, out);
  return out;
}

static void
forward (SpWriter *w, SpCoreSlots *c)
{
  double own = sp_core_home_pairs (w, c), away = away_pairs (w, c);
  guint8 come[MOST_TRAVELLERS] = { 0 };
  Tour keys = { 0 };

  sp_write_attention_outputs (w, c);
  SpCoreSlots block = *c;
  block.o = sp_write_temporary (w, sp_core_values (w, c, c->heads));
  block.lse = sp_write_temporary_of (w, SP_DTYPE_FP32, w->block->buffers[c->lse].elements);
  guint8 sum = sp_write_temporary_of (w, SP_DTYPE_FP32, sp_core_values (w, c, c->heads));
  tour_add_slot (w, &keys, c->k);
  tour_add_slot (w, &keys, c->v);
  guint8 k = keys.carry[0].current, v = keys.carry[1].current;

  for (gint32 round = 0; round < rounds_of (w); round++) {
    SpLoop *loop = begin_round (w, &keys, NULL, round, come);
    if (round == 0)
      sp_write_attention (w, &block, k, v, own, SP_GUARD_FIRST_STEP);
    sp_write_attention (w, &block, k, v, away, away_guard (w, c, round));
    set_unmasked (w);
    if (round == 0)
      sp_write_attention_merge (w, &block, sum, c->lse, 0, SP_GUARD_FIRST_STEP);
    sp_write_attention_merge (w, &block, sum, c->lse, SP_OP_ACCUMULATE, away_guard (w, c, round));
    end_round (w, loop, &keys, NULL, come);
  }
  sp_write_copy (w, c, sum, c->o);
  sp_write_attention_sink (w, c);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

static void
add_block (SpWriter *w, const SpCoreSlots *c, guint8 block, guint8 sum, gint32 round)
{
  gint64 n = w->block->buffers[block].elements;

  for (guint first = round > 0 ? 1 : 0; first < 2; first++) {
    SpOp *op = sp_write_op (w, first == 0 ? SP_OP_COPY : SP_OP_ACCUMULATE_INTO);
    op->m = c->tokens;
    op->n = (gint32) (n / c->tokens);
    op->in[0] = block;
    op->out[0] = sum;
    op->group = SP_GROUP_RING;
    op->guard = first == 0 ? SP_GUARD_FIRST_STEP : away_guard (w, c, round);
    op->reach = op->guard & (SP_GUARD_NEAR | SP_GUARD_NEAR_ENDS) ? sp_core_reach (w, c) : 0;
    op->flags = first == 0 ? 0 : SP_OP_ACCUMULATE;
    sp_write_op_done (w, op);
  }
}

/* To what has come by the outer ring too, which the round begins with. */
static void
add_travelling (SpWriter *w, const SpCoreSlots *c, guint8 block, const Tour *summed, guint i, gint32 round)
{
  add_block (w, c, block, summed->carry[i].current, round);
  if (round > 0)
    sp_write_wait_for (w, summed->start[i]);
}

static void
block_backward (SpWriter *w, const SpCoreSlots *c, guint8 k, guint8 v, guint8 delta, guint8 dk, guint8 dv, double pairs,
                guint guard)
{
  sp_write_attention_backward (w, c, k, v, delta, dk, dv, pairs, guard);
  if (guard != SP_GUARD_FIRST_STEP)
    set_unmasked (w);
  if (w->layout->ring_backward == SP_RING_BACKWARD_Q)
    w->program->ops[w->program->n_ops - 1].flags |= SP_OP_QUERIES;
}

static void
backward (SpWriter *w, SpCoreSlots *c)
{
  gboolean queries = w->layout->ring_backward == SP_RING_BACKWARD_Q;
  double own = sp_core_home_pairs (w, c), away = away_pairs (w, c);
  SpDtype dtype = w->layout->ring_gradient_dtype;
  gint64 queries_n = sp_core_elements (w, c, c->heads), keys_n = sp_core_elements (w, c, c->kv_heads);
  gint64 values_n = sp_core_values (w, c, c->kv_heads);
  guint8 come[MOST_TRAVELLERS] = { 0 }, home[2];
  Tour read = { 0 }, summed = { 0 };
  SpCoreSlots block = *c;

  guint8 delta = sp_write_attention_delta (w, c), k = c->k, v = c->v;
  guint8 dk = sp_write_temporary (w, keys_n), dv = sp_write_temporary (w, values_n);
  sp_write_attention_sink_backward (w, c, delta);
  /* What does not travel is summed here. */
  home[0] = sp_write_temporary_of (w, dtype, queries ? keys_n : queries_n);
  home[1] = queries ? sp_write_temporary_of (w, dtype, values_n) : 0;
  block.dq = sp_write_temporary (w, queries_n);
  if (queries) {
    const guint8 slots[] = { c->q, c->d_o, c->lse, delta };
    for (guint i = 0; i < G_N_ELEMENTS (slots); i++)
      tour_add_slot (w, &read, slots[i]);
    tour_add (w, &summed, dtype, 0, queries_n);
    block.q = read.carry[0].current;
    block.d_o = read.carry[1].current;
    block.lse = read.carry[2].current;
    delta = read.carry[3].current;
  } else {
    tour_add_slot (w, &read, c->k);
    tour_add_slot (w, &read, c->v);
    tour_add (w, &summed, dtype, 0, keys_n);
    tour_add (w, &summed, dtype, 0, values_n);
    k = read.carry[0].current;
    v = read.carry[1].current;
  }

  for (gint32 round = 0; round < rounds_of (w); round++) {
    SpLoop *loop = begin_round (w, &read, &summed, round, come);
    if (round == 0)
      block_backward (w, &block, k, v, delta, dk, dv, own, SP_GUARD_FIRST_STEP);
    block_backward (w, &block, k, v, delta, dk, dv, away, away_guard (w, c, round));
    if (queries) {
      add_block (w, c, dk, home[0], round);
      add_block (w, c, dv, home[1], round);
      add_travelling (w, c, block.dq, &summed, 0, round);
    } else {
      add_block (w, c, block.dq, home[0], round);
      add_travelling (w, c, dk, &summed, 0, round);
      add_travelling (w, c, dv, &summed, 1, round);
    }
    end_round (w, loop, &read, &summed, come);
  }
  c->dq = sp_write_to_dtype (w, c, queries ? summed.start[0] : home[0]);
  c->dk = sp_write_to_dtype (w, c, queries ? home[0] : summed.start[0]);
  c->dv = sp_write_to_dtype (w, c, queries ? home[1] : summed.start[1]);
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
split_keeps_order (const SpCase *c)
{
  return c->layout->ring == 1 || c->layout->token_split == SP_TOKENS_CONTIGUOUS ||
         !sp_architecture_has (c->arch, SP_LAYER_LINEAR);
}

static void
explain_order (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "ring-split = %s reorders tokens, and linear-attention layers need them in order; use "
                          "ring-split = contiguous",
                          sp_token_split_name (c->layout->token_split));
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
  return c->layout->ring == 1 || c->layout->ring_kind == SP_RING_RSA || c->framework->fused_attention;
}

static void
explain_fused (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "ring = %d needs a fused attention kernel that returns its log-sum-exp, and framework %s "
                          "keeps score matrices; use ring-kind = rsa, ring = 1 or another framework",
                          c->layout->ring, c->framework->name);
}

static gboolean
rings_nest (const SpCase *c)
{
  const SpLayout *l = c->layout;

  if (l->ring_kind != SP_RING_DOUBLE)
    return TRUE;
  return l->ring_inner > 1 && l->ring_inner < l->ring && l->ring % l->ring_inner == 0 &&
         l->ring / l->ring_inner <= MOST_ROUNDS && !sp_architecture_has (c->arch, SP_LAYER_LINEAR);
}

static void
explain_nest (const SpCase *c, GString *out)
{
  const char *separator = "";

  if (sp_architecture_has (c->arch, SP_LAYER_LINEAR)) {
    g_string_append (out, "ring-kind = double on a model with linear-attention layers, which cut the same ranks in "
                          "another way; use ring-kind = p2p or all-gather");
    return;
  }
  g_string_append_printf (out,
                          "ring-kind = double cuts ring = %d into inner rings of ring-inner = %d, at least 2 of 2, at "
                          "most %d of them; legal ring-inner: ",
                          c->layout->ring, c->layout->ring_inner, MOST_ROUNDS);
  for (gint32 inner = 2; inner <= c->layout->ring / 2; inner++)
    if (c->layout->ring % inner == 0 && c->layout->ring / inner <= MOST_ROUNDS) {
      g_string_append_printf (out, "%s%d", separator, inner);
      separator = ", ";
    }
  g_string_append_printf (out, "%s; or use ring-kind = p2p", *separator ? "" : "none");
}

/* Which steps see nothing is only told of a plain ring of keys. */
static gboolean
is_balanced (const SpCase *c)
{
  gboolean other = c->layout->ring_kind == SP_RING_DOUBLE || c->layout->ring_backward == SP_RING_BACKWARD_Q;

  return c->layout->ring == 1 || !other || !c->run->causal || c->arch->bidirectional ||
         c->layout->token_split != SP_TOKENS_CONTIGUOUS;
}

static void
explain_balance (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "%s needs tokens that balance a causal mask, and ring-split = contiguous does not; use "
                          "ring-split = zigzag or striped",
                          c->layout->ring_kind == SP_RING_DOUBLE ? "ring-kind = double" : "ring-backward = q");
}

static gboolean
backward_goes_around (const SpCase *c)
{
  gboolean rings = c->layout->ring_kind == SP_RING_P2P || c->layout->ring_kind == SP_RING_DOUBLE;

  return c->layout->ring_backward == SP_RING_BACKWARD_KV || (c->layout->ring > 1 && rings);
}

static void
explain_backward (const SpCase *c, GString *out)
{
  if (c->layout->ring == 1)
    g_string_append (out, "ring-backward = q sends queries around a ring, and ring = 1; use ring-backward = kv");
  else
    g_string_append_printf (out,
                            "ring-backward = q sends queries around a ring, and ring-kind = %s has its own backward; "
                            "use ring-kind = p2p or double, or ring-backward = kv",
                            sp_ring_kind_name (c->layout->ring_kind));
}

static const SpRule rules[] = {
  { "ring-softmax", has_softmax, explain_softmax },
  { "ring-split-linear", split_keeps_order, explain_order },
  { "ring-zigzag-parts", zigzag_parts_divide, explain_parts },
  { "ring-fused", kernel_is_fused, explain_fused },
  { "ring-double", rings_nest, explain_nest },
  { "ring-backward", backward_goes_around, explain_backward },
  { "ring-balanced", is_balanced, explain_balance },
};

const SpStrategy sp_strategy_ring = {
  "ring",
  SP_AXIS_RING,
  "K and V go around a ring, contiguous, zigzag or striped; with ulysses it is USP; double: a ring of rings",
  rules,
  G_N_ELEMENTS (rules),
  cores,
};
