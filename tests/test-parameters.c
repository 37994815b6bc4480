/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/shipped.h"
#include "tests/small-models.h"

/* The weights that a program without tensor or pipeline ranks lays out, all blocks and layers, are the model's
 * parameters: counted from the shape alone (inputs/architecture-count.c) and from the writers (layers/). */

/* Of all ranks: of experts, each has a part. */
static gint64
block_parameters (const SpProgram *program, const SpBlock *block)
{
  gint64 sum = 0;

  for (guint i = 0; i < block->n_weights; i++) {
    const SpWeight *weight = &block->weights[i];
    gboolean of_experts = block->flats[weight->flat].group == SP_GROUP_EXPERT_DATA;
    sum += (gint64) weight->rows * weight->cols * (of_experts ? program->groups[SP_GROUP_EXPERT].size : 1);
  }
  return sum;
}

static gint64
program_parameters (const SpProgram *program)
{
  const SpBlock *blocks = program->variants[0].blocks;
  gint64 sum = block_parameters (program, &blocks[0]) + block_parameters (program, &blocks[program->n_blocks - 1]);

  for (guint l = 0; l < program->n_layers; l++)
    sum += block_parameters (program, &blocks[program->layer_block[l]]);
  return sum;
}

/* FALSE where no program has the model yet; its reason is then on the log. */
static gboolean
check_model (const char *name, const SpArchitecture *arch)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;
  SpFramework framework = small_framework (TRUE);
  SpLayout layout = LAYOUT (.zero = 0);
  SpRun run = { 16, 1, MAX (arch->moe.experts, 1), SP_DTYPE_BF16, TRUE };

  if (sp_architecture_has_bit (arch, SP_LAYER_EXPERTS))
    layout.data = layout.expert = arch->moe.experts; /* all of them on one rank may be more than it can have */
  if (!sp_layout_check (&layout, arch, &framework, &run, 0, &error)) {
    g_test_message ("%s: %s", name, error->message);
    return FALSE;
  }
  sp_program_write_state (program, arch, &framework, &layout, &run);
  gint64 laid_out = program_parameters (program), counted = sp_architecture_parameters (arch);
  /* RWKV's program is the nearest form of it (layers/families.h): without its token shifts' and with other low ranks. */
  gboolean nearest = sp_architecture_has (arch, SP_LAYER_LINEAR) &&
                     (arch->linear.family == SP_LINEAR_RWKV6 || arch->linear.family == SP_LINEAR_RWKV7);
  g_test_message ("%s: %" G_GINT64_FORMAT " laid out, %" G_GINT64_FORMAT " counted", name, laid_out, counted);
  if (nearest)
    g_assert_true (ABS (laid_out - counted) < counted / 10);
  else
    g_assert_cmpint (laid_out, ==, counted);
  return TRUE;
}

static void
test_small (void)
{
  for (SmallModel kind = 0; kind < N_SMALL; kind++) {
    g_autoptr (SpArchitecture) arch = small_model (kind);
    g_autofree char *name = g_strdup_printf ("small model %d", kind);
    g_assert_true (check_model (name, arch));
  }
}

/* How many of the folder's models a program has. */
static guint
check_folder (const char *path)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GDir) folder = g_dir_open (path, 0, &error);
  guint written = 0;

  g_assert_no_error (error);
  for (const char *name = g_dir_read_name (folder); name != NULL; name = g_dir_read_name (folder)) {
    g_autofree char *file = g_build_filename (path, name, NULL);
    g_autoptr (GError) unreadable = NULL;
    if (!g_str_has_suffix (name, ".json") && !g_str_has_suffix (name, ".ini"))
      continue;
    g_autoptr (SpArchitecture) arch = sp_architecture_load (file, &unreadable);
    if (arch == NULL)
      g_test_message ("%s", unreadable->message);
    else
      written += check_model (name, arch);
  }
  return written;
}

static void
test_shipped (void)
{
  g_autofree char *path = g_build_filename (g_getenv ("SEQPAR_DATA"), "models", NULL);

  g_assert_cmpuint (check_folder (path), >=, 20);
}

static void
test_shared (void)
{
  const char *shared = g_getenv ("SEQPAR_SHARED");
  if (shared == NULL) {
    g_test_skip ("SEQPAR_SHARED is not set: no public model files");
    return;
  }
  g_autofree char *path = g_build_filename (shared, "reference", "cases", "configs", NULL);

  g_assert_cmpuint (check_folder (path), >, 0);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/parameters/small", test_small);
  g_test_add_func ("/parameters/shipped", test_shipped);
  g_test_add_func ("/parameters/shared", test_shared);
  return g_test_run ();
}
