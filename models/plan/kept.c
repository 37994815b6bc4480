/* SPDX-License-Identifier: Apache-2.0 */
#include "models/plan/plan-private.h"

#include <math.h>
#include <string.h>

/* What is kept of a search: the best that fit, and a front of what does not. */

#define MOST_MISSES 256

double
sp_plan_entry_s (const SpPlanEntry *entry, SpPlanFigure figure)
{
  return figure == SP_PLAN_BY_SERIAL ? entry->estimate.serial_s : entry->estimate.step_time_s;
}

double
sp_plan_entry_lacks (const SpPlanEntry *entry)
{
  return entry->estimate.memory.total_bytes - entry->estimate.capacity_bytes;
}

/* Quicker first, then less memory; what was found first stays first. */
static gboolean
is_better (const SpPlanEntry *a, const SpPlanEntry *b, SpPlanFigure figure)
{
  if (sp_plan_entry_s (a, figure) != sp_plan_entry_s (b, figure))
    return sp_plan_entry_s (a, figure) < sp_plan_entry_s (b, figure);
  return a->estimate.memory.total_bytes < b->estimate.memory.total_bytes;
}

/* A ring whose work the split evens out. */
static gboolean
is_balanced (const SpLayout *layout)
{
  return layout->ring > 1 && layout->token_split != SP_TOKENS_CONTIGUOUS;
}

/* The same layout in another order, or by stripes in place of zigzag, that costs the same. */
static gboolean
is_twin (const SpPlanEntry *a, const SpPlanEntry *b, SpPlanFigure figure)
{
  SpLayout layout = a->layout;

  if (sp_plan_entry_s (a, figure) != sp_plan_entry_s (b, figure) || a->run.micro_batch != b->run.micro_batch)
    return FALSE;
  layout.order = b->layout.order;
  if (is_balanced (&layout) && is_balanced (&b->layout) &&
      a->estimate.memory.total_bytes == b->estimate.memory.total_bytes)
    layout.token_split = b->layout.token_split;
  return memcmp (&layout, &b->layout, sizeof layout) == 0;
}

void
sp_plan_kept_init (SpPlanKept *kept, SpPlanFigure figure, guint most)
{
  *kept = (SpPlanKept){ .figure = figure, .most = most, .least_low_s = INFINITY };
  kept->best = g_array_new (FALSE, FALSE, sizeof (SpPlanEntry));
  kept->misses = g_array_new (FALSE, FALSE, sizeof (SpPlanEntry));
}

void
sp_plan_kept_clear (SpPlanKept *kept)
{
  g_array_unref (kept->best);
  g_array_unref (kept->misses);
}

static void
leave (SpPlanKept *kept, const SpPlanEntry *entry)
{
  kept->least_low_s = MIN (kept->least_low_s, entry->estimate.low_s);
}

/* Into its place. */
static void
rank (SpPlanKept *kept, const SpPlanEntry *entry)
{
  GArray *best = kept->best;
  guint at = best->len;

  for (guint i = best->len; i-- > 0;) {
    const SpPlanEntry *other = &g_array_index (best, SpPlanEntry, i);
    if (sp_plan_entry_s (other, kept->figure) < sp_plan_entry_s (entry, kept->figure))
      break;
    if (is_twin (other, entry, kept->figure))
      return;
  }
  while (at > 0 && is_better (entry, &g_array_index (best, SpPlanEntry, at - 1), kept->figure))
    at--;
  if (at >= kept->most) {
    leave (kept, entry);
    return;
  }
  if (best->len == kept->most) {
    leave (kept, &g_array_index (best, SpPlanEntry, best->len - 1));
    g_array_set_size (best, best->len - 1);
  }
  g_array_insert_val (best, at, *entry);
}

void
sp_plan_kept_fits (SpPlanKept *kept, const SpPlanEntry *entry)
{
  kept->fitting++;
  rank (kept, entry);
}

void
sp_plan_kept_misses (SpPlanKept *kept, const SpPlanEntry *entry)
{
  GArray *front = kept->misses;
  double lacks = sp_plan_entry_lacks (entry);
  guint at = front->len, end;

#define MISS(i) (&g_array_index (front, SpPlanEntry, i))
  while (at > 0 && is_better (entry, MISS (at - 1), kept->figure))
    at--;
  if (at > 0 && sp_plan_entry_lacks (MISS (at - 1)) <= lacks)
    return;
  for (end = at; end < front->len && sp_plan_entry_lacks (MISS (end)) >= lacks;)
    end++;
#undef MISS
  if (end > at)
    g_array_remove_range (front, at, end - at);
  g_array_insert_val (front, at, *entry);
  if (front->len > MOST_MISSES) /* a full front forgets what lacks most */
    g_array_remove_index (front, 0);
}

void
sp_plan_kept_merge (SpPlanKept *kept, const SpPlanKept *other)
{
  for (guint i = 0; i < other->best->len; i++)
    rank (kept, &g_array_index (other->best, SpPlanEntry, i));
  for (guint i = 0; i < other->misses->len; i++)
    sp_plan_kept_misses (kept, &g_array_index (other->misses, SpPlanEntry, i));
  kept->refused += other->refused;
  kept->legal += other->legal;
  kept->estimated += other->estimated;
  kept->fitting += other->fitting;
  kept->least_low_s = MIN (kept->least_low_s, other->least_low_s);
}

double
sp_plan_kept_limit (const SpPlanKept *kept)
{
  if (kept->best->len < kept->most || kept->most == 0)
    return INFINITY;
  return sp_plan_entry_s (&g_array_index (kept->best, SpPlanEntry, kept->best->len - 1), kept->figure);
}

const SpPlanEntry *
sp_plan_kept_nearest (const SpPlanKept *kept)
{
  const GArray *misses = kept->misses;
  const SpPlanEntry *nearest = NULL;

  if (kept->best->len == 0)
    return misses->len > 0 ? &g_array_index (misses, SpPlanEntry, misses->len - 1) : NULL;
  for (guint i = 0; i < misses->len; i++) {
    const SpPlanEntry *miss = &g_array_index (misses, SpPlanEntry, i);
    if (is_better (miss, &g_array_index (kept->best, SpPlanEntry, 0), kept->figure))
      nearest = miss;
  }
  return nearest;
}
