/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"

/* seqpar plan --min-gpus and --target-tokens-per-s: numbers of GPUs, what the best layout of each reaches, and which
 * will do. */

static const SpPlanTrial *
trial_at (const SpPlanGpus *gpus, gint i)
{
  return i >= 0 ? gpus->trials->pdata[i] : NULL;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void
add_count (JsonBuilder *builder, const char *name, const SpPlanTrial *trial)
{
  if (trial != NULL)
    sp_json_whole (builder, name, trial->gpus);
  else
    sp_json_string (builder, name, NULL);
}

static void
add_trial_json (JsonBuilder *builder, const SpPlanGpus *gpus, const SpPlanTrial *trial)
{
  const SpPlanEntry *best = sp_plan_best (trial->plan);

  json_builder_begin_object (builder);
  sp_json_whole (builder, "gpus", trial->gpus);
  sp_json_bool (builder, "legal", trial->plan != NULL);
  sp_json_bool (builder, "fits", best != NULL);
  sp_json_bool (builder, "reaches", sp_plan_trial_reaches (trial, gpus->target_tokens_per_s));
  if (best != NULL) {
    sp_json_number (builder, "step_time_s", best->estimate.step_time_s);
    sp_json_number (builder, "tokens_per_s", best->estimate.tokens_per_s);
    sp_json_number (builder, "gpu_s_per_token", sp_plan_gpu_s_per_token (trial, best));
  } else if (trial->plan != NULL && trial->plan->has_nearest) {
    sp_json_whole (builder, "lacks_bytes",
                   trial->plan->nearest.estimate.memory.total_bytes - trial->plan->nearest.estimate.capacity_bytes);
  }
  json_builder_end_object (builder);
}

static gboolean
add_json (const SpPlanAsked *asked, const SpPlanGpus *gpus, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = sp_plan_ask_json (asked->options->min_gpus ? "min-gpus" : "target-tokens-per-s");
  const SpPlanTrial *answer = trial_at (gpus, gpus->fewest);

  sp_json_bool (builder, "found", answer != NULL);
  sp_json_number (builder, "target_tokens_per_s", gpus->target_tokens_per_s);
  add_count (builder, "fewest_gpus", answer);
  if (!asked->options->min_gpus)
    add_count (builder, "cheapest_gpus", trial_at (gpus, gpus->cheapest));
  json_builder_set_member_name (builder, "counts");
  json_builder_begin_array (builder);
  for (guint i = 0; i < gpus->trials->len; i++)
    add_trial_json (builder, gpus, gpus->trials->pdata[i]);
  json_builder_end_array (builder);
  if (answer != NULL)
    sp_plan_members (builder, asked->estimator, answer->plan);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

/* --- for people --------------------------------------------------------------------------------------------------- */

static void
add_row (const SpPlanAsked *asked, const SpPlanGpus *gpus, const SpPlanTrial *trial, SpTable *table)
{
  const SpPlanEntry *best = sp_plan_best (trial->plan), *nearest = trial->plan != NULL ? &trial->plan->nearest : NULL;
  gboolean reaches = sp_plan_trial_reaches (trial, gpus->target_tokens_per_s);

  sp_table_take (table, g_strdup_printf ("%d", trial->gpus));
  if (best == NULL) {
    for (guint i = 0; i < 4; i++)
      sp_table_cell (table, "");
    sp_table_take (table, trial->plan == NULL     ? g_strdup ("no layout is legal")
                          : nearest->run.sequence ? sp_plan_lack_text (nearest)
                                                  : g_strdup ("nothing fits"));
    sp_table_cell (table, "");
    return;
  }
  g_autofree char *us = g_strdup_printf ("%.4g", 1e6 * sp_plan_gpu_s_per_token (trial, best));
  sp_table_take (table, sp_text_seconds (best->estimate.step_time_s));
  sp_table_take (table, sp_text_count (best->estimate.tokens_per_s));
  sp_table_cell (table, us);
  sp_table_take (table, sp_text_gib (best->estimate.memory.total_bytes));
  sp_table_cell (table, reaches ? "yes" : "too slow");
  sp_table_take (table, sp_plan_layout_text (&best->layout, asked->input->arch));
}

static void
add_table (const SpPlanAsked *asked, const SpPlanGpus *gpus, GString *out)
{
  static const char *const head[] = { "GPUs",       "step time", "tokens/s",   "GPU us a token",
                                      "memory GiB", "will do",   "best layout" };
  g_autoptr (SpTable) table = sp_table_new ("rrrrrll");

  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    sp_table_cell (table, head[i]);
  for (guint i = 0; i < gpus->trials->len; i++)
    add_row (asked, gpus, gpus->trials->pdata[i], table);
  g_string_append_c (out, '\n');
  sp_table_print (table, 0, out);
}

static void
add_answer (const SpPlanAsked *asked, const SpPlanGpus *gpus, GString *out)
{
  const SpPlanTrial *fewest = trial_at (gpus, gpus->fewest), *cheapest = trial_at (gpus, gpus->cheapest);
  const SpPlanTrial *quickest = trial_at (gpus, gpus->quickest);
  g_autofree char *target = sp_text_count (gpus->target_tokens_per_s);
  g_autofree char *reach =
      gpus->target_tokens_per_s > 0 ? g_strdup_printf ("reach %s tokens/s", target) : g_strdup ("hold it");

  if (fewest != NULL) {
    g_string_append_printf (out, "fewest GPUs that %s: %d\n", reach, fewest->gpus);
    if (!asked->options->min_gpus && cheapest != fewest)
      g_string_append_printf (out, "least GPU time a token: on %d GPUs\n", cheapest->gpus);
    return;
  }
  g_string_append_printf (out, "NO NUMBER OF GPUs that was looked at will %s\n", reach);
  if (quickest == NULL)
    return;
  g_autofree char *most = sp_text_count (sp_plan_best (quickest->plan)->estimate.tokens_per_s);
  g_string_append_printf (out, "the most is %s tokens/s, on %d GPUs\n", most, quickest->gpus);
}

static void
add_text (const SpPlanAsked *asked, const SpPlanGpus *gpus, GString *out)
{
  const SpPlanTrial *answer = trial_at (gpus, gpus->fewest);

  add_answer (asked, gpus, out);
  add_table (asked, gpus, out);
  if (answer == NULL)
    return;
  SpPlanInput input = *asked->input;
  input.question.gpus = answer->gpus;
  g_string_append_c (out, '\n');
  sp_plan_text (&input, asked->estimator, answer->plan, out);
}

gboolean
sp_plan_ask_gpus (const SpPlanAsked *asked, GString *out, GError **error)
{
  g_autoptr (SpPlanGpus) gpus = sp_plan_gpus (asked->estimator, &asked->input->question,
                                              asked->input->target_tokens_per_s, asked->options->min_gpus, error);
  if (gpus == NULL)
    return FALSE;
  if (asked->options->json)
    return add_json (asked, gpus, out, error);
  add_text (asked, gpus, out);
  return TRUE;
}
