/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/interval.h"

#include <math.h>
#include <string.h>

#include "models/estimate/slowest.h"

/* Of a normal distribution: 95 % lie within, and 90 %. */
#define DEVIATIONS 1.959964
#define DEVIATIONS_P90 1.644854

#define LARGEST_STEP 2.9957323 /* ln 20 */
#define NOTICED 1e3            /* what the step depends on shows when it takes so many times as long */
#define NUDGE 1e-3

/* An estimator with curves of its own, to be moved. */
typedef struct {
  SpCluster cluster;
  SpProfile profile;
  SpCurve *curves; /* words are the profile's */
  SpEstimator estimator;
  const SpProgram *program;
  const SpRun *run;
  double step_s;          /* with all curves as they are */
  GArray *moved;          /* Moved: of all curves in their order, whether the step depends on them or not */
  gboolean any_uncertain; /* of those that the step depends on */
} Trial;

/* The step, in seconds, with one uncertain thing moved one way and the other. */
typedef struct {
  double one_s, other_s;
  SpIntervalPart part;
} Moved;

static void
trial_clear (Trial *trial)
{
  g_ptr_array_unref (trial->profile.curves);
  g_clear_pointer (&trial->moved, g_array_unref);
  g_free (trial->curves);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Trial, trial_clear)

static void
trial_init (Trial *trial, const SpEstimator *estimator, const SpProgram *program, const SpRun *run)
{
  const GPtrArray *curves = estimator->cluster->profile->curves;

  *trial = (Trial){ .cluster = *estimator->cluster, .program = program, .run = run };
  trial->profile = *estimator->cluster->profile;
  trial->profile.curves = g_ptr_array_new ();
  trial->moved = g_array_new (FALSE, FALSE, sizeof (Moved));
  trial->curves = g_new (SpCurve, curves->len);
  for (guint i = 0; i < curves->len; i++) {
    trial->curves[i] = *(const SpCurve *) curves->pdata[i];
    g_ptr_array_add (trial->profile.curves, &trial->curves[i]);
  }
  sp_profile_link (&trial->profile);
  trial->cluster.profile = &trial->profile;
  trial->estimator = *estimator;
  trial->estimator.cluster = &trial->cluster;
  trial->estimator.cache = NULL;
}

static double
step_of (Trial *trial)
{
  SpEstimate estimate;

  sp_cost_init (&trial->estimator.cost, &trial->cluster, trial->estimator.framework);
  sp_estimate_program (&trial->estimator, trial->program, trial->run, &estimate);
  return estimate.step_time_s;
}

/* --- one curve ---------------------------------------------------------------------------------------------------- */

double
sp_curve_spread (const SpCurve *curve)
{
  double spread = MAX (curve->scatter, log1p (curve->p90) / DEVIATIONS_P90);
  gint32 fitted = 0;

  for (guint i = 0; i < curve->n_slots; i++)
    fitted += curve->error[i] > 0;
  return spread * sqrt ((double) MAX (curve->points, 1) / MAX (curve->points - fitted, 1));
}

/* Slowdowns may be 0 or less; what is 0 has no factor. */
static gboolean
moves_by_factor (const SpCurve *curve, guint slot)
{
  return curve->kind != SP_CURVE_SLOWDOWN && curve->value[slot].value > 0;
}

/* Lower triangle L of covariance = L L', in logarithms for what moves by factors. Where rounding of correlations left
 * no positive rest a column is 0. */
static void
factor_covariance (const SpCurve *curve, double L[SP_CURVE_SLOTS][SP_CURVE_SLOTS])
{
  for (guint i = 0; i < curve->n_slots; i++)
    for (guint j = 0; j <= i; j++) {
      double by_i = moves_by_factor (curve, i) ? curve->value[i].value : 1;
      double by_j = moves_by_factor (curve, j) ? curve->value[j].value : 1;
      double whole = curve->covariance[i][j] / (by_i * by_j), rest = whole;
      for (guint k = 0; k < j; k++)
        rest -= L[i][k] * L[j][k];
      if (i == j)
        L[i][i] = rest > 1e-9 * whole ? sqrt (rest) : 0;
      else
        L[i][j] = L[j][j] > 0 ? rest / L[j][j] : 0;
    }
}

static void
move_along (const SpCurve *from, const double L[SP_CURVE_SLOTS][SP_CURVE_SLOTS], guint column, double deviations,
            SpCurve *ret)
{
  *ret = *from;
  for (guint slot = column; slot < from->n_slots; slot++) {
    double by = deviations * L[slot][column];
    if (moves_by_factor (from, slot))
      ret->value[slot].value *= exp (CLAMP (by, -LARGEST_STEP, LARGEST_STEP));
    else
      ret->value[slot].value += by;
  }
}

static SpIntervalPart
part_of (const SpCurve *curve)
{
  return curve->kind == SP_CURVE_POWER ? SP_PART_CARDS : SP_PART_CURVES;
}

static void
add_moved (Trial *trial, const SpCurve *curve, gboolean matters, double one_s, double other_s)
{
  const Moved moved = { matters ? one_s : trial->step_s, matters ? other_s : trial->step_s, part_of (curve) };

  g_array_append_val (trial->moved, moved);
  trial->any_uncertain |= matters;
}

static void
scale_energies (SpCurve *power, double factor)
{
  power->value[SP_POWER_FLOP].value *= factor;
  power->value[SP_POWER_BYTE].value *= factor;
}

/* Of which cards it is: what the one that draws most of them draws. */
static void
add_cards (Trial *trial, SpCurve *power, gboolean matters)
{
  const SpCurve as_is = *power;
  double by = DEVIATIONS * sp_slowest_of (trial->program->world).deviation * as_is.value[SP_POWER_SPREAD].value;
  double moved_s[2] = { 0 };

  for (guint i = 0; matters && i < 2; i++) {
    scale_energies (power, exp (i == 0 ? by : -by));
    moved_s[i] = step_of (trial);
    *power = as_is;
  }
  add_moved (trial, power, matters, moved_s[0], moved_s[1]);
}

static void
add_curve (Trial *trial, SpCurve *curve)
{
  const SpCurve as_is = *curve;
  double L[SP_CURVE_SLOTS][SP_CURVE_SLOTS] = { 0 }, moved_s[2] = { 0 };
  double spread = MIN (DEVIATIONS * sp_curve_spread (curve), LARGEST_STEP);

  sp_curve_scale_s (curve, NOTICED);
  gboolean matters = step_of (trial) != trial->step_s;
  *curve = as_is;
  for (guint i = 0; spread > 0 && matters && i < 2; i++) {
    sp_curve_scale_s (curve, exp (i == 0 ? spread : -spread));
    moved_s[i] = step_of (trial);
    *curve = as_is;
  }
  if (spread > 0)
    add_moved (trial, curve, matters, moved_s[0], moved_s[1]);
  factor_covariance (&as_is, L);
  for (guint column = 0; column < as_is.n_slots; column++) {
    if (L[column][column] == 0)
      continue;
    for (guint i = 0; matters && i < 2; i++) {
      move_along (&as_is, L, column, i == 0 ? DEVIATIONS : -DEVIATIONS, curve);
      moved_s[i] = step_of (trial);
    }
    add_moved (trial, curve, matters, moved_s[0], moved_s[1]);
  }
  *curve = as_is;
  if (as_is.kind == SP_CURVE_POWER && as_is.value[SP_POWER_SPREAD].value > 0)
    add_cards (trial, curve, matters);
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

/* Relative change of the step where all curves take a little longer, of a slowdown its excess. Of power both energies: the
 * same is drawn in as much more time, so that the clock stays. */
static double
share_of (Trial *trial)
{
  for (guint i = 0; i < trial->profile.curves->len; i++) {
    SpCurve *curve = &trial->curves[i];
    if (curve->kind == SP_CURVE_POWER)
      scale_energies (curve, 1 + NUDGE);
    else if (curve->kind != SP_CURVE_SLOWDOWN)
      sp_curve_scale_s (curve, 1 + NUDGE);
  }
  return CLAMP ((step_of (trial) / trial->step_s - 1) / NUDGE, 0, 1);
}

/* Of a sum of things that move by themselves, of one part or (SP_N_PARTS) all: how far it is up and down, the other
 * one's part taken off. */
static void
add_up (const SpDeviations *of, const SpDeviations *less, SpIntervalPart part, double *ret_up, double *ret_down)
{
  double up = 0, down = 0;

  for (guint i = 0; i < of->moved->len; i++) {
    const Moved *moved = &g_array_index (of->moved, Moved, i);
    double one = moved->one_s - of->step_s, other = moved->other_s - of->step_s;
    if (part != SP_N_PARTS && moved->part != part)
      continue;
    if (less != NULL) {
      const Moved *common = &g_array_index (less->moved, Moved, i);
      one -= common->one_s - less->step_s;
      other -= common->other_s - less->step_s;
    }
    double most = MAX (MAX (one, other), 0), least = MIN (MIN (one, other), 0);
    up += most * most;
    down += least * least;
  }
  *ret_up = sqrt (up);
  *ret_down = sqrt (down);
}

gboolean
sp_estimate_deviations (const SpEstimator *estimator, const SpProgram *program, const SpRun *run, SpDeviations *ret)
{
  if (estimator->cluster->profile == NULL)
    return FALSE;
  g_auto (Trial) trial = { 0 };
  trial_init (&trial, estimator, program, run);
  trial.step_s = step_of (&trial);
  for (guint i = 0; i < trial.profile.curves->len; i++)
    add_curve (&trial, &trial.curves[i]);
  if (!trial.any_uncertain)
    return FALSE;
  *ret = (SpDeviations){ .step_s = trial.step_s, .moved = g_steal_pointer (&trial.moved) };
  ret->share = share_of (&trial);
  return TRUE;
}

void
sp_deviations_clear (SpDeviations *deviations)
{
  g_clear_pointer (&deviations->moved, g_array_unref);
}

void
sp_deviations_interval (const SpDeviations *deviations, SpInterval *ret)
{
  SpRange ranges[SP_N_PARTS + 1];

  for (guint part = 0; part <= SP_N_PARTS; part++) {
    double up_s, down_s;
    add_up (deviations, NULL, part, &up_s, &down_s);
    ranges[part] = (SpRange){ MAX (1 - down_s / deviations->step_s, 0), 1 + up_s / deviations->step_s };
  }
  *ret = (SpInterval){ .low = ranges[SP_N_PARTS].low, .high = ranges[SP_N_PARTS].high, .share = deviations->share };
  memcpy (ret->parts, ranges, sizeof ret->parts);
}

void
sp_deviations_difference (const SpDeviations *of, const SpDeviations *less, double *ret_low_s, double *ret_high_s)
{
  double up_s, down_s, difference = of->step_s - less->step_s;

  g_return_if_fail (of->moved->len == less->moved->len);
  add_up (of, less, SP_N_PARTS, &up_s, &down_s);
  *ret_low_s = difference - down_s;
  *ret_high_s = difference + up_s;
}

gboolean
sp_estimate_interval (const SpEstimator *estimator, const SpProgram *program, const SpRun *run, SpInterval *ret)
{
  g_auto (SpDeviations) deviations = { 0 };

  if (!sp_estimate_deviations (estimator, program, run, &deviations))
    return FALSE;
  sp_deviations_interval (&deviations, ret);
  return TRUE;
}

void
sp_interval_apply (const SpInterval *interval, SpEstimate *estimate)
{
  estimate->interval_s[0] = interval->low * estimate->step_time_s;
  estimate->interval_s[1] = interval->high * estimate->step_time_s;
  for (guint part = 0; part < SP_N_PARTS; part++) {
    estimate->interval_parts_s[part][0] = interval->parts[part].low * estimate->step_time_s;
    estimate->interval_parts_s[part][1] = interval->parts[part].high * estimate->step_time_s;
  }
  estimate->interval_share = interval->share;
}
