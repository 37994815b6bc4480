/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Other programs' measurements as rows of a measured CSV. The format is seen from the text: a format is one file and
 * one row of the table in import.c.
 *
 *   nccl-tests     the text of all its programs and versions; one row a size, in place and out of place
 *   p2p            p2pBandwidthLatencyTest of the CUDA samples; row i, column j of a matrix is from i to j
 *   kernels        a CSV of timings, units in the names of its columns (median_us)
 *
 * Nothing is clipped, smoothed or left out because of its value: rates above a link's are those of in-switch reduction,
 * and outliers are for the fit to mark. Errors are of SP_MEASURED_ERROR, one line, FILE:LINE first if there is one.
 */

#include "calibrate/measured.h"

G_BEGIN_DECLS

/* What the command line says, for where a text does not; 0 and NULL where it says nothing. */
typedef struct {
  SpMeasuredOp op;
  gint64 ranks, nodes;
  const char *dtype;
} SpImportGiven;

/* Appends to `into`, which is of no more use after an error. `text` has a 0 after its `length` bytes. */
gboolean sp_import_text (const char *path, const char *text, gsize length, const SpImportGiven *given, SpMeasured *into,
                         GError **error);

/* --- of the formats ----------------------------------------------------------------------------------------------- */

typedef struct {
  const char *path;
  char **lines; /* without what launchers put before them, stripped at the right */
  const SpImportGiven *given;
  SpMeasured *into;
} SpImport;

gboolean sp_import_is_nccl_tests (const SpImport *import);
gboolean sp_import_nccl_tests (const SpImport *import, GError **error);
gboolean sp_import_is_p2p (const SpImport *import);
gboolean sp_import_p2p (const SpImport *import, GError **error);
gboolean sp_import_is_kernels (const SpImport *import);
gboolean sp_import_kernels (const SpImport *import, GError **error);

/* The words of a line, without blanks; free with g_strfreev. */
char **sp_import_words (const char *line);
/* What was printed, in units of which `a_unit` are one: the double that is nearest to the decimal. */
double sp_import_scaled (double printed, double a_unit);
/* `given` where the text says nothing (0), an error where both say something and differ, or neither does. */
gboolean sp_import_count (const SpImport *import, guint line, const char *name, gint64 said, gint64 given, gint64 *ret,
                          GError **error);

G_END_DECLS
