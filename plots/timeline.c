/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks and their streams over a simulated step. Columns: rank, stage, stream, what, begin_s, end_s: on a stream
 * `what` (a phase of the compute stream, an axis of the others) goes on from begin to end. */
#include <math.h>

#include "plots/kind.h"

#define MOST_ROWS 64
#define PITCH 17

/* In one order in all figures, so that they have one style. */
static void
add_known (const SpCsv *csv, gint what, GPtrArray *names, GHashTable *numbers)
{
  static const char *const known[] = { "forward", "backward", "recompute", "optimizer" };

  for (guint i = 0; i < G_N_ELEMENTS (known); i++) {
    gboolean found = FALSE;
    for (guint row = 0; row < csv->rows->len && !found; row++) {
      g_autofree char *text = sp_csv_text (csv, row, what);
      found = g_str_equal (text, known[i]);
    }
    if (found)
      sp_name_number (names, numbers, g_strdup (known[i]));
  }
}

typedef struct {
  gint rank, stage, stream, what, begin, end;
} Columns;

static gboolean
find_columns (const SpCsv *csv, Columns *ret, GError **error)
{
  if (!sp_csv_need (csv, "rank", &ret->rank, error) || !sp_csv_need (csv, "stage", &ret->stage, error) ||
      !sp_csv_need (csv, "stream", &ret->stream, error) || !sp_csv_need (csv, "what", &ret->what, error) ||
      !sp_csv_need (csv, "begin_s", &ret->begin, error) || !sp_csv_need (csv, "end_s", &ret->end, error))
    return FALSE;
  return csv->rows->len > 0 || sp_figure_fail (error, SP_FIGURE_ERROR_DATA,
                                               "%s: has a header and no rows: there is nothing to draw", csv->path);
}

static char *
row_name (const SpCsv *csv, guint row, const Columns *c)
{
  g_autofree char *rank = sp_csv_text (csv, row, c->rank), *stage = sp_csv_text (csv, row, c->stage);
  g_autofree char *stream = sp_csv_text (csv, row, c->stream);

  return g_strdup_printf ("rank %s, stage %s: %s", rank, stage, stream);
}

static gint
measure_rows (const SpCsv *csv)
{
  Columns c;
  g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GHashTable) numbers = g_hash_table_new (g_str_hash, g_str_equal);

  if (find_columns (csv, &c, NULL))
    for (guint row = 0; row < csv->rows->len && names->len < MOST_ROWS; row++)
      sp_name_number (names, numbers, row_name (csv, row, &c));
  return (gint) names->len;
}

gint
sp_timeline_measure (const SpCsv *csv)
{
  return 150 + PITCH * MAX (measure_rows (csv), 3);
}

gboolean
sp_kind_timeline (SpFigure *figure, const SpCsv *csv, GError **error)
{
  Columns c;
  SpBox place = sp_figure_place (figure, 0, 1, 0, 1);
  g_autoptr (GHashTable) rows = g_hash_table_new (g_str_hash, g_str_equal);
  g_autoptr (GHashTable) kinds = g_hash_table_new (g_str_hash, g_str_equal);
  double end = 0;

  if (!find_columns (csv, &c, error))
    return FALSE;
  for (guint row = 0; row < csv->rows->len; row++)
    end = fmax (end, sp_csv_number (csv, row, c.end));
  double unit = end < 1 ? 1e-3 : 1;
  g_autoptr (SpSpans) spans = sp_spans_new (end < 1 ? "time of the step, ms" : "time of the step, s");
  add_known (csv, c.what, spans->kinds, kinds);
  for (guint row = 0; row < csv->rows->len; row++) {
    const SpSpan span = { sp_name_number (spans->rows, rows, row_name (csv, row, &c)),
                          sp_name_number (spans->kinds, kinds, sp_csv_text (csv, row, c.what)),
                          sp_csv_number (csv, row, c.begin) / unit, sp_csv_number (csv, row, c.end) / unit };
    if (!(span.begin >= 0 && span.end >= span.begin))
      return sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: row %u has no time from begin_s to end_s", csv->path,
                             row + 1);
    g_array_append_val (spans->spans, span);
  }
  if (spans->rows->len > MOST_ROWS)
    return sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: %u streams of ranks are more than the %d that can be seen",
                           csv->path, spans->rows->len, MOST_ROWS);
  sp_kind_subject (figure, csv, "");
  sp_figure_frame (figure);
  sp_spans_draw (figure, spans, &place);
  return TRUE;
}
