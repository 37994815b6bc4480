/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/schedules.h"

/*
 * Interleaved 1F1B (Narayanan et al., 2104.04473, section 2.2), in Megatron-LM's order: each stage holds v chunks and
 * runs p micro-batches through one before the next. Stage s runs 2 (p - 1 - s) + (v - 1) p forwards (one fewer or more
 * of v m as there are), then one forward and one backward in turn, then the backwards that are left. The first stage
 * holds p v + p - 1 chunks' worth of micro-batches: 1 + (p - 1) / (p v) of what all its layers stash for p of them.
 * Bubble (p - 1) / (v m): exact where forwards and backwards are alike over the virtual stages.
 */

/* The `k`-th forward of a stage, and the `k`-th backward, which takes the chunks last to first. */
static SpSlot
slot_of (const SpPipeline *pipeline, SpSlotKind kind, gint32 k)
{
  gint32 p = pipeline->stages, v = pipeline->chunks, chunk = k % (p * v) / p;

  return (SpSlot){ .kind = (guint8) kind,
                   .chunk = (guint8) (kind == SP_SLOT_FORWARD ? chunk : v - 1 - chunk),
                   .micro_batch = k / (p * v) * p + k % p };
}

static guint
fill (const SpPipeline *pipeline, gint32 stage, SpSlot *ret)
{
  gint32 p = pipeline->stages, v = pipeline->chunks, all = v * pipeline->micro_batches;
  gint32 ahead = MIN (2 * (p - 1 - stage) + (v - 1) * p, all);
  guint n = 0;

  for (gint32 k = 0; k < ahead; k++)
    ret[n++] = slot_of (pipeline, SP_SLOT_FORWARD, k);
  for (gint32 k = 0; k < all; k++) {
    if (k + ahead < all)
      ret[n++] = slot_of (pipeline, SP_SLOT_FORWARD, k + ahead);
    ret[n++] = slot_of (pipeline, SP_SLOT_BACKWARD, k);
  }
  return n;
}

static double
bubble (const SpPipeline *pipeline, double forward, double input, double weight)
{
  (void) forward;
  (void) input;
  (void) weight;
  return (double) (pipeline->stages - 1) / (pipeline->chunks * (double) pipeline->micro_batches);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static gboolean
has_chunks (const SpPipeline *pipeline)
{
  return pipeline->chunks >= 2 && pipeline->chunks <= SP_MAX_CHUNKS;
}

static void
explain_chunks (const SpPipeline *pipeline, GString *out)
{
  g_string_append_printf (out,
                          "virtual-stages = %d; interleaving needs 2 to %d chunks a stage, e.g. virtual-stages = 2",
                          pipeline->chunks, SP_MAX_CHUNKS);
}

static gboolean
has_stages (const SpPipeline *pipeline)
{
  return pipeline->stages >= 2;
}

static void
explain_stages (const SpPipeline *pipeline, GString *out)
{
  g_string_append_printf (out, "pipeline = %d; there is nothing to interleave with fewer than 2 stages",
                          pipeline->stages);
}

static gboolean
fills_groups (const SpPipeline *pipeline)
{
  return pipeline->micro_batches % pipeline->stages == 0;
}

static void
explain_groups (const SpPipeline *pipeline, GString *out)
{
  gint32 below = pipeline->micro_batches / pipeline->stages * pipeline->stages;

  g_string_append_printf (out, "%d micro-batches do not divide into groups of %d stages; use ", pipeline->micro_batches,
                          pipeline->stages);
  if (below > 0)
    g_string_append_printf (out, "%d or ", below);
  g_string_append_printf (out, "%d (global-batch / (data x micro-batch))", below + pipeline->stages);
}

static const SpScheduleRule rules[] = {
  { "interleaved-chunks", has_chunks, explain_chunks },
  { "interleaved-stages", has_stages, explain_stages },
  { "interleaved-micro-batches", fills_groups, explain_groups },
};

const SpSchedule sp_schedule_interleaved = {
  .name = "interleaved",
  .summary = "1F1B over several chunks of layers a stage",
  .chunked = TRUE,
  .steady = 3,
  .fill = fill,
  .bubble = bubble,
  .rules = rules,
  .n_rules = G_N_ELEMENTS (rules),
};
