/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/run-files/trainer.h"

#include <string.h>

/* --- DeepSpeed's configurations by name --------------------------------------------------------------------------- */

static const struct {
  const char *name, *zero, *offload;
} stages[] = {
  { "zero0", "0", "none" }, { "zero1", "1", "none" },
  { "zero2", "2", "none" }, { "zero2_offload", "2", "optimizer" },
  { "zero3", "3", "none" }, { "zero3_offload", "3", "optimizer,parameters" },
};

static gboolean
resolve_sharding (SpRunFile *file, GError **error)
{
  const char *name = sp_facts_get (file->facts, "file.deepspeed");
  const char *zero = sp_facts_is (file->facts, "file.fsdp", "fsdp2") ? "3" : "0";

  for (guint i = 0; i < G_N_ELEMENTS (stages); i++) {
    if (!sp_facts_is (file->facts, "file.deepspeed", stages[i].name))
      continue;
    zero = stages[i].zero;
    if (!g_str_equal (stages[i].offload, "none") &&
        !sp_run_set (file, "layout.offload", stages[i].offload, SP_FACT_RESOLVED, stages[i].name, error))
      return FALSE;
  }
  gboolean said = sp_run_items_get (file->items, "--deepspeed") != NULL ||
                  sp_run_items_get (file->items, "deepspeed") != NULL ||
                  sp_run_items_get (file->items, "--fsdp") != NULL ||
                  sp_run_items_get (file->items, "use_distributed_optimizer") != NULL;
  if (name == NULL && g_str_equal (zero, "0") && !said)
    sp_run_note (file,
                 "note: neither DeepSpeed nor FSDP is said: states are whole on each data rank; --set layout.zero=3");
  return sp_run_set (file, "layout.zero", zero, SP_FACT_RESOLVED, "deepspeed", error);
}

static void
prepare_sharding (SpFacts *facts)
{
  const char *offload = sp_facts_get (facts, "layout.offload"), *zero = sp_facts_get (facts, "layout.zero");
  const char *nearest = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (stages); i++)
    if (g_strcmp0 (zero, stages[i].zero) == 0 && (nearest == NULL || g_strcmp0 (offload, stages[i].offload) == 0))
      nearest = stages[i].name;
  if (nearest != NULL && !g_str_equal (nearest, "zero0"))
    sp_facts_put (facts, "file.deepspeed", nearest, SP_FACT_FILE, "");
}

/* A file without it is not complete, so of a batch that does not divide it is the next one's. */
static void
prepare_accumulation (SpFacts *facts)
{
  gint64 share = sp_facts_int (facts, "layout.data", 1) * sp_facts_int (facts, "run.micro-batch", 1);
  gint64 global = sp_facts_int (facts, "run.global-batch", share);

  sp_run_prepare_accumulation (facts);
  if (sp_facts_get (facts, "file.accumulation") == NULL)
    sp_facts_put_int (facts, "file.accumulation", global / share + 1, SP_FACT_FILE, "");
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

gboolean
sp_run_trainer_resolve (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;
  const char *rank = sp_facts_get (facts, "file.lora-rank");

  if (!resolve_sharding (file, error) || !sp_run_resolve_data (file, place, error) ||
      !sp_run_set (file, "layout.gradient-dtype", sp_facts_is (facts, "run.precision", "fp32") ? "fp32" : "bf16",
                   SP_FACT_RESOLVED, "gradients", error))
    return FALSE;
  if (sp_facts_is (facts, "file.tuner", "lora") &&
      !sp_run_set (file, "run.lora-rank", rank != NULL ? rank : "8", SP_FACT_RESOLVED, "lora_rank", error))
    return FALSE;
  if (sp_facts_is (facts, "file.liger", "true") &&
      !sp_run_set (file, "layout.loss", "fused", SP_FACT_RESOLVED, "liger_kernel", error))
    return FALSE;
  return sp_run_resolve_batches (file, error);
}

void
sp_run_trainer_prepare (SpFacts *facts)
{
  const char *rank = sp_facts_get (facts, "run.lora-rank");
  gboolean lora = rank != NULL && !g_str_equal (rank, "0");

  prepare_sharding (facts);
  sp_facts_put (facts, "file.tuner", lora ? "lora" : "full", SP_FACT_FILE, "");
  if (lora)
    sp_facts_put (facts, "file.lora-rank", rank, SP_FACT_FILE, "");
  else
    g_hash_table_remove (facts, "run.lora-targets");
  if (sp_facts_is (facts, "layout.loss", "fused"))
    sp_facts_put (facts, "file.liger", "true", SP_FACT_FILE, "");
  prepare_accumulation (facts);
}

gint64
sp_run_ulysses_first (const SpArchitecture *arch, gint64 ranks)
{
  gint64 a = arch != NULL ? arch->heads : ranks, b = ranks;

  while (b != 0) {
    gint64 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* --- items -------------------------------------------------------------------------------------------------------- */

void
sp_run_trainer_booleans (SpRunItems *items)
{
  for (guint i = 0; i < items->list->len; i++) {
    SpRunItem *item = items->list->pdata[i];
    gboolean yes = g_ascii_strcasecmp (item->text, "true") == 0, no = g_ascii_strcasecmp (item->text, "false") == 0;
    if (item->type != SP_ITEM_FLAG && !(item->type == SP_ITEM_WORD && (yes || no)))
      continue;
    g_free (item->text);
    item->text = g_strdup (no ? "false" : "true");
    item->type = SP_ITEM_BOOL;
  }
}
