/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Measured rows as points to fit: all that was timed of one operation at one shape and size, from any of the files, is
 * one point.
 *
 * Of samples the median, with sigma = 1.2533 sd / sqrt (n), sd from the median absolute deviation; where a source gives
 * statistics the median, else the mean, else the least, and sigma from half of min to max. At least 1 %: less than that
 * no two days agree.
 * Samples marked `outlier` are kept, as others: a median bears them. Rows marked `wrong` or `partial` (a transfer
 * beside a GEMM that ended too early) and rows without a time are left out and counted.
 */

#include "calibrate/measured.h"
#include "sim/op.h"

G_BEGIN_DECLS

typedef struct {
  SpMeasuredOp op, beside;
  const char *variant; /* the set's */
  gint64 ranks, nodes, bytes, m, n, k, batch, heads;
  double flops;          /* of a kernel of a program */
  SpOpKind kernel;       /* its op, by its form; else SP_N_OPS */
  double seconds, sigma; /* relative */
  double clock;          /* over the highest; of kernels of programs where points have power, else 1 */
  gint64 samples;
  guint file; /* the first that has it */
} SpPoint;

/* What a program's kernels did together, and at what power and clock. */
typedef struct {
  const char *program; /* its name; the set's */
  gint64 card;         /* SP_MEASURED_EMPTY: not said */
  double flops_per_s, bytes_per_s, power_w;
  double clock;  /* over the highest */
  gboolean held; /* the card's power limit held it down */
} SpWorkPoint;

typedef enum {
  SP_LEFT_PARTIAL,
  SP_LEFT_WRONG,
  SP_LEFT_NO_TIME,
  SP_LEFT_DTYPE,
  SP_LEFT_OP,
  SP_LEFT_SMALL,
  SP_N_LEFT
} SpLeftOut;

typedef struct {
  GArray *points;            /* SpPoint, sorted: op, variant, ranks, nodes, beside, m, n, k, ..., bytes */
  GArray *memory;            /* SpMeasuredRow of SP_MEASURED_MEMORY */
  GArray *work;              /* SpWorkPoint */
  const char **published;    /* of each set what it is published by; NULL: it was measured */
  guint left_out[SP_N_LEFT]; /* rows; points of SP_LEFT_SMALL */
  guint partial[SP_MEASURED_N_OPS], n_rows;
} SpPoints;

/* Enough to say what power kernels draw, and where the card stops it: SP_POWER_LEAST_POINTS, some of which were held. */
#define SP_POWER_LEAST_POINTS 12
/* A limit that shows now and then lowers the clock by less than this. assumed */
#define SP_POWER_HELD 0.97
static inline gboolean
sp_work_is_held (const SpWorkPoint *point)
{
  return point->held && point->clock < SP_POWER_HELD;
}
gboolean sp_points_have_power (const SpPoints *points);

/* Borrows the words of the sets. */
SpPoints *sp_points_new (SpMeasured *const *sets, guint n);
void sp_points_free (SpPoints *points);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpPoints, sp_points_free)

/* Leaves out transfers of fewer bytes, of which the host's launch was timed. */
void sp_points_leave_below (SpPoints *points, double bytes);

/* Why rows were left out, for people; NULL where none of that reason were. Free with g_free. */
char *sp_points_left_text (const SpPoints *points, SpLeftOut reason);

/* Sorts `values`. */
double sp_median (double *values, guint n);
/* The value that `fraction` of them do not exceed. */
double sp_quantile (double *values, guint n, double fraction);

G_END_DECLS
