/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds with a bar for each row of a sweep: compare, breakdown, memory. Columns: the keys, outcome, and
 *   compare     tokens_per_s, peak_bytes, capacity_bytes
 *   breakdown   compute_s, AXIS_exposed_s, bubble_s, host_s, idle_s
 *   memory      CLASS_bytes, capacity_bytes
 * Rows that were refused have no bar; how many there are the small print says. */
#include <math.h>
#include <string.h>

#include "plots/kind.h"

#define MOST_BARS 60

typedef struct {
  const SpCsv *csv;
  GArray *rows;     /* guint: those that have figures */
  GPtrArray *names; /* char *, of each of them */
  gboolean *fits;
} Rows;

static void
rows_clear (Rows *rows)
{
  g_clear_pointer (&rows->rows, g_array_unref);
  g_clear_pointer (&rows->names, g_ptr_array_unref);
  g_free (rows->fits);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Rows, rows_clear)

static gboolean
rows_init (Rows *rows, const SpCsv *csv, GError **error)
{
  g_autoptr (SpSweepTable) table = sp_sweep_table_new (csv, error);
  guint n_keys;

  if (table == NULL)
    return FALSE;
  g_autofree gboolean *varies = sp_sweep_varying (csv, &n_keys, error);
  rows->csv = csv;
  rows->rows = g_array_new (FALSE, FALSE, sizeof (guint));
  rows->names = g_ptr_array_new_with_free_func (g_free);
  rows->fits = g_new0 (gboolean, csv->rows->len);
  for (guint row = 0; row < csv->rows->len; row++) {
    if (!table->priced[row])
      continue;
    char *name = sp_sweep_row_name (csv, row, varies);
    rows->fits[rows->rows->len] = table->fits[row];
    g_array_append_val (rows->rows, row);
    g_ptr_array_add (rows->names, *name != '\0' || csv->rows->len > 1 ? name : g_strdup ("this layout"));
    if (*name == '\0' && csv->rows->len == 1)
      g_free (name);
  }
  if (rows->rows->len <= MOST_BARS)
    return TRUE;
  return sp_figure_fail (error, SP_FIGURE_ERROR_DATA,
                         "%s: %u bars are more than %d; scaling and heatmap show many points, or sweep fewer values",
                         csv->path, rows->rows->len, MOST_BARS);
}

static double
number (const Rows *rows, guint i, gint column)
{
  double value = column >= 0 ? sp_csv_number (rows->csv, g_array_index (rows->rows, guint, i), column) : NAN;

  return isnan (value) ? 0 : value;
}

static void
begin (SpFigure *figure, const Rows *rows)
{
  guint left_out = rows->csv->rows->len - rows->rows->len;

  sp_kind_subject (figure, rows->csv, "");
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

/* --- compare ------------------------------------------------------------------------------------------------------ */

static SpBars *
one_part (const Rows *rows, const char *label, gint column, double unit)
{
  SpBars *bars = sp_bars_new (label);

  sp_bars_part (bars, label);
  for (guint i = 0; i < rows->rows->len; i++) {
    SpBar *bar = sp_bars_add (bars, rows->names->pdata[i]);
    bar->parts[0] = number (rows, i, column) / unit;
    bar->out = !rows->fits[i];
  }
  return bars;
}

static double
capacity_of (const Rows *rows, gint column)
{
  double most = 0;

  for (guint i = 0; i < rows->rows->len; i++)
    most = MAX (most, number (rows, i, column));
  return most / 0x1p30;
}

gboolean
sp_kind_compare (SpFigure *figure, const SpCsv *csv, GError **error)
{
  g_auto (Rows) rows = { NULL };
  gint tokens, peak, capacity;

  if (!rows_init (&rows, csv, error) || !sp_csv_need (csv, "tokens_per_s", &tokens, error) ||
      !sp_csv_need (csv, "peak_bytes", &peak, error) || !sp_csv_need (csv, "capacity_bytes", &capacity, error))
    return FALSE;
  begin (figure, &rows);
  double most = 0;
  const char *label;
  for (guint i = 0; i < rows.rows->len; i++)
    most = MAX (most, number (&rows, i, tokens));
  double unit = sp_throughput_unit (most, &label);
  g_autoptr (SpBars) speed = one_part (&rows, label, tokens, unit);
  g_autoptr (SpBars) memory = one_part (&rows, "memory of the fullest GPU, GiB", peak, 0x1p30);
  SpBox left = sp_figure_place (figure, 0, 2, 0, 1), right = sp_figure_place (figure, 1, 2, 0, 1);
  double has = capacity_of (&rows, capacity);
  g_autofree char *level = g_strdup_printf ("the GPU's %.0f GiB", has);
  for (guint i = 0; i < rows.rows->len; i++) /* said beside the memory */
    ((SpBar *) speed->bars->pdata[i])->out = FALSE;
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

/* --- of several parts --------------------------------------------------------------------------------------------- */

typedef struct {
  gint column;
  char *name;
  guint style;
} Part;

static void
part_clear (gpointer part)
{
  g_free (((Part *) part)->name);
}

/* A part, unless it is nothing in every row. */
static void
add_part (const Rows *rows, GArray *parts, const char *column, const char *name, guint style)
{
  const Part part = { sp_csv_find (rows->csv, column), g_strdup (name), style };
  double most = 0;

  for (guint i = 0; i < rows->rows->len; i++)
    most = MAX (most, number (rows, i, part.column));
  if (most > 1e-9)
    g_array_append_val (parts, part);
  else
    g_free (part.name);
}

/* Columns that end so, by what stands before that. */
static void
add_parts_of (const Rows *rows, GArray *parts, const char *suffix, const char *format)
{
  for (guint c = 0; c < rows->csv->n_columns; c++) {
    const char *column = rows->csv->columns[c];
    if (!g_str_has_suffix (column, suffix))
      continue;
    g_autofree char *stem = g_strndup (column, strlen (column) - strlen (suffix));
    g_autofree char *name = g_strdup_printf (format, stem);
    add_part (rows, parts, column, name, parts->len);
  }
}

static SpBars *
stacked (const Rows *rows, const char *label, const GArray *parts, double unit)
{
  SpBars *bars = sp_bars_new (label);

  for (guint p = 0; p < parts->len; p++)
    sp_bars_part_styled (bars, g_array_index (parts, Part, p).name, g_array_index (parts, Part, p).style);
  for (guint i = 0; i < rows->rows->len; i++) {
    SpBar *bar = sp_bars_add (bars, rows->names->pdata[i]);
    bar->out = !rows->fits[i];
    for (guint p = 0; p < parts->len; p++)
      bar->parts[p] = number (rows, i, g_array_index (parts, Part, p).column) / unit;
  }
  return bars;
}

static GArray *
parts_new (void)
{
  GArray *parts = g_array_new (FALSE, FALSE, sizeof (Part));

  g_array_set_clear_func (parts, part_clear);
  return parts;
}

gboolean
sp_kind_memory (SpFigure *figure, const SpCsv *csv, GError **error)
{
  static const char *const classes[] = { "parameters", "gradients",     "optimizer", "activations",
                                         "logits",     "communication", "workspace", "reserved" };
  g_auto (Rows) rows = { NULL };
  g_autoptr (GArray) parts = parts_new ();
  SpBox place = sp_figure_place (figure, 0, 1, 0, 1);
  gint capacity, first;

  if (!rows_init (&rows, csv, error) || !sp_csv_need (csv, "capacity_bytes", &capacity, error) ||
      !sp_csv_need (csv, "parameters_bytes", &first, error))
    return FALSE;
  begin (figure, &rows);
  for (guint i = 0; i < G_N_ELEMENTS (classes); i++) {
    g_autofree char *column = g_strconcat (classes[i], "_bytes", NULL);
    add_part (&rows, parts, column, classes[i], sp_kind_class_style (classes[i]));
  }
  double has = capacity_of (&rows, capacity);
  g_autofree char *level = g_strdup_printf ("the GPU's %.0f GiB", has);
  g_autoptr (SpBars) bars = stacked (&rows, "memory of the fullest GPU, GiB", parts, 0x1p30);
  bars->level = has;
  bars->level_name = level;
  sp_bars_draw (figure, bars, &place);
  return TRUE;
}

gboolean
sp_kind_breakdown (SpFigure *figure, const SpCsv *csv, GError **error)
{
  g_auto (Rows) rows = { NULL };
  g_autoptr (GArray) parts = parts_new ();
  SpBox place = sp_figure_place (figure, 0, 1, 0, 1);
  gint compute;

  if (!rows_init (&rows, csv, error) || !sp_csv_need (csv, "compute_s", &compute, error))
    return FALSE;
  begin (figure, &rows);
  add_part (&rows, parts, "compute_s", "compute", parts->len);
  add_parts_of (&rows, parts, "_exposed_s", "exposed %s");
  add_part (&rows, parts, "bubble_s", "bubble", parts->len);
  add_part (&rows, parts, "host_s", "host", parts->len);
  add_part (&rows, parts, "idle_s", "idle", parts->len);
  double longest = 0;
  for (guint i = 0; i < rows.rows->len; i++)
    for (guint p = 0; p < parts->len; p++)
      longest = MAX (longest, number (&rows, i, g_array_index (parts, Part, p).column));
  g_autoptr (SpBars) bars =
      stacked (&rows, longest < 1 ? "time of a step, ms" : "time of a step, s", parts, longest < 1 ? 1e-3 : 1);
  sp_bars_draw (figure, bars, &place);
  return TRUE;
}
