/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Training steps of a framework that somebody timed, and what seqpar says of them: rows of a CSV beside the scenario of
 * each, and the fit of what a framework profile has no better source for.
 *
 * The CSV has a line of column names after its comments, of which these count: mode, sequence, batch_per_dp_rank,
 * full_checkpoint (0, 1), status (ok, oom), step_min_ms, step_median_ms, step_max_ms, max_allocated_mib; and model,
 * which has to be the scenario's. The scenario of a row is FOLDER/mode.ini with the row's sequence, batch and recompute.
 *
 * Fitted are four numbers of the framework (models/inputs/hardware.h), the same in all modes: host-launch,
 * host-gather, elementwise-time, attention-time. Residuals are logarithms of the step's median time, all of one weight
 * (3 %: what the model leaves out is more than what repeats differ by), made robust (fit-core.h). Memory has nothing
 * to fit.
 *
 * A row is HOST-BOUND as measured if its repeats lie more than 5 % apart: kernels repeat within a few percent, a host
 * that cannot keep up does not. As predicted it is what the estimate says (models/estimate/estimate.h).
 *
 * Errors: SP_MEASURED_ERROR with FILE:LINE, or what loading a scenario says.
 */

#include "calibrate/measured.h"
#include "models/estimate/estimate.h"
#include "models/inputs/scenario.h"

G_BEGIN_DECLS

enum { SP_STEPS_LAUNCH, SP_STEPS_GATHER, SP_STEPS_ELEMENTWISE, SP_STEPS_ATTENTION, SP_STEPS_N_PARAMETERS };

/* As a framework's file has them, NULL-terminated. */
extern const char *const sp_steps_parameters[SP_STEPS_N_PARAMETERS + 1];

typedef struct {
  char *mode;
  SpScenario *scenario;
  SpProgram *program;
  gboolean is_oom;        /* then there are no times */
  double step_s, spread;  /* median; largest over smallest */
  double allocated_bytes; /* of live tensors, at most */
} SpStepsRow;

typedef struct {
  char *path;
  GPtrArray *rows; /* SpStepsRow */
} SpSteps;

/* `sets` are those of the scenarios, before the row's own; may be NULL. */
SpSteps *sp_steps_read (const char *path, const char *folder, const char *const *sets, GError **error);
void sp_steps_free (SpSteps *steps);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpSteps, sp_steps_free)

gboolean sp_steps_is_host_bound (const SpStepsRow *row);
/* With these numbers, or (NULL) the framework's own. */
void sp_steps_predict (const SpStepsRow *row, const double *values, SpEstimate *ret);
/* Of what is predicted: all but what the framework adds for context and allocator. */
double sp_steps_allocated_bytes (const SpEstimate *estimate);

typedef struct {
  double value[SP_STEPS_N_PARAMETERS], error[SP_STEPS_N_PARAMETERS];
  gboolean fixed[SP_STEPS_N_PARAMETERS]; /* not identified by the rows */
  guint n_rows;
} SpStepsFit;

/* To all rows but those of the mode `without` (NULL: to all). FALSE: no fit was found, or (SP_FIT_ERROR) built without
 * GSL. */
gboolean sp_steps_fit (const SpSteps *steps, const char *without, SpStepsFit *ret, GError **error);

G_END_DECLS
