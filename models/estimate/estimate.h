/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The estimate: what a program costs, in closed form. It reads ops, buffers, guards, loops and the schedule; it knows
 * no strategy.
 *
 * Time of an op list. Ops run in order on their streams. Blocking ones (no SP_OP_ASYNC) hold up the compute stream;
 * async ones run beside compute until an op that waits for them, or the end of the list, or of their loop's step. While
 * the two run together compute is slower by the device's overlap slowdown; async ones take longer throughout, by what a
 * fitted profile says of communication beside kernels.
 * Four figures a list:
 *   step    as above: what `step_time_s` is made of
 *   serial  every op after the other
 *   high    serial, with compute slowed wherever it could run beside communication, and not even the host beside it
 *   busy    of each stream: what no schedule can beat
 * A loop of R steps: its first, R - 2 middle and last steps are timed apart. A place that skips work (SP_GUARD_VISIBLE)
 * waits for the place that does all of it, so the busiest place's time counts. So it does of a chain, whose ends have
 * less to do than a place between; of one of two places, the slower one's, RECOMPUTE and BACKWARD taken together.
 *
 * Time of a slot (forward or backward of one micro-batch on a stage): the sum over its layers; async GATHER and SYNC of
 * a layer run beside the neighbouring layer's compute (which waits, at its end, for a SYNC of every micro-batch), the
 * first gather and the last sync in the open. A chain (a RECEIVE that is followed by a SEND to the next place) delays
 * its last place by all hops: once a slot, or once a layer where a collective of the layer spans the chain (gathers and
 * scatters that may be many layers away, `reach`, do not count; known lie: the simulator has each layer wait for them). A hop is
 * the send and the kernels between the two, of which the chain's first place may have fewer.
 *
 * Step. One stage: the slots in turn. Several: a max-plus pass of the schedule over virtual stages x micro-batches, a
 * message holding up the stage that receives it; beyond some micro-batches the rest is added at the pace of the slowest
 * stage (schedule-time.c says how exact that is). Then, stage by stage, the gradient reduction that the last backward
 * did not hide (it hides no more than its own gathers and scatters leave room for), and the optimizer; stages that
 * share a reduction (tied matrices, mirrored layers) wait for each other in it. A list is never shorter than the host
 * needs to issue its kernels (but in `step` where it runs ahead from step to step, host-ahead = step; one step that is
 * simulated begins with nothing issued), nor the step than it needs for all that a GPU of any stage runs, with what
 * gathers and scatters of shards hold it up for (host-gather; in `serial` a list at a time). What the framework does
 * beside the program (host-step) is added to all four figures, here and by the simulator. The step is BOUND BY THE
 * HOST where that is longer than what is left of it without waits for the host: a GPU that is made quicker changes
 * nothing.
 *
 * What overlaps shares links, and delays what it runs beside. In one stage that is a matter of order: the bytes are in
 * `serial`. Across stages it adds up, so `high` has more than slots in turn:
 *   a message            shares the sender's links with its next slots. The receiver gets it up to a message's time
 *                        later (inside a node times the members that a collective over several nodes has there: so
 *                        many channels share the port), and the sender's slots take that much longer, on each place of
 *                        a chain
 *   the last backward    of each stage runs beside the reduction of its gradients, and sends on later: by as long as
 *                        that takes, or the rest of the slot's communication if that is less (with several chunks, all
 *                        of it: the next slot waits for it). Stage 0 is held up by all later stages
 *
 * Experts' loads: all figures are of the busiest rank's, which the others wait for in every layer. A simulation that
 * draws loads may end below `low`, as one with other noise may.
 *
 * The simulator's step lies between low and high where no GPUs share adapters that they use and the layout's digits
 * line up with nodes: not proven, for three ops may meet on a link, but so in all of 100,000 random layouts, and later
 * not in one of LASP 1 in a pipeline, by 1 %. Where GPUs
 * share adapters, one that runs two ops at once can take from another beyond that (tests/test-engine.c: in 1 draw of
 * 2,000, mostly by a few percent, by 17 % at most).
 *   low <= step_time_s <= high; step_time_s <= serial with a slowdown of at most 1.
 *
 * Scope (sim/program.h). All times, bytes and speeds are those of what is run; tokens are those that go through it, and
 * MFU counts its model FLOP: a third of a step's for a forward; of one layer its matrices and attention, or attention
 * alone. Memory is that of a whole step under every scope.
 *
 * Memory. See memory.h: ALWAYS buffers of the stage's layers, stashes of the micro-batches in flight, and the largest
 * of the lists' own peaks. The GPU with the most is reported.
 */

#include "models/estimate/cost.h"
#include "models/layout.h"

G_BEGIN_DECLS

typedef struct {
  double min, mean, max; /* over GPUs */
} SpSpread;

typedef struct {
  SpSpread payload_bytes, wire_bytes; /* a GPU, a step */
  double messages;                    /* of the busiest GPU */
  double time_s, exposed_s; /* of the slowest stage's GPU: its own, waits for a chain with it, and what compute did not
                                         hide */
} SpAxisCost;

typedef struct {
  double total_bytes;
  double by_class[SP_N_CLASSES];
  double gathers_bytes;   /* of communication: buffers that the framework keeps */
  double run_ahead_bytes; /* of communication: what waits for a GPU that the host is ahead of (run-ahead.c) */
  gboolean is_crowded;    /* there would be more of that, and there is no room */
  double host_bytes;      /* of one GPU, in host memory, at the fullest */
  gint32 stage;           /* whose GPUs hold it */
  const char *moment;     /* static string: where in the step */
} SpMemory;

/* What is not known of a step: of a profile's curves, and of which cards it runs on, at what clock. */
typedef enum { SP_PART_CURVES, SP_PART_CARDS, SP_N_PARTS } SpIntervalPart;

typedef struct {
  double step_time_s, low_s, serial_s, high_s;
  double interval_s[2], interval_share;   /* of step_time_s: models/estimate/interval.h; all 0: none was drawn */
  double interval_parts_s[SP_N_PARTS][2]; /* of each part alone */
  double tokens_per_s;                    /* of all GPUs */
  double mfu, mfu_causal, hfu;
  double gpus, peak_flops_per_s; /* that these are of: rate of a GPU = mfu x peak */
  SpMemory memory;
  double capacity_bytes, host_bytes;
  gboolean fits;
  SpAxisCost axes[SP_N_AXES];
  /* of the stage that bounds the step; they add up to step_time_s */
  double compute_s, exposed_communication_s, bubble_s, host_s, idle_s;
  /* they add up to compute_s; slowed: what communication beside the lists adds to their kernels. Inside the lists that is
   * idle_s */
  double forward_s, recompute_s, backward_s, optimizer_s, slowed_s;
  double crowding;     /* what a pool without room makes of the step, which is in all figures but `low`: 1 as a rule */
  double host_issue_s; /* what the host of that stage's GPUs is busy for */
  gboolean is_host_bound;
  SpProvenance provenance;
} SpEstimate;

typedef enum { SP_MFU_SEQPAR, SP_MFU_MEGATRON, SP_MFU_PALM, SP_MFU_LLM_FOUNDRY, SP_N_MFU } SpMfuConvention;
extern const char *const sp_mfu_names[SP_N_MFU + 1]; /* NULL-terminated */

/* The GPU's memory, and where it is known a node's share of host memory, hold what they must. */
gboolean sp_estimate_fits (const SpCluster *cluster, const SpEstimate *e);

/* Model FLOP of one token's training step, attention over all pairs and over the causal half (of packed documents over
 * the mean of tokens that see each other). In the convention seqpar frozen matrices cost 4 a parameter, 2 below all
 * that is trained, and adapters 6; the others count 6 whatever is frozen, and no adapters. */
void sp_model_flops (const SpArchitecture *arch, const SpRun *run, SpMfuConvention convention, double *ret_full,
                     double *ret_causal);

/* The same of what a program runs: of its scope alone, and in the convention seqpar without what its experts drop. */
void sp_scope_flops (const SpArchitecture *arch, const SpProgram *program, const SpRun *run, SpMfuConvention convention,
                     double *ret_full, double *ret_causal);

/* What does not change between layouts, computed once for a search. Borrows its arguments. */
typedef struct {
  const SpArchitecture *arch;
  const SpCluster *cluster;
  const SpFramework *framework;
  SpMfuConvention convention;
  SpCost cost;
  struct _SpBlockCache *cache; /* of models/estimate/block-cache.h; NULL: every layout is written and priced anew */
} SpEstimator;

void sp_estimator_init (SpEstimator *estimator, const SpArchitecture *arch, const SpCluster *cluster,
                        const SpFramework *framework, SpMfuConvention convention);
/* Estimates a written program. Allocates nothing once `program` has its size, but for the long passes of schedules
 * other than 1F1B. */
void sp_estimate_program (SpEstimator *estimator, const SpProgram *program, const SpRun *run, SpEstimate *ret);
/* Memory of the first stage of a program that was estimated, without checkpoints and host memory: rank 0 is one of its
 * GPUs, and many stacks report that one's alone. `times`: of the estimate. */
void sp_estimate_first_stage (SpEstimator *estimator, const SpProgram *program, const SpRun *run,
                              const SpEstimate *times, SpMemory *ret);
/* sp_program_write, then sp_estimate_program; with a cache, only what it does not hold. `program` is scratch. */
void sp_estimate_layout (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run,
                         SpEstimate *ret);

/* Replaces the closed form of `serial` by the walked one (models/estimate/serial.h) where that is affordable, and takes
 * what the closed form had too much, a chain's skew counted once a slot, from step_time_s as well. For single
 * layouts: it costs milliseconds. A search does without. */
void sp_estimate_refine (SpEstimator *estimator, const SpProgram *program, SpEstimate *estimate);

/* Notes for people on a run: sequence beyond the trained positions, padded vocabulary, padded last micro-batch ... */
GPtrArray *sp_estimate_notes (const SpEstimator *estimator, const SpLayout *layout, const SpRun *run);

/* Every term with its formula, source and value. */
void sp_estimate_why (SpEstimator *estimator, const SpProgram *program, const SpRun *run, GString *out);

G_END_DECLS
