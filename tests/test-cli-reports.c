/* SPDX-License-Identifier: Apache-2.0 */
/* What people read: the rows of `show model`, the head of a run's report, the interval of its step, how layouts and
 * counts are put in words. */
#include "tests/cli-run.h"

/* The value of a row of a table of two columns, "  name   value"; NULL if there is none. Free with g_free. */
static char *
row_of (const char *text, const char *name)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++) {
    char *line = g_strchug (lines[i]);
    if (g_str_has_prefix (line, name) && g_str_has_prefix (line + strlen (name), "  "))
      return g_strdup (g_strchug (line + strlen (name)));
  }
  return NULL;
}

static void
assert_row (const Run *run, const char *name, const char *value)
{
  g_autofree char *found = row_of (run->out, name);
  g_assert_cmpint (run->status, ==, 0);
  g_assert_cmpstr (found, ==, value);
}

/* --- show model --------------------------------------------------------------------------------------------------- */

/* As the models' files have it; NULL: no such row. */
static const struct {
  const char *model, *row, *value;
} model_rows[] = {
  { "gpt-oss-20b", "experts", "32, 4 a token, each swiglu, 2880 wide" }, /* in all layers: no dense MLP */
  { "gpt-oss-20b", "MLP", NULL },
  { "gpt-oss-20b", "shared experts", NULL },
  { "gpt-oss-20b", "attention", "window of 128 tokens in 12 of 24 softmax layers, sinks" },
  { "gpt-oss-20b", "biases", "q k v, attention output, experts and router" },
  { "mamba2-1b", "MLP", "none" },
  { "mamba2-1b", "heads", NULL },
  { "mamba2-1b", "recurrence", "64 heads of 128 key x 64 value features, 1 key head, convolution of 4, output gate" },
  { "deepseek-v3", "MLP", "swiglu, 18432 wide, in 3 layers" },
  { "deepseek-v3", "experts", "256, 8 a token, each swiglu, 2048 wide, in 58 layers" },
  { "deepseek-v3", "shared experts", "2048 wide together" },
  { "deepseek-v3", "heads",
    "128 of 128 + 64 features, values of 128, keys and values from a latent of 512, queries from one of 1536" },
  { "kimi-linear-48b-a3b", "positions", "none" }, /* latent attention without rotation */
  { "qwen3-next-80b-a3b", "attention", "norms of query and key heads, output gate" },
  { "qwen3-next-80b-a3b", "positions", "rotary, 64 of 256 features, theta 1e+07, trained on 262144 tokens" },
  { "qwen3-next-80b-a3b", "shared experts", "512 wide together, with a gate" },
  { "jamba-v0.1", "MLP", "swiglu, 14336 wide, in 16 layers" },
  { "llama-3.1-8b", "MLP", "swiglu, 14336 wide" },
  { "llama-3.1-8b", "attention", NULL },
  { "llama-3.1-8b", "heads", "32 query, 8 key/value, of 128 features" },
  { "llama-3.1-8b", "positions", "rotary, theta 500000, trained on 131072 tokens" },
  { "bert-base", "attention", "not causal" },
};

static void
test_model (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (model_rows); i++) {
    g_auto (Run) run = run_cli ("show", "model", model_rows[i].model);
    assert_row (&run, model_rows[i].row, model_rows[i].value);
  }
}

/* --- the head of a report ----------------------------------------------------------------------------------------- */

/* The small model has 4 layers of 256 (256 + 2 128) + 256^2 + 3 256 512 + 2 256 = 590,336 parameters, embeddings of
 * 256,000 and 256 in the last norm: 2,873,600. LoRA of rank 16 on q and v adds 4 x 16 ((256 + 256) + (256 + 128)) =
 * 57,344; without the embedding and two layers 1,436,928 are trained. */
static void
test_head (void)
{
  write_good ();
  g_auto (Run) plain = run_cli ("run", "scenario.ini");
  assert_row (&plain, "model", "small, 2,873,600 parameters");
  assert_row (&plain, "trained", NULL);
  assert_row (&plain, "run", "sequence 65,536 tokens, global batch 2, micro-batch 1, bf16, causal");
  g_auto (Run) lora = run_cli ("run", "scenario.ini", "--set", "lora-rank=16", "--set", "lora-targets=q,v");
  assert_row (&lora, "model", "small, 2,873,600 parameters");
  assert_row (&lora, "trained", "LoRA of rank 16 on q, v: 57,344 of 2,930,944 parameters trained (1.96 %)");
  g_auto (Run) frozen = run_cli ("run", "scenario.ini", "--set", "frozen=embedding,first-2");
  assert_row (&frozen, "trained",
              "embedding and first 2 layers frozen: 1,436,928 of 2,873,600 parameters trained (50.00 %)");
  g_auto (Run) muon = run_cli ("run", "scenario.ini", "--set", "optimizer=muon");
  assert_row (&muon, "run", "sequence 65,536 tokens, global batch 2, micro-batch 1, bf16, causal, optimizer muon");
  g_auto (Run) offload =
      run_cli ("run", "llama-3.1-8b-208k", "--set", "file=clusters/h100-2x8-tcpx.ini", "--set", "offload=optimizer");
  assert_row (&offload, "layout", "ulysses 8 x ring 2, zigzag, zero 3, recompute full, offload optimizer");
}

static void
test_layout (void)
{
  g_autofree char *hybrid = g_strconcat (model_text, "layer-kinds = linear*3,softmax\n", NULL);
  write_good ();
  g_autofree char *grouped = replace (hybrid, "kv-heads = 4\n", "");
  write_file ("model.ini", grouped, -1);
  g_auto (Run) run = run_cli ("show", "layout", "scenario.ini", "--set", "ulysses=4", "--set", "ring=1", "--set",
                              "lasp=4", "--set", "ring-split=contiguous", "--set", "optimizer=muon");
  g_assert_cmpint (run.status, ==, 0);
  g_assert_true (g_str_has_prefix (run.out, "ulysses 4 (linear layers: lasp 4), lasp-version 2, zero 1, recompute none "
                                            "on 4 GPUs\noptimizer muon\nlegal\n"));
  assert_contains (run.out, "linear layers over the same ranks as lasp x an ulysses of their own\n");
  write_good ();
  g_auto (Run) lora = run_cli ("show", "layout", "scenario.ini", "--set", "lora-rank=16", "--set", "lora-targets=q,v");
  assert_contains (lora.out, "\nLoRA of rank 16 on q, v: 57,344 of 2,930,944 parameters trained (1.96 %)\nlegal\n");
  g_assert_null (strstr (lora.out, "same ranks"));
}

/* --- words -------------------------------------------------------------------------------------------------------- */

/* Nothing is 0 s, also where a difference leaves a rest of 1e-17: the idle time of a simulated chain. */
static void
test_zero (void)
{
  g_auto (Run) run = run_cli ("run", "tnl-1b-lasp", "--engine", "simulate");
  g_assert_cmpint (run.status, ==, 0);
  assert_contains (run.out, " 0 s ");
  g_assert_null (strstr (run.out, " 0.000 us"));
}

static void
test_plurals (void)
{
  write_good ();
  write_file ("one.csv", "1000\n", -1);
  write_file ("two.csv", "1000\n2000\n", -1);
  g_auto (Run) one = run_cli ("run", "scenario.ini", "--set", "packing=one.csv");
  assert_contains (one.out, "packing: 1 document of 1000 tokens");
  g_auto (Run) two = run_cli ("run", "scenario.ini", "--set", "packing=two.csv");
  assert_contains (two.out, "packing: 2 documents of 1500 tokens");
  g_auto (Run) why = run_cli ("run", "scenario.ini", "--why");
  assert_contains (why.out, "Cluster one node: 1 node of 4\n");
  assert_contains (why.out, "Step: 1 stage, ");
  g_auto (Run) uneven = run_cli ("run", "scenario.ini", "--set", "ulysses=1", "--set", "ring=1", "--set", "pipeline=3",
                                 "--set", "gpus-per-node=3");
  assert_contains (uneven.out, "4 layers over 3 stages: the first stage has one more\n");
  static const char *const words[] = { "data = 3 replicas and only global-batch = 1 sequence;", NULL };
  g_auto (Run) batch = run_cli ("run", "scenario.ini", "--set", "data=3", "--set", "global-batch=1", "--set",
                                "ulysses=1", "--set", "ring=1", "--set", "gpus-per-node=3");
  assert_refused (&batch, 1, words);
}

/* --- the interval ------------------------------------------------------------------------------------------------- */

/* [low, high] around the step. */
static void
check_interval (JsonNode *run)
{
  JsonArray *interval = array (run, "interval_s");
  double step = number (run, "step_time_s"), low = json_array_get_double_element (interval, 0);

  g_assert_cmpuint (json_array_get_length (interval), ==, 2);
  g_assert_cmpfloat (0, <, low);
  g_assert_cmpfloat (low, <, step);
  g_assert_cmpfloat (step, <, json_array_get_double_element (interval, 1));
}

/* With a fitted profile run, simulate and plan have an interval, and run's report a line of it; without one none. */
static void
test_interval (void)
{
  static const char gemm[] = "[profile]\nname = small\n[gemm]\nlaunch = 3 us\nrate = 700 TFLOP/s\n"
                             "rate.error = 20 TFLOP/s\nmemory-rate = 3000 GB/s\nprologue = 200\ntile-128 = 0.9\n"
                             "tile-64 = 0.5\ntail = 0.5\npoints = 40\nscatter = 0.02\n";
  static const char *const engines[] = { "estimate", "simulate" };
  write_good ();
  write_file ("small.ini", gemm, -1);
  for (guint i = 0; i < G_N_ELEMENTS (engines); i++) {
    g_auto (Run) run = run_cli ("run", "scenario.ini", "--set", "profile=small.ini", "--engine", engines[i], "--json");
    g_auto (Run) text = run_cli ("run", "scenario.ini", "--set", "profile=small.ini", "--engine", engines[i]);
    g_autoptr (JsonNode) root = parse_json (&run);
    g_autofree char *row = row_of (text.out, "interval");
    check_interval (root);
    g_assert_nonnull (row);
    g_assert_nonnull (strstr (row, "s   (95 %, of the profile's curves, which "));
  }
  g_auto (Run) without = run_cli ("run", "scenario.ini", "--engine", "simulate", "--json");
  g_autoptr (JsonNode) root = parse_json (&without);
  g_assert_true (JSON_NODE_HOLDS_NULL (member (root, "interval_s")));

  g_autofree char *device = g_build_filename (g_getenv ("SEQPAR_DATA"), "devices", "h100.ini", NULL);
  g_autofree char *cluster = replace (cluster_text, "DEVICE", device);
  g_autofree char *fitted = g_strconcat (cluster, "profile = small.ini\n", NULL);
  write_file ("cluster.ini", fitted, -1);
  g_auto (Run) plan = run_cli ("plan", "--model", "./model.ini", "--cluster", "./cluster.ini", "--sequence", "64K",
                               "--global-batch", "2", "--top", "3", "--json");
  g_autoptr (JsonNode) planned = parse_json (&plan);
  JsonArray *layouts = array (planned, "layouts");
  g_assert_cmpuint (json_array_get_length (layouts), ==, 3);
  for (guint i = 0; i < 3; i++)
    check_interval (json_array_get_element (layouts, i));
  write_good ();
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_test_add_func ("/cli-reports/model", test_model);
  g_test_add_func ("/cli-reports/head", test_head);
  g_test_add_func ("/cli-reports/interval", test_interval);
  g_test_add_func ("/cli-reports/layout", test_layout);
  g_test_add_func ("/cli-reports/zero", test_zero);
  g_test_add_func ("/cli-reports/plurals", test_plurals);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
