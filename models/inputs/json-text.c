/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/json-text.h"

#include <string.h>

#include "models/inputs/ini.h"

#define MAX_DEPTH 32
#define MAX_DIGITS 18

typedef struct {
  const char *path;
  const char *at;
  guint line;
  guint depth;
  GHashTable *keys[MAX_DEPTH]; /* of each open object; NULL: an array */
  gboolean key_next;           /* a string here is a key */
  char *key;                   /* the last one, for messages */
} Scan;

static void
scan_clear (Scan *scan)
{
  while (scan->depth > 0)
    g_clear_pointer (&scan->keys[--scan->depth], g_hash_table_unref);
  g_free (scan->key);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Scan, scan_clear)

static gboolean
open_value (Scan *scan, GError **error)
{
  if (scan->depth == MAX_DEPTH)
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: nested deeper than %d", scan->path, scan->line,
                          MAX_DEPTH);
  gboolean object = *scan->at == '{';
  scan->keys[scan->depth++] = object ? g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL) : NULL;
  scan->key_next = object;
  return TRUE;
}

/* A string, and if it is a key whether its object has it already. */
static gboolean
scan_string (Scan *scan, GError **error)
{
  const char *start = scan->at + 1;
  const char *end = start;
  while (*end != '"' && *end != '\0' && *end != '\n')
    end += *end == '\\' && end[1] != '\0' ? 2 : 1;
  if (*end != '"')
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: a string without an end", scan->path, scan->line);
  scan->at = end;
  if (!scan->key_next)
    return TRUE;
  g_autofree char *key = g_strndup (start, (gsize) (end - start));
  g_autofree char *shown = sp_shown (key);
  if (strchr (key, '\\') != NULL)
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: key \"%s\", expected one without escapes", scan->path,
                          scan->line, shown);
  scan->key_next = FALSE;
  g_free (scan->key);
  scan->key = g_strdup (shown);
  if (!g_hash_table_add (scan->keys[scan->depth - 1], g_steal_pointer (&key)))
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: key \"%s\" stands twice in one object", scan->path,
                          scan->line, shown);
  return TRUE;
}

static const char *
skip_digits (const char *at)
{
  while (g_ascii_isdigit (*at))
    at++;
  return at;
}

/* -? digits without a leading zero, a fraction, an exponent. */
static gboolean
scan_number (Scan *scan, GError **error)
{
  const char *start = scan->at;
  const char *first = start + (*start == '-');
  const char *end = skip_digits (first);
  gboolean good = end > first && (*first != '0' || end == first + 1);
  if (*end == '.') {
    const char *point = end++;
    end = skip_digits (end);
    good = good && end > point + 1;
  } else {
    good = good && end - first <= MAX_DIGITS;
  }
  if (good && (*end == 'e' || *end == 'E')) {
    const char *exponent = end + 1 + (end[1] == '-' || end[1] == '+');
    end = skip_digits (exponent);
    good = end > exponent;
  }
  while (g_ascii_isalnum (*end) || *end == '.' || *end == '_') {
    good = FALSE;
    end++;
  }
  scan->at = end - 1;
  if (good)
    return TRUE;
  g_autofree char *text = g_strndup (start, (gsize) (end - start));
  g_autofree char *shown = sp_shown (text);
  return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: %s: %s, expected a JSON number of at most %d digits",
                        scan->path, scan->line, scan->key != NULL ? scan->key : "", shown, MAX_DIGITS);
}

static gboolean
scan_character (Scan *scan, GError **error)
{
  char c = *scan->at;
  switch (c) {
  case '{':
  case '[':
    return open_value (scan, error);
  case '}':
  case ']':
    g_clear_pointer (&scan->keys[--scan->depth], g_hash_table_unref);
    scan->key_next = FALSE;
    return TRUE;
  case ',':
    scan->key_next = scan->keys[scan->depth - 1] != NULL;
    return TRUE;
  case '"':
    return scan_string (scan, error);
  case '\n':
    scan->line++;
    return TRUE;
  default:
    if (g_ascii_isdigit (c) || c == '-')
      return scan_number (scan, error);
    if (g_ascii_isalpha (c) || strchr (" \t\r:", c) != NULL)
      return TRUE;
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: unexpected character '%c'", scan->path, scan->line,
                          g_ascii_isprint (c) ? c : '?');
  }
}

static gboolean
check_text (const char *path, const char *text, GError **error)
{
  g_auto (Scan) scan = { .path = path, .at = text, .line = 1 };
  gboolean opened = FALSE;
  for (; *scan.at != '\0'; scan.at++) {
    if (scan.depth == 0 && !g_ascii_isspace (*scan.at) && (opened || *scan.at != '{'))
      return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: expected one JSON object, { ... }, and no more", path,
                            scan.line);
    opened = opened || *scan.at == '{';
    if (!scan_character (&scan, error))
      return FALSE;
  }
  if (scan.depth > 0 || !opened)
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: the file ends inside its JSON object", path, scan.line);
  return TRUE;
}

/* json-glib's message quotes the text as it is: what it unescapes may be a new line, and a cut may part a character. */
static char *
one_line (const char *message)
{
  g_autofree char *cut = g_strndup (message, 160);
  char *line = g_utf8_make_valid (cut, -1);
  for (char *c = line; *c != '\0'; c++)
    if (g_ascii_iscntrl (*c))
      *c = ' ';
  return line;
}

JsonObject *
sp_json_parse (const char *path, const char *text, gsize length, GError **error)
{
  if (!sp_check_input (path, text, length, error) || !check_text (path, text, error))
    return NULL;
  g_autoptr (JsonParser) parser = json_parser_new ();
  g_autoptr (GError) cause = NULL;
  if (!json_parser_load_from_data (parser, text, (gssize) length, &cause)) {
    /* json-glib begins with "<data>:line:column: Parse error: " */
    gboolean placed = g_str_has_prefix (cause->message, "<data>");
    g_autofree char *line = one_line (cause->message + (placed ? strlen ("<data>") : 0));
    sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s%s%s", path, placed ? "" : ": ", line);
    return NULL;
  }
  JsonNode *root = json_parser_get_root (parser);
  if (root == NULL || !JSON_NODE_HOLDS_OBJECT (root)) {
    sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s: expected one JSON object, { ... }", path);
    return NULL;
  }
  return json_node_dup_object (root);
}
