/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A shipped scenario whose framework and cluster a test changes, estimated and simulated. */

#include "models/inputs/scenario.h"
#include "models/simulate/simulate.h"
#include "tests/shipped.h"

typedef struct {
  SpScenario *scenario;
  SpProgram *program;
  SpFramework framework; /* a copy to change; strings are the scenario's */
  SpCluster cluster;     /* likewise */
  SpEstimator estimator;
} Case;

static inline void
case_init (Case *c, const char *name, const char *const *sets)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = g_build_filename (sp_data_dir (), name, NULL);

  c->scenario = sp_scenario_load (path, sets, &error);
  g_assert_no_error (error);
  c->framework = *c->scenario->framework;
  c->cluster = *c->scenario->cluster;
  c->program = sp_program_new ();
}

static inline void
case_clear (Case *c)
{
  sp_program_free (c->program);
  sp_scenario_free (c->scenario);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Case, case_clear)

static inline SpEstimate
estimate (Case *c)
{
  SpEstimate e;

  sp_estimator_init (&c->estimator, c->scenario->arch, &c->cluster, &c->framework, SP_MFU_SEQPAR);
  sp_estimate_layout (&c->estimator, c->program, &c->scenario->layout, &c->scenario->run, &e);
  return e;
}

static inline double
simulated_s (Case *c)
{
  const SpVariations usual = SP_VARIATIONS_DEFAULT;
  const SpSimulateOptions options = { .samples = 1 };
  g_autoptr (GError) error = NULL;
  g_auto (SpSimulated) simulated = { 0 };

  g_assert_true (sp_simulate (&c->estimator, c->program, &c->scenario->run, &usual, &options, &simulated, &error));
  g_assert_no_error (error);
  return simulated.result.step_time_s;
}
