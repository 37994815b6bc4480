/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cost.h"
#include "models/schedules.h"

#include <math.h>
#include <string.h>

/* From the times of blocks to that of a step: slots, stages, the schedule's pass. The rules stand in estimate.h. */

/* --- slots -------------------------------------------------------------------------------------------------------- */

/* What a slot of a stage takes, summed over its layers. */
typedef struct {
  double step, serial, high;
  double compute, host;
  double kernels; /* of compute, without slowdowns */
  double axes[SP_N_AXES], exposed[SP_N_AXES];
  double waits[SP_N_AXES]; /* for a chain to come by */
} Slot;

/* Adds `n` runs of a list. */
static void
slot_add (Slot *slot, const SpListTime *list, double n)
{
  if (list->serial == 0)
    return;
  slot->step += n * list->step;
  slot->serial += n * list->serial;
  slot->high += n * list->high;
  slot->compute += n * list->compute;
  slot->kernels += n * list->compute;
  slot->host += n * list->host;
  for (guint a = 0; a < SP_N_AXES; a++) {
    slot->axes[a] += n * list->axes[a];
    slot->exposed[a] += n * list->exposed[a];
  }
}

/* `n` times a layer's async data communication beside `compute` seconds of a neighbour; the serial figures have it
 * already. */
static void
slot_hide (Slot *slot, double slowdown, double data, double compute, double n)
{
  double slowed = slowdown * MIN (data, compute);
  double open = MAX (0.0, data - compute - slowed);

  slot->step += n * (slowed + open);
  slot->compute += n * slowed;
  slot->exposed[SP_AXIS_DATA] += n * open;
}

static void
slot_open (Slot *slot, double seconds)
{
  slot->step += seconds;
  slot->exposed[SP_AXIS_DATA] += seconds;
}

static void
slot_chain (Slot *slot, const SpListTime *list, double n)
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
  guint chain = group_digits (e->program, list->chain_group),
        groups = e->state[block].gather.groups | e->state[block].sync_each.groups | list->groups;

  for (guint g = 0; g < SP_N_GROUPS; g++)
    if (groups & 1u << g && (group_digits (e->program, g) & chain) == chain)
      return TRUE;
  return FALSE;
}

static void
add_chains (const SpEstimateContext *e, const SpBlockWork *work, const gint32 *counts, gboolean backward, Slot *slot)
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

/* A block's parameters are gathered beside the block before; the first block's in the open. */
static void
forward_slot (const SpEstimateContext *e, const SpBlockWork *work, const gint32 *counts, Slot *slot)
{
  gboolean first = TRUE;

  memset (slot, 0, sizeof *slot);
  for (guint b = 0; b < e->program->n_blocks; b++) {
    if (counts[b] == 0)
      continue;
    double data = e->state[b].gather.data_async;
    slot_add (slot, &e->state[b].gather, counts[b]);
    slot_add (slot, &work[b].forward, counts[b]);
    slot_hide (slot, e->cost->slowdown, data, work[b].forward.step, counts[b] - first);
    if (first)
      slot_open (slot, data);
    first = FALSE;
  }
  add_chains (e, work, counts, FALSE, slot);
}

/* Beside a block's backward the next one's parameters are gathered and the gradients of the one before are scattered;
 * those of the last in the open. */
static void
backward_slot (const SpEstimateContext *e, const SpBlockWork *work, const gint32 *counts, Slot *slot)
{
  guint last = 0;

  while (counts[last] == 0)
    last++;
  memset (slot, 0, sizeof *slot);
  for (guint b = e->program->n_blocks; b-- > 0;) {
    const SpBlockState *state = &e->state[b];
    if (counts[b] == 0)
      continue;
    double gather = state->regather ? state->gather.data_async : 0, sync = state->sync_each.data_async;
    double compute = work[b].recompute.step + work[b].backward.step;
    if (state->regather)
      slot_add (slot, &state->gather, counts[b]);
    slot_add (slot, &work[b].recompute, counts[b]);
    slot_add (slot, &work[b].backward, counts[b]);
    slot_add (slot, &state->sync_each, counts[b]);
    slot_hide (slot, e->cost->slowdown, gather + sync, compute, counts[b] - (b == last));
    if (b == last) {
      slot_hide (slot, e->cost->slowdown, gather, compute, 1);
      slot_open (slot, sync);
    }
  }
  add_chains (e, work, counts, TRUE, slot);
}

/* --- stages ------------------------------------------------------------------------------------------------------- */

typedef struct {
  Slot forward[2], backward[2]; /* of each variant */
  Slot tail;                    /* gradient reduction and optimizer */
  Slot total;                   /* of a step */
  gint32 counts[SP_MAX_BLOCKS];
} Stage;

#define MAX_STAGES 64

/* Messages from and to the neighbours hold up the stage that receives them. */
static void
add_pipe (const SpEstimateContext *e, gint32 variant, gboolean receives, Slot *slot)
{
  if (!receives)
    return;
  double seconds = sp_cost_op (e->cost, &e->pipe[variant]);
  slot->step += seconds;
  slot->serial += seconds;
  slot->high += seconds;
  slot->axes[SP_AXIS_PIPELINE] += seconds;
  slot->exposed[SP_AXIS_PIPELINE] += seconds;
}

/* The last backward hides what it can of the reduction; the block that is last in it is reduced in the open. */
static void
tail_of (const SpEstimateContext *e, Stage *stage, gint32 last_variant)
{
  double data = 0, open = 0;

  memset (&stage->tail, 0, sizeof stage->tail);
  for (guint b = e->program->n_blocks; b-- > 0;) {
    if (stage->counts[b] == 0)
      continue;
    slot_add (&stage->tail, &e->state[b].sync_once, stage->counts[b]);
    slot_add (&stage->tail, &e->state[b].optimizer, stage->counts[b]);
    open = e->state[b].sync_once.data_async;
    data += stage->counts[b] * open;
  }
  slot_hide (&stage->tail, e->cost->slowdown, data - open, stage->backward[last_variant].step, 1);
  slot_open (&stage->tail, open);
}

static void
estimate_stage (const SpEstimateContext *e, gint32 s, Stage *stage)
{
  const SpProgram *program = e->program;

  sp_estimate_counts (program, s, stage->counts);
  for (gint32 v = 0; v < program->n_variants; v++) {
    forward_slot (e, e->work[v], stage->counts, &stage->forward[v]);
    backward_slot (e, e->work[v], stage->counts, &stage->backward[v]);
    add_pipe (e, v, s > 0, &stage->forward[v]);
    add_pipe (e, v, s < program->stages - 1, &stage->backward[v]);
  }
  tail_of (e, stage, program->n_variants - 1);
}

/* --- the schedule ------------------------------------------------------------------------------------------------- */

/* The three figures of a slot, and of a step, side by side. */
enum { STEP, SERIAL, HIGH, N_FIGURES };

typedef struct {
  double of[N_FIGURES];
} Figures;

static Figures
figures_of (const Slot *slot)
{
  return (Figures){ { slot->step, slot->serial, slot->high } };
}

/* Starts when both are over, and takes `seconds`. */
static inline Figures
after (const Figures *a, const Figures *b, const Figures *seconds)
{
  Figures end;

  for (guint f = 0; f < N_FIGURES; f++)
    end.of[f] = MAX (a->of[f], b->of[f]) + seconds->of[f];
  return end;
}

/* Max-plus pass over `m` micro-batches: a slot starts when the stage is free and its neighbour's part is there. */
static Figures
schedule_pass (const SpProgram *program, const Stage *const *stages, gint32 m, gint32 small_last)
{
  const SpSchedule *schedule = sp_schedule_get (program->schedule);
  const Figures start = { { 0 } };
  gint32 p = program->stages, next[MAX_STAGES] = { 0 };
  Figures free_at[MAX_STAGES] = { 0 }, end = start, seconds[MAX_STAGES][2][2];
  Figures *done[2] = { g_newa (Figures, p * m), g_newa (Figures, p * m) };
  guint8 *is_done[2] = { g_newa (guint8, p * m), g_newa (guint8, p * m) };
  gboolean moved = TRUE;

  for (gint32 s = 0; s < p; s++)
    for (gint32 v = 0; v < program->n_variants; v++) {
      seconds[s][v][0] = figures_of (&stages[s]->forward[v]);
      seconds[s][v][1] = figures_of (&stages[s]->backward[v]);
    }
  memset (is_done[0], 0, (gsize) (p * m));
  memset (is_done[1], 0, (gsize) (p * m));
  /* Down the stages forwards run ahead of each other, up the stages backwards do. */
  for (gboolean down = TRUE; moved; down = !down) {
    moved = FALSE;
    for (gint32 n = 0; n < p; n++) {
      gint32 s = down ? n : p - 1 - n;
      SpSlot slot;
      for (; schedule->slot (p, s, m, next[s], &slot); next[s]++) {
        gint32 i = slot.micro_batch, here = s * m + i;
        /* Forward needs the stage before, backward the one after; the first forward nothing, the last stage's backward
         * its own forward. */
        gboolean first = !slot.backward && s == 0, turn = slot.backward && s == p - 1;
        guint needs = slot.backward && !turn;
        gint32 from = turn ? here : slot.backward ? here + m : here - m;
        if (!first && !is_done[needs][from])
          break;
        gint32 variant = small_last && i == m - 1;
        free_at[s] = after (&free_at[s], first ? &start : &done[needs][from], &seconds[s][variant][slot.backward]);
        done[slot.backward][here] = free_at[s];
        is_done[slot.backward][here] = 1;
        moved = TRUE;
      }
    }
  }
  for (gint32 s = 0; s < p; s++)
    end = after (&end, &free_at[s], &start);
  return end;
}

static Figures
slowest_period (const SpProgram *program, const Stage *const *stages)
{
  Figures period = { { 0 } };

  for (gint32 s = 0; s < program->stages; s++) {
    Figures forward = figures_of (&stages[s]->forward[0]), backward = figures_of (&stages[s]->backward[0]);
    for (guint f = 0; f < N_FIGURES; f++)
      period.of[f] = MAX (period.of[f], forward.of[f] + backward.of[f]);
  }
  return period;
}

/* A stage that waits for nothing but its first backward and, after its last forward, for its last one: the time until
 * then and from then on is its neighbours'. No schedule of this order beats it for any stage, and where the stages are
 * alike it is the step. */
static Figures
longest_stage (const SpProgram *program, const Stage *const *stages)
{
  gint32 m = program->micro_batches, last = program->n_variants - 1;
  Figures up = { { 0 } }, down = { { 0 } }, down_last = { { 0 } }, longest = { { 0 } };

  for (gint32 s = 0; s < program->stages; s++)
    for (guint f = 0; f < N_FIGURES; f++) {
      down.of[f] += figures_of (&stages[s]->forward[0]).of[f] + figures_of (&stages[s]->backward[0]).of[f];
      down_last.of[f] += figures_of (&stages[s]->forward[last]).of[f] + figures_of (&stages[s]->backward[last]).of[f];
    }
  for (gint32 s = 0; s < program->stages; s++) {
    const Figures forward[2] = { figures_of (&stages[s]->forward[0]), figures_of (&stages[s]->forward[last]) };
    const Figures backward[2] = { figures_of (&stages[s]->backward[0]), figures_of (&stages[s]->backward[last]) };
    gint32 ahead = sp_schedule_get (program->schedule)->in_flight (program->stages, s, m) - 1;
    for (guint f = 0; f < N_FIGURES; f++) {
      down.of[f] -= forward[0].of[f] + backward[0].of[f];
      down_last.of[f] -= forward[1].of[f] + backward[1].of[f];
      double busy = (m - 1) * (forward[0].of[f] + backward[0].of[f]) + forward[1].of[f] + backward[1].of[f];
      /* Of a smaller last micro-batch the one before may come back later. */
      double comes = last ? MAX (down_last.of[f], down.of[f] - forward[1].of[f]) : down.of[f];
      double waits = MAX (0.0, down.of[f] - ahead * forward[0].of[f]) + MAX (0.0, comes - ahead * backward[0].of[f]);
      longest.of[f] = MAX (longest.of[f], up.of[f] + busy + waits);
      up.of[f] += forward[0].of[f] + backward[1].of[f];
    }
  }
  return longest;
}

/* Micro-batches are walked up to 2 p + 2 of them. Beyond, a step is at most the slowest stage's period for each more,
 * and at least longest_stage: mostly the two are one. Where they are not, it is also at least what the last walked one
 * added, for each more. Against the whole pass, stages drawn at random: exact with equal micro-batches; with a smaller
 * last one 0.3 % less at worst. */
static Figures
schedule_seconds (const SpProgram *program, const Stage *const *stages)
{
  gint32 m = program->micro_batches, p = program->stages, small_last = program->n_variants - 1;
  gint32 walked = MIN (m, 2 * p + 2);
  Figures longest = longest_stage (program, stages);
  gboolean settled = TRUE;

  if (p == 1)
    return longest;
  Figures end = schedule_pass (program, stages, walked, small_last), period = slowest_period (program, stages);
  for (guint f = 0; f < N_FIGURES && m > walked; f++)
    settled &= longest.of[f] >= (end.of[f] + (m - walked) * period.of[f]) * (1 - 1e-12);
  if (m == walked)
    return end;
  if (settled)
    return longest;
  Figures before = schedule_pass (program, stages, walked - 1, small_last);
  for (guint f = 0; f < N_FIGURES; f++)
    end.of[f] = MAX (longest.of[f], end.of[f] + (m - walked) * (end.of[f] - before.of[f]));
  return end;
}

/* --- the step ----------------------------------------------------------------------------------------------------- */

static void
total_of (const SpProgram *program, const Stage *stage, Slot *total)
{
  *total = stage->tail;
  for (gint32 v = 0; v < program->n_variants; v++) {
    const Slot *slots[2] = { &stage->forward[v], &stage->backward[v] };
    for (guint i = 0; i < 2; i++) {
      double n = sp_estimate_runs (program, v);
      total->step += n * slots[i]->step;
      total->serial += n * slots[i]->serial;
      total->high += n * slots[i]->high;
      total->compute += n * slots[i]->compute;
      total->kernels += n * slots[i]->kernels;
      total->host += n * slots[i]->host;
      for (guint a = 0; a < SP_N_AXES; a++) {
        total->axes[a] += n * slots[i]->axes[a];
        total->exposed[a] += n * slots[i]->exposed[a];
        total->waits[a] += n * slots[i]->waits[a];
      }
    }
  }
}

/* No schedule beats the busiest resource of any stage, nor one micro-batch's way through all of them. Axes share
 * streams at most with each other, so the largest axis is a bound of its stream. */
static double
lowest (const SpProgram *program, const Stage *const *stages)
{
  double low = 0, path = 0;
  gint32 v = program->n_variants - 1;

  for (gint32 s = 0; s < program->stages; s++) {
    low = MAX (low, stages[s]->total.kernels);
    path += stages[s]->forward[v].kernels + stages[s]->backward[v].kernels;
    for (guint a = 0; a < SP_N_AXES; a++)
      low = MAX (low, stages[s]->total.axes[a]);
  }
  return MAX (low, path);
}

static void
break_down (const SpProgram *program, const Stage *const *stages, double tail, SpEstimate *ret)
{
  gint32 busiest = 0;

  for (gint32 s = 1; s < program->stages; s++)
    if (stages[s]->total.step > stages[busiest]->total.step)
      busiest = s;
  const Slot *total = &stages[busiest]->total;
  ret->compute_s = total->compute;
  ret->host_s = total->host;
  ret->exposed_communication_s = 0;
  for (guint a = 0; a < SP_N_AXES; a++) {
    ret->exposed_communication_s += total->exposed[a];
    ret->axes[a].time_s = total->axes[a] + total->waits[a];
    ret->axes[a].exposed_s = total->exposed[a];
  }
  ret->bubble_s = program->stages > 1 ? MAX (0.0, ret->step_time_s - tail - (total->step - tail)) : 0;
  ret->idle_s =
      MAX (0.0, ret->step_time_s - ret->compute_s - ret->host_s - ret->exposed_communication_s - ret->bubble_s);
}

void
sp_estimate_time (const SpEstimateContext *e, SpEstimate *ret)
{
  const SpProgram *program = e->program;
  const Stage *stages[MAX_STAGES];
  Stage own[MAX_STAGES];
  Figures tail = { { 0 } };
  guint n = 0;

  g_assert (program->stages <= MAX_STAGES);
  for (gint32 s = 0; s < program->stages; s++) {
    if (sp_estimate_is_twin (program, s)) {
      stages[s] = stages[s - 1];
      continue;
    }
    estimate_stage (e, s, &own[n]);
    total_of (program, &own[n], &own[n].total);
    Figures mine = figures_of (&own[n].tail);
    for (guint f = 0; f < N_FIGURES; f++)
      tail.of[f] = MAX (tail.of[f], mine.of[f]);
    stages[s] = &own[n++];
  }
  Figures end = schedule_seconds (program, stages);
  ret->step_time_s = end.of[STEP] + tail.of[STEP];
  ret->serial_s = end.of[SERIAL] + tail.of[SERIAL];
  ret->high_s = end.of[HIGH] + tail.of[HIGH];
  ret->low_s = lowest (program, stages);
  break_down (program, stages, tail.of[STEP], ret);
}
