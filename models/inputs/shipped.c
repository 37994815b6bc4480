/* SPDX-License-Identifier: Apache-2.0 */
/* Where the shipped scenarios are, and their files by name. */
#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/scenario.h"

/* Both given by the build. The second is seen from the folder of the program, or absolute. */
#ifndef SEQPAR_SOURCE_DATADIR
#define SEQPAR_SOURCE_DATADIR "scenarios"
#endif
#ifndef SEQPAR_INSTALL_DATADIR
#define SEQPAR_INSTALL_DATADIR "../share/seqpar/scenarios"
#endif

const char *
sp_data_dir (void)
{
  const char *given = g_getenv ("SEQPAR_DATA");
  if (given != NULL && *given != '\0')
    return given;
  g_autofree char *program = g_file_read_link ("/proc/self/exe", NULL);
  g_autofree char *folder = program != NULL ? g_path_get_dirname (program) : g_strdup (".");
  g_autofree char *installed = g_canonicalize_filename (SEQPAR_INSTALL_DATADIR, folder);
  return g_file_test (installed, G_FILE_TEST_IS_DIR) ? g_intern_string (installed) : SEQPAR_SOURCE_DATADIR;
}

static gint
compare_names (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *) a, *(const char *const *) b);
}

static const char *const suffixes[] = { ".ini", ".json" };

/* Cuts a suffix off, if it is one of ours. */
static gboolean
cut_suffix (char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS (suffixes); i++)
    if (g_str_has_suffix (name, suffixes[i])) {
      name[strlen (name) - strlen (suffixes[i])] = '\0';
      return TRUE;
    }
  return FALSE;
}

/* Names in a shipped folder without their suffixes, sorted, NULL-terminated. */
static GPtrArray *
list_shipped (const char *folder)
{
  GPtrArray *names = g_ptr_array_new_with_free_func (g_free);
  g_autofree char *path = g_build_filename (sp_data_dir (), folder, NULL);
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
  for (const char *entry; dir != NULL && (entry = g_dir_read_name (dir)) != NULL;) {
    g_autofree char *name = g_strdup (entry);
    if (cut_suffix (name))
      g_ptr_array_add (names, g_steal_pointer (&name));
  }
  g_ptr_array_sort (names, compare_names);
  g_ptr_array_add (names, NULL);
  return names;
}

char **
sp_list_shipped (const char *folder)
{
  g_autoptr (GPtrArray) names = list_shipped (folder);

  return g_strdupv ((char **) names->pdata);
}

#define MOST_LISTED 12

/* Those that there are, where a line has room for them; else how to see them. */
static char *
which_shipped (const char *folder, const GPtrArray *names)
{
  guint n = names->len - 1;

  if (n > MOST_LISTED && g_str_has_suffix (folder, "s"))
    return g_strdup_printf ("%u shipped %s, which seqpar show %.*s lists", n, folder, (int) strlen (folder) - 1,
                            folder);
  if (g_str_equal (folder, "validation"))
    return g_strdup_printf ("%u shipped sets, which seqpar validate lists", n);
  g_autofree char *all = g_strjoinv (", ", (char **) names->pdata);
  return g_strdup_printf ("shipped %s: %s", folder, all);
}

char *
sp_find_shipped (const char *folder, const char *name, GError **error)
{
  gboolean bare = *name != '\0' && strchr (name, G_DIR_SEPARATOR) == NULL;
  for (guint i = 0; bare && i <= G_N_ELEMENTS (suffixes); i++) {
    g_autofree char *file = g_strconcat (name, i == 0 ? "" : suffixes[i - 1], NULL);
    g_autofree char *path = g_build_filename (sp_data_dir (), folder, file, NULL);
    if (g_file_test (path, G_FILE_TEST_IS_REGULAR))
      return g_steal_pointer (&path);
  }
  g_autoptr (GPtrArray) names = list_shipped (folder);
  g_autofree char *stem = g_path_get_basename (name);
  cut_suffix (stem);
  g_autofree char *near = sp_did_you_mean (stem, (const char *const *) names->pdata);
  g_autofree char *which = which_shipped (folder, names), *shown = sp_shown (name);
  sp_input_fail (error, SP_INPUT_ERROR_FILE, "\"%s\": no such file, and none of the %s%s", shown, which, near);
  return NULL;
}

/* A folder that happens to be named like a shipped file is not what is meant. */
static char *
find (const char *folder, const char *name, GError **error)
{
  gboolean bare = strchr (name, G_DIR_SEPARATOR) == NULL;
  if (g_file_test (name, G_FILE_TEST_EXISTS) && !(bare && g_file_test (name, G_FILE_TEST_IS_DIR)))
    return g_strdup (name);
  return sp_find_shipped (folder, name, error);
}

char *
sp_find_model (const char *name, GError **error)
{
  return find ("models", name, error);
}

char *
sp_find_cluster (const char *name, GError **error)
{
  return find ("clusters", name, error);
}

char *
sp_find_profile (const char *name, GError **error)
{
  return find ("profiles", name, error);
}

char *
sp_find_framework (const char *name, GError **error)
{
  return find ("frameworks", name, error);
}

char *
sp_find_validation (const char *name, GError **error)
{
  return find ("validation", name, error);
}
