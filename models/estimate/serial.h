/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The serial time of a step, walked: nothing overlaps, every op of a rank runs after the one before for the time that
 * the cost model gives it, and ranks wait for each other where the program makes them meet. Max-plus over stages x slots
 * x layers x ops, for all places of a sequence side by side: no event queue, no network, no closed form. It is exact
 * where the closed form of estimate.h approximates: a chain's skew across layers (LASP), pipelines of uneven stages with
 * many micro-batches or a smaller last one.
 *
 * What meets:
 *   a collective      ends for all its members the op's time after the last of them has come
 *   SEND_RECEIVE      a place ends the op's time after the last of itself and its two neighbours
 *   SEND, RECEIVE     (a chain) both places end the message's time after the later of the two; a hop inside a node
 *                     takes less than one between nodes
 *   pipeline          the receiver ends the message's time after the later of itself and the sender; the sender goes on
 * A list takes no less than the host needs to issue its kernels. Ranks that differ in data or tensor place alone do the
 * same at the same time, so one of them is walked.
 *
 * Cost: about 3 ns for each op x place x micro-batch x layer. Where no op tells places apart one place is walked.
 */

#include "models/estimate/cost.h"

G_BEGIN_DECLS

/* Seconds of a step; the cost's paths are those of the program. NAN if it would take more than `most` op evaluations. */
double sp_estimate_serial (const SpCost *cost, const SpProgram *program, gint32 gpus_per_node, double most);

G_END_DECLS
