/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/memory.h"

#include "models/estimate/block-cost.h"
#include "models/schedules.h"

#include <string.h>

/* Where the peak is: a list of a block, or (list 2) the end of the step; and what lies beside it. */
typedef struct {
  gint64 bytes;
  gint32 stage;
  guint block, list;
  gint32 counts[SP_MAX_BLOCKS]; /* blocks of each kind on the stage */
  gint32 before[SP_MAX_BLOCKS]; /* of these, before the block in question */
  gint32 others;                /* micro-batches in flight besides this one */
} Peak;

/* Parameters gathered at the same time: this block's, and all that a forward gathered and keeps for its backward, or
 * the one that is gathered ahead. */
static gint64
gathered_at (const SpEstimateContext *e, const Peak *place, guint block)
{
  gint64 kept = 0, largest = 0, own = e->state[block].gathered + e->state[block].tied_gathered;
  gboolean keeps = FALSE, ahead = FALSE;

  for (guint b = 0; b < e->program->n_blocks; b++) {
    gint64 gathered = e->state[b].gathered + e->state[b].tied_gathered;
    gint32 others = place->others > 0 ? place->counts[b] - (b == block) : place->before[b];
    kept += others * gathered;
    if (place->counts[b] > (b == block))
      largest = MAX (largest, gathered);
    keeps |= gathered > 0 && !e->state[b].regather;
    ahead |= e->state[b].gathers_ahead;
  }
  return own + (keeps ? kept : ahead ? largest : 0);
}

/* Gradients that are summed at the same time: this block's; the head's backward starts that of the tied matrix, and it
 * is complete when the embedding's is over. */
static gint64
summed_at (const SpEstimateContext *e, const Peak *place, guint block)
{
  guint head = e->program->n_blocks - 1;
  gboolean tied = block > 0 && place->counts[0] > 0 && place->counts[head] > 0;

  return e->state[block].summed + (tied ? e->state[head].tied_summed : 0);
}

static void
consider (const SpEstimateContext *e, guint block, const Peak *place, gint64 fixed, gint64 stash_all, Peak *best)
{
  gint64 beside = fixed + place->others * stash_all + gathered_at (e, place, block);

  for (guint b = 0; b < e->program->n_blocks; b++)
    beside += place->before[b] * e->work[0][b].stash_bytes;
  for (guint list = 0; list < 2; list++) {
    gint64 bytes = beside + e->work[0][block].peak_bytes[list] + (list == 1 ? summed_at (e, place, block) : 0);
    if (bytes > best->bytes) {
      *best = *place;
      best->bytes = bytes;
      best->block = block;
      best->list = list;
    }
  }
}

/* Blocks of the stage that come before the last one of kind b. */
static void
count_before (const SpProgram *program, const gint32 *counts, gint32 stage, guint b, gint32 *ret)
{
  guint head = program->n_blocks - 1;
  gint32 first = program->stage_first[stage], last = program->stage_first[stage + 1] - 1;

  memset (ret, 0, SP_MAX_BLOCKS * sizeof *ret);
  if (b == 0)
    return;
  ret[0] = counts[0];
  if (b == head)
    memcpy (ret, counts, head * sizeof *ret);
  else if (program->n_blocks == 3)
    ret[b] = counts[b] - 1;
  else {
    while (program->layer_block[last] != b)
      last--;
    for (gint32 l = first; l < last; l++)
      ret[program->layer_block[l]]++;
  }
}

static void
consider_stage (const SpEstimateContext *e, gint32 stage, Peak *best)
{
  const SpProgram *program = e->program;
  Peak place = { .stage = stage };
  gint64 fixed = 0, stash_all = 0, step_end = 0;

  sp_estimate_counts (program, stage, place.counts);
  for (guint b = 0; b < program->n_blocks; b++) {
    fixed += place.counts[b] * e->state[b].always_bytes;
    stash_all += place.counts[b] * e->work[0][b].stash_bytes;
    step_end += place.counts[b] * e->state[b].step_end_bytes;
  }
  place.others = sp_schedule_get (program->schedule)->in_flight (program->stages, stage, program->micro_batches) - 1;
  if (fixed + step_end > best->bytes) {
    *best = place;
    best->bytes = fixed + step_end;
    best->list = 2;
  }
  for (guint b = 0; b < program->n_blocks; b++)
    if (place.counts[b] > 0) {
      count_before (program, place.counts, stage, b, place.before);
      consider (e, b, &place, fixed, stash_all, best);
    }
}

/* --- classes ------------------------------------------------------------------------------------------------------ */

static void
add_classes (SpMemory *ret, const gint64 *bytes, double times)
{
  for (guint c = 0; c < SP_N_CLASSES; c++)
    ret->by_class[c] += times * (double) bytes[c];
}

static void
classify (const SpEstimateContext *e, const Peak *peak, SpMemory *ret)
{
  for (guint b = 0; b < e->program->n_blocks; b++) {
    add_classes (ret, e->state[b].always, peak->counts[b]);
    if (peak->list == 2)
      add_classes (ret, e->state[b].step_end, peak->counts[b]);
    else
      add_classes (ret, e->work[0][b].stash, (double) peak->others * peak->counts[b] + peak->before[b]);
  }
  if (peak->list == 2)
    return;
  add_classes (ret, e->work[0][peak->block].peak[peak->list], 1);
  ret->by_class[SP_CLASS_PARAMETERS] += (double) gathered_at (e, peak, peak->block);
  if (peak->list == 1)
    ret->by_class[SP_CLASS_GRADIENTS] += (double) summed_at (e, peak, peak->block);
}

static const char *const moments[SP_N_BLOCK_KINDS][2] = {
  [SP_BLOCK_EMBEDDING] = { "forward of the embedding", "backward of the embedding" },
  [SP_BLOCK_SOFTMAX] = { "forward of the last softmax layer", "backward of the last softmax layer" },
  [SP_BLOCK_LINEAR] = { "forward of the last linear layer", "backward of the last linear layer" },
  [SP_BLOCK_HEAD] = { "forward of the head", "backward of the head" },
};

void
sp_estimate_memory (const SpEstimateContext *e, const SpFramework *framework, SpMemory *ret)
{
  Peak best = { 0 };

  /* A twin of the stage before has no more micro-batches in flight. */
  for (gint32 stage = 0; stage < e->program->stages; stage++)
    if (!sp_estimate_is_twin (e->program, stage))
      consider_stage (e, stage, &best);
  *ret = (SpMemory){ .stage = best.stage };
  ret->moment = best.list == 2 ? "end of the step" : moments[e->work[0][best.block].kind][best.list];
  classify (e, &best, ret);
  ret->by_class[SP_CLASS_RESERVED] =
      framework->reserved_bytes.value + framework->allocator_slack.value * (double) best.bytes;
  ret->total_bytes = (double) best.bytes + ret->by_class[SP_CLASS_RESERVED];
}

void
sp_memory_estimate (const SpProgram *program, const SpFramework *framework, SpMemory *ret)
{
  SpBlockWork work[SP_MAX_BLOCKS];
  SpBlockState state[SP_MAX_BLOCKS];
  SpEstimateContext e = { .program = program, .work = { work }, .state = state };

  for (guint b = 0; b < program->n_blocks; b++) {
    const SpBlock *block = &program->variants[0].blocks[b];
    work[b].kind = block->kind;
    sp_block_work_memory (block, &work[b]);
    sp_block_state_memory (program, block, &state[b]);
  }
  sp_estimate_memory (&e, framework, ret);
}

gint64
sp_memory_block_stash (const SpBlock *block)
{
  SpBlockWork work;

  sp_block_work_memory (block, &work);
  return work.stash_bytes;
}

gint64
sp_memory_block_always (const SpProgram *program, const SpBlock *block)
{
  SpBlockState state;

  sp_block_state_memory (program, block, &state);
  return state.always_bytes;
}
