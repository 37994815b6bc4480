/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CSV as sweeps write it and figures read it: a header, then a row a line. Fields with a comma or a quote stand in
 * quotes, quotes in them are doubled; there is no line break in a field. Lines that begin with # are left out.
 *
 * Rows are found once and cells when asked for, so a million rows take their text and eight bytes each.
 */

#include <glib.h>

G_BEGIN_DECLS

#define SP_CSV_ERROR (sp_csv_error_quark ())
GQuark sp_csv_error_quark (void);
typedef enum { SP_CSV_ERROR_SYNTAX, SP_CSV_ERROR_COLUMN } SpCsvError;

typedef struct {
  char *path; /* for messages */
  char *text;
  char **columns; /* NULL-terminated */
  guint n_columns;
  GArray *rows; /* guint64: where each begins */
  gsize whole;  /* bytes up to the end of the last line that has one: behind it is what a killed writer left */
} SpCsv;

/* Takes `text`, which has a 0 after its `length` bytes. NULL: no header, or a row of another number of fields; the last
 * one, where no end of line follows, is left out. */
SpCsv *sp_csv_new (const char *path, char *text, gsize length, GError **error);
void sp_csv_free (SpCsv *csv);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpCsv, sp_csv_free)

/* -1: there is none. */
gint sp_csv_find (const SpCsv *csv, const char *column);
/* FALSE with an error that names the file and the column, for one that is needed. */
gboolean sp_csv_need (const SpCsv *csv, const char *column, gint *ret, GError **error);

/* Free with g_free. */
char *sp_csv_text (const SpCsv *csv, guint row, gint column);
/* NAN: empty, or no number. */
double sp_csv_number (const SpCsv *csv, guint row, gint column);

/* Both tables' rows as one text: columns are those of the first, and behind them those that only the second has; cells
 * that a table has not are empty. The second one's rows have their first cell in the first one's first column. Free
 * with g_free. */
char *sp_csv_join (const SpCsv *first, const SpCsv *second);

/* Appends a field, with a comma before it unless `line` is empty, so the first one is not; control characters become
 * blanks. */
void sp_csv_append (GString *line, const char *field);

G_END_DECLS
