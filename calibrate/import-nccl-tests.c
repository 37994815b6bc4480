/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of nccl-tests. Its tables have had, since 2017, "bytes N type op time algbw busbw res", then "size count
 * type [redop] [root] time algbw busbw error", then "#wrong" in place of "error"; so the line of column names says
 * what a row has, and each "time" begins one of out of place and in place. "cputime" (-C 1) is the host's: launch.
 * `size` is payload already. Of root, redop and bus ids nothing is kept, but a redop other than sum is in the variant.
 *
 * Who took part is in the list of devices, else in a heading ("## 4x A40 ..."), else in the command line. The ratio of
 * the two rates, a property of operation and ranks, has to agree.
 */
#include "calibrate/import.h"

#include <math.h>
#include <string.h>

#define MOST_COLUMNS 24

typedef struct {
  const SpImport *import;
  guint line;
  SpMeasuredOp op;                  /* NONE: not said */
  gboolean unused;                  /* an operation that no program has */
  gint64 listed, headed, commanded; /* ranks; 0: not said */
  gint64 nodes;
  GHashTable *hosts;
  char *heading; /* as a word, or NULL */
  /* Of the table that is being read. */
  guint n_columns;
  char *columns[MOST_COLUMNS];
  gint64 ranks, table_nodes;
} State;

/* --- facts of the programs ---------------------------------------------------------------------------------------- */

static const struct {
  const char *program;
  SpMeasuredOp op;
} programs[] = {
  { "all_reduce_perf", SP_MEASURED_ALL_REDUCE },
  { "all_gather_perf", SP_MEASURED_ALL_GATHER },
  { "reduce_scatter_perf", SP_MEASURED_REDUCE_SCATTER },
  { "alltoall_perf", SP_MEASURED_ALL_TO_ALL },
  { "all_to_all_perf", SP_MEASURED_ALL_TO_ALL }, /* as it is called in the first versions */
  { "broadcast_perf", SP_MEASURED_BROADCAST },
  { "sendrecv_perf", SP_MEASURED_SEND_RECEIVE },
  { "reduce_perf", SP_MEASURED_NONE },
  { "gather_perf", SP_MEASURED_NONE },
  { "scatter_perf", SP_MEASURED_NONE },
  { "hypercube_perf", SP_MEASURED_NONE },
};

static const struct {
  const char *type, *dtype;
} types[] = {
  { "half", "fp16" },    { "float", "fp32" },   { "double", "fp64" }, { "bfloat16", "bf16" },
  { "fp8_e4m3", "fp8" }, { "fp8_e5m2", "fp8" }, { "f8e4m3", "fp8" },  { "f8e5m2", "fp8" },
};

/* busbw / algbw, doc/PERFORMANCE.md of nccl-tests. */
static double
bus_factor (SpMeasuredOp op, gint64 ranks)
{
  double n = (double) ranks;
  switch (op) {
  case SP_MEASURED_ALL_REDUCE:
    return 2 * (n - 1) / n;
  case SP_MEASURED_ALL_GATHER:
  case SP_MEASURED_REDUCE_SCATTER:
  case SP_MEASURED_ALL_TO_ALL:
    return (n - 1) / n;
  default:
    return 1;
  }
}

/* The largest deviation that old versions, which print it as "error", let pass (their common.cu). */
static double
allowed_error (const char *type)
{
  if (g_str_equal (type, "half") || g_str_equal (type, "bfloat16"))
    return 1e-2;
  return g_str_equal (type, "float") ? 1e-5 : 1e-12;
}

/* --- lines between tables ----------------------------------------------------------------------------------------- */

static gboolean
is_space (char c)
{
  return c == ' ' || c == '\t';
}

static void
read_program (State *s, const char *line)
{
  g_auto (GStrv) words = sp_import_words (line);
  for (guint w = 0; words[w] != NULL; w++) {
    const char *base = strrchr (words[w], '/');
    base = base != NULL ? base + 1 : words[w];
    for (guint i = 0; i < G_N_ELEMENTS (programs); i++)
      if (g_str_equal (base, programs[i].program)) {
        s->op = programs[i].op;
        s->unused = s->op == SP_MEASURED_NONE;
      }
  }
}

/* Of -a: which of the ranks' times is printed. */
static const char *
average_of (const char *value)
{
  static const char *const which[] = { "rank 0's", "the mean", "the smallest", "the largest" };
  gint64 i;
  return sp_measured_whole (value, 0, 3, &i) ? which[i] : "one";
}

/* The ranks of a command line: processes x threads x GPUs a thread. */
static void
read_command (State *s, const char *line)
{
  static const struct {
    const char *option;
    gboolean launcher;
  } options[] = {
    { "-np", TRUE },         { "-n", TRUE },  { "--ntasks", TRUE }, { "-t", FALSE },
    { "--nthreads", FALSE }, { "-g", FALSE }, { "--ngpus", FALSE },
  };
  g_auto (GStrv) words = sp_import_words (line);
  gint64 ranks = 1;
  gboolean launched = FALSE, within = FALSE;
  for (guint w = 0; words[w] != NULL; w++) {
    within = within || g_str_has_suffix (words[w], "_perf");
    launched = launched || (!within && (strstr (words[w], "mpirun") != NULL || strstr (words[w], "srun") != NULL));
    if (within && g_str_equal (words[w], "-a") && words[w + 1] != NULL)
      sp_measured_note (s->import->into, "line %u of %s: -a %s, so a time is %s of the ranks' means", s->line,
                        s->import->path, words[w + 1], average_of (words[w + 1]));
    for (guint i = 0; i < G_N_ELEMENTS (options); i++) {
      gint64 value;
      if (options[i].launcher == !within && g_str_equal (words[w], options[i].option) && words[w + 1] != NULL &&
          sp_measured_whole (words[w + 1], 1, 1 << 20, &value) && ranks <= 1 << 20)
        ranks *= value;
    }
  }
  s->commanded = ranks > 1 ? ranks : 0;
  s->nodes = launched || ranks == 1 ? 0 : 1; /* one process without a launcher may be one of many */
}

/* "#  Rank  0 Group  0 Pid   1000 on      node0 device  0 [0x0f] NVIDIA A100", or less of it. */
static gboolean
read_device (State *s, const char *line, GError **error)
{
  g_auto (GStrv) words = sp_import_words (line + 1);
  gint64 rank, group = 0;
  if (words[0] == NULL || !g_str_equal (words[0], "Rank") || words[1] == NULL ||
      !sp_measured_whole (words[1], 0, 1 << 24, &rank))
    return TRUE;
  const char *host = "";
  for (guint w = 2; words[w] != NULL && words[w + 1] != NULL && !g_str_equal (words[w], "device"); w++) {
    if (g_str_equal (words[w], "Group"))
      sp_measured_whole (words[w + 1], 0, 1 << 24, &group);
    else if (g_str_equal (words[w], "on"))
      host = words[w + 1];
  }
  if (group != 0)
    return TRUE; /* all groups are alike, and the first is the one that is timed */
  g_autofree char *seat = g_strdup_printf ("#%" G_GINT64_FORMAT, rank);
  if (g_hash_table_contains (s->hosts, seat))
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, s->import->path, s->line,
                             "rank %" G_GINT64_FORMAT " a second time in one list of devices: processes that did not "
                             "join (nccl-tests built without MPI)?",
                             rank);
  g_hash_table_add (s->hosts, g_steal_pointer (&seat));
  g_hash_table_add (s->hosts, g_strconcat ("@", host, NULL));
  s->listed++;
  s->nodes = (gint64) g_hash_table_size (s->hosts) - s->listed;
  const char *card = strstr (line, "] ");
  if (card != NULL)
    sp_measured_say (s->import->into, "card", card + 2);
  return TRUE;
}

static void
forget_devices (State *s)
{
  g_hash_table_remove_all (s->hosts);
  s->listed = 0;
}

/* "## 4x A40 (GPU 0,1), P2P disabled" */
static void
read_heading (State *s, const char *line)
{
  const char *text = line + strspn (line, "# ");
  gsize digits = strspn (text, "0123456789");
  g_autofree char *count = g_strndup (text, digits);
  forget_devices (s);
  s->headed = s->commanded = s->nodes = 0;
  if (digits > 0 && text[digits] == 'x' && is_space (text[digits + 1]))
    sp_measured_whole (count, 1, 1 << 24, &s->headed);
  g_free (s->heading);
  s->heading = sp_measured_word (text);
}

static void
read_versions (State *s, const char *line)
{
  gint64 number;
  const char *library = strstr (line, "nccl-library="), *version = strstr (line, "NCCL version ");
  g_auto (GStrv) words = sp_import_words (library != NULL   ? library + strlen ("nccl-library=")
                                          : version != NULL ? version + strlen ("NCCL version ")
                                                            : "");
  if (words[0] == NULL)
    return;
  if (library != NULL && sp_measured_whole (words[0], 1000, 999999, &number)) {
    gint64 step = number >= 10000 ? 10000 : 1000; /* NCCL_VERSION of nccl.h: from 2.9 on, two digits of minor */
    g_autofree char *text =
        g_strdup_printf ("%d.%d.%d", (int) (number / step), (int) (number % step / 100), (int) (number % 100));
    sp_measured_say (s->import->into, "nccl", text);
  } else if (version != NULL) {
    char *cuda = strstr (words[0], "+cuda");
    if (cuda != NULL) {
      *cuda = '\0';
      sp_measured_say (s->import->into, "cuda", cuda + strlen ("+cuda"));
    }
    sp_measured_say (s->import->into, "nccl", words[0]);
  }
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

static gboolean
is_time (const char *column)
{
  return g_str_equal (column, "time") || g_str_equal (column, "cputime");
}

static gboolean
is_header (const char *line)
{
  if (*line != '#')
    return FALSE;
  g_auto (GStrv) words = sp_import_words (line + 1);
  if (words[0] == NULL || !(g_str_equal (words[0], "size") || g_str_equal (words[0], "bytes")))
    return FALSE;
  for (guint w = 1; words[w] != NULL; w++)
    if (is_time (words[w]))
      return TRUE;
  return FALSE;
}

static void
clear_columns (State *s)
{
  for (guint c = 0; c < s->n_columns; c++)
    g_free (s->columns[c]);
  s->n_columns = 0;
}

static gboolean
begin_table (State *s, const char *line, GError **error)
{
  const SpImport *import = s->import;
  g_auto (GStrv) words = sp_import_words (line + 1);
  clear_columns (s);
  if (g_strv_length (words) > MOST_COLUMNS)
    return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, import->path, s->line,
                             "more columns than nccl-tests has");
  for (; words[s->n_columns] != NULL; s->n_columns++)
    s->columns[s->n_columns] = g_strdup (words[s->n_columns]);
  if (s->unused)
    return TRUE;
  if (s->op == SP_MEASURED_NONE && import->given->op == SP_MEASURED_NONE)
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, import->path, s->line,
                             "a table, and no line before says of which operation: give --op");
  if (s->op != SP_MEASURED_NONE && import->given->op != SP_MEASURED_NONE && s->op != import->given->op)
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, import->path, s->line, "%s by the text, but --op says %s",
                             sp_measured_op_names[s->op], sp_measured_op_names[import->given->op]);
  gint64 said = s->listed != 0 ? s->listed : s->headed != 0 ? s->headed : s->commanded;
  if (!sp_import_count (import, s->line, "ranks", said, import->given->ranks, &s->ranks, error) ||
      !sp_import_count (import, s->line, "nodes", s->nodes, import->given->nodes, &s->table_nodes, error))
    return FALSE;
  return s->ranks % s->table_nodes == 0 ||
         sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, import->path, s->line,
                           "%" G_GINT64_FORMAT " ranks on %" G_GINT64_FORMAT " nodes: expected as many on each",
                           s->ranks, s->table_nodes);
}

static gboolean
bad_cell (const State *s, const char *name, const char *text, const char *expected, GError **error)
{
  g_autofree char *shown = sp_measured_shown (text);
  return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, s->import->path, s->line, "%s = \"%s\": expected %s", name,
                           shown, expected);
}

static const char *
dtype_of (const char *type)
{
  for (guint i = 0; i < G_N_ELEMENTS (types); i++)
    if (g_str_equal (type, types[i].type))
      return types[i].dtype;
  return type;
}

static gboolean
check_rates (const State *s, SpMeasuredOp op, double algbw, double busbw, GError **error)
{
  double factor = bus_factor (op, s->ranks);
  if (algbw < 5 || fabs (busbw / algbw - factor) <= 0.01 * factor) /* rates have two decimals */
    return TRUE;
  return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, s->import->path, s->line,
                           "busbw / algbw is %.3f, but %s of %" G_GINT64_FORMAT
                           " ranks has %.3f: another operation, or "
                           "other ranks",
                           busbw / algbw, sp_measured_op_names[op], s->ranks, factor);
}

/* One of in place and out of place: the cells from a time to the next. */
static gboolean
read_result (const State *s, char **cells, guint from, guint to, SpMeasuredRow row, const char *type,
             const char *variant, GError **error)
{
  double us, algbw = 0, busbw = 0, wrong;
  if (g_str_equal (cells[from], "N/A"))
    return TRUE;
  if (!sp_measured_number (cells[from], 0, 1e15, &us))
    return bad_cell (s, s->columns[from], cells[from], "a time in us", error);
  for (guint c = from + 1; c < to; c++) {
    const char *name = s->columns[c];
    gboolean old = g_str_equal (name, "error") || g_str_equal (name, "res");
    if (g_str_equal (name, "algbw") || g_str_equal (name, "busbw")) {
      if (!sp_measured_number (cells[c], 0, 1e9, g_str_equal (name, "algbw") ? &algbw : &busbw))
        return bad_cell (s, name, cells[c], "a rate in GB/s", error);
    } else if ((old || g_str_equal (name, "#wrong")) && !g_str_equal (cells[c], "N/A")) {
      if (old && (strstr (cells[c], "nan") != NULL || strstr (cells[c], "inf") != NULL))
        wrong = G_MAXDOUBLE;
      else if (!sp_measured_number (cells[c], 0, G_MAXDOUBLE, &wrong))
        return bad_cell (s, name, cells[c], "a number or N/A", error);
      if (wrong > (old ? allowed_error (type) : 0))
        row.mark = SP_MARK_WRONG;
    }
  }
  if (us == 0 || (row.bytes == 0 && algbw == 0 && busbw == 0))
    return TRUE; /* an empty buffer: nothing was sent */
  if (!check_rates (s, row.op, algbw, busbw, error))
    return FALSE;
  g_autofree char *cpu = NULL;
  row.time_s = sp_import_scaled (us, 1e6);
  row.variant = variant;
  if (g_str_equal (s->columns[from], "cputime")) {
    cpu = g_strdup_printf ("%s/%s", sp_measured_op_names[row.op], variant);
    row.op = SP_MEASURED_LAUNCH;
    row.variant = cpu;
  }
  sp_measured_add (s->import->into, &row);
  return TRUE;
}

static char *
variant_of (const State *s, guint result, const char *redop)
{
  gboolean plain = g_str_equal (redop, "sum") || g_str_equal (redop, "none") || *redop == '\0';
  g_autofree char *op = sp_measured_word (redop);
  return g_strconcat (result == 0 ? "out-of-place" : "in-place", plain ? "" : "/", plain ? "" : op,
                      s->heading != NULL ? "/" : "", s->heading != NULL ? s->heading : "", NULL);
}

static gboolean
read_row (State *s, char **cells, GError **error)
{
  const SpImport *import = s->import;
  SpMeasuredRow row = sp_measured_row (s->op != SP_MEASURED_NONE ? s->op : import->given->op);
  const char *type = "", *redop = "";
  if (!sp_measured_whole (cells[0], 0, G_GINT64_CONSTANT (1) << 53, &row.bytes))
    return bad_cell (s, s->columns[0], cells[0], "a number of bytes", error);
  for (guint c = 1; c < s->n_columns && !is_time (s->columns[c]); c++) {
    if (g_str_equal (s->columns[c], "type"))
      type = cells[c];
    else if (g_str_equal (s->columns[c], "redop") || g_str_equal (s->columns[c], "op"))
      redop = cells[c];
  }
  g_autofree char *dtype = sp_measured_word (dtype_of (type));
  row.dtype = dtype;
  row.statistic = SP_STATISTIC_MEAN;
  row.ranks = s->ranks;
  row.nodes = s->table_nodes;
  guint result = 0;
  for (guint from = 1, to; from < s->n_columns; from = to) {
    for (to = from + 1; to < s->n_columns && !is_time (s->columns[to]); to++)
      ;
    if (!is_time (s->columns[from]))
      continue;
    g_autofree char *variant = variant_of (s, result++, redop);
    if (!read_result (s, cells, from, to, row, type, variant, error))
      return FALSE;
  }
  return TRUE;
}

static gboolean
is_last (const State *s)
{
  for (char **line = s->import->lines + s->line; *line != NULL; line++)
    if (**line != '\0')
      return FALSE;
  return TRUE;
}

static gboolean
read_data (State *s, const char *line, GError **error)
{
  const SpImport *import = s->import;
  g_auto (GStrv) cells = sp_import_words (line);
  gint64 size;
  if (cells[0] == NULL || !sp_measured_whole (cells[0], 0, G_MAXINT64, &size) || s->unused)
    return TRUE; /* what the launcher or NCCL says between the rows */
  guint n = g_strv_length (cells);
  if (n == s->n_columns)
    return read_row (s, cells, error);
  if (n < s->n_columns && is_last (s)) {
    sp_measured_note (import->into, "the last line of %s is cut off and was left out", import->path);
    return TRUE;
  }
  return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, import->path, s->line, "%u columns: expected %u", n,
                           s->n_columns);
}

/* --- the text ----------------------------------------------------------------------------------------------------- */

gboolean
sp_import_is_nccl_tests (const SpImport *import)
{
  for (guint i = 0; import->lines[i] != NULL; i++)
    if (is_header (import->lines[i]))
      return TRUE;
  return FALSE;
}

static gboolean
read_line (State *s, const char *line, GError **error)
{
  if (is_header (line))
    return begin_table (s, line, error);
  if (*line != '#' && s->n_columns > 0 && (is_space (*line) || g_ascii_isdigit (*line)))
    return read_data (s, line, error);
  if (g_str_has_prefix (line, "##"))
    read_heading (s, line);
  if (strstr (line, "Using devices") != NULL)
    forget_devices (s);
  if (strstr (line, "_perf") != NULL) {
    forget_devices (s);
    read_program (s, line);
    if (strstr (line, "_perf ") != NULL || strstr (line, "command") != NULL)
      read_command (s, line);
  }
  read_versions (s, line);
  return *line != '#' || read_device (s, line, error);
}

gboolean
sp_import_nccl_tests (const SpImport *import, GError **error)
{
  State s = { .import = import, .hosts = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL) };
  gboolean good = TRUE, left_out = FALSE;
  for (guint i = 0; good && import->lines[i] != NULL; i++) {
    s.line = i + 1;
    good = read_line (&s, import->lines[i], error);
    left_out = left_out || (s.unused && s.n_columns > 0);
  }
  if (left_out)
    sp_measured_note (import->into, "reduce, gather, scatter and hypercube of %s were left out: no program has them",
                      import->path);
  clear_columns (&s);
  g_free (s.heading);
  g_hash_table_unref (s.hosts);
  return good;
}
