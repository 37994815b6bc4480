/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What ops read and write: the buffers of a block (sim/program.h), one table of slots a block kind, and the weights that
 * some of them hold. Memory is how many bytes a buffer has, what it counts as (its CLASS) and from when to when it is
 * there (its LIFE); sim/memory.h adds them up.
 *
 * Units. Bytes and elements are counts, of one rank. Plain data: a slot is an index into the block's table.
 */

#include <glib.h>

G_BEGIN_DECLS

typedef enum {
  SP_DTYPE_BF16,
  SP_DTYPE_FP16,
  SP_DTYPE_FP32,
  SP_DTYPE_UINT8, /* dropout masks */
  SP_DTYPE_INT32, /* token ids */
  SP_N_DTYPES
} SpDtype;

static inline guint
sp_dtype_bytes (SpDtype dtype)
{
  static const guint8 bytes[SP_N_DTYPES] = { 2, 2, 4, 1, 4 };

  return bytes[dtype];
}

typedef enum {
  SP_CLASS_PARAMETERS,
  SP_CLASS_GRADIENTS,
  SP_CLASS_OPTIMIZER,
  SP_CLASS_ACTIVATIONS,
  SP_CLASS_LOGITS,
  SP_CLASS_COMMUNICATION,
  SP_CLASS_WORKSPACE,
  SP_CLASS_RESERVED, /* CUDA context, NCCL, allocator: from the framework profile, never a buffer */
  SP_N_CLASSES
} SpClass;

typedef enum {
  SP_LIFE_SEGMENT,  /* from its first to its last use in one op list (RECOMPUTE and BACKWARD count as one), an async
                       op's until it is over (sp_block_last_beside); in OPTIMIZER to the list's end */
  SP_LIFE_STASH,    /* from FORWARD (first use) to BACKWARD (last use) of the same micro-batch and layer */
  SP_LIFE_REBUILT,  /* a stash that recompute drops: SEGMENT in FORWARD, then again from RECOMPUTE to BACKWARD */
  SP_LIFE_HANDOFF,  /* X, Y, DX, DY: passed between blocks */
  SP_LIFE_GATHERED, /* parameters gathered for use: from GATHER to the end of the phase that it serves, or to the end
                       of BACKWARD where the program does not reshard */
  SP_LIFE_SUMMED,   /* gradients that SYNC scatters after every backward: from the start of BACKWARD to SYNC; in the
                       eager order what an async op of it reads is held over (sim/walk.h) */
  SP_LIFE_STEP_END, /* from SYNC to the end of the step: shards of what else lives whole (reduced gradients, updated
                       parameters of ZeRO-1 and 2) */
  SP_LIFE_ALWAYS,
  SP_LIFE_CHECKPOINT, /* outside the step, beside what lives ALWAYS: no op uses it */
  SP_LIFE_SEQUENCE,   /* what a sequence's slices share: the same slot of its first slice, where it is a STASH; `bytes` = 0 */
  SP_LIFE_ACCUMULATED, /* gradients that a sequence's slices add up: from the first write in BACKWARD of the last slice to
                          the end of that of the first. One sequence's at a time */
  SP_N_LIVES
} SpLife;

typedef struct {
  gint64 bytes; /* 0 for a view */
  gint64 elements;
  gint64 offset;    /* of a view, in elements, within `alias` */
  guint8 class;     /* SpClass */
  guint8 dtype;     /* SpDtype */
  guint8 life;      /* SpLife */
  guint8 alias;     /* slot that it is a view of, 0 none */
  guint8 moves;     /* 1: a view that lies its own length further on at each step of the loop whose ops use it */
  guint8 tied;      /* 1: the embedding block's buffer of this slot number stands in, where the rank has both blocks */
  guint8 tied_slot; /* slot in block 0 */
  guint8 host;      /* 1: in host memory, `bytes` = 0 */
} SpBuffer;

/* Slots that every block has. X: input activation, Y: output; DY, DX their gradients. Block 0 has no X and DX, the head
 * has no Y and DY. */
enum { SP_SLOT_NONE, SP_SLOT_X, SP_SLOT_Y, SP_SLOT_DY, SP_SLOT_DX, SP_SLOT_FIRST_FREE };
#define SP_MAX_SLOTS 255

/* --- weights -------------------------------------------------------------------------------------------------- */

/* How a parameter tensor is cut over the tensor group: needed to start, check and store it. Local shape rows x cols,
 * row-major, out-features first. VOCABULARY: by rows, of which those from SpNumbers.vocabulary on are padding (see
 * EMBED) and no part of the model's tensor. */
typedef enum { SP_SPLIT_NONE, SP_SPLIT_ROWS, SP_SPLIT_COLS, SP_SPLIT_VOCABULARY, SP_N_SPLITS } SpSplit;

#define SP_MAX_WEIGHTS 40
#define SP_MAX_SECTIONS 4

/* `experts` of a weight: that many local parts of equal shape, stacked by rows, each cut over the tensor group by itself;
 * the model has as many for each place of SP_GROUP_EXPERT, in order. 0: it is one. */
typedef struct {
  char name[12]; /* "qkv", "norm1" ... */
  guint8 flat;   /* index of its flat: slot and grad are views of that */
  guint8 slot;   /* parameter view */
  guint8 grad;   /* gradient view; 0: frozen */
  guint8 split;  /* SpSplit */
  guint8 n_sections;
  gint32 experts;
  gint32 rows, cols;
  gint32 sections[SP_MAX_SECTIONS]; /* local rows of each section (q, k, v ...) of an expert; a row split cuts each */
} SpWeight;

/* Parameters of the block that the same ranks hold, in one flat buffer (the weights are views of it), padded with zeros
 * to a multiple of `group`; a shard is the equal part of this rank's place in it, shard_* = 0 where there is none. Which
 * of the two lives ALWAYS, and so holds the values at the start of a step, says its life. The optimizer's three belong
 * to the shard if there is one; Muon has no moment2. */
typedef struct {
  guint8 group;  /* SpGroupId of the ranks that hold the same: ZERO, or EXPERT_DATA of experts */
  guint8 frozen; /* 1: not trained, so without gradients and the optimizer's three */
  guint8 parameters, gradients, shard_parameters, shard_gradients, master, moment1, moment2;
  guint8 host_gradients; /* where the optimizer runs on the host: what it reads; else 0 */
} SpFlat;

#define SP_MAX_FLATS 6

G_END_DECLS
