/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a block costs, in two parts, for one layer and one micro-batch:
 *   work   its forward, recompute and backward lists. It depends on tensor, ulysses, ring, lasp, sequence, batch,
 *          recompute
 *   state  its parameters, gradients and optimizer: the gather, sync and optimizer lists. It depends on tensor, the
 *          ZeRO stage and how many ranks shard
 * Data, pipeline, order and schedule only recombine them: so a search keeps them (models/estimate/block-cache.h), and
 * the estimate puts them together to stages and steps.
 */

#include "models/estimate/estimate.h"

G_BEGIN_DECLS

/* One run of an op list on the slowest place. */
typedef struct {
  double step, serial, high;
  double compute;    /* kernels alone */
  double host;       /* waiting for the host to issue */
  double data_async; /* async data communication, in `serial` but not in `step`: the slot places it */
  double axes[SP_N_AXES], exposed[SP_N_AXES];
  double chain; /* the last place's delay */
  guint8 chain_group, chain_axis;
  guint32 groups; /* bit a group: collectives of the list */
} SpListTime;

/* Places of a chain differ at its ends. */
enum { SP_PLACE_FIRST, SP_PLACE_MIDDLE, SP_PLACE_LAST, SP_N_PLACES };

typedef struct {
  double payload[SP_N_PLACES], wire[SP_N_PLACES];
  double messages;
} SpBlockVolume;

typedef struct {
  guint8 kind; /* SpBlockKind */
  SpListTime forward, recompute, backward;
  SpBlockVolume volume[SP_N_AXES];
  gint32 chain_size[SP_N_AXES]; /* of the group whose places differ, 1 none */
  double flops;                 /* mean over places */
  /* Bytes by class, and their sums: what is kept for the backward, and what lives at the fullest op of the forward, and
   * of the recompute and backward list. Parameters and gradients are not in it. */
  gint64 stash[SP_N_CLASSES], peak[2][SP_N_CLASSES];
  gint64 stash_bytes, peak_bytes[2];
} SpBlockWork;

typedef struct {
  gboolean regather;                                  /* GATHER again before BACKWARD */
  gboolean gathers_ahead;                             /* beside the block before */
  SpListTime gather, sync_each, sync_once, optimizer; /* sync_each: after every backward */
  SpBlockVolume each[SP_N_AXES], once[SP_N_AXES];     /* a micro-batch; a step */
  gint64 always[SP_N_CLASSES], step_end[SP_N_CLASSES];
  gint64 always_bytes, step_end_bytes;
  gint64 gathered, summed;           /* parameters and gradients that live whole for a while */
  gint64 tied_gathered, tied_summed; /* the embedding's, because this block uses its matrix */
} SpBlockState;

void sp_block_work (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockWork *ret);
void sp_block_state (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockState *ret);

/* Their parts. Of a list only ops with (op.flags & mask) == flags count, loops whole. */
void sp_block_list_time (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpPhase phase, guint flags,
                         guint mask, SpListTime *ret);
void sp_block_work_memory (const SpBlock *block, SpBlockWork *ret);
void sp_block_state_memory (const SpProgram *program, const SpBlock *block, SpBlockState *ret);
void sp_block_work_volume (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockWork *ret);
void sp_block_state_volume (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockState *ret);

/* The blocks of a program and what frames them: the program's ranks, stages, layers and micro-batches, but not its
 * ops. */
typedef struct {
  const SpCost *cost;
  const SpProgram *program;
  const SpBlockWork *work[2]; /* of each variant, [n_blocks] */
  const SpBlockState *state;  /* [n_blocks] */
  SpOp pipe[2];               /* of each variant, the message between stages */
} SpEstimateContext;

void sp_estimate_time (const SpEstimateContext *e, SpEstimate *ret);                               /* step-time.c */
void sp_estimate_volume (const SpEstimateContext *e, SpEstimate *ret);                             /* volume.c */
void sp_estimate_memory (const SpEstimateContext *e, const SpFramework *framework, SpMemory *ret); /* memory.c */
/* FLOP that the kernels of one GPU run in a step, mean over GPUs. */
double sp_estimate_flops (const SpEstimateContext *e);

/* Runs of variant v in a step. */
static inline double
sp_estimate_runs (const SpProgram *program, gint32 v)
{
  return program->n_variants == 1 ? program->micro_batches : v == 0 ? program->micro_batches - 1 : 1;
}

/* Blocks of each kind on a stage. */
static inline void
sp_estimate_counts (const SpProgram *program, gint32 stage, gint32 *ret)
{
  memset (ret, 0, SP_MAX_BLOCKS * sizeof *ret);
  if (program->n_blocks == 3)
    ret[1] = program->stage_first[stage + 1] - program->stage_first[stage];
  else
    for (gint32 l = program->stage_first[stage]; l < program->stage_first[stage + 1]; l++)
      ret[program->layer_block[l]]++;
  ret[0] = stage == 0;
  ret[program->n_blocks - 1] = stage == program->stages - 1;
}

/* Whether the stage has the same blocks as the one before and is no end of the pipeline: what costs the one costs the
 * other. */
static inline gboolean
sp_estimate_is_twin (const SpProgram *program, gint32 stage)
{
  const gint32 *first = program->stage_first;

  return program->n_blocks == 3 && stage > 1 && stage < program->stages - 1 &&
         first[stage + 1] - first[stage] == first[stage] - first[stage - 1];
}

G_END_DECLS
