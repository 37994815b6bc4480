/* SPDX-License-Identifier: Apache-2.0 */
/* Run files of other programs: what is read of each, what is listed, what is asked for; and back again. */
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

/* What the other draws leave alone; legal or not, an export does not ask. */
static void
draw_recipe (GRand *rand, Draw *ret)
{
  SpLayout *l = &ret->layout;
  l->offload = (guint8) (draw_int (rand, 0, 2) > 0 ? 0 : draw_int (rand, 0, SP_OFFLOAD_ALL));
  if (l->recompute == SP_RECOMPUTE_FULL) {
    l->recompute_every = draw_int (rand, 1, 3);
    l->recompute_first = l->recompute_every > 1 ? 0 : draw_int (rand, 0, 2);
  }
  ret->run.fp8 = ret->run.precision == SP_DTYPE_BF16 && draw_int (rand, 0, 1);
  ret->run.optimizer = (guint8) draw_int (rand, 0, SP_N_OPTIMIZERS - 1);
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

/* The largest degree that divides both. */
static gint32
most_ulysses (gint32 heads, gint32 ranks)
{
  gint32 most = 1;
  for (gint32 i = 1; i <= ranks; i++)
    most = heads % i == 0 && ranks % i == 0 ? i : most;
  return most;
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
  gboolean plain = l->tensor == 1 && l->pipeline == 1 && l->expert == 1;
  if (g_str_equal (format, "swift")) /* Ulysses' part follows from the heads */
    return plain && l->lasp == 1 && l->ulysses == most_ulysses (d->arch->heads, l->ulysses * l->ring);
  if (g_str_equal (format, "megatron-swift"))
    return l->ulysses == 1 && l->lasp == 1;
  if (g_str_equal (format, "llamafactory")) /* one of the two */
    return l->lasp == 1 && (l->ulysses == 1 || l->ring == 1);
  if (g_str_equal (format, "verl")) /* Ulysses goes with FSDP, all else with Megatron */
    return l->lasp == 1 && (l->ulysses == 1 || (plain && l->ring == 1));
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

/* What the file gives when it is imported by somebody else: equal, or said to be lost. FALSE: no legal layout. */
static gboolean
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
  /* What is left without what is lost need not be legal. */
  if (error != NULL && lost->len > 0 && strstr (error->message, "the layout is not legal") != NULL)
    return FALSE;
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
  g_assert_true (a->zero == 0 || a->zero_group == b->zero_group || is_lost (lost, "zero-group"));
  gboolean which = a->recompute != SP_RECOMPUTE_FULL ||
                   (a->recompute_every == b->recompute_every && a->recompute_first == b->recompute_first);
  g_assert_true ((a->recompute == b->recompute && which) || is_lost (lost, "recompute"));
  g_assert_true (a->loss == b->loss || is_lost (lost, "loss") || (a->tensor == 1 && MAX (a->loss, b->loss) < 2));
  g_assert_true (a->offload == b->offload || is_lost (lost, "offload"));
  g_assert_true ((!d->run.fp8 == !again->run.fp8) || is_lost (lost, "precision"));
  g_assert_true (d->run.optimizer == again->run.optimizer || is_lost (lost, "optimizer"));
  g_assert_true (a->gradient_dtype == b->gradient_dtype || is_lost (lost, "gradient-dtype"));
  g_assert_true (a->overlap == b->overlap || is_lost (lost, "overlap") || a->tensor * replicas == 1);
  g_assert_true (a->pipeline == 1 || a->schedule == b->schedule || is_lost (lost, "schedule"));
  g_assert_true (a->pipeline == 1 || a->virtual_stages == b->virtual_stages || is_lost (lost, "virtual-stages"));
  g_assert_true (a->tensor == 1 || a->sequence_regions == b->sequence_regions || is_lost (lost, "sequence-regions"));
  g_assert_true (a->ring == 1 || a->token_split == b->token_split || is_lost (lost, "ring-split"));
  g_assert_true (a->ring == 1 || a->ring_kind == b->ring_kind || is_lost (lost, "ring-kind"));
  g_assert_true (a->ring == 1 || a->ring_keep == b->ring_keep || is_lost (lost, "ring-keep"));
  g_assert_true (d->run.micro_batch == again->run.micro_batch || is_lost (lost, "micro-batch"));
  g_assert_true (d->run.global_batch == again->run.global_batch || is_lost (lost, "global-batch"));
  g_assert_true (d->run.precision == again->run.precision || is_lost (lost, "precision"));
  g_assert_true (d->run.causal == again->run.causal || is_lost (lost, "causal"));
  return TRUE;
}

/* What comes back comes back again: written and read once more it is the same, whole. */
static void
check_image (const SpScenario *scenario, const char *format, gboolean good, const GPtrArray *lost)
{
  SpScenario image = *scenario;
  SpLayout again;
  SpRun run;
  SpRunCarries carries = sp_run_file_carries (scenario, format, &image.layout, &image.run);
  gboolean whole = TRUE;

  g_assert_cmpint (carries != SP_RUN_CARRIES_NOT, ==, good);
  if (!good)
    return;
  for (guint i = 0; i < lost->len; i++)
    whole = whole && !g_str_has_prefix (lost->pdata[i], "not carried: layout.");
  g_assert_true (carries != SP_RUN_CARRIES_ALL || whole || g_str_equal (format, "deepspeed"));
  g_assert_cmpint (sp_run_file_carries (&image, format, &again, &run), ==, SP_RUN_CARRIES_ALL);
  g_assert_cmpmem (&again, sizeof again, &image.layout, sizeof again);
  g_assert_cmpint (run.micro_batch, ==, image.run.micro_batch);
  g_assert_cmpint (run.global_batch, ==, image.run.global_batch);
}

#define N_FORMATS 8

static void
test_random (void)
{
  const DrawLimits limits = {
    .kinds = DRAW_ANY,
    .data = { 1, 4 }, /* at most 768 ranks: a node of the drawn cluster */
    .tensor = { 1, 4 },
    .pipeline = { 1, 4 },
    .ulysses = { 1, 3 },
    .ring = { 1, 4 },
    .lasp = { 1, 4 },
    .schedules = TRUE,
    .experts = TRUE,
  };
  guint carried[N_FORMATS] = { 0 }, refused[N_FORMATS] = { 0 }, legal[N_FORMATS] = { 0 };
  g_autoptr (GRand) rand = draw_rand_new ();
  for (guint i = 0; i < 300; i++) {
    Draw d;
    Machine m = { NULL };
    draw_of_file (rand, &limits, &d);
    draw_recipe (rand, &d);
    draw_describe (&d);
    write_machine (&d, &m);
    char none[] = "none";
    const SpScenario scenario = { .path = none,
                                  .model_path = m.model_path,
                                  .cluster_path = m.cluster_path,
                                  .framework_path = none,
                                  .arch = d.arch,
                                  .cluster = m.cluster,
                                  .framework = &d.framework,
                                  .layout = d.layout,
                                  .run = d.run };
    for (guint f = 0; sp_run_format_names[f] != NULL; f++) {
      g_autoptr (GError) error = NULL;
      g_autoptr (GString) text = g_string_new (NULL);
      g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
      gboolean words = has_words (sp_run_format_names[f], &d);
      gboolean good = sp_run_file_export (&scenario, sp_run_format_names[f], text, lost, &error);
      g_test_message ("%s: %s", sp_run_format_names[f], good ? text->str : error->message);
      g_assert_cmpint (good, ==, words);
      g_assert_true (good || strstr (error->message, "no words for the layout's degrees") != NULL);
      check_image (&scenario, sp_run_format_names[f], good, lost);
      (good ? carried : refused)[f]++;
      legal[f] += good && check_export (sp_run_format_names[f], &d, &m, text, lost);
    }
    machine_clear (&m);
    draw_clear (&d);
  }
  for (guint f = 0; f < N_FORMATS; f++) {
    g_test_message ("%s: %u carried, %u of them legal, %u refused", sp_run_format_names[f], carried[f], legal[f],
                    refused[f]);
    g_assert_cmpuint (legal[f], >, 0);
    g_assert_cmpuint (carried[f], >, 1); /* of swift a dozen or so, as its degrees follow from the heads */
    g_assert_cmpuint (refused[f], >, 5);
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
  g_test_add_func ("/run-files/random", test_random);
  g_test_add_func ("/run-files/mutated", test_mutated);
  return g_test_run ();
}
