/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The clock that a card's power limit leaves to a step's kernels.
 *
 * A card whose kernels would draw more than its limit lowers the clock of its SMs until they do not, on the mean over tens
 * of milliseconds, which is many kernels. So all kernels of a variant's work (FORWARD, RECOMPUTE and BACKWARD of all layers)
 * have one clock f, at most 1:
 *   idle + (flop f^2 FLOP + byte bytes) / seconds = limit        (curves.h, [power] of a profile)
 * FLOP and bytes of one micro-batch through all of the model's layers, by the program; seconds of their lists in turn at
 * that clock, with the communication that their kernels wait for. What FLOP bound takes 1 / f as long, what memory bounds
 * the same; so f is looked for. It is settled once for a variant: prices are the same in all readers and at all times.
 *
 * Cards differ in what they draw: with `spread` of [power] the energies are those of the card that draws most of the
 * program's GPUs, as is to be expected of so many (slowest.h), for it is the one that all others wait for.
 *
 * Known lies. One clock for all stages of a pipeline, and no bubble, nor what a reduction holds up, is time in which a card
 * cools; communication draws no more than idling does. GATHER, SYNC and OPTIMIZER are at the highest clock: memory bounds
 * them, but for Muon. A step longer than the card's control has phases with clocks of their own. Of kernels without a curve
 * the formulas are at the highest clock.
 *
 * Without [power] the clock is 1, and all is as if this were not there.
 */

#include "models/estimate/block-cost.h"

G_BEGIN_DECLS

/* Prices the work of a variant's blocks and says at what clock; cost->clock is as before. */
double sp_clock_price (SpCost *cost, const SpProgram *program, gint32 variant, SpBlockWork *ret);

/* What the card that draws most of so many is expected to draw for the same, over the kind's mean; 1 without `spread`. */
double sp_clock_energy (const SpCurve *power, gint32 gpus);

/* Of a list of a variant, as the estimate priced it last; cost->clocks says. */
static inline double
sp_clock_of (const SpCost *cost, SpPhase phase, gint32 variant)
{
  gboolean work = phase == SP_PHASE_FORWARD || phase == SP_PHASE_RECOMPUTE || phase == SP_PHASE_BACKWARD;

  return work ? cost->clocks[variant] : 1;
}

/* Of each of the program's ops; free it. */
double *sp_clock_of_ops (const SpCost *cost, const SpProgram *program);

G_END_DECLS
