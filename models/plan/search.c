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
  guint8 offload;          /* what some of the layouts may have on the host */
  guint8 *wanted;          /* [placements] of whom the question wants any; NULL: all */
  SpPlanBound micro_batch; /* of the work at hand, on all stages; step_s 0: not known */
  SpPlanBound
      *whole_loss; /* [placements] the same before the loss was in chunks, of the first of each number of stages */
  SpPlanBound bound;       /* and with the stages and the schedule */
  guint first, end;        /* placements of the same stages: orders alone differ */
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
  const SpPlanDimension *dimension = &sp_plan_dimensions[row];

  if (s->limits->part == SP_PLAN_WHOLE)
    return G_MAXUINT;
  return s->limits->part == SP_PLAN_SAMPLE ? dimension->sampled : dimension->is_usual ? G_MAXUINT : 1;
}

static gboolean
is_fixed (const Search *s, guint row)
{
  return (s->space->question->fixed & 1u << row) != 0;
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

/* Of activations on the host a bound knows nothing; they go with full recompute. */
static gboolean
may_offload_activations (const Search *s)
{
  return s->offload & SP_OFFLOAD_ACTIVATIONS && s->point.layout.recompute == SP_RECOMPUTE_FULL;
}

/* The same of a part whose layouts differ. */
static gboolean
is_part_left_out (Search *s, const SpPlanBound *bound)
{
  return !may_offload_activations (s) && is_left_out (s, bound->bytes * (1 - ROUNDING));
}

/* --- layouts ------------------------------------------------------------------------------------------------------ */

/* Whether the states of a layout need so much that it is known without looking at lists. */
static gboolean
are_states_left_out (Search *s, const SpLayout *layout, gboolean has_activations)
{
  SpPlanWorker *w = s->worker;
  double bytes = (double) sp_estimate_state_bytes (&w->bytes, w->program, layout, &s->point.run) *
                 (1 + w->estimator.framework->allocator_slack.value);

  return is_left_out (s, (bytes + (has_activations ? s->bound.bytes : 0)) * (1 - ROUNDING));
}

/* A loss in chunks that was chosen by the search. */
static gboolean
is_chunked (const Search *s)
{
  return s->point.layout.loss != s->unit->point.layout.loss;
}

/* What takes a loss in chunks has no room without. */
static gboolean
fits_with_whole_loss (Search *s)
{
  SpPlanWorker *w = s->worker;
  SpLayout whole = s->point.layout;
  SpMemory memory;

  whole.loss = s->unit->point.layout.loss;
  sp_estimate_bytes (&w->bytes, w->other, &whole, &s->point.run, &memory);
  return memory.total_bytes <= w->estimator.cluster->device->memory_bytes.value;
}

/* Time first, as far as it is known without the schedule's order; then what it needs of memory, then both in full. */
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
  if (are_states_left_out (s, &entry.layout, !(entry.layout.offload & SP_OFFLOAD_ACTIVATIONS)))
    return;
  sp_estimate_context (estimator, s->worker->program, &entry.layout, &entry.run, &e);
  sp_estimate_time_floor (&e, &entry.estimate);
  if (is_too_slow (s, sp_plan_entry_s (&entry, s->kept->figure), entry.estimate.low_s))
    return;
  s->kept->legal++;
  sp_estimate_memory (&e, estimator->framework, &memory);
  if (is_left_out (s, memory.total_bytes) || (is_chunked (s) && fits_with_whole_loss (s)) ||
      (s->limits->only_beyond && memory.total_bytes <= estimator->cluster->device->memory_bytes.value))
    return;
  s->kept->estimated++;
  sp_estimate_finish (estimator, &e, &entry.run, &entry.estimate);
  if (s->wanted != NULL &&
      !s->space->question->wants (&entry.layout, &entry.run, FALSE, s->space->question->wants_data))
    return;
  if (entry.estimate.fits)
    sp_plan_kept_fits (s->kept, &entry);
  else if (sp_plan_entry_lacks (&entry) > 0) /* else it is the host that has no room */
    sp_plan_kept_misses (s->kept, &entry);
}

/* What is on the host is not on the GPU: whether the states do not fit with as much of them there as may be. */
static gboolean
are_least_left_out (Search *s)
{
  SpLayout least = s->point.layout;

  least.offload = s->offload & (SP_OFFLOAD_OPTIMIZER | (least.zero == 3 ? SP_OFFLOAD_PARAMETERS : 0));
  return are_states_left_out (s, &least, !may_offload_activations (s));
}

/* And nothing is sooner done with it there, the optimizer perhaps apart. */
static gboolean
are_states_too_slow (Search *s)
{
  SpPlanPoint plain = s->point;
  SpEstimateContext e;
  SpPlanEntry entry;

  plain.layout.offload = 0;
  if (!sp_plan_is_legal (s->space, &plain))
    return FALSE;
  sp_estimate_context (&s->worker->estimator, s->worker->program, &plain.layout, &plain.run, &e);
  sp_estimate_time_without_optimizer (&e, &entry.estimate);
  return is_too_slow (s, sp_plan_entry_s (&entry, s->kept->figure), s->bound.low_s);
}

/* Whether all that the rows from this one on differ in can be left out: ranks that share shards, the fewer the more bytes,
 * and offload. */
static gboolean
is_rest_left_out (Search *s, guint row)
{
  gsize offset = sp_plan_dimensions[row].offset;

  if (offset == G_STRUCT_OFFSET (SpLayout, zero_group)) {
    s->point.layout.zero_group = 0;
    return !is_fixed (s, row) && are_least_left_out (s);
  }
  return offset == G_STRUCT_OFFSET (SpLayout, offload) && (are_least_left_out (s) || are_states_too_slow (s));
}

static void
try_states (Search *s, guint row)
{
  row = sp_plan_next_row (SP_PLAN_STATE, row);
  if (row == SP_N_PLAN_DIMENSIONS) {
    try_layout (s);
    return;
  }
  if (is_rest_left_out (s, row))
    return;
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

/* The first of some placements where the rules allow the point as it is, or `end`. */
static guint
legal_placement (const SpPlanSpace *space, const SpPlanUnit *unit, guint first, guint end, SpPlanPoint *point)
{
  guint p = first;

  set_plain (point);
  for (; p < end; p++) {
    sp_plan_place (unit, p, point);
    if (sp_plan_is_legal (space, point))
      break;
  }
  return p;
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
is_order_too_slow (Search *s)
{
  SpPlanEntry entry;
  SpEstimateContext e;

  if (s->point.layout.pipeline == 1 || !sp_plan_is_legal (s->space, &s->point))
    return FALSE;
  sp_estimate_works (&s->worker->estimator, s->worker->program, &s->point.layout, &s->point.run, &e);
  sp_estimate_time_of_works (&s->worker->estimator, &e, &entry.estimate);
  return is_too_slow (s, sp_plan_entry_s (&entry, s->kept->figure), s->bound.low_s);
}

/* What the bounds leave of a schedule, in each order of the axes. */
static void
try_orders (Search *s)
{
  const SpPlanPoint here = s->point;

  for (guint p = s->first; p < s->end; p++) {
    if (s->wanted != NULL && !s->wanted[p])
      continue;
    s->point = here;
    sp_plan_place (s->unit, p, &s->point);
    if (!is_order_too_slow (s))
      try_states (s, 0);
  }
  s->point = here;
}

/* Whether the schedule's kind says so, before its slots are looked at. */
static gboolean
is_kind_too_slow (Search *s)
{
  const SpPlanPlacement *p = &s->unit->placements[s->first];
  const SpSchedule *schedule = sp_schedule_get (s->point.layout.schedule);
  double step = sp_plan_least_stage (s->space, p, s->point.run.micro_batch, schedule, s->micro_batch.forward_share);

  return is_too_slow (s, step * s->micro_batch.step_s,
                      sp_plan_share (s->space, p, s->point.run.micro_batch) * s->micro_batch.low_s);
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
  if (is_kind_too_slow (s))
    return;
  if (legal_placement (s->space, s->unit, s->first, s->end, &s->point) == s->end) {
    s->kept->refused += s->limits->only_beyond ? 0 : count_states (s->unit, s->first, s->end);
    return;
  }
  sp_estimate_works (&s->worker->estimator, s->worker->program, &s->point.layout, &s->point.run, &e);
  sp_plan_bound_work (&e, s->space->estimator->framework, s->space->question->figure, &s->bound);
  if (!is_too_slow (s, s->bound.step_s, s->bound.low_s) && !is_part_left_out (s, &s->bound))
    try_orders (s);
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
    n += sp_plan_count_level (space, SP_PLAN_SCHEDULE, &placed) * unit->placements[p].states;
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
static void
try_stages (Search *s)
{
  const SpPlanPlacement *p = &s->unit->placements[s->first];
  double share = sp_plan_share (s->space, p, s->point.run.micro_batch);

  if (!is_too_slow (s, share * s->micro_batch.step_s, share * s->micro_batch.low_s) &&
      !is_part_left_out (s, &s->micro_batch))
    try_schedules (s, 0);
}

/* Of the work at hand. Which layers are recomputed may differ from stage to stage: then time is that of none, and memory
 * is not known. */
static void
bound_micro_batch (Search *s, gint32 stages)
{
  SpPlanPoint point = s->point;
  SpEstimateContext e;

  if (s->point.layout.recompute_every > 1) {
    point.layout.recompute = SP_RECOMPUTE_NONE;
    point.layout.recompute_every = 1;
  }
  sp_estimate_works (&s->worker->estimator, s->worker->program, &point.layout, &point.run, &e);
  sp_plan_bound_micro_batch (&e, s->space->estimator->framework, s->space->question->figure, stages, &s->micro_batch);
  if (s->point.layout.recompute_every > 1)
    s->micro_batch.bytes = 0;
}

/* Whether it says so without a look at the head in chunks, that the work as it was with a whole loss is too slow or
 * does not fit: of its bytes the head has no part. */
static gboolean
is_chunked_left_out (Search *s)
{
  const SpPlanPlacement *p = &s->unit->placements[s->first];
  SpPlanBound bound = s->whole_loss[s->first];
  double share = sp_plan_share (s->space, p, s->point.run.micro_batch);

  if (!is_chunked (s) || bound.step_s == 0)
    return FALSE;
  bound.step_s += s->unit->chunked_s - bound.head_s;
  bound.low_s += s->unit->chunked_low_s - bound.head_low_s;
  return is_too_slow (s, share * bound.step_s, share * bound.low_s) || is_part_left_out (s, &bound);
}

static void
try_work (Search *s)
{
  const SpPlanUnit *unit = s->unit;
  guint most = s->limits->part == SP_PLAN_SAMPLE ? MIN (unit->n, SAMPLED_PLACEMENTS) : unit->n;

  reset_schedule (s, &s->point);
  if (!is_chunked (s))
    memset (s->whole_loss, 0, unit->n * sizeof *s->whole_loss);
  if (legal_placement (s->space, unit, 0, unit->n, &s->point) == unit->n) {
    s->kept->refused += s->limits->only_beyond ? 0 : count_below (s->space, unit, &s->point);
    return;
  }
  SpPlanPoint here = s->point;
  for (s->first = 0; s->first < most; s->first = s->end) {
    s->end = end_of_stages (unit, s->first, most);
    s->point = here;
    if (is_chunked_left_out (s))
      continue;
    bound_micro_batch (s, unit->placements[s->first].pipeline);
    s->whole_loss[s->first] = is_chunked (s) ? (SpPlanBound){ 0 } : s->micro_batch;
    sp_plan_place (unit, s->first, &s->point);
    try_stages (s);
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
      s.offload |= s.point.layout.offload;
  s.point = unit->point;
  sp_plan_place (unit, 0, &s.point);
  s.whole_loss = g_new0 (SpPlanBound, unit->n);
  if (find_wanted (&s))
    try_works (&s, 0);
  g_free (s.whole_loss);
  g_free (s.wanted);
}

/* The work whose ops are taken is one that the rules allow, so the rows are gone through until there is one. */
static gboolean
find_work (const SpPlanSpace *space, const SpPlanUnit *unit, guint row, SpPlanPoint *point)
{
  row = sp_plan_next_row (SP_PLAN_WORK, row);
  if (row == SP_N_PLAN_DIMENSIONS)
    return legal_placement (space, unit, 0, unit->n, point) < unit->n;
  for (guint i = 0; sp_plan_set (space, row, i, point); i++)
    if (find_work (space, unit, row + 1, point))
      return TRUE;
  return FALSE;
}

/* The head with its loss in chunks may be the quicker one. */
static void
bound_chunks (SpPlanWorker *worker, const SpPlanSpace *space, const SpPlanPoint *whole, SpPlanUnit *unit)
{
  const SpEstimator *estimator = &worker->estimator;
  guint bit = sp_plan_dimension ("loss");
  SpPlanPoint point = *whole;
  double step_s, low_s;

  if (!sp_plan_set (space, (guint) g_bit_nth_lsf (bit, -1), 1, &point))
    return;
  sp_plan_head_floor (&estimator->cost, worker->program, &step_s, &low_s);
  sp_program_write (worker->program, estimator->arch, estimator->framework, &point.layout, &point.run);
  sp_plan_head_floor (&estimator->cost, worker->program, &unit->chunked_s, &unit->chunked_low_s);
  unit->step_s += MIN (0, unit->chunked_s - step_s);
  unit->low_s += MIN (0, unit->chunked_low_s - low_s);
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
  /* Score matrices of slices have no columns of later ones. */
  double core = point.layout.slices > 1 && !estimator->framework->fused_attention ? 0 : core_s;
  sp_plan_unit_floor (&estimator->cost, worker->program, core * point.run.micro_batch / ranks, &unit->step_s,
                      &unit->low_s);
  bound_chunks (worker, space, &point, unit);
  unit->step_s *= unit->least_share;
  unit->low_s *= unit->least_share;
  return TRUE;
}
