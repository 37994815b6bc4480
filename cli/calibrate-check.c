/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar calibrate check: what was predicted against what seqpar-measure execute measured. */
#include <string.h>

#include "calibrate/executed.h"
#include "cli/calibrate-check.h"
#include "models/estimate/clock.h"
#include "models/estimate/interval.h"
#include "models/inputs/csv.h"
#include "models/inputs/ini.h"
#include "models/inputs/profile.h"
#include "models/rehearse/recording.h"
#include "sim/op-form.h"

#define SEED 7 /* no time depends on it */

static void
options_clear (SpCheckOptions *o)
{
  g_strfreev (o->rest);
  g_strfreev (o->sets);
  g_free (o->scenarios);
  g_free (o->tolerance);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpCheckOptions, options_clear)

/* --- one run ------------------------------------------------------------------------------------------------------ */

static char *
scenario_of (const SpCheckOptions *o, const char *csv, const char *program)
{
  g_autofree char *folder = o->scenarios != NULL ? g_strdup (o->scenarios) : g_path_get_dirname (csv);
  const char *dot = strrchr (program, '.');
  g_autofree char *stem = g_strndup (program, dot != NULL ? (gsize) (dot - program) : strlen (program));
  g_autofree char *name = g_strconcat (stem, ".ini", NULL);

  return g_build_filename (folder, name, NULL);
}

static char **
sets_of (const SpCheckOptions *o, const char *profile)
{
  g_autoptr (GPtrArray) sets = g_ptr_array_new ();
  g_autofree char *absolute = g_canonicalize_filename (profile, NULL);
  gboolean here = g_file_test (profile, G_FILE_TEST_EXISTS);

  g_ptr_array_add (sets, g_strconcat ("profile=", here ? absolute : profile, NULL));
  for (guint i = 0; o->sets != NULL && o->sets[i] != NULL; i++)
    g_ptr_array_add (sets, g_strdup (o->sets[i]));
  g_ptr_array_add (sets, NULL);
  return (char **) g_ptr_array_free (g_steal_pointer (&sets), FALSE);
}

static gboolean
compare_ops (const SpEstimator *estimator, const SpProgram *program, const SpRecording *recording, const char *csv,
             SpCheckedRun *c, GError **error)
{
  SpCost cost = estimator->cost;
  sp_cost_set_paths (&cost, estimator->cluster, program);
  for (guint i = 0; i < recording->commands->len; i++) {
    const SpCommand *command = &g_array_index (recording->commands, SpCommand, i);
    SpCheckedOps *sum = &c->ops[command->op.kind];
    cost.clock = sp_clock_of (&cost, command->phase, sp_program_variant_of (program, command->micro_batch));
    sum->predicted_s += sp_cost_op_at (&cost, &command->op, command->place);
    sum->n++;
  }
  for (guint op = 0; op < SP_N_OPS; op++) {
    gint64 times = sp_executed_rank (c->run, 0)->op_times[op];
    c->ops[op].measured_s = sp_executed_rank (c->run, 0)->op_s[op];
    if (c->ops[op].n != times)
      return sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                          "%s: %s: rank 0 ran %" G_GINT64_FORMAT " times %s, expected %" G_GINT64_FORMAT
                          " as its scenario is now",
                          csv, c->run->program, times, sp_op_name (op), c->ops[op].n);
  }
  return TRUE;
}

/* Attention of one library is not held against curves of another, nor the quickest of two against those of one. */
static gboolean
check_attention (const char *csv, const SpExecuted *executed, const SpProfile *profile, const SpProgram *program,
                 GError **error)
{
  const char *const wanted[] = { executed->attention != NULL ? executed->attention : SP_OWN_LIBRARY,
                                 executed->attention != NULL ? executed->attention : "cudnn" };
  gboolean any = FALSE;

  for (guint i = 0; i < program->n_ops; i++)
    any = any || program->ops[i].kind == SP_OP_ATTENTION;
  for (guint i = 0; any && i < G_N_ELEMENTS (wanted); i++) {
    g_autofree char *timed = NULL;
    if (!sp_profile_has_library (profile, wanted[i], &timed) && *timed != '\0')
      return sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                          "%s: softmax attention of its runs is %s, and the profile %s has timed %s alone: time its "
                          "kernels too (seqpar-measure kernels), or execute with --attention %s",
                          csv, executed->attention != NULL ? executed->attention : "the quicker of seqpar and cudnn",
                          profile->name, timed, timed);
  }
  return TRUE;
}

static gboolean
compare_run (const SpCheckOptions *o, const SpExecuted *executed, char **sets, SpCheckedRun *c, GError **error)
{
  const char *csv = o->rest[1];
  g_autofree char *path = scenario_of (o, csv, c->run->program);
  g_autoptr (SpScenario) s = sp_scenario_load (path, (const char *const *) sets, error);
  if (s == NULL || !sp_cli_check_layout (s, error)) {
    g_prefix_error (error, "%s: %s: ", csv, c->run->program);
    return FALSE;
  }
  g_autoptr (SpProgram) program = sp_program_new ();
  g_auto (SpSimulated) simulated = { 0 };
  SpSimulateOptions options = { .samples = 1 };
  SpEstimator estimator;
  SpEstimate estimate;
  SpInterval interval;
  SpFramework framework = *s->framework;
  framework.attention_library = executed->attention;
  sp_estimator_init (&estimator, s->arch, s->cluster, &framework, SP_MFU_SEQPAR);
  sp_estimate_layout (&estimator, program, &s->layout, &s->run, &estimate);
  if (c->run->ranks->len > (guint) program->world)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: %s: has a rank %u, and its scenario %d GPUs", csv,
                        c->run->program, c->run->ranks->len - 1, program->world);
  if (!check_attention (csv, executed, s->cluster->profile, program, error))
    return FALSE;
  if (!sp_simulate (&estimator, program, &s->run, &s->variations, &options, &simulated, error))
    return FALSE;
  if (sp_estimate_interval (&estimator, program, &s->run, &interval))
    sp_interval_apply (&interval, &simulated.result);
  memcpy (c->interval_s, simulated.result.interval_s, sizeof c->interval_s);
  memcpy (c->interval_curves_s, simulated.result.interval_parts_s[SP_PART_CURVES], sizeof c->interval_curves_s);
  c->step_s = sp_executed_step_s (c->run);
  if (executed->max_clock_hz > 0)
    c->clock = sp_executed_clock_hz (c->run) / executed->max_clock_hz;
  c->predicted_clock = estimator.cost.clocks[0];
  c->predicted_s = simulated.result.step_time_s;
  if (!sp_compare_exposed (&estimator, program, s, c->run, &simulated, &c->exposed, error))
    return FALSE;
  g_autoptr (SpRecording) recording = sp_record (program, 0, SEED, error);
  if (recording == NULL ||
      !sp_predict_memory (s->cluster->profile, program, &simulated, SEED, &c->predicted_memory_bytes, error))
    return FALSE;
  c->memory_bytes = (double) c->run->used_bytes;
  c->predicted_memory_bytes += (double) c->run->scratch_bytes; /* what the run's kernels asked for is theirs to say */
  c->bytes_agree = TRUE;
  for (guint axis = 0; axis < SP_N_AXES; axis++)
    c->bytes_agree &= (double) c->run->payload_bytes[axis] == simulated.result.axes[axis].payload_bytes.max;
  return compare_ops (&estimator, program, recording, csv, c, error);
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static SpParsed
parse (char **args, SpCheckOptions *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "scenarios", 0, 0, G_OPTION_ARG_FILENAME, &o->scenarios,
      "Folder of NAME.ini for each program NAME.*; the CSV's own", "DIR" },
    { "set", 0, 0, G_OPTION_ARG_STRING_ARRAY, &o->sets, "A key of all scenarios", "KEY=VALUE" },
    { "tolerance", 0, 0, G_OPTION_ARG_STRING, &o->tolerance,
      "Of the median step; the worst may be off three times that; 5%", "PERCENT" },
    { "ops", 0, 0, G_OPTION_ARG_NONE, &o->ops, "Times by op too", NULL },
    { "json", 0, 0, G_OPTION_ARG_NONE, &o->json, "The result as JSON", NULL },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, "PROFILE EXECUTED.csv" },
    { NULL },
  };
  return sp_cli_parse (args, entries,
                       "Predicts each run of EXECUTED.csv (seqpar-measure execute) from its scenario with the\n"
                       "curves of PROFILE (seqpar calibrate fit), and says how far off that is: the step, what of\n"
                       "communication nothing hides, clocks, memory, bytes. Exit status 3 beyond the tolerance.\n",
                       out, error);
}

gboolean
sp_calibrate_tolerance (const char *text, double *ret, GError **error)
{
  g_autofree char *number = g_strdup (text != NULL ? text : "5%");
  gsize length = strlen (number);
  gboolean percent = length > 0 && number[length - 1] == '%';

  if (percent)
    number[length - 1] = '\0';
  if (!percent || !sp_measured_number (number, 0, 1000, ret))
    return sp_cli_usage (error, "--tolerance takes a percentage, such as 5%%");
  *ret /= 100;
  return TRUE;
}

/* Predicted for one card and timed on another, nothing would be compared with what it says. */
static gboolean
check_card (const char *name, const char *csv, const SpExecuted *executed, GError **error)
{
  g_autofree char *path =
      g_file_test (name, G_FILE_TEST_EXISTS) ? g_strdup (name) : sp_find_shipped ("profiles", name, error);
  if (path == NULL)
    return FALSE;
  g_autoptr (SpProfile) profile = sp_profile_load (path, error);
  if (profile == NULL)
    return FALSE;
  return profile->card == NULL || *executed->card == '\0' || g_str_equal (profile->card, executed->card) ||
         sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                      "%s: its runs were timed on %s, and %s is of %s: expected runs and a profile of one card", csv,
                      executed->card, name, profile->card);
}

/* It would be other curves than those that the card was compared of. */
static gboolean
check_sets (const SpCheckOptions *o, GError **error)
{
  for (guint i = 0; o->sets != NULL && o->sets[i] != NULL; i++) {
    g_auto (GStrv) parts = g_strsplit (o->sets[i], "=", 2);
    const char *key = parts[0] != NULL ? g_strstrip (parts[0]) : "";
    if (g_str_equal (key, "profile") || g_str_equal (key, "cluster.profile"))
      return sp_cli_usage (error, "--set %s: the profile is the first argument", key);
  }
  return TRUE;
}

/* All runs of a file that have a step. */
typedef struct {
  SpExecuted *executed;
  SpCheckedRun *all;
  guint n;
} Comparison;

static void
comparison_clear (Comparison *c)
{
  g_clear_pointer (&c->executed, sp_executed_free);
  g_clear_pointer (&c->all, g_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Comparison, comparison_clear)

static gboolean
compare_all (const SpCheckOptions *o, Comparison *ret, GError **error)
{
  gsize length;
  g_autofree char *text = sp_read_measurements (o->rest[1], &length, error);

  if (text == NULL)
    return FALSE;
  ret->executed = sp_executed_parse (o->rest[1], text, length, error);
  if (ret->executed == NULL)
    return FALSE;
  const GPtrArray *runs = ret->executed->runs;
  ret->all = g_new0 (SpCheckedRun, MAX (runs->len, 1));
  for (guint i = 0; i < runs->len; i++)
    if (((const SpExecutedRun *) runs->pdata[i])->step_s->len > 0)
      ret->all[ret->n++].run = runs->pdata[i];
  if (ret->n == 0)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: has no run with a step", o->rest[1]);
  if (!check_card (o->rest[0], o->rest[1], ret->executed, error))
    return FALSE;
  g_auto (GStrv) sets = sets_of (o, o->rest[0]);
  for (guint i = 0; i < ret->n; i++)
    if (!compare_run (o, ret->executed, sets, &ret->all[i], error))
      return FALSE;
  return TRUE;
}

GString *
sp_calibrate_check_rows (const char *profile, const char *executed, GError **error)
{
  char *rest[] = { (char *) profile, (char *) executed, NULL };
  const SpCheckOptions o = { .rest = rest };
  g_auto (Comparison) c = { NULL };

  if (!compare_all (&o, &c, error))
    return NULL;
  g_autofree char *base = g_path_get_basename (executed), *of = g_path_get_basename (profile);
  g_autofree char *what = g_strdup_printf ("%s by the profile %s", base, of);
  GString *text = g_string_new ("run,step_time_s,predicted_step_time_s,interval_low_s,interval_high_s,memory_bytes,"
                                "predicted_memory_bytes,device,source\n");
  for (guint i = 0; i < c.n; i++) {
    const SpCheckedRun *run = &c.all[i];
    g_autoptr (GString) line = g_string_new (NULL);
    sp_csv_append (line, run->run->program);
    g_string_append_printf (line, ",%.9g,%.9g,%.9g,%.9g,%.0f,%.0f", run->step_s, run->predicted_s, run->interval_s[0],
                            run->interval_s[1], run->memory_bytes, run->predicted_memory_bytes);
    sp_csv_append (line, i == 0 ? c.executed->card : "");
    sp_csv_append (line, i == 0 ? what : "");
    g_string_append_printf (text, "%s\n", line->str);
  }
  return text;
}

gboolean
sp_calibrate_check (char **args, GString *out, GError **error)
{
  static const char *const wanted[] = { "PROFILE", "EXECUTED.csv", NULL };
  g_auto (SpCheckOptions) o = { NULL };
  double tolerance;
  SpParsed parsed = parse (args, &o, out, error);
  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!sp_cli_positional (o.rest, wanted, error) || !check_sets (&o, error) ||
      !sp_calibrate_tolerance (o.tolerance, &tolerance, error))
    return FALSE;
  g_auto (Comparison) comparison = { NULL };
  return compare_all (&o, &comparison, error) &&
         sp_check_report (&o, comparison.all, comparison.n, tolerance, out, error);
}
