/* SPDX-License-Identifier: Apache-2.0 */
/* Which kind of file a text is, for who expected another: the first key that lacks says less than that. */
#include <string.h>

#include "models/inputs/ini.h"

/* By the first of these groups that it has. A scenario has a model and a cluster, which may be a file's name each. */
static const struct {
  const char *group, *kind;
} groups[] = {
  { "[layout]", SP_KIND_SCENARIO },   { "[run]", SP_KIND_SCENARIO },        { "[cluster]", SP_KIND_CLUSTER },
  { "[device]", SP_KIND_DEVICE },     { "[framework]", SP_KIND_FRAMEWORK }, { "[profile]", SP_KIND_PROFILE },
  { "[set]", "a set of validation" }, { "[model]", SP_KIND_MODEL },
};

static gboolean
has_key (const char *const *lines, const char *key)
{
  gsize n = strlen (key);

  for (; *lines != NULL; lines++)
    if (g_str_has_prefix (*lines, key) && (*lines)[n + strspn (*lines + n, " \t")] == '=')
      return TRUE;
  return FALSE;
}

/* A flag, a command's line that goes on, or key: value. */
static gboolean
is_of_run (const char *line)
{
  gsize word = strspn (line, G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "_");

  return g_str_has_prefix (line, "--") || strstr (line, " --") != NULL || g_str_has_suffix (line, " \\") ||
         (word > 0 && line[word] == ':' && line[word + 1] == ' ');
}

/* NULL: it is none that is known. */
static const char *
kind_of (const char *text, const char *expected)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  const char *const *all = (const char *const *) lines;

  for (guint i = 0; lines[i] != NULL; i++)
    g_strstrip (lines[i]);
  if (*text == '{')
    return strstr (text, "\"model_type\"") != NULL ? SP_KIND_MODEL
           : g_str_equal (expected, SP_KIND_MODEL) ? NULL
                                                   : "JSON";
  if (g_strv_contains (all, "[model]") && (g_strv_contains (all, "[cluster]") || has_key (all, "config")))
    return SP_KIND_SCENARIO;
  for (guint i = 0; i < G_N_ELEMENTS (groups); i++)
    if (g_strv_contains (all, groups[i].group))
      return groups[i].kind;
  for (guint i = 0; lines[i] != NULL; i++)
    if (is_of_run (lines[i]))
      return SP_KIND_RUN_FILE;
  return NULL;
}

void
sp_input_say_kind (const char *path, const char *expected, GError **error)
{
  g_autofree char *text = sp_read_input (path, NULL, NULL);
  const char *kind = text != NULL ? kind_of (text + strspn (text, " \t\r\n"), expected) : NULL;

  if (kind == NULL || error == NULL || g_str_equal (kind, expected))
    return;
  g_clear_error (error);
  sp_input_fail (error, SP_INPUT_ERROR_FILE, "%s: is %s, expected %s%s", path, kind, expected,
                 g_str_equal (kind, SP_KIND_RUN_FILE) ? "; seqpar import makes a scenario of it" : "");
}
