/* SPDX-License-Identifier: Apache-2.0 */
#include "plots/figure.h"

#include <math.h>
#include <string.h>

/* clang-format off */
G_DEFINE_QUARK (sp-figure-error-quark, sp_figure_error)
/* clang-format on */

gboolean
sp_figure_fail (GError **error, SpFigureError code, const char *format, ...)
{
  va_list arguments;

  va_start (arguments, format);
  g_propagate_error (error, g_error_new_valist (SP_FIGURE_ERROR, (int) code, format, arguments));
  va_end (arguments);
  return FALSE;
}

/* --- style -------------------------------------------------------------------------------------------------------- */

/* Okabe and Ito's, those that stand out on white first; their yellow is too pale for lines and comes last. */
static const struct {
  const char *colour;
  gint point, dash, pattern;
} styles[SP_STYLES] = {
  { "#0072b2", 7, 1, 0 },  { "#d55e00", 5, 2, 4 },  { "#009e73", 9, 4, 0 }, { "#cc79a7", 13, 3, 5 },
  { "#e69f00", 11, 5, 0 }, { "#56b4e9", 15, 1, 4 }, { "#555555", 6, 2, 5 }, { "#f0e442", 4, 4, 0 },
};

const char *
sp_style_colour (guint i)
{
  return styles[i % SP_STYLES].colour;
}

gint
sp_style_point (guint i)
{
  return styles[i % SP_STYLES].point;
}

/* gnuplot's markers come in pairs, the open one first. */
gint
sp_style_open_point (guint i)
{
  gint point = sp_style_point (i);

  return point >= 5 && point % 2 == 1 ? point - 1 : point;
}

gint
sp_style_dash (guint i)
{
  return styles[i % SP_STYLES].dash;
}

gint
sp_style_pattern (guint i)
{
  return styles[i % SP_STYLES].pattern;
}

double
sp_figure_point (const SpFigure *figure, double size)
{
  return figure->format == SP_FORMAT_SVG ? 0.75 * size : size;
}

/* --- building ----------------------------------------------------------------------------------------------------- */

gboolean
sp_figure_format (const char *path, SpFormat *ret, GError **error)
{
  static const struct {
    const char *suffix;
    SpFormat format;
  } formats[] = { { ".png", SP_FORMAT_PNG }, { ".svg", SP_FORMAT_SVG }, { ".pdf", SP_FORMAT_PDF } };

  *ret = SP_FORMAT_TEXT;
  if (g_str_equal (path, "-"))
    return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++)
    if (g_str_has_suffix (path, formats[i].suffix)) {
      *ret = formats[i].format;
      return TRUE;
    }
  return sp_figure_fail (error, SP_FIGURE_ERROR_FORMAT,
                         "%s: expected a name that ends in .png, .svg or .pdf, or - for text",
                         *path != '\0' ? path : "\"\"");
}

SpFigure *
sp_figure_new (SpFormat format, gint width, gint height)
{
  SpFigure *figure = g_new0 (SpFigure, 1);

  figure->format = format;
  figure->width = width;
  figure->height = height;
  figure->script = g_string_new (NULL);
  figure->data = g_string_new (NULL);
  figure->text = g_string_new (NULL);
  return figure;
}

void
sp_figure_free (SpFigure *figure)
{
  if (figure == NULL)
    return;
  g_free (figure->title);
  g_free (figure->small_print);
  g_string_free (figure->script, TRUE);
  g_string_free (figure->data, TRUE);
  g_string_free (figure->text, TRUE);
  g_free (figure);
}

void
sp_figure_add (SpFigure *figure, const char *format, ...)
{
  va_list arguments;

  va_start (arguments, format);
  g_string_append_vprintf (figure->script, format, arguments);
  va_end (arguments);
}

/* In double quotes with all but plain characters as octal bytes, so that no quote, backtick or backslash of a text is
 * seen where gnuplot looks for strings and commands. (In single quotes, a doubled one that comes first ends the string.) It
 * reads as many octal digits as there are, so a digit behind such a byte is one too. */
char *
sp_figure_quote (const char *text)
{
  g_autofree char *valid = g_utf8_make_valid (text, -1);
  GString *quoted = g_string_new ("\"");
  gboolean octal = FALSE;

  for (const char *c = valid; *c != '\0'; c = g_utf8_next_char (c)) {
    gunichar u = g_utf8_get_char (c);
    gboolean control = g_unichar_iscntrl (u) || u == 0x2028 || u == 0x2029;
    octal = !control && !g_ascii_isalpha (*c) && strchr (" ,.:-", *c) == NULL && (octal || !g_ascii_isdigit (*c));
    if (!octal)
      g_string_append_c (quoted, control ? ' ' : *c);
    for (const char *byte = c; octal && byte < g_utf8_next_char (c); byte++)
      g_string_append_printf (quoted, "\\%03o", (guchar) *byte);
  }
  g_string_append_c (quoted, '"');
  return g_string_free (quoted, FALSE);
}

void
sp_figure_row (SpFigure *figure, guint n, const double *values)
{
  char digits[G_ASCII_DTOSTR_BUF_SIZE];

  for (guint i = 0; i < n; i++)
    g_string_append_printf (figure->data, "%s%s", i > 0 ? " " : "",
                            isfinite (values[i]) ? g_ascii_formatd (digits, sizeof digits, "%.9g", values[i]) : "NaN");
  g_string_append_c (figure->data, '\n');
}

void
sp_figure_gap (SpFigure *figure)
{
  g_string_append_c (figure->data, '\n');
}

guint
sp_figure_block (SpFigure *figure)
{
  g_string_append (figure->data, "\n\n");
  return figure->n_blocks++;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

void
sp_figure_panel (SpFigure *figure, double left, double right, double bottom, double top)
{
  sp_figure_add (figure,
                 "unset label\nunset arrow\nunset object\nunset logscale\n" SP_FRAME
                 "set lmargin at screen %.5f\nset rmargin at screen %.5f\n"
                 "set bmargin at screen %.5f\nset tmargin at screen %.5f\n",
                 left / figure->width, right / figure->width, bottom / figure->height, top / figure->height);
}

void
sp_figure_label (SpFigure *figure, double x, double y, const char *align, gint size, const char *colour,
                 const char *text)
{
  g_autofree char *quoted = sp_figure_quote (text);

  sp_figure_add (figure, "set label %s at screen %.5f,%.5f %s font ',%d' tc rgb '%s' front\n", quoted,
                 x / figure->width, y / figure->height, align, size, colour);
}

void
sp_figure_line (SpFigure *figure, double x0, double y0, double x1, double y1, const char *style)
{
  sp_figure_add (figure, "set arrow from screen %.5f,%.5f to screen %.5f,%.5f nohead %s\n", x0 / figure->width,
                 y0 / figure->height, x1 / figure->width, y1 / figure->height, style);
}

/* Of DejaVu Sans, which is wider than most: what fits here fits elsewhere. */
double
sp_text_width (const char *text, gint size)
{
  /* Advance widths from the blank to ~, in hundredths of an em. */
  static const guint8 widths[] = { 32, 40, 46, 84, 64, 95, 78, 28, 39, 39, 50, 84, 32, 36,  32, 34, 64, 64, 64,
                                   64, 64, 64, 64, 64, 64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63,
                                   58, 78, 75, 30, 30, 66, 56, 86, 75, 79, 60, 79, 70, 64,  61, 73, 68, 99, 69,
                                   61, 69, 39, 34, 39, 84, 50, 50, 61, 64, 55, 64, 62, 35,  64, 63, 28, 28, 58,
                                   28, 97, 63, 61, 64, 64, 41, 52, 39, 63, 59, 82, 59, 59,  53, 64, 34, 64, 84 };
  guint hundredths = 0;

  for (const char *c = text; *c != '\0'; c = g_utf8_next_char (c)) {
    gunichar u = g_utf8_get_char (c);
    hundredths += u >= ' ' && u <= '~' ? widths[u - ' '] : g_unichar_iswide (u) ? 110 : 65;
  }
  return hundredths / 100.0 * size;
}

char *
sp_text_shorten (const char *text, gint size, double width)
{
  g_autofree char *valid = g_utf8_make_valid (text, -1);
  glong n = g_utf8_strlen (valid, -1);

  if (sp_text_width (valid, size) <= width)
    return g_steal_pointer (&valid);
  while (n > 0) {
    g_autofree char *head = g_utf8_substring (valid, 0, --n);
    g_autofree char *shorter = g_strconcat (g_strchomp (head), "...", NULL);
    if (sp_text_width (shorter, size) <= width || n == 0)
      return g_steal_pointer (&shorter);
  }
  return g_strdup ("");
}
