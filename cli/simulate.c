/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar run SCENARIO --engine simulate: what a simulation says besides the estimate's figures. */
#include "cli/cli.h"

#define MOST_ROWS 16

static SpTime
sum_of (const SpTime axes[SP_N_AXES])
{
  SpTime sum = 0;

  for (guint a = 0; a < SP_N_AXES; a++)
    sum += axes[a];
  return sum;
}

/* A scope less than a step does not come to the step's peak. */
static gboolean
is_dated (const SpRoleReport *role)
{
  return role->peak_at != SP_TIME_NEVER;
}

/* Where a role's memory peaks, in words. Free with g_free. */
static char *
peak_place (const SpProgram *program, const SpRoleReport *role)
{
  const SpItem *item = &role->peak_item;

  if (role->peak_at == 0)
    return g_strdup ("start of the step");
  if (item->kind != SP_ITEM_LIST)
    return g_strdup_printf ("%s of %s", sp_item_name ((SpItemKind) item->kind),
                            item->backward ? "gradients" : "activations");
  g_autoptr (GString) out = g_string_new (sp_phase_name ((SpPhase) item->phase));
  if (item->micro_batch >= 0) {
    g_string_append (out, " of ");
    sp_program_append_number (program, item->micro_batch, out);
  }
  return g_string_free (g_steal_pointer (&out), FALSE);
}

/* --- for people --------------------------------------------------------------------------------------------------- */

/* Of each stage the role that is fullest, of equals the first; of one stage, places: all. */
static GArray *
shown_roles (const SpSimulation *run)
{
  GArray *shown = g_array_new (FALSE, FALSE, sizeof (gint32));

  for (gint32 r = 0; r < run->n_roles; r++) {
    gboolean is_fullest = TRUE;
    for (gint32 o = 0; o < run->n_roles && is_fullest; o++) {
      gint64 more = run->roles[o].peak_bytes - run->roles[r].peak_bytes;
      is_fullest = run->roles[o].stage != run->roles[r].stage || more < 0 || (more == 0 && o >= r);
    }
    if (is_fullest)
      g_array_append_val (shown, r);
  }
  return shown;
}

static void
add_roles (const SpSimulation *run, const SpProgram *program, GString *out)
{
  static const char *const head[] = { "stage",  "rank",    "alike", "kernels", "slowed", "host",
                                      "bubble", "exposed", "late",  "peak",    "at",     "in" };
  g_autoptr (SpTable) table = sp_table_new ("rrrrrrrrrrrl");
  g_autoptr (GArray) shown = shown_roles (run);
  guint n = MIN (shown->len, MOST_ROWS);

  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    sp_table_cell (table, head[i]);
  for (guint i = 0; i < n; i++) {
    const SpRoleReport *role = &run->roles[g_array_index (shown, gint32, i)];
    const SpTime exposed = sum_of (role->exposed), late = role->late;
    const SpTime times[] = { role->kernels, role->slowed, role->host, role->bubble, exposed, late };
    sp_table_take (table, g_strdup_printf ("%d", role->stage));
    sp_table_take (table, g_strdup_printf ("%d", role->rank));
    sp_table_take (table, g_strdup_printf ("%d", role->count - 1));
    for (guint t = 0; t < G_N_ELEMENTS (times); t++)
      sp_table_take (table, sp_text_seconds (sp_time_to_s (times[t])));
    sp_table_take (table, sp_text_bytes ((double) role->peak_bytes));
    sp_table_take (table, is_dated (role) ? sp_text_seconds (sp_time_to_s (role->peak_at)) : g_strdup ("-"));
    sp_table_take (table, peak_place (program, role));
  }
  g_string_append (out, "\nstages: the fullest GPU of each (kernels, and what they and the cursor waited, of it for "
                        "ranks that came late; memory peak)\n");
  sp_table_print (table, 2, out);
  if (n < shown->len)
    g_string_append_printf (out, "  and %u more stage%s\n", shown->len - n, sp_plural (shown->len - n));
}

static void
add_peak (const SpSimulated *s, const SpProgram *program, GString *out)
{
  g_autoptr (SpTable) table = sp_table_new ("rlll");
  guint n = MIN (s->peak->len, 8);

  for (guint i = 0; i < n; i++) {
    const SpLiveBuffer *row = &g_array_index (s->peak, SpLiveBuffer, i);
    sp_table_take (table, sp_text_bytes ((double) row->bytes));
    sp_table_cell (table, sp_class_name ((SpClass) row->class));
    sp_table_cell (table, sp_block_name ((SpBlockKind) program->variants[0].blocks[row->block].kind));
    sp_table_cell (table, sp_life_name ((SpLife) row->life));
  }
  g_string_append_printf (out, "\nwhat rank %d holds at its peak: class, kind of layer, life\n",
                          s->run->roles[s->fullest].rank);
  sp_table_print (table, 2, out);
}

static void
add_samples (const SpSimulated *s, GString *out)
{
  static const double quantiles[] = { 0, 0.05, 0.5, 0.95, 1 };
  static const char *const names[] = { "least", "5 %", "median", "95 %", "most" };
  g_autoptr (SpTable) table = sp_table_new ("lr");

  for (guint i = 0; i < G_N_ELEMENTS (quantiles); i++) {
    sp_table_cell (table, names[i]);
    sp_table_take (table, sp_text_seconds (sp_simulated_quantile (s, quantiles[i])));
  }
  g_string_append_printf (out, "\nstep time of %u sample%s\n", s->n_samples, sp_plural (s->n_samples));
  sp_table_print (table, 2, out);
}

void
sp_simulated_text (const SpSimulated *s, const SpProgram *program, GString *out)
{
  g_autofree char *tasks = sp_text_count ((double) s->run->n_tasks);

  g_string_append_printf (out, "\nsimulated %s task%s of %d role%s for %d GPU%s\n", tasks,
                          sp_plural (s->run->n_tasks), s->run->n_roles, sp_plural (s->run->n_roles), program->world,
                          sp_plural (program->world));
  add_roles (s->run, program, out);
  add_peak (s, program, out);
  if (s->n_samples > 1)
    add_samples (s, out);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void
add_role_json (JsonBuilder *builder, const SpProgram *program, const SpRoleReport *role)
{
  g_autofree char *place = peak_place (program, role);

  json_builder_begin_object (builder);
  sp_json_whole (builder, "rank", role->rank);
  sp_json_whole (builder, "stage", role->stage);
  sp_json_whole (builder, "gpus", role->count);
  sp_json_number (builder, "end_s", sp_time_to_s (role->end));
  sp_json_number (builder, "kernels_s", sp_time_to_s (role->kernels));
  sp_json_number (builder, "slowed_s", sp_time_to_s (role->slowed));
  sp_json_number (builder, "host_s", sp_time_to_s (role->host));
  sp_json_number (builder, "bubble_s", sp_time_to_s (role->bubble));
  sp_json_number (builder, "exposed_communication_s", sp_time_to_s (sum_of (role->exposed)));
  sp_json_number (builder, "late_s", sp_time_to_s (role->late));
  sp_json_whole (builder, "peak_bytes", (double) role->peak_bytes);
  if (is_dated (role))
    sp_json_number (builder, "peak_at_s", sp_time_to_s (role->peak_at));
  else
    sp_json_string (builder, "peak_at_s", NULL);
  sp_json_string (builder, "peak_in", place);
  sp_json_object (builder, "peak_by_class");
  for (guint c = 0; c < SP_CLASS_RESERVED; c++)
    sp_json_whole (builder, sp_class_name (c), (double) role->peak_by_class[c]);
  json_builder_end_object (builder);
  json_builder_end_object (builder);
}

static void
add_peak_json (JsonBuilder *builder, const SpSimulated *s, const SpProgram *program)
{
  json_builder_set_member_name (builder, "largest_at_peak");
  json_builder_begin_array (builder);
  for (guint i = 0; i < s->peak->len; i++) {
    const SpLiveBuffer *row = &g_array_index (s->peak, SpLiveBuffer, i);
    json_builder_begin_object (builder);
    sp_json_whole (builder, "bytes", (double) row->bytes);
    sp_json_string (builder, "class", sp_class_name ((SpClass) row->class));
    sp_json_string (builder, "block", sp_block_name ((SpBlockKind) program->variants[0].blocks[row->block].kind));
    sp_json_string (builder, "life", sp_life_name ((SpLife) row->life));
    json_builder_end_object (builder);
  }
  json_builder_end_array (builder);
}

static void
add_samples_json (JsonBuilder *builder, const SpSimulated *s)
{
  sp_json_object (builder, "samples");
  sp_json_whole (builder, "n", s->n_samples);
  sp_json_number (builder, "least_s", sp_simulated_quantile (s, 0));
  sp_json_number (builder, "p5_s", sp_simulated_quantile (s, 0.05));
  sp_json_number (builder, "median_s", sp_simulated_quantile (s, 0.5));
  sp_json_number (builder, "p95_s", sp_simulated_quantile (s, 0.95));
  sp_json_number (builder, "most_s", sp_simulated_quantile (s, 1));
  json_builder_end_object (builder);
}

void
sp_simulated_json (JsonBuilder *builder, const SpSimulated *s, const SpProgram *program)
{
  sp_json_object (builder, "simulation");
  sp_json_whole (builder, "gpus", program->world);
  sp_json_whole (builder, "tasks", (double) s->run->n_tasks);
  sp_json_whole (builder, "events", (double) s->run->n_events);
  json_builder_set_member_name (builder, "roles");
  json_builder_begin_array (builder);
  for (gint32 r = 0; r < s->run->n_roles; r++)
    add_role_json (builder, program, &s->run->roles[r]);
  json_builder_end_array (builder);
  add_peak_json (builder, s, program);
  add_samples_json (builder, s);
  json_builder_end_object (builder);
}
