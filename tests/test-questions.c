/* SPDX-License-Identifier: Apache-2.0 */
#include "models/questions/questions.h"
#include "models/questions/what-if.h"
#include "tests/shipped.h"

#include <math.h>
#include <string.h>

/* Questions beside the planner's own, against plain searches, scans and arithmetic. */

typedef struct {
  SpArchitecture *arch;
  SpCluster *cluster;
  SpFramework *framework;
  SpEstimator estimator;
  SpPlanQuestion question;
} World;

static void
world_init (World *w, const char *model, const char *cluster, gint64 sequence, gint32 global_batch)
{
  w->arch = load_model (model);
  w->cluster = load_cluster (cluster);
  w->framework = load_framework ("flash");
  sp_estimator_init (&w->estimator, w->arch, w->cluster, w->framework, SP_MFU_SEQPAR);
  w->question = (SpPlanQuestion){
    .sequence = sequence,
    .global_batch = global_batch,
    .top = 10,
    .causal = TRUE,
    .base = SP_LAYOUT_DEFAULT,
    .fixed = sp_plan_beyond_usual (),
  };
}

static void
world_clear (World *w)
{
  sp_architecture_free (w->arch);
  sp_cluster_free (w->cluster);
  sp_framework_free (w->framework);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (World, world_clear)

static SpPlan *
plan_of (World *w, gint64 sequence, gint32 gpus, guint top)
{
  SpPlanQuestion q = w->question;

  q.sequence = sequence;
  q.gpus = gpus;
  q.top = top;
  return sp_plan (&w->estimator, &q, NULL);
}

static gboolean
passes (World *w, gint64 sequence, double least_tokens_per_s)
{
  g_autoptr (SpPlan) plan = plan_of (w, sequence, w->question.gpus, 1);
  const SpPlanEntry *best = sp_plan_best (plan);

  return best != NULL && best->estimate.tokens_per_s >= least_tokens_per_s;
}

/* --- the longest sequence ----------------------------------------------------------------------------------------- */

typedef struct {
  const char *name, *model, *cluster;
  gint32 gpus, global_batch;
  double least_tokens_per_s;
  gint64 step;
  SpSequenceLimit limit;
} Length;

static const Length lengths[] = {
  { "llama-4", "llama-3.1-8b", "h100-1x4", 0, 2, 0, 1024, SP_LIMIT_MEMORY },
  { "llama-4-rate", "llama-3.1-8b", "h100-1x4", 0, 2, 15000, 1024, SP_LIMIT_RATE },
  { "tnl-3", "tnl-1b", "a100-1x8", 3, 3, 0, 3072, SP_LIMIT_MEMORY },
  { "tnl-2", "tnl-1b", "a100-1x8", 2, 1, 0, 1024, SP_LIMIT_MEMORY },
  { "gla-4", "gla-7b", "h100-1x4", 0, 1, 0, 1024, SP_LIMIT_MEMORY },
};

static void
test_longest (gconstpointer data)
{
  const Length *l = data;
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };

  world_init (&w, l->model, l->cluster, 0, l->global_batch);
  w.question.gpus = l->gpus;
  g_autoptr (SpMaxSequence) max = sp_plan_max_sequence (&w.estimator, &w.question, l->least_tokens_per_s, &error);
  g_assert_no_error (error);
  g_test_message ("%" G_GINT64_FORMAT " tokens, %u searches", max->sequence, max->searches);
  g_assert_cmpint (max->step_tokens, ==, l->step);
  g_assert_cmpint (max->sequence % l->step, ==, 0);
  g_assert_cmpint (max->sequence, >, 0);
  g_assert_cmpint (max->next, ==, max->sequence + l->step);
  g_assert_cmpint (max->limit, ==, l->limit);
  g_assert_true (max->is_monotonic);
  g_assert_true (passes (&w, max->sequence, l->least_tokens_per_s));
  g_assert_false (passes (&w, max->next, l->least_tokens_per_s));
  g_assert_cmpint (sp_plan_best (max->plan)->run.sequence, ==, max->sequence);
  g_assert_cmpfloat (max->best_tokens_per_s, >=, sp_plan_best (max->plan)->estimate.tokens_per_s);
  if (l->limit == SP_LIMIT_RATE)
    g_assert_cmpfloat (sp_plan_best (max->next_plan)->estimate.tokens_per_s, <, l->least_tokens_per_s);
}

/* A scan of every step, on GPUs so small that there are few. */
static void
test_longest_scan (void)
{
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };
  gint64 longest = 0;

  world_init (&w, "tiny", "h100-1x4", 0, 2);
  w.cluster->device->memory_bytes.value = 4.3e9; /* of which the framework reserves most */
  sp_estimator_init (&w.estimator, w.arch, w.cluster, w.framework, SP_MFU_SEQPAR);
  g_autoptr (SpMaxSequence) max = sp_plan_max_sequence (&w.estimator, &w.question, 0, &error);
  g_assert_no_error (error);
  for (gint64 tokens = max->step_tokens; tokens <= 2 * max->sequence;
       tokens += MAX (1, max->sequence / 1024 / 300) * 1024)
    if (passes (&w, tokens, 0))
      longest = MAX (longest, tokens);
  g_test_message ("%" G_GINT64_FORMAT " tokens; by a scan at least %" G_GINT64_FORMAT, max->sequence, longest);
  g_assert_cmpint (max->sequence, >, 0);
  g_assert_cmpint (longest, <=, max->sequence);
}

static void
test_longest_none (void)
{
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };

  world_init (&w, "llama-3.1-8b", "h100-1x8", 0, 8);
  w.question.gpus = 1;
  g_autoptr (SpMaxSequence) max = sp_plan_max_sequence (&w.estimator, &w.question, 0, &error);
  g_assert_no_error (error);
  g_assert_cmpint (max->sequence, ==, 0);
  g_assert_null (max->plan);
  g_assert_cmpint (max->next, ==, 1024);
  g_assert_cmpint (max->limit, ==, SP_LIMIT_MEMORY);
  g_assert_true (max->next_plan->has_nearest);

  w.question.gpus = 8;
  g_autoptr (SpMaxSequence) quick = sp_plan_max_sequence (&w.estimator, &w.question, 1e9, &error);
  g_assert_no_error (error);
  g_assert_cmpint (quick->sequence, ==, 0);
  g_assert_cmpint (quick->limit, ==, SP_LIMIT_RATE);
  g_assert_cmpfloat (quick->best_tokens_per_s, >, 0);
  g_assert_true (passes (&w, quick->best_sequence, quick->best_tokens_per_s));

  w.question.gpus = 16;
  g_assert_null (sp_plan_max_sequence (&w.estimator, &w.question, 0, &error));
  g_assert_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL);
}

/* Case G16: 28 query and 4 KV heads on 8 GPUs. Ulysses 8 is refused, and the longest sequence is Ulysses 4 x ring 2's,
 * once the logits of all tokens do not count. */
static void
test_heads (void)
{
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };

  world_init (&w, "qwen2.5-7b", "a100-1x8", 0, 1);
  w.question.base.loss = SP_LOSS_CHUNKED;
  g_autoptr (SpMaxSequence) max = sp_plan_max_sequence (&w.estimator, &w.question, 0, &error);
  g_assert_no_error (error);
  const SpPlanEntry *best = sp_plan_best (max->plan);
  g_assert_cmpint (best->layout.ulysses, ==, 4);
  g_assert_cmpint (best->layout.ring, ==, 2);
  for (guint i = 0; i < max->plan->entries->len; i++)
    g_assert_cmpint (g_array_index (max->plan->entries, SpPlanEntry, i).layout.ulysses, !=, 8);
}

/* Case G15: 40 and 8 heads at 64K on 16 GPUs. Ulysses 8, with a ring of 2 for one sequence, and two data ranks for more. */
static void
test_heads_of_batches (void)
{
  static const struct {
    gint32 global_batch, data, ulysses, ring;
  } rows[] = { { 1, 1, 8, 2 }, { 16, 2, 8, 1 } };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autoptr (GError) error = NULL;
    g_auto (World) w = { 0 };
    world_init (&w, "qwen2.5-14b", "a100-16x8", 65536, rows[i].global_batch);
    w.question.gpus = 16;
    g_autoptr (SpPlanGpus) gpus = sp_plan_gpus (&w.estimator, &w.question, 16000, FALSE, &error);
    g_assert_no_error (error);
    g_assert_cmpint (gpus->fewest, ==, 0);
    const SpPlanEntry *best = sp_plan_best (((SpPlanTrial *) gpus->trials->pdata[0])->plan);
    g_assert_cmpint (best->layout.data, ==, rows[i].data);
    g_assert_cmpint (best->layout.ulysses, ==, rows[i].ulysses);
    g_assert_cmpint (best->layout.ring, ==, rows[i].ring);
  }
}

/* --- numbers of GPUs ---------------------------------------------------------------------------------------------- */

static void
assert_counts (gint32 nodes, gint32 gpus_per_node, const char *expected)
{
  const SpCluster cluster = { .nodes = nodes, .gpus_per_node = gpus_per_node };
  g_autoptr (GArray) counts = sp_plan_gpu_counts (&cluster);
  g_autoptr (GString) text = g_string_new (NULL);

  for (guint i = 0; i < counts->len; i++)
    g_string_append_printf (text, "%s%d", i > 0 ? " " : "", g_array_index (counts, gint32, i));
  g_assert_cmpstr (text->str, ==, expected);
}

static void
test_counts (void)
{
  assert_counts (1, 8, "1 2 4 8");
  assert_counts (4, 8, "1 2 4 8 16 32");
  assert_counts (12, 8, "1 2 4 8 16 24 32 48 64 96");
  assert_counts (3, 1, "1 2 3");
  assert_counts (1, 6, "1 2 3 6");
}

/* None of fewer GPUs will do, by searches of their own; of a target's, all that are listed reach it. */
static void
test_fewest (void)
{
  static const double targets[] = { 0, 50000, 120000, 1e9 };
  g_auto (World) w = { 0 };

  world_init (&w, "llama-3.1-8b", "a800-2x8", 32768, 16);
  g_autoptr (GArray) counts = sp_plan_gpu_counts (w.cluster);
  for (guint t = 0; t < G_N_ELEMENTS (targets); t++)
    for (gint stops = 0; stops < 2; stops++) {
      g_autoptr (GError) error = NULL;
      g_autoptr (SpPlanGpus) gpus = sp_plan_gpus (&w.estimator, &w.question, targets[t], stops, &error);
      gint fewest = -1;
      g_assert_no_error (error);
      for (guint i = 0; i < counts->len && fewest < 0; i++) {
        g_autoptr (SpPlan) plan = plan_of (&w, 32768, g_array_index (counts, gint32, i), 1);
        const SpPlanEntry *best = sp_plan_best (plan);
        if (best != NULL && best->estimate.tokens_per_s >= targets[t])
          fewest = (gint) i;
      }
      g_assert_cmpint (gpus->fewest, ==, fewest);
      g_assert_cmpuint (gpus->trials->len, ==, stops && fewest >= 0 ? (guint) fewest + 1 : counts->len);
      g_assert_true ((gpus->cheapest < 0) == (fewest < 0));
      if (fewest < 0)
        continue;
      const SpPlanTrial *trial = gpus->trials->pdata[fewest], *cheapest = gpus->trials->pdata[gpus->cheapest];
      g_assert_cmpint (trial->gpus, ==, g_array_index (counts, gint32, fewest));
      for (guint i = 0; i < trial->plan->entries->len; i++)
        g_assert_cmpfloat (g_array_index (trial->plan->entries, SpPlanEntry, i).estimate.tokens_per_s, >=, targets[t]);
      double least = sp_plan_gpu_s_per_token (cheapest, sp_plan_best (cheapest->plan));
      for (guint i = (guint) fewest; i < gpus->trials->len; i++) {
        const SpPlanTrial *other = gpus->trials->pdata[i];
        if (sp_plan_trial_reaches (other, targets[t]))
          g_assert_cmpfloat (sp_plan_gpu_s_per_token (other, sp_plan_best (other->plan)), >=, least);
      }
    }
}

/* --- budgets ------------------------------------------------------------------------------------------------------ */

static void
test_budget (void)
{
  static const double budgets[] = { 1, 7000, 1e5 };
  const double tokens = 1e11;
  g_auto (World) w = { 0 };

  world_init (&w, "llama-3.1-8b", "a800-2x8", 32768, 16);
  for (guint b = 0; b < G_N_ELEMENTS (budgets); b++) {
    g_autoptr (GError) error = NULL;
    g_autoptr (SpPlanBudget) budget = sp_plan_budget (&w.estimator, &w.question, budgets[b], tokens, &error);
    double days = INFINITY, hours = INFINITY;
    g_assert_no_error (error);
    g_assert_cmpuint (budget->costs->len, >, 10);
    for (guint i = 0; i < budget->costs->len; i++) {
      const SpPlanCost *cost = &g_array_index (budget->costs, SpPlanCost, i);
      double seconds = tokens / cost->entry->estimate.tokens_per_s;
      g_assert_cmpfloat_with_epsilon (cost->days, seconds / 86400, 1e-9 * cost->days);
      g_assert_cmpfloat_with_epsilon (cost->gpu_hours, cost->gpus * seconds / 3600, 1e-9 * cost->gpu_hours);
      g_assert_cmpfloat_with_epsilon (cost->margin, (budgets[b] - cost->gpu_hours) / budgets[b],
                                      1e-9 * (1 + fabs (cost->margin)));
      if (cost->gpu_hours <= budgets[b])
        days = MIN (days, cost->days);
      hours = MIN (hours, cost->gpu_hours);
    }
    g_assert_true ((budget->best < 0) == (days == INFINITY));
    g_assert_true ((budget->best < 0) == (budgets[b] < hours));
    if (budget->best >= 0)
      g_assert_cmpfloat (g_array_index (budget->costs, SpPlanCost, budget->best).days, ==, days);
    g_assert_cmpfloat (g_array_index (budget->costs, SpPlanCost, budget->cheapest).gpu_hours, ==, hours);
    g_assert_cmpfloat_with_epsilon (budget->affordable_tokens, tokens * budgets[b] / hours, 1e-6 * tokens);
  }
}

/* --- Pareto ------------------------------------------------------------------------------------------------------- */

static gboolean
beats (const SpPlanEntry *a, const SpPlanEntry *b)
{
  return a->estimate.step_time_s <= b->estimate.step_time_s &&
         a->estimate.memory.total_bytes <= b->estimate.memory.total_bytes &&
         (a->estimate.step_time_s < b->estimate.step_time_s ||
          a->estimate.memory.total_bytes < b->estimate.memory.total_bytes);
}

/* The front of a list of all layouts that fit: as many points of the same times and bytes. */
static guint
front_of (const SpPlan *plan, const SpPareto *pareto)
{
  const SpPlanEntry *last = NULL;
  guint n = 0;

  for (guint i = 0; i < plan->entries->len; i++) {
    const SpPlanEntry *entry = &g_array_index (plan->entries, SpPlanEntry, i);
    gboolean beaten = last != NULL && last->estimate.memory.total_bytes <= entry->estimate.memory.total_bytes;
    if (beaten)
      continue; /* of those that are quicker one needs no more */
    const SpParetoPoint *point = &g_array_index (pareto->points, SpParetoPoint, n);
    g_assert_cmpuint (n, <, pareto->points->len);
    g_assert_cmpfloat (point->entry.estimate.step_time_s, ==, entry->estimate.step_time_s);
    g_assert_cmpfloat (point->entry.estimate.memory.total_bytes, ==, entry->estimate.memory.total_bytes);
    g_assert_cmpfloat (point->entry.estimate.capacity_bytes, ==, entry->estimate.capacity_bytes);
    last = entry;
    n++;
  }
  return n;
}

static void
test_pareto_whole (void)
{
  static const char *const models[] = { "llama-3.1-8b", "tnl-1b", "mixtral-8x7b" };

  for (guint m = 0; m < G_N_ELEMENTS (models); m++) {
    g_autoptr (GError) error = NULL;
    g_auto (World) w = { 0 };
    world_init (&w, models[m], m == 2 ? "b200-1x8" : "h200-1x8", 32768, 2);
    w.question.gpus = m == 2 ? 8 : 4;
    g_autoptr (SpPareto) pareto = sp_plan_pareto (&w.estimator, &w.question, 0, &error);
    g_assert_no_error (error);
    g_autoptr (SpPlan) all = plan_of (&w, 32768, w.question.gpus, 1 << 20);
    guint n = front_of (all, pareto);
    g_test_message ("%s: %u layouts fit, %u on the front", models[m], all->entries->len, n);
    g_assert_cmpuint (n, ==, pareto->points->len);
    g_assert_cmpuint (n, >, 3);
    g_assert_cmpuint (all->entries->len, >, 10 * n);
  }
}

/* No point beats another one of as many GPUs or more; with a step, points are some of the whole front's, as far apart. */
static void
test_pareto_gpus (void)
{
  const double step = 2e9;
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };

  world_init (&w, "llama-3.1-8b", "a800-2x8", 32768, 16);
  g_autoptr (SpPareto) whole = sp_plan_pareto (&w.estimator, &w.question, 0, &error);
  g_assert_no_error (error);
  g_autoptr (SpPareto) some = sp_plan_pareto (&w.estimator, &w.question, step, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (some->points->len, <, whole->points->len);
  for (guint i = 0; i < whole->points->len; i++)
    for (guint j = 0; j < whole->points->len; j++) {
      const SpParetoPoint *a = &g_array_index (whole->points, SpParetoPoint, i),
                          *b = &g_array_index (whole->points, SpParetoPoint, j);
      g_assert_false (i != j && a->gpus <= b->gpus && beats (&a->entry, &b->entry));
    }
  for (guint i = 0; i < some->points->len; i++) {
    const SpParetoPoint *point = &g_array_index (some->points, SpParetoPoint, i);
    gboolean found = FALSE;
    for (guint j = 0; j < whole->points->len && !found; j++) {
      const SpParetoPoint *same = &g_array_index (whole->points, SpParetoPoint, j);
      found = same->gpus == point->gpus && same->entry.estimate.step_time_s == point->entry.estimate.step_time_s &&
              same->entry.estimate.memory.total_bytes == point->entry.estimate.memory.total_bytes;
    }
    g_assert_true (found);
    if (i > 0 && point[-1].gpus == point->gpus)
      g_assert_cmpfloat (point->entry.estimate.memory.total_bytes, <=,
                         point[-1].entry.estimate.memory.total_bytes - step);
  }
}

/* --- sensitivity -------------------------------------------------------------------------------------------------- */

static const SpSensitivity *
row_of (const SpPlanSensitivity *sensitivity, const char *name)
{
  for (guint i = 0; i < sensitivity->rows->len; i++)
    if (g_str_equal (g_array_index (sensitivity->rows, SpSensitivity, i).name, name))
      return &g_array_index (sensitivity->rows, SpSensitivity, i);
  g_error ("no row %s", name);
}

/* "KEY = 989 TFLOP/s" of the text with 1 % more; whether it is there. */
static gboolean
scale_key (char **text, const char *key)
{
  g_autofree char *pattern = g_strdup_printf ("(?m)^%s = ([0-9.]+)", key);
  g_autoptr (GRegex) regex = g_regex_new (pattern, 0, 0, NULL);
  g_autoptr (GMatchInfo) match = NULL;
  char buffer[G_ASCII_DTOSTR_BUF_SIZE];

  if (!g_regex_match (regex, *text, 0, &match))
    return FALSE;
  g_autofree char *number = g_match_info_fetch (match, 1);
  double more = 1.01 * g_ascii_strtod (number, NULL);
  g_autofree char *line = g_strdup_printf ("%s = %s", key, g_ascii_dtostr (buffer, sizeof buffer, more));
  char *scaled = g_regex_replace_literal (regex, *text, -1, 0, line, 0, NULL);
  g_free (*text);
  *text = scaled;
  return TRUE;
}

/* Of files of which the comma-separated keys are 1 % more; NULL: they have none of them. */
static SpCluster *
load_scaled (const char *cluster, const char *device, const char *keys)
{
  g_autoptr (GError) error = NULL;
  g_auto (GStrv) names = g_strsplit (keys, ", ", -1);
  g_autofree char *cluster_path = sp_find_cluster (cluster, NULL);
  g_autofree char *device_path = g_build_filename (g_getenv ("SEQPAR_DATA"), "devices", device, NULL);
  g_autofree char *cluster_text = NULL, *device_text = NULL;

  g_assert_true (g_file_get_contents (cluster_path, &cluster_text, NULL, NULL));
  g_assert_true (g_file_get_contents (device_path, &device_text, NULL, NULL));
  gboolean any = FALSE;
  for (guint i = 0; names[i] != NULL; i++) {
    any |= scale_key (&cluster_text, names[i]);
    any |= scale_key (&device_text, names[i]);
  }
  if (!any)
    return NULL;
  char *scaled_path = input_file_new (device, device_text, -1);
  g_autofree char *from = g_strconcat ("device = ../devices/", device, NULL),
                  *to = g_strconcat ("device = ", scaled_path, NULL);
  g_autofree char *text = input_file_replace (cluster_text, from, to);
  SpCluster *loaded = sp_cluster_parse (cluster_path, text, strlen (text), &error);
  g_assert_no_error (error);
  input_file_remove (scaled_path);
  return loaded;
}

/* Each row is what the planner says of files whose keys are scaled by hand. */
static void
test_sensitivity_files (gconstpointer data)
{
  const char *const *files = data; /* model, cluster, device */
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };

  world_init (&w, files[0], files[1], 65536, 8);
  w.question.base.offload = SP_OFFLOAD_OPTIMIZER;
  g_autoptr (SpPlanSensitivity) all = sp_plan_sensitivity (&w.estimator, &w.question, 0.01, &error);
  g_assert_no_error (error);
  const SpPlanEntry *best = sp_plan_best (all->plan);
  double sum = 0;
  guint compared = 0;
  g_assert_cmpuint (all->rows->len, ==, 7);
  for (guint i = 0; i < all->rows->len; i++) {
    const SpSensitivity *row = &g_array_index (all->rows, SpSensitivity, i);
    sum += row->gain;
    g_assert_cmpfloat (row->planned_gain, >=, row->gain);
    if (i > 0)
      g_assert_cmpfloat (row->planned_gain, <=, row[-1].planned_gain);
    if (g_str_equal (row->name, "host")) /* some of its keys are the framework's */
      continue;
    g_autoptr (SpCluster) scaled = load_scaled (files[1], files[2], row->keys);
    if (scaled == NULL)
      continue;
    compared++;
    SpEstimator estimator;
    sp_estimator_init (&estimator, w.arch, scaled, w.framework, SP_MFU_SEQPAR);
    g_autoptr (SpPlan) plan = sp_plan (&estimator, &w.question, &error);
    g_assert_no_error (error);
    g_test_message ("%s: %.5f %%", row->name, 100 * row->planned_gain);
    g_assert_cmpfloat_with_epsilon (row->planned_gain,
                                    1 - sp_plan_best (plan)->estimate.step_time_s / best->estimate.step_time_s, 1e-9);
  }
  g_assert_cmpuint (compared, >=, 4);
  /* The rest are latencies and launches. */
  g_assert_cmpfloat (sum, <=, 1 - 1 / 1.01 + 1e-6);
  g_assert_cmpfloat (sum, >, 0.5 * 0.01);
  g_assert_cmpfloat (row_of (all, "FLOP rate")->gain, >, 0);
  g_assert_cmpfloat (row_of (all, "memory capacity")->gain, ==, 0);
}

static void
use_profile (World *w, const char *name)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = sp_find_profile (name, &error);

  w->cluster->profile = sp_profile_load (path, &error);
  g_assert_no_error (error);
  sp_estimator_init (&w->estimator, w->arch, w->cluster, w->framework, SP_MFU_SEQPAR);
}

/* Where curves stand in formulas' places their rates count; a machine with nothing changed is the same machine. */
static void
test_sensitivity_profile (void)
{
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };
  g_auto (SpWhatIf) same = { 0 };

  world_init (&w, "llama-3.1-8b", "h200-1x4", 32768, 8);
  use_profile (&w, "h200-1x4");
  g_autoptr (SpPlanSensitivity) all = sp_plan_sensitivity (&w.estimator, &w.question, 0.01, &error);
  g_assert_no_error (error);
  const SpPlanEntry *best = sp_plan_best (all->plan);
  g_assert_cmpfloat (row_of (all, "FLOP rate")->gain, >, 0.005);
  g_assert_cmpfloat (row_of (all, "HBM rate")->gain, >, 0);
  g_assert_cmpfloat (row_of (all, "links inside a node")->gain, >, 0);
  g_assert_cmpfloat (row_of (all, "network")->gain, ==, 0);
  sp_what_if_init (&same, &w.estimator);
  g_autoptr (SpPlan) plan = sp_plan (&same.estimator, &w.question, &error);
  g_assert_no_error (error);
  g_assert_cmpfloat (sp_plan_best (plan)->estimate.step_time_s, ==, best->estimate.step_time_s);
}

/* --- ties --------------------------------------------------------------------------------------------------------- */

static void
test_ties (void)
{
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };
  SpPlanTies ties;

  world_init (&w, "llama-3.1-8b", "h200-1x4", 32768, 8);
  g_autoptr (SpPlan) without = plan_of (&w, 32768, 0, 20);
  sp_plan_find_ties (&w.estimator, without, &ties);
  g_assert_cmpuint (ties.compared, ==, 0);

  use_profile (&w, "h200-1x4");
  g_autoptr (SpPlan) plan = plan_of (&w, 32768, 0, 20);
  /* The last one far behind, so that there is one that does not tie. */
  g_array_set_size (plan->entries, 5);
  SpPlanEntry *entries = (SpPlanEntry *) plan->entries->data;
  g_autoptr (SpPlan) all = plan_of (&w, 32768, 0, 10000);
  entries[4] = g_array_index (all->entries, SpPlanEntry, all->entries->len - 1);
  sp_plan_find_ties (&w.estimator, plan, &ties);
  g_assert_cmpuint (ties.compared, ==, 5);
  g_assert_true (ties.ties[0]);
  g_assert_false (ties.ties[4]);
  guint tied = 0, fewest = G_MAXUINT, simplest = 0;
  for (guint i = 0; i < 5; i++) {
    const double *best = entries[0].estimate.interval_s, *mine = entries[i].estimate.interval_s, *more = ties.more_s[i];
    double difference = entries[i].estimate.step_time_s - entries[0].estimate.step_time_s;
    g_assert_cmpfloat (more[0], <=, difference + 1e-12);
    g_assert_cmpfloat (more[1], >=, difference - 1e-12);
    /* What is common cancels: the difference is known at least as well as if the steps had nothing in common. */
    g_assert_cmpfloat (more[1] - more[0], <=, mine[1] - mine[0] + best[1] - best[0]);
    g_assert_cmpfloat (mine[0], <, entries[i].estimate.step_time_s);
    g_assert_cmpfloat (mine[1], >, entries[i].estimate.step_time_s);
    g_assert_true (ties.ties[i] == (more[0] <= 0 && more[1] >= 0));
    tied += ties.ties[i];
    guint axes = sp_layout_axes (&entries[i].layout, w.arch);
    if (ties.ties[i] && axes < fewest) {
      fewest = axes;
      simplest = i;
    }
  }
  /* The best beside itself is known exactly. */
  g_assert_cmpfloat (ties.more_s[0][0], ==, 0);
  g_assert_cmpfloat (ties.more_s[0][1], ==, 0);
  g_assert_cmpuint (ties.tied, ==, tied);
  g_assert_cmpuint (ties.simplest, ==, simplest);
}

int
main (int argc, char **argv)
{
  static const char *const machines[][3] = { { "llama-3.1-8b", "h100-1x8", "h100.ini" },
                                             { "llama-3.1-8b", "h100-2x8-tcpx", "h100.ini" },
                                             { "tnl-1b", "l40s-1x8", "l40s.ini" } };

  g_test_init (&argc, &argv, NULL);
  if (g_getenv ("SEQPAR_DATA") == NULL) {
    g_print ("1..0 # SKIP SEQPAR_DATA is not set; run meson test\n");
    return 0;
  }
  for (guint i = 0; i < G_N_ELEMENTS (lengths); i++) {
    g_autofree char *path = g_strdup_printf ("/questions/longest/%s", lengths[i].name);
    g_test_add_data_func (path, &lengths[i], test_longest);
  }
  g_test_add_func ("/questions/longest/scan", test_longest_scan);
  g_test_add_func ("/questions/longest/none", test_longest_none);
  g_test_add_func ("/questions/longest/heads", test_heads);
  g_test_add_func ("/questions/longest/heads-of-batches", test_heads_of_batches);
  g_test_add_func ("/questions/gpus/counts", test_counts);
  g_test_add_func ("/questions/gpus/fewest", test_fewest);
  g_test_add_func ("/questions/budget", test_budget);
  g_test_add_func ("/questions/pareto/whole", test_pareto_whole);
  g_test_add_func ("/questions/pareto/gpus", test_pareto_gpus);
  for (guint i = 0; i < G_N_ELEMENTS (machines); i++) {
    g_autofree char *path = g_strdup_printf ("/questions/sensitivity/%s/%s", machines[i][0], machines[i][1]);
    g_test_add_data_func (path, machines[i], test_sensitivity_files);
  }
  g_test_add_func ("/questions/sensitivity/profile", test_sensitivity_profile);
  g_test_add_func ("/questions/ties", test_ties);
  return g_test_run ();
}
