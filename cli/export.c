/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar export SCENARIO --format F: a scenario as another program's run file. */
#include <stdio.h>

#include "cli/cli.h"
#include "models/inputs/run-files/run-file.h"

typedef struct {
  char **rest, **sets;
  char *format, *output;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_strfreev (o->sets);
  g_free (o->format);
  g_free (o->output);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

void
sp_cli_notes (const GPtrArray *notes)
{
  for (guint i = 0; i < notes->len; i++)
    fprintf (stderr, "seqpar: %s\n", (const char *) notes->pdata[i]);
}

gboolean
sp_cli_export_format (const char *option, const char *name, GError **error)
{
  guint index;
  return sp_cli_choice (option, name, sp_run_format_names, &index, error);
}

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "format", 0, 0, G_OPTION_ARG_STRING, &o->format, "megatron, deepspeed, torchtitan, flame, swift, megatron-swift, llamafactory or verl", "NAME" },
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &o->output, "The file to write (default: stdout)", "FILE" },
    { "set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->sets, "Over the file; as often as wanted", "KEY=VALUE" },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, "SCENARIO" },
    { NULL },
  };
  return sp_cli_parse (args, entries,
                       "The file is read back before it is given: what it cannot carry is listed on stderr and,\n"
                       "where the format has comments, in the file. A degree of parallelism that it cannot carry\n"
                       "is an error.\n",
                       out, error);
}

gboolean
sp_command_export (char **args, GString *out, GError **error)
{
  static const char *const positional[] = { "SCENARIO", NULL };
  g_auto (Options) options = { NULL };
  SpParsed parsed = parse (args, &options, out, error);
  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!sp_cli_positional (options.rest, positional, error))
    return FALSE;
  if (options.format == NULL)
    return sp_cli_usage (error, "--format is missing");
  if (!sp_cli_export_format ("--format", options.format, error))
    return FALSE;
  g_autoptr (SpScenario) scenario = sp_cli_load_scenario (options.rest[0], options.sets, error);
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GString) text = g_string_new (NULL);
  if (scenario == NULL || !sp_cli_check_layout (scenario, error) ||
      !sp_run_file_export (scenario, options.format, text, lost, error))
    return FALSE;
  if (options.output != NULL && !sp_cli_write_file (options.output, text, error))
    return FALSE;
  if (options.output == NULL)
    g_string_append_len (out, text->str, (gssize) text->len);
  sp_cli_notes (lost);
  return TRUE;
}
