/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/memory-private.h"

void
sp_memory_add_classes (SpMemory *ret, const gint64 *bytes, double times)
{
  for (guint c = 0; c < SP_N_CLASSES; c++)
    ret->by_class[c] += times * (double) bytes[c];
}

/* What a chunk holds of other micro-batches, and of all it always has. */
static void
classify_held (const SpEstimateContext *e, const SpMemoryChunk *chunk, const SpMemoryPeak *peak,
               const SpMemoryHeld *held, SpMemory *ret)
{
  for (gint32 v = 0; v < e->program->n_variants && e->program->slices > 0; v++)
    for (guint b = 0; b < e->program->n_blocks; b++)
      sp_memory_add_classes (ret, e->work[v][b].stash, (double) peak->variants[v] * chunk->counts[b]);
  if (e->program->slices > 0)
    return;
  for (guint b = 0; b < e->program->n_blocks; b++) {
    sp_memory_add_classes (ret, e->work[0][b].stash, (double) held->full * chunk->counts[b]);
    if (held->kept > 0)
      sp_memory_add_classes (ret, e->work[0][b].kept, (double) held->kept * chunk->counts[b]);
  }
}

static void
classify_optimizer (const SpEstimateContext *e, const SpMemoryFullest *at, SpMemory *ret)
{
  for (guint b = 0; b < e->program->n_blocks; b++)
    ret->by_class[SP_CLASS_PARAMETERS] +=
        (double) (at->before[b] + (b == at->block)) * (double) e->state[b].step_end[SP_CLASS_PARAMETERS];
  ret->by_class[SP_CLASS_WORKSPACE] += (double) e->state[at->block].optimizer_bytes;
}

void
sp_memory_classify (const SpEstimateContext *e, const SpMemoryPeak *peak, SpMemory *ret)
{
  gboolean keeps = sp_memory_keeps_gathered (e);

  for (gint32 c = 0; c < e->program->chunks; c++) {
    const SpMemoryHeld *held = &peak->held[c];
    SpMemoryChunk chunk;

    sp_memory_chunk_init (e, peak->stage, c, &chunk);
    for (guint b = 0; b < e->program->n_blocks; b++) {
      sp_memory_add_classes (ret, e->state[b].always, chunk.counts[b]);
      if (peak->at.list >= SP_N_LISTS)
        sp_memory_add_classes (ret, e->state[b].step_end, chunk.counts[b]);
      if (peak->at.list == SP_MEMORY_OPTIMIZER_LIST) /* not yet updated */
        ret->by_class[SP_CLASS_PARAMETERS] -=
            (double) chunk.counts[b] * (double) e->state[b].step_end[SP_CLASS_PARAMETERS];
    }
    if (peak->at.list >= SP_N_LISTS)
      continue;
    classify_held (e, &chunk, peak, held, ret);
    ret->by_class[SP_CLASS_GRADIENTS] += held->reduced ? (double) chunk.reduced : 0;
    if (c == peak->chunk)
      sp_memory_classify_list (e, &chunk, &peak->at, held, ret);
    else {
      ret->by_class[SP_CLASS_GRADIENTS] += held->summed ? (double) chunk.summed : 0;
      ret->by_class[SP_CLASS_PARAMETERS] += keeps && held->full > 0 ? (double) chunk.gathered : 0;
    }
  }
  if (peak->at.list == SP_MEMORY_OPTIMIZER_LIST)
    classify_optimizer (e, &peak->at, ret);
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

const char *
sp_memory_moment (const SpEstimateContext *e, const SpMemoryPeak *peak)
{
  const SpMemoryFullest *at = &peak->at;

  if (at->list == SP_N_LISTS)
    return "end of the step";
  if (at->list == SP_MEMORY_OPTIMIZER_LIST)
    return "optimizer's step of a layer";
  SpBlockKind kind = e->work[0][at->block].kind;
  return peak->held[peak->chunk].is_last ? last_moments[kind] : moments[kind][at->list];
}
