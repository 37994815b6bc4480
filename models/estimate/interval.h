/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How far a step's time can be off by what is not known of a profile's curves: an interval of 95 %.
 *
 * Each curve (models/inputs/profile.h) is moved along what is uncertain of it, 1.96 standard deviations each way, and
 * the step is estimated again; what the step gains, and what it loses, add up in quadrature, gains for the upper end,
 * losses for the lower one. So a transfer that compute hides moves nothing until it shows. Of a curve:
 *   parameters   along the columns of the Cholesky factor of their covariance. Positive ones move by factors, as they
 *                were fitted: value exp (1.96 L / value), at most 20 times; a slowdown moves by addition
 *   residuals    all of its seconds times exp (+-1.96 spread). Spread is the larger of `scatter` and of what `p90` is
 *                of a normal distribution, ln (1 + p90) / 1.645, times sqrt (points / (points - parameters fitted)):
 *                points that the curve was not fitted to lie farther off than those it was
 *                Of two H200 90 % of points lie within 1.64 spreads of 3.6 % (GEMM) and 4.7 to 7.3 % (NCCL's five
 *                operations), where every other size, held out, was 4.1 % and 4.1 to 8.4 % off at the 90th percentile
 * Curves are independent, and so are a curve's two kinds; of one curve all residuals are taken as one: a formula that
 * misses a shape misses its neighbours alike. Where it does not, the interval is too wide.
 *
 * [power] is what is known of cards, and its part is said apart. Its residuals are those of clocks, which move the energy
 * of FLOP; and of which cards one gets moves both energies, by 1.96 `spread` of one card, and less of the most of many
 * (slowest.h). Its residuals are of four H200 and of all their programs together, so that what cards differ by is in them
 * once more: 3.7 of the 8 % of energy.
 *
 * It is of the closed form, and handed on as fractions of the step that the caller has: refined, or simulated.
 *
 * Covered: noise of what was measured, and what the formulas of curves miss of it. Not covered, and no part of its
 * width: errors of the model, as communication that is exposed in fact and hidden here, waits of ranks for each other,
 * slowdowns that differ from their mean; ops that have no curve (`share` says what of the step has one); sizes beyond a
 * curve's range; without [power] other cards and clocks; other days and temperatures; values of a curve without an error
 * (assumed, published without one); noise of [variation].
 *
 * Cost: an estimate a curve, for each that the step depends on two more, and two a parameter: 20 to 50 ms with the
 * profile of two H200. For single layouts, as those that a plan lists first; a search does without.
 */

#include "models/estimate/estimate.h"

G_BEGIN_DECLS

/* Relative to the step. */
typedef struct {
  double low, high; /* 0.97, 1.04 */
} SpRange;

typedef struct {
  double low, high;          /* as a range: all that is not known */
  SpRange parts[SP_N_PARTS]; /* the same of curves and of cards alone; 1 and 1: nothing moves it */
  double share;              /* of the step, what goes in proportion to curves: 0 to 1 */
} SpInterval;

/* Of a written program. FALSE: the cluster has no profile, or the step depends on none of its curves, or none of these
 * has errors or residuals. */
gboolean sp_estimate_interval (const SpEstimator *estimator, const SpProgram *program, const SpRun *run,
                               SpInterval *ret);
/* What the step is with each thing that is uncertain moved one way and the other, in the order of the profile's curves: of
 * two programs the same things in the same places. */
typedef struct {
  double step_s;
  GArray *moved;
  double share; /* as of the interval */
} SpDeviations;

/* FALSE as above. */
gboolean sp_estimate_deviations (const SpEstimator *estimator, const SpProgram *program, const SpRun *run,
                                 SpDeviations *ret);
void sp_deviations_clear (SpDeviations *deviations);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpDeviations, sp_deviations_clear)
void sp_deviations_interval (const SpDeviations *deviations, SpInterval *ret);
/* Seconds that a step takes more than another one, 95 %: what moves both alike cancels. Known lie: of a curve that the two
 * use at other shapes all residuals are one here too, and where they are not the interval is too narrow. */
void sp_deviations_difference (const SpDeviations *of, const SpDeviations *less, double *ret_low_s, double *ret_high_s);

/* Into the interval of the estimate, around its step. */
void sp_interval_apply (const SpInterval *interval, SpEstimate *estimate);

/* Standard deviation of ln (seconds) of the curve's residuals, as above; 0: it says nothing of them. */
double sp_curve_spread (const SpCurve *curve);

G_END_DECLS
