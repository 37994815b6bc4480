/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The planner: the best layouts of a model, cluster, sequence and global batch, out of all of a space.
 *
 * The space. Every factorisation of the GPUs into data, tensor, pipeline and sequence ranks, of these into ulysses x ring
 * (or lasp), ranks that experts are spread over (of a model that has them), the orders of the axes whose degree is above 1
 * that differ in which of them stay inside a node, micro-batches (powers of two and the whole share); and the rows of a
 * table (models/plan/space.c): ring split, kind, what a ring keeps and sends back, LASP version, recompute with every
 * K-th layer, schedule, virtual stages, uneven stages, ZeRO stage and group, offload where the cluster's file says what the
 * host reaches; and the loss in chunks, where the framework has that and the layout does not fit with it whole. What
 * `fixed` names is not searched. To add a dimension is to add a row.
 *
 * The search is branch and bound: a part of the space is not looked at where a bound says that no layout of it is among
 * the best, or that none of it fits. Ranked is by step_time_s, or by serial_s if it is asked for; bounds are below both,
 * and below what is simulated:
 *   unit       degrees, micro-batch and links of the blocks' groups: kernels outside the attention core and communication
 *              that nothing hides, as priced, which no row changes but to add to it; of the core the FLOP of one GPU's
 *              program at its best rate; times the micro-batches of a stage, if stages were even
 *   work       as well the rows that change the blocks' work: their lists as priced, times the same; of every-K recompute
 *              those of none
 *   kind       and whether a kind of schedule has forwards to wait for, and backwards that go back whole: some stage has
 *              them beside its own, however the layers are spread
 *   schedule   as well stages and schedule: of each stage its slots, after the forwards of those before it, and before
 *              the backwards that go back through them; and memory: what a stage keeps of micro-batches in flight
 *   order      with messages between stages, a pass over the schedule where it can go over all micro-batches
 *   states     with gathers, reductions and the optimizer, of each stage in the order of its slots alone: all that is left
 *              out is what stages wait for each other; before offload is looked at, without the optimizer. And memory: shards
 *              over all ranks, and as much on the host as may be
 * These are bounds with the loss whole. In chunks it is looked at where they cut off, unless they would without the head,
 * which no other can take more from; and never where the layout fits with it whole.
 * A limit to begin with is a sample: of all degrees and links some layouts of one sequence a micro-batch, then all of the
 * units that the best of these are in.
 * All that no bound cuts off is estimated. So the best are the best of all, by the estimate: against brute force in
 * tests/test-planner.c and, with every bound held to every layout below it, in tests/test-plan-bounds.c. Units are taken
 * in the order of their bounds, in waves of a fixed size that share what the waves before have found: results and counts
 * are the same for any number of threads and ranks.
 *
 * Layouts that cost the same to the last bit, and differ in the order of their axes or in stripes for zigzag alone, are
 * listed once, by the one that comes first.
 *
 * The best few (`simulate`) are then simulated (models/simulate) and ranked again by that; those after them keep their
 * order. What was not simulated cannot be quicker than `least_low_s`.
 *
 * The nearest that does not fit is, of those that lack memory of the GPU and would beat the best by the estimate, the one
 * that lacks least; where nothing fits, of all. There is none where all that is quicker fits.
 */

#include "models/estimate/estimate.h"

G_BEGIN_DECLS

typedef struct {
  SpLayout layout;
  SpRun run; /* its micro-batch */
  SpEstimate estimate;
  double simulated_s; /* step; 0: not simulated */
} SpPlanEntry;

typedef enum { SP_PLAN_BY_STEP, SP_PLAN_BY_SERIAL } SpPlanFigure;

/* Of the candidates `pruned` were cut off by a bound of time or memory, or are in chunks and have room with the loss whole;
 * the others were refused by the rules, or legal; legal ones were counted byte by byte, and those that have room on the GPU
 * estimated. */
typedef struct {
  gint64 candidates, legal, fitting;
  GArray *entries; /* SpPlanEntry, best first, at most `top` */
  gboolean has_nearest;
  SpPlanEntry nearest; /* see above */
  gint64 pruned, estimated;
  guint simulated;
  /* No layout that fits and was not simulated takes less; INFINITY: there is none. Without simulations, of those that are
   * not listed. */
  double least_low_s;
} SpPlan;

/* Several processes on one question: each calls sp_plan() with the same, and all get the same plan. */
typedef struct {
  guint rank, n;
  /* Everybody's bytes in the order of ranks, of everybody's own. NULL: a rank has failed. */
  GByteArray *(*share) (const GByteArray *own, gpointer data, GError **error);
  gpointer data;
} SpPlanRanks;

typedef struct {
  gint64 sequence;
  gint32 global_batch;
  gint32 gpus; /* 0: all of the cluster */
  guint top;
  gboolean causal;
  /* What is not searched: gradient dtypes, overlap, ... and the value of each dimension that is fixed: a schedule is that of
   * layouts with a pipeline, a ring kind of those with a ring. */
  SpLayout base;
  SpRun run;                /* of it precision, optimizer, imbalance, and what is trained: adapters and frozen parts */
  guint fixed;              /* dimensions that are as in `base`: sp_plan_dimension() */
  SpPlanFigure figure;      /* what is ranked by */
  guint threads;            /* 0: as many as there are processors */
  guint simulate;           /* so many of the best are simulated */
  const SpPlanRanks *ranks; /* NULL: this process alone */
  /* Layouts that are of use; others are left out, as if no rule allowed them, so that the best are the best of those that
   * are. Asked in any thread, of layouts that fit; with `degrees_alone` whether any layout of these degrees, this order and
   * micro-batch is, of one that has them. NULL: all are. */
  gboolean (*wants) (const SpLayout *layout, const SpRun *run, gboolean degrees_alone, gpointer data);
  gpointer wants_data;
  /* Called now and then in the search, in the caller's thread, with the candidates that were decided and all that there
   * are; NULL: nobody asks. */
  void (*progress) (gint64 done, gint64 all, gpointer data);
  gpointer progress_data;
} SpPlanQuestion;

/* Dimensions that are not of the usual space, which is degrees, orders, micro-batches, ring splits, LASP version, recompute,
 * the loss, ZeRO stage and chunks: as `fixed`. The whole space is larger by a factor of hundreds. */
guint sp_plan_beyond_usual (void);
/* The bit of a row of the table by its key, 0 for none; and the key of a row, NULL behind the last. */
guint sp_plan_dimension (const char *key);
const char *sp_plan_dimension_key (guint row);

SpPlan *sp_plan (SpEstimator *estimator, const SpPlanQuestion *question, GError **error);
/* The best of all layouts whose sequences go through the stages in one of these numbers of slices (slices.c): a search for
 * each, and counts of all together. A number that no layout may have is passed over, unless there is no other. */
SpPlan *sp_plan_of_slices (SpEstimator *estimator, const SpPlanQuestion *question, const gint32 *slices, guint n,
                           GError **error);
void sp_plan_free (SpPlan *plan);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpPlan, sp_plan_free)

/* One sentence: what bounds the step (compute, which axis' communication, bubble, host) and by how much. */
char *sp_plan_bound (const SpPlanEntry *entry);

G_END_DECLS
