/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a framework, or a network, changes between ranks: hosts that stall in pipelines over nodes, ranks that come late,
 * calls tensor by tensor, slow transfers of shards, rings alone between nodes, products beside collectives.
 */
#include "tests/stack-case.h"

#include <math.h>

/* The 3B model of nanotron's grid, without what is fitted to it. */
static void
grid_init (Case *c, const char *const *sets)
{
  case_init (c, "papers/nanotron-3b.ini", sets);
  c->framework.host_stall.value = c->framework.network_wait_s.value = c->framework.collective_wait_s.value = 0;
  c->framework.tensor_calls = c->framework.overlaps_tensor = FALSE;
}

/* --- hosts -------------------------------------------------------------------------------------------------------- */

/* Only where the pipeline leaves the node, by tensor x sequence ranks; and then such a step is the host's. */
static void
test_host_stall (void)
{
  static const struct {
    const char *sets[7];
    double ranks;
  } rows[] = {
    { { "nodes=4", "data=4", "tensor=4", "pipeline=2", NULL }, 4 },
    { { "nodes=4", "data=2", "tensor=4", "pipeline=2", "ring=2", "ring-split=contiguous", NULL }, 8 },
    { { "nodes=1", "data=1", "tensor=4", "pipeline=2", NULL }, 0 },
    { { "nodes=4", "data=8", "tensor=4", "pipeline=1", NULL }, 0 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_auto (Case) c = { 0 };
    grid_init (&c, rows[i].sets);
    SpEstimate before = estimate (&c);
    c.framework.host_stall.value = 0.5;
    SpEstimate after = estimate (&c);
    double expected = before.host_issue_s * (1 + 0.5 * rows[i].ranks);
    g_assert_cmpfloat (fabs (after.host_issue_s / expected - 1), <, 1e-12);
    g_assert_cmpfloat (after.low_s, ==, before.low_s);
    g_assert_true (rows[i].ranks == 0 ? after.step_time_s == before.step_time_s
                                      : after.is_host_bound && after.step_time_s >= after.host_issue_s);
    if (i > 0)
      continue;
    double s = simulated_s (&c);
    g_assert_cmpfloat (s, >=, after.low_s);
    g_assert_cmpfloat (s, >=, after.host_issue_s);
    g_assert_cmpfloat (s, <=, after.high_s);
  }
}

/* A stage of p has m forwards and m backwards of its own, and before and after them p - 1 of its neighbours' at most: that
 * often an eager host begins anew. Not without a pipeline, nor where it issues nothing. */
static void
test_host_slot (void)
{
  static const struct {
    const char *sets[6];
    gboolean graph;
  } rows[] = {
    { { "nodes=4", "data=4", "tensor=4", "pipeline=2", NULL } },
    { { "nodes=4", "data=2", "tensor=4", "pipeline=4", "schedule=zb-h1", NULL } },
    { { "nodes=4", "data=4", "tensor=4", "pipeline=2", NULL }, TRUE },
    { { "nodes=4", "data=8", "tensor=4", "pipeline=1", NULL } },
  };
  const double slot_s = 1e-3;

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_auto (Case) c = { 0 };
    grid_init (&c, rows[i].sets);
    c.framework.host_runs_ahead = FALSE;
    c.framework.host_eager = !rows[i].graph;
    SpEstimate before = estimate (&c);
    c.framework.host_slot_s.value = slot_s;
    SpEstimate after = estimate (&c);
    double m = c.program->micro_batches, p = c.program->stages, more_s = after.serial_s - before.serial_s;
    gboolean counts = p > 1 && !rows[i].graph;
    g_assert_cmpfloat (after.low_s, ==, before.low_s);
    g_assert_cmpfloat (more_s, >=, counts ? 2 * m * slot_s * (1 - 1e-9) : 0);
    g_assert_cmpfloat (more_s, <=, counts ? 2 * (m + p - 1) * slot_s * (1 + 1e-9) : 0);
    g_assert_cmpfloat (fabs (after.step_time_s - before.step_time_s - more_s), <=, 2 * (p - 1) * slot_s);
    if (!counts)
      continue;
    double s = simulated_s (&c);
    g_assert_cmpfloat (s, >=, after.low_s);
    g_assert_cmpfloat (s, <=, after.high_s);
  }
}

/* --- prices ------------------------------------------------------------------------------------------------------- */

typedef struct {
  double total_s, fixed_s;
} Price;

static Price
price (Case *c, const SpOp *op)
{
  SpCost cost;
  Price ret;

  sp_cost_init (&cost, &c->cluster, &c->framework);
  sp_cost_set_paths (&cost, &c->cluster, c->program);
  ret.total_s = sp_cost_op_parts (&cost, op, &ret.fixed_s, NULL);
  return ret;
}

static const char *const over_nodes[] = { "nodes=4", "data=2", "tensor=16", NULL };

/* Of what kernels wait for over nodes, 16 ranks of it; of the data ranks' nothing. */
static void
test_network_wait (void)
{
  const SpOp waited = {
    .kind = SP_OP_ALL_GATHER, .group = SP_GROUP_TENSOR, .stream = SP_STREAM_TENSOR, .bytes = 1 << 24
  };
  SpOp beside = waited, data = waited;
  g_auto (Case) c = { 0 }, inside = { 0 };

  grid_init (&c, over_nodes);
  grid_init (&inside, (const char *const[]){ "nodes=4", "data=4", "tensor=8", NULL });
  beside.flags = SP_OP_ASYNC;
  data.stream = SP_STREAM_DATA;
  const struct {
    Case *c;
    const SpOp *op;
    double ranks;
  } rows[] = { { &c, &waited, 16 }, { &c, &beside, 0 }, { &c, &data, 0 }, { &inside, &waited, 0 } };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    estimate (rows[i].c);
    rows[i].c->framework.network_wait_s.value = 0;
    Price before = price (rows[i].c, rows[i].op);
    rows[i].c->framework.network_wait_s.value = 1e-5;
    Price after = price (rows[i].c, rows[i].op);
    g_assert_cmpfloat (fabs (after.total_s - before.total_s - rows[i].ranks * 1e-5), <, 1e-12);
    g_assert_cmpfloat (fabs (after.fixed_s - before.fixed_s - rows[i].ranks * 1e-5), <, 1e-12);
  }
}

/* The same for each rank of any group, whether it leaves the node or not. */
static void
test_rank_wait (void)
{
  const SpOp op = { .kind = SP_OP_ALL_GATHER, .group = SP_GROUP_TENSOR, .stream = SP_STREAM_TENSOR, .bytes = 1 << 24 };
  static const char *const sets[][4] = { { "nodes=4", "data=4", "tensor=8", NULL },
                                         { "nodes=4", "data=2", "tensor=16", NULL } };

  for (guint i = 0; i < G_N_ELEMENTS (sets); i++) {
    g_auto (Case) c = { 0 };
    grid_init (&c, sets[i]);
    estimate (&c);
    Price before = price (&c, &op);
    c.framework.rank_wait_s.value = 1e-5;
    Price after = price (&c, &op);
    g_assert_cmpfloat (fabs (after.total_s - before.total_s - (i == 0 ? 8 : 16) * 1e-5), <, 1e-12);
  }
}

/* Four calls are four times one of a quarter; and a block's gradients go in as many as it has tensors. */
static void
test_calls (void)
{
  SpOp op = {
    .kind = SP_OP_ALL_REDUCE, .group = SP_GROUP_ZERO, .stream = SP_STREAM_DATA, .bytes = 1 << 26, .batch = 4
  };
  g_auto (Case) c = { 0 };
  guint n;

  grid_init (&c, (const char *const[]){ "nodes=4", "data=16", "tensor=2", NULL });
  SpEstimate block = estimate (&c);
  Price four = price (&c, &op);
  op.batch = 0;
  op.bytes /= 4;
  Price one = price (&c, &op);
  g_assert_cmpfloat (fabs (four.total_s / one.total_s - 4), <, 1e-12);
  g_assert_cmpfloat (fabs (four.fixed_s / one.fixed_s - 4), <, 1e-12);

  c.framework.tensor_calls = TRUE;
  SpEstimate tensor = estimate (&c);
  const SpBlock *layer = &c.program->variants[0].blocks[1];
  const SpOp *ops = sp_program_segment (c.program, layer, SP_PHASE_SYNC, &n);
  guint reductions = 0;
  for (guint i = 0; i < n; i++)
    if (ops[i].group == SP_GROUP_ZERO) {
      g_assert_cmpint (ops[i].batch, ==, layer->n_weights);
      reductions++;
    }
  g_assert_cmpuint (reductions, ==, 1);
  g_assert_cmpfloat (tensor.step_time_s, >, block.step_time_s);
  g_assert_cmpfloat (tensor.axes[SP_AXIS_DATA].wire_bytes.mean, ==, block.axes[SP_AXIS_DATA].wire_bytes.mean);
}

/* What is beyond launch and latency, of gathers and scatters of shards alone. */
static void
test_shard_time (void)
{
  static const SpOpKind kinds[] = { SP_OP_ALL_GATHER, SP_OP_REDUCE_SCATTER, SP_OP_ALL_REDUCE };
  g_auto (Case) c = { 0 };

  grid_init (&c, over_nodes);
  estimate (&c);
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++) {
    const SpOp op = { .kind = kinds[i], .group = SP_GROUP_ZERO, .stream = SP_STREAM_DATA, .bytes = 1 << 26 };
    c.framework.shard_time.value = 0;
    Price before = price (&c, &op);
    c.framework.shard_time.value = 3;
    Price after = price (&c, &op);
    double factor = (after.total_s - after.fixed_s) / (before.total_s - before.fixed_s);
    g_assert_cmpfloat (fabs (factor - (kinds[i] == SP_OP_ALL_REDUCE ? 1 : 3)), <, 1e-9);
    g_assert_cmpfloat (after.fixed_s, ==, before.fixed_s);
  }
}

/* An all-reduce of few bytes over nodes is a scatter and a gather, where trees would be quicker; in a node as ever. */
static void
test_ring_network (void)
{
  SpOp reduce = { .kind = SP_OP_ALL_REDUCE, .group = SP_GROUP_TENSOR, .stream = SP_STREAM_DATA, .bytes = 1 << 10 };
  SpOp gather = reduce;

  gather.kind = SP_OP_ALL_GATHER;
  for (gint32 tensor = 8; tensor <= 32; tensor += 24) {
    g_autofree char *degree = g_strdup_printf ("tensor=%d", tensor), *data = g_strdup_printf ("data=%d", 32 / tensor);
    g_auto (Case) c = { 0 };
    grid_init (&c, (const char *const[]){ "nodes=4", degree, data, NULL });
    estimate (&c);
    double launch = c.cluster.device->launch_s.value;
    c.cluster.ring_network = FALSE;
    double any = price (&c, &reduce).total_s;
    c.cluster.ring_network = TRUE;
    double ring = price (&c, &reduce).total_s, twice = 2 * price (&c, &gather).total_s - launch;
    if (tensor == 8)
      g_assert_cmpfloat (ring, ==, any);
    else {
      g_assert_cmpfloat (ring, >, 1.2 * any);
      g_assert_cmpfloat (fabs (ring / twice - 1), <, 1e-9);
    }
  }
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* The same bytes and FLOP, less in the open, and no longer a step; nothing changes without the layout's overlap. */
static void
test_tensor_backward (void)
{
  static const char *const regions[] = { "true", "false" }, *const overlap[] = { "true", "false" };

  for (guint i = 0; i < 4; i++) {
    g_autofree char *region = g_strconcat ("sequence-regions=", regions[i % 2], NULL);
    g_autofree char *beside = g_strconcat ("overlap=", overlap[i / 2], NULL);
    g_auto (Case) c = { 0 };
    grid_init (&c, (const char *const[]){ "nodes=1", "data=1", "tensor=8", "micro-batch=8", region, beside, NULL });
    SpEstimate turns = estimate (&c);
    c.framework.overlaps_tensor = TRUE;
    SpEstimate overlapped = estimate (&c);
    const SpAxisCost *was = &turns.axes[SP_AXIS_TENSOR], *is = &overlapped.axes[SP_AXIS_TENSOR];
    g_assert_cmpfloat (is->wire_bytes.mean, ==, was->wire_bytes.mean);
    g_assert_cmpfloat (fabs (is->time_s / was->time_s - 1), <, 1e-12);
    if (i / 2 == 1) {
      g_assert_cmpfloat (overlapped.step_time_s, ==, turns.step_time_s);
      continue;
    }
    g_assert_cmpfloat (is->exposed_s, <, 0.8 * was->exposed_s);
    g_assert_cmpfloat (overlapped.step_time_s, <, turns.step_time_s);
    double s = simulated_s (&c);
    g_assert_cmpfloat (s, >=, overlapped.low_s);
    g_assert_cmpfloat (s, <=, overlapped.high_s);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/stack-ranks/host-stall", test_host_stall);
  g_test_add_func ("/stack-ranks/host-slot", test_host_slot);
  g_test_add_func ("/stack-ranks/network-wait", test_network_wait);
  g_test_add_func ("/stack-ranks/rank-wait", test_rank_wait);
  g_test_add_func ("/stack-ranks/calls", test_calls);
  g_test_add_func ("/stack-ranks/shard-time", test_shard_time);
  g_test_add_func ("/stack-ranks/ring-network", test_ring_network);
  g_test_add_func ("/stack-ranks/tensor-backward", test_tensor_backward);
  return g_test_run ();
}
