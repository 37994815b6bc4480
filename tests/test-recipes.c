/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/memory.h"
#include "models/simulate/simulate.h"
#include "tests/published.h"
#include "tests/shipped.h"

#include <math.h>

/* Recipes that trade memory for time. G05 is a reference case. */

static void
estimate_one (const SpArchitecture *arch, const SpCluster *cluster, const SpFramework *framework,
              const SpLayout *layout, const SpRun *run, SpProgram *program, SpEstimate *ret)
{
  SpEstimator estimator;

  write_legal (program, arch, framework, layout, run);
  sp_estimator_init (&estimator, arch, cluster, framework, SP_MFU_SEQPAR);
  sp_estimate_program (&estimator, program, run, ret);
}

/* --- G05: 32K tokens a GPU, whatever the context parallelism -------------------------------------------------------- */

/* torchtitan's Llama-3.1-8B, full recompute, sharded over all 8 GPUs: from 32K tokens on one to 256K on eight 83.9, 84.2,
 * 84.0 and 84.5 GiB. */
static void
test_flat_context (void)
{
  g_autoptr (SpArchitecture) arch = load_model ("llama-3.1-8b");
  g_autoptr (SpFramework) framework = load_framework ("flash");
  g_autoptr (SpCluster) cluster = load_cluster ("h100-96-64x8");
  g_autoptr (SpProgram) program = sp_program_new ();
  double least = INFINITY, most = 0;

  cluster->nodes = 1;
  for (gint32 context = 1; context <= 8; context *= 2) {
    SpLayout layout = SP_LAYOUT_DEFAULT;
    SpRun run = { 32768 * context, 1, 8 / context, SP_DTYPE_BF16, TRUE };
    SpEstimate estimate;
    layout.ring = context;
    layout.data = 8 / context;
    layout.zero = 3;
    layout.recompute = SP_RECOMPUTE_FULL;
    estimate_one (arch, cluster, framework, &layout, &run, program, &estimate);
    double gib = estimate.memory.total_bytes / GIB;
    g_test_message ("context %d: %.2f GiB at %s, logits %.2f; published 83.9 to 84.5", context, gib,
                    estimate.memory.moment, estimate.memory.by_class[SP_CLASS_LOGITS] / GIB);
    least = MIN (least, gib);
    most = MAX (most, gib);
  }
  g_assert_cmpfloat (most - least, <, 1);
}

/* --- recompute of a part of the layers ------------------------------------------------------------------------------ */

/* 32 layers: every second one keeps its input alone (8192 bytes a token) in the place of the whole stash; so memory and
 * work lie half way between none and full, and the first 8 of each of 4 stages are all of them. */
static void
test_every_second (void)
{
  static const struct {
    gint32 every, first;
    double recomputed; /* of all layers */
  } cases[] = { { 1, 0, 1 }, { 2, 0, 0.5 }, { 4, 0, 0.25 }, { 1, 2, 0.25 }, { 1, 8, 1 } };
  g_autoptr (SpArchitecture) arch = load_model ("llama-3.1-8b");
  g_autoptr (SpFramework) framework = load_framework ("flash");
  g_autoptr (SpCluster) cluster = load_cluster ("a100-16x8");
  g_autoptr (SpProgram) program = sp_program_new ();
  SpRun run = { 8192, 1, 16, SP_DTYPE_BF16, TRUE };
  SpLayout layout = SP_LAYOUT_DEFAULT;
  SpEstimate none, full;

  cluster->nodes = 1;
  layout.pipeline = 4;
  layout.data = 2;
  estimate_one (arch, cluster, framework, &layout, &run, program, &none);
  layout.recompute = SP_RECOMPUTE_FULL;
  estimate_one (arch, cluster, framework, &layout, &run, program, &full);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    SpEstimate part;
    double of = cases[i].recomputed;
    layout.recompute_every = cases[i].every;
    layout.recompute_first = cases[i].first;
    estimate_one (arch, cluster, framework, &layout, &run, program, &part);
    double hfu = part.hfu * part.step_time_s,
           expected = (1 - of) * none.hfu * none.step_time_s + of * full.hfu * full.step_time_s;
    g_test_message ("every %d, first %d: %.2f GiB of %.2f and %.2f, FLOP %.6g, expected %.6g", cases[i].every,
                    cases[i].first, part.memory.total_bytes / GIB, none.memory.total_bytes / GIB,
                    full.memory.total_bytes / GIB, hfu, expected);
    g_assert_true (is_near (hfu, expected, 1e-9));
    g_assert_cmpfloat (part.memory.total_bytes, <=, none.memory.total_bytes);
    g_assert_cmpfloat (part.memory.total_bytes, >=, full.memory.total_bytes);
    g_assert_true (of < 1 || part.memory.total_bytes == full.memory.total_bytes);
  }
}

/* --- simulated ------------------------------------------------------------------------------------------------------ */

/* What is in host memory or not trained, through the simulator: with nothing beside anything else it takes what
 * `serial` says, else no less than `low` and no more than `high`; the fullest GPU holds what the estimate says, or
 * less: that counts the largest block as gathered ahead, wherever the peak is. */
static void
test_simulated (void)
{
  static const struct {
    SpLayout layout;
    SpRun run;
  } cases[] = {
    { { SP_LAYOUT_DEFAULT_FIELDS, .offload = SP_OFFLOAD_OPTIMIZER }, { 0 } },
    { { SP_LAYOUT_DEFAULT_FIELDS, .offload = SP_OFFLOAD_ALL }, { .lora_rank = 16 } },
    { { SP_LAYOUT_DEFAULT_FIELDS }, { .lora_rank = 8, .lora_targets = SP_LORA_Q | SP_LORA_V } },
    { { SP_LAYOUT_DEFAULT_FIELDS }, { .frozen = SP_FREEZE_EMBEDDING, .frozen_layers = 16 } },
    { { SP_LAYOUT_DEFAULT_FIELDS }, { .frozen = SP_FREEZE_HEAD, .frozen_layers = 3 } },
  };
  const SpVariations usual = SP_VARIATIONS_DEFAULT;
  g_autoptr (SpArchitecture) arch = load_model ("llama-3.1-8b");
  g_autoptr (SpFramework) framework = load_framework ("flash");
  g_autoptr (SpCluster) cluster = load_cluster ("h100-1x8");
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    for (guint serial = 0; serial < 2; serial++) {
      SpSimulateOptions options = { .serial = (gboolean) serial };
      g_autoptr (GError) error = NULL;
      SpLayout layout = cases[i].layout;
      SpRun run = cases[i].run;
      SpEstimator estimator;
      SpEstimate estimate;
      SpSimulated simulated;
      run.sequence = 2048;
      run.micro_batch = 1;
      run.global_batch = 16;
      run.precision = SP_DTYPE_BF16;
      run.causal = TRUE;
      layout.data = 8;
      layout.zero = 3;
      layout.recompute = SP_RECOMPUTE_FULL;
      estimate_one (arch, cluster, framework, &layout, &run, program, &estimate);
      sp_estimator_init (&estimator, arch, cluster, framework, SP_MFU_SEQPAR);
      sp_estimate_refine (&estimator, program, &estimate);
      g_assert_true (sp_simulate (&estimator, program, &run, &usual, &options, &simulated, &error));
      g_assert_no_error (error);
      double seconds = simulated.result.step_time_s;
      g_test_message ("case %u: %.6f s, low %.6f, serial %.6f, high %.6f", i, seconds, estimate.low_s, estimate.serial_s,
                      estimate.high_s);
      if (serial)
        g_assert_true (is_near (seconds, estimate.serial_s, 1e-3));
      g_assert_cmpfloat (seconds, >=, estimate.low_s * (1 - 1e-9));
      g_assert_cmpfloat (seconds, <=, estimate.high_s * (1 + 1e-9));
      g_assert_cmpfloat (simulated.result.memory.total_bytes, <=, estimate.memory.total_bytes);
      g_assert_cmpfloat (simulated.result.memory.total_bytes, >, 0.9 * estimate.memory.total_bytes);
      sp_simulated_clear (&simulated);
    }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/recipes/flat-context", test_flat_context);
  g_test_add_func ("/recipes/every-second", test_every_second);
  g_test_add_func ("/recipes/simulated", test_simulated);
  return g_test_run ();
}
