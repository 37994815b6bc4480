/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files that a test writes to see how they are read, and what their errors must say. */

#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>

/* A file in a fresh folder; `input_file_remove` frees the path and removes both. */
static inline char *
input_file_new (const char *name, const char *text, gssize length)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *folder = g_dir_make_tmp ("seqpar-XXXXXX", &error);
  g_assert_no_error (error);
  char *path = g_build_filename (folder, name, NULL);
  g_file_set_contents (path, text, length, &error);
  g_assert_no_error (error);
  return path;
}

static inline void
input_file_remove (char *path)
{
  g_autofree char *folder = g_path_get_dirname (path);
  g_remove (path);
  g_rmdir (folder);
  g_free (path);
}

/* `words` NULL-terminated. One line, the file's path first. */
static inline void
input_file_assert_error (GError *error, const char *path, const char *const *words)
{
  g_assert_nonnull (error);
  g_test_message ("%s", error->message);
  g_assert_true (g_str_has_prefix (error->message, path));
  g_assert_null (strchr (error->message, '\n'));
  for (guint i = 0; words[i] != NULL; i++)
    if (strstr (error->message, words[i]) == NULL)
      g_error ("\"%s\" is not in \"%s\"", words[i], error->message);
}

/* `text` with its first `from` turned into `to`. */
static inline char *
input_file_replace (const char *text, const char *from, const char *to)
{
  const char *at = strstr (text, from);
  g_assert_nonnull (at);
  g_autofree char *head = g_strndup (text, (gsize) (at - text));
  return g_strconcat (head, to, at + strlen (from), NULL);
}
