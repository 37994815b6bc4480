/* SPDX-License-Identifier: Apache-2.0 */
#include "models/memory.h"
#include "models/rehearse.h"
#include "models/writer.h"
#include "tests/small-models.h"

#include <math.h>

/* Every strategy and mix: loss, gradients and updated parameters equal the one-rank run's, the copier's bytes equal the
 * estimate's payload, and the storage that lived at once equals the estimate's memory. */

typedef struct {
  const char *name;
  SmallModel model;
  gboolean unfused;
  gint32 sequence, global_batch, micro_batch;
  SpLayout layout;
} Case;

/* clang-format off */
static const Case cases[] = {
  { "one", SMALL_SOFTMAX, 0, 32, 2, 1, LAYOUT (.zero = 0) },
  { "recompute-full", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.recompute = SP_RECOMPUTE_FULL) },
  { "recompute-selective", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.recompute = SP_RECOMPUTE_SELECTIVE) },
  { "micro-batch", SMALL_GQA, 0, 32, 6, 3, LAYOUT (.zero = 0) },
  { "data", SMALL_SOFTMAX, 0, 32, 4, 1, LAYOUT (.data = 4, .zero = 0) },
  { "data-uneven", SMALL_SOFTMAX, 0, 32, 10, 2, LAYOUT (.data = 2, .zero = 0) },
  { "data-padded", SMALL_SOFTMAX, 0, 32, 7, 2, LAYOUT (.data = 2, .zero = 1) },
  { "zero-1", SMALL_SOFTMAX, 0, 32, 4, 1, LAYOUT (.data = 4, .zero = 1) },
  { "zero-2", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 2) },
  { "zero-3", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3) },
  { "zero-3-kept", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3, .reshard = FALSE) },
  { "zero-3-uneven-shards", SMALL_GPT, 0, 30, 6, 1, LAYOUT (.data = 3, .zero = 3) },
  { "zero-3-tied", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3) },
  { "tensor", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "tensor-regions", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.tensor = 4) },
  { "tensor-gpt", SMALL_GPT, 0, 32, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "tensor-regions-gpt", SMALL_GPT, 0, 32, 2, 1, LAYOUT (.tensor = 4) },
  { "tensor-regions-gpt-full", SMALL_GPT, 1, 32, 2, 1, LAYOUT (.tensor = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "unfused", SMALL_GPT, 1, 32, 2, 2, LAYOUT (.zero = 0) },
  { "unfused-selective", SMALL_GPT, 1, 32, 2, 1, LAYOUT (.tensor = 4, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "unfused-ulysses", SMALL_TIED, 1, 32, 2, 1, LAYOUT (.ulysses = 4) },
  { "tensor-linear", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "tensor-regions-linear", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.tensor = 4) },
  { "pipeline", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.pipeline = 2) },
  { "pipeline-tied", SMALL_TIED, 0, 32, 4, 1, LAYOUT (.pipeline = 2) },
  { "pipeline-tied-data", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1) },
  { "pipeline-full", SMALL_GPT, 0, 32, 5, 1, LAYOUT (.pipeline = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "pipeline-zero-3", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 3) },
  { "ulysses", SMALL_SOFTMAX, 0, 32, 2, 2, LAYOUT (.ulysses = 4) },
  { "ulysses-gqa", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ulysses = 4) },
  { "ulysses-replicated", SMALL_MQA, 0, 32, 2, 2, LAYOUT (.ulysses = 8, .zero = 3) },
  { "ulysses-linear", SMALL_LINEAR, 0, 32, 2, 2, LAYOUT (.ulysses = 4) },
  { "ring-zigzag", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ring = 4) },
  { "ring-zigzag-full", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 4, .recompute = SP_RECOMPUTE_FULL) },
  { "ring-contiguous", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 4, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "ring-contiguous-full", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ring = 4, .token_split = SP_TOKENS_CONTIGUOUS, .recompute = SP_RECOMPUTE_FULL) },
  { "ring-bf16-gradients", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 2, .ring_gradient_dtype = SP_DTYPE_BF16) },
  { "ring-3", SMALL_SOFTMAX, 0, 36, 2, 1, LAYOUT (.ring = 3) },
  { "ring-gpt", SMALL_GPT, 0, 32, 2, 1, LAYOUT (.ring = 4, .zero = 2) },
  { "usp-zigzag", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ulysses = 2, .ring = 4) },
  { "usp-contiguous", SMALL_MQA, 0, 32, 2, 1, LAYOUT (.ulysses = 4, .ring = 2, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "usp-ring-first", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .ring = 4, .order = { { SP_AXIS_RING, SP_AXIS_DATA, SP_AXIS_ULYSSES, SP_AXIS_TENSOR, SP_AXIS_PIPELINE, SP_AXIS_LASP } }) },
  { "lasp", SMALL_LINEAR, 0, 32, 2, 2, LAYOUT (.lasp = 4, .lasp_version = 1) },
  { "lasp-full", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 1, .recompute = SP_RECOMPUTE_FULL) },
  { "lasp-selective", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 1, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "lasp-2", SMALL_LINEAR, 0, 32, 2, 2, LAYOUT (.lasp = 4, .lasp_version = 2) },
  { "lasp-2-full", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "lasp-3", SMALL_LINEAR, 0, 36, 2, 1, LAYOUT (.lasp = 3, .lasp_version = 1) },
  { "lasp-ulysses", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 4, .ulysses = 2, .lasp_version = 1) },
  { "lasp-zero-3", SMALL_LINEAR, 0, 32, 4, 1, LAYOUT (.lasp = 4, .lasp_version = 1, .data = 2, .zero = 3) },
  { "lasp-2-tensor", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 2, .lasp_version = 2, .tensor = 4) },
  { "lasp-pipeline", SMALL_LINEAR, 0, 32, 4, 1, LAYOUT (.lasp = 4, .lasp_version = 1, .pipeline = 2) },
  { "hybrid", SMALL_HYBRID, 0, 32, 2, 1, LAYOUT (.zero = 0) },
  { "hybrid-same", SMALL_HYBRID, 0, 32, 2, 2, LAYOUT (.ulysses = 2, .ring = 4, .lasp = 4, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "hybrid-lasp-longer", SMALL_HYBRID, 0, 32, 2, 1, LAYOUT (.ulysses = 4, .ring = 2, .lasp = 8, .lasp_version = 1, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "hybrid-lasp-shorter", SMALL_HYBRID, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .ring = 4, .lasp = 2, .lasp_version = 1, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "hybrid-all-ulysses", SMALL_HYBRID, 0, 32, 2, 1, LAYOUT (.ulysses = 8, .lasp = 4) },
  { "hybrid-pipeline", SMALL_HYBRID, 0, 32, 4, 1, LAYOUT (.ulysses = 4, .lasp = 2, .pipeline = 2, .zero = 3) },
  { "mix-16", SMALL_GQA, 0, 32, 3, 1, LAYOUT (.ulysses = 2, .ring = 2, .tensor = 2, .pipeline = 2) },
  { "mix-16-full", SMALL_GQA, 0, 32, 3, 1, LAYOUT (.ulysses = 2, .ring = 2, .tensor = 2, .pipeline = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "mix-16-gpt", SMALL_GPT, 0, 32, 5, 2, LAYOUT (.data = 2, .ring = 2, .tensor = 2, .pipeline = 2, .zero = 2) },
  { "mix-16-linear", SMALL_LINEAR, 0, 32, 6, 2, LAYOUT (.data = 2, .lasp = 2, .tensor = 2, .pipeline = 2, .lasp_version = 1, .zero = 3) },
  { "mix-order", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.data = 2, .ulysses = 2, .ring = 2, .tensor = 2, .zero = 3, .order = { { SP_AXIS_DATA, SP_AXIS_RING, SP_AXIS_PIPELINE, SP_AXIS_TENSOR, SP_AXIS_LASP, SP_AXIS_ULYSSES } }) },
};
/* clang-format on */

static SpRehearsal *
rehearse (const SpArchitecture *arch, const SpFramework *framework, const SpLayout *layout, const SpRun *run,
          SpProgram *program)
{
  g_autoptr (GError) error = NULL;

  g_assert_true (sp_layout_check (layout, arch, framework, run, 0, &error));
  g_assert_no_error (error);
  sp_program_write (program, arch, framework, layout, run);
  /* Softmax does not feel a shift of all keys, so the gradient of the keys' bias is rounding alone; Adam divides it by itself
   * unless its epsilon is well above. */
  program->numbers.adam_epsilon = 1e-5;
  SpRehearsal *rehearsal = sp_rehearse (program, 7, &error);
  g_assert_no_error (error);
  return rehearsal;
}

/* Of the copier's counts: smallest, mean and largest over ranks. */
static SpSpread
spread_of (const SpRehearsal *rehearsal, SpAxis axis)
{
  SpSpread spread = { INFINITY, 0, 0 };

  for (gint32 rank = 0; rank < rehearsal->world; rank++) {
    double bytes = (double) rehearsal->ranks[rank].payload_bytes[axis];
    spread.min = MIN (spread.min, bytes);
    spread.max = MAX (spread.max, bytes);
    spread.mean += bytes / rehearsal->world;
  }
  return spread;
}

static void
check_payload (const SpRehearsal *rehearsal, const SpEstimate *estimate)
{
  for (guint axis = 0; axis < SP_N_AXES; axis++) {
    SpSpread copied = spread_of (rehearsal, axis), priced = estimate->axes[axis].payload_bytes;
    g_test_message ("%s: copied %.0f/%.1f/%.0f, priced %.0f/%.1f/%.0f bytes (min/mean/max)", sp_axis_name (axis),
                    copied.min, copied.mean, copied.max, priced.min, priced.mean, priced.max);
    g_assert_true (copied.min == priced.min);
    g_assert_true (copied.max == priced.max);
    g_assert_true (fabs (copied.mean - priced.mean) <= 1e-9 * copied.mean);
  }
}

static void
check_memory (const SpRehearsal *rehearsal, const SpProgram *program, const SpFramework *framework)
{
  SpMemory memory;
  gint64 peak = 0;
  gint32 fullest = 0;

  sp_memory_estimate (program, framework, FALSE, &memory);
  for (gint32 rank = 0; rank < rehearsal->world; rank++)
    if (rehearsal->ranks[rank].peak_bytes > peak) {
      peak = rehearsal->ranks[rank].peak_bytes;
      fullest = rank;
    }
  for (guint c = 0; c < SP_N_CLASSES; c++)
    g_test_message ("%s: lived %" G_GINT64_FORMAT ", priced %.0f bytes", sp_class_name (c),
                    rehearsal->ranks[fullest].peak_by_class[c], memory.by_class[c]);
  g_test_message ("peak %" G_GINT64_FORMAT " bytes, priced %.0f at %s", peak, memory.total_bytes, memory.moment);
  /* Over stages, a smaller last micro-batch that is in flight is counted as a full one. */
  if (program->n_variants == 2 && program->stages > 1)
    g_assert_cmpfloat (memory.total_bytes, >=, (double) peak);
  else
    g_assert_cmpfloat (memory.total_bytes, ==, (double) peak);
}

static void
test_equal (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (SpArchitecture) arch = small_model (c->model);
  SpFramework framework = small_framework (!c->unfused);
  SpRun run = { c->sequence, c->micro_batch, c->global_batch, SP_DTYPE_BF16, TRUE };
  SpRun alone = { c->sequence, 1, c->global_batch, SP_DTYPE_BF16, TRUE };
  SpLayout one = SP_LAYOUT_DEFAULT, layout = c->layout;
  g_autoptr (SpProgram) program = sp_program_new (), reference = sp_program_new ();
  g_autofree char *where = NULL, *text = sp_layout_describe (&layout);
  SpDevice device = { .peak_bf16_flops_per_s = { 1e12 }, .memory_bytes_per_s = { 1e12 }, .sms = { 100 } };
  SpCluster cluster = { .device = &device, .nodes = 1, .gpus_per_node = 1024 };
  SpEstimator estimator;
  SpEstimate estimate;

  layout.overlap = FALSE;
  one.zero = 0;
  g_test_message ("%s", text);
  g_autoptr (SpRehearsal) expected = rehearse (arch, &framework, &one, &alone, reference);
  g_autoptr (SpRehearsal) got = rehearse (arch, &framework, &layout, &run, program);
  double difference = sp_rehearsal_difference (expected, got, &where);
  g_test_message ("loss %.15g and %.15g, largest difference %.3g at %s", expected->loss, got->loss, difference, where);
  g_assert_true (difference <= 1e-10);

  sp_estimator_init (&estimator, arch, &cluster, &framework, SP_MFU_SEQPAR);
  sp_estimate_program (&estimator, program, &run, &estimate);
  check_payload (got, &estimate);
  check_memory (got, program, &framework);
}

/* The one-rank run itself: gradients against central differences of the loss. */
static void
test_gradient (gconstpointer data)
{
  SmallModel kind = GPOINTER_TO_INT (data);
  g_autoptr (SpArchitecture) arch = small_model (kind);
  SpFramework framework = small_framework (kind != SMALL_TIED);
  SpRun run = { 12, 1, 2, SP_DTYPE_BF16, TRUE };
  SpLayout one = SP_LAYOUT_DEFAULT;
  g_autoptr (SpProgram) program = sp_program_new ();
  const double h = 1e-5;

  one.zero = 0;
  g_autoptr (SpRehearsal) run_once = rehearse (arch, &framework, &one, &run, program);
  for (guint i = 0; i < run_once->tensors->len; i++) {
    const SpRehearsedTensor *t = &g_array_index (run_once->tensors, SpRehearsedTensor, i);
    gint64 n = t->rows * t->cols, largest = 0;
    for (gint64 j = 0; j < n; j++)
      if (fabs (t->gradient[j]) > fabs (t->gradient[largest]))
        largest = j;
    double loss[2];
    for (guint side = 0; side < 2; side++) {
      SpNudge nudge = { t->layer, t->name, largest, side ? h : -h };
      g_autoptr (GError) error = NULL;
      g_autoptr (SpRehearsal) nudged = sp_rehearse_nudged (program, 7, &nudge, &error);
      g_assert_no_error (error);
      loss[side] = nudged->loss;
    }
    double slope = (loss[1] - loss[0]) / (2 * h), gradient = t->gradient[largest];
    g_test_message ("layer %d %s[%" G_GINT64_FORMAT "]: gradient %.9g, slope %.9g", t->layer, t->name, largest,
                    gradient, slope);
    g_assert_true (fabs (gradient) > 1e-6);
    g_assert_true (fabs (slope - gradient) <= 1e-6 * fabs (gradient) + 1e-9);
  }
}

static const char *const model_names[N_SMALL] = { "softmax", "gqa", "mqa", "linear", "hybrid", "gpt", "tied" };

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  for (guint i = 0; i < N_SMALL; i++) {
    g_autofree char *path = g_strdup_printf ("/rehearse/gradient/%s", model_names[i]);
    g_test_add_data_func (path, GINT_TO_POINTER (i), test_gradient);
  }
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *path = g_strdup_printf ("/rehearse/equal/%s", cases[i].name);
    g_test_add_data_func (path, &cases[i], test_equal);
  }
  return g_test_run ();
}
