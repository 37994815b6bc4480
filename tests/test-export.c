/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "models/explain.h"
#include "models/inputs/run-files/run-file.h"
#include "models/questions/questions.h"

/* The best layout as a run file: what is written is what is promised, and nothing that the format can say beats it. */

static SpScenario *
load_run_file (const char *name, const char *text, const char *model, const char *cluster, const char *set)
{
  g_autoptr (GError) error = NULL;
  const char *const sets[] = { set, NULL };
  const SpRunGiven given = { .model = model, .cluster = cluster, .sets = sets };
  g_autoptr (SpRunFile) file = sp_run_file_parse (name, text, strlen (text), &error);

  g_assert_no_error (error);
  SpScenario *scenario = sp_run_file_load (file, &given, &error);
  g_assert_no_error (error);
  return scenario;
}

static SpScenario *
load_shipped (const char *name, const char *cluster)
{
  g_autofree char *path = g_build_filename (sp_data_dir (), "run-files", name, NULL);
  g_autofree char *text = NULL;
  g_autoptr (GError) error = NULL;

  g_file_get_contents (path, &text, NULL, &error);
  g_assert_no_error (error);
  return load_run_file (name, text, NULL, cluster, NULL);
}

static double
price (SpEstimator *estimator, const SpLayout *layout, const SpRun *run, gboolean *ret_fits)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  SpEstimate estimate;

  sp_estimate_layout (estimator, program, layout, run, &estimate);
  *ret_fits = estimate.fits;
  return estimate.step_time_s;
}

/* --- what is promised --------------------------------------------------------------------------------------------- */

typedef struct {
  const char *file, *cluster, *format;
  gboolean own; /* the file's own format */
} Case;

static const Case cases[] = {
  { "qwen-swift.sh", "a800-1x8", "swift", TRUE },
  { "qwen-swift.sh", "a800-1x8", "deepspeed" },
  { "qwen-megatron-swift.sh", "a800-1x8", "megatron-swift", TRUE }, /* once 141 GiB of 80 */
  { "qwen-megatron-swift.sh", "a800-1x8", "llamafactory" },
  { "qwen-verl.sh", "a800-1x8", "verl", TRUE }, /* once 808 s, the file itself 786 s */
  { "qwen-verl.sh", "a800-1x8", "megatron" },
  { "llama-llamafactory.yaml", "a800-2x8", "llamafactory", TRUE },
  { "llama-llamafactory.yaml", "a800-2x8", "torchtitan" },
};

/* Somebody else reads it, with the model and the length where the file has none: the same step, and it fits. */
static void
test_promised (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (SpScenario) mine = load_shipped (c->file, c->cluster);
  g_autoptr (GError) error = NULL;
  SpEstimator estimator;
  gboolean fits;

  sp_estimator_init (&estimator, mine->arch, mine->cluster, mine->framework, SP_MFU_SEQPAR);
  const SpPlanQuestion question = sp_explain_question (mine);
  g_autoptr (SpPlanExport) exported = sp_plan_export (&estimator, mine, &question, c->format, TRUE, &error);
  g_assert_no_error (error);
  g_test_message ("%s", exported->text->str);
  g_assert_true (exported->entry.estimate.fits);
  g_assert_false (exported->is_part);

  g_autofree char *set = g_strdup_printf ("run.sequence=%" G_GINT64_FORMAT, mine->run.sequence);
  g_autofree char *model = g_path_get_basename (mine->model_path);
  gboolean bare = g_str_equal (c->format, "deepspeed");
  g_autoptr (SpScenario) back =
      load_run_file (c->format, exported->text->str, model, c->cluster, bare ? set : "run.causal=true");
  /* What DeepSpeed's file leaves to its program is the plan's. */
  if (bare) {
    back->layout.recompute = exported->entry.layout.recompute;
    back->layout.loss = exported->entry.layout.loss;
    back->layout.loss_chunks = exported->entry.layout.loss_chunks;
  }
  g_assert_cmpfloat (price (&estimator, &back->layout, &back->run, &fits), ==, exported->entry.estimate.step_time_s);
  g_assert_true (fits);
  if (c->own)
    g_assert_cmpfloat (exported->entry.estimate.step_time_s, <=, price (&estimator, &mine->layout, &mine->run, &fits));
}

/* --- nothing beats it --------------------------------------------------------------------------------------------- */

/* Every layout of the space, written, read and priced one by one. */
static void
test_all (gconstpointer data)
{
  const char *format = data;
  g_autoptr (SpScenario) mine = load_shipped ("qwen-swift.sh", "a800-1x8");
  g_autoptr (GError) error = NULL;
  SpEstimator estimator;
  double best_s = G_MAXDOUBLE;
  guint carried = 0;

  sp_estimator_init (&estimator, mine->arch, mine->cluster, mine->framework, SP_MFU_SEQPAR);
  SpPlanQuestion question = sp_explain_question (mine);
  g_autoptr (SpPlanExport) exported = sp_plan_export (&estimator, mine, &question, format, FALSE, &error);
  g_assert_no_error (error);
  question.top = 4000;
  g_autoptr (SpPlan) plan = sp_plan (&estimator, &question, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (plan->entries->len, <, question.top); /* all that fit */
  for (guint i = 0; i < plan->entries->len; i++) {
    const SpPlanEntry *entry = &g_array_index (plan->entries, SpPlanEntry, i);
    const SpScenario written = sp_scenario_with (mine, &entry->layout, &entry->run, 0);
    SpLayout layout;
    SpRun run;
    gboolean fits;
    if (sp_run_file_carries (&written, format, &layout, &run) == SP_RUN_CARRIES_NOT ||
        !sp_layout_check (&layout, mine->arch, mine->framework, &run, 8, NULL))
      continue;
    carried++;
    double step_s = price (&estimator, &layout, &run, &fits);
    if (fits)
      best_s = MIN (best_s, step_s);
  }
  g_test_message ("%s: %u of %u carried; best %g s, exported %g s", format, carried, plan->entries->len, best_s,
                  exported->entry.estimate.step_time_s);
  g_assert_cmpuint (carried, >, 10);
  g_assert_cmpfloat (exported->entry.estimate.step_time_s, <=, best_s);
}

/* --- what is said ------------------------------------------------------------------------------------------------- */

static gboolean
says (const GPtrArray *lost, const char *begin)
{
  for (guint i = 0; i < lost->len; i++)
    if (g_str_has_prefix (lost->pdata[i], begin))
      return TRUE;
  return FALSE;
}

/* What no file of a format can say is lost of the scenario's own, too. */
static void
test_base (void)
{
  g_autoptr (SpScenario) mine = load_shipped ("qwen-megatron-swift.sh", "a800-1x8");
  g_autoptr (GError) error = NULL;
  SpEstimator estimator;

  g_assert_cmpint (mine->layout.gradient_dtype, ==, SP_DTYPE_FP32);
  sp_estimator_init (&estimator, mine->arch, mine->cluster, mine->framework, SP_MFU_SEQPAR);
  const SpPlanQuestion question = sp_explain_question (mine);
  g_autoptr (SpPlanExport) exported = sp_plan_export (&estimator, mine, &question, "swift", TRUE, &error);
  g_assert_no_error (error);
  g_assert_true (says (exported->lost, "not carried: layout.gradient-dtype = fp32 (read back it is bf16)"));
  g_assert_cmpint (exported->entry.layout.gradient_dtype, ==, SP_DTYPE_BF16);
}

/* The best, read again and asked about again, is the best: the same file. */
static void
test_again (void)
{
  g_autoptr (SpScenario) mine = load_shipped ("qwen-verl.sh", "a800-1x8");
  g_autoptr (GError) error = NULL;
  SpEstimator estimator;

  sp_estimator_init (&estimator, mine->arch, mine->cluster, mine->framework, SP_MFU_SEQPAR);
  SpPlanQuestion question = sp_explain_question (mine);
  g_autoptr (SpPlanExport) first = sp_plan_export (&estimator, mine, &question, "verl", TRUE, &error);
  g_assert_no_error (error);
  g_assert_false (first->is_own);
  g_autoptr (SpScenario) better = load_run_file ("again", first->text->str, NULL, "a800-1x8", "run.causal=true");
  question = sp_explain_question (better);
  g_autoptr (SpPlanExport) second = sp_plan_export (&estimator, better, &question, "verl", TRUE, &error);
  g_assert_no_error (error);
  g_assert_cmpfloat (second->entry.estimate.step_time_s, ==, first->entry.estimate.step_time_s);
  g_assert_cmpstr (second->text->str, ==, first->text->str);
}

/* Nothing fits: one line. */
static void
test_none (void)
{
  g_autoptr (SpScenario) mine = load_shipped ("qwen-swift.sh", "a800-1x8");
  g_autoptr (GError) error = NULL;
  SpEstimator estimator;

  sp_estimator_init (&estimator, mine->arch, mine->cluster, mine->framework, SP_MFU_SEQPAR);
  SpPlanQuestion question = sp_explain_question (mine);
  question.sequence = 64 << 20;
  g_assert_null (sp_plan_export (&estimator, mine, &question, "swift", FALSE, &error));
  g_assert_nonnull (error);
  g_assert_null (strchr (error->message, '\n'));
}

int
main (int argc, char **argv)
{
  static const char *const formats[] = { "swift", "megatron-swift", "verl", "llamafactory" };

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *path = g_strdup_printf ("/export/promised/%s/%s", cases[i].file, cases[i].format);
    g_test_add_data_func (path, &cases[i], test_promised);
  }
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++) {
    g_autofree char *path = g_strconcat ("/export/all/", formats[i], NULL);
    g_test_add_data_func (path, formats[i], test_all);
  }
  g_test_add_func ("/export/base", test_base);
  g_test_add_func ("/export/again", test_again);
  g_test_add_func ("/export/none", test_none);
  return g_test_run ();
}
