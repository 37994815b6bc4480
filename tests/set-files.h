/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sets of validation that a test writes, with their data, into one folder of its own. */

#include "calibrate/validate/validation.h"

#include <glib/gstdio.h>

static char *folder; /* of all files that are written here */

static inline char *
write_file (const char *name, const char *text)
{
  g_autoptr (GError) error = NULL;
  char *path = g_build_filename (folder, name, NULL);

  g_file_set_contents (path, text, -1, &error);
  g_assert_no_error (error);
  return path;
}

static inline SpValidation *
load (const char *set, const char *data, GError **error)
{
  g_autofree char *csv = write_file ("data.csv", data), *path = write_file ("set.ini", set);

  return sp_validation_load (path, error);
}

static inline void
make_folder (void)
{
  g_autoptr (GError) error = NULL;

  folder = g_dir_make_tmp ("seqpar-validation-XXXXXX", &error);
  g_assert_no_error (error);
}

static inline void
remove_folder (void)
{
  static const char *const names[] = { "data.csv", "data.ini", "set.ini" };

  for (guint i = 0; i < G_N_ELEMENTS (names); i++) {
    g_autofree char *path = g_build_filename (folder, names[i], NULL);
    g_remove (path);
  }
  g_rmdir (folder);
  g_free (folder);
}
