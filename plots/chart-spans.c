/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of time in rows: who does what when. */
#include <math.h>
#include <string.h>

#include "plots/chart.h"

#define TEXT_ROW 72

SpSpans *
sp_spans_new (const char *label)
{
  SpSpans *spans = g_new0 (SpSpans, 1);

  spans->label = label;
  spans->rows = g_ptr_array_new_with_free_func (g_free);
  spans->kinds = g_ptr_array_new_with_free_func (g_free);
  spans->spans = g_array_new (FALSE, FALSE, sizeof (SpSpan));
  return spans;
}

void
sp_spans_free (SpSpans *spans)
{
  if (spans == NULL)
    return;
  g_ptr_array_unref (spans->rows);
  g_ptr_array_unref (spans->kinds);
  g_array_unref (spans->spans);
  g_free (spans);
}

static const SpSpan *
span_of (const SpSpans *spans, guint i)
{
  return &g_array_index (spans->spans, SpSpan, i);
}

static void
set_axis (const SpSpans *spans, SpChartAxis *axis)
{
  *axis = (SpChartAxis){ .label = spans->label, .min = NAN, .max = NAN };
  sp_axis_cover (axis, 0);
  for (guint i = 0; i < spans->spans->len; i++)
    sp_axis_cover (axis, span_of (spans, i)->end);
}

static void
add_kinds (SpFigure *figure, const SpSpans *spans, double pixel)
{
  const char *comma = "plot ";
  double least = figure->format == SP_FORMAT_SVG ? pixel : 0; /* what is narrower is nothing to that terminal */

  for (guint kind = 0; kind < spans->kinds->len; kind++) {
    guint n = 0;
    for (guint i = 0; i < spans->spans->len; i++) {
      const SpSpan *span = span_of (spans, i);
      if (span->kind != kind)
        continue;
      sp_figure_row (figure, 6,
                     (const double[]){ (span->begin + span->end) / 2, span->row, span->begin,
                                       MAX (span->end, span->begin + least), span->row - 0.38, span->row + 0.38 });
      n++;
    }
    if (n == 0)
      continue;
    guint block = sp_figure_block (figure);
    sp_figure_add (figure, "%sdata index %u using 1:2:3:4:5:6 with boxxyerror fs solid 1 noborder fc rgb '%s'", comma,
                   block, sp_style_colour (kind));
    comma = ", ";
    if (sp_style_pattern (kind) > 0)
      sp_figure_add (figure,
                     ", data index %u using 1:2:3:4:5:6 with boxxyerror fs transparent pattern %d noborder fc rgb "
                     "'#ffffff'",
                     block, sp_style_pattern (kind));
  }
  sp_figure_add (figure, "%s\n", *comma == 'p' ? "plot NaN" : "");
}

static void
draw (SpFigure *figure, const SpSpans *spans, const SpBox *place)
{
  SpBox axes = { place->left, place->right - 16, place->bottom + 38, place->top };
  SpChartAxis axis;
  double names = 0;

  for (guint i = 0; i < spans->rows->len; i++)
    names = MAX (names, sp_text_width (spans->rows->pdata[i], SP_FONT_SMALL) + 12);
  axes.left += MIN (names, 0.4 * (place->right - place->left));
  sp_figure_panel (figure, axes.left, axes.right, axes.bottom, axes.top);
  axes.top -= sp_legend_draw (figure, spans->kinds, NULL, place) + 6;
  sp_figure_add (figure, "set tmargin at screen %.5f\n", axes.top / figure->height);
  set_axis (spans, &axis);
  double most = axis.max;
  g_autoptr (GArray) ticks = sp_axis_ticks (&axis, axes.right - axes.left, 64);
  axis.max = most; /* a step ends where it ends */
  sp_axis_set (figure, 'x', &axis, ticks);
  sp_figure_add (figure,
                 "set yrange [%u.5:-0.5] noextend\nset ytics format '' scale 0\nunset grid\n"
                 "set grid xtics lt 1 lc rgb '" SP_PALE "' lw 0.7\n",
                 spans->rows->len - 1);
  double pitch = (axes.top - axes.bottom) / spans->rows->len;
  for (guint i = 0; i < spans->rows->len; i += (guint) MAX (ceil ((SP_FONT_SMALL + 1) / pitch), 1)) {
    g_autofree char *name = sp_text_shorten (spans->rows->pdata[i], SP_FONT_SMALL, axes.left - place->left - 8);
    sp_figure_label (figure, axes.left - 6, axes.top - (i + 0.5) * pitch, "right", SP_FONT_SMALL, SP_INK, name);
  }
  sp_figure_label (figure, (axes.left + axes.right) / 2, place->bottom + 8, "center", SP_FONT, SP_INK, spans->label);
  add_kinds (figure, spans, (axis.max - axis.min) / (axes.right - axes.left));
}

/* --- as text ------------------------------------------------------------------------------------------------------ */

static const char letters[] = "#=+-:*o.";

/* Each column shows what fills most of it. */
static void
write_row (SpFigure *figure, const SpSpans *spans, guint row, double end)
{
  g_autofree double *filled = g_new0 (double, MAX (spans->kinds->len, 1) * TEXT_ROW);
  double column = end / TEXT_ROW;

  for (guint i = 0; i < spans->spans->len; i++) {
    const SpSpan *span = span_of (spans, i);
    for (gint c = (gint) (span->begin / column); span->row == row && c < TEXT_ROW && c * column < span->end; c++)
      filled[span->kind * TEXT_ROW + (guint) c] += MIN (span->end, (c + 1) * column) - MAX (span->begin, c * column);
  }
  for (guint c = 0; c < TEXT_ROW; c++) {
    guint most = 0;
    for (guint k = 1; k < spans->kinds->len; k++)
      most = filled[k * TEXT_ROW + c] > filled[most * TEXT_ROW + c] ? k : most;
    g_string_append_c (figure->text,
                       filled[most * TEXT_ROW + c] > 0.25 * column ? letters[most % strlen (letters)] : ' ');
  }
}

static void
write_text (SpFigure *figure, const SpSpans *spans)
{
  SpChartAxis axis;
  glong width = 0;

  set_axis (spans, &axis);
  g_autofree char *end = sp_number_text (axis.max);
  for (guint i = 0; i < spans->kinds->len; i++)
    g_string_append_printf (figure->text, "%s%c %s", i > 0 ? ", " : "  ", letters[i % strlen (letters)],
                            (char *) spans->kinds->pdata[i]);
  g_string_append_c (figure->text, '\n');
  for (guint i = 0; i < spans->rows->len; i++)
    width = MAX (width, g_utf8_strlen (spans->rows->pdata[i], -1));
  for (guint i = 0; i < spans->rows->len; i++) {
    const char *name = spans->rows->pdata[i];
    g_string_append_printf (figure->text, "  %s%*s |", name, (int) (width - g_utf8_strlen (name, -1)), "");
    write_row (figure, spans, i, axis.max);
    g_string_append (figure->text, "|\n");
  }
  g_string_append_printf (figure->text, "  0 to %s, %s\n", end, spans->label);
}

void
sp_spans_draw (SpFigure *figure, SpSpans *spans, const SpBox *place)
{
  if (sp_figure_is_text (figure))
    write_text (figure, spans);
  else
    draw (figure, spans, place);
}
