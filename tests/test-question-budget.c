/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/question-world.h"

#include <math.h>

/* What a budget trains, against arithmetic. */

static void
test_budget (void)
{
  static const double budgets[] = { 1, 7000, 1e5 };
  const double tokens = 1e11;
  g_auto (World) w = { 0 };

  world_init (&w, "llama-3.1-8b", "a800-2x8", 32768, 16);
  for (guint b = 0; b < G_N_ELEMENTS (budgets); b++) {
    g_autoptr (GError) error = NULL;
    g_autoptr (SpPlanBudget) budget = sp_plan_budget (&w.estimator, &w.question, budgets[b], tokens, &error);
    double days = INFINITY, hours = INFINITY;
    g_assert_no_error (error);
    g_assert_cmpuint (budget->costs->len, >, 10);
    for (guint i = 0; i < budget->costs->len; i++) {
      const SpPlanCost *cost = &g_array_index (budget->costs, SpPlanCost, i);
      double seconds = tokens / cost->entry->estimate.tokens_per_s;
      g_assert_cmpfloat_with_epsilon (cost->days, seconds / 86400, 1e-9 * cost->days);
      g_assert_cmpfloat_with_epsilon (cost->gpu_hours, cost->gpus * seconds / 3600, 1e-9 * cost->gpu_hours);
      g_assert_cmpfloat_with_epsilon (cost->margin, (budgets[b] - cost->gpu_hours) / budgets[b],
                                      1e-9 * (1 + fabs (cost->margin)));
      if (cost->gpu_hours <= budgets[b])
        days = MIN (days, cost->days);
      hours = MIN (hours, cost->gpu_hours);
    }
    g_assert_true ((budget->best < 0) == (days == INFINITY));
    g_assert_true ((budget->best < 0) == (budgets[b] < hours));
    if (budget->best >= 0)
      g_assert_cmpfloat (g_array_index (budget->costs, SpPlanCost, budget->best).days, ==, days);
    g_assert_cmpfloat (g_array_index (budget->costs, SpPlanCost, budget->cheapest).gpu_hours, ==, hours);
    g_assert_cmpfloat_with_epsilon (budget->affordable_tokens, tokens * budgets[b] / hours, 1e-6 * tokens);
  }
}

int
main (int argc, char **argv)
{
  if (!question_test_init (&argc, &argv))
    return 0;
  g_test_add_func ("/question-budget", test_budget);
  return g_test_run ();
}
