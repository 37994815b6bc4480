/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"

/* seqpar plan --budget GPU-HOURS --tokens N: what trains so many tokens within it. */

static const SpPlanCost *
cost_at (const SpPlanBudget *budget, gint i)
{
  return i >= 0 ? &g_array_index (budget->costs, SpPlanCost, i) : NULL;
}

static char *
amount_text (double amount)
{
  return amount >= 1000 ? sp_text_count (amount) : g_strdup_printf ("%.3g", amount);
}

/* The first of its count: costs are in the order of plans, quickest first. */
static gboolean
is_first (const SpPlanBudget *budget, guint i)
{
  return i == 0 || cost_at (budget, (gint) i - 1)->gpus != cost_at (budget, (gint) i)->gpus;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void
add_cost_members (JsonBuilder *builder, const SpPlanCost *cost)
{
  sp_json_whole (builder, "gpus", cost->gpus);
  sp_json_number (builder, "days", cost->days);
  sp_json_number (builder, "gpu_hours", cost->gpu_hours);
  sp_json_number (builder, "margin", cost->margin);
  sp_json_bool (builder, "within", cost->margin >= 0);
}

static void
add_cost_json (JsonBuilder *builder, const SpPlanAsked *asked, const char *name, const SpPlanCost *cost)
{
  if (cost == NULL) {
    sp_json_string (builder, name, NULL);
    return;
  }
  sp_json_object (builder, name);
  add_cost_members (builder, cost);
  sp_plan_entry_json (builder, asked->estimator, cost->entry);
  json_builder_end_object (builder);
}

static gboolean
add_json (const SpPlanAsked *asked, const SpPlanBudget *budget, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = sp_plan_ask_json ("budget");

  sp_json_number (builder, "budget_gpu_hours", budget->gpu_hours);
  sp_json_number (builder, "tokens", budget->tokens);
  sp_json_bool (builder, "found", budget->best >= 0);
  add_cost_json (builder, asked, "best", cost_at (budget, budget->best));
  add_cost_json (builder, asked, "cheapest", cost_at (budget, budget->cheapest));
  sp_json_number (builder, "affordable_tokens", budget->affordable_tokens);
  json_builder_set_member_name (builder, "layouts");
  json_builder_begin_array (builder);
  for (guint i = 0; i < budget->costs->len; i++) {
    const SpPlanCost *cost = cost_at (budget, (gint) i);
    json_builder_begin_object (builder);
    add_cost_members (builder, cost);
    sp_result_layout_json (builder, &cost->entry->layout, &cost->entry->run);
    json_builder_end_object (builder);
  }
  json_builder_end_array (builder);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

/* --- for people --------------------------------------------------------------------------------------------------- */

static void
add_row (const SpPlanAsked *asked, const SpPlanCost *cost, guint within, SpTable *table)
{
  const SpEstimate *e = &cost->entry->estimate;

  sp_table_take (table, g_strdup_printf ("%d", cost->gpus));
  sp_table_take (table, sp_text_count (e->tokens_per_s));
  sp_table_take (table, sp_text_percent (e->mfu_causal));
  sp_table_take (table, amount_text (cost->days));
  sp_table_take (table, amount_text (cost->gpu_hours));
  sp_table_take (table, sp_text_percent (cost->margin));
  sp_table_take (table, g_strdup_printf ("%u", within));
  sp_table_take (table, sp_plan_layout_text (&cost->entry->layout, asked->input->arch));
}

static guint
count_within (const SpPlanBudget *budget, gint32 gpus)
{
  guint n = 0;

  for (guint i = 0; i < budget->costs->len; i++)
    n += cost_at (budget, (gint) i)->gpus == gpus && cost_at (budget, (gint) i)->margin >= 0;
  return n;
}

/* The quickest of each count; of a single count all. */
static void
add_table (const SpPlanAsked *asked, const SpPlanBudget *budget, GString *out)
{
  static const char *const head[] = { "GPUs",      "tokens/s", "MFU causal",     "days",
                                      "GPU-hours", "left",     "layouts within", "layout" };
  g_autoptr (SpTable) table = sp_table_new ("rrrrrrrl");
  gboolean single = budget->gpus->trials->len == 1;

  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    sp_table_cell (table, head[i]);
  for (guint i = 0; i < budget->costs->len; i++) {
    const SpPlanCost *cost = cost_at (budget, (gint) i);
    if (single || is_first (budget, i))
      add_row (asked, cost, single ? cost->margin >= 0 : count_within (budget, cost->gpus), table);
  }
  g_string_append_c (out, '\n');
  sp_table_print (table, 0, out);
  g_string_append_printf (out,
                          "of each number of GPUs the %s quickest layouts were looked at; tokens/s are those of the "
                          "step: no restarts, evaluations or checkpoints\n",
                          asked->options->top != NULL ? asked->options->top : "10");
}

static void
add_none (const SpPlanBudget *budget, GString *out)
{
  const SpPlanCost *cheapest = cost_at (budget, budget->cheapest);

  if (cheapest == NULL) {
    g_string_append (out, "NOTHING FITS on any number of GPUs that was looked at\n");
    return;
  }
  g_autofree char *need = amount_text (cheapest->gpu_hours), *tokens = sp_text_count (budget->affordable_tokens);
  g_autofree char *lack = sp_text_percent (-cheapest->margin), *days = amount_text (cheapest->days);
  g_string_append_printf (out,
                          "NOT WITHIN THE BUDGET. What would do: %s GPU-hours (%s more), %s days on %d GPUs; "
                          "or %s tokens\n",
                          need, lack, days, cheapest->gpus, tokens);
}

static void
add_text (const SpPlanAsked *asked, const SpPlanBudget *budget, GString *out)
{
  const SpPlanCost *best = cost_at (budget, budget->best), *cheapest = cost_at (budget, budget->cheapest);
  g_autofree char *tokens = sp_text_count (budget->tokens), *hours = amount_text (budget->gpu_hours);

  g_string_append_printf (out, "%s tokens within %s GPU-hours\n", tokens, hours);
  if (best == NULL) {
    add_none (budget, out);
  } else {
    g_autofree char *used = amount_text (best->gpu_hours), *left = sp_text_percent (best->margin);
    g_autofree char *layout = sp_plan_layout_text (&best->entry->layout, asked->input->arch);
    g_autofree char *days = amount_text (best->days);
    g_string_append_printf (
        out, "the best within it, by days: %s days on %d GPUs, %s GPU-hours, %s left: %s, micro-batch %d\n", days,
        best->gpus, used, left, layout, best->entry->run.micro_batch);
  }
  if (best != NULL && cheapest->gpu_hours < best->gpu_hours) {
    g_autofree char *used = amount_text (cheapest->gpu_hours), *left = sp_text_percent (cheapest->margin);
    g_autofree char *days = amount_text (cheapest->days);
    g_string_append_printf (out, "most left: %s days on %d GPUs, %s GPU-hours, %s left\n", days, cheapest->gpus, used,
                            left);
  }
  if (budget->costs->len > 0)
    add_table (asked, budget, out);
}

gboolean
sp_plan_ask_budget (const SpPlanAsked *asked, GString *out, GError **error)
{
  const SpPlanInput *input = asked->input;
  g_autoptr (SpPlanBudget) budget =
      sp_plan_budget (asked->estimator, &input->question, input->budget_gpu_hours, input->tokens, error);

  if (budget == NULL)
    return FALSE;
  if (asked->options->json)
    return add_json (asked, budget, out, error);
  add_text (asked, budget, out);
  return TRUE;
}
