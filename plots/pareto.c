/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts that none beats, step time against memory of a GPU, a curve for each number of GPUs. Columns: gpus,
 * step_time_s, peak_bytes, capacity_bytes. */
#include <math.h>

#include "plots/kind.h"

#define WIDE 10 /* times as long: on a log scale */

typedef struct {
  gint gpus, step, peak, capacity;
} Columns;

static gboolean
find_columns (const SpCsv *csv, Columns *c, GError **error)
{
  return sp_csv_need (csv, "gpus", &c->gpus, error) && sp_csv_need (csv, "step_time_s", &c->step, error) &&
         sp_csv_need (csv, "peak_bytes", &c->peak, error) && sp_csv_need (csv, "capacity_bytes", &c->capacity, error);
}

static SpSeries *
series_of (SpLines *lines, double gpus)
{
  g_autofree char *name = g_strdup_printf ("%.0f GPU%s", gpus, gpus == 1 ? "" : "s");

  for (guint i = 0; i < lines->series->len; i++) {
    SpSeries *series = lines->series->pdata[i];
    if (g_str_equal (series->name, name))
      return series;
  }
  return sp_lines_add (lines, name);
}

static gint
compare_points (gconstpointer a, gconstpointer b)
{
  double x = ((const SpChartPoint *) a)->x, y = ((const SpChartPoint *) b)->x;

  return x < y ? -1 : x > y;
}

gboolean
sp_kind_pareto (SpFigure *figure, const SpCsv *csv, GError **error)
{
  Columns c;
  SpBox place = sp_figure_place (figure, 0, 1, 0, 1);
  g_autoptr (SpLines) lines = sp_lines_new ("step time, s", "memory of the fullest GPU, GiB");
  double least = INFINITY, most = 0, capacity = 0;

  if (!find_columns (csv, &c, error))
    return FALSE;
  for (guint row = 0; row < csv->rows->len; row++) {
    double step = sp_csv_number (csv, row, c.step), peak = sp_csv_number (csv, row, c.peak) / 0x1p30;
    double gpus = sp_csv_number (csv, row, c.gpus);
    if (!(step > 0 && peak > 0 && gpus > 0 && isfinite (step) && isfinite (peak) && isfinite (gpus)))
      continue;
    sp_series_point (series_of (lines, gpus), step, peak, SP_POINT_FITS);
    least = MIN (least, step);
    most = MAX (most, step);
    capacity = fmax (capacity, sp_csv_number (csv, row, c.capacity) / 0x1p30);
  }
  if (most == 0)
    return sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: has no layout with a step time and memory", csv->path);
  if (lines->series->len > SP_STYLES)
    return sp_figure_fail (error, SP_FIGURE_ERROR_DATA,
                           "%s: %u numbers of GPUs are more than the %d that can be told apart; seqpar plan --pareto "
                           "with --gpus is of one",
                           csv->path, lines->series->len, SP_STYLES);
  for (guint i = 0; i < lines->series->len; i++)
    g_array_sort (((SpSeries *) lines->series->pdata[i])->points, compare_points);
  if (most > WIDE * least)
    lines->x.scale = SP_SCALE_LOG10;
  g_autofree char *level = g_strdup_printf ("above the GPU's %.0f GiB", capacity);
  if (capacity > 0) {
    lines->level = capacity;
    lines->level_name = level;
    sp_axis_cover (&lines->y, 1.1 * capacity);
  }
  sp_axis_cover (&lines->y, 0);
  sp_kind_subject (figure, csv, "");
  sp_figure_frame (figure);
  sp_lines_draw (figure, lines, &place);
  return TRUE;
}
