/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Memory of a program, from its buffers' lives (sim/program.h).
 *
 * A stage holds its ALWAYS buffers, and the stashes of the micro-batches in flight. Each op list adds its own peak:
 * what lives in it at its fullest op. The peak of a stage is the largest of
 *   - the forward list of a block, with the stashes of the blocks before it and of the other micro-batches in flight,
 *   - the recompute and backward lists of a block, likewise (its own stash goes as its ops go),
 *   - of a chunk's last backward, where SYNC runs beside it (overlap), the same with the gradients' shards of the
 *     blocks that it is done with,
 *   - the end of the step, with the shards that live then,
 *   - the optimizer's list of a block that needs workspace (Muon's), with the shards updated so far,
 *   - between steps, where checkpoints are made, the CHECKPOINT buffers (not simulated).
 * Who is in flight follows from the schedule's slots, gone through in turn for as many micro-batches as make a
 * difference; a stage's chunks are counted apart. A backward in two parts leaves, until the second, what that reads: of
 * of the stash, and gradients of activations; and gradients that SYNC scatters live whole from the first to the second.
 * Blocks of one kind differ by how much lies before them and after them, so one or the ends of each row are looked at.
 * Where gathers run ahead (overlap) the next block's is held too; and where SYNC runs beside a backward, the gradients
 * that it scatters (sim/walk.h: held over). The framework adds its allocator's slack, what libraries take of its pool
 * ("workspace"), buffers of gathers that it keeps, and what the CUDA context, NCCL and libraries hold ("reserved"); and
 * what its host's lead keeps from being used again (run-ahead.c).
 *
 * Never below what is simulated, in the order of the program or the eager one (sim/walk.h); equal to the eager order's,
 * class by class, which without overlap is also the rehearsal's own count. Counted too high are a smaller last
 * micro-batch, as a full one, gradients that start with BACKWARD, as being there in RECOMPUTE, and where the head alone is
 * trained what it would send back.
 */

#include "models/estimate/estimate.h"

G_BEGIN_DECLS

/* The fullest stage's memory. */
void sp_memory_estimate (const SpProgram *program, const SpFramework *framework, SpMemory *ret);

/* What the framework adds to what its program holds, which total_bytes is so far. */
void sp_memory_add_framework (const SpFramework *framework, double gathers_bytes, SpMemory *ret);
/* What sp_estimate_run_ahead says, which needs the step's times, as far as there is room: beside all of the above, and not
 * simulated. */
void sp_memory_add_run_ahead (double bytes, double capacity_bytes, SpMemory *ret);

/* Stashed bytes of one micro-batch in one layer of this block, and of all of SP_LIFE_ALWAYS: for reports and tests. */
gint64 sp_memory_block_stash (const SpBlock *block);
gint64 sp_memory_block_always (const SpProgram *program, const SpBlock *block);

/* The layers alone, without embedding, head and what the framework adds, as papers count them: what a GPU of the first
 * stage always holds of its layers, and the stashes of as many micro-batches as its schedule has in flight at most. */
void sp_memory_layers (const SpProgram *program, double *ret_states_bytes, double *ret_stash_bytes);

G_END_DECLS
