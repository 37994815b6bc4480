/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Megatron-LM arguments (megatron/training/arguments.py). The file describes the model too (megatron-model.c); the data
 * degree is what is left of the GPUs. Without a flag Megatron has: tensor, pipeline and context degrees 1, no sequence
 * parallelism, states not sharded, no overlap, no recomputation, gradients in fp32 with bf16 and in fp16 with fp16.
 */
#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/run-files/formats.h"
#include "models/inputs/run-files/megatron-rows.h"
#include "sim/words.h"

static gboolean
recognise (const SpRunItems *items)
{
  for (guint i = 0; i < items->list->len; i++) {
    const char *key = ((const SpRunItem *) items->list->pdata[i])->key;
    if (g_str_has_prefix (key, "--") && sp_run_row (&sp_run_megatron, key) != NULL)
      return TRUE;
  }
  return FALSE;
}

static gboolean
is_true (const SpFacts *facts, const char *key)
{
  return sp_facts_is (facts, key, "true");
}

/* --- the layout --------------------------------------------------------------------------------------------------- */

/* Context ranks: a ring, an all-gather, Ulysses, or both. */
static gboolean
resolve_context (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  gint64 degree = sp_facts_int (facts, "file.context", 1), ulysses = 1, own = sp_facts_int (facts, "file.ulysses", 1);
  const char *kind = sp_facts_get (facts, "file.context-kind");
  if (own > 1 && degree > 1)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: --ds-sequence-parallel-size = \"%" G_GINT64_FORMAT
                          "\": expected 1 beside --context-parallel-size = %" G_GINT64_FORMAT,
                          file->name, own, degree);
  if (own > 1)
    return sp_run_set_int (file, "layout.ulysses", own, error) &&
           sp_run_set (file, "layout.ring", "1", SP_FACT_RESOLVED, "--ds-sequence-parallel-size", error);
  if (g_strcmp0 (kind, "a2a") == 0)
    ulysses = degree;
  if (g_strcmp0 (kind, "a2a+p2p") == 0) {
    const char *sizes = sp_facts_get (facts, "file.context-sizes");
    g_auto (GStrv) both = g_strsplit (sizes != NULL ? sizes : "", " ", -1);
    ulysses = g_strv_length (both) == 2 ? g_ascii_strtoll (both[0], NULL, 10) : 0;
    if (ulysses < 1 || sp_run_times (ulysses, g_ascii_strtoll (both[1], NULL, 10)) != degree)
      return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                            "%s: --hierarchical-context-parallel-sizes = \"%s\": expected two numbers, their product "
                            "--context-parallel-size = %" G_GINT64_FORMAT,
                            file->name, sizes != NULL ? sizes : "", degree);
  }
  if (g_strcmp0 (kind, "all_gather") == 0 && degree > 1 &&
      !sp_run_set (file, "layout.ring-kind", "all-gather", SP_FACT_RESOLVED, "--cp-comm-type all_gather", error))
    return FALSE;
  if (degree > 1 && sp_facts_is (facts, "layout.overlap", "false"))
    sp_run_note (file, "note: layout.overlap is one switch, off without --overlap-grad-reduce; Megatron overlaps the "
                       "ring all the same");
  return sp_run_set_int (file, "layout.ulysses", ulysses, error) &&
         sp_run_set_int (file, "layout.ring", degree / ulysses, error);
}

static gboolean
resolve_sharding (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  const char *zero = is_true (facts, "file.distributed") ? "1" : "0";
  const char *fsdp = sp_facts_get (facts, "file.fsdp");
  if (g_strcmp0 (fsdp, "torch") == 0)
    zero = "3";
  else if (sp_facts_get (facts, "file.zero-stage") != NULL)
    zero = sp_facts_get (facts, "file.zero-stage");
  else if (fsdp != NULL)
    zero = sp_facts_get (facts, "file.sharding") != NULL ? sp_facts_get (facts, "file.sharding") : "0";
  gboolean gathers = is_true (facts, "file.overlap-gather"), reduces = sp_facts_is (facts, "layout.overlap", "true");
  if (g_str_equal (zero, "1") && gathers != reduces)
    sp_run_note (file, "note: layout.overlap is one switch: that of --overlap-grad-reduce, not of "
                       "--overlap-param-gather");
  return sp_run_set (file, "layout.zero", zero, SP_FACT_RESOLVED, "--use-distributed-optimizer", error);
}

/* Only one of the fused losses takes the output matrix along; the others read whole logits. */
static gboolean
resolve_loss (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  if (!is_true (facts, "file.fuse-loss"))
    return TRUE;
  if (sp_facts_is (facts, "file.fusion", "linear"))
    return sp_run_set (file, "layout.loss", "fused", SP_FACT_RESOLVED, "--cross-entropy-fusion-impl linear", error);
  sp_run_note (file, "not mapped: --cross-entropy-loss-fusion: a fused kernel on whole logits is the framework "
                     "profile's: --set run.framework=NAME");
  return TRUE;
}

static gint64
replicas (const SpFacts *facts)
{
  return sp_run_times (sp_facts_int (facts, "layout.data", 1), sp_run_times (sp_facts_int (facts, "layout.ulysses", 1),
                                                                             sp_facts_int (facts, "layout.ring", 1)));
}

/* Copies of the optimizer's states: each is over the nearest of the ranks that hold the same weights. */
static gboolean
resolve_copies (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  gint64 copies = sp_facts_int (facts, "file.instances", 1), ranks = replicas (facts);
  if (copies == 1 || sp_facts_get (facts, "layout.data") == NULL || sp_facts_is (facts, "layout.zero", "0"))
    return TRUE;
  if (ranks % copies != 0)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: --num-distributed-optimizer-instances = \"%" G_GINT64_FORMAT
                          "\": expected a divisor of the %" G_GINT64_FORMAT " rank%s with the same weights",
                          file->name, copies, ranks, sp_plural (ranks));
  if (ranks == copies)
    return sp_run_set (file, "layout.zero", "0", SP_FACT_RESOLVED, "--num-distributed-optimizer-instances", error);
  return sp_run_set_int (file, "layout.zero-group", ranks / copies, error);
}

static gint64
layers (const SpRunFile *file, const SpRunPlace *place)
{
  return place->arch != NULL ? place->arch->layers : sp_facts_int (file->facts, "model.layers", 0);
}

static gboolean
resolve_stages (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;
  gint64 stages = sp_facts_int (facts, "layout.pipeline", 1), all = layers (file, place);
  gint64 each = sp_facts_int (facts, "file.virtual-layers", 0);
  gint64 first = sp_facts_int (facts, "file.first-layers", 0), last = sp_facts_int (facts, "file.last-layers", 0);
  if (stages == 1 || all == 0)
    return TRUE;
  if (each > 0 && all % (stages * each) != 0)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: --num-layers-per-virtual-pipeline-stage = %" G_GINT64_FORMAT
                          ": expected a divisor of the %" G_GINT64_FORMAT " layer%s / %" G_GINT64_FORMAT " stages",
                          file->name, each, all, sp_plural (all), stages);
  if (each > 0 && !sp_run_set_int (file, "layout.virtual-stages", all / stages / each, error))
    return FALSE;
  if (sp_facts_int (facts, "layout.virtual-stages", 1) > 1 &&
      !sp_run_set (file, "layout.schedule", "interleaved", SP_FACT_RESOLVED, "virtual stages", error))
    return FALSE;
  if (first == 0 && last == 0)
    return TRUE;
  gint64 inner = stages - (first > 0) - (last > 0), left = all - first - last;
  if (sp_facts_int (facts, "layout.virtual-stages", 1) > 1 || inner < 1 || left < inner || left % inner != 0) {
    sp_run_note (file, "not mapped: layers of the first and the last stage: give --set layout.stage-split=8,8,7,7");
    return TRUE;
  }
  g_autoptr (GString) split = g_string_new (NULL);
  for (gint64 i = 0; i < stages; i++)
    g_string_append_printf (split, "%s%" G_GINT64_FORMAT, i > 0 ? "," : "",
                            i == 0 && first > 0           ? first
                            : i == stages - 1 && last > 0 ? last
                                                          : left / inner);
  return sp_run_set (file, "layout.stage-split", split->str, SP_FACT_RESOLVED, "--decoder-first-pipeline-num-layers",
                     error);
}

/* Uniform: all layers, what is kept being every N-th input. Block: the first N of each virtual stage. */
gboolean
sp_run_megatron_resolve_recompute (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;
  const char *what = sp_facts_get (facts, "file.recompute");
  gint64 n = sp_facts_int (facts, "file.recompute-layers", 1), all = layers (file, place);
  gint64 parts = sp_facts_int (facts, "layout.pipeline", 1) * sp_facts_int (facts, "layout.virtual-stages", 1);
  g_autofree char *first = g_strdup_printf ("first-%" G_GINT64_FORMAT, n);
  if (g_strcmp0 (what, "full") == 0 && sp_facts_is (facts, "file.recompute-method", "block") && n * parts < all)
    what = first;
  else if (g_strcmp0 (what, "full") == 0 && n > 1)
    sp_run_note (file, "not mapped: recompute-num-layers: with the uniform method seqpar keeps every layer's input");
  return sp_run_set (file, "layout.recompute", what != NULL ? what : "none", SP_FACT_RESOLVED, "recompute-granularity",
                     error);
}

/* Moments in other types than fp32: of one byte both, or none. Muon's states are cut by --optimizer dist_muon, which
 * deals whole matrices out. */
static gboolean
resolve_optimizer (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  const char *name = sp_facts_get (facts, "file.optimizer");
  gboolean is_dealt = g_strcmp0 (name, "dist_muon") == 0;
  if (is_dealt && !sp_run_set (file, "layout.zero", "1", SP_FACT_RESOLVED, "--optimizer dist_muon", error))
    return FALSE;
  if (is_dealt || g_strcmp0 (name, "muon") == 0)
    return sp_run_set (file, "run.optimizer", "muon", SP_FACT_RESOLVED, "--optimizer", error);
  if (name != NULL && !sp_run_set (file, "run.optimizer", "adamw", SP_FACT_RESOLVED, "--optimizer", error))
    return FALSE;
  const char *first = sp_facts_get (facts, "file.moment"), *second = sp_facts_get (facts, "file.second-moment");
  if (!is_true (facts, "file.precision-aware") || !sp_facts_is (facts, "run.optimizer", "adamw"))
    return TRUE;
  if (g_strcmp0 (first, "fp8") == 0 && g_strcmp0 (second, "fp8") == 0)
    return sp_run_set (file, "run.optimizer", "adamw-8bit", SP_FACT_RESOLVED, "--exp-avg-dtype", error);
  if (g_strcmp0 (first, "fp32") != 0 || g_strcmp0 (second, "fp32") != 0)
    sp_run_note (file, "not mapped: --exp-avg-dtype, --exp-avg-sq-dtype: moments are fp32, or both of one byte");
  return TRUE;
}

static gboolean
resolve_precision (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  if (sp_facts_get (facts, "run.precision") == NULL)
    sp_run_ask (file, "the precision: neither --bf16 nor --fp16 means fp32: --set run.precision=fp32, or "
                      "bf16");
  /* fp16 gradients are kept in fp16 without the flag, bf16 ones in fp32; bf16 here is any of 2 bytes. */
  const char *dtype = sp_facts_is (facts, "run.precision", "fp16") ? "bf16" : "fp32";
  if (sp_facts_get (facts, "layout.gradient-dtype") == NULL &&
      !sp_run_set (file, "layout.gradient-dtype", dtype, SP_FACT_RESOLVED, "gradients", error))
    return FALSE;
  return sp_facts_get (facts, "file.fp8") == NULL ||
         sp_run_set (file, "run.precision", "fp8", SP_FACT_RESOLVED, "--fp8-format", error);
}

static gboolean
resolve (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;
  gint64 tensor = sp_facts_int (facts, "layout.tensor", 1);
  if (tensor == 1 && sp_facts_is (facts, "layout.sequence-regions", "true"))
    sp_run_note (file, "note: --sequence-parallel is a no-op with a tensor degree of 1");
  if (tensor == 1)
    g_hash_table_remove (file->facts, "layout.sequence-regions");
  if (sp_facts_int (facts, "file.expert-tensor", tensor) != tensor)
    sp_run_note (file, "not mapped: --expert-tensor-parallel-size: experts are split as the rest is, by the tensor "
                       "degree");
  if (!resolve_context (file, error) || !resolve_sharding (file, error) || !resolve_stages (file, place, error) ||
      !sp_run_megatron_resolve_recompute (file, place, error) || !resolve_precision (file, error) ||
      !resolve_loss (file, error) || !resolve_optimizer (file, error) || !sp_run_resolve_data (file, place, error) ||
      !resolve_copies (file, error))
    return FALSE;
  gint64 replica = sp_run_replica (facts);
  sp_run_note (file, "note: a replica takes %" G_GINT64_FORMAT " GPU%s", replica, sp_plural (replica));
  /* One micro-batch a replica, without a global batch. */
  if (sp_facts_get (facts, "run.global-batch") == NULL && sp_facts_get (facts, "run.micro-batch") != NULL)
    sp_facts_put (file->facts, "file.accumulation", "1", SP_FACT_RESOLVED, "one micro-batch");
  return sp_run_resolve_batches (file, error);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void
prepare_context (SpFacts *facts)
{
  gint64 ulysses = sp_facts_int (facts, "layout.ulysses", 1), ring = sp_facts_int (facts, "layout.ring", 1);
  gboolean gathers = sp_facts_is (facts, "layout.ring-kind", "all-gather");
  const char *kind = ulysses > 1 ? ring > 1 ? "a2a+p2p" : "a2a" : gathers ? "all_gather" : "p2p";
  sp_facts_put_int (facts, "file.context", ulysses * ring, SP_FACT_FILE, "");
  if (ulysses * ring > 1)
    sp_facts_put (facts, "file.context-kind", kind, SP_FACT_FILE, "");
  if (ulysses > 1 && ring > 1) {
    g_autofree char *sizes = g_strdup_printf ("%" G_GINT64_FORMAT " %" G_GINT64_FORMAT, ulysses, ring);
    sp_facts_put (facts, "file.context-sizes", sizes, SP_FACT_FILE, "");
  }
}

static void
prepare_sharding (SpFacts *facts)
{
  gint64 zero = sp_facts_int (facts, "layout.zero", 0), group = sp_facts_int (facts, "layout.zero-group", 0);
  if (zero > 0 && group > 0 && replicas (facts) % group == 0)
    sp_facts_put_int (facts, "file.instances", replicas (facts) / group, SP_FACT_FILE, "");
  if (zero == 1)
    sp_facts_put (facts, "file.distributed", "true", SP_FACT_FILE, "");
  if (zero == 1 && sp_facts_is (facts, "layout.overlap", "true"))
    sp_facts_put (facts, "file.overlap-gather", "true", SP_FACT_FILE, "");
  if (zero < 2)
    return;
  sp_facts_put (facts, "file.fsdp", "true", SP_FACT_FILE, "");
  sp_facts_put_int (facts, "file.sharding", zero, SP_FACT_FILE, "");
}

/* Megatron's Muon takes neither the distributed optimizer nor FSDP. */
static void
prepare_optimizer (SpFacts *facts)
{
  gint64 zero = sp_facts_int (facts, "layout.zero", 0);
  gboolean muon = sp_facts_is (facts, "run.optimizer", "muon") && zero < 2;
  if (sp_facts_get (facts, "run.optimizer") != NULL)
    sp_facts_put (facts, "file.optimizer", !muon ? "adam" : zero == 1 ? "dist_muon" : "muon", SP_FACT_FILE, "");
  if (!muon)
    return;
  g_hash_table_remove (facts, "file.distributed");
  g_hash_table_remove (facts, "file.overlap-gather");
}

/* Full recomputation wants its method and how many layers. */
void
sp_run_megatron_prepare_recompute (SpFacts *facts)
{
  const char *what = sp_facts_get (facts, "layout.recompute");
  gboolean first = what != NULL && g_str_has_prefix (what, "first-");
  if (g_strcmp0 (what, "selective") == 0)
    sp_facts_put (facts, "file.recompute", what, SP_FACT_FILE, "");
  if (g_strcmp0 (what, "full") != 0 && !first)
    return;
  sp_facts_put (facts, "file.recompute", "full", SP_FACT_FILE, "");
  sp_facts_put (facts, "file.recompute-method", first ? "block" : "uniform", SP_FACT_FILE, "");
  sp_facts_put (facts, "file.recompute-layers", first ? what + strlen ("first-") : "1", SP_FACT_FILE, "");
}

/* A split that is even but for its ends. */
static void
prepare_stages (SpFacts *facts)
{
  const char *text = sp_facts_get (facts, "layout.stage-split");
  g_auto (GStrv) split = g_strsplit (text != NULL ? text : "auto", ",", -1);
  guint n = g_strv_length (split);
  gboolean even = n >= 3;
  for (guint i = 2; even && i + 1 < n; i++)
    even = g_str_equal (split[i], split[1]);
  if (!even)
    return;
  sp_facts_put (facts, "file.first-layers", split[0], SP_FACT_FILE, "");
  sp_facts_put (facts, "file.last-layers", split[n - 1], SP_FACT_FILE, "");
}

static void
prepare (SpFacts *facts, const SpRunPlace *place, const char *model)
{
  sp_run_megatron_prepare_model (facts);
  prepare_context (facts);
  prepare_sharding (facts);
  prepare_optimizer (facts);
  sp_run_megatron_prepare_recompute (facts);
  prepare_stages (facts);
  if (sp_facts_is (facts, "layout.loss", "fused")) {
    sp_facts_put (facts, "file.fuse-loss", "true", SP_FACT_FILE, "");
    sp_facts_put (facts, "file.fusion", "linear", SP_FACT_FILE, "");
  }
  if (sp_facts_is (facts, "run.optimizer", "adamw-8bit")) {
    sp_facts_put (facts, "file.precision-aware", "true", SP_FACT_FILE, "");
    sp_facts_put (facts, "file.moment", "fp8", SP_FACT_FILE, "");
    sp_facts_put (facts, "file.second-moment", "fp8", SP_FACT_FILE, "");
  }
  if (sp_facts_is (facts, "run.precision", "fp8"))
    sp_facts_put (facts, "file.fp8", "fp8", SP_FACT_FILE, "");
}

const SpRunFormat sp_run_megatron = {
  .name = "megatron",
  .title = "Megatron-LM arguments",
  .parse = sp_run_items_parse_args,
  .recognise = recognise,
  .rows = rows,
  .n_rows = G_N_ELEMENTS (rows),
  .resolve_model = sp_run_megatron_resolve_model,
  .resolve = resolve,
  .prepare = prepare,
  .write = sp_run_items_write_args,
};
