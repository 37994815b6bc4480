/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/topology-private.h"

/* GPUs behind PCIe switches behind sockets; peer traffic of two GPUs turns at the nearest of them. The sockets are
 * joined two by two. A NIC is behind the switch of its first GPU, at its own rate. Links of a node: GPUs up, GPUs down,
 * switches up, switches down, socket pairs, NICs in, NICs out. The last switch and the last socket may have fewer.
 * Pairs (pairs.c) are the same with more links behind these. */

static guint
n_switches (const SpTopologySpec *s)
{
  return (guint) ((s->gpus_per_node + s->gpus_per_switch - 1) / s->gpus_per_switch);
}

static guint
n_sockets (const SpTopologySpec *s)
{
  return (n_switches (s) + (guint) s->switches_per_socket - 1) / (guint) s->switches_per_socket;
}

static guint
switch_of (const SpTopology *t, guint gpu)
{
  return gpu / (guint) t->spec.gpus_per_switch;
}

static guint
socket_of (const SpTopology *t, guint pcie_switch)
{
  return pcie_switch / (guint) t->spec.switches_per_socket;
}

/* Where NIC `nic` is: at the switch of the first GPU i with floor (i nics / gpus) = nic. */
static guint
switch_of_nic (const SpTopology *t, guint nic)
{
  return switch_of (t, (nic * t->gpus + t->nics - 1) / t->nics);
}

static void
count (const SpTopologySpec *spec, guint64 nics, guint64 *ret_vertices, guint64 *ret_links)
{
  guint64 switches = n_switches (spec), sockets = n_sockets (spec);

  *ret_vertices = switches + sockets;
  *ret_links = 2 * (guint64) spec->gpus_per_node + 2 * switches + sockets * (sockets - 1) + 2 * nics;
}

static void
build (SpTopology *t, guint node)
{
  const SpTopologySpec *s = &t->spec;
  guint switches = n_switches (s), sockets = n_sockets (s);
  guint first_switch = sp_local_of_node (t, node, sp_local_inner (t, 0)), first_socket = first_switch + switches;
  double port = s->node == SP_NODE_PAIRS ? s->pcie_bytes_per_s : s->link_bytes_per_s;

  for (guint i = 0; i < t->gpus; i++)
    sp_topology_add_link (t, sp_local_of_node (t, node, i), first_switch + switch_of (t, i), port, s->link_latency_s);
  for (guint i = 0; i < t->gpus; i++)
    sp_topology_add_link (t, first_switch + switch_of (t, i), sp_local_of_node (t, node, i), port, 0);
  for (guint w = 0; w < switches; w++)
    sp_topology_add_link (t, first_switch + w, first_socket + socket_of (t, w), s->uplink_bytes_per_s, 0);
  for (guint w = 0; w < switches; w++)
    sp_topology_add_link (t, first_socket + socket_of (t, w), first_switch + w, s->uplink_bytes_per_s, 0);
  for (guint a = 0; a < sockets; a++)
    for (guint b = 0; b < sockets; b++)
      if (a != b)
        sp_topology_add_link (t, first_socket + a, first_socket + b, s->socket_bytes_per_s, 0);
  for (guint n = 0; n < t->nics; n++)
    sp_topology_add_link (t, first_switch + switch_of_nic (t, n), sp_local_of_node (t, node, sp_local_nic (t, n)),
                          t->nic_bytes_per_s, 0);
  for (guint n = 0; n < t->nics; n++)
    sp_topology_add_link (t, sp_local_of_node (t, node, sp_local_nic (t, n)), first_switch + switch_of_nic (t, n),
                          t->nic_bytes_per_s, 0);
}

/* From switch to switch, over the sockets. */
static guint
between (const SpTopology *t, guint first, guint from, guint to, guint32 *links)
{
  guint switches = n_switches (&t->spec), a = socket_of (t, from), b = socket_of (t, to), n = 0;

  if (from == to)
    return 0;
  links[n++] = first + 2 * t->gpus + from;
  if (a != b)
    links[n++] = first + 2 * t->gpus + 2 * switches + sp_pair_number (n_sockets (&t->spec), a, b);
  links[n++] = first + 2 * t->gpus + switches + to;
  return n;
}

static guint
route (const SpTopology *t, guint node, guint from, guint to, guint32 *links)
{
  guint first = node * t->node_links, n = 0;

  links[n++] = first + from;
  n += between (t, first, switch_of (t, from), switch_of (t, to), links + n);
  links[n++] = first + t->gpus + to;
  return n;
}

static guint
first_nic_link (const SpTopology *t, guint node)
{
  guint switches = n_switches (&t->spec), sockets = n_sockets (&t->spec);

  return node * t->node_links + 2 * t->gpus + 2 * switches + sockets * (sockets - 1);
}

static guint
to_nic (const SpTopology *t, guint node, guint gpu, guint nic, guint32 *links)
{
  guint first = node * t->node_links, n = 0;

  links[n++] = first + gpu;
  n += between (t, first, switch_of (t, gpu), switch_of_nic (t, nic), links + n);
  links[n++] = first_nic_link (t, node) + nic;
  return n;
}

static guint
from_nic (const SpTopology *t, guint node, guint nic, guint gpu, guint32 *links)
{
  guint first = node * t->node_links, n = 0;

  links[n++] = first_nic_link (t, node) + t->nics + nic;
  n += between (t, first, switch_of_nic (t, nic), switch_of (t, gpu), links + n);
  links[n++] = first + t->gpus + gpu;
  return n;
}

static SpVertexKind
vertex_kind (const SpTopology *t, guint vertex)
{
  return vertex < n_switches (&t->spec) ? SP_VERTEX_PCIE_SWITCH : SP_VERTEX_SOCKET;
}

static void
vertex_name (const SpTopology *t, guint vertex, GString *out)
{
  guint switches = n_switches (&t->spec);

  if (vertex < switches)
    g_string_append_printf (out, "pcie%u", vertex);
  else
    g_string_append_printf (out, "socket%u", vertex - switches);
}

const SpInterior sp_interior_pcie = { .name = "pcie",
                                      .count = count,
                                      .build = build,
                                      .route = route,
                                      .to_nic = to_nic,
                                      .from_nic = from_nic,
                                      .vertex_kind = vertex_kind,
                                      .vertex_name = vertex_name };
