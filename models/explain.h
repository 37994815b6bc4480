/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Why one layout takes longer than another, term by term, and what makes one fit that does not.
 *
 * A term is a part of step_time_s as the estimate has it, in seconds: kernels of the forward, recompute and backward
 * lists, the optimizer, what communication beside kernels slows them by, each axis' exposed communication, the
 * pipeline's bubble, waits for the host. They add up to step_time_s, and their differences to its difference: a term
 * comes from SpEstimate alone, and no strategy has a formula here. Memory is compared class by class, each of the
 * fullest GPU.
 *
 * Runs of other work (other sequences, batches, numbers of GPUs) are compared by GPU time a token: both sides' seconds
 * times their GPUs over their tokens.
 *
 * The best layout is sp_plan's for the model, cluster, sequence and batch of a scenario: degrees, order and recipes are
 * searched, a loss in chunks as models/planner.h has it; what changes numbers (gradient and ring dtypes, precision,
 * optimizer, what is trained, documents), a scenario's own chunked or fused loss and the schedule are the scenario's. What trades time for memory beyond that search (offload, tiles,
 * no overlap) is left out first, and is the scenario's where nothing fits so.
 *
 * Changes that make a scenario fit: single changes and pairs of them, of recompute, ZeRO, micro-batch, loss, sequence
 * regions, gathering again, MLP tiles, offload, ranks from one axis to another, and 2, 4 or 8 times as many nodes. Ranked
 * by how many keys of the scenario differ, then by step time (of more nodes by GPU time, as they are more). A pair of which one alone suffices is left out,
 * and so is what has all keys of a smaller one and more. Of dtypes and optimizers,
 * which change what is learnt, there are none.
 */

#include "models/inputs/scenario.h"
#include "models/planner.h"

G_BEGIN_DECLS

enum {
  SP_TERM_FORWARD,
  SP_TERM_RECOMPUTE,
  SP_TERM_BACKWARD,
  SP_TERM_OPTIMIZER,
  SP_TERM_SLOWED,
  SP_TERM_BUBBLE,
  SP_TERM_HOST,
  SP_TERM_AXIS, /* and of each SpAxis */
  SP_N_TERMS = SP_TERM_AXIS + SP_N_AXES
};

const char *sp_term_name (guint term);
/* What it is, for a sentence: "computing layers again for their backward". */
const char *sp_term_meaning (guint term);
double sp_term_s (const SpEstimate *e, guint term);
/* The same of a class of memory. */
const char *sp_class_meaning (guint class);

/* A key whose value differs; NULL: that side leaves it out. */
typedef struct {
  char *group, *key, *mine, *other;
} SpKeyDifference;

/* What people call it: the key, but of a group's file the group ("model", "cluster"). */
const char *sp_key_difference_name (const SpKeyDifference *difference);

/* Of [model], [cluster], [layout] and [run]; keys without effect on both sides are left out, and models that are the same
 * in all that counts. Of SpKeyDifference*, in the order of a scenario's keys. */
GPtrArray *sp_scenario_differences (const SpScenario *mine, const SpScenario *other);

typedef struct {
  double mine, other; /* seconds, scaled; bytes */
  char *keys;         /* those of the differing keys that it depends on, as "tensor = 8, not 4"; NULL: none */
} SpExplainedRow;

typedef struct {
  gboolean per_token;             /* scales are GPUs / tokens, else 1 */
  double mine_scale, other_scale; /* of seconds */
  SpExplainedRow time[SP_N_TERMS], memory[SP_N_CLASSES];
  GPtrArray *differences; /* SpKeyDifference */
} SpExplained;

/* Of two scenarios and what they cost; sp_estimate_layout and sp_estimate_refine give that. */
void sp_explain (const SpScenario *mine, const SpEstimate *mine_e, const SpScenario *other, const SpEstimate *other_e,
                 SpExplained *ret);
void sp_explained_clear (SpExplained *explained);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpExplained, sp_explained_clear)

/* What the planner is asked for the best layout; the caller may add its progress. */
SpPlanQuestion sp_explain_question (const SpScenario *scenario);
/* sp_plan of that question; where nothing fits, of one with what the scenario trades besides. `estimator` is of the
 * scenario. NULL with an error: no layout is legal. */
SpPlan *sp_explain_plan (SpEstimator *estimator, const SpScenario *scenario, SpPlanQuestion *question, GError **error);

/* A scenario with another layout and run, and nodes (0: its own); borrows all else of `scenario`. */
SpScenario sp_scenario_with (const SpScenario *scenario, const SpLayout *layout, const SpRun *run, gint32 nodes);

/* --- changes that fit (explain-changes.c) ------------------------------------------------------------------------- */

typedef struct {
  SpPlanEntry entry;
  gint32 nodes; /* 0: as it was */
  gint32 gpus;
  GPtrArray *differences; /* SpKeyDifference, from the scenario */
} SpChange;

/* The first `most`, best first; of SpChange*. Empty if no pair fits. */
GPtrArray *sp_explain_changes (const SpEstimator *estimator, const SpScenario *scenario, guint most);

G_END_DECLS
