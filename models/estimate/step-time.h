/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * From the times of blocks to that of a step, in three steps that share this header: slots of virtual stages
 * (slot-time.c), when the schedule lets each stage be done with its slots (schedule-time.c), and the stages' tails and
 * the whole (step-time.c). The rules stand in estimate.h. Seconds.
 */

#include "models/estimate/block-cost.h"

#include <string.h>

G_BEGIN_DECLS

/* What a slot of a stage takes, summed over its layers. */
typedef struct {
  double step, serial, high;
  double compute, host, issue;
  double data;    /* that runs beside the rest, on its stream */
  double kernels; /* of compute, without slowdowns, on a rank with the mean load of experts */
  double forward, recompute, slowed; /* of compute: kernels of those lists, and what communication beside it adds */
  double axes[SP_N_AXES], exposed[SP_N_AXES];
  double waits[SP_N_AXES]; /* for a chain to come by */
} SpSlotTime;

/* The three figures of a slot, and of a step, side by side. */
enum { SP_FIGURE_STEP, SP_FIGURE_SERIAL, SP_FIGURE_HIGH, SP_N_FIGURES };

typedef struct {
  double of[SP_N_FIGURES];
} SpFigures;

static inline SpFigures
sp_figures_of (const SpSlotTime *slot)
{
  return (SpFigures){ { slot->step, slot->serial, slot->high } };
}

/* A virtual stage. */
typedef struct {
  /* Of each variant; BACKWARD_INPUT and WEIGHT where the schedule splits. Memory of whoever asks for it. */
  SpSlotTime (*slots)[SP_N_SLOT_KINDS];
  gint32 counts[SP_MAX_BLOCKS];
  double held_up; /* at most, what a reduction beside the last backward takes from the rest of its communication */
} SpPartTime;

typedef struct {
  const SpPartTime *const *parts; /* of the program, by virtual stage */
  gint32 number;
  SpSlotTime tail;  /* gradient reduction and optimizer */
  SpSlotTime total; /* of a step */
  SpFigures busy;   /* in the slots of a step */
  SpFigures pace;   /* and in those of each micro-batch more */
  double until;     /* of the tail, before it meets another stage; < 0: it meets none */
  gint32 meets;
} SpStageTime;

static inline const SpPartTime *
sp_part_of (const SpProgram *program, const SpStageTime *stage, gint32 chunk)
{
  return stage->parts[sp_program_virtual_stage (program, stage->number, chunk)];
}

/* --- slot-time.c -------------------------------------------------------------------------------------------------- */

void sp_part_estimate (const SpEstimateContext *e, gint32 virtual_stage, SpPartTime *part);

/* Adds `n` runs of a list. */
void sp_slot_time_add (SpSlotTime *slot, const SpListTime *list, double n);
/* `n` times a layer's async data communication beside `compute` seconds of a neighbour, or in the open; the serial
 * figures have it already. */
void sp_slot_time_hide (SpSlotTime *slot, double slowdown, double data, double compute, double n);
void sp_slot_time_open (SpSlotTime *slot, double seconds);

/* --- schedule-time.c ---------------------------------------------------------------------------------------------- */

/* When each stage is done with its slots: ends[stages]. */
void sp_schedule_ends (const SpProgram *program, const SpPartTime *const *parts, const SpStageTime *const *stages,
                       SpFigures *ends);
/* Whether they are those of a pass over all micro-batches, so that they are no less where every slot takes longer. */
gboolean sp_schedule_is_walked (const SpProgram *program);
/* No later than those, whatever the schedule's order: of each stage its slots, behind the first forward of those before it,
 * and before the last backward of those after it has come back. One stage is done then. */
void sp_schedule_least_ends (const SpProgram *program, const SpPartTime *const *parts, const SpStageTime *const *stages,
                             SpFigures *ends);

G_END_DECLS
