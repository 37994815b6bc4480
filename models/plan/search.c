/* SPDX-License-Identifier: Apache-2.0 */
#include "models/plan/plan-private.h"

#include "models/writer.h"

#include "models/estimate/block-cache.h"

#include <math.h>
#include <string.h>

/* The search of a unit. */

/* Tables of at most 10 MB for each number of blocks that programs have, touched as they are needed. */
#define CACHE_LOG2_ENTRIES 10

#define SAMPLED_PLACEMENTS 2

/* Sums of the bounds and of the estimate round differently. */
#define ROUNDING 1e-9

typedef struct {
  SpPlanWorker *worker;
  const SpPlanSpace *space;
  const SpPlanLimits *limits;
  SpPlanUnit *unit;
  SpPlanKept *kept;
  SpPlanPoint point;
  gboolean offloads_activations; /* some of the layouts may */
  guint8 *wanted;                /* [placements] of whom the question wants any; NULL: all */
  SpPlanBound bound;             /* of the work, the stages and the schedule at hand */
} Search;

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
  return worker;
}

void
sp_plan_worker_free (SpPlanWorker *worker)
{
  sp_block_cache_free (worker->estimator.cache);
  sp_block_cache_free (worker->bytes.cache);
  sp_program_free (worker->program);
  g_free (worker);
}

/* --- limits ------------------------------------------------------------------------------------------------------- */

static gboolean
is_too_slow (Search *s, double step_s, double low_s)
{
  double limit = s->limits->limit_s;

  if (!s->limits->only_beyond)
    limit = MIN (limit, sp_plan_kept_limit (s->kept));
  if (step_s * (1 - ROUNDING) <= limit)
    return FALSE;
  s->kept->least_low_s = MIN (s->kept->least_low_s, low_s);
  return TRUE;
}

static guint
most_values (const Search *s, guint row)
{
  return s->limits->is_sample ? sp_plan_dimensions[row].sampled : G_MAXUINT;
}

/* Whether layouts that need at least so much are left out, or were looked at before. */
static gboolean
is_left_out (Search *s, double bytes)
{
  double capacity = s->space->estimator->cluster->device->memory_bytes.value, most = s->limits->most_bytes;

  if (s->limits->only_beyond) {
    const GArray *misses = s->kept->misses;
    guint i = misses->len;
    /* The one that lacks least of those that are quick enough. */
    while (i > 0 &&
           sp_plan_entry_s (&g_array_index (misses, SpPlanEntry, i - 1), s->kept->figure) >= s->limits->limit_s)
      i--;
    if (i > 0)
      most = MIN (most, capacity + sp_plan_entry_lacks (&g_array_index (misses, SpPlanEntry, i - 1)));
    return bytes > most;
  }
  s->unit->left_for_memory |= bytes > most;
  return bytes > most;
}

/* The same of a part whose layouts differ. Of activations on the host a bound knows nothing; they go with full
 * recompute. */
static gboolean
is_part_left_out (Search *s, const SpPlanBound *bound)
{
  gboolean is_known = !s->offloads_activations || s->point.layout.recompute != SP_RECOMPUTE_FULL;

  return is_known && is_left_out (s, bound->bytes * (1 - ROUNDING));
}

/* --- layouts ------------------------------------------------------------------------------------------------------ */

/* First what it needs, for that is known sooner. */
static void
try_layout (Search *s)
{
  SpPlanEntry entry = { .layout = s->point.layout, .run = s->point.run };
  SpEstimator *estimator = &s->worker->estimator;
  SpEstimateContext e;
  SpMemory memory;

  if (!sp_plan_is_legal (s->space, &s->point)) {
    s->kept->refused++;
    return;
  }
  double bytes = (double) sp_estimate_state_bytes (&s->worker->bytes, s->worker->program, &entry.layout, &entry.run) *
                 (1 + estimator->framework->allocator_slack.value);
  if (!(entry.layout.offload & SP_OFFLOAD_ACTIVATIONS))
    bytes += s->bound.bytes;
  if (is_left_out (s, bytes * (1 - ROUNDING)))
    return;
  s->kept->legal++;
  sp_estimate_bytes (&s->worker->bytes, s->worker->program, &entry.layout, &entry.run, &memory);
  if (is_left_out (s, memory.total_bytes) ||
      (s->limits->only_beyond && memory.total_bytes <= estimator->cluster->device->memory_bytes.value))
    return;
  s->kept->estimated++;
  sp_estimate_context (estimator, s->worker->program, &entry.layout, &entry.run, &e);
  sp_estimate_finish (estimator, &e, &entry.run, &entry.estimate);
  if (s->wanted != NULL &&
      !s->space->question->wants (&entry.layout, &entry.run, FALSE, s->space->question->wants_data))
    return;
  if (entry.estimate.fits)
    sp_plan_kept_fits (s->kept, &entry);
  else if (sp_plan_entry_lacks (&entry) > 0) /* else it is the host that has no room */
    sp_plan_kept_misses (s->kept, &entry);
}

static void
try_states (Search *s, guint row)
{
  row = sp_plan_next_row (SP_PLAN_STATE, row);
  if (row == SP_N_PLAN_DIMENSIONS) {
    try_layout (s);
    return;
  }
  for (guint i = 0; sp_plan_set (s->space, row, i, &s->point) && i < most_values (s, row); i++)
    try_states (s, row + 1);
}

/* States and offload as plain as can be: what the rules refuse so they refuse with any. */
static void
set_plain (SpPlanPoint *point)
{
  point->layout.zero = 0;
  point->layout.zero_group = 0;
  point->layout.offload = 0;
}

static void
try_schedules (Search *s, guint row)
{
  SpEstimateContext e;

  row = sp_plan_next_row (SP_PLAN_SCHEDULE, row);
  if (row < SP_N_PLAN_DIMENSIONS) {
    for (guint i = 0; sp_plan_set (s->space, row, i, &s->point) && i < most_values (s, row); i++)
      try_schedules (s, row + 1);
    return;
  }
  set_plain (&s->point);
  if (!sp_plan_is_legal (s->space, &s->point)) {
    s->kept->refused += s->limits->only_beyond ? 0 : sp_plan_count_level (s->space, SP_PLAN_STATE, &s->point);
    return;
  }
  sp_estimate_works (&s->worker->estimator, s->worker->program, &s->point.layout, &s->point.run, &e);
  sp_plan_bound_work (&e, s->space->estimator->framework, s->space->question->figure, &s->bound);
  if (!is_too_slow (s, s->bound.step_s, s->bound.low_s) && !is_part_left_out (s, &s->bound))
    try_states (s, 0);
}

/* --- work --------------------------------------------------------------------------------------------------------- */

/* The first placement where the rules allow the work with one stage's or the usual schedule, or n. */
static guint
legal_placement (const SpPlanSpace *space, const SpPlanUnit *unit, SpPlanPoint *point)
{
  guint p = 0;

  set_plain (point);
  for (; p < unit->n; p++) {
    sp_plan_place (unit, p, point);
    if (sp_plan_is_legal (space, point))
      break;
  }
  return p;
}

/* Layouts of the work, with all placements. */
static gint64
count_below (const SpPlanSpace *space, const SpPlanUnit *unit, const SpPlanPoint *point)
{
  SpPlanPoint placed = *point;
  gint64 n = 0;

  for (guint p = 0; p < unit->n; p++) {
    sp_plan_place (unit, p, &placed);
    n += sp_plan_count_level (space, SP_PLAN_SCHEDULE, &placed) * sp_plan_count_level (space, SP_PLAN_STATE, &placed);
  }
  return n;
}

static void
reset_schedule (const Search *s, SpPlanPoint *point)
{
  point->layout.schedule = s->unit->point.layout.schedule;
  point->layout.virtual_stages = s->unit->point.layout.virtual_stages;
  memset (point->layout.stage_split, 0, sizeof point->layout.stage_split);
}

static void
try_work (Search *s)
{
  SpEstimateContext e;
  SpPlanBound bound;
  SpPlanPoint here;

  reset_schedule (s, &s->point);
  if (legal_placement (s->space, s->unit, &s->point) == s->unit->n) {
    s->kept->refused += s->limits->only_beyond ? 0 : count_below (s->space, s->unit, &s->point);
    return;
  }
  /* Which layers are recomputed may differ from stage to stage. */
  if (s->point.layout.recompute_every == 1) {
    sp_estimate_works (&s->worker->estimator, s->worker->program, &s->point.layout, &s->point.run, &e);
    sp_plan_bound_micro_batch (&e, s->space->estimator->framework, s->space->question->figure, s->unit->most_stages,
                               &bound);
    if (is_too_slow (s, s->unit->least_share * bound.step_s, s->unit->least_share * bound.low_s) ||
        is_part_left_out (s, &bound))
      return;
  }
  here = s->point;
  for (guint p = 0; p < s->unit->n && (!s->limits->is_sample || p < SAMPLED_PLACEMENTS); p++) {
    if (s->wanted != NULL && !s->wanted[p])
      continue;
    s->point = here;
    sp_plan_place (s->unit, p, &s->point);
    try_schedules (s, 0);
  }
  s->point = here;
}

static void
try_works (Search *s, guint row)
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
find_wanted (Search *s)
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
  Search s = { .worker = worker, .space = space, .limits = limits, .unit = unit, .kept = kept, .point = unit->point };

  for (guint row = 0; row < SP_N_PLAN_DIMENSIONS; row++)
    for (guint i = 0; g_str_equal (sp_plan_dimensions[row].key, "offload") && sp_plan_set (space, row, i, &s.point);
         i++)
      s.offloads_activations |= (s.point.layout.offload & SP_OFFLOAD_ACTIVATIONS) != 0;
  s.point = unit->point;
  sp_plan_place (unit, 0, &s.point);
  if (find_wanted (&s))
    try_works (&s, 0);
  g_free (s.wanted);
}

/* The work whose ops are taken is one that the rules allow, so the rows are gone through until there is one. */
static gboolean
find_work (const SpPlanSpace *space, const SpPlanUnit *unit, guint row, SpPlanPoint *point)
{
  row = sp_plan_next_row (SP_PLAN_WORK, row);
  if (row == SP_N_PLAN_DIMENSIONS)
    return legal_placement (space, unit, point) < unit->n;
  for (guint i = 0; sp_plan_set (space, row, i, point); i++)
    if (find_work (space, unit, row + 1, point))
      return TRUE;
  return FALSE;
}

gboolean
sp_plan_unit_bound (SpPlanWorker *worker, const SpPlanSpace *space, double core_s, SpPlanUnit *unit)
{
  const SpEstimator *estimator = &worker->estimator;
  SpPlanPoint point = unit->point;
  double ranks = (double) point.layout.tensor * sp_layout_sequence_ranks (&point.layout, estimator->arch);

  sp_plan_place (unit, 0, &point);
  if (!find_work (space, unit, 0, &point)) {
    unit->step_s = unit->low_s = INFINITY;
    return FALSE;
  }
  sp_program_write (worker->program, estimator->arch, estimator->framework, &point.layout, &point.run);
  sp_cost_set_work_paths (&worker->estimator.cost, estimator->cluster, worker->program);
  sp_plan_unit_floor (&estimator->cost, worker->program, core_s * point.run.micro_batch / ranks, &unit->step_s,
                      &unit->low_s);
  unit->step_s *= unit->least_share;
  unit->low_s *= unit->least_share;
  return TRUE;
}
