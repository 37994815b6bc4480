/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/memory-private.h"

#include <string.h>

/* What a block's forward gathers, and of that what stays for its backward. */
static gint64
gathered_by (const SpEstimateContext *e, guint block)
{
  return e->state[block].gathered + e->state[block].tied_gathered;
}

gint64
sp_memory_kept_of (const SpEstimateContext *e, guint block)
{
  return e->state[block].regather ? 0 : gathered_by (e, block);
}

gboolean
sp_memory_keeps_gathered (const SpEstimateContext *e)
{
  gboolean keeps = FALSE;

  for (guint b = 0; b < e->program->n_blocks; b++)
    keeps |= sp_memory_kept_of (e, b) > 0;
  return keeps;
}

static gboolean
holds_over (const SpEstimateContext *e)
{
  gboolean holds = FALSE;

  for (guint b = 0; b < e->program->n_blocks; b++)
    holds |= e->state[b].held > 0;
  return holds;
}

static gboolean
gathers_ahead (const SpEstimateContext *e)
{
  gboolean ahead = FALSE;

  for (guint b = 0; b < e->program->n_blocks; b++)
    ahead |= e->state[b].gathers_ahead;
  return ahead;
}

/* Whether the list is run for the block. */
static gboolean
has_list (const SpEstimateContext *e, guint block, guint list)
{
  return list == SP_LIST_FORWARD || sp_block_has_backward (&e->program->variants[0].blocks[block]);
}

/* --- a list ------------------------------------------------------------------------------------------------------- */

/* What is gathered beside the list for the block after it, if that is not there yet. */
static gint64
gathered_ahead (const SpEstimateContext *e, const SpMemoryFullest *at, const SpMemoryHeld *held)
{
  gboolean gathers;

  if (at->next < 0 || !e->state[at->next].gathers_ahead)
    return 0;
  gathers = at->list == SP_LIST_FORWARD ? held->full == 0 || sp_memory_kept_of (e, (guint) at->next) == 0
                                        : e->state[at->next].gathers_again;
  return gathers ? gathered_by (e, (guint) at->next) : 0;
}

/* Of what the embedding gathers, what the head still has of another micro-batch. */
static gint64
tied_already (const SpEstimateContext *e, const SpMemoryChunk *chunk, const SpMemoryFullest *at,
              const SpMemoryHeld *held)
{
  guint head = e->program->n_blocks - 1;
  gboolean keeps = at->block == 0 && held->full > 0 && chunk->counts[head] > 0 && !e->state[head].regather;

  return keeps ? e->state[head].tied_gathered : 0;
}

/* Parameters gathered at the same time in the chunk: this block's, all that a forward gathered and keeps for its
 * backward, and what is gathered ahead. The weights' part of a backward gathers nothing. */
static gint64
gathered_at (const SpEstimateContext *e, const SpMemoryChunk *chunk, const SpMemoryFullest *at,
             const SpMemoryHeld *held)
{
  gint64 kept = 0;

  for (guint b = 0; b < e->program->n_blocks; b++)
    kept += (held->full > 0 ? chunk->counts[b] - (b == at->block) : at->before[b]) * sp_memory_kept_of (e, b);
  if (at->list == SP_LIST_WEIGHT)
    return held->full > 0 ? kept + sp_memory_kept_of (e, at->block) : 0;
  return (at->synced ? 0 : gathered_by (e, at->block)) + kept + gathered_ahead (e, at, held) -
         tied_already (e, chunk, at, held);
}

/* Gradients that are summed at the same time in the chunk: this block's, and of the blocks on either side those that
 * SYNC has not reached or still reads. The head's backward starts that of a tied matrix, and it is complete when the
 * embedding's is over. */
static gint64
summed_at (const SpEstimateContext *e, const SpMemoryChunk *chunk, const SpMemoryFullest *at, const SpMemoryHeld *held)
{
  guint head = e->program->n_blocks - 1;
  gboolean tied = at->block > 0 && chunk->counts[0] > 0 && chunk->counts[head] > 0 && !held->summed;
  gint64 sum = tied && at->list != SP_LIST_FORWARD && at->list != SP_LIST_WEIGHT ? e->state[head].tied_summed : 0;

  if (at->list == SP_LIST_FORWARD)
    return held->summed ? chunk->summed : 0;
  if (at->held >= 0 && at->list != SP_LIST_INPUT && !at->synced)
    sum += e->state[at->held].held;
  for (guint b = 0; b < e->program->n_blocks; b++) {
    gint32 after = chunk->counts[b] - at->before[b] - (b == at->block);
    gint32 blocks = (b == at->block) + (held->summed ? at->before[b] : 0) + (at->list == SP_LIST_INPUT ? after : 0);
    sum += blocks * e->state[b].summed;
  }
  return sum;
}

/* This micro-batch's in other blocks of the chunk. */
static gint64
beside (const SpEstimateContext *e, const SpMemoryChunk *chunk, const SpMemoryFullest *at, const SpMemoryHeld *held)
{
  const SpBlockWork *work = e->work[held->variant];
  gint64 sum = 0;

  for (guint b = 0; b < e->program->n_blocks; b++) {
    gint32 after = chunk->counts[b] - at->before[b] - (b == at->block);
    sum += at->before[b] * (at->list == SP_LIST_WEIGHT ? work[b].kept_bytes : work[b].stash_bytes);
    if (at->list == SP_LIST_INPUT)
      sum += after * work[b].kept_bytes;
  }
  return sum;
}

/* What slices add up in other blocks than the list's, and in a forward in that one too: there it is an earlier
 * sequence's, and only the last is smaller. */
static gint64
accumulated_at (const SpEstimateContext *e, const SpMemoryChunk *chunk, const SpMemoryFullest *at,
                const SpMemoryHeld *held)
{
  gboolean forward = at->list == SP_LIST_FORWARD;
  const SpBlockWork *work = e->work[forward ? 0 : held->variant];
  gint64 sum = 0;

  if (held->sums == SP_MEMORY_SUMS_NONE)
    return 0;
  for (guint b = 0; b < e->program->n_blocks; b++) {
    gint32 own = b == at->block, after = chunk->counts[b] - at->before[b] - own, blocks = 0;
    if (held->sums != SP_MEMORY_SUMS_BEGIN)
      blocks += at->before[b];
    if (held->sums != SP_MEMORY_SUMS_END)
      blocks += after;
    sum += (blocks + (forward ? own : 0)) * work[b].accumulated;
  }
  return sum;
}

/* Shards of gradients that SYNC has left so far in the chunk's last backward. */
static gint64
reduced_at (const SpEstimateContext *e, const SpMemoryChunk *chunk, const SpMemoryFullest *at, const SpMemoryHeld *held)
{
  gint64 sum = 0;

  for (guint b = 0; b < e->program->n_blocks && held->is_last; b++)
    sum += (chunk->counts[b] - at->before[b] - (b == at->block && !at->synced)) * e->state[b].reduced;
  return sum;
}

/* What the backward leaves to the block before, once its gradients are reduced, if that takes it. Its second part leaves
 * nothing. */
static gint64
handed_by (const SpEstimateContext *e, const SpMemoryFullest *at, const SpMemoryHeld *held)
{
  gboolean is_taken = at->next < 0 || has_list (e, (guint) at->next, at->list);

  return at->list == SP_LIST_BACKWARD && is_taken ? e->work[held->variant][at->block].handed_bytes : 0;
}

static void
consider (const SpEstimateContext *e, const SpMemoryChunk *chunk, SpMemoryFullest *at, const SpMemoryHeld *held,
          SpMemoryFullest *best)
{
  for (at->synced = FALSE; at->synced <= held->is_last; at->synced++) {
    const SpBlockWork *work = &e->work[held->variant][at->block];
    at->bytes = (at->synced ? handed_by (e, at, held) : work->peak_bytes[at->list]) + beside (e, chunk, at, held) +
                accumulated_at (e, chunk, at, held) + gathered_at (e, chunk, at, held) +
                summed_at (e, chunk, at, held) + reduced_at (e, chunk, at, held);
    if (at->bytes > best->bytes)
      *best = *at;
  }
}

/* The block at `l` of the chunk's layers, of which those at the ends may be the embedding and the head; -1: none. */
static gint32
block_at (const SpEstimateContext *e, const SpMemoryChunk *chunk, gint32 l)
{
  const SpProgram *program = e->program;
  gint32 first = program->stage_first[chunk->virtual_stage], end = program->stage_first[chunk->virtual_stage + 1];
  guint block = l < first ? 0 : l < end ? program->layer_block[l] : program->n_blocks - 1;

  return l < first - 1 || l > end || chunk->counts[block] == 0 ? -1 : (gint32) block;
}

/* Of the blocks after the one at `l`, the first whose backward sums gradients. */
static gint32
summed_before (const SpEstimateContext *e, const SpMemoryChunk *chunk, gint32 l)
{
  gint32 block;

  do
    block = block_at (e, chunk, ++l);
  while (block >= 0 && !e->state[block].sums);
  return block;
}

/* Where a list leaves something behind it, or gathers ahead, by the blocks' order. From one to the next of its kind,
 * and of its neighbours', the sum rises or falls evenly, so the ends of each row of a kind are looked at. */
static void
find_fullest_in_order (const SpEstimateContext *e, const SpMemoryChunk *chunk, guint list, const SpMemoryHeld *held,
                       SpMemoryFullest *best)
{
  const gint32 *first = &e->program->stage_first[chunk->virtual_stage];
  const guint8 *blocks = e->program->layer_block;
  SpMemoryFullest at = { .list = list };

  for (gint32 l = first[0] - 1; l <= first[1]; l++) {
    gint32 block = block_at (e, chunk, l);
    if (block < 0)
      continue;
    gboolean is_inside = l - 2 >= first[0] && l + 2 < first[1];
    for (gint32 i = l - 2; i <= l + 2 && is_inside; i++)
      is_inside = blocks[i] == block;
    at.block = (guint) block;
    at.next = block_at (e, chunk, list == SP_LIST_FORWARD ? l + 1 : l - 1);
    at.held = is_inside || list == SP_LIST_FORWARD ? -1 : summed_before (e, chunk, l);
    if (!is_inside && has_list (e, at.block, list))
      consider (e, chunk, &at, held, best);
    at.before[block]++;
  }
}

/* Else the most lies before the last block of each kind. */
void
sp_memory_find_fullest (const SpEstimateContext *e, const SpMemoryChunk *chunk, guint list, const SpMemoryHeld *held,
                        SpMemoryFullest *best)
{
  SpMemoryFullest at = { .list = list, .next = -1, .held = -1 };

  *best = (SpMemoryFullest){ .bytes = -1 };
  if (list == SP_LIST_INPUT || held->is_last || (gathers_ahead (e) && list != SP_LIST_WEIGHT) ||
      (holds_over (e) && list != SP_LIST_FORWARD) || (held->sums != SP_MEMORY_SUMS_NONE && list != SP_LIST_FORWARD)) {
    find_fullest_in_order (e, chunk, list, held, best);
    return;
  }
  for (at.block = 0; at.block < e->program->n_blocks; at.block++)
    if (chunk->counts[at.block] > 0 && has_list (e, at.block, list)) {
      memcpy (at.before, chunk->before[at.block], sizeof at.before);
      consider (e, chunk, &at, held, best);
    }
}

void
sp_memory_classify_list (const SpEstimateContext *e, const SpMemoryChunk *chunk, const SpMemoryFullest *at,
                         const SpMemoryHeld *held, SpMemory *ret)
{
  for (guint b = 0; b < e->program->n_blocks; b++) {
    const SpBlockWork *work = &e->work[held->variant][b];
    sp_memory_add_classes (ret, at->list == SP_LIST_WEIGHT ? work->kept : work->stash, at->before[b]);
    if (at->list == SP_LIST_INPUT)
      sp_memory_add_classes (ret, work->kept, chunk->counts[b] - at->before[b] - (b == at->block));
  }
  ret->by_class[SP_CLASS_ACTIVATIONS] += (double) accumulated_at (e, chunk, at, held);
  if (at->synced)
    ret->by_class[SP_CLASS_ACTIVATIONS] += (double) handed_by (e, at, held);
  else
    sp_memory_add_classes (ret, e->work[held->variant][at->block].peak[at->list], 1);
  ret->by_class[SP_CLASS_PARAMETERS] += (double) gathered_at (e, chunk, at, held);
  ret->by_class[SP_CLASS_GRADIENTS] += (double) (summed_at (e, chunk, at, held) + reduced_at (e, chunk, at, held));
}
