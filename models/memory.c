/* SPDX-License-Identifier: Apache-2.0 */
#include "models/memory.h"

#include "models/schedules.h"

#include <string.h>

#define MAX_OPS 640 /* of a recompute and backward list together */

typedef struct {
  gint64 always, stash, gathered, step_end;
  gint64 peak[2];    /* of the forward, and of the recompute and backward list */
  guint16 moment[2]; /* op (from 1) of the peak */
  guint n_ops[2];
} BlockMemory;

/* Ops [*first, *last] of the list in which a buffer is live; FALSE if it is not. Op 0 stands for the time before the first
 * op, n + 1 for the time after the last one. */
static gboolean
live_range (const SpBlock *block, guint slot, guint list, guint n_ops, guint *ret_first, guint *ret_last)
{
  const SpBuffer *buffer = &block->buffers[slot];
  guint first = block->first_use[list][slot], last = block->last_use[list][slot];

  if (buffer->life == SP_LIFE_GATHERED) {
    first = 0;
    last = n_ops + 1;
  } else if (buffer->life == SP_LIFE_STASH) {
    if (list == 1 || slot == SP_SLOT_X)
      first = 0;
    if (list == 0 || last == 0)
      last = n_ops + 1;
  } else if (first == 0)
    return FALSE;
  else if (buffer->life == SP_LIFE_HANDOFF) {
    if (slot == SP_SLOT_DY)
      first = 0;
    else
      last = n_ops + 1;
  } else if (buffer->life == SP_LIFE_SUMMED)
    last = n_ops + 1;
  else if (buffer->life != SP_LIFE_SEGMENT && buffer->life != SP_LIFE_REBUILT)
    return FALSE;
  *ret_first = first;
  *ret_last = last;
  return TRUE;
}

/* What is tied is the embedding's; it is there because of this block where it does not live ALWAYS. */
static gint64
buffer_bytes (const SpBuffer *buffer)
{
  gboolean lives_here = buffer->life == SP_LIFE_GATHERED || buffer->life == SP_LIFE_SUMMED;

  return buffer->tied && lives_here ? buffer->elements * sp_dtype_bytes (buffer->dtype) : buffer->bytes;
}

static void
find_peak (const gint64 *delta, guint list, BlockMemory *memory)
{
  gint64 live = 0;

  for (guint i = 0; i <= memory->n_ops[list] + 1; i++) {
    live += delta[i];
    if (live > memory->peak[list]) {
      memory->peak[list] = live;
      memory->moment[list] = (guint16) i;
    }
  }
}

static void
measure (const SpBlock *block, BlockMemory *memory)
{
  gint64 delta[2][MAX_OPS + 3];

  *memory = (BlockMemory){ .n_ops = { block->segments[SP_PHASE_FORWARD].n,
                                      block->segments[SP_PHASE_RECOMPUTE].n + block->segments[SP_PHASE_BACKWARD].n } };
  for (guint list = 0; list < 2; list++) {
    g_assert (memory->n_ops[list] <= MAX_OPS);
    memset (delta[list], 0, (memory->n_ops[list] + 3) * sizeof (gint64));
  }
  for (guint slot = 1; slot < block->n_buffers; slot++) {
    const SpBuffer *buffer = &block->buffers[slot];
    gint64 bytes = buffer_bytes (buffer);
    guint first, last;
    if (bytes == 0)
      continue;
    if (buffer->life == SP_LIFE_ALWAYS) {
      memory->always += bytes;
      continue;
    }
    if (buffer->life == SP_LIFE_STASH)
      memory->stash += bytes;
    else if (buffer->life == SP_LIFE_GATHERED)
      memory->gathered += bytes;
    else if (buffer->life == SP_LIFE_STEP_END)
      memory->step_end += bytes;
    for (guint list = 0; list < 2; list++)
      if (live_range (block, slot, list, memory->n_ops[list], &first, &last)) {
        delta[list][first] += bytes;
        delta[list][last + 1] -= bytes;
      }
  }
  find_peak (delta[0], 0, memory);
  find_peak (delta[1], 1, memory);
}

gint64
sp_memory_block_stash (const SpBlock *block)
{
  BlockMemory memory;

  measure (block, &memory);
  return memory.stash;
}

gint64
sp_memory_block_always (const SpBlock *block)
{
  BlockMemory memory;

  measure (block, &memory);
  return memory.always;
}

/* --- stages --------------------------------------------------------------------------------------------------------- */

/* Where the peak is: a list of a block, or (list 2) the end of the step; what lies beside it. */
typedef struct {
  gint64 bytes;
  gint32 stage;
  guint block, list;
  gint32 counts[SP_MAX_BLOCKS]; /* blocks of each kind on the stage */
  gint32 before[SP_MAX_BLOCKS]; /* of these, before the block in question */
  gint32 others;                /* micro-batches in flight besides this one */
  gboolean ahead;               /* gathers run ahead */
} Peak;

/* Other blocks that are gathered at the same time: all that a forward gathered and keeps for its backward, or the one that is
 * gathered ahead. */
static gint64
gathered_beside (const SpProgram *program, const BlockMemory *memory, const Peak *place, guint block)
{
  gint64 kept = 0, largest = 0;
  gboolean keeps = FALSE;

  for (guint b = 0; b < program->n_blocks; b++) {
    gint32 others = place->others > 0 ? place->counts[b] - (b == block) : place->before[b];
    kept += others * memory[b].gathered;
    if (place->counts[b] > (b == block))
      largest = MAX (largest, memory[b].gathered);
    keeps |= memory[b].gathered > 0 && !program->variants[0].blocks[b].regather;
  }
  return keeps ? kept : place->ahead ? largest : 0;
}

/* The head's backward starts the gradient of the tied matrix, and it is complete when the embedding's is over. */
static gint64
tied_gradient_beside (const SpProgram *program, const Peak *place, guint block)
{
  guint head = program->n_blocks - 1;
  const SpBlock *last = &program->variants[0].blocks[head];

  if (block == head || place->counts[0] == 0 || place->counts[head] == 0)
    return 0;
  for (guint slot = 1; slot < last->n_buffers; slot++) {
    const SpBuffer *buffer = &last->buffers[slot];
    if (buffer->tied && buffer->life == SP_LIFE_SUMMED)
      return block == 0 ? 0 : buffer_bytes (buffer);
  }
  return 0;
}

static void
consider (const SpProgram *program, const BlockMemory *memory, guint block, const Peak *place, gint64 fixed,
          gint64 stash_all, Peak *best)
{
  gint64 before = gathered_beside (program, memory, place, block);

  for (guint b = 0; b < program->n_blocks; b++)
    before += place->before[b] * memory[b].stash;
  for (guint list = 0; list < 2; list++) {
    gint64 bytes = fixed + place->others * stash_all + before + memory[block].peak[list];
    if (list == 1)
      bytes += tied_gradient_beside (program, place, block);
    if (bytes > best->bytes) {
      *best = *place;
      best->bytes = bytes;
      best->block = block;
      best->list = list;
    }
  }
}

static void
consider_stage (const SpProgram *program, const BlockMemory *memory, gint32 stage, gboolean overlap, Peak *best)
{
  Peak place = { .stage = stage, .ahead = overlap };
  guint head = program->n_blocks - 1;
  gint64 fixed = 0, stash_all = 0, step_end = 0;
  gint32 first = program->stage_first[stage], end = program->stage_first[stage + 1];
  gint32 last_of[SP_MAX_BLOCKS] = { 0 };

  for (gint32 l = first; l < end; l++) {
    place.counts[program->layer_block[l]]++;
    last_of[program->layer_block[l]] = l;
  }
  place.counts[0] = stage == 0;
  place.counts[head] = stage == program->stages - 1;
  for (guint b = 0; b <= head; b++) {
    fixed += place.counts[b] * memory[b].always;
    stash_all += place.counts[b] * memory[b].stash;
    step_end += place.counts[b] * memory[b].step_end;
  }
  place.others = sp_schedule_get (program->schedule)->in_flight (program->stages, stage, program->micro_batches) - 1;
  if (fixed + step_end > best->bytes) {
    *best = place;
    best->bytes = fixed + step_end;
    best->list = 2;
  }

  for (guint b = 0; b <= head; b++) {
    if (place.counts[b] == 0)
      continue;
    memset (place.before, 0, sizeof place.before);
    if (b > 0)
      place.before[0] = place.counts[0];
    if (b == head)
      memcpy (place.before, place.counts, head * sizeof *place.before);
    else if (program->n_blocks == 3)
      place.before[b] = place.counts[b] - 1;
    else
      for (gint32 l = first; b > 0 && l < last_of[b]; l++)
        place.before[program->layer_block[l]]++;
    consider (program, memory, b, &place, fixed, stash_all, best);
  }
}

static void
add_class (SpMemory *ret, const SpBuffer *buffer, double times)
{
  ret->by_class[buffer->class] += times * buffer_bytes (buffer);
}

/* The classes of what is live at the peak. */
static void
classify (const SpProgram *program, const BlockMemory *memory, const Peak *peak, SpMemory *ret)
{
  guint first, last;

  if (peak->list != 2)
    ret->by_class[SP_CLASS_PARAMETERS] += gathered_beside (program, memory, peak, peak->block);
  if (peak->list == 1)
    ret->by_class[SP_CLASS_GRADIENTS] += tied_gradient_beside (program, peak, peak->block);
  for (guint b = 0; b < program->n_blocks; b++) {
    const SpBlock *block = &program->variants[0].blocks[b];
    for (guint slot = 1; slot < block->n_buffers; slot++) {
      const SpBuffer *buffer = &block->buffers[slot];
      if (buffer->life == SP_LIFE_ALWAYS)
        add_class (ret, buffer, peak->counts[b]);
      else if (peak->list == 2 && buffer->life == SP_LIFE_STEP_END)
        add_class (ret, buffer, peak->counts[b]);
      else if (peak->list != 2 && buffer->life == SP_LIFE_STASH)
        add_class (ret, buffer, (double) peak->others * peak->counts[b] + peak->before[b]);
      if (peak->list != 2 && b == peak->block && buffer_bytes (buffer) > 0 &&
          live_range (block, slot, peak->list, memory[b].n_ops[peak->list], &first, &last) &&
          first <= memory[b].moment[peak->list] && memory[b].moment[peak->list] <= last)
        add_class (ret, buffer, 1);
    }
  }
}

static const char *const moments[SP_N_BLOCK_KINDS][2] = {
  [SP_BLOCK_EMBEDDING] = { "forward of the embedding", "backward of the embedding" },
  [SP_BLOCK_SOFTMAX] = { "forward of the last softmax layer", "backward of the last softmax layer" },
  [SP_BLOCK_LINEAR] = { "forward of the last linear layer", "backward of the last linear layer" },
  [SP_BLOCK_HEAD] = { "forward of the head", "backward of the head" },
};

void
sp_memory_estimate (const SpProgram *program, const SpFramework *framework, gboolean overlap, SpMemory *ret)
{
  BlockMemory memory[SP_MAX_BLOCKS];
  Peak best = { 0 };

  for (guint b = 0; b < program->n_blocks; b++)
    measure (&program->variants[0].blocks[b], &memory[b]);
  for (gint32 stage = 0; stage < program->stages; stage++)
    consider_stage (program, memory, stage, overlap, &best);

  *ret = (SpMemory){ .stage = best.stage };
  ret->moment = best.list == 2 ? "end of the step" : moments[program->variants[0].blocks[best.block].kind][best.list];
  classify (program, memory, &best, ret);
  ret->by_class[SP_CLASS_RESERVED] =
      framework->reserved_bytes.value + framework->allocator_slack.value * (double) best.bytes;
  ret->total_bytes = (double) best.bytes + ret->by_class[SP_CLASS_RESERVED];
}
