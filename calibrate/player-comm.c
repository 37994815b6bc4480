/* SPDX-License-Identifier: Apache-2.0 */
/* The player's communication: a communicator for each group that moves anything, and NCCL's calls, counted. */
#include <gio/gio.h>
#include <string.h>

#include "calibrate/player-private.h"

static gint64
bytes_of (const SpOperand *operand)
{
  return operand->storage < 0 ? 0 : operand->elements * (gint64) sp_dtype_bytes (operand->dtype);
}

gint64
sp_player_added_bytes (const SpCommand *command)
{
  gboolean adds = command->op.kind == SP_OP_REDUCE_SCATTER && command->op.flags & SP_OP_ACCUMULATE;

  return adds ? bytes_of (&command->out[0]) : 0;
}

static gboolean
moves (const SpCommand *command)
{
  return sp_op_is_communication (command->op.kind) && !sp_op_is_host_copy (command->op.kind) && command->size > 1;
}

static gboolean
copy_host (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error)
{
  const SpOperand *from = &command->in[0], *to = &command->out[0];

  if (from->dtype != to->dtype || command->op.flags & SP_OP_ACCUMULATE) {
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED,
                 "a copy to the host that adds or changes the type cannot be executed yet");
    return FALSE;
  }
  player->payload_bytes[command->op.axis] += bytes_of (from);
  return CUDA (cudaMemcpyAsync (sp_player_data (player, to), sp_player_data (player, from), (gsize) bytes_of (from),
                                cudaMemcpyDefault, stream));
}

#if HAVE_NCCL

/* --- communicators ------------------------------------------------------------------------------------------------ */

static void
find_used (const SpPlayer *player, guint8 used[SP_N_GROUPS][2])
{
  for (guint i = 0; i < player->recording->commands->len; i++) {
    const SpCommand *command = &g_array_index (player->recording->commands, SpCommand, i);
    if (moves (command))
      used[command->op.group][command->queue == SP_QUEUE_PIPELINE_BACK] = 1;
  }
}

static gboolean
make_comm (SpPlayer *player, SpGroupId group, guint back, GError **error)
{
  const SpProgram *program = player->program;
  gint32 number = player->rank->rank, size = program->groups[group].size;
  gint32 place = sp_program_place (program, group, number);
  g_autofree ncclUniqueId *all = g_new0 (ncclUniqueId, sp_ranks_size (player->rank));
  ncclUniqueId mine = { { 0 } };
  ncclComm_t comm = NULL;

  if ((place == 0 && !NCCL (ncclGetUniqueId (&mine))) ||
      !sp_ranks_gather (player->rank, &mine, sizeof mine, all, error) ||
      !NCCL (ncclCommInitRank (&comm, size, all[sp_program_member (program, group, number, 0)], place)))
    return FALSE;
  player->comms[group][back] = comm;
  return TRUE;
}

gboolean
sp_player_connect (SpPlayer *player, GError **error)
{
  enum { BYTES = SP_N_GROUPS * 2 };
  guint8 used[SP_N_GROUPS][2] = { 0 };
  int size = sp_ranks_size (player->rank);
  g_autofree guint8 *all = g_malloc0 ((gsize) size * BYTES);

  find_used (player, used);
  if (!sp_ranks_gather (player->rank, used, BYTES, all, error))
    return FALSE;
  for (guint group = 0; group < SP_N_GROUPS; group++)
    for (guint back = 0; back < 2; back++) {
      gboolean wanted = FALSE; /* by any rank: all make theirs in the same order */
      for (int i = 0; i < size; i++)
        wanted |= all[i * BYTES + group * 2 + back];
      if (wanted && !make_comm (player, (SpGroupId) group, back, error))
        return FALSE;
    }
  return TRUE;
}

void
sp_player_disconnect (SpPlayer *player)
{
  for (guint i = 0; i < SP_N_GROUPS * 2; i++)
    if (player->comms[i / 2][i % 2] != NULL)
      ncclCommAbort (player->comms[i / 2][i % 2]);
}

guint
sp_player_communicators (const SpPlayer *player)
{
  guint n = 0;

  for (guint i = 0; i < SP_N_GROUPS * 2; i++)
    n += player->comms[i / 2][i % 2] != NULL;
  return n;
}

gboolean
sp_player_fine (gpointer data, GError **error)
{
  SpPlayer *player = data;

  for (guint i = 0; i < SP_N_GROUPS * 2; i++) {
    ncclComm_t comm = player->comms[i / 2][i % 2];
    ncclResult_t async = ncclSuccess;
    if (comm != NULL && (!NCCL (ncclCommGetAsyncError (comm, &async)) || !NCCL (async)))
      return FALSE;
  }
  return sp_ranks_check (player->rank, FALSE, error);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static ncclDataType_t
type_of (const SpOperand *operand)
{
  static const ncclDataType_t types[SP_N_DTYPES] = { ncclBfloat16, ncclFloat16, ncclFloat32, ncclUint8, ncclInt32 };

  return types[operand->dtype];
}

typedef struct {
  SpPlayer *player;
  const SpCommand *command;
  ncclComm_t comm;
  cudaStream_t stream;
} Call;

static void
count (const Call *c, gint64 bytes)
{
  c->player->payload_bytes[c->command->op.axis] += bytes;
}

static gint32
peer_of (const Call *c, gint32 rank)
{
  return sp_program_place (c->player->program, c->command->op.group, rank);
}

static gboolean
exchange (const Call *c, GError **error)
{
  const SpCommand *command = c->command;
  ncclComm_t comm = c->comm;
  gboolean good = NCCL (ncclGroupStart ());

  for (guint i = 0; i < 2; i++) {
    const SpOperand *in = &command->in[i], *out = &command->out[i];
    if (good && command->to >= 0 && in->storage >= 0) {
      good = NCCL (ncclSend (sp_player_data (c->player, in), (gsize) in->elements, type_of (in),
                             peer_of (c, command->to), comm, c->stream));
      count (c, bytes_of (in));
    }
    if (good && command->from >= 0 && out->storage >= 0)
      good = NCCL (ncclRecv (sp_player_data (c->player, out), (gsize) out->elements, type_of (out),
                             peer_of (c, command->from), comm, c->stream));
  }
  return NCCL (ncclGroupEnd ()) && good;
}

static gboolean
all_to_all (const Call *c, GError **error)
{
  const SpOperand *in = &c->command->in[0], *out = &c->command->out[0];
  gint64 size = c->command->size, part = bytes_of (in) / size;
  ncclComm_t comm = c->comm;
  gboolean good = NCCL (ncclGroupStart ());

  for (gint64 i = 0; good && i < size; i++)
    good = NCCL (ncclSend ((char *) sp_player_data (c->player, in) + i * part, (gsize) part, ncclInt8, (int) i, comm,
                           c->stream)) &&
           NCCL (ncclRecv ((char *) sp_player_data (c->player, out) + i * part, (gsize) part, ncclInt8, (int) i, comm,
                           c->stream));
  count (c, bytes_of (in));
  return NCCL (ncclGroupEnd ()) && good;
}

static gboolean
reduce_scatter (const Call *c, GError **error)
{
  const SpOperand *in = &c->command->in[0], *out = &c->command->out[0];
  gboolean adds = (c->command->op.flags & SP_OP_ACCUMULATE) != 0;
  SpDevTensor to = sp_player_tensor (c->player, out), part = to;
  ncclComm_t comm = c->comm;

  if (adds)
    part.data = c->player->added[c->command->queue];
  count (c, bytes_of (in));
  return NCCL (ncclReduceScatter (sp_player_data (c->player, in), part.data, (gsize) out->elements, type_of (in),
                                  ncclSum, comm, c->stream)) &&
         (!adds || CUDA (sp_dev_accumulate (out->elements, part, to, c->stream)));
}

static gboolean
collect (const Call *c, GError **error)
{
  const SpOperand *in = &c->command->in[0], *out = &c->command->out[0];
  const void *from = sp_player_data (c->player, in);
  void *to = sp_player_data (c->player, out);
  ncclComm_t comm = c->comm;

  if (c->command->op.kind == SP_OP_ALL_GATHER) {
    count (c, bytes_of (out));
    return NCCL (ncclAllGather (from, to, (gsize) in->elements, type_of (in), comm, c->stream));
  }
  count (c, bytes_of (in));
  return NCCL (ncclAllReduce (from, to, (gsize) in->elements, type_of (in),
                              c->command->op.flags & SP_OP_MAX ? ncclMax : ncclSum, comm, c->stream));
}

static gboolean
issue (const Call *c, GError **error)
{
  switch (c->command->op.kind) {
  case SP_OP_ALL_GATHER:
  case SP_OP_ALL_REDUCE:
    return collect (c, error);
  case SP_OP_REDUCE_SCATTER:
    return reduce_scatter (c, error);
  case SP_OP_ALL_TO_ALL:
    return all_to_all (c, error);
  default:
    return exchange (c, error);
  }
}

#else

gboolean
sp_player_connect (SpPlayer *player, GError **error)
{
  for (guint i = 0; i < player->recording->commands->len; i++)
    if (moves (&g_array_index (player->recording->commands, SpCommand, i))) {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED,
                   "the program communicates, and this was built without NCCL");
      return FALSE;
    }
  return TRUE;
}

void
sp_player_disconnect (SpPlayer *player)
{
}

guint
sp_player_communicators (const SpPlayer *player)
{
  return 0;
}

gboolean
sp_player_fine (gpointer data, GError **error)
{
  return sp_ranks_check (((SpPlayer *) data)->rank, FALSE, error);
}

#endif

/* In a group of one a collective is a copy, or nothing. */
static gboolean
copy_alone (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error)
{
  SpDevTensor from = sp_player_tensor (player, &command->in[0]), to = sp_player_tensor (player, &command->out[0]);

  if (from.data == NULL || to.data == NULL)
    return TRUE;
  if (command->op.kind == SP_OP_REDUCE_SCATTER && command->op.flags & SP_OP_ACCUMULATE)
    return CUDA (sp_dev_accumulate (command->out[0].elements, from, to, stream));
  return from.data == to.data || CUDA (sp_dev_copy (command->out[0].elements, from, to, stream));
}

/* --- alone -------------------------------------------------------------------------------------------------------- */

static gboolean
copy_bytes (char *to, const char *from, gint64 bytes, cudaStream_t stream, GError **error)
{
  return to == from || bytes == 0 || CUDA (cudaMemcpyAsync (to, from, (gsize) bytes, cudaMemcpyDeviceToDevice, stream));
}

/* A block, and then all that is there again. */
static gboolean
fill_random (SpPlayer *player, const SpOperand *out, cudaStream_t stream, GError **error)
{
  char *to = sp_player_data (player, out);
  gboolean half = out->dtype == SP_DTYPE_BF16;
  gint64 bytes = bytes_of (out), done = MIN (bytes, SP_QUICK_NUMBERS * (half ? 2 : 4));

  if (!copy_bytes (to, player->numbers[half ? 0 : 1], done, stream, error))
    return FALSE;
  for (gint64 more; done < bytes; done += more) {
    more = MIN (done, bytes - done);
    if (!copy_bytes (to + done, to, more, stream, error))
      return FALSE;
  }
  return TRUE;
}

/* What this rank would send, if it is as much; a pipeline's first message has no such thing. */
static gboolean
receive_alone (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error)
{
  for (guint i = 0; i < 2; i++) {
    const SpOperand *in = &command->in[i], *out = &command->out[i];
    if (command->from < 0 || out->storage < 0)
      continue;
    gboolean same = in->storage >= 0 && in->dtype == out->dtype && in->elements == out->elements;
    if (!(same ? copy_bytes (sp_player_data (player, out), sp_player_data (player, in), bytes_of (out), stream, error)
               : fill_random (player, out, stream, error)))
      return FALSE;
  }
  return TRUE;
}

gboolean
sp_player_stand_in (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error)
{
  const SpOperand *in = &command->in[0], *out = &command->out[0];
  char *from = sp_player_data (player, in), *to = sp_player_data (player, out);
  gint64 part = bytes_of (in);

  if (sp_op_is_host_copy (command->op.kind) || command->size <= 1)
    return sp_player_communicate (player, command, stream, error);
  switch (command->op.kind) {
  case SP_OP_ALL_GATHER:
    for (gint64 i = 0; i < command->size; i++)
      if (!copy_bytes (to + i * part, from, part, stream, error))
        return FALSE;
    return TRUE;
  case SP_OP_REDUCE_SCATTER: {
    SpDevTensor whole = sp_player_tensor (player, in), sum = sp_player_tensor (player, out);
    return command->op.flags & SP_OP_ACCUMULATE ? CUDA (sp_dev_accumulate (out->elements, whole, sum, stream))
                                                : CUDA (sp_dev_copy (out->elements, whole, sum, stream));
  }
  case SP_OP_ALL_REDUCE:
  case SP_OP_ALL_TO_ALL:
    return copy_bytes (to, from, part, stream, error);
  default:
    return receive_alone (player, command, stream, error);
  }
}

/* --- a command ---------------------------------------------------------------------------------------------------- */

gboolean
sp_player_communicate (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error)
{
  if (sp_op_is_host_copy (command->op.kind))
    return copy_host (player, command, stream, error);
  if (command->size <= 1)
    return copy_alone (player, command, stream, error);
#if HAVE_NCCL
  Call call = { player, command, player->comms[command->op.group][command->queue == SP_QUEUE_PIPELINE_BACK], stream };
  return issue (&call, error);
#else
  return FALSE; /* refused when the player was made */
#endif
}
