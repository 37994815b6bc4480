/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Questions beyond "which layout is the quickest": each is answered by searches of the planner (models/planner.h), and
 * is as exact as these. They take the planner's question for what is not theirs to vary, and search on the calling
 * thread, with as many as the planner takes. A new question is one file here, one in cli/, and a row in cli/plan-ask.c.
 *
 * Tokens, GPUs, seconds, bytes; a GPU-hour is 3,600 seconds of one GPU. Tokens/s are those of the step alone: no
 * restarts, evaluations, checkpoints or failed nodes.
 *
 * Which numbers of GPUs are asked. Of one node the divisors of its GPUs; beyond it whole nodes, as many as are a power
 * of two or a divisor of the cluster's. Others can be had with `gpus`.
 */

#include "models/inputs/scenario.h"
#include "models/planner.h"

G_BEGIN_DECLS

/* --- one search of several ---------------------------------------------------------------------------------------- */

typedef struct {
  gint32 gpus;
  SpPlan *plan; /* NULL: no layout is legal */
  char *reason; /* which rule; NULL: some are */
} SpPlanTrial;

/* gint32, ascending, of all that the cluster has. Free with g_array_unref. */
GArray *sp_plan_gpu_counts (const SpCluster *cluster);
/* NULL: nothing fits. */
const SpPlanEntry *sp_plan_best (const SpPlan *plan);

/* --- sequence.c: the longest sequence ----------------------------------------------------------------------------- */

typedef enum {
  SP_LIMIT_MEMORY, /* of the next length nothing fits */
  SP_LIMIT_RATE,   /* of the next length nothing that fits is quick enough */
  SP_LIMIT_RULES,  /* of the next length nothing is legal */
  SP_LIMIT_NONE,   /* as long as is asked at all */
  SP_N_LIMITS
} SpSequenceLimit;

extern const char *const sp_sequence_limits[SP_N_LIMITS + 1]; /* NULL-terminated */

/* Lengths are multiples of a step: of 1,024 tokens and of twice the GPUs, which every split of tokens divides
 * (sequence ranks x tensor ranks, and twice the ring's of zigzag). They are doubled, then halved in, down to a step; layouts
 * that answered one length are tried at others, so that searches are few.
 *
 * ASSUMED is that what is too long stays so: memory grows with the tokens, and tokens/s fall once they do. It is CHECKED
 * at two doublings in a row and at four lengths up to 1.8 times the answer. Where one of them passes, the search goes on
 * from there and says so (is_monotonic). Below a rate that is asked for, short sequences may be too slow as well: then
 * lengths are doubled until one passes. */
typedef struct {
  gint64 step_tokens;
  gint64 sequence;          /* 0: none */
  SpPlan *plan;             /* of it; NULL: none */
  gint64 next;              /* the next length, or where there is none the shortest; 0: none is asked */
  SpPlan *next_plan;        /* of that; NULL: nothing is legal */
  SpSequenceLimit limit;    /* what is wrong with the next length */
  double best_tokens_per_s; /* of layouts that were looked at, and its length */
  gint64 best_sequence;
  gboolean is_monotonic;
  guint searches;
} SpMaxSequence;

/* `least_tokens_per_s` 0: any. question->sequence is not used. NULL with an error: at no length is any layout legal. */
SpMaxSequence *sp_plan_max_sequence (SpEstimator *estimator, const SpPlanQuestion *question, double least_tokens_per_s,
                                     GError **error);
void sp_max_sequence_free (SpMaxSequence *max);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpMaxSequence, sp_max_sequence_free)

/* --- gpus.c: how many GPUs ---------------------------------------------------------------------------------------- */

/* A rate that is asked for is that of the step: any layout that fits and has it is an answer. */
typedef struct {
  GPtrArray *trials;          /* SpPlanTrial, fewest GPUs first; of those that reach the target, entries that do */
  double target_tokens_per_s; /* 0: any */
  /* Into trials, -1: none. Of those whose best layout fits and reaches the target: fewest GPUs; least GPU time a token;
   * most tokens/s of all. */
  gint fewest, cheapest, quickest;
} SpPlanGpus;

/* Of question->gpus, or if that is 0 of all counts; `stops`: at the first that does. An error: a search that cannot be
 * made, as of more GPUs than there are; that no layout is legal is a trial's reason. */
SpPlanGpus *sp_plan_gpus (SpEstimator *estimator, const SpPlanQuestion *question, double target_tokens_per_s,
                          gboolean stops, GError **error);
void sp_plan_gpus_free (SpPlanGpus *gpus);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpPlanGpus, sp_plan_gpus_free)

/* Whether the trial's best does. */
gboolean sp_plan_trial_reaches (const SpPlanTrial *trial, double target_tokens_per_s);
/* GPU-seconds a token. */
double sp_plan_gpu_s_per_token (const SpPlanTrial *trial, const SpPlanEntry *entry);

/* --- budget.c: what a budget trains ------------------------------------------------------------------------------- */

typedef struct {
  gint32 gpus;
  const SpPlanEntry *entry; /* the trial's */
  double days, gpu_hours;   /* to train all tokens */
  double margin;            /* of the budget, what is left of it: 0.1; negative: what lacks */
} SpPlanCost;

typedef struct {
  SpPlanGpus *gpus;
  double gpu_hours, tokens; /* what was asked */
  GArray *costs;            /* SpPlanCost: of each count all entries of its plan, in the order of trials */
  gint best;                /* into costs: of those within the budget fewest days, then fewest GPU-hours; -1: none is */
  gint cheapest;            /* fewest GPU-hours, within the budget or not; -1: nothing fits */
  double affordable_tokens; /* what the budget trains with the cheapest */
} SpPlanBudget;

SpPlanBudget *sp_plan_budget (SpEstimator *estimator, const SpPlanQuestion *question, double gpu_hours, double tokens,
                              GError **error);
void sp_plan_budget_free (SpPlanBudget *budget);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpPlanBudget, sp_plan_budget_free)

/* --- pareto.c: memory against time -------------------------------------------------------------------------------- */

typedef struct {
  gint32 gpus;
  SpPlanEntry entry;
} SpParetoPoint;

typedef struct {
  GArray *points;    /* SpParetoPoint, fewest GPUs first, of these the quickest first */
  double step_bytes; /* points lie at least so far apart in memory, of a count */
  guint searches;
} SpPareto;

/* Layouts that no other one beats in step time and memory of a GPU (and number of GPUs, where question->gpus is 0).
 * Each is the quickest of those that need step_bytes less than the one before: searches of a GPU that has just so much.
 * So every point is on the front, and with step_bytes 0 the front is whole; else of points closer together the quickest
 * is there. An error: at no count is any layout legal. */
SpPareto *sp_plan_pareto (SpEstimator *estimator, const SpPlanQuestion *question, double step_bytes, GError **error);
void sp_pareto_free (SpPareto *pareto);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpPareto, sp_pareto_free)

/* --- sensitivity.c: what to buy ----------------------------------------------------------------------------------- */

/* Something of the machine that could be more. */
typedef struct {
  const char *name;    /* "FLOP rate" */
  const char *keys;    /* of device and cluster files, and the curves of a profile, that are scaled */
  double gain;         /* what the best layout's step takes less, as a fraction of it */
  double planned_gain; /* of what is the best then */
  gboolean changes;    /* that is another layout */
  SpPlanEntry best;    /* it */
} SpSensitivity;

typedef struct {
  double share; /* 0.01: 1 % more of each */
  SpPlan *plan; /* of the machine as it is */
  GArray *rows; /* SpSensitivity, largest planned gain first */
} SpPlanSensitivity;

/* Where something fits; no rows where nothing does. Rates of a profile's curves are scaled with what they are of, as
 * if a card of that much more were measured; a rate that is not in it (of the L2, say) stays. Latencies are no rates:
 * they are in no row. A machine that the step does not depend on at all has 0. */
SpPlanSensitivity *sp_plan_sensitivity (SpEstimator *estimator, const SpPlanQuestion *question, double share,
                                        GError **error);
void sp_plan_sensitivity_free (SpPlanSensitivity *sensitivity);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpPlanSensitivity, sp_plan_sensitivity_free)

/* --- export.c: the best that a run file can say --------------------------------------------------------------------- */

/* What is exported is what counts: a layout as it is read again from the file that it was written as, and priced so. */
typedef struct {
  SpPlanEntry entry; /* it */
  GString *text;     /* the run file */
  GPtrArray *lost;   /* of char*: what it cannot carry */
  gboolean is_part;  /* no layout that fits comes back whole: this is what is left of one of the best */
  gboolean is_own;   /* it is the scenario's own layout */
} SpPlanExport;

/* Of the question's space the best layout that comes back whole from a file of the format (models/inputs/run-files/); what
 * the format never says otherwise (dtypes, overlap, the loss ...) is as its files are read. Is there none, the best of
 * what is left of the MOST_TRIED best layouts. `own`: so is the scenario's layout one of those that are looked at. Of the
 * scenario the model, the cluster and what it keeps of its run file are written.
 * NULL with an error: no layout is legal, none fits, or of none the degrees come back. */
SpPlanExport *sp_plan_export (SpEstimator *estimator, const SpScenario *scenario, const SpPlanQuestion *question,
                              const char *format, gboolean own, GError **error);
void sp_plan_export_free (SpPlanExport *export);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpPlanExport, sp_plan_export_free)

/* --- ties.c: what cannot be told apart ---------------------------------------------------------------------------- */

#define SP_PLAN_MOST_INTERVALS 10 /* each takes some hundred estimates */

/* A layout TIES WITH THE BEST where the intervals of their steps (models/estimate/interval.h) overlap. Curves are the
 * same for both, so that of two that tie the order may be known better than either step: a tie says that the figures
 * do not decide, not that the layouts are equal. */
typedef struct {
  guint compared; /* the first so many of the plan; 0: there is no profile, or it has no intervals */
  gboolean ties[SP_PLAN_MOST_INTERVALS]; /* the best with itself */
  guint tied;
  guint simplest; /* of the tied ones that which uses fewest axes, the quickest of these */
} SpPlanTies;

/* The interval into the entry's estimate; FALSE: there is none. */
gboolean sp_plan_add_interval (const SpEstimator *estimator, SpPlanEntry *entry);
/* Also puts intervals into the first entries' estimates. */
void sp_plan_find_ties (const SpEstimator *estimator, SpPlan *plan, SpPlanTies *ret);
/* Axes of a degree above 1. */
guint sp_layout_axes (const SpLayout *layout, const SpArchitecture *arch);

G_END_DECLS
