/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar calibrate fit MEASURED.csv ... -o profile.ini */
#include <string.h>

#include "calibrate/fit.h"
#include "cli/calibrate.h"
#include "cli/progress.h"
#include "models/inputs/ini.h"

typedef struct {
  char **rest;
  char *output, *device, *name, *hold_out, *least;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_free (o->output);
  g_free (o->device);
  g_free (o->name);
  g_free (o->hold_out);
  g_free (o->least);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &o->output, "The profile to write", "INI" },
    { "device", 0, 0, G_OPTION_ARG_FILENAME, &o->device, "The card's device file or a shipped one", "NAME" },
    { "name", 0, 0, G_OPTION_ARG_STRING, &o->name, "The profile's name; the card's by default", "TEXT" },
    { "least", 0, 0, G_OPTION_ARG_STRING, &o->least, "Leave out transfers of less: the host was timed", "SIZE" },
    { "hold-out", 0, 0, G_OPTION_ARG_STRING, &o->hold_out, "interleaved, top-decade, families or all", "NAME" },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, "MEASURED.csv..." },
    { NULL },
  };
  return sp_cli_parse (
      args, entries,
      "Fits curves to what seqpar-measure or seqpar calibrate import wrote, one card's in all files,\n"
      "and writes a profile: [cluster] profile = INI in a scenario makes a run use it. --hold-out fits\n"
      "again without every other size, the top decade of sizes, or one (n, k) of GEMMs after the\n"
      "other, and prints how far off the curves are on what they have not seen.\n",
      out, error);
}

/* --- input -------------------------------------------------------------------------------------------------------- */

static void
free_measured (gpointer measured)
{
  sp_measured_free (measured);
}

static GPtrArray *
read_sets (char **files, GError **error)
{
  g_autoptr (GPtrArray) sets = g_ptr_array_new_with_free_func (free_measured);

  for (guint i = 0; files[i] != NULL; i++) {
    gsize length;
    g_autofree char *text = sp_read_measurements (files[i], &length, error);
    if (text == NULL)
      return NULL;
    if (!g_str_has_prefix (text, "# seqpar-measured")) {
      sp_cli_fail (
          error, SP_CLI_ERROR_INPUT,
          "%s:1: expected \"# seqpar-measured: 1\": what other programs wrote is read by seqpar calibrate import "
          "first",
          files[i]);
      return NULL;
    }
    SpMeasured *measured = sp_measured_parse (files[i], text, length, error);
    if (measured == NULL)
      return NULL;
    g_ptr_array_add (sets, measured);
  }
  return g_steal_pointer (&sets);
}

/* The card of all files that name one; FALSE if two of them differ. *ret NULL: none does. */
static gboolean
read_card (const GPtrArray *sets, char **files, const char **ret, GError **error)
{
  guint first = 0;

  *ret = NULL;
  for (guint i = 0; i < sets->len; i++) {
    const char *card = sp_measured_field (sets->pdata[i], "card");
    if (card == NULL)
      continue;
    if (*ret != NULL && !g_str_equal (*ret, card))
      return sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                          "%s: card: %s, but %s is of %s: a profile is of one card, expected files of one", files[i],
                          card, files[first], *ret);
    if (*ret == NULL)
      first = i;
    *ret = card;
  }
  return TRUE;
}

char *
sp_find_device (const char *card)
{
  g_autofree char *lower = g_ascii_strdown (card, -1);
  g_auto (GStrv) words = g_strsplit_set (lower, " -_", -1);

  for (guint i = 0; words[i] != NULL; i++) {
    if (*words[i] == '\0')
      continue;
    for (guint j = 0; words[j] != NULL; j++) {
      if (!g_str_has_suffix (words[j], "gb"))
        continue;
      g_autofree char *size = g_strndup (words[j], strlen (words[j]) - 2);
      g_autofree char *name = g_strconcat (words[i], "-", size, NULL);
      char *path = sp_find_shipped ("devices", name, NULL);
      if (path != NULL)
        return path;
    }
    char *path = sp_find_shipped ("devices", words[i], NULL);
    if (path != NULL)
      return path;
  }
  return NULL;
}

static gboolean
read_device (char **files, const char *named, const char *card, const SpPoints *points, SpFitGiven *given,
             GError **error)
{
  g_autofree char *path = NULL;

  if (named != NULL)
    path = g_file_test (named, G_FILE_TEST_IS_REGULAR) ? g_strdup (named) : sp_find_shipped ("devices", named, error);
  else if (!sp_fit_needs_device (points))
    return TRUE;
  else if (card != NULL)
    path = sp_find_device (card);
  if (path == NULL && named != NULL)
    return FALSE;
  if (path == NULL)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                        "%s: %s%s: expected --device NAME, whose SMs and memory rate the fit of kernels needs",
                        files[0], card != NULL ? "no shipped device is of the card " : "the files do not name a card",
                        card != NULL ? card : "");
  g_autoptr (SpDevice) device = sp_device_load (path, error);
  if (device == NULL)
    return FALSE;
  given->sms = (gint32) device->sms.value;
  given->launch_s = device->launch_s.value;
  given->memory_bytes_per_s = device->memory_bytes_per_s.value * device->memory_efficiency.value;
  return TRUE;
}

gboolean
sp_calibrate_points (char **files, const char *device, double least, SpMeasuredSets *ret, GError **error)
{
  ret->sets = sp_cli_check_once (files, error) ? read_sets (files, error) : NULL;
  if (ret->sets == NULL || !read_card (ret->sets, files, &ret->card, error))
    return FALSE;
  ret->points = sp_points_new ((SpMeasured *const *) ret->sets->pdata, ret->sets->len);
  sp_points_leave_below (ret->points, least);
  return read_device (files, device, ret->card, ret->points, &ret->given, error);
}

void
sp_measured_sets_clear (SpMeasuredSets *sets)
{
  g_clear_pointer (&sets->points, sp_points_free);
  g_clear_pointer (&sets->sets, g_ptr_array_unref);
}

/* The files that an import was made of, "a.csv (kernel timings as CSV); b.txt (...)", as "a.csv and b.txt"; else the
 * set's own. */
static char *
files_of (const SpMeasured *measured, const char *file)
{
  const char *imported = sp_measured_field (measured, "source");
  g_auto (GStrv) parts = g_strsplit (imported != NULL ? imported : "", "; ", -1);

  for (guint i = 0; parts[i] != NULL; i++) {
    char *end = strstr (parts[i], " (");
    if (end != NULL)
      *end = '\0';
  }
  return imported != NULL ? g_strjoinv (" and ", parts) : g_path_get_basename (file);
}

/* "h200x2.csv, NVIDIA H200, 2026-11-28" */
static char *
source_of (char **files, const GPtrArray *sets, const char *card)
{
  g_autoptr (GString) text = g_string_new (NULL);
  const char *date = NULL;
  gboolean measured = FALSE;

  for (guint i = 0; i < sets->len; i++)
    measured = measured || sp_measured_field (sets->pdata[i], "published") == NULL;
  for (guint i = 0; files[i] != NULL; i++) {
    g_autofree char *names = files_of (sets->pdata[i], files[i]);
    if (sp_measured_field (sets->pdata[i], "published") != NULL && measured)
      continue; /* its curves name the publication */
    g_string_append_printf (text, "%s%s", text->len > 0 ? " and " : "", names);
    if (date == NULL)
      date = sp_measured_field (sets->pdata[i], "date");
  }
  if (card != NULL)
    g_string_append_printf (text, ", %s", card);
  if (date != NULL)
    g_string_append_printf (text, ", %.10s", date);
  return g_string_free (g_steal_pointer (&text), FALSE);
}

/* What the sets say of themselves, and what of them was left out, for the profile's head. */
static void
add_comments (const Options *o, const GPtrArray *sets, SpProfile *profile)
{
  for (guint s = 0; s < sets->len; s++) {
    const SpMeasured *measured = sets->pdata[s];
    g_autofree char *names = files_of (measured, o->rest[s]);
    const char *published = sp_measured_field (measured, "published");
    g_ptr_array_add (profile->comments,
                     published != NULL ? g_strdup_printf ("%s, published: %s", names, published) : g_strdup (names));
    for (guint i = 0; i < measured->notes->len; i++)
      g_ptr_array_add (profile->comments, g_strdup_printf ("  %s", (const char *) measured->notes->pdata[i]));
  }
  if (o->least != NULL)
    g_ptr_array_add (profile->comments, g_strdup_printf ("Of transfers those of %s and more.", o->least));
}

/* --- report ------------------------------------------------------------------------------------------------------- */

static void
add_lines (const char *title, const GPtrArray *lines, GString *out)
{
  if (lines->len > 0)
    g_string_append_printf (out, "\n%s\n", title);
  for (guint i = 0; i < lines->len; i++)
    g_string_append_printf (out, "  %s\n", (const char *) lines->pdata[i]);
}

static void
add_held_out (const SpPoints *points, const SpFitGiven *card, SpHoldOut which, GString *out)
{
  static const char *const head[] = { "curve", "fitted", "held out", "median", "p90", "worst", NULL };
  g_autofree char *what = g_strdup_printf ("holding out, %s", sp_hold_out_names[which]);
  SpFitGiven given = *card;
  SpCliProgress progress;
  sp_cli_progress_begin_fit (&progress, what, &given);
  g_autoptr (GArray) held = sp_fit_hold_out (points, &given, which);
  sp_cli_progress_end (&progress);
  g_autoptr (SpTable) table = sp_table_new ("lrrrrr");

  for (guint i = 0; head[i] != NULL; i++)
    sp_table_cell (table, head[i]);
  for (guint i = 0; i < held->len; i++) {
    const SpHeldOut *row = &g_array_index (held, SpHeldOut, i);
    sp_table_take (table, row->curve != NULL ? g_strdup (row->curve) : g_strdup_printf ("all %s", row->kind));
    sp_table_take (table, g_strdup_printf ("%u", row->fitted));
    sp_table_take (table, g_strdup_printf ("%u", row->held));
    sp_table_take (table, sp_text_error (row->median));
    sp_table_take (table, sp_text_error (row->p90));
    sp_table_take (table, sp_text_error (row->worst));
  }
  g_string_append_printf (out, "\nheld out: %s\n", sp_hold_out_names[which]);
  sp_table_print (table, 2, out);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static gboolean
check (const Options *o, guint *ret_hold_out, double *ret_least, GError **error)
{
  const char *names[SP_N_HOLD_OUTS + 2] = { NULL };

  for (guint i = 0; i < SP_N_HOLD_OUTS; i++)
    names[i] = sp_hold_out_names[i];
  names[SP_N_HOLD_OUTS] = "all";
  if (o->rest == NULL)
    return sp_cli_usage (error, "MEASURED.csv is missing");
  if (o->output == NULL && o->hold_out == NULL)
    return sp_cli_usage (error, "-o INI is missing (or --hold-out NAME, which needs none)");
  if (o->name != NULL && (*o->name == '\0' || strpbrk (o->name, "\n\r") != NULL))
    return sp_cli_usage (error, "--name takes a line of text");
  g_autofree char *problem =
      o->least != NULL ? sp_quantity_problem (o->least, SP_UNIT_BYTES, 1, 0x1p50, ret_least) : NULL;
  g_autofree char *shown = o->least != NULL ? sp_shown (o->least) : NULL;
  if (problem != NULL)
    return sp_cli_usage (error, "--least \"%s\": %s", shown, problem);
  return sp_cli_choice ("--hold-out", o->hold_out, names, ret_hold_out, error);
}

gboolean
sp_calibrate_fit (char **args, GString *out, GError **error)
{
  g_auto (Options) o = { NULL };
  guint hold_out = 0;
  double least = 0;
  g_auto (SpMeasuredSets) m = { NULL };
  SpParsed parsed = parse (args, &o, out, error);
  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!check (&o, &hold_out, &least, error) || !sp_fit_is_built (error) ||
      !sp_calibrate_points (o.rest, o.device, least, &m, error))
    return FALSE;
  g_autofree char *source = source_of (o.rest, m.sets, m.card);
  SpCliProgress progress;
  SpFitGiven given = m.given;
  sp_cli_progress_begin_fit (&progress, "fitting", &given);
  g_autoptr (SpFit) fit = sp_fit_points (m.points, &given,
                                         o.name != NULL   ? o.name
                                         : m.card != NULL ? m.card
                                                          : "measured",
                                         m.card, source);
  sp_cli_progress_end (&progress);
  if (fit->profile->curves->len == 0) {
    g_autofree char *why =
        fit->refused->len > 0 ? g_strdup (fit->refused->pdata[0]) : g_strdup ("no row can be fitted");
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: nothing to fit: %s", o.rest[0], why);
  }
  if (o.output != NULL) {
    g_autoptr (GString) text = g_string_new (NULL);
    add_comments (&o, m.sets, fit->profile);
    sp_profile_write (fit->profile, text);
    if (!sp_cli_write_file (o.output, text, error))
      return FALSE;
  }
  sp_show_curves (fit->profile, FALSE, out);
  add_lines ("far from their curve", fit->wild, out);
  add_lines ("not identified", fit->refused, out);
  add_lines ("notes", fit->notes, out);
  for (guint which = 0; o.hold_out != NULL && which < SP_N_HOLD_OUTS; which++)
    if (hold_out == which || hold_out == SP_N_HOLD_OUTS)
      add_held_out (m.points, &m.given, (SpHoldOut) which, out);
  return TRUE;
}
