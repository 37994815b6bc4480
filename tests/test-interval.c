/* SPDX-License-Identifier: Apache-2.0 */
/* The interval of a step's time: by hand for one op, against draws for a whole step, and where there is none. */
#include "models/estimate/interval.h"

#include <math.h>
#include <string.h>

#include "models/inputs/profile.h"
#include "tests/random-layouts.h"
#include "tests/shipped.h"
#include "tests/subject.h"

#define DEVIATIONS 1.959964
#define HEAD "[profile]\nname = test\n"

static void
estimate (Subject *s)
{
  sp_estimator_init (&s->estimator, s->scenario->arch, s->scenario->cluster, s->scenario->framework, SP_MFU_SEQPAR);
  sp_estimate_layout (&s->estimator, s->program, &s->scenario->layout, &s->scenario->run, &s->estimate);
}

/* A shipped scenario of two H200 with the curves of `text`; NULL: no profile. */
static void
subject_init (Subject *s, const char *name, const char *set, const char *text)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = g_build_filename (g_getenv ("SEQPAR_DATA"), "executed", name, NULL);
  const char *sets[] = { set, NULL };

  s->scenario = sp_scenario_load (path, sets, &error);
  g_assert_no_error (error);
  g_assert_null (s->scenario->cluster->profile);
  if (text != NULL)
    s->scenario->cluster->profile = sp_profile_parse ("p.ini", text, strlen (text), &error);
  g_assert_no_error (error);
  s->program = sp_program_new ();
  estimate (s);
}

static gboolean
interval_of (const Subject *s, SpInterval *ret)
{
  return sp_estimate_interval (&s->estimator, s->program, &s->scenario->run, ret);
}

static void
assert_near (double value, double expected)
{
  if (!(fabs (value / expected - 1) < 1e-9))
    g_error ("%.17g, expected %.17g", value, expected);
}

/* --- one op ------------------------------------------------------------------------------------------------------- */

/* Attention of 2048 tokens, 16 heads of 64, causal, on the 132 SMs of an H200: 4 x 64 x 16 x 2048 x 2049 / 2 FLOP at
 * 400 TFLOP/s; 16 blocks of 128 rows a head are 256, two waves: 256 / 264 of the rate. With 2 us of launch 24.16 us.
 * The rest of the scope is priced by formulas, in which nothing is uncertain. */
#define ATTENTION HEAD "[attention]\nlaunch = 2 us\nrate = 400 TFLOP/s\nhalf-tokens = 0\nhead-power = 0\npoints = 12\n"
static const double launch_s = 2e-6, compute_s = 4.0 * 64 * 16 * 2048 * 2049 / 2 / 400e12 * 264 / 256;

/* A rate that is 1 % unsure: 1.96 % less is compute_s (e^0.0196 - 1) more. A launch of 0.5 us: 2 us e^(1.96 x 0.25). A
 * scatter of 3 %, of 12 points to one parameter 3 % sqrt (12 / 11): of all 24.16 us. */
static const struct {
  const char *keys;
  double rate, launch, all; /* standard deviations of logarithms */
} by_hand[] = {
  { "rate.error = 4 TFLOP/s\n", 0.01, 0, 0 },
  { "launch.error = 0.5 us\n", 0, 0.25, 0 },
  { "scatter = 0.03\n", 0, 0, 0.03 },
  { "rate.error = 4 TFLOP/s\nscatter = 0.03\n", 0.01, 0, 0.0313340 },
  { "rate.error = 4 TFLOP/s\nlaunch.error = 0.5 us\nscatter = 0.02\np90 = 0.01\n", 0.01, 0.25, 0.0219089 },
  /* ln (1.2) / 1.644854 = 0.110843, more than the scatter */
  { "scatter = 0.02\np90 = 0.2\n", 0, 0, 0.1108436 },
};

static double
quadrature (double a, double b, double c)
{
  return sqrt (a * a + b * b + c * c);
}

static void
test_one_op (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (by_hand); i++) {
    g_autofree char *text = g_strconcat (ATTENTION, by_hand[i].keys, NULL);
    g_auto (Subject) s = { 0 };
    SpInterval interval;
    double up[3], down[3], all_s = launch_s + compute_s;
    const double deviations[] = { by_hand[i].rate, by_hand[i].launch, by_hand[i].all };
    const double seconds[] = { compute_s, launch_s, all_s };

    subject_init (&s, "s350m-2k-zero0.ini", "scope=attention", text);
    for (guint part = 0; part < 3; part++) {
      up[part] = seconds[part] * (exp (DEVIATIONS * deviations[part]) - 1);
      down[part] = seconds[part] * (1 - exp (-DEVIATIONS * deviations[part]));
    }
    g_assert_true (interval_of (&s, &interval));
    double step_s = s.estimate.step_time_s;
    g_assert_cmpfloat (step_s, >, all_s);
    g_assert_cmpfloat (fabs ((interval.high - 1) * step_s / quadrature (up[0], up[1], up[2]) - 1), <, 1e-5);
    g_assert_cmpfloat (fabs ((1 - interval.low) * step_s / quadrature (down[0], down[1], down[2]) - 1), <, 1e-5);
    g_assert_cmpfloat (fabs (interval.share - all_s / step_s), <, 1e-6);
    sp_interval_apply (&interval, &s.estimate);
    assert_near (s.estimate.interval_s[0], interval.low * step_s);
    assert_near (s.estimate.interval_s[1], interval.high * step_s);
  }
}

/* A launch and a rate that go up together and undo each other: 1 us of launch against 1 us of compute at 400 TFLOP/s,
 * which is 400 TFLOP/s x 1 us / compute_s of rate. What is left is of second order, (1 us)^2 / compute_s and the like;
 * apart they would be 1.96 us x sqrt (2). */
static void
test_correlated (void)
{
  double error = 400 * 1e-6 / compute_s;
  g_autofree char *text = g_strdup_printf (ATTENTION "launch.error = 1 us\nrate.error = %.12g TFLOP/s\n", error);
  g_autofree char *together = g_strconcat (text, "correlation = 1\n", NULL);
  g_auto (Subject) apart = { 0 }, s = { 0 };
  SpInterval wide, narrow;

  subject_init (&apart, "s350m-2k-zero0.ini", "scope=attention", text);
  subject_init (&s, "s350m-2k-zero0.ini", "scope=attention", together);
  g_assert_true (interval_of (&apart, &wide));
  g_assert_true (interval_of (&s, &narrow));
  double step_s = s.estimate.step_time_s, compute_part = compute_s * (exp (DEVIATIONS * 1e-6 / compute_s) - 1);
  double launch_part = launch_s * (exp (DEVIATIONS * 0.5) - 1);
  g_assert_cmpfloat (fabs ((wide.high - 1) * step_s / hypot (compute_part, launch_part) - 1), <, 1e-6);
  double both = compute_s * (exp (-DEVIATIONS * 1e-6 / compute_s) - 1) + launch_part;
  g_assert_cmpfloat (fabs ((narrow.high - 1) * step_s / both - 1), <, 1e-6);
  g_assert_cmpfloat (narrow.high - 1, <, 0.5 * (wide.high - 1));
}

/* --- none --------------------------------------------------------------------------------------------------------- */

static void
test_none (void)
{
  /* no profile; nothing uncertain; what no time of the scope depends on */
  const char *const texts[] = { NULL, ATTENTION,
                                HEAD "[memory.context]\nbytes = 500000000 B\nbytes.error = 1000000 B\nscatter = 0.1\n",
                                HEAD "[all-reduce.2x1]\nbegin-1 = 1024 B\nend-1 = 1 MiB\nlatency-1 = 10 us\n"
                                     "latency-1.error = 5 us\ngrowth-1 = 0\nrate-1 = 100 GB/s\nscatter = 0.1\n" };

  for (guint i = 0; i < G_N_ELEMENTS (texts); i++) {
    g_auto (Subject) s = { 0 };
    SpInterval interval;
    subject_init (&s, "s350m-2k-zero0.ini", "scope=attention", texts[i]);
    g_assert_false (interval_of (&s, &interval));
    g_assert_true (s.estimate.interval_s[0] == 0 && s.estimate.interval_s[1] == 0);
  }
}

/* --- against draws ------------------------------------------------------------------------------------------------ */

#define DRAWS 4000
#define SOURCES 4 /* of noise in a curve's parameters */

#define CURVES                                                                                                         \
  HEAD "[gemm]\nlaunch = 3 us\nrate = 700 TFLOP/s\nmemory-rate = 3000 GB/s\nprologue = 200\ntile-128 = 0.9\n"          \
       "tile-64 = 0.5\ntail = 0.5\npoints = 40\nscatter = 0.02\n"                                                      \
       "[attention]\nlaunch = 5 us\nrate = 500 TFLOP/s\nhalf-tokens = 100\nhead-power = 0.3\npoints = 30\n"            \
       "scatter = 0.015\np90 = 0.05\n"                                                                                 \
       "[kernel.norm.1.3]\nlaunch = 3 us\nmemory-rate = 2000 GB/s\ncache = 0 B\ncache-rate = 0 GB/s\n"                 \
       "rate = 0 TFLOP/s\nrow = 0 us\nhalf-tokens = 0\nhead-power = 0\ntail = 0\nserial = 0\npoints = 20\n"            \
       "scatter = 0.03\n"                                                                                              \
       "[all-to-all.2x1]\nbegin-1 = 1024 B\nend-1 = 1 MiB\nlatency-1 = 12 us\ngrowth-1 = 0\nrate-1 = 100 GB/s\n"       \
       "begin-2 = 2 MiB\nend-2 = 1 GiB\nlatency-2 = 20 us\ngrowth-2 = 0.1\nrate-2 = 300 GB/s\npoints = 21\n"           \
       "scatter = 0.04\n"                                                                                              \
       "[slowdown.2x1.all-reduce]\nslowdown = 0.2\npoints = 8\nscatter = 0.03\n"

/* Logarithms of a curve's parameters, as sums of a few sources of noise: not the triangle that the interval uses, and
 * of less rank than there are parameters. Sets covariance and errors. */
static void
draw_sources (GRand *rand, SpCurve *curve, double sources[SP_CURVE_SLOTS][SOURCES])
{
  for (guint i = 0; i < curve->n_slots; i++)
    for (guint j = 0; j < SOURCES; j++)
      sources[i][j] = curve->value[i].value > 0 ? (g_rand_double (rand) - 0.5) * 0.03 : 0;
  for (guint i = 0; i < curve->n_slots; i++) {
    for (guint k = 0; k < curve->n_slots; k++) {
      double sum = 0, by = curve->kind == SP_CURVE_SLOWDOWN ? 1 : curve->value[i].value * curve->value[k].value;
      for (guint j = 0; j < SOURCES; j++)
        sum += sources[i][j] * sources[k][j];
      curve->covariance[i][k] = sum * by;
    }
    curve->error[i] = sqrt (curve->covariance[i][i]);
  }
}

static double
draw_normal (GRand *rand)
{
  return sqrt (-2 * log (1 - g_rand_double (rand))) * cos (2 * G_PI * g_rand_double (rand));
}

static void
draw_curve (GRand *rand, const SpCurve *mean, double spread, const double sources[SP_CURVE_SLOTS][SOURCES],
            SpCurve *curve)
{
  double noise[SOURCES];

  for (guint j = 0; j < SOURCES; j++)
    noise[j] = draw_normal (rand);
  for (guint i = 0; i < mean->n_slots; i++) {
    double by = 0;
    for (guint j = 0; j < SOURCES; j++)
      by += sources[i][j] * noise[j];
    curve->value[i].value =
        curve->kind == SP_CURVE_SLOWDOWN ? mean->value[i].value + by : mean->value[i].value * exp (by);
  }
  sp_curve_scale_s (curve, exp (spread * draw_normal (rand)));
}

/* Steps with curves drawn as their errors say: the standard deviation is what the interval says, to five of its own
 * standard errors (1 / sqrt (2 x draws)) and 2 % for what is not linear, and 95 % lie in the interval, to five
 * (sqrt (0.95 x 0.05 / draws)) and 0.5 %. */
static void
check_draws (GRand *rand, const char *scenario)
{
  g_auto (Subject) s = { 0 };
  double sources[8][SP_CURVE_SLOTS][SOURCES], spread[8], sum = 0, squares = 0;
  SpCurve mean[8];
  SpInterval interval;
  guint inside = 0;

  subject_init (&s, scenario, "zero=1", CURVES);
  GPtrArray *curves = s.scenario->cluster->profile->curves;
  g_assert_cmpuint (curves->len, <=, G_N_ELEMENTS (mean));
  for (guint c = 0; c < curves->len; c++) {
    draw_sources (rand, curves->pdata[c], sources[c]);
    spread[c] = sp_curve_spread (curves->pdata[c]);
    mean[c] = *(const SpCurve *) curves->pdata[c];
  }
  g_assert_true (interval_of (&s, &interval));
  double step_s = s.estimate.step_time_s;
  for (guint i = 0; i < DRAWS; i++) {
    for (guint c = 0; c < curves->len; c++)
      draw_curve (rand, &mean[c], spread[c], sources[c], curves->pdata[c]);
    estimate (&s);
    double by = s.estimate.step_time_s / step_s - 1;
    sum += by;
    squares += by * by;
    inside += by >= interval.low - 1 && by <= interval.high - 1;
  }
  double deviation = sqrt ((squares - sum * sum / DRAWS) / (DRAWS - 1)), covered = (double) inside / DRAWS;
  double expected = (interval.high - interval.low) / (2 * DEVIATIONS);
  g_test_message ("%s: standard deviation %.4f %%, the interval's %.4f %%, %.2f %% inside", scenario, 100 * deviation,
                  100 * expected, 100 * covered);
  g_assert_cmpfloat (expected, >, 0.005);
  g_assert_cmpfloat (fabs (deviation / expected - 1), <, 5 / sqrt (2.0 * DRAWS) + 0.02);
  g_assert_cmpfloat (fabs (covered - 0.95), <, 5 * sqrt (0.95 * 0.05 / DRAWS) + 0.005);
}

/* --- cards -------------------------------------------------------------------------------------------------------- */

/* Curves that are known, on cards of which not all is: a law whose clocks are off by 4 %, and cards that draw more or less
 * by 8 %, of which a step of two waits for the one that draws more. */
#define CARDS                                                                                                          \
  HEAD "[gemm]\nlaunch = 3 us\nrate = 700 TFLOP/s\nmemory-rate = 3000 GB/s\nprologue = 200\ntile-128 = 0.9\n"          \
       "tile-64 = 0.5\ntail = 0.5\n[kernel.attention.causal.7.3]\nlaunch = 10 us\nrate = 500 TFLOP/s\n"                \
       "[power]\nidle = 60 W\nflop = 1.5 pJ\nbyte = 90 pJ\nlimit = 520 W\npoints = 100\n"

/* Steps on cards that are drawn: the mean is the step, the standard deviation and what lies within the interval's, as
 * of draws above; and all of it is the cards' part. */
static void
check_cards (GRand *rand, const char *scenario, guint gpus)
{
  g_auto (Subject) s = { 0 };
  double sum = 0, squares = 0;
  SpInterval interval;
  guint inside = 0;

  subject_init (&s, scenario, "zero=1", CARDS "scatter = 0.04\nspread = 0.08\n");
  SpCurve *power = (SpCurve *) sp_profile_find (s.scenario->cluster->profile, SP_CURVE_POWER, NULL, 0, 0);
  const SpCurve as_is = *power;
  g_assert_true (interval_of (&s, &interval));
  g_assert_true (interval.parts[SP_PART_CURVES].low == 1 && interval.parts[SP_PART_CURVES].high == 1);
  g_assert_true (interval.parts[SP_PART_CARDS].low == interval.low &&
                 interval.parts[SP_PART_CARDS].high == interval.high);
  g_assert_cmpfloat (s.estimator.cost.clocks[0], <, 0.95);
  double step_s = s.estimate.step_time_s;
  for (guint i = 0; i < DRAWS; i++) {
    double most = -INFINITY;
    for (guint card = 0; card < gpus; card++) {
      double draws = 0.08 * draw_normal (rand);
      most = MAX (most, draws);
    }
    *power = as_is;
    power->value[SP_POWER_SPREAD].value = 0;
    power->value[SP_POWER_FLOP].value *= exp (most);
    power->value[SP_POWER_BYTE].value *= exp (most);
    sp_curve_scale_s (power, exp (0.04 * draw_normal (rand)));
    estimate (&s);
    double by = s.estimate.step_time_s / step_s - 1;
    sum += by;
    squares += by * by;
    inside += by >= interval.low - 1 && by <= interval.high - 1;
  }
  *power = as_is;
  double deviation = sqrt ((squares - sum * sum / DRAWS) / (DRAWS - 1)), covered = (double) inside / DRAWS;
  double expected = (interval.high - interval.low) / (2 * DEVIATIONS);
  g_test_message ("%s: mean %+.3f %%, standard deviation %.4f %%, the interval's %.4f %%, %.2f %% inside", scenario,
                  100 * sum / DRAWS, 100 * deviation, 100 * expected, 100 * covered);
  g_assert_cmpfloat (fabs (sum / DRAWS), <, 5 * deviation / sqrt (DRAWS) + 0.001);
  g_assert_cmpfloat (fabs (deviation / expected - 1), <, 5 / sqrt (2.0 * DRAWS) + 0.04);
  g_assert_cmpfloat (fabs (covered - 0.95), <, 5 * sqrt (0.95 * 0.05 / DRAWS) + 0.005);
}

static void
test_cards (void)
{
  g_autoptr (GRand) rand = draw_rand_new ();

  check_cards (rand, "one/s1b-8k-recompute.ini", 1);
  check_cards (rand, "s1b-8k-tensor2.ini", 2);
}

/* At a lower clock more of the step is kernels that have curves, and that these in as much more time could run at a higher
 * one is no part of what goes with them. */
static void
test_share (void)
{
  g_auto (Subject) held = { 0 }, free = { 0 };
  SpInterval of_held, of_free;

  subject_init (&held, "one/s1b-8k-recompute.ini", "zero=1", CARDS "scatter = 0.04\n");
  subject_init (&free, "one/s1b-8k-recompute.ini", "zero=1", CARDS "scatter = 0.04\n");
  SpCurve *power = (SpCurve *) sp_profile_find (free.scenario->cluster->profile, SP_CURVE_POWER, NULL, 0, 0);
  power->value[SP_POWER_LIMIT].value *= 1.9; /* never reached */
  estimate (&free);
  g_assert_true (interval_of (&held, &of_held) && interval_of (&free, &of_free));
  g_test_message ("share at a clock of %.3f %.4f, at %.3f %.4f", held.estimator.cost.clocks[0], of_held.share,
                  free.estimator.cost.clocks[0], of_free.share);
  g_assert_true (free.estimator.cost.clocks[0] == 1);
  g_assert_cmpfloat (of_held.share, >, of_free.share);
}

static void
test_draws (void)
{
  g_autoptr (GRand) rand = draw_rand_new ();

  check_draws (rand, "s1b-8k-ulysses2-zero1.ini");
  check_draws (rand, "s350m-8k-data2-zero1.ini");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/interval/one-op", test_one_op);
  g_test_add_func ("/interval/correlated", test_correlated);
  g_test_add_func ("/interval/none", test_none);
  g_test_add_func ("/interval/draws", test_draws);
  g_test_add_func ("/interval/cards", test_cards);
  g_test_add_func ("/interval/share", test_share);
  return g_test_run ();
}
