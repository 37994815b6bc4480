/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/question-world.h"

/* Which of the best layouts may be equal, against their intervals. */

static void
test_ties (void)
{
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };
  SpPlanTies ties;

  world_init (&w, "llama-3.1-8b", "h200-1x4", 32768, 8);
  g_autoptr (SpPlan) without = plan_of (&w, 32768, 0, 20);
  sp_plan_find_ties (&w.estimator, without, &ties);
  g_assert_cmpuint (ties.compared, ==, 0);

  use_profile (&w, "h200-1x4");
  g_autoptr (SpPlan) plan = plan_of (&w, 32768, 0, 20);
  /* The last one far behind, so that there is one that does not tie. */
  g_array_set_size (plan->entries, 5);
  SpPlanEntry *entries = (SpPlanEntry *) plan->entries->data;
  g_autoptr (SpPlan) all = plan_of (&w, 32768, 0, 10000);
  entries[4] = g_array_index (all->entries, SpPlanEntry, all->entries->len - 1);
  sp_plan_find_ties (&w.estimator, plan, &ties);
  g_assert_cmpuint (ties.compared, ==, 5);
  g_assert_true (ties.ties[0]);
  g_assert_false (ties.ties[4]);
  guint tied = 0, fewest = G_MAXUINT, simplest = 0;
  for (guint i = 0; i < 5; i++) {
    const double *best = entries[0].estimate.interval_s, *mine = entries[i].estimate.interval_s, *more = ties.more_s[i];
    double difference = entries[i].estimate.step_time_s - entries[0].estimate.step_time_s;
    g_assert_cmpfloat (more[0], <=, difference + 1e-12);
    g_assert_cmpfloat (more[1], >=, difference - 1e-12);
    /* What is common cancels: the difference is known at least as well as if the steps had nothing in common. */
    g_assert_cmpfloat (more[1] - more[0], <=, mine[1] - mine[0] + best[1] - best[0]);
    g_assert_cmpfloat (mine[0], <, entries[i].estimate.step_time_s);
    g_assert_cmpfloat (mine[1], >, entries[i].estimate.step_time_s);
    g_assert_true (ties.ties[i] == (more[0] <= 0 && more[1] >= 0));
    tied += ties.ties[i];
    guint axes = sp_layout_axes (&entries[i].layout, w.arch);
    if (ties.ties[i] && axes < fewest) {
      fewest = axes;
      simplest = i;
    }
  }
  /* The best beside itself is known exactly. */
  g_assert_cmpfloat (ties.more_s[0][0], ==, 0);
  g_assert_cmpfloat (ties.more_s[0][1], ==, 0);
  g_assert_cmpuint (ties.tied, ==, tied);
  g_assert_cmpuint (ties.simplest, ==, simplest);
}

int
main (int argc, char **argv)
{
  if (!question_test_init (&argc, &argv))
    return 0;
  g_test_add_func ("/question-ties", test_ties);
  return g_test_run ();
}
