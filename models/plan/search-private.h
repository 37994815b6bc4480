/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The search of a unit goes down from its work to layouts (search.c), in parts: stages, a schedule, an order, states, a
 * layout. A part ends where a bound cuts it off (part.c).
 *
 * A loss in chunks is for layouts that have no room without: it is no dimension on the way down. A part that a bound cuts
 * off with the loss whole is looked at again in chunks, from there on down, unless time is what cut it off and would
 * whatever its head took. So the work is that of a search without chunks, and of what does not fit or is so near the
 * limit that its head decides.
 */

#include "models/plan/plan-private.h"

G_BEGIN_DECLS

/* Sums of the bounds and of the estimate round differently. */
#define SP_PLAN_ROUNDING 1e-9

typedef enum {
  SP_PLAN_PART_DONE,     /* all of it was looked at, or it has no use for a loss in chunks */
  SP_PLAN_PART_TOO_SLOW, /* cut off by time, */
  SP_PLAN_PART_TOO_LARGE /* or by memory */
} SpPlanPartEnd;

enum { SP_PLAN_LOSS_WHOLE, SP_PLAN_LOSS_CHUNKED, SP_N_PLAN_LOSSES };

/* Of the work at hand on all stages, and of its stages and schedule; step_s 0: not known. */
typedef struct {
  SpPlanBound micro_batch, schedule;
} SpPlanBounds;

typedef struct {
  SpPlanWorker *worker;
  const SpPlanSpace *space;
  const SpPlanLimits *limits;
  SpPlanUnit *unit;
  SpPlanKept *kept;
  SpPlanPoint point;
  guint8 offload;   /* what some of the layouts may have on the host */
  guint8 *wanted;   /* [placements] of whom the question wants any; NULL: all */
  guint first, end; /* placements of the same stages: orders alone differ */
  SpPlanBounds bounds[SP_N_PLAN_LOSSES];
  SpPlanPoint worked, scheduled; /* what the bounds are of, but for the loss */
  gboolean lacks_room;           /* of a point in chunks: with its loss whole, which is known */
  double least_s, least_low_s;   /* of what was found too slow: no less with any other head */
} SpPlanSearch;

typedef SpPlanPartEnd (*SpPlanPartFunc) (SpPlanSearch *s, guint row);

/* Whether the point has a loss in chunks because the search chose that. */
static inline gboolean
sp_plan_is_chunked (const SpPlanSearch *s)
{
  return s->point.layout.loss != s->unit->point.layout.loss;
}

/* Bounds of the point, with its loss. */
static inline SpPlanBounds *
sp_plan_bounds_of (SpPlanSearch *s)
{
  return &s->bounds[sp_plan_is_chunked (s) ? SP_PLAN_LOSS_CHUNKED : SP_PLAN_LOSS_WHOLE];
}

const SpPlanBound *sp_plan_micro_batch_of (SpPlanSearch *s);
const SpPlanBound *sp_plan_schedule_of (SpPlanSearch *s);

/* By a bound, or by a figure in place of its step_s; `low_s` is what a simulation takes at least. */
gboolean sp_plan_is_too_slow (SpPlanSearch *s, const SpPlanBound *bound, double low_s);
/* Whether layouts that need at least so much are left out, or were looked at before. */
gboolean sp_plan_is_left_out (SpPlanSearch *s, double bytes);
/* The same of a part whose layouts differ. */
gboolean sp_plan_is_part_left_out (SpPlanSearch *s, const SpPlanBound *bound);
/* Of activations on the host a bound knows nothing; they go with full recompute. */
gboolean sp_plan_may_offload_activations (const SpPlanSearch *s);

/* A part, and in chunks where it needs that. */
void sp_plan_go_on (SpPlanSearch *s, SpPlanPartFunc part, guint row);

G_END_DECLS
