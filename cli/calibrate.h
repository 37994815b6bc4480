/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * seqpar calibrate SCENARIO|CLUSTER: measure, fit, execute and check in one go, by seqpar-measure in a process of its
 * own. All that is measured lies in a folder, so that what was cut short goes on; the profile is written when all is
 * there. calibrate-all.c has the order, calibrate-layouts.c what is executed, calibrate-measure.c the other program.
 */

#include "calibrate/executed.h"
#include "calibrate/fit.h"
#include "cli/cli.h"

G_BEGIN_DECLS

/* --- calibrate-measure.c ------------------------------------------------------------------------------------------ */

typedef struct {
  int gpus;
  gboolean nccl;
  char *card;
} SpMachine;

void sp_machine_clear (SpMachine *machine);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpMachine, sp_machine_clear)

/* $SEQPAR_MEASURE, else seqpar-measure beside this program, else in the PATH. Free with g_free. */
char *sp_find_measure (GError **error);
/* What `measure gpus` says of this machine. */
gboolean sp_machine_read (const char *measure, SpMachine *ret, GError **error);
/* Runs a command to its end; what it says goes on to a terminal. The error has its last line. */
gboolean sp_run_step (const char *const *argv, GError **error);

/* --- calibrate-layouts.c ------------------------------------------------------------------------------------------ */

typedef struct {
  char *name;
  SpScenario *scenario;
} SpTrial;

/* Of `target`, a scenario or a cluster, the runs that predictions are checked with, on 1 and on `gpus` GPUs of one node:
 * of a cluster those that are shipped, their degrees of 2 being `gpus`; of a scenario its model in each axis alone, on its
 * sequence or what of it fits. Those that do not fit or are not legal are left out. SpTrial, by name. */
GPtrArray *sp_trials_new (const char *target, int gpus, GError **error);
/* Whether `target` is such a name, for who has others too. */
gboolean sp_is_calibrated (const char *target);

/* --- calibrate-fit.c ---------------------------------------------------------------------------------------------- */

/* Measured CSVs of one card as points to fit. */
typedef struct {
  GPtrArray *sets;  /* SpMeasured * */
  const char *card; /* of the sets; NULL: none names one */
  SpPoints *points;
  SpFitGiven given;
} SpMeasuredSets;

void sp_measured_sets_clear (SpMeasuredSets *sets);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpMeasuredSets, sp_measured_sets_clear)
/* `device` is a file or a shipped name; NULL: by the card. Transfers of less than `least` bytes are left out. `ret` is
 * blank, and to be cleared whatever comes of it. */
gboolean sp_calibrate_points (char **files, const char *device, double least, SpMeasuredSets *ret, GError **error);

/* --- calibrate-memory.c ------------------------------------------------------------------------------------------- */

/* Bytes that the fullest card has in use while the program runs, without scratch of kernels: buffers as simulated, the
 * context and the communicators that its rank makes, by the profile (what is reserved, where it has no context). `seed` is
 * the recordings'; no byte depends on it. */
gboolean sp_predict_memory (const SpProfile *profile, const SpProgram *program, const SpSimulated *simulated,
                            guint64 seed, double *ret_bytes, GError **error);

/* --- calibrate-exposed.c ------------------------------------------------------------------------------------------ */

/* What kernels waited for communication, of a GPU in the mean of those that the file says it of; negative: of none. */
typedef struct {
  double measured_s;
  double predicted_s; /* by cards that are alike */
  double as_ran_s;    /* by cards that differ as those of the run did: kernels of each as long, beside the quickest's */
  /* The transfers' own part of the first two (sim/engine.h). The rest is lateness: by cards that are alike the layout's. */
  double own_s, predicted_own_s;
  gboolean
      agrees; /* own parts, or of a file that does not say them what was measured and as_ran_s, within a tenth or 50 us */
} SpExposed;

#define SP_EXPOSED_SHARE 0.1
#define SP_EXPOSED_LEAST_S 50e-6

/* `simulated` is of cards that are alike. */
gboolean sp_compare_exposed (SpEstimator *estimator, const SpProgram *program, const SpScenario *scenario,
                             const SpExecutedRun *run, const SpSimulated *simulated, SpExposed *ret, GError **error);

/* --- calibrate-check.c -------------------------------------------------------------------------------------------- */

/* Predicted beside executed, a row a run: the CSV of plot accuracy (plots/accuracy.c). */
GString *sp_calibrate_check_rows (const char *profile, const char *executed, GError **error);

G_END_DECLS
