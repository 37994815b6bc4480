/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchtitan's TOML (torchtitan/config) and flame's, which is an older torchtitan with keys of its own. Both say
 * replicate and shard degrees, the second -1 for all the rest: data = replicate x shard; a shard group, with the
 * context ranks, holds the states as ZeRO-3, replicas alone are plain data parallelism. Tensor parallelism always has
 * sequence regions. Without their keys: shard -1, every other degree 1, bf16 parameters and fp32 reduction, selective
 * recomputation of every second layer, keys and values gathered over the context ranks, one sequence a pipeline
 * micro-batch. local_batch_size is of a data rank and, without accumulation, of a step.
 */
#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/run-files/formats.h"

#define GATHERED "weights are gathered in the run's precision"
#define FRAMEWORK "what a compiler fuses is the framework profile's: --set run.framework=NAME"

/* Rows that both have. */
#define SHARED_ROWS                                                                                                    \
  { "training.seq_len", "run.sequence", SP_ROW_INT },                                                                  \
      { "training.mixed_precision_param", "run.precision", SP_ROW_WORD,                                                \
        .values = "bfloat16=bf16 bfloat16=fp8 float32=fp32", .absent = "bfloat16" },                                   \
      { "training.mixed_precision_reduce", "layout.gradient-dtype", SP_ROW_WORD,                                       \
        .values = "float32=fp32 bfloat16=bf16", .absent = "float32" },                                                 \
      { "training.enable_cpu_offload", "layout.offload", SP_ROW_BOOL, .values = "true=optimizer,parameters" },         \
      { "training.dtype",     "file.dtype",        SP_ROW_WORD, .values = "float32=float32",                           \
        .others = "bfloat16", .flags = SP_ROW_READ },                                                                  \
      { "model.converters", "file.converters", SP_ROW_LIST }, { "training.compile", .why = FRAMEWORK },                \
      { "training.gc_freq" }, { "training.gc_debug" }, { "training.dataset*" }, { "training.data_*" },                 \
      { "training.max_norm" }, { "training.steps" }, { "training.seed" }, { "training.deterministic" },                \
      { "training.warmup_steps" },                                                                                     \
      { "activation_checkpoint.mode",                                                                                  \
        "file.recompute",                                                                                              \
        SP_ROW_WORD,                                                                                                   \
        .values = "none=none selective=selective full=full",                                                           \
        .others = "memory_budget",                                                                                     \
        .absent = "selective",                                                                                         \
        .flags = SP_ROW_ALWAYS },                                                                                      \
      { "activation_checkpoint.selective_ac_option", "file.recompute-every", SP_ROW_WORD, .absent = "2",               \
        .flags = SP_ROW_ALWAYS },                                                                                      \
      { "activation_checkpoint.*", .why = "selective recomputation is seqpar's own choice: norms and activations" },   \
      { "optimizer.name", "run.optimizer", SP_ROW_WORD, .values = "AdamW=adamw Adam=adamw", .absent = "AdamW" },       \
      { "optimizer.fused", .why = "the optimizer's step is priced as fused" },                                         \
      { "optimizer.implementation", .why = "the optimizer's step is priced as fused" },                                \
      { "optimizer.early_step_in_backward", .why = "the optimizer steps after the backward" }, { "optimizer.*" },      \
      { "float8.enable_float8_linear", "file.fp8", SP_ROW_BOOL },                                                      \
      { "float8.enable_fsdp_float8_all_gather", .why = GATHERED }, { "float8.*" }, { "model.tokenizer_path" },         \
      { "model.hf_assets_path" }, { "model.print_after_conversion" },                                                  \
      { "model.norm_type", .why = "the model's file says which norm it has" }, { "job.*" }, { "lr_scheduler.*" },      \
      { "checkpoint.*" }, { "profiling.*" }, { "metrics.*" }, { "comm.*" }, { "memory_estimation.*" },                 \
      { "fault_tolerance.*" }, { "experimental.custom_*" }, { "validation.*" },                                        \
  {                                                                                                                    \
    "debug.*"                                                                                                          \
  }

#define SCHEDULES "1F1B=1f1b GPipe=gpipe Interleaved1F1B=interleaved"
#define OTHER_SCHEDULES                                                                                                \
  "LoopedBFS InterleavedZeroBubble ZBVZeroBubble DualPipeV PipelineScheduleSingle PipelineScheduleMulti"

static const SpRunRow rows[] = {
  { "model.name", "file.model", SP_ROW_WORD },
  { "model.flavor", "file.flavor", SP_ROW_WORD },
  { "training.local_batch_size", "file.local-batch", SP_ROW_INT, .absent = "8", .flags = SP_ROW_ALWAYS },
  { "training.batch_size", "file.local-batch", SP_ROW_INT, .flags = SP_ROW_READ },
  { "training.global_batch_size", "file.global-batch", SP_ROW_INT, .absent = "-1", .least = -1 },
  { "parallelism.data_parallel_replicate_degree", "file.replicate", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "parallelism.data_parallel_shard_degree", "file.shard", SP_ROW_INT, .absent = "-1", .least = -1,
    .flags = SP_ROW_ALWAYS },
  { "parallelism.tensor_parallel_degree", "layout.tensor", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "parallelism.context_parallel_degree", "file.context", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "parallelism.context_parallel_rotate_method", "file.rotate", SP_ROW_WORD,
    .values = "allgather=all-gather alltoall=p2p", .absent = "allgather" },
  { "parallelism.pipeline_parallel_degree", "layout.pipeline", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "parallelism.pipeline_parallel_schedule", "layout.schedule", SP_ROW_WORD, .values = SCHEDULES,
    .others = OTHER_SCHEDULES, .absent = "1F1B" },
  { "parallelism.pipeline_parallel_layers_per_stage", "file.virtual-layers", SP_ROW_INT },
  { "parallelism.pipeline_parallel_microbatch_size", "file.pipeline-batch", SP_ROW_INT, .absent = "1" },
  { "parallelism.pipeline_parallel_*", .why = "give layout.stage-split: --set layout.stage-split=8,8,7,7" },
  { "parallelism.module_fqns_per_model_part", .why = "give layout.stage-split: --set layout.stage-split=8,8,7,7" },
  { "parallelism.expert_parallel_degree", "layout.expert", SP_ROW_INT, .absent = "1" },
  { "parallelism.expert_tensor_parallel_degree", "file.expert-tensor", SP_ROW_INT },
  { "parallelism.fsdp_reshard_after_forward", "file.reshard", SP_ROW_WORD,
    .values = "default=default always=true never=false", .absent = "default" },
  { "parallelism.enable_async_tensor_parallel",
    .why = "seqpar does not split a matrix product to overlap its own communication" },
  { "parallelism.enable_compiled_autograd", .why = FRAMEWORK },
  { "parallelism.disable_loss_parallel", "layout.loss", SP_ROW_BOOL, .values = "true=full" },
  { "compile.enable", .why = FRAMEWORK },
  { "compile.*" },
  { "quantize.linear.fp8.enable_fsdp_float8_all_gather", .why = GATHERED },
  { "quantize.linear.float8.enable_fsdp_float8_all_gather", .why = GATHERED },
  { "quantize.*" }, /* says how, if model.converters says that */
  SHARED_ROWS,
};

static const SpRunRow flame_rows[] = {
  { "model.config", "file.model", SP_ROW_WORD },
  { "training.batch_size", "file.local-batch", SP_ROW_INT, .absent = "8", .flags = SP_ROW_ALWAYS },
  { "training.gradient_accumulation_steps", "file.accumulation", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "training.context_len", "file.context-length", SP_ROW_INT },
  { "training.varlen", "file.varlen", SP_ROW_BOOL },
  { "training.data_parallel_replicate_degree", "file.replicate", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "training.data_parallel_shard_degree", "file.shard", SP_ROW_INT, .absent = "-1", .least = -1,
    .flags = SP_ROW_ALWAYS },
  { "training.tensor_parallel_degree", "layout.tensor", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "training.fsdp_reshard_after_forward", "file.reshard", SP_ROW_WORD,
    .values = "default=default always=true never=false", .absent = "default" },
  { "training.num_workers" },
  { "training.pin_memory" },
  { "training.persistent_workers" },
  { "training.prefetch_factor" },
  { "training.skip_nan_inf" },
  { "training.streaming" },
  { "training.disable_loss_parallel", "layout.loss", SP_ROW_BOOL, .values = "true=full" },
  { "experimental.context_parallel_degree", "file.context", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "experimental.context_parallel_rotate_method", "file.rotate", SP_ROW_WORD,
    .values = "allgather=all-gather alltoall=p2p", .absent = "allgather" },
  { "experimental.pipeline_parallel_degree", "layout.pipeline", SP_ROW_INT, .absent = "1", .flags = SP_ROW_ALWAYS },
  { "experimental.pipeline_parallel_schedule", "layout.schedule", SP_ROW_WORD, .values = SCHEDULES,
    .others = OTHER_SCHEDULES, .absent = "1F1B" },
  { "experimental.pipeline_parallel_microbatches", "file.pipeline-batches", SP_ROW_INT },
  { "experimental.pipeline_parallel_*", .why = "give layout.stage-split: --set layout.stage-split=8,8,7,7" },
  { "experimental.enable_async_tensor_parallel",
    .why = "seqpar does not split a matrix product to overlap its own communication" },
  { "experimental.enable_compiled_autograd", .why = FRAMEWORK },
  SHARED_ROWS,
};

static gboolean
recognise (const SpRunItems *items)
{
  static const char *const keys[] = { "model.flavor", "training.seq_len", "training.local_batch_size",
                                      "parallelism.tensor_parallel_degree", "parallelism.data_parallel_shard_degree" };
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    if (sp_run_items_get (items, keys[i]) != NULL)
      return TRUE;
  return FALSE;
}

static gboolean
recognise_flame (const SpRunItems *items)
{
  static const char *const keys[] = { "training.data_parallel_shard_degree", "training.tensor_parallel_degree",
                                      "training.gradient_accumulation_steps", "training.context_len" };
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    if (sp_run_items_get (items, keys[i]) != NULL)
      return TRUE;
  return FALSE;
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

/* Shipped models by the names that torchtitan gives them. Its Llama 3 is that of 3.1 in all that costs. */
static const struct {
  const char *name, *flavor, *shipped;
} models[] = {
  { "llama3", "8B", "llama-3.1-8b" },     { "llama3", "70B", "llama-3.1-70b" },
  { "llama3", "405B", "llama-3.1-405b" }, { "deepseek_v3", "671B", "deepseek-v3" },
  { "qwen3", "8B", "qwen3-8b" },          { "qwen3", "30B-A3B", "qwen3-30b-a3b" },
  { "gpt_oss", "20b", "gpt-oss-20b" },    { "gpt_oss", "120b", "gpt-oss-120b" },
};

static const char *
model (const SpRunFile *file)
{
  for (guint i = 0; i < G_N_ELEMENTS (models); i++)
    if (sp_facts_is (file->facts, "file.model", models[i].name) &&
        sp_facts_is (file->facts, "file.flavor", models[i].flavor))
      return models[i].shipped;
  return NULL;
}

static void
prepare_model (SpFacts *facts, const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS (models); i++) {
    gsize length = strlen (models[i].shipped);
    if (strncmp (name, models[i].shipped, length) != 0 || (name[length] != '\0' && name[length] != '.'))
      continue;
    sp_facts_put (facts, "file.model", models[i].name, SP_FACT_FILE, "");
    sp_facts_put (facts, "file.flavor", models[i].flavor, SP_FACT_FILE, "");
  }
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* flame's context ranks of a model without softmax layers are read as those of LASP: nothing else here splits its
 * sequence. */
static gboolean
passes_states (const SpRunFormat *format, const SpRunPlace *place)
{
  return format == &sp_run_flame && place->arch != NULL && sp_architecture_count (place->arch, SP_LAYER_SOFTMAX) == 0;
}

/* Replicas and shards out of the GPUs. */
static gboolean
resolve_data (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;
  gint64 shard = sp_facts_int (facts, "file.shard", -1), replicate = sp_facts_int (facts, "file.replicate", 1);
  gint64 given = sp_facts_int (facts, "layout.data", 0), rest = sp_run_times (sp_run_replica (facts), replicate);
  if (sp_facts_is (facts, "file.shard", "0"))
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: data_parallel_shard_degree = \"0\": expected -1 for all the rest, or at least 1",
                          file->name);
  if (shard == -1 && given > 0) {
    if (given % replicate != 0)
      return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                            "%s: data_parallel_replicate_degree = \"%" G_GINT64_FORMAT
                            "\": expected a divisor of layout.data = %" G_GINT64_FORMAT,
                            file->name, replicate, given);
    shard = given / replicate;
  } else if (shard == -1 && place->gpus == 0) {
    sp_run_ask (file,
                "data_parallel_shard_degree = -1, which is the cluster's GPUs over %" G_GINT64_FORMAT
                ": --cluster FILE, or --set layout.data=N",
                rest);
    return TRUE;
  } else if (shard == -1) {
    if (place->gpus % rest != 0)
      return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                            "%s: data_parallel_shard_degree = \"-1\": the other degrees take %" G_GINT64_FORMAT
                            " GPUs, which does not divide the cluster's %d",
                            file->name, rest, place->gpus);
    shard = place->gpus / rest;
  }
  sp_facts_put_int (file->facts, "file.shard", shard, SP_FACT_RESOLVED, "data_parallel_shard_degree");
  return sp_run_set_int (file, "layout.data", sp_run_times (shard, replicate), error);
}

static gboolean
resolve_sharding (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  gint64 shard = sp_facts_int (facts, "file.shard", 1), replicate = sp_facts_int (facts, "file.replicate", 1);
  gint64 sequence = sp_facts_int (facts, "layout.ring", 1) * sp_facts_int (facts, "layout.lasp", 1);
  gboolean sharded = sp_run_times (shard, sequence) > 1;
  const char *reshard = sp_facts_get (facts, "file.reshard");
  if (g_strcmp0 (reshard, "default") == 0) /* not with a pipeline, whose micro-batches would each gather again */
    reshard = sp_facts_int (facts, "layout.pipeline", 1) > 1 ? "false" : "true";
  g_autofree char *group = g_strdup_printf ("%" G_GINT64_FORMAT, sp_run_times (shard, sequence));
  return sp_run_set (file, "layout.zero", sharded ? "3" : "0", SP_FACT_RESOLVED, "data_parallel_shard_degree", error) &&
         sp_run_set (file, "layout.reshard", reshard != NULL ? reshard : "true", SP_FACT_RESOLVED,
                     "fsdp_reshard_after_forward", error) &&
         (!sharded || replicate == 1 ||
          sp_run_set (file, "layout.zero-group", group, SP_FACT_RESOLVED, "data_parallel_replicate_degree", error));
}

static gboolean
resolve_context (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  gint64 degree = sp_facts_int (file->facts, "file.context", 1);
  const char *rotate = sp_facts_get (file->facts, "file.rotate");
  if (passes_states (file->format, place))
    return sp_run_set_int (file, "layout.lasp", degree, error);
  return sp_run_set_int (file, "layout.ring", degree, error) &&
         (degree == 1 || rotate == NULL ||
          sp_run_set (file, "layout.ring-kind", rotate, SP_FACT_RESOLVED, "context_parallel_rotate_method", error));
}

static gboolean
resolve_recompute (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  const char *mode = sp_facts_get (facts, "file.recompute"), *option = sp_facts_get (facts, "file.recompute-every");
  if (g_strcmp0 (mode, "selective") != 0 || g_strcmp0 (option, "op") == 0)
    return sp_run_set (file, "layout.recompute", mode != NULL ? mode : "none", SP_FACT_RESOLVED,
                       "activation_checkpoint.mode", error);
  gint64 every = sp_facts_int (facts, "file.recompute-every", 0);
  if (every < 1)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: activation_checkpoint.selective_ac_option = \"%s\": expected op, or a number of layers",
                          file->name, option);
  g_autofree char *value = every == 1 ? g_strdup ("full") : g_strdup_printf ("every-%" G_GINT64_FORMAT, every);
  return sp_run_set (file, "layout.recompute", value, SP_FACT_RESOLVED, "activation_checkpoint.selective_ac_option",
                     error);
}

static gboolean
resolve_stages (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;
  gint64 stages = sp_facts_int (facts, "layout.pipeline", 1), each = sp_facts_int (facts, "file.virtual-layers", 0);
  gint64 chunks = sp_facts_is (facts, "layout.schedule", "interleaved") ? 2 : 1;
  if (stages == 1)
    return TRUE;
  if (each > 0 && place->arch != NULL && place->arch->layers % (stages * each) == 0)
    chunks = place->arch->layers / stages / each;
  else if (each > 0)
    sp_run_note (file,
                 "not mapped: pipeline_parallel_layers_per_stage = %" G_GINT64_FORMAT
                 ": not the same for all stages; give layout.stage-split",
                 each);
  return sp_run_set_int (file, "layout.virtual-stages", chunks, error);
}

/* What is the same of both. */
static gboolean
resolve_shared (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;
  if (!resolve_context (file, place, error) || !resolve_data (file, place, error) || !resolve_sharding (file, error) ||
      !resolve_recompute (file, error) || !resolve_stages (file, place, error))
    return FALSE;
  const char *converters = sp_facts_get (facts, "file.converters");
  gboolean fp8 = sp_facts_is (facts, "file.fp8", "true");
  g_auto (GStrv) list = g_strsplit (converters != NULL ? converters : "", ",", -1);
  for (guint i = 0; list[i] != NULL; i++) {
    g_autofree char *shown = sp_shown (list[i]);
    if (strstr (list[i], "float8") != NULL || strstr (list[i], "fp8") != NULL)
      fp8 = TRUE;
    else
      sp_run_note (file, "not mapped: model.converters = %s: seqpar maps float8", shown);
  }
  return (!fp8 || sp_run_set (file, "run.precision", "fp8", SP_FACT_RESOLVED, "float8", error)) &&
         sp_run_set (file, "layout.sequence-regions", "true", SP_FACT_RESOLVED, "tensor_parallel_degree", error) &&
         sp_run_set (file, "layout.overlap", "true", SP_FACT_RESOLVED, "FSDP", error);
}

/* Of a local batch: how many sequences at once, and how many in a step of all ranks. */
static gboolean
set_batches (SpRunFile *file, gint64 micro, gint64 global, GError **error)
{
  return sp_run_set_int (file, "run.micro-batch", micro, error) &&
         (global == 0 || sp_run_set_int (file, "run.global-batch", global, error));
}

static gboolean
resolve (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  if (!resolve_shared (file, place, error))
    return FALSE;
  const SpFacts *facts = file->facts;
  gint64 tensor = sp_facts_int (facts, "layout.tensor", 1);
  if (sp_facts_int (facts, "layout.expert", 1) > 1 && sp_facts_int (facts, "file.expert-tensor", tensor) != tensor)
    sp_run_note (file,
                 "not mapped: parallelism.expert_tensor_parallel_degree: experts are split as the rest is, by the "
                 "tensor degree");
  gint64 local = sp_facts_int (facts, "file.local-batch", 1), data = sp_facts_int (facts, "layout.data", 0);
  gint64 global = sp_facts_int (facts, "file.global-batch", 0);
  gboolean pipeline = sp_facts_int (facts, "layout.pipeline", 1) > 1;
  return set_batches (file, pipeline ? sp_facts_int (facts, "file.pipeline-batch", 1) : local,
                      global > 0 ? global : sp_run_times (local, data), error);
}

static gboolean
resolve_flame (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  if (!resolve_shared (file, place, error))
    return FALSE;
  const SpFacts *facts = file->facts;
  gint64 local = sp_facts_int (facts, "file.local-batch", 1), data = sp_facts_int (facts, "layout.data", 0);
  gint64 stages = sp_facts_int (facts, "layout.pipeline", 1);
  gint64 parts = stages > 1 ? sp_facts_int (facts, "file.pipeline-batches", stages) : 1;
  if (sp_facts_is (facts, "file.varlen", "true"))
    sp_run_note (file, "not mapped: training.varlen: documents are packed only by run.packing");
  if (local % parts != 0)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: training.batch_size = \"%" G_GINT64_FORMAT
                          "\": expected a multiple of the pipeline's %" G_GINT64_FORMAT " micro-batches",
                          file->name, local, parts);
  gint64 steps = sp_facts_int (facts, "file.accumulation", 1);
  return set_batches (file, local / parts, sp_run_times (sp_run_times (local, data), steps), error);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void
prepare_shared (const SpRunFormat *format, SpFacts *facts, const SpRunPlace *place)
{
  gint64 data = sp_facts_int (facts, "layout.data", 1), zero = sp_facts_int (facts, "layout.zero", 0);
  gint64 sequence = sp_facts_int (facts, passes_states (format, place) ? "layout.lasp" : "layout.ring", 1);
  gint64 group = sp_facts_int (facts, "layout.zero-group", 0);
  gint64 shard = zero == 0 ? 1 : group > 0 && group % sequence == 0 ? group / sequence : data;
  const char *recompute = sp_facts_get (facts, "layout.recompute");
  gboolean every = recompute != NULL && g_str_has_prefix (recompute, "every-");
  gboolean known = shard >= 1 && data % shard == 0;
  sp_facts_put_int (facts, "file.shard", known ? shard : data, SP_FACT_FILE, "");
  sp_facts_put_int (facts, "file.replicate", known ? data / shard : 1, SP_FACT_FILE, "");
  sp_facts_put_int (facts, "file.context", sequence, SP_FACT_FILE, "");
  const char *kind = sp_facts_get (facts, "layout.ring-kind");
  if (sequence > 1 && kind != NULL && !passes_states (format, place))
    sp_facts_put (facts, "file.rotate", kind, SP_FACT_FILE, "");
  if (zero == 3)
    sp_facts_put (facts, "file.reshard", sp_facts_get (facts, "layout.reshard"), SP_FACT_FILE, "");
  sp_facts_put (facts, "file.recompute", every ? "selective" : recompute, SP_FACT_FILE, "");
  if (every || g_strcmp0 (recompute, "selective") == 0)
    sp_facts_put (facts, "file.recompute-every", every ? recompute + strlen ("every-") : "op", SP_FACT_FILE, "");
  if (sp_facts_int (facts, "layout.pipeline", 1) == 1)
    g_hash_table_remove (facts, "layout.schedule");
}

static void
prepare (SpFacts *facts, const SpRunPlace *place, const char *name)
{
  prepare_shared (&sp_run_torchtitan, facts, place);
  prepare_model (facts, name);
  gint64 data = sp_facts_int (facts, "layout.data", 1), micro = sp_facts_int (facts, "run.micro-batch", 1);
  gint64 global = sp_facts_int (facts, "run.global-batch", micro * data),
         stages = sp_facts_int (facts, "layout.pipeline", 1);
  gint64 chunks = sp_facts_int (facts, "layout.virtual-stages", 1);
  gboolean whole = stages > 1 && global % data == 0;
  sp_facts_put_int (facts, "file.local-batch", whole ? global / data : micro, SP_FACT_FILE, "");
  sp_facts_put_int (facts, "file.global-batch", whole || global == micro * data ? -1 : global, SP_FACT_FILE, "");
  if (stages > 1)
    sp_facts_put_int (facts, "file.pipeline-batch", micro, SP_FACT_FILE, "");
  if (chunks > 1 && place->arch != NULL && place->arch->layers % (stages * chunks) == 0)
    sp_facts_put_int (facts, "file.virtual-layers", place->arch->layers / (stages * chunks), SP_FACT_FILE, "");
  if (sp_facts_is (facts, "run.precision", "fp8"))
    sp_facts_put (facts, "file.converters", "float8", SP_FACT_FILE, "");
}

static void
prepare_flame (SpFacts *facts, const SpRunPlace *place, const char *name)
{
  prepare_shared (&sp_run_flame, facts, place);
  gint64 data = sp_facts_int (facts, "layout.data", 1), micro = sp_facts_int (facts, "run.micro-batch", 1);
  gint64 global = sp_facts_int (facts, "run.global-batch", micro * data),
         stages = sp_facts_int (facts, "layout.pipeline", 1);
  gint64 parts = stages > 1 && global % (data * micro) == 0 ? global / (data * micro) : 1;
  sp_facts_put (facts, "file.model", name, SP_FACT_FILE, "");
  sp_facts_put_int (facts, "file.local-batch", micro * parts, SP_FACT_FILE, "");
  if (stages > 1)
    sp_facts_put_int (facts, "file.pipeline-batches", parts, SP_FACT_FILE, "");
  else
    sp_run_prepare_accumulation (facts);
  if (sp_facts_is (facts, "run.precision", "fp8"))
    sp_facts_put (facts, "file.fp8", "true", SP_FACT_FILE, "");
}

const SpRunFormat sp_run_torchtitan = {
  .name = "torchtitan",
  .title = "torchtitan TOML",
  .parse = sp_run_items_parse_toml,
  .recognise = recognise,
  .rows = rows,
  .n_rows = G_N_ELEMENTS (rows),
  .resolve = resolve,
  .model = model,
  .prepare = prepare,
  .write = sp_run_items_write_toml,
};

const SpRunFormat sp_run_flame = {
  .name = "flame",
  .title = "flame TOML",
  .parse = sp_run_items_parse_toml,
  .recognise = recognise_flame,
  .rows = flame_rows,
  .n_rows = G_N_ELEMENTS (flame_rows),
  .resolve = resolve_flame,
  .prepare = prepare_flame,
  .write = sp_run_items_write_toml,
};
