/* SPDX-License-Identifier: Apache-2.0 */
/* What the interpreter tells a recording: commands, storages, tables. */
#include <string.h>

#include "models/rehearse/operands.h"

/* --- storages ----------------------------------------------------------------------------------------------------- */

static SpOperand
whole (const SpRecording *r, gint32 number)
{
  const SpStored *s = &g_array_index (r->storages, SpStored, number);

  return (SpOperand){ number, s->dtype, s->bytes / (gint64) sp_dtype_bytes (s->dtype), 0 };
}

static SpCommand
empty_command (void)
{
  SpCommand command = { .to = -1, .from = -1, .layer = SP_LAYER_EMBEDDING, .size = 1 };

  for (guint i = 0; i < SP_N_TABLES; i++)
    command.tables[i] = -1;
  for (guint i = 0; i < SP_MAX_IN; i++)
    command.in[i].storage = -1;
  for (guint i = 0; i < SP_MAX_OUT; i++)
    command.out[i].storage = -1;
  return command;
}

static void
add_zero (SpRecording *r, gint32 number)
{
  SpCommand command = empty_command ();

  command.out[0] = whole (r, number);
  command.op = (SpOp){ .kind = SP_OP_ZERO, .stream = SP_STREAM_COMPUTE };
  command.op.bytes = g_array_index (r->storages, SpStored, number).bytes;
  command.queue = SP_STREAM_COMPUTE;
  g_array_append_val (r->commands, command);
}

gint32
sp_recording_begin (SpRecording *r, const SpBuffer *buffer)
{
  gboolean always = buffer->life == SP_LIFE_ALWAYS;
  SpStored stored = { .bytes = buffer->elements * (gint64) sp_dtype_bytes (buffer->dtype),
                      .class = buffer->class,
                      .life = buffer->life,
                      .dtype = buffer->dtype,
                      .host = buffer->host,
                      .first = always ? -1 : (gint32) r->commands->len,
                      .last = always ? G_MAXINT32 : -1 };

  g_array_append_val (r->storages, stored);
  gint32 number = (gint32) r->storages->len - 1;
  if (buffer->class == SP_CLASS_GRADIENTS || (buffer->class == SP_CLASS_OPTIMIZER && !always))
    add_zero (r, number);
  return number;
}

void
sp_recording_end (SpRecording *r, gint32 number)
{
  SpStored *stored = &g_array_index (r->storages, SpStored, number);

  /* Not before the last command that was written down; when the walk is over, what lives ALWAYS is let go too. */
  if (stored->life != SP_LIFE_ALWAYS)
    stored->last = (gint32) r->commands->len - 1;
}

void
sp_record_start (SpRank *rank, const SpStorage *storage, gint32 position, guint flat, gint64 first)
{
  SpStart start = { storage->number, position, (gint32) flat, first };

  g_array_append_val (rank->recording->starts, start);
}

void
sp_record_gradients (SpRank *rank, gint32 position, guint flat, const SpStorage *gradients)
{
  SpGradients kept = { (gint32) rank->recording->commands->len, position, (gint32) flat,
                       whole (rank->recording, gradients->number) };

  g_array_append_val (rank->recording->gradients, kept);
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

static gint32
whole_numbers (SpCall *c, const gint64 *values, gint64 n)
{
  gint32 *data;

  if (values == NULL || c->failed)
    return -1;
  data = g_new (gint32, MAX (n, 1));
  for (gint64 i = 0; i < n; i++)
    data[i] = (gint32) values[i];
  return sp_recording_add_table (c->rank->recording, data, n);
}

static gint32
reals (SpCall *c, const double *values, gint64 n)
{
  float *data;

  if (values == NULL || c->failed)
    return -1;
  data = g_new (float, MAX (n, 1));
  for (gint64 i = 0; i < n; i++)
    data[i] = (float) values[i];
  return sp_recording_add_table (c->rank->recording, data, n);
}

static void
attention_tables (SpCall *c, SpCommand *command)
{
  const gint64 *own = sp_call_positions (c, M), *come = sp_call_key_positions (c, N, M), *first, *end;
  gboolean queries = c->op->kind == SP_OP_ATTENTION_BWD && FLAG (QUERIES);

  sp_call_documents (c, M, queries ? come : own, &first, &end);
  command->tables[SP_TABLE_POSITIONS] = whole_numbers (c, queries ? come : own, queries ? N : M);
  command->tables[SP_TABLE_KEY_POSITIONS] = whole_numbers (c, queries ? own : come, queries ? M : N);
  command->tables[SP_TABLE_FIRST] = whole_numbers (c, first, M * c->op->batch);
  command->tables[SP_TABLE_END] = whole_numbers (c, end, M * c->op->batch);
}

static void
rotation_tables (SpCall *c, SpCommand *command)
{
  command->tables[SP_TABLE_POSITIONS] = whole_numbers (c, sp_call_document_positions (c, M), M);
}

static void
embedding_tables (SpCall *c, SpCommand *command)
{
  command->vocabulary_first = sp_call_vocabulary_first (c, N);
  command->tables[SP_TABLE_IDS] = whole_numbers (c, sp_call_ids (c, M, 0), M);
}

static void
position_tables (SpCall *c, SpCommand *command)
{
  command->tables[SP_TABLE_IDS] = whole_numbers (c, sp_call_table_rows (c), M);
}

static void
loss_tables (SpCall *c, SpCommand *command)
{
  command->vocabulary_first = sp_call_vocabulary_first (c, N);
  command->tables[SP_TABLE_IDS] = whole_numbers (c, sp_call_ids (c, M, 1), M);
  command->tables[SP_TABLE_WEIGHTS] = reals (c, sp_call_weights (c, M), M);
  command->counts_loss = !sp_call_rows_are_shared (c, M) || sp_call_tensor_place (c) == 0;
}

static void
slope_tables (SpCall *c, SpCommand *command)
{
  if (!sp_call_is_recurrence (c))
    command->tables[SP_TABLE_SLOPES] = reals (c, sp_call_slopes (c), HEADS);
}

typedef void (*Tables) (SpCall *c, SpCommand *command);

static const Tables tables[SP_N_OPS] = {
  [SP_OP_SOFTMAX] = attention_tables,       [SP_OP_ATTENTION] = attention_tables,
  [SP_OP_ATTENTION_BWD] = attention_tables, [SP_OP_ROPE] = rotation_tables,
  [SP_OP_ROPE_BWD] = rotation_tables,       [SP_OP_LATENT] = rotation_tables,
  [SP_OP_LATENT_BWD] = rotation_tables,     [SP_OP_KEY_MAP] = rotation_tables,
  [SP_OP_KEY_MAP_BWD] = rotation_tables,    [SP_OP_EMBED] = embedding_tables,
  [SP_OP_EMBED_BWD] = embedding_tables,     [SP_OP_POSITION] = position_tables,
  [SP_OP_POSITION_BWD] = position_tables,   [SP_OP_LOSS_MAX] = loss_tables,
  [SP_OP_LOSS_SUM] = loss_tables,           [SP_OP_LOSS] = loss_tables,
  [SP_OP_LINEAR_LOCAL] = slope_tables,      [SP_OP_LINEAR_INTER] = slope_tables,
  [SP_OP_LINEAR_LOCAL_BWD] = slope_tables,  [SP_OP_LINEAR_INTER_BWD] = slope_tables,
  [SP_OP_STATE_UPDATE] = slope_tables,      [SP_OP_STATE_PREFIX] = slope_tables,
};

/* --- commands ----------------------------------------------------------------------------------------------------- */

static SpOperand
operand (SpCall *c, guint8 slot, gboolean is_output)
{
  SpPlace place;

  if (slot == 0 || c->failed || !sp_call_place (c, slot, is_output, &place))
    return (SpOperand){ .storage = -1 };
  SpPart part;
  if (!sp_call_part (c, slot, is_output, &part))
    return (SpOperand){ .storage = -1 };
  const SpBuffer *buffer = sp_call_buffer (c, slot);
  const SpStored *stored = &g_array_index (c->rank->recording->storages, SpStored, place.storage->number);
  SpOperand at = { place.storage->number, buffer->dtype, part.n,
                   place.offset * (gint64) sp_dtype_bytes (stored->dtype) +
                       part.first * (gint64) sp_dtype_bytes (buffer->dtype) };
  if (at.offset + at.elements * (gint64) sp_dtype_bytes (at.dtype) > stored->bytes)
    sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM, "slot %u reaches beyond what it is a view of", slot);
  return at;
}

static guint8
queue_of (const SpCall *c)
{
  gboolean back = (c->item->kind == SP_ITEM_SEND || c->item->kind == SP_ITEM_RECEIVE) && c->item->backward;

  if (!sp_op_is_communication (c->op->kind))
    return c->op->flags & SP_OP_ON_HOST ? SP_STREAM_HOST : SP_STREAM_COMPUTE;
  return back ? SP_QUEUE_PIPELINE_BACK : c->op->stream;
}

static gint64
bytes_of (const SpOperand *operand)
{
  return operand->storage < 0 ? 0 : operand->elements * (gint64) sp_dtype_bytes (operand->dtype);
}

/* As the copier of comm.c counts it. */
static void
count_payload (const SpCall *c, const SpCommand *command)
{
  gint64 bytes = 0;

  switch (c->op->kind) {
  case SP_OP_SEND:
  case SP_OP_SEND_RECEIVE:
    bytes = bytes_of (&command->in[0]) + bytes_of (&command->in[1]);
    break;
  case SP_OP_TO_HOST:
  case SP_OP_FROM_HOST:
    bytes = MIN (bytes_of (&command->in[0]), bytes_of (&command->out[0]));
    break;
  case SP_OP_ALL_GATHER:
    bytes = command->size > 1 ? bytes_of (&command->out[0]) : 0;
    break;
  case SP_OP_REDUCE_SCATTER:
  case SP_OP_ALL_REDUCE:
  case SP_OP_ALL_TO_ALL:
    bytes = command->size > 1 ? bytes_of (&command->in[0]) : 0;
    break;
  default:
    return;
  }
  c->rank->recording->payload_bytes[c->op->axis] += bytes;
}

static void
find_peers (SpCall *c, SpCommand *command)
{
  gint32 by = c->op->flags & SP_OP_REVERSE ? -1 : 1;

  if (c->op->kind == SP_OP_SEND || c->op->kind == SP_OP_SEND_RECEIVE)
    command->to = sp_call_neighbour (c, by);
  if (c->op->kind == SP_OP_RECEIVE || c->op->kind == SP_OP_SEND_RECEIVE)
    command->from = sp_call_neighbour (c, -by);
}

void
sp_record_call (SpCall *c)
{
  SpCommand command = empty_command ();

  command.op = *c->op;
  command.layer = c->position->layer;
  command.micro_batch = c->item->micro_batch;
  command.block = c->block->kind;
  command.phase = c->item->kind == SP_ITEM_LIST ? c->item->phase
                  : c->item->backward           ? SP_PHASE_BACKWARD
                                                : SP_PHASE_FORWARD;
  command.queue = queue_of (c);
  command.step = c->rank->step;
  command.place = sp_program_place (c->in->program, c->op->group, c->rank->number);
  command.size = MAX (c->in->program->groups[c->op->group].size, 1);
  if (sp_op_is_communication (c->op->kind))
    find_peers (c, &command);
  if (tables[c->op->kind] != NULL)
    tables[c->op->kind](c, &command);
  for (guint i = 0; i < SP_MAX_IN; i++)
    command.in[i] = operand (c, c->op->in[i], FALSE);
  for (guint i = 0; i < SP_MAX_OUT; i++)
    command.out[i] = operand (c, c->op->out[i], TRUE);
  if (c->failed)
    return;
  count_payload (c, &command);
  g_array_append_val (c->rank->recording->commands, command);
}
