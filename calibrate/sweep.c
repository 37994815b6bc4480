/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/sweep.h"

#include <stdio.h>
#include <string.h>

#include "calibrate/rows.h"
#include "calibrate/sensor.h"

static void
shuffle (GArray *points, guint32 seed)
{
  g_autoptr (GRand) random = g_rand_new_with_seed (seed);

  for (guint i = points->len; i > 1; i--) {
    guint j = (guint) g_rand_int_range (random, 0, (gint32) i);
    SpMeasuredRow swap = g_array_index (points, SpMeasuredRow, j);
    g_array_index (points, SpMeasuredRow, j) = g_array_index (points, SpMeasuredRow, i - 1);
    g_array_index (points, SpMeasuredRow, i - 1) = swap;
  }
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

typedef struct {
  const SpSweep *sweep;
  SpRank *rank;
  SpGpu *gpu;
  SpRows *rows; /* of rank 0 */
  SpSensor *sensor;
  GStringChunk *words;
  gint64 end_us;
  gboolean stop;
} Loop;

static int
count_nodes (SpRank *rank, GError **error)
{
  enum { NAME = 64 };
  int size = sp_ranks_size (rank);
  char mine[NAME] = "";
  g_autofree char *all = g_malloc0 ((gsize) size * NAME);
  g_autoptr (GHashTable) names = g_hash_table_new (g_str_hash, g_str_equal);

  g_strlcpy (mine, g_get_host_name (), NAME);
  if (!sp_ranks_gather (rank, mine, NAME, all, error))
    return 0;
  for (int i = 0; i < size; i++)
    g_hash_table_add (names, all + (gsize) i * NAME);
  return (int) g_hash_table_size (names);
}

static SpRows *
open_rows (const SpSweep *sweep, const SpRank *rank, GError **error)
{
  g_autoptr (SpMeasured) head = sp_measured_new ();

  if (!sp_gpu_describe (rank->local_rank, head, error))
    return NULL;
  sp_measured_note (head, "a sample is the slowest rank's, of a captured batch; order by seed %d", sweep->seed);
  sp_measured_note (head, "communication on streams of the highest priority");
  sp_measured_note (head, "memory of the context is all that the card had in use beside buffers and communicators");
  return sp_rows_open (sweep->output, head, error);
}

static gboolean
add_memory (const Loop *loop, const char *variant, int ranks, int nodes, gint64 bytes, GError **error)
{
  SpMeasuredRow row = sp_measured_row (SP_MEASURED_MEMORY);

  row.variant = variant, row.ranks = ranks, row.nodes = nodes, row.bytes = bytes;
  return loop->rows == NULL || sp_rows_has (loop->rows, &row) || sp_rows_add (loop->rows, &row, error);
}

static gboolean
add_communicator (const Loop *loop, int ranks, int nodes, gint64 *rest, GError **error)
{
  SpCommunicatorBytes one = { 0 };

  if (!sp_gpu_measure_communicator (loop->gpu, ranks, &one, error))
    return FALSE;
  *rest -= one.made + one.collectives + one.sends;
  return add_memory (loop, "communicator", ranks, nodes, one.made, error) &&
         add_memory (loop, "communicator/collectives", ranks, nodes, one.collectives, error) &&
         add_memory (loop, "communicator/sends", ranks, nodes, one.sends, error);
}

/* When all kinds of calls have been made, and the libraries have loaded what they load. */
static gboolean
measure_memory (const Loop *loop, int ranks, int nodes, GError **error)
{
  gint64 rest = sp_gpu_overhead_bytes (loop->gpu);

  for (int size = 2; loop->sweep->kinds & SP_SWEEP_NCCL && size < ranks && nodes == 1; size *= 2)
    if (!add_communicator (loop, size, 1, &rest, error))
      return FALSE;
  if (loop->sweep->nccl && !add_communicator (loop, ranks, nodes, &rest, error))
    return FALSE;
  return add_memory (loop, "context", 1, 1, rest, error);
}

/* A point as a rank tells the others. */
typedef struct {
  double time_s;
  SpReading reading;
  gboolean partial;
} Timed;

static gboolean
time_point (Loop *loop, SpMeasuredRow *row, GError **error)
{
  int size = sp_ranks_size (loop->rank);
  g_autofree Timed *all = g_new0 (Timed, size);
  gint64 start_us = g_get_monotonic_time ();
  Timed mine = { 0 };

  if (!sp_gpu_time (loop->gpu, row, &mine.time_s, &mine.partial, error))
    return FALSE;
  mine.reading = sp_sensor_mean (loop->sensor, start_us, g_get_monotonic_time ());
  if (!sp_ranks_gather (loop->rank, &mine, sizeof mine, all, error))
    return FALSE;
  for (int i = 0; i < size; i++) {
    mine.time_s = MAX (mine.time_s, all[i].time_s);
    mine.partial = mine.partial || all[i].partial;
    sp_reading_join (&mine.reading, &all[i].reading);
  }
  row->time_s = mine.time_s;
  row->mark = mine.partial ? SP_MARK_PARTIAL : SP_MARK_NONE;
  sp_reading_put (&mine.reading, row, loop->words);
  return loop->rows == NULL || sp_rows_add (loop->rows, row, error);
}

static gboolean
run_repeat (Loop *loop, GArray *points, int repeat, GError **error)
{
  shuffle (points, (guint32) (loop->sweep->seed + repeat));
  for (guint i = 0; i < points->len; i++) {
    SpMeasuredRow row = g_array_index (points, SpMeasuredRow, i);
    char order = 'm'; /* rank 0's: measure, skip or end */
    row.repeat = repeat;
    if (loop->rows != NULL && sp_rows_has (loop->rows, &row))
      order = 's';
    if (loop->rows != NULL && loop->end_us > 0 && g_get_monotonic_time () > loop->end_us)
      order = 'e';
    if (!sp_ranks_broadcast (loop->rank, &order, 1, error))
      return FALSE;
    loop->stop = order == 'e';
    if (loop->stop)
      return TRUE;
    if (order == 'm' && !time_point (loop, &row, error))
      return FALSE;
    if (loop->rows != NULL)
      fprintf (stderr, "\rrepeat %d of %d: point %u of %u   ", repeat + 1, loop->sweep->repeats, i + 1, points->len);
  }
  return TRUE;
}

gboolean
sp_sweep_rank (SpRank *rank, gpointer data, GError **error)
{
  const SpSweep *sweep = data;
  int size = sp_ranks_size (rank), nodes = count_nodes (rank, error);
  if (nodes == 0)
    return FALSE;
  g_autoptr (SpGpu) gpu = sp_gpu_new (rank, sweep->nccl, sp_sweep_buffer_bytes (sweep), error);
  if (gpu == NULL)
    return FALSE;
  g_autoptr (SpRows) rows = NULL;
  g_autoptr (GArray) points = sp_sweep_points (sweep, size, nodes);
  g_autoptr (SpSensor) sensor = sp_sensor_new (rank->local_rank);
  g_autoptr (GStringChunk) words = g_string_chunk_new (64);
  Loop loop = { .sweep = sweep, .rank = rank, .gpu = gpu, .sensor = sensor, .words = words };
  if (rank->rank == 0) {
    loop.rows = rows = open_rows (sweep, rank, error);
    if (rows == NULL)
      return FALSE;
  }
  if (sweep->time_limit_s > 0)
    loop.end_us = g_get_monotonic_time () + (gint64) (sweep->time_limit_s * 1e6);
  for (int repeat = 0; repeat < sweep->repeats && !loop.stop; repeat++)
    if (!run_repeat (&loop, points, repeat, error))
      return FALSE;
  /* Forced ones are communicators too, and a sweep that was cut short goes on later. */
  if (sweep->kinds & SP_SWEEP_MEMORY && !loop.stop && sweep->forced == NULL &&
      !measure_memory (&loop, size, nodes, error))
    return FALSE;
  if (rows != NULL)
    fprintf (stderr, "\n%s: %u samples%s\n", sweep->output, sp_rows_count (rows),
             loop.stop ? "; the time limit came first: the same command goes on" : "");
  return TRUE;
}
