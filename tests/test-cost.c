/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/cost.h"
#include "models/layout.h"
#include "tests/random-machines.h"

/* Single ops on two nodes of eight GPUs, against what they cost by hand; no jumps where one protocol takes over. */

/* --- collectives -------------------------------------------------------------------------------------------------- */

/* Two nodes of eight GPUs. Groups: 8 of a node, 2 and 16 over both, and the ends. */
static void
set_paths (SpCost *cost, double latency_s)
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
                      .link_bytes_per_s = { 200e9 } };
  SpCluster cluster = { .device = &device,
                        .nodes = 2,
                        .gpus_per_node = 8,
                        .link_efficiency = { 0.5 },
                        .link_latency_s = { latency_s },
                        .nics = { 4 },
                        .nic_bytes_per_s = { 25e9 },
                        .network_efficiency = { 0.8 },
                        .network_latency_s = { 4 * latency_s } };
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

  set_paths (&cost, 0);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    double ms = 1e3 * message_seconds (&cost, cases[i].kind, cases[i].group, 1000000000);
    g_test_message ("%s over %s: %.6f ms", sp_op_name (cases[i].kind), sp_group_name (cases[i].group), ms);
    g_assert_true (is_equal (ms, cases[i].ms, 1e-12));
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

  set_paths (&cost, 5e-6);
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
    double use = sp_cost_gemm_use (&cost, m, n, k);
    if (!(use > 0 && use <= 1))
      g_error ("%d x %d x %d on %d SMs: %.17g", m, n, k, cost.sms, use);
  }
  cost.sms = 100;
  g_assert_cmpfloat (sp_cost_gemm_use (&cost, 128 * 100, 256 * 100, 65536), >, 0.99);
  g_assert_cmpfloat (sp_cost_gemm_use (&cost, 128 * 100, 256 * 100 + 1, 65536), >, 0.98);
  g_rand_free (rand);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/cost/collectives", test_collectives);
  g_test_add_func ("/cost/continuity", test_continuity);
  g_test_add_func ("/cost/gemm-use", test_gemm_use);
  return g_test_run ();
}
