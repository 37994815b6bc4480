/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The network as a graph: which links the bytes from one GPU to another cross.
 *
 * Vertices are GPUs, NVSwitches, PCIe switches, sockets, adapters (NICs) and the switches or routers between nodes.
 * LINKS are directed, numbered from 0, each with a capacity (bytes/s, one direction, what is really reached) and a
 * latency. Nodes are alike; GPUs are numbered node by node, and rank r of a program is GPU r.
 *
 * A topology is the inside of a node and a fabric between nodes. Each kind is one file of sim/topologies/ and one row
 * of a table in topology.c.
 *   inside   switch     every GPU has a port up and a port down at an NVSwitch
 *            mesh       a direct link from each GPU to each other one; the GPU's rate is divided over its peers
 *            pcie       GPUs behind PCIe switches behind sockets, the sockets joined two by two
 *            pairs      pcie, and NVLink bridges: GPUs 2 i and 2 i + 1 have a link of their own
 *   fabric   flat       full bisection: only the adapters' own links limit
 *            leaf-spine nodes under leaf switches, each of which has one link to every spine
 *            rails      adapter k of a node is on rail k, a leaf-spine network whose spines all rails share
 *            torus      a router a node, joined to its neighbours in each dimension
 *            dragonfly  routers joined two by two in a group, groups joined two by two
 *
 * Adapters. NIC k serves the GPUs i with floor (i nics / gpus) = k. Where a node has more adapters than GPUs, those of
 * a GPU are one adapter of their summed rate (nics / gpus of one): libraries spread even one message over them.
 *
 * Routes are a pure function of the two GPUs:
 *   leaf-spine  by spine (destination's NIC) mod spines: from a leaf to consecutive NICs each has an uplink of its own,
 *               and all that goes to one NIC comes down one way (D-mod-k). (Source + destination) would send a shift by
 *               a constant over every other spine only.
 *   rails       first over NVLink to the GPU whose NIC is on the destination's rail, as NCCL's PXN does; behind PCIe,
 *               where there is no PXN, from rail to rail over a spine.
 *   torus       dimension by dimension, the shorter way; half way round goes up
 *   dragonfly   minimal: at most one local, one global, one local link
 * After sp_topology_fail_link() routes that crossed the link go the way with the fewest links over what is left, lowest
 * link numbers first; through no GPU or NIC of a third node.
 *
 * Latency. A route's is the sum of its links'. Inside a node it is link_latency_s, between nodes network_latency_s, of
 * adapter to adapter, plus hop_latency_s for each further link between switches.
 *
 * Cost: 24 bytes a link. 2,048 nodes of 8 GPUs (16,384; rails with 16 nodes a leaf): 131,072 links, built in 10 ms. A
 * route takes 15 ns (-O3) and allocates nothing; where a failed link was on it, a search of the graph.
 *
 * Known lies. Links are full duplex and independent. A switch has no limit of its own. Adaptive routing is not
 * modelled: a fabric that spreads packets is better described by one wide spine.
 *
 * Threads: routes of a topology without failed links may be asked from several at once.
 */

#include <glib.h>

G_BEGIN_DECLS

#define SP_TOPOLOGY_ERROR (sp_topology_error_quark ())
GQuark sp_topology_error_quark (void);

typedef enum {
  SP_TOPOLOGY_ERROR_SPEC, /* numbers that make no network, or too large a one */
  SP_TOPOLOGY_ERROR_CUT   /* links have failed and two GPUs cannot reach each other */
} SpTopologyError;

typedef enum { SP_NODE_SWITCH, SP_NODE_MESH, SP_NODE_PCIE, SP_NODE_PAIRS, SP_N_NODE_KINDS } SpNodeKind;

typedef enum {
  SP_FABRIC_FLAT,
  SP_FABRIC_LEAF_SPINE,
  SP_FABRIC_RAILS,
  SP_FABRIC_TORUS,
  SP_FABRIC_DRAGONFLY,
  SP_N_FABRIC_KINDS
} SpFabricKind;

#define SP_TOPOLOGY_MAX_DIMS 4

/* Rates are those that are reached: efficiencies are the caller's. Fields of other kinds are ignored. */
typedef struct {
  SpNodeKind node;
  SpFabricKind fabric;
  gint32 nodes, gpus_per_node;
  double link_bytes_per_s; /* of a GPU, one direction: its NVLinks together, or (pcie) its PCIe port */
  double link_latency_s;

  /* pcie, pairs */
  gint32 gpus_per_switch, switches_per_socket;
  double uplink_bytes_per_s; /* PCIe switch to socket */
  double socket_bytes_per_s; /* socket to socket */

  /* more than one node */
  gint32 nics; /* a node */
  double nic_bytes_per_s;
  double pcie_bytes_per_s; /* GPU to NIC inside a node that is not pcie; of pairs, the PCIe port */
  double network_latency_s, hop_latency_s;

  gint32 nodes_per_leaf, spines;     /* leaf-spine, rails */
  double oversubscription;           /* a leaf's adapters / its uplinks; 1 for none */
  gint32 dims[SP_TOPOLOGY_MAX_DIMS]; /* torus: their product is `nodes` */
  gint32 n_dims;
  gint32 groups, routers_per_group, nodes_per_router; /* dragonfly: their product is `nodes` */
  double router_bytes_per_s;                          /* torus and dragonfly: router to router */
  double global_bytes_per_s;                          /* dragonfly: group to group */
} SpTopologySpec;

typedef enum {
  SP_VERTEX_GPU,
  SP_VERTEX_NIC,
  SP_VERTEX_SWITCH,
  SP_VERTEX_PCIE_SWITCH,
  SP_VERTEX_SOCKET,
  SP_VERTEX_NETWORK, /* the flat fabric */
  SP_VERTEX_LEAF,
  SP_VERTEX_SPINE,
  SP_VERTEX_ROUTER,
  SP_N_VERTEX_KINDS
} SpVertexKind;

typedef struct _SpTopology SpTopology;

/* NULL with SP_TOPOLOGY_ERROR_SPEC where the numbers do not go together. */
SpTopology *sp_topology_new (const SpTopologySpec *spec, GError **error);
void sp_topology_free (SpTopology *topology);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpTopology, sp_topology_free)

const SpTopologySpec *sp_topology_spec (const SpTopology *topology);
guint sp_topology_n_gpus (const SpTopology *topology);
guint sp_topology_n_links (const SpTopology *topology);
guint sp_topology_n_vertices (const SpTopology *topology);

/* [n_links]; 0 for a failed link. */
const double *sp_topology_capacities (const SpTopology *topology);
double sp_topology_capacity (const SpTopology *topology, guint32 link);
double sp_topology_latency (const SpTopology *topology, guint32 link);
guint32 sp_topology_from (const SpTopology *topology, guint32 link); /* vertices; a GPU's number is not its vertex */
guint32 sp_topology_to (const SpTopology *topology, guint32 link);
guint32 sp_topology_gpu_vertex (const SpTopology *topology, guint32 gpu);
SpVertexKind sp_topology_vertex_kind (const SpTopology *topology, guint32 vertex);

/* For people: "node3.gpu5>switch", "node3.nic2>leaf0", "leaf0>spine4". Free with g_free. */
char *sp_topology_link_name (const SpTopology *topology, guint32 link);
char *sp_topology_vertex_name (const SpTopology *topology, guint32 vertex);
/* FALSE if there is none of that name. Looks at all of them. */
gboolean sp_topology_find_link (const SpTopology *topology, const char *name, guint32 *ret_link);

gboolean sp_topology_same_node (const SpTopology *topology, guint32 a, guint32 b);
/* The adapter that a GPU uses, numbered within its node; 0 where there are none. */
guint sp_topology_nic (const SpTopology *topology, guint32 gpu);
/* Adapters of a node as the graph has them: at most one a GPU; 0 with one node. */
guint sp_topology_nics_per_node (const SpTopology *topology);

/* No route has more links. */
#define SP_TOPOLOGY_MAX_ROUTE 256
#define SP_TOPOLOGY_CUT G_MAXUINT

/* Links from one GPU to another, in order; 0 for the same GPU. SP_TOPOLOGY_CUT: none is left.
 * `ret_links` has room for SP_TOPOLOGY_MAX_ROUTE. */
guint sp_topology_route (const SpTopology *topology, guint32 from, guint32 to, guint32 *ret_links);
/* Summed over the route; INFINITY where there is none. */
double sp_topology_route_latency (const SpTopology *topology, guint32 from, guint32 to);

/* From now on. A link may fail and be slowed more than once; failed ones stay failed. */
void sp_topology_fail_link (SpTopology *topology, guint32 link);
void sp_topology_slow_link (SpTopology *topology, guint32 link, double factor); /* capacity times factor, > 0 */
gboolean sp_topology_is_failed (const SpTopology *topology, guint32 link);

const char *sp_node_kind_name (SpNodeKind kind);
const char *sp_fabric_kind_name (SpFabricKind kind);

G_END_DECLS
