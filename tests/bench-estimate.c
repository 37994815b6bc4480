/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cache.h"
#include "models/planner.h"
#include "models/inputs/scenario.h"
#include "tests/bench.h"
#include "tests/count-allocations.h"

#include <string.h>

/*
 * Layouts a second, on one thread, by CPU time. A layout is checked for legality and fully estimated (time, memory,
 * volume).
 *   anew      legal layouts of three models in random order, every one written and priced anew
 *   cold      all of them (degrees that are powers of two, every recipe, four orders) in random order, with a cache of
 *             priced blocks that is empty at the start
 *   search    sp_plan: candidates that are decided, by a bound or by an estimate, on one thread
 * Each figure is the median of five repeats of at least half a second.
 */

#define REPEATS 5
#define LEAST_S 0.5
#define ANEW 20000 /* layouts of the first figure */

typedef struct {
  guint model;
  SpLayout layout;
  SpRun run;
} Item;

typedef struct {
  const char *name;
  SpArchitecture *arch;
  SpEstimator estimator;
  gint64 sequence;
  gint32 global_batch;
} Model;

typedef struct {
  SpCluster *cluster;
  SpFramework *framework;
  Model models[3];
  GArray *items;
  SpProgram *program;
  double ops; /* kernels and messages of a layout's lists, mean */
} Bench;

/* --- what is priced ----------------------------------------------------------------------------------------------- */

static gpointer
checked (gpointer loaded, GError *error)
{
  if (error)
    g_error ("%s", error->message);
  return loaded;
}

static void
load (Bench *b)
{
  GError *error = NULL;
  g_autofree char *cluster = checked (sp_find_cluster ("a100-16x8", &error), error);
  g_autofree char *framework = checked (sp_find_framework ("flash", &error), error);
  static const struct {
    const char *file;
    gint64 sequence;
    gint32 global_batch;
  } rows[] = { { "llama-3.1-8b", 131072, 64 }, { "tnl-1b", 1 << 20, 16 }, { "tnl-1b", 262144, 32 } };

  b->cluster = checked (sp_cluster_load (cluster, &error), error);
  b->framework = checked (sp_framework_load (framework, &error), error);
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autofree char *path = checked (sp_find_model (rows[i].file, &error), error);
    Model *m = &b->models[i];
    m->arch = checked (sp_architecture_load (path, &error), error);
    m->name = i < 2 ? rows[i].file : "hybrid";
    /* Every fourth layer softmax. */
    for (gint32 l = 3; i == 2 && l < m->arch->layers; l += 4)
      m->arch->layer_kind[l] = SP_LAYER_SOFTMAX;
    m->sequence = rows[i].sequence;
    m->global_batch = rows[i].global_batch;
    sp_estimator_init (&m->estimator, m->arch, b->cluster, b->framework, SP_MFU_SEQPAR);
  }
}

/* A power of two up to 2^most. */
static const SpOrder orders[] = {
  { { SP_AXIS_TENSOR, SP_AXIS_ULYSSES, SP_AXIS_RING, SP_AXIS_LASP, SP_AXIS_DATA, SP_AXIS_PIPELINE } },
  { { SP_AXIS_TENSOR, SP_AXIS_RING, SP_AXIS_ULYSSES, SP_AXIS_LASP, SP_AXIS_DATA, SP_AXIS_PIPELINE } },
  { { SP_AXIS_TENSOR, SP_AXIS_DATA, SP_AXIS_ULYSSES, SP_AXIS_RING, SP_AXIS_LASP, SP_AXIS_PIPELINE } },
  { { SP_AXIS_ULYSSES, SP_AXIS_LASP, SP_AXIS_TENSOR, SP_AXIS_RING, SP_AXIS_PIPELINE, SP_AXIS_DATA } },
};

static void
add_recipes (Bench *b, guint model, SpLayout l)
{
  const Model *m = &b->models[model];

  for (guint split = 0; split < (l.ring > 1 ? 2 : 1); split++)
    for (gint32 batch = 1; batch <= m->global_batch; batch *= 2)
      for (guint recompute = 0; recompute < SP_N_RECOMPUTES; recompute++)
        for (gint32 zero = 0; zero <= 3; zero++)
          for (guint o = 0; o < G_N_ELEMENTS (orders); o++) {
            Item item = { .model = model, .layout = l };
            item.layout.token_split = split ? SP_TOKENS_ZIGZAG : SP_TOKENS_CONTIGUOUS;
            item.layout.recompute = (guint8) recompute;
            item.layout.zero = zero;
            item.layout.order = orders[o];
            item.run = (SpRun){ m->sequence, batch, m->global_batch, SP_DTYPE_BF16, TRUE };
            if (sp_layout_check (&item.layout, m->arch, b->framework, &item.run, 0, NULL))
              g_array_append_val (b->items, item);
          }
}

/* All degrees that are powers of two and fill the cluster. */
static void
add_model (Bench *b, guint model)
{
  const Model *m = &b->models[model];
  gboolean softmax = sp_architecture_has (m->arch, SP_LAYER_SOFTMAX),
           linear = sp_architecture_has (m->arch, SP_LAYER_LINEAR);
  gint32 gpus = b->cluster->nodes * b->cluster->gpus_per_node;
  SpLayout l = SP_LAYOUT_DEFAULT;

  for (l.tensor = 1; l.tensor <= 16; l.tensor *= 2)
    for (l.pipeline = 1; l.pipeline <= 32; l.pipeline *= 2)
      for (l.ulysses = 1; l.ulysses <= 32; l.ulysses *= 2)
        for (l.ring = 1; l.ring <= (softmax ? 128 : 1); l.ring *= 2)
          for (l.lasp = 1; l.lasp <= (linear ? 128 : 1); l.lasp *= 2) {
            l.data = 1;
            gint32 others = sp_layout_world (&l, m->arch);
            if (gpus % others != 0)
              continue;
            l.data = gpus / others;
            add_recipes (b, model, l);
          }
}

static void
shuffle (GArray *items)
{
  GRand *rand = g_rand_new_with_seed (20240801);

  for (guint i = items->len - 1; i > 0; i--) {
    guint j = (guint) g_rand_int_range (rand, 0, (gint32) i + 1);
    Item *a = &g_array_index (items, Item, i), *b = &g_array_index (items, Item, j), t = *a;
    *a = *b;
    *b = t;
  }
  g_rand_free (rand);
}

/* --- timing ------------------------------------------------------------------------------------------------------- */

static void
print_rates (const char *name, double *rates, double ops)
{
  qsort (rates, REPEATS, sizeof *rates, bench_compare);
  g_print ("%-14s %9.0f layouts/s (%.0f to %.0f), %.2f us a layout", name, rates[REPEATS / 2], rates[0],
           rates[REPEATS - 1], 1e6 / rates[REPEATS / 2]);
  if (ops > 0)
    g_print (", %.2f ns an op", 1e9 / rates[REPEATS / 2] / ops);
  g_print ("\n");
}

static void
run_items (Bench *b, guint n)
{
  for (guint i = 0; i < n; i++) {
    const Item *item = &g_array_index (b->items, Item, i);
    Model *m = &b->models[item->model];
    SpEstimate e;
    if (!sp_layout_check (&item->layout, m->arch, b->framework, &item->run, 0, NULL))
      g_error ("a layout became illegal");
    sp_estimate_layout (&m->estimator, b->program, &item->layout, &item->run, &e);
    if (!(e.step_time_s > 0))
      g_error ("no time");
  }
}

static void
time_items (Bench *b, const char *name, guint n)
{
  double rates[REPEATS];

  run_items (b, MIN (n, 1000));
  for (guint r = 0; r < REPEATS; r++) {
    double spent = 0;
    guint passes = 0;
    for (; spent < LEAST_S; passes++) {
      for (guint i = 0; i < G_N_ELEMENTS (b->models); i++)
        if (b->models[i].estimator.cache)
          sp_block_cache_clear (b->models[i].estimator.cache);
      double start = bench_cpu_s ();
      run_items (b, n);
      spent += bench_cpu_s () - start;
    }
    rates[r] = passes * (double) n / spent;
  }
  print_rates (name, rates, b->ops);
}

static void
count_ops (Bench *b, guint n)
{
  double sum = 0;

  for (guint i = 0; i < n; i++) {
    const Item *item = &g_array_index (b->items, Item, i);
    SpEstimate e;
    sp_estimate_layout (&b->models[item->model].estimator, b->program, &item->layout, &item->run, &e);
    sum += b->program->n_ops;
  }
  b->ops = sum / n;
}

static void
count_memory (Bench *b, const char *name, guint n)
{
  if (!COUNTS_ALLOCATIONS)
    return;
  run_items (b, n);
  allocations = 0;
  counting_allocations = TRUE;
  run_items (b, n);
  counting_allocations = FALSE;
  g_print ("%-14s %" G_GUINT64_FORMAT " allocations in %u layouts\n", name, allocations, n);
}

/* --- the search --------------------------------------------------------------------------------------------------- */

static void
time_search (Model *m)
{
  double rates[REPEATS];
  gint64 candidates = 0, pruned = 0;

  for (guint r = 0; r < REPEATS; r++) {
    double start = bench_cpu_s (), spent;
    gint64 decided = 0;
    do {
      SpPlanQuestion question = { .sequence = m->sequence,
                                  .global_batch = m->global_batch,
                                  .top = 10,
                                  .causal = TRUE,
                                  .base = SP_LAYOUT_DEFAULT,
                                  .fixed = sp_plan_beyond_usual (),
                                  .threads = 1 };
      GError *error = NULL;
      g_autoptr (SpPlan) plan = checked (sp_plan (&m->estimator, &question, &error), error);
      decided += candidates = plan->candidates;
      pruned = plan->pruned;
      spent = bench_cpu_s () - start;
    } while (spent < LEAST_S);
    rates[r] = (double) decided / spent;
  }
  g_autofree char *name = g_strdup_printf ("search %s", m->name);
  print_rates (name, rates, 0);
  g_print ("               %" G_GINT64_FORMAT " candidates, %.1f %% pruned: %.3f s a search\n", candidates,
           100 * (double) pruned / (double) candidates, (double) candidates / rates[REPEATS / 2]);
}

int
main (void)
{
  Bench b = { 0 };

  count_allocations_init ();
  load (&b);
  b.program = sp_program_new ();
  b.items = g_array_new (FALSE, TRUE, sizeof (Item));
  for (guint i = 0; i < G_N_ELEMENTS (b.models); i++)
    add_model (&b, i);
  shuffle (b.items);
  count_ops (&b, ANEW);
  g_print ("%u distinct layouts on %d GPUs, %.0f ops each\n", b.items->len, b.cluster->nodes * b.cluster->gpus_per_node,
           b.ops);
  count_memory (&b, "anew", ANEW);
  time_items (&b, "anew", ANEW);
  for (guint i = 0; i < G_N_ELEMENTS (b.models); i++)
    b.models[i].estimator.cache = sp_block_cache_new (14);
  count_memory (&b, "cold", ANEW);
  time_items (&b, "cold", b.items->len);
  for (guint i = 0; i < G_N_ELEMENTS (b.models); i++)
    g_clear_pointer (&b.models[i].estimator.cache, sp_block_cache_free);
  for (guint i = 0; i < 3; i++)
    time_search (&b.models[i]);

  for (guint i = 0; i < 3; i++)
    sp_architecture_free (b.models[i].arch);
  sp_program_free (b.program);
  g_array_unref (b.items);
  sp_cluster_free (b.cluster);
  sp_framework_free (b.framework);
  return 0;
}
