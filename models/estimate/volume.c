/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cost.h"
#include "sim/op-place.h"

#include <string.h>

/*
 * Volume: bytes by axis, and FLOP. GPUs differ by stage and, along a chain, by place: the first and the last place send
 * or receive less. Everything is counted for three places (first, middle, last), and the mean is over all. Of experts'
 * tokens it is the mean rank's.
 */

/* --- a block ------------------------------------------------------------------------------------------------------ */

/* Times an op runs in its list. */
static double
steps_of (const SpBlock *block, const SpOp *op)
{
  if (op->loop == 0)
    return 1;
  gint32 steps = block->loops[op->loop - 1].steps;
  if (op->guard & SP_GUARD_FIRST_STEP)
    return 1;
  gint32 most = op->guard & (SP_GUARD_NOT_FIRST_STEP | SP_GUARD_NOT_LAST_STEP) ? steps - 1 : steps;
  if (op->guard & (SP_GUARD_NEAR | SP_GUARD_NEAR_ENDS))
    return MIN (most, op->guard & SP_GUARD_NEAR_ENDS ? 2 * op->reach : op->reach);
  return most;
}

static void
count_message (const SpCost *cost, const SpProgram *program, const SpOp *op, double times, SpBlockVolume *volume,
               gint32 *chain_size)
{
  double mean = op->flags & SP_OP_VARIES ? times / sp_estimate_imbalance (program) : times;
  double payload = mean * op->bytes, wire = mean * sp_cost_wire_bytes (cost, op);
  gboolean first = !(op->guard & SP_GUARD_NOT_FIRST), last = !(op->guard & SP_GUARD_NOT_LAST);

  volume->payload[SP_PLACE_FIRST] += first ? payload : 0;
  volume->payload[SP_PLACE_MIDDLE] += payload;
  volume->payload[SP_PLACE_LAST] += last ? payload : 0;
  volume->wire[SP_PLACE_FIRST] += first ? wire : 0;
  volume->wire[SP_PLACE_MIDDLE] += wire;
  volume->wire[SP_PLACE_LAST] += last ? wire : 0;
  volume->messages += times;
  if (!first || !last)
    *chain_size = program->groups[op->group].size;
}

/* Mean over `places` of what an op computes: where keys in the future are skipped, place i runs the first i of its steps,
 * R - 1 or, with a window, fewer; what grows with the place is in the middle of the first and the last place's; an end
 * of a chain may not run it. */
static double
mean_flops (const SpOp *op, double steps, gint32 places)
{
  gint32 ends = (op->guard & SP_GUARD_NOT_FIRST ? 1 : 0) + (op->guard & SP_GUARD_NOT_LAST ? 1 : 0);

  if (op->flags & SP_OP_BY_PLACE)
    return steps * op->flops * (sp_op_share (op, 0, places) + 1) / 2;
  if (op->guard & SP_GUARD_VISIBLE)
    return op->flops * (steps * (2 * places - 1 - steps) / (2 * places));
  return op->flops * (ends > 0 ? steps * MAX (places - ends, 0) / places : steps);
}

/* FLOP of a pair of query and key, of all heads and sequences; 0: no kernel that is priced by them. */
static double
pair_flops (const SpOp *op)
{
  gint32 values = op->value_size > 0 ? op->value_size : op->k;
  double features = op->kind == SP_OP_ATTENTION       ? 2.0 * op->k + 2.0 * values
                    : op->kind == SP_OP_ATTENTION_BWD ? 6.0 * op->k + 4.0 * values
                                                      : 0;

  return features * op->heads * op->batch;
}

void
sp_block_work_volume (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockWork *ret)
{
  memset (ret->volume, 0, sizeof ret->volume);
  for (guint a = 0; a < SP_N_AXES; a++)
    ret->chain_size[a] = 1;
  ret->flops = 0;
  guint last = sp_program_is_forward (program) ? SP_PHASE_FORWARD : SP_PHASE_BACKWARD;
  guint scope = sp_program_scope_flags (program);
  for (guint phase = SP_PHASE_FORWARD; phase <= last; phase++) {
    guint n;
    const SpOp *ops = sp_program_segment (program, block, phase, &n);
    gboolean attends = FALSE;
    for (guint i = 0; i < n; i++) {
      double steps = steps_of (block, &ops[i]);
      if ((ops[i].flags & scope) != scope)
        continue;
      double mean = ops[i].flags & SP_OP_VARIES ? 1 / sp_estimate_imbalance (program) : 1;
      if (block->attention_pairs > 0 && pair_flops (&ops[i]) > 0) {
        ret->flops += attends ? 0 : block->attention_pairs * pair_flops (&ops[i]);
        attends = TRUE;
        continue;
      }
      ret->flops += mean * mean_flops (&ops[i], steps, program->groups[ops[i].group].size);
      if (sp_op_is_communication (ops[i].kind) && ops[i].kind != SP_OP_RECEIVE)
        count_message (cost, program, &ops[i], steps, &ret->volume[ops[i].axis], &ret->chain_size[ops[i].axis]);
    }
  }
}

void
sp_block_state_volume (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockState *ret)
{
  static const SpPhase phases[] = { SP_PHASE_GATHER, SP_PHASE_SYNC, SP_PHASE_OPTIMIZER };
  static const guint n_phases[SP_N_SCOPES] = { [SP_SCOPE_STEP] = 3, [SP_SCOPE_FORWARD] = 1 };
  gint32 unused;

  memset (ret->each, 0, sizeof ret->each);
  memset (ret->once, 0, sizeof ret->once);
  memset (ret->gathers, 0, sizeof ret->gathers);
  for (guint p = 0; p < n_phases[program->scope]; p++) {
    guint n;
    const SpOp *ops = sp_program_segment (program, block, phases[p], &n);
    gboolean twice = phases[p] == SP_PHASE_GATHER && program->scope == SP_SCOPE_STEP && sp_block_gathers_again (block);
    double times = twice ? 2 : 1;
    for (guint i = 0; i < n; i++) {
      SpBlockVolume *volume = phases[p] == SP_PHASE_GATHER           ? ret->gathers
                              : ops[i].flags & SP_OP_PER_MICRO_BATCH ? ret->each
                                                                     : ret->once;
      if (sp_op_is_communication (ops[i].kind))
        count_message (cost, program, &ops[i], times, &volume[ops[i].axis], &unused);
    }
  }
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static void
volume_add (SpBlockVolume *sum, const SpBlockVolume *volume, double times)
{
  for (guint place = 0; place < SP_N_PLACES; place++) {
    sum->payload[place] += times * volume->payload[place];
    sum->wire[place] += times * volume->wire[place];
  }
  sum->messages += times * volume->messages;
}

static void
spread_add (SpSpread *spread, double value, double share, gboolean first)
{
  spread->min = first ? value : MIN (spread->min, value);
  spread->max = first ? value : MAX (spread->max, value);
  spread->mean += share * value;
}

/* `stages` equal stages of `all`. */
static void
add_stage (SpAxisCost *axis, const SpBlockVolume *sum, double size, double stages, double all, gboolean first)
{
  const double share[SP_N_PLACES] = { 1 / size, (size - 2) / size, 1 / size };

  for (guint place = 0; place < SP_N_PLACES; place++) {
    gboolean alone = size == 1;
    if (alone ? place != SP_PLACE_MIDDLE : share[place] <= 0)
      continue;
    double part = (alone ? 1 : share[place]) * stages / all;
    spread_add (&axis->payload_bytes, sum->payload[place], part, first);
    spread_add (&axis->wire_bytes, sum->wire[place], part, first);
    first = FALSE;
  }
  axis->messages = MAX (axis->messages, sum->messages);
}

/* Messages that the chunks of a stage send (or receive, and gather) for a micro-batch: forward, and back. */
static gint32
count_pipe (const SpProgram *program, gint32 stage, gboolean sends)
{
  gint32 n = 0;

  for (gint32 c = 0; c < program->chunks; c++) {
    gint32 at = sp_program_virtual_stage (program, stage, c);
    gboolean has[2] = { at > 0, at < sp_program_virtual_stages (program) - 1 };
    n += has[sends] + (program->scope == SP_SCOPE_STEP ? has[!sends] : 0);
  }
  return n;
}

/* `n` times a micro-batch. */
static void
add_pipe (const SpEstimateContext *e, const SpOp *const *ops, gint32 n, SpBlockVolume *sum)
{
  const SpProgram *program = e->program;
  gint32 unused;

  for (gint32 v = 0; v < program->n_variants && program->stages > 1; v++)
    count_message (e->cost, program, ops[v], sp_estimate_runs (program, v) * n, sum, &unused);
}

static void
sum_stage (const SpEstimateContext *e, guint axis, gint32 stage, const gint32 *counts, SpBlockVolume *sum,
           gint32 *ret_size)
{
  const SpProgram *program = e->program;

  double micro_batches = 0, kept = 0; /* kept: whose first slice gathers for all */

  for (gint32 v = 0; v < program->n_variants; v++) {
    micro_batches += sp_estimate_runs (program, v);
    kept += program->variants[v].first == 0 ? sp_estimate_runs (program, v) : 0;
  }
  *sum = (SpBlockVolume){ 0 };
  *ret_size = 1;
  for (guint b = 0; b < program->n_blocks; b++) {
    if (counts[b] == 0)
      continue;
    if (e->state[b].once[axis].messages > 0)
      volume_add (sum, &e->state[b].once[axis], counts[b]);
    if (e->state[b].each[axis].messages > 0)
      volume_add (sum, &e->state[b].each[axis], micro_batches * counts[b]);
    if (e->state[b].gathers[axis].messages > 0)
      volume_add (sum, &e->state[b].gathers[axis], (e->state[b].regather ? micro_batches : kept) * counts[b]);
    for (gint32 v = 0; v < program->n_variants; v++)
      if (e->work[v][b].volume[axis].messages > 0)
        volume_add (sum, &e->work[v][b].volume[axis], sp_estimate_runs (program, v) * counts[b]);
    *ret_size = MAX (*ret_size, e->work[0][b].chain_size[axis]);
  }
  if (axis == SP_AXIS_PIPELINE)
    add_pipe (e, e->pipe, count_pipe (program, stage, TRUE), sum);
  if (e->pipe_gather[0] != NULL && e->pipe_gather[0]->axis == axis)
    add_pipe (e, e->pipe_gather, count_pipe (program, stage, FALSE), sum);
}

void
sp_estimate_volume (const SpEstimateContext *e, SpEstimate *ret)
{
  const SpProgram *program = e->program;

  for (gint32 s = 0, twins; s < program->stages; s += twins) {
    gint32 counts[SP_MAX_BLOCKS];
    for (twins = 1; s + twins < program->stages && sp_estimate_is_twin (program, s + twins);)
      twins++;
    sp_estimate_stage_run_counts (program, s, counts);
    for (guint axis = 0; axis < SP_N_AXES; axis++) {
      SpBlockVolume sum;
      gint32 size;
      sum_stage (e, axis, s, counts, &sum, &size);
      if (sum.messages > 0 || program->stages > 1)
        add_stage (&ret->axes[axis], &sum, size, twins, program->stages, s == 0);
    }
  }
}

double
sp_estimate_flops (const SpEstimateContext *e)
{
  const SpProgram *program = e->program;
  double sum = 0, copies = sp_estimate_schedule (program)->mirrored ? 2 : 1;

  for (gint32 v = 0; v < program->n_variants; v++) {
    const SpBlockWork *blocks = e->work[v];
    double all = blocks[0].flops + blocks[program->n_blocks - 1].flops;
    if (sp_program_is_one_layer (program))
      all = blocks[program->layer_block[0]].flops;
    else if (program->n_blocks == 3)
      all += program->n_layers * blocks[1].flops;
    else
      for (guint l = 0; l < program->n_layers; l++)
        all += blocks[program->layer_block[l]].flops;
    sum += copies * sp_estimate_runs (program, v) * all;
  }
  return sum / program->stages;
}
