/* SPDX-License-Identifier: Apache-2.0 */
/* Predicted over executed: the step and memory of runs, with the line on which both are the same, and a tenth more and
 * less. Columns: run, step_time_s, predicted_step_time_s, memory_bytes, predicted_memory_bytes. */
#include <math.h>
#include <stdlib.h>

#include "plots/kind.h"

static gint
compare_doubles (gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return x < y ? -1 : x > y;
}

/* All x on which y is `factor` times that. */
static void
add_diagonal (SpLines *lines, const char *name, double factor, double least, double most)
{
  SpSeries *line = sp_lines_add (lines, name);

  line->plain = TRUE;
  line->marked = FALSE;
  sp_series_point (line, least, factor * least, SP_POINT_FITS);
  sp_series_point (line, most, factor * most, SP_POINT_FITS);
}

void
sp_lines_diagonals (SpLines *lines, double least, double most)
{
  lines->x.scale = lines->y.scale = SP_SCALE_LOG10;
  add_diagonal (lines, "+10 %", 1.1, least / 1.3, most * 1.3);
  add_diagonal (lines, "as measured", 1, least / 1.3, most * 1.3);
  add_diagonal (lines, "-10 %", 0.9, least / 1.3, most * 1.3);
}

/* Pairs that have both figures; NULL with an error if none has. */
typedef struct {
  const char *measured, *predicted, *x_label, *y_label, *what;
  double unit;
} Pair;

static const Pair pairs[] = {
  { "step_time_s", "predicted_step_time_s", "measured step, ms", "predicted step, ms", "step", 1e-3 },
  { "memory_bytes", "predicted_memory_bytes", "measured memory, GiB", "predicted memory, GiB", "memory", 0x1p30 },
};

static SpSeries *
add_pairs (const SpCsv *csv, const Pair *pair, SpLines *lines, GError **error)
{
  SpSeries *points = sp_lines_add (lines, NULL);
  gint m, p;

  if (!sp_csv_need (csv, pair->measured, &m, error) || !sp_csv_need (csv, pair->predicted, &p, error))
    return NULL;
  points->joined = FALSE;
  for (guint row = 0; row < csv->rows->len; row++) {
    double x = sp_csv_number (csv, row, m) / pair->unit, y = sp_csv_number (csv, row, p) / pair->unit;
    if (x > 0 && y > 0)
      sp_series_point (points, x, y, SP_POINT_FITS);
  }
  if (points->points->len > 0)
    return points;
  sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: no row has both %s and %s: there is nothing to draw", csv->path,
                  pair->measured, pair->predicted);
  return NULL;
}

/* "step of 34 runs: 3.8 % off in the median, 10.1 % at worst" */
static char *
describe (const Pair *pair, const SpSeries *points)
{
  guint n = points->points->len;
  g_autofree double *errors = g_new (double, n);

  for (guint i = 0; i < n; i++) {
    const SpChartPoint *point = &g_array_index (points->points, SpChartPoint, i);
    errors[i] = fabs (point->y / point->x - 1);
  }
  qsort (errors, n, sizeof *errors, compare_doubles);
  return g_strdup_printf ("%s of %u run%s: %.1f %% off in the median, %.1f %% at worst", pair->what, n,
                          n == 1 ? "" : "s", 100 * errors[n / 2], 100 * errors[n - 1]);
}

static void
draw_pair (SpFigure *figure, const Pair *pair, SpLines *lines, const SpSeries *points, guint column)
{
  SpBox place = sp_figure_place (figure, column, G_N_ELEMENTS (pairs), 0, 1);
  double least = INFINITY, most = 0;

  for (guint i = 0; i < points->points->len; i++) {
    double x = g_array_index (points->points, SpChartPoint, i).x;
    least = MIN (least, x);
    most = MAX (most, x);
  }
  sp_lines_diagonals (lines, least, most);
  sp_lines_draw (figure, lines, &place);
}

gboolean
sp_kind_accuracy (SpFigure *figure, const SpCsv *csv, GError **error)
{
  g_autoptr (GPtrArray) charts = g_ptr_array_new_with_free_func ((GDestroyNotify) sp_lines_free);
  g_autoptr (GString) print = g_string_new (NULL);

  sp_kind_subject (figure, csv, "predicted beside executed");
  for (guint i = 0; i < G_N_ELEMENTS (pairs); i++) {
    SpLines *lines = sp_lines_new (pairs[i].x_label, pairs[i].y_label);
    g_ptr_array_add (charts, lines);
    const SpSeries *points = add_pairs (csv, &pairs[i], lines, error);
    if (points == NULL)
      return FALSE;
    g_autofree char *text = describe (&pairs[i], points);
    g_string_append_printf (print, "%s | ", text);
  }
  g_string_append (print, figure->small_print);
  g_free (figure->small_print);
  figure->small_print = g_strdup (print->str);
  sp_figure_frame (figure);
  for (guint i = 0; i < G_N_ELEMENTS (pairs); i++) {
    SpLines *lines = charts->pdata[i];
    draw_pair (figure, &pairs[i], lines, lines->series->pdata[0], i);
  }
  return TRUE;
}
