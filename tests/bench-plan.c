/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/scenario.h"
#include "models/planner.h"
#include "tests/bench.h"

/*
 * Searches at the size that they are for, on one thread by CPU time, once each: what a search has found out it keeps with
 * the cluster, so that a second one would be another thing. Candidates, what of them the bounds cut off, what was
 * estimated, seconds, and candidates that were decided a second.
 *   405B    Llama 3.1 405B on 16,384 H100, sequences of 128K tokens, 128 of them: the usual and the whole space
 *   175B    a GPT of 175B on 64 A100, 64 sequences of 2K, the whole space
 */

static const struct {
  const char *name, *model, *cluster;
  gint64 sequence;
  gint32 global_batch;
  gboolean is_whole;
} searches[] = {
  { "405B usual", "llama-3.1-405b", "h100-2048x8", 131072, 128, FALSE },
  { "405B whole", "llama-3.1-405b", "h100-2048x8", 131072, 128, TRUE },
  { "175B whole", "megatron-175b", "a100-8x8", 2048, 64, TRUE },
};

static gpointer
checked (gpointer loaded, GError *error)
{
  if (error)
    g_error ("%s", error->message);
  return loaded;
}

static void
time_search (guint i)
{
  GError *error = NULL;
  g_autofree char *model = checked (sp_find_model (searches[i].model, &error), error);
  g_autofree char *machine = checked (sp_find_cluster (searches[i].cluster, &error), error);
  g_autofree char *stack = checked (sp_find_framework ("flash", &error), error);
  SpArchitecture *arch = checked (sp_architecture_load (model, &error), error);
  SpCluster *cluster = checked (sp_cluster_load (machine, &error), error);
  SpFramework *framework = checked (sp_framework_load (stack, &error), error);
  SpEstimator estimator;
  const SpPlanQuestion question = { .sequence = searches[i].sequence,
                                    .global_batch = searches[i].global_batch,
                                    .top = 10,
                                    .causal = TRUE,
                                    .base = SP_LAYOUT_DEFAULT,
                                    .fixed = searches[i].is_whole ? 0 : sp_plan_beyond_usual (),
                                    .threads = 1 };

  sp_estimator_init (&estimator, arch, cluster, framework, SP_MFU_SEQPAR);
  double start = bench_cpu_s ();
  g_autoptr (SpPlan) plan = checked (sp_plan (&estimator, &question, &error), error);
  double spent = bench_cpu_s () - start;
  g_print ("%-11s %12" G_GINT64_FORMAT " candidates, %.1f %% pruned, %" G_GINT64_FORMAT
           " estimated: %.2f s, %.3g layouts/s a core\n",
           searches[i].name, plan->candidates, 100 * (double) plan->pruned / (double) plan->candidates, plan->estimated,
           spent, (double) plan->candidates / spent);
  sp_architecture_free (arch);
  sp_cluster_free (cluster);
  sp_framework_free (framework);
}

int
main (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (searches); i++)
    time_search (i);
  return 0;
}
