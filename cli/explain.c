/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar explain SCENARIO|RUNFILE: a layout beside the best one, and what makes it fit. */
#include "cli/explain.h"
#include "cli/exported.h"
#include "cli/progress.h"
#include "models/inputs/ini.h"
#include "models/inputs/run-files/run-file.h"

#define MOST_CHANGES 10

typedef struct {
  char **files, **sets;
  char *against, *model, *cluster, *convention, *export;
  gboolean json;
  gboolean imports; /* one of the files was a run file */
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->files);
  g_strfreev (o->sets);
  char *strings[] = { o->against, o->model, o->cluster, o->convention, o->export };
  for (guint i = 0; i < G_N_ELEMENTS (strings); i++)
    g_free (strings[i]);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "against", 0, 0, G_OPTION_ARG_FILENAME, &o->against, "Not beside the best, but beside this", "SCENARIO" },
    { "set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->sets, "Over the file; as often as wanted", "KEY=VALUE" },
    { "model", 0, 0, G_OPTION_ARG_FILENAME, &o->model, "Of a run file: config.json, our own INI, or a shipped name",
      "FILE" },
    { "cluster", 0, 0, G_OPTION_ARG_FILENAME, &o->cluster, "Of a run file: INI, or a shipped name", "FILE" },
    { "export", 0, 0, G_OPTION_ARG_STRING, &o->export,
      "The best layout that a run file of it can say, and nothing else", "NAME" },
    { "json", 0, 0, G_OPTION_ARG_NONE, &o->json, "JSON instead of text", NULL },
    { "mfu-convention", 0, 0, G_OPTION_ARG_STRING, &o->convention, "seqpar, megatron, palm or llm-foundry", "NAME" },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->files, NULL, "SCENARIO|RUNFILE" },
    { NULL },
  };
  return sp_cli_parse (
      args, entries,
      "The terms of the step time and the classes of memory, beside those of the layout that plan\n"
      "finds best for the same model, cluster, sequence and batch. Of a layout that does not fit\n"
      "also the smallest changes that make it fit. A run file is what seqpar import reads; --set\n"
      "goes over the first file alone, so FILE --set KEY=VALUE --against FILE shows what a key does.\n",
      out, error);
}

static gboolean
check (const Options *o, guint *ret_convention, GError **error)
{
  static const char *const positional[] = { "SCENARIO", NULL };

  if (!sp_cli_positional (o->files, positional, error) ||
      !sp_cli_choice ("--mfu-convention", o->convention, sp_mfu_names, ret_convention, error))
    return FALSE;
  if (o->export != NULL && (o->json || o->against != NULL))
    return sp_cli_usage (error, "--export writes the best as a run file, %s does not go with it",
                         o->json ? "--json" : "--against");
  return o->export == NULL || sp_cli_export_format ("--export", o->export, error);
}

/* --- what is read ------------------------------------------------------------------------------------------------- */

static SpScenario *
load_run_file (const Options *o, const char *path, const char *text, gsize length, char **sets, GError **error)
{
  const SpRunGiven given = { .model = o->model, .cluster = o->cluster, .sets = (const char *const *) sets };
  g_autoptr (SpRunFile) file = sp_run_file_read (path, text, length, error);
  SpScenario *scenario = file != NULL ? sp_run_file_load (file, &given, error) : NULL;

  if (scenario != NULL)
    sp_cli_notes (sp_run_file_notes (file));
  return scenario;
}

/* A scenario, or a run file that becomes one. */
static SpScenario *
load (Options *o, const char *name, char **sets, GError **error)
{
  gsize length;
  g_autofree char *path = sp_cli_find_scenario (name, error);
  g_autofree char *text = path != NULL ? sp_read_input (path, &length, error) : NULL;

  if (text == NULL)
    return NULL;
  gboolean own = sp_run_file_is_scenario (text);
  o->imports = o->imports || !own;
  g_autoptr (SpScenario) scenario = own ? sp_scenario_parse (path, text, length, (const char *const *) sets, error)
                                        : load_run_file (o, path, text, length, sets, error);
  if (scenario == NULL || !sp_cli_check_layout (scenario, error))
    return NULL;
  if (scenario->run.scope != SP_SCOPE_STEP) {
    sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                 "%s: [run] scope = %s: only a whole step can be explained; use scope = step", path,
                 sp_scope_name ((SpScope) scenario->run.scope));
    return NULL;
  }
  return g_steal_pointer (&scenario);
}

/* --- the work ----------------------------------------------------------------------------------------------------- */

static void
estimate (const SpScenario *scenario, SpMfuConvention convention, SpExplainSide *ret)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  SpEstimator estimator;

  sp_estimator_init (&estimator, scenario->arch, scenario->cluster, scenario->framework, convention);
  sp_estimate_layout (&estimator, program, &scenario->layout, &scenario->run, &ret->estimate);
  sp_estimate_refine (&estimator, program, &ret->estimate);
  ret->scenario = *scenario;
}

/* The best that the format can say, and what that costs: against the best of all, and against the user's own. */
static gboolean
write_export (const SpScenario *mine, const SpPlan *plan, SpEstimator *estimator, const SpPlanQuestion *question,
              const Options *o, SpCliProgress *progress, GString *out, GError **error)
{
  g_autoptr (SpPlanExport) exported = sp_plan_export (estimator, mine, question, o->export, TRUE, error);
  SpExplainSide own;

  const SpPlanEntry *best = sp_plan_best (plan);

  if (exported == NULL)
    return FALSE;
  estimate (mine, estimator->convention, &own);
  sp_cli_note_export (exported, best != NULL ? best->estimate.step_time_s : 0, &own.estimate);
  g_string_append_len (out, exported->text->str, (gssize) exported->text->len);
  return TRUE;
}

static gboolean
explain (Options *o, SpMfuConvention convention, GString *out, GError **error)
{
  SpExplanation e = { .convention = convention, .other_name = o->against != NULL ? "other" : "best" };
  SpEstimator estimator;

  g_autoptr (SpScenario) mine = load (o, o->files[0], o->sets, error);
  g_autoptr (SpScenario) against = mine != NULL && o->against != NULL ? load (o, o->against, NULL, error) : NULL;
  if (mine == NULL || (o->against != NULL && against == NULL))
    return FALSE;
  if (!o->imports && (o->model != NULL || o->cluster != NULL))
    return sp_cli_usage (error, "%s goes with a run file; a scenario has its own", o->model ? "--model" : "--cluster");
  sp_estimator_init (&estimator, mine->arch, mine->cluster, mine->framework, convention);
  SpPlanQuestion question = sp_explain_question (mine);
  SpCliProgress progress;
  sp_cli_progress_begin (&progress, &question);
  g_autoptr (SpPlan) plan = against == NULL ? sp_explain_plan (&estimator, mine, &question, error) : NULL;
  if (plan != NULL && o->export != NULL) {
    gboolean written = write_export (mine, plan, &estimator, &question, o, &progress, out, error);
    sp_cli_progress_end (&progress);
    return written;
  }
  sp_cli_progress_end (&progress);
  if (against == NULL && plan == NULL)
    return FALSE;

  estimate (mine, convention, &e.mine);
  e.has_other = against != NULL || plan->entries->len > 0;
  if (e.has_other) {
    const SpPlanEntry *best = plan != NULL ? &g_array_index (plan->entries, SpPlanEntry, 0) : NULL;
    SpScenario other = best != NULL ? sp_scenario_with (mine, &best->layout, &best->run, 0) : *against;
    estimate (&other, convention, &e.other);
    sp_explain (mine, &e.mine.estimate, &other, &e.other.estimate, &e.explained);
  }
  g_autoptr (GPtrArray) changes = e.mine.estimate.fits ? NULL : sp_explain_changes (&estimator, mine, MOST_CHANGES);
  e.changes = changes;
  gboolean written = TRUE;
  if (o->json)
    written = sp_explanation_json (&e, out, error);
  else
    sp_explanation_text (&e, out);
  sp_explained_clear (&e.explained);
  return written;
}

gboolean
sp_command_explain (char **args, GString *out, GError **error)
{
  g_auto (Options) options = { NULL };
  guint convention = SP_MFU_SEQPAR;
  SpParsed parsed = parse (args, &options, out, error);

  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  return check (&options, &convention, error) && explain (&options, convention, out, error);
}
