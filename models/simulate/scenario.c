/* SPDX-License-Identifier: Apache-2.0 */
#include "models/simulate/simulate.h"

gboolean
sp_scenario_check_run (SpScenario *s, gboolean simulates, GError **error)
{
  gint32 gpus = s->cluster->nodes * s->cluster->gpus_per_node;

  if (!sp_layout_check (&s->layout, s->arch, s->framework, &s->run, gpus, error)) {
    g_prefix_error (error, "%s: [layout] ", s->path);
    return FALSE;
  }
  return sp_simulate_check_variations (s->cluster, gpus, &s->variations, error) &&
         sp_scenario_check_variations (s, simulates, error);
}

gboolean
sp_scenario_price (const SpScenario *s, SpEstimator *estimator, SpProgram *program, gboolean simulates,
                   SpEstimate *ret, GError **error)
{
  g_auto (SpSimulated) simulated = { 0 };
  const SpSimulateOptions options = { .samples = 1 };

  sp_estimate_layout (estimator, program, &s->layout, &s->run, ret);
  sp_estimate_refine (estimator, program, ret);
  if (!simulates)
    return TRUE;
  if (!sp_simulate (estimator, program, &s->run, &s->variations, &options, &simulated, error))
    return FALSE;
  *ret = simulated.result;
  return TRUE;
}
