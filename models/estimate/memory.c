/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/memory.h"

#include "models/estimate/block-cost.h"

#include <string.h>

/* What a chunk of a stage holds besides the micro-batch in question. */
typedef struct {
  gint32 full;               /* micro-batches between forward and backward */
  gint32 kept;               /* of a backward in two parts, between the parts */
  gboolean summed;           /* gradients that SYNC has not scattered yet */
  gboolean is_last, reduced; /* the backward that an eager SYNC runs beside is under way; is over */
} Held;

/* The fullest list of a slot: a block's, with so many blocks of each kind before it in the chunk and after it. */
typedef struct {
  gint64 bytes;
  gboolean synced; /* behind the list, with the block's own gradients reduced */
  guint list, block;
  gint32 next; /* the block whose turn comes after it, -1 none */
  gint32 held; /* of those whose turn came before it in the backward, the last that sums gradients, -1 none */
  gint32 before[SP_MAX_BLOCKS];
} Fullest;

/* Where the peak is: a list, or (list SP_N_LISTS) the end of the step, or the optimizer's list of a block; and what lies
 * beside it. */
#define OPTIMIZER_LIST (SP_N_LISTS + 1)

typedef struct {
  gint64 bytes;
  gint32 stage, chunk;
  Fullest at;
  Held held[SP_MAX_CHUNKS];
} Peak;

/* Sums over a chunk's blocks. */
typedef struct {
  gint32 counts[SP_MAX_BLOCKS];
  gint32 before[SP_MAX_BLOCKS][SP_MAX_BLOCKS]; /* the last block of each kind */
  gint32 virtual_stage;
  gint64 stash, kept, summed, reduced, gathered; /* gathered: if it stays for the backward */
  guint8 is_known[SP_N_SLOT_KINDS][2][2];
  Fullest fullest[SP_N_SLOT_KINDS][2][2]; /* with others in flight or not, gradients summed or not */
} Chunk;

static const guint list_of[SP_N_SLOT_KINDS] = {
  [SP_SLOT_FORWARD] = SP_LIST_FORWARD,
  [SP_SLOT_BACKWARD] = SP_LIST_BACKWARD,
  [SP_SLOT_BACKWARD_INPUT] = SP_LIST_INPUT,
  [SP_SLOT_BACKWARD_WEIGHT] = SP_LIST_WEIGHT,
};

/* What a block's forward gathers, and of that what stays for its backward. */
static gint64
gathered_by (const SpEstimateContext *e, guint block)
{
  return e->state[block].gathered + e->state[block].tied_gathered;
}

static gint64
kept_of (const SpEstimateContext *e, guint block)
{
  return e->state[block].regather ? 0 : gathered_by (e, block);
}

static gboolean
keeps_gathered (const SpEstimateContext *e)
{
  gboolean keeps = FALSE;

  for (guint b = 0; b < e->program->n_blocks; b++)
    keeps |= kept_of (e, b) > 0;
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
gathered_ahead (const SpEstimateContext *e, const Fullest *at, const Held *held)
{
  gboolean gathers;

  if (at->next < 0 || !e->state[at->next].gathers_ahead)
    return 0;
  gathers = at->list == SP_LIST_FORWARD ? held->full == 0 || kept_of (e, (guint) at->next) == 0
                                        : e->state[at->next].gathers_again;
  return gathers ? gathered_by (e, (guint) at->next) : 0;
}

/* Of what the embedding gathers, what the head still has of another micro-batch. */
static gint64
tied_already (const SpEstimateContext *e, const Chunk *chunk, const Fullest *at, const Held *held)
{
  guint head = e->program->n_blocks - 1;
  gboolean keeps = at->block == 0 && held->full > 0 && chunk->counts[head] > 0 && !e->state[head].regather;

  return keeps ? e->state[head].tied_gathered : 0;
}

/* Parameters gathered at the same time in the chunk: this block's, all that a forward gathered and keeps for its
 * backward, and what is gathered ahead. The weights' part of a backward gathers nothing. */
static gint64
gathered_at (const SpEstimateContext *e, const Chunk *chunk, const Fullest *at, const Held *held)
{
  gint64 kept = 0;

  for (guint b = 0; b < e->program->n_blocks; b++)
    kept += (held->full > 0 ? chunk->counts[b] - (b == at->block) : at->before[b]) * kept_of (e, b);
  if (at->list == SP_LIST_WEIGHT)
    return held->full > 0 ? kept + kept_of (e, at->block) : 0;
  return (at->synced ? 0 : gathered_by (e, at->block)) + kept + gathered_ahead (e, at, held) -
         tied_already (e, chunk, at, held);
}

/* Gradients that are summed at the same time in the chunk: this block's, and of the blocks on either side those that
 * SYNC has not reached or still reads. The head's backward starts that of a tied matrix, and it is complete when the
 * embedding's is over. */
static gint64
summed_at (const SpEstimateContext *e, const Chunk *chunk, const Fullest *at, const Held *held)
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
beside (const SpEstimateContext *e, const Chunk *chunk, const Fullest *at)
{
  const SpBlockWork *work = e->work[0];
  gint64 sum = 0;

  for (guint b = 0; b < e->program->n_blocks; b++) {
    gint32 after = chunk->counts[b] - at->before[b] - (b == at->block);
    sum += at->before[b] * (at->list == SP_LIST_WEIGHT ? work[b].kept_bytes : work[b].stash_bytes);
    if (at->list == SP_LIST_INPUT)
      sum += after * work[b].kept_bytes;
  }
  return sum;
}

/* Shards of gradients that SYNC has left so far in the chunk's last backward. */
static gint64
reduced_at (const SpEstimateContext *e, const Chunk *chunk, const Fullest *at, const Held *held)
{
  gint64 sum = 0;

  for (guint b = 0; b < e->program->n_blocks && held->is_last; b++)
    sum += (chunk->counts[b] - at->before[b] - (b == at->block && !at->synced)) * e->state[b].reduced;
  return sum;
}

/* What the backward leaves to the block before, once its gradients are reduced. Its second part leaves nothing. */
static gint64
handed_by (const SpEstimateContext *e, const Fullest *at)
{
  return at->list == SP_LIST_BACKWARD ? e->work[0][at->block].handed_bytes : 0;
}

static void
consider (const SpEstimateContext *e, const Chunk *chunk, Fullest *at, const Held *held, Fullest *best)
{
  for (at->synced = FALSE; at->synced <= held->is_last; at->synced++) {
    at->bytes = (at->synced ? handed_by (e, at) : e->work[0][at->block].peak_bytes[at->list]) + beside (e, chunk, at) +
                gathered_at (e, chunk, at, held) + summed_at (e, chunk, at, held) + reduced_at (e, chunk, at, held);
    if (at->bytes > best->bytes)
      *best = *at;
  }
}

/* The block at `l` of the chunk's layers, of which those at the ends may be the embedding and the head; -1: none. */
static gint32
block_at (const SpEstimateContext *e, const Chunk *chunk, gint32 l)
{
  const SpProgram *program = e->program;
  gint32 first = program->stage_first[chunk->virtual_stage], end = program->stage_first[chunk->virtual_stage + 1];
  guint block = l < first ? 0 : l < end ? program->layer_block[l] : program->n_blocks - 1;

  return l < first - 1 || l > end || chunk->counts[block] == 0 ? -1 : (gint32) block;
}

/* Of the blocks after the one at `l`, the first whose backward sums gradients. */
static gint32
summed_before (const SpEstimateContext *e, const Chunk *chunk, gint32 l)
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
find_fullest_in_order (const SpEstimateContext *e, const Chunk *chunk, guint list, const Held *held, Fullest *best)
{
  const gint32 *first = &e->program->stage_first[chunk->virtual_stage];
  const guint8 *blocks = e->program->layer_block;
  Fullest at = { .list = list };

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
static void
find_fullest (const SpEstimateContext *e, const Chunk *chunk, guint list, const Held *held, Fullest *best)
{
  Fullest at = { .list = list, .next = -1, .held = -1 };

  *best = (Fullest){ .bytes = -1 };
  if (list == SP_LIST_INPUT || held->is_last || (gathers_ahead (e) && list != SP_LIST_WEIGHT) ||
      (holds_over (e) && list != SP_LIST_FORWARD)) {
    find_fullest_in_order (e, chunk, list, held, best);
    return;
  }
  for (at.block = 0; at.block < e->program->n_blocks; at.block++)
    if (chunk->counts[at.block] > 0 && has_list (e, at.block, list)) {
      memcpy (at.before, chunk->before[at.block], sizeof at.before);
      consider (e, chunk, &at, held, best);
    }
}

/* --- a stage ------------------------------------------------------------------------------------------------------ */

/* Blocks of each kind that come before the last one of each kind. */
static void
count_before (const SpProgram *program, Chunk *chunk)
{
  gint32 first = program->stage_first[chunk->virtual_stage], end = program->stage_first[chunk->virtual_stage + 1];
  guint head = program->n_blocks - 1, missing = 0;
  gint32 now[SP_MAX_BLOCKS];

  memcpy (now, chunk->counts, sizeof now);
  now[head] = 0;
  memcpy (chunk->before[head], now, sizeof now);
  for (guint b = 1; b < head; b++)
    missing += chunk->counts[b] > 0;
  for (gint32 l = end - 1; l >= first && missing > 0; l--) {
    guint b = program->layer_block[l];
    gboolean is_last = now[b] == chunk->counts[b];
    now[b]--;
    if (is_last) {
      memcpy (chunk->before[b], now, sizeof now);
      missing--;
    }
  }
}

static void
chunk_init (const SpEstimateContext *e, gint32 stage, gint32 c, Chunk *chunk)
{
  const SpProgram *program = e->program;

  memset (chunk, 0, G_STRUCT_OFFSET (Chunk, fullest));
  chunk->virtual_stage = sp_program_virtual_stage (program, stage, c);
  sp_estimate_counts (program, chunk->virtual_stage, chunk->counts);
  count_before (program, chunk);
  for (guint b = 0; b < program->n_blocks; b++) {
    chunk->stash += chunk->counts[b] * e->work[0][b].stash_bytes;
    chunk->summed += chunk->counts[b] * e->state[b].summed;
    chunk->reduced += chunk->counts[b] * e->state[b].reduced;
    chunk->gathered += chunk->counts[b] * kept_of (e, b);
    if (sp_estimate_schedule (program)->splits)
      chunk->kept += chunk->counts[b] * e->work[0][b].kept_bytes;
  }
}

/* What the slot finds: the micro-batch itself is none of the others. */
static void
begin_slot (const SpSlot *slot, Held *held)
{
  if (slot->kind == SP_SLOT_BACKWARD || slot->kind == SP_SLOT_BACKWARD_INPUT)
    held[slot->chunk].full--;
  else if (slot->kind == SP_SLOT_BACKWARD_WEIGHT)
    held[slot->chunk].kept--;
}

static void
end_slot (const SpSlot *slot, Held *held)
{
  if (slot->kind == SP_SLOT_FORWARD)
    held[slot->chunk].full++;
  else if (slot->kind == SP_SLOT_BACKWARD_INPUT)
    held[slot->chunk].kept++;
  if (slot->kind != SP_SLOT_FORWARD)
    held[slot->chunk].summed = slot->kind == SP_SLOT_BACKWARD_INPUT;
  held[slot->chunk].reduced |= held[slot->chunk].is_last;
  held[slot->chunk].is_last = FALSE;
}

static void
consider_slot (const SpEstimateContext *e, const SpSlot *slot, Chunk *chunks, const Held *held, gint64 fixed,
               gboolean keeps, Peak *best, gint32 stage)
{
  const Held *own = &held[slot->chunk];
  guint others = own->full > 0;
  Chunk *chunk = &chunks[slot->chunk];
  Fullest last, *fullest = own->is_last ? &last : &chunk->fullest[slot->kind][others][own->summed];
  gint64 bytes = fixed;

  if (own->is_last || !chunk->is_known[slot->kind][others][own->summed])
    find_fullest (e, chunk, list_of[slot->kind], own, fullest);
  chunk->is_known[slot->kind][others][own->summed] |= !own->is_last;
  for (gint32 c = 0; c < e->program->chunks; c++) {
    bytes += held[c].full * chunks[c].stash + held[c].kept * chunks[c].kept + held[c].reduced * chunks[c].reduced;
    if (c != slot->chunk)
      bytes += (held[c].summed ? chunks[c].summed : 0) + (keeps && held[c].full > 0 ? chunks[c].gathered : 0);
  }
  bytes += fullest->bytes;
  if (bytes <= best->bytes)
    return;
  best->bytes = bytes;
  best->stage = stage;
  best->chunk = slot->chunk;
  best->at = *fullest;
  memcpy (best->held, held, (gsize) e->program->chunks * sizeof *held);
}

/* A forward and a backward with the most in flight, and the last backward. */
static void
consider_most (const SpEstimateContext *e, gint32 stage, Chunk *chunk, gint64 fixed, Peak *best)
{
  const SpProgram *program = e->program;
  const SpPipeline pipeline = { program->stages, 1, program->micro_batches, FALSE };
  const SpSlot forward = { .kind = SP_SLOT_FORWARD }, backward = { .kind = SP_SLOT_BACKWARD };
  const Held held = { .full = sp_estimate_schedule (program)->in_flight (&pipeline, stage) - 1 };
  const Held last = { .is_last = TRUE };

  consider_slot (e, &forward, chunk, &held, fixed, FALSE, best, stage);
  consider_slot (e, &backward, chunk, &held, fixed, FALSE, best, stage);
  if (chunk->reduced > 0)
    consider_slot (e, &backward, chunk, &last, fixed, FALSE, best, stage);
}

/* Slot after which nothing more is added to the chunk's gradients. */
static guint
last_backward (const SpSlot *slots, guint n, gint32 chunk)
{
  guint last = n;

  for (guint i = n; i-- > 0 && last == n;)
    if (slots[i].chunk == chunk && slots[i].kind != SP_SLOT_FORWARD)
      last = i;
  return last;
}

/* The schedule's slots in turn, as many micro-batches as make a difference. */
static void
consider_slots (const SpEstimateContext *e, gint32 stage, Chunk *chunks, gint64 fixed, Peak *best)
{
  const SpProgram *program = e->program;
  const SpSchedule *schedule = sp_estimate_schedule (program);
  SpPipeline pipeline = { program->stages, program->chunks, program->micro_batches, FALSE };
  g_autofree gpointer memory = NULL;
  gboolean keeps = keeps_gathered (e);
  Held held[SP_MAX_CHUNKS];
  guint last[SP_MAX_CHUNKS];

  if (schedule->steady > 0)
    pipeline.micro_batches = MIN (pipeline.micro_batches, schedule->steady * pipeline.stages);
  memset (held, 0, (gsize) program->chunks * sizeof *held);
  gsize size = sp_schedule_most_slots (&pipeline) * sizeof (SpSlot);
  SpSlot *slots = size <= SP_ESTIMATE_MOST_STACK ? g_alloca (size) : (memory = g_malloc (size));
  guint n = schedule->fill (&pipeline, stage, slots);
  for (gint32 c = 0; c < program->chunks; c++)
    last[c] = chunks[c].reduced > 0 ? last_backward (slots, n, c) : n;
  for (guint i = 0; i < n; i++) {
    begin_slot (&slots[i], held);
    held[slots[i].chunk].is_last = i == last[slots[i].chunk];
    consider_slot (e, &slots[i], chunks, held, fixed, keeps, best, stage);
    end_slot (&slots[i], held);
  }
}

/* The optimizer goes over the layers in the order of the model, and what it updates of ZeRO-1 and 2 stays. */
static void
consider_optimizer (const SpEstimateContext *e, gint32 stage, gint64 bytes, Peak *best)
{
  const SpProgram *program = e->program;
  guint head = program->n_blocks - 1;
  Fullest at = { .list = OPTIMIZER_LIST };

  for (gint32 v = 0; v < sp_program_virtual_stages (program); v++) {
    gint32 counts[SP_MAX_BLOCKS], chunk = 0, first = program->stage_first[v], end = program->stage_first[v + 1];
    while (chunk < program->chunks && sp_program_virtual_stage (program, stage, chunk) != v)
      chunk++;
    if (chunk == program->chunks)
      continue;
    sp_estimate_counts (program, v, counts);
    for (gint32 l = first - 1; l <= end; l++) {
      at.block = l < first ? 0 : l < end ? program->layer_block[l] : head;
      if (counts[at.block] == 0)
        continue;
      const SpBlockState *state = &e->state[at.block];
      bytes += state->step_end[SP_CLASS_PARAMETERS];
      if (bytes + state->optimizer_bytes > best->bytes)
        *best = (Peak){ .bytes = bytes + state->optimizer_bytes, .stage = stage, .at = at };
      at.before[at.block]++;
    }
  }
}

static void
consider_stage (const SpEstimateContext *e, gint32 stage, Peak *best)
{
  const SpProgram *program = e->program;
  Chunk *chunks = g_newa (Chunk, program->chunks);
  gint64 fixed = 0, step_end = 0, updated = 0, workspace = 0;

  for (gint32 c = 0; c < program->chunks; c++) {
    chunk_init (e, stage, c, &chunks[c]);
    for (guint b = 0; b < program->n_blocks; b++) {
      fixed += chunks[c].counts[b] * e->state[b].always_bytes;
      step_end += chunks[c].counts[b] * e->state[b].step_end_bytes;
      updated += chunks[c].counts[b] * e->state[b].step_end[SP_CLASS_PARAMETERS];
      workspace += chunks[c].counts[b] * e->state[b].optimizer_bytes;
    }
  }
  if (fixed + step_end > best->bytes) {
    *best = (Peak){ .bytes = fixed + step_end, .stage = stage };
    best->at.list = SP_N_LISTS;
  }
  if (workspace > 0)
    consider_optimizer (e, stage, fixed + step_end - updated, best);
  if (sp_estimate_schedule (program)->in_flight != NULL)
    consider_most (e, stage, chunks, fixed, best);
  else
    consider_slots (e, stage, chunks, fixed, best);
}

/* --- classes ------------------------------------------------------------------------------------------------------ */

static void
add_classes (SpMemory *ret, const gint64 *bytes, double times)
{
  for (guint c = 0; c < SP_N_CLASSES; c++)
    ret->by_class[c] += times * (double) bytes[c];
}

/* What a chunk holds of other micro-batches, and of all it always has. */
static void
classify_held (const SpEstimateContext *e, const Chunk *chunk, const Held *held, SpMemory *ret)
{
  for (guint b = 0; b < e->program->n_blocks; b++) {
    add_classes (ret, e->work[0][b].stash, (double) held->full * chunk->counts[b]);
    if (held->kept > 0)
      add_classes (ret, e->work[0][b].kept, (double) held->kept * chunk->counts[b]);
  }
}

static void
classify_list (const SpEstimateContext *e, const Chunk *chunk, const Fullest *at, const Held *held, SpMemory *ret)
{
  for (guint b = 0; b < e->program->n_blocks; b++) {
    const SpBlockWork *work = &e->work[0][b];
    add_classes (ret, at->list == SP_LIST_WEIGHT ? work->kept : work->stash, at->before[b]);
    if (at->list == SP_LIST_INPUT)
      add_classes (ret, work->kept, chunk->counts[b] - at->before[b] - (b == at->block));
  }
  if (at->synced)
    ret->by_class[SP_CLASS_ACTIVATIONS] += (double) handed_by (e, at);
  else
    add_classes (ret, e->work[0][at->block].peak[at->list], 1);
  ret->by_class[SP_CLASS_PARAMETERS] += (double) gathered_at (e, chunk, at, held);
  ret->by_class[SP_CLASS_GRADIENTS] += (double) (summed_at (e, chunk, at, held) + reduced_at (e, chunk, at, held));
}

static void
classify (const SpEstimateContext *e, const Peak *peak, SpMemory *ret)
{
  gboolean keeps = keeps_gathered (e);

  for (gint32 c = 0; c < e->program->chunks; c++) {
    const Held *held = &peak->held[c];
    Chunk chunk;

    chunk_init (e, peak->stage, c, &chunk);
    for (guint b = 0; b < e->program->n_blocks; b++) {
      add_classes (ret, e->state[b].always, chunk.counts[b]);
      if (peak->at.list >= SP_N_LISTS)
        add_classes (ret, e->state[b].step_end, chunk.counts[b]);
      if (peak->at.list == OPTIMIZER_LIST) /* not yet updated */
        ret->by_class[SP_CLASS_PARAMETERS] -=
            (double) chunk.counts[b] * (double) e->state[b].step_end[SP_CLASS_PARAMETERS];
    }
    if (peak->at.list >= SP_N_LISTS)
      continue;
    classify_held (e, &chunk, held, ret);
    ret->by_class[SP_CLASS_GRADIENTS] += held->reduced ? (double) chunk.reduced : 0;
    if (c == peak->chunk)
      classify_list (e, &chunk, &peak->at, held, ret);
    else {
      ret->by_class[SP_CLASS_GRADIENTS] += held->summed ? (double) chunk.summed : 0;
      ret->by_class[SP_CLASS_PARAMETERS] += keeps && held->full > 0 ? (double) chunk.gathered : 0;
    }
  }
}

static void
classify_optimizer (const SpEstimateContext *e, const Fullest *at, SpMemory *ret)
{
  for (guint b = 0; b < e->program->n_blocks; b++)
    ret->by_class[SP_CLASS_PARAMETERS] +=
        (double) (at->before[b] + (b == at->block)) * (double) e->state[b].step_end[SP_CLASS_PARAMETERS];
  ret->by_class[SP_CLASS_WORKSPACE] += (double) e->state[at->block].optimizer_bytes;
}

static const char *const moments[SP_N_BLOCK_KINDS][SP_N_LISTS] = {
  [SP_BLOCK_EMBEDDING] = { "forward of the embedding", "backward of the embedding", "backward-input of the embedding",
                           "backward-weight of the embedding" },
  [SP_BLOCK_SOFTMAX] = { "forward of the last softmax layer", "backward of the last softmax layer",
                         "backward-input of a softmax layer", "backward-weight of the last softmax layer" },
  [SP_BLOCK_LINEAR] = { "forward of the last linear layer", "backward of the last linear layer",
                        "backward-input of a linear layer", "backward-weight of the last linear layer" },
  [SP_BLOCK_HEAD] = { "forward of the head", "backward of the head", "backward-input of the head",
                      "backward-weight of the head" },
};

/* While others' gradients are reduced already. */
static const char *const last_moments[SP_N_BLOCK_KINDS] = {
  [SP_BLOCK_EMBEDDING] = "last backward of the embedding",
  [SP_BLOCK_SOFTMAX] = "last backward of a softmax layer",
  [SP_BLOCK_LINEAR] = "last backward of a linear layer",
  [SP_BLOCK_HEAD] = "last backward of the head",
};

static gboolean
has_checkpoint (const SpEstimateContext *e)
{
  gboolean has = FALSE;

  for (guint b = 0; b < e->program->n_blocks; b++)
    has |= e->state[b].checkpoint_bytes > 0;
  return has;
}

/* States beside what lives as checkpoints are made, which the allocator takes apart from what a step leaves of it. */
static void
consider_checkpoint (const SpEstimateContext *e, const SpFramework *framework, SpMemory *ret)
{
  for (gint32 stage = 0; stage < e->program->stages; stage++) {
    SpMemory at = { .stage = stage, .moment = "checkpoint, parameters whole in fp32", .host_bytes = ret->host_bytes };
    gint32 counts[SP_MAX_BLOCKS];
    for (gint32 c = 0; c < e->program->chunks; c++) {
      sp_estimate_counts (e->program, sp_program_virtual_stage (e->program, stage, c), counts);
      for (guint b = 0; b < e->program->n_blocks; b++) {
        add_classes (&at, e->state[b].always, counts[b]);
        at.by_class[SP_CLASS_PARAMETERS] += (double) counts[b] * (double) e->state[b].checkpoint_bytes;
      }
    }
    at.by_class[SP_CLASS_RESERVED] = framework->reserved_bytes.value;
    for (guint c = 0; c < SP_N_CLASSES; c++)
      at.total_bytes += at.by_class[c];
    if (at.total_bytes > ret->total_bytes)
      *ret = at;
  }
}

void
sp_estimate_memory (const SpEstimateContext *e, const SpFramework *framework, SpMemory *ret)
{
  const SpSchedule *schedule = sp_estimate_schedule (e->program);
  gboolean plain = schedule->in_flight != NULL;
  Peak best;

  best.bytes = 0;
  /* Without chunks and parts a twin of the stage before holds no more micro-batches. */
  for (gint32 stage = 0; stage < e->program->stages; stage++)
    if (!plain || !sp_estimate_is_twin (e->program, stage))
      consider_stage (e, stage, &best);
  *ret = (SpMemory){ .stage = best.stage };
  ret->moment = best.at.list == SP_N_LISTS       ? "end of the step"
                : best.at.list == OPTIMIZER_LIST ? "optimizer's step of a layer"
                : best.held[best.chunk].is_last  ? last_moments[e->work[0][best.at.block].kind]
                                                 : moments[e->work[0][best.at.block].kind][best.at.list];
  classify (e, &best, ret);
  if (best.at.list == OPTIMIZER_LIST)
    classify_optimizer (e, &best.at, ret);
  ret->by_class[SP_CLASS_RESERVED] =
      framework->reserved_bytes.value + framework->allocator_slack.value * (double) best.bytes;
  ret->total_bytes = (double) best.bytes + ret->by_class[SP_CLASS_RESERVED];
  ret->host_bytes = sp_estimate_host_bytes (e) * (1 + framework->host_slack.value);
  if (has_checkpoint (e))
    consider_checkpoint (e, framework, ret);
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
    sp_block_work_memory (program, block, &work[b]);
    sp_block_state_memory (program, block, &state[b]);
  }
  sp_estimate_memory (&e, framework, ret);
}

gint64
sp_memory_block_stash (const SpBlock *block)
{
  gint64 bytes = 0;

  for (guint slot = 1; slot < block->n_buffers; slot++)
    if (block->buffers[slot].life == SP_LIFE_STASH)
      bytes += block->buffers[slot].bytes;
  return bytes;
}

gint64
sp_memory_block_always (const SpProgram *program, const SpBlock *block)
{
  SpBlockState state;

  sp_block_state_memory (program, block, &state);
  return state.always_bytes;
}
