/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/topology-private.h"

/* Routers of a group joined two by two, groups joined two by two: the link from group a to the o-th of the other groups
 * leaves from router o mod routers of a. Nodes fill routers, routers groups, in order. Links: group by group those
 * between its routers, then those between groups. */

static char *
problem (const SpTopologySpec *s)
{
  if (s->groups < 1 || s->routers_per_group < 1 || s->nodes_per_router < 1)
    return g_strdup ("groups, routers per group and nodes per router must be positive");
  gint64 nodes = (gint64) s->groups * s->routers_per_group * s->nodes_per_router;
  if (nodes != s->nodes)
    return g_strdup_printf ("%d groups of %d routers of %d nodes are %" G_GINT64_FORMAT " nodes, not %d", s->groups,
                            s->routers_per_group, s->nodes_per_router, nodes, s->nodes);
  if (s->router_bytes_per_s <= 0 || s->global_bytes_per_s <= 0)
    return g_strdup ("the rates between routers and between groups must be positive");
  return NULL;
}

static void
count (const SpTopologySpec *spec, guint64 nics, guint64 *ret_vertices, guint64 *ret_links)
{
  guint64 groups = (guint64) spec->groups, routers = (guint64) spec->routers_per_group;

  *ret_vertices = groups * routers;
  *ret_links = groups * routers * (routers - 1) + groups * (groups - 1);
}

static guint
attached (const SpTopology *t, guint node, guint nic)
{
  return node / (guint) t->spec.nodes_per_router;
}

/* Router of group `from` that has the link to group `to`, numbered over all. */
static guint
gateway (const SpTopology *t, guint from, guint to)
{
  guint routers = (guint) t->spec.routers_per_group;

  return from * routers + (to < from ? to : to - 1) % routers;
}

static void
build (SpTopology *t)
{
  const SpTopologySpec *s = &t->spec;
  guint first = t->first_fabric_vertex, groups = (guint) s->groups, routers = (guint) s->routers_per_group;

  for (guint g = 0; g < groups; g++)
    for (guint a = 0; a < routers; a++)
      for (guint b = 0; b < routers; b++)
        if (a != b)
          sp_topology_add_link (t, first + g * routers + a, first + g * routers + b, s->router_bytes_per_s,
                                s->hop_latency_s);
  for (guint a = 0; a < groups; a++)
    for (guint b = 0; b < groups; b++)
      if (a != b)
        sp_topology_add_link (t, first + gateway (t, a, b), first + gateway (t, b, a), s->global_bytes_per_s,
                              s->hop_latency_s);
}

static guint
local_link (const SpTopology *t, guint from, guint to)
{
  guint routers = (guint) t->spec.routers_per_group, group = from / routers;

  return t->first_inner_link + group * routers * (routers - 1) + sp_pair_number (routers, from % routers, to % routers);
}

static guint
route (const SpTopology *t, guint from_node, guint from_nic, guint to_node, guint to_nic, guint32 *links)
{
  guint groups = (guint) t->spec.groups, routers = (guint) t->spec.routers_per_group, n = 0;
  guint from = attached (t, from_node, from_nic), to = attached (t, to_node, to_nic);
  guint from_group = from / routers, to_group = to / routers;

  if (from_group != to_group) {
    guint out = gateway (t, from_group, to_group);
    if (from != out)
      links[n++] = local_link (t, from, out);
    links[n++] = t->first_inner_link + groups * routers * (routers - 1) + sp_pair_number (groups, from_group, to_group);
    from = gateway (t, to_group, from_group);
  }
  if (from != to)
    links[n++] = local_link (t, from, to);
  return n;
}

static SpVertexKind
vertex_kind (const SpTopology *t, guint vertex)
{
  return SP_VERTEX_ROUTER;
}

static void
vertex_name (const SpTopology *t, guint vertex, GString *out)
{
  guint routers = (guint) t->spec.routers_per_group;

  g_string_append_printf (out, "group%u.router%u", vertex / routers, vertex % routers);
}

const SpFabric sp_fabric_dragonfly = { .name = "dragonfly",
                                       .problem = problem,
                                       .count = count,
                                       .attached = attached,
                                       .build = build,
                                       .route = route,
                                       .vertex_kind = vertex_kind,
                                       .vertex_name = vertex_name };
