/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar validate: on a small set that is shipped, and what it refuses. Statistics: test-validation.c. */
#include "tests/cli-run.h"

/* The fields that scripts read, of a set of two groups of runs. */
static void
test_json (void)
{
  static const char *const numbers[] = { "rows", "fitted_rows", "memory_median_error" };
  static const char *const members[] = {
    "time_mean_error",       "time_median_error", "time_p90_error", "time_worst_error", "memory_median_error",
    "fit_balanced_accuracy", "false_fit_rate",    "kendall",        "regret_median",    "source"
  };
  g_auto (Run) run = run_cli ("validate", "megatron-sp-memory", "--json");
  g_autoptr (JsonNode) root = parse_json (&run);
  JsonArray *sets = json_node_get_array (member (root, "sets"));
  g_assert_cmpuint (json_array_get_length (sets), ==, 1);
  JsonNode *set = json_array_get_element (sets, 0);
  g_assert_cmpstr (json_node_get_string (member (set, "name")), ==, "megatron-sp-memory");
  for (guint i = 0; i < G_N_ELEMENTS (numbers); i++)
    number (set, numbers[i]);
  for (guint i = 0; i < G_N_ELEMENTS (members); i++)
    member (set, members[i]);
  g_assert_true (JSON_NODE_HOLDS_NULL (member (set, "kendall")));
  g_auto (Run) again = run_cli ("validate", "megatron-sp-memory", "--json");
  g_assert_cmpstr (run.out, ==, again.out);
}

static void
test_text (void)
{
  g_autofree char *csv = g_build_filename (folder, "rows.csv", NULL), *text = NULL;
  g_auto (Run) run = run_cli ("validate", "megatron-sp-memory", "--csv", csv);
  g_assert_cmpint (run.status, ==, 0);
  assert_contains (run.out, "set                 statistic");
  assert_contains (run.out, "memory-worst");
  g_assert_true (g_file_get_contents (csv, &text, NULL, NULL));
  g_assert_true (g_str_has_prefix (text, "set,group,row,split,kind,column,measured,predicted,error,"));
  g_auto (Run) markdown = run_cli ("validate", "megatron-sp-memory", "--markdown");
  g_assert_true (g_str_has_prefix (markdown.out, "| set | statistic |"));
  g_remove (csv);
}

/* A bound that nobody can keep is a result, and a failure only where that is asked for. */
static void
test_strict (void)
{
  g_autofree char *path = g_build_filename (folder, "set.ini", NULL);
  g_autofree char *text =
      g_strdup_printf ("[set]\ntitle = x\nsource = x\n[bounds]\ntime-worst = 0.000001 %%\n[rows.a]\ndata = "
                       "%s/papers/megatron-sp-22b-step.csv\nscenario = %s/papers/megatron-sp-22b.ini\n",
                       g_getenv ("SEQPAR_DATA"), g_getenv ("SEQPAR_DATA"));
  g_assert_true (g_file_set_contents (path, text, -1, NULL));
  g_auto (Run) plain = run_cli ("validate", path), strict = run_cli ("validate", path, "--strict");
  g_assert_cmpint (plain.status, ==, 0);
  assert_contains (plain.out, "missed");
  g_assert_cmpint (strict.status, ==, 3);
  g_assert_cmpstr (strict.out, ==, plain.out);
  assert_contains (strict.err, "1 bound is missed");
  g_remove (path);
}

/* A bound of which nothing was measured is not kept either; a reason says how many of its runs miss. */
static void
test_unmeasured (void)
{
  g_autofree char *path = g_build_filename (folder, "set.ini", NULL);
  g_autofree char *text = g_strdup_printf (
      "[set]\ntitle = x\nsource = x\n[bounds]\nmemory-median = 5 %%\nkendall = 0.8\ntime-median = 0.000001 %%\n"
      "[rows.a]\ndata = %s/papers/megatron-sp-22b-step.csv\nscenario = %s/papers/megatron-sp-22b.ini\n"
      "why.1 = time where recompute = full: no model of it\n",
      g_getenv ("SEQPAR_DATA"), g_getenv ("SEQPAR_DATA"));
  g_assert_true (g_file_set_contents (path, text, -1, NULL));
  g_auto (Run) strict = run_cli ("validate", path, "--strict"), json = run_cli ("validate", path, "--json");
  g_assert_cmpint (strict.status, ==, 3);
  assert_contains (strict.err, "1 bound is missed; of 2 bounds nothing was measured");
  assert_contains (strict.out, "not measured");
  assert_contains (strict.out, "2 runs beyond twice the bound, 1 explained");
  assert_contains (strict.out, "why, of 1 of the 1 runs that it holds for: no model of it");
  assert_contains (json.out, "\"not measured\"");
  g_remove (path);
}

static void
test_refused (void)
{
  g_auto (Run) name = run_cli ("validate", "megatron-sp-memry");
  assert_refused (&name, 1, (const char *const[]){ "megatron-sp-memry", "did you mean megatron-sp-memory?", NULL });
  g_auto (Run) both = run_cli ("validate", "--json", "--markdown");
  assert_refused (&both, 2, (const char *const[]){ "--json, --markdown", NULL });
  g_auto (Run) fit = run_cli ("validate", "--fit", "--strict");
  assert_refused (&fit, 2, (const char *const[]){ "--fit scores nothing", NULL });
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_auto (Run) built = run_cli ("validate", "megatron-sp-memory");
  if (built.status == 1 && strstr (built.err, "GSL") != NULL) {
    g_print ("1..0 # SKIP built without GSL\n");
    return 0;
  }
  g_test_add_func ("/cli-validate/json", test_json);
  g_test_add_func ("/cli-validate/text", test_text);
  g_test_add_func ("/cli-validate/strict", test_strict);
  g_test_add_func ("/cli-validate/unmeasured", test_unmeasured);
  g_test_add_func ("/cli-validate/refused", test_refused);
  int status = g_test_run ();
  g_rmdir (folder);
  return status;
}
