/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/schedules.h"

const SpSchedule *const sp_schedule_rows[] = {
  &sp_schedule_1f1b, &sp_schedule_gpipe, &sp_schedule_interleaved, &sp_schedule_zb_h1, &sp_schedule_dualpipe,
};

guint
sp_schedule_count (void)
{
  return G_N_ELEMENTS (sp_schedule_rows);
}

gint
sp_schedule_find (const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS (sp_schedule_rows); i++)
    if (g_str_equal (sp_schedule_rows[i]->name, name))
      return (gint) i;
  return -1;
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

/* What the row itself says about chunks. */
static gboolean
one_chunk (const SpPipeline *pipeline)
{
  return pipeline->chunks == 1;
}

static void
explain_one_chunk (const SpPipeline *pipeline, GString *out)
{
  g_string_append_printf (out,
                          "virtual-stages = %d, but a stage holds one part of the model; use virtual-stages = 1 or "
                          "a schedule that interleaves",
                          pipeline->chunks);
}

static const SpScheduleRule one_chunk_rule = { "chunks", one_chunk, explain_one_chunk };

/* And about slices. */
static gboolean
is_whole (const SpPipeline *pipeline)
{
  return pipeline->slices <= 1;
}

static void
explain_whole (const SpPipeline *pipeline, GString *out)
{
  const char *separator = "";

  g_string_append_printf (
      out, "slices = %d, but it runs micro-batches whole; use slices = 1, or schedule = ", pipeline->slices);
  for (guint i = 0; i < G_N_ELEMENTS (sp_schedule_rows); i++)
    if (sp_schedule_rows[i]->slices) {
      g_string_append_printf (out, "%s%s", separator, sp_schedule_rows[i]->name);
      separator = " or ";
    }
}

static const SpScheduleRule whole_rule = { "slices", is_whole, explain_whole };

const SpScheduleRule *
sp_schedule_broken_rule (const SpSchedule *schedule, const SpPipeline *pipeline)
{
  if (!schedule->chunked && !schedule->mirrored && !one_chunk (pipeline))
    return &one_chunk_rule;
  if (!schedule->slices && !is_whole (pipeline))
    return &whole_rule;
  for (guint i = 0; i < schedule->n_rules; i++)
    if (!schedule->rules[i].holds (pipeline))
      return &schedule->rules[i];
  return NULL;
}
