/* SPDX-License-Identifier: Apache-2.0 */
#include "models/writer.h"
#include "tests/random-layouts.h"
#include "tests/small-models.h"

#include <string.h>

/*
 * Room in a program: a layout whose blocks have more buffers than a program has slots for is refused in one line, and
 * what the line says to use instead is accepted; all others are written.
 */

/* As DeepSeek-V3: latent attention, whose four products are eight fp8 casts, and experts beside a dense part. */
static SpArchitecture *
rich_model (void)
{
  SpArchitecture *arch = small_model (SMALL_LATENT_EXPERTS);

  arch->moe.shared_ffn = 24;
  arch->moe.shared_gate = arch->moe.bias = arch->projection_bias = TRUE;
  return arch;
}

static const SpLayout rich_layout =
    LAYOUT (.tensor = 2, .ulysses = 2, .ring = 4, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2,
            .ring_backward = SP_RING_BACKWARD_Q, .expert = 2, .zero = 3, .recompute = SP_RECOMPUTE_SELECTIVE,
            .gradient_dtype = SP_DTYPE_BF16);

static const SpRun rich_run = { .sequence = 64,
                                .micro_batch = 1,
                                .global_batch = 2,
                                .precision = SP_DTYPE_BF16,
                                .causal = TRUE,
                                .fp8 = TRUE,
                                .optimizer = SP_OPTIMIZER_MUON };

static guint
count (const SpArchitecture *arch, const SpFramework *framework, const SpLayout *layout, const SpRun *run)
{
  g_autoptr (SpProgram) program = sp_program_new ();

  return sp_program_count_slots (program, arch, framework, layout, run);
}

static void
test_refused (void)
{
  g_autoptr (SpArchitecture) arch = rich_model ();
  SpFramework framework = small_framework (TRUE);
  g_autoptr (GError) error = NULL;
  g_autofree char *number = NULL;

  framework.selective_attention = TRUE;
  g_assert_false (sp_layout_check (&rich_layout, arch, &framework, &rich_run, 16, NULL));
  g_assert_false (sp_layout_check (&rich_layout, arch, &framework, &rich_run, 16, &error));
  g_assert_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL);
  g_test_message ("%s", error->message);
  g_assert_true (g_str_has_prefix (error->message, "rule block-buffers: precision = fp8, optimizer = muon, "));
  g_assert_null (strchr (error->message, '\n'));
  number = g_strdup_printf ("make %u buffers", count (arch, &framework, &rich_layout, &rich_run));
  g_assert_nonnull (strstr (error->message, number));
  g_assert_nonnull (strstr (error->message, "has room for 254"));
}

/* What it offers fits, and is on as many GPUs. */
static void
test_offered (void)
{
  g_autoptr (SpArchitecture) arch = rich_model ();
  SpFramework framework = small_framework (TRUE);
  SpLayout layout = rich_layout;
  SpRun run = rich_run;
  g_autoptr (GError) error = NULL;

  framework.selective_attention = TRUE;
  g_assert_false (sp_layout_check (&layout, arch, &framework, &run, 16, &error));
  g_assert_nonnull (strstr (error->message, "use precision = bf16 or "));
  run.fp8 = FALSE;
  g_assert_true (sp_layout_check (&layout, arch, &framework, &run, 16, NULL));
  g_assert_cmpuint (count (arch, &framework, &layout, &run), <, SP_MAX_SLOTS);
  g_autoptr (SpProgram) program = sp_program_new ();
  sp_program_write (program, arch, &framework, &layout, &run);

  g_assert_nonnull (strstr (error->message, " or tensor = 1, data = 2"));
  run.fp8 = TRUE;
  layout.tensor = 1;
  layout.data = 2;
  g_assert_true (sp_layout_check (&layout, arch, &framework, &run, 16, NULL));
  sp_program_write (program, arch, &framework, &layout, &run);
}

/* The count is the number of slots of what is written: 1 to n_buffers - 1 of the largest block. */
static void
test_count (void)
{
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint kind = 0; kind < N_SMALL; kind++) {
    g_autoptr (SpArchitecture) arch = small_model ((SmallModel) kind);
    SpFramework framework = small_framework (TRUE);
    SpLayout layout = SP_LAYOUT_DEFAULT;
    SpRun run = { .sequence = 32, .micro_batch = 1, .global_batch = 1, .precision = SP_DTYPE_BF16, .causal = TRUE };
    guint most = 0;
    if (!sp_layout_check (&layout, arch, &framework, &run, 0, NULL))
      continue;
    sp_program_write (program, arch, &framework, &layout, &run);
    for (guint b = 0; b < program->n_blocks; b++)
      most = MAX (most, program->variants[0].blocks[b].n_buffers - 1u);
    g_assert_cmpuint (count (arch, &framework, &layout, &run), ==, most);
  }
}

static guint
features (const Draw *d)
{
  return (d->layout.tensor > 1) + (d->layout.ulysses > 1) + (d->layout.ring > 1 || d->layout.lasp > 1) +
         (d->run.fp8 != 0) + (d->run.optimizer == SP_OPTIMIZER_MUON) +
         (sp_architecture_has_bit (d->arch, SP_LAYER_EXPERTS) != 0) + (d->arch->latent.kv_rank > 0);
}

/* What is not counted, because at most four of what makes many buffers are there, is far from having too many. */
static void
test_uncounted (void)
{
  static const DrawLimits limits = { .experts = TRUE,
                                     .families = TRUE,
                                     .kinds = DRAW_ANY,
                                     .data = { 1, 2 },
                                     .tensor = { 1, 4 },
                                     .pipeline = { 1, 2 },
                                     .ulysses = { 1, 3 },
                                     .ring = { 1, 4 },
                                     .lasp = { 1, 4 } };
  g_autoptr (GRand) rand = draw_rand_new ();
  guint most = 0, refused = 0;

  for (guint i = 0; i < 3000; i++) {
    Draw draw;
    draw_legal (rand, &limits, &draw);
    draw.arch->moe.bias = draw_int (rand, 0, 1) && draw.arch->moe.experts > 0;
    draw.run.fp8 = draw_int (rand, 0, 1);
    draw.run.optimizer = draw_int (rand, 0, 1) ? SP_OPTIMIZER_MUON : SP_OPTIMIZER_ADAMW;
    draw.layout.offload = (guint8) draw_int (rand, 0, SP_OFFLOAD_ALL);
    g_autoptr (GError) error = NULL;
    if (!sp_layout_check (&draw.layout, draw.arch, &draw.framework, &draw.run, 0, &error))
      refused += g_str_has_prefix (error->message, "rule block-buffers");
    else if (features (&draw) < 5)
      most = MAX (most, count (draw.arch, &draw.framework, &draw.layout, &draw.run));
    draw_clear (&draw);
  }
  g_test_message ("at most %u buffers where they are not counted; %u layouts refused for theirs", most, refused);
  g_assert_cmpuint (most, >, 120);
  g_assert_cmpuint (most, <, SP_MAX_SLOTS - 15);
}

/* The same of the rich model, which has experts and latent attention, without three of the rest. */
static void
test_rich_uncounted (void)
{
  g_autoptr (SpArchitecture) arch = rich_model ();
  SpFramework framework = small_framework (TRUE);
  guint most = 0;

  framework.selective_attention = TRUE;
  for (guint without = 0; without < 1 << 5; without++) {
    SpLayout layout = rich_layout;
    SpRun run = rich_run;
    guint n = 0;
    for (guint bit = 0; bit < 5; bit++)
      n += without >> bit & 1;
    if (n != 3)
      continue;
    layout.data = 2; /* for the experts */
    layout.tensor = without & 1 ? 1 : layout.tensor;
    layout.ulysses = without & 2 ? 1 : layout.ulysses;
    if (without & 4) {
      layout.ring = 1;
      layout.ring_kind = SP_RING_P2P;
      layout.ring_backward = SP_RING_BACKWARD_KV;
    }
    run.fp8 = !(without & 8);
    run.optimizer = without & 16 ? SP_OPTIMIZER_ADAMW : SP_OPTIMIZER_MUON;
    g_assert_true (sp_layout_check (&layout, arch, &framework, &run, 0, NULL));
    most = MAX (most, count (arch, &framework, &layout, &run));
  }
  g_test_message ("at most %u", most);
  g_assert_cmpuint (most, >, 120);
  g_assert_cmpuint (most, <, SP_MAX_SLOTS - 15);
}

/* The most loops that there are: a double ring of 16 rounds, forward, again and backward, and an MLP in tiles. */
static void
test_loops (void)
{
  g_autoptr (SpArchitecture) arch = small_model (SMALL_SOFTMAX);
  SpFramework framework = small_framework (TRUE);
  SpLayout layout = LAYOUT (.ring = 32, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2, .recompute = SP_RECOMPUTE_FULL,
                            .mlp_tiles = 2, .loss = SP_LOSS_CHUNKED, .loss_chunks = 2);
  SpRun run = { .sequence = 128, .micro_batch = 1, .global_batch = 1, .precision = SP_DTYPE_BF16, .causal = TRUE };
  g_autoptr (SpProgram) program = sp_program_new ();
  guint most = 0;

  g_assert_true (sp_layout_check (&layout, arch, &framework, &run, 32, NULL));
  sp_program_write (program, arch, &framework, &layout, &run);
  for (guint b = 0; b < program->n_blocks; b++)
    most = MAX (most, program->variants[0].blocks[b].n_loops);
  g_assert_cmpuint (most, >=, 3 * 16 + 2);
  g_assert_cmpuint (most, <=, SP_MAX_LOOPS);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/slots/refused", test_refused);
  g_test_add_func ("/slots/offered", test_offered);
  g_test_add_func ("/slots/count", test_count);
  g_test_add_func ("/slots/uncounted", test_uncounted);
  g_test_add_func ("/slots/rich-uncounted", test_rich_uncounted);
  g_test_add_func ("/slots/loops", test_loops);
  return g_test_run ();
}
