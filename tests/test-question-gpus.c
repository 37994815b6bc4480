/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/question-world.h"

/* The fewest GPUs, against searches of every number. */

static void
assert_counts (gint32 nodes, gint32 gpus_per_node, const char *expected)
{
  const SpCluster cluster = { .nodes = nodes, .gpus_per_node = gpus_per_node };
  g_autoptr (GArray) counts = sp_plan_gpu_counts (&cluster);
  g_autoptr (GString) text = g_string_new (NULL);

  for (guint i = 0; i < counts->len; i++)
    g_string_append_printf (text, "%s%d", i > 0 ? " " : "", g_array_index (counts, gint32, i));
  g_assert_cmpstr (text->str, ==, expected);
}

static void
test_counts (void)
{
  assert_counts (1, 8, "1 2 4 8");
  assert_counts (4, 8, "1 2 4 8 16 32");
  assert_counts (12, 8, "1 2 4 8 16 24 32 48 64 96");
  assert_counts (3, 1, "1 2 3");
  assert_counts (1, 6, "1 2 3 6");
}

/* None of fewer GPUs will do, by searches of their own; of a target's, all that are listed reach it. */
static void
test_fewest (void)
{
  static const double targets[] = { 0, 50000, 120000, 1e9 };
  g_auto (World) w = { 0 };

  world_init (&w, "llama-3.1-8b", "a800-2x8", 32768, 16);
  g_autoptr (GArray) counts = sp_plan_gpu_counts (w.cluster);
  for (guint t = 0; t < G_N_ELEMENTS (targets); t++)
    for (gint stops = 0; stops < 2; stops++) {
      g_autoptr (GError) error = NULL;
      g_autoptr (SpPlanGpus) gpus = sp_plan_gpus (&w.estimator, &w.question, targets[t], stops, &error);
      gint fewest = -1;
      g_assert_no_error (error);
      for (guint i = 0; i < counts->len && fewest < 0; i++) {
        g_autoptr (SpPlan) plan = plan_of (&w, 32768, g_array_index (counts, gint32, i), 1);
        const SpPlanEntry *best = sp_plan_best (plan);
        if (best != NULL && best->estimate.tokens_per_s >= targets[t])
          fewest = (gint) i;
      }
      g_assert_cmpint (gpus->fewest, ==, fewest);
      g_assert_cmpuint (gpus->trials->len, ==, stops && fewest >= 0 ? (guint) fewest + 1 : counts->len);
      g_assert_true ((gpus->cheapest < 0) == (fewest < 0));
      if (fewest < 0)
        continue;
      const SpPlanTrial *trial = gpus->trials->pdata[fewest], *cheapest = gpus->trials->pdata[gpus->cheapest];
      g_assert_cmpint (trial->gpus, ==, g_array_index (counts, gint32, fewest));
      for (guint i = 0; i < trial->plan->entries->len; i++)
        g_assert_cmpfloat (g_array_index (trial->plan->entries, SpPlanEntry, i).estimate.tokens_per_s, >=, targets[t]);
      double least = sp_plan_gpu_s_per_token (cheapest, sp_plan_best (cheapest->plan));
      for (guint i = (guint) fewest; i < gpus->trials->len; i++) {
        const SpPlanTrial *other = gpus->trials->pdata[i];
        if (sp_plan_trial_reaches (other, targets[t]))
          g_assert_cmpfloat (sp_plan_gpu_s_per_token (other, sp_plan_best (other->plan)), >=, least);
      }
    }
}

int
main (int argc, char **argv)
{
  if (!question_test_init (&argc, &argv))
    return 0;
  g_test_add_func ("/question-gpus/counts", test_counts);
  g_test_add_func ("/question-gpus/fewest", test_fewest);
  return g_test_run ();
}
