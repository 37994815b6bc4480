/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/fit-points.h"

#include <math.h>
#include <string.h>

#include "sim/op-form.h"

#define LEAST_SIGMA 0.01

static gint
compare_doubles (gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return (x > y) - (x < y);
}

double
sp_median (double *values, guint n)
{
  g_return_val_if_fail (n > 0, 0);
  qsort (values, n, sizeof *values, compare_doubles);
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double
sp_quantile (double *values, guint n, double fraction)
{
  g_return_val_if_fail (n > 0, 0);
  qsort (values, n, sizeof *values, compare_doubles);
  return values[(guint) MIN (n - 1, ceil (fraction * n) - (fraction > 0))];
}

/* --- rows of one point -------------------------------------------------------------------------------------------- */

/* All but the file and the sample. */
static int
compare_rows (const SpMeasuredRow *a, const SpMeasuredRow *b)
{
  const gint64 x[] = { a->op, a->ranks, a->nodes, a->beside, a->m, a->n, a->k, a->batch, a->heads, a->bytes };
  const gint64 y[] = { b->op, b->ranks, b->nodes, b->beside, b->m, b->n, b->k, b->batch, b->heads, b->bytes };
  int words = strcmp (a->variant, b->variant);

  for (guint i = 0; i < G_N_ELEMENTS (x); i++) {
    if (i == 1 && words != 0)
      return words;
    if (x[i] != y[i])
      return x[i] < y[i] ? -1 : 1;
  }
  if (a->op == SP_MEASURED_KERNEL && a->flops != b->flops)
    return a->flops < b->flops ? -1 : 1;
  return 0;
}

typedef struct {
  SpMeasuredRow row;
  guint file;
} Item;

static gint
compare_items (gconstpointer a, gconstpointer b)
{
  const Item *x = a, *y = b;
  int order = compare_rows (&x->row, &y->row);

  if (order != 0)
    return order;
  if (x->row.statistic != y->row.statistic)
    return x->row.statistic < y->row.statistic ? -1 : 1;
  return (x->row.time_s > y->row.time_s) - (x->row.time_s < y->row.time_s);
}

static double
statistic (const Item *items, guint n, SpStatistic which)
{
  g_autofree double *values = g_new (double, n);
  guint found = 0;

  for (guint i = 0; i < n; i++)
    if (items[i].row.statistic == which)
      values[found++] = items[i].row.time_s;
  return found > 0 ? sp_median (values, found) : 0;
}

static SpPoint
point_of (const Item *items, guint n)
{
  const SpMeasuredRow *row = &items[0].row;
  SpPoint point = { .op = row->op,
                    .beside = row->beside,
                    .variant = row->variant,
                    .ranks = row->ranks,
                    .nodes = row->nodes,
                    .bytes = row->bytes,
                    .m = row->m,
                    .n = row->n,
                    .k = row->k,
                    .batch = row->batch,
                    .heads = row->heads,
                    .flops = row->flops,
                    .sigma = LEAST_SIGMA,
                    .file = items[0].file };
  g_autofree double *values = g_new (double, n);
  guint samples = 0;
  SpOpForm form;

  for (guint i = 0; i < n; i++)
    if (items[i].row.statistic == SP_STATISTIC_SAMPLE)
      values[samples++] = items[i].row.time_s;
  point.kernel = SP_N_OPS;
  if (row->op == SP_MEASURED_KERNEL)
    sp_op_form_parse (row->variant, &point.kernel, &form);
  if (samples > 0) {
    point.seconds = sp_median (values, samples);
    for (guint i = 0; i < samples; i++)
      values[i] = fabs (values[i] / point.seconds - 1);
    point.sigma = 1.4826 * sp_median (values, samples) * 1.2533 / sqrt (samples);
  } else {
    const SpStatistic order[] = { SP_STATISTIC_MEDIAN, SP_STATISTIC_MEAN, SP_STATISTIC_MIN, SP_STATISTIC_MAX };
    for (guint i = 0; i < G_N_ELEMENTS (order) && point.seconds == 0; i++)
      point.seconds = statistic (items, n, order[i]);
    /* Of ten samples min to max is about three standard deviations, and the median's is a third of one. */
    double least = statistic (items, n, SP_STATISTIC_MIN);
    if (least > 0)
      point.sigma = (point.seconds - least) / point.seconds / 2;
  }
  point.samples = MAX (samples, 1);
  point.sigma = CLAMP (point.sigma, LEAST_SIGMA, 1);
  return point;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static gboolean
is_kernel (SpMeasuredOp op)
{
  return op >= SP_MEASURED_GEMM && op <= SP_MEASURED_LINEAR_ATTENTION_BACKWARD;
}

static gboolean
is_half (const char *dtype)
{
  return *dtype == '\0' || g_str_equal (dtype, "bf16") || g_str_equal (dtype, "fp16");
}

/* FALSE: it is left out, *ret_why says why. */
static gboolean
takes (const SpMeasuredRow *row, SpLeftOut *ret_why)
{
  *ret_why = SP_N_LEFT;
  if (row->mark == SP_MARK_PARTIAL)
    *ret_why = SP_LEFT_PARTIAL;
  else if (row->mark == SP_MARK_WRONG)
    *ret_why = SP_LEFT_WRONG;
  else if (row->op == SP_MEASURED_P2P || row->op == SP_MEASURED_P2P_BOTH)
    *ret_why = SP_LEFT_OP;
  else if (row->time_s <= 0)
    *ret_why = SP_LEFT_NO_TIME;
  else if (is_kernel (row->op) && !is_half (row->dtype))
    *ret_why = SP_LEFT_DTYPE;
  return *ret_why == SP_N_LEFT;
}

/* What was measured at a clock that nobody wrote down counts as at the highest. */
static double
clock_of (const Item *items, guint n, const double *max_clock_hz)
{
  double sum = 0;

  for (guint i = 0; i < n; i++) {
    double most_hz = max_clock_hz[items[i].file];
    sum += items[i].row.clock_hz > 0 && most_hz > 0 ? MIN (items[i].row.clock_hz / most_hz, 1) : 1;
  }
  return sum / n;
}

/* 0: not said, or of several cards. */
static double
max_clock_of (const SpMeasured *set)
{
  const char *text = sp_measured_field (set, "max_clock_hz");
  double hz = 0;

  return text != NULL && sp_measured_number (text, 1, 1e12, &hz) ? hz : 0;
}

static void
add_work (SpPoints *points, const SpMeasuredRow *row, double max_clock_hz)
{
  if (row->time_s <= 0 || row->power_w <= 0 || row->clock_hz <= 0 || row->flops <= 0 || max_clock_hz <= 0)
    return;
  SpWorkPoint point = { .program = row->variant,
                        .card = row->from,
                        .flops_per_s = row->flops / row->time_s,
                        .bytes_per_s = (double) MAX (row->bytes, 0) / row->time_s,
                        .power_w = row->power_w,
                        .clock = MIN (row->clock_hz / max_clock_hz, 1),
                        .held = strstr (row->throttle, "power-cap") != NULL };
  g_array_append_val (points->work, point);
}

gboolean
sp_points_have_power (const SpPoints *points)
{
  guint held = 0;

  for (guint i = 0; i < points->work->len; i++)
    held += sp_work_is_held (&g_array_index (points->work, SpWorkPoint, i));
  return points->work->len >= SP_POWER_LEAST_POINTS && held >= SP_POWER_LEAST_POINTS / 3;
}

static void
sort_points (SpPoints *points, GArray *items, const double *max_clock_hz)
{
  gboolean power = sp_points_have_power (points);

  g_array_sort (items, compare_items);
  for (guint i = 0, n; i < items->len; i += n) {
    const Item *first = &g_array_index (items, Item, i);
    for (n = 1; i + n < items->len && compare_rows (&first[n].row, &first->row) == 0; n++)
      ;
    SpPoint point = point_of (first, n);
    point.clock = power && point.op == SP_MEASURED_KERNEL ? clock_of (first, n, max_clock_hz) : 1;
    g_array_append_val (points->points, point);
  }
}

SpPoints *
sp_points_new (SpMeasured *const *sets, guint n)
{
  SpPoints *points = g_new0 (SpPoints, 1);
  g_autoptr (GArray) items = g_array_new (FALSE, FALSE, sizeof (Item));
  g_autofree double *max_clock_hz = g_new (double, MAX (n, 1));

  points->points = g_array_new (FALSE, FALSE, sizeof (SpPoint));
  points->memory = g_array_new (FALSE, FALSE, sizeof (SpMeasuredRow));
  points->work = g_array_new (FALSE, FALSE, sizeof (SpWorkPoint));
  points->published = g_new (const char *, n);
  for (guint s = 0; s < n; s++) {
    points->published[s] = sp_measured_field (sets[s], "published");
    max_clock_hz[s] = max_clock_of (sets[s]);
  }
  for (guint s = 0; s < n; s++)
    for (guint i = 0; i < sets[s]->rows->len; i++) {
      const SpMeasuredRow *row = &g_array_index (sets[s]->rows, SpMeasuredRow, i);
      SpLeftOut why;
      points->n_rows++;
      if (row->op == SP_MEASURED_MEMORY && row->bytes > 0)
        g_array_append_val (points->memory, *row);
      else if (row->op == SP_MEASURED_WORK)
        add_work (points, row, max_clock_hz[s]);
      else if (takes (row, &why)) {
        Item item = { *row, s };
        g_array_append_val (items, item);
      } else {
        points->left_out[why]++;
        points->partial[row->op] += why == SP_LEFT_PARTIAL;
      }
    }
  sort_points (points, items, max_clock_hz);
  return points;
}

void
sp_points_free (SpPoints *points)
{
  if (points == NULL)
    return;
  g_array_unref (points->points);
  g_array_unref (points->memory);
  g_array_unref (points->work);
  g_free (points->published);
  g_free (points);
}

void
sp_points_leave_below (SpPoints *points, double bytes)
{
  for (guint i = points->points->len; i-- > 0;) {
    const SpPoint *p = &g_array_index (points->points, SpPoint, i);
    if (p->op < SP_MEASURED_ONE_WAY || p->op > SP_MEASURED_BROADCAST || (double) p->bytes >= bytes)
      continue;
    points->left_out[SP_LEFT_SMALL]++;
    g_array_remove_index (points->points, i);
  }
}

char *
sp_points_left_text (const SpPoints *points, SpLeftOut reason)
{
  static const char *const why[SP_N_LEFT] = {
    [SP_LEFT_PARTIAL] = "marked partial: what ran beside ended too early",
    [SP_LEFT_WRONG] = "marked wrong: the data came out wrong",
    [SP_LEFT_NO_TIME] = "without a time",
    [SP_LEFT_DTYPE] = "kernels of another dtype than bf16 and fp16",
    [SP_LEFT_SMALL] = "transfers below the least asked for",
    [SP_LEFT_OP] = "copies between two GPUs without NCCL, which nothing is priced by",
  };

  if (points->left_out[reason] == 0)
    return NULL;
  return g_strdup_printf ("%u %s %s", points->left_out[reason], reason == SP_LEFT_SMALL ? "sizes of" : "rows",
                          why[reason]);
}
