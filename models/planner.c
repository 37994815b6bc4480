/* SPDX-License-Identifier: Apache-2.0 */
#include "models/planner.h"
#include "sim/schedules.h"

#include "models/estimate/block-cache.h"
#include "models/writer.h"
#include "sim/words.h"

#include <string.h>

/* At most 70 MB, touched as it is needed. */
#define CACHE_LOG2_ENTRIES 13

#define MAX_ORDERS 64
#define MAX_SPLITS 64

/* Ranks beyond tensor and sequence, split into pipeline and data, with the orders that differ. */
typedef struct {
  gint32 pipeline, data;
  SpOrder orders[MAX_ORDERS];
  guint n_orders;
} Split;

typedef struct {
  SpEstimator *estimator;
  const SpPlanQuestion *question;
  SpPlan *plan;
  SpProgram *program;
  SpPlanEntry best; /* of those that fit */
  gint32 gpus;
  gboolean softmax, linear, experts;
  Split splits[MAX_SPLITS]; /* of the degrees at hand */
  guint n_splits;
  gint64 all; /* candidates, counted beforehand if somebody asks */
  gboolean only_counts;
} Search;

/* --- ranking ------------------------------------------------------------------------------------------------------ */

static double
lacking (const SpPlanEntry *entry)
{
  return entry->estimate.memory.total_bytes - entry->estimate.capacity_bytes;
}

/* Quicker first, then less memory; what was found first stays first. */
static gboolean
is_better (const SpPlanEntry *a, const SpPlanEntry *b)
{
  if (a->estimate.step_time_s != b->estimate.step_time_s)
    return a->estimate.step_time_s < b->estimate.step_time_s;
  return a->estimate.memory.total_bytes < b->estimate.memory.total_bytes;
}

/* The same layout in another order that costs the same. */
static gboolean
is_twin (const SpPlanEntry *a, const SpPlanEntry *b)
{
  SpLayout layout = a->layout;

  layout.order = b->layout.order;
  return a->run.micro_batch == b->run.micro_batch && memcmp (&layout, &b->layout, sizeof layout) == 0 &&
         a->estimate.step_time_s == b->estimate.step_time_s;
}

static void
rank (Search *s, const SpPlanEntry *entry)
{
  GArray *entries = s->plan->entries;
  guint at = entries->len;

  for (guint i = 0; i < entries->len; i++)
    if (is_twin (&g_array_index (entries, SpPlanEntry, i), entry))
      return;
  while (at > 0 && is_better (entry, &g_array_index (entries, SpPlanEntry, at - 1)))
    at--;
  if (at >= s->question->top)
    return;
  if (entries->len == s->question->top)
    g_array_set_size (entries, entries->len - 1);
  g_array_insert_val (entries, at, *entry);
}

/* Layouts that do not fit and that no other one beats in both time and bytes lacking: quicker first, so each lacks less
 * than the one before. */
#define MOST_MISSES 256

typedef struct {
  SpPlanEntry front[MOST_MISSES];
  guint n;
} Misses;

static void
note_miss (Misses *misses, const SpPlanEntry *entry)
{
  guint at = misses->n, end;

  while (at > 0 && is_better (entry, &misses->front[at - 1]))
    at--;
  if (at > 0 && lacking (&misses->front[at - 1]) <= lacking (entry))
    return;
  for (end = at; end < misses->n && lacking (&misses->front[end]) >= lacking (entry);)
    end++;
  /* A full front forgets what lacks most. */
  if (end == at && misses->n == MOST_MISSES) {
    if (at == 0)
      return;
    memmove (misses->front, misses->front + 1, (at - 1) * sizeof *entry);
    misses->front[at - 1] = *entry;
    return;
  }
  memmove (misses->front + at + 1, misses->front + end, (misses->n - end) * sizeof *entry);
  misses->front[at] = *entry;
  misses->n = misses->n - (end - at) + 1;
}

/* Of those that would beat the best the one that lacks least, else the one that lacks least of all. */
static const SpPlanEntry *
nearest_miss (const Misses *misses, const SpPlanEntry *best)
{
  const SpPlanEntry *nearest = NULL;

  for (guint i = 0; i < misses->n && best; i++)
    if (is_better (&misses->front[i], best))
      nearest = &misses->front[i];
  return nearest ? nearest : misses->n > 0 ? &misses->front[misses->n - 1] : NULL;
}

/* --- candidates --------------------------------------------------------------------------------------------------- */

static SpRun
run_of (const SpPlanQuestion *q)
{
  SpRun run = q->run;

  run.sequence = q->sequence;
  run.micro_batch = 1;
  run.global_batch = q->global_batch;
  run.causal = q->causal;
  return run;
}

static void
try_layout (Search *s, Misses *misses, const SpLayout *layout, gint32 micro_batch)
{
  s->plan->candidates++;
  if (s->only_counts)
    return;
  if (s->question->progress != NULL)
    s->question->progress (s->plan->candidates, s->all, s->question->progress_data);

  SpPlanEntry entry = { .layout = *layout, .run = run_of (s->question) };
  entry.run.micro_batch = micro_batch;
  if (s->estimator->cluster->device->no_bf16)
    entry.run.precision = SP_DTYPE_FP16;
  if (!sp_layout_check (layout, s->estimator->arch, s->estimator->framework, &entry.run, s->gpus, NULL))
    return;
  s->plan->legal++;
  sp_estimate_layout (s->estimator, s->program, layout, &entry.run, &entry.estimate);
  if (!entry.estimate.fits) {
    note_miss (misses, &entry);
    return;
  }
  if (s->plan->fitting++ == 0 || is_better (&entry, &s->best))
    s->best = entry;
  rank (s, &entry);
}

/* How many ranks of each axis one node holds: what an order changes. */
static void
signature (const Search *s, const gint32 *degree, const guint8 *axes, guint n, gint32 *ret)
{
  gint32 node = s->estimator->cluster->gpus_per_node, stride = 1;

  memset (ret, 0, SP_N_RANK_AXES * sizeof *ret);
  for (guint i = 0; i < n; i++) {
    ret[axes[i]] = stride < node ? MIN (degree[axes[i]], MAX (1, node / stride)) : 1;
    stride *= degree[axes[i]];
  }
}

static void
complete_order (const guint8 *axes, guint n, SpOrder *ret)
{
  static const guint8 all[] = { SP_AXIS_TENSOR, SP_AXIS_ULYSSES, SP_AXIS_RING,
                                SP_AXIS_LASP,   SP_AXIS_DATA,    SP_AXIS_PIPELINE };
  guint filled = n;

  g_assert (n <= SP_N_RANK_AXES);
  memcpy (ret->axis, axes, n);
  for (guint i = 0; i < G_N_ELEMENTS (all) && filled < G_N_ELEMENTS (ret->axis); i++)
    if (!memchr (axes, all[i], n))
      ret->axis[filled++] = all[i];
}

/* Permutations by insertion, in the order of the default, so that the first of equals is the usual one. */
static void
permute (const Search *s, const gint32 *degree, guint8 *axes, guint at, guint n, Split *split,
         gint32 (*seen)[SP_N_RANK_AXES])
{
  if (at == n) {
    gint32 mine[SP_N_RANK_AXES];
    signature (s, degree, axes, n, mine);
    for (guint i = 0; i < split->n_orders; i++)
      if (memcmp (seen[i], mine, sizeof mine) == 0)
        return;
    if (split->n_orders == MAX_ORDERS)
      return;
    memcpy (seen[split->n_orders], mine, sizeof mine);
    complete_order (axes, n, &split->orders[split->n_orders++]);
    return;
  }
  for (guint i = at; i < n; i++) {
    guint8 chosen = axes[i];
    memmove (axes + at + 1, axes + at, i - at);
    axes[at] = chosen;
    permute (s, degree, axes, at + 1, n, split, seen);
    memmove (axes + at, axes + at + 1, i - at);
    axes[i] = chosen;
  }
}

static void
find_orders (const Search *s, const SpLayout *layout, Split *split)
{
  const gint32 degree[SP_N_RANK_AXES] = {
    [SP_AXIS_TENSOR] = layout->tensor, [SP_AXIS_ULYSSES] = layout->ulysses,
    [SP_AXIS_RING] = layout->ring,     [SP_AXIS_LASP] = s->softmax ? 1 : layout->lasp,
    [SP_AXIS_DATA] = split->data,      [SP_AXIS_PIPELINE] = split->pipeline,
  };
  gint32 seen[MAX_ORDERS][SP_N_RANK_AXES];
  guint8 axes[SP_N_RANK_AXES];
  guint n = 0;

  for (guint i = 0; i < SP_N_RANK_AXES; i++) {
    guint8 axis = s->question->base.order.axis[i];
    if (degree[axis] > 1)
      axes[n++] = axis;
  }
  split->n_orders = 0;
  permute (s, degree, axes, 0, n, split, seen);
}

static void
find_splits (Search *s, const SpLayout *layout, gint32 rest)
{
  s->n_splits = 0;
  for (gint32 pipeline = 1; pipeline <= rest && s->n_splits < MAX_SPLITS; pipeline++)
    if (rest % pipeline == 0) {
      Split *split = &s->splits[s->n_splits++];
      split->pipeline = pipeline;
      split->data = rest / pipeline;
      find_orders (s, layout, split);
    }
}

/* --- recipes ------------------------------------------------------------------------------------------------------ */

static gint32
share_of (const Search *s, gint32 data)
{
  return (s->question->global_batch + data - 1) / data;
}

/* Micro-batches of powers of two, and all of a replica's sequences at once. */
static gboolean
is_micro_batch (const Search *s, const Split *split, gint32 b)
{
  gint32 share = share_of (s, split->data);

  return b == share || (b < share && (b & (b - 1)) == 0);
}

/* Ranks that experts may be spread over. */
static gint32
most_experts (const Search *s, gint32 replicas)
{
  return s->experts ? MIN (replicas, s->estimator->arch->moe.experts) : 1;
}

static void
try_split (Search *s, Misses *misses, SpLayout *layout, const Split *split, gint32 b)
{
  gint32 replicas = layout->data * sp_layout_sequence_ranks (layout, s->estimator->arch);

  for (gint32 expert = 1; expert <= most_experts (s, replicas); expert++) {
    if (replicas % expert != 0 || (expert > 1 && s->estimator->arch->moe.experts % expert != 0))
      continue;
    layout->expert = expert;
    for (layout->zero = 0; layout->zero <= (replicas > 1 ? 3 : 0); layout->zero++)
      for (guint o = 0; o < split->n_orders; o++) {
        layout->order = split->orders[o];
        layout->order.experts_far = s->question->base.order.experts_far;
        try_layout (s, misses, layout, b);
      }
  }
}

/* Where there is no pipeline there is nothing to schedule, as in a scenario. */
static void
try_schedule (Search *s, Misses *misses, SpLayout *layout, const Split *split, gint32 b)
{
  const SpLayout *base = &s->question->base, usual = SP_LAYOUT_DEFAULT;
  gint32 layers = s->estimator->arch->layers, most = 1;

  layout->pipeline = split->pipeline;
  layout->data = split->data;
  layout->schedule = split->pipeline > 1 ? base->schedule : usual.schedule;
  layout->virtual_stages = split->pipeline > 1 ? base->virtual_stages : 1;
  if (sp_schedule_get (layout->schedule)->chunked && layout->virtual_stages == 1)
    most = MIN (layers / split->pipeline, SP_MAX_CHUNKS);
  if (most <= 1)
    try_split (s, misses, layout, split, b);
  for (gint32 chunks = 2; chunks <= most; chunks++) {
    layout->virtual_stages = chunks;
    if (chunks == 2 || layers % (split->pipeline * chunks) == 0)
      try_split (s, misses, layout, split, b);
  }
}

/* What the blocks' work depends on is outermost, so that the cache serves the rest. */
static void
try_recipes (Search *s, Misses *misses, SpLayout *layout)
{
  for (gint32 b = 1; b <= s->question->global_batch; b++) {
    gboolean any = FALSE;
    for (guint i = 0; i < s->n_splits && !any; i++)
      any = is_micro_batch (s, &s->splits[i], b);
    if (!any)
      continue;
    for (layout->recompute = 0; layout->recompute < SP_N_RECOMPUTES; layout->recompute++)
      for (guint i = 0; i < s->n_splits; i++)
        if (is_micro_batch (s, &s->splits[i], b))
          try_schedule (s, misses, layout, &s->splits[i], b);
  }
}

static void
try_kinds (Search *s, Misses *misses, SpLayout *layout, gint32 rest)
{
  gboolean splits = layout->ring > 1 && s->question->causal && !s->linear;
  gint32 versions = layout->lasp > 1 ? 2 : 1;

  find_splits (s, layout, rest);
  for (gint32 version = versions; version >= 1; version--)
    for (guint split = 0; split < (splits ? 2 : 1); split++) {
      layout->lasp_version = versions == 1 ? s->question->base.lasp_version : version;
      layout->token_split = splits && split == 0 ? SP_TOKENS_ZIGZAG : SP_TOKENS_CONTIGUOUS;
      try_recipes (s, misses, layout);
    }
}

/* Factors the sequence ranks: ulysses x ring, or ulysses x lasp, or both ways at once. */
static void
try_sequence (Search *s, Misses *misses, SpLayout *layout, gint32 ranks, gint32 rest)
{
  for (gint32 u = 1; u <= ranks; u++) {
    if (ranks % u != 0)
      continue;
    layout->ulysses = u;
    layout->ring = s->softmax ? ranks / u : 1;
    layout->ring_kind = layout->ring > 1 ? s->question->base.ring_kind : SP_RING_P2P;
    for (gint32 lasp = 1; lasp <= ranks; lasp++) {
      gboolean only = !s->linear ? lasp == 1 : !s->softmax ? lasp == ranks / u : ranks % lasp == 0;
      if (!only)
        continue;
      layout->lasp = lasp;
      try_kinds (s, misses, layout, rest);
    }
  }
}

static void
try_degrees (Search *s, Misses *misses)
{
  for (gint32 tensor = 1; tensor <= s->gpus; tensor++) {
    if (s->gpus % tensor != 0)
      continue;
    for (gint32 ranks = 1; ranks <= s->gpus / tensor; ranks++) {
      if (s->gpus / tensor % ranks != 0)
        continue;
      SpLayout layout = s->question->base;
      layout.tensor = tensor;
      try_sequence (s, misses, &layout, ranks, s->gpus / tensor / ranks);
    }
  }
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* Nothing is legal: what the plainest layouts, one axis each, are refused for says why. */
static void
refuse_all (const Search *s, GError **error)
{
  const SpPlanQuestion *q = s->question;
  SpRun run = run_of (q);
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

SpPlan *
sp_plan (SpEstimator *estimator, const SpPlanQuestion *question, GError **error)
{
  g_autoptr (SpPlan) plan = g_new0 (SpPlan, 1);
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (SpBlockCache) cache = sp_block_cache_new (CACHE_LOG2_ENTRIES);
  gint32 cluster = estimator->cluster->nodes * estimator->cluster->gpus_per_node;
  g_autofree Misses *misses = g_new0 (Misses, 1);
  Search s = { .estimator = estimator,
               .question = question,
               .plan = plan,
               .program = program,
               .gpus = question->gpus ? question->gpus : cluster,
               .softmax = sp_architecture_has (estimator->arch, SP_LAYER_SOFTMAX),
               .linear = sp_architecture_has (estimator->arch, SP_LAYER_LINEAR),
               .experts = sp_architecture_has_bit (estimator->arch, SP_LAYER_EXPERTS) };

  plan->entries = g_array_new (FALSE, FALSE, sizeof (SpPlanEntry));
  if (s.gpus > cluster) {
    g_set_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL, "%d GPU%s asked for and the cluster %s has %d", s.gpus,
                 sp_plural (s.gpus), estimator->cluster->name, cluster);
    return NULL;
  }
  s.only_counts = question->progress != NULL;
  if (s.only_counts)
    try_degrees (&s, misses);
  s.all = plan->candidates;
  plan->candidates = 0;
  s.only_counts = FALSE;
  estimator->cache = cache;
  try_degrees (&s, misses);
  estimator->cache = NULL;
  if (plan->legal == 0) {
    refuse_all (&s, error);
    return NULL;
  }
  const SpPlanEntry *nearest = nearest_miss (misses, plan->fitting > 0 ? &s.best : NULL);
  plan->has_nearest = nearest != NULL;
  if (nearest)
    plan->nearest = *nearest;
  return g_steal_pointer (&plan);
}

void
sp_plan_free (SpPlan *plan)
{
  if (plan == NULL)
    return;
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
