/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar plot KIND: a figure of a CSV, or of a scenario and the runs that it needs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/plot.h"
#include "models/inputs/ini.h"

#define MOST_PIXELS 20000

typedef struct {
  char **rest, **sets, **axes;
  char *output, *size, *engine, *published;
  gboolean keep;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_strfreev (o->sets);
  g_strfreev (o->axes);
  g_free (o->output);
  g_free (o->size);
  g_free (o->engine);
  g_free (o->published);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

static char *
kinds_text (void)
{
  GString *text = g_string_new ("KIND, and what it shows:\n");
  g_autoptr (SpTable) table = sp_table_new ("ll");
  const SpKind *kind;

  for (guint i = 0; (kind = sp_kind_get (i)) != NULL; i++) {
    sp_table_cell (table, kind->name);
    sp_table_cell (table, kind->summary);
  }
  sp_table_print (table, 2, text);
  g_string_append (text,
                   "INPUT is a CSV (of seqpar sweep, of plan --pareto, or one that --keep wrote), or a scenario: then\n"
                   "the runs that the figure needs are made. roofline takes MEASURED.csv ... behind the scenario; calibration is of\n"
                   "MEASURED.csv ..., accuracy of PROFILE EXECUTED.csv, as seqpar calibrate has them;\nvalidation is "
                   "of SET ..., as seqpar validate has them. FILE ends in "
                   ".png, .svg or .pdf; - is a text on stdout.\n");
  return g_string_free (text, FALSE);
}

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  g_autofree char *text = kinds_text ();
  const GOptionEntry entries[] = {
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &o->output, "The figure; - for text on stdout", "FILE" },
    { "size", 0, 0, G_OPTION_ARG_STRING, &o->size, "In pixels, 96 to an inch; of text in characters", "WIDTHxHEIGHT" },
    { "keep", 0, 0, G_OPTION_ARG_NONE, &o->keep, "Leave gnuplot's script, its data and the CSV beside the figure",
      NULL },
    { "published", 0, 0, G_OPTION_ARG_FILENAME, &o->published, "Figures of others beside a sweep", "FILE.csv" },
    { "sweep", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->axes, "Of a scenario: as seqpar sweep has it", "KEY=VALUES" },
    { "set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->sets, "Of a scenario: over the file", "KEY=VALUE" },
    { "engine", 0, 0, G_OPTION_ARG_STRING, &o->engine, "Of a scenario: estimate (default) or simulate", "NAME" },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, "KIND INPUT..." },
    { NULL },
  };
  return sp_cli_parse (args, entries, text, out, error);
}

static const SpKind *
find_kind (const char *name, GError **error)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new ();
  const SpKind *kind;
  guint index = 0;

  for (guint i = 0; (kind = sp_kind_get (i)) != NULL; i++)
    g_ptr_array_add (names, (gpointer) kind->name);
  g_ptr_array_add (names, NULL);
  return sp_cli_choice ("KIND", name, (const char *const *) names->pdata, &index, error) ? sp_kind_get (index) : NULL;
}

/* --- size --------------------------------------------------------------------------------------------------------- */

static gboolean
read_size (const char *text, gint *ret_width, gint *ret_height, GError **error)
{
  char *end;
  gint64 width = g_ascii_strtoll (text, &end, 10);
  gint64 height = *end == 'x' ? g_ascii_strtoll (end + 1, &end, 10) : 0;

  if (width < 20 || width > MOST_PIXELS || height < 10 || height > MOST_PIXELS || *end != '\0') {
    g_autofree char *shown = sp_shown (text);
    return sp_cli_usage (error, "--size \"%s\": expected WIDTHxHEIGHT such as 920x380, at most %d", shown, MOST_PIXELS);
  }
  *ret_width = (gint) width;
  *ret_height = (gint) height;
  return TRUE;
}

static gint
terminal_columns (void)
{
  struct winsize size = { 0 };

  if (ioctl (STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
    return MIN (size.ws_col, 400);
  return 100;
}

/* By what was said, else the kind's own; of text a terminal's columns. */
static gboolean
make_figure (const Options *o, const SpKind *kind, const SpCsv *csv, SpFormat format, SpFigure **ret, GError **error)
{
  gboolean text = format == SP_FORMAT_TEXT;
  gint width = text ? terminal_columns () : kind->width, height = text ? 44 : kind->height;

  if (!text && kind->measure != NULL)
    height = kind->measure (csv);
  if (o->size != NULL && !read_size (o->size, &width, &height, error))
    return FALSE;
  if (!text && o->size != NULL && (width < 300 || height < 150))
    return sp_cli_usage (error, "--size %s: a figure has at least 300x150 pixels", o->size);
  *ret = sp_figure_new (format, text ? width * SP_CELL_WIDTH : width, text ? height * SP_CELL_HEIGHT : height);
  return TRUE;
}

/* --- data --------------------------------------------------------------------------------------------------------- */

static GString *
make_data (const SpPlotQuestion *q, const SpKind *kind, GError **error)
{
  switch (kind->source) {
  case SP_SOURCE_SWEEP:
  case SP_SOURCE_STRATEGIES:
    return sp_plot_sweep (q, kind, error);
  case SP_SOURCE_SLICES:
    return sp_plot_slices (q, error);
  case SP_SOURCE_MEMORY:
    return sp_plot_memory (q, error);
  case SP_SOURCE_LINKS:
    return sp_plot_links (q, error);
  case SP_SOURCE_TRAFFIC:
    return sp_plot_traffic (q, error);
  case SP_SOURCE_FIT:
    return sp_plot_fit (q, error);
  case SP_SOURCE_CHECK:
    return sp_plot_check (q, error);
  case SP_SOURCE_KERNELS:
    return sp_plot_kernels (q, error);
  case SP_SOURCE_VALIDATION:
    return sp_plot_validation (q, error);
  case SP_SOURCE_PARETO:
    return sp_plot_pareto (q, error);
  }
  g_return_val_if_reached (NULL);
}

/* A CSV to draw: one that was not measured, and stands alone. */
static gboolean
is_drawn (const SpPlotQuestion *q, const SpKind *kind)
{
  static const char measured[] = "# seqpar-measured";
  char begin[sizeof measured] = "";
  FILE *file = NULL;

  if (!g_str_has_suffix (q->input, ".csv") || (q->more != NULL && q->more[0] != NULL))
    return FALSE;
  /* To open a pipe would wait for a writer. */
  if (kind->source == SP_SOURCE_FIT && g_file_test (q->input, G_FILE_TEST_IS_REGULAR) &&
      (file = fopen (q->input, "r")) != NULL) {
    gboolean read = fgets (begin, sizeof begin, file) != NULL;
    fclose (file);
    return !read || !g_str_equal (begin, measured);
  }
  return TRUE;
}

/* Only some kinds take more than one input, and only scenarios take options. */
static gboolean
check_inputs (const Options *o, const SpPlotQuestion *q, const SpKind *kind, gboolean drawn, GError **error)
{
  gboolean sweeps = kind->source == SP_SOURCE_SWEEP || kind->source == SP_SOURCE_STRATEGIES;
  gboolean measured =
      kind->source == SP_SOURCE_FIT || kind->source == SP_SOURCE_CHECK || kind->source == SP_SOURCE_VALIDATION;
  gboolean more = measured || kind->source == SP_SOURCE_KERNELS;
  const char *sweep = o->axes != NULL ? "--sweep" : o->engine != NULL ? "--engine" : NULL;
  const char *option = sweep != NULL ? sweep : o->sets != NULL ? "--set" : NULL;

  if (q->more != NULL && q->more[0] != NULL && !more) {
    g_autofree char *shown = sp_shown (q->more[0]);
    return sp_cli_usage (error, "\"%s\" is one argument too many", shown);
  }
  if (option != NULL && (drawn || measured))
    return sp_cli_usage (error, "%s goes with a scenario; %s has its figures already", option, q->input);
  return sweep == NULL || sweeps ||
         sp_cli_usage (error, "%s goes with kinds that draw a sweep, not with %s", sweep, kind->name);
}

static SpCsv *
load (const Options *o, const SpPlotQuestion *q, const SpKind *kind, GError **error)
{
  gsize length = 0;
  gboolean drawn = is_drawn (q, kind);

  if (!check_inputs (o, q, kind, drawn, error))
    return NULL;
  if (drawn) {
    char *text = sp_read_measurements (q->input, &length, error);
    g_autoptr (SpCsv) csv = text != NULL ? sp_csv_new (q->input, text, length, error) : NULL;
    if (csv != NULL && kind->source == SP_SOURCE_FIT && sp_csv_find (csv, "curve") < 0) {
      sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                   "%s: expected a CSV of seqpar-measure, or one that --keep wrote, which has a column curve: what "
                   "other programs wrote is read by seqpar calibrate import first",
                   q->input);
      return NULL;
    }
    return g_steal_pointer (&csv);
  }
  GString *text = make_data (q, kind, error);
  if (text == NULL)
    return NULL;
  length = text->len;
  return sp_csv_new (q->input, g_string_free (text, FALSE), length, error); /* named by what it was made of */
}

static gboolean
refuse_published (const SpKind *kind, GError **error)
{
  g_autoptr (GString) names = g_string_new (NULL);
  const SpKind *other;

  for (guint i = 0; (other = sp_kind_get (i)) != NULL; i++)
    if (other->compares)
      g_string_append_printf (names, "%s%s", names->len > 0 ? ", " : "", other->name);
  return sp_cli_usage (error, "--published goes with %s; not with %s", names->str, kind->name);
}

/* The figures of others as more rows: they have the sweep's keys, and say whose they are. */
static SpCsv *
add_published (const char *path, SpCsv *swept, GError **error)
{
  g_autoptr (SpCsv) csv = swept;
  gsize length;
  gint column;
  char *text = sp_read_measurements (path, &length, error);
  g_autoptr (SpCsv) published = text != NULL ? sp_csv_new (path, text, length, error) : NULL;

  if (published == NULL || !sp_csv_need (published, "published", &column, error) ||
      !sp_csv_need (published, "outcome", &column, error))
    return NULL;
  gint keys = sp_csv_find (csv, "outcome");
  for (gint c = 0; c < keys; c++)
    if (!sp_csv_need (published, csv->columns[c], &column, error))
      return NULL;
  char *joined = sp_csv_join (csv, published);
  return sp_csv_new (csv->path, joined, strlen (joined), error);
}

gboolean
sp_plot_svg (const char *name, const SpPlotQuestion *question, GString *out, GError **error)
{
  const SpKind *kind = find_kind (name, error);
  GString *text = kind != NULL ? make_data (question, kind, error) : NULL;
  gsize length = text != NULL ? text->len : 0;

  if (text == NULL)
    return FALSE;
  g_autoptr (SpCsv) csv = sp_csv_new (question->input, g_string_free (text, FALSE), length, error);
  if (csv == NULL)
    return FALSE;
  g_autoptr (SpFigure) figure =
      sp_figure_new (SP_FORMAT_SVG, kind->width, kind->measure != NULL ? kind->measure (csv) : kind->height);
  return kind->draw (figure, csv, error) && sp_figure_draw (figure, out, error);
}

gboolean
sp_plot_file (const char *name, const char *of, const GString *text, const char *path, GError **error)
{
  const SpKind *kind = find_kind (name, error);
  SpFormat format;

  if (kind == NULL || !sp_figure_format (path, &format, error))
    return FALSE;
  g_autoptr (SpCsv) csv = sp_csv_new (of, g_strdup (text->str), text->len, error);
  if (csv == NULL)
    return FALSE;
  g_autoptr (SpFigure) figure = sp_figure_new (format, kind->width, kind->height);
  g_autoptr (GString) drawn = g_string_new (NULL);
  return kind->draw (figure, csv, error) && sp_figure_draw (figure, drawn, error) &&
         sp_cli_write_file (path, drawn, error);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

/* "figure.svg" with another suffix. */
static char *
beside (const char *path, const char *suffix)
{
  g_autofree char *stem = g_strndup (path, (gsize) (strrchr (path, '.') - path));

  return g_strconcat (stem, suffix, NULL);
}

/* What it was drawn from is written only where it was made for it. */
static gboolean
keep (const SpFigure *figure, const char *path, const SpCsv *csv, gboolean drawn, GError **error)
{
  g_autofree char *script_path = beside (path, ".gp"), *data_path = beside (path, ".dat"),
                  *csv_path = beside (path, ".csv");
  g_autofree char *output = g_path_get_basename (path), *data = g_path_get_basename (data_path);
  g_autofree char *script = sp_figure_script (figure, output, data);
  g_autoptr (GString) text = g_string_new (script), copy = g_string_new (csv->text);

  if (!sp_cli_check_writable (script_path, error) || !sp_cli_check_writable (data_path, error) ||
      (!drawn && !sp_cli_check_writable (csv_path, error)))
    return FALSE;
  return sp_cli_write_file (script_path, text, error) && sp_cli_write_file (data_path, figure->data, error) &&
         (drawn || sp_cli_write_file (csv_path, copy, error));
}

static gboolean
run (const Options *o, const SpKind *kind, SpFormat format, GString *out, GError **error)
{
  static const char *const engines[] = { "estimate", "simulate", NULL };
  guint engine = 0;
  SpPlotQuestion q = { .input = o->rest[1], .more = o->rest + 2, .sets = o->sets, .axes = o->axes };

  if (!sp_cli_choice ("--engine", o->engine, engines, &engine, error))
    return FALSE;
  q.simulates = engine == 1;
  if (o->published != NULL && !kind->compares)
    return refuse_published (kind, error);
  g_autoptr (SpCsv) csv = load (o, &q, kind, error);
  if (csv != NULL && o->published != NULL)
    csv = add_published (o->published, csv, error);
  g_autoptr (SpFigure) figure = NULL;
  if (csv == NULL || !make_figure (o, kind, csv, format, &figure, error) || !kind->draw (figure, csv, error))
    return FALSE;
  if (format == SP_FORMAT_TEXT)
    return sp_figure_draw (figure, out, error);
  g_autoptr (GString) drawn = g_string_new (NULL);
  return sp_cli_check_writable (o->output, error) && sp_figure_draw (figure, drawn, error) &&
         (!o->keep || keep (figure, o->output, csv, is_drawn (&q, kind), error)) &&
         sp_cli_write_file (o->output, drawn, error);
}

gboolean
sp_command_plot (char **args, GString *out, GError **error)
{
  static const char *const positional[] = { "KIND", "INPUT", NULL };
  g_auto (Options) options = { NULL };
  SpFormat format;
  SpParsed parsed = parse (args, &options, out, error);

  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if ((options.rest == NULL || g_strv_length (options.rest) < 2) &&
      !sp_cli_positional (options.rest, positional, error))
    return FALSE;
  const SpKind *kind = find_kind (options.rest[0], error);
  if (kind == NULL)
    return FALSE;
  if (options.output == NULL)
    return sp_cli_usage (error, "-o is missing: a name that ends in .png, .svg or .pdf, or - for text");
  if (!sp_figure_format (options.output, &format, error))
    return FALSE;
  if (options.keep && format == SP_FORMAT_TEXT)
    return sp_cli_usage (error, "--keep goes with a file, not with -o -");
  return run (&options, kind, format, out, error);
}
