/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the estimate's files share. */

#include "models/estimate.h"

G_BEGIN_DECLS

/* One run of an op list on the slowest place. */
typedef struct {
  double step, serial, high;
  double compute;    /* kernels alone */
  double host;       /* waiting for the host to issue */
  double data_async; /* async data communication, in `serial` but not in `step`: the slot places it */
  double axes[SP_N_AXES], exposed[SP_N_AXES];
  double chain; /* the last place's delay */
  guint8 chain_group, chain_axis;
  guint32 groups; /* bit a group: collectives of the list */
} SpListTime;

typedef struct {
  SpListTime gather, forward, recompute, backward, sync_each, sync_once, optimizer;
  gboolean regather;
} SpBlockTime;

typedef struct {
  const SpCost *cost;
  const SpProgram *program;
  const SpBlockTime *blocks[2]; /* of each variant */
} SpEstimateContext;

/* Only ops with (op.flags & mask) == flags count, loops whole. */
void sp_estimate_list (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpPhase phase, guint flags,
                       guint mask, SpListTime *ret);
void sp_estimate_block (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpBlockTime *ret);

/* Payload, wire and messages by axis (volume.c). */
void sp_estimate_volume (const SpEstimateContext *e, SpEstimate *ret);
/* FLOP that the kernels of one GPU run in a step, mean over GPUs. */
double sp_estimate_flops (const SpProgram *program);

G_END_DECLS
