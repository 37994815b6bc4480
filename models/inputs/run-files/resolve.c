/* SPDX-License-Identifier: Apache-2.0 */
/* What several formats work out the same way. */
#include "models/inputs/ini.h"
#include "models/inputs/run-files/formats.h"
#include "sim/words.h"

gboolean
sp_run_resolve (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  const SpFacts *facts = file->facts;

  if (!file->format->resolve (file, place, error))
    return FALSE;
  /* Linear layers want tokens in order, so no file of a model with some means the usual zigzag. */
  if (place->arch == NULL || !sp_architecture_has (place->arch, SP_LAYER_LINEAR) ||
      sp_facts_int (facts, "layout.ring", 1) == 1 || sp_facts_get (facts, "layout.ring-split") != NULL)
    return TRUE;
  return sp_run_set (file, "layout.ring-split", "contiguous", SP_FACT_ABSENT, "linear layers", error);
}

gint64
sp_run_times (gint64 a, gint64 b)
{
  return a > 0 && b > G_MAXINT32 / a ? G_MAXINT32 : MIN (a * b, G_MAXINT32);
}

gint64
sp_run_replica (const SpFacts *facts)
{
  static const char *const axes[] = { "layout.tensor", "layout.pipeline", "layout.ulysses", "layout.ring",
                                      "layout.lasp" };
  gint64 product = 1;
  for (guint i = 0; i < G_N_ELEMENTS (axes); i++)
    product = sp_run_times (product, MAX (sp_facts_int (facts, axes[i], 1), 1));
  return product;
}

void
sp_run_note_launch (SpRunFile *file, const SpRunPlace *place)
{
  gint64 nodes = sp_facts_int (file->facts, "file.nodes", 1);
  gint64 each = sp_facts_int (file->facts, "file.gpus-per-node", place->gpus_per_node),
         all = sp_run_times (nodes, each);
  gboolean said =
      sp_facts_get (file->facts, "file.nodes") != NULL || sp_facts_get (file->facts, "file.gpus-per-node") != NULL;

  if (said && place->gpus > 0 && all != place->gpus)
    sp_run_note (file,
                 "note: the launcher starts %" G_GINT64_FORMAT " process%s (%" G_GINT64_FORMAT " x %" G_GINT64_FORMAT
                 "), the cluster has %d GPU%s, which count here: --set nodes=N or --set gpus-per-node=N takes a part",
                 all, all == 1 ? "" : "es", nodes, each, place->gpus, sp_plural (place->gpus));
}

gboolean
sp_run_resolve_data (SpRunFile *file, const SpRunPlace *place, GError **error)
{
  gint64 replica = sp_run_replica (file->facts);
  if (sp_facts_get (file->facts, "layout.data") != NULL)
    return TRUE;
  if (place->gpus == 0) {
    sp_run_ask (file,
                "the data degree, which is the cluster's GPUs over the %" G_GINT64_FORMAT
                " of a replica: --cluster FILE, or --set layout.data=N",
                replica);
    return TRUE;
  }
  if (place->gpus % replica != 0)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: a replica takes %" G_GINT64_FORMAT
                          " GPUs (tensor x pipeline x sequence ranks), which does not divide the cluster's %d",
                          file->name, replica, place->gpus);
  return sp_run_set_int (file, "layout.data", place->gpus / replica, error);
}

/* A micro-batch that the others leave. */
static gboolean
resolve_micro (SpRunFile *file, gint64 data, gint64 global, gint64 steps, GError **error)
{
  gint64 share = sp_run_times (data, steps);
  if (global % share != 0)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: a global batch of %" G_GINT64_FORMAT " is no multiple of data %" G_GINT64_FORMAT
                          " x accumulation steps %" G_GINT64_FORMAT,
                          file->name, global, data, steps);
  return sp_run_set_int (file, "run.micro-batch", global / share, error);
}

/* What is given besides the file leaves the rest to follow. */
static gboolean
given (const SpRunFile *file)
{
  static const char *const keys[] = { "run.micro-batch", "run.global-batch", "layout.data" };
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++) {
    const SpFact *fact = g_hash_table_lookup (file->facts, keys[i]);
    if (fact != NULL && fact->from == SP_FACT_GIVEN)
      return TRUE;
  }
  return FALSE;
}

/* " (key)", and whether the file has it as "auto". Free with g_free. */
static char *
foreign_name (const SpRunFile *file, const char *ours)
{
  const char *automatic = g_hash_table_lookup (file->automatic, ours);
  if (automatic != NULL)
    return g_strdup_printf (" (%s = auto)", automatic);
  for (guint i = 0; i < file->format->n_rows; i++)
    if (g_strcmp0 (file->format->rows[i].ours, ours) == 0)
      return g_strdup_printf (" (%s)", file->format->rows[i].key);
  return g_strdup ("");
}

gboolean
sp_run_resolve_batches (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  gint64 data = sp_facts_int (facts, "layout.data", 0), steps = sp_facts_int (facts, "file.accumulation", 0);
  gint64 micro = sp_facts_int (facts, "run.micro-batch", 0), global = sp_facts_int (facts, "run.global-batch", 0);
  if (micro == 0 && global > 0 && steps > 0 && data > 0)
    return resolve_micro (file, data, global, steps, error);
  g_autofree char *micro_name = foreign_name (file, "run.micro-batch");
  g_autofree char *global_name = foreign_name (file, "run.global-batch");
  g_autofree char *steps_name = foreign_name (file, "file.accumulation");
  if (micro == 0)
    sp_run_ask (file,
                "the micro-batch%s, which follows from global batch%s, data degree and accumulation steps%s: "
                "--set run.micro-batch=N",
                micro_name, global_name, steps_name);
  if (global == 0 && micro > 0 && steps > 0 && data > 0)
    return sp_run_set_int (file, "run.global-batch", sp_run_times (sp_run_times (micro, steps), data), error);
  if (global == 0 && (micro == 0 || steps == 0))
    sp_run_ask (file,
                "the global batch%s, which is micro-batch x data degree x accumulation steps: --set "
                "run.global-batch=N",
                global_name);
  if (global > 0 && micro > 0 && steps > 0 && data > 0 && global != sp_run_times (sp_run_times (micro, steps), data) &&
      !given (file))
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: the global batch of %" G_GINT64_FORMAT " is not micro-batch %" G_GINT64_FORMAT
                          " x accumulation steps %" G_GINT64_FORMAT " x data %" G_GINT64_FORMAT,
                          file->name, global, micro, steps, data);
  return TRUE;
}

void
sp_run_prepare_accumulation (SpFacts *facts)
{
  gint64 share = sp_facts_int (facts, "layout.data", 1) * sp_facts_int (facts, "run.micro-batch", 1);
  gint64 global = sp_facts_int (facts, "run.global-batch", share);
  if (share > 0 && global % share == 0)
    sp_facts_put_int (facts, "file.accumulation", global / share, SP_FACT_FILE, "accumulation");
}
