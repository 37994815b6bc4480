/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/flows-private.h"

/*
 * Slots, routes, and who is on which link. Coming and going changes no rate: it marks the tight links of the route, and
 * those that it makes tight or loose, for the next solve. Where there are none, there is nothing to solve.
 */

/* --- slots and routes --------------------------------------------------------------------------------------------- */

static guint32
take_slot (SpFlows *flows)
{
  if (flows->first_free != SP_FLOWS_NONE) {
    guint32 id = flows->first_free;
    flows->first_free = flows->routes[id].next_free;
    return id;
  }
  if (G_UNLIKELY (flows->n_slots == flows->n_slots_allocated)) {
    if (flows->n_slots >= SP_FLOWS_LONG_ROUTE / 2)
      g_error ("more than %u flows at once", flows->n_slots);
    gsize old = flows->n_slots, new = sp_flows_larger_ (old);
    flows->flows = sp_flows_grow_array_ (flows->flows, old * sizeof (SpFlow), new * sizeof (SpFlow));
    flows->routes = sp_flows_grow_array_ (flows->routes, old * sizeof (SpFlowRoute), new * sizeof (SpFlowRoute));
    flows->n_slots_allocated = (guint32) new;
  }
  return flows->n_slots++;
}

/* Words that a route takes in the arena. */
static inline guint32
block_words (const SpFlowRoute *route)
{
  return sp_flow_has_cap_ (route) ? route->n_links * (1 + SP_FLOWS_NODE_WORDS) : route->n_links;
}

/* A block of the arena. */
static guint32
take_block (SpFlows *flows, guint32 n)
{
  while (flows->arena_free.n <= n)
    sp_flow_list_append_ (&flows->arena_free, SP_FLOWS_NONE);
  guint32 offset = flows->arena_free.of[n];
  if (offset != SP_FLOWS_NONE) {
    flows->arena_free.of[n] = flows->arena.of[offset];
    return offset;
  }
  offset = flows->arena.n;
  if (offset >= SP_FLOWS_NONE / 2 - n)
    g_error ("more than %u words of routes at once", offset);
  sp_flow_list_reserve_ (&flows->arena, offset + n);
  flows->arena.n += n;
  return offset;
}

/* One of those that hold the slot lets go: when none does, it is free. */
void
sp_flow_release_ (SpFlows *flows, guint32 id)
{
  SpFlowRoute *route = &flows->routes[id];

  if (--route->holds > 0)
    return;
  if (sp_flow_is_in_arena_ (route) && route->n_links > 0) {
    guint32 offset = route->offset, n = block_words (route);
    flows->arena.of[offset] = flows->arena_free.of[n];
    flows->arena_free.of[n] = offset;
  }
  route->next_free = flows->first_free;
  flows->first_free = id;
}

/* Writes the route down, in the inner numbering, and returns it. */
static const guint32 *
write_route (SpFlows *flows, SpFlowRoute *route, const guint32 *links)
{
  guint32 *to = route->links, n_links = route->n_links;

  if (sp_flow_is_in_arena_ (route) && n_links > 0) {
    route->offset = take_block (flows, block_words (route));
    route->gathered = 0;
    to = flows->arena.of + route->offset;
  }
  for (guint i = 0; i < n_links; i++)
    to[i] = links[i] + 1;
  return to;
}

/* --- tight and loose ---------------------------------------------------------------------------------------------- */

static inline SpFlowLoad
load_of (const SpFlowRoute *route)
{
  double load = route->cap_bytes_per_s * route->weight * SP_FLOWS_LOAD_UNITS;

  return load < (double) SP_FLOWS_MOST_LOAD ? MAX (1, (SpFlowLoad) load) : SP_FLOWS_MOST_LOAD;
}

/* Something on the link has changed: what it is now, and whether the next solve must look at it. */
static inline void
judge (SpFlows *flows, guint32 id, SpFlowLink *link)
{
  gboolean is_tight = link->n_listed > 0 || link->load > link->limit;

  if (!is_tight && !link->is_tight)
    return;
  flows->n_tight_links += (guint32) is_tight - link->is_tight;
  link->is_tight = (guint8) is_tight;
  sp_flow_mark_dirty_ (flows, id);
  flows->must_solve = TRUE;
}

/* A link has another capacity. */
void
sp_flow_link_changed_ (SpFlows *flows, guint32 id)
{
  SpFlowLink *link = &flows->links[id];
  double limit = sp_flow_link_capacity_ (link) * (1 + SP_FLOWS_LOOSE_EPSILON) * SP_FLOWS_LOAD_UNITS;

  link->limit = limit < (double) SP_FLOWS_MOST_LOAD ? (SpFlowLoad) limit : SP_FLOWS_MOST_LOAD - 1;
  judge (flows, id, link);
}

/* Whether anything may hold the flow back. */
gboolean
sp_flow_crosses_tight_ (const SpFlows *flows, guint32 id)
{
  const SpFlowRoute *route = &flows->routes[id];
  const guint32 *links = sp_flow_links_ (flows, route);

  for (guint32 i = 0; i < route->n_links; i++)
    if (flows->links[links[i]].is_tight)
      return TRUE;
  return FALSE;
}

/* --- lists: flows without a cap ----------------------------------------------------------------------------------- */

static void
list (SpFlows *flows, guint32 id, const guint32 *links, guint n_links, guint which)
{
  SpFlowLink *link = &flows->links[links[which]];
  guint32 weight = flows->routes[id].weight;

  if (G_UNLIKELY (link->n_items == link->n_allocated))
    sp_flows_grow_list_ (&flows->slabs, link);
  SpFlowItem *item = &link->items[link->n_items++];
  guint k = 0;
  item->flow = n_links > SP_FLOWS_INLINE_LINKS ? id | SP_FLOWS_LONG_ROUTE : id;
  for (guint i = 0; i < n_links && n_links <= SP_FLOWS_INLINE_LINKS; i++)
    if (i != which)
      item->others[k++] = links[i];
  while (k < SP_FLOWS_INLINE_LINKS - 1)
    item->others[k++] = 0;
  link->n_listed++;
  link->n_weighty += weight != 1;
  link->listed_weight += weight;
  judge (flows, links[which], link);
}

static void
unlist (SpFlows *flows, guint32 link_id, guint32 weight)
{
  SpFlowLink *link = &flows->links[link_id];

  link->n_listed--;
  link->n_weighty -= weight != 1;
  link->listed_weight -= weight;
  judge (flows, link_id, link);
}

/* --- chains: flows with a cap ------------------------------------------------------------------------------------- */

static void
join_chains (SpFlows *flows, guint32 id, const guint32 *links)
{
  const SpFlowRoute *route = &flows->routes[id];
  SpFlowLoad load = load_of (route);
  guint32 n_links = route->n_links, weight = route->weight, at = route->offset + n_links;

  for (guint i = 0; i < n_links; i++, at += SP_FLOWS_NODE_WORDS) {
    SpFlowLink *link = &flows->links[links[i]];
    if (link->chain > 0)
      sp_flow_node_ (flows, link->chain)->previous = at;
    *sp_flow_node_ (flows, at) = (SpFlowNode){ .flow = id, .next = link->chain };
    link->chain = at;
    link->n_chained++;
    link->chained_weight += weight;
    link->load += load;
    judge (flows, links[i], link);
  }
}

static void
leave_chains (SpFlows *flows, guint32 id, const guint32 *links)
{
  const SpFlowRoute *route = &flows->routes[id];
  SpFlowLoad load = load_of (route);
  guint32 n_links = route->n_links, weight = route->weight, at = route->offset + n_links;

  for (guint i = 0; i < n_links; i++, at += SP_FLOWS_NODE_WORDS) {
    SpFlowLink *link = &flows->links[links[i]];
    SpFlowNode node = *sp_flow_node_ (flows, at);
    if (node.previous > 0)
      sp_flow_node_ (flows, node.previous)->next = node.next;
    else
      link->chain = node.next;
    if (node.next > 0)
      sp_flow_node_ (flows, node.next)->previous = node.previous;
    link->n_chained--;
    link->chained_weight -= weight;
    link->load -= load;
    judge (flows, links[i], link);
  }
}

/* --- coming and going --------------------------------------------------------------------------------------------- */

/* Takes a slot and enters the flow on its links. */
guint32
sp_flow_join_ (SpFlows *flows, const guint32 *links, guint n_links, double cap_bytes_per_s, guint32 weight)
{
  guint32 id = take_slot (flows);
  SpFlowRoute *route = &flows->routes[id];

  *route = (SpFlowRoute){
    .cap_bytes_per_s = MIN (cap_bytes_per_s, G_MAXDOUBLE), .weight = weight, .n_links = (guint16) n_links, .holds = 1
  };
  const guint32 *inner = write_route (flows, route, links);
  if (sp_flow_has_cap_ (route)) {
    join_chains (flows, id, inner);
    return id;
  }
  for (guint i = 0; i < n_links; i++)
    list (flows, id, inner, n_links, i);
  route->holds += (guint16) n_links;
  return id;
}

/* Takes a flow from its links, and changes nothing else. */
void
sp_flow_leave_ (SpFlows *flows, guint32 id)
{
  const SpFlowRoute *route = &flows->routes[id];
  const guint32 *links = sp_flow_links_ (flows, route);

  flows->flows[id].solved = SP_FLOWS_GONE;
  if (sp_flow_has_cap_ (route)) {
    leave_chains (flows, id, links);
    return;
  }
  for (guint32 i = 0, n_links = route->n_links, weight = route->weight; i < n_links; i++)
    unlist (flows, links[i], weight);
}
