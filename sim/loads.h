/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a collective puts on each link: bytes for each byte of its payload (sim/program.h says what payload is).
 *
 * Below, P ranks on k nodes, m of them in a node, c the least m of the nodes: so many CHANNELS share the work, each
 * 1/c of the bytes. The algorithms are NCCL's. Ranks are taken in order of their numbers, node by node, as NCCL orders
 * them, wherever the program's places are.
 *
 * RING             all-gather, reduce-scatter: every part passes P - 1 hops, so each hop carries w = (P - 1) / P.
 *                  Between nodes channel j leaves and enters through its own member's adapter, so each carries w / c;
 *                  inside, all members' ports carry w. (Exactly w (m - 1) / m: a channel's last member sends into the
 *                  network instead. Known lie, at most 1 / m too much.)
 *                  On direct links (mesh) the channels run through the members in unlike orders, so that each link
 *                  carries w / (m - 1).
 * RING_ALL_REDUCE  a reduce-scatter and an all-gather: twice RING.
 * TREE             all-reduce over two binary trees of the nodes, each for half of the payload, each node a leaf in one
 *                  of them: up to the root and down again. A node sends at most 2 payload, 2 / c of it through each
 *                  adapter. Inside, a chain over the members from the one with the adapter: 2 payload a hop, and as
 *                  each member is the first of some channel, ports carry 2 (m - 1) / m.
 *                  Trees as in nccl src/graph/trees.cc: a node's parent has its lowest bit cleared and the next set;
 *                  the second tree is the first one mirrored (k even) or shifted by one (k odd).
 * NVLS             all-reduce inside one node, added up in the switch: a member reads the reduced P-th that it is
 *                  responsible for, for which every GPU's port gives its own (up: the payload, down 1 / P), and writes
 *                  it to all (up 1 / P, down: the payload). Each port, each way: 1 + 1 / P.
 *                  (NVIDIA's multimem.ld_reduce and multimem.st; nccl src/device/all_reduce.h.)
 * NVLS_TREE        all-reduce over nodes: NVLS inside, and between nodes the trees of TREE for each member's 1 / m.
 * NVLS_SCATTER     reduce-scatter in one node: up the payload, down 1 / P.
 * NVLS_GATHER      all-gather in one node: up 1 / P, down the payload.
 * PAIRWISE         all-to-all: payload / P from each rank to each other one along its route.
 * DIRECT           one message along its route.
 *
 * Accumulation. An SpLoads adds up what any number of collectives put on links; one that is reused allocates nothing
 * once it has its size. Cost: a route (10 ns and up) for each hop: RING P + c k, PAIRWISE P^2.
 *
 * Failure: SP_TOPOLOGY_ERROR_CUT where failed links leave two of the ranks no way; the loads are then incomplete.
 */

#include "sim/topology.h"

G_BEGIN_DECLS

typedef enum {
  SP_ALGORITHM_NONE, /* no communication */
  SP_ALGORITHM_RING,
  SP_ALGORITHM_RING_ALL_REDUCE,
  SP_ALGORITHM_TREE,
  SP_ALGORITHM_NVLS,
  SP_ALGORITHM_NVLS_TREE,
  SP_ALGORITHM_NVLS_SCATTER,
  SP_ALGORITHM_NVLS_GATHER,
  SP_ALGORITHM_PAIRWISE,
  SP_ALGORITHM_DIRECT,
  SP_N_ALGORITHMS
} SpAlgorithm;

const char *sp_algorithm_name (SpAlgorithm algorithm);

typedef struct {
  guint32 link;
  double bytes_per_byte; /* of payload */
} SpLoad;

/* Links that are loaded alike. */
typedef struct {
  double bytes_per_byte;
  guint32 first, n; /* into the array of sp_loads_tiers */
} SpLoadTier;

typedef struct _SpLoads SpLoads;

/* Borrows the topology. */
SpLoads *sp_loads_new (const SpTopology *topology);
void sp_loads_free (SpLoads *loads);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpLoads, sp_loads_free)

/* Forgets what was added. */
void sp_loads_reset (SpLoads *loads);

/* Adds a collective over distinct ranks, in any order. TREE and NVLS_TREE of one node are a chain and NVLS; DIRECT goes
 * from ranks[0] to ranks[1]. */
gboolean sp_loads_add (SpLoads *loads, SpAlgorithm algorithm, const gint32 *ranks, guint n, GError **error);
gboolean sp_loads_add_message (SpLoads *loads, gint32 from, gint32 to, GError **error);

/* Adds what another has. */
void sp_loads_merge (SpLoads *loads, const SpLoads *other);

double sp_loads_of_link (const SpLoads *loads, guint32 link);

/* What was added, by link; valid until the next call. */
const SpLoad *sp_loads_get (SpLoads *loads, guint *ret_n);
/* The same by tier, from the most loaded to the least, links ascending within each. Loads that differ by less than
 * 1e-9 of themselves are one tier. `ret_loads` may be NULL. Valid until the next call. */
const SpLoadTier *sp_loads_tiers (SpLoads *loads, const SpLoad **ret_loads, guint *ret_n);

/* Transfer time for each byte of payload, if all that was added runs at once: the largest load / capacity of a link. 0:
 * nothing was added; INFINITY: a loaded link has failed. */
double sp_loads_seconds_per_byte (const SpLoads *loads);

/* One collective by itself: loads by link, free with g_free. NULL with an error as above. */
SpLoad *sp_loads_collective (const SpTopology *topology, SpAlgorithm algorithm, const gint32 *ranks, guint n,
                             guint *ret_n, GError **error);

G_END_DECLS
