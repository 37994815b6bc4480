/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar explain: of scenarios and run files, as text and JSON, and what it refuses. */
#include "tests/cli-run.h"

/* --- JSON --------------------------------------------------------------------------------------------------------- */

/* The differences of the terms come to that of the step, in what is printed too. */
static void
check_sum (JsonNode *root, const char *other)
{
  JsonArray *time = array (root, "time");
  double sum = 0, mine = number (member (root, "mine"), "step_time_s"),
         step = mine - number (member (root, other), "step_time_s");

  for (guint i = 0; i < json_array_get_length (time); i++)
    sum += number (json_array_get_element (time, i), "difference_s");
  g_assert_cmpfloat (fabs (sum - step), <=, 1e-12 * mine);
}

static void
test_best (void)
{
  write_good ();
  g_auto (Run) run = run_cli ("explain", "scenario.ini", "--set", "recompute=full", "--json");
  g_autoptr (JsonNode) root = parse_json (&run);
  check_sum (root, "best");
  g_assert_cmpuint (json_array_get_length (array (root, "sentences")), >, 0);
  g_assert_cmpfloat (number (member (root, "best"), "step_time_s"), <, number (member (root, "mine"), "step_time_s"));

  /* the planner's own words for the same question */
  g_auto (Run) plan = run_cli ("plan", "--model", "model.ini", "--cluster", "cluster.ini", "--sequence", "64K",
                               "--global-batch", "2", "--top", "1", "--simulate", "0", "--json");
  g_autoptr (JsonNode) planned = parse_json (&plan);
  JsonNode *first = json_array_get_element (array (planned, "layouts"), 0);
  g_assert_cmpfloat (number (first, "step_time_s"), ==, number (member (root, "best"), "step_time_s"));
}

/* What a key does: the file with it, beside the file without. */
static void
test_against (void)
{
  write_good ();
  g_auto (Run) run =
      run_cli ("explain", "scenario.ini", "--set", "recompute=full", "--against", "scenario.ini", "--json");
  g_autoptr (JsonNode) root = parse_json (&run);
  check_sum (root, "other");
  JsonArray *keys = array (root, "differences");
  g_assert_cmpuint (json_array_get_length (keys), ==, 1);
  g_assert_cmpstr (json_object_get_string_member (json_array_get_object_element (keys, 0), "key"), ==, "recompute");
  g_auto (Run) text = run_cli ("explain", "scenario.ini", "--set", "recompute=full", "--against", "scenario.ini");
  g_assert_cmpint (text.status, ==, 0);
  assert_contains (text.out, "\n  2. recompute: ");
  assert_contains (text.out, "(recompute = full, not none)");
  assert_contains (text.out, "keys that differ\n             yours  other\n  recompute  full   none\n");
  g_auto (Run) same = run_cli ("explain", "scenario.ini", "--against", "scenario.ini");
  assert_contains (same.out, "1. yours is the other layout: ");
}

/* Another model and another cluster, each under its own name, in every term; the same model under another path is none. */
static void
test_other_files (void)
{
  write_good ();
  g_auto (Run) model = run_cli ("explain", "llama-3.1-8b-208k", "--set", "config=models/qwen3-8b.json", "--against",
                                "llama-3.1-8b-208k");
  g_assert_cmpint (model.status, ==, 0);
  assert_contains (model.out, "\n  model  qwen3-8b.json  llama-3.1-8b.json\n");
  assert_contains (model.out, "kernels of the forward (model = qwen3-8b.json, not llama-3.1-8b.json)");
  g_auto (Run) cluster = run_cli ("explain", "llama-3.1-8b-208k", "--set", "file=clusters/h100-2x8-tcpx.ini",
                                  "--against", "llama-3.1-8b-208k");
  g_assert_cmpint (cluster.status, ==, 0);
  assert_contains (cluster.out, "\n  cluster  h100-2x8-tcpx.ini  a800-2x8.ini\n");
  write_file ("copy.ini", model_text, -1);
  g_auto (Run) same = run_cli ("explain", "scenario.ini", "--set", "config=copy.ini", "--against", "scenario.ini");
  g_assert_cmpint (same.status, ==, 0);
  assert_contains (same.out, "1. yours is the other layout: ");
}

/* G12: what a switch does to a ring over PCIe is said of the ring. */
static void
test_overlap (void)
{
  static const char scenario[] =
      "[model]\nconfig = llama-3.1-8b\n[cluster]\nfile = l20-1x8\n[layout]\nring = 8\nzero = "
      "3\nrecompute = full\n[run]\nsequence = 32K\n";
  write_file ("l20.ini", scenario, -1);
  g_auto (Run) run = run_cli ("explain", "l20.ini", "--set", "overlap=false", "--against", "l20.ini");
  g_assert_cmpint (run.status, ==, 0);
  assert_contains (run.out, "ring, exposed: ");
  assert_contains (run.out, "nothing of it is hidden (overlap = false, not true)");
}

/* --- what does not fit -------------------------------------------------------------------------------------------- */

/* G26: FSDP takes no longer sequences. */
static void
test_misfit (void)
{
  static const char scenario[] =
      "[model]\nconfig = llama-3.1-8b\n[cluster]\nfile = a40-1x8-pairs\n[layout]\ndata = 8\n"
      "zero = 3\n[run]\nsequence = 16K\nglobal-batch = 8\nlora-rank = 8\nframework = fsdp2\n";
  write_file ("a40.ini", scenario, -1);
  g_auto (Run) run = run_cli ("explain", "a40.ini");
  g_assert_cmpint (run.status, ==, 0);
  assert_contains (run.out, "TOO MUCH");
  assert_contains (run.out, "is activations: what layers keep for their backward");
  assert_contains (run.out, "ZeRO and FSDP shard states, not activations");
  assert_contains (run.out, "the smallest changes that make yours fit\n");
  assert_contains (run.out, "     1  recompute = full\n");
  assert_contains (run.out, "     2  data = 1, ulysses = 8\n");
  assert_contains (run.out, "     2  data = 1, ring = 8\n");

  /* each as it is said */
  g_auto (Run) json = run_cli ("explain", "a40.ini", "--json");
  g_autoptr (JsonNode) root = parse_json (&json);
  JsonArray *changes = array (root, "changes");
  for (guint i = 0; i < json_array_get_length (changes); i++) {
    JsonNode *change = json_array_get_element (changes, i);
    JsonArray *keys = array (change, "differences");
    g_autoptr (GPtrArray) args = g_ptr_array_new_with_free_func (g_free);
    g_ptr_array_add (args, g_strdup ("run"));
    g_ptr_array_add (args, g_strdup ("a40.ini"));
    g_ptr_array_add (args, g_strdup ("--json"));
    for (guint k = 0; k < json_array_get_length (keys); k++) {
      JsonObject *key = json_array_get_object_element (keys, k);
      g_ptr_array_add (args, g_strdup ("--set"));
      g_ptr_array_add (args, g_strdup_printf ("%s=%s", json_object_get_string_member (key, "key"),
                                              json_object_get_string_member (key, "other")));
    }
    g_ptr_array_add (args, NULL);
    g_auto (Run) changed = run_args ((const char *const *) args->pdata);
    g_autoptr (JsonNode) result = parse_json (&changed);
    g_assert_true (json_object_get_boolean_member (json_node_get_object (result), "fits"));
    g_assert_cmpfloat (number (member (result, "memory"), "peak_bytes"), ==, number (change, "peak_bytes"));
  }
}

/* More nodes than the cluster has, where nothing else does. */
static void
test_more_nodes (void)
{
  static const char scenario[] = "[model]\nconfig = llama-3.1-70b\n[cluster]\nfile = h100-128x8\nnodes = 1\n[layout]\n"
                                 "data = 8\nzero = 3\nrecompute = full\n[run]\nsequence = 4K\nglobal-batch = 64\n";
  write_file ("one-node.ini", scenario, -1);
  g_auto (Run) run = run_cli ("explain", "one-node.ini");
  g_assert_cmpint (run.status, ==, 0);
  assert_contains (run.out, "     2  nodes = 4, data = 32\n");
}

/* --- run files ---------------------------------------------------------------------------------------------------- */

static const char flags[] = "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length 4096 \\\n"
                            "  --position-embedding-type rope --bf16 --micro-batch-size 1 --global-batch-size 8 \\\n"
                            "  --tensor-model-parallel-size 2 --vocab-size 1000 --lr 1e-4 --xyzzy\n";

/* A run file says what its import says. */
static void
test_run_file (void)
{
  write_good ();
  write_file ("run.args", flags, -1);
  g_auto (Run) run = run_cli ("explain", "run.args", "--cluster", "cluster.ini");
  g_assert_cmpint (run.status, ==, 0);
  assert_contains (run.err, "seqpar: unknown: --xyzzy\n");
  assert_contains (run.out, "what makes the difference\n");
  g_auto (Run) import = run_cli ("import", "run.args", "--cluster", "cluster.ini", "-o", "imported.ini");
  g_assert_cmpint (import.status, ==, 0);
  g_auto (Run) json = run_cli ("explain", "imported.ini", "--json");
  g_auto (Run) both =
      run_cli ("explain", "run.args", "--cluster", "cluster.ini", "--against", "imported.ini", "--json");
  g_autoptr (JsonNode) of_scenario = parse_json (&json);
  g_autoptr (JsonNode) root = json_from_string (both.out, NULL);
  g_assert_cmpuint (json_array_get_length (array (root, "differences")), ==, 0);
  g_assert_cmpfloat (number (member (root, "mine"), "step_time_s"), ==,
                     number (member (of_scenario, "mine"), "step_time_s"));

  g_auto (Run) out = run_cli ("explain", "run.args", "--cluster", "cluster.ini", "--export", "megatron");
  g_assert_cmpint (out.status, ==, 0);
  assert_contains (out.err, "seqpar: note: as it is read back it takes ");
  write_file ("best.args", out.out, -1);
  g_auto (Run) again = run_cli ("explain", "best.args", "--cluster", "cluster.ini", "--export", "megatron");
  g_assert_cmpint (again.status, ==, 0);
  assert_contains (again.err, "seqpar: note: no file of this format beats yours, which takes ");
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void
test_refused (void)
{
  static const struct {
    const char *args[8];
    int status;
    const char *words[4];
  } cases[] = {
    { { "explain" }, 2, { "SCENARIO is missing" } },
    { { "explain", "scenario.ini", "scenario.ini" }, 2, { "one argument too many" } },
    { { "explain", "scenario.ini", "--agianst", "x" }, 2, { "--against" } },
    { { "explain", "scenario.ini", "--cluster", "cluster.ini" }, 2, { "--cluster goes with a run file" } },
    { { "explain", "scenario.ini", "--export", "megatorn" }, 2, { "megatron" } },
    { { "explain", "scenario.ini", "--export", "megatron", "--json" }, 2, { "--json does not go with it" } },
    { { "explain", "missing.ini" }, 1, { "missing.ini" } },
    { { "explain", "-" }, 1, { "-" } },
    { { "explain", "scenario.ini", "--against", "missing.ini" }, 1, { "missing.ini" } },
    { { "explain", "scenario.ini", "--set", "ulysses=3" }, 1, { "scenario.ini: [layout]", "ulysses" } },
    { { "explain", "scenario.ini", "--set", "scope=forward" }, 1, { "[run] scope = forward", "scope = step" } },
    { { "explain", "scenario.ini", "--set", "recompute=ful" }, 1, { "recompute", "full" } },
    { { "explain", "run.args" }, 1, { "--cluster FILE" } },
    { { "explain", "noise.txt" }, 1, { "noise.txt" } },
  };
  write_good ();
  write_file ("run.args", flags, -1);
  write_file ("noise.txt", "no run file at all\n", -1);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_auto (Run) run = run_args (cases[i].args);
    assert_refused (&run, cases[i].status, cases[i].words);
  }
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_test_add_func ("/cli-explain/best", test_best);
  g_test_add_func ("/cli-explain/against", test_against);
  g_test_add_func ("/cli-explain/other-files", test_other_files);
  g_test_add_func ("/cli-explain/overlap", test_overlap);
  g_test_add_func ("/cli-explain/misfit", test_misfit);
  g_test_add_func ("/cli-explain/more-nodes", test_more_nodes);
  g_test_add_func ("/cli-explain/run-file", test_run_file);
  g_test_add_func ("/cli-explain/refused", test_refused);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
