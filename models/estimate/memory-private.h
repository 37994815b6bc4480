/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of memory.h share: memory.c (who is in flight, and where the peak is), memory-list.c (what is held
 * beside an op list of a block, and the fullest of them), memory-classes.c (what of a peak is of which class). */

#include "models/estimate/block-cost.h"
#include "models/estimate/memory.h"

G_BEGIN_DECLS

/* Of gradients that slices add up (SP_LIFE_ACCUMULATED), where they are: on no block; on those whose backward has been;
 * on all; on those whose backward is still to come. */
typedef enum { SP_MEMORY_SUMS_NONE, SP_MEMORY_SUMS_BEGIN, SP_MEMORY_SUMS_ALL, SP_MEMORY_SUMS_END } SpMemorySums;

/* What a chunk of a stage holds besides the micro-batch in question. */
typedef struct {
  gint32 full;               /* micro-batches between forward and backward */
  gint32 kept;               /* of a backward in two parts, between the parts */
  gboolean summed;           /* gradients that SYNC has not scattered yet */
  gboolean is_last, reduced; /* the backward that an eager SYNC runs beside is under way; is over */
  gint32 variant;            /* of the micro-batch, where it is a slice */
  guint8 sums;               /* SpMemorySums */
} SpMemoryHeld;

/* The fullest list of a slot: a block's, with so many blocks of each kind before it in the chunk and after it. */
typedef struct {
  gint64 bytes;
  gboolean synced; /* behind the list, with the block's own gradients reduced */
  guint list, block;
  gint32 next; /* the block whose turn comes after it, -1 none */
  gint32 held; /* of those whose turn came before it in the backward, the last that sums gradients, -1 none */
  gint32 before[SP_MAX_BLOCKS];
} SpMemoryFullest;

/* Where the peak is: a list, or (list SP_N_LISTS) the end of the step, or the optimizer's list of a block; and what lies
 * beside it. */
#define SP_MEMORY_OPTIMIZER_LIST (SP_N_LISTS + 1)

typedef struct {
  gint64 bytes;
  gint32 stage, chunk;
  SpMemoryFullest at;
  SpMemoryHeld held[SP_MAX_CHUNKS];
  gint32 variants[SP_MAX_VARIANTS]; /* where there are slices: of each, how many are held besides */
} SpMemoryPeak;

/* Sums over a chunk's blocks. */
typedef struct {
  gint32 counts[SP_MAX_BLOCKS];
  gint32 before[SP_MAX_BLOCKS][SP_MAX_BLOCKS]; /* the last block of each kind */
  gint32 virtual_stage;
  gint64 stash, kept, summed, reduced, gathered; /* gathered: if it stays for the backward */
  guint8 is_known[SP_N_SLOT_KINDS][2][2];
  SpMemoryFullest fullest[SP_N_SLOT_KINDS][2][2]; /* with others in flight or not, gradients summed or not */
} SpMemoryChunk;

/* --- memory.c ----------------------------------------------------------------------------------------------------- */

void sp_memory_chunk_init (const SpEstimateContext *e, gint32 stage, gint32 c, SpMemoryChunk *chunk);

/* --- memory-slices.c ---------------------------------------------------------------------------------------------- */

void sp_memory_consider_slices (const SpEstimateContext *e, gint32 stage, SpMemoryChunk *chunk, gint64 fixed,
                                SpMemoryPeak *best);

/* --- memory-list.c ------------------------------------------------------------------------------------------------ */

/* Of what a block's forward gathers, what stays for its backward; and whether some block's does. */
gint64 sp_memory_kept_of (const SpEstimateContext *e, guint block);
gboolean sp_memory_keeps_gathered (const SpEstimateContext *e);
void sp_memory_find_fullest (const SpEstimateContext *e, const SpMemoryChunk *chunk, guint list,
                             const SpMemoryHeld *held, SpMemoryFullest *best);
/* Adds what is held of the chunk's micro-batch in the list, and of its neighbours. */
void sp_memory_classify_list (const SpEstimateContext *e, const SpMemoryChunk *chunk, const SpMemoryFullest *at,
                              const SpMemoryHeld *held, SpMemory *ret);

/* --- memory-classes.c --------------------------------------------------------------------------------------------- */

/* [SP_N_CLASSES] bytes. */
void sp_memory_add_classes (SpMemory *ret, const gint64 *bytes, double times);
void sp_memory_classify (const SpEstimateContext *e, const SpMemoryPeak *peak, SpMemory *ret);
const char *sp_memory_moment (const SpEstimateContext *e, const SpMemoryPeak *peak);

G_END_DECLS
