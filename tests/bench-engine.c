/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/scenario.h"
#include "models/simulate/simulate.h"
#include "models/writer.h"
#include "tests/bench.h"

#include <stdio.h>

/* Whole steps, every GPU by itself, collectives as fluids, memory counted, no trace: task events (kernels and
 * communication of every GPU) a second of CPU time, best of 3, and how it grows with the GPUs. Mixed: tensor, pipeline,
 * data, and sequence ranks that run ulysses x ring in softmax layers and lasp in linear ones. */

static SpArchitecture *
mixed_model (void)
{
  SpArchitecture *arch = sp_architecture_new ();

  g_free (arch->name);
  arch->name = g_strdup ("mixed");
  arch->layers = 64;
  arch->hidden = 8192;
  arch->heads = 64;
  arch->kv_heads = 64;
  arch->head_size = 128;
  arch->ffn = 28672;
  arch->vocabulary = 128256;
  for (gint32 l = 0; l < arch->layers; l++)
    arch->layer_kind[l] = l % 4 == 3 ? SP_LAYER_SOFTMAX : SP_LAYER_LINEAR;
  return arch;
}

static void
bench (const SpArchitecture *arch, const char *what, gint32 data, SpSimulateOptions options, gint32 lasp_version)
{
  const SpVariations usual = SP_VARIATIONS_DEFAULT;
  g_autofree char *cluster_path = sp_find_cluster ("h100-128x8", NULL), *frame_path = sp_find_framework ("flash", NULL);
  g_autoptr (SpCluster) cluster = sp_cluster_load (cluster_path, NULL);
  g_autoptr (SpFramework) framework = sp_framework_load (frame_path, NULL);
  g_autoptr (SpProgram) program = sp_program_new ();
  SpLayout layout = SP_LAYOUT_DEFAULT;
  SpEstimator estimator;
  double best = INFINITY;
  guint64 tasks = 0;

  layout.tensor = 8;
  layout.pipeline = 4;
  layout.ulysses = 2;
  layout.ring = 2;
  layout.lasp = 4;
  layout.lasp_version = lasp_version;
  layout.token_split = SP_TOKENS_CONTIGUOUS;
  layout.data = data;
  SpRun run = {
    .sequence = 32768, .micro_batch = 1, .global_batch = 16 * data, .precision = SP_DTYPE_BF16, .causal = TRUE
  };
  g_assert_true (sp_layout_check (&layout, arch, framework, &run, 0, NULL));
  sp_estimator_init (&estimator, arch, cluster, framework, SP_MFU_SEQPAR);
  sp_program_write (program, arch, framework, &layout, &run);
  sp_cost_set_paths (&estimator.cost, cluster, program);
  for (guint i = 0; i < 3; i++) {
    g_auto (SpSimulated) s = { 0 };
    g_autoptr (GError) error = NULL;
    double from = bench_cpu_s ();
    gboolean ok = sp_simulate (&estimator, program, &run, &usual, &options, &s, &error);
    g_assert_no_error (error);
    g_assert_true (ok);
    best = MIN (best, bench_cpu_s () - from);
    tasks = s.run->n_tasks;
  }
  printf ("%-34s %5d GPUs  %9.3f M tasks  %8.3f s  %6.2f M tasks/s\n", what, program->world, (double) tasks * 1e-6,
          best, (double) tasks / best * 1e-6);
}

int
main (void)
{
  g_autoptr (SpArchitecture) arch = mixed_model ();
  const SpSimulateOptions unfolded = { .unfolded = TRUE }, folded = { 0 };

  for (gint32 data = 1; data <= 8; data *= 2)
    bench (arch, "mixed step, unfolded", data, unfolded, 2);
  bench (arch, "mixed step, LASP's chain, unfolded", 8, unfolded, 1);
  bench (arch, "mixed step, folded", 8, folded, 2);
  return 0;
}
