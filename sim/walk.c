/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/walk.h"

#include <string.h>

/* --- the plan ----------------------------------------------------------------------------------------------------- */

typedef struct {
  gint32 first, end; /* its positions */
  gint32 virtual_stage;
  gint32 last_backward; /* slot after which nothing more is added to its gradients */
} Chunk;

typedef struct {
  SpPosition *positions;
  gint32 *model_order; /* [n_positions]: positions by layer, which mirrored chunks are not in */
  guint n_positions;
  Chunk *chunks;
  SpSlot *slots;
  gint32 n_slots;
} Stage;

/* What the plan knows of a block. */
typedef struct {
  gboolean gather_moves, sync_moves;
} Moves;

struct _SpWalkPlan {
  const SpProgram *program;
  SpWalkOrder order;
  const SpSchedule *schedule;
  Stage *stages;
  Moves moves[SP_MAX_BLOCKS];
};

static gboolean
spans_stages (const SpProgram *program, const SpOp *op)
{
  return sp_op_is_communication (op->kind) &&
         (op->group == SP_GROUP_PIPELINE || op->group == SP_GROUP_TIE || op->group == SP_GROUP_MIRROR) &&
         program->groups[op->group].size > 1;
}

gboolean
sp_walk_list_moves (const SpProgram *program, const SpBlock *block, SpPhase phase)
{
  gboolean has_async = FALSE;
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);

  for (guint i = 0; i < n; i++) {
    if (ops[i].flags & SP_OP_PER_MICRO_BATCH)
      continue;
    if (spans_stages (program, &ops[i]))
      return FALSE;
    has_async |= (ops[i].flags & SP_OP_ASYNC) != 0;
  }
  return has_async;
}

static void
add_positions (const SpProgram *program, Stage *stage, gint32 chunk)
{
  gint32 at = stage->chunks[chunk].virtual_stage, n = (gint32) stage->n_positions;
  SpPosition position = { .chunk = (guint8) chunk };

  stage->chunks[chunk].first = n;
  if (at == 0) {
    position.layer = SP_LAYER_EMBEDDING;
    stage->positions[n++] = position;
  }
  for (gint32 layer = program->stage_first[at]; layer < program->stage_first[at + 1]; layer++) {
    position.layer = layer;
    position.block = program->layer_block[layer];
    stage->positions[n++] = position;
  }
  if (at == sp_program_virtual_stages (program) - 1) {
    position.layer = SP_LAYER_HEAD;
    position.block = (guint8) (program->n_blocks - 1);
    stage->positions[n++] = position;
  }
  stage->chunks[chunk].end = n;
  stage->n_positions = (guint) n;
}

/* What the scope leaves of the slots, and of the chunk that they run. */
static void
cut_to_scope (const SpProgram *program, Stage *stage)
{
  gint32 n = 0;

  if (program->scope == SP_SCOPE_FORWARD) {
    for (gint32 i = 0; i < stage->n_slots; i++)
      if (stage->slots[i].kind == SP_SLOT_FORWARD)
        stage->slots[n++] = stage->slots[i];
    stage->n_slots = n;
  } else if (sp_program_is_one_layer (program)) {
    g_assert (program->n_layers > 0 && sp_program_virtual_stages (program) == 1);
    stage->slots[0] = (SpSlot){ .kind = SP_SLOT_FORWARD };
    stage->slots[1] = (SpSlot){ .kind = SP_SLOT_BACKWARD };
    stage->n_slots = sp_program_is_forward (program) ? 1 : 2;
    stage->chunks[0].first = 1; /* after the embedding */
    stage->chunks[0].end = 2;
    stage->chunks[0].last_backward = -1;
  }
}

static void
plan_stage (const SpWalkPlan *plan, gint32 s, Stage *stage)
{
  const SpProgram *program = plan->program;
  const SpPipeline pipeline = sp_program_pipeline (program);
  guint n = 0;

  stage->chunks = g_new0 (Chunk, program->chunks);
  stage->positions = g_new (SpPosition, program->n_layers + 2);
  for (gint32 c = 0; c < program->chunks; c++) {
    stage->chunks[c].virtual_stage = sp_program_virtual_stage (program, s, c);
    add_positions (program, stage, c);
  }
  stage->positions = g_renew (SpPosition, stage->positions, stage->n_positions);
  stage->model_order = g_new (gint32, stage->n_positions);
  for (gint32 v = 0; v < sp_program_virtual_stages (program); v++)
    for (gint32 c = 0; c < program->chunks; c++)
      for (gint32 at = stage->chunks[c].first; stage->chunks[c].virtual_stage == v && at < stage->chunks[c].end; at++)
        stage->model_order[n++] = at;

  stage->slots = g_new (SpSlot, sp_schedule_most_slots (&pipeline));
  stage->n_slots = (gint32) plan->schedule->fill (&pipeline, s, stage->slots);
  stage->slots = g_renew (SpSlot, stage->slots, stage->n_slots);
  for (gint32 i = 0; i < stage->n_slots; i++)
    if (stage->slots[i].kind != SP_SLOT_FORWARD)
      stage->chunks[stage->slots[i].chunk].last_backward = i;
  cut_to_scope (program, stage);
}

SpWalkPlan *
sp_walk_plan_new (const SpProgram *program, SpWalkOrder order)
{
  SpWalkPlan *plan = g_new0 (SpWalkPlan, 1);

  plan->program = program;
  plan->order = order;
  plan->schedule = sp_schedule_get (program->schedule);
  plan->stages = g_new0 (Stage, program->stages);
  for (gint32 s = 0; s < program->stages; s++)
    plan_stage (plan, s, &plan->stages[s]);
  for (guint b = 0; b < program->n_blocks && order == SP_ORDER_EAGER; b++) {
    const SpBlock *block = &program->variants[0].blocks[b];

    plan->moves[b].gather_moves = sp_walk_list_moves (program, block, SP_PHASE_GATHER);
    plan->moves[b].sync_moves = sp_walk_list_moves (program, block, SP_PHASE_SYNC);
  }
  return plan;
}

void
sp_walk_plan_free (SpWalkPlan *plan)
{
  if (plan == NULL)
    return;
  for (gint32 s = 0; s < plan->program->stages; s++) {
    g_free (plan->stages[s].positions);
    g_free (plan->stages[s].model_order);
    g_free (plan->stages[s].chunks);
    g_free (plan->stages[s].slots);
  }
  g_free (plan->stages);
  g_free (plan);
}

SpWalkOrder
sp_walk_order (const SpWalkPlan *plan)
{
  return plan->order;
}

const SpPosition *
sp_walk_positions (const SpWalkPlan *plan, gint32 stage, guint *ret_n)
{
  *ret_n = plan->stages[stage].n_positions;
  return plan->stages[stage].positions;
}

const SpSlot *
sp_walk_slots (const SpWalkPlan *plan, gint32 stage, guint *ret_n)
{
  *ret_n = (guint) plan->stages[stage].n_slots;
  return plan->stages[stage].slots;
}

/* --- items -------------------------------------------------------------------------------------------------------- */

const char *
sp_item_name (SpItemKind kind)
{
  static const char *const names[] = { "list", "send", "receive", "gather" };

  return names[kind];
}

/* An item at a place of the slot's pattern, and whether there is one. */
typedef enum { ITEM, NOTHING, END } Found;

static Found
list_item (SpPhase phase, gint32 position, guint flags, guint mask, SpItem *ret)
{
  ret->kind = SP_ITEM_LIST;
  ret->phase = (guint8) phase;
  ret->position = position;
  ret->flags = (guint16) flags;
  ret->mask = (guint16) mask;
  return ITEM;
}

/* A message of this chunk: none at the ends of the model. */
static Found
pipe_item (const SpWalk *walk, const Chunk *chunk, SpItemKind kind, gboolean backward, SpItem *ret)
{
  const SpWalkPlan *plan = walk->plan;
  const SpProgram *program = plan->program;
  gboolean at_start = (kind != SP_ITEM_SEND) != backward;
  gint32 other = chunk->virtual_stage + (at_start ? -1 : 1);

  if (other < 0 || other >= sp_program_virtual_stages (program))
    return NOTHING;
  if (kind == SP_ITEM_GATHER && sp_program_pipe_gather (program, &program->variants[0]) == NULL)
    return NOTHING;
  ret->kind = (guint8) kind;
  ret->phase = backward ? SP_PHASE_BACKWARD : SP_PHASE_FORWARD;
  ret->backward = backward;
  ret->position = at_start ? chunk->first : chunk->end - 1;
  ret->boundary = MIN (chunk->virtual_stage, other);
  ret->peer = sp_schedule_stage (plan->schedule, program->stages, other, ret->chunk);
  ret->flags = ret->mask = 0;
  return ITEM;
}

static const Moves *
moves_of (const SpWalkPlan *plan, const Stage *stage, gint32 position)
{
  return &plan->moves[stage->positions[position].block];
}

/* What comes before a slot's blocks: receive, and its gather. */
enum { AT_RECEIVE, AT_GATHER, AT_FIRST, AT_BLOCKS };

static const SpBlock *
block_of (const SpWalk *walk, const Stage *stage, gint32 position)
{
  return &walk->plan->program->variants[0].blocks[stage->positions[position].block];
}

static Found
gather_item (const SpWalk *walk, const Stage *stage, gint32 position, SpItem *ret)
{
  if (!sp_block_gathers (block_of (walk, stage, position), sp_walk_variant (walk->plan->program, ret->micro_batch)))
    return NOTHING;
  return list_item (SP_PHASE_GATHER, position, 0, 0, ret);
}

/* These; the first block's gather; of each block its list and, before or after, the next one's gather; send. */
static Found
forward_item (const SpWalk *walk, const Stage *stage, const Chunk *chunk, SpItem *ret)
{
  gint32 n = chunk->end - chunk->first, at = walk->at - AT_BLOCKS, position = chunk->first + at / 2;

  if (walk->at < AT_FIRST)
    return pipe_item (walk, chunk, walk->at == AT_RECEIVE ? SP_ITEM_RECEIVE : SP_ITEM_GATHER, FALSE, ret);
  if (walk->at == AT_FIRST)
    return n > 0 ? gather_item (walk, stage, chunk->first, ret) : NOTHING;
  if (at >= 2 * n)
    return at == 2 * n ? pipe_item (walk, chunk, SP_ITEM_SEND, FALSE, ret) : END;
  gboolean is_last = position + 1 == chunk->end;
  gboolean gather_first = !is_last && moves_of (walk->plan, stage, position + 1)->gather_moves;
  if ((at % 2 == 0) == gather_first)
    return is_last ? NOTHING : gather_item (walk, stage, position + 1, ret);
  return list_item (SP_PHASE_FORWARD, position, 0, 0, ret);
}

static Found
regather_item (const SpWalk *walk, const Stage *stage, const Chunk *chunk, gint32 position, gboolean moved, SpItem *ret)
{
  if (position < chunk->first || moves_of (walk->plan, stage, position)->gather_moves != moved ||
      !sp_block_gathers_again (block_of (walk, stage, position)))
    return NOTHING;
  return list_item (SP_PHASE_GATHER, position, 0, 0, ret);
}

/* What follows the weights' part of a block's backward. */
static Found
sync_item (const SpWalk *walk, const Stage *stage, const Chunk *chunk, gint32 position, gboolean once, SpItem *ret)
{
  if (!once)
    return list_item (SP_PHASE_SYNC, position, SP_OP_PER_MICRO_BATCH, SP_OP_PER_MICRO_BATCH, ret);
  if (walk->slot != chunk->last_backward || !moves_of (walk->plan, stage, position)->sync_moves)
    return NOTHING;
  ret->micro_batch = -1;
  return list_item (SP_PHASE_SYNC, position, 0, SP_OP_PER_MICRO_BATCH, ret);
}

/* Receive, and its gather; the last block's gather; of each block, last to first: the next one's gather if it moves, its
 * own lists, the next one's gather if it does not; send. */
static Found
backward_item (const SpWalk *walk, const Stage *stage, const Chunk *chunk, gboolean with_weights, SpItem *ret)
{
  enum { GATHER_AHEAD, RECOMPUTE, BACKWARD, SYNC, SYNC_ONCE, GATHER, N_PLACES };
  gint32 n = chunk->end - chunk->first, at = walk->at - AT_BLOCKS, position = chunk->end - 1 - at / N_PLACES;

  if (walk->at < AT_FIRST)
    return pipe_item (walk, chunk, walk->at == AT_RECEIVE ? SP_ITEM_RECEIVE : SP_ITEM_GATHER, TRUE, ret);
  if (walk->at == AT_FIRST) {
    gboolean moves = n > 0 && moves_of (walk->plan, stage, chunk->end - 1)->gather_moves;
    return regather_item (walk, stage, chunk, chunk->end - 1, moves, ret);
  }
  if (at >= N_PLACES * n)
    return at == N_PLACES * n ? pipe_item (walk, chunk, SP_ITEM_SEND, TRUE, ret) : END;
  switch (at % N_PLACES) {
  case GATHER_AHEAD:
    return regather_item (walk, stage, chunk, position - 1, TRUE, ret);
  case RECOMPUTE:
    return list_item (SP_PHASE_RECOMPUTE, position, 0, 0, ret);
  case BACKWARD:
    return list_item (SP_PHASE_BACKWARD, position, 0, with_weights ? 0 : SP_OP_WEIGHT, ret);
  case SYNC:
  case SYNC_ONCE:
    return with_weights ? sync_item (walk, stage, chunk, position, at % N_PLACES == SYNC_ONCE, ret) : NOTHING;
  default:
    return regather_item (walk, stage, chunk, position - 1, FALSE, ret);
  }
}

static Found
weight_item (const SpWalk *walk, const Stage *stage, const Chunk *chunk, SpItem *ret)
{
  gint32 n = chunk->end - chunk->first, position = chunk->end - 1 - walk->at / 3;

  if (walk->at >= 3 * n)
    return END;
  if (walk->at % 3 == 0)
    return list_item (SP_PHASE_BACKWARD, position, SP_OP_WEIGHT, SP_OP_WEIGHT, ret);
  return sync_item (walk, stage, chunk, position, walk->at % 3 == 2, ret);
}

/* The layer's own lists, of one slot. */
static Found
layer_item (const SpWalk *walk, const Chunk *chunk, gboolean forward, SpItem *ret)
{
  static const guint8 phases[2][2] = { { SP_PHASE_RECOMPUTE, SP_PHASE_BACKWARD }, { SP_PHASE_FORWARD } };
  guint flags = sp_program_scope_flags (walk->plan->program);

  if (walk->at >= (forward ? 1 : 2))
    return END;
  return list_item ((SpPhase) phases[forward][walk->at], chunk->first, flags, flags, ret);
}

static Found
slot_item (const SpWalk *walk, const Stage *stage, SpItem *ret)
{
  const SpSlot *slot = &stage->slots[walk->slot];
  const Chunk *chunk = &stage->chunks[slot->chunk];

  ret->chunk = slot->chunk;
  ret->micro_batch = slot->micro_batch;
  if (sp_program_is_one_layer (walk->plan->program))
    return layer_item (walk, chunk, slot->kind == SP_SLOT_FORWARD, ret);
  switch ((SpSlotKind) slot->kind) {
  case SP_SLOT_FORWARD:
    return forward_item (walk, stage, chunk, ret);
  case SP_SLOT_BACKWARD_WEIGHT:
    return weight_item (walk, stage, chunk, ret);
  default:
    return backward_item (walk, stage, chunk, slot->kind == SP_SLOT_BACKWARD, ret);
  }
}

/* What ends the step: SYNC from the model's last layer to its first, so that mirrored stages meet in the same order;
 * then the optimizer. */
static Found
tail_item (const SpWalk *walk, const Stage *stage, SpItem *ret)
{
  gint32 n = (gint32) stage->n_positions, at = walk->at;

  if (at >= 2 * n || walk->plan->program->scope != SP_SCOPE_STEP)
    return END;
  gint32 position = stage->model_order[at < n ? n - 1 - at : at - n];
  ret->chunk = stage->positions[position].chunk;
  ret->micro_batch = -1;
  if (at >= n)
    return list_item (SP_PHASE_OPTIMIZER, position, 0, 0, ret);
  if (moves_of (walk->plan, stage, position)->sync_moves)
    return NOTHING;
  return list_item (SP_PHASE_SYNC, position, 0, SP_OP_PER_MICRO_BATCH, ret);
}

/* Whether any op of the list is selected. Either part of a backward is run where there is one at all: what it gathered
 * and sums begins and ends with it. */
static gboolean
has_ops (const SpWalk *walk, const Stage *stage, const SpItem *item)
{
  const SpProgram *program = walk->plan->program;
  const SpVariant *variant = sp_walk_variant (program, item->micro_batch);
  guint n;
  const SpOp *ops =
      sp_program_segment (program, &variant->blocks[stage->positions[item->position].block], (SpPhase) item->phase, &n);

  for (guint i = 0; i < n; i++)
    if ((ops[i].flags & item->mask) == item->flags || item->phase == SP_PHASE_BACKWARD)
      return TRUE;
  return FALSE;
}

void
sp_walk_init (SpWalk *walk, const SpWalkPlan *plan, gint32 stage)
{
  *walk = (SpWalk){ .plan = plan, .stage = stage };
}

gboolean
sp_walk_next (SpWalk *walk, SpItem *ret)
{
  const Stage *stage = &walk->plan->stages[walk->stage];

  for (;;) {
    SpItem item = { .slot = walk->slot };
    gboolean in_slot = walk->slot < stage->n_slots;
    Found found = in_slot ? slot_item (walk, stage, &item) : tail_item (walk, stage, &item);

    if (found == END) {
      if (!in_slot)
        return FALSE;
      walk->slot++;
      walk->at = 0;
      continue;
    }
    walk->at++;
    if (found == ITEM && (item.kind != SP_ITEM_LIST || has_ops (walk, stage, &item))) {
      *ret = item;
      return TRUE;
    }
  }
}

gboolean
sp_walk_begins_slot (const SpWalkPlan *plan, gint32 stage, const SpItem *item, gint32 *begun)
{
  const Stage *of = &plan->stages[stage];

  if (item->kind != SP_ITEM_LIST || item->slot >= of->n_slots || item->slot < *begun)
    return FALSE;
  *begun = item->slot + 1;
  return of->slots[item->slot].kind != SP_SLOT_BACKWARD_WEIGHT;
}
