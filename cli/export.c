/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar export SCENARIO --format F: a scenario as another program's run file. */
#include <stdio.h>

#include "cli/exported.h"
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

/* --- of a search -------------------------------------------------------------------------------------------------- */

#define SMALL 0.001 /* of a step: less is not worth a word */

static char *
beside_best (const SpPlanExport *exported, double best_s)
{
  const SpEstimate *e = &exported->entry.estimate;
  g_autofree char *step = sp_text_seconds (e->step_time_s), *memory = sp_text_gib (e->memory.total_bytes);
  g_autofree char *capacity = sp_text_gib (e->capacity_bytes), *best = sp_text_seconds (best_s), *beside = NULL;

  if (best_s <= 0)
    beside = g_strdup ("of all layouts none fits");
  else if (e->step_time_s <= best_s * (1 + SMALL))
    beside = g_strdup ("no layout is quicker");
  else
    beside = g_strdup_printf ("the quickest of all layouts, for which the format has no words, takes %s", best);
  return g_strdup_printf ("note: as it is read back it takes %s and %s of %s GiB; %s%s", step, memory, capacity, beside,
                          exported->is_part ? "; of those that fit none comes back whole" : "");
}

static char *
beside_own (const SpPlanExport *exported, const SpEstimate *own)
{
  double step_s = exported->entry.estimate.step_time_s;
  g_autofree char *yours = sp_text_seconds (own->step_time_s);
  g_autofree char *less = sp_text_percent (1 - step_s / own->step_time_s);

  if (!own->fits)
    return g_strdup ("note: yours does not fit");
  if (exported->is_own || step_s >= own->step_time_s * (1 - SMALL))
    return g_strdup_printf ("note: no file of this format beats yours, which takes %s", yours);
  return g_strdup_printf ("note: yours takes %s: this takes %s less", yours, less);
}

void
sp_cli_note_export (const SpPlanExport *exported, double best_s, const SpEstimate *own)
{
  g_autoptr (GPtrArray) notes = g_ptr_array_new_with_free_func (g_free);

  g_ptr_array_add (notes, beside_best (exported, best_s));
  if (own != NULL)
    g_ptr_array_add (notes, beside_own (exported, own));
  sp_cli_notes (exported->lost);
  sp_cli_notes (notes);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "format", 0, 0, G_OPTION_ARG_STRING, &o->format,
      "megatron, deepspeed, torchtitan, flame, swift, megatron-swift, llamafactory or verl", "NAME" },
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
  if (!sp_cli_is_stdout (options.output) && !sp_cli_write_file (options.output, text, error))
    return FALSE;
  if (sp_cli_is_stdout (options.output))
    g_string_append_len (out, text->str, (gssize) text->len);
  sp_cli_notes (lost);
  return TRUE;
}
