/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/question-world.h"

/* The front of time and memory, against lists of all layouts. */

static gboolean
beats (const SpPlanEntry *a, const SpPlanEntry *b)
{
  return a->estimate.step_time_s <= b->estimate.step_time_s &&
         a->estimate.memory.total_bytes <= b->estimate.memory.total_bytes &&
         (a->estimate.step_time_s < b->estimate.step_time_s ||
          a->estimate.memory.total_bytes < b->estimate.memory.total_bytes);
}

static gint
compare_entries (gconstpointer a, gconstpointer b)
{
  const SpEstimate *x = &((const SpPlanEntry *) a)->estimate, *y = &((const SpPlanEntry *) b)->estimate;

  if (x->step_time_s != y->step_time_s)
    return x->step_time_s < y->step_time_s ? -1 : 1;
  return x->memory.total_bytes < y->memory.total_bytes ? -1 : x->memory.total_bytes > y->memory.total_bytes;
}

/* All layouts that fit, quickest first, with either loss: with less memory than there is one in chunks is looked at. */
static SpPlan *
all_of (World *w)
{
  static const guint8 losses[] = { SP_LOSS_VOCABULARY, SP_LOSS_CHUNKED };
  SpPlan *all = NULL;

  w->question.fixed |= sp_plan_dimension ("loss");
  for (guint i = 0; i < G_N_ELEMENTS (losses); i++) {
    w->question.base.loss = losses[i];
    SpPlan *plan = plan_of (w, w->question.sequence, w->question.gpus, 1 << 20);
    if (all != NULL) {
      g_array_append_vals (all->entries, plan->entries->data, plan->entries->len);
      sp_plan_free (plan);
    } else
      all = plan;
  }
  g_array_sort (all->entries, compare_entries);
  return all;
}

/* The front of a list of all layouts that fit: as many points of the same times and bytes. */
static guint
front_of (const SpPlan *plan, const SpPareto *pareto)
{
  const SpPlanEntry *last = NULL;
  guint n = 0;

  for (guint i = 0; i < plan->entries->len; i++) {
    const SpPlanEntry *entry = &g_array_index (plan->entries, SpPlanEntry, i);
    gboolean beaten = last != NULL && last->estimate.memory.total_bytes <= entry->estimate.memory.total_bytes;
    if (beaten)
      continue; /* of those that are quicker one needs no more */
    const SpParetoPoint *point = &g_array_index (pareto->points, SpParetoPoint, n);
    g_assert_cmpuint (n, <, pareto->points->len);
    g_assert_cmpfloat (point->entry.estimate.step_time_s, ==, entry->estimate.step_time_s);
    g_assert_cmpfloat (point->entry.estimate.memory.total_bytes, ==, entry->estimate.memory.total_bytes);
    g_assert_cmpfloat (point->entry.estimate.capacity_bytes, ==, entry->estimate.capacity_bytes);
    last = entry;
    n++;
  }
  return n;
}

static void
test_pareto_whole (void)
{
  static const char *const models[] = { "llama-3.1-8b", "tnl-1b", "mixtral-8x7b" };

  for (guint m = 0; m < G_N_ELEMENTS (models); m++) {
    g_autoptr (GError) error = NULL;
    g_auto (World) w = { 0 };
    world_init (&w, models[m], m == 2 ? "b200-1x8" : "h200-1x8", 32768, 2);
    w.question.gpus = m == 2 ? 8 : 4;
    g_autoptr (SpPareto) pareto = sp_plan_pareto (&w.estimator, &w.question, 0, &error);
    g_assert_no_error (error);
    g_autoptr (SpPlan) all = all_of (&w);
    guint n = front_of (all, pareto);
    g_test_message ("%s: %u layouts fit, %u on the front", models[m], all->entries->len, n);
    g_assert_cmpuint (n, ==, pareto->points->len);
    g_assert_cmpuint (n, >, 3);
    g_assert_cmpuint (all->entries->len, >, 10 * n);
  }
}

/* No point beats another one of as many GPUs or more; with a step, points are some of the whole front's, as far apart. */
static void
test_pareto_gpus (void)
{
  const double step = 2e9;
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };

  world_init (&w, "llama-3.1-8b", "a800-2x8", 32768, 16);
  g_autoptr (SpPareto) whole = sp_plan_pareto (&w.estimator, &w.question, 0, &error);
  g_assert_no_error (error);
  g_autoptr (SpPareto) some = sp_plan_pareto (&w.estimator, &w.question, step, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (some->points->len, <, whole->points->len);
  for (guint i = 0; i < whole->points->len; i++)
    for (guint j = 0; j < whole->points->len; j++) {
      const SpParetoPoint *a = &g_array_index (whole->points, SpParetoPoint, i),
                          *b = &g_array_index (whole->points, SpParetoPoint, j);
      g_assert_false (i != j && a->gpus <= b->gpus && beats (&a->entry, &b->entry));
    }
  for (guint i = 0; i < some->points->len; i++) {
    const SpParetoPoint *point = &g_array_index (some->points, SpParetoPoint, i);
    gboolean found = FALSE;
    for (guint j = 0; j < whole->points->len && !found; j++) {
      const SpParetoPoint *same = &g_array_index (whole->points, SpParetoPoint, j);
      found = same->gpus == point->gpus && same->entry.estimate.step_time_s == point->entry.estimate.step_time_s &&
              same->entry.estimate.memory.total_bytes == point->entry.estimate.memory.total_bytes;
    }
    g_assert_true (found);
    if (i > 0 && point[-1].gpus == point->gpus)
      g_assert_cmpfloat (point->entry.estimate.memory.total_bytes, <=,
                         point[-1].entry.estimate.memory.total_bytes - step);
  }
}

int
main (int argc, char **argv)
{
  if (!question_test_init (&argc, &argv))
    return 0;
  g_test_add_func ("/question-pareto/whole", test_pareto_whole);
  g_test_add_func ("/question-pareto/gpus", test_pareto_gpus);
  return g_test_run ();
}
