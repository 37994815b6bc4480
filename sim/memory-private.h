/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of sim/memory share: memory.c (states, item by item), memory-lives.c (when a block's buffers end),
 * memory-list.c (one list, op by op), memory-peak.c (what a peak is made of). */

#include "sim/memory.h"

G_BEGIN_DECLS

/* The lists of a block, as a walk runs them. */
typedef enum {
  SP_LIST_FORWARD,
  SP_LIST_RECOMPUTE,
  SP_LIST_BACKWARD,        /* whole */
  SP_LIST_BACKWARD_INPUT,  /* its first part */
  SP_LIST_BACKWARD_WEIGHT, /* its second */
  SP_LIST_GATHER,
  SP_LIST_SYNC_EACH, /* after every backward */
  SP_LIST_SYNC_ONCE,
  SP_LIST_OPTIMIZER,
  SP_N_LISTS
} SpListKind;

#define SP_N_WORK_LISTS                                                                                                \
  SP_LIST_GATHER          /* those before it are of a micro-batch, and what one leaves the next one finds */
#define SP_MAX_OF_STEP 16 /* buffers of a block that live for a part of the step */
#define SP_OTHER_SHIFT 16 /* their bits in a word; above: those of the embedding, for the block that is tied */

/* When the buffers of a block end. Uses count from 1; those of RECOMPUTE and BACKWARD in one row. */
typedef struct {
  guint16 last_use[SP_N_WORK_LISTS][SP_MAX_SLOTS]; /* of its storage in a list; RECOMPUTE: as BACKWARD */
  guint8 of_step[SP_MAX_OF_STEP];                  /* slots */
  guint8 bit[SP_MAX_SLOTS];                        /* 1 + index of the slot in of_step */
  guint n_of_step;
  guint8 gathered[SP_MAX_OF_STEP]; /* slots that a GATHER of this block fills, its own and tied ones */
  guint n_gathered;
  guint32 held;          /* bits of of_step: what its SYNC holds over */
  gboolean sums;         /* its BACKWARD lets go of what is held over */
  gboolean is_tied;      /* uses buffers of the embedding */
  gboolean gathers;      /* has a GATHER */
  gboolean weight_reads; /* the second part of the backward uses gathered parameters */
} SpBlockLives;

/* A block and those beside it in its chunk. */
typedef struct {
  gint16 block, before, after; /* -1: over the pipeline, or none */
  gboolean both_ends;          /* the stage holds the embedding too, whose buffers stand in for the tied ones */
} SpMemoryContext;

typedef struct {
  guint32 live;   /* of_step bits before it: what it depends on */
  guint32 leaves; /* and after its last op */
  gint64 net_bytes, net_by_class[SP_CLASS_RESERVED];
  gint64 excess_bytes, excess_by_class[SP_CLASS_RESERVED]; /* over its start, at its fullest */
  guint op;                                                /* where that is */
  gint32 step;
} SpListProfile;

typedef struct {
  const SpPosition *positions;
  guint n_positions;
  guint16 *context; /* [n_positions] */
  gint32 embedding; /* position, -1 none */
  gboolean both_ends;
  gint64 always_bytes, always_by_class[SP_N_CLASSES];
} SpMemoryStage;

struct _SpMemoryPlan {
  const SpProgram *program;
  const SpWalkPlan *walk;
  SpBlockLives *lives;   /* [variant][block] */
  SpMemoryStage *stages; /* [program->stages] */
  GArray *contexts;      /* SpMemoryContext */
  GArray *places;        /* guint64: two bits a group, set if the place is the first, the last */
  GPtrArray *profiles;   /* [place][context][variant][list] GArray of SpListProfile, NULL until needed */
  guint64 guarded;       /* bits of groups that guards name */
  guint most_of_step;    /* of any block */
};

static inline const SpBlockLives *
sp_memory_lives_of (const SpMemoryPlan *plan, guint variant, guint block)
{
  return &plan->lives[variant * plan->program->n_blocks + block];
}

/* --- memory-lives.c ----------------------------------------------------------------------------------------------- */

guint8 sp_memory_root (const SpBlock *block, guint8 slot);
gboolean sp_memory_is_of_step (guint8 life);
/* FALSE with an error where the block cannot be followed. */
gboolean sp_memory_lives_init (const SpProgram *program, SpWalkOrder order, guint variant, guint block,
                               SpBlockLives *ret, GError **error);
/* Which ops of a list run: (flags & mask) == wanted. */
void sp_memory_list_filter (SpListKind list, SpPhase *ret_phase, guint *ret_wanted, guint *ret_mask);

/* --- memory-list.c ------------------------------------------------------------------------------------------------ */

typedef struct {
  gint64 bytes;
  guint8 class;
  guint8 refs; /* slots that hold it */
  guint16 next_freed;
} SpListStorage;

/* One list under way: what each slot holds, and the sums since its start. */
typedef struct {
  const SpMemoryPlan *plan;
  const SpMemoryContext *context;
  const SpVariant *variant;
  const SpBlock *block;
  const SpBlockLives *lives;
  guint64 place;
  guint32 live;             /* of_step bits */
  guint16 at[SP_MAX_SLOTS]; /* its storage, 0 none */
  SpListStorage storages[4 * SP_MAX_SLOTS];
  guint n_storages;
  guint16 freed; /* the last one that nobody holds any more, 0 none */
  SpListKind list;
  guint op;
  gint32 step;
  gboolean arrived[SP_MAX_CARRIES];
  guint stop_op; /* ... before what this op lets go of */
  gint32 stop_step;
  SpListProfile profile;
} SpListWalk;

/* Goes through the lists that come before it, and through it to its end or, with stop_op, to that op of that step,
 * its buffers there and nothing let go of. */
void sp_memory_walk_list (const SpMemoryPlan *plan, guint64 place, const SpMemoryContext *context, guint variant,
                          SpListKind list, guint32 live, guint stop_op, gint32 stop_step, SpListWalk *ret);

/* --- memory.c ----------------------------------------------------------------------------------------------------- */

SpListKind sp_memory_list_of (const SpItem *item);
/* Lets go of what another slot held over than the item's. */
void sp_memory_begin_item (const SpMemoryPlan *plan, SpMemoryState *state, const SpItem *item);
/* The slot that a message of the pipeline comes into or goes from. */
guint8 sp_memory_pipe_slot (const SpItem *item);
const SpBlock *sp_memory_block (const SpMemoryPlan *plan, const SpMemoryState *state, const SpItem *item,
                                const SpVariant **ret_variant);

G_END_DECLS
