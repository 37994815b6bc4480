/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The network as the engine sees it: for a collective of a role's instance, or a message of a role, which flows to
 * start. Made from the topology, the program's groups and the algorithms that its ops are priced with; and with it, the
 * roles: folding looks at what every rank loads.
 *
 * A TIER is a set of links that a collective loads alike: one flow, with the links as its route. A collective that loads
 * its GPUs' ports with all of its bytes and their adapters with an eighth is two flows; it is over when both are. Folded,
 * a link stands for its class, and the flow's weight is how many instances of the class load each link of it.
 *
 * Links are shared by GPUs: what m members of a collective put on a link counts as m flows there, each with an m-th. So a
 * collective of many members is not squeezed by one of few, and as long as each GPU communicates one thing at a time
 * none gets less than the estimate's fair share.
 *
 * Known lie: a collective that is held up on one tier does not slow down on the others; there it is just over early.
 */

#include "sim/loads.h"
#include "sim/roles.h"
#include "sim/topology.h"

G_BEGIN_DECLS

typedef struct {
  double bytes_per_byte; /* on each link, for each byte of payload */
  guint32 weight;
  guint32 first, n_links; /* into SpNetwork.links */
} SpLinkTier;

typedef struct {
  guint32 first, n; /* into SpNetwork.tiers */
} SpLinkTiers;

typedef struct {
  SpRoles *roles; /* owned */
  const SpTopology *topology;
  double *capacity_bytes_per_s; /* [n_links]: the links that are used, one of each class */
  guint32 *topology_link;       /* [n_links] its number there */
  guint n_links;
  GArray *links;                             /* guint32 */
  GArray *tiers;                             /* SpLinkTier */
  SpLinkTiers *collectives[SP_N_ALGORITHMS]; /* [n_instances]; NULL where no op uses the algorithm */
  SpLinkTiers *messages[SP_N_GROUPS][2];     /* [roles] to place + 1, and (reverse) to place - 1; NULL where none go */
} SpNetwork;

/* `algorithms`: of each op of the program, SpAlgorithm. `fold` = FALSE: every rank is a role. The topology is borrowed.
 * NULL with SP_TOPOLOGY_ERROR_CUT where failed links cut ranks off from those that they talk to. */
SpNetwork *sp_network_new (const SpTopology *topology, const SpProgram *program, const guint8 *algorithms,
                           gboolean fold, GError **error);
void sp_network_free (SpNetwork *network);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpNetwork, sp_network_free)

G_END_DECLS
