/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/steps.h"

#include "calibrate/fit-core.h"
#include "calibrate/fit.h"

#include <math.h>

#define SIGMA 0.03 /* all alike: what the model leaves out is more than what repeats differ by */

typedef struct {
  const SpStepsRow **rows;
} Data;

static double
seconds (const double *values, guint point, gconstpointer data)
{
  SpEstimate estimate;

  sp_steps_predict (((const Data *) data)->rows[point], values, &estimate);
  return estimate.step_time_s;
}

gboolean
sp_steps_fit (const SpSteps *steps, const char *without, SpStepsFit *ret, GError **error)
{
  g_autofree const SpStepsRow **rows = g_new (const SpStepsRow *, steps->rows->len);
  g_autofree double *log_seconds = g_new (double, steps->rows->len);
  g_autofree double *sigma = g_new (double, steps->rows->len);
  /* Bounds are far beyond what any framework has; the start is an eager one's order of magnitude. */
  SpFitProblem problem = {
    .n_parameters = SP_STEPS_N_PARAMETERS,
    .start = { 100e-6, 1e-3, 2, 1 },
    .lower = { 1e-6, 1e-6, 0.5, 0.5 },
    .upper = { 10e-3, 100e-3, 20, 4 },
    .log_seconds = log_seconds,
    .sigma = sigma,
    .seconds = seconds,
    .data = &(Data){ rows },
  };
  SpFitted fitted;

  for (guint i = 0; i < steps->rows->len; i++) {
    const SpStepsRow *row = steps->rows->pdata[i];
    if (row->is_oom || (without != NULL && g_str_equal (row->mode, without)))
      continue;
    rows[problem.n_points] = row;
    log_seconds[problem.n_points] = log (row->step_s);
    sigma[problem.n_points++] = SIGMA;
  }
  if (!sp_fit (&problem, &fitted, NULL, NULL)) {
    g_set_error (
        error, SP_MEASURED_ERROR, SP_MEASURED_ERROR_VALUE,
        "%s: %u steps%s%s do not say what the framework's four numbers are: expected more rows, some bound by the "
        "host and some not",
        steps->path, problem.n_points, without != NULL ? " without mode " : "", without != NULL ? without : "");
    return FALSE;
  }
  ret->n_rows = problem.n_points;
  for (guint i = 0; i < SP_STEPS_N_PARAMETERS; i++) {
    ret->value[i] = fitted.value[i];
    ret->error[i] = fitted.error[i];
    ret->fixed[i] = fitted.fixed[i];
  }
  return TRUE;
}
