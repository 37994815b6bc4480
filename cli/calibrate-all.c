/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar calibrate SCENARIO|CLUSTER: sweep, kernels, fit, execute, check. */
#include <errno.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>

#include "calibrate/executed.h"
#include "calibrate/fit.h"
#include "calibrate/ranks.h"
#include "cli/calibrate-all.h"

#define ALL_GPUS G_MININT64

static void
options_clear (SpCalibrateOptions *o)
{
  g_strfreev (o->rest);
  g_free (o->output);
  g_free (o->folder);
  g_free (o->tolerance);
  g_free (o->device);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpCalibrateOptions, options_clear)

static SpParsed
parse (char **args, SpCalibrateOptions *o, GString *out, GError **error)
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
run_command (const SpCalibration *job, GPtrArray *command, GError **error)
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

/* --- order -------------------------------------------------------------------------------------------------------- */

static gboolean
execute (const SpCalibration *job, GError **error)
{
  for (guint i = 0; i < job->trials->len; i++) {
    const SpTrial *trial = sp_calibration_trial (job, i);
    g_autofree char *csv = sp_calibration_path (job, trial->name, ".csv");
    g_autofree char *part = sp_calibration_path (job, trial->name, ".csv.part");
    if (g_file_test (csv, G_FILE_TEST_EXISTS))
      continue;
    say ("execute %u of %u: %s", i + 1, job->trials->len, trial->name);
    if (!run_command (job, sp_execute_command (job, trial, ".csv.part"), error))
      return FALSE;
    if (g_rename (part, csv) != 0)
      return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: was not written by seqpar-measure execute", part);
  }
  return TRUE;
}

/* The rows of all runs under the head of the first. */
static gboolean
join_runs (const SpCalibration *job, GError **error)
{
  g_autofree char *path = sp_calibration_path (job, "executed", ".csv");
  g_autoptr (GString) all = g_string_new (NULL);

  for (guint i = 0; i < job->trials->len; i++) {
    g_autofree char *csv = sp_calibration_path (job, sp_calibration_trial (job, i)->name, ".csv"), *text = NULL;
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
fit (const SpCalibration *job, GError **error)
{
  g_autoptr (GPtrArray) argv = sp_fit_command (job);
  g_autoptr (GString) report = g_string_new (NULL);
  g_autofree char *path = sp_calibration_path (job, "fit", ".txt");

  return sp_calibrate_fit ((char **) argv->pdata + 2, report, error) && sp_cli_write_file (path, report, error);
}

static gboolean
write_profile (const SpCalibration *job, GError **error)
{
  g_autofree char *path = sp_calibration_path (job, "profile", ".ini"), *text = NULL;

  if (!g_file_get_contents (path, &text, NULL, error))
    return FALSE;
  g_autoptr (GString) profile = g_string_new (text);
  return sp_cli_write_file (job->o->output, profile, error);
}

static void
add_end (const SpCalibration *job, const SpMachine *machine)
{
  g_string_append_printf (job->out, "\n%s: the profile of %s; what was measured and the fit's report are in %s\n",
                          job->o->output, machine->card, job->o->folder);
  guint n_several = 0;
  for (guint i = 0; i < job->trials->len; i++)
    n_several += sp_trial_world (sp_calibration_trial (job, i)) > 1;
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
run (SpCalibration *job, const SpMachine *machine, GError **error)
{
  g_autoptr (GPtrArray) check = sp_check_command (job);
  g_autoptr (GError) verdict = NULL;

  if (g_mkdir_with_parents (job->o->folder, 0777) != 0)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: cannot be made a folder: %s",
                        *job->o->folder != '\0' ? job->o->folder : "\"\"", g_strerror (errno));
  for (guint i = 0; i < job->trials->len; i++)
    if (!sp_calibration_write_program (job, sp_calibration_trial (job, i), error))
      return FALSE;
  if (!sp_calibration_write_kernels (job, FALSE, error))
    return FALSE;
  say ("1 of 5: sweep");
  if (!run_command (job, sp_sweep_command (job), error))
    return FALSE;
  say ("2 of 5: kernels of %u programs", job->kernels->len);
  if (!run_command (job, sp_kernels_command (job), error))
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
check_card (const SpCalibration *job, const SpMachine *machine, GError **error)
{
  const SpCluster *cluster = sp_calibration_trial (job, 0)->scenario->cluster;

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
count_gpus (const SpCalibrateOptions *o, const SpMachine *machine, int *ret, GError **error)
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
dry_run (SpCalibration *job, GError **error)
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
  if (!sp_calibration_write_kernels (job, TRUE, error))
    return FALSE;
  sp_print_commands (job);
  return TRUE;
}

/* A launcher's other ranks would measure on the same GPUs at the same time. */
static gboolean
check_alone (GError **error)
{
  int rank = 0, size = 1, local_rank;

  sp_ranks_launched (SP_LAUNCHERS, &rank, &size, &local_rank, NULL);
  return rank == 0 || sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                                   "this is rank %d of %d: expected one process without torchrun, mpirun or srun: it "
                                   "starts seqpar-measure on all GPUs itself",
                                   rank, size);
}

static gboolean
calibrate (SpCalibration *job, GError **error)
{
  g_auto (SpMachine) machine = { 0 };

  if (!check_alone (error) || !sp_fit_is_built (error) || !sp_cli_check_writable (job->o->output, error))
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
  g_auto (SpCalibrateOptions) o = { .gpus = ALL_GPUS };
  double tolerance;
  SpCalibration job = { .o = &o, .out = out };
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
