/* SPDX-License-Identifier: Apache-2.0 */
#include "models/plan/plan-private.h"

#include <math.h>
#include <string.h>

/* One search for each number of slices, and what they found put together. */

/* Simulated ones first, by their simulated step, as a search has them; then by the figure. */
static gint
compare_entries (gconstpointer a, gconstpointer b, gpointer data)
{
  const SpPlanEntry *x = a, *y = b;
  SpPlanFigure figure = *(const SpPlanFigure *) data;

  if ((x->simulated_s > 0) != (y->simulated_s > 0))
    return x->simulated_s > 0 ? -1 : 1;
  double left = x->simulated_s > 0 ? x->simulated_s : sp_plan_entry_s (x, figure);
  double right = y->simulated_s > 0 ? y->simulated_s : sp_plan_entry_s (y, figure);
  if (left != right)
    return left < right ? -1 : 1;
  return x->layout.slices - y->layout.slices;
}

/* Of two that do not fit the one that lacks less, if it would beat the best of all. */
static void
merge_nearest (SpPlan *all, const SpPlan *one)
{
  if (one->has_nearest &&
      (!all->has_nearest || sp_plan_entry_lacks (&one->nearest) < sp_plan_entry_lacks (&all->nearest)))
    all->nearest = one->nearest;
  all->has_nearest |= one->has_nearest;
}

static void
merge (SpPlan *all, const SpPlan *one)
{
  all->candidates += one->candidates;
  all->legal += one->legal;
  all->fitting += one->fitting;
  all->pruned += one->pruned;
  all->estimated += one->estimated;
  all->simulated += one->simulated;
  all->least_low_s = MIN (all->least_low_s, one->least_low_s);
  merge_nearest (all, one);
  g_array_append_vals (all->entries, one->entries->data, one->entries->len);
}

static void
finish (SpPlan *all, const SpPlanQuestion *question)
{
  SpPlanFigure figure = question->figure;

  g_array_sort_with_data (all->entries, compare_entries, &figure);
  for (guint i = question->top; i < all->entries->len; i++)
    all->least_low_s = MIN (all->least_low_s, g_array_index (all->entries, SpPlanEntry, i).estimate.low_s);
  g_array_set_size (all->entries, MIN (all->entries->len, question->top));
  if (all->has_nearest && all->entries->len > 0)
    all->has_nearest = sp_plan_entry_s (&all->nearest, figure) <
                       sp_plan_entry_s (&g_array_index (all->entries, SpPlanEntry, 0), figure);
}

SpPlan *
sp_plan_of_slices (SpEstimator *estimator, const SpPlanQuestion *question, const gint32 *slices, guint n,
                   GError **error)
{
  g_autoptr (SpPlan) all = g_new0 (SpPlan, 1);
  g_autoptr (GError) none = NULL;
  guint found = 0;

  all->entries = g_array_new (FALSE, FALSE, sizeof (SpPlanEntry));
  all->least_low_s = INFINITY;
  for (guint i = 0; i < n; i++) {
    g_autoptr (GError) refused = NULL;
    SpPlanQuestion q = *question;
    q.base.slices = slices[i];
    memset (q.base.slice_split, 0, sizeof q.base.slice_split);
    g_autoptr (SpPlan) one = sp_plan (estimator, &q, &refused);
    if (one == NULL && !g_error_matches (refused, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL)) {
      g_propagate_error (error, g_steal_pointer (&refused));
      return NULL;
    }
    if (one == NULL && none == NULL)
      none = g_steal_pointer (&refused);
    if (one == NULL)
      continue;
    merge (all, one);
    found++;
  }
  if (found == 0) {
    g_propagate_error (error, g_steal_pointer (&none));
    return NULL;
  }
  finish (all, question);
  return g_steal_pointer (&all);
}
