/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a run file becomes, as keys. */

#include "models/inputs/run-files/run-file.h"

/* The scenario as a key file, and the model's group of its own file put in place of its own. */
static inline GKeyFile *
import_text (SpRunFile *file, const SpRunGiven *given, GString *scenario, GString *model)
{
  g_autoptr (GError) error = NULL;
  GKeyFile *keys = g_key_file_new ();
  sp_run_file_import (file, given, "imported.ini", scenario, model, &error);
  g_assert_no_error (error);
  g_assert_true (g_key_file_load_from_data (keys, scenario->str, scenario->len, G_KEY_FILE_NONE, NULL));
  if (model->len == 0)
    return keys;
  g_autoptr (GKeyFile) own = g_key_file_new ();
  g_assert_true (g_key_file_load_from_data (own, model->str, model->len, G_KEY_FILE_NONE, NULL));
  g_auto (GStrv) names = g_key_file_get_keys (own, "model", NULL, NULL);
  for (guint i = 0; names[i] != NULL; i++) {
    g_autofree char *value = g_key_file_get_value (own, "model", names[i], NULL);
    g_key_file_set_value (keys, "model", names[i], value);
  }
  return keys;
}

/* The path of a new file. Free with g_free. */
static inline char *
write_input (const char *folder, const char *name, const GString *text)
{
  g_autoptr (GError) error = NULL;
  char *path = g_build_filename (folder, name, NULL);
  g_file_set_contents (path, text->str, (gssize) text->len, &error);
  g_assert_no_error (error);
  return path;
}
