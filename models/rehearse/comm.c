/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/private.h"

#include <string.h>

/*
 * Communication by copying. A collective is done by the member that comes last: the others wait at it, and it checks
 * that all stand at the same one. A send leaves a copy in the mail of (group, from, to), a receive takes the oldest; of
 * the pipeline's, that of its boundary, direction and micro-batch.
 * The copier counts payload as it moves it.
 */

typedef struct {
  gint64 tag; /* of the pipeline's messages */
  gint64 n[2];
  double *data[2];
} Message;

static void
message_free (gpointer memory)
{
  Message *message = memory;

  g_free (message->data[0]);
  g_free (message->data[1]);
  g_free (message);
}

void
sp_mail_free (gpointer queue)
{
  g_queue_free_full (queue, message_free);
}

static void
count (SpCall *call, gint64 elements, guint8 dtype)
{
  call->rank->report->payload_bytes[call->op->axis] += elements * (gint64) sp_dtype_bytes (dtype);
}

static gint64
elements_of (const SpCall *call, guint8 slot)
{
  return slot != 0 ? sp_call_buffer (call, slot)->elements : 0;
}

static gint64
counted (SpCall *call, guint8 slot, gboolean is_output)
{
  SpPart part;

  return sp_call_part (call, slot, is_output, &part) ? part.n : 0;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static gint64
tag_of (const SpItem *item)
{
  return item->kind == SP_ITEM_LIST
             ? 0
             : ((gint64) item->boundary << 33 | (gint64) item->backward << 32) + item->micro_batch;
}

gint32
sp_call_neighbour (const SpCall *call, gint32 by)
{
  const SpProgram *program = call->in->program;

  if (call->item->kind != SP_ITEM_LIST)
    return sp_program_member (program, call->op->group, call->rank->number, call->item->peer);
  gint32 size = program->groups[call->op->group].size;
  gint32 place = sp_program_place (program, call->op->group, call->rank->number) + by;

  if (call->op->kind == SP_OP_SEND_RECEIVE)
    place = (place + size) % size;
  return place < 0 || place >= size ? -1 : sp_program_member (program, call->op->group, call->rank->number, place);
}

static GQueue *
mail_between (const SpCall *call, gint32 from, gint32 to)
{
  gint64 world = call->in->program->world, key = ((gint64) call->op->group * world + from) * world + to;
  GQueue *queue = g_hash_table_lookup (call->in->mail, &key);

  if (queue == NULL) {
    queue = g_queue_new ();
    g_hash_table_insert (call->in->mail, g_memdup2 (&key, sizeof key), queue);
  }
  return queue;
}

static void
send (SpCall *call)
{
  gint32 to = sp_call_neighbour (call, call->op->flags & SP_OP_REVERSE ? -1 : 1);
  Message *message;

  if (to < 0) {
    sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM, "sends beyond the end of its group");
    return;
  }
  message = g_new0 (Message, 1);
  message->tag = tag_of (call->item);
  for (guint i = 0; i < 2; i++) {
    SpPart part;
    const double *data =
        sp_call_part (call, call->op->in[i], FALSE, &part) ? sp_call_read_part (call, call->op->in[i], &part) : NULL;

    if (data == NULL)
      continue;
    message->n[i] = part.n;
    message->data[i] = g_memdup2 (data, part.n * sizeof *data);
    count (call, part.n, sp_call_buffer (call, call->op->in[i])->dtype);
  }
  call->rank->report->messages[call->op->axis]++;
  g_queue_push_tail (mail_between (call, call->rank->number, to), message);
}

/* What moves is of the narrower type. */
static void
copy_host (SpCall *call)
{
  gint64 n = elements_of (call, call->op->in[0]);
  const SpBuffer *from = sp_call_buffer (call, call->op->in[0]), *to = sp_call_buffer (call, call->op->out[0]);
  const double *in = sp_call_read (call, call->op->in[0], n);
  double *out = sp_call_write (call, call->op->out[0], n);

  if (in == NULL || out == NULL)
    return;
  if (!(call->op->kind == SP_OP_TO_HOST ? to->host : from->host))
    sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM, "copies to or from the host what does not lie there");
  for (gint64 i = 0; i < n; i++)
    out[i] = call->op->flags & SP_OP_ACCUMULATE ? out[i] + in[i] : in[i];
  count (call, n, sp_dtype_bytes (from->dtype) < sp_dtype_bytes (to->dtype) ? from->dtype : to->dtype);
}

static Message *
take (GQueue *queue, gint64 tag)
{
  GList *link = queue->head;

  while (link != NULL && ((const Message *) link->data)->tag != tag)
    link = link->next;
  if (link == NULL)
    return NULL;
  Message *message = link->data;
  g_queue_delete_link (queue, link);
  return message;
}

/* FALSE: nothing there yet. */
static gboolean
receive (SpCall *call)
{
  gint32 from = sp_call_neighbour (call, call->op->flags & SP_OP_REVERSE ? 1 : -1);
  Message *message;

  if (from < 0) {
    sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM, "receives from beyond the end of its group");
    return FALSE;
  }
  message = take (mail_between (call, from, call->rank->number), tag_of (call->item));
  if (message == NULL)
    return FALSE;
  for (guint i = 0; i < 2 && !call->failed; i++) {
    SpPart part;
    double *data;

    if (!sp_call_part (call, call->op->out[i], TRUE, &part))
      break;
    if (message->n[i] != part.n)
      sp_call_fail (call, SP_REHEARSE_ERROR_MISMATCH,
                    "receives %" G_GINT64_FORMAT " elements, but rank %d sent %" G_GINT64_FORMAT, part.n, from,
                    message->n[i]);
    else if ((data = sp_call_write (call, call->op->out[i], elements_of (call, call->op->out[i]))) != NULL &&
             part.n > 0)
      memcpy (data + part.first, message->data[i], part.n * sizeof *data);
  }
  message_free (message);
  return !call->failed;
}

static gboolean
send_receive (SpCall *call)
{
  if (!call->rank->sent)
    send (call);
  call->rank->sent = TRUE;
  if (call->failed || !receive (call))
    return FALSE;
  call->rank->sent = FALSE;
  return TRUE;
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

typedef struct {
  SpCall *calls; /* of the members, by place */
  const double **in;
  double **out;
  gint64 n_in, n_out;
  gint32 size;
} Gathering;

static void
all_gather (Gathering *g)
{
  for (gint32 to = 0; to < g->size; to++)
    for (gint32 from = 0; from < g->size; from++)
      memcpy (g->out[to] + from * g->n_in, g->in[from], g->n_in * sizeof (double));
}

static void
reduce_scatter (Gathering *g)
{
  for (gint32 to = 0; to < g->size; to++)
    for (gint64 i = 0; i < g->n_out; i++) {
      double sum = g->calls[to].op->flags & SP_OP_ACCUMULATE ? g->out[to][i] : 0;

      for (gint32 from = 0; from < g->size; from++)
        sum += g->in[from][to * g->n_out + i];
      g->out[to][i] = sum;
    }
}

static void
all_reduce (Gathering *g)
{
  gboolean is_max = (g->calls[0].op->flags & SP_OP_MAX) != 0;

  for (gint64 i = 0; i < g->n_in; i++) {
    double result = g->in[0][i];

    for (gint32 from = 1; from < g->size; from++)
      result = is_max ? MAX (result, g->in[from][i]) : result + g->in[from][i];
    for (gint32 to = 0; to < g->size; to++)
      g->out[to][i] = result;
  }
}

static void
all_to_all (Gathering *g)
{
  gint64 n = g->n_in / g->size;

  for (gint32 to = 0; to < g->size; to++)
    for (gint32 from = 0; from < g->size; from++)
      memcpy (g->out[to] + from * n, g->in[from] + to * n, n * sizeof (double));
}

/* How the sizes of the operands relate: in * in_parts = out * out_parts, with 0 for the group's size. */
typedef struct {
  void (*run) (Gathering *g);
  gint32 in_parts, out_parts;
  gboolean counts_out; /* payload is the whole: out, else in */
} Collective;

static const Collective collectives[SP_N_OPS] = {
  [SP_OP_ALL_GATHER] = { all_gather, 0, 1, TRUE },
  [SP_OP_REDUCE_SCATTER] = { reduce_scatter, 1, 0, FALSE },
  [SP_OP_ALL_REDUCE] = { all_reduce, 1, 1, FALSE },
  [SP_OP_ALL_TO_ALL] = { all_to_all, 1, 1, FALSE },
};

static gboolean
is_same_cursor (const SpRank *a, const SpRank *b)
{
  return a->stage == b->stage && a->item == b->item && a->op == b->op && a->step == b->step;
}

/* A tied matrix is reduced by two blocks on two stages, a mirrored layer by the two stages that hold it; all others do
 * the same at the same place. */
static gboolean
is_same_collective (const SpCall *a, const SpCall *b)
{
  if (a->op->kind != b->op->kind || a->op->group != b->op->group || a->op->flags != b->op->flags ||
      a->item->phase != b->item->phase || a->item->micro_batch != b->item->micro_batch ||
      elements_of (a, a->op->in[0]) != elements_of (b, b->op->in[0]) ||
      elements_of (a, a->op->out[0]) != elements_of (b, b->op->out[0]))
    return FALSE;
  if (a->op->group == SP_GROUP_MIRROR)
    return a->position->layer == b->position->layer && a->rank->op == b->rank->op;
  return a->op->group == SP_GROUP_TIE || is_same_cursor (a->rank, b->rank);
}

/* Opens the calls of all members; the number that stand at a collective of this group. */
static gint32
gather_members (SpCall *call, Gathering *g)
{
  SpInterpreter *in = call->in;
  gint32 present = 0;

  for (gint32 i = 0; i < g->size; i++) {
    SpRank *rank = &in->ranks[sp_program_member (in->program, call->op->group, call->rank->number, i)];

    if (!rank->waits || rank->passed)
      continue;
    sp_call_open (in, rank, &g->calls[i]);
    if (g->calls[i].op->group != call->op->group || collectives[g->calls[i].op->kind].run == NULL)
      continue;
    present++;
    if (!is_same_collective (call, &g->calls[i])) {
      g_autofree char *where = sp_rank_where (in, rank);

      sp_call_fail (call, SP_REHEARSE_ERROR_MISMATCH, "is not what a member of its group does: %s", where);
      return 0;
    }
  }
  return present;
}

static void
run_collective (SpCall *call, Gathering *g)
{
  const Collective *collective = &collectives[call->op->kind];
  gint32 in_parts = collective->in_parts == 0 ? g->size : 1, out_parts = collective->out_parts == 0 ? g->size : 1;

  g->n_in = counted (call, call->op->in[0], FALSE);
  g->n_out = elements_of (call, call->op->out[0]);
  if (g->n_in * in_parts != g->n_out * out_parts || (call->op->kind == SP_OP_ALL_TO_ALL && g->n_in % g->size != 0)) {
    sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM,
                  "turns %" G_GINT64_FORMAT " elements into %" G_GINT64_FORMAT " in a group of %d", g->n_in, g->n_out,
                  g->size);
    return;
  }
  for (gint32 i = 0; i < g->size; i++) {
    SpPart part;
    if (!sp_call_part (&g->calls[i], g->calls[i].op->in[0], FALSE, &part))
      return;
    g->in[i] = sp_call_read_part (&g->calls[i], g->calls[i].op->in[0], &part);
    g->out[i] = sp_call_write (&g->calls[i], g->calls[i].op->out[0], g->n_out);
    if (g->calls[i].failed)
      return;
  }
  collective->run (g);
  for (gint32 i = 0; i < g->size; i++) {
    const SpOp *op = g->calls[i].op;

    sp_call_check_written (&g->calls[i]);
    g->calls[i].rank->passed = TRUE;
    if (g->size == 1)
      continue;
    count (&g->calls[i], collective->counts_out ? g->n_out : g->n_in,
           sp_call_buffer (&g->calls[i], collective->counts_out ? op->out[0] : op->in[0])->dtype);
    g->calls[i].rank->report->messages[op->axis]++;
  }
}

static gboolean
meet (SpCall *call)
{
  gint32 size = MAX (call->in->program->groups[call->op->group].size, 1);
  Gathering g = {
    .calls = g_new0 (SpCall, size), .in = g_new0 (const double *, size), .out = g_new0 (double *, size), .size = size
  };

  call->rank->waits = TRUE;
  if (gather_members (call, &g) == size)
    run_collective (call, &g);
  for (gint32 i = 0; i < size; i++)
    if (g.calls[i].in != NULL)
      sp_call_close (&g.calls[i]);
  g_free (g.calls);
  g_free (g.in);
  g_free (g.out);
  call->failed |= call->in->error != NULL;
  return call->rank->passed && !call->failed;
}

gboolean
sp_call_communicate (SpCall *call)
{
  gboolean done;

  switch (call->op->kind) {
  case SP_OP_SEND:
    send (call);
    done = !call->failed;
    break;
  case SP_OP_RECEIVE:
    done = receive (call);
    break;
  case SP_OP_TO_HOST:
  case SP_OP_FROM_HOST:
    copy_host (call);
    done = !call->failed;
    break;
  case SP_OP_SEND_RECEIVE:
    done = send_receive (call);
    break;
  default:
    done = call->rank->passed || meet (call);
    break;
  }
  call->rank->waits = !done;
  if (done)
    call->rank->passed = FALSE;
  return done;
}
