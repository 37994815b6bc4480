/* SPDX-License-Identifier: Apache-2.0 */
/* A recording's whole: the walk that fills it, places in memory, waits, and the check of both. */
#include <string.h>

#include "models/rehearse/private.h"

#define ALIGNMENT 256

#define COMMAND(r, i) (&g_array_index ((r)->commands, SpCommand, i))
#define STORED(r, i) (&g_array_index ((r)->storages, SpStored, i))

/* --- places ------------------------------------------------------------------------------------------------------- */

static gint64
padded (gint64 bytes)
{
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* What lives ALWAYS first, then the largest. */
static gint
compare_sizes (gconstpointer a, gconstpointer b)
{
  const SpStored *x = *(const SpStored *const *) a, *y = *(const SpStored *const *) b;

  if ((x->first < 0) != (y->first < 0))
    return x->first < 0 ? -1 : 1;
  if (x->bytes != y->bytes)
    return x->bytes > y->bytes ? -1 : 1;
  return x < y ? -1 : x > y;
}

/* Each at the lowest place that is free while it lives; `placed` is kept in order of offsets. */
static gint64
pack (SpRecording *r, gboolean host)
{
  g_autoptr (GPtrArray) order = g_ptr_array_new (), placed = g_ptr_array_new ();
  gint64 top = 0;

  for (guint i = 0; i < r->storages->len; i++)
    if (STORED (r, i)->host == host)
      g_ptr_array_add (order, STORED (r, i));
  g_ptr_array_sort (order, compare_sizes);
  for (guint i = 0; i < order->len; i++) {
    SpStored *s = order->pdata[i];
    gint64 at = 0, bytes = padded (s->bytes);
    guint j = 0;

    for (; j < placed->len; j++) {
      const SpStored *other = placed->pdata[j];
      if (other->last < s->first || s->last < other->first)
        continue;
      if (other->offset >= at + bytes)
        break;
      at = MAX (at, other->offset + padded (other->bytes));
    }
    s->offset = at;
    top = MAX (top, at + bytes);
    for (j = 0; j < placed->len && ((const SpStored *) placed->pdata[j])->offset <= at; j++)
      ;
    g_ptr_array_insert (placed, (gint) j, s);
  }
  return top;
}

static gboolean
share_bytes (const SpStored *a, const SpStored *b)
{
  return a->host == b->host && a->bytes > 0 && b->bytes > 0 && a->offset < b->offset + b->bytes &&
         b->offset < a->offset + a->bytes;
}

/* --- waits -------------------------------------------------------------------------------------------------------- */

/* For each queue the number of the last command, -1: none. */
typedef struct {
  gint32 last[SP_N_QUEUES];
} Clock;

static const Clock none = { { [0 ... SP_N_QUEUES - 1] = -1 } };

static void
advance (Clock *clock, const Clock *other)
{
  for (guint q = 0; q < SP_N_QUEUES; q++)
    clock->last[q] = MAX (clock->last[q], other->last[q]);
}

typedef struct {
  SpRecording *r;
  Clock *reads, *writes;     /* of storages */
  Clock *done;               /* of commands: what is over when one is */
  Clock before[SP_N_QUEUES]; /* what is over when a queue's next command starts */
  gint32 last, computed;     /* commands, of any queue and of COMPUTE; -1: none */
  Clock open;                /* what was sent in this list, or step of its loop: over at its end */
  Clock synchronous;         /* what COMPUTE has yet to wait for */
} Waits;

static void
wait_for (Waits *w, guint32 number, const Clock *what)
{
  SpCommand *command = COMMAND (w->r, number);
  Clock *now = &w->before[command->queue];

  /* The latest first: it may have waited for the others. */
  for (;;) {
    gint32 latest = -1;
    for (guint q = 0; q < SP_N_QUEUES; q++)
      if (q != command->queue && what->last[q] > now->last[q])
        latest = MAX (latest, what->last[q]);
    if (latest < 0)
      return;
    guint32 wait = (guint32) latest;
    g_array_append_val (w->r->waits, wait);
    command->n_waits++;
    COMMAND (w->r, wait)->is_awaited = TRUE;
    advance (now, &w->done[latest]);
  }
}

/* What used the bytes of a storage before it. */
static void
wait_for_place (Waits *w, guint32 number, gint32 storage)
{
  const SpStored *s = STORED (w->r, storage);

  for (guint i = 0; i < w->r->storages->len; i++) {
    const SpStored *other = STORED (w->r, i);
    if (other->last < s->first && share_bytes (s, other)) {
      wait_for (w, number, &w->reads[i]);
      wait_for (w, number, &w->writes[i]);
    }
  }
}

static gboolean
is_untouched (const Waits *w, gint32 storage)
{
  return memcmp (&w->reads[storage], &none, sizeof none) == 0 && memcmp (&w->writes[storage], &none, sizeof none) == 0;
}

static void
plan_operands (Waits *w, guint32 number)
{
  SpCommand *command = COMMAND (w->r, number);

  for (guint i = 0; i < SP_MAX_IN + SP_MAX_OUT; i++) {
    gint32 storage = i < SP_MAX_IN ? command->in[i].storage : command->out[i - SP_MAX_IN].storage;
    if (storage < 0)
      continue;
    if (is_untouched (w, storage))
      wait_for_place (w, number, storage);
    wait_for (w, number, &w->writes[storage]);
    if (i >= SP_MAX_IN)
      wait_for (w, number, &w->reads[storage]);
  }
  for (guint i = 0; i < SP_MAX_IN + SP_MAX_OUT; i++) {
    gint32 storage = i < SP_MAX_IN ? command->in[i].storage : command->out[i - SP_MAX_IN].storage;
    if (storage >= 0)
      (i < SP_MAX_IN ? w->reads : w->writes)[storage].last[command->queue] = (gint32) number;
  }
}

static gboolean
begins_list (const SpCommand *before, const SpCommand *command)
{
  return before->layer != command->layer || before->micro_batch != command->micro_batch ||
         before->phase != command->phase || before->block != command->block;
}

/* What a list, or a loop's step, sends is over at its end, but for the outer ring's at a step's: sim/engine.h. Zeros that
 * were put in belong to no list. */
static void
close_list (Waits *w, guint32 number)
{
  static const guint8 streams[] = { SP_STREAM_TENSOR, SP_STREAM_SEQUENCE, SP_STREAM_OUTER };
  const SpCommand *command = COMMAND (w->r, number), *before = w->last >= 0 ? COMMAND (w->r, (guint) w->last) : NULL;

  if (command->op.kind == SP_OP_ZERO)
    return;
  w->last = (gint32) number;
  if (before == NULL || (!begins_list (before, command) && before->step == command->step))
    return;
  for (guint i = 0; i < (begins_list (before, command) ? 3 : 2); i++) {
    gint32 *open = &w->open.last[streams[i]], *over = &w->synchronous.last[streams[i]];
    *over = MAX (*over, *open);
    *open = -1;
  }
}

static void
plan_command (Waits *w, guint32 number)
{
  SpCommand *command = COMMAND (w->r, number);
  gboolean communicates = sp_op_is_communication (command->op.kind);
  gboolean synchronous = communicates && !(command->op.flags & SP_OP_ASYNC);

  command->first_wait = w->r->waits->len;
  close_list (w, number);
  if (command->queue == SP_STREAM_COMPUTE) {
    wait_for (w, number, &w->synchronous);
    w->synchronous = none;
    w->computed = (gint32) number;
  } else if (communicates && w->computed >= 0) {
    Clock computed = none;
    computed.last[SP_STREAM_COMPUTE] = w->computed;
    wait_for (w, number, &computed);
  }
  plan_operands (w, number);
  w->before[command->queue].last[command->queue] = (gint32) number;
  w->done[number] = w->before[command->queue];
  if (synchronous)
    w->synchronous.last[command->queue] = (gint32) number;
  else if (command->queue == SP_STREAM_TENSOR || command->queue == SP_STREAM_SEQUENCE ||
           command->queue == SP_STREAM_OUTER)
    w->open.last[command->queue] = (gint32) number;
}

static void
plan_waits (SpRecording *r)
{
  Waits w = { .r = r, .last = -1, .computed = -1, .open = none, .synchronous = none };

  w.reads = g_new (Clock, MAX (r->storages->len, 1));
  w.writes = g_new (Clock, MAX (r->storages->len, 1));
  w.done = g_new (Clock, MAX (r->commands->len, 1));
  for (guint i = 0; i < r->storages->len; i++)
    w.reads[i] = w.writes[i] = none;
  for (guint q = 0; q < SP_N_QUEUES; q++)
    w.before[q] = none;
  for (guint32 i = 0; i < r->commands->len; i++)
    plan_command (&w, i);
  g_free (w.reads);
  g_free (w.writes);
  g_free (w.done);
}

/* --- the check ---------------------------------------------------------------------------------------------------- */

/* Bytes from one border to the next, of either arena. */
typedef struct {
  gint32 write; /* the last, -1: none */
  Clock reads;  /* since then */
} Piece;

typedef struct {
  const SpRecording *r;
  GArray *borders[2]; /* gint64, in order */
  Piece *pieces[2];
  Clock *done;
} Check;

static gint
compare_borders (gconstpointer a, gconstpointer b)
{
  gint64 x = *(const gint64 *) a, y = *(const gint64 *) b;

  return x < y ? -1 : x > y;
}

static gint64
begin_of (const SpRecording *r, const SpOperand *at)
{
  return STORED (r, at->storage)->offset + at->offset;
}

static gint64
end_of (const SpRecording *r, const SpOperand *at)
{
  return begin_of (r, at) + at->elements * (gint64) sp_dtype_bytes (at->dtype);
}

static const SpOperand *
operand_of (const SpCommand *command, guint i)
{
  const SpOperand *at = i < SP_MAX_IN ? &command->in[i] : &command->out[i - SP_MAX_IN];

  return at->storage >= 0 && at->elements > 0 ? at : NULL;
}

static void
find_borders (Check *c)
{
  for (guint i = 0; i < c->r->commands->len; i++)
    for (guint j = 0; j < SP_MAX_IN + SP_MAX_OUT; j++) {
      const SpOperand *at = operand_of (COMMAND (c->r, i), j);
      if (at == NULL)
        continue;
      gint64 ends[2] = { begin_of (c->r, at), end_of (c->r, at) };
      g_array_append_vals (c->borders[STORED (c->r, at->storage)->host], ends, 2);
    }
  for (guint h = 0; h < 2; h++) {
    GArray *b = c->borders[h];
    guint n = 0;
    g_array_sort (b, compare_borders);
    for (guint i = 0; i < b->len; i++)
      if (n == 0 || g_array_index (b, gint64, i) != g_array_index (b, gint64, n - 1))
        g_array_index (b, gint64, n++) = g_array_index (b, gint64, i);
    g_array_set_size (b, n);
    c->pieces[h] = g_new (Piece, MAX (n, 1));
    for (guint i = 0; i < n; i++)
      c->pieces[h][i] = (Piece){ -1, none };
  }
}

static guint
find_border (const GArray *borders, gint64 at)
{
  guint found = 0;

  g_array_binary_search ((GArray *) borders, &at, compare_borders, &found);
  return found;
}

static char *
describe (const SpRecording *r, guint32 number, gint32 before, gint64 at)
{
  const SpCommand *a = COMMAND (r, (guint) before), *b = COMMAND (r, number);

  return g_strdup_printf ("command %u (%s, layer %d, %s) does not wait for command %d (%s, layer %d, %s), which uses "
                          "the same byte %" G_GINT64_FORMAT,
                          number, sp_op_name (b->op.kind), b->layer, sp_phase_name (b->phase), before,
                          sp_op_name (a->op.kind), a->layer, sp_phase_name (a->phase), at);
}

static char *
check_operand (Check *c, guint32 number, const SpOperand *at, gboolean is_output, const Clock *before)
{
  guint h = STORED (c->r, at->storage)->host;
  gint64 end = end_of (c->r, at);

  for (guint i = find_border (c->borders[h], begin_of (c->r, at)); g_array_index (c->borders[h], gint64, i) < end;
       i++) {
    Piece *piece = &c->pieces[h][i];
    gint64 byte = g_array_index (c->borders[h], gint64, i);
    if (piece->write >= 0 && piece->write != (gint32) number &&
        before->last[COMMAND (c->r, (guint) piece->write)->queue] < piece->write)
      return describe (c->r, number, piece->write, byte);
    for (guint q = 0; is_output && q < SP_N_QUEUES; q++)
      if (piece->reads.last[q] > before->last[q] && piece->reads.last[q] != (gint32) number)
        return describe (c->r, number, piece->reads.last[q], byte);
    if (is_output)
      *piece = (Piece){ (gint32) number, none };
    else
      piece->reads.last[COMMAND (c->r, number)->queue] = (gint32) number;
  }
  return NULL;
}

char *
sp_recording_check (const SpRecording *r)
{
  Check c = { .r = r, .done = g_new (Clock, MAX (r->commands->len, 1)) };
  Clock before[SP_N_QUEUES];
  char *wrong = NULL;

  for (guint h = 0; h < 2; h++)
    c.borders[h] = g_array_new (FALSE, FALSE, sizeof (gint64));
  find_borders (&c);
  for (guint q = 0; q < SP_N_QUEUES; q++)
    before[q] = none;
  for (guint32 i = 0; i < r->commands->len && wrong == NULL; i++) {
    const SpCommand *command = COMMAND (r, i);
    Clock *now = &before[command->queue];
    for (guint j = 0; j < command->n_waits; j++)
      advance (now, &c.done[g_array_index (r->waits, guint32, command->first_wait + j)]);
    for (guint j = 0; j < SP_MAX_IN + SP_MAX_OUT && wrong == NULL; j++) {
      const SpOperand *at = operand_of (command, j);
      if (at != NULL)
        wrong = check_operand (&c, i, at, j >= SP_MAX_IN, now);
    }
    now->last[command->queue] = (gint32) i;
    c.done[i] = *now;
  }
  for (guint h = 0; h < 2; h++) {
    g_array_unref (c.borders[h]);
    g_free (c.pieces[h]);
  }
  g_free (c.done);
  return wrong;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

SpRecording *
sp_recording_new (gint32 rank)
{
  SpRecording *r = g_new0 (SpRecording, 1);

  r->rank = rank;
  r->commands = g_array_new (FALSE, FALSE, sizeof (SpCommand));
  r->storages = g_array_new (FALSE, FALSE, sizeof (SpStored));
  r->tables = g_array_new (FALSE, FALSE, sizeof (SpRowTable));
  r->waits = g_array_new (FALSE, FALSE, sizeof (guint32));
  r->starts = g_array_new (FALSE, FALSE, sizeof (SpStart));
  r->gradients = g_array_new (FALSE, FALSE, sizeof (SpGradients));
  r->known = g_hash_table_new_full (g_bytes_hash, g_bytes_equal, (GDestroyNotify) g_bytes_unref, NULL);
  return r;
}

gint32
sp_recording_add_table (SpRecording *r, gpointer data, gint64 n)
{
  g_autoptr (GBytes) bytes = g_bytes_new_take (data, (gsize) n * 4);
  gpointer found = g_hash_table_lookup (r->known, bytes);

  if (found != NULL)
    return GPOINTER_TO_INT (found) - 1;
  SpRowTable table = { n, data };
  g_array_append_val (r->tables, table);
  g_hash_table_insert (r->known, g_steal_pointer (&bytes), GINT_TO_POINTER ((gint) r->tables->len));
  return (gint32) r->tables->len - 1;
}

void
sp_recording_free (SpRecording *r)
{
  g_array_unref (r->commands);
  g_array_unref (r->storages);
  g_array_unref (r->tables);
  g_array_unref (r->waits);
  g_array_unref (r->starts);
  g_array_unref (r->gradients);
  g_hash_table_unref (r->known);
  g_free (r);
}

SpRecording *
sp_record (const SpProgram *program, gint32 rank, guint64 seed, GError **error)
{
  g_autoptr (SpRecording) r = sp_recording_new (rank);
  g_autofree SpInterpreter *in = g_new0 (SpInterpreter, 1);
  g_autofree SpRehearsedRank *reports = g_new0 (SpRehearsedRank, program->world);

  g_return_val_if_fail (rank >= 0 && rank < program->world, NULL);
  if (!sp_interpreter_check (program, error))
    return NULL;
  sp_interpreter_init (in, program, seed, SP_ORDER_EAGER, reports);
  SpRank *self = &in->ranks[rank];
  self->recording = r;
  if (sp_memory_plan (in) && sp_state_start (in, self))
    sp_interpreter_run_rank (in, self);
  sp_interpreter_clear (in);
  if (in->error != NULL) {
    g_propagate_error (error, in->error);
    return NULL;
  }
  r->peak_bytes = reports[rank].peak_bytes;
  memcpy (r->peak_by_class, reports[rank].peak_by_class, sizeof r->peak_by_class);
  r->arena_bytes = pack (r, FALSE);
  r->host_arena_bytes = pack (r, TRUE);
  plan_waits (r);
  return g_steal_pointer (&r);
}
