/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"

/* seqpar plan --sensitivity: what 1 % more of each part of the machine gives, and what a bigger memory would let in. */

#define SHARE 0.01

static gboolean
add_json (const SpPlanAsked *asked, const SpPlanSensitivity *sensitivity, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = sp_plan_ask_json ("sensitivity");

  sp_json_number (builder, "share", sensitivity->share);
  sp_json_bool (builder, "found", sensitivity->rows->len > 0);
  json_builder_set_member_name (builder, "resources");
  json_builder_begin_array (builder);
  for (guint i = 0; i < sensitivity->rows->len; i++) {
    const SpSensitivity *row = &g_array_index (sensitivity->rows, SpSensitivity, i);
    json_builder_begin_object (builder);
    sp_json_string (builder, "name", row->name);
    sp_json_string (builder, "keys", row->keys);
    sp_json_number (builder, "step_gain", row->gain);
    sp_json_number (builder, "planned_step_gain", row->planned_gain);
    sp_json_bool (builder, "changes_best", row->changes);
    if (row->changes)
      sp_result_layout_json (builder, &row->best.layout, &row->best.run);
    json_builder_end_object (builder);
  }
  json_builder_end_array (builder);
  sp_plan_members (builder, asked->estimator, sensitivity->plan);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

static char *
gain_text (double gain)
{
  return gain == 0 ? g_strdup ("0") : g_strdup_printf ("%.3f %%", 100 * gain);
}

static void
add_table (const SpPlanAsked *asked, const SpPlanSensitivity *sensitivity, GString *out)
{
  static const char *const head[] = { "1 % more", "step less", "with what is best then", "best then", "keys" };
  g_autoptr (SpTable) table = sp_table_new ("lrrll");

  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    sp_table_cell (table, head[i]);
  for (guint i = 0; i < sensitivity->rows->len; i++) {
    const SpSensitivity *row = &g_array_index (sensitivity->rows, SpSensitivity, i);
    sp_table_cell (table, row->name);
    sp_table_take (table, gain_text (row->gain));
    sp_table_take (table, gain_text (row->planned_gain));
    sp_table_take (table,
                   row->changes ? sp_plan_layout_text (&row->best.layout, asked->input->arch) : g_strdup ("the same"));
    sp_table_cell (table, row->keys);
  }
  sp_table_print (table, 0, out);
}

/* Memory pays in steps: by as much as the nearest layout lacks. */
static void
add_memory (const SpPlanAsked *asked, const SpPlan *plan, GString *out)
{
  const SpPlanEntry *best = sp_plan_best (plan), *nearest = &plan->nearest;

  if (!plan->has_nearest || nearest->estimate.step_time_s >= best->estimate.step_time_s)
    return;
  g_autofree char *layout = sp_plan_layout_text (&nearest->layout, asked->input->arch);
  g_autofree char *lacks = sp_plan_lack_text (nearest);
  g_string_append_printf (out, "memory pays by the piece: the next, %s, would take %.2f %% less and %s\n", layout,
                          100 * (1 - nearest->estimate.step_time_s / best->estimate.step_time_s), lacks);
}

static void
add_text (const SpPlanAsked *asked, const SpPlanSensitivity *sensitivity, GString *out)
{
  const SpPlanEntry *best = sp_plan_best (sensitivity->plan);

  if (best != NULL) {
    g_autofree char *layout = sp_plan_layout_text (&best->layout, asked->input->arch);
    g_autofree char *step = sp_text_seconds (best->estimate.step_time_s), *bound = sp_plan_bound (best);
    g_string_append_printf (out, "the best: %s, micro-batch %d, a step of %s\n%s\n\n", layout, best->run.micro_batch,
                            step, bound);
    add_table (asked, sensitivity, out);
    add_memory (asked, sensitivity->plan, out);
    g_string_append_c (out, '\n');
  }
  sp_plan_text (asked->input, asked->estimator, sensitivity->plan, out);
}

gboolean
sp_plan_ask_sensitivity (const SpPlanAsked *asked, GString *out, GError **error)
{
  g_autoptr (SpPlanSensitivity) sensitivity =
      sp_plan_sensitivity (asked->estimator, &asked->input->question, SHARE, error);

  if (sensitivity == NULL)
    return FALSE;
  if (asked->options->json)
    return add_json (asked, sensitivity, out, error);
  add_text (asked, sensitivity, out);
  return TRUE;
}
