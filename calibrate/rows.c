/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/rows.h"

#include <errno.h>
#include <gio/gio.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct _SpRows {
  FILE *file;
  char *path;
  GHashTable *done; /* rows as text, without what they took */
};

static char *
key_of (const SpMeasuredRow *row)
{
  SpMeasuredRow key = *row;
  GString *text = g_string_new (NULL);

  key.time_s = key.bytes_per_s = 0;
  key.clock_hz = key.power_w = key.temperature_c = 0;
  key.throttle = "";
  key.mark = SP_MARK_NONE;
  if (key.op == SP_MEASURED_MEMORY)
    key.bytes = SP_MEASURED_EMPTY;
  sp_measured_write_row (&key, text);
  return g_string_free (text, FALSE);
}

static gboolean
fail_write (SpRows *rows, GError **error)
{
  int code = errno;

  g_set_error (error, G_IO_ERROR, (int) g_io_error_from_errno (code), "%s: cannot write: %s; what is in it is kept",
               rows->path, g_strerror (code));
  return FALSE;
}

static gboolean
write_text (SpRows *rows, const GString *text, GError **error)
{
  return (fwrite (text->str, 1, text->len, rows->file) == text->len && fflush (rows->file) == 0) ||
         fail_write (rows, error);
}

/* Counts what is there as done. Sets the length of its whole lines. */
static gboolean
read_rows (SpRows *rows, const SpMeasured *head, gsize *ret_length, GError **error)
{
  g_autofree char *text = NULL;
  gsize length = 0;

  if (!g_file_get_contents (rows->path, &text, &length, error))
    return FALSE;
  while (length > 0 && text[length - 1] != '\n')
    length--;
  if (length == 0 && text[0] != '\0')
    return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, rows->path, 0, "is there and is no measured CSV");
  *ret_length = length;
  if (length == 0)
    return TRUE;
  text[length] = '\0';
  g_autoptr (SpMeasured) before = sp_measured_parse (rows->path, text, length, error);
  if (before == NULL)
    return FALSE;
  if (before->is_old)
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, rows->path, 0,
                             "has the columns of an older seqpar-measure: give another file with -o");
  const char *old = sp_measured_field (before, "card"), *new = sp_measured_field (head, "card");
  if (g_strcmp0 (old, new) != 0)
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, rows->path, 0,
                             "was measured on \"%s\", this is \"%s\": give another file with -o", old ? old : "",
                             new ? new : "");
  for (guint i = 0; i < before->rows->len; i++)
    g_hash_table_add (rows->done, key_of (&g_array_index (before->rows, SpMeasuredRow, i)));
  return TRUE;
}

SpRows *
sp_rows_open (const char *path, const SpMeasured *head, GError **error)
{
  g_autoptr (SpRows) rows = g_new0 (SpRows, 1);
  gboolean exists = g_file_test (path, G_FILE_TEST_EXISTS);
  gsize length = 0;

  rows->path = g_strdup (path);
  rows->done = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  if (exists && !g_file_test (path, G_FILE_TEST_IS_REGULAR)) {
    sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, path, 0, "cannot be written: not a regular file");
    return NULL;
  }
  if (exists && !read_rows (rows, head, &length, error))
    return NULL;
  rows->file = fopen (path, "a");
  if (rows->file == NULL || (exists && truncate (path, (off_t) length) != 0)) {
    fail_write (rows, error);
    return NULL;
  }
  if (length == 0) {
    g_autoptr (GString) text = g_string_new (NULL);
    sp_measured_write_head (head, text);
    if (!write_text (rows, text, error))
      return NULL;
  }
  return g_steal_pointer (&rows);
}

gboolean
sp_rows_has (SpRows *rows, const SpMeasuredRow *row)
{
  g_autofree char *key = key_of (row);
  return g_hash_table_contains (rows->done, key);
}

gboolean
sp_rows_add (SpRows *rows, const SpMeasuredRow *row, GError **error)
{
  g_autoptr (GString) text = g_string_new (NULL);

  sp_measured_write_row (row, text);
  if (!write_text (rows, text, error))
    return FALSE;
  g_hash_table_add (rows->done, key_of (row));
  return TRUE;
}

guint
sp_rows_count (SpRows *rows)
{
  return g_hash_table_size (rows->done);
}

void
sp_rows_free (SpRows *rows)
{
  if (rows->file != NULL)
    fclose (rows->file);
  g_hash_table_unref (rows->done);
  g_free (rows->path);
  g_free (rows);
}
