/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/estimate.h"
#include "models/estimate/memory.h"
#include "models/strategies/strategies.h"
#include "tests/shipped.h"
#include "tests/small-models.h"

#include <math.h>

/* What of a model is trained: LoRA's adapters, or all but frozen parts. That gradients are right: test-rehearse. */

/* --- counts ------------------------------------------------------------------------------------------------------- */

/* Weights that a program of one rank lays out, of all layers: those with a gradient, or all. */
static gint64
block_weights (const SpBlock *block, gboolean trained)
{
  gint64 sum = 0;

  for (guint i = 0; i < block->n_weights; i++) {
    const SpWeight *weight = &block->weights[i];
    g_assert_true ((weight->grad == 0) == block->flats[weight->flat].frozen);
    sum += trained && weight->grad == 0 ? 0 : (gint64) weight->rows * weight->cols;
  }
  return sum;
}

static gint64
program_weights (const SpProgram *program, gboolean trained)
{
  const SpBlock *blocks = program->variants[0].blocks;
  gint64 sum = block_weights (&blocks[0], trained) + block_weights (&blocks[program->n_blocks - 1], trained);

  for (guint l = 0; l < program->n_layers; l++)
    sum += block_weights (&blocks[program->layer_block[l]], trained);
  return sum;
}

static gint64
laid_out (const SpArchitecture *arch, const SpRun *run, gboolean trained)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  SpFramework framework = small_framework (TRUE);
  SpLayout layout = LAYOUT (.zero = 0);

  write_legal (program, arch, &framework, &layout, run);
  return program_weights (program, trained);
}

/* A[r,in] and B[out,r] of each target of each layer: r (in + out). Llama-2-7B (4096, 11008 wide, 32 layers), r = 8, q
 * and v: 32 x 2 x 8 x 8192 = 4,194,304, as PEFT's documentation prints; r = 16, all linear: 32 x 16 x (4 x 8192 + 3 x
 * 15104) = 39,976,960. Mistral-7B and Llama-3.1-8B (k and v 1024 wide, MLP 14336), r = 16, all linear: 32 x 16 x (2 x
 * 8192 + 2 x 5120 + 3 x 18432) = 41,943,040; r = 8, q and v: 32 x 8 x (8192 + 5120) = 3,407,872. Llama-3.1-70B (8192,
 * k and v 1024, 28672, 80 layers), r = 16: 80 x 16 x (2 x 16384 + 2 x 9216 + 3 x 36864) = 207,093,760. Qwen2.5-7B
 * (3584, k and v 512, 18944, 28 layers), r = 16: 28 x 16 x (2 x 7168 + 2 x 4096 + 3 x 22528) = 40,370,176. */
static void
test_published_counts (void)
{
  static const struct {
    const char *model; /* NULL: Llama-2-7B */
    gint32 rank;
    guint8 targets;
    gint64 published;
  } cases[] = {
    { NULL, 8, SP_LORA_Q | SP_LORA_V, 4194304 },           { NULL, 16, SP_LORA_ALL, 39976960 },
    { "mistral-7b", 16, SP_LORA_ALL, 41943040 },           { "llama-3.1-8b", 16, 0, 41943040 },
    { "llama-3.1-8b", 8, SP_LORA_Q | SP_LORA_V, 3407872 }, { "llama-3.1-70b", 16, SP_LORA_ALL, 207093760 },
    { "qwen2.5-7b", 16, SP_LORA_ALL, 40370176 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (SpArchitecture) arch =
        cases[i].model ? load_model (cases[i].model)
                       : own_model ("layers = 32\nhidden = 4096\nheads = 32\nffn = 11008\nvocabulary = 32000\n");
    SpRun run = { 16, 1, 1, SP_DTYPE_BF16, TRUE, .lora_rank = cases[i].rank, .lora_targets = cases[i].targets };
    g_assert_cmpint (sp_run_trained_parameters (&run, arch), ==, cases[i].published);
    g_assert_cmpint (laid_out (arch, &run, TRUE), ==, cases[i].published);
    g_assert_cmpint (laid_out (arch, &run, FALSE), ==, cases[i].published + sp_architecture_parameters (arch));
  }
}

static gboolean
is_legal (const SpArchitecture *arch, const SpRun *run)
{
  SpFramework framework = small_framework (TRUE);
  SpLayout layout = LAYOUT (.zero = 0);

  return sp_layout_check (&layout, arch, &framework, run, 0, NULL);
}

/* Of all small models, and all that may be frozen or adapted of them: the closed form and the writers count alike (not
 * of RWKV, whose program is the nearest form of it). */
static void
test_counts (void)
{
  guint checked = 0;

  for (SmallModel kind = 0; kind < N_SMALL; kind++) {
    g_autoptr (SpArchitecture) arch = small_model (kind);
    if (kind == SMALL_RWKV7)
      continue;
    for (guint bits = 0; bits < 128 + 16; bits++) {
      SpRun run = { 16, 1, 1, SP_DTYPE_BF16, TRUE };
      run.lora_rank = bits > 0 && bits < 128 ? 3 : 0;
      run.lora_targets = (guint8) (bits & 127);
      run.frozen = bits >= 128 ? bits & 3 : 0;
      run.frozen_layers = bits >= 128 ? bits >> 2 & 3 : 0;
      if (!is_legal (arch, &run))
        continue;
      g_assert_cmpint (laid_out (arch, &run, TRUE), ==, sp_run_trained_parameters (&run, arch));
      checked++;
    }
  }
  g_test_message ("%u runs", checked);
  g_assert_cmpuint (checked, >, 1500);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Llama-3.1-8B, 8,030,261,248 parameters, and 41,943,040 of adapters; gradients fp32. A parameter of the base is 2
 * bytes and nothing else, one of an adapter 2 + 4 + 12. Over 8 ranks ZeRO-1 and 2 shard of that the adapters' part
 * alone; ZeRO-3 the base too, and holds what is gathered beside it: of the embedding, a layer or the head. */
static void
test_base_is_two_bytes (void)
{
  const double base = 8030261248.0, adapters = 41943040;
  g_autoptr (SpArchitecture) arch = load_model ("llama-3.1-8b");
  g_autoptr (SpFramework) framework = load_framework ("flash");
  g_autoptr (SpProgram) program = sp_program_new ();
  SpRun run = { 1024, 1, 8, SP_DTYPE_BF16, TRUE, .lora_rank = 16 };

  for (gint32 zero = 0; zero <= 3; zero++) {
    SpLayout layout = LAYOUT (.data = 8, .zero = zero);
    double shards = zero > 0 ? 8 : 1;
    SpMemory memory;
    write_legal (program, arch, framework, &layout, &run);
    sp_memory_estimate (program, framework, &memory);
    const double *by = memory.by_class;
    g_test_message ("zero %d: parameters %.0f, gradients %.0f, optimizer %.0f", zero, by[SP_CLASS_PARAMETERS],
                    by[SP_CLASS_GRADIENTS], by[SP_CLASS_OPTIMIZER]);
    g_assert_cmpfloat (by[SP_CLASS_OPTIMIZER], ==, 12 * adapters / shards);
    if (zero == 0) {
      g_assert_cmpfloat (by[SP_CLASS_PARAMETERS], ==, 2 * (base + adapters));
      g_assert_cmpfloat (by[SP_CLASS_GRADIENTS], ==, 4 * adapters);
    }
    if (zero == 1 || zero == 2)
      g_assert_cmpfloat (by[SP_CLASS_PARAMETERS], >=, 2 * base);
    if (zero == 3) {
      double gathered = by[SP_CLASS_PARAMETERS] - 2 * (base + adapters) / 8;
      g_assert_true (gathered > 0 && gathered < 2 * (2 * 128256 * 4096.0 + 2.2e8));
    }
  }
}

/* --- work --------------------------------------------------------------------------------------------------------- */

static double
list_gemms (const SpProgram *program, const SpBlock *block, SpPhase phase)
{
  double sum = 0;
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);

  for (guint i = 0; i < n; i++)
    sum += ops[i].kind == SP_OP_GEMM ? ops[i].flops : 0;
  return sum;
}

/* Of all layers and ends, forward and backward of one micro-batch. */
static double
program_gemms (const SpProgram *program)
{
  const SpBlock *blocks = program->variants[0].blocks;
  double sum = 0;

  for (guint b = 0; b < program->n_blocks; b++) {
    guint times = b == 0 || b + 1 == program->n_blocks;
    for (guint l = 0; l < program->n_layers; l++)
      times += program->layer_block[l] == b;
    for (SpPhase phase = SP_PHASE_FORWARD; phase <= SP_PHASE_BACKWARD; phase++)
      sum += times * list_gemms (program, &blocks[b], phase);
  }
  return sum;
}

/* A token's FLOP in matrices are 6 a trained parameter, 4 a frozen one, 2 a frozen one with nothing trained below it;
 * the program's products have as many, and the convention counts as many. Of the mixer, softmax attention over s
 * tokens, 6 x 2 head sizes x heads x s, and a third of it where there is no backward. */
static void
test_flops (void)
{
  static const SpRun runs[] = {
    { 16, 1, 1, SP_DTYPE_BF16, TRUE },
    { 16, 1, 1, SP_DTYPE_BF16, TRUE, .lora_rank = 3 },
    { 16, 1, 1, SP_DTYPE_BF16, TRUE, .lora_rank = 2, .lora_targets = SP_LORA_Q | SP_LORA_DOWN },
    { 16, 1, 1, SP_DTYPE_BF16, TRUE, .frozen = SP_FREEZE_EMBEDDING, .frozen_layers = 1 },
    { 16, 1, 1, SP_DTYPE_BF16, TRUE, .frozen = SP_FREEZE_HEAD, .frozen_layers = 1 },
  };
  static const double layer0[] = { 6, 4, 4, 2, 4 }, layer1[] = { 6, 4, 4, 6, 6 }, head[] = { 6, 4, 4, 6, 4 };
  g_autoptr (SpArchitecture) arch = small_model (SMALL_GQA);
  g_autoptr (SpProgram) program = sp_program_new ();
  SpFramework framework = small_framework (TRUE);
  SpLayout layout = LAYOUT (.zero = 0);
  double layer = (double) sp_architecture_layer_matmul_parameters (arch, SP_LAYER_SOFTMAX);
  double matrix = (double) arch->vocabulary * arch->hidden, mixer = 12.0 * arch->head_size * arch->heads * 16;

  g_assert_cmpint (arch->layers, ==, 2);
  for (guint i = 0; i < G_N_ELEMENTS (runs); i++) {
    double full, causal, tokens = 16, adapters = 0;
    write_legal (program, arch, &framework, &layout, &runs[i]);
    if (runs[i].lora_rank > 0)
      adapters = 6.0 * (double) sp_run_trained_parameters (&runs[i], arch);
    double expected = (layer0[i] + layer1[i]) * layer + head[i] * matrix + adapters;
    g_assert_cmpfloat (program_gemms (program), ==, expected * tokens);
    sp_model_flops (arch, &runs[i], SP_MFU_SEQPAR, &full, &causal);
    expected += mixer * (1 + (layer0[i] == 2 ? 1.0 / 3 : 1));
    g_assert_true (fabs (full - expected) <= 1e-9 * expected);
    sp_model_flops (arch, &runs[i], SP_MFU_MEGATRON, &full, &causal);
    g_assert_true (fabs (full - (6 * (2 * layer + matrix) + 2 * mixer)) <= 1e-9 * full);
  }
}

/* --- what is sent ------------------------------------------------------------------------------------------------- */

static gint64
sent (const SpProgram *program, SpPhase phase)
{
  const SpBlock *block = &program->variants[0].blocks[1];
  gint64 bytes = 0;
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);

  for (guint i = 0; i < n; i++)
    if (sp_op_is_communication (ops[i].kind) && ops[i].axis == SP_AXIS_TENSOR)
      bytes += ops[i].bytes;
  return bytes;
}

/* Over 2 tensor ranks adapters send nothing more for activations: as many bytes as without them. Once a step gradients
 * that are parts are summed, fp32: of q, k, v, gate and up A[r,32], of o and down B[32,r], 7 x 32 r numbers. Norms,
 * whose gradients full training sums too with regions, have none. */
static void
test_tensor (void)
{
  g_autoptr (SpArchitecture) arch = small_model (SMALL_GQA);
  g_autoptr (SpProgram) program = sp_program_new (), full = sp_program_new ();
  SpFramework framework = small_framework (TRUE);
  SpRun all = { 16, 1, 1, SP_DTYPE_BF16, TRUE }, lora = all;

  lora.lora_rank = 3;
  for (guint regions = 0; regions < 2; regions++) {
    SpLayout layout = LAYOUT (.tensor = 2, .sequence_regions = (gboolean) regions);
    write_legal (full, arch, &framework, &layout, &all);
    write_legal (program, arch, &framework, &layout, &lora);
    g_assert_cmpint (sent (program, SP_PHASE_FORWARD), ==, sent (full, SP_PHASE_FORWARD));
    g_assert_cmpint (sent (program, SP_PHASE_BACKWARD), ==, sent (full, SP_PHASE_BACKWARD));
    g_assert_cmpint (sent (program, SP_PHASE_SYNC), ==, 4 * 7 * 3 * arch->hidden);
    g_assert_cmpint (sent (full, SP_PHASE_SYNC), ==, regions ? 4 * 2 * arch->hidden : 0);
  }
}

/* --- no backward -------------------------------------------------------------------------------------------------- */

/* Below everything that is trained nothing is kept, nothing runs backward and nothing is gathered twice. */
static void
test_forward_only (void)
{
  g_autoptr (SpArchitecture) arch = small_model (SMALL_GQA);
  g_autoptr (SpProgram) program = sp_program_new ();
  SpFramework framework = small_framework (TRUE);
  SpRun run = { 16, 1, 4, SP_DTYPE_BF16, TRUE, .frozen = SP_FREEZE_EMBEDDING, .frozen_layers = 1 };
  SpLayout layout = LAYOUT (.data = 2, .zero = 3, .recompute = SP_RECOMPUTE_SELECTIVE);

  write_legal (program, arch, &framework, &layout, &run);
  g_assert_cmpuint (program->n_blocks, ==, 4);
  for (guint b = 0; b < program->n_blocks; b++) {
    const SpBlock *block = &program->variants[0].blocks[b];
    gboolean learns = b >= 2;
    g_assert_true (sp_block_has_backward (block) == learns);
    g_assert_true ((block->segments[SP_PHASE_BACKWARD].n > 0) == learns);
    g_assert_true ((block->segments[SP_PHASE_RECOMPUTE].n > 0) == (b == 2));
    g_assert_true ((block->segments[SP_PHASE_OPTIMIZER].n > 0) == learns);
    g_assert_true (sp_block_gathers_again (block) == learns);
    g_assert_true (learns || sp_memory_block_stash (block) == 0);
  }
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void
assert_refused (SpArchitecture *arch, const SpLayout *layout, const SpRun *run, const char *rule, const char *word)
{
  SpFramework framework = small_framework (TRUE);
  g_autoptr (GError) error = NULL;
  g_autofree char *start = g_strdup_printf ("rule %s: ", rule);

  g_assert_false (sp_layout_check (layout, arch, &framework, run, 0, &error));
  g_assert_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL);
  g_test_message ("%s", error->message);
  g_assert_true (g_str_has_prefix (error->message, start));
  g_assert_nonnull (strstr (error->message, word));
}

static void
test_refusals (void)
{
  static const struct {
    SmallModel model;
    SpRun run;
    const char *rule, *word;
  } cases[] = {
    { SMALL_HYBRID, { .lora_rank = 2 }, "lora", "linear layers" },
    { SMALL_EXPERTS, { .lora_rank = 2 }, "lora", "lora-targets = attention" },
    { SMALL_GATED, { .lora_rank = 2 }, "lora", "k, v, o, gate" },
    { SMALL_LATENT, { .lora_rank = 2, .lora_targets = SP_LORA_V }, "lora", "k and v together" },
    { SMALL_GPT, { .lora_rank = 2, .lora_targets = SP_LORA_GATE }, "lora", "up or down" },
    { SMALL_GQA, { .lora_rank = 2, .frozen = SP_FREEZE_HEAD }, "lora-frozen", "frozen = none" },
    { SMALL_GQA, { .lora_rank = 2, .frozen_layers = 1 }, "lora-frozen", "frozen = none" },
    { SMALL_GQA, { .frozen_layers = 3 }, "frozen-layers", "at most first-2" },
    { SMALL_GQA, { .frozen = SP_FREEZE_HEAD | SP_FREEZE_EMBEDDING, .frozen_layers = 2 }, "frozen-all", "first-1" },
    { SMALL_TIED, { .frozen = SP_FREEZE_HEAD }, "frozen-tied", "embedding,head" },
    { SMALL_GATED_DELTA, { .frozen_layers = 1 }, "frozen-recurrent", "embedding or head" },
    { SMALL_GQA, { .frozen = SP_FREEZE_EMBEDDING, .frozen_layers = 1 }, "frozen-stage", "stage-split" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (SpArchitecture) arch = small_model (cases[i].model);
    SpLayout layout = SP_LAYOUT_DEFAULT;
    SpRun run = cases[i].run;
    run.sequence = 16;
    run.micro_batch = 1;
    run.global_batch = 2;
    run.precision = SP_DTYPE_BF16;
    run.causal = TRUE;
    layout.pipeline = g_str_equal (cases[i].rule, "frozen-stage") ? 2 : 1;
    assert_refused (arch, &layout, &run, cases[i].rule, cases[i].word);
  }
}

/* 8 kinds of layers, twice for every second one is recomputed, and each twice for half of them are frozen: 32. */
static void
test_too_many_kinds (void)
{
  g_autoptr (SpArchitecture) arch = small_model (SMALL_EXPERTS);
  SpLayout layout = SP_LAYOUT_DEFAULT;
  SpRun run = { 16, 1, 2, SP_DTYPE_BF16, TRUE };

  arch->window = 5;
  arch->layers = 64;
  for (gint32 l = 0; l < arch->layers; l++)
    arch->layer_kind[l] = (guint8) ((l / 2 % 8) << 1);
  layout.recompute = SP_RECOMPUTE_FULL;
  layout.recompute_every = 2;
  run.frozen_layers = 32;
  assert_refused (arch, &layout, &run, "frozen-kinds", "use embedding or head alone");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/trained/published-counts", test_published_counts);
  g_test_add_func ("/trained/counts", test_counts);
  g_test_add_func ("/trained/base-is-two-bytes", test_base_is_two_bytes);
  g_test_add_func ("/trained/flops", test_flops);
  g_test_add_func ("/trained/tensor", test_tensor);
  g_test_add_func ("/trained/forward-only", test_forward_only);
  g_test_add_func ("/trained/refusals", test_refusals);
  g_test_add_func ("/trained/too-many-kinds", test_too_many_kinds);
  return g_test_run ();
}
