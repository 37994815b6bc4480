/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/flows-private.h"

#include <stdlib.h>

/*
 * Completion dates, in a heap that knows each flow's place. Where all flows are one component, a solve re-dates all of
 * them, and an order among those that are due late is wasted: so only flows due at or before a HORIZON are in the heap.
 * When it runs empty, the horizon is moved by looking at all flows; when one solve re-dates a heap that is long, it is
 * drawn in. Both choose it from a sample of the dates, so that the near flows are about one in NEAR_SHARE.
 */

#define NEAR_SHARE 16
#define SMALL 2048 /* flows: below, all are near */
#define SAMPLE 512

/* --- the heap ----------------------------------------------------------------------------------------------------- */

static inline void
put (SpFlows *flows, guint32 at, SpFlowDate entry)
{
  flows->dates[at] = entry;
  flows->flows[entry.flow].place = at;
}

static void
rise (SpFlows *flows, guint32 at, SpFlowDate entry)
{
  for (; at > 1 && entry.date < flows->dates[at / 2].date; at /= 2)
    put (flows, at, flows->dates[at / 2]);
  put (flows, at, entry);
}

static void
sink (SpFlows *flows, guint32 at, SpFlowDate entry)
{
  guint32 n = flows->n_dates, child;

  while ((child = 2 * at) <= n) {
    child += child < n && flows->dates[child + 1].date < flows->dates[child].date;
    if (entry.date <= flows->dates[child].date)
      break;
    put (flows, at, flows->dates[child]);
    at = child;
  }
  put (flows, at, entry);
}

static void
move (SpFlows *flows, guint32 at, SpFlowDate entry)
{
  if (at > 1 && entry.date < flows->dates[at / 2].date)
    rise (flows, at, entry);
  else
    sink (flows, at, entry);
}

static void
push (SpFlows *flows, SpFlowDate entry)
{
  if (G_UNLIKELY (flows->n_dates + 1 >= flows->n_dates_allocated)) {
    gsize old = flows->n_dates_allocated, new = sp_flows_larger_ (old);
    flows->dates = sp_flows_grow_array_ (flows->dates, old * sizeof (SpFlowDate), new * sizeof (SpFlowDate));
    flows->n_dates_allocated = (guint32) new;
  }
  rise (flows, ++flows->n_dates, entry);
}

/* Puts the heap in order, whatever it was. */
static void
heapify (SpFlows *flows)
{
  for (guint32 i = 1; i <= flows->n_dates; i++)
    flows->flows[flows->dates[i].flow].place = i;
  for (guint32 i = flows->n_dates / 2; i > 0; i--)
    sink (flows, i, flows->dates[i]);
}

void
sp_flows_unschedule_ (SpFlows *flows, guint32 id)
{
  guint32 at = flows->flows[id].place;

  if (at == 0)
    return;
  flows->flows[id].place = 0;
  SpFlowDate last = flows->dates[flows->n_dates--];
  if (at <= flows->n_dates)
    move (flows, at, last);
}

void
sp_flows_schedule_ (SpFlows *flows, guint32 id, SpTime date)
{
  guint32 at = flows->flows[id].place;

  if (at > 0 && date < SP_TIME_NEVER)
    move (flows, at, (SpFlowDate){ date, id });
  else if (at > 0)
    sp_flows_unschedule_ (flows, id);
  else if (date <= flows->horizon && date < SP_TIME_NEVER)
    push (flows, (SpFlowDate){ date, id });
}

/* --- the horizon -------------------------------------------------------------------------------------------------- */

static int
compare_times (const void *a, const void *b)
{
  SpTime left = *(const SpTime *) a, right = *(const SpTime *) b;

  return (left > right) - (left < right);
}

/* A date before which about one in NEAR_SHARE of n dates lies. */
static SpTime
near_date (const SpFlowDate *dates, guint32 n)
{
  SpTime sample[SAMPLE];

  for (guint32 i = 0; i < SAMPLE; i++)
    sample[i] = dates[(guint64) i * n / SAMPLE].date;
  qsort (sample, SAMPLE, sizeof (SpTime), compare_times);
  return sample[SAMPLE / NEAR_SHARE];
}

/* Sees to it that the first date of all flows, and all dates until at_least, are in the heap: if the horizon is too
 * near, moves it. That looks at every flow. */
void
sp_flows_look_ahead_ (SpFlows *flows, SpTime at_least)
{
  flows->least_horizon = at_least;
  while (flows->horizon < SP_TIME_NEVER &&
         (flows->horizon < at_least || flows->n_dates == 0 || flows->dates[1].date > flows->horizon)) {
    guint32 near = flows->n_dates;

    flows->horizon = SP_TIME_NEVER;
    for (guint32 id = 0; id < flows->n_slots; id++) {
      const SpFlow *flow = &flows->flows[id];
      if (flow->solved == SP_FLOWS_GONE || flow->place > 0 || flow->bytes_per_s <= 0)
        continue;
      SpTime date = sp_flow_date_ (flow->updated, flow->remaining_bytes, SP_PS_PER_S / flow->bytes_per_s);
      sp_flows_schedule_ (flows, id, date);
    }
    flows->statistics.look_aheads++;
    if (flows->n_dates > near)
      sp_flows_narrow_horizon_ (flows);
  }
}

/* Draws the horizon in when the heap is long. */
void
sp_flows_narrow_horizon_ (SpFlows *flows)
{
  if (flows->n_dates <= SMALL)
    return;
  SpTime horizon = MAX (flows->least_horizon, near_date (flows->dates + 1, flows->n_dates));
  guint32 kept = 0;
  for (guint32 i = 1; i <= flows->n_dates; i++)
    kept += flows->dates[i].date <= horizon;
  if (kept > flows->n_dates / 2) /* ties */
    return;
  kept = 0;
  for (guint32 i = 1; i <= flows->n_dates; i++) {
    SpFlowDate entry = flows->dates[i];
    /* One that has left its links is known to nobody else. */
    if (entry.date <= horizon || flows->flows[entry.flow].solved == SP_FLOWS_GONE)
      flows->dates[++kept] = entry;
    else
      flows->flows[entry.flow].place = 0;
  }
  flows->n_dates = kept;
  flows->horizon = horizon;
  heapify (flows);
}

/* --- what is due -------------------------------------------------------------------------------------------------- */

static int
compare_ids (const void *a, const void *b)
{
  guint32 left = *(const guint32 *) a, right = *(const guint32 *) b;

  return (left > right) - (left < right);
}

static void
sort_ids (SpFlowList *list)
{
  guint32 i = 1;

  while (i < list->n && list->of[i - 1] < list->of[i])
    i++;
  if (i < list->n)
    qsort (list->of, list->n, sizeof (guint32), compare_ids);
}

/* Lists the flows of the heap due until then, by number, leaving them where they are. */
void
sp_flows_due_until_ (SpFlows *flows, SpTime until, SpFlowList *ret_due)
{
  ret_due->n = 0;
  if (flows->n_dates == 0 || flows->dates[1].date > until)
    return;
  /* The list holds places first, and is its own queue: children of a place that is not due are not due. */
  sp_flow_list_append_ (ret_due, 1);
  for (guint32 i = 0; i < ret_due->n; i++)
    for (guint32 child = 2 * ret_due->of[i], last = MIN (child + 1, flows->n_dates); child <= last; child++)
      if (flows->dates[child].date <= until)
        sp_flow_list_append_ (ret_due, child);
  for (guint32 i = 0; i < ret_due->n; i++)
    ret_due->of[i] = flows->dates[ret_due->of[i]].flow;
  sort_ids (ret_due);
}

/* Moves the flows due now from the heap into `finished`. */
void
sp_flows_take_due_ (SpFlows *flows)
{
  SpFlowList *due = &flows->finished;

  sp_flows_due_until_ (flows, flows->now, due);
  if (due->n <= flows->n_dates / 8) {
    for (guint32 i = 0; i < due->n; i++)
      sp_flows_unschedule_ (flows, due->of[i]);
    return;
  }
  guint32 kept = 0;
  for (guint32 i = 1; i <= flows->n_dates; i++) {
    if (flows->dates[i].date > flows->now)
      flows->dates[++kept] = flows->dates[i];
    else
      flows->flows[flows->dates[i].flow].place = 0;
  }
  flows->n_dates = kept;
  heapify (flows);
}
