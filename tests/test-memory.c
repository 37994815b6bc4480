/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/memory.h"
#include "models/rehearse/rehearse.h"
#include "models/writer.h"
#include "tests/memory-walk.h"
#include "tests/random-layouts.h"
#include "tests/rehearse-cases.h"

/* Memory over the walk, without an engine: equal to the storage that the rehearsal made and dropped, rank by rank and
 * class by class. tests/test-memory-hand.c has one program in figures,
 * tests/test-memory-bound.c holds it against the estimate's. */

static const char *const class_letters = "PGOALCWR";

static char *
describe_classes (const gint64 *by_class)
{
  GString *out = g_string_new (NULL);

  for (guint c = 0; c < SP_N_CLASSES; c++)
    g_string_append_printf (out, " %c%" G_GINT64_FORMAT, class_letters[c], by_class[c]);
  return g_string_free (out, FALSE);
}

/* --- the rehearsal ------------------------------------------------------------------------------------------------ */

static gint64
check_rank (const SpProgram *program, SpMemoryPlan *plan, const SpWalkPlan *walks, gint32 rank,
            const SpRehearsedRank *expected)
{
  SpMemoryState state;

  sp_memory_start_rank (plan, rank, &state);
  walk_step (plan, walks, &state);
  gint64 peak = state.peak_bytes;
  if (peak != expected->peak_bytes ||
      memcmp (state.peak_by_class, expected->peak_by_class, sizeof state.peak_by_class) != 0) {
    g_autofree char *got = describe_classes (state.peak_by_class), *want = describe_classes (expected->peak_by_class);
    g_test_message ("rank %d: %" G_GINT64_FORMAT "%s, rehearsed %" G_GINT64_FORMAT "%s", rank, peak, got,
                    expected->peak_bytes, want);
    g_test_fail ();
  }
  check_list (program, plan, rank, &state);
  sp_memory_state_clear (&state);
  return peak;
}

static void
check_program (const SpProgram *program)
{
  g_autoptr (GError) error = NULL;
  gint64 largest = 0;

  g_autoptr (SpRehearsal) rehearsal = sp_rehearse (program, 7, &error);
  g_assert_no_error (error);
  g_autoptr (SpWalkPlan) walks = sp_walk_plan_new (program, SP_ORDER_PROGRAM);
  g_autoptr (SpMemoryPlan) plan = sp_memory_plan_new (program, walks, &error);
  g_assert_no_error (error);
  for (gint32 rank = 0; rank < program->world; rank++)
    largest = MAX (largest, check_rank (program, plan, walks, rank, &rehearsal->ranks[rank]));
  check_items (plan, walks, 0, 1);
  check_items (plan, walks, program->world - 1, 3);
  g_assert_cmpint (largest_of_stages (program, plan, walks), >=, largest);
}

static void
test_rehearsal (gconstpointer data)
{
  g_autoptr (SpProgram) program = sp_program_new ();

  rehearse_case_write (data, program);
  check_program (program);
}

/* A layout under each schedule that takes it: of two stages with four layers, two chunks where there may be any. */
static const struct {
  const char *name;
  SmallModel model;
  gint32 global_batch, micro_batch;
  SpLayout layout;
} scheduled[] = {
  { "plain", SMALL_GQA, 4, 1, LAYOUT (.pipeline = 2, .zero = 0) },
  { "uneven", SMALL_SOFTMAX, 11, 3, LAYOUT (.pipeline = 2, .zero = 0) },
  { "full", SMALL_GPT, 6, 1, LAYOUT (.pipeline = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "tied", SMALL_TIED, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1) },
  { "zero-2", SMALL_SOFTMAX, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 2, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "zero-3", SMALL_GQA, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 3) },
  { "zero-3-kept", SMALL_GPT, 12, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 3, .reshard = FALSE) },
  { "lasp", SMALL_LINEAR, 4, 1, LAYOUT (.pipeline = 2, .lasp = 3, .lasp_version = 1) },
  { "ring", SMALL_GQA, 4, 1, LAYOUT (.pipeline = 2, .ring = 3, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "four-stages", SMALL_GQA, 8, 1, LAYOUT (.pipeline = 4, .zero = 0) },
};

static void
test_scheduled (gconstpointer data)
{
  guint i = GPOINTER_TO_UINT (data) / sp_schedule_count (), row = GPOINTER_TO_UINT (data) % sp_schedule_count ();
  g_autoptr (SpArchitecture) arch = small_model (scheduled[i].model);
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;
  SpFramework framework = small_framework (TRUE);
  SpLayout layout = scheduled[i].layout;
  SpRun run = { 36, scheduled[i].micro_batch, scheduled[i].global_batch, SP_DTYPE_BF16, TRUE };

  layout.schedule = (guint8) row;
  layout.virtual_stages = sp_schedule_get (row)->chunked ? 2 : 1;
  layout.overlap = FALSE;
  arch->layers = MAX (4, layout.virtual_stages * layout.pipeline);
  for (gint32 l = 2; l < arch->layers; l++)
    arch->layer_kind[l] = arch->layer_kind[l - 2];
  if (!sp_layout_check (&layout, arch, &framework, &run, 0, &error)) {
    g_test_skip (error->message);
    return;
  }
  sp_program_write (program, arch, &framework, &layout, &run);
  program->numbers.adam_epsilon = 1e-5;
  check_program (program);
}

/* --- random ------------------------------------------------------------------------------------------------------- */

/* Each seventh moment, in either order, of random layouts. */
static void
check_draw (const Draw *draw)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;

  sp_program_write (program, draw->arch, &draw->framework, &draw->layout, &draw->run);
  for (SpWalkOrder order = SP_ORDER_PROGRAM; order <= SP_ORDER_EAGER; order++) {
    g_autoptr (SpWalkPlan) walks = sp_walk_plan_new (program, order);
    g_autoptr (SpMemoryPlan) plan = sp_memory_plan_new (program, walks, &error);
    g_assert_no_error (error);
    largest_of_stages (program, plan, walks);
    check_items (plan, walks, program->world / 2, 7);
  }
}

static void
test_random (void)
{
  static const DrawLimits limits = { .experts = TRUE,
                                     .slices = TRUE,
                                     .eager = TRUE,
                                     .families = TRUE,
                                     .kinds = DRAW_ANY,
                                     .data = { 1, 4 },
                                     .tensor = { 1, 4 },
                                     .pipeline = { 1, 4 },
                                     .ulysses = { 1, 3 },
                                     .ring = { 1, 4 },
                                     .lasp = { 1, 4 } };
  g_autoptr (GRand) rand = draw_rand_new ();

  for (guint i = 0; i < 300; i++) {
    Draw draw;
    draw_legal (rand, &limits, &draw);
    check_draw (&draw);
    draw_clear (&draw);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  for (guint i = 0; i < G_N_ELEMENTS (rehearse_cases); i++) {
    g_autofree char *path = g_strdup_printf ("/memory/rehearsal/%s", rehearse_cases[i].name);
    g_test_add_data_func (path, &rehearse_cases[i], test_rehearsal);
  }
  for (guint i = 0; i < G_N_ELEMENTS (scheduled) * sp_schedule_count (); i++) {
    g_autofree char *path = g_strdup_printf ("/memory/scheduled/%s/%s", scheduled[i / sp_schedule_count ()].name,
                                             sp_schedule_get (i % sp_schedule_count ())->name);
    g_test_add_data_func (path, GUINT_TO_POINTER (i), test_scheduled);
  }
  g_test_add_func ("/memory/random", test_random);
  return g_test_run ();
}
