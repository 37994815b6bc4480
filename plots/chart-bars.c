/* SPDX-License-Identifier: Apache-2.0 */
/* Bars from left to right, of one part or of several behind each other. */
#include <math.h>
#include <string.h>

#include "plots/chart.h"

#define WIDEST_BAR 26
#define PITCH 26
#define LEGEND 18 /* of a line of it */
#define TEXT_BAR 48

static void
bar_free (gpointer data)
{
  SpBar *bar = data;

  g_free (bar->name);
  g_free (bar->parts);
  g_free (bar->note);
  g_free (bar);
}

SpBars *
sp_bars_new (const char *label)
{
  SpBars *bars = g_new0 (SpBars, 1);

  bars->label = label;
  bars->parts = g_ptr_array_new_with_free_func (g_free);
  bars->styles = g_array_new (FALSE, FALSE, sizeof (guint));
  bars->bars = g_ptr_array_new_with_free_func (bar_free);
  bars->level = NAN;
  return bars;
}

void
sp_bars_free (SpBars *bars)
{
  if (bars == NULL)
    return;
  g_ptr_array_unref (bars->parts);
  g_array_unref (bars->styles);
  g_ptr_array_unref (bars->bars);
  g_free (bars);
}

void
sp_bars_part_styled (SpBars *bars, const char *name, guint style)
{
  g_ptr_array_add (bars->parts, g_strdup (name));
  g_array_append_val (bars->styles, style);
}

void
sp_bars_part (SpBars *bars, const char *name)
{
  sp_bars_part_styled (bars, name, bars->parts->len);
}

SpBar *
sp_bars_add (SpBars *bars, const char *name)
{
  SpBar *bar = g_new0 (SpBar, 1);

  bar->name = g_strdup (name);
  bar->parts = g_new0 (double, MAX (bars->parts->len, 1));
  g_ptr_array_add (bars->bars, bar);
  return bar;
}

double
sp_bars_height (guint n_bars, gboolean legend)
{
  return 24 + (legend ? 2 * LEGEND : 0) + 12 + n_bars * PITCH + 28;
}

static double
length_of (const SpBars *bars, const SpBar *bar)
{
  double sum = 0;

  for (guint i = 0; i < bars->parts->len; i++)
    sum += bar->parts[i];
  return sum;
}

static char *
note_of (const SpBars *bars, const SpBar *bar)
{
  g_autofree char *length = sp_number_text (round (length_of (bars, bar)));
  char digits[G_ASCII_DTOSTR_BUF_SIZE];
  double value = length_of (bars, bar);

  if (bar->note != NULL)
    return g_strdup (bar->note);
  if (bar->out && value == 0) /* how much it lacks is not said */
    return g_strdup ("x out of memory");
  g_ascii_formatd (digits, sizeof digits, value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.3g", value);
  return g_strdup_printf ("%s%s", value >= 1000 ? length : digits, bar->out ? "  x out of memory" : "");
}

/* --- legend ------------------------------------------------------------------------------------------------------- */

/* A part as it is filled: solid, and its pattern over that in white. */
static void
add_box (SpFigure *figure, double x0, double y0, double x1, double y1, guint style)
{
  const char *format =
      "set object rectangle from screen %.5f,%.5f to screen %.5f,%.5f front fs %s noborder fc rgb '%s'\n";
  g_autofree char *pattern = g_strdup_printf ("transparent pattern %d", sp_style_pattern (style));
  double w = figure->width, h = figure->height;

  sp_figure_add (figure, format, x0 / w, y0 / h, x1 / w, y1 / h, "solid 1", sp_style_colour (style));
  if (sp_style_pattern (style) > 0)
    sp_figure_add (figure, format, x0 / w, y0 / h, x1 / w, y1 / h, pattern, "#ffffff");
}

guint
sp_style_of (const GArray *styles, guint part)
{
  return styles != NULL ? g_array_index (styles, guint, part) : part;
}

double
sp_legend_draw (SpFigure *figure, const GPtrArray *names, const GArray *styles, const SpBox *place)
{
  double x = place->left, y = place->top - 10;

  for (guint i = 0; i < names->len; i++) {
    double width = 18 + sp_text_width (names->pdata[i], SP_FONT_SMALL + 1) + 12;
    if (x > place->left && x + width > place->right) {
      x = place->left;
      y -= LEGEND;
    }
    add_box (figure, x, y - 5, x + 12, y + 6, sp_style_of (styles, i));
    sp_figure_label (figure, x + 17, y, "left", SP_FONT_SMALL + 1, SP_INK, names->pdata[i]);
    x += width;
  }
  return place->top - y + 10;
}

/* --- with gnuplot ------------------------------------------------------------------------------------------------- */

static double
names_width (const SpBars *bars)
{
  double width = 0;

  for (guint i = 0; i < bars->bars->len; i++)
    width = MAX (width, sp_text_width (((SpBar *) bars->bars->pdata[i])->name, SP_FONT_SMALL + 1));
  return bars->unnamed ? 0 : width + 10;
}

static double
notes_width (const SpBars *bars)
{
  double width = 0;

  for (guint i = 0; i < bars->bars->len; i++) {
    g_autofree char *note = note_of (bars, bars->bars->pdata[i]);
    width = MAX (width, sp_text_width (note, SP_FONT_SMALL));
  }
  return width + 10;
}

/* What is far beyond the level is cut: the rest would be too short to see. */
static void
set_axis (const SpBars *bars, SpChartAxis *axis)
{
  *axis = (SpChartAxis){ .label = bars->label, .min = 0, .max = NAN };
  sp_axis_cover (axis, 0);
  for (guint i = 0; i < bars->bars->len; i++)
    sp_axis_cover (axis, length_of (bars, bars->bars->pdata[i]));
  if (!isnan (bars->level)) {
    sp_axis_cover (axis, bars->level);
    axis->max = MIN (axis->max, 1.6 * bars->level);
  }
}

static void
add_parts (SpFigure *figure, const SpBars *bars, double height, double max)
{
  const char *comma = "plot ";
  double pitch = height / bars->bars->len, half = MIN (0.65 * pitch, WIDEST_BAR) / pitch / 2;

  for (guint part = 0; part < bars->parts->len; part++) {
    guint n = 0;
    for (guint i = 0; i < bars->bars->len; i++) {
      const SpBar *bar = bars->bars->pdata[i];
      double from = 0;
      for (guint p = 0; p < part; p++)
        from += bar->parts[p];
      double to = MIN (from + bar->parts[part], max);
      if (to > from) {
        sp_figure_row (figure, 6, (const double[]){ (from + to) / 2, i, from, to, i - half, i + half });
        n++;
      }
    }
    if (n == 0)
      continue;
    guint block = sp_figure_block (figure);
    sp_figure_add (figure, "%sdata index %u using 1:2:3:4:5:6 with boxxyerror fs solid 1 noborder fc rgb '%s'", comma,
                   block, sp_style_colour (sp_style_of (bars->styles, part)));
    comma = ", ";
    if (sp_style_pattern (sp_style_of (bars->styles, part)) > 0)
      sp_figure_add (figure,
                     ", data index %u using 1:2:3:4:5:6 with boxxyerror fs transparent pattern %d noborder fc rgb "
                     "'#ffffff'",
                     block, sp_style_pattern (sp_style_of (bars->styles, part)));
  }
  sp_figure_add (figure, "%s\n", *comma == 'p' ? "plot NaN" : "");
}

/* Where a note of this width begins that would begin at `x`: behind the level's line, if that would go through it. */
static double
note_start (const SpBars *bars, const SpChartAxis *axis, const SpBox *axes, double x, double width)
{
  double level =
      isnan (bars->level) ? -INFINITY : axes->left + sp_axis_at (axis, bars->level) * (axes->right - axes->left);

  return level > x - 3 && level < x + width + 3 ? level + 5 : x;
}

static void
add_words (SpFigure *figure, const SpBars *bars, const SpBox *axes, const SpChartAxis *axis, double left)
{
  double pitch = (axes->top - axes->bottom) / bars->bars->len;

  gint size = (gint) CLAMP (pitch - 1, 7, SP_FONT_SMALL + 1);

  for (guint i = 0; i < bars->bars->len; i += (guint) MAX (ceil ((size + 1) / pitch), 1)) {
    const SpBar *bar = bars->bars->pdata[i];
    double y = axes->top - (i + 0.5) * pitch, length = length_of (bars, bar);
    double end = axes->left + MIN (sp_axis_at (axis, length), 1) * (axes->right - axes->left);
    g_autofree char *note = note_of (bars, bar), *cut = g_strdup_printf ("> %s", note);
    g_autofree char *name = sp_text_shorten (bar->name, size, axes->left - left - 8);
    const char *word = length > axis->max ? cut : note;
    double start = note_start (bars, axis, axes, end + 5, sp_text_width (word, SP_FONT_SMALL));
    sp_figure_label (figure, start, y, "left", MIN (size, SP_FONT_SMALL), bar->out ? "#b03000" : SP_INK, word);
    if (!bars->unnamed)
      sp_figure_label (figure, axes->left - 8, y, "right", size, SP_INK, name);
  }
}

static void
draw (SpFigure *figure, const SpBars *bars, const SpBox *place)
{
  gboolean legend = bars->parts->len > 1;
  SpBox axes = { place->left, place->right, place->bottom + 22, place->top - 24 };
  SpChartAxis axis;
  double names = MIN (names_width (bars), 0.45 * (place->right - place->left));

  axes.left += names;
  axes.right -= MIN (notes_width (bars), 0.4 * (axes.right - axes.left));
  sp_figure_panel (figure, axes.left, axes.right, axes.bottom, axes.top);
  if (legend) {
    const SpBox top = { place->left, place->right, place->bottom, place->top - 20 };
    axes.top = place->top - 22 - sp_legend_draw (figure, bars->parts, bars->styles, &top);
    sp_figure_add (figure, "set tmargin at screen %.5f\n", axes.top / figure->height);
  }
  if (!isnan (bars->level) || bars->headroom) { /* its name stands between */
    axes.top -= 12;
    sp_figure_add (figure, "set tmargin at screen %.5f\n", axes.top / figure->height);
  }
  set_axis (bars, &axis);
  g_autoptr (GArray) ticks = sp_axis_ticks (&axis, axes.right - axes.left, 56);
  sp_axis_set (figure, 'x', &axis, ticks);
  sp_figure_add (figure,
                 "set yrange [%u.5:-0.5] noextend\nset ytics format '' scale 0\nunset grid\n"
                 "set grid xtics lt 1 lc rgb '" SP_PALE "' lw 0.7\n",
                 bars->bars->len - 1);
  sp_chart_title (figure, place, bars->label);
  add_words (figure, bars, &axes, &axis, place->left);
  if (!isnan (bars->level)) {
    double x = axes.left + sp_axis_at (&axis, bars->level) * (axes.right - axes.left);
    sp_figure_line (figure, x, axes.bottom, x, axes.top + 14, "front lc rgb '" SP_INK "' lw 1.5 dt 2");
    gboolean right = x > (axes.left + axes.right) / 2;
    sp_figure_label (figure, x + (right ? -5 : 5), axes.top + 7, right ? "right" : "left", SP_FONT_SMALL, SP_GREY,
                     bars->level_name);
  }
  add_parts (figure, bars, axes.top - axes.bottom, axis.max);
}

/* --- as text ------------------------------------------------------------------------------------------------------ */

static const char letters[] = "#=+-:*o.";

static void
write_bar (SpFigure *figure, const SpBars *bars, const SpBar *bar, glong width, double max)
{
  g_autofree char *note = note_of (bars, bar);
  double at = 0;
  gint drawn = 0;

  g_string_append_printf (figure->text, "  %s%*s ", bar->name, (int) (width - g_utf8_strlen (bar->name, -1)), "");
  for (guint part = 0; part < bars->parts->len; part++) {
    at += bar->parts[part];
    for (; drawn < MIN (at / max, 1) * TEXT_BAR - 0.5; drawn++)
      g_string_append_c (figure->text, letters[part % strlen (letters)]);
  }
  g_string_append_printf (figure->text, "%s %s\n", at > max ? ">" : "", note);
}

static void
write_text (SpFigure *figure, const SpBars *bars)
{
  SpChartAxis axis;
  glong width = 0;

  set_axis (bars, &axis);
  g_string_append_printf (figure->text, "\n%s", bars->label);
  if (!isnan (bars->level))
    g_string_append_printf (figure->text, " (%s)", bars->level_name);
  g_string_append_c (figure->text, '\n');
  for (guint i = 0; bars->parts->len > 1 && i < bars->parts->len; i++)
    g_string_append_printf (figure->text, "%s%c %s", i > 0 ? ", " : "  ", letters[i % strlen (letters)],
                            (char *) bars->parts->pdata[i]);
  if (bars->parts->len > 1)
    g_string_append_c (figure->text, '\n');
  for (guint i = 0; i < bars->bars->len; i++)
    width = MAX (width, g_utf8_strlen (((SpBar *) bars->bars->pdata[i])->name, -1));
  for (guint i = 0; i < bars->bars->len; i++)
    write_bar (figure, bars, bars->bars->pdata[i], width, axis.max > 0 ? axis.max : 1);
}

void
sp_bars_draw (SpFigure *figure, SpBars *bars, const SpBox *place)
{
  if (sp_figure_is_text (figure))
    write_text (figure, bars);
  else
    draw (figure, bars, place);
}
