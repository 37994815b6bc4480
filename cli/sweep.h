/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sweeps: one scenario with one or a few of its keys at many values, a row of a CSV each. `seqpar sweep` writes them,
 * `seqpar plot` draws them.
 *
 * An AXIS is a key and its values, or several keys that change together ("nodes:data=1:1,2:2"). Points are numbered with
 * the first axis slowest. A row is what `seqpar run --json` says with the same --set, and its OUTCOME:
 *   fits, out of memory, out of host memory   all figures are there
 *   refused                                   an illegal layout, or a key that makes no difference: the reason alone
 *   failed                                    a simulation that stopped: the reason alone
 * Columns: the keys, `outcome`, `reason`, figures with their units in the names, what they are of. Rows do not depend on
 * how many threads make them.
 */

#include "cli/cli.h"
#include "models/planner.h"

G_BEGIN_DECLS

typedef struct {
  char **keys;      /* as --set takes them; NULL-terminated */
  GPtrArray *steps; /* char **: a value for each key */
} SpSweepAxis;

/* "sequence=64K..4096K*2", "zero=0,1,3", "ring=1..8", "kernel-noise=0%..5%+1%", "ulysses:ring=1:16,16:1". A list that
 * has a ; is separated by that, for values with commas. A range ends at the last step that does not pass its end; with
 * keys that change together a value without a colon is all of theirs. */
SpSweepAxis *sp_sweep_axis_parse (const char *text, GError **error);
void sp_sweep_axis_free (SpSweepAxis *axis);

typedef struct {
  char *path; /* of the scenario */
  char **sets;
  GPtrArray *axes; /* SpSweepAxis */
  gboolean simulates, intervals;
  SpMfuConvention convention;
  char *inputs; /* a digest of all that rows rest on */
} SpSweep;

#define SP_SWEEP_MOST_POINTS 1000000

/* Of a scenario and the texts of its axes; checks keys and values, each by itself. */
SpSweep *sp_sweep_new (const char *scenario, char **sets, char **axes, GError **error);
void sp_sweep_free (SpSweep *sweep);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpSweep, sp_sweep_free)

/* A usage error where a key of an axis that was asked for is set as well: every point would override it. */
gboolean sp_sweep_check_sets (const SpSweep *sweep, GError **error);

guint sp_sweep_size (const SpSweep *sweep);
/* Of a point, into `ret` (char *), the values of all keys in order. */
void sp_sweep_values (const SpSweep *sweep, guint point, GPtrArray *ret);
guint sp_sweep_n_keys (const SpSweep *sweep);

/* --- sweep-row.c -------------------------------------------------------------------------------------------------- */

extern const char *const sp_sweep_outcomes[]; /* NULL-terminated, in the order of the enum */
typedef enum {
  SP_OUTCOME_FITS,
  SP_OUTCOME_MEMORY,
  SP_OUTCOME_HOST_MEMORY,
  SP_OUTCOME_REFUSED,
  SP_OUTCOME_FAILED
} SpOutcome;

/* Sets `inputs`, after the other fields and before the first row. */
void sp_sweep_prepare (SpSweep *sweep);
/* FALSE: the scenario has no profile, and no key that is swept may bring one. */
gboolean sp_sweep_may_have_intervals (const SpSweep *sweep);
/* What stands in a key's column for a value: tokens are numbers. Free with g_free. */
char *sp_sweep_cell (const char *key, const char *value);
/* What stands in the keys' columns of a point's row. Free with g_strfreev. */
char **sp_sweep_cells (const SpSweep *sweep, guint point);
/* A line each, with its end. */
char *sp_sweep_header (const SpSweep *sweep);
char *sp_sweep_row (const SpSweep *sweep, SpProgram *program, guint point, SpOutcome *ret);

/* --- sweep-run.c -------------------------------------------------------------------------------------------------- */

typedef struct {
  /* Called for each point, in the order of `points`, by one thread at a time. FALSE ends the sweep. */
  gboolean (*row) (guint point, const char *line, SpOutcome outcome, gpointer data);
  gpointer data;
  guint threads;            /* 0: one a processor */
  const SpPlanRanks *ranks; /* each makes a part of the rows and is handed all; NULL: this process alone */
} SpSweepSink;

/* Of some points. FALSE: a rank has failed. */
gboolean sp_sweep_run (const SpSweep *sweep, const GArray *points, const SpSweepSink *sink, GError **error);
/* The error of a sweep of which every point is refused: `line` is the first one's row. */
gboolean sp_sweep_refuse (const SpSweep *sweep, const char *line, GError **error);
/* Of all, as one text with the header. An error where every point is refused: the first one's reason. */
GString *sp_sweep_text (const SpSweep *sweep, guint threads, const SpPlanRanks *ranks, GError **error);

G_END_DECLS
