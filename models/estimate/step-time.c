/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/step-time.h"

/* Stages with their tails, and the step. */

/* --- stages ------------------------------------------------------------------------------------------------------- */

/* The last backward of a chunk hides of the reduction what its own data communication leaves room for; the block that
 * is last in the step is reduced in the open. */
static void
tail_of (const SpEstimateContext *e, SpStageTime *stage, gint32 last_variant)
{
  const SpProgram *program = e->program;
  SpSlotKind last = sp_estimate_schedule (program)->splits ? SP_SLOT_BACKWARD_WEIGHT : SP_SLOT_BACKWARD;
  double open = 0;

  memset (&stage->tail, 0, sizeof stage->tail);
  for (gint32 c = program->chunks; c-- > 0;) {
    const SpPartTime *part = sp_part_of (program, stage, c);
    double data = 0;
    for (guint b = program->n_blocks; b-- > 0;) {
      if (part->counts[b] == 0)
        continue;
      sp_slot_time_add (&stage->tail, &e->state[b].sync_once, part->counts[b]);
      sp_slot_time_add (&stage->tail, &e->state[b].optimizer, part->counts[b]);
      open = e->state[b].sync_once.data_async;
      data += part->counts[b] * open;
    }
    const SpSlotTime *slot = &part->slots[last_variant][last];
    double hidden = c == 0 ? data - open : data;
    double idle = MAX (0.0, slot->step - slot->data); /* the stream has the slot's gathers and scatters to do */
    sp_slot_time_hide (&stage->tail, e->cost->slowdown, hidden, idle, 1);
  }
  sp_slot_time_open (&stage->tail, open);
}

/* Tied matrices are summed where the first stage is done with all else but its embedding and the last one begins;
 * mirrored stages do the same from the first layer on. */
static void
meeting_of (const SpEstimateContext *e, SpStageTime *stage)
{
  const SpProgram *program = e->program;
  guint head = program->n_blocks - 1;
  gboolean meets[2] = { FALSE };

  stage->until = -1;
  if (sp_estimate_schedule (program)->mirrored) {
    stage->until = 0;
    stage->meets = program->stages - 1 - stage->number;
    return;
  }
  for (guint i = 0; i < 2; i++)
    meets[i] = e->state[i == 0 ? 0 : head].sync_meets;
  if (!meets[0] || !meets[1] || (stage->number != 0 && stage->number != program->stages - 1))
    return;
  stage->meets = program->stages - 1 - stage->number;
  stage->until = e->state[stage->number == 0 ? 0 : head].sync_before;
  for (gint32 c = 0; c < program->chunks && stage->number == 0; c++)
    for (guint b = 1; b < program->n_blocks; b++)
      stage->until += sp_part_of (program, stage, c)->counts[b] * e->state[b].sync_once.serial;
}

/* --- the step ----------------------------------------------------------------------------------------------------- */

/* A stage's last backward waits for those of the virtual stages after it, each held up by its own reduction; what the
 * stage's own takes from its last backward it no longer takes from its tail. Nobody waits for a backward's weights, and
 * mirrored stages reduce in their tails. */
static void
add_hold_ups (const SpProgram *program, const SpPartTime *const *parts, SpFigures *ends)
{
  const SpSchedule *schedule = sp_estimate_schedule (program);

  if (schedule->splits || schedule->mirrored)
    return;
  for (gint32 s = 0; s < program->stages; s++)
    for (gint32 at = s + 1; at < sp_program_virtual_stages (program); at++)
      if (sp_schedule_stage (schedule, program->stages, at, 0) != s)
        ends[s].of[SP_FIGURE_HIGH] += parts[at]->held_up;
}

/* When the tails of the stages are over, and so the step. */
static SpFigures
step_end (const SpProgram *program, const SpStageTime *const *stages, const SpFigures *ends)
{
  SpFigures end = { { 0 } };

  for (gint32 s = 0; s < program->stages; s++) {
    const SpStageTime *stage = stages[s];
    const SpFigures tail = sp_figures_of (&stage->tail);
    for (guint f = 0; f < SP_N_FIGURES; f++) {
      double begin = ends[s].of[f];
      if (stage->until >= 0)
        begin = MAX (begin, ends[stage->meets].of[f] + stages[stage->meets]->until - stage->until);
      end.of[f] = MAX (end.of[f], begin + tail.of[f]);
    }
  }
  return end;
}

static void
slot_add_slot (SpSlotTime *slot, const SpSlotTime *other, double n)
{
  slot->step += n * other->step;
  slot->serial += n * other->serial;
  slot->high += n * other->high;
  slot->compute += n * other->compute;
  slot->kernels += n * other->kernels;
  slot->forward += n * other->forward;
  slot->recompute += n * other->recompute;
  slot->slowed += n * other->slowed;
  slot->host += n * other->host;
  slot->issue += n * other->issue;
  for (guint a = 0; a < SP_N_AXES; a++) {
    slot->axes[a] += n * other->axes[a];
    slot->exposed[a] += n * other->exposed[a];
    slot->waits[a] += n * other->waits[a];
  }
}

/* Micro-batches of a chunk whose backward is in two parts. */
static double
split_runs (const SpProgram *program, gint32 stage, gint32 chunk)
{
  const SpSchedule *schedule = sp_estimate_schedule (program);
  SpPipeline pipeline = sp_program_pipeline (program);
  double n = 0;

  if (!schedule->splits || sp_program_is_one_layer (program))
    return 0;
  /* With more micro-batches whole backwards are added, where there are any at all. */
  if (schedule->mirrored)
    pipeline.micro_batches = MIN (pipeline.micro_batches, sp_schedule_steady (schedule, &pipeline));
  else
    return program->micro_batches;
  SpSlot *slots = g_newa (SpSlot, sp_schedule_most_slots (&pipeline)); /* of at most 4 p micro-batches */
  guint all = schedule->fill (&pipeline, stage, slots);
  for (guint i = 0; i < all; i++)
    n += slots[i].kind == SP_SLOT_BACKWARD_WEIGHT && slots[i].chunk == chunk;
  return n;
}

static void
total_of (const SpProgram *program, SpStageTime *stage)
{
  gboolean splits = sp_estimate_schedule (program)->splits, mirrored = sp_estimate_schedule (program)->mirrored;
  SpFigures tail = sp_figures_of (&stage->tail);

  stage->total = stage->tail;
  stage->pace = (SpFigures){ { 0 } };
  for (gint32 c = 0; c < program->chunks; c++) {
    const SpPartTime *part = sp_part_of (program, stage, c);
    double split = split_runs (program, stage->number, c);
    for (gint32 v = 0; v < program->n_variants; v++) {
      const SpSlotTime *slots = part->slots[v];
      double n = sp_estimate_runs (program, v), parts = MIN (n, split);
      slot_add_slot (&stage->total, &slots[SP_SLOT_FORWARD], n);
      if (n > parts)
        slot_add_slot (&stage->total, &slots[SP_SLOT_BACKWARD], n - parts);
      if (parts > 0) {
        slot_add_slot (&stage->total, &slots[SP_SLOT_BACKWARD_INPUT], parts);
        slot_add_slot (&stage->total, &slots[SP_SLOT_BACKWARD_WEIGHT], parts);
      }
    }
    /* Whole backwards are added to a mirrored schedule, to half of the micro-batches' in each chunk. */
    const SpSlotTime *slots = part->slots[0];
    for (gint32 v = 0; v < sp_program_slices (program); v++) {
      const SpSlotTime *of = part->slots[v];
      const SpFigures forward = sp_figures_of (&of[SP_SLOT_FORWARD]);
      const SpFigures backward = sp_figures_of (&of[splits && !mirrored ? SP_SLOT_BACKWARD_INPUT : SP_SLOT_BACKWARD]);
      for (guint f = 0; f < SP_N_FIGURES; f++)
        stage->pace.of[f] += (forward.of[f] + backward.of[f]) * (mirrored ? 0.5 : 1);
    }
    if (splits && !mirrored) {
      const SpFigures weight = sp_figures_of (&slots[SP_SLOT_BACKWARD_WEIGHT]);
      for (guint f = 0; f < SP_N_FIGURES; f++)
        stage->pace.of[f] += weight.of[f];
    }
  }
  const SpFigures total = sp_figures_of (&stage->total);
  for (guint f = 0; f < SP_N_FIGURES; f++)
    stage->busy.of[f] = total.of[f] - tail.of[f];
}

/* The least that communication of an axis may take of its price. Of an axis on two streams one has at least half. */
static double
axis_ratio (const SpCost *cost, const SpProgram *program, SpAxis axis)
{
  static const guint8 groups[SP_N_AXES][3] = {
    [SP_AXIS_TENSOR] = { SP_GROUP_TENSOR },
    [SP_AXIS_ULYSSES] = { SP_GROUP_ULYSSES, SP_GROUP_ULYSSES_LINEAR },
    [SP_AXIS_RING] = { SP_GROUP_RING, SP_GROUP_RING_INNER, SP_GROUP_RING_OUTER },
    [SP_AXIS_LASP] = { SP_GROUP_LASP },
    [SP_AXIS_DATA] = { SP_GROUP_ZERO, SP_GROUP_EXPERT_DATA, SP_GROUP_REPLICA },
    [SP_AXIS_PIPELINE] = { SP_GROUP_PIPELINE, SP_GROUP_TIE, SP_GROUP_MIRROR },
    [SP_AXIS_EXPERT] = { SP_GROUP_EXPERT },
  };
  double ratio = axis == SP_AXIS_RING && program->groups[SP_GROUP_RING_OUTER].size > 1 ? 0.5 : 1;

  for (guint i = 0; i < G_N_ELEMENTS (groups[axis]) && groups[axis][i] != SP_GROUP_NONE; i++)
    if (program->groups[groups[axis][i]].size > 1)
      ratio = MIN (ratio, sp_cost_alone_ratio (cost, groups[axis][i]));
  return ratio;
}

/* No schedule beats the busiest resource of any stage, nor one micro-batch's way through all of them, for which the
 * weights' part of a backward does not count. Axes share streams at most with each other, so the largest axis is a
 * bound of its stream. */
static double
lowest (const SpEstimateContext *e, const SpStageTime *const *stages)
{
  const SpProgram *program = e->program;
  gboolean splits = sp_estimate_schedule (program)->splits && !sp_program_is_one_layer (program);
  SpSlotKind backward = splits ? SP_SLOT_BACKWARD_INPUT : SP_SLOT_BACKWARD;
  double low = 0, path = 0;
  gint32 v = sp_program_last_variant (program);

  for (gint32 s = 0; s < program->stages; s++) {
    low = MAX (low, stages[s]->total.kernels);
    for (guint a = 0; a < SP_N_AXES; a++)
      if (stages[s]->total.axes[a] > low)
        low = MAX (low, axis_ratio (e->cost, program, a) * stages[s]->total.axes[a]);
  }
  for (gint32 at = 0; at < sp_program_virtual_stages (program); at++) {
    const SpSlotTime *slots = stages[0]->parts[at]->slots[v];
    path += slots[SP_SLOT_FORWARD].kernels + slots[backward].kernels;
  }
  return MAX (low, path);
}

static void
break_down (const SpProgram *program, const SpStageTime *const *stages, double waits, SpEstimate *ret)
{
  gint32 busiest = 0;

  for (gint32 s = 1; s < program->stages; s++)
    if (stages[s]->total.step > stages[busiest]->total.step)
      busiest = s;
  const SpSlotTime *total = &stages[busiest]->total;
  const SpSlotTime *tail = &stages[busiest]->tail;
  ret->compute_s = total->compute;
  ret->forward_s = total->forward;
  ret->recompute_s = total->recompute;
  ret->slowed_s = total->slowed;
  ret->optimizer_s = tail->compute - tail->slowed;
  ret->backward_s = total->compute - total->forward - total->recompute - total->slowed - ret->optimizer_s;
  ret->host_s = total->host + waits;
  ret->exposed_communication_s = 0;
  for (guint a = 0; a < SP_N_AXES; a++) {
    ret->exposed_communication_s += total->exposed[a];
    ret->axes[a].time_s = total->axes[a] + total->waits[a];
    ret->axes[a].exposed_s = total->exposed[a];
  }
  ret->host_issue_s = total->issue;
  ret->is_host_bound = total->issue > 0 && total->issue >= total->step - total->host;
  ret->bubble_s = program->stages > 1 ? MAX (0.0, ret->step_time_s - waits - total->step) : 0;
  ret->idle_s =
      MAX (0.0, ret->step_time_s - ret->compute_s - ret->host_s - ret->exposed_communication_s - ret->bubble_s);
}

/* Whatever the schedule and the engine. */
static void
add_host_step (const SpEstimateContext *e, SpEstimate *ret)
{
  double beside = sp_cost_beside_step (e->cost, e->program);

  ret->step_time_s += beside;
  ret->serial_s += beside;
  ret->high_s += beside;
  ret->low_s += beside;
  ret->host_s += beside;
}

/* How much longer than `step` the busiest host is. */
static double
issue_beyond (const SpProgram *program, const SpStageTime *const *stages, double step)
{
  double most = step;

  for (gint32 s = 0; s < program->stages; s++)
    most = MAX (most, stages[s]->total.issue);
  return most > step ? most - step : 0;
}

/* Room for the slots of all parts. */
static gsize
slots_bytes (const SpProgram *program)
{
  return (gsize) sp_program_virtual_stages (program) * (gsize) program->n_variants *
         sizeof (SpSlotTime[SP_N_SLOT_KINDS]);
}

static guint
estimate_parts (const SpEstimateContext *e, SpSlotTime (*slots)[SP_N_SLOT_KINDS], SpPartTime *own,
                const SpPartTime **parts)
{
  const SpProgram *program = e->program;
  guint n = 0;

  for (gint32 at = 0; at < sp_program_virtual_stages (program); at++)
    if (at > 0 && sp_estimate_are_alike (program, at, at - 1))
      parts[at] = parts[at - 1];
    else {
      own[n].slots = slots + n * (guint) program->n_variants;
      sp_part_estimate (e, at, &own[n]);
      parts[at] = &own[n++];
    }
  return n;
}

static void
estimate_stages (const SpEstimateContext *e, const SpPartTime *const *parts, SpStageTime *own,
                 const SpStageTime **stages)
{
  const SpProgram *program = e->program;
  guint n = 0;

  for (gint32 s = 0; s < program->stages; s++) {
    if (sp_estimate_is_twin (program, s) && !sp_estimate_schedule (program)->mirrored) {
      stages[s] = stages[s - 1];
      continue;
    }
    own[n].parts = parts;
    own[n].number = s;
    tail_of (e, &own[n], sp_program_last_variant (program));
    meeting_of (e, &own[n]);
    total_of (program, &own[n]);
    stages[s] = &own[n++];
  }
}

void
sp_estimate_time (const SpEstimateContext *e, SpEstimate *ret)
{
  const SpProgram *program = e->program;
  const SpPartTime *parts[SP_MAX_VIRTUAL_STAGES];
  const SpStageTime *stages[SP_MAX_STAGES];
  SpPartTime own_parts[SP_MAX_VIRTUAL_STAGES];
  SpStageTime own[SP_MAX_STAGES];
  SpFigures ends[SP_MAX_STAGES];
  g_autofree gpointer memory = NULL;

  g_assert (program->stages <= SP_MAX_STAGES && sp_program_virtual_stages (program) <= SP_MAX_VIRTUAL_STAGES);
  gsize bytes = slots_bytes (program);
  estimate_parts (e, bytes <= SP_ESTIMATE_MOST_STACK ? g_alloca (bytes) : (memory = g_malloc (bytes)), own_parts,
                  parts);
  estimate_stages (e, parts, own, stages);
  sp_schedule_ends (program, parts, stages, ends);
  add_hold_ups (program, parts, ends);
  const SpFigures end = step_end (program, stages, ends);
  double waits = issue_beyond (program, stages, end.of[SP_FIGURE_STEP]);
  ret->step_time_s = end.of[SP_FIGURE_STEP] + waits;
  ret->serial_s = end.of[SP_FIGURE_SERIAL];
  ret->high_s = end.of[SP_FIGURE_HIGH];
  ret->low_s = lowest (e, stages);
  break_down (program, stages, waits, ret);
  add_host_step (e, ret);
}

/* Bounds: `ends` by `least`. */
static void
estimate_floor (const SpEstimateContext *e,
                void (*least) (const SpProgram *, const SpPartTime *const *, const SpStageTime *const *, SpFigures *),
                SpEstimate *ret)
{
  const SpProgram *program = e->program;
  const SpPartTime *parts[SP_MAX_VIRTUAL_STAGES];
  const SpStageTime *stages[SP_MAX_STAGES];
  SpPartTime own_parts[SP_MAX_VIRTUAL_STAGES];
  SpStageTime own[SP_MAX_STAGES];
  SpFigures ends[SP_MAX_STAGES];
  g_autofree gpointer memory = NULL;

  gsize bytes = slots_bytes (program);
  estimate_parts (e, bytes <= SP_ESTIMATE_MOST_STACK ? g_alloca (bytes) : (memory = g_malloc (bytes)), own_parts,
                  parts);
  estimate_stages (e, parts, own, stages);
  least (program, parts, stages, ends);
  const SpFigures end = step_end (program, stages, ends);
  ret->step_time_s = end.of[SP_FIGURE_STEP];
  ret->serial_s = end.of[SP_FIGURE_SERIAL];
  ret->high_s = end.of[SP_FIGURE_HIGH];
  ret->low_s = lowest (e, stages);
  add_host_step (e, ret);
}

void
sp_estimate_time_floor (const SpEstimateContext *e, SpEstimate *ret)
{
  estimate_floor (e, sp_schedule_least_ends, ret);
}

void
sp_estimate_time_without_optimizer (const SpEstimateContext *e, SpEstimate *ret)
{
  SpEstimateContext without = *e;
  SpBlockState states[SP_MAX_BLOCKS];

  memcpy (states, e->state, e->program->n_blocks * sizeof *states);
  for (guint b = 0; b < e->program->n_blocks; b++)
    states[b].optimizer = (SpListTime){ 0 };
  without.state = states;
  estimate_floor (&without, sp_schedule_least_ends, ret);
}

void
sp_estimate_time_of_works (SpEstimator *estimator, const SpEstimateContext *works, SpEstimate *ret)
{
  SpEstimateContext e = *works;
  SpBlockState none[SP_MAX_BLOCKS];

  memset (none, 0, works->program->n_blocks * sizeof *none);
  e.state = none;
  sp_cost_set_pipeline_path (&estimator->cost, estimator->cluster, e.program);
  estimate_floor (&e, sp_schedule_is_walked (e.program) ? sp_schedule_ends : sp_schedule_least_ends, ret);
}
