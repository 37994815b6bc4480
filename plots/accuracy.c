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

/* A line of all x on which y is `factor` times that. */
static void
add_diagonal (SpLines *lines, const char *name, double factor, double least, double most)
{
  SpSeries *line = sp_lines_add (lines, name);

  line->plain = TRUE;
  line->marked = FALSE;
  sp_series_point (line, least, factor * least, SP_POINT_FITS);
  sp_series_point (line, most, factor * most, SP_POINT_FITS);
}

static gboolean
draw_pair (SpFigure *figure, const SpCsv *csv, const char *measured, const char *predicted, double unit,
           const char *x_label, const char *what, guint column, GError **error)
{
  gint m, p;
  SpBox place = sp_figure_place (figure, column, 2, 0, 1);
  g_autofree double *errors = g_new (double, MAX (csv->rows->len, 1));
  double least = INFINITY, most = 0;
  guint n = 0;

  if (!sp_csv_need (csv, measured, &m, error) || !sp_csv_need (csv, predicted, &p, error))
    return FALSE;
  g_autoptr (SpLines) lines = sp_lines_new (x_label, NULL);
  SpSeries *points = sp_lines_add (lines, NULL);
  points->joined = FALSE;
  lines->x.scale = lines->y.scale = SP_SCALE_LOG10;
  for (guint row = 0; row < csv->rows->len; row++) {
    double x = sp_csv_number (csv, row, m) / unit, y = sp_csv_number (csv, row, p) / unit;
    if (!(x > 0 && y > 0))
      continue;
    sp_series_point (points, x, y, SP_POINT_FITS);
    errors[n++] = fabs (y / x - 1);
    least = MIN (least, x);
    most = MAX (most, x);
  }
  if (n == 0)
    return sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: no row has both %s and %s: there is nothing to draw",
                           csv->path, measured, predicted);
  qsort (errors, n, sizeof *errors, compare_doubles);
  g_autofree char *label = g_strdup_printf ("%s: %u run%s, %.1f %% off in the median, %.1f %% at worst", what, n,
                                            n == 1 ? "" : "s", 100 * errors[n / 2], 100 * errors[n - 1]);
  lines->y.label = label;
  add_diagonal (lines, "+10 %", 1.1, least / 1.3, most * 1.3);
  add_diagonal (lines, "as measured", 1, least / 1.3, most * 1.3);
  add_diagonal (lines, "-10 %", 0.9, least / 1.3, most * 1.3);
  sp_lines_draw (figure, lines, &place);
  return TRUE;
}

gboolean
sp_kind_accuracy (SpFigure *figure, const SpCsv *csv, GError **error)
{
  sp_kind_subject (figure, csv, "predicted beside executed");
  sp_figure_frame (figure);
  return draw_pair (figure, csv, "step_time_s", "predicted_step_time_s", 1e-3, "measured step, ms",
                    "predicted step, ms", 0, error) &&
         draw_pair (figure, csv, "memory_bytes", "predicted_memory_bytes", 0x1p30, "measured memory, GiB",
                    "predicted memory, GiB", 1, error);
}
