/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * seqpar plan, in files: what is asked (plan-options.c), what is found, as text and JSON (plan-report.c), the command
 * itself (plan.c), and other questions than which layout is the quickest: which there are (plan-ask.c), each in a file.
 */

#include "cli/cli.h"
#include "models/questions/questions.h"

G_BEGIN_DECLS

/* --- plan-options.c ----------------------------------------------------------------------------------------------- */

/* The command line as it was given. */
typedef struct {
  char **rest, **sets;
  char *model, *cluster, *framework, *sequence, *batch, *gpus, *top, *convention, *export, *profile;
  char *threads, *simulate, *space, *slices;
  char *target, *budget, *tokens, *csv;
  gboolean max_sequence, min_gpus, pareto, sensitivity;
  gboolean json;
} SpPlanOptions;

void sp_plan_options_clear (SpPlanOptions *options);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpPlanOptions, sp_plan_options_clear)

/* The question that it asks, with the inputs that it names. */
typedef struct {
  SpArchitecture *arch;
  SpCluster *cluster;
  SpFramework *framework;
  SpPlanQuestion question;
  SpMfuConvention convention;
  double target_tokens_per_s, budget_gpu_hours, tokens; /* 0: not asked */
  gint32 slices[SP_MAX_SLICES];                         /* numbers that are searched */
  guint n_slices;                                       /* 0: none, those of the question's base */
} SpPlanInput;

void sp_plan_input_clear (SpPlanInput *input);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpPlanInput, sp_plan_input_clear)

SpParsed sp_plan_options_parse (char **args, SpPlanOptions *options, GString *out, GError **error);
/* Usage errors first, then those of the inputs. */
gboolean sp_plan_input_read (const SpPlanOptions *options, SpPlanInput *input, GError **error);

/* The scenario's question, but for what a plan searches. */
SpPlanQuestion sp_plan_question_of (const SpScenario *scenario, guint top);

/* --- plan-report.c ------------------------------------------------------------------------------------------------ */

/* These put intervals into the plan's first entries, where there is a profile, and say which tie. */
gboolean sp_plan_json (const SpEstimator *estimator, SpPlan *plan, GString *out, GError **error);
/* Its members, into the open object. */
void sp_plan_members (JsonBuilder *builder, const SpEstimator *estimator, SpPlan *plan);
void sp_plan_text (const SpPlanInput *input, const SpEstimator *estimator, SpPlan *plan, GString *out);
/* An entry as an object, with its interval where it has one. */
void sp_plan_entry_json (JsonBuilder *builder, const SpEstimator *estimator, const SpPlanEntry *entry);
/* What it lacks, and of what: "lacks 3.280 GiB on GPUs of 79.65 GiB". Free with g_free. */
char *sp_plan_lack_text (const SpPlanEntry *entry);

/* --- plan-ask.c, and a file for each question --------------------------------------------------------------------- */

/* What is asked beside which layout is the quickest; a row of the table in plan-ask.c. */
typedef struct {
  const SpPlanOptions *options;
  const SpPlanInput *input;
  SpEstimator *estimator;
} SpPlanAsked;

/* Appends text or JSON as the options say. */
typedef gboolean (*SpPlanAskFunc) (const SpPlanAsked *asked, GString *out, GError **error);

/* Whether they ask one of the questions. */
gboolean sp_plan_ask_is (const SpPlanOptions *options);
/* Usage errors: questions that contradict each other, options that a question has no use for. */
gboolean sp_plan_ask_check (const SpPlanOptions *options, GError **error);
/* NULL: the plan itself is asked. */
SpPlanAskFunc sp_plan_ask_find (const SpPlanOptions *options);

gboolean sp_plan_ask_sequence (const SpPlanAsked *asked, GString *out, GError **error);
gboolean sp_plan_ask_gpus (const SpPlanAsked *asked, GString *out, GError **error);
gboolean sp_plan_ask_budget (const SpPlanAsked *asked, GString *out, GError **error);
gboolean sp_plan_ask_pareto (const SpPlanAsked *asked, GString *out, GError **error);
gboolean sp_plan_ask_sensitivity (const SpPlanAsked *asked, GString *out, GError **error);

/* {"question": name, an open object; ended by sp_json_finish after json_builder_end_object. */
JsonBuilder *sp_plan_ask_json (const char *question);
/* How far apart in memory points are that are told apart, and rows for `seqpar plot pareto`. */
double sp_plan_pareto_step (const SpCluster *cluster);
GString *sp_plan_pareto_csv (const SpEstimator *estimator, const SpPlanQuestion *question, const GArray *points);

G_END_DECLS
