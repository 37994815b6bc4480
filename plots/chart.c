/* SPDX-License-Identifier: Apache-2.0 */
/* Title, small print, and the places of charts between them. */
#include "plots/chart.h"

#define MARGIN 14
#define TITLE_HEIGHT 26
#define PRINT_HEIGHT 30 /* two lines */
#define GAP 26          /* between charts */

gboolean
sp_figure_is_text (const SpFigure *figure)
{
  return figure->format == SP_FORMAT_TEXT;
}

SpBox
sp_figure_place (const SpFigure *figure, guint column, guint n_columns, guint row, guint n_rows)
{
  gboolean text = sp_figure_is_text (figure);

  if (text) {
    row = row * n_columns + column;
    n_rows *= n_columns;
    column = 0;
    n_columns = 1;
  }
  double left = text ? 0 : MARGIN, right = figure->width - left;
  double bottom = text ? 0 : PRINT_HEIGHT + 6, top = figure->height - (text ? 0 : TITLE_HEIGHT + 6);
  double width = (right - left - GAP * (n_columns - 1)) / n_columns;
  double height = (top - bottom - GAP * (n_rows - 1)) / n_rows;
  double x = left + column * (width + GAP), y = top - row * (height + GAP);

  return (SpBox){ x, x + width, y - height, y };
}

/* On two lines where one is too short: broken between parts. */
static void
draw_print (SpFigure *figure, double width)
{
  g_auto (GStrv) parts = g_strsplit (figure->small_print, " | ", -1);
  g_autoptr (GString) first = g_string_new (NULL), second = g_string_new (NULL);
  GString *lines[] = { first, second };
  guint line = 0;

  for (guint i = 0; parts[i] != NULL; i++) {
    g_autofree char *more = g_strconcat (lines[line]->str, lines[line]->len > 0 ? " | " : "", parts[i], NULL);
    if (line == 0 && lines[0]->len > 0 && sp_text_width (more, SP_FONT_SMALL) > width)
      g_string_assign (lines[++line], parts[i]);
    else
      g_string_assign (lines[line], more);
  }
  for (guint i = 0; i <= line; i++) {
    g_autofree char *text = sp_text_shorten (lines[i]->str, SP_FONT_SMALL, width);
    sp_figure_label (figure, MARGIN, line == i ? 10 : 22, "left", SP_FONT_SMALL - 1, SP_GREY, text);
  }
}

/* Of text they stand before and behind it. */
void
sp_figure_frame (SpFigure *figure)
{
  if (sp_figure_is_text (figure))
    return;
  double width = figure->width - 2 * MARGIN;
  g_autofree char *title = sp_text_shorten (figure->title, SP_FONT + 2, width);
  sp_figure_panel (figure, 0, figure->width, 0, figure->height);
  sp_figure_label (figure, MARGIN, figure->height - 18, "left", SP_FONT + 2, SP_INK, title);
  draw_print (figure, width);
  sp_figure_add (figure, "unset border\nunset tics\nunset grid\nset xrange [0:1]\nset yrange [0:1]\nplot NaN\n");
}

void
sp_chart_title (SpFigure *figure, const SpBox *place, const char *text)
{
  double width = place->right - place->left;
  gint size = SP_FONT;

  while (size > SP_FONT_SMALL - 1 && sp_text_width (text, size) > width)
    size--;
  g_autofree char *shown = sp_text_shorten (text, size, width);
  sp_figure_label (figure, place->left, place->top - 8, "left", size, SP_INK, shown);
}
