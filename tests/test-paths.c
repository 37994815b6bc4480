/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/paths.h"
#include "tests/random-groups.h"

/*
 * Rates of groups from the graph, where one part of the ranks stands for all that repeat, against all ranks: every
 * instance of a group as the program itself enumerates them, laid on the links one by one.
 */

#define DRAWS 400
#define TOLERANCE 1e-9

typedef struct {
  const SpTopology *topology;
  const SpProgram *program;
  SpGroupId group;
  SpLoads *loads, *one;
} Reference;

static gint32
group_size (const Reference *r)
{
  return r->program->groups[r->group].size;
}

/* In ret_ranks by place, if `rank` is the one at place 0 of its instance. */
static gboolean
instance_of (const Reference *r, gint32 rank, gint32 *ret_ranks)
{
  if (sp_program_member (r->program, r->group, rank, 0) != rank)
    return FALSE;
  for (gint32 place = 0; place < group_size (r); place++)
    ret_ranks[place] = sp_program_member (r->program, r->group, rank, place);
  return TRUE;
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

/* Seconds for each byte of payload, all instances at once [0] and the quickest by itself [1]. */
static void
weigh (Reference *r, SpAlgorithm algorithm, double *ret_s)
{
  g_autofree gint32 *ranks = g_new (gint32, group_size (r));

  ret_s[1] = INFINITY;
  sp_loads_reset (r->loads);
  for (gint32 rank = 0; rank < r->program->world; rank++) {
    if (!instance_of (r, rank, ranks))
      continue;
    sp_loads_reset (r->one);
    g_assert_true (sp_loads_add (r->one, algorithm, ranks, (guint) group_size (r), NULL));
    g_assert_true (sp_loads_add (r->loads, algorithm, ranks, (guint) group_size (r), NULL));
    ret_s[1] = MIN (ret_s[1], sp_loads_seconds_per_byte (r->one));
  }
  ret_s[0] = sp_loads_seconds_per_byte (r->loads);
}

static void
set_collectives (Reference *r, const SpCluster *cluster, SpPath *ret)
{
  double ring[2], tree[2], nvls[2], pairwise[2], wire = (double) (group_size (r) - 1) / group_size (r);

  weigh (r, SP_ALGORITHM_RING, ring);
  weigh (r, SP_ALGORITHM_TREE, tree);
  weigh (r, SP_ALGORITHM_PAIRWISE, pairwise);
  for (guint i = 0; i < 2; i++) {
    ret[i].ring_bytes_per_s = wire / ring[i];
    ret[i].tree_bytes_per_s = 2 / tree[i];
    ret[i].pairwise_s_per_byte = pairwise[i];
  }
  if (cluster->node != SP_NODE_SWITCH || !cluster->device->nvls)
    return;
  weigh (r, SP_ALGORITHM_NVLS_TREE, nvls);
  for (guint i = 0; i < 2; i++)
    sp_path_set_nvls (&ret[i], cluster, ret[i].network ? nvls[i] : 0);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* Seconds for each byte and latency of the slowest hop [0] and the quickest [1], inside nodes and between them. */
typedef struct {
  double s[2], latency_s[2];
  gboolean any;
} Hops;

static void
note_hop (const Reference *r, gint32 from, gint32 to, Hops *hops)
{
  guint32 links[SP_TOPOLOGY_MAX_ROUTE];
  guint n = sp_topology_route (r->topology, (guint32) from, (guint32) to, links);
  Hops *h = &hops[!sp_topology_same_node (r->topology, (guint32) from, (guint32) to)];
  double fair = 0, alone = 0, latency = sp_topology_route_latency (r->topology, (guint32) from, (guint32) to);

  for (guint i = 0; i < n; i++) {
    fair = MAX (fair, sp_loads_of_link (r->loads, links[i]) / sp_topology_capacity (r->topology, links[i]));
    alone = MAX (alone, 1 / sp_topology_capacity (r->topology, links[i]));
  }
  h->s[0] = MAX (h->s[0], fair);
  h->s[1] = h->any ? MIN (h->s[1], alone) : alone;
  h->latency_s[0] = MAX (h->latency_s[0], latency);
  h->latency_s[1] = h->any ? MIN (h->latency_s[1], latency) : latency;
  h->any = TRUE;
}

/* Every place to the next one, and every one to the one before. */
static void
set_messages (Reference *r, SpPath *ret)
{
  gint32 size = group_size (r);
  g_autofree gint32 *ranks = g_new (gint32, size);
  Hops hops[2] = { 0 };

  for (gint32 step = 1; step <= size - 1; step += MAX (1, size - 2)) {
    sp_loads_reset (r->loads);
    for (guint notes = 0; notes < 2; notes++)
      for (gint32 rank = 0; rank < r->program->world; rank++) {
        if (!instance_of (r, rank, ranks))
          continue;
        for (gint32 place = 0; place < size; place++)
          if (notes)
            note_hop (r, ranks[place], ranks[(place + step) % size], hops);
          else
            sp_loads_add_message (r->loads, ranks[place], ranks[(place + step) % size], NULL);
      }
  }
  ret[0].send_bytes_per_s = 1 / MAX (hops[0].s[0], hops[1].s[0]);
  ret[1].send_bytes_per_s = 1 / hops[hops[1].any].s[1];
  ret[0].hop_latency_s = MAX (hops[0].latency_s[0], hops[1].latency_s[0]);
  ret[1].hop_latency_s = hops[hops[1].any].latency_s[1];
  for (guint i = 0; i < 2 && hops[0].any; i++) {
    ret[i].near_bytes_per_s = 1 / hops[0].s[i];
    ret[i].link_hop_latency_s = hops[0].latency_s[i];
  }
}

/* --- shape -------------------------------------------------------------------------------------------------------- */

static void
set_shape (Reference *r, gint32 node, SpPath *ret)
{
  gint32 size = group_size (r), n_nodes = (r->program->world + node - 1) / node;
  g_autofree gint32 *ranks = g_new (gint32, size);
  SpPath shape = { .size = size, .per_node = size };

  for (gint32 rank = 0; rank < r->program->world; rank++) {
    gint32 nodes = 0, crossings = 0;
    g_autofree gint32 *members = g_new0 (gint32, n_nodes);
    if (!instance_of (r, rank, ranks))
      continue;
    for (gint32 place = 0; place < size; place++) {
      nodes += members[ranks[place] / node]++ == 0;
      crossings += place > 0 && ranks[place] / node != ranks[place - 1] / node;
    }
    for (gint32 i = 0; i < n_nodes; i++)
      if (members[i] > 0)
        shape.per_node = MIN (shape.per_node, members[i]);
    shape.nodes = MAX (shape.nodes, nodes);
    shape.crossings = MAX (shape.crossings, crossings);
  }
  shape.network = shape.nodes > 1;
  ret[0] = ret[1] = shape;
}

/* --- the two ------------------------------------------------------------------------------------------------------ */

static void
compare (const SpPath *folded, const SpPath *whole, const char *which)
{
  const struct {
    const char *name;
    double folded, whole;
  } rows[] = {
    { "ring", folded->ring_bytes_per_s, whole->ring_bytes_per_s },
    { "tree", folded->tree_bytes_per_s, whole->tree_bytes_per_s },
    { "all-to-all", sp_path_pairwise (folded), whole->pairwise_s_per_byte },
    { "NVLS", folded->nvls_s_per_byte[0], whole->nvls_s_per_byte[0] },
    { "send", folded->send_bytes_per_s, whole->send_bytes_per_s },
    { "latency of a hop", folded->hop_latency_s, whole->hop_latency_s },
    { "near", whole->near_bytes_per_s > 0 ? folded->near_bytes_per_s : 0, whole->near_bytes_per_s },
    { "latency inside", whole->near_bytes_per_s > 0 ? folded->link_hop_latency_s : 0, whole->link_hop_latency_s },
    { "nodes", folded->nodes, whole->nodes },
    { "a node", folded->per_node, whole->per_node },
    { "crossings", folded->crossings, whole->crossings },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    if (!is_equal (rows[i].folded, rows[i].whole, TOLERANCE)) {
      g_test_message ("%s, %s: %.17g of a part, %.17g of all", rows[i].name, which, rows[i].folded, rows[i].whole);
      g_test_fail ();
    }
}

/* Leaves of any number of nodes, whole ones or not, and more nodes than the ranks need. */
static void
draw_fabric (GRand *rand, SpCluster *c)
{
  static const SpFabricKind fabrics[] = { SP_FABRIC_FLAT, SP_FABRIC_LEAF_SPINE, SP_FABRIC_RAILS };

  c->node = draw_int (rand, 0, 3) ? SP_NODE_SWITCH : SP_NODE_MESH;
  c->fabric = fabrics[draw_int (rand, 0, G_N_ELEMENTS (fabrics) - 1)];
  do
    c->nodes_per_leaf = draw_int (rand, 1, MIN (c->nodes, 8));
  while (draw_int (rand, 0, 3) && c->nodes % c->nodes_per_leaf != 0);
  c->spines = draw_int (rand, 1, 8);
  c->oversubscription.value = draw_between (rand, 1, 4);
  c->hop_latency_s.value = draw_between (rand, 1e-7, 1e-5);
  c->nodes += draw_int (rand, 0, 2);
  c->device->nvls = draw_int (rand, 0, 1);
}

/* Whether the group comes again in further parts of the ranks that are whole nodes, and whole leaves. */
static gboolean
repeats (const SpCluster *c, const SpProgram *program, SpGroupId id)
{
  const SpGroup *group = &program->groups[id];
  gint32 end = 1, part = c->gpus_per_node * (c->fabric == SP_FABRIC_FLAT ? 1 : c->nodes_per_leaf);

  for (guint i = 0; i < group->n_digits; i++)
    end = MAX (end, program->digits[group->digits[i]].size * program->digits[group->digits[i]].stride);
  gint32 both = MAX (end, part);
  return both % end == 0 && both % part == 0 && both < program->world && program->world % both == 0;
}

static void
compare_group (const SpCluster *c, const SpTopology *topology, const SpProgram *program, SpGroupId id)
{
  g_autoptr (SpLoads) loads = sp_loads_new (topology), one = sp_loads_new (topology);
  Reference r = { topology, program, id, loads, one };
  SpPath fair, alone, whole[2];

  set_shape (&r, c->gpus_per_node, whole);
  set_collectives (&r, c, whole);
  set_messages (&r, whole);
  g_assert_true (sp_path_set_from_graph (c, program, id, &fair, &alone));
  compare (&fair, &whole[0], "all at once");
  compare (&alone, &whole[1], "alone");
}

static void
test_folded (void)
{
  GRand *rand = draw_rand_new ();
  guint folded[SP_N_FABRIC_KINDS] = { 0 }, others = 0;

  for (guint i = 0; i < DRAWS && !g_test_failed (); i++) {
    SpTopologySpec spec;
    Groups g;
    draw_groups (rand, draw_int (rand, 0, 4) > 0, &g);
    SpCluster *c = &g.machine.cluster;
    draw_fabric (rand, c);
    sp_cluster_topology_spec (c, &spec);
    g_autoptr (SpTopology) topology = sp_topology_new (&spec, NULL);
    for (guint id = 1; id < SP_N_GROUPS && !g_test_failed (); id++) {
      if (g.program->groups[id].size == 1)
        continue;
      if (repeats (c, g.program, id))
        folded[c->fabric]++;
      else
        others++;
      compare_group (c, topology, g.program, id);
      if (g_test_failed ()) {
        g_test_message ("fabric %s, %d nodes a leaf, %d spines", sp_fabric_kind_name (c->fabric), c->nodes_per_leaf,
                        c->spines);
        describe_groups (&g, id);
      }
    }
    clear_groups (&g);
  }
  g_test_message ("folded: %u flat, %u leaf-spine, %u rails; not: %u", folded[SP_FABRIC_FLAT],
                  folded[SP_FABRIC_LEAF_SPINE], folded[SP_FABRIC_RAILS], others);
  g_assert_true (g_test_failed () || (MIN (MIN (folded[SP_FABRIC_FLAT], folded[SP_FABRIC_LEAF_SPINE]),
                                           folded[SP_FABRIC_RAILS]) > DRAWS / 20 &&
                                      others > DRAWS / 20));
  g_rand_free (rand);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/paths/folded", test_folded);
  return g_test_run ();
}
