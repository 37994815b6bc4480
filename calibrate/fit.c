/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/fit-curves-private.h"
#include "calibrate/fit.h"

#include <math.h>
#include <string.h>

#include "models/inputs/ini.h"

/* Multiples of the robust spread beyond which a point is wild. */
#define WILD 5

/* --- which curve a point is of ------------------------------------------------------------------------------------ */

static const SpCurveKind kind_of_op[SP_MEASURED_N_OPS] = {
  [SP_MEASURED_GEMM] = SP_CURVE_GEMM,
  [SP_MEASURED_ATTENTION] = SP_CURVE_ATTENTION,
  [SP_MEASURED_ATTENTION_BACKWARD] = SP_CURVE_ATTENTION_BACKWARD,
  [SP_MEASURED_LINEAR_ATTENTION] = SP_CURVE_LINEAR,
  [SP_MEASURED_LINEAR_ATTENTION_BACKWARD] = SP_CURVE_LINEAR_BACKWARD,
  [SP_MEASURED_COPY] = SP_CURVE_COPY,
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
  return op >= SP_MEASURED_SEND_RECEIVE && op <= SP_MEASURED_BROADCAST;
}

/* In letters of a group's name; NULL for what is the plain curve. */
static char *
variant_of (const SpPoint *p)
{
  static const char *const plain[] = { "", "out-of-place", "ring", NULL };
  g_autofree char *variant = g_strdup (p->variant);

  if (p->beside != SP_MEASURED_NONE) {
    gboolean copy = p->op == SP_MEASURED_COPY || p->beside == SP_MEASURED_COPY;
    if (p->op == SP_MEASURED_KERNEL)
      return g_strdup (p->kernel < SP_N_OPS ? sp_op_name (p->kernel) : "unknown");
    return g_strconcat (sp_measured_op_names[is_collective (p->op) ? p->op : p->beside], copy ? "-copy" : "", NULL);
  }
  if (p->op == SP_MEASURED_GEMM || (is_collective (p->op) && g_strv_contains (plain, variant)))
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

typedef struct {
  SpCurveKind kind;
  char *variant;
  gint32 ranks, nodes;
  GPtrArray *points; /* const SpPoint *, by size */
} Task;

static void
task_free (gpointer data)
{
  Task *task = data;

  g_ptr_array_unref (task->points);
  g_free (task->variant);
  g_free (task);
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
compare_tasks (gconstpointer a, gconstpointer b)
{
  const Task *x = *(const Task *const *) a, *y = *(const Task *const *) b;

  if (x->kind != y->kind)
    return x->kind < y->kind ? -1 : 1;
  if (x->ranks != y->ranks)
    return x->ranks < y->ranks ? -1 : 1;
  if (x->nodes != y->nodes)
    return x->nodes < y->nodes ? -1 : 1;
  return g_strcmp0 (x->variant, y->variant);
}

/* Task *, in order of the enum, then ranks, nodes and variant. */
static GPtrArray *
tasks_of (const SpPoints *points)
{
  GPtrArray *tasks = g_ptr_array_new_with_free_func (task_free);

  for (guint i = 0; i < points->points->len; i++) {
    const SpPoint *p = &g_array_index (points->points, SpPoint, i);
    SpCurveKind kind = kind_of (p);
    g_autofree char *variant = variant_of (p);
    gboolean grouped = is_collective (p->op) || kind == SP_CURVE_SLOWDOWN || (kind == SP_CURVE_LAUNCH && p->ranks > 1);
    gint32 ranks = grouped ? (gint32) p->ranks : 0, nodes = grouped ? (gint32) MAX (p->nodes, 1) : 0;
    Task *task = NULL;
    if (grouped && ranks < 2)
      continue;
    for (guint t = 0; t < tasks->len && task == NULL; t++) {
      Task *other = tasks->pdata[t];
      if (other->kind == kind && other->ranks == ranks && other->nodes == nodes &&
          g_strcmp0 (other->variant, variant) == 0)
        task = other;
    }
    if (task == NULL) {
      task = g_new0 (Task, 1);
      *task = (Task){ kind, g_steal_pointer (&variant), ranks, nodes, g_ptr_array_new () };
      g_ptr_array_add (tasks, task);
    }
    g_ptr_array_add (task->points, (gpointer) p);
  }
  g_ptr_array_sort (tasks, compare_tasks);
  for (guint t = 0; t < tasks->len; t++)
    g_ptr_array_sort (((Task *) tasks->pdata[t])->points, compare_sizes);
  return tasks;
}

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

static gboolean
is_same_kernel (const SpPoint *p, const SpPoint *q)
{
  return q->bytes == p->bytes && q->flops == p->flops && q->m == p->m && q->n == p->n && q->k == p->k &&
         q->batch == p->batch && q->heads == p->heads;
}

/* Seconds of the point's operation without what ran beside it: as measured, or of a GEMM by its curve. 0: not known. */
static double
alone_s (const SpPoints *points, const SpFitGiven *given, const SpProfile *profile, const SpPoint *p)
{
  for (guint i = 0; i < points->points->len; i++) {
    const SpPoint *q = &g_array_index (points->points, SpPoint, i);
    if (q->op != p->op || q->beside != SP_MEASURED_NONE || !g_str_equal (q->variant, p->variant))
      continue;
    if (p->op == SP_MEASURED_GEMM     ? q->m == p->m && q->n == p->n && q->k == p->k
        : p->op == SP_MEASURED_KERNEL ? is_same_kernel (p, q)
        : p->op == SP_MEASURED_COPY   ? q->bytes == p->m
                                      : q->bytes == p->bytes && q->ranks == p->ranks && q->nodes == p->nodes)
      return q->seconds;
  }
  const SpCurve *curve = sp_profile_find (profile, SP_CURVE_GEMM, NULL, 0, 0);
  return p->op == SP_MEASURED_GEMM && curve != NULL ? sp_fit_predict (curve, given, p, 0) : 0;
}

/* Fits the points of `task` for which `take` is TRUE (NULL: all). */
static gboolean
fit_task (const Task *task, const gboolean *take, const SpPoints *points, const SpFitGiven *given,
          const SpProfile *profile, SpCurve *curve, GPtrArray *used, double *residuals, double *weights,
          char **ret_missing)
{
  gboolean beside = task->kind == SP_CURVE_BESIDE || task->kind == SP_CURVE_SLOWDOWN;
  g_autoptr (GArray) alone = g_array_new (FALSE, FALSE, sizeof (double));

  for (guint i = 0; i < task->points->len; i++) {
    const SpPoint *p = task->points->pdata[i];
    double without = beside ? alone_s (points, given, profile, p) : 0;
    if ((take != NULL && !take[i]) || (beside && without <= 0))
      continue;
    g_ptr_array_add (used, (gpointer) p);
    g_array_append_val (alone, without);
  }
  curve->ranks = task->ranks;
  curve->nodes = task->nodes;
  SpFitTask fit = { task->kind, task->variant, (const SpPoint *const *) used->pdata,
                    beside ? (const double *) (gpointer) alone->data : NULL, used->len };
  return sp_fit_curve (&fit, given, curve, residuals, weights, ret_missing);
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
  g_autoptr (GPtrArray) tasks = tasks_of (points);
  SpFit *fit = g_new0 (SpFit, 1);

  fit->profile = sp_profile_new (name, card);
  fit->refused = g_ptr_array_new_with_free_func (g_free);
  fit->wild = g_ptr_array_new_with_free_func (g_free);
  fit->notes = g_ptr_array_new_with_free_func (g_free);
  for (guint t = 0; t < tasks->len; t++) {
    const Task *task = tasks->pdata[t];
    g_autofree double *residuals = g_new0 (double, task->points->len);
    g_autofree double *weights = g_new0 (double, task->points->len);
    g_autoptr (GPtrArray) used = g_ptr_array_new ();
    char *missing = NULL;
    SpCurve *curve = sp_profile_add (fit->profile, task->kind, task->variant);
    gboolean found = fit_task (task, NULL, points, given, fit->profile, curve, used, residuals, weights, &missing);
    if (missing != NULL)
      g_ptr_array_add (fit->refused, missing);
    if (!found) {
      g_ptr_array_remove_index (fit->profile->curves, fit->profile->curves->len - 1);
      continue;
    }
    if (task->kind == SP_CURVE_BESIDE)
      curve->left_out = (gint32) points->partial[((const SpPoint *) task->points->pdata[0])->op];
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

/* --- hold-outs ---------------------------------------------------------------------------------------------------- */

const char *const sp_hold_out_names[] = { "interleaved", "top-decade", "families", NULL };

static void
held_clear (gpointer data)
{
  g_free (((SpHeldOut *) data)->curve);
}

static gboolean
is_held (const Task *task, SpHoldOut which, guint i, const SpPoint *family)
{
  const SpPoint *p = task->points->pdata[i];
  guint n = task->points->len;

  if (which == SP_HOLD_OUT_INTERLEAVED)
    return i % 2 == 1 && i + 1 < n;
  if (which == SP_HOLD_OUT_TOP_DECADE)
    return sp_fit_size (task->kind, p) > sp_fit_size (task->kind, task->points->pdata[n - 1]) / 10;
  return p->n == family->n && p->k == family->k;
}

/* Errors on what is held out, appended; how many points were fitted, 0 if it could not be. */
static guint
hold_out (const Task *task, SpHoldOut which, const SpPoint *family, const SpPoints *points, const SpFitGiven *given,
          GArray *errors)
{
  guint n = task->points->len;
  g_autofree gboolean *take = g_new (gboolean, n);
  g_autofree double *residuals = g_new0 (double, n);
  g_autofree double *weights = g_new0 (double, n);
  g_autofree char *missing = NULL;
  g_autoptr (GPtrArray) used = g_ptr_array_new ();
  g_autoptr (SpProfile) profile = sp_profile_new ("", NULL);
  SpCurve *curve = sp_profile_add (profile, task->kind, task->variant);

  for (guint i = 0; i < n; i++)
    take[i] = !is_held (task, which, i, family);
  if (!fit_task (task, take, points, given, profile, curve, used, residuals, weights, &missing))
    return 0;
  for (guint i = 0; i < n; i++) {
    const SpPoint *p = task->points->pdata[i];
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
begins_family (const Task *task, guint i)
{
  const SpPoint *p = task->points->pdata[i];

  for (guint j = 0; j < i; j++) {
    const SpPoint *q = task->points->pdata[j];
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
  g_autoptr (GPtrArray) tasks = tasks_of (points);
  GArray *held = g_array_new (FALSE, FALSE, sizeof (SpHeldOut));

  g_array_set_clear_func (held, held_clear);
  for (guint class = 0; class < G_N_ELEMENTS (classes); class ++) {
    g_autoptr (GArray) all = g_array_new (FALSE, FALSE, sizeof (double));
    guint all_fitted = 0;
    for (guint t = 0; t < tasks->len; t++) {
      const Task *task = tasks->pdata[t];
      g_autoptr (GArray) errors = g_array_new (FALSE, FALSE, sizeof (double));
      guint fitted = 0;
      if (task->kind > SP_CURVE_BROADCAST || class_of (task->kind) != class ||
          (which == SP_HOLD_OUT_FAMILIES && task->kind != SP_CURVE_GEMM))
        continue;
      if (which != SP_HOLD_OUT_FAMILIES)
        fitted = hold_out (task, which, NULL, points, given, errors);
      for (guint i = 0; which == SP_HOLD_OUT_FAMILIES && i < task->points->len; i++) {
        guint without =
            begins_family (task, i) ? hold_out (task, which, task->points->pdata[i], points, given, errors) : 0;
        fitted = MAX (fitted, without);
      }
      if (fitted == 0 || errors->len == 0)
        continue;
      SpCurve name = { .kind = task->kind, .variant = task->variant, .ranks = task->ranks, .nodes = task->nodes };
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

/* Seconds of each point of a task by the curve through those that are taken (NULL: all); FALSE: there is none. */
static gboolean
predict_task (const Task *task, const gboolean *take, const SpPoints *points, const SpFitGiven *given, double *ret)
{
  g_autofree double *residuals = g_new0 (double, task->points->len);
  g_autofree double *weights = g_new0 (double, task->points->len);
  g_autofree char *missing = NULL;
  g_autoptr (GPtrArray) used = g_ptr_array_new ();
  g_autoptr (SpProfile) profile = sp_profile_new ("", NULL);
  SpCurve *curve = sp_profile_add (profile, task->kind, task->variant);

  if (!fit_task (task, take, points, given, profile, curve, used, residuals, weights, &missing))
    return FALSE;
  for (guint i = 0; i < task->points->len; i++)
    ret[i] = sp_fit_predict (curve, given, task->points->pdata[i], 0);
  return TRUE;
}

GArray *
sp_fit_each (const SpPoints *points, const SpFitGiven *given)
{
  g_autoptr (GPtrArray) tasks = tasks_of (points);
  GArray *all = g_array_new (FALSE, FALSE, sizeof (SpFittedPoint));

  g_array_set_clear_func (all, fitted_clear);
  for (guint t = 0; t < tasks->len; t++) {
    const Task *task = tasks->pdata[t];
    guint n = task->points->len;
    g_autofree double *fitted = g_new0 (double, n), *held = g_new0 (double, n);
    g_autofree gboolean *take = g_new (gboolean, n);
    const SpCurve name = { .kind = task->kind, .variant = task->variant, .ranks = task->ranks, .nodes = task->nodes };
    for (guint i = 0; i < n; i++)
      take[i] = !is_held (task, SP_HOLD_OUT_INTERLEAVED, i, NULL);
    if (task->kind > SP_CURVE_BROADCAST || !predict_task (task, NULL, points, given, fitted))
      continue;
    gboolean holds = predict_task (task, take, points, given, held);
    for (guint i = 0; i < n; i++) {
      const SpPoint *p = task->points->pdata[i];
      const SpFittedPoint point = {
        sp_curve_name (&name),          task->kind, sp_fit_size (task->kind, p), p->seconds, fitted[i],
        holds && !take[i] ? held[i] : 0
      };
      g_array_append_val (all, point);
    }
  }
  return all;
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
