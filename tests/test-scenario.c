/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/scenario.h"

#include "models/inputs/ini.h"
#include "tests/input-file.h"

static const char small[] = "[model]\n"
                            "config = gpt2-large.json\n"
                            "[cluster]\n"
                            "file = h100-1x8\n"
                            "[layout]\n"
                            "data = 4\n"
                            "[run]\n"
                            "sequence = 1K\n";

/* Of every value another than its default. */
static const char full[] = "[model]\n"
                           "config = llama-3.1-8b.json\n"
                           "[cluster]\n"
                           "file = a100-16x8.ini\n"
                           "[layout]\n"
                           "data = 2\n"
                           "tensor = 4\n"
                           "pipeline = 2\n"
                           "ulysses = 2\n"
                           "ring = 4\n"
                           "lasp = 3\n"
                           "expert = 4\n"
                           "expert-capacity = 1.5\n"
                           "lasp-version = 1\n"
                           "ring-kind = all-gather\n"
                           "ring-keep = true\n"
                           "ring-backward = q\n"
                           "ring-inner = 2\n"
                           "ring-gradient-dtype = bf16\n"
                           "ring-split = contiguous\n"
                           "sequence-regions = false\n"
                           "zero = 2\n"
                           "zero-group = 2\n"
                           "reshard = false\n"
                           "gradient-dtype = bf16\n"
                           "overlap = false\n"
                           "recompute = selective\n"
                           "offload = none\n"
                           "loss = full\n"
                           "loss-chunks = 16\n"
                           "mlp-tiles = auto\n"
                           "schedule = 1f1b\n"
                           "virtual-stages = 1\n"
                           "stage-split = 17, 15\n"
                           "order = pipeline, data, expert, lasp, ring, ulysses, tensor\n"
                           "[run]\n"
                           "sequence = 131072\n"
                           "micro-batch = 2\n"
                           "global-batch = 10\n"
                           "precision = fp16\n"
                           "causal = false\n"
                           "framework = megatron-2022\n"
                           "packing = none\n"
                           "scope = step\n"
                           "optimizer = adamw\n";

static SpScenario *
load_text (const char *text, const char *const *sets)
{
  g_autoptr (GError) error = NULL;
  char *path = input_file_new ("run.ini", text, -1);
  SpScenario *scenario = sp_scenario_load (path, sets, &error);
  g_assert_no_error (error);
  input_file_remove (path);
  return scenario;
}

static void
test_defaults (void)
{
  g_autoptr (SpScenario) scenario = load_text (small, NULL);
  SpScenario expected = *scenario;
  expected.layout = (SpLayout) SP_LAYOUT_DEFAULT;
  expected.layout.data = 4;
  g_autoptr (GString) got_text = g_string_new (NULL);
  g_autoptr (GString) expected_text = g_string_new (NULL);
  sp_scenario_write (scenario, got_text);
  sp_scenario_write (&expected, expected_text);
  g_assert_cmpstr (got_text->str, ==, expected_text->str);
  g_assert_cmpint (scenario->run.sequence, ==, 1024);
  g_assert_cmpint (scenario->run.micro_batch, ==, 1);
  g_assert_cmpint (scenario->run.global_batch, ==, 4); /* one micro-batch a replica */
  g_assert_cmpint (scenario->run.precision, ==, SP_DTYPE_BF16);
  g_assert_true (scenario->run.causal);
  g_assert_cmpstr (scenario->arch->name, ==, "gpt2-large");
  g_assert_cmpstr (scenario->framework->name, ==, "flash");
  g_assert_cmpint (scenario->cluster->gpus_per_node, ==, 8);
}

static void
test_full (void)
{
  static const guint8 order[] = { SP_AXIS_PIPELINE, SP_AXIS_DATA,    SP_AXIS_LASP,
                                  SP_AXIS_RING,     SP_AXIS_ULYSSES, SP_AXIS_TENSOR };
  g_autoptr (SpScenario) scenario = load_text (full, NULL);
  const SpLayout *layout = &scenario->layout;
  g_assert_cmpint (layout->data, ==, 2);
  g_assert_cmpint (layout->tensor, ==, 4);
  g_assert_cmpint (layout->pipeline, ==, 2);
  g_assert_cmpint (layout->ulysses, ==, 2);
  g_assert_cmpint (layout->ring, ==, 4);
  g_assert_cmpint (layout->lasp, ==, 3);
  g_assert_cmpint (layout->lasp_version, ==, 1);
  g_assert_cmpint (layout->ring_gradient_dtype, ==, SP_DTYPE_BF16);
  g_assert_cmpint (layout->token_split, ==, SP_TOKENS_CONTIGUOUS);
  g_assert_true (!layout->sequence_regions && !layout->reshard && !layout->overlap);
  g_assert_cmpint (layout->zero, ==, 2);
  g_assert_cmpint (layout->gradient_dtype, ==, SP_DTYPE_BF16);
  g_assert_cmpint (layout->recompute, ==, SP_RECOMPUTE_SELECTIVE);
  g_assert_cmpint (layout->loss, ==, SP_LOSS_FULL);
  g_assert_cmpint (layout->loss_chunks, ==, 16);
  g_assert_cmpint (layout->mlp_tiles, ==, SP_TILES_AUTO);
  g_assert_cmpmem (layout->order.axis, SP_N_RANK_AXES, order, sizeof order);
  g_assert_cmpint (layout->order.experts_far, ==, TRUE);
  g_assert_cmpint (layout->expert, ==, 4);
  g_assert_cmpfloat (layout->expert_capacity, ==, 1.5);
  g_assert_cmpint (layout->stage_split[0], ==, 17);
  g_assert_cmpint (layout->stage_split[1], ==, 15);
  g_assert_cmpint (layout->stage_split[2], ==, 0);
  g_assert_cmpint (scenario->run.sequence, ==, 131072);
  g_assert_cmpint (scenario->run.global_batch, ==, 10);
  g_assert_cmpint (scenario->run.precision, ==, SP_DTYPE_FP16);
  g_assert_false (scenario->run.causal);
  g_assert_cmpstr (scenario->framework->name, ==, "megatron-2022");
}

/* What is written loads to the same, and is written the same again. */
static void
test_round_trip (gconstpointer text)
{
  g_autoptr (SpScenario) first = load_text (text, NULL);
  g_autoptr (GString) written = g_string_new (NULL);
  sp_scenario_write (first, written);
  g_test_message ("%s", written->str);
  g_autoptr (SpScenario) second = load_text (written->str, NULL);
  g_assert_cmpstr (first->model_path, ==, second->model_path);
  g_assert_cmpstr (first->cluster_path, ==, second->cluster_path);
  g_assert_cmpstr (first->framework_path, ==, second->framework_path);
  g_autoptr (GString) again = g_string_new (NULL);
  sp_scenario_write (second, again);
  g_assert_cmpstr (written->str, ==, again->str);
  g_assert_null (strchr (written->str, '/')); /* shipped files by their names */
}

static void
test_shipped (void)
{
  g_autoptr (GDir) dir = g_dir_open (sp_data_dir (), 0, NULL);
  g_assert_nonnull (dir);
  guint n = 0;
  for (const char *name; (name = g_dir_read_name (dir)) != NULL;) {
    if (!g_str_has_suffix (name, ".ini"))
      continue;
    g_autoptr (GError) error = NULL;
    g_autofree char *path = g_build_filename (sp_data_dir (), name, NULL);
    g_autoptr (SpScenario) scenario = sp_scenario_load (path, NULL, &error);
    g_assert_no_error (error);
    n++;
  }
  g_assert_cmpuint (n, >=, 2);
}

static void
test_sets (void)
{
  const char *const sets[] = {
    "ring=2", "layout.ulysses = 4", "sequence=2K", "run.sequence=4K", "micro-batch=3", NULL
  };
  g_autoptr (SpScenario) scenario = load_text (small, sets);
  g_assert_cmpint (scenario->layout.ring, ==, 2);
  g_assert_cmpint (scenario->layout.ulysses, ==, 4);
  g_assert_cmpint (scenario->run.sequence, ==, 4096); /* the last one */
  g_assert_cmpint (scenario->run.global_batch, ==, 12);
}

/* A file of one's own: beside the scenario, in a folder below it, and absolute. */
static void
test_own_files (void)
{
  g_autoptr (GError) error = NULL;
  static const char model[] = "[model]\nname = mine\nlayers = 2\nhidden = 8\nheads = 2\nffn = 8\nvocabulary = 9\n";
  char *path = input_file_new ("llama-3.1-8b.json", model, -1);
  g_autofree char *folder = g_path_get_dirname (path);
  g_autofree char *below = g_strdup_printf ("../%s/llama-3.1-8b.json", strrchr (folder, '/') + 1);
  const char *const names[] = { "llama-3.1-8b.json", below, path };
  for (guint i = 0; i < G_N_ELEMENTS (names); i++) {
    g_autofree char *text = input_file_replace (small, "gpt2-large.json", names[i]);
    g_autofree char *run = g_build_filename (folder, "run.ini", NULL);
    g_assert_true (g_file_set_contents (run, text, -1, NULL));
    g_autoptr (SpScenario) scenario = sp_scenario_load (run, NULL, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (scenario->arch->name, ==, "mine");
    g_autoptr (GString) written = g_string_new (NULL);
    sp_scenario_write (scenario, written);
    g_assert_nonnull (strstr (written->str, path));
    g_remove (run);
  }
  input_file_remove (path);
}

static void
test_find (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *model = sp_find_model ("llama-3.1-8b", &error);
  g_assert_no_error (error);
  g_assert_true (g_str_has_suffix (model, "/models/llama-3.1-8b.json"));
  g_autofree char *cluster = sp_find_cluster ("h100-1x2.ini", &error);
  g_assert_no_error (error);
  g_autofree char *itself = sp_find_framework (cluster, &error);
  g_assert_cmpstr (itself, ==, cluster);
  g_assert_null (sp_find_framework ("flahs", &error));
  g_assert_nonnull (strstr (error->message, "did you mean flash?"));
  g_clear_error (&error);
  g_assert_null (sp_find_model ("../models/tnl-1b", &error));
  g_assert_nonnull (error);
}

/* --- what must be refused ----------------------------------------------------------------------------------------- */

/* clang-format off */
static const struct Bad {
  const char *name, *from, *to;
  const char *words[4];
} bad[] = {
  { "sequence", "131072", "-3K",
    { ": [run] sequence = \"-3K\": expected a token count from 1 to 1G (for example 208K)" } },
  { "sequence-missing", "sequence = 131072\n", "", { ": [run] sequence: missing" } },
  { "config-missing", "config = llama-3.1-8b.json\n", "", { ": [model] config: missing" } },
  { "config-absent", "llama-3.1-8b.json", "llama-3.1-9b.json",
    { ": [model] config = \"llama-3.1-9b.json\"", "no such file", "did you mean llama-3.1-8b?" } },
  { "config-path", "llama-3.1-8b.json", "models/absent.json",
    { ": [model] config = ", "there is no ", "absent.json" } },
  { "cluster-absent", "a100-16x8.ini", "a100-2x8.ini", { ": [cluster] file = \"a100-2x8.ini\"", "shipped clusters, which seqpar show cluster lists" } },
  { "framework", "= megatron-2022", "= megatron",
    { ": [run] framework = \"megatron\"", "did you mean megatron-2021, megatron-2022, megatron-core or megatron-deepspeed?" } },
  { "degree-zero", "ring = 4", "ring = 0", { ": [layout] ring = \"0\"", "from 1 to 1048576" } },
  { "degree-word", "ring = 4", "ring = four", { ": [layout] ring = \"four\"", "a whole number" } },
  { "degree-nan", "ring = 4", "ring = nan", { ": [layout] ring = \"nan\"", "a whole number" } },
  { "degree-huge", "ring = 4", "ring = 99999999999999999999", { ": [layout] ring = ", "from 1 to 1048576" } },
  { "zero", "zero = 2", "zero = 4", { ": [layout] zero = \"4\"", "from 0 to 3" } },
  { "version", "lasp-version = 1", "lasp-version = 3", { ": [layout] lasp-version = \"3\"", "from 1 to 2" } },
  { "recompute", "selective", "selctive", { ": [layout] recompute = ", "did you mean selective?" } },
  { "recompute-every", "selective", "every-0", { ": [layout] recompute = \"every-0\"", "such as every-2" } },
  { "recompute-first", "selective", "first-", { ": [layout] recompute = \"first-\"", "such as first-2" } },
  { "dtype", "gradient-dtype = bf16", "gradient-dtype = fp64", { ": [layout] ring-gradient-dtype = ", "bf16, fp32" } },
  { "flag", "overlap = false", "overlap = no", { ": [layout] overlap = \"no\"", "expected one of false, true" } },
  { "of-cluster", "overlap = false", "host-memory = 1 TiB", { ": [layout] host-memory = \"1 TiB\": unknown key; it is a key of a cluster's file" } },
  { "unknown", "ring = 4", "rnig = 4", { ": [layout] rnig = \"4\": unknown key; did you mean ring?" } },
  { "misplaced", "causal = false", "causal = false\nzero = 1", { ": [run] zero = \"1\"", "belongs in [layout]" } },
  { "group", "[layout]", "[layuot]\nring = 2\n[layout]", { ": [layuot]: unknown group", "did you mean [layout]?" } },
  { "twice", "ring = 4", "ring = 4\nring = 2", { ":11:", "ring = 2", "twice" } },
  { "order-unknown", "ulysses, tensor", "ulises, tensor",
    { ": [layout] order = ", "\"ulises\" is no axis", "did you mean ulysses?" } },
  { "order-twice", "ulysses, tensor", "ulysses, ring", { ": [layout] order = ", "ring stands twice" } },
  { "order-short", "ulysses, tensor", "ulysses", { ": [layout] order = ", "tensor is missing" } },
  { "order-empty", "ulysses, tensor", "ulysses,, tensor", { ": [layout] order = ", "\"\" is no axis" } },
  { "split", "17, 15", "17; 15", { ": [layout] stage-split = ", "such as 8,8,7,7" } },
  { "split-zero", "17, 15", "0, 32", { ": [layout] stage-split = ", "expected auto" } },
  { "schedule", "1f1b", "zb-v",
    { ": [layout] schedule = \"zb-v\"", "not available yet; choose 1f1b, gpipe, interleaved, zb-h1, dualpipe" } },
  { "expert", "expert = 4", "expert = none", { ": [layout] expert = \"none\"" } },
  { "capacity", "expert-capacity = 1.5", "expert-capacity = full", { ": [layout] expert-capacity", "expected none, or" } },
  { "ring-kind", "all-gather", "gather", { ": [layout] ring-kind = \"gather\"", "p2p", "all-gather" } },
  { "ring-backward", "ring-backward = q", "ring-backward = v", { ": [layout] ring-backward = \"v\"", "kv", "q" } },
  { "ring-inner", "ring-inner = 2", "ring-inner = none", { ": [layout] ring-inner = \"none\"", "expected node, or" } },
  { "ring-split", "contiguous", "stripes", { ": [layout] ring-split = \"stripes\"", "striped" } },
  { "offload", "offload = none", "offload = optimiser", { ": [layout] offload = ", "did you mean optimizer?" } },
  { "zero-group", "zero-group = 2", "zero-group = some", { ": [layout] zero-group = \"some\"", "expected all, node, or" } },
  { "loss", "loss = full", "loss = chunk", { ": [layout] loss = \"chunk\"", "did you mean chunked?" } },
  { "mlp-tiles", "mlp-tiles = auto", "mlp-tiles = 0", { ": [layout] mlp-tiles = \"0\"", "expected auto, or" } },
  { "loss-chunks", "loss-chunks = 16", "loss-chunks = many", { ": [layout] loss-chunks = ", "expected auto, or" } },
  { "virtual", "virtual-stages = 1", "virtual-stages = 0", { ": [layout] virtual-stages = ", "expected a whole number" } },
  { "fp8", "precision = fp16", "precision = fp8", { ": [run] precision = \"fp8\"", "has no peak-fp8, expected bf16" } },
  { "packing", "packing = none", "packing = a.txt", { ": [run] packing = \"a.txt\"", "expected none, or a file" } },
  { "scope", "scope = step", "scope = layers", { ": [run] scope = ", "layer" } },
  { "optimizer", "adamw", "moun", { ": [run] optimizer = ", "expected one of adamw, adamw-8bit, muon", "did you mean muon?" } },
};
/* clang-format on */

static void
test_bad (gconstpointer data)
{
  const struct Bad *row = data;
  g_autofree char *text = input_file_replace (full, row->from, row->to);
  char *path = input_file_new ("bad.ini", text, -1);
  g_autoptr (GError) error = NULL;
  g_autoptr (SpScenario) scenario = sp_scenario_load (path, NULL, &error);
  g_assert_null (scenario);
  input_file_assert_error (error, path, row->words);
  input_file_remove (path);
}

static const struct BadSet {
  const char *name, *set;
  const char *words[4];
} bad_sets[] = {
  { "no-equals", "ring", { "--set ring: expected key=value" } },
  { "no-key", "=2", { "--set =2: expected key=value" } },
  { "unknown", "rings=2", { "--set rings=2: unknown key; did you mean ring?" } },
  { "wrong-group", "run.ring=2", { "--set run.ring=2: unknown key" } },
  { "odd", "la[y]out.\n=2", { "unknown key" } },
  { "value", "ring=two", { "run.ini (--set): [layout] ring = \"two\"", "a whole number" } },
  { "empty", "ring=", { "[layout] ring = \"\"" } },
  { "slices-hole", "slices=16384,,16384", { "[layout] slices = \"16384,,16384\": expected a number of slices" } },
  { "slices-end", "slices=16384*2,", { "[layout] slices = ", "the tokens of each" } },
  { "slices-times", "slices=16384**2", { "[layout] slices = ", "the tokens of each" } },
  { "slices-none", "slices=0", { "[layout] slices = \"0\": expected a number of slices from 1 to 128" } },
  { "slices-many", "slices=64*129", { "[layout] slices = ", "from 1 to 128" } },
  { "targets-twice", "lora-targets=q,k,q", { "[run] lora-targets", "\"q\" says again what is there already" } },
  { "targets-in-all", "lora-targets=all,down", { "\"down\" says again what is there already" } },
  { "targets-peft", "lora-targets=q,q_proj", { "\"q_proj\" says again what is there already" } },
  { "targets-word", "lora-targets=q_proj,fc1", { "\"fc1\" is none of them: expected all, attention, mlp, or of q, k, v, o, gate" } },
  { "frozen-twice", "frozen=embedding,embedding", { "[run] frozen", "\"embedding\" says again" } },
  { "frozen-firsts", "frozen=first-2,first-3", { "[run] frozen", "\"first-3\" says again" } },
  { "frozen-word", "frozen=foo", { "\"foo\" is none of them: expected none, or of embedding, head and first-K" } },
  { "offload-twice", "offload=optimizer,optimizer", { "[layout] offload", "\"optimizer\" says again" } },
  { "offload-word", "offload=all", { "\"all\" is none of them: expected none, or of optimizer, parameters and activations" } },
  { "slow-twice", "slow-ranks=5 x 1.1, 5 x 2", { "[variation] slow-ranks", "rank 5 is there already" } },
  { "failed-twice", "failed-links=a>b, a>b", { "[variation] failed-links", "a>b is there already" } },
  { "of-cluster", "host-memory=1 TiB", { "--set host-memory=1 TiB: unknown key; it is a key of a cluster's file" } },
  { "of-cluster-group", "cluster.host-rate=1 GB/s", { "unknown key; it is a key of a cluster's file" } },
  { "of-device", "gemm-efficiency=0.7", { "unknown key; it is a key of a device's file" } },
  { "of-framework", "allocator-slack=0.1", { "unknown key; it is a key of a framework's file" } },
  { "of-model", "layers=3", { "unknown key; it is a key of a model's own INI" } },
  { "several", "lora=8", { "unknown key; did you mean lora-rank or lora-targets?" } },
  { "schedule-near", "schedule=zb", { "not available yet; choose 1f1b", "did you mean zb-h1?" } },
  { "bytes", "ring=\xff\x01", { "[layout] ring = " } },
};

static void
test_bad_set (gconstpointer data)
{
  const struct BadSet *row = data;
  char *path = input_file_new ("run.ini", small, -1);
  g_autoptr (GError) error = NULL;
  g_autoptr (SpScenario) scenario = sp_scenario_load (path, (const char *const[]){ row->set, NULL }, &error);
  g_assert_null (scenario);
  input_file_assert_error (error, "", row->words);
  input_file_remove (path);
}

/* Words as PEFT has them are ours. */
static void
test_targets (void)
{
  static const struct {
    const char *set;
    guint targets;
  } rows[] = {
    { "lora-targets=q_proj, v_proj", SP_LORA_Q | SP_LORA_V },
    { "lora-targets=k_proj,o,gate_proj,up_proj,down_proj", SP_LORA_K | SP_LORA_O | SP_LORA_MLP },
    { "lora-targets=q_proj,k_proj,v_proj,o_proj", SP_LORA_ATTENTION },
    { "lora-targets=all-linear", SP_LORA_ALL },
  };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autoptr (SpScenario) s = load_text (small, (const char *const[]){ "lora-rank=4", rows[i].set, NULL });
    g_assert_cmpuint (s->run.lora_targets, ==, rows[i].targets);
  }
}

/* What is wrong with a file of documents is said of [run] packing, with the file. */
static void
test_packing_files (void)
{
  g_autofree char *large = g_strnfill ((1 << 20) + 1, '1');
  const struct {
    const char *text;
    gssize length;
    const char *word;
  } rows[] = {
    { "", 0, "docs.txt: the file is empty" },
    { "512\n\xff\n", -1, "docs.txt:2: not UTF-8" },
    { large, -1, "docs.txt: larger than 1 MiB, the most that is read of a file" },
    { "1000000000,1125900\n", -1, "docs.txt:1: more than 2^50 tokens in all" },
    { "# none\n", -1, "docs.txt: no documents" },
    { "512\nmany\n", -1, "docs.txt:2: \"many\": expected a document's tokens" },
  };
  char *run = input_file_new ("run.ini", small, -1);
  for (guint i = 0; i < G_N_ELEMENTS (rows) + 2; i++) {
    gboolean written = i < G_N_ELEMENTS (rows);
    char *path = input_file_new ("docs.txt", written ? rows[i].text : "1\n", written ? rows[i].length : -1);
    g_autofree char *folder = g_path_get_dirname (path);
    const char *name = written ? path : i == G_N_ELEMENTS (rows) ? folder : "/dev/null";
    g_autofree char *set = g_strconcat ("packing=", name, NULL);
    const char *const words[] = { "run.ini (--set): [run] packing = ", "expected none, or a file of documents' lengths; ",
                                  written ? rows[i].word : i == G_N_ELEMENTS (rows) ? "is a directory" : "not a regular file",
                                  NULL };
    g_autoptr (GError) error = NULL;
    g_autoptr (SpScenario) scenario = sp_scenario_load (run, (const char *const[]){ set, NULL }, &error);
    g_assert_null (scenario);
    input_file_assert_error (error, run, words);
    input_file_remove (path);
  }
  input_file_remove (run);
}

/* Ranks of a node that come to one: tensor ranks fill nodes of 8. */
static void
test_nodes (void)
{
  static const struct {
    const char *set;
    const char *words[3];
  } rows[] = {
    { "zero-group=node", { "[layout] zero-group = \"node\": comes to 1: nodes of 8 GPUs", "2 data x sequence ranks (nearer: tensor = 8)" } },
    { "ring-kind=double", { "[layout] ring-kind = \"double\"", "ring-inner = node comes to 1: nodes of 8 GPUs", "ring = 2 ranks (nearer: tensor = 8)" } },
  };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autoptr (GError) error = NULL;
    const char *const words[] = { rows[i].words[0], rows[i].words[1], rows[i].words[2], NULL };
    char *path = input_file_new ("run.ini", small, -1);
    const char *const sets[] = { "file=a800-2x8", "config=llama-3.1-8b", "tensor=8", "data=1", "ring=2", rows[i].set, NULL };
    g_autoptr (SpScenario) scenario = sp_scenario_load (path, sets, &error);
    g_assert_null (scenario);
    input_file_assert_error (error, path, words);
    input_file_remove (path);
  }
}

/* Every key of the shipped files is known as theirs: none has been forgotten where `--set` points to them. */
static void
test_elsewhere (void)
{
  static const struct {
    const char *folder, *group;
    gboolean (*has) (const char *key);
  } rows[] = {
    { "clusters", "cluster", sp_cluster_has_key },
    { "devices", "device", sp_device_has_key },
    { "frameworks", "framework", sp_framework_has_key },
    { "models", "model", sp_architecture_has_key },
  };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autofree char *folder = g_build_filename (g_getenv ("SEQPAR_DATA"), rows[i].folder, NULL);
    g_autoptr (GDir) dir = g_dir_open (folder, 0, NULL);
    guint n = 0;
    for (const char *name; (name = g_dir_read_name (dir)) != NULL;) {
      g_autofree char *path = g_build_filename (folder, name, NULL);
      g_autoptr (GKeyFile) file = g_key_file_new ();
      if (!g_str_has_suffix (name, ".ini") || !g_key_file_load_from_file (file, path, G_KEY_FILE_NONE, NULL))
        continue;
      g_auto (GStrv) keys = g_key_file_get_keys (file, rows[i].group, NULL, NULL);
      for (guint k = 0; keys != NULL && keys[k] != NULL; k++, n++)
        if (!g_str_equal (keys[k], "name") && !g_str_has_suffix (keys[k], ".source") && !rows[i].has (keys[k]))
          g_error ("%s: %s", name, keys[k]);
    }
    g_assert_cmpuint (n, >, 10);
    g_assert_false (rows[i].has ("sequence"));
  }
}

static void
test_broken (void)
{
  gsize length = strlen (full);
  for (gsize i = 0; i < length; i++) {
    g_autoptr (GError) error = NULL;
    char *path = input_file_new ("broken.ini", full, (gssize) i);
    g_autoptr (SpScenario) scenario = sp_scenario_load (path, NULL, &error);
    if (scenario == NULL)
      input_file_assert_error (error, path, (const char *const[]){ NULL });
    input_file_remove (path);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/scenario/defaults", test_defaults);
  g_test_add_func ("/scenario/full", test_full);
  g_test_add_data_func ("/scenario/round-trip/defaults", small, test_round_trip);
  g_test_add_data_func ("/scenario/round-trip/full", full, test_round_trip);
  g_test_add_func ("/scenario/shipped", test_shipped);
  g_test_add_func ("/scenario/sets", test_sets);
  g_test_add_func ("/scenario/own-files", test_own_files);
  g_test_add_func ("/scenario/find", test_find);
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++) {
    g_autofree char *name = g_strconcat ("/scenario/bad/", bad[i].name, NULL);
    g_test_add_data_func (name, &bad[i], test_bad);
  }
  for (guint i = 0; i < G_N_ELEMENTS (bad_sets); i++) {
    g_autofree char *name = g_strconcat ("/scenario/bad-set/", bad_sets[i].name, NULL);
    g_test_add_data_func (name, &bad_sets[i], test_bad_set);
  }
  g_test_add_func ("/scenario/targets", test_targets);
  g_test_add_func ("/scenario/packing-files", test_packing_files);
  g_test_add_func ("/scenario/nodes", test_nodes);
  g_test_add_func ("/scenario/elsewhere", test_elsewhere);
  g_test_add_func ("/scenario/broken", test_broken);
  return g_test_run ();
}
