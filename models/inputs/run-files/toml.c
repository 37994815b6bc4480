/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of TOML 1.0 that run files use: [tables], keys bare, quoted or dotted, strings on one line, integers,
 * floats, booleans, arrays and inline tables, comments. Not read, and said so: arrays of tables, strings over several
 * lines, dates, quoted keys with a dot or anything else than a bare key may have.
 */
#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/run-files/items.h"

#define MAX_DEPTH 16

typedef struct {
  const char *name, *at;
  guint line;
  guint depth;
  GHashTable *tables; /* names that are tables */
  SpRunItems *items;
} Toml;

static gboolean fail (const Toml *toml, const char *key, GError **error, const char *format, ...) G_GNUC_PRINTF (4, 5);

static gboolean
fail (const Toml *toml, const char *key, GError **error, const char *format, ...)
{
  va_list arguments;
  va_start (arguments, format);
  g_autofree char *what = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  g_autofree char *shown = key != NULL ? sp_shown (key) : NULL;
  return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: %s%s%s", toml->name, toml->line, shown ? shown : "",
                        shown ? ": " : "", what);
}

/* What stands here, for messages: up to the line's end. */
static char *
rest (const Toml *toml)
{
  g_autofree char *line = g_strndup (toml->at, strcspn (toml->at, "\r\n"));
  return sp_shown (g_strstrip (line));
}

static void
skip_spaces (Toml *toml)
{
  toml->at += strspn (toml->at, " \t");
}

/* Spaces, comments and line ends. */
static void
skip_blank (Toml *toml)
{
  for (;; toml->at++) {
    if (*toml->at == '#')
      toml->at += strcspn (toml->at, "\n");
    if (*toml->at == '\n')
      toml->line++;
    else if (*toml->at != ' ' && *toml->at != '\t' && *toml->at != '\r')
      return;
  }
}

/* Nothing more on this line. */
static gboolean
end_line (Toml *toml, const char *key, GError **error)
{
  skip_spaces (toml);
  if (*toml->at == '#')
    toml->at += strcspn (toml->at, "\n");
  if (*toml->at == '\r')
    toml->at++;
  if (*toml->at == '\n' || *toml->at == '\0')
    return TRUE;
  g_autofree char *shown = rest (toml);
  return fail (toml, key, error, "\"%s\" after the value, expected the end of the line", shown);
}

/* --- strings ------------------------------------------------------------------------------------------------------ */

static gboolean
take_unicode (Toml *toml, guint digits, GString *out)
{
  gunichar c = 0;
  for (guint i = 0; i < digits; i++) {
    gint digit = g_ascii_xdigit_value (*toml->at);
    if (digit < 0)
      return FALSE;
    c = c * 16 + (gunichar) digit;
    toml->at++;
  }
  if (c == 0 || !g_unichar_validate (c))
    return FALSE;
  g_string_append_unichar (out, c);
  return TRUE;
}

static gboolean
take_escape (Toml *toml, GString *out)
{
  static const char letters[] = "btnfr\"\\", meant[] = "\b\t\n\f\r\"\\";
  char c = *toml->at;
  const char *letter = c != '\0' ? strchr (letters, c) : NULL;
  if (letter != NULL)
    g_string_append_c (out, meant[letter - letters]);
  else if (c != 'u' && c != 'U')
    return FALSE;
  toml->at++;
  return letter != NULL || take_unicode (toml, c == 'u' ? 4 : 8, out);
}

/* NULL with an error. */
static char *
take_string (Toml *toml, const char *key, GError **error)
{
  char quote = *toml->at;
  if (toml->at[1] == quote && toml->at[2] == quote) {
    fail (toml, key, error, "a string over several lines (%c%c%c) is not read here, expected one on one line", quote,
          quote, quote);
    return NULL;
  }
  g_autoptr (GString) out = g_string_new (NULL);
  for (toml->at++; *toml->at != quote;) {
    if (*toml->at == '\0' || *toml->at == '\n') {
      fail (toml, key, error, "a string without an end");
      return NULL;
    }
    if (quote == '\'' || *toml->at != '\\') {
      g_string_append_c (out, *toml->at++);
      continue;
    }
    toml->at++;
    if (!take_escape (toml, out)) {
      fail (toml, key, error, "an escape that TOML does not have");
      return NULL;
    }
  }
  toml->at++;
  return g_strdup (out->str);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* Digits, with single _ between them, out of `from` into `out`. */
static const char *
copy_digits (const char *from, GString *out)
{
  if (!g_ascii_isdigit (*from))
    return NULL;
  for (; g_ascii_isdigit (*from) || (*from == '_' && g_ascii_isdigit (from[1])); from++)
    if (*from != '_')
      g_string_append_c (out, *from);
  return from;
}

/* An integer or a float in canonical form, or -1. */
static gint
number_type (const char *word, GString *out)
{
  SpItemType type = SP_ITEM_INT;
  const char *at = word;
  if (*at == '+' || *at == '-') {
    if (*at == '-')
      g_string_append_c (out, '-');
    at++;
  }
  if (g_str_equal (at, "inf") || g_str_equal (at, "nan")) {
    g_string_append (out, at);
    return SP_ITEM_FLOAT;
  }
  if (*at == '0' && g_ascii_isdigit (at[1]))
    return -1;
  at = copy_digits (at, out);
  if (at != NULL && *at == '.') {
    type = SP_ITEM_FLOAT;
    g_string_append_c (out, '.');
    at = copy_digits (at + 1, out);
  }
  if (at != NULL && (*at == 'e' || *at == 'E')) {
    type = SP_ITEM_FLOAT;
    g_string_append_c (out, 'e');
    at++;
    if (*at == '+' || *at == '-')
      g_string_append_c (out, *at++);
    at = copy_digits (at, out);
  }
  return at != NULL && *at == '\0' && (type == SP_ITEM_FLOAT || out->len <= 18) ? (gint) type : -1;
}

/* true, false or a number. NULL with an error. */
static char *
take_plain (Toml *toml, const char *key, SpItemType *ret_type, GError **error)
{
  g_autofree char *word = g_strndup (toml->at, strcspn (toml->at, " \t\r\n,]}#"));
  g_autoptr (GString) out = g_string_new (NULL);
  gint type = number_type (word, out);
  if (g_str_equal (word, "true") || g_str_equal (word, "false")) {
    type = SP_ITEM_BOOL;
    g_string_assign (out, word);
  }
  if (type < 0) {
    g_autofree char *shown = sp_shown (word);
    fail (toml, key, error,
          "\"%s\", expected a string in quotes, a decimal number of at most 18 digits, true, false or an array", shown);
    return NULL;
  }
  *ret_type = (SpItemType) type;
  toml->at += strlen (word);
  return g_strdup (out->str);
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

static gboolean
is_bare (const char *word)
{
  gsize plain = strspn (word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
  return *word != '\0' && word[plain] == '\0';
}

/* One part of a key. NULL with an error. */
static char *
take_part (Toml *toml, GError **error)
{
  g_autofree char *part = NULL;
  if (*toml->at == '"' || *toml->at == '\'') {
    part = take_string (toml, NULL, error);
    if (part == NULL)
      return NULL;
  } else {
    part = g_strndup (toml->at, strcspn (toml->at, " \t\r\n.=]#"));
    toml->at += strlen (part);
  }
  if (is_bare (part))
    return g_steal_pointer (&part);
  g_autofree char *shown = *part != '\0' ? sp_shown (part) : rest (toml);
  fail (toml, NULL, error, "\"%s\": expected a key of letters, digits, _ and -", shown);
  return NULL;
}

/* a.b.c behind `prefix`; each but the last becomes a table. NULL with an error. */
static char *
take_key (Toml *toml, const char *prefix, GError **error)
{
  g_autoptr (GString) key = g_string_new (prefix);
  for (guint parts = 1;; parts++) {
    g_autofree char *part = take_part (toml, error);
    if (part == NULL)
      return NULL;
    if (parts > MAX_DEPTH) {
      fail (toml, part, error, "nested deeper than %d", MAX_DEPTH);
      return NULL;
    }
    g_string_append_printf (key, "%s%s", key->len > 0 ? "." : "", part);
    skip_spaces (toml);
    if (*toml->at != '.')
      return g_strdup (key->str);
    if (sp_run_items_get (toml->items, key->str) != NULL) {
      fail (toml, key->str, error, "is a value already, expected no keys below it");
      return NULL;
    }
    g_hash_table_add (toml->tables, g_strdup (key->str));
    toml->at++;
    skip_spaces (toml);
  }
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static gboolean take_pair (Toml *toml, const char *prefix, GError **error);
static char *take_array (Toml *toml, const char *key, SpItemType *ret_type, GError **error);

static gboolean
enter (Toml *toml, const char *key, GError **error)
{
  toml->at++;
  return ++toml->depth <= MAX_DEPTH || fail (toml, key, error, "nested deeper than %d", MAX_DEPTH);
}

/* Any value but a table, as text. NULL with an error. */
static char *
take_value (Toml *toml, const char *key, SpItemType *ret_type, GError **error)
{
  *ret_type = SP_ITEM_WORD;
  if (*toml->at == '"' || *toml->at == '\'')
    return take_string (toml, key, error);
  return *toml->at == '[' ? take_array (toml, key, ret_type, error) : take_plain (toml, key, ret_type, error);
}

static char *
take_array (Toml *toml, const char *key, SpItemType *ret_type, GError **error)
{
  g_autoptr (GString) out = g_string_new (NULL);
  *ret_type = SP_ITEM_LIST;
  if (!enter (toml, key, error))
    return NULL;
  for (skip_blank (toml); *toml->at != ']'; skip_blank (toml)) {
    SpItemType type;
    g_autofree char *value = take_value (toml, key, &type, error);
    if (value == NULL)
      return NULL;
    g_string_append_printf (out, "%s%s", out->len > 0 ? "," : "", value);
    skip_blank (toml);
    if (*toml->at == ',') {
      toml->at++;
    } else if (*toml->at != ']') {
      fail (toml, key, error, "an array without an end");
      return NULL;
    }
  }
  toml->at++;
  toml->depth--;
  return g_strdup (out->str);
}

static gboolean
take_inline_table (Toml *toml, const char *key, GError **error)
{
  if (!enter (toml, key, error))
    return FALSE;
  g_hash_table_add (toml->tables, g_strdup (key));
  for (skip_spaces (toml); *toml->at != '}'; skip_spaces (toml)) {
    if (!take_pair (toml, key, error))
      return FALSE;
    skip_spaces (toml);
    if (*toml->at == ',')
      toml->at++;
    else if (*toml->at != '}')
      return fail (toml, key, error, "an inline table without an end");
  }
  toml->at++;
  toml->depth--;
  return TRUE;
}

/* key = value */
static gboolean
take_pair (Toml *toml, const char *prefix, GError **error)
{
  g_autofree char *key = take_key (toml, prefix, error);
  if (key == NULL)
    return FALSE;
  if (*toml->at != '=')
    return fail (toml, key, error, "expected key = value");
  toml->at++;
  skip_spaces (toml);
  if (g_hash_table_contains (toml->tables, key))
    return fail (toml, key, error, "is a table already, expected no value");
  if (*toml->at == '{')
    return sp_run_items_get (toml->items, key) != NULL ? fail (toml, key, error, "stands twice")
                                                       : take_inline_table (toml, key, error);
  guint line = toml->line;
  SpItemType type;
  g_autofree char *value = take_value (toml, key, &type, error);
  return value != NULL && sp_run_items_add (toml->items, key, type, value, line, error);
}

/* [a.b]; *table becomes its name. */
static gboolean
take_header (Toml *toml, char **table, GHashTable *headers, GError **error)
{
  toml->at++;
  if (*toml->at == '[')
    return fail (toml, NULL, error, "arrays of tables, [[...]], are not read here");
  skip_spaces (toml);
  g_autofree char *key = take_key (toml, "", error);
  if (key == NULL)
    return FALSE;
  if (*toml->at != ']')
    return fail (toml, key, error, "expected [table]");
  toml->at++;
  if (sp_run_items_get (toml->items, key) != NULL)
    return fail (toml, key, error, "is a value already, expected no table");
  if (!g_hash_table_add (headers, g_strdup (key)))
    return fail (toml, key, error, "table stands twice");
  g_hash_table_add (toml->tables, g_strdup (key));
  g_free (*table);
  *table = g_steal_pointer (&key);
  return TRUE;
}

SpRunItems *
sp_run_items_parse_toml (const char *name, const char *text, gsize length, GError **error)
{
  g_autoptr (SpRunItems) items = sp_run_items_new (name);
  g_autoptr (GHashTable) tables = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autoptr (GHashTable) headers = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autofree char *table = g_strdup ("");
  Toml toml = { .name = name, .at = text, .line = 1, .tables = tables, .items = items };
  for (skip_blank (&toml); *toml.at != '\0'; skip_blank (&toml)) {
    gboolean good = *toml.at == '[' ? take_header (&toml, &table, headers, error) : take_pair (&toml, table, error);
    if (!good || !end_line (&toml, NULL, error))
      return NULL;
  }
  return g_steal_pointer (&items);
}

/* --- out ---------------------------------------------------------------------------------------------------------- */

static void
append_quoted (GString *out, const char *text)
{
  g_string_append_c (out, '"');
  for (const char *c = text; *c != '\0'; c++)
    if (g_ascii_iscntrl (*c))
      g_string_append_printf (out, "\\u%04x", (guint) *c);
    else
      g_string_append_printf (out, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
  g_string_append_c (out, '"');
}

/* "a.b" of "a.b.c", "" of "c". */
static char *
table_of (const char *key)
{
  const char *dot = strrchr (key, '.');
  return dot != NULL ? g_strndup (key, (gsize) (dot - key)) : g_strdup ("");
}

static void
append_table (const SpRunItems *items, const char *table, GString *out)
{
  if (*table != '\0')
    g_string_append_printf (out, "%s[%s]\n", out->len > 0 ? "\n" : "", table);
  for (guint i = 0; i < items->list->len; i++) {
    const SpRunItem *item = items->list->pdata[i];
    g_autofree char *own = table_of (item->key);
    if (!g_str_equal (own, table))
      continue;
    g_string_append_printf (out, "%s = ", item->key + (*table != '\0' ? strlen (table) + 1 : 0));
    if (item->type == SP_ITEM_LIST) {
      g_string_append_c (out, '[');
      append_quoted (out, item->text);
      g_string_append_c (out, ']');
    } else if (item->type == SP_ITEM_WORD) {
      append_quoted (out, item->text);
    } else {
      g_string_append (out, item->text);
    }
    g_string_append_c (out, '\n');
  }
}

void
sp_run_items_write_toml (const SpRunItems *items, const GPtrArray *comments, GString *out)
{
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  for (guint i = 0; comments != NULL && i < comments->len; i++)
    g_string_append_printf (out, "# %s\n", (const char *) comments->pdata[i]);
  for (guint i = 0; i < items->list->len; i++) {
    char *table = table_of (((const SpRunItem *) items->list->pdata[i])->key);
    if (!g_hash_table_contains (seen, table))
      append_table (items, table, out);
    g_hash_table_add (seen, table);
  }
}
