/* SPDX-License-Identifier: Apache-2.0 */
/* The table of formats, and which of them a text is. */
#include "models/inputs/run-files/formats.h"

#include <string.h>

#include "models/inputs/ini.h"

/* The first that recognises a file reads it. */
static const SpRunFormat *const formats[] = {
  &sp_run_verl,     &sp_run_llamafactory, &sp_run_megatron_swift, &sp_run_swift,      &sp_run_megatron,
  &sp_run_calculon, &sp_run_deepspeed,    &sp_run_flame,          &sp_run_torchtitan,
};

const char *const sp_run_format_names[] = { "megatron",       "deepspeed",    "torchtitan", "flame", "swift",
                                            "megatron-swift", "llamafactory", "verl",       NULL };

const SpRunFormat *
sp_run_format_find (const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++)
    if (g_str_equal (formats[i]->name, name))
      return formats[i];
  return NULL;
}

/* --- recognition -------------------------------------------------------------------------------------------------- */

/* A line of a shell, by the command that it runs or, behind NAME=value, by a further word or \ at its end. */
static gboolean
is_shell (const char *line)
{
  static const char *const commands[] = { "export", "swift",      "megatron", "llamafactory-cli", "lmf",  "torchrun",
                                          "python", "accelerate", "python3",  "deepspeed",        "srun", NULL };
  gsize name = strspn (line, G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "_"), word = strcspn (line, " \t");
  const char *rest = line + word + strspn (line + word, " \t");
  g_autofree char *first = g_strndup (line, word);

  if (g_strv_contains (commands, first))
    return TRUE;
  return name > 0 && line[name] == '=' && name + 1 < word && strpbrk (line + name, "\"'") == NULL &&
         (*rest == '\\' || g_ascii_isalpha (*rest));
}

/* A line begins with a flag or is a shell's, or the first has a flag that is not in quotes: also behind NAME=value and a
 * launcher. */
static gboolean
has_flags (const char *const *lines, const char *first)
{
  g_autofree char *plain = g_strndup (first, strcspn (first, "\"'#"));
  const char *at = g_strstr_len (g_strdelimit (plain, "\t", ' '), -1, " --");
  if (at != NULL && g_ascii_isalpha (at[3]))
    return TRUE;
  for (guint i = 0; lines[i] != NULL; i++)
    if ((g_str_has_prefix (lines[i], "--") && g_ascii_isalpha (lines[i][2])) || is_shell (lines[i]))
      return TRUE;
  return FALSE;
}

/* key: value, or key: alone. */
static gboolean
is_yaml (const char *line)
{
  gsize word = strspn (line, G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "_.-");
  return g_ascii_isalpha (*line) && line[word] == ':' && (line[word + 1] == '\0' || line[word + 1] == ' ');
}

/* Words of Hydra, which have dots where a shell's variables have none. */
static gboolean
has_overrides (const char *text)
{
  return strstr (text, "actor_rollout_ref.") != NULL || strstr (text, "verl.trainer") != NULL;
}

/* A --config file of ms-swift is its flags. */
static SpRunItems *
parse_yaml (const char *name, const char *text, gsize length, GError **error)
{
  g_autoptr (SpRunItems) items = sp_run_items_parse_yaml (name, text, length, error);

  return items == NULL || !sp_run_swift_is_config (items) ? g_steal_pointer (&items)
                                                          : sp_run_swift_flags (items, error);
}

/* By the first line that is more than white space and a comment: { is JSON, [ or key = is TOML, key: is YAML, the rest
 * flags or, of verl, overrides. */
static SpRunItems *
parse_items (const char *name, const char *text, gsize length, GError **error)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  const char *first = "";
  for (guint i = 0; lines[i] != NULL; i++)
    if (*g_strstrip (lines[i]) != '#' && *first == '\0')
      first = lines[i];
  if (*first == '{')
    return sp_run_items_parse_json (name, text, length, error);
  if (is_yaml (first))
    return parse_yaml (name, text, length, error);
  if (has_overrides (text))
    return sp_run_items_parse_overrides (name, text, length, error);
  gsize word = strcspn (first, " \t=");
  gboolean pair = first[word + strspn (first + word, " \t")] == '=' && !g_str_has_prefix (first, "--");
  if (*first != '[' && (!pair || has_flags ((const char *const *) lines, first)))
    return sp_run_items_parse_args (name, text, length, error);
  /* An INI of ours is no TOML: its words have no quotes. */
  gboolean scenario = g_strv_contains ((const char *const *) lines, "[layout]");
  if (!scenario && !g_strv_contains ((const char *const *) lines, "[cluster]"))
    return sp_run_items_parse_toml (name, text, length, error);
  sp_input_fail (error, SP_INPUT_ERROR_FILE, "%s: expected a run file of another program; this is %s", name,
                 scenario ? "a scenario already" : "a cluster, which goes with --cluster");
  return NULL;
}

/* Its groups are lines by themselves, and no other format has one of these. */
gboolean
sp_run_file_is_scenario (const char *text)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);

  for (guint i = 0; lines[i] != NULL; i++)
    g_strstrip (lines[i]);
  return g_strv_contains ((const char *const *) lines, "[layout]") ||
         g_strv_contains ((const char *const *) lines, "[cluster]");
}

static const SpRunFormat *
recognise (const SpRunItems *items, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++)
    if (formats[i]->recognise (items))
      return formats[i];
  gboolean config = sp_run_items_get (items, "model_type") != NULL;
  sp_input_fail (
      error, SP_INPUT_ERROR_FILE,
      "%s: expected Megatron-LM, ms-swift or Megatron-SWIFT arguments, DeepSpeed JSON, torchtitan or flame TOML, "
      "LLaMA-Factory YAML, verl's overrides, or a Calculon run%s",
      items->name, config ? "; this is a model's config.json, which goes with --model" : "");
  return NULL;
}

/* `path`: where a second file is looked for that the first one names; NULL: it is not. */
static SpRunFile *
read_text (const char *name, const char *path, const char *text, gsize length, GError **error)
{
  gboolean overrides = FALSE;
  g_autofree char *copy = g_malloc (length + 1);
  if (length > 0) /* an empty text may be NULL */
    memcpy (copy, text, length);
  copy[length] = '\0';
  if (!sp_check_input (name, copy, length, error))
    return NULL;
  g_autoptr (SpRunItems) items = parse_items (name, copy, length, error);
  const SpRunFormat *format = items != NULL ? recognise (items, error) : NULL;
  if (format == NULL)
    return NULL;
  if ((format == &sp_run_swift || format == &sp_run_megatron_swift) && path != NULL &&
      !sp_run_swift_add_config (items, path, &overrides, error))
    return NULL;
  g_autoptr (SpRunFile) file = g_new0 (SpRunFile, 1);
  file->name = g_strdup (name);
  file->format = format;
  if (format->normalise != NULL)
    format->normalise (items);
  file->items = g_steal_pointer (&items);
  file->facts = sp_facts_new ();
  file->automatic = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  file->notes = g_ptr_array_new_with_free_func (g_free);
  file->noted = g_hash_table_new (g_str_hash, g_str_equal);
  file->asked = g_ptr_array_new_with_free_func (g_free);
  if (overrides)
    sp_run_note (file, "note: where the command and its --config file differ the file counts, as ms-swift has it");
  return sp_run_read_rows (file, error) ? g_steal_pointer (&file) : NULL;
}

SpRunFile *
sp_run_file_parse (const char *name, const char *text, gsize length, GError **error)
{
  return read_text (name, NULL, text, length, error);
}

SpRunFile *
sp_run_file_read (const char *path, const char *text, gsize length, GError **error)
{
  return read_text (path, path, text, length, error);
}

void
sp_run_file_free (SpRunFile *file)
{
  if (file == NULL)
    return;
  g_free (file->name);
  sp_run_items_free (file->items);
  g_hash_table_unref (file->facts);
  g_hash_table_unref (file->automatic);
  g_hash_table_unref (file->noted);
  g_ptr_array_unref (file->notes);
  g_ptr_array_unref (file->asked);
  g_free (file);
}

const char *
sp_run_file_format (const SpRunFile *file)
{
  return file->format->name;
}

const char *
sp_run_file_fact (const SpRunFile *file, const char *key)
{
  return sp_facts_get (file->facts, key);
}

const GPtrArray *
sp_run_file_notes (const SpRunFile *file)
{
  return file->notes;
}

/* --- notes and questions ------------------------------------------------------------------------------------------ */

/* Each once. */
void
sp_run_note (SpRunFile *file, const char *format, ...)
{
  if (file->quiet)
    return;
  va_list arguments;
  va_start (arguments, format);
  char *text = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  if (g_hash_table_contains (file->noted, text)) {
    g_free (text);
    return;
  }
  g_ptr_array_add (file->notes, text);
  g_hash_table_add (file->noted, text);
}

/* Each once, of a few. */
void
sp_run_ask (SpRunFile *file, const char *format, ...)
{
  if (file->quiet)
    return;
  va_list arguments;
  va_start (arguments, format);
  g_autofree char *text = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  if (!g_ptr_array_find_with_equal_func (file->asked, text, g_str_equal, NULL))
    g_ptr_array_add (file->asked, g_steal_pointer (&text));
}
