/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/schedules.h"

/*
 * 1F1B (PipeDream-flush; Narayanan et al., 2104.04473): stage s runs p - 1 - s forwards, then one forward and one
 * backward in turn, then the backwards that are left. It holds at most p - s micro-batches. Bubble (p - 1) / m.
 */

static guint
fill (const SpPipeline *pipeline, gint32 stage, SpSlot *ret)
{
  gint32 m = pipeline->micro_batches, ahead = MIN (pipeline->stages - 1 - stage, m);
  guint n = 0;

  for (gint32 i = 0; i < ahead; i++)
    ret[n++] = (SpSlot){ .kind = SP_SLOT_FORWARD, .micro_batch = i };
  for (gint32 i = 0; i < m; i++) {
    if (i + ahead < m)
      ret[n++] = (SpSlot){ .kind = SP_SLOT_FORWARD, .micro_batch = i + ahead };
    ret[n++] = (SpSlot){ .kind = SP_SLOT_BACKWARD, .micro_batch = i };
  }
  return n;
}

static gint32
in_flight (const SpPipeline *pipeline, gint32 stage)
{
  return MIN (pipeline->stages - stage, pipeline->micro_batches);
}

static double
bubble (const SpPipeline *pipeline, double forward, double input, double weight)
{
  (void) forward;
  (void) input;
  (void) weight;
  return (double) (pipeline->stages - 1) / pipeline->micro_batches;
}

const SpSchedule sp_schedule_1f1b = {
  .name = "1f1b",
  .summary = "one forward, one backward in turn",
  .steady = 1,
  .fill = fill,
  .in_flight = in_flight,
  .bubble = bubble,
};
