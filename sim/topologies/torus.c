/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/topology-private.h"

/* A router a node. Node n is at the mixed-radix digits of n, the first dimension least significant. Links of a router,
 * in order of dimensions: up, then down; a dimension of two has only the one up, which is also the way down, one of one
 * none. */

static guint
ways (gint32 size)
{
  return size > 2 ? 2 : size == 2 ? 1 : 0;
}

static guint
router_links (const SpTopologySpec *s)
{
  guint n = 0;

  for (gint32 d = 0; d < s->n_dims; d++)
    n += ways (s->dims[d]);
  return n;
}

static char *
problem (const SpTopologySpec *s)
{
  gint64 product = 1, longest = 0;

  for (gint32 d = 0; d < s->n_dims; d++) {
    if (s->dims[d] < 1)
      return g_strdup ("dimensions must be positive");
    product *= s->dims[d];
    longest += s->dims[d] / 2;
  }
  if (s->n_dims < 1 || product != s->nodes)
    return g_strdup_printf ("the dimensions' product is %" G_GINT64_FORMAT ", not the %d nodes", product, s->nodes);
  if (longest > SP_TOPOLOGY_MAX_ROUTE / 2)
    return g_strdup_printf ("a way of %" G_GINT64_FORMAT " routers, at most %d", longest, SP_TOPOLOGY_MAX_ROUTE / 2);
  if (s->router_bytes_per_s <= 0)
    return g_strdup ("the rate between routers must be positive");
  return NULL;
}

static void
count (const SpTopologySpec *spec, guint64 nics, guint64 *ret_vertices, guint64 *ret_links)
{
  *ret_vertices = (guint64) spec->nodes;
  *ret_links = (guint64) spec->nodes * router_links (spec);
}

static guint
attached (const SpTopology *t, guint node, guint nic)
{
  return node;
}

/* One step up or down a dimension of `size`, whose digit has this stride. */
static guint
neighbour (guint node, guint stride, guint size, gboolean up)
{
  guint digit = node / stride % size, next = up ? (digit + 1) % size : (digit + size - 1) % size;

  return node - digit * stride + next * stride;
}

static void
build (SpTopology *t)
{
  const SpTopologySpec *s = &t->spec;
  guint first = t->first_fabric_vertex;

  for (guint node = 0; node < (guint) s->nodes; node++) {
    guint stride = 1;
    for (gint32 d = 0; d < s->n_dims; d++) {
      guint size = (guint) s->dims[d];
      for (guint way = 0; way < ways (s->dims[d]); way++)
        sp_topology_add_link (t, first + node, first + neighbour (node, stride, size, way == 0), s->router_bytes_per_s,
                              s->hop_latency_s);
      stride *= size;
    }
  }
}

static guint
route (const SpTopology *t, guint from_node, guint from_nic, guint to_node, guint to_nic, guint32 *links)
{
  const SpTopologySpec *s = &t->spec;
  guint per_router = router_links (s), stride = 1, first_way = 0, n = 0;

  for (gint32 d = 0; d < s->n_dims; d++) {
    guint size = (guint) s->dims[d], ahead = (to_node / stride % size + size - from_node / stride % size) % size;
    gboolean up = 2 * ahead <= size;
    for (guint steps = up ? ahead : size - ahead; steps > 0; steps--) {
      links[n++] = t->first_inner_link + from_node * per_router + first_way + !up;
      from_node = neighbour (from_node, stride, size, up);
    }
    stride *= size;
    first_way += ways (s->dims[d]);
  }
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
  g_string_append_printf (out, "router%u", vertex);
}

const SpFabric sp_fabric_torus = { .name = "torus",
                                   .problem = problem,
                                   .count = count,
                                   .attached = attached,
                                   .build = build,
                                   .route = route,
                                   .vertex_kind = vertex_kind,
                                   .vertex_name = vertex_name };
