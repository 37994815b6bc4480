/* SPDX-License-Identifier: Apache-2.0 */
#include "models/questions/questions.h"

GArray *
sp_plan_gpu_counts (const SpCluster *cluster)
{
  GArray *counts = g_array_new (FALSE, FALSE, sizeof (gint32));
  gint32 node = cluster->gpus_per_node;

  for (gint32 gpus = 1; gpus < node; gpus++)
    if (node % gpus == 0)
      g_array_append_val (counts, gpus);
  for (gint32 nodes = 1; nodes <= cluster->nodes; nodes++) {
    gint32 gpus = nodes * node;
    if ((nodes & (nodes - 1)) == 0 || cluster->nodes % nodes == 0)
      g_array_append_val (counts, gpus);
  }
  return counts;
}

const SpPlanEntry *
sp_plan_best (const SpPlan *plan)
{
  return plan != NULL && plan->entries->len > 0 ? &g_array_index (plan->entries, SpPlanEntry, 0) : NULL;
}

double
sp_plan_gpu_s_per_token (const SpPlanTrial *trial, const SpPlanEntry *entry)
{
  return trial->gpus / entry->estimate.tokens_per_s;
}

gboolean
sp_plan_trial_reaches (const SpPlanTrial *trial, double target_tokens_per_s)
{
  const SpPlanEntry *best = sp_plan_best (trial->plan);

  return best != NULL && best->estimate.tokens_per_s >= target_tokens_per_s;
}

static void
trial_free (gpointer data)
{
  SpPlanTrial *trial = data;

  sp_plan_free (trial->plan);
  g_free (trial->reason);
  g_free (trial);
}

/* NULL with an error that is not about layouts of so many GPUs. */
static SpPlanTrial *
try_count (SpEstimator *estimator, const SpPlanQuestion *question, gint32 gpus, GError **error)
{
  g_autoptr (GError) refused = NULL;
  SpPlanQuestion q = *question;
  gint32 cluster = estimator->cluster->nodes * estimator->cluster->gpus_per_node;

  q.gpus = gpus;
  SpPlan *plan = sp_plan (estimator, &q, &refused);
  if (plan == NULL && (gpus > cluster || !g_error_matches (refused, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL))) {
    g_propagate_error (error, g_steal_pointer (&refused));
    return NULL;
  }
  SpPlanTrial *trial = g_new0 (SpPlanTrial, 1);
  *trial = (SpPlanTrial){ .gpus = gpus, .plan = plan, .reason = refused ? g_strdup (refused->message) : NULL };
  return trial;
}

/* Entries are the quickest first. */
static void
keep_reaching (SpPlan *plan, double target_tokens_per_s)
{
  guint n = 0;

  while (n < plan->entries->len &&
         g_array_index (plan->entries, SpPlanEntry, n).estimate.tokens_per_s >= target_tokens_per_s)
    n++;
  g_array_set_size (plan->entries, n);
}

/* The trial at the end of the list, against those before it. */
static void
rank_last (SpPlanGpus *gpus)
{
  gint last = (gint) gpus->trials->len - 1;
  const SpPlanTrial *trial = gpus->trials->pdata[last], *other;
  const SpPlanEntry *best = sp_plan_best (trial->plan);

  if (best == NULL)
    return;
  other = gpus->quickest >= 0 ? gpus->trials->pdata[gpus->quickest] : NULL;
  if (other == NULL || best->estimate.tokens_per_s > sp_plan_best (other->plan)->estimate.tokens_per_s)
    gpus->quickest = last;
  if (!sp_plan_trial_reaches (trial, gpus->target_tokens_per_s))
    return;
  keep_reaching (trial->plan, gpus->target_tokens_per_s);
  if (gpus->fewest < 0)
    gpus->fewest = last;
  other = gpus->cheapest >= 0 ? gpus->trials->pdata[gpus->cheapest] : NULL;
  if (other == NULL ||
      sp_plan_gpu_s_per_token (trial, best) < sp_plan_gpu_s_per_token (other, sp_plan_best (other->plan)))
    gpus->cheapest = last;
}

SpPlanGpus *
sp_plan_gpus (SpEstimator *estimator, const SpPlanQuestion *question, double target_tokens_per_s, gboolean stops,
              GError **error)
{
  g_autoptr (SpPlanGpus) gpus = g_new0 (SpPlanGpus, 1);
  g_autoptr (GArray) counts = sp_plan_gpu_counts (estimator->cluster);

  if (question->gpus > 0) {
    g_array_set_size (counts, 0);
    g_array_append_val (counts, question->gpus);
  }
  *gpus = (SpPlanGpus){ .trials = g_ptr_array_new_with_free_func (trial_free),
                        .target_tokens_per_s = target_tokens_per_s,
                        .fewest = -1,
                        .cheapest = -1,
                        .quickest = -1 };
  for (guint i = 0; i < counts->len && !(stops && gpus->fewest >= 0); i++) {
    SpPlanTrial *trial = try_count (estimator, question, g_array_index (counts, gint32, i), error);
    if (trial == NULL)
      return NULL;
    g_ptr_array_add (gpus->trials, trial);
    rank_last (gpus);
  }
  return g_steal_pointer (&gpus);
}

void
sp_plan_gpus_free (SpPlanGpus *gpus)
{
  if (gpus == NULL)
    return;
  g_ptr_array_unref (gpus->trials);
  g_free (gpus);
}
