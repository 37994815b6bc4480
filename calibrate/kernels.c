/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/kernels.h"

#include <stdio.h>

#include "calibrate/gpu.h"
#include "calibrate/player.h"
#include "sim/op-form.h"

#define SEED 7 /* of token ids */
enum { LEAST_BATCH = 4, MOST_BATCH = 64 };

static const char *
gemm_variant (const SpCommand *command, GStringChunk *words)
{
  gboolean trans_a = (command->op.flags & SP_OP_TRANS_A) != 0, trans_b = (command->op.flags & SP_OP_TRANS_B) != 0;
  g_autofree char *text = g_strconcat ("cublaslt",
                                       trans_a    ? "/tn"
                                       : !trans_b ? "/nn"
                                                  : "",
                                       command->out[0].dtype == SP_DTYPE_FP32 ? "/fp32" : "",
                                       command->op.flags & SP_OP_ACCUMULATE ? "/add" : "",
                                       command->in[2].storage >= 0 ? "/bias" : "", NULL);
  return g_string_chunk_insert_const (words, text);
}

static const char *
kernel_variant (const SpCommand *command, GStringChunk *words)
{
  g_autofree char *text = sp_op_form_name (command->op.kind, sp_op_form (&command->op));

  return g_string_chunk_insert_const (words, text);
}

static gint64
or_empty (gint64 value)
{
  return value > 0 ? value : SP_MEASURED_EMPTY;
}

SpMeasuredRow
sp_kernel_row (const SpRecording *recording, guint number, GStringChunk *words)
{
  const SpCommand *command = &g_array_index (recording->commands, SpCommand, number);
  const SpOp *op = &command->op;
  const SpOperand *first = command->in[0].storage >= 0 ? &command->in[0] : &command->out[0];
  SpMeasuredRow row = sp_measured_row (op->kind == SP_OP_GEMM ? SP_MEASURED_GEMM : SP_MEASURED_KERNEL);

  row.variant = op->kind == SP_OP_GEMM ? gemm_variant (command, words) : kernel_variant (command, words);
  row.dtype = first->storage >= 0 ? sp_dtype_name (first->dtype) : "";
  row.ranks = row.nodes = 1;
  row.bytes = or_empty (op->bytes);
  row.m = or_empty (op->m), row.n = or_empty (op->n), row.k = or_empty (op->k);
  row.batch = or_empty (op->batch), row.heads = or_empty (op->heads), row.kv_heads = or_empty (op->kv_heads);
  row.flops = op->flops;
  return row;
}

/* About as long as 256 MiB over the bus or 4e11 FLOP. */
static int
batch_of (const SpMeasuredRow *row)
{
  double work = row->flops / 4e11 + (double) MAX (row->bytes, 0) / (256 << 20);

  return (int) CLAMP (1 / MAX (work, 1e-9), LEAST_BATCH, MOST_BATCH);
}

typedef struct {
  const SpKernelSweep *sweep;
  SpRank *rank;
  SpRows *rows;
  GStringChunk *words;
} Loop;

/* Each kernel once: those that the file has are passed over. */
static gboolean
time_kernels (Loop *loop, SpPlayer *player, const SpRecording *recording, int repeat, GError **error)
{
  guint n = recording->commands->len;
  g_autofree guint *order = g_new (guint, MAX (n, 1));
  g_autoptr (GRand) random = g_rand_new_with_seed ((guint32) (loop->sweep->seed + repeat));

  for (guint i = 0; i < n; i++)
    order[i] = i;
  for (guint i = n; i > 1; i--) {
    guint j = (guint) g_rand_int_range (random, 0, (gint32) i), swap = order[j];
    order[j] = order[i - 1];
    order[i - 1] = swap;
  }
  for (guint i = 0; i < n; i++) {
    const SpCommand *command = &g_array_index (recording->commands, SpCommand, order[i]);
    SpMeasuredRow row = sp_kernel_row (recording, order[i], loop->words);
    row.repeat = repeat;
    if (sp_op_is_communication (command->op.kind) || sp_rows_has (loop->rows, &row))
      continue;
    if (!sp_player_time_kernel (player, order[i], batch_of (&row), &row.time_s, error) ||
        !sp_rows_add (loop->rows, &row, error))
      return FALSE;
  }
  return TRUE;
}

static gboolean
sweep_program (Loop *loop, guint number, GError **error)
{
  const SpProgram *program = loop->sweep->execution->programs->pdata[number];
  g_autoptr (SpRecording) recording = sp_record (program, 0, SEED, error);
  if (recording == NULL)
    return FALSE;
  g_autoptr (SpPlayer) player = sp_player_new (loop->rank, program, recording, TRUE, error);
  if (player == NULL || !sp_player_start_quick (player, error))
    return FALSE;
  for (int repeat = 0; repeat < loop->sweep->repeats; repeat++)
    if (!time_kernels (loop, player, recording, repeat, error))
      return FALSE;
  fprintf (stderr, "%s: %u samples\n", (const char *) loop->sweep->execution->files->pdata[number],
           sp_rows_count (loop->rows));
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
  sp_measured_note (head, "kernels of programs, each alone, in captured batches; order by seed %d", sweep->seed);
  g_autoptr (SpRows) rows = sp_rows_open (sweep->execution->output, head, error);
  Loop loop = { sweep, rank, rows, words };
  if (rows == NULL)
    return FALSE;
  for (guint i = 0; i < sweep->execution->programs->len; i++)
    if (!sweep_program (&loop, i, error)) {
      g_prefix_error (error, "%s: ", (const char *) sweep->execution->files->pdata[i]);
      return FALSE;
    }
  return TRUE;
}
