/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/loads.h"

#include <math.h>
#include <string.h>

/* What collectives put on links, by hand; sums over random ones. */

static SpTopology *
build (SpNodeKind node, SpFabricKind fabric, gint32 nodes, gint32 gpus, gint32 nics)
{
  g_autoptr (GError) error = NULL;
  SpTopologySpec spec = { .node = node,
                          .fabric = fabric,
                          .nodes = nodes,
                          .gpus_per_node = gpus,
                          .link_bytes_per_s = 100,
                          .gpus_per_switch = 2,
                          .switches_per_socket = 2,
                          .uplink_bytes_per_s = 100,
                          .socket_bytes_per_s = 50,
                          .nics = nics,
                          .nic_bytes_per_s = 10,
                          .pcie_bytes_per_s = 100,
                          .nodes_per_leaf = 2,
                          .spines = 3,
                          .oversubscription = 1,
                          .n_dims = 1,
                          .dims = { nodes },
                          .router_bytes_per_s = 20,
                          .groups = nodes,
                          .routers_per_group = 1,
                          .nodes_per_router = 1,
                          .global_bytes_per_s = 20 };
  SpTopology *t = sp_topology_new (&spec, &error);

  g_assert_no_error (error);
  return t;
}

/* Load of a link by name, of ranks first, first + step ... */
typedef struct {
  const char *link;
  double expected;
} Expected;

static void
add (SpLoads *loads, SpAlgorithm algorithm, gint32 first, gint32 step, guint n)
{
  g_autoptr (GError) error = NULL;
  g_autofree gint32 *ranks = g_new (gint32, n);

  for (guint i = 0; i < n; i++)
    ranks[i] = first + (gint32) i * step;
  sp_loads_add (loads, algorithm, ranks, n, &error);
  g_assert_no_error (error);
}

static gboolean
is_near (double a, double b)
{
  return fabs (a - b) <= 1e-12 * MAX (fabs (a), fabs (b));
}

static void
assert_loads (const SpTopology *t, const SpLoads *loads, const Expected *rows)
{
  for (; rows->link != NULL; rows++) {
    guint32 link;
    if (!sp_topology_find_link (t, rows->link, &link))
      g_error ("no link %s", rows->link);
    double load = sp_loads_of_link (loads, link);
    if (!is_near (load, rows->expected)) {
      g_test_message ("%s: %.17g, by hand %.17g", rows->link, load, rows->expected);
      g_test_fail ();
    }
  }
}

/* --- by hand ------------------------------------------------------------------------------------------------------ */

/* 4 of 4 GPUs: each port 3/4 each way, nothing else; an all-reduce twice that; at 100: 0.0075 s a byte. */
static void
test_ring_inside (void)
{
  g_autoptr (SpTopology) t = build (SP_NODE_SWITCH, SP_FABRIC_FLAT, 1, 4, 0);
  g_autoptr (SpLoads) loads = sp_loads_new (t);
  guint n;

  add (loads, SP_ALGORITHM_RING, 0, 1, 4);
  const SpLoad *list = sp_loads_get (loads, &n);
  g_assert_cmpuint (n, ==, 8);
  for (guint i = 0; i < n; i++) {
    g_assert_cmpuint (list[i].link, ==, i);
    g_assert_true (is_near (list[i].bytes_per_byte, 0.75));
  }
  g_assert_true (is_near (sp_loads_seconds_per_byte (loads), 0.0075));
  sp_loads_reset (loads);
  add (loads, SP_ALGORITHM_RING_ALL_REDUCE, 0, 1, 4);
  assert_loads (t, loads, (const Expected[]){ { "node0.gpu2>switch", 1.5 }, { "node0.switch>gpu0", 1.5 }, { 0 } });
}

/* 2 nodes of 4 GPUs and NICs, all 8: w = 7/8; 4 channels, each NIC w / 4 each way. By hand at 10 a NIC: 7/8 / 40 s. With
 * 2 NICs a node two channels share each: w / 2. */
static void
test_ring_between (void)
{
  g_autoptr (SpTopology) four = build (SP_NODE_SWITCH, SP_FABRIC_FLAT, 2, 4, 4),
                         two = build (SP_NODE_SWITCH, SP_FABRIC_FLAT, 2, 4, 2);
  g_autoptr (SpLoads) a = sp_loads_new (four), b = sp_loads_new (two);

  add (a, SP_ALGORITHM_RING, 0, 1, 8);
  assert_loads (four, a,
                (const Expected[]){ { "node0.gpu2>switch", 0.875 },
                                    { "node0.nic3>network", 0.875 / 4 },
                                    { "network>node1.nic0", 0.875 / 4 },
                                    { "node1.gpu3>nic3", 0.875 / 4 },
                                    { 0 } });
  g_assert_true (is_near (sp_loads_seconds_per_byte (a), 0.875 / 40));
  add (b, SP_ALGORITHM_RING, 0, 1, 8);
  assert_loads (two, b,
                (const Expected[]){ { "node0.nic1>network", 0.875 / 2 }, { "node0.nic1>gpu2", 0.875 / 4 }, { 0 } });
}

/* Sibling groups: 4 groups of 2 over 2 nodes with 2 NICs. One alone: w = 1/2 through its NIC at 10: 0.05 s a byte; two
 * on a NIC: 0.1. */
static void
test_siblings (void)
{
  g_autoptr (SpTopology) t = build (SP_NODE_SWITCH, SP_FABRIC_FLAT, 2, 4, 2);
  g_autoptr (SpLoads) loads = sp_loads_new (t);

  add (loads, SP_ALGORITHM_RING, 0, 4, 2);
  g_assert_true (is_near (sp_loads_seconds_per_byte (loads), 0.05));
  for (gint32 i = 1; i < 4; i++)
    add (loads, SP_ALGORITHM_RING, i, 4, 2);
  g_assert_true (is_near (sp_loads_seconds_per_byte (loads), 0.1));
}

/* A mesh of 4: w / 3 on each of 12 links of 100 / 3: as long as a ring of ports of 100. */
static void
test_ring_mesh (void)
{
  g_autoptr (SpTopology) t = build (SP_NODE_MESH, SP_FABRIC_FLAT, 1, 4, 0);
  g_autoptr (SpLoads) loads = sp_loads_new (t);
  guint n;

  add (loads, SP_ALGORITHM_RING, 0, 1, 4);
  sp_loads_get (loads, &n);
  g_assert_cmpuint (n, ==, 12);
  assert_loads (t, loads, (const Expected[]){ { "node0.gpu3>gpu1", 0.25 }, { 0 } });
  g_assert_true (is_near (sp_loads_seconds_per_byte (loads), 0.0075));
}

/* 8 GPUs behind PCIe, pairs behind 4 switches of 2 sockets: of the ring's 8 hops GPU 3 to 4 crosses to socket 1 and GPU
 * 7 to 0 back, over links of 50. */
static void
test_ring_pcie (void)
{
  g_autoptr (SpTopology) t = build (SP_NODE_PCIE, SP_FABRIC_FLAT, 1, 8, 0);
  g_autoptr (SpLoads) loads = sp_loads_new (t);

  add (loads, SP_ALGORITHM_RING, 0, 1, 8);
  assert_loads (t, loads,
                (const Expected[]){ { "node0.gpu1>pcie0", 0.875 },
                                    { "node0.pcie0>socket0", 0.875 },
                                    { "node0.socket0>socket1", 0.875 },
                                    { "node0.socket1>socket0", 0.875 },
                                    { 0 } });
  g_assert_true (is_near (sp_loads_seconds_per_byte (loads), 0.875 / 50));
}

/* 4 nodes of 2. First tree: node 0 is the root, its child 2, whose children are 1 and 3; the second is its mirror: 3 is
 * the root, its child 1, whose children are 0 and 2. Half of the payload goes up and half down each edge. Edges of node
 * 0: one to 2, one to 1: 1 payload out, over 2 adapters 1/2. Of node 2: to 0, 1 and 3, and to 1: 4 edges, 1 each
 * adapter. Inside, ports carry 2 x 1/2. */
static void
test_tree (void)
{
  g_autoptr (SpTopology) t = build (SP_NODE_SWITCH, SP_FABRIC_FLAT, 4, 2, 2);
  g_autoptr (SpLoads) loads = sp_loads_new (t);

  add (loads, SP_ALGORITHM_TREE, 0, 1, 8);
  assert_loads (t, loads,
                (const Expected[]){ { "node0.nic0>network", 0.5 },
                                    { "network>node0.nic1", 0.5 },
                                    { "node2.nic1>network", 1 },
                                    { "node1.nic0>network", 1 },
                                    { "node3.nic0>network", 0.5 },
                                    { "node1.gpu1>switch", 1 },
                                    { 0 } });
}

/* 8 in the switch: ports 1 + 1/8 each way; a reduce-scatter up 1, down 1/8; an all-gather the other way. Over 2 nodes of
 * 4: 1 + 1/4, and the trees: one edge each, 1/2 + 1/2 out, over 4 adapters. */
static void
test_nvls (void)
{
  g_autoptr (SpTopology) t = build (SP_NODE_SWITCH, SP_FABRIC_FLAT, 1, 8, 0),
                         two = build (SP_NODE_SWITCH, SP_FABRIC_FLAT, 2, 4, 4);
  g_autoptr (SpLoads) loads = sp_loads_new (t), between = sp_loads_new (two);

  add (loads, SP_ALGORITHM_NVLS, 0, 1, 8);
  assert_loads (t, loads, (const Expected[]){ { "node0.gpu5>switch", 1.125 }, { "node0.switch>gpu5", 1.125 }, { 0 } });
  sp_loads_reset (loads);
  add (loads, SP_ALGORITHM_NVLS_SCATTER, 0, 1, 8);
  assert_loads (t, loads, (const Expected[]){ { "node0.gpu5>switch", 1 }, { "node0.switch>gpu5", 0.125 }, { 0 } });
  sp_loads_reset (loads);
  add (loads, SP_ALGORITHM_NVLS_GATHER, 0, 1, 8);
  assert_loads (t, loads, (const Expected[]){ { "node0.gpu5>switch", 0.125 }, { "node0.switch>gpu5", 1 }, { 0 } });
  add (between, SP_ALGORITHM_NVLS_TREE, 0, 1, 8);
  assert_loads (two, between,
                (const Expected[]){ { "node1.gpu0>switch", 1.25 }, { "node0.nic2>network", 0.25 }, { 0 } });
}

/* Over 2 nodes of 2: each GPU sends a quarter to its neighbour and two quarters out. A message: 1 on each link. */
static void
test_pairwise (void)
{
  g_autoptr (SpTopology) t = build (SP_NODE_SWITCH, SP_FABRIC_FLAT, 2, 2, 1);
  g_autoptr (SpLoads) loads = sp_loads_new (t);

  add (loads, SP_ALGORITHM_PAIRWISE, 0, 1, 4);
  assert_loads (t, loads,
                (const Expected[]){ { "node0.gpu1>switch", 0.25 },
                                    { "node0.switch>gpu1", 0.25 },
                                    { "node0.gpu0>nic0", 0.5 },
                                    { "node1.nic0>network", 1 },
                                    { "network>node1.nic0", 1 },
                                    { 0 } });
  sp_loads_reset (loads);
  add (loads, SP_ALGORITHM_DIRECT, 1, 1, 2);
  guint n;
  const SpLoad *list = sp_loads_get (loads, &n);
  g_assert_cmpuint (n, ==, 4);
  for (guint i = 0; i < n; i++)
    g_assert_cmpfloat (list[i].bytes_per_byte, ==, 1);
}

/* A ring of 8 over 2 nodes: 16 ports alike; 4 x 2 ways to and from NICs and 4 x 2 links of NICs alike. */
static void
test_tiers (void)
{
  g_autoptr (SpTopology) t = build (SP_NODE_SWITCH, SP_FABRIC_FLAT, 2, 4, 4);
  g_autoptr (SpLoads) loads = sp_loads_new (t);
  const SpLoad *list;
  guint n;

  add (loads, SP_ALGORITHM_RING, 0, 1, 8);
  const SpLoadTier *tiers = sp_loads_tiers (loads, &list, &n);
  g_assert_cmpuint (n, ==, 2);
  g_assert_cmpuint (tiers[0].n, ==, 16);
  g_assert_cmpuint (tiers[1].n, ==, 32);
  g_assert_true (is_near (tiers[0].bytes_per_byte, 0.875));
  for (guint i = 1; i < tiers[1].n; i++)
    g_assert_cmpuint (list[tiers[1].first + i].link, >, list[tiers[1].first + i - 1].link);
}

/* --- sums over random ones ---------------------------------------------------------------------------------------- */

typedef struct {
  double out, in, nic_out, nic_in; /* of GPUs; of NICs into the fabric and from it */
} Sums;

static Sums
sums_of (const SpTopology *t, SpLoads *loads)
{
  Sums sums = { 0 };
  guint n;
  const SpLoad *list = sp_loads_get (loads, &n);

  for (guint i = 0; i < n; i++) {
    SpVertexKind from = sp_topology_vertex_kind (t, sp_topology_from (t, list[i].link)),
                 to = sp_topology_vertex_kind (t, sp_topology_to (t, list[i].link));
    sums.out += from == SP_VERTEX_GPU ? list[i].bytes_per_byte : 0;
    sums.in += to == SP_VERTEX_GPU ? list[i].bytes_per_byte : 0;
    sums.nic_out += from == SP_VERTEX_NIC && to >= SP_VERTEX_NETWORK ? list[i].bytes_per_byte : 0;
    sums.nic_in += to == SP_VERTEX_NIC && from >= SP_VERTEX_NETWORK ? list[i].bytes_per_byte : 0;
  }
  return sums;
}

typedef struct {
  gint32 *ranks;
  guint n, nodes;
  double foreign; /* ordered pairs in unlike nodes */
} Members;

/* Distinct ones in no order. */
static Members
draw_members (GRand *rand, const SpTopology *t, guint gpus)
{
  Members m = { .ranks = g_new (gint32, sp_topology_n_gpus (t)) };
  guint world = sp_topology_n_gpus (t);

  m.n = (guint) g_rand_int_range (rand, 1, (gint32) world + 1);
  for (guint i = 0; i < world; i++)
    m.ranks[i] = (gint32) i;
  for (guint i = 0; i < world; i++) {
    guint j = (guint) g_rand_int_range (rand, (gint32) i, (gint32) world);
    gint32 rank = m.ranks[i];
    m.ranks[i] = m.ranks[j];
    m.ranks[j] = rank;
  }
  for (guint i = 0; i < m.n; i++) {
    gboolean first = TRUE;
    for (guint j = 0; j < m.n; j++) {
      gboolean same = m.ranks[i] / (gint32) gpus == m.ranks[j] / (gint32) gpus;
      m.foreign += !same;
      first &= !(same && j < i);
    }
    m.nodes += first;
  }
  return m;
}

/* What NICs send is what crosses between nodes, and arrives: a ring over k nodes w k, a tree 2 (k - 1), an all-to-all
 * pairs / P. An all-to-all leaves GPUs n (n - 1) / n in all, relays over NVLink apart. Siblings add up. */
static void
test_conservation (void)
{
  guint32 seed = (guint32) g_test_rand_int ();
  GRand *rand = g_rand_new_with_seed (seed);

  g_test_message ("seed %u", seed);
  for (guint i = 0; i < 300 && !g_test_failed (); i++) {
    guint gpus = (guint) g_rand_int_range (rand, 1, 7);
    SpNodeKind node = g_rand_int_range (rand, 0, SP_N_NODE_KINDS);
    SpFabricKind fabric = g_rand_int_range (rand, 0, SP_N_FABRIC_KINDS);
    g_autoptr (SpTopology) t =
        build (node, fabric, g_rand_int_range (rand, 1, 8), (gint32) gpus, g_rand_int_range (rand, 1, 8));
    g_autoptr (SpLoads) loads = sp_loads_new (t);
    Members m = draw_members (rand, t, gpus);
    double wire = (double) (m.n - 1) / m.n, rings = m.nodes > 1 ? m.nodes : 0;
    const struct {
      SpAlgorithm algorithm;
      double between;
    } rows[] = { { SP_ALGORITHM_RING, wire * rings },
                 { SP_ALGORITHM_RING_ALL_REDUCE, 2 * wire * rings },
                 { SP_ALGORITHM_TREE, 2 * (m.nodes - 1.0) },
                 { SP_ALGORITHM_PAIRWISE, m.foreign / m.n } };
    for (guint a = 0; a < G_N_ELEMENTS (rows); a++) {
      sp_loads_reset (loads);
      sp_loads_add (loads, rows[a].algorithm, m.ranks, m.n, NULL);
      Sums sums = sums_of (t, loads);
      g_assert_true (fabs (sums.nic_out - rows[a].between) < 1e-9 && fabs (sums.nic_in - rows[a].between) < 1e-9);
      g_assert_true (fabs (sums.out - sums.in) < 1e-9);
      if (rows[a].algorithm == SP_ALGORITHM_PAIRWISE && fabric != SP_FABRIC_RAILS)
        g_assert_true (fabs (sums.out - (m.n - 1.0)) < 1e-9);
    }
    if (g_test_failed ())
      g_test_message ("%s, %s: %u of %u GPUs on %u nodes", sp_node_kind_name (node), sp_fabric_kind_name (fabric), m.n,
                      sp_topology_n_gpus (t), m.nodes);
    g_free (m.ranks);
  }
  g_rand_free (rand);
}

/* By link and by tier: the same loads; each collective by itself is what it adds. */
static void
test_accumulation (void)
{
  guint32 seed = (guint32) g_test_rand_int ();
  GRand *rand = g_rand_new_with_seed (seed);

  g_test_message ("seed %u", seed);
  for (guint i = 0; i < 100 && !g_test_failed (); i++) {
    g_autoptr (SpTopology) t = build (SP_NODE_SWITCH, SP_FABRIC_LEAF_SPINE, 4, 4, 4);
    g_autoptr (SpLoads) loads = sp_loads_new (t);
    g_autofree double *sum = g_new0 (double, sp_topology_n_links (t));
    const SpLoad *by_tier;
    guint n, n_tiers, listed = 0;
    for (guint k = 0; k < 3; k++) {
      Members m = draw_members (rand, t, 4);
      SpAlgorithm algorithm = g_rand_int_range (rand, SP_ALGORITHM_RING, SP_ALGORITHM_NVLS_TREE + 1);
      g_autofree SpLoad *own = sp_loads_collective (t, algorithm, m.ranks, m.n, &n, NULL);
      for (guint l = 0; l < n; l++)
        sum[own[l].link] += own[l].bytes_per_byte;
      sp_loads_add (loads, algorithm, m.ranks, m.n, NULL);
      g_free (m.ranks);
    }
    const SpLoad *list = sp_loads_get (loads, &n);
    double longest = 0;
    for (guint l = 0; l < n; l++) {
      g_assert_true (fabs (list[l].bytes_per_byte - sum[list[l].link]) < 1e-12 * sum[list[l].link]);
      longest = MAX (longest, list[l].bytes_per_byte / sp_topology_capacity (t, list[l].link));
    }
    g_assert_cmpfloat (sp_loads_seconds_per_byte (loads), ==, longest);
    const SpLoadTier *tiers = sp_loads_tiers (loads, &by_tier, &n_tiers);
    for (guint k = 0; k < n_tiers; k++) {
      g_assert_cmpuint (tiers[k].first, ==, listed);
      for (guint l = 0; l < tiers[k].n; l++)
        g_assert_true (fabs (sum[by_tier[tiers[k].first + l].link] / tiers[k].bytes_per_byte - 1) < 2e-9);
      listed += tiers[k].n;
    }
    g_assert_cmpuint (listed, ==, n);
  }
  g_rand_free (rand);
}

/* A cut is said with the names of both ends. */
static void
test_cut (void)
{
  g_autoptr (SpTopology) t = build (SP_NODE_SWITCH, SP_FABRIC_FLAT, 2, 1, 1);
  g_autoptr (SpLoads) loads = sp_loads_new (t);
  g_autoptr (GError) error = NULL;
  guint32 link;

  g_assert_true (sp_topology_find_link (t, "network>node1.nic0", &link));
  sp_topology_fail_link (t, link);
  g_assert_false (sp_loads_add (loads, SP_ALGORITHM_RING, (gint32[]){ 0, 1 }, 2, &error));
  g_assert_error (error, SP_TOPOLOGY_ERROR, SP_TOPOLOGY_ERROR_CUT);
  g_assert_cmpstr (error->message, ==, "failed links leave no way from node0.gpu0 to node1.gpu0");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/loads/ring-inside", test_ring_inside);
  g_test_add_func ("/loads/ring-between", test_ring_between);
  g_test_add_func ("/loads/siblings", test_siblings);
  g_test_add_func ("/loads/ring-mesh", test_ring_mesh);
  g_test_add_func ("/loads/ring-pcie", test_ring_pcie);
  g_test_add_func ("/loads/tree", test_tree);
  g_test_add_func ("/loads/nvls", test_nvls);
  g_test_add_func ("/loads/pairwise", test_pairwise);
  g_test_add_func ("/loads/tiers", test_tiers);
  g_test_add_func ("/loads/conservation", test_conservation);
  g_test_add_func ("/loads/accumulation", test_accumulation);
  g_test_add_func ("/loads/cut", test_cut);
  return g_test_run ();
}
