/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar plan: the layouts that fit, best first. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "models/estimate/interval.h"
#include "models/inputs/ini.h"
#include "models/inputs/profile.h"
#include "models/inputs/run-files/run-file.h"
#include "models/planner.h"
#include "models/writer.h"
#include "sim/schedules.h"

#define EXPLAINED 3
#define MOST_INTERVALS 10 /* each takes some hundred estimates */

typedef struct {
  char **rest, **sets;
  char *model, *cluster, *framework, *sequence, *batch, *gpus, *top, *convention, *export, *profile;
  gboolean json;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_strfreev (o->sets);
  char *strings[] = { o->model, o->cluster, o->framework,  o->sequence, o->batch,
                      o->gpus,  o->top,     o->convention, o->export,   o->profile };
  for (guint i = 0; i < G_N_ELEMENTS (strings); i++)
    g_free (strings[i]);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

typedef struct {
  SpArchitecture *arch;
  SpCluster *cluster;
  SpFramework *framework;
  SpPlanQuestion question;
  SpMfuConvention convention;
} Question;

static void
question_clear (Question *q)
{
  sp_architecture_free (q->arch);
  sp_cluster_free (q->cluster);
  sp_framework_free (q->framework);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Question, question_clear)

/* --- the question ------------------------------------------------------------------------------------------------- */

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "model", 0, 0, G_OPTION_ARG_FILENAME, &o->model, "config.json, our own INI, or a shipped name", "FILE" },
    { "cluster", 0, 0, G_OPTION_ARG_FILENAME, &o->cluster, "INI, or a shipped name", "FILE" },
    { "sequence", 0, 0, G_OPTION_ARG_STRING, &o->sequence, "Tokens of one sequence, such as 208K", "N" },
    { "global-batch", 0, 0, G_OPTION_ARG_STRING, &o->batch, "Sequences of one step", "N" },
    { "gpus", 0, 0, G_OPTION_ARG_STRING, &o->gpus, "Of the cluster (default: all)", "N" },
    { "framework", 0, 0, G_OPTION_ARG_FILENAME, &o->framework, "INI, or a shipped name (default: flash)", "FILE" },
    { "profile", 0, 0, G_OPTION_ARG_FILENAME, &o->profile, "Curves: INI, or a shipped name (default: the cluster's)",
      "FILE" },
    { "top", 0, 0, G_OPTION_ARG_STRING, &o->top, "How many layouts (default: 10)", "K" },
    { "set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->sets, "What is not searched, such as overlap=false", "KEY=VALUE" },
    { "json", 0, 0, G_OPTION_ARG_NONE, &o->json, "JSON instead of text", NULL },
    { "mfu-convention", 0, 0, G_OPTION_ARG_STRING, &o->convention, "seqpar, megatron, palm or llm-foundry", "NAME" },
    { "export", 0, 0, G_OPTION_ARG_STRING, &o->export,
      "The best layout as a run file: megatron, deepspeed, torchtitan or flame", "NAME" },
    { G_OPTION_REMAINING, 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, NULL },
    { NULL },
  };
  return sp_cli_parse (
      args, entries,
      "--model, --cluster, --sequence and --global-batch are needed. Searched: degrees of all axes and\n"
      "their order, micro-batch, recompute, ZeRO stage, ring split, LASP version. --set takes\n"
      "sequence-regions, reshard, overlap, gradient-dtype, ring-gradient-dtype, ring-kind, schedule, loss, optimizer,\n"
      "causal, frozen, lora-rank, lora-targets, precision, expert-imbalance, expert-capacity, loss-chunks, mlp-tiles,\n"
      "offload and virtual-stages (of schedule=interleaved; searched if not given).\n",
      out, error);
}

static gboolean
read_number (const char *option, const char *text, SpUnit unit, double min, double max, double *ret, GError **error)
{
  if (text == NULL)
    return TRUE;
  g_autofree char *problem = sp_quantity_problem (text, unit, min, max, ret);
  g_autofree char *shown = sp_shown (text);
  return problem == NULL || sp_cli_usage (error, "%s \"%s\": %s", option, shown, problem);
}

static gboolean
check_options (const Options *o, GError **error)
{
  const struct {
    const char *option, *value;
  } needed[] = {
    { "--model", o->model },
    { "--cluster", o->cluster },
    { "--sequence", o->sequence },
    { "--global-batch", o->batch },
  };
  static const char *const positional[] = { NULL };
  if (!sp_cli_positional (o->rest, positional, error))
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (needed); i++)
    if (needed[i].value == NULL)
      return sp_cli_usage (error, "%s is missing", needed[i].option);
  if (o->export != NULL && o->json)
    return sp_cli_usage (error, "--export writes a run file, --json does not go with it");
  return sp_cli_export_format ("--export", o->export, error);
}

/* What may be set: not searched. `names` in order of the field's values, from `first`; NULL for a schedule. */
static const char *const booleans[] = { "false", "true", NULL };
static const char *const dtypes[] = { "bf16", "fp32", NULL };
static const char *const ring_kinds[] = { "p2p", "all-gather", "rsa", NULL }; /* those that need no second degree */
static const char *const losses[] = { "full", "vocab-parallel", "chunked", "fused", NULL };
#define FIELD(name) G_STRUCT_OFFSET (SpPlanQuestion, name)
static const struct {
  const char *key;
  const char *const *names;
  gsize offset;
} settable[] = {
  { "sequence-regions", booleans, FIELD (base.sequence_regions) },
  { "reshard", booleans, FIELD (base.reshard) },
  { "overlap", booleans, FIELD (base.overlap) },
  { "causal", booleans, FIELD (causal) },
  { "loss", losses, FIELD (base.loss) },
  { "gradient-dtype", dtypes, FIELD (base.gradient_dtype) },
  { "ring-gradient-dtype", dtypes, FIELD (base.ring_gradient_dtype) },
  { "ring-kind", ring_kinds, FIELD (base.ring_kind) },
  { "optimizer", sp_optimizer_names, FIELD (run.optimizer) },
  { "schedule", NULL, FIELD (base.schedule) },
};
#undef FIELD

/* As a scenario takes them. */
static const struct {
  const char *group, *key;
} scenario_keys[] = {
  { "run", "frozen" },
  { "run", "expert-imbalance" },
  { "run", "lora-rank" },
  { "run", "lora-targets" },
  { "run", "precision" },
  { "layout", "expert-capacity" },
  { "layout", "loss-chunks" },
  { "layout", "mlp-tiles" },
  { "layout", "offload" },
  { "layout", "virtual-stages" },
};

static gboolean
is_of_scenario (const char *name)
{
  const char *group, *key;
  for (guint i = 0; sp_scenario_key (i, &group, &key, NULL); i++)
    if (g_str_equal (name, key))
      return TRUE;
  return g_strv_contains (sp_variation_keys, name);
}

static gboolean
set_value (const char *set, guint row, const char *value, SpPlanQuestion *question, GError **error)
{
  const char *schedules[32] = { NULL };
  for (guint i = 0; i < sp_schedule_count () && i + 1 < G_N_ELEMENTS (schedules); i++)
    schedules[i] = sp_schedule_get (i)->name;
  const char *const *names = settable[row].names != NULL ? settable[row].names : schedules;
  guint index = 0;
  while (names[index] != NULL && !g_str_equal (names[index], value))
    index++;
  if (names[index] == NULL) {
    g_autofree char *all = g_strjoinv (", ", (char **) names);
    g_autofree char *shown = sp_shown (set);
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--set %s: expected one of %s", shown, all);
  }
  gpointer field = G_STRUCT_MEMBER_P (question, settable[row].offset);
  if (names == booleans)
    *(gboolean *) field = (gboolean) index;
  else if (names == dtypes)
    *(guint8 *) field = index == 0 ? SP_DTYPE_BF16 : SP_DTYPE_FP32;
  else
    *(guint8 *) field = (guint8) index;
  return TRUE;
}

static gboolean
apply_set (const char *set, SpPlanQuestion *question, GError **error)
{
  static const char *const searched[] = { "data",  "tensor",       "pipeline",    "ulysses", "ring",
                                          "lasp",  "lasp-version", "ring-split",  "zero",    "recompute",
                                          "order", "micro-batch",  "expert",      NULL };
  const char *names[G_N_ELEMENTS (settable) + G_N_ELEMENTS (scenario_keys) + 1] = { NULL };
  g_autofree char *shown = sp_shown (set);
  const char *equals = strchr (set, '=');
  if (equals == NULL || equals == set)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--set %s: expected key=value", shown);
  g_autofree char *name = g_strstrip (g_strndup (set, (gsize) (equals - set)));
  g_autofree char *value = g_strstrip (g_strdup (equals + 1));
  const char *key =
      g_str_has_prefix (name, "layout.") || g_str_has_prefix (name, "run.") ? strchr (name, '.') + 1 : name;
  for (guint i = 0; i < G_N_ELEMENTS (settable); i++) {
    names[i] = settable[i].key;
    if (g_str_equal (key, names[i]))
      return set_value (set, i, value, question, error);
  }
  for (guint i = 0; i < G_N_ELEMENTS (scenario_keys); i++) {
    names[G_N_ELEMENTS (settable) + i] = scenario_keys[i].key;
    if (g_str_equal (key, scenario_keys[i].key))
      return sp_scenario_set (scenario_keys[i].group, key, value, &question->base, &question->run, error);
  }
  if (g_strv_contains (searched, key))
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--set %s: %s is what plan searches; to fix it, use seqpar run",
                        shown, key);
  g_autofree char *elsewhere = sp_scenario_key_elsewhere (key), *near = sp_did_you_mean (key, names);
  g_autofree char *all = g_strjoinv (", ", (char **) names);
  if (is_of_scenario (key))
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--set %s: plan does not take %s, as seqpar run does; it takes %s",
                        shown, key, all);
  return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--set %s: unknown key, expected one of %s%s", shown, all,
                      elsewhere != NULL ? elsewhere : near);
}

/* A key that no layout of the search has a use for: whether some layout has one is asked of one with all axes. */
static gboolean
check_effects (const Options *o, const Question *q, GError **error)
{
  SpScenario all = { .arch = q->arch, .layout = q->question.base, .run = q->question.run };
  gint32 *degrees[] = { &all.layout.data, &all.layout.tensor, &all.layout.pipeline, &all.layout.ulysses,
                        &all.layout.ring, &all.layout.lasp,   &all.layout.expert };
  for (guint i = 0; i < G_N_ELEMENTS (degrees); i++)
    *degrees[i] = 2;
  all.layout.zero = 3;
  for (guint i = 0; o->sets != NULL && o->sets[i] != NULL; i++) {
    g_auto (GStrv) parts = g_strsplit (o->sets[i], "=", 2);
    const char *name = g_strstrip (parts[0]), *value = g_strstrip (parts[1]), *group, *key;
    g_autofree char *shown = sp_shown (o->sets[i]);
    for (guint k = 0; sp_scenario_key (k, &group, &key, NULL); k++) {
      g_autofree char *whole = g_strconcat (group, ".", key, NULL), *usual = NULL;
      if (!g_str_equal (name, key) && !g_str_equal (name, whole))
        continue;
      sp_scenario_key (k, &group, &key, &usual);
      g_autofree char *problem = g_str_equal (value, usual) ? NULL : sp_scenario_no_effect (&all, group, key);
      if (problem != NULL)
        return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--set %s: %s", shown, problem);
    }
  }
  return TRUE;
}

/* What the rules of single layouts do not say. */
static gboolean
check_question (const Question *q, GError **error)
{
  const SpLayout *base = &q->question.base;
  const SpDevice *device = q->cluster->device;

  if (base->virtual_stages > 1 && !sp_schedule_get (base->schedule)->chunked)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                        "--set virtual-stages=%d: no layout of schedule = %s has more than 1; with "
                        "schedule=interleaved it counts",
                        base->virtual_stages, sp_schedule_get (base->schedule)->name);
  if (q->question.run.fp8 && device->peak_fp8_flops_per_s.value == 0)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--set precision=fp8: %s has no peak-fp8, expected %s", device->name,
                        device->no_bf16 ? "fp16" : "bf16");
  return TRUE;
}

static gboolean
load_profile (const char *name, SpCluster *cluster, GError **error)
{
  g_autofree char *path = sp_find_profile (name, error);
  SpProfile *profile = path != NULL ? sp_profile_load (path, error) : NULL;

  if (profile == NULL)
    return FALSE;
  sp_profile_free (cluster->profile);
  cluster->profile = profile;
  return TRUE;
}

static gboolean
load_files (const Options *o, Question *q, GError **error)
{
  g_autofree char *model = sp_find_model (o->model, error);
  if (model == NULL || (q->arch = sp_architecture_load (model, error)) == NULL)
    return FALSE;
  g_autofree char *cluster = sp_find_cluster (o->cluster, error);
  if (cluster == NULL || (q->cluster = sp_cluster_load (cluster, error)) == NULL)
    return FALSE;
  if (o->profile != NULL && !load_profile (o->profile, q->cluster, error))
    return FALSE;
  g_autofree char *framework = sp_find_framework (o->framework != NULL ? o->framework : "flash", error);
  return framework != NULL && (q->framework = sp_framework_load (framework, error)) != NULL;
}

static gboolean
read_question (const Options *o, Question *q, GError **error)
{
  double sequence = 0, batch = 0, gpus = 0, top = 10;
  guint convention = SP_MFU_SEQPAR;
  if (!check_options (o, error) ||
      !read_number ("--sequence", o->sequence, SP_UNIT_TOKENS, 1, 1 << 30, &sequence, error) ||
      !read_number ("--global-batch", o->batch, SP_UNIT_COUNT, 1, 1 << 24, &batch, error) ||
      !read_number ("--gpus", o->gpus, SP_UNIT_COUNT, 1, 1 << 26, &gpus, error) ||
      !read_number ("--top", o->top, SP_UNIT_COUNT, 1, 1000, &top, error) ||
      !sp_cli_choice ("--mfu-convention", o->convention, sp_mfu_names, &convention, error))
    return FALSE;
  const SpLayout base = SP_LAYOUT_DEFAULT;
  q->convention = convention;
  q->question = (SpPlanQuestion){
    .sequence = (gint64) sequence,
    .global_batch = (gint32) batch,
    .gpus = (gint32) gpus,
    .top = (guint) top,
    .causal = TRUE,
    .base = base,
  };
  for (guint i = 0; o->sets != NULL && o->sets[i] != NULL; i++)
    if (!apply_set (o->sets[i], &q->question, error))
      return FALSE;
  return load_files (o, q, error) && check_effects (o, q, error) && check_question (q, error);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void
add_entry_json (JsonBuilder *builder, const SpEstimator *estimator, const SpPlanEntry *entry, gboolean with_interval)
{
  g_autoptr (GPtrArray) notes = sp_estimate_notes (estimator, &entry->layout, &entry->run);
  SpEstimate shown = entry->estimate;
  SpInterval interval;

  if (with_interval && estimator->cluster->profile != NULL) {
    g_autoptr (SpProgram) program = sp_program_new ();
    sp_program_write (program, estimator->arch, estimator->framework, &entry->layout, &entry->run);
    if (sp_estimate_interval (estimator, program, &entry->run, &interval))
      sp_interval_apply (&interval, &shown);
  }
  sp_result_layout_json (builder, &entry->layout, &entry->run);
  sp_result_json (builder, &shown, notes);
}

static double
lacks_bytes (const SpPlanEntry *entry)
{
  return entry->estimate.memory.total_bytes - entry->estimate.capacity_bytes;
}

static gboolean
add_json (const SpEstimator *estimator, const SpPlan *plan, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  json_builder_begin_object (builder);
  sp_json_whole (builder, "candidates", (double) plan->candidates);
  sp_json_whole (builder, "legal", (double) plan->legal);
  sp_json_whole (builder, "fitting", (double) plan->fitting);
  json_builder_set_member_name (builder, "layouts");
  json_builder_begin_array (builder);
  for (guint i = 0; i < plan->entries->len; i++) {
    json_builder_begin_object (builder);
    add_entry_json (builder, estimator, &g_array_index (plan->entries, SpPlanEntry, i), i < MOST_INTERVALS);
    json_builder_end_object (builder);
  }
  json_builder_end_array (builder);
  if (plan->has_nearest) {
    sp_json_object (builder, "nearest_that_does_not_fit");
    add_entry_json (builder, estimator, &plan->nearest, TRUE);
    sp_json_whole (builder, "lacks_bytes", lacks_bytes (&plan->nearest));
    json_builder_end_object (builder);
  } else {
    sp_json_string (builder, "nearest_that_does_not_fit", NULL);
  }
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
add_header (const Question *q, const SpPlan *plan, GString *out)
{
  const SpPlanQuestion *p = &q->question;
  g_autofree char *parameters = sp_text_count ((double) sp_architecture_parameters (q->arch));
  g_autofree char *sequence = sp_text_count ((double) p->sequence);
  g_autofree char *candidates = sp_text_count ((double) plan->candidates);
  g_autofree char *legal = sp_text_count ((double) plan->legal);
  g_autofree char *fitting = sp_text_count ((double) plan->fitting);
  g_autofree char *trained = sp_result_trained (&p->run, q->arch);
  g_string_append_printf (out, "%s (%s parameters), sequence %s tokens, global batch %d%s%s%s\n", q->arch->name, parameters,
                          sequence, p->global_batch, p->causal ? "" : ", not causal", p->run.optimizer ? ", " : "",
                          p->run.optimizer ? sp_optimizer_names[p->run.optimizer] : "");
  if (trained != NULL)
    g_string_append_printf (out, "%s\n", trained);
  g_string_append_printf (out, "%s: %d x %s, framework %s\n", q->cluster->name,
                          p->gpus > 0 ? p->gpus : sp_cli_gpus (q->cluster), q->cluster->device->name,
                          q->framework->name);
  g_string_append_printf (out, "%s layouts looked at, %s legal, %s fit\n", candidates, legal, fitting);
}

static void
add_row (SpTable *table, guint rank, const SpPlanEntry *entry, const SpArchitecture *arch)
{
  const SpEstimate *e = &entry->estimate;
  sp_table_take (table, g_strdup_printf ("%u", rank));
  sp_table_take (table, sp_text_seconds (e->step_time_s));
  sp_table_take (table, sp_text_count (e->tokens_per_s));
  sp_table_take (table, sp_text_percent (e->mfu));
  sp_table_take (table, sp_text_percent (e->mfu_causal));
  sp_table_take (table, sp_text_gib (e->memory.total_bytes));
  sp_table_take (table, sp_text_percent (e->memory.total_bytes / e->capacity_bytes));
  sp_table_take (table, g_strdup_printf ("%d", entry->run.micro_batch));
  sp_table_take (table, sp_plan_layout_text (&entry->layout, arch));
}

static void
add_table (const Question *q, const SpPlan *plan, GString *out)
{
  static const char *const head[] = { "",           "step time", "tokens/s",    "MFU",   "MFU causal",
                                      "memory GiB", "of GPU",    "micro-batch", "layout" };
  g_autoptr (SpTable) table = sp_table_new ("rrrrrrrrl");
  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    sp_table_cell (table, head[i]);
  for (guint i = 0; i < plan->entries->len; i++)
    add_row (table, i + 1, &g_array_index (plan->entries, SpPlanEntry, i), q->arch);
  g_string_append_c (out, '\n');
  sp_table_print (table, 0, out);
  g_string_append_printf (out,
                          "MFU counts attention over all pairs of tokens, MFU causal the half under the mask; "
                          "convention %s\n\nwhat bounds the best\n",
                          sp_mfu_names[q->convention]);
  for (guint i = 0; i < MIN (plan->entries->len, EXPLAINED); i++) {
    g_autofree char *bound = sp_plan_bound (&g_array_index (plan->entries, SpPlanEntry, i));
    g_string_append_printf (out, "  %u. %s\n", i + 1, bound);
  }
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
}

static void
add_text (const Question *q, const SpEstimator *estimator, const SpPlan *plan, GString *out)
{
  add_header (q, plan, out);
  if (plan->legal == 0)
    g_string_append (out,
                     "\nNOTHING FITS: no layout is legal; seqpar show layout SCENARIO says which rule refuses one\n");
  if (plan->entries->len > 0)
    add_table (q, plan, out);
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

/* --- as a run file ------------------------------------------------------------------------------------------------ */

static gboolean
export_entry (const Options *o, Question *q, const SpPlanEntry *entry, GString *out, GPtrArray *lost, GError **error)
{
  g_autofree char *model = sp_find_model (o->model, error);
  char none[] = "none";
  if (model == NULL)
    return FALSE;
  const SpScenario scenario = {
    .model_path = model,
    .cluster_path = none,
    .framework_path = none,
    .arch = q->arch,
    .cluster = q->cluster,
    .framework = q->framework,
    .layout = entry->layout,
    .run = entry->run,
  };
  return sp_run_file_export (&scenario, o->export, out, lost, error);
}

/* The best of those listed whose degrees the format has words for. */
static gboolean
add_export (const Options *o, Question *q, const SpPlan *plan, GString *out, GError **error)
{
  g_autoptr (GError) first = NULL;
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
  if (plan->entries->len == 0)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "no layout fits, so there is none to export");
  for (guint i = 0; i < plan->entries->len; i++) {
    const SpPlanEntry *entry = &g_array_index (plan->entries, SpPlanEntry, i);
    g_autoptr (GError) cause = NULL;
    if (export_entry (o, q, entry, out, lost, &cause)) {
      if (i > 0)
        g_ptr_array_insert (lost, 0,
                            g_strdup_printf ("note: layout %u of the plan; of the better ones, %s", i + 1,
                                             first->message));
      sp_cli_notes (lost);
      return TRUE;
    }
    if (first == NULL)
      first = g_steal_pointer (&cause);
  }
  g_propagate_error (error, g_steal_pointer (&first));
  return FALSE;
}

/* --- progress ----------------------------------------------------------------------------------------------------- */

#define MICROSECONDS 1000000

/* One line on a terminal, written over itself at most once a second; `data` is when it was last. */
static void
show_progress (gint64 done, gint64 all, gpointer data)
{
  gint64 now = g_get_monotonic_time (), *last = data;
  if (now < *last + MICROSECONDS)
    return;
  *last = now;
  g_autofree char *looked_at = sp_text_count ((double) done);
  g_autofree char *of = sp_text_count ((double) all);
  fprintf (stderr, "\rsearching: %s of %s layouts\033[K", looked_at, of);
}

gboolean
sp_command_plan (char **args, GString *out, GError **error)
{
  g_auto (Options) options = { NULL };
  g_auto (Question) q = { NULL };
  SpParsed parsed = parse (args, &options, out, error);
  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!read_question (&options, &q, error))
    return FALSE;

  SpEstimator estimator;
  sp_estimator_init (&estimator, q.arch, q.cluster, q.framework, q.convention);
  gboolean terminal = isatty (STDERR_FILENO);
  gint64 last = 0;
  if (terminal) {
    q.question.progress = show_progress;
    q.question.progress_data = &last;
  }
  g_autoptr (SpPlan) plan = sp_plan (&estimator, &q.question, error);
  if (terminal)
    fputs ("\r\033[K", stderr);
  if (plan == NULL)
    return FALSE;
  if (options.json)
    return add_json (&estimator, plan, out, error);
  if (options.export != NULL)
    return add_export (&options, &q, plan, out, error);
  add_text (&q, &estimator, plan, out);
  return TRUE;
}
