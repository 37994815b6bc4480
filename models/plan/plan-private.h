/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The planner's parts: the space (space.c), units of it (units.c), bounds (bound.c), what is kept (kept.c), the search of
 * a unit (part.c, search.c: search-private.h); models/planner.c runs them over threads and ranks, and models/plan/simulate.c simulates the best.
 * What is proved, and of what, stands in models/planner.h.
 *
 * The tree. A TASK is degrees of tensor, ulysses, ring, lasp and experts. A PLACEMENT is how the other ranks are split
 * into data and pipeline, and an order of the axes. A UNIT is a task, a micro-batch, and all placements that have the
 * same paths for the blocks' work: so its blocks are written and priced once. Below a unit come the rows of the table of
 * dimensions: those that change the blocks' work, those of the schedule, those of the states.
 */

#include "models/estimate/block-cost.h"
#include "models/planner.h"

G_BEGIN_DECLS

/* --- space.c ------------------------------------------------------------------------------------------------------ */

typedef struct {
  const SpEstimator *estimator; /* never changed: each thread has its own */
  const SpPlanQuestion *question;
  SpRun run; /* but for its micro-batch */
  gint32 gpus;
  gboolean softmax, linear, experts;
} SpPlanSpace;

/* A place in the tree; what is below it is as the base has it. */
typedef struct {
  SpLayout layout;
  SpRun run;
} SpPlanPoint;

/* The loss is none of the way down: one in chunks is looked at where a part with it whole ends (search-private.h). */
typedef enum { SP_PLAN_LOSS, SP_PLAN_WORK, SP_PLAN_SCHEDULE, SP_PLAN_STATE, SP_N_PLAN_LEVELS } SpPlanLevel;

/* Values that a point may have, in turn; a dimension that the point has no use for has one. How many there are depends on
 * degrees, placement and the dimensions of its own level alone. */
typedef struct {
  const char *key; /* as a scenario has it */
  SpPlanLevel level;
  gboolean (*set) (const SpPlanSpace *space, guint i, SpPlanPoint *point); /* the i-th; FALSE: there are no more */
  gsize offset, size;                                                      /* of its field of SpLayout */
  guint sampled;                                                           /* how many values a sample takes */
  gboolean is_usual;                                                       /* of the usual space */
} SpPlanDimension;

#define SP_N_PLAN_DIMENSIONS 14
extern const SpPlanDimension sp_plan_dimensions[SP_N_PLAN_DIMENSIONS];

void sp_plan_space_init (SpPlanSpace *space, const SpEstimator *estimator, const SpPlanQuestion *question);

/* The i-th value of a row; what the question fixes has one, the base's. */
gboolean sp_plan_set (const SpPlanSpace *space, guint row, guint i, SpPlanPoint *point);
/* The loss in chunks; FALSE: it is not searched. */
gboolean sp_plan_set_chunks (const SpPlanSpace *space, SpPlanPoint *point);
/* Whether the rules allow it. */
gboolean sp_plan_is_legal (const SpPlanSpace *space, const SpPlanPoint *point);
/* The next row of the level from `row` on, or SP_N_PLAN_DIMENSIONS. */
guint sp_plan_next_row (SpPlanLevel level, guint row);
/* Values of the rows of a level from `row` on, all together; and of all levels. */
gint64 sp_plan_count_rows (const SpPlanSpace *space, SpPlanLevel level, guint row, const SpPlanPoint *point);
gint64 sp_plan_count (const SpPlanSpace *space, const SpPlanPoint *point);

/* --- units.c ------------------------------------------------------------------------------------------------------ */

typedef struct {
  gint32 data, pipeline;
  SpOrder order;
  guint64 paths; /* of the groups of the blocks' work: equal where they cost the same; 0: no layout is legal */
  guint number;
  gint64 below;  /* candidates of each micro-batch, */
  gint64 states; /* and of each schedule */
} SpPlanPlacement;

typedef struct {
  SpPlanPoint point; /* its degrees and micro-batch */
  const SpPlanPlacement *placements;
  guint n;
  gint32 most_stages;
  double least_share;       /* sp_plan_share, the least */
  double step_s, low_s;     /* bounds */
  gint64 below;             /* candidates */
  guint losses;             /* that are searched: whole, and in chunks where the rules allow those */
  double chunked_low_s;     /* of a micro-batch's head in chunks its kernels */
  gboolean left_for_memory; /* a part was not looked at because it does not fit */
} SpPlanUnit;

typedef struct {
  GArray *units;              /* SpPlanUnit, smallest bound first */
  GPtrArray *placements;      /* of tasks; owned */
  gint64 candidates, refused; /* refused: with their placement */
} SpPlanUnits;

/* All units, without bounds. */
void sp_plan_units_init (SpPlanUnits *units, const SpPlanSpace *space);
void sp_plan_units_clear (SpPlanUnits *units);
/* Of all micro-batches' work what a stage of the placement has at the least: full micro-batches / stages. */
double sp_plan_share (const SpPlanSpace *space, const SpPlanPlacement *placement, gint32 micro_batch);
void sp_plan_place (const SpPlanUnit *unit, guint placement, SpPlanPoint *point);
/* Sets the first of the placements from `first` on where the rules allow the point, with states and offload as plain as
 * can be: what they refuse so they refuse with any. `end`: there is none. */
guint sp_plan_place_legal (const SpPlanSpace *space, const SpPlanUnit *unit, guint first, guint end,
                           SpPlanPoint *point);

/* --- bound.c ------------------------------------------------------------------------------------------------------ */

/* Kernels of the attention core that one sequence takes on all GPUs together at the least: by their FLOP on one GPU, at
 * the rate of the largest; 0 where that is not known. */
double sp_plan_core_floor (SpEstimator *estimator, SpProgram *program, const SpRun *run);

typedef struct {
  double step_s;        /* no layout with this work takes less, by the figure that is asked for */
  double low_s;         /* nor does its simulation */
  double bytes;         /* nor less memory; without activations on the host */
  double forward_share; /* of a micro-batch: of each block's time but the head's its forward has at least so much */
  double head_s, head_low_s; /* the head's, of all that the bound is of: so much less at most with another head */
} SpPlanBound;

/* Of the work of a layout's blocks, its stages and its schedule, whatever its states are. */
void sp_plan_bound_work (const SpEstimateContext *e, const SpFramework *framework, SpPlanFigure figure,
                         SpPlanBound *ret);
/* Of a micro-batch on all stages together; bytes are those of some stage of so many. */
void sp_plan_bound_micro_batch (const SpEstimateContext *e, const SpFramework *framework, SpPlanFigure figure,
                                gint32 stages, SpPlanBound *ret);

/* Of a schedule of this kind some stage is done with its slots, and what goes before and after them, no sooner than after
 * so many times a micro-batch's time on all stages together, however the layers are spread over them. */
double sp_plan_least_stage (const SpPlanSpace *space, const SpPlanPlacement *placement, gint32 micro_batch,
                            const SpSchedule *schedule, double forward_share);

/* The bounds of a unit; `program` is scratch. FALSE: none of it is legal. */
gboolean sp_plan_unit_bound (SpEstimator *estimator, SpProgram *program, const SpPlanSpace *space, double core_s,
                             SpPlanUnit *unit);

/* --- kept.c ------------------------------------------------------------------------------------------------------- */

double sp_plan_entry_s (const SpPlanEntry *entry, SpPlanFigure figure);
double sp_plan_entry_lacks (const SpPlanEntry *entry);

/* What a unit found, or all of them together. */
typedef struct {
  SpPlanFigure figure;
  guint most;
  GArray *best;   /* SpPlanEntry that fit, best first, `most` at most */
  GArray *misses; /* that do not, quickest first, each lacks less than the one before */
  gint64 refused, legal, estimated, fitting;
  double least_low_s; /* of those that fit or were not looked at for their time, and are not in `best` */
} SpPlanKept;

void sp_plan_kept_init (SpPlanKept *kept, SpPlanFigure figure, guint most);
void sp_plan_kept_clear (SpPlanKept *kept);
void sp_plan_kept_fits (SpPlanKept *kept, const SpPlanEntry *entry);
void sp_plan_kept_misses (SpPlanKept *kept, const SpPlanEntry *entry);
void sp_plan_kept_merge (SpPlanKept *kept, const SpPlanKept *other);
/* What a layout has to beat to be among the best; INFINITY while there is room. */
double sp_plan_kept_limit (const SpPlanKept *kept);
/* Of those that would beat the best the one that lacks least; where nothing fits the one that lacks least of all. NULL:
 * none. */
const SpPlanEntry *sp_plan_kept_nearest (const SpPlanKept *kept);

/* --- search.c ----------------------------------------------------------------------------------------------------- */

/* What a thread has for itself. */
typedef struct {
  SpEstimator estimator, bytes; /* bytes: of memory alone, sp_estimate_bytes */
  SpProgram *program, *other;   /* other: of a second layout, beside the one at hand */
} SpPlanWorker;

SpPlanWorker *sp_plan_worker_new (const SpEstimator *estimator);
void sp_plan_worker_free (SpPlanWorker *worker);

/* Which layouts of a unit: all; those of the usual space; some, of the first placements and of each row a few values. */
typedef enum { SP_PLAN_WHOLE, SP_PLAN_USUAL, SP_PLAN_SAMPLE } SpPlanPart;

typedef struct {
  double limit_s;       /* beyond it nothing is of interest */
  double most_bytes;    /* nor beyond these; */
  gboolean only_beyond; /* nor what fits: it was looked at before */
  SpPlanPart part;
} SpPlanLimits;

/* What is in a unit within the limits. `kept` is empty before. */
void sp_plan_unit_search (SpPlanWorker *worker, const SpPlanSpace *space, const SpPlanLimits *limits, SpPlanUnit *unit,
                          SpPlanKept *kept);

/* --- simulate.c --------------------------------------------------------------------------------------------------- */

/* Simulates the first so many entries, with the estimator's settings, and puts the quickest first. */
void sp_plan_simulate (SpPlan *plan, const SpEstimator *estimator, guint n, guint threads);

G_END_DECLS
