/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster's graph, and how much of the step each link is busy. Columns: from, from_kind, to, to_kind (names of
 * vertices begin with nodeN. where they are in a node), bytes_per_s, AXIS_bytes, step_time_s. The two directions of a
 * link are one line, as wide and dark as the busier one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plots/kind.h"

#define MOST_VERTICES 1200

typedef struct {
  char *name;
  guint level; /* from below */
  gint node;   /* -1: outside of nodes */
  double x, y;
} Vertex;

typedef struct {
  guint from, to;
  double busy; /* fraction of the step */
} Link;

typedef struct {
  GArray *vertices, *links;
  GHashTable *numbers; /* of a vertex's name, + 1 */
  gint n_nodes;
} Graph;

static void
vertex_clear (gpointer vertex)
{
  g_free (((Vertex *) vertex)->name);
}

static void
graph_clear (Graph *graph)
{
  g_clear_pointer (&graph->vertices, g_array_unref);
  g_clear_pointer (&graph->links, g_array_unref);
  g_clear_pointer (&graph->numbers, g_hash_table_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Graph, graph_clear)

static Vertex *
vertex_of (const Graph *graph, guint i)
{
  return &g_array_index (graph->vertices, Vertex, i);
}

/* GPUs below, what joins them above, the network on top. */
enum { LEVEL_GPU, LEVEL_PCIE, LEVEL_SWITCH, LEVEL_NIC, LEVEL_LEAF, LEVEL_TOP, N_LEVELS };

static guint
level_of (const char *kind)
{
  static const struct {
    const char *kind;
    guint level;
  } levels[] = { { "GPU", LEVEL_GPU },       { "PCIe switch", LEVEL_PCIE }, { "NVSwitch", LEVEL_SWITCH },
                 { "socket", LEVEL_SWITCH }, { "NIC", LEVEL_NIC },          { "leaf", LEVEL_LEAF } };

  for (guint i = 0; i < G_N_ELEMENTS (levels); i++)
    if (g_str_equal (kind, levels[i].kind))
      return levels[i].level;
  return LEVEL_TOP;
}

static guint
add_vertex (Graph *graph, char *name, const char *kind)
{
  gpointer found = g_hash_table_lookup (graph->numbers, name);
  Vertex vertex = { name, level_of (kind), -1, 0, 0 };

  if (found != NULL) {
    g_free (name);
    return GPOINTER_TO_UINT (found) - 1;
  }
  if (g_str_has_prefix (name, "node") && g_ascii_isdigit (name[4]))
    vertex.node = (gint) CLAMP (g_ascii_strtoll (name + 4, NULL, 10), 0, MOST_VERTICES);
  graph->n_nodes = MAX (graph->n_nodes, vertex.node + 1);
  g_array_append_val (graph->vertices, vertex);
  g_hash_table_insert (graph->numbers, name, GUINT_TO_POINTER (graph->vertices->len));
  return graph->vertices->len - 1;
}

static void
add_link (Graph *graph, guint from, guint to, double busy)
{
  for (guint i = 0; i < graph->links->len; i++) {
    Link *link = &g_array_index (graph->links, Link, i);
    if (link->from == to && link->to == from) {
      link->busy = MAX (link->busy, busy);
      return;
    }
  }
  const Link link = { from, to, busy };
  g_array_append_val (graph->links, link);
}

static gboolean
read_graph (const SpCsv *csv, Graph *graph, GError **error)
{
  gint from, from_kind, to, to_kind, rate, step;
  double seconds = 0;

  if (!sp_csv_need (csv, "from", &from, error) || !sp_csv_need (csv, "from_kind", &from_kind, error) ||
      !sp_csv_need (csv, "to", &to, error) || !sp_csv_need (csv, "to_kind", &to_kind, error) ||
      !sp_csv_need (csv, "bytes_per_s", &rate, error) || !sp_csv_need (csv, "step_time_s", &step, error))
    return FALSE;
  graph->vertices = g_array_new (FALSE, FALSE, sizeof (Vertex));
  g_array_set_clear_func (graph->vertices, vertex_clear);
  graph->links = g_array_new (FALSE, FALSE, sizeof (Link));
  graph->numbers = g_hash_table_new (g_str_hash, g_str_equal);
  for (guint row = 0; row < csv->rows->len; row++)
    seconds = fmax (seconds, sp_csv_number (csv, row, step));
  for (guint row = 0; row < csv->rows->len && graph->vertices->len <= MOST_VERTICES; row++) {
    g_autofree char *a = sp_csv_text (csv, row, from_kind), *b = sp_csv_text (csv, row, to_kind);
    double bytes = 0, capacity = sp_csv_number (csv, row, rate);
    for (guint c = 0; c < csv->n_columns; c++)
      if (g_str_has_suffix (csv->columns[c], "_bytes"))
        bytes += fmax (0, sp_csv_number (csv, row, (gint) c));
    guint first = add_vertex (graph, sp_csv_text (csv, row, from), a);
    guint second = add_vertex (graph, sp_csv_text (csv, row, to), b);
    add_link (graph, first, second, capacity > 0 && seconds > 0 ? bytes / capacity / seconds : 0);
  }
  if (graph->links->len == 0)
    return sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: has no links: there is nothing to draw", csv->path);
  return graph->vertices->len <= MOST_VERTICES ||
         sp_figure_fail (error, SP_FIGURE_ERROR_DATA, "%s: more than %d switches and GPUs cannot be told apart",
                         csv->path, MOST_VERTICES);
}

/* --- places ------------------------------------------------------------------------------------------------------- */

/* Of a node with nothing above its GPUs these stand in a circle, for they are joined directly. */
static gboolean
is_mesh (const Graph *graph)
{
  for (guint i = 0; i < graph->vertices->len; i++) {
    guint level = vertex_of (graph, i)->level;
    if (level == LEVEL_PCIE || level == LEVEL_SWITCH)
      return FALSE;
  }
  return TRUE;
}

/* Routers are joined to each other, spines are not. */
static gboolean
has_routers (const Graph *graph)
{
  for (guint i = 0; i < graph->links->len; i++) {
    const Link *link = &g_array_index (graph->links, Link, i);
    if (vertex_of (graph, link->from)->level == LEVEL_TOP && vertex_of (graph, link->to)->level == LEVEL_TOP)
      return TRUE;
  }
  return FALSE;
}

static void
place_row (Graph *graph, guint level, gint node, double left, double right, double y)
{
  guint n = 0, at = 0;

  for (guint i = 0; i < graph->vertices->len; i++)
    n += vertex_of (graph, i)->level == level && vertex_of (graph, i)->node == node;
  for (guint i = 0; i < graph->vertices->len; i++) {
    Vertex *v = vertex_of (graph, i);
    if (v->level != level || v->node != node)
      continue;
    v->x = left + (right - left) * (at++ + 0.5) / n;
    v->y = y;
  }
}

static void
bend (Graph *graph, guint level, gint node, double left, double right, double height)
{
  for (guint i = 0; i < graph->vertices->len; i++) {
    Vertex *v = vertex_of (graph, i);
    double at = (v->x - left) / (right - left) * G_PI;
    if (v->level == level && v->node == node)
      v->y += height * sin (at);
  }
}

static void
place_all (Graph *graph, const SpBox *box)
{
  gboolean used[N_LEVELS] = { FALSE }, mesh = is_mesh (graph), routers = has_routers (graph);
  double y[N_LEVELS] = { 0 };
  guint n = 0, at = 0;

  for (guint i = 0; i < graph->vertices->len; i++)
    used[vertex_of (graph, i)->level] = TRUE;
  for (guint l = 0; l < N_LEVELS; l++)
    n += used[l];
  for (guint l = 0; l < N_LEVELS; l++)
    if (used[l])
      y[l] = box->bottom + (box->top - box->bottom) * (at++ + 0.35) / n;
  double width = (box->right - box->left) / MAX (graph->n_nodes, 1), gap = 0.08 * width;
  for (guint l = 0; l < N_LEVELS; l++) {
    for (gint node = 0; node < graph->n_nodes; node++) {
      double left = box->left + node * width + gap, right = box->left + (node + 1) * width - gap;
      place_row (graph, l, node, left, right, y[l]);
      if (mesh && l == LEVEL_GPU)
        bend (graph, l, node, left, right, 0.5 * (box->top - box->bottom) / n);
    }
    place_row (graph, l, -1, box->left, box->right, y[l]);
    if (l == LEVEL_TOP && routers)
      bend (graph, l, -1, box->left, box->right, 0.4 * (box->top - box->bottom) / n);
  }
}

/* --- drawing ------------------------------------------------------------------------------------------------------ */

#define BANDS 6 /* of how busy a link is */

static const struct {
  double up_to; /* of the busiest */
  double width;
  const char *colour;
} bands[BANDS] = { { 0, 0.6, "#d0d0d0" },    { 0.1, 1, "#9ecae1" }, { 0.3, 1.8, "#6baed6" },
                   { 0.55, 2.8, "#4292c6" }, { 0.8, 4, "#2171b5" }, { 1, 5.5, "#08306b" } };

static guint
band_of (double busy, double most)
{
  guint band = 0;

  while (band + 1 < BANDS && busy > bands[band].up_to * most * (1 + 1e-9))
    band++;
  return band;
}

static const char *
level_name (const Graph *graph, guint level)
{
  for (guint i = 0; i < graph->vertices->len; i++) {
    const Vertex *v = vertex_of (graph, i);
    if (v->level == level)
      return v->name;
  }
  return NULL;
}

/* "node0.gpu3" is a "gpu", "leaf2" a "leaf". */
static char *
word_of (const char *name)
{
  const char *dot = strchr (name, '.'), *word = dot != NULL ? dot + 1 : name;
  gsize n = strlen (word);

  while (n > 1 && g_ascii_isdigit (word[n - 1]))
    n--;
  return g_strndup (word, n);
}

/* Many lines are thinner. */
static double
width_of (const Graph *graph, guint band)
{
  return bands[band].width * CLAMP (64.0 / graph->links->len, 0.15, 1);
}

static void
add_links (SpFigure *figure, const Graph *graph, double most, const char **comma)
{
  for (guint band = 0; band < BANDS; band++) {
    guint n = 0;
    for (guint i = 0; i < graph->links->len; i++) {
      const Link *link = &g_array_index (graph->links, Link, i);
      if (band_of (link->busy, most) != band)
        continue;
      const Vertex *a = vertex_of (graph, link->from), *b = vertex_of (graph, link->to);
      sp_figure_row (figure, 2, (const double[]){ a->x, a->y });
      sp_figure_row (figure, 2, (const double[]){ b->x, b->y });
      sp_figure_gap (figure);
      n++;
    }
    if (n == 0)
      continue;
    sp_figure_add (figure, "%sdata index %u using 1:2 with lines lw %.2f lc rgb '%s'", *comma, sp_figure_block (figure),
                   width_of (graph, band), bands[band].colour);
    *comma = ", ";
  }
}

static void
add_vertices (SpFigure *figure, const Graph *graph, const char **comma)
{
  for (guint level = 0; level < N_LEVELS; level++) {
    guint n = 0;
    for (guint i = 0; i < graph->vertices->len; i++) {
      const Vertex *v = vertex_of (graph, i);
      if (v->level != level)
        continue;
      sp_figure_row (figure, 2, (const double[]){ v->x, v->y });
      n++;
    }
    if (n == 0)
      continue;
    guint block = sp_figure_block (figure);
    double size = sp_figure_point (figure, n <= 32 ? 2 : n <= 128 ? 1.1 : 0.6);
    sp_figure_add (figure, "%sdata index %u using 1:2 with points pt %d ps %.2f lc rgb '%s'", *comma, block,
                   level == LEVEL_GPU ? 7 : 5, size, level == LEVEL_GPU ? "#009e73" : "#555555");
    *comma = ", ";
  }
}

static void
add_legend (SpFigure *figure, const Graph *graph, const SpBox *box, double most)
{
  double x = box->left, top = box->top - 28;

  for (guint band = 0; band < BANDS; band++) {
    g_autofree char *text =
        band == 0 ? g_strdup ("idle")
                  : g_strdup_printf ("%s%.2g %%", band + 1 < BANDS ? "to " : "", 100 * bands[band].up_to * most);
    g_autofree char *style = g_strdup_printf ("lw %.2f lc rgb '%s'", width_of (graph, band), bands[band].colour);
    if (x > box->left && x + 32 + sp_text_width (text, SP_FONT_SMALL) > box->right) {
      x = box->left;
      top -= 14;
    }
    sp_figure_line (figure, x, top, x + 26, top, style);
    sp_figure_label (figure, x + 32, top, "left", SP_FONT_SMALL, SP_INK, text);
    x += 48 + sp_text_width (text, SP_FONT_SMALL);
  }
  for (guint level = 0; level < N_LEVELS; level++) {
    const char *name = level_name (graph, level);
    double y = 0;
    if (name == NULL)
      continue;
    for (guint i = 0; i < graph->vertices->len; i++)
      y = vertex_of (graph, i)->level == level && y == 0 ? vertex_of (graph, i)->y : y;
    g_autofree char *word = word_of (name);
    sp_figure_label (figure, box->left, y + 16, "left", SP_FONT_SMALL, SP_GREY, word);
  }
}

/* As text the busiest links, by name. */
static gint
compare_links (gconstpointer a, gconstpointer b)
{
  double x = ((const Link *) a)->busy, y = ((const Link *) b)->busy;

  return x > y ? -1 : x < y;
}

static void
write_text (SpFigure *figure, Graph *graph)
{
  enum { MOST = 24 };

  g_array_sort (graph->links, compare_links);
  g_string_append_printf (figure->text, "\n%u links; the busiest, and how much of the step\n", graph->links->len);
  for (guint i = 0; i < MIN (graph->links->len, MOST); i++) {
    const Link *link = &g_array_index (graph->links, Link, i);
    g_string_append_printf (figure->text, "  %5.2f %%  %s - %s\n", 100 * link->busy,
                            vertex_of (graph, link->from)->name, vertex_of (graph, link->to)->name);
  }
}

gboolean
sp_kind_topology (SpFigure *figure, const SpCsv *csv, GError **error)
{
  g_auto (Graph) graph = { NULL };
  SpBox box = sp_figure_place (figure, 0, 1, 0, 1);
  const SpBox inner = { box.left + 46, box.right, box.bottom, box.top - 46 };
  const char *comma = "plot ";
  double most = 0;

  if (!read_graph (csv, &graph, error))
    return FALSE;
  sp_kind_subject (figure, csv, "");
  if (sp_figure_is_text (figure)) {
    write_text (figure, &graph);
    return TRUE;
  }
  for (guint i = 0; i < graph.links->len; i++)
    most = MAX (most, g_array_index (graph.links, Link, i).busy);
  place_all (&graph, &inner);
  sp_figure_frame (figure);
  sp_figure_panel (figure, 0, figure->width, 0, figure->height);
  sp_chart_title (figure, &box, "links, and how much of the step they are busy (the busier direction)");
  add_legend (figure, &graph, &box, most);
  sp_figure_add (figure, "unset border\nunset tics\nunset grid\nset xrange [0:%d]\nset yrange [0:%d]\n", figure->width,
                 figure->height);
  add_links (figure, &graph, most, &comma);
  add_vertices (figure, &graph, &comma);
  sp_figure_add (figure, "\n");
  return TRUE;
}
