/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar sweep SCENARIO: one or a few keys at many values, as a CSV that goes on where it was cut short. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/ranks.h"
#include "cli/sweep.h"
#include "models/inputs/ini.h"
#include "models/inputs/csv.h"

typedef struct {
  char **rest, **sets, **axes;
  char *engine, *convention, *csv;
  gboolean intervals;
  gint threads;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_strfreev (o->sets);
  g_strfreev (o->axes);
  g_free (o->engine);
  g_free (o->convention);
  g_free (o->csv);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "sweep", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->axes, "Once, or once for each axis", "KEY=VALUES" },
    { "set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->sets, "Over the file; as often as wanted", "KEY=VALUE" },
    { "csv", 0, 0, G_OPTION_ARG_FILENAME, &o->csv, "Write the rows there, and go on where it was cut short", "FILE" },
    { "engine", 0, 0, G_OPTION_ARG_STRING, &o->engine, "estimate (default) or simulate", "NAME" },
    { "intervals", 0, 0, G_OPTION_ARG_NONE, &o->intervals, "Of 95 %, with a fitted profile: some 50 ms a point", NULL },
    { "mfu-convention", 0, 0, G_OPTION_ARG_STRING, &o->convention, "seqpar, megatron, palm or llm-foundry", "NAME" },
    { "threads", 0, 0, G_OPTION_ARG_INT, &o->threads, "At most (default: one a processor)", "N" },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, "SCENARIO" },
    { NULL },
  };
  return sp_cli_parse (
      args, entries,
      "VALUES are a list, 0,1,3, with ranges in it: 1..8, 0%..5%+1%, 64K..4096K*2. With ; they are separated by\n"
      "that: order=tensor,ulysses,ring,lasp,data,pipeline;tensor,ring,ulysses,lasp,data,pipeline. Keys joined by :\n"
      "change together: ulysses:ring=1:16,8:2,16:1, nodes:data=1..8*2. A layout that does not fit is a row with what\n"
      "it lacks, one that is refused a row with the reason.\n" SP_RANKS_HELP,
      out, error);
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

typedef struct {
  const SpSweep *sweep;
  const SpPlanRanks *ranks; /* the first one writes */
  const char *path;
  int fd;            /* -1: not opened yet, or no file */
  int lock;          /* of a file that was there, held while it is gone on with; -1: none */
  gint64 size;       /* of the file, as it was found */
  GString *held;     /* rows before the first that is not refused: until there is one nothing is written */
  char **old;        /* [points] lines that were there; NULL: none */
  gboolean shuffled; /* rows of the file are not in the sweep's order */
  guint counts[SP_OUTCOME_FAILED + 1], done, n;
  gint64 shown; /* when progress was */
  gboolean terminal;
  int failed; /* errno */
} File;

static void
count (File *file, const char *outcome)
{
  for (guint i = 0; sp_sweep_outcomes[i] != NULL; i++)
    if (g_str_equal (outcome, sp_sweep_outcomes[i]))
      file->counts[i]++;
  file->done++;
}

/* Of the first `n` cells of a row, as one word. */
static char *
key_of_row (const SpCsv *csv, guint row, guint n)
{
  g_auto (GStrv) cells = g_new0 (char *, n + 1);

  for (guint i = 0; i < n; i++)
    cells[i] = sp_csv_text (csv, row, (gint) i);
  return g_strjoinv ("\037", cells);
}

static GHashTable *
points_by_key (const SpSweep *sweep)
{
  GHashTable *points = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);

  for (guint i = 0; i < sp_sweep_size (sweep); i++) {
    g_auto (GStrv) cells = sp_sweep_cells (sweep, i);
    g_hash_table_insert (points, g_strjoinv ("\037", cells), GUINT_TO_POINTER (i + 1));
  }
  return points;
}

static char *
line_of_row (const SpCsv *csv, guint row)
{
  const char *line = csv->text + g_array_index (csv->rows, guint64, row);

  return g_strndup (line, strcspn (line, "\n") + 1);
}

static gboolean
take_rows (File *file, const SpCsv *csv, GError **error)
{
  g_autoptr (GHashTable) points = points_by_key (file->sweep);
  guint n = sp_sweep_n_keys (file->sweep), last = 0;
  gint inputs, outcome;

  if (!sp_csv_need (csv, "inputs", &inputs, error) || !sp_csv_need (csv, "outcome", &outcome, error))
    return FALSE;
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *key = key_of_row (csv, row, n), *of = sp_csv_text (csv, row, inputs);
    g_autofree char *said = sp_csv_text (csv, row, outcome);
    guint point = GPOINTER_TO_UINT (g_hash_table_lookup (points, key));
    g_strdelimit (key, "\037", ' ');
    if (!g_str_equal (of, file->sweep->inputs))
      return sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                          "%s: row %u is of other inputs or options than this sweep: expected a new file, or the same "
                          "scenario, files and options as before",
                          file->path, row + 1);
    if (point == 0 || file->old[point - 1] != NULL)
      return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: row %u (%s) %s: expected a new file", file->path, row + 1,
                          key, point == 0 ? "is none of this sweep's points" : "is there twice");
    file->old[point - 1] = line_of_row (csv, row);
    file->shuffled |= point < last;
    last = point;
    count (file, said);
  }
  /* A point that comes now belongs before a row that is there. */
  file->shuffled |= csv->rows->len > 0 && last > csv->rows->len;
  return TRUE;
}

static gboolean
refuse_taken (const File *file, GError **error)
{
  return sp_cli_fail (
      error, SP_CLI_ERROR_INPUT,
      "%s: cannot be written: another seqpar writes it; expected a file of its own, or this again when that "
      "has ended",
      file->path);
}

/* What an earlier run left in the file; its last line, if it is not whole, is cut off. */
static gboolean
resume (File *file, GError **error)
{
  GStatBuf status;
  gsize length;

  if (file->path == NULL || g_stat (file->path, &status) != 0 || status.st_size == 0)
    return TRUE;
  file->lock = g_open (file->path, O_RDONLY | O_CLOEXEC, 0);
  if (file->lock >= 0 && flock (file->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return refuse_taken (file, error);
  char *text = sp_read_measurements (file->path, &length, error);
  if (text == NULL)
    return FALSE;
  g_autofree char *header = sp_sweep_header (file->sweep);
  const char *end = strchr (text, '\n');
  gboolean begun = end == NULL && g_str_has_prefix (header, text); /* killed within its first line */
  if (!begun && !g_str_has_prefix (text, header)) {
    g_free (text);
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                        "%s: is there and is no CSV of this sweep: its header is another; expected a new file",
                        file->path);
  }
  if (begun) {
    g_free (text);
    return truncate (file->path, 0) == 0 ||
           sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: cannot be written: %s", file->path, g_strerror (errno));
  }
  g_autoptr (SpCsv) csv = sp_csv_new (file->path, text, length, error);
  if (csv == NULL || !take_rows (file, csv, error))
    return FALSE;
  file->size = (gint64) csv->whole;
  return csv->whole == length || truncate (file->path, (off_t) csv->whole) == 0 ||
         sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: cannot be written: %s", file->path, g_strerror (errno));
}

static gboolean
write_all (File *file, const char *text)
{
  for (gsize n = strlen (text); n > 0 && file->failed == 0;) {
    gssize done = write (file->fd, text, n);
    if (done < 0 && errno != EINTR)
      file->failed = errno;
    text += MAX (done, 0);
    n -= (gsize) MAX (done, 0);
  }
  return file->failed == 0;
}

/* Another sweep's rows are in it, or are about to be. Where files cannot be locked nobody knows. */
static gboolean
is_taken (File *file)
{
  struct stat status;

  if (fstat (file->fd, &status) != 0 || !S_ISREG (status.st_mode))
    return FALSE;
  if (file->lock < 0 && flock (file->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return TRUE;
  return status.st_size != file->size;
}

static gboolean
open_file (File *file)
{
  g_autofree char *header = sp_sweep_header (file->sweep);

  file->fd = g_open (file->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file->fd < 0) {
    file->failed = errno;
    return FALSE;
  }
  if (is_taken (file)) {
    file->failed = EWOULDBLOCK;
    return FALSE;
  }
  return file->size > 0 || write_all (file, header);
}

static void
show_progress (File *file)
{
  gint64 now = g_get_monotonic_time ();

  if (!file->terminal || now < file->shown + G_USEC_PER_SEC / 5)
    return;
  file->shown = now;
  g_autofree char *done = sp_text_count (file->done), *all = sp_text_count (file->n);
  fprintf (stderr, "\rsweep: %s of %s points\033[K", done, all);
}

static gboolean
write_row (guint point, const char *line, SpOutcome outcome, gpointer data)
{
  File *file = data;

  file->counts[outcome]++;
  file->done++;
  show_progress (file);
  g_string_append (file->held, line);
  if (file->counts[SP_OUTCOME_REFUSED] == file->done)
    return TRUE;
  if (!sp_ranks_is_first (file->ranks)) {
    g_string_truncate (file->held, 0);
    return TRUE;
  }
  if (file->fd < 0 && !open_file (file))
    return FALSE;
  gboolean written = write_all (file, file->held->str);
  g_string_truncate (file->held, 0);
  return written;
}

/* Rows that were made later belong before others: the file again, in order. */
static gboolean
sort_file (File *file, GError **error)
{
  gsize length;
  char *text = sp_read_measurements (file->path, &length, error);

  if (text == NULL)
    return FALSE;
  g_autoptr (SpCsv) csv = sp_csv_new (file->path, text, length, error);
  if (csv == NULL)
    return FALSE;
  g_autoptr (GHashTable) points = points_by_key (file->sweep);
  g_auto (GStrv) lines = g_new0 (char *, file->n + 2);
  guint n = sp_sweep_n_keys (file->sweep);
  lines[0] = sp_sweep_header (file->sweep);
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *key = key_of_row (csv, row, n);
    lines[GPOINTER_TO_UINT (g_hash_table_lookup (points, key))] = line_of_row (csv, row);
  }
  g_autofree char *sorted = g_strjoinv ("", lines);
  return g_file_set_contents (file->path, sorted, -1, error);
}

static void
add_summary (const File *file, GString *out)
{
  const char *comma = "";

  g_string_append_printf (out, "%s: %u point%s: ", file->path, file->n, sp_plural (file->n));
  for (guint i = 0; sp_sweep_outcomes[i] != NULL; i++) {
    if (file->counts[i] == 0)
      continue;
    g_string_append_printf (out, "%s%u %s", comma, file->counts[i],
                            i == SP_OUTCOME_FITS && file->counts[i] != 1 ? "fit" : sp_sweep_outcomes[i]);
    comma = ", ";
  }
  g_string_append_c (out, '\n');
}

/* Points that the file lacks, as the first rank sees it, and what it counted of the others; NULL: a rank has failed. */
static GArray *
missing_points (File *file, GError **error)
{
  g_autoptr (GArray) points = g_array_new (FALSE, FALSE, sizeof (guint));
  g_autoptr (GByteArray) own = g_byte_array_new ();
  const SpPlanRanks *ranks = file->ranks;

  for (guint i = 0; i < file->n && sp_ranks_is_first (ranks); i++)
    if (file->old[i] == NULL)
      g_array_append_val (points, i);
  if (ranks == NULL || ranks->n == 1)
    return g_steal_pointer (&points);
  if (ranks->rank == 0) {
    g_byte_array_append (own, (const guint8 *) file->counts, sizeof file->counts);
    g_byte_array_append (own, (const guint8 *) points->data, points->len * (guint) sizeof (guint));
  }
  g_autoptr (GByteArray) all = ranks->share (own, ranks->data, error);
  if (all == NULL)
    return NULL;
  memcpy (file->counts, all->data, sizeof file->counts);
  g_array_set_size (points, 0);
  g_array_append_vals (points, all->data + sizeof file->counts,
                       (all->len - (guint) sizeof file->counts) / (guint) sizeof (guint));
  file->done = file->n - points->len;
  return g_steal_pointer (&points);
}

static gboolean
write_file (File *file, guint threads, GString *out, GError **error)
{
  const SpSweepSink sink = { write_row, file, threads, file->ranks };
  g_autoptr (GArray) points = missing_points (file, error);

  gboolean good = points != NULL && sp_sweep_run (file->sweep, points, &sink, error);
  if (file->terminal)
    fputs ("\r\033[K", stderr);
  if (file->fd >= 0 && close (file->fd) != 0 && file->failed == 0)
    file->failed = errno;
  if (!good)
    return FALSE;
  if (file->failed == EWOULDBLOCK)
    return refuse_taken (file, error);
  if (file->failed != 0)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: cannot be written: %s", file->path, g_strerror (file->failed));
  if (file->counts[SP_OUTCOME_REFUSED] == file->n)
    return sp_sweep_refuse (file->sweep, file->held->str, error);
  if (file->shuffled && points->len > 0 && !sort_file (file, error))
    return FALSE;
  add_summary (file, out);
  return TRUE;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static gboolean
run (const Options *o, const SpSweep *sweep, const SpPlanRanks *ranks, GString *out, GError **error)
{
  guint n = sp_sweep_size (sweep);
  g_auto (GStrv) old = g_new0 (char *, n + 1);
  g_autoptr (GString) held = g_string_new (NULL);
  gboolean is_first = sp_ranks_is_first (ranks);
  File file = { .sweep = sweep,
                .ranks = ranks,
                .path = o->csv,
                .fd = -1,
                .lock = -1,
                .held = held,
                .old = old,
                .n = n,
                .terminal = isatty (STDERR_FILENO) && is_first };

  if (sp_cli_is_stdout (o->csv)) {
    g_autoptr (GString) text = sp_sweep_text (sweep, (guint) o->threads, ranks, error);
    if (text != NULL)
      g_string_append_len (out, text->str, (gssize) text->len);
    return text != NULL;
  }
  gboolean done = (!is_first || (sp_cli_check_output (o->csv, error) && resume (&file, error))) &&
                  write_file (&file, (guint) o->threads, out, error);
  if (file.lock >= 0)
    close (file.lock);
  for (guint i = 0; i < n; i++)
    g_clear_pointer (&old[i], g_free); /* with gaps, so not as a list */
  return done;
}

static gboolean
sweep_on (const SpPlanRanks *ranks, char **args, GString *out, GError **error)
{
  static const char *const positional[] = { "SCENARIO", NULL };
  static const char *const engines[] = { "estimate", "simulate", NULL };
  g_auto (Options) options = { NULL };
  guint engine = 0, convention = SP_MFU_SEQPAR;
  SpParsed parsed = parse (args, &options, out, error);

  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!sp_cli_positional (options.rest, positional, error) ||
      !sp_cli_choice ("--engine", options.engine, engines, &engine, error) ||
      !sp_cli_choice ("--mfu-convention", options.convention, sp_mfu_names, &convention, error))
    return FALSE;
  if (options.axes == NULL)
    return sp_cli_usage (error, "--sweep is missing");
  if (options.threads < 0 || options.threads > 1024)
    return sp_cli_usage (error, "--threads %d: expected 0 (one a processor) to 1024", options.threads);
  g_autoptr (SpSweep) sweep = sp_sweep_new (options.rest[0], options.sets, options.axes, error);
  if (sweep == NULL || !sp_sweep_check_sets (sweep, error))
    return FALSE;
  sweep->simulates = engine == 1;
  sweep->intervals = options.intervals;
  sweep->convention = convention;
  if (sweep->intervals && !sp_sweep_may_have_intervals (sweep))
    return sp_cli_fail (
        error, SP_CLI_ERROR_INPUT,
        "--intervals: %s has no profile of fitted curves, whose errors intervals are made of; use --set "
        "profile=NAME (seqpar show profile lists the shipped ones)",
        sweep->path);
  sp_sweep_prepare (sweep);
  return run (&options, sweep, ranks, out, error);
}

gboolean
sp_command_sweep (char **args, GString *out, GError **error)
{
  return sp_cli_on_ranks (sweep_on, args, out, error);
}
