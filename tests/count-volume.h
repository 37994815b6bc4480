/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a rank sends, counted from a program's lists. */

#include "models/estimate/cost.h"

/* A cluster only for the sizes of groups. */
static SpDevice device = { .peak_bf16_flops_per_s = { 1e15 }, .memory_bytes_per_s = { 1e12 }, .sms = { 100 } };
static SpCluster cluster = { .device = &device, .nodes = 1, .gpus_per_node = 1 << 20 };

typedef struct {
  double payload, wire; /* elements */
  double bytes;         /* of payload */
  double messages;
} Count;

static inline gboolean
runs_on (const SpProgram *program, const SpOp *op, gint32 rank)
{
  gint32 place = sp_program_place (program, op->group, rank), size = program->groups[op->group].size;

  return !(op->guard & SP_GUARD_NOT_FIRST && place == 0) && !(op->guard & SP_GUARD_NOT_LAST && place == size - 1);
}

static inline double
steps_of (const SpBlock *block, const SpOp *op)
{
  if (op->loop == 0)
    return 1;
  double steps = block->loops[op->loop - 1].steps;
  return op->guard & SP_GUARD_FIRST_STEP                                  ? 1
         : op->guard & (SP_GUARD_NOT_FIRST_STEP | SP_GUARD_NOT_LAST_STEP) ? steps - 1
                                                                          : steps;
}

/* What `rank` sends in a list under `axis`, in buffers of `dtype` (SP_N_DTYPES: of any). `receives`: what it
 * receives by messages instead. */
static inline Count
count_on (const SpProgram *program, const SpCost *cost, const SpBlock *block, SpPhase phase, SpAxis axis, SpDtype dtype,
          gint32 rank, gboolean receives)
{
  Count count = { 0 };
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);

  for (guint i = 0; i < n; i++) {
    const SpOp *op = &ops[i];
    if (!sp_op_is_communication (op->kind) || op->axis != axis || (op->kind == SP_OP_RECEIVE) != receives ||
        !runs_on (program, op, rank))
      continue;
    SpDtype own = block->buffers[op->in[0] ? op->in[0] : op->out[0]].dtype;
    if (dtype != SP_N_DTYPES && dtype != own)
      continue;
    double times = steps_of (block, op), size = sp_dtype_bytes (own);
    count.bytes += times * op->bytes;
    count.payload += times * op->bytes / size;
    count.wire += times * sp_cost_wire_bytes (cost, op) / size;
    count.messages += times;
  }
  return count;
}
