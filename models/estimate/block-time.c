/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cost.h"

#include <string.h>

/* --- one op list -------------------------------------------------------------------------------------------------- */

/* The clocks of a list as it is walked. */
typedef struct {
  const SpCost *cost;
  SpListTime *time;
  double compute; /* when the compute stream is free */
  double stream[SP_N_STREAMS];
  double latest; /* of them */
  guint8 stream_axis[SP_N_STREAMS];
  double finish[512]; /* of communication ops */
  guint8 finish_axis[512];
  guint kernels, gathers; /* gathers: and scatters, of shards */
} Clocks;

static void
expose (Clocks *c, double until, guint axis)
{
  if (until <= c->compute)
    return;
  c->time->exposed[axis] += until - c->compute;
  c->compute = until;
}

/* How long compute runs beside communication that is under way. */
static double
beside (const Clocks *c, double seconds)
{
  double busy = 0;

  if (c->latest <= c->compute)
    return 0;
  for (guint s = SP_STREAM_COMPUTE + 1; s < SP_N_STREAMS; s++)
    if (c->stream[s] > c->compute)
      busy = MAX (busy, c->stream[s] - c->compute);
  return MIN (busy, seconds);
}

static void
wait_for (Clocks *c, const SpOp *op)
{
  for (guint i = 0; i < G_N_ELEMENTS (op->wait) && op->wait[i]; i++)
    expose (c, c->finish[op->wait[i] - 1], c->finish_axis[op->wait[i] - 1]);
}

/* Of communication that took `seconds` by itself. */
static double
stretched (const SpCost *cost, const SpOp *op, double seconds)
{
  double fixed, stretch = sp_cost_stretch (cost, op);

  if (stretch == 0)
    return seconds;
  sp_cost_op_parts (cost, op, &fixed, NULL);
  return seconds + stretch * MAX (seconds - fixed, 0);
}

static void
walk_communication (Clocks *c, const SpOp *op, guint index, double alone)
{
  SpListTime *time = c->time;
  double seconds = stretched (c->cost, op, alone);

  time->serial += alone;
  time->high += seconds;
  time->axes[op->axis] += alone;
  c->gathers += sp_op_moves_shards (op);
  if (op->stream == SP_STREAM_DATA && op->flags & SP_OP_ASYNC && !(op->flags & SP_OP_AFTER_OPTIMIZER)) {
    /* Runs beside other lists: the slot places it. */
    time->data_async += seconds;
    c->finish[index] = 0;
    return;
  }
  double start = MAX (c->compute, c->stream[op->stream]);
  if (!(op->flags & SP_OP_ASYNC)) /* what the stream does before it is not its own time */
    expose (c, start, c->stream_axis[op->stream]);
  c->stream[op->stream] = start + seconds;
  c->latest = MAX (c->latest, start + seconds);
  c->stream_axis[op->stream] = op->axis;
  c->finish[index] = start + seconds;
  c->finish_axis[index] = op->axis;
  if (!(op->flags & SP_OP_ASYNC))
    expose (c, start + seconds, op->axis);
}

static void
walk_kernel (Clocks *c, const SpOp *op, double seconds)
{
  c->time->serial += seconds;
  c->time->compute += seconds;
  if (op->guard & (SP_GUARD_NOT_FIRST | SP_GUARD_NOT_LAST) && c->cost->paths[op->group].size == 2)
    c->time->spare += seconds; /* a chain of two has no place between that does it all */
  double slowdown = sp_cost_slowdown (c->cost, op->kind);
  c->time->high += seconds * (1 + slowdown);
  c->compute += seconds + slowdown * beside (c, seconds);
  c->kernels++;
}

/* On the slowest place. */
static gboolean
runs_in_step (const SpOp *op, gint32 step, gint32 steps)
{
  const guint guards = SP_GUARD_FIRST_STEP | SP_GUARD_NOT_FIRST_STEP | SP_GUARD_NOT_LAST_STEP;

  return sp_guard_holds (op->guard & guards, 0, 1, step, steps) && sp_op_in_reach (op, step, steps);
}

/* `times` equal steps of a loop, from `step` on. */
static void
walk_steps (Clocks *c, const SpOp *ops, const double *seconds, const SpLoop *loop, gint32 step, gint32 times)
{
  double compute = 0, alone = 0, async = 0, blocking = 0;
  guint axis = 0, kernels = 0;

  for (guint i = loop->first; i < loop->end; i++) {
    double s = seconds[i - loop->first];
    if (!runs_in_step (&ops[i], step, loop->steps))
      continue;
    if (!sp_op_is_communication (ops[i].kind)) {
      compute += s;
      kernels++;
      continue;
    }
    axis = ops[i].axis;
    c->time->axes[axis] += times * s;
    alone += s;
    if (ops[i].flags & SP_OP_ASYNC)
      async += stretched (c->cost, &ops[i], s);
    else
      blocking += s;
  }
  double slowed = compute + c->cost->slowdown * MIN (compute, async);
  double hidden_end = MAX (slowed, async);
  c->time->serial += times * (compute + alone);
  c->time->high += times * (compute * (1 + MAX (c->cost->slowdown, c->cost->memory_slowdown)) + async + blocking);
  c->time->compute += times * compute;
  c->time->exposed[axis] += times * (hidden_end - slowed + blocking);
  c->compute += times * (hidden_end + blocking);
  c->kernels += times * kernels;
}

/* The first step does not go on from an op that waits for what was begun before the loop until that is over. */
static void
wait_before_loop (Clocks *c, const SpOp *ops, const double *seconds, const SpLoop *loop)
{
  double before = 0;

  for (guint i = loop->first; i < loop->end; i++) {
    const SpOp *op = &ops[i];
    if (!runs_in_step (op, 0, loop->steps))
      continue;
    for (guint j = 0; j < G_N_ELEMENTS (op->wait) && op->wait[j]; j++)
      if (op->wait[j] <= loop->first)
        expose (c, c->finish[op->wait[j] - 1] - before, c->finish_axis[op->wait[j] - 1]);
    if (!sp_op_is_communication (op->kind))
      before += seconds[i - loop->first];
  }
}

/* The next step in which other ops run than in `step`. */
static gint32
next_change (const SpOp *ops, const SpLoop *loop, gint32 step)
{
  gint32 next = step == 0 ? 1 : step < loop->steps - 1 ? loop->steps - 1 : loop->steps;

  for (guint i = loop->first; i < loop->end; i++)
    if (ops[i].guard & (SP_GUARD_NEAR | SP_GUARD_NEAR_ENDS)) {
      gint32 far = ops[i].reach + 1, end = loop->steps - ops[i].reach;
      next = far > step ? MIN (next, far) : next;
      next = ops[i].guard & SP_GUARD_NEAR_ENDS && end > step ? MIN (next, end) : next;
    }
  return next;
}

static void
walk_loop (Clocks *c, const SpOp *ops, const SpLoop *loop)
{
  double seconds[64];

  g_assert (loop->end - loop->first <= 64);
  for (guint i = loop->first; i < loop->end; i++)
    seconds[i - loop->first] = sp_cost_op (c->cost, &ops[i]);
  wait_before_loop (c, ops, seconds, loop);
  for (gint32 step = 0, next; step < loop->steps; step = next) {
    next = next_change (ops, loop, step);
    walk_steps (c, ops, seconds, loop, step, next - step);
  }
}

/* A chain: from a RECEIVE to the SEND that passes on; the kernels between and the send are one hop. */
typedef struct {
  gboolean open;
  double hop;
} Chain;

static void
note_chain (Chain *chain, SpListTime *time, const SpCost *cost, const SpOp *op, double seconds)
{
  if (op->kind == SP_OP_RECEIVE) {
    chain->open = TRUE;
    chain->hop = 0;
  } else if (chain->open && op->kind == SP_OP_SEND) {
    chain->open = FALSE;
    time->chain = (cost->paths[op->group].size - 1) * chain->hop + sp_cost_chain (cost, op);
    time->chain_group = op->group;
    time->chain_axis = op->axis;
  } else if (chain->open)
    chain->hop += seconds;
}

static gboolean
selected (const SpOp *op, guint flags, guint mask)
{
  return (op->flags & mask) == flags;
}

void
sp_block_list_time (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpPhase phase, guint flags,
                    guint mask, SpListTime *ret)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);
  Clocks c;
  Chain chain = { 0 };

  memset (ret, 0, sizeof *ret);
  if (n == 0)
    return;
  c.cost = cost;
  c.time = ret;
  c.compute = c.latest = 0;
  c.kernels = c.gathers = 0;
  memset (c.stream, 0, sizeof c.stream);
  memset (c.stream_axis, 0, sizeof c.stream_axis);
  g_assert (n <= G_N_ELEMENTS (c.finish));
  for (guint i = 0; i < n; i++) {
    const SpOp *op = &ops[i];
    if (op->loop) {
      const SpLoop *loop = &block->loops[op->loop - 1];
      if (selected (op, flags, mask))
        walk_loop (&c, ops, loop);
      for (guint j = loop->first; j < loop->end; j++)
        c.finish[j] = 0;
      i = loop->end - 1u;
      continue;
    }
    c.finish[i] = 0;
    if (!selected (op, flags, mask))
      continue;
    double seconds = sp_cost_op (cost, op);
    note_chain (&chain, ret, cost, op, seconds);
    wait_for (&c, op);
    if (sp_op_is_communication (op->kind))
      walk_communication (&c, op, i, seconds);
    else
      walk_kernel (&c, op, seconds);
    if (op->group && sp_op_is_communication (op->kind) && op->kind != SP_OP_SEND && op->kind != SP_OP_RECEIVE)
      ret->groups |= 1u << op->group;
  }
  for (guint s = SP_STREAM_COMPUTE + 1; s < SP_N_STREAMS; s++)
    expose (&c, c.stream[s], c.stream_axis[s]);
  ret->step = c.compute;
  /* The host issues kernels one after the other; a list is not over before they are issued. */
  double host = c.kernels * cost->host_launch_s;
  ret->issue = host + c.gathers * cost->host_gather_s;
  ret->host = cost->host_runs_ahead ? 0 : MAX (0.0, host - ret->step);
  ret->step += ret->host;
  ret->serial = MAX (ret->serial, ret->issue);
  ret->high += ret->issue; /* or some of it is before the long kernels, and some of them after it */
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

void
sp_block_work (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockWork *ret)
{
  const guint scope = sp_program_scope_flags (program);

  ret->kind = block->kind;
  sp_block_list_time (cost, program, block, SP_PHASE_FORWARD, scope, scope, &ret->forward);
  sp_block_list_time (cost, program, block, SP_PHASE_RECOMPUTE, scope, scope, &ret->recompute);
  sp_block_list_time (cost, program, block, SP_PHASE_BACKWARD, scope, scope, &ret->backward);
  if (sp_estimate_schedule (program)->splits) {
    sp_block_list_time (cost, program, block, SP_PHASE_BACKWARD, 0, SP_OP_WEIGHT, &ret->input);
    sp_block_list_time (cost, program, block, SP_PHASE_BACKWARD, SP_OP_WEIGHT, SP_OP_WEIGHT, &ret->weight);
  }
  sp_block_work_memory (program, block, ret);
  sp_block_work_volume (cost, program, block, ret);
}

static void
find_meeting (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockState *ret)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, SP_PHASE_SYNC, &n);

  for (guint i = 0; i < n && !ret->sync_meets; i++)
    if (ops[i].group == SP_GROUP_TIE || ops[i].group == SP_GROUP_MIRROR)
      ret->sync_meets = TRUE;
    else if (selected (&ops[i], 0, SP_OP_PER_MICRO_BATCH))
      ret->sync_before += sp_cost_op (cost, &ops[i]);
}

void
sp_block_state (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockState *ret)
{
  const guint each = SP_OP_PER_MICRO_BATCH;

  /* What the scope leaves out takes no time. */
  ret->gather = ret->sync_each = ret->sync_once = ret->optimizer = (SpListTime){ 0 };
  ret->sync_meets = FALSE;
  ret->sync_before = 0;
  if (!sp_program_is_one_layer (program))
    sp_block_list_time (cost, program, block, SP_PHASE_GATHER, 0, 0, &ret->gather);
  if (program->scope == SP_SCOPE_STEP) {
    sp_block_list_time (cost, program, block, SP_PHASE_SYNC, each, each, &ret->sync_each);
    sp_block_list_time (cost, program, block, SP_PHASE_SYNC, 0, each, &ret->sync_once);
    sp_block_list_time (cost, program, block, SP_PHASE_OPTIMIZER, 0, 0, &ret->optimizer);
    find_meeting (cost, program, block, ret);
  }
  sp_block_state_memory (program, block, ret);
  sp_block_state_volume (cost, program, block, ret);
}
