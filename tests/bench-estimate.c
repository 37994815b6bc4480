/* SPDX-License-Identifier: Apache-2.0 */
#include "models/block-cache.h"
#include "models/planner.h"
#include "models/scenario.h"
#include "tests/count-allocations.h"
#include "tests/random-layouts.h"

#include <string.h>

/*
 * Layouts a second, on one thread. A layout is checked for legality, written and fully estimated (time, memory,
 * volume).
 *   cold      distinct layouts of three models in random order, every one written anew
 *   cached    the same with the search's cache, which the random order defeats as far as it goes
 *   search    sp_plan: the order of the search, with its cache
 * Each figure is the median of five repeats of at least half a second.
 */

#define REPEATS 5
#define LEAST_S 0.5

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
static gint32
power (GRand *rand, gint32 most)
{
  return 1 << draw_int (rand, 0, most);
}

static gboolean
draw_item (GRand *rand, const Bench *b, Item *item)
{
  const Model *m = &b->models[item->model];
  SpLayout *l = &item->layout;
  gboolean softmax = sp_architecture_count (m->arch, SP_LAYER_SOFTMAX) > 0,
           linear = sp_architecture_count (m->arch, SP_LAYER_LINEAR) > 0;

  memset (item->layout.stage_split, 0, sizeof item->layout.stage_split);
  *l = (SpLayout) SP_LAYOUT_DEFAULT;
  l->tensor = power (rand, 3);
  l->pipeline = power (rand, 3);
  l->ulysses = power (rand, 4);
  l->ring = softmax ? power (rand, 5) : 1;
  l->lasp = linear ? power (rand, 6) : 1;
  l->lasp_version = draw_int (rand, 1, 2);
  l->token_split = linear || draw_int (rand, 0, 1) ? SP_TOKENS_CONTIGUOUS : SP_TOKENS_ZIGZAG;
  l->zero = draw_int (rand, 0, 3);
  l->recompute = (guint8) draw_int (rand, 0, SP_N_RECOMPUTES - 1);
  draw_order (rand, &l->order);
  gint32 gpus = b->cluster->nodes * b->cluster->gpus_per_node, others = sp_layout_world (l, m->arch);
  if (gpus % others != 0)
    return FALSE;
  l->data = gpus / others;
  item->run = (SpRun){ m->sequence, power (rand, 3), m->global_batch, SP_DTYPE_BF16, TRUE };
  return sp_layout_check (l, m->arch, b->framework, &item->run, gpus, NULL);
}

/* Distinct legal layouts, in random order. */
static void
draw_items (Bench *b, guint n)
{
  GRand *rand = g_rand_new_with_seed (20240801);
  Item item;

  b->items = g_array_new (FALSE, TRUE, sizeof (Item));
  memset (&item, 0, sizeof item);
  while (b->items->len < n) {
    gboolean known = FALSE;
    item.model = (guint) draw_int (rand, 0, 2);
    if (!draw_item (rand, b, &item))
      continue;
    for (guint i = 0; i < b->items->len && !known; i++) {
      const Item *other = &g_array_index (b->items, Item, i);
      known = other->model == item.model && other->run.micro_batch == item.run.micro_batch &&
              memcmp (&other->layout, &item.layout, sizeof item.layout) == 0;
    }
    if (!known)
      g_array_append_val (b->items, item);
  }
  g_rand_free (rand);
}

/* --- timing ------------------------------------------------------------------------------------------------------- */

static double
seconds_now (void)
{
  return (double) g_get_monotonic_time () / 1e6;
}

static int
compare_doubles (const void *a, const void *b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return x < y ? -1 : x > y;
}

static void
print_rates (const char *name, double *rates, double ops)
{
  qsort (rates, REPEATS, sizeof *rates, compare_doubles);
  g_print ("%-14s %9.0f layouts/s (%.0f to %.0f), %.2f us a layout", name, rates[REPEATS / 2], rates[0],
           rates[REPEATS - 1], 1e6 / rates[REPEATS / 2]);
  if (ops > 0)
    g_print (", %.2f ns an op", 1e9 / rates[REPEATS / 2] / ops);
  g_print ("\n");
}

static void
run_items (Bench *b)
{
  for (guint i = 0; i < b->items->len; i++) {
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
time_items (Bench *b, const char *name)
{
  double rates[REPEATS];

  run_items (b);
  for (guint r = 0; r < REPEATS; r++) {
    double start = seconds_now (), spent;
    guint passes = 0;
    do {
      run_items (b);
      passes++;
      spent = seconds_now () - start;
    } while (spent < LEAST_S);
    rates[r] = passes * b->items->len / spent;
  }
  print_rates (name, rates, b->ops);
}

static void
count_ops (Bench *b)
{
  double sum = 0;

  for (guint i = 0; i < b->items->len; i++) {
    const Item *item = &g_array_index (b->items, Item, i);
    SpEstimate e;
    sp_estimate_layout (&b->models[item->model].estimator, b->program, &item->layout, &item->run, &e);
    sum += b->program->n_ops;
  }
  b->ops = sum / b->items->len;
}

static void
count_memory (Bench *b, const char *name)
{
  if (!COUNTS_ALLOCATIONS)
    return;
  run_items (b);
  allocations = 0;
  counting_allocations = TRUE;
  run_items (b);
  counting_allocations = FALSE;
  g_print ("%-14s %" G_GUINT64_FORMAT " allocations in %u layouts\n", name, allocations, b->items->len);
}

/* --- the search --------------------------------------------------------------------------------------------------- */

static void
time_search (Model *m)
{
  double rates[REPEATS];
  gint64 legal = 0, candidates = 0;

  for (guint r = 0; r < REPEATS; r++) {
    double start = seconds_now (), spent;
    gint64 priced = 0;
    do {
      SpPlanQuestion question = {
        .sequence = m->sequence, .global_batch = m->global_batch, .top = 10, .causal = TRUE, .base = SP_LAYOUT_DEFAULT
      };
      GError *error = NULL;
      g_autoptr (SpPlan) plan = checked (sp_plan (&m->estimator, &question, &error), error);
      priced += legal = plan->legal;
      candidates = plan->candidates;
      spent = seconds_now () - start;
    } while (spent < LEAST_S);
    rates[r] = (double) priced / spent;
  }
  g_autofree char *name = g_strdup_printf ("search %s", m->name);
  print_rates (name, rates, 0);
  g_print ("               %" G_GINT64_FORMAT " candidates, %" G_GINT64_FORMAT " legal: %.3f s a search\n", candidates,
           legal, (double) legal / rates[REPEATS / 2]);
}

int
main (void)
{
  Bench b = { 0 };

  count_allocations_init ();
  load (&b);
  b.program = sp_program_new ();
  draw_items (&b, 3000);
  count_ops (&b);
  g_print ("%u distinct layouts on %d GPUs, %.0f ops each\n", b.items->len, b.cluster->nodes * b.cluster->gpus_per_node,
           b.ops);
  count_memory (&b, "cold");
  time_items (&b, "cold");
  for (guint i = 0; i < 3; i++)
    b.models[i].estimator.cache = sp_block_cache_new (10);
  count_memory (&b, "cached");
  time_items (&b, "cached");
  for (guint i = 0; i < 3; i++) {
    sp_block_cache_free (b.models[i].estimator.cache);
    b.models[i].estimator.cache = NULL;
  }
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
