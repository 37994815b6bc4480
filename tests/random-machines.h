/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Random clusters, and what tests of times share. */

#include "tests/random-layouts.h"

static inline gboolean
is_equal (double a, double b, double tolerance)
{
  return fabs (a - b) <= tolerance * MAX (fabs (a), fabs (b));
}

typedef struct {
  SpDevice device;
  SpCluster cluster;
} Machine;

/* `world` GPUs on as many nodes as come out even, at most four. */
static inline void
draw_machine (GRand *rand, gint32 world, double slowdown, Machine *m)
{
  gint32 nodes;

  do
    nodes = draw_int (rand, 1, 4);
  while (world % nodes != 0);
  m->device = (SpDevice){ .peak_bf16_flops_per_s = { .value = draw_between (rand, 1e13, 1e15) },
                          .memory_bytes = { .value = 80e9 },
                          .memory_bytes_per_s = { .value = draw_between (rand, 1e11, 5e12) },
                          .sms = { .value = draw_int (rand, 8, 200) },
                          .launch_s = { .value = draw_int (rand, 0, 1) * 3e-6 },
                          .gemm_efficiency = { .value = draw_between (rand, 0.3, 1) },
                          .attention_efficiency = { .value = draw_between (rand, 0.3, 1) },
                          .attention_backward_efficiency = { .value = draw_between (rand, 0.3, 1) },
                          .linear_efficiency = { .value = draw_between (rand, 0.05, 1) },
                          .memory_efficiency = { .value = draw_between (rand, 0.3, 1) },
                          .link_bytes_per_s = { .value = draw_between (rand, 1e9, 1e12) },
                          .overlap_slowdown = { .value = slowdown } };
  m->cluster = (SpCluster){ .device = &m->device,
                            .nodes = nodes,
                            .gpus_per_node = world / nodes,
                            .link_efficiency = { .value = draw_between (rand, 0.5, 1) },
                            .link_latency_s = { .value = draw_between (rand, 1e-7, 1e-5) },
                            .nics = { .value = draw_int (rand, 1, 8) },
                            .nic_bytes_per_s = { .value = draw_between (rand, 1e9, 1e11) },
                            .network_efficiency = { .value = draw_between (rand, 0.5, 1) },
                            .network_latency_s = { .value = draw_between (rand, 1e-6, 1e-4) } };
}

/* Slowdowns of 0, of 1 and between. */
static inline double
draw_slowdown (GRand *rand)
{
  gint32 kind = draw_int (rand, 0, 3);

  return kind == 0 ? 0 : kind == 1 ? 1 : g_rand_double (rand);
}

static inline void
estimate_on (const Draw *d, Machine *m, SpProgram *program, SpEstimate *ret)
{
  SpEstimator estimator;

  sp_estimator_init (&estimator, d->arch, &m->cluster, &d->framework, SP_MFU_SEQPAR);
  sp_estimate_layout (&estimator, program, &d->layout, &d->run, ret);
}

/* After a check that failed: what was drawn, and what came of it. */
static inline void
estimate_report (const Draw *d, const Machine *m, const SpEstimate *e)
{
  if (!g_test_failed ())
    return;
  draw_describe (d);
  g_test_message (
      "%d nodes of %d, slowdown %.3f: low %.9g, step %.9g, serial %.9g, high %.9g; compute %.9g, exposed %.9g, "
      "bubble %.9g, host %.9g, idle %.9g",
      m->cluster.nodes, m->cluster.gpus_per_node, m->device.overlap_slowdown.value, e->low_s, e->step_time_s,
      e->serial_s, e->high_s, e->compute_s, e->exposed_communication_s, e->bubble_s, e->host_s, e->idle_s);
}

/* On one of the two places of a group of two, 0 where it does not run; of larger ones on a place that runs all. */
static inline double
op_seconds (const SpCost *cost, const SpOp *op, gint32 of_two)
{
  const guint ends = SP_GUARD_NOT_FIRST | SP_GUARD_NOT_LAST;

  if (cost->paths[op->group].size != 2 || sp_op_is_communication (op->kind) || op->flags & SP_OP_BY_PLACE)
    return sp_cost_op (cost, op);
  return sp_guard_holds (op->guard & ends, of_two, 2, 0, 1) ? sp_cost_op_at (cost, op, of_two) : 0;
}

/* Every op of a list once, loops by their steps, one after the other, at a place as above. Of SYNC what runs each
 * micro-batch, or once. */
static inline double
list_seconds (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpPhase phase, gboolean each,
              gint32 of_two)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);
  double sum = 0;

  for (guint i = 0; i < n; i++) {
    double times = 1;
    if (phase == SP_PHASE_SYNC && each != ((ops[i].flags & SP_OP_PER_MICRO_BATCH) != 0))
      continue;
    if (ops[i].loop && !(ops[i].guard & SP_GUARD_FIRST_STEP)) {
      times = block->loops[ops[i].loop - 1].steps;
      times -= (ops[i].guard & (SP_GUARD_NOT_FIRST_STEP | SP_GUARD_NOT_LAST_STEP)) != 0;
      if (ops[i].guard & (SP_GUARD_NEAR | SP_GUARD_NEAR_ENDS))
        times = MIN (times, ops[i].guard & SP_GUARD_NEAR ? ops[i].reach : 2.0 * ops[i].reach);
    }
    sum += times * op_seconds (cost, &ops[i], of_two);
  }
  return sum;
}
