/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/loads.h"

#include <math.h>
#include <string.h>

struct _SpLoads {
  const SpTopology *topology;
  double *sum;     /* [n_links] */
  guint8 *touched; /* [n_links] */
  GArray *links;   /* guint32: the touched ones */
  GArray *list;    /* SpLoad */
  GArray *tiers;   /* SpLoadTier */
  GArray *ranks;   /* gint32: of the collective that is being added, sorted */
  GArray *nodes;   /* guint32: index of the first rank of each node, then the end */
};

static const char *const names[] = { "none",      "ring",         "ring all-reduce", "tree",     "nvls",
                                     "nvls tree", "nvls scatter", "nvls gather",     "pairwise", "direct" };
G_STATIC_ASSERT (G_N_ELEMENTS (names) == SP_N_ALGORITHMS);

const char *
sp_algorithm_name (SpAlgorithm algorithm)
{
  g_return_val_if_fail (algorithm < SP_N_ALGORITHMS, NULL);
  return names[algorithm];
}

SpLoads *
sp_loads_new (const SpTopology *topology)
{
  SpLoads *loads = g_new0 (SpLoads, 1);
  guint n = sp_topology_n_links (topology);

  loads->topology = topology;
  loads->sum = g_new0 (double, n);
  loads->touched = g_new0 (guint8, n);
  loads->links = g_array_new (FALSE, FALSE, sizeof (guint32));
  loads->list = g_array_new (FALSE, FALSE, sizeof (SpLoad));
  loads->tiers = g_array_new (FALSE, FALSE, sizeof (SpLoadTier));
  loads->ranks = g_array_new (FALSE, FALSE, sizeof (gint32));
  loads->nodes = g_array_new (FALSE, FALSE, sizeof (guint32));
  return loads;
}

void
sp_loads_free (SpLoads *loads)
{
  if (loads == NULL)
    return;
  g_free (loads->sum);
  g_free (loads->touched);
  g_array_unref (loads->links);
  g_array_unref (loads->list);
  g_array_unref (loads->tiers);
  g_array_unref (loads->ranks);
  g_array_unref (loads->nodes);
  g_free (loads);
}

void
sp_loads_reset (SpLoads *loads)
{
  for (guint i = 0; i < loads->links->len; i++) {
    guint32 link = g_array_index (loads->links, guint32, i);
    loads->sum[link] = 0;
    loads->touched[link] = 0;
  }
  g_array_set_size (loads->links, 0);
}

/* --- adding ------------------------------------------------------------------------------------------------------- */

static inline void
add_to_link (SpLoads *loads, guint32 link, double bytes)
{
  if (!loads->touched[link]) {
    loads->touched[link] = 1;
    g_array_append_val (loads->links, link);
  }
  loads->sum[link] += bytes;
}

static gboolean
refuse_cut (const SpLoads *loads, gint32 from, gint32 to, GError **error)
{
  const SpTopology *t = loads->topology;
  g_autofree char *a = sp_topology_vertex_name (t, sp_topology_gpu_vertex (t, (guint32) from));
  g_autofree char *b = sp_topology_vertex_name (t, sp_topology_gpu_vertex (t, (guint32) to));

  g_set_error (error, SP_TOPOLOGY_ERROR, SP_TOPOLOGY_ERROR_CUT, "failed links leave no way from %s to %s", a, b);
  return FALSE;
}

static gboolean
add_route (SpLoads *loads, gint32 from, gint32 to, double bytes, GError **error)
{
  guint32 links[SP_TOPOLOGY_MAX_ROUTE];
  guint n = sp_topology_route (loads->topology, (guint32) from, (guint32) to, links);

  if (n == SP_TOPOLOGY_CUT)
    return refuse_cut (loads, from, to, error);
  for (guint i = 0; i < n; i++)
    add_to_link (loads, links[i], bytes);
  return TRUE;
}

/* --- the ranks of a collective, node by node ---------------------------------------------------------------------- */

static int
compare_ranks (gconstpointer a, gconstpointer b)
{
  gint32 x = *(const gint32 *) a, y = *(const gint32 *) b;

  return (x > y) - (x < y);
}

static void
take_ranks (SpLoads *loads, const gint32 *ranks, guint n)
{
  gboolean sorted = TRUE;

  g_array_set_size (loads->ranks, 0);
  g_array_append_vals (loads->ranks, ranks, n);
  for (guint i = 1; i < n; i++)
    sorted &= ranks[i - 1] < ranks[i];
  if (!sorted)
    g_array_sort (loads->ranks, compare_ranks);
  g_array_set_size (loads->nodes, 0);
  const gint32 *r = (const gint32 *) (gpointer) loads->ranks->data;
  for (guint i = 0; i < n; i++)
    if (i == 0 || !sp_topology_same_node (loads->topology, (guint32) r[i - 1], (guint32) r[i]))
      g_array_append_val (loads->nodes, i);
  g_array_append_val (loads->nodes, n);
}

static guint
n_nodes (const SpLoads *loads)
{
  return loads->nodes->len - 1;
}

static guint
members_of (const SpLoads *loads, guint node)
{
  const guint32 *first = (const guint32 *) (gpointer) loads->nodes->data;

  return first[node + 1] - first[node];
}

static gint32
member (const SpLoads *loads, guint node, guint i)
{
  return g_array_index (loads->ranks, gint32, g_array_index (loads->nodes, guint32, node) + i);
}

/* The least that a node has. */
static guint
n_channels (const SpLoads *loads)
{
  guint least = G_MAXUINT;

  for (guint node = 0; node < n_nodes (loads); node++)
    least = MIN (least, members_of (loads, node));
  return least;
}

/* Whose adapter a channel uses: as many apart as there are. */
static gint32
channel_member (const SpLoads *loads, guint node, guint channel, guint channels)
{
  return member (loads, node, channel * members_of (loads, node) / channels);
}

/* --- algorithms --------------------------------------------------------------------------------------------------- */

static gboolean
is_mesh (const SpLoads *loads)
{
  return sp_topology_spec (loads->topology)->node == SP_NODE_MESH;
}

/* A closed ring over the members of a node. */
static gboolean
add_ring_inside (SpLoads *loads, guint node, double bytes, GError **error)
{
  guint m = members_of (loads, node);

  for (guint i = 0; i < m && m > 1; i++) {
    if (is_mesh (loads)) {
      for (guint j = 0; j < m; j++)
        if (i != j && !add_route (loads, member (loads, node, i), member (loads, node, j), bytes / (m - 1), error))
          return FALSE;
    } else if (!add_route (loads, member (loads, node, i), member (loads, node, (i + 1) % m), bytes, error))
      return FALSE;
  }
  return TRUE;
}

static gboolean
add_ring (SpLoads *loads, double bytes, GError **error)
{
  guint nodes = n_nodes (loads), channels = n_channels (loads);

  for (guint node = 0; node < nodes; node++) {
    if (!add_ring_inside (loads, node, bytes, error))
      return FALSE;
    for (guint j = 0; j < channels && nodes > 1; j++)
      if (!add_route (loads, channel_member (loads, node, j, channels),
                      channel_member (loads, (node + 1) % nodes, j, channels), bytes / channels, error))
        return FALSE;
  }
  return TRUE;
}

/* Of node `i` of n in a binary tree: see loads.h. -1: the root. */
static gint
tree_parent (guint i, guint n)
{
  if (i == 0)
    return -1;
  guint bit = i & -i, up = (i ^ bit) | (bit << 1);

  return (gint) (up >= n ? i ^ bit : up);
}

static gint
second_tree_parent (guint i, guint n)
{
  if (n % 2 == 0) {
    gint up = tree_parent (n - 1 - i, n);
    return up < 0 ? up : (gint) n - 1 - up;
  }
  gint up = tree_parent ((i + n - 1) % n, n);
  return up < 0 ? up : (up + 1) % (gint) n;
}

/* Both trees, up and down, between nodes. */
static gboolean
add_trees_outside (SpLoads *loads, GError **error)
{
  guint nodes = n_nodes (loads), channels = n_channels (loads);

  for (guint tree = 0; tree < 2; tree++)
    for (guint node = 0; node < nodes; node++) {
      gint parent = tree ? second_tree_parent (node, nodes) : tree_parent (node, nodes);
      for (guint j = 0; j < channels && parent >= 0; j++) {
        gint32 low = channel_member (loads, node, j, channels),
               high = channel_member (loads, (guint) parent, j, channels);
        if (!add_route (loads, low, high, 0.5 / channels, error) ||
            !add_route (loads, high, low, 0.5 / channels, error))
          return FALSE;
      }
    }
  return TRUE;
}

/* Chains over the members of a node, one that starts at each: all neighbours in a ring but one, both ways. */
static gboolean
add_chains_inside (SpLoads *loads, guint node, GError **error)
{
  guint m = members_of (loads, node);

  for (guint i = 0; i < m && m > 1; i++) {
    gint32 a = member (loads, node, i), b = member (loads, node, (i + 1) % m);
    double bytes = (double) (m - 1) / m;
    if (!add_route (loads, a, b, bytes, error) || !add_route (loads, b, a, bytes, error))
      return FALSE;
  }
  return TRUE;
}

static gboolean
add_tree (SpLoads *loads, GError **error)
{
  for (guint node = 0; node < n_nodes (loads); node++)
    if (!add_chains_inside (loads, node, error))
      return FALSE;
  return add_trees_outside (loads, error);
}

/* Ports of the members of a node: `up` and `down` a member. */
static gboolean
add_ports (SpLoads *loads, guint node, double up, double down, GError **error)
{
  guint m = members_of (loads, node);
  guint32 links[SP_TOPOLOGY_MAX_ROUTE];

  g_return_val_if_fail (sp_topology_spec (loads->topology)->node == SP_NODE_SWITCH, FALSE);
  for (guint i = 0; i < m && m > 1; i++) {
    gint32 a = member (loads, node, i), b = member (loads, node, (i + 1) % m);
    guint n = sp_topology_route (loads->topology, (guint32) a, (guint32) b, links);
    if (n == SP_TOPOLOGY_CUT)
      return refuse_cut (loads, a, b, error);
    for (guint l = 0; l < n; l++)
      add_to_link (loads, links[l], l == 0 ? up : down);
  }
  return TRUE;
}

static gboolean
add_nvls (SpLoads *loads, gboolean up, gboolean down, GError **error)
{
  for (guint node = 0; node < n_nodes (loads); node++) {
    double part = 1.0 / members_of (loads, node);
    if (!add_ports (loads, node, up && down ? 1 + part : up ? 1 : part, up && down ? 1 + part : down ? 1 : part, error))
      return FALSE;
  }
  return TRUE;
}

static gboolean
add_pairwise (SpLoads *loads, GError **error)
{
  const gint32 *ranks = (const gint32 *) (gpointer) loads->ranks->data;
  guint n = loads->ranks->len;

  for (guint i = 0; i < n; i++)
    for (guint j = 0; j < n; j++)
      if (i != j && !add_route (loads, ranks[i], ranks[j], 1.0 / n, error))
        return FALSE;
  return TRUE;
}

gboolean
sp_loads_add_message (SpLoads *loads, gint32 from, gint32 to, GError **error)
{
  return add_route (loads, from, to, 1, error);
}

gboolean
sp_loads_add (SpLoads *loads, SpAlgorithm algorithm, const gint32 *ranks, guint n, GError **error)
{
  double wire = n > 0 ? (double) (n - 1) / n : 0;

  if (algorithm == SP_ALGORITHM_DIRECT)
    return n < 2 || add_route (loads, ranks[0], ranks[1], 1, error);
  take_ranks (loads, ranks, n);
  if (n < 2)
    return TRUE;
  switch (algorithm) {
  case SP_ALGORITHM_RING:
    return add_ring (loads, wire, error);
  case SP_ALGORITHM_RING_ALL_REDUCE:
    return add_ring (loads, 2 * wire, error);
  case SP_ALGORITHM_TREE:
    return add_tree (loads, error);
  case SP_ALGORITHM_NVLS:
  case SP_ALGORITHM_NVLS_TREE:
    return add_nvls (loads, TRUE, TRUE, error) && add_trees_outside (loads, error);
  case SP_ALGORITHM_NVLS_SCATTER:
    return add_nvls (loads, TRUE, FALSE, error);
  case SP_ALGORITHM_NVLS_GATHER:
    return add_nvls (loads, FALSE, TRUE, error);
  case SP_ALGORITHM_PAIRWISE:
    return add_pairwise (loads, error);
  default:
    return TRUE;
  }
}

void
sp_loads_merge (SpLoads *loads, const SpLoads *other)
{
  for (guint i = 0; i < other->links->len; i++) {
    guint32 link = g_array_index (other->links, guint32, i);
    add_to_link (loads, link, other->sum[link]);
  }
}

/* --- what was added ----------------------------------------------------------------------------------------------- */

static int
compare_links (gconstpointer a, gconstpointer b)
{
  guint32 x = ((const SpLoad *) a)->link, y = ((const SpLoad *) b)->link;

  return (x > y) - (x < y);
}

static int
compare_loads (gconstpointer a, gconstpointer b)
{
  double x = ((const SpLoad *) a)->bytes_per_byte, y = ((const SpLoad *) b)->bytes_per_byte;

  return x != y ? (x < y) - (x > y) : compare_links (a, b);
}

static void
fill_list (SpLoads *loads)
{
  g_array_set_size (loads->list, loads->links->len);
  SpLoad *list = (SpLoad *) (gpointer) loads->list->data;
  for (guint i = 0; i < loads->links->len; i++) {
    guint32 link = g_array_index (loads->links, guint32, i);
    list[i] = (SpLoad){ .link = link, .bytes_per_byte = loads->sum[link] };
  }
}

const SpLoad *
sp_loads_get (SpLoads *loads, guint *ret_n)
{
  fill_list (loads);
  g_array_sort (loads->list, compare_links);
  *ret_n = loads->list->len;
  return (const SpLoad *) (gpointer) loads->list->data;
}

const SpLoadTier *
sp_loads_tiers (SpLoads *loads, const SpLoad **ret_loads, guint *ret_n)
{
  fill_list (loads);
  g_array_sort (loads->list, compare_loads);
  g_array_set_size (loads->tiers, 0);
  SpLoad *list = (SpLoad *) (gpointer) loads->list->data;
  for (guint first = 0, end; first < loads->list->len; first = end) {
    SpLoadTier tier = { .bytes_per_byte = list[first].bytes_per_byte, .first = first };
    for (end = first; end < loads->list->len && list[end].bytes_per_byte >= tier.bytes_per_byte * (1 - 1e-9); end++)
      list[end].bytes_per_byte = tier.bytes_per_byte;
    tier.n = end - first;
    qsort (list + first, tier.n, sizeof *list, compare_links);
    g_array_append_val (loads->tiers, tier);
  }
  if (ret_loads != NULL)
    *ret_loads = list;
  *ret_n = loads->tiers->len;
  return (const SpLoadTier *) (gpointer) loads->tiers->data;
}

double
sp_loads_of_link (const SpLoads *loads, guint32 link)
{
  return loads->sum[link];
}

double
sp_loads_seconds_per_byte (const SpLoads *loads)
{
  const double *capacities = sp_topology_capacities (loads->topology);
  double longest = 0;

  for (guint i = 0; i < loads->links->len; i++) {
    guint32 link = g_array_index (loads->links, guint32, i);
    longest = MAX (longest, loads->sum[link] / capacities[link]);
  }
  return longest;
}

SpLoad *
sp_loads_collective (const SpTopology *topology, SpAlgorithm algorithm, const gint32 *ranks, guint n, guint *ret_n,
                     GError **error)
{
  g_autoptr (SpLoads) loads = sp_loads_new (topology);

  if (!sp_loads_add (loads, algorithm, ranks, n, error))
    return NULL;
  const SpLoad *list = sp_loads_get (loads, ret_n);
  return g_memdup2 (list, *ret_n * sizeof *list);
}
