/* SPDX-License-Identifier: Apache-2.0 */
#include "models/plan/plan-private.h"

#include "sim/words.h"

#include <math.h>
#include <string.h>

/* The search as a whole: units in waves, over threads and ranks. */

/* Units of a wave: the first ones are few, for they find what the others have to beat. */
#define FIRST_WAVE 4
#define LARGEST_WAVE 64

#define UNITS_AT_ONCE 64 /* that a thread bounds */

typedef struct {
  SpPlanSpace space;
  SpPlan *plan;
  SpPlanUnits units;
  SpPlanKept kept, sample;
  double core_s;
  GPtrArray *workers;
  gint64 decided; /* candidates, for who asks how far it is */
  GError *failed; /* on some rank */
} Plan;

/* --- threads ------------------------------------------------------------------------------------------------------ */

typedef void (*Job) (Plan *plan, SpPlanWorker *worker, guint i, gpointer data);

typedef struct {
  Plan *plan;
  Job job;
  gpointer data;
  guint n, step;
  gint next;
} Crew;

static void
take_jobs (Crew *crew, SpPlanWorker *worker)
{
  for (guint i; (i = (guint) g_atomic_int_add (&crew->next, 1)) * crew->step < crew->n;)
    for (guint j = i * crew->step; j < MIN (crew->n, (i + 1) * crew->step); j++)
      crew->job (crew->plan, worker, j, crew->data);
}

static void
run_worker (gpointer worker, gpointer crew)
{
  take_jobs (crew, worker);
}

/* Jobs 0 to n - 1 on all threads, `step` of them at a time; each leaves what it finds in its own place. */
static void
run_jobs (Plan *plan, Job job, gpointer data, guint n, guint step)
{
  Crew crew = { .plan = plan, .job = job, .data = data, .n = n, .step = step };
  guint threads = MIN (plan->workers->len, (n + step - 1) / step);

  if (threads <= 1) {
    take_jobs (&crew, plan->workers->pdata[0]);
    return;
  }
  GThreadPool *pool = g_thread_pool_new (run_worker, &crew, (gint) threads, FALSE, NULL);
  for (guint t = 0; t < threads; t++)
    g_thread_pool_push (pool, plan->workers->pdata[t], NULL);
  g_thread_pool_free (pool, FALSE, TRUE);
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

typedef struct {
  SpPlanLimits limits;
  guint first;
  const guint *units; /* their numbers */
  SpPlanKept *found;  /* [n] */
} Wave;

/* What a unit found, as bytes. Pointers in it are those of another process: they are set again. */
typedef struct {
  guint unit, best, misses, left;
  gint64 refused, legal, estimated, fitting;
  double least_low_s;
} Packed;

static gboolean
is_own (const Plan *plan, guint i)
{
  const SpPlanRanks *ranks = plan->space.question->ranks;

  return ranks == NULL || i % ranks->n == ranks->rank;
}

static void
pack (const Plan *plan, const Wave *wave, guint i, GByteArray *bytes)
{
  const SpPlanKept *found = &wave->found[i];
  Packed packed = { .unit = i,
                    .refused = found->refused,
                    .legal = found->legal,
                    .estimated = found->estimated,
                    .fitting = found->fitting };

  packed.best = found->best->len;
  packed.misses = found->misses->len;
  packed.left = g_array_index (plan->units.units, SpPlanUnit, wave->units[i]).left_for_memory;
  packed.least_low_s = found->least_low_s;
  g_byte_array_append (bytes, (guint8 *) &packed, sizeof packed);
  g_byte_array_append (bytes, (guint8 *) found->best->data, found->best->len * (guint) sizeof (SpPlanEntry));
  g_byte_array_append (bytes, (guint8 *) found->misses->data, found->misses->len * (guint) sizeof (SpPlanEntry));
}

static void
unpack_entries (const Plan *plan, GArray *entries, const guint8 *bytes, guint n)
{
  g_array_set_size (entries, 0);
  g_array_append_vals (entries, bytes, n);
  for (guint i = 0; i < n; i++) {
    SpPlanEntry *entry = &g_array_index (entries, SpPlanEntry, i);
    entry->run.packing = plan->space.run.packing;
    entry->estimate.memory.moment = NULL;
  }
}

static gsize
unpack (Plan *plan, Wave *wave, const guint8 *bytes)
{
  Packed packed;

  memcpy (&packed, bytes, sizeof packed);
  SpPlanKept *found = &wave->found[packed.unit];
  found->refused = packed.refused;
  found->legal = packed.legal;
  found->estimated = packed.estimated;
  found->fitting = packed.fitting;
  found->least_low_s = packed.least_low_s;
  g_array_index (plan->units.units, SpPlanUnit, wave->units[packed.unit]).left_for_memory = packed.left != 0;
  bytes += sizeof packed;
  unpack_entries (plan, found->best, bytes, packed.best);
  unpack_entries (plan, found->misses, bytes + packed.best * sizeof (SpPlanEntry), packed.misses);
  return sizeof packed + (packed.best + packed.misses) * sizeof (SpPlanEntry);
}

static void
share_wave (Plan *plan, Wave *wave, guint n)
{
  const SpPlanRanks *ranks = plan->space.question->ranks;

  if (ranks == NULL || ranks->n == 1)
    return;
  g_autoptr (GByteArray) own = g_byte_array_new ();
  for (guint i = 0; i < n; i++)
    if (is_own (plan, i))
      pack (plan, wave, i, own);
  g_autoptr (GByteArray) all = ranks->share (own, ranks->data, &plan->failed);
  for (gsize at = 0; all != NULL && at < all->len;)
    at += unpack (plan, wave, all->data + at);
}

/* --- waves -------------------------------------------------------------------------------------------------------- */

static void
bound_unit (Plan *plan, SpPlanWorker *worker, guint i, gpointer data)
{
  (void) data;
  sp_plan_unit_bound (&worker->estimator, worker->program, &plan->space, plan->core_s,
                      &g_array_index (plan->units.units, SpPlanUnit, i));
}

static void
search_unit (Plan *plan, SpPlanWorker *worker, guint i, gpointer data)
{
  Wave *wave = data;
  SpPlanUnit *unit = &g_array_index (plan->units.units, SpPlanUnit, wave->units[i]);

  if (is_own (plan, i))
    sp_plan_unit_search (worker, &plan->space, &wave->limits, unit, &wave->found[i]);
}

static void
tell (Plan *plan)
{
  const SpPlanQuestion *q = plan->space.question;

  if (q->progress != NULL)
    q->progress (plan->decided, plan->units.candidates, q->progress_data);
}

/* The units of these numbers; what they find is merged in their order. FALSE: a rank has failed. */
static gboolean
run_wave (Plan *plan, const SpPlanLimits *limits, const guint *units, guint n, SpPlanKept *into)
{
  SpPlanKept *found = g_new (SpPlanKept, n);
  Wave wave = { .limits = *limits, .units = units, .found = found };

  for (guint i = 0; i < n; i++)
    sp_plan_kept_init (&found[i], plan->kept.figure, plan->kept.most);
  run_jobs (plan, search_unit, &wave, n, 1);
  share_wave (plan, &wave, n);
  for (guint i = 0; i < n; i++) {
    sp_plan_kept_merge (into, &found[i]);
    sp_plan_kept_clear (&found[i]);
  }
  g_free (found);
  return plan->failed == NULL;
}

static gint
compare_units (gconstpointer a, gconstpointer b, gpointer data)
{
  const SpPlanUnit *x = a, *y = b;

  (void) data; /* the sort is stable */
  return x->step_s < y->step_s ? -1 : x->step_s > y->step_s;
}

static double
limit_of (const Plan *plan)
{
  return MIN (sp_plan_kept_limit (&plan->kept), sp_plan_kept_limit (&plan->sample));
}

static gboolean
is_same_task (const SpPlanUnit *a, const SpPlanUnit *b)
{
  const SpLayout *x = &a->point.layout, *y = &b->point.layout;

  return x->tensor == y->tensor && x->ulysses == y->ulysses && x->ring == y->ring && x->lasp == y->lasp &&
         x->expert == y->expert;
}

/* Orders that the bound does not tell apart. */
static gboolean
is_like (const SpPlanUnit *a, const SpPlanUnit *b)
{
  return a->step_s == b->step_s && (a->most_stages > 1) == (b->most_stages > 1) && is_same_task (a, b);
}

#define MOST_SAMPLED 4096
#define MOST_IN_FULL 16 /* units of the sample's best that are searched in full */

/* Of each task the smallest micro-batch, which fits sooner than others, and of its units one of each bound. */
static guint
choose_sample (const Plan *plan, guint *ret)
{
  const GArray *units = plan->units.units;
  guint n = 0;

  for (guint at = 0; at < units->len && n < MOST_SAMPLED; at++) {
    const SpPlanUnit *unit = &g_array_index (units, SpPlanUnit, at);
    gboolean is_new = unit->point.run.micro_batch == 1 && !isinf (unit->step_s);
    for (guint i = 0; i < n && is_new; i++)
      is_new = !is_like (&g_array_index (units, SpPlanUnit, ret[i]), unit);
    if (is_new)
      ret[n++] = at;
  }
  return n;
}

static gboolean
is_in_unit (const SpPlanEntry *entry, const SpPlanUnit *unit)
{
  const SpPlanUnit of = { .point = { entry->layout, entry->run } };

  if (!is_same_task (&of, unit) || entry->run.micro_batch != unit->point.run.micro_batch)
    return FALSE;
  for (guint p = 0; p < unit->n; p++)
    if (unit->placements[p].pipeline == entry->layout.pipeline &&
        memcmp (&unit->placements[p].order, &entry->layout.order, sizeof entry->layout.order) == 0)
      return TRUE;
  return FALSE;
}

/* Of some units, those that have the best of what was found. */
static guint
choose_best (const Plan *plan, const guint *units, guint n, guint *ret)
{
  const GArray *best = plan->sample.best;
  guint n_chosen = 0;

  for (guint i = 0; i < best->len && n_chosen < MOST_IN_FULL; i++)
    for (guint u = 0; u < n; u++) {
      gboolean is_new =
          is_in_unit (&g_array_index (best, SpPlanEntry, i), &g_array_index (plan->units.units, SpPlanUnit, units[u]));
      for (guint j = 0; j < n_chosen && is_new; j++)
        is_new = ret[j] != units[u];
      if (is_new)
        ret[n_chosen++] = units[u];
    }
  return n_chosen;
}

static SpPlanLimits
limits_of (const Plan *plan, SpPlanPart part)
{
  return (SpPlanLimits){ .part = part,
                         .limit_s = limit_of (plan),
                         .most_bytes = plan->space.estimator->cluster->device->memory_bytes.value };
}

/* A limit to begin with: a few layouts of many units, and then the usual ones, and all, of the best of these. */
static void
take_sample (Plan *plan)
{
  static const SpPlanPart parts[] = { SP_PLAN_USUAL, SP_PLAN_WHOLE };
  GArray *units = plan->units.units;
  guint numbers[MOST_SAMPLED], best[MOST_IN_FULL], n = choose_sample (plan, numbers);

  for (guint at = 0; at < n; at += LARGEST_WAVE) {
    SpPlanLimits limits = limits_of (plan, SP_PLAN_SAMPLE);
    if (!run_wave (plan, &limits, &numbers[at], MIN (LARGEST_WAVE, n - at), &plan->sample))
      return;
  }
  guint n_best = choose_best (plan, numbers, n, best);
  for (guint part = 0; part < G_N_ELEMENTS (parts); part++) {
    SpPlanLimits limits = limits_of (plan, parts[part]);
    if (!run_wave (plan, &limits, best, n_best, &plan->sample))
      return;
  }
  for (guint i = 0; i < units->len; i++)
    g_array_index (units, SpPlanUnit, i).left_for_memory = FALSE;
}

/* Units that may have one of the best. */
static void
find_best (Plan *plan)
{
  GArray *units = plan->units.units;
  guint numbers[LARGEST_WAVE], size = FIRST_WAVE;

  for (guint first = 0, n; first < units->len; first += n, size = MIN (2 * size, LARGEST_WAVE)) {
    SpPlanLimits limits = limits_of (plan, SP_PLAN_WHOLE);
    for (n = 0; n < size && first + n < units->len; n++) {
      const SpPlanUnit *unit = &g_array_index (units, SpPlanUnit, first + n);
      if (isinf (unit->step_s) || unit->step_s > limits.limit_s)
        break;
      numbers[n] = first + n;
      plan->decided += unit->below;
    }
    if (n == 0) { /* sorted, so that nothing better comes */
      for (; first < units->len; first++) {
        const SpPlanUnit *unit = &g_array_index (units, SpPlanUnit, first);
        plan->decided += unit->below;
        plan->kept.refused += isinf (unit->step_s) ? unit->below : 0;
        plan->kept.least_low_s = MIN (plan->kept.least_low_s, unit->low_s);
      }
      break;
    }
    if (!run_wave (plan, &limits, numbers, n, &plan->kept))
      return;
    tell (plan);
  }
  tell (plan);
}

/* Of what was left out because it does not fit, what would beat the best and lacks least. */
static void
find_nearest (Plan *plan)
{
  const GArray *units = plan->units.units;
  double capacity = plan->space.estimator->cluster->device->memory_bytes.value;
  SpPlanKept *kept = &plan->kept, best = *kept;
  guint numbers[LARGEST_WAVE];

  for (guint at = 0, n; at < units->len;) {
    const SpPlanEntry *nearest = sp_plan_kept_nearest (kept);
    SpPlanLimits limits = { .only_beyond = TRUE, .limit_s = INFINITY, .most_bytes = INFINITY };
    if (kept->best->len > 0)
      limits.limit_s = sp_plan_entry_s (&g_array_index (kept->best, SpPlanEntry, 0), kept->figure);
    if (nearest != NULL)
      limits.most_bytes = capacity + sp_plan_entry_lacks (nearest);
    for (n = 0; n < LARGEST_WAVE && at < units->len; at++) {
      const SpPlanUnit *unit = &g_array_index (units, SpPlanUnit, at);
      if (unit->left_for_memory && unit->step_s <= limits.limit_s)
        numbers[n++] = at;
    }
    if (n > 0 && !run_wave (plan, &limits, numbers, n, kept))
      return;
  }
  /* It is the first pass that is counted. */
  kept->refused = best.refused;
  kept->legal = best.legal;
  kept->estimated = best.estimated;
  kept->fitting = best.fitting;
  kept->least_low_s = best.least_low_s;
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* Nothing is legal: what the plainest layouts, one axis each, are refused for says why. */
static void
refuse_all (const SpPlanSpace *s, GError **error)
{
  const SpPlanQuestion *q = s->question;
  SpRun run = s->run;
  SpLayout plain = q->base;
  const SpLayout usual = SP_LAYOUT_DEFAULT;
  g_autoptr (GError) cause = NULL;

  plain.token_split = SP_TOKENS_CONTIGUOUS;
  *(s->softmax ? &plain.ring : &plain.lasp) = s->gpus;
  if (s->softmax && !s->estimator->framework->fused_attention) {
    plain.ring = 1;
    plain.pipeline = s->gpus;
  }
  if (plain.pipeline == 1) {
    plain.schedule = usual.schedule;
    plain.virtual_stages = 1;
  }
  sp_layout_check (&plain, s->estimator->arch, s->estimator->framework, &run, s->gpus, &cause);
  g_set_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL,
               "no layout of %d GPU%s is legal for sequence %" G_GINT64_FORMAT " and global batch %d; e.g. %s %d: %s",
               s->gpus, sp_plural (s->gpus), q->sequence, q->global_batch,
               plain.pipeline > 1 ? "pipeline"
               : s->softmax       ? "ring"
                                  : "lasp",
               s->gpus, cause ? cause->message : "illegal");
}


/* An entry that came from another process, with all that is said of it. */
static void
complete (Plan *plan, SpPlanEntry *entry)
{
  SpPlanWorker *worker = plan->workers->pdata[0];

  if (entry->estimate.memory.moment == NULL)
    sp_estimate_layout (&worker->estimator, worker->program, &entry->layout, &entry->run, &entry->estimate);
}

static void
take_answer (Plan *plan)
{
  SpPlan *ret = plan->plan;
  const SpPlanQuestion *q = plan->space.question;
  const SpPlanEntry *nearest = sp_plan_kept_nearest (&plan->kept);

  for (guint i = 0; i < plan->kept.best->len; i++)
    complete (plan, &g_array_index (plan->kept.best, SpPlanEntry, i));
  ret->entries = g_array_ref (plan->kept.best);
  ret->has_nearest = nearest != NULL;
  if (nearest != NULL) {
    ret->nearest = *nearest;
    complete (plan, &ret->nearest);
  }
  ret->candidates = plan->units.candidates;
  ret->legal = plan->kept.legal;
  ret->estimated = plan->kept.estimated;
  ret->fitting = plan->kept.fitting;
  ret->pruned = plan->units.candidates - plan->units.refused - plan->kept.refused - plan->kept.legal;
  ret->least_low_s = plan->kept.least_low_s;
  guint most = q->simulate > 0 ? q->simulate : q->top;
  for (guint i = most; i < ret->entries->len; i++)
    ret->least_low_s = MIN (ret->least_low_s, g_array_index (ret->entries, SpPlanEntry, i).estimate.low_s);
  sp_plan_simulate (ret, plan->space.estimator, q->simulate, plan->workers->len);
  g_array_set_size (ret->entries, MIN (ret->entries->len, q->top));
}

static void
make_workers (Plan *plan)
{
  guint threads = plan->space.question->threads;

  plan->workers = g_ptr_array_new_with_free_func ((GDestroyNotify) sp_plan_worker_free);
  for (guint i = 0; i < (threads > 0 ? threads : g_get_num_processors ()); i++)
    g_ptr_array_add (plan->workers, sp_plan_worker_new (plan->space.estimator));
}

SpPlan *
sp_plan (SpEstimator *estimator, const SpPlanQuestion *question, GError **error)
{
  g_autoptr (SpPlan) ret = g_new0 (SpPlan, 1);
  gint32 cluster = estimator->cluster->nodes * estimator->cluster->gpus_per_node;
  Plan plan = { .plan = ret };

  sp_plan_space_init (&plan.space, estimator, question);
  if (plan.space.gpus > cluster) {
    g_set_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL, "%d GPU%s asked for and the cluster %s has %d",
                 plan.space.gpus, sp_plural (plan.space.gpus), estimator->cluster->name, cluster);
    return NULL;
  }
  make_workers (&plan);
  SpPlanWorker *first = plan.workers->pdata[0];
  plan.core_s = sp_plan_core_floor (&first->estimator, first->program, &plan.space.run);
  sp_plan_kept_init (&plan.kept, question->figure, MAX (MAX (question->top, question->simulate), 1));
  sp_plan_kept_init (&plan.sample, question->figure, plan.kept.most);
  sp_plan_units_init (&plan.units, &plan.space);
  plan.decided = plan.units.refused;
  run_jobs (&plan, bound_unit, NULL, plan.units.units->len, UNITS_AT_ONCE);
  g_array_sort_with_data (plan.units.units, compare_units, NULL);
  take_sample (&plan);
  if (plan.failed == NULL)
    find_best (&plan);
  if (plan.failed == NULL)
    find_nearest (&plan);
  if (plan.failed == NULL)
    take_answer (&plan);
  sp_plan_kept_clear (&plan.kept);
  sp_plan_kept_clear (&plan.sample);
  sp_plan_units_clear (&plan.units);
  g_ptr_array_unref (plan.workers);
  if (plan.failed != NULL) {
    g_propagate_error (error, plan.failed);
    return NULL;
  }
  if (ret->legal == 0 && !ret->has_nearest) {
    refuse_all (&plan.space, error);
    return NULL;
  }
  return g_steal_pointer (&ret);
}

void
sp_plan_free (SpPlan *plan)
{
  if (plan == NULL)
    return;
  if (plan->entries != NULL)
    g_array_unref (plan->entries);
  g_free (plan);
}

char *
sp_plan_bound (const SpPlanEntry *entry)
{
  const SpEstimate *e = &entry->estimate;
  guint worst = 0;

  for (guint a = 1; a < SP_N_AXES; a++)
    if (e->axes[a].exposed_s > e->axes[worst].exposed_s)
      worst = a;
  double exposed = e->axes[worst].exposed_s, step = e->step_time_s;
  g_autofree char *compute = g_strdup_printf ("compute %.1f %%", 100 * e->compute_s / step);
  g_autofree char *communication =
      exposed > 0 ? g_strdup_printf (", exposed %s communication %.1f %%", sp_axis_name (worst), 100 * exposed / step)
                  : g_strdup ("");
  g_autofree char *bubble =
      e->bubble_s > 0 ? g_strdup_printf (", pipeline bubble %.1f %%", 100 * e->bubble_s / step) : g_strdup ("");
  g_autofree char *host = e->host_s > 0 ? g_strdup_printf (", host %.1f %%", 100 * e->host_s / step) : g_strdup ("");
  const char *what = e->compute_s >= MAX (exposed, MAX (e->bubble_s, e->host_s)) ? "compute"
                     : exposed >= MAX (e->bubble_s, e->host_s)                   ? "communication"
                     : e->bubble_s >= e->host_s                                  ? "the pipeline bubble"
                                                                                 : "the host";
  return g_strdup_printf ("bound by %s: %s%s%s%s of the step", what, compute, communication, bubble, host);
}
