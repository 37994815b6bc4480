/* SPDX-License-Identifier: Apache-2.0 */
/* A column over two keys of a sweep. Columns: the keys, outcome, and the one that is shown: mfu_causal, in percent. What
 * others say stands in brackets in the same cell. */
#include <math.h>

#include "plots/kind.h"

/* Numbers of the axis as cells have them: each value once, ascending. */
static gint
compare_doubles (gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return x < y ? -1 : x > y;
}

static GArray *
values_of (const SpSweepTable *table)
{
  GArray *values = g_array_new (FALSE, FALSE, sizeof (double));
  guint n = 0;

  g_array_append_vals (values, table->x_of, table->csv->rows->len);
  g_array_sort (values, compare_doubles);
  for (guint i = 0; i < values->len; i++) {
    double value = g_array_index (values, double, i);
    if (n == 0 || g_array_index (values, double, n - 1) != value)
      g_array_index (values, double, n++) = value;
  }
  g_array_set_size (values, n);
  return values;
}

static guint
place_of (const GArray *values, double value)
{
  guint low = 0, high = values->len - 1;

  while (low < high) {
    guint middle = (low + high) / 2;
    if (g_array_index (values, double, middle) < value)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* In the cell of the sweep with these keys: a number of others without one is left out. */
static void
set_published (SpCells *cells, const SpCell *published)
{
  for (guint i = 0; i < cells->cells->len; i++) {
    SpCell *cell = &g_array_index (cells->cells, SpCell, i);
    if (cell->x != published->x || cell->y != published->y)
      continue;
    cell->published = published->state == SP_CELL_OUT ? INFINITY : published->value;
    cells->compares = TRUE;
  }
}

/* Only one of two rows in a cell could be shown. */
static gboolean
check_twice (const SpCells *cells, const char *path, GError **error)
{
  g_autoptr (GHashTable) seen = g_hash_table_new (NULL, NULL);

  for (guint i = 0; i < cells->cells->len; i++) {
    const SpCell *cell = &g_array_index (cells->cells, SpCell, i);
    if (!g_hash_table_add (seen, GUINT_TO_POINTER ((guint) cell->y * cells->x->len + (guint) cell->x + 1)))
      return sp_figure_fail (error, SP_FIGURE_ERROR_DATA,
                             "%s: two rows are of the same cell, %s and %s: a heat map shows one for each two keys",
                             path, (char *) cells->x->pdata[(guint) cell->x],
                             (char *) cells->y->pdata[(guint) cell->y]);
  }
  return TRUE;
}

gboolean
sp_kind_heatmap (SpFigure *figure, const SpCsv *csv, GError **error)
{
  g_autoptr (SpSweepTable) table = sp_sweep_table_new (csv, error);
  SpBox place = sp_figure_place (figure, 0, 1, 0, 1);
  gint column;

  if (table == NULL || !sp_csv_need (csv, "mfu_causal", &column, error))
    return FALSE;
  sp_kind_subject (figure, csv, "");
  sp_kind_published (figure, csv, "in brackets");
  sp_figure_frame (figure);
  g_autoptr (SpCells) cells = sp_cells_new (table->x_label, "MFU over the causal half, %");
  g_autoptr (GArray) values = values_of (table);
  for (guint i = 0; i < values->len; i++) {
    double value = g_array_index (values, double, i);
    g_ptr_array_add (cells->x, table->x.names != NULL ? g_strdup (table->x.names->pdata[(guint) value])
                               : table->x.tokens      ? sp_tokens_text (value)
                                                      : sp_number_text (value));
  }
  for (guint i = 0; i < table->series->len; i++)
    g_ptr_array_add (cells->y, g_strdup (table->series->pdata[i]));
  for (guint row = 0; row < csv->rows->len; row++) {
    double value = 100 * sp_csv_number (csv, row, column);
    if (table->fits[row] && isnan (value))
      continue;
    const SpCell cell = { place_of (values, table->x_of[row]), table->series_of[row], value, NAN,
                          table->fits[row]     ? SP_CELL_VALUE
                          : table->priced[row] ? SP_CELL_OUT
                                               : SP_CELL_REFUSED };
    if (!table->published[row])
      g_array_append_val (cells->cells, cell);
    else
      set_published (cells, &cell);
  }
  if (!check_twice (cells, csv->path, error))
    return FALSE;
  sp_cells_draw (figure, cells, &place);
  return TRUE;
}
