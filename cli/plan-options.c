/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"

#include "cli/ranks.h"
#include "models/inputs/ini.h"
#include "models/inputs/profile.h"
#include "sim/schedules.h"

#include <string.h>

/* What is asked: options, what may be set, and the inputs. */

void
sp_plan_options_clear (SpPlanOptions *o)
{
  g_strfreev (o->rest);
  g_strfreev (o->sets);
  char *strings[] = { o->model,      o->cluster, o->framework, o->sequence, o->batch,    o->gpus,  o->top,    o->convention,
                      o->export,     o->profile, o->threads,   o->simulate, o->space,    o->slices, o->target, o->budget,
                      o->tokens,     o->csv };
  for (guint i = 0; i < G_N_ELEMENTS (strings); i++)
    g_free (strings[i]);
}

void
sp_plan_input_clear (SpPlanInput *q)
{
  sp_architecture_free (q->arch);
  sp_cluster_free (q->cluster);
  sp_framework_free (q->framework);
}

SpParsed
sp_plan_options_parse (char **args, SpPlanOptions *o, GString *out, GError **error)
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
    { "simulate", 0, 0, G_OPTION_ARG_STRING, &o->simulate, "So many of the best (default: 32, fewer beyond 1,024 GPUs; 0: none)", "K" },
    { "space", 0, 0, G_OPTION_ARG_STRING, &o->space, "usual or whole (default: usual)", "NAME" },
    { "slices", 0, 0, G_OPTION_ARG_STRING, &o->slices,
      "Searched too: sequences through the stages in so many slices, such as 1,4,8,16", "N,N.." },
    { "threads", 0, 0, G_OPTION_ARG_STRING, &o->threads, "0: as many as there are processors (default)", "N" },
    { "set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->sets, "What is not searched, such as overlap=false", "KEY=VALUE" },
    { "json", 0, 0, G_OPTION_ARG_NONE, &o->json, "JSON instead of text", NULL },
    { "mfu-convention", 0, 0, G_OPTION_ARG_STRING, &o->convention, "seqpar, megatron, palm or llm-foundry", "NAME" },
    { "export", 0, 0, G_OPTION_ARG_STRING, &o->export,
      "The best layout that it can say, as a run file: megatron, torchtitan, verl ... (seqpar export --help)", "NAME" },
    { "max-sequence", 0, 0, G_OPTION_ARG_NONE, &o->max_sequence, "The longest sequence of which a layout fits", NULL },
    { "min-gpus", 0, 0, G_OPTION_ARG_NONE, &o->min_gpus, "The fewest GPUs on which a layout fits", NULL },
    { "target-tokens-per-s", 0, 0, G_OPTION_ARG_STRING, &o->target,
      "GPUs and layouts that reach it; of the two above, besides", "X" },
    { "budget", 0, 0, G_OPTION_ARG_STRING, &o->budget, "Which layouts train --tokens within it", "'N GPU-hours'" },
    { "tokens", 0, 0, G_OPTION_ARG_STRING, &o->tokens, "Of --budget: such as 300B or 15T", "N" },
    { "pareto", 0, 0, G_OPTION_ARG_NONE, &o->pareto, "What is best in time, memory of a GPU and number of GPUs", NULL },
    { "csv", 0, 0, G_OPTION_ARG_FILENAME, &o->csv, "Of --pareto: its rows, for seqpar plot pareto", "FILE" },
    { "sensitivity", 0, 0, G_OPTION_ARG_NONE, &o->sensitivity, "What 1 % more of each part of the machine gives",
      NULL },
    { G_OPTION_REMAINING, 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, NULL },
    { NULL },
  };
  return sp_cli_parse (
      args, entries,
      "--model, --cluster, --sequence and --global-batch are needed. Searched: degrees of all axes and\n"
      "their order, micro-batch, recompute, ZeRO stage, ring split, LASP version, chunks of schedule=interleaved, and\n"
      "loss=chunked where nothing else makes a layout fit and the framework has it (chunked-loss); with\n"
      "--space whole also every-K recompute, ring kind, schedule, uneven stages, ZeRO group, offload. --set takes\n"
      "sequence-regions, reshard, overlap, gradient-dtype, ring-gradient-dtype, loss, optimizer,\n"
      "causal, frozen, lora-rank, lora-targets, precision, expert-imbalance, expert-capacity, loss-chunks, mlp-tiles;\n"
      "slices; and ring-kind, schedule, virtual-stages and offload, which are then not searched.\n" SP_RANKS_HELP,
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

/* Numbers of slices, in the order in which they are searched. */
static gboolean
read_slices (const SpPlanOptions *o, SpPlanInput *q, GError **error)
{
  if (o->slices == NULL)
    return TRUE;
  if (*o->slices == '\0')
    return sp_cli_usage (error, "--slices \"\": expected numbers of slices, such as 1,4,8,16");
  g_auto (GStrv) words = g_strsplit (o->slices, ",", -1);
  for (guint i = 0; words[i] != NULL; i++) {
    double slices;
    if (!read_number ("--slices", g_strstrip (words[i]), SP_UNIT_COUNT, 1, SP_MAX_SLICES, &slices, error))
      return FALSE;
    for (guint j = 0; j < q->n_slices; j++)
      if (q->slices[j] == (gint32) slices)
        return sp_cli_usage (error, "--slices \"%s\": %d stands twice", o->slices, q->slices[j]);
    q->slices[q->n_slices++] = (gint32) slices;
  }
  return TRUE;
}

static gboolean
check_options (const SpPlanOptions *o, GError **error)
{
  const struct {
    const char *option, *value;
  } needed[] = {
    { "--model", o->model },
    { "--cluster", o->cluster },
    { "--sequence", o->max_sequence ? "" : o->sequence },
    { "--global-batch", o->batch },
  };
  static const char *const positional[] = { NULL };
  if (!sp_cli_positional (o->rest, positional, error))
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (needed); i++)
    if (needed[i].value == NULL)
      return sp_cli_usage (error, "%s is missing", needed[i].option);
  if (o->export != NULL && o->slices != NULL)
    return sp_cli_usage (error, "--export writes a run file, and no format has slices: --slices does not go with it");
  if (o->export != NULL && o->json)
    return sp_cli_usage (error, "--export writes a run file, --json does not go with it");
  return sp_plan_ask_check (o, error) && sp_cli_export_format ("--export", o->export, error);
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
  { "pipeline-scatter", booleans, FIELD (base.pipeline_scatter) },
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
  { "run", "frozen" },     { "run", "expert-imbalance" },   { "run", "lora-rank" },      { "run", "lora-targets" },
  { "run", "precision" },  { "layout", "expert-capacity" }, { "layout", "loss-chunks" }, { "layout", "mlp-tiles" },
  { "layout", "offload" }, { "layout", "virtual-stages" },  { "layout", "slices" },
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
    g_autofree char *shown = sp_shown (set), *near = sp_did_you_mean (value, names);
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--set %s: expected one of %s%s", shown, all, near);
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
  static const char *const searched[] = { "data",  "tensor",       "pipeline",   "ulysses", "ring",
                                          "lasp",  "lasp-version", "ring-split", "zero",    "recompute",
                                          "order", "micro-batch",  "expert",     NULL };
  const char *names[G_N_ELEMENTS (settable) + G_N_ELEMENTS (scenario_keys) + 1] = { NULL };
  g_autofree char *shown = sp_shown (set);
  const char *equals = strchr (set, '=');
  if (equals == NULL || equals == set)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--set %s: expected key=value", shown);
  g_autofree char *name = g_strstrip (g_strndup (set, (gsize) (equals - set)));
  g_autofree char *value = g_strstrip (g_strdup (equals + 1));
  const char *key =
      g_str_has_prefix (name, "layout.") || g_str_has_prefix (name, "run.") ? strchr (name, '.') + 1 : name;
  question->fixed |= sp_plan_dimension (key);
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
check_effects (const SpPlanOptions *o, const SpPlanInput *q, GError **error)
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
check_question (const SpPlanInput *q, GError **error)
{
  const SpLayout *base = &q->question.base;
  const SpDevice *device = q->cluster->device;

  if (q->n_slices > 0 && base->slices > 1)
    return sp_cli_usage (error, "--slices says which numbers of them are searched: --set slices does not go with it");
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
load_files (const SpPlanOptions *o, SpPlanInput *q, GError **error)
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

/* Fewer where a simulation takes long: 2 of 16,384 GPUs. */
static guint
usual_simulations (gint32 gpus)
{
  enum { MOST = 32, GPUS = 1024 };

  return MAX (1, MOST * GPUS / MAX (gpus, GPUS));
}

gboolean
sp_plan_input_read (const SpPlanOptions *o, SpPlanInput *q, GError **error)
{
  double sequence = 0, batch = 0, gpus = 0, top = 10, simulate = 0, threads = 0;
  static const char *const spaces[] = { "usual", "whole", NULL };
  guint convention = SP_MFU_SEQPAR, space = 0;
  if (!check_options (o, error) ||
      !read_number ("--sequence", o->sequence, SP_UNIT_TOKENS, 1, 1 << 30, &sequence, error) ||
      !read_number ("--global-batch", o->batch, SP_UNIT_COUNT, 1, 1 << 24, &batch, error) ||
      !read_number ("--gpus", o->gpus, SP_UNIT_COUNT, 1, 1 << 26, &gpus, error) ||
      !read_number ("--top", o->top, SP_UNIT_COUNT, 1, 1000, &top, error) ||
      !read_number ("--simulate", o->simulate, SP_UNIT_COUNT, 0, 1000, &simulate, error) ||
      !read_number ("--threads", o->threads, SP_UNIT_COUNT, 0, 1024, &threads, error) ||
      !sp_cli_choice ("--space", o->space, spaces, &space, error) || !read_slices (o, q, error) ||
      !read_number ("--target-tokens-per-s", o->target, SP_UNIT_NUMBER, 1e-3, 1e12, &q->target_tokens_per_s, error) ||
      !read_number ("--budget", o->budget, SP_UNIT_GPU_HOURS, 1e-3, 1e10, &q->budget_gpu_hours, error) ||
      !read_number ("--tokens", o->tokens, SP_UNIT_TRAINED_TOKENS, 1, 1e18, &q->tokens, error) ||
      !sp_cli_choice ("--mfu-convention", o->convention, sp_mfu_names, &convention, error))
    return FALSE;
  const SpLayout base = SP_LAYOUT_DEFAULT;
  q->convention = convention;
  q->question = (SpPlanQuestion){
    .sequence = (gint64) sequence,
    .global_batch = (gint32) batch,
    .gpus = (gint32) gpus,
    .top = (guint) top,
    .simulate = (guint) simulate,
    .threads = (guint) threads,
    .fixed = space == 0 ? sp_plan_beyond_usual () : 0,
    .causal = TRUE,
    .base = base,
  };
  for (guint i = 0; o->sets != NULL && o->sets[i] != NULL; i++)
    if (!apply_set (o->sets[i], &q->question, error))
      return FALSE;
  if (!load_files (o, q, error) || !check_effects (o, q, error) || !check_question (q, error))
    return FALSE;
  if (o->simulate == NULL && !sp_plan_ask_is (o))
    q->question.simulate = usual_simulations (q->question.gpus > 0 ? q->question.gpus : sp_cli_gpus (q->cluster));
  return TRUE;
}

SpPlanQuestion
sp_plan_question_of (const SpScenario *s, guint top)
{
  SpPlanQuestion q = { .sequence = s->run.sequence,
                       .global_batch = s->run.global_batch,
                       .top = top,
                       .causal = s->run.causal,
                       .base = SP_LAYOUT_DEFAULT,
                       .run = s->run,
                       .fixed = sp_plan_beyond_usual () };

  q.base.sequence_regions = s->layout.sequence_regions;
  q.base.pipeline_scatter = s->layout.pipeline_scatter;
  q.base.reshard = s->layout.reshard;
  q.base.gradient_dtype = s->layout.gradient_dtype;
  q.base.ring_gradient_dtype = s->layout.ring_gradient_dtype;
  q.base.overlap = s->layout.overlap;
  q.base.loss = s->layout.loss;
  q.base.loss_chunks = s->layout.loss_chunks;
  q.base.mlp_tiles = s->layout.mlp_tiles;
  q.base.expert_capacity = s->layout.expert_capacity;
  return q;
}
