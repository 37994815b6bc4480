/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts side by side: throughput and memory. Columns: the keys, outcome, tokens_per_s, peak_bytes, capacity_bytes. */
#include <math.h>

#include "plots/kind.h"

static SpBars *
one_part (const SpBarRows *rows, const char *label, gint column, double unit)
{
  SpBars *bars = sp_bars_new (label);

  sp_bars_part (bars, label);
  for (guint i = 0; i < rows->rows->len; i++) {
    SpBar *bar = sp_bars_add (bars, rows->names->pdata[i]);
    bar->parts[0] = sp_bar_rows_number (rows, i, column) / unit;
    bar->out = !rows->fits[i];
    if (rows->fits[i] && isnan (sp_csv_number (rows->csv, g_array_index (rows->rows, guint, i), column)))
      bar->note = g_strdup ("not said"); /* by others, of a row of theirs */
  }
  return bars;
}

gboolean
sp_kind_compare (SpFigure *figure, const SpCsv *csv, GError **error)
{
  g_auto (SpBarRows) rows = { NULL };
  gint tokens, peak, capacity;

  if (!sp_bar_rows_init (&rows, csv, error) || !sp_csv_need (csv, "tokens_per_s", &tokens, error) ||
      !sp_csv_need (csv, "peak_bytes", &peak, error) || !sp_csv_need (csv, "capacity_bytes", &capacity, error))
    return FALSE;
  sp_bar_rows_begin (figure, &rows);
  double most = 0;
  const char *label;
  for (guint i = 0; i < rows.rows->len; i++)
    most = MAX (most, sp_bar_rows_number (&rows, i, tokens));
  double unit = sp_throughput_unit (most, &label);
  g_autoptr (SpBars) speed = one_part (&rows, label, tokens, unit);
  g_autoptr (SpBars) memory = one_part (&rows, "memory of the fullest GPU, GiB", peak, 0x1p30);
  SpBox left = sp_figure_place (figure, 0, 2, 0, 1), right = sp_figure_place (figure, 1, 2, 0, 1);
  double has = sp_bar_rows_capacity (&rows, capacity);
  g_autofree char *level = g_strdup_printf ("the GPU's %.0f GiB", has);
  for (guint i = 0; i < rows.rows->len; i++) /* said beside the memory */
    ((SpBar *) speed->bars->pdata[i])->out &= ((SpBar *) speed->bars->pdata[i])->parts[0] == 0;
  if (!sp_figure_is_text (figure)) {
    memory->unnamed = TRUE;
    left.right += 0.14 * figure->width; /* for the names */
    right.left += 0.14 * figure->width;
  }
  speed->headroom = TRUE;
  memory->level = has;
  memory->level_name = level;
  sp_bars_draw (figure, speed, &left);
  sp_bars_draw (figure, memory, &right);
  return TRUE;
}
