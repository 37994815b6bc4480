/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/fit-groups.h"
#include "calibrate/fit.h"

#include <math.h>
#include <string.h>

/* --- hold-outs ---------------------------------------------------------------------------------------------------- */

const char *const sp_hold_out_names[] = { "interleaved", "top-decade", "families", NULL };

static void
held_clear (gpointer data)
{
  g_free (((SpHeldOut *) data)->curve);
}

static gboolean
is_held (const SpFitGroup *group, SpHoldOut which, guint i, const SpPoint *family)
{
  const SpPoint *p = group->points->pdata[i];
  guint n = group->points->len;

  if (which == SP_HOLD_OUT_INTERLEAVED)
    return i % 2 == 1 && i + 1 < n;
  if (which == SP_HOLD_OUT_TOP_DECADE)
    return sp_fit_size (group->kind, p) > sp_fit_size (group->kind, group->points->pdata[n - 1]) / 10;
  return p->n == family->n && p->k == family->k;
}

/* Errors on what is held out, appended; how many points were fitted, 0 if it could not be. */
static guint
hold_out (const SpFitGroup *group, SpHoldOut which, const SpPoint *family, const SpPoints *points,
          const SpFitGiven *given, GArray *errors)
{
  guint n = group->points->len;
  g_autofree gboolean *take = g_new (gboolean, n);
  g_autofree double *residuals = g_new0 (double, n);
  g_autofree double *weights = g_new0 (double, n);
  g_autofree char *missing = NULL;
  g_autoptr (GPtrArray) used = g_ptr_array_new ();
  g_autoptr (SpProfile) profile = sp_profile_new ("", NULL);
  SpCurve *curve = sp_profile_add (profile, group->kind, group->variant);

  for (guint i = 0; i < n; i++)
    take[i] = !is_held (group, which, i, family);
  if (!sp_fit_group (group, take, points, given, profile, curve, used, residuals, weights, &missing))
    return 0;
  for (guint i = 0; i < n; i++) {
    const SpPoint *p = group->points->pdata[i];
    double error = fabs (sp_fit_predict (curve, given, p, 0) / p->seconds - 1);
    if (!take[i])
      g_array_append_val (errors, error);
  }
  return used->len;
}

static void
add_held (GArray *held, char *curve, const char *kind, guint fitted, const GArray *errors)
{
  SpHeldOut row = { .curve = curve, .kind = kind, .held = errors->len, .fitted = fitted };
  g_autofree double *sorted = g_new (double, errors->len);

  memcpy (sorted, errors->data, errors->len * sizeof *sorted);
  row.median = sp_median (sorted, errors->len);
  row.p90 = sp_quantile (sorted, errors->len, 0.9);
  row.worst = sorted[errors->len - 1];
  g_array_append_val (held, row);
}

/* The first point of each (n, k). */
static gboolean
begins_family (const SpFitGroup *group, guint i)
{
  const SpPoint *p = group->points->pdata[i];

  for (guint j = 0; j < i; j++) {
    const SpPoint *q = group->points->pdata[j];
    if (q->n == p->n && q->k == p->k)
      return FALSE;
  }
  return TRUE;
}

static guint
class_of (SpCurveKind kind)
{
  return kind <= SP_CURVE_KERNEL ? 0 : kind == SP_CURVE_COPY ? 1 : 2;
}

GArray *
sp_fit_hold_out (const SpPoints *points, const SpFitGiven *given, SpHoldOut which)
{
  static const char *const classes[] = { "kernels", "copies", "transfers" };
  g_autoptr (GPtrArray) groups = sp_fit_groups_new (points);
  GArray *held = g_array_new (FALSE, FALSE, sizeof (SpHeldOut));
  guint done = 0;

  g_array_set_clear_func (held, held_clear);
  for (guint class = 0; class < G_N_ELEMENTS (classes); class ++) {
    g_autoptr (GArray) all = g_array_new (FALSE, FALSE, sizeof (double));
    guint all_fitted = 0;
    for (guint t = 0; t < groups->len; t++) {
      const SpFitGroup *group = groups->pdata[t];
      g_autoptr (GArray) errors = g_array_new (FALSE, FALSE, sizeof (double));
      guint fitted = 0;
      if (group->kind > SP_CURVE_BROADCAST || class_of (group->kind) != class ||
          (which == SP_HOLD_OUT_FAMILIES && group->kind != SP_CURVE_GEMM))
        continue;
      sp_fit_tell (given, done++, groups->len);
      if (which != SP_HOLD_OUT_FAMILIES)
        fitted = hold_out (group, which, NULL, points, given, errors);
      for (guint i = 0; which == SP_HOLD_OUT_FAMILIES && i < group->points->len; i++) {
        sp_fit_tell (given, i, group->points->len);
        guint without =
            begins_family (group, i) ? hold_out (group, which, group->points->pdata[i], points, given, errors) : 0;
        fitted = MAX (fitted, without);
      }
      if (fitted == 0 || errors->len == 0)
        continue;
      SpCurve name = { .kind = group->kind, .variant = group->variant, .ranks = group->ranks, .nodes = group->nodes };
      add_held (held, sp_curve_name (&name), classes[class], fitted, errors);
      g_array_append_vals (all, errors->data, errors->len);
      all_fitted += fitted;
    }
    if (all->len > 0)
      add_held (held, NULL, classes[class], all_fitted, all);
  }
  return held;
}

/* --- point by point ----------------------------------------------------------------------------------------------- */

static void
fitted_clear (gpointer data)
{
  g_free (((SpFittedPoint *) data)->curve);
}

/* Seconds of each point of a group by the curve through those that are taken (NULL: all); FALSE: there is none. */
static gboolean
predict_group (const SpFitGroup *group, const gboolean *take, const SpPoints *points, const SpFitGiven *given,
               double *ret)
{
  g_autofree double *residuals = g_new0 (double, group->points->len);
  g_autofree double *weights = g_new0 (double, group->points->len);
  g_autofree char *missing = NULL;
  g_autoptr (GPtrArray) used = g_ptr_array_new ();
  g_autoptr (SpProfile) profile = sp_profile_new ("", NULL);
  SpCurve *curve = sp_profile_add (profile, group->kind, group->variant);

  if (!sp_fit_group (group, take, points, given, profile, curve, used, residuals, weights, &missing))
    return FALSE;
  for (guint i = 0; i < group->points->len; i++)
    ret[i] = sp_fit_predict (curve, given, group->points->pdata[i], 0);
  return TRUE;
}

GArray *
sp_fit_each (const SpPoints *points, const SpFitGiven *given)
{
  g_autoptr (GPtrArray) groups = sp_fit_groups_new (points);
  GArray *all = g_array_new (FALSE, FALSE, sizeof (SpFittedPoint));

  g_array_set_clear_func (all, fitted_clear);
  for (guint t = 0; t < groups->len; t++) {
    const SpFitGroup *group = groups->pdata[t];
    guint n = group->points->len;
    g_autofree double *fitted = g_new0 (double, n), *held = g_new0 (double, n);
    g_autofree gboolean *take = g_new (gboolean, n);
    const SpCurve name = {
      .kind = group->kind, .variant = group->variant, .ranks = group->ranks, .nodes = group->nodes
    };
    for (guint i = 0; i < n; i++)
      take[i] = !is_held (group, SP_HOLD_OUT_INTERLEAVED, i, NULL);
    if (group->kind > SP_CURVE_BROADCAST || !predict_group (group, NULL, points, given, fitted))
      continue;
    gboolean holds = predict_group (group, take, points, given, held);
    for (guint i = 0; i < n; i++) {
      const SpPoint *p = group->points->pdata[i];
      const SpFittedPoint point = {
        sp_curve_name (&name),          group->kind, sp_fit_size (group->kind, p), p->seconds, fitted[i],
        holds && !take[i] ? held[i] : 0
      };
      g_array_append_val (all, point);
    }
  }
  return all;
}
