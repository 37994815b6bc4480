/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar run SCENARIO: what one layout costs. */
#include <string.h>

#include "cli/cli.h"
#include "models/estimate/interval.h"
#include "models/writer.h"

#define MOST_SAMPLES 10000

enum { ENGINE_ESTIMATE, ENGINE_SIMULATE, ENGINE_REHEARSE };
static const char *const engines[] = { "estimate", "simulate", "rehearse", NULL };

typedef struct {
  char **files, **sets;
  char *engine, *convention, *emit, *trace, *collectives;
  gboolean json, why, serial, unfolded;
  gint samples;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->files);
  g_strfreev (o->sets);
  g_free (o->engine);
  g_free (o->convention);
  g_free (o->emit);
  g_free (o->trace);
  g_free (o->collectives);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->sets, "Over the file; as often as wanted", "KEY=VALUE" },
    { "engine", 0, 0, G_OPTION_ARG_STRING, &o->engine, "estimate (default), simulate or rehearse", "NAME" },
    { "json", 0, 0, G_OPTION_ARG_NONE, &o->json, "JSON instead of text", NULL },
    { "why", 0, 0, G_OPTION_ARG_NONE, &o->why, "Every term with its formula, source and value", NULL },
    { "emit-program", 0, 0, G_OPTION_ARG_FILENAME, &o->emit, "Write what every GPU does in a step", "FILE" },
    { "mfu-convention", 0, 0, G_OPTION_ARG_STRING, &o->convention, "seqpar, megatron, palm or llm-foundry", "NAME" },
    { "trace", 0, 0, G_OPTION_ARG_FILENAME, &o->trace, "Simulate: a timeline for ui.perfetto.dev", "FILE" },
    { "samples", 0, 0, G_OPTION_ARG_INT, &o->samples, "Simulate: runs with other noise", "N" },
    { "collectives", 0, 0, G_OPTION_ARG_STRING, &o->collectives, "Simulate: fluid (default) or steps", "NAME" },
    { "serial", 0, 0, G_OPTION_ARG_NONE, &o->serial, "Simulate: nothing overlaps", NULL },
    { "unfolded", 0, 0, G_OPTION_ARG_NONE, &o->unfolded, "Simulate: every GPU by itself", NULL },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->files, NULL, "SCENARIO" },
    { NULL },
  };
  return sp_cli_parse (
      args, entries,
      "SCENARIO is a file, or the name of a shipped scenario. A layout that does not fit is a result;\n"
      "one that is impossible is an error that says which rule and what would satisfy it. simulate runs the\n"
      "program in simulated time on the cluster's links; a [variation] group in SCENARIO gives noise, slow\n"
      "ranks and links. rehearse runs the program of a tiny model on real numbers, beside the same model on\n"
      "one GPU.\n",
      out, error);
}

/* Options that only one engine knows. */
static gboolean
check_engine (const Options *o, guint engine, GError **error)
{
  const struct {
    const char *option;
    gboolean given;
  } simulate[] = { { "--trace", o->trace != NULL },
                   { "--samples", o->samples != 1 },
                   { "--collectives", o->collectives != NULL },
                   { "--serial", o->serial },
                   { "--unfolded", o->unfolded } };

  for (guint i = 0; i < G_N_ELEMENTS (simulate) && engine != ENGINE_SIMULATE; i++)
    if (simulate[i].given)
      return sp_cli_usage (error, "%s goes with --engine simulate, not with %s", simulate[i].option, engines[engine]);
  if (engine == ENGINE_SIMULATE && (o->samples < 1 || o->samples > MOST_SAMPLES))
    return sp_cli_usage (error, "--samples %d: expected 1 to %d", o->samples, MOST_SAMPLES);
  return engine == ENGINE_ESTIMATE || !o->why ||
         sp_cli_usage (error, "--why goes with --engine estimate, not with %s", engines[engine]);
}

static gboolean
check (const Options *o, guint *ret_engine, guint *ret_convention, SpSimulateOptions *ret_simulate, GError **error)
{
  static const char *const positional[] = { "SCENARIO", NULL };
  static const char *const fidelities[] = { "fluid", "steps", NULL };
  guint fidelity = 0;
  if (!sp_cli_positional (o->files, positional, error) ||
      !sp_cli_choice ("--engine", o->engine, engines, ret_engine, error) ||
      !sp_cli_choice ("--collectives", o->collectives, fidelities, &fidelity, error) ||
      !sp_cli_choice ("--mfu-convention", o->convention, sp_mfu_names, ret_convention, error))
    return FALSE;
  *ret_simulate = (SpSimulateOptions){ .serial = o->serial,
                                       .steps = fidelity == 1,
                                       .unfolded = o->unfolded,
                                       .samples = (guint) o->samples,
                                       .trace_path = o->trace };
  return check_engine (o, *ret_engine, error);
}

/* --- report ------------------------------------------------------------------------------------------------------- */

static void
add_question (const SpScenario *s, GString *out)
{
  g_autoptr (SpTable) table = sp_table_new ("ll");
  g_autofree char *parameters = sp_text_count ((double) sp_architecture_parameters (s->arch));
  g_autofree char *sequence = sp_text_count ((double) s->run.sequence);
  g_autofree char *trained = sp_result_trained (&s->run, s->arch);
  sp_table_cell (table, "model");
  sp_table_take (table, g_strdup_printf ("%s, %s parameters", s->arch->name, parameters));
  if (trained != NULL) {
    sp_table_cell (table, "trained");
    sp_table_cell (table, trained);
  }
  sp_table_cell (table, "cluster");
  sp_table_take (
      table, g_strdup_printf ("%s (%d x %s)", s->cluster->name, sp_cli_gpus (s->cluster), s->cluster->device->name));
  sp_table_cell (table, "framework");
  sp_table_cell (table, s->framework->name);
  sp_table_cell (table, "run");
  sp_table_take (table, g_strdup_printf ("sequence %s tokens, global batch %d, micro-batch %d, %s%s%s%s", sequence,
                                         s->run.global_batch, s->run.micro_batch,
                                         s->run.fp8 ? "fp8" : sp_dtype_name (s->run.precision),
                                         s->run.causal ? ", causal" : "",
                                         s->run.optimizer != SP_OPTIMIZER_ADAMW ? ", optimizer " : "",
                                         s->run.optimizer != SP_OPTIMIZER_ADAMW ? sp_optimizer_names[s->run.optimizer]
                                                                                : ""));
  sp_table_cell (table, "layout");
  sp_table_take (table, sp_layout_describe (&s->layout, s->arch));
  sp_table_print (table, 0, out);
}

static void
add_text (const SpScenario *s, SpMfuConvention convention, const SpEstimate *estimate, const SpSimulated *simulated,
          const SpProgram *program, const GPtrArray *notes, const GString *why, GString *out)
{
  add_question (s, out);
  sp_result_text (estimate, convention, out);
  if (simulated != NULL)
    sp_simulated_text (simulated, program, out);
  sp_result_notes_text (notes, out);
  if (why != NULL)
    g_string_append_printf (out, "\nwhy\n%s", why->str);
}

static gboolean
add_json (const SpEstimate *estimate, const SpSimulated *simulated, const SpProgram *program, const GPtrArray *notes,
          const GString *why, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  json_builder_begin_object (builder);
  sp_result_json (builder, estimate, notes);
  if (simulated != NULL)
    sp_simulated_json (builder, simulated, program);
  if (why != NULL)
    sp_json_string (builder, "why", why->str);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

/* --emit-program's text; NULL: nobody wants it. */
static GString *
program_text (const SpProgram *program, const char *path)
{
  GString *text = path != NULL ? g_string_new (NULL) : NULL;
  if (text != NULL)
    sp_program_write_text (program, text);
  return text;
}

static gboolean
run (const Options *o, guint engine, SpMfuConvention convention, const SpSimulateOptions *simulate, GString *out,
     GError **error)
{
  g_autoptr (SpScenario) s = sp_cli_load_scenario (o->files[0], o->sets, error);
  if (s == NULL || !sp_scenario_check_run (s, engine == ENGINE_SIMULATE, error) ||
      !sp_cli_check_outputs (o->emit, o->trace, error) || !sp_cli_check_writable (o->emit, error))
    return FALSE;
  g_autoptr (SpProgram) program = sp_program_new ();
  SpEstimator estimator;
  SpEstimate estimate;
  sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, convention);
  sp_estimate_layout (&estimator, program, &s->layout, &s->run, &estimate);
  sp_estimate_refine (&estimator, program, &estimate);
  g_autoptr (GString) emitted = program_text (program, o->emit);
  if (engine == ENGINE_REHEARSE && s->run.scope != SP_SCOPE_STEP)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                        "%s: [run] scope = %s: only a whole step can be rehearsed; use scope = "
                        "step",
                        s->path, sp_scope_name ((SpScope) s->run.scope));
  if (engine == ENGINE_REHEARSE)
    return sp_run_rehearsal (s, program, &estimate, o->json, out, error) &&
           (emitted == NULL || sp_cli_write_file (o->emit, emitted, error));

  g_auto (SpSimulated) simulated = { 0 };
  gboolean simulates = engine == ENGINE_SIMULATE;
  if (simulates && !sp_simulate (&estimator, program, &s->run, &s->variations, simulate, &simulated, error))
    return FALSE;
  g_autoptr (GPtrArray) notes = sp_estimate_notes (&estimator, &s->layout, &s->run);
  for (guint i = 0; i < s->notes->len; i++)
    g_ptr_array_add (notes, g_strdup (s->notes->pdata[i]));
  g_autoptr (GString) why = NULL;
  if (o->why) {
    why = g_string_new (NULL);
    sp_estimate_why (&estimator, program, &s->run, why);
  }
  SpEstimate *shown = simulates ? &simulated.result : &estimate;
  SpInterval interval;
  if (sp_estimate_interval (&estimator, program, &s->run, &interval))
    sp_interval_apply (&interval, shown);
  if (emitted != NULL && !sp_cli_write_file (o->emit, emitted, error))
    return FALSE;
  const SpSimulated *with = simulates ? &simulated : NULL;
  if (o->json)
    return add_json (shown, with, program, notes, why, out, error);
  add_text (s, convention, shown, with, program, notes, why, out);
  return TRUE;
}

gboolean
sp_command_run (char **args, GString *out, GError **error)
{
  g_auto (Options) options = { .samples = 1 };
  guint engine = ENGINE_ESTIMATE, convention = SP_MFU_SEQPAR;
  SpSimulateOptions simulate = { 0 };
  SpParsed parsed = parse (args, &options, out, error);
  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  return check (&options, &engine, &convention, &simulate, error) &&
         run (&options, engine, convention, &simulate, out, error);
}
