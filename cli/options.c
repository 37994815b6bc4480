/* SPDX-License-Identifier: Apache-2.0 */
/* Options and files of the command line. */
#include <errno.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "models/inputs/ini.h"

static void
set_error (GError **error, SpCliError code, const char *format, va_list arguments)
{
  g_propagate_error (error, g_error_new_valist (SP_CLI_ERROR, (int) code, format, arguments));
}

gboolean
sp_cli_fail (GError **error, SpCliError code, const char *format, ...)
{
  va_list arguments;
  va_start (arguments, format);
  set_error (error, code, format, arguments);
  va_end (arguments);
  return FALSE;
}

/* With the command's name before and where its help is behind. */
gboolean
sp_cli_usage (GError **error, const char *format, ...)
{
  const char *program = g_get_prgname ();
  const char *command = program != NULL ? strchr (program, ' ') : NULL; /* "seqpar calibrate import" */
  command = command != NULL ? command + 1 : "run";
  va_list arguments;
  va_start (arguments, format);
  g_autofree char *message = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  return sp_cli_fail (error, SP_CLI_ERROR_USAGE, "%s: %s (see seqpar help %s)", command, message, command);
}

/* --- options ------------------------------------------------------------------------------------------------------ */

/* "Unknown option --jsn" -> "--json", or NULL. */
static const char *
nearest_option (const char *message, const GOptionEntry *entries)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new ();
  for (const GOptionEntry *e = entries; e->long_name != NULL; e++)
    if (*e->long_name != '\0')
      g_ptr_array_add (names, (gpointer) e->long_name);
  g_ptr_array_add (names, NULL);
  const char *word = strstr (message, " --");
  return word != NULL ? sp_nearest (word + 3, (const char *const *) names->pdata) : NULL;
}

SpParsed
sp_cli_parse (char **args, const GOptionEntry *entries, const char *text, GString *out, GError **error)
{
  gboolean help = FALSE;
  const GOptionEntry help_entries[] = { { "help", 'h', 0, G_OPTION_ARG_NONE, &help, "This text", NULL }, { NULL } };
  g_autoptr (GOptionContext) context = g_option_context_new (NULL);
  g_option_context_set_help_enabled (context, FALSE); /* it would print and exit by itself */
  g_option_context_set_description (context, text);
  g_option_context_add_main_entries (context, entries, NULL);
  g_option_context_add_main_entries (context, help_entries, NULL);

  g_auto (GStrv) copy = g_strdupv (args);
  g_autoptr (GError) cause = NULL;
  if (!g_option_context_parse_strv (context, &copy, &cause)) {
    const char *near = g_error_matches (cause, G_OPTION_ERROR, G_OPTION_ERROR_UNKNOWN_OPTION)
                           ? nearest_option (cause->message, entries)
                           : NULL;
    if (cause->domain == G_CONVERT_ERROR)
      sp_cli_usage (error, "the value of an option that is neither a file nor --set: expected ASCII characters");
    else
      sp_cli_usage (error, "%s%s%s%s", cause->message, near ? "; did you mean --" : "", near ? near : "",
                    near ? "?" : "");
    return SP_PARSED_ERROR;
  }
  if (!help)
    return SP_PARSED;
  g_autofree char *shown = g_option_context_get_help (context, TRUE, NULL);
  g_string_append (out, shown);
  return SP_PARSED_HELP;
}

gboolean
sp_cli_choice (const char *option, const char *value, const char *const *names, guint *ret, GError **error)
{
  for (guint i = 0; value != NULL && names[i] != NULL; i++)
    if (g_str_equal (value, names[i])) {
      *ret = i;
      return TRUE;
    }
  if (value == NULL)
    return TRUE;
  g_autofree char *near = sp_did_you_mean (value, names);
  g_autofree char *all = g_strjoinv (", ", (char **) names);
  g_autofree char *shown = sp_shown (value);
  return sp_cli_usage (error, "%s \"%s\": expected one of %s%s", option, shown, all, near);
}

gboolean
sp_cli_positional (char **given, const char *const *names, GError **error)
{
  guint n = given != NULL ? g_strv_length (given) : 0;
  guint wanted = g_strv_length ((char **) names);
  if (n < wanted)
    return sp_cli_usage (error, "%s is missing", names[n]);
  if (n == wanted)
    return TRUE;
  g_autofree char *shown = sp_shown (given[wanted]);
  return sp_cli_usage (error, "\"%s\" is one argument too many", shown);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static gint
compare_names (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *) a, *(const char *const *) b);
}

/* Sorted, without .ini, NULL-terminated. */
static GPtrArray *
shipped_scenarios (void)
{
  GPtrArray *names = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GDir) dir = g_dir_open (sp_data_dir (), 0, NULL);
  for (const char *name; dir != NULL && (name = g_dir_read_name (dir)) != NULL;)
    if (g_str_has_suffix (name, ".ini"))
      g_ptr_array_add (names, g_strndup (name, strlen (name) - strlen (".ini")));
  g_ptr_array_sort (names, compare_names);
  g_ptr_array_add (names, NULL);
  return names;
}

char *
sp_cli_find_scenario (const char *name, GError **error)
{
  gboolean bare = strchr (name, G_DIR_SEPARATOR) == NULL;
  g_autoptr (GPtrArray) names = shipped_scenarios ();
  for (guint i = 0; bare && names->pdata[i] != NULL; i++) {
    g_autofree char *file = g_strconcat (names->pdata[i], ".ini", NULL);
    if ((g_str_equal (name, names->pdata[i]) || g_str_equal (name, file)) &&
        !g_file_test (name, G_FILE_TEST_IS_REGULAR))
      return g_build_filename (sp_data_dir (), file, NULL);
  }
  if (*name != '\0' && (!bare || g_file_test (name, G_FILE_TEST_EXISTS)))
    return g_strdup (name);
  g_autofree char *near = sp_did_you_mean (name, (const char *const *) names->pdata);
  g_autofree char *all = g_strjoinv (", ", (char **) names->pdata);
  g_autofree char *shown = sp_shown (name);
  sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: no such file, and none of the shipped scenarios: %s%s",
               *shown != '\0' ? shown : "\"\"", all, near);
  return NULL;
}

SpScenario *
sp_cli_load_scenario (const char *name, char **sets, GError **error)
{
  g_autofree char *path = sp_cli_find_scenario (name, error);
  return path != NULL ? sp_scenario_load (path, (const char *const *) sets, error) : NULL;
}

gint32
sp_cli_gpus (const SpCluster *cluster)
{
  return cluster->nodes * cluster->gpus_per_node;
}

gboolean
sp_cli_check_layout (const SpScenario *scenario, GError **error)
{
  if (sp_layout_check (&scenario->layout, scenario->arch, scenario->framework, &scenario->run,
                       sp_cli_gpus (scenario->cluster), error))
    return TRUE;
  g_prefix_error (error, "%s: [layout] ", scenario->path);
  return FALSE;
}

gboolean
sp_cli_is_stdout (const char *path)
{
  return path == NULL || g_str_equal (path, "-");
}

gboolean
sp_cli_check_output (const char *path, GError **error)
{
  if (path == NULL)
    return TRUE;
  if (g_str_equal (path, "-"))
    return sp_cli_usage (error, "\"-\" is no file's name here: expected one");
  if (sp_was_read (path))
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: cannot be written: it is a file that this reads", path);
  /* A rename would replace a link to nothing, or around in a circle, by a file. */
  if (g_file_test (path, G_FILE_TEST_IS_SYMLINK) && !g_file_test (path, G_FILE_TEST_EXISTS))
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: cannot be written: a link that leads to no file", path);
  return TRUE;
}

gboolean
sp_cli_check_writable (const char *path, GError **error)
{
  if (path == NULL)
    return TRUE;
  if (!sp_cli_check_output (path, error))
    return FALSE;
  if (*path == '\0')
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "\"\": cannot be written");
  if (g_file_test (path, G_FILE_TEST_EXISTS) && !g_file_test (path, G_FILE_TEST_IS_REGULAR))
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: cannot be written: not a regular file", path);
  g_autofree char *folder = g_path_get_dirname (path);
  return g_access (folder, W_OK | X_OK) == 0 ||
         sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: cannot be written: %s", path, g_strerror (errno));
}

/* Of one name, or one file by two. */
static gboolean
is_same_file (const char *a, const char *b)
{
  g_autofree char *first = g_canonicalize_filename (a, NULL), *second = g_canonicalize_filename (b, NULL);
  GStatBuf x, y;
  return g_str_equal (first, second) ||
         (g_stat (a, &x) == 0 && g_stat (b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

gboolean
sp_cli_check_outputs (const char *first, const char *second, GError **error)
{
  if (!sp_cli_check_output (first, error) || !sp_cli_check_output (second, error))
    return FALSE;
  return first == NULL || second == NULL || !is_same_file (first, second) ||
         sp_cli_usage (error, "%s is to be written twice: expected two files", second);
}

gboolean
sp_cli_check_once (char **files, GError **error)
{
  for (guint i = 0; files != NULL && files[i] != NULL; i++)
    for (guint k = 0; k < i; k++)
      if (is_same_file (files[k], files[i]))
        return sp_cli_usage (error, "%s is there twice: expected each once", files[i]);
  return TRUE;
}

gboolean
sp_cli_write_file (const char *path, const GString *text, GError **error)
{
  g_autoptr (GError) cause = NULL;
  if (!sp_cli_check_output (path, error))
    return FALSE;
  /* A rename would replace a device by a file. */
  if (g_file_test (path, G_FILE_TEST_EXISTS) && !g_file_test (path, G_FILE_TEST_IS_REGULAR))
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: cannot be written: not a regular file", path);
  if (*path != '\0' && g_file_set_contents (path, text->str, (gssize) text->len, &cause))
    return TRUE;
  /* GLib names the temporary file; its last words are the reason. */
  const char *reason = cause != NULL ? strrchr (cause->message, ':') : NULL;
  return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: cannot be written%s", *path != '\0' ? path : "\"\"",
                      reason != NULL ? reason : "");
}
