/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What seqpar-measure execute wrote (its columns: calibrate/execute.h), run by run: for who compares it with what was
 * predicted. GLib alone.
 *
 * Errors are of SP_MEASURED_ERROR, one line, FILE:LINE first: unknown columns, rows and names, numbers that are not
 * finite, negative, or end before they begin.
 */

#include "calibrate/measured.h"
#include "sim/program.h"

G_BEGIN_DECLS

/* Of one rank. */
typedef struct {
  double op_s[SP_N_OPS]; /* all together, of a step that was timed command by command */
  gint64 op_times[SP_N_OPS];
  double exposed_s; /* while its kernels stood for communication; negative: not said */
  double own_s;     /* of that the transfers' own part, without lateness (sim/engine.h); negative: not said */
} SpExecutedRank;

typedef struct {
  char *program;              /* as the file names it */
  GArray *step_s;             /* double, one a repeat; of the slowest rank */
  GArray *issue_s;            /* the host's */
  GArray *clock_hz, *power_w; /* double, one a repeat; 0: not said */
  GArray *ranks;              /* SpExecutedRank, up to the last that the file says something of */
  gint64 payload_bytes[SP_N_AXES]; /* of the rank that hands over most */
  /* of the fullest rank */
  gint64 used_bytes, arena_bytes, context_bytes, communicator_bytes, communicators, scratch_bytes;
} SpExecutedRun;

typedef struct {
  char *card;                         /* "" where not said */
  double power_limit_w, max_clock_hz; /* 0: not said */
  char *attention; /* the library of softmax attention, or NULL: the quickest of seqpar's and cuDNN's */
  GPtrArray *runs;
} SpExecuted;

SpExecuted *sp_executed_parse (const char *path, const char *text, gsize length, GError **error);
void sp_executed_free (SpExecuted *executed);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpExecuted, sp_executed_free)

/* The middle one; 0 of none. */
double sp_executed_step_s (const SpExecutedRun *run);
/* The middle ones of what the cards said; 0: nothing. */
double sp_executed_clock_hz (const SpExecutedRun *run);
double sp_executed_power_w (const SpExecutedRun *run);
/* One that the file says nothing of has no times, and negative exposed_s and own_s. */
const SpExecutedRank *sp_executed_rank (const SpExecutedRun *run, guint rank);

G_END_DECLS
