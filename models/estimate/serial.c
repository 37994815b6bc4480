/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/serial.h"

#include "models/estimate/clock.h"

#include "sim/op-place.h"
#include "sim/walk.h"

#include <math.h>
#include <string.h>

/* Clocks of the places of one stage. */
typedef struct {
  SpWalk walk;
  SpItem item;
  gboolean has_item, over;
  double *at;     /* [places] */
  double *begin;  /* [places] of its list */
  guint *kernels; /* [places] of its list */
  double held_up; /* of the host in its list, by gathers and scatters of shards */
  gint32 begun;   /* slots that the host has begun */
  guint op;       /* where the list goes on */
  gboolean waits; /* at that op, for the stage that shares it */
  const SpOp *shared;
} Stage;

/* A message between stages that was sent and not yet received. */
typedef struct {
  gint32 boundary, micro_batch;
  guint8 backward;
  double *sent; /* [places] */
} Message;

typedef struct {
  const SpCost *cost;
  const SpProgram *program;
  SpWalkPlan *plan;
  gint32 places, node;
  gint32 *rank;                      /* [places] on stage 0 of the first replica */
  gint32 *place[SP_N_GROUPS];        /* [places] in each group */
  gint32 *first[SP_N_GROUPS];        /* [places] lowest place of the sequence in the same instance */
  gint32 *next[SP_N_GROUPS];         /* [places] place of the sequence at place + 1 of the group */
  gboolean spans[SP_N_GROUPS];       /* whether an instance has several places of the sequence */
  double *seconds, *near;            /* [n_ops] */
  double *at_first, *at_last;        /* [n_ops] of kernels at the first and the last place of their group */
  guint8 *near_hops[SP_N_GROUPS][2]; /* [size], of chains' groups */
  Stage *stages;
  GArray *messages;
  double *scratch; /* [places] */
} Walker;

/* --- places ------------------------------------------------------------------------------------------------------- */

/* Whether places of a sequence do different things. */
static gboolean
places_differ (const SpProgram *program)
{
  const guint place_guards = SP_GUARD_NOT_FIRST | SP_GUARD_NOT_LAST | SP_GUARD_VISIBLE;

  for (guint i = 0; i < program->n_ops; i++) {
    const SpOp *op = &program->ops[i];
    if ((op->guard & place_guards || op->flags & SP_OP_BY_PLACE || sp_op_has_ends (op)) &&
        op->group != SP_GROUP_PIPELINE)
      return TRUE;
  }
  return FALSE;
}

static void
map_group (Walker *w, guint g)
{
  const SpProgram *program = w->program;
  gint32 size = program->groups[g].size;

  w->place[g] = g_new0 (gint32, w->places);
  w->first[g] = g_new0 (gint32, w->places);
  w->next[g] = g_new0 (gint32, w->places);
  for (gint32 p = 0; p < w->places; p++) {
    gint32 rank = w->rank[p], first = p, place = size > 1 ? sp_program_place (program, g, rank) : 0;
    w->place[g][p] = place;
    gint32 next = size > 1 ? sp_program_member (program, g, rank, (place + 1) % size) : rank;
    w->next[g][p] = w->places == 1 ? 0 : sp_program_place (program, SP_GROUP_SEQUENCE, next);
    for (gint32 q = 0; q < p && size > 1; q++)
      if (sp_program_member (program, g, rank, sp_program_place (program, g, w->rank[q])) == w->rank[q]) {
        first = q;
        break;
      }
    w->first[g][p] = first;
    w->spans[g] |= first != p;
  }
}

static void
map_hops (Walker *w, guint group)
{
  for (guint reverse = 0; reverse < 2 && w->near_hops[group][1] == NULL; reverse++) {
    w->near_hops[group][reverse] = g_new (guint8, w->program->groups[group].size);
    sp_program_near_hops (w->program, (SpGroupId) group, reverse == 1, w->node, w->near_hops[group][reverse]);
  }
}

static void
walker_init (Walker *w, const SpCost *cost, const SpProgram *program, gint32 node, gint32 places)
{
  *w = (Walker){ .cost = cost, .program = program, .places = places, .node = node };
  w->plan = sp_walk_plan_new (program, SP_ORDER_PROGRAM);
  w->rank = g_new (gint32, places);
  for (gint32 p = 0; p < places; p++)
    w->rank[p] = places > 1 ? sp_program_member (program, SP_GROUP_SEQUENCE, 0, p) : 0;
  for (guint g = 0; g < SP_N_GROUPS; g++)
    map_group (w, g);
  g_autofree double *clocks = sp_clock_of_ops (cost, program);
  SpCost at = *cost;
  w->seconds = g_new (double, program->n_ops);
  w->near = g_new0 (double, program->n_ops);
  w->at_first = g_new (double, program->n_ops);
  w->at_last = g_new (double, program->n_ops);
  for (guint i = 0; i < program->n_ops; i++) {
    const SpOp *op = &program->ops[i];
    at.clock = clocks[i];
    w->seconds[i] = sp_cost_op (&at, op);
    w->at_first[i] = sp_cost_op_at (&at, op, 0);
    w->at_last[i] = sp_cost_op_at (&at, op, program->groups[op->group].size - 1);
    if (op->kind == SP_OP_SEND) {
      w->near[i] = sp_cost_message (cost, op, TRUE, FALSE, NULL);
      map_hops (w, op->group);
    }
  }
  w->stages = g_new0 (Stage, program->stages);
  for (gint32 s = 0; s < program->stages; s++) {
    sp_walk_init (&w->stages[s].walk, w->plan, s);
    w->stages[s].at = g_new0 (double, places);
    w->stages[s].begin = g_new0 (double, places);
    w->stages[s].kernels = g_new0 (guint, places);
  }
  w->messages = g_array_new (FALSE, FALSE, sizeof (Message));
  w->scratch = g_new (double, places);
}

static void
walker_clear (Walker *w)
{
  for (gint32 s = 0; s < w->program->stages; s++) {
    g_free (w->stages[s].at);
    g_free (w->stages[s].begin);
    g_free (w->stages[s].kernels);
  }
  for (guint g = 0; g < SP_N_GROUPS; g++) {
    g_free (w->place[g]);
    g_free (w->first[g]);
    g_free (w->next[g]);
    g_free (w->near_hops[g][0]);
    g_free (w->near_hops[g][1]);
  }
  for (guint i = 0; i < w->messages->len; i++)
    g_free (g_array_index (w->messages, Message, i).sent);
  g_array_unref (w->messages);
  sp_walk_plan_free (w->plan);
  g_free (w->rank);
  g_free (w->seconds);
  g_free (w->near);
  g_free (w->at_first);
  g_free (w->at_last);
  g_free (w->stages);
  g_free (w->scratch);
}

/* --- ops ---------------------------------------------------------------------------------------------------------- */

static gboolean
holds (const Walker *w, const SpOp *op, const SpLoop *loop, gint32 p, gint32 step)
{
  return sp_op_holds (op, w->place[op->group][p], w->program->groups[op->group].size, step,
                      loop != NULL ? loop->steps : 1);
}

/* Places that are members of one instance come together. */
static void
walk_collective (Walker *w, Stage *stage, const SpOp *op, double seconds)
{
  const gint32 *first = w->first[op->group];

  if (!w->spans[op->group]) {
    for (gint32 p = 0; p < w->places; p++)
      stage->at[p] += seconds;
    return;
  }
  for (gint32 p = 0; p < w->places; p++)
    stage->at[first[p]] = MAX (stage->at[first[p]], stage->at[p]);
  for (gint32 p = w->places - 1; p >= 0; p--)
    stage->at[p] = stage->at[first[p]] + (first[p] == p ? 0 : seconds);
  for (gint32 p = 0; p < w->places; p++)
    if (first[p] == p)
      stage->at[p] += seconds;
}

static void
walk_ring (Walker *w, Stage *stage, const SpOp *op, double seconds)
{
  const gint32 *next = w->next[op->group];

  memcpy (w->scratch, stage->at, (gsize) w->places * sizeof *w->scratch);
  for (gint32 p = 0; p < w->places; p++) {
    w->scratch[p] = MAX (w->scratch[p], stage->at[next[p]]);
    w->scratch[next[p]] = MAX (w->scratch[next[p]], stage->at[p]);
  }
  for (gint32 p = 0; p < w->places; p++)
    stage->at[p] = w->scratch[p] + seconds;
}

typedef struct {
  const SpOp *ops;
  const SpLoop *loops;
  const double *seconds, *near, *at_first, *at_last;
  guint n, flags, mask;
  guint *kernels; /* [places] */
} List;

/* Whether members of the group are on different stages. */
static gboolean
spans_stages (const SpProgram *program, guint group)
{
  const SpGroup *g = &program->groups[group];

  for (guint i = 0; i < g->n_digits; i++)
    if (program->digits[g->digits[i]].axis == SP_AXIS_PIPELINE)
      return TRUE;
  return FALSE;
}

static gboolean
selected (const List *list, const SpOp *op)
{
  return (op->flags & list->mask) == list->flags;
}

static double
kernel_seconds (const Walker *w, const List *list, guint i, gint32 p)
{
  const SpOp *op = &list->ops[i];
  gint32 place = w->place[op->group][p], size = w->program->groups[op->group].size;

  if (op->flags & SP_OP_BY_PLACE)
    return list->at_first[i] + (list->seconds[i] - list->at_first[i]) * place / MAX (size - 1, 1);
  if (!sp_op_has_ends (op) || (place > 0 && place < size - 1))
    return list->seconds[i];
  return place == 0 ? list->at_first[i] : list->at_last[i];
}

static void
walk_op (Walker *w, Stage *stage, const List *list, guint i, const SpLoop *loop, gint32 step)
{
  const SpOp *op = &list->ops[i];
  double seconds = list->seconds[i];

  if (!selected (list, op))
    return;
  if (!sp_op_is_communication (op->kind)) {
    for (gint32 p = 0; p < w->places; p++)
      if (holds (w, op, loop, p, step)) {
        stage->at[p] += kernel_seconds (w, list, i, p);
        list->kernels[p]++;
      }
  } else if (sp_op_is_host_copy (op->kind)) {
    for (gint32 p = 0; p < w->places; p++)
      stage->at[p] += seconds;
  } else if (w->program->groups[op->group].size == 1 || !holds (w, op, loop, 0, step))
    ; /* guards of collectives are on steps alone */
  else if (op->kind == SP_OP_SEND_RECEIVE)
    walk_ring (w, stage, op, seconds);
  else {
    walk_collective (w, stage, op, seconds);
    stage->held_up += sp_op_moves_shards (op) ? w->cost->host_gather_s : 0;
  }
}

/* A message from place to place, each of which receives, runs the kernels between, and sends on. */
static guint
walk_chain (Walker *w, Stage *stage, const List *list, guint receive)
{
  const SpOp *ops = list->ops;
  guint group = ops[receive].group, send = receive;
  gboolean reverse = (ops[receive].flags & SP_OP_REVERSE) != 0;
  gint32 size = w->program->groups[group].size;

  while (send < list->n && ops[send].kind != SP_OP_SEND)
    send++;
  g_assert (send < list->n);
  /* In the order of the chain: place after place, all chains of the sequence side by side. */
  for (gint32 n = 0; n < size; n++)
    for (gint32 p = 0; p < w->places; p++) {
      gint32 place = reverse ? size - 1 - n : n;
      if (w->place[group][p] != place)
        continue;
      for (guint i = receive + 1; i < send; i++)
        if (selected (list, &ops[i]) && holds (w, &ops[i], NULL, p, 0)) {
          stage->at[p] += kernel_seconds (w, list, i, p);
          list->kernels[p]++;
        }
      if (n == size - 1)
        continue;
      gint32 to = p;
      for (gint32 hops = reverse ? size - 1 : 1; hops > 0; hops--)
        to = w->next[group][to];
      gboolean near = w->near_hops[group][reverse][place];
      stage->at[p] = stage->at[to] =
          MAX (stage->at[p], stage->at[to]) + (near ? list->near[send] : list->seconds[send]);
    }
  return send;
}

static guint
walk_loop (Walker *w, Stage *stage, const List *list, const SpLoop *loop)
{
  for (gint32 step = 0; step < loop->steps; step++)
    for (guint i = loop->first; i < loop->end; i++)
      walk_op (w, stage, list, i, loop, step);
  return loop->end - 1u;
}

/* FALSE: it stands at an op that it shares with another stage, which has not come. */
static gboolean
walk_list (Walker *w, Stage *stage, const List *list)
{
  for (guint i = stage->op; i < list->n; i++) {
    const SpOp *op = &list->ops[i];
    if (sp_op_is_communication (op->kind) && selected (list, op) && w->program->groups[op->group].size > 1 &&
        spans_stages (w->program, op->group)) {
      stage->waits = TRUE;
      stage->shared = op;
      stage->op = i;
      return FALSE;
    }
    if (op->loop != 0)
      i = walk_loop (w, stage, list, &list->loops[op->loop - 1]);
    else if (op->kind == SP_OP_RECEIVE && selected (list, op))
      i = walk_chain (w, stage, list, i);
    else
      walk_op (w, stage, list, i, NULL, 0);
  }
  return TRUE;
}

/* --- items -------------------------------------------------------------------------------------------------------- */

/* The first list of a slot waits for the host. */
static void
begin_slot (Walker *w, gint32 s, Stage *stage)
{
  double seconds = sp_cost_beside_slot (w->cost, w->program);

  if (!sp_walk_begins_slot (w->plan, s, &stage->item, &stage->begun))
    return;
  for (gint32 p = 0; p < w->places; p++)
    stage->at[p] += seconds;
}

static gboolean
run_list (Walker *w, gint32 s, Stage *stage)
{
  const SpProgram *program = w->program;
  const SpItem *item = &stage->item;
  guint n_positions;
  const SpPosition *positions = sp_walk_positions (w->plan, s, &n_positions);
  const SpBlock *block = &sp_walk_variant (program, item->micro_batch)->blocks[positions[item->position].block];
  List list = { .loops = block->loops, .flags = item->flags, .mask = item->mask, .kernels = stage->kernels };

  if (item->kind == SP_ITEM_GATHER) {
    list.ops = sp_program_pipe_gather (program, sp_walk_variant (program, item->micro_batch));
    list.n = 1;
  } else
    list.ops = sp_program_segment (program, block, (SpPhase) item->phase, &list.n);
  list.seconds = w->seconds + (list.ops - program->ops);
  list.near = w->near + (list.ops - program->ops);
  list.at_first = w->at_first + (list.ops - program->ops);
  list.at_last = w->at_last + (list.ops - program->ops);
  if (stage->op == 0) {
    begin_slot (w, s, stage);
    memcpy (stage->begin, stage->at, (gsize) w->places * sizeof *stage->begin);
    memset (stage->kernels, 0, (gsize) w->places * sizeof *stage->kernels);
    stage->held_up = 0;
  }
  if (!walk_list (w, stage, &list))
    return FALSE;
  stage->op = 0;
  for (gint32 p = 0; p < w->places; p++)
    stage->at[p] =
        MAX (stage->at[p], stage->begin[p] + stage->kernels[p] * w->cost->host_launch_s + stage->held_up);
  return TRUE;
}

static void
send (Walker *w, const Stage *stage)
{
  const SpItem *item = &stage->item;
  Message message = { .boundary = item->boundary, .micro_batch = item->micro_batch, .backward = item->backward };

  message.sent = g_memdup2 (stage->at, (gsize) w->places * sizeof *stage->at);
  g_array_append_val (w->messages, message);
}

static gboolean
receive (Walker *w, Stage *stage)
{
  const SpItem *item = &stage->item;
  const SpVariant *variant = sp_walk_variant (w->program, item->micro_batch);
  double seconds = sp_cost_op (w->cost, &variant->pipe_send);

  for (guint i = 0; i < w->messages->len; i++) {
    Message *m = &g_array_index (w->messages, Message, i);
    if (m->boundary != item->boundary || m->micro_batch != item->micro_batch || m->backward != item->backward)
      continue;
    for (gint32 p = 0; p < w->places; p++)
      stage->at[p] = MAX (stage->at[p], m->sent[p]) + seconds;
    g_free (m->sent);
    g_array_remove_index_fast (w->messages, i);
    return TRUE;
  }
  return FALSE;
}

/* Both ends of an op that two stages share. */
static gboolean
meet (Walker *w, gint32 s, Stage *stage)
{
  const SpProgram *program = w->program;
  guint group = stage->shared->group;
  gint32 rank = sp_program_member (program, SP_GROUP_PIPELINE, w->rank[0], s);
  gint32 place = sp_program_place (program, group, rank);
  gint32 other = sp_program_place (program, SP_GROUP_PIPELINE, sp_program_member (program, group, rank, 1 - place));
  Stage *partner = &w->stages[other];

  if (!partner->waits || partner->shared->group != group)
    return FALSE;
  double seconds = w->seconds[stage->shared - program->ops];
  for (gint32 p = 0; p < w->places; p++)
    stage->at[p] = partner->at[p] = MAX (stage->at[p], partner->at[p]) + seconds;
  stage->waits = partner->waits = FALSE;
  stage->op++;
  partner->op++;
  return TRUE;
}

/* Goes on until the stage waits for another; TRUE if it came any further. */
static gboolean
run_stage (Walker *w, gint32 s)
{
  Stage *stage = &w->stages[s];
  gboolean moved = FALSE;

  while (!stage->over) {
    if (stage->waits && !meet (w, s, stage))
      return moved;
    if (!stage->has_item) {
      stage->has_item = sp_walk_next (&stage->walk, &stage->item);
      stage->over = !stage->has_item;
      continue;
    }
    gboolean done = TRUE;
    if (stage->item.kind == SP_ITEM_LIST || stage->item.kind == SP_ITEM_GATHER)
      done = run_list (w, s, stage);
    else if (stage->item.kind == SP_ITEM_SEND)
      send (w, stage);
    else
      done = receive (w, stage);
    if (!done && !stage->waits)
      return moved;
    if (done)
      stage->has_item = FALSE;
    moved = TRUE;
  }
  return moved;
}

/* Op evaluations that a step takes, about. */
static double
work_of (const SpProgram *program, gint32 places)
{
  const SpVariant *variant = &program->variants[0];
  double ops = 0;

  for (guint l = 0; l < program->n_layers; l++) {
    const SpBlock *block = &variant->blocks[program->layer_block[l]];
    for (guint phase = 0; phase < SP_N_PHASES; phase++)
      ops += block->segments[phase].n;
    for (guint i = 0; i < block->n_loops; i++)
      ops += (block->loops[i].end - block->loops[i].first) * (double) (block->loops[i].steps - 1);
  }
  return ops * sp_program_runs (program) * places;
}

double
sp_estimate_serial (const SpCost *cost, const SpProgram *program, gint32 gpus_per_node, double most)
{
  gint32 places = places_differ (program) ? program->groups[SP_GROUP_SEQUENCE].size : 1;
  gboolean moved = TRUE;
  double end = 0;
  Walker w;

  if (work_of (program, places) > most)
    return NAN;
  walker_init (&w, cost, program, gpus_per_node, places);
  while (moved) {
    moved = FALSE;
    for (gint32 s = 0; s < program->stages; s++)
      moved |= run_stage (&w, s);
  }
  for (gint32 s = 0; s < program->stages; s++) {
    g_assert (w.stages[s].over); /* every schedule is free of deadlocks */
    for (gint32 p = 0; p < w.places; p++)
      end = MAX (end, w.stages[s].at[p]);
  }
  walker_clear (&w);
  return end;
}
