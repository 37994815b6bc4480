/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verl's overrides (python3 -m verl.trainer.main_ppo key=value ...). Names, values and defaults are those of
 * verl/trainer/config/_generated_ppo_trainer.yaml (FSDP) and engine/megatron.yaml, commits 01d4d76 and 093191f;
 * fsdp_config.mixed_precision is of older ones. Other trainers of verl's are not read. What is a training step here
 * is one update of the actor: ppo_mini_batch_size prompts x rollout.n answers, of at most prompt + response tokens. The
 * rollout, the reference and the critic are other programs on the same GPUs and are not priced.
 *
 * FSDP: all data x sequence ranks of fsdp_size (-1: all) shard the states, over the rest they are replicated; Ulysses has
 * ulysses_sequence_parallel_size ranks, and micro-batches are of such a group. param_offload and optimizer_offload bring
 * states to the host between phases, not in the step; offload_policy (FSDP2) leaves them there. Megatron: its degrees, and
 * of the parallelism of the sequence context ranks, taken as a ring.
 *
 * Its defaults: prompt and response 512 tokens each, mini-batch 256, n 1, recomputation on with FSDP, bf16 compute,
 * optimizer states sharded with Megatron. Assumed: gradients reduced in fp32.
 */
#include "models/inputs/run-files/trainer.h"

#include <string.h>

#define ACTOR "actor_rollout_ref.actor."
#define FSDP ACTOR "fsdp_config."
#define MEGATRON ACTOR "megatron."
#define MODEL "actor_rollout_ref.model."
#define BETWEEN "states go to the host between phases, and are on the GPU in a step"
#define OTHER_PROGRAM "rollout, reference and critic are no part of the actor's step"
#define CHUNKED "logits' entropy is no loss that seqpar knows"

static const SpRunRow rows[] = {
  { MODEL "path", "file.model", SP_ROW_WORD },
  { "data.max_prompt_length", "file.prompt", SP_ROW_INT, .absent = "512", .flags = SP_ROW_ZERO },
  { "data.max_response_length", "file.response", SP_ROW_INT, .absent = "512", .flags = SP_ROW_ALWAYS },
  { "data.train_batch_size", .why = "prompts of an iteration: a step is of ppo_mini_batch_size" },
  { ACTOR "ppo_mini_batch_size", "file.mini-batch", SP_ROW_INT, .absent = "256", .flags = SP_ROW_ALWAYS },
  { ACTOR "ppo_micro_batch_size_per_gpu", "run.micro-batch", SP_ROW_INT },
  { ACTOR "ppo_micro_batch_size",
    .why = "of all GPUs together, which verl no longer takes: ppo_micro_batch_size_per_gpu" },
  { ACTOR "use_dynamic_bsz", "file.dynamic", SP_ROW_BOOL },
  { ACTOR "ppo_max_token_len_per_gpu", "file.tokens", SP_ROW_INT },
  { "actor_rollout_ref.rollout.n", "file.answers", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },

  { ACTOR "strategy", "file.strategy", SP_ROW_WORD, .values = "fsdp=fsdp fsdp2=fsdp2 megatron=megatron",
    .others = "veomni torchtitan automodel mindspeed", .absent = "fsdp", .flags = SP_ROW_ALWAYS },
  { ACTOR "ulysses_sequence_parallel_size", "layout.ulysses", SP_ROW_INT, .absent = "1" },
  { FSDP "ulysses_sequence_parallel_size", "layout.ulysses", SP_ROW_INT, .flags = SP_ROW_READ },
  { FSDP "fsdp_size", "file.shard", SP_ROW_INT, .absent = "-1", .least = -1 },
  { FSDP "reshard_after_forward", "file.reshard", SP_ROW_BOOL, .absent = "true" },
  { FSDP "offload_policy", "file.offload", SP_ROW_BOOL, .absent = "false" },
  { FSDP "param_offload", .why = BETWEEN },
  { FSDP "optimizer_offload", .why = BETWEEN },
  { FSDP "forward_prefetch", .why = "a layer is gathered beside the one before; --set layout.overlap=false" },
  { FSDP "dtype", "run.precision", SP_ROW_WORD, .values = "bfloat16=bf16 float16=fp16 float32=fp32",
    .absent = "bfloat16" },
  { FSDP "model_dtype", .why = "master weights are fp32" },
  { FSDP "mixed_precision.param_dtype", "run.precision", SP_ROW_WORD,
    .values = "bf16=bf16 bfloat16=bf16 fp16=fp16 float16=fp16 fp32=fp32 float32=fp32", .flags = SP_ROW_READ },
  { FSDP "mixed_precision.reduce_dtype", "layout.gradient-dtype", SP_ROW_WORD,
    .values = "fp32=fp32 float32=fp32 bf16=bf16 bfloat16=bf16", .absent = "fp32" },
  { FSDP "mixed_precision.buffer_dtype" },
  { FSDP "wrap_policy.*" },
  { FSDP "use_orig_params" },

  { MEGATRON "tensor_model_parallel_size", "layout.tensor", SP_ROW_INT, .absent = "1" },
  { MEGATRON "pipeline_model_parallel_size", "layout.pipeline", SP_ROW_INT, .absent = "1" },
  { MEGATRON "virtual_pipeline_model_parallel_size", "layout.virtual-stages", SP_ROW_INT },
  { MEGATRON "context_parallel_size", "layout.ring", SP_ROW_INT, .absent = "1" },
  { MEGATRON "expert_model_parallel_size", "layout.expert", SP_ROW_INT, .absent = "1" },
  { MEGATRON "expert_tensor_parallel_size", .why = "experts are split as the rest is, by the tensor degree" },
  { MEGATRON "sequence_parallel", "layout.sequence-regions", SP_ROW_BOOL, .absent = "true" },
  { MEGATRON "use_distributed_optimizer", "file.distributed", SP_ROW_BOOL, .absent = "true" },
  { MEGATRON "param_offload", .why = BETWEEN },
  { MEGATRON "grad_offload", .why = BETWEEN },
  { MEGATRON "optimizer_offload", .why = BETWEEN },
  { MEGATRON "override_transformer_config.recompute_granularity", "file.recompute", SP_ROW_WORD,
    .values = "full=full selective=selective" },
  { MEGATRON "override_transformer_config.recompute_method", "file.recompute-method", SP_ROW_WORD,
    .values = "uniform=uniform block=block" },
  { MEGATRON "override_transformer_config.recompute_num_layers", "file.recompute-layers", SP_ROW_INT },
  { MEGATRON "override_transformer_config.recompute_*", .why = "selective recomputation is seqpar's own choice" },
  { MEGATRON "*", .why = "seqpar has no word for it" },

  { MODEL "enable_gradient_checkpointing", "file.checkpointing", SP_ROW_BOOL, .absent = "true" },
  { MODEL "enable_activation_offload", "file.offload-activations", SP_ROW_BOOL, .absent = "false" },
  { MODEL "lora_rank", "run.lora-rank", SP_ROW_INT, .flags = SP_ROW_ZERO },
  { MODEL "lora_alpha" },
  { MODEL "target_modules", "run.lora-targets", SP_ROW_WORD, .values = "all-linear=all", .others = "*" },
  { MODEL "use_fused_kernels", "file.fused", SP_ROW_BOOL },
  { MODEL "use_liger", .why = SP_TRAINER_PROFILE },
  { MODEL "use_remove_padding", .why = "sequences are whole: " SP_TRAINER_PACKING },
  { MODEL "*" },
  { ACTOR "entropy_*", .why = CHUNKED },
  { ACTOR "use_torch_compile", .why = "what a compiler fuses is the framework profile's: --set run.framework=NAME" },
  { ACTOR "ppo_epochs" },
  { ACTOR "*" },
  { "trainer.nnodes", "file.nodes", SP_ROW_INT, .flags = SP_ROW_READ },
  { "trainer.n_gpus_per_node", "file.gpus-per-node", SP_ROW_INT, .flags = SP_ROW_READ },
  { "actor_rollout_ref.rollout.*", .why = OTHER_PROGRAM },
  { "actor_rollout_ref.ref.*", .why = OTHER_PROGRAM },
  { "critic.*", .why = OTHER_PROGRAM },
  { "reward_model.*", .why = OTHER_PROGRAM },
  { "actor_rollout_ref.*" },
  { "data.*" },
  { "algorithm.*" },
  { "trainer.*" },
  { "ray_*" },
  { "custom_reward_function.*" },
};

static gboolean
recognise (const SpRunItems *items)
{
  for (guint i = 0; i < items->list->len; i++)
    if (g_str_has_prefix (((const SpRunItem *) items->list->pdata[i])->key, "actor_rollout_ref."))
      return TRUE;
  return items->command != NULL && g_str_has_prefix (items->command, "verl.trainer.main_");
}

static gboolean
is_true (const SpFacts *facts, const char *key)
{
  return sp_facts_is (facts, key, "true");
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static gboolean
resolve_fsdp (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  gint64 shard = sp_facts_int (facts, "file.shard", -1);
  gint64 ranks = sp_run_times (sp_facts_int (facts, "layout.data", 1), sp_facts_int (facts, "layout.ulysses", 1));
  g_autoptr (GString) offload = g_string_new (is_true (facts, "file.offload") ? "optimizer,parameters" : NULL);

  if (is_true (facts, "file.offload-activations"))
    g_string_append_printf (offload, "%sactivations", offload->len > 0 ? "," : "");
  if (offload->len > 0 && !sp_run_set (file, "layout.offload", offload->str, SP_FACT_RESOLVED, "offload_policy", error))
    return FALSE;
  if (shard > 1 && shard < ranks && !sp_run_set_int (file, "layout.zero-group", shard, error))
    return FALSE;
  return sp_run_set (file, "layout.zero", shard == 1 ? "0" : "3", SP_FACT_RESOLVED, "fsdp_config.fsdp_size", error) &&
         sp_run_set (file, "layout.reshard", sp_facts_get (facts, "file.reshard"), SP_FACT_RESOLVED,
                     "fsdp_config.reshard_after_forward", error) &&
         sp_run_set (file, "layout.recompute", is_true (facts, "file.checkpointing") ? "full" : "none",
                     SP_FACT_RESOLVED, "enable_gradient_checkpointing", error);
}

static gboolean
resolve_megatron (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;

  if (sp_facts_int (facts, "layout.virtual-stages", 1) > 1 &&
      !sp_run_set (file, "layout.schedule", "interleaved", SP_FACT_RESOLVED, "virtual stages", error))
    return FALSE;
  return sp_run_set (file, "layout.zero", is_true (facts, "file.distributed") ? "1" : "0", SP_FACT_RESOLVED,
                     "megatron.use_distributed_optimizer", error) &&
         sp_run_megatron_resolve_recompute (file, place, error);
}

/* Micro-batches by tokens are of as many whole sequences as go in. */
static gboolean
resolve_batches (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  gint64 sequence = sp_facts_int (facts, "file.prompt", 512) + sp_facts_int (facts, "file.response", 512);
  gint64 tokens = sp_run_times (sp_facts_int (facts, "file.tokens", 16384), sp_facts_int (facts, "layout.ulysses", 1));

  if (is_true (facts, "file.dynamic")) {
    sp_run_note (file,
                 "note: micro-batches are of at most %" G_GINT64_FORMAT " tokens of a group: of whole sequences here",
                 tokens);
    if (!sp_run_set_int (file, "run.micro-batch", MAX (tokens / sequence, 1), error))
      return FALSE;
  }
  if (sp_facts_get (facts, "run.micro-batch") == NULL)
    sp_run_ask (file, "the micro-batch (" ACTOR "ppo_micro_batch_size_per_gpu): --set run.micro-batch=N");
  return sp_run_set_int (file, "run.sequence", sequence, error) &&
         sp_run_set_int (
             file, "run.global-batch",
             sp_run_times (sp_facts_int (facts, "file.mini-batch", 256), sp_facts_int (facts, "file.answers", 1)),
             error);
}

/* Degrees of the strategy that is not taken. */
static void
drop_other_strategy (SpRunFile *file, gboolean megatron)
{
  static const char *const of_fsdp[] = { "layout.ulysses", NULL };
  static const char *const of_megatron[] = { "layout.tensor", "layout.pipeline",       "layout.ring",
                                             "layout.expert", "layout.virtual-stages", NULL };
  const char *const *keys = megatron ? of_fsdp : of_megatron;

  for (; *keys != NULL; keys++) {
    if (sp_facts_int (file->facts, *keys, 1) > 1)
      sp_run_note (file, "not mapped: %s = %s: not of strategy %s", *keys, sp_facts_get (file->facts, *keys),
                   megatron ? "megatron" : "fsdp");
    g_hash_table_remove (file->facts, *keys);
  }
}

static gboolean
resolve (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;
  gboolean megatron = sp_facts_is (facts, "file.strategy", "megatron");

  drop_other_strategy (file, megatron);
  if (sp_facts_int (facts, "layout.tensor", 1) == 1)
    g_hash_table_remove (file->facts, "layout.sequence-regions");
  if (!sp_run_set (file, "layout.overlap", "true", SP_FACT_RESOLVED, "FSDP and Megatron", error) ||
      !sp_run_resolve_data (file, place, error) || !resolve_batches (file, error))
    return FALSE;
  if (is_true (facts, "file.fused") &&
      !sp_run_set (file, "layout.loss", "fused", SP_FACT_RESOLVED, "use_fused_kernels", error))
    return FALSE;
  return megatron ? resolve_megatron (file, place, error) : resolve_fsdp (file, error);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Prompts and answers as the scenario's own run file had them, if that still comes to the sequence and the batch; else
 * half of a sequence is its prompt, and each prompt has one answer. */
static void
prepare_batches (SpFacts *facts)
{
  gint64 sequence = sp_facts_int (facts, "run.sequence", 1024), batch = sp_facts_int (facts, "run.global-batch", 1);
  gint64 prompt = sp_facts_int (facts, "run-file.prompt-tokens", sequence / 2);
  gint64 answers = sp_facts_int (facts, "run-file.answers", 1);

  if (prompt >= sequence)
    prompt = sequence / 2;
  if (batch % answers != 0)
    answers = 1;
  sp_facts_put_int (facts, "file.prompt", prompt, SP_FACT_FILE, "");
  sp_facts_put_int (facts, "file.response", sequence - prompt, SP_FACT_FILE, "");
  sp_facts_put_int (facts, "file.mini-batch", batch / answers, SP_FACT_FILE, "");
  sp_facts_put_int (facts, "file.answers", answers, SP_FACT_FILE, "");
}

static void
prepare_fsdp (SpFacts *facts)
{
  const char *offload = sp_facts_get (facts, "layout.offload");
  gboolean states = offload != NULL && strstr (offload, "optimizer,parameters") != NULL;
  gint64 group = sp_facts_int (facts, "layout.zero-group", 0), zero = sp_facts_int (facts, "layout.zero", 0);

  sp_facts_put (facts, "file.strategy", "fsdp2", SP_FACT_FILE, "");
  sp_facts_put (facts, "file.checkpointing", sp_facts_is (facts, "layout.recompute", "none") ? "false" : "true",
                SP_FACT_FILE, "");
  sp_facts_put (facts, "file.reshard", sp_facts_get (facts, "layout.reshard"), SP_FACT_FILE, "");
  sp_facts_put (facts, "file.offload", states ? "true" : "false", SP_FACT_FILE, "");
  sp_facts_put (facts, "file.offload-activations",
                offload != NULL && strstr (offload, "activations") != NULL ? "true" : "false", SP_FACT_FILE, "");
  if (group > 0 || zero == 0)
    sp_facts_put_int (facts, "file.shard", zero == 0 ? 1 : group, SP_FACT_FILE, "");
}

static void
prepare (SpFacts *facts, const SpRunPlace *place, const char *model)
{
  gint64 zero = sp_facts_int (facts, "layout.zero", 0);
  gboolean megatron = sp_facts_int (facts, "layout.tensor", 1) > 1 || sp_facts_int (facts, "layout.pipeline", 1) > 1 ||
                      sp_facts_int (facts, "layout.ring", 1) > 1 || sp_facts_int (facts, "layout.expert", 1) > 1 ||
                      (zero == 1 && sp_facts_int (facts, "layout.ulysses", 1) == 1);

  prepare_batches (facts);
  if (megatron) {
    sp_facts_put (facts, "file.strategy", "megatron", SP_FACT_FILE, "");
    sp_facts_put (facts, "file.distributed", zero == 1 ? "true" : "false", SP_FACT_FILE, "");
    sp_run_megatron_prepare_recompute (facts);
  } else
    prepare_fsdp (facts);
  if (sp_facts_is (facts, "layout.loss", "fused"))
    sp_facts_put (facts, "file.fused", "true", SP_FACT_FILE, "");
  if (sp_facts_is (facts, "run.lora-rank", "0")) {
    g_hash_table_remove (facts, "run.lora-rank");
    g_hash_table_remove (facts, "run.lora-targets");
  }
}

const SpRunFormat sp_run_verl = {
  .name = "verl",
  .title = "verl overrides",
  .parse = sp_run_items_parse_overrides,
  .recognise = recognise,
  .rows = rows,
  .n_rows = G_N_ELEMENTS (rows),
  .resolve = resolve,
  .model = sp_run_hub_model,
  .prepare = prepare,
  .write = sp_run_items_write_overrides,
};
