/* SPDX-License-Identifier: Apache-2.0 */
/* What sets come to. */
#include <math.h>

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>

#include "calibrate/validate/private.h"

#define APART 0.03 /* speeds that differ by less are in no order: what repeats of a run differ by */

typedef struct {
  const SpValidation *v;
  gboolean fitted;
  SpScores *into;
} Scoring;

static gboolean
is_in (const Scoring *s, const SpMeasuredRun *run)
{
  return run->is_fitted == s->fitted && !sp_run_is_aside (run);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

/* Mean, median, 90th percentile and worst, which are neighbours among the scores. */
static void
summarise (GArray *errors, double *ret)
{
  double *data = (double *) (void *) errors->data;

  if (errors->len == 0)
    return;
  gsl_sort (data, 1, errors->len);
  ret[0] = gsl_stats_mean (data, 1, errors->len);
  ret[1] = gsl_stats_median_from_sorted_data (data, 1, errors->len);
  ret[2] = gsl_stats_quantile_from_sorted_data (data, 1, errors->len, 0.9);
  ret[3] = data[errors->len - 1];
}

static void
score_errors (const Scoring *s)
{
  g_autoptr (GArray) times = g_array_new (FALSE, FALSE, sizeof (double));
  g_autoptr (GArray) speeds = g_array_new (FALSE, FALSE, sizeof (double));
  g_autoptr (GArray) memories = g_array_new (FALSE, FALSE, sizeof (double));

  for (guint r = 0; r < s->v->runs->len; r++) {
    const SpMeasuredRun *run = s->v->runs->pdata[r];
    for (guint i = 0; is_in (s, run) && i < SP_N_OBSERVED; i++) {
      SpAspect aspect = sp_observed_rows[i].aspect;
      if (aspect == SP_ASPECT_LONGEST || !sp_run_counts (s->v, run, (SpObserved) i))
        continue;
      double error = sp_run_error (run, (SpObserved) i);
      g_array_append_val (aspect == SP_ASPECT_TIME ? times : memories, error);
      double speed = fabs (run->predicted[i] / run->measured[i] - 1);
      if (sp_observed_rows[i].is_speed)
        g_array_append_val (speeds, speed);
    }
  }
  s->into->n_times = times->len;
  s->into->n_memories = memories->len;
  summarise (times, &s->into->value[SP_SCORE_TIME_MEAN]);
  summarise (speeds, &s->into->value[SP_SCORE_SPEED_MEAN]);
  summarise (memories, &s->into->value[SP_SCORE_MEMORY_MEAN]);
}

/* --- fits --------------------------------------------------------------------------------------------------------- */

static void
score_outcomes (const Scoring *s)
{
  guint n[2] = { 0 }, said_to_fit[2] = { 0 }; /* of what ran out of memory, and of what ran */

  for (guint r = 0; r < s->v->runs->len; r++) {
    const SpMeasuredRun *run = s->v->runs->pdata[r];
    if (!is_in (s, run) || run->outcome < 0 || run->aside[SP_ASPECT_OUTCOME] != NULL || run->refused != NULL)
      continue;
    n[run->outcome]++;
    said_to_fit[run->outcome] += run->fits;
  }
  s->into->n_outcomes = n[0] + n[1];
  if (n[0] > 0)
    s->into->value[SP_SCORE_FALSE_FIT] = said_to_fit[0] / (double) n[0];
  if (n[0] > 0 && n[1] > 0)
    s->into->value[SP_SCORE_ACCURACY] = (said_to_fit[1] / (double) n[1] + 1 - said_to_fit[0] / (double) n[0]) / 2;
}

/* --- layouts of a cell -------------------------------------------------------------------------------------------- */

/* Tokens a second, from whatever was measured; NAN: no time was. */
static double
measured_speed (const SpValidation *v, const SpMeasuredRun *run)
{
  SpObserved at = sp_run_time_column (v, run);

  if (at == SP_N_OBSERVED || isnan (run->predicted[at]))
    return NAN;
  double ratio = run->predicted[at] / run->measured[at]; /* of times, or of speeds */
  return run->tokens / run->step_time_s * (sp_observed_rows[at].is_speed ? 1 / ratio : ratio);
}

static double
predicted_speed (const SpMeasuredRun *run)
{
  return run->tokens / run->step_time_s;
}

/* Runs of one scenario and the same keys, which are repeats: their median counts. */
typedef struct {
  const SpMeasuredRun *run; /* the first of them */
  GArray *speeds, *scored;  /* measured: of all that ran; of those that are not aside for their time */
  gboolean is_chosen_from;  /* said to fit, and it is known whether it does */
} Layout;

static void
layout_free (gpointer data)
{
  Layout *layout = data;

  g_array_unref (layout->speeds);
  g_array_unref (layout->scored);
  g_free (layout);
}

static double
median_of (GArray *values)
{
  double *data = (double *) (void *) values->data;

  if (values->len == 0)
    return NAN;
  gsl_sort (data, 1, values->len);
  return gsl_stats_median_from_sorted_data (data, 1, values->len);
}

static void
add_to_cell (const Scoring *s, GPtrArray *cell, const SpMeasuredRun *run)
{
  double speed = measured_speed (s->v, run);
  Layout *layout = NULL;

  for (guint i = 0; i < cell->len && layout == NULL; i++) {
    Layout *other = cell->pdata[i];
    if (g_str_equal (other->run->scenario, run->scenario) &&
        g_strv_equal ((const char *const *) other->run->sets, (const char *const *) run->sets))
      layout = other;
  }
  if (layout == NULL) {
    layout = g_new0 (Layout, 1);
    *layout = (Layout){ run, g_array_new (FALSE, FALSE, sizeof (double)), g_array_new (FALSE, FALSE, sizeof (double)),
                        FALSE };
    g_ptr_array_add (cell, layout);
  }
  layout->is_chosen_from |= run->refused == NULL && run->fits && (!isnan (speed) || run->outcome == 0);
  if (isnan (speed))
    return;
  g_array_append_val (layout->speeds, speed);
  if (run->aside[SP_ASPECT_TIME] == NULL)
    g_array_append_val (layout->scored, speed);
}

static void
score_pairs (const Scoring *s, const GPtrArray *cell, gint64 *in_order)
{
  for (guint i = 0; i < cell->len; i++)
    for (guint j = i + 1; j < cell->len; j++) {
      const Layout *a = cell->pdata[i], *b = cell->pdata[j];
      double x = median_of (a->scored), y = median_of (b->scored);
      if (isnan (x) || isnan (y) || MAX (x, y) <= (1 + APART) * MIN (x, y))
        continue;
      double difference = predicted_speed (a->run) - predicted_speed (b->run);
      s->into->n_pairs++;
      *in_order += difference == 0 ? 0 : (difference > 0) == (x > y) ? 1 : -1;
    }
}

/* The best that was measured of a choice: of all layouts of the cell that agree in its columns. */
static double
choice_speed (const GPtrArray *cell, const Layout *chosen)
{
  double best = median_of (chosen->speeds);

  for (guint i = 0; chosen->run->choice != NULL && i < cell->len; i++) {
    const Layout *layout = cell->pdata[i];
    double speed = median_of (layout->speeds);
    if (g_strcmp0 (layout->run->choice, chosen->run->choice) == 0 && !(speed <= best))
      best = isnan (speed) ? best : speed;
  }
  return best;
}

/* Of the layout that is ranked first among those that are said to fit. One that is aside for its time was measured too. */
static gboolean
regret_of (const GPtrArray *cell, double *ret)
{
  const Layout *chosen = NULL;
  double best = 0;
  guint n = 0;

  for (guint i = 0; i < cell->len; i++) {
    const Layout *layout = cell->pdata[i];
    double speed = median_of (layout->speeds);
    n += !isnan (speed);
    best = !isnan (speed) ? MAX (best, speed) : best;
    if (layout->is_chosen_from && (chosen == NULL || predicted_speed (layout->run) > predicted_speed (chosen->run)))
      chosen = layout;
  }
  if (n < 2)
    return FALSE;
  double speed = chosen != NULL ? choice_speed (cell, chosen) : NAN;
  *ret = isnan (speed) ? INFINITY : best / speed - 1;
  return TRUE;
}

/* Of layouts (Layout), in the order of the runs. */
static GPtrArray *
cells_of (const Scoring *s)
{
  g_autoptr (GHashTable) cells = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, NULL);
  GPtrArray *in_turn = g_ptr_array_new_with_free_func ((GDestroyNotify) g_ptr_array_unref);

  for (guint r = 0; r < s->v->runs->len; r++) {
    SpMeasuredRun *run = s->v->runs->pdata[r];
    if (!is_in (s, run) || run->cell == NULL)
      continue;
    GPtrArray *cell = g_hash_table_lookup (cells, run->cell);
    if (cell == NULL) {
      cell = g_ptr_array_new_with_free_func (layout_free);
      g_ptr_array_add (in_turn, cell);
      g_hash_table_insert (cells, run->cell, cell);
    }
    add_to_cell (s, cell, run);
  }
  return in_turn;
}

static void
score_cells (const Scoring *s)
{
  g_autoptr (GPtrArray) cells = cells_of (s);
  g_autoptr (GArray) regrets = g_array_new (FALSE, FALSE, sizeof (double));
  gint64 in_order = 0;
  guint best = 0;

  for (guint c = 0; c < cells->len; c++) {
    double regret;
    score_pairs (s, cells->pdata[c], &in_order);
    if (!regret_of (cells->pdata[c], &regret))
      continue;
    g_array_append_val (regrets, regret);
    best += regret == 0;
  }
  s->into->n_cells = regrets->len;
  if (s->into->n_pairs > 0)
    s->into->value[SP_SCORE_KENDALL] = (double) in_order / s->into->n_pairs;
  if (regrets->len == 0)
    return;
  s->into->value[SP_SCORE_REGRET_MEDIAN] = median_of (regrets);
  s->into->value[SP_SCORE_REGRET_WORST] = g_array_index (regrets, double, regrets->len - 1);
  s->into->value[SP_SCORE_BEST] = best / (double) regrets->len;
}

/* --- longest ------------------------------------------------------------------------------------------------------ */

static void
score_longest (const Scoring *s)
{
  g_autoptr (GArray) errors = g_array_new (FALSE, FALSE, sizeof (double));
  double summary[4], doublings = 0;

  for (guint r = 0; r < s->v->runs->len; r++) {
    const SpMeasuredRun *run = s->v->runs->pdata[r];
    if (!is_in (s, run) || !sp_run_counts (s->v, run, SP_OBSERVED_LONGEST))
      continue;
    double error = sp_run_error (run, SP_OBSERVED_LONGEST);
    g_array_append_val (errors, error);
    doublings = MAX (doublings, fabs (log2 (run->predicted[SP_OBSERVED_LONGEST] / run->measured[SP_OBSERVED_LONGEST])));
  }
  if (errors->len == 0)
    return;
  summarise (errors, summary);
  s->into->value[SP_SCORE_LONGEST_DOUBLINGS] = doublings;
  s->into->value[SP_SCORE_LONGEST_MEDIAN] = summary[1];
}

gboolean
sp_validation_score (const SpValidation *v, gboolean fitted, SpScores *ret, GError **error G_GNUC_UNUSED)
{
  const Scoring s = { v, fitted, ret };

  *ret = (SpScores){ 0 };
  for (guint i = 0; i < SP_N_SCORES; i++)
    ret->value[i] = NAN;
  for (guint r = 0; r < v->runs->len; r++)
    ret->n_runs += is_in (&s, v->runs->pdata[r]);
  score_errors (&s);
  score_outcomes (&s);
  score_cells (&s);
  score_longest (&s);
  return TRUE;
}
