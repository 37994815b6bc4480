/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/schedules.h"

/*
 * 1F1B (PipeDream-flush; Narayanan et al., 2104.04473): stage s runs p - 1 - s forwards, then one forward and one
 * backward in turn, then the backwards that are left. It holds at most p - s micro-batches. Bubble (p - 1) / m.
 *
 * With n slices it is Seq1F1B (Sun et al., 2406.03488, section 3.2): n - 1 forwards more come first, as the first backward
 * is that of a sequence's last slice. A stage holds at most p - s + n - 1 slices. Bubble (p - 1) / (m n) where slices take
 * the same time.
 */

/* Forwards before the first backward's own turn. */
static gint32
forwards_ahead (const SpPipeline *pipeline, gint32 stage)
{
  return MIN (pipeline->stages - 1 - stage + MAX (pipeline->slices, 1) - 1, sp_pipeline_runs (pipeline));
}

static guint
fill (const SpPipeline *pipeline, gint32 stage, SpSlot *ret)
{
  gint32 runs = sp_pipeline_runs (pipeline), ahead = forwards_ahead (pipeline, stage);
  guint n = 0;

  for (gint32 i = 0; i < ahead; i++)
    ret[n++] = (SpSlot){ .kind = SP_SLOT_FORWARD, .micro_batch = i };
  for (gint32 i = 0; i < runs; i++) {
    if (i + ahead < runs)
      ret[n++] = (SpSlot){ .kind = SP_SLOT_FORWARD, .micro_batch = i + ahead };
    ret[n++] = (SpSlot){ .kind = SP_SLOT_BACKWARD, .micro_batch = sp_pipeline_backward (pipeline, i) };
  }
  return n;
}

static gint32
in_flight (const SpPipeline *pipeline, gint32 stage)
{
  return MIN (forwards_ahead (pipeline, stage) + 1, sp_pipeline_runs (pipeline));
}

static double
bubble (const SpPipeline *pipeline, double forward, double input, double weight)
{
  (void) forward;
  (void) input;
  (void) weight;
  return (double) (pipeline->stages - 1) / sp_pipeline_runs (pipeline);
}

const SpSchedule sp_schedule_1f1b = {
  .name = "1f1b",
  .summary = "one forward, one backward in turn",
  .slices = TRUE,
  .steady = 1,
  .fill = fill,
  .in_flight = in_flight,
  .bubble = bubble,
};
