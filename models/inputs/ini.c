/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GKeyFile holds the values. It merges a group or key that stands twice and says no line, so the text is scanned first;
 * what the scan lets through is plain: comments, [group], key = value.
 */
#include "models/inputs/ini.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_MIB 1
#define MOST_MEASURED_MIB 256

/* clang-format off */
G_DEFINE_QUARK (sp-input-error-quark, sp_input_error)
/* clang-format on */

struct _SpIni {
  char *path;
  GKeyFile *keys;
  GHashTable *set;                       /* "group\nkey" given by sp_ini_set, for messages */
  GHashTable *asked;                     /* "group\nkey" */
  GPtrArray *known_groups, *known_names; /* parallel, in order of asking */
  char *(*elsewhere) (const char *key);
};

gboolean
sp_input_fail (GError **error, SpInputError code, const char *format, ...)
{
  va_list arguments;
  va_start (arguments, format);
  g_propagate_error (error, g_error_new_valist (SP_INPUT_ERROR, (int) code, format, arguments));
  va_end (arguments);
  return FALSE;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

gboolean
sp_check_input (const char *path, const char *text, gsize length, GError **error)
{
  if (length == 0)
    return sp_input_fail (error, SP_INPUT_ERROR_FILE, "%s: the file is empty", path);
  guint line = 1;
  for (gsize i = 0; i < length; i++) {
    if (text[i] == '\n')
      line++;
    else if (g_ascii_iscntrl (text[i]) && text[i] != '\t' && text[i] != '\r')
      return sp_input_fail (error, SP_INPUT_ERROR_FILE, "%s:%u: control character 0x%02x, expected a text file", path,
                            line, (guchar) text[i]);
  }
  const char *end;
  if (g_utf8_validate (text, (gssize) length, &end))
    return TRUE;
  line = 1;
  for (const char *c = text; c < end; c++)
    line += *c == '\n';
  return sp_input_fail (error, SP_INPUT_ERROR_FILE, "%s:%u: not UTF-8", path, line);
}

/* Files by device and inode, for who is about to write one. The one thing here that outlives a call: an input is read at
 * many depths, and what must not be overwritten is none of their callers' business. */
static GArray *files_read;
G_LOCK_DEFINE_STATIC (files_read);

typedef struct {
  guint64 device, inode;
  char *path; /* as it was read first */
} FileId;

static gboolean
find_file (const GStatBuf *status)
{
  for (guint i = 0; files_read != NULL && i < files_read->len; i++) {
    const FileId *id = &g_array_index (files_read, FileId, i);
    if (id->device == (guint64) status->st_dev && id->inode == (guint64) status->st_ino)
      return TRUE;
  }
  return FALSE;
}

static void
remember_file (const char *path, const GStatBuf *status)
{
  FileId id = { (guint64) status->st_dev, (guint64) status->st_ino, NULL };

  G_LOCK (files_read);
  if (files_read == NULL)
    files_read = g_array_new (FALSE, FALSE, sizeof (FileId));
  if (!find_file (status)) {
    id.path = g_strdup (path);
    g_array_append_val (files_read, id);
  }
  G_UNLOCK (files_read);
}

char *
sp_inputs_digest (void)
{
  g_autoptr (GChecksum) sum = g_checksum_new (G_CHECKSUM_SHA256);

  G_LOCK (files_read);
  for (guint i = 0; files_read != NULL && i < files_read->len; i++) {
    g_autofree char *text = NULL;
    gsize length = 0;
    if (g_file_get_contents (g_array_index (files_read, FileId, i).path, &text, &length, NULL))
      g_checksum_update (sum, (const guchar *) text, (gssize) length);
  }
  G_UNLOCK (files_read);
  return g_strdup (g_checksum_get_string (sum));
}

gboolean
sp_was_read (const char *path)
{
  GStatBuf status;

  if (g_stat (path, &status) != 0)
    return FALSE;
  G_LOCK (files_read);
  gboolean found = find_file (&status);
  G_UNLOCK (files_read);
  return found;
}

static char *
read_bytes (const char *path, gint64 most_mib, gsize *ret_length, GError **error)
{
  GStatBuf status;
  const char *problem = NULL;
  if (g_stat (path, &status) != 0)
    problem = g_strerror (errno);
  else if (S_ISDIR (status.st_mode))
    problem = "is a directory, expected a file";
  else if (!S_ISREG (status.st_mode))
    problem = "not a regular file";
  g_autofree char *too_large = NULL;
  if (problem == NULL && status.st_size > most_mib << 20)
    problem = too_large =
        g_strdup_printf ("larger than %" G_GINT64_FORMAT " MiB, the most that is read of a file", most_mib);

  g_autofree char *text = NULL;
  gsize length = 0;
  g_autoptr (GError) cause = NULL;
  if (problem == NULL && !g_file_get_contents (path, &text, &length, &cause))
    problem = cause->message;
  if (problem != NULL) {
    sp_input_fail (error, SP_INPUT_ERROR_FILE, "%s: %s", path, problem);
    return NULL;
  }
  remember_file (path, &status);
  if (ret_length != NULL)
    *ret_length = length;
  return g_steal_pointer (&text);
}

char *
sp_read_input_bytes (const char *path, gsize *ret_length, GError **error)
{
  return read_bytes (path, MOST_MIB, ret_length, error);
}

static char *
read_text (const char *path, gint64 most_mib, gsize *ret_length, GError **error)
{
  gsize length;
  g_autofree char *text = read_bytes (path, most_mib, &length, error);
  if (text == NULL)
    return NULL;
  if (length >= 3 && memcmp (text, "\xef\xbb\xbf", 3) == 0) {
    length -= 3; /* a byte order mark, as some editors write */
    memmove (text, text + 3, length + 1);
  }
  if (!sp_check_input (path, text, length, error))
    return NULL;
  if (ret_length != NULL)
    *ret_length = length;
  return g_steal_pointer (&text);
}

char *
sp_read_input (const char *path, gsize *ret_length, GError **error)
{
  return read_text (path, MOST_MIB, ret_length, error);
}

char *
sp_read_measurements (const char *path, gsize *ret_length, GError **error)
{
  return read_text (path, MOST_MEASURED_MIB, ret_length, error);
}

/* --- syntax ------------------------------------------------------------------------------------------------------- */

static gboolean
is_name (const char *name)
{
  gsize plain = strspn (name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
  return *name != '\0' && name[plain] == '\0';
}

static char *
path_of (const char *group, const char *key)
{
  return g_strconcat (group, "\n", key, NULL);
}

/* One line of the file, stripped. `group` is the current one and changes. `seen`: "group\nkey" or "group" -> line. */
static gboolean
scan_line (const char *path, char *line, guint number, GHashTable *seen, char **group, GError **error)
{
  g_autofree char *shown = sp_shown (line);
  g_autofree char *id = NULL;
  const char *what = NULL;
  if (*line == '\0' || *line == '#')
    return TRUE;
  if (*line == '[') {
    gsize length = strlen (line);
    gboolean closed = line[length - 1] == ']';
    if (closed)
      line[length - 1] = '\0';
    if (!closed || !is_name (line + 1))
      what = "expected [group]";
    g_free (*group);
    *group = g_strdup (line + 1);
    id = g_strdup (line + 1);
  } else {
    char *equals = strchr (line, '=');
    if (equals != NULL)
      *equals = '\0';
    const char *key = g_strchomp (line);
    if (equals == NULL)
      what = *line == ';' ? "a comment begins with #" : "expected key = value";
    else if (!is_name (key))
      what = "expected a key of letters, digits, - and . before =";
    else if (*group == NULL)
      what = "a key before the first [group]";
    else
      id = path_of (*group, key);
  }
  if (what != NULL)
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: \"%s\": %s", path, number, shown, what);
  guint before = GPOINTER_TO_UINT (g_hash_table_lookup (seen, id));
  if (before != 0)
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: \"%s\" stands twice, first in line %u", path, number,
                          shown, before);
  g_hash_table_insert (seen, g_steal_pointer (&id), GUINT_TO_POINTER (number));
  return TRUE;
}

static gboolean
scan (const char *path, const char *text, GError **error)
{
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autofree char *group = NULL;
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++)
    if (!scan_line (path, g_strstrip (lines[i]), i + 1, seen, &group, error))
      return FALSE;
  if (group == NULL)
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s: no [group] in it", path);
  return TRUE;
}

SpIni *
sp_ini_load (const char *path, GError **error)
{
  gsize length;
  g_autofree char *text = sp_read_input (path, &length, error);
  return text != NULL ? sp_ini_parse (path, text, length, error) : NULL;
}

SpIni *
sp_ini_parse (const char *path, const char *text, gsize length, GError **error)
{
  if (!sp_check_input (path, text, length, error) || !scan (path, text, error))
    return NULL;
  g_autoptr (SpIni) ini = g_new0 (SpIni, 1);
  ini->path = g_strdup (path);
  ini->keys = g_key_file_new ();
  ini->set = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  ini->asked = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  ini->known_groups = g_ptr_array_new_with_free_func (g_free);
  ini->known_names = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GError) cause = NULL;
  if (!g_key_file_load_from_data (ini->keys, text, length, G_KEY_FILE_NONE, &cause)) {
    sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s: %s", path, cause->message);
    return NULL;
  }
  return g_steal_pointer (&ini);
}

void
sp_ini_free (SpIni *ini)
{
  if (ini == NULL)
    return;
  g_free (ini->path);
  g_clear_pointer (&ini->keys, g_key_file_unref);
  g_clear_pointer (&ini->set, g_hash_table_unref);
  g_clear_pointer (&ini->asked, g_hash_table_unref);
  g_clear_pointer (&ini->known_groups, g_ptr_array_unref);
  g_clear_pointer (&ini->known_names, g_ptr_array_unref);
  g_free (ini);
}

const char *
sp_ini_path (const SpIni *ini)
{
  return ini->path;
}

void
sp_ini_set (SpIni *ini, const char *group, const char *key, const char *value)
{
  g_return_if_fail (is_name (group) && is_name (key));
  g_autofree char *valid = g_utf8_make_valid (value, -1);
  g_key_file_set_value (ini->keys, group, key, g_strstrip (valid));
  g_hash_table_add (ini->set, path_of (group, key));
}

gboolean
sp_ini_is_set (const SpIni *ini, const char *group, const char *key)
{
  g_autofree char *id = path_of (group, key);
  return g_hash_table_contains (ini->set, id);
}

gboolean
sp_ini_has (const SpIni *ini, const char *group, const char *key)
{
  return g_key_file_has_key (ini->keys, group, key, NULL);
}

char **
sp_ini_groups (const SpIni *ini)
{
  return g_key_file_get_groups (ini->keys, NULL);
}

char **
sp_ini_keys (const SpIni *ini, const char *group)
{
  char **keys = g_key_file_get_keys (ini->keys, group, NULL, NULL);
  return keys != NULL ? keys : g_new0 (char *, 1);
}

void
sp_ini_own (SpIni *ini)
{
  g_hash_table_remove_all (ini->set);
}

/* NULL if the key is absent. */
static char *
get_value (const SpIni *ini, const char *group, const char *key)
{
  char *value = g_key_file_get_value (ini->keys, group, key, NULL);
  return value != NULL ? g_strstrip (value) : NULL;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

gboolean
sp_ini_refuse (const SpIni *ini, const char *group, const char *key, GError **error, const char *format, ...)
{
  if (error == NULL)
    return FALSE;
  va_list arguments;
  va_start (arguments, format);
  g_autofree char *expected = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  g_autofree char *value = get_value (ini, group, key);
  g_autofree char *shown = sp_shown (value != NULL ? value : "");
  gboolean comment = strstr (shown, " #") != NULL || strstr (shown, " ;") != NULL;
  return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s%s: [%s] %s = \"%s\": %s%s", ini->path,
                        sp_ini_is_set (ini, group, key) ? " (--set)" : "", group, key, shown, expected,
                        comment ? " (a comment needs a line of its own)" : "");
}

/* The error of a required key that is absent, with the misspelt key that may have been meant for it. */
static gboolean
refuse_missing (SpIni *ini, const char *group, const char *key, const char *expected, GError **error)
{
  g_auto (GStrv) present = g_key_file_get_keys (ini->keys, group, NULL, NULL);
  g_autoptr (GPtrArray) unknown = g_ptr_array_new ();
  for (guint i = 0; present != NULL && present[i] != NULL; i++) {
    g_autofree char *id = path_of (group, present[i]);
    if (!g_hash_table_contains (ini->asked, id))
      g_ptr_array_add (unknown, present[i]);
  }
  g_ptr_array_add (unknown, NULL);
  const char *near = sp_nearest (key, (const char *const *) unknown->pdata);
  return sp_input_fail (error, SP_INPUT_ERROR_KEY, "%s: [%s] %s: missing, %s%s%s%s", ini->path, group, key, expected,
                        near ? " (is \"" : "", near ? near : "", near ? "\" meant for it?)" : "");
}

/* Looks a key up and remembers that it is known. NULL if it is absent. */
static char *
look_up (SpIni *ini, const char *group, const char *key)
{
  g_autofree char *id = path_of (group, key);
  if (!g_hash_table_contains (ini->asked, id)) {
    g_hash_table_add (ini->asked, g_steal_pointer (&id));
    g_ptr_array_add (ini->known_groups, g_strdup (group));
    g_ptr_array_add (ini->known_names, g_strdup (key));
  }
  return get_value (ini, group, key);
}

gboolean
sp_ini_quantity (SpIni *ini, const char *group, const char *key, SpIniNeed need, SpUnit unit, double min, double max,
                 double *ret, GError **error)
{
  g_autofree char *value = look_up (ini, group, key);
  double parsed;

  if (value == NULL && need == SP_INI_OPTIONAL)
    return TRUE;
  g_autofree char *problem = sp_quantity_problem (value != NULL ? value : "", unit, min, max, &parsed);
  if (value == NULL)
    return refuse_missing (ini, group, key, problem, error);
  if (problem != NULL)
    return sp_ini_refuse (ini, group, key, error, "%s", problem);
  *ret = parsed;
  return TRUE;
}

gboolean
sp_ini_tokens (SpIni *ini, const char *group, const char *key, SpIniNeed need, gint64 min, gint64 max, gint64 *ret,
               GError **error)
{
  double value = (double) *ret;
  if (!sp_ini_quantity (ini, group, key, need, SP_UNIT_TOKENS, (double) min, (double) max, &value, error))
    return FALSE;
  *ret = (gint64) value;
  return TRUE;
}

gboolean
sp_ini_int (SpIni *ini, const char *group, const char *key, SpIniNeed need, gint64 min, gint64 max, gint32 *ret,
            GError **error)
{
  double value = *ret;
  if (!sp_ini_quantity (ini, group, key, need, SP_UNIT_COUNT, (double) min, (double) MIN (max, G_MAXINT32), &value,
                        error))
    return FALSE;
  *ret = (gint32) value;
  return TRUE;
}

gboolean
sp_ini_choice (SpIni *ini, const char *group, const char *key, SpIniNeed need, const char *const *names, guint8 *ret,
               GError **error)
{
  g_autofree char *value = look_up (ini, group, key);

  if (value == NULL && need == SP_INI_OPTIONAL)
    return TRUE;
  for (guint i = 0; value != NULL && names[i] != NULL; i++)
    if (g_str_equal (names[i], value)) {
      *ret = (guint8) i;
      return TRUE;
    }
  g_autofree char *all = g_strjoinv (", ", (char **) names);
  g_autofree char *expected = g_strdup_printf ("expected one of %s", all);
  if (value == NULL)
    return refuse_missing (ini, group, key, expected, error);
  g_autofree char *near = sp_did_you_mean (value, names);
  return sp_ini_refuse (ini, group, key, error, "%s%s", expected, near);
}

gboolean
sp_ini_bool (SpIni *ini, const char *group, const char *key, SpIniNeed need, gboolean *ret, GError **error)
{
  static const char *const names[] = { "false", "true", NULL };
  guint8 value = *ret ? 1 : 0;
  if (!sp_ini_choice (ini, group, key, need, names, &value, error))
    return FALSE;
  *ret = value;
  return TRUE;
}

gboolean
sp_ini_string (SpIni *ini, const char *group, const char *key, SpIniNeed need, char **ret, GError **error)
{
  g_autofree char *value = look_up (ini, group, key);
  if (value == NULL && need != SP_INI_OPTIONAL)
    return refuse_missing (ini, group, key, "expected a value", error);
  if (value == NULL)
    return TRUE;
  if (*value == '\0')
    return sp_ini_refuse (ini, group, key, error, "expected a value");
  g_free (*ret);
  *ret = g_steal_pointer (&value);
  return TRUE;
}

/* --- unknown keys ------------------------------------------------------------------------------------------------- */

/* What an unknown key may have been meant for: a known one of its group that is near, or its namesake elsewhere. */
static char *
suggest_key (SpIni *ini, const char *group, const char *key)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new ();
  for (guint i = 0; i < ini->known_names->len; i++) {
    if (g_str_equal (ini->known_groups->pdata[i], group))
      g_ptr_array_add (names, ini->known_names->pdata[i]);
    else if (g_str_equal (ini->known_names->pdata[i], key))
      return g_strdup_printf ("; it belongs in [%s]", (char *) ini->known_groups->pdata[i]);
  }
  g_ptr_array_add (names, NULL);
  char *elsewhere = ini->elsewhere != NULL ? ini->elsewhere (key) : NULL;
  return elsewhere != NULL ? elsewhere : sp_did_you_mean (key, (const char *const *) names->pdata);
}

static gboolean
check_group (SpIni *ini, const char *group, GError **error)
{
  for (guint i = 0; i < ini->known_groups->len; i++)
    if (g_str_equal (ini->known_groups->pdata[i], group))
      return TRUE;
  g_autoptr (GPtrArray) groups = g_ptr_array_new ();
  for (guint i = 0; i < ini->known_groups->len; i++)
    if (i == 0 || !g_str_equal (ini->known_groups->pdata[i], ini->known_groups->pdata[i - 1]))
      g_ptr_array_add (groups, ini->known_groups->pdata[i]);
  g_ptr_array_add (groups, NULL);
  const char *near = sp_nearest (group, (const char *const *) groups->pdata);
  g_autofree char *all = g_strjoinv ("], [", (char **) groups->pdata);
  return sp_input_fail (error, SP_INPUT_ERROR_KEY, "%s: [%s]: unknown group, expected [%s]%s%s%s", ini->path, group,
                        all, near ? "; did you mean [" : "", near ? near : "", near ? "]?" : "");
}

void
sp_ini_set_elsewhere (SpIni *ini, char *(*elsewhere) (const char *key))
{
  ini->elsewhere = elsewhere;
}

gboolean
sp_ini_finish (SpIni *ini, GError **error)
{
  g_auto (GStrv) groups = g_key_file_get_groups (ini->keys, NULL);
  for (guint g = 0; groups[g] != NULL; g++) {
    if (!check_group (ini, groups[g], error))
      return FALSE;
    g_auto (GStrv) keys = g_key_file_get_keys (ini->keys, groups[g], NULL, NULL);
    for (guint k = 0; keys != NULL && keys[k] != NULL; k++) {
      g_autofree char *id = path_of (groups[g], keys[k]);
      if (g_hash_table_contains (ini->asked, id))
        continue;
      g_autofree char *suggestion = suggest_key (ini, groups[g], keys[k]);
      sp_ini_refuse (ini, groups[g], keys[k], error, "unknown key%s", suggestion);
      if (error != NULL && *error != NULL)
        (*error)->code = SP_INPUT_ERROR_KEY;
      return FALSE;
    }
  }
  return TRUE;
}
