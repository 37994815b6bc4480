/* SPDX-License-Identifier: Apache-2.0 */
#include "models/plan/plan-private.h"

#include "models/writer.h"

#include "sim/op-place.h"

#include <math.h>

/* Bounds of parts of the space: see models/planner.h. */

/* --- a unit ------------------------------------------------------------------------------------------------------- */

/* Of each block of a program, how many layers have it. */
static double
layers_of (const SpProgram *program, guint block)
{
  double n = 0;

  if (block == 0 || block == program->n_blocks - 1)
    return 1;
  for (guint l = 0; l < program->n_layers; l++)
    n += program->layer_block[l] == block;
  return n;
}

static double
core_of_list (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpPhase phase)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);
  double seconds = 0;

  for (guint i = 0; i < n; i++) {
    const SpOp *op = &ops[i];
    if (!(op->flags & SP_OP_CORE) || sp_op_is_communication (op->kind) || op->loop || op->flags & SP_OP_ON_HOST)
      continue;
    if (cost->kernels[op->kind] != NULL || (block->attention_pairs > 0 && cost->s_per_flop[op->kind] > 0))
      continue; /* a curve's rate may be another's; documents are counted otherwise */
    double flop_s = cost->stack_time[op->kind] * cost->s_per_flop[op->kind];
    seconds += op->flops * (op->flags & SP_OP_FP8 ? MIN (flop_s, flop_s * cost->fp8_of_bf16) : flop_s);
  }
  return seconds;
}

double
sp_plan_core_floor (SpEstimator *estimator, SpProgram *program, const SpRun *run)
{
  SpLayout alone = SP_LAYOUT_DEFAULT;
  SpRun one = *run;
  double seconds = 0;

  alone.zero = 0;
  one.micro_batch = one.global_batch = 1;
  if (!sp_layout_check (&alone, estimator->arch, estimator->framework, &one, 1, NULL))
    return 0;
  sp_program_write (program, estimator->arch, estimator->framework, &alone, &one);
  for (guint b = 0; b < program->n_blocks; b++) {
    const SpBlock *block = &program->variants[0].blocks[b];
    seconds += layers_of (program, b) * (core_of_list (&estimator->cost, program, block, SP_PHASE_FORWARD) +
                                         core_of_list (&estimator->cost, program, block, SP_PHASE_BACKWARD));
  }
  return seconds;
}

/* Communication of these axes is the same for every kind of ring and of recurrence. */
static gboolean
is_common (const SpOp *op)
{
  return op->axis == SP_AXIS_TENSOR || op->axis == SP_AXIS_ULYSSES || op->axis == SP_AXIS_EXPERT;
}

/* How often a list runs it: a loop over tiles has no more work than without; rings are what rows change. */
static double
runs_of (const SpProgram *program, const SpBlock *block, const SpOp *op)
{
  if (op->loop == 0)
    return 1;
  const SpLoop *loop = &block->loops[op->loop - 1];
  return loop->group == SP_GROUP_NONE ? loop->steps : 0;
}

static void
add_list_floor (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpPhase phase, double layers,
                double *step, double *low)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);

  for (guint i = 0; i < n; i++) {
    const SpOp *op = &ops[i];
    double times = layers * runs_of (program, block, op);
    if (times == 0)
      continue;
    if (sp_op_is_communication (op->kind)) {
      if (is_common (op) && !(op->flags & SP_OP_ASYNC) && op->kind != SP_OP_SEND && op->kind != SP_OP_RECEIVE)
        *step += times * sp_cost_op (cost, op);
      continue;
    }
    gboolean by_place = op->guard & (SP_GUARD_NOT_FIRST | SP_GUARD_NOT_LAST | SP_GUARD_VISIBLE) || sp_op_has_ends (op);
    if (op->flags & SP_OP_CORE || by_place)
      continue;
    *step += times * sp_cost_op (cost, op);
    *low += times * sp_cost_op (cost, op);
  }
}

static void
add_block_floor (const SpCost *cost, const SpProgram *program, guint b, double *step, double *low)
{
  double layers = layers_of (program, b);

  for (gint32 v = 0; v < sp_program_slices (program); v++) {
    const SpBlock *block = &program->variants[v].blocks[b];
    add_list_floor (cost, program, block, SP_PHASE_FORWARD, layers, step, low);
    add_list_floor (cost, program, block, SP_PHASE_BACKWARD, layers, step, low);
  }
}

/* What a micro-batch takes of all stages of a written program, whatever the rows make of its work: kernels outside the
 * core, and communication outside loops that nothing runs beside; and of the core `core_s`. */
static void
unit_floor (const SpCost *cost, const SpProgram *program, double core_s, double *ret_step, double *ret_low)
{
  *ret_step = *ret_low = core_s;
  for (guint b = 0; b < program->n_blocks; b++)
    add_block_floor (cost, program, b, ret_step, ret_low);
}

/* The same of the head and its loss alone. */
static void
head_floor (const SpCost *cost, const SpProgram *program, double *ret_step, double *ret_low)
{
  *ret_step = *ret_low = 0;
  add_block_floor (cost, program, program->n_blocks - 1, ret_step, ret_low);
}

/* The head with its loss in chunks may be the quicker one. */
static void
bound_chunks (SpEstimator *estimator, SpProgram *program, const SpPlanSpace *space, const SpPlanPoint *whole,
              SpPlanUnit *unit)
{
  SpPlanPoint point = *whole;
  double step_s, low_s, chunked_s;

  unit->losses = 1;
  if (!sp_plan_set_chunks (space, &point) || !sp_plan_is_legal (space, &point))
    return;
  unit->losses = 2;
  head_floor (&estimator->cost, program, &step_s, &low_s);
  sp_program_write (program, estimator->arch, estimator->framework, &point.layout, &point.run);
  head_floor (&estimator->cost, program, &chunked_s, &unit->chunked_low_s);
  unit->step_s += MIN (0, chunked_s - step_s);
  unit->low_s += MIN (0, unit->chunked_low_s - low_s);
}

/* The work whose ops are taken is one that the rules allow, so the rows are gone through until there is one. */
static gboolean
find_work (const SpPlanSpace *space, const SpPlanUnit *unit, guint row, SpPlanPoint *point)
{
  row = sp_plan_next_row (SP_PLAN_WORK, row);
  if (row == SP_N_PLAN_DIMENSIONS)
    return sp_plan_place_legal (space, unit, 0, unit->n, point) < unit->n;
  for (guint i = 0; sp_plan_set (space, row, i, point); i++)
    if (find_work (space, unit, row + 1, point))
      return TRUE;
  return FALSE;
}

gboolean
sp_plan_unit_bound (SpEstimator *estimator, SpProgram *program, const SpPlanSpace *space, double core_s,
                    SpPlanUnit *unit)
{
  SpPlanPoint point = unit->point;
  double ranks = (double) point.layout.tensor * sp_layout_sequence_ranks (&point.layout, estimator->arch);

  sp_plan_place (unit, 0, &point);
  if (!find_work (space, unit, 0, &point)) {
    unit->step_s = unit->low_s = INFINITY;
    return FALSE;
  }
  sp_program_write (program, estimator->arch, estimator->framework, &point.layout, &point.run);
  sp_cost_set_work_paths (&estimator->cost, estimator->cluster, program);
  /* Score matrices of slices have no columns of later ones. */
  double core = point.layout.slices > 1 && !estimator->framework->fused_attention ? 0 : core_s;
  unit_floor (&estimator->cost, program, core * point.run.micro_batch / ranks, &unit->step_s, &unit->low_s);
  bound_chunks (estimator, program, space, &point, unit);
  unit->step_s *= unit->least_share;
  unit->low_s *= unit->least_share;
  return TRUE;
}

/* --- work --------------------------------------------------------------------------------------------------------- */

/* Two figures side by side: the one that is ranked by, and kernels alone. */
typedef struct {
  double step, low;
} Seconds;

static inline void
add_list (Seconds *sum, const SpListTime *list, SpPlanFigure figure, double n)
{
  sum->step += n * (figure == SP_PLAN_BY_SERIAL ? list->serial : list->step);
  sum->low += n * (list->compute - list->spare);
}

/* A backward, whole or in its parts: some schedules run both kinds, so it is the less of them. */
static Seconds
backward_of (const SpBlockWork *work, SpPlanFigure figure, gboolean splits, gboolean either)
{
  Seconds whole = { 0 }, parts = { 0 };

  add_list (&whole, &work->backward, figure, 1);
  if (!splits)
    return whole;
  add_list (&parts, &work->input, figure, 1);
  add_list (&parts, &work->weight, figure, 1);
  if (either)
    return (Seconds){ MIN (whole.step, parts.step), MIN (whole.low, parts.low) };
  return parts;
}

typedef struct {
  Seconds forward, backward; /* backward: with what is recomputed */
} SlotSeconds;

static double
with_reserve (double bytes, const SpFramework *framework)
{
  return bytes * (1 + framework->allocator_slack.value) + framework->reserved_bytes.value;
}

/* Of a virtual stage. */
static SlotSeconds
slots_of (const SpEstimateContext *e, gint32 variant, const gint32 *counts, SpPlanFigure figure)
{
  const SpSchedule *schedule = sp_estimate_schedule (e->program);
  SlotSeconds s = { { 0 }, { 0 } };

  for (guint b = 0; b < e->program->n_blocks; b++) {
    const SpBlockWork *work = &e->work[variant][b];
    if (counts[b] == 0)
      continue;
    const Seconds backward = backward_of (work, figure, schedule->splits, schedule->mirrored);
    add_list (&s.forward, &work->forward, figure, counts[b]);
    add_list (&s.backward, &work->recompute, figure, counts[b]);
    s.backward.step += counts[b] * backward.step;
    s.backward.low += counts[b] * backward.low;
  }
  return s;
}

/* The head's, by whichever way its backward goes: the most that a step has less with any other. With the clock of a card
 * that its power limits all else may be quicker too. */
static Seconds
head_of (const SpEstimateContext *e, gint32 variant, SpPlanFigure figure)
{
  const SpBlockWork *work = &e->work[variant][e->program->n_blocks - 1];
  const Seconds whole = backward_of (work, figure, FALSE, FALSE);
  const Seconds back = backward_of (work, figure, sp_estimate_schedule (e->program)->splits, FALSE);
  Seconds head = { MAX (whole.step, back.step), MAX (whole.low, back.low) };

  add_list (&head, &work->forward, figure, 1);
  add_list (&head, &work->recompute, figure, 1);
  return e->cost->power == NULL ? head : (Seconds){ INFINITY, INFINITY };
}

/* Of what the blocks take the part that is forward, of the block of which it is least; the head is in no stage before
 * another. */
static double
least_forward (const SpEstimateContext *e, const gint32 *counts, SpPlanFigure figure)
{
  double least = 1;

  for (guint b = 0; b + 1 < e->program->n_blocks; b++) {
    gint32 one[SP_MAX_BLOCKS] = { 0 };
    one[b] = counts[b] > 0;
    const SlotSeconds s = slots_of (e, 0, one, figure);
    double all = s.forward.step + s.backward.step;
    if (all > 0)
      least = MIN (least, s.forward.step / all);
  }
  return least;
}

void
sp_plan_bound_micro_batch (const SpEstimateContext *e, const SpFramework *framework, SpPlanFigure figure, gint32 stages,
                           SpPlanBound *ret)
{
  gint32 counts[SP_MAX_BLOCKS] = { 0 };
  double stash = INFINITY, peak = 0;

  for (guint b = 0; b < e->program->n_blocks; b++)
    counts[b] = (gint32) layers_of (e->program, b);
  ret->step_s = ret->low_s = ret->head_s = ret->head_low_s = 0;
  for (gint32 v = 0; v < sp_program_slices (e->program); v++) {
    const SlotSeconds s = slots_of (e, v, counts, figure);
    const Seconds head = head_of (e, v, figure);
    ret->step_s += s.forward.step + s.backward.step;
    ret->low_s += s.forward.low + s.backward.low;
    ret->head_s += head.step;
    ret->head_low_s += head.low;
  }
  ret->forward_share = least_forward (e, counts, figure);
  /* Some stage has its part of the layers, and in the forward of the last of them what the others keep. */
  for (guint b = 1; b + 1 < e->program->n_blocks; b++) {
    stash = MIN (stash, (double) e->work[0][b].stash_bytes);
    peak = b == 1 ? (double) e->work[0][b].peak_bytes[SP_LIST_FORWARD]
                  : MIN (peak, (double) e->work[0][b].peak_bytes[SP_LIST_FORWARD]);
  }
  double layers = ceil ((double) e->program->n_layers / stages);
  ret->bytes = with_reserve ((layers - 1) * stash + peak, framework);
}

/* Of a virtual stage, in each variant; neighbours that are alike are summed up once. */
typedef struct {
  SlotSeconds slots[SP_MAX_VARIANTS];
  gint64 stash_bytes, beyond_bytes; /* beyond: what the list of its last block has over its stash */
  gint64 least_stash_bytes;         /* of the slice that keeps least; that of whole micro-batches */
} Part;

static void
part_of (const SpEstimateContext *e, gint32 at, SpPlanFigure figure, Part *ret)
{
  gint32 counts[SP_MAX_BLOCKS];

  sp_estimate_counts (e->program, at, counts);
  for (gint32 v = 0; v < e->program->n_variants; v++)
    ret->slots[v] = slots_of (e, v, counts, figure);
  ret->stash_bytes = 0;
  ret->beyond_bytes = ret->least_stash_bytes = G_MAXINT64;
  for (gint32 v = 0; v < sp_program_slices (e->program); v++) {
    gint64 stash = 0;
    for (guint b = 0; b < e->program->n_blocks; b++)
      stash += counts[b] * e->work[v][b].stash_bytes;
    ret->least_stash_bytes = MIN (ret->least_stash_bytes, stash);
  }
  for (guint b = 0; b < e->program->n_blocks; b++)
    if (counts[b] > 0) {
      const SpBlockWork *work = &e->work[0][b];
      gint64 peak = work->peak_bytes[SP_LIST_FORWARD];
      gboolean is_head = b == e->program->n_blocks - 1;
      ret->stash_bytes += counts[b] * work->stash_bytes;
      /* Which layer is the last is not looked up; the head is. */
      ret->beyond_bytes = is_head ? peak - work->stash_bytes : MIN (ret->beyond_bytes, peak - work->stash_bytes);
    }
}

/* What the slots of a stage take, all of its chunks. */
static Seconds
busy_of (const SpEstimateContext *e, const Part *const *parts, gint32 stage)
{
  const SpProgram *program = e->program;
  Seconds busy = { 0, 0 };

  for (gint32 c = 0; c < program->chunks; c++)
    for (gint32 v = 0; v < program->n_variants; v++) {
      const SlotSeconds *s = &parts[sp_program_virtual_stage (program, stage, c)]->slots[v];
      double runs = sp_estimate_runs (program, v);
      busy.step += runs * (s->forward.step + s->backward.step);
      busy.low += runs * (s->forward.low + s->backward.low);
    }
  return busy;
}

/* The way back through a stage, by whichever chunk and micro-batch is the last. */
static Seconds
least_back (const SpProgram *program, const Part *const *parts, gint32 stage)
{
  Seconds least = { INFINITY, INFINITY };

  for (gint32 c = 0; c < program->chunks; c++)
    for (gint32 v = 0; v < program->n_variants; v++) {
      const Seconds back = parts[sp_program_virtual_stage (program, stage, c)]->slots[v].backward;
      least.step = MIN (least.step, back.step);
      least.low = MIN (least.low, back.low);
    }
  return least;
}

/* In the last block's forward a stage has all of the blocks before it, and the other micro-batches in flight. Of several
 * chunks one way, all have had the first micro-batch's forward before its first backward. */
static double
stage_bytes (const SpProgram *program, const Part *const *parts, gint32 stage)
{
  const SpSchedule *schedule = sp_estimate_schedule (program);
  const SpPipeline pipeline = sp_program_pipeline (program);
  gint32 others = schedule->in_flight != NULL ? schedule->in_flight (&pipeline, stage) - 1 : 0;
  double bytes = 0;

  /* With slices the fullest is no earlier than a sequence's first, which has others beside it or not. */
  if (program->slices > 0)
    return (double) MAX (others * parts[stage]->least_stash_bytes,
                         parts[stage]->stash_bytes + parts[stage]->beyond_bytes);
  if (program->chunks == 1)
    return (double) (others * parts[stage]->stash_bytes + parts[stage]->stash_bytes + parts[stage]->beyond_bytes);
  for (gint32 c = 0; c < program->chunks; c++) {
    double stash = (double) parts[sp_program_virtual_stage (program, stage, c)]->stash_bytes;
    bytes = schedule->mirrored ? MAX (bytes, stash) : bytes + stash;
  }
  return bytes;
}

void
sp_plan_bound_work (const SpEstimateContext *e, const SpFramework *framework, SpPlanFigure figure, SpPlanBound *ret)
{
  const SpProgram *program = e->program;
  const SpSchedule *schedule = sp_estimate_schedule (program);
  const Part *parts[SP_MAX_VIRTUAL_STAGES];
  Part own[SP_MAX_VIRTUAL_STAGES];
  Seconds fill = { 0, 0 }, drain = { 0, 0 };
  double bytes = 0;
  guint n = 0;

  *ret = (SpPlanBound){ 0 };
  for (gint32 at = 0; at < sp_program_virtual_stages (program); at++)
    if (at > 0 && sp_estimate_are_alike (program, at, at - 1))
      parts[at] = parts[at - 1];
    else {
      part_of (e, at, figure, &own[n]);
      parts[at] = &own[n++];
    }
  for (gint32 s = 0; s < program->stages; s++) {
    const Seconds busy = busy_of (e, parts, s);
    ret->step_s = MAX (ret->step_s, fill.step + busy.step + drain.step);
    ret->low_s = MAX (ret->low_s, fill.low + busy.low + drain.low);
    bytes = MAX (bytes, stage_bytes (program, parts, s));
    if (schedule->mirrored)
      continue;
    /* The first micro-batch is a whole one, where there are any. */
    const Seconds forward = parts[s]->slots[sp_program_variant_of (program, 0)].forward;
    fill.step += forward.step;
    fill.low += forward.low;
    if (schedule->splits)
      continue;
    const Seconds back = least_back (program, parts, s);
    drain.step += back.step;
    drain.low += back.low;
  }
  for (gint32 v = 0; v < program->n_variants; v++) {
    const Seconds head = head_of (e, v, figure);
    double runs = sp_estimate_runs (program, v) * (schedule->mirrored ? 2 : 1);
    ret->head_s += runs * head.step;
    ret->head_low_s += runs * head.low;
  }
  ret->bytes = with_reserve (bytes, framework);
}

/* Stage s begins when those before it have done a forward, a part f of their micro-batch, and where the backward goes back
 * whole is not the last: then f is 1. So with w_s of a micro-batch's time, all w_s adding up to 1, and m micro-batches it
 * is done after m w_s + f (w_1 + ... + w_(s-1)). The stages' largest is least where all are equal, which is where what is
 * left to do falls from stage to stage by 1 - f / m: f / (1 - (1 - f / m)^p). */
double
sp_plan_least_stage (const SpPlanSpace *space, const SpPlanPlacement *placement, gint32 micro_batch,
                     const SpSchedule *schedule, double forward_share)
{
  gint32 each = space->question->global_batch / placement->data, m = each / micro_batch;
  gboolean is_even = space->question->global_batch % placement->data == 0 && each % micro_batch == 0;
  double f = is_even && !schedule->splits ? 1 : forward_share;

  if (placement->pipeline == 1 || m == 0 || schedule->mirrored || schedule->chunked || space->question->base.slices > 1)
    return sp_plan_share (space, placement, micro_batch);
  return f / (1 - pow (1 - f / m, placement->pipeline));
}
