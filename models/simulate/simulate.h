/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Simulates a scenario's program: prices its ops with the cost model, builds the cluster's topology, folds what is
 * alike, runs the engine (sim/engine.h), and says the result in the estimate's terms, so that the two compare line by
 * line.
 *
 * Of the result, step_time_s and all that follows from it, the times of axes, the break-down and the memory (a whole
 * step's under every scope, as the estimate's) are the simulation's; low, serial and high, bytes, messages and host
 * memory the estimate's. The break-down is that of the busiest role: compute is its kernels with what they were slowed,
 * bubble its waits for neighbouring stages, exposed communication its other waits, host its waits for the host, idle
 * the rest of the step.
 */

#include "models/estimate/estimate.h"
#include "models/inputs/scenario.h"
#include "sim/engine.h"
#include "sim/memory.h"

G_BEGIN_DECLS

typedef struct {
  gboolean serial;        /* nothing overlaps */
  gboolean steps;         /* collectives as their steps; does not fold */
  gboolean unfolded;      /* every rank on its own */
  guint samples;          /* runs with seeds seed, seed + 1 ...; 0 counts as 1 */
  const char *trace_path; /* of the first sample, or NULL */
  SpTrace *trace;         /* of the first sample in the path's place, or NULL */
  gboolean counts_links;  /* fills link_bytes */
} SpSimulateOptions;

typedef struct {
  SpEstimate result;
  SpSimulation *run;    /* the first sample */
  const SpRoles *roles; /* the network's */
  SpNetwork *network;
  SpTopology *topology;
  double *sample_s; /* [n_samples] step times, ascending */
  guint n_samples;
  gint32 role;    /* whose times the break-down gives */
  gint32 fullest; /* role with the most memory */
  double *link_bytes; /* [SP_N_AXES][network->n_links] of the first sample; NULL unless it was asked for */
  GArray *peak;   /* SpLiveBuffer: what it held at its peak, merged by sp_memory_merge() */
} SpSimulated;

void sp_simulated_clear (SpSimulated *simulated);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpSimulated, sp_simulated_clear)

/* Of a written program. `ret` is cleared on failure: a variation that names what is not there, a file that can't be
 * written, a run that stops (SP_ENGINE_ERROR). */
gboolean sp_simulate (SpEstimator *estimator, const SpProgram *program, const SpRun *run,
                      const SpVariations *variations, const SpSimulateOptions *options, SpSimulated *ret,
                      GError **error);

/* Whether ranks and links that a variation names are there: what sp_simulate refuses first, for who does not simulate. */
gboolean sp_simulate_check_variations (const SpCluster *cluster, gint32 ranks, const SpVariations *variations,
                                       GError **error);

/* The q-th quantile of the samples, interpolated between neighbours. */
double sp_simulated_quantile (const SpSimulated *simulated, double q);

/* --- scenario.c --------------------------------------------------------------------------------------------------- */

/* Whether a scenario can be run at all: a legal layout for as many GPUs as its cluster has, and variations that are
 * there and, by `simulates`, make a difference. */
gboolean sp_scenario_check_run (SpScenario *scenario, gboolean simulates, GError **error);

/* What `seqpar run` says of a scenario that was checked: the estimate, refined, or of one sample simulated. `program` is
 * left as it was written. FALSE: a simulation that stopped. */
gboolean sp_scenario_price (const SpScenario *scenario, SpEstimator *estimator, SpProgram *program, gboolean simulates,
                            SpEstimate *ret, GError **error);

/* --- prices.c ----------------------------------------------------------------------------------------------------- */

/* What the ops of a program take, for the engine. */
typedef struct {
  SpPrices prices;
  SpOpPrice *ops, *pipe;
  guint8 *algorithms; /* [n_ops] SpAlgorithm */
} SpProgramPrices;

void sp_program_prices_init (SpProgramPrices *prices, const SpCost *cost, const SpProgram *program);
void sp_program_prices_clear (SpProgramPrices *prices);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpProgramPrices, sp_program_prices_clear)

G_END_DECLS
