/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/schedules.h"

/*
 * GPipe (Huang et al., 1811.06965): all forwards, then all backwards, in the same order here (the paper leaves it open;
 * the last one first would save no time). A stage holds all m micro-batches. Bubble (p - 1) / m.
 */

static guint
fill (const SpPipeline *pipeline, gint32 stage, SpSlot *ret)
{
  gint32 m = pipeline->micro_batches;

  (void) stage;
  for (gint32 i = 0; i < m; i++) {
    ret[i] = (SpSlot){ .kind = SP_SLOT_FORWARD, .micro_batch = i };
    ret[m + i] = (SpSlot){ .kind = SP_SLOT_BACKWARD, .micro_batch = i };
  }
  return 2 * (guint) m;
}

static gint32
in_flight (const SpPipeline *pipeline, gint32 stage)
{
  (void) stage;
  return pipeline->micro_batches;
}

static double
bubble (const SpPipeline *pipeline, double forward, double input, double weight)
{
  (void) forward;
  (void) input;
  (void) weight;
  return (double) (pipeline->stages - 1) / pipeline->micro_batches;
}

const SpSchedule sp_schedule_gpipe = {
  .name = "gpipe",
  .summary = "all forwards, then all backwards",
  .fill = fill,
  .in_flight = in_flight,
  .bubble = bubble,
};
