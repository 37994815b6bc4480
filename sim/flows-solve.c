/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/flows-private.h"

/*
 * The rates. For each connected component that a change touched: progressive filling. Take the link with the smallest
 * share (what it has left over the weight of its flows whose rate is not fixed); fix those flows at it; take what they
 * send from the other links of their routes; go on. A share only grows on the way, so the heap of links is lazy: a link
 * is looked at again when it comes to the top.
 *
 * A flow whose rate stays the same is not written to: neither its bytes nor its date change.
 */

/* --- a component -------------------------------------------------------------------------------------------------- */

static inline void
visit (SpFlows *flows, guint32 id)
{
  SpFlowLink *link = &flows->links[id];

  if (link->visited == flows->generation)
    return;
  link->visited = flows->generation;
  flows->n_visited++;
  sp_flow_list_append_ (&flows->component, id);
  sp_flow_list_append_ (&flows->stack, id);
}

static void
visit_others (SpFlows *flows, const SpFlowItem *item)
{
  if (item->flow & SP_FLOWS_LONG_ROUTE) {
    const SpFlowRoute *route = &flows->routes[item->flow & ~SP_FLOWS_LONG_ROUTE];
    const guint32 *links = sp_flow_links_ (flows, route);
    for (guint32 i = 0; i < route->n_links; i++)
      visit (flows, links[i]);
    return;
  }
  for (guint32 i = 0; i < SP_FLOWS_INLINE_LINKS - 1; i++)
    visit (flows, item->others[i]);
}

/* Lists the links that are connected with `first` by flows, with a stack of its own. Ends early once it holds every
 * link that is in use, the usual case of one large component: last in, first out finds those within a few lists. */
static void
gather (SpFlows *flows, guint32 first)
{
  flows->component.n = flows->stack.n = 0;
  visit (flows, first);
  while (flows->stack.n > 0 && flows->n_visited < flows->n_live_links) {
    const SpFlowLink *link = &flows->links[flows->stack.of[--flows->stack.n]];
    for (guint32 i = 0; i < link->n_items; i++)
      if (flows->flows[link->items[i].flow & ~SP_FLOWS_LONG_ROUTE].solved != SP_FLOWS_GONE)
        visit_others (flows, &link->items[i]);
  }
}

/* --- fixing rates ------------------------------------------------------------------------------------------------- */

/* Gives a flow its rate, and a new date if that changed. */
static inline void
fix (SpFlows *flows, guint32 id, double bytes_per_s, double ps_per_byte)
{
  SpFlow *flow = &flows->flows[id];

  flow->solved = flows->generation;
  if (flow->bytes_per_s == bytes_per_s)
    return;
  double remaining_bytes = sp_flow_remaining_ (flow, flows->now);
  flow->remaining_bytes = MAX (0, remaining_bytes);
  flow->updated = flows->now;
  flow->bytes_per_s = bytes_per_s;
  flows->n_redated++;
  SpTime date = sp_flow_date_ (flows->now, flow->remaining_bytes, ps_per_byte);
  if (flow->place > 0 || date <= flows->horizon)
    sp_flows_schedule_ (flows, id, date);
}

static inline void
take_from (SpFlows *flows, guint32 link, double bytes_per_s, double weight)
{
  flows->fill[link].left_bytes_per_s -= bytes_per_s * weight;
  flows->fill[link].weight -= weight;
}

/* Fixes one flow at its cap: all links of its route give. */
static void
fix_at_cap (SpFlows *flows, guint32 id)
{
  const SpFlowRoute *route = &flows->routes[id];
  const guint32 *links = sp_flow_links_ (flows, route);

  for (guint32 i = 0; i < route->n_links; i++)
    take_from (flows, links[i], route->cap_bytes_per_s, route->weight);
  fix (flows, id, route->cap_bytes_per_s, SP_PS_PER_S / route->cap_bytes_per_s);
}

/* Fixes the flows of the link of smallest share whose cap is no more than that. Says whether there were any: the share
 * has grown then. */
static gboolean
fix_capped (SpFlows *flows, const SpFlowLink *link, double share_bytes_per_s)
{
  gboolean any = FALSE;

  for (guint32 i = 0; i < link->n_items; i++) {
    guint32 id = link->items[i].flow & ~SP_FLOWS_LONG_ROUTE;
    if (flows->flows[id].solved >= flows->generation || flows->routes[id].cap_bytes_per_s > share_bytes_per_s)
      continue;
    fix_at_cap (flows, id);
    any = TRUE;
  }
  return any;
}

static void
take_from_long_route (SpFlows *flows, guint32 id, double bytes_per_s)
{
  const SpFlowRoute *route = &flows->routes[id];
  const guint32 *links = sp_flow_links_ (flows, route);

  for (guint32 i = 0; i < route->n_links; i++)
    take_from (flows, links[i], bytes_per_s, route->weight);
}

/* Lists the items of a link whose flows are not fixed (nor gone), without a branch: there is no pattern in which of
 * them other links have fixed before. */
static guint32
list_open (SpFlows *flows, const SpFlowLink *link)
{
  guint32 n = 0, generation = flows->generation, *open;

  sp_flow_list_reserve_ (&flows->open, link->n_items);
  open = flows->open.of;
  for (guint32 i = 0; i < link->n_items; i++) {
    open[n] = i;
    n += flows->flows[link->items[i].flow & ~SP_FLOWS_LONG_ROUTE].solved < generation;
  }
  return n;
}

/* Fixes all flows of a link that are left, at its share. Neighbours in the list mostly cross the same links next: their
 * weights are added up before the link is written, which saves the wait for the write and rounds once. */
static inline __attribute__ ((always_inline)) void
fix_all_ (SpFlows *flows, const SpFlowLink *link, double share_bytes_per_s, gboolean has_weights)
{
  double ps_per_byte = SP_PS_PER_S / share_bytes_per_s;
  guint32 last[SP_FLOWS_INLINE_LINKS - 1] = { 0 };
  double weights[SP_FLOWS_INLINE_LINKS - 1] = { 0 };
  guint32 n = list_open (flows, link);

  for (guint32 i = 0; i < n; i++) {
    const SpFlowItem *item = &link->items[flows->open.of[i]];
    guint32 id = item->flow & ~SP_FLOWS_LONG_ROUTE;
    fix (flows, id, share_bytes_per_s, ps_per_byte);
    if (G_UNLIKELY (item->flow & SP_FLOWS_LONG_ROUTE)) {
      take_from_long_route (flows, id, share_bytes_per_s);
      continue;
    }
    double weight = has_weights ? flows->routes[id].weight : 1;
    for (guint32 k = 0; k < SP_FLOWS_INLINE_LINKS - 1; k++) {
      if (item->others[k] != last[k]) {
        take_from (flows, last[k], share_bytes_per_s, weights[k]);
        last[k] = item->others[k];
        weights[k] = 0;
      }
      weights[k] += weight;
    }
  }
  for (guint32 k = 0; k < SP_FLOWS_INLINE_LINKS - 1; k++)
    take_from (flows, last[k], share_bytes_per_s, weights[k]);
}

static void
fix_all (SpFlows *flows, const SpFlowLink *link, double share_bytes_per_s)
{
  if (link->n_special > 0)
    fix_all_ (flows, link, share_bytes_per_s, TRUE);
  else
    fix_all_ (flows, link, share_bytes_per_s, FALSE);
}

/* --- filling ------------------------------------------------------------------------------------------------------ */

static inline double
share_of (const SpFlows *flows, guint32 link)
{
  return MAX (0, flows->fill[link].left_bytes_per_s) / flows->fill[link].weight;
}

static void
sink_share (SpFlows *flows, guint32 at, SpFlowShare entry)
{
  SpFlowShare *heap = flows->shares;
  guint32 n = flows->n_shares, child;

  while ((child = 2 * at) <= n) {
    child += child < n && heap[child + 1].share_bytes_per_s < heap[child].share_bytes_per_s;
    if (entry.share_bytes_per_s <= heap[child].share_bytes_per_s)
      break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = entry;
}

static void
drop_first_share (SpFlows *flows)
{
  SpFlowShare last = flows->shares[flows->n_shares--];

  if (flows->n_shares > 0)
    sink_share (flows, 1, last);
}

/* The heap of the component's links that some flow crosses. */
static void
open_links (SpFlows *flows)
{
  flows->n_shares = 0;
  for (guint32 i = 0; i < flows->component.n; i++) {
    guint32 id = flows->component.of[i];
    const SpFlowLink *link = &flows->links[id];
    flows->fill[id] = (SpFlowFill){ sp_flow_link_capacity_ (link), link->weight };
    flows->shares[++flows->n_shares] = (SpFlowShare){ share_of (flows, id), id };
  }
  for (guint32 i = flows->n_shares / 2; i > 0; i--)
    sink_share (flows, i, flows->shares[i]);
}

static void
fill_component (SpFlows *flows)
{
  double level_bytes_per_s = -1;

  open_links (flows);
  while (flows->n_shares > 0) {
    SpFlowShare first = flows->shares[1];
    if (flows->fill[first.link].weight <= 0) { /* all its flows are fixed; weights are integers, so this is exact */
      drop_first_share (flows);
      continue;
    }
    double share_bytes_per_s = share_of (flows, first.link);
    if (share_bytes_per_s > first.share_bytes_per_s) {
      first.share_bytes_per_s = share_bytes_per_s;
      sink_share (flows, 1, first);
      if (flows->shares[1].link != first.link)
        continue;
    }
    const SpFlowLink *link = &flows->links[first.link];
    if (link->n_special > 0 && fix_capped (flows, link, share_bytes_per_s))
      continue;
    /* Equal but for rounding: the same level, so that flows that should end together do. */
    if (!(share_bytes_per_s <= level_bytes_per_s * (1 + SP_FLOWS_LEVEL_EPSILON)))
      level_bytes_per_s = share_bytes_per_s;
    drop_first_share (flows);
    fix_all (flows, link, level_bytes_per_s);
  }
}

/* A flow that is alone on all its links, as most are in a ring: its rate is at hand. */
static gboolean
solve_alone (SpFlows *flows, guint32 first)
{
  const SpFlowLink *link = &flows->links[first];
  guint32 id, at = link->n_items;

  if (link->n_live != 1)
    return FALSE;
  do
    id = link->items[--at].flow & ~SP_FLOWS_LONG_ROUTE;
  while (flows->flows[id].solved == SP_FLOWS_GONE);
  const SpFlowRoute *route = &flows->routes[id];
  const guint32 *links = sp_flow_links_ (flows, route);
  double capacity_bytes_per_s = G_MAXDOUBLE;
  for (guint32 i = 0; i < route->n_links; i++) {
    if (flows->links[links[i]].n_live != 1)
      return FALSE;
    capacity_bytes_per_s = MIN (capacity_bytes_per_s, sp_flow_link_capacity_ (&flows->links[links[i]]));
  }
  for (guint32 i = 0; i < route->n_links; i++) {
    flows->links[links[i]].visited = flows->generation;
    flows->n_visited++;
  }
  double bytes_per_s = MIN (capacity_bytes_per_s / route->weight, route->cap_bytes_per_s);
  fix (flows, id, bytes_per_s, SP_PS_PER_S / bytes_per_s);
  return TRUE;
}

/* Generations number the solves. When they run out, every mark is wiped. */
static void
next_generation (SpFlows *flows)
{
  if (G_UNLIKELY (flows->generation == SP_FLOWS_GONE - 1)) {
    flows->generation = 0;
    for (guint32 i = 0; i < flows->n_slots; i++)
      if (flows->flows[i].solved != SP_FLOWS_GONE)
        flows->flows[i].solved = 0;
    for (guint32 i = 0; i < flows->n_links; i++)
      flows->links[i].visited = 0;
  }
  flows->generation++;
  flows->links[0].visited = flows->generation; /* the dummy belongs to no component */
  flows->n_visited = 0;
}

/* --- a solve ------------------------------------------------------------------------------------------------------ */

/* Drops the items of flows that are gone, keeping the order. Done when they are a quarter, so that it costs little a
 * flow; until then a solve steps over them. */
static void
tidy (SpFlows *flows, SpFlowLink *link)
{
  guint32 kept = 0;

  if (link->n_live > 0 && link->n_items <= link->n_live + link->n_live / 4 + 1)
    return;
  for (guint32 i = 0; i < link->n_items; i++) {
    guint32 id = link->items[i].flow & ~SP_FLOWS_LONG_ROUTE;
    if (flows->flows[id].solved == SP_FLOWS_GONE)
      sp_flow_release_ (flows, id);
    else
      link->items[kept++] = link->items[i];
  }
  link->n_items = kept;
}

/* Solves the components of all links that are marked dirty. */
void
sp_flows_solve_ (SpFlows *flows)
{
  next_generation (flows);
  flows->n_redated = 0;
  for (guint32 i = 0; i < flows->dirty.n; i++) {
    guint32 id = flows->dirty.of[i];
    SpFlowLink *link = &flows->links[id];
    link->is_dirty = FALSE;
    tidy (flows, link);
    if (link->visited == flows->generation || link->n_live == 0 || solve_alone (flows, id))
      continue;
    gather (flows, id);
    fill_component (flows);
  }
  flows->dirty.n = 0;
  flows->statistics.solves++;
  flows->statistics.rates += flows->n_redated;
  if (flows->n_redated > flows->n_dates / 2)
    sp_flows_narrow_horizon_ (flows);
}
