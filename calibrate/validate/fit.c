/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of profiles, fitted to the runs that sets give for it. */
#include <math.h>
#include <string.h>

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>

#include "calibrate/fit-core.h"
#include "calibrate/fit.h"
#include "calibrate/validate/private.h"
#include "models/writer.h"

#define SIGMA 0.03 /* all alike, as of timed steps: what the model leaves out is more than what repeats differ by */

/* A run that is fitted to, with its own copies of what has constants. */
typedef struct {
  SpScenario *scenario;
  SpFramework framework;
  SpDevice device;
  SpCluster cluster;
  SpQuantity *quantities[SP_FIT_MAX_PARAMETERS]; /* of the copies; NULL: a constant of another profile */
  const SpValidation *set;
  /* what was made last */
  double at[SP_FIT_MAX_PARAMETERS];
  SpEstimate estimate;
  gboolean is_made;
} FittedRun;

typedef struct {
  FittedRun *run;
  SpObserved observed;
  double measured;
} Point;

typedef struct {
  GPtrArray *runs; /* FittedRun */
  GArray *points;  /* Point */
  GArray *constants; /* const SpConstant * */
  SpProgram *program;
} Problem;

static void
run_free (gpointer data)
{
  FittedRun *run = data;

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
predict (Problem *p, FittedRun *run, const double *values)
{
  SpScenario *s = run->scenario;
  SpEstimator estimator;
  gboolean same = run->is_made;

  for (guint i = 0; i < p->constants->len; i++)
    if (run->quantities[i] != NULL) {
      same = same && run->at[i] == values[i];
      run->at[i] = run->quantities[i]->value = values[i];
    }
  if (same)
    return;
  sp_estimator_init (&estimator, s->arch, &run->cluster, &run->framework, run->set->convention);
  sp_estimate_layout (&estimator, p->program, &s->layout, &s->run, &run->estimate);
  sp_estimate_refine (&estimator, p->program, &run->estimate);
  run->is_made = TRUE;
}

/* Times, and bytes as if they were: the fit takes logarithms of either. */
static double
value_at (const double *values, guint point, gconstpointer data)
{
  Problem *p = (Problem *) data;
  const Point *at = &g_array_index (p->points, Point, point);
  SpScenario shown = *at->run->scenario;

  predict (p, at->run, values);
  shown.framework = &at->run->framework;
  shown.cluster = &at->run->cluster;
  return sp_observed_value (at->observed, &shown, p->program, &at->run->estimate);
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
  const char *name = constant->of == SP_CONSTANT_FRAMEWORK ? run->framework.name
                     : constant->of == SP_CONSTANT_DEVICE  ? run->device.name
                                                           : run->cluster.name;
  const char *path = constant->of == SP_CONSTANT_FRAMEWORK ? run->scenario->framework_path
                     : constant->of == SP_CONSTANT_CLUSTER ? run->scenario->cluster_path
                                                           : NULL;
  g_autofree char *base = path != NULL ? g_path_get_basename (path) : g_strdup (name);

  if (g_str_has_suffix (base, ".ini"))
    base[strlen (base) - strlen (".ini")] = '\0';
  if (constant->profile != NULL && !g_str_equal (constant->profile, name) && !g_str_equal (constant->profile, base))
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

  run->scenario = s;
  run->set = set;
  run->framework = *s->framework;
  run->device = *s->cluster->device;
  run->cluster = *s->cluster;
  run->cluster.device = &run->device;
  for (guint i = 0; i < p->constants->len; i++) {
    const SpConstant *constant = g_array_index (p->constants, const SpConstant *, i);
    run->quantities[i] = find_quantity (run, constant);
    gboolean is_of_paths = constant->of == SP_CONSTANT_CLUSTER || g_str_equal (constant->key, "link-rate") ||
                           g_str_equal (constant->key, "pcie-rate");
    if (run->quantities[i] != NULL && is_of_paths)
      run->cluster.memo = NULL;
  }
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
    const SpRunGroup *group = set->groups->pdata[run->group];
    g_autoptr (GError) problem = NULL;
    if (!run->is_fitted || sp_run_is_aside (run))
      continue;
    SpScenario *s = sp_run_load (set, run, &problem);
    if (s == NULL && group->takes_refused)
      continue;
    if (s == NULL) {
      g_propagate_error (error, g_steal_pointer (&problem));
      return FALSE;
    }
    FittedRun *fitted = fitted_run_new (p, set, s);
    g_ptr_array_add (p->runs, fitted);
    for (guint i = 0; i < SP_N_OBSERVED; i++)
      if (is_fitted (set, run, (SpObserved) i)) {
        Point point = { fitted, (SpObserved) i, run->measured[i] };
        g_array_append_val (p->points, point);
      }
  }
  return TRUE;
}

/* The value that the runs have now: of the first that has it. */
static double
start_of (const Problem *p, guint constant)
{
  for (guint r = 0; r < p->runs->len; r++) {
    const FittedRun *run = p->runs->pdata[r];
    if (run->quantities[constant] != NULL)
      return run->quantities[constant]->value;
  }
  return NAN;
}

static double
median_error (const Problem *p, const double *values)
{
  g_autofree double *errors = g_new (double, p->points->len);

  for (guint i = 0; i < p->points->len; i++)
    errors[i] = fabs (value_at (values, i, p) / g_array_index (p->points, Point, i).measured - 1);
  gsl_sort (errors, 1, p->points->len);
  return gsl_stats_median_from_sorted_data (errors, 1, p->points->len);
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

static gboolean
prepare (Problem *p, SpValidation *const *sets, guint n_sets, SpFitProblem *fit, GError **error)
{
  gather_constants (p, sets, n_sets);
  if (p->constants->len == 0)
    return fail (error, "%s: no [fit] in it: expected constants that may be fitted", sets[0]->path);
  if (p->constants->len > SP_FIT_MAX_PARAMETERS)
    return fail (error, "%s: %u constants to fit: expected at most %d at once", sets[0]->path, p->constants->len,
                 SP_FIT_MAX_PARAMETERS);
  for (guint s = 0; s < n_sets; s++)
    if (!gather_runs (p, sets[s], error))
      return FALSE;
  if (p->points->len < p->constants->len)
    return fail (error, "%s: %u figures of runs that are fitted to, for %u constants: expected more (split)",
                 sets[0]->path, p->points->len, p->constants->len);
  fit->n_points = p->points->len;
  fit->n_parameters = p->constants->len;
  for (guint i = 0; i < p->constants->len; i++) {
    const SpConstant *constant = g_array_index (p->constants, const SpConstant *, i);
    double start = start_of (p, i);
    if (isnan (start))
      return fail (error, "[fit] %s%s%s: no fitted run has such a profile",
                   constant->profile != NULL ? constant->profile : "", constant->profile != NULL ? "." : "",
                   constant->key);
    fit->lower[i] = constant->low;
    fit->upper[i] = constant->high;
    /* At a bound the fit's parameter has no slope. */
    double margin = pow (constant->high / constant->low, 0.05);
    fit->start[i] = CLAMP (start, constant->low * margin, constant->high / margin);
    fit->assumed[i] = CLAMP (start, constant->low, constant->high);
  }
  return TRUE;
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
  double start[SP_FIT_MAX_PARAMETERS];

  if (!prepare (&p, sets, n_sets, &problem, error))
    return NULL;
  g_autofree double *logs = g_new (double, p.points->len), *sigma = g_new (double, p.points->len);
  for (guint i = 0; i < p.points->len; i++) {
    logs[i] = log (g_array_index (p.points, Point, i).measured);
    sigma[i] = SIGMA;
  }
  problem.log_seconds = logs;
  problem.sigma = sigma;
  for (guint i = 0; i < p.constants->len; i++)
    start[i] = start_of (&p, i);
  double before = median_error (&p, start);
  if (!sp_fit (&problem, &fitted, NULL, NULL)) {
    fail (error, "%s: %u figures do not say what the constants are", sets[0]->path, p.points->len);
    return NULL;
  }
  SpValidationFit *fit = g_new0 (SpValidationFit, 1);
  fit->constants = g_array_new (FALSE, FALSE, sizeof (SpFittedConstant));
  fit->n_runs = p.runs->len;
  fit->n_points = p.points->len;
  fit->before = before;
  fit->after = median_error (&p, fitted.value);
  for (guint i = 0; i < p.constants->len; i++) {
    SpFittedConstant constant = { g_array_index (p.constants, const SpConstant *, i), start[i], fitted.value[i],
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
