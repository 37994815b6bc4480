/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Schedules: in which order a pipeline stage runs the forward and backward slots of its micro-batches, and which layers
 * it holds. One file under schedules/, one row in the table (schedules.c) and one line for meson each.
 *
 * Letters: p stages (ranks of the pipeline), v chunks that each holds, m micro-batches of a step, s slices of each.
 *
 * Virtual stages. The model is cut into consecutive parts, its virtual stages; chunk c of stage s is one of them:
 *    as they come      c p + s, of v p: from stage p - 1 a micro-batch goes on to stage 0, with the next chunk
 *    mirrored          chunk 0 is s, chunk 1 is p - 1 - s, of p: half of the micro-batches enter at stage 0 and stay
 *                      with chunk 0, half at stage p - 1 and stay with chunk 1. Each virtual stage is on two ranks,
 *                      whose gradients are summed
 *
 * Slots. FORWARD and BACKWARD of a chunk and a micro-batch; a schedule that splits the backward has BACKWARD_INPUT, on
 * which the stage before waits, and BACKWARD_WEIGHT later, for which nobody waits. A stage runs its slots in order; a
 * forward slot waits for that of the virtual stage before, a backward for that of the one after.
 *
 * Slices. The sequences of a micro-batch may be cut in slices of tokens (TeraPipe, 2102.07988): each is a micro-batch of
 * its own to the stages, numbered micro-batch x s + slice. A slice attends to those before it, so a stage runs the
 * forwards of a sequence's slices first to last, and the backwards last to first; and the backwards of one sequence
 * before those of the next, so that what they add up is there once.
 */

#include <glib.h>

G_BEGIN_DECLS

typedef enum {
  SP_SLOT_FORWARD,
  SP_SLOT_BACKWARD,
  SP_SLOT_BACKWARD_INPUT,
  SP_SLOT_BACKWARD_WEIGHT,
  SP_N_SLOT_KINDS
} SpSlotKind;

typedef struct {
  guint8 kind; /* SpSlotKind */
  guint8 chunk;
  gint32 micro_batch; /* or the number of a slice, see above */
} SpSlot;

#define SP_MAX_CHUNKS 64 /* of a stage */

/* What a schedule is asked to run. */
typedef struct {
  gint32 stages, chunks, micro_batches;
  gboolean uneven; /* the last micro-batch is smaller */
  gint32 slices;   /* of a micro-batch; 0: it is whole */
} SpPipeline;

/* Forwards that a chunk runs, and so backwards. */
static inline gint32
sp_pipeline_runs (const SpPipeline *pipeline)
{
  return pipeline->micro_batches * MAX (pipeline->slices, 1);
}

/* Number of the `k`-th backward where they go through a sequence's slices last to first. */
static inline gint32
sp_pipeline_backward (const SpPipeline *pipeline, gint32 k)
{
  gint32 slices = MAX (pipeline->slices, 1);

  return k / slices * slices + slices - 1 - k % slices;
}

/* One rule; `explain` (only called when it does not hold) appends what is needed and the nearest legal values. */
typedef struct {
  const char *name;
  gboolean (*holds) (const SpPipeline *pipeline);
  void (*explain) (const SpPipeline *pipeline, GString *out);
} SpScheduleRule;

typedef struct {
  const char *name;
  const char *summary;
  gboolean mirrored; /* two chunks, see above */
  gboolean chunked;  /* any number of chunks; else one */
  gboolean splits;   /* backwards in two parts */
  gboolean slices;   /* runs micro-batches in slices */
  gint32 steady;     /* see sp_schedule_steady: whole micro-batches, x p */
  /* The slots of a stage, in order, into `ret`, which has room for sp_schedule_most_slots; returns how many. */
  guint (*fill) (const SpPipeline *pipeline, gint32 stage, SpSlot *ret);
  /* Most micro-batches, or slices, between forward and backward that a stage holds at once, where it has one chunk and
   * whole backwards; NULL: by the slots. */
  gint32 (*in_flight) (const SpPipeline *pipeline, gint32 stage);
  /* Idle over busy time of a stage: equal virtual stages that take these times for a micro-batch, or a slice, free
   * messages. Exact, under the condition in the schedule's file. */
  double (*bubble) (const SpPipeline *pipeline, double forward, double input, double weight);
  const SpScheduleRule *rules;
  guint n_rules;
} SpSchedule;

extern const SpSchedule sp_schedule_1f1b, sp_schedule_gpipe, sp_schedule_interleaved, sp_schedule_zb_h1,
    sp_schedule_dualpipe;

guint sp_schedule_count (void);
extern const SpSchedule *const sp_schedule_rows[];
/* A row of the table that there is. */
static inline const SpSchedule *
sp_schedule_get (guint row)
{
  return sp_schedule_rows[row];
}
/* Row of a name, or -1. */
gint sp_schedule_find (const char *name);

/* The rule that does not hold, or NULL. */
const SpScheduleRule *sp_schedule_broken_rule (const SpSchedule *schedule, const SpPipeline *pipeline);

/* Chunks of a stage where the layout asks for `virtual_stages`; a mirrored one has the other direction's besides. */
static inline gint32
sp_schedule_chunks (const SpSchedule *schedule, gint32 virtual_stages)
{
  return virtual_stages + schedule->mirrored;
}

/* Virtual stages of the model. */
static inline gint32
sp_schedule_virtual_stages (const SpSchedule *schedule, gint32 stages, gint32 chunks)
{
  return schedule->mirrored ? stages : stages * chunks;
}

static inline gint32
sp_schedule_virtual_stage (const SpSchedule *schedule, gint32 stages, gint32 stage, gint32 chunk)
{
  if (schedule->mirrored)
    return chunk == 0 ? stage : stages - 1 - stage;
  return chunk * stages + stage;
}

/* The stage that holds a virtual stage for the micro-batches of `chunk` (which only matters where it is mirrored). */
static inline gint32
sp_schedule_stage (const SpSchedule *schedule, gint32 stages, gint32 virtual_stage, gint32 chunk)
{
  if (schedule->mirrored)
    return chunk == 0 ? virtual_stage : stages - 1 - virtual_stage;
  return virtual_stage % stages;
}

/* With more micro-batches than this no stage holds anything that it does not with as many; 0: it holds all. Beside the
 * sequences whose slices are in flight one begins and one ends. */
static inline gint32
sp_schedule_steady (const SpSchedule *schedule, const SpPipeline *pipeline)
{
  if (schedule->steady == 0)
    return 0;
  return schedule->steady * pipeline->stages + (pipeline->slices > 1 ? 2 : 0);
}

/* Micro-batches after which the order of slots repeats; slices and all. */
static inline gint32
sp_schedule_period (const SpSchedule *schedule, gint32 stages)
{
  return schedule->mirrored ? 2 : schedule->chunked ? stages : 1;
}

static inline guint
sp_schedule_most_slots (const SpPipeline *pipeline)
{
  return 3 * (guint) pipeline->chunks * (guint) sp_pipeline_runs (pipeline);
}

G_END_DECLS
