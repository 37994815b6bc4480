/* SPDX-License-Identifier: Apache-2.0 */
/* Memory by class against what a GPU has. Columns: the keys, outcome, CLASS_bytes, capacity_bytes. Who publishes the first
 * three classes as one has states_bytes in their place. */
#include "plots/kind.h"

gboolean
sp_kind_memory (SpFigure *figure, const SpCsv *csv, GError **error)
{
  static const char *const classes[] = { "parameters", "gradients",     "optimizer", "activations",
                                         "logits",     "communication", "workspace", "reserved" };
  g_auto (SpBarRows) rows = { NULL };
  g_autoptr (GArray) parts = sp_bar_parts_new ();
  SpBox place = sp_figure_place (figure, 0, 1, 0, 1);
  gint capacity, first;

  if (!sp_bar_rows_init (&rows, csv, error) || !sp_csv_need (csv, "capacity_bytes", &capacity, error) ||
      !sp_csv_need (csv, "parameters_bytes", &first, error))
    return FALSE;
  sp_bar_rows_begin (figure, &rows);
  sp_bar_part_add (&rows, parts, "states_bytes", "parameters, gradients and optimizer", SP_STYLES - 2);
  for (guint i = 0; i < G_N_ELEMENTS (classes); i++) {
    g_autofree char *column = g_strconcat (classes[i], "_bytes", NULL);
    sp_bar_part_add (&rows, parts, column, classes[i], sp_kind_class_style (classes[i]));
  }
  sp_bar_part_add (&rows, parts, "block_states_bytes", "states of the layers", SP_STYLES - 2);
  sp_bar_part_add (&rows, parts, "block_activations_bytes", "activations of the layers",
                   sp_kind_class_style ("activations"));
  double has = sp_bar_rows_capacity (&rows, capacity);
  g_autofree char *level = g_strdup_printf ("the GPU's %.0f GiB", has);
  g_autoptr (SpBars) bars = sp_bar_rows_stack (&rows, "memory of the fullest GPU, GiB", parts, 0x1p30);
  bars->level = has;
  bars->level_name = level;
  sp_bars_draw (figure, bars, &place);
  return TRUE;
}
