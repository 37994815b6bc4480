/* SPDX-License-Identifier: Apache-2.0 */
/* Parts on top of each other over time. */
#include <math.h>

#include "plots/chart.h"

SpAreas *
sp_areas_new (const char *x, const char *y)
{
  SpAreas *areas = g_new0 (SpAreas, 1);

  areas->x = (SpChartAxis){ .label = x, .min = NAN, .max = NAN };
  areas->y = (SpChartAxis){ .label = y, .min = NAN, .max = NAN };
  areas->parts = g_ptr_array_new_with_free_func (g_free);
  areas->dates = g_array_new (FALSE, FALSE, sizeof (double));
  areas->values = g_array_new (FALSE, FALSE, sizeof (double));
  areas->level = NAN;
  return areas;
}

void
sp_areas_free (SpAreas *areas)
{
  if (areas == NULL)
    return;
  g_ptr_array_unref (areas->parts);
  g_clear_pointer (&areas->styles, g_array_unref);
  g_array_unref (areas->dates);
  g_array_unref (areas->values);
  g_free (areas);
}

/* Of the parts below `part`. */
static double
below (const SpAreas *areas, guint date, guint part)
{
  double sum = 0;

  for (guint p = 0; p < part; p++)
    sum += g_array_index (areas->values, double, date * areas->parts->len + p);
  return sum;
}

static double
date_of (const SpAreas *areas, guint i)
{
  return i < areas->dates->len ? g_array_index (areas->dates, double, i) : areas->end;
}

static void
cover (SpAreas *areas)
{
  sp_axis_cover (&areas->x, 0);
  sp_axis_cover (&areas->x, areas->end);
  sp_axis_cover (&areas->y, 0);
  for (guint i = 0; i < areas->dates->len; i++)
    sp_axis_cover (&areas->y, below (areas, i, areas->parts->len));
  sp_axis_cover (&areas->y, areas->level);
}

/* A part between what is below it and with it, as steps. */
static guint
add_part (SpFigure *figure, const SpAreas *areas, guint part)
{
  for (guint i = 0; i < areas->dates->len; i++) {
    double low = below (areas, i, part), high = below (areas, i, part + 1);
    sp_figure_row (figure, 3, (const double[]){ date_of (areas, i), low, high });
    sp_figure_row (figure, 3, (const double[]){ date_of (areas, i + 1), low, high });
  }
  return sp_figure_block (figure);
}

static void
add_parts (SpFigure *figure, const SpAreas *areas)
{
  for (guint part = 0; part < areas->parts->len; part++) {
    guint block = add_part (figure, areas, part);
    sp_figure_add (figure, "%sdata index %u using 1:2:3 with filledcurves fs solid 1 noborder fc rgb '%s'",
                   part > 0 ? ", " : "plot ", block, sp_style_colour (sp_style_of (areas->styles, part)));
    if (sp_style_pattern (sp_style_of (areas->styles, part)) > 0)
      sp_figure_add (
          figure, ", data index %u using 1:2:3 with filledcurves fs transparent pattern %d noborder fc rgb '#ffffff'",
          block, sp_style_pattern (sp_style_of (areas->styles, part)));
  }
  sp_figure_add (figure, "%s\n", areas->parts->len == 0 ? "plot NaN" : "");
}

void
sp_areas_draw (SpFigure *figure, SpAreas *areas, const SpBox *place)
{
  gboolean text = sp_figure_is_text (figure);
  SpBox axes = { place->left, place->right - 16, place->bottom + 38, place->top - 24 };

  cover (areas);
  double end = areas->x.max;
  g_autoptr (GArray) y = sp_axis_ticks (&areas->y, axes.top - axes.bottom, text ? 48 : 36);
  axes.left += sp_ticks_width (y) + (text ? 3 * SP_CELL_WIDTH : 12);
  g_autoptr (GArray) x = sp_axis_ticks (&areas->x, axes.right - axes.left, 64);
  areas->x.max = end;
  sp_figure_panel (figure, axes.left, axes.right, axes.bottom, axes.top);
  const SpBox legend = { place->left, place->right, place->bottom, place->top - 20 };
  axes.top = place->top - 26 - sp_legend_draw (figure, areas->parts, areas->styles, &legend);
  sp_figure_add (figure, "set tmargin at screen %.5f\n%s", axes.top / figure->height, text ? "unset grid\n" : "");
  sp_axis_set (figure, 'x', &areas->x, x);
  sp_axis_set (figure, 'y', &areas->y, y);
  sp_chart_title (figure, place, areas->y.label);
  sp_figure_label (figure, (axes.left + axes.right) / 2, place->bottom + 8, "center", SP_FONT, SP_INK, areas->x.label);
  if (!isnan (areas->level)) {
    double at = axes.bottom + sp_axis_at (&areas->y, areas->level) * (axes.top - axes.bottom);
    gboolean high = at > axes.top - 14;
    sp_figure_line (figure, axes.left, at, axes.right, at, "front lc rgb '" SP_INK "' lw 1.5 dt 2");
    sp_figure_label (figure, axes.right - 4, at + (high ? -9 : 8), "right", SP_FONT_SMALL, SP_INK, areas->level_name);
  }
  add_parts (figure, areas);
}
