/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/schedules.h"

/*
 * ZB-H1 (Qi et al., 2401.10241, section 2): 1F1B whose backwards are in two parts. Stage s runs the backward-weight of
 * a micro-batch s backwards late, so that every stage holds p micro-batches, what 1F1B's first one does, and the last
 * backwards come back through the stages without the weights' part; what was postponed fills the time after.
 * Bubble (p - 1) (T_F + T_B - T_W) of m (T_F + T_B + T_W), T_B being the input's part (the paper's Table 2): exact
 * where m >= p and T_W is no longer than the other two. What is longer fills no more of the bubble, nor do the weights
 * of micro-batches that there are not.
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
    ret[n++] = (SpSlot){ .kind = SP_SLOT_BACKWARD_INPUT, .micro_batch = i };
    if (i >= stage)
      ret[n++] = (SpSlot){ .kind = SP_SLOT_BACKWARD_WEIGHT, .micro_batch = i - stage };
  }
  for (gint32 i = MAX (0, m - stage); i < m; i++)
    ret[n++] = (SpSlot){ .kind = SP_SLOT_BACKWARD_WEIGHT, .micro_batch = i };
  return n;
}

static double
bubble (const SpPipeline *pipeline, double forward, double input, double weight)
{
  gint32 p = pipeline->stages, m = pipeline->micro_batches;
  double filled = (MIN (m, p) - 1) * MIN (weight, MIN (forward, input));

  return ((p - 1) * (forward + input) - filled) / (m * (forward + input + weight));
}

const SpSchedule sp_schedule_zb_h1 = {
  .name = "zb-h1",
  .summary = "1F1B with backward-weight postponed into the bubble",
  .splits = TRUE,
  .steady = 3,
  .fill = fill,
  .bubble = bubble,
};
