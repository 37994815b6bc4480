/* SPDX-License-Identifier: Apache-2.0 */
#include "models/questions/questions.h"

#include "models/estimate/interval.h"
#include "models/writer.h"

guint
sp_layout_axes (const SpLayout *layout, const SpArchitecture *arch)
{
  const gint32 degrees[] = { layout->data, layout->tensor, layout->pipeline, layout->ulysses,
                             layout->ring, layout->lasp,   layout->expert };
  guint axes = 0;

  for (guint i = 0; i < G_N_ELEMENTS (degrees); i++)
    axes += degrees[i] > 1;
  return axes;
}

static gboolean
deviations_of (const SpEstimator *estimator, const SpPlanEntry *entry, SpDeviations *ret)
{
  if (estimator->cluster->profile == NULL)
    return FALSE;
  g_autoptr (SpProgram) program = sp_program_new ();
  sp_program_write (program, estimator->arch, estimator->framework, &entry->layout, &entry->run);
  return sp_estimate_deviations (estimator, program, &entry->run, ret);
}

static void
put_interval (const SpDeviations *deviations, SpPlanEntry *entry)
{
  SpInterval interval;

  sp_deviations_interval (deviations, &interval);
  sp_interval_apply (&interval, &entry->estimate);
}

gboolean
sp_plan_add_interval (const SpEstimator *estimator, SpPlanEntry *entry)
{
  g_auto (SpDeviations) deviations = { 0 };

  if (!deviations_of (estimator, entry, &deviations))
    return FALSE;
  put_interval (&deviations, entry);
  return TRUE;
}

static void
compare_with_best (const SpDeviations *best, const SpDeviations *mine, guint i, SpPlanTies *ret)
{
  sp_deviations_difference (mine, best, &ret->more_s[i][0], &ret->more_s[i][1]);
  ret->ties[i] = ret->more_s[i][0] <= 0 && ret->more_s[i][1] >= 0;
  ret->tied += ret->ties[i];
}

void
sp_plan_find_ties (const SpEstimator *estimator, SpPlan *plan, SpPlanTies *ret)
{
  guint most = MIN (plan->entries->len, SP_PLAN_MOST_INTERVALS);
  SpPlanEntry *entries = (SpPlanEntry *) plan->entries->data;
  g_auto (SpDeviations) best = { 0 };

  *ret = (SpPlanTies){ 0 };
  for (guint i = 0; i < most; i++) {
    g_auto (SpDeviations) mine = { 0 };
    if (!deviations_of (estimator, &entries[i], &mine))
      break;
    put_interval (&mine, &entries[i]);
    compare_with_best (i > 0 ? &best : &mine, &mine, i, ret);
    ret->compared++;
    if (ret->ties[i] && sp_layout_axes (&entries[i].layout, estimator->arch) <
                            sp_layout_axes (&entries[ret->simplest].layout, estimator->arch))
      ret->simplest = i;
    if (i == 0) {
      best = mine;
      mine = (SpDeviations){ 0 };
    }
  }
}
