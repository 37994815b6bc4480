/* SPDX-License-Identifier: Apache-2.0 */
#include "models/plan/search-private.h"

/* --- limits ------------------------------------------------------------------------------------------------------- */

static double
limit_of (const SpPlanSearch *s)
{
  return s->limits->only_beyond ? s->limits->limit_s : MIN (s->limits->limit_s, sp_plan_kept_limit (s->kept));
}

gboolean
sp_plan_is_too_slow (SpPlanSearch *s, const SpPlanBound *bound, double low_s)
{
  if (bound->step_s * (1 - SP_PLAN_ROUNDING) <= limit_of (s))
    return FALSE;
  s->kept->least_low_s = MIN (s->kept->least_low_s, low_s);
  s->least_s = bound->step_s - bound->head_s;
  s->least_low_s = bound->low_s - bound->head_low_s;
  return TRUE;
}

gboolean
sp_plan_is_left_out (SpPlanSearch *s, double bytes)
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

gboolean
sp_plan_may_offload_activations (const SpPlanSearch *s)
{
  return s->offload & SP_OFFLOAD_ACTIVATIONS && s->point.layout.recompute == SP_RECOMPUTE_FULL;
}

gboolean
sp_plan_is_part_left_out (SpPlanSearch *s, const SpPlanBound *bound)
{
  return !sp_plan_may_offload_activations (s) && sp_plan_is_left_out (s, bound->bytes * (1 - SP_PLAN_ROUNDING));
}

/* --- bounds --------------------------------------------------------------------------------------------------------- */

/* Kernels of other heads take no less than those of the one in chunks, of so many micro-batches. */
static void
keep_head (const SpPlanSearch *s, gint32 micro_batches, SpPlanBound *bound)
{
  if (s->unit->losses > 1)
    bound->head_low_s = MAX (0, bound->head_low_s - micro_batches * s->unit->chunked_low_s);
}

/* A point's work, with the loss at hand. */
static void
work_of (SpPlanSearch *s, SpPlanPoint *point, SpEstimateContext *ret)
{
  point->layout.loss = s->point.layout.loss;
  sp_estimate_works (&s->worker->estimator, s->worker->program, &point->layout, &point->run, ret);
}

/* Of the work at hand. Which layers are recomputed may differ from stage to stage: then time is that of none, and memory
 * is not known. */
const SpPlanBound *
sp_plan_micro_batch_of (SpPlanSearch *s)
{
  SpPlanBound *bound = &sp_plan_bounds_of (s)->micro_batch;
  SpPlanPoint point = s->worked;
  SpEstimateContext e;

  if (bound->step_s > 0)
    return bound;
  if (point.layout.recompute_every > 1) {
    point.layout.recompute = SP_RECOMPUTE_NONE;
    point.layout.recompute_every = 1;
  }
  work_of (s, &point, &e);
  sp_plan_bound_micro_batch (&e, s->space->estimator->framework, s->space->question->figure,
                             s->unit->placements[s->first].pipeline, bound);
  if (s->point.layout.recompute_every > 1)
    bound->bytes = 0;
  keep_head (s, 1, bound);
  return bound;
}

/* And of its stages and schedule. */
const SpPlanBound *
sp_plan_schedule_of (SpPlanSearch *s)
{
  SpPlanBound *bound = &sp_plan_bounds_of (s)->schedule;
  SpPlanPoint point = s->scheduled;
  SpEstimateContext e;

  if (bound->step_s > 0)
    return bound;
  work_of (s, &point, &e);
  sp_plan_bound_work (&e, s->space->estimator->framework, s->space->question->figure, bound);
  keep_head (s, s->space->question->global_batch / point.layout.data / point.run.micro_batch, bound);
  return bound;
}

/* --- the loss in chunks --------------------------------------------------------------------------------------------- */

void
sp_plan_go_on (SpPlanSearch *s, SpPlanPartFunc part, guint row)
{
  SpPlanPartEnd end = part (s, row);

  if (end == SP_PLAN_PART_DONE || sp_plan_is_chunked (s) || s->unit->losses < 2)
    return;
  if (end == SP_PLAN_PART_TOO_SLOW && s->least_s * (1 - SP_PLAN_ROUNDING) > limit_of (s)) {
    s->kept->least_low_s = MIN (s->kept->least_low_s, s->least_low_s);
    return;
  }
  sp_plan_set_chunks (s->space, &s->point);
  s->lacks_room = end == SP_PLAN_PART_TOO_LARGE;
  part (s, row);
  s->point.layout.loss = s->unit->point.layout.loss;
}
