/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar calibrate check: what was predicted against what seqpar-measure execute measured. */
#include <math.h>
#include <string.h>

#include "calibrate/executed.h"
#include "cli/calibrate.h"
#include "models/estimate/clock.h"
#include "models/estimate/interval.h"
#include "models/inputs/ini.h"
#include "models/inputs/profile.h"
#include "models/rehearse/recording.h"
#include "models/inputs/csv.h"
#include "sim/op-form.h"

/* The worst run may be off three times as far as the middle one. */
#define WORST_FACTOR 3
#define SEED 7 /* no time depends on it */

typedef struct {
  char **rest, **sets;
  char *scenarios, *tolerance;
  gboolean json, ops;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_strfreev (o->sets);
  g_free (o->scenarios);
  g_free (o->tolerance);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

/* By kind of op, of rank 0. */
typedef struct {
  double measured_s, predicted_s;
  gint64 n;
} OpSum;

typedef struct {
  const SpExecutedRun *run;
  double step_s, predicted_s;
  SpExposed exposed;
  double memory_bytes, predicted_memory_bytes; /* memory: 0 where not measured */
  double interval_s[2];                        /* 0: none */
  double clock, predicted_clock;               /* of the work, over the highest; clock: 0 where not measured */
  gboolean bytes_agree;
  OpSum ops[SP_N_OPS];
} Compared;

/* --- one run ------------------------------------------------------------------------------------------------------ */

static char *
scenario_of (const Options *o, const char *csv, const char *program)
{
  g_autofree char *folder = o->scenarios != NULL ? g_strdup (o->scenarios) : g_path_get_dirname (csv);
  const char *dot = strrchr (program, '.');
  g_autofree char *stem = g_strndup (program, dot != NULL ? (gsize) (dot - program) : strlen (program));
  g_autofree char *name = g_strconcat (stem, ".ini", NULL);

  return g_build_filename (folder, name, NULL);
}

static char **
sets_of (const Options *o, const char *profile)
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
             Compared *c, GError **error)
{
  SpCost cost = estimator->cost;
  gboolean same = TRUE;
  sp_cost_set_paths (&cost, estimator->cluster, program);
  for (guint i = 0; i < recording->commands->len; i++) {
    const SpCommand *command = &g_array_index (recording->commands, SpCommand, i);
    OpSum *sum = &c->ops[command->op.kind];
    cost.clock = sp_clock_of (&cost, command->phase, sp_clock_variant (program, command->micro_batch));
    sum->predicted_s += sp_cost_op_at (&cost, &command->op, command->place);
    sum->n++;
  }
  for (guint op = 0; op < SP_N_OPS; op++) {
    c->ops[op].measured_s = sp_executed_rank (c->run, 0)->op_s[op];
    same &= c->ops[op].n == sp_executed_rank (c->run, 0)->op_times[op];
  }
  return same || sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                              "%s: %s: it did not run what its scenario says now: other ops, or as many as %u", csv,
                              c->run->program, recording->commands->len);
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
compare_run (const Options *o, const SpExecuted *executed, char **sets, Compared *c, GError **error)
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
  if (!check_attention (csv, executed, s->cluster->profile, program, error))
    return FALSE;
  if (!sp_simulate (&estimator, program, &s->run, &s->variations, &options, &simulated, error))
    return FALSE;
  if (sp_estimate_interval (&estimator, program, &s->run, &interval))
    sp_interval_apply (&interval, &simulated.result);
  memcpy (c->interval_s, simulated.result.interval_s, sizeof c->interval_s);
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

static gint
compare_numbers (gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return x < y ? -1 : x > y;
}

static double
error_of (double predicted, double measured)
{
  return measured > 0 ? predicted / measured - 1 : 0;
}

typedef struct {
  double median, p90, worst;
} Spread;

static Spread
spread_of (const Compared *all, guint n, gboolean memory)
{
  g_autofree double *errors = g_new (double, MAX (n, 1));

  for (guint i = 0; i < n; i++)
    errors[i] = fabs (memory ? error_of (all[i].predicted_memory_bytes, all[i].memory_bytes)
                             : error_of (all[i].predicted_s, all[i].step_s));
  qsort (errors, n, sizeof *errors, compare_numbers);
  return (Spread){ errors[n / 2], errors[(n - 1) * 9 / 10], errors[n - 1] };
}

/* Runs whose step lies in the interval of their prediction. */
static guint
count_inside (const Compared *all, guint n)
{
  guint inside = 0;

  for (guint i = 0; i < n; i++)
    inside += all[i].interval_s[0] <= all[i].step_s && all[i].step_s <= all[i].interval_s[1];
  return inside;
}

static void
add_signed_percent (SpTable *table, double fraction)
{
  sp_table_take (table, g_strdup_printf ("%+.1f %%", 100 * fraction));
}

static void
add_exposed (SpTable *table, const SpExposed *exposed)
{
  const double values[] = { exposed->measured_s, exposed->predicted_s, exposed->as_ran_s };

  for (guint i = 0; i < G_N_ELEMENTS (values); i++)
    sp_table_take (table, values[i] >= 0 ? sp_text_seconds (values[i]) : g_strdup ("not said"));
}

static void
add_runs (const Compared *all, guint n, GString *out)
{
  static const char *const heads[] = { "program", "step",   "predicted", "error", "exposed", "predicted",
                                       "as ran",  "memory", "predicted", "error", "bytes" };
  g_autoptr (SpTable) table = sp_table_new ("lrrrrrrrrrl");

  for (guint i = 0; i < G_N_ELEMENTS (heads); i++)
    sp_table_cell (table, heads[i]);
  for (guint i = 0; i < n; i++) {
    const Compared *c = &all[i];
    sp_table_cell (table, c->run->program);
    sp_table_take (table, sp_text_seconds (c->step_s));
    sp_table_take (table, sp_text_seconds (c->predicted_s));
    add_signed_percent (table, error_of (c->predicted_s, c->step_s));
    add_exposed (table, &c->exposed);
    sp_table_take (table, sp_text_bytes (c->memory_bytes));
    sp_table_take (table, sp_text_bytes (c->predicted_memory_bytes));
    add_signed_percent (table, error_of (c->predicted_memory_bytes, c->memory_bytes));
    sp_table_cell (table, c->bytes_agree ? "equal" : "DIFFER");
  }
  sp_table_print (table, 0, out);
}

static void
add_ops (const Compared *all, guint n, GString *out)
{
  g_autoptr (SpTable) table = sp_table_new ("lrrrr");
  static const char *const heads[] = { "op", "times", "measured", "predicted", "error" };

  for (guint i = 0; i < G_N_ELEMENTS (heads); i++)
    sp_table_cell (table, heads[i]);
  for (guint op = 0; op < SP_N_OPS; op++) {
    OpSum sum = { 0 };
    for (guint i = 0; i < n; i++) {
      sum.measured_s += all[i].ops[op].measured_s;
      sum.predicted_s += all[i].ops[op].predicted_s;
      sum.n += all[i].ops[op].n;
    }
    if (sum.n == 0)
      continue;
    sp_table_cell (table, sp_op_name (op));
    sp_table_take (table, g_strdup_printf ("%" G_GINT64_FORMAT, sum.n));
    sp_table_take (table, sp_text_seconds (sum.measured_s));
    sp_table_take (table, sp_text_seconds (sum.predicted_s));
    add_signed_percent (table, error_of (sum.predicted_s, sum.measured_s));
  }
  g_string_append (out,
                   "\nops of rank 0, all runs together; communication as measured includes waits for the others\n");
  sp_table_print (table, 2, out);
}

static void
add_spread (const char *what, Spread s, GString *out)
{
  g_string_append_printf (out, "%s: median error %.1f %%, 90th percentile %.1f %%, worst %.1f %%\n", what,
                          100 * s.median, 100 * s.p90, 100 * s.worst);
}

/* Runs whose communication is as exposed as it should be. */
static void
add_agreeing (const Compared *all, guint n, GString *out)
{
  guint said = 0, agree = 0;

  for (guint i = 0; i < n; i++) {
    gboolean communicates = all[i].exposed.measured_s > 0 || all[i].exposed.predicted_s > 0;
    said += communicates && all[i].exposed.measured_s >= 0;
    agree += communicates && all[i].exposed.measured_s >= 0 && all[i].exposed.agrees;
  }
  if (said > 0)
    g_string_append_printf (
        out,
        "exposed communication, of a GPU in the mean and as the cards ran: within %g %% or %g us in %u of %u runs\n",
        100 * SP_EXPOSED_SHARE, 1e6 * SP_EXPOSED_LEAST_S, agree, said);
}

/* Where runs say at what clock they were, and the profile what clock power leaves. */
static void
add_clocks (const Compared *all, guint n, GString *out)
{
  g_autofree double *errors = g_new (double, MAX (n, 1));
  gboolean held = FALSE;
  guint said = 0;

  for (guint i = 0; i < n; i++) {
    held = held || all[i].predicted_clock < 1;
    if (all[i].clock > 0)
      errors[said++] = error_of (all[i].predicted_clock, all[i].clock);
  }
  if (said == 0 || !held)
    return;
  qsort (errors, said, sizeof *errors, compare_numbers);
  g_string_append_printf (out, "clock: predicted %+.1f %% off in the middle, from %+.1f %% to %+.1f %%\n",
                          100 * errors[said / 2], 100 * errors[0], 100 * errors[said - 1]);
}

static void
add_json_ops (JsonBuilder *b, const OpSum *ops)
{
  json_builder_set_member_name (b, "ops");
  json_builder_begin_object (b);
  for (guint op = 0; op < SP_N_OPS; op++) {
    if (ops[op].n == 0)
      continue;
    json_builder_set_member_name (b, sp_op_name (op));
    json_builder_begin_object (b);
    sp_json_whole (b, "times", ops[op].n);
    sp_json_number (b, "measured_s", ops[op].measured_s);
    sp_json_number (b, "predicted_s", ops[op].predicted_s);
    json_builder_end_object (b);
  }
  json_builder_end_object (b);
}

static gboolean
add_json (const Compared *all, guint n, Spread time, Spread memory, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) b = json_builder_new ();

  json_builder_begin_object (b);
  sp_json_number (b, "time_median_error", time.median);
  sp_json_number (b, "time_p90_error", time.p90);
  sp_json_number (b, "time_worst_error", time.worst);
  sp_json_number (b, "memory_median_error", memory.median);
  sp_json_number (b, "memory_worst_error", memory.worst);
  sp_json_whole (b, "inside_interval", count_inside (all, n));
  json_builder_set_member_name (b, "runs");
  json_builder_begin_array (b);
  for (guint i = 0; i < n; i++) {
    json_builder_begin_object (b);
    sp_json_string (b, "program", all[i].run->program);
    sp_json_number (b, "step_time_s", all[i].step_s);
    sp_json_number (b, "predicted_step_time_s", all[i].predicted_s);
    sp_json_number (b, "exposed_s", all[i].exposed.measured_s);
    sp_json_number (b, "predicted_exposed_s", all[i].exposed.predicted_s);
    sp_json_number (b, "as_ran_exposed_s", all[i].exposed.as_ran_s);
    sp_json_bool (b, "exposed_agrees", all[i].exposed.agrees);
    sp_json_whole (b, "memory_bytes", all[i].memory_bytes);
    sp_json_whole (b, "predicted_memory_bytes", all[i].predicted_memory_bytes);
    sp_json_number (b, "clock", all[i].clock);
    sp_json_number (b, "predicted_clock", all[i].predicted_clock);
    sp_json_bool (b, "bytes_agree", all[i].bytes_agree);
    add_json_ops (b, all[i].ops);
    json_builder_end_object (b);
  }
  json_builder_end_array (b);
  json_builder_end_object (b);
  return sp_json_finish (b, out, error);
}

static gboolean
report (const Options *o, const Compared *all, guint n, double tolerance, GString *out, GError **error)
{
  Spread time = spread_of (all, n, FALSE), memory = spread_of (all, n, TRUE);
  gboolean bytes = TRUE;

  for (guint i = 0; i < n; i++)
    bytes &= all[i].bytes_agree;
  if (o->json) {
    if (!add_json (all, n, time, memory, out, error))
      return FALSE;
  } else {
    add_runs (all, n, out);
    if (o->ops)
      add_ops (all, n, out);
    g_string_append_c (out, '\n');
    add_spread ("step time", time, out);
    g_string_append_printf (out,
                            "in the 95 %% interval of the profile's curves, which knows no error of the model: "
                            "%u of %u runs\n",
                            count_inside (all, n), n);
    add_clocks (all, n, out);
    add_spread ("memory", memory, out);
    add_agreeing (all, n, out);
  }
  if (time.median <= tolerance && time.worst <= WORST_FACTOR * tolerance && bytes)
    return TRUE;
  g_set_error (error, SP_CLI_ERROR, SP_CLI_ERROR_BEYOND,
               "beyond the tolerance of %.3g %% (three times that for the worst run): median %.1f %%, worst %.1f %%%s",
               100 * tolerance, 100 * time.median, 100 * time.worst, bytes ? "" : "; bytes differ");
  return FALSE;
}

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
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

/* All runs of a file that have a step. */
typedef struct {
  SpExecuted *executed;
  Compared *all;
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
compare_all (const Options *o, Comparison *ret, GError **error)
{
  gsize length;
  g_autofree char *text = sp_read_measurements (o->rest[1], &length, error);

  if (text == NULL)
    return FALSE;
  ret->executed = sp_executed_parse (o->rest[1], text, length, error);
  if (ret->executed == NULL)
    return FALSE;
  const GPtrArray *runs = ret->executed->runs;
  ret->all = g_new0 (Compared, MAX (runs->len, 1));
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
  const Options o = { .rest = rest };
  g_auto (Comparison) c = { NULL };

  if (!compare_all (&o, &c, error))
    return NULL;
  g_autofree char *base = g_path_get_basename (executed), *of = g_path_get_basename (profile);
  g_autofree char *what = g_strdup_printf ("%s by the profile %s", base, of);
  GString *text = g_string_new ("run,step_time_s,predicted_step_time_s,interval_low_s,interval_high_s,memory_bytes,"
                                "predicted_memory_bytes,device,source\n");
  for (guint i = 0; i < c.n; i++) {
    const Compared *run = &c.all[i];
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
  g_auto (Options) o = { NULL };
  double tolerance;
  SpParsed parsed = parse (args, &o, out, error);
  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!sp_cli_positional (o.rest, wanted, error) || !sp_calibrate_tolerance (o.tolerance, &tolerance, error))
    return FALSE;
  g_auto (Comparison) comparison = { NULL };
  return compare_all (&o, &comparison, error) && report (&o, comparison.all, comparison.n, tolerance, out, error);
}
