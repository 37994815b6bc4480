/* SPDX-License-Identifier: Apache-2.0 */
/* The measured CSV: its table of columns, reader and writer. */
#include "calibrate/measured.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VERSION "1"

/* clang-format off */
G_DEFINE_QUARK (sp-measured-error-quark, sp_measured_error)

const char *const sp_measured_op_names[] = {
  "", "gemm", "attention", "attention-backward", "linear-attention", "linear-attention-backward", "copy",
  "one-way", "send-receive", "all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast", "p2p",
  "p2p-both", "kernel", "work", "launch", "memory", NULL
};
G_STATIC_ASSERT (G_N_ELEMENTS (sp_measured_op_names) == SP_MEASURED_N_OPS + 1);
const char *const sp_measured_statistic_names[] = { "sample", "mean", "min", "median", "max", NULL };
G_STATIC_ASSERT (G_N_ELEMENTS (sp_measured_statistic_names) == SP_STATISTIC_N + 1);
const char *const sp_measured_mark_names[] = { "", "outlier", "wrong", "partial", NULL };
G_STATIC_ASSERT (G_N_ELEMENTS (sp_measured_mark_names) == SP_MARK_N + 1);
const char *const sp_measured_key_names[] = { "date", "card", "driver", "cuda", "nccl", "host", "source",
                                               "published", "power_limit_w", "max_clock_hz", NULL };

/* --- columns ------------------------------------------------------------------------------------------------------ */

typedef enum { OP, WORD, WHOLE, STATISTIC, MARK, REAL } Kind;

typedef struct {
  const char *name;
  Kind kind;
  gsize offset;
  gint64 min, max; /* of whole numbers; max 0: 2^53 */
} Column;

#define MOST_RANKS (1 << 24) /* a profile's groups have no more */

#define AT(field) G_STRUCT_OFFSET (SpMeasuredRow, field)
static const Column columns[] = {
  { "op", OP, AT (op) },
  { "variant", WORD, AT (variant) },
  { "dtype", WORD, AT (dtype) },
  { "ranks", WHOLE, AT (ranks), 1, MOST_RANKS },
  { "nodes", WHOLE, AT (nodes), 1, MOST_RANKS },
  { "from", WHOLE, AT (from), 0 },
  { "to", WHOLE, AT (to), 0 },
  { "bytes", WHOLE, AT (bytes), 0 },
  { "m", WHOLE, AT (m), 1 },
  { "n", WHOLE, AT (n), 1 },
  { "k", WHOLE, AT (k), 1 },
  { "batch", WHOLE, AT (batch), 1 },
  { "heads", WHOLE, AT (heads), 1 },
  { "kv_heads", WHOLE, AT (kv_heads), 1 },
  { "beside", OP, AT (beside) },
  { "statistic", STATISTIC, AT (statistic) },
  { "repeat", WHOLE, AT (repeat), 0 },
  { "time_s", REAL, AT (time_s) },
  { "bytes_per_s", REAL, AT (bytes_per_s) },
  { "mark", MARK, AT (mark) },
  { "flops", REAL, AT (flops) },
  { "clock_hz", REAL, AT (clock_hz) },
  { "power_w", REAL, AT (power_w) },
  { "temperature_c", REAL, AT (temperature_c) },
  { "throttle", WORD, AT (throttle) },
};
/* clang-format on */

#define N_OLDEST 20 /* columns: the first version ended with mark, */
#define N_OLDER 21  /* the next with flops */

/* Whole numbers stay exact as doubles. A year in seconds and an exabyte a second are beyond any sense. */
#define MOST_WHOLE (G_GINT64_CONSTANT (1) << 53)
#define LEAST_REAL 1e-15
#define MOST_REAL 1e18

/* --- text --------------------------------------------------------------------------------------------------------- */

char *
sp_measured_shown (const char *text)
{
  glong length = g_utf8_strlen (text, -1);
  g_autofree char *head = g_utf8_substring (text, 0, MIN (length, 60));
  GString *shown = g_string_new (NULL);
  for (const char *p = head; *p != '\0'; p = g_utf8_next_char (p)) {
    gunichar c = g_utf8_get_char (p);
    g_string_append_unichar (shown, g_unichar_iscntrl (c) || c == 0x2028 || c == 0x2029 ? '?' : c);
  }
  if (length > 60)
    g_string_append (shown, "...");
  return g_string_free (shown, FALSE);
}

gboolean
sp_measured_fail (GError **error, SpMeasuredError code, const char *path, guint line, const char *format, ...)
{
  va_list arguments;
  va_start (arguments, format);
  g_autofree char *message = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  if (line > 0)
    g_set_error (error, SP_MEASURED_ERROR, (int) code, "%s:%u: %s", path, line, message);
  else
    g_set_error (error, SP_MEASURED_ERROR, (int) code, "%s: %s", path, message);
  return FALSE;
}

/* Edit distance; words longer than a column's name can be are far from all. */
static guint
distance (const char *a, const char *b)
{
  guint row[65];
  gsize na = strlen (a), nb = strlen (b);
  if (na >= G_N_ELEMENTS (row) || nb >= G_N_ELEMENTS (row))
    return G_MAXUINT;
  for (gsize j = 0; j <= nb; j++)
    row[j] = (guint) j;
  for (gsize i = 1; i <= na; i++) {
    guint diagonal = row[0];
    row[0] = (guint) i;
    for (gsize j = 1; j <= nb; j++) {
      guint best = MIN (MIN (row[j], row[j - 1]) + 1, diagonal + (a[i - 1] != b[j - 1]));
      diagonal = row[j];
      row[j] = best;
    }
  }
  return row[nb];
}

const char *
sp_measured_nearest (const char *word, const char *const *names)
{
  const char *near = NULL;
  guint best = G_MAXUINT;
  for (guint i = 0; names[i] != NULL; i++) {
    guint d = distance (word, names[i]);
    if (d < best && d <= MAX (1, strlen (names[i]) / 3)) {
      best = d;
      near = names[i];
    }
  }
  return near != NULL && *near != '\0' ? near : NULL;
}

int
sp_measured_index (const char *word, const char *const *names)
{
  for (int i = 0; names[i] != NULL; i++)
    if (g_str_equal (word, names[i]))
      return i;
  return -1;
}

static gboolean
is_word_letter (char c)
{
  return g_ascii_islower (c) || g_ascii_isdigit (c) || (c != '\0' && strchr ("/+.-", c) != NULL);
}

char *
sp_measured_word (const char *text)
{
  GString *word = g_string_new (NULL);
  for (const char *p = text; *p != '\0'; p++) {
    char c = g_ascii_tolower (*p);
    if (is_word_letter (c))
      g_string_append_c (word, c);
    else if (word->len > 0 && word->str[word->len - 1] != '-')
      g_string_append_c (word, '-');
  }
  while (word->len > 0 && word->str[word->len - 1] == '-')
    g_string_truncate (word, word->len - 1);
  return g_string_free (word, FALSE);
}

gboolean
sp_measured_whole (const char *text, gint64 min, gint64 max, gint64 *ret)
{
  char *end;
  errno = 0;
  gint64 value = g_ascii_strtoll (text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || !g_ascii_isdigit (text[*text == '-']) || value < min || value > max)
    return FALSE;
  *ret = value;
  return TRUE;
}

gboolean
sp_measured_number (const char *text, double min, double max, double *ret)
{
  char *end;
  if (*text == '\0' || strspn (text, "0123456789+-.eE") != strlen (text)) /* no hexadecimal, no words */
    return FALSE;
  double value = g_ascii_strtod (text, &end);
  if (end == text || *end != '\0' || !isfinite (value) || value < min || value > max)
    return FALSE;
  *ret = value;
  return TRUE;
}

/* --- the set ------------------------------------------------------------------------------------------------------ */

SpMeasuredRow
sp_measured_row (SpMeasuredOp op)
{
  SpMeasuredRow row = { .op = op, .variant = "", .dtype = "", .throttle = "" };
  for (guint i = 0; i < G_N_ELEMENTS (columns); i++)
    if (columns[i].kind == WHOLE)
      G_STRUCT_MEMBER (gint64, &row, columns[i].offset) = SP_MEASURED_EMPTY;
  return row;
}

SpMeasured *
sp_measured_new (void)
{
  SpMeasured *measured = g_new0 (SpMeasured, 1);
  measured->rows = g_array_new (FALSE, TRUE, sizeof (SpMeasuredRow));
  measured->notes = g_ptr_array_new_with_free_func (g_free);
  measured->fields = g_new0 (char *, G_N_ELEMENTS (sp_measured_key_names));
  measured->words = g_string_chunk_new (256);
  return measured;
}

void
sp_measured_free (SpMeasured *measured)
{
  if (measured == NULL)
    return;
  g_array_unref (measured->rows);
  g_ptr_array_unref (measured->notes);
  for (guint i = 0; sp_measured_key_names[i] != NULL; i++)
    g_free (measured->fields[i]);
  g_free (measured->fields);
  g_string_chunk_free (measured->words);
  g_free (measured);
}

void
sp_measured_add (SpMeasured *measured, const SpMeasuredRow *row)
{
  g_return_if_fail (row->op > SP_MEASURED_NONE && row->op < SP_MEASURED_N_OPS);
  SpMeasuredRow copy = *row;
  copy.variant = g_string_chunk_insert_const (measured->words, row->variant);
  copy.dtype = g_string_chunk_insert_const (measured->words, row->dtype);
  copy.throttle = g_string_chunk_insert_const (measured->words, row->throttle);
  g_array_append_val (measured->rows, copy);
}

static char *
one_line (const char *text)
{
  g_autofree char *valid = g_utf8_make_valid (text, -1);
  for (char *p = valid; *p != '\0'; p++)
    if (g_ascii_iscntrl (*p))
      *p = ' ';
  return g_strdup (g_strstrip (valid));
}

void
sp_measured_say (SpMeasured *measured, const char *key, const char *value)
{
  int i = sp_measured_index (key, sp_measured_key_names);
  g_return_if_fail (i >= 0);
  g_autofree char *line = one_line (value);
  char *before = measured->fields[i];
  if (*line == '\0' || (before != NULL && strstr (before, line) != NULL))
    return;
  measured->fields[i] = before != NULL ? g_strconcat (before, "; ", line, NULL) : g_strdup (line);
  g_free (before);
}

const char *
sp_measured_field (const SpMeasured *measured, const char *key)
{
  int i = sp_measured_index (key, sp_measured_key_names);
  g_return_val_if_fail (i >= 0, NULL);
  return measured->fields[i];
}

void
sp_measured_note (SpMeasured *measured, const char *format, ...)
{
  va_list arguments;
  va_start (arguments, format);
  g_autofree char *text = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  g_ptr_array_add (measured->notes, one_line (text));
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void
write_real (double value, GString *out)
{
  char text[G_ASCII_DTOSTR_BUF_SIZE];
  g_ascii_formatd (text, sizeof text, "%.9g", value);
  if (g_ascii_strtod (text, NULL) != value)
    g_ascii_formatd (text, sizeof text, "%.17g", value);
  g_string_append (out, text);
}

static void
write_cell (const SpMeasuredRow *row, const Column *column, GString *out)
{
  const void *at = G_STRUCT_MEMBER_P (row, column->offset);
  switch (column->kind) {
  case OP:
    g_string_append (out, sp_measured_op_names[*(const SpMeasuredOp *) at]);
    break;
  case WORD:
    g_string_append (out, *(const char *const *) at);
    break;
  case WHOLE:
    if (*(const gint64 *) at != SP_MEASURED_EMPTY)
      g_string_append_printf (out, "%" G_GINT64_FORMAT, *(const gint64 *) at);
    break;
  case STATISTIC:
    g_string_append (out, sp_measured_statistic_names[*(const SpStatistic *) at]);
    break;
  case MARK:
    g_string_append (out, sp_measured_mark_names[*(const SpMark *) at]);
    break;
  case REAL:
    if (*(const double *) at != 0)
      write_real (*(const double *) at, out);
    break;
  }
}

void
sp_measured_write_head (const SpMeasured *measured, GString *out)
{
  g_string_append (out, "# seqpar-measured: " VERSION "\n");
  for (guint i = 0; sp_measured_key_names[i] != NULL; i++)
    if (measured->fields[i] != NULL)
      g_string_append_printf (out, "# %s: %s\n", sp_measured_key_names[i], measured->fields[i]);
  for (guint i = 0; i < measured->notes->len; i++)
    g_string_append_printf (out, "# note: %s\n", (const char *) measured->notes->pdata[i]);
  for (guint c = 0; c < G_N_ELEMENTS (columns); c++)
    g_string_append_printf (out, "%s%s", c > 0 ? "," : "", columns[c].name);
  g_string_append_c (out, '\n');
}

void
sp_measured_write_row (const SpMeasuredRow *row, GString *out)
{
  for (guint c = 0; c < G_N_ELEMENTS (columns); c++) {
    write_cell (row, &columns[c], out);
    g_string_append_c (out, c + 1 < G_N_ELEMENTS (columns) ? ',' : '\n');
  }
}

void
sp_measured_write (const SpMeasured *measured, GString *out)
{
  sp_measured_write_head (measured, out);
  for (guint i = 0; i < measured->rows->len; i++)
    sp_measured_write_row (&g_array_index (measured->rows, SpMeasuredRow, i), out);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

typedef struct {
  const char *path;
  guint line;
  guint n_columns; /* of this file */
  SpMeasured *into;
} Reader;

static gboolean
refuse (const Reader *r, const char *name, const char *value, const char *expected, GError **error)
{
  g_autofree char *shown = sp_measured_shown (value);
  return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, r->path, r->line, "%s = \"%s\": expected %s", name, shown,
                           expected);
}

static gboolean
read_name (const Reader *r, const Column *column, const char *text, const char *const *names, int *ret, GError **error)
{
  *ret = sp_measured_index (text, names);
  if (*ret > 0 || (*ret == 0 && (*text != '\0' || !g_str_equal (column->name, "op"))))
    return TRUE;
  const char *near = sp_measured_nearest (text, names);
  g_autofree char *list = g_strjoinv (", ", (char **) names + (*names[0] == '\0'));
  g_autofree char *expected =
      near != NULL ? g_strdup_printf ("one of %s; did you mean %s?", list, near) : g_strdup_printf ("one of %s", list);
  return refuse (r, column->name, text, expected, error);
}

static gboolean
read_cell (const Reader *r, const Column *column, const char *text, SpMeasuredRow *row, GError **error)
{
  void *at = G_STRUCT_MEMBER_P (row, column->offset);
  int index = 0;
  switch (column->kind) {
  case OP:
    if (!read_name (r, column, text, sp_measured_op_names, &index, error))
      return FALSE;
    *(SpMeasuredOp *) at = (SpMeasuredOp) index;
    return TRUE;
  case STATISTIC:
    if (!read_name (r, column, text, sp_measured_statistic_names, &index, error))
      return FALSE;
    *(SpStatistic *) at = (SpStatistic) index;
    return TRUE;
  case MARK:
    if (!read_name (r, column, text, sp_measured_mark_names, &index, error))
      return FALSE;
    *(SpMark *) at = (SpMark) index;
    return TRUE;
  case WORD:
    for (const char *p = text; *p != '\0'; p++)
      if (!is_word_letter (*p))
        return refuse (r, column->name, text, "letters of a-z, 0-9, / + . -", error);
    *(const char **) at = text;
    return TRUE;
  case WHOLE:
    return *text == '\0' || sp_measured_whole (text, column->min, column->max > 0 ? column->max : MOST_WHOLE, at) ||
           refuse (r, column->name, text,
                   column->max > 0   ? "a whole number from 1 to 2^24"
                   : column->min > 0 ? "a whole number from 1 to 2^53"
                                     : "a whole number up to 2^53",
                   error);
  case REAL:
    return *text == '\0' || sp_measured_number (text, LEAST_REAL, MOST_REAL, at) ||
           refuse (r, column->name, text, "a finite number above 0, at least 1e-15 and at most 1e18", error);
  }
  return TRUE;
}

static gboolean
read_row (const Reader *r, char **cells, GError **error)
{
  SpMeasuredRow row = sp_measured_row (SP_MEASURED_NONE);
  guint n = g_strv_length (cells);
  if (n != r->n_columns)
    return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, r->path, r->line, "%u columns: expected %u", n,
                             r->n_columns);
  for (guint c = 0; c < n; c++)
    if (!read_cell (r, &columns[c], cells[c], &row, error))
      return FALSE;
  /* Of a group; a curve of another would be of none. */
  if (row.ranks > 0 && row.nodes > 0 && row.ranks % row.nodes != 0)
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, r->path, r->line,
                             "%" G_GINT64_FORMAT " ranks on %" G_GINT64_FORMAT " nodes: expected as many on each",
                             row.ranks, row.nodes);
  gboolean is_size = row.op == SP_MEASURED_MEMORY && row.bytes != SP_MEASURED_EMPTY;
  if (row.time_s == 0 && row.bytes_per_s == 0 && !is_size)
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, r->path, r->line,
                             "time_s and bytes_per_s are both empty: expected one of them");
  sp_measured_add (r->into, &row);
  return TRUE;
}

static gboolean
read_header (Reader *r, char **cells, GError **error)
{
  const char *names[G_N_ELEMENTS (columns) + 1] = { NULL };
  for (guint c = 0; c < G_N_ELEMENTS (columns); c++)
    names[c] = columns[c].name;
  for (guint c = 0; cells[c] != NULL; c++) {
    if (c < G_N_ELEMENTS (columns) && g_str_equal (cells[c], names[c]))
      continue;
    g_autofree char *shown = sp_measured_shown (cells[c]);
    const char *near = sp_measured_nearest (cells[c], names);
    if (sp_measured_index (cells[c], names) < 0)
      return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, r->path, r->line, "\"%s\" is no column%s%s%s", shown,
                               near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, r->path, r->line, "column %u is %s: expected %s", c + 1,
                             shown, c < G_N_ELEMENTS (columns) ? names[c] : "no more");
  }
  guint n = r->n_columns = g_strv_length (cells);
  r->into->is_old = n < G_N_ELEMENTS (columns);
  return !r->into->is_old || n == N_OLDEST || n == N_OLDER ||
         sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, r->path, r->line, "the column %s is missing",
                           columns[n].name);
}

/* "# key: value" */
static gboolean
read_comment (const Reader *r, const char *line, GError **error)
{
  const char *colon = strstr (line, ":");
  g_autofree char *key =
      g_strstrip (g_strndup (line + 1, colon != NULL ? (gsize) (colon - line - 1) : strlen (line + 1)));
  g_autofree char *value = g_strdup (colon != NULL ? colon + 1 : "");
  g_strstrip (value);
  gboolean version = g_str_equal (key, "seqpar-measured");
  if (version != (r->line == 1) || (version && !g_str_equal (value, VERSION)))
    return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, r->path, r->line,
                             "expected \"# seqpar-measured: " VERSION "\" in the first line, and there alone");
  if (version)
    return TRUE;
  if (g_str_equal (key, "note")) {
    sp_measured_note (r->into, "%s", value);
    return TRUE;
  }
  int i = sp_measured_index (key, sp_measured_key_names);
  if (i < 0 || colon == NULL) {
    const char *near = sp_measured_nearest (key, sp_measured_key_names);
    g_autofree char *shown = sp_measured_shown (key), *all = g_strjoinv (", ", (char **) sp_measured_key_names);
    return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, r->path, r->line,
                             "\"%s\" is no key of a comment: expected note, %s%s%s", shown, near ? "or " : all,
                             near ? near : "", near ? ", the nearest" : "");
  }
  if (r->into->fields[i] != NULL)
    return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, r->path, r->line, "%s is said twice", key);
  sp_measured_say (r->into, key, value);
  return TRUE;
}

SpMeasured *
sp_measured_parse (const char *path, const char *text, gsize length, GError **error)
{
  g_autoptr (SpMeasured) measured = sp_measured_new ();
  Reader r = { .path = path, .into = measured };
  gboolean header = FALSE;
  if (!g_utf8_validate (text, (gssize) length, NULL)) {
    sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, path, 0, "not UTF-8 text");
    return NULL;
  }
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++) {
    r.line = i + 1;
    char *line = g_strchomp (lines[i]);
    if (i > 0 && *line == '\0')
      continue;
    if (i == 0 && *line != '#') {
      read_comment (&r, "#", error);
      return NULL;
    }
    if (*line == '#' && !header) {
      if (!read_comment (&r, line, error))
        return NULL;
      continue;
    }
    g_auto (GStrv) cells = g_strsplit (line, ",", -1);
    if (!(header ? read_row (&r, cells, error) : read_header (&r, cells, error)))
      return NULL;
    header = TRUE;
  }
  if (!header) {
    sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, path, 0, "ends before the row of column names");
    return NULL;
  }
  return g_steal_pointer (&measured);
}
