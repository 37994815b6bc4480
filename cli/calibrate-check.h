/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of seqpar calibrate check share: calibrate-check.c (a run predicted and as it was) and
 * calibrate-check-report.c (all of them as text or JSON). */

#include "cli/calibrate.h"

G_BEGIN_DECLS

typedef struct {
  char **rest, **sets;
  char *scenarios, *tolerance;
  gboolean json, ops;
} SpCheckOptions;

/* By kind of op, of rank 0. */
typedef struct {
  double measured_s, predicted_s;
  gint64 n;
} SpCheckedOps;

typedef struct {
  const SpExecutedRun *run;
  double step_s, predicted_s;
  SpExposed exposed;
  double memory_bytes, predicted_memory_bytes; /* memory: 0 where not measured */
  double interval_s[2], interval_curves_s[2];  /* 0: none; of all, of curves alone */
  double clock, predicted_clock;               /* of the work, over the highest; clock: 0 where not measured */
  gboolean bytes_agree;
  SpCheckedOps ops[SP_N_OPS];
} SpCheckedRun;

/* TRUE: within the tolerance; else SP_CLI_ERROR_BEYOND, with `out` whole. */
gboolean sp_check_report (const SpCheckOptions *o, const SpCheckedRun *all, guint n, double tolerance, GString *out,
                          GError **error);

G_END_DECLS
