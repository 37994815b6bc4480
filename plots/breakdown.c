/* SPDX-License-Identifier: Apache-2.0 */
/* Where a step's time goes. Columns: the keys, outcome, compute_s, AXIS_exposed_s, bubble_s, host_s, idle_s. Who publishes
 * the whole alone has undivided_s in their place. */
#include <string.h>

#include "plots/kind.h"

/* What a sweep with one scope is of; a step where none is said. */
static char *
label_of (const SpCsv *csv, const char *unit)
{
  gint column = sp_csv_find (csv, "scope");
  g_autofree char *scope = column >= 0 ? sp_csv_text (csv, 0, column) : g_strdup ("step");

  for (guint row = 1; column >= 0 && row < csv->rows->len; row++) {
    g_autofree char *other = sp_csv_text (csv, row, column);
    if (!g_str_equal (scope, other))
      return g_strdup_printf ("time, %s", unit);
  }
  return g_strdup_printf ("time of %s %s, %s", column >= 0 ? "the" : "a", scope, unit);
}

/* Columns that end so, by what stands before that. */
static void
add_axes (const SpBarRows *rows, GArray *parts, const char *suffix, const char *format)
{
  for (guint c = 0; c < rows->csv->n_columns; c++) {
    const char *column = rows->csv->columns[c];
    if (!g_str_has_suffix (column, suffix))
      continue;
    g_autofree char *stem = g_strndup (column, strlen (column) - strlen (suffix));
    g_autofree char *name = g_strdup_printf (format, stem);
    sp_bar_part_add (rows, parts, column, name, parts->len);
  }
}

gboolean
sp_kind_breakdown (SpFigure *figure, const SpCsv *csv, GError **error)
{
  g_auto (SpBarRows) rows = { NULL };
  g_autoptr (GArray) parts = sp_bar_parts_new ();
  SpBox place = sp_figure_place (figure, 0, 1, 0, 1);
  gint compute;

  if (!sp_bar_rows_init (&rows, csv, error) || !sp_csv_need (csv, "compute_s", &compute, error))
    return FALSE;
  sp_bar_rows_begin (figure, &rows);
  sp_bar_part_add (&rows, parts, "compute_s", "compute", parts->len);
  add_axes (&rows, parts, "_exposed_s", "exposed %s");
  sp_bar_part_add (&rows, parts, "bubble_s", "bubble", parts->len);
  sp_bar_part_add (&rows, parts, "host_s", "host", parts->len);
  sp_bar_part_add (&rows, parts, "idle_s", "idle", parts->len);
  sp_bar_part_add (&rows, parts, "undivided_s", "undivided", SP_STYLES - 2);
  double longest = 0;
  for (guint i = 0; i < rows.rows->len; i++)
    for (guint p = 0; p < parts->len; p++)
      longest = MAX (longest, sp_bar_rows_number (&rows, i, g_array_index (parts, SpBarPart, p).column));
  g_autofree char *label = label_of (csv, longest < 1 ? "ms" : "s");
  g_autoptr (SpBars) bars = sp_bar_rows_stack (&rows, label, parts, longest < 1 ? 1e-3 : 1);
  sp_bars_draw (figure, bars, &place);
  return TRUE;
}
