/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep's CSV as curves and bars: which key is the axis, and what the others are called. */
#include <math.h>
#include <string.h>

#include "plots/kind.h"

static const char *const degrees[] = { "data", "tensor", "pipeline", "ulysses", "ring", "lasp", "expert", NULL };

/* "layout.ring" is ring. */
static const char *
bare_key (const char *key)
{
  const char *dot = strchr (key, '.');

  return dot != NULL ? dot + 1 : key;
}

gboolean *
sp_sweep_varying (const SpCsv *csv, guint *ret_n_keys, GError **error)
{
  gint outcome;

  if (!sp_csv_need (csv, "outcome", &outcome, error)) {
    g_prefix_error (error, "no CSV of seqpar sweep: ");
    return NULL;
  }
  if (csv->rows->len == 0) {
    sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: has a header and no rows: there is nothing to draw", csv->path);
    return NULL;
  }
  gboolean *varies = g_new0 (gboolean, csv->n_columns);
  for (gint c = 0; c < outcome; c++) {
    g_autofree char *first = sp_csv_text (csv, 0, c);
    for (guint row = 1; row < csv->rows->len && !varies[c]; row++) {
      g_autofree char *text = sp_csv_text (csv, row, c);
      varies[c] = !g_str_equal (first, text);
    }
  }
  *ret_n_keys = (guint) outcome;
  return varies;
}

/* A key that says how an axis works, of a row without that axis. */
static gboolean
is_idle (const SpCsv *csv, guint row, const char *key)
{
  static const char *const of[][2] = {
    { "lasp-version", "lasp" },  { "ring-split", "ring" },   { "ring-kind", "ring" },
    { "ring-backward", "ring" }, { "schedule", "pipeline" }, { "virtual-stages", "pipeline" },
  };
  gint outcome = sp_csv_find (csv, "outcome");

  for (guint i = 0; i < G_N_ELEMENTS (of); i++)
    for (gint c = 0; c < outcome && g_str_equal (of[i][0], key); c++) {
      g_autofree char *value = sp_csv_text (csv, row, c);
      if (g_str_equal (bare_key (csv->columns[c]), of[i][1]) && g_str_equal (value, "1"))
        return TRUE;
    }
  return FALSE;
}

char *
sp_sweep_row_name (const SpCsv *csv, guint row, const gboolean *shown, const gboolean *bare)
{
  g_autoptr (GString) factors = g_string_new (NULL), rest = g_string_new (NULL);
  gint outcome = sp_csv_find (csv, "outcome");
  gboolean any = FALSE;

  for (gint c = 0; c < outcome; c++) {
    if (!shown[c])
      continue;
    g_autofree char *value = sp_csv_text (csv, row, c);
    const char *key = bare_key (csv->columns[c]);
    any |= g_strv_contains (degrees, key);
    if (g_strv_contains (degrees, key)) {
      gboolean alone = bare != NULL && bare[c];
      if (!g_str_equal (value, "1"))
        g_string_append_printf (factors, "%s%s%s%s", factors->len > 0 ? " x " : "", key, alone ? "" : " ",
                                alone ? "" : value);
      continue;
    }
    if (is_idle (csv, row, key))
      continue;
    g_autofree char *tokens = sp_tokens_text (g_ascii_strtod (value, NULL));
    if (g_str_equal (key, "lasp-version"))
      key = "version";
    if (g_str_equal (key, "sequence_tokens"))
      g_string_append_printf (rest, ", %s tokens", tokens);
    else
      g_string_append_printf (rest, ", %s %s", key, value);
  }
  if (any && factors->len == 0)
    g_string_append (factors, "none of these");
  g_string_append (factors, rest->str);
  return g_strdup (g_str_has_prefix (factors->str, ", ") ? factors->str + 2 : factors->str);
}

/* --- the axis ----------------------------------------------------------------------------------------------------- */

static gboolean
column_varies (const SpCsv *csv, gint column)
{
  g_autofree char *first = column >= 0 ? sp_csv_text (csv, 0, column) : NULL;

  for (guint row = 1; first != NULL && row < csv->rows->len; row++) {
    g_autofree char *text = sp_csv_text (csv, row, column);
    if (*text != '\0' && !g_str_equal (first, text))
      return TRUE;
  }
  return FALSE;
}

static gboolean
is_number_column (const SpCsv *csv, gint column)
{
  for (guint row = 0; row < csv->rows->len; row++)
    if (!(sp_csv_number (csv, row, column) > 0))
      return FALSE;
  return TRUE;
}

static gint
x_column (const SpCsv *csv, const gboolean *varies, guint n_keys)
{
  gint gpus = sp_csv_find (csv, "gpus");

  for (guint c = 0; c < n_keys; c++)
    if (varies[c] && g_str_equal (csv->columns[c], "sequence_tokens"))
      return (gint) c;
  if (gpus >= 0 && column_varies (csv, gpus))
    return gpus;
  for (guint c = 0; c < n_keys; c++)
    if (varies[c] && is_number_column (csv, (gint) c))
      return (gint) c;
  for (guint c = 0; c < n_keys; c++)
    if (varies[c])
      return (gint) c;
  return 0;
}

/* Doublings stand at equal distances, others as they are. */
static SpScale
scale_of (const SpCsv *csv, gint column)
{
  const char *key = bare_key (csv->columns[column]);
  double min = INFINITY, max = 0;

  if (!is_number_column (csv, column))
    return SP_SCALE_NAMES;
  if (g_strv_contains (degrees, key) || g_str_equal (key, "sequence_tokens") || g_str_equal (key, "gpus"))
    return SP_SCALE_LOG2;
  for (guint row = 0; row < csv->rows->len; row++) {
    min = MIN (min, sp_csv_number (csv, row, column));
    max = MAX (max, sp_csv_number (csv, row, column));
  }
  return max / min >= 4 ? SP_SCALE_LOG2 : SP_SCALE_LINEAR;
}

static void
set_axis (SpSweepTable *table, gint column)
{
  const SpCsv *csv = table->csv;
  const char *key = bare_key (csv->columns[column]);

  table->x.scale = scale_of (csv, column);
  table->x.tokens = g_str_equal (key, "sequence_tokens");
  table->x.min = table->x.max = NAN;
  table->x_label = g_strdup (table->x.tokens                     ? "sequence, tokens"
                             : g_str_equal (key, "gpus")         ? "GPUs"
                             : g_str_equal (key, "global-batch") ? "global batch, sequences"
                             : g_str_equal (key, "micro-batch")  ? "micro-batch, sequences"
                                                                 : key);
  table->x.label = table->x_label;
  if (table->x.scale == SP_SCALE_NAMES)
    table->x.names = g_ptr_array_new_with_free_func (g_free);
}

/* Whether the key on the axis decides what column c is, or, with `used`, what it is where it is not 1. */
static gboolean
decides (const SpCsv *csv, gint x, gint c, gboolean used)
{
  g_autoptr (GHashTable) value_at = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  gboolean decided = TRUE;

  for (guint row = 0; row < csv->rows->len && decided; row++) {
    char *at = sp_csv_text (csv, row, x), *value = sp_csv_text (csv, row, c);
    const char *known = g_hash_table_lookup (value_at, at);
    if (used && g_str_equal (value, "1")) {
      g_free (at);
      g_free (value);
      continue;
    }
    decided = known == NULL || g_str_equal (known, value);
    g_hash_table_replace (value_at, at, value);
  }
  return decided;
}

/* Whether a column has two values besides 1. */
static gboolean
has_degrees (const SpCsv *csv, gint c)
{
  g_autofree char *first = NULL;

  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *value = sp_csv_text (csv, row, c);
    if (g_str_equal (value, "1"))
      continue;
    if (first != NULL && !g_str_equal (first, value))
      return TRUE;
    g_free (first);
    first = g_steal_pointer (&value);
  }
  return FALSE;
}

/* Keys that the one on the axis decides, as `data` does with `nodes`, name no series; degrees that it decides in some
 * series, as `ring` where it grows with the GPUs and others have `tensor`, name it without their number. */
static gboolean *
leave_decided (const SpCsv *csv, gint x, guint n_keys, gboolean *varies)
{
  gboolean *bare = g_new0 (gboolean, csv->n_columns);

  for (gint c = 0; c < (gint) n_keys; c++) {
    varies[c] = varies[c] && c != x && !decides (csv, x, c, FALSE);
    bare[c] = varies[c] && g_strv_contains (degrees, bare_key (csv->columns[c])) && has_degrees (csv, c) &&
              decides (csv, x, c, TRUE);
  }
  return bare;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void
fill (SpSweepTable *table, gint x, const gboolean *shown, const gboolean *bare)
{
  const SpCsv *csv = table->csv;
  guint n = csv->rows->len;
  gint outcome = sp_csv_find (csv, "outcome"), published = sp_csv_find (csv, "published");
  g_autoptr (GHashTable) numbers = g_hash_table_new (g_str_hash, g_str_equal);
  g_autoptr (GHashTable) places = g_hash_table_new (g_str_hash, g_str_equal);

  table->series_of = g_new (guint, n);
  table->x_of = g_new (double, n);
  table->priced = g_new0 (guint8, n);
  table->fits = g_new0 (guint8, n);
  table->published = g_new0 (guint8, n);
  for (guint row = 0; row < n; row++) {
    g_autofree char *said = sp_csv_text (csv, row, outcome);
    table->series_of[row] = sp_name_number (table->series, numbers, sp_sweep_row_name (csv, row, shown, bare));
    table->x_of[row] = table->x.names == NULL ? sp_csv_number (csv, row, x)
                                              : sp_name_number (table->x.names, places, sp_csv_text (csv, row, x));
    table->fits[row] = g_str_equal (said, "fits");
    table->priced[row] = table->fits[row] || g_str_has_prefix (said, "out of ");
    table->n_priced += table->priced[row];
    g_autofree char *source = published >= 0 ? sp_csv_text (csv, row, published) : NULL;
    table->published[row] = source != NULL && *source != '\0';
    table->n_published += table->published[row];
  }
}

SpSweepTable *
sp_sweep_table_new (const SpCsv *csv, GError **error)
{
  guint n_keys = 0;
  g_autofree gboolean *varies = sp_sweep_varying (csv, &n_keys, error);

  if (varies == NULL)
    return NULL;
  g_autoptr (SpSweepTable) table = g_new0 (SpSweepTable, 1);
  gint x = x_column (csv, varies, n_keys);
  table->csv = csv;
  table->series = g_ptr_array_new_with_free_func (g_free);
  set_axis (table, x);
  g_autofree gboolean *bare = leave_decided (csv, x, n_keys, varies);
  fill (table, x, varies, bare);
  if (table->n_priced > 0)
    return g_steal_pointer (&table);
  gint reason = sp_csv_find (csv, "reason");
  g_autofree char *first = reason >= 0 ? sp_csv_text (csv, 0, reason) : g_strdup ("");
  sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: no row has figures, the first one: %s", csv->path,
                  *first != '\0' ? first : "no reason is given");
  return NULL;
}

void
sp_sweep_table_free (SpSweepTable *table)
{
  if (table == NULL)
    return;
  g_ptr_array_unref (table->series);
  g_clear_pointer (&table->x.names, g_ptr_array_unref);
  g_free (table->x_label);
  g_free (table->series_of);
  g_free (table->x_of);
  g_free (table->priced);
  g_free (table->fits);
  g_free (table->published);
  g_free (table);
}

double
sp_throughput_unit (double most, const char **ret_label)
{
  if (most >= 2e6) {
    *ret_label = "throughput, million tokens/s (all GPUs)";
    return 1e6;
  }
  *ret_label = most >= 2e4 ? "throughput, thousand tokens/s (all GPUs)" : "throughput, tokens/s (all GPUs)";
  return most >= 2e4 ? 1e3 : 1;
}
