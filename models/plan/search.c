/* SPDX-License-Identifier: Apache-2.0 */
#include "models/plan/search-private.h"

#include "models/writer.h"

#include "models/estimate/block-cache.h"

#include <math.h>
#include <string.h>

/* The search of a unit. */

/* Tables of at most 10 MB for each number of blocks that programs have, touched as they are needed. */
#define CACHE_LOG2_ENTRIES 10

#define SAMPLED_PLACEMENTS 2

SpPlanWorker *
sp_plan_worker_new (const SpEstimator *estimator)
{
  SpPlanWorker *worker = g_new0 (SpPlanWorker, 1);

  worker->estimator = *estimator;
  worker->estimator.cache = sp_block_cache_new (CACHE_LOG2_ENTRIES);
  worker->bytes = *estimator;
  for (guint g = 0; g < SP_N_GROUPS; g++)
    worker->bytes.cost.paths[g] = worker->bytes.cost.alone[g] = (SpPath){ .size = 1, .per_node = 1, .nodes = 1 };
  worker->bytes.cache = sp_block_cache_new (CACHE_LOG2_ENTRIES);
  worker->program = sp_program_new ();
  worker->other = sp_program_new ();
  return worker;
}

void
sp_plan_worker_free (SpPlanWorker *worker)
{
  sp_block_cache_free (worker->estimator.cache);
  sp_block_cache_free (worker->bytes.cache);
  sp_program_free (worker->program);
  sp_program_free (worker->other);
  g_free (worker);
}

static guint
most_values (const SpPlanSearch *s, guint row)
{
  const SpPlanDimension *dimension = &sp_plan_dimensions[row];

  if (s->limits->part == SP_PLAN_WHOLE)
    return G_MAXUINT;
  return s->limits->part == SP_PLAN_SAMPLE ? dimension->sampled : dimension->is_usual ? G_MAXUINT : 1;
}

static gboolean
is_fixed (const SpPlanSearch *s, guint row)
{
  return (s->space->question->fixed & 1u << row) != 0;
}

/* What a rule refuses with the loss whole it refuses in chunks too. */
static gint64
losses_of (const SpPlanSearch *s)
{
  return sp_plan_is_chunked (s) ? 1 : s->unit->losses;
}

/* --- layouts ------------------------------------------------------------------------------------------------------ */

/* Whether the states of a layout need so much that it is known without looking at lists. */
static gboolean
are_states_left_out (SpPlanSearch *s, const SpLayout *layout, gboolean has_activations)
{
  SpPlanWorker *w = s->worker;
  double bytes = (double) sp_estimate_state_bytes (&w->bytes, w->program, layout, &s->point.run) *
                 (1 + w->estimator.framework->allocator_slack.value);

  return sp_plan_is_left_out (s, (bytes + (has_activations ? sp_plan_bounds_of (s)->schedule.bytes : 0)) *
                                     (1 - SP_PLAN_ROUNDING));
}

static gboolean
is_wanted (const SpPlanSearch *s, const SpPlanEntry *entry)
{
  const SpPlanQuestion *q = s->space->question;

  return s->wanted == NULL || q->wants (&entry->layout, &entry->run, FALSE, q->wants_data);
}

/* What takes a loss in chunks has no room without. */
static gboolean
fits_with_whole_loss (SpPlanSearch *s)
{
  SpPlanWorker *w = s->worker;
  SpLayout whole = s->point.layout;
  SpMemory memory;

  if (s->lacks_room)
    return FALSE;
  whole.loss = s->unit->point.layout.loss;
  sp_estimate_bytes (&w->bytes, w->other, &whole, &s->point.run, &memory);
  return memory.total_bytes <= w->estimator.cluster->device->memory_bytes.value;
}

/* Time first, as far as it is known without the schedule's order; then what it needs of memory, then both in full. */
static SpPlanPartEnd
try_legal_layout (SpPlanSearch *s)
{
  SpPlanEntry entry = { .layout = s->point.layout, .run = s->point.run };
  double capacity = s->space->estimator->cluster->device->memory_bytes.value;
  SpEstimator *estimator = &s->worker->estimator;
  SpPlanBound floor = *sp_plan_schedule_of (s);
  SpEstimateContext e;
  SpMemory memory;

  if (are_states_left_out (s, &entry.layout, !(entry.layout.offload & SP_OFFLOAD_ACTIVATIONS)))
    return SP_PLAN_PART_TOO_LARGE;
  sp_estimate_context (estimator, s->worker->program, &entry.layout, &entry.run, &e);
  sp_estimate_time_floor (&e, &entry.estimate);
  floor.step_s = sp_plan_entry_s (&entry, s->kept->figure);
  if (sp_plan_is_too_slow (s, &floor, entry.estimate.low_s))
    return SP_PLAN_PART_TOO_SLOW;
  s->kept->legal++;
  sp_estimate_memory (&e, estimator->framework, &memory);
  if (sp_plan_is_left_out (s, memory.total_bytes))
    return SP_PLAN_PART_TOO_LARGE;
  if ((sp_plan_is_chunked (s) && fits_with_whole_loss (s)) ||
      (s->limits->only_beyond && memory.total_bytes <= capacity))
    return SP_PLAN_PART_DONE;
  s->kept->estimated++;
  sp_estimate_finish (estimator, &e, &entry.run, &entry.estimate);
  if (is_wanted (s, &entry)) {
    if (entry.estimate.fits)
      sp_plan_kept_fits (s->kept, &entry);
    else if (sp_plan_entry_lacks (&entry) > 0) /* else it is the host that has no room */
      sp_plan_kept_misses (s->kept, &entry);
  }
  return memory.total_bytes > capacity ? SP_PLAN_PART_TOO_LARGE : SP_PLAN_PART_DONE;
}

static SpPlanPartEnd
try_layout (SpPlanSearch *s, guint row)
{
  (void) row;
  if (sp_plan_is_legal (s->space, &s->point))
    return try_legal_layout (s);
  s->kept->refused += losses_of (s);
  return SP_PLAN_PART_DONE;
}

/* What is on the host is not on the GPU: whether the states do not fit with as much of them there as may be. */
static gboolean
are_least_left_out (SpPlanSearch *s)
{
  SpLayout least = s->point.layout;

  least.offload = s->offload & (SP_OFFLOAD_OPTIMIZER | (least.zero == 3 ? SP_OFFLOAD_PARAMETERS : 0));
  return are_states_left_out (s, &least, !sp_plan_may_offload_activations (s));
}

/* And nothing is sooner done with it there, the optimizer perhaps apart. */
static gboolean
are_states_too_slow (SpPlanSearch *s)
{
  SpPlanPoint plain = s->point;
  SpPlanBound floor = sp_plan_bounds_of (s)->schedule;
  SpEstimateContext e;
  SpPlanEntry entry;

  plain.layout.offload = 0;
  sp_estimate_context (&s->worker->estimator, s->worker->program, &plain.layout, &plain.run, &e);
  sp_estimate_time_without_optimizer (&e, &entry.estimate);
  floor.step_s = sp_plan_entry_s (&entry, s->kept->figure);
  return sp_plan_is_too_slow (s, &floor, floor.low_s);
}

/* Whether the states so far are refused, whatever comes from this row on. */
static gboolean
are_states_refused (const SpPlanSearch *s, gsize offset)
{
  SpPlanPoint plain = s->point;

  plain.layout.offload = 0;
  if (offset == G_STRUCT_OFFSET (SpLayout, zero_group))
    plain.layout.zero_group = 0;
  return offset != G_STRUCT_OFFSET (SpLayout, zero) && !sp_plan_is_legal (s->space, &plain);
}

/* Whether all that the rows from this one on differ in can be left out: ranks that share shards, the fewer the more bytes,
 * and offload. */
static SpPlanPartEnd
end_of_rest (SpPlanSearch *s, guint row, gsize offset)
{
  sp_plan_schedule_of (s);
  if (offset == G_STRUCT_OFFSET (SpLayout, zero_group)) {
    s->point.layout.zero_group = 0;
    return !is_fixed (s, row) && are_least_left_out (s) ? SP_PLAN_PART_TOO_LARGE : SP_PLAN_PART_DONE;
  }
  if (offset != G_STRUCT_OFFSET (SpLayout, offload))
    return SP_PLAN_PART_DONE;
  if (are_least_left_out (s))
    return SP_PLAN_PART_TOO_LARGE;
  return are_states_too_slow (s) ? SP_PLAN_PART_TOO_SLOW : SP_PLAN_PART_DONE;
}

static SpPlanPartEnd
try_states (SpPlanSearch *s, guint row)
{
  guint next = sp_plan_next_row (SP_PLAN_STATE, row + 1);
  gsize offset = sp_plan_dimensions[row].offset;

  if (are_states_refused (s, offset)) {
    s->kept->refused += losses_of (s) * sp_plan_count_rows (s->space, SP_PLAN_STATE, row, &s->point);
    return SP_PLAN_PART_DONE;
  }
  SpPlanPartEnd end = end_of_rest (s, row, offset);
  for (guint i = 0; end == SP_PLAN_PART_DONE && sp_plan_set (s->space, row, i, &s->point) && i < most_values (s, row);
       i++)
    if (next < SP_N_PLAN_DIMENSIONS)
      sp_plan_go_on (s, try_states, next);
    else
      sp_plan_go_on (s, try_layout, 0);
  return end;
}

/* Layouts that differ in states, with some placements. */
static gint64
count_states (const SpPlanUnit *unit, guint first, guint end)
{
  gint64 n = 0;

  for (guint p = first; p < end; p++)
    n += unit->placements[p].states;
  return n;
}

/* Whether the schedule with messages between stages, which the order of the axes decides, takes too long whatever the
 * states. */
static gboolean
is_order_too_slow (SpPlanSearch *s)
{
  SpPlanBound bound = *sp_plan_schedule_of (s);
  SpPlanEntry entry;
  SpEstimateContext e;

  if (s->point.layout.pipeline == 1 || !sp_plan_is_legal (s->space, &s->point))
    return FALSE;
  sp_estimate_works (&s->worker->estimator, s->worker->program, &s->point.layout, &s->point.run, &e);
  sp_estimate_time_of_works (&s->worker->estimator, &e, &entry.estimate);
  bound.step_s = sp_plan_entry_s (&entry, s->kept->figure);
  return sp_plan_is_too_slow (s, &bound, bound.low_s);
}

static SpPlanPartEnd
try_order (SpPlanSearch *s, guint placement)
{
  sp_plan_place (s->unit, placement, &s->point);
  if (is_order_too_slow (s))
    return SP_PLAN_PART_TOO_SLOW;
  sp_plan_go_on (s, try_states, sp_plan_next_row (SP_PLAN_STATE, 0));
  return SP_PLAN_PART_DONE;
}

/* What the bounds leave of a schedule, in each order of the axes. */
static void
try_orders (SpPlanSearch *s)
{
  const SpPlanPoint here = s->point;

  for (guint p = s->first; p < s->end; p++) {
    if (s->wanted != NULL && !s->wanted[p])
      continue;
    s->point = here;
    sp_plan_go_on (s, try_order, p);
  }
  s->point = here;
}

/* So many times the time of a micro-batch, of the head too. */
static SpPlanBound
times_of (const SpPlanBound *bound, double step_times, double low_times)
{
  SpPlanBound ret = *bound;

  ret.step_s *= step_times;
  ret.head_s *= step_times;
  ret.low_s *= low_times;
  ret.head_low_s *= low_times;
  return ret;
}

/* Whether the schedule's kind says so, before its slots are looked at. */
static gboolean
is_kind_too_slow (SpPlanSearch *s)
{
  const SpPlanPlacement *p = &s->unit->placements[s->first];
  const SpSchedule *schedule = sp_schedule_get (s->point.layout.schedule);
  const SpPlanBound *micro_batch = sp_plan_micro_batch_of (s);
  double step = sp_plan_least_stage (s->space, p, s->point.run.micro_batch, schedule, micro_batch->forward_share);
  SpPlanBound bound = times_of (micro_batch, step, sp_plan_share (s->space, p, s->point.run.micro_batch));

  return sp_plan_is_too_slow (s, &bound, bound.low_s);
}

static SpPlanPartEnd
try_schedule (SpPlanSearch *s, guint row)
{
  (void) row;
  if (is_kind_too_slow (s))
    return SP_PLAN_PART_TOO_SLOW;
  if (sp_plan_place_legal (s->space, s->unit, s->first, s->end, &s->point) == s->end) {
    s->kept->refused += s->limits->only_beyond ? 0 : losses_of (s) * count_states (s->unit, s->first, s->end);
    return SP_PLAN_PART_DONE;
  }
  s->scheduled = s->point;
  s->bounds[SP_PLAN_LOSS_WHOLE].schedule.step_s = s->bounds[SP_PLAN_LOSS_CHUNKED].schedule.step_s = 0;
  const SpPlanBound *bound = sp_plan_schedule_of (s);
  if (sp_plan_is_too_slow (s, bound, bound->low_s))
    return SP_PLAN_PART_TOO_SLOW;
  if (sp_plan_is_part_left_out (s, bound))
    return SP_PLAN_PART_TOO_LARGE;
  try_orders (s);
  return SP_PLAN_PART_DONE;
}

static void
try_schedules (SpPlanSearch *s, guint row)
{
  row = sp_plan_next_row (SP_PLAN_SCHEDULE, row);
  if (row == SP_N_PLAN_DIMENSIONS) {
    sp_plan_go_on (s, try_schedule, 0);
    return;
  }
  for (guint i = 0; sp_plan_set (s->space, row, i, &s->point) && i < most_values (s, row); i++)
    try_schedules (s, row + 1);
}

/* --- work --------------------------------------------------------------------------------------------------------- */

/* Layouts of the work, with all placements. */
static gint64
count_below (const SpPlanSpace *space, const SpPlanUnit *unit, const SpPlanPoint *point)
{
  SpPlanPoint placed = *point;
  gint64 n = 0;

  for (guint p = 0; p < unit->n; p++) {
    sp_plan_place (unit, p, &placed);
    n += sp_plan_count_rows (space, SP_PLAN_SCHEDULE, 0, &placed) * unit->placements[p].states;
  }
  return n;
}

static void
reset_schedule (const SpPlanSearch *s, SpPlanPoint *point)
{
  point->layout.schedule = s->unit->point.layout.schedule;
  point->layout.virtual_stages = s->unit->point.layout.virtual_stages;
  memset (point->layout.stage_split, 0, sizeof point->layout.stage_split);
}

/* Placements from the first one on that have its stages. */
static guint
end_of_stages (const SpPlanUnit *unit, guint first, guint most)
{
  guint end = first + 1;

  while (end < most && unit->placements[end].pipeline == unit->placements[first].pipeline)
    end++;
  return end;
}

/* All schedules of some placements, unless a micro-batch on all stages says that there is no need to. */
static SpPlanPartEnd
try_stages (SpPlanSearch *s, guint row)
{
  const SpPlanPlacement *p = &s->unit->placements[s->first];
  double share = sp_plan_share (s->space, p, s->point.run.micro_batch);
  SpPlanBound bound = times_of (sp_plan_micro_batch_of (s), share, share);

  (void) row;
  if (sp_plan_is_too_slow (s, &bound, bound.low_s))
    return SP_PLAN_PART_TOO_SLOW;
  if (sp_plan_is_part_left_out (s, &bound))
    return SP_PLAN_PART_TOO_LARGE;
  sp_plan_place (s->unit, s->first, &s->point);
  try_schedules (s, 0);
  return SP_PLAN_PART_DONE;
}

static void
try_work (SpPlanSearch *s)
{
  const SpPlanUnit *unit = s->unit;
  guint most = s->limits->part == SP_PLAN_SAMPLE ? MIN (unit->n, SAMPLED_PLACEMENTS) : unit->n;

  reset_schedule (s, &s->point);
  if (sp_plan_place_legal (s->space, unit, 0, unit->n, &s->point) == unit->n) {
    s->kept->refused += s->limits->only_beyond ? 0 : losses_of (s) * count_below (s->space, unit, &s->point);
    return;
  }
  s->worked = s->point;
  for (s->first = 0; s->first < most; s->first = s->end) {
    s->end = end_of_stages (unit, s->first, most);
    s->point = s->worked;
    s->bounds[SP_PLAN_LOSS_WHOLE].micro_batch.step_s = s->bounds[SP_PLAN_LOSS_CHUNKED].micro_batch.step_s = 0;
    sp_plan_go_on (s, try_stages, 0);
  }
  s->point = s->worked;
}

static void
try_works (SpPlanSearch *s, guint row)
{
  row = sp_plan_next_row (SP_PLAN_WORK, row);
  if (row == SP_N_PLAN_DIMENSIONS) {
    try_work (s);
    return;
  }
  for (guint i = 0; sp_plan_set (s->space, row, i, &s->point) && i < most_values (s, row); i++)
    try_works (s, row + 1);
}

/* FALSE: the question wants none of the unit. */
static gboolean
find_wanted (SpPlanSearch *s)
{
  const SpPlanQuestion *q = s->space->question;
  SpPlanPoint point = s->unit->point;
  gboolean any = q->wants == NULL;

  s->wanted = any ? NULL : g_new0 (guint8, s->unit->n);
  for (guint p = 0; p < s->unit->n && q->wants != NULL; p++) {
    sp_plan_place (s->unit, p, &point);
    s->wanted[p] = q->wants (&point.layout, &point.run, TRUE, q->wants_data);
    any |= s->wanted[p];
  }
  return any;
}

void
sp_plan_unit_search (SpPlanWorker *worker, const SpPlanSpace *space, const SpPlanLimits *limits, SpPlanUnit *unit,
                     SpPlanKept *kept)
{
  SpPlanSearch s = {
    .worker = worker, .space = space, .limits = limits, .unit = unit, .kept = kept, .point = unit->point
  };

  for (guint row = 0; row < SP_N_PLAN_DIMENSIONS; row++)
    for (guint i = 0; g_str_equal (sp_plan_dimensions[row].key, "offload") && sp_plan_set (space, row, i, &s.point);
         i++)
      s.offload |= s.point.layout.offload;
  s.point = unit->point;
  sp_plan_place (unit, 0, &s.point);
  /* Chunks that the rules refuse they refuse of all of the unit. */
  if (!limits->only_beyond)
    kept->refused += unit->below - unit->below / sp_plan_count_rows (space, SP_PLAN_LOSS, 0, &s.point) * unit->losses;
  if (find_wanted (&s))
    try_works (&s, 0);
  g_free (s.wanted);
}
