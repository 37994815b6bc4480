/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cost.h"
#include "models/estimate/memory.h"
#include "sim/walk.h"
#include "tests/published.h"
#include "tests/refused.h"
#include "tests/shipped.h"

#include <math.h>

/* Published cases: what other people counted, measured or ran into. The numbers G01 ... are those of the reference
 * cases. Of legality: tests/test-cases-legality.c. */

/* Of all blocks of a program of one stage. */
static double
states_of (const SpProgram *program)
{
  double sum = 0;

  g_assert_cmpint (program->stages, ==, 1);
  for (guint b = 0; b < program->n_blocks; b++) {
    double count = b == 0 || b + 1 == program->n_blocks ? 1 : 0;
    for (guint l = 0; l < program->n_layers; l++)
      count += program->layer_block[l] == b;
    sum += count * (double) sp_memory_block_always (program, &program->variants[0].blocks[b]);
  }
  return sum;
}

/* --- G10: activations of GPT layers ------------------------------------------------------------------------------- */

/* Bytes of a layer by 2205.05198, table 2, with x = s b h and y = 5 a s / h:
 *   alone x (34 + y); tensor x (10 + 24 / t + y / t); with sequence regions x (34 / t + y / t);
 *   selective drops y; full 2 x.
 * It leaves the statistics of the two norms out, "negligible": mean and 1 / std in fp32, 16 bytes a row of this
 * rank. */
static double
formula_of (double s, double b, double h, double a, double t, gboolean regions, SpRecompute recompute)
{
  double x = s * b * h, y = recompute == SP_RECOMPUTE_NONE ? 5 * a * s / h : 0;

  if (recompute == SP_RECOMPUTE_FULL)
    return 2 * x / (regions ? t : 1);
  return regions ? x * (34 / t + y / t) : x * (10 + 24 / t + y / t);
}

static double
statistics_of (double s, double b, double t, gboolean regions, SpRecompute recompute)
{
  return recompute == SP_RECOMPUTE_FULL ? 0 : 16 * s * b / (regions ? t : 1);
}

static const struct {
  const char *name;
  gboolean regions;
  SpRecompute recompute;
  double published_gib; /* of 48 layers */
} megatron_cases[] = {
  { "tensor 8", FALSE, SP_RECOMPUTE_NONE, 59.25 },
  { "tensor 8, sequence regions, selective", TRUE, SP_RECOMPUTE_SELECTIVE, 9.5625 },
};

/* 22B: s = 2048, b = 4, h = 6144, a = 64, so x = 48 MiB and y = 320 / 3. Tensor 8: x (13 + 40 / 3) = 1264 MiB a
 * layer, 59.25 GiB; selective with regions: x 34 / 8 = 204 MiB, 9.5625 GiB. Parameters and optimizer of the blocks,
 * at 2 + 4 + 12 bytes: 48 x 12 h^2 / 8 x 18 = 45.5625 GiB; biases and norms (13 h, of which 7 h are split) add 0.02
 * %. */
static void
test_megatron (void)
{
  g_autoptr (SpArchitecture) arch = load_model ("megatron-22b");
  g_autoptr (SpFramework) framework = load_framework ("megatron-2022");
  g_autoptr (SpCluster) cluster = load_cluster ("a100-16x8");
  g_autoptr (SpProgram) program = sp_program_new ();
  SpRun run = { 2048, 4, 4, SP_DTYPE_FP16, TRUE };
  SpEstimator estimator;

  cluster->nodes = 1;
  sp_estimator_init (&estimator, arch, cluster, framework, SP_MFU_MEGATRON);
  for (guint i = 0; i < G_N_ELEMENTS (megatron_cases); i++) {
    SpLayout layout = SP_LAYOUT_DEFAULT;
    SpEstimate estimate;
    layout.tensor = 8;
    layout.zero = 0;
    layout.sequence_regions = megatron_cases[i].regions;
    layout.recompute = megatron_cases[i].recompute;
    write_legal (program, arch, framework, &layout, &run);
    sp_estimate_program (&estimator, program, &run, &estimate);
    const SpBlock *block = &program->variants[0].blocks[1];
    double activations = 48.0 * (double) sp_memory_block_stash (block),
           states = 48.0 * (double) sp_memory_block_always (program, block);
    g_test_message (
        "%s: activations of the blocks %.4f GiB, published %g; of the whole model at its peak %.4f, logits %.4f; "
        "states of the blocks %.4f, published 45.5625; step %.3f s, MFU %.1f %%",
        megatron_cases[i].name, activations / GIB, megatron_cases[i].published_gib,
        estimate.memory.by_class[SP_CLASS_ACTIVATIONS] / GIB, estimate.memory.by_class[SP_CLASS_LOGITS] / GIB,
        states / GIB, estimate.step_time_s, 100 * estimate.mfu);
    g_assert_true (is_near (activations / GIB, megatron_cases[i].published_gib, 0.005));
    g_assert_true (is_near (states / GIB, 45.5625, 0.005));
  }
}

/* Chunks that a stage holds at once, most. */
static gint32
chunks_in_flight (const SpProgram *program, gint32 stage)
{
  g_autoptr (SpWalkPlan) plan = sp_walk_plan_new (program, SP_ORDER_PROGRAM);
  gint32 held = 0, most = 0;
  guint n;
  const SpSlot *slots = sp_walk_slots (plan, stage, &n);

  for (guint i = 0; i < n; i++) {
    held += slots[i].kind == SP_SLOT_FORWARD ? 1 : -1;
    most = MAX (most, held);
  }
  return most;
}

/* 175B: s = 2048, b = 1, h = 12288, a = 96, so x = 24 MiB and y = 80; 96 layers over 8 stages of 3 chunks, 64
 * micro-batches. The first stage holds 31 chunks of 4 layers, 96 (1 + 7 / 24) = 124 layers' worth. Tensor 8: x (13 +
 * 10) = 552 MiB a layer, 66.84 GiB; selective with regions: x 34 / 8 = 102 MiB, 12.35 GiB. The estimate has besides
 * what the embedding keeps and what a list adds. */
static void
test_megatron_interleaved (void)
{
  static const double published_gib[] = { 66.84375, 12.3515625 };
  g_autoptr (SpArchitecture) arch = load_model ("megatron-175b");
  g_autoptr (SpFramework) framework = load_framework ("megatron-2022");
  g_autoptr (SpCluster) cluster = load_cluster ("a100-16x8");
  g_autoptr (SpProgram) program = sp_program_new ();
  SpRun run = { 2048, 1, 64, SP_DTYPE_FP16, TRUE };
  SpEstimator estimator;

  cluster->nodes = 8;
  sp_estimator_init (&estimator, arch, cluster, framework, SP_MFU_MEGATRON);
  for (guint i = 0; i < G_N_ELEMENTS (megatron_cases); i++) {
    SpLayout layout = SP_LAYOUT_DEFAULT;
    SpEstimate estimate;
    layout.tensor = 8;
    layout.pipeline = 8;
    layout.schedule = (guint8) sp_schedule_find ("interleaved");
    layout.virtual_stages = 3;
    layout.zero = 0;
    layout.sequence_regions = megatron_cases[i].regions;
    layout.recompute = megatron_cases[i].recompute;
    write_legal (program, arch, framework, &layout, &run);
    sp_estimate_program (&estimator, program, &run, &estimate);
    const SpBlock *block = &program->variants[0].blocks[1];
    gint32 chunks = chunks_in_flight (program, 0);
    double activations = chunks * 4.0 * (double) sp_memory_block_stash (block) / GIB;
    double whole = estimate.memory.by_class[SP_CLASS_ACTIVATIONS] / GIB;
    g_test_message ("%s: %d chunks of 4 layers, activations %.4f GiB, published %g; at the peak of stage %d (%s) %.4f; "
                    "step %.3f s, MFU %.1f %%",
                    megatron_cases[i].name, chunks, activations, published_gib[i], estimate.memory.stage,
                    estimate.memory.moment, whole, estimate.step_time_s, 100 * estimate.mfu);
    g_assert_cmpint (chunks, ==, 31);
    g_assert_true (is_near (activations, published_gib[i], 0.005));
    g_assert_cmpint (estimate.memory.stage, ==, 0);
    g_assert_true (whole >= activations && whole <= activations + 1);
  }
}

/* The formula for random shapes: to the byte with the statistics, which are below 0.5 % from h = 256 on. */
static void
test_formula (void)
{
  g_autoptr (SpFramework) framework = load_framework ("megatron-2022");
  g_autoptr (SpProgram) program = sp_program_new ();
  double worst = 0;

  for (guint i = 0; i < 300 && !g_test_failed (); i++) {
    g_autoptr (SpArchitecture) arch = sp_architecture_new ();
    SpLayout layout = SP_LAYOUT_DEFAULT;
    gint32 t = g_test_rand_int_range (1, 9), b = g_test_rand_int_range (1, 9), s = t * g_test_rand_int_range (1, 400);
    SpRun run = { s, b, b, SP_DTYPE_FP16, TRUE };
    arch->layers = 1;
    arch->heads = arch->kv_heads = t * g_test_rand_int_range (1, 9);
    arch->head_size = g_test_rand_int_range (256 / arch->heads + 1, 600);
    arch->hidden = arch->heads * arch->head_size;
    arch->ffn = 4 * arch->hidden;
    arch->vocabulary = 512;
    arch->positions = s;
    arch->norm = SP_NORM_LAYER;
    arch->mlp = SP_MLP_GELU;
    arch->qkv_bias = arch->projection_bias = arch->mlp_bias = TRUE;
    arch->dropout = 0.1;
    layout.tensor = t;
    layout.sequence_regions = g_test_rand_int_range (0, 2);
    layout.recompute = (guint8) g_test_rand_int_range (0, SP_N_RECOMPUTES);
    write_legal (program, arch, framework, &layout, &run);
    gboolean regions = t > 1 && layout.sequence_regions;
    double formula = formula_of (s, b, arch->hidden, arch->heads, t, regions, layout.recompute);
    double exact = formula + statistics_of (s, b, t, regions, layout.recompute);
    double counted = (double) sp_memory_block_stash (&program->variants[0].blocks[1]);
    worst = MAX (worst, fabs (counted - formula) / formula);
    if (fabs (counted - exact) > 1e-9 * exact || !is_near (counted, formula, 0.005)) {
      g_test_message (
          "s %d b %d h %d a %d t %d regions %d recompute %d: %.0f bytes, formula %.0f, with statistics %.0f", s, b,
          arch->hidden, arch->heads, t, regions, layout.recompute, counted, formula, exact);
      g_test_fail ();
    }
  }
  g_test_message ("largest difference from the formula %.3f %%", 100 * worst);
}

/* --- G20, G19: logits and padding --------------------------------------------------------------------------------- */

/* tokens x vocabulary x 4 bytes: 32768 x 151936 is 18.55 GiB, 16000 x 128256 is 7.64 GiB. */
static void
test_logits (void)
{
  static const struct {
    gint32 tokens, vocabulary;
    double published_gib;
  } cases[] = { { 32768, 151936, 18.55 }, { 16000, 128256, 7.64 } };
  g_autoptr (SpFramework) framework = load_framework ("flash-loss-in-place");
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (SpArchitecture) arch = own_model ("layers = 1\nhidden = 64\nheads = 1\nffn = 64\nvocabulary = 1\n");
    SpLayout layout = SP_LAYOUT_DEFAULT;
    SpRun run = { cases[i].tokens, 1, 1, SP_DTYPE_BF16, TRUE };
    double bytes = 0;
    arch->vocabulary = cases[i].vocabulary;
    write_legal (program, arch, framework, &layout, &run);
    const SpBlock *head = &program->variants[0].blocks[program->n_blocks - 1];
    for (guint slot = 1; slot < head->n_buffers; slot++)
      if (head->buffers[slot].class == SP_CLASS_LOGITS && head->buffers[slot].dtype == SP_DTYPE_FP32)
        bytes += (double) head->buffers[slot].bytes;
    g_test_message ("%d x %d: %.4f GiB", cases[i].tokens, cases[i].vocabulary, bytes / GIB);
    g_assert_cmpfloat (bytes, ==, 4.0 * cases[i].tokens * cases[i].vocabulary);
    g_assert_true (is_near (bytes / GIB, cases[i].published_gib, 0.001));
  }
}

/* The same 32768 x 151936 in the estimate, by itself in the class of logits (Qwen3's hidden size of 4096, one layer,
 * recomputed). In place: fp32 logits and their copy in bf16 for the output
 * matrix, 6 bytes each: 27.82 GiB. As PyTorch's cross entropy: log-softmax, its gradient and the logits' in fp32, at
 * their fullest 12 bytes: 55.65 GiB. A note offers the others: in 8 chunks an eighth of that; fused by Liger's rule in
 * 151936 / 4096 = 38 chunks, taken to 64 so that they divide, 2 bytes a logit: 0.145 GiB. */
static void
test_loss_kinds (void)
{
  static const struct {
    const char *framework;
    guint8 loss;
    double bytes_a_logit;
    gint32 chunks;
  } cases[] = {
    { "flash-loss-in-place", SP_LOSS_FULL, 6, 1 },    { "flash", SP_LOSS_VOCABULARY, 12, 1 },
    { "flash-loss-in-place", SP_LOSS_CHUNKED, 6, 8 }, { "flash", SP_LOSS_CHUNKED, 12, 8 },
    { "flash-loss-in-place", SP_LOSS_FUSED, 2, 64 },  { "flash", SP_LOSS_FUSED, 2, 64 },
  };
  g_autoptr (SpArchitecture) arch =
      own_model ("layers = 1\nhidden = 4096\nheads = 32\nkv-heads = 8\nffn = 12288\nvocabulary = 151936\n");
  g_autoptr (SpCluster) cluster = load_cluster ("a100-16x8");
  g_autoptr (SpProgram) program = sp_program_new ();
  SpRun run = { 32768, 1, 1, SP_DTYPE_BF16, TRUE };
  double logits = 32768.0 * 151936.0;

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (SpFramework) framework = load_framework (cases[i].framework);
    SpLayout layout = SP_LAYOUT_DEFAULT;
    SpEstimator estimator;
    SpEstimate estimate;
    SpBlockWork head;
    gboolean offers = FALSE;
    layout.recompute = SP_RECOMPUTE_FULL;
    layout.loss = cases[i].loss;
    g_assert_cmpint (sp_layout_loss_chunks (&layout, arch, &run), ==, cases[i].chunks);
    write_legal (program, arch, framework, &layout, &run);
    sp_estimator_init (&estimator, arch, cluster, framework, SP_MFU_SEQPAR);
    sp_estimate_program (&estimator, program, &run, &estimate);
    g_autoptr (GPtrArray) notes = sp_estimate_notes (&estimator, &layout, &run);
    for (guint n = 0; n < notes->len; n++)
      offers |= strstr (notes->pdata[n], "32768 tokens x 151936 x 4 bytes = 18.55 GiB") != NULL &&
                strstr (notes->pdata[n], "loss = chunked or fused") != NULL;
    sp_block_work_memory (program, &program->variants[0].blocks[program->n_blocks - 1], &head);
    gint64 counted = MAX (head.peak[SP_LIST_FORWARD][SP_CLASS_LOGITS], head.peak[SP_LIST_BACKWARD][SP_CLASS_LOGITS]);
    g_test_message ("%s, %d chunks: logits %.4f GiB in the head, %.4f at the peak in %s", cases[i].framework,
                    cases[i].chunks, (double) counted / GIB, estimate.memory.by_class[SP_CLASS_LOGITS] / GIB,
                    estimate.memory.moment);
    g_assert_cmpfloat ((double) counted, ==, cases[i].bytes_a_logit * logits / cases[i].chunks);
    if (cases[i].chunks == 1)
      g_assert_cmpfloat (estimate.memory.by_class[SP_CLASS_LOGITS], ==, (double) counted);
    g_assert_true (offers == (cases[i].loss < SP_LOSS_CHUNKED));
  }
}

/* The least padding that tensor ranks can share: 151669 over 4 is 151672, 250682 over 8 is 250688. */
static void
test_vocabulary (void)
{
  static const struct {
    gint32 vocabulary, tensor, padded;
  } cases[] = { { 151669, 4, 151672 }, { 250682, 8, 250688 } };
  g_autoptr (SpFramework) framework = load_framework ("flash");
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (SpArchitecture) arch = own_model ("layers = 1\nhidden = 64\nheads = 8\nffn = 64\nvocabulary = 1\n");
    SpLayout layout = SP_LAYOUT_DEFAULT;
    SpRun run = { 64, 1, 1, SP_DTYPE_BF16, TRUE };
    arch->vocabulary = cases[i].vocabulary;
    layout.tensor = cases[i].tensor;
    write_legal (program, arch, framework, &layout, &run);
    const SpBlock *head = &program->variants[0].blocks[program->n_blocks - 1];
    const SpWeight *matrix = &head->weights[head->n_weights - 1];
    g_assert_cmpint (matrix->rows * cases[i].tensor, ==, cases[i].padded);
  }
}

/* --- G21: ZeRO-3 states ------------------------------------------------------------------------------------------- */

/* DeepSpeed's estimate of 6805M parameters with a largest layer of 131M on 4 GPUs: 18 P / N + 4 l = 29.01 GiB. The
 * shape is ours: 50 layers of 4 x 4096^2 + 3 x 4096 x 5187 + 2 x 4096 = 130.9M, embedding and head of 131.07M each;
 * 6804.9M.
 *
 * 18 P / N: parameter shard 2, gradient shard in fp32 4, master and moments 12 bytes: the program's ALWAYS buffers
 * with fp32 gradients. 4 l: the largest block's gathered parameters and its gradients before they are scattered, 2
 * bytes each: the program's buffers with bf16 gradients. DeepSpeed has both, gradients in bf16 while they live and
 * in fp32 in the optimizer; our program has one gradient dtype, so that of fp32 holds 6 l, 0.24 GiB more, and that
 * of bf16 16 P / N, 3.2 GiB less. */
static void
test_zero3_states (void)
{
  g_autoptr (SpArchitecture) arch =
      own_model ("layers = 50\nhidden = 4096\nheads = 32\nffn = 5187\nvocabulary = 32000\n");
  g_autoptr (SpFramework) framework = load_framework ("flash");
  g_autoptr (SpProgram) program = sp_program_new ();
  SpLayout layout = SP_LAYOUT_DEFAULT;
  SpRun run = { 4096, 1, 4, SP_DTYPE_BF16, TRUE };
  double states = 0, largest[2] = { 0 };

  g_assert_true (is_near ((double) sp_architecture_parameters (arch), 6805e6, 1e-4));
  layout.data = 4;
  layout.zero = 3;
  for (guint wide = 0; wide < 2; wide++) {
    layout.gradient_dtype = wide ? SP_DTYPE_FP32 : SP_DTYPE_BF16;
    write_legal (program, arch, framework, &layout, &run);
    states = states_of (program);
    for (guint b = 0; b < program->n_blocks; b++) {
      const SpBlock *block = &program->variants[0].blocks[b];
      g_assert_cmpint (block->buffers[block->flats[0].parameters].life, ==, SP_LIFE_GATHERED);
      g_assert_cmpint (block->buffers[block->flats[0].gradients].life, ==, SP_LIFE_SUMMED);
      largest[wide] = MAX (largest[wide], (double) (block->buffers[block->flats[0].parameters].bytes +
                                                    block->buffers[block->flats[0].gradients].bytes));
    }
  }
  g_test_message ("18 P / N %.3f GiB, 4 l %.3f GiB: %.3f GiB, published 29.01; with fp32 gradients throughout %.3f",
                  states / GIB, largest[0] / GIB, (states + largest[0]) / GIB, (states + largest[1]) / GIB);
  g_assert_true (is_near (states, 18 * 6805e6 / 4, 0.005));
  g_assert_true (is_near (largest[0], 4 * 131e6, 0.005));
  g_assert_true (is_near ((states + largest[0]) / GIB, 29.01, 0.005));
}

/* --- G25: saved layer inputs -------------------------------------------------------------------------------------- */

/* Under full recompute a layer keeps its input: 36 x 131072 x 4096 x 2 bytes = 36 GiB, 8 x 8192 x 1024 x 2 = 128
 * MiB. */
static void
test_layer_inputs (void)
{
  static const struct {
    const char *model;
    gint64 tokens;
    gint32 layers;
    double bytes;
  } cases[] = {
    { "layers = 36\nhidden = 4096\nheads = 32\nkv-heads = 8\nhead-size = 128\nffn = 12288\nvocabulary = 151936\n",
      131072, 36, 36.0 * (1 << 30) },
    { "layers = 8\nhidden = 1024\nheads = 8\nffn = 4096\nvocabulary = 32000\n", 8192, 8, 128.0 * (1 << 20) },
  };
  g_autoptr (SpFramework) framework = load_framework ("flash");
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (SpArchitecture) arch = own_model (cases[i].model);
    SpLayout layout = SP_LAYOUT_DEFAULT;
    SpRun run = { cases[i].tokens, 1, 1, SP_DTYPE_BF16, TRUE };
    layout.recompute = SP_RECOMPUTE_FULL;
    write_legal (program, arch, framework, &layout, &run);
    double stash = (double) sp_memory_block_stash (&program->variants[0].blocks[1]);
    g_assert_cmpfloat (cases[i].layers * stash, ==, cases[i].bytes);
  }
}

/* --- G39: parameters ---------------------------------------------------------------------------------------------- */

/* The program of one GPU holds as many parameters as the file has. llama: L (2 h^2 (1 + kv / heads) + 3 h f + 2 h) +
 * 2 V h + h; transnormer-385m as its classes' defaults have it is 0.465B untied. */
static void
test_parameters (void)
{
  static const struct {
    const char *model;
    gint64 parameters;
  } cases[] = {
    { "llama-3.1-8b", 8030261248 },       { "llama-3.1-70b", 70553706496 }, { "gpt2-large", 774030080 },
    { "transnormerllm-385m", 464519168 }, { "tnl-1b", 1151336448 },         { "megatron-22b", 22074273792 },
    { "megatron-175b", 174615846912 },
    { "gla-7b", 6741635072 },             { "mamba2-1b", 1371839488 },    { "retnet-1.3b", 1351727104 },
  };
  g_autoptr (SpFramework) framework = load_framework ("flash");
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (SpArchitecture) arch = load_model (cases[i].model);
    SpLayout layout = SP_LAYOUT_DEFAULT;
    SpRun run = { 128, 1, 1, SP_DTYPE_BF16, TRUE };
    gint64 sum = 0;
    write_legal (program, arch, framework, &layout, &run);
    for (guint b = 0; b < program->n_blocks; b++) {
      const SpBlock *block = &program->variants[0].blocks[b];
      gint64 count = b == 0 || b + 1 == program->n_blocks, own = 0;
      for (guint l = 0; l < program->n_layers; l++)
        count += program->layer_block[l] == b;
      for (guint w = 0; w < block->n_weights; w++)
        own += (gint64) block->weights[w].rows * block->weights[w].cols;
      g_assert_cmpint (own, ==, block->buffers[block->flats[0].parameters].elements);
      sum += count * own;
    }
    g_test_message ("%s: %" G_GINT64_FORMAT, cases[i].model, sum);
    g_assert_cmpint (sum, ==, cases[i].parameters);
    g_assert_cmpint (sp_architecture_parameters (arch), ==, cases[i].parameters);
  }
}

/* --- G22: does not fit -------------------------------------------------------------------------------------------- */

/* 7.24B on one 80 GB card: ZeRO has nothing to shard over, 16 bytes a parameter (bf16 gradients) are 108 GiB.
 * Llama-2-7B on 8 A100-40: 18 bytes are 113 GiB each, 6 + 12 / 8 with a sharded optimizer 47 GiB. */
static void
test_does_not_fit (void)
{
  static const struct {
    const char *model;
    double memory_bytes;
    gint32 data, zero;
    guint8 gradient;
    double states_gib;
  } cases[] = {
    { "layers = 32\nhidden = 4096\nheads = 32\nkv-heads = 8\nffn = 14336\nvocabulary = 32000\n", 80 * GIB, 1, 0,
      SP_DTYPE_BF16, 108 },
    { "layers = 32\nhidden = 4096\nheads = 32\nkv-heads = 8\nffn = 14336\nvocabulary = 32000\n", 80 * GIB, 1, 1,
      SP_DTYPE_BF16, 108 },
    { "layers = 32\nhidden = 4096\nheads = 32\nffn = 11008\nvocabulary = 32000\n", 40 * GIB, 8, 0, SP_DTYPE_FP32, 113 },
    { "layers = 32\nhidden = 4096\nheads = 32\nffn = 11008\nvocabulary = 32000\n", 40 * GIB, 8, 1, SP_DTYPE_FP32, 47 },
  };
  g_autoptr (SpFramework) framework = load_framework ("flash");
  g_autoptr (SpCluster) cluster = load_cluster ("a100-16x8");
  g_autoptr (SpProgram) program = sp_program_new ();

  cluster->nodes = 1;
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (SpArchitecture) arch = own_model (cases[i].model);
    SpLayout layout = SP_LAYOUT_DEFAULT;
    SpRun run = { 2048, 1, cases[i].data, SP_DTYPE_BF16, TRUE };
    SpEstimator estimator;
    SpEstimate estimate;
    layout.data = cases[i].data;
    layout.zero = cases[i].zero;
    layout.gradient_dtype = cases[i].gradient;
    cluster->device->memory_bytes.value = cases[i].memory_bytes;
    write_legal (program, arch, framework, &layout, &run);
    sp_estimator_init (&estimator, arch, cluster, framework, SP_MFU_SEQPAR);
    sp_estimate_program (&estimator, program, &run, &estimate);
    g_test_message ("states %.1f GiB, published about %.0f; in all %.1f of %.0f GiB", states_of (program) / GIB,
                    cases[i].states_gib, estimate.memory.total_bytes / GIB, estimate.capacity_bytes / GIB);
    g_assert_true (is_near (states_of (program) / GIB, cases[i].states_gib, 0.01));
    g_assert_false (estimate.fits);
    if (cases[i].data == 1) {
      layout.zero = 3;
      assert_refused (arch, framework, &layout, &run, 1, WORDS ("rule zero-replicas", "zero = 3"));
    }
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/cases/megatron-22b", test_megatron);
  g_test_add_func ("/cases/activation-formula", test_formula);
  g_test_add_func ("/cases/logits", test_logits);
  g_test_add_func ("/cases/loss-kinds", test_loss_kinds);
  g_test_add_func ("/cases/vocabulary", test_vocabulary);
  g_test_add_func ("/cases/zero-3-states", test_zero3_states);
  g_test_add_func ("/cases/layer-inputs", test_layer_inputs);
  g_test_add_func ("/cases/megatron-interleaved", test_megatron_interleaved);
  g_test_add_func ("/cases/parameters", test_parameters);
  g_test_add_func ("/cases/does-not-fit", test_does_not_fit);
  return g_test_run ();
}
