/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/execute-private.h"

#include <errno.h>
#include <gio/gio.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "calibrate/cudnn.h"
#include "calibrate/gpu.h"
#include "models/rehearse/rehearse.h"

#define SEED 7 /* of token ids and, where they are drawn, parameters */

/* --- rows --------------------------------------------------------------------------------------------------------- */

static const char columns[] =
    "program,rank,row,name,queue,phase,layer,micro_batch,group,m,n,k,batch,heads,kv_heads,bytes,repeat,start_s,end_s,"
    "clock_hz,power_w,temperature_c,throttle\n";

static void
write_cells (const SpExecuteRun *run, int rank, const char *row, const char *name, gint64 layer, gint64 m, gint64 bytes,
             gint64 repeat, double start_s, double end_s)
{
  g_autofree char *program = g_path_get_basename (run->file);

  fprintf (run->out, "%s,%d,%s,%s,,,", program, rank, row, name);
  fprintf (run->out,
           "%" G_GINT64_FORMAT ",,,%" G_GINT64_FORMAT ",,,,,,%" G_GINT64_FORMAT ",%" G_GINT64_FORMAT ",%.9g,%.9g",
           layer, m, bytes, repeat, start_s, end_s);
}

void
sp_execute_write_row (const SpExecuteRun *run, int rank, const char *row, const char *name, gint64 layer, gint64 m,
                      gint64 bytes, gint64 repeat, double start_s, double end_s)
{
  write_cells (run, rank, row, name, layer, m, bytes, repeat, start_s, end_s);
  fputs (",,,,\n", run->out);
}

static void
write_number (const SpExecuteRun *run, double value, int digits)
{
  fputc (',', run->out);
  if (value > 0)
    fprintf (run->out, "%.*g", digits, value);
}

/* Of what was timed, with what the card said meanwhile. */
static void
write_timed (const SpExecuteRun *run, int rank, const char *row, gint64 repeat, double start_s, double end_s,
             const SpReading *reading)
{
  g_autofree char *throttle = sp_reading_throttle (reading);

  write_cells (run, rank, row, "", 0, 0, 0, repeat, start_s, end_s);
  write_number (run, reading->clock_hz, 5);
  write_number (run, reading->power_w, 4);
  write_number (run, reading->temperature_c, 3);
  fprintf (run->out, ",%s\n", throttle);
}

static void
write_command (const SpExecuteRun *run, int rank, const char *row, guint repeat, const SpExecuteTimed *t)
{
  g_autofree char *program = g_path_get_basename (run->file);
  const SpOp *op = &t->op;

  fprintf (run->out, "%s,%d,%s,%s,%s,%s,%d,%d,%s,%d,%d,%d,%d,%d,%d,%" G_GINT64_FORMAT ",%u,%.9g,%.9g,,,,\n", program,
           rank, row, sp_op_name (op->kind), t->queue < SP_N_STREAMS ? sp_stream_name (t->queue) : "pipeline-back",
           sp_phase_name (t->phase), t->layer, t->micro_batch, sp_group_name (op->group), op->m, op->n, op->k,
           op->batch, op->heads, op->kv_heads, op->bytes, repeat, t->start_s, t->end_s);
}

/* --- what a run gives --------------------------------------------------------------------------------------------- */

/* A step as a rank tells the others. */
typedef struct {
  double issue_s, step_s;
  SpReading reading;
} Step;

/* What the card said in a step that ended now. One that is short counts with those before it, which were the same, but
 * with nothing before since_us. */
static SpReading
read_sensor (const SpExecuteRun *run, double step_s, gint64 since_us)
{
  gint64 now_us = g_get_monotonic_time ();
  gint64 from_us = now_us - MAX ((gint64) (step_s * G_USEC_PER_SEC), SP_SENSOR_LEAST_US);

  return sp_sensor_mean (run->sensor, MAX (from_us, since_us), now_us);
}

static gboolean
run_steps (SpExecuteRun *run, GError **error)
{
  int size = sp_ranks_size (run->rank);
  g_autofree Step *all = g_new0 (Step, size);
  gint64 since_us = g_get_monotonic_time ();
  double warm_s = 0;

  for (int i = -run->execution->warm_up; i < run->execution->steps; i++) {
    Step mine = { 0 };
    /* Ranks start together: what one waits for another before the step is no part of it. */
    if (!sp_ranks_gather (run->rank, &mine, sizeof mine, all, error) ||
        !sp_player_step (run->player, SP_TIMING_NONE, &mine.step_s, error))
      return FALSE;
    mine.issue_s = sp_player_issue_s (run->player);
    mine.reading = read_sensor (run, mine.step_s, since_us);
    if (!sp_ranks_gather (run->rank, &mine, sizeof mine, all, error))
      return FALSE;
    for (int r = 0; r < size; r++) {
      mine.issue_s = MAX (mine.issue_s, all[r].issue_s);
      mine.step_s = MAX (mine.step_s, all[r].step_s);
      sp_reading_join (&mine.reading, &all[r].reading);
    }
    if (run->out != NULL && i >= 0)
      write_timed (run, -1, "step", i, mine.issue_s, mine.step_s, &mine.reading);
    /* Once more before the first: the time is the same on all ranks, so all of them do. */
    warm_s += mine.step_s;
    if (i == -1 && warm_s < SP_PLAYER_WARM_S)
      i--;
  }
  return TRUE;
}

/* A rank's ops, all together. */
typedef struct {
  double all_s[SP_N_OPS];
  gint64 times[SP_N_OPS];
} Sums;

static Sums
sums_of (const SpExecuteRun *run)
{
  Sums sums = { 0 };

  for (guint i = 0; i < run->recording->commands->len; i++) {
    guint op = g_array_index (run->recording->commands, SpCommand, i).op.kind;
    double start_s, end_s;
    sp_player_command_times (run->player, i, &start_s, &end_s);
    sums.all_s[op] += end_s - start_s;
    sums.times[op]++;
  }
  return sums;
}

static gboolean
gather_sums (SpExecuteRun *run, GError **error)
{
  int size = sp_ranks_size (run->rank);
  g_autofree Sums *all = g_new (Sums, size);
  double events_s, drain_s;
  Sums mine = sums_of (run);

  if (!sp_ranks_gather (run->rank, &mine, sizeof mine, all, error))
    return FALSE;
  for (int r = 0; run->out != NULL && r < size; r++)
    for (guint op = 0; op < SP_N_OPS; op++)
      if (all[r].times[op] > 0)
        sp_execute_write_row (run, r, "op", sp_op_name (op), 0, all[r].times[op], 0, 0, 0, all[r].all_s[op]);
  if (run->out == NULL)
    return TRUE;
  sp_player_overheads (run->player, &events_s, &drain_s);
  sp_execute_write_row (run, 0, "overhead", "events", 0, 0, 0, 0, 0, events_s);
  sp_execute_write_row (run, 0, "overhead", "wait", 0, 0, 0, 0, 0, drain_s);
  return TRUE;
}

/* All ranks' commands of `mine` (SpExecuteTimed), each rank's in its order; collective. */
gboolean
sp_execute_gather_timed (SpExecuteRun *run, GArray *mine, const char *row, guint repeat, GError **error)
{
  int size = sp_ranks_size (run->rank);
  gint64 n = mine->len, most = 0;
  g_autofree gint64 *counts = g_new (gint64, size);

  if (!sp_ranks_gather (run->rank, &n, sizeof n, counts, error))
    return FALSE;
  for (int r = 0; r < size; r++)
    most = MAX (most, counts[r]);
  g_array_set_size (mine, (guint) most);
  g_autofree SpExecuteTimed *all = g_new0 (SpExecuteTimed, most * size + 1);
  if (!sp_ranks_gather (run->rank, mine->data, (gsize) most * sizeof (SpExecuteTimed), all, error))
    return FALSE;
  for (int r = 0; run->out != NULL && r < size; r++)
    for (gint64 i = 0; i < counts[r]; i++)
      write_command (run, r, row, repeat, &all[r * most + i]);
  return TRUE;
}

SpExecuteTimed
sp_execute_timed (const SpExecuteRun *run, guint number, double start_s, double end_s)
{
  const SpCommand *c = &g_array_index (run->recording->commands, SpCommand, number);

  return (SpExecuteTimed){ c->op, c->layer, c->micro_batch, c->queue, c->phase, start_s, end_s };
}

static gboolean
gather_commands (SpExecuteRun *run, GError **error)
{
  double step_s = 0;
  g_autofree double *all = g_new (double, sp_ranks_size (run->rank));
  g_autoptr (GArray) timed = g_array_new (FALSE, TRUE, sizeof (SpExecuteTimed));

  if (!sp_ranks_gather (run->rank, &step_s, sizeof step_s, all, error) ||
      !sp_player_step (run->player, SP_TIMING_COMMANDS, &step_s, error) || !gather_sums (run, error))
    return FALSE;
  for (guint i = 0; i < run->recording->commands->len; i++) {
    double start_s, end_s;
    sp_player_command_times (run->player, i, &start_s, &end_s);
    SpExecuteTimed one = sp_execute_timed (run, i, start_s, end_s);
    g_array_append_val (timed, one);
  }
  return !run->execution->commands || sp_execute_gather_timed (run, timed, "command", 0, error);
}

typedef struct {
  gint64 payload[SP_N_AXES], used, arena, scratch, context, communicators;
  guint n_communicators;
  double loss;
} Counts;

static gboolean
gather_counts (SpExecuteRun *run, double *ret_loss, GError **error)
{
  int size = sp_ranks_size (run->rank);
  g_autofree Counts *all = g_new0 (Counts, size);
  Counts mine;

  memset (&mine, 0, sizeof mine);
  sp_player_payload (run->player, mine.payload);
  sp_player_memory (run->player, &mine.used, &mine.arena, &mine.context, &mine.communicators, &mine.n_communicators);
  mine.scratch = sp_player_scratch_bytes (run->player);
  mine.loss = sp_player_loss (run->player);
  if (!sp_ranks_gather (run->rank, &mine, sizeof mine, all, error))
    return FALSE;
  *ret_loss = 0;
  for (int r = 0; r < size; r++)
    *ret_loss += all[r].loss;
  for (int r = 0; run->out != NULL && r < size; r++) {
    for (guint axis = 0; axis < SP_N_AXES; axis++)
      if (all[r].payload[axis] > 0)
        sp_execute_write_row (run, r, "payload", sp_axis_name (axis), 0, 0, all[r].payload[axis], 0, 0, 0);
    sp_execute_write_row (run, r, "memory", "arena", 0, 0, all[r].arena, 0, 0, 0);
    sp_execute_write_row (run, r, "memory", "scratch", 0, 0, all[r].scratch, 0, 0, 0);
    sp_execute_write_row (run, r, "memory", "context", 0, 0, all[r].context, 0, 0, 0);
    sp_execute_write_row (run, r, "memory", "communicators", 0, all[r].n_communicators, all[r].communicators, 0, 0, 0);
    sp_execute_write_row (run, r, "memory", "used", 0, 0, all[r].used, 0, 0, 0);
  }
  return TRUE;
}

/* --- verification ------------------------------------------------------------------------------------------------- */

/* Of all ranks, which are threads of one process. */
typedef struct {
  const SpRecording **recordings;
  SpPlayer **players;
} Others;

static double *
get_gradients (gint32 rank, gint32 position, gint32 flat, gpointer data)
{
  const Others *others = data;
  const GArray *kept = others->recordings[rank]->gradients;

  for (guint i = 0; i < kept->len; i++) {
    const SpGradients *g = &g_array_index (kept, SpGradients, i);
    if (g->position == position && g->flat == flat)
      return g_memdup2 (sp_player_gradients (others->players[rank], i),
                        (gsize) g->gradients.elements * sizeof (double));
  }
  return NULL;
}

static double
norm_of (const double *a, const double *b, gint64 n)
{
  double sum = 0;

  for (gint64 i = 0; i < n; i++)
    sum += (a[i] - (b != NULL ? b[i] : 0)) * (a[i] - (b != NULL ? b[i] : 0));
  return sqrt (sum);
}

/* Of all tensors, beside the rehearsal's. */
static void
write_differences (const SpExecuteRun *run, const char *kind, const SpRehearsal *got, const SpRehearsal *expected)
{
  for (guint i = 0; i < got->tensors->len; i++) {
    const SpRehearsedTensor *a = &g_array_index (got->tensors, SpRehearsedTensor, i);
    const SpRehearsedTensor *b = &g_array_index (expected->tensors, SpRehearsedTensor, i);
    double all = norm_of (b->gradient, NULL, b->rows * b->cols);
    double off = norm_of (a->gradient, b->gradient, b->rows * b->cols);

    sp_execute_write_row (run, -1, kind, b->name, b->layer, 0, 0, 0, all, all > 0 ? off / all : off);
  }
}

static gboolean
compare (const SpExecuteRun *run, const Others *others, double loss, GError **error)
{
  g_autoptr (SpRehearsal) expected = sp_rehearse (run->program, SEED, error);
  if (expected == NULL)
    return FALSE;
  g_autoptr (SpRehearsal) rounded = sp_rehearse_rounded (run->program, SEED, error);
  if (rounded == NULL)
    return FALSE;
  g_autoptr (SpRehearsal) got = sp_rehearsal_assemble (run->program, 1e-6, get_gradients, (gpointer) others, error);
  if (got == NULL)
    return FALSE;
  sp_execute_write_row (run, -1, "loss", "", 0, 0, 0, 0, expected->loss, loss);
  sp_execute_write_row (run, -1, "rounded-loss", "", 0, 0, 0, 0, expected->loss, rounded->loss);
  write_differences (run, "gradient", got, expected);
  write_differences (run, "rounded", rounded, expected);
  return TRUE;
}

static gboolean
verify (SpExecuteRun *run, GError **error)
{
  int size = sp_ranks_size (run->rank);
  g_autofree const SpRecording **recordings = g_new0 (const SpRecording *, size);
  g_autofree SpPlayer **players = g_new0 (SpPlayer *, size);
  Others others = { recordings, players };
  double step_s = 0, loss = 0, *none = &step_s;
  g_autofree double *all = g_new (double, size);

  sp_player_keep_gradients (run->player, TRUE);
  if (!sp_player_step (run->player, SP_TIMING_NONE, &step_s, error) || !gather_counts (run, &loss, error) ||
      !sp_ranks_gather (run->rank, &run->recording, sizeof run->recording, recordings, error) ||
      !sp_ranks_gather (run->rank, &run->player, sizeof run->player, players, error))
    return FALSE;
  gboolean good = run->out == NULL || compare (run, &others, loss, error);
  sp_player_keep_gradients (run->player, FALSE);
  /* What rank 0 reads is the others'. */
  return good && sp_ranks_gather (run->rank, none, sizeof *none, all, error);
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

gboolean
sp_execution_read (SpExecution *execution, int ranks, GError **error)
{
  for (guint i = 0; i < execution->files->len; i++) {
    const char *file = execution->files->pdata[i];
    g_autofree char *text = NULL;
    gsize length = 0;
    SpProgram *program;

    if (!g_file_get_contents (file, &text, &length, error) ||
        (program = sp_program_read_text (text, length, file, error)) == NULL)
      return FALSE;
    g_ptr_array_add (execution->programs, program);
    if (ranks > 0 && program->world != ranks) {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT, "%s: is for %d GPUs, and here are %d (--gpus)", file,
                   program->world, ranks);
      return FALSE;
    }
  }
  return TRUE;
}

static gboolean
run_program (SpExecuteRun *run, GError **error)
{
  const SpExecution *execution = run->execution;
  double loss = 0;
  g_autoptr (SpRecording) recording = sp_record (run->program, run->rank->rank, SEED, error);
  if (recording == NULL)
    return FALSE;
  g_autoptr (SpPlayer) player = sp_player_new (run->rank, run->program, recording, FALSE, execution->attention, error);
  if (player == NULL)
    return FALSE;
  run->recording = recording;
  run->player = player;
  if (!(execution->verifies ? sp_player_start (player, SEED, error) : sp_player_start_quick (player, error)))
    return FALSE;
  if (execution->verifies)
    return verify (run, error);
  return run_steps (run, error) && gather_counts (run, &loss, error) && sp_execute_gather_waits (run, error) &&
         gather_commands (run, error);
}

static gboolean
fail_write (const SpExecution *execution, const char *kept, GError **error)
{
  int code = errno != 0 ? errno : EIO;

  g_set_error (error, G_IO_ERROR, (int) g_io_error_from_errno (code), "%s: cannot write: %s%s", execution->output,
               g_strerror (code), kept);
  return FALSE;
}

static FILE *
open_output (const SpExecution *execution, SpRank *rank, GError **error)
{
  g_autoptr (SpMeasured) head = sp_measured_new ();
  g_autoptr (GString) text = g_string_new ("# seqpar-executed: 2\n");
  FILE *out = fopen (execution->output, "w");

  if (out == NULL) {
    fail_write (execution, "", error);
    return NULL;
  }
  if (!sp_gpu_describe (rank->local_rank, head, error)) {
    fclose (out);
    return NULL;
  }
  for (guint i = 0; sp_measured_key_names[i] != NULL; i++)
    if (head->fields[i] != NULL)
      g_string_append_printf (text, "# %s: %s\n", sp_measured_key_names[i], head->fields[i]);
  gboolean ours = execution->attention == SP_ATTENTION_OWN ||
                  (execution->attention == SP_ATTENTION_QUICKEST && sp_cudnn_version (NULL) == 0);
  g_string_append_printf (text, "# attention: %s\n",
                          sp_attention_names[ours ? SP_ATTENTION_OWN : execution->attention]);
  fputs (text->str, out);
  fputs (columns, out);
  return out;
}

gboolean
sp_execute_rank (SpRank *rank, gpointer data, GError **error)
{
  const SpExecution *execution = data;
  g_autoptr (SpSensor) sensor = sp_sensor_new (rank->local_rank);
  SpExecuteRun run = { .execution = execution, .rank = rank, .sensor = sensor };
  gboolean good = TRUE;

  if (rank->rank == 0 && (run.out = open_output (execution, rank, error)) == NULL)
    return FALSE;
  for (guint i = 0; good && i < execution->programs->len; i++) {
    run.file = execution->files->pdata[i];
    run.program = execution->programs->pdata[i];
    g_autofree char *all = g_malloc ((gsize) sp_ranks_size (rank));
    /* Nobody holds on to another's memory when the next one's is counted. */
    good = run_program (&run, error) && sp_ranks_gather (rank, "", 1, all, error);
    if (!good)
      g_prefix_error (error, "%s: ", run.file);
    errno = 0; /* an earlier row's error has left its mark alone */
    if (run.out != NULL && (fflush (run.out) != 0 || ferror (run.out)) && good)
      good = fail_write (execution, "; what is in it is kept", error);
    if (run.out != NULL)
      fprintf (stderr, "%s: %s\n", run.file, good ? "done" : "failed");
  }
  if (run.out != NULL)
    fclose (run.out);
  return good;
}
