/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The charts that figures are made of: curves over an axis, bars, stacked areas, cells, spans of time. Each is one file
 * and draws into a place of a figure; what it shows is given as numbers and words, it knows nothing of seqpar.
 *
 * The unit of the y axis stands above it, that of the x axis below. Curves are named at their right end, in the
 * order in which they end; names that would overlap are pushed apart.
 */

#include "plots/figure.h"

G_BEGIN_DECLS

/* A part of a figure, in pixels, with everything that belongs to the chart. */
typedef struct {
  double left, right, bottom, top;
} SpBox;

/* The figure without title and small print, cut into columns and rows; the first row is the upper one. Of text the
 * columns stand below each other. */
SpBox sp_figure_place (const SpFigure *figure, guint column, guint n_columns, guint row, guint n_rows);
gboolean sp_figure_is_text (const SpFigure *figure);
/* Title and small print: once a figure, before its first chart. */
void sp_figure_frame (SpFigure *figure);

/* What the y axis, or the bars, are of: in the upper left corner, smaller where it is long. */
void sp_chart_title (SpFigure *figure, const SpBox *place, const char *text);

/* --- chart-ticks.c ------------------------------------------------------------------------------------------------ */

typedef enum { SP_SCALE_LINEAR, SP_SCALE_LOG2, SP_SCALE_LOG10, SP_SCALE_NAMES } SpScale;

typedef struct {
  const char *label; /* with its unit */
  SpScale scale;
  gboolean tokens; /* of a log scale: 64K, 1M */
  double min, max;
  GPtrArray *names; /* of SP_SCALE_NAMES: of 0, 1 ... */
} SpChartAxis;

typedef struct {
  double at;
  char *text;
} SpTick;

/* Widens the axis to whole ticks and says which, at most one for each `room` pixels of `length`. Free with
 * g_array_unref. */
GArray *sp_axis_ticks (SpChartAxis *axis, double length, double room);
/* Fraction of the axis at which a value stands. */
double sp_axis_at (const SpChartAxis *axis, double value);
void sp_axis_cover (SpChartAxis *axis, double value); /* widens it */
/* "64K", "1.5M"; "1,024", "0.25"; a number as people write it. Free with g_free. */
char *sp_tokens_text (double tokens);
char *sp_number_text (double value);
/* Sets range, scale and ticks of 'x' or 'y'. */
void sp_axis_set (SpFigure *figure, char which, const SpChartAxis *axis, const GArray *ticks);
/* Of SP_SCALE_NAMES, the names at the ticks of a plot with these corners. */
void sp_axis_names (SpFigure *figure, char which, const SpChartAxis *axis, const GArray *ticks, const SpBox *axes);
double sp_ticks_width (const GArray *ticks);

/* --- chart-lines.c ------------------------------------------------------------------------------------------------ */

typedef enum { SP_POINT_FITS, SP_POINT_OUT } SpPointMark; /* OUT: did not fit; a cross */

typedef struct {
  double x, y;
  guint8 mark;
} SpChartPoint;

typedef struct {
  char *name;     /* NULL: none is shown */
  GArray *points; /* SpChartPoint, by x where they are joined */
  guint style;
  gboolean joined, marked; /* a line, markers */
  gboolean open;           /* of these, that are not filled */
  gboolean plain;          /* grey and thin: what others are compared with */
} SpSeries;

typedef struct {
  SpChartAxis x, y;
  GPtrArray *series; /* SpSeries */
  double level;      /* a line across at y, NAN: none; the part above it is shaded, and named at its top */
  const char *level_name;
  const GPtrArray *legend; /* char *: names of styles, above the chart; NULL: none. Borrowed */
} SpLines;

SpLines *sp_lines_new (const char *x, const char *y);
SpSeries *sp_lines_add (SpLines *lines, const char *name);
void sp_series_point (SpSeries *series, double x, double y, SpPointMark mark);
void sp_lines_free (SpLines *lines);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpLines, sp_lines_free)
void sp_lines_draw (SpFigure *figure, SpLines *lines, const SpBox *place);

/* --- chart-bars.c ------------------------------------------------------------------------------------------------- */

typedef struct {
  char *name;
  double *parts; /* [n_parts] */
  gboolean out;  /* did not fit */
  char *note;    /* behind the bar; NULL: its length */
} SpBar;

typedef struct {
  const char *label; /* of the axis, with its unit */
  GPtrArray *parts;  /* char *: names */
  GArray *styles;    /* guint, of each part */
  GPtrArray *bars;   /* SpBar, from above */
  double level;      /* a line across, and its name; NAN: none */
  const char *level_name;
  gboolean headroom; /* as if there were a level: to stand in line with a chart that has one */
  gboolean unnamed;  /* names are beside another chart's bars, in the same order */
} SpBars;

SpBars *sp_bars_new (const char *label);
void sp_bars_part (SpBars *bars, const char *name);
void sp_bars_part_styled (SpBars *bars, const char *name, guint style);
SpBar *sp_bars_add (SpBars *bars, const char *name); /* after all parts */
void sp_bars_free (SpBars *bars);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpBars, sp_bars_free)
void sp_bars_draw (SpFigure *figure, SpBars *bars, const SpBox *place);
/* How high such a chart should be. */
double sp_bars_height (guint n_bars, gboolean legend);

/* Names with their colours (`styles`: guint, NULL in order) in a line or two from the upper left corner down; how high
 * they are. */
double sp_legend_draw (SpFigure *figure, const GPtrArray *names, const GArray *styles, const SpBox *place);
guint sp_style_of (const GArray *styles, guint part); /* NULL: in order */

/* --- chart-cells.c ------------------------------------------------------------------------------------------------ */

typedef enum { SP_CELL_VALUE, SP_CELL_OUT, SP_CELL_REFUSED } SpCellState;

typedef struct {
  guint x, y;              /* numbers of names */
  double value, published; /* what others say, in brackets; NAN: nothing, INFINITY: that it ran out of memory */
  guint8 state;            /* SpCellState */
} SpCell;

typedef struct {
  const char *x_label, *value_label;
  GPtrArray *x, *y;  /* char *: names, from the left and from below */
  GArray *cells;     /* SpCell */
  gboolean compares; /* some have what others say */
} SpCells;

SpCells *sp_cells_new (const char *x, const char *value);
void sp_cells_free (SpCells *cells);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpCells, sp_cells_free)
void sp_cells_draw (SpFigure *figure, SpCells *cells, const SpBox *place);

/* --- chart-spans.c ------------------------------------------------------------------------------------------------ */

typedef struct {
  guint row, kind;
  double begin, end;
} SpSpan;

typedef struct {
  const char *label;       /* of the axis, with its unit */
  GPtrArray *rows, *kinds; /* char *: names, from above */
  GArray *spans;           /* SpSpan */
} SpSpans;

SpSpans *sp_spans_new (const char *label);
void sp_spans_free (SpSpans *spans);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpSpans, sp_spans_free)
void sp_spans_draw (SpFigure *figure, SpSpans *spans, const SpBox *place);

/* --- chart-areas.c ------------------------------------------------------------------------------------------------ */

/* Parts on top of each other, each as it is until the next date. */
typedef struct {
  SpChartAxis x, y;
  GPtrArray *parts; /* char *: names, from below */
  GArray *styles;   /* guint, of each part; NULL: in order */
  GArray *dates;    /* double */
  GArray *values;   /* double: of each date, of each part */
  double end;
  double level; /* a line across, and its name; NAN: none */
  const char *level_name;
} SpAreas;

SpAreas *sp_areas_new (const char *x, const char *y);
void sp_areas_free (SpAreas *areas);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpAreas, sp_areas_free)
void sp_areas_draw (SpFigure *figure, SpAreas *areas, const SpBox *place);

G_END_DECLS
