/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/topology-private.h"

/* A direct link from each GPU to each other one of its node. Links of a node: those of GPU 0 to its peers in order, of
 * GPU 1 ...; GPUs to their NIC; NIC to its GPUs. */

static void
count (const SpTopologySpec *spec, guint64 nics, guint64 *ret_vertices, guint64 *ret_links)
{
  guint64 gpus = (guint64) spec->gpus_per_node;

  *ret_vertices = 0;
  *ret_links = gpus * (gpus - 1) + (nics > 0 ? 2 * gpus : 0);
}

static void
build (SpTopology *t, guint node)
{
  const SpTopologySpec *s = &t->spec;

  for (guint i = 0; i < t->gpus; i++)
    for (guint j = 0; j < t->gpus; j++)
      if (i != j)
        sp_topology_add_link (t, sp_local_of_node (t, node, i), sp_local_of_node (t, node, j),
                              s->link_bytes_per_s / (t->gpus - 1), s->link_latency_s);
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
  links[0] = node * t->node_links + sp_pair_number (t->gpus, from, to);
  return 1;
}

static guint
to_nic (const SpTopology *t, guint node, guint gpu, guint nic, guint32 *links)
{
  links[0] = node * t->node_links + t->gpus * (t->gpus - 1) + gpu;
  return 1;
}

static guint
from_nic (const SpTopology *t, guint node, guint nic, guint gpu, guint32 *links)
{
  links[0] = node * t->node_links + t->gpus * t->gpus + gpu;
  return 1;
}

const SpInterior sp_interior_mesh = { .name = "mesh",
                                      .nvlink = TRUE,
                                      .count = count,
                                      .build = build,
                                      .route = route,
                                      .to_nic = to_nic,
                                      .from_nic = from_nic };
