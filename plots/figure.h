/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A figure: a gnuplot script and its numbers, built by the charts (chart.h) and drawn by gnuplot as a child process.
 *
 * The house style is here and nowhere else: eight colours that the colour-blind tell apart (Okabe and Ito 2008), each
 * with a marker and a dash of its own, so that no colour alone carries meaning; light grid, no frame; small print at the
 * bottom. Places are pixels of the whole figure from its lower left corner, 96 to an inch.
 *
 * Text of files goes into the script as strings of plain characters and octal codes, in which gnuplot finds nothing to
 * run, and the terminal is told `noenhanced`, so that no character of it is markup. Numbers stand in a file of their own,
 * block by block.
 *
 * gnuplot reads no start-up file, and writes in a folder of its own.
 */

#include <glib.h>

G_BEGIN_DECLS

#define SP_FIGURE_ERROR (sp_figure_error_quark ())
GQuark sp_figure_error_quark (void);
typedef enum {
  SP_FIGURE_ERROR_DATA,   /* nothing to draw, or more than can be told apart */
  SP_FIGURE_ERROR_FORMAT, /* a suffix that is no format */
  SP_FIGURE_ERROR_PROGRAM /* gnuplot is missing, or failed */
} SpFigureError;

gboolean sp_figure_fail (GError **error, SpFigureError code, const char *format, ...) G_GNUC_PRINTF (3, 4);

typedef enum { SP_FORMAT_PNG, SP_FORMAT_SVG, SP_FORMAT_PDF, SP_FORMAT_TEXT } SpFormat;

/* By the suffix; "-" is text. */
gboolean sp_figure_format (const char *path, SpFormat *ret, GError **error);

typedef struct {
  SpFormat format;
  gint width, height; /* pixels; a character of text has SP_CELL_WIDTH x SP_CELL_HEIGHT of them */
  char *title;
  char *small_print;
  GString *script, *data, *text; /* `text`: what of a text figure needs no gnuplot */
  guint n_blocks;
} SpFigure;

SpFigure *sp_figure_new (SpFormat format, gint width, gint height);
void sp_figure_free (SpFigure *figure);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpFigure, sp_figure_free)

/* To the script. */
void sp_figure_add (SpFigure *figure, const char *format, ...) G_GNUC_PRINTF (2, 3);
/* As a literal of the script: one line, valid UTF-8. Free with g_free. */
char *sp_figure_quote (const char *text);
/* A row of the data's open block; a NAN is a gap. */
void sp_figure_row (SpFigure *figure, guint n, const double *values);
/* A gap in the open block: lines do not go over it. */
void sp_figure_gap (SpFigure *figure);
/* Ends the block; its number, for `data index N`. */
guint sp_figure_block (SpFigure *figure);

/* A text at a place. `align` is left, center or right. */
void sp_figure_label (SpFigure *figure, double x, double y, const char *align, gint size, const char *colour,
                      const char *text);
/* A line between two places. */
void sp_figure_line (SpFigure *figure, double x0, double y0, double x1, double y1, const char *style);
/* Places of the axes' corners of the next plot. Forgets labels and lines of the one before. */
void sp_figure_panel (SpFigure *figure, double left, double right, double bottom, double top);

/* About how wide a text is, in pixels. */
double sp_text_width (const char *text, gint size);
/* The text with ... at its end, so that it is no wider. Free with g_free. */
char *sp_text_shorten (const char *text, gint size, double width);

/* Draws: the bytes of a file of the format, or the text, behind what `out` has. */
gboolean sp_figure_draw (const SpFigure *figure, GString *out, GError **error);
/* The script that draws it again with gnuplot alone, in a folder with `data_name`, to `output_name`; its numbers are
 * figure->data. Free with g_free. */
char *sp_figure_script (const SpFigure *figure, const char *output_name, const char *data_name);

/* --- style -------------------------------------------------------------------------------------------------------- */

#define SP_STYLES 8 /* that can be told apart */
#define SP_CELL_WIDTH 8
#define SP_CELL_HEIGHT 16
#define SP_FONT 12
#define SP_FONT_SMALL 10
#define SP_GREY "#666666"
#define SP_INK "#222222"
#define SP_PALE "#dddddd"
/* A marker's size for gnuplot's terminals, which mean different things by it. */
double sp_figure_point (const SpFigure *figure, double size);
/* What holds for axes where a chart does not say otherwise. */
#define SP_FRAME                                                                                                       \
  "set border 3 lc rgb '" SP_GREY "'\nset tics nomirror out scale 0.6\n"                                               \
  "set grid xtics ytics lt 1 lc rgb '" SP_PALE "' lw 0.7\nset ytics format '%%g'\n"

const char *sp_style_colour (guint i);
gint sp_style_point (guint i);
gint sp_style_open_point (guint i); /* the same, not filled */
gint sp_style_dash (guint i);
/* gnuplot's pattern that lies over a filled part; 0: none. */
gint sp_style_pattern (guint i);

G_END_DECLS
