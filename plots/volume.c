/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a step: what a GPU hands over and what that puts on links, by axis; and of each kind of link the busiest
 * one, by axis. Columns: of (axis or link), name, payload_bytes_per_gpu, wire_bytes_per_gpu, busy_s, AXIS_bytes,
 * step_time_s. */
#include <math.h>
#include <string.h>

#include "plots/kind.h"

static const char *
unit_of (double bytes, double *ret)
{
  static const char *const names[] = { "MiB", "GiB", "TiB" };
  guint i = 0;

  for (*ret = 0x1p20; i + 1 < G_N_ELEMENTS (names) && bytes / *ret >= 4096; i++)
    *ret *= 1024;
  return names[i];
}

static double
number (const SpCsv *csv, guint row, gint column)
{
  double value = sp_csv_number (csv, row, column);

  return isnan (value) ? 0 : value;
}

static gboolean
is_of (const SpCsv *csv, guint row, gint of, const char *word)
{
  g_autofree char *text = sp_csv_text (csv, row, of);

  return g_str_equal (text, word);
}

typedef struct {
  gint of, name, payload, wire, busy, step;
  GArray *axes; /* gint: columns of AXIS_bytes that are not nothing */
} Columns;

static void
find_axes (const SpCsv *csv, Columns *c)
{
  for (gint column = 0; column < (gint) csv->n_columns; column++) {
    double sum = 0;
    for (guint row = 0; row < csv->rows->len && g_str_has_suffix (csv->columns[column], "_bytes"); row++)
      sum += number (csv, row, column);
    if (sum > 0)
      g_array_append_val (c->axes, column);
  }
}

static void
draw_axes (SpFigure *figure, const SpCsv *csv, const Columns *c, const SpBox *place)
{
  double most = 0, unit;

  for (guint row = 0; row < csv->rows->len; row++)
    most = MAX (most, MAX (number (csv, row, c->payload), number (csv, row, c->wire)));
  const char *name = unit_of (most, &unit);
  g_autofree char *label = g_strdup_printf ("a GPU in a step: payload, and what goes on links, %s", name);
  g_autoptr (SpBars) bars = sp_bars_new (label);
  sp_bars_part (bars, label);
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *axis = sp_csv_text (csv, row, c->name);
    if (!is_of (csv, row, c->of, "axis"))
      continue;
    g_autofree char *payload = g_strconcat (axis, ": payload", NULL), *wire = g_strconcat (axis, ": on links", NULL);
    sp_bars_add (bars, payload)->parts[0] = number (csv, row, c->payload) / unit;
    sp_bars_add (bars, wire)->parts[0] = number (csv, row, c->wire) / unit;
  }
  sp_bars_draw (figure, bars, place);
}

static void
draw_links (SpFigure *figure, const SpCsv *csv, const Columns *c, const SpBox *place)
{
  double most = 0, unit, step = 0;

  for (guint row = 0; row < csv->rows->len; row++) {
    double sum = 0;
    for (guint i = 0; i < c->axes->len; i++)
      sum += number (csv, row, g_array_index (c->axes, gint, i));
    most = MAX (most, sum);
    step = MAX (step, number (csv, row, c->step));
  }
  const char *name = unit_of (most, &unit);
  g_autofree char *label =
      g_strdup_printf ("the busiest link of each kind in a step, %s; and its share of the step", name);
  g_autoptr (SpBars) bars = sp_bars_new (label);
  for (guint i = 0; i < c->axes->len; i++) {
    const char *column = csv->columns[g_array_index (c->axes, gint, i)];
    g_autofree char *axis = g_strndup (column, strlen (column) - strlen ("_bytes"));
    sp_bars_part (bars, axis);
  }
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *kind = sp_csv_text (csv, row, c->name);
    double sum = 0;
    if (!is_of (csv, row, c->of, "link"))
      continue;
    SpBar *bar = sp_bars_add (bars, kind);
    for (guint i = 0; i < c->axes->len; i++)
      sum += bar->parts[i] = number (csv, row, g_array_index (c->axes, gint, i)) / unit;
    g_autofree char *bytes = sp_number_text (sum >= 100 ? round (sum) : round (sum * 100) / 100);
    bar->note = g_strdup_printf ("%s, %.2g %%", bytes, step > 0 ? 100 * number (csv, row, c->busy) / step : 0);
  }
  sp_bars_draw (figure, bars, place);
}

/* Rows of both charts share the height by their bars. */
static void
cut (const SpFigure *figure, const SpCsv *csv, const Columns *c, SpBox *upper, SpBox *lower)
{
  guint axes = 0, links = 0;

  for (guint row = 0; row < csv->rows->len; row++) {
    axes += is_of (csv, row, c->of, "axis");
    links += is_of (csv, row, c->of, "link");
  }
  *upper = *lower = sp_figure_place (figure, 0, 1, 0, 1);
  double above = sp_bars_height (MAX (2 * axes, 1), FALSE), below = sp_bars_height (MAX (links, 1), TRUE);
  double border = upper->top - (upper->top - upper->bottom) * above / (above + below);
  upper->bottom = border + 8;
  lower->top = border - 8;
}

gint
sp_volume_measure (const SpCsv *csv)
{
  gint of = sp_csv_find (csv, "of");
  guint bars = 0;

  for (guint row = 0; of >= 0 && row < csv->rows->len && bars < 100; row++)
    bars += is_of (csv, row, of, "axis") ? 2 : 1;
  return (gint) (sp_bars_height (MAX (bars, 2), TRUE) + sp_bars_height (0, FALSE)) + 80;
}

gboolean
sp_kind_volume (SpFigure *figure, const SpCsv *csv, GError **error)
{
  Columns c;
  SpBox upper, lower;

  if (!sp_csv_need (csv, "of", &c.of, error) || !sp_csv_need (csv, "name", &c.name, error) ||
      !sp_csv_need (csv, "payload_bytes_per_gpu", &c.payload, error) ||
      !sp_csv_need (csv, "wire_bytes_per_gpu", &c.wire, error) || !sp_csv_need (csv, "busy_s", &c.busy, error) ||
      !sp_csv_need (csv, "step_time_s", &c.step, error))
    return FALSE;
  if (csv->rows->len == 0)
    return sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: no GPU sends anything: there is nothing to draw",
                           csv->path);
  g_autoptr (GArray) axes = g_array_new (FALSE, FALSE, sizeof (gint));
  c.axes = axes;
  find_axes (csv, &c);
  cut (figure, csv, &c, &upper, &lower);
  sp_kind_subject (figure, csv, "");
  sp_figure_frame (figure);
  draw_axes (figure, csv, &c, &upper);
  if (axes->len > 0)
    draw_links (figure, csv, &c, &lower);
  return TRUE;
}
