/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/paths.h"

#include <math.h>
#include <string.h>

/* Closed forms: every GPU behind an NVSwitch, a network that only adapters limit, and nodes that hold whole digits (or
 * equal parts of one), so that all nodes have as many members of a group, in the same places. Where nodes and digits do
 * not line up, and the graph is too large or there is nowhere to keep what it gives: as if every node had as few members
 * as one may have. */

/* NCCL's share of the reached link rate for in-switch reduction on Hopper, and its latencies: nccl src/graph/tuning.cc.
 * Relative to a ring's Simple step, which the profile has. */
#define NVLS_EFFICIENCY 0.85
#define NVLS_LINK_STEPS (25.0 / 3.4)
#define NVLS_NETWORK_STEPS (20.9 / 14.0)

/* --- nodes and digits --------------------------------------------------------------------------------------------- */

/* Whether the nodes' border falls between digits, or cuts one into equal parts. */
static gboolean
lines_up (const SpProgram *program, gint32 node)
{
  if (program->world <= node)
    return TRUE;
  for (guint i = 0; i < program->n_digits; i++) {
    const SpDigit *digit = &program->digits[i];
    if (digit->stride < node && node <= (gint64) digit->stride * digit->size)
      return node % digit->stride == 0 && digit->size % (node / digit->stride) == 0;
  }
  return FALSE;
}

/* Values of a digit that one node has. */
static gint32
values_inside (const SpDigit *digit, gint32 node)
{
  if (digit->stride >= node || node % digit->stride != 0)
    return 1;
  gint32 values = MIN (digit->size, node / digit->stride);
  return digit->size % values == 0 ? values : 1;
}

/* Members of a group in one node; where node and digits do not line up, the smallest count that a node can have. */
static gint32
members_per_node (const SpProgram *program, const SpGroup *group, gint32 node)
{
  gint32 inside = 1;

  for (guint i = 0; i < group->n_digits; i++)
    inside *= values_inside (&program->digits[group->digits[i]], node);
  return MIN (inside, group->size);
}

gboolean
sp_paths_leave_node (const SpCluster *cluster, const SpProgram *program, SpGroupId group)
{
  const SpGroup *of = &program->groups[group];

  return of->size > 1 && program->world > cluster->gpus_per_node &&
         members_per_node (program, of, cluster->gpus_per_node) < of->size;
}

/* From place to place a message leaves the node when all that a node holds of the digits before the first one that
 * reaches beyond it is used up: how many places that takes. */
static gint32
places_before_crossing (const SpProgram *program, const SpGroup *group, gint32 node)
{
  gint32 places = 1;

  for (guint i = 0; i < group->n_digits; i++) {
    const SpDigit *digit = &program->digits[group->digits[i]];
    gint32 values = values_inside (digit, node);
    places *= values;
    if (values < digit->size)
      break;
  }
  return places;
}

/* --- adapters that serve several GPUs ----------------------------------------------------------------------------- */

#define MAX_NICS 1024

typedef struct {
  gint32 senders;  /* most GPUs that send, or receive, through one adapter while all groups' messages go */
  gint32 together; /* most members of one group behind one adapter, of the group that has least */
} Sharing;

/* Whether a GPU of the node is the last, or first, before a crossing. */
static gboolean
is_at_end (const SpProgram *program, const SpGroup *group, gint32 node, gint32 gpu, gboolean last)
{
  for (guint i = 0; i < group->n_digits; i++) {
    const SpDigit *digit = &program->digits[group->digits[i]];
    gint32 values = values_inside (digit, node), value = gpu / digit->stride % digit->size;
    if (digit->stride < node && value != (last ? values - 1 : 0))
      return FALSE;
    if (values < digit->size)
      break;
  }
  return TRUE;
}

/* The lowest GPU of the node that is in the group of `gpu`. */
static gint32
base_of (const SpProgram *program, const SpGroup *group, gint32 node, gint32 gpu)
{
  for (guint i = 0; i < group->n_digits; i++) {
    const SpDigit *digit = &program->digits[group->digits[i]];
    if (digit->stride < node)
      gpu -= gpu / digit->stride % digit->size * digit->stride;
  }
  return gpu;
}

static gint32
most_together (const SpProgram *program, const SpGroup *group, gint32 node, gint32 nics, gint32 base)
{
  gint32 most = 0, count = 0, last_nic = -1;

  for (gint32 gpu = base; gpu < node; gpu++) {
    if (base_of (program, group, node, gpu) != base)
      continue;
    gint32 nic = (gint32) ((gint64) gpu * nics / node);
    count = nic == last_nic ? count + 1 : 1;
    last_nic = nic;
    most = MAX (most, count);
  }
  return most;
}

static Sharing
sharing_of (const SpProgram *program, const SpGroup *group, gint32 node, gint32 nics, gboolean even)
{
  Sharing sharing = { 1, 1 };
  gint32 sends = 0, receives = 0, last_nic = -1;

  if (nics >= node)
    return sharing;
  if (!even) { /* anything between all at once and one at a time */
    sharing.senders = (node + nics - 1) / nics;
    return sharing;
  }
  sharing.together = node;
  for (gint32 gpu = 0; gpu < node; gpu++) {
    gint32 nic = (gint32) ((gint64) gpu * nics / node);
    if (nic != last_nic)
      sends = receives = 0;
    last_nic = nic;
    sends += is_at_end (program, group, node, gpu, TRUE);
    receives += is_at_end (program, group, node, gpu, FALSE);
    sharing.senders = MAX (sharing.senders, MAX (sends, receives));
    if (base_of (program, group, node, gpu) == gpu)
      sharing.together = MIN (sharing.together, most_together (program, group, node, nics, gpu));
  }
  return sharing;
}

/* --- one group ---------------------------------------------------------------------------------------------------- */

void
sp_path_set_nvls (SpPath *path, const SpCluster *cluster, double trees_s_per_byte)
{
  double port = cluster->device->link_bytes_per_s.value * cluster->link_efficiency.value * NVLS_EFFICIENCY;
  gboolean equal = path->nodes * path->per_node == path->size;

  path->nvls_s_per_byte[0] = path->nvls_s_per_byte[1] = path->nvls_s_per_byte[2] = 0;
  if (!cluster->device->nvls || cluster->node != SP_NODE_SWITCH || path->per_node < 2 || !equal)
    return;
  path->nvls_s_per_byte[0] = MAX ((1 + 1.0 / path->per_node) / port, trees_s_per_byte);
  path->nvls_latency_s = NVLS_LINK_STEPS * cluster->link_latency_s.value;
  if (path->network)
    path->nvls_latency_s += 2 * NVLS_NETWORK_STEPS * path->tree_latency_network_s;
  else
    path->nvls_s_per_byte[1] = path->nvls_s_per_byte[2] = 1 / port;
}

/* Rates, with a GPU's part of the network and that of a message. */
static void
set_rates (SpPath *path, double network, double send)
{
  path->network_bytes_per_s = network;
  path->ring_bytes_per_s = path->per_node > 1 ? MIN (path->link_bytes_per_s, path->per_node * network) : network;
  path->tree_bytes_per_s = path->ring_bytes_per_s;
  path->send_bytes_per_s = send;
}

static void
set_latencies (SpPath *path, const SpCluster *cluster)
{
  double link = cluster->link_latency_s.value, network = cluster->network_latency_s.value;
  gint32 network_steps = path->network ? path->nodes - 1 : 0;

  path->ring_latency_network_s = network_steps * network;
  path->ring_latency_link_s = (path->size - 1 - network_steps) * link;
  path->tree_latency_network_s = path->network ? ceil (log2 (path->nodes)) * network : 0;
  path->tree_latency_link_s = (path->per_node - 1) * link;
  path->link_hop_latency_s = link;
  path->hop_latency_s = path->network ? network : link;
}

static void
set_alone_ratio (SpPath *fair, const SpPath *alone)
{
  double ring = fair->ring_bytes_per_s / alone->ring_bytes_per_s,
         send = fair->send_bytes_per_s / alone->send_bytes_per_s;
  double network = fair->network_bytes_per_s / alone->network_bytes_per_s;

  fair->alone_ratio = MIN (MIN (ring, send), MIN (network, 1));
  if (fair->hop_latency_s > alone->hop_latency_s) /* of hops, some of which are in one node */
    fair->alone_ratio = MIN (fair->alone_ratio, alone->hop_latency_s / fair->hop_latency_s);
}

/* Adapters: a GPU's share with all GPUs of the node at work, and one of a group alone. */
static void
set_network_rates (SpPath *fair, SpPath *alone, const SpCluster *cluster, const Sharing *sharing)
{
  gint32 node = cluster->gpus_per_node, nics = MIN (MAX (1, (gint32) cluster->nics.value), MAX_NICS);
  double efficiency = cluster->network_efficiency.value, nic = cluster->nic_bytes_per_s.value * efficiency;
  double pcie = cluster->device->pcie_bytes_per_s.value;
  double port = pcie > 0 ? pcie * efficiency : fair->link_bytes_per_s;
  double share = cluster->nics.value * cluster->nic_bytes_per_s.value * efficiency / node;

  if (nics < node && node % nics != 0) /* the adapter that serves most */
    share = nic / ((node + nics - 1) / nics);
  if (nics > node)
    nic = share;
  set_rates (fair, MIN (port, share), MIN (port, nic / sharing->senders));
  set_rates (alone, MIN (port, nic / sharing->together), MIN (port, nic));
}

static void
set_closed (SpPath *fair, SpPath *alone, const SpCluster *cluster, const SpProgram *program, const SpGroup *group,
            gint32 per_node, gboolean even)
{
  gint32 node = cluster->gpus_per_node, size = group->size;
  double link = cluster->device->link_bytes_per_s.value * cluster->link_efficiency.value;

  *fair = (SpPath){ .size = size, .per_node = per_node, .nodes = (size + per_node - 1) / per_node };
  fair->network = fair->nodes > 1;
  fair->identity = (guint64) per_node;
  fair->link_bytes_per_s = fair->near_bytes_per_s = link;
  set_latencies (fair, cluster);
  fair->alone_ratio = 1;
  if (!fair->network) {
    set_rates (fair, link, link);
    sp_path_set_nvls (fair, cluster, 0);
    *alone = *fair;
    return;
  }
  *alone = *fair;
  Sharing sharing = sharing_of (program, group, node, (gint32) cluster->nics.value, even);
  gint32 places = even ? places_before_crossing (program, group, node) : per_node;
  set_network_rates (fair, alone, cluster, &sharing);
  fair->crossings = alone->crossings = (size + places - 1) / places - 1;
  if (places > 1) { /* the slowest hop may be one inside a node */
    fair->send_bytes_per_s = MIN (fair->send_bytes_per_s, link);
    fair->hop_latency_s = MAX (fair->hop_latency_s, fair->link_hop_latency_s);
  }
  fair->identity |= (guint64) places << 16 | (guint64) sharing.senders << 32 | (guint64) sharing.together << 48;
  if (cluster->device->nvls) { /* bytes of the trees between nodes: 2 payload / members through each one's adapter */
    sp_path_set_nvls (fair, cluster, 2 / (per_node * fair->network_bytes_per_s));
    sp_path_set_nvls (alone, cluster, 2 / (per_node * alone->network_bytes_per_s));
  }
  set_alone_ratio (fair, alone);
}

/* Two stages of the pipeline: its ends are as far apart as the stages reach, and so are stages as far from one end as
 * from the other, but for those in the middle of an odd number of nodes. */
static void
set_pair (SpPath *pair, const SpPath *pipeline, const SpCluster *cluster, gboolean network, double share)
{
  *pair = *pipeline;
  pair->size = 2;
  pair->network = network;
  pair->per_node = network ? 1 : 2;
  pair->nodes = network ? 2 : 1;
  pair->crossings = pair->nodes - 1;
  set_latencies (pair, cluster);
  set_rates (pair, share, network ? pipeline->send_bytes_per_s : pair->link_bytes_per_s);
  sp_path_set_nvls (pair, cluster, network ? 2 / share : 0);
}

static void
set_pairs (SpCost *cost, const SpCluster *cluster, guint g)
{
  const SpPath *fair = &cost->paths[SP_GROUP_PIPELINE], *alone = &cost->alone[SP_GROUP_PIPELINE];
  gboolean near = !fair->network || (g == SP_GROUP_MIRROR && fair->nodes % 2 == 1);

  set_pair (&cost->paths[g], fair, cluster, fair->network, fair->network_bytes_per_s);
  set_pair (&cost->alone[g], alone, cluster, !near, near ? alone->link_bytes_per_s : alone->send_bytes_per_s);
  set_alone_ratio (&cost->paths[g], &cost->alone[g]);
}

/* --- all groups --------------------------------------------------------------------------------------------------- */

static void
set_group (SpCost *cost, const SpCluster *cluster, const SpProgram *program, guint g, gboolean even)
{
  const SpGroup *group = &program->groups[g];
  SpPath *fair = &cost->paths[g], *alone = &cost->alone[g];

  if (group->size == 1) {
    if (fair->size == 1) /* as it was */
      return;
    *fair = (SpPath){ .size = 1, .per_node = 1, .nodes = 1, .alone_ratio = 1 };
    fair->link_bytes_per_s = fair->near_bytes_per_s = 1;
    set_rates (fair, 1, 1);
    *alone = *fair;
    return;
  }
  gint32 node = cluster->gpus_per_node;
  gint32 per_node = program->world > node ? members_per_node (program, group, node) : group->size;
  gboolean inside = program->world <= node || (even && per_node == group->size);
  if (cluster->node == SP_NODE_SWITCH && (inside || (even && cluster->fabric == SP_FABRIC_FLAT))) {
    if (g == SP_GROUP_TIE || g == SP_GROUP_MIRROR) /* digits are the pipeline's, which comes before them */
      set_pairs (cost, cluster, g);
    else
      set_closed (fair, alone, cluster, program, group, per_node, even);
    return;
  }
  gboolean plain = cluster->node == SP_NODE_SWITCH && cluster->fabric == SP_FABRIC_FLAT;
  if ((plain && cluster->memo == NULL) || !sp_path_set_from_graph (cluster, program, g, fair, alone))
    set_closed (fair, alone, cluster, program, group, per_node, even);
}

void
sp_paths_set (SpCost *cost, const SpCluster *cluster, const SpProgram *program)
{
  gboolean even = lines_up (program, cluster->gpus_per_node);

  G_STATIC_ASSERT (SP_GROUP_TIE > SP_GROUP_PIPELINE && SP_GROUP_MIRROR > SP_GROUP_PIPELINE);
  for (guint g = 0; g < SP_N_GROUPS; g++)
    set_group (cost, cluster, program, g, even);
}

static const guint8 work_groups[] = { SP_GROUP_TENSOR,         SP_GROUP_ULYSSES,    SP_GROUP_RING,
                                      SP_GROUP_RING_INNER,     SP_GROUP_RING_OUTER, SP_GROUP_LASP,
                                      SP_GROUP_ULYSSES_LINEAR, SP_GROUP_EXPERT };

void
sp_paths_set_work (SpCost *cost, const SpCluster *cluster, const SpProgram *program)
{
  gboolean even = lines_up (program, cluster->gpus_per_node);

  for (guint i = 0; i < G_N_ELEMENTS (work_groups); i++)
    set_group (cost, cluster, program, work_groups[i], even);
}

void
sp_paths_set_pipeline (SpCost *cost, const SpCluster *cluster, const SpProgram *program)
{
  set_group (cost, cluster, program, SP_GROUP_PIPELINE, lines_up (program, cluster->gpus_per_node));
}

guint64
sp_paths_work_identity (const SpCost *cost)
{
  guint64 hash;

  G_STATIC_ASSERT (sizeof hash == sizeof cost->host_launch_s);
  memcpy (&hash, &cost->host_launch_s, sizeof hash);
  for (guint i = 0; i < G_N_ELEMENTS (work_groups); i++) {
    hash = (hash ^ cost->paths[work_groups[i]].identity) * G_GUINT64_CONSTANT (0x9E3779B97F4A7C15);
    hash ^= hash >> 29;
  }
  return hash;
}
