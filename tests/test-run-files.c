/* SPDX-License-Identifier: Apache-2.0 */
/* Run files of other programs: what is read of each, what is listed, what is asked for; and back again. */
#include "models/inputs/run-files/run-file.h"

#include "models/inputs/ini.h"
#include "models/inputs/run-files/items.h"
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

/* The scenario as a key file, and the model's group of its own file put in place of its own. */
static GKeyFile *
import_text (SpRunFile *file, const SpRunGiven *given, GString *scenario, GString *model)
{
  g_autoptr (GError) error = NULL;
  GKeyFile *keys = g_key_file_new ();
  sp_run_file_import (file, given, "imported.ini", scenario, model, &error);
  g_assert_no_error (error);
  g_assert_true (g_key_file_load_from_data (keys, scenario->str, scenario->len, G_KEY_FILE_NONE, NULL));
  if (model->len == 0)
    return keys;
  g_autoptr (GKeyFile) own = g_key_file_new ();
  g_assert_true (g_key_file_load_from_data (own, model->str, model->len, G_KEY_FILE_NONE, NULL));
  g_auto (GStrv) names = g_key_file_get_keys (own, "model", NULL, NULL);
  for (guint i = 0; names[i] != NULL; i++) {
    g_autofree char *value = g_key_file_get_value (own, "model", names[i], NULL);
    g_key_file_set_value (keys, "model", names[i], value);
  }
  return keys;
}

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

static char *
write_input (const char *folder, const char *name, const GString *text)
{
  g_autoptr (GError) error = NULL;
  char *path = g_build_filename (folder, name, NULL);
  g_file_set_contents (path, text->str, (gssize) text->len, &error);
  g_assert_no_error (error);
  return path;
}

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
  if (file == NULL || g_str_equal (c->format, "calculon")) {
    g_test_skip (file == NULL ? "no reference files here" : "read only");
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

/* --- random layouts ----------------------------------------------------------------------------------------------- */

typedef struct {
  char *folder, *model_path, *cluster_path;
  SpCluster *cluster;
} Machine;

/* Some of what is drawn is no model that a file may describe. */
static void
draw_of_file (GRand *rand, const DrawLimits *limits, Draw *ret)
{
  for (;;) {
    g_autoptr (GString) text = g_string_new (NULL);
    g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
    draw_legal (rand, limits, ret);
    sp_architecture_write_ini (ret->arch, text, lost);
    g_autoptr (SpArchitecture) again = sp_architecture_parse_ini ("drawn", text->str, text->len, NULL);
    if (again != NULL)
      return;
    draw_clear (ret);
  }
}

/* A cluster of as many GPUs as the layout has ranks. */
static void
write_machine (const Draw *d, Machine *m)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GString) model = g_string_new (NULL), cluster = g_string_new (NULL);
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
  m->folder = g_dir_make_tmp ("seqpar-XXXXXX", &error);
  g_assert_no_error (error);
  sp_architecture_write_ini (d->arch, model, lost);
  g_assert_cmpuint (lost->len, ==, 0);
  g_string_append_printf (cluster,
                          "[cluster]\nname = drawn\nnodes = 1\ngpus-per-node = %d\ndevice = %s/devices/h100.ini\n"
                          "link-efficiency = 0.8\nlink-latency = 3 us\n",
                          sp_layout_world (&d->layout, d->arch), sp_data_dir ());
  m->model_path = write_input (m->folder, "model.ini", model);
  m->cluster_path = write_input (m->folder, "cluster.ini", cluster);
  m->cluster = sp_cluster_load (m->cluster_path, &error);
  g_assert_no_error (error);
}

static void
machine_clear (Machine *m)
{
  g_remove (m->model_path);
  g_remove (m->cluster_path);
  g_rmdir (m->folder);
  g_free (m->folder);
  g_free (m->model_path);
  g_free (m->cluster_path);
  sp_cluster_free (m->cluster);
}

/* Worked out from what the formats document, not from their tables. */
static gboolean
has_words (const char *format, const Draw *d)
{
  const SpLayout *l = &d->layout;
  gboolean linear = sp_architecture_count (d->arch, SP_LAYER_SOFTMAX) == 0;
  if (g_str_equal (format, "megatron")) /* all but a chain of states */
    return l->lasp == 1;
  if (g_str_equal (format, "deepspeed"))
    return l->pipeline == 1 && l->ring == 1 && l->lasp == 1 && l->expert == 1;
  if (g_str_equal (format, "torchtitan"))
    return l->ulysses == 1 && l->lasp == 1;
  return l->ulysses == 1 && l->expert == 1 && (linear || l->lasp == 1);
}

static gboolean
is_lost (const GPtrArray *lost, const char *key)
{
  g_autofree char *layout = g_strdup_printf ("not carried: layout.%s ", key);
  g_autofree char *run = g_strdup_printf ("not carried: run.%s ", key);
  for (guint i = 0; i < lost->len; i++)
    if (g_str_has_prefix (lost->pdata[i], layout) || g_str_has_prefix (lost->pdata[i], run))
      return TRUE;
  return FALSE;
}

/* What the file gives when it is imported by somebody else: equal, or said to be lost. */
static void
check_export (const char *format, const Draw *d, const Machine *m, const GString *text, const GPtrArray *lost)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpRunFile) file = sp_run_file_parse (format, text->str, text->len, &error);
  g_assert_no_error (error);
  g_autofree char *sequence = g_strdup_printf ("run.sequence=%" G_GINT64_FORMAT, d->run.sequence);
  const char *const sets[] = { sequence, NULL };
  const SpRunGiven given = { m->model_path, m->cluster_path, sets };
  g_autoptr (GString) scenario = g_string_new (NULL), model = g_string_new (NULL);
  sp_run_file_import (file, &given, "again.ini", scenario, model, &error);
  g_assert_no_error (error);
  g_autoptr (SpScenario) again = sp_scenario_parse ("again.ini", scenario->str, scenario->len, NULL, &error);
  g_assert_no_error (error);
  const SpLayout *a = &d->layout, *b = &again->layout;
  g_assert_cmpint (a->data, ==, b->data);
  g_assert_cmpint (a->tensor, ==, b->tensor);
  g_assert_cmpint (a->pipeline, ==, b->pipeline);
  g_assert_cmpint (a->ulysses, ==, b->ulysses);
  g_assert_cmpint (a->ring, ==, b->ring);
  g_assert_cmpint (a->lasp, ==, b->lasp);
  g_assert_cmpint (a->expert, ==, b->expert);
  gint32 replicas = sp_layout_replicas (a, d->arch);
  g_assert_true (replicas == 1 || a->zero == b->zero || is_lost (lost, "zero"));
  g_assert_true (a->recompute == b->recompute || is_lost (lost, "recompute"));
  g_assert_true (a->gradient_dtype == b->gradient_dtype || is_lost (lost, "gradient-dtype"));
  g_assert_true (a->overlap == b->overlap || is_lost (lost, "overlap") || a->tensor * replicas == 1);
  g_assert_true (a->pipeline == 1 || a->schedule == b->schedule || is_lost (lost, "schedule"));
  g_assert_true (a->pipeline == 1 || a->virtual_stages == b->virtual_stages || is_lost (lost, "virtual-stages"));
  g_assert_true (a->tensor == 1 || a->sequence_regions == b->sequence_regions || is_lost (lost, "sequence-regions"));
  g_assert_true (a->ring == 1 || a->token_split == b->token_split || is_lost (lost, "ring-split"));
  g_assert_true (d->run.micro_batch == again->run.micro_batch || is_lost (lost, "micro-batch"));
  g_assert_true (d->run.global_batch == again->run.global_batch || is_lost (lost, "global-batch"));
  g_assert_true (d->run.precision == again->run.precision || is_lost (lost, "precision"));
  g_assert_true (d->run.causal == again->run.causal || is_lost (lost, "causal"));
}

static void
test_random (void)
{
  const DrawLimits limits = {
    .kinds = DRAW_ANY,
    .data = { 1, 6 },
    .tensor = { 1, 4 },
    .pipeline = { 1, 4 },
    .ulysses = { 1, 3 },
    .ring = { 1, 4 },
    .lasp = { 1, 4 },
    .schedules = TRUE,
    .experts = TRUE,
  };
  guint carried[4] = { 0 }, refused[4] = { 0 };
  g_autoptr (GRand) rand = draw_rand_new ();
  for (guint i = 0; i < 300; i++) {
    Draw d;
    Machine m = { NULL };
    draw_of_file (rand, &limits, &d);
    draw_describe (&d);
    write_machine (&d, &m);
    char none[] = "none";
    const SpScenario scenario = { .path = none, .model_path = m.model_path, .cluster_path = m.cluster_path,
                                  .framework_path = none, .arch = d.arch, .cluster = m.cluster,
                                  .framework = &d.framework, .layout = d.layout, .run = d.run };
    for (guint f = 0; sp_run_format_names[f] != NULL; f++) {
      g_autoptr (GError) error = NULL;
      g_autoptr (GString) text = g_string_new (NULL);
      g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
      gboolean words = has_words (sp_run_format_names[f], &d);
      gboolean good = sp_run_file_export (&scenario, sp_run_format_names[f], text, lost, &error);
      g_test_message ("%s: %s", sp_run_format_names[f], good ? text->str : error->message);
      g_assert_cmpint (good, ==, words);
      g_assert_true (good || strstr (error->message, "no words for the layout's degrees") != NULL);
      (good ? carried : refused)[f]++;
      if (good)
        check_export (sp_run_format_names[f], &d, &m, text, lost);
    }
    machine_clear (&m);
    draw_clear (&d);
  }
  for (guint f = 0; f < 4; f++) {
    g_test_message ("%s: %u carried, %u refused", sp_run_format_names[f], carried[f], refused[f]);
    g_assert_cmpuint (carried[f], >, 5);
    g_assert_cmpuint (refused[f], >, 5);
  }
}

/* --- TOML --------------------------------------------------------------------------------------------------------- */

static void
test_toml (void)
{
  static const char text[] = "# first\n"
                             "top = 1\n"
                             "a.b.c = -1_000\r\n"
                             "  [ table . \"quoted\" ] # behind\n"
                             "s = \"tab\\t\\u00e9 # none\"\n"
                             "l = 'raw\\t'\n"
                             "f = 3e-4\n"
                             "g = +1.5E3\n"
                             "t = true\n"
                             "list = [ 'x', # one\n"
                             "  [1, 2], ]\n"
                             "in = { p = 1, q.r = 'z' }\n"
                             "none = []\n"
                             "e = ''";
  static const struct {
    const char *key, *text;
    SpItemType type;
    guint line;
  } expected[] = {
    { "top", "1", SP_ITEM_INT, 2 },
    { "a.b.c", "-1000", SP_ITEM_INT, 3 },
    { "table.quoted.s", "tab\t\u00e9 # none", SP_ITEM_WORD, 5 },
    { "table.quoted.l", "raw\\t", SP_ITEM_WORD, 6 },
    { "table.quoted.f", "3e-4", SP_ITEM_FLOAT, 7 },
    { "table.quoted.g", "1.5e+3", SP_ITEM_FLOAT, 8 },
    { "table.quoted.t", "true", SP_ITEM_BOOL, 9 },
    { "table.quoted.list", "x,1,2", SP_ITEM_LIST, 10 },
    { "table.quoted.in.p", "1", SP_ITEM_INT, 12 },
    { "table.quoted.in.q.r", "z", SP_ITEM_WORD, 12 },
    { "table.quoted.none", "", SP_ITEM_LIST, 13 },
    { "table.quoted.e", "", SP_ITEM_WORD, 14 },
  };
  g_autoptr (GError) error = NULL;
  g_autoptr (SpRunItems) items = sp_run_items_parse_toml ("t.toml", text, strlen (text), &error);
  g_assert_no_error (error);
  g_assert_cmpuint (items->list->len, ==, G_N_ELEMENTS (expected));
  for (guint i = 0; i < G_N_ELEMENTS (expected); i++) {
    const SpRunItem *item = sp_run_items_get (items, expected[i].key);
    g_assert_nonnull (item);
    g_assert_cmpint (item->type, ==, expected[i].type);
    g_assert_cmpuint (item->line, ==, expected[i].line);
    if (!g_str_equal (expected[i].key, "table.quoted.g"))
      g_assert_cmpstr (item->text, ==, expected[i].text);
    else
      g_assert_cmpfloat (g_ascii_strtod (item->text, NULL), ==, 1500);
  }
}

/* --- what is wrong ------------------------------------------------------------------------------------------------ */

typedef struct {
  const char *name, *text;
  const char *words[6];
} BadCase;

#define TOML "[training]\nseq_len = 1024\n"
static const BadCase bad_cases[] = {
  { "empty", "", { "empty" } },
  { "blank", " \n# nothing\n", { "expected Megatron-LM arguments" } },
  { "config", "{\"model_type\": \"llama\"}", { "a model's config.json", "--model" } },
  { "scenario", "[layout]\ntensor = 1\n", { "a scenario already" } },
  { "prose", "once upon a time", { "\"once\"", "--flag" } },
  { "null", "--num-layers 1\001", { "control character" } },
  { "toml-string", TOML "s = \"abc\n", { ":3", "training.s", "without an end" } },
  { "toml-lines", TOML "s = \"\"\"abc\"\"\"\n", { ":3", "several lines" } },
  { "toml-escape", TOML "s = \"\\q\"\n", { ":3", "escape" } },
  { "toml-surrogate", TOML "s = \"\\ud800\"\n", { ":3", "escape" } },
  { "toml-value", TOML "s = abc\n", { ":3", "training.s", "\"abc\"", "quotes" } },
  { "toml-date", TOML "s = 1979-05-27\n", { ":3", "1979-05-27" } },
  { "toml-octal", TOML "s = 010\n", { ":3", "010" } },
  { "toml-digits", TOML "s = 12345678901234567890\n", { ":3", "18 digits" } },
  { "toml-no-value", TOML "s = \n", { ":3", "training.s" } },
  { "toml-no-equals", TOML "s\n", { ":3", "key = value" } },
  { "toml-behind", TOML "s = 1 2\n", { ":3", "end of the line" } },
  { "toml-key", TOML "a b = 2\n", { ":3" } },
  { "toml-twice", TOML "seq_len = 2\n", { ":3", "training.seq_len", "twice", "line 2" } },
  { "toml-table-twice", TOML "[training]\n", { ":3", "training", "twice" } },
  { "toml-table-value", TOML "[training.seq_len]\n", { ":3", "value already" } },
  { "toml-value-table", TOML "[a.b]\nc = 1\n[x]\n[a]\nb = 1\n", { ":7", "a.b", "table already" } },
  { "toml-array", TOML "a = [1, 2\n", { "training.a", "array without an end" } },
  { "toml-inline", TOML "a = { b = 1\n", { "training.a", "inline table" } },
  { "toml-tables", TOML "[[a]]\n", { ":3", "arrays of tables" } },
  { "toml-type", "[training]\nseq_len = \"x\"\n", { ":2", "training.seq_len", "\"x\"", "whole number" } },
  { "toml-zero", "[parallelism]\ntensor_parallel_degree = 0\n", { ":2", "\"0\"", "at least 1" } },
  { "toml-fraction", "[training]\nseq_len = 1.5\n", { "1.5", "whole number" } },
  { "toml-bool", "[training]\nseq_len = true\n", { "true", "whole number" } },
  { "args-value", "--num-layers\n--hidden-size 8\n", { ":1", "--num-layers", "whole number" } },
  { "args-flag", "--bf16 yes\n", { ":1", "--bf16", "no value" } },
  { "args-shell", "--num-layers $LAYERS\n", { "$LAYERS", "shell variable" } },
  { "args-twice", "--num-layers 1\n--num-layers 2\n", { ":2", "--num-layers", "line 1" } },
  { "args-quote", "--num-layers \"1\n", { ":1", "quote without an end" } },
  { "args-both", "--bf16\n--fp16\n", { "--fp16 contradicts --bf16" } },
  { "args-degree", "--tensor-model-parallel-size -2\n", { "-2", "at least 1" } },
  { "args-huge", "--tensor-model-parallel-size 99999999999999999999\n", { "whole number" } },
  { "args-range", "--tensor-model-parallel-size 2000000\n", { "[layout] tensor", "2000000" } },
  { "json-type", "{\"zero_optimization\": {\"stage\": true}}", { "zero_optimization.stage", "whole number" } },
  { "json-range", "{\"zero_optimization\": {\"stage\": 4}}", { "zero_optimization.stage", "[layout] zero", "4" } },
  { "json-twice", "{\"zero_optimization\": {\"stage\": 1, \"stage\": 2}}", { "stage", "twice" } },
  { "json-both", "{\"zero_optimization.stage\": 1, \"zero_optimization\": {\"stage\": 2}}", { "stage", "twice" } },
  { "json-both-precisions",
    "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}",
    { "fp16.enabled contradicts bf16.enabled" } },
};

static void
test_bad (gconstpointer data)
{
  const BadCase *c = data;
  g_autoptr (GError) error = NULL;
  g_assert_null (sp_run_file_parse ("bad", c->text, strlen (c->text), &error));
  input_file_assert_error (error, "bad", c->words);
}

/* Asked for, or at odds with what is given. */
static const struct {
  const char *name, *text;
  SpRunGiven given;
  const char *words[8];
} asked_cases[] = {
  { "megatron",
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --position-embedding-type rope "
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --seq-length 64 --micro-batch-size 1\n",
    { NULL },
    { "--cluster FILE", "vocabulary", "--set model.vocabulary=N", "over the 4 of a replica", "--set layout.data=N",
      "--bf16", "run.precision" } },
  { "megatron-batch",
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --position-embedding-type rope --seq-length 64 --bf16 "
    "--vocab-size 100\n",
    { NULL, "h100-1x8", NULL },
    { "--set run.micro-batch=N", "--set run.global-batch=N" } },
  { "megatron-gpus",
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --position-embedding-type rope --seq-length 64 --bf16 "
    "--vocab-size 100 --micro-batch-size 1 --tensor-model-parallel-size 3\n",
    { NULL, "h100-1x8", NULL },
    { "a replica takes 3 GPUs", "the cluster's 8" } },
  { "megatron-head",
    "--num-layers 4 --hidden-size 66 --num-attention-heads 4 --position-embedding-type rope --seq-length 64 --bf16 "
    "--vocab-size 100 --micro-batch-size 1\n",
    { NULL, "h100-1x8", NULL },
    { "[model] heads", "hidden = 66" } },
  { "deepspeed",
    "{\"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_accumulation_steps\": \"auto\", \"bf16\": {\"enabled\": "
    "\"auto\"}}",
    { NULL },
    { "--model FILE", "--cluster FILE", "--set run.sequence=N", "--set run.micro-batch=N", "--set run.global-batch=N",
      "bf16.enabled", "--set run.precision=bf16" } },
  { "deepspeed-divides",
    "{\"train_batch_size\": 12, \"gradient_accumulation_steps\": 1, \"bf16\": {\"enabled\": true}}",
    { "llama-3.1-8b", "h100-1x8", NULL },
    { "12", "no multiple of data 8" } },
  { "deepspeed-adds-up",
    "{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 2, "
    "\"bf16\": {\"enabled\": true}}",
    { "llama-3.1-8b", "h100-1x8", NULL },
    { "12", "micro-batch 1 x accumulation steps 2 x data 8" } },
  { "torchtitan",
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 64\n[parallelism]\n"
    "data_parallel_shard_degree = -1\ntensor_parallel_degree = 2\n",
    { NULL },
    { "data_parallel_shard_degree = -1", "over 2", "--cluster FILE", "--set layout.data=N" } },
  { "torchtitan-divides",
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 64\n[parallelism]\n"
    "data_parallel_replicate_degree = 3\n",
    { NULL, "h100-1x8", NULL },
    { "data_parallel_shard_degree", "take 3 GPUs", "the cluster's 8" } },
  { "torchtitan-zero",
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 64\n[parallelism]\n"
    "data_parallel_shard_degree = 0\n",
    { NULL, "h100-1x8", NULL },
    { "data_parallel_shard_degree", "\"0\"", "-1" } },
  { "no-such-model",
    "[training]\nseq_len = 64\n[parallelism]\ntensor_parallel_degree = 1\n",
    { "lama-3.1-8b", "h100-1x8", NULL },
    { "did you mean llama-3.1-8b?" } },
  { "calculon",
    "{\"num_procs\": 8, \"tensor_par\": 2, \"pipeline_par\": 2, \"data_par\": 1, \"batch_size\": 1, "
    "\"microbatch_size\": 1, \"datatype\": \"float32\"}",
    { "megatron-22b", "h100-1x8", NULL },
    { "num_procs", "\"8\"", "= 4" } },
};

static void
test_asked (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (asked_cases); i++) {
    g_autoptr (GError) error = NULL;
    g_autoptr (GString) scenario = g_string_new (NULL), model = g_string_new (NULL);
    g_test_message ("%s", asked_cases[i].name);
    g_autoptr (SpRunFile) file =
        sp_run_file_parse ("asks", asked_cases[i].text, strlen (asked_cases[i].text), &error);
    g_assert_no_error (error);
    gboolean good = sp_run_file_import (file, &asked_cases[i].given, "out.ini", scenario, model, &error);
    g_assert_false (good);
    input_file_assert_error (error, g_str_equal (asked_cases[i].name, "no-such-model") ? "\"lama" : "asks",
                             asked_cases[i].words);
    g_assert_cmpuint (scenario->len + model->len, ==, 0);
  }
}

/* What a table does not know, and what it knows but a scenario has no word for. */
static void
test_listed (void)
{
  static const char text[] = "--num-layers 4 --hiden-size 64 --num-attention-heads 4 --seq-length 64 --bf16 "
                             "--optimizer sgd --tp-comm-overlap --recompute-modules mlp moe --xyzzy 1 2\n";
  static const char *const notes[] = { "unknown: --hiden-size (did you mean --hidden-size?)",
                                       "not mapped: --optimizer = sgd: seqpar maps adam, muon",
                                       "not mapped: --tp-comm-overlap: seqpar does not split",
                                       "not mapped: --recompute-modules = mlp moe: selective", "unknown: --xyzzy" };
  g_autoptr (GError) error = NULL;
  g_autoptr (SpRunFile) file = sp_run_file_parse ("f", text, strlen (text), &error);
  g_assert_no_error (error);
  const GPtrArray *list = sp_run_file_notes (file);
  g_assert_cmpuint (list->len, ==, G_N_ELEMENTS (notes));
  for (guint i = 0; i < list->len; i++)
    g_assert_true (g_str_has_prefix (list->pdata[i], notes[i]));
}

/* Details of the flags that several facts come from. */
static const struct {
  const char *flags;
  const char *facts[5];
} flag_cases[] = {
  { "--context-parallel-size 4", { "layout.ring=4", "layout.ulysses=1" } },
  { "--context-parallel-size 4 --cp-comm-type a2a", { "layout.ring=1", "layout.ulysses=4" } },
  { "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", { "layout.zero=3" } },
  { "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", { "layout.zero=2" } },
  { "--recompute-activations", { "layout.recompute=selective" } },
  { "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2",
    { "layout.schedule=interleaved", "layout.virtual-stages=2", "layout.pipeline=2" } },
  { "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 1",
    { "layout.stage-split=1,3,3,1" } },
  { "--swiglu", { "model.ffn=128", "model.mlp=swiglu" } }, /* 64 x 8 / 3 = 170, down to a multiple of 64 */
  { "--group-query-attention", { "model.kv-heads=1" } },
  { "--num-experts 4 --moe-layer-freq 2", { "model.layer-kinds=softmax+experts,softmax", "model.expert-ffn=256" } },
  { "--num-experts 4 --moe-layer-freq ([0]*2+[1]*6)", { "model.layer-kinds=softmax*2,softmax+experts*6" } },
  { "--multi-latent-attention --kv-lora-rank 16 --q-lora-rank 8",
    { "model.latent-rank=16", "model.query-rank=8", "model.latent-plain-size=128", "model.latent-rotary-size=64",
      "model.latent-value-size=128" } },
  { "--disable-bias-linear --add-qkv-bias", { "model.qkv-bias=true" } },
};

static void
test_flags (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (flag_cases); i++) {
    g_autoptr (GError) error = NULL;
    g_autofree char *text =
        g_strconcat ("--num-layers 8 --hidden-size 64 --num-attention-heads 4 --position-embedding-type rope "
                     "--vocab-size 100 --seq-length 64 --bf16 --micro-batch-size 1 ",
                     flag_cases[i].flags, NULL);
    g_autoptr (SpRunFile) file = sp_run_file_parse ("f", text, strlen (text), &error);
    g_assert_no_error (error);
    const SpRunGiven given = { NULL, "h100-1x8", NULL };
    g_autoptr (GString) scenario = g_string_new (NULL), model = g_string_new (NULL);
    g_autoptr (GKeyFile) keys = import_text (file, &given, scenario, model);
    for (guint j = 0; j < 5 && flag_cases[i].facts[j] != NULL; j++) {
      g_auto (GStrv) halves = g_strsplit (flag_cases[i].facts[j], "=", 2);
      g_auto (GStrv) names = g_strsplit (halves[0], ".", 2);
      g_autofree char *value = g_key_file_get_value (keys, names[0], names[1], NULL);
      g_test_message ("%s: %s", flag_cases[i].flags, halves[0]);
      g_assert_cmpstr (value, ==, halves[1]);
    }
  }
}

/* --- anything ----------------------------------------------------------------------------------------------------- */

/* Bytes changed, taken out, doubled: read, or refused in one line; and if read, imported or refused. */
static void
test_mutated (void)
{
  static const char bytes[] = "{}[]\"'\\#=.,-_ \n\t0123456789eaut$\001\xff";
  g_autoptr (GRand) rand = draw_rand_new ();
  for (guint i = 0; i < 4000; i++) {
    const FileCase *c = &file_cases[draw_int (rand, 0, (gint32) G_N_ELEMENTS (file_cases) - 1)];
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
    g_test_add_data_func (back, &file_cases[i], test_round_trip);
  }
  for (guint i = 0; i < G_N_ELEMENTS (bad_cases); i++) {
    g_autofree char *path = g_strconcat ("/run-files/bad/", bad_cases[i].name, NULL);
    g_test_add_data_func (path, &bad_cases[i], test_bad);
  }
  g_test_add_func ("/run-files/toml", test_toml);
  g_test_add_func ("/run-files/asked", test_asked);
  g_test_add_func ("/run-files/listed", test_listed);
  g_test_add_func ("/run-files/flags", test_flags);
  g_test_add_func ("/run-files/random", test_random);
  g_test_add_func ("/run-files/mutated", test_mutated);
  return g_test_run ();
}
