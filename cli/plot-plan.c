/* SPDX-License-Identifier: Apache-2.0 */
/* What figures of a plan are drawn from: the scenario's question, its layout apart. */
#include "cli/plan.h"
#include "cli/plot.h"

GString *
sp_plot_pareto (const SpPlotQuestion *q, GError **error)
{
  g_autoptr (SpScenario) s = sp_cli_load_scenario (q->input, q->sets, error);
  SpEstimator estimator;

  if (s == NULL)
    return NULL;
  SpPlanQuestion question = sp_plan_question_of (s, 1);
  question.gpus = sp_cli_gpus (s->cluster);
  sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
  g_autoptr (SpPareto) pareto = sp_plan_pareto (&estimator, &question, sp_plan_pareto_step (s->cluster), error);
  return pareto != NULL ? sp_plan_pareto_csv (&estimator, &question, pareto->points) : NULL;
}
