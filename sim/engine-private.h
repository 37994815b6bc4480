/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of the engine share: engine.c (the loop), engine-cursor.c (a role's way through its lists),
 * engine-kernels.c (its kernels), engine-comm.c (streams, collectives, messages), engine-flows.c (bytes on links),
 * engine-report.c (what a run did, and why it stopped). */

#include "sim/engine.h"
#include "sim/flows.h"
#include "sim/memory.h"
#include "sim/queue.h"

G_BEGIN_DECLS

/* A communication op that a role has come to, in the order of its stream. */
typedef struct {
  const SpOp *op;
  const SpOpPrice *price;
  SpTime at;       /* at the head of its stream */
  guint32 next;    /* in the stream's queue, or the next free one; 0 none */
  guint8 halves;   /* of a SEND_RECEIVE, messages that are not over; else 1 */
  gint32 position; /* of its list: for the trace */
  gint32 micro_batch;
  guint8 phase;
} SpPosted;

typedef struct {
  guint32 head, tail;   /* of the queue, numbers of SpPosted; 0 none */
  guint32 posted, over; /* counts */
} SpRoleStream;

typedef enum {
  SP_ROLE_READY,
  SP_ROLE_RUNS, /* kernels, until `due` */
  SP_ROLE_WAITS,
  SP_ROLE_DONE
} SpRoleState;

/* Where its cursor is. */
typedef enum {
  SP_ROLE_BETWEEN,     /* items: the next one is to be fetched */
  SP_ROLE_BEFORE_ITEM, /* fetched, and perhaps not allowed to begin */
  SP_ROLE_IN_LIST
} SpRoleWhere;

/* An async op of the list that the cursor stands in. */
typedef struct {
  guint16 op; /* in its list */
  guint8 stream;
  guint32 count; /* of the stream: over when so many are */
} SpAsync;

#define SP_MAX_ASYNC 16

typedef struct {
  SpWalk walk;
  SpItem item;
  const SpOp *ops;
  const SpOpPrice *prices;
  const SpBlock *block;
  guint32 op, n_ops;    /* the cursor, in the list */
  gint32 step;          /* of the loop that it stands in */
  gint32 slot;          /* of the schedule */
  guint8 state;         /* SpRoleState */
  guint8 where;         /* SpRoleWhere */
  gboolean at_step_end; /* the cursor has passed the last op of a loop's step */
  guint active;         /* transfers of its GPU that are under way */

  /* kernels: the run [run_begin, run_end), in which the cursor is */
  guint32 run_begin, run_end;
  SpTime since;     /* up to when `left` counts */
  SpTime left;      /* of the kernel at the cursor, beside nothing; -1: it has not begun */
  SpTime began;     /* of that kernel */
  SpTime due;       /* of the run */
  SpTime pending;   /* date of the event in the queue */
  SpTime host_free; /* the host has issued all kernels before the cursor */
  SpTime list_begin;
  guint32 list_kernels;
  SpTime list_held_up; /* of the host, by gathers and scatters of shards */
  gint32 begun;        /* slots that the host has begun */

  /* what it waits for: `wait_count` ops over on a stream */
  guint8 wait_stream;
  guint32 wait_count;
  SpTime wait_since;
  guint8 must_stream; /* a blocking op that was passed has to be over first; 0 none */
  guint32 must_count;
  SpAsync async[SP_MAX_ASYNC];
  guint n_async;
  guint32 *data_count; /* [position] of the data stream: what the block's next list waits for */
  guint8 *gathered;    /* [position] whether that is what GATHER posted last */
  guint32 data_op;     /* of the list: the first that reads what was gathered, which waits for it; G_MAXUINT32 none */
  guint32 held_count;  /* of it: what the next BACKWARD that sums gradients waits for at its end */

  SpRoleStream streams[SP_N_STREAMS];
  gint32 place[SP_N_GROUPS];
  guint32 peak_op; /* of the list, where the memory's peak is: to be dated; G_MAXUINT32 none */
  SpMemoryState memory;
  SpRoleReport *report;
} SpRole;

/* Of a collective's instance, or of a message's way: who is there. */
typedef struct {
  const SpOp *op;
  const SpOpPrice *price;
  guint32 arrived;
  guint32 n_runs; /* for the noise */
} SpMeeting;

/* A message between pipeline stages that one end, or both, have come to. */
typedef struct {
  guint64 tag;
  gint32 sender;
  gboolean sent, awaited;
  const SpOp *op;
  const SpOpPrice *price;
  guint32 next;
} SpMail;

typedef enum { SP_TRANSFER_COLLECTIVE, SP_TRANSFER_MESSAGE, SP_TRANSFER_PIPE } SpTransferKind;

/* Communication under way. */
typedef struct {
  const SpOp *op;
  const SpOpPrice *price;
  SpTime began, total, fixed;
  guint32 subject; /* instance, or the sender's role */
  gint32 receiver; /* of messages */
  guint32 flows;   /* that are not through */
  guint32 next_free;
  guint8 kind; /* SpTransferKind */
  guint8 direction;
  gboolean flowing; /* past its fixed time */
} SpTransfer;

/* A round of a ring: what a member sends to the next one. */
typedef struct {
  guint32 transfer, channel, member, next_free;
} SpHop;

#define SP_FLOW_IS_HOP 0x80000000u

typedef struct _SpSteps SpSteps;

typedef struct {
  const SpProgram *program;
  const SpRoles *roles;
  const SpPrices *prices;
  const SpEngineOptions *options;
  SpWalkPlan *walks;
  SpMemoryPlan *memory;
  SpQueue queue;
  SpFlows *flows;
  SpTime now;
  SpTime host_launch;     /* 0 in serial mode, where it counts a list at a time */
  guint16 *first_readers; /* [variants][blocks][SP_N_PHASES] of what GATHER writes, ops of a list; G_MAXUINT16 none */
  double *kernel_factor;  /* [roles->n] of slow ranks; NULL: every kernel takes what it is priced at */
  SpRole *role;           /* [roles->n] */
  SpTime *stood;          /* [roles->n][SP_N_GROUPS][SP_N_PHASES] waits for what a group does together */
  gint32 n_done;
  SpMeeting *instance;                /* [roles->n_instances] */
  SpMeeting *message[SP_N_GROUPS][2]; /* [roles->n], by sender */
  gint32 *neighbour[SP_N_GROUPS][2];  /* [roles->n] role at place + 1, - 1; -1 none */
  guint8 *near_hops[SP_N_GROUPS][2];  /* [size] serial mode: by place, of sp_program_near_hops() */
  GArray *posted, *mail, *transfers;  /* SpPosted, SpMail, SpTransfer; element 0 unused */
  guint32 free_posted, free_mail, free_transfer;
  GArray *hops; /* SpHop; element 0 unused */
  guint32 free_hop;
  SpSteps **steps;    /* [n_instances] of those that ran as steps; NULL before the first */
  GArray *flow_owner; /* guint32 by flow: a transfer, or with SP_FLOW_IS_HOP a hop */
  guint32 *mail_of;   /* [roles->n] first of the receiver's */
  guint64 n_arrows;   /* of the trace */
  SpSimulation *result;
  GError *error;
} SpEngine;

/* --- engine.c ----------------------------------------------------------------------------------------------------- */

/* The network up to now: what is through has its events. Before a flow is added. */
void sp_engine_advance_flows (SpEngine *e);

/* --- engine-cursor.c ---------------------------------------------------------------------------------------------- */

/* A role goes on from its cursor until it waits, runs kernels or is done. */
void sp_role_go (SpEngine *e, SpRole *role);
/* After an op of the stream is over, which the role posted in a list of the phase; the op's axis. */
void sp_role_wake (SpEngine *e, SpRole *role, SpStream stream, const SpTransfer *transfer, SpPhase phase);

/* --- engine-kernels.c --------------------------------------------------------------------------------------------- */

/* From the cursor on: kernels up to the next communication, wait, or end of a loop's step or of the list. */
void sp_role_begin_run (SpEngine *e, SpRole *role);
/* They are through. */
void sp_role_kernels_over (SpEngine *e, SpRole *role);
/* Transfers of its GPU that are under way: one more, one less. */
void sp_role_activity (SpEngine *e, SpRole *role, gint change);
/* Serial mode: a list is no shorter than the host needs. */
gboolean sp_role_host_holds_up (SpEngine *e, SpRole *role);
/* Before a list: the host begins its slot anew where it is the first. TRUE: in serial mode nothing goes on until then. */
gboolean sp_role_host_begins_slot (SpEngine *e, SpRole *role);

/* --- engine-comm.c ------------------------------------------------------------------------------------------------ */

/* Puts the communication op at the cursor on its stream. */
void sp_engine_post (SpEngine *e, SpRole *role, const SpOp *op, const SpOpPrice *price);
void sp_engine_pipe_send (SpEngine *e, SpRole *role, const SpItem *item);
void sp_engine_pipe_receive (SpEngine *e, SpRole *role, const SpItem *item);
/* A transfer's fixed time is over, or all of it. */
void sp_engine_transfer_event (SpEngine *e, guint32 transfer);
void sp_engine_transfer_over (SpEngine *e, guint32 transfer);

/* --- engine-flows.c ----------------------------------------------------------------------------------------------- */

/* Puts the transfer's bytes on its links, a flow a tier. FALSE: it loads none. */
gboolean sp_engine_start_flows (SpEngine *e, guint32 transfer);
void sp_engine_own_flow (SpEngine *e, guint32 flow, guint32 owner);

/* --- engine-steps.c ----------------------------------------------------------------------------------------------- */

/* A ring's rounds, from now on, latency included; all pairs of an all-to-all, after its fixed time. FALSE: it is no
 * such collective. */
gboolean sp_engine_start_steps (SpEngine *e, guint32 transfer);
gboolean sp_engine_start_pairs (SpEngine *e, guint32 transfer);
void sp_engine_hop_starts (SpEngine *e, guint32 hop);
void sp_engine_hop_over (SpEngine *e, guint32 hop);
void sp_engine_free_steps (SpEngine *e);

/* --- engine-report.c ---------------------------------------------------------------------------------------------- */

void sp_engine_fail (SpEngine *e, SpEngineError code, const char *format, ...) G_GNUC_PRINTF (3, 4);
void sp_engine_report_deadlock (SpEngine *e);
void sp_engine_report (SpEngine *e);
char *sp_role_where (const SpEngine *e, const SpRole *role);
void sp_engine_trace_kernel (SpEngine *e, const SpRole *role, const SpOp *op, SpTime from, SpTime to);
void sp_engine_trace_begin (SpEngine *e);
void sp_engine_trace_posted (SpEngine *e, const SpRole *role, const SpPosted *posted, const SpTransfer *transfer);
void sp_engine_trace_message (SpEngine *e, const SpTransfer *transfer);

/* What a role has to do in the list that it stands in, of an op flagged SP_OP_VARIES: 1 for the busiest's price. */
static inline double
sp_role_load (const SpEngine *e, const SpRole *role)
{
  const SpVariation *variation = e->options->variation;
  double most = e->program->numbers.expert_imbalance;

  if (variation == NULL || variation->load_sd == 0)
    return 1;
  return sp_variation_load (variation, role->report->rank, role->item.position, role->item.micro_batch) / MAX (most, 1);
}

static inline gint32
sp_role_number (const SpEngine *e, const SpRole *role)
{
  return (gint32) (role - e->role);
}

/* NULL: the op is in none. */
static inline const SpLoop *
sp_role_loop_of (const SpRole *role, const SpOp *op)
{
  return op->loop != 0 ? &role->block->loops[op->loop - 1] : NULL;
}

/* Whether the op is run where the cursor is. */
static inline gboolean
sp_role_holds (const SpEngine *e, const SpRole *role, const SpOp *op)
{
  guint guard = op->guard;

  if ((op->flags & role->item.mask) != role->item.flags)
    return FALSE;
  if (guard == 0)
    return TRUE;
  const SpLoop *loop = sp_role_loop_of (role, op);
  return sp_op_holds (op, role->place[op->group], e->program->groups[op->group].size, role->step,
                      loop != NULL ? loop->steps : 1);
}

G_END_DECLS
