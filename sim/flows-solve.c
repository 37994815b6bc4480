/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/flows-private.h"

/*
 * The rates. For each connected component that a change touched: progressive filling. Take the link with the smallest
 * share (what it has left over the weight of its flows whose rate is not fixed); fix those flows at it; take what they
 * send from the other links of their routes; go on. A share only grows on the way, so the heap of links is lazy: a link
 * is looked at again when it comes to the top.
 *
 * A flow whose rate stays the same is not written to: neither its bytes nor its date change.
 *
 * Loose links hold back nobody: no component goes through them. What a fixed flow takes from them is written to their
 * fill all the same, because that is cheaper than to ask; nobody reads it.
 */

/* --- a component -------------------------------------------------------------------------------------------------- */

static inline void
visit (SpFlows *flows, guint32 id)
{
  SpFlowLink *link = &flows->links[id];

  if (link->visited == flows->generation || !link->is_tight)
    return;
  link->visited = flows->generation;
  flows->n_visited++;
  sp_flow_list_append_ (&flows->component, id);
  sp_flow_list_append_ (&flows->stack, id);
}

/* A route in the arena may be long, and every link of it names it: it is walked once. */
static void
visit_route (SpFlows *flows, guint32 flow)
{
  SpFlowRoute *route = &flows->routes[flow];
  const guint32 *links = sp_flow_links_ (flows, route);

  if (route->gathered == flows->generation)
    return;
  route->gathered = flows->generation;
  for (guint32 i = 0; i < route->n_links; i++)
    visit (flows, links[i]);
}

static void
visit_neighbours (SpFlows *flows, const SpFlowLink *link)
{
  for (guint32 i = 0; i < link->n_items; i++) {
    const SpFlowItem *item = &link->items[i];
    guint32 id = item->flow & ~SP_FLOWS_LONG_ROUTE;
    if (flows->flows[id].solved == SP_FLOWS_GONE)
      continue;
    if (item->flow & SP_FLOWS_LONG_ROUTE)
      visit_route (flows, id);
    else
      for (guint32 k = 0; k < SP_FLOWS_INLINE_LINKS - 1; k++)
        visit (flows, item->others[k]);
  }
  for (guint32 at = link->chain; at > 0; at = sp_flow_node_ (flows, at)->next)
    visit_route (flows, sp_flow_node_ (flows, at)->flow);
}

/* Lists the tight links that are connected with `first` by flows, with a stack of its own. Ends early once it holds
 * every tight link, the usual case of one large component: last in, first out finds those within a few lists. */
static void
gather (SpFlows *flows, guint32 first)
{
  flows->component.n = flows->stack.n = 0;
  visit (flows, first);
  while (flows->stack.n > 0 && flows->n_visited < flows->n_tight_links)
    visit_neighbours (flows, &flows->links[flows->stack.of[--flows->stack.n]]);
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

static void
take_from_route (SpFlows *flows, guint32 id, double bytes_per_s)
{
  const SpFlowRoute *route = &flows->routes[id];
  const guint32 *links = sp_flow_links_ (flows, route);

  for (guint32 i = 0; i < route->n_links; i++)
    take_from (flows, links[i], bytes_per_s, route->weight);
}

static inline void
fix_at_cap (SpFlows *flows, guint32 id)
{
  double cap_bytes_per_s = flows->routes[id].cap_bytes_per_s;

  fix (flows, id, cap_bytes_per_s, SP_PS_PER_S / cap_bytes_per_s);
}

/* Fixes the flows of the link of smallest share whose cap is no more than that. Says whether there were any: the share
 * has grown then. */
static gboolean
fix_capped (SpFlows *flows, const SpFlowLink *link, double share_bytes_per_s)
{
  gboolean any = FALSE;

  for (guint32 at = link->chain; at > 0; at = sp_flow_node_ (flows, at)->next) {
    guint32 id = sp_flow_node_ (flows, at)->flow;
    if (flows->flows[id].solved == flows->generation || flows->routes[id].cap_bytes_per_s > share_bytes_per_s)
      continue;
    take_from_route (flows, id, flows->routes[id].cap_bytes_per_s);
    fix_at_cap (flows, id);
    any = TRUE;
  }
  return any;
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

/* Fixes the flows of a link's list that are left, at its share. Neighbours in the list mostly cross the same links
 * next: their weights are added up before the link is written, which saves the wait for the write and rounds once. */
static inline __attribute__ ((always_inline)) void
fix_list_ (SpFlows *flows, const SpFlowLink *link, double share_bytes_per_s, gboolean has_weights)
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
      take_from_route (flows, id, share_bytes_per_s);
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

/* Fixes all that are left. */
static void
fix_all (SpFlows *flows, const SpFlowLink *link, double share_bytes_per_s)
{
  if (link->n_weighty > 0)
    fix_list_ (flows, link, share_bytes_per_s, TRUE);
  else if (link->n_items > 0)
    fix_list_ (flows, link, share_bytes_per_s, FALSE);
  for (guint32 at = link->chain; at > 0; at = sp_flow_node_ (flows, at)->next) {
    guint32 id = sp_flow_node_ (flows, at)->flow;
    if (flows->flows[id].solved == flows->generation)
      continue;
    take_from_route (flows, id, share_bytes_per_s);
    fix (flows, id, share_bytes_per_s, SP_PS_PER_S / share_bytes_per_s);
  }
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

/* The heap of the component's links. */
static void
open_links (SpFlows *flows)
{
  flows->n_shares = 0;
  for (guint32 i = 0; i < flows->component.n; i++) {
    guint32 id = flows->component.of[i];
    const SpFlowLink *link = &flows->links[id];
    flows->fill[id] = (SpFlowFill){ sp_flow_link_capacity_ (link), link->listed_weight + link->chained_weight };
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
    if (link->chain > 0 && fix_capped (flows, link, share_bytes_per_s))
      continue;
    /* Equal but for rounding: the same level, so that flows that should end together do. */
    if (!(share_bytes_per_s <= level_bytes_per_s * (1 + SP_FLOWS_LEVEL_EPSILON)))
      level_bytes_per_s = share_bytes_per_s;
    drop_first_share (flows);
    fix_all (flows, link, level_bytes_per_s);
  }
}

/* The flow of a link that has one. */
static guint32
only_flow (const SpFlows *flows, const SpFlowLink *link)
{
  guint32 id, at = link->n_items;

  if (link->chain > 0)
    return sp_flow_node_ (flows, link->chain)->flow;
  do
    id = link->items[--at].flow & ~SP_FLOWS_LONG_ROUTE;
  while (flows->flows[id].solved == SP_FLOWS_GONE);
  return id;
}

/* A flow that is alone on all its tight links, as most are in a ring: its rate is at hand. */
static gboolean
solve_alone (SpFlows *flows, const SpFlowLink *first)
{
  double capacity_bytes_per_s = G_MAXDOUBLE;

  if (sp_flow_link_n_live_ (first) != 1)
    return FALSE;
  guint32 id = only_flow (flows, first);
  const SpFlowRoute *route = &flows->routes[id];
  const guint32 *links = sp_flow_links_ (flows, route);
  for (guint32 i = 0; i < route->n_links; i++) {
    const SpFlowLink *link = &flows->links[links[i]];
    if (!link->is_tight)
      continue;
    if (sp_flow_link_n_live_ (link) != 1)
      return FALSE;
    capacity_bytes_per_s = MIN (capacity_bytes_per_s, sp_flow_link_capacity_ (link));
  }
  for (guint32 i = 0; i < route->n_links; i++) {
    SpFlowLink *link = &flows->links[links[i]];
    link->visited = flows->generation;
    flows->n_visited += link->is_tight;
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
      if (flows->flows[i].solved != SP_FLOWS_GONE) {
        flows->flows[i].solved = 0;
        if (sp_flow_is_in_arena_ (&flows->routes[i]))
          flows->routes[i].gathered = 0;
      }
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

  if (link->n_listed > 0 && link->n_items <= link->n_listed + link->n_listed / 4 + 1)
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

static void
solve_component (SpFlows *flows, guint32 first)
{
  gather (flows, first);
  fill_component (flows);
}

/* A link that is loose again: its flows run at their caps, or other links hold them back. */
static void
solve_loose (SpFlows *flows, const SpFlowLink *link)
{
  for (guint32 at = link->chain; at > 0; at = sp_flow_node_ (flows, at)->next) {
    guint32 id = sp_flow_node_ (flows, at)->flow, tight = 0;
    const SpFlowRoute *route = &flows->routes[id];
    const guint32 *links = sp_flow_links_ (flows, route);
    if (flows->flows[id].solved == flows->generation)
      continue;
    for (guint32 i = 0; i < route->n_links && tight == 0; i++)
      tight = flows->links[links[i]].is_tight ? links[i] : 0;
    if (tight == 0)
      fix_at_cap (flows, id);
    else
      solve_component (flows, tight);
  }
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
    if (!link->is_tight)
      solve_loose (flows, link);
    else if (link->visited != flows->generation && !solve_alone (flows, link))
      solve_component (flows, id);
  }
  flows->dirty.n = 0;
  flows->statistics.solves++;
  flows->statistics.rates += flows->n_redated;
  if (flows->n_redated > flows->n_dates / 2)
    sp_flows_narrow_horizon_ (flows);
}
