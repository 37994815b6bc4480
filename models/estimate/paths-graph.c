/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/paths-members.h"
#include "models/estimate/paths.h"

#include <math.h>
#include <string.h>

/* Rates of groups from the graph. */

/* Ranks beyond which an estimate does not go through the graph. */
#define MOST_RANKS (1 << 17)

typedef struct _SpPathEntry {
  SpGroupKey key;
  const SpCluster *cluster;
  SpPath fair, alone;
  gsize is_filled, has_pairwise;
  double pairwise_s_per_byte[2]; /* fair, alone */
  struct _SpPathEntry *next;
} Entry;

/* --- collectives -------------------------------------------------------------------------------------------------- */

/* Seconds for each byte of payload: with all siblings at once, and of the quickest by itself. */
static void
weigh (SpInstances *in, SpAlgorithm algorithm, double *ret_fair, double *ret_alone)
{
  *ret_alone = INFINITY;
  sp_loads_reset (in->loads);
  while (sp_instances_next (in)) {
    sp_loads_reset (in->one);
    sp_loads_add (in->one, algorithm, in->ranks, (guint) in->size, NULL);
    *ret_alone = MIN (*ret_alone, sp_loads_seconds_per_byte (in->one));
    sp_loads_merge (in->loads, in->one);
  }
  *ret_fair = sp_loads_seconds_per_byte (in->loads);
}

static void
set_collectives (SpInstances *in, SpPath *fair, SpPath *alone)
{
  double wire = (double) (in->size - 1) / in->size, fair_s, alone_s;

  weigh (in, SP_ALGORITHM_RING, &fair_s, &alone_s);
  fair->ring_bytes_per_s = wire / fair_s;
  alone->ring_bytes_per_s = wire / alone_s;
  weigh (in, SP_ALGORITHM_TREE, &fair_s, &alone_s);
  fair->tree_bytes_per_s = 2 / fair_s;
  alone->tree_bytes_per_s = 2 / alone_s;
}

static void
set_nvls (SpInstances *in, const SpCluster *cluster, SpPath *fair, SpPath *alone)
{
  double fair_s = 0, alone_s = 0;

  if (!cluster->device->nvls || cluster->node != SP_NODE_SWITCH)
    return;
  if (fair->network)
    weigh (in, SP_ALGORITHM_NVLS_TREE, &fair_s, &alone_s);
  sp_path_set_nvls (fair, cluster, fair_s);
  sp_path_set_nvls (alone, cluster, alone_s);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* Over hops inside a node [0] and between nodes [1]. */
typedef struct {
  double slowest_s[2], quickest_s[2]; /* for each byte: with all at once; by itself */
  double longest_s[2], shortest_s[2]; /* latency */
  gboolean any[2];
} Hops;

/* The message of a place: to the next one around the ring, or to the one before. */
static gint32
neighbour (const SpInstances *in, gint32 place, guint back)
{
  return in->ranks[(place + (back ? in->size - 1 : 1)) % in->size];
}

static void
note_hop (const SpInstances *in, gint32 from, gint32 to, Hops *hops)
{
  guint32 links[SP_TOPOLOGY_MAX_ROUTE];
  guint n = sp_topology_route (in->topology, (guint32) from, (guint32) to, links);
  guint far = !sp_topology_same_node (in->topology, (guint32) from, (guint32) to);
  double fair = 0, alone = 0, latency = 0;

  for (guint i = 0; i < n; i++) {
    double capacity = sp_topology_capacity (in->topology, links[i]);
    fair = MAX (fair, sp_loads_of_link (in->loads, links[i]) / capacity);
    alone = MAX (alone, 1 / capacity);
    latency += sp_topology_latency (in->topology, links[i]);
  }
  if (!hops->any[far]) {
    hops->any[far] = TRUE;
    hops->quickest_s[far] = alone;
    hops->shortest_s[far] = latency;
  }
  hops->slowest_s[far] = MAX (hops->slowest_s[far], fair);
  hops->quickest_s[far] = MIN (hops->quickest_s[far], alone);
  hops->longest_s[far] = MAX (hops->longest_s[far], latency);
  hops->shortest_s[far] = MIN (hops->shortest_s[far], latency);
}

static void
find_hops (SpInstances *in, Hops *hops)
{
  *hops = (Hops){ 0 };
  for (guint back = 0; back < 2; back++) {
    sp_loads_reset (in->loads);
    while (sp_instances_next (in))
      for (gint32 place = 0; place < in->size; place++)
        sp_loads_add_message (in->loads, in->ranks[place], neighbour (in, place, back), NULL);
    while (sp_instances_next (in))
      for (gint32 place = 0; place < in->size; place++)
        note_hop (in, in->ranks[place], neighbour (in, place, back), hops);
  }
}

static void
set_messages (SpInstances *in, const SpCluster *cluster, SpPath *fair, SpPath *alone)
{
  double link = cluster->device->link_bytes_per_s.value * cluster->link_efficiency.value;
  Hops hops;

  find_hops (in, &hops);
  guint slow = hops.any[1];
  fair->near_bytes_per_s = hops.any[0] ? 1 / hops.slowest_s[0] : link;
  alone->near_bytes_per_s = hops.any[0] ? 1 / hops.quickest_s[0] : link;
  fair->link_hop_latency_s = hops.any[0] ? hops.longest_s[0] : cluster->link_latency_s.value;
  alone->link_hop_latency_s = hops.any[0] ? hops.shortest_s[0] : cluster->link_latency_s.value;
  /* Around a ring, at the pace of the slowest: that may be one inside a node. */
  fair->send_bytes_per_s = 1 / MAX (hops.slowest_s[0], hops.slowest_s[1]);
  alone->send_bytes_per_s = 1 / hops.quickest_s[slow];
  fair->hop_latency_s = MAX (hops.longest_s[0], hops.longest_s[1]);
  alone->hop_latency_s = hops.shortest_s[slow];
}

/* --- shape and latencies ------------------------------------------------------------------------------------------ */

typedef struct {
  gint32 least_members, most_nodes, least_nodes, crossings;
  double longest_s, shortest_s; /* latency from node to node */
} Shape;

static int
compare_ranks (gconstpointer a, gconstpointer b)
{
  gint32 x = *(const gint32 *) a, y = *(const gint32 *) b;

  return (x > y) - (x < y);
}

/* Of an instance: nodes in order of ranks, as rings run. */
static void
note_shape (SpInstances *in, Shape *shape)
{
  gint32 nodes = 1, members = 1, crossings = 0, first = 0;

  for (gint32 i = 1; i < in->size; i++)
    crossings += !sp_topology_same_node (in->topology, (guint32) in->ranks[i - 1], (guint32) in->ranks[i]);
  qsort (in->ranks, (gsize) in->size, sizeof *in->ranks, compare_ranks);
  for (gint32 i = 1; i <= in->size; i++) {
    gboolean same =
        i < in->size && sp_topology_same_node (in->topology, (guint32) in->ranks[i - 1], (guint32) in->ranks[i]);
    if (same) {
      members++;
      continue;
    }
    shape->least_members = MIN (shape->least_members, members);
    if (i < in->size) {
      double latency = sp_topology_route_latency (in->topology, (guint32) in->ranks[first], (guint32) in->ranks[i]);
      shape->longest_s = MAX (shape->longest_s, latency);
      shape->shortest_s = MIN (shape->shortest_s, latency);
      first = i;
      nodes++;
      members = 1;
    }
  }
  shape->most_nodes = MAX (shape->most_nodes, nodes);
  shape->least_nodes = MIN (shape->least_nodes, nodes);
  shape->crossings = MAX (shape->crossings, crossings);
}

static void
set_latencies (SpPath *path, gint32 nodes, double network_s, double link_s)
{
  path->ring_latency_network_s = (nodes - 1) * network_s;
  path->ring_latency_link_s = (path->size - nodes) * link_s;
  path->tree_latency_network_s = nodes > 1 ? ceil (log2 (nodes)) * network_s : 0;
  path->tree_latency_link_s = (path->per_node - 1) * link_s;
}

static void
set_shape (SpInstances *in, const SpCluster *cluster, SpPath *fair, SpPath *alone)
{
  Shape shape = { .least_members = G_MAXINT32, .least_nodes = G_MAXINT32, .shortest_s = INFINITY };

  while (sp_instances_next (in))
    note_shape (in, &shape);
  *fair = (SpPath){ .size = in->size,
                    .per_node = shape.least_members,
                    .nodes = shape.most_nodes,
                    .crossings = shape.crossings,
                    .network = shape.most_nodes > 1,
                    .pairwise_s_per_byte = -1 };
  *alone = *fair;
  double link = cluster->link_latency_s.value;
  set_latencies (fair, shape.most_nodes, fair->network ? shape.longest_s : 0, link);
  set_latencies (alone, shape.least_nodes, fair->network ? MIN (shape.shortest_s, shape.longest_s) : 0, link);
  /* A GPU's shares are not what prices go by here. */
  fair->link_bytes_per_s = alone->link_bytes_per_s =
      cluster->device->link_bytes_per_s.value * cluster->link_efficiency.value;
}

/* --- entries ------------------------------------------------------------------------------------------------------ */

static double
least_ratio (const SpPath *fair, const SpPath *alone)
{
  double rates[] = { fair->ring_bytes_per_s / alone->ring_bytes_per_s, fair->tree_bytes_per_s / alone->tree_bytes_per_s,
                     fair->send_bytes_per_s / alone->send_bytes_per_s,
                     fair->near_bytes_per_s / alone->near_bytes_per_s };
  double latencies[][2] = {
    { fair->ring_latency_network_s + fair->ring_latency_link_s,
      alone->ring_latency_network_s + alone->ring_latency_link_s },
    { fair->tree_latency_network_s + fair->tree_latency_link_s,
      alone->tree_latency_network_s + alone->tree_latency_link_s },
    { fair->hop_latency_s, alone->hop_latency_s },
    { fair->link_hop_latency_s, alone->link_hop_latency_s },
    { fair->nvls_latency_s, alone->nvls_latency_s },
    { fair->nvls_s_per_byte[0], alone->nvls_s_per_byte[0] },
  };
  double least = 1;

  for (guint i = 0; i < G_N_ELEMENTS (rates); i++)
    least = MIN (least, rates[i]);
  for (guint i = 0; i < G_N_ELEMENTS (latencies); i++)
    if (latencies[i][0] > 0)
      least = MIN (least, latencies[i][1] / latencies[i][0]);
  return least;
}

static void
fill_entry (Entry *entry, const SpCluster *cluster, const SpTopology *topology)
{
  SpPath *fair = &entry->fair, *alone = &entry->alone;
  SpInstances in;

  sp_instances_init (&in, &entry->key, topology);
  set_shape (&in, cluster, fair, alone);
  set_collectives (&in, fair, alone);
  set_messages (&in, cluster, fair, alone);
  set_nvls (&in, cluster, fair, alone);
  sp_instances_clear (&in);
  fair->network_bytes_per_s = fair->ring_bytes_per_s / fair->per_node;
  alone->network_bytes_per_s = alone->ring_bytes_per_s / alone->per_node;
  fair->identity = alone->identity = sp_group_key_identity (&entry->key);
  fair->alone_ratio = least_ratio (fair, alone);
  alone->is_alone = TRUE;
}

static void
fill_pairwise (Entry *entry, const SpTopology *topology)
{
  double *s = entry->pairwise_s_per_byte;
  SpInstances in;

  sp_instances_init (&in, &entry->key, topology);
  weigh (&in, SP_ALGORITHM_PAIRWISE, &s[0], &s[1]);
  sp_instances_clear (&in);
}

/* --- the cluster's graph ------------------------------------------------------------------------------------------ */

static const SpTopology *
kept_topology (const SpCluster *cluster)
{
  SpClusterMemo *memo = cluster->memo;
  SpTopologySpec spec;

  if (memo->topology == NULL) {
    sp_cluster_topology_spec (cluster, &spec);
    memo->topology = sp_topology_new (&spec, NULL);
  }
  return memo->topology;
}

/* Entries are never taken out, so that threads look them up while others add some. */
static Entry *
find_entry (SpClusterMemo *memo, const SpGroupKey *key)
{
  Entry *entry = g_atomic_pointer_get (&memo->rates[sp_group_key_hash (key) % SP_CLUSTER_MEMO_LISTS]);

  while (entry != NULL && memcmp (&entry->key, key, sizeof *key) != 0)
    entry = entry->next;
  return entry;
}

/* NULL: there is no graph. */
static Entry *
add_entry (const SpCluster *cluster, const SpGroupKey *key)
{
  SpClusterMemo *memo = cluster->memo;
  struct _SpPathEntry **list = &memo->rates[sp_group_key_hash (key) % SP_CLUSTER_MEMO_LISTS];

  g_mutex_lock (&memo->lock);
  Entry *entry = find_entry (memo, key);
  if (entry == NULL && kept_topology (cluster) != NULL) {
    entry = g_new0 (Entry, 1);
    entry->key = *key;
    entry->cluster = cluster;
    entry->next = *list;
    memo->entries = g_slist_prepend (memo->entries, entry);
    g_atomic_pointer_set (list, entry);
  }
  g_mutex_unlock (&memo->lock);
  return entry;
}

static gboolean
set_kept (const SpCluster *cluster, const SpGroupKey *key, SpPath *ret_fair, SpPath *ret_alone)
{
  Entry *entry = find_entry (cluster->memo, key);

  if (entry == NULL)
    entry = add_entry (cluster, key);
  if (entry == NULL)
    return FALSE;
  if (g_once_init_enter (&entry->is_filled)) {
    fill_entry (entry, cluster, cluster->memo->topology);
    entry->fair.entry = entry->alone.entry = entry;
    g_once_init_leave (&entry->is_filled, 1);
  }
  *ret_fair = entry->fair;
  *ret_alone = entry->alone;
  return TRUE;
}

static gboolean
set_anew (const SpCluster *cluster, const SpGroupKey *key, SpPath *ret_fair, SpPath *ret_alone)
{
  SpTopologySpec spec;
  Entry entry = { .key = *key };

  sp_cluster_topology_spec (cluster, &spec);
  g_autoptr (SpTopology) topology = sp_topology_new (&spec, NULL);
  if (topology == NULL)
    return FALSE;
  fill_entry (&entry, cluster, topology);
  fill_pairwise (&entry, topology);
  entry.fair.pairwise_s_per_byte = entry.pairwise_s_per_byte[0];
  entry.alone.pairwise_s_per_byte = entry.pairwise_s_per_byte[1];
  *ret_fair = entry.fair;
  *ret_alone = entry.alone;
  return TRUE;
}

gboolean
sp_path_set_from_graph (const SpCluster *cluster, const SpProgram *program, SpGroupId group, SpPath *ret_fair,
                        SpPath *ret_alone)
{
  SpGroupKey key = sp_group_key (program, group);

  gint64 gpus = (gint64) cluster->nodes * cluster->gpus_per_node;
  if (program->world > gpus || gpus > MOST_RANKS)
    return FALSE;
  return cluster->memo != NULL ? set_kept (cluster, &key, ret_fair, ret_alone)
                               : set_anew (cluster, &key, ret_fair, ret_alone);
}

double
sp_path_pairwise (const SpPath *path)
{
  Entry *entry = path->entry;

  if (path->pairwise_s_per_byte > 0)
    return path->pairwise_s_per_byte;
  if (g_once_init_enter (&entry->has_pairwise)) {
    fill_pairwise (entry, entry->cluster->memo->topology);
    g_once_init_leave (&entry->has_pairwise, 1);
  }
  return entry->pairwise_s_per_byte[path->is_alone];
}
