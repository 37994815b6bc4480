/* SPDX-License-Identifier: Apache-2.0 */
/* Runs as they stand in a CSV: what each has set, and what was measured. */
#include <math.h>
#include <string.h>

#include "calibrate/validate/private.h"

const char *const sp_aspect_names[SP_N_ASPECTS + 1] = { "time", "memory", "outcome", "longest", NULL };

const SpObservedRow sp_observed_rows[SP_N_OBSERVED] = {
  { "step_time_s", SP_ASPECT_TIME, SP_UNIT_SECONDS, FALSE },
  { "undivided_s", SP_ASPECT_TIME, SP_UNIT_SECONDS, FALSE },
  { "tokens_per_s", SP_ASPECT_TIME, SP_UNIT_NUMBER, TRUE },
  { "tokens_per_s_per_gpu", SP_ASPECT_TIME, SP_UNIT_NUMBER, TRUE },
  { "mfu", SP_ASPECT_TIME, SP_UNIT_FRACTION, TRUE },
  { "mfu_causal", SP_ASPECT_TIME, SP_UNIT_FRACTION, TRUE },
  { "hfu", SP_ASPECT_TIME, SP_UNIT_FRACTION, TRUE },
  { "peak_bytes", SP_ASPECT_MEMORY, SP_UNIT_BYTES, FALSE },
  { "reserved_bytes", SP_ASPECT_MEMORY, SP_UNIT_BYTES, FALSE },
  { "first_stage_reserved_bytes", SP_ASPECT_MEMORY, SP_UNIT_BYTES, FALSE },
  { "allocated_bytes", SP_ASPECT_MEMORY, SP_UNIT_BYTES, FALSE },
  { "states_bytes", SP_ASPECT_MEMORY, SP_UNIT_BYTES, FALSE },
  { "activations_bytes", SP_ASPECT_MEMORY, SP_UNIT_BYTES, FALSE },
  { "block_states_bytes", SP_ASPECT_MEMORY, SP_UNIT_BYTES, FALSE },
  { "block_activations_bytes", SP_ASPECT_MEMORY, SP_UNIT_BYTES, FALSE },
  { "longest_tokens", SP_ASPECT_LONGEST, SP_UNIT_TOKENS, FALSE },
};

enum { SCENARIO, OUTCOME, SPLIT, ASIDE, CELL, GPUS, PUBLISHED, NOTE, N_OTHERS };

static const char *const others[N_OTHERS + 1] = { "scenario", "outcome",   "split", "aside", "cell",
                                                  "gpus",     "published", "note",  NULL };

typedef enum { COLUMN_NOTE, COLUMN_KEY, COLUMN_OBSERVED, COLUMN_OTHER } ColumnType;

typedef struct {
  ColumnType type;
  guint index;     /* of an observed or other one */
  const char *key; /* as --set takes it */
} Column;

typedef struct {
  SpValidation *v;
  const SpRunGroup *group;
  guint group_index;
  Column *columns;
  gint *cells, *choices; /* columns that make a cell (without them the column cell, if there is one) and a choice, each
                          * ended by -1; NULL: none */
} Reader;

/* --- columns ------------------------------------------------------------------------------------------------------ */

const char *
sp_validation_key (const char *column)
{
  const char *group, *name, *bare = g_str_equal (column, "sequence_tokens") ? "sequence" : column;

  for (guint i = 0;; i++) {
    g_autofree char *usual = NULL;
    if (!sp_scenario_key (i, &group, &name, &usual))
      return NULL;
    gsize n = strlen (group);
    gboolean full = strncmp (bare, group, n) == 0 && bare[n] == '.' && g_str_equal (bare + n + 1, name);
    if (full || g_str_equal (bare, name))
      return bare;
  }
}

static gboolean
refuse_column (const SpCsv *data, guint c, GError **error)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new (), texts = g_ptr_array_new_with_free_func (g_free);
  const char *group, *name;
  char *usual;

  for (guint i = 0; sp_scenario_key (i, &group, &name, &usual); i++) {
    g_ptr_array_add (texts, usual);
    g_ptr_array_add (names, (gpointer) name);
  }
  for (guint i = 0; i < SP_N_OBSERVED; i++)
    g_ptr_array_add (names, (gpointer) sp_observed_rows[i].name);
  for (guint i = 0; i < N_OTHERS; i++)
    g_ptr_array_add (names, (gpointer) others[i]);
  g_ptr_array_add (names, NULL);
  g_autofree char *near = sp_did_you_mean (data->columns[c], (const char *const *) names->pdata);
  g_autofree char *shown = sp_shown (data->columns[c]);
  return sp_input_fail (error, SP_INPUT_ERROR_KEY,
                        "%s: column \"%s\": expected a key of a scenario, a measured column, or one that begins with "
                        "note- or by-%s",
                        data->path, shown, near);
}

static gboolean
find_column (const char *name, Column *ret)
{
  for (guint i = 0; i < SP_N_OBSERVED; i++)
    if (g_str_equal (name, sp_observed_rows[i].name)) {
      *ret = (Column){ COLUMN_OBSERVED, i, NULL };
      return TRUE;
    }
  for (guint i = 0; i < N_OTHERS; i++)
    if (g_str_equal (name, others[i])) {
      *ret = (Column){ COLUMN_OTHER, i, NULL };
      return TRUE;
    }
  *ret = (Column){ COLUMN_KEY, 0, sp_validation_key (name) };
  if (ret->key == NULL)
    ret->type = COLUMN_NOTE;
  return ret->key != NULL || g_str_has_prefix (name, "note-") || g_str_has_prefix (name, "by-");
}

static gboolean
read_header (Reader *r, GError **error)
{
  const SpCsv *data = r->group->data;

  for (guint c = 0; c < data->n_columns; c++) {
    if (!find_column (data->columns[c], &r->columns[c]))
      return refuse_column (data, c, error);
    if ((guint) sp_csv_find (data, data->columns[c]) != c)
      return sp_input_fail (error, SP_INPUT_ERROR_KEY, "%s: column %s stands twice", data->path, data->columns[c]);
  }
  return TRUE;
}

/* --- cells -------------------------------------------------------------------------------------------------------- */

static gboolean
refuse (const Reader *r, guint row, guint column, const char *cell, const char *expected, GError **error)
{
  g_autofree char *shown = sp_shown (cell);

  return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: row %u: %s = \"%s\": expected %s", r->group->data_path,
                        row + 1, r->group->data->columns[column], shown, expected);
}

/* A plain number in the unit of the column's name, or one with its unit. */
static gboolean
read_observed (const Reader *r, guint row, guint column, const char *cell, double *ret, GError **error)
{
  static const char *const examples[] = {
    [SP_UNIT_BYTES] = "a number of bytes, or a size such as 59.25 GiB",
    [SP_UNIT_SECONDS] = "a number of seconds, or a time such as 19.6 ms",
    [SP_UNIT_FRACTION] = "a fraction above 0, such as 0.41 or 41 %",
    [SP_UNIT_TOKENS] = "a number of tokens, such as 524288 or 512K",
    [SP_UNIT_NUMBER] = "a number above 0",
  };
  SpUnit unit = sp_observed_rows[r->columns[column].index].unit;
  char *end;
  double value = g_ascii_strtod (cell, &end);
  gboolean parsed = *end == '\0' || sp_parse_quantity (cell, unit, &value, NULL);

  if (!parsed || !isfinite (value) || value <= 0)
    return refuse (r, row, column, cell, examples[unit], error);
  *ret = value;
  return TRUE;
}

static gboolean
read_outcome (const Reader *r, guint row, guint column, const char *cell, SpMeasuredRun *run, GError **error)
{
  static const char *const words[] = { "oom", "fits", "out of memory", "out of host memory" };

  for (guint i = 0; i < G_N_ELEMENTS (words); i++)
    if (g_str_equal (cell, words[i])) {
      run->outcome = i == 1;
      return TRUE;
    }
  return refuse (r, row, column, cell, "fits or oom", error);
}

static gboolean
read_other (const Reader *r, guint row, guint column, const char *cell, SpMeasuredRun *run, GError **error)
{
  double gpus;

  switch (r->columns[column].index) {
  case SCENARIO: {
    g_autofree char *folder = g_path_get_dirname (r->group->data_path);
    g_autofree char *file = g_strconcat (cell, ".ini", NULL);
    g_free (run->scenario);
    run->scenario = g_build_filename (folder, file, NULL);
    return TRUE;
  }
  case OUTCOME:
    return read_outcome (r, row, column, cell, run, error);
  case ASIDE:
    for (guint a = 0; a < SP_N_ASPECTS; a++)
      run->aside[a] = g_strdup (cell);
    return TRUE;
  case GPUS:
    gpus = sp_rule_number (cell);
    if (!(gpus >= 1 && gpus <= 1 << 24) || gpus != floor (gpus))
      return refuse (r, row, column, cell, "a number of GPUs", error);
    run->gpus = (gint32) gpus;
    return TRUE;
  default:
    return TRUE;
  }
}

/* What stands in the columns, after the group's name; NULL: nothing, or no columns. */
static char *
joined (const Reader *r, guint row, const gint *columns)
{
  g_autoptr (GString) text = g_string_new (r->group->name);
  gboolean any = FALSE;

  for (guint i = 0; columns != NULL && columns[i] >= 0; i++) {
    g_autofree char *cell = sp_csv_text (r->group->data, row, columns[i]);
    any |= *cell != '\0';
    g_string_append_printf (text, " %s", cell);
  }
  return any ? g_strdup (text->str) : NULL;
}

static gboolean
read_row (const Reader *r, guint row, GError **error)
{
  SpMeasuredRun *run = g_new0 (SpMeasuredRun, 1);
  g_autoptr (GPtrArray) sets = g_ptr_array_new_with_free_func (g_free);

  g_ptr_array_add (r->v->runs, run);
  *run = (SpMeasuredRun){ .group = r->group_index, .row = row, .outcome = -1 };
  run->scenario = g_strdup (r->group->scenario);
  for (guint i = 0; i < SP_N_OBSERVED; i++)
    run->measured[i] = run->predicted[i] = NAN;
  for (guint i = 0; r->group->sets != NULL && r->group->sets[i] != NULL; i++)
    g_ptr_array_add (sets, g_strdup (r->group->sets[i]));
  for (guint c = 0; c < r->group->data->n_columns; c++) {
    const Column *column = &r->columns[c];
    g_autofree char *text = sp_csv_text (r->group->data, row, (gint) c);
    char *cell = g_strstrip (text);
    if (*cell == '\0' || column->type == COLUMN_NOTE)
      continue;
    if (column->type == COLUMN_KEY)
      g_ptr_array_add (sets, g_strconcat (column->key, "=", cell, NULL));
    else if (column->type == COLUMN_OBSERVED ? !read_observed (r, row, c, cell, &run->measured[column->index], error)
                                             : !read_other (r, row, c, cell, run, error))
      return FALSE;
  }
  g_ptr_array_add (sets, NULL);
  run->sets = g_strdupv ((char **) sets->pdata);
  run->cell = joined (r, row, r->cells);
  run->choice = joined (r, row, r->choices);
  return TRUE;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static gboolean
find_columns (const Reader *r, const char *key, char **names, gint **ret, GError **error)
{
  const SpCsv *data = r->group->data;
  guint n = g_strv_length (names);

  *ret = g_new (gint, n + 1);
  (*ret)[n] = -1;
  for (guint i = 0; i < n; i++)
    if (((*ret)[i] = sp_csv_find (data, names[i])) < 0) {
      g_autofree char *near = sp_did_you_mean (names[i], (const char *const *) data->columns);
      return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: [rows.%s] %s: %s has no column %s%s", r->v->path,
                            r->group->name, key, data->path, names[i], near);
    }
  return TRUE;
}

static gboolean
find_cells (Reader *r, char **cells, char **choices, GError **error)
{
  char *own[] = { (char *) others[CELL], NULL };

  if (cells == NULL && sp_csv_find (r->group->data, others[CELL]) >= 0)
    cells = own;
  return (cells == NULL || find_columns (r, "cell", cells, &r->cells, error)) &&
         (choices == NULL || find_columns (r, "choice", choices, &r->choices, error));
}

gboolean
sp_validation_read_data (SpValidation *v, guint group, char **cells, char **choices, GError **error)
{
  SpRunGroup *g = v->groups->pdata[group];
  gsize length;
  char *text = sp_read_measurements (g->data_path, &length, error);

  g->data = text != NULL ? sp_csv_new (g->data_path, text, length, error) : NULL;
  if (text == NULL)
    g_prefix_error (error, "%s: [rows.%s] data: ", v->path, g->name);
  if (g->data == NULL)
    return FALSE;
  if (g->data->rows->len == 0)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: has a header and no rows", g->data_path);
  g_autofree Column *columns = g_new0 (Column, g->data->n_columns);
  Reader r = { v, g, group, columns, NULL, NULL };
  gboolean read = read_header (&r, error) && find_cells (&r, cells, choices, error);
  for (guint row = 0; read && row < g->data->rows->len; row++)
    read = read_row (&r, row, error);
  g_free (r.cells);
  g_free (r.choices);
  return read;
}
