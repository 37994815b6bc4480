/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/topology-private.h"

/* Full bisection: all NICs at one vertex that has no limit. */

static void
count (const SpTopologySpec *spec, guint64 nics, guint64 *ret_vertices, guint64 *ret_links)
{
  *ret_vertices = 1;
  *ret_links = 0;
}

static guint
attached (const SpTopology *t, guint node, guint nic)
{
  return 0;
}

static void
build (SpTopology *t)
{
}

static guint
route (const SpTopology *t, guint from_node, guint from_nic, guint to_node, guint to_nic, guint32 *links)
{
  return 0;
}

static SpVertexKind
vertex_kind (const SpTopology *t, guint vertex)
{
  return SP_VERTEX_NETWORK;
}

static void
vertex_name (const SpTopology *t, guint vertex, GString *out)
{
  g_string_append (out, "network");
}

const SpFabric sp_fabric_flat = { .name = "flat",
                                  .count = count,
                                  .attached = attached,
                                  .build = build,
                                  .route = route,
                                  .vertex_kind = vertex_kind,
                                  .vertex_name = vertex_name };
