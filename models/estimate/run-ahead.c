/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cost.h"

/*
 * What an eager host's lead keeps from being used again. The host frees a buffer once it has issued what uses it; where
 * that is a collective on a stream of its own, the allocator gives the memory out anew only when the GPU has run it
 * (PyTorch's record_stream). So as much lies in the pool as the collectives read that are issued and not yet run.
 *
 * The host is ahead by what it issued in less time than the GPU takes, from the start of the step (where the loss is
 * waited for) to the fullest moment, the end of the last micro-batch's forward:
 *     ahead = min (run-ahead x host launch, ((m - 1) (forward + backward) + forward) (1 - host / GPU)),
 * all in time of the host. Not at all where it is the host that takes longer. What is read in that time goes back from
 * there through the forward, and then through the micro-batches before.
 *
 * There is only so much room. Where a GPU holds the step but not that besides, the allocator waits for the GPU and gives
 * back what it can: the step takes crowded-time as long (estimate.c), however much is missing.
 *
 * Known lies: a pipeline's stages have one ratio of host and GPU, the slowest's; that the host waits for a message
 * counts as if it were as far ahead without; and the stage is the one that is fullest without all this.
 */

typedef struct {
  double issue_s, bytes;
} Lent;

static void
add_lent (const SpListTime *time, gint64 bytes, double times, Lent *ret)
{
  ret->issue_s += times * time->issue;
  ret->bytes += times * (double) bytes;
}

double
sp_estimate_run_ahead (const SpEstimateContext *e, const SpFramework *framework, gint32 stage, const SpEstimate *times)
{
  const SpProgram *program = e->program;
  double device_s = times->compute_s + times->exposed_communication_s + times->idle_s;
  Lent forward = { 0 }, backward = { 0 };
  gint32 counts[SP_MAX_BLOCKS];

  if (framework->run_ahead.value == 0 || e->cost->host_launch_s == 0 || device_s <= times->host_issue_s)
    return 0;
  sp_estimate_stage_run_counts (program, stage, counts);
  for (guint b = 0; b < program->n_blocks; b++) {
    const SpBlockWork *work = &e->work[0][b];
    add_lent (&work->forward, work->lent_bytes[0], counts[b], &forward);
    add_lent (&work->recompute, 0, counts[b], &backward);
    add_lent (&work->backward, work->lent_bytes[1], counts[b], &backward);
  }
  double both_s = forward.issue_s + backward.issue_s;
  double issued_s = (program->micro_batches - 1) * both_s + forward.issue_s;
  double ahead_s =
      MIN (framework->run_ahead.value * e->cost->host_launch_s, issued_s * (1 - times->host_issue_s / device_s));
  double last_s = MIN (ahead_s, forward.issue_s);

  return (last_s > 0 ? forward.bytes * last_s / forward.issue_s : 0) +
         (ahead_s > last_s ? (forward.bytes + backward.bytes) * (ahead_s - last_s) / both_s : 0);
}
