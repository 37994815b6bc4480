/* SPDX-License-Identifier: Apache-2.0 */
/* An explanation, for people and as JSON. */
#include <math.h>
#include <string.h>

#include "cli/explain.h"

/* Below, a difference is not worth a sentence: of the longer step, and of a GPU's memory. */
#define SMALL 0.01

/* --- sentences ---------------------------------------------------------------------------------------------------- */

static double
step_of (const SpExplanation *e, gboolean mine)
{
  return mine ? e->explained.mine_scale * e->mine.estimate.step_time_s
              : e->explained.other_scale * e->other.estimate.step_time_s;
}

static const char *
tie (const SpExplanation *e)
{
  return e->explained.per_token ? " of GPU time a token" : "";
}

static char *
step_sentence (const SpExplanation *e)
{
  double mine = step_of (e, TRUE), other = step_of (e, FALSE), more = mine - other;
  g_autofree char *one = sp_text_seconds (mine), *two = sp_text_seconds (other), *gap = sp_text_seconds (fabs (more));
  g_autofree char *percent = sp_text_percent (fabs (more) / other);

  if (e->explained.differences->len == 0)
    return g_strdup_printf ("yours is the %s layout: %s%s", e->other_name, one, tie (e));
  return g_strdup_printf ("yours takes %s%s, the %s %s: %s (%s) %s%s", one, tie (e), e->other_name, two, gap, percent,
                          more >= 0 ? "more" : "less",
                          more < 0 && g_str_equal (e->other_name, "best") && e->mine.estimate.fits
                              ? "; no layout of the search beats it"
                              : "");
}

/* Of an axis: how much of its own communication it hides; of what is computed again: its part of all kernels. */
static char *
hidden_text (const SpExplanation *e, guint term)
{
  if (term == SP_TERM_RECOMPUTE) {
    g_autofree char *part = sp_text_percent (e->mine.estimate.recompute_s / e->mine.estimate.compute_s);
    return g_strdup_printf ("; %s of all kernels' time, and their communication comes again", part);
  }
  if (term < SP_TERM_AXIS)
    return g_strdup ("");
  const SpAxisCost *axis = &e->mine.estimate.axes[term - SP_TERM_AXIS];
  if (axis->time_s <= 0)
    return g_strdup ("");
  double hidden = 1 - axis->exposed_s / axis->time_s;
  if (hidden < SMALL)
    return g_strdup ("; nothing of it is hidden");
  g_autofree char *percent = sp_text_percent (hidden);
  return g_strdup_printf ("; %s of the communication is hidden", percent);
}

static char *
time_sentence (const SpExplanation *e, guint term)
{
  const SpExplainedRow *row = &e->explained.time[term];
  g_autofree char *mine = sp_text_seconds (row->mine), *other = sp_text_seconds (row->other);
  g_autofree char *percent = sp_text_percent (row->mine / step_of (e, TRUE));
  g_autofree char *hidden = hidden_text (e, term);

  return g_strdup_printf ("%s: %s (%s of yours), in the %s %s: %s%s%s%s%s", sp_term_name (term), mine, percent,
                          e->other_name, other, sp_term_meaning (term), row->mine > 0 ? hidden : "",
                          row->keys != NULL ? " (" : "", row->keys != NULL ? row->keys : "",
                          row->keys != NULL ? ")" : "");
}

static char *
memory_sentence (const SpExplanation *e, guint class)
{
  const SpExplainedRow *row = &e->explained.memory[class];
  g_autofree char *mine = sp_text_bytes (row->mine), *other = sp_text_bytes (row->other);

  return g_strdup_printf ("memory of %s: %s, in the %s %s: %s%s%s%s", sp_class_name ((SpClass) class), mine,
                          e->other_name, other, sp_class_meaning (class), row->keys != NULL ? " (" : "",
                          row->keys != NULL ? row->keys : "", row->keys != NULL ? ")" : "");
}

static double
difference (const SpExplainedRow *row)
{
  return row->mine - row->other;
}

/* Sums of the same numbers in another order are not quite the same. */
#define ROUNDING 1e-12

/* Rows whose difference is at least `least`, largest first. */
static guint
sort_rows (const SpExplainedRow *rows, guint n, double least, guint *ret)
{
  guint found = 0;

  for (guint i = 0; i < n; i++) {
    if (fabs (difference (&rows[i])) < least)
      continue;
    guint at = found++;
    for (; at > 0 && fabs (difference (&rows[ret[at - 1]])) < fabs (difference (&rows[i])); at--)
      ret[at] = ret[at - 1];
    ret[at] = i;
  }
  return found;
}

static gboolean
is_state (guint class)
{
  return class == SP_CLASS_PARAMETERS || class == SP_CLASS_GRADIENTS || class == SP_CLASS_OPTIMIZER;
}

/* Does a GPU hold whole sequences between layers? */
static gboolean
holds_whole_sequences (const SpScenario *s)
{
  return sp_layout_sequence_ranks (&s->layout, s->arch) == 1 && (s->layout.tensor == 1 || !s->layout.sequence_regions);
}

/* Why it does not fit: what holds most, and what ZeRO could do about it. */
static void
add_misfit (const SpExplanation *e, GPtrArray *out)
{
  const SpEstimate *r = &e->mine.estimate;
  const SpScenario *s = &e->mine.scenario;
  double lacks = r->memory.total_bytes - r->capacity_bytes, states = 0;
  guint most = 0;

  for (guint c = 0; c < SP_N_CLASSES; c++) {
    most = r->memory.by_class[c] > r->memory.by_class[most] ? c : most;
    states += is_state (c) ? r->memory.by_class[c] : 0;
  }
  if (lacks <= 0) {
    g_autofree char *host = sp_text_bytes (r->host_bytes);
    g_ptr_array_add (out,
                     g_strdup_printf ("yours does not fit: %s of host memory a GPU is more than its node has", host));
    return;
  }
  g_autofree char *gap = sp_text_bytes (lacks), *held = sp_text_bytes (r->memory.by_class[most]);
  g_autofree char *all = sp_text_bytes (r->memory.total_bytes),
                  *percent = sp_text_percent (r->memory.by_class[most] / r->memory.total_bytes);
  g_ptr_array_add (out,
                   g_strdup_printf ("yours does not fit: it lacks %s. Most, %s of %s (%s), is %s: %s (stage %d, %s)",
                                    gap, held, all, percent, sp_class_name ((SpClass) most), sp_class_meaning (most),
                                    r->memory.stage, r->memory.moment != NULL ? r->memory.moment : "at its peak"));
  if (is_state (most))
    return;
  g_autofree char *state = sp_text_bytes (states);
  g_ptr_array_add (out, g_strdup_printf ("parameters, gradients and optimizer are %s of it%s", state,
                                         states < lacks ? ": without them it would not fit either, so sharding them "
                                                          "further is not enough"
                                                        : ""));
  if (holds_whole_sequences (s) && s->layout.data > 1)
    g_ptr_array_add (out, g_strdup_printf ("each GPU has whole sequences of %" G_GINT64_FORMAT
                                           " tokens: data parallelism, ZeRO and FSDP shard states, not activations, so "
                                           "more data ranks take no longer sequence; ulysses, ring, lasp, or tensor "
                                           "with sequence regions cut it, recompute keeps less of it",
                                           s->run.sequence));
}

/* Of char*. */
static GPtrArray *
sentences (const SpExplanation *e)
{
  GPtrArray *out = g_ptr_array_new_with_free_func (g_free);
  guint order[SP_N_TERMS + SP_N_CLASSES];

  if (!e->mine.estimate.fits)
    add_misfit (e, out);
  if (!e->has_other) {
    g_ptr_array_add (out, g_strdup ("no layout of the search fits this cluster"));
    return out;
  }
  if (!e->other.estimate.fits)
    g_ptr_array_add (out, g_strdup_printf ("the %s does not fit", e->other_name));
  g_ptr_array_add (out, step_sentence (e));
  guint n = sort_rows (e->explained.time, SP_N_TERMS, SMALL * MAX (step_of (e, TRUE), step_of (e, FALSE)), order);
  for (guint i = 0; i < n; i++)
    g_ptr_array_add (out, time_sentence (e, order[i]));
  n = sort_rows (e->explained.memory, SP_N_CLASSES, SMALL * e->mine.estimate.capacity_bytes, order);
  for (guint i = 0; i < n; i++)
    g_ptr_array_add (out, memory_sentence (e, order[i]));
  return out;
}

/* --- for people --------------------------------------------------------------------------------------------------- */

static void
add_side (SpTable *table, const char *name, const SpExplainSide *side)
{
  const SpEstimate *r = &side->estimate;

  sp_table_cell (table, name);
  sp_table_take (table, sp_text_seconds (r->step_time_s));
  sp_table_take (table, sp_text_count (r->tokens_per_s));
  sp_table_take (table, sp_text_percent (r->mfu));
  sp_table_take (table, sp_text_percent (r->mfu_causal));
  sp_table_take (table, sp_text_gib (r->memory.total_bytes));
  sp_table_take (table, r->fits ? sp_text_percent (r->memory.total_bytes / r->capacity_bytes) : g_strdup ("TOO MUCH"));
  sp_table_take (table, g_strdup_printf ("%d", side->scenario.run.micro_batch));
  sp_table_take (table, sp_plan_layout_text (&side->scenario.layout, side->scenario.arch));
}

/* Of what a side is: all but its layout. */
static char *
subject_of (const SpExplainSide *side)
{
  const SpScenario *s = &side->scenario;
  g_autofree char *sequence = sp_text_count ((double) s->run.sequence);

  return g_strdup_printf ("%s, sequence %s tokens, global batch %d, %s (%d x %s), framework %s", s->arch->name,
                          sequence, s->run.global_batch, s->cluster->name, sp_cli_gpus (s->cluster),
                          s->cluster->device->name, s->framework->name);
}

static void
add_sides (const SpExplanation *e, GString *out)
{
  static const char *const head[] = { "",           "step time", "tokens/s",    "MFU",   "MFU causal",
                                      "memory GiB", "of GPU",    "micro-batch", "layout" };
  g_autoptr (SpTable) table = sp_table_new ("lrrrrrrrl");

  g_autofree char *mine = subject_of (&e->mine), *other = e->has_other ? subject_of (&e->other) : NULL;
  if (g_strcmp0 (mine, other) == 0)
    g_string_append_printf (out, "both: %s\n", mine);
  else
    g_string_append_printf (out, "yours: %s\n", mine);
  if (other != NULL && !g_str_equal (mine, other))
    g_string_append_printf (out, "%s: %s\n", e->other_name, other);
  g_string_append_c (out, '\n');
  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    sp_table_cell (table, head[i]);
  add_side (table, "yours", &e->mine);
  if (e->has_other)
    add_side (table, e->other_name, &e->other);
  sp_table_print (table, 0, out);
}

static char *
signed_text (double value, char *(*text) (double) )
{
  g_autofree char *plain = text (fabs (value));

  if (value == 0)
    return g_steal_pointer (&plain);
  return g_strconcat (value < 0 ? "-" : "+", plain, NULL);
}

static void
add_row (SpTable *table, const char *name, const SpExplainedRow *row, char *(*text) (double) )
{
  sp_table_cell (table, name);
  sp_table_take (table, text (row->mine));
  sp_table_take (table, text (row->other));
  gboolean same = fabs (difference (row)) <= ROUNDING * MAX (row->mine, row->other);
  sp_table_take (table, signed_text (same ? 0 : difference (row), text));
}

static void
add_head (SpTable *table, const SpExplanation *e)
{
  sp_table_cell (table, "");
  sp_table_cell (table, "yours");
  sp_table_cell (table, e->other_name);
  sp_table_cell (table, "difference");
}

static void
add_time (const SpExplanation *e, GString *out)
{
  const SpExplainedRow step = { step_of (e, TRUE), step_of (e, FALSE), NULL };
  g_autoptr (SpTable) table = sp_table_new ("lrrr");

  add_head (table, e);
  for (guint t = 0; t < SP_N_TERMS; t++)
    if (e->explained.time[t].mine != 0 || e->explained.time[t].other != 0)
      add_row (table, sp_term_name (t), &e->explained.time[t], sp_text_seconds);
  add_row (table, "step", &step, sp_text_seconds);
  g_string_append_printf (
      out, "\ntime%s\n",
      e->explained.per_token ? ", GPU time a token (step x GPUs / tokens, as the runs do other work)" : " of a step");
  sp_table_print (table, 2, out);
}

static void
add_memory (const SpExplanation *e, GString *out)
{
  const SpExplainedRow total = { e->mine.estimate.memory.total_bytes, e->other.estimate.memory.total_bytes, NULL };
  const SpExplainedRow capacity = { e->mine.estimate.capacity_bytes, e->other.estimate.capacity_bytes, NULL };
  g_autoptr (SpTable) table = sp_table_new ("lrrr");

  add_head (table, e);
  for (guint c = 0; c < SP_N_CLASSES; c++)
    add_row (table, sp_class_name ((SpClass) c), &e->explained.memory[c], sp_text_gib);
  add_row (table, "total", &total, sp_text_gib);
  add_row (table, "capacity", &capacity, sp_text_gib);
  g_string_append (out, "\nmemory of the fullest GPU, GiB\n");
  sp_table_print (table, 2, out);
}

static char *
differences_text (const GPtrArray *differences)
{
  g_autoptr (GString) out = g_string_new (NULL);

  for (guint i = 0; i < differences->len; i++) {
    const SpKeyDifference *d = differences->pdata[i];
    g_string_append_printf (out, "%s%s = %s", i > 0 ? ", " : "", sp_key_difference_name (d),
                            d->other != NULL ? d->other : "left out");
  }
  return g_strdup (out->str);
}

static void
add_differences (const SpExplanation *e, GString *out)
{
  const GPtrArray *differences = e->explained.differences;
  g_autoptr (SpTable) table = sp_table_new ("lll");

  if (differences->len == 0)
    return;
  sp_table_cell (table, "");
  sp_table_cell (table, "yours");
  sp_table_cell (table, e->other_name);
  for (guint i = 0; i < differences->len; i++) {
    const SpKeyDifference *d = differences->pdata[i];
    sp_table_cell (table, sp_key_difference_name (d));
    sp_table_cell (table, d->mine != NULL ? d->mine : "-");
    sp_table_cell (table, d->other != NULL ? d->other : "-");
  }
  g_string_append (out, "\nkeys that differ\n");
  sp_table_print (table, 2, out);
}

static void
add_changes (const SpExplanation *e, GString *out)
{
  g_autoptr (SpTable) table = sp_table_new ("rrrrl");

  if (e->changes == NULL)
    return;
  if (e->changes->len == 0) {
    g_string_append_printf (out, "\nno change, and no two of them, make yours fit%s\n",
                            e->has_other && e->other.estimate.fits ? "; the keys that differ do" : "");
    return;
  }
  static const char *const head[] = { "", "step time", "memory GiB", "keys", "change" };
  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    sp_table_cell (table, head[i]);
  for (guint i = 0; i < e->changes->len; i++) {
    const SpChange *change = e->changes->pdata[i];
    sp_table_take (table, g_strdup_printf ("%u", i + 1));
    sp_table_take (table, sp_text_seconds (change->entry.estimate.step_time_s));
    sp_table_take (table, sp_text_gib (change->entry.estimate.memory.total_bytes));
    sp_table_take (table, g_strdup_printf ("%u", change->differences->len));
    sp_table_take (table, differences_text (change->differences));
  }
  g_string_append (out, "\nthe smallest changes that make yours fit\n");
  sp_table_print (table, 0, out);
}

void
sp_explanation_text (const SpExplanation *e, GString *out)
{
  g_autoptr (GPtrArray) said = sentences (e);

  add_sides (e, out);
  g_string_append (out, "\nwhat makes the difference\n");
  for (guint i = 0; i < said->len; i++)
    g_string_append_printf (out, "  %u. %s\n", i + 1, (char *) said->pdata[i]);
  if (e->has_other) {
    add_differences (e, out);
    add_time (e, out);
    add_memory (e, out);
  }
  add_changes (e, out);
  g_string_append_printf (out, "\nrests on values that are at worst %s\n",
                          sp_provenance_name (e->mine.estimate.provenance));
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void
add_side_json (JsonBuilder *builder, const char *name, const SpExplainSide *side)
{
  SpEstimator estimator;
  const SpScenario *s = &side->scenario;

  sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
  g_autoptr (GPtrArray) notes = sp_estimate_notes (&estimator, &s->layout, &s->run);
  sp_json_object (builder, name);
  sp_result_layout_json (builder, &s->layout, &s->run);
  sp_result_json (builder, &side->estimate, notes);
  json_builder_end_object (builder);
}

static void
add_row_json (JsonBuilder *builder, const char *name, const SpExplainedRow *row, const char *unit)
{
  g_autofree char *mine = g_strconcat ("mine", unit, NULL), *other = g_strconcat ("other", unit, NULL);
  g_autofree char *more = g_strconcat ("difference", unit, NULL);

  json_builder_begin_object (builder);
  sp_json_string (builder, "name", name);
  sp_json_number (builder, mine, row->mine);
  sp_json_number (builder, other, row->other);
  sp_json_number (builder, more, difference (row));
  sp_json_string (builder, "keys", row->keys);
  json_builder_end_object (builder);
}

static void
add_array (JsonBuilder *builder, const char *name)
{
  json_builder_set_member_name (builder, name);
  json_builder_begin_array (builder);
}

static void
add_differences_json (JsonBuilder *builder, const GPtrArray *differences)
{
  add_array (builder, "differences");
  for (guint i = 0; i < differences->len; i++) {
    const SpKeyDifference *d = differences->pdata[i];
    json_builder_begin_object (builder);
    sp_json_string (builder, "group", d->group);
    sp_json_string (builder, "key", d->key);
    sp_json_string (builder, "mine", d->mine);
    sp_json_string (builder, "other", d->other);
    json_builder_end_object (builder);
  }
  json_builder_end_array (builder);
}

static void
add_explained_json (JsonBuilder *builder, const SpExplained *x)
{
  sp_json_bool (builder, "per_token", x->per_token);
  add_array (builder, "time");
  for (guint t = 0; t < SP_N_TERMS; t++)
    add_row_json (builder, sp_term_name (t), &x->time[t], "_s");
  json_builder_end_array (builder);
  add_array (builder, "memory");
  for (guint c = 0; c < SP_N_CLASSES; c++)
    add_row_json (builder, sp_class_name ((SpClass) c), &x->memory[c], "_bytes");
  json_builder_end_array (builder);
  add_differences_json (builder, x->differences);
}

static void
add_changes_json (JsonBuilder *builder, const GPtrArray *changes)
{
  add_array (builder, "changes");
  for (guint i = 0; changes != NULL && i < changes->len; i++) {
    const SpChange *change = changes->pdata[i];
    json_builder_begin_object (builder);
    add_differences_json (builder, change->differences);
    sp_json_number (builder, "step_time_s", change->entry.estimate.step_time_s);
    sp_json_whole (builder, "peak_bytes", change->entry.estimate.memory.total_bytes);
    json_builder_end_object (builder);
  }
  json_builder_end_array (builder);
}

gboolean
sp_explanation_json (const SpExplanation *e, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  g_autoptr (GPtrArray) said = sentences (e);

  json_builder_begin_object (builder);
  add_side_json (builder, "mine", &e->mine);
  if (e->has_other)
    add_side_json (builder, e->other_name, &e->other);
  else
    sp_json_string (builder, e->other_name, NULL);
  sp_json_strings (builder, "sentences", said);
  if (e->has_other)
    add_explained_json (builder, &e->explained);
  add_changes_json (builder, e->changes);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}
