/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/step-time.h"

#include <math.h>

/* The schedule over stages x micro-batches: a max-plus pass over its slots, and what stands for the rest of it. */

/* Starts when both are over, and takes `seconds`. */
static inline SpFigures
after (const SpFigures *a, const SpFigures *b, const SpFigures *seconds)
{
  SpFigures end;

  for (guint f = 0; f < SP_N_FIGURES; f++)
    end.of[f] = MAX (a->of[f], b->of[f]) + seconds->of[f];
  return end;
}

/* What the pass works in: slots of each stage, and when forwards and backwards of a virtual stage and micro-batch are
 * over (< 0: not yet). */
typedef struct {
  const SpProgram *program;
  const SpPartTime *const *parts;
  gint32 virtual_stages, m; /* m: forwards that are run, so as many as backwards */
  gint32 slices, small;     /* small: the first of the smaller last micro-batch's; as many as there are, none */
  SpSlot *slots;
  guint *n, *at; /* [stages] */
  SpFigures *done[2], *free_at;
} Pass;

static gsize
pass_bytes (const SpPipeline *pipeline, gint32 virtual_stages)
{
  gsize p = (gsize) pipeline->stages, ends = 2 * (gsize) virtual_stages * (gsize) sp_pipeline_runs (pipeline);

  return p * sp_schedule_most_slots (pipeline) * sizeof (SpSlot) + ends * sizeof (SpFigures) + 2 * p * sizeof (guint);
}

/* When what the slot waits for is over; FALSE if it is not yet. */
static gboolean
needs (const Pass *pass, const SpSlot *slot, gint32 at, SpFigures *ret)
{
  gint32 i = slot->micro_batch;
  const SpFigures *from;

  if (slot->kind == SP_SLOT_BACKWARD_WEIGHT || (slot->kind == SP_SLOT_FORWARD && at == 0)) {
    *ret = (SpFigures){ { 0 } };
    return TRUE;
  }
  if (slot->kind == SP_SLOT_FORWARD)
    from = &pass->done[0][(at - 1) * pass->m + i];
  else if (at == pass->virtual_stages - 1)
    from = &pass->done[0][at * pass->m + i];
  else
    from = &pass->done[1][(at + 1) * pass->m + i];
  *ret = *from;
  return from->of[SP_FIGURE_STEP] >= 0;
}

/* As far as a stage comes; TRUE if that is any further. */
static gboolean
run_stage (const Pass *pass, gint32 s, gint32 most_slots)
{
  const SpSlot *slots = pass->slots + (gsize) s * most_slots;
  guint before = pass->at[s];
  SpFigures start;

  for (; pass->at[s] < pass->n[s]; pass->at[s]++) {
    const SpSlot *slot = &slots[pass->at[s]];
    gint32 at = sp_program_virtual_stage (pass->program, s, slot->chunk);
    if (!needs (pass, slot, at, &start))
      break;
    gint32 variant = slot->micro_batch % pass->slices + (slot->micro_batch >= pass->small ? pass->slices : 0);
    const SpFigures seconds = sp_figures_of (&pass->parts[at]->slots[variant][slot->kind]);
    pass->free_at[s] = after (&pass->free_at[s], &start, &seconds);
    if (slot->kind != SP_SLOT_BACKWARD_WEIGHT)
      pass->done[slot->kind != SP_SLOT_FORWARD][at * pass->m + slot->micro_batch] = pass->free_at[s];
  }
  return pass->at[s] > before;
}

/* Of a forward alone: its slots, in the schedule's order. */
static guint
keep_forwards (SpSlot *slots, guint n)
{
  guint kept = 0;

  for (guint i = 0; i < n; i++)
    if (slots[i].kind == SP_SLOT_FORWARD)
      slots[kept++] = slots[i];
  return kept;
}

/* Max-plus pass over so many micro-batches: a slot starts when the stage is free and its neighbour's part is there. When
 * each stage is done: `ends`. */
static void
schedule_pass (const SpProgram *program, const SpPartTime *const *parts, gint32 micro_batches, SpFigures *ends)
{
  const SpSchedule *schedule = sp_estimate_schedule (program);
  SpPipeline pipeline = sp_program_pipeline (program);
  Pass pass = { .program = program, .parts = parts, .slices = sp_program_slices (program), .free_at = ends };
  pipeline.micro_batches = micro_batches;
  pass.m = sp_pipeline_runs (&pipeline);
  pass.small = pipeline.uneven ? pass.m - pass.slices : pass.m;
  gint32 p = program->stages, most = (gint32) sp_schedule_most_slots (&pipeline);
  g_autofree gpointer memory = NULL;
  gboolean moved = TRUE;

  pass.virtual_stages = sp_program_virtual_stages (program);
  gsize ends_of_slots = (gsize) pass.virtual_stages * (gsize) pass.m,
        bytes = pass_bytes (&pipeline, pass.virtual_stages);
  pass.done[0] = bytes <= SP_ESTIMATE_MOST_STACK ? g_alloca (bytes) : (memory = g_malloc (bytes));
  pass.done[1] = pass.done[0] + ends_of_slots;
  pass.slots = (SpSlot *) (pass.done[1] + ends_of_slots);
  pass.n = (guint *) (pass.slots + (gsize) p * (gsize) most);
  pass.at = pass.n + p;
  for (gsize i = 0; i < 2 * ends_of_slots; i++)
    pass.done[0][i].of[SP_FIGURE_STEP] = -1;
  for (gint32 s = 0; s < p; s++) {
    SpSlot *slots = pass.slots + (gsize) s * (gsize) most;
    pass.n[s] = schedule->fill (&pipeline, s, slots);
    if (sp_program_is_forward (program))
      pass.n[s] = keep_forwards (slots, pass.n[s]);
    pass.at[s] = 0;
    ends[s] = (SpFigures){ { 0 } };
  }
  /* Down the stages forwards run ahead of each other, up the stages backwards do. */
  for (gboolean down = TRUE; moved; down = !down) {
    moved = FALSE;
    for (gint32 n = 0; n < p; n++)
      moved |= run_stage (&pass, down ? n : p - 1 - n, most);
  }
}

/* 1F1B: a stage that waits for nothing but its first backward and, after its last forward, for its last one: the time
 * until then and from then on is its neighbours'. No schedule of this order beats it for any stage, and where the
 * stages are alike it is the step. When stage s is over at the earliest by what it and the later stages take:
 * `ends`. */
static void
longest_stages (const SpProgram *program, const SpPartTime *const *parts, SpFigures *ends)
{
  gint32 m = program->micro_batches, last = program->n_variants - 1;
  SpFigures up = { { 0 } }, down = { { 0 } }, down_last = { { 0 } };
  const SpFigures zero = { { 0 } };

#define OF(s, variant, kind) sp_figures_of (&parts[s]->slots[variant][kind])
  for (gint32 s = 0; s < program->stages; s++) {
    const SpFigures forward[2] = { OF (s, 0, SP_SLOT_FORWARD), OF (s, last, SP_SLOT_FORWARD) };
    const SpFigures backward[2] = { OF (s, 0, SP_SLOT_BACKWARD), OF (s, last, SP_SLOT_BACKWARD) };
    for (guint f = 0; f < SP_N_FIGURES; f++) {
      down.of[f] += forward[0].of[f] + backward[0].of[f];
      down_last.of[f] += forward[1].of[f] + backward[1].of[f];
    }
  }
  for (gint32 s = 0; s < program->stages; s++) {
    const SpFigures forward[2] = { OF (s, 0, SP_SLOT_FORWARD), OF (s, last, SP_SLOT_FORWARD) };
    const SpFigures backward[2] = { OF (s, 0, SP_SLOT_BACKWARD), OF (s, last, SP_SLOT_BACKWARD) };
    gint32 ahead = MIN (program->stages - s, m) - 1;
    ends[s] = zero;
    for (guint f = 0; f < SP_N_FIGURES; f++) {
      down.of[f] -= forward[0].of[f] + backward[0].of[f];
      down_last.of[f] -= forward[1].of[f] + backward[1].of[f];
      double busy = (m - 1) * (forward[0].of[f] + backward[0].of[f]) + forward[1].of[f] + backward[1].of[f];
      /* Of a smaller last micro-batch the one before may come back later. */
      double comes = last ? MAX (down_last.of[f], down.of[f] - forward[1].of[f]) : down.of[f];
      double waits = MAX (0.0, down.of[f] - ahead * forward[0].of[f]) + MAX (0.0, comes - ahead * backward[0].of[f]);
      ends[s].of[f] = up.of[f] + busy + waits;
      up.of[f] += forward[0].of[f];
    }
  }
  /* The last backward comes back up. */
  for (gint32 s = program->stages - 2; s >= 0; s--) {
    const SpFigures back = OF (s, last, SP_SLOT_BACKWARD);
    for (guint f = 0; f < SP_N_FIGURES; f++)
      ends[s].of[f] = MAX (ends[s].of[f], ends[s + 1].of[f] + back.of[f]);
  }
#undef OF
}

static SpFigures
slowest_period (const SpProgram *program, const SpPartTime *const *parts)
{
  SpFigures period = { { 0 } };

  for (gint32 s = 0; s < program->stages; s++) {
    SpFigures forward = sp_figures_of (&parts[s]->slots[0][SP_SLOT_FORWARD]),
              backward = sp_figures_of (&parts[s]->slots[0][SP_SLOT_BACKWARD]);
    for (guint f = 0; f < SP_N_FIGURES; f++)
      period.of[f] = MAX (period.of[f], forward.of[f] + backward.of[f]);
  }
  return period;
}

/* 1F1B beyond the micro-batches that were walked: a step is at most the slowest stage's period for each more, and at
 * least longest_stages: mostly the two are one. Where they are not, it is also at least what the last walked one added,
 * for each more. Against the whole pass, stages drawn at random: exact with equal micro-batches; with a smaller last
 * one 0.3 % less at worst. */
static void
extend_1f1b (const SpProgram *program, const SpPartTime *const *parts, gint32 walked, SpFigures *ends)
{
  gint32 p = program->stages, more = program->micro_batches - walked;
  const SpFigures period = slowest_period (program, parts);
  SpFigures longest[SP_MAX_STAGES], before[SP_MAX_STAGES];
  gboolean settled = TRUE;

  longest_stages (program, parts, longest);
  for (gint32 s = 0; s < p; s++)
    for (guint f = 0; f < SP_N_FIGURES; f++)
      settled &= longest[s].of[f] >= (ends[s].of[f] + more * period.of[f]) * (1 - 1e-12);
  if (settled) {
    memcpy (ends, longest, (gsize) p * sizeof *ends);
    return;
  }
  schedule_pass (program, parts, walked - 1, before);
  for (gint32 s = 0; s < p; s++)
    for (guint f = 0; f < SP_N_FIGURES; f++)
      ends[s].of[f] = MAX (longest[s].of[f], ends[s].of[f] + more * (ends[s].of[f] - before[s].of[f]));
}

/* Micro-batches that are walked if `most` may be: whole periods fewer than there are. */
static gint32
walked_micro_batches (const SpProgram *program, gint32 most)
{
  gint32 m = program->micro_batches, period = sp_schedule_period (sp_estimate_schedule (program), program->stages);

  return m <= most ? m : m - (m - most + period - 1) / period * period;
}

/* Whether a period more takes every stage no less than the busiest one's slots: else some stage still has idle time to
 * lose before it sets the pace. */
static gboolean
is_settled (const SpProgram *program, const SpStageTime *const *stages, gint32 period, const SpFigures *before,
            const SpFigures *ends)
{
  SpFigures pace = { { 0 } };

  for (gint32 s = 0; s < program->stages; s++)
    for (guint f = 0; f < SP_N_FIGURES; f++)
      pace.of[f] = MAX (pace.of[f], stages[s]->pace.of[f]);
  for (gint32 s = 0; s < program->stages; s++)
    for (guint f = 0; f < SP_N_FIGURES; f++)
      if (ends[s].of[f] - before[s].of[f] < period * pace.of[f] * (1 - 1e-9))
        return FALSE;
  return TRUE;
}

/* What no schedule beats: a stage runs its slots, after those of the stages before it have run the first forward, and
 * where backwards are whole and go one way they go back through those stages after its last. A pass that was cut short
 * may have missed it by the idle time that a stage had left. */
static void
no_less_than_slots (const SpProgram *program, const SpPartTime *const *parts, const SpStageTime *const *stages,
                    SpFigures *ends)
{
  const SpSchedule *schedule = sp_estimate_schedule (program);
  gint32 last = program->n_variants - 1;
  SpFigures fill = { { 0 } };

  for (gint32 s = 0; s < program->stages; s++)
    for (guint f = 0; f < SP_N_FIGURES; f++) {
      ends[s].of[f] = MAX (ends[s].of[f], fill.of[f] + stages[s]->busy.of[f]);
      if (schedule->mirrored)
        continue;
      /* The first micro-batch is a whole one, where there are any. */
      const SpFigures forward = sp_figures_of (&parts[s]->slots[sp_program_variant_of (program, 0)][SP_SLOT_FORWARD]);
      fill.of[f] += forward.of[f];
    }
  if (schedule->mirrored || schedule->splits || sp_program_is_forward (program))
    return;
  for (gint32 s = program->stages - 2; s >= 0; s--)
    for (guint f = 0; f < SP_N_FIGURES; f++) {
      double back = INFINITY;
      for (gint32 c = 0; c < program->chunks; c++)
        for (gint32 v = 0; v <= last; v++) {
          const SpSlotTime *slots = parts[c * program->stages + s]->slots[v];
          const SpFigures backward = sp_figures_of (&slots[SP_SLOT_BACKWARD]);
          back = MIN (back, backward.of[f]);
        }
      ends[s].of[f] = MAX (ends[s].of[f], ends[s + 1].of[f] + back);
    }
}

#define FIRST_WALK 6     /* x p micro-batches, or slices */
#define LONGEST_WALK 2e6 /* slots of all stages */

/* 1F1B of whole micro-batches. */
static gboolean
is_closed (const SpProgram *program)
{
  return sp_estimate_schedule (program) == &sp_schedule_1f1b && !sp_program_is_forward (program) &&
         program->slices == 0;
}

static gint32
most_walked (const SpProgram *program)
{
  gint32 slices = sp_program_slices (program);

  return is_closed (program) ? 2 * program->stages + 2
                             : (FIRST_WALK * program->stages + slices - 1) / slices + (slices > 1 ? 2 : 0);
}

/* Any schedule: walked until it has settled, then what the last period added, for each more. Against the whole pass,
 * uneven stages drawn at random: exact but for one in a thousand, 0.5 % less at worst. */
static void
walk_and_extend (const SpProgram *program, const SpPartTime *const *parts, const SpStageTime *const *stages,
                 SpFigures *ends)
{
  gint32 m = program->micro_batches;
  gint32 period = sp_schedule_period (sp_estimate_schedule (program), program->stages);
  SpFigures before[SP_MAX_STAGES];

  for (gint32 most = most_walked (program);; most *= 2) {
    gint32 walked = walked_micro_batches (program, most);
    schedule_pass (program, parts, walked, ends);
    if (walked == m)
      return;
    schedule_pass (program, parts, walked - period, before);
    if (!is_settled (program, stages, period, before, ends) &&
        6.0 * most * sp_program_slices (program) * program->stages * program->chunks < LONGEST_WALK)
      continue;
    for (gint32 s = 0; s < program->stages; s++)
      for (guint f = 0; f < SP_N_FIGURES; f++)
        ends[s].of[f] += (ends[s].of[f] - before[s].of[f]) * (m - walked) / period;
    no_less_than_slots (program, parts, stages, ends);
    return;
  }
}

gboolean
sp_schedule_is_walked (const SpProgram *program)
{
  return program->micro_batches <= most_walked (program);
}

void
sp_schedule_ends (const SpProgram *program, const SpPartTime *const *parts, const SpStageTime *const *stages,
                  SpFigures *ends)
{
  gint32 walked = walked_micro_batches (program, most_walked (program));

  if (program->stages == 1) {
    ends[0] = stages[0]->busy;
    return;
  }
  if (!is_closed (program)) {
    walk_and_extend (program, parts, stages, ends);
    return;
  }
  schedule_pass (program, parts, walked, ends);
  if (walked < program->micro_batches)
    extend_1f1b (program, parts, walked, ends);
}

void
sp_schedule_least_ends (const SpProgram *program, const SpPartTime *const *parts, const SpStageTime *const *stages,
                        SpFigures *ends)
{
  memset (ends, 0, (gsize) program->stages * sizeof *ends);
  no_less_than_slots (program, parts, stages, ends);
}
