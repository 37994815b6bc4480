/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/kernels-beside.h"

#include <stdio.h>
#include <string.h>

#include "calibrate/gpu-private.h"
#include "calibrate/kernels.h"
#include "calibrate/player-private.h"
#include "calibrate/rows.h"

/* Of layers' size: their latency is a twentieth of what they take. */
#define TRANSFER_BYTES (64 << 20)
#define SEED 7 /* of token ids */

/* --- passes over kernels ------------------------------------------------------------------------------------------ */

enum { MOST_KERNELS = 256 };

typedef struct {
  SpPlayer *player;
  guint numbers[MOST_KERNELS], n; /* of commands */
  double events_s;                /* that an event between two kernels takes */
} Chunk;

/* What runs beside: `count` transfers. */
typedef struct {
  SpGpu *gpu;
  SpMeasuredRow transfer;
  double alone_s; /* of one */
  int count;
} Cover;

static gboolean
take_kernels (Chunk *chunk, guint *next)
{
  const GArray *commands = chunk->player->recording->commands;

  for (chunk->n = 0; *next < commands->len && chunk->n < MOST_KERNELS; (*next)++) {
    const SpCommand *command = COMMAND (chunk->player, *next);
    if (command->queue == SP_STREAM_COMPUTE && !sp_op_is_communication (command->op.kind))
      chunk->numbers[chunk->n++] = *next;
  }
  return chunk->n > 0;
}

static gboolean
start_cover (const Cover *cover, cudaEvent_t begin, GError **error)
{
  cudaStream_t stream = cover->gpu->nccl_streams[0];

  if (!CUDA (cudaStreamWaitEvent (stream, begin, 0)))
    return FALSE;
  for (int i = 0; i < cover->count; i++)
    if (!sp_gpu_issue_nccl (cover->gpu, &cover->transfer, stream, error))
      return FALSE;
  return CUDA (cudaEventRecord (cover->gpu->events[1], stream));
}

/* Before them work of about 10 us each, as long as the host needs to issue all of it. */
static gboolean
play (const Chunk *chunk, gboolean timed, const Cover *cover, double *ret_s, GError **error)
{
  SpPlayer *player = chunk->player;
  cudaStream_t stream = player->streams[SP_STREAM_COMPUTE];
  guint lead = 64 + 3 * (chunk->n + (cover != NULL ? (guint) cover->count : 0)) / 2;
  float ms = 0;

  for (guint i = 0; i < lead; i++)
    if (!CUDA (cudaMemsetAsync (player->workspace, 0, SP_GEMM_WORKSPACE_BYTES, stream)))
      return FALSE;
  if (!CUDA (cudaEventRecord (player->begin, stream)) || (cover != NULL && !start_cover (cover, player->begin, error)))
    return FALSE;
  for (guint i = 0; i < chunk->n; i++) {
    const SpCommand *command = COMMAND (player, chunk->numbers[i]);
    if ((timed && !CUDA (cudaEventRecord (player->starts[chunk->numbers[i]], stream))) ||
        !sp_player_kernel (command) (player, command, stream, error))
      return FALSE;
  }
  if (!CUDA (cudaEventRecord (player->ends[0], stream)) ||
      !sp_wait_event (player->ends[0], sp_player_fine, player, error) || !sp_ranks_check (player->rank, TRUE, error) ||
      !CUDA (cudaEventElapsedTime (&ms, player->begin, player->ends[0])))
    return FALSE;
  *ret_s = ms * 1e-3;
  return TRUE;
}

/* Of the last pass, which was timed: of each kernel with what lies between it and the next. */
static gboolean
read_seconds (const Chunk *chunk, double *seconds, GError **error)
{
  SpPlayer *player = chunk->player;

  for (guint i = 0; i < chunk->n; i++) {
    guint number = chunk->numbers[i];
    float ms = 0;
    if (!CUDA (cudaEventElapsedTime (&ms, player->starts[number],
                                     i + 1 < chunk->n ? player->starts[chunk->numbers[i + 1]] : player->ends[0])))
      return FALSE;
    seconds[number] = MAX (ms * 1e-3 - chunk->events_s, ms * 1e-4); /* 0 is no kernel */
  }
  return TRUE;
}

/* After a warm-up of warm_s. */
static gboolean
time_alone (Chunk *chunk, double warm_s, double *seconds, GError **error)
{
  double plain_s[3], timed_s, passed_s;

  for (double all_s = 0; all_s < warm_s; all_s += passed_s)
    if (!play (chunk, FALSE, NULL, &passed_s, error))
      return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (plain_s); i++)
    if (!play (chunk, FALSE, NULL, &plain_s[i], error))
      return FALSE;
  if (!play (chunk, TRUE, NULL, &timed_s, error))
    return FALSE;
  double least_s = MIN (MIN (plain_s[0], plain_s[1]), plain_s[2]);
  double most_s = MAX (MAX (plain_s[0], plain_s[1]), plain_s[2]);
  double middle_s = plain_s[0] + plain_s[1] + plain_s[2] - least_s - most_s;
  chunk->events_s = MAX (timed_s - middle_s, 0) / chunk->n;
  return read_seconds (chunk, seconds, error);
}

/* The largest of all ranks'. */
static gboolean
agree (SpGpu *gpu, double *value, GError **error)
{
  int size = sp_ranks_size (gpu->rank);
  g_autofree double *all = g_new (double, size);

  if (!sp_ranks_gather (gpu->rank, value, sizeof *value, all, error))
    return FALSE;
  for (int i = 0; i < size; i++)
    *value = MAX (*value, all[i]);
  return TRUE;
}

/* More transfers, on all ranks as many, until they last longer than the kernels, which take alone_s without. */
static gboolean
time_covered (Chunk *chunk, Cover *cover, double alone_s, double *seconds, gboolean *ret_partial, GError **error)
{
  enum { MOST = 20000, TURNS = 5 };
  double count = 1.6 * alone_s / cover->alone_s + 4, missed = 1, passed_s;

  for (guint turn = 0; turn < TURNS && missed > 0; turn++) {
    float ms = 0;
    if (!agree (cover->gpu, &count, error))
      return FALSE;
    cover->count = (int) MIN (count, MOST);
    if (!play (chunk, TRUE, cover, &passed_s, error) ||
        !sp_wait_event (cover->gpu->events[1], sp_gpu_fine, cover->gpu, error) ||
        !CUDA (cudaEventElapsedTime (&ms, chunk->player->ends[0], cover->gpu->events[1])))
      return FALSE;
    missed = ms < 0;
    if (!agree (cover->gpu, &missed, error))
      return FALSE;
    count = 2 * cover->count;
  }
  *ret_partial = *ret_partial || missed > 0;
  return read_seconds (chunk, seconds, error);
}

/* Of each command; 0 of what is no kernel. */
static gboolean
time_kernels (SpPlayer *player, Cover *cover, double *alone_s, double *beside_s, gboolean *ret_partial, GError **error)
{
  const double stay_warm_s = 0.1;
  gsize bytes = player->recording->commands->len * sizeof (double);
  Chunk chunk = { .player = player };
  guint next = 0;

  memset (alone_s, 0, bytes);
  memset (beside_s, 0, bytes);
  *ret_partial = FALSE;
  while (take_kernels (&chunk, &next)) {
    double sum_s = 0;
    if (!time_alone (&chunk, player->is_warm ? stay_warm_s : SP_PLAYER_WARM_S, alone_s, error))
      return FALSE;
    player->is_warm = TRUE;
    for (guint i = 0; i < chunk.n; i++)
      sum_s += alone_s[chunk.numbers[i]];
    if (!time_covered (&chunk, cover, sum_s, beside_s, ret_partial, error))
      return FALSE;
  }
  return TRUE;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

typedef struct {
  const SpBesideSweep *sweep;
  SpRank *rank;
  SpRows *rows; /* of rank 0 */
  SpGpu *gpu;
  GStringChunk *words;
} Loop;

static gboolean
add_row (SpRows *rows, const SpMeasuredRow *row, GError **error)
{
  return sp_rows_has (rows, row) || sp_rows_add (rows, row, error);
}

/* Of kernels of the same form and sizes the mean. */
static gboolean
add_rows (Loop *loop, const SpPlayer *player, const SpMeasuredRow *keys, const double *alone_s, const double *beside_s,
          SpMeasuredOp transfer, gboolean partial, GError **error)
{
  guint n = player->recording->commands->len;
  g_autofree gboolean *done = g_new0 (gboolean, n + 1);

  for (guint i = 0; i < n; i++) {
    SpMeasuredRow alone = keys[i];
    double sums[2] = { 0 };
    guint alike = 0;
    for (guint j = i; alone_s[i] > 0 && !done[i] && j < n; j++) {
      if (alone_s[j] <= 0 || !sp_kernel_same_row (&keys[i], &keys[j]))
        continue;
      sums[0] += alone_s[j], sums[1] += beside_s[j];
      done[j] = j > i;
      alike++;
    }
    if (alike == 0)
      continue;
    SpMeasuredRow beside = alone;
    alone.time_s = sums[0] / alike, beside.time_s = sums[1] / alike;
    beside.beside = transfer, beside.ranks = sp_ranks_size (loop->rank);
    beside.mark = partial ? SP_MARK_PARTIAL : SP_MARK_NONE;
    if (!add_row (loop->rows, &alone, error) || !add_row (loop->rows, &beside, error))
      return FALSE;
  }
  return TRUE;
}

/* All kernels alone, and then beside the transfer. */
static gboolean
time_beside (Loop *loop, SpPlayer *player, SpMeasuredOp transfer, SpMeasuredRow *keys, int repeat, GError **error)
{
  guint n = player->recording->commands->len;
  g_autofree double *alone_s = g_new (double, n + 1), *beside_s = g_new (double, n + 1);
  Cover cover = { .gpu = loop->gpu, .transfer = sp_measured_row (transfer) };
  gboolean partial;

  cover.transfer.variant = "out-of-place", cover.transfer.ranks = sp_ranks_size (loop->rank), cover.transfer.nodes = 1;
  cover.transfer.bytes = TRANSFER_BYTES;
  for (guint i = 0; i < n; i++)
    keys[i].repeat = repeat;
  return sp_gpu_time (loop->gpu, &cover.transfer, &cover.alone_s, &partial, error) &&
         agree (loop->gpu, &cover.alone_s, error) &&
         time_kernels (player, &cover, alone_s, beside_s, &partial, error) &&
         (loop->rows == NULL || add_rows (loop, player, keys, alone_s, beside_s, transfer, partial, error));
}

static gboolean
sweep_program (Loop *loop, guint number, GError **error)
{
  const SpExecution *execution = loop->sweep->execution;
  const SpProgram *program = execution->programs->pdata[number];
  gboolean cudnn = execution->attention == SP_ATTENTION_QUICKEST && sp_cudnn_version (NULL) > 0;
  g_autoptr (SpRecording) recording = sp_record (program, loop->rank->rank, SEED, error);
  if (recording == NULL)
    return FALSE;
  g_autoptr (SpPlayer) player =
      sp_player_new (loop->rank, program, recording, TRUE, cudnn ? SP_ATTENTION_CUDNN : execution->attention, error);
  if (player == NULL || !sp_player_start_quick (player, error) || !sp_player_prepare_times (player, error))
    return FALSE;
  g_autofree SpMeasuredRow *keys = g_new (SpMeasuredRow, recording->commands->len + 1);
  for (guint i = 0; i < recording->commands->len; i++)
    keys[i] = sp_kernel_row (recording, sp_player_form (player, i), i, loop->words);
  for (int repeat = 0; repeat < loop->sweep->repeats; repeat++)
    for (guint i = 0; i < loop->sweep->n_transfers; i++)
      if (!time_beside (loop, player, loop->sweep->transfers[i], keys, repeat, error))
        return FALSE;
  if (loop->rows != NULL)
    fprintf (stderr, "%s: %u samples\n", (const char *) execution->files->pdata[number], sp_rows_count (loop->rows));
  return TRUE;
}

static SpRows *
open_rows (const SpExecution *execution, const SpRank *rank, GError **error)
{
  g_autoptr (SpMeasured) head = sp_measured_new ();

  if (!sp_gpu_describe (rank->local_rank, head, error))
    return NULL;
  sp_measured_note (head,
                    "kernels of programs, in the program's order with its caches: alone, and beside transfers of "
                    "%d MiB of all ranks; of rank 0",
                    TRANSFER_BYTES >> 20);
  return sp_rows_open (execution->output, head, error);
}

gboolean
sp_kernels_beside_rank (SpRank *rank, gpointer data, GError **error)
{
  const SpBesideSweep *sweep = data;
  g_autoptr (GStringChunk) words = g_string_chunk_new (256);
  g_autoptr (SpRows) rows = rank->rank == 0 ? open_rows (sweep->execution, rank, error) : NULL;
  if (rank->rank == 0 && rows == NULL)
    return FALSE;
  g_autoptr (SpGpu) gpu = sp_gpu_new (rank, TRUE, 2 * TRANSFER_BYTES, error);
  if (gpu == NULL)
    return FALSE;
  Loop loop = { sweep, rank, rows, gpu, words };
  for (guint i = 0; i < sweep->execution->programs->len; i++)
    if (!sweep_program (&loop, i, error)) {
      g_prefix_error (error, "%s: ", (const char *) sweep->execution->files->pdata[i]);
      return FALSE;
    }
  return TRUE;
}
