/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ms-swift's arguments (swift sft ...) and Megatron-SWIFT's (megatron sft ...). Flags have underscores and booleans a
 * value. Names, values and defaults are those of ms-swift 3.11 (docs/source_en/Instruction and Megatron-SWIFT,
 * Command-line-parameters.md; swift/megatron/argument/megatron_args.py), which is what is written; 4.0 calls --train_type
 * --tuner_type, and later ones take --recompute_granularity none. A --config file is read, or imported by itself:
 * swift-config.c.
 *
 * swift: --sequence_parallel_size ranks have one sequence. Its sequence_parallel/ulysses.py takes gcd (heads, ranks) of
 * them for Ulysses and a zigzag ring for the rest. Without --gradient_accumulation_steps there are as many as make a
 * batch of 16; the tuner is lora, and layers are recomputed. Assumed: batches are of a group of sequence ranks, without
 * --deepspeed and --fsdp the data ranks are replicas, gradients are bf16.
 *
 * megatron-swift: Megatron-LM's degrees by Megatron's names. Its defaults: optimizer states sharded, selective
 * recomputation, full training, micro-batch 1, global batch 16, experts not split by the tensor degree (since 3.9).
 * Assumed: gradients in fp32, a ring for the context ranks.
 */
#include "models/inputs/run-files/trainer.h"

#include "models/inputs/ini.h"

#include <string.h>

#define USUAL_BATCH 16 /* published: ms-swift's Command Line Parameters, gradient_accumulation_steps */

#define STAGES "give layout.stage-split: --set layout.stage-split=8,8,7,7"
#define ONE_SWITCH "layout.overlap is one switch: that of --overlap_grad_reduce"
#define OTHER_TUNERS "longlora adalora llamapro adapter vera boft fourierft reft bone"
#define RECOMPUTED "selective recomputation is seqpar's own choice: norms and activations"

/* Of no cost, in both. */
#define IGNORED_ROWS                                                                                                   \
  { "--dataset*" }, { "--val_dataset*" }, { "--split_dataset_ratio" }, { "--output_dir" }, { "--save*" },              \
      { "--eval_*" }, { "--logging_*" }, { "--log_*" }, { "--report_to" }, { "--learning_rate" }, { "--lr*" },         \
      { "--min_lr" }, { "--warmup_*" }, { "--weight_decay" }, { "--adam_*" }, { "--max_grad_norm" },                   \
      { "--clip_grad" }, { "--seed" }, { "--data_seed" }, { "--num_train_epochs" }, { "--max_epochs" },                \
      { "--max_steps" }, { "--train_iters" }, { "--num_workers" }, { "--dataloader_*" }, { "--load*" },                \
      { "--system" }, { "--template*" }, { "--model_type" }, { "--model_author" }, { "--model_name" }, { "--use_hf" }, \
      { "--streaming" }, { "--lora_alpha" }, { "--lora_dropout" }, { "--no_save_*" }, { "--finetune" },                \
      { "--cached_dataset" }, { "--resume_*" }, { "--no_load_*" }, { "--rlhf_type" },                                  \
      { "--create_checkpoint_symlink" },                                                                               \
  {                                                                                                                    \
    "--padding_free"                                                                                                   \
  }

#define SHARED_ROWS                                                                                                    \
  { "--model", "file.model", SP_ROW_WORD }, { "--max_length", "run.sequence", SP_ROW_INT },                            \
      { "--lora_rank", "file.lora-rank", SP_ROW_INT },                                                                 \
      { "--target_modules", "run.lora-targets", SP_ROW_WORD, .values = "all-linear=all", .others = "*" },              \
      { "--nnodes", "file.nodes", SP_ROW_INT, .flags = SP_ROW_READ },                                                  \
      { "--nproc-per-node", "file.gpus-per-node", SP_ROW_INT, .flags = SP_ROW_READ },                                  \
      { "--config", "file.config", SP_ROW_WORD, .flags = SP_ROW_READ }, { "--attn_impl", .why = SP_TRAINER_PROFILE },  \
      { "--attention_backend", .why = SP_TRAINER_PROFILE },                                                            \
  {                                                                                                                    \
    "--packing", .why = SP_TRAINER_PACKING                                                                             \
  }

static const SpRunRow rows[] = {
  { "--sequence_parallel_size", "file.sequence", SP_ROW_INT, .absent = "1" },
  { "--per_device_train_batch_size", "run.micro-batch", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "--gradient_accumulation_steps", "file.accumulation", SP_ROW_INT },
  { "--deepspeed", "file.deepspeed", SP_ROW_WORD,
    .values = "zero0=zero0 zero1=zero1 zero2=zero2 zero3=zero3 zero2_offload=zero2_offload "
              "zero3_offload=zero3_offload",
    .others = "*.json */*" }, /* a file */
  { "--deepspeed_autotp_size", "layout.tensor", SP_ROW_INT, .flags = SP_ROW_READ },
  { "--zero_hpz_partition_size", .why = "a second copy of the weights in each node is not known" },
  { "--fsdp", "file.fsdp", SP_ROW_WORD, .values = "fsdp2=fsdp2",
    .others = "*.json */* full_shard* shard_grad_op* hybrid_shard* no_shard*" },
  { "--train_type", "file.tuner", SP_ROW_WORD, .values = "full=full lora=lora", .others = OTHER_TUNERS,
    .absent = "lora", .flags = SP_ROW_ALWAYS },
  { "--tuner_type", "file.tuner", SP_ROW_WORD, .values = "full=full lora=lora", .others = OTHER_TUNERS,
    .flags = SP_ROW_READ }, /* 4.0's name */
  { "--torch_dtype", "run.precision", SP_ROW_WORD, .values = "bfloat16=bf16 bfloat16=fp8 float16=fp16 float32=fp32",
    .absent = "bfloat16", .flags = SP_ROW_ALWAYS },
  { "--bf16", "run.precision", SP_ROW_BOOL, .values = "true=bf16", .flags = SP_ROW_READ },
  { "--fp16", "run.precision", SP_ROW_BOOL, .values = "true=fp16", .flags = SP_ROW_READ },
  { "--gradient_checkpointing", "layout.recompute", SP_ROW_WORD, .values = "true=full false=none", .absent = "true",
    .flags = SP_ROW_ALWAYS },
  { "--vit_gradient_checkpointing" },
  { "--use_liger_kernel", "file.liger", SP_ROW_WORD, .values = "true=true false=false" },
  { "--optim", "run.optimizer", SP_ROW_WORD, .values = SP_TRAINER_OPTIMIZERS, .others = SP_TRAINER_OTHER_OPTIMIZERS,
    .absent = "adamw_torch_fused" },
  { "--freeze_*", .why = "say what is frozen: --set run.frozen=first-4,embedding" },
  { "--quant_*", .why = "quantised weights are not known" },
  SHARED_ROWS,
  IGNORED_ROWS,
};

static const SpRunRow megatron_rows[] = {
  { "--tensor_model_parallel_size", "layout.tensor", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "--pipeline_model_parallel_size", "layout.pipeline", SP_ROW_INT, .absent = "1" },
  { "--context_parallel_size", "layout.ring", SP_ROW_INT, .absent = "1" },
  { "--expert_model_parallel_size", "layout.expert", SP_ROW_INT, .absent = "1" },
  { "--expert_tensor_parallel_size", "file.expert-tensor", SP_ROW_INT, .absent = "1" },
  { "--sequence_parallel", "layout.sequence-regions", SP_ROW_WORD, .values = "true=true false=false",
    .absent = "false" },
  { "--num_virtual_stages_per_pipeline_rank", "layout.virtual-stages", SP_ROW_INT },
  { "--micro_batch_size", "run.micro-batch", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "--global_batch_size", "run.global-batch", SP_ROW_INT, .absent = "16", .flags = SP_ROW_ALWAYS },
  { "--use_distributed_optimizer", "layout.zero", SP_ROW_WORD, .values = "true=1 false=0", .absent = "true",
    .flags = SP_ROW_ALWAYS },
  { "--overlap_grad_reduce", "layout.overlap", SP_ROW_WORD, .values = "true=true false=false", .absent = "false" },
  { "--overlap_param_gather", .why = ONE_SWITCH },
  { "--tp_comm_overlap", .why = "seqpar does not split a matrix product to overlap its own communication" },
  { "--decoder_first_pipeline_num_layers", .why = STAGES },
  { "--decoder_last_pipeline_num_layers", .why = STAGES },
  { "--pipeline_model_parallel_layout", .why = STAGES },
  { "--num_layers_per_virtual_pipeline_stage", .why = "give num_virtual_stages_per_pipeline_rank" },
  { "--recompute_granularity", "file.recompute", SP_ROW_WORD, .values = "full=full selective=selective none=none",
    .absent = "selective", .flags = SP_ROW_ALWAYS },
  { "--recompute_method", "file.recompute-method", SP_ROW_WORD, .values = "uniform=uniform block=block" },
  { "--recompute_num_layers", "file.recompute-layers", SP_ROW_INT },
  { "--recompute_modules", .why = RECOMPUTED },
  { "--optimizer_cpu_offload", "layout.offload", SP_ROW_WORD, .values = "true=optimizer false=none" },
  { "--optimizer_offload_fraction", .why = "offloading is of the whole optimizer" },
  { "--cross_entropy_loss_fusion", .why = "a fused kernel on whole logits is the framework profile's" },
  { "--train_type", "file.tuner", SP_ROW_WORD, .values = "full=full lora=lora", .absent = "full",
    .flags = SP_ROW_ALWAYS },
  { "--tuner_type", "file.tuner", SP_ROW_WORD, .values = "full=full lora=lora", .flags = SP_ROW_READ },
  { "--bf16", "run.precision", SP_ROW_BOOL, .values = "true=bf16", .flags = SP_ROW_READ },
  { "--fp16", "run.precision", SP_ROW_BOOL, .values = "true=fp16", .flags = SP_ROW_READ },
  { "--torch_dtype", "run.precision", SP_ROW_WORD, .values = "bfloat16=bf16 float16=fp16 float32=fp32",
    .absent = "bfloat16", .flags = SP_ROW_ALWAYS },
  { "--fp8_*", .why = "what is in fp8 is not said here: --set run.precision=fp8" },
  { "--moe_permute_fusion" },
  { "--moe_grouped_gemm" },
  { "--moe_shared_expert_overlap", .why = "experts' exchanges are waited for" },
  { "--moe_aux_loss_coeff" },
  SHARED_ROWS,
  IGNORED_ROWS,
};

/* --- reading ------------------------------------------------------------------------------------------------------ */

static gboolean
has_any (const SpRunItems *items, const char *const *keys)
{
  for (; *keys != NULL; keys++)
    if (sp_run_items_get (items, *keys) != NULL)
      return TRUE;
  return FALSE;
}

static gboolean
recognise (const SpRunItems *items)
{
  static const char *const keys[] = { "--sequence_parallel_size", "--per_device_train_batch_size", "--train_type",
                                      "--tuner_type", NULL };

  return sp_run_items_runs (items, "swift") || has_any (items, keys);
}

static gboolean
recognise_megatron (const SpRunItems *items)
{
  static const char *const keys[] = { "--tensor_model_parallel_size", "--pipeline_model_parallel_size",
                                      "--context_parallel_size",      "--expert_model_parallel_size",
                                      "--micro_batch_size",           "--global_batch_size",
                                      "--recompute_granularity",      NULL };

  return sp_run_items_runs (items, "megatron") || (!sp_run_items_runs (items, "swift") && has_any (items, keys));
}

/* --config FILE.yaml has flags of its own: what is parsed without its path has lost them. */
static gboolean
check_config (const SpRunFile *file, GError **error)
{
  const char *config = sp_facts_get (file->facts, "file.config");

  if (config == NULL)
    return TRUE;
  if (g_str_equal (config, "true"))
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: --config: expected --config FILE.yaml", file->name);
  g_autofree char *shown = sp_shown (config);
  return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: --config = \"%s\": expected its arguments as flags",
                        file->name, shown);
}

/* As many steps as make a batch of 16, on all GPUs, sequence ranks counted too. */
static void
resolve_accumulation (SpRunFile *file, const SpRunPlace *place)
{
  const SpFacts *facts = file->facts;
  gint64 once = sp_run_times (sp_facts_int (facts, "run.micro-batch", 1), place->gpus);

  if (once > 0 && sp_facts_get (facts, "file.accumulation") == NULL && sp_facts_get (facts, "run.global-batch") == NULL)
    sp_facts_put_int (file->facts, "file.accumulation", (USUAL_BATCH + once - 1) / once, SP_FACT_ABSENT,
                      "without --gradient_accumulation_steps");
}

static gboolean
resolve (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  gint64 ranks = sp_facts_int (file->facts, "file.sequence", 1), ulysses = sp_run_ulysses_first (place->arch, ranks);

  if (ranks > ulysses)
    sp_run_note (file,
                 "note: of %" G_GINT64_FORMAT " sequence ranks Ulysses has %" G_GINT64_FORMAT
                 ", as many as divide the heads, and a ring the rest",
                 ranks, ulysses);
  resolve_accumulation (file, place);
  return check_config (file, error) && sp_run_set_int (file, "layout.ulysses", ulysses, error) &&
         sp_run_set_int (file, "layout.ring", ranks / ulysses, error) &&
         sp_run_set (file, "layout.overlap", "true", SP_FACT_RESOLVED, "overlap_comm", error) &&
         sp_run_trainer_resolve (file, place, error);
}

static gboolean
resolve_megatron (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;
  const char *rank = sp_facts_get (facts, "file.lora-rank");

  if (!check_config (file, error))
    return FALSE;
  if (sp_facts_int (facts, "layout.tensor", 1) == 1)
    g_hash_table_remove (file->facts, "layout.sequence-regions");
  if (sp_facts_int (facts, "layout.virtual-stages", 1) > 1 &&
      !sp_run_set (file, "layout.schedule", "interleaved", SP_FACT_RESOLVED, "virtual stages", error))
    return FALSE;
  if (sp_facts_is (facts, "file.tuner", "lora") &&
      !sp_run_set (file, "run.lora-rank", rank != NULL ? rank : "8", SP_FACT_RESOLVED, "--lora_rank", error))
    return FALSE;
  gint64 tensor = sp_facts_int (facts, "layout.tensor", 1);
  if (place->arch != NULL && sp_architecture_has_bit (place->arch, SP_LAYER_EXPERTS) &&
      sp_facts_int (facts, "file.expert-tensor", 1) != tensor)
    sp_run_note (file, "not mapped: --expert_tensor_parallel_size, 1 if it is not said: experts are split as the rest "
                       "is, by the tensor degree");
  return sp_run_set (file, "layout.gradient-dtype", "fp32", SP_FACT_RESOLVED, "gradients", error) &&
         sp_run_megatron_resolve_recompute (file, place, error) && sp_run_resolve_data (file, place, error) &&
         sp_run_resolve_batches (file, error);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void
prepare (SpFacts *facts, const SpRunPlace *place, const char *model)
{
  sp_facts_put_int (facts, "file.sequence",
                    sp_facts_int (facts, "layout.ulysses", 1) * sp_facts_int (facts, "layout.ring", 1), SP_FACT_FILE,
                    "");
  sp_run_trainer_prepare (facts);
}

static void
prepare_megatron (SpFacts *facts, const SpRunPlace *place, const char *model)
{
  sp_run_trainer_prepare (facts);
  sp_run_megatron_prepare_recompute (facts);
  if (sp_facts_is (facts, "layout.recompute", "none"))
    sp_facts_put (facts, "file.recompute", "none", SP_FACT_FILE, "");
  if (place->arch != NULL && sp_architecture_has_bit (place->arch, SP_LAYER_EXPERTS))
    sp_facts_put (facts, "file.expert-tensor", sp_facts_get (facts, "layout.tensor"), SP_FACT_FILE, "");
  if (sp_facts_is (facts, "layout.offload", "none"))
    g_hash_table_remove (facts, "layout.offload");
}

const SpRunFormat sp_run_swift = {
  .name = "swift",
  .title = "ms-swift arguments",
  .parse = sp_run_items_parse_args,
  .recognise = recognise,
  .normalise = sp_run_trainer_booleans,
  .rows = rows,
  .n_rows = G_N_ELEMENTS (rows),
  .resolve = resolve,
  .model = sp_run_hub_model,
  .prepare = prepare,
  .write = sp_run_items_write_args,
};

const SpRunFormat sp_run_megatron_swift = {
  .name = "megatron-swift",
  .title = "Megatron-SWIFT arguments",
  .parse = sp_run_items_parse_args,
  .recognise = recognise_megatron,
  .normalise = sp_run_trainer_booleans,
  .rows = megatron_rows,
  .n_rows = G_N_ELEMENTS (megatron_rows),
  .resolve = resolve_megatron,
  .model = sp_run_hub_model,
  .prepare = prepare_megatron,
  .write = sp_run_items_write_args,
};
