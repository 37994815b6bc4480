/* SPDX-License-Identifier: Apache-2.0 */
/*
 * p2pBandwidthLatencyTest of the CUDA samples: matrices under titles. A row is the GPU that starts the copy: with "P2P
 * Writes", and where the title says neither, data goes from row to column; with "P2P Reads" from column to row. The
 * diagonal is a copy within a GPU, read and write both counted: memory. Bandwidth titles do not say how long the copies
 * are; latency is that of one int. The CPU's matrix is the host's time of a launch.
 */
#include "calibrate/import.h"

#include <string.h>

typedef struct {
  const SpImport *import;
  guint line;
  gboolean latency, both, reads, cpu; /* of the title */
  char *variant;
  GArray *to; /* gint64: the GPUs of the columns; empty outside a matrix */
} State;

gboolean
sp_import_is_p2p (const SpImport *import)
{
  for (guint i = 0; import->lines[i] != NULL; i++)
    if (strstr (import->lines[i], "P2P=") != NULL && strstr (import->lines[i], "Matrix (") != NULL)
      return TRUE;
  return FALSE;
}

static gboolean
read_title (State *s, const char *line, GError **error)
{
  s->latency = strstr (line, "Latency") != NULL;
  s->both = strstr (line, "Bidirectional") != NULL;
  s->reads = strstr (line, "P2P Reads") != NULL;
  const char *unit = s->latency ? "(us)" : "(GB/s)";
  if (strstr (line, unit) == NULL)
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, s->import->path, s->line, "expected a matrix in %s", unit);
  g_free (s->variant);
  s->variant = g_strconcat (strstr (line, "P2P=Enabled") != NULL ? "p2p-enabled" : "p2p-disabled",
                            s->latency ? "/latency" : "", s->reads ? "/reads" : "", NULL);
  g_array_set_size (s->to, 0);
  return TRUE;
}

static gboolean
read_columns (State *s, char **words, GError **error)
{
  g_array_set_size (s->to, 0);
  s->cpu = g_str_equal (words[0], "CPU");
  for (guint w = 1; words[w] != NULL; w++) {
    gint64 gpu;
    if (!sp_measured_whole (words[w], 0, 1 << 20, &gpu))
      return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, s->import->path, s->line,
                               "expected the numbers of GPUs over the columns");
    g_array_append_val (s->to, gpu);
  }
  return TRUE;
}

static gboolean
read_value (const State *s, gint64 row_gpu, gint64 column_gpu, const char *text, GError **error)
{
  double value;
  SpMeasuredOp between = s->both ? SP_MEASURED_P2P_BOTH : SP_MEASURED_P2P;
  SpMeasuredRow row = sp_measured_row (s->cpu                  ? SP_MEASURED_LAUNCH
                                       : row_gpu == column_gpu ? SP_MEASURED_MEMORY
                                                               : between);
  if (!sp_measured_number (text, 1e-6, 1e9, &value)) {
    g_autofree char *shown = sp_measured_shown (text);
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, s->import->path, s->line, "\"%s\": expected a %s", shown,
                             s->latency ? "time in us" : "rate in GB/s");
  }
  row.variant = s->variant;
  row.ranks = row_gpu == column_gpu ? 1 : 2;
  row.nodes = 1;
  row.from = s->reads ? column_gpu : row_gpu;
  row.to = s->reads ? row_gpu : column_gpu;
  row.statistic = SP_STATISTIC_MEAN;
  if (s->latency) {
    row.bytes = 4;
    row.time_s = sp_import_scaled (value, 1e6);
  } else {
    row.bytes_per_s = sp_import_scaled (value, 1e-9);
  }
  sp_measured_add (s->import->into, &row);
  return TRUE;
}

static gboolean
read_line (State *s, const char *line, GError **error)
{
  gint64 gpu;
  const char *device = strstr (line, ", pciBusID");
  if (g_str_has_prefix (line, "Device: ") && device != NULL && strchr (line, ',') != device) {
    const char *name = strchr (line, ',') + 1;
    g_autofree char *card = g_strndup (name, (gsize) (device - name));
    sp_measured_say (s->import->into, "card", card);
  }
  if (strstr (line, "Matrix (") != NULL && strstr (line, "P2P=") != NULL)
    return read_title (s, line, error);
  g_auto (GStrv) words = sp_import_words (line);
  if (s->variant == NULL || words[0] == NULL)
    return TRUE;
  if (g_str_equal (words[0], "D\\D") || g_str_equal (words[0], "GPU") || g_str_equal (words[0], "CPU"))
    return read_columns (s, words, error);
  if (s->to->len == 0 || !sp_measured_whole (words[0], 0, 1 << 20, &gpu)) {
    g_array_set_size (s->to, 0); /* the matrix is over */
    return TRUE;
  }
  guint n = g_strv_length (words) - 1;
  if (n != s->to->len)
    return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, s->import->path, s->line, "%u columns: expected %u", n,
                             s->to->len);
  for (guint c = 0; c < n; c++)
    if (!read_value (s, gpu, g_array_index (s->to, gint64, c), words[c + 1], error))
      return FALSE;
  return TRUE;
}

gboolean
sp_import_p2p (const SpImport *import, GError **error)
{
  State s = { .import = import, .to = g_array_new (FALSE, FALSE, sizeof (gint64)) };
  gboolean good = TRUE;
  for (guint i = 0; good && import->lines[i] != NULL; i++) {
    s.line = i + 1;
    good = read_line (&s, import->lines[i], error);
  }
  g_free (s.variant);
  g_array_unref (s.to);
  return good;
}
