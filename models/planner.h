/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The planner: all legal layouts of a model, cluster, sequence and global batch; those that fit, ranked by step_time_s.
 *
 * Candidates: every factorisation of the GPUs into data, tensor, pipeline and sequence ranks, of these into ulysses x
 * ring (or lasp), ranks that experts are spread over (of a model that has them), ring splits, lasp versions, micro-batches (powers of two and the whole share), recompute modes, ZeRO
 * stages, and the orders of the axes whose degree is above 1 that differ in which of them stay inside a node. What the
 * rules refuse is counted, not listed.
 */

#include "models/estimate/estimate.h"

G_BEGIN_DECLS

typedef struct {
  SpLayout layout;
  SpRun run; /* its micro-batch */
  SpEstimate estimate;
} SpPlanEntry;

typedef struct {
  gint64 candidates, legal, fitting;
  GArray *entries; /* SpPlanEntry, best first, at most `top` */
  gboolean has_nearest;
  SpPlanEntry
      nearest; /* of those that do not fit and would beat the best, the one that lacks least; else the least of all */
} SpPlan;

typedef struct {
  gint64 sequence;
  gint32 global_batch;
  gint32 gpus; /* 0: all of the cluster */
  guint top;
  gboolean causal;
  /* What is not searched: gradient dtypes, overlap, ... Its schedule is that of layouts with a pipeline, its ring kind of
   * those with a ring; of a schedule with chunks virtual_stages = 1 leaves their number to the search: those that give
   * each as many layers, and 2. */
  SpLayout base;
  SpRun run; /* of it precision, optimizer, imbalance, and what is trained: adapters and frozen parts */
  /* Called now and then in the search, with the candidates that were looked at and all that there are; NULL: nobody asks,
   * and none are counted beforehand. */
  void (*progress) (gint64 done, gint64 all, gpointer data);
  gpointer progress_data;
} SpPlanQuestion;

SpPlan *sp_plan (SpEstimator *estimator, const SpPlanQuestion *question, GError **error);
void sp_plan_free (SpPlan *plan);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpPlan, sp_plan_free)

/* One sentence: what bounds the step (compute, which axis' communication, bubble, host) and by how much. */
char *sp_plan_bound (const SpPlanEntry *entry);

G_END_DECLS
