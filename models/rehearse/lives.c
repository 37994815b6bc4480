/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/private.h"

/* When storage ends: the rules of rehearse.h. */

/* --- last uses ---------------------------------------------------------------------------------------------------- */

static guint8
root_of (const SpBlock *block, guint8 slot)
{
  while (block->buffers[slot].alias != 0)
    slot = block->buffers[slot].alias;
  return slot;
}

/* Ops of FORWARD are list 0, of RECOMPUTE and BACKWARD list 1; uses count from 1. FALSE: a loop of another list. */
static gboolean
loop_uses (const SpBlock *block, const SpLoop *loop, guint list, guint *ret_first, guint *ret_last)
{
  guint offset = loop->phase == SP_PHASE_BACKWARD ? block->segments[SP_PHASE_RECOMPUTE].n : 0;

  *ret_first = offset + loop->first + 1;
  *ret_last = offset + loop->end;
  return list == 0 ? loop->phase == SP_PHASE_FORWARD
                   : loop->phase == SP_PHASE_RECOMPUTE || loop->phase == SP_PHASE_BACKWARD;
}

/* Of a use in a loop, the loop's last op; but of what lives within a tile the use itself. */
static guint16
end_of_loop (const SpBlock *block, guint list, guint8 slot, guint16 use)
{
  guint first, last;

  for (guint i = 0; i < block->n_loops; i++)
    if (loop_uses (block, &block->loops[i], list, &first, &last) && use >= first && use <= last)
      return sp_block_is_of_tile (block, &block->loops[i], slot) ? use : (guint16) last;
  return use;
}

/* What starts a carry is used by the loop, whose ops call it `current`; its two memories end together. */
static void
plan_loop (const SpBlock *block, const SpLoop *loop, guint list, guint16 last_use[SP_MAX_SLOTS])
{
  guint first, last;

  if (!loop_uses (block, loop, list, &first, &last))
    return;
  for (guint i = 0; i < loop->n_carries; i++) {
    const SpCarry *carry = &loop->carries[i];
    guint8 init = root_of (block, carry->init);
    guint16 end = MAX ((guint16) last, MAX (last_use[carry->current], last_use[carry->next]));

    last_use[carry->current] = last_use[carry->next] = end;
    if (init != 0)
      last_use[init] = MAX (last_use[init], (guint16) last);
  }
}

/* Uses of the two parts of RECOMPUTE and BACKWARD apart. */
static void
plan_parts (const SpProgram *program, const SpBlock *block, SpUses *uses)
{
  guint offset = 0;

  for (SpPhase phase = SP_PHASE_RECOMPUTE; phase <= SP_PHASE_BACKWARD; phase++) {
    guint n;
    const SpOp *ops = sp_program_segment (program, block, phase, &n);

    for (guint i = 0; i < n; i++) {
      guint weight = ops[i].flags & SP_OP_WEIGHT;
      guint beside = sp_block_last_beside (program, block, phase, i, weight, SP_OP_WEIGHT);
      guint16 *last = uses->last[weight ? SP_USES_WEIGHT : SP_USES_INPUT];

      for (guint j = 0; j < SP_MAX_IN + SP_MAX_OUT; j++) {
        guint8 root = root_of (block, j < SP_MAX_IN ? ops[i].in[j] : ops[i].out[j - SP_MAX_IN]);

        last[root] = MAX (last[root], end_of_loop (block, 1, root, (guint16) (offset + beside + 1)));
      }
    }
    offset += n;
  }
  for (guint i = 0; i < block->n_loops; i++)
    plan_loop (block, &block->loops[i], 1, uses->last[SP_USES_INPUT]);
}

static void
plan_block (const SpProgram *program, const SpBlock *block, SpUses *uses)
{
  for (guint list = 0; list < 2; list++) {
    guint16 *last = uses->last[list == 0 ? SP_USES_FORWARD : SP_USES_BACKWARD];

    for (guint slot = 1; slot < block->n_buffers; slot++) {
      guint8 root = root_of (block, slot);
      guint16 use = end_of_loop (block, list, root, block->last_use[list][slot]);

      last[root] = MAX (last[root], use);
    }
    for (guint i = 0; i < block->n_loops; i++)
      plan_loop (block, &block->loops[i], list, last);
  }
  plan_parts (program, block, uses);
}

gboolean
sp_memory_plan (SpInterpreter *in)
{
  in->uses = g_new0 (SpUses, (guint) in->program->n_variants * in->program->n_blocks);
  for (gint32 i = 0; i < in->program->n_variants; i++)
    for (guint j = 0; j < in->program->n_blocks; j++) {
      const SpBlock *block = &in->program->variants[i].blocks[j];

      if (block->buffers[SP_SLOT_Y].alias != 0 || block->buffers[SP_SLOT_DX].alias != 0) {
        g_set_error (&in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_PROGRAM,
                     "block %u: Y or DX is a view, and cannot be handed over", j);
        return FALSE;
      }
      plan_block (in->program, block, &in->uses[(guint) i * in->program->n_blocks + j]);
    }
  return TRUE;
}

static const SpUses *
uses_of (const SpInterpreter *in, const SpRank *rank, const SpItem *item)
{
  guint variant = (guint) sp_program_variant_of (in->program, item->micro_batch);

  return &in->uses[variant * in->program->n_blocks + rank->agenda->positions[item->position].block];
}

/* What the list of an item has of a block's uses: BACKWARD may be run in parts. */
static guint
part_of (const SpItem *item)
{
  if (item->phase == SP_PHASE_FORWARD)
    return SP_USES_FORWARD;
  if (!(item->mask & SP_OP_WEIGHT))
    return SP_USES_BACKWARD;
  return item->flags & SP_OP_WEIGHT ? SP_USES_WEIGHT : SP_USES_INPUT;
}

/* Does a slot end with its last use in this list? */
static gboolean
ends_with_use (const SpBuffer *buffer, guint8 slot, guint list)
{
  switch (buffer->life) {
  case SP_LIFE_SEGMENT:
  case SP_LIFE_REBUILT:
    return TRUE;
  case SP_LIFE_STASH:
    return list == 1;
  case SP_LIFE_HANDOFF:
    return slot != SP_SLOT_DX && (slot != SP_SLOT_Y || list == 1);
  default:
    return FALSE;
  }
}

void
sp_memory_release_used (SpInterpreter *in, SpRank *rank, const SpItem *item, guint op, const SpLoop *tiles)
{
  const SpVariant *variant = sp_item_variant (in, item);
  guint8 index = rank->agenda->positions[item->position].block;
  const SpBlock *block = &variant->blocks[index];
  guint list = item->phase == SP_PHASE_FORWARD ? 0 : 1, part = part_of (item);
  guint use = op + 1 + (item->phase == SP_PHASE_BACKWARD ? block->segments[SP_PHASE_RECOMPUTE].n : 0);
  const SpUses *uses = uses_of (in, rank, item);
  SpFrame *frame;

  if (item->phase != SP_PHASE_FORWARD && item->phase != SP_PHASE_RECOMPUTE && item->phase != SP_PHASE_BACKWARD)
    return;
  frame = sp_rank_frame (rank, item->position, item->micro_batch);
  for (guint slot = 1; slot < block->n_buffers; slot++)
    if (uses->last[part][slot] == use && !(part == SP_USES_INPUT && uses->last[SP_USES_WEIGHT][slot] > 0) &&
        ends_with_use (&block->buffers[slot], slot, list) &&
        (tiles == NULL || sp_block_is_of_tile (block, tiles, slot)))
      sp_storage_release (rank, &frame->slots[slot]);
}

/* Parameters that were gathered, the tied matrix's of another block too, have one more or one less use. */
static void
claim_gathered (SpInterpreter *in, SpRank *rank, const SpVariant *variant, const SpBlock *block, const SpItem *item,
                gint32 claim)
{
  for (guint slot = 1; slot < block->n_buffers; slot++) {
    const SpBuffer *buffer = &block->buffers[slot];
    gboolean is_other = buffer->tied && sp_rank_has_both_ends (in, rank);
    guint8 root = is_other ? buffer->tied_slot : slot;
    gboolean is_view = (is_other ? variant->blocks : block)->buffers[root].alias != 0;
    SpStorage **at = &sp_rank_frame (rank, is_other ? 0 : item->position, -1)->slots[root];

    if (buffer->life != SP_LIFE_GATHERED || is_view || *at == NULL)
      continue;
    (*at)->claims += claim;
    if ((*at)->claims <= 0)
      sp_storage_release (rank, at);
  }
}

/* What a list leaves behind although it ends with it. */
static void
release_rest (SpInterpreter *in, SpRank *rank, const SpBlock *block, const SpItem *item)
{
  SpFrame *frame = sp_rank_frame (rank, item->position, item->micro_batch);
  const SpPosition *at = &rank->agenda->positions[item->position];
  const SpUses *uses = uses_of (in, rank, item);
  gboolean is_first = item->position == 0 || at[-1].chunk != at->chunk;
  gboolean is_last = item->position + 1 == (gint32) rank->agenda->n_positions || at[1].chunk != at->chunk;

  for (guint slot = 1; slot < block->n_buffers; slot++) {
    guint8 life = block->buffers[slot].life;
    gboolean is_sent = (slot == SP_SLOT_Y && is_last && at->layer != SP_LAYER_HEAD) ||
                       (slot == SP_SLOT_DX && is_first && at->layer != SP_LAYER_EMBEDDING);
    gboolean ends = life == SP_LIFE_SEGMENT;

    if (item->phase == SP_PHASE_FORWARD)
      ends = life == SP_LIFE_SEGMENT || life == SP_LIFE_REBUILT || (life == SP_LIFE_HANDOFF && !is_sent);
    else if (item->phase == SP_PHASE_RECOMPUTE)
      ends = FALSE; /* goes on in BACKWARD */
    else if (item->phase == SP_PHASE_BACKWARD)
      ends = sp_life_is_of_micro_batch (life) && !is_sent &&
             !(part_of (item) == SP_USES_INPUT && uses->last[SP_USES_WEIGHT][slot] > 0);
    if (ends)
      sp_storage_release (rank, &frame->slots[slot]);
  }
}

/* Gradients that are summed in this backward are there from its start, the tied matrix's of another block too. */
void
sp_memory_backward_begin (SpInterpreter *in, SpRank *rank, const SpItem *item)
{
  guint8 index = rank->agenda->positions[item->position].block;
  const SpVariant *variant = sp_item_variant (in, item);
  const SpBlock *block = &variant->blocks[index];

  for (guint slot = 1; slot < block->n_buffers; slot++) {
    const SpBuffer *buffer = &block->buffers[slot];
    gboolean is_other = buffer->tied && sp_rank_has_both_ends (in, rank);
    guint8 root = is_other ? buffer->tied_slot : slot;
    SpStorage **at = &sp_rank_frame (rank, is_other ? 0 : item->position, -1)->slots[root];

    if (buffer->life == SP_LIFE_SUMMED && buffer->alias == 0 && *at == NULL)
      *at = sp_storage_new (rank, &(is_other ? variant->blocks : block)->buffers[root]);
  }
}

/* --- gradients that are held over --------------------------------------------------------------------------------- */

static void
release_held (SpInterpreter *in, SpRank *rank)
{
  const SpBlock *block;

  if (rank->held < 0)
    return;
  block = sp_agenda_block (in->program, rank->agenda, rank->held);
  for (guint slot = 1; slot < block->n_buffers; slot++)
    if (sp_block_holds_over (in->program, block, slot))
      sp_storage_release (rank, &sp_rank_frame (rank, rank->held, -1)->slots[slot]);
  rank->held = -1;
}

/* SYNC is over, or as an async one still reads what it holds over. Beside what ends the step no BACKWARD runs. */
static void
release_summed (SpInterpreter *in, SpRank *rank, const SpBlock *block, const SpItem *item)
{
  SpFrame *frame = sp_rank_frame (rank, item->position, -1);
  guint n_slots;

  sp_walk_slots (in->walks, rank->stage, &n_slots);
  gboolean holds = sp_walk_order (in->walks) == SP_ORDER_EAGER && item->slot < (gint32) n_slots, is_held = FALSE;
  for (guint slot = 1; slot < block->n_buffers; slot++) {
    if (block->buffers[slot].life != SP_LIFE_SUMMED || frame->slots[slot] == NULL)
      continue;
    if (holds && sp_block_holds_over (in->program, block, slot))
      is_held = TRUE;
    else
      sp_storage_release (rank, &frame->slots[slot]);
  }
  if (!is_held)
    return;
  if (rank->held != item->position)
    release_held (in, rank);
  rank->held = item->position;
}

/* What slices add up, when the sequence's first has been back. */
static void
release_accumulated (SpRank *rank, const SpBlock *block, const SpItem *item)
{
  SpFrame *frame = sp_rank_frame (rank, item->position, -1);

  for (guint slot = 1; slot < block->n_buffers; slot++)
    if (block->buffers[slot].life == SP_LIFE_ACCUMULATED)
      sp_storage_release (rank, &frame->slots[slot]);
}

static gboolean
is_last_of_slot (const SpRank *rank, const SpItem *item)
{
  const GArray *items = rank->agenda->items;

  return rank->item + 1 == items->len || g_array_index (items, SpItem, rank->item + 1).slot != item->slot;
}

static void
end_list (SpInterpreter *in, SpRank *rank, const SpBlock *block, const SpVariant *variant, const SpItem *item)
{
  release_rest (in, rank, block, item);
  if (item->phase == SP_PHASE_GATHER)
    claim_gathered (in, rank, variant, block, item, 1);
  if ((item->phase == SP_PHASE_BACKWARD && part_of (item) != SP_USES_WEIGHT && sp_block_gathers (block, variant)) ||
      (item->phase == SP_PHASE_FORWARD && block->regather))
    claim_gathered (in, rank, variant, block, item, -1);
  if (item->phase == SP_PHASE_BACKWARD && variant->first == 0)
    release_accumulated (rank, block, item);
  if (item->phase == SP_PHASE_BACKWARD && sp_block_sums (block))
    release_held (in, rank);
  if (item->phase == SP_PHASE_SYNC)
    release_summed (in, rank, block, item);
}

void
sp_memory_item_end (SpInterpreter *in, SpRank *rank, const SpItem *item)
{
  guint8 index = rank->agenda->positions[item->position].block;
  const SpVariant *variant = sp_item_variant (in, item);
  const SpBlock *block = &variant->blocks[index];
  SpFrame *frame = sp_rank_frame (rank, item->position, item->micro_batch);

  if (item->kind == SP_ITEM_LIST)
    end_list (in, rank, block, variant, item);
  else if (item->kind == SP_ITEM_SEND) {
    guint8 slot = item->backward ? SP_SLOT_DX : SP_SLOT_Y;

    if (item->backward || block->buffers[slot].life != SP_LIFE_STASH)
      sp_storage_release (rank, &frame->slots[slot]);
  }
  if (is_last_of_slot (rank, item))
    release_held (in, rank);
}
