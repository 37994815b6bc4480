/* SPDX-License-Identifier: Apache-2.0 */
/* gnuplot as a child: script and numbers in files. */
#include <errno.h>
#include <gio/gio.h>
#include <glib/gstdio.h>
#include <string.h>

#include "plots/figure.h"

/* The terminal, where to, from where, and what holds for every chart. */
static char *
head (const SpFigure *figure, const char *output, const char *data)
{
  static const char font[] = "DejaVu Sans,Helvetica,Arial,sans-serif";
  g_autofree char *to = sp_figure_quote (output), *from = sp_figure_quote (data);
  GString *text = g_string_new (NULL);
  gint w = figure->width, h = figure->height;

  switch (figure->format) {
  case SP_FORMAT_PNG:
    g_string_append_printf (text, "set terminal pngcairo noenhanced size %d,%d font 'Sans,%d' fontscale 0.75", w, h,
                            SP_FONT);
    break;
  case SP_FORMAT_SVG:
    g_string_append_printf (text, "set terminal svg noenhanced size %d,%d font '%s,%d' background 'white'", w, h, font,
                            SP_FONT);
    break;
  case SP_FORMAT_PDF:
    g_string_append_printf (text, "set terminal pdfcairo noenhanced size %.4fin,%.4fin font 'Sans,%d' fontscale 0.5625",
                            w / 96.0, h / 96.0, SP_FONT);
    break;
  case SP_FORMAT_TEXT:
    g_string_append_printf (text, "set terminal dumb noenhanced size %d,%d", w / SP_CELL_WIDTH, h / SP_CELL_HEIGHT);
    break;
  }
  g_string_append_printf (text,
                          "\nset output %s\ndata = %s\n"
                          "set encoding utf8\nset datafile missing 'NaN'\nset tics nomirror out\n"
                          "set style fill solid 1 noborder\nunset key\nset multiplot\n",
                          to, from);
  return g_string_free (text, FALSE);
}

static char *
find_gnuplot (GError **error)
{
  char *program = g_find_program_in_path ("gnuplot");

  if (program == NULL)
    sp_figure_fail (error, SP_FIGURE_ERROR_PROGRAM,
                    "gnuplot is not in the PATH, and draws the figures (Debian: apt install gnuplot-nox); seqpar sweep "
                    "writes their numbers without it");
  return program;
}

/* What gnuplot says is a line with the reason behind a copy of the script's line and a caret. */
static char *
last_words (const char *said)
{
  g_auto (GStrv) lines = g_strsplit (said, "\n", -1);
  const char *last = "it says nothing";

  for (guint i = 0; lines[i] != NULL; i++)
    if (*g_strstrip (lines[i]) != '\0')
      last = lines[i];
  return g_strdup (last);
}

static gboolean
run (const char *script, GError **error)
{
  g_autofree char *program = find_gnuplot (error), *said = NULL;
  g_autoptr (GError) cause = NULL;

  if (program == NULL)
    return FALSE;
  g_autoptr (GSubprocess) child = g_subprocess_new (G_SUBPROCESS_FLAGS_STDOUT_SILENCE | G_SUBPROCESS_FLAGS_STDERR_PIPE,
                                                    &cause, program, "-d", script, NULL);
  gboolean talked = child != NULL && g_subprocess_communicate_utf8 (child, NULL, NULL, NULL, &said, &cause);
  if (!talked)
    return sp_figure_fail (error, SP_FIGURE_ERROR_PROGRAM, "gnuplot: %s", cause->message);
  if (g_subprocess_get_successful (child))
    return TRUE;
  g_autofree char *words = last_words (said);
  return sp_figure_fail (error, SP_FIGURE_ERROR_PROGRAM, "gnuplot failed: %s", words);
}

char *
sp_figure_script (const SpFigure *figure, const char *output_name, const char *data_name)
{
  g_autofree char *first = head (figure, output_name, data_name);

  return g_strconcat (first, figure->script->str, "unset multiplot\nset output\n", NULL);
}

/* gnuplot leaves ]]> in a text as it is, which XML forbids. */
static void
escape_svg (char **text, gsize *length)
{
  if (g_strstr_len (*text, (gssize) *length, "]]>") == NULL)
    return;
  GString *escaped = g_string_new_len (*text, (gssize) *length);
  g_string_replace (escaped, "]]>", "]]&gt;", 0);
  g_free (*text);
  *length = escaped->len;
  *text = g_string_free (escaped, FALSE);
}

/* In a folder of its own; what gnuplot wrote there. */
static gboolean
draw (const SpFigure *figure, const char *folder, char **ret, gsize *ret_length, GError **error)
{
  g_autofree char *output = g_build_filename (folder, "figure", NULL), *data = g_build_filename (folder, "data", NULL);
  g_autofree char *script = g_build_filename (folder, "script", NULL);
  g_autofree char *text = sp_figure_script (figure, output, data);

  gboolean done = g_file_set_contents (data, figure->data->str, (gssize) figure->data->len, error) &&
                  g_file_set_contents (script, text, -1, error) && run (script, error) &&
                  g_file_get_contents (output, ret, ret_length, error);
  g_unlink (output);
  g_unlink (data);
  g_unlink (script);
  if (done && figure->format == SP_FORMAT_SVG)
    escape_svg (ret, ret_length);
  return done;
}

/* Without form feeds and the blanks at ends of lines. */
static void
append_lines (const char *text, GString *out)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);

  for (guint i = 0; lines[i] != NULL && (lines[i + 1] != NULL || *lines[i] != '\0'); i++)
    g_string_append_printf (out, "%s\n", g_strchomp (g_strdelimit (lines[i], "\f", ' ')));
}

gboolean
sp_figure_draw (const SpFigure *figure, GString *out, GError **error)
{
  gboolean is_text = figure->format == SP_FORMAT_TEXT;
  g_autofree char *folder = g_dir_make_tmp ("seqpar-figure-XXXXXX", error), *drawn = NULL;
  gsize length = 0;

  if (folder == NULL)
    return FALSE;
  /* Some charts are written as text by themselves. */
  gboolean done = (is_text && figure->script->len == 0) || draw (figure, folder, &drawn, &length, error);
  g_rmdir (folder);
  if (!done)
    return FALSE;
  if (!is_text) {
    g_string_append_len (out, drawn, (gssize) length);
    return TRUE;
  }
  g_string_append_printf (out, "%s\n", figure->title != NULL ? figure->title : "");
  if (drawn != NULL)
    append_lines (drawn, out);
  g_string_append_printf (out, "%s%s\n", figure->text->str, figure->small_print != NULL ? figure->small_print : "");
  return TRUE;
}
