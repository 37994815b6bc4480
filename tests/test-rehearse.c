/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/memory.h"
#include "models/rehearse/private.h"
#include "tests/rehearse-cases.h"

#include <math.h>

/* Every strategy and mix: loss, gradients and updated parameters equal the one-rank run's, the copier's bytes equal the
 * estimate's payload, and the storage that lived at once equals the estimate's memory. */

static SpRehearsal *
rehearse (const RehearseCase *c, SpProgram *program)
{
  g_autoptr (GError) error = NULL;

  rehearse_case_write (c, program);
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
check_memory (const SpRehearsal *rehearsal, const SpProgram *program, const SpEstimate *estimate)
{
  const SpMemory memory = estimate->memory;
  gint64 peak = 0;
  gint32 fullest = 0;

  for (gint32 rank = 0; rank < rehearsal->world; rank++)
    if (rehearsal->ranks[rank].peak_bytes > peak) {
      peak = rehearsal->ranks[rank].peak_bytes;
      fullest = rank;
    }
  for (guint c = 0; c < SP_N_CLASSES; c++)
    g_test_message ("%s: lived %" G_GINT64_FORMAT ", priced %.0f bytes", sp_class_name (c),
                    rehearsal->ranks[fullest].peak_by_class[c], memory.by_class[c]);
  gint64 host = 0;
  for (gint32 rank = 0; rank < rehearsal->world; rank++)
    host = MAX (host, rehearsal->ranks[rank].host_peak_bytes);
  g_test_message ("host %" G_GINT64_FORMAT " bytes, priced %.0f", host, memory.host_bytes);
  if (program->n_variants == 2 && program->stages > 1)
    g_assert_cmpfloat (memory.host_bytes, >=, (double) host);
  else
    g_assert_cmpfloat (memory.host_bytes, ==, (double) host);
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
  const RehearseCase *c = data, alone = rehearse_case_alone (c);
  g_autoptr (SpArchitecture) arch = rehearse_case_model (c);
  SpFramework framework = small_framework (!c->unfused);
  SpRun run = rehearse_case_run (c);
  g_autoptr (SpProgram) program = sp_program_new (), reference = sp_program_new ();
  g_autofree char *where = NULL, *text = sp_layout_describe (&c->layout, arch);
  SpDevice device = { .peak_bf16_flops_per_s = { 1e12 }, .memory_bytes_per_s = { 1e12 }, .sms = { 100 } };
  SpCluster cluster = { .device = &device, .nodes = 1, .gpus_per_node = 1024 };
  SpEstimator estimator;
  SpEstimate estimate;

  g_test_message ("%s", text);
  g_autoptr (SpRehearsal) expected = rehearse (&alone, reference);
  g_autoptr (SpRehearsal) got = rehearse (c, program);
  double difference = sp_rehearsal_difference (expected, got, &where);
  g_test_message ("loss %.15g and %.15g, largest difference %.3g at %s", expected->loss, got->loss, difference, where);
  g_assert_true (difference <= 1e-10);

  sp_estimator_init (&estimator, arch, &cluster, &framework, SP_MFU_SEQPAR);
  sp_estimate_program (&estimator, program, &run, &estimate);
  check_payload (got, &estimate);
  check_memory (got, program, &estimate);
}

/* Of the loss, over an element of a weight moved by h both ways. */
static double
difference (const SpProgram *program, SpNudge nudge, double h)
{
  double loss[2];

  for (guint side = 0; side < 2; side++) {
    g_autoptr (GError) error = NULL;
    nudge.delta = side ? h : -h;
    g_autoptr (SpRehearsal) nudged = sp_rehearse_nudged (program, 7, &nudge, &error);
    g_assert_no_error (error);
    loss[side] = nudged->loss;
  }
  return (loss[1] - loss[0]) / (2 * h);
}

/* The one-rank run itself: gradients against central differences of the loss, extrapolated from h and 2 h, as an l2
 * norm of short keys bends too much for one. */
static void
check_gradients (const RehearseCase *one)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  const double h = 1e-5;

  g_autoptr (SpRehearsal) run_once = rehearse (one, program);
  for (guint i = 0; i < run_once->tensors->len; i++) {
    const SpRehearsedTensor *t = &g_array_index (run_once->tensors, SpRehearsedTensor, i);
    gint64 n = t->rows * t->cols, largest = 0;
    if (one->lora_rank > 0 && !g_str_has_suffix (t->name, ".A") && !g_str_has_suffix (t->name, ".B"))
      continue; /* frozen */
    for (gint64 j = 0; j < n; j++)
      if (fabs (t->gradient[j]) > fabs (t->gradient[largest]))
        largest = j;
    const SpNudge nudge = { t->layer, t->name, largest, 0 };
    double slope = (4 * difference (program, nudge, h) - difference (program, nudge, 2 * h)) / 3;
    double gradient = t->gradient[largest];
    g_test_message ("layer %d %s[%" G_GINT64_FORMAT "]: gradient %.9g, slope %.9g", t->layer, t->name, largest,
                    gradient, slope);
    g_assert_true (fabs (gradient) > 1e-6);
    g_assert_true (fabs (slope - gradient) <= 1e-6 * fabs (gradient) + 1e-9);
  }
}

static void
test_gradient (gconstpointer data)
{
  SmallModel kind = GPOINTER_TO_INT (data);
  const RehearseCase one = { "gradient", kind, kind == SMALL_TIED, 12, 2, 1, LAYOUT (.zero = 0) };

  check_gradients (&one);
}

static void
test_adapters (gconstpointer data)
{
  const RehearseCase one = { "adapters", GPOINTER_TO_INT (data), FALSE, 12, 2, 1, LAYOUT (.zero = 0), .lora_rank = 3 };

  check_gradients (&one);
}

/* Of a tensor's gradient, beside its norm. */
static double
distance (const SpRehearsedTensor *a, const SpRehearsedTensor *b)
{
  double squares = 0, errors = 0;

  for (gint64 i = 0; i < a->rows * a->cols; i++) {
    squares += a->gradient[i] * a->gradient[i];
    errors += (a->gradient[i] - b->gradient[i]) * (a->gradient[i] - b->gradient[i]);
  }
  return sqrt (errors / squares);
}

/* Rounded to bf16 on its way, a number is off by a third of 2^-8 in the mean: each gradient by at least a part of that, and
 * by tens of that at most, as a model is no chain of thousands of roundings. Fp32 alone would leave 1e-7. */
static void
test_rounded (gconstpointer data)
{
  SmallModel kind = GPOINTER_TO_INT (data);
  const RehearseCase one = { "rounded", kind, kind == SMALL_TIED, 32, 2, 1, LAYOUT (.zero = 0) };
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;

  g_autoptr (SpRehearsal) exact = rehearse (&one, program);
  g_autoptr (SpRehearsal) rounded = sp_rehearse_rounded (program, 7, &error);
  g_autoptr (SpRehearsal) again = sp_rehearse_rounded (program, 7, &error);
  g_assert_no_error (error);
  g_assert_cmpfloat (rounded->loss, ==, again->loss);
  g_assert_cmpfloat (fabs (rounded->loss / exact->loss - 1), <, 0x1p-8);
  for (guint i = 0; i < exact->tensors->len; i++) {
    const SpRehearsedTensor *t = &g_array_index (exact->tensors, SpRehearsedTensor, i);
    double off = distance (t, &g_array_index (rounded->tensors, SpRehearsedTensor, i));

    g_test_message ("layer %d %s: %.4g", t->layer, t->name, off);
    g_assert_cmpfloat (off, >, 0x1p-11);
    g_assert_cmpfloat (off, <, 0x1p-4);
  }
}

static void
test_digits (void)
{
  const double cases[][2] = { { 1 + 0x1p-8, 1 },
                              { 1 + 0x3p-8, 1 + 0x1p-6 },
                              { 1 + 0x1.8p-8, 1 + 0x1p-7 },
                              { -3 - 0x1.1p-7, -3 - 0x1p-6 },
                              { 255.5, 256 },
                              { 0, 0 },
                              { 0x1p-140, 0x1p-140 } };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    g_assert_cmpfloat (sp_round_to_digits (cases[i][0], BF16_DIGITS), ==, cases[i][1]);
}

/* Others have heads of three or four features, whose norms make much of a rounding. */
static const SmallModel rounded_models[] = { SMALL_GQA, SMALL_GPT, SMALL_LINEAR, SMALL_MAMBA2 };

static const char *const model_names[N_SMALL] = {
  [SMALL_SOFTMAX] = "softmax",
  [SMALL_GQA] = "gqa",
  [SMALL_MQA] = "mqa",
  [SMALL_WINDOW] = "window",
  [SMALL_SINKS] = "sinks",
  [SMALL_GATED] = "gated",
  [SMALL_LATENT] = "latent",
  [SMALL_LATENT_PLAIN] = "latent-plain",
  [SMALL_LATENT_EXPERTS] = "latent-experts",
  [SMALL_PARALLEL] = "parallel",
  [SMALL_PARALLEL_TWO] = "parallel-two",
  [SMALL_SANDWICH] = "sandwich",
  [SMALL_BRANCH_NORM] = "branch-norm",
  [SMALL_BERT] = "bert",
  [SMALL_OPT] = "opt",
  [SMALL_BARE] = "bare",
  [SMALL_LINEAR] = "linear",
  [SMALL_HYBRID] = "hybrid",
  [SMALL_EXPERTS] = "experts",
  [SMALL_EXPERT_BIAS] = "expert-bias",
  [SMALL_SHARED] = "shared",
  [SMALL_LIGHTNING] = "lightning",
  [SMALL_RETNET] = "retnet",
  [SMALL_GLA] = "gla",
  [SMALL_SIMPLE_GLA] = "simple-gla",
  [SMALL_MAMBA] = "mamba",
  [SMALL_JAMBA] = "jamba",
  [SMALL_MAMBA2] = "mamba2",
  [SMALL_DELTA] = "delta",
  [SMALL_GATED_DELTA] = "gated-delta",
  [SMALL_KDA] = "kda",
  [SMALL_RWKV7] = "rwkv7",
  [SMALL_DELTA_HYBRID] = "delta-hybrid",
  [SMALL_GPT] = "gpt",
  [SMALL_TIED] = "tied",
};

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  for (guint i = 0; i < N_SMALL; i++) {
    g_autofree char *path = g_strdup_printf ("/rehearse/gradient/%s", model_names[i]);
    g_test_add_data_func (path, GINT_TO_POINTER (i), test_gradient);
  }
  for (guint i = 0; i < G_N_ELEMENTS (rounded_models); i++) {
    g_autofree char *path = g_strdup_printf ("/rehearse/rounded/%s", model_names[rounded_models[i]]);
    g_test_add_data_func (path, GINT_TO_POINTER (rounded_models[i]), test_rounded);
  }
  g_test_add_func ("/rehearse/digits", test_digits);
  g_test_add_data_func ("/rehearse/adapters/gqa", GINT_TO_POINTER (SMALL_GQA), test_adapters);
  g_test_add_data_func ("/rehearse/adapters/gpt", GINT_TO_POINTER (SMALL_GPT), test_adapters);
  g_test_add_data_func ("/rehearse/adapters/latent", GINT_TO_POINTER (SMALL_LATENT), test_adapters);
  for (guint i = 0; i < G_N_ELEMENTS (rehearse_cases); i++) {
    g_autofree char *path = g_strdup_printf ("/rehearse/equal/%s", rehearse_cases[i].name);
    g_test_add_data_func (path, &rehearse_cases[i], test_equal);
  }
  return g_test_run ();
}
