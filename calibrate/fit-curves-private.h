/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files that fit curves: fit-curves.c and, for kernels of programs, fit-kernels.c. */

#include "calibrate/fit-core.h"
#include "calibrate/fit-curves.h"

G_BEGIN_DECLS

/* What sp_fit_seconds is given: the points, and which slots the parameters are. */
typedef struct {
  const SpFitTask *task;
  const SpFitGiven *given;
  const guint *slots;           /* of the parameters, of a kernel; NULL: in order */
  double value[SP_CURVE_SLOTS]; /* of slots that are no parameters */
} SpFitData;

/* A formula's fits from several starts. */
typedef struct {
  SpFitProblem problem;
  SpFitted best;
  double *weights, *tried; /* of the best, and of the last try */
} SpFitSearch;

typedef enum { SP_FIT_MOST_RATE, SP_FIT_MOST_MEMORY_RATE, SP_FIT_MOST_SECONDS, SP_FIT_LEAST_SECONDS } SpFitExtreme;

extern const char sp_fit_not_identified[];

static inline double
sp_fit_or_one (gint64 value)
{
  return value > 0 ? (double) value : 1;
}

/* Of a problem whose data is an SpFitData. */
double sp_fit_seconds (const double *parameters, guint point, gconstpointer data);
/* TRUE: it is the best so far. */
gboolean sp_fit_try (SpFitSearch *search, const double *start);
/* From the best with each parameter a quarter more or less, until none is better. */
void sp_fit_search_around (SpFitSearch *search);
/* The second most, or least: one point may be wild. Bounds and starts go by it. */
double sp_fit_extreme (const SpFitTask *task, SpFitExtreme which);
gboolean sp_fit_head_sizes_differ (const SpFitTask *task);
/* Measured with an error, else assumed, for which `why_not` is the source. */
void sp_fit_set_value (SpCurve *curve, guint slot, double value, double error, const char *why_not);

/* --- fit-kernels.c ------------------------------------------------------------------------------------------------ */

/* Of the forms that a kernel's curve may have the one of least loss + parameters x ln (points), refined in the end. */
gboolean sp_fit_kernel (const SpFitTask *task, const SpFitGiven *given, SpCurve *curve, double *weights);

/* --- fit-power.c -------------------------------------------------------------------------------------------------- */

/* A SP_CURVE_POWER, of points that have power. FALSE: no law goes through them. */
gboolean sp_fit_power (const SpPoints *points, SpCurve *curve);

G_END_DECLS
