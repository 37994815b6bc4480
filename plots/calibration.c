/* SPDX-License-Identifier: Apache-2.0 */
/* Measured points and the curves through them: transfers over their size, and how far off the curves are, on what they
 * were fitted to and on what was held out. Columns: curve, class (kernels, copies or transfers), size, measured_s,
 * fitted_s, held_out_s (empty where the point was not held out). */
#include <math.h>
#include <string.h>

#include "plots/kind.h"

typedef struct {
  gint curve, class, size, measured, fitted, held;
} Columns;

static gboolean
find_columns (const SpCsv *csv, Columns *c, GError **error)
{
  if (!sp_csv_need (csv, "curve", &c->curve, error) || !sp_csv_need (csv, "class", &c->class, error) ||
      !sp_csv_need (csv, "size", &c->size, error) || !sp_csv_need (csv, "measured_s", &c->measured, error) ||
      !sp_csv_need (csv, "fitted_s", &c->fitted, error) || !sp_csv_need (csv, "held_out_s", &c->held, error))
    return FALSE;
  return csv->rows->len > 0 ||
         sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: no point has a curve: there is nothing to draw", csv->path);
}

/* The class whose curves are drawn over their size: transfers, where there are some. */
static const char *
shown_class (const SpCsv *csv, const Columns *c)
{
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *class = sp_csv_text (csv, row, c->class);
    if (g_str_equal (class, "transfers"))
      return "transfers";
  }
  return "kernels";
}

static guint
find_series (SpLines *points, SpLines *all, const char *name)
{
  for (guint i = 0; i < points->series->len; i++)
    if (g_str_equal (((SpSeries *) points->series->pdata[i])->name, name))
      return i;
  guint style = points->series->len;
  SpSeries *measured = sp_lines_add (points, name), *fitted = sp_lines_add (all, NULL);
  measured->joined = FALSE;
  measured->style = fitted->style = style;
  fitted->marked = FALSE;
  return style;
}

/* The first so many curves: those without a variant come first. */
static void
draw_curves (SpFigure *figure, const SpCsv *csv, const Columns *c)
{
  const char *shown = shown_class (csv, c);
  gboolean bytes = g_str_equal (shown, "transfers");
  SpBox place = sp_figure_place (figure, 0, 2, 0, 1);
  const char *x = bytes ? "payload, MB" : "work, GFLOP";
  g_autoptr (SpLines) lines = sp_lines_new (x, "time, us: points measured, lines fitted");
  g_autoptr (SpLines) points = sp_lines_new (x, "");

  lines->x.scale = lines->y.scale = SP_SCALE_LOG10;
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *class = sp_csv_text (csv, row, c->class), *curve = sp_csv_text (csv, row, c->curve);
    double size = sp_csv_number (csv, row, c->size) / (bytes ? 1e6 : 1e9);
    if (!g_str_equal (class, shown) || !(size > 0))
      continue;
    guint series = find_series (points, lines, curve);
    if (series >= SP_STYLES)
      break;
    sp_series_point (points->series->pdata[series], size, sp_csv_number (csv, row, c->measured) * 1e6, SP_POINT_FITS);
    sp_series_point (lines->series->pdata[series], size, sp_csv_number (csv, row, c->fitted) * 1e6, SP_POINT_FITS);
  }
  g_ptr_array_set_free_func (points->series, NULL);
  for (guint i = 0; i < MIN (points->series->len, SP_STYLES); i++)
    g_ptr_array_add (lines->series, points->series->pdata[i]);
  sp_lines_draw (figure, lines, &place);
}

static void
draw_errors (SpFigure *figure, const SpCsv *csv, const Columns *c)
{
  static const char *const names[] = { "held out", "kernels", "copies", "transfers" };
  SpBox place = sp_figure_place (figure, 1, 2, 0, 1);
  g_autoptr (SpLines) lines = sp_lines_new ("measured time, us", "curve against measurement, %");
  SpSeries *series[G_N_ELEMENTS (names)];
  double least = INFINITY, most = 0;

  lines->x.scale = SP_SCALE_LOG10;
  for (guint i = 0; i < G_N_ELEMENTS (names); i++) {
    series[i] = sp_lines_add (lines, names[i]);
    series[i]->joined = FALSE;
  }
  series[0]->style = SP_STYLES - 2; /* open circles, below the others */
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *class = sp_csv_text (csv, row, c->class);
    double us = sp_csv_number (csv, row, c->measured) * 1e6, held = sp_csv_number (csv, row, c->held) * 1e6;
    double error = 100 * (sp_csv_number (csv, row, c->fitted) * 1e6 / us - 1);
    if (!(us > 0 && isfinite (error)))
      continue;
    least = MIN (least, us);
    most = MAX (most, us);
    for (guint i = 1; i < G_N_ELEMENTS (names); i++)
      if (g_str_equal (class, names[i]))
        sp_series_point (series[i], us, error, SP_POINT_FITS);
    if (held > 0)
      sp_series_point (series[0], us, 100 * (held / us - 1), SP_POINT_FITS);
  }
  SpSeries *zero = sp_lines_add (lines, NULL);
  zero->plain = TRUE;
  zero->marked = FALSE;
  sp_series_point (zero, least, 0, SP_POINT_FITS);
  sp_series_point (zero, most, 0, SP_POINT_FITS);
  sp_lines_draw (figure, lines, &place);
}

gboolean
sp_kind_calibration (SpFigure *figure, const SpCsv *csv, GError **error)
{
  Columns c;

  if (!find_columns (csv, &c, error))
    return FALSE;
  sp_kind_subject (figure, csv, "curves through measurements");
  sp_figure_frame (figure);
  draw_curves (figure, csv, &c);
  draw_errors (figure, csv, &c);
  return TRUE;
}
