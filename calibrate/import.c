/* SPDX-License-Identifier: Apache-2.0 */
/* The table of formats. */
#include "calibrate/import.h"

#include <string.h>

typedef struct {
  const char *name;
  gboolean (*is) (const SpImport *import);
  gboolean (*read) (const SpImport *import, GError **error);
} Format;

static const Format formats[] = {
  { "nccl-tests", sp_import_is_nccl_tests, sp_import_nccl_tests },
  { "p2pBandwidthLatencyTest", sp_import_is_p2p, sp_import_p2p },
  { "kernel timings as CSV", sp_import_is_kernels, sp_import_kernels },
};

char **
sp_import_words (const char *line)
{
  g_auto (GStrv) parts = g_strsplit_set (line, " \t\r", -1);
  GPtrArray *words = g_ptr_array_new ();
  for (guint i = 0; parts[i] != NULL; i++)
    if (*parts[i] != '\0')
      g_ptr_array_add (words, g_strdup (parts[i]));
  g_ptr_array_add (words, NULL);
  return (char **) g_ptr_array_free (words, FALSE);
}

/* A quotient can be one bit beside it. No source prints more than twelve digits. */
double
sp_import_scaled (double printed, double a_unit)
{
  char text[G_ASCII_DTOSTR_BUF_SIZE];
  return g_ascii_strtod (g_ascii_formatd (text, sizeof text, "%.12g", printed / a_unit), NULL);
}

gboolean
sp_import_count (const SpImport *import, guint line, const char *name, gint64 said, gint64 given, gint64 *ret,
                 GError **error)
{
  if (said == 0 && given == 0)
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, import->path, line,
                             "no line before says how many %s there are: give --%s", name, name);
  if (said != 0 && given != 0 && said != given)
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, import->path, line,
                             "%" G_GINT64_FORMAT " %s by the text, but --%s says %" G_GINT64_FORMAT, said, name, name,
                             given);
  *ret = said != 0 ? said : given;
  return TRUE;
}

/* Open MPI's "[1,0]<stdout>:" (--tag-output) and srun's "0: " (--label). */
static const char *
without_tag (const char *line)
{
  const char *tag = strstr (line, "<stdout>:");
  if (*line == '[' && tag != NULL && strspn (line + 1, "0123456789,]") == (gsize) (tag - line - 1))
    return tag + strlen ("<stdout>:");
  const char *p = line + strspn (line, " ");
  gsize digits = strspn (p, "0123456789");
  return digits > 0 && p[digits] == ':' && p[digits + 1] == ' ' ? p + digits + 1 : line;
}

gboolean
sp_import_text (const char *path, const char *text, gsize length, const SpImportGiven *given, SpMeasured *into,
                GError **error)
{
  if (!g_utf8_validate (text, (gssize) length, NULL))
    return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, path, 0, "not UTF-8 text");
  if (g_str_has_prefix (text, "# seqpar-measured:"))
    return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, path, 1, "is a measured CSV already");
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++) {
    char *line = g_strchomp (g_strdup (without_tag (lines[i])));
    g_free (lines[i]);
    lines[i] = line;
  }
  const SpImport import = { .path = path, .lines = lines, .given = given, .into = into };
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++) {
    if (!formats[i].is (&import))
      continue;
    guint before = into->rows->len;
    g_autofree char *name = g_path_get_basename (path);
    g_autofree char *source = g_strdup_printf ("%s (%s)", name, formats[i].name);
    sp_measured_say (into, "source", source);
    g_autofree char *card = g_strdup (sp_measured_field (into, "card"));
    if (!formats[i].read (&import, error))
      return FALSE;
    if (card != NULL && !g_str_equal (card, sp_measured_field (into, "card")))
      return sp_measured_fail (
          error, SP_MEASURED_ERROR_VALUE, path, 0,
          "is of another card than the files before (%s), and rows do not tell cards apart: import "
          "it by itself",
          card);
    return into->rows->len > before || sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, path, 0,
                                                         "%s without a row that can be used", formats[i].name);
  }
  return sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, path, 0,
                           "expected a table of nccl-tests, matrices of p2pBandwidthLatencyTest, or a CSV of timings "
                           "(median_us)");
}
