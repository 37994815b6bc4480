/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of profiles, fitted to the runs that sets give for it. */
#include <math.h>
#include <string.h>

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>

#include "calibrate/fit-core.h"
#include "calibrate/fit.h"
#include "calibrate/validate/private.h"

#define SIGMA 0.03 /* all alike, as of timed steps: what the model leaves out is more than what repeats differ by */

/* A run that is fitted to, with its own copies of what has constants. */
typedef struct {
  const SpValidation *set;
  SpScenario *scenario;
  SpFramework framework;
  SpDevice device;
  SpCluster cluster;
  SpQuantity *quantities[SP_FIT_MAX_PARAMETERS]; /* of the copies; NULL: a constant of another profile */
  gboolean has_paths;            /* a constant of links is fitted, so that `cluster` has a memo of its own */
  gboolean asked[SP_N_OBSERVED]; /* columns that are points */
  /* The walk that refines a step takes longer than all the rest, and what it takes off hardly moves with constants: it
   * is the share of the step that it is with those of the files. */
  double refined;
  double at[SP_FIT_MAX_PARAMETERS], predicted[SP_N_OBSERVED]; /* with these */
} FittedRun;

typedef struct {
  FittedRun *run;
  SpObserved observed;
  double measured, before; /* as predicted with the files' constants */
} Point;

typedef struct {
  GPtrArray *runs;                   /* FittedRun */
  GArray *points;                    /* Point */
  GArray *constants;                 /* const SpConstant * */
  double now[SP_FIT_MAX_PARAMETERS]; /* as the files have them */
  SpProgram *program;
} Problem;

static void
run_free (gpointer data)
{
  FittedRun *run = data;

  if (run->has_paths)
    sp_cluster_memo_free (run->cluster.memo);
  sp_scenario_free (run->scenario);
  g_free (run);
}

static void
problem_clear (Problem *problem)
{
  g_ptr_array_unref (problem->runs);
  g_array_unref (problem->points);
  g_array_unref (problem->constants);
  sp_program_free (problem->program);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Problem, problem_clear)

/* --- predicting --------------------------------------------------------------------------------------------------- */

static void
predict (Problem *p, FittedRun *run)
{
  SpScenario shown = *run->scenario;
  SpEstimator estimator;
  SpEstimate estimate;

  shown.framework = &run->framework;
  shown.cluster = &run->cluster;
  sp_estimator_init (&estimator, shown.arch, shown.cluster, shown.framework, run->set->convention);
  sp_estimate_layout (&estimator, p->program, &shown.layout, &shown.run, &estimate);
  if (run->refined == 0) {
    double closed_s = estimate.step_time_s;
    SpEstimate refined = estimate;
    sp_estimate_refine (&estimator, p->program, &refined);
    run->refined = refined.step_time_s / closed_s;
  }
  for (guint i = 0; i < SP_N_OBSERVED; i++) {
    if (!run->asked[i])
      continue;
    run->predicted[i] = sp_observed_value ((SpObserved) i, &estimator, &shown, p->program, &estimate);
    if (sp_observed_rows[i].aspect == SP_ASPECT_TIME)
      run->predicted[i] *= sp_observed_rows[i].is_speed ? 1 / run->refined : run->refined;
  }
}

/* Times, and bytes as if they were: the fit takes logarithms of either. */
static double
value_at (const double *values, guint point, gconstpointer data)
{
  Problem *p = (Problem *) data;
  const Point *at = &g_array_index (p->points, Point, point);
  FittedRun *run = at->run;
  gboolean same = TRUE;

  for (guint i = 0; i < p->constants->len; i++)
    if (run->quantities[i] != NULL) {
      same = same && run->at[i] == values[i];
      run->at[i] = run->quantities[i]->value = values[i];
    }
  if (!same && run->has_paths) {
    sp_cluster_memo_free (run->cluster.memo);
    run->cluster.memo = sp_cluster_memo_new ();
  }
  if (!same)
    predict (p, run);
  return run->predicted[at->observed];
}

static double
median_error (const Problem *p, gboolean before)
{
  g_autofree double *errors = g_new (double, p->points->len);

  for (guint i = 0; i < p->points->len; i++) {
    const Point *point = &g_array_index (p->points, Point, i);
    double predicted = before ? point->before : point->run->predicted[point->observed];
    errors[i] = fabs (predicted / point->measured - 1);
  }
  gsl_sort (errors, 1, p->points->len);
  return gsl_stats_median_from_sorted_data (errors, 1, p->points->len);
}

/* --- the problem -------------------------------------------------------------------------------------------------- */

static gboolean
is_same (const SpConstant *a, const SpConstant *b)
{
  return a->of == b->of && g_strcmp0 (a->profile, b->profile) == 0 && g_str_equal (a->key, b->key);
}

/* Those of all sets, each once. */
static void
gather_constants (Problem *p, SpValidation *const *sets, guint n_sets)
{
  for (guint s = 0; s < n_sets; s++)
    for (guint i = 0; i < sets[s]->constants->len; i++) {
      const SpConstant *constant = &g_array_index (sets[s]->constants, SpConstant, i);
      gboolean known = FALSE;
      for (guint j = 0; j < p->constants->len; j++)
        known |= is_same (constant, g_array_index (p->constants, const SpConstant *, j));
      if (!known)
        g_array_append_val (p->constants, constant);
    }
}

static SpQuantity *
find_quantity (FittedRun *run, const SpConstant *constant)
{
  if (!sp_constant_is_of (constant, run->scenario))
    return NULL;
  return constant->of == SP_CONSTANT_FRAMEWORK ? sp_framework_quantity (&run->framework, constant->key, NULL)
         : constant->of == SP_CONSTANT_DEVICE  ? sp_device_quantity (&run->device, constant->key, NULL)
                                               : sp_cluster_quantity (&run->cluster, constant->key, NULL);
}

/* Copies are shallow: what they point to stays the scenario's. Rates of paths that a cluster remembers are of its own
 * constants. */
static FittedRun *
fitted_run_new (const Problem *p, const SpValidation *set, SpScenario *s)
{
  FittedRun *run = g_new0 (FittedRun, 1);

  run->set = set;
  run->scenario = s;
  run->framework = *s->framework;
  run->device = *s->cluster->device;
  run->cluster = *s->cluster;
  run->cluster.device = &run->device;
  for (guint i = 0; i < p->constants->len; i++) {
    const SpConstant *constant = g_array_index (p->constants, const SpConstant *, i);
    run->quantities[i] = find_quantity (run, constant);
    run->at[i] = run->quantities[i] != NULL ? run->quantities[i]->value : 0;
    run->has_paths |= run->quantities[i] != NULL &&
                      (constant->of == SP_CONSTANT_CLUSTER || g_str_has_suffix (constant->key, "-rate"));
  }
  if (run->has_paths)
    run->cluster.memo = sp_cluster_memo_new ();
  return run;
}

static gboolean
is_fitted (const SpValidation *set, const SpMeasuredRun *run, SpObserved observed)
{
  SpAspect aspect = sp_observed_rows[observed].aspect;

  if (aspect == SP_ASPECT_LONGEST || !set->scored[observed] || isnan (run->measured[observed]) ||
      run->aside[aspect] != NULL)
    return FALSE;
  return aspect != SP_ASPECT_TIME || sp_run_time_column (set, run) == observed;
}

static gboolean
gather_runs (Problem *p, SpValidation *set, GError **error)
{
  for (guint r = 0; r < set->runs->len; r++) {
    const SpMeasuredRun *run = set->runs->pdata[r];
    g_autoptr (GError) refusal = NULL;
    if (!run->is_fitted || sp_run_is_aside (run))
      continue;
    SpScenario *s = sp_run_load (set, run, &refusal, error);
    if (s == NULL && refusal == NULL)
      return FALSE;
    if (s == NULL)
      continue;
    FittedRun *fitted = fitted_run_new (p, set, s);
    g_ptr_array_add (p->runs, fitted);
    for (guint i = 0; i < SP_N_OBSERVED; i++)
      if (is_fitted (set, run, (SpObserved) i)) {
        Point point = { fitted, (SpObserved) i, run->measured[i], 0 };
        g_array_append_val (p->points, point);
        fitted->asked[i] = TRUE;
      }
    predict (p, fitted);
  }
  for (guint i = 0; i < p->points->len; i++) {
    Point *point = &g_array_index (p->points, Point, i);
    point->before = point->before > 0 ? point->before : point->run->predicted[point->observed];
  }
  return TRUE;
}

/* What the runs have now: of the first that has it and uses it. NAN: none has it. */
static double
start_of (const Problem *p, guint constant)
{
  double value = NAN;

  for (guint r = 0; r < p->runs->len && !(value > 0); r++) {
    const FittedRun *run = p->runs->pdata[r];
    if (run->quantities[constant] != NULL)
      value = run->at[constant];
  }
  return value;
}

static gboolean
fail (GError **error, const char *format, ...)
{
  va_list arguments;

  va_start (arguments, format);
  g_propagate_error (error, g_error_new_valist (SP_INPUT_ERROR, SP_INPUT_ERROR_VALUE, format, arguments));
  va_end (arguments);
  return FALSE;
}

/* Points that no constant moves would only say how far off the rest of the model is. */
static void
keep_moved (Problem *p, const SpFitProblem *fit)
{
  g_autofree gboolean *moved = g_new0 (gboolean, p->points->len);
  double values[SP_FIT_MAX_PARAMETERS];
  guint kept = 0;

  for (guint i = 0; i < p->points->len; i++) {
    memcpy (values, fit->start, sizeof values);
    double before = value_at (values, i, p);
    for (guint c = 0; c < fit->n_parameters && !moved[i]; c++) {
      values[c] = sqrt (fit->start[c] * fit->upper[c]);
      moved[i] = value_at (values, i, p) != before;
      values[c] = sqrt (fit->start[c] * fit->lower[c]);
      moved[i] = moved[i] || value_at (values, i, p) != before;
      values[c] = fit->start[c];
    }
  }
  for (guint i = 0; i < p->points->len; i++)
    if (moved[i])
      g_array_index (p->points, Point, kept++) = g_array_index (p->points, Point, i);
  g_array_set_size (p->points, kept);
}

static gboolean
set_bounds (Problem *p, SpFitProblem *fit, GError **error)
{
  for (guint i = 0; i < p->constants->len; i++) {
    const SpConstant *constant = g_array_index (p->constants, const SpConstant *, i);
    double start = p->now[i] = start_of (p, i);
    if (isnan (start))
      return fail (error, "[fit] %s%s%s: no fitted run has such a profile",
                   constant->profile != NULL ? constant->profile : "", constant->profile != NULL ? "." : "",
                   constant->key);
    fit->lower[i] = constant->low;
    fit->upper[i] = constant->high;
    /* At a bound the fit's parameter has no slope. */
    double margin = pow (constant->high / constant->low, 0.05);
    start = start > 0 ? start : MAX (1, constant->low); /* 0 stands for a factor of 1, or is no start */
    fit->start[i] = CLAMP (start, constant->low * margin, constant->high / margin);
    fit->assumed[i] = CLAMP (start, constant->low, constant->high);
  }
  return TRUE;
}

static gboolean
prepare (Problem *p, SpValidation *const *sets, guint n_sets, SpFitProblem *fit, GError **error)
{
  gather_constants (p, sets, n_sets);
  if (p->constants->len == 0)
    return fail (error, "%s: no [fit] in it: expected constants that may be fitted", sets[0]->path);
  if (p->constants->len > SP_FIT_MAX_PARAMETERS)
    return fail (error, "%s%s: %u constants to fit: expected at most %d at once%s", sets[0]->path,
                 n_sets > 1 ? " and the sets behind it" : "", p->constants->len, SP_FIT_MAX_PARAMETERS,
                 n_sets > 1 ? "; name one set" : "");
  for (guint s = 0; s < n_sets; s++)
    if (!gather_runs (p, sets[s], error))
      return FALSE;
  fit->n_parameters = p->constants->len;
  if (!set_bounds (p, fit, error))
    return FALSE;
  keep_moved (p, fit);
  fit->n_points = p->points->len;
  return p->points->len >= p->constants->len ||
         fail (error, "%s: %u figures of fitted runs depend on them, for %u constants: expected more (split)",
               sets[0]->path, p->points->len, p->constants->len);
}

/* --- the fit ------------------------------------------------------------------------------------------------------ */

SpValidationFit *
sp_validation_fit (SpValidation *const *sets, guint n_sets, GError **error)
{
  g_auto (Problem) p = { .runs = g_ptr_array_new_with_free_func (run_free),
                         .points = g_array_new (FALSE, FALSE, sizeof (Point)),
                         .constants = g_array_new (FALSE, FALSE, sizeof (const SpConstant *)),
                         .program = sp_program_new () };
  SpFitProblem problem = { .seconds = value_at, .data = &p };
  SpFitted fitted;

  if (!prepare (&p, sets, n_sets, &problem, error))
    return NULL;
  g_autofree double *logs = g_new (double, p.points->len), *sigma = g_new (double, p.points->len);
  for (guint i = 0; i < p.points->len; i++) {
    logs[i] = log (g_array_index (p.points, Point, i).measured);
    sigma[i] = SIGMA;
  }
  problem.log_seconds = logs;
  problem.sigma = sigma;
  gboolean found = sp_fit (&problem, &fitted, NULL, NULL), all_fixed = TRUE;
  for (guint i = 0; i < p.constants->len; i++)
    all_fixed = all_fixed && fitted.fixed[i];
  if (!found && !all_fixed) {
    fail (error, "%s: %u figures do not say what the constants are", sets[0]->path, p.points->len);
    return NULL;
  }
  SpValidationFit *fit = g_new0 (SpValidationFit, 1);
  fit->constants = g_array_new (FALSE, FALSE, sizeof (SpFittedConstant));
  fit->n_runs = p.runs->len;
  fit->n_points = p.points->len;
  fit->before = median_error (&p, TRUE);
  for (guint i = 0; i < p.points->len; i++)
    value_at (fitted.value, i, &p);
  fit->after = median_error (&p, FALSE);
  for (guint i = 0; i < p.constants->len; i++) {
    SpFittedConstant constant = { g_array_index (p.constants, const SpConstant *, i), p.now[i], fitted.value[i],
                                  fitted.error[i], fitted.fixed[i] };
    g_array_append_val (fit->constants, constant);
  }
  return fit;
}

void
sp_validation_fit_free (SpValidationFit *fit)
{
  if (fit == NULL)
    return;
  g_array_unref (fit->constants);
  g_free (fit);
}
