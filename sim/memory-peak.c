/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/memory-private.h"

#include <string.h>

/* What lives at an item's fullest moment, the peak's above all: the rank walks its step up to the item; then every
 * layer and micro-batch says what its last list left. */

/* What a layer's micro-batch has been through. */
enum {
  RECEIVED = 1 << 0,
  FORWARD = 1 << 1,
  SENT = 1 << 2,
  RECEIVED_BACK = 1 << 3,
  RECOMPUTE = 1 << 4,
  INPUT = 1 << 5, /* the backward's first part */
  DONE = 1 << 6,
  SENT_BACK = 1 << 7,
};

typedef struct {
  SpMemoryPlan *plan;
  const SpMemoryStage *stage;
  SpMemoryState *state;
  guint8 *been;        /* [position][micro-batch] of the above */
  SpLiveBuffer *rows;  /* [position][slot] */
  GPtrArray *leavings; /* [context][variant][list] GArray of Left */
  SpItem item;         /* under way at the peak */
  gboolean is_under_way;
  gint32 backward; /* number of the micro-batch or slice whose backward was last */
  guint8 mark;     /* of it, if it has begun a micro-batch's list, which says itself what lives there */
} Peak;

/* What a list leaves in a slot. */
typedef struct {
  gint64 bytes;
  guint8 slot, class;
} Left;

static guint8 *
been_at (const Peak *peak, gint32 position, gint32 micro_batch)
{
  return &peak->been[position * sp_program_runs (peak->plan->program) + micro_batch];
}

static guint8
mark_of (const SpItem *item)
{
  static const guint8 marks[SP_N_WORK_LISTS] = { FORWARD, RECOMPUTE, DONE, INPUT, DONE };

  if (item->kind == SP_ITEM_SEND)
    return item->backward ? SENT_BACK : SENT;
  if (item->kind != SP_ITEM_LIST)
    return item->backward ? RECEIVED_BACK : RECEIVED; /* gathered where it was received */
  SpListKind list = sp_memory_list_of (item);
  return list < SP_N_WORK_LISTS ? marks[list] : 0;
}

/* Goes up to item `index` of the walk (or its end), which comes into peak->item. */
static void
walk_to (Peak *peak, gint32 rank, guint32 index)
{
  SpWalk walk;
  guint op;

  sp_memory_start_rank (peak->plan, rank, peak->state);
  sp_walk_init (&walk, peak->plan->walk, peak->state->stage);
  while ((peak->is_under_way = sp_walk_next (&walk, &peak->item)) && peak->state->n_items < index) {
    guint8 mark = mark_of (&peak->item);

    sp_memory_item (peak->plan, peak->state, &peak->item, &op);
    if (peak->item.kind == SP_ITEM_LIST && peak->item.phase == SP_PHASE_BACKWARD)
      peak->backward = peak->item.micro_batch;
    if (peak->been != NULL && mark != 0)
      *been_at (peak, peak->item.position, peak->item.micro_batch) |= mark;
  }
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static void
add_row (Peak *peak, gint32 position, const SpBlock *block, guint8 slot, guint8 class, gint64 bytes)
{
  SpLiveBuffer *row = &peak->rows[position * SP_MAX_SLOTS + slot];

  row->layer = peak->stage->positions[position].layer;
  row->block = peak->stage->positions[position].block;
  row->slot = slot;
  row->class = class;
  row->life = block->buffers[slot].life;
  row->bytes += bytes;
  row->count++;
}

static void
add_buffer (Peak *peak, gint32 position, const SpBlock *block, guint8 slot)
{
  add_row (peak, position, block, slot, block->buffers[slot].class, block->buffers[slot].bytes);
}

static GArray *
left_by (const SpListWalk *walk)
{
  GArray *left = g_array_new (FALSE, FALSE, sizeof (Left));
  g_autofree gboolean *seen = g_new0 (gboolean, walk->n_storages + 1);

  for (guint slot = 1; slot < walk->block->n_buffers; slot++) {
    guint16 storage = walk->at[slot];
    Left row = { walk->storages[storage].bytes, (guint8) slot, walk->storages[storage].class };

    if (storage != 0 && !seen[storage])
      g_array_append_val (left, row);
    seen[storage] = TRUE;
  }
  return left;
}

/* What the last list that is over has left of a micro-batch. */
static const GArray *
leavings_of (Peak *peak, guint16 context, guint variant, SpListKind list)
{
  guint index = (context * (guint) peak->plan->program->n_variants + variant) * SP_N_WORK_LISTS + list;
  SpListWalk walk;

  if (peak->leavings->pdata[index] == NULL) {
    sp_memory_walk_list (peak->plan, g_array_index (peak->plan->places, guint64, peak->state->place_class),
                         &g_array_index (peak->plan->contexts, SpMemoryContext, context), variant, list, 0, G_MAXUINT,
                         0, &walk);
    peak->leavings->pdata[index] = left_by (&walk);
  }
  return peak->leavings->pdata[index];
}

/* Y and DX until the block beside has begun with them, or the pipeline has sent them. A head may have nothing to do in
 * FORWARD, and begin with BACKWARD. */
static void
add_handoffs (Peak *peak, gint32 position, gint32 micro_batch, guint8 been, const SpBlock *block)
{
  const SpMemoryContext *context =
      &g_array_index (peak->plan->contexts, SpMemoryContext, peak->stage->context[position]);

  if (been & FORWARD && block->kind != SP_BLOCK_HEAD &&
      !(context->after >= 0 ? *been_at (peak, position + 1, micro_batch) & (FORWARD | INPUT | DONE) : been & SENT))
    add_buffer (peak, position, block, SP_SLOT_Y);
  gboolean is_taken =
      context->before < 0 || sp_block_has_backward (&peak->plan->program->variants[0].blocks[context->before]);
  if (been & (INPUT | DONE) && block->kind != SP_BLOCK_EMBEDDING && is_taken &&
      !(context->before >= 0 ? *been_at (peak, position - 1, micro_batch) & (RECOMPUTE | INPUT | DONE)
                             : been & SENT_BACK))
    add_buffer (peak, position, block, SP_SLOT_DX);
}

static void
add_micro_batch (Peak *peak, gint32 position, gint32 micro_batch)
{
  const SpVariant *variant = sp_walk_variant (peak->plan->program, micro_batch);
  const SpBlock *block = &variant->blocks[peak->stage->positions[position].block];
  guint8 been = *been_at (peak, position, micro_batch);
  SpListKind last = been & INPUT ? SP_LIST_BACKWARD_INPUT : been & RECOMPUTE ? SP_LIST_RECOMPUTE : SP_LIST_FORWARD;

  add_handoffs (peak, position, micro_batch, been, block);
  if (been & DONE)
    return;
  if (!(been & FORWARD)) {
    if (been & RECEIVED)
      add_buffer (peak, position, block, SP_SLOT_X);
    return;
  }
  if (last == SP_LIST_FORWARD && been & RECEIVED_BACK)
    add_buffer (peak, position, block, SP_SLOT_DY);
  const GArray *left =
      leavings_of (peak, peak->stage->context[position], (guint) (variant - peak->plan->program->variants), last);
  for (guint i = 0; i < left->len; i++) {
    const Left *row = &g_array_index (left, Left, i);

    if (!(last == SP_LIST_FORWARD && row->slot == SP_SLOT_Y) &&
        !(last == SP_LIST_BACKWARD_INPUT && row->slot == SP_SLOT_DX))
      add_row (peak, position, block, row->slot, row->class, row->bytes);
  }
}

static void
add_of_step (Peak *peak, gint32 position)
{
  guint8 index = peak->stage->positions[position].block;
  const SpBlock *block = &peak->plan->program->variants[0].blocks[index];
  const SpBlockLives *lives = sp_memory_lives_of (peak->plan, 0, index);

  for (guint slot = 1; slot < block->n_buffers; slot++) {
    const SpBuffer *buffer = &block->buffers[slot];

    if (buffer->life == SP_LIFE_ALWAYS && buffer->alias == 0 && !(buffer->tied && peak->stage->both_ends))
      add_buffer (peak, position, block, (guint8) slot);
  }
  /* What slices add up is of the size of the sequence that is under way. */
  const SpBlock *summing =
      &peak->plan->program->variants[sp_program_variant_of (peak->plan->program, peak->backward)].blocks[index];
  for (guint i = 0; i < lives->n_of_step; i++)
    if (peak->state->live[position] >> i & 1) {
      guint8 slot = lives->of_step[i];
      add_buffer (peak, position, block->buffers[slot].life == SP_LIFE_ACCUMULATED ? summing : block, slot);
    }
}

/* The list under way, up to its fullest op; nothing of it yet if it is full at its start. */
static void
add_list_under_way (Peak *peak)
{
  const SpItem *item = &peak->item;
  const SpMemoryStage *stage = peak->stage;
  const SpVariant *variant;
  const SpBlock *block = sp_memory_block (peak->plan, peak->state, item, &variant);
  const SpMemoryContext *context =
      &g_array_index (peak->plan->contexts, SpMemoryContext, stage->context[item->position]);
  guint64 place = g_array_index (peak->plan->places, guint64, peak->state->place_class);
  guint v = (guint) (variant - peak->plan->program->variants);
  gboolean has_other =
      sp_memory_lives_of (peak->plan, v, (guint) (block - variant->blocks))->is_tied && stage->both_ends;
  guint32 *live = peak->state->live;
  guint32 before = live[item->position] | (has_other ? live[stage->embedding] << SP_OTHER_SHIFT : 0);
  SpListKind list = sp_memory_list_of (item);
  SpListWalk whole, walk;

  sp_memory_walk_list (peak->plan, place, context, v, list, before, G_MAXUINT, 0, &whole);
  if (whole.profile.excess_bytes == 0)
    return;
  sp_memory_walk_list (peak->plan, place, context, v, list, before, whole.profile.op, whole.profile.step, &walk);
  live[item->position] = walk.live & ((1u << SP_OTHER_SHIFT) - 1);
  if (has_other)
    live[stage->embedding] = walk.live >> SP_OTHER_SHIFT;
  g_autoptr (GArray) left = left_by (&walk);
  for (guint i = 0; i < left->len; i++) {
    const Left *row = &g_array_index (left, Left, i);
    add_row (peak, item->position, block, row->slot, row->class, row->bytes);
  }
  peak->mark = mark_of (item);
}

static gint
compare_bytes (gconstpointer a, gconstpointer b)
{
  gint64 left = ((const SpLiveBuffer *) a)->bytes, right = ((const SpLiveBuffer *) b)->bytes;

  return (left < right) - (left > right);
}

static GArray *
collect_rows (Peak *peak)
{
  GArray *buffers = g_array_new (FALSE, FALSE, sizeof (SpLiveBuffer));
  const SpItem *item = &peak->item;

  if (peak->is_under_way)
    sp_memory_begin_item (peak->plan, peak->state, item);
  if (peak->is_under_way && item->kind == SP_ITEM_LIST && item->phase == SP_PHASE_BACKWARD)
    peak->backward = item->micro_batch;
  if (peak->is_under_way && item->kind == SP_ITEM_LIST)
    add_list_under_way (peak);
  else if (peak->is_under_way && item->kind == SP_ITEM_RECEIVE)
    *been_at (peak, item->position, item->micro_batch) |= mark_of (item);
  if (peak->mark != 0)
    *been_at (peak, item->position, item->micro_batch) |= peak->mark;
  for (gint32 at = 0; at < (gint32) peak->stage->n_positions; at++) {
    add_of_step (peak, at);
    for (gint32 i = 0; i < sp_program_runs (peak->plan->program); i++)
      if (peak->mark == 0 || at != item->position || i != item->micro_batch)
        add_micro_batch (peak, at, i);
  }
  for (guint i = 0; i < peak->stage->n_positions * SP_MAX_SLOTS; i++)
    if (peak->rows[i].bytes > 0)
      g_array_append_val (buffers, peak->rows[i]);
  g_array_sort (buffers, compare_bytes);
  return buffers;
}

GArray *
sp_memory_list_item (SpMemoryPlan *plan, gint32 rank, guint32 index)
{
  SpMemoryState state;
  Peak peak = { .plan = plan, .state = &state };

  peak.stage = &plan->stages[sp_program_place (plan->program, SP_GROUP_PIPELINE, rank)];
  peak.been = g_new0 (guint8, peak.stage->n_positions * (guint) sp_program_runs (plan->program));
  walk_to (&peak, rank, index);
  peak.rows = g_new0 (SpLiveBuffer, peak.stage->n_positions * SP_MAX_SLOTS);
  peak.leavings = g_ptr_array_new ();
  g_ptr_array_set_size (peak.leavings,
                        (gint) (plan->contexts->len * (guint) plan->program->n_variants * SP_N_WORK_LISTS));

  GArray *buffers = collect_rows (&peak);
  for (guint i = 0; i < peak.leavings->len; i++)
    if (peak.leavings->pdata[i] != NULL)
      g_array_unref (peak.leavings->pdata[i]);
  g_ptr_array_unref (peak.leavings);
  g_free (peak.rows);
  g_free (peak.been);
  sp_memory_state_clear (&state);
  return buffers;
}

/* A step that is fullest before anything is run is as full when its first list begins. */
GArray *
sp_memory_list_peak (SpMemoryPlan *plan, gint32 rank, SpMemoryState *ret_state)
{
  SpMemoryState end;
  Peak peak = { .plan = plan, .state = &end };

  walk_to (&peak, rank, G_MAXUINT32);
  GArray *buffers = sp_memory_list_item (plan, rank, end.peak_index == G_MAXUINT32 ? 0 : end.peak_index);
  if (ret_state != NULL)
    *ret_state = end;
  else
    sp_memory_state_clear (&end);
  return buffers;
}

GArray *
sp_memory_merge (const SpProgram *program, const GArray *buffers)
{
  GArray *merged = g_array_new (FALSE, FALSE, sizeof (SpLiveBuffer));

  for (guint i = 0; i < buffers->len; i++) {
    const SpLiveBuffer *b = &g_array_index (buffers, SpLiveBuffer, i);
    SpLiveBuffer *row = NULL;

    for (guint j = 0; j < merged->len && row == NULL; j++) {
      SpLiveBuffer *m = &g_array_index (merged, SpLiveBuffer, j);
      if (m->class == b->class && m->life == b->life &&
          program->variants[0].blocks[m->block].kind == program->variants[0].blocks[b->block].kind)
        row = m;
    }
    if (row == NULL) {
      g_array_append_val (merged, *b);
      continue;
    }
    row->bytes += b->bytes;
    row->count += b->count;
  }
  g_array_sort (merged, compare_bytes);
  return merged;
}
