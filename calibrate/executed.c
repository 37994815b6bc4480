/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/executed.h"

#include <string.h>

#include "sim/op-form.h"

#define VERSION "# seqpar-executed: "
#define NEWEST "2"
#define OLDER "1" /* without rows exposed-transfer and waited */

enum {
  PROGRAM,
  RANK,
  ROW,
  NAME,
  QUEUE,
  PHASE,
  LAYER,
  MICRO_BATCH,
  GROUP,
  M,
  N,
  K,
  BATCH,
  HEADS,
  KV_HEADS,
  BYTES,
  REPEAT,
  START,
  END,
  CLOCK,
  POWER,
  TEMPERATURE,
  THROTTLE,
  N_COLUMNS,
  N_OLDER = CLOCK /* columns, of files before the last four */
};

static const char *const names[] = { "program",       "rank",     "row",    "name",    "queue", "phase",    "layer",
                                     "micro_batch",   "group",    "m",      "n",       "k",     "batch",    "heads",
                                     "kv_heads",      "bytes",    "repeat", "start_s", "end_s", "clock_hz", "power_w",
                                     "temperature_c", "throttle", NULL };
G_STATIC_ASSERT (G_N_ELEMENTS (names) == N_COLUMNS + 1);

typedef struct {
  const char *path;
  guint line;
  guint n_columns; /* of this file */
  SpExecuted *into;
} Reader;

static void
run_free (gpointer data)
{
  SpExecutedRun *run = data;

  g_free (run->program);
  g_array_unref (run->step_s);
  g_array_unref (run->issue_s);
  g_array_unref (run->clock_hz);
  g_array_unref (run->power_w);
  g_array_unref (run->ranks);
  g_free (run);
}

void
sp_executed_free (SpExecuted *executed)
{
  g_ptr_array_unref (executed->runs);
  g_free (executed->card);
  g_free (executed->attention);
  g_free (executed);
}

/* Rows of a run follow each other. */
static SpExecutedRun *
run_of (SpExecuted *executed, const char *program)
{
  SpExecutedRun *last = executed->runs->len > 0 ? executed->runs->pdata[executed->runs->len - 1] : NULL;

  if (last != NULL && g_str_equal (last->program, program))
    return last;
  SpExecutedRun *run = g_new0 (SpExecutedRun, 1);
  run->program = g_strdup (program);
  run->step_s = g_array_new (FALSE, FALSE, sizeof (double));
  run->issue_s = g_array_new (FALSE, FALSE, sizeof (double));
  run->clock_hz = g_array_new (FALSE, FALSE, sizeof (double));
  run->power_w = g_array_new (FALSE, FALSE, sizeof (double));
  run->ranks = g_array_new (FALSE, TRUE, sizeof (SpExecutedRank));
  g_ptr_array_add (executed->runs, run);
  return run;
}

static gboolean
refuse (const Reader *r, guint column, const char *value, const char *expected, GError **error)
{
  g_autofree char *shown = sp_measured_shown (value);

  return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, r->path, r->line, "%s = \"%s\": expected %s", names[column],
                           shown, expected);
}

static gboolean
read_times (const Reader *r, char **cells, double *ret_start_s, double *ret_end_s, GError **error)
{
  for (guint c = START; c <= END; c++)
    if (!sp_measured_number (cells[c], 0, 1e9, c == START ? ret_start_s : ret_end_s))
      return refuse (r, c, cells[c], "seconds, 0 or more", error);
  return TRUE;
}

/* The one of a row, with all before it; NULL: it names none. */
static SpExecutedRank *
rank_of (const Reader *r, SpExecutedRun *run, char **cells, GError **error)
{
  enum { MOST = 1 << 16 };
  gint64 rank;

  if (!sp_measured_whole (cells[RANK], 0, MOST, &rank)) {
    refuse (r, RANK, cells[RANK], "a rank, 0 or more", error);
    return NULL;
  }
  while (run->ranks->len <= rank) {
    SpExecutedRank silent = { .exposed_s = -1, .own_s = -1 };
    g_array_append_val (run->ranks, silent);
  }
  return &g_array_index (run->ranks, SpExecutedRank, rank);
}

static gboolean
read_op_name (const Reader *r, char **cells, guint *ret, GError **error)
{
  for (*ret = 0; *ret < SP_N_OPS; (*ret)++)
    if (g_str_equal (sp_op_name (*ret), cells[NAME]))
      return TRUE;
  return refuse (r, NAME, cells[NAME], "the name of an op", error);
}

static gboolean
read_op (const Reader *r, SpExecutedRun *run, char **cells, GError **error)
{
  SpExecutedRank *rank = rank_of (r, run, cells, error);
  double start_s;
  guint op;

  if (rank == NULL || !read_op_name (r, cells, &op, error) || !read_times (r, cells, &start_s, &rank->op_s[op], error))
    return FALSE;
  return sp_measured_whole (cells[M], 1, G_GINT64_CONSTANT (1) << 53, &rank->op_times[op]) ||
         refuse (r, M, cells[M], "a whole number from 1 to 2^53", error);
}

static gboolean
read_exposed (const Reader *r, SpExecutedRun *run, char **cells, GError **error)
{
  SpExecutedRank *rank = rank_of (r, run, cells, error);
  double start_s;

  return rank != NULL && read_times (r, cells, &start_s, &rank->exposed_s, error);
}

static gboolean
read_own (const Reader *r, SpExecutedRun *run, char **cells, GError **error)
{
  SpExecutedRank *rank = rank_of (r, run, cells, error);
  double start_s;

  return rank != NULL && read_times (r, cells, &start_s, &rank->own_s, error);
}

/* What a card said; 0 where it did not, or the file has no such column. */
static gboolean
read_said (const Reader *r, char **cells, guint column, double *ret, GError **error)
{
  *ret = 0;
  return column >= r->n_columns || *cells[column] == '\0' || sp_measured_number (cells[column], 0, 1e12, ret) ||
         refuse (r, column, cells[column], "a number, 0 or more, or nothing", error);
}

static gboolean
read_step (const Reader *r, SpExecutedRun *run, char **cells, GError **error)
{
  double issue_s, step_s, clock_hz, power_w;

  if (!read_times (r, cells, &issue_s, &step_s, error) || !read_said (r, cells, CLOCK, &clock_hz, error) ||
      !read_said (r, cells, POWER, &power_w, error))
    return FALSE;
  if (step_s <= 0)
    return refuse (r, END, cells[END], "seconds above 0", error);
  g_array_append_val (run->step_s, step_s);
  g_array_append_val (run->issue_s, issue_s);
  g_array_append_val (run->clock_hz, clock_hz);
  g_array_append_val (run->power_w, power_w);
  return TRUE;
}

static gboolean
read_bytes (const Reader *r, char **cells, gint64 *ret_bytes, GError **error)
{
  return sp_measured_whole (cells[BYTES], 0, G_GINT64_CONSTANT (1) << 53, ret_bytes) ||
         refuse (r, BYTES, cells[BYTES], "a whole number up to 2^53", error);
}

static gboolean
read_payload (const Reader *r, SpExecutedRun *run, char **cells, GError **error)
{
  gint64 bytes;
  guint axis = 0;

  while (axis < SP_N_AXES && !g_str_equal (sp_axis_name (axis), cells[NAME]))
    axis++;
  if (axis == SP_N_AXES)
    return refuse (r, NAME, cells[NAME], "the name of an axis", error);
  if (!read_bytes (r, cells, &bytes, error))
    return FALSE;
  run->payload_bytes[axis] = MAX (run->payload_bytes[axis], bytes);
  return TRUE;
}

static gboolean
read_memory (const Reader *r, SpExecutedRun *run, char **cells, GError **error)
{
  static const char *const kinds[] = { "arena", "context", "communicators", "used", "scratch", NULL };
  gint64 *const to[] = { &run->arena_bytes, &run->context_bytes, &run->communicator_bytes, &run->used_bytes,
                         &run->scratch_bytes };
  int kind = sp_measured_index (cells[NAME], kinds);
  gint64 bytes, count;

  if (kind < 0)
    return refuse (r, NAME, cells[NAME], "arena, scratch, context, communicators or used", error);
  if (!read_bytes (r, cells, &bytes, error))
    return FALSE;
  if (kind == 2 && sp_measured_whole (cells[M], 0, 1 << 20, &count))
    run->communicators = MAX (run->communicators, count);
  *to[kind] = MAX (*to[kind], bytes);
  return TRUE;
}

static gboolean
read_row (const Reader *r, char **cells, GError **error)
{
  static const struct {
    const char *row;
    gboolean (*read) (const Reader *r, SpExecutedRun *run, char **cells, GError **error);
  } rows[] = { { "step", read_step },
               { "op", read_op },
               { "exposed", read_exposed },
               { "exposed-transfer", read_own },
               { "wait", NULL },
               { "waited", NULL },
               { "overhead", NULL },
               { "command", NULL },
               { "payload", read_payload },
               { "memory", read_memory },
               { "loss", NULL },
               { "gradient", NULL },
               { "rounded", NULL },
               { "rounded-loss", NULL } };
  guint n = g_strv_length (cells);

  if (n != r->n_columns)
    return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, r->path, r->line, "%u columns: expected %u", n,
                             r->n_columns);
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    if (g_str_equal (rows[i].row, cells[ROW]))
      return rows[i].read == NULL || rows[i].read (r, run_of (r->into, cells[PROGRAM]), cells, error);
  return refuse (
      r, ROW, cells[ROW],
      "step, op, exposed, exposed-transfer, wait, waited, overhead, command, payload, memory, loss, gradient, "
      "rounded or rounded-loss",
      error);
}

static gboolean
read_header (Reader *r, char **cells, GError **error)
{
  guint n = g_strv_length (cells);

  r->n_columns = n == N_OLDER ? N_OLDER : N_COLUMNS;
  for (guint c = 0; c < r->n_columns; c++)
    if (cells[c] == NULL || !g_str_equal (cells[c], names[c]))
      return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, r->path, r->line, "column %u is %s: expected %s", c + 1,
                               cells[c] != NULL ? cells[c] : "missing", names[c]);
  return TRUE;
}

static void
read_comment (const char *line, SpExecuted *executed)
{
  static const char card[] = "# card: ", attention[] = "# attention: ";
  const struct {
    const char *prefix;
    double *to;
  } numbers[] = { { "# power_limit_w: ", &executed->power_limit_w }, { "# max_clock_hz: ", &executed->max_clock_hz } };

  for (guint i = 0; i < G_N_ELEMENTS (numbers); i++)
    if (g_str_has_prefix (line, numbers[i].prefix))
      sp_measured_number (line + strlen (numbers[i].prefix), 0, 1e12, numbers[i].to);

  if (g_str_has_prefix (line, card)) {
    g_free (executed->card);
    executed->card = g_strdup (line + strlen (card));
  }
  if (g_str_has_prefix (line, attention)) {
    g_free (executed->attention);
    executed->attention =
        g_str_equal (line + strlen (attention), "quickest") ? NULL : g_strdup (line + strlen (attention));
  }
}

SpExecuted *
sp_executed_parse (const char *path, const char *text, gsize length, GError **error)
{
  g_autoptr (SpExecuted) executed = g_new0 (SpExecuted, 1);
  Reader r = { .path = path, .into = executed };
  gboolean header = FALSE;

  executed->runs = g_ptr_array_new_with_free_func (run_free);
  executed->card = g_strdup ("");
  executed->attention = g_strdup (SP_OWN_LIBRARY);
  if (!g_utf8_validate (text, (gssize) length, NULL) ||
      !(g_str_has_prefix (text, VERSION NEWEST "\n") || g_str_has_prefix (text, VERSION OLDER "\n"))) {
    sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, path, 1,
                      "expected \"" VERSION NEWEST "\" in the first line, or " OLDER
                      ": what seqpar-measure execute writes");
    return NULL;
  }
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 1; lines[i] != NULL; i++) {
    r.line = i + 1;
    if (lines[i][0] == '#')
      read_comment (lines[i], executed);
    if (lines[i][0] == '#' || lines[i][0] == '\0')
      continue;
    g_auto (GStrv) cells = g_strsplit (lines[i], ",", -1);
    if (!(header ? read_row (&r, cells, error) : read_header (&r, cells, error)))
      return NULL;
    header = TRUE;
  }
  if (!header) {
    sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, path, 0, "ends before the row of column names");
    return NULL;
  }
  return g_steal_pointer (&executed);
}

/* --- of a run ----------------------------------------------------------------------------------------------------- */

static gint
compare (gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return x < y ? -1 : x > y;
}

static double
middle (const GArray *values)
{
  g_autoptr (GArray) sorted = g_array_copy ((GArray *) values);

  g_array_sort (sorted, compare);
  return sorted->len > 0 ? g_array_index (sorted, double, sorted->len / 2) : 0;
}

double
sp_executed_step_s (const SpExecutedRun *run)
{
  return middle (run->step_s);
}

double
sp_executed_clock_hz (const SpExecutedRun *run)
{
  return middle (run->clock_hz);
}

double
sp_executed_power_w (const SpExecutedRun *run)
{
  return middle (run->power_w);
}

const SpExecutedRank *
sp_executed_rank (const SpExecutedRun *run, guint rank)
{
  static const SpExecutedRank silent = { .exposed_s = -1, .own_s = -1 };

  return rank < run->ranks->len ? &g_array_index (run->ranks, SpExecutedRank, rank) : &silent;
}
