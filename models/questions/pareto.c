/* SPDX-License-Identifier: Apache-2.0 */
#include "models/questions/questions.h"

#include "models/questions/what-if.h"

#include <math.h>

static gboolean
is_beaten (const SpPareto *pareto, const SpPlanEntry *entry)
{
  for (guint i = 0; i < pareto->points->len; i++) {
    const SpEstimate *other = &g_array_index (pareto->points, SpParetoPoint, i).entry.estimate;
    if (other->step_time_s <= entry->estimate.step_time_s &&
        other->memory.total_bytes <= entry->estimate.memory.total_bytes)
      return TRUE;
  }
  return FALSE;
}

/* The front of so many GPUs, less what fewer do as well. FALSE: no layout is legal. */
static gboolean
add_front (SpPareto *pareto, const SpEstimator *estimator, const SpPlanQuestion *question, gint32 gpus, GError **error)
{
  g_auto (SpWhatIf) machine = { 0 };
  SpPlanQuestion q = *question;
  double has = estimator->cluster->device->memory_bytes.value;

  q.gpus = gpus;
  q.top = 1;
  sp_what_if_init (&machine, estimator);
  for (;;) {
    g_autoptr (SpPlan) plan = sp_plan (&machine.estimator, &q, error);
    const SpPlanEntry *best = sp_plan_best (plan);
    pareto->searches++;
    if (best == NULL)
      return plan != NULL;
    SpParetoPoint point = { gpus, *best };
    point.entry.estimate.capacity_bytes = has;
    if (!is_beaten (pareto, best))
      g_array_append_val (pareto->points, point);
    double less = best->estimate.memory.total_bytes - pareto->step_bytes;
    machine.device.memory_bytes.value = MIN (less, nextafter (best->estimate.memory.total_bytes, 0));
    sp_what_if_changed (&machine);
  }
}

SpPareto *
sp_plan_pareto (SpEstimator *estimator, const SpPlanQuestion *question, double step_bytes, GError **error)
{
  g_autoptr (SpPareto) pareto = g_new0 (SpPareto, 1);
  g_autoptr (GArray) counts = sp_plan_gpu_counts (estimator->cluster);
  g_autoptr (GError) refused = NULL;
  gboolean any_legal = FALSE;

  if (question->gpus > 0) {
    g_array_set_size (counts, 0);
    g_array_append_val (counts, question->gpus);
  }
  *pareto = (SpPareto){ .points = g_array_new (FALSE, FALSE, sizeof (SpParetoPoint)), .step_bytes = step_bytes };
  for (guint i = 0; i < counts->len; i++) {
    g_clear_error (&refused);
    any_legal |= add_front (pareto, estimator, question, g_array_index (counts, gint32, i), &refused);
  }
  if (any_legal)
    return g_steal_pointer (&pareto);
  g_propagate_error (error, g_steal_pointer (&refused));
  return NULL;
}

void
sp_pareto_free (SpPareto *pareto)
{
  if (pareto == NULL)
    return;
  g_array_unref (pareto->points);
  g_free (pareto);
}
