/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/memory-private.h"

#include <string.h>

static const guint list_of[SP_N_SLOT_KINDS] = {
  [SP_SLOT_FORWARD] = SP_LIST_FORWARD,
  [SP_SLOT_BACKWARD] = SP_LIST_BACKWARD,
  [SP_SLOT_BACKWARD_INPUT] = SP_LIST_INPUT,
  [SP_SLOT_BACKWARD_WEIGHT] = SP_LIST_WEIGHT,
};

/* --- a stage ------------------------------------------------------------------------------------------------------ */

/* Blocks of each kind that come before the last one of each kind. */
static void
count_before (const SpProgram *program, SpMemoryChunk *chunk)
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

void
sp_memory_chunk_init (const SpEstimateContext *e, gint32 stage, gint32 c, SpMemoryChunk *chunk)
{
  const SpProgram *program = e->program;

  memset (chunk, 0, G_STRUCT_OFFSET (SpMemoryChunk, fullest));
  chunk->virtual_stage = sp_program_virtual_stage (program, stage, c);
  sp_estimate_counts (program, chunk->virtual_stage, chunk->counts);
  count_before (program, chunk);
  for (guint b = 0; b < program->n_blocks; b++) {
    chunk->stash += chunk->counts[b] * e->work[0][b].stash_bytes;
    chunk->summed += chunk->counts[b] * e->state[b].summed;
    chunk->reduced += chunk->counts[b] * e->state[b].reduced;
    chunk->gathered += chunk->counts[b] * sp_memory_kept_of (e, b);
    if (sp_estimate_schedule (program)->splits)
      chunk->kept += chunk->counts[b] * e->work[0][b].kept_bytes;
  }
}

/* What the slot finds: the micro-batch itself is none of the others. */
static void
begin_slot (const SpSlot *slot, SpMemoryHeld *held)
{
  if (slot->kind == SP_SLOT_BACKWARD || slot->kind == SP_SLOT_BACKWARD_INPUT)
    held[slot->chunk].full--;
  else if (slot->kind == SP_SLOT_BACKWARD_WEIGHT)
    held[slot->chunk].kept--;
}

static void
end_slot (const SpSlot *slot, SpMemoryHeld *held)
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
consider_slot (const SpEstimateContext *e, const SpSlot *slot, SpMemoryChunk *chunks, const SpMemoryHeld *held,
               gint64 fixed, gboolean keeps, SpMemoryPeak *best, gint32 stage)
{
  const SpMemoryHeld *own = &held[slot->chunk];
  guint others = own->full > 0;
  SpMemoryChunk *chunk = &chunks[slot->chunk];
  SpMemoryFullest last, *fullest = own->is_last ? &last : &chunk->fullest[slot->kind][others][own->summed];
  gint64 bytes = fixed;

  if (own->is_last || !chunk->is_known[slot->kind][others][own->summed])
    sp_memory_find_fullest (e, chunk, list_of[slot->kind], own, fullest);
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
consider_most (const SpEstimateContext *e, gint32 stage, SpMemoryChunk *chunk, gint64 fixed, SpMemoryPeak *best)
{
  const SpProgram *program = e->program;
  const SpPipeline pipeline = sp_program_pipeline (program);
  const SpSlot forward = { .kind = SP_SLOT_FORWARD }, backward = { .kind = SP_SLOT_BACKWARD };
  const SpMemoryHeld held = { .full = sp_estimate_schedule (program)->in_flight (&pipeline, stage) - 1 };
  const SpMemoryHeld last = { .is_last = TRUE };

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
consider_slots (const SpEstimateContext *e, gint32 stage, SpMemoryChunk *chunks, gint64 fixed, SpMemoryPeak *best)
{
  const SpProgram *program = e->program;
  const SpSchedule *schedule = sp_estimate_schedule (program);
  SpPipeline pipeline = sp_program_pipeline (program);
  g_autofree gpointer memory = NULL;
  gboolean keeps = sp_memory_keeps_gathered (e);
  SpMemoryHeld held[SP_MAX_CHUNKS];
  guint last[SP_MAX_CHUNKS];

  gint32 steady = sp_schedule_steady (schedule, &pipeline);
  if (steady > 0)
    pipeline.micro_batches = MIN (pipeline.micro_batches, steady);
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
consider_optimizer (const SpEstimateContext *e, gint32 stage, gint64 bytes, SpMemoryPeak *best)
{
  const SpProgram *program = e->program;
  guint head = program->n_blocks - 1;
  SpMemoryFullest at = { .list = SP_MEMORY_OPTIMIZER_LIST };

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
        *best = (SpMemoryPeak){ .bytes = bytes + state->optimizer_bytes, .stage = stage, .at = at };
      at.before[at.block]++;
    }
  }
}

static void
consider_stage (const SpEstimateContext *e, gint32 stage, SpMemoryPeak *best)
{
  const SpProgram *program = e->program;
  SpMemoryChunk *chunks = g_newa (SpMemoryChunk, program->chunks);
  gint64 fixed = 0, step_end = 0, updated = 0, workspace = 0;

  for (gint32 c = 0; c < program->chunks; c++) {
    sp_memory_chunk_init (e, stage, c, &chunks[c]);
    for (guint b = 0; b < program->n_blocks; b++) {
      fixed += chunks[c].counts[b] * e->state[b].always_bytes;
      step_end += chunks[c].counts[b] * e->state[b].step_end_bytes;
      updated += chunks[c].counts[b] * e->state[b].step_end[SP_CLASS_PARAMETERS];
      workspace += chunks[c].counts[b] * e->state[b].optimizer_bytes;
    }
  }
  if (fixed + step_end > best->bytes) {
    *best = (SpMemoryPeak){ .bytes = fixed + step_end, .stage = stage };
    best->at.list = SP_N_LISTS;
  }
  if (workspace > 0)
    consider_optimizer (e, stage, fixed + step_end - updated, best);
  if (program->slices > 0)
    sp_memory_consider_slices (e, stage, chunks, fixed, best);
  else if (sp_estimate_schedule (program)->in_flight != NULL)
    consider_most (e, stage, chunks, fixed, best);
  else
    consider_slots (e, stage, chunks, fixed, best);
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

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
        sp_memory_add_classes (&at, e->state[b].always, counts[b]);
        at.by_class[SP_CLASS_PARAMETERS] += (double) counts[b] * (double) e->state[b].checkpoint_bytes;
      }
    }
    at.by_class[SP_CLASS_WORKSPACE] = framework->workspace_bytes.value;
    at.by_class[SP_CLASS_RESERVED] = framework->reserved_bytes.value;
    for (guint c = 0; c < SP_N_CLASSES; c++)
      at.total_bytes += at.by_class[c];
    if (at.total_bytes > ret->total_bytes)
      *ret = at;
  }
}

static gint64
kept_gathers (const SpEstimateContext *e, const SpFramework *framework)
{
  gint64 most = 0;

  for (guint b = 0; b < e->program->n_blocks && framework->keeps_gathers; b++)
    most = MAX (most, e->work[0][b].gathered_bytes);
  return 2 * most;
}

void
sp_memory_add_framework (const SpFramework *framework, double gathers_bytes, SpMemory *ret)
{
  double bytes = ret->total_bytes;

  ret->gathers_bytes = gathers_bytes;
  ret->by_class[SP_CLASS_COMMUNICATION] += gathers_bytes;
  ret->by_class[SP_CLASS_WORKSPACE] += framework->workspace_bytes.value;
  ret->by_class[SP_CLASS_RESERVED] = framework->reserved_bytes.value + framework->allocator_slack.value * bytes;
  ret->total_bytes += gathers_bytes + framework->workspace_bytes.value + ret->by_class[SP_CLASS_RESERVED];
}

/* What the stage whose peak it is holds, with what the framework adds. */
static void
set_peak (const SpEstimateContext *e, const SpFramework *framework, const SpMemoryPeak *peak, SpMemory *ret)
{
  *ret = (SpMemory){ .total_bytes = (double) peak->bytes, .stage = peak->stage, .moment = sp_memory_moment (e, peak) };
  sp_memory_classify (e, peak, ret);
  sp_memory_add_framework (framework, (double) kept_gathers (e, framework), ret);
}

void
sp_estimate_memory (const SpEstimateContext *e, const SpFramework *framework, SpMemory *ret)
{
  const SpSchedule *schedule = sp_estimate_schedule (e->program);
  gboolean plain = schedule->in_flight != NULL;
  SpMemoryPeak best;

  best.bytes = 0;
  /* Without chunks and parts a twin of the stage before holds no more micro-batches. */
  for (gint32 stage = 0; stage < e->program->stages; stage++)
    if (!plain || !sp_estimate_is_twin (e->program, stage))
      consider_stage (e, stage, &best);
  set_peak (e, framework, &best, ret);
  ret->host_bytes = sp_estimate_host_bytes (e) * (1 + framework->host_slack.value);
  if (has_checkpoint (e))
    consider_checkpoint (e, framework, ret);
}

void
sp_estimate_memory_of_first (const SpEstimateContext *e, const SpFramework *framework, SpMemory *ret)
{
  SpMemoryPeak best;

  best.bytes = 0;
  consider_stage (e, 0, &best);
  set_peak (e, framework, &best, ret);
}

void
sp_memory_estimate (const SpProgram *program, const SpFramework *framework, SpMemory *ret)
{
  g_autofree SpBlockWork *work = g_new (SpBlockWork, (guint) program->n_variants * program->n_blocks);
  SpBlockState state[SP_MAX_BLOCKS];
  SpEstimateContext e = { .program = program, .state = state };

  for (gint32 v = 0; v < program->n_variants; v++) {
    SpBlockWork *of = work + (guint) v * program->n_blocks;
    e.work[v] = of;
    for (guint b = 0; b < program->n_blocks; b++) {
      const SpBlock *block = &program->variants[v].blocks[b];
      of[b].kind = block->kind;
      sp_block_work_memory (program, block, &of[b]);
    }
  }
  for (guint b = 0; b < program->n_blocks; b++)
    sp_block_state_memory (program, &program->variants[0].blocks[b], &state[b]);
  sp_estimate_memory (&e, framework, ret);
}

void
sp_memory_add_run_ahead (double bytes, double capacity_bytes, SpMemory *ret)
{
  double added = MIN (bytes, MAX (capacity_bytes - ret->total_bytes, 0));

  ret->is_crowded = added < bytes;
  ret->run_ahead_bytes = added;
  ret->by_class[SP_CLASS_COMMUNICATION] += added;
  ret->total_bytes += added;
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
