/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/fit-groups.h"

#include <string.h>

/* --- which curve a point is of ------------------------------------------------------------------------------------ */

static const SpCurveKind kind_of_op[SP_MEASURED_N_OPS] = {
  [SP_MEASURED_GEMM] = SP_CURVE_GEMM,
  [SP_MEASURED_ATTENTION] = SP_CURVE_ATTENTION,
  [SP_MEASURED_ATTENTION_BACKWARD] = SP_CURVE_ATTENTION_BACKWARD,
  [SP_MEASURED_LINEAR_ATTENTION] = SP_CURVE_LINEAR,
  [SP_MEASURED_LINEAR_ATTENTION_BACKWARD] = SP_CURVE_LINEAR_BACKWARD,
  [SP_MEASURED_COPY] = SP_CURVE_COPY,
  [SP_MEASURED_ONE_WAY] = SP_CURVE_ONE_WAY,
  [SP_MEASURED_SEND_RECEIVE] = SP_CURVE_SEND_RECEIVE,
  [SP_MEASURED_ALL_GATHER] = SP_CURVE_ALL_GATHER,
  [SP_MEASURED_REDUCE_SCATTER] = SP_CURVE_REDUCE_SCATTER,
  [SP_MEASURED_ALL_REDUCE] = SP_CURVE_ALL_REDUCE,
  [SP_MEASURED_ALL_TO_ALL] = SP_CURVE_ALL_TO_ALL,
  [SP_MEASURED_BROADCAST] = SP_CURVE_BROADCAST,
  [SP_MEASURED_KERNEL] = SP_CURVE_KERNEL,
  [SP_MEASURED_LAUNCH] = SP_CURVE_LAUNCH,
};

static gboolean
is_collective (SpMeasuredOp op)
{
  return op >= SP_MEASURED_ONE_WAY && op <= SP_MEASURED_BROADCAST;
}

/* Whether a transfer's variant is that of the plain curve. */
static gboolean
is_plain (const char *variant)
{
  static const char *const plain[] = { "", "out-of-place", "ring", NULL };

  return g_strv_contains (plain, variant);
}

/* In letters of a group's name; NULL for what is the plain curve. */
static char *
variant_of (const SpPoint *p)
{
  g_autofree char *variant = g_strdup (p->variant);

  if (p->beside == SP_MEASURED_KERNEL)
    return g_strconcat (sp_measured_op_names[p->op], "-", p->variant, NULL);
  if (p->beside != SP_MEASURED_NONE) {
    gboolean copy = p->op == SP_MEASURED_COPY || p->beside == SP_MEASURED_COPY;
    if (p->op == SP_MEASURED_KERNEL)
      return g_strdup (p->kernel < SP_N_OPS ? sp_op_name (p->kernel) : "unknown");
    return g_strconcat (sp_measured_op_names[is_collective (p->op) ? p->op : p->beside], copy ? "-copy" : "", NULL);
  }
  if (p->op == SP_MEASURED_GEMM || (is_collective (p->op) && is_plain (variant)))
    return NULL;
  if (p->op == SP_MEASURED_KERNEL)
    return g_strdelimit (g_steal_pointer (&variant), "/", '.');
  static const char *const ends[] = { "/causal", "/full" };
  for (guint i = 0; p->op <= SP_MEASURED_ATTENTION_BACKWARD && i < G_N_ELEMENTS (ends); i++)
    if (g_str_has_suffix (variant, ends[i]))
      variant[strlen (variant) - strlen (ends[i])] = '\0';
  g_strdelimit (variant, "/+", '-');
  return *variant != '\0' ? g_steal_pointer (&variant) : NULL;
}

static SpCurveKind
kind_of (const SpPoint *p)
{
  if (p->beside == SP_MEASURED_NONE)
    return kind_of_op[p->op];
  return is_collective (p->op) ? SP_CURVE_BESIDE : SP_CURVE_SLOWDOWN;
}

static void
group_free (gpointer data)
{
  SpFitGroup *group = data;

  g_ptr_array_unref (group->points);
  g_free (group->variant);
  g_free (group);
}

static gint
compare_sizes (gconstpointer a, gconstpointer b)
{
  const SpPoint *x = *(const SpPoint *const *) a, *y = *(const SpPoint *const *) b;
  double s = sp_fit_size (kind_of (x), x), t = sp_fit_size (kind_of (y), y);

  if (s != t)
    return s < t ? -1 : 1;
  return (x > y) - (x < y); /* in one array, in its order */
}

static gint
compare_groups (gconstpointer a, gconstpointer b)
{
  const SpFitGroup *x = *(const SpFitGroup *const *) a, *y = *(const SpFitGroup *const *) b;

  if (x->kind != y->kind)
    return x->kind < y->kind ? -1 : 1;
  if (x->ranks != y->ranks)
    return x->ranks < y->ranks ? -1 : 1;
  if (x->nodes != y->nodes)
    return x->nodes < y->nodes ? -1 : 1;
  return g_strcmp0 (x->variant, y->variant);
}

GPtrArray *
sp_fit_groups_new (const SpPoints *points)
{
  GPtrArray *groups = g_ptr_array_new_with_free_func (group_free);

  for (guint i = 0; i < points->points->len; i++) {
    const SpPoint *p = &g_array_index (points->points, SpPoint, i);
    SpCurveKind kind = kind_of (p);
    g_autofree char *variant = variant_of (p);
    gboolean grouped = is_collective (p->op) || kind == SP_CURVE_SLOWDOWN || (kind == SP_CURVE_LAUNCH && p->ranks > 1);
    gint32 ranks = grouped ? (gint32) p->ranks : 0, nodes = grouped ? (gint32) MAX (p->nodes, 1) : 0;
    SpFitGroup *group = NULL;
    if (grouped && ranks < 2)
      continue;
    for (guint t = 0; t < groups->len && group == NULL; t++) {
      SpFitGroup *other = groups->pdata[t];
      if (other->kind == kind && other->ranks == ranks && other->nodes == nodes &&
          g_strcmp0 (other->variant, variant) == 0)
        group = other;
    }
    if (group == NULL) {
      group = g_new0 (SpFitGroup, 1);
      *group = (SpFitGroup){ kind, g_steal_pointer (&variant), ranks, nodes, g_ptr_array_new () };
      g_ptr_array_add (groups, group);
    }
    g_ptr_array_add (group->points, (gpointer) p);
  }
  g_ptr_array_sort (groups, compare_groups);
  for (guint t = 0; t < groups->len; t++)
    g_ptr_array_sort (((SpFitGroup *) groups->pdata[t])->points, compare_sizes);
  return groups;
}

/* --- its curve ---------------------------------------------------------------------------------------------------- */

static gboolean
is_same_kernel (const SpPoint *p, const SpPoint *q)
{
  return q->bytes == p->bytes && q->flops == p->flops && q->m == p->m && q->n == p->n && q->k == p->k &&
         q->batch == p->batch && q->heads == p->heads;
}

/* Seconds of the point's operation without what ran beside it: as measured, or of a GEMM, and of a transfer beside kernels,
 * by its curve. 0: not known. */
static double
alone_s (const SpPoints *points, const SpFitGiven *given, const SpProfile *profile, const SpPoint *p)
{
  for (guint i = 0; i < points->points->len; i++) {
    const SpPoint *q = &g_array_index (points->points, SpPoint, i);
    gboolean same = p->beside == SP_MEASURED_KERNEL ? is_plain (q->variant) : g_str_equal (q->variant, p->variant);
    if (q->op != p->op || q->beside != SP_MEASURED_NONE || !same)
      continue;
    if (p->op == SP_MEASURED_GEMM     ? q->m == p->m && q->n == p->n && q->k == p->k
        : p->op == SP_MEASURED_KERNEL ? is_same_kernel (p, q)
        : p->op == SP_MEASURED_COPY   ? q->bytes == p->m
                                      : q->bytes == p->bytes && q->ranks == p->ranks && q->nodes == p->nodes)
      return q->seconds;
  }
  gboolean transfer = p->beside == SP_MEASURED_KERNEL;
  gint32 ranks = transfer ? (gint32) p->ranks : 0, nodes = transfer ? (gint32) MAX (p->nodes, 1) : 0;
  const SpCurve *curve = sp_profile_find (profile, kind_of_op[p->op], NULL, ranks, nodes);
  return (transfer || p->op == SP_MEASURED_GEMM) && curve != NULL ? sp_fit_predict (curve, given, p, 0) : 0;
}

gboolean
sp_fit_group (const SpFitGroup *group, const gboolean *take, const SpPoints *points, const SpFitGiven *given,
              const SpProfile *profile, SpCurve *curve, GPtrArray *used, double *residuals, double *weights,
              char **ret_missing)
{
  gboolean beside = group->kind == SP_CURVE_BESIDE || group->kind == SP_CURVE_SLOWDOWN;
  g_autoptr (GArray) alone = g_array_new (FALSE, FALSE, sizeof (double));

  for (guint i = 0; i < group->points->len; i++) {
    const SpPoint *p = group->points->pdata[i];
    double without = beside ? alone_s (points, given, profile, p) : 0;
    if ((take != NULL && !take[i]) || (beside && without <= 0))
      continue;
    g_ptr_array_add (used, (gpointer) p);
    g_array_append_val (alone, without);
  }
  curve->ranks = group->ranks;
  curve->nodes = group->nodes;
  SpFitTask fit = { group->kind, group->variant, (const SpPoint *const *) used->pdata,
                    beside ? (const double *) (gpointer) alone->data : NULL, used->len };
  return sp_fit_curve (&fit, given, curve, residuals, weights, ret_missing);
}
