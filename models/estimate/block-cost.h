/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a block costs, in two parts, for one layer and one micro-batch:
 *   work   its forward, recompute and backward lists. It depends on tensor, ulysses, ring, lasp, sequence, batch,
 *          recompute; and on whether the schedule runs the backward in two parts, which then are priced too
 *   state  its parameters, gradients and optimizer: the gather, sync and optimizer lists. It depends on tensor, the
 *          ZeRO stage and how many ranks shard
 * Data, pipeline, order and schedule only recombine them: so a search keeps them (models/estimate/block-cache.h), and
 * the estimate puts them together to stages and steps.
 */

#include "models/estimate/estimate.h"
#include "sim/schedules.h"

#include <string.h>

G_BEGIN_DECLS

/* Scratch of an estimate that is larger goes to the heap. */
#define SP_ESTIMATE_MOST_STACK (1 << 20)

/* One run of an op list on the slowest place. */
typedef struct {
  double step, serial, high;
  double compute;    /* kernels alone */
  double spare;      /* of them, what a place of two may not have to do */
  double host;       /* waiting for the host to issue */
  double issue;      /* what the host needs for the kernels, and for gathers and scatters of shards */
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

/* Lists whose memory is looked at: the backward whole, with RECOMPUTE, and in two parts. */
enum { SP_LIST_FORWARD, SP_LIST_BACKWARD, SP_LIST_INPUT, SP_LIST_WEIGHT, SP_N_LISTS };

typedef struct {
  guint8 kind; /* SpBlockKind */
  SpListTime forward, recompute, backward;
  SpBlockVolume volume[SP_N_AXES];
  gint32 chain_size[SP_N_AXES]; /* of the group whose places differ, 1 none */
  double flops;                 /* mean over places */
  /* Bytes by class, and their sums: what is kept for the backward, and what lives at the fullest op of the forward, and
   * of the recompute and backward list. Parameters and gradients are not in it. */
  gint64 stash[SP_N_CLASSES], peak[SP_N_LISTS][SP_N_CLASSES];
  gint64 host_stash; /* in host memory, of a micro-batch */
  gint64 stash_bytes, peak_bytes[SP_N_LISTS];
  gint64
      lent_bytes[2]; /* forward, backward: what its collectives read on streams of their own and nothing needs after */
  gint64 gathered_bytes; /* the largest that its lists gather over tensor ranks for a while */
  gint64 handed_bytes;   /* of activations, from its backward to the block before */
  gint64 accumulated;    /* activations' gradients that a sequence's slices add up */
  /* Where the schedule splits the backward, also: its parts (RECOMPUTE goes before the first), and the bytes that are
   * kept from the first for the second. */
  SpListTime input, weight;
  gint64 kept[SP_N_CLASSES], kept_bytes;
} SpBlockWork;

typedef struct {
  gboolean regather, gathers_again;                   /* gathered parameters end with FORWARD; GATHER before BACKWARD */
  gboolean gathers_ahead;                             /* beside the block before */
  SpListTime gather, sync_each, sync_once, optimizer; /* sync_each: after every backward */
  gboolean sync_meets;                                /* sync_once has an op over pipeline stages ... */
  double sync_before;                                 /* ... after so many seconds */
  SpBlockVolume each[SP_N_AXES], once[SP_N_AXES];     /* a micro-batch, but for GATHER; a step */
  SpBlockVolume gathers[SP_N_AXES];                   /* of those that gather: sp_block_gathers */
  gint64 always[SP_N_CLASSES], step_end[SP_N_CLASSES];
  gint64 optimizer_bytes; /* workspace of the optimizer's list */
  gint64 host_bytes;      /* ALWAYS in host memory */
  gint64 always_bytes, step_end_bytes;
  gint64 checkpoint_bytes;           /* of parameters */
  gint64 gathered, summed;           /* parameters and gradients that live whole for a while */
  gint64 reduced;                    /* gradients' shards that an eager SYNC leaves while other backwards still run */
  gint64 held;                       /* of what is summed, beside the next backward, as an eager SYNC reads it */
  gboolean sums;                     /* its backward ends what is held */
  gint64 tied_gathered, tied_summed; /* the embedding's, because this block uses its matrix */
} SpBlockState;

/* All of it; and its lists' times alone, at another clock: memory and volume know none. */
void sp_block_work (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockWork *ret);
void sp_block_work_time (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockWork *ret);
void sp_block_state (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockState *ret);

/* Their parts. Of a list only ops with (op.flags & mask) == flags count, loops whole by their first op. */
void sp_block_list_time (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpPhase phase, guint flags,
                         guint mask, SpListTime *ret);
void sp_block_work_memory (const SpProgram *program, const SpBlock *block, SpBlockWork *ret);
void sp_block_state_memory (const SpProgram *program, const SpBlock *block, SpBlockState *ret);
void sp_block_work_volume (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockWork *ret);
void sp_block_state_volume (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockState *ret);

/* The blocks of a program and what frames them: the program's ranks, stages, layers and micro-batches, but not its
 * ops. */
typedef struct {
  const SpCost *cost;
  const SpProgram *program;
  const SpBlockWork *work[SP_MAX_VARIANTS]; /* of each variant, [n_blocks] */
  const SpBlockState *state;                /* [n_blocks] */
  const SpOp *pipe[SP_MAX_VARIANTS];        /* of each variant, the message between stages, */
  const SpOp *pipe_gather[SP_MAX_VARIANTS]; /* and what gathers its parts; NULL where nothing does */
} SpEstimateContext;

/* The work of a layout's blocks alone, from the estimator's cache, which must have one: for bounds. `program` is scratch;
 * what is returned holds until the next call for the same estimator. */
void sp_estimate_works (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run,
                        SpEstimateContext *ret); /* estimate.c */

/* And with the states: all that sp_estimate_finish, or a part of it below, needs. */
void sp_estimate_context (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run,
                          SpEstimateContext *ret);
/* Memory alone, for which no link has to be known: with an estimator of its own, whose cost's paths are never set. */
void sp_estimate_bytes (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run,
                        SpMemory *ret);
/* And of it what the stage that has least of them always holds of parameters, gradients and optimizer, without reserve. */
gint64 sp_estimate_state_bytes (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run);
void sp_estimate_finish (SpEstimator *estimator, const SpEstimateContext *e, const SpRun *run, SpEstimate *ret);

void sp_estimate_time (const SpEstimateContext *e, SpEstimate *ret); /* step-time.c */
/* Bounds of its figures without a pass over the schedule: of step, serial and high no more than the above, low the same. */
void sp_estimate_time_floor (const SpEstimateContext *e, SpEstimate *ret); /* step-time.c */
void sp_estimate_time_without_optimizer (const SpEstimateContext *e, SpEstimate *ret);
/* The same without states, of what sp_estimate_works gives for the estimator: with a pass over the schedule where that goes
 * over all micro-batches. */
void sp_estimate_time_of_works (SpEstimator *estimator, const SpEstimateContext *works,
                                SpEstimate *ret);                                                  /* step-time.c */
void sp_estimate_volume (const SpEstimateContext *e, SpEstimate *ret);                             /* volume.c */
void sp_estimate_memory (const SpEstimateContext *e, const SpFramework *framework, SpMemory *ret); /* memory.c */
/* The first stage's, without checkpoints and host memory. */
void sp_estimate_memory_of_first (const SpEstimateContext *e, const SpFramework *framework,
                                  SpMemory *ret); /* memory.c */
/* What lies in a stage's pool because its host is ahead of the GPU, by the times of the step; bytes. */
double sp_estimate_run_ahead (const SpEstimateContext *e, const SpFramework *framework, gint32 stage,
                              const SpEstimate *times); /* run-ahead.c */
/* Host memory of the GPU with the most, in bytes. */
double sp_estimate_host_bytes (const SpEstimateContext *e); /* host-memory.c */
/* FLOP that the kernels of one GPU run in a step, mean over GPUs. */
double sp_estimate_flops (const SpEstimateContext *e);

/* Of ops flagged SP_OP_VARIES, what the busiest rank does over the mean. */
static inline double
sp_estimate_imbalance (const SpProgram *program)
{
  return MAX (program->numbers.expert_imbalance, 1);
}

static inline const SpSchedule *
sp_estimate_schedule (const SpProgram *program)
{
  return sp_schedule_get (program->schedule);
}

/* Runs of variant v that a chunk makes in a step: mirrored ones share the micro-batches. Of one layer the first
 * micro-batch's. */
static inline double
sp_estimate_runs (const SpProgram *program, gint32 v)
{
  gint32 slices = sp_program_slices (program);

  if (sp_program_is_one_layer (program))
    return v == sp_program_variant_of (program, 0);
  double all = program->n_variants == slices ? program->micro_batches : v < slices ? program->micro_batches - 1 : 1;

  return sp_estimate_schedule (program)->mirrored ? all / 2 : all;
}

/* Blocks of each kind in a virtual stage. */
static inline void
sp_estimate_counts (const SpProgram *program, gint32 at, gint32 *ret)
{
  memset (ret, 0, SP_MAX_BLOCKS * sizeof *ret);
  if (program->n_blocks == 3)
    ret[1] = program->stage_first[at + 1] - program->stage_first[at];
  else
    for (gint32 l = program->stage_first[at]; l < program->stage_first[at + 1]; l++)
      ret[program->layer_block[l]]++;
  ret[0] = at == 0;
  ret[program->n_blocks - 1] = at == sp_program_virtual_stages (program) - 1;
}

/* Those that are run: all, or one layer. What lives is the whole stage's either way. */
static inline void
sp_estimate_run_counts (const SpProgram *program, gint32 at, gint32 *ret)
{
  sp_estimate_counts (program, at, ret);
  if (sp_program_is_one_layer (program)) {
    memset (ret, 0, SP_MAX_BLOCKS * sizeof *ret);
    ret[program->layer_block[0]] = 1;
  }
}

/* On all chunks of a stage. */
static inline void
sp_estimate_stage_run_counts (const SpProgram *program, gint32 stage, gint32 *ret)
{
  gint32 counts[SP_MAX_BLOCKS];

  sp_estimate_run_counts (program, sp_program_virtual_stage (program, stage, 0), ret);
  for (gint32 c = 1; c < program->chunks; c++) {
    sp_estimate_run_counts (program, sp_program_virtual_stage (program, stage, c), counts);
    for (guint b = 0; b < program->n_blocks; b++)
      ret[b] += counts[b];
  }
}

/* Whether two virtual stages have the same blocks and neither is an end of the model: what costs the one costs the
 * other. */
static inline gboolean
sp_estimate_are_alike (const SpProgram *program, gint32 a, gint32 b)
{
  const gint32 *first = program->stage_first;
  gint32 last = sp_program_virtual_stages (program) - 1;

  return program->n_blocks == 3 && a > 0 && b > 0 && a < last && b < last &&
         first[a + 1] - first[a] == first[b + 1] - first[b];
}

/* The same of a stage and the one before it. */
static inline gboolean
sp_estimate_is_twin (const SpProgram *program, gint32 stage)
{
  for (gint32 c = 0; c < program->chunks; c++)
    if (stage == 0 || !sp_estimate_are_alike (program, sp_program_virtual_stage (program, stage, c),
                                              sp_program_virtual_stage (program, stage - 1, c)))
      return FALSE;
  return TRUE;
}

G_END_DECLS
