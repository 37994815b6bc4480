/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The engine: runs a program in simulated time, as discrete events. It knows ops, streams, groups, links and buffers,
 * and nothing of transformers; what an op takes is given (SpPrices, made by models/simulate/).
 *
 * A ROLE is a class of ranks that behave alike (sim/roles.h); unfolded, one rank. It has a cursor (sim/walk.h) and seven
 * streams:
 *   compute     kernels, one after the other, each no earlier than the host has issued it
 *   host        issues the kernels in the program's order and runs ahead of them
 *   the others  communication. An op is posted when the cursor comes to it, that is when all kernels before it are
 *               over; ops of a stream run in the order in which they were posted
 * A blocking op (no SP_OP_ASYNC) holds up the cursor until it is over. An async one runs beside what follows until
 *   an op whose wait[] names it, the end of its loop step or of its list (on the outer stream, of its list);
 *   on the data stream: of its block the first op that reads what GATHER wrote, the list after SYNC; the end of the
 *   slot; and if it reads gradients that are held over (sim/walk.h), the end of the BACKWARD that they end with.
 * A kernel is slowed by a factor of its own while communication of its GPU is under way. Async communication that finds
 *   kernels running on one of its GPUs when its bytes begin to flow takes longer by another one, to its end.
 *
 * A collective starts when it is at the head of its stream on all members. Then it takes its fixed time (launch, steps x
 * latency), then its bytes flow. A message starts when both ends are there; a SEND_RECEIVE is a message each way, and
 * over when both are. What the pipeline sends does not hold up the sender; its receiver waits.
 *
 * Waits. A rank's kernels stand for a transfer from when they come to the wait until it is over. The transfers' OWN part
 *   of that is, of what a group does together (collectives, steps of a ring), the least that any of its ranks stood for it
 *   in a phase of the step, all its waits in that phase together: who comes last waits for transfers alone. Two cards
 *   that are alike come late by turns, by chance; that is left in the own part, as it is in what a transfer between
 *   kernels was measured to take. Of a message one way (of a chain, between stages), which holds up one end and not the
 *   other, it is at most what the message takes once both are there. LATENESS is the rest: waiting for cards that are
 *   slower, for ranks that have more to do, for stages.
 *
 * Network. Without one, communication takes what it takes beside nothing else. With one (sim/network.h) its bytes are
 * flows that share links max-min fairly. A collective is either one fluid (a flow for each tier of links that it loads
 * alike, at most as fast as the algorithm is by itself), or its steps, each a flow to the next rank.
 *
 * Serial mode: nothing overlaps. Every op of a rank runs after the one before, async or not, for the time that it takes
 * with its sibling groups beside it; a list is no shorter than the host needs for its kernels. It equals the estimate's
 * `serial`.
 *
 * How it is fast: events are 16 bytes and one at most is pending for a role; a run of kernels between two communication
 * ops is one event, whose dates are told apart only when somebody looks (trace, memory peak, a change of pace); all state
 * is in arrays made at the start.
 *
 * Deterministic: the same input gives the same dates, on any machine. Folded and unfolded runs differ by at most 1 ps an
 * event.
 *
 * Known lies. A GPU's slowdown does not depend on how many communications run beside the kernel, nor on which. Async
 * communication that outlasts the kernels beside it stays slow, and as steps it is slow whatever runs; it never waits for
 * a kernel that holds all of a GPU. A rendezvous takes no time of its own. The host is never held up by the GPU: its queue is endless. Copies inside
 * a GPU that NCCL makes are part of the algorithm's rate.
 *
 * Failure. A program that stops before its end is an error (SP_ENGINE_ERROR_DEADLOCK) that names ranks, ops and what
 * they wait for; so is one whose members come to different collectives.
 */

#include "sim/clock.h"
#include "sim/network.h"
#include "sim/roles.h"
#include "sim/trace.h"
#include "sim/variation.h"
#include "sim/walk.h"

G_BEGIN_DECLS

#define SP_ENGINE_ERROR (sp_engine_error_quark ())
GQuark sp_engine_error_quark (void);

typedef enum {
  SP_ENGINE_ERROR_PROGRAM,  /* a program that cannot be run: a group on two streams ... */
  SP_ENGINE_ERROR_MISMATCH, /* members of a group that do not do the same */
  SP_ENGINE_ERROR_DEADLOCK, /* the end of events, and ranks that wait */
  SP_ENGINE_ERROR_FULL      /* more events or transfers at once than there is room for */
} SpEngineError;

/* What an op takes. */
typedef struct {
  SpTime total; /* of communication: beside nothing else, launch and latency included; at the slowest hop */
  SpTime fixed; /* of communication: launch and latency, when nothing is on links */
  SpTime near_total, near_fixed; /* of messages that stay in a node */
  SpTime serial, near_serial;    /* total, with sibling groups beside it: serial mode */
  SpTime first; /* at the first place of its group: of a kernel flagged SP_OP_BY_PLACE, of which total is the last one's,
                   and the others' lie between in proportion; and */
  SpTime last;  /* of one whose ends differ (sim/op-place.h), of which total is that between: first, and this */
  float slowdown;                /* of a kernel beside communication: takes 1 + slowdown times as long */
  float stretch;                 /* of communication beside kernels: 1 + stretch times as long, but for what is fixed */
  guint8 algorithm;              /* SpAlgorithm: how its bytes go */
} SpOpPrice;

typedef struct {
  const SpOpPrice *ops; /* [n_ops] */
  const SpOpPrice *pipe; /* [n_variants], of its message between stages */
  gboolean slows;       /* some kernel has a slowdown */
  SpTime host_launch;   /* 0: the host is no stream */
  SpTime host_gather;   /* what the host is held up for by a gather or scatter of shards */
  SpTime host_slot;     /* what it takes before it issues a slot's first kernel */
} SpPrices;

typedef struct {
  gboolean serial;
  gint32 gpus_per_node;     /* ranks fill nodes in order; messages inside one have prices of their own. 0: no nodes */
  const SpNetwork *network; /* or NULL; of these roles */
  gboolean steps;           /* collectives as their steps, each a flow; needs a network and unfolded roles */
  const SpVariation *variation; /* or NULL: every rank and link as priced */
  SpTrace *trace;               /* or NULL */
  double *link_bytes; /* or NULL: [SP_N_AXES][network->n_links], to which is added what collectives and messages put on
                         each link; with `steps` those that run as steps are left out */
} SpEngineOptions;

/* What a role did. Times of one of its ranks; they overlap. */
typedef struct {
  gint32 rank, count, stage;
  SpTime end;                /* of its last op */
  SpTime kernels;            /* as priced */
  SpTime slowed;             /* what they took longer beside communication */
  SpTime host;               /* waits of the compute stream for the host */
  SpTime issue;              /* that the host was busy for */
  SpTime active[SP_N_AXES];  /* communication under way */
  SpTime exposed[SP_N_AXES]; /* the cursor's waits, but not the bubble */
  SpTime late;               /* of those, lateness */
  SpTime bubble;             /* waits for a neighbour's slot, without the message's own time */
  guint64 n_kernels, n_communications;
  double payload_bytes[SP_N_AXES]; /* as program.h counts it, on the sender's side for messages */
  gint64 peak_bytes, peak_by_class[SP_N_CLASSES]; /* of a whole step, whatever the program's scope */
  SpTime peak_at;                                 /* SP_TIME_NEVER: the scope is less than a step */
  SpItem peak_item; /* the list that held it, and the op in it */
  guint peak_op;
} SpRoleReport;

typedef struct {
  SpTime end;       /* of the step */
  guint64 n_tasks;  /* kernels and communication, counted on every role */
  guint64 n_events; /* taken from the queue */
  guint64 n_solves;
  SpRoleReport *roles; /* [n_roles] */
  gint32 n_roles;
} SpSimulation;

void sp_simulation_free (SpSimulation *simulation);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpSimulation, sp_simulation_free)

/* Runs one step. `roles` and what `options` names are borrowed. NULL with an error as above. */
SpSimulation *sp_engine_run (const SpProgram *program, const SpRoles *roles, const SpPrices *prices,
                             const SpEngineOptions *options, GError **error);

G_END_DECLS
