/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/estimate.h"
#include "models/strategies/strategies.h"
#include "tests/shipped.h"
#include "tests/small-models.h"

#include <math.h>

/* Muon: what it keeps, computes and sends, against what its authors say of it (Jordan's "Muon", 2024; Moonlight,
 * 2502.16982) and numbers worked out by hand. That its step is right, the rehearsal shows. */

static SpProgram *
write_program (const SpArchitecture *arch, SpLayout layout, SpRun run, SpOptimizer optimizer)
{
  SpFramework framework = small_framework (TRUE);
  SpProgram *program = sp_program_new ();

  run.optimizer = (guint8) optimizer;
  write_legal (program, arch, &framework, &layout, &run);
  return program;
}

static SpRun
small_run (gint32 global_batch)
{
  return (SpRun){ 64, 1, global_batch, SP_DTYPE_BF16, TRUE };
}

static gint64
optimizer_bytes (const SpProgram *program, const SpBlock *block)
{
  gint64 bytes = 0;

  (void) program;
  for (guint i = 1; i < block->n_buffers; i++)
    if (block->buffers[i].class == SP_CLASS_OPTIMIZER && block->buffers[i].life == SP_LIFE_ALWAYS)
      bytes += block->buffers[i].bytes;
  return bytes;
}

/* All layers and both ends, on one rank. */
static gint64
model_optimizer_bytes (const SpProgram *program)
{
  const SpBlock *blocks = program->variants[0].blocks;
  gint64 sum = optimizer_bytes (program, &blocks[0]) + optimizer_bytes (program, &blocks[program->n_blocks - 1]);

  for (guint l = 0; l < program->n_layers; l++)
    sum += optimizer_bytes (program, &blocks[program->layer_block[l]]);
  return sum;
}

/* Llama 3.1 8B. A layer's matrices: q and proj 4096 x 4096 each, k and v 1024 x 4096, gate, up and down 14336 x 4096:
 * 41,943,040 + 176,160,768 = 218,103,808; 32 of them 6,979,321,856. The rest: 2 x 128256 x 4096 and 65 gains of 4096:
 * 1,050,939,392. AdamW: 12 bytes each, master and two moments; Muon: 8 of a matrix. Beside the master a matrix has 4 bytes
 * where AdamW has 8, half. */
static void
test_state (void)
{
  g_autoptr (SpArchitecture) arch = load_model ("llama-3.1-8b");
  SpLayout layout = LAYOUT (.zero = 0);
  g_autoptr (SpProgram) adamw = write_program (arch, layout, small_run (1), SP_OPTIMIZER_ADAMW);
  g_autoptr (SpProgram) muon = write_program (arch, layout, small_run (1), SP_OPTIMIZER_MUON);
  const gint64 matrices = 6979321856, rest = 1050939392;

  g_assert_cmpint (model_optimizer_bytes (adamw), ==, 12 * (matrices + rest));
  g_assert_cmpint (model_optimizer_bytes (muon), ==, 8 * matrices + 12 * rest);
}

/* --- FLOP --------------------------------------------------------------------------------------------------------- */

static const SpOp *
optimizer_ops (const SpProgram *program, guint block, guint *ret_n)
{
  return sp_program_segment (program, &program->variants[0].blocks[block], SP_PHASE_OPTIMIZER, ret_n);
}

static double
orthogonal_flops (const SpProgram *program, guint block)
{
  guint n;
  const SpOp *ops = optimizer_ops (program, block, &n);
  double flops = 0;

  for (guint i = 0; i < n; i++)
    if (ops[i].kind == SP_OP_ORTHOGONALIZE)
      flops += ops[i].flops;
  return flops;
}

/* 4096 x 14336, 5 iterations of 4 m^2 n + 2 m^3: m^2 = 2^24, and 4 n + 2 m = 57344 + 8192 = 2^16; so 5 x 2^40. Whichever
 * side is the longer. 1024 x 4096: 2^20 x (16384 + 2048) x 5; 4096 x 4096: 6 m^3 = 6 x 2^36, times 5.
 * A layer of the 8B: two square ones, k and v, three of the MLP, each by itself though q, k, v and gate, up are fused. */
static void
test_flops (void)
{
  g_autoptr (SpArchitecture) arch = load_model ("llama-3.1-8b");
  g_autoptr (SpProgram) program = write_program (arch, (SpLayout) LAYOUT (.zero = 0), small_run (1), SP_OPTIMIZER_MUON);
  const double mlp = 5 * 0x1p40, kv = 5 * 0x1p20 * 18432, square = 30 * 0x1p36;
  guint n, matrices = 0;
  const SpOp *ops = optimizer_ops (program, 1, &n);

  g_assert_true (sp_muon_flops (4096, 14336) == mlp);
  g_assert_true (sp_muon_flops (14336, 4096) == mlp);
  for (guint i = 0; i < n; i++)
    matrices += ops[i].kind == SP_OP_ORTHOGONALIZE;
  g_assert_cmpuint (matrices, ==, 7);
  g_assert_true (orthogonal_flops (program, 1) == 3 * mlp + 2 * kv + 2 * square);
  g_assert_true (orthogonal_flops (program, 0) == 0); /* embedding and output matrix have AdamW */
  g_assert_true (orthogonal_flops (program, program->n_blocks - 1) == 0);
}

/* Experts one by one: 8 of 16 x 24, gate, up and down each. With m = 16, n = 24: 5 (4 x 256 x 24 + 2 x 4096) = 163840. */
static void
test_experts (void)
{
  g_autoptr (SpArchitecture) arch = small_model (SMALL_EXPERTS);
  g_autoptr (SpProgram) program = write_program (arch, (SpLayout) LAYOUT (.zero = 0), small_run (1), SP_OPTIMIZER_MUON);
  guint n;
  const SpOp *ops = optimizer_ops (program, 2, &n);
  double flops = 0;

  for (guint i = 0; i < n; i++)
    if (ops[i].kind == SP_OP_ORTHOGONALIZE && ops[i].batch == 8) {
      g_assert_true (ops[i].flops == 8 * 163840);
      flops += ops[i].flops;
    }
  g_assert_true (flops == 3 * 8 * 163840);
}

/* Jordan's bound: beside 6 FLOP a parameter and token a step of B tokens has at most 5 m / B more, m the model's width: 0.7 %
 * of the NanoGPT speedrun (m = 768, B = 524288), 0.5 % of Llama 405B (m = 16384, B = 16 million). Square matrices reach
 * it; of m x 4 m it is 5 (16 + 2) m^3 / (24 m^2 B) = 3.75 m / B. GPT's layer is a third of one and two of the other:
 * (4 x 30 + 2 x 90) / (6 x 12) = 25 / 6 m / B. */
static void
test_overhead (void)
{
  g_autoptr (SpArchitecture) llama = load_model ("llama-3.1-405b"), gpt = load_model ("gpt2-large");
  const double tokens[] = { 16e6, 524288 }, bound[] = { 0.0052, 0.0074 };
  const gint32 width[] = { 16384, 768 };

  gpt->hidden = 768;
  gpt->ffn = 4 * 768;
  gpt->heads = gpt->kv_heads = 12;
  gpt->layers = 12;
  for (guint i = 0; i < 2; i++) {
    const SpArchitecture *arch = i == 0 ? llama : gpt;
    g_autoptr (SpProgram) program =
        write_program (arch, (SpLayout) LAYOUT (.zero = 0), small_run (1), SP_OPTIMIZER_MUON);
    double matrices = (double) sp_architecture_layer_matmul_parameters (arch, 0);
    double overhead = orthogonal_flops (program, 1) / (6 * matrices * tokens[i]), most = 5 * width[i] / tokens[i];

    g_test_message ("%s: %.3f %%, at most %.3f %%", arch->name, 100 * overhead, 100 * most);
    g_assert_cmpfloat (most, <=, bound[i]);
    g_assert_cmpfloat (overhead, <=, most);
    g_assert_cmpfloat (overhead, >=, 0.7 * most);
    if (arch == gpt)
      g_assert_cmpfloat (fabs (overhead / most - 5.0 / 6), <, 1e-12);
  }
}

/* --- shards ------------------------------------------------------------------------------------------------------- */

/* The 8B's layer over 8 ranks. In units of 2^20 parameters it has 208, a shard 26, and in order q 0 to 16, k to 20, v to 24,
 * proj to 40, gate to 96, up to 152, down to 208. Shards that have some: q, k, v 1 each; proj 24 to 40 of the first two;
 * gate 40 to 96 of shards 1 to 3, up 96 to 152 of 3 to 5, down 152 to 208 of 5 to 7, 3 each. The mean place: 1/8 of it. */
static void
test_shards (void)
{
  g_autoptr (SpArchitecture) arch = load_model ("llama-3.1-8b");
  g_autoptr (SpProgram) program =
      write_program (arch, (SpLayout) LAYOUT (.data = 8, .zero = 1), small_run (8), SP_OPTIMIZER_MUON);
  const double mlp = 5 * 0x1p40, kv = 5 * 0x1p20 * 18432, square = 30 * 0x1p36;

  g_assert_true (orthogonal_flops (program, 1) == (square + 2 * kv + 2 * square + 3 * 3 * mlp) / 8);
}

static double
payload (const SpProgram *program, guint block, SpPhase phase, SpOpKind kind, SpGroupId group)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, &program->variants[0].blocks[block], phase, &n);
  double sum = 0;

  for (guint i = 0; i < n; i++)
    if (ops[i].kind == kind && ops[i].group == group)
      sum += (double) ops[i].bytes;
  return sum;
}

/* Moonlight, section 2.3: distributed AdamW scatters 4 bytes of gradient and gathers 4 of parameter, Muon gathers 2 more of
 * a matrix; so at most 10 / 8 = 1.25 of it. Here parameters are gathered in bf16, in 2 bytes: 8 / 6. */
static void
test_bytes (void)
{
  g_autoptr (SpArchitecture) arch = load_model ("llama-3.1-8b");
  SpLayout layout = LAYOUT (.data = 8, .zero = 1);
  g_autoptr (SpProgram) adamw = write_program (arch, layout, small_run (8), SP_OPTIMIZER_ADAMW);
  g_autoptr (SpProgram) muon = write_program (arch, layout, small_run (8), SP_OPTIMIZER_MUON);
  const double matrices = 218103808, all = matrices + 2 * 4096;
  double scatter[2], gather[2];

  for (guint i = 0; i < 2; i++) {
    scatter[i] = payload (i ? muon : adamw, 1, SP_PHASE_SYNC, SP_OP_REDUCE_SCATTER, SP_GROUP_ZERO);
    gather[i] = payload (i ? muon : adamw, 1, SP_PHASE_OPTIMIZER, SP_OP_ALL_GATHER, SP_GROUP_ZERO);
  }
  g_assert_true (scatter[0] == 4 * all && gather[0] == 2 * all);
  g_assert_true (scatter[1] == 4 * all && gather[1] == 2 * all + 2 * matrices);
  double theirs = (scatter[1] + 2 * all + gather[1]) / (scatter[0] + 2 * all + gather[0]);
  g_assert_cmpfloat (theirs, <=, 1.25);
  g_assert_cmpfloat (theirs, >, 1.249);
}

/* Tensor ranks: slices of matrices that are cut are gathered, 2 bytes an element of the whole matrix. */
static void
test_tensor (void)
{
  g_autoptr (SpArchitecture) arch = load_model ("llama-3.1-8b");
  g_autoptr (SpProgram) program =
      write_program (arch, (SpLayout) LAYOUT (.tensor = 4), small_run (1), SP_OPTIMIZER_MUON);
  const double mlp = 5 * 0x1p40, kv = 5 * 0x1p20 * 18432, square = 30 * 0x1p36;

  g_assert_true (payload (program, 1, SP_PHASE_OPTIMIZER, SP_OP_ALL_GATHER, SP_GROUP_TENSOR) == 2.0 * 218103808);
  g_assert_true (orthogonal_flops (program, 1) == 3 * mlp + 2 * kv + 2 * square);
}

/* A short convolution and a scan's rates are no matrices, though they have rows and columns. */
static void
test_elementwise (void)
{
  g_autoptr (SpArchitecture) arch = small_model (SMALL_MAMBA);
  g_autoptr (SpProgram) program = write_program (arch, (SpLayout) LAYOUT (.zero = 0), small_run (1), SP_OPTIMIZER_MUON);
  const SpBlock *block = &program->variants[0].blocks[1];
  guint elementwise = 0;

  for (guint i = 0; i < block->n_weights; i++) {
    const SpWeight *weight = &block->weights[i];
    gboolean no_matrix = g_str_equal (weight->name, "conv") || g_str_equal (weight->name, "log.rate");
    elementwise += no_matrix;
    g_assert_true ((block->flats[weight->flat].moment2 == 0) == (weight->rows > 1 && weight->cols > 1 && !no_matrix));
  }
  g_assert_cmpuint (elementwise, ==, 2);
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static double
gemm_seconds (const SpCost *cost, gint32 m, gint32 n, gint32 k)
{
  SpOp op = { .kind = SP_OP_GEMM, .m = m, .n = n, .k = k, .batch = 1, .flops = 2.0 * m * n * k, .bytes = 1 };

  return sp_cost_op (cost, &op);
}

/* A matrix takes what its 15 GEMMs take; with shards, the part of it that the mean place has. */
static void
test_time (void)
{
  g_autoptr (SpArchitecture) arch = load_model ("llama-3.1-8b");
  g_autoptr (SpFramework) framework = load_framework ("flash");
  g_autoptr (SpCluster) cluster = load_cluster ("h100-1x8");
  g_autoptr (SpProgram) alone = write_program (arch, (SpLayout) LAYOUT (.zero = 0), small_run (1), SP_OPTIMIZER_MUON);
  g_autoptr (SpProgram) sharded =
      write_program (arch, (SpLayout) LAYOUT (.data = 8, .zero = 1), small_run (8), SP_OPTIMIZER_MUON);
  SpCost cost;
  guint n, checked = 0;

  sp_cost_init (&cost, cluster, framework);
  double expected = 5 * (gemm_seconds (&cost, 4096, 4096, 14336) + gemm_seconds (&cost, 4096, 4096, 4096) +
                         gemm_seconds (&cost, 4096, 14336, 4096));
  const SpOp *ops = optimizer_ops (alone, 1, &n);
  for (guint i = 0; i < n; i++)
    if (ops[i].kind == SP_OP_ORTHOGONALIZE && MAX (ops[i].m, ops[i].n) == 14336) {
      g_assert_cmpfloat (fabs (sp_cost_op (&cost, &ops[i]) / expected - 1), <, 1e-9);
      checked++;
    }
  ops = optimizer_ops (sharded, 1, &n);
  for (guint i = 0; i < n; i++)
    if (ops[i].kind == SP_OP_ORTHOGONALIZE && MAX (ops[i].m, ops[i].n) == 14336) {
      g_assert_cmpfloat (fabs (sp_cost_op (&cost, &ops[i]) / (expected * 3 / 8) - 1), <, 1e-9);
      checked++;
    }
  g_assert_cmpuint (checked, ==, 6);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/muon/state", test_state);
  g_test_add_func ("/muon/flops", test_flops);
  g_test_add_func ("/muon/experts", test_experts);
  g_test_add_func ("/muon/overhead", test_overhead);
  g_test_add_func ("/muon/shards", test_shards);
  g_test_add_func ("/muon/bytes", test_bytes);
  g_test_add_func ("/muon/tensor", test_tensor);
  g_test_add_func ("/muon/elementwise", test_elementwise);
  g_test_add_func ("/muon/time", test_time);
  return g_test_run ();
}
