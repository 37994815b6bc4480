/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/memory-private.h"

#include <string.h>

/* One list, op by op: what begins and what ends. The lists of a micro-batch follow each other from its FORWARD on, so
 * that what one leaves is what the next one finds. */

/* --- storage ------------------------------------------------------------------------------------------------------ */

static void
add_bytes (SpListWalk *walk, guint8 class, gint64 bytes)
{
  walk->profile.net_bytes += bytes;
  walk->profile.net_by_class[class] += bytes;
}

static void
note_peak (SpListWalk *walk)
{
  SpListProfile *p = &walk->profile;

  if (p->net_bytes <= p->excess_bytes)
    return;
  p->excess_bytes = p->net_bytes;
  memcpy (p->excess_by_class, p->net_by_class, sizeof p->net_by_class);
  p->op = walk->op;
  p->step = walk->step;
}

/* Gives a slot storage of its own. */
static guint16
make_storage (SpListWalk *walk, const SpBuffer *buffer)
{
  guint16 storage = walk->freed; /* of an earlier tile, more often than not */

  if (storage != 0)
    walk->freed = walk->storages[storage].next_freed;
  else
    storage = (guint16) ++walk->n_storages;
  g_assert (storage < G_N_ELEMENTS (walk->storages));
  walk->storages[storage] = (SpListStorage){ .bytes = buffer->bytes, .class = buffer->class, .refs = 1 };
  return storage;
}

static void
begin_storage (SpListWalk *walk, guint8 slot)
{
  const SpBuffer *buffer = &walk->block->buffers[slot];

  walk->at[slot] = make_storage (walk, buffer);
  add_bytes (walk, buffer->class, buffer->bytes);
  note_peak (walk);
}

static void
let_go (SpListWalk *walk, guint8 slot)
{
  SpListStorage *storage = &walk->storages[walk->at[slot]];

  if (walk->at[slot] == 0)
    return;
  walk->at[slot] = 0;
  if (--storage->refs > 0)
    return;
  add_bytes (walk, storage->class, -storage->bytes);
  storage->next_freed = walk->freed;
  walk->freed = (guint16) (storage - walk->storages);
}

/* --- buffers of the step ------------------------------------------------------------------------------------------ */

/* The buffer that stands in for a tied one, or itself; its bit in the words, 0 if it has none. */
static const SpBuffer *
stand_in (const SpListWalk *walk, guint8 slot, guint32 *ret_bit)
{
  const SpBuffer *buffer = &walk->block->buffers[slot];
  gboolean is_other = buffer->tied && walk->context->both_ends;
  const SpBlock *block = is_other ? &walk->variant->blocks[0] : walk->block;
  guint8 root = is_other ? sp_memory_root (block, buffer->tied_slot) : slot;
  guint variant = (guint) (walk->variant - walk->plan->program->variants);
  guint8 number = sp_memory_lives_of (walk->plan, variant, (guint) (block - walk->variant->blocks))->bit[root];

  *ret_bit = number == 0 ? 0 : 1u << (number - 1 + (is_other ? SP_OTHER_SHIFT : 0));
  return &block->buffers[root];
}

static void
begin_of_step (SpListWalk *walk, guint8 slot)
{
  guint32 bit;
  const SpBuffer *buffer = stand_in (walk, slot, &bit);

  if (bit == 0 || walk->live & bit)
    return;
  walk->live |= bit;
  add_bytes (walk, buffer->class, buffer->bytes);
  note_peak (walk);
}

/* Gradients that are summed in this backward are there from its start. */
static void
begin_summed (SpListWalk *walk)
{
  for (guint slot = 1; slot < walk->block->n_buffers; slot++)
    if (walk->block->buffers[slot].life == SP_LIFE_SUMMED && walk->block->buffers[slot].alias == 0)
      begin_of_step (walk, (guint8) slot);
}

/* --- ops ---------------------------------------------------------------------------------------------------------- */

static gboolean
is_of_micro_batch (guint8 life)
{
  return life == SP_LIFE_SEGMENT || life == SP_LIFE_STASH || life == SP_LIFE_REBUILT || life == SP_LIFE_HANDOFF;
}

/* What a ring's `current` is at the first step. */
static guint8
carried (const SpListWalk *walk, const SpLoop *loop, guint8 slot)
{
  if (loop != NULL && walk->step == 0)
    for (guint i = 0; i < loop->n_carries; i++)
      if (loop->carries[i].current == slot && loop->carries[i].init != 0)
        return loop->carries[i].init;
  return slot;
}

/* The slot whose storage an operand's is. */
static guint8
locate (const SpListWalk *walk, const SpLoop *loop, guint8 slot)
{
  for (;;) {
    slot = carried (walk, loop, slot);
    if (walk->block->buffers[slot].alias == 0)
      return slot;
    slot = walk->block->buffers[slot].alias;
  }
}

/* Y is X of the block after, DX is DY of the block before: they hold it too. */
static gboolean
is_handed_over (const SpListWalk *walk, guint8 slot)
{
  return (slot == SP_SLOT_Y && walk->list == SP_LIST_FORWARD && walk->context->after >= 0) ||
         (slot == SP_SLOT_DX && walk->context->before >= 0 &&
          sp_block_has_backward (&walk->variant->blocks[walk->context->before]));
}

static void
write_slot (SpListWalk *walk, const SpLoop *loop, guint8 slot)
{
  guint8 root = locate (walk, loop, slot);

  for (guint i = 0; loop != NULL && i < loop->n_carries; i++)
    walk->arrived[i] |= loop->carries[i].next == root;
  if (!is_of_micro_batch (walk->block->buffers[root].life))
    begin_of_step (walk, root);
  else if (walk->at[root] == 0) {
    begin_storage (walk, root);
    walk->storages[walk->at[root]].refs += is_handed_over (walk, root);
  }
}

/* Guards at the place: 0 if first, the last if last, else as the second. */
static gboolean
holds (const SpListWalk *walk, const SpOp *op, const SpLoop *loop)
{
  gint32 size = walk->plan->program->groups[op->group].size, steps = loop != NULL ? loop->steps : 1;
  gboolean is_first = walk->place >> (2 * op->group) & 1, is_last = walk->place >> (2 * op->group + 1) & 1;
  gint32 place = is_first ? 0 : is_last ? size - 1 : 1;
  guint guard = op->guard;

  return sp_op_in_reach (op, walk->step, steps) &&
         !((guard & SP_GUARD_NOT_FIRST && is_first) || (guard & SP_GUARD_NOT_LAST && is_last) ||
           (guard & SP_GUARD_FIRST_STEP && walk->step != 0) || (guard & SP_GUARD_NOT_FIRST_STEP && walk->step == 0) ||
           (guard & SP_GUARD_NOT_LAST_STEP && walk->step == steps - 1) ||
           (guard & SP_GUARD_VISIBLE && walk->step > place));
}

static void
begin_loop_step (SpListWalk *walk, const SpLoop *loop)
{
  for (guint i = 0; i < loop->n_carries; i++) {
    const guint8 slots[] = { loop->carries[i].current, loop->carries[i].next };

    walk->arrived[i] = FALSE;
    for (guint j = 0; j < 2; j++)
      if (walk->at[slots[j]] == 0)
        begin_storage (walk, slots[j]);
  }
}

/* `current` and `next` change places; of a loop whose only step brought nothing, `current` is what it started from. */
static void
end_loop_step (SpListWalk *walk, const SpLoop *loop)
{
  for (guint i = 0; i < loop->n_carries; i++) {
    const SpCarry *carry = &loop->carries[i];
    guint16 current = walk->at[carry->current];
    guint8 init = locate (walk, NULL, carry->init);

    if (walk->step < loop->steps - 1 || walk->arrived[i]) {
      walk->at[carry->current] = walk->at[carry->next];
      walk->at[carry->next] = current;
    } else if (walk->step == 0 && carry->init != 0 && walk->at[init] != 0 &&
               walk->block->buffers[init].elements == walk->block->buffers[carry->current].elements) {
      let_go (walk, carry->current);
      walk->at[carry->current] = walk->at[init];
      walk->storages[walk->at[init]].refs++;
    }
  }
}

/* --- ends --------------------------------------------------------------------------------------------------------- */

static gboolean
ends_with_use (guint8 life, guint8 slot, gboolean is_forward)
{
  switch ((SpLife) life) {
  case SP_LIFE_SEGMENT:
  case SP_LIFE_REBUILT:
    return TRUE;
  case SP_LIFE_STASH:
    return !is_forward;
  case SP_LIFE_HANDOFF:
    return slot != SP_SLOT_DX && (slot != SP_SLOT_Y || !is_forward);
  default:
    return FALSE;
  }
}

/* The second part of the backward still uses it. */
static gboolean
is_used_later (const SpListWalk *walk, guint slot)
{
  return walk->list == SP_LIST_BACKWARD_INPUT && walk->lives->last_use[SP_LIST_BACKWARD_WEIGHT][slot] != 0;
}

/* Slots whose last use was op `op`, or the loop that it ends. In a loop over tiles that goes on: those of a tile. */
static void
end_used (SpListWalk *walk, guint op, const SpLoop *tiles)
{
  gboolean is_backward = walk->list >= SP_LIST_BACKWARD;
  guint use = op + 1 + (is_backward ? walk->block->segments[SP_PHASE_RECOMPUTE].n : 0);

  if (walk->list >= SP_N_WORK_LISTS)
    return;
  const guint16 *last_use = walk->lives->last_use[walk->list];
  for (guint slot = 1; slot < walk->block->n_buffers; slot++)
    if (last_use[slot] == use && !is_used_later (walk, slot) &&
        ends_with_use (walk->block->buffers[slot].life, (guint8) slot, walk->list == SP_LIST_FORWARD) &&
        (tiles == NULL || sp_block_is_of_tile (walk->block, tiles, slot)))
      let_go (walk, (guint8) slot);
}

/* What a list leaves behind although it ends with it. What the pipeline sends ends when it is sent. */
static void
end_list (SpListWalk *walk)
{
  if (walk->list == SP_LIST_RECOMPUTE)
    return; /* goes on in BACKWARD */
  for (guint slot = 1; slot < walk->block->n_buffers; slot++) {
    guint8 life = walk->block->buffers[slot].life;
    gboolean is_sent =
        (slot == SP_SLOT_Y && walk->context->after < 0) || (slot == SP_SLOT_DX && walk->context->before < 0);
    gboolean ends = life == SP_LIFE_SEGMENT;

    if (walk->list == SP_LIST_FORWARD)
      ends = life == SP_LIFE_SEGMENT || life == SP_LIFE_REBUILT || (life == SP_LIFE_HANDOFF && !is_sent);
    else if (walk->list < SP_N_WORK_LISTS)
      ends = is_of_micro_batch (life) && !is_sent && !is_used_later (walk, slot);
    if (ends)
      let_go (walk, (guint8) slot);
  }
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

/* FALSE: it stopped in the list. */
static gboolean
run_ops (SpListWalk *walk, const SpOp *ops, guint n, guint wanted, guint mask)
{
  while (walk->op < n) {
    const SpOp *op = &ops[walk->op];
    const SpLoop *loop = op->loop != 0 ? &walk->block->loops[op->loop - 1] : NULL;
    gboolean runs = (op->flags & mask) == wanted;

    if (loop != NULL && walk->op == loop->first && runs)
      begin_loop_step (walk, loop);
    for (guint i = 0; i < SP_MAX_OUT && runs && holds (walk, op, loop); i++)
      if (op->out[i] != 0)
        write_slot (walk, loop, op->out[i]);
    if (walk->op == walk->stop_op && walk->step == walk->stop_step)
      return FALSE;
    gboolean at_end = loop != NULL && walk->op + 1 == loop->end;
    gboolean goes_on = loop != NULL && !(at_end && walk->step + 1 == loop->steps);
    if (at_end && runs)
      end_loop_step (walk, loop);
    if (!goes_on || loop->group == SP_GROUP_NONE)
      end_used (walk, walk->op, goes_on ? loop : NULL);
    if (at_end && goes_on) {
      walk->step++;
      walk->op = loop->first;
      continue;
    }
    if (at_end)
      walk->step = 0;
    walk->op++;
  }
  return TRUE;
}

/* What has come to the block before this list: not its own to count, but to end. */
static void
receive (SpListWalk *walk, guint8 slot, gint16 from, guint8 there)
{
  const SpBlock *block = from >= 0 ? &walk->variant->blocks[from] : walk->block;

  walk->at[slot] = make_storage (walk, &block->buffers[from >= 0 ? there : slot]);
}

static void
run_list (SpListWalk *walk, SpListKind list)
{
  SpPhase phase;
  guint wanted, mask, n;

  sp_memory_list_filter (list, &phase, &wanted, &mask);
  const SpOp *ops = sp_program_segment (walk->plan->program, walk->block, phase, &n);
  walk->list = list;
  walk->op = 0;
  walk->step = 0;
  walk->profile = (SpListProfile){ .live = walk->live };
  if (phase == SP_PHASE_BACKWARD)
    begin_summed (walk);
  if (run_ops (walk, ops, n, wanted, mask))
    end_list (walk);
  walk->profile.leaves = walk->live;
}

/* The lists of a micro-batch that come before this one, in their order. */
static void
run_before (SpListWalk *walk, SpListKind list)
{
  if (walk->block->kind != SP_BLOCK_EMBEDDING)
    receive (walk, SP_SLOT_X, walk->context->before, SP_SLOT_Y);
  if (list == SP_LIST_FORWARD)
    return;
  run_list (walk, SP_LIST_FORWARD);
  walk->at[SP_SLOT_Y] = 0; /* sent */
  if (walk->block->kind != SP_BLOCK_HEAD)
    receive (walk, SP_SLOT_DY, walk->context->after, SP_SLOT_DX);
  if (list == SP_LIST_RECOMPUTE)
    return;
  run_list (walk, SP_LIST_RECOMPUTE);
  if (list != SP_LIST_BACKWARD_WEIGHT)
    return;
  run_list (walk, SP_LIST_BACKWARD_INPUT);
  walk->at[SP_SLOT_DX] = 0;
}

void
sp_memory_walk_list (const SpMemoryPlan *plan, guint64 place, const SpMemoryContext *context, guint variant,
                     SpListKind list, guint32 live, guint stop_op, gint32 stop_step, SpListWalk *ret)
{
  const SpVariant *of = &plan->program->variants[variant];

  *ret = (SpListWalk){ .plan = plan,
                       .context = context,
                       .variant = of,
                       .block = &of->blocks[context->block],
                       .lives = sp_memory_lives_of (plan, variant, (guint) context->block),
                       .place = place,
                       .stop_op = G_MAXUINT };
  if (list < SP_N_WORK_LISTS)
    run_before (ret, list);
  ret->live = live;
  ret->stop_op = stop_op;
  ret->stop_step = stop_step;
  run_list (ret, list);
}
