/* SPDX-License-Identifier: Apache-2.0 */
/* The commands that seqpar calibrate SCENARIO|CLUSTER stands for: run, or printed by --dry-run. */
#include <string.h>

#include "cli/calibrate-all.h"

char *
sp_calibration_path (const SpCalibration *job, const char *name, const char *suffix)
{
  g_autofree char *file = g_strconcat (name, suffix, NULL);

  return g_build_filename (job->o->folder, file, NULL);
}

const SpTrial *
sp_calibration_trial (const SpCalibration *job, guint i)
{
  return job->trials->pdata[i];
}

gint32
sp_trial_world (const SpTrial *trial)
{
  return sp_layout_world (&trial->scenario->layout, trial->scenario->arch);
}

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

GPtrArray *
sp_sweep_command (const SpCalibration *job)
{
  GPtrArray *argv = command_new (job->measure, "sweep");

  add (argv, "--gpus");
  g_ptr_array_add (argv, g_strdup_printf ("%d", job->gpus));
  add (argv, "-o");
  g_ptr_array_add (argv, sp_calibration_path (job, "sweep", ".csv"));
  g_ptr_array_add (argv, NULL);
  return argv;
}

GPtrArray *
sp_kernels_command (const SpCalibration *job)
{
  GPtrArray *argv = command_new (job->measure, "kernels");

  for (guint i = 0; i < job->kernels->len; i++)
    g_ptr_array_add (argv, sp_calibration_path (job, job->kernels->pdata[i], ".prog"));
  add (argv, "--repeats");
  add (argv, "3");
  add (argv, "-o");
  g_ptr_array_add (argv, sp_calibration_path (job, "kernels", ".csv"));
  g_ptr_array_add (argv, NULL);
  return argv;
}

GPtrArray *
sp_fit_command (const SpCalibration *job)
{
  GPtrArray *argv = command_new ("seqpar", "calibrate");

  add (argv, "fit");
  g_ptr_array_add (argv, sp_calibration_path (job, "sweep", ".csv"));
  g_ptr_array_add (argv, sp_calibration_path (job, "kernels", ".csv"));
  if (job->o->device != NULL) {
    add (argv, "--device");
    add (argv, job->o->device);
  }
  add (argv, "-o");
  g_ptr_array_add (argv, sp_calibration_path (job, "profile", ".ini"));
  g_ptr_array_add (argv, NULL);
  return argv;
}

GPtrArray *
sp_execute_command (const SpCalibration *job, const SpTrial *trial, const char *suffix)
{
  GPtrArray *argv = command_new (job->measure, "execute");

  add (argv, "--gpus");
  g_ptr_array_add (argv, g_strdup_printf ("%d", sp_trial_world (trial)));
  g_ptr_array_add (argv, sp_calibration_path (job, trial->name, ".prog"));
  add (argv, "-o");
  g_ptr_array_add (argv, sp_calibration_path (job, trial->name, suffix));
  g_ptr_array_add (argv, NULL);
  return argv;
}

GPtrArray *
sp_check_command (const SpCalibration *job)
{
  GPtrArray *argv = command_new ("seqpar", "calibrate");

  add (argv, "check");
  g_ptr_array_add (argv, sp_calibration_path (job, "profile", ".ini"));
  g_ptr_array_add (argv, sp_calibration_path (job, "executed", ".csv"));
  add (argv, "--tolerance");
  add (argv, job->o->tolerance);
  g_ptr_array_add (argv, NULL);
  return argv;
}

static void
print_command (const SpCalibration *job, GPtrArray *command)
{
  g_autoptr (GPtrArray) argv = command;

  for (guint i = 0; argv->pdata[i] != NULL; i++) {
    g_autofree char *quoted = g_shell_quote (argv->pdata[i]);
    gboolean plain = strpbrk (argv->pdata[i], " '\"\\$`*?[](){}<>|&;!~#\t\n") == NULL;
    g_string_append_printf (job->out, "%s%s", i > 0 ? " " : "", plain ? (const char *) argv->pdata[i] : quoted);
  }
  g_string_append_c (job->out, '\n');
}

void
sp_print_commands (const SpCalibration *job)
{
  print_command (job, sp_sweep_command (job));
  for (guint i = 0; i < job->trials->len; i++) {
    const SpTrial *trial = sp_calibration_trial (job, i);
    GPtrArray *emit = command_new ("seqpar", "run");
    g_ptr_array_add (emit, sp_calibration_path (job, trial->name, ".ini"));
    add (emit, "--emit-program");
    g_ptr_array_add (emit, sp_calibration_path (job, trial->name, ".prog"));
    g_ptr_array_add (emit, NULL);
    print_command (job, emit);
  }
  print_command (job, sp_kernels_command (job));
  print_command (job, sp_fit_command (job));
  for (guint i = 0; i < job->trials->len; i++)
    print_command (job, sp_execute_command (job, sp_calibration_trial (job, i), ".csv"));
  print_command (job, sp_check_command (job));
}
