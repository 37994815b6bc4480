/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The walk: all that the ranks of a pipeline stage do in a step, op list by op list, in the order that program.h lays
 * down and the schedule gives. Every reader that runs a program walks it so. A walk is a cursor: nothing is written out
 * per layer x micro-batch, but the slots of each stage.
 *
 * Positions. A stage holds `chunks` of consecutive layers, each a virtual stage; its block instances are numbered from
 * 0, chunk after chunk, in the order of the model within a chunk (the embedding before, the head after its layers).
 *
 * Lists and filters. Of an item's list those ops run for which (op.flags & mask) == flags. The backward in two parts is
 * the same list twice: ops not flagged SP_OP_WEIGHT (with GATHER and RECOMPUTE before it), later those flagged (and
 * then SYNC).
 *
 * Order. PROGRAM is the plain one of program.h. EAGER is that of a framework that overlaps; what is moved are the
 * lists of async data communication:
 *    - GATHER of the next list's block comes before FORWARD, or RECOMPUTE and BACKWARD, of this one, within a slot;
 *    - once-a-step SYNC of a block comes after its BACKWARD of the last micro-batch that its chunk runs, unless an op
 *      of it spans pipeline stages.
 * A list moves only if it has an async op. The ops keep their meaning: a block waits for its own gather.
 *
 * Held over. In the eager order SYNC runs beside the next block's BACKWARD. So gradients that live SUMMED and that an
 * async op of it reads stay until the end of the next BACKWARD that sums any, which waits for that SYNC: one block's at
 * a time, as in FSDP2. Where none follows in the slot, they stay until the slot's end. All readers keep to this.
 *
 * Scope (SpScope). FORWARD: the schedule's forward slots in their order, and nothing at the end. LAYER: a forward and a
 * backward slot of micro-batch 0, of which the first layer's FORWARD, RECOMPUTE and BACKWARD; its parameters are taken
 * to be there. ATTENTION: the same lists, filtered by SP_OP_CORE.
 */

#include "sim/program.h"
#include "sim/schedules.h"

G_BEGIN_DECLS

typedef enum { SP_ORDER_PROGRAM, SP_ORDER_EAGER } SpWalkOrder;

/* A list of a block, or what the pipeline does between: GATHER puts together what was received in parts. */
typedef enum { SP_ITEM_LIST, SP_ITEM_SEND, SP_ITEM_RECEIVE, SP_ITEM_GATHER } SpItemKind;

typedef struct {
  guint8 kind;        /* SpItemKind */
  guint8 phase;       /* SpPhase of a list */
  guint8 backward;    /* of the pipeline's: gradients, against the order of the stages */
  guint8 chunk;       /* of this stage */
  guint16 flags;      /* SpOpFlags that ops must have ... */
  guint16 mask;       /* ... among these */
  gint32 position;    /* of the pipeline's: whose buffer it is */
  gint32 micro_batch; /* or a slice's number (sim/schedules.h); -1: of the step */
  gint32 slot;        /* of the schedule; beyond the last slot: what ends the step */
  gint32 peer;        /* of the pipeline's: the stage at the other end */
  gint32 boundary; /* of the pipeline's: virtual stage before it. (boundary, backward, micro_batch) names a message */
} SpItem;

/* A block instance of a stage. */
typedef struct {
  gint32 layer; /* or SP_LAYER_EMBEDDING, SP_LAYER_HEAD */
  guint8 block;
  guint8 chunk;
} SpPosition;

const char *sp_item_name (SpItemKind kind);

#define SP_LAYER_EMBEDDING (-1)
#define SP_LAYER_HEAD (-2)

/* Whether a block's GATHER, or the part of its SYNC that runs once a step, moves in the eager order. */
gboolean sp_walk_list_moves (const SpProgram *program, const SpBlock *block, SpPhase phase);

/* The walks of all stages of a program: positions, and the schedule's slots. Borrows the program. */
typedef struct _SpWalkPlan SpWalkPlan;

SpWalkPlan *sp_walk_plan_new (const SpProgram *program, SpWalkOrder order);
void sp_walk_plan_free (SpWalkPlan *plan);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpWalkPlan, sp_walk_plan_free)

SpWalkOrder sp_walk_order (const SpWalkPlan *plan);
const SpPosition *sp_walk_positions (const SpWalkPlan *plan, gint32 stage, guint *ret_n);
const SpSlot *sp_walk_slots (const SpWalkPlan *plan, gint32 stage, guint *ret_n);

/* A cursor; copy it freely. */
typedef struct {
  const SpWalkPlan *plan;
  gint32 stage;
  gint32 slot; /* of the schedule, that of the item returned last; beyond the last slot: what ends the step */
  gint32 at;   /* where it goes on within the slot */
} SpWalk;

void sp_walk_init (SpWalk *walk, const SpWalkPlan *plan, gint32 stage);
/* The next item, FALSE at the end of the step. Lists without ops that are selected are passed over, but for the parts
 * of a BACKWARD. */
gboolean sp_walk_next (SpWalk *walk, SpItem *ret);

/* Whether the item is the first list of a slot, but for the weights' part of a backward; *begun, 0 at first, is kept for
 * the stage by who asks. */
gboolean sp_walk_begins_slot (const SpWalkPlan *plan, gint32 stage, const SpItem *item, gint32 *begun);

/* The variant that a micro-batch runs. */
static inline const SpVariant *
sp_walk_variant (const SpProgram *program, gint32 micro_batch)
{
  return &program->variants[sp_program_variant_of (program, micro_batch)];
}

G_END_DECLS
