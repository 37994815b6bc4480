/* SPDX-License-Identifier: Apache-2.0 */
/* What of the data is fitted, set aside and explained: rules over its columns. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate/validate/private.h"

double
sp_rule_number (const char *text)
{
  char *end;
  double value = g_ascii_strtod (text, &end);

  if (end == text || !isfinite (value))
    return NAN;
  while (*end == ' ')
    end++;
  if (g_str_equal (end, ""))
    return value;
  if (g_str_equal (end, "%"))
    return value / 100;
  const char *unit = strchr ("KMG", *end);
  return unit != NULL && *unit != '\0' && end[1] == '\0' ? ldexp (value, (int) (10 * (unit - "KMG" + 1))) : NAN;
}

/* --- conditions --------------------------------------------------------------------------------------------------- */

/* Those of two characters first. */
static const char *const operators[] = { "!=", "<=", ">=", "=", "<", ">" };
enum { NOT_EQUAL, AT_MOST, AT_LEAST, EQUAL, BELOW, ABOVE };

typedef struct {
  char *column, *text;
  double number; /* NAN: a text */
  guint op;
} Condition;

struct _SpConditions {
  GArray *all;
};

static void
clear_condition (gpointer data)
{
  g_free (((Condition *) data)->column);
  g_free (((Condition *) data)->text);
}

void
sp_conditions_free (SpConditions *conditions)
{
  if (conditions == NULL)
    return;
  g_array_unref (conditions->all);
  g_free (conditions);
}

static gboolean
parse_one (const char *text, Condition *ret)
{
  gsize at = strcspn (text, "=<>!");

  for (guint op = 0; text[at] != '\0' && op < G_N_ELEMENTS (operators); op++) {
    if (!g_str_has_prefix (text + at, operators[op]))
      continue;
    ret->op = op;
    ret->column = g_strstrip (g_strndup (text, at));
    ret->text = g_strstrip (g_strdup (text + at + strlen (operators[op])));
    ret->number = sp_rule_number (ret->text);
    gboolean is_ordered = op != EQUAL && op != NOT_EQUAL;
    return *ret->column != '\0' && *ret->text != '\0' && !(is_ordered && isnan (ret->number));
  }
  return FALSE;
}

SpConditions *
sp_conditions_parse (const char *text, char **ret_problem)
{
  g_autoptr (SpConditions) conditions = g_new0 (SpConditions, 1);
  g_auto (GStrv) parts = g_strsplit (text, " and ", -1);

  conditions->all = g_array_new (FALSE, TRUE, sizeof (Condition));
  g_array_set_clear_func (conditions->all, clear_condition);
  for (guint i = 0; parts[i] != NULL; i++) {
    Condition condition = { 0 };
    gboolean parsed = parse_one (parts[i], &condition);
    g_array_append_val (conditions->all, condition);
    if (parsed)
      continue;
    g_autofree char *shown = sp_shown (g_strstrip (parts[i]));
    *ret_problem = g_strdup_printf ("\"%s\": expected COLUMN = VALUE (or !=, and of numbers <, <=, >, >=), several of "
                                    "them joined by \"and\"",
                                    shown);
    return NULL;
  }
  return g_steal_pointer (&conditions);
}

const char *
sp_conditions_unknown (const SpConditions *conditions, const SpCsv *data)
{
  for (guint i = 0; i < conditions->all->len; i++)
    if (sp_csv_find (data, g_array_index (conditions->all, Condition, i).column) < 0)
      return g_array_index (conditions->all, Condition, i).column;
  return NULL;
}

/* An empty cell is unlike all values, and in no order with them. */
static gboolean
holds (const Condition *c, const char *cell)
{
  double number = sp_rule_number (cell);
  gboolean numbers = !isnan (number) && !isnan (c->number);

  switch (c->op) {
  case EQUAL:
    return numbers ? number == c->number : g_str_equal (cell, c->text);
  case NOT_EQUAL:
    return numbers ? number != c->number : !g_str_equal (cell, c->text);
  case BELOW:
    return numbers && number < c->number;
  case AT_MOST:
    return numbers && number <= c->number;
  case ABOVE:
    return numbers && number > c->number;
  default:
    return numbers && number >= c->number;
  }
}

gboolean
sp_conditions_hold (const SpConditions *conditions, const SpCsv *data, guint row)
{
  for (guint i = 0; i < conditions->all->len; i++) {
    const Condition *c = &g_array_index (conditions->all, Condition, i);
    g_autofree char *cell = sp_csv_text (data, row, sp_csv_find (data, c->column));
    if (!holds (c, cell))
      return FALSE;
  }
  return TRUE;
}

/* Parsed, and of columns that the data have; a refusal of the key otherwise. */
static SpConditions *
read_conditions (SpIni *ini, const char *group, const char *key, const char *text, const SpCsv *data, GError **error)
{
  g_autofree char *problem = NULL;
  g_autoptr (SpConditions) conditions = sp_conditions_parse (text, &problem);
  const char *unknown = conditions != NULL ? sp_conditions_unknown (conditions, data) : NULL;

  if (conditions == NULL)
    sp_ini_refuse (ini, group, key, error, "%s", problem);
  else if (unknown != NULL) {
    g_autofree char *near = sp_did_you_mean (unknown, (const char *const *) data->columns);
    sp_ini_refuse (ini, group, key, error, "%s has no column %s%s", data->path, unknown, near);
  }
  return conditions == NULL || unknown != NULL ? NULL : g_steal_pointer (&conditions);
}

/* Of conditions that hold nowhere: a word of them is misspelt, or the data have changed. */
static gboolean
refuse_idle (SpIni *ini, const char *group, const char *key, const SpCsv *data, GError **error)
{
  return sp_ini_refuse (ini, group, key, error, "holds for no row of %s", data->path);
}

/* --- what is set aside, and why runs miss ------------------------------------------------------------------------- */

/* "WORD where CONDITIONS: TEXT" in its three parts. */
static gboolean
split_rule (const char *rule, char **ret_word, char **ret_conditions, char **ret_text)
{
  const char *where = g_str_has_prefix (rule, "where ") ? rule : strstr (rule, " where ");
  const char *colon = where != NULL ? strstr (where, ": ") : NULL;

  if (colon == NULL)
    return FALSE;
  *ret_word = g_strstrip (g_strndup (rule, (gsize) (where - rule)));
  const char *begin = strstr (where, "where ") + strlen ("where ");
  *ret_conditions = g_strstrip (g_strndup (begin, (gsize) (colon - begin)));
  *ret_text = g_strstrip (g_strdup (colon + 2));
  return **ret_text != '\0';
}

/* Of one aspect, or of all (-1); the first reason stays. */
static void
set_reason (char **reasons, int aspect, const char *reason)
{
  for (int a = 0; a < SP_N_ASPECTS; a++)
    if ((aspect < 0 || a == aspect) && reasons[a] == NULL)
      reasons[a] = g_strdup (reason);
}

static int
find_aspect (const char *word)
{
  for (int i = 0; i < SP_N_ASPECTS; i++)
    if (g_str_equal (word, sp_aspect_names[i]))
      return i;
  return -1;
}

/* Either rule; `is_why`: it sets nothing aside. */
static gboolean
apply (SpIni *ini, const char *group_name, const char *key, gboolean is_why, SpValidation *v, guint group,
       GError **error)
{
  const SpRunGroup *g = v->groups->pdata[group];
  g_autofree char *rule = NULL, *word = NULL, *condition = NULL, *text = NULL;

  if (!sp_ini_string (ini, group_name, key, SP_INI_REQUIRED, &rule, error))
    return FALSE;
  gboolean parsed = split_rule (rule, &word, &condition, &text);
  int aspect = parsed ? find_aspect (word) : -1;
  if (!parsed || (*word != '\0' && (aspect < 0 || (is_why && aspect == SP_ASPECT_OUTCOME))))
    return sp_ini_refuse (ini, group_name, key, error, "expected %swhere CONDITIONS: %s",
                          is_why ? "[time|memory|longest] " : "[time|memory|outcome|longest] ",
                          is_why ? "what is missing" : "a reason");
  g_autoptr (SpConditions) conditions = read_conditions (ini, group_name, key, condition, g->data, error);
  if (conditions == NULL)
    return FALSE;
  guint n = 0;
  for (guint i = 0; i < v->runs->len; i++) {
    SpMeasuredRun *run = v->runs->pdata[i];
    if (run->group != group || !sp_conditions_hold (conditions, g->data, run->row))
      continue;
    n++;
    set_reason (is_why ? run->why : run->aside, aspect, text);
  }
  if (n == 0)
    return refuse_idle (ini, group_name, key, g->data, error);
  return TRUE;
}

gboolean
sp_rule_aside (SpIni *ini, const char *group_name, const char *key, SpValidation *v, guint group, GError **error)
{
  return apply (ini, group_name, key, FALSE, v, group, error);
}

gboolean
sp_rule_why (SpIni *ini, const char *group_name, const char *key, SpValidation *v, guint group, GError **error)
{
  return apply (ini, group_name, key, TRUE, v, group, error);
}

/* --- which runs are fitted ---------------------------------------------------------------------------------------- */

typedef struct {
  SpMeasuredRun *run;
  char **cells; /* of the columns to sort by */
} Sorted;

static void
clear_sorted (gpointer data)
{
  g_strfreev (((Sorted *) data)->cells);
}

/* Numbers as numbers, before texts; those alike in the file's order. */
static gint
compare (gconstpointer a, gconstpointer b)
{
  const Sorted *x = a, *y = b;

  for (guint i = 0; x->cells[i] != NULL; i++) {
    double m = sp_rule_number (x->cells[i]), n = sp_rule_number (y->cells[i]);
    if (isnan (m) != isnan (n))
      return isnan (m) ? 1 : -1;
    gint order = isnan (m) ? strcmp (x->cells[i], y->cells[i]) : (m > n) - (m < n);
    if (order != 0)
      return order;
  }
  return (x->run->row > y->run->row) - (x->run->row < y->run->row);
}

static void
fit_every (SpValidation *v, guint group, guint n, const gint *columns, guint n_columns)
{
  const SpRunGroup *g = v->groups->pdata[group];
  g_autoptr (GArray) sorted = g_array_new (FALSE, TRUE, sizeof (Sorted));

  g_array_set_clear_func (sorted, clear_sorted);
  for (guint i = 0; i < v->runs->len; i++) {
    SpMeasuredRun *run = v->runs->pdata[i];
    if (run->group != group || sp_run_is_aside (run))
      continue;
    Sorted entry = { run, g_new0 (char *, n_columns + 1) };
    for (guint c = 0; c < n_columns; c++)
      entry.cells[c] = sp_csv_text (g->data, run->row, columns[c]);
    g_array_append_val (sorted, entry);
  }
  g_array_sort (sorted, compare);
  for (guint i = 0; i < sorted->len; i += n)
    g_array_index (sorted, Sorted, i).run->is_fitted = TRUE;
}

/* "every N by COLUMN, COLUMN" */
static gboolean
split_every (SpIni *ini, const char *group_name, const char *text, SpValidation *v, guint group, GError **error)
{
  const SpRunGroup *g = v->groups->pdata[group];
  char *end;
  guint64 n = g_ascii_strtoull (text, &end, 10);
  g_autofree char *rest = g_strstrip (g_strdup (end));
  gboolean by = g_str_has_prefix (rest, "by ");

  if (n < 2 || n > 1000 || (*rest != '\0' && !by))
    return sp_ini_refuse (ini, group_name, "split", error, "expected every N (2 to 1000), or every N by COLUMN, ...");
  g_auto (GStrv) names = g_strsplit (by ? rest + strlen ("by ") : "", ",", -1);
  g_autofree gint *columns = g_new (gint, g_strv_length (names) + 1);
  guint n_columns = 0;
  for (; by && names[n_columns] != NULL; n_columns++) {
    columns[n_columns] = sp_csv_find (g->data, g_strstrip (names[n_columns]));
    if (columns[n_columns] < 0) {
      g_autofree char *near = sp_did_you_mean (names[n_columns], (const char *const *) g->data->columns);
      return sp_ini_refuse (ini, group_name, "split", error, "%s has no column %s%s", g->data->path, names[n_columns],
                            near);
    }
  }
  fit_every (v, group, (guint) n, columns, n_columns);
  return TRUE;
}

static gboolean
split_by_column (SpValidation *v, guint group, GError **error)
{
  const SpRunGroup *g = v->groups->pdata[group];
  gint column = sp_csv_find (g->data, "split");

  if (column < 0)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: has no column split, which the set's rule is",
                          g->data_path);
  for (guint i = 0; i < v->runs->len; i++) {
    SpMeasuredRun *run = v->runs->pdata[i];
    if (run->group != group)
      continue;
    g_autofree char *cell = sp_csv_text (g->data, run->row, column);
    g_autofree char *shown = sp_shown (cell);
    run->is_fitted = g_str_equal (cell, "fit");
    if (!run->is_fitted && !g_str_equal (cell, "held-out"))
      return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: row %u: split = \"%s\": expected fit or held-out",
                            g->data_path, run->row + 1, shown);
  }
  return TRUE;
}

gboolean
sp_rule_split (SpIni *ini, const char *group_name, const char *text, SpValidation *v, guint group, GError **error)
{
  const SpRunGroup *g = v->groups->pdata[group];
  gboolean all = g_str_equal (text, "fit"), where = g_str_has_prefix (text, "where ");
  g_autoptr (SpConditions) conditions = NULL;

  if (g_str_equal (text, "held-out"))
    return TRUE;
  if (g_str_equal (text, "column"))
    return split_by_column (v, group, error);
  if (g_str_has_prefix (text, "every "))
    return split_every (ini, group_name, text + strlen ("every "), v, group, error);
  if (!all && !where)
    return sp_ini_refuse (ini, group_name, "split", error,
                          "expected held-out, fit, column, every N [by COLUMN, ...] or where CONDITIONS");
  if (where &&
      (conditions = read_conditions (ini, group_name, "split", text + strlen ("where "), g->data, error)) == NULL)
    return FALSE;
  guint n = 0;
  for (guint i = 0; i < v->runs->len; i++) {
    SpMeasuredRun *run = v->runs->pdata[i];
    if (run->group != group)
      continue;
    run->is_fitted = all || sp_conditions_hold (conditions, g->data, run->row);
    n += run->is_fitted;
  }
  /* The set's own is of all its groups. */
  return n > 0 || g_str_equal (group_name, "set") || refuse_idle (ini, group_name, "split", g->data, error);
}
