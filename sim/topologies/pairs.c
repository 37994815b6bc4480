/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/topology-private.h"

/* NVLink bridges over PCIe: GPUs 2 i and 2 i + 1 have a link of their own, all other traffic goes as in pcie.c. Of an
 * odd number the last GPU has no bridge. Links of a node: those of pcie, then each pair's two ways. */

static void
count (const SpTopologySpec *spec, guint64 nics, guint64 *ret_vertices, guint64 *ret_links)
{
  sp_interior_pcie.count (spec, nics, ret_vertices, ret_links);
  *ret_links += 2 * ((guint64) spec->gpus_per_node / 2);
}

static void
build (SpTopology *t, guint node)
{
  sp_interior_pcie.build (t, node);
  for (guint i = 0; i < t->gpus / 2 * 2; i++)
    sp_topology_add_link (t, sp_local_of_node (t, node, i), sp_local_of_node (t, node, i ^ 1), t->spec.link_bytes_per_s,
                          t->spec.link_latency_s);
}

static guint
route (const SpTopology *t, guint node, guint from, guint to, guint32 *links)
{
  guint paired = t->gpus / 2 * 2;

  if ((from ^ 1) != to)
    return sp_interior_pcie.route (t, node, from, to, links);
  links[0] = (node + 1) * t->node_links - paired + from;
  return 1;
}

static guint
to_nic (const SpTopology *t, guint node, guint gpu, guint nic, guint32 *links)
{
  return sp_interior_pcie.to_nic (t, node, gpu, nic, links);
}

static guint
from_nic (const SpTopology *t, guint node, guint nic, guint gpu, guint32 *links)
{
  return sp_interior_pcie.from_nic (t, node, nic, gpu, links);
}

static SpVertexKind
vertex_kind (const SpTopology *t, guint vertex)
{
  return sp_interior_pcie.vertex_kind (t, vertex);
}

static void
vertex_name (const SpTopology *t, guint vertex, GString *out)
{
  sp_interior_pcie.vertex_name (t, vertex, out);
}

const SpInterior sp_interior_pairs = { .name = "pairs",
                                       .count = count,
                                       .build = build,
                                       .route = route,
                                       .to_nic = to_nic,
                                       .from_nic = from_nic,
                                       .vertex_kind = vertex_kind,
                                       .vertex_name = vertex_name };
