/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/cost.h"

#include <math.h>

/* Kernels as a framework's code has them: in what order attention's blocks go out, of what head sizes they are, and how
 * many stand for one. */

#define SMS 100
#define PEAK 1e14
#define LAUNCH_S 1e-6
#define BYTES_PER_S 1e12

static void
set_cost (SpCost *cost, SpFramework *framework)
{
  SpDevice device = { .peak_bf16_flops_per_s = { PEAK },
                      .peak_fp32_flops_per_s = { PEAK },
                      .memory_bytes_per_s = { BYTES_PER_S },
                      .memory_efficiency = { 1 },
                      .gemm_efficiency = { 1 },
                      .attention_efficiency = { 1 },
                      .attention_backward_efficiency = { 1 },
                      .linear_efficiency = { 1 },
                      .launch_s = { LAUNCH_S },
                      .sms = { SMS } };
  SpCluster cluster = { .device = &device, .nodes = 1, .gpus_per_node = 1, .host_bytes_per_s = { 1e9 } };

  cluster.host_memory_bytes_per_s.value = 1e9;
  sp_cost_init (cost, &cluster, framework);
}

/* --- attention's blocks ------------------------------------------------------------------------------------------- */

#define ROWS 128 /* of a block */

static double
flagged_s (gboolean ascending, SpOpKind kind, guint32 flags, gint32 blocks, gint32 heads, double block_flops)
{
  SpFramework framework = { .name = (char *) "test", .fused_attention = TRUE, .attention_ascending = ascending };
  SpOp op = { .kind = (guint8) kind,
              .flags = flags,
              .m = blocks * ROWS,
              .n = blocks * ROWS,
              .k = 128,
              .heads = heads,
              .batch = 1,
              .flops = block_flops * blocks * heads };
  SpCost cost;

  set_cost (&cost, &framework);
  return sp_cost_op (&cost, &op) - LAUNCH_S;
}

static double
attention_s (gboolean ascending, SpOpKind kind, gboolean causal, gint32 blocks, gint32 heads, double block_flops)
{
  return flagged_s (ascending, kind, causal ? SP_OP_CAUSAL : 0, blocks, heads, block_flops);
}

/* Blocks of each head from the shortest on, to whichever of two an SM is free first. */
static double
given_out_s (gint32 blocks, gint32 heads, double block_flops)
{
  double free_s[2 * SMS] = { 0 }, slot_flops_per_s = PEAK / (2 * SMS), end_s = 0;

  for (gint32 b = 0; b < blocks * heads; b++) {
    guint first = 0;
    for (guint s = 1; s < 2 * SMS; s++)
      if (free_s[s] < free_s[first])
        first = s;
    free_s[first] += 2 * block_flops * (b % blocks + 0.5) / blocks / slot_flops_per_s;
    end_s = MAX (end_s, free_s[first]);
  }
  return end_s;
}

static void
test_ascending (void)
{
  for (guint i = 0; i < 60; i++) {
    gint32 blocks = 1 << g_test_rand_int_range (4, 11), least = (4 * SMS + blocks - 1) / blocks;
    gint32 heads = g_test_rand_int_range (least, least + 40);
    double ours = attention_s (TRUE, SP_OP_ATTENTION, TRUE, blocks, heads, 1e9);
    double given_out = given_out_s (blocks, heads, 1e9);
    g_test_message ("%d blocks of %d heads: %g s, given out %g s", blocks, heads, ours, given_out);
    g_assert_cmpfloat (given_out, >=, 0.97 * ours);
    g_assert_cmpfloat (given_out, <=, 1.02 * ours);
  }
}

/* Blocks that have an SM each end with the longest; two of an SM share it. */
static void
test_few (void)
{
  double longest_s = 2 * 1e9 / (PEAK / SMS);

  for (gint32 blocks = 16; blocks <= 64; blocks *= 2)
    g_assert_cmpfloat_with_epsilon (attention_s (TRUE, SP_OP_ATTENTION, TRUE, blocks, 1, 1e9), longest_s, 1e-9);
  g_assert_cmpfloat_with_epsilon (attention_s (TRUE, SP_OP_ATTENTION, TRUE, SMS, 1, 1e9), longest_s, 1e-9);
  g_assert_cmpfloat_with_epsilon (attention_s (TRUE, SP_OP_ATTENTION, TRUE, 2 * SMS, 1, 1e9), 2 * longest_s, 1e-9);
}

/* Without a mask, and in the backward, no block is longer than another. */
static void
test_even (void)
{
  const gint32 heads[] = { 1, 4, 7, 50 };

  for (guint i = 0; i < G_N_ELEMENTS (heads); i++) {
    double waves = heads[i] * 64 / (2.0 * SMS), wave_s = 1e9 / (PEAK / (2 * SMS));
    g_assert_cmpfloat_with_epsilon (attention_s (TRUE, SP_OP_ATTENTION, FALSE, 64, heads[i], 1e9),
                                    wave_s * (gint32) (waves + 0.999), 1e-9);
    g_assert_cmpfloat (attention_s (TRUE, SP_OP_ATTENTION_BWD, TRUE, 64, heads[i], 1e9), ==,
                       attention_s (FALSE, SP_OP_ATTENTION_BWD, TRUE, 64, heads[i], 1e9));
    g_assert_cmpfloat (attention_s (FALSE, SP_OP_ATTENTION, TRUE, 64, heads[i], 1e9), ==,
                       attention_s (FALSE, SP_OP_ATTENTION, FALSE, 64, heads[i], 1e9));
  }
}

/* A ring's step that no mask goes through: equal blocks, of all rows, or where that takes more waves of half of them with
 * twice the keys. FLOP tell which share of the pairs there is. */
static void
test_unmasked (void)
{
  const guint32 flags = SP_OP_CAUSAL | SP_OP_UNMASKED;
  double wave_s = 1e9 / (PEAK / (2 * SMS));

  for (guint i = 0; i < 60; i++) {
    gint32 blocks = 2 * g_test_rand_int_range (1, 300), heads = g_test_rand_int_range (1, 30);
    double whole_flops = 4.0 * ROWS * blocks * ROWS * 128;
    double waves = ceil (blocks * heads / (2.0 * SMS)), half_waves = ceil (blocks / 2 * heads / (2.0 * SMS));
    double contiguous = flagged_s (TRUE, SP_OP_ATTENTION, flags, blocks, heads, whole_flops);
    double zigzag = flagged_s (TRUE, SP_OP_ATTENTION, flags, blocks, heads, whole_flops / 2);
    g_test_message ("%d blocks of %d heads: contiguous %g s, zigzag %g s", blocks, heads, contiguous, zigzag);
    g_assert_cmpfloat_with_epsilon (contiguous, waves * wave_s * whole_flops / 1e9, 1e-9 * contiguous);
    g_assert_cmpfloat_with_epsilon (zigzag, MAX (waves / 2, half_waves) * wave_s * whole_flops / 1e9, 1e-9 * zigzag);
    g_assert_cmpfloat (flagged_s (TRUE, SP_OP_ATTENTION_BWD, flags, blocks, heads, 1e9), ==,
                       attention_s (TRUE, SP_OP_ATTENTION_BWD, TRUE, blocks, heads, 1e9));
  }
}

/* A head of 96 takes as long as one of 128, of a power of two no longer than without. */
static void
test_padded (void)
{
  const gint32 sizes[][2] = { { 96, 128 }, { 64, 64 }, { 80, 128 }, { 192, 256 }, { 1, 1 } };

  for (guint i = 0; i < G_N_ELEMENTS (sizes); i++) {
    SpFramework exact = { .name = (char *) "test", .fused_attention = TRUE }, padded = exact;
    SpOp op = {
      .kind = SP_OP_ATTENTION, .m = 4096, .n = 4096, .k = sizes[i][0], .heads = 50, .batch = 1, .flops = 1e12
    };
    SpCost cost;
    padded.attention_padded = TRUE;
    set_cost (&cost, &exact);
    double exact_s = sp_cost_op (&cost, &op) - LAUNCH_S;
    set_cost (&cost, &padded);
    double ratio = sizes[i][1] / (double) sizes[i][0];
    g_assert_cmpfloat_with_epsilon (sp_cost_op (&cost, &op) - LAUNCH_S, ratio * exact_s, 1e-9);
    op.kind = SP_OP_COPY;
    op.flops = 0;
    g_assert_cmpfloat (sp_cost_op (&cost, &op), ==, LAUNCH_S);
  }
}

/* --- several kernels for one -------------------------------------------------------------------------------------- */

static double
moved_s (SpFramework *framework, SpOpKind kind, guint32 flags, gint64 bytes)
{
  SpOp op = { .kind = (guint8) kind, .flags = flags, .bytes = bytes };
  SpCost cost;

  set_cost (&cost, framework);
  return sp_cost_op (&cost, &op);
}

/* As many launches, and as many times the bytes; where nothing is said, elementwise-time, with one launch. The first block
 * that is merged is a copy in either. */
static void
test_several (void)
{
  const gint64 bytes = 1000000;
  const guint32 merges = SP_OP_ACCUMULATE;
  double once_s = bytes / BYTES_PER_S;
  SpFramework plain = { .name = (char *) "test", .elementwise_time = { 2 } }, own = plain;

  own.merge_time.value = 3.5;
  own.pack_time.value = 5;
  own.softmax_time.value = 3;
  g_assert_cmpfloat_with_epsilon (moved_s (&plain, SP_OP_ATTENTION_MERGE, merges, bytes), LAUNCH_S + 2 * once_s, 1e-12);
  g_assert_cmpfloat_with_epsilon (moved_s (&own, SP_OP_ATTENTION_MERGE, merges, bytes), 3.5 * (LAUNCH_S + once_s),
                                  1e-12);
  g_assert_cmpfloat_with_epsilon (moved_s (&own, SP_OP_ATTENTION_MERGE, 0, bytes), LAUNCH_S + 2 * once_s, 1e-12);
  g_assert_cmpfloat_with_epsilon (moved_s (&own, SP_OP_PACK, 0, bytes), 5 * (LAUNCH_S + once_s), 1e-12);
  g_assert_cmpfloat_with_epsilon (moved_s (&own, SP_OP_UNPACK, 0, bytes), 5 * (LAUNCH_S + once_s), 1e-12);
  g_assert_cmpfloat_with_epsilon (moved_s (&own, SP_OP_SOFTMAX, 0, bytes), 3 * (LAUNCH_S + once_s), 1e-12);
  /* P, dP and dS, and then twice dS again, read and written: 7 where one kernel moves 3 */
  g_assert_cmpfloat_with_epsilon (moved_s (&own, SP_OP_SOFTMAX_BWD, 0, bytes), 3 * LAUNCH_S + 7 / 3.0 * once_s, 1e-12);
  g_assert_cmpfloat_with_epsilon (moved_s (&own, SP_OP_COPY, 0, bytes), LAUNCH_S + 2 * once_s, 1e-12);
  g_assert_cmpfloat_with_epsilon (moved_s (&plain, SP_OP_PACK, 0, bytes), LAUNCH_S + 2 * once_s, 1e-12);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/stack-kernels/ascending", test_ascending);
  g_test_add_func ("/stack-kernels/few", test_few);
  g_test_add_func ("/stack-kernels/even", test_even);
  g_test_add_func ("/stack-kernels/unmasked", test_unmasked);
  g_test_add_func ("/stack-kernels/padded", test_padded);
  g_test_add_func ("/stack-kernels/several", test_several);
  return g_test_run ();
}
