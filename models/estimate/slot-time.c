/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/step-time.h"

/* What the slots of a virtual stage take, from the times of its blocks. */

void
sp_slot_time_add (SpSlotTime *slot, const SpListTime *list, double n)
{
  if (list->serial == 0)
    return;
  slot->step += n * list->step;
  slot->serial += n * list->serial;
  slot->high += n * list->high;
  slot->compute += n * list->compute;
  slot->kernels += n * (list->compute - list->spare);
  slot->host += n * list->host;
  slot->issue += n * list->issue;
  slot->data += n * list->data_async;
  for (guint a = 0; a < SP_N_AXES; a++) {
    slot->axes[a] += n * list->axes[a];
    slot->exposed[a] += n * list->exposed[a];
  }
}

void
sp_slot_time_hide (SpSlotTime *slot, double slowdown, double data, double compute, double n)
{
  double slowed = slowdown * MIN (data, compute);
  double open = MAX (0.0, data - compute - slowed);

  slot->step += n * (slowed + open);
  slot->compute += n * slowed;
  slot->slowed += n * slowed;
  slot->exposed[SP_AXIS_DATA] += n * open;
}

void
sp_slot_time_open (SpSlotTime *slot, double seconds)
{
  slot->step += seconds;
  slot->exposed[SP_AXIS_DATA] += seconds;
}

static void
slot_chain (SpSlotTime *slot, const SpListTime *list, double n)
{
  slot->step += n * list->chain;
  slot->serial += n * list->chain;
  slot->high += n * list->chain;
  slot->exposed[list->chain_axis] += n * list->chain;
  slot->waits[list->chain_axis] += n * list->chain;
}

static guint
group_digits (const SpProgram *program, guint group)
{
  guint mask = 0;

  for (guint i = 0; i < program->groups[group].n_digits; i++)
    mask |= 1u << program->groups[group].digits[i];
  return mask;
}

/* Whether each layer of the block makes the chain's ranks wait for each other anyway. */
static gboolean
layer_spans_chain (const SpEstimateContext *e, guint block, const SpListTime *list)
{
  guint chain = group_digits (e->program, list->chain_group);
  guint groups = list->groups | e->state[block].gather.groups | e->state[block].sync_each.groups;

  for (guint g = 0; g < SP_N_GROUPS; g++)
    if (groups & 1u << g && (group_digits (e->program, g) & chain) == chain)
      return TRUE;
  return FALSE;
}

static void
add_chains (const SpEstimateContext *e, const SpBlockWork *work, const gint32 *counts, gboolean backward,
            SpSlotTime *slot)
{
  const SpListTime *once = NULL;

  for (guint b = 0; b < e->program->n_blocks; b++) {
    const SpListTime *lists[2] = { backward ? &work[b].backward : &work[b].forward,
                                   backward ? &work[b].recompute : NULL };
    for (guint i = 0; i < 2; i++) {
      if (counts[b] == 0 || lists[i] == NULL || lists[i]->chain == 0)
        continue;
      if (layer_spans_chain (e, b, lists[i]))
        slot_chain (slot, lists[i], counts[b]);
      else if (once == NULL || once->chain < lists[i]->chain)
        once = lists[i];
    }
  }
  if (once)
    slot_chain (slot, once, 1);
}

/* A block's turn in a virtual stage, in the order of the model: `n` times, with what comes before it and after it, -1
 * none. */
typedef struct {
  gint32 before, block, after, n;
} Turn;

static gint32
block_at (const SpProgram *program, gint32 at, gint32 l)
{
  const gint32 *first = &program->stage_first[at];

  if (l >= first[0] && l < first[1])
    return program->layer_block[l];
  if (l == first[0] - 1 && at == 0)
    return 0;
  return l == first[1] && at == sp_program_virtual_stages (program) - 1 ? (gint32) program->n_blocks - 1 : -1;
}

/* The turn at layer *l, of which the embedding is the one before the first and the head the one after the last; *l goes
 * `step` on, over all that are like it. FALSE behind the last turn. */
static gboolean
next_turn (const SpProgram *program, gint32 at, gint32 step, gint32 *l, Turn *ret)
{
  const gint32 *first = &program->stage_first[at];

  if (block_at (program, at, *l) < 0)
    *l += step; /* an end of the model that is elsewhere */
  *ret = (Turn){ block_at (program, at, *l - 1), block_at (program, at, *l), block_at (program, at, *l + 1), 1 };
  if (ret->block < 0)
    return FALSE;
  while (ret->before == ret->block && ret->after == ret->block && *l + 2 * step >= first[0] &&
         *l + 2 * step < first[1] && program->layer_block[*l + 2 * step] == ret->block) {
    ret->n++;
    *l += step;
  }
  *l += step;
  return TRUE;
}

static gboolean
gathers_in (const SpEstimateContext *e, gint32 variant, guint block)
{
  return e->state[block].regather || e->program->variants[variant].first == 0;
}

static double
gathered_first (const SpEstimateContext *e, gint32 variant, gint32 block)
{
  return gathers_in (e, variant, (guint) block) ? e->state[block].gather.data_async : 0;
}

/* A block's parameters are gathered beside the block before; the first block's in the open. */
static void
forward_slot (const SpEstimateContext *e, gint32 at, gint32 variant, const gint32 *counts, SpSlotTime *slot)
{
  const SpBlockWork *work = e->work[variant];
  double data = 0;
  Turn turn;

  memset (slot, 0, sizeof *slot);
  for (guint b = 0; b < e->program->n_blocks; b++) {
    if (counts[b] == 0)
      continue;
    if (gathers_in (e, variant, b))
      sp_slot_time_add (slot, &e->state[b].gather, counts[b]);
    sp_slot_time_add (slot, &work[b].forward, counts[b]);
    data += gathered_first (e, variant, (gint32) b);
  }
  slot->forward = slot->compute;
  for (gint32 l = e->program->stage_first[at] - 1; data > 0 && next_turn (e->program, at, 1, &l, &turn);) {
    if (turn.before < 0)
      sp_slot_time_open (slot, gathered_first (e, variant, turn.block));
    if (turn.after >= 0)
      sp_slot_time_hide (slot, e->cost->slowdown, gathered_first (e, variant, turn.after),
                         work[turn.block].forward.step, turn.n);
  }
  add_chains (e, work, counts, FALSE, slot);
}

/* Which lists of a block a slot of the backward runs: of one in two parts the first gathers, the second scatters. */
typedef struct {
  SpSlotKind kind;
  gboolean gathers, scatters;
} Part;

static const SpListTime *
backward_of (const SpBlockWork *work, const Part *part)
{
  return part->kind == SP_SLOT_BACKWARD         ? &work->backward
         : part->kind == SP_SLOT_BACKWARD_INPUT ? &work->input
                                                : &work->weight;
}

static double
gathered_again (const SpEstimateContext *e, const Part *part, gint32 block)
{
  return block >= 0 && part->gathers && e->state[block].gathers_again ? e->state[block].gather.data_async : 0;
}

static double
scattered (const SpEstimateContext *e, const Part *part, gint32 block)
{
  return block >= 0 && part->scatters ? e->state[block].sync_each.data_async : 0;
}

/* Gradients that nobody waits for yet, `scatters` seconds of them behind `lag` that are left, beside so much compute;
 * returns what is left. */
static double
scatter_beside (const SpEstimateContext *e, double lag, double scatters, double compute, SpSlotTime *slot)
{
  double data = lag + scatters, slowed = e->cost->slowdown * MIN (data, compute);
  double left = MAX (0.0, data - compute - slowed);

  sp_slot_time_hide (slot, e->cost->slowdown, data - left, compute, 1);
  return left;
}

/* Beside a block's backward the gradients of the one before are scattered, and the next one's parameters are gathered,
 * for which that one waits, and so for all that was to be scattered before. A backward that sums gradients waits for it
 * anyway, at its end: what SYNC reads is held over until then (sim/walk.h). The first gather and the last scatter are
 * in the open. */
static void
hide_backward (const SpEstimateContext *e, gint32 at, const SpBlockWork *work, const Part *part, SpSlotTime *slot)
{
  const SpProgram *program = e->program;
  double lag = 0;
  Turn turn;

  for (gint32 l = program->stage_first[at + 1]; next_turn (program, at, -1, &l, &turn);) {
    const SpBlockWork *own = &work[turn.block];
    double gather = gathered_again (e, part, turn.before), scatter = scattered (e, part, turn.after);
    double compute = (part->gathers ? own->recompute.step : 0) + backward_of (own, part)->step;

    if (turn.after < 0)
      sp_slot_time_open (slot, gathered_again (e, part, turn.block));
    if (gather > 0 || e->state[turn.block].sums) {
      sp_slot_time_hide (slot, e->cost->slowdown, lag + scatter + gather, compute, 1);
      sp_slot_time_hide (slot, e->cost->slowdown, scatter + gather, compute, turn.n - 1);
      lag = 0;
    } else
      lag = scatter_beside (e, lag, turn.n * scatter, turn.n * compute, slot);
    if (turn.before < 0)
      sp_slot_time_open (slot, lag + scattered (e, part, turn.block));
  }
}

static void
backward_slot (const SpEstimateContext *e, gint32 at, const SpBlockWork *work, const gint32 *counts, SpSlotKind kind,
               SpSlotTime *slot)
{
  const Part part = { kind, kind != SP_SLOT_BACKWARD_WEIGHT, kind != SP_SLOT_BACKWARD_INPUT };
  double data = 0;

  memset (slot, 0, sizeof *slot);
  for (guint b = e->program->n_blocks; b-- > 0;) {
    const SpBlockState *state = &e->state[b];
    if (counts[b] == 0)
      continue;
    if (part.gathers && state->gathers_again)
      sp_slot_time_add (slot, &state->gather, counts[b]);
    if (part.gathers) {
      sp_slot_time_add (slot, &work[b].recompute, counts[b]);
      slot->recompute += counts[b] * work[b].recompute.compute;
    }
    sp_slot_time_add (slot, backward_of (&work[b], &part), counts[b]);
    if (part.scatters)
      sp_slot_time_add (slot, &state->sync_each, counts[b]);
    data += gathered_again (e, &part, (gint32) b) + scattered (e, &part, (gint32) b);
  }
  if (data > 0)
    hide_backward (e, at, work, &part, slot);
  if (part.gathers)
    add_chains (e, work, counts, TRUE, slot);
}

/* --- virtual stages ----------------------------------------------------------------------------------------------- */

/* Places that a chain of the layers goes through, 1 where there is none. */
static gint32
chain_places (const SpEstimateContext *e, gint32 variant)
{
  gint32 places = 1;

  for (guint b = 0; b < e->program->n_blocks; b++) {
    const SpListTime *list = &e->work[variant][b].forward;
    if (list->chain > 0)
      places = MAX (places, e->program->groups[list->chain_group].size);
  }
  return places;
}

/* As how many flows a collective counts on a port: where it goes on to other nodes, one for each member of its node, as
 * that many channels go through every port (sim/network.h). */
static gint32
port_flows (const SpEstimateContext *e, guint group)
{
  const SpPath *path = &e->cost->paths[group];

  return path->size > 1 && path->network ? path->per_node : 1;
}

/* A message inside a node may have to share its port with any of them. */
static gint32
most_port_flows (const SpEstimateContext *e)
{
  const SpPath *pipe = &e->cost->paths[SP_GROUP_PIPELINE];
  gint32 most = 1;

  for (guint g = 1; g < SP_N_GROUPS && pipe->crossings < pipe->size - 1; g++)
    most = MAX (most, port_flows (e, g));
  return most;
}

static void
add_wait (SpSlotTime *slot, SpAxis axis, double seconds)
{
  slot->step += seconds;
  slot->serial += seconds;
  slot->high += seconds;
  slot->axes[axis] += seconds;
  slot->exposed[axis] += seconds;
}

static void
add_host (const SpEstimateContext *e, SpSlotTime *slot)
{
  double seconds = sp_cost_beside_slot (e->cost, e->program);

  slot->step += seconds;
  slot->serial += seconds;
  slot->high += seconds;
  slot->host += seconds;
}

/* Messages from and to the neighbours hold up the stage that receives them, and so does gathering what came. */
static void
add_pipe (const SpEstimateContext *e, gint32 variant, gboolean receives, gboolean sends, SpSlotTime *slot)
{
  double seconds = receives || sends ? sp_cost_op (e->cost, e->pipe[variant]) : 0;

  /* A message shares the sender's links with the communication of its next slots, and either delays the other: it is
   * late at its receiver; and the sender is, along a chain on every place. */
  slot->high += seconds * ((receives ? most_port_flows (e) : 0) + (sends ? chain_places (e, variant) : 0));
  if (!receives)
    return;
  add_wait (slot, SP_AXIS_PIPELINE, seconds);
  if (e->pipe_gather[variant] != NULL)
    add_wait (slot, (SpAxis) e->pipe_gather[variant]->axis, sp_cost_op (e->cost, e->pipe_gather[variant]));
}

/* The most by which the step's gradient reduction delays what a chunk's last backward sends on. Ops of its lists that
 * block stand in the backward's way. What runs beside it shares links with the rest of its communication, and takes
 * from that no more than its own bytes need, on each place of a chain; nor more than its share of a link. */
static double
held_up (const SpEstimateContext *e, const SpPartTime *part)
{
  static const guint8 groups[] = { SP_GROUP_ZERO, SP_GROUP_EXPERT_DATA, SP_GROUP_REPLICA };
  gint32 variant = sp_program_last_variant (e->program), crowd = 1;
  const SpSlotTime *slot = &part->slots[variant][SP_SLOT_BACKWARD];
  double beside = 0, blocks = 0, others = sp_cost_op (e->cost, e->pipe[variant]);

  for (guint b = 0; b < e->program->n_blocks; b++) {
    const SpListTime *sync = &e->state[b].sync_once;
    beside += part->counts[b] * sync->data_async;
    blocks += sync->data_async > 0 ? part->counts[b] * (sync->serial - sync->data_async) : 0;
  }
  if (beside == 0)
    return 0;
  beside *= chain_places (e, variant);
  if (e->program->chunks > 1) /* the stage's next slot waits for it to be over */
    return blocks + beside;
  for (guint a = 0; a < SP_N_AXES; a++)
    others += slot->axes[a] + slot->waits[a];
  for (guint i = 0; i < G_N_ELEMENTS (groups); i++)
    crowd = MAX (crowd, port_flows (e, groups[i]));
  return blocks + MIN (beside, (others + blocks) * crowd);
}

void
sp_part_estimate (const SpEstimateContext *e, gint32 at, SpPartTime *part)
{
  const SpProgram *program = e->program;
  gboolean splits = sp_estimate_schedule (program)->splits;
  gint32 last = sp_program_virtual_stages (program) - 1;

  sp_estimate_run_counts (program, at, part->counts);
  for (gint32 v = 0; v < program->n_variants; v++) {
    SpSlotTime *slots = part->slots[v];
    forward_slot (e, at, v, part->counts, &slots[SP_SLOT_FORWARD]);
    add_pipe (e, v, at > 0, at < last, &slots[SP_SLOT_FORWARD]);
    add_host (e, &slots[SP_SLOT_FORWARD]);
    if (sp_program_is_forward (program)) {
      memset (&slots[SP_SLOT_BACKWARD], 0, (SP_N_SLOT_KINDS - SP_SLOT_BACKWARD) * sizeof *slots);
      continue;
    }
    for (guint kind = SP_SLOT_BACKWARD; kind < (splits ? SP_N_SLOT_KINDS : SP_SLOT_BACKWARD_INPUT); kind++) {
      backward_slot (e, at, e->work[v], part->counts, kind, &slots[kind]);
      add_pipe (e, v, kind != SP_SLOT_BACKWARD_WEIGHT && at < last, kind != SP_SLOT_BACKWARD_WEIGHT && at > 0,
                &slots[kind]);
      if (kind != SP_SLOT_BACKWARD_WEIGHT)
        add_host (e, &slots[kind]);
    }
  }
  part->held_up = program->stages > 1 && program->scope == SP_SCOPE_STEP ? held_up (e, part) : 0;
}
