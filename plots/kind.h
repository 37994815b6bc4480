/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Kinds of figures. A kind draws from a CSV: of a sweep, of a simulation, or of measurements; which columns it needs is
 * at the head of its file. A new kind is one file and one row of the table in kinds.c.
 */

#include "plots/chart.h"
#include "models/inputs/csv.h"

G_BEGIN_DECLS

/* What a kind draws from; where a scenario is given in a CSV's place, it is made of that. */
typedef enum {
  SP_SOURCE_SWEEP,      /* seqpar sweep */
  SP_SOURCE_STRATEGIES, /* the same, over the ways to cut the sequence */
  SP_SOURCE_MEMORY,     /* memory over simulated time */
  SP_SOURCE_SLICES,     /* what each stream of some ranks does, over simulated time */
  SP_SOURCE_LINKS,      /* bytes on each link */
  SP_SOURCE_TRAFFIC,    /* bytes by axis and kind of link */
  SP_SOURCE_KERNELS,    /* a program's kernels as priced, and as measured */
  SP_SOURCE_FIT,        /* measured points beside the curves of a profile */
  SP_SOURCE_CHECK,      /* predicted beside executed */
  SP_SOURCE_VALIDATION, /* predicted beside what others measured */
  SP_SOURCE_PARETO      /* layouts that none beats, of seqpar plan --pareto */
} SpSource;

typedef struct {
  const char *name, *summary;
  SpSource source;
  gboolean compares;  /* it has a place for figures of others, rows with a column `published` that names whom */
  gint width, height; /* usual ones; 0: by what there is to show */
  /* The height that what there is to show needs; NULL: the usual one. */
  gint (*measure) (const SpCsv *csv);
  gboolean (*draw) (SpFigure *figure, const SpCsv *csv, GError **error);
} SpKind;

/* NULL beyond the last. */
const SpKind *sp_kind_get (guint i);

/* Sets title and small print of what all rows are of, and the worst provenance, from the columns that a sweep has; of
 * those that are not there nothing is said. */
void sp_kind_subject (SpFigure *figure, const SpCsv *csv, const char *what);

/* Puts into the small print whose figures the rows of others are, and how they are marked; nothing where there are none.
 * After sp_kind_subject, before the frame. */
void sp_kind_published (SpFigure *figure, const SpCsv *csv, const char *mark);

/* The number of a name, which it takes, in a list that it joins if it is new; `numbers`: of each name, + 1. */
guint sp_name_number (GPtrArray *names, GHashTable *numbers, char *name);
/* Classes of memory have one style in all figures. */
guint sp_kind_class_style (const char *class);

/* --- sweep-table.c ------------------------------------------------------------------------------------------------ */

/* A sweep as curves: over one of its keys, a series for each value of the rest. */
typedef struct {
  const SpCsv *csv;
  SpChartAxis x;
  char *x_label;
  GPtrArray *series;     /* char *: names, in the order of the rows */
  guint *series_of;      /* [rows] */
  double *x_of;          /* [rows] */
  guint8 *priced, *fits; /* [rows] whether it has figures, and fits */
  guint8 *published;     /* [rows] whether somebody else says so: a column `published` names whom */
  guint n_published;
  guint n_priced;
} SpSweepTable;

/* The key on the x axis: tokens if they vary, else GPUs, else the first that varies. NULL where no row has figures. */
SpSweepTable *sp_sweep_table_new (const SpCsv *csv, GError **error);
void sp_sweep_table_free (SpSweepTable *table);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpSweepTable, sp_sweep_table_free)
/* "ulysses 8 x ring 2, zero 3": what a row has in keys that vary; "" where none does. Degrees in `bare` (NULL: none) are
 * named without their number. Free with g_free. */
char *sp_sweep_row_name (const SpCsv *csv, guint row, const gboolean *shown, const gboolean *bare);
/* What throughputs up to `most` tokens/s are divided by, so that ticks have at most four digits, and what that is. */
double sp_throughput_unit (double most, const char **ret_label);
/* Which columns are keys that differ from row to row. Free with g_free. */
gboolean *sp_sweep_varying (const SpCsv *csv, guint *ret_n_keys, GError **error);

/* --- bar-rows.c --------------------------------------------------------------------------------------------------- */

/* The rows of a sweep that have figures, a bar each. */
typedef struct {
  const SpCsv *csv;
  GArray *rows;     /* guint */
  GPtrArray *names; /* char *, of each of them */
  gboolean *fits;
} SpBarRows;

gboolean sp_bar_rows_init (SpBarRows *rows, const SpCsv *csv, GError **error);
void sp_bar_rows_clear (SpBarRows *rows);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpBarRows, sp_bar_rows_clear)
/* Of the i-th; 0 where there is none, or no column. */
double sp_bar_rows_number (const SpBarRows *rows, guint i, gint column);
/* GiB: the largest. */
double sp_bar_rows_capacity (const SpBarRows *rows, gint column);
/* Title, small print and frame. */
void sp_bar_rows_begin (SpFigure *figure, const SpBarRows *rows);

/* Parts of bars: a GArray of SpBarPart. */
typedef struct {
  gint column;
  char *name;
  guint style;
} SpBarPart;

GArray *sp_bar_parts_new (void);
/* A part, unless it is nothing in every row. */
void sp_bar_part_add (const SpBarRows *rows, GArray *parts, const char *column, const char *name, guint style);
SpBars *sp_bar_rows_stack (const SpBarRows *rows, const char *label, const GArray *parts, double unit);

/* --- accuracy.c --------------------------------------------------------------------------------------------------- */

/* Axes of both logarithms, and the line on which what is predicted is what was measured, with a tenth more and less. */
void sp_lines_diagonals (SpLines *lines, double least, double most);

/* --- kinds -------------------------------------------------------------------------------------------------------- */

gboolean sp_kind_scaling (SpFigure *figure, const SpCsv *csv, GError **error);
gboolean sp_kind_compare (SpFigure *figure, const SpCsv *csv, GError **error);
gboolean sp_kind_breakdown (SpFigure *figure, const SpCsv *csv, GError **error);
gboolean sp_kind_memory (SpFigure *figure, const SpCsv *csv, GError **error);
gboolean sp_kind_heatmap (SpFigure *figure, const SpCsv *csv, GError **error);
gint sp_bars_measure (const SpCsv *csv); /* of those that have a bar a row */
gboolean sp_kind_memory_time (SpFigure *figure, const SpCsv *csv, GError **error);
gboolean sp_kind_timeline (SpFigure *figure, const SpCsv *csv, GError **error);
gint sp_timeline_measure (const SpCsv *csv);
gboolean sp_kind_roofline (SpFigure *figure, const SpCsv *csv, GError **error);
gboolean sp_kind_calibration (SpFigure *figure, const SpCsv *csv, GError **error);
gboolean sp_kind_accuracy (SpFigure *figure, const SpCsv *csv, GError **error);
gboolean sp_kind_validation (SpFigure *figure, const SpCsv *csv, GError **error);
gboolean sp_kind_topology (SpFigure *figure, const SpCsv *csv, GError **error);
gboolean sp_kind_volume (SpFigure *figure, const SpCsv *csv, GError **error);
gint sp_volume_measure (const SpCsv *csv);
gboolean sp_kind_pareto (SpFigure *figure, const SpCsv *csv, GError **error);

G_END_DECLS
