/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/bench.h"

#include <gio/gio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate/bench-rows.h"
#include "calibrate/gemm.h"
#include "calibrate/gpu.h"
#include "calibrate/kernels.h"
#include "calibrate/player.h"
#include "calibrate/rows.h"
#include "kernels/cases/case.h"

enum { MOST_SETS = 200, SEED = 1 };

#define SHORT_WARM_S 0.25 /* one kernel at its best, as others are quoted; not what it gets in the middle of a step */
#define LINE "%-24s %-10s %-28s %9s %9s %9s %9s %8s %7s %7s %9s %7s\n"

/* --- one size ----------------------------------------------------------------------------------------------------- */

typedef struct {
  const SpBench *bench;
  SpRank *rank;
  SpRows *rows; /* or NULL */
  GStringChunk *words;
  gint64 cache_bytes; /* L2 */
  double copy_rate, gemm_rate;
  GHashTable *checked;
  GHashTable *copies; /* bytes -> the rate of a copy of as many, double * */
} Loop;

typedef struct {
  double low_s, median_s, high_s; /* 20, 50 and 80 % */
} Times;

static int
compare_seconds (const void *a, const void *b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return (x > y) - (x < y);
}

static Times
times_of (double *seconds, guint n)
{
  qsort (seconds, n, sizeof *seconds, compare_seconds);
  return (Times){ seconds[n / 5], (seconds[(n - 1) / 2] + seconds[n / 2]) / 2, seconds[n - 1 - n / 5] };
}

/* Sets of operands, so that twice the cache passes by between two uses of the same one. */
static guint
sets_of (const Loop *loop, const SpOp *op)
{
  gint64 more = 1 + 2 * loop->cache_bytes / MAX (op->bytes, 1);

  return loop->bench->warm ? 1 : (guint) MIN (1 + more, MOST_SETS);
}

static gboolean
write_samples (Loop *loop, const SpRecording *recording, const double *seconds, GError **error)
{
  for (int i = 0; loop->rows != NULL && i < loop->bench->repeats; i++) {
    const SpCommand *command = &g_array_index (recording->commands, SpCommand, i);
    SpMeasuredRow row = sp_kernel_row (recording, sp_op_form (&command->op), (guint) i, loop->words);
    row.repeat = i;
    row.time_s = seconds[i];
    if (!sp_rows_has (loop->rows, &row) && !sp_rows_add (loop->rows, &row, error))
      return FALSE;
  }
  return TRUE;
}

static gboolean
is_done (const Loop *loop, const SpBenchRow *row, guint size)
{
  g_autoptr (SpRecording) recording = sp_bench_record (row, size, 1, 1);
  const SpCommand *first = &g_array_index (recording->commands, SpCommand, 0);
  SpMeasuredRow last = sp_kernel_row (recording, sp_op_form (&first->op), 0, loop->words);

  last.repeat = loop->bench->repeats - 1;
  return loop->rows != NULL && sp_rows_has (loop->rows, &last);
}

static gboolean
time_size (Loop *loop, const SpBenchRow *row, guint size, Times *ret, GError **error)
{
  SpOp op = sp_bench_op (row, size);
  guint sets = sets_of (loop, &op), count = MAX (sets, (guint) loop->bench->repeats);
  g_autoptr (SpRecording) recording = sp_bench_record (row, size, sets, count);
  g_autofree SpProgram *program = g_new0 (SpProgram, 1);
  g_autofree double *seconds = g_new (double, count);
  /* What memory bounds draws little power, and the card is warm of what was timed before. */
  double warm_s = op.flops > 0 || loop->copy_rate == 0 ? SHORT_WARM_S : SHORT_WARM_S / 5;

  sp_bench_numbers (&op, &program->numbers);
  g_autoptr (SpPlayer) player = sp_player_new (loop->rank, program, recording, TRUE, SP_ATTENTION_OWN, error);
  if (player == NULL || !sp_player_start_quick (player, error) ||
      !sp_player_time_kernels (player, warm_s, NULL, seconds, NULL, error) ||
      !write_samples (loop, recording, seconds, error))
    return FALSE;
  *ret = times_of (seconds, count);
  return TRUE;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static void
print_head (void)
{
  printf (LINE, "kernel", "types", "size", "ms", "20 %", "80 %", "MB", "GB/s", "% copy", "% same", "TFLOP/s", "% GEMM");
}

static void
print_line (const Loop *loop, const SpBenchRow *row, const SpOp *op, const Times *times, double same_rate)
{
  g_autofree char *name = sp_bench_name (row), *dtypes = sp_bench_dtypes (row), *shape = sp_bench_shape (op);
  double rate = (double) op->bytes / times->median_s, flops = op->flops / times->median_s;
  const double numbers[] = { times->median_s * 1e3,     times->low_s * 1e3, times->high_s * 1e3,
                             (double) op->bytes * 1e-6, rate * 1e-9,        100 * rate / loop->copy_rate,
                             100 * rate / same_rate,    flops * 1e-12,      100 * flops / loop->gemm_rate };
  static const int digits[] = { 4, 4, 4, 1, 0, 1, 1, 1, 1 };
  enum { SAME = 6 }; /* of what moves bytes alone; FLOP and their share of others */
  char text[G_N_ELEMENTS (numbers)][G_ASCII_DTOSTR_BUF_SIZE];

  for (guint i = 0; i < G_N_ELEMENTS (numbers); i++)
    g_snprintf (text[i], sizeof text[i], i >= SAME && (i == SAME) == (op->flops > 0) ? "-" : "%.*f", digits[i],
                numbers[i]);
  printf (LINE, name, dtypes, shape, text[0], text[1], text[2], text[3], text[4], text[5], text[6], text[7], text[8]);
  fflush (stdout);
}

/* --- a copy of as many bytes -------------------------------------------------------------------------------------- */

/* Which launches and the ramp at both ends hold up as they do any kernel of that size. Each once. */
static gboolean
rate_of_copy (Loop *loop, gint64 bytes, double *ret, GError **error)
{
  guint n = 0;
  SpBenchRow row = sp_bench_rows (&n)[SP_BENCH_COPY];
  const double *known = g_hash_table_lookup (loop->copies, &bytes);
  Times times;

  if (known == NULL) {
    memset (row.sizes, 0, sizeof row.sizes);
    row.sizes[0] = (SpBenchSize){ .m = 1, .n = (gint32) (bytes / (2 * (gint64) sp_dtype_bytes (row.in[0].dtype))) };
    SpOp op = sp_bench_op (&row, 0);
    if (!time_size (loop, &row, 0, &times, error))
      return FALSE;
    double rate = (double) op.bytes / times.median_s;
    known = g_memdup2 (&rate, sizeof rate);
    g_hash_table_insert (loop->copies, g_memdup2 (&bytes, sizeof bytes), (gpointer) known);
  }
  *ret = *known;
  return TRUE;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static void
say_wrong (const char *message, gpointer data)
{
  (void) data;
  fprintf (stderr, "%s\n", message);
}

/* Once, whoever else has the same check. */
static gboolean
check_row (Loop *loop, const SpBenchRow *row, GError **error)
{
  const SpCheck *check = row->check != NULL ? sp_check_find (row->check) : NULL;

  if (row->check == NULL || !g_hash_table_add (loop->checked, (gpointer) row->check))
    return TRUE;
  guint n_wrong = check != NULL ? sp_check_run (check, SEED, say_wrong, NULL) : 1;
  if (n_wrong > 0)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_FAILED,
                 "%s: %u operands of the check %s differ from the reference, see above: it is not timed",
                 sp_op_name (row->kind), n_wrong, row->check);
  return n_wrong == 0 && sp_ranks_check (loop->rank, TRUE, error);
}

static gboolean
bench_row (Loop *loop, const SpBenchRow *row, GError **error)
{
  if (!check_row (loop, row, error))
    return FALSE;
  for (guint size = 0; size < sp_bench_n_sizes (row); size++) {
    SpOp op = sp_bench_op (row, size);
    Times times;
    double same_rate = 0;
    if (is_done (loop, row, size))
      continue;
    if (!time_size (loop, row, size, &times, error) ||
        (op.flops == 0 && !rate_of_copy (loop, op.bytes, &same_rate, error))) {
      g_autofree char *shape = sp_bench_shape (&op);
      g_prefix_error (error, "%s, %s: ", sp_op_name (row->kind), shape);
      return FALSE;
    }
    print_line (loop, row, &op, &times, same_rate);
  }
  return TRUE;
}

/* What the others are held against: measured in every run, also where the file has it. */
static gboolean
measure_rates (Loop *loop, GError **error)
{
  guint n = 0;
  const SpBenchRow *rows = sp_bench_rows (&n);
  SpOp copy = sp_bench_op (&rows[SP_BENCH_COPY], 0), gemm = sp_bench_op (&rows[SP_BENCH_GEMM], 0);
  Times copies, gemms;

  if (!check_row (loop, &rows[SP_BENCH_COPY], error) || !time_size (loop, &rows[SP_BENCH_COPY], 0, &copies, error) ||
      !time_size (loop, &rows[SP_BENCH_GEMM], 0, &gemms, error))
    return FALSE;
  loop->copy_rate = (double) copy.bytes / copies.median_s;
  loop->gemm_rate = gemm.flops / gemms.median_s;
  print_line (loop, &rows[SP_BENCH_COPY], &copy, &copies, loop->copy_rate);
  print_line (loop, &rows[SP_BENCH_GEMM], &gemm, &gemms, 0);
  return TRUE;
}

static gboolean
describe (Loop *loop, SpMeasured *head, GError **error)
{
  struct cudaDeviceProp card;
  const char *driver;

  if (!CUDA (cudaSetDevice (loop->rank->local_rank)) ||
      !CUDA (cudaGetDeviceProperties (&card, loop->rank->local_rank)) ||
      !sp_gpu_describe (loop->rank->local_rank, head, error))
    return FALSE;
  loop->cache_bytes = card.l2CacheSize;
  sp_measured_note (head, "kernels alone, each checked beside its reference first; %s",
                    loop->bench->warm ? "L2 warm: the same operands again and again"
                                      : "L2 cold: twice its bytes between two uses of the same operands");
  driver = sp_measured_field (head, "driver");
  printf ("# %s, sm_%d%d, driver %s, CUDA %s; L2 of %.0f MB %s\n", card.name, card.major, card.minor,
          driver != NULL ? driver : "unknown", sp_measured_field (head, "cuda"), (double) card.l2CacheSize * 1e-6,
          loop->bench->warm ? "warm" : "cold");
  return TRUE;
}

gboolean
sp_bench_rank (SpRank *rank, gpointer data, GError **error)
{
  const SpBench *bench = data;
  g_autoptr (SpMeasured) head = sp_measured_new ();
  g_autoptr (GStringChunk) words = g_string_chunk_new (256);
  g_autoptr (GHashTable) checked = g_hash_table_new (g_str_hash, g_str_equal);
  g_autoptr (GHashTable) copies = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, g_free);
  Loop loop = { .bench = bench, .rank = rank, .words = words, .checked = checked, .copies = copies };

  if (!describe (&loop, head, error))
    return FALSE;
  g_autoptr (SpRows) rows = bench->output != NULL ? sp_rows_open (bench->output, head, error) : NULL;
  if (bench->output != NULL && rows == NULL)
    return FALSE;
  loop.rows = rows;
  print_head ();
  if (!measure_rates (&loop, error))
    return FALSE;
  for (guint i = 0; i < bench->rows->len; i++)
    if (!bench_row (&loop, bench->rows->pdata[i], error))
      return FALSE;
  return TRUE;
}
