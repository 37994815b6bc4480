/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/fit.h"
#include "tests/set-files.h"

#include <math.h>
#include <string.h>

static SpMeasuredRun *
run_of (const SpValidation *v, guint row)
{
  return v->runs->pdata[row];
}

/* FALSE, with the skip said, without GSL. */
static gboolean
score (const SpValidation *v, gboolean fitted, SpScores *ret)
{
  g_autoptr (GError) error = NULL;

  if (sp_validation_score (v, fitted, ret, &error))
    return TRUE;
  g_assert_true (error->domain == SP_FIT_ERROR);
  g_test_skip ("built without GSL");
  return FALSE;
}

static void
assert_near (double value, double wanted)
{
  if (!(fabs (value - wanted) <= 1e-9))
    g_error ("%.12g, expected %.12g", value, wanted);
}

/* --- scores ------------------------------------------------------------------------------------------------------- */

#define SET "[set]\ntitle = by hand\nsource = by hand\n"
#define ROWS "[rows.all]\ndata = data.csv\n"

/* Two cells. In the first, measured steps of 1, 2, 4 and 4.1 s are predicted as 2, 1, 4 and 3.9: a and b are in the wrong
 * order, c and d too near to say, so 4 of 5 pairs are right; b, ranked first, takes twice the best. In the second, 1 and
 * 1.5 s are predicted as 1 and 3, in order, and the best is chosen. f was fitted to and would be ranked first; j is
 * aside and would be the worst. h and i ran out of memory, of which h is said to fit; of the six that ran d is not. */
static const char by_hand[] = "tensor,cell,split,outcome,step_time_s,aside,note\n"
                              "1,1,held-out,fits,1,,a\n"
                              "2,1,held-out,fits,2,,b\n"
                              "3,1,held-out,fits,4,,c\n"
                              "4,1,held-out,fits,4.1,,d\n"
                              "5,2,held-out,fits,1,,e\n"
                              "6,2,fit,fits,1.2,,f\n"
                              "7,2,held-out,fits,1.5,,g\n"
                              "8,,held-out,oom,,,h\n"
                              "9,,held-out,oom,,,i\n"
                              "10,2,held-out,fits,1,broken,j\n";

static void
set_predictions (const SpValidation *v)
{
  static const double steps_s[] = { 2, 1, 4, 3.9, 1, 0.1, 3, 5, 5, 0.01 };

  for (guint i = 0; i < G_N_ELEMENTS (steps_s); i++) {
    SpMeasuredRun *run = run_of (v, i);
    run->step_time_s = steps_s[i];
    run->tokens = 1000;
    run->fits = i != 3 && i != 8;
    if (!isnan (run->measured[SP_OBSERVED_STEP_TIME]))
      run->predicted[SP_OBSERVED_STEP_TIME] = steps_s[i];
  }
}

static void
test_scores (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpValidation) v = load (SET "split = column\n" ROWS, by_hand, &error);
  SpScores scores, fitted;
  const double d = 1 - 3.9 / 4.1;

  g_assert_no_error (error);
  set_predictions (v);
  if (!score (v, FALSE, &scores) || !score (v, TRUE, &fitted))
    return;
  g_assert_cmpuint (scores.n_runs, ==, 8);
  g_assert_cmpuint (scores.n_times, ==, 6);
  assert_near (scores.value[SP_SCORE_TIME_MEAN], (1 + 0.5 + 0 + d + 0 + 1) / 6);
  assert_near (scores.value[SP_SCORE_TIME_MEDIAN], (d + 0.5) / 2);
  assert_near (scores.value[SP_SCORE_TIME_P90], 1);
  assert_near (scores.value[SP_SCORE_TIME_WORST], 1);
  g_assert_true (isnan (scores.value[SP_SCORE_SPEED_MEDIAN]) && isnan (scores.value[SP_SCORE_MEMORY_MEDIAN]));
  g_assert_cmpuint (scores.n_pairs, ==, 6);
  assert_near (scores.value[SP_SCORE_KENDALL], (5 - 1) / 6.0);
  g_assert_cmpuint (scores.n_cells, ==, 2);
  assert_near (scores.value[SP_SCORE_REGRET_MEDIAN], 0.5);
  assert_near (scores.value[SP_SCORE_REGRET_WORST], 1);
  assert_near (scores.value[SP_SCORE_BEST], 0.5);
  g_assert_cmpuint (scores.n_outcomes, ==, 8);
  assert_near (scores.value[SP_SCORE_ACCURACY], (5 / 6.0 + 1 / 2.0) / 2);
  assert_near (scores.value[SP_SCORE_FALSE_FIT], 0.5);
  /* Of the fitted run alone. */
  g_assert_cmpuint (fitted.n_runs, ==, 1);
  assert_near (fitted.value[SP_SCORE_TIME_WORST], 1 - 0.1 / 1.2);
  g_assert_true (isnan (fitted.value[SP_SCORE_KENDALL]) && isnan (fitted.value[SP_SCORE_ACCURACY]));
}

/* Whatever is predicted of fitted runs and of those aside, the others' scores stay. */
static void
test_honest (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpValidation) v = load (SET "split = column\n" ROWS, by_hand, &error);
  SpScores before, after;

  g_assert_no_error (error);
  set_predictions (v);
  if (!score (v, FALSE, &before))
    return;
  for (guint i = 0; i < v->runs->len; i++) {
    SpMeasuredRun *run = run_of (v, i);
    if (!run->is_fitted && !sp_run_is_aside (run))
      continue;
    run->step_time_s = run->predicted[SP_OBSERVED_STEP_TIME] = g_test_rand_double_range (1e-6, 1e6);
    run->fits = g_test_rand_bit ();
  }
  g_assert_true (score (v, FALSE, &after));
  g_assert_cmpmem (&before, sizeof before, &after, sizeof after);
}

/* A run that is chosen and did not run is worse than any that did. */
static void
test_chosen_out_of_memory (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpValidation) v =
      load (SET ROWS, "cell,tensor,outcome,step_time_s\n1,1,fits,1\n1,2,fits,2\n1,3,oom,\n", &error);
  SpScores scores;

  g_assert_no_error (error);
  for (guint i = 0; i < 3; i++) {
    SpMeasuredRun *run = run_of (v, i);
    run->fits = TRUE;
    run->tokens = 1;
    run->step_time_s = 3 - i;
    if (i < 2)
      run->predicted[SP_OBSERVED_STEP_TIME] = 3 - i;
  }
  if (!score (v, FALSE, &scores))
    return;
  g_assert_true (isinf (scores.value[SP_SCORE_REGRET_MEDIAN]));
  assert_near (scores.value[SP_SCORE_BEST], 0);
  run_of (v, 2)->fits = FALSE;
  g_assert_true (score (v, FALSE, &scores));
  assert_near (scores.value[SP_SCORE_REGRET_MEDIAN], 1);
}

/* A speed of twice what was measured is a step of half: 100 % off as a speed, 50 % as a time. Lengths by doublings. */
static void
test_speeds_and_lengths (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpValidation) v =
      load (SET ROWS, "tokens_per_s,mfu,peak_bytes,longest_tokens\n100,41 %,59.25 GiB,512K\n", &error);
  SpScores scores;

  g_assert_no_error (error);
  SpMeasuredRun *run = run_of (v, 0);
  assert_near (run->measured[SP_OBSERVED_MFU], 0.41);
  assert_near (run->measured[SP_OBSERVED_PEAK], 59.25 * 0x1p30);
  assert_near (run->measured[SP_OBSERVED_LONGEST], 524288);
  run->predicted[SP_OBSERVED_TOKENS] = 200;
  run->predicted[SP_OBSERVED_MFU] = 0.41; /* not the first column of time: it does not count */
  run->predicted[SP_OBSERVED_PEAK] = 0.9 * run->measured[SP_OBSERVED_PEAK];
  run->predicted[SP_OBSERVED_LONGEST] = 131072;
  if (!score (v, FALSE, &scores))
    return;
  assert_near (scores.value[SP_SCORE_TIME_MEDIAN], 0.5);
  assert_near (scores.value[SP_SCORE_SPEED_MEDIAN], 1);
  assert_near (scores.value[SP_SCORE_MEMORY_MEDIAN], 0.1);
  assert_near (scores.value[SP_SCORE_LONGEST_DOUBLINGS], 2);
  assert_near (scores.value[SP_SCORE_LONGEST_MEDIAN], 0.75);
}

static void
test_bounds (void)
{
  const SpBound bound = { 0.08, 0.04 }, none = { NAN, NAN };

  g_assert_cmpint (sp_bound_judge (&bound, 0.03, FALSE), ==, SP_VERDICT_GOAL);
  g_assert_cmpint (sp_bound_judge (&bound, 0.08, FALSE), ==, SP_VERDICT_MUST);
  g_assert_cmpint (sp_bound_judge (&bound, 0.081, FALSE), ==, SP_VERDICT_MISSED);
  g_assert_cmpint (sp_bound_judge (&bound, 0.081, TRUE), ==, SP_VERDICT_GOAL);
  g_assert_cmpint (sp_bound_judge (&bound, INFINITY, FALSE), ==, SP_VERDICT_MISSED);
  g_assert_cmpint (sp_bound_judge (&bound, NAN, FALSE), ==, SP_VERDICT_UNMEASURED);
  g_assert_cmpint (sp_bound_judge (&none, 0.03, FALSE), ==, SP_VERDICT_NONE);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static const char nodes[] = "by-nodes,by-size,step_time_s\n16,b,1\n4,b,1\n1,a,1\n4,a,1\n2,a,1\n1,b,1\n";

/* Which rows are fitted, as letters: f, h, and x for aside. */
static char *
split_of (const char *keys)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *set = g_strconcat (SET ROWS, keys, NULL);
  g_autoptr (SpValidation) v = load (set, nodes, &error);
  GString *text = g_string_new (NULL);

  g_assert_no_error (error);
  for (guint i = 0; i < v->runs->len; i++)
    g_string_append_c (text, sp_run_is_aside (run_of (v, i)) ? 'x' : run_of (v, i)->is_fitted ? 'f' : 'h');
  return g_string_free (text, FALSE);
}

static void
test_splits (void)
{
  static const struct {
    const char *keys, *split;
  } cases[] = {
    { "", "hhhhhh" },
    { "split = held-out\n", "hhhhhh" },
    { "split = fit\n", "ffffff" },
    { "split = every 2\n", "fhfhfh" },
    /* 1a 1b 2a 4a 4b 16b: numbers as numbers */
    { "split = every 2 by by-nodes, by-size\n", "hffhfh" },
    { "split = every 3 by by-size\n", "fhfhhh" },
    { "split = where by-nodes <= 2 and by-size != b\n", "hhfhfh" },
    /* what is aside is left out first: 1a 1b 2a 16b */
    { "split = every 2 by by-nodes, by-size\naside.1 = where by-nodes = 4: broken\n", "hxfxfh" },
    { "aside.1 = memory where by-nodes = 4: of one kind alone\n", "hhhhhh" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *split = split_of (cases[i].keys);
    g_test_message ("%s", cases[i].keys);
    g_assert_cmpstr (split, ==, cases[i].split);
  }
}

static void
test_reasons (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpValidation) v =
      load (SET "[bounds]\ntime-median = 10 %\n" ROWS
                "aside.1 = time where by-nodes > 4: starved\nwhy.1 = time where by-size = b: no "
                "model of it\n",
            nodes, &error);

  g_assert_no_error (error);
  g_assert_cmpstr (run_of (v, 0)->aside[SP_ASPECT_TIME], ==, "starved");
  g_assert_null (run_of (v, 0)->aside[SP_ASPECT_MEMORY]);
  g_assert_null (run_of (v, 1)->aside[SP_ASPECT_TIME]);
  g_assert_cmpstr (run_of (v, 1)->why[SP_ASPECT_TIME], ==, "no model of it");
  g_assert_null (run_of (v, 1)->why[SP_ASPECT_MEMORY]);
  g_assert_null (run_of (v, 2)->why[SP_ASPECT_TIME]);
  for (guint i = 0; i < v->runs->len; i++)
    run_of (v, i)->predicted[SP_OBSERVED_STEP_TIME] = i < 2 ? 1.21 : 1.2;
  g_assert_false (sp_run_is_beyond (v, run_of (v, 0), SP_OBSERVED_STEP_TIME)); /* it does not count */
  g_assert_true (sp_run_is_beyond (v, run_of (v, 1), SP_OBSERVED_STEP_TIME));
  g_assert_false (sp_run_is_beyond (v, run_of (v, 2), SP_OBSERVED_STEP_TIME));
}

/* --- predicted ---------------------------------------------------------------------------------------------------- */

/* Steps of a scenario on a device whose products are as quick as said, as others would have measured them. */
static char *
measured_with (const char *scenario, double efficiency, double noise)
{
  static const char *const sets[][4] = { { "sequence=2K", "tensor=1", "data=8", NULL },
                                         { "sequence=4K", "tensor=1", "data=8", NULL },
                                         { "sequence=4K", "tensor=2", "data=4", NULL },
                                         { "sequence=8K", "tensor=2", "data=4", NULL },
                                         { "sequence=8K", "tensor=4", "data=2", NULL } };
  GString *text = g_string_new ("sequence,tensor,data,step_time_s,peak_bytes,outcome\n");
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = 0; i < G_N_ELEMENTS (sets); i++) {
    g_autoptr (GError) error = NULL;
    g_autoptr (SpScenario) s = sp_scenario_load_as_written (scenario, sets[i], &error);
    SpEstimator estimator;
    SpEstimate e;
    g_assert_no_error (error);
    g_assert_true (sp_scenario_check_run (s, FALSE, &error));
    s->cluster->device->gemm_efficiency.value = efficiency;
    sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
    g_assert_true (sp_scenario_price (s, &estimator, program, FALSE, &e, &error));
    g_string_append_printf (text, "%s,%s,%s,%.17g,%.17g,fits\n", sets[i][0] + strlen ("sequence="),
                            sets[i][1] + strlen ("tensor="), sets[i][2] + strlen ("data="),
                            e.step_time_s * (1 + (i % 4 == 0 ? noise : -noise)), e.memory.total_bytes);
  }
  return g_string_free (text, FALSE);
}

static char *
write_scenario (void)
{
  g_autofree char *text = g_strdup_printf ("[model]\nconfig = %s/models/llama-3.2-1b-untied.ini\n[cluster]\nfile = "
                                           "%s/clusters/a100-1x8.ini\n[layout]\ndata = 8\nzero = 1\n[run]\nsequence = "
                                           "2K\nglobal-batch = 8\nframework = flash\n",
                                           sp_data_dir (), sp_data_dir ());

  return write_file ("data.ini", text);
}

/* What a run is predicted to be is what `seqpar run` says of it. */
static void
test_priced (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *scenario = write_scenario (), *data = NULL;

  {
    g_autofree char *path = g_build_filename (sp_data_dir (), "devices", "a100-80.ini", NULL);
    g_autoptr (SpDevice) device = sp_device_load (path, &error);
    g_assert_no_error (error);
    data = measured_with (scenario, device->gemm_efficiency.value, 0);
  }
  g_autoptr (SpValidation) v = load (SET ROWS, data, &error);
  SpScores scores;
  g_assert_no_error (error);
  g_assert_true (sp_validation_price (v, NULL, NULL, &error));
  g_assert_no_error (error);
  for (guint i = 0; i < v->runs->len; i++) {
    const SpMeasuredRun *run = run_of (v, i);
    g_assert_true (run->fits);
    assert_near (run->predicted[SP_OBSERVED_STEP_TIME], run->measured[SP_OBSERVED_STEP_TIME]);
    assert_near (run->predicted[SP_OBSERVED_PEAK], run->measured[SP_OBSERVED_PEAK]);
  }
  if (!score (v, FALSE, &scores))
    return;
  assert_near (scores.value[SP_SCORE_TIME_WORST], 0);
  assert_near (scores.value[SP_SCORE_MEMORY_WORST], 0);
}

/* A constant that steps were made with, but for 0.2 % of noise, comes back; what no step depends on is said not to be known. */
static void
test_fit (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *scenario = write_scenario (), *data = measured_with (scenario, 0.61, 0.002);
  g_autoptr (SpValidation) v = load (SET ROWS "split = every 2\n[fit]\ndevice.gemm-efficiency = 30 % .. 95 %\n"
                                              "framework.host-gather = 1 us .. 2 us\n",
                                     data, &error);

  g_assert_no_error (error);
  g_autoptr (SpValidationFit) fit = sp_validation_fit (&v, 1, &error);
  if (fit == NULL && error->domain == SP_FIT_ERROR) {
    g_test_skip ("built without GSL");
    return;
  }
  g_assert_no_error (error);
  g_assert_cmpuint (fit->n_runs, ==, 3);
  g_assert_cmpuint (fit->n_points, ==, 3); /* the bytes say nothing of it */
  const SpFittedConstant *gemm = &g_array_index (fit->constants, SpFittedConstant, 0);
  const SpFittedConstant *gather = &g_array_index (fit->constants, SpFittedConstant, 1);
  g_assert_cmpstr (gemm->constant->key, ==, "gemm-efficiency");
  g_test_message ("%g +- %g, %g +- %g; %g to %g", gemm->value, gemm->error, gather->value, gather->error, fit->before,
                  fit->after);
  g_assert_false (gemm->is_fixed);
  g_assert_cmpfloat_with_epsilon (gemm->value, 0.61, 0.005);
  g_assert_true (gather->is_fixed);
  g_assert_true (fit->before > 0.02 && fit->after < 0.003);
}

/* --- claims ------------------------------------------------------------------------------------------------------- */

#define CLAIM SET "[check.a]\nscenario = data.ini\n"

static const SpClaim *
price_claim (const char *keys, SpValidation **ret)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *set = g_strconcat (CLAIM, keys, NULL), *scenario = write_scenario ();
  SpValidation *v = *ret = load (set, "x\n", &error);

  g_assert_no_error (error);
  g_assert_true (sp_validation_price (v, NULL, NULL, &error));
  g_assert_no_error (error);
  return v->claims->pdata[0];
}

/* Twice the GPUs a sequence hold about twice its tokens; the length that is found fits, and the next one does not. */
static void
test_longest (void)
{
  g_autoptr (SpValidation) v = NULL, w = NULL, order = NULL;
  const SpClaim *ratio = price_claim ("kind = ratio\nwhat = longest\nresolution = fine\n"
                                      "side.a = ulysses=8; data=1; global-batch=1\nside.b = ulysses=4; data=2; "
                                      "global-batch=2\npublished = 2\ntolerance = 15 %\n",
                                      &v);
  g_test_message ("%s: %g", ratio->detail, ratio->ours);
  g_assert_true (ratio->ours > 1.7 && ratio->ours < 2.1);
  assert_near (ratio->error, fabs (ratio->ours / 2 - 1));
  const SpClaim *value = price_claim ("kind = value\nwhat = longest\nside.a = ulysses=8; data=1; global-batch=1\n"
                                      "published = 32K\ndoublings = 1\n",
                                      &w);
  g_test_message ("%s", value->detail);
  double doublings = log2 (value->ours / 2048);
  assert_near (doublings, round (doublings));
  assert_near (value->error, fabs (log2 (value->ours / 32768)));
  for (guint i = 0; i < 2; i++) {
    g_autofree char *sequence = g_strdup_printf ("sequence=%.0f", value->ours * (i + 1));
    const char *const sets[] = { "ulysses=8", "data=1", "global-batch=1", sequence, NULL };
    g_autofree char *path = g_build_filename (folder, "data.ini", NULL);
    g_autoptr (GError) error = NULL;
    g_autoptr (SpScenario) s = sp_scenario_load_as_written (path, sets, &error);
    g_autoptr (SpProgram) program = sp_program_new ();
    SpEstimator estimator;
    SpEstimate e;
    g_assert_no_error (error);
    sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
    g_assert_true (sp_scenario_price (s, &estimator, program, FALSE, &e, &error));
    g_assert_cmpint (e.fits, ==, i == 0);
  }
  const SpClaim *held = price_claim ("kind = order\nwhat = tokens_per_s\nside.a = tensor=1; data=8\nside.b = tensor=8; "
                                     "data=1\nat = sequence=2K | sequence=4K\n",
                                     &order);
  g_test_message ("%s", held->detail);
  assert_near (held->ours, 1);
  g_assert_true (isnan (held->error));
}

/* The best of times is the shortest, whatever the order of the sides. */
static void
test_best (void)
{
  g_autoptr (SpValidation) speed = NULL, time = NULL, slowest = NULL;
  const SpClaim *of_speed = price_claim ("kind = best\nwhat = tokens_per_s\nside.a = tensor=1; data=8\n"
                                         "side.b = tensor=8; data=1\n",
                                         &speed);
  assert_near (of_speed->ours, 1);
  const SpClaim *of_time = price_claim ("kind = best\nwhat = step_time_s\nside.a = tensor=1; data=8\n"
                                        "side.b = tensor=8; data=1\n",
                                        &time);
  assert_near (of_time->ours, 1);
  const SpClaim *of_slowest = price_claim ("kind = best\nwhat = step_time_s\nside.b = tensor=8; data=1\n"
                                           "side.a = tensor=1; data=8\n",
                                           &slowest);
  assert_near (of_slowest->ours, 0);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  make_folder ();
  g_test_add_func ("/validation/scores", test_scores);
  g_test_add_func ("/validation/honest", test_honest);
  g_test_add_func ("/validation/chosen-out-of-memory", test_chosen_out_of_memory);
  g_test_add_func ("/validation/speeds-and-lengths", test_speeds_and_lengths);
  g_test_add_func ("/validation/bounds", test_bounds);
  g_test_add_func ("/validation/splits", test_splits);
  g_test_add_func ("/validation/reasons", test_reasons);
  g_test_add_func ("/validation/priced", test_priced);
  g_test_add_func ("/validation/fit", test_fit);
  g_test_add_func ("/validation/longest", test_longest);
  g_test_add_func ("/validation/best", test_best);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
