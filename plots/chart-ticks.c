/* SPDX-License-Identifier: Apache-2.0 */
/* Scales, and where on them a tick stands. */
#include <math.h>
#include <string.h>

#include "plots/chart.h"

static void
tick_clear (gpointer tick)
{
  g_free (((SpTick *) tick)->text);
}

static void
add_tick (GArray *ticks, double at, char *text)
{
  const SpTick tick = { at, text };

  g_array_append_val (ticks, tick);
}

char *
sp_tokens_text (double tokens)
{
  static const char *const units[] = { "", "K", "M", "G" };
  guint i = 0;
  char digits[G_ASCII_DTOSTR_BUF_SIZE];

  for (; i + 1 < G_N_ELEMENTS (units) && tokens >= 1024; i++)
    tokens /= 1024;
  return g_strconcat (g_ascii_formatd (digits, sizeof digits, "%.4g", tokens), units[i], NULL);
}

char *
sp_number_text (double value)
{
  char digits[G_ASCII_DTOSTR_BUF_SIZE];
  double size = fabs (value);

  if (size >= 1e6 || (size > 0 && size < 1e-3))
    return g_strdup (g_ascii_formatd (digits, sizeof digits, "%.3g", value));
  if (size < 1000 || value != floor (value))
    return g_strdup (g_ascii_formatd (digits, sizeof digits, size < 1000 ? "%.4g" : "%.0f", value));
  return g_strdup_printf ("%s%d,%03d", value < 0 ? "-" : "", (int) (size / 1000), (int) fmod (size, 1000));
}

static gboolean
is_log (const SpChartAxis *axis)
{
  return axis->scale == SP_SCALE_LOG2 || axis->scale == SP_SCALE_LOG10;
}

void
sp_axis_cover (SpChartAxis *axis, double value)
{
  if (!isfinite (value) || (is_log (axis) && value <= 0))
    return;
  axis->min = isnan (axis->min) ? value : MIN (axis->min, value);
  axis->max = isnan (axis->max) ? value : MAX (axis->max, value);
}

double
sp_axis_at (const SpChartAxis *axis, double value)
{
  if (is_log (axis))
    return log (value / axis->min) / log (axis->max / axis->min);
  return (value - axis->min) / (axis->max - axis->min);
}

/* 1, 2, 2.5 or 5 times a power of ten, at least `least`. */
static double
nice_step (double least)
{
  static const double nice[] = { 1, 2, 2.5, 5, 10 };
  double power = pow (10, floor (log10 (least)));

  for (guint i = 0; i < G_N_ELEMENTS (nice); i++)
    if (nice[i] * power >= least * (1 - 1e-9))
      return nice[i] * power;
  return 10 * power;
}

static void
linear_ticks (SpChartAxis *axis, double most, GArray *ticks)
{
  if (axis->max <= axis->min)
    axis->max = axis->min + (axis->min != 0 ? fabs (axis->min) : 1);
  double step = nice_step ((axis->max - axis->min) / MAX (most, 1));
  axis->min = floor (axis->min / step + 1e-9) * step;
  axis->max = ceil (axis->max / step - 1e-9) * step;
  for (double i = round (axis->min / step); i * step <= axis->max + step / 2; i++)
    add_tick (ticks, i * step, sp_number_text (i * step));
}

/* Within few decades: 1, 2 and 5 of each, or fewer that have room; a span without any has its ends. */
static void
decade_ticks (const SpChartAxis *axis, double most, GArray *ticks)
{
  static const double steps[][4] = { { 1, 2, 5, 0 }, { 1, 3, 0 }, { 1, 0 } };

  for (guint s = 0; s < G_N_ELEMENTS (steps); s++) {
    g_array_set_size (ticks, 0);
    for (double power = pow (10, floor (log10 (axis->min))); power <= axis->max; power *= 10)
      for (guint i = 0; steps[s][i] > 0; i++)
        if (steps[s][i] * power >= axis->min * (1 - 1e-9) && steps[s][i] * power <= axis->max * (1 + 1e-9))
          add_tick (ticks, steps[s][i] * power, sp_number_text (steps[s][i] * power));
    if (ticks->len <= MAX (most, 2))
      break;
  }
  if (ticks->len >= 2)
    return;
  g_array_set_size (ticks, 0);
  add_tick (ticks, axis->min, sp_number_text (axis->min));
  add_tick (ticks, axis->max, sp_number_text (axis->max));
}

/* Powers of `base`, of which so many are left out that the rest has room; a span of less than one has its ends. */
static void
log_ticks (SpChartAxis *axis, double most, GArray *ticks)
{
  double base = axis->scale == SP_SCALE_LOG2 ? 2 : 10;

  if (axis->max <= axis->min) {
    axis->min /= 2;
    axis->max *= 2;
  }
  if (base == 10 && axis->max / axis->min < 200) {
    decade_ticks (axis, most, ticks);
    return;
  }
  double first = ceil (log (axis->min) / log (base) - 1e-6), last = floor (log (axis->max) / log (base) + 1e-6);
  double stride = MAX (ceil ((last - first + 1) / MAX (most, 2)), 1);
  for (double e = first; e <= last; e += stride) {
    double at = pow (base, e);
    add_tick (ticks, at, axis->tokens ? sp_tokens_text (at) : sp_number_text (at));
  }
  if (ticks->len >= 2)
    return;
  g_array_set_size (ticks, 0);
  add_tick (ticks, axis->min, axis->tokens ? sp_tokens_text (axis->min) : sp_number_text (axis->min));
  add_tick (ticks, axis->max, axis->tokens ? sp_tokens_text (axis->max) : sp_number_text (axis->max));
}

static void
name_ticks (SpChartAxis *axis, double most, GArray *ticks)
{
  guint n = axis->names->len, stride = (guint) MAX (ceil (n / MAX (most, 1)), 1);

  axis->min = -0.5;
  axis->max = n - 0.5;
  for (guint i = 0; i < n; i += stride)
    add_tick (ticks, i, g_strdup (axis->names->pdata[i]));
}

GArray *
sp_axis_ticks (SpChartAxis *axis, double length, double room)
{
  GArray *ticks = g_array_new (FALSE, FALSE, sizeof (SpTick));
  double most = floor (length / room);

  g_array_set_clear_func (ticks, tick_clear);
  if (axis->scale != SP_SCALE_NAMES && isnan (axis->min)) {
    axis->min = is_log (axis) ? 1 : 0;
    axis->max = is_log (axis) ? 2 : 1;
  }
  if (axis->scale == SP_SCALE_NAMES)
    name_ticks (axis, most, ticks);
  else if (is_log (axis))
    log_ticks (axis, most, ticks);
  else
    linear_ticks (axis, most, ticks);
  return ticks;
}

void
sp_axis_set (SpFigure *figure, char which, const SpChartAxis *axis, const GArray *ticks)
{
  char low[G_ASCII_DTOSTR_BUF_SIZE], high[G_ASCII_DTOSTR_BUF_SIZE];
  double slack = is_log (axis) ? 1 + 1e-7 : 1; /* gnuplot leaves out ticks that rounding has beyond an end */

  if (is_log (axis))
    sp_figure_add (figure, "set logscale %c %d\n", which, axis->scale == SP_SCALE_LOG2 ? 2 : 10);
  sp_figure_add (figure, "set %crange [%s:%s] noextend\nset %ctics (", which,
                 g_ascii_formatd (low, sizeof low, "%.9g", axis->min / slack),
                 g_ascii_formatd (high, sizeof high, "%.9g", axis->max * slack), which);
  for (guint i = 0; i < ticks->len; i++) {
    const SpTick *tick = &g_array_index (ticks, SpTick, i);
    /* gnuplot takes a tick's text for a format, so words of files are none. */
    g_autofree char *text = sp_figure_quote (axis->scale == SP_SCALE_NAMES ? "" : tick->text);
    sp_figure_add (figure, "%s%s %s", i > 0 ? ", " : "", text, g_ascii_formatd (low, sizeof low, "%.9g", tick->at));
  }
  /* What gnuplot leaves below an axis for SVG is for letters half as large again. */
  const char *offset = which == 'x' && figure->format == SP_FORMAT_SVG ? "offset 0,0.5 " : "";
  sp_figure_add (figure, ") nomirror %sfont ',%d' tc rgb '" SP_GREY "'\n", offset, SP_FONT_SMALL);
}

void
sp_axis_names (SpFigure *figure, char which, const SpChartAxis *axis, const GArray *ticks, const SpBox *axes)
{
  for (guint i = 0; i < ticks->len && axis->scale == SP_SCALE_NAMES; i++) {
    const SpTick *tick = &g_array_index (ticks, SpTick, i);
    double at = sp_axis_at (axis, tick->at);
    double x = axes->left + at * (axes->right - axes->left), y = axes->bottom + at * (axes->top - axes->bottom);
    if (which == 'x')
      sp_figure_label (figure, x, axes->bottom - 13, "center", SP_FONT_SMALL, SP_GREY, tick->text);
    else
      sp_figure_label (figure, axes->left - 8, y, "right", SP_FONT_SMALL, SP_GREY, tick->text);
  }
}

double
sp_ticks_width (const GArray *ticks)
{
  double width = 0;

  for (guint i = 0; i < ticks->len; i++)
    width = MAX (width, sp_text_width (g_array_index (ticks, SpTick, i).text, SP_FONT_SMALL));
  return width;
}
