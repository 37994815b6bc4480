/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar plan: the layouts that fit, best first. */
#include "cli/plan.h"

#include "cli/exported.h"
#include "cli/progress.h"
#include "cli/ranks.h"

/* --- as a run file ------------------------------------------------------------------------------------------------ */

/* The best that the format can say. */
static gboolean
add_export (const SpPlanOptions *o, SpPlanInput *q, SpEstimator *estimator, SpCliProgress *progress, GString *out,
            GError **error)
{
  g_autofree char *model = sp_find_model (o->model, error);
  char none[] = "none";
  if (model == NULL)
    return FALSE;
  const SpScenario scenario = {
    .model_path = model,
    .cluster_path = none,
    .framework_path = none,
    .arch = q->arch,
    .cluster = q->cluster,
    .framework = q->framework,
    .layout = q->question.base,
    .run = q->question.run,
  };
  q->question.simulate = 0; /* of the estimate both are the best */
  g_autoptr (SpPlan) plan = sp_plan (estimator, &q->question, error);
  if (plan == NULL)
    return FALSE;
  const SpPlanEntry *best = sp_plan_best (plan);
  g_autoptr (SpPlanExport) exported = sp_plan_export (estimator, &scenario, &q->question, o->export, FALSE, error);
  sp_cli_progress_end (progress);
  if (exported == NULL)
    return FALSE;
  if (sp_ranks_is_first (q->question.ranks))
    sp_cli_note_export (exported, best != NULL ? best->estimate.step_time_s : 0, NULL);
  g_string_append_len (out, exported->text->str, (gssize) exported->text->len);
  return TRUE;
}

static gboolean
plan_on (const SpPlanRanks *ranks, char **args, GString *out, GError **error)
{
  g_auto (SpPlanOptions) options = { NULL };
  g_auto (SpPlanInput) q = { NULL };
  SpParsed parsed = sp_plan_options_parse (args, &options, out, error);
  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!sp_plan_input_read (&options, &q, error))
    return FALSE;
  q.question.ranks = ranks;

  SpEstimator estimator;
  sp_estimator_init (&estimator, q.arch, q.cluster, q.framework, q.convention);
  SpCliProgress progress;
  SpPlanAskFunc ask = sp_plan_ask_find (&options);
  sp_cli_progress_begin (&progress, &q.question);
  if (ask != NULL) {
    const SpPlanAsked asked = { &options, &q, &estimator };
    gboolean answered = ask (&asked, out, error);
    sp_cli_progress_end (&progress);
    return answered;
  }
  if (options.export != NULL) {
    gboolean exported = add_export (&options, &q, &estimator, &progress, out, error);
    sp_cli_progress_end (&progress);
    return exported;
  }
  g_autoptr (SpPlan) plan = q.n_slices > 0 ? sp_plan_of_slices (&estimator, &q.question, q.slices, q.n_slices, error)
                                           : sp_plan (&estimator, &q.question, error);
  sp_cli_progress_end (&progress);
  if (plan == NULL)
    return FALSE;
  if (options.json)
    return sp_plan_json (&estimator, plan, out, error);
  sp_plan_text (&q, &estimator, plan, out);
  return TRUE;
}

gboolean
sp_command_plan (char **args, GString *out, GError **error)
{
  return sp_cli_on_ranks (plan_on, args, out, error);
}
