/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LLaMA-Factory's YAML (examples/train_full/..), or the same keys as flags (llamafactory-cli train --..), with the
 * sequence parallelism of 360-LLaMA-Factory (sequence_parallel_size, sequence_parallel_mode: zigzag-ring, its default, or
 * ulysses) and the degrees of its Megatron backend (mcore_adapter: tensor_model_parallel_size, context_parallel_size ...).
 * Its `deepspeed` names a file; those of examples/deepspeed are known by their names, another is to be imported by itself.
 * Names and values are those of src/llamafactory/hparams at commit 00577a8 (finetuning_type, stage), of
 * 360-LLaMA-Factory's README and model_args, and of mcore_adapter's training_args.py (alibaba/ROLL, commit 59f4529).
 *
 * Keys of mcore_adapter mean that backend: layers are recomputed only as recompute_granularity says, and with bf16
 * gradients are summed in fp32, as its TrainingArguments have it.
 *
 * Assumed of its defaults: cutoff_len 2048, 8 sequences at once, no accumulation (the Trainer's), adapters of rank 8,
 * layers recomputed; gradients in bf16. In LLaMA-Factory's rewrite (v1) the keys cp_size and cp_mode, at the top or in
 * dist_config, mean what the two above do; they are read and not written.
 */
#include "models/inputs/run-files/trainer.h"

#include <string.h>

#define STAGES "give layout.stage-split: --set layout.stage-split=8,8,7,7"
#define ON_HOST "of an optimizer's states on the host seqpar knows all or none: --set layout.offload=optimizer"

static const SpRunRow rows[] = {
  { "model_name_or_path", "file.model", SP_ROW_WORD },
  { "cutoff_len", "run.sequence", SP_ROW_INT, .absent = "2048", .flags = SP_ROW_ALWAYS },
  { "per_device_train_batch_size", "run.micro-batch", SP_ROW_INT, .absent = "8", .flags = SP_ROW_ALWAYS },
  { "gradient_accumulation_steps", "file.accumulation", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "deepspeed", "file.deepspeed-file", SP_ROW_WORD },
  { "finetuning_type", "file.tuner", SP_ROW_WORD, .values = "full=full lora=lora", .others = "freeze oft",
    .absent = "lora", .flags = SP_ROW_ALWAYS },
  { "lora_rank", "file.lora-rank", SP_ROW_INT },
  { "lora_target", "run.lora-targets", SP_ROW_WORD, .values = "all=all", .others = "*" },
  { "lora_*" },
  { "freeze_*", .why = "say what is frozen: --set run.frozen=first-4,embedding" },
  { "sequence_parallel_size", "file.sequence", SP_ROW_INT, .absent = "1" },
  { "sequence_parallel_mode", "file.mode", SP_ROW_WORD, .values = "zigzag-ring=zigzag-ring ulysses=ulysses",
    .others = "llama3", .absent = "zigzag-ring" },
  { "cp_size", "file.sequence", SP_ROW_INT, .flags = SP_ROW_READ },
  { "dist_config.cp_size", "file.sequence", SP_ROW_INT, .flags = SP_ROW_READ },
  { "dist_config.cp_mode", "file.mode", SP_ROW_WORD, .values = "ulysses=ulysses ring=zigzag-ring",
    .flags = SP_ROW_READ },
  { "cp_mode", "file.mode", SP_ROW_WORD, .values = "ulysses=ulysses ring=zigzag-ring", .flags = SP_ROW_READ },

  /* the Megatron backend */
  { "tensor_model_parallel_size", "layout.tensor", SP_ROW_INT, .absent = "1" },
  { "sequence_parallel", "layout.sequence-regions", SP_ROW_BOOL },
  { "pipeline_model_parallel_size", "layout.pipeline", SP_ROW_INT, .absent = "1" },
  { "virtual_pipeline_model_parallel_size", "layout.virtual-stages", SP_ROW_INT },
  { "context_parallel_size", "file.context", SP_ROW_INT, .flags = SP_ROW_READ },
  { "expert_model_parallel_size", "layout.expert", SP_ROW_INT, .absent = "1" },
  { "use_distributed_optimizer", "file.distributed", SP_ROW_BOOL },
  { "overlap_grad_reduce", .why = "gradients are reduced beside the backward: --set layout.overlap=false" },
  { "overlap_param_gather", .why = "layout.overlap is one switch" },
  { "recompute_granularity", "file.recompute", SP_ROW_WORD, .values = "full=full selective=selective" },
  { "recompute_method", "file.recompute-method", SP_ROW_WORD, .values = "uniform=uniform block=block" },
  { "recompute_num_layers", "file.recompute-layers", SP_ROW_INT },
  { "recompute_modules", .why = "selective recomputation is seqpar's own choice: norms and activations" },
  { "account_for_*", .why = STAGES },
  { "pipeline_model_parallel_layout", .why = STAGES },
  { "overlap_p2p_comm", .why = "layout.overlap is one switch" },
  { "variable_seq_lengths" },
  { "moe_*", .why = "experts are grouped products with an all-to-all" },
  { "mtp_num_layers", .why = "layers of multi-token prediction are not known" },
  { "calculate_per_token_loss" },
  { "transformer_impl", .why = SP_TRAINER_PROFILE },
  { "additional_configs", .why = "Megatron's further settings are not read: give those that count with --set" },
  { "accumulate_allreduce_grads_in_fp32", "file.wide-sums", SP_ROW_BOOL, .flags = SP_ROW_READ },
  { "delay_grad_reduce" },
  { "check_for_nan_in_loss_and_grad" },
  { "ddp_average_in_collective" },
  { "ddp_bucket_size", .why = "seqpar communicates layer by layer, without buckets" },
  { "distrib_optim_*" },
  { "optimizer", "run.optimizer", SP_ROW_WORD, .values = "adam=adamw", .others = "sgd", .flags = SP_ROW_READ },
  { "optimizer_cpu_offload", .why = ON_HOST },
  { "optimizer_offload_fraction", .why = ON_HOST },
  { "sequence_packing", .why = SP_TRAINER_PACKING },
  { "bias_activation_fusion" },
  { "apply_rope_fusion" },
  { "use_mca" },

  { "bf16", "run.precision", SP_ROW_BOOL, .values = "true=bf16 true=fp8" },
  { "pure_bf16", "run.precision", SP_ROW_BOOL, .values = "true=bf16", .flags = SP_ROW_READ,
    .why = "states in bf16 too are not known: AdamW's are fp32" },
  { "fp16", "run.precision", SP_ROW_BOOL, .values = "true=fp16" },
  { "fp8*", .why = "--set run.precision=fp8" },
  { "disable_gradient_checkpointing", "file.unrecomputed", SP_ROW_BOOL, .absent = "false" },
  { "enable_liger_kernel", "file.liger", SP_ROW_BOOL },
  { "use_unsloth", .why = SP_TRAINER_PROFILE },
  { "flash_attn", .why = SP_TRAINER_PROFILE },
  { "packing", .why = SP_TRAINER_PACKING },
  { "neat_packing", .why = SP_TRAINER_PACKING },
  { "quantization_*", .why = "quantised weights are not known" },
  { "optim", "run.optimizer", SP_ROW_WORD, .values = SP_TRAINER_OPTIMIZERS, .others = SP_TRAINER_OTHER_OPTIMIZERS,
    .absent = "adamw_torch" },
  { "use_muon", "run.optimizer", SP_ROW_BOOL, .values = "true=muon", .flags = SP_ROW_READ },
  { "ddp_timeout" },
  { "trust_remote_code" },
  { "stage", "file.stage", SP_ROW_WORD, .values = "sft=sft pt=pt", .others = "rm ppo dpo kto", .absent = "sft" },
  { "do_*" },
  { "dataset*" },
  { "template" },
  { "max_samples" },
  { "max_steps" },
  { "overwrite_*" },
  { "preprocessing_*" },
  { "dataloader_*" },
  { "output_dir" },
  { "logging_*" },
  { "save_*" },
  { "plot_loss" },
  { "report_to" },
  { "learning_rate" },
  { "lr_*" },
  { "num_train_epochs" },
  { "warmup_*" },
  { "weight_decay" },
  { "max_grad_norm" },
  { "resume_from_checkpoint" },
  { "val_size" },
  { "per_device_eval_batch_size" },
  { "eval_*" },
  { "seed" },
  { "run_name" },
  { "nnodes", "file.nodes", SP_ROW_INT, .flags = SP_ROW_READ },
  { "nproc-per-node", "file.gpus-per-node", SP_ROW_INT, .flags = SP_ROW_READ },
};

/* Its flags are the YAML's keys. */
static gboolean
recognise (const SpRunItems *items)
{
  static const char *const keys[] = { "model_name_or_path",          "cutoff_len",   "finetuning_type",
                                      "per_device_train_batch_size", "--cutoff_len", "--finetuning_type" };
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    if (sp_run_items_get (items, keys[i]) != NULL)
      return TRUE;
  return sp_run_items_runs (items, "llamafactory-cli") || sp_run_items_runs (items, "lmf");
}

static void
normalise (SpRunItems *items)
{
  if (items->list->len > 0 && g_str_has_prefix (((const SpRunItem *) items->list->pdata[0])->key, "--"))
    sp_run_items_undash (items);
}

/* --- DeepSpeed's files -------------------------------------------------------------------------------------------- */

/* examples/deepspeed/ of the repository. */
static const struct {
  const char *file, *name;
} configs[] = {
  { "ds_z0_config.json", "zero0" },
  { "ds_z2_config.json", "zero2" },
  { "ds_z2_offload_config.json", "zero2_offload" },
  { "ds_z3_config.json", "zero3" },
  { "ds_z3_offload_config.json", "zero3_offload" },
};

static void
resolve_config (SpRunFile *file)
{
  const char *path = sp_facts_get (file->facts, "file.deepspeed-file");
  if (path == NULL)
    return;
  g_autofree char *base = g_path_get_basename (path);
  for (guint i = 0; i < G_N_ELEMENTS (configs); i++)
    if (g_str_equal (base, configs[i].file)) {
      sp_facts_put (file->facts, "file.deepspeed", configs[i].name, SP_FACT_RESOLVED, "deepspeed");
      return;
    }
  g_autofree char *shown = sp_shown (path);
  sp_run_note (file, "not mapped: deepspeed = %s: import that file by itself for what it says; --set layout.zero=3",
               shown);
}

static void
prepare_config (SpFacts *facts)
{
  for (guint i = 0; i < G_N_ELEMENTS (configs); i++)
    if (sp_facts_is (facts, "file.deepspeed", configs[i].name)) {
      g_autofree char *path = g_strconcat ("examples/deepspeed/", configs[i].file, NULL);
      sp_facts_put (facts, "file.deepspeed-file", path, SP_FACT_FILE, "");
    }
}

/* --- both ways ---------------------------------------------------------------------------------------------------- */

/* Whether it is for the Megatron backend: one of its keys stands there. */
static gboolean
is_megatron (const SpRunFile *file)
{
  static const char *const keys[] = {
    "use_mca",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "use_distributed_optimizer",
    "recompute_granularity",
    "accumulate_allreduce_grads_in_fp32",
  };

  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    if (sp_run_items_get (file->items, keys[i]) != NULL)
      return TRUE;
  return FALSE;
}

static gboolean
resolve_recompute (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  gboolean off = sp_facts_is (file->facts, "file.unrecomputed", "true");

  if (is_megatron (file) && !off)
    return sp_run_megatron_resolve_recompute (file, place, error);
  return sp_run_set (file, "layout.recompute", off ? "none" : "full", SP_FACT_RESOLVED,
                     "disable_gradient_checkpointing", error);
}

/* The backend sums gradients in fp32 where it computes in bf16, or is told to. */
static gboolean
resolve_sums (SpRunFile *file, GError **error)
{
  gboolean wide =
      sp_facts_is (file->facts, "run.precision", "bf16") || sp_facts_is (file->facts, "file.wide-sums", "true");

  return !is_megatron (file) || !wide ||
         sp_run_set (file, "layout.gradient-dtype", "fp32", SP_FACT_RESOLVED, "mcore_adapter", error);
}

static gboolean
resolve (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;
  gint64 ranks = sp_facts_int (facts, "file.sequence", 1), context = sp_facts_int (facts, "file.context", 1);
  gboolean ulysses = sp_facts_is (facts, "file.mode", "ulysses");
  if (ranks > 1 && context > 1)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: context_parallel_size = \"%" G_GINT64_FORMAT
                          "\": expected 1 beside sequence_parallel_size = %" G_GINT64_FORMAT,
                          file->name, context, ranks);
  if (sp_facts_get (facts, "run.precision") == NULL)
    sp_run_ask (file, "the precision: neither bf16 nor fp16 means that of the model's file: --set run.precision=bf16, "
                      "or fp32");
  resolve_config (file);
  if (!sp_run_set_int (file, "layout.ulysses", ulysses ? ranks : 1, error) ||
      !sp_run_set_int (file, "layout.ring", ulysses ? context : ranks * context, error) ||
      !sp_run_set (file, "layout.overlap", "true", SP_FACT_RESOLVED, "overlap_comm", error) ||
      !resolve_recompute (file, place, error) || !sp_run_trainer_resolve (file, place, error) ||
      !resolve_sums (file, error))
    return FALSE;
  if (sp_facts_is (facts, "file.distributed", "true") && sp_facts_is (facts, "layout.zero", "0"))
    sp_facts_put (file->facts, "layout.zero", "1", SP_FACT_RESOLVED, "use_distributed_optimizer");
  return TRUE;
}

static void
prepare (SpFacts *facts, const SpRunPlace *place, const char *model)
{
  gint64 ulysses = sp_facts_int (facts, "layout.ulysses", 1), ring = sp_facts_int (facts, "layout.ring", 1);
  sp_run_trainer_prepare (facts);
  prepare_config (facts);
  sp_facts_put_int (facts, "file.sequence", ulysses > 1 ? ulysses : ring, SP_FACT_FILE, "");
  if (ulysses > 1)
    sp_facts_put (facts, "file.mode", "ulysses", SP_FACT_FILE, "");
  if (sp_facts_is (facts, "layout.zero", "1"))
    sp_facts_put (facts, "file.distributed", "true", SP_FACT_FILE, "");
  if (sp_facts_is (facts, "layout.zero", "1") || sp_facts_int (facts, "layout.tensor", 1) > 1 ||
      sp_facts_int (facts, "layout.pipeline", 1) > 1 || sp_facts_int (facts, "layout.expert", 1) > 1)
    sp_run_megatron_prepare_recompute (facts);
  else if (sp_facts_is (facts, "layout.recompute", "none"))
    sp_facts_put (facts, "file.unrecomputed", "true", SP_FACT_FILE, "");
}

const SpRunFormat sp_run_llamafactory = {
  .name = "llamafactory",
  .title = "LLaMA-Factory YAML",
  .parse = sp_run_items_parse_yaml,
  .recognise = recognise,
  .normalise = normalise,
  .rows = rows,
  .n_rows = G_N_ELEMENTS (rows),
  .resolve = resolve,
  .model = sp_run_hub_model,
  .prepare = prepare,
  .write = sp_run_items_write_yaml,
};
