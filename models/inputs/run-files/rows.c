/* SPDX-License-Identifier: Apache-2.0 */
/* A format's table at work, in both directions. */
#include "models/inputs/run-files/formats.h"

#include <math.h>
#include <string.h>

#include "models/inputs/ini.h"

/* --- values ------------------------------------------------------------------------------------------------------- */

char *
sp_run_map (const SpRunRow *row, const char *value, gboolean to_ours)
{
  if (row->values == NULL)
    return g_strdup (value);
  g_auto (GStrv) pairs = g_strsplit (row->values, " ", -1);
  for (guint i = 0; pairs[i] != NULL; i++) {
    char *equals = strchr (pairs[i], '=');
    *equals = '\0';
    const char *from = to_ours ? pairs[i] : equals + 1;
    if (g_ascii_strcasecmp (from, value) == 0)
      return g_strdup (to_ours ? equals + 1 : pairs[i]);
  }
  return NULL;
}

/* The foreign names that a map has, for messages. */
static char *
known_values (const SpRunRow *row)
{
  g_auto (GStrv) pairs = g_strsplit (row->values, " ", -1);
  g_autoptr (GString) out = g_string_new (NULL);
  for (guint i = 0; pairs[i] != NULL; i++) {
    *strchr (pairs[i], '=') = '\0';
    if (i == 0 || !g_str_equal (pairs[i], pairs[i - 1])) /* one may mean two things */
      g_string_append_printf (out, "%s%s", i > 0 ? ", " : "", pairs[i]);
  }
  return g_strdup (out->str);
}

/* A list, or a word of the program that a scenario has none for. */
static gboolean
is_other (const SpRunRow *row, const SpRunItem *item)
{
  g_auto (GStrv) others = g_strsplit (row->others != NULL ? row->others : "", " ", -1);
  gboolean found = row->type != SP_ROW_WORD || item->type == SP_ITEM_LIST || strpbrk (item->text, " ,") != NULL;

  for (guint i = 0; others[i] != NULL && !found; i++)
    found = g_pattern_match_simple (others[i], item->text);
  return found;
}

static gboolean
refuse (const SpRunFile *file, const SpRunItem *item, GError **error, const char *expected)
{
  g_autofree char *place = sp_run_item_place (file->items, item);
  g_autofree char *shown = sp_shown (item->text);
  gboolean shell = strchr (item->text, '$') != NULL;
  return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s = \"%s\": %s%s", place, shown, expected,
                        shell ? " (a shell variable is not filled in here)" : "");
}

/* A word that the program would not take either, as far as is known. */
static gboolean
refuse_word (const SpRunFile *file, const SpRunRow *row, const SpRunItem *item, GError **error)
{
  g_autofree char *known = known_values (row);
  g_autofree char *all = g_strconcat (known, row->others != NULL ? " " : "", row->others, NULL);
  g_auto (GStrv) names = g_strsplit (g_strdelimit (all, ",", ' '), " ", -1);
  guint n = 0;

  for (guint i = 0; names[i] != NULL; i++) /* patterns are no choice */
    if (*names[i] != '\0' && strchr (names[i], '*') == NULL)
      names[n++] = names[i];
    else
      g_free (names[i]);
  names[n] = NULL;
  g_autofree char *near = sp_did_you_mean (item->text, (const char *const *) names);
  g_autofree char *choice = g_strjoinv (", ", names);
  g_autofree char *expected = g_strdup_printf ("expected %s%s%s", n > 1 ? "one of " : "", choice, near);
  return refuse (file, item, error, expected);
}

/* A whole number, also as 1e6 or 5.0e8: JSON and TOML writers do. */
static gboolean
whole_number (const char *text, gint64 *ret)
{
  char *end;
  double value = g_ascii_strtod (text, &end);
  if (end == text || *end != '\0' || !isfinite (value) || value != floor (value) || fabs (value) > G_MAXINT32 ||
      strpbrk (text, "xX") != NULL)
    return FALSE;
  *ret = (gint64) value;
  return TRUE;
}

/* Whether the item has the row's type; its value in canonical form. */
static gboolean
read_typed (const SpRunFile *file, const SpRunRow *row, const SpRunItem *item, char **ret, GError **error)
{
  char text[G_ASCII_DTOSTR_BUF_SIZE];
  char *end;
  gint64 least = row->least != 0 ? row->least : row->flags & SP_ROW_ZERO ? 0 : 1, whole;
  g_autofree char *expected = NULL;
  switch (row->type) {
  case SP_ROW_INT:
    if (item->type != SP_ITEM_BOOL && item->type != SP_ITEM_FLAG && whole_number (item->text, &whole) &&
        whole >= least) {
      *ret = g_strdup_printf ("%" G_GINT64_FORMAT, whole);
      return TRUE;
    }
    expected = g_strdup_printf ("expected a whole number, at least %" G_GINT64_FORMAT, least);
    return refuse (file, item, error, expected);
  case SP_ROW_FLOAT: {
    double value = g_ascii_strtod (item->text, &end);
    if (end == item->text || *end != '\0' || !isfinite (value) || value < 0)
      return refuse (file, item, error, "expected a number that is not negative");
    *ret = g_strdup (g_ascii_formatd (text, sizeof text, "%.9g", value));
    return TRUE;
  }
  case SP_ROW_BOOL:
    if (item->type == SP_ITEM_WORD && g_str_has_prefix (item->key, "--"))
      return refuse (file, item, error, "expected no value behind this flag");
    if (item->type != SP_ITEM_BOOL && item->type != SP_ITEM_FLAG)
      return refuse (file, item, error, "expected true or false");
    *ret = g_strdup (item->text);
    return TRUE;
  default:
    if (item->type == SP_ITEM_FLAG)
      return refuse (file, item, error, "expected a value behind this flag");
    *ret = g_strdup (item->text);
    return TRUE;
  }
}

/* --- facts -------------------------------------------------------------------------------------------------------- */

gboolean
sp_run_set (SpRunFile *file, const char *key, const char *value, SpFactFrom from, const char *source, GError **error)
{
  const SpFact *before = g_hash_table_lookup (file->facts, key);
  if (before != NULL && before->from > from)
    return TRUE;
  if (before != NULL && before->from == from && from == SP_FACT_FILE && !g_str_equal (before->value, value))
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: %s contradicts %s", file->name, source, before->source);
  const char *name = strchr (key, '.') + 1;
  g_autofree char *group = g_strndup (key, (gsize) (name - key - 1));
  if (g_str_equal (group, "model") || g_str_equal (group, "file")) {
    sp_facts_put (file->facts, key, value, from, source);
    return TRUE;
  }
  g_autofree char *expected = NULL;
  g_autofree char *shown = sp_shown (value);
  switch (sp_scenario_takes (group, name, value, &expected)) {
  case SP_VALUE_TAKEN:
    sp_facts_put (file->facts, key, value, from, source);
    return TRUE;
  case SP_VALUE_LATER:
    if (from == SP_FACT_GIVEN)
      return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: [%s] %s = \"%s\": not available yet", source, group, name,
                            shown);
    sp_run_note (file, "not available yet: %s: [%s] %s = %s", source, group, name, shown);
    return TRUE;
  default: {
    const SpRunItem *item = sp_run_items_get (file->items, source);
    g_autofree char *place =
        item != NULL ? sp_run_item_place (file->items, item) : g_strdup_printf ("%s: %s", file->name, source);
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: [%s] %s = \"%s\": %s", place, group, name, shown, expected);
  }
  }
}

gboolean
sp_run_set_int (SpRunFile *file, const char *key, gint64 value, GError **error)
{
  g_autofree char *text = g_strdup_printf ("%" G_GINT64_FORMAT, value);
  return sp_run_set (file, key, text, SP_FACT_RESOLVED, key, error);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Exactly, else by the longest beginning that a row has. */
const SpRunRow *
sp_run_row (const SpRunFormat *format, const char *key)
{
  const SpRunRow *found = NULL;
  gsize longest = 0;
  for (guint i = 0; i < format->n_rows; i++) {
    const SpRunRow *row = &format->rows[i];
    gsize length = strlen (row->key) - 1;
    if (g_str_equal (row->key, key))
      return row;
    if (row->key[length] == '*' && length >= longest && strncmp (row->key, key, length) == 0) {
      found = row;
      longest = length;
    }
  }
  return found;
}

static void
note_unknown (SpRunFile *file, const SpRunItem *item)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new ();
  for (guint i = 0; i < file->format->n_rows; i++)
    if (!g_str_has_suffix (file->format->rows[i].key, "*"))
      g_ptr_array_add (names, (gpointer) file->format->rows[i].key);
  g_ptr_array_add (names, NULL);
  const char *near = sp_nearest (item->key, (const char *const *) names->pdata);
  g_autofree char *shown = sp_shown (item->key);
  sp_run_note (file, "unknown: %s%s%s%s", shown, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

static gboolean
read_item (SpRunFile *file, const SpRunRow *row, const SpRunItem *item, GError **error)
{
  g_autofree char *shown = sp_shown (item->text);
  g_autofree char *value = NULL;
  if (row->ours == NULL) {
    gboolean off = item->type == SP_ITEM_NULL || (item->type == SP_ITEM_BOOL && g_str_equal (item->text, "false"));
    if (item->type == SP_ITEM_FLAG)
      sp_run_note (file, "not mapped: %s: %s", item->key, row->why);
    else if (!off)
      sp_run_note (file, "not mapped: %s = %s: %s", item->key, shown, row->why);
    return TRUE;
  }
  if (item->type == SP_ITEM_NULL)
    return TRUE;
  if (item->type == SP_ITEM_WORD && g_str_equal (item->text, "auto") && row->type != SP_ROW_WORD) {
    g_hash_table_replace (file->automatic, g_strdup (row->ours), g_strdup (item->key));
    return TRUE;
  }
  if (!read_typed (file, row, item, &value, error))
    return FALSE;
  g_autofree char *ours = sp_run_map (row, value, TRUE);
  if (ours == NULL) {
    g_autofree char *known = known_values (row);
    if (g_str_equal (value, "false") && row->type == SP_ROW_BOOL)
      return TRUE;
    if (!is_other (row, item))
      return refuse_word (file, row, item, error);
    sp_run_note (file, "not mapped: %s = %s: seqpar maps %s", item->key, shown, known);
    return TRUE;
  }
  if (row->why != NULL && !g_str_equal (value, "false"))
    sp_run_note (file, "note: %s: %s", item->key, row->why);
  return sp_run_set (file, row->ours, ours, SP_FACT_FILE, item->key, error);
}

/* What the foreign program takes for a key that is not there. */
static gboolean
read_absent (SpRunFile *file, GError **error)
{
  for (guint i = 0; i < file->format->n_rows; i++) {
    const SpRunRow *row = &file->format->rows[i];
    if (row->absent == NULL || sp_facts_get (file->facts, row->ours) != NULL ||
        g_hash_table_contains (file->automatic, row->ours) || sp_run_items_get (file->items, row->key) != NULL)
      continue;
    g_autofree char *ours = sp_run_map (row, row->absent, TRUE);
    g_autofree char *source = g_strconcat ("without ", row->key, NULL);
    if (ours != NULL && !sp_run_set (file, row->ours, ours, SP_FACT_ABSENT, source, error))
      return FALSE;
  }
  return TRUE;
}

gboolean
sp_run_read_rows (SpRunFile *file, GError **error)
{
  g_autoptr (GString) ignored = g_string_new (NULL);
  g_autoptr (GHashTable) listed = g_hash_table_new (g_direct_hash, g_direct_equal); /* rows, each once */
  for (guint i = 0; i < file->items->list->len; i++) {
    const SpRunItem *item = file->items->list->pdata[i];
    const SpRunRow *row = sp_run_row (file->format, item->key);
    if ((row == NULL || row->ours == NULL) && strchr (item->text, '$') != NULL) { /* may have been flags */
      g_autofree char *shown = sp_shown (item->text);
      sp_run_note (file, "note: %s = %s: a shell variable is not filled in here", item->key, shown);
    }
    if (row == NULL)
      note_unknown (file, item);
    else if (row->ours == NULL && row->why == NULL) {
      if (g_hash_table_add (listed, (gpointer) row))
        g_string_append_printf (ignored, "%s%s", ignored->len > 0 ? ", " : "", row->key);
    } else if (!read_item (file, row, item, error))
      return FALSE;
  }
  if (ignored->len > 0)
    sp_run_note (file, "ignored, no cost depends on them: %s", ignored->str);
  return read_absent (file, error);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

SpRunItems *
sp_run_write_rows (const SpRunFormat *format, const SpFacts *facts)
{
  SpRunItems *items = sp_run_items_new (format->name);
  for (guint i = 0; i < format->n_rows; i++) {
    const SpRunRow *row = &format->rows[i];
    const char *ours = row->ours != NULL && !(row->flags & SP_ROW_READ) ? sp_facts_get (facts, row->ours) : NULL;
    g_autofree char *value = ours != NULL ? sp_run_map (row, ours, FALSE) : NULL;
    gboolean flag = row->type == SP_ROW_BOOL && g_str_has_prefix (row->key, "--");
    if (value == NULL || (!(row->flags & SP_ROW_ALWAYS) && g_strcmp0 (value, row->absent) == 0) ||
        (flag && !g_str_equal (value, "true")) || sp_run_items_get (items, row->key) != NULL)
      continue;
    SpItemType type = SP_ITEM_WORD;
    if (row->type == SP_ROW_BOOL)
      type = flag ? SP_ITEM_FLAG : SP_ITEM_BOOL;
    else if (row->type == SP_ROW_INT || row->type == SP_ROW_FLOAT)
      type = row->type == SP_ROW_INT ? SP_ITEM_INT : SP_ITEM_FLOAT;
    else if (row->type == SP_ROW_LIST)
      type = SP_ITEM_LIST;
    sp_run_items_add (items, row->key, type, value, 0, NULL);
  }
  return items;
}
