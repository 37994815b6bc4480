/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "models/estimate/paths.h"
#include "models/layout.h"
#include "tests/random-groups.h"

/* Single ops on two nodes of eight GPUs, against what they cost by hand; no jumps where one protocol takes over. */

/* --- collectives -------------------------------------------------------------------------------------------------- */

typedef enum { PLAIN, NVLS, LEAF_SPINE, SIMPLE } Network;

/* Two nodes of eight GPUs. Groups: 8 of a node, 2 and 16 over both, and the ends. LEAF_SPINE: each node under a leaf of
 * its own with one uplink for four times what it carries. */
static void
set_paths (SpCost *cost, Network network, double latency_s)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  SpFramework framework = { .name = (char *) "test", .fused_attention = TRUE };
  SpDevice device = { .peak_bf16_flops_per_s = { 1e14 },
                      .memory_bytes_per_s = { 1e12 },
                      .memory_efficiency = { 1 },
                      .gemm_efficiency = { 1 },
                      .attention_efficiency = { 1 },
                      .linear_efficiency = { 1 },
                      .attention_backward_efficiency = { 1 },
                      .sms = { 100 },
                      .link_bytes_per_s = { 200e9 },
                      .nvls = network == NVLS };
  SpCluster cluster = { .device = &device,
                        .nodes = 2,
                        .gpus_per_node = 8,
                        .link_efficiency = { 0.5 },
                        .link_latency_s = { latency_s },
                        .nics = { 4 },
                        .nic_bytes_per_s = { 25e9 },
                        .network_efficiency = { 0.8 },
                        .network_latency_s = { 4 * latency_s },
                        .simple_network = network == SIMPLE,
                        .fabric = network == LEAF_SPINE ? SP_FABRIC_LEAF_SPINE : SP_FABRIC_FLAT,
                        .nodes_per_leaf = 1,
                        .spines = 1,
                        .oversubscription = { 4 } };
  SpLayout layout = SP_LAYOUT_DEFAULT;

  arch->layers = 2;
  arch->heads = arch->kv_heads = 8;
  layout.ulysses = 8;
  layout.ring = 2;
  sp_layout_write_ranks (&layout, arch, program);
  sp_cost_init (cost, &cluster, &framework);
  sp_cost_set_paths (cost, &cluster, program);
}

static double
message_seconds (const SpCost *cost, SpOpKind kind, SpGroupId group, gint64 bytes)
{
  SpOp op = { .kind = kind, .group = group, .bytes = bytes };

  return sp_cost_op (cost, &op);
}

/* By hand, without latency: links 200 x 0.5 = 100 GB/s; a GPU's share of the network 4 x 25 x 0.8 / 8 = 10 GB/s. 1 GB:
 *   gather over the 8 of a node     7 / 8 at 100                             8.75 ms, all-reduce twice that
 *   over 16                         15 / 16 at min (100, 8 x 10) = 80       11.71875 ms
 *   over 2 in two nodes             1 / 2 at 10                             50 ms
 *   all-to-all over 8               7 / 8 at 100                             8.75 ms
 *   over 16                         inside 7 / 16 at 100, outside 8 / 16 at 10: the longer, 50 ms
 *   send in a node                  10 ms; between nodes 8 GPUs share 4 x 20 = 80 GB/s, 10 each: 100 ms */
static void
test_collectives (void)
{
  static const struct {
    SpOpKind kind;
    SpGroupId group;
    double ms;
  } cases[] = {
    { SP_OP_ALL_GATHER, SP_GROUP_ULYSSES, 8.75 },
    { SP_OP_REDUCE_SCATTER, SP_GROUP_ULYSSES, 8.75 },
    { SP_OP_ALL_REDUCE, SP_GROUP_ULYSSES, 17.5 },
    { SP_OP_ALL_GATHER, SP_GROUP_SEQUENCE, 11.71875 },
    { SP_OP_ALL_REDUCE, SP_GROUP_SEQUENCE, 23.4375 },
    { SP_OP_ALL_GATHER, SP_GROUP_RING, 50 },
    { SP_OP_ALL_TO_ALL, SP_GROUP_ULYSSES, 8.75 },
    { SP_OP_ALL_TO_ALL, SP_GROUP_SEQUENCE, 50 },
    { SP_OP_SEND, SP_GROUP_ULYSSES, 10 },
    { SP_OP_SEND, SP_GROUP_RING, 100 },
    { SP_OP_SEND_RECEIVE, SP_GROUP_RING, 100 },
    { SP_OP_RECEIVE, SP_GROUP_RING, 0 },
    { SP_OP_ALL_REDUCE, SP_GROUP_TENSOR, 0 },
  };
  SpCost cost;

  set_paths (&cost, PLAIN, 0);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    double ms = 1e3 * message_seconds (&cost, cases[i].kind, cases[i].group, 1000000000);
    g_test_message ("%s over %s: %.6f ms", sp_op_name (cases[i].kind), sp_group_name (cases[i].group), ms);
    g_assert_true (is_equal (ms, cases[i].ms, 1e-12));
  }
}

/* In several calls every byte is paid for once, and what is fixed each time; whether or not the calls divide the bytes. */
static void
test_calls (void)
{
  static const SpOpKind kinds[] = { SP_OP_ALL_GATHER, SP_OP_REDUCE_SCATTER, SP_OP_ALL_REDUCE };
  SpCost quick, slow;

  set_paths (&quick, PLAIN, 0);
  set_paths (&slow, PLAIN, 1e-6);
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    for (gint32 calls = 2; calls < 12; calls++) {
      double fixed_s, one_fixed_s;
      SpOp op = { .kind = kinds[i], .group = SP_GROUP_ULYSSES, .bytes = 113160, .batch = calls };
      double once_s = message_seconds (&quick, kinds[i], SP_GROUP_ULYSSES, op.bytes);
      g_assert_true (is_equal (sp_cost_op (&quick, &op), once_s, 1e-12));
      sp_cost_op_parts (&slow, &op, &fixed_s, NULL);
      SpOp one = { .kind = kinds[i], .group = SP_GROUP_ULYSSES, .bytes = op.bytes / calls };
      sp_cost_op_parts (&slow, &one, &one_fixed_s, NULL);
      g_assert_true (is_equal (fixed_s, calls * one_fixed_s, 1e-12));
    }
}

/* A larger message takes longer, but in no larger proportion: so there is no jump where one protocol or algorithm
 * takes over from another. And in the limit of bandwidth an all-reduce is two gathers. */
static void
test_continuity (void)
{
  static const SpOpKind kinds[] = { SP_OP_ALL_GATHER, SP_OP_REDUCE_SCATTER, SP_OP_ALL_REDUCE,
                                    SP_OP_ALL_TO_ALL, SP_OP_SEND,           SP_OP_SEND_RECEIVE };
  static const SpGroupId groups[] = { SP_GROUP_ULYSSES, SP_GROUP_RING, SP_GROUP_SEQUENCE };
  SpCost cost;

  set_paths (&cost, PLAIN, 5e-6);
  for (guint k = 0; k < G_N_ELEMENTS (kinds); k++)
    for (guint g = 0; g < G_N_ELEMENTS (groups); g++)
      for (gint64 bytes = 1024; bytes < G_GINT64_CONSTANT (1) << 32;) {
        gint64 more = bytes + MAX (1, bytes / 200);
        double ratio =
            message_seconds (&cost, kinds[k], groups[g], more) / message_seconds (&cost, kinds[k], groups[g], bytes);
        if (!(ratio >= 1 && ratio <= (double) more / (double) bytes * (1 + 1e-9)))
          g_error ("%s over %s: from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT " bytes takes %.9g times as long",
                   sp_op_name (kinds[k]), sp_group_name (groups[g]), bytes, more, ratio);
        bytes = more;
      }
  for (guint g = 0; g < G_N_ELEMENTS (groups); g++) {
    const gint64 bytes = G_GINT64_CONSTANT (1) << 34;
    g_assert_true (is_equal (message_seconds (&cost, SP_OP_ALL_REDUCE, groups[g], bytes),
                             2 * message_seconds (&cost, SP_OP_ALL_GATHER, groups[g], bytes), 1e-3));
  }
}

/* As above with in-switch reduction at 0.85 x 100 GB/s, 1 GB: all-reduce over 8 of a node 1.125 / 85 = 13.235 ms for
 * 17.5; over 16, ports as before, but the two nodes' trees send 2 GB over 8 x 10 GB/s: 25 ms, more than the ring's
 * 23.4375. Gathers stay rings. Latency of 1 us a ring step inside: the switch's is 25 / 3.4 of it. */
static void
test_nvls (void)
{
  SpCost cost;
  SpAlgorithm algorithm;
  double fixed_s;

  set_paths (&cost, NVLS, 1e-6);
  SpOp op = { .kind = SP_OP_ALL_REDUCE, .group = SP_GROUP_ULYSSES, .bytes = 1000000000 };
  double seconds = sp_cost_op_parts (&cost, &op, &fixed_s, &algorithm);
  g_assert_cmpint (algorithm, ==, SP_ALGORITHM_NVLS);
  g_assert_true (is_equal (fixed_s, 25e-6 / 3.4, 1e-12));
  g_assert_true (is_equal (seconds - fixed_s, 1.125 / 85, 1e-12));
  op.group = SP_GROUP_SEQUENCE;
  seconds = sp_cost_op_parts (&cost, &op, &fixed_s, &algorithm);
  g_assert_cmpint (algorithm, ==, SP_ALGORITHM_RING_ALL_REDUCE);
  g_assert_true (is_equal (seconds - fixed_s, 23.4375e-3, 1e-12));
  op = (SpOp){ .kind = SP_OP_ALL_GATHER, .group = SP_GROUP_ULYSSES, .bytes = 1000000000 };
  g_assert_true (is_equal (sp_cost_op_parts (&cost, &op, &fixed_s, &algorithm) - fixed_s, 8.75e-3, 1e-12));
  g_assert_cmpint (algorithm, ==, SP_ALGORITHM_RING);
  set_paths (&cost, PLAIN, 1e-6);
  op.kind = SP_OP_ALL_REDUCE;
  sp_cost_op_parts (&cost, &op, NULL, &algorithm);
  g_assert_cmpint (algorithm, ==, SP_ALGORITHM_RING_ALL_REDUCE);
}

/* Each node's 4 adapters of 20 GB/s share an uplink of 80 / 4 = 20. 1 GB, with siblings and alone:
 *   gather over 16       15 / 16 at 20: 46.875 ms, both (there is one group)
 *   gather over 2        8 groups of 1 / 2 GB at 20: 200 ms; one alone 25 ms
 *   send between nodes   8 messages at 20: 400 ms; one 50 ms.  Inside: 10 ms
 *   all-to-all over 16   8 GPUs x 8 / 16 GB at 20: 200 ms, both
 *   gather over 8 of a node: as ever 8.75 ms */
static void
test_leaf_spine (void)
{
  static const struct {
    SpOpKind kind;
    SpGroupId group;
    double ms, alone_ms;
  } cases[] = {
    { SP_OP_ALL_GATHER, SP_GROUP_SEQUENCE, 46.875, 46.875 },
    { SP_OP_ALL_GATHER, SP_GROUP_RING, 200, 25 },
    { SP_OP_SEND, SP_GROUP_RING, 400, 50 },
    { SP_OP_ALL_TO_ALL, SP_GROUP_SEQUENCE, 200, 200 },
    { SP_OP_ALL_GATHER, SP_GROUP_ULYSSES, 8.75, 8.75 },
  };
  SpCost cost;

  set_paths (&cost, LEAF_SPINE, 0);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    SpOp op = { .kind = cases[i].kind, .group = cases[i].group, .bytes = 1000000000 };
    double ms = 1e3 * sp_cost_op (&cost, &op), alone_ms = 1e3 * sp_cost_op_alone (&cost, &op, NULL, NULL);
    g_test_message ("%s over %s: %.6f ms, alone %.6f ms", sp_op_name (op.kind), sp_group_name (op.group), ms, alone_ms);
    g_assert_true (is_equal (ms, cases[i].ms, 1e-12) && is_equal (alone_ms, cases[i].alone_ms, 1e-12));
    g_assert_cmpfloat (sp_cost_alone_ratio (&cost, op.group), <=, alone_ms / ms * (1 + 1e-12));
  }
  g_assert_true (is_equal (sp_cost_alone_ratio (&cost, SP_GROUP_RING), 0.125, 1e-12));
  SpOp send = { .kind = SP_OP_SEND, .group = SP_GROUP_ULYSSES, .bytes = 1000000000 };
  g_assert_true (is_equal (sp_cost_message (&cost, &send, TRUE, FALSE, NULL), 10e-3, 1e-12));
}

/* --- against the graph -------------------------------------------------------------------------------------------- */

/* Seconds for each byte of an all-to-all, without launch and latency. */
static double
pairwise_of (const SpPath *path)
{
  double inside = (path->per_node - 1.0) / path->size / path->link_bytes_per_s;
  double outside = path->network ? (path->size - path->per_node) / path->network_bytes_per_s / path->size : 0;

  return path->pairwise_s_per_byte != 0 ? sp_path_pairwise (path) : MAX (inside, outside);
}

static void
compare_paths (const SpPath *closed, const SpPath *graph, gboolean pair)
{
  const struct {
    const char *name;
    double closed, graph;
    gboolean may_be_slower; /* the closed form */
  } rows[] = {
    { "ring", closed->ring_bytes_per_s, graph->ring_bytes_per_s, pair },
    { "tree", closed->tree_bytes_per_s, graph->tree_bytes_per_s, TRUE },
    { "send", closed->send_bytes_per_s, graph->send_bytes_per_s, pair },
    { "near", closed->near_bytes_per_s, graph->near_bytes_per_s, FALSE },
    { "pairwise", 1 / pairwise_of (closed), 1 / pairwise_of (graph), pair },
    { "ring latency", 1 / (closed->ring_latency_link_s + closed->ring_latency_network_s),
      1 / (graph->ring_latency_link_s + graph->ring_latency_network_s), FALSE },
    { "hop latency", closed->hop_latency_s, graph->hop_latency_s, FALSE },
    { "nodes", closed->nodes, graph->nodes, FALSE },
    { "a node", closed->per_node, graph->per_node, FALSE },
    { "crossings", closed->crossings, graph->crossings, FALSE },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    if (is_equal (rows[i].closed, rows[i].graph, 1e-9) || (rows[i].may_be_slower && rows[i].closed < rows[i].graph))
      continue;
    g_test_message ("%s: closed form %.17g, graph %.17g", rows[i].name, rows[i].closed, rows[i].graph);
    g_test_fail ();
  }
}

/* On a switch node and a flat network the rates of rings, messages and all-to-alls with their siblings, and alone, are
 * those of the graph; so is where hops cross. Of the pipeline's ends, between which nothing else runs, the closed form
 * counts all GPUs. */
static void
test_graph (void)
{
  GRand *rand = draw_rand_new ();
  guint crossing = 0;

  for (guint i = 0; i < 1500 && !g_test_failed (); i++) {
    SpFramework framework = { .name = (char *) "test" };
    SpCost cost;
    Groups g;
    draw_groups (rand, TRUE, &g);
    sp_cost_init (&cost, &g.machine.cluster, &framework);
    sp_cost_set_paths (&cost, &g.machine.cluster, g.program);
    for (guint id = 1; id < SP_N_GROUPS && !g_test_failed (); id++) {
      SpPath fair, alone;
      if (g.program->groups[id].size == 1)
        continue;
      g_assert_true (sp_path_set_from_graph (&g.machine.cluster, g.program, id, &fair, &alone));
      gboolean pair = id == SP_GROUP_TIE || id == SP_GROUP_MIRROR;
      crossing += fair.network;
      compare_paths (&cost.paths[id], &fair, pair);
      compare_paths (&cost.alone[id], &alone, pair);
      g_assert_true (is_equal (sp_cost_alone_ratio (&cost, id), fair.alone_ratio, 1e-9) || pair ||
                     fair.alone_ratio > cost.paths[id].alone_ratio);
      if (g_test_failed ())
        describe_groups (&g, id);
    }
    clear_groups (&g);
  }
  g_assert_cmpuint (crossing, >, 100);
  g_rand_free (rand);
}

/* A tile covers at least what it computes, a wave is at least as wide as its tiles: a use above 0 and at most 1; a
 * large GEMM of whole tiles comes near. */
static void
test_gemm_use (void)
{
  GRand *rand = draw_rand_new ();
  SpCost cost = { .sms = 100 };

  for (guint i = 0; i < 20000; i++) {
    gint32 m = (gint32) draw_between (rand, 1, 2e6), n = (gint32) draw_between (rand, 1, 3e5),
           k = (gint32) draw_between (rand, 1, 2e6);
    cost.sms = draw_int (rand, 1, 200);
    double use = sp_cost_gemm_use (&cost, 1, m, n, k);
    if (!(use > 0 && use <= 1))
      g_error ("%d x %d x %d on %d SMs: %.17g", m, n, k, cost.sms, use);
  }
  cost.sms = 100;
  g_assert_cmpfloat (sp_cost_gemm_use (&cost, 1, 128 * 100, 256 * 100, 65536), >, 0.99);
  g_assert_cmpfloat (sp_cost_gemm_use (&cost, 1, 128 * 100, 256 * 100 + 1, 65536), >, 0.98);
  g_rand_free (rand);
}

/* --- of a profile ------------------------------------------------------------------------------------------------- */

/* Two GPUs of one node, and the profile that is in the text. */
static SpProfile *
set_pair (SpCost *cost, const char *text)
{
  SpDevice device = { .peak_bf16_flops_per_s = { 1e14 },
                      .memory_bytes_per_s = { 1e12 },
                      .memory_efficiency = { 1 },
                      .gemm_efficiency = { 1 },
                      .overlap_slowdown = { 0.05 },
                      .sms = { 100 },
                      .link_bytes_per_s = { 200e9 } };
  SpFramework framework = { .name = (char *) "test", .fused_attention = TRUE };
  SpLayout layout = SP_LAYOUT_DEFAULT;
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;
  SpProfile *profile = sp_profile_parse ("p.ini", text, strlen (text), &error);
  g_assert_no_error (error);
  SpCluster cluster = { .device = &device,
                        .nodes = 1,
                        .gpus_per_node = 2,
                        .link_efficiency = { 0.5 },
                        .host_bytes_per_s = { 1e10 },
                        .profile = profile };

  arch->layers = arch->heads = arch->kv_heads = 2;
  layout.ulysses = 2;
  sp_layout_write_ranks (&layout, arch, program);
  sp_cost_init (cost, &cluster, &framework);
  sp_cost_set_paths (cost, &cluster, program);
  return profile;
}

/* A curve of an all-gather alone; and what it takes in a step: two hops more, its own, longer beside kernels, and longer
 * still beside the optimizer's, which move data, and for which it waits; a transfer that was not timed so takes what the others do in the mean. A
 * kernel slows by what its kind was measured to, a product by its waves (of 100 SMs: 5 of 500 tiles, and part of one), or
 * by which of the two it is. */
static void
test_profile (void)
{
  static const char text[] =
      "[profile]\nname = p\ncard = c\n"
      "[all-gather.2x1]\nbegin-1 = 1024 B\nend-1 = 1 GiB\nlatency-1 = 10 us\ngrowth-1 = 0\nrate-1 = 100 GB/s\n"
      "[beside.2x1.all-gather]\nwait = 80 us\nfactor = 1.2\n[beside.2x1.send-receive]\nwait = 80 us\nfactor = 1.4\n"
      "[beside.2x1.all-gather-copy]\nwait = 50 us\nfactor = 1.9\n"
      "[beside.2x1.reduce-scatter-copy]\nwait = 50 us\nfactor = 1.8\n"
      "[beside.2x1.reduce-scatter-adam]\nwait = 20 us\nfactor = 1.6\n"
      "[slowdown.2x1.all-gather]\nslowdown = 0.2\n[slowdown.2x1.all-reduce]\nslowdown = 0.3\n"
      "[slowdown.2x1.all-gather-copy]\nslowdown = 0.6\n[slowdown.2x1.norm-bwd]\nslowdown = 0.7\n"
      "[slowdown.2x1.gemm]\nslowdown = 0.1\nwave = 0.8\n"
      "[launch.hop]\ntime = 4 us\n[launch.2x1.hop-all-gather]\ntime = 3 us\n"
      "[send-receive.2x1]\nbegin-1 = 1024 B\nend-1 = 1 GiB\nlatency-1 = 10 us\ngrowth-1 = 0\nrate-1 = 100 GB/s\n";
  SpCost cost;
  g_autoptr (SpProfile) profile = set_pair (&cost, text);
  SpOp gather = { .kind = SP_OP_ALL_GATHER, .group = SP_GROUP_ULYSSES, .bytes = 1000000 };
  double fixed_s = 0, all_s = sp_cost_op_parts (&cost, &gather, &fixed_s, NULL);
  g_assert_cmpfloat_with_epsilon (all_s, 10e-6 + 2 * 3e-6 + 1e6 / 100e9, 1e-12);
  g_assert_cmpfloat_with_epsilon (fixed_s, 10e-6 + 2 * 3e-6, 1e-12);
  const SpOp kernels[] = { { .kind = SP_OP_GEMM, .m = 128 * 25, .n = 256 * 20, .k = 512 },
                           { .kind = SP_OP_GEMM, .m = 128, .n = 256, .k = 512 },
                           { .kind = SP_OP_NORM_BWD },
                           { .kind = SP_OP_SCORES },
                           { .kind = SP_OP_ADAM } };
  const double slower[] = { 0.1 + 0.8 / 5, 0.1 + 0.8, 0.7, 0.25, 0.6 };
  for (guint i = 0; i < G_N_ELEMENTS (kernels); i++)
    g_assert_cmpfloat_with_epsilon (sp_cost_slowdown (&cost, &kernels[i]), slower[i], 1e-12);
  g_assert_cmpfloat (sp_cost_stretch (&cost, &gather), ==, 0);
  gather.flags = SP_OP_ASYNC;
  g_assert_cmpfloat_with_epsilon (sp_cost_stretch (&cost, &gather), 0.2, 1e-12);
  gather.flags |= SP_OP_AFTER_OPTIMIZER;
  g_assert_cmpfloat_with_epsilon (sp_cost_stretch (&cost, &gather), (0.9 * all_s + 50e-6) / (all_s - fixed_s), 1e-9);
  SpOp send = { .kind = SP_OP_SEND, .group = SP_GROUP_ULYSSES, .bytes = 1000000, .flags = SP_OP_ASYNC };
  g_assert_cmpfloat_with_epsilon (sp_cost_op (&cost, &send), 10e-6 + 2 * 4e-6 + 1e6 / 100e9, 1e-12);
  g_assert_cmpfloat_with_epsilon (sp_cost_stretch (&cost, &send), 0.4, 1e-12);
  SpOp scatter = { .kind = SP_OP_REDUCE_SCATTER, .group = SP_GROUP_ULYSSES, .bytes = 1000000, .flags = SP_OP_ASYNC };
  g_assert_cmpfloat_with_epsilon (sp_cost_stretch (&cost, &scatter), 0.3, 1e-12);
  scatter.flags |= SP_OP_AFTER_OPTIMIZER;
  all_s = sp_cost_op_parts (&cost, &scatter, &fixed_s, NULL);
  g_assert_cmpfloat_with_epsilon (sp_cost_stretch (&cost, &scatter), (0.6 * all_s + 20e-6) / (all_s - fixed_s), 1e-9);
}

/* A send is as one way was timed, between kernels and beside them too, one of both ways at once as that was; with no curve
 * one way both are alike. */
static void
test_one_way (void)
{
  static const char both[] =
      "[profile]\nname = p\ncard = c\n[launch.2x1.hop-send-receive]\ntime = 2 us\n"
      "[beside.2x1.send-receive]\nwait = 0 us\nfactor = 1.5\n"
      "[send-receive.2x1]\nbegin-1 = 1024 B\nend-1 = 1 GiB\nlatency-1 = 10 us\ngrowth-1 = 0\nrate-1 = 100 GB/s\n";
  static const char one_way[] =
      "[launch.2x1.hop-one-way]\ntime = 1 us\n[beside.2x1.one-way]\nwait = 0 us\nfactor = 1.25\n"
      "[one-way.2x1]\nbegin-1 = 1024 B\nend-1 = 1 GiB\nlatency-1 = 5 us\ngrowth-1 = 0\nrate-1 = 200 GB/s\n";
  const double both_s = 10e-6 + 2 * 2e-6 + 1e6 / 100e9, one_way_s = 5e-6 + 2 * 1e-6 + 1e6 / 200e9;

  for (guint has = 0; has < 2; has++) {
    g_autofree char *text = g_strconcat (both, has ? one_way : "", NULL);
    SpCost cost;
    g_autoptr (SpProfile) profile = set_pair (&cost, text);
    SpOp send = { .kind = SP_OP_SEND, .group = SP_GROUP_ULYSSES, .bytes = 1000000, .flags = SP_OP_ASYNC };
    SpOp exchange = { .kind = SP_OP_SEND_RECEIVE, .group = SP_GROUP_ULYSSES, .bytes = 1000000, .flags = SP_OP_ASYNC };
    g_assert_cmpfloat_with_epsilon (sp_cost_op (&cost, &send), has ? one_way_s : both_s, 1e-12);
    g_assert_cmpfloat_with_epsilon (sp_cost_op (&cost, &exchange), both_s, 1e-12);
    for (guint near = 0; near < 2; near++) {
      g_assert_cmpfloat_with_epsilon (sp_cost_message (&cost, &send, near, FALSE, NULL), has ? one_way_s : both_s,
                                      1e-12);
      g_assert_cmpfloat_with_epsilon (sp_cost_message (&cost, &exchange, near, FALSE, NULL), both_s, 1e-12);
    }
    g_assert_cmpfloat_with_epsilon (sp_cost_stretch (&cost, &send), has ? 0.25 : 0.5, 1e-12);
    g_assert_cmpfloat_with_epsilon (sp_cost_stretch (&cost, &exchange), 0.5, 1e-12);
  }
}

/* A reduction in place is as it was timed so, one to elsewhere as that; hops and all else are the same. */
static void
test_in_place (void)
{
  static const char text[] =
      "[profile]\nname = p\ncard = c\n[launch.2x1.hop-all-reduce]\ntime = 2 us\n"
      "[all-reduce.2x1]\nbegin-1 = 1024 B\nend-1 = 1 GiB\nlatency-1 = 10 us\ngrowth-1 = 0\nrate-1 = 100 GB/s\n"
      "[all-reduce.2x1.in-place]\nbegin-1 = 1024 B\nend-1 = 1 GiB\nlatency-1 = 8 us\ngrowth-1 = 0\nrate-1 = 125 GB/s\n";
  SpCost cost;
  g_autoptr (SpProfile) profile = set_pair (&cost, text);
  SpOp reduce = { .kind = SP_OP_ALL_REDUCE, .group = SP_GROUP_ULYSSES, .bytes = 1000000, .in = { 5 }, .out = { 5 } };

  g_assert_cmpfloat_with_epsilon (sp_cost_op (&cost, &reduce), 8e-6 + 2 * 2e-6 + 1e6 / 125e9, 1e-12);
  reduce.out[0] = 6;
  g_assert_cmpfloat_with_epsilon (sp_cost_op (&cost, &reduce), 10e-6 + 2 * 2e-6 + 1e6 / 100e9, 1e-12);
}

/* --- what a file may leave out ------------------------------------------------------------------------------------- */

/* A vocabulary of 50257 is a row of the output forward, of the gradient backward; tokens are no row but transposed. */
static void
test_unaligned (void)
{
  static const struct {
    gint32 m, n, k;
    guint32 flags;
    gboolean slow;
  } rows[] = { { 1024, 50257, 1024, SP_OP_TRANS_B, TRUE },           { 1024, 1024, 50257, 0, TRUE },
               { 50257, 1024, 1024, SP_OP_TRANS_A, TRUE },           { 1024, 50304, 1024, SP_OP_TRANS_B, FALSE },
               { 1023, 4096, 1024, SP_OP_TRANS_B, FALSE },           { 4096, 1024, 1023, SP_OP_TRANS_A, FALSE },
               { 1024, 4104, 1024, SP_OP_TRANS_B | SP_OP_FP8, TRUE } };
  SpCost plain, cost;

  set_paths (&plain, PLAIN, 1e-6);
  cost = plain;
  cost.unaligned_time = 2.5;
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    const SpOp op = { .kind = SP_OP_GEMM,
                      .m = rows[i].m,
                      .n = rows[i].n,
                      .k = rows[i].k,
                      .batch = 1,
                      .flags = rows[i].flags,
                      .flops = 2.0 * rows[i].m * rows[i].n * rows[i].k };
    double launch = plain.kernel_launch_s[SP_OP_GEMM];
    double factor = (sp_cost_op (&cost, &op) - launch) / (sp_cost_op (&plain, &op) - launch);
    g_assert_cmpfloat (fabs (factor - (rows[i].slow ? 2.5 : 1)), <, 1e-9);
  }
}

/* Of each collective that a kernel waits for: not of what runs beside kernels, nor of gradients, nor of messages. */
static void
test_collective_wait (void)
{
  static const struct {
    SpOpKind kind;
    SpStream stream;
    guint32 flags;
    gboolean waits;
  } rows[] = { { SP_OP_ALL_REDUCE, SP_STREAM_TENSOR, 0, TRUE },
               { SP_OP_ALL_TO_ALL, SP_STREAM_TENSOR, 0, TRUE },
               { SP_OP_ALL_REDUCE, SP_STREAM_TENSOR, SP_OP_ASYNC, FALSE },
               { SP_OP_ALL_REDUCE, SP_STREAM_DATA, 0, FALSE },
               { SP_OP_SEND, SP_STREAM_TENSOR, 0, FALSE } };
  SpCost plain, cost;

  set_paths (&plain, PLAIN, 1e-6);
  cost = plain;
  cost.collective_wait_s = 1e-4;
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    const SpOp op = { .kind = rows[i].kind,
                      .group = SP_GROUP_ULYSSES,
                      .stream = rows[i].stream,
                      .flags = rows[i].flags,
                      .bytes = 1 << 20 };
    double fixed, before, expected = rows[i].waits ? 1e-4 : 0;
    double more = sp_cost_op_parts (&cost, &op, &fixed, NULL) - sp_cost_op_parts (&plain, &op, &before, NULL);
    g_assert_cmpfloat (fabs (more - expected), <, 1e-12);
    g_assert_cmpfloat (fabs (fixed - before - expected), <, 1e-12);
  }
}

/* A gather of 16 bytes over both nodes is 14 steps of 1 us and one of 4 us in the Simple protocol, where the network has no
 * other; less by the others, and in a node as ever. */
static void
test_simple_network (void)
{
  SpCost any, simple;

  set_paths (&any, PLAIN, 1e-6);
  set_paths (&simple, SIMPLE, 1e-6);
  double over_both = message_seconds (&simple, SP_OP_ALL_GATHER, SP_GROUP_SEQUENCE, 16);
  g_assert_true (is_equal (over_both, 18e-6, 1e-4));
  g_assert_cmpfloat (message_seconds (&any, SP_OP_ALL_GATHER, SP_GROUP_SEQUENCE, 16), <, 0.5 * over_both);
  g_assert_cmpfloat (message_seconds (&simple, SP_OP_ALL_GATHER, SP_GROUP_ULYSSES, 16), ==,
                     message_seconds (&any, SP_OP_ALL_GATHER, SP_GROUP_ULYSSES, 16));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/cost/collectives", test_collectives);
  g_test_add_func ("/cost/calls", test_calls);
  g_test_add_func ("/cost/continuity", test_continuity);
  g_test_add_func ("/cost/nvls", test_nvls);
  g_test_add_func ("/cost/simple-network", test_simple_network);
  g_test_add_func ("/cost/leaf-spine", test_leaf_spine);
  g_test_add_func ("/cost/graph", test_graph);
  g_test_add_func ("/cost/gemm-use", test_gemm_use);
  g_test_add_func ("/cost/unaligned", test_unaligned);
  g_test_add_func ("/cost/collective-wait", test_collective_wait);
  g_test_add_func ("/cost/profile", test_profile);
  g_test_add_func ("/cost/one-way", test_one_way);
  g_test_add_func ("/cost/in-place", test_in_place);
  return g_test_run ();
}
