/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that a power limit leaves: by hand from a program's commands, the same in every reader, and none without it. */
#include "models/estimate/clock.h"

#include <math.h>
#include <string.h>

#include "models/estimate/block-cache.h"
#include "models/inputs/profile.h"
#include "models/rehearse/recording.h"
#include "tests/shipped.h"
#include "tests/subject.h"

#define HEAD "[profile]\nname = test\n"
#define GEMM                                                                                                           \
  "[gemm]\nlaunch = 2 us\nrate = 800 TFLOP/s\nmemory-rate = 3000 GB/s\nprologue = 200\ntile-128 = 0.9\n"               \
  "tile-64 = 0.5\ntail = 0.5\n"
/* A curve of a program's kernel, half of which FLOP bound. */
#define ATTENTION "[kernel.attention.causal.7.3]\nlaunch = 10 us\nrate = 500 TFLOP/s\n"
#define IDLE 60.0
#define FLOP 1.5e-12
#define BYTE 90e-12

/* Of cards that differ by `spread`, and draw `energy` times as much as those above. */
static char *
profile_text (double limit_w, double spread, double energy)
{
  g_autofree char *differ = spread > 0 ? g_strdup_printf ("spread = %.17g\n", spread) : g_strdup ("");

  return limit_w > 0 ? g_strdup_printf (HEAD GEMM ATTENTION
                                        "[power]\nidle = %g W\nflop = %.17g pJ\nbyte = %.17g pJ\nlimit = %.17g W\n%s",
                                        IDLE, energy * FLOP * 1e12, energy * BYTE * 1e12, limit_w, differ)
                     : g_strdup (HEAD GEMM ATTENTION);
}

/* A shipped scenario, on a card that draws at most limit_w; 0: nothing is known of it. */
static void
subject_of_cards (Subject *s, const char *name, double limit_w, double spread, double energy)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = g_build_filename (g_getenv ("SEQPAR_DATA"), "executed", name, NULL);
  g_autofree char *text = profile_text (limit_w, spread, energy);

  s->scenario = sp_scenario_load (path, NULL, &error);
  g_assert_no_error (error);
  s->scenario->cluster->profile = sp_profile_parse ("p.ini", text, strlen (text), &error);
  g_assert_no_error (error);
  s->program = sp_program_new ();
  sp_estimator_init (&s->estimator, s->scenario->arch, s->scenario->cluster, s->scenario->framework, SP_MFU_SEQPAR);
  sp_estimate_layout (&s->estimator, s->program, &s->scenario->layout, &s->scenario->run, &s->estimate);
}

static void
subject_init (Subject *s, const char *name, double limit_w)
{
  subject_of_cards (s, name, limit_w, 0, 1);
}

/* What the commands of one GPU's work draw, one kernel after the other at the clock that was found. */
static double
drawn_w (const Subject *s)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpRecording) recording = sp_record (s->program, 0, 7, &error);
  SpCost cost = s->estimator.cost;
  double flops = 0, bytes = 0, seconds = 0;

  g_assert_no_error (error);
  cost.clock = cost.clocks[0];
  for (guint i = 0; i < recording->commands->len; i++) {
    const SpCommand *command = &g_array_index (recording->commands, SpCommand, i);
    gboolean work = command->phase == SP_PHASE_FORWARD || command->phase == SP_PHASE_RECOMPUTE ||
                    command->phase == SP_PHASE_BACKWARD;
    if (!work || command->op.kind == SP_OP_ZERO || sp_op_is_communication (command->op.kind))
      continue;
    flops += command->op.flops;
    bytes += (double) command->op.bytes;
    seconds += sp_cost_op (&cost, &command->op);
  }
  return IDLE + (FLOP * cost.clock * cost.clock * flops + BYTE * bytes) / seconds;
}

/* Under every limit that holds it down it draws that, and under one that does not less. */
static void
test_limit (void)
{
  static const char *const names[] = { "one/s1b-8k-recompute.ini", "one/l350m-16k-recompute.ini", "one/s350m-8k.ini" };
  static const double limits_w[] = { 450, 550, 650, 5000 };

  for (guint i = 0; i < G_N_ELEMENTS (names); i++) {
    double before = 0;
    for (guint l = 0; l < G_N_ELEMENTS (limits_w); l++) {
      g_auto (Subject) s = { 0 };
      subject_init (&s, names[i], limits_w[l]);
      double clock = s.estimator.cost.clocks[0], watts = drawn_w (&s);
      g_test_message ("%s, %g W: clock %.4f, draws %.2f W, step %.6g s", names[i], limits_w[l], clock, watts,
                      s.estimate.step_time_s);
      g_assert_cmpfloat (clock, >=, before);
      before = clock;
      if (clock < 1)
        g_assert_cmpfloat (fabs (watts / limits_w[l] - 1), <, 2e-3);
      else
        g_assert_cmpfloat (watts, <, limits_w[l]);
    }
    g_assert_true (before == 1);
  }
}

/* A limit that is never reached is none: not a bit of the estimate is another. */
static void
test_neutral (void)
{
  g_auto (Subject) without = { 0 }, with = { 0 };

  subject_init (&without, "s1b-8k-tensor2.ini", 0);
  subject_init (&with, "s1b-8k-tensor2.ini", 90e3);
  g_assert_true (memcmp (&without.estimate, &with.estimate, sizeof with.estimate) == 0);
  g_assert_true (without.estimator.cost.clocks[0] == 1 && with.estimator.cost.clocks[0] == 1);
}

/* What memory bounds takes as long at any clock, and what FLOP bound longer. */
static void
test_kernels (void)
{
  g_auto (Subject) s = { 0 };
  SpOp norm = { .kind = SP_OP_NORM, .m = 8192, .k = 2048, .bytes = 1 << 26 };
  SpOp gemm = {
    .kind = SP_OP_GEMM, .m = 8192, .n = 8192, .k = 8192, .batch = 1, .bytes = 3 << 27, .flops = 2.0 * 8192 * 8192 * 8192
  };

  subject_init (&s, "one/s350m-8k.ini", 600);
  SpCost *cost = &s.estimator.cost;
  g_assert_true (cost->clock == 1);
  double norm_s = sp_cost_op (cost, &norm), gemm_s = sp_cost_op (cost, &gemm) - cost->kernel_launch_s[SP_OP_GEMM];
  cost->clock = 0.8;
  g_assert_true (sp_cost_op (cost, &norm) == norm_s);
  g_assert_cmpfloat (fabs ((sp_cost_op (cost, &gemm) - cost->kernel_launch_s[SP_OP_GEMM]) / gemm_s - 1 / 0.8), <, 1e-9);
}

/* The simulator in series is the estimate's, folded or not; and an estimate from a cache is the one without. */
static void
test_readers (void)
{
  static const char *const names[] = { "s350m-16k-ring2-zero1.ini", "l350m-16k-lasp2-v1-zero1.ini",
                                       "s350m-4k-pipeline2.ini", "s1b-4k-data2-zero3.ini" };

  for (guint i = 0; i < G_N_ELEMENTS (names); i++) {
    g_auto (Subject) s = { 0 };
    g_autoptr (GError) error = NULL;
    subject_init (&s, names[i], 450);
    g_assert_cmpfloat (s.estimator.cost.clocks[0], <, 0.95);
    for (guint unfolded = 0; unfolded < 2; unfolded++) {
      g_auto (SpSimulated) simulated = { 0 };
      SpSimulateOptions options = { .serial = TRUE, .unfolded = unfolded };
      g_assert_true (sp_simulate (&s.estimator, s.program, &s.scenario->run, &s.scenario->variations, &options,
                                  &simulated, &error));
      g_assert_no_error (error);
      g_assert_cmpfloat (fabs (simulated.result.step_time_s / simulated.result.serial_s - 1), <, 1e-3);
    }
    g_autoptr (SpBlockCache) cache = sp_block_cache_new (4);
    g_autoptr (SpProgram) program = sp_program_new ();
    SpEstimator cached = s.estimator;
    SpEstimate estimate;
    cached.cache = cache;
    for (guint turn = 0; turn < 2; turn++) {
      cached.cost.clocks[0] = cached.cost.clocks[1] = 0.5;
      sp_estimate_layout (&cached, program, &s.scenario->layout, &s.scenario->run, &estimate);
      g_assert_true (memcmp (&estimate, &s.estimate, sizeof estimate) == 0);
      g_assert_true (cached.cost.clocks[0] == s.estimator.cost.clocks[0]);
    }
  }
}

/* Cards that differ: of two the one that draws more is to be expected 1 / sqrt (pi) of their spread above the mean, and the
 * step is that of cards which all draw as much; one card alone is the mean one. */
static void
test_cards (void)
{
  const struct {
    const char *name;
    double above; /* standard deviations */
  } cases[] = { { "s1b-8k-tensor2.ini", 1 / sqrt (G_PI) }, { "one/s1b-8k-recompute.ini", 0 } };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_auto (Subject) alike = { 0 }, differ = { 0 }, worse = { 0 };
    subject_init (&alike, cases[i].name, 500);
    subject_of_cards (&differ, cases[i].name, 500, 0.1, 1);
    subject_of_cards (&worse, cases[i].name, 500, 0, exp (0.1 * cases[i].above));
    double ratio = differ.estimate.step_time_s / worse.estimate.step_time_s;
    g_test_message ("%s: %.6g s, of cards that differ %.6g s", cases[i].name, alike.estimate.step_time_s,
                    differ.estimate.step_time_s);
    g_assert_cmpfloat (fabs (ratio - 1), <, 1e-9);
    g_assert_true ((differ.estimate.step_time_s > alike.estimate.step_time_s * 1.001) == (cases[i].above > 0));
  }
}

/* One cache for numbers of GPUs whose blocks are alike: each has its own clock. */
static void
test_cards_cached (void)
{
  g_auto (Subject) s = { 0 };
  g_autoptr (SpBlockCache) cache = sp_block_cache_new (4);
  double before = 1;

  subject_of_cards (&s, "s350m-8k-data2-zero1.ini", 450, 0.1, 1);
  SpEstimator cached = s.estimator;
  cached.cache = cache;
  for (gint32 data = 1; data <= 2; data++) {
    SpLayout layout = s.scenario->layout;
    SpEstimate with, without;
    layout.data = data;
    sp_estimate_layout (&cached, s.program, &layout, &s.scenario->run, &with);
    sp_estimate_layout (&s.estimator, s.program, &layout, &s.scenario->run, &without);
    g_assert_true (memcmp (&with, &without, sizeof with) == 0);
    g_assert_cmpfloat (cached.cost.clocks[0], <, before * 0.999);
    before = cached.cost.clocks[0];
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/clock/limit", test_limit);
  g_test_add_func ("/clock/neutral", test_neutral);
  g_test_add_func ("/clock/kernels", test_kernels);
  g_test_add_func ("/clock/readers", test_readers);
  g_test_add_func ("/clock/cards", test_cards);
  g_test_add_func ("/clock/cards/cached", test_cards_cached);
  return g_test_run ();
}
