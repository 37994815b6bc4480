/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of two axes, coloured by a value: pale is little, dark is much, in one hue, so that grey shows the same. */
#include <math.h>

#include "plots/chart.h"

#define MOST_CELLS 160  /* along an axis: of more, evenly some */
#define LEAST_WORDED 30 /* pixels of a cell with its number */
#define LINE 14         /* pixels of one of its two numbers */

SpCells *
sp_cells_new (const char *x, const char *value)
{
  SpCells *cells = g_new0 (SpCells, 1);

  cells->x_label = x;
  cells->value_label = value;
  cells->x = g_ptr_array_new_with_free_func (g_free);
  cells->y = g_ptr_array_new_with_free_func (g_free);
  cells->cells = g_array_new (FALSE, FALSE, sizeof (SpCell));
  return cells;
}

void
sp_cells_free (SpCells *cells)
{
  if (cells == NULL)
    return;
  g_ptr_array_unref (cells->x);
  g_ptr_array_unref (cells->y);
  g_array_unref (cells->cells);
  g_free (cells);
}

/* From nearly white to a dark blue, even in lightness: three points of a path through Lab, joined. */
static guint
colour_at (double at)
{
  static const double path[3][3] = { { 235, 243, 250 }, { 90, 160, 205 }, { 8, 48, 107 } };
  double t = CLAMP (at, 0, 1) * 2;
  guint i = t < 1 ? 0 : 1, colour = 0;

  for (guint c = 0; c < 3; c++)
    colour = colour << 8 | (guint) (path[i][c] + (t - i) * (path[i + 1][c] - path[i][c]) + 0.5);
  return colour;
}

/* FALSE: no cell has a value. */
static gboolean
range_of (const SpCells *cells, double *ret_min, double *ret_max)
{
  *ret_min = INFINITY;
  *ret_max = -INFINITY;
  for (guint i = 0; i < cells->cells->len; i++) {
    const SpCell *cell = &g_array_index (cells->cells, SpCell, i);
    if (cell->state != SP_CELL_VALUE)
      continue;
    *ret_min = MIN (*ret_min, cell->value);
    *ret_max = MAX (*ret_max, cell->value);
  }
  gboolean any = *ret_min <= *ret_max;
  if (*ret_min == *ret_max)
    *ret_min -= 1; /* one value: all are dark */
  return any;
}

static char *
number_of (double value)
{
  char digits[G_ASCII_DTOSTR_BUF_SIZE];

  return g_strdup (g_ascii_formatd (digits, sizeof digits,
                                    value >= 100  ? "%.0f"
                                    : value >= 10 ? "%.1f"
                                                  : "%.2f",
                                    value));
}

static char *
word_of (const SpCell *cell)
{
  if (cell->state != SP_CELL_VALUE)
    return g_strdup (cell->state == SP_CELL_OUT ? "x" : "-");
  return number_of (cell->value);
}

/* NULL: others say nothing of it. */
static char *
published_of (const SpCell *cell)
{
  g_autofree char *number = isnan (cell->published) ? NULL : number_of (cell->published);

  return number != NULL ? g_strdup_printf ("(%s)", isinf (cell->published) ? "x" : number) : NULL;
}

static char *
legend_of (const SpCells *cells)
{
  return g_strdup_printf ("x: out of memory   -: refused%s", cells->compares ? "   ( ): published" : "");
}

/* --- with gnuplot ------------------------------------------------------------------------------------------------- */

static void
add_words (SpFigure *figure, const SpCells *cells, const SpBox *axes, double min, double max)
{
  double width = (axes->right - axes->left) / cells->x->len, height = (axes->top - axes->bottom) / cells->y->len;

  if (width < LEAST_WORDED || height < 14)
    return;
  for (guint i = 0; i < cells->cells->len; i++) {
    const SpCell *cell = &g_array_index (cells->cells, SpCell, i);
    g_autofree char *word = word_of (cell), *published = published_of (cell);
    gboolean dark = cell->state == SP_CELL_VALUE && (cell->value - min) / (max - min) > 0.5;
    double x = axes->left + (cell->x + 0.5) * width, y = axes->bottom + (cell->y + 0.5) * height;
    gboolean both = published != NULL && height >= 2 * LINE;
    sp_figure_label (figure, x, both ? y + LINE / 2.0 : y, "center", SP_FONT_SMALL, dark ? "#ffffff" : SP_INK, word);
    if (both)
      sp_figure_label (figure, x, y - LINE / 2.0, "center", SP_FONT_SMALL, dark ? "#ffffff" : SP_INK, published);
  }
}

static void
add_scale (SpFigure *figure, double left, double right, double bottom, double top, double min, double max)
{
  enum { STEPS = 40 };
  g_autofree char *low = sp_number_text (min), *high = sp_number_text (max);
  double w = figure->width, h = figure->height;

  for (guint i = 0; i < STEPS; i++)
    sp_figure_add (figure,
                   "set object rectangle from screen %.5f,%.5f to screen %.5f,%.5f front fs solid 1 noborder fc rgb "
                   "'#%06x'\n",
                   (left + (right - left) * i / STEPS) / w, bottom / h, (left + (right - left) * (i + 1) / STEPS) / w,
                   top / h, colour_at ((double) i / (STEPS - 1)));
  sp_figure_label (figure, left - 6, (bottom + top) / 2, "right", SP_FONT_SMALL, SP_GREY, low);
  sp_figure_label (figure, right + 6, (bottom + top) / 2, "left", SP_FONT_SMALL, SP_GREY, high);
}

static void
add_blocks (SpFigure *figure, const SpCells *cells, double min, double max)
{
  guint x_stride = (cells->x->len - 1) / MOST_CELLS + 1, y_stride = (cells->y->len - 1) / MOST_CELLS + 1;
  double x_half = 0.48 * x_stride, y_half = 0.46 * y_stride;

  for (guint i = 0; i < cells->cells->len; i++) {
    const SpCell *cell = &g_array_index (cells->cells, SpCell, i);
    if (cell->x % x_stride != 0 || cell->y % y_stride != 0)
      continue;
    guint colour = cell->state == SP_CELL_VALUE ? colour_at ((cell->value - min) / (max - min))
                   : cell->state == SP_CELL_OUT ? 0xe4e4e4
                                                : 0xf7f7f7;
    sp_figure_row (figure, 7,
                   (const double[]){ cell->x, cell->y, cell->x - x_half, cell->x + x_half, cell->y - y_half,
                                     cell->y + y_half, colour });
  }
  sp_figure_add (figure, "plot data index %u using 1:2:3:4:5:6:7 with boxxyerror fs solid 1 noborder lc rgb variable\n",
                 sp_figure_block (figure));
}

static void
draw (SpFigure *figure, const SpCells *cells, const SpBox *place)
{
  SpChartAxis x = { .scale = SP_SCALE_NAMES, .names = cells->x }, y = { .scale = SP_SCALE_NAMES, .names = cells->y };
  SpBox axes = { place->left, place->right - 8, place->bottom + 38, place->top - 44 };
  double min, max, room = 16;

  gboolean any = range_of (cells, &min, &max);
  g_autoptr (GArray) y_ticks = sp_axis_ticks (&y, axes.top - axes.bottom, 16);
  axes.left += MIN (sp_ticks_width (y_ticks) + 12, 0.45 * (place->right - place->left));
  for (guint i = 0; i < cells->x->len; i++)
    room = MAX (room, sp_text_width (cells->x->pdata[i], SP_FONT_SMALL) + 10);
  g_autoptr (GArray) x_ticks = sp_axis_ticks (&x, axes.right - axes.left, room);
  sp_figure_panel (figure, axes.left, axes.right, axes.bottom, axes.top);
  sp_axis_set (figure, 'x', &x, x_ticks);
  sp_axis_set (figure, 'y', &y, y_ticks);
  sp_axis_names (figure, 'x', &x, x_ticks, &axes);
  sp_axis_names (figure, 'y', &y, y_ticks, &axes);
  sp_chart_title (figure, place, cells->value_label);
  g_autofree char *legend = legend_of (cells);
  sp_figure_label (figure, place->left, place->top - 28, "left", SP_FONT_SMALL, SP_GREY, legend);
  sp_figure_label (figure, (axes.left + axes.right) / 2, place->bottom + 8, "center", SP_FONT, SP_INK, cells->x_label);
  if (any)
    add_scale (figure, place->right - 170, place->right - 50, place->top - 15, place->top - 5, min, max);
  add_words (figure, cells, &axes, min, max);
  sp_figure_add (figure, "unset grid\nset tics scale 0\nunset border\n");
  add_blocks (figure, cells, min, max);
}

/* --- as text ------------------------------------------------------------------------------------------------------ */

static void
write_text (SpFigure *figure, const SpCells *cells)
{
  enum { MOST = 16, MOST_ROWS = 40 };
  const gint column = cells->compares ? 13 : 7;
  guint n_x = MIN (cells->x->len, MOST), n_y = MIN (cells->y->len, MOST_ROWS);
  g_autofree const SpCell **table = g_new0 (const SpCell *, n_x *n_y);
  glong width = 0;

  for (guint i = 0; i < cells->cells->len; i++) {
    const SpCell *cell = &g_array_index (cells->cells, SpCell, i);
    if (cell->x < n_x && cell->y < n_y)
      table[cell->y * n_x + cell->x] = cell;
  }
  for (guint y = 0; y < n_y; y++)
    width = MAX (width, g_utf8_strlen (cells->y->pdata[y], -1));
  g_autofree char *legend = legend_of (cells);
  g_string_append_printf (figure->text, "\n%s over %s; %s\n", cells->value_label, cells->x_label, legend);
  for (guint y = n_y; y-- > 0;) {
    g_string_append_printf (figure->text, "  %s%*s", (char *) cells->y->pdata[y],
                            (int) (width - g_utf8_strlen (cells->y->pdata[y], -1)), "");
    for (guint x = 0; x < n_x; x++) {
      const SpCell *cell = table[y * n_x + x];
      g_autofree char *word = cell != NULL ? word_of (cell) : g_strdup ("");
      g_autofree char *published = cell != NULL ? published_of (cell) : NULL;
      g_autofree char *both = g_strjoin (" ", word, published, NULL);
      g_string_append_printf (figure->text, " %*s", column, both);
    }
    g_string_append_c (figure->text, '\n');
  }
  g_string_append_printf (figure->text, "  %*s", (int) width, "");
  for (guint x = 0; x < n_x; x++)
    g_string_append_printf (figure->text, " %*.*s", column, column, (char *) cells->x->pdata[x]);
  if (n_x < cells->x->len || n_y < cells->y->len)
    g_string_append (figure->text, "\n  and more that have no room here");
  g_string_append_c (figure->text, '\n');
}

void
sp_cells_draw (SpFigure *figure, SpCells *cells, const SpBox *place)
{
  if (sp_figure_is_text (figure))
    write_text (figure, cells);
  else
    draw (figure, cells, place);
}
