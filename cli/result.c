/* SPDX-License-Identifier: Apache-2.0 */
/* One estimate, as JSON and for people: shared by run and plan. */
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "models/inputs/ini.h"
#include "models/trained.h"

/* --- notes -------------------------------------------------------------------------------------------------------- */

void
sp_result_notes_text (const GPtrArray *notes, GString *out)
{
  if (notes->len > 0)
    g_string_append (out, "\nnotes\n");
  for (guint i = 0; i < notes->len; i++)
    g_string_append_printf (out, "  %s\n", (char *) notes->pdata[i]);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void
add_spread (JsonBuilder *builder, const char *name, const SpSpread *spread)
{
  sp_json_object (builder, name);
  sp_json_whole (builder, "min", spread->min);
  sp_json_whole (builder, "mean", spread->mean);
  sp_json_whole (builder, "max", spread->max);
  json_builder_end_object (builder);
}

static gboolean
communicates (const SpAxisCost *axis)
{
  return axis->messages > 0 || axis->payload_bytes.max > 0;
}

static void
add_memory (JsonBuilder *builder, const SpEstimate *e)
{
  sp_json_object (builder, "memory");
  sp_json_whole (builder, "peak_bytes", e->memory.total_bytes);
  sp_json_whole (builder, "capacity_bytes", e->capacity_bytes);
  sp_json_whole (builder, "host_bytes", e->host_bytes);
  sp_json_object (builder, "by_class");
  for (guint i = 0; i < SP_N_CLASSES; i++)
    sp_json_whole (builder, sp_class_name (i), e->memory.by_class[i]);
  json_builder_end_object (builder);
  json_builder_end_object (builder);
}

static void
add_communication (JsonBuilder *builder, const SpEstimate *e)
{
  sp_json_object (builder, "communication");
  sp_json_object (builder, "by_axis");
  for (guint i = 0; i < SP_N_AXES; i++) {
    const SpAxisCost *axis = &e->axes[i];
    if (!communicates (axis))
      continue;
    sp_json_object (builder, sp_axis_name (i));
    add_spread (builder, "payload_bytes_per_gpu", &axis->payload_bytes);
    add_spread (builder, "wire_bytes_per_gpu", &axis->wire_bytes);
    sp_json_whole (builder, "messages", axis->messages);
    sp_json_number (builder, "time_s", axis->time_s);
    sp_json_number (builder, "exposed_s", axis->exposed_s);
    json_builder_end_object (builder);
  }
  json_builder_end_object (builder);
  json_builder_end_object (builder);
}

static void
add_time (JsonBuilder *builder, const SpEstimate *e)
{
  sp_json_object (builder, "time");
  sp_json_number (builder, "compute_s", e->compute_s);
  sp_json_number (builder, "exposed_communication_s", e->exposed_communication_s);
  sp_json_number (builder, "bubble_s", e->bubble_s);
  sp_json_number (builder, "host_s", e->host_s);
  sp_json_number (builder, "host_issue_s", e->host_issue_s);
  sp_json_bool (builder, "host_bound", e->is_host_bound);
  sp_json_number (builder, "idle_s", e->idle_s);
  json_builder_end_object (builder);
}

/* null without a fitted profile. */
static void
add_interval (JsonBuilder *builder, const char *key, const double interval_s[2])
{
  if (interval_s[1] == 0) {
    sp_json_string (builder, key, NULL);
    return;
  }
  json_builder_set_member_name (builder, key);
  json_builder_begin_array (builder);
  for (guint i = 0; i < 2; i++)
    json_builder_add_double_value (builder, interval_s[i]);
  json_builder_end_array (builder);
}

void
sp_result_json (JsonBuilder *builder, const SpEstimate *e, const GPtrArray *notes)
{
  sp_json_bool (builder, "fits", e->fits);
  sp_json_number (builder, "step_time_s", e->step_time_s);
  sp_json_number (builder, "step_time_low_s", e->low_s);
  sp_json_number (builder, "step_time_serial_s", e->serial_s);
  sp_json_number (builder, "step_time_high_s", e->high_s);
  add_interval (builder, "interval_s", e->interval_s);
  add_interval (builder, "interval_curves_s", e->interval_parts_s[SP_PART_CURVES]);
  add_interval (builder, "interval_cards_s", e->interval_parts_s[SP_PART_CARDS]);
  sp_json_number (builder, "tokens_per_s", e->tokens_per_s);
  sp_json_number (builder, "mfu", e->mfu);
  sp_json_number (builder, "mfu_causal", e->mfu_causal);
  sp_json_number (builder, "hfu", e->hfu);
  add_memory (builder, e);
  add_communication (builder, e);
  add_time (builder, e);
  sp_json_string (builder, "provenance", sp_provenance_name (e->provenance));
  sp_json_strings (builder, "notes", notes);
}

/* --- a scenario's groups as JSON ---------------------------------------------------------------------------------- */

static void
add_value (JsonBuilder *builder, const char *key, const char *value)
{
  double tokens;
  gboolean number = !g_str_equal (key, "stage-split") && sp_parse_quantity (value, SP_UNIT_TOKENS, &tokens, NULL);
  if (number)
    sp_json_whole (builder, key, tokens);
  else if (g_str_equal (value, "true") || g_str_equal (value, "false"))
    sp_json_bool (builder, key, *value == 't');
  else
    sp_json_string (builder, key, value);
}

void
sp_result_group_json (JsonBuilder *builder, const SpScenario *scenario, const char *group)
{
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GKeyFile) file = g_key_file_new ();
  sp_scenario_write (scenario, text);
  g_key_file_load_from_data (file, text->str, text->len, G_KEY_FILE_NONE, NULL);
  g_auto (GStrv) keys = g_key_file_get_keys (file, group, NULL, NULL);
  gboolean files = g_str_equal (group, "model") || g_str_equal (group, "cluster");
  for (guint i = 0; keys != NULL && keys[i] != NULL; i++) {
    g_autofree char *value = g_key_file_get_value (file, group, keys[i], NULL);
    if (files || g_str_equal (keys[i], "framework"))
      sp_json_string (builder, keys[i], value);
    else
      add_value (builder, keys[i], value);
  }
}

void
sp_result_layout_json (JsonBuilder *builder, const SpLayout *layout, const SpRun *run)
{
  char none[] = "none";
  const SpScenario scenario = {
    .model_path = none,
    .cluster_path = none,
    .framework_path = none,
    .layout = *layout,
    .run = *run,
  };
  sp_json_object (builder, "layout");
  sp_result_group_json (builder, &scenario, "layout");
  sp_json_whole (builder, "micro-batch", run->micro_batch);
  json_builder_end_object (builder);
}

/* --- for people --------------------------------------------------------------------------------------------------- */

char *
sp_result_trained (const SpRun *run, const SpArchitecture *arch)
{
  g_autofree char *what = sp_run_describe_trained (run, arch);
  if (what == NULL)
    return NULL;
  gint64 trained = sp_run_trained_parameters (run, arch);
  gint64 all = sp_architecture_parameters (arch) + (run->lora_rank > 0 ? trained : 0);
  g_autofree char *part = sp_text_count ((double) trained), *whole = sp_text_count ((double) all);
  return g_strdup_printf ("%s: %s of %s parameters trained (%.2f %%)", what, part, whole,
                          100.0 * (double) trained / (double) all);
}

static char *
text_spread (const SpSpread *spread)
{
  g_autofree char *min = sp_text_bytes (spread->min);
  g_autofree char *max = sp_text_bytes (spread->max);
  if (g_str_equal (min, max))
    return g_steal_pointer (&max);
  g_autofree char *mean = sp_text_bytes (spread->mean);
  return g_strdup_printf ("%s (%s to %s)", mean, min, max);
}

static void
add_memory_text (const SpEstimate *e, GString *out)
{
  g_autoptr (SpTable) table = sp_table_new ("lrr");
  for (guint i = 0; i < SP_N_CLASSES; i++) {
    sp_table_cell (table, sp_class_name (i));
    sp_table_take (table, sp_text_gib (e->memory.by_class[i]));
    sp_table_take (table, sp_text_percent (e->memory.by_class[i] / e->capacity_bytes));
  }
  sp_table_cell (table, "total");
  sp_table_take (table, sp_text_gib (e->memory.total_bytes));
  sp_table_take (table, sp_text_percent (e->memory.total_bytes / e->capacity_bytes));
  sp_table_cell (table, "capacity");
  sp_table_take (table, sp_text_gib (e->capacity_bytes));
  sp_table_cell (table, "");

  g_string_append_printf (out, "\nmemory of the fullest GPU, GiB (stage %d, %s)\n", e->memory.stage,
                          e->memory.moment != NULL ? e->memory.moment : "at its peak");
  sp_table_print (table, 2, out);
  if (e->host_bytes > 0) {
    g_autofree char *host = sp_text_bytes (e->host_bytes);
    g_string_append_printf (out, "  and %s of the host's memory\n", host);
  }
}

static void
add_communication_text (const SpEstimate *e, GString *out)
{
  g_autoptr (SpTable) table = sp_table_new ("lrrrrr");
  guint n = 0;
  static const char *const head[] = { "axis", "payload", "on links", "messages", "time", "exposed" };
  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    sp_table_cell (table, head[i]);
  for (guint i = 0; i < SP_N_AXES; i++) {
    const SpAxisCost *axis = &e->axes[i];
    if (!communicates (axis))
      continue;
    n++;
    sp_table_cell (table, sp_axis_name (i));
    sp_table_take (table, text_spread (&axis->payload_bytes));
    sp_table_take (table, text_spread (&axis->wire_bytes));
    sp_table_take (table, sp_text_count (axis->messages));
    sp_table_take (table, sp_text_seconds (axis->time_s));
    sp_table_take (table, sp_text_seconds (axis->exposed_s));
  }
  g_string_append (out, n > 0 ? "\ncommunication of one GPU in a step\n" : "\nno communication\n");
  if (n > 0)
    sp_table_print (table, 2, out);
}

static void
add_time_text (const SpEstimate *e, GString *out)
{
  const struct {
    const char *name;
    double seconds;
  } rows[] = {
    { "compute", e->compute_s }, { "exposed communication", e->exposed_communication_s },
    { "bubble", e->bubble_s },   { "host", e->host_s },
    { "idle", e->idle_s },       { "step", e->step_time_s },
  };
  g_autoptr (SpTable) table = sp_table_new ("lrr");
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    sp_table_cell (table, rows[i].name);
    sp_table_take (table, sp_text_seconds (rows[i].seconds));
    sp_table_take (table, sp_text_percent (e->step_time_s > 0 ? rows[i].seconds / e->step_time_s : 0));
  }
  g_string_append (out, "\ntime\n");
  sp_table_print (table, 2, out);
  if (e->is_host_bound) {
    g_autofree char *issue = sp_text_seconds (e->host_issue_s);
    g_string_append_printf (out, "  bound by the host, which needs %s to issue a step\n", issue);
  }
}

static void
add_verdict (const SpEstimate *e, GString *out)
{
  g_autofree char *used = sp_text_bytes (e->memory.total_bytes);
  g_autofree char *capacity = sp_text_bytes (e->capacity_bytes);
  double left = e->capacity_bytes - e->memory.total_bytes;
  g_autofree char *gap = sp_text_bytes (fabs (left));
  g_autofree char *exact = sp_text_count (fabs (left));
  if (e->fits)
    g_string_append_printf (out, "\nfits: %s of %s, %s left\n", used, capacity, gap);
  else if (left >= 0) {
    g_autofree char *host = sp_text_bytes (e->host_bytes);
    g_string_append_printf (out, "\nDOES NOT FIT: %s of host memory a GPU is more than its node has\n", host);
  } else
    g_string_append_printf (out, "\nDOES NOT FIT: %s of %s, lacks %s (%s bytes)\n", used, capacity, gap, exact);
}

/* Half of the width, of the step. */
static double
give_or_take (const SpEstimate *e, SpIntervalPart part)
{
  return (e->interval_parts_s[part][1] - e->interval_parts_s[part][0]) / 2 / e->step_time_s;
}

static char *
interval_text (const SpEstimate *e)
{
  double cards = give_or_take (e, SP_PART_CARDS);
  g_autofree char *from = sp_text_seconds (e->interval_s[0]), *to = sp_text_seconds (e->interval_s[1]);
  g_autofree char *parts = cards > 0 ? g_strdup_printf (" (%.1f %%), and of which cards and their clocks (%.1f %%)",
                                                        100 * give_or_take (e, SP_PART_CURVES), 100 * cards)
                                     : g_strdup ("");

  return g_strdup_printf (
      "%s to %s   (95 %%, of the profile's curves, which %.0f %% of the step rests on%s; not of the "
      "model)",
      from, to, 100 * e->interval_share, parts);
}

static void
add_speed (const SpEstimate *e, SpMfuConvention convention, GString *out)
{
  const double bounds[] = { e->step_time_s, e->low_s, e->serial_s, e->high_s };
  g_autoptr (SpTable) table = sp_table_new ("ll");
  g_auto (GStrv) text = g_new0 (char *, G_N_ELEMENTS (bounds) + 1);
  for (guint i = 0; i < G_N_ELEMENTS (bounds); i++)
    text[i] = sp_text_seconds (bounds[i]);
  sp_table_cell (table, "step time");
  sp_table_take (table, g_strdup_printf ("%s   (low %s, serial %s, high %s)", text[0], text[1], text[2], text[3]));
  if (e->interval_s[1] > 0) {
    sp_table_cell (table, "interval");
    sp_table_take (table, interval_text (e));
  }
  sp_table_cell (table, "tokens/s");
  g_autofree char *tokens = sp_text_count (e->tokens_per_s);
  sp_table_take (table, g_strdup_printf ("%s   (all GPUs)", tokens));
  sp_table_cell (table, "MFU");
  sp_table_take (table,
                 g_strdup_printf ("%.1f %%   (attention over all pairs; %.1f %% over the causal half; convention %s)",
                                  e->mfu * 100, e->mfu_causal * 100, sp_mfu_names[convention]));
  sp_table_cell (table, "HFU");
  sp_table_take (
      table,
      g_strdup_printf ("%.1f %%   (what the kernels compute: the causal half where they skip the rest, and recompute)",
                       e->hfu * 100));
  sp_table_print (table, 0, out);
}

void
sp_result_text (const SpEstimate *e, SpMfuConvention convention, GString *out)
{
  add_verdict (e, out);
  add_speed (e, convention, out);
  add_memory_text (e, out);
  add_communication_text (e, out);
  add_time_text (e, out);
  g_string_append_printf (out, "\nrests on values that are at worst %s\n", sp_provenance_name (e->provenance));
}
