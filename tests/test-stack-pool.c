/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a framework adds to the pool of its allocator: what waits for a GPU that the host is ahead of, buffers of gathers
 * that stay, workspaces; steps without room for it; and the pool of the first stage.
 */
#include "models/estimate/memory.h"
#include "tests/stack-case.h"

#include <math.h>

/* What a product's ranks sum: 4,096 tokens of 2 sequences, 3,072 wide, in bf16. */
#define SUM_BYTES (4096.0 * 2 * 3072 * 2)

/* The 3B model of nanotron's grid over two nodes' ranks, so that links take longer than the host; nothing else added. */
static void
pool_init (Case *c, const char *global_batch)
{
  g_autofree char *batch = g_strdup_printf ("global-batch=%s", global_batch);
  const char *const sets[] = { "nodes=16", "data=8", "tensor=16", "zero=1", "micro-batch=2", batch, NULL };

  case_init (c, "papers/nanotron-3b.ini", sets);
  c->framework.run_ahead.value = c->framework.workspace_bytes.value = c->framework.crowded_time.value = 0;
  c->framework.keeps_gathers = FALSE;
}

static double
host_share (const SpEstimate *e)
{
  return e->host_issue_s / (e->compute_s + e->exposed_communication_s + e->idle_s);
}

/* --- ahead -------------------------------------------------------------------------------------------------------- */

/* Of one micro-batch all that is issued in its forward and not run: two sums a layer, and the embedding's. Of more it
 * is as many kernels as the host may be ahead, and twice as many are at most twice the bytes. */
static void
test_run_ahead (void)
{
  g_auto (Case) one = { 0 }, many = { 0 };
  double before = 0;

  pool_init (&one, "16");
  SpEstimate plain = estimate (&one);
  g_assert_cmpfloat (plain.memory.run_ahead_bytes, ==, 0);
  one.framework.run_ahead.value = 1e6;
  SpEstimate ahead = estimate (&one);
  g_assert_cmpfloat (host_share (&ahead), <, 1);
  double expected = (1 - host_share (&ahead)) * (2 * 28 + 1) * SUM_BYTES;
  g_assert_cmpfloat (fabs (ahead.memory.run_ahead_bytes / expected - 1), <, 1e-12);
  g_assert_cmpfloat (ahead.memory.total_bytes, ==, plain.memory.total_bytes + ahead.memory.run_ahead_bytes);
  g_assert_cmpfloat (ahead.step_time_s, ==, plain.step_time_s);

  pool_init (&many, "256");
  for (double kernels = 50; kernels < 1000; kernels *= 2) {
    many.framework.run_ahead.value = kernels;
    double bytes = estimate (&many).memory.run_ahead_bytes;
    g_assert_cmpfloat (bytes, >, before);
    g_assert_true (before == 0 || bytes <= 2.2 * before);
    before = bytes;
  }
}

/* Nor is a host ahead that takes longer than the GPU, or issues nothing. */
static void
test_not_ahead (void)
{
  g_auto (Case) c = { 0 };

  pool_init (&c, "256");
  c.framework.run_ahead.value = 260;
  g_assert_cmpfloat (estimate (&c).memory.run_ahead_bytes, >, 0);
  c.framework.host_launch_s.value *= 100;
  g_assert_true (estimate (&c).is_host_bound);
  g_assert_cmpfloat (estimate (&c).memory.run_ahead_bytes, ==, 0);
  c.framework.host_eager = FALSE;
  g_assert_cmpfloat (estimate (&c).memory.run_ahead_bytes, ==, 0);
}

/* --- no room ------------------------------------------------------------------------------------------------------ */

static void
test_crowded (void)
{
  g_auto (Case) c = { 0 };
  SpDevice device;

  pool_init (&c, "256");
  SpEstimate plain = estimate (&c);
  double plain_simulated_s = simulated_s (&c);
  device = *c.cluster.device;
  c.cluster.device = &device;
  c.framework.run_ahead.value = 260;
  c.framework.crowded_time.value = 3;
  SpEstimate roomy = estimate (&c);
  g_assert_false (roomy.memory.is_crowded);
  g_assert_cmpfloat (roomy.step_time_s, ==, plain.step_time_s);

  device.memory_bytes.value = plain.memory.total_bytes + roomy.memory.run_ahead_bytes / 2;
  SpEstimate crowded = estimate (&c);
  g_assert_true (crowded.memory.is_crowded && crowded.fits);
  g_assert_cmpfloat (fabs (crowded.memory.total_bytes / device.memory_bytes.value - 1), <, 1e-12);
  g_assert_cmpfloat (fabs (crowded.step_time_s / plain.step_time_s - 3), <, 1e-9);
  g_assert_cmpfloat (fabs (crowded.tokens_per_s * 3 / plain.tokens_per_s - 1), <, 1e-9);
  g_assert_cmpfloat (crowded.low_s, ==, plain.low_s);
  g_assert_cmpfloat (crowded.step_time_s, <=, crowded.high_s);
  g_assert_cmpfloat (fabs (simulated_s (&c) / plain_simulated_s - 3), <, 1e-9);

  device.memory_bytes.value = plain.memory.total_bytes - 1;
  g_assert_false (estimate (&c).fits);
}

/* --- beside the program ------------------------------------------------------------------------------------------- */

/* Two buffers of a whole input, in the estimate and in what is simulated. */
static void
test_kept (void)
{
  const SpVariations usual = SP_VARIATIONS_DEFAULT;
  const SpSimulateOptions options = { .samples = 1 };
  g_autoptr (GError) error = NULL;
  g_auto (SpSimulated) simulated = { 0 };
  g_auto (Case) c = { 0 };

  pool_init (&c, "256");
  SpEstimate plain = estimate (&c);
  c.framework.keeps_gathers = TRUE;
  c.framework.workspace_bytes.value = 1e8;
  SpEstimate kept = estimate (&c);
  g_assert_cmpfloat (fabs (kept.memory.total_bytes - plain.memory.total_bytes - 2 * SUM_BYTES - 1e8), <, 1);
  g_assert_true (sp_simulate (&c.estimator, c.program, &c.scenario->run, &usual, &options, &simulated, &error));
  g_assert_no_error (error);
  g_assert_cmpfloat (simulated.result.memory.by_class[SP_CLASS_WORKSPACE], ==,
                     kept.memory.by_class[SP_CLASS_WORKSPACE]);
  g_assert_cmpfloat (simulated.result.memory.gathers_bytes, ==, 2 * SUM_BYTES);
}

/* With one micro-batch the last of two stages is the fullest, as it has the logits; with four in flight the first. */
static void
test_first_stage (void)
{
  static const struct {
    const char *sets[6];
    gboolean is_fullest;
  } rows[] = {
    { { "nodes=4", "data=16", "pipeline=2", "micro-batch=8", "global-batch=128", NULL }, FALSE },
    { { "nodes=4", "data=8", "pipeline=4", "micro-batch=1", "stage-split=5,5,5,1", NULL }, TRUE },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_auto (Case) c = { 0 };
    SpMemory first;
    case_init (&c, "papers/nanotron-1b.ini", rows[i].sets);
    SpEstimate e = estimate (&c);
    sp_estimate_first_stage (&c.estimator, c.program, &c.scenario->run, &e, &first);
    g_assert_cmpint (first.stage, ==, 0);
    g_assert_cmpint (e.memory.stage == 0, ==, rows[i].is_fullest);
    g_assert_true (rows[i].is_fullest ? first.total_bytes == e.memory.total_bytes
                                      : first.total_bytes < 0.8 * e.memory.total_bytes);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/stack-pool/run-ahead", test_run_ahead);
  g_test_add_func ("/stack-pool/not-ahead", test_not_ahead);
  g_test_add_func ("/stack-pool/crowded", test_crowded);
  g_test_add_func ("/stack-pool/kept", test_kept);
  g_test_add_func ("/stack-pool/first-stage", test_first_stage);
  return g_test_run ();
}
