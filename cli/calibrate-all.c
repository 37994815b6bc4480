/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar calibrate SCENARIO|CLUSTER: sweep, kernels, fit, execute, check. */
#include <errno.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>

#include "calibrate/executed.h"
#include "calibrate/fit.h"
#include "cli/calibrate.h"
#include "models/writer.h"

#define ALL_GPUS G_MININT64

typedef struct {
  char **rest;
  char *output, *folder, *tolerance, *device;
  gint64 gpus; /* 0: all */
  gboolean dry;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_free (o->output);
  g_free (o->folder);
  g_free (o->tolerance);
  g_free (o->device);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

typedef struct {
  const Options *o;
  char *measure;
  int gpus;          /* that take part */
  GPtrArray *trials;  /* SpTrial */
  GPtrArray *kernels; /* char *, names of programs whose kernels are timed */
  GString *out;
} Job;

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &o->output, "The profile to write; profile.ini", "INI" },
    { "keep", 0, 0, G_OPTION_ARG_FILENAME, &o->folder, "Folder of what is measured; INI.measured", "DIR" },
    { "gpus", 0, 0, G_OPTION_ARG_INT64, &o->gpus, "How many of this machine's; all", "N" },
    { "device", 0, 0, G_OPTION_ARG_FILENAME, &o->device, "The card's device file or a shipped one", "NAME" },
    { "tolerance", 0, 0, G_OPTION_ARG_STRING, &o->tolerance, "As seqpar calibrate check has it; 5%", "PERCENT" },
    { "dry-run", 0, 0, G_OPTION_ARG_NONE, &o->dry, "Print the commands that it stands for", NULL },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, "SCENARIO|CLUSTER" },
    { NULL },
  };
  SpParsed parsed = sp_cli_parse (
      args, entries,
      "On a machine with GPUs: measures with seqpar-measure, fits a profile, executes runs that nothing was\n"
      "fitted to (of a cluster the shipped ones, of a scenario its model in each axis alone) and checks the\n"
      "predictions with them. What was cut short goes on where it was. Exit status 3 beyond the tolerance.\n",
      out, error);
  if (parsed != SP_PARSED)
    return parsed;
  o->output = o->output != NULL ? o->output : g_strdup ("profile.ini");
  o->folder = o->folder != NULL ? o->folder : g_strconcat (o->output, ".measured", NULL);
  o->tolerance = o->tolerance != NULL ? o->tolerance : g_strdup ("5%");
  return parsed;
}

static char *
path_of (const Job *job, const char *name, const char *suffix)
{
  g_autofree char *file = g_strconcat (name, suffix, NULL);

  return g_build_filename (job->o->folder, file, NULL);
}

static const SpTrial *
trial_at (const Job *job, guint i)
{
  return job->trials->pdata[i];
}

static gint32
world_of (const SpTrial *trial)
{
  return sp_layout_world (&trial->scenario->layout, trial->scenario->arch);
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

static void
add (GPtrArray *argv, const char *word)
{
  g_ptr_array_add (argv, g_strdup (word));
}

/* NULL-terminated; free with g_ptr_array_unref. */
static GPtrArray *
command_new (const char *program, const char *first)
{
  GPtrArray *argv = g_ptr_array_new_with_free_func (g_free);

  add (argv, program);
  add (argv, first);
  return argv;
}

static GPtrArray *
sweep_of (const Job *job)
{
  GPtrArray *argv = command_new (job->measure, "sweep");

  add (argv, "--gpus");
  g_ptr_array_add (argv, g_strdup_printf ("%d", job->gpus));
  add (argv, "-o");
  g_ptr_array_add (argv, path_of (job, "sweep", ".csv"));
  g_ptr_array_add (argv, NULL);
  return argv;
}

static GPtrArray *
kernels_of (const Job *job)
{
  GPtrArray *argv = command_new (job->measure, "kernels");

  for (guint i = 0; i < job->kernels->len; i++)
    g_ptr_array_add (argv, path_of (job, job->kernels->pdata[i], ".prog"));
  add (argv, "--repeats");
  add (argv, "3");
  add (argv, "-o");
  g_ptr_array_add (argv, path_of (job, "kernels", ".csv"));
  g_ptr_array_add (argv, NULL);
  return argv;
}

static GPtrArray *
fit_of (const Job *job)
{
  GPtrArray *argv = command_new ("seqpar", "calibrate");

  add (argv, "fit");
  g_ptr_array_add (argv, path_of (job, "sweep", ".csv"));
  g_ptr_array_add (argv, path_of (job, "kernels", ".csv"));
  if (job->o->device != NULL) {
    add (argv, "--device");
    add (argv, job->o->device);
  }
  add (argv, "-o");
  g_ptr_array_add (argv, path_of (job, "profile", ".ini"));
  g_ptr_array_add (argv, NULL);
  return argv;
}

/* To a name of its own: what has the other is whole. */
static GPtrArray *
execute_of (const Job *job, const SpTrial *trial, const char *suffix)
{
  GPtrArray *argv = command_new (job->measure, "execute");

  add (argv, "--gpus");
  g_ptr_array_add (argv, g_strdup_printf ("%d", world_of (trial)));
  g_ptr_array_add (argv, path_of (job, trial->name, ".prog"));
  add (argv, "-o");
  g_ptr_array_add (argv, path_of (job, trial->name, suffix));
  g_ptr_array_add (argv, NULL);
  return argv;
}

static GPtrArray *
check_of (const Job *job)
{
  GPtrArray *argv = command_new ("seqpar", "calibrate");

  add (argv, "check");
  g_ptr_array_add (argv, path_of (job, "profile", ".ini"));
  g_ptr_array_add (argv, path_of (job, "executed", ".csv"));
  add (argv, "--tolerance");
  add (argv, job->o->tolerance);
  g_ptr_array_add (argv, NULL);
  return argv;
}

static void
print_command (const Job *job, GPtrArray *command)
{
  g_autoptr (GPtrArray) argv = command;

  for (guint i = 0; argv->pdata[i] != NULL; i++) {
    g_autofree char *quoted = g_shell_quote (argv->pdata[i]);
    gboolean plain = strpbrk (argv->pdata[i], " '\"\\$`*?[](){}<>|&;!~#\t\n") == NULL;
    g_string_append_printf (job->out, "%s%s", i > 0 ? " " : "", plain ? (const char *) argv->pdata[i] : quoted);
  }
  g_string_append_c (job->out, '\n');
}

static void
print_commands (const Job *job)
{
  print_command (job, sweep_of (job));
  for (guint i = 0; i < job->trials->len; i++) {
    const SpTrial *trial = trial_at (job, i);
    GPtrArray *emit = command_new ("seqpar", "run");
    g_ptr_array_add (emit, path_of (job, trial->name, ".ini"));
    add (emit, "--emit-program");
    g_ptr_array_add (emit, path_of (job, trial->name, ".prog"));
    g_ptr_array_add (emit, NULL);
    print_command (job, emit);
  }
  print_command (job, kernels_of (job));
  print_command (job, fit_of (job));
  for (guint i = 0; i < job->trials->len; i++)
    print_command (job, execute_of (job, trial_at (job, i), ".csv"));
  print_command (job, check_of (job));
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static void say (const char *format, ...) G_GNUC_PRINTF (1, 2);

static void
say (const char *format, ...)
{
  va_list args;

  if (!isatty (STDERR_FILENO))
    return;
  va_start (args, format);
  vfprintf (stderr, format, args);
  va_end (args);
  fputc ('\n', stderr);
}

static gboolean
run_command (const Job *job, GPtrArray *command, GError **error)
{
  g_autoptr (GPtrArray) argv = command;

  if (sp_run_step ((const char *const *) argv->pdata, error))
    return TRUE;
  if (error != NULL && *error != NULL) {
    char *message = g_strdup_printf ("%s; what was measured is kept in %s, and the same command goes on from there",
                                     (*error)->message, job->o->folder);
    g_free ((*error)->message);
    (*error)->message = message;
  }
  return FALSE;
}

/* A run of another program than is there now has to be run again. */
static gboolean
write_program (const Job *job, const SpTrial *trial, GError **error)
{
  const SpScenario *s = trial->scenario;
  g_autofree char *ini = path_of (job, trial->name, ".ini"), *prog = path_of (job, trial->name, ".prog");
  g_autofree char *csv = path_of (job, trial->name, ".csv"), *before = NULL;
  g_autoptr (GString) text = g_string_new (NULL), scenario = g_string_new (NULL);
  g_autoptr (SpProgram) program = sp_program_new ();

  sp_program_write (program, s->arch, s->framework, &s->layout, &s->run);
  sp_program_write_text (program, text);
  sp_scenario_write (s, scenario);
  if (g_file_get_contents (prog, &before, NULL, NULL) && g_str_equal (before, text->str))
    return sp_cli_write_file (ini, scenario, error);
  g_remove (csv);
  return sp_cli_write_file (ini, scenario, error) && sp_cli_write_file (prog, text, error);
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

/* The trial's program on a part of its sequence and of few layers; NULL: that is not legal. */
static GString *
shortened (const SpTrial *trial, gint64 sequence)
{
  enum { MOST_LAYERS = 4 };
  SpScenario *s = trial->scenario;
  SpArchitecture arch = *s->arch, *whole = s->arch;
  SpRun run = s->run;
  GString *text = NULL;

  arch.layers = MIN (arch.layers, MAX (MOST_LAYERS, s->layout.pipeline * s->layout.virtual_stages));
  s->arch = &arch;
  s->run.sequence = sequence;
  if (sp_cli_check_layout (s, NULL)) {
    g_autoptr (SpProgram) program = sp_program_new ();
    text = g_string_new (NULL);
    sp_program_write (program, s->arch, s->framework, &s->layout, &s->run);
    sp_program_write_text (program, text);
  }
  s->arch = whole;
  s->run = run;
  return text;
}

/* Of sizes around those that are executed, so that what is checked was not fitted, nor lies beyond what was. Programs that
 * are the same are one. */
static gboolean
write_kernels (Job *job, gboolean dry, GError **error)
{
  static const gint64 eighths[] = { 10, 7, 5 };
  g_autoptr (GHashTable) known = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);

  job->kernels = g_ptr_array_new_with_free_func (g_free);
  for (guint i = 0; i < job->trials->len; i++)
    for (guint j = 0; j < G_N_ELEMENTS (eighths); j++) {
      const SpTrial *trial = trial_at (job, i);
      gint64 sequence = trial->scenario->run.sequence * eighths[j] / 8;
      g_autoptr (GString) text = shortened (trial, sequence);
      if (text == NULL || !g_hash_table_add (known, g_strdup (text->str)))
        continue;
      char *name = g_strdup_printf ("kernels-%s-%" G_GINT64_FORMAT, trial->name, sequence);
      g_autofree char *path = path_of (job, name, ".prog");
      g_ptr_array_add (job->kernels, name);
      if (!dry && !sp_cli_write_file (path, text, error))
        return FALSE;
    }
  return TRUE;
}

/* --- order -------------------------------------------------------------------------------------------------------- */

static gboolean
execute (const Job *job, GError **error)
{
  for (guint i = 0; i < job->trials->len; i++) {
    const SpTrial *trial = trial_at (job, i);
    g_autofree char *csv = path_of (job, trial->name, ".csv"), *part = path_of (job, trial->name, ".csv.part");
    if (g_file_test (csv, G_FILE_TEST_EXISTS))
      continue;
    say ("execute %u of %u: %s", i + 1, job->trials->len, trial->name);
    if (!run_command (job, execute_of (job, trial, ".csv.part"), error))
      return FALSE;
    if (g_rename (part, csv) != 0)
      return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: was not written by seqpar-measure execute", part);
  }
  return TRUE;
}

/* The rows of all runs under the head of the first. */
static gboolean
join_runs (const Job *job, GError **error)
{
  g_autofree char *path = path_of (job, "executed", ".csv");
  g_autoptr (GString) all = g_string_new (NULL);

  for (guint i = 0; i < job->trials->len; i++) {
    g_autofree char *csv = path_of (job, trial_at (job, i)->name, ".csv"), *text = NULL;
    if (!g_file_get_contents (csv, &text, NULL, error))
      return FALSE;
    const char *rows = strstr (text, "\nprogram,");
    rows = rows != NULL ? strchr (rows + 1, '\n') : NULL;
    if (rows == NULL)
      return sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                          "%s: has no rows of seqpar-measure execute; remove it, and the same command goes on", csv);
    g_autoptr (SpExecuted) whole = sp_executed_parse (csv, text, strlen (text), error);
    if (whole == NULL) {
      g_prefix_error (error, "remove %s, and the same command goes on: ", csv);
      return FALSE;
    }
    g_string_append (all, i == 0 ? text : rows + 1);
  }
  return sp_cli_write_file (path, all, error);
}

static gboolean
fit (const Job *job, GError **error)
{
  g_autoptr (GPtrArray) argv = fit_of (job);
  g_autoptr (GString) report = g_string_new (NULL);
  g_autofree char *path = path_of (job, "fit", ".txt");

  return sp_calibrate_fit ((char **) argv->pdata + 2, report, error) && sp_cli_write_file (path, report, error);
}

static gboolean
write_profile (const Job *job, GError **error)
{
  g_autofree char *path = path_of (job, "profile", ".ini"), *text = NULL;

  if (!g_file_get_contents (path, &text, NULL, error))
    return FALSE;
  g_autoptr (GString) profile = g_string_new (text);
  return sp_cli_write_file (job->o->output, profile, error);
}

static void
add_end (const Job *job, const SpMachine *machine)
{
  g_string_append_printf (job->out, "\n%s: the profile of %s; what was measured and the fit's report are in %s\n",
                          job->o->output, machine->card, job->o->folder);
  guint n_several = 0;
  for (guint i = 0; i < job->trials->len; i++)
    n_several += world_of (trial_at (job, i)) > 1;
  if (n_several > 0)
    return;
  if (job->gpus > 1) {
    g_string_append_printf (job->out,
                            "no layout on %d GPUs was executed: none of those is legal and fits; transfers are fitted, "
                            "and no prediction on several was checked\n",
                            job->gpus);
    return;
  }
  g_string_append_printf (job->out,
                          "%s: transfers between GPUs were not measured, and no layout on several was executed: for "
                          "these predictions rest on the cluster's file\n",
                          machine->gpus > 1 && !machine->nccl ? "seqpar-measure was built without NCCL" : "one GPU");
}

/* The profile is written when all is there, whatever the check says. */
static gboolean
run (Job *job, const SpMachine *machine, GError **error)
{
  g_autoptr (GPtrArray) check = check_of (job);
  g_autoptr (GError) verdict = NULL;

  if (g_mkdir_with_parents (job->o->folder, 0777) != 0)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: cannot be made a folder: %s",
                        *job->o->folder != '\0' ? job->o->folder : "\"\"", g_strerror (errno));
  for (guint i = 0; i < job->trials->len; i++)
    if (!write_program (job, trial_at (job, i), error))
      return FALSE;
  if (!write_kernels (job, FALSE, error))
    return FALSE;
  say ("1 of 5: sweep");
  if (!run_command (job, sweep_of (job), error))
    return FALSE;
  say ("2 of 5: kernels of %u programs", job->kernels->len);
  if (!run_command (job, kernels_of (job), error))
    return FALSE;
  say ("3 of 5: fit");
  if (!fit (job, error))
    return FALSE;
  say ("4 of 5: execute");
  if (!execute (job, error) || !join_runs (job, error))
    return FALSE;
  say ("5 of 5: check");
  gboolean good = sp_calibrate_check ((char **) check->pdata + 2, job->out, &verdict);
  if (!good && !g_error_matches (verdict, SP_CLI_ERROR, SP_CLI_ERROR_BEYOND)) {
    g_propagate_error (error, g_steal_pointer (&verdict));
    return FALSE;
  }
  if (!write_profile (job, error))
    return FALSE;
  add_end (job, machine);
  if (!good)
    g_propagate_error (error, g_steal_pointer (&verdict));
  return good;
}

/* --- before anything is measured ---------------------------------------------------------------------------------- */

/* Measured on one card and predicted for another would be neither's. */
static gboolean
check_card (const Job *job, const SpMachine *machine, GError **error)
{
  const SpCluster *cluster = trial_at (job, 0)->scenario->cluster;

  if (job->o->device != NULL) {
    g_autofree char *given = g_file_test (job->o->device, G_FILE_TEST_IS_REGULAR)
                                 ? g_strdup (job->o->device)
                                 : sp_find_shipped ("devices", job->o->device, error);
    g_autoptr (SpDevice) card = given != NULL ? sp_device_load (given, error) : NULL;
    return card != NULL;
  }
  g_autofree char *path = sp_find_device (machine->card);
  if (path == NULL)
    return sp_cli_fail (
        error, SP_CLI_ERROR_INPUT,
        "no shipped device is of the card %s: expected --device NAME, whose SMs and memory rate the fit "
        "of kernels needs",
        machine->card);
  g_autoptr (SpDevice) device = sp_device_load (path, error);
  if (device == NULL)
    return FALSE;
  return g_str_equal (device->name, cluster->device->name) ||
         sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                      "%s: its GPUs are %s, and this machine's are %s: give a cluster of these, or --device",
                      job->o->rest[0], cluster->device->name, machine->card);
}

static gboolean
count_gpus (const Options *o, const SpMachine *machine, int *ret, GError **error)
{
  if (o->gpus > machine->gpus)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--gpus %" G_GINT64_FORMAT ": this machine has %d", o->gpus,
                        machine->gpus);
  if (o->gpus > 1 && !machine->nccl)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                        "--gpus %" G_GINT64_FORMAT ": seqpar-measure was built without NCCL (meson setup "
                        "-Dnccl=enabled says what lacks); --gpus 1 calibrates one GPU",
                        o->gpus);
  *ret = o->gpus > 0 ? (int) o->gpus : machine->nccl ? machine->gpus : 1;
  return TRUE;
}

static gboolean
dry_run (Job *job, GError **error)
{
  g_autoptr (GError) none = NULL;
  g_auto (SpMachine) machine = { 0 };

  job->measure = sp_find_measure (NULL);
  job->gpus = (int) job->o->gpus;
  if (job->gpus == 0 && (job->measure == NULL || !sp_machine_read (job->measure, &machine, &none)))
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--dry-run without a GPU here (%s): --gpus N says for how many",
                        none != NULL ? none->message : "no seqpar-measure");
  if (job->gpus == 0 && !count_gpus (job->o, &machine, &job->gpus, error))
    return FALSE;
  job->measure = job->measure != NULL ? job->measure : g_strdup ("seqpar-measure");
  job->trials = sp_trials_new (job->o->rest[0], job->gpus, error);
  if (job->trials == NULL)
    return FALSE;
  if (!write_kernels (job, TRUE, error))
    return FALSE;
  print_commands (job);
  return TRUE;
}

static gboolean
calibrate (Job *job, GError **error)
{
  g_auto (SpMachine) machine = { 0 };

  if (!sp_fit_is_built (error) || !sp_cli_check_writable (job->o->output, error))
    return FALSE;
  job->measure = sp_find_measure (error);
  if (job->measure == NULL || !sp_machine_read (job->measure, &machine, error) ||
      !count_gpus (job->o, &machine, &job->gpus, error))
    return FALSE;
  job->trials = sp_trials_new (job->o->rest[0], job->gpus, error);
  /* Only now it is known what is read. */
  return job->trials != NULL && check_card (job, &machine, error) && sp_cli_check_output (job->o->output, error) &&
         run (job, &machine, error);
}

gboolean
sp_calibrate_all (char **args, GString *out, GError **error)
{
  static const char *const wanted[] = { "SCENARIO|CLUSTER", NULL };
  g_auto (Options) o = { .gpus = ALL_GPUS };
  double tolerance;
  Job job = { .o = &o, .out = out };
  SpParsed parsed = parse (args, &o, out, error);
  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!sp_cli_positional (o.rest, wanted, error))
    return FALSE;
  if (o.gpus != ALL_GPUS && (o.gpus < 1 || o.gpus > 1024))
    return sp_cli_usage (error, "--gpus takes a whole number from 1 to 1024");
  o.gpus = o.gpus != ALL_GPUS ? o.gpus : 0;
  if (!sp_calibrate_tolerance (o.tolerance, &tolerance, error) || !sp_cli_check_output (o.output, error))
    return FALSE;
  gboolean good = o.dry ? dry_run (&job, error) : calibrate (&job, error);
  g_clear_pointer (&job.trials, g_ptr_array_unref);
  g_clear_pointer (&job.kernels, g_ptr_array_unref);
  g_free (job.measure);
  return good;
}
