/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * seqpar plan, in files: what is asked (plan-options.c), what is found, as text and JSON (plan-report.c), and the
 * command itself (plan.c).
 */

#include "cli/cli.h"
#include "models/planner.h"

G_BEGIN_DECLS

/* --- plan-options.c ----------------------------------------------------------------------------------------------- */

/* The command line as it was given. */
typedef struct {
  char **rest, **sets;
  char *model, *cluster, *framework, *sequence, *batch, *gpus, *top, *convention, *export, *profile, *threads, *simulate, *space;
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
} SpPlanInput;

void sp_plan_input_clear (SpPlanInput *input);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpPlanInput, sp_plan_input_clear)

SpParsed sp_plan_options_parse (char **args, SpPlanOptions *options, GString *out, GError **error);
/* Usage errors first, then those of the inputs. */
gboolean sp_plan_input_read (const SpPlanOptions *options, SpPlanInput *input, GError **error);

/* --- plan-report.c ------------------------------------------------------------------------------------------------ */

gboolean sp_plan_json (const SpEstimator *estimator, const SpPlan *plan, GString *out, GError **error);
void sp_plan_text (const SpPlanInput *input, const SpEstimator *estimator, const SpPlan *plan, GString *out);

G_END_DECLS
