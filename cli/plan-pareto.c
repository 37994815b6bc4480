/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"
#include "cli/ranks.h"
#include "models/inputs/csv.h"

/* seqpar plan --pareto: what is best in time, memory of a GPU and number of GPUs; also as rows for seqpar plot. */

#define STEP_SHARE 0.01 /* of a GPU's memory: layouts closer together differ by less than an allocator's mood */

static const SpParetoPoint *
point_at (const GArray *points, guint i)
{
  return &g_array_index (points, SpParetoPoint, i);
}

double
sp_plan_pareto_step (const SpCluster *cluster)
{
  return STEP_SHARE * cluster->device->memory_bytes.value;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

GString *
sp_plan_pareto_csv (const SpEstimator *estimator, const SpPlanQuestion *q, const GArray *points)
{
  GString *text = g_string_new ("gpus,step_time_s,tokens_per_s,mfu_causal,peak_bytes,capacity_bytes,micro_batch,layout,"
                                "sequence_tokens,global_batch,model,cluster,device,framework,provenance\n");
  for (guint i = 0; i < points->len; i++) {
    const SpPlanEntry *entry = &point_at (points, i)->entry;
    const SpEstimate *e = &entry->estimate;
    g_autofree char *layout = sp_plan_layout_text (&entry->layout, estimator->arch);
    g_autoptr (GString) line = g_string_new (NULL);
    g_string_append_printf (line, "%d,%.9g,%.9g,%.9g,%.0f,%.0f,%d", point_at (points, i)->gpus, e->step_time_s,
                            e->tokens_per_s, e->mfu_causal, e->memory.total_bytes, e->capacity_bytes,
                            entry->run.micro_batch);
    sp_csv_append (line, layout);
    g_string_append_printf (line, ",%" G_GINT64_FORMAT ",%d", q->sequence, q->global_batch);
    sp_csv_append (line, estimator->arch->name);
    sp_csv_append (line, estimator->cluster->name);
    sp_csv_append (line, estimator->cluster->device->name);
    sp_csv_append (line, estimator->framework->name);
    sp_csv_append (line, sp_provenance_name (e->provenance));
    g_string_append_printf (text, "%s\n", line->str);
  }
  return text;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static gboolean
add_json (const SpPlanAsked *asked, const SpPareto *pareto, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = sp_plan_ask_json ("pareto");

  sp_json_bool (builder, "found", pareto->points->len > 0);
  sp_json_whole (builder, "step_bytes", pareto->step_bytes);
  json_builder_set_member_name (builder, "points");
  json_builder_begin_array (builder);
  for (guint i = 0; i < pareto->points->len; i++) {
    const SpParetoPoint *point = point_at (pareto->points, i);
    json_builder_begin_object (builder);
    sp_json_whole (builder, "gpus", point->gpus);
    sp_plan_entry_json (builder, asked->estimator, &point->entry);
    json_builder_end_object (builder);
  }
  json_builder_end_array (builder);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

/* --- for people --------------------------------------------------------------------------------------------------- */

static void
add_text (const SpPlanAsked *asked, const SpPareto *pareto, GString *out)
{
  static const char *const head[] = {
    "GPUs", "step time", "tokens/s", "memory GiB", "of GPU", "micro-batch", "layout"
  };
  g_autofree char *step = sp_text_bytes (pareto->step_bytes);
  g_autoptr (SpTable) table = sp_table_new ("rrrrrrl");

  if (pareto->points->len == 0) {
    g_string_append (out, "NOTHING FITS on any number of GPUs that was looked at\n");
    return;
  }
  g_string_append_printf (
      out, "layouts that none beats in step time and memory of a GPU%s, at least %s apart; %u searches\n\n",
      asked->input->question.gpus > 0 ? "" : " on as few GPUs", step, pareto->searches);
  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    sp_table_cell (table, head[i]);
  for (guint i = 0; i < pareto->points->len; i++) {
    const SpPlanEntry *entry = &point_at (pareto->points, i)->entry;
    const SpEstimate *e = &entry->estimate;
    sp_table_take (table, g_strdup_printf ("%d", point_at (pareto->points, i)->gpus));
    sp_table_take (table, sp_text_seconds (e->step_time_s));
    sp_table_take (table, sp_text_count (e->tokens_per_s));
    sp_table_take (table, sp_text_gib (e->memory.total_bytes));
    sp_table_take (table, sp_text_percent (e->memory.total_bytes / e->capacity_bytes));
    sp_table_take (table, g_strdup_printf ("%d", entry->run.micro_batch));
    sp_table_take (table, sp_plan_layout_text (&entry->layout, asked->input->arch));
  }
  sp_table_print (table, 0, out);
}

gboolean
sp_plan_ask_pareto (const SpPlanAsked *asked, GString *out, GError **error)
{
  const SpPlanQuestion *q = &asked->input->question;
  const char *csv = asked->options->csv;

  if (csv != NULL && !sp_cli_check_writable (csv, error))
    return FALSE;
  g_autoptr (SpPareto) pareto =
      sp_plan_pareto (asked->estimator, q, sp_plan_pareto_step (asked->estimator->cluster), error);
  if (pareto == NULL)
    return FALSE;
  g_autoptr (GString) rows = csv != NULL ? sp_plan_pareto_csv (asked->estimator, q, pareto->points) : NULL;
  if (csv != NULL && sp_ranks_is_first (asked->input->question.ranks) && !sp_cli_write_file (csv, rows, error))
    return FALSE;
  if (asked->options->json)
    return add_json (asked, pareto, out, error);
  add_text (asked, pareto, out);
  return TRUE;
}
