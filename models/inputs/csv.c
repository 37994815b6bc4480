/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/csv.h"

#include <math.h>
#include <string.h>

/* clang-format off */
G_DEFINE_QUARK (sp-csv-error-quark, sp_csv_error)
/* clang-format on */

/* The end of the field that begins at `at`: a comma, the line's end or the text's. */
static const char *
field_end (const char *at)
{
  gboolean quoted = FALSE;

  for (; *at != '\0' && *at != '\n' && (quoted || *at != ','); at++)
    quoted ^= *at == '"';
  return at;
}

static guint
count_fields (const char *line)
{
  guint n = 1;

  for (line = field_end (line); *line == ','; n++)
    line = field_end (line + 1);
  return n;
}

static char *
unquote (const char *begin, const char *end)
{
  if (end > begin && end[-1] == '\r')
    end--;
  if (end - begin < 2 || *begin != '"' || end[-1] != '"')
    return g_strndup (begin, (gsize) (end - begin));
  GString *text = g_string_new (NULL);
  for (const char *c = begin + 1; c < end - 1; c++) {
    g_string_append_c (text, *c);
    c += *c == '"' && c[1] == '"';
  }
  return g_string_free (text, FALSE);
}

static char **
split_line (const char *line)
{
  GPtrArray *fields = g_ptr_array_new ();

  for (const char *at = line;; at++) {
    const char *end = field_end (at);
    g_ptr_array_add (fields, unquote (at, end));
    at = end;
    if (*end != ',')
      break;
  }
  g_ptr_array_add (fields, NULL);
  return (char **) g_ptr_array_free (fields, FALSE);
}

static gboolean
add_line (SpCsv *csv, const char *line, guint number, GError **error)
{
  if (*line == '#' || *line == '\n' || *line == '\r')
    return TRUE;
  if (csv->columns == NULL) {
    csv->columns = split_line (line);
    csv->n_columns = g_strv_length (csv->columns);
    return TRUE;
  }
  guint n = count_fields (line);
  guint64 at = (guint64) (line - csv->text);
  if (n != csv->n_columns) {
    g_set_error (error, SP_CSV_ERROR, SP_CSV_ERROR_SYNTAX, "%s:%u: expected %u fields, as in the header; found %u",
                 csv->path, number, csv->n_columns, n);
    return FALSE;
  }
  g_array_append_val (csv->rows, at);
  return TRUE;
}

SpCsv *
sp_csv_new (const char *path, char *text, gsize length, GError **error)
{
  g_autoptr (SpCsv) csv = g_new0 (SpCsv, 1);
  guint number = 0;

  csv->path = g_strdup (path);
  csv->text = text;
  csv->rows = g_array_new (FALSE, FALSE, sizeof (guint64));
  for (const char *line = text; line < text + length;) {
    const char *end = memchr (line, '\n', length - (gsize) (line - text));
    if (end == NULL)
      break;
    if (!add_line (csv, line, ++number, error))
      return NULL;
    line = end + 1;
    csv->whole = (gsize) (line - text);
  }
  if (csv->columns == NULL) {
    g_set_error (error, SP_CSV_ERROR, SP_CSV_ERROR_SYNTAX, "%s: is empty, expected a CSV with a header", path);
    return NULL;
  }
  return g_steal_pointer (&csv);
}

void
sp_csv_free (SpCsv *csv)
{
  if (csv == NULL)
    return;
  g_free (csv->path);
  g_free (csv->text);
  g_strfreev (csv->columns);
  g_array_unref (csv->rows);
  g_free (csv);
}

gint
sp_csv_find (const SpCsv *csv, const char *column)
{
  for (guint i = 0; i < csv->n_columns; i++)
    if (g_str_equal (csv->columns[i], column))
      return (gint) i;
  return -1;
}

gboolean
sp_csv_need (const SpCsv *csv, const char *column, gint *ret, GError **error)
{
  *ret = sp_csv_find (csv, column);
  if (*ret >= 0)
    return TRUE;
  g_set_error (error, SP_CSV_ERROR, SP_CSV_ERROR_COLUMN, "%s: has no column %s, which this figure is drawn from",
               csv->path, column);
  return FALSE;
}

char *
sp_csv_text (const SpCsv *csv, guint row, gint column)
{
  const char *at = csv->text + g_array_index (csv->rows, guint64, row);

  g_return_val_if_fail (column >= 0 && (guint) column < csv->n_columns, NULL);
  for (gint i = 0; i < column; i++)
    at = field_end (at) + 1;
  return unquote (at, field_end (at));
}

double
sp_csv_number (const SpCsv *csv, guint row, gint column)
{
  g_autofree char *text = sp_csv_text (csv, row, column);
  char *end;
  double value = g_ascii_strtod (text, &end);

  return *text != '\0' && *end == '\0' && isfinite (value) ? value : NAN;
}

void
sp_csv_append (GString *line, const char *field)
{
  gboolean quoted = strpbrk (field, ",\"#") != NULL;

  if (line->len > 0)
    g_string_append_c (line, ',');
  if (quoted)
    g_string_append_c (line, '"');
  for (const char *c = field; *c != '\0'; c++) {
    if (*c == '"')
      g_string_append_c (line, '"');
    g_string_append_c (line, (guchar) *c < 0x20 || *c == 0x7f ? ' ' : *c);
  }
  if (quoted)
    g_string_append_c (line, '"');
}

/* Of a row the cells of `columns`; NULL of those that it has not. */
static void
append_row (const SpCsv *csv, guint row, const GPtrArray *columns, GString *text)
{
  g_autoptr (GString) line = g_string_new (NULL);

  for (guint c = 0; c < columns->len; c++) {
    gint at = sp_csv_find (csv, columns->pdata[c]);
    g_autofree char *cell = at >= 0 ? sp_csv_text (csv, row, at) : g_strdup ("");
    sp_csv_append (line, cell);
  }
  g_string_append_printf (text, "%s\n", line->str);
}

char *
sp_csv_join (const SpCsv *first, const SpCsv *second)
{
  g_autoptr (GPtrArray) columns = g_ptr_array_new ();
  g_autoptr (GString) head = g_string_new (NULL);

  for (guint i = 0; i < first->n_columns; i++)
    g_ptr_array_add (columns, first->columns[i]);
  for (guint i = 0; i < second->n_columns; i++)
    if (sp_csv_find (first, second->columns[i]) < 0)
      g_ptr_array_add (columns, second->columns[i]);
  for (guint i = 0; i < columns->len; i++)
    sp_csv_append (head, columns->pdata[i]);
  GString *text = g_string_new (head->str);
  g_string_append_c (text, '\n');
  for (guint row = 0; row < first->rows->len; row++)
    append_row (first, row, columns, text);
  for (guint row = 0; row < second->rows->len; row++)
    append_row (second, row, columns, text);
  return g_string_free (text, FALSE);
}
