/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"

/* What was found. */

#define EXPLAINED 3

/* --- JSON --------------------------------------------------------------------------------------------------------- */

void
sp_plan_entry_json (JsonBuilder *builder, const SpEstimator *estimator, const SpPlanEntry *entry)
{
  g_autoptr (GPtrArray) notes = sp_estimate_notes (estimator, &entry->layout, &entry->run);

  sp_result_layout_json (builder, &entry->layout, &entry->run);
  if (entry->simulated_s > 0)
    sp_json_number (builder, "simulated_step_s", entry->simulated_s);
  sp_result_json (builder, &entry->estimate, notes);
}

static double
lacks_bytes (const SpPlanEntry *entry)
{
  return entry->estimate.memory.total_bytes - entry->estimate.capacity_bytes;
}

/* How much quicker than the best a layout that was not simulated might be. */
static gboolean
gap_of (const SpPlan *plan, double *ret)
{
  if (plan->simulated == 0 || plan->entries->len == 0)
    return FALSE;
  double best = g_array_index (plan->entries, SpPlanEntry, 0).simulated_s;
  *ret = best > 0 ? MAX (0, 1 - plan->least_low_s / best) : 0;
  return best > 0;
}

static void
add_gap_json (JsonBuilder *builder, const SpPlan *plan)
{
  double gap;

  if (gap_of (plan, &gap)) {
    sp_json_number (builder, "gap", gap);
    return;
  }
  json_builder_set_member_name (builder, "gap");
  json_builder_add_null_value (builder);
}

static void
add_tie_json (JsonBuilder *builder, const SpPlanTies *ties, guint i)
{
  if (i < ties->compared)
    sp_json_bool (builder, "ties_with_best", ties->ties[i]);
  else
    sp_json_string (builder, "ties_with_best", NULL);
}

void
sp_plan_members (JsonBuilder *builder, const SpEstimator *estimator, SpPlan *plan)
{
  SpPlanTies ties;

  sp_plan_find_ties (estimator, plan, &ties);
  sp_json_whole (builder, "candidates", (double) plan->candidates);
  sp_json_whole (builder, "legal", (double) plan->legal);
  sp_json_whole (builder, "fitting", (double) plan->fitting);
  sp_json_whole (builder, "pruned", (double) plan->pruned);
  sp_json_whole (builder, "estimated", (double) plan->estimated);
  sp_json_whole (builder, "simulated", plan->simulated);
  add_gap_json (builder, plan);
  json_builder_set_member_name (builder, "layouts");
  json_builder_begin_array (builder);
  for (guint i = 0; i < plan->entries->len; i++) {
    json_builder_begin_object (builder);
    sp_plan_entry_json (builder, estimator, &g_array_index (plan->entries, SpPlanEntry, i));
    add_tie_json (builder, &ties, i);
    json_builder_end_object (builder);
  }
  json_builder_end_array (builder);
  if (ties.compared > 0)
    sp_json_whole (builder, "simplest_of_ties", ties.simplest + 1);
  else
    sp_json_string (builder, "simplest_of_ties", NULL);
  if (plan->has_nearest) {
    sp_plan_add_interval (estimator, &plan->nearest);
    sp_json_object (builder, "nearest_that_does_not_fit");
    sp_plan_entry_json (builder, estimator, &plan->nearest);
    sp_json_whole (builder, "lacks_bytes", lacks_bytes (&plan->nearest));
    json_builder_end_object (builder);
  } else {
    sp_json_string (builder, "nearest_that_does_not_fit", NULL);
  }
}

gboolean
sp_plan_json (const SpEstimator *estimator, SpPlan *plan, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  json_builder_begin_object (builder);
  sp_plan_members (builder, estimator, plan);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

/* --- for people --------------------------------------------------------------------------------------------------- */

static gint32
degree_of (const SpLayout *l, SpAxis axis)
{
  const gint32 degrees[SP_N_RANK_AXES] = {
    [SP_AXIS_TENSOR] = l->tensor, [SP_AXIS_ULYSSES] = l->ulysses, [SP_AXIS_RING] = l->ring,
    [SP_AXIS_LASP] = l->lasp,     [SP_AXIS_DATA] = l->data,       [SP_AXIS_PIPELINE] = l->pipeline,
  };
  return degrees[axis];
}

/* The axes above degree 1, nearest ranks first. */
static char *
order_text (const SpLayout *layout, const SpOrder *order)
{
  g_autoptr (GString) text = g_string_new (NULL);
  for (guint i = 0; i < SP_N_RANK_AXES; i++)
    if (degree_of (layout, order->axis[i]) > 1)
      g_string_append_printf (text, "%s%s", text->len > 0 ? "," : "", sp_axis_name (order->axis[i]));
  return g_strdup (text->str);
}

char *
sp_plan_layout_text (const SpLayout *layout, const SpArchitecture *arch)
{
  const SpLayout usual = SP_LAYOUT_DEFAULT;
  g_autofree char *text = sp_layout_describe (layout, arch);
  g_autofree char *order = order_text (layout, &layout->order);
  g_autofree char *usual_order = order_text (layout, &usual.order);
  return g_str_equal (order, usual_order) ? g_steal_pointer (&text) : g_strconcat (text, ", order ", order, NULL);
}

static void
add_header (const SpPlanInput *q, const SpPlan *plan, GString *out)
{
  const SpPlanQuestion *p = &q->question;
  g_autofree char *parameters = sp_text_count ((double) sp_architecture_parameters (q->arch));
  g_autofree char *sequence = sp_text_count ((double) p->sequence);
  g_autofree char *candidates = sp_text_count ((double) plan->candidates);
  g_autofree char *legal = sp_text_count ((double) plan->legal);
  g_autofree char *fitting = sp_text_count ((double) plan->fitting);
  g_autofree char *trained = sp_result_trained (&p->run, q->arch);
  g_string_append_printf (out, "%s (%s parameters), sequence %s tokens, global batch %d%s%s%s\n", q->arch->name,
                          parameters, sequence, p->global_batch, p->causal ? "" : ", not causal",
                          p->run.optimizer ? ", " : "", p->run.optimizer ? sp_optimizer_names[p->run.optimizer] : "");
  if (trained != NULL)
    g_string_append_printf (out, "%s\n", trained);
  gint32 all = sp_cli_gpus (q->cluster);
  g_autofree char *of = p->gpus > 0 && p->gpus < all ? g_strdup_printf (" of its %d", all) : g_strdup ("");
  g_string_append_printf (out, "%s: %d%s x %s, framework %s\n", q->cluster->name, p->gpus > 0 ? p->gpus : all, of,
                          q->cluster->device->name, q->framework->name);
  g_autofree char *share = sp_text_percent ((double) plan->pruned / MAX (1, (double) plan->candidates));
  g_autofree char *estimated = sp_text_count ((double) plan->estimated);
  g_string_append_printf (out, "%s layouts, %s pruned by bounds; of the others %s legal, %s estimated, %s fit\n",
                          candidates, share, legal, estimated, fitting);
}

static void
add_row (SpTable *table, guint rank, const SpPlanEntry *entry, gboolean simulated, const SpPlanTies *ties,
         const SpArchitecture *arch)
{
  const SpEstimate *e = &entry->estimate;
  sp_table_take (table, g_strdup_printf ("%u", rank));
  sp_table_take (table, sp_text_seconds (e->step_time_s));
  if (simulated)
    sp_table_take (table, entry->simulated_s > 0 ? sp_text_seconds (entry->simulated_s) : g_strdup ("-"));
  if (ties->compared > 0) {
    g_autofree char *low = sp_text_seconds (e->interval_s[0]), *high = sp_text_seconds (e->interval_s[1]);
    gboolean known = rank <= ties->compared;
    sp_table_take (table, known ? g_strdup_printf ("%s to %s", low, high) : g_strdup (""));
    sp_table_cell (table, !known ? "" : ties->ties[rank - 1] ? "yes" : "no");
  }
  sp_table_take (table, sp_text_count (e->tokens_per_s));
  sp_table_take (table, sp_text_percent (e->mfu));
  sp_table_take (table, sp_text_percent (e->mfu_causal));
  sp_table_take (table, sp_text_gib (e->memory.total_bytes));
  sp_table_take (table, sp_text_percent (e->memory.total_bytes / e->capacity_bytes));
  sp_table_take (table, g_strdup_printf ("%d", entry->run.micro_batch));
  sp_table_take (table, sp_plan_layout_text (&entry->layout, arch));
}

static void
add_gap (const SpPlan *plan, GString *out)
{
  double gap;

  if (!gap_of (plan, &gap))
    return;
  g_autofree char *share = sp_text_percent (gap), *low = sp_text_seconds (plan->least_low_s);
  g_string_append_printf (out, "%u of the best are simulated, and the quickest come first; ", plan->simulated);
  if (gap > 0)
    g_string_append_printf (out, "by the bounds one that is not might take %s (%s less)\n", low, share);
  else
    g_string_append (out, "by the bounds none that is not is quicker\n");
}

static void
add_ties (const SpPlan *plan, const SpPlanTies *ties, const SpArchitecture *arch, GString *out)
{
  if (ties->compared == 0)
    return;
  const SpPlanEntry *simplest = &g_array_index (plan->entries, SpPlanEntry, ties->simplest);
  g_autofree char *layout = sp_plan_layout_text (&simplest->layout, arch);
  if (ties->tied == 1)
    g_string_append_printf (out, "no other of the first %u ties with the best\n", ties->compared);
  else
    g_string_append_printf (out,
                            "%u of the first %u tie: what is not known of the curves may make up the difference; the "
                            "simplest is %u. %s\n",
                            ties->tied, ties->compared, ties->simplest + 1, layout);
}

/* Stripes for zigzag are not listed where they make no difference. */
static void
add_twins (const SpPlanInput *q, const SpPlan *plan, GString *out)
{
  gboolean any = FALSE;

  for (guint i = 0; i < plan->entries->len; i++) {
    const SpLayout *layout = &g_array_index (plan->entries, SpPlanEntry, i).layout;
    any |= layout->ring > 1 && layout->token_split == SP_TOKENS_ZIGZAG;
  }
  if (any && !(q->question.fixed & sp_plan_dimension ("ring-split")))
    g_string_append (out, "a layout with stripes in place of zigzag is listed only where that costs something else\n");
}

static void
add_table (const SpPlanInput *q, const SpPlan *plan, const SpPlanTies *ties, GString *out)
{
  static const char *const head[] = {
    "",    "step time",  "simulated",  "95 % interval", "ties with the best", "tokens/s",
    "MFU", "MFU causal", "memory GiB", "of GPU",        "micro-batch",        "layout"
  };
  gboolean simulated = plan->simulated > 0, tie = ties->compared > 0;
  g_autofree char *align = g_strconcat ("rr", simulated ? "r" : "", tie ? "rr" : "", "rrrrrrl", NULL);
  g_autoptr (SpTable) table = sp_table_new (align);
  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    if (i == 2 ? simulated : i == 3 || i == 4 ? tie : TRUE)
      sp_table_cell (table, head[i]);
  for (guint i = 0; i < plan->entries->len; i++)
    add_row (table, i + 1, &g_array_index (plan->entries, SpPlanEntry, i), simulated, ties, q->arch);
  g_string_append_c (out, '\n');
  sp_table_print (table, 0, out);
  add_gap (plan, out);
  add_ties (plan, ties, q->arch, out);
  add_twins (q, plan, out);
  g_string_append_printf (out,
                          "MFU counts attention over all pairs of tokens, MFU causal the half under the mask; "
                          "convention %s\n\nwhat bounds the best\n",
                          sp_mfu_names[q->convention]);
  for (guint i = 0; i < MIN (plan->entries->len, EXPLAINED); i++) {
    g_autofree char *bound = sp_plan_bound (&g_array_index (plan->entries, SpPlanEntry, i));
    g_string_append_printf (out, "  %u. %s\n", i + 1, bound);
  }
}

char *
sp_plan_lack_text (const SpPlanEntry *entry)
{
  g_autofree char *lacks = sp_text_bytes (lacks_bytes (entry));
  g_autofree char *capacity = sp_text_bytes (entry->estimate.capacity_bytes);
  return g_strdup_printf ("lacks %s on GPUs of %s", lacks, capacity);
}

static void
add_nearest (const SpPlan *plan, const SpArchitecture *arch, GString *out)
{
  if (!plan->has_nearest)
    return;
  const SpPlanEntry *entry = &plan->nearest;
  g_autofree char *layout = sp_plan_layout_text (&entry->layout, arch);
  g_autofree char *lacks = sp_text_bytes (lacks_bytes (entry));
  g_autofree char *exact = sp_text_count (lacks_bytes (entry));
  g_autofree char *capacity = sp_text_bytes (entry->estimate.capacity_bytes);
  g_autofree char *time = sp_text_seconds (entry->estimate.step_time_s);
  g_string_append_printf (out,
                          "\n%s\n  %s, micro-batch %d\n  lacks %s (%s bytes) on GPUs of %s; a step would take %s\n",
                          plan->fitting > 0 ? "nearest that does not fit" : "NOTHING FITS; what lacks least", layout,
                          entry->run.micro_batch, lacks, exact, capacity, time);
  if (plan->fitting == 0)
    g_string_append (out,
                     "  --min-gpus in place of --gpus asks on how many one fits, --max-sequence in place of --sequence "
                     "for how long a one\n");
}

void
sp_plan_text (const SpPlanInput *q, const SpEstimator *estimator, SpPlan *plan, GString *out)
{
  SpPlanTies ties;
  sp_plan_find_ties (estimator, plan, &ties);
  add_header (q, plan, out);
  if (plan->legal == 0 && !plan->has_nearest)
    g_string_append (out,
                     "\nNOTHING FITS: no layout is legal; seqpar show layout SCENARIO says which rule refuses one\n");
  if (plan->entries->len > 0)
    add_table (q, plan, &ties, out);
  add_nearest (plan, q->arch, out);
  const SpPlanEntry *first = plan->entries->len > 0 ? &g_array_index (plan->entries, SpPlanEntry, 0)
                             : plan->has_nearest    ? &plan->nearest
                                                    : NULL;
  if (first == NULL)
    return;
  g_autoptr (GPtrArray) notes = sp_estimate_notes (estimator, &first->layout, &first->run);
  g_string_append_printf (out, "\nrests on values that are at worst %s\n",
                          sp_provenance_name (first->estimate.provenance));
  sp_result_notes_text (notes, out);
}
