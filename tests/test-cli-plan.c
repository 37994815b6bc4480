/* SPDX-License-Identifier: Apache-2.0 */
/* Questions of seqpar plan: what is refused, and what the JSON and the text of each say. */
#include "tests/cli-run.h"

#define PLAN "plan", "--model", "model.ini", "--cluster", "cluster.ini", "--global-batch", "4"
#define AT PLAN, "--sequence", "16K"

/* --- refused ------------------------------------------------------------------------------------------------------ */

typedef struct {
  const char *name;
  const char *args[20];
  const char *words[4];
} Refusal;

static const Refusal refusals[] = {
  { "length-given", { AT, "--max-sequence" }, { "--sequence does not go with --max-sequence" } },
  { "gpus-given", { AT, "--min-gpus", "--gpus", "2" }, { "--gpus does not go with --min-gpus" } },
  { "two", { AT, "--min-gpus", "--pareto" }, { "--pareto does not go with --min-gpus", "one question" } },
  { "two-more", { AT, "--budget", "1 GPU-hours", "--tokens", "1B", "--sensitivity" }, { "--sensitivity", "--budget" } },
  { "target-too", { AT, "--pareto", "--target-tokens-per-s", "1" }, { "--target-tokens-per-s", "--pareto" } },
  { "no-tokens", { AT, "--budget", "5 GPU-hours" }, { "--budget", "--tokens is missing" } },
  { "no-budget", { AT, "--tokens", "5B" }, { "--tokens goes with --budget" } },
  { "no-unit", { AT, "--budget", "5000", "--tokens", "5B" }, { "--budget \"5000\"", "GPU-hours" } },
  { "no-hours",
    { AT, "--budget", "0 GPU-hours", "--tokens", "5B" },
    { "--budget \"0 GPU-hours\"", "0.001 GPU-hours" } },
  { "negative", { AT, "--budget", "-5 GPU-hours", "--tokens", "5B" }, { "--budget \"-5 GPU-hours\"" } },
  { "nan", { AT, "--budget", "nan GPU-hours", "--tokens", "5B" }, { "--budget \"nan GPU-hours\"" } },
  { "other-unit", { AT, "--budget", "5 GPU-hour", "--tokens", "5B" }, { "did you mean GPU-hours" } },
  { "binary", { AT, "--budget", "5 GPU-hours", "--tokens", "5G" }, { "--tokens \"5G\"", "10^9" } },
  { "tokens-zero", { AT, "--budget", "5 GPU-hours", "--tokens", "0" }, { "--tokens \"0\"" } },
  { "rate-zero", { AT, "--target-tokens-per-s", "0" }, { "--target-tokens-per-s \"0\"" } },
  { "rate-nan", { AT, "--target-tokens-per-s", "nan" }, { "--target-tokens-per-s \"nan\"" } },
  { "rate-negative", { PLAN, "--max-sequence", "--target-tokens-per-s", "-1" }, { "--target-tokens-per-s \"-1\"" } },
  { "rate-unit", { AT, "--target-tokens-per-s", "5K" }, { "--target-tokens-per-s \"5K\"" } },
  { "top", { AT, "--pareto", "--top", "3" }, { "--top does not go with --pareto" } },
  { "export", { AT, "--min-gpus", "--export", "megatron" }, { "--export does not go with --min-gpus" } },
  { "csv", { AT, "--csv", "x.csv" }, { "--csv goes with --pareto" } },
  { "simulate-of-question", { AT, "--pareto", "--simulate", "3" }, { "--simulate does not go with --pareto" } },
  { "simulate-text", { AT, "--simulate", "few" }, { "--simulate \"few\"" } },
  { "threads-many", { AT, "--threads", "5000" }, { "--threads \"5000\"", "1024" } },
  { "no-length", { PLAN, "--min-gpus" }, { "--sequence is missing" } },
  { "slices-of-question", { AT, "--pareto", "--slices", "1,2" }, { "--slices does not go with --pareto" } },
  { "slices-export", { AT, "--export", "megatron", "--slices", "1,2" }, { "--slices", "--export" } },
  { "slices-text", { AT, "--slices", "1,many" }, { "--slices \"many\"" } },
  { "slices-many", { AT, "--slices", "500" }, { "--slices \"500\"", "128" } },
  { "slices-twice", { AT, "--slices", "1,2,1" }, { "1 stands twice" } },
  { "slices-empty", { AT, "--slices", "" }, { "--slices \"\": expected numbers of slices" } },
  { "slices-hole", { AT, "--slices", "1,,4" }, { "--slices \"\"" } },
  { "slices-set", { AT, "--slices", "1,2", "--set", "slices=4" }, { "--slices", "--set slices does not go with it" } },
  { "slices-foreign", { AT, "--slices", "\u0664" }, { "neither a file nor --set", "expected ASCII characters" } },
};

static void
test_refused (gconstpointer data)
{
  const Refusal *c = data;
  write_good ();
  g_auto (Run) run = run_args (c->args);
  assert_refused (&run, 2, c->words);
}

static void
test_not_written (void)
{
  static const char *const words[] = { "no-such/p.csv", NULL };
  write_good ();
  g_auto (Run) run = run_cli (AT, "--pareto", "--csv", "no-such/p.csv");
  assert_refused (&run, 1, words);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static JsonNode *
ask (const char *const *args, const char *question)
{
  g_auto (Run) run = run_args (args);
  JsonNode *node = parse_json (&run);
  g_assert_cmpstr (json_node_get_string (member (node, "question")), ==, question);
  return node;
}
#define ASK(question, ...) ask ((const char *const[]){ __VA_ARGS__, "--json", NULL }, question)

static gboolean
truth (JsonNode *node, const char *name)
{
  JsonNode *found = member (node, name);
  g_assert_cmpint (json_node_get_value_type (found), ==, G_TYPE_BOOLEAN);
  return json_node_get_boolean (found);
}

static void
test_sequence (void)
{
  write_good ();
  g_autoptr (JsonNode) free_of_rate = ASK ("max-sequence", PLAN, "--max-sequence", "--top", "2");
  double longest = number (free_of_rate, "sequence_tokens");
  g_assert_true (truth (free_of_rate, "found"));
  g_assert_true (truth (free_of_rate, "monotonic"));
  g_assert_cmpstr (json_node_get_string (member (free_of_rate, "limited_by")), ==, "memory");
  g_assert_cmpfloat (number (member (free_of_rate, "next"), "lacks_bytes"), >, 0);
  g_assert_cmpuint (json_array_get_length (array (free_of_rate, "layouts")), <=, 2);
  g_autoptr (JsonNode) quick = ASK ("max-sequence", PLAN, "--max-sequence", "--target-tokens-per-s", "1e6");
  g_assert_cmpfloat (number (quick, "sequence_tokens"), <, longest);
  g_assert_cmpstr (json_node_get_string (member (quick, "limited_by")), ==, "tokens-per-s");
  g_assert_cmpfloat (number (member (quick, "next"), "tokens_per_s"), <, 1e6);
  g_auto (Run) text = run_cli (PLAN, "--max-sequence");
  assert_contains (text.out, "longest sequence: ");
  assert_contains (text.out, "nothing fits: what lacks least");
  g_auto (Run) none = run_cli (PLAN, "--max-sequence", "--target-tokens-per-s", "1e12");
  g_assert_cmpint (none.status, ==, 0);
  assert_contains (none.out, "NO SEQUENCE");
}

static void
test_gpus (void)
{
  write_good ();
  g_autoptr (JsonNode) fewest = ASK ("min-gpus", AT, "--min-gpus");
  g_assert_cmpfloat (number (fewest, "fewest_gpus"), ==, 1);
  g_assert_cmpuint (json_array_get_length (array (fewest, "counts")), ==, 1);
  double one = number (json_array_get_element (array (fewest, "counts"), 0), "tokens_per_s");
  g_autofree char *target = g_strdup_printf ("%.0f", 1.5 * one);
  g_autoptr (JsonNode) reached = ASK ("target-tokens-per-s", AT, "--target-tokens-per-s", target);
  g_assert_cmpfloat (number (reached, "fewest_gpus"), >, 1);
  g_assert_cmpuint (json_array_get_length (array (reached, "counts")), ==, 3);
  JsonArray *layouts = array (reached, "layouts");
  for (guint i = 0; i < json_array_get_length (layouts); i++)
    g_assert_cmpfloat (number (json_array_get_element (layouts, i), "tokens_per_s"), >=, 1.5 * one - 1);
  g_auto (Run) text = run_cli (AT, "--min-gpus", "--target-tokens-per-s", "1e11");
  g_assert_cmpint (text.status, ==, 0);
  assert_contains (text.out, "NO NUMBER OF GPUs");
}

static void
test_budget (void)
{
  write_good ();
  g_autoptr (JsonNode) ample = ASK ("budget", AT, "--budget", "5 GPU-days", "--tokens", "1B");
  JsonNode *best = member (ample, "best"), *cheapest = member (ample, "cheapest");
  double hours = number (best, "gpu_hours");
  g_assert_cmpfloat (number (ample, "budget_gpu_hours"), ==, 120);
  g_assert_cmpfloat (number (ample, "tokens"), ==, 1e9);
  g_assert_cmpfloat_with_epsilon (hours, number (best, "gpus") * 1e9 / number (best, "tokens_per_s") / 3600,
                                  1e-6 * hours);
  g_assert_cmpfloat_with_epsilon (number (best, "margin"), 1 - hours / 120, 1e-9);
  g_assert_cmpfloat (number (cheapest, "gpu_hours"), <=, hours);
  g_autofree char *tight = g_strdup_printf ("%.6f GPU-hours", 0.5 * number (cheapest, "gpu_hours"));
  g_autoptr (JsonNode) none = ASK ("budget", AT, "--budget", tight, "--tokens", "1B");
  g_assert_false (truth (none, "found"));
  g_assert_true (JSON_NODE_HOLDS_NULL (member (none, "best")));
  g_assert_cmpfloat_with_epsilon (number (none, "affordable_tokens"), 0.5e9, 1e4);
  g_auto (Run) text = run_cli (AT, "--budget", tight, "--tokens", "1B");
  assert_contains (text.out, "NOT WITHIN THE BUDGET");
  assert_contains (text.out, "500,0"); /* million tokens */
}

static void
test_pareto (void)
{
  write_good ();
  g_autoptr (JsonNode) all = ASK ("pareto", AT, "--pareto", "--csv", "front.csv");
  JsonArray *points = array (all, "points");
  g_assert_cmpuint (json_array_get_length (points), >, 2);
  for (guint i = 0; i < json_array_get_length (points); i++) {
    JsonNode *point = json_array_get_element (points, i),
             *before = i > 0 ? json_array_get_element (points, i - 1) : NULL;
    g_assert_true (truth (point, "fits"));
    if (before == NULL || number (before, "gpus") != number (point, "gpus"))
      continue;
    g_assert_cmpfloat (number (before, "step_time_s"), <, number (point, "step_time_s"));
    g_assert_cmpfloat (number (member (before, "memory"), "peak_bytes"), >,
                       number (member (point, "memory"), "peak_bytes"));
  }
  g_autofree char *csv = read_back ("front.csv", NULL);
  g_auto (GStrv) lines = g_strsplit (csv, "\n", -1);
  g_assert_cmpuint (g_strv_length (lines), ==, json_array_get_length (points) + 2);
  if (!has_gnuplot ())
    return;
  g_auto (Run) of_csv = run_cli ("plot", "pareto", "front.csv", "-o", "-", "--size", "100x30");
  assert_contains (of_csv.out, "1 GPU");
  assert_contains (of_csv.out, "4 GPUs");
  g_auto (Run) of_scenario = run_cli ("plot", "pareto", "scenario.ini", "-o", "front.svg");
  g_assert_cmpint (of_scenario.status, ==, 0);
  g_auto (Run) swept = run_cli ("plot", "pareto", "scenario.ini", "-o", "x.svg", "--sweep", "zero=1,2");
  static const char *const words[] = { "--sweep", "pareto", NULL };
  assert_refused (&swept, 2, words);
}

static void
test_sensitivity (void)
{
  write_good ();
  g_autoptr (JsonNode) all = ASK ("sensitivity", AT, "--sensitivity");
  JsonArray *rows = array (all, "resources");
  g_assert_cmpuint (json_array_get_length (rows), ==, 7);
  for (guint i = 1; i < json_array_get_length (rows); i++)
    g_assert_cmpfloat (number (json_array_get_element (rows, i), "planned_step_gain"), <=,
                       number (json_array_get_element (rows, i - 1), "planned_step_gain"));
  g_auto (Run) text = run_cli (AT, "--sensitivity");
  assert_contains (text.out, "FLOP rate");
}

/* With a profile the table and the JSON say which tie; without they say nothing of it. */
static void
test_ties (void)
{
  write_good ();
  g_auto (Run) without = run_cli (AT, "--top", "3"), with = run_cli (AT, "--top", "3", "--profile", "h100-1x2");
  g_assert_null (strstr (without.out, "ties with the best"));
  assert_contains (with.out, "ties with the best");
  g_auto (Run) json = run_cli (AT, "--top", "12", "--profile", "h100-1x2", "--json");
  g_autoptr (JsonNode) node = parse_json (&json);
  JsonArray *layouts = array (node, "layouts");
  g_assert_true (truth (json_array_get_element (layouts, 0), "ties_with_best"));
  g_assert_true (JSON_NODE_HOLDS_NULL (member (json_array_get_element (layouts, 11), "ties_with_best")));
  guint simplest = (guint) number (node, "simplest_of_ties");
  g_assert_cmpuint (simplest, >=, 1);
  g_assert_true (truth (json_array_get_element (layouts, simplest - 1), "ties_with_best"));
}

/* What a search does is the same on any number of threads, and says the same. */
static void
test_threads (void)
{
  write_good ();
  g_auto (Run) one = run_cli (AT, "--space", "whole", "--threads", "1"),
               two = run_cli (AT, "--space", "whole", "--threads", "2");
  g_assert_cmpint (one.status, ==, 0);
  g_assert_cmpstr (one.out, ==, two.out);
}

static double
best_step (JsonNode *node, const char *figure)
{
  return number (json_array_get_element (array (node, "layouts"), 0), figure);
}

static JsonNode *
plan_json (const char *const *args)
{
  g_auto (Run) run = run_args (args);
  return parse_json (&run);
}

/* The whole space holds the usual one: more layouts, and none of the usual ones is quicker than its best. */
static void
test_space (void)
{
  write_good ();
  g_autoptr (JsonNode) usual = plan_json ((const char *const[]){ AT, "--simulate", "0", "--json", NULL });
  g_autoptr (JsonNode) whole =
      plan_json ((const char *const[]){ AT, "--simulate", "0", "--json", "--space", "whole", NULL });
  g_assert_cmpfloat (number (whole, "candidates"), >, 10 * number (usual, "candidates"));
  g_assert_cmpfloat (best_step (whole, "step_time_s"), <=, best_step (usual, "step_time_s"));
  /* All are pruned, legal or refused, and of the legal ones some are estimated. */
  g_assert_cmpfloat (number (whole, "pruned") + number (whole, "legal"), <=, number (whole, "candidates"));
  g_assert_cmpfloat (number (whole, "estimated"), <=, number (whole, "legal"));
  g_assert_cmpfloat (number (whole, "fitting"), <=, number (whole, "estimated"));
  g_assert_true (JSON_NODE_HOLDS_NULL (member (whole, "gap")));
  static const char *const words[] = { "--space", "usual", "whole", NULL };
  g_auto (Run) other = run_cli (AT, "--space", "all");
  assert_refused (&other, 2, words);
}

/* So many are simulated, they come first, the quickest before the others, within the bounds of the estimate. */
static void
test_simulate (void)
{
  write_good ();
  g_autoptr (JsonNode) node = plan_json ((const char *const[]){ AT, "--simulate", "3", "--top", "5", "--json", NULL });
  JsonArray *layouts = array (node, "layouts");
  g_assert_cmpfloat (number (node, "simulated"), ==, 3);
  g_assert_cmpfloat (number (node, "gap"), >=, 0);
  g_assert_cmpfloat (number (node, "gap"), <, 1);
  g_assert_cmpuint (json_array_get_length (layouts), ==, 5);
  for (guint i = 0; i < 5; i++) {
    JsonNode *layout = json_array_get_element (layouts, i);
    g_assert_cmpint (json_object_has_member (json_node_get_object (layout), "simulated_step_s"), ==, i < 3);
    if (i >= 3)
      continue;
    double simulated = number (layout, "simulated_step_s");
    g_assert_cmpfloat (simulated, >=, number (layout, "step_time_low_s") * (1 - 1e-9));
    g_assert_cmpfloat (simulated, <=, number (layout, "step_time_high_s") * (1 + 1e-9));
    if (i > 0)
      g_assert_cmpfloat (simulated, >=, number (json_array_get_element (layouts, i - 1), "simulated_step_s"));
  }
  g_auto (Run) text = run_cli (AT, "--simulate", "3", "--top", "5");
  assert_contains (text.out, "3 of the best are simulated");
}

int
main (int argc, char **argv)
{
  static const struct {
    const char *path;
    GTestFunc test;
  } tests[] = {
    { "/cli-plan/not-written", test_not_written },
    { "/cli-plan/sequence", test_sequence },
    { "/cli-plan/gpus", test_gpus },
    { "/cli-plan/budget", test_budget },
    { "/cli-plan/pareto", test_pareto },
    { "/cli-plan/sensitivity", test_sensitivity },
    { "/cli-plan/ties", test_ties },
    { "/cli-plan/threads", test_threads },
    { "/cli-plan/space", test_space },
    { "/cli-plan/simulate", test_simulate },
  };
  if (!begin_cli (&argc, &argv))
    return 0;
  for (guint i = 0; i < G_N_ELEMENTS (refusals); i++) {
    g_autofree char *path = g_strdup_printf ("/cli-plan/refused/%s", refusals[i].name);
    g_test_add_data_func (path, &refusals[i], test_refused);
  }
  for (guint i = 0; i < G_N_ELEMENTS (tests); i++)
    g_test_add_func (tests[i].path, tests[i].test);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
