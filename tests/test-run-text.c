/* SPDX-License-Identifier: Apache-2.0 */
/* Run files as text: TOML's part that is read, flags in detail, what is wrong, what is asked for, what is listed. */
#include "models/inputs/ini.h"
#include "models/inputs/run-files/items.h"
#include "tests/imported.h"
#include "tests/input-file.h"

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
  { "blank", " \n# nothing\n", { "expected Megatron-LM, ms-swift" } },
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
  { "args-array", "ARGS=(\n  --num-layers 4\n)\ntorchrun x.py ${ARGS[@]}\n", { ":1", "ARGS=(", "bash -x" } },
  { "args-elements", "torchrun x.py --num-layers 4 \"${ARGS[@]}\"\n", { ":1", "${ARGS[@]}", "bash -x" } },
  { "args-more", "--lr 1\n--clip-grad 1 $MORE\n", { ":2", "$MORE", "bash -x" } },
  { "args-bare", "torchrun x.py $MORE --num-layers 4\n", { ":1", "$MORE", "bash -x" } },
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
  /* words that no program takes, in each format */
  { "word-megatron",
    "--num-layers 4 --recompute-granularity ful\n",
    { ":1", "--recompute-granularity", "\"ful\"", "full, selective", "did you mean full?" } },
  { "word-megatron-optimizer", "--num-layers 4 --optimizer adamm\n", { "--optimizer", "did you mean adam?" } },
  { "word-deepspeed",
    "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"gpu\"}}}",
    { "offload_optimizer.device", "\"gpu\"", "cpu, none, nvme" } },
  { "word-deepspeed-optimizer",
    "{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"AdamX\"}}",
    { "optimizer.type", "did you mean Adam" } },
  { "word-torchtitan",
    "[training]\nseq_len = 1024\n[parallelism]\npipeline_parallel_schedule = \"1F1C\"\n",
    { ":4", "pipeline_parallel_schedule", "did you mean 1F1B?" } },
  { "word-flame",
    "[training]\ntensor_parallel_degree = 1\n[activation_checkpoint]\nmode = \"all\"\n",
    { ":4", "activation_checkpoint.mode", "none, selective, full" } },
  { "word-swift", "swift sft --model a/b --deepspeed zero9\n", { "--deepspeed", "\"zero9\"", "did you mean zero" } },
  { "word-swift-bool", "swift sft --model a/b --gradient_checkpointing maybe\n", { "\"maybe\"", "true, false" } },
  { "word-swift-tuner", "swift sft --model a/b --tuner_type lorra\n", { "--tuner_type", "did you mean lora?" } },
  { "word-megatron-swift",
    "megatron sft --model a/b --recompute_granularity selectiv\n",
    { "--recompute_granularity", "did you mean selective?" } },
  { "word-llamafactory",
    "model_name_or_path: a/b\nsequence_parallel_mode: nonsense\n",
    { ":2", "sequence_parallel_mode", "\"nonsense\"", "zigzag-ring, ulysses" } },
  { "word-llamafactory-stage", "model_name_or_path: a/b\nstage: sftt\n", { ":2", "stage", "did you mean sft?" } },
  { "word-verl", "actor_rollout_ref.actor.strategy=fsdp3\n", { ":1", "strategy", "did you mean fsdp" } },
  { "word-verl-dtype", "actor_rollout_ref.actor.fsdp_config.dtype=bf61\n", { ":1", "dtype", "bfloat16, float16" } },
  { "word-calculon",
    "{\"num_procs\": 1, \"tensor_par\": 1, \"activation_recompute\": \"some\"}",
    { "activation_recompute", "full, attn_only, none" } },
  /* what is a file's to say, and is not this one's */
  { "command-file", "llamafactory-cli train examples/x.yaml\n", { ":1", "\"examples/x.yaml\"", "give that file" } },
  { "command-variables", "FORCE_TORCHRUN=1 llamafactory-cli train x.yaml lr=1\n", { "\"x.yaml\"", "give that file" } },
  { "command-other", "torchrun -m verl.trainer.fsdp_sft_trainer data.max_length=8\n", { "verl's overrides" } },
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
    { "--model FILE", "--cluster FILE", "--set run.sequence=N",
      "(train_micro_batch_size_per_gpu = auto), which follows from global batch (train_batch_size), data degree and "
      "accumulation steps (gradient_accumulation_steps = auto): --set run.micro-batch=N",
      "--set run.global-batch=N", "bf16.enabled", "--set run.precision=bf16" } },
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
  { "torchtitan-model",
    "[model]\nname = \"llama3\"\nflavor = \"9B\"\n[training]\nseq_len = 64\n",
    { NULL, "h100-1x8", NULL },
    { "which the file calls llama3 9B", "--model FILE" } },
  { "set",
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 64\n",
    { NULL, "h100-1x8", (const char *const[]){ "run.framework=a\nb", NULL } },
    { "--set run.framework=a b", "control character" } },
  { "copies",
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --position-embedding-type rope --seq-length 64 --bf16 "
    "--vocab-size 100 --micro-batch-size 1 --use-distributed-optimizer --num-distributed-optimizer-instances 3\n",
    { NULL, "h100-1x8", NULL },
    { "--num-distributed-optimizer-instances", "\"3\"", "the 8 ranks" } },
  { "both-splits",
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --position-embedding-type rope --seq-length 64 --bf16 "
    "--vocab-size 100 --micro-batch-size 1 --ds-sequence-parallel-size 2 --context-parallel-size 2\n",
    { NULL, "h100-1x8", NULL },
    { "--ds-sequence-parallel-size", "\"2\"", "expected 1" } },
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
    g_autoptr (SpRunFile) file = sp_run_file_parse ("asks", asked_cases[i].text, strlen (asked_cases[i].text), &error);
    g_assert_no_error (error);
    gboolean good = sp_run_file_import (file, &asked_cases[i].given, "out.ini", scenario, model, &error);
    g_assert_false (good);
    const char *begins = g_str_equal (asked_cases[i].name, "no-such-model") ? "\"lama"
                         : g_str_equal (asked_cases[i].name, "set")         ? "--set"
                                                                            : "asks";
    input_file_assert_error (error, begins, asked_cases[i].words);
    g_assert_cmpuint (scenario->len + model->len, ==, 0);
  }
}

/* What a table does not know, and what it knows but a scenario has no word for. */
static void
test_listed (void)
{
  static const char text[] = "--num-layers 4 --hiden-size 64 --num-attention-heads 4 --seq-length 64 --bf16 "
                             "--optimizer sgd --tp-comm-overlap --recompute-modules mlp moe --data-path $DATA "
                             "--xyzzy 1 2\n";
  static const char *const notes[] = { "unknown: --hiden-size (did you mean --hidden-size?)",
                                       "not mapped: --optimizer = sgd: seqpar maps adam, muon, dist_muon",
                                       "not mapped: --tp-comm-overlap: seqpar does not split",
                                       "not mapped: --recompute-modules = mlp moe: selective",
                                       "note: --data-path = $DATA: a shell variable",
                                       "unknown: --xyzzy",
                                       "ignored, no cost depends on them: --data-path" };
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
  { "--cross-entropy-loss-fusion --cross-entropy-fusion-impl linear", { "layout.loss=fused" } },
  { "--optimizer-cpu-offload", { "layout.offload=optimizer" } },
  { "--fp8-format hybrid", { "run.precision=fp8" } },
  { "--recompute-granularity full --recompute-method block --recompute-num-layers 3", { "layout.recompute=first-3" } },
  { "--recompute-granularity full --recompute-method block --recompute-num-layers 8", { "layout.recompute=full" } },
  { "--recompute-activations", { "layout.recompute=selective" } },
  { "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 --global-batch-size 16",
    { "layout.schedule=interleaved", "layout.virtual-stages=2", "layout.pipeline=2" } },
  { "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 1",
    { "layout.stage-split=1,3,3,1" } },
  { "--swiglu", { "model.ffn=128", "model.mlp=swiglu" } }, /* 64 x 8 / 3 = 170, down to a multiple of 64 */
  { "--group-query-attention", { "model.kv-heads=1" } },
  { "--num-experts 4 --moe-layer-freq 2", { "model.layer-kinds=softmax+experts,softmax", "model.expert-ffn=256" } },
  { "--num-experts 4 '--moe-layer-freq=([0]*2+[1]*6)'", { "model.layer-kinds=softmax*2,softmax+experts*6" } },
  { "--num-experts 4 --moe-layer-freq ([0]*2+[1]*6)", { "model.layer-kinds=softmax*2,softmax+experts*6" } },
  { "--multi-latent-attention --disable-bias-linear --kv-lora-rank 16 --q-lora-rank 8",
    { "model.latent-rank=16", "model.query-rank=8", "model.latent-plain-size=128", "model.latent-rotary-size=64",
      "model.latent-value-size=128" } },
  { "--multi-latent-attention --disable-bias-linear --kv-lora-rank 16 --qk-layernorm",
    { "model.qk-norm=", "model.latent-rank=16" } },
  { "--qk-layernorm", { "model.qk-norm=true" } },
  { "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", { "layout.loss=" } },
  { "--cross-entropy-fusion-impl linear", { "layout.loss=" } },
  { "--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8", { "run.optimizer=adamw-8bit" } },
  { "--use-precision-aware-optimizer --exp-avg-dtype bf16", { "run.optimizer=adamw" } },
  { "--optimizer muon", { "run.optimizer=muon", "layout.zero=0" } },
  { "--optimizer dist_muon", { "run.optimizer=muon", "layout.zero=1" } },
  { "--ds-sequence-parallel-size 4 --zero-stage 3", { "layout.ulysses=4", "layout.ring=1", "layout.zero=3" } },
  { "--use-distributed-optimizer --num-distributed-optimizer-instances 2", { "layout.zero=1", "layout.zero-group=4" } },
  { "--use-distributed-optimizer --num-distributed-optimizer-instances 8", { "layout.zero=0", "layout.zero-group=" } },
  { "--num-distributed-optimizer-instances 2", { "layout.zero=0", "layout.zero-group=" } },
  { "--zero-stage 0 --use-distributed-optimizer", { "layout.zero=0" } },
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
      g_assert_cmpstr (value, ==, *halves[1] != '\0' ? halves[1] : NULL);
    }
  }
}

/* What is written is read again, and a shell takes it as it is. */
static void
test_written (void)
{
  static const char *const values[] = { "4 2", "([0]*3+[1]*5)", "it's", "a;b $c", "x#y", "99,1,0", "1e-4" };
  g_autoptr (SpRunItems) items = sp_run_items_new ("w");
  g_autoptr (GString) args = g_string_new (NULL), toml = g_string_new (NULL);
  for (guint i = 0; i < G_N_ELEMENTS (values); i++) {
    g_autofree char *key = g_strdup_printf ("--k%u", i);
    g_assert_true (sp_run_items_add (items, key, SP_ITEM_WORD, values[i], 0, NULL));
  }
  sp_run_items_write_args (items, NULL, args);
  g_auto (GStrv) shell = NULL;
  g_autoptr (GError) error = NULL;
  g_assert_true (g_shell_parse_argv (args->str, NULL, &shell, &error));
  g_assert_cmpuint (g_strv_length (shell), ==, 2 * G_N_ELEMENTS (values) + 2); /* two values have two words */
  g_assert_cmpstr (shell[4], ==, values[1]);
  g_assert_nonnull (strstr (args->str, "--k0 4 2\n--k1 '([0]*3+[1]*5)'\n"));
  /* a variable behind a value is refused, in quotes too */
  g_string_erase (args, (gssize) (strstr (args->str, "--k3") - args->str), (gssize) strlen ("--k3 'a;b' '$c'\n"));
  g_assert_nonnull (strstr (args->str, "\n--k4 "));
  g_autoptr (SpRunItems) again = sp_run_items_parse_args ("w", args->str, args->len, &error);
  g_assert_no_error (error);
  for (guint i = 0; i < again->list->len; i++) {
    const SpRunItem *item = again->list->pdata[i];
    g_assert_cmpstr (item->text, ==, sp_run_items_get (items, item->key)->text);
  }

  g_autoptr (SpRunItems) words = sp_run_items_new ("w");
  sp_run_items_add (words, "a.b", SP_ITEM_WORD, "tab\there \"and\" \\ \n[c]", 0, NULL);
  sp_run_items_write_toml (words, NULL, toml);
  g_autoptr (SpRunItems) back = sp_run_items_parse_toml ("w", toml->str, toml->len, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (back->list->len, ==, 1);
  g_assert_cmpstr (sp_run_items_get (back, "a.b")->text, ==, sp_run_items_get (words, "a.b")->text);
}

/* A file of nothing but keys is refused before each is compared with all that are known. */
static void
test_many (void)
{
  static const char *const words[] = { "many", "more than 4096 keys", NULL };
  g_autoptr (GString) text = g_string_new ("--num-layers 4");
  for (guint i = 0; i < 4096; i++)
    g_string_append_printf (text, " --k%u", i);
  g_autoptr (GError) error = NULL;
  g_assert_null (sp_run_file_parse ("many", text->str, text->len, &error));
  input_file_assert_error (error, "many", words);
}

/* Details of torchtitan and flame. That precision is fp8 stands in the scenario, or in a note while there is none. */
static const struct {
  const char *text;
  gboolean flame;
  const char *facts[4], *notes[3];
  const char *model; /* NULL: llama-3.1-8b */
} toml_cases[] = {
  { "[model]\nconverters = [\"quantize.linear.fp8\", \"mx\"]\n",
    FALSE,
    { NULL },
    { "not mapped: model.converters = mx", "precision = fp8" } },
  { "[quantize.linear.fp8]\nenable_fsdp_float8_all_gather = false\nfilter_fqns = [\"output\"]\n",
    FALSE,
    { "run.precision=bf16" },
    { "no cost depends on them: quantize.*" } },
  { "[parallelism]\ndisable_loss_parallel = true\n", FALSE, { "layout.loss=full" }, { NULL } },
  { "[parallelism]\ndisable_loss_parallel = false\n", FALSE, { "layout.loss=" }, { NULL } },
  { "[activation_checkpoint]\nmode = \"selective\"\n", FALSE, { "layout.recompute=every-2" }, { NULL } },
  { "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = 3\n",
    TRUE,
    { "layout.recompute=every-3" },
    { NULL } },
  { "[parallelism]\ndata_parallel_replicate_degree = 2\ncontext_parallel_degree = 2\n", /* shard 2 x context 2 */
    FALSE,
    { "layout.data=4", "layout.zero=3", "layout.zero-group=4" },
    { NULL } },
  { "[parallelism]\nexpert_tensor_parallel_degree = 1\n", FALSE, { "layout.tensor=1" }, { NULL } },
  { "[parallelism]\nexpert_parallel_degree = 2\nexpert_tensor_parallel_degree = 2\n",
    FALSE,
    { "layout.expert=2" },
    { "expert_tensor_parallel_degree" },
    "mixtral-8x7b" },
};

static void
test_toml_keys (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (toml_cases); i++) {
    g_autoptr (GError) error = NULL;
    g_autofree char *text =
        g_strdup_printf ("[training]\nseq_len = 64\n%s%s", toml_cases[i].flame ? "tensor_parallel_degree = 1\n" : "",
                         toml_cases[i].text);
    g_autoptr (SpRunFile) file = sp_run_file_parse ("t", text, strlen (text), &error);
    g_assert_no_error (error);
    g_assert_cmpstr (sp_run_file_format (file), ==, toml_cases[i].flame ? "flame" : "torchtitan");
    const SpRunGiven given = { toml_cases[i].model != NULL ? toml_cases[i].model : "llama-3.1-8b", "h100-1x8", NULL };
    g_autoptr (GString) scenario = g_string_new (NULL), model = g_string_new (NULL);
    g_autoptr (GKeyFile) keys = import_text (file, &given, scenario, model);
    g_test_message ("%s%s", text, scenario->str);
    for (guint j = 0; toml_cases[i].facts[j] != NULL; j++) {
      g_auto (GStrv) halves = g_strsplit (toml_cases[i].facts[j], "=", 2);
      g_auto (GStrv) names = g_strsplit (halves[0], ".", 2);
      g_autofree char *value = g_key_file_get_value (keys, names[0], names[1], NULL);
      g_assert_cmpstr (value, ==, *halves[1] != '\0' ? halves[1] : NULL);
    }
    guint n = 0;
    for (; toml_cases[i].notes[n] != NULL; n++)
      g_assert_nonnull (strstr (scenario->str, toml_cases[i].notes[n]));
    g_assert_cmpuint (sp_run_file_notes (file)->len, <=, n);
  }
}

/* MiCS's groups, and what says that there are none. */
static void
test_deepspeed_keys (void)
{
  static const struct {
    const char *size, *copy, *group; /* NULL: all ranks */
    guint notes;                     /* besides that on recomputation */
  } cases[] = { { "4", "1", "4", 0 }, { "-1", "1", NULL, 0 }, { "-1", "8", NULL, 1 } };
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (GError) error = NULL;
    g_autofree char *text = g_strdup_printf ("{\"train_batch_size\": 8, \"bf16\": {\"enabled\": true}, "
                                             "\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": %s, "
                                             "\"zero_hpz_partition_size\": %s}}",
                                             cases[i].size, cases[i].copy);
    g_autoptr (SpRunFile) file = sp_run_file_parse ("d", text, strlen (text), &error);
    g_assert_no_error (error);
    const SpRunGiven given = { "llama-3.1-8b", "h100-1x8", (const char *const[]){ "sequence=4K", NULL } };
    g_autoptr (GString) scenario = g_string_new (NULL), model = g_string_new (NULL);
    g_autoptr (GKeyFile) keys = import_text (file, &given, scenario, model);
    g_autofree char *group = g_key_file_get_value (keys, "layout", "zero-group", NULL);
    g_assert_cmpstr (group, ==, cases[i].group);
    g_assert_cmpuint (sp_run_file_notes (file)->len, ==, 1 + cases[i].notes);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (bad_cases); i++) {
    g_autofree char *path = g_strconcat ("/run-text/bad/", bad_cases[i].name, NULL);
    g_test_add_data_func (path, &bad_cases[i], test_bad);
  }
  g_test_add_func ("/run-text/toml", test_toml);
  g_test_add_func ("/run-text/asked", test_asked);
  g_test_add_func ("/run-text/listed", test_listed);
  g_test_add_func ("/run-text/flags", test_flags);
  g_test_add_func ("/run-text/written", test_written);
  g_test_add_func ("/run-text/many", test_many);
  g_test_add_func ("/run-text/deepspeed-keys", test_deepspeed_keys);
  g_test_add_func ("/run-text/toml-keys", test_toml_keys);
  return g_test_run ();
}
