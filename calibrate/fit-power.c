/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels draw, and what the card lets them: from the clocks of programs whose kernels ran by themselves. */
#include "calibrate/fit-curves-private.h"

#include <math.h>
#include <string.h>

#include "models/estimate/curves.h"

/* Of the limit: what no card at work goes below, which an H200 without work is near (70 W). assumed */
#define IDLE_LEAST 0.1
/* Of a clock: power is read to some 25 W of the 450 W that clocks change, half of which it is in a clock. */
#define SIGMA 0.03

/* In place of seconds: the clock that goes with the power that was measured. Where a card is at its limit power says
 * nothing of kernels, and the clock does. */
static double
clock_by (const double *parameters, guint point, gconstpointer data)
{
  const SpWorkPoint *p = &((const SpWorkPoint *) data)[point];
  const double value[SP_CURVE_SLOTS] = {
    [SP_POWER_IDLE] = parameters[0], [SP_POWER_FLOP] = parameters[1], [SP_POWER_BYTE] = parameters[2]
  };

  return MAX (sp_curve_power_clock (value, p->flops_per_s, p->bytes_per_s, p->power_w), 0.01);
}

/* The middle of what was drawn where the limit held clocks down; *ret_error: its standard error. */
static double
limit_of (const SpWorkPoint *work, guint n, double *ret_error)
{
  g_autofree double *watts = g_new (double, n);
  guint held = 0;

  for (guint i = 0; i < n; i++)
    if (sp_work_is_held (&work[i]))
      watts[held++] = work[i].power_w;
  double limit = sp_median (watts, held);
  for (guint i = 0; i < held; i++)
    watts[i] = fabs (watts[i] - limit);
  *ret_error = 1.4826 * sp_median (watts, held) * 1.2533 / sqrt (held);
  return limit;
}

static void
set_quality (const SpWorkPoint *work, guint n, const SpFitted *fitted, SpCurve *curve)
{
  g_autofree double *errors = g_new (double, n);

  curve->from = INFINITY;
  for (guint i = 0; i < n; i++) {
    errors[i] = fabs (clock_by (fitted->value, i, work) / work[i].clock - 1);
    curve->from = MIN (curve->from, work[i].power_w);
    curve->to = MAX (curve->to, work[i].power_w);
  }
  curve->points = (gint32) n;
  curve->median = sp_median (errors, n);
  curve->scatter = 1.4826 * curve->median;
  curve->p90 = sp_quantile (errors, n, 0.9);
  curve->worst = errors[n - 1];
  curve->chi_square = fitted->chi_square;
}

/* --- from card to card -------------------------------------------------------------------------------------------- */

enum { LEAST_CARDS = 3 };

/* Programs are told apart by their names but for what stands behind the last stroke, their size. */
static gsize
stem_of (const char *program)
{
  const char *stroke = strrchr (program, '-');

  return stroke != NULL ? (gsize) (stroke - program) : strlen (program);
}

/* ln (drawn / the law), of what the limit held down on a card that is known. */
typedef struct {
  guint card, program; /* from 0 */
  double excess;
} Draw;

/* Number of `key`, a new one if need be. */
static guint
number_of (GHashTable *numbers, char *key)
{
  gpointer found;

  if (g_hash_table_lookup_extended (numbers, key, NULL, &found)) {
    g_free (key);
    return GPOINTER_TO_UINT (found);
  }
  guint number = g_hash_table_size (numbers);
  g_hash_table_insert (numbers, key, GUINT_TO_POINTER (number));
  return number;
}

static GArray *
draws_of (const SpPoints *points, const SpCurve *curve, guint *ret_cards, guint *ret_programs)
{
  g_autoptr (GHashTable) cards = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autoptr (GHashTable) programs = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  GArray *draws = g_array_new (FALSE, FALSE, sizeof (Draw));
  const SpQuantity *law = curve->value;

  for (guint i = 0; i < points->work->len; i++) {
    const SpWorkPoint *p = &g_array_index (points->work, SpWorkPoint, i);
    double above_idle_w = p->power_w - law[SP_POWER_IDLE].value;
    if (p->card == SP_MEASURED_EMPTY || !sp_work_is_held (p) || above_idle_w <= 0)
      continue;
    Draw draw = { .card = number_of (cards, g_strdup_printf ("%" G_GINT64_FORMAT, p->card)),
                  .program = number_of (programs, g_strndup (p->program, stem_of (p->program))) };
    draw.excess = log (above_idle_w / (law[SP_POWER_FLOP].value * p->clock * p->clock * p->flops_per_s +
                                       law[SP_POWER_BYTE].value * p->bytes_per_s));
    g_array_append_val (draws, draw);
  }
  *ret_cards = g_hash_table_size (cards);
  *ret_programs = g_hash_table_size (programs);
  return draws;
}

/* The mean of what is left of each card's draws, or each program's, without the other's part. */
static void
set_means (const GArray *draws, gboolean of_cards, const double *others, double *means, guint n)
{
  g_autofree guint *counts = g_new0 (guint, n);

  for (guint i = 0; i < n; i++)
    means[i] = 0;
  for (guint i = 0; i < draws->len; i++) {
    const Draw *draw = &g_array_index (draws, Draw, i);
    guint own = of_cards ? draw->card : draw->program, other = of_cards ? draw->program : draw->card;
    means[own] += draw->excess - others[other];
    counts[own]++;
  }
  for (guint i = 0; i < n; i++)
    means[i] /= counts[i];
}

/* Cards did not all run the same programs, of which some draw more than the law says: each card's part and each
 * program's are found together, by turns. */
static void
fit_spread (const SpPoints *points, SpCurve *curve)
{
  enum { TURNS = 200 };
  guint cards, programs;
  g_autoptr (GArray) draws = draws_of (points, curve, &cards, &programs);
  g_autofree double *of_card = g_new0 (double, cards + 1), *of_program = g_new0 (double, programs + 1);
  double mean = 0, square = 0;

  if (cards < LEAST_CARDS)
    return;
  for (guint turn = 0; turn < TURNS; turn++) {
    set_means (draws, FALSE, of_card, of_program, programs);
    set_means (draws, TRUE, of_program, of_card, cards);
  }
  for (guint i = 0; i < cards; i++)
    mean += of_card[i] / cards;
  for (guint i = 0; i < cards; i++)
    square += (of_card[i] - mean) * (of_card[i] - mean);
  double spread = sqrt (square / (cards - 1));
  sp_fit_set_value (curve, SP_POWER_SPREAD, spread, spread / sqrt (2.0 * (cards - 1)), "all alike");
  curve->covariance[SP_POWER_SPREAD][SP_POWER_SPREAD] = curve->error[SP_POWER_SPREAD] * curve->error[SP_POWER_SPREAD];
}

/* --- the law ------------------------------------------------------------------------------------------------------ */

gboolean
sp_fit_power (const SpPoints *points, SpCurve *curve)
{
  enum { IDLE, FLOP, BYTE, N };
  const SpWorkPoint *work = (const SpWorkPoint *) (gpointer) points->work->data;
  guint n = points->work->len;
  double error = 0, flops = 0, limit = limit_of (work, n, &error);
  g_autofree double *log_clock = g_new (double, n), *sigma = g_new (double, n);
  SpFitted fitted;

  for (guint i = 0; i < n; i++) {
    log_clock[i] = log (work[i].clock);
    sigma[i] = SIGMA;
    flops = MAX (flops, work[i].flops_per_s);
  }
  double flop = limit / flops; /* if it were all of it */
  SpFitProblem problem = { .n_points = n,
                           .n_parameters = N,
                           .log_seconds = log_clock,
                           .sigma = sigma,
                           .start = { limit / 8, flop, flop * 50 },
                           .lower = { IDLE_LEAST * limit, flop / 20, flop },
                           .upper = { limit * 0.7, flop * 10, flop * 1000 },
                           .seconds = clock_by,
                           .data = work };
  if (!sp_fit (&problem, &fitted, NULL, NULL))
    return FALSE;
  for (guint i = 0; i < N; i++) {
    sp_fit_set_value (curve, SP_POWER_IDLE + i, fitted.value[i], fitted.error[i], sp_fit_not_identified);
    for (guint j = 0; j < N; j++)
      curve->covariance[SP_POWER_IDLE + i][SP_POWER_IDLE + j] = fitted.covariance[i][j];
  }
  sp_fit_set_value (curve, SP_POWER_LIMIT, limit, error, "all alike");
  curve->covariance[SP_POWER_LIMIT][SP_POWER_LIMIT] = error * error;
  set_quality (work, n, &fitted, curve);
  fit_spread (points, curve);
  return TRUE;
}
