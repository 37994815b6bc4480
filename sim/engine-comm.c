/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine-private.h"

/* Streams of communication, and what meets on them: the members of a collective, the two ends of a message. */

/* --- pools -------------------------------------------------------------------------------------------------------- */

#define POSTED(e, i) (&g_array_index ((e)->posted, SpPosted, i))
#define MAIL(e, i) (&g_array_index ((e)->mail, SpMail, i))
#define TRANSFER(e, i) (&g_array_index ((e)->transfers, SpTransfer, i))

/* The number of an unused element; the free ones are linked through `next`. */
#define TAKE(array, free_list, type, next_field)                                                                       \
  G_STMT_START                                                                                                         \
  {                                                                                                                    \
    if ((free_list) == 0) {                                                                                            \
      g_array_set_size (array, (array)->len + 1);                                                                      \
      taken = (array)->len - 1;                                                                                        \
    } else {                                                                                                           \
      taken = (free_list);                                                                                             \
      (free_list) = g_array_index (array, type, taken).next_field;                                                     \
    }                                                                                                                  \
  }                                                                                                                    \
  G_STMT_END

static guint32
take_posted (SpEngine *e)
{
  guint32 taken;

  TAKE (e->posted, e->free_posted, SpPosted, next);
  return taken;
}

static guint32
take_mail (SpEngine *e)
{
  guint32 taken;

  TAKE (e->mail, e->free_mail, SpMail, next);
  return taken;
}

static guint32
take_transfer (SpEngine *e)
{
  guint32 taken;

  TAKE (e->transfers, e->free_transfer, SpTransfer, next_free);
  return taken;
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

/* A message inside a node has prices of its own. In serial mode, as the estimate has it, a hop of a chain is one where it
 * is one in every sibling chain, and rings and stages all go at the pace of the slowest hop. */
static gboolean
is_near (const SpEngine *e, const SpTransfer *t)
{
  gint32 node = e->options->gpus_per_node;

  if (t->kind == SP_TRANSFER_COLLECTIVE || node == 0)
    return FALSE;
  if (e->options->serial)
    return e->near_hops[t->op->group][t->direction] != NULL && t->kind == SP_TRANSFER_MESSAGE &&
           t->op->kind != SP_OP_SEND_RECEIVE &&
           e->near_hops[t->op->group][t->direction][e->role[t->subject].place[t->op->group]];
  gint32 from = e->roles->rank[t->subject];
  gint32 place = e->role[t->subject].place[t->op->group], size = e->program->groups[t->op->group].size;
  gint32 next = (place + (t->direction ? size - 1 : 1)) % size;
  return from / node == sp_program_member (e->program, t->op->group, from, next) / node;
}

static void
change_activity (SpEngine *e, const SpTransfer *t, gint change)
{
  if (t->kind == SP_TRANSFER_COLLECTIVE) {
    const SpInstance *instance = &e->roles->instances[t->subject];
    for (guint i = 0; i < instance->n_members; i++)
      sp_role_activity (e, &e->role[e->roles->members[instance->first + i]], change);
    return;
  }
  sp_role_activity (e, &e->role[t->subject], change);
  if (t->receiver != (gint32) t->subject)
    sp_role_activity (e, &e->role[t->receiver], change);
}

/* Of a collective all members have the noise of their instance; of a message the sender's. */
static SpTime
with_noise (const SpEngine *e, const SpTransfer *t, SpMeeting *meeting, SpTime time)
{
  const SpVariation *variation = e->options->variation;

  if (variation == NULL || variation->communication_sd == 0)
    return time;
  guint64 thing = ((guint64) t->op->group << 40 | (guint64) t->direction << 36 | (guint64) t->kind << 34) + t->subject;
  double factor = sp_variation_factor (variation->seed, ~thing, meeting->n_runs, variation->communication_sd);
  return sp_time_from_s (sp_time_to_s (time) * factor);
}

/* A collective of experts' tokens takes what its busiest member has. */
static SpTime
with_load (const SpEngine *e, const SpTransfer *t, SpTime time)
{
  double most = 0;

  if (!(t->op->flags & SP_OP_VARIES) || t->kind != SP_TRANSFER_COLLECTIVE || e->options->variation == NULL ||
      e->options->variation->load_sd == 0)
    return time;
  const SpInstance *instance = &e->roles->instances[t->subject];
  for (guint32 i = 0; i < instance->n_members; i++)
    most = MAX (most, sp_role_load (e, &e->role[e->roles->members[instance->first + i]]));
  return sp_time_from_s (sp_time_to_s (time) * most);
}

/* Whether kernels run on a GPU that takes part. */
static gboolean
is_beside_kernels (const SpEngine *e, const SpTransfer *t)
{
  if (t->kind != SP_TRANSFER_COLLECTIVE)
    return e->role[t->subject].state == SP_ROLE_RUNS || e->role[t->receiver].state == SP_ROLE_RUNS;
  const SpInstance *instance = &e->roles->instances[t->subject];
  for (guint i = 0; i < instance->n_members; i++)
    if (e->role[e->roles->members[instance->first + i]].state == SP_ROLE_RUNS)
      return TRUE;
  return FALSE;
}

static void
stretch (SpTransfer *t)
{
  t->total += llrint ((double) (t->total - t->fixed) * t->price->stretch);
}

static void
start (SpEngine *e, SpTransferKind kind, SpMeeting *meeting, guint32 subject, gint32 receiver, guint direction)
{
  guint32 number = take_transfer (e);
  SpTransfer *t = TRANSFER (e, number);
  const SpOpPrice *price = meeting->price;

  *t = (SpTransfer){ .kind = kind,
                     .op = meeting->op,
                     .price = price,
                     .subject = subject,
                     .receiver = receiver,
                     .direction = (guint8) direction,
                     .began = e->now };
  gboolean near = is_near (e, t), serial = e->options->serial;
  SpTime total = serial ? (near ? price->near_serial : price->serial) : near ? price->near_total : price->total;
  t->total = with_noise (e, t, meeting, with_load (e, t, total));
  t->fixed = MIN (near ? price->near_fixed : price->fixed, t->total);
  gboolean stretches = price->stretch > 0 && !serial;
  if (stretches && e->options->steps)
    stretch (t);
  meeting->n_runs++;
  change_activity (e, t, 1);
  t->flowing = serial || (e->options->network == NULL && !stretches);
  if (!t->flowing && e->options->steps && sp_engine_start_steps (e, number))
    return;
  SpTime date = e->now + (t->flowing ? t->total : t->fixed);
  sp_queue_push (&e->queue, date, SP_EVENT_ARRIVAL, number);
}

void
sp_engine_transfer_event (SpEngine *e, guint32 number)
{
  SpTransfer *t = TRANSFER (e, number);

  if (!t->flowing) {
    t->flowing = TRUE;
    if (t->price->stretch > 0 && !e->options->steps && is_beside_kernels (e, t))
      stretch (t);
    if (e->options->network == NULL) {
      sp_queue_push (&e->queue, t->began + t->total, SP_EVENT_ARRIVAL, number);
      return;
    }
    if (e->options->steps ? sp_engine_start_pairs (e, number) || sp_engine_start_flows (e, number)
                          : sp_engine_start_flows (e, number))
      return;
    if (e->now < t->began + t->total) {
      sp_queue_push (&e->queue, t->began + t->total, SP_EVENT_ARRIVAL, number);
      return;
    }
  }
  sp_engine_transfer_over (e, number);
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

static void arrive (SpEngine *e, SpRole *role, SpPosted *posted);

/* An op of the stream is over: the next one's turn, and perhaps the cursor's. */
static void
op_over (SpEngine *e, SpRole *role, guint stream, const SpTransfer *transfer)
{
  SpRoleStream *s = &role->streams[stream];
  SpPosted *head = POSTED (e, s->head);
  guint32 number = s->head;

  if (--head->halves > 0)
    return;
  if (e->options->trace != NULL)
    sp_engine_trace_posted (e, role, head, transfer);
  s->head = head->next;
  head->next = e->free_posted;
  e->free_posted = number;
  s->over++;
  role->report->n_communications++;
  SpPhase phase = (SpPhase) head->phase; /* the pool may move */
  if (s->head != 0)
    arrive (e, role, POSTED (e, s->head));
  sp_role_wake (e, role, (SpStream) stream, transfer, phase);
}

static void
account (SpEngine *e, SpRole *role, const SpTransfer *t, gboolean sends)
{
  SpRoleReport *report = role->report;
  double bytes = (double) t->op->bytes;

  report->active[t->op->axis] += e->now - t->began;
  if (sends)
    report->payload_bytes[t->op->axis] += bytes;
}

void
sp_engine_transfer_over (SpEngine *e, guint32 number)
{
  const SpTransfer t = *TRANSFER (e, number);

  TRANSFER (e, number)->next_free = e->free_transfer;
  e->free_transfer = number;
  if (e->options->trace != NULL && t.kind != SP_TRANSFER_COLLECTIVE)
    sp_engine_trace_message (e, &t);
  change_activity (e, &t, -1);
  if (t.kind == SP_TRANSFER_COLLECTIVE) {
    const SpInstance *instance = &e->roles->instances[t.subject];
    for (guint i = 0; i < instance->n_members && e->error == NULL; i++) {
      SpRole *member = &e->role[e->roles->members[instance->first + i]];
      account (e, member, &t, TRUE);
      op_over (e, member, t.op->stream, &t);
    }
    return;
  }
  SpRole *sender = &e->role[t.subject], *receiver = &e->role[t.receiver];
  account (e, sender, &t, TRUE);
  if (t.kind == SP_TRANSFER_PIPE) {
    if (receiver != sender)
      account (e, receiver, &t, FALSE);
    sender->report->n_communications++;
    receiver->report->n_communications++;
    receiver->streams[SP_STREAM_PIPELINE].over++;
    sp_role_wake (e, receiver, SP_STREAM_PIPELINE, &t, SP_PHASE_FORWARD);
    return;
  }
  op_over (e, sender, t.op->stream, &t);
  if (t.op->kind != SP_OP_SEND_RECEIVE && receiver != sender)
    account (e, receiver, &t, FALSE);
  op_over (e, receiver, t.op->stream, &t);
}

/* --- meetings ----------------------------------------------------------------------------------------------------- */

/* The first one says what it is; the others must have come for the same. */
static gboolean
same_op (SpEngine *e, const SpRole *role, SpMeeting *meeting, const SpPosted *posted)
{
  static const guint8 counterpart[SP_N_OPS] = { [SP_OP_SEND] = SP_OP_RECEIVE, [SP_OP_RECEIVE] = SP_OP_SEND };
  const SpOp *a = meeting->op, *b = posted->op;

  if (meeting->arrived == 0 || (a->bytes == b->bytes && (a->kind == b->kind || counterpart[a->kind] == b->kind)))
    return TRUE;
  g_autofree char *where = sp_role_where (e, role);
  sp_engine_fail (e, SP_ENGINE_ERROR_MISMATCH,
                  "%s comes with %" G_GINT64_FORMAT " bytes to a meeting for %s of %" G_GINT64_FORMAT " bytes", where,
                  b->bytes, sp_op_name ((SpOpKind) a->kind), a->bytes);
  return FALSE;
}

static void
arrive_at_collective (SpEngine *e, SpRole *role, const SpPosted *posted)
{
  guint32 number = (guint32) e->roles->instance[posted->op->group][sp_role_number (e, role)];
  SpMeeting *meeting = &e->instance[number];

  if (!same_op (e, role, meeting, posted))
    return;
  if (meeting->arrived++ == 0) {
    meeting->op = posted->op;
    meeting->price = posted->price;
  }
  if (meeting->arrived < e->roles->instances[number].n_members)
    return;
  meeting->arrived = 0;
  start (e, SP_TRANSFER_COLLECTIVE, meeting, number, -1, 0);
}

/* One end of the message that goes from `sender` in a direction. */
static void
arrive_at_message (SpEngine *e, SpRole *role, gint32 sender, guint direction, gboolean sends, const SpPosted *posted)
{
  guint group = posted->op->group;
  SpMeeting *meeting = &e->message[group][direction][sender];

  if (!same_op (e, role, meeting, posted))
    return;
  if (meeting->arrived == 0 || sends) {
    meeting->op = posted->op;
    meeting->price = posted->price;
  }
  if (++meeting->arrived < 2)
    return;
  meeting->arrived = 0;
  start (e, SP_TRANSFER_MESSAGE, meeting, (guint32) sender, e->neighbour[group][direction][sender], direction);
}

static void
arrive (SpEngine *e, SpRole *role, SpPosted *posted)
{
  const SpOp *op = posted->op;
  posted->at = e->now;
  const SpPosted copy = *posted; /* the pool may move */
  gint32 self = sp_role_number (e, role);
  guint direction = (op->flags & SP_OP_REVERSE) != 0;

  if (op->kind == SP_OP_SEND || op->kind == SP_OP_SEND_RECEIVE)
    arrive_at_message (e, role, self, direction, TRUE, &copy);
  if (op->kind == SP_OP_RECEIVE || op->kind == SP_OP_SEND_RECEIVE)
    arrive_at_message (e, role, e->neighbour[op->group][!direction][self], direction, FALSE, &copy);
  if (op->kind != SP_OP_SEND && op->kind != SP_OP_RECEIVE && op->kind != SP_OP_SEND_RECEIVE)
    arrive_at_collective (e, role, &copy);
}

void
sp_engine_post (SpEngine *e, SpRole *role, const SpOp *op, const SpOpPrice *price)
{
  guint32 number = take_posted (e);
  SpRoleStream *s = &role->streams[op->stream];

  *POSTED (e, number) = (SpPosted){ .op = op,
                                    .price = price,
                                    .halves = op->kind == SP_OP_SEND_RECEIVE ? 2 : 1,
                                    .position = role->item.position,
                                    .micro_batch = role->item.micro_batch,
                                    .phase = role->item.phase };
  s->posted++;
  if (sp_op_moves_shards (op)) {
    role->list_held_up += e->prices->host_gather;
    role->host_free += e->prices->host_gather;
    role->report->issue += e->prices->host_gather;
  }
  if (s->head != 0)
    POSTED (e, s->tail)->next = number;
  else
    s->head = number;
  s->tail = number;
  if (s->head == number)
    arrive (e, role, POSTED (e, number));
}

/* --- the pipeline's messages -------------------------------------------------------------------------------------- */

static guint64
tag_of (const SpItem *item)
{
  return (guint64) item->boundary << 33 | (guint64) item->backward << 32 | (guint32) item->micro_batch;
}

/* The one with the tag that the receiver, or the sender before it, has left; else a new one. */
static guint32 *
find_mail (SpEngine *e, gint32 receiver, guint64 tag)
{
  guint32 *at = &e->mail_of[receiver];

  while (*at != 0 && MAIL (e, *at)->tag != tag)
    at = &MAIL (e, *at)->next;
  if (*at == 0) {
    guint32 number = take_mail (e);
    *MAIL (e, number) = (SpMail){ .tag = tag };
    /* The pool may have moved. */
    for (at = &e->mail_of[receiver]; *at != 0; at = &MAIL (e, *at)->next)
      ;
    *at = number;
  }
  return at;
}

static void
meet (SpEngine *e, gint32 sender, gint32 receiver, const SpItem *item, gboolean sends)
{
  guint32 *at = find_mail (e, receiver, tag_of (item)), number = *at;
  SpMail *mail = MAIL (e, number);
  gint32 variant = sp_program_variant_of (e->program, item->micro_batch);
  SpMeeting meeting = { .op = &e->program->variants[variant].pipe_send, .price = &e->prices->pipe[variant] };

  if (sends)
    mail->sent = TRUE;
  else
    mail->awaited = TRUE;
  if (!mail->sent || !mail->awaited)
    return;
  *at = mail->next;
  mail->next = e->free_mail;
  e->free_mail = number;
  meeting.n_runs = (guint32) (tag_of (item) >> 16 ^ tag_of (item));
  guint direction = e->neighbour[SP_GROUP_PIPELINE][0][sender] != receiver;
  start (e, SP_TRANSFER_PIPE, &meeting, (guint32) sender, receiver, direction);
}

/* The role of the same line of the pipeline at another stage. */
static gint32
role_at_stage (const SpEngine *e, const SpRole *role, gint32 stage)
{
  return e->roles->of_rank[sp_program_member (e->program, SP_GROUP_PIPELINE, role->report->rank, stage)];
}

void
sp_engine_pipe_send (SpEngine *e, SpRole *role, const SpItem *item)
{
  meet (e, sp_role_number (e, role), role_at_stage (e, role, item->peer), item, TRUE);
}

void
sp_engine_pipe_receive (SpEngine *e, SpRole *role, const SpItem *item)
{
  role->must_stream = SP_STREAM_PIPELINE;
  role->must_count = ++role->streams[SP_STREAM_PIPELINE].posted;
  meet (e, role_at_stage (e, role, item->peer), sp_role_number (e, role), item, FALSE);
}
