/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cost.h"
#include "sim/op-place.h"

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
  if (!(until > c->compute)) /* nor where prices are not finite */
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

/* Whether a kernel is not the same on both places of a chain of two, which has none between that does it all. */
static gboolean
differs_on_two (const SpCost *cost, const SpOp *op)
{
  return cost->paths[op->group].size == 2 && !sp_op_is_communication (op->kind) &&
         (op->guard & (SP_GUARD_NOT_FIRST | SP_GUARD_NOT_LAST) || sp_op_has_ends (op));
}

/* At a place of a chain, 0 where it does not run. */
static double
seconds_at (const SpCost *cost, const SpOp *op, gint32 place)
{
  return sp_guard_holds (op->guard, place, cost->paths[op->group].size, 0, 1) ? sp_cost_op_at (cost, op, place) : 0;
}

static void
walk_kernel (Clocks *c, const SpOp *op, double seconds)
{
  c->time->serial += seconds;
  c->time->compute += seconds;
  if (differs_on_two (c->cost, op))
    c->time->spare += seconds - MIN (seconds_at (c->cost, op, 0), seconds_at (c->cost, op, 1));
  double slowdown = sp_cost_slowdown (c->cost, op);
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
  double compute = 0, slower = 0, alone = 0, async = 0, blocking = 0;
  guint axis = 0, kernels = 0;

  for (guint i = loop->first; i < loop->end; i++) {
    double s = seconds[i - loop->first];
    if (!runs_in_step (&ops[i], step, loop->steps))
      continue;
    if (!sp_op_is_communication (ops[i].kind)) {
      compute += s;
      slower += s * sp_cost_slowdown (c->cost, &ops[i]);
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
  double slowed = compute + (compute > async ? slower * async / compute : slower);
  double hidden_end = MAX (slowed, async);
  c->time->serial += times * (compute + alone);
  c->time->high += times * (compute * (1 + c->cost->most_slowdown) + async + blocking);
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

/* A chain: from a RECEIVE to the SEND that passes on; the kernels between and the send are one hop. The place that
 * receives nothing may have less to do. */
typedef struct {
  gboolean open;
  gint32 size, start;
  double hop, first_hop; /* kernels of it */
} Chain;

static void
note_chain (Chain *chain, SpListTime *time, const SpCost *cost, const SpOp *op)
{
  if (op->kind == SP_OP_RECEIVE) {
    gint32 size = cost->paths[op->group].size;
    *chain = (Chain){ TRUE, size, op->flags & SP_OP_REVERSE ? size - 1 : 0, 0, 0 };
  } else if (chain->open && op->kind == SP_OP_SEND) {
    chain->open = FALSE;
    time->chain = (chain->size - 2) * chain->hop + chain->first_hop + sp_cost_chain (cost, op);
    time->chain_group = op->group;
    time->chain_axis = op->axis;
  } else if (chain->open) {
    chain->hop += sp_cost_op (cost, op);
    chain->first_hop += seconds_at (cost, op, chain->start);
  }
}

static gboolean
selected (const SpOp *op, guint flags, guint mask)
{
  return (op->flags & mask) == flags;
}

/* Whether the ranks of its group wait for each other in it, in the layer that it stands in. */
static gboolean
holds_up_layer (const SpOp *op)
{
  gboolean runs_free = sp_op_moves_shards (op) && op->reach > 0;

  return op->group && sp_op_is_communication (op->kind) && op->kind != SP_OP_SEND && op->kind != SP_OP_RECEIVE &&
         !runs_free;
}

/* Of a chain of two on place `of_two`, else on the place that does most. */
static void
list_time_at (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpPhase phase, guint flags,
              guint mask, gint32 of_two, SpListTime *ret)
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
    note_chain (&chain, ret, cost, op);
    gboolean differs = differs_on_two (cost, op);
    if (differs && !sp_guard_holds (op->guard, of_two, 2, 0, 1))
      continue;
    double seconds = differs ? sp_cost_op_at (cost, op, of_two) : sp_cost_op (cost, op);
    wait_for (&c, op);
    if (sp_op_is_communication (op->kind))
      walk_communication (&c, op, i, seconds);
    else
      walk_kernel (&c, op, seconds);
    if (holds_up_layer (op))
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

/* --- chains of two ------------------------------------------------------------------------------------------------ */

#define MOST_RUNS 4

typedef struct {
  SpPhase phase;
  guint flags, mask;
  SpListTime *time;
} ListRun;

static gboolean
has_two_sides (const SpCost *cost, const SpProgram *program, const SpBlock *block)
{
  gboolean has = FALSE;

  for (SpPhase phase = SP_PHASE_FORWARD; phase <= SP_PHASE_BACKWARD && !has; phase++) {
    guint n;
    const SpOp *ops = sp_program_segment (program, block, phase, &n);
    for (guint i = 0; i < n && !has; i++)
      has = differs_on_two (cost, &ops[i]);
  }
  return has;
}

/* Lists of which a place runs the first `in_turn`, and the others in place of some. Of a chain of two: on the slower
 * place, which each figure has for itself. */
static void
time_lists (const SpCost *cost, const SpProgram *program, const SpBlock *block, const ListRun *runs, guint n,
            guint in_turn)
{
  static const gsize figures[] = { G_STRUCT_OFFSET (SpListTime, serial), G_STRUCT_OFFSET (SpListTime, high),
                                   G_STRUCT_OFFSET (SpListTime, issue) };
  SpListTime last[MOST_RUNS];
  double later = 0, more[G_N_ELEMENTS (figures)] = { 0 }; /* on the last place */

  for (guint i = 0; i < n; i++)
    list_time_at (cost, program, block, runs[i].phase, runs[i].flags, runs[i].mask, 0, runs[i].time);
  if (!has_two_sides (cost, program, block))
    return;
  for (guint i = 0; i < n; i++)
    list_time_at (cost, program, block, runs[i].phase, runs[i].flags, runs[i].mask, 1, &last[i]);
#define FIGURE(time, f) G_STRUCT_MEMBER (double, time, figures[f])
  for (guint i = 0; i < in_turn; i++) {
    later += last[i].step - runs[i].time->step;
    for (guint f = 0; f < G_N_ELEMENTS (figures); f++)
      more[f] += FIGURE (&last[i], f) - FIGURE (runs[i].time, f);
  }
  for (guint i = 0; i < n; i++) {
    const SpListTime first = *runs[i].time;
    *runs[i].time = later > 0 ? last[i] : first;
    for (guint f = 0; f < G_N_ELEMENTS (figures); f++)
      FIGURE (runs[i].time, f) = more[f] > 0 ? FIGURE (&last[i], f) : FIGURE (&first, f);
  }
#undef FIGURE
}

void
sp_block_list_time (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpPhase phase, guint flags,
                    guint mask, SpListTime *ret)
{
  const ListRun run = { phase, flags, mask, ret };

  time_lists (cost, program, block, &run, 1, 1);
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

void
sp_block_work_time (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockWork *ret)
{
  const guint scope = sp_program_scope_flags (program);
  const ListRun whole[] = { { SP_PHASE_RECOMPUTE, scope, scope, &ret->recompute },
                            { SP_PHASE_BACKWARD, scope, scope, &ret->backward } };
  const ListRun parts[] = { whole[0],
                            { SP_PHASE_BACKWARD, 0, SP_OP_WEIGHT, &ret->input },
                            { SP_PHASE_BACKWARD, SP_OP_WEIGHT, SP_OP_WEIGHT, &ret->weight },
                            whole[1] };

  sp_block_list_time (cost, program, block, SP_PHASE_FORWARD, scope, scope, &ret->forward);
  if (sp_estimate_schedule (program)->splits)
    time_lists (cost, program, block, parts, G_N_ELEMENTS (parts), 2);
  else
    time_lists (cost, program, block, whole, G_N_ELEMENTS (whole), 2);
}

void
sp_block_work (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockWork *ret)
{
  ret->kind = block->kind;
  sp_block_work_time (cost, program, block, ret);
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
