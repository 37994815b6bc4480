/* SPDX-License-Identifier: Apache-2.0 */
#include "models/planner.h"
#include "models/writer.h"
#include "sim/schedules.h"
#include "tests/small-models.h"

#include <math.h>
#include <string.h>

/* The planner against a plain search: every degree, recipe and order that the rules allow, with no thought to which
 * of them differ. */

typedef struct {
  const char *name;
  SmallModel model;
  gint32 nodes, gpus_per_node;
  gint64 sequence;
  gint32 global_batch;
  double memory_bytes;
} Question;

/* Memory is ample for the first three; of the others some layouts do not fit, of the last one none that is quick. */
static const Question questions[] = {
  { "softmax-1x2", SMALL_SOFTMAX, 1, 2, 4096, 2, 1e9 }, { "gqa-2x2", SMALL_GQA, 2, 2, 4096, 3, 1e9 },
  { "hybrid-2x2", SMALL_HYBRID, 2, 2, 16384, 2, 1e9 },  { "softmax-1x4", SMALL_SOFTMAX, 1, 4, 4096, 4, 3e6 },
  { "gqa-2x2-long", SMALL_GQA, 2, 2, 65536, 1, 24e6 },  { "gqa-2x2-tight", SMALL_GQA, 2, 2, 65536, 2, 17e6 },
  { "linear-2x2", SMALL_LINEAR, 2, 2, 16384, 2, 9e6 },  { "tied-2x4", SMALL_TIED, 2, 4, 1024, 2, 600e3 },
  { "experts-2x2", SMALL_EXPERTS, 2, 2, 4096, 2, 1e9 }, { "gqa-4x2", SMALL_GQA, 4, 2, 4096, 4, 1e6 },
  { "gqa-2x2-roomy", SMALL_GQA, 2, 2, 4096, 3, 8e6 },
};

/* --- set-up ------------------------------------------------------------------------------------------------------- */

typedef struct {
  SpArchitecture *arch;
  SpDevice device;
  SpCluster cluster;
  SpFramework framework;
  SpEstimator estimator;
  SpPlanQuestion question;
} World;

static void
world_init (World *w, const Question *q)
{
  w->arch = small_model (q->model);
  w->framework = small_framework (TRUE);
  w->device = small_device (q->memory_bytes);
  w->cluster = small_cluster (&w->device, q->nodes, q->gpus_per_node);
  sp_estimator_init (&w->estimator, w->arch, &w->cluster, &w->framework, SP_MFU_SEQPAR);
  w->question = (SpPlanQuestion){
    .sequence = q->sequence, .global_batch = q->global_batch, .top = 10, .causal = TRUE, .base = SP_LAYOUT_DEFAULT
  };
  /* What brute force here does not go through; all dimensions are in test-plan-bounds.c. */
  static const char *const fixed[] = { "ring-kind", "ring-keep",   "ring-backward", "recompute-every",
                                       "schedule",  "stage-split", "zero-group",    "offload" };
  for (guint i = 0; i < G_N_ELEMENTS (fixed); i++) {
    g_assert_cmpuint (sp_plan_dimension (fixed[i]), !=, 0);
    w->question.fixed |= sp_plan_dimension (fixed[i]);
  }
}

static void
world_clear (World *w)
{
  sp_architecture_free (w->arch);
}

static SpPlan *
plan_of (World *w)
{
  g_autoptr (GError) error = NULL;
  SpPlan *plan = sp_plan (&w->estimator, &w->question, &error);

  g_assert_no_error (error);
  return plan;
}

/* --- brute force -------------------------------------------------------------------------------------------------- */

typedef struct {
  gint64 tried, legal, fitting;
  double quickest, least_lacking;
  GArray *misses; /* of double: time and bytes lacking in turn */
  SpLayout layout;
} Brute;

static void
try_one (World *w, SpProgram *program, const SpLayout *layout, gint32 micro_batch, Brute *brute)
{
  SpRun run = { w->question.sequence, micro_batch, w->question.global_batch, SP_DTYPE_BF16, TRUE };
  SpEstimate e;

  brute->tried++;
  if (!sp_layout_check (layout, w->arch, &w->framework, &run, w->cluster.nodes * w->cluster.gpus_per_node, NULL))
    return;
  brute->legal++;
  sp_estimate_layout (&w->estimator, program, layout, &run, &e);
  if (e.fits) {
    if (brute->fitting++ == 0 || e.step_time_s < brute->quickest) {
      brute->quickest = e.step_time_s;
      brute->layout = *layout;
    }
    return;
  }
  double lacking = e.memory.total_bytes - e.capacity_bytes;
  if (brute->least_lacking == 0 || lacking < brute->least_lacking)
    brute->least_lacking = lacking;
  g_array_append_val (brute->misses, e.step_time_s);
  g_array_append_val (brute->misses, lacking);
}

/* All orders of the axes, of which most are the same. */
static void
try_orders (World *w, SpProgram *program, SpLayout *layout, gint32 micro_batch, guint at, Brute *brute)
{
  const gint32 degree[SP_N_RANK_AXES] = {
    [SP_AXIS_TENSOR] = layout->tensor, [SP_AXIS_ULYSSES] = layout->ulysses, [SP_AXIS_RING] = layout->ring,
    [SP_AXIS_LASP] = layout->lasp,     [SP_AXIS_DATA] = layout->data,       [SP_AXIS_PIPELINE] = layout->pipeline,
  };

  if (at == SP_N_RANK_AXES) {
    try_one (w, program, layout, micro_batch, brute);
    return;
  }
  for (guint i = at; i < SP_N_RANK_AXES; i++) {
    SpOrder before = layout->order;
    layout->order.axis[i] = before.axis[at];
    layout->order.axis[at] = before.axis[i];
    /* Where an axis of degree 1 stands changes nothing: they stay where they are. */
    if (i == at || (degree[before.axis[i]] > 1 && degree[before.axis[at]] > 1))
      try_orders (w, program, layout, micro_batch, at + 1, brute);
    layout->order = before;
  }
}

static void
try_recipes (World *w, SpProgram *program, SpLayout *layout, Brute *brute)
{
  gint32 share = (w->question.global_batch + layout->data - 1) / layout->data;

  for (gint32 batch = 1; batch <= share; batch++) {
    if (batch < share && (batch & (batch - 1)) != 0)
      continue;
    for (layout->zero = 0; layout->zero <= 3; layout->zero++)
      for (layout->recompute = 0; layout->recompute < SP_N_RECOMPUTES; layout->recompute++)
        for (layout->lasp_version = 1; layout->lasp_version <= 2; layout->lasp_version++)
          for (layout->token_split = 0; layout->token_split < SP_N_TOKEN_SPLITS; layout->token_split++)
            for (layout->expert = 1; layout->expert <= MAX (1, w->arch->moe.experts); layout->expert++)
              try_orders (w, program, layout, batch, 0, brute);
  }
}

/* Every assignment of degrees whose product may be the world: the rules sort them out. */
static void
brute_force (World *w, Brute *brute)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  gint32 n = w->cluster.nodes * w->cluster.gpus_per_node;
  gboolean softmax = sp_architecture_count (w->arch, SP_LAYER_SOFTMAX) > 0;
  SpLayout l = w->question.base;

  memset (brute, 0, sizeof *brute);
  brute->misses = g_array_new (FALSE, FALSE, sizeof (double));
  for (l.tensor = 1; l.tensor <= n; l.tensor++)
    for (l.pipeline = 1; l.pipeline <= n; l.pipeline++)
      for (l.data = 1; l.data <= n; l.data++)
        for (l.ulysses = 1; l.ulysses <= n; l.ulysses++)
          for (l.ring = 1; l.ring <= (softmax ? n : 1); l.ring++)
            for (l.lasp = 1; l.lasp <= n; l.lasp++)
              if (sp_layout_world (&l, w->arch) == n)
                try_recipes (w, program, &l, brute);
}

static double
lacking_of (const SpPlanEntry *entry)
{
  return entry->estimate.memory.total_bytes - entry->estimate.capacity_bytes;
}

static void
test_brute_force (gconstpointer data)
{
  const Question *q = data;
  World w;
  Brute brute;

  world_init (&w, q);
  g_autoptr (SpPlan) plan = plan_of (&w);
  brute_force (&w, &brute);
  g_test_message ("plan: %" G_GINT64_FORMAT " candidates, %" G_GINT64_FORMAT " legal, %" G_GINT64_FORMAT
                  " fit; brute force: %" G_GINT64_FORMAT ", %" G_GINT64_FORMAT ", %" G_GINT64_FORMAT,
                  plan->candidates, plan->legal, plan->fitting, brute.tried, brute.legal, brute.fitting);
  g_assert_cmpint (plan->candidates, >=, plan->legal);
  g_assert_cmpint (plan->legal, >=, plan->fitting);
  g_assert_cmpint (plan->legal, >, 0);
  g_assert_cmpint (plan->fitting > 0, ==, brute.fitting > 0);
  g_assert_cmpint (plan->entries->len, >, 0);
  if (g_test_failed ())
    return;
  const SpPlanEntry *best = &g_array_index (plan->entries, SpPlanEntry, 0);
  g_autofree char *text = sp_layout_describe (&best->layout, w.arch),
                  *expected = sp_layout_describe (&brute.layout, w.arch);
  g_test_message ("best %.9g s: %s; by brute force %.9g s: %s", best->estimate.step_time_s, text, brute.quickest,
                  expected);
  g_assert_cmpfloat (best->estimate.step_time_s, ==, brute.quickest);
  /* What lacks least of the quicker ones; none where all of them fit. */
  double least = INFINITY;
  for (guint i = 0; i < brute.misses->len; i += 2)
    if (g_array_index (brute.misses, double, i) < brute.quickest)
      least = MIN (least, g_array_index (brute.misses, double, i + 1));
  g_assert_cmpint (plan->has_nearest, ==, least < INFINITY);
  if (plan->has_nearest)
    g_assert_cmpfloat (lacking_of (&plan->nearest), ==, least);
  g_array_unref (brute.misses);
  world_clear (&w);
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

/* Sorted, all fitting and legal, and each estimate what its layout costs on its own. */
static void
test_entries (gconstpointer data)
{
  World w;

  world_init (&w, data);
  w.question.top = 50;
  g_autoptr (SpPlan) plan = plan_of (&w);
  g_autoptr (SpProgram) program = sp_program_new ();
  g_assert_cmpuint (plan->entries->len, <=, 50);
  g_assert_cmpint (plan->entries->len, <=, plan->fitting);
  for (guint i = 0; i < plan->entries->len; i++) {
    const SpPlanEntry *entry = &g_array_index (plan->entries, SpPlanEntry, i);
    SpEstimate alone;
    g_assert_true (entry->estimate.fits);
    g_assert_true (sp_layout_check (&entry->layout, w.arch, &w.framework, &entry->run,
                                    w.cluster.nodes * w.cluster.gpus_per_node, NULL));
    g_assert_cmpint (entry->run.sequence, ==, w.question.sequence);
    g_assert_cmpint (entry->run.global_batch, ==, w.question.global_batch);
    sp_estimate_layout (&w.estimator, program, &entry->layout, &entry->run, &alone);
    g_assert_cmpmem (&alone, sizeof alone, &entry->estimate, sizeof entry->estimate);
    if (i > 0)
      g_assert_cmpfloat (entry[-1].estimate.step_time_s, <=, entry->estimate.step_time_s);
    g_autofree char *bound = sp_plan_bound (entry);
    g_assert_true (g_str_has_prefix (bound, "bound by "));
  }
  world_clear (&w);
}

/* `top` cuts the same list; the same question has the same answer. */
static void
test_top (gconstpointer data)
{
  World w;

  world_init (&w, data);
  w.question.top = 40;
  g_autoptr (SpPlan) all = plan_of (&w), again = plan_of (&w);
  g_assert_cmpmem (all->entries->data, all->entries->len * sizeof (SpPlanEntry), again->entries->data,
                   again->entries->len * sizeof (SpPlanEntry));
  g_assert_cmpint (all->candidates, ==, again->candidates);
  for (guint top = 0; top <= 3; top++) {
    w.question.top = top;
    g_autoptr (SpPlan) few = plan_of (&w);
    g_assert_cmpuint (few->entries->len, ==, MIN (top, all->entries->len));
    g_assert_cmpint (few->candidates, ==, all->candidates);
    for (guint i = 0; i < few->entries->len; i++)
      g_assert_cmpfloat (g_array_index (few->entries, SpPlanEntry, i).estimate.step_time_s, ==,
                         g_array_index (all->entries, SpPlanEntry, i).estimate.step_time_s);
  }
  world_clear (&w);
}

/* Where nothing fits, the one that lacks least is there, with what it lacks. */
static void
test_nothing_fits (gconstpointer data)
{
  World w;
  Brute brute;

  world_init (&w, data);
  w.device.memory_bytes.value = 1e4;
  g_autoptr (SpPlan) plan = plan_of (&w);
  brute_force (&w, &brute);
  g_assert_cmpint (plan->fitting, ==, 0);
  g_assert_cmpuint (plan->entries->len, ==, 0);
  g_assert_true (plan->has_nearest);
  g_assert_false (plan->nearest.estimate.fits);
  g_test_message ("lacks %.0f bytes", lacking_of (&plan->nearest));
  g_assert_cmpfloat (lacking_of (&plan->nearest), >, 0);
  g_assert_cmpfloat (lacking_of (&plan->nearest), ==, brute.least_lacking);
  g_array_unref (brute.misses);
  world_clear (&w);
}

/* --- questions that have no answer -------------------------------------------------------------------------------- */

static void
test_refused (void)
{
  g_autoptr (GError) error = NULL;
  World w;

  world_init (&w, &questions[0]);
  w.question.gpus = 3;
  g_assert_null (sp_plan (&w.estimator, &w.question, &error));
  g_assert_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL);
  g_assert_nonnull (strstr (error->message, "3 GPUs"));
  g_clear_error (&error);

  /* One sequence of odd length, one layer, one head: nothing that two ranks could share. */
  w.arch->layers = 1;
  w.arch->heads = w.arch->kv_heads = 1;
  w.question.gpus = 2;
  w.question.sequence = 33;
  w.question.global_batch = 1;
  g_assert_null (sp_plan (&w.estimator, &w.question, &error));
  g_assert_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL);
  g_test_message ("%s", error->message);
  g_assert_nonnull (strstr (error->message, "sequence 33"));
  world_clear (&w);
}

/* Fewer GPUs than the cluster has. */
static void
test_some_gpus (void)
{
  World w;

  world_init (&w, &questions[1]);
  w.question.gpus = 2;
  g_autoptr (SpPlan) plan = plan_of (&w);
  for (guint i = 0; i < plan->entries->len; i++)
    g_assert_cmpint (sp_layout_world (&g_array_index (plan->entries, SpPlanEntry, i).layout, w.arch), ==, 2);
  g_assert_cmpuint (plan->entries->len, >, 0);
  world_clear (&w);
}

typedef struct {
  gint64 calls, all;
} Progress;

static void
note_progress (gint64 done, gint64 all, gpointer data)
{
  Progress *p = data;

  g_assert_cmpint (done, >=, p->calls);
  g_assert_cmpint (done, <=, all);
  p->calls = done;
  g_assert_true (p->all == 0 || p->all == all);
  p->all = all;
}

/* Who asks how far it is hears of candidates as they are decided, all at the end; the plan is the same. */
static void
test_progress (void)
{
  Progress p = { 0, 0 };
  World w;

  world_init (&w, &questions[8]);
  g_autoptr (SpPlan) quiet = plan_of (&w);
  w.question.progress = note_progress;
  w.question.progress_data = &p;
  g_autoptr (SpPlan) plan = plan_of (&w);
  g_assert_cmpint (p.calls, ==, plan->candidates);
  g_assert_cmpint (p.all, ==, plan->candidates);
  g_assert_cmpint (plan->candidates, ==, quiet->candidates);
  g_assert_cmpint (plan->fitting, ==, quiet->fitting);
  g_assert_cmpuint (plan->entries->len, ==, quiet->entries->len);
  world_clear (&w);
}

static void
assert_same_flat (const SpPlan *plan, const SpPlan *usual)
{
  guint at = 0, n = 0;

  for (guint i = 0; i < plan->entries->len; i++) {
    const SpPlanEntry *entry = &g_array_index (plan->entries, SpPlanEntry, i), *same;
    if (entry->layout.pipeline > 1)
      continue;
    do
      same = &g_array_index (usual->entries, SpPlanEntry, at++);
    while (same->layout.pipeline > 1);
    g_assert_cmpint (entry->layout.schedule, ==, same->layout.schedule);
    g_assert_cmpint (entry->layout.virtual_stages, ==, 1);
    g_assert_cmpfloat (entry->estimate.step_time_s, ==, same->estimate.step_time_s);
    g_assert_cmpfloat (entry->estimate.memory.total_bytes, ==, same->estimate.memory.total_bytes);
    n++;
  }
  for (; at < usual->entries->len; at++)
    g_assert_cmpint (g_array_index (usual->entries, SpPlanEntry, at).layout.pipeline, >, 1);
  g_assert_cmpuint (n, >, 0);
}

/* A schedule and a ring kind are those of layouts that have a pipeline and a ring: the others cost what they cost
 * anyway. Every one of the legal layouts fits here and is listed. */
static void
test_schedules (void)
{
  World w;

  world_init (&w, &questions[1]);
  w.question.top = 10000;
  w.question.fixed |= sp_plan_dimension ("ring-split"); /* those that cost the same are listed once */
  g_autoptr (SpPlan) usual = plan_of (&w);
  g_assert_cmpint (usual->legal, ==, usual->entries->len);
  for (guint schedule = 1; schedule < sp_schedule_count (); schedule++) {
    w.question.base.schedule = (guint8) schedule;
    g_autoptr (SpPlan) plan = plan_of (&w);
    g_assert_cmpint (plan->legal, ==, plan->entries->len);
    assert_same_flat (plan, usual);
    for (guint i = 0; i < plan->entries->len; i++) {
      const SpPlanEntry *entry = &g_array_index (plan->entries, SpPlanEntry, i);
      g_assert_cmpint (entry->layout.schedule, ==, entry->layout.pipeline > 1 ? schedule : 0);
    }
  }
  w.question.base = (SpLayout) SP_LAYOUT_DEFAULT;
  w.question.base.ring_kind = SP_RING_ALL_GATHER;
  g_autoptr (SpPlan) gathered = plan_of (&w);
  g_assert_cmpint (gathered->legal, ==, usual->legal);
  for (guint i = 0; i < gathered->entries->len; i++) {
    const SpLayout *layout = &g_array_index (gathered->entries, SpPlanEntry, i).layout;
    g_assert_cmpint (layout->ring_kind, ==, layout->ring > 1 ? SP_RING_ALL_GATHER : SP_RING_P2P);
  }
  world_clear (&w);
}

/* Stripes and zigzag cost the same here: each layout is listed once, by zigzag, and with stripes alone as often. */
static void
test_splits (void)
{
  World w;
  guint zigzag = 0;

  world_init (&w, &questions[1]);
  w.question.top = 10000;
  g_autoptr (SpPlan) all = plan_of (&w);
  w.question.fixed |= sp_plan_dimension ("ring-split");
  w.question.base.token_split = SP_TOKENS_STRIPED;
  g_autoptr (SpPlan) striped = plan_of (&w);
  for (guint i = 0; i < all->entries->len; i++) {
    const SpLayout *layout = &g_array_index (all->entries, SpPlanEntry, i).layout;
    g_assert_true (layout->ring == 1 || layout->token_split != SP_TOKENS_STRIPED);
    zigzag += layout->token_split == SP_TOKENS_ZIGZAG;
  }
  g_assert_cmpuint (zigzag, >, 0);
  g_assert_cmpuint (zigzag, ==, striped->entries->len);
  world_clear (&w);
}

/* Memory between what a layout needs with its loss in chunks and what it needs without. */
static double
memory_between (World *w, SpProgram *program, const SpPlanEntry *entry)
{
  SpLayout layout = entry->layout;
  SpEstimate e;

  layout.loss = SP_LOSS_CHUNKED;
  sp_estimate_layout (&w->estimator, program, &layout, &entry->run, &e);
  g_assert_cmpfloat (e.memory.total_bytes, <, entry->estimate.memory.total_bytes);
  return (e.memory.total_bytes + entry->estimate.memory.total_bytes) / 2;
}

/* A loss in chunks is listed where the framework has it, and only of layouts that do not fit without. */
static void
test_chunked_loss (void)
{
  World w;
  guint chunked = 0;

  world_init (&w, &questions[0]);
  w.question.top = 10000;
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (SpPlan) ample = plan_of (&w);
  w.device.memory_bytes.value = memory_between (&w, program, &g_array_index (ample->entries, SpPlanEntry, 0));
  g_autoptr (SpPlan) whole = plan_of (&w);
  w.framework.chunks_loss = TRUE;
  g_autoptr (SpPlan) plan = plan_of (&w);
  for (guint i = 0; i < plan->entries->len; i++) {
    const SpPlanEntry *entry = &g_array_index (plan->entries, SpPlanEntry, i);
    SpLayout without = entry->layout;
    SpEstimate e;
    without.loss = SP_LOSS_VOCABULARY;
    sp_estimate_layout (&w.estimator, program, &without, &entry->run, &e);
    g_assert_cmpint (e.fits, ==, entry->layout.loss == SP_LOSS_VOCABULARY);
    chunked += entry->layout.loss == SP_LOSS_CHUNKED;
  }
  g_test_message ("%u of %u layouts that fit have a loss in chunks", chunked, plan->entries->len);
  g_assert_cmpuint (chunked, >, 0);
  g_assert_cmpuint (plan->entries->len, ==, whole->entries->len + chunked);
  world_clear (&w);
}

/* A search for each number of slices, put together: the best are the best of all of them, and counts add up. One that is
 * legal for none, as 3 slices of a power of two are, changes nothing. */
static void
test_slices (void)
{
  static const gint32 numbers[] = { 1, 2, 3, 4 };
  g_autoptr (GError) error = NULL;
  gint64 legal = 0;
  double quickest = INFINITY;
  World w;

  world_init (&w, &questions[1]);
  g_autoptr (SpPlan) all = sp_plan_of_slices (&w.estimator, &w.question, numbers, G_N_ELEMENTS (numbers), &error);
  g_assert_no_error (error);
  for (guint i = 0; i < G_N_ELEMENTS (numbers); i++) {
    w.question.base.slices = numbers[i];
    g_autoptr (SpPlan) one = sp_plan (&w.estimator, &w.question, NULL);
    g_assert_true ((one == NULL) == (numbers[i] == 3));
    if (one == NULL)
      continue;
    legal += one->legal;
    g_assert_cmpuint (one->entries->len, >, 0);
    quickest = MIN (quickest, g_array_index (one->entries, SpPlanEntry, 0).estimate.step_time_s);
    for (guint e = 0; e < one->entries->len; e++)
      g_assert_cmpint (g_array_index (one->entries, SpPlanEntry, e).layout.slices, ==, numbers[i]);
  }
  g_assert_cmpint (all->legal, ==, legal);
  g_assert_cmpuint (all->entries->len, ==, w.question.top);
  g_assert_cmpfloat (g_array_index (all->entries, SpPlanEntry, 0).estimate.step_time_s, ==, quickest);
  for (guint e = 1; e < all->entries->len; e++)
    g_assert_cmpfloat (g_array_index (all->entries, SpPlanEntry, e - 1).estimate.step_time_s, <=,
                       g_array_index (all->entries, SpPlanEntry, e).estimate.step_time_s);
  g_assert_null (sp_plan_of_slices (&w.estimator, &w.question, &numbers[2], 1, &error));
  g_assert_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL);
  world_clear (&w);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  const struct {
    const char *name;
    GTestDataFunc test;
  } tests[] = {
    { "brute-force", test_brute_force },
    { "entries", test_entries },
    { "top", test_top },
    { "nothing-fits", test_nothing_fits },
  };
  for (guint t = 0; t < G_N_ELEMENTS (tests); t++)
    for (guint i = 0; i < G_N_ELEMENTS (questions); i++) {
      g_autofree char *path = g_strdup_printf ("/planner/%s/%s", tests[t].name, questions[i].name);
      g_test_add_data_func (path, &questions[i], tests[t].test);
    }
  g_test_add_func ("/planner/refused", test_refused);
  g_test_add_func ("/planner/some-gpus", test_some_gpus);
  g_test_add_func ("/planner/schedules", test_schedules);
  g_test_add_func ("/planner/splits", test_splits);
  g_test_add_func ("/planner/chunked-loss", test_chunked_loss);
  g_test_add_func ("/planner/progress", test_progress);
  g_test_add_func ("/planner/slices", test_slices);
  return g_test_run ();
}
