/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Memory over simulated time: what lives on a rank while it walks through its lists, its largest, and what that is made
 * of. Bytes of the program's buffers; what the framework and the allocator hold besides is the caller's to add.
 *
 * Buffers begin and end by their lives (SpLife), as the rehearsal makes and drops its storage: it begins when an op
 * first writes it (SUMMED: with BACKWARD; what comes over the pipeline: at RECEIVE) and ends as models/rehearse says;
 * gradients that an async SYNC reads are held over (sim/walk.h).
 * A backward in two parts: a slot that ops of both parts use lives until its last use in the second; one that only the
 * second uses lives there; what ends "with BACKWARD" ends with the part that uses it last. Parameters gathered for the
 * backward end with the first part if no op of the second uses them. Gradients that are summed start with the first.
 *
 * Cost. What a list adds and frees depends on little: its block and those beside it, variant, phase, part, place in the
 * groups that its guards name, and which parameters, gradients and shards of the layer live already. All lists that
 * agree in these share a PROFILE: what it leaves, and its largest excess over its start. It is made at the first list
 * of its kind by going through the ops once; after that sp_memory_item() is a look-up and sums by class, about 20 ns.
 * Only lives that span micro-batches (GATHERED, SUMMED, STEP_END) are counted one by one: a word and counts a layer.
 *
 * When memory peaks does not depend on dates, only on the order of the lists: so a peak can be explained afterwards
 * (sp_memory_list_peak) from the program and the rank alone.
 *
 * Known lies. But for what is held over, an async op counts as over at the end of its list, on its way to the host with
 * itself: what it reads may live longer, what it writes begins with it. Nothing is lost to fragmentation.
 */

#include "sim/clock.h"
#include "sim/walk.h"

G_BEGIN_DECLS

#define SP_MEMORY_ERROR (sp_memory_error_quark ())
GQuark sp_memory_error_quark (void);

typedef enum { SP_MEMORY_ERROR_PROGRAM } SpMemoryError;

/* Profiles of a program, made when first needed. Borrows program and walk. For one thread. */
typedef struct _SpMemoryPlan SpMemoryPlan;

/* NULL with an error where a block cannot be followed: Y or DX that are views, too many buffers of a step's life. */
SpMemoryPlan *sp_memory_plan_new (const SpProgram *program, const SpWalkPlan *walk, GError **error);
void sp_memory_plan_free (SpMemoryPlan *plan);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpMemoryPlan, sp_memory_plan_free)

/* What lives on one rank, or on each of a role. */
typedef struct {
  gint32 stage;
  guint place_class; /* of the plan: which guards hold */
  guint32 n_items;   /* walked */

  gint64 live_bytes; /* after the last item */
  gint64 live_by_class[SP_N_CLASSES];
  gint64 item_bytes; /* the largest within the last item */
  gint64 item_by_class[SP_N_CLASSES];

  gint64 peak_bytes;
  gint64 peak_by_class[SP_N_CLASSES]; /* at that moment */
  SpTime peak_at;
  SpItem peak_item;   /* the first that came to it; before any, micro_batch is -1 and peak_index G_MAXUINT32 */
  guint peak_op;      /* in its list, at whose start it is full */
  gint32 peak_step;   /* of the loop that the op stands in */
  guint32 peak_index; /* which item of the walk */

  gint32 held; /* position whose gradients are held over, of those that live; -1 none */
  gint32 held_slot;

  guint32 *live;  /* [position] bits: buffers of the step's life, in the block's order */
  gint32 *claims; /* [position][of those] uses of gathered parameters that are not over */
} SpMemoryState;

/* What lives ALWAYS. `state` is blank or cleared; it allocates here and nowhere else. Either for a rank at the place
 * where every guard on places holds (none needs more), or for the place of one rank. */
void sp_memory_start (SpMemoryPlan *plan, gint32 stage, SpMemoryState *state);
void sp_memory_start_rank (SpMemoryPlan *plan, gint32 rank, SpMemoryState *state);
void sp_memory_state_clear (SpMemoryState *state);

/* Goes through the next item of the state's walk: to be called at its start. Before the call live_* is what lives at
 * that moment, and what the slot before held over; after it, at the item's end, and item_* at its fullest moment. TRUE:
 * it comes to a new peak, at the start of op *ret_op of its list (0 of SEND and RECEIVE). Whoever keeps dates says when
 * that was: sp_memory_peak_at(). */
gboolean sp_memory_item (SpMemoryPlan *plan, SpMemoryState *state, const SpItem *item, guint *ret_op);

static inline void
sp_memory_peak_at (SpMemoryState *state, SpTime date)
{
  state->peak_at = date;
}

/* --- what a peak is made of --------------------------------------------------------------------------------------- */

typedef struct {
  gint64 bytes; /* of all of them */
  gint32 layer; /* or SP_LAYER_EMBEDDING, SP_LAYER_HEAD */
  gint32 count; /* micro-batches that have one; 1 of what is the step's */
  guint8 block, slot;
  guint8 class; /* SpClass */
  guint8 life;  /* SpLife */
} SpLiveBuffer;

/* All that lives at the fullest moment of item `index` of a rank's walk: a GArray of SpLiveBuffer whose bytes sum to
 * item_bytes, largest first, then by position and slot. Walks the step up to there. */
GArray *sp_memory_list_item (SpMemoryPlan *plan, gint32 rank, guint32 index);
/* The same at the peak. `ret_state` (unless NULL) is the state at the end of the step; clear it. */
GArray *sp_memory_list_peak (SpMemoryPlan *plan, gint32 rank, SpMemoryState *ret_state);

/* The same for people: a row for each class, kind of block and life, largest first; `layer`, `slot` of the largest in
 * it, `count` the buffers. */
GArray *sp_memory_merge (const SpProgram *program, const GArray *buffers);

G_END_DECLS
