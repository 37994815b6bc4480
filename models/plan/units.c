/* SPDX-License-Identifier: Apache-2.0 */
#include "models/plan/plan-private.h"

#include "models/estimate/paths.h"
#include "models/writer.h"

#include <math.h>
#include <string.h>

/* Units: every factorisation of the GPUs, every order of the axes that differs, every micro-batch. */

#define MAX_ORDERS 64

typedef struct {
  const SpPlanSpace *space;
  SpPlanUnits *units;
  SpCost *cost; /* scratch: the paths of a placement */
  SpProgram *program;
  SpPlanPoint point; /* degrees of the task at hand */
  GArray *placements;
  gint32 rest; /* data x pipeline ranks */
} Builder;

/* --- placements --------------------------------------------------------------------------------------------------- */

/* How many ranks of each axis one node holds: what an order changes. */
static void
signature (const Builder *b, const gint32 *degree, const guint8 *axes, guint n, gint32 *ret)
{
  gint32 node = b->space->estimator->cluster->gpus_per_node;
  gint64 stride = 1;

  memset (ret, 0, SP_N_RANK_AXES * sizeof *ret);
  for (guint i = 0; i < n; i++) {
    ret[axes[i]] = stride < node ? MIN (degree[axes[i]], MAX (1, node / (gint32) stride)) : 1;
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

typedef struct {
  SpOrder orders[MAX_ORDERS];
  gint32 seen[MAX_ORDERS][SP_N_RANK_AXES];
  guint n;
} Orders;

/* Permutations by insertion, in the order of the base, so that the first of equals is the usual one. */
static void
permute (const Builder *b, const gint32 *degree, guint8 *axes, guint at, guint n, Orders *orders)
{
  if (at == n) {
    gint32 mine[SP_N_RANK_AXES];
    signature (b, degree, axes, n, mine);
    for (guint i = 0; i < orders->n; i++)
      if (memcmp (orders->seen[i], mine, sizeof mine) == 0)
        return;
    if (orders->n == MAX_ORDERS)
      return;
    memcpy (orders->seen[orders->n], mine, sizeof mine);
    complete_order (axes, n, &orders->orders[orders->n++]);
    return;
  }
  for (guint i = at; i < n; i++) {
    guint8 chosen = axes[i];
    memmove (axes + at + 1, axes + at, i - at);
    axes[at] = chosen;
    permute (b, degree, axes, at + 1, n, orders);
    memmove (axes + at, axes + at + 1, i - at);
    axes[i] = chosen;
  }
}

static void
find_orders (const Builder *b, gint32 data, gint32 pipeline, Orders *orders)
{
  const SpLayout *l = &b->point.layout;
  const gint32 degree[SP_N_RANK_AXES] = {
    [SP_AXIS_TENSOR] = l->tensor, [SP_AXIS_ULYSSES] = l->ulysses,
    [SP_AXIS_RING] = l->ring,     [SP_AXIS_LASP] = b->space->softmax ? 1 : l->lasp,
    [SP_AXIS_DATA] = data,        [SP_AXIS_PIPELINE] = pipeline,
  };
  guint8 axes[SP_N_RANK_AXES];
  guint n = 0;

  for (guint i = 0; i < SP_N_RANK_AXES; i++) {
    guint8 axis = b->space->question->base.order.axis[i];
    if (degree[axis] > 1)
      axes[n++] = axis;
  }
  orders->n = 0;
  permute (b, degree, axes, 0, n, orders);
}

/* What the prices of the blocks' work depend on besides degrees: the groups' paths, a node's part of a ring, and whether
 * there are stages. 0: no layout is legal there. */
static guint64
paths_of (const Builder *b, const SpPlanPoint *point)
{
  const SpEstimator *estimator = b->space->estimator;

  if (!sp_plan_is_legal (b->space, point))
    return 0;
  sp_program_write_frame (b->program, estimator->arch, &point->layout, &point->run);
  sp_cost_set_work_paths (b->cost, estimator->cluster, b->program);
  guint64 hash = sp_paths_work_identity (b->cost) ^ (point->layout.pipeline > 1);
  gint32 inner = sp_layout_ring_in_node (&point->layout, estimator->arch, estimator->cluster->gpus_per_node);
  return MAX (1, (hash ^ (guint64) inner) * G_GUINT64_CONSTANT (0xbf58476d1ce4e5b9));
}

static void
add_placements (Builder *b, gint32 data, gint32 pipeline)
{
  SpPlanPoint point = b->point;
  Orders orders;

  find_orders (b, data, pipeline, &orders);
  point.layout.data = data;
  point.layout.pipeline = pipeline;
  if (point.layout.ring > 1 && !b->space->estimator->framework->fused_attention)
    point.layout.ring_kind = SP_RING_RSA;
  for (guint o = 0; o < orders.n; o++) {
    SpPlanPlacement placement = { .data = data, .pipeline = pipeline, .order = orders.orders[o] };
    placement.order.experts_far = b->space->question->base.order.experts_far;
    point.layout.order = placement.order;
    placement.paths = paths_of (b, &point);
    placement.below = sp_plan_count (b->space, &point);
    placement.states = sp_plan_count_rows (b->space, SP_PLAN_STATE, 0, &point);
    g_array_append_val (b->placements, placement);
  }
}

/* --- units -------------------------------------------------------------------------------------------------------- */

static gint32
share_of (const SpPlanSpace *space, gint32 data)
{
  return (space->question->global_batch + data - 1) / data;
}

/* Micro-batches of powers of two, and all of a replica's sequences at once. */
static gboolean
is_micro_batch (const SpPlanSpace *space, gint32 data, gint32 b)
{
  gint32 share = share_of (space, data);

  return b == share || (b < share && (b & (b - 1)) == 0);
}

double
sp_plan_share (const SpPlanSpace *space, const SpPlanPlacement *p, gint32 micro_batch)
{
  return (double) (space->question->global_batch / p->data / micro_batch) / p->pipeline;
}

static gint
compare_paths (gconstpointer a, gconstpointer b)
{
  const SpPlanPlacement *x = a, *y = b;

  if (x->paths != y->paths)
    return x->paths < y->paths ? -1 : 1;
  return x->number < y->number ? -1 : 1;
}

/* Of placements with the same paths, those that have the micro-batch. */
static void
add_unit (Builder *b, const SpPlanPlacement *placements, guint n, gint32 batch)
{
  g_autoptr (GArray) own = g_array_new (FALSE, FALSE, sizeof (SpPlanPlacement));
  SpPlanUnit unit = { .point = b->point, .least_share = INFINITY };

  unit.point.run.micro_batch = batch;
  for (guint i = 0; i < n; i++) {
    const SpPlanPlacement *p = &placements[i];
    if (!is_micro_batch (b->space, p->data, batch))
      continue;
    b->units->candidates += p->below;
    if (p->paths == 0) {
      b->units->refused += p->below;
      continue;
    }
    unit.below += p->below;
    unit.most_stages = MAX (unit.most_stages, p->pipeline);
    g_array_append_val (own, *p);
    unit.least_share = MIN (unit.least_share, sp_plan_share (b->space, p, batch));
  }
  if (own->len == 0)
    return;
  unit.n = own->len;
  unit.placements = (SpPlanPlacement *) g_array_free (g_steal_pointer (&own), FALSE);
  g_ptr_array_add (b->units->placements, (gpointer) unit.placements);
  g_array_append_val (b->units->units, unit);
}

static void
add_micro_batches (Builder *b, const SpPlanPlacement *placements, guint n)
{
  for (gint64 batch = 1; batch < b->space->question->global_batch; batch *= 2)
    add_unit (b, placements, n, (gint32) batch);
  /* What is left are shares that are no powers of two, or the whole batch. */
  g_autoptr (GHashTable) seen = g_hash_table_new (NULL, NULL);
  for (guint i = 0; i < n; i++) {
    gint32 share = share_of (b->space, placements[i].data);
    gboolean is_power = (share & (share - 1)) == 0 && share < b->space->question->global_batch;
    if (!is_power && g_hash_table_add (seen, GINT_TO_POINTER (share)))
      add_unit (b, placements, n, share);
  }
}

static void
add_task (Builder *b)
{
  const SpLayout *l = &b->point.layout;
  gint32 sequence = sp_layout_sequence_ranks (l, b->space->estimator->arch);

  g_array_set_size (b->placements, 0);
  for (gint32 pipeline = 1; pipeline <= b->rest; pipeline++)
    if (b->rest % pipeline == 0 && (gint64) (b->rest / pipeline) * sequence % l->expert == 0)
      add_placements (b, b->rest / pipeline, pipeline);
  for (guint i = 0; i < b->placements->len; i++)
    g_array_index (b->placements, SpPlanPlacement, i).number = i;
  g_array_sort (b->placements, compare_paths);
  const SpPlanPlacement *all = (SpPlanPlacement *) b->placements->data;
  for (guint i = 0, end; i < b->placements->len; i = end) {
    for (end = i + 1; end < b->placements->len && all[end].paths == all[i].paths;)
      end++;
    add_micro_batches (b, &all[i], end - i);
  }
}

/* Ranks that experts may be spread over. */
static void
add_experts (Builder *b, gint32 replicas)
{
  gint32 experts = b->space->experts ? b->space->estimator->arch->moe.experts : 1;

  for (gint32 expert = 1; expert <= MIN (replicas, experts); expert++) {
    if (replicas % expert != 0 || (expert > 1 && experts % expert != 0))
      continue;
    b->point.layout.expert = expert;
    add_task (b);
  }
}

/* Factors the sequence ranks: ulysses x ring, or ulysses x lasp, or both ways at once. */
static void
add_sequence (Builder *b, gint32 ranks)
{
  const SpPlanSpace *space = b->space;

  for (gint32 u = 1; u <= ranks; u++) {
    if (ranks % u != 0)
      continue;
    b->point.layout.ulysses = u;
    b->point.layout.ring = space->softmax ? ranks / u : 1;
    for (gint32 lasp = 1; lasp <= ranks; lasp++) {
      gboolean only = !space->linear ? lasp == 1 : !space->softmax ? lasp == ranks / u : ranks % lasp == 0;
      if (!only)
        continue;
      b->point.layout.lasp = lasp;
      add_experts (b, b->rest * ranks);
    }
  }
}

/* What stands for the rows of the table until they are set. */
static void
begin_point (const SpPlanSpace *space, SpPlanPoint *point)
{
  const SpLayout usual = SP_LAYOUT_DEFAULT;

  *point = (SpPlanPoint){ space->question->base, space->run };
  point->layout.schedule = usual.schedule;
  point->layout.virtual_stages = 1;
  point->layout.ring_kind = SP_RING_P2P;
  point->layout.token_split = SP_TOKENS_CONTIGUOUS;
  memset (point->layout.stage_split, 0, sizeof point->layout.stage_split);
  point->layout.zero_group = 0;
}

void
sp_plan_units_init (SpPlanUnits *units, const SpPlanSpace *space)
{
  SpCost cost = space->estimator->cost;
  Builder b = { .space = space, .units = units, .cost = &cost, .program = sp_program_new () };

  *units = (SpPlanUnits){ .units = g_array_new (FALSE, FALSE, sizeof (SpPlanUnit)),
                          .placements = g_ptr_array_new_with_free_func (g_free) };
  b.placements = g_array_new (FALSE, FALSE, sizeof (SpPlanPlacement));
  begin_point (space, &b.point);
  for (gint32 tensor = 1; tensor <= space->gpus; tensor++)
    for (gint32 ranks = 1; space->gpus % tensor == 0 && ranks <= space->gpus / tensor; ranks++) {
      if (space->gpus / tensor % ranks != 0)
        continue;
      b.point.layout.tensor = tensor;
      b.rest = space->gpus / tensor / ranks;
      add_sequence (&b, ranks);
    }
  g_array_unref (b.placements);
  sp_program_free (b.program);
}

void
sp_plan_units_clear (SpPlanUnits *units)
{
  g_array_unref (units->units);
  g_ptr_array_unref (units->placements);
}

void
sp_plan_place (const SpPlanUnit *unit, guint placement, SpPlanPoint *point)
{
  const SpPlanPlacement *p = &unit->placements[placement];

  point->layout.data = p->data;
  point->layout.pipeline = p->pipeline;
  point->layout.order = p->order;
}

/* States and offload as plain as can be: what the rules refuse so they refuse with any. */
static void
set_plain (SpPlanPoint *point)
{
  point->layout.zero = 0;
  point->layout.zero_group = 0;
  point->layout.offload = 0;
}

guint
sp_plan_place_legal (const SpPlanSpace *space, const SpPlanUnit *unit, guint first, guint end, SpPlanPoint *point)
{
  guint p = first;

  set_plain (point);
  for (; p < end; p++) {
    sp_plan_place (unit, p, point);
    if (sp_plan_is_legal (space, point))
      break;
  }
  return p;
}
