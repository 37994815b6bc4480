/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cost.h"

/* Host memory of one GPU: what lives there always, and the stashes of the micro-batches in flight. */

/* The most micro-batches of each chunk that are between forward and backward at once. */
static gint64
host_stash (const SpEstimateContext *e, gint32 stage, const gint64 *stash)
{
  const SpProgram *program = e->program;
  const SpSchedule *schedule = sp_estimate_schedule (program);
  SpPipeline pipeline = sp_program_pipeline (program);
  g_autofree SpSlot *slots = NULL;
  gint64 live = 0, most = 0;

  if (schedule->in_flight != NULL)
    return schedule->in_flight (&pipeline, stage) * stash[0];
  slots = g_new (SpSlot, sp_schedule_most_slots (&pipeline));
  guint n = schedule->fill (&pipeline, stage, slots);
  for (guint i = 0; i < n; i++) {
    gboolean forward = slots[i].kind == SP_SLOT_FORWARD,
             last = slots[i].kind == SP_SLOT_BACKWARD || slots[i].kind == SP_SLOT_BACKWARD_WEIGHT;
    live += forward ? stash[slots[i].chunk] : 0;
    most = MAX (most, live);
    live -= last ? stash[slots[i].chunk] : 0;
  }
  return most;
}

/* The blocks say so; of a program whose blocks come from a cache only the frame is there. */
static gboolean
is_anything_there (const SpEstimateContext *e)
{
  for (guint b = 0; b < e->program->n_blocks; b++)
    if (e->state[b].host_bytes > 0 || e->work[0][b].host_stash > 0)
      return TRUE;
  return FALSE;
}

double
sp_estimate_host_bytes (const SpEstimateContext *e)
{
  const SpProgram *program = e->program;
  gint64 most = 0;

  if (!is_anything_there (e))
    return 0;
  for (gint32 stage = 0; stage < program->stages; stage++) {
    gint64 always = 0, stash[SP_MAX_CHUNKS] = { 0 };
    for (gint32 c = 0; c < program->chunks; c++) {
      gint32 counts[SP_MAX_BLOCKS];
      sp_estimate_counts (program, sp_program_virtual_stage (program, stage, c), counts);
      for (guint b = 0; b < program->n_blocks; b++) {
        always += counts[b] * e->state[b].host_bytes;
        stash[c] += counts[b] * e->work[0][b].host_stash;
      }
    }
    most = MAX (most, always + host_stash (e, stage, stash));
  }
  return (double) most;
}
