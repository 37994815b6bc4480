/* SPDX-License-Identifier: Apache-2.0 */
#include "models/plan/plan-private.h"

#include "models/simulate/simulate.h"
#include "models/writer.h"

/* The best of the estimate, simulated. */

typedef struct {
  const SpEstimator *estimator;
  SpPlan *plan;
  gint next, n;
} Crew;

/* A step that cannot be simulated, or that is too much to simulate, keeps its estimate. */
static void
simulate (const Crew *crew, SpEstimator *estimator, SpProgram *program, SpPlanEntry *entry)
{
  g_auto (SpSimulated) simulated = { 0 };
  const SpVariations none = { 0 };
  const SpSimulateOptions options = { 0 };

  sp_program_write (program, estimator->arch, estimator->framework, &entry->layout, &entry->run);
  if (sp_simulate (estimator, program, &entry->run, &none, &options, &simulated, NULL))
    entry->simulated_s = simulated.result.step_time_s;
  (void) crew;
}

static void
run_worker (gpointer data, gpointer user_data)
{
  Crew *crew = user_data;
  SpEstimator estimator = *crew->estimator;
  g_autoptr (SpProgram) program = sp_program_new ();

  (void) data;
  estimator.cache = NULL;
  for (gint i; (i = g_atomic_int_add (&crew->next, 1)) < crew->n;)
    simulate (crew, &estimator, program, &g_array_index (crew->plan->entries, SpPlanEntry, i));
}

/* Those that were simulated first, the quickest first; the estimate's order else. */
static gint
compare (gconstpointer a, gconstpointer b)
{
  const SpPlanEntry *x = a, *y = b;

  if ((x->simulated_s > 0) != (y->simulated_s > 0))
    return x->simulated_s > 0 ? -1 : 1;
  return x->simulated_s < y->simulated_s ? -1 : x->simulated_s > y->simulated_s;
}

void
sp_plan_simulate (SpPlan *plan, const SpEstimator *estimator, guint n, guint threads)
{
  Crew crew = { .estimator = estimator, .plan = plan, .n = (gint) MIN (n, plan->entries->len) };

  if (crew.n == 0)
    return;
  GThreadPool *pool = g_thread_pool_new (run_worker, &crew, (gint) threads, FALSE, NULL);
  for (guint t = 0; t < threads; t++)
    g_thread_pool_push (pool, &crew, NULL);
  g_thread_pool_free (pool, FALSE, TRUE);
  for (gint i = 0; i < crew.n; i++) {
    const SpPlanEntry *entry = &g_array_index (plan->entries, SpPlanEntry, i);
    plan->simulated += entry->simulated_s > 0;
    if (entry->simulated_s == 0)
      plan->least_low_s = MIN (plan->least_low_s, entry->estimate.low_s);
  }
  g_array_sort (plan->entries, compare); /* a stable one */
}
