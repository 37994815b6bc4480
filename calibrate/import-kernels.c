/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timings as CSV: comments (they become notes), a row of column names, rows. A name's last part is a time's unit:
 * min_us, median_ms, mean_s, time_ns; each is a row of its own. The operation is in the column `operation`, or is
 * --op's, or follows from the columns: m, n and k are a GEMM's, and only softmax attention has `causal`. A pass of
 * fwdbwd is the backward's row, and its variant says with-forward.
 */
#include "calibrate/import.h"

#include <string.h>

typedef enum {
  COLUMN_OPERATION,
  COLUMN_DTYPE,
  COLUMN_WORD,
  COLUMN_CAUSAL,
  COLUMN_PASS,
  COLUMN_TOKENS,
  COLUMN_HEAD_SIZE,
  COLUMN_WHOLE,
  COLUMN_TIME
} Kind;

typedef struct {
  const char *name;
  Kind kind;
  gsize offset; /* of COLUMN_WHOLE */
} Known;

#define AT(field) G_STRUCT_OFFSET (SpMeasuredRow, field)
/* clang-format off */
static const Known known[] = {
  { "operation", COLUMN_OPERATION }, { "op", COLUMN_OPERATION },
  { "dtype", COLUMN_DTYPE },
  { "kernel", COLUMN_WORD }, { "backend", COLUMN_WORD }, { "variant", COLUMN_WORD },
  { "causal", COLUMN_CAUSAL },
  { "direction", COLUMN_PASS }, { "pass", COLUMN_PASS },
  { "tokens", COLUMN_TOKENS }, { "sequence", COLUMN_TOKENS },
  { "head_dim", COLUMN_HEAD_SIZE },
  { "m", COLUMN_WHOLE, AT (m) }, { "n", COLUMN_WHOLE, AT (n) }, { "k", COLUMN_WHOLE, AT (k) },
  { "batch", COLUMN_WHOLE, AT (batch) }, { "heads", COLUMN_WHOLE, AT (heads) },
  { "kv_heads", COLUMN_WHOLE, AT (kv_heads) },
  { "bytes", COLUMN_WHOLE, AT (bytes) }, { "ranks", COLUMN_WHOLE, AT (ranks) }, { "nodes", COLUMN_WHOLE, AT (nodes) },
};

static const struct {
  const char *suffix;
  double a_second;
} units[] = { { "_ns", 1e9 }, { "_us", 1e6 }, { "_ms", 1e3 }, { "_s", 1 } };

/* Without hyphens and underlines; what is behind becomes a variant. */
static const struct {
  const char *name;
  SpMeasuredOp op;
  const char *variant;
} operations[] = {
  { "sendrecv", SP_MEASURED_SEND_RECEIVE, "" }, { "sendrecvring", SP_MEASURED_SEND_RECEIVE, "ring" },
  { "p2poneway", SP_MEASURED_P2P, "oneway" }, { "alltoall", SP_MEASURED_ALL_TO_ALL, "" },
};

static const char *const dtypes[] = { "bf16", "fp16", "fp32", "fp64", "fp8", "int8", NULL };
/* clang-format on */

typedef struct {
  Kind kind;
  gsize offset;
  SpStatistic statistic;
  double a_second;
} Column;

typedef struct {
  const SpImport *import;
  guint line;
  char **names;
  Column *columns;
  guint n;
  const char *dtype; /* of the comments, or "" */
  SpMeasuredOp op;   /* of the columns, or NONE */
} State;

static gboolean
bad (const State *s, const char *name, const char *text, const char *expected, GError **error)
{
  g_autofree char *shown = sp_measured_shown (text);
  return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, s->import->path, s->line, "%s = \"%s\": expected %s", name,
                           shown, expected);
}

/* "median_us"; FALSE if it is no time. */
static gboolean
time_column (const char *name, Column *ret)
{
  for (guint u = 0; u < G_N_ELEMENTS (units); u++) {
    if (!g_str_has_suffix (name, units[u].suffix))
      continue;
    g_autofree char *what = g_strndup (name, strlen (name) - strlen (units[u].suffix));
    int statistic = sp_measured_index (what, sp_measured_statistic_names);
    if (statistic < 0 && !g_str_equal (what, "time"))
      return FALSE;
    *ret = (Column){ .kind = COLUMN_TIME,
                     .statistic = statistic < 0 ? SP_STATISTIC_SAMPLE : (SpStatistic) statistic,
                     .a_second = units[u].a_second };
    return TRUE;
  }
  return FALSE;
}

gboolean
sp_import_is_kernels (const SpImport *import)
{
  for (guint i = 0; import->lines[i] != NULL; i++) {
    Column column;
    if (*import->lines[i] == '#' || *import->lines[i] == '\0')
      continue;
    g_auto (GStrv) names = g_strsplit (import->lines[i], ",", -1);
    for (guint c = 0; names[c] != NULL; c++)
      if (time_column (names[c], &column))
        return TRUE;
    return FALSE;
  }
  return FALSE;
}

static gboolean
unknown_column (const State *s, const char *name, GError **error)
{
  const char *names[G_N_ELEMENTS (known) + 4] = { "min_us", "median_us", "max_us" };
  for (guint i = 0; i < G_N_ELEMENTS (known); i++)
    names[i + 3] = known[i].name;
  const char *near = sp_measured_nearest (name, names);
  g_autofree char *shown = sp_measured_shown (name);
  return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, s->import->path, s->line,
                           "\"%s\" is no column that can be imported%s%s%s", shown, near ? "; did you mean " : "",
                           near ? near : "", near ? "?" : "");
}

static gboolean
has (const State *s, const char *name)
{
  return g_strv_contains ((const char *const *) s->names, name);
}

static gboolean
read_header (State *s, const char *line, GError **error)
{
  s->names = g_strsplit (line, ",", -1);
  s->n = g_strv_length (s->names);
  s->columns = g_new0 (Column, s->n);
  for (guint c = 0; c < s->n; c++) {
    gboolean found = time_column (s->names[c], &s->columns[c]);
    for (guint i = 0; !found && i < G_N_ELEMENTS (known); i++)
      if (g_str_equal (s->names[c], known[i].name)) {
        s->columns[c] = (Column){ .kind = known[i].kind, .offset = known[i].offset };
        found = TRUE;
      }
    if (!found)
      return unknown_column (s, s->names[c], error);
    for (guint before = 0; before < c; before++)
      if (g_str_equal (s->names[before], s->names[c]))
        return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, s->import->path, s->line, "the column %s twice",
                                 s->names[c]);
  }
  s->op = s->import->given->op != SP_MEASURED_NONE       ? s->import->given->op
          : has (s, "causal")                            ? SP_MEASURED_ATTENTION
          : has (s, "m") && has (s, "n") && has (s, "k") ? SP_MEASURED_GEMM
                                                         : SP_MEASURED_NONE;
  if (s->op == SP_MEASURED_NONE && !has (s, "operation") && !has (s, "op"))
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, s->import->path, s->line,
                             "the columns do not say which operation was timed: give --op");
  return TRUE;
}

/* What a row's words are about, until its times are read. */
typedef struct {
  SpMeasuredRow row;
  GString *variant;
  gboolean backward, with_forward;
  gint64 tokens, head_size;
} Facts;

static void
add_word (Facts *f, const char *text)
{
  g_autofree char *word = sp_measured_word (text);
  if (*word != '\0')
    g_string_append_printf (f->variant, "%s%s", f->variant->len > 0 ? "/" : "", word);
}

static gboolean
read_operation (const State *s, Facts *f, const char *name, const char *text, GError **error)
{
  g_autoptr (GString) plain = g_string_new (NULL);
  for (const char *p = text; *p != '\0'; p++)
    if (*p != '-' && *p != '_')
      g_string_append_c (plain, g_ascii_tolower (*p));
  for (guint i = 0; i < G_N_ELEMENTS (operations); i++)
    if (g_str_equal (plain->str, operations[i].name)) {
      f->row.op = operations[i].op;
      add_word (f, operations[i].variant);
      return TRUE;
    }
  for (guint i = 1; i < SP_MEASURED_N_OPS; i++) {
    g_auto (GStrv) parts = g_strsplit (sp_measured_op_names[i], "-", -1);
    g_autofree char *joined = g_strjoinv ("", parts);
    if (g_str_equal (plain->str, joined)) {
      f->row.op = (SpMeasuredOp) i;
      return TRUE;
    }
  }
  const char *near = sp_measured_nearest (text, sp_measured_op_names);
  g_autofree char *expected = g_strdup_printf ("an operation%s%s", near ? ", such as " : "", near ? near : "");
  return bad (s, name, text, expected, error);
}

static gboolean
read_pass (const State *s, Facts *f, const char *name, const char *text, GError **error)
{
  static const char *const names[] = { "fwd", "forward", "bwd", "backward", "fwdbwd", "forward-backward", NULL };
  int i = sp_measured_index (text, names);
  if (i < 0)
    return bad (s, name, text, "fwd, bwd or fwdbwd", error);
  f->backward = i >= 2;
  f->with_forward = i >= 4;
  return TRUE;
}

static gboolean
read_fact (const State *s, guint c, const char *text, Facts *f, GError **error)
{
  const char *name = s->names[c];
  const gint64 most = G_GINT64_CONSTANT (1) << 53;
  gint64 *whole = s->columns[c].kind == COLUMN_TOKENS      ? &f->tokens
                  : s->columns[c].kind == COLUMN_HEAD_SIZE ? &f->head_size
                                                           : NULL;
  switch (s->columns[c].kind) {
  case COLUMN_OPERATION:
    return read_operation (s, f, name, text, error);
  case COLUMN_DTYPE: {
    int i = sp_measured_index (text, dtypes);
    if (i < 0)
      return bad (s, name, text, "bf16, fp16, fp32, fp64, fp8 or int8", error);
    f->row.dtype = dtypes[i];
    return TRUE;
  }
  case COLUMN_WORD:
    add_word (f, text);
    return TRUE;
  case COLUMN_CAUSAL:
    if (!g_str_equal (text, "true") && !g_str_equal (text, "false"))
      return bad (s, name, text, "true or false", error);
    add_word (f, g_str_equal (text, "true") ? "causal" : "full");
    return TRUE;
  case COLUMN_PASS:
    return read_pass (s, f, name, text, error);
  case COLUMN_TOKENS:
  case COLUMN_HEAD_SIZE:
    return sp_measured_whole (text, 1, most, whole) || bad (s, name, text, "a whole number from 1 to 2^53", error);
  case COLUMN_WHOLE:
    return sp_measured_whole (text, 1, most, &G_STRUCT_MEMBER (gint64, &f->row, s->columns[c].offset)) ||
           bad (s, name, text, "a whole number from 1 to 2^53", error);
  case COLUMN_TIME:
    return TRUE;
  }
  return TRUE;
}

static gboolean
is_collective (SpMeasuredOp op)
{
  return op >= SP_MEASURED_ONE_WAY && op <= SP_MEASURED_BROADCAST;
}

/* Shapes by the conventions of measured.h; the ranks of a kernel are one. */
static gboolean
finish (const State *s, Facts *f, GError **error)
{
  SpMeasuredRow *row = &f->row;
  gboolean softmax = row->op == SP_MEASURED_ATTENTION, linear = row->op == SP_MEASURED_LINEAR_ATTENTION;
  if (f->tokens > 0)
    row->m = f->tokens;
  if (softmax && f->tokens > 0)
    row->n = f->tokens;
  if (f->head_size > 0)
    row->k = f->head_size;
  if (linear && f->head_size > 0)
    row->n = f->head_size;
  if (f->backward) {
    if (!softmax && !linear)
      return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, s->import->path, s->line,
                               "%s has no backward of its own", sp_measured_op_names[row->op]);
    row->op = softmax ? SP_MEASURED_ATTENTION_BACKWARD : SP_MEASURED_LINEAR_ATTENTION_BACKWARD;
    if (f->with_forward)
      add_word (f, "with-forward");
  }
  if (is_collective (row->op)) {
    if (!sp_import_count (s->import, s->line, "ranks", MAX (row->ranks, 0), s->import->given->ranks, &row->ranks,
                          error) ||
        !sp_import_count (s->import, s->line, "nodes", MAX (row->nodes, 0), s->import->given->nodes, &row->nodes,
                          error))
      return FALSE;
    return row->ranks % row->nodes == 0 ||
           sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, s->import->path, s->line,
                             "%" G_GINT64_FORMAT " ranks on %" G_GINT64_FORMAT " nodes: expected as many on each",
                             row->ranks, row->nodes);
  }
  if (row->ranks == SP_MEASURED_EMPTY)
    row->ranks = row->op == SP_MEASURED_P2P || row->op == SP_MEASURED_P2P_BOTH ? 2 : 1;
  if (row->nodes == SP_MEASURED_EMPTY)
    row->nodes = 1;
  return TRUE;
}

static gboolean
read_row (const State *s, const char *line, GString *variant, GError **error)
{
  g_auto (GStrv) cells = g_strsplit (line, ",", -1);
  guint n = g_strv_length (cells);
  Facts f = { .row = sp_measured_row (s->op), .variant = g_string_truncate (variant, 0) };
  f.row.dtype = s->dtype;
  if (n != s->n)
    return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, s->import->path, s->line, "%u columns: expected %u", n,
                             s->n);
  for (guint c = 0; c < n; c++)
    if (!read_fact (s, c, cells[c], &f, error))
      return FALSE;
  if (!finish (s, &f, error))
    return FALSE;
  f.row.variant = f.variant->str;
  for (guint c = 0; c < n; c++) {
    double value;
    if (s->columns[c].kind != COLUMN_TIME)
      continue;
    if (!sp_measured_number (cells[c], 1e-6, 1e15, &value))
      return bad (s, s->names[c], cells[c], "a time above 0", error);
    f.row.statistic = s->columns[c].statistic;
    f.row.time_s = sp_import_scaled (value, s->columns[c].a_second);
    sp_measured_add (s->import->into, &f.row);
  }
  return TRUE;
}

/* The one type that the comments name; none if they name two. */
static const char *
dtype_of_comments (const SpImport *import)
{
  const char *found = "";
  for (guint i = 0; import->lines[i] != NULL; i++)
    for (guint d = 0; *import->lines[i] == '#' && dtypes[d] != NULL; d++)
      if (strstr (import->lines[i], dtypes[d]) != NULL) {
        if (*found != '\0' && found != dtypes[d])
          return "";
        found = dtypes[d];
      }
  return found;
}

gboolean
sp_import_kernels (const SpImport *import, GError **error)
{
  State s = { .import = import, .dtype = import->given->dtype };
  g_autoptr (GString) variant = g_string_new (NULL);
  gboolean good = TRUE;
  if (s.dtype == NULL)
    s.dtype = dtype_of_comments (import);
  for (guint i = 0; good && import->lines[i] != NULL; i++) {
    const char *line = import->lines[i];
    s.line = i + 1;
    if (*line == '#')
      sp_measured_note (import->into, "%s", line + 1);
    else if (*line != '\0')
      good = s.names == NULL ? read_header (&s, line, error) : read_row (&s, line, variant, error);
  }
  g_strfreev (s.names);
  g_free (s.columns);
  return good;
}
