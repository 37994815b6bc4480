/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simulated.h"

#include "models/inputs/scenario.h"

#include <string.h>

/* Noise, slow ranks, slow and failed links; and collectives as their steps. */

/* Simulates a scenario with settings over it. */
static void
simulate (const char *const *sets, const SpSimulateOptions *options, SpSimulated *ret, GError **error)
{
  g_autofree char *path = g_build_filename (g_getenv ("SEQPAR_DATA"), "llama-3.1-8b-208k.ini", NULL);
  g_autoptr (SpProgram) program = sp_program_new ();
  SpEstimator estimator;

  g_autoptr (SpScenario) s = sp_scenario_load (path, sets, error);
  if (s == NULL)
    return;
  sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
  sp_program_write (program, s->arch, s->framework, &s->layout, &s->run);
  sp_simulate (&estimator, program, &s->run, &s->variations, options, ret, error);
}

static double
step_of (const char *const *sets, const SpSimulateOptions *options)
{
  g_auto (SpSimulated) s = { 0 };
  g_autoptr (GError) error = NULL;

  simulate (sets, options, &s, &error);
  g_assert_no_error (error);
  return s.result.step_time_s;
}

static const SpSimulateOptions usual = { 0 }, unfolded = { .unfolded = TRUE }, steps = { .steps = TRUE };

/* Mean 1, and the standard deviation that was asked for; the same draw is the same number. */
static void
test_factor (void)
{
  const guint n = 200000;
  double sum = 0, squares = 0;

  for (guint i = 0; i < n; i++) {
    double factor = sp_variation_factor (7, i % 31, i / 31, 0.2);
    g_assert_true (factor > 0 && factor == sp_variation_factor (7, i % 31, i / 31, 0.2));
    sum += factor;
    squares += factor * factor;
  }
  double mean = sum / n, sd = sqrt (squares / n - mean * mean);
  g_test_message ("mean %.5f, standard deviation %.5f", mean, sd);
  /* 4 standard errors; the log-normal's standard deviation is sqrt (exp (0.04) - 1) = 0.2020 */
  g_assert_true (fabs (mean - 1) < 4 * 0.2 / sqrt (n));
  g_assert_true (fabs (sd - 0.2020) < 0.004);
}

/* The mean of the largest of n draws, counted, is what was asked for; of one, or for nothing, there is no spread. */
static void
test_largest (void)
{
  static const struct {
    gint32 n;
    double largest;
  } cases[] = { { 2, 1.1 }, { 8, 1.5 }, { 64, 1.3 }, { 64, 3 } };
  const guint draws = 20000;

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    double sd = sp_variation_sd_of_largest (cases[i].n, cases[i].largest), sum = 0;
    const SpVariation variation = { .seed = 3, .load_sd = sd };
    for (guint j = 0; j < draws; j++) {
      double most = 0;
      for (gint32 rank = 0; rank < cases[i].n; rank++)
        most = MAX (most, sp_variation_load (&variation, rank, (gint32) (j % 100), (gint32) (j / 100)));
      sum += most;
    }
    g_test_message ("%d ranks: sd %.4f, the largest %.4f on average", cases[i].n, sd, sum / draws);
    g_assert_true (fabs (sum / draws / cases[i].largest - 1) < 0.01);
  }
  g_assert_cmpfloat (sp_variation_sd_of_largest (1, 2), ==, 0);
  g_assert_cmpfloat (sp_variation_sd_of_largest (8, 1), ==, 0);
}

/* Mixtral's experts on 4 ranks of a node, the busiest of which has half as much again as the mean. Without draws every rank is
 * that one; with them the step lies between one of even loads and that of ranks that wait for each other in every layer;
 * nothing folds, and the seed decides. */
#define MIXTRAL model, "ulysses=4", "ring=1", "data=4", "sequence=32K"
static void
test_load (void)
{
  g_autofree char *model = g_strconcat ("config=", g_getenv ("SEQPAR_DATA"), "/models/mixtral-8x7b.json", NULL);
  const char *const even[] = { MIXTRAL, "expert=4", NULL };
  const char *const busiest[] = { MIXTRAL, "expert=4", "expert-imbalance=1.5", NULL };
  const char *const drawn[] = { MIXTRAL, "expert=4", "expert-imbalance=1.5", "expert-imbalance-noise=true", NULL };
  const SpSimulateOptions many = { .samples = 4 };
  g_autoptr (GError) error = NULL;
  g_auto (SpSimulated) a = { 0 };
  g_auto (SpSimulated) b = { 0 };

  double least = step_of (even, &usual), most = step_of (busiest, &usual);
  simulate (drawn, &many, &a, &error);
  g_assert_no_error (error);
  simulate (drawn, &many, &b, &error);
  g_assert_no_error (error);
  g_test_message ("even %.5f s, drawn %.5f to %.5f s, all as the busiest %.5f s", least, a.sample_s[0], a.sample_s[3],
                  most);
  g_assert_cmpint (a.run->n_roles, ==, 16);
  g_assert_true (least < a.sample_s[0] && a.sample_s[3] < 1.2 * most);
  for (guint i = 0; i < 4; i++)
    g_assert_true (a.sample_s[i] == b.sample_s[i]);
  g_assert_true (a.sample_s[0] < a.sample_s[3]);
}

/* Noise draws other times for each seed, the same for the same, and ranks wait for the slowest: the mean step grows. */
static void
test_noise (void)
{
  const char *const none[] = { NULL };
  const char *const noise[] = { "kernel-noise=10%", "seed=5", NULL };
  const SpSimulateOptions many = { .samples = 8 };
  g_autoptr (GError) error = NULL;
  g_auto (SpSimulated) a = { 0 };
  g_auto (SpSimulated) b = { 0 };

  double quiet = step_of (none, &usual);
  simulate (noise, &many, &a, &error);
  g_assert_no_error (error);
  simulate (noise, &many, &b, &error);
  g_assert_no_error (error);
  g_assert_cmpint (a.run->n_roles, ==, 16); /* nothing folds */
  for (guint i = 0; i < 8; i++) {
    g_assert_true (a.sample_s[i] == b.sample_s[i]);
    g_assert_true (i == 0 || a.sample_s[i] > a.sample_s[i - 1]);
  }
  g_test_message ("without noise %.4f s, with 10 %% of each kernel %.4f to %.4f s", quiet, a.sample_s[0],
                  a.sample_s[7]);
  g_assert_true (a.sample_s[0] > quiet);
  g_assert_true (sp_simulated_quantile (&a, 0.5) == (a.sample_s[3] + a.sample_s[4]) / 2);
}

/* A rank whose kernels take twice as long: all others wait for it, and a step is its kernels and what was not hidden. */
static void
test_slow_rank (void)
{
  const char *const none[] = { NULL }, *const slow[] = { "slow-ranks=5 x 2", NULL };
  g_autoptr (GError) error = NULL;
  g_auto (SpSimulated) s = { 0 };

  double before = step_of (none, &unfolded);
  simulate (slow, &usual, &s, &error);
  g_assert_no_error (error);
  double kernels = sp_time_to_s (s.run->roles[5].kernels), others = sp_time_to_s (s.run->roles[4].kernels);
  g_assert_true (is_equal (kernels, 2 * others, 1e-9));
  g_assert_true (s.result.step_time_s > kernels && s.result.step_time_s < before + kernels - others);
  g_assert_cmpint (s.role, ==, 5);
}

/* A link at a tenth of its rate makes the step longer; one of whose rate nothing is lost does not; nor does one that
 * nothing crosses. */
static void
test_slow_link (void)
{
  const char *const none[] = { NULL }, *const slow[] = { "slow-links=node0.gpu3>switch x 0.1", NULL };
  const char *const same[] = { "slow-links=node0.gpu3>switch x 1", NULL };
  double before = step_of (none, &unfolded);

  g_assert_true (step_of (same, &unfolded) == before);
  g_assert_true (step_of (slow, &unfolded) > before * 1.001);
  g_assert_true (is_equal (step_of (slow, &usual), step_of (slow, &unfolded), 1e-9)); /* what is alike still folds */
}

/* Around a failed link traffic takes another way, here out by the adapter and back in, and the step is longer. */
static void
test_failed_link (void)
{
  const char *const none[] = { NULL };
  const char *const gone[] = { "failed-links=node0.gpu3>switch", NULL };
  const char *const unknown[] = { "failed-links=node0.gpu33>switch", NULL };
  g_autoptr (GError) nearest = NULL;
  g_auto (SpSimulated) t = { 0 };

  g_assert_true (step_of (gone, &usual) > step_of (none, &usual) * 1.001);
  simulate (unknown, &usual, &t, &nearest);
  g_assert_nonnull (nearest);
  g_test_message ("%s", nearest->message);
  g_assert_nonnull (strstr (nearest->message, "did you mean node0.gpu3>switch?"));
}

/* Rings and exchanges that meet nothing take as steps what they take as fluids: the rounds' rates and latencies add up.
 * One node of 8, nothing overlaps. */
static void
test_steps (void)
{
  const char *const sets[][6] = {
    { "cluster.file=h100-1x8", "ulysses=1", "ring=1", "data=8", "overlap=false", NULL },
    { "cluster.file=h100-1x8", "ulysses=8", "ring=1", "zero=3", "overlap=false", NULL },
  };

  for (guint i = 0; i < G_N_ELEMENTS (sets); i++) {
    double fluid = step_of (sets[i], &unfolded), as_steps = step_of (sets[i], &steps);
    g_test_message ("fluid %.9f s, steps %.9f s", fluid, as_steps);
    g_assert_true (is_equal (fluid, as_steps, 1e-6));
  }
}

/* As steps, a ring passes a slow link in each of its rounds: it is as slow as the link makes it, not slower. */
static void
test_steps_slow (void)
{
  const char *const slow[] = { "cluster.file=h100-1x8",
                               "ulysses=1",
                               "ring=1",
                               "data=8",
                               "overlap=false",
                               "slow-links=node0.gpu3>switch x 0.25",
                               NULL };
  double fluid = step_of (slow, &unfolded), as_steps = step_of (slow, &steps);

  g_test_message ("fluid %.9f s, steps %.9f s", fluid, as_steps);
  g_assert_true (is_equal (fluid, as_steps, 2e-2));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/variation/factor", test_factor);
  g_test_add_func ("/variation/largest", test_largest);
  g_test_add_func ("/variation/load", test_load);
  g_test_add_func ("/variation/noise", test_noise);
  g_test_add_func ("/variation/slow-rank", test_slow_rank);
  g_test_add_func ("/variation/slow-link", test_slow_link);
  g_test_add_func ("/variation/failed-link", test_failed_link);
  g_test_add_func ("/variation/steps", test_steps);
  g_test_add_func ("/variation/steps-slow", test_steps_slow);
  return g_test_run ();
}
