/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "models/inputs/run-files/formats.h"
#include "models/inputs/scenario.h"

/* Run files of ms-swift, Megatron-SWIFT, LLaMA-Factory and verl: what their options mean, and there and back. G15 and
 * G16 are those of the reference cases. */

static SpScenario *
load_text (const char *text, const char *model, const char *cluster, GError **error)
{
  const SpRunGiven given = { .model = model, .cluster = cluster };
  g_autoptr (SpRunFile) file = sp_run_file_parse ("run", text, strlen (text), error);

  return file != NULL ? sp_run_file_load (file, &given, error) : NULL;
}

static SpScenario *
load_good (const char *text, const char *cluster)
{
  g_autoptr (GError) error = NULL;
  SpScenario *scenario = load_text (text, NULL, cluster, &error);

  g_assert_no_error (error);
  g_assert_true (sp_layout_check (&scenario->layout, scenario->arch, scenario->framework, &scenario->run,
                                  scenario->cluster->nodes * scenario->cluster->gpus_per_node, &error));
  g_assert_no_error (error);
  return scenario;
}

static char *
shipped (const char *name)
{
  g_autofree char *path = g_build_filename (sp_data_dir (), "run-files", name, NULL);
  g_autoptr (GError) error = NULL;
  char *text = NULL;

  g_file_get_contents (path, &text, NULL, &error);
  g_assert_no_error (error);
  return text;
}

/* --- what is read ------------------------------------------------------------------------------------------------- */

static void
test_verl (void)
{
  g_autofree char *text = shipped ("qwen-verl.sh");
  g_autoptr (SpScenario) s = load_good (text, "a800-1x8");

  g_assert_cmpstr (s->arch->name, ==, "qwen2.5-7b");
  g_assert_cmpint (s->layout.ulysses, ==, 2);
  g_assert_cmpint (s->layout.data, ==, 4);
  g_assert_cmpint (s->layout.zero, ==, 3);
  g_assert_cmpint (s->layout.offload, ==, 0); /* between phases only */
  g_assert_cmpint (s->layout.recompute, ==, SP_RECOMPUTE_FULL);
  g_assert_cmpint (s->run.sequence, ==, 4096 + 28672);
  g_assert_cmpint (s->run.global_batch, ==, 64 * 8); /* prompts x answers */
  g_assert_cmpint (s->run.micro_batch, ==, 1);
}

/* fsdp_size of all data and sequence ranks; rollout's tensor ranks are no part of it. */
static void
test_verl_groups (void)
{
  static const char text[] = "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B\n"
                             "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2\n"
                             "actor_rollout_ref.actor.ulysses_sequence_parallel_size=4\n"
                             "actor_rollout_ref.actor.fsdp_config.fsdp_size=8\n"
                             "actor_rollout_ref.actor.fsdp_config.offload_policy=True\n"
                             "actor_rollout_ref.rollout.tensor_model_parallel_size=4\n";
  g_autoptr (SpScenario) s = load_good (text, "a100-16x8");

  g_assert_cmpint (s->layout.tensor, ==, 1);
  g_assert_cmpint (s->layout.data, ==, 32);
  g_assert_cmpint (s->layout.zero_group, ==, 8);
  g_assert_cmpint (s->layout.offload, ==, SP_OFFLOAD_OPTIMIZER | SP_OFFLOAD_PARAMETERS);
  g_assert_cmpint (s->run.sequence, ==, 1024);
  g_assert_cmpint (s->run.global_batch, ==, 256);
}

static void
test_verl_megatron (void)
{
  static const char text[] = "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B\n"
                             "actor_rollout_ref.actor.strategy=megatron\n"
                             "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1\n"
                             "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2\n"
                             "actor_rollout_ref.actor.megatron.context_parallel_size=2\n"
                             "actor_rollout_ref.actor.ulysses_sequence_parallel_size=4\n";
  g_autoptr (SpScenario) s = load_good (text, "a100-1x8");

  g_assert_cmpint (s->layout.ulysses, ==, 1); /* is FSDP's */
  g_assert_cmpint (s->layout.tensor, ==, 2);
  g_assert_cmpint (s->layout.ring, ==, 2);
  g_assert_cmpint (s->layout.data, ==, 2);
  g_assert_cmpint (s->layout.zero, ==, 1);
  g_assert_true (s->layout.sequence_regions);
}

/* G16's model has 28 heads: of 8 ranks gcd (28, 8) = 4 are Ulysses'. */
static void
test_swift (void)
{
  g_autofree char *text = shipped ("qwen-swift.sh");
  g_autoptr (SpScenario) s = load_good (text, "a800-1x8");

  g_assert_cmpint (s->layout.ulysses, ==, 4);
  g_assert_cmpint (s->layout.ring, ==, 2);
  g_assert_cmpint (s->layout.data, ==, 1);
  g_assert_cmpint (s->layout.zero, ==, 3);
  g_assert_cmpint (s->layout.loss, ==, SP_LOSS_FUSED);
  g_assert_cmpint (s->layout.recompute, ==, SP_RECOMPUTE_FULL);
  g_assert_cmpint (s->run.lora_rank, ==, 0);
  g_assert_cmpint (s->run.global_batch, ==, 8);
}

static void
test_megatron_swift (void)
{
  g_autofree char *text = shipped ("qwen-megatron-swift.sh");
  g_autoptr (SpScenario) s = load_good (text, "a800-1x8");

  g_assert_cmpstr (s->arch->name, ==, "qwen2.5-14b");
  g_assert_cmpint (s->layout.tensor, ==, 4);
  g_assert_true (s->layout.sequence_regions);
  g_assert_cmpint (s->layout.data, ==, 2);
  g_assert_cmpint (s->layout.zero, ==, 1);
  g_assert_false (s->layout.overlap);
  g_assert_cmpint (s->run.global_batch, ==, 16);
}

static void
test_llamafactory (void)
{
  g_autofree char *text = shipped ("llama-llamafactory.yaml");
  g_autoptr (SpScenario) s = load_good (text, "a800-2x8");

  g_assert_cmpstr (s->arch->name, ==, "llama-3.1-8b");
  g_assert_cmpint (s->layout.ring, ==, 8);
  g_assert_cmpint (s->layout.ulysses, ==, 1);
  g_assert_cmpint (s->layout.token_split, ==, SP_TOKENS_ZIGZAG);
  g_assert_cmpint (s->layout.data, ==, 2);
  g_assert_cmpint (s->layout.zero, ==, 3);
  g_assert_cmpint (s->run.global_batch, ==, 1 * 4 * 2);
  g_autofree char *ulysses = g_strdup (text);
  memcpy (strstr (ulysses, "zigzag-ring"), "ulysses    ", strlen ("zigzag-ring"));
  g_autoptr (SpScenario) other = load_good (ulysses, "a800-2x8");
  g_assert_cmpint (other->layout.ulysses, ==, 8);
  g_assert_cmpint (other->layout.ring, ==, 1);
}

/* A trainer that says neither rank nor sharding: adapters of rank 8 and replicas. */
static void
test_defaults (void)
{
  static const char *const texts[] = {
    "swift sft --model Qwen/Qwen2.5-7B --max_length 4096 --sequence_parallel_size 2 --gradient_accumulation_steps 4",
    "model_name_or_path: Qwen/Qwen2.5-7B\ncutoff_len: 4096\nper_device_train_batch_size: 1\nbf16: true\n",
  };

  for (guint i = 0; i < G_N_ELEMENTS (texts); i++) {
    g_autoptr (SpScenario) s = load_good (texts[i], "a100-1x8");
    g_assert_cmpint (s->run.lora_rank, ==, 8);
    g_assert_cmpint (s->layout.zero, ==, 0);
    g_assert_cmpint (s->layout.recompute, ==, SP_RECOMPUTE_FULL);
  }
}

/* --- legal degrees ------------------------------------------------------------------------------------------------ */

/* G15, verl issue 1226: 40 query and 8 K/V heads, so 1, 2, 4, 8 and 40; G16, LongPO issue 5: 28 and 4. */
static void
test_degrees (void)
{
  static const struct {
    const char *model;
    gint32 legal[8];
  } cases[] = {
    { "qwen2.5-14b", { 1, 2, 4, 8, 40 } },
    { "qwen2.5-7b", { 1, 2, 4, 28 } },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    for (gint32 degree = 1; degree <= 40; degree++) {
      g_autoptr (GError) error = NULL;
      g_autofree char *text = g_strdup_printf ("actor_rollout_ref.actor.ulysses_sequence_parallel_size=%d\n"
                                               "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1\n"
                                               "data.max_prompt_length=%d\ndata.max_response_length=%d\n",
                                               degree, 64 * degree, 64 * degree);
      const char *sets[] = { "layout.data=1", NULL };
      const SpRunGiven given = { .model = cases[i].model, .cluster = "a100-64x8-roce", .sets = sets };
      g_autoptr (SpRunFile) file = sp_run_file_parse ("run", text, strlen (text), &error);
      g_assert_no_error (error);
      gboolean legal = FALSE;
      for (guint k = 0; k < G_N_ELEMENTS (cases[i].legal); k++)
        legal = legal || cases[i].legal[k] == degree;
      g_autoptr (SpScenario) s = sp_run_file_load (file, &given, &error);
      /* not for as many GPUs as the cluster has: the error is of that, or of heads */
      g_assert_null (s);
      g_assert_cmpint (strstr (error->message, "heads") == NULL, ==, legal);
    }
}

/* --- names on the hub --------------------------------------------------------------------------------------------- */

/* The name that an export gives a shipped model is read as that model; so are names of its variants. */
static void
test_hub_names (void)
{
  static const char *const variants[][2] = {
    { "meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b" },
    { "/models/Qwen2.5-7B-Instruct", "qwen2.5-7b" },
    { "meta-llama/Llama-2-7b-hf", "llama-2-7b" },
    { "mistralai/Mistral-7B-v0.3", NULL }, /* another vocabulary */
  };
  g_auto (GStrv) models = sp_list_shipped ("models");
  guint named = 0;

  for (guint i = 0; models[i] != NULL; i++) {
    g_autoptr (GHashTable) facts = sp_facts_new ();
    g_autofree char *json = g_strconcat (models[i], ".json", NULL);
    sp_run_prepare_hub_model (facts, json);
    const char *name = sp_facts_get (facts, "file.model");
    if (name == NULL)
      continue;
    const SpRunFile file = { .facts = facts };
    g_assert_true (sp_run_is_hub_name (name));
    g_assert_cmpstr (sp_run_hub_model (&file), ==, models[i]);
    named++;
  }
  g_assert_cmpuint (named, >=, 25);
  for (guint i = 0; i < G_N_ELEMENTS (variants); i++) {
    g_autoptr (GHashTable) facts = sp_facts_new ();
    sp_facts_put (facts, "file.model", variants[i][0], SP_FACT_FILE, "");
    const SpRunFile file = { .facts = facts };
    g_assert_cmpstr (sp_run_hub_model (&file), ==, variants[i][1]);
  }
}

/* --- there and back ----------------------------------------------------------------------------------------------- */

static void
check_round_trip (const char *format, const char *text, const char *cluster, const char *golden)
{
  g_autoptr (SpScenario) s = load_good (text, cluster);
  g_autoptr (GString) out = g_string_new (NULL);
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GError) error = NULL;
  g_autofree char *model = g_path_get_basename (s->model_path);

  sp_run_file_export (s, format, out, lost, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (lost->len, ==, 0);
  if (golden != NULL)
    g_assert_cmpstr (out->str, ==, golden);
  g_autoptr (SpScenario) back = load_text (out->str, NULL, cluster, &error);
  g_assert_no_error (error);
  g_autoptr (GString) one = g_string_new (NULL), two = g_string_new (NULL);
  sp_scenario_write (s, one);
  sp_scenario_write (back, two);
  g_assert_cmpstr (one->str, ==, two->str);
}

static void
test_round_trips (void)
{
  static const struct {
    const char *format, *file, *cluster, *golden;
  } cases[] = {
    { "verl", "qwen-verl.sh", "a800-1x8",
      "# written by seqpar for 8 GPUs, model qwen2.5-7b.json\n"
      "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct\n"
      "data.max_prompt_length=4096\n"
      "data.max_response_length=28672\n"
      "actor_rollout_ref.actor.ppo_mini_batch_size=64\n"
      "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1\n"
      "actor_rollout_ref.rollout.n=8\n"
      "actor_rollout_ref.actor.strategy=fsdp2\n"
      "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2\n" },
    { "swift", "qwen-swift.sh", "a800-1x8",
      "# written by seqpar for 8 GPUs, model qwen2.5-7b.json\n"
      "--sequence_parallel_size 8\n"
      "--per_device_train_batch_size 1\n"
      "--gradient_accumulation_steps 8\n"
      "--deepspeed zero3\n"
      "--train_type full\n"
      "--torch_dtype bfloat16\n"
      "--gradient_checkpointing true\n"
      "--use_liger_kernel true\n"
      "--optim adamw_torch\n"
      "--model Qwen/Qwen2.5-7B-Instruct\n"
      "--max_length 65536\n" },
    { "megatron-swift", "qwen-megatron-swift.sh", "a800-1x8",
      "# written by seqpar for 8 GPUs, model qwen2.5-14b.json\n"
      "--tensor_model_parallel_size 4\n"
      "--sequence_parallel true\n"
      "--micro_batch_size 1\n"
      "--global_batch_size 16\n"
      "--use_distributed_optimizer true\n"
      "--recompute_granularity full\n"
      "--recompute_method uniform\n"
      "--recompute_num_layers 1\n"
      "--train_type full\n"
      "--torch_dtype bfloat16\n"
      "--model Qwen/Qwen2.5-14B-Instruct\n"
      "--max_length 8192\n" },
    { "llamafactory", "llama-llamafactory.yaml", "a800-2x8",
      "# written by seqpar for 16 GPUs, model llama-3.1-8b.json\n"
      "model_name_or_path: meta-llama/Llama-3.1-8B-Instruct\n"
      "cutoff_len: 131072\n"
      "per_device_train_batch_size: 1\n"
      "gradient_accumulation_steps: 4\n"
      "deepspeed: examples/deepspeed/ds_z3_config.json\n"
      "finetuning_type: full\n"
      "sequence_parallel_size: 8\n"
      "bf16: true\n" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *text = shipped (cases[i].file);
    check_round_trip (cases[i].format, text, cases[i].cluster, cases[i].golden);
  }
}

/* Other degrees, stages, tuners and losses of each format. */
static void
test_more_round_trips (void)
{
  static const struct {
    const char *format, *text;
  } cases[] = {
    { "swift", "--model Qwen/Qwen2.5-7B --max_length 8192 --sequence_parallel_size 4 --gradient_accumulation_steps 2 "
               "--deepspeed zero3_offload --train_type full --gradient_checkpointing false" },
    { "swift", "--model Qwen/Qwen2.5-7B --max_length 8192 --sequence_parallel_size 2 --gradient_accumulation_steps 1 "
               "--per_device_train_batch_size 2 --deepspeed zero2 --train_type lora --lora_rank 16" },
    { "swift", "--model Qwen/Qwen2.5-7B --max_length 8192 --gradient_accumulation_steps 1 --deepspeed zero1 "
               "--tuner_type full --use_liger_kernel" },
    { "megatron-swift", "--model Qwen/Qwen2.5-7B --max_length 8192 --tensor_model_parallel_size 2 "
                        "--pipeline_model_parallel_size 2 --context_parallel_size 2 --recompute_granularity selective "
                        "--overlap_grad_reduce true" },
    { "megatron-swift", "--model mistralai/Mixtral-8x7B --max_length 8192 --expert_model_parallel_size 8 "
                        "--tensor_model_parallel_size 1 --use_distributed_optimizer false" },
    { "megatron-swift", "--model mistralai/Mixtral-8x7B --max_length 8192 --expert_model_parallel_size 4 "
                        "--tensor_model_parallel_size 2 --expert_tensor_parallel_size 2" },
    { "megatron-swift",
      "--model Qwen/Qwen2.5-7B --max_length 8192 --tensor_model_parallel_size 2 --torch_dtype float16 "
      "--recompute_granularity full --recompute_method block --recompute_num_layers 3" },
    { "megatron-swift", "--model Qwen/Qwen2.5-7B --max_length 8192 --context_parallel_size 2 "
                        "--recompute_granularity none" },
    { "llamafactory", "model_name_or_path: Qwen/Qwen2.5-7B\ncutoff_len: 8192\nper_device_train_batch_size: 2\n"
                      "sequence_parallel_size: 4\nsequence_parallel_mode: ulysses\nbf16: true\nfinetuning_type: full\n"
                      "deepspeed: ds_z2_offload_config.json\nenable_liger_kernel: true\n" },
    { "llamafactory", "model_name_or_path: Qwen/Qwen2.5-7B\ncutoff_len: 8192\nper_device_train_batch_size: 1\n"
                      "tensor_model_parallel_size: 2\nsequence_parallel: true\npipeline_model_parallel_size: 2\n"
                      "use_distributed_optimizer: true\nbf16: true\nfinetuning_type: full\n"
                      "disable_gradient_checkpointing: true\n" },
    { "verl", "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 "
              "actor_rollout_ref.actor.ulysses_sequence_parallel_size=4 "
              "actor_rollout_ref.actor.fsdp_config.fsdp_size=4 "
              "actor_rollout_ref.model.enable_gradient_checkpointing=False +actor_rollout_ref.model.lora_rank=32" },
    { "verl",
      "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 "
      "actor_rollout_ref.actor.strategy=megatron actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 "
      "actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full "
      "actor_rollout_ref.actor.megatron.override_transformer_config.recompute_method=block "
      "actor_rollout_ref.actor.megatron.override_transformer_config.recompute_num_layers=5" },
    { "verl",
      "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 "
      "actor_rollout_ref.actor.strategy=megatron actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 "
      "actor_rollout_ref.actor.megatron.context_parallel_size=4 actor_rollout_ref.model.use_fused_kernels=True" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    check_round_trip (cases[i].format, cases[i].text, "a100-1x8", NULL);
}

/* A degree that a format has no words for is an error, never a file without it. */
static void
test_lost_degrees (void)
{
  static const struct {
    const char *format, *key, *words;
  } cases[] = {
    { "swift", "tensor", "layout.tensor = 2" },
    { "megatron-swift", "ulysses", "layout.ulysses = 2" },
    { "verl", "ring", "layout.ulysses" }, /* Ulysses and a ring at once */
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *text = shipped ("qwen-verl.sh");
    g_autoptr (SpScenario) s = load_good (text, "a800-1x8");
    g_autoptr (GString) out = g_string_new (NULL);
    g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
    g_autoptr (GError) error = NULL;
    if (!g_str_equal (cases[i].key, "ulysses"))
      g_assert_true (sp_scenario_set ("layout", "data", "2", &s->layout, &s->run, &error) &&
                     sp_scenario_set ("layout", cases[i].key, "2", &s->layout, &s->run, &error));
    g_assert_false (sp_run_file_export (s, cases[i].format, out, lost, &error));
    g_assert_nonnull (strstr (error->message, cases[i].words));
    g_assert_cmpuint (out->len, ==, 0);
  }
}

/* --- bad input ---------------------------------------------------------------------------------------------------- */

static void
test_refused (void)
{
  static const struct {
    const char *text, *words[2];
  } cases[] = {
    { "cutoff_len: 4096\ncutoff_len: 8192\n", { "run:2", "stands twice" } },
    { "cutoff_len: 4096\n\tbf16: true\n", { "run:2", "tab" } },
    { "cutoff_len: &x 4096\n", { "run:1", "anchors" } },
    { "cutoff_len: \"4096\n", { "run:1", "quote" } },
    { "cutoff_len: 4096\nbf16\n", { "run:2", "key: value" } },
    { "cutoff_len: many\n", { "run:1: cutoff_len", "whole number" } },
    { "cutoff_len: 4096\nbf16: perhaps\n", { "run:2: bf16", "true or false" } },
    { "cutoff_len: 4096\nsequence_parallel_size: 2\ncontext_parallel_size: 2\n"
      "model_name_or_path: Qwen/Qwen2.5-7B\nbf16: true\n",
      { "context_parallel_size = \"2\"", "expected 1" } },
    { "actor_rollout_ref.actor.ppo_mini_batch_size=x\n", { "ppo_mini_batch_size", "whole number" } },
    { "python3 -m verl.trainer.main_ppo\n", { "run:", "key=value" } },
    { "python3 -m verl.trainer.main_ppo a=b --flag=3 actor_rollout_ref.x=1\n", { "--flag", "key=value" } },
    { "swift sft --sequence_parallel_size 0 --max_length 64\n", { "--sequence_parallel_size", "at least 1" } },
    { "swift sft --sequence_parallel_size 2 --sequence_parallel_size 4\n", { "stands twice" } },
    { "megatron sft --tensor_model_parallel_size two\n", { "--tensor_model_parallel_size", "whole number" } },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (GError) error = NULL;
    g_autoptr (SpScenario) s = load_text (cases[i].text, NULL, "a100-1x8", &error);
    g_assert_null (s);
    g_assert_nonnull (error);
    for (guint k = 0; k < G_N_ELEMENTS (cases[i].words) && cases[i].words[k] != NULL; k++)
      if (strstr (error->message, cases[i].words[k]) == NULL)
        g_error ("\"%s\" is not in \"%s\"", cases[i].words[k], error->message);
  }
}

/* What does not map is said, a line each. */
static void
test_notes (void)
{
  g_autofree char *text = shipped ("qwen-verl.sh");
  g_autoptr (GError) error = NULL;
  g_autoptr (SpRunFile) file = sp_run_file_parse ("run", text, strlen (text), &error);
  static const char *const words[] = { "param_offload = true: states go to the host between phases",
                                       "rollout.tensor_model_parallel_size = 2: rollout, reference and critic",
                                       "data.train_batch_size = 256: prompts" };

  g_assert_no_error (error);
  const GPtrArray *notes = sp_run_file_notes (file);
  for (guint k = 0; k < G_N_ELEMENTS (words); k++) {
    gboolean found = FALSE;
    for (guint i = 0; i < notes->len; i++)
      found = found || strstr (notes->pdata[i], words[k]) != NULL;
    if (!found)
      g_error ("no note says \"%s\"", words[k]);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/trainer-files/hub-names", test_hub_names);
  g_test_add_func ("/trainer-files/verl", test_verl);
  g_test_add_func ("/trainer-files/verl-groups", test_verl_groups);
  g_test_add_func ("/trainer-files/verl-megatron", test_verl_megatron);
  g_test_add_func ("/trainer-files/swift", test_swift);
  g_test_add_func ("/trainer-files/megatron-swift", test_megatron_swift);
  g_test_add_func ("/trainer-files/llamafactory", test_llamafactory);
  g_test_add_func ("/trainer-files/defaults", test_defaults);
  g_test_add_func ("/trainer-files/degrees", test_degrees);
  g_test_add_func ("/trainer-files/round-trips", test_round_trips);
  g_test_add_func ("/trainer-files/more-round-trips", test_more_round_trips);
  g_test_add_func ("/trainer-files/lost-degrees", test_lost_degrees);
  g_test_add_func ("/trainer-files/refused", test_refused);
  g_test_add_func ("/trainer-files/notes", test_notes);
  return g_test_run ();
}
