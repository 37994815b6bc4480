/* SPDX-License-Identifier: Apache-2.0 */
#include <gio/gio.h>
#include <string.h>

#include "calibrate/gpu.h"
#include "calibrate/player-private.h"

#define STORED(player, i) (&g_array_index ((player)->recording->storages, SpStored, i))

/* --- making ------------------------------------------------------------------------------------------------------- */

/* Before anything is allocated. */
static gboolean
check_commands (const SpPlayer *player, GError **error)
{
  for (guint i = 0; i < player->recording->commands->len; i++) {
    const SpCommand *command = COMMAND (player, i);
    if (!sp_op_is_communication (command->op.kind) && sp_player_kernel (command) == NULL) {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED, "the op %s (layer %d, %s) cannot be executed yet%s",
                   sp_op_name (command->op.kind), command->layer, sp_phase_name (command->phase),
                   command->op.flags & SP_OP_ON_HOST ? " on the host" : "");
      return FALSE;
    }
    if (command->op.kind == SP_OP_ALL_GATHER && command->in[0].dtype != command->out[0].dtype) {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED, "a gather of %s as %s cannot be executed yet",
                   sp_dtype_name (command->in[0].dtype), sp_dtype_name (command->out[0].dtype));
      return FALSE;
    }
  }
  return TRUE;
}

/* Counts what is asked for, as the card keeps it. */
static gboolean
take (SpPlayer *player, void *at, gint64 bytes, GError **error)
{
  enum { PAGE = 2 << 20 };

  player->allocated_bytes += bytes >= PAGE ? (bytes + PAGE - 1) / PAGE * PAGE : 0;
  return CUDA (cudaMalloc (at, (gsize) MAX (bytes, 1)));
}

static gboolean
allocate (SpPlayer *player, GError **error)
{
  const SpRecording *r = player->recording;
  gint64 added[SP_N_QUEUES] = { 0 };

  for (guint i = 0; i < r->commands->len; i++) {
    const SpCommand *command = COMMAND (player, i);
    player->scratch_bytes = MAX (player->scratch_bytes, sp_player_kernel_scratch (command));
    added[command->queue] = MAX (added[command->queue], sp_player_added_bytes (command));
  }
  if (!take (player, &player->arena, r->arena_bytes, error)) {
    g_prefix_error (error, "an arena of %.2f GiB: ", (double) r->arena_bytes / (1 << 30));
    return FALSE;
  }
  for (guint q = 0; q < SP_N_QUEUES; q++)
    if (added[q] > 0 && !take (player, &player->added[q], added[q], error))
      return FALSE;
  for (guint i = 0; i < 2 && player->is_alone; i++)
    if (!take (player, &player->numbers[i], SP_QUICK_NUMBERS * (i == 0 ? 2 : 4), error))
      return FALSE;
  return (r->host_arena_bytes == 0 ||
          CUDA (cudaMallocHost ((void **) &player->host_arena, (gsize) r->host_arena_bytes))) &&
         take (player, &player->scratch, MAX (player->scratch_bytes, 256), error) &&
         take (player, &player->workspace, SP_GEMM_WORKSPACE_BYTES, error) &&
         take (player, &player->loss, sizeof *player->loss, error);
}

static gboolean
upload_tables (SpPlayer *player, GError **error)
{
  const GArray *tables = player->recording->tables;
  gint64 bytes = 0;

  player->table_at = g_new (gint64, MAX (tables->len, 1));
  for (guint i = 0; i < tables->len; i++) {
    player->table_at[i] = bytes;
    bytes += (g_array_index (tables, SpRowTable, i).n * 4 + 255) / 256 * 256;
  }
  if (!take (player, &player->tables, MAX (bytes, 256), error))
    return FALSE;
  for (guint i = 0; i < tables->len; i++) {
    const SpRowTable *t = &g_array_index (tables, SpRowTable, i);
    if (!CUDA (cudaMemcpy (player->tables + player->table_at[i], t->data, (gsize) t->n * 4, cudaMemcpyHostToDevice)))
      return FALSE;
  }
  return TRUE;
}

static gboolean
make_streams (SpPlayer *player, GError **error)
{
  guint n = player->recording->commands->len;
  int least = 0, most = 0;

  /* NCCL's blocks go before those of a kernel that fills the card. */
  if (!CUDA (cudaDeviceGetStreamPriorityRange (&least, &most)))
    return FALSE;
  for (guint q = 0; q < SP_N_QUEUES; q++)
    if (!CUDA (cudaStreamCreateWithPriority (&player->streams[q], cudaStreamNonBlocking,
                                             q == SP_STREAM_COMPUTE ? least : most)) ||
        !CUDA (cudaEventCreate (&player->ends[q])))
      return FALSE;
  player->over = g_new0 (cudaEvent_t, MAX (n, 1));
  for (guint i = 0; i < n; i++)
    if (COMMAND (player, i)->is_awaited && !CUDA (cudaEventCreateWithFlags (&player->over[i], cudaEventDisableTiming)))
      return FALSE;
  return CUDA (cudaEventCreate (&player->begin)) && CUDA (cudaEventCreate (&player->last));
}

static gboolean
multiplies (const SpRecording *recording)
{
  for (guint i = 0; i < recording->commands->len; i++)
    if (g_array_index (recording->commands, SpCommand, i).op.kind == SP_OP_GEMM)
      return TRUE;
  return FALSE;
}

SpPlayer *
sp_player_new (SpRank *rank, const SpProgram *program, const SpRecording *recording, gboolean alone,
               SpAttention attention, GError **error)
{
  g_autoptr (SpPlayer) player = g_new0 (SpPlayer, 1);

  player->rank = rank;
  player->program = program;
  player->recording = recording;
  player->is_alone = alone;
  player->gradients = g_new0 (double *, MAX (recording->gradients->len, 1));
  if (!check_commands (player, error) || !CUDA (cudaSetDevice (rank->local_rank)) || !CUDA (cudaFree (NULL)) ||
      !sp_player_plan_attention (player, attention, error))
    return NULL;
  player->context_bytes = sp_gpu_used_bytes ();
  if (!alone && !sp_player_connect (player, error))
    return NULL;
  if (multiplies (recording) && (player->gemms = sp_gemms_new (error)) == NULL)
    return NULL;
  if (!allocate (player, error) || !upload_tables (player, error) || !make_streams (player, error) ||
      !sp_player_choose_attention (player, error))
    return NULL;
  return g_steal_pointer (&player);
}

static void
destroy_events (cudaEvent_t *events, guint n)
{
  for (guint i = 0; events != NULL && i < n; i++)
    if (events[i] != NULL)
      cudaEventDestroy (events[i]);
  g_free (events);
}

void
sp_player_free (SpPlayer *player)
{
  guint n = player->recording->commands->len;

  sp_player_disconnect (player);
  destroy_events (player->over, n);
  destroy_events (player->starts, n);
  destroy_events (player->stops, n);
  for (guint q = 0; q < SP_N_QUEUES; q++) {
    if (player->streams[q] != NULL)
      cudaStreamDestroy (player->streams[q]);
    if (player->ends[q] != NULL)
      cudaEventDestroy (player->ends[q]);
    cudaFree (player->added[q]);
  }
  if (player->begin != NULL)
    cudaEventDestroy (player->begin);
  if (player->last != NULL)
    cudaEventDestroy (player->last);
  g_clear_pointer (&player->gemms, sp_gemms_free);
  g_clear_pointer (&player->cudnn, sp_cudnn_free);
  g_free (player->plans);
  cudaFree (player->arena);
  cudaFreeHost (player->host_arena);
  cudaFree (player->tables);
  cudaFree (player->scratch);
  cudaFree (player->workspace);
  cudaFree (player->loss);
  cudaFree (player->numbers[0]);
  cudaFree (player->numbers[1]);
  for (guint i = 0; i < player->recording->gradients->len; i++)
    g_free (player->gradients[i]);
  g_free (player->gradients);
  g_free (player->table_at);
  g_free (player->start_ms);
  g_free (player->stop_ms);
  g_free (player->waits);
  g_free (player);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static guint16
to_bf16 (double value)
{
  float f = (float) value;
  guint32 bits;

  memcpy (&bits, &f, sizeof bits);
  return (guint16) ((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double
from_bf16 (guint16 half)
{
  guint32 bits = (guint32) half << 16;
  float f;

  memcpy (&f, &bits, sizeof f);
  return f;
}

static gboolean
clear_always (SpPlayer *player, GError **error)
{
  for (guint i = 0; i < player->recording->storages->len; i++) {
    const SpStored *s = STORED (player, i);
    SpOperand all = { (gint32) i, s->dtype, s->bytes / (gint64) sp_dtype_bytes (s->dtype), 0 };
    if (s->life != SP_LIFE_ALWAYS)
      continue;
    if (s->host)
      memset (sp_player_data (player, &all), 0, (gsize) s->bytes);
    else if (!CUDA (cudaMemset (sp_player_data (player, &all), 0, (gsize) s->bytes)))
      return FALSE;
  }
  return TRUE;
}

static gboolean
put (SpPlayer *player, gint32 storage, const double *values, GError **error)
{
  const SpStored *s = STORED (player, storage);
  gint64 n = s->bytes / (gint64) sp_dtype_bytes (s->dtype);
  SpOperand all = { storage, s->dtype, n, 0 };
  g_autofree guint8 *converted = g_malloc ((gsize) MAX (s->bytes, 1));

  for (gint64 i = 0; i < n; i++)
    if (s->dtype == SP_DTYPE_BF16)
      ((guint16 *) (gpointer) converted)[i] = to_bf16 (values[i]);
    else
      ((float *) (gpointer) converted)[i] = (float) values[i];
  return CUDA (cudaMemcpy (sp_player_data (player, &all), converted, (gsize) s->bytes, cudaMemcpyDefault));
}

gboolean
sp_player_start (SpPlayer *player, guint64 seed, GError **error)
{
  if (!clear_always (player, error))
    return FALSE;
  for (guint i = 0; i < player->recording->starts->len; i++) {
    const SpStart *start = &g_array_index (player->recording->starts, SpStart, i);
    g_autofree double *values =
        sp_state_draw (player->program, player->recording->rank, seed, start->position, start->flat, error);
    if (values == NULL || !put (player, start->storage, values + start->first, error))
      return FALSE;
  }
  return TRUE;
}

/* A block again and again: whole blocks, so that what follows a number is the same everywhere. */
static gboolean
fill_quick (char *at, gint64 bytes, const guint8 *block, gint64 block_bytes, GError **error)
{
  gint64 done = MIN (block_bytes, bytes);

  if (!CUDA (cudaMemcpy (at, block, (gsize) done, cudaMemcpyDefault)))
    return FALSE;
  for (; done < bytes; done = MIN (2 * done, bytes))
    if (!CUDA (cudaMemcpy (at + done, at, (gsize) MIN (done, bytes - done), cudaMemcpyDefault)))
      return FALSE;
  return CUDA (cudaDeviceSynchronize ()); /* a copy within the card returns before it is over */
}

static void
draw_quick (guint16 *half, float *single)
{
  g_autoptr (GRand) random = g_rand_new_with_seed (1);

  for (guint i = 0; i < SP_QUICK_NUMBERS; i++) {
    double value = g_rand_double_range (random, -0.03, 0.03);
    half[i] = to_bf16 (value);
    single[i] = (float) value;
  }
}

gboolean
sp_player_fill_inputs (SpPlayer *player, const SpCommand *command, GError **error)
{
  g_autofree guint16 *half = g_new (guint16, SP_QUICK_NUMBERS);
  g_autofree float *single = g_new (float, SP_QUICK_NUMBERS);

  draw_quick (half, single);
  for (guint i = 0; i < SP_MAX_IN; i++) {
    const SpOperand *in = &command->in[i];
    gboolean is_half = in->dtype == SP_DTYPE_BF16;
    if (in->storage >= 0 &&
        !fill_quick (sp_player_data (player, in), in->elements * (gint64) sp_dtype_bytes (in->dtype),
                     is_half ? (guint8 *) half : (guint8 *) single,
                     SP_QUICK_NUMBERS * (gint64) (is_half ? sizeof *half : sizeof *single), error))
      return FALSE;
  }
  return TRUE;
}

gboolean
sp_player_start_quick (SpPlayer *player, GError **error)
{
  g_autofree guint16 *half = g_new (guint16, SP_QUICK_NUMBERS);
  g_autofree float *single = g_new (float, SP_QUICK_NUMBERS);

  draw_quick (half, single);
  /* Whatever is read before it is written, as all that a benchmark's kernel reads. */
  if (player->is_alone &&
      (!fill_quick (player->arena, player->recording->arena_bytes, (guint8 *) half, SP_QUICK_NUMBERS * sizeof *half,
                    error) ||
       !CUDA (cudaMemcpy (player->numbers[0], half, SP_QUICK_NUMBERS * sizeof *half, cudaMemcpyDefault)) ||
       !CUDA (cudaMemcpy (player->numbers[1], single, SP_QUICK_NUMBERS * sizeof *single, cudaMemcpyDefault))))
    return FALSE;
  if (!clear_always (player, error))
    return FALSE;
  for (guint i = 0; i < player->recording->starts->len; i++) {
    const SpStart *start = &g_array_index (player->recording->starts, SpStart, i);
    const SpStored *s = STORED (player, start->storage);
    SpOperand all = { start->storage, s->dtype, 0, 0 };
    gboolean is_half = s->dtype == SP_DTYPE_BF16;
    if (!fill_quick (sp_player_data (player, &all), s->bytes, is_half ? (guint8 *) half : (guint8 *) single,
                     SP_QUICK_NUMBERS * (gint64) (is_half ? sizeof *half : sizeof *single), error))
      return FALSE;
  }
  return TRUE;
}

double *
sp_player_read (SpPlayer *player, const SpOperand *operand, GError **error)
{
  gsize bytes = (gsize) operand->elements * sp_dtype_bytes (operand->dtype);
  g_autofree guint8 *raw = g_malloc (MAX (bytes, 1));
  g_autofree double *values = g_new (double, MAX (operand->elements, 1));

  if (!CUDA (cudaMemcpy (raw, sp_player_data (player, operand), bytes, cudaMemcpyDefault)))
    return NULL;
  for (gint64 i = 0; i < operand->elements; i++)
    values[i] = operand->dtype == SP_DTYPE_BF16 ? from_bf16 (((const guint16 *) (gpointer) raw)[i])
                                                : (double) ((const float *) (gpointer) raw)[i];
  return g_steal_pointer (&values);
}

/* --- results ------------------------------------------------------------------------------------------------------ */

void
sp_player_command_times (const SpPlayer *player, guint command, double *ret_start_s, double *ret_end_s)
{
  *ret_start_s = player->start_ms[command] * 1e-3;
  *ret_end_s = MAX (player->stop_ms[command] * 1e-3 - player->events_s, *ret_start_s);
}

const SpPlayerWait *
sp_player_waits (const SpPlayer *player)
{
  return player->waits;
}

void
sp_player_overheads (const SpPlayer *player, double *ret_events_s, double *ret_drain_s)
{
  *ret_events_s = player->events_s;
  *ret_drain_s = player->drain_s;
}

double
sp_player_loss (const SpPlayer *player)
{
  return player->loss_value;
}

double
sp_player_issue_s (const SpPlayer *player)
{
  return player->issue_s;
}

void
sp_player_payload (const SpPlayer *player, gint64 ret_bytes[SP_N_AXES])
{
  memcpy (ret_bytes, player->payload_bytes, sizeof player->payload_bytes);
}

void
sp_player_memory (const SpPlayer *player, gint64 *ret_used_bytes, gint64 *ret_arena_bytes, gint64 *ret_context_bytes,
                  gint64 *ret_communicators_bytes, guint *ret_communicators)
{
  *ret_used_bytes = sp_gpu_used_bytes ();
  *ret_arena_bytes = player->recording->arena_bytes;
  *ret_context_bytes = player->context_bytes;
  *ret_communicators = sp_player_communicators (player);
  *ret_communicators_bytes =
      *ret_communicators > 0 ? *ret_used_bytes - player->context_bytes - player->allocated_bytes : 0;
}

gint64
sp_player_scratch_bytes (const SpPlayer *player)
{
  return player->scratch_bytes;
}

gint64
sp_player_other_bytes (const SpPlayer *player)
{
  return sp_gpu_used_bytes () - player->allocated_bytes;
}

void
sp_player_keep_gradients (SpPlayer *player, gboolean keep)
{
  player->keeps = keep;
}

const double *
sp_player_gradients (const SpPlayer *player, guint index)
{
  return player->gradients[index];
}
