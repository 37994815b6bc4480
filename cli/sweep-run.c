/* SPDX-License-Identifier: Apache-2.0 */
/* The points of a sweep on all processors, their rows in order. */
#include <string.h>

#include "cli/sweep.h"
#include "models/writer.h"
#include "models/inputs/csv.h"

#define CHUNK 16 /* points that a thread takes at once: estimates are short */

typedef struct {
  const SpSweep *sweep;
  const GArray *points;
  const SpSweepSink *sink;
  GMutex lock;
  char **lines; /* [points] that are made and not handed on */
  guint8 *outcomes;
  guint handed; /* of points, in order */
  gboolean ended;
} Run;

/* What is next in order, as far as it is there. */
static void
hand_on (Run *run)
{
  for (; !run->ended && run->handed < run->points->len && run->lines[run->handed] != NULL; run->handed++) {
    guint point = g_array_index (run->points, guint, run->handed);
    run->ended =
        !run->sink->row (point, run->lines[run->handed], (SpOutcome) run->outcomes[run->handed], run->sink->data);
    g_clear_pointer (&run->lines[run->handed], g_free);
  }
}

static gboolean
is_shared (const Run *run)
{
  return run->sink->ranks != NULL && run->sink->ranks->n > 1;
}

/* `task` is 1 + the chunk. */
static void
run_chunk (gpointer task, gpointer data)
{
  Run *run = data;
  guint first = (GPOINTER_TO_UINT (task) - 1) * CHUNK, n = MIN (CHUNK, run->points->len - first);
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = first; i < first + n; i++) {
    SpOutcome outcome;
    g_mutex_lock (&run->lock);
    gboolean ended = run->ended;
    g_mutex_unlock (&run->lock);
    if (ended)
      return;
    char *line = sp_sweep_row (run->sweep, program, g_array_index (run->points, guint, i), &outcome);
    g_mutex_lock (&run->lock);
    run->lines[i] = line;
    run->outcomes[i] = (guint8) outcome;
    if (!is_shared (run))
      hand_on (run);
    g_mutex_unlock (&run->lock);
  }
}

/* Chunks from `first` on, every `step`-th of them, on all threads. */
static void
run_chunks (Run *run, guint first, guint end, guint step)
{
  guint threads = run->sink->threads > 0 ? run->sink->threads : g_get_num_processors ();
  GThreadPool *pool = g_thread_pool_new (run_chunk, run, (gint) threads, FALSE, NULL);

  for (guint i = first; i < end; i += step)
    g_thread_pool_push (pool, GUINT_TO_POINTER (i + 1), NULL);
  g_thread_pool_free (pool, FALSE, TRUE);
}

/* A row of another rank: its place, outcome, and the line with its zero. */
typedef struct {
  guint32 i, outcome, bytes;
} Packed;

static GByteArray *
pack_rows (const Run *run, guint first, guint end)
{
  GByteArray *own = g_byte_array_new ();

  for (guint i = first; i < end; i++) {
    if (run->lines[i] == NULL)
      continue;
    const Packed packed = { i, run->outcomes[i], (guint32) strlen (run->lines[i]) + 1 };
    g_byte_array_append (own, (const guint8 *) &packed, sizeof packed);
    g_byte_array_append (own, (const guint8 *) run->lines[i], packed.bytes);
  }
  return own;
}

static gboolean
share_rows (Run *run, guint first, guint end, GError **error)
{
  const SpPlanRanks *ranks = run->sink->ranks;
  g_autoptr (GByteArray) own = pack_rows (run, first, end);
  g_autoptr (GByteArray) all = ranks->share (own, ranks->data, error);
  Packed packed;

  for (gsize at = 0; all != NULL && at < all->len; at += sizeof packed + packed.bytes) {
    memcpy (&packed, all->data + at, sizeof packed);
    g_free (run->lines[packed.i]);
    run->lines[packed.i] = g_strdup ((const char *) all->data + at + sizeof packed);
    run->outcomes[packed.i] = (guint8) packed.outcome;
  }
  hand_on (run);
  return all != NULL;
}

/* Rounds of chunks, the ranks' in turn: after each all have its rows, so that little is lost of a sweep that is killed. */
static gboolean
run_rounds (Run *run, guint chunks, GError **error)
{
  const SpPlanRanks *ranks = run->sink->ranks;
  guint threads = run->sink->threads > 0 ? run->sink->threads : g_get_num_processors ();
  guint round = ranks->n * threads;

  for (guint first = 0; first < chunks && !run->ended; first += round) {
    guint end = MIN (chunks, first + round);
    run_chunks (run, first + ranks->rank, end, ranks->n);
    if (!share_rows (run, first * CHUNK, MIN (run->points->len, end * CHUNK), error))
      return FALSE;
  }
  return TRUE;
}

gboolean
sp_sweep_run (const SpSweep *sweep, const GArray *points, const SpSweepSink *sink, GError **error)
{
  guint chunks = (points->len + CHUNK - 1) / CHUNK;
  Run run = { .sweep = sweep, .points = points, .sink = sink };
  gboolean good = TRUE;

  g_mutex_init (&run.lock);
  run.lines = g_new0 (char *, points->len + 1);
  run.outcomes = g_new0 (guint8, points->len + 1);
  if (is_shared (&run))
    good = run_rounds (&run, chunks, error);
  else
    run_chunks (&run, 0, chunks, 1);
  for (guint i = 0; i < points->len; i++)
    g_free (run.lines[i]);
  g_free (run.lines);
  g_free (run.outcomes);
  g_mutex_clear (&run.lock);
  return good;
}

gboolean
sp_sweep_refuse (const SpSweep *sweep, const char *line, GError **error)
{
  g_autofree char *header = sp_sweep_header (sweep);
  char *text = g_strconcat (header, line, NULL);
  g_autoptr (SpCsv) csv = sp_csv_new ("", text, strlen (text), NULL);
  g_autofree char *reason = sp_csv_text (csv, 0, sp_csv_find (csv, "reason"));

  return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: every point is refused, the first one: %s", sweep->path, reason);
}

typedef struct {
  GString *text;
  guint refused;
  char *first; /* row that was refused */
} Gathered;

static gboolean
gather (guint point, const char *line, SpOutcome outcome, gpointer data)
{
  Gathered *gathered = data;

  g_string_append (gathered->text, line);
  gathered->refused += outcome == SP_OUTCOME_REFUSED;
  if (outcome == SP_OUTCOME_REFUSED && gathered->first == NULL)
    gathered->first = g_strdup (line);
  return TRUE;
}

GString *
sp_sweep_text (const SpSweep *sweep, guint threads, const SpPlanRanks *ranks, GError **error)
{
  g_autofree char *header = sp_sweep_header (sweep);
  g_autoptr (GArray) points = g_array_new (FALSE, FALSE, sizeof (guint));
  Gathered gathered = { .text = g_string_new (header) };
  const SpSweepSink sink = { gather, &gathered, threads, ranks };

  for (guint i = 0; i < sp_sweep_size (sweep); i++)
    g_array_append_val (points, i);
  gboolean good = sp_sweep_run (sweep, points, &sink, error);
  g_autofree char *first = gathered.first;
  if (good && gathered.refused < points->len)
    return gathered.text;
  if (good)
    sp_sweep_refuse (sweep, first, error);
  g_string_free (gathered.text, TRUE);
  return NULL;
}
