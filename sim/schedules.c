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

const SpScheduleRule *
sp_schedule_broken_rule (const SpSchedule *schedule, const SpPipeline *pipeline)
{
  if (!schedule->chunked && !schedule->mirrored && !one_chunk (pipeline))
    return &one_chunk_rule;
  for (guint i = 0; i < schedule->n_rules; i++)
    if (!schedule->rules[i].holds (pipeline))
      return &schedule->rules[i];
  return NULL;
}
