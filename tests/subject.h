/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A scenario beside all that its estimate rests on. */

#include "models/inputs/scenario.h"
#include "models/simulate/simulate.h"

typedef struct {
  SpScenario *scenario;
  SpProgram *program;
  SpEstimator estimator;
  SpEstimate estimate;
} Subject;

static inline void
subject_clear (Subject *s)
{
  sp_scenario_free (s->scenario);
  sp_program_free (s->program);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Subject, subject_clear)
