/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the fullest rank over a simulated step, by class. Columns: begin_s, CLASS_bytes, capacity_bytes,
 * step_time_s: what lives from begin_s to the next row's, at its fullest moment. */
#include <math.h>
#include <string.h>

#include "plots/kind.h"

static double
largest (const SpCsv *csv, gint column)
{
  double most = 0;

  for (guint row = 0; row < csv->rows->len; row++)
    most = fmax (most, sp_csv_number (csv, row, column));
  return most;
}

/* Columns of classes that hold something. */
static GArray *
find_classes (const SpCsv *csv, SpAreas *areas)
{
  GArray *columns = g_array_new (FALSE, FALSE, sizeof (gint));

  areas->styles = g_array_new (FALSE, FALSE, sizeof (guint));
  for (gint c = 0; c < (gint) csv->n_columns; c++) {
    const char *name = csv->columns[c];
    if (!g_str_has_suffix (name, "_bytes") || g_str_equal (name, "capacity_bytes") || !(largest (csv, c) > 0))
      continue;
    g_array_append_val (columns, c);
    char *class = g_strndup (name, strlen (name) - strlen ("_bytes"));
    guint style = sp_kind_class_style (class);
    g_ptr_array_add (areas->parts, class);
    g_array_append_val (areas->styles, style);
  }
  return columns;
}

gboolean
sp_kind_memory_time (SpFigure *figure, const SpCsv *csv, GError **error)
{
  SpBox place = sp_figure_place (figure, 0, 1, 0, 1);
  gint begin, capacity, step;

  if (!sp_csv_need (csv, "begin_s", &begin, error) || !sp_csv_need (csv, "capacity_bytes", &capacity, error) ||
      !sp_csv_need (csv, "step_time_s", &step, error))
    return FALSE;
  double end = largest (csv, step), has = largest (csv, capacity) / 0x1p30, unit = end < 1 ? 1e-3 : 1;
  if (csv->rows->len == 0 || end <= 0)
    return sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: has no rows of a step: there is nothing to draw",
                           csv->path);
  g_autoptr (SpAreas) areas =
      sp_areas_new (end < 1 ? "time of the step, ms" : "time of the step, s", "memory of the fullest GPU, GiB");
  g_autoptr (GArray) columns = find_classes (csv, areas);
  for (guint row = 0; row < csv->rows->len; row++) {
    double date = sp_csv_number (csv, row, begin) / unit;
    g_array_append_val (areas->dates, date);
    for (guint c = 0; c < columns->len; c++) {
      double bytes = sp_csv_number (csv, row, g_array_index (columns, gint, c)) / 0x1p30;
      g_array_append_val (areas->values, bytes);
    }
  }
  g_autofree char *level = g_strdup_printf ("the GPU's %.0f GiB", has);
  areas->end = end / unit;
  areas->level = has;
  areas->level_name = level;
  sp_kind_subject (figure, csv, "");
  sp_figure_frame (figure);
  sp_areas_draw (figure, areas, &place);
  return TRUE;
}
