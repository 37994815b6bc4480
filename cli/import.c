/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar import RUNFILE -o SCENARIO: another program's run file as a scenario. */
#include <glib/gstdio.h>
#include <stdio.h>

#include "cli/cli.h"
#include "models/inputs/ini.h"
#include "models/inputs/run-files/run-file.h"

typedef struct {
  char **rest, **sets;
  char *model, *cluster, *output;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_strfreev (o->sets);
  g_free (o->model);
  g_free (o->cluster);
  g_free (o->output);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &o->output, "The scenario to write", "SCENARIO" },
    { "model", 0, 0, G_OPTION_ARG_FILENAME, &o->model, "config.json, our own INI, or a shipped name", "FILE" },
    { "cluster", 0, 0, G_OPTION_ARG_FILENAME, &o->cluster, "INI, or a shipped name", "FILE" },
    { "set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->sets,
      "What the file leaves out, or another value; as often as wanted", "KEY=VALUE" },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, "RUNFILE" },
    { NULL },
  };
  return sp_cli_parse (args, entries,
                       "RUNFILE has arguments of Megatron-LM, ms-swift or Megatron-SWIFT, DeepSpeed JSON, torchtitan or\n"
                       "flame TOML, LLaMA-Factory YAML, verl's overrides (bare, or behind its command), or a Calculon\n"
                       "run; which of them is seen from its text. What it leaves out is asked for. What has no\n"
                       "counterpart is listed, on stderr and in the scenario's comments. A model that the file\n"
                       "describes is written beside it: SCENARIO-model.ini.\n",
                       out, error);
}

/* On stderr, as the model's file has a name that nobody gave. */
static void
note_written (const char *path, const char *model_path)
{
  g_autoptr (GPtrArray) notes = g_ptr_array_new_with_free_func (g_free);
  if (model_path == NULL)
    g_ptr_array_add (notes, g_strdup_printf ("written: %s", path));
  else
    g_ptr_array_add (notes, g_strdup_printf ("written: %s, and the model that it describes: %s", path, model_path));
  sp_cli_notes (notes);
}

/* Both files, or neither. */
static gboolean
write_both (const char *path, const GString *scenario, const GString *model, GError **error)
{
  g_autofree char *model_path = sp_run_model_path (path);
  g_autofree char *before = NULL;
  gsize length = 0;
  if (model->len == 0)
    return sp_cli_write_file (path, scenario, error);
  if (!sp_cli_check_output (path, error))
    return FALSE;
  gboolean there = g_file_get_contents (model_path, &before, &length, NULL);
  if (!sp_cli_write_file (model_path, model, error))
    return FALSE;
  if (sp_cli_write_file (path, scenario, error))
    return TRUE;
  if (there)
    g_file_set_contents (model_path, before, (gssize) length, NULL);
  else
    g_remove (model_path);
  return FALSE;
}

gboolean
sp_command_import (char **args, GString *out, GError **error)
{
  static const char *const positional[] = { "RUNFILE", NULL };
  g_auto (Options) options = { NULL };
  SpParsed parsed = parse (args, &options, out, error);
  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!sp_cli_positional (options.rest, positional, error))
    return FALSE;
  if (options.output == NULL)
    return sp_cli_usage (error, "-o SCENARIO is missing");

  const SpRunGiven given = {
    .model = options.model,
    .cluster = options.cluster,
    .sets = (const char *const *) options.sets,
  };
  gsize length;
  g_autoptr (GString) scenario = g_string_new (NULL), model = g_string_new (NULL);
  g_autofree char *text = sp_read_input (options.rest[0], &length, error);
  g_autoptr (SpRunFile) file = text != NULL ? sp_run_file_read (options.rest[0], text, length, error) : NULL;
  if (file == NULL || !sp_run_file_import (file, &given, options.output, scenario, model, error) ||
      !write_both (options.output, scenario, model, error))
    return FALSE;
  sp_cli_notes (sp_run_file_notes (file));
  g_autofree char *model_path = model->len > 0 ? sp_run_model_path (options.output) : NULL;
  note_written (options.output, model_path);
  return TRUE;
}
