/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Variation: what makes one step differ from the next, and one rank from another. Seeded: noise is a pure function of
 * (seed, rank or instance, how many ops it has run), so it depends neither on the order of events nor on other ranks.
 *
 * Noise of an op: its time x exp (sd z - sd^2 / 2), z standard normal: log-normal with mean 1, as times are positive and
 * skewed. A slow rank's kernels take `factor` times as long.
 *
 * Load of experts: ops flagged SP_OP_VARIES are priced for the busiest rank. Each rank draws, for each layer and
 * micro-batch, how much it has to do over the mean: log-normal as well, so that the largest of the ranks that the experts
 * are spread over is on average what the program says. A collective takes what its busiest member has. Tokens are not
 * conserved: the draws of different ranks know nothing of each other.
 *
 * Slow and failed links are the topology's (sim/topology.h).
 */

#include "sim/clock.h"

G_BEGIN_DECLS

typedef struct {
  gint32 rank;
  double factor; /* > 0; of kernel time */
} SpSlowRank;

typedef struct {
  guint64 seed;
  double kernel_sd;        /* relative */
  double communication_sd; /* relative, of a whole collective or message */
  double load_sd;          /* relative, of a rank's load of experts; 0: every rank is the busiest */
  const SpSlowRank *slow_ranks;
  guint n_slow_ranks;
} SpVariation;

/* Whether any two ranks can differ. */
static inline gboolean
sp_variation_splits (const SpVariation *variation)
{
  return variation != NULL &&
         (variation->kernel_sd > 0 || variation->communication_sd > 0 || variation->load_sd > 0 ||
          variation->n_slow_ranks > 0);
}

/* exp (sd z - sd^2 / 2) of draw `index` of `thing`. */
double sp_variation_factor (guint64 seed, guint64 thing, guint64 index, double sd);

/* The load of a rank in a layer (its position in the walk) for a micro-batch, over the mean. */
double sp_variation_load (const SpVariation *variation, gint32 rank, gint32 position, gint32 micro_batch);
/* The sd for which the largest of n factors is `largest` on average; the most there is where that is beyond what such
 * factors reach. */
double sp_variation_sd_of_largest (gint32 n, double largest);

G_END_DECLS
