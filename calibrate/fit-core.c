/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/fit-core.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit_nlinear.h>
#include <math.h>

#define CAUCHY 2.385
#define REWEIGHTS 40
#define STEPS 100
#define WORST_LEFT_OUT 3 /* starts without one of the points that lie worst ... */
#define SUSPICIOUS 3     /* ... of those that lie so many sigmas off */

typedef struct {
  const SpFitProblem *problem;
  guint free[SP_FIT_MAX_PARAMETERS], n_free; /* which parameters */
  double value[SP_FIT_MAX_PARAMETERS];       /* all of them */
  double *residuals, *weights;
} State;

/* --- parameters --------------------------------------------------------------------------------------------------- */

static double
to_free (const SpFitProblem *p, guint i, double value)
{
  double low = log (p->lower[i]), high = log (p->upper[i]);
  double at = CLAMP ((log (value) - low) / (high - low), 1e-6, 1 - 1e-6);

  return log (at / (1 - at));
}

static double
from_free (const SpFitProblem *p, guint i, double u)
{
  double low = log (p->lower[i]), high = log (p->upper[i]);

  return exp (low + (high - low) / (1 + exp (-u)));
}

/* d ln value / du. */
static double
slope (const SpFitProblem *p, guint i, double value)
{
  double low = log (p->lower[i]), high = log (p->upper[i]), at = (log (value) - low) / (high - low);

  return (high - low) * at * (1 - at);
}

static int
residuals_of (const gsl_vector *x, void *data, gsl_vector *f)
{
  State *s = data;
  const SpFitProblem *p = s->problem;
  double value[SP_FIT_MAX_PARAMETERS];

  for (guint i = 0; i < p->n_parameters; i++)
    value[i] = s->value[i];
  for (guint i = 0; i < s->n_free; i++)
    value[s->free[i]] = from_free (p, s->free[i], gsl_vector_get (x, i));
  for (guint i = 0; i < p->n_points; i++) {
    double r = log (p->seconds (value, i, p->data)) - p->log_seconds[i];
    if (!isfinite (r))
      return GSL_EDOM;
    gsl_vector_set (f, i, r);
  }
  return GSL_SUCCESS;
}

/* --- robustness --------------------------------------------------------------------------------------------------- */

static gint
compare (gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return (x > y) - (x < y);
}

/* 1.4826 x the median of |r / sigma|, larger by the degrees of freedom that the parameters took. */
static double
spread_in_sigmas (const State *s)
{
  const SpFitProblem *p = s->problem;
  g_autofree double *z = g_new (double, p->n_points);

  for (guint i = 0; i < p->n_points; i++)
    z[i] = fabs (s->residuals[i]) / p->sigma[i];
  qsort (z, p->n_points, sizeof *z, compare);
  double median = p->n_points % 2 ? z[p->n_points / 2] : (z[p->n_points / 2 - 1] + z[p->n_points / 2]) / 2;
  double dof = p->n_points > s->n_free ? p->n_points - s->n_free : 1;
  return 1.4826 * median * sqrt (p->n_points / dof);
}

static double
loss (const State *s)
{
  double sum = 0;

  for (guint i = 0; i < s->problem->n_points; i++) {
    double u = s->residuals[i] / (CAUCHY * s->problem->sigma[i]);
    sum += CAUCHY * CAUCHY * log1p (u * u);
  }
  return sum;
}

/* One weighted fit from where the state is. */
static gboolean
solve (State *s, gsl_multifit_nlinear_workspace *work, const gsl_vector *squares)
{
  const SpFitProblem *p = s->problem;
  gsl_vector *x = gsl_vector_alloc (s->n_free);
  int info;

  for (guint i = 0; i < s->n_free; i++)
    gsl_vector_set (x, i, to_free (p, s->free[i], s->value[s->free[i]]));
  gsl_multifit_nlinear_fdf fdf = { .f = residuals_of, .n = p->n_points, .p = s->n_free, .params = s };
  int status = gsl_multifit_nlinear_winit (x, squares, &fdf, work);
  if (status == GSL_SUCCESS)
    status = gsl_multifit_nlinear_driver (STEPS, 1e-9, 1e-9, 1e-9, NULL, NULL, &info, work);
  gsl_vector_free (x);
  /* No progress beyond rounding is an end like others. */
  if (status != GSL_SUCCESS && status != GSL_EMAXITER && status != GSL_ENOPROG)
    return FALSE;
  const gsl_vector *at = gsl_multifit_nlinear_position (work);
  for (guint i = 0; i < s->n_free; i++)
    s->value[s->free[i]] = from_free (p, s->free[i], gsl_vector_get (at, i));
  gsl_vector *f = gsl_vector_alloc (p->n_points);
  gboolean finite = residuals_of (at, s, f) == GSL_SUCCESS;
  for (guint i = 0; i < p->n_points; i++)
    s->residuals[i] = gsl_vector_get (f, i);
  gsl_vector_free (f);
  return finite;
}

/* Weights and parameters in turn until the weights stay. `without`: a point that the first fit does not see, or -1. */
static gboolean
reweight (State *s, gsl_multifit_nlinear_workspace *work, int without)
{
  const SpFitProblem *p = s->problem;
  gsl_vector *squares = gsl_vector_alloc (p->n_points);
  gboolean found = TRUE;

  for (guint i = 0; i < p->n_points; i++)
    s->weights[i] = (int) i == without ? 1e-9 : 1;
  for (guint round = 0; found && round < REWEIGHTS; round++) {
    double change = 0;
    for (guint i = 0; i < p->n_points; i++)
      gsl_vector_set (squares, i, s->weights[i] / (p->sigma[i] * p->sigma[i]));
    found = solve (s, work, squares);
    double scale = CAUCHY * MAX (1, spread_in_sigmas (s));
    for (guint i = 0; found && i < p->n_points; i++) {
      double u = s->residuals[i] / (p->sigma[i] * scale), weight = 1 / (1 + u * u);
      change = MAX (change, fabs (weight - s->weights[i]));
      s->weights[i] = weight;
    }
    if (change < 1e-4)
      break;
  }
  gsl_vector_free (squares);
  return found;
}

/* The worst of the points not yet tried that noise alone would not put there; -1: none. */
static int
worst_point (const State *s, const gboolean *tried)
{
  int worst = -1;
  double most = SUSPICIOUS;

  for (guint i = 0; i < s->problem->n_points; i++) {
    double z = fabs (s->residuals[i]) / s->problem->sigma[i];
    if (!tried[i] && z > most) {
      most = z;
      worst = (int) i;
    }
  }
  return worst;
}

/* The state is left at the fit of least loss. */
static gboolean
fit_robustly (State *s, gsl_multifit_nlinear_workspace *work)
{
  const SpFitProblem *p = s->problem;
  State best = *s;
  g_autofree double *residuals = g_new (double, p->n_points);
  g_autofree double *weights = g_new (double, p->n_points);
  g_autofree gboolean *tried = g_new0 (gboolean, p->n_points);
  double least = INFINITY;
  int without = -1;

  for (guint i = 0; i <= WORST_LEFT_OUT && (i == 0 || p->n_points > s->n_free + 1); i++) {
    State try = best;
    try.residuals = s->residuals;
    try.weights = s->weights;
    if (reweight (&try, work, without) && loss (&try) < least * (1 - 1e-9)) {
      least = loss (&try);
      best = try;
      best.residuals = residuals;
      best.weights = weights;
      memcpy (residuals, s->residuals, p->n_points * sizeof *residuals);
      memcpy (weights, s->weights, p->n_points * sizeof *weights);
    }
    if (least == INFINITY)
      return FALSE;
    if ((without = worst_point (&best, tried)) < 0)
      break;
    tried[without] = TRUE;
  }
  memcpy (s->value, best.value, sizeof s->value);
  memcpy (s->residuals, residuals, p->n_points * sizeof *residuals);
  memcpy (s->weights, weights, p->n_points * sizeof *weights);
  return TRUE;
}

/* --- what came out ------------------------------------------------------------------------------------------------ */

static void
set_covariance (const State *s, gsl_multifit_nlinear_workspace *work, SpFitted *ret)
{
  const SpFitProblem *p = s->problem;
  gsl_matrix *covariance = gsl_matrix_alloc (s->n_free, s->n_free);
  gsl_vector *squares = gsl_vector_alloc (p->n_points);
  double influence = 0, slopes = 0, weight = 0, dof = (double) p->n_points - s->n_free;
  State at = *s;

  for (guint i = 0; i < p->n_points; i++) {
    double z = s->residuals[i] / p->sigma[i];
    gsl_vector_set (squares, i, s->weights[i] / (p->sigma[i] * p->sigma[i]));
    influence += s->weights[i] * s->weights[i] * z * z; /* psi squared, and its slope at this residual */
    slopes += s->weights[i] * (2 * s->weights[i] - 1);
    weight += s->weights[i];
  }
  slopes = MAX (slopes / p->n_points, 0.2);
  ret->chi_square = dof > 0 ? influence / dof / (slopes * slopes) : 0;
  double variance = ret->chi_square * weight / p->n_points;
  solve (&at, work, squares); /* the Jacobian at the last weights */
  gsl_multifit_nlinear_covar (gsl_multifit_nlinear_jac (work), 0, covariance);
  for (guint i = 0; i < s->n_free; i++)
    for (guint j = 0; j < s->n_free; j++) {
      guint a = s->free[i], b = s->free[j];
      double scale = ret->value[a] * slope (p, a, ret->value[a]) * ret->value[b] * slope (p, b, ret->value[b]);
      double c = gsl_matrix_get (covariance, i, j) * scale * variance;
      ret->covariance[a][b] = isfinite (c) ? c : 0;
    }
  for (guint i = 0; i < p->n_parameters; i++)
    ret->error[i] = sqrt (MAX (0, ret->covariance[i][i]));
  gsl_vector_free (squares);
  gsl_matrix_free (covariance);
}

/* How little the points say of a parameter: 1 and above is nothing. */
static double
ignorance (const State *s, const SpFitted *fitted, guint a)
{
  double width = log (s->problem->upper[a] / s->problem->lower[a]);
  double at = log (s->value[a] / s->problem->lower[a]) / width;

  if (at < 1e-3 || at > 1 - 1e-3)
    return INFINITY;
  return fitted->error[a] > 0 ? fitted->error[a] / s->value[a] : G_MAXDOUBLE;
}

/* Fixes the one that the points say least of, if they say nothing: the others may be known once it is. */
static gboolean
fix_unknown (State *s, SpFitted *ret)
{
  const SpFitProblem *p = s->problem;
  guint worst = 0;

  for (guint i = 1; i < s->n_free; i++)
    if (ignorance (s, ret, s->free[i]) > ignorance (s, ret, s->free[worst]))
      worst = i;
  guint a = s->free[worst];
  double how = ignorance (s, ret, a);
  if (how <= 1)
    return FALSE;
  if (how == INFINITY)
    s->value[a] = s->value[a] / p->lower[a] < p->upper[a] / s->value[a] ? p->lower[a] : p->upper[a];
  if (how == G_MAXDOUBLE && p->assumed[a] > 0)
    s->value[a] = p->assumed[a];
  ret->fixed[a] = TRUE;
  s->n_free--;
  for (guint i = worst; i < s->n_free; i++)
    s->free[i] = s->free[i + 1];
  return TRUE;
}

gboolean
sp_fit (const SpFitProblem *problem, SpFitted *ret, double *residuals, double *weights)
{
  g_return_val_if_fail (problem->n_parameters >= 1 && problem->n_parameters <= SP_FIT_MAX_PARAMETERS, FALSE);
  g_autofree double *own_residuals = g_new0 (double, problem->n_points + 1);
  g_autofree double *own_weights = g_new0 (double, problem->n_points + 1);
  State s = { .problem = problem,
              .n_free = problem->n_parameters,
              .residuals = residuals != NULL ? residuals : own_residuals,
              .weights = weights != NULL ? weights : own_weights };
  gsl_multifit_nlinear_parameters options = gsl_multifit_nlinear_default_parameters ();
  gboolean found = problem->n_points >= problem->n_parameters;

  *ret = (SpFitted){ 0 };
  for (guint i = 0; i < problem->n_parameters; i++) {
    s.free[i] = i;
    s.value[i] = problem->start[i];
  }
  gsl_error_handler_t *handler = gsl_set_error_handler_off ();
  for (gboolean fixed = TRUE; found && fixed;) {
    gsl_multifit_nlinear_workspace *work =
        gsl_multifit_nlinear_alloc (gsl_multifit_nlinear_trust, &options, problem->n_points, s.n_free);
    found = fit_robustly (&s, work);
    if (found) {
      memcpy (ret->value, s.value, sizeof ret->value);
      memset (ret->covariance, 0, sizeof ret->covariance);
      set_covariance (&s, work, ret);
      ret->loss = loss (&s);
      ret->spread = spread_in_sigmas (&s);
      fixed = fix_unknown (&s, ret);
      found = s.n_free > 0;
    }
    gsl_multifit_nlinear_free (work);
  }
  gsl_set_error_handler (handler);
  return found;
}
