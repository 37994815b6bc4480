/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar validate [SET...]: how right the predictions are, on runs that others measured. */
#include <stdio.h>
#include <unistd.h>

#include "cli/plot.h"
#include "cli/validate.h"

typedef struct {
  char **rest;
  char *csv, *plot;
  gboolean json, markdown, strict, fit;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_free (o->csv);
  g_free (o->plot);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "json", 0, 0, G_OPTION_ARG_NONE, &o->json, "JSON", NULL },
    { "markdown", 0, 0, G_OPTION_ARG_NONE, &o->markdown, "The table of the README", NULL },
    { "csv", 0, 0, G_OPTION_ARG_FILENAME, &o->csv, "Every run, measured and predicted", "FILE" },
    { "plot", 0, 0, G_OPTION_ARG_FILENAME, &o->plot, "Predicted over measured: .png, .svg or .pdf", "FILE" },
    { "fit", 0, 0, G_OPTION_ARG_NONE, &o->fit, "Fit the sets' constants to their fitted runs, and nothing else", NULL },
    { "strict", 0, 0, G_OPTION_ARG_NONE, &o->strict, "Exit with 3 if a bound is missed, or nothing measured of it",
      NULL },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, "[SET...]" },
    { NULL },
  };
  return sp_cli_parse (
      args, entries,
      "A SET is the name of a shipped one (scenarios/validation) or a file; without, all of them. Each is\n"
      "runs that others measured, beside what is predicted of them. Statistics are of runs that no constant\n"
      "was fitted to; what a set sets aside is counted with the reason. Errors are of predicted / measured - 1.\n",
      out, error);
}

/* --- sets --------------------------------------------------------------------------------------------------------- */

static void
scored_free (gpointer data)
{
  SpScoredSet *scored = data;

  g_clear_pointer (&scored->set, sp_validation_free);
  g_free (scored);
}

typedef struct {
  const char *name;
  gint64 shown;
} Progress;

static void
show_progress (guint done, guint all, gpointer data)
{
  Progress *progress = data;
  gint64 now = g_get_monotonic_time ();

  if (now < progress->shown + G_USEC_PER_SEC / 5)
    return;
  progress->shown = now;
  fprintf (stderr, "\rvalidate %s: %u of %u runs\033[K", progress->name, done, all);
}

static gboolean
add_set (const char *name, gboolean prices, GPtrArray *sets, GError **error)
{
  SpScoredSet *scored = g_new0 (SpScoredSet, 1);
  g_autofree char *path = sp_find_validation (name, error);
  gboolean terminal = isatty (STDERR_FILENO);

  g_ptr_array_add (sets, scored);
  scored->set = path != NULL ? sp_validation_load (path, error) : NULL;
  if (scored->set == NULL || !prices)
    return scored->set != NULL;
  Progress progress = { scored->set->name, 0 };
  gboolean priced = sp_validation_price (scored->set, terminal ? show_progress : NULL, &progress, error);
  if (terminal)
    fputs ("\r\033[K", stderr);
  return priced && sp_validation_score (scored->set, FALSE, &scored->held_out, error) &&
         sp_validation_score (scored->set, TRUE, &scored->fitted, error);
}

GPtrArray *
sp_validate_sets (char **names, gboolean prices, GError **error)
{
  g_autoptr (GPtrArray) sets = g_ptr_array_new_with_free_func (scored_free);
  g_auto (GStrv) all = names != NULL && names[0] != NULL ? g_strdupv (names) : sp_list_shipped ("validation");

  if (all[0] == NULL) {
    sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s/validation: no sets in it", sp_data_dir ());
    return NULL;
  }
  for (guint i = 0; all[i] != NULL; i++)
    if (!add_set (all[i], prices, sets, error))
      return NULL;
  return g_steal_pointer (&sets);
}

GString *
sp_validate_rows (char **names, GError **error)
{
  g_autoptr (GPtrArray) sets = sp_validate_sets (names, TRUE, error);
  GString *text = sets != NULL ? g_string_new (NULL) : NULL;

  if (text != NULL)
    sp_validate_csv (sets, text);
  return text;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static gboolean
check_usage (const Options *o, GError **error)
{
  if (o->json + o->markdown + o->fit > 1)
    return sp_cli_usage (error, "--json, --markdown and --fit are three answers: expected one of them");
  if (o->fit && (o->csv != NULL || o->plot != NULL || o->strict))
    return sp_cli_usage (error, "--fit scores nothing: expected no --csv, --plot or --strict beside it");
  return TRUE;
}

static gboolean
write_files (const Options *o, const GPtrArray *sets, GError **error)
{
  g_autoptr (GString) rows = g_string_new (NULL);

  sp_validate_csv (sets, rows);
  return (o->plot == NULL || sp_plot_file ("validation", "validate", rows, o->plot, error)) &&
         (o->csv == NULL || sp_cli_write_file (o->csv, rows, error));
}

/* --strict */
static gboolean
check_bounds (const GPtrArray *sets, GError **error)
{
  guint missed, unmeasured;

  sp_validate_count (sets, &missed, &unmeasured);
  if (missed == 0 && unmeasured == 0)
    return TRUE;
  g_autofree char *first = g_strdup_printf ("%u bound%s missed", missed, missed == 1 ? " is" : "s are");
  g_autofree char *second =
      g_strdup_printf ("of %u bound%s nothing was measured", unmeasured, unmeasured == 1 ? "" : "s");
  return sp_cli_fail (error, SP_CLI_ERROR_BEYOND, "%s%s%s", missed > 0 ? first : "",
                      missed > 0 && unmeasured > 0 ? "; " : "", unmeasured > 0 ? second : "");
}

gboolean
sp_command_validate (char **args, GString *out, GError **error)
{
  g_auto (Options) o = { NULL };
  SpParsed parsed = parse (args, &o, out, error);

  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!check_usage (&o, error) || !sp_cli_check_once (o.rest, error))
    return FALSE;
  g_autoptr (GPtrArray) sets = sp_validate_sets (o.rest, !o.fit, error);
  if (sets == NULL || !sp_cli_check_outputs (o.csv, o.plot, error) || !sp_cli_check_writable (o.csv, error))
    return FALSE;
  if (o.fit)
    return sp_validate_fit (sets, out, error);
  if (!write_files (&o, sets, error))
    return FALSE;
  if (o.json && !sp_validate_json (sets, out, error))
    return FALSE;
  if (o.markdown)
    sp_validate_markdown (sets, out);
  else if (!o.json)
    sp_validate_text (sets, out);
  return !o.strict || check_bounds (sets, error);
}
