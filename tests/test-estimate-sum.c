/* SPDX-License-Identifier: Apache-2.0 */
#include "models/writer.h"
#include "tests/random-machines.h"

#include <math.h>

/* What a step comes to as a sum over its ops, and by hand. */

#define DRAWS 400

/* On the slower of the two places of a chain of two. */
static double
phases_seconds (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpPhase from, SpPhase to)
{
  double seconds[2] = { 0, 0 };

  for (gint32 place = 0; place < 2; place++)
    for (SpPhase phase = from; phase <= to; phase++)
      seconds[place] += list_seconds (cost, program, block, phase, FALSE, place);
  return MAX (seconds[0], seconds[1]);
}

/* Without overlap, host, chain and pipeline a step is every op of every layer and micro-batch, one after the other:
 * gathers (twice with resharding), forward, recompute, backward, sync each time; sync and optimizer once. */
static void
test_sum (void)
{
  static const DrawLimits limits = { DRAW_ANY, FALSE, { 1, 3 }, { 1, 3 }, { 1, 1 }, { 1, 4 }, { 1, 4 }, { 1, 6 },
                                     .experts = TRUE, .families = TRUE };
  GRand *rand = draw_rand_new ();
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = 0; i < DRAWS && !g_test_failed (); i++) {
    Draw d;
    Machine m;
    SpEstimate e;
    SpCost cost;
    double sum = 0;
    draw_legal (rand, &limits, &d);
    d.layout.overlap = FALSE;
    d.layout.lasp_version = 2;
    d.framework.host_eager = FALSE;
    draw_machine (rand, sp_layout_world (&d.layout, d.arch), draw_slowdown (rand), &m);
    estimate_on (&d, &m, program, &e);
    sp_cost_init (&cost, &m.cluster, &d.framework);
    sp_cost_set_paths (&cost, &m.cluster, program);
    for (guint l = 0; l < program->n_layers + 2; l++) {
      guint b = l < program->n_layers ? program->layer_block[l] : l == program->n_layers ? 0 : program->n_blocks - 1;
      for (gint32 i = 0; i < program->micro_batches; i++) {
        guint v = program->n_variants == 2 && i == program->micro_batches - 1;
        const SpBlock *block = &program->variants[v].blocks[b];
        sum += (1 + block->regather) * list_seconds (&cost, program, block, SP_PHASE_GATHER, FALSE, 0);
        sum += phases_seconds (&cost, program, block, SP_PHASE_FORWARD, SP_PHASE_FORWARD);
        sum += phases_seconds (&cost, program, block, SP_PHASE_RECOMPUTE, SP_PHASE_BACKWARD);
        sum += list_seconds (&cost, program, block, SP_PHASE_SYNC, TRUE, 0);
      }
      sum += list_seconds (&cost, program, &program->variants[0].blocks[b], SP_PHASE_SYNC, FALSE, 0);
      sum += list_seconds (&cost, program, &program->variants[0].blocks[b], SP_PHASE_OPTIMIZER, FALSE, 0);
    }
    g_assert_true (is_equal (e.serial_s, sum, 1e-11));
    g_assert_true (is_equal (e.step_time_s, sum, 1e-11));
    if (g_test_failed ())
      g_test_message ("sum %.12g", sum);
    estimate_report (&d, &m, &e);
    draw_clear (&d);
  }
  g_rand_free (rand);
}

/* LASP-2's gathers run beside the local part, forward and backward; where that takes longer, they cost nothing but
 * the slowdown, times their own time: 2 gathers a layer of 4 places x 16 x 8 x 64 x 64 fp32 = 8 MiB, 3 / 4 of it at
 * 1 GB/s. Weights are of nearly no size (hidden 1, one word), so their reduction is below 1 % of it. */
static void
test_slowdown (void)
{
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  g_autoptr (SpProgram) program = sp_program_new ();
  SpFramework framework = { .name = (char *) "test", .fused_attention = TRUE };
  SpLayout layout = SP_LAYOUT_DEFAULT;
  SpRun run = { 65536, 16, 32, SP_DTYPE_BF16, TRUE };
  GRand *rand = g_rand_new_with_seed (1);
  SpEstimate before = { 0 };
  Machine m;

  draw_machine (rand, 4, 0, &m);
  g_rand_free (rand);
  m.device.launch_s.value = m.cluster.link_latency_s.value = 0;
  m.device.link_bytes_per_s.value = 1e9;
  m.device.linear_efficiency.value = 1e-3;
  m.cluster.nodes = m.cluster.link_efficiency.value = 1;
  m.cluster.gpus_per_node = 4;
  arch->layers = 3;
  arch->heads = arch->kv_heads = 8;
  arch->head_size = 64;
  arch->hidden = arch->ffn = arch->vocabulary = 1;
  for (gint32 l = 0; l < arch->layers; l++)
    arch->layer_kind[l] = SP_LAYER_LINEAR;
  layout.lasp = 4;
  layout.zero = 0;
  const double gather_s = 4.0 * 16 * 8 * 64 * 64 * 4 * 3 / 4 / 1e9;
  for (guint i = 0; i <= 4; i++) {
    Draw d = { arch, framework, layout, run };
    SpEstimate e;
    m.device.overlap_slowdown.value = 0.25 * i;
    estimate_on (&d, &m, program, &e);
    if (i > 0)
      g_assert_true (is_equal (e.step_time_s - before.step_time_s, 0.25 * 2 * gather_s * arch->layers * 2, 0.01));
    before = e;
  }
}

/* A ring of P ranks computes what one rank would: P diagonal blocks of m (m + 1) / 2 pairs and, contiguous, P (P -
 * 1) / 2 whole ones or, zigzag and striped, P (P - 1) halves; with m = N / P each is N (N + 1) / 2; gathered keys make one
 * kernel of all of a rank's. So do Ulysses and tensor ranks. Ring Self-Attention computes all N N pairs, its backward twice
 * the forward where the fused one, which computes the scores again, is 2.5 times. */
static void
test_flops (void)
{
  static const gint32 degrees[][3] = { { 1, 1, 1 }, { 1, 2, 1 }, { 1, 8, 1 }, { 4, 1, 1 }, { 2, 4, 1 }, { 2, 2, 2 } };
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  g_autoptr (SpProgram) program = sp_program_new ();
  SpFramework framework = { .name = (char *) "test", .fused_attention = TRUE };
  SpRun run = { 4096, 1, 2, SP_DTYPE_BF16, TRUE };
  const double pairs = 4096.0 * 4097 / 2;
  double flops = 0;

  arch->layers = 2;
  arch->heads = arch->kv_heads = 8;
  arch->head_size = 64;
  arch->hidden = 512;
  arch->ffn = 1024;
  arch->vocabulary = 1024;
  for (guint i = 0; i < G_N_ELEMENTS (degrees); i++)
    for (guint way = 0; way < SP_N_TOKEN_SPLITS * SP_N_RING_KINDS; way++) {
      SpLayout layout = SP_LAYOUT_DEFAULT;
      g_autoptr (GRand) rand = g_rand_new_with_seed (1);
      SpEstimate e;
      Machine m;
      layout.ulysses = degrees[i][0];
      layout.ring = degrees[i][1];
      layout.tensor = degrees[i][2];
      layout.token_split = way % SP_N_TOKEN_SPLITS;
      layout.ring_kind = way / SP_N_TOKEN_SPLITS;
      layout.ring_inner = 2;
      if (layout.ring > 1 && layout.ring_kind == SP_RING_DOUBLE && (layout.ring < 4 || layout.token_split == 0))
        continue;
      Draw d = { arch, framework, layout, run };
      draw_machine (rand, sp_layout_world (&layout, arch), 0.1, &m);
      estimate_on (&d, &m, program, &e);
      double now = e.hfu * e.step_time_s * m.device.peak_bf16_flops_per_s.value * program->world;
      if (flops == 0)
        flops = now;
      gboolean is_whole = layout.ring > 1 && layout.ring_kind == SP_RING_RSA;
      double more = 2 * 2 * 4 * 64 * 8 * (3 * 4096.0 * 4096 - 3.5 * pairs);
      g_assert_true (is_equal (now, is_whole ? flops + more : flops, 1e-12));
    }
  /* 2 sequences and layers, forward and twice that: 2 FLOP a parameter of matrices and token, 4 D a pair and head,
   * whose backward is 2.5 times the forward. */
  const double matrices = 2 * (4.0 * 512 * 512 + 3.0 * 512 * 1024) + 512.0 * 1024;
  g_assert_true (is_equal (flops, 2 * (6 * matrices * 4096 + 2 * 3.5 * 4 * pairs * 64 * 8), 1e-12));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/estimate-sum/sum", test_sum);
  g_test_add_func ("/estimate-sum/slowdown", test_slowdown);
  g_test_add_func ("/estimate-sum/flops", test_flops);
  return g_test_run ();
}
