/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/schedules.h"

/*
 * GPipe (Huang et al., 1811.06965): all forwards, then all backwards, in the same order here (the paper leaves it open;
 * the last one first would save no time). A stage holds all m micro-batches. Bubble (p - 1) / m.
 *
 * With slices it is TeraPipe (Li et al., 2102.07988): a stage holds all m s slices. Bubble (p - 1) / (m s) where slices
 * take the same time; else (p - 1) times the longest one's is idle (its equation 5).
 */

static guint
fill (const SpPipeline *pipeline, gint32 stage, SpSlot *ret)
{
  gint32 runs = sp_pipeline_runs (pipeline);

  (void) stage;
  for (gint32 i = 0; i < runs; i++) {
    ret[i] = (SpSlot){ .kind = SP_SLOT_FORWARD, .micro_batch = i };
    ret[runs + i] = (SpSlot){ .kind = SP_SLOT_BACKWARD, .micro_batch = sp_pipeline_backward (pipeline, i) };
  }
  return 2 * (guint) runs;
}

static gint32
in_flight (const SpPipeline *pipeline, gint32 stage)
{
  (void) stage;
  return sp_pipeline_runs (pipeline);
}

static double
bubble (const SpPipeline *pipeline, double forward, double input, double weight)
{
  (void) forward;
  (void) input;
  (void) weight;
  return (double) (pipeline->stages - 1) / sp_pipeline_runs (pipeline);
}

const SpSchedule sp_schedule_gpipe = {
  .name = "gpipe",
  .summary = "all forwards, then all backwards",
  .slices = TRUE,
  .fill = fill,
  .in_flight = in_flight,
  .bubble = bubble,
};
