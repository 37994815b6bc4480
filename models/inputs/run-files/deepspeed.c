/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DeepSpeed's configuration (deepspeed.ai/docs/config-json). It says nothing of the model, the sequence, the pipeline,
 * the ring, the experts' ranks or what is recomputed: those are in the program that reads it. The data degree is what
 * tensor and sequence parallelism leave of the GPUs. "auto" is filled in by Hugging Face's Trainer: here it is computed
 * or asked for. Without its key the stage is 0, gradients of a sharded run have the model's dtype, and overlap_comm is
 * true for stage 3 alone.
 */
#include "models/inputs/run-files/formats.h"

#define BY_LAYER "seqpar communicates layer by layer, without buckets"
#define OTHER_DTYPE "not a volume that seqpar knows"
#define IN_PROGRAM "how, not whether: the program says which layers are recomputed; --set layout.recompute=full"

/* DeepSpeed's own, and torch.optim's, which it takes by their names. */
#define OTHER_OPTIMIZERS                                                                                               \
  "Lamb FusedLamb OneBitAdam OneBitLamb ZeroOneAdam Lion FusedLion MuAdam MuAdamW MuSGD SGD Adadelta Adafactor "       \
  "Adagrad Adamax ASGD LBFGS NAdam RAdam RMSprop Rprop SparseAdam"

static const SpRunRow rows[] = {
  { "train_batch_size", "run.global-batch", SP_ROW_INT },
  { "train_micro_batch_size_per_gpu", "run.micro-batch", SP_ROW_INT },
  { "gradient_accumulation_steps", "file.accumulation", SP_ROW_INT },
  { "bf16.enabled", "run.precision", SP_ROW_BOOL, .values = "true=bf16 true=fp8" }, /* no fp8 in it */
  { "bfloat16.enabled", "run.precision", SP_ROW_BOOL, .values = "true=bf16", .flags = SP_ROW_READ },
  { "fp16.enabled", "run.precision", SP_ROW_BOOL, .values = "true=fp16" },
  { "data_types.grad_accum_dtype", "file.gradient-dtype", SP_ROW_WORD, .values = "fp32=fp32 bf16=bf16 fp16=bf16" },
  { "communication_data_type", .why = OTHER_DTYPE },
  { "tensor_parallel.autotp_size", "layout.tensor", SP_ROW_INT, .absent = "1" },
  { "sequence_parallel_size", "layout.ulysses", SP_ROW_INT, .absent = "1" },

  { "zero_optimization.stage", "layout.zero", SP_ROW_INT, .absent = "0", .flags = SP_ROW_ZERO | SP_ROW_ALWAYS },
  { "zero_optimization.overlap_comm", "layout.overlap", SP_ROW_BOOL },
  { "zero_optimization.offload_optimizer.device", "file.offload-optimizer", SP_ROW_WORD,
    .values = "cpu=optimizer none=none", .others = "nvme" },
  { "zero_optimization.offload_param.device", "file.offload-parameters", SP_ROW_WORD,
    .values = "cpu=parameters none=none", .others = "nvme" },
  { "zero_optimization.cpu_offload", "file.offload-optimizer", SP_ROW_BOOL, .values = "true=optimizer",
    .flags = SP_ROW_READ },
  { "zero_optimization.cpu_offload_params", "file.offload-parameters", SP_ROW_BOOL, .values = "true=parameters",
    .flags = SP_ROW_READ },
  { "zero_optimization.offload_optimizer.ratio", .why = "the whole optimizer is offloaded" },
  { "zero_optimization.offload_optimizer.pin_memory" }, /* copies are priced as of pinned memory */
  { "zero_optimization.offload_param.pin_memory" },
  { "zero_optimization.offload_*", .why = "how copies are buffered is not said here" },
  { "zero_optimization.mics_shard_size", "file.shard-size", SP_ROW_INT, .absent = "-1", .least = -1 },
  { "zero_optimization.mics_hierarchical_params_gather", .why = "a gather is one collective" },
  { "zero_optimization.zero_hpz_partition_size", "file.second-copy", SP_ROW_INT, .absent = "1" },
  { "zero_optimization.zero_quantized_*", .why = OTHER_DTYPE },
  { "zero_optimization.reduce_bucket_size", .why = BY_LAYER },
  { "zero_optimization.allgather_bucket_size", .why = BY_LAYER },
  { "zero_optimization.allgather_partitions" },
  { "zero_optimization.reduce_scatter" },
  { "zero_optimization.contiguous_gradients" },
  { "zero_optimization.round_robin_gradients" },
  { "zero_optimization.sub_group_size", .why = "the optimizer's step is priced as one" },
  { "zero_optimization.stage3_prefetch_bucket_size", .why = BY_LAYER },
  { "zero_optimization.prefetch_bucket_size", .why = BY_LAYER },
  { "zero_optimization.stage3_max_live_parameters", .why = "a layer's weights live while it runs, and one more" },
  { "zero_optimization.stage3_max_reuse_distance", .why = "a layer's weights live while it runs, and one more" },
  { "zero_optimization.stage3_param_persistence_threshold", .why = "small weights are sharded like the others" },
  { "zero_optimization.stage3_gather_*" },
  { "zero_optimization.ignore_unused_parameters" },
  { "zero_optimization.load_from_fp32_weights" },
  { "zero_optimization.elastic_checkpoint" },
  { "zero_allow_untested_optimizer" },
  { "zero_force_ds_cpu_optimizer" },

  { "activation_checkpointing.cpu_checkpointing", "file.offload-activations", SP_ROW_BOOL,
    .values = "true=activations" },
  { "activation_checkpointing.partition_activations",
    .why = "what recomputation keeps is not split over tensor ranks" },
  { "activation_checkpointing.*", .why = IN_PROGRAM },
  { "optimizer.type", "run.optimizer", SP_ROW_WORD,
    .values = "AdamW=adamw Adam=adamw FusedAdam=adamw CPUAdam=adamw DeepSpeedCPUAdam=adamw Muon=muon",
    .others = OTHER_OPTIMIZERS },
  { "optimizer.params.*" },
  { "optimizer.legacy_fusion" },
  { "scheduler.*" },
  { "fp16.*" },
  { "bf16.*" },
  { "amp.enabled", .why = "Apex's mixed precision is not known" },
  { "amp.*" },
  { "torch_autocast.*", .why = "precision is that of bf16 or fp16" },
  { "gradient_clipping" },
  { "prescale_gradients" },
  { "gradient_predivide_factor" },
  { "sparse_gradients", .why = "gradients are dense" },
  { "compile.*", .why = "what a compiler fuses is the framework profile's: --set run.framework=NAME" },
  { "pipeline.*", .why = "the degree is in the program that reads the file: --set layout.pipeline=N" },
  { "tensor_parallel.*", .why = "only the degree, autotp_size, is mapped" },
  { "data_types.*" },
  { "steps_per_print" },
  { "wall_clock_breakdown" },
  { "dump_state" },
  { "memory_breakdown" },
  { "checkpoint.*" },
  { "aio.*", .why = "disks are not known" },
  { "flops_profiler.*" },
  { "comms_logger.*" },
  { "tensorboard.*" },
  { "wandb.*" },
  { "csv_monitor.*" },
  { "comet.*" },
  { "elasticity.*" },
  { "autotuning.*" },
  { "data_efficiency.*" },
  { "curriculum_learning.*" },
  { "seed" },
};

static gboolean
recognise (const SpRunItems *items)
{
  static const char *const prefixes[] = { "zero_optimization.", "train_batch_size", "train_micro_batch_size_per_gpu",
                                          "gradient_accumulation_steps" };
  for (guint i = 0; i < items->list->len; i++)
    for (guint j = 0; j < G_N_ELEMENTS (prefixes); j++)
      if (items->name != NULL && g_str_has_prefix (((const SpRunItem *) items->list->pdata[i])->key, prefixes[j]))
        return TRUE;
  return FALSE;
}

static const char *const offloads[] = { "file.offload-optimizer", "file.offload-parameters",
                                        "file.offload-activations" };

static gboolean
resolve_offload (SpRunFile *file, GError **error)
{
  g_autoptr (GString) all = g_string_new (NULL);
  for (guint i = 0; i < G_N_ELEMENTS (offloads); i++) {
    const char *what = sp_facts_get (file->facts, offloads[i]);
    if (what != NULL && !g_str_equal (what, "none"))
      g_string_append_printf (all, "%s%s", all->len > 0 ? "," : "", what);
  }
  return all->len == 0 || sp_run_set (file, "layout.offload", all->str, SP_FACT_RESOLVED, "offload_*.device", error);
}

static gboolean
resolve (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;
  gint64 zero = sp_facts_int (facts, "layout.zero", 0);
  const char *dtype = sp_facts_get (facts, "file.gradient-dtype");
  if (sp_facts_get (facts, "run.precision") == NULL)
    sp_run_ask (file, "the precision (bf16.enabled, fp16.enabled): --set run.precision=bf16 or fp16");
  if (dtype == NULL) /* the model's, but for bf16 without ZeRO */
    dtype = zero == 0 && sp_facts_is (facts, "run.precision", "bf16") ? "fp32" : "bf16";
  if (!sp_run_set (file, "layout.gradient-dtype", dtype, SP_FACT_RESOLVED, "data_types.grad_accum_dtype", error) ||
      (sp_facts_get (facts, "layout.overlap") == NULL &&
       !sp_run_set (file, "layout.overlap", zero == 3 ? "true" : "false", SP_FACT_RESOLVED,
                    "zero_optimization.overlap_comm", error)) ||
      !resolve_offload (file, error) || !sp_run_resolve_data (file, place, error))
    return FALSE;
  if (sp_facts_int (facts, "file.second-copy", 1) > 1)
    sp_run_note (file,
                 "not mapped: zero_optimization.zero_hpz_partition_size: a second copy of the weights in each node "
                 "is not known");
  if (sp_facts_int (facts, "file.shard-size", 0) > 1 &&
      !sp_run_set (file, "layout.zero-group", sp_facts_get (facts, "file.shard-size"), SP_FACT_RESOLVED,
                   "zero_optimization.mics_shard_size", error))
    return FALSE;
  if (sp_facts_get (facts, "layout.recompute") == NULL)
    sp_run_note (file, "note: the file does not say what is recomputed: nothing is; --set layout.recompute=full");
  /* DeepSpeed takes one step of accumulation if one batch alone is given. */
  gboolean one =
      (sp_facts_get (facts, "run.global-batch") == NULL) != (sp_facts_get (facts, "run.micro-batch") == NULL);
  if (one && sp_facts_get (facts, "file.accumulation") == NULL &&
      !g_hash_table_contains (file->automatic, "file.accumulation") &&
      !g_hash_table_contains (file->automatic, "run.global-batch") &&
      !g_hash_table_contains (file->automatic, "run.micro-batch"))
    sp_facts_put (file->facts, "file.accumulation", "1", SP_FACT_RESOLVED, "one batch alone");
  return sp_run_resolve_batches (file, error);
}

static void
prepare (SpFacts *facts, const SpRunPlace *place, const char *model)
{
  const char *offload = sp_facts_get (facts, "layout.offload");
  g_auto (GStrv) parts = g_strsplit (offload != NULL ? offload : "", ",", -1);
  for (guint i = 0; parts[i] != NULL; i++) {
    g_autofree char *key = g_strconcat ("file.offload-", g_strstrip (parts[i]), NULL);
    if (g_strv_contains ((const char *const[]){ offloads[0], offloads[1], offloads[2], NULL }, key))
      sp_facts_put (facts, key, parts[i], SP_FACT_FILE, "");
  }
  sp_facts_put (facts, "file.gradient-dtype", sp_facts_get (facts, "layout.gradient-dtype"), SP_FACT_FILE, "");
  if (sp_facts_int (facts, "layout.zero-group", 0) > 0)
    sp_facts_put (facts, "file.shard-size", sp_facts_get (facts, "layout.zero-group"), SP_FACT_FILE, "");
  sp_run_prepare_accumulation (facts);
}

static const char *const elsewhere[] = { "layout.recompute", "layout.loss",  "layout.loss-chunks",
                                         "layout.mlp-tiles", "run.sequence", NULL };

const SpRunFormat sp_run_deepspeed = {
  .name = "deepspeed",
  .title = "DeepSpeed JSON",
  .parse = sp_run_items_parse_json,
  .recognise = recognise,
  .rows = rows,
  .n_rows = G_N_ELEMENTS (rows),
  .resolve = resolve,
  .prepare = prepare,
  .write = sp_run_items_write_json,
  .elsewhere = elsewhere,
};
