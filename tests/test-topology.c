/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/topology.h"

#include <math.h>
#include <string.h>

/* Networks against what they are by hand; routes of random ones are ways from the one GPU to the other. */

/* --- specs -------------------------------------------------------------------------------------------------------- */

static SpTopologySpec
spec_of (SpNodeKind node, SpFabricKind fabric, gint32 nodes, gint32 gpus, gint32 nics)
{
  return (SpTopologySpec){ .node = node,
                           .fabric = fabric,
                           .nodes = nodes,
                           .gpus_per_node = gpus,
                           .link_bytes_per_s = 100,
                           .link_latency_s = 3,
                           .gpus_per_switch = 2,
                           .switches_per_socket = 2,
                           .uplink_bytes_per_s = 90,
                           .socket_bytes_per_s = 40,
                           .nics = nics,
                           .nic_bytes_per_s = 10,
                           .pcie_bytes_per_s = 50,
                           .network_latency_s = 14,
                           .hop_latency_s = 1,
                           .nodes_per_leaf = 2,
                           .spines = 2,
                           .oversubscription = 1,
                           .router_bytes_per_s = 30,
                           .global_bytes_per_s = 60 };
}

static SpTopology *
build (const SpTopologySpec *spec)
{
  g_autoptr (GError) error = NULL;
  SpTopology *t = sp_topology_new (spec, &error);

  g_assert_no_error (error);
  return t;
}

/* Links of a route by name, with blanks between. */
static void
assert_route (const SpTopology *t, guint from, guint to, const char *expected)
{
  guint32 links[SP_TOPOLOGY_MAX_ROUTE];
  guint n = sp_topology_route (t, from, to, links);
  g_autoptr (GString) text = g_string_new (NULL);

  g_assert_cmpuint (n, !=, SP_TOPOLOGY_CUT);
  for (guint i = 0; i < n; i++) {
    g_autofree char *name = sp_topology_link_name (t, links[i]);
    g_string_append_printf (text, "%s%s", i ? " " : "", name);
  }
  g_assert_cmpstr (text->str, ==, expected);
}

static guint
count_vertices (const SpTopology *t, SpVertexKind kind)
{
  guint n = 0;

  for (guint v = 0; v < sp_topology_n_vertices (t); v++)
    n += sp_topology_vertex_kind (t, v) == kind;
  return n;
}

static guint32
find (const SpTopology *t, const char *name)
{
  guint32 link = G_MAXUINT32;

  if (!sp_topology_find_link (t, name, &link))
    g_error ("no link %s", name);
  return link;
}

/* --- by hand ------------------------------------------------------------------------------------------------------ */

/* Two nodes of 4 GPUs and 2 NICs: NIC 0 serves GPUs 0 and 1. Of a node 4 + 4 ports, 4 + 4 ways to and from NICs; 2 x 4
 * links of NICs: 2 x 16 + 8 = 40. */
static void
test_switch_flat (void)
{
  SpTopologySpec spec = spec_of (SP_NODE_SWITCH, SP_FABRIC_FLAT, 2, 4, 2);
  g_autoptr (SpTopology) t = build (&spec);

  g_assert_cmpuint (sp_topology_n_links (t), ==, 40);
  g_assert_cmpuint (count_vertices (t, SP_VERTEX_GPU), ==, 8);
  g_assert_cmpuint (count_vertices (t, SP_VERTEX_NIC), ==, 4);
  g_assert_cmpuint (count_vertices (t, SP_VERTEX_SWITCH), ==, 2);
  g_assert_cmpuint (count_vertices (t, SP_VERTEX_NETWORK), ==, 1);
  assert_route (t, 3, 3, "");
  assert_route (t, 4, 7, "node1.gpu0>switch node1.switch>gpu3");
  assert_route (t, 1, 6, "node0.gpu1>nic0 node0.nic0>network network>node1.nic1 node1.nic1>gpu2");
  g_assert_cmpfloat (sp_topology_route_latency (t, 4, 7), ==, 3);
  g_assert_cmpfloat (sp_topology_route_latency (t, 1, 6), ==, 14);
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "node0.gpu1>switch")), ==, 100);
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "node0.gpu1>nic0")), ==, 50);
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "network>node1.nic1")), ==, 10);
  g_assert_false (sp_topology_find_link (t, "node0.gpu1>nic1", &(guint32){ 0 }));
}

/* One node has no NICs. More NICs than GPUs: those of a GPU are one of their sum, 3 of 10 over 2 GPUs: 15. */
static void
test_nics (void)
{
  SpTopologySpec one = spec_of (SP_NODE_SWITCH, SP_FABRIC_FLAT, 1, 4, 0),
                 more = spec_of (SP_NODE_SWITCH, SP_FABRIC_FLAT, 2, 2, 3);
  g_autoptr (SpTopology) a = build (&one), b = build (&more);

  g_assert_cmpuint (sp_topology_n_links (a), ==, 8);
  g_assert_cmpuint (count_vertices (a, SP_VERTEX_NIC), ==, 0);
  g_assert_cmpuint (sp_topology_nics_per_node (b), ==, 2);
  g_assert_cmpfloat (sp_topology_capacity (b, find (b, "node1.nic1>network")), ==, 15);
}

/* 4 GPUs all joined: 12 links of 100 / 3 a node; 8 ways to NICs, and with one NIC each 8 links of them: 2 x 20 + 16. */
static void
test_mesh (void)
{
  SpTopologySpec spec = spec_of (SP_NODE_MESH, SP_FABRIC_FLAT, 2, 4, 4);
  g_autoptr (SpTopology) t = build (&spec);

  g_assert_cmpuint (sp_topology_n_links (t), ==, 56);
  assert_route (t, 2, 1, "node0.gpu2>gpu1");
  assert_route (t, 6, 3, "node1.gpu2>nic2 node1.nic2>network network>node0.nic3 node0.nic3>gpu3");
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "node0.gpu2>gpu1")), ==, 100.0 / 3);
}

/* 8 GPUs, two a switch, two switches a socket: 4 switches, 2 sockets. 16 + 8 + 2 links a node, 2 NICs: 4 more of its
 * own and 4 to the network. NIC 1 serves GPUs 4 to 7 from the switch of GPU 4. */
static void
test_pcie (void)
{
  SpTopologySpec spec = spec_of (SP_NODE_PCIE, SP_FABRIC_FLAT, 2, 8, 2);
  g_autoptr (SpTopology) t = build (&spec);

  g_assert_cmpuint (sp_topology_n_links (t), ==, 2 * 34);
  g_assert_cmpuint (count_vertices (t, SP_VERTEX_PCIE_SWITCH), ==, 8);
  g_assert_cmpuint (count_vertices (t, SP_VERTEX_SOCKET), ==, 4);
  assert_route (t, 0, 1, "node0.gpu0>pcie0 node0.pcie0>gpu1");
  assert_route (t, 1, 2, "node0.gpu1>pcie0 node0.pcie0>socket0 node0.socket0>pcie1 node0.pcie1>gpu2");
  assert_route (t, 15, 8,
                "node1.gpu7>pcie3 node1.pcie3>socket1 node1.socket1>socket0 node1.socket0>pcie0 node1.pcie0>gpu0");
  assert_route (t, 6, 8,
                "node0.gpu6>pcie3 node0.pcie3>socket1 node0.socket1>pcie2 node0.pcie2>nic1 node0.nic1>network "
                "network>node1.nic0 node1.nic0>pcie0 node1.pcie0>gpu0");
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "node0.pcie0>socket0")), ==, 90);
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "node0.socket1>socket0")), ==, 40);
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "node0.pcie2>nic1")), ==, 10);
}

/* As above with a bridge for each of 4 pairs: 8 links more a node, of the NVLink rate; ports are PCIe's. A pair need
 * not share a switch: with one GPU a switch its way is the bridge all the same. Of 3 GPUs the last has none. */
static void
test_pairs (void)
{
  SpTopologySpec spec = spec_of (SP_NODE_PAIRS, SP_FABRIC_FLAT, 2, 8, 2);
  g_autoptr (SpTopology) t = build (&spec);

  g_assert_cmpuint (sp_topology_n_links (t), ==, 2 * 42);
  assert_route (t, 0, 1, "node0.gpu0>gpu1");
  assert_route (t, 15, 14, "node1.gpu7>gpu6");
  assert_route (t, 1, 2, "node0.gpu1>pcie0 node0.pcie0>socket0 node0.socket0>pcie1 node0.pcie1>gpu2");
  assert_route (t, 6, 8,
                "node0.gpu6>pcie3 node0.pcie3>socket1 node0.socket1>pcie2 node0.pcie2>nic1 node0.nic1>network "
                "network>node1.nic0 node1.nic0>pcie0 node1.pcie0>gpu0");
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "node0.gpu0>gpu1")), ==, 100);
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "node0.gpu0>pcie0")), ==, 50);
  g_assert_cmpfloat (sp_topology_route_latency (t, 3, 2), ==, 3);
  sp_topology_fail_link (t, find (t, "node0.gpu0>gpu1"));
  assert_route (t, 0, 1, "node0.gpu0>pcie0 node0.pcie0>gpu1");

  SpTopologySpec odd = spec_of (SP_NODE_PAIRS, SP_FABRIC_FLAT, 1, 3, 0);
  odd.gpus_per_switch = 1;
  g_autoptr (SpTopology) three = build (&odd);
  assert_route (three, 1, 0, "node0.gpu1>gpu0");
  assert_route (three, 2, 1, "node0.gpu2>pcie2 node0.pcie2>socket1 node0.socket1>socket0 node0.socket0>pcie1 "
                             "node0.pcie1>gpu1");
}

/* 5 nodes of 2 GPUs and NICs, 2 nodes a leaf: 3 leaves, 2 spines, 12 links between them. Uplinks of a leaf: 4 NICs of
 * 10, oversubscribed 2: 20, 10 each. NIC 1 of node 3 is number 7: by spine 1. */
static void
test_leaf_spine (void)
{
  SpTopologySpec spec = spec_of (SP_NODE_SWITCH, SP_FABRIC_LEAF_SPINE, 5, 2, 2);

  spec.oversubscription = 2;
  g_autoptr (SpTopology) t = build (&spec);
  g_assert_cmpuint (sp_topology_n_links (t), ==, 5 * 8 + 20 + 12);
  g_assert_cmpuint (count_vertices (t, SP_VERTEX_LEAF), ==, 3);
  g_assert_cmpuint (count_vertices (t, SP_VERTEX_SPINE), ==, 2);
  assert_route (t, 0, 2, "node0.gpu0>nic0 node0.nic0>leaf0 leaf0>node1.nic0 node1.nic0>gpu0");
  assert_route (t, 0, 7, "node0.gpu0>nic0 node0.nic0>leaf0 leaf0>spine1 spine1>leaf1 leaf1>node3.nic1 node3.nic1>gpu1");
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "leaf2>spine1")), ==, 10);
  g_assert_cmpfloat (sp_topology_route_latency (t, 0, 7), ==, 16);
}

/* 4 nodes of 2, 2 nodes a leaf: 2 leaves of each of 2 rails. From GPU 0 to a GPU on rail 1: over NVLink first; behind
 * PCIe over a spine. */
static void
test_rails (void)
{
  SpTopologySpec spec = spec_of (SP_NODE_SWITCH, SP_FABRIC_RAILS, 4, 2, 2);
  g_autoptr (SpTopology) t = build (&spec);

  g_assert_cmpuint (count_vertices (t, SP_VERTEX_LEAF), ==, 4);
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "rail1.leaf0>spine1")), ==, 10);
  assert_route (t, 1, 3, "node0.gpu1>nic1 node0.nic1>rail1.leaf0 rail1.leaf0>node1.nic1 node1.nic1>gpu1");
  assert_route (t, 0, 3,
                "node0.gpu0>switch node0.switch>gpu1 node0.gpu1>nic1 node0.nic1>rail1.leaf0 rail1.leaf0>node1.nic1 "
                "node1.nic1>gpu1");
  assert_route (t, 0, 4,
                "node0.gpu0>nic0 node0.nic0>rail0.leaf0 rail0.leaf0>spine0 spine0>rail0.leaf1 rail0.leaf1>node2.nic0 "
                "node2.nic0>gpu0");
  g_assert_cmpfloat (sp_topology_route_latency (t, 0, 3), ==, 17);
  spec.node = SP_NODE_PCIE;
  g_autoptr (SpTopology) pcie = build (&spec);
  assert_route (pcie, 0, 3,
                "node0.gpu0>pcie0 node0.pcie0>nic0 node0.nic0>rail0.leaf0 rail0.leaf0>spine0 spine0>rail1.leaf0 "
                "rail1.leaf0>node1.nic1 node1.nic1>pcie0 node1.pcie0>gpu1");
}

/* 3 x 2 x 1 nodes: a router has 2 + 1 links. Node 2 to node 3 (0 of the first dimension, 1 of the second): up from 2
 * round to 0, then to the other side; back: 3 is at 0, down to 2. */
static void
test_torus (void)
{
  SpTopologySpec spec = spec_of (SP_NODE_SWITCH, SP_FABRIC_TORUS, 6, 1, 1);

  spec.n_dims = 3;
  memcpy (spec.dims, (gint32[]){ 3, 2, 1, 0 }, sizeof spec.dims);
  g_autoptr (SpTopology) t = build (&spec);
  g_assert_cmpuint (sp_topology_n_links (t), ==, 6 * 4 + 12 + 18);
  assert_route (
      t, 2, 3, "node2.gpu0>nic0 node2.nic0>router2 router2>router0 router0>router3 router3>node3.nic0 node3.nic0>gpu0");
  assert_route (
      t, 3, 2, "node3.gpu0>nic0 node3.nic0>router3 router3>router5 router5>router2 router2>node2.nic0 node2.nic0>gpu0");
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "router0>router3")), ==, 30);
}

/* 3 groups of 2 routers of 1 node: the link of group 0 to group 1 leaves from router 0, that to group 2 from router 1;
 * group 2's link to group 0 ends at its router 0. */
static void
test_dragonfly (void)
{
  SpTopologySpec spec = spec_of (SP_NODE_SWITCH, SP_FABRIC_DRAGONFLY, 6, 1, 1);

  spec.groups = 3;
  spec.routers_per_group = 2;
  spec.nodes_per_router = 1;
  g_autoptr (SpTopology) t = build (&spec);
  g_assert_cmpuint (sp_topology_n_links (t), ==, 6 * 4 + 12 + 3 * 2 + 6);
  assert_route (t, 0, 5,
                "node0.gpu0>nic0 node0.nic0>group0.router0 group0.router0>group0.router1 group0.router1>group2.router0 "
                "group2.router0>group2.router1 group2.router1>node5.nic0 node5.nic0>gpu0");
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "group0.router1>group2.router0")), ==, 60);
}

/* --- properties of random ones ------------------------------------------------------------------------------------ */

static SpTopologySpec
draw_spec (GRand *rand)
{
  gint32 gpus = g_rand_int_range (rand, 1, 10);
  SpTopologySpec spec =
      spec_of (g_rand_int_range (rand, 0, SP_N_NODE_KINDS), g_rand_int_range (rand, 0, SP_N_FABRIC_KINDS),
               g_rand_int_range (rand, 1, 20), gpus, g_rand_int_range (rand, 1, 12));

  spec.gpus_per_switch = g_rand_int_range (rand, 1, 5);
  spec.switches_per_socket = g_rand_int_range (rand, 1, 3);
  spec.nodes_per_leaf = g_rand_int_range (rand, 1, 6);
  spec.spines = g_rand_int_range (rand, 1, 6);
  if (spec.fabric == SP_FABRIC_TORUS) {
    spec.n_dims = g_rand_int_range (rand, 1, SP_TOPOLOGY_MAX_DIMS + 1);
    spec.nodes = 1;
    for (gint32 d = 0; d < spec.n_dims; d++)
      spec.nodes *= spec.dims[d] = g_rand_int_range (rand, 1, 5);
  }
  spec.groups = g_rand_int_range (rand, 1, 5);
  spec.routers_per_group = g_rand_int_range (rand, 1, 4);
  spec.nodes_per_router = g_rand_int_range (rand, 1, 3);
  if (spec.fabric == SP_FABRIC_DRAGONFLY)
    spec.nodes = spec.groups * spec.routers_per_group * spec.nodes_per_router;
  return spec;
}

static void
describe (const SpTopologySpec *s)
{
  g_test_message ("%s, %s: %d nodes of %d GPUs and %d NICs", sp_node_kind_name (s->node),
                  sp_fabric_kind_name (s->fabric), s->nodes, s->gpus_per_node, s->nics);
}

/* A way from the one to the other on which no link and no vertex is twice. */
static void
check_route (const SpTopology *t, guint from, guint to, const guint32 *links, guint n)
{
  guint32 at = sp_topology_gpu_vertex (t, from);

  for (guint i = 0; i < n; i++) {
    g_assert_cmpuint (sp_topology_from (t, links[i]), ==, at);
    at = sp_topology_to (t, links[i]);
    g_assert_false (sp_topology_is_failed (t, links[i]));
    for (guint j = 0; j < i; j++)
      g_assert_cmpuint (sp_topology_to (t, links[j]), !=, at);
  }
  g_assert_cmpuint (at, ==, sp_topology_gpu_vertex (t, to));
}

static void
test_random_routes (void)
{
  guint32 seed = (guint32) g_test_rand_int (), there[SP_TOPOLOGY_MAX_ROUTE], back[SP_TOPOLOGY_MAX_ROUTE];
  GRand *rand = g_rand_new_with_seed (seed);

  g_test_message ("seed %u", seed);
  for (guint i = 0; i < 300 && !g_test_failed (); i++) {
    SpTopologySpec spec = draw_spec (rand);
    g_autoptr (SpTopology) t = build (&spec);
    guint gpus = sp_topology_n_gpus (t);
    for (guint k = 0; k < 200; k++) {
      guint a = (guint) g_rand_int_range (rand, 0, (gint32) gpus),
            b = (guint) g_rand_int_range (rand, 0, (gint32) gpus);
      guint n = sp_topology_route (t, a, b, there);
      check_route (t, a, b, there, n);
      g_assert_cmpuint (sp_topology_route (t, b, a, back), ==, n);
      g_assert_true ((n == 0) == (a == b));
    }
    if (g_test_failed ())
      describe (&spec);
  }
  g_rand_free (rand);
}

/* Every link has a name of its own by which it is found. */
static void
test_names (void)
{
  guint32 seed = (guint32) g_test_rand_int ();
  GRand *rand = g_rand_new_with_seed (seed);

  g_test_message ("seed %u", seed);
  for (guint i = 0; i < 20; i++) {
    SpTopologySpec spec = draw_spec (rand);
    g_autoptr (SpTopology) t = build (&spec);
    for (guint k = 0; k < 20 && sp_topology_n_links (t) > 0; k++) { /* a lone GPU of a mesh has none */
      guint32 link = (guint32) g_rand_int_range (rand, 0, (gint32) sp_topology_n_links (t));
      g_autofree char *name = sp_topology_link_name (t, link);
      g_assert_cmpuint (find (t, name), ==, link);
    }
  }
  g_rand_free (rand);
}

/* --- faults ------------------------------------------------------------------------------------------------------- */

/* Of two spines one fails: by the other. The NIC's link fails: by a neighbour's over NVLink. A torus of 4: the other
 * way round. What is not touched stays. */
static void
test_reroute (void)
{
  SpTopologySpec spec = spec_of (SP_NODE_SWITCH, SP_FABRIC_LEAF_SPINE, 4, 2, 2);
  g_autoptr (SpTopology) t = build (&spec);

  sp_topology_fail_link (t, find (t, "leaf0>spine0"));
  assert_route (t, 0, 4, "node0.gpu0>nic0 node0.nic0>leaf0 leaf0>spine1 spine1>leaf1 leaf1>node2.nic0 node2.nic0>gpu0");
  assert_route (t, 4, 0, "node2.gpu0>nic0 node2.nic0>leaf1 leaf1>spine0 spine0>leaf0 leaf0>node0.nic0 node0.nic0>gpu0");
  g_assert_cmpfloat (sp_topology_capacity (t, find (t, "leaf0>spine0")), ==, 0);
  sp_topology_fail_link (t, find (t, "node0.gpu0>nic0"));
  assert_route (t, 0, 2,
                "node0.gpu0>switch node0.switch>gpu1 node0.gpu1>nic1 node0.nic1>leaf0 leaf0>node1.nic0 "
                "node1.nic0>gpu0");

  SpTopologySpec torus = spec_of (SP_NODE_SWITCH, SP_FABRIC_TORUS, 4, 1, 1);
  torus.n_dims = 1;
  torus.dims[0] = 4;
  g_autoptr (SpTopology) ring = build (&torus);
  sp_topology_fail_link (ring, find (ring, "router0>router1"));
  assert_route (ring, 0, 1,
                "node0.gpu0>nic0 node0.nic0>router0 router0>router3 router3>router2 router2>router1 router1>node1.nic0 "
                "node1.nic0>gpu0");
}

static void
test_cut_off (void)
{
  SpTopologySpec spec = spec_of (SP_NODE_SWITCH, SP_FABRIC_FLAT, 3, 1, 1);
  g_autoptr (SpTopology) t = build (&spec);
  guint32 links[SP_TOPOLOGY_MAX_ROUTE];

  sp_topology_fail_link (t, find (t, "node1.nic0>network"));
  g_assert_cmpuint (sp_topology_route (t, 1, 2, links), ==, SP_TOPOLOGY_CUT);
  g_assert_true (isinf (sp_topology_route_latency (t, 1, 2)));
  g_assert_cmpuint (sp_topology_route (t, 2, 1, links), ==, 4);
  g_assert_cmpuint (sp_topology_route (t, 0, 2, links), ==, 4);
}

/* With random failures a route is a way over what is left, or there is none; never through a third node. */
static void
test_random_failures (void)
{
  guint32 seed = (guint32) g_test_rand_int (), links[SP_TOPOLOGY_MAX_ROUTE];
  GRand *rand = g_rand_new_with_seed (seed);
  guint cut = 0, rerouted = 0;

  g_test_message ("seed %u", seed);
  for (guint i = 0; i < 200 && !g_test_failed (); i++) {
    SpTopologySpec spec = draw_spec (rand);
    g_autoptr (SpTopology) whole = build (&spec), t = build (&spec);
    guint gpus = sp_topology_n_gpus (t), n_links = sp_topology_n_links (t);
    for (guint k = 0; k < n_links / 10 + 1 && n_links > 0; k++)
      sp_topology_fail_link (t, (guint32) g_rand_int_range (rand, 0, (gint32) n_links));
    for (guint k = 0; k < 100; k++) {
      guint a = (guint) g_rand_int_range (rand, 0, (gint32) gpus),
            b = (guint) g_rand_int_range (rand, 0, (gint32) gpus);
      guint usual = sp_topology_route (whole, a, b, links), n = sp_topology_route (t, a, b, links);
      if (n == SP_TOPOLOGY_CUT) {
        cut++;
        continue;
      }
      rerouted += n != usual;
      check_route (t, a, b, links, n);
      for (guint l = 0; l < n; l++) {
        guint32 to = sp_topology_to (t, links[l]);
        if (sp_topology_vertex_kind (t, to) == SP_VERTEX_GPU) {
          guint node = to / (sp_topology_gpu_vertex (t, (guint) spec.gpus_per_node % gpus) +
                             (gpus == (guint) spec.gpus_per_node ? sp_topology_n_vertices (t) : 0));
          g_assert_true (node == a / (guint) spec.gpus_per_node || node == b / (guint) spec.gpus_per_node);
        }
      }
    }
    if (g_test_failed ())
      describe (&spec);
  }
  g_test_message ("%u cut off, %u longer or shorter", cut, rerouted);
  g_assert_cmpuint (cut, >, 0);
  g_assert_cmpuint (rerouted, >, 0);
  g_rand_free (rand);
}

static void
test_slow_link (void)
{
  SpTopologySpec spec = spec_of (SP_NODE_SWITCH, SP_FABRIC_FLAT, 1, 2, 0);
  g_autoptr (SpTopology) t = build (&spec);

  sp_topology_slow_link (t, 1, 0.25);
  g_assert_cmpfloat (sp_topology_capacity (t, 1), ==, 25);
  g_assert_cmpfloat (sp_topology_capacities (t)[0], ==, 100);
}

/* --- what makes no network, and a large one ----------------------------------------------------------------------- */

static void
test_refused (void)
{
  SpTopologySpec torus = spec_of (SP_NODE_SWITCH, SP_FABRIC_TORUS, 6, 1, 1),
                 dragonfly = spec_of (SP_NODE_SWITCH, SP_FABRIC_DRAGONFLY, 5, 1, 1),
                 huge = spec_of (SP_NODE_MESH, SP_FABRIC_FLAT, 65536, 1024, 8);
  const struct {
    const SpTopologySpec *spec;
    const char *words;
  } rows[] = { { &torus, "the dimensions' product is 4, not the 6 nodes" },
               { &dragonfly, "2 groups of 2 routers of 1 nodes are 4 nodes, not 5" },
               { &huge, "a network of " } };

  torus.n_dims = 2;
  torus.dims[0] = torus.dims[1] = 2;
  dragonfly.groups = dragonfly.routers_per_group = 2;
  dragonfly.nodes_per_router = 1;
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autoptr (GError) error = NULL;
    g_assert_null (sp_topology_new (rows[i].spec, &error));
    g_assert_error (error, SP_TOPOLOGY_ERROR, SP_TOPOLOGY_ERROR_SPEC);
    g_assert_nonnull (strstr (error->message, rows[i].words));
  }
}

static void
test_large (void)
{
  SpTopologySpec spec = spec_of (SP_NODE_SWITCH, SP_FABRIC_RAILS, 2048, 8, 8);
  guint32 links[SP_TOPOLOGY_MAX_ROUTE];

  spec.nodes_per_leaf = 16;
  spec.spines = 16;
  gint64 start = g_get_monotonic_time ();
  g_autoptr (SpTopology) t = build (&spec);
  gint64 built = g_get_monotonic_time ();
  guint64 sum = 0;
  for (guint i = 0; i < 1000000; i++)
    sum += sp_topology_route (t, i % 16384, i * 7919u % 16384, links);
  double ns = (double) (g_get_monotonic_time () - built) * 1e-3;
  g_test_message ("%u links in %.1f ms; a route in %.0f ns, %.2f links", sp_topology_n_links (t),
                  (double) (built - start) * 1e-3, ns, (double) sum * 1e-6);
  g_assert_cmpuint (sp_topology_n_gpus (t), ==, 16384);
  g_assert_cmpuint (sp_topology_n_links (t), ==, 2048 * 32 + 2 * 16384 + 2 * 1024 * 16);
  g_assert_cmpint (built - start, <, G_USEC_PER_SEC);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/topology/switch-flat", test_switch_flat);
  g_test_add_func ("/topology/nics", test_nics);
  g_test_add_func ("/topology/mesh", test_mesh);
  g_test_add_func ("/topology/pcie", test_pcie);
  g_test_add_func ("/topology/pairs", test_pairs);
  g_test_add_func ("/topology/leaf-spine", test_leaf_spine);
  g_test_add_func ("/topology/rails", test_rails);
  g_test_add_func ("/topology/torus", test_torus);
  g_test_add_func ("/topology/dragonfly", test_dragonfly);
  g_test_add_func ("/topology/random-routes", test_random_routes);
  g_test_add_func ("/topology/names", test_names);
  g_test_add_func ("/topology/reroute", test_reroute);
  g_test_add_func ("/topology/cut-off", test_cut_off);
  g_test_add_func ("/topology/random-failures", test_random_failures);
  g_test_add_func ("/topology/slow-link", test_slow_link);
  g_test_add_func ("/topology/refused", test_refused);
  g_test_add_func ("/topology/large", test_large);
  return g_test_run ();
}
