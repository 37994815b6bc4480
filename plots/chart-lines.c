/* SPDX-License-Identifier: Apache-2.0 */
/* Curves over an axis, named at their ends. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plots/chart.h"

#define LINE_HEIGHT 15 /* of names beside each other */
#define MOST_MARKERS 40
#define MOST_POINTS 2000 /* of a curve; more than its pixels show nothing more */

static void
series_free (gpointer data)
{
  SpSeries *series = data;

  g_free (series->name);
  g_array_unref (series->points);
  g_free (series);
}

SpLines *
sp_lines_new (const char *x, const char *y)
{
  SpLines *lines = g_new0 (SpLines, 1);

  lines->x = (SpChartAxis){ .label = x, .min = NAN, .max = NAN };
  lines->y = (SpChartAxis){ .label = y, .min = NAN, .max = NAN };
  lines->series = g_ptr_array_new_with_free_func (series_free);
  lines->level = NAN;
  return lines;
}

void
sp_lines_free (SpLines *lines)
{
  if (lines == NULL)
    return;
  g_ptr_array_unref (lines->series);
  g_free (lines);
}

SpSeries *
sp_lines_add (SpLines *lines, const char *name)
{
  SpSeries *series = g_new0 (SpSeries, 1);

  series->name = g_strdup (name);
  series->points = g_array_new (FALSE, FALSE, sizeof (SpChartPoint));
  series->style = lines->series->len;
  series->joined = series->marked = TRUE;
  g_ptr_array_add (lines->series, series);
  return series;
}

void
sp_series_point (SpSeries *series, double x, double y, SpPointMark mark)
{
  const SpChartPoint point = { x, y, (guint8) mark };

  g_array_append_val (series->points, point);
}

static const SpChartPoint *
point_of (const SpSeries *series, guint i)
{
  return &g_array_index (series->points, SpChartPoint, i);
}

static void
cover (SpLines *lines)
{
  for (guint s = 0; s < lines->series->len; s++) {
    const SpSeries *series = lines->series->pdata[s];
    for (guint i = 0; i < series->points->len; i++) {
      if (lines->x.scale != SP_SCALE_NAMES)
        sp_axis_cover (&lines->x, point_of (series, i)->x);
      sp_axis_cover (&lines->y, point_of (series, i)->y);
    }
  }
  if (!isnan (lines->level))
    sp_axis_cover (&lines->y, lines->level);
}

/* --- names at the ends -------------------------------------------------------------------------------------------- */

typedef struct {
  const SpSeries *series;
  double end, y; /* pixels: of the curve, of the name */
} Name;

static gint
compare_names (gconstpointer a, gconstpointer b)
{
  double x = ((const Name *) a)->end, y = ((const Name *) b)->end;

  return x < y ? -1 : x > y;
}

/* From below, each at least a line above the one before; then down again from the top. */
static void
push_apart (Name *names, guint n, double bottom, double top)
{
  for (guint i = 0; i < n; i++)
    names[i].y = MAX (names[i].end, i > 0 ? names[i - 1].y + LINE_HEIGHT : bottom);
  double above = top;
  for (guint i = n; i-- > 0; above = names[i].y - LINE_HEIGHT)
    names[i].y = MIN (names[i].y, above);
}

static double
names_width (const SpLines *lines, gint size)
{
  double width = 0;

  for (guint i = 0; i < lines->series->len; i++) {
    const SpSeries *series = lines->series->pdata[i];
    if (series->name != NULL && series->points->len > 0)
      width = MAX (width, sp_text_width (series->name, size) + 22);
  }
  return width;
}

static void
draw_names (SpFigure *figure, const SpLines *lines, const SpBox *axes, double right, gint size)
{
  g_autofree Name *names = g_new (Name, MAX (lines->series->len, 1));
  guint n = 0;

  for (guint i = 0; i < lines->series->len; i++) {
    const SpSeries *series = lines->series->pdata[i];
    if (series->name == NULL || series->points->len == 0)
      continue;
    double y = point_of (series, series->points->len - 1)->y;
    double at = CLAMP (sp_axis_at (&lines->y, y), 0, 1);
    names[n++] = (Name){ series, axes->bottom + at * (axes->top - axes->bottom), 0 };
  }
  qsort (names, n, sizeof *names, compare_names);
  push_apart (names, n, axes->bottom + 4, axes->top);
  for (guint i = 0; i < n; i++) {
    const SpSeries *series = names[i].series;
    g_autofree char *text = sp_text_shorten (series->name, size, right - axes->right - 20);
    g_autofree char *quoted = sp_figure_quote (text);
    const char *colour = series->plain ? SP_GREY : sp_style_colour (series->style);
    gint offset = !series->marked ? 0 : sp_figure_is_text (figure) ? 2 : 1;
    sp_figure_add (figure, "set label %s at screen %.5f,%.5f left offset %d,0 font ',%d' tc rgb '" SP_INK "'", quoted,
                   (axes->right + (series->marked ? 10 : 18)) / figure->width, names[i].y / figure->height, offset,
                   size);
    if (series->marked)
      sp_figure_add (figure, " point pt %d ps %.2f lc rgb '%s'", sp_style_point (series->style),
                     sp_figure_point (figure, 0.8), colour);
    sp_figure_add (figure, " front\n");
    if (!series->marked)
      sp_figure_line (figure, axes->right + 4, names[i].y, axes->right + 14, names[i].y,
                      series->plain ? "lc rgb '" SP_GREY "' lw 1 dt 2" : "lc rgb '#000000' lw 2");
  }
}

/* --- curves ------------------------------------------------------------------------------------------------------- */

/* Its points, at most so many; of more, evenly some. */
static guint
add_block (SpFigure *figure, const SpSeries *series, gint mark)
{
  guint n = series->points->len, stride = n / MOST_POINTS + 1;

  for (guint i = 0; i < n; i++) {
    const SpChartPoint *p = point_of (series, i);
    if ((mark >= 0 && p->mark != mark) || (i % stride != 0 && i + 1 < n))
      continue;
    sp_figure_row (figure, 2, (const double[]){ p->x, p->y });
  }
  if (g_str_has_suffix (figure->data->str, "\n\n") || figure->data->len == 0)
    sp_figure_row (figure, 2, (const double[]){ NAN, NAN });
  return sp_figure_block (figure);
}

static gboolean
has_mark (const SpSeries *series, SpPointMark mark)
{
  for (guint i = 0; i < series->points->len; i++)
    if (point_of (series, i)->mark == mark)
      return TRUE;
  return FALSE;
}

/* Where it fits a line with markers; on to what does not, dots; and crosses there. */
static void
add_curve (SpFigure *figure, const SpSeries *series, const char **comma)
{
  const char *colour = series->plain ? SP_GREY : sp_style_colour (series->style);
  gboolean out = has_mark (series, SP_POINT_OUT), in = has_mark (series, SP_POINT_FITS);
  gint point = series->open ? sp_style_open_point (series->style) : sp_style_point (series->style);

  if (series->joined && out) {
    sp_figure_add (figure, "%sdata index %u using 1:2 with lines lw 1 dt 3 lc rgb '%s'", *comma,
                   add_block (figure, series, -1), colour);
    *comma = ", ";
  }
  if (in && series->joined) {
    sp_figure_add (figure, "%sdata index %u using 1:2 with lines lw %s dt %d lc rgb '%s'", *comma,
                   add_block (figure, series, SP_POINT_FITS), series->plain ? "1" : "2",
                   series->plain ? 2 : sp_style_dash (series->style), colour);
    *comma = ", ";
  }
  if (in && series->marked && (!series->joined || series->points->len <= MOST_MARKERS)) {
    sp_figure_add (figure, "%sdata index %u using 1:2 with points pt %d ps %.2f lw 1.5 lc rgb '%s'", *comma,
                   add_block (figure, series, SP_POINT_FITS), point, sp_figure_point (figure, 0.8), colour);
    *comma = ", ";
  }
  if (out) {
    sp_figure_add (figure, "%sdata index %u using 1:2 with points pt 2 ps %.2f lw 2 lc rgb '%s'", *comma,
                   add_block (figure, series, SP_POINT_OUT), sp_figure_point (figure, 1.1), colour);
    *comma = ", ";
  }
}

static void
draw_level (SpFigure *figure, const SpLines *lines, const SpBox *axes)
{
  double at = axes->bottom + sp_axis_at (&lines->y, lines->level) * (axes->top - axes->bottom);

  if (isnan (lines->level))
    return;
  sp_figure_add (figure,
                 "set object rectangle from screen %.5f,%.5f to screen %.5f,%.5f fs solid 1 noborder fc rgb "
                 "'#f3f3f3' behind\n",
                 axes->left / figure->width, at / figure->height, axes->right / figure->width,
                 axes->top / figure->height);
  sp_figure_line (figure, axes->left, at, axes->right, at, "lc rgb '" SP_GREY "' lw 1.5 dt 2");
  g_autofree char *name = sp_text_shorten (lines->level_name, SP_FONT_SMALL, axes->right - axes->left - 8);
  sp_figure_label (figure, axes->left + 6, axes->top - 9, "left", SP_FONT_SMALL, SP_GREY, name);
}

void
sp_lines_draw (SpFigure *figure, SpLines *lines, const SpBox *place)
{
  double most = 0.55 * (place->right - place->left);
  gint size = names_width (lines, SP_FONT_SMALL + 1) <= most ? SP_FONT_SMALL + 1 : SP_FONT_SMALL - 1;
  double names = MIN (names_width (lines, size), most);
  SpBox axes = { place->left, place->right - MAX (names, 22), place->bottom + 38, place->top - 24 };
  const char *comma = "plot ";

  cover (lines);
  g_autoptr (GArray) y = sp_axis_ticks (&lines->y, axes.top - axes.bottom, sp_figure_is_text (figure) ? 48 : 36);
  axes.left += sp_ticks_width (y) + (sp_figure_is_text (figure) ? 3 * SP_CELL_WIDTH : 12);
  double room = lines->x.scale == SP_SCALE_NAMES || lines->x.tokens ? 44 : 56;
  g_autoptr (GArray) x = sp_axis_ticks (&lines->x, axes.right - axes.left, room);
  sp_figure_panel (figure, axes.left, axes.right, axes.bottom, axes.top);
  if (lines->legend != NULL) {
    const SpBox legend = { place->left, place->right, place->bottom, place->top - 20 };
    axes.top = place->top - 26 - sp_legend_draw (figure, lines->legend, NULL, &legend);
    sp_figure_add (figure, "set tmargin at screen %.5f\n", axes.top / figure->height);
  }
  sp_axis_set (figure, 'x', &lines->x, x);
  sp_axis_set (figure, 'y', &lines->y, y);
  sp_axis_names (figure, 'x', &lines->x, x, &axes);
  sp_chart_title (figure, place, lines->y.label);
  sp_figure_label (figure, (axes.left + axes.right) / 2, place->bottom + 8, "center", SP_FONT, SP_INK, lines->x.label);
  if (sp_figure_is_text (figure)) /* it would be of stars */
    sp_figure_add (figure, "unset grid\n");
  draw_level (figure, lines, &axes);
  draw_names (figure, lines, &axes, place->right, size);
  for (gboolean plain = TRUE; plain >= FALSE; plain--) /* what is measured stands before what it is held to */
    for (guint i = 0; i < lines->series->len; i++)
      if (((const SpSeries *) lines->series->pdata[i])->plain == plain)
        add_curve (figure, lines->series->pdata[i], &comma);
  if (*comma == 'p') /* an axis needs something */
    sp_figure_add (figure, "plot NaN");
  sp_figure_add (figure, "\n");
}
