/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/estimate.h"
#include "models/inputs/scenario.h"
#include "models/writer.h"
#include "tests/input-file.h"

#include <string.h>

/* Keys that make no difference. Each row: a model, a key with a value that has no use there, what the message says, and
 * what makes it count (or another model). */
static const struct Effect {
  const char *name, *model, *group, *key, *value;
  const char *words[2];
  const char *counting; /* sets, joined by blanks */
  const char *counting_model;
} effects[] = {
  { "lora-targets", "llama-3.1-8b", "run", "lora-targets", "q", { "lora-rank = 0", "lora-rank = 16" }, "lora-rank=8" },
  { "dense-imbalance",
    "llama-3.1-8b",
    "run",
    "expert-imbalance",
    "1.5",
    { "llama-3.1-8b has none" },
    "expert=2",
    "mixtral-8x7b" },
  { "imbalance", "mixtral-8x7b", "run", "expert-imbalance", "1.5", { "expert = 1 has all", "expert = 2" }, "expert=2" },
  { "dense-capacity",
    "llama-3.1-8b",
    "layout",
    "expert-capacity",
    "2",
    { "llama-3.1-8b has none" },
    "",
    "mixtral-8x7b" },
  { "noise-spread",
    "mixtral-8x7b",
    "variation",
    "expert-imbalance-noise",
    "true",
    { "expert = 1" },
    "expert=2 expert-imbalance=2" },
  { "chunks", "llama-3.1-8b", "layout", "loss-chunks", "4", { "loss = chunked or fused" }, "loss=chunked" },
  { "chunks-fused", "llama-3.1-8b", "layout", "loss-chunks", "4", { "loss = chunked or fused" }, "loss=fused" },
  { "inner", "llama-3.1-8b", "layout", "ring-inner", "2", { "ring = 1" }, "ring=8 ring-kind=double" },
  { "kind", "llama-3.1-8b", "layout", "ring-kind", "all-gather", { "ring = 1", "ring = 2" }, "ring=2" },
  { "split", "llama-3.1-8b", "layout", "ring-split", "striped", { "ring = 1" }, "ring=2" },
  { "ring-dtype", "llama-3.1-8b", "layout", "ring-gradient-dtype", "bf16", { "ring = 1" }, "ring=2" },
  { "lasp-softmax",
    "llama-3.1-8b",
    "layout",
    "lasp-version",
    "1",
    { "linear attention", "llama-3.1-8b has none" },
    "lasp=2",
    "gla-7b" },
  { "lasp", "gla-7b", "layout", "lasp-version", "1", { "lasp = 1", "lasp = 2" }, "lasp=2" },
  { "schedule", "llama-3.1-8b", "layout", "schedule", "gpipe", { "pipeline = 1", "pipeline = 2" }, "pipeline=2" },
  { "interleaved", "llama-3.1-8b", "layout", "schedule", "dualpipe", { "pipeline = 1" }, "pipeline=2" },
  { "virtual", "llama-3.1-8b", "layout", "virtual-stages", "2", { "pipeline = 1" }, "pipeline=2 schedule=interleaved" },
  { "stages", "llama-3.1-8b", "layout", "stage-split", "17,15", { "pipeline = 1" }, "pipeline=2" },
  { "keep", "llama-3.1-8b", "layout", "ring-keep", "true", { "ring = 1" }, "ring=2 ring-kind=all-gather" },
  { "backward", "llama-3.1-8b", "layout", "ring-backward", "q", { "ring = 1" }, "ring=2" },
  { "double", "llama-3.1-8b", "layout", "ring-kind", "double", { "ring = 1" }, "ring=4" },
  { "group", "llama-3.1-8b", "layout", "zero-group", "2", { "zero = 0" }, "zero=1" },
  { "group-node", "llama-3.1-8b", "layout", "zero-group", "node", { "zero = 0" }, "zero=1" },
  { "regions", "llama-3.1-8b", "layout", "sequence-regions", "false", { "tensor = 1" }, "tensor=2" },
  { "scatter",
    "llama-3.1-8b",
    "layout",
    "pipeline-scatter",
    "false",
    { "pipeline = 1" },
    "pipeline=2 tensor=2 sequence-regions=false framework=megatron-2022" },
  { "reshard", "llama-3.1-8b", "layout", "reshard", "false", { "zero = 1", "zero = 3" }, "zero=3" },
  { "tiles", "mixtral-8x7b", "layout", "mlp-tiles", "4", { "mixtral-8x7b has none" }, "", "llama-3.1-8b" },
  { "every", "llama-3.1-8b", "layout", "recompute", "every-17", { "more than 16 layers", "every-16" }, "pipeline=1" },
  { "first", "llama-3.1-8b", "layout", "recompute", "first-17", { "more than 16 layers", "first-16" }, "pipeline=1" },
  { "causal-bert", "bert-base", "run", "causal", "false", { "both ways" }, "", "llama-3.1-8b" },
  { "causal-linear", "gla-7b", "run", "causal", "false", { "softmax attention" }, "", "llama-3.1-8b" },
};

static char *
text_of (const struct Effect *e, gboolean with_key)
{
  gboolean staged = g_str_equal (e->key, "recompute"), grouped = g_str_equal (e->key, "zero-group");
  g_autofree char *line = g_strdup_printf ("%s = %s\n", e->key, e->value);
  const char *of_layout = with_key && g_str_equal (e->group, "layout") ? line : "";
  const char *of_run = with_key && g_str_equal (e->group, "run") ? line : "";
  const char *of_variation = with_key && g_str_equal (e->group, "variation") ? line : "";

  return g_strdup_printf ("[model]\nconfig = %s\n[cluster]\nfile = h100-1x8\n[layout]\ndata = 8\n%s%s[run]\n"
                          "sequence = 4K\nglobal-batch = 32\n%s[variation]\nseed = 2\n%s",
                          e->model,
                          staged    ? "pipeline = 2\n"
                          : grouped ? "zero = 0\n"
                                    : "",
                          of_layout, of_run, of_variation);
}

static SpScenario *
parse (const char *text, const char *const *sets, GError **error)
{
  g_autofree char *path = g_build_filename (g_getenv ("SEQPAR_DATA"), "run.ini", NULL);

  return sp_scenario_parse (path, text, strlen (text), sets, error);
}

static SpEstimate
estimate (const SpScenario *s)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;
  SpEstimator estimator;
  SpEstimate e;

  sp_layout_check (&s->layout, s->arch, s->framework, &s->run, 0, &error);
  g_assert_no_error (error);
  sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
  sp_estimate_layout (&estimator, program, &s->layout, &s->run, &e);
  return e;
}

/* What a step costs, to the last bit. */
static void
assert_same (const SpScenario *a, const SpScenario *b)
{
  const SpEstimate e[] = { estimate (a), estimate (b) };

  g_assert_true (e[0].step_time_s == e[1].step_time_s && e[0].low_s == e[1].low_s && e[0].high_s == e[1].high_s);
  g_assert_true (e[0].mfu == e[1].mfu && e[0].mfu_causal == e[1].mfu_causal && e[0].hfu == e[1].hfu);
  g_assert_true (e[0].memory.total_bytes == e[1].memory.total_bytes);
}

/* Refused where a command line gives it, noted where the file has it, which then costs what it does without (what
 * first-K of too many layers does is what full does), and nothing said where it counts. */
static void
test_effect (gconstpointer data)
{
  const struct Effect *e = data;
  g_autofree char *set = g_strdup_printf ("%s.%s=%s", e->group, e->key, e->value);
  g_autofree char *start = g_strdup_printf ("[%s] %s = %s: ", e->group, e->key, e->value);
  g_autofree char *without = text_of (e, FALSE), *with = text_of (e, TRUE);
  g_autoptr (GError) error = NULL;

  g_autoptr (SpScenario) refused = parse (without, (const char *const[]){ set, NULL }, &error);
  g_assert_null (refused);
  g_assert_nonnull (error);
  g_test_message ("%s", error->message);
  g_assert_nonnull (strstr (error->message, "run.ini (--set): ["));
  g_assert_null (strchr (error->message, '\n'));
  for (guint i = 0; i < G_N_ELEMENTS (e->words) && e->words[i] != NULL; i++)
    g_assert_nonnull (strstr (error->message, e->words[i]));
  g_clear_error (&error);

  char *path = input_file_new ("run.ini", without, -1);
  g_autoptr (SpScenario) varied = sp_scenario_load_to_vary (path, (const char *const[]){ set, NULL }, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (varied->notes->len, ==, 0);
  input_file_remove (path);

  g_autoptr (SpScenario) noted = parse (with, NULL, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (noted->notes->len, ==, 1);
  g_assert_true (g_str_has_prefix (noted->notes->pdata[0], start));
  g_assert_nonnull (strstr (noted->notes->pdata[0], e->words[0]));

  const char *const full[] = { g_str_has_prefix (e->value, "first") ? "recompute=full" : "recompute=none", NULL };
  g_autoptr (SpScenario) plain = parse (without, full, &error);
  g_assert_no_error (error);
  assert_same (noted, plain);

  g_auto (GStrv) counting = g_strsplit (e->counting, " ", -1);
  g_autoptr (GPtrArray) sets = g_ptr_array_new ();
  g_autofree char *model = g_strdup_printf ("config=%s", e->counting_model != NULL ? e->counting_model : e->model);
  for (guint i = 0; counting[i] != NULL && *counting[i] != '\0'; i++)
    g_ptr_array_add (sets, counting[i]);
  g_ptr_array_add (sets, model);
  g_ptr_array_add (sets, set);
  g_ptr_array_add (sets, NULL);
  g_autoptr (SpScenario) counts = parse (without, (const char *const *) sets->pdata, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (counts->notes->len, ==, 0);
}

/* Both layers of a model whose file splits its one stage in two: with that gone a stage has two layers, so every-2 is
 * one of them recomputed, dearer than none and as dear as in a file without the key. */
static void
test_resets_first (void)
{
  static const char *const every[] = { "recompute=every-2", NULL }, *const none[] = { "recompute=none", NULL };
  static const char *const third[] = { "recompute=every-3", NULL }, *const staged[] = { "pipeline=2", "data=1",
                                                                                        "recompute=every-2", NULL };
  g_autoptr (GError) error = NULL;
  g_autofree char *text = g_strdup_printf ("[model]\nconfig = tiny\n[cluster]\nfile = a800-2x8\n[layout]\n"
                                           "tensor = 4\nring = 4\nvirtual-stages = 2\n[run]\nsequence = 4K\n");
  g_auto (GStrv) parts = g_strsplit (text, "virtual-stages = 2\n", 2);
  g_autofree char *without = g_strconcat (parts[0], parts[1], NULL);
  g_autoptr (SpScenario) set = parse (text, every, &error);

  g_assert_no_error (error);
  g_assert_cmpint (set->arch->layers, ==, 2);
  g_assert_cmpint (set->layout.virtual_stages, ==, 1);
  g_assert_cmpuint (set->notes->len, ==, 1);
  g_autoptr (SpScenario) plain = parse (without, every, &error);
  g_assert_no_error (error);
  assert_same (set, plain);
  g_autoptr (SpScenario) kept = parse (text, none, &error);
  g_assert_no_error (error);
  g_assert_cmpfloat (estimate (set).step_time_s, >, estimate (kept).step_time_s);

  g_autoptr (SpScenario) beyond = parse (text, third, &error);
  g_assert_null (beyond);
  g_assert_nonnull (strstr (error->message, "more than 2 layers, so none is recomputed; expected every-2 or less, or"));
  g_clear_error (&error);
  g_autoptr (SpScenario) one = parse (without, staged, &error);
  g_assert_null (one);
  g_assert_nonnull (strstr (error->message, "more than 1 layer, so none is recomputed; expected full or none"));
}

/* A scenario with every default written out is read back, and set again, without a word. */
static void
test_defaults (void)
{
  const struct Effect *dense = &effects[0];
  g_autofree char *text = text_of (dense, FALSE);
  g_autoptr (GError) error = NULL;
  g_autoptr (GString) all = g_string_new (NULL);
  g_autoptr (SpScenario) scenario = parse (text, NULL, &error);
  const char *group, *key;
  char *usual;

  g_assert_no_error (error);
  sp_scenario_write (scenario, all);
  g_autoptr (SpScenario) again = parse (all->str, NULL, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (again->notes->len, ==, 0);
  for (guint i = 0; sp_scenario_key (i, &group, &key, &usual); i++) {
    g_autofree char *set = g_strdup_printf ("%s.%s=%s", group, key, usual);
    if (*usual != '\0' && (g_str_equal (group, "layout") || g_str_equal (group, "run")) && !g_str_equal (key, "data") &&
        !g_str_equal (key, "sequence")) {
      g_autoptr (SpScenario) same = parse (text, (const char *const[]){ set, NULL }, &error);
      g_assert_no_error (error);
      g_assert_cmpuint (same->notes->len, ==, 0);
    }
    g_free (usual);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (effects); i++) {
    g_autofree char *name = g_strconcat ("/effects/", effects[i].name, NULL);
    g_test_add_data_func (name, &effects[i], test_effect);
  }
  g_test_add_func ("/effects/defaults", test_defaults);
  g_test_add_func ("/effects/resets-first", test_resets_first);
  return g_test_run ();
}
