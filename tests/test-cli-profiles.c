/* SPDX-License-Identifier: Apache-2.0 */
/* Shipped profiles: fitted again to what is shipped beside them they are the same, and each prices a scenario. That of
 * two H200 is fitted in test-cli-check.c. */
#include "tests/cli-run.h"

#include "models/estimate/curves.h"

#define H100 "NVIDIA H100 80GB HBM3"

static char *
shipped (const char *folder_name, const char *name)
{
  return g_build_filename (g_getenv ("SEQPAR_DATA"), folder_name, name, NULL);
}

/* Of the file written here, from `begin` on (NULL: all), against the end of the shipped one. */
static void
check_fit (Run fit, const char *made_name, const char *shipped_name, const char *begin)
{
  g_auto (Run) run = fit;
  if (run.status == 1 && strstr (run.err, "GSL") != NULL) {
    g_test_skip ("built without GSL");
    return;
  }
  g_assert_cmpint (run.status, ==, 0);
  g_autofree char *path = g_build_filename (folder, made_name, NULL), *profile = shipped ("profiles", shipped_name);
  g_autofree char *made = NULL, *text = NULL;
  g_assert_true (g_file_get_contents (path, &made, NULL, NULL) && g_file_get_contents (profile, &text, NULL, NULL));
  const char *a = begin != NULL ? strstr (made, begin) : made, *b = begin != NULL ? strstr (text, begin) : text;
  g_assert_true (a != NULL && b != NULL);
  assert_same_profile (a, b);
}

/* --- fits --------------------------------------------------------------------------------------------------------- */

static void
test_h100 (void)
{
  g_autofree char *gemm = shipped ("measured", "h100-gemm-bf16.csv"), *nccl = shipped ("measured", "h100x2-nccl.csv");
  g_autofree char *attention = shipped ("measured", "h100-softmax-attention-bf16.csv");
  g_autofree char *linear = shipped ("measured", "h100-fla-simple-gla.csv");
  g_auto (Run) most = run_cli ("calibrate", "import", gemm, attention, nccl, "--ranks", "2", "--nodes", "1", "--card",
                               H100, "--date", "2026", "-o", "h100.csv");
  g_assert_cmpint (most.status, ==, 0);
  g_auto (Run) rest = run_cli ("calibrate", "import", linear, "--op", "linear-attention", "--card", H100, "--date",
                               "2026", "-o", "h100-linear.csv");
  g_assert_cmpint (rest.status, ==, 0);
  check_fit (run_cli ("calibrate", "fit", "h100.csv", "h100-linear.csv", "--least", "1MiB", "--name",
                      "2 H100 SXM 80GB of one node", "-o", "h100.ini"),
             "h100.ini", "h100-1x2.ini", NULL);
}

static void
test_a100 (void)
{
  g_autofree char *attention = shipped ("measured", "a100-burst-attention.csv");
  g_auto (Run) import = run_cli ("calibrate", "import", attention, "--card", "NVIDIA A100 80GB", "--published",
                                 "BurstAttention, README of the repository", "-o", "a100.csv");
  g_assert_cmpint (import.status, ==, 0);
  check_fit (run_cli ("calibrate", "fit", "a100.csv", "--device", "a100-80", "-o", "a100.ini"), "a100.ini",
             "a100-80.ini", "\n[attention.flash]");
}

static void
test_roce (void)
{
  g_autofree char *nccl = shipped ("measured", "a100-40-2x8-all-reduce.csv");
  g_auto (Run) import = run_cli ("calibrate", "import", nccl, "--card", "NVIDIA A100-SXM4-40GB", "--published",
                                 "oracle-quickstart/oci-hpc-oke", "-o", "roce.csv");
  g_assert_cmpint (import.status, ==, 0);
  check_fit (run_cli ("calibrate", "fit", "roce.csv", "--name", "2 nodes of 8 A100 40GB, RoCE", "-o", "roce.ini"),
             "roce.ini", "a100-40-2x8-roce.ini", NULL);
}

/* 25 of the H100's transfers are of less than 1 MiB: five operations of 1 to 256 KiB, a factor of four apart. */
static void
test_least (void)
{
  g_autofree char *nccl = shipped ("measured", "h100x2-nccl.csv");
  g_auto (Run) import = run_cli ("calibrate", "import", nccl, "--ranks", "2", "--nodes", "1", "-o", "nccl.csv");
  g_auto (Run) fit = run_cli ("calibrate", "fit", "nccl.csv", "--least", "1MiB", "-o", "nccl.ini");
  g_auto (Run) wrong = run_cli ("calibrate", "fit", "nccl.csv", "--least", "1", "-o", "nccl.ini");
  static const char *const words[] = { "--least \"1\"", "expected a size", NULL };
  if (fit.status == 1 && strstr (fit.err, "GSL") != NULL) {
    g_test_skip ("built without GSL");
    return;
  }
  assert_contains (fit.out, "25 sizes of transfers below the least asked for");
  assert_contains (fit.out, "all-reduce.2x1           6");
  assert_refused (&wrong, 2, words);
}

/* --- by hand ------------------------------------------------------------------------------------------------------ */

/* GEMM of the A100: the two shapes that the profile's head names come out 3.2 % quicker and slower than published. */
static void
test_a100_gemm (void)
{
  static const struct {
    gint64 m, n, k;
    double published, off;
  } shapes[] = { { 1024, 10240, 5120, 271.2e12, -0.032 }, { 6912, 2048, 16384, 267.9e12, 0.032 } };
  g_autofree char *path = shipped ("profiles", "a100-80.ini");
  g_autoptr (GError) error = NULL;
  g_autoptr (SpProfile) profile = sp_profile_load (path, &error);
  double value[SP_CURVE_SLOTS];

  g_assert_no_error (error);
  const SpCurve *curve = sp_profile_find (profile, SP_CURVE_GEMM, NULL, 0, 0);
  for (guint i = 0; i < SP_CURVE_SLOTS; i++)
    value[i] = curve->value[i].value;
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    double flops = 2.0 * shapes[i].m * shapes[i].n * shapes[i].k;
    double rate = flops / sp_curve_gemm_s (value, 108, 1, shapes[i].m, shapes[i].n, shapes[i].k);
    g_assert_cmpfloat (fabs (rate / shapes[i].published - 1 - shapes[i].off), <, 2e-3);
  }
}

/* --- use ---------------------------------------------------------------------------------------------------------- */

#define MOST_SETS 5

static const struct {
  const char *profile, *scenario, *card, *sets[MOST_SETS];
} uses[] = {
  { "h200-1x2", "executed/s1b-8k-ulysses2-zero1.ini", "NVIDIA H200 (measured)", { NULL } },
  { "h100-1x2",
    "executed/l350m-16k-lasp2-v2-zero1.ini",
    "NVIDIA H100 80GB HBM3 (measured)",
    { "file=h100-1x2" } },
  { "a100-80", "ring-attention-a100.ini", "NVIDIA A100 80GB (published)", { NULL } },
  { "a100-40-2x8-roce",
    "ring-attention-a100.ini",
    "NVIDIA A100-SXM4-40GB (published)",
    { "file=a100-40-2x8-roce", "scope=step", "data=2", "zero=0", "global-batch=2" } },
};

/* As JSON; `profile`: NULL, or the profile asked for. */
static Run
run_use (guint i, const char *profile)
{
  g_autofree char *scenario = shipped (".", uses[i].scenario);
  g_autofree char *set = profile != NULL ? g_strconcat ("profile=", profile, NULL) : NULL;
  g_autoptr (GPtrArray) args = g_ptr_array_new ();
  const char *const command[] = { "run", scenario, "--json" };

  for (guint a = 0; a < G_N_ELEMENTS (command); a++)
    g_ptr_array_add (args, (gpointer) command[a]);
  for (guint k = 0; k < MOST_SETS && uses[i].sets[k] != NULL; k++) {
    g_ptr_array_add (args, (gpointer) "--set");
    g_ptr_array_add (args, (gpointer) uses[i].sets[k]);
  }
  if (set != NULL) {
    g_ptr_array_add (args, (gpointer) "--set");
    g_ptr_array_add (args, set);
  }
  g_ptr_array_add (args, NULL);
  return run_args ((const char *const *) args->pdata);
}

/* Asked for, a profile prices the scenario, says whose curves they are and how well they are known; not asked for, it
 * changes nothing. */
static void
test_uses (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (uses); i++) {
    g_auto (Run) with = run_use (i, uses[i].profile);
    g_auto (Run) without = run_use (i, NULL);
    g_autoptr (JsonNode) root = parse_json (&with);
    g_autoptr (JsonNode) plain = parse_json (&without);
    assert_contains (with.out, uses[i].card);
    g_assert_cmpuint (json_array_get_length (array (root, "interval_s")), ==, 2);
    g_assert_cmpfloat (number (root, "step_time_s"), !=, number (plain, "step_time_s"));
    g_assert_true (JSON_NODE_HOLDS_NULL (member (plain, "interval_s")));

    g_auto (Run) show = run_cli ("show", "profile", uses[i].profile, "--json");
    g_autoptr (JsonNode) shown = parse_json (&show);
    JsonArray *curves = array (shown, "curves");
    for (guint c = 0; c < json_array_get_length (curves); c++) {
      JsonArray *parameters = array (json_array_get_element (curves, c), "parameters");
      for (guint p = 0; p < json_array_get_length (parameters); p++)
        g_assert_nonnull (json_node_get_string (member (json_array_get_element (parameters, p), "source")));
    }
  }
  static const char *const words[] = { "\"h200x2\"", "shipped profiles", "did you mean h200?", NULL };
  g_auto (Run) unknown = run_cli ("show", "profile", "h200x2");
  assert_refused (&unknown, 1, words);
}

/* plan takes one too. */
static void
test_plan (void)
{
  const char *const with[] = { "plan",       "--model", "llama-3.1-8b",   "--cluster", "a100-1x8",
                               "--sequence", "32K",     "--global-batch", "8",         "--top",
                               "2",          "--json",  "--profile",      "a100-80",   NULL };
  g_auto (Run) plan = run_args (with);
  g_autoptr (JsonNode) root = parse_json (&plan);
  JsonNode *first = json_array_get_element (array (root, "layouts"), 0);
  double step = number (first, "step_time_s");
  g_assert_cmpfloat (json_array_get_double_element (array (first, "interval_s"), 0), <, step);
  assert_contains (plan.out, "NVIDIA A100 80GB (published)");
}

/* Attention of a library that the profile has not timed is not priced as another's. */
static void
test_library (void)
{
  static const char *const words[] = { "attention-library = \"flsh\"", "expected cudnn or flash", NULL };
  g_autofree char *path = shipped ("frameworks", "pytorch-2.11-ddp.ini"), *text = NULL;

  g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
  g_autofree char *other = replace (text, "attention-library = flash", "attention-library = flsh");
  g_autofree char *scenario = shipped ("executed", "s350m-2k-zero0.ini");
  write_file ("flsh.ini", other, -1);
  g_auto (Run) plain = run_cli ("run", scenario, "--set", "framework=flsh.ini");
  g_assert_cmpint (plain.status, ==, 0);
  g_auto (Run) wrong = run_cli ("run", scenario, "--set", "framework=flsh.ini", "--set", "profile=h100-1x2");
  assert_refused (&wrong, 1, words);

  /* Kernels of programs too: those that the executor's profile has are its own. */
  static const char *const ours[] = { "attention-library = \"flash\"", "expected seqpar", NULL };
  g_auto (Run) flash = run_cli ("run", scenario, "--set", "framework=pytorch-2.11-ddp", "--set", "profile=h200-1x2");
  assert_refused (&flash, 1, ours);
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_test_add_func ("/cli-profiles/h100", test_h100);
  g_test_add_func ("/cli-profiles/a100", test_a100);
  g_test_add_func ("/cli-profiles/a100-gemm", test_a100_gemm);
  g_test_add_func ("/cli-profiles/roce", test_roce);
  g_test_add_func ("/cli-profiles/least", test_least);
  g_test_add_func ("/cli-profiles/uses", test_uses);
  g_test_add_func ("/cli-profiles/plan", test_plan);
  g_test_add_func ("/cli-profiles/library", test_library);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
