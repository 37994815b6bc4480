/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/memory-private.h"

/* When a block's buffers end: last uses, counted over views, loops and carries. */

guint8
sp_memory_root (const SpBlock *block, guint8 slot)
{
  while (block->buffers[slot].alias != 0)
    slot = block->buffers[slot].alias;
  return slot;
}

gboolean
sp_memory_is_of_step (guint8 life)
{
  return life == SP_LIFE_GATHERED || life == SP_LIFE_SUMMED || life == SP_LIFE_STEP_END || life == SP_LIFE_ACCUMULATED;
}

void
sp_memory_list_filter (SpListKind list, SpPhase *ret_phase, guint *ret_wanted, guint *ret_mask)
{
  static const struct {
    SpPhase phase;
    guint wanted, mask;
  } filters[SP_N_LISTS] = {
    [SP_LIST_FORWARD] = { SP_PHASE_FORWARD, 0, 0 },
    [SP_LIST_RECOMPUTE] = { SP_PHASE_RECOMPUTE, 0, 0 },
    [SP_LIST_BACKWARD] = { SP_PHASE_BACKWARD, 0, 0 },
    [SP_LIST_BACKWARD_INPUT] = { SP_PHASE_BACKWARD, 0, SP_OP_WEIGHT },
    [SP_LIST_BACKWARD_WEIGHT] = { SP_PHASE_BACKWARD, SP_OP_WEIGHT, SP_OP_WEIGHT },
    [SP_LIST_GATHER] = { SP_PHASE_GATHER, 0, 0 },
    [SP_LIST_SYNC_EACH] = { SP_PHASE_SYNC, SP_OP_PER_MICRO_BATCH, SP_OP_PER_MICRO_BATCH },
    [SP_LIST_SYNC_ONCE] = { SP_PHASE_SYNC, 0, SP_OP_PER_MICRO_BATCH },
    [SP_LIST_OPTIMIZER] = { SP_PHASE_OPTIMIZER, 0, 0 },
  };

  *ret_phase = filters[list].phase;
  *ret_wanted = filters[list].wanted;
  *ret_mask = filters[list].mask;
}

/* --- uses --------------------------------------------------------------------------------------------------------- */

/* One list's uses; `offset`: ops before it in the same row. */
typedef struct {
  const SpBlock *block;
  SpPhase phase;
  guint offset;
  guint16 *last_use;
} Uses;

static void
use (const Uses *u, guint8 slot, guint at)
{
  guint8 root = sp_memory_root (u->block, slot);

  if (slot != 0)
    u->last_use[root] = MAX (u->last_use[root], (guint16) at);
}

/* A use in a loop is one by its last op, but of what lives within a tile. */
static void
use_in (const Uses *u, guint8 slot, const SpOp *op, guint index)
{
  const SpLoop *loop = op->loop != 0 ? &u->block->loops[op->loop - 1] : NULL;
  gboolean is_whole = loop != NULL && !sp_block_is_of_tile (u->block, loop, sp_memory_root (u->block, slot));

  use (u, slot, u->offset + MAX (is_whole ? loop->end : 0, index + 1));
}

/* What starts a carry is used by the loop, whose ops call it `current`; its two memories end together. */
static void
use_carries (const Uses *u, const SpLoop *loop)
{
  for (guint i = 0; i < loop->n_carries; i++) {
    const SpCarry *carry = &loop->carries[i];
    guint16 end = (guint16) (u->offset + loop->end);

    use (u, carry->init, end);
    end = MAX (end, MAX (u->last_use[carry->current], u->last_use[carry->next]));
    u->last_use[carry->current] = u->last_use[carry->next] = end;
  }
}

static void
use_list (const SpProgram *program, const Uses *u, guint wanted, guint mask)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, u->block, u->phase, &n);

  for (guint i = 0; i < n; i++) {
    if ((ops[i].flags & mask) != wanted)
      continue;
    guint last = sp_block_last_beside (program, u->block, u->phase, i, wanted, mask);
    for (guint j = 0; j < SP_MAX_IN; j++)
      use_in (u, ops[i].in[j], &ops[i], last);
    for (guint j = 0; j < SP_MAX_OUT; j++)
      use_in (u, ops[i].out[j], &ops[i], last);
  }
}

static void
use_loops (const SpProgram *program, const Uses *u, guint wanted, guint mask)
{
  for (guint i = 0; i < u->block->n_loops; i++) {
    const SpLoop *loop = &u->block->loops[i];
    const SpOp *first = program->ops + u->block->segments[u->phase].first + loop->first;

    if (loop->phase == u->phase && (first->flags & mask) == wanted)
      use_carries (u, loop);
  }
}

/* RECOMPUTE is counted into each way to run the backward. */
static void
plan_uses (const SpProgram *program, const SpBlock *block, SpListKind list, guint16 *last_use)
{
  guint wanted, mask;
  Uses u = { .block = block, .last_use = last_use };
  Uses before = { .block = block, .phase = SP_PHASE_RECOMPUTE, .last_use = last_use };
  gboolean counts_recompute = list == SP_LIST_BACKWARD || list == SP_LIST_BACKWARD_INPUT;

  sp_memory_list_filter (list, &u.phase, &wanted, &mask);
  u.offset = u.phase == SP_PHASE_BACKWARD ? block->segments[SP_PHASE_RECOMPUTE].n : 0;
  if (counts_recompute)
    use_list (program, &before, 0, 0);
  use_list (program, &u, wanted, mask);
  if (counts_recompute)
    use_loops (program, &before, 0, 0);
  use_loops (program, &u, wanted, mask);
}

/* --- of the step -------------------------------------------------------------------------------------------------- */

static gboolean
number_of_step (const SpProgram *program, SpWalkOrder order, const SpBlock *block, guint index, SpBlockLives *lives,
                GError **error)
{
  for (guint slot = 1; slot < block->n_buffers; slot++) {
    const SpBuffer *buffer = &block->buffers[slot];

    lives->is_tied |= buffer->tied;
    if (buffer->alias != 0 || !sp_memory_is_of_step (buffer->life))
      continue;
    if (lives->n_of_step == SP_MAX_OF_STEP) {
      g_set_error (error, SP_MEMORY_ERROR, SP_MEMORY_ERROR_PROGRAM,
                   "block %u: more than %d buffers that live for a part of the step", index, SP_MAX_OF_STEP);
      return FALSE;
    }
    lives->of_step[lives->n_of_step++] = (guint8) slot;
    if (buffer->life == SP_LIFE_GATHERED)
      lives->gathered[lives->n_gathered++] = (guint8) slot;
    lives->bit[slot] = (guint8) lives->n_of_step;
    if (order == SP_ORDER_EAGER && sp_block_holds_over (program, block, slot))
      lives->held |= 1u << (lives->n_of_step - 1);
    lives->weight_reads |= buffer->life == SP_LIFE_GATHERED && lives->last_use[SP_LIST_BACKWARD_WEIGHT][slot] != 0;
  }
  return TRUE;
}

/* What is handed from block to block: so that its end is always in the list of the one that takes it. */
static gboolean
check_handoffs (const SpBlock *block, guint index, const SpBlockLives *lives, GError **error)
{
  static const struct {
    guint8 slot;
    const char *name;
  } slots[] = { { SP_SLOT_Y, "Y" }, { SP_SLOT_DX, "DX" }, { SP_SLOT_DY, "DY" } };

  for (guint i = 0; i < G_N_ELEMENTS (slots); i++) {
    const SpBuffer *buffer = &block->buffers[slots[i].slot];
    gboolean is_used =
        lives->last_use[SP_LIST_FORWARD][slots[i].slot] != 0 || lives->last_use[SP_LIST_BACKWARD][slots[i].slot] != 0;

    if (buffer->alias == 0 && (!is_used || buffer->life == SP_LIFE_HANDOFF))
      continue;
    g_set_error (error, SP_MEMORY_ERROR, SP_MEMORY_ERROR_PROGRAM, "block %u: %s is %s, expected memory of life %s",
                 index, slots[i].name, buffer->alias != 0 ? "a view" : sp_life_name ((SpLife) buffer->life),
                 sp_life_name (SP_LIFE_HANDOFF));
    return FALSE;
  }
  return TRUE;
}

gboolean
sp_memory_lives_init (const SpProgram *program, SpWalkOrder order, guint variant, guint block, SpBlockLives *ret,
                      GError **error)
{
  const SpBlock *of = &program->variants[variant].blocks[block];
  guint n;

  *ret = (SpBlockLives){ 0 };
  plan_uses (program, of, SP_LIST_FORWARD, ret->last_use[SP_LIST_FORWARD]);
  plan_uses (program, of, SP_LIST_BACKWARD, ret->last_use[SP_LIST_BACKWARD]);
  plan_uses (program, of, SP_LIST_BACKWARD, ret->last_use[SP_LIST_RECOMPUTE]);
  plan_uses (program, of, SP_LIST_BACKWARD_INPUT, ret->last_use[SP_LIST_BACKWARD_INPUT]);
  plan_uses (program, of, SP_LIST_BACKWARD_WEIGHT, ret->last_use[SP_LIST_BACKWARD_WEIGHT]);
  sp_program_segment (program, of, SP_PHASE_GATHER, &n);
  ret->gathers = n > 0;
  ret->sums = sp_block_sums (of);
  return number_of_step (program, order, of, block, ret, error) && check_handoffs (of, block, ret, error);
}
