/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a kind of node interior and a kind of fabric have to say: one file each in sim/topologies/. */

#include "sim/topology.h"

G_BEGIN_DECLS

/* A vertex or link inside a node has a local number, the same in every node. Local vertices: GPUs first, then NICs,
 * then what the interior adds. Links of node n are [n * node_links, (n + 1) * node_links); those of the fabric follow:
 * first NIC to fabric of every NIC, then fabric to NIC, then what the fabric adds. */
struct _SpTopology {
  SpTopologySpec spec;
  const struct _SpInterior *interior;
  const struct _SpFabric *fabric;
  guint gpus, nics;                                               /* of a node; nics as the graph has them */
  guint node_vertices, node_links;                                /* of one node */
  guint n_nics;                                                   /* of all nodes */
  guint first_fabric_vertex, first_fabric_link, first_inner_link; /* inner: those that the fabric adds */
  guint n_vertices, n_links;
  guint32 *from, *to;
  double *capacity, *latency;
  double nic_bytes_per_s; /* of a NIC as the graph has it */

  /* once a link has failed */
  guint n_failed;
  guint8 *failed;     /* [n_links] */
  guint32 *out_first; /* [n_vertices + 1] into out: links that leave a vertex, ascending */
  guint32 *out;
  guint32 *queue, *came_by; /* [n_vertices]: of a search */
};

/* Routes are written to `links` as global numbers; how many is returned. */
typedef struct _SpInterior {
  const char *name;
  gboolean nvlink; /* GPUs reach each other's memory: NCCL's PXN works */
  void (*count) (const SpTopologySpec *spec, guint64 nics, guint64 *ret_vertices, guint64 *ret_links);
  /* sp_topology_add_link with local vertices, all links of a node in order. */
  void (*build) (SpTopology *t, guint node);
  guint (*route) (const SpTopology *t, guint node, guint from, guint to, guint32 *links);
  guint (*to_nic) (const SpTopology *t, guint node, guint gpu, guint nic, guint32 *links);
  guint (*from_nic) (const SpTopology *t, guint node, guint nic, guint gpu, guint32 *links);
  /* of the vertices that it adds, numbered from 0 */
  SpVertexKind (*vertex_kind) (const SpTopology *t, guint vertex);
  void (*vertex_name) (const SpTopology *t, guint vertex, GString *out);
} SpInterior;

typedef struct _SpFabric {
  const char *name;
  gboolean rails;                                /* NICs of unlike numbers are on networks of their own */
  char *(*problem) (const SpTopologySpec *spec); /* NULL: none. Free with g_free */
  void (*count) (const SpTopologySpec *spec, guint64 nics, guint64 *ret_vertices, guint64 *ret_links);
  guint (*attached) (const SpTopology *t, guint node, guint nic); /* its vertex, numbered from 0 */
  void (*build) (SpTopology *t);                                  /* its own links */
  /* From a NIC's vertex of the fabric to another's. */
  guint (*route) (const SpTopology *t, guint from_node, guint from_nic, guint to_node, guint to_nic, guint32 *links);
  SpVertexKind (*vertex_kind) (const SpTopology *t, guint vertex);
  void (*vertex_name) (const SpTopology *t, guint vertex, GString *out);
} SpFabric;

extern const SpInterior sp_interior_switch, sp_interior_mesh, sp_interior_pcie, sp_interior_pairs;
extern const SpFabric sp_fabric_flat, sp_fabric_leaf_spine, sp_fabric_rails, sp_fabric_torus, sp_fabric_dragonfly;

/* The next link. */
void sp_topology_add_link (SpTopology *t, guint from, guint to, double bytes_per_s, double latency_s);

/* Local numbers of vertices. */
static inline guint
sp_local_nic (const SpTopology *t, guint nic)
{
  return t->gpus + nic;
}

static inline guint
sp_local_inner (const SpTopology *t, guint vertex)
{
  return t->gpus + t->nics + vertex;
}

static inline guint
sp_local_of_node (const SpTopology *t, guint node, guint local)
{
  return node * t->node_vertices + local;
}

/* NIC of a GPU, both numbered within their node. */
static inline guint
sp_local_nic_of (const SpTopology *t, guint gpu)
{
  return gpu * t->nics / t->gpus;
}

/* Number among all pairs (a, b) of n with a != b. */
static inline guint
sp_pair_number (guint n, guint a, guint b)
{
  return a * (n - 1) + (b < a ? b : b - 1);
}

/* NICs of a node as the graph has them. */
static inline guint
sp_graph_nics (const SpTopologySpec *spec)
{
  return spec->nodes > 1 ? (guint) MIN (spec->nics, spec->gpus_per_node) : 0;
}

G_END_DECLS
