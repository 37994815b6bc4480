/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"

/* seqpar plan --max-sequence: the longest sequence, and what is wrong with the next. */

static char *
tokens_text (gint64 tokens)
{
  g_autofree char *count = sp_text_count ((double) tokens);
  return tokens % 1024 == 0 ? g_strdup_printf ("%s (%" G_GINT64_FORMAT "K)", count, tokens / 1024)
                            : g_steal_pointer (&count);
}

static gboolean
add_json (const SpPlanAsked *asked, SpMaxSequence *max, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = sp_plan_ask_json ("max-sequence");
  const SpPlanEntry *next = sp_plan_best (max->next_plan);

  sp_json_bool (builder, "found", max->sequence > 0);
  sp_json_whole (builder, "sequence_tokens", (double) max->sequence);
  sp_json_whole (builder, "step_tokens", (double) max->step_tokens);
  sp_json_string (builder, "limited_by", sp_sequence_limits[max->limit]);
  sp_json_bool (builder, "monotonic", max->is_monotonic);
  sp_json_number (builder, "target_tokens_per_s", asked->input->target_tokens_per_s);
  sp_json_number (builder, "best_tokens_per_s", max->best_tokens_per_s);
  sp_json_whole (builder, "best_sequence_tokens", (double) max->best_sequence);
  if (max->next > 0) {
    sp_json_object (builder, "next");
    sp_json_whole (builder, "sequence_tokens", (double) max->next);
    sp_json_bool (builder, "fits", next != NULL);
    if (next != NULL)
      sp_json_number (builder, "tokens_per_s", next->estimate.tokens_per_s);
    else if (max->next_plan != NULL && max->next_plan->has_nearest)
      sp_json_whole (builder, "lacks_bytes",
                     max->next_plan->nearest.estimate.memory.total_bytes -
                         max->next_plan->nearest.estimate.capacity_bytes);
    json_builder_end_object (builder);
  }
  if (max->plan != NULL)
    sp_plan_members (builder, asked->estimator, max->plan);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

static void
add_next (const SpPlanAsked *asked, const SpMaxSequence *max, GString *out)
{
  g_autofree char *next = tokens_text (max->next);
  const SpPlanEntry *best = sp_plan_best (max->next_plan);

  if (max->limit == SP_LIMIT_RULES)
    g_string_append_printf (out, "of %s no layout is legal\n", next);
  if (max->limit == SP_LIMIT_MEMORY && max->next_plan->has_nearest) {
    const SpPlanEntry *nearest = &max->next_plan->nearest;
    g_autofree char *layout = sp_plan_layout_text (&nearest->layout, asked->input->arch);
    g_autofree char *lacks = sp_plan_lack_text (nearest);
    g_string_append_printf (out, "of %s nothing fits: what lacks least, %s, %s\n", next, layout, lacks);
  }
  if (max->limit == SP_LIMIT_RATE) {
    g_autofree char *rate = sp_text_count (best->estimate.tokens_per_s);
    g_string_append_printf (out, "of %s the quickest that fits has %s tokens/s\n", next, rate);
  }
  if (max->next == 0)
    g_string_append (out, "longer sequences are not asked\n");
}

static void
add_text (const SpPlanAsked *asked, SpMaxSequence *max, GString *out)
{
  g_autofree char *longest = tokens_text (max->sequence), *step = sp_text_count ((double) max->step_tokens);
  g_autofree char *target = sp_text_count (asked->input->target_tokens_per_s);
  g_autofree char *rate = sp_text_count (max->best_tokens_per_s), *at = tokens_text (max->best_sequence);
  gboolean has_target = asked->input->target_tokens_per_s > 0;

  if (max->sequence > 0)
    g_string_append_printf (out, "longest sequence%s%s%s: %s tokens, in steps of %s\n", has_target ? " at " : "",
                            has_target ? target : "", has_target ? " tokens/s" : "", longest, step);
  else
    g_string_append_printf (out, "NO SEQUENCE of a multiple of %s tokens %s%s%s\n", step,
                            has_target ? "reaches " : "fits", has_target ? target : "", has_target ? " tokens/s" : "");
  add_next (asked, max, out);
  if (has_target && max->sequence == 0 && max->best_tokens_per_s > 0)
    g_string_append_printf (out, "the most of the lengths looked at is %s tokens/s, at %s tokens\n", rate, at);
  if (!max->is_monotonic)
    g_string_append (out, "a shorter one failed where this one does not: there may be longer ones still\n");
  if (max->plan == NULL)
    return;
  SpPlanInput input = *asked->input;
  input.question.sequence = max->sequence;
  g_string_append_c (out, '\n');
  sp_plan_text (&input, asked->estimator, max->plan, out);
}

gboolean
sp_plan_ask_sequence (const SpPlanAsked *asked, GString *out, GError **error)
{
  g_autoptr (SpMaxSequence) max =
      sp_plan_max_sequence (asked->estimator, &asked->input->question, asked->input->target_tokens_per_s, error);
  if (max == NULL)
    return FALSE;
  if (asked->options->json)
    return add_json (asked, max, out, error);
  add_text (asked, max, out);
  return TRUE;
}
