/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of Calculon (github.com/calculon-ai/calculon), another cost model: read only, so that its published runs can be
 * compared. It has neither model nor sequence in it; its system file stands for our cluster.
 */
#include "models/inputs/ini.h"
#include "models/inputs/run-files/formats.h"

#define TIER "which links an axis uses follows from layout.order and the cluster"

static const SpRunRow rows[] = {
  { "num_procs", "file.gpus", SP_ROW_INT },
  { "tensor_par", "layout.tensor", SP_ROW_INT, .absent = "1" },
  { "pipeline_par", "layout.pipeline", SP_ROW_INT, .absent = "1" },
  { "data_par", "layout.data", SP_ROW_INT },
  { "batch_size", "run.global-batch", SP_ROW_INT },
  { "microbatch_size", "run.micro-batch", SP_ROW_INT },
  { "datatype", "run.precision", SP_ROW_WORD, .values = "float16=fp16 bfloat16=bf16 float32=fp32 float8=fp8" },
  { "activation_recompute", "layout.recompute", SP_ROW_WORD, .values = "full=full attn_only=selective none=none",
    .absent = "none" },
  { "pipeline_interleaving", "layout.virtual-stages", SP_ROW_INT, .absent = "1" },
  { "optimizer_sharding", "layout.zero", SP_ROW_BOOL, .values = "true=1 false=0", .absent = "false" },
  { "tensor_par_comm_type", "layout.sequence-regions", SP_ROW_WORD, .values = "ar=false rs_ag=true p2p_rs_ag=true",
    .absent = "ar" },
  { "tensor_par_overlap", "file.tensor-overlap", SP_ROW_WORD, .values = "none=none", .others = "ring pipe" },
  { "data_par_overlap", "layout.overlap", SP_ROW_BOOL, .absent = "false" },
  { "seq_par_ag_redo", .why = "whether a gathered input is kept or gathered again is the framework profile's" },
  { "optimizer_offload", "file.offload-optimizer", SP_ROW_BOOL, .values = "true=optimizer" },
  { "weight_offload", "file.offload-parameters", SP_ROW_BOOL, .values = "true=parameters" },
  { "activations_offload", "file.offload-activations", SP_ROW_BOOL, .values = "true=activations" },
  { "training", "run.scope", SP_ROW_BOOL, .values = "true=step false=forward", .absent = "true" },
  { "fused_activation", .why = "which kernels are fused is the framework profile's: --set run.framework=NAME" },
  { "attention_type", "file.attention", SP_ROW_WORD, .values = "multihead=multihead", .others = "multiquery" },
  { "tensor_par_net", .why = TIER },
  { "pipeline_par_net", .why = TIER },
  { "data_par_net", .why = TIER },
};

static gboolean
recognise (const SpRunItems *items)
{
  return sp_run_items_get (items, "num_procs") != NULL && sp_run_items_get (items, "tensor_par") != NULL;
}

static gboolean
resolve (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  static const char *const offloads[] = { "file.offload-optimizer", "file.offload-parameters",
                                          "file.offload-activations" };
  const SpFacts *facts = file->facts;
  gint64 gpus = sp_facts_int (facts, "file.gpus", 0), replica = sp_run_replica (facts);
  g_autoptr (GString) offload = g_string_new (NULL);
  if (sp_facts_get (facts, "layout.data") == NULL && gpus % replica == 0 &&
      !sp_run_set_int (file, "layout.data", gpus / replica, error))
    return FALSE;
  gint64 data = sp_facts_int (facts, "layout.data", 1);
  const SpFact *fact = g_hash_table_lookup (file->facts, "layout.data");
  if (gpus != data * replica && (fact == NULL || fact->from != SP_FACT_GIVEN))
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: num_procs = \"%" G_GINT64_FORMAT
                          "\": expected tensor_par x pipeline_par x data_par = %" G_GINT64_FORMAT,
                          file->name, gpus, data * replica);
  if (sp_facts_get (facts, offloads[2]) != NULL && !sp_facts_is (facts, "layout.recompute", "full")) {
    sp_run_note (file, "not mapped: activations_offload: of activations seqpar offloads the inputs that full "
                       "recomputation keeps, no others");
    g_hash_table_remove (file->facts, offloads[2]);
  }
  for (guint i = 0; i < G_N_ELEMENTS (offloads); i++)
    if (sp_facts_get (facts, offloads[i]) != NULL)
      g_string_append_printf (offload, "%s%s", offload->len > 0 ? "," : "", sp_facts_get (facts, offloads[i]));
  if (offload->len > 0 && !sp_run_set (file, "layout.offload", offload->str, SP_FACT_RESOLVED, "*_offload", error))
    return FALSE;
  if (sp_facts_int (facts, "layout.virtual-stages", 1) > 1 &&
      !sp_run_set (file, "layout.schedule", "interleaved", SP_FACT_RESOLVED, "pipeline_interleaving", error))
    return FALSE;
  if (sp_facts_get (facts, "run.precision") == NULL)
    sp_run_ask (file, "the precision (datatype): --set run.precision=bf16 or fp16");
  return sp_run_resolve_batches (file, error);
}

const SpRunFormat sp_run_calculon = {
  .name = "calculon",
  .title = "a Calculon run",
  .parse = sp_run_items_parse_json,
  .recognise = recognise,
  .rows = rows,
  .n_rows = G_N_ELEMENTS (rows),
  .resolve = resolve,
};
