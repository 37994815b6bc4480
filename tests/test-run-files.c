/* SPDX-License-Identifier: Apache-2.0 */
/* Run files of other programs: what is read of each, what is listed, what is asked for; and back again. Of random layouts:
 * tests/test-run-files-random.c. */
#include "models/inputs/ini.h"
#include "tests/imported.h"
#include "tests/random-layouts.h"
#include "tests/shipped.h"

/* Of $SEQPAR_SHARED with its folder, else a shipped one. */
static char *
find_file (const char *name)
{
  g_autofree char *shipped = g_build_filename (sp_data_dir (), "run-files", name, NULL);
  if (g_file_test (shipped, G_FILE_TEST_EXISTS))
    return g_steal_pointer (&shipped);
  const char *shared = g_getenv ("SEQPAR_SHARED");
  return shared != NULL ? g_build_filename (shared, "reference", "cases", "configs", name, NULL) : NULL;
}

static SpRunFile *
parse_file (const char *name)
{
  g_autofree char *path = find_file (name);
  g_autofree char *text = NULL;
  g_autoptr (GError) error = NULL;
  gsize length;
  if (path == NULL || !g_file_get_contents (path, &text, &length, NULL))
    return NULL;
  SpRunFile *file = sp_run_file_parse (name, text, length, &error);
  g_assert_no_error (error);
  return file;
}

/* --- what each says ----------------------------------------------------------------------------------------------- */

typedef struct {
  const char *file, *format;
  const char *model, *cluster;
  const char *sets[8];
  /* "group.key=value": all that stands in [layout] and [run], and what is worth a look in [model] */
  const char *facts[40];
  const char *notes[12]; /* words that stand in one of the notes; all notes are one of these */
} FileCase;

/* clang-format off */
static const FileCase file_cases[] = {
  /* 8 x 16 = 128 GPUs a replica: 1024 / 128 = 8. fp16 gradients stay in two bytes. */
  { "megatron_gpt3_175b.args", "megatron", NULL, "h100-128x8", { "model.vocabulary=51200" },
    { "layout.data=8", "layout.tensor=8", "layout.pipeline=16", "layout.ulysses=1", "layout.ring=1", "layout.expert=1",
      "layout.sequence-regions=false", "layout.zero=0", "layout.gradient-dtype=bf16", "layout.overlap=false",
      "layout.recompute=none", "layout.order=tensor,ulysses,ring,lasp,data,pipeline", "run.sequence=2048",
      "run.micro-batch=1", "run.global-batch=1536", "run.precision=fp16", "run.optimizer=adamw", "model.layers=96",
      "model.hidden=12288", "model.heads=96", "model.ffn=49152", "model.positions=2048", "model.mlp=gelu",
      "model.norm=layer", "model.tied=true", "model.dropout=0.1", "model.vocabulary=51200", "model.qkv-bias=true" },
    { "a replica takes 128 GPUs", "no cost depends on them: --clip-grad" } },
  /* 128 / 4 = 32; a tensor degree of 1 leaves sequence parallelism without an effect */
  { "megatron_mixtral_8x7b.args", "megatron", NULL, "a100-16x8", { "model.vocabulary=32000" },
    { "layout.data=32", "layout.tensor=1", "layout.pipeline=4", "layout.ulysses=1", "layout.ring=1", "layout.expert=8",
      "layout.zero=1", "layout.gradient-dtype=fp32", "layout.overlap=true", "layout.recompute=none",
      "layout.order=tensor,ulysses,ring,lasp,data,pipeline", "run.sequence=4096", "run.micro-batch=1",
      "run.global-batch=256", "run.precision=bf16", "run.optimizer=adamw", "model.layers=32", "model.hidden=4096",
      "model.heads=32", "model.kv-heads=8", "model.ffn=14336", "model.trained-positions=32768", "model.mlp=swiglu",
      "model.norm=rms", "model.tied=false", "model.experts=8", "model.experts-per-token=2", "model.expert-ffn=14336",
      "model.layer-kinds=softmax+experts", "model.rope-theta=1000000" },
    { "--sequence-parallel is a no-op", "a replica takes 4 GPUs", "no cost depends on them: --moe-grouped-gemm" } },
  /* 8 GPUs; 16 sequences of one each: two steps of accumulation */
  { "ds_zero2.json", "deepspeed", "llama-3.1-8b", "a100-1x8",
    { "run.sequence=8K", "run.micro-batch=1", "run.global-batch=16", "run.precision=bf16" },
    { "layout.data=8", "layout.tensor=1", "layout.ulysses=1", "layout.zero=2", "layout.gradient-dtype=bf16",
      "layout.overlap=true", "run.sequence=8K", "run.micro-batch=1", "run.global-batch=16", "run.precision=bf16" },
    { "what is recomputed", "gradient_clipping, zero_allow_untested_optimizer, zero_force_ds_cpu_optimizer, fp16.*" } },
  { "ds_zero3.json", "deepspeed", "llama-3.1-8b", "a100-1x8",
    { "run.sequence=8K", "run.micro-batch=2", "run.global-batch=16", "run.precision=fp16" },
    { "layout.data=8", "layout.tensor=1", "layout.ulysses=1", "layout.zero=3", "layout.gradient-dtype=bf16",
      "layout.overlap=true", "run.sequence=8K", "run.micro-batch=2", "run.global-batch=16", "run.precision=fp16" },
    { "what is recomputed", "stage3_gather_*" } },
  { "ds_zero3_offload.json", "deepspeed", "llama-3.1-8b", "a100-1x8",
    { "run.sequence=8K", "run.micro-batch=1", "run.global-batch=16", "run.precision=bf16" },
    { "layout.data=8", "layout.tensor=1", "layout.ulysses=1", "layout.zero=3", "layout.gradient-dtype=bf16",
      "layout.overlap=true", "layout.offload=optimizer,parameters", "run.sequence=8K", "run.micro-batch=1",
      "run.global-batch=16", "run.precision=bf16" },
    { "what is recomputed", "offload_param.pin_memory", "not available yet: offload_*.device" } },
  /* the preset's 64 A100: -1 is 64 */
  { "torchtitan_llama3_8b.toml", "torchtitan", NULL, "a100-8x8", { NULL },
    { "layout.data=64", "layout.tensor=1", "layout.pipeline=1", "layout.ring=1", "layout.expert=1",
      "layout.sequence-regions=true", "layout.zero=3", "layout.reshard=true", "layout.gradient-dtype=fp32",
      "layout.overlap=true", "layout.recompute=selective", "layout.schedule=1f1b", "run.sequence=8192",
      "run.micro-batch=1", "run.global-batch=64", "run.precision=bf16", "run.optimizer=adamw",
      "model.config=llama-3.1-8b" },
    { "job.*, optimizer.*, lr_scheduler.*, training.max_norm, training.steps, training.dataset*" } },
  { "flame_fla.toml", "flame", "transformer-7b", "h100-1x8", { NULL },
    { "layout.data=8", "layout.tensor=1", "layout.pipeline=1", "layout.ring=1", "layout.sequence-regions=true",
      "layout.zero=3", "layout.reshard=true", "layout.gradient-dtype=fp32", "layout.overlap=true",
      "layout.recompute=none", "layout.schedule=1f1b", "run.sequence=2048", "run.micro-batch=32",
      "run.global-batch=256", "run.precision=bf16", "run.optimizer=adamw", "model.config=transformer-7b" },
    { "model.tokenizer_path, job.*, training.steps" } },
  { "calculon_run_gpt3-175B_full.json", "calculon", "megatron-175b", "a100-8x8", { "run.sequence=2048" },
    { "layout.data=1", "layout.tensor=8", "layout.pipeline=8", "layout.sequence-regions=false", "layout.zero=0",
      "layout.overlap=false", "layout.recompute=full", "layout.schedule=interleaved", "layout.virtual-stages=3",
      "run.sequence=2048", "run.micro-batch=1", "run.global-batch=64", "run.precision=fp16", "run.scope=step" },
    { "tensor_par_net", "pipeline_par_net", "data_par_net" } },
  { "calculon_run_gpt3-175B_seqsel.json", "calculon", "megatron-175b", "a100-8x8", { "run.sequence=2048" },
    { "layout.data=1", "layout.tensor=8", "layout.pipeline=8", "layout.sequence-regions=true", "layout.zero=0",
      "layout.overlap=false", "layout.recompute=selective", "layout.schedule=interleaved", "layout.virtual-stages=3",
      "run.sequence=2048", "run.micro-batch=1", "run.global-batch=64", "run.precision=fp16", "run.scope=step" },
    { "tensor_par_net", "pipeline_par_net", "data_par_net", "seq_par_ag_redo" } },
  { "calculon_run_megatron-22B_full.json", "calculon", "megatron-22b", "a100-1x8", { "run.sequence=2048" },
    { "layout.data=1", "layout.tensor=8", "layout.pipeline=1", "layout.sequence-regions=false", "layout.zero=0",
      "layout.overlap=false", "layout.recompute=full", "layout.virtual-stages=1", "run.sequence=2048",
      "run.micro-batch=4", "run.global-batch=4", "run.precision=fp16", "run.scope=step" },
    { "tensor_par_net", "pipeline_par_net", "data_par_net" } },
  { "calculon_run_megatron-22B_seqsel.json", "calculon", "megatron-22b", "a100-1x8", { "run.sequence=2048" },
    { "layout.data=1", "layout.tensor=8", "layout.pipeline=1", "layout.sequence-regions=true", "layout.zero=0",
      "layout.overlap=false", "layout.recompute=selective", "layout.virtual-stages=1", "run.sequence=2048",
      "run.micro-batch=4", "run.global-batch=4", "run.precision=fp16", "run.scope=step" },
    { "tensor_par_net", "pipeline_par_net", "data_par_net", "seq_par_ag_redo" } },
  /* ours: 16 x 8 / (2 x 2 x 4 x 2) = 4 */
  { "mixtral-megatron.args", "megatron", NULL, "a100-16x8", { NULL },
    { "layout.data=4", "layout.tensor=2", "layout.pipeline=2", "layout.ulysses=4", "layout.ring=2", "layout.expert=8",
      "layout.sequence-regions=true", "layout.zero=1", "layout.gradient-dtype=fp32", "layout.overlap=true",
      "layout.recompute=full", "layout.order=tensor,ulysses,ring,lasp,data,pipeline", "run.sequence=131072",
      "run.micro-batch=1", "run.global-batch=64", "run.precision=bf16", "run.optimizer=adamw",
      "model.vocabulary=32000", "model.dropout=0" },
    { "a replica takes 32 GPUs", "--lr, --clip-grad, --train-iters" } },
  /* 8 / 4 = 2 data ranks: 32 / 2 = 16 steps of accumulation, which were "auto" */
  { "llama-deepspeed.json", "deepspeed", "llama-3.1-8b", "h100-1x8", { "run.sequence=32K" },
    { "layout.data=2", "layout.tensor=1", "layout.ulysses=4", "layout.zero=3", "layout.gradient-dtype=bf16",
      "layout.overlap=true", "run.sequence=32K", "run.micro-batch=1", "run.global-batch=32", "run.precision=bf16",
      "run.optimizer=adamw" },
    { "what is recomputed", "gradient_clipping, zero_optimization.contiguous_gradients, optimizer.params.*",
      "not mapped: zero_optimization.reduce_bucket_size" } },
  /* 1024 / (8 x 2 x 2) = 32 shards of four sequences, one at a time through the pipeline */
  { "llama-torchtitan.toml", "torchtitan", NULL, "h100-128x8", { NULL },
    { "layout.data=32", "layout.tensor=8", "layout.pipeline=2", "layout.ring=2", "layout.ring-kind=p2p",
      "layout.expert=1", "layout.sequence-regions=true", "layout.zero=3", "layout.reshard=false",
      "layout.gradient-dtype=fp32", "layout.overlap=true", "layout.recompute=full", "layout.schedule=1f1b",
      "layout.virtual-stages=1", "run.sequence=65536", "run.micro-batch=1", "run.global-batch=128",
      "run.precision=bf16", "run.optimizer=adamw", "model.config=llama-3.1-70b" },
    { "not mapped: compile.enable = true", "no cost depends on them: training.steps" } },
  /* 64 / 8 = 8 shards, and states are passed */
  { "lasp-flame.toml", "flame", "tnl-1b", "a100-8x8", { NULL },
    { "layout.data=8", "layout.tensor=1", "layout.pipeline=1", "layout.lasp=8", "layout.sequence-regions=true",
      "layout.zero=3", "layout.reshard=true", "layout.gradient-dtype=fp32", "layout.overlap=true",
      "layout.recompute=none", "layout.schedule=1f1b", "run.sequence=131072", "run.micro-batch=1",
      "run.global-batch=32", "run.precision=bf16", "run.optimizer=adamw" },
    { "no cost depends on them: training.steps, optimizer.*" } },
};
/* clang-format on */

/* A value that may not be available yet is expected where it is, and its note where it is not. */
static gboolean
is_later (const char *group, const char *key, const char *value)
{
  g_autofree char *expected = NULL;
  return sp_scenario_takes (group, key, value, &expected) == SP_VALUE_LATER;
}

static void
check_facts (const FileCase *c, GKeyFile *keys)
{
  guint listed = 0, there = 0;
  for (guint i = 0; c->facts[i] != NULL; i++) {
    g_auto (GStrv) halves = g_strsplit (c->facts[i], "=", 2);
    g_auto (GStrv) names = g_strsplit (halves[0], ".", 2);
    gboolean model = g_str_equal (names[0], "model");
    if (!model && is_later (names[0], names[1], halves[1]))
      continue;
    g_autofree char *value = g_key_file_get_value (keys, names[0], names[1], NULL);
    g_test_message ("%s = %s", halves[0], value);
    g_assert_cmpstr (value, ==, halves[1]);
    listed += !model;
  }
  static const char *const groups[] = { "layout", "run" };
  for (guint g = 0; g < G_N_ELEMENTS (groups); g++) {
    gsize n = 0;
    g_auto (GStrv) names = g_key_file_get_keys (keys, groups[g], &n, NULL);
    there += (guint) n;
  }
  g_assert_cmpuint (there, ==, listed);
}

/* Every note is expected and every expected one is there, but for what has become available. */
static void
check_notes (const FileCase *c, const GPtrArray *notes)
{
  guint found = 0;
  for (guint i = 0; i < notes->len; i++) {
    guint word = 0;
    g_test_message ("%s", (char *) notes->pdata[i]);
    while (c->notes[word] != NULL && strstr (notes->pdata[i], c->notes[word]) == NULL)
      word++;
    if (c->notes[word] == NULL)
      g_error ("not expected: %s", (char *) notes->pdata[i]);
    found |= 1u << word;
  }
  for (guint i = 0; c->notes[i] != NULL; i++)
    if (!(found & (1u << i)) && !g_str_has_prefix (c->notes[i], "not available yet"))
      g_error ("not said: %s", c->notes[i]);
}

static void
test_file (gconstpointer data)
{
  const FileCase *c = data;
  g_autoptr (SpRunFile) file = parse_file (c->file);
  if (file == NULL) {
    g_test_skip ("no reference files here");
    return;
  }
  const SpRunGiven given = { c->model, c->cluster, c->sets };
  g_autoptr (GString) scenario = g_string_new (NULL), model = g_string_new (NULL);
  g_assert_cmpstr (sp_run_file_format (file), ==, c->format);
  g_autoptr (GKeyFile) keys = import_text (file, &given, scenario, model);
  check_facts (c, keys);
  check_notes (c, sp_run_file_notes (file));
  for (guint i = 0; i < sp_run_file_notes (file)->len; i++)
    g_assert_nonnull (strstr (scenario->str, sp_run_file_notes (file)->pdata[i]));
}

/* --- there and back ----------------------------------------------------------------------------------------------- */

static void
assert_same_keys (GKeyFile *first, GKeyFile *second, const char *group)
{
  gsize n_first = 0, n_second = 0;
  g_auto (GStrv) names = g_key_file_get_keys (first, group, &n_first, NULL);
  g_auto (GStrv) again = g_key_file_get_keys (second, group, &n_second, NULL);
  for (guint i = 0; names[i] != NULL; i++) {
    g_autofree char *one = g_key_file_get_value (first, group, names[i], NULL);
    g_autofree char *other = g_key_file_get_value (second, group, names[i], NULL);
    double tokens, tokens_again;
    gboolean equal = g_strcmp0 (one, other) == 0 ||
                     (other != NULL && sp_parse_quantity (one, SP_UNIT_TOKENS, &tokens, NULL) &&
                      sp_parse_quantity (other, SP_UNIT_TOKENS, &tokens_again, NULL) && tokens == tokens_again);
    if (!equal && !g_str_equal (names[i], "name") && !g_str_equal (names[i], "config"))
      g_error ("[%s] %s = %s, read back %s", group, names[i], one, other);
  }
  g_assert_cmpuint (n_first, ==, n_second);
}

/* Import, export, import: the same scenario and the same model, key by key. */
static void
test_round_trip (gconstpointer data)
{
  const FileCase *c = data;
  g_autoptr (SpRunFile) file = parse_file (c->file);
  g_autoptr (GError) error = NULL;
  if (file == NULL) {
    g_test_skip ("no reference files here");
    return;
  }
  const SpRunGiven given = { c->model, c->cluster, c->sets };
  g_autoptr (GString) text = g_string_new (NULL), model = g_string_new (NULL);
  g_autoptr (GKeyFile) first = import_text (file, &given, text, model);

  g_autofree char *folder = g_dir_make_tmp ("seqpar-XXXXXX", &error);
  g_assert_no_error (error);
  g_autofree char *path = write_input (folder, "imported.ini", text);
  g_autofree char *model_path = write_input (folder, "imported-model.ini", model);
  g_autoptr (SpScenario) scenario = sp_scenario_load (path, NULL, &error);
  g_assert_no_error (error);
  g_autoptr (GString) exported = g_string_new (NULL);
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
  sp_run_file_export (scenario, c->format, exported, lost, &error);
  g_assert_no_error (error);
  g_test_message ("%s", exported->str);
  /* DeepSpeed's file has no sequence; a model is not in these files, or only by name. */
  for (guint i = 0; i < lost->len; i++)
    if (strstr (lost->pdata[i], "run.sequence") == NULL && strstr (lost->pdata[i], "the model") == NULL)
      g_error ("%s", (char *) lost->pdata[i]);

  g_autoptr (SpRunFile) again = sp_run_file_parse ("again", exported->str, exported->len, &error);
  g_assert_no_error (error);
  g_assert_cmpstr (sp_run_file_format (again), ==, c->format);
  const char *const sequence[] = { g_str_equal (c->format, "deepspeed") ? c->sets[0] : NULL, NULL };
  const SpRunGiven less = { c->model, c->cluster, sequence };
  g_autoptr (GString) text_again = g_string_new (NULL), model_again = g_string_new (NULL);
  g_autoptr (GKeyFile) second = import_text (again, &less, text_again, model_again);
  /* What only the export says: the optimizer, where it was not said before. */
  if (!g_key_file_has_key (first, "run", "optimizer", NULL))
    g_key_file_remove_key (second, "run", "optimizer", NULL);
  assert_same_keys (first, second, "layout");
  assert_same_keys (first, second, "run");
  assert_same_keys (first, second, "model");

  g_autoptr (GString) third = g_string_new (NULL);
  g_autoptr (GPtrArray) lost_again = g_ptr_array_new_with_free_func (g_free);
  sp_run_file_export (scenario, c->format, third, lost_again, &error);
  g_assert_no_error (error);
  g_assert_cmpstr (third->str, ==, exported->str);
  g_remove (path);
  g_remove (model_path);
  g_rmdir (folder);
}

/* A flag that switches a default off: read, written where it says something, and not where it does not. */
static void
test_scatter (void)
{
  static const char flag[] = "--no-scatter-gather-tensors-in-pipeline";
  static const char plain[] = "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
                              "--max-position-embeddings 2048 --vocab-size 51200 --micro-batch-size 1 "
                              "--global-batch-size 64 --tensor-model-parallel-size 4 "
                              "--pipeline-model-parallel-size 2 --bf16";

  for (guint i = 0; i < 4; i++) {
    gboolean off = i % 2 == 1, regions = i / 2 == 1;
    g_autoptr (GError) error = NULL;
    g_autoptr (GString) scenario = g_string_new (NULL), model = g_string_new (NULL), out = g_string_new (NULL);
    g_autofree char *text =
        g_strdup_printf ("%s %s %s\n", plain, off ? flag : "", regions ? "--sequence-parallel" : "");
    g_autoptr (SpRunFile) file = sp_run_file_parse ("m", text, strlen (text), &error);
    g_assert_no_error (error);
    const SpRunGiven given = { NULL, "a100-8x8", (const char *const[]){ NULL } };
    g_autoptr (GKeyFile) keys = import_text (file, &given, scenario, model);
    g_autofree char *value = g_key_file_get_value (keys, "layout", "pipeline-scatter", NULL);
    g_assert_cmpstr (value, ==, off ? "false" : NULL);

    g_autofree char *folder = g_dir_make_tmp ("seqpar-XXXXXX", &error);
    g_assert_no_error (error);
    g_autofree char *path = write_input (folder, "imported.ini", scenario);
    g_autofree char *model_path = write_input (folder, "imported-model.ini", model);
    g_autoptr (SpScenario) read = sp_scenario_load (path, NULL, &error);
    g_assert_no_error (error);
    g_assert_true (read->layout.pipeline_scatter == !off);
    g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
    sp_run_file_export (read, "megatron", out, lost, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (lost->len, ==, 0);
    g_assert_true ((strstr (out->str, flag) != NULL) == off);
    g_remove (path);
    g_remove (model_path);
    g_rmdir (folder);
  }
}

/* --- anything ----------------------------------------------------------------------------------------------------- */

/* Bytes changed, taken out, doubled: read, or refused in one line; and if read, imported or refused. */
static void
test_mutated (void)
{
  static const FileCase trainers[] = { { "qwen-swift.sh", "swift", NULL, "a800-1x8" },
                                       { "qwen-megatron-swift.sh", "megatron-swift", NULL, "a800-1x8" },
                                       { "qwen-verl.sh", "verl", NULL, "a800-1x8" },
                                       { "llama-llamafactory.yaml", "llamafactory", NULL, "a800-2x8" } };
  static const char bytes[] = "{}[]\"'\\#=.,-_ \n\t0123456789eaut$\001\xff";
  g_autoptr (GRand) rand = draw_rand_new ();
  for (guint i = 0; i < 4000; i++) {
    gint32 which = draw_int (rand, 0, (gint32) (G_N_ELEMENTS (file_cases) + G_N_ELEMENTS (trainers)) - 1);
    const FileCase *c = which < (gint32) G_N_ELEMENTS (file_cases)
                            ? &file_cases[which]
                            : &trainers[which - (gint32) G_N_ELEMENTS (file_cases)];
    g_autofree char *path = find_file (c->file);
    g_autofree char *text = NULL;
    gsize length;
    if (path == NULL || !g_file_get_contents (path, &text, &length, NULL))
      continue;
    g_autoptr (GString) mutated = g_string_new_len (text, (gssize) length);
    for (gint32 n = draw_int (rand, 1, 6); n > 0 && mutated->len > 8; n--) {
      gsize at = (gsize) draw_int (rand, 0, (gint32) mutated->len - 5);
      gint32 what = draw_int (rand, 0, 2);
      if (what == 0)
        mutated->str[at] = bytes[draw_int (rand, 0, (gint32) sizeof bytes - 2)];
      else if (what == 1)
        g_string_erase (mutated, (gssize) at, 4);
      else
        g_string_insert_len (mutated, (gssize) at, mutated->str, (gssize) MIN (at, 40));
    }
    g_autoptr (GError) error = NULL;
    g_autoptr (GString) scenario = g_string_new (NULL), model = g_string_new (NULL);
    g_autoptr (SpRunFile) file = sp_run_file_parse ("m", mutated->str, mutated->len, &error);
    const SpRunGiven given = { c->model, c->cluster, c->sets };
    gboolean good = file != NULL && sp_run_file_import (file, &given, "out.ini", scenario, model, &error);
    g_assert_true (good == (error == NULL));
    g_assert_true (good || strchr (error->message, '\n') == NULL);
    g_autoptr (SpScenario) parsed =
        good && model->len == 0 ? sp_scenario_parse ("out.ini", scenario->str, scenario->len, NULL, &error) : NULL;
    g_assert_no_error (good ? error : NULL);
    g_assert_true (!good || model->len > 0 ||
                   sp_layout_check (&parsed->layout, parsed->arch, parsed->framework, &parsed->run,
                                    parsed->cluster->nodes * parsed->cluster->gpus_per_node, NULL));
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (file_cases); i++) {
    g_autofree char *path = g_strconcat ("/run-files/read/", file_cases[i].file, NULL);
    g_autofree char *back = g_strconcat ("/run-files/round-trip/", file_cases[i].file, NULL);
    g_test_add_data_func (path, &file_cases[i], test_file);
    if (!g_str_equal (file_cases[i].format, "calculon")) /* read only */
      g_test_add_data_func (back, &file_cases[i], test_round_trip);
  }
  g_test_add_func ("/run-files/scatter", test_scatter);
  g_test_add_func ("/run-files/mutated", test_mutated);
  return g_test_run ();
}
