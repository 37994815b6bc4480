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

gboolean
sp_plan_add_interval (const SpEstimator *estimator, SpPlanEntry *entry)
{
  SpInterval interval;

  if (estimator->cluster->profile == NULL)
    return FALSE;
  g_autoptr (SpProgram) program = sp_program_new ();
  sp_program_write (program, estimator->arch, estimator->framework, &entry->layout, &entry->run);
  if (!sp_estimate_interval (estimator, program, &entry->run, &interval))
    return FALSE;
  sp_interval_apply (&interval, &entry->estimate);
  return TRUE;
}

void
sp_plan_find_ties (const SpEstimator *estimator, SpPlan *plan, SpPlanTies *ret)
{
  guint most = MIN (plan->entries->len, SP_PLAN_MOST_INTERVALS);

  *ret = (SpPlanTies){ 0 };
  SpPlanEntry *entries = (SpPlanEntry *) plan->entries->data;
  while (ret->compared < most && sp_plan_add_interval (estimator, &entries[ret->compared]))
    ret->compared++;
  for (guint i = 0; i < ret->compared; i++) {
    const double *best = entries[0].estimate.interval_s, *mine = entries[i].estimate.interval_s;
    ret->ties[i] = mine[0] <= best[1] && best[0] <= mine[1];
    ret->tied += ret->ties[i];
    if (ret->ties[i] && sp_layout_axes (&entries[i].layout, estimator->arch) <
                            sp_layout_axes (&entries[ret->simplest].layout, estimator->arch))
      ret->simplest = i;
  }
}
