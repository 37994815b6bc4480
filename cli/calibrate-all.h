/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of seqpar calibrate SCENARIO|CLUSTER share: calibrate-all.c (the order, and what is checked before),
 * calibrate-commands.c (the commands that it stands for), calibrate-programs.c (what they are given). */

#include "cli/calibrate.h"

G_BEGIN_DECLS

typedef struct {
  char **rest;
  char *output, *folder, *tolerance, *device;
  gint64 gpus; /* 0: all */
  gboolean dry;
} SpCalibrateOptions;

typedef struct {
  const SpCalibrateOptions *o;
  char *measure;
  int gpus;           /* that take part */
  GPtrArray *trials;  /* SpTrial */
  GPtrArray *kernels; /* char *, names of programs whose kernels are timed */
  GString *out;
} SpCalibration;

/* --- calibrate-commands.c ----------------------------------------------------------------------------------------- */

/* Of a file in the folder of what is measured. Free with g_free. */
char *sp_calibration_path (const SpCalibration *job, const char *name, const char *suffix);
const SpTrial *sp_calibration_trial (const SpCalibration *job, guint i);
gint32 sp_trial_world (const SpTrial *trial);

/* NULL-terminated; free with g_ptr_array_unref. */
GPtrArray *sp_sweep_command (const SpCalibration *job);
GPtrArray *sp_kernels_command (const SpCalibration *job);
GPtrArray *sp_fit_command (const SpCalibration *job);
/* To a name of its own: what has the other is whole. */
GPtrArray *sp_execute_command (const SpCalibration *job, const SpTrial *trial, const char *suffix);
GPtrArray *sp_check_command (const SpCalibration *job);
/* All of them, with those that write the programs. */
void sp_print_commands (const SpCalibration *job);

/* --- calibrate-programs.c ----------------------------------------------------------------------------------------- */

/* A run of another program than is there now has to be run again. */
gboolean sp_calibration_write_program (const SpCalibration *job, const SpTrial *trial, GError **error);
/* Of sizes around those that are executed, so that what is checked was not fitted, nor lies beyond what was. Programs
 * that are the same are one. `dry`: their names alone, into job->kernels. */
gboolean sp_calibration_write_kernels (SpCalibration *job, gboolean dry, GError **error);

G_END_DECLS
