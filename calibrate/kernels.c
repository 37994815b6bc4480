/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/kernels.h"

#include <stdio.h>

#include "calibrate/cudnn.h"
#include "calibrate/gpu.h"
#include "calibrate/player.h"
#include "sim/op-form.h"
#include "sim/roles.h"

#define SEED 7 /* of token ids */

static gint64
or_empty (gint64 value)
{
  return value > 0 ? value : SP_MEASURED_EMPTY;
}

SpMeasuredRow
sp_kernel_row (const SpRecording *recording, SpOpForm form, guint number, GStringChunk *words)
{
  const SpCommand *command = &g_array_index (recording->commands, SpCommand, number);
  const SpOp *op = &command->op;
  const SpOperand *first = command->in[0].storage >= 0 ? &command->in[0] : &command->out[0];
  SpMeasuredRow row = sp_measured_row (SP_MEASURED_KERNEL);
  g_autofree char *variant = sp_op_form_name (op->kind, form);

  row.variant = g_string_chunk_insert_const (words, variant);
  row.dtype = first->storage >= 0 ? sp_dtype_name (first->dtype) : "";
  row.ranks = row.nodes = 1;
  row.bytes = or_empty (op->bytes);
  row.m = or_empty (op->m), row.n = or_empty (op->n), row.k = or_empty (op->k);
  row.batch = or_empty (op->batch), row.heads = or_empty (op->heads), row.kv_heads = or_empty (op->kv_heads);
  row.flops = op->flops;
  return row;
}

typedef struct {
  const SpKernelSweep *sweep;
  SpRank *rank;
  SpRows *rows;
  GStringChunk *words;
  SpSensor *sensor;
  const char *name; /* of the program */
} Loop;

gboolean
sp_kernel_same_row (const SpMeasuredRow *a, const SpMeasuredRow *b)
{
  return a->op == b->op && g_str_equal (a->variant, b->variant) && g_str_equal (a->dtype, b->dtype) &&
         a->bytes == b->bytes && a->m == b->m && a->n == b->n && a->k == b->k && a->batch == b->batch &&
         a->heads == b->heads && a->kv_heads == b->kv_heads && a->flops == b->flops;
}

static gboolean
is_kernel (const SpCommand *command)
{
  return command->queue == SP_STREAM_COMPUTE && !sp_op_is_communication (command->op.kind);
}

/* What all of the program's kernels did together, in a row that says at what clock and power. */
static SpMeasuredRow
work_row (const Loop *loop, const SpPlayer *player, const SpRecording *recording, const double *seconds)
{
  SpMeasuredRow row = sp_measured_row (SP_MEASURED_WORK);
  g_autofree char *word = sp_measured_word (loop->name);
  g_autofree char *variant = g_strconcat (word, sp_player_uses_cudnn (player) ? "/cudnn" : "", NULL);

  row.variant = g_string_chunk_insert_const (loop->words, variant);
  row.ranks = row.nodes = 1;
  row.from = loop->sweep->card >= 0 ? loop->sweep->card : SP_MEASURED_EMPTY;
  row.bytes = 0;
  for (guint i = 0; i < recording->commands->len; i++) {
    const SpOp *op = &g_array_index (recording->commands, SpCommand, i).op;
    if (seconds[i] <= 0)
      continue;
    row.bytes += op->bytes;
    row.flops += op->flops;
  }
  return row;
}

/* Where the card says what it draws. */
static gboolean
add_work (Loop *loop, const SpPlayer *player, const SpRecording *recording, const double *seconds,
          const SpPlayerPass *pass, int repeat, GError **error)
{
  SpMeasuredRow row = work_row (loop, player, recording, seconds);

  row.repeat = repeat;
  row.time_s = pass->time_s;
  sp_reading_put (&pass->reading, &row, loop->words);
  return row.power_w <= 0 || sp_rows_has (loop->rows, &row) || sp_rows_add (loop->rows, &row, error);
}

/* Of the commands from `first` on that are as that one. */
static double
mean_s (const SpMeasuredRow *rows, guint first, guint n, const double *seconds)
{
  double sum = 0;
  guint alike = 0;

  for (guint i = first; i < n; i++)
    if (seconds[i] > 0 && sp_kernel_same_row (&rows[first], &rows[i])) {
      sum += seconds[i];
      alike++;
    }
  return sum / alike;
}

/* The program's kernels in their order; of those that are alike the mean. Those that the file has are passed over, and
 * nothing runs if it has them all. */
static gboolean
time_kernels (Loop *loop, SpPlayer *player, const SpRecording *recording, int repeat, GError **error)
{
  guint n = recording->commands->len;
  g_autofree double *seconds = g_new (double, MAX (n, 1));
  g_autofree SpMeasuredRow *rows = g_new (SpMeasuredRow, MAX (n, 1));
  SpPlayerPass pass;
  gboolean any = FALSE;

  for (guint i = 0; i < n; i++) {
    rows[i] = sp_kernel_row (recording, sp_player_form (player, i), i, loop->words);
    rows[i].repeat = repeat;
    any =
        any || (is_kernel (&g_array_index (recording->commands, SpCommand, i)) && !sp_rows_has (loop->rows, &rows[i]));
  }
  if (!any)
    return TRUE;
  if (!sp_player_time_kernels (player, SP_PLAYER_WARM_S, loop->sensor, seconds, &pass, error))
    return FALSE;
  for (guint i = 0; i < n; i++) {
    if (seconds[i] <= 0 || sp_rows_has (loop->rows, &rows[i]))
      continue;
    rows[i].time_s = mean_s (rows, i, n, seconds);
    sp_reading_put (&pass.reading, &rows[i], loop->words);
    if (!sp_rows_add (loop->rows, &rows[i], error))
      return FALSE;
  }
  return add_work (loop, player, recording, seconds, &pass, repeat, error);
}

/* What the card has in use beside what the player asked for: the context and what libraries have loaded. */
static gboolean
add_context (Loop *loop, SpPlayer *player, GError **error)
{
  SpMeasuredRow row = sp_measured_row (SP_MEASURED_MEMORY);

  row.variant = "context/alone";
  row.ranks = row.nodes = 1;
  row.bytes = sp_player_other_bytes (player);
  return sp_rows_has (loop->rows, &row) || sp_rows_add (loop->rows, &row, error);
}

/* With attention of one library. *ret_by_cudnn: there is what cuDNN plays. */
static gboolean
sweep_library (Loop *loop, const SpProgram *program, const SpRecording *recording, SpAttention attention, gboolean last,
               gboolean *ret_by_cudnn, GError **error)
{
  g_autoptr (SpPlayer) player = sp_player_new (loop->rank, program, recording, TRUE, attention, error);
  if (player == NULL)
    return FALSE;
  for (int repeat = 0; repeat < loop->sweep->repeats; repeat++)
    /* From the start each time: a model that learns one batch for seconds ends with gradients of next to nothing. */
    if (!sp_player_start_quick (player, error) || !time_kernels (loop, player, recording, repeat, error))
      return FALSE;
  *ret_by_cudnn = sp_player_uses_cudnn (player);
  return !last || add_context (loop, player, error);
}

/* Whether a rank's kernels are not all among `known` ops, to which they are added. */
static gboolean
has_new_kernels (const SpRecording *recording, GHashTable *known)
{
  gboolean has = FALSE;

  for (guint i = 0; i < recording->commands->len; i++) {
    const SpCommand *command = &g_array_index (recording->commands, SpCommand, i);
    if (is_kernel (command) && g_hash_table_add (known, g_bytes_new (&command->op, sizeof command->op)))
      has = TRUE;
  }
  return has;
}

/* With attention of each library that is here, unless one is asked for; what cuDNN plays nothing of is ours already.
 * Nothing runs where the program's ranks before it had all its kernels. */
static gboolean
sweep_rank (Loop *loop, const SpProgram *program, gint32 rank, gboolean last, GHashTable *known, GError **error)
{
  SpAttention asked = loop->sweep->execution->attention;
  gboolean both = asked == SP_ATTENTION_QUICKEST && sp_cudnn_version (NULL) > 0;
  SpAttention first = both ? SP_ATTENTION_CUDNN : asked;
  gboolean by_cudnn = FALSE;
  g_autoptr (SpRecording) recording = sp_record (program, rank, SEED, error);

  if (recording == NULL)
    return FALSE;
  if (!has_new_kernels (recording, known) && !last)
    return TRUE;
  return sweep_library (loop, program, recording, first, last, &by_cudnn, error) &&
         (!both || !by_cudnn || sweep_library (loop, program, recording, SP_ATTENTION_OWN, FALSE, &by_cudnn, error));
}

/* One rank of each role: those at the ends of a chain, or of a pipeline, have kernels that the others lack. */
static gboolean
sweep_program (Loop *loop, guint number, GError **error)
{
  const SpExecution *execution = loop->sweep->execution;
  const SpProgram *program = execution->programs->pdata[number];
  gboolean last = number + 1 == execution->programs->len;
  g_autoptr (GHashTable) known =
      g_hash_table_new_full (g_bytes_hash, g_bytes_equal, (GDestroyNotify) g_bytes_unref, NULL);
  g_autofree char *name = g_path_get_basename (execution->files->pdata[number]);
  SpRolesPlaces places;

  loop->name = name;
  sp_roles_places_init (&places, program);
  g_autoptr (SpRoles) roles = sp_roles_new_folded (program, &places, NULL);
  sp_roles_places_clear (&places);
  for (gint32 i = 0; i < roles->n; i++)
    if (!sweep_rank (loop, program, roles->rank[i], last && i + 1 == roles->n, known, error))
      return FALSE;
  fprintf (stderr, "%s: %u samples\n", (const char *) execution->files->pdata[number], sp_rows_count (loop->rows));
  return TRUE;
}

gboolean
sp_kernels_rank (SpRank *rank, gpointer data, GError **error)
{
  const SpKernelSweep *sweep = data;
  g_autoptr (SpMeasured) head = sp_measured_new ();
  g_autoptr (GStringChunk) words = g_string_chunk_new (256);

  if (!sp_gpu_describe (rank->local_rank, head, error))
    return FALSE;
  sp_measured_note (head, "kernels of programs, in the program's order with its caches, without communication");
  guint cudnn = sweep->execution->attention != SP_ATTENTION_OWN ? sp_cudnn_version (NULL) : 0;
  if (cudnn > 0)
    sp_measured_note (head, "softmax attention marked cudnn is by cuDNN %u.%u.%u", cudnn / 10000, cudnn / 100 % 100,
                      cudnn % 100);
  g_autoptr (SpRows) rows = sp_rows_open (sweep->execution->output, head, error);
  if (rows == NULL)
    return FALSE;
  g_autoptr (SpSensor) sensor = sp_sensor_new (rank->local_rank);
  Loop loop = { sweep, rank, rows, words, sensor, NULL };
  for (guint i = 0; i < sweep->execution->programs->len; i++)
    if (!sweep_program (&loop, i, error)) {
      g_prefix_error (error, "%s: ", (const char *) sweep->execution->files->pdata[i]);
      return FALSE;
    }
  return TRUE;
}
