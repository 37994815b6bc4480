/* SPDX-License-Identifier: Apache-2.0 */
#include "models/schedules.h"

/*
 * 1F1B (PipeDream-flush; Narayanan et al., 2104.04473): stage s runs p - 1 - s forwards, then one forward and one
 * backward in turn, then the backwards that are left. It holds at most p - s micro-batches. Bubble (p - 1) / m.
 */

static gint32
warm_up (gint32 stages, gint32 stage, gint32 micro_batches)
{
  return MIN (stages - 1 - stage, micro_batches);
}

static gboolean
slot (gint32 stages, gint32 stage, gint32 micro_batches, gint32 index, SpSlot *ret)
{
  gint32 warm = warm_up (stages, stage, micro_batches);

  if (index >= 2 * micro_batches)
    return FALSE;
  if (index < warm)
    *ret = (SpSlot){ .backward = 0, .micro_batch = index };
  else if (index < 2 * micro_batches - warm) {
    gint32 turn = index - warm;
    *ret = (SpSlot){ .backward = turn % 2, .micro_batch = turn / 2 + (turn % 2 ? 0 : warm) };
  } else
    *ret = (SpSlot){ .backward = 1, .micro_batch = index - micro_batches };
  return TRUE;
}

static gint32
in_flight (gint32 stages, gint32 stage, gint32 micro_batches)
{
  return MIN (stages - stage, micro_batches);
}

static double
bubble (gint32 stages, gint32 micro_batches)
{
  return (double) (stages - 1) / micro_batches;
}

const SpSchedule sp_schedule_1f1b = { "1f1b", slot, in_flight, bubble };
