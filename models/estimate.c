/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate-private.h"

#include "models/memory.h"
#include "models/schedules.h"
#include "models/writer.h"

#include <math.h>
#include <string.h>

/* --- one op list ----------------------------------------------------------------------------------------------------- */

/* The clocks of a list as it is walked. */
typedef struct {
  const SpCost *cost;
  SpListTime *time;
  double compute; /* when the compute stream is free */
  double stream[SP_N_STREAMS];
  double latest;              /* of them */
  guint8 stream_axis[SP_N_STREAMS];
  double finish[512]; /* of communication ops */
  guint8 finish_axis[512];
  guint kernels;
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

static void
walk_communication (Clocks *c, const SpOp *op, guint index, double seconds)
{
  SpListTime *time = c->time;

  time->serial += seconds;
  time->high += seconds;
  time->axes[op->axis] += seconds;
  if (op->stream == SP_STREAM_DATA && op->flags & SP_OP_ASYNC && !(op->flags & SP_OP_AFTER_OPTIMIZER)) {
    /* Runs beside other lists: the slot places it. */
    time->data_async += seconds;
    c->finish[index] = 0;
    return;
  }
  double start = MAX (c->compute, c->stream[op->stream]);
  c->stream[op->stream] = start + seconds;
  c->latest = MAX (c->latest, start + seconds);
  c->stream_axis[op->stream] = op->axis;
  c->finish[index] = start + seconds;
  c->finish_axis[index] = op->axis;
  if (!(op->flags & SP_OP_ASYNC))
    expose (c, start + seconds, op->axis);
}

static void
walk_kernel (Clocks *c, double seconds)
{
  c->time->serial += seconds;
  c->time->compute += seconds;
  c->time->high += seconds * (1 + c->cost->slowdown);
  c->compute += seconds + c->cost->slowdown * beside (c, seconds);
  c->kernels++;
}

static gboolean
runs_in_step (const SpOp *op, gboolean first, gboolean last)
{
  if (op->guard & SP_GUARD_FIRST_STEP)
    return first;
  if (op->guard & SP_GUARD_NOT_FIRST_STEP)
    return !first;
  return !(op->guard & SP_GUARD_NOT_LAST_STEP && last);
}

/* `times` equal steps of a loop. */
static void
walk_steps (Clocks *c, const SpOp *ops, const double *seconds, const SpLoop *loop, gboolean first, gboolean last,
            gint32 times)
{
  double compute = 0, async = 0, blocking = 0;
  guint axis = 0, kernels = 0;

  if (times <= 0)
    return;
  for (guint i = loop->first; i < loop->end; i++) {
    double s = seconds[i - loop->first];
    if (!runs_in_step (&ops[i], first, last))
      continue;
    if (!sp_op_is_communication (ops[i].kind)) {
      compute += s;
      kernels++;
      continue;
    }
    axis = ops[i].axis;
    c->time->axes[axis] += times * s;
    if (ops[i].flags & SP_OP_ASYNC)
      async += s;
    else
      blocking += s;
  }
  double slowed = compute + c->cost->slowdown * MIN (compute, async);
  double hidden_end = MAX (slowed, async);
  c->time->serial += times * (compute + async + blocking);
  c->time->high += times * (compute * (1 + c->cost->slowdown) + async + blocking);
  c->time->compute += times * compute;
  c->time->exposed[axis] += times * (hidden_end - slowed + blocking);
  c->compute += times * (hidden_end + blocking);
  c->kernels += times * kernels;
}

static void
walk_loop (Clocks *c, const SpOp *ops, const SpLoop *loop)
{
  double seconds[64];

  g_assert (loop->end - loop->first <= 64);
  for (guint i = loop->first; i < loop->end; i++)
    seconds[i - loop->first] = sp_cost_op (c->cost, &ops[i]);
  walk_steps (c, ops, seconds, loop, TRUE, loop->steps == 1, 1);
  walk_steps (c, ops, seconds, loop, FALSE, FALSE, loop->steps - 2);
  walk_steps (c, ops, seconds, loop, FALSE, TRUE, loop->steps > 1);
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
    time->chain = (cost->paths[op->group].size - 1) * (chain->hop + seconds);
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
sp_estimate_list (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpPhase phase, guint flags,
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
  c.kernels = 0;
  memset (c.stream, 0, sizeof c.stream);
  g_assert (n <= G_N_ELEMENTS (c.finish));
  for (guint i = 0; i < n; i++) {
    const SpOp *op = &ops[i];
    if (op->loop) {
      const SpLoop *loop = &block->loops[op->loop - 1];
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
      walk_kernel (&c, seconds);
    if (op->group && sp_op_is_communication (op->kind) && op->kind != SP_OP_SEND && op->kind != SP_OP_RECEIVE)
      ret->groups |= 1u << op->group;
  }
  for (guint s = SP_STREAM_COMPUTE + 1; s < SP_N_STREAMS; s++)
    expose (&c, c.stream[s], c.stream_axis[s]);
  ret->step = c.compute;
  /* The host issues kernels one after the other; a list is not over before they are issued. */
  double host = c.kernels * cost->host_launch_s;
  ret->host = MAX (0.0, host - ret->step);
  ret->step += ret->host;
  ret->serial = MAX (ret->serial, host);
  ret->high = MAX (ret->high, host);
}

/* --- blocks ------------------------------------------------------------------------------------------------------------ */

void
sp_estimate_block (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockTime *ret)
{
  sp_estimate_list (cost, program, block, SP_PHASE_GATHER, 0, 0, &ret->gather);
  sp_estimate_list (cost, program, block, SP_PHASE_FORWARD, 0, 0, &ret->forward);
  sp_estimate_list (cost, program, block, SP_PHASE_RECOMPUTE, 0, 0, &ret->recompute);
  sp_estimate_list (cost, program, block, SP_PHASE_BACKWARD, 0, 0, &ret->backward);
  sp_estimate_list (cost, program, block, SP_PHASE_SYNC, SP_OP_PER_MICRO_BATCH, SP_OP_PER_MICRO_BATCH, &ret->sync_each);
  sp_estimate_list (cost, program, block, SP_PHASE_SYNC, 0, SP_OP_PER_MICRO_BATCH, &ret->sync_once);
  sp_estimate_list (cost, program, block, SP_PHASE_OPTIMIZER, 0, 0, &ret->optimizer);
  ret->regather = block->regather;
}

/* --- slots ------------------------------------------------------------------------------------------------------------- */

/* What a slot of a stage takes, summed over its layers. */
typedef struct {
  double step, serial, high;
  double compute, host;
  double axes[SP_N_AXES], exposed[SP_N_AXES];
  double waits[SP_N_AXES]; /* for a chain to come by */
} Slot;

/* Adds `n` runs of a list. */
static void
slot_add (Slot *slot, const SpListTime *list, double n)
{
  if (list->serial == 0)
    return;
  slot->step += n * list->step;
  slot->serial += n * list->serial;
  slot->high += n * list->high;
  slot->compute += n * list->compute;
  slot->host += n * list->host;
  for (guint a = 0; a < SP_N_AXES; a++) {
    slot->axes[a] += n * list->axes[a];
    slot->exposed[a] += n * list->exposed[a];
  }
}

/* `n` times a layer's async data communication beside `compute` seconds of a neighbour; the serial figures have it already. */
static void
slot_hide (Slot *slot, double slowdown, double data, double compute, double n)
{
  double slowed = slowdown * MIN (data, compute);
  double open = MAX (0.0, data - compute - slowed);

  slot->step += n * (slowed + open);
  slot->compute += n * slowed;
  slot->exposed[SP_AXIS_DATA] += n * open;
}

static void
slot_open (Slot *slot, double seconds)
{
  slot->step += seconds;
  slot->exposed[SP_AXIS_DATA] += seconds;
}

static void
slot_chain (Slot *slot, const SpListTime *list, double n)
{
  slot->step += n * list->chain;
  slot->serial += n * list->chain;
  slot->high += n * list->chain;
  slot->exposed[list->chain_axis] += n * list->chain;
  slot->waits[list->chain_axis] += n * list->chain;
}

static guint
group_digits (const SpProgram *program, guint group)
{
  guint mask = 0;

  for (guint i = 0; i < program->groups[group].n_digits; i++)
    mask |= 1u << program->groups[group].digits[i];
  return mask;
}

/* Whether each layer of the block makes the chain's ranks wait for each other anyway. */
static gboolean
layer_spans_chain (const SpProgram *program, const SpBlockTime *block, const SpListTime *list)
{
  guint chain = group_digits (program, list->chain_group),
        groups = block->gather.groups | block->sync_each.groups | list->groups;

  for (guint g = 0; g < SP_N_GROUPS; g++)
    if (groups & 1u << g && (group_digits (program, g) & chain) == chain)
      return TRUE;
  return FALSE;
}

static void
add_chains (const SpProgram *program, const SpBlockTime *blocks, const gint32 *counts, gboolean backward, Slot *slot)
{
  const SpListTime *once = NULL;

  for (guint b = 0; b < program->n_blocks; b++) {
    const SpListTime *lists[2] = { backward ? &blocks[b].backward : &blocks[b].forward,
                                   backward ? &blocks[b].recompute : NULL };
    for (guint i = 0; i < 2; i++) {
      if (counts[b] == 0 || lists[i] == NULL || lists[i]->chain == 0)
        continue;
      if (layer_spans_chain (program, &blocks[b], lists[i]))
        slot_chain (slot, lists[i], counts[b]);
      else if (once == NULL || once->chain < lists[i]->chain)
        once = lists[i];
    }
  }
  if (once)
    slot_chain (slot, once, 1);
}

static void
forward_slot (const SpEstimateContext *e, const SpBlockTime *blocks, const gint32 *counts, Slot *slot)
{
  gboolean first = TRUE;

  memset (slot, 0, sizeof *slot);
  for (guint b = 0; b < e->program->n_blocks; b++) {
    if (counts[b] == 0)
      continue;
    slot_add (slot, &blocks[b].gather, counts[b]);
    slot_add (slot, &blocks[b].forward, counts[b]);
    slot_hide (slot, e->cost->slowdown, blocks[b].gather.data_async, blocks[b].forward.step, counts[b] - first);
    if (first)
      slot_open (slot, blocks[b].gather.data_async);
    first = FALSE;
  }
  add_chains (e->program, blocks, counts, FALSE, slot);
}

static void
backward_slot (const SpEstimateContext *e, const SpBlockTime *blocks, const gint32 *counts, Slot *slot)
{
  guint last = e->program->n_blocks;

  memset (slot, 0, sizeof *slot);
  for (guint b = e->program->n_blocks; b-- > 0;) {
    if (counts[b] == 0)
      continue;
    double gather = blocks[b].regather ? blocks[b].gather.data_async : 0;
    double beside_this = blocks[b].recompute.step + blocks[b].backward.step;
    if (blocks[b].regather)
      slot_add (slot, &blocks[b].gather, counts[b]);
    slot_add (slot, &blocks[b].recompute, counts[b]);
    slot_add (slot, &blocks[b].backward, counts[b]);
    slot_add (slot, &blocks[b].sync_each, counts[b]);
    slot_hide (slot, e->cost->slowdown, gather + blocks[b].sync_each.data_async, beside_this, counts[b] - (last == b));
    last = b;
  }
  /* The first block's sync is in the open. */
  if (last < e->program->n_blocks)
    slot_open (slot, blocks[last].sync_each.data_async);
  add_chains (e->program, blocks, counts, TRUE, slot);
}

/* --- stages ------------------------------------------------------------------------------------------------------------ */

typedef struct {
  Slot forward[2], backward[2]; /* of each variant */
  Slot tail;                    /* gradient reduction and optimizer */
  gint32 counts[SP_MAX_BLOCKS];
} Stage;

#define MAX_STAGES 64

static void
count_blocks (const SpProgram *program, gint32 stage, gint32 *ret)
{
  memset (ret, 0, SP_MAX_BLOCKS * sizeof *ret);
  if (program->n_blocks == 3)
    ret[1] = program->stage_first[stage + 1] - program->stage_first[stage];
  else
    for (gint32 l = program->stage_first[stage]; l < program->stage_first[stage + 1]; l++)
      ret[program->layer_block[l]]++;
  ret[0] = stage == 0;
  ret[program->n_blocks - 1] = stage == program->stages - 1;
}

/* Messages from and to the neighbours hold up the stage that receives them. */
static void
add_pipe (const SpEstimateContext *e, const SpVariant *variant, gboolean receives, Slot *slot)
{
  if (!receives)
    return;
  double seconds = sp_cost_op (e->cost, &variant->pipe_send);
  slot->step += seconds;
  slot->serial += seconds;
  slot->high += seconds;
  slot->axes[SP_AXIS_PIPELINE] += seconds;
  slot->exposed[SP_AXIS_PIPELINE] += seconds;
}

/* The last backward hides what it can of the reduction; the block that is last in it is reduced in the open. */
static void
tail_of (const SpEstimateContext *e, const SpBlockTime *blocks, Stage *stage, gint32 last_variant)
{
  double data = 0, open = 0;

  memset (&stage->tail, 0, sizeof stage->tail);
  for (guint b = e->program->n_blocks; b-- > 0;) {
    if (stage->counts[b] == 0)
      continue;
    slot_add (&stage->tail, &blocks[b].sync_once, stage->counts[b]);
    slot_add (&stage->tail, &blocks[b].optimizer, stage->counts[b]);
    data += stage->counts[b] * blocks[b].sync_once.data_async;
    open = blocks[b].sync_once.data_async;
  }
  slot_hide (&stage->tail, e->cost->slowdown, data - open, stage->backward[last_variant].step, 1);
  slot_open (&stage->tail, open);
}

static void
estimate_stage (const SpEstimateContext *e, gint32 s, Stage *stage)
{
  const SpProgram *program = e->program;

  count_blocks (program, s, stage->counts);
  for (gint32 v = 0; v < program->n_variants; v++) {
    forward_slot (e, e->blocks[v], stage->counts, &stage->forward[v]);
    backward_slot (e, e->blocks[v], stage->counts, &stage->backward[v]);
    add_pipe (e, &program->variants[v], s > 0, &stage->forward[v]);
    add_pipe (e, &program->variants[v], s < program->stages - 1, &stage->backward[v]);
  }
  tail_of (e, e->blocks[0], stage, program->n_variants - 1);
}

/* --- the schedule -------------------------------------------------------------------------------------------------------- */

/* Which of a slot's figures a pass uses. */
typedef enum { FIGURE_STEP, FIGURE_SERIAL, FIGURE_HIGH } Figure;

static double
figure_of (const Slot *slot, Figure figure)
{
  return figure == FIGURE_STEP ? slot->step : figure == FIGURE_SERIAL ? slot->serial : slot->high;
}

static double
slot_seconds (const Stage *stage, const SpSlot *slot, gint32 variant, Figure figure)
{
  return figure_of (slot->backward ? &stage->backward[variant] : &stage->forward[variant], figure);
}

/* Max-plus pass over `m` micro-batches: a slot starts when the stage is free and its neighbour's part is there. */
static double
schedule_pass (const SpProgram *program, const Stage *stages, gint32 m, gint32 small_last, Figure figure)
{
  gint32 p = program->stages;
  double free_at[MAX_STAGES] = { 0 }, end = 0;
  gint32 next[MAX_STAGES] = { 0 };
  double *done[2] = { g_newa (double, p *m), g_newa (double, p *m) };
  gboolean moved = TRUE;

  for (gint32 i = 0; i < p * m; i++)
    done[0][i] = done[1][i] = -1;
  while (moved) {
    moved = FALSE;
    for (gint32 s = 0; s < p; s++) {
      SpSlot slot;
      while (sp_schedule_next (program->schedule, p, s, m, next[s], &slot)) {
        gint32 i = slot.micro_batch;
        double ready = !slot.backward ? (s == 0 ? 0 : done[0][(s - 1) * m + i])
                       : s == p - 1   ? done[0][s * m + i]
                                      : done[1][(s + 1) * m + i];
        if (ready < 0)
          break;
        gint32 variant = small_last && i == m - 1;
        free_at[s] = MAX (free_at[s], ready) + slot_seconds (&stages[s], &slot, variant, figure);
        done[slot.backward][s * m + i] = free_at[s];
        next[s]++;
        moved = TRUE;
      }
      end = MAX (end, free_at[s]);
    }
  }
  return end;
}

static double
slowest_period (const SpProgram *program, const Stage *stages, Figure figure)
{
  double period = 0;

  for (gint32 s = 0; s < program->stages; s++)
    period = MAX (period, figure_of (&stages[s].forward[0], figure) + figure_of (&stages[s].backward[0], figure));
  return period;
}

static double
schedule_seconds (const SpProgram *program, const Stage *stages, Figure figure)
{
  gint32 m = program->micro_batches, walked = MIN (m, 2 * program->stages + 2), small_last = program->n_variants - 1;

  if (program->stages == 1)
    return (m - small_last) * slowest_period (program, stages, figure) +
           (small_last ? figure_of (&stages[0].forward[1], figure) + figure_of (&stages[0].backward[1], figure) : 0);
  return schedule_pass (program, stages, walked, small_last, figure) +
         (m - walked) * slowest_period (program, stages, figure);
}

/* --- the step ------------------------------------------------------------------------------------------------------------ */

/* Runs of variant v on a stage. */
static double
runs (const SpProgram *program, gint32 v)
{
  return program->n_variants == 1 ? program->micro_batches : v == 0 ? program->micro_batches - 1 : 1;
}

static void
total_of (const SpProgram *program, const Stage *stage, Slot *total)
{
  *total = stage->tail;
  for (gint32 v = 0; v < program->n_variants; v++) {
    const Slot *slots[2] = { &stage->forward[v], &stage->backward[v] };
    for (guint i = 0; i < 2; i++) {
      double n = runs (program, v);
      total->step += n * slots[i]->step;
      total->serial += n * slots[i]->serial;
      total->high += n * slots[i]->high;
      total->compute += n * slots[i]->compute;
      total->host += n * slots[i]->host;
      for (guint a = 0; a < SP_N_AXES; a++) {
        total->axes[a] += n * slots[i]->axes[a];
        total->exposed[a] += n * slots[i]->exposed[a];
        total->waits[a] += n * slots[i]->waits[a];
      }
    }
  }
}

/* No schedule beats the busiest resource of any stage, nor one micro-batch's way through all of them. Axes share streams at
 * most with each other, so the largest axis is a bound of its stream. */
static double
lowest (const SpProgram *program, const Slot *totals, const Stage *stages, double slowdown)
{
  double low = 0, path = 0;
  gint32 v = program->n_variants - 1;

  for (gint32 s = 0; s < program->stages; s++) {
    /* total compute has the slowdown of hidden communication in it */
    low = MAX (low, totals[s].compute / (1 + slowdown));
    path += (stages[s].forward[v].compute + stages[s].backward[v].compute) / (1 + slowdown);
    for (guint a = 0; a < SP_N_AXES; a++)
      low = MAX (low, totals[s].axes[a]);
  }
  return MAX (low, path);
}

static void
break_down (const SpProgram *program, const Slot *totals, double tail, SpEstimate *ret)
{
  gint32 busiest = 0;

  for (gint32 s = 1; s < program->stages; s++)
    if (totals[s].step > totals[busiest].step)
      busiest = s;
  const Slot *total = &totals[busiest];
  ret->compute_s = total->compute;
  ret->host_s = total->host;
  ret->exposed_communication_s = 0;
  for (guint a = 0; a < SP_N_AXES; a++) {
    ret->exposed_communication_s += total->exposed[a];
    ret->axes[a].time_s = total->axes[a] + total->waits[a];
    ret->axes[a].exposed_s = total->exposed[a];
  }
  ret->bubble_s = program->stages > 1 ? MAX (0.0, ret->step_time_s - tail - (total->step - tail)) : 0;
  ret->idle_s =
      MAX (0.0, ret->step_time_s - ret->compute_s - ret->host_s - ret->exposed_communication_s - ret->bubble_s);
}

static void
estimate_time (const SpEstimateContext *e, SpEstimate *ret)
{
  const SpProgram *program = e->program;
  Stage stages[MAX_STAGES];
  Slot totals[MAX_STAGES];
  double tail[3] = { 0 };

  g_assert (program->stages <= MAX_STAGES);
  for (gint32 s = 0; s < program->stages; s++) {
    estimate_stage (e, s, &stages[s]);
    total_of (program, &stages[s], &totals[s]);
    tail[0] = MAX (tail[0], stages[s].tail.step);
    tail[1] = MAX (tail[1], stages[s].tail.serial);
    tail[2] = MAX (tail[2], stages[s].tail.high);
  }
  ret->step_time_s = schedule_seconds (program, stages, FIGURE_STEP) + tail[0];
  ret->serial_s = schedule_seconds (program, stages, FIGURE_SERIAL) + tail[1];
  ret->high_s = schedule_seconds (program, stages, FIGURE_HIGH) + tail[2];
  ret->low_s = lowest (program, totals, stages, e->cost->slowdown);
  break_down (program, totals, tail[0], ret);
}

void
sp_estimate_program (SpEstimator *estimator, const SpProgram *program, const SpRun *run, SpEstimate *ret)
{
  SpBlockTime blocks[2][SP_MAX_BLOCKS];
  SpEstimateContext e = { .cost = &estimator->cost, .program = program, .blocks = { blocks[0], blocks[1] } };

  memset (ret, 0, sizeof *ret);
  sp_cost_set_paths (&estimator->cost, estimator->cluster, program);
  for (gint32 v = 0; v < program->n_variants; v++)
    for (guint b = 0; b < program->n_blocks; b++)
      sp_estimate_block (&estimator->cost, program, &program->variants[v].blocks[b], &blocks[v][b]);
  estimate_time (&e, ret);
  sp_estimate_volume (&e, ret);

  gboolean overlap = FALSE;
  guint n;
  const SpOp *gather = sp_program_segment (program, &program->variants[0].blocks[1], SP_PHASE_GATHER, &n);
  if (n > 0)
    overlap = gather->flags & SP_OP_ASYNC;
  sp_memory_estimate (program, estimator->framework, overlap, &ret->memory);
  ret->capacity_bytes = estimator->cluster->device->memory_bytes.value;
  ret->fits = ret->memory.total_bytes <= ret->capacity_bytes;

  double full, causal, tokens = (double) program->sequence * program->global_batch;
  double peak = program->world * estimator->cost.peak_flops_per_s * ret->step_time_s;
  sp_model_flops (estimator->arch, program->sequence, estimator->convention, &full, &causal);
  ret->tokens_per_s = tokens / ret->step_time_s;
  ret->mfu = full * tokens / peak;
  ret->mfu_causal = (run->causal ? causal : full) * tokens / peak;
  ret->hfu = sp_estimate_flops (program) / (estimator->cost.peak_flops_per_s * ret->step_time_s);
  ret->provenance = sp_cost_provenance (estimator->cluster, estimator->framework, program->world > 1);
}

void
sp_estimator_init (SpEstimator *estimator, const SpArchitecture *arch, const SpCluster *cluster,
                   const SpFramework *framework, SpMfuConvention convention)
{
  *estimator = (SpEstimator){ .arch = arch, .cluster = cluster, .framework = framework, .convention = convention };
  sp_cost_init (&estimator->cost, cluster, framework);
}

void
sp_estimate_layout (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run,
                    SpEstimate *ret)
{
  sp_program_write (program, estimator->arch, estimator->framework, layout, run);
  sp_estimate_program (estimator, program, run, ret);
}
