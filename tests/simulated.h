/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Random layouts through the simulator: what tests of it share. */

#include "models/simulate/simulate.h"
#include "models/writer.h"
#include "tests/random-machines.h"

static inline void
draw_simulation_describe (const Draw *d, const Machine *m)
{
  draw_describe (d);
  g_test_message ("%d nodes of %d, %g NICs, slowdown %.3f, host %d, schedule %d", m->cluster.nodes,
                  m->cluster.gpus_per_node, m->cluster.nics.value, m->device.overlap_slowdown.value,
                  d->framework.host_eager, d->layout.schedule);
}

/* Writes and simulates; what the estimate says of the same goes to `estimate`, unless NULL. */
static inline void
simulate_on (const Draw *d, Machine *m, const SpSimulateOptions *options, SpEstimate *estimate, SpSimulated *ret)
{
  const SpVariations usual = SP_VARIATIONS_DEFAULT;
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;
  SpEstimator estimator;

  m->cluster.memo =
      sp_cluster_memo_new (); /* so that paths come from the graph where digits do not line up with nodes */
  sp_estimator_init (&estimator, d->arch, &m->cluster, &d->framework, SP_MFU_SEQPAR);
  sp_program_write (program, d->arch, &d->framework, &d->layout, &d->run);
  if (estimate != NULL) {
    sp_estimate_program (&estimator, program, &d->run, estimate);
    sp_estimate_refine (&estimator, program, estimate);
  }
  gboolean ok = sp_simulate (&estimator, program, &d->run, &usual, options, ret, &error);
  if (!ok)
    draw_simulation_describe (d, m);
  g_assert_no_error (error);
  g_assert_true (ok);
  g_clear_pointer (&m->cluster.memo, sp_cluster_memo_free);
}
