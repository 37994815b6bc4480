/* SPDX-License-Identifier: Apache-2.0 */
/* Throughput and memory over a key of a sweep. Columns: the keys, outcome, tokens_per_s, peak_bytes, capacity_bytes,
 * and published, if there is one: who says so of rows that are not the sweep's, which are open markers.
 * What does not fit is a cross: at the throughput that it would have, and above the GPU's memory. */
#include <math.h>

#include "plots/kind.h"

static double
largest (const SpSweepTable *table, gint column, gboolean fitting)
{
  double most = 0;

  for (guint row = 0; row < table->csv->rows->len; row++)
    if (table->priced[row] && (table->fits[row] || !fitting))
      most = fmax (most, sp_csv_number (table->csv, row, column));
  return most;
}

/* From zero, unless the small would lie on it. */
static gboolean
spans_decades (const SpSweepTable *table, gint column)
{
  double least = INFINITY;

  for (guint row = 0; row < table->csv->rows->len; row++)
    if (table->priced[row])
      least = fmin (least, sp_csv_number (table->csv, row, column));
  return least > 0 && largest (table, column, FALSE) > 100 * least;
}

typedef struct {
  gint column;
  double unit, pinned; /* what does not fit stands there; NAN: at its own value */
} Shown;

static void
add_series (const SpSweepTable *table, SpLines *lines, const Shown *shown)
{
  for (guint s = 0; s < table->series->len; s++) {
    const char *name = table->series->pdata[s];
    sp_lines_add (lines, *name != '\0' ? name : NULL);
  }
  for (guint s = 0; table->n_published > 0 && s < table->series->len; s++) {
    SpSeries *published = sp_lines_add (lines, NULL); /* in the style of the one that it is beside */
    published->style = s;
    published->joined = FALSE;
    published->open = TRUE;
  }
  for (guint row = 0; row < table->csv->rows->len; row++) {
    if (!table->priced[row])
      continue;
    guint series = table->series_of[row];
    guint drawn = series + (table->published[row] ? table->series->len : 0);
    double value = sp_csv_number (table->csv, row, shown->column) / shown->unit;
    if (isnan (value)) /* others say nothing of it */
      continue;
    /* Crosses of several series at one place stand above each other. */
    double pinned = shown->pinned * (1 + 0.035 * (series % SP_STYLES));
    gboolean pins = !table->fits[row] && !isnan (shown->pinned);
    sp_series_point (lines->series->pdata[drawn], table->x_of[row], pins ? pinned : value,
                     table->fits[row] ? SP_POINT_FITS : SP_POINT_OUT);
  }
}

/* Lists of rows may be in any order of x. */
static gint
compare_points (gconstpointer a, gconstpointer b)
{
  double x = ((const SpChartPoint *) a)->x, y = ((const SpChartPoint *) b)->x;

  return x < y ? -1 : x > y;
}

static void
sort_series (SpLines *lines)
{
  for (guint s = 0; s < lines->series->len; s++)
    g_array_sort (((SpSeries *) lines->series->pdata[s])->points, compare_points);
}

static void
set_x (SpLines *lines, const SpSweepTable *table)
{
  const char *label = lines->x.label;

  lines->x = table->x;
  lines->x.label = label;
}

static void
draw_throughput (SpFigure *figure, const SpSweepTable *table, gint column)
{
  const char *label;
  Shown shown = { column, sp_throughput_unit (largest (table, column, FALSE), &label), NAN };
  g_autoptr (SpLines) lines = sp_lines_new (table->x_label, label);
  SpBox place = sp_figure_place (figure, 0, 2, 0, 1);

  set_x (lines, table);
  if (spans_decades (table, column))
    lines->y.scale = SP_SCALE_LOG10;
  else
    sp_axis_cover (&lines->y, 0);
  add_series (table, lines, &shown);
  sort_series (lines);
  sp_lines_draw (figure, lines, &place);
}

/* Where the way does not matter to it, one curve stands for all. */
static gboolean
are_alike (const SpLines *lines)
{
  const SpSeries *first = lines->series->pdata[0];

  for (guint s = 1; s < lines->series->len; s++) {
    const SpSeries *other = lines->series->pdata[s];
    if (other->points->len != first->points->len)
      return FALSE;
    for (guint i = 0; i < first->points->len; i++) {
      const SpChartPoint *a = &g_array_index (first->points, SpChartPoint, i);
      const SpChartPoint *b = &g_array_index (other->points, SpChartPoint, i);
      if (a->x != b->x || a->mark != b->mark || (a->mark == SP_POINT_FITS && fabs (a->y - b->y) > 0.005 * a->y))
        return FALSE;
    }
  }
  return lines->series->len > 1;
}

static void
draw_memory (SpFigure *figure, const SpSweepTable *table, gint column, gint capacity)
{
  double has = largest (table, capacity, FALSE) / 0x1p30;
  Shown shown = { column, 0x1p30, 1.08 * has };
  g_autofree char *level = g_strdup_printf ("above %.0f GiB: out of memory (x)", has);
  g_autoptr (SpLines) lines = sp_lines_new (table->x_label, "memory of the fullest GPU, GiB");
  SpBox place = sp_figure_place (figure, 1, 2, 0, 1);

  set_x (lines, table);
  sp_axis_cover (&lines->y, 0);
  sp_axis_cover (&lines->y, 1.15 * has);
  add_series (table, lines, &shown);
  sort_series (lines);
  if (table->n_published == 0 && are_alike (lines)) {
    SpSeries *first = lines->series->pdata[0];
    g_ptr_array_set_size (lines->series, 1);
    g_free (first->name);
    first->name = g_strdup ("all alike");
    first->style = SP_STYLES - 2; /* the grey one */
  }
  lines->level = has;
  lines->level_name = level;
  sp_lines_draw (figure, lines, &place);
}

gboolean
sp_kind_scaling (SpFigure *figure, const SpCsv *csv, GError **error)
{
  gint tokens, peak, capacity;
  g_autoptr (SpSweepTable) table = sp_sweep_table_new (csv, error);

  if (table == NULL || !sp_csv_need (csv, "tokens_per_s", &tokens, error) ||
      !sp_csv_need (csv, "peak_bytes", &peak, error) || !sp_csv_need (csv, "capacity_bytes", &capacity, error))
    return FALSE;
  if (table->series->len > SP_STYLES)
    return sp_figure_fail (error, SP_FIGURE_ERROR_DATA,
                           "%s: %u curves are more than the %d that can be told apart; a heatmap shows two keys, or "
                           "sweep fewer values",
                           csv->path, table->series->len, SP_STYLES);
  sp_kind_subject (figure, csv, "");
  sp_kind_published (figure, csv, "open markers");
  sp_figure_frame (figure);
  draw_throughput (figure, table, tokens);
  draw_memory (figure, table, peak, capacity);
  return TRUE;
}
