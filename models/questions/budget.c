/* SPDX-License-Identifier: Apache-2.0 */
#include "models/questions/questions.h"

#define S_PER_HOUR 3600.0
#define HOURS_PER_DAY 24.0

static SpPlanCost
cost_of (const SpPlanBudget *budget, const SpPlanTrial *trial, const SpPlanEntry *entry)
{
  double hours = budget->tokens / entry->estimate.tokens_per_s / S_PER_HOUR, gpu_hours = hours * trial->gpus;

  return (SpPlanCost){ .gpus = trial->gpus,
                       .entry = entry,
                       .days = hours / HOURS_PER_DAY,
                       .gpu_hours = gpu_hours,
                       .margin = 1 - gpu_hours / budget->gpu_hours };
}

static const SpPlanCost *
cost_at (const SpPlanBudget *budget, gint i)
{
  return &g_array_index (budget->costs, SpPlanCost, i);
}

static void
rank_cost (SpPlanBudget *budget, gint i)
{
  const SpPlanCost *cost = cost_at (budget, i), *best = budget->best >= 0 ? cost_at (budget, budget->best) : NULL;

  if (budget->cheapest < 0 || cost->gpu_hours < cost_at (budget, budget->cheapest)->gpu_hours)
    budget->cheapest = i;
  if (cost->margin < 0)
    return;
  if (best == NULL || cost->days < best->days || (cost->days == best->days && cost->gpu_hours < best->gpu_hours))
    budget->best = i;
}

SpPlanBudget *
sp_plan_budget (SpEstimator *estimator, const SpPlanQuestion *question, double gpu_hours, double tokens, GError **error)
{
  SpPlanGpus *gpus = sp_plan_gpus (estimator, question, 0, FALSE, error);

  if (gpus == NULL)
    return NULL;
  SpPlanBudget *budget = g_new0 (SpPlanBudget, 1);
  *budget = (SpPlanBudget){ .gpus = gpus,
                            .gpu_hours = gpu_hours,
                            .tokens = tokens,
                            .costs = g_array_new (FALSE, FALSE, sizeof (SpPlanCost)),
                            .best = -1,
                            .cheapest = -1 };
  for (guint i = 0; i < gpus->trials->len; i++) {
    const SpPlanTrial *trial = gpus->trials->pdata[i];
    for (guint e = 0; trial->plan != NULL && e < trial->plan->entries->len; e++) {
      const SpPlanCost cost = cost_of (budget, trial, &g_array_index (trial->plan->entries, SpPlanEntry, e));
      g_array_append_val (budget->costs, cost);
      rank_cost (budget, (gint) budget->costs->len - 1);
    }
  }
  if (budget->cheapest >= 0)
    budget->affordable_tokens = tokens * gpu_hours / cost_at (budget, budget->cheapest)->gpu_hours;
  return budget;
}

void
sp_plan_budget_free (SpPlanBudget *budget)
{
  if (budget == NULL)
    return;
  g_array_unref (budget->costs);
  sp_plan_gpus_free (budget->gpus);
  g_free (budget);
}
