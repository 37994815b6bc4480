/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/kernels-beside.h"

#include <stdio.h>
#include <string.h>

#include "calibrate/gpu-private.h"
#include "calibrate/kernels.h"
#include "calibrate/player-private.h"
#include "calibrate/rows.h"

/* Of layers' sizes. Kernels are timed beside one whose latency is a twentieth of what it takes. */
#define TRANSFER_BYTES (64 << 20)
#define LARGEST_BYTES (128 << 20)
static const gint64 transfer_bytes[] = { 8 << 20, 24 << 20, TRANSFER_BYTES, LARGEST_BYTES };
#define SEED 7 /* of token ids */

/* --- passes over kernels ------------------------------------------------------------------------------------------ */

enum { MOST_KERNELS = 256 };

typedef struct {
  SpPlayer *player;
  guint numbers[MOST_KERNELS], n; /* of commands */
  double events_s;                /* that an event between two kernels takes */
} Chunk;

enum { MOST_MARKS = 2048 }; /* of more transfers the first are looked at */

/* What runs beside: `count` transfers, with an event between each two of the first of them. */
typedef struct {
  SpGpu *gpu;
  SpMeasuredRow transfer;
  double alone_s; /* of one */
  int count;
  cudaEvent_t *marks;      /* [MOST_MARKS] */
  double sums_s[SP_N_OPS]; /* of those that kernels of the op alone ran beside */
  guint times[SP_N_OPS];
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
    if ((i < MOST_MARKS && !CUDA (cudaEventRecord (cover->marks[i], stream))) ||
        !sp_gpu_issue_nccl (cover->gpu, &cover->transfer, stream, error))
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

/* --- transfers beside one kind of kernel -------------------------------------------------------------------------- */

/* The op of the chunk's kernels between two dates, in ms from its beginning; SP_N_OPS: there are several, or none. From
 * `*at` on, which moves on to the first kernel that ends behind `from`. */
static guint
kind_between (const Chunk *chunk, const float *starts, float from, float to, guint *at)
{
  guint kind = SP_N_OPS;

  while (*at < chunk->n && starts[*at + 1] <= from)
    ++*at;
  if (from < starts[0] || to > starts[chunk->n])
    return SP_N_OPS;
  for (guint i = *at; i < chunk->n && starts[i] < to; i++) {
    guint op = COMMAND (chunk->player, chunk->numbers[i])->op.kind;
    if (kind != SP_N_OPS && op != kind)
      return SP_N_OPS;
    kind = op;
  }
  return kind;
}

/* Transfers of the last play that was timed. */
static gboolean
read_transfers (const Chunk *chunk, Cover *cover, GError **error)
{
  SpPlayer *player = chunk->player;
  g_autofree float *starts = g_new (float, chunk->n + 1);
  float from = 0, to = 0;
  guint at = 0;

  for (guint i = 0; i <= chunk->n; i++)
    if (!CUDA (cudaEventElapsedTime (&starts[i], player->begin,
                                     i < chunk->n ? player->starts[chunk->numbers[i]] : player->ends[0])))
      return FALSE;
  for (int i = 0; i + 1 < MIN (cover->count, MOST_MARKS); i++, from = to) {
    if ((i == 0 && !CUDA (cudaEventElapsedTime (&from, player->begin, cover->marks[i]))) ||
        !CUDA (cudaEventElapsedTime (&to, player->begin, cover->marks[i + 1])))
      return FALSE;
    guint kind = kind_between (chunk, starts, from, to, &at);
    if (kind < SP_N_OPS) {
      cover->sums_s[kind] += (to - from) * 1e-3;
      cover->times[kind]++;
    }
  }
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
  return read_seconds (chunk, seconds, error) && read_transfers (chunk, cover, error);
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
  cudaEvent_t marks[MOST_MARKS];
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

/* The transfer alone, and beside each op's kernels that it ran beside often enough. */
static gboolean
add_transfers (Loop *loop, const Cover *cover, int repeat, GError **error)
{
  enum { LEAST = 3 }; /* fewer say little of a mean */
  SpMeasuredRow row = cover->transfer;

  row.repeat = repeat;
  row.time_s = cover->alone_s;
  if (!add_row (loop->rows, &row, error))
    return FALSE;
  row.beside = SP_MEASURED_KERNEL;
  for (guint op = 0; op < SP_N_OPS; op++) {
    if (cover->times[op] < LEAST)
      continue;
    row.variant = sp_op_name (op);
    row.time_s = cover->sums_s[op] / cover->times[op];
    if (!add_row (loop->rows, &row, error))
      return FALSE;
  }
  return TRUE;
}

/* All kernels alone, and then beside transfers of that size. */
static gboolean
time_beside (Loop *loop, SpPlayer *player, SpMeasuredOp transfer, gint64 bytes, SpMeasuredRow *keys, int repeat,
             GError **error)
{
  guint n = player->recording->commands->len;
  g_autofree double *alone_s = g_new (double, n + 1), *beside_s = g_new (double, n + 1);
  Cover cover = { .gpu = loop->gpu, .transfer = sp_measured_row (transfer), .marks = loop->marks };
  gboolean partial;

  cover.transfer.variant = "out-of-place", cover.transfer.ranks = sp_ranks_size (loop->rank), cover.transfer.nodes = 1;
  cover.transfer.bytes = bytes;
  for (guint i = 0; i < n; i++)
    keys[i].repeat = repeat;
  if (!sp_gpu_time (loop->gpu, &cover.transfer, &cover.alone_s, &partial, error) ||
      !agree (loop->gpu, &cover.alone_s, error) || !time_kernels (player, &cover, alone_s, beside_s, &partial, error))
    return FALSE;
  if (loop->rows == NULL)
    return TRUE;
  return add_transfers (loop, &cover, repeat, error) &&
         (bytes != TRANSFER_BYTES || add_rows (loop, player, keys, alone_s, beside_s, transfer, partial, error));
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
      for (guint b = 0; b < G_N_ELEMENTS (transfer_bytes); b++)
        if (!time_beside (loop, player, loop->sweep->transfers[i], transfer_bytes[b], keys, repeat, error))
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
  sp_measured_note (
      head,
      "kernels of programs, in the program's order with its caches: alone, and beside transfers of "
      "%d MiB of all ranks; transfers alone, and beside kernels of an op, which is their variant; of rank 0",
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
  g_autoptr (SpGpu) gpu = sp_gpu_new (rank, TRUE, 2 * LARGEST_BYTES, error);
  if (gpu == NULL)
    return FALSE;
  Loop loop = { .sweep = sweep, .rank = rank, .rows = rows, .gpu = gpu, .words = words };
  gboolean good = TRUE;
  for (guint i = 0; good && i < MOST_MARKS; i++)
    good = CUDA (cudaEventCreate (&loop.marks[i]));
  for (guint i = 0; good && i < sweep->execution->programs->len; i++) {
    good = sweep_program (&loop, i, error);
    if (!good)
      g_prefix_error (error, "%s: ", (const char *) sweep->execution->files->pdata[i]);
  }
  for (guint i = 0; i < MOST_MARKS && loop.marks[i] != NULL; i++)
    cudaEventDestroy (loop.marks[i]);
  return good;
}
