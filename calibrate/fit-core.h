/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One curve through measured times: nonlinear least squares in the logarithm of time (GSL, trust region), made robust.
 *
 * Residual r = ln (time by the curve / time measured), so that an error is relative and the same at a microsecond as at
 * a second. Each point has a sigma, its relative noise. Weights 1 / (1 + (r / (c s sigma))^2) (Cauchy, c = 2.385, which
 * is 95 % efficient on normal noise) are worked out anew until they stay; s is the spread of the residuals in sigmas,
 * from their median, at least 1. A single wild point may also hold the first fit captive, so the fit is begun again
 * without each of up to three points that lie more than three sigmas off, and the one of least loss is kept.
 *
 * Parameters are positive and bounded; they are fitted as logistic functions of free numbers between the logarithms of
 * their bounds. One that ends at a bound, or whose standard error is larger than itself, says nothing: it is FIXED where
 * it is (one that no point depends on at what is assumed), and the rest fitted again.
 *
 * Errors. The reduced chi-square of an M-estimator is (sum of psi^2 / (points - parameters)) / (mean slope of psi)^2,
 * psi = weight x residual in sigmas: 1 where noise is as said, more by what the formula gets wrong. The covariance of
 * the free parameters is that x mean weight x (J' W J)^-1. A fixed one has none.
 *
 * Deterministic: the same points in the same order give the same bits.
 */

#include <glib.h>

G_BEGIN_DECLS

#define SP_FIT_MAX_PARAMETERS 8

typedef struct {
  guint n_points, n_parameters;
  const double *log_seconds, *sigma; /* a point each */
  double start[SP_FIT_MAX_PARAMETERS], lower[SP_FIT_MAX_PARAMETERS], upper[SP_FIT_MAX_PARAMETERS];
  double assumed[SP_FIT_MAX_PARAMETERS]; /* of one that no point depends on; 0: where it is */
  double (*seconds) (const double *parameters, guint point, gconstpointer data);
  gconstpointer data;
} SpFitProblem;

typedef struct {
  double value[SP_FIT_MAX_PARAMETERS], error[SP_FIT_MAX_PARAMETERS];
  double covariance[SP_FIT_MAX_PARAMETERS][SP_FIT_MAX_PARAMETERS];
  gboolean fixed[SP_FIT_MAX_PARAMETERS];
  double chi_square; /* reduced */
  double loss;       /* twice the sum of the robust loss, sigmas as given: what forms are compared by */
  double spread;     /* robust standard deviation of the residuals */
} SpFitted;

/* `residuals` and `weights` have a number a point; either may be NULL. FALSE: no fit was found, or there are fewer
 * points than parameters. */
gboolean sp_fit (const SpFitProblem *problem, SpFitted *ret, double *residuals, double *weights);

G_END_DECLS
