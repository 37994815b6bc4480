/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The YAML of run files: mappings by indentation, a plain or quoted value a line, comments, lists ("- " lines and [a, b])
 * as text. Anchors, tags, block scalars, several documents and flow mappings are refused: no run file needs them.
 */
#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/run-files/items.h"

#define MOST_DEPTH 16

typedef struct {
  const char *name;
  guint line;
  SpRunItems *items;
  guint indents[MOST_DEPTH]; /* of the keys that are open */
  char *keys[MOST_DEPTH];    /* whole, joined by dots */
  guint depth;
  GString *list; /* of the last key, as [a, b]; NULL: none */
  guint list_line;
} Reader;

static gboolean
fail (const Reader *r, GError **error, const char *what)
{
  return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: %s", r->name, r->line, what);
}

SpItemType
sp_run_items_plain_type (const char *text)
{
  char *end;
  if (g_ascii_strcasecmp (text, "true") == 0 || g_ascii_strcasecmp (text, "false") == 0)
    return SP_ITEM_BOOL;
  if (*text == '\0' || g_str_equal (text, "~") || g_ascii_strcasecmp (text, "null") == 0)
    return SP_ITEM_NULL;
  if (*text == '[')
    return SP_ITEM_LIST;
  g_ascii_strtoll (text, &end, 10);
  if (*end == '\0')
    return SP_ITEM_INT;
  g_ascii_strtod (text, &end);
  return *end == '\0' ? SP_ITEM_FLOAT : SP_ITEM_WORD;
}

/* Up to a comment: a # at the start or behind a space, not in quotes. */
static void
cut_comment (char *line)
{
  char quote = '\0';
  for (char *c = line; *c != '\0'; c++) {
    if (quote != '\0')
      quote = *c == quote ? '\0' : quote;
    else if (*c == '"' || *c == '\'')
      quote = *c;
    else if (*c == '#' && (c == line || g_ascii_isspace (c[-1]))) {
      *c = '\0';
      break;
    }
  }
}

/* A value without its quotes; *ret_type is a word's in quotes. */
static char *
take_value (const Reader *r, const char *text, SpItemType *ret_type, GError **error)
{
  gsize length = strlen (text);
  if (*text == '"' || *text == '\'') {
    if (length < 2 || text[length - 1] != *text || memchr (text + 1, *text, length - 2) != NULL) {
      fail (r, error, "a quote without an end, or within a quoted value");
      return NULL;
    }
    *ret_type = SP_ITEM_WORD;
    return g_strndup (text + 1, length - 2);
  }
  if (strchr ("&*!|>{%@`", *text) != NULL && *text != '\0') {
    fail (r, error, "expected a plain or quoted value: anchors, tags, blocks and mappings in braces are not read");
    return NULL;
  }
  *ret_type = sp_run_items_plain_type (text);
  return *ret_type == SP_ITEM_BOOL ? g_ascii_strdown (text, -1) : g_strdup (text);
}

/* The list that was open becomes the value of its key. */
static gboolean
close_list (Reader *r, GError **error)
{
  if (r->list == NULL)
    return TRUE;
  g_string_append_c (r->list, ']');
  g_autofree char *text = g_string_free (g_steal_pointer (&r->list), FALSE);
  return sp_run_items_add (r->items, r->keys[r->depth - 1], SP_ITEM_LIST, text, r->list_line, error);
}

static gboolean
add_to_list (Reader *r, const char *text, GError **error)
{
  if (r->depth == 0)
    return fail (r, error, "expected key: value");
  if (r->list == NULL) {
    r->list = g_string_new ("[");
    r->list_line = r->line;
  }
  g_string_append_printf (r->list, "%s%s", r->list->len > 1 ? ", " : "", text);
  return TRUE;
}

static void
close_keys (Reader *r, guint indent)
{
  while (r->depth > 0 && r->indents[r->depth - 1] >= indent)
    g_free (r->keys[--r->depth]);
}

static gboolean
take_pair (Reader *r, guint indent, char *text, GError **error)
{
  char *colon = strchr (text, ':');
  while (colon != NULL && colon[1] != '\0' && colon[1] != ' ')
    colon = strchr (colon + 1, ':');
  if (colon == NULL || colon == text)
    return fail (r, error, "expected key: value");
  *colon = '\0';
  const char *value = g_strstrip (colon + 1);
  close_keys (r, indent);
  g_autofree char *key =
      r->depth > 0 ? g_strconcat (r->keys[r->depth - 1], ".", g_strstrip (text), NULL) : g_strdup (g_strstrip (text));
  if (*value == '\0') {
    if (r->depth == MOST_DEPTH)
      return fail (r, error, "mappings too deep in each other");
    r->indents[r->depth] = indent;
    r->keys[r->depth++] = g_steal_pointer (&key);
    return TRUE;
  }
  SpItemType type;
  g_autofree char *plain = take_value (r, value, &type, error);
  return plain != NULL && sp_run_items_add (r->items, key, type, plain, r->line, error);
}

static gboolean
take_line (Reader *r, char *line, GError **error)
{
  cut_comment (line);
  g_strchomp (line);
  guint indent = (guint) strspn (line, " ");
  char *text = line + indent;
  if (*text == '\0' || g_str_equal (text, "---"))
    return TRUE;
  if (*text == '\t')
    return fail (r, error, "a tab cannot indent");
  if (g_str_has_prefix (text, "- ") && r->depth > 0 && indent >= r->indents[r->depth - 1])
    return add_to_list (r, text + 2, error);
  return close_list (r, error) && take_pair (r, indent, text, error);
}

SpRunItems *
sp_run_items_parse_yaml (const char *name, const char *text, gsize length, GError **error)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  g_autoptr (SpRunItems) items = sp_run_items_new (name);
  Reader r = { .name = name, .items = items };
  gboolean good = TRUE;
  for (guint i = 0; lines[i] != NULL && good; i++) {
    r.line = i + 1;
    good = take_line (&r, lines[i], error);
  }
  good = good && close_list (&r, error);
  close_keys (&r, 0);
  if (r.list != NULL)
    g_string_free (r.list, TRUE);
  return good ? g_steal_pointer (&items) : NULL;
}

/* Of keys without dots: what is written has no others. */
void
sp_run_items_write_yaml (const SpRunItems *items, const GPtrArray *comments, GString *out)
{
  for (guint i = 0; comments != NULL && i < comments->len; i++)
    g_string_append_printf (out, "# %s\n", (const char *) comments->pdata[i]);
  for (guint i = 0; i < items->list->len; i++) {
    const SpRunItem *item = items->list->pdata[i];
    gboolean plain = item->type != SP_ITEM_WORD || sp_run_items_plain_type (item->text) == SP_ITEM_WORD;
    g_autofree char *quoted = plain ? g_strdup (item->text) : g_strdup_printf ("\"%s\"", item->text);
    g_string_append_printf (out, "%s: %s\n", item->key, quoted);
  }
}
