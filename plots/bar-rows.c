/* SPDX-License-Identifier: Apache-2.0 */
/* What kinds with a bar for each row of a sweep share. Rows that were refused have no bar; how many there are the small
 * print says. What others say of a row is the bar below it. */
#include <math.h>
#include <string.h>

#include "plots/kind.h"

#define MOST_BARS 60

void
sp_bar_rows_clear (SpBarRows *rows)
{
  g_clear_pointer (&rows->rows, g_array_unref);
  g_clear_pointer (&rows->names, g_ptr_array_unref);
  g_free (rows->fits);
}

static void
add_row (SpBarRows *rows, const SpSweepTable *table, guint row, const char *name)
{
  rows->fits[rows->rows->len] = table->fits[row];
  g_array_append_val (rows->rows, row);
  g_ptr_array_add (rows->names, g_strdup (name));
}

/* The sweep's rows in their order, below each what others say of it, and at the end what they say of no row here. */
static void
add_rows (SpBarRows *rows, const SpSweepTable *table, GStrv names)
{
  guint n = rows->csv->rows->len;
  g_autofree gboolean *taken = g_new0 (gboolean, n);

  for (guint row = 0; row < n; row++) {
    if (names[row] == NULL || table->published[row])
      continue;
    add_row (rows, table, row, *names[row] != '\0' || n > 1 ? names[row] : "this layout");
    for (guint other = 0; table->n_published > 0 && other < n; other++) {
      if (names[other] == NULL || !table->published[other] || taken[other] || !g_str_equal (names[other], names[row]))
        continue;
      taken[other] = TRUE;
      add_row (rows, table, other, "published");
    }
  }
  for (guint row = 0; row < n; row++) {
    g_autofree char *name = names[row] != NULL ? g_strdup_printf ("%s, published", names[row]) : NULL;
    if (name != NULL && table->published[row] && !taken[row])
      add_row (rows, table, row, name);
  }
}

gboolean
sp_bar_rows_init (SpBarRows *rows, const SpCsv *csv, GError **error)
{
  g_autoptr (SpSweepTable) table = sp_sweep_table_new (csv, error);
  g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);
  guint n_keys;

  if (table == NULL)
    return FALSE;
  if (table->n_priced > MOST_BARS)
    return sp_figure_fail (error, SP_FIGURE_ERROR_DATA,
                           "%s: %u bars are more than %d; scaling and heatmap show many points, or sweep fewer values",
                           csv->path, table->n_priced, MOST_BARS);
  g_autofree gboolean *varies = sp_sweep_varying (csv, &n_keys, error);
  rows->csv = csv;
  rows->rows = g_array_new (FALSE, FALSE, sizeof (guint));
  rows->names = g_ptr_array_new_with_free_func (g_free);
  rows->fits = g_new0 (gboolean, csv->rows->len);
  for (guint row = 0; row < csv->rows->len; row++)
    g_ptr_array_add (names, table->priced[row] ? sp_sweep_row_name (csv, row, varies, NULL) : NULL);
  add_rows (rows, table, (GStrv) names->pdata);
  return TRUE;
}

double
sp_bar_rows_number (const SpBarRows *rows, guint i, gint column)
{
  double value = column >= 0 ? sp_csv_number (rows->csv, g_array_index (rows->rows, guint, i), column) : NAN;

  return isnan (value) ? 0 : value;
}

void
sp_bar_rows_begin (SpFigure *figure, const SpBarRows *rows)
{
  guint left_out = rows->csv->rows->len - rows->rows->len;

  sp_kind_subject (figure, rows->csv, "");
  sp_kind_published (figure, rows->csv, "bars named published");
  if (left_out > 0) {
    g_autofree char *print = g_steal_pointer (&figure->small_print);
    figure->small_print =
        g_strdup_printf ("%s | %u refused layout%s not shown", print, left_out, left_out == 1 ? "" : "s");
  }
  sp_figure_frame (figure);
}

gint
sp_bars_measure (const SpCsv *csv)
{
  return (gint) sp_bars_height (CLAMP (csv->rows->len, 2, MOST_BARS), TRUE) + 70;
}

double
sp_bar_rows_capacity (const SpBarRows *rows, gint column)
{
  double most = 0;

  for (guint i = 0; i < rows->rows->len; i++)
    most = MAX (most, sp_bar_rows_number (rows, i, column));
  return most / 0x1p30;
}

/* --- parts ---------------------------------------------------------------------------------------------------------- */

static void
part_clear (gpointer part)
{
  g_free (((SpBarPart *) part)->name);
}

/* A part, unless it is nothing in every row. */
void
sp_bar_part_add (const SpBarRows *rows, GArray *parts, const char *column, const char *name, guint style)
{
  const SpBarPart part = { sp_csv_find (rows->csv, column), g_strdup (name), style };
  double most = 0;

  for (guint i = 0; i < rows->rows->len; i++)
    most = MAX (most, sp_bar_rows_number (rows, i, part.column));
  if (most > 1e-9)
    g_array_append_val (parts, part);
  else
    g_free (part.name);
}

SpBars *
sp_bar_rows_stack (const SpBarRows *rows, const char *label, const GArray *parts, double unit)
{
  SpBars *bars = sp_bars_new (label);

  for (guint p = 0; p < parts->len; p++)
    sp_bars_part_styled (bars, g_array_index (parts, SpBarPart, p).name, g_array_index (parts, SpBarPart, p).style);
  for (guint i = 0; i < rows->rows->len; i++) {
    SpBar *bar = sp_bars_add (bars, rows->names->pdata[i]);
    bar->out = !rows->fits[i];
    for (guint p = 0; p < parts->len; p++)
      bar->parts[p] = sp_bar_rows_number (rows, i, g_array_index (parts, SpBarPart, p).column) / unit;
  }
  return bars;
}

GArray *
sp_bar_parts_new (void)
{
  GArray *parts = g_array_new (FALSE, FALSE, sizeof (SpBarPart));

  g_array_set_clear_func (parts, part_clear);
  return parts;
}
