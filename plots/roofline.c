/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels under the roof of their card: what they reach over what they compute for each byte. Columns: of (priced or
 * measured), name, flops, bytes, time_s, peak_flops_per_s, memory_bytes_per_s. */
#include <math.h>
#include <string.h>

#include "plots/kind.h"

typedef struct {
  gint of, name, flops, bytes, time, peak, memory;
} Columns;

static gboolean
find_columns (const SpCsv *csv, Columns *c, GError **error)
{
  return sp_csv_need (csv, "of", &c->of, error) && sp_csv_need (csv, "name", &c->name, error) &&
         sp_csv_need (csv, "flops", &c->flops, error) && sp_csv_need (csv, "bytes", &c->bytes, error) &&
         sp_csv_need (csv, "time_s", &c->time, error) && sp_csv_need (csv, "peak_flops_per_s", &c->peak, error) &&
         sp_csv_need (csv, "memory_bytes_per_s", &c->memory, error);
}

static SpSeries *
series_of (SpLines *lines, const char *name)
{
  for (guint i = 0; i < lines->series->len; i++) {
    SpSeries *series = lines->series->pdata[i];
    if (g_strcmp0 (series->name, name) == 0)
      return series;
  }
  SpSeries *series = sp_lines_add (lines, name);
  series->joined = FALSE;
  return series;
}

/* From a tenth of the least intensity to three times the largest, with its corner. */
static void
add_roof (SpLines *lines, double peak, double memory, double least, double most)
{
  SpSeries *roof = sp_lines_add (lines, "the card's peak");
  double corner = peak / memory, from = MIN (least, corner) / 2, to = MAX (most, corner) * 3;

  roof->marked = FALSE;
  roof->plain = TRUE;
  sp_series_point (roof, from, from * memory / 1e12, SP_POINT_FITS);
  sp_series_point (roof, corner, peak / 1e12, SP_POINT_FITS);
  sp_series_point (roof, to, peak / 1e12, SP_POINT_FITS);
}

gboolean
sp_kind_roofline (SpFigure *figure, const SpCsv *csv, GError **error)
{
  Columns c;
  SpBox place = sp_figure_place (figure, 0, 1, 0, 1);
  g_autoptr (SpLines) lines = sp_lines_new ("arithmetic intensity, FLOP/byte", "reached, TFLOP/s");
  double least = INFINITY, most = 0, peak = 0, memory = 0;

  if (!find_columns (csv, &c, error))
    return FALSE;
  lines->x.scale = lines->y.scale = SP_SCALE_LOG10;
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *name = sp_csv_text (csv, row, c.name);
    double intensity = sp_csv_number (csv, row, c.flops) / sp_csv_number (csv, row, c.bytes);
    double rate = sp_csv_number (csv, row, c.flops) / sp_csv_number (csv, row, c.time);
    if (!(intensity > 0 && rate > 0 && isfinite (intensity) && isfinite (rate)))
      continue;
    sp_series_point (series_of (lines, name), intensity, rate / 1e12, SP_POINT_FITS);
    least = MIN (least, intensity);
    most = MAX (most, intensity);
    peak = fmax (peak, sp_csv_number (csv, row, c.peak));
    memory = fmax (memory, sp_csv_number (csv, row, c.memory));
  }
  if (most == 0 || peak <= 0 || memory <= 0)
    return sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: has no kernel with FLOP, bytes and a time under a roof",
                           csv->path);
  if (lines->series->len > SP_STYLES)
    return sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: %u names of kernels are more than can be told apart",
                           csv->path, lines->series->len);
  add_roof (lines, peak, memory, least, most);
  sp_kind_subject (figure, csv, "");
  sp_figure_frame (figure);
  sp_lines_draw (figure, lines, &place);
  return TRUE;
}
