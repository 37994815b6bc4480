/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/fit-curves-private.h"
#include "calibrate/fit-groups.h"
#include "calibrate/fit.h"

#include <math.h>

#include "models/inputs/ini.h"

/* Multiples of the robust spread beyond which a point is wild. */
#define WILD 5

/* --- fitting ------------------------------------------------------------------------------------------------------ */

gboolean
sp_fit_needs_device (const SpPoints *points)
{
  for (guint i = 0; i < points->points->len; i++)
    if (g_array_index (points->points, SpPoint, i).op <= SP_MEASURED_ATTENTION_BACKWARD ||
        g_array_index (points->points, SpPoint, i).op == SP_MEASURED_KERNEL)
      return TRUE;
  return FALSE;
}

static char *
point_text (const SpPoint *p)
{
  if (p->m > 0 && p->op != SP_MEASURED_KERNEL && p->beside == SP_MEASURED_NONE)
    return p->heads > 0 ? g_strdup_printf ("%d tokens, %d heads of %d%s%s", (int) p->m, (int) p->heads, (int) p->k,
                                           *p->variant != '\0' ? ", " : "", p->variant)
                        : g_strdup_printf ("%d x %d x %d", (int) p->m, (int) p->n, (int) p->k);
  return sp_format_quantity ((double) p->bytes, SP_UNIT_BYTES);
}

static void
add_wild (SpFit *fit, const SpCurve *curve, const GPtrArray *used, const double *residuals, const double *weights)
{
  g_autofree char *name = sp_curve_name (curve);

  for (guint i = 0; i < used->len; i++) {
    const SpPoint *p = used->pdata[i];
    if (fabs (residuals[i]) <= WILD * MAX (curve->scatter, p->sigma))
      continue;
    g_autofree char *text = point_text (p);
    g_ptr_array_add (fit->wild, g_strdup_printf ("%s: %s took %.4g us, the curve says %+.1f %%; kept, at weight %.2f",
                                                 name, text, p->seconds * 1e6, 100 * residuals[i], weights[i]));
  }
}

/* `published`: NULL, or what the points are published by. */
static void
set_sources (SpCurve *curve, const char *source, const char *published)
{
  for (guint slot = 0; slot < curve->n_slots; slot++) {
    SpQuantity *q = &curve->value[slot];
    if (q->provenance != SP_MEASURED || q->source != NULL)
      continue;
    q->provenance = published != NULL ? SP_PUBLISHED : SP_MEASURED;
    q->source = g_strdup (published != NULL ? published : source);
  }
}

/* Of the first point that was not measured; NULL: all were. */
static const char *
published_of (const SpPoints *points, const GPtrArray *used)
{
  for (guint i = 0; i < used->len; i++) {
    const char *published = points->published[((const SpPoint *) used->pdata[i])->file];
    if (published != NULL)
      return published;
  }
  return NULL;
}

static void
add_memory (const SpPoints *points, const char *source, SpProfile *profile)
{
  for (guint i = 0; i < points->memory->len; i++) {
    const SpMeasuredRow *row = &g_array_index (points->memory, SpMeasuredRow, i);
    gint32 ranks = row->ranks > 1 ? (gint32) row->ranks : 0, nodes = ranks > 0 ? (gint32) MAX (row->nodes, 1) : 0;
    g_autofree char *variant = g_strdelimit (g_strdup (row->variant), "/+", '-');
    g_autofree double *values = g_new (double, points->memory->len);
    guint n = 0;
    if (*variant == '\0' || sp_profile_find (profile, SP_CURVE_MEMORY, variant, ranks, nodes) != NULL)
      continue;
    for (guint j = i; j < points->memory->len; j++) {
      const SpMeasuredRow *other = &g_array_index (points->memory, SpMeasuredRow, j);
      if (g_str_equal (other->variant, row->variant) && other->ranks == row->ranks && other->nodes == row->nodes)
        values[n++] = (double) other->bytes;
    }
    SpCurve *curve = sp_profile_add (profile, SP_CURVE_MEMORY, variant);
    curve->ranks = ranks;
    curve->nodes = nodes;
    curve->points = (gint32) n;
    curve->value[0].value = sp_median (values, n);
    curve->error[0] = (values[n - 1] - values[0]) / 2 / sqrt (n);
    curve->covariance[0][0] = curve->error[0] * curve->error[0];
    set_sources (curve, source, NULL);
  }
}

static void
add_power (const SpPoints *points, const char *source, SpFit *fit)
{
  if (points->work->len == 0)
    return;
  if (!sp_points_have_power (points)) {
    g_ptr_array_add (fit->refused,
                     g_strdup_printf ("power has %u programs, of which the card's limit held less than %u down, and "
                                      "kernels' times stay as they were: at least %u are needed: seqpar-measure "
                                      "kernels, with scenarios of longer sequences",
                                      points->work->len, SP_POWER_LEAST_POINTS / 3, SP_POWER_LEAST_POINTS));
    return;
  }
  SpCurve *curve = sp_profile_add (fit->profile, SP_CURVE_POWER, NULL);
  if (sp_fit_power (points, curve)) {
    set_sources (curve, source, NULL);
    return;
  }
  g_ptr_array_remove_index (fit->profile->curves, fit->profile->curves->len - 1);
  g_ptr_array_add (fit->refused, g_strdup ("power: no law of its kind goes through its programs, so that kernels count "
                                           "as at the highest clock"));
}

static void
add_notes (const SpPoints *points, const SpProfile *profile, SpFit *fit)
{
  g_autoptr (GString) without = g_string_new (NULL);

  for (guint reason = 0; reason < SP_N_LEFT; reason++) {
    char *text = sp_points_left_text (points, reason);
    if (text != NULL)
      g_ptr_array_add (fit->notes, text);
  }
  for (guint kind = 0; kind <= SP_CURVE_ALL_TO_ALL; kind++)
    if (kind != SP_CURVE_KERNEL && sp_profile_find (profile, (SpCurveKind) kind, NULL, 0, 0) == NULL) {
      gboolean variant = FALSE;
      for (guint i = 0; i < profile->curves->len; i++)
        variant = variant || ((const SpCurve *) profile->curves->pdata[i])->kind == kind;
      if (!variant)
        g_string_append_printf (without, "%s%s", without->len > 0 ? ", " : "", sp_curve_kind_name ((SpCurveKind) kind));
    }
  if (without->len > 0)
    g_ptr_array_add (fit->notes,
                     g_strdup_printf ("no curve, so that the cost model's formulas stay: %s", without->str));
}

SpFit *
sp_fit_points (const SpPoints *points, const SpFitGiven *given, const char *name, const char *card, const char *source)
{
  g_autoptr (GPtrArray) groups = sp_fit_groups_new (points);
  SpFit *fit = g_new0 (SpFit, 1);

  fit->profile = sp_profile_new (name, card);
  fit->refused = g_ptr_array_new_with_free_func (g_free);
  fit->wild = g_ptr_array_new_with_free_func (g_free);
  fit->notes = g_ptr_array_new_with_free_func (g_free);
  for (guint t = 0; t < groups->len; t++) {
    const SpFitGroup *group = groups->pdata[t];
    g_autofree double *residuals = g_new0 (double, group->points->len);
    g_autofree double *weights = g_new0 (double, group->points->len);
    g_autoptr (GPtrArray) used = g_ptr_array_new ();
    char *missing = NULL;
    sp_fit_tell (given, t, groups->len);
    SpCurve *curve = sp_profile_add (fit->profile, group->kind, group->variant);
    gboolean found = sp_fit_group (group, NULL, points, given, fit->profile, curve, used, residuals, weights, &missing);
    if (missing != NULL)
      g_ptr_array_add (fit->refused, missing);
    if (!found) {
      g_ptr_array_remove_index (fit->profile->curves, fit->profile->curves->len - 1);
      continue;
    }
    if (group->kind == SP_CURVE_BESIDE)
      curve->left_out = (gint32) points->partial[((const SpPoint *) group->points->pdata[0])->op];
    set_sources (curve, source, published_of (points, used));
    add_wild (fit, curve, used, residuals, weights);
  }
  add_memory (points, source, fit->profile);
  add_power (points, source, fit);
  sp_profile_link (fit->profile);
  add_notes (points, fit->profile, fit);
  return fit;
}

void
sp_fit_free (SpFit *fit)
{
  if (fit == NULL)
    return;
  sp_profile_free (fit->profile);
  g_ptr_array_unref (fit->refused);
  g_ptr_array_unref (fit->wild);
  g_ptr_array_unref (fit->notes);
  g_free (fit);
}

/* --- the build ---------------------------------------------------------------------------------------------------- */

/* clang-format off */
G_DEFINE_QUARK (sp-fit-error-quark, sp_fit_error)
/* clang-format on */

gboolean
sp_fit_is_built (GError **error G_GNUC_UNUSED)
{
  return TRUE;
}
