/* SPDX-License-Identifier: Apache-2.0 */
/* Predicted over measured: the step and memory of runs that others measured, a colour a set. What a constant was fitted
 * to is open, what is set aside not drawn. Columns: set, split, kind, column, measured, predicted, measured_step_s,
 * predicted_step_s, aside. */
#include <math.h>

#include "plots/kind.h"

typedef struct {
  const char *kind, *x_label, *y_label, *measured, *predicted;
  double unit;
} Panel;

static const Panel panels[] = {
  { "time", "measured step, s", "predicted step, s", "measured_step_s", "predicted_step_s", 1 },
  { "memory", "measured memory, GiB", "predicted memory, GiB", "measured", "predicted", 0x1p30 },
};

enum { SET, SPLIT, KIND, ASIDE, N_COLUMNS };

typedef struct {
  const SpCsv *csv;
  gint at[N_COLUMNS];
  GPtrArray *sets; /* char *: names, in the order of the rows; their numbers are their styles */
  GHashTable *numbers;
} Reader;

/* A set's points, those that were fitted to apart. */
static SpSeries *
series_of (SpLines *lines, GHashTable *known, guint set, gboolean open)
{
  gpointer key = GUINT_TO_POINTER (2 * set + open + 1);
  SpSeries *series = g_hash_table_lookup (known, key);

  if (series != NULL)
    return series;
  series = sp_lines_add (lines, NULL);
  series->joined = FALSE;
  series->open = open;
  series->style = set;
  g_hash_table_insert (known, key, series);
  return series;
}

static guint
add_points (Reader *r, const Panel *panel, SpLines *lines, GError **error)
{
  g_autoptr (GHashTable) known = g_hash_table_new (NULL, NULL);
  double least = INFINITY, most = 0;
  guint n = 0;
  gint m, p;

  if (!sp_csv_need (r->csv, panel->measured, &m, error) || !sp_csv_need (r->csv, panel->predicted, &p, error))
    return 0;
  for (guint row = 0; row < r->csv->rows->len; row++) {
    g_autofree char *kind = sp_csv_text (r->csv, row, r->at[KIND]), *aside = sp_csv_text (r->csv, row, r->at[ASIDE]);
    g_autofree char *split = sp_csv_text (r->csv, row, r->at[SPLIT]);
    double x = sp_csv_number (r->csv, row, m) / panel->unit, y = sp_csv_number (r->csv, row, p) / panel->unit;
    if (!g_str_equal (kind, panel->kind) || *aside != '\0' || !(x > 0 && y > 0))
      continue;
    guint set = sp_name_number (r->sets, r->numbers, sp_csv_text (r->csv, row, r->at[SET]));
    sp_series_point (series_of (lines, known, set, g_str_equal (split, "fit")), x, y, SP_POINT_FITS);
    least = MIN (least, MIN (x, y));
    most = MAX (most, MAX (x, y));
    n++;
  }
  if (n > 0)
    sp_lines_diagonals (lines, least, most);
  return n;
}

static gboolean
find_columns (Reader *r, GError **error)
{
  static const char *const names[N_COLUMNS] = { "set", "split", "kind", "aside" };

  for (guint c = 0; c < N_COLUMNS; c++)
    if (!sp_csv_need (r->csv, names[c], &r->at[c], error)) {
      g_prefix_error (error, "no CSV of seqpar validate: ");
      return FALSE;
    }
  return TRUE;
}

/* Sets that cannot be told apart have one colour and no names. */
static void
draw (SpFigure *figure, const Reader *r, const GPtrArray *charts)
{
  gboolean named = r->sets->len <= SP_STYLES;

  for (guint i = 0; i < charts->len; i++) {
    SpLines *lines = charts->pdata[i];
    SpBox place = sp_figure_place (figure, i, charts->len, 0, 1);
    lines->legend = named ? r->sets : NULL;
    for (guint s = 0; !named && s < lines->series->len; s++)
      ((SpSeries *) lines->series->pdata[s])->style = 0;
    sp_lines_draw (figure, lines, &place);
  }
}

gboolean
sp_kind_validation (SpFigure *figure, const SpCsv *csv, GError **error)
{
  g_autoptr (GPtrArray) charts = g_ptr_array_new_with_free_func ((GDestroyNotify) sp_lines_free);
  g_autoptr (GPtrArray) sets = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GHashTable) numbers = g_hash_table_new (g_str_hash, g_str_equal);
  Reader r = { .csv = csv, .sets = sets, .numbers = numbers };
  guint n = 0;

  if (!find_columns (&r, error))
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (panels); i++) {
    g_autoptr (SpLines) lines = sp_lines_new (panels[i].x_label, panels[i].y_label);
    guint points = add_points (&r, &panels[i], lines, error);
    if (error != NULL && *error != NULL)
      return FALSE;
    n += points;
    if (points > 0)
      g_ptr_array_add (charts, g_steal_pointer (&lines));
  }
  if (n == 0)
    return sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: no run has a time or memory: there is nothing to draw",
                           csv->path);
  figure->title = g_strdup ("Predicted beside measured by others");
  figure->small_print = g_strdup_printf ("%u figures of runs | open: constants were fitted to these", n);
  sp_figure_frame (figure);
  draw (figure, &r, charts);
  return TRUE;
}
