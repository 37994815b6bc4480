/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Patterns of messages (sim/patterns.h) with LogGP costs: what an exchange of many small messages takes. For quick
 * what-ifs where latency counts, up to hundreds of thousands of ranks, and for collectives as their steps rather than
 * as one fluid. No network is shared here: links and their contention are sim/flows.h.
 *
 * The model: LogGP (Alexandrov, Ionescu, Schauser and Scheiman, SPAA 1995), as LogGOPSim runs it (Hoefler, Schneider
 * and Lumsdaine, LSAP 2010). Four times:
 *
 *    L  latency    of the network, from the last byte sent to the last byte there
 *    o  overhead   of a rank's processor, for each message that it sends and for each that it receives
 *    g  gap        least time between the starts of two messages that one rank sends, or of two that it receives
 *    G  gap a byte for a message of k bytes, (k - 1) G on top of g, and on the way
 *
 * A rank that sends at t is busy until t + o; the message is there at t + o + (k - 1) G + L, and the next may start at
 * t + g + (k - 1) G. A message is received when its rank waits for it, has the time, and g + (k - 1) G after it began
 * to receive the one before; this takes o. So one message takes L + 2 o + (k - 1) G.
 *
 * Messages are EAGER: a sender never waits for its receiver; what is early waits in the receiver's memory, which is not
 * counted. NOT in it: rendezvous, contention, copies out of a buffer of unexpected messages, topology (L is the same
 * for all pairs).
 *
 * Jitter (optional): each message's L and each step's o and computation are multiplied by a factor of mean 1, either
 * uniform between 1 - spread and 1 + spread or log-normal with that standard deviation of the logarithm. Two draws a
 * rank and step, from a hash of (seed, rank, step): the same whatever the order of events.
 *
 * How it is run: in SWEEPS, step by step, each over all ranks: all send, then all receive. No event queue is needed,
 * and the result is exactly that of one (the tests run one beside it): a message of a step follows from messages of
 * earlier steps only, whoever is ahead of whom, and ranks share nothing but messages. A rank is 40 bytes: when its
 * processor is free, when it may send and receive again, its message and its jitter of the present step. Should ranks
 * ever share something, an interface card for instance, this will no longer do.
 *
 * Cost (tests/bench-loggp.c; one core of a 2-core AMD EPYC virtual machine, gcc 12 -O3, CPU time, medians):
 *
 *    dissemination, 65,536 ranks, 1.05 M messages     7 ms without jitter, 13 ms uniform, 62 ms log-normal; 4 MB
 *      4,096 and 262,144 ranks, log-normal          2.8 ms and 0.28 s; 0.4 and 14 MB
 *    ring all-reduce, 1,024 ranks, 2.1 M messages     0.12 s log-normal
 *    the first with an event queue                   66 ms without jitter, 0.37 s log-normal
 *
 * That is 5 ns a rank and step (also for ranks that have nothing to do in it), and 50 ns more for a log-normal draw.
 *
 * Deterministic. Errors: ranks that wait for a message that nobody sends (a pattern of one's own whose steps do not
 * fit), by name; costs that are negative, not finite, or too long for simulated time.
 */

#include "sim/patterns.h"

G_BEGIN_DECLS

typedef enum {
  SP_JITTER_NONE,
  SP_JITTER_UNIFORM,
  SP_JITTER_LOG_NORMAL,
} SpJitter;

typedef struct {
  SpTime latency, overhead, gap; /* ps: L, o, g */
  double gap_per_byte_ps;        /* G */
  SpJitter jitter;
  double spread; /* uniform: 0 to 1 */
  guint64 seed;
} SpLoggp;

typedef struct {
  SpTime makespan; /* when the last rank is done */
  guint64 messages;
} SpLoggpResult;

typedef enum {
  SP_LOGGP_ERROR_COSTS,
  SP_LOGGP_ERROR_WAITING, /* the pattern ended with ranks waiting, or messages for which nobody waits */
} SpLoggpError;

#define SP_LOGGP_ERROR (sp_loggp_error_quark ())
GQuark sp_loggp_error_quark (void);

/* Jitter of a rank's step: of L of the message that it sends, and of what its processor does. */
typedef struct {
  double flight, work;
} SpLoggpFactors;

SpLoggpFactors sp_loggp_factors (const SpLoggp *costs, guint32 rank, guint32 step);

/* Runs the pattern. starts, [n_ranks]: when each rank begins; NULL: at 0. ret_finishes, [n_ranks] or NULL: when each is
 * done. */
gboolean sp_loggp_run (const SpLoggp *costs, const SpPattern *pattern, const SpTime *starts, SpTime *ret_finishes,
                       SpLoggpResult *ret_result, GError **error);

G_END_DECLS
