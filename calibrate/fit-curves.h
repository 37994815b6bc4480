/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The points of one curve, fitted and predicted: what of models/estimate/curves.h each kind is, and what data it needs.
 */

#include "calibrate/fit-points.h"
#include "models/inputs/profile.h"

G_BEGIN_DECLS

/* Told of each curve, of families of each point, before its fit; how many there are. */
typedef void (*SpFitProgress) (guint done, guint all, gpointer data);

/* Of the card, as its device file says; 0 where no kernel is fitted. And who wants to know how far a fit is, or NULL. */
typedef struct {
  gint32 sms;
  double launch_s;           /* 0: not known. Of softmax and linear attention where no point is short enough to say */
  double memory_bytes_per_s; /* reached; a GEMM's is looked for from 0.4 to 1.6 of it. 0: by what the points reach */
  SpFitProgress progress;
  gpointer progress_data;
} SpFitGiven;

static inline void
sp_fit_tell (const SpFitGiven *given, guint done, guint all)
{
  if (given->progress != NULL)
    given->progress (done, all, given->progress_data);
}

/* Points of one curve, in order of size. */
typedef struct {
  SpCurveKind kind;
  char *variant;                /* as the curve's; NULL: none */
  const SpPoint *const *points; /* borrowed */
  const double *alone_s;        /* of BESIDE and SLOWDOWN: the same without the other, a point each */
  guint n;
} SpFitTask;

/* By size, for hold-outs and ranges: bytes of payload, FLOP of a kernel. */
double sp_fit_size (SpCurveKind kind, const SpPoint *point);
/* FLOP of a kernel as curves.h counts them. */
double sp_fit_flops (const SpPoint *point);

/* Fills the parameters, errors, quality and range of `curve`, whose kind, variant, ranks and nodes are set.
 * `residuals` and `weights` have a number a point: relative errors, and what weight each was given in the end.
 * *ret_missing: what the data do not identify, and what measurement would; with FALSE nothing was fitted, with TRUE a
 * parameter was assumed (or NULL). Free with g_free. */
gboolean sp_fit_curve (const SpFitTask *task, const SpFitGiven *given, SpCurve *curve, double *residuals,
                       double *weights, char **ret_missing);

/* Seconds of a point by a fitted curve (of BESIDE and SLOWDOWN from alone_s). */
double sp_fit_predict (const SpCurve *curve, const SpFitGiven *given, const SpPoint *point, double alone_s);

G_END_DECLS
