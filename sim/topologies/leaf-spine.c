/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/topology-private.h"

/* Nodes under leaf switches, leaves under spines, one link from each leaf to each spine. Rails: a leaf for each NIC of
 * a node instead of one for all. Leaves are numbered by nodes, then rails; spines follow. Links: leaf 0 to its spines,
 * leaf 1 ..., then spine 0 to its leaves ... A leaf's uplinks together are its adapters' rate / oversubscription, also
 * where the last leaf has fewer nodes. */

static gboolean
has_rails (const SpTopologySpec *s)
{
  return s->fabric == SP_FABRIC_RAILS;
}

static guint64
n_leaves (const SpTopologySpec *s, guint64 nics)
{
  guint64 blocks = (guint64) (s->nodes + s->nodes_per_leaf - 1) / (guint64) s->nodes_per_leaf;

  return has_rails (s) ? blocks * nics : blocks;
}

static char *
problem (const SpTopologySpec *s)
{
  if (s->nodes_per_leaf < 1 || s->spines < 1 || s->oversubscription <= 0)
    return g_strdup ("nodes per leaf, spines and oversubscription must be positive");
  return NULL;
}

static void
count (const SpTopologySpec *spec, guint64 nics, guint64 *ret_vertices, guint64 *ret_links)
{
  guint64 leaves = n_leaves (spec, nics);

  *ret_vertices = leaves + (guint64) spec->spines;
  *ret_links = 2 * leaves * (guint64) spec->spines;
}

static guint
attached (const SpTopology *t, guint node, guint nic)
{
  guint block = node / (guint) t->spec.nodes_per_leaf;

  return has_rails (&t->spec) ? block * t->nics + nic : block;
}

static void
build (SpTopology *t)
{
  const SpTopologySpec *s = &t->spec;
  guint leaves = (guint) n_leaves (s, t->nics), spines = (guint) s->spines, first = t->first_fabric_vertex;
  double adapters = (double) s->nodes_per_leaf * (has_rails (s) ? 1 : t->nics);
  double rate = adapters * t->nic_bytes_per_s / s->oversubscription / spines;

  for (guint l = 0; l < leaves; l++)
    for (guint p = 0; p < spines; p++)
      sp_topology_add_link (t, first + l, first + leaves + p, rate, s->hop_latency_s);
  for (guint p = 0; p < spines; p++)
    for (guint l = 0; l < leaves; l++)
      sp_topology_add_link (t, first + leaves + p, first + l, rate, s->hop_latency_s);
}

static guint
route (const SpTopology *t, guint from_node, guint from_nic, guint to_node, guint to_nic, guint32 *links)
{
  guint leaves = (guint) n_leaves (&t->spec, t->nics), spines = (guint) t->spec.spines;
  guint from = attached (t, from_node, from_nic), to = attached (t, to_node, to_nic);

  if (from == to)
    return 0;
  /* Rails number the NICs of each rail: nodes of one rail follow each other. */
  guint spine = (has_rails (&t->spec) ? to_node + to_nic : to_node * t->nics + to_nic) % spines;
  links[0] = t->first_inner_link + from * spines + spine;
  links[1] = t->first_inner_link + leaves * spines + spine * leaves + to;
  return 2;
}

static SpVertexKind
vertex_kind (const SpTopology *t, guint vertex)
{
  return vertex < n_leaves (&t->spec, t->nics) ? SP_VERTEX_LEAF : SP_VERTEX_SPINE;
}

static void
vertex_name (const SpTopology *t, guint vertex, GString *out)
{
  guint leaves = (guint) n_leaves (&t->spec, t->nics);

  if (vertex >= leaves)
    g_string_append_printf (out, "spine%u", vertex - leaves);
  else if (has_rails (&t->spec))
    g_string_append_printf (out, "rail%u.leaf%u", vertex % t->nics, vertex / t->nics);
  else
    g_string_append_printf (out, "leaf%u", vertex);
}

const SpFabric sp_fabric_leaf_spine = { .name = "leaf-spine",
                                        .problem = problem,
                                        .count = count,
                                        .attached = attached,
                                        .build = build,
                                        .route = route,
                                        .vertex_kind = vertex_kind,
                                        .vertex_name = vertex_name };

const SpFabric sp_fabric_rails = { .name = "rails",
                                   .rails = TRUE,
                                   .problem = problem,
                                   .count = count,
                                   .attached = attached,
                                   .build = build,
                                   .route = route,
                                   .vertex_kind = vertex_kind,
                                   .vertex_name = vertex_name };
