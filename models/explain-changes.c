/* SPDX-License-Identifier: Apache-2.0 */
/* Single changes of a scenario and pairs of them, and those that make it fit. */
#include "models/explain.h"

#include <string.h>

#include "models/estimate/block-cache.h"
#include "models/inputs/profile.h"
#include "sim/schedules.h"

#define MOST_MOVES 512
#define CACHE_LOG2_ENTRIES 11

/* What a move is about: no two of a pair are about the same. */
typedef enum { MOVE_KEY, MOVE_RANKS, MOVE_NODES } MoveKind;

typedef struct {
  guint8 kind;
  const char *group, *key, *value; /* MOVE_KEY */
  guint8 from, to;                 /* SpAxis; of MOVE_NODES the second alone */
  gint32 factor;
  char text[16]; /* that `value` may point to */
} Move;

/* A scenario's layout with some moves made. */
typedef struct {
  SpLayout layout;
  SpRun run;
  gint32 nodes;
} Candidate;

#define NODE_FACTORS 3 /* 2, 4 and 8 times as many */

typedef struct {
  const SpScenario *scenario;
  SpEstimator estimators[NODE_FACTORS + 1]; /* of as many nodes as there are; of 2, 4, 8 times as many */
  SpCluster *larger[NODE_FACTORS + 1];
  gboolean has[NODE_FACTORS + 1];
  SpProgram *program;
  SpBlockCache *cache; /* of the first */
  Move moves[MOST_MOVES];
  guint n_moves;
  gboolean alone[MOST_MOVES]; /* it makes the scenario fit by itself */
  GPtrArray *found;           /* SpChange */
} Search;

/* --- moves -------------------------------------------------------------------------------------------------------- */

/* Values that keep less, or share more, than another; what is set to what it is already changes nothing, and does not fit. */
static const struct {
  const char *group, *key, *value;
} values[] = {
  { "layout", "recompute", "selective" },
  { "layout", "recompute", "full" },
  { "layout", "zero", "1" },
  { "layout", "zero", "2" },
  { "layout", "zero", "3" },
  { "layout", "zero-group", "all" },
  { "layout", "reshard", "true" },
  { "layout", "sequence-regions", "true" },
  { "layout", "loss", "vocab-parallel" },
  { "layout", "loss", "chunked" },
  { "layout", "loss", "fused" },
  { "layout", "mlp-tiles", "auto" },
  { "layout", "ring-keep", "false" },
  { "layout", "ring-split", "zigzag" },
  { "layout", "schedule", "1f1b" },
  { "layout", "slices", "1" },
  { "layout", "slices", "4" },
  { "layout", "slices", "8" },
  { "layout", "offload", "optimizer" },
  { "layout", "offload", "activations" },
  { "layout", "offload", "optimizer,parameters" },
  { "layout", "offload", "optimizer,activations" },
  { "layout", "offload", "optimizer,parameters,activations" },
};

static const guint8 rank_axes[] = { SP_AXIS_DATA,    SP_AXIS_TENSOR, SP_AXIS_PIPELINE,
                                    SP_AXIS_ULYSSES, SP_AXIS_RING,   SP_AXIS_LASP };

static gint32 *
degree_of (SpLayout *layout, guint8 axis)
{
  return axis == SP_AXIS_DATA       ? &layout->data
         : axis == SP_AXIS_TENSOR   ? &layout->tensor
         : axis == SP_AXIS_PIPELINE ? &layout->pipeline
         : axis == SP_AXIS_ULYSSES  ? &layout->ulysses
         : axis == SP_AXIS_RING     ? &layout->ring
                                    : &layout->lasp;
}

static void
add_move (Search *s, const Move *move)
{
  if (s->n_moves < MOST_MOVES)
    s->moves[s->n_moves++] = *move;
}

static void
add_key_moves (Search *s)
{
  for (guint i = 0; i < G_N_ELEMENTS (values); i++)
    add_move (s, &(Move){ MOVE_KEY, values[i].group, values[i].key, values[i].value });
  for (gint32 b = s->scenario->run.micro_batch / 2; b > 0; b /= 2) {
    Move move = { MOVE_KEY, "run", "micro-batch", NULL };
    g_snprintf (move.text, sizeof move.text, "%d", b);
    add_move (s, &move);
  }
}

/* Ranks of one axis to another; and of nodes that are added to any. */
static void
add_rank_moves (Search *s)
{
  SpLayout layout = s->scenario->layout;

  for (guint i = 0; i < G_N_ELEMENTS (rank_axes); i++)
    for (gint32 factor = 2; factor <= *degree_of (&layout, rank_axes[i]); factor++) {
      if (*degree_of (&layout, rank_axes[i]) % factor != 0)
        continue;
      for (guint j = 0; j < G_N_ELEMENTS (rank_axes); j++)
        if (j != i)
          add_move (s, &(Move){ .kind = MOVE_RANKS, .from = rank_axes[i], .to = rank_axes[j], .factor = factor });
    }
  for (guint f = 1; f <= NODE_FACTORS; f++)
    for (guint j = 0; j < G_N_ELEMENTS (rank_axes) && s->has[f]; j++)
      add_move (s, &(Move){ .kind = MOVE_NODES, .to = rank_axes[j], .factor = 1 << f });
}

static gboolean
same_subject (const Move *a, const Move *b)
{
  if (a->kind != b->kind)
    return FALSE;
  return a->kind == MOVE_NODES || (a->kind == MOVE_KEY && g_str_equal (a->key, b->key));
}

/* FALSE: there is nothing to move. */
static gboolean
apply (const Move *move, Candidate *c)
{
  if (move->kind == MOVE_KEY)
    return sp_scenario_set (move->group, move->key, move->value != NULL ? move->value : move->text, &c->layout, &c->run,
                            NULL);
  gint32 *to = degree_of (&c->layout, move->to);
  if (move->kind == MOVE_RANKS) {
    gint32 *from = degree_of (&c->layout, move->from);
    if (*from % move->factor != 0)
      return FALSE;
    *from /= move->factor;
  } else
    c->nodes *= move->factor;
  *to *= move->factor;
  return TRUE;
}

/* What was said of a pipeline or of groups that are no more. */
static void
settle (const SpScenario *scenario, Candidate *c)
{
  const SpLayout usual = SP_LAYOUT_DEFAULT, *own = &scenario->layout;
  gint32 replicas = sp_layout_replicas (&c->layout, scenario->arch);

  if (c->layout.pipeline != own->pipeline)
    memset (c->layout.stage_split, 0, sizeof c->layout.stage_split);
  if (c->layout.pipeline == 1 || !sp_schedule_get (c->layout.schedule)->chunked) {
    c->layout.virtual_stages = usual.virtual_stages;
    if (c->layout.pipeline == 1) {
      c->layout.schedule = usual.schedule;
      c->layout.slices = usual.slices;
      memset (c->layout.slice_split, 0, sizeof c->layout.slice_split);
    }
  }
  if (c->layout.zero_group > 0 && (replicas % c->layout.zero_group != 0 || replicas == 1))
    c->layout.zero_group = 0;
  if (c->layout.ring == 1)
    c->layout.ring_kind = SP_RING_P2P;
}

/* --- the search --------------------------------------------------------------------------------------------------- */

/* 2^f times as many nodes of the same cluster; NULL: it cannot have them, or is no file of a cluster. */
static SpCluster *
larger_cluster (const SpScenario *scenario, guint f)
{
  g_autoptr (SpCluster) cluster = scenario->device_path == NULL ? sp_cluster_load (scenario->cluster_path, NULL) : NULL;
  gint32 nodes = scenario->cluster->nodes << f;
  g_autofree char *problem =
      cluster != NULL ? sp_cluster_resize (cluster, nodes, scenario->gpus_per_node) : g_strdup ("no file");

  if (problem != NULL)
    return NULL;
  if (scenario->profile_path != NULL) {
    sp_profile_free (cluster->profile);
    cluster->profile = sp_profile_load (scenario->profile_path, NULL);
  }
  return g_steal_pointer (&cluster);
}

static void
add_cluster (Search *s, const SpEstimator *estimator, guint f)
{
  s->larger[f] = f > 0 ? larger_cluster (s->scenario, f) : NULL;
  const SpCluster *cluster = f > 0 ? s->larger[f] : s->scenario->cluster;

  s->has[f] = cluster != NULL;
  if (s->has[f])
    sp_estimator_init (&s->estimators[f], s->scenario->arch, cluster, s->scenario->framework, estimator->convention);
}

static void
search_init (Search *s, const SpEstimator *estimator, const SpScenario *scenario, GPtrArray *found)
{
  s->scenario = scenario;
  s->found = found;
  s->program = sp_program_new ();
  s->cache = sp_block_cache_new (CACHE_LOG2_ENTRIES);
  for (guint f = 0; f <= NODE_FACTORS; f++)
    add_cluster (s, estimator, f);
  s->estimators[0].cache = s->cache;
  add_key_moves (s);
  add_rank_moves (s);
}

static void
search_clear (Search *s)
{
  for (guint f = 1; f <= NODE_FACTORS; f++)
    sp_cluster_free (s->larger[f]);
  sp_block_cache_free (s->cache);
  sp_program_free (s->program);
}

static guint
size_of (const Search *s, const Candidate *c)
{
  guint f = 0;

  while (s->scenario->cluster->nodes << f < c->nodes)
    f++;
  return f;
}

/* Is it legal, and does it fit? */
static gboolean
fits (Search *s, const Candidate *c, SpEstimate *ret)
{
  guint f = size_of (s, c);
  gint32 gpus = c->nodes * s->scenario->cluster->gpus_per_node;

  if (!s->has[f] || !sp_layout_check (&c->layout, s->scenario->arch, s->scenario->framework, &c->run, gpus, NULL))
    return FALSE;
  sp_estimate_layout (&s->estimators[f], s->program, &c->layout, &c->run, ret);
  return ret->fits;
}

static void
note (Search *s, const Candidate *c, const SpEstimate *estimate)
{
  gint32 nodes = c->nodes != s->scenario->cluster->nodes ? c->nodes : 0;
  SpChange *change = g_new0 (SpChange, 1);
  SpScenario other = sp_scenario_with (s->scenario, &c->layout, &c->run, nodes);

  *change = (SpChange){ { c->layout, c->run, *estimate },
                        nodes,
                        c->nodes * s->scenario->cluster->gpus_per_node,
                        sp_scenario_differences (s->scenario, &other) };
  g_ptr_array_add (s->found, change);
}

static void
change_free (gpointer data)
{
  SpChange *change = data;

  g_ptr_array_unref (change->differences);
  g_free (change);
}

/* Two moves may come to what a third pair comes to. */
static gboolean
is_found (const Search *s, const Candidate *c)
{
  for (guint i = 0; i < s->found->len; i++) {
    const SpChange *other = s->found->pdata[i];
    gint32 nodes = other->nodes > 0 ? other->nodes : s->scenario->cluster->nodes;
    if (nodes == c->nodes && c->run.micro_batch == other->entry.run.micro_batch &&
        memcmp (&c->layout, &other->entry.layout, sizeof c->layout) == 0)
      return TRUE;
  }
  return FALSE;
}

static void
try_moves (Search *s, guint i, guint j)
{
  Candidate c = { s->scenario->layout, s->scenario->run, s->scenario->cluster->nodes };
  SpEstimate estimate;

  if (!apply (&s->moves[i], &c) || (j != i && !apply (&s->moves[j], &c)))
    return;
  settle (s->scenario, &c);
  if (is_found (s, &c) || !fits (s, &c, &estimate))
    return;
  if (i == j)
    s->alone[i] = TRUE;
  note (s, &c, &estimate);
}

/* Of a whole cluster: more nodes are quicker, and more. */
static double
gpu_time (const SpChange *change)
{
  return change->entry.estimate.step_time_s * change->gpus;
}

static gint
compare_changes (gconstpointer a, gconstpointer b)
{
  const SpChange *one = *(const SpChange *const *) a, *other = *(const SpChange *const *) b;

  if (one->differences->len != other->differences->len)
    return one->differences->len < other->differences->len ? -1 : 1;
  double more = gpu_time (one) - gpu_time (other);
  if (more != 0)
    return more < 0 ? -1 : 1;
  double less = one->entry.estimate.memory.total_bytes - other->entry.estimate.memory.total_bytes;
  return less < 0 ? -1 : less > 0;
}

static gboolean
has_difference (const GPtrArray *differences, const SpKeyDifference *wanted)
{
  for (guint i = 0; i < differences->len; i++) {
    const SpKeyDifference *d = differences->pdata[i];
    if (g_str_equal (d->group, wanted->group) && g_str_equal (d->key, wanted->key))
      return g_strcmp0 (d->other, wanted->other) == 0;
  }
  return FALSE;
}

/* Of a sorted list the first `most`, without those that are another one and more. */
static void
keep_smallest (GPtrArray *changes, guint most)
{
  guint kept = 0;

  for (guint i = 0; i < changes->len && kept < most; i++) {
    const SpChange *change = changes->pdata[i];
    gboolean is_more = FALSE;
    for (guint j = 0; j < kept && !is_more; j++) {
      const GPtrArray *less = ((const SpChange *) changes->pdata[j])->differences;
      guint shared = 0;
      while (shared < less->len && has_difference (change->differences, less->pdata[shared]))
        shared++;
      is_more = shared == less->len;
    }
    if (is_more)
      continue;
    gpointer other = changes->pdata[kept]; /* so that each is freed once */
    changes->pdata[kept++] = changes->pdata[i];
    changes->pdata[i] = other;
  }
  g_ptr_array_set_size (changes, (gint) kept);
}

GPtrArray *
sp_explain_changes (const SpEstimator *estimator, const SpScenario *scenario, guint most)
{
  GPtrArray *found = g_ptr_array_new_with_free_func (change_free);
  g_autofree Search *s = g_new0 (Search, 1);

  search_init (s, estimator, scenario, found);
  for (guint i = 0; i < s->n_moves; i++)
    try_moves (s, i, i);
  for (guint i = 0; i < s->n_moves; i++)
    for (guint j = i + 1; j < s->n_moves; j++)
      if (!s->alone[i] && !s->alone[j] && !same_subject (&s->moves[i], &s->moves[j]))
        try_moves (s, i, j);
  search_clear (s);
  g_ptr_array_sort (found, compare_changes);
  keep_smallest (found, most);
  return found;
}
