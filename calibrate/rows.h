/* SPDX-License-Identifier: Apache-2.0 */
/* A measured CSV that grows: a row is appended and flushed as it comes, so that a run cut short keeps what it has.
 * Opening a file that is there resumes it: its samples count as done, a last line without its end is cut off, and a file
 * of another card, or with the columns of an older version, is refused. Only samples are written: statistics are the
 * reader's. */
#pragma once

#include "calibrate/measured.h"

typedef struct _SpRows SpRows;

/* `head`: what stands before the rows of a new file; its card must agree with a file that is there. */
SpRows *sp_rows_open (const char *path, const SpMeasured *head, GError **error);
/* The same op of the same sizes and the same repeat, whatever it took; of memory, whatever its bytes. */
gboolean sp_rows_has (SpRows *rows, const SpMeasuredRow *row);
gboolean sp_rows_add (SpRows *rows, const SpMeasuredRow *row, GError **error);
guint sp_rows_count (SpRows *rows);
void sp_rows_free (SpRows *rows);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpRows, sp_rows_free)
