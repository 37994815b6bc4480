/* SPDX-License-Identifier: Apache-2.0 */
/* Flags as on a command line. */
#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/run-files/items.h"

#define SHELL "a shell's variables are not filled in here, expected the command as bash -x prints it"

typedef struct {
  char *text;
  guint line;
} Word;

static void
word_clear (gpointer data)
{
  g_free (((Word *) data)->text);
}

/* --- words -------------------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name, *at;
  guint line;
} Scan;

static gboolean
at_line_end (const char *at)
{
  return at[0] == '\n' || (at[0] == '\r' && at[1] == '\n');
}

/* White space, comments, and backslashes at a line's end. */
static void
skip_blank (Scan *scan)
{
  for (;; scan->at++) {
    if (*scan->at == '\\' && at_line_end (scan->at + 1))
      continue;
    if (*scan->at == '#')
      while (scan->at[1] != '\0' && scan->at[1] != '\n')
        scan->at++;
    else if (*scan->at == '\n')
      scan->line++;
    else if (*scan->at == '\0' || !g_ascii_isspace (*scan->at))
      return;
  }
}

/* In quotes: up to the same quote. */
static gboolean
take_quoted (Scan *scan, GString *word, GError **error)
{
  char quote = *scan->at++;
  guint first = scan->line;
  for (; *scan->at != quote; scan->at++) {
    if (*scan->at == '\0')
      return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: a quote without an end", scan->name, first);
    scan->line += *scan->at == '\n';
    g_string_append_c (word, g_ascii_isspace (*scan->at) ? ' ' : *scan->at);
  }
  scan->at++;
  return TRUE;
}

static gboolean
take_word (Scan *scan, GArray *words, GError **error)
{
  g_autoptr (GString) word = g_string_new (NULL);
  Word taken = { .line = scan->line };
  while (*scan->at != '\0' && !g_ascii_isspace (*scan->at)) {
    if (*scan->at == '"' || *scan->at == '\'') {
      if (!take_quoted (scan, word, error))
        return FALSE;
      continue;
    }
    if (*scan->at == '\\') {
      if (at_line_end (scan->at + 1))
        break;
      scan->at++;
      if (*scan->at == '\0')
        break;
    }
    g_string_append_c (word, *scan->at++);
  }
  taken.text = g_strdup (word->str);
  g_array_append_val (words, taken);
  return TRUE;
}

static GArray *
split (const char *name, const char *text, GError **error)
{
  Scan scan = { name, text, 1 };
  g_autoptr (GArray) words = g_array_new (FALSE, FALSE, sizeof (Word));
  g_array_set_clear_func (words, word_clear);
  for (skip_blank (&scan); *scan.at != '\0'; skip_blank (&scan))
    if (!take_word (&scan, words, error))
      return NULL;
  return g_steal_pointer (&words);
}

static gboolean
is_flag (const char *word)
{
  return g_str_has_prefix (word, "--") && g_ascii_isalpha (word[2]);
}

/* What only a shell can fill in. */
static gboolean
check_words (const char *name, const GArray *words, GError **error)
{
  static const char *const marks[] = { "[@]", "[*]", "$(", "=(" };
  for (guint i = 0; i < words->len; i++)
    for (guint j = 0; j < G_N_ELEMENTS (marks); j++) {
      const Word *word = &g_array_index (words, Word, i);
      if (strstr (word->text, marks[j]) == NULL || (g_str_equal (marks[j], "=(") && is_flag (word->text)))
        continue; /* --flag=(...) is a value */
      g_autofree char *shown = sp_shown (word->text);
      return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: \"%s\": " SHELL, name, word->line, shown);
    }
  return TRUE;
}

/* --- flags -------------------------------------------------------------------------------------------------------- */

/* "torch.distributed.run" and the like start another script. */
static gboolean
is_launcher (const char *module)
{
  return g_str_has_prefix (module, "torch.distributed.") || g_str_has_prefix (module, "accelerate.");
}

/* Words of a launcher: up to the first script or module that it starts, or a program and what it is to do ("swift sft").
 * A list that begins with a flag has none. */
static guint
launcher_words (const GArray *words, char **ret_command)
{
  static const char *const programs[] = { "swift", "megatron", "llamafactory-cli", "lmf", NULL };
  gboolean flags = FALSE;
  for (guint i = 0; i < words->len && !(i == 0 && is_flag (g_array_index (words, Word, 0).text)); i++) {
    const char *word = g_array_index (words, Word, i).text;
    const char *next = i + 1 < words->len ? g_array_index (words, Word, i + 1).text : NULL;
    g_autofree char *program = g_path_get_basename (word);
    gboolean module = g_str_equal (word, "-m") && next != NULL && !is_launcher (next);
    gboolean does = !flags && next != NULL && g_strv_contains (programs, program) && !is_flag (next);
    flags = flags || is_flag (word);
    if (module || does || g_str_has_suffix (word, ".py")) {
      *ret_command = module ? g_strdup (next) : g_steal_pointer (&program);
      return module || does ? i + 2 : i + 1;
    }
  }
  return 0;
}

/* The flag at words[i] with all values that follow; *ret_next is behind them. A variable may be one value, but what
 * stands behind a value may be more flags. */
static gboolean
take_flag (SpRunItems *items, const GArray *words, guint i, guint end, guint *ret_next, GError **error)
{
  const Word *flag = &g_array_index (words, Word, i);
  const char *equals = strchr (flag->text, '=');
  g_autofree char *key = equals ? g_strndup (flag->text, (gsize) (equals - flag->text)) : g_strdup (flag->text);
  g_autoptr (GString) value = g_string_new (equals ? equals + 1 : NULL);
  guint next = i + 1;
  for (; next < end && !is_flag (g_array_index (words, Word, next).text); next++) {
    const Word *word = &g_array_index (words, Word, next);
    if (*word->text == '$' && value->len > 0) {
      g_autofree char *shown = sp_shown (word->text);
      return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: \"%s\": " SHELL, items->name, word->line, shown);
    }
    g_string_append_printf (value, "%s%s", value->len > 0 ? " " : "", word->text);
  }
  gboolean bare = equals == NULL && next == i + 1;
  *ret_next = next;
  return sp_run_items_add (items, key, bare ? SP_ITEM_FLAG : SP_ITEM_WORD, bare ? "true" : value->str, flag->line,
                           error);
}

/* How many processes: by torchrun's flags, which it spells with _ or -, or by variables that ms-swift and LLaMA-Factory
 * hand to it. "gpu", "auto" and a range are no numbers. */
static gboolean
take_launcher (SpRunItems *items, const GArray *words, guint end, GError **error)
{
  static const struct {
    const char *name, *key;
  } counts[] = { { "--nnodes", "--nnodes" },
                 { "--nproc-per-node", "--nproc-per-node" },
                 { "NNODES", "--nnodes" },
                 { "NPROC-PER-NODE", "--nproc-per-node" } };
  for (guint i = 0; i < end; i++) {
    const Word *word = &g_array_index (words, Word, i);
    g_auto (GStrv) halves = g_strsplit (word->text, "=", 2);
    if (halves[0] == NULL || (halves[1] == NULL && (!is_flag (word->text) || i + 1 == end)))
      continue;
    g_autofree char *plain = g_strdelimit (g_strdup (halves[0]), "_", '-');
    const char *value = halves[1] != NULL ? halves[1] : g_array_index (words, Word, i + 1).text;
    for (guint c = 0; c < G_N_ELEMENTS (counts); c++)
      if (g_str_equal (plain, counts[c].name) && (g_ascii_isdigit (*value) || *value == '$') &&
          strchr (value, ':') == NULL &&
          !sp_run_items_add (items, counts[c].key, SP_ITEM_WORD, value, word->line, error))
        return FALSE;
  }
  return TRUE;
}

/* "llamafactory-cli train FILE": it is the file that says all. */
static gboolean
check_file (const SpRunItems *items, const GArray *words, guint i, GError **error)
{
  const char *const suffixes[] = { ".yaml", ".yml", ".json" };
  const Word *word = i < words->len ? &g_array_index (words, Word, i) : NULL;
  for (guint s = 0; word != NULL && items->command != NULL && s < G_N_ELEMENTS (suffixes); s++)
    if (!is_flag (word->text) && g_str_has_suffix (word->text, suffixes[s])) {
      g_autofree char *shown = sp_shown (word->text);
      return sp_input_fail (error, SP_INPUT_ERROR_FILE, "%s:%u: the command reads \"%s\": give that file in its place",
                            items->name, word->line, shown);
    }
  return TRUE;
}

SpRunItems *
sp_run_items_parse_args (const char *name, const char *text, gsize length, GError **error)
{
  g_autoptr (GArray) words = split (name, text, error);
  if (words == NULL || !check_words (name, words, error))
    return NULL;
  g_autoptr (SpRunItems) items = sp_run_items_new (name);
  guint i = launcher_words (words, &items->command);
  if (!take_launcher (items, words, i, error) || !check_file (items, words, i, error))
    return NULL;
  while (i < words->len) {
    const Word *word = &g_array_index (words, Word, i);
    if (!is_flag (word->text)) {
      g_autofree char *shown = sp_shown (word->text);
      sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: \"%s\": %s", name, word->line, shown,
                     *word->text == '$' ? SHELL : "expected --flag or --flag value");
      return NULL;
    }
    if (!take_flag (items, words, i, words->len, &i, error))
      return NULL;
  }
  return g_steal_pointer (&items);
}

/* --- Hydra's overrides -------------------------------------------------------------------------------------------- */

/* Behind the command: NAME=value, python3 -m module and the like. */
static guint
first_override (const GArray *words)
{
  for (guint i = words->len; i > 0; i--)
    if (strchr (g_array_index (words, Word, i - 1).text, '=') == NULL)
      return i;
  return 0;
}

SpRunItems *
sp_run_items_parse_overrides (const char *name, const char *text, gsize length, GError **error)
{
  g_autoptr (GArray) words = split (name, text, error);
  if (words == NULL || !check_words (name, words, error))
    return NULL;
  g_autoptr (SpRunItems) items = sp_run_items_new (name);
  guint first = first_override (words);
  launcher_words (words, &items->command);
  for (guint i = first; i < words->len; i++) {
    const Word *word = &g_array_index (words, Word, i);
    const char *key = word->text + strspn (word->text, "+"), *equals = strchr (key, '=');
    if (is_flag (key) || equals == key)
      return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: \"%s\": expected key=value", name, word->line, key),
             NULL;
    g_autofree char *head = g_strndup (key, (gsize) (equals - key));
    SpItemType type = sp_run_items_plain_type (equals + 1);
    g_autofree char *value = type == SP_ITEM_BOOL ? g_ascii_strdown (equals + 1, -1) : g_strdup (equals + 1);
    if (!sp_run_items_add (items, head, type, value, word->line, error))
      return NULL;
  }
  if (items->list->len == 0)
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s: expected key=value behind the command", name), NULL;
  return g_steal_pointer (&items);
}

/* --- out ---------------------------------------------------------------------------------------------------------- */

void
sp_run_items_write_overrides (const SpRunItems *items, const GPtrArray *comments, GString *out)
{
  for (guint i = 0; comments != NULL && i < comments->len; i++)
    g_string_append_printf (out, "# %s\n", (const char *) comments->pdata[i]);
  for (guint i = 0; i < items->list->len; i++) {
    const SpRunItem *item = items->list->pdata[i];
    g_string_append_printf (out, "%s=%s\n", item->key, item->text);
  }
}

/* Words as a shell takes them. */
static void
append_words (GString *out, const char *text)
{
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-_./:,%@";
  g_auto (GStrv) words = g_strsplit (text, " ", -1);
  for (guint i = 0; words[i] != NULL; i++) {
    g_autofree char *quoted = g_shell_quote (words[i]);
    gboolean safe = *words[i] != '\0' && words[i][strspn (words[i], plain)] == '\0';
    g_string_append_printf (out, " %s", safe ? words[i] : quoted);
  }
}

void
sp_run_items_write_args (const SpRunItems *items, const GPtrArray *comments, GString *out)
{
  for (guint i = 0; comments != NULL && i < comments->len; i++)
    g_string_append_printf (out, "# %s\n", (const char *) comments->pdata[i]);
  for (guint i = 0; i < items->list->len; i++) {
    const SpRunItem *item = items->list->pdata[i];
    g_string_append (out, item->key);
    if (item->type != SP_ITEM_FLAG)
      append_words (out, item->text);
    g_string_append_c (out, '\n');
  }
}
