/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/topology-private.h"

/* Every GPU of a node behind an NVSwitch. Links of a node: GPUs up, GPUs down, GPUs to their NIC, NIC to its GPUs. */

static void
count (const SpTopologySpec *spec, guint64 nics, guint64 *ret_vertices, guint64 *ret_links)
{
  *ret_vertices = 1;
  *ret_links = (nics > 0 ? 4 : 2) * (guint64) spec->gpus_per_node;
}

static void
build (SpTopology *t, guint node)
{
  const SpTopologySpec *s = &t->spec;
  guint hub = sp_local_of_node (t, node, sp_local_inner (t, 0));

  for (guint i = 0; i < t->gpus; i++)
    sp_topology_add_link (t, sp_local_of_node (t, node, i), hub, s->link_bytes_per_s, s->link_latency_s);
  for (guint i = 0; i < t->gpus; i++)
    sp_topology_add_link (t, hub, sp_local_of_node (t, node, i), s->link_bytes_per_s, 0);
  for (guint i = 0; i < t->gpus && t->nics > 0; i++)
    sp_topology_add_link (t, sp_local_of_node (t, node, i),
                          sp_local_of_node (t, node, sp_local_nic (t, sp_local_nic_of (t, i))), s->pcie_bytes_per_s, 0);
  for (guint i = 0; i < t->gpus && t->nics > 0; i++)
    sp_topology_add_link (t, sp_local_of_node (t, node, sp_local_nic (t, sp_local_nic_of (t, i))),
                          sp_local_of_node (t, node, i), s->pcie_bytes_per_s, 0);
}

static guint
route (const SpTopology *t, guint node, guint from, guint to, guint32 *links)
{
  links[0] = node * t->node_links + from;
  links[1] = node * t->node_links + t->gpus + to;
  return 2;
}

static guint
to_nic (const SpTopology *t, guint node, guint gpu, guint nic, guint32 *links)
{
  links[0] = node * t->node_links + 2 * t->gpus + gpu;
  return 1;
}

static guint
from_nic (const SpTopology *t, guint node, guint nic, guint gpu, guint32 *links)
{
  links[0] = node * t->node_links + 3 * t->gpus + gpu;
  return 1;
}

static SpVertexKind
vertex_kind (const SpTopology *t, guint vertex)
{
  return SP_VERTEX_SWITCH;
}

static void
vertex_name (const SpTopology *t, guint vertex, GString *out)
{
  g_string_append (out, "switch");
}

const SpInterior sp_interior_switch = { .name = "switch",
                                        .nvlink = TRUE,
                                        .count = count,
                                        .build = build,
                                        .route = route,
                                        .to_nic = to_nic,
                                        .from_nic = from_nic,
                                        .vertex_kind = vertex_kind,
                                        .vertex_name = vertex_name };
