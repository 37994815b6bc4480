/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels draw, and what the card lets them: from the clocks of programs whose kernels ran by themselves. */
#include "calibrate/fit-curves-private.h"

#include <math.h>

#include "models/estimate/curves.h"

/* Of the limit: what no card at work goes below, which an H200 without work is near (70 W). assumed */
#define IDLE_LEAST 0.1
/* Of a clock: power is read to some 25 W of the 450 W that clocks change, half of which it is in a clock. */
#define SIGMA 0.03

/* In place of seconds: the clock that goes with the power that was measured. Where a card is at its limit power says
 * nothing of kernels, and the clock does. */
static double
clock_by (const double *parameters, guint point, gconstpointer data)
{
  const SpWorkPoint *p = &((const SpWorkPoint *) data)[point];
  const double value[SP_CURVE_SLOTS] = {
    [SP_POWER_IDLE] = parameters[0], [SP_POWER_FLOP] = parameters[1], [SP_POWER_BYTE] = parameters[2]
  };

  return MAX (sp_curve_power_clock (value, p->flops_per_s, p->bytes_per_s, p->power_w), 0.01);
}

/* The middle of what was drawn where the limit held clocks down; *ret_error: its standard error. */
static double
limit_of (const SpWorkPoint *work, guint n, double *ret_error)
{
  g_autofree double *watts = g_new (double, n);
  guint held = 0;

  for (guint i = 0; i < n; i++)
    if (sp_work_is_held (&work[i]))
      watts[held++] = work[i].power_w;
  double limit = sp_median (watts, held);
  for (guint i = 0; i < held; i++)
    watts[i] = fabs (watts[i] - limit);
  *ret_error = 1.4826 * sp_median (watts, held) * 1.2533 / sqrt (held);
  return limit;
}

static void
set_quality (const SpWorkPoint *work, guint n, const SpFitted *fitted, SpCurve *curve)
{
  g_autofree double *errors = g_new (double, n);

  curve->from = INFINITY;
  for (guint i = 0; i < n; i++) {
    errors[i] = fabs (clock_by (fitted->value, i, work) / work[i].clock - 1);
    curve->from = MIN (curve->from, work[i].power_w);
    curve->to = MAX (curve->to, work[i].power_w);
  }
  curve->points = (gint32) n;
  curve->median = sp_median (errors, n);
  curve->scatter = 1.4826 * curve->median;
  curve->p90 = sp_quantile (errors, n, 0.9);
  curve->worst = errors[n - 1];
  curve->chi_square = fitted->chi_square;
}

gboolean
sp_fit_power (const SpPoints *points, SpCurve *curve)
{
  enum { IDLE, FLOP, BYTE, N };
  const SpWorkPoint *work = (const SpWorkPoint *) (gpointer) points->work->data;
  guint n = points->work->len;
  double error = 0, flops = 0, limit = limit_of (work, n, &error);
  g_autofree double *log_clock = g_new (double, n), *sigma = g_new (double, n);
  SpFitted fitted;

  for (guint i = 0; i < n; i++) {
    log_clock[i] = log (work[i].clock);
    sigma[i] = SIGMA;
    flops = MAX (flops, work[i].flops_per_s);
  }
  double flop = limit / flops; /* if it were all of it */
  SpFitProblem problem = { .n_points = n,
                           .n_parameters = N,
                           .log_seconds = log_clock,
                           .sigma = sigma,
                           .start = { limit / 8, flop, flop * 50 },
                           .lower = { IDLE_LEAST * limit, flop / 20, flop },
                           .upper = { limit * 0.7, flop * 10, flop * 1000 },
                           .seconds = clock_by,
                           .data = work };
  if (!sp_fit (&problem, &fitted, NULL, NULL))
    return FALSE;
  for (guint i = 0; i < N; i++) {
    sp_fit_set_value (curve, SP_POWER_IDLE + i, fitted.value[i], fitted.error[i], sp_fit_not_identified);
    for (guint j = 0; j < N; j++)
      curve->covariance[SP_POWER_IDLE + i][SP_POWER_IDLE + j] = fitted.covariance[i][j];
  }
  sp_fit_set_value (curve, SP_POWER_LIMIT, limit, error, "all alike");
  curve->covariance[SP_POWER_LIMIT][SP_POWER_LIMIT] = error * error;
  set_quality (work, n, &fitted, curve);
  return TRUE;
}
