/* SPDX-License-Identifier: Apache-2.0 */
/* The axes of a sweep: which keys, and which values. */
#include <math.h>
#include <string.h>

#include "cli/sweep.h"
#include "models/inputs/ini.h"

#define MOST_KEYS 8

void
sp_sweep_axis_free (SpSweepAxis *axis)
{
  if (axis == NULL)
    return;
  g_strfreev (axis->keys);
  g_ptr_array_unref (axis->steps);
  g_free (axis);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpSweepAxis, sp_sweep_axis_free)

static gboolean refuse (const char *text, GError **error, const char *format, ...) G_GNUC_PRINTF (3, 4);

static gboolean
refuse (const char *text, GError **error, const char *format, ...)
{
  g_autofree char *shown = sp_shown (text);
  va_list arguments;

  va_start (arguments, format);
  g_autofree char *what = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--sweep %s: %s", shown, what);
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* Of "key" or "group.key". FALSE: no scenario has it. */
static gboolean
find_key (const char *name, const char **ret_group, const char **ret_key)
{
  for (guint i = 0; sp_scenario_key (i, ret_group, ret_key, NULL); i++) {
    g_autofree char *whole = g_strconcat (*ret_group, ".", *ret_key, NULL);
    if (g_str_equal (name, *ret_key) || g_str_equal (name, whole))
      return TRUE;
  }
  *ret_group = SP_VARIATION_GROUP;
  for (guint i = 0; sp_variation_keys[i] != NULL; i++) {
    g_autofree char *whole = g_strconcat (SP_VARIATION_GROUP ".", sp_variation_keys[i], NULL);
    *ret_key = sp_variation_keys[i];
    if (g_str_equal (name, *ret_key) || g_str_equal (name, whole))
      return TRUE;
  }
  return FALSE;
}

/* --- ranges ------------------------------------------------------------------------------------------------------- */

/* A number and what follows it: "64" "K", "1.5" "%". */
typedef struct {
  double value;
  const char *unit; /* not owned */
} Number;

static gboolean
read_number (const char *text, Number *ret)
{
  char *end;

  ret->value = g_ascii_strtod (text, &end);
  ret->unit = end;
  return end != text && isfinite (ret->value);
}

/* 1024 to a power; 0: it is no unit of tokens. */
static double
token_factor (const char *unit)
{
  static const char letters[] = "KMG";
  const char *at = unit[0] != '\0' && unit[1] == '\0' ? strchr (letters, unit[0]) : NULL;

  if (unit[0] == '\0')
    return 1;
  return at != NULL ? pow (1024, (double) (at - letters) + 1) : 0;
}

/* Whether a key's values are written with K, M or G: of others these are numbers. */
static gboolean
takes_tokens (const char *name)
{
  const char *group, *key;
  g_autofree char *expected = NULL;

  return find_key (name, &group, &key) && !g_str_equal (group, SP_VARIATION_GROUP) &&
         sp_scenario_takes (group, key, "1K", &expected) != SP_VALUE_REFUSED;
}

static char *
shown_number (const SpSweepAxis *axis, double value, const char *unit)
{
  char digits[G_ASCII_DTOSTR_BUF_SIZE];

  if (unit == NULL)
    return takes_tokens (axis->keys[0]) ? sp_format_quantity (value, SP_UNIT_TOKENS) : g_strdup_printf ("%.0f", value);
  return g_strconcat (g_ascii_formatd (digits, sizeof digits, "%.10g", value), unit, NULL);
}

/* Numbers of one unit, which ret_unit is; or of tokens, as plain numbers then, and NULL. */
static gboolean
same_unit (Number *numbers, guint n, const char **ret_unit)
{
  gboolean same = TRUE, tokens = TRUE, letters = FALSE;

  for (guint i = 0; i < n; i++) {
    same &= g_str_equal (numbers[i].unit, numbers[0].unit);
    tokens &= token_factor (numbers[i].unit) > 0;
    letters |= *numbers[i].unit != '\0';
  }
  for (guint i = 0; i < n && tokens; i++)
    numbers[i].value *= token_factor (numbers[i].unit);
  *ret_unit = tokens && letters ? NULL : numbers[0].unit;
  return same || tokens;
}

/* "A..B", "A..B+S", "A..B*F". */
static gboolean
add_range (const char *text, const SpSweepAxis *axis, const char *word, const char *dots, GPtrArray *values,
           GError **error)
{
  g_autofree char *first = g_strndup (word, (gsize) (dots - word)), *last = g_strdup (dots + 2);
  char *sign = strpbrk (last, "+*");
  gboolean times = sign != NULL && *sign == '*';
  Number n[3] = { 0 }, factor = { 1, "" };
  const char *unit;

  if (sign != NULL)
    *sign = '\0';
  if (!read_number (g_strstrip (first), &n[0]) || !read_number (g_strstrip (last), &n[1]) ||
      (sign != NULL && !read_number (g_strstrip (sign + 1), times ? &factor : &n[2])) || *factor.unit != '\0')
    return refuse (text, error, "expected a range such as 1..8, 0%%..5%%+1%% or 64K..4096K*2");
  if (!same_unit (n, sign == NULL || times ? 2 : 3, &unit))
    return refuse (text, error, "the ends and the step of a range have one unit");
  double step = sign == NULL ? 1 : n[2].value, most = n[1].value + 1e-9 * fabs (n[1].value);
  if (n[0].value > n[1].value || (times ? factor.value <= 1 || n[0].value <= 0 : step <= 0))
    return refuse (text, error, "expected a range that goes up%s", times ? ", by a factor above 1" : "");
  /* Before any is made: a million take seconds. */
  double more = times ? log (most / n[0].value) / log (factor.value) : (most - n[0].value) / step;
  if (more >= SP_SWEEP_MOST_POINTS)
    return refuse (text, error, "is more than %d values", SP_SWEEP_MOST_POINTS);
  for (guint i = 0;; i++) {
    double value = times ? n[0].value * pow (factor.value, i) : n[0].value + i * step;
    if (value > most)
      return TRUE;
    if (i >= SP_SWEEP_MOST_POINTS)
      return refuse (text, error, "is more than %d values", SP_SWEEP_MOST_POINTS);
    g_ptr_array_add (values, shown_number (axis, value, unit));
  }
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

static gboolean
add_step (const char *text, SpSweepAxis *axis, const char *word, GError **error)
{
  guint n = g_strv_length (axis->keys);
  const char *alone[] = { word, NULL };
  g_auto (GStrv) parts = n > 1 ? g_strsplit (word, ":", -1) : g_strdupv ((char **) alone);
  g_autoptr (GPtrArray) step = g_ptr_array_new_with_free_func (g_free);

  if (g_strv_length (parts) != 1 && g_strv_length (parts) != n)
    return refuse (text, error, "\"%s\" has %u values, and there are %u keys", word, g_strv_length (parts), n);
  for (guint i = 0; i < n; i++) {
    const char *part = parts[0] != NULL && parts[1] != NULL ? parts[i] : word;
    g_ptr_array_add (step, g_strstrip (g_strdup (part)));
    if (*(char *) step->pdata[i] == '\0')
      return refuse (text, error, "a value is empty");
  }
  g_ptr_array_add (step, NULL);
  g_ptr_array_set_free_func (step, NULL);
  g_ptr_array_add (axis->steps, g_ptr_array_free (g_steal_pointer (&step), FALSE));
  return TRUE;
}

static gboolean
add_word (const char *text, SpSweepAxis *axis, const char *word, GError **error)
{
  g_autoptr (GPtrArray) values = g_ptr_array_new_with_free_func (g_free);
  const char *dots = strstr (word, "..");
  Number number;

  if (dots == NULL || dots == word || !read_number (word, &number) || strchr (number.unit, '/') != NULL)
    g_ptr_array_add (values, g_strdup (word));
  else if (!add_range (text, axis, word, dots, values, error))
    return FALSE;
  for (guint i = 0; i < values->len; i++)
    if (!add_step (text, axis, values->pdata[i], error))
      return FALSE;
  return TRUE;
}

SpSweepAxis *
sp_sweep_axis_parse (const char *text, GError **error)
{
  const char *equals = strchr (text, '=');

  if (equals == NULL || equals == text || equals[1] == '\0') {
    refuse (text, error, "expected KEY=VALUES, such as sequence=64K..4096K*2 or zero=0,1,3");
    return NULL;
  }
  g_autoptr (SpSweepAxis) axis = g_new0 (SpSweepAxis, 1);
  g_autofree char *keys = g_strndup (text, (gsize) (equals - text));
  g_auto (GStrv) words = g_strsplit (equals + 1, strchr (equals, ';') != NULL ? ";" : ",", -1);
  axis->keys = g_strsplit (keys, ":", -1);
  axis->steps = g_ptr_array_new_with_free_func ((GDestroyNotify) g_strfreev);
  for (guint i = 0; axis->keys[i] != NULL; i++)
    if (*g_strstrip (axis->keys[i]) == '\0') {
      refuse (text, error, "a key is empty");
      return NULL;
    }
  if (g_strv_length (axis->keys) > MOST_KEYS) {
    refuse (text, error, "at most %d keys change together", MOST_KEYS);
    return NULL;
  }
  for (guint i = 0; words[i] != NULL; i++)
    if (!add_word (text, axis, words[i], error))
      return NULL;
  return g_steal_pointer (&axis);
}

/* --- what a scenario takes ---------------------------------------------------------------------------------------- */

static gboolean
refuse_key (const char *name, GError **error)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new ();
  const char *group, *key;

  for (guint i = 0; sp_scenario_key (i, &group, &key, NULL); i++)
    g_ptr_array_add (names, (gpointer) key);
  for (guint i = 0; sp_variation_keys[i] != NULL; i++)
    g_ptr_array_add (names, (gpointer) sp_variation_keys[i]);
  g_ptr_array_add (names, NULL);
  g_autofree char *elsewhere = sp_scenario_key_elsewhere (name);
  g_autofree char *near = sp_did_you_mean (name, (const char *const *) names->pdata);
  return refuse (name, error, "unknown key%s",
                 elsewhere != NULL ? elsewhere
                 : *near != '\0'   ? near
                                   : "; seqpar show scenario NAME lists them");
}

/* A file that is not there, or that cannot be read, is wrong whatever the rest. */
static gboolean
check_file (const SpSweep *sweep, const char *key, const char *value, GError **error)
{
  g_autoptr (GPtrArray) sets = g_ptr_array_new ();
  g_autofree char *set = g_strconcat (key, "=", value, NULL);
  g_autoptr (GError) cause = NULL;

  for (guint i = 0; sweep->sets != NULL && sweep->sets[i] != NULL; i++)
    g_ptr_array_add (sets, sweep->sets[i]);
  g_ptr_array_add (sets, set);
  g_ptr_array_add (sets, NULL);
  g_autoptr (SpScenario) s = sp_scenario_load_to_vary (sweep->path, (const char *const *) sets->pdata, &cause);
  if (s != NULL || (!g_error_matches (cause, SP_INPUT_ERROR, SP_INPUT_ERROR_FILE) &&
                    !g_error_matches (cause, SP_INPUT_ERROR, SP_INPUT_ERROR_SYNTAX)))
    return TRUE; /* what does not go with the rest is the points' to say */
  g_propagate_error (error, g_steal_pointer (&cause));
  return FALSE;
}

static gboolean
check_value (const SpSweep *sweep, const char *group, const char *key, const char *value, GError **error)
{
  static const char *const files[] = { "config", "file", "device", "profile", "framework", "packing", NULL };
  g_autofree char *expected = NULL;

  if (g_strv_contains (files, key))
    return check_file (sweep, key, value, error);
  if (g_str_equal (group, SP_VARIATION_GROUP) || sp_scenario_takes (group, key, value, &expected) != SP_VALUE_REFUSED)
    return TRUE;
  g_autofree char *shown = sp_shown (value);
  return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--sweep %s: \"%s\": %s", key, shown, expected);
}

static gboolean
check_axis (const SpSweep *sweep, const SpSweepAxis *axis, GHashTable *seen, GError **error)
{
  for (guint k = 0; axis->keys[k] != NULL; k++) {
    const char *group, *key;
    if (!find_key (axis->keys[k], &group, &key))
      return refuse_key (axis->keys[k], error);
    if (!g_hash_table_add (seen, (gpointer) key))
      return refuse (axis->keys[k], error, "a key is swept once");
    g_autoptr (GHashTable) values = g_hash_table_new (g_str_hash, g_str_equal);
    for (guint i = 0; i < axis->steps->len; i++) {
      const char *value = ((char **) axis->steps->pdata[i])[k];
      if (g_hash_table_add (values, (gpointer) value) && !check_value (sweep, group, key, value, error))
        return FALSE;
    }
  }
  return TRUE;
}

/* A point that is there twice would be one row. */
static gboolean
check_twice (const SpSweepAxis *axis, GError **error)
{
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);

  for (guint i = 0; i < axis->steps->len; i++) {
    char **values = axis->steps->pdata[i];
    g_autofree char *step = g_strjoinv (":", values);
    GString *row = g_string_new (NULL);
    for (guint k = 0; values[k] != NULL; k++) {
      g_autofree char *cell = sp_sweep_cell (axis->keys[k], values[k]);
      g_string_append_printf (row, "%s:", cell);
    }
    if (!g_hash_table_add (seen, g_string_free (row, FALSE)))
      return refuse (axis->keys[0], error, "\"%s\" is there twice", step);
  }
  return TRUE;
}

/* --- the sweep ---------------------------------------------------------------------------------------------------- */

SpSweep *
sp_sweep_new (const char *scenario, char **sets, char **axes, GError **error)
{
  g_autoptr (SpSweep) sweep = g_new0 (SpSweep, 1);
  g_autoptr (GHashTable) seen = g_hash_table_new (g_str_hash, g_str_equal);
  double size = 1;

  sweep->axes = g_ptr_array_new_with_free_func ((GDestroyNotify) sp_sweep_axis_free);
  sweep->sets = g_strdupv (sets);
  sweep->path = sp_cli_find_scenario (scenario, error);
  if (sweep->path == NULL)
    return NULL;
  for (guint i = 0; axes != NULL && axes[i] != NULL; i++) {
    SpSweepAxis *axis = sp_sweep_axis_parse (axes[i], error);
    if (axis == NULL)
      return NULL;
    g_ptr_array_add (sweep->axes, axis);
    if (!check_axis (sweep, axis, seen, error) || !check_twice (axis, error))
      return NULL;
    size *= axis->steps->len;
  }
  if (size > SP_SWEEP_MOST_POINTS) {
    sp_cli_fail (error, SP_CLI_ERROR_INPUT, "--sweep: %.0f points are more than %d", size, SP_SWEEP_MOST_POINTS);
    return NULL;
  }
  return g_steal_pointer (&sweep);
}

static gboolean
is_swept (const SpSweep *sweep, const char *group, const char *key)
{
  const char *its_group, *its_key;

  for (guint i = 0; i < sweep->axes->len; i++)
    for (char **name = ((const SpSweepAxis *) sweep->axes->pdata[i])->keys; *name != NULL; name++)
      if (find_key (*name, &its_group, &its_key) && g_str_equal (group, its_group) && g_str_equal (key, its_key))
        return TRUE;
  return FALSE;
}

gboolean
sp_sweep_check_sets (const SpSweep *sweep, GError **error)
{
  for (guint i = 0; sweep->sets != NULL && sweep->sets[i] != NULL; i++) {
    const char *group, *key;
    g_auto (GStrv) halves = g_strsplit (sweep->sets[i], "=", 2);
    g_autofree char *shown = sp_shown (sweep->sets[i]);
    if (halves[0] != NULL && find_key (g_strstrip (halves[0]), &group, &key) && is_swept (sweep, group, key))
      return sp_cli_usage (error, "--set %s: --sweep gives this key its values: leave one of them out", shown);
  }
  return TRUE;
}

void
sp_sweep_free (SpSweep *sweep)
{
  if (sweep == NULL)
    return;
  g_free (sweep->path);
  g_strfreev (sweep->sets);
  g_ptr_array_unref (sweep->axes);
  g_free (sweep->inputs);
  g_free (sweep);
}

guint
sp_sweep_size (const SpSweep *sweep)
{
  guint size = 1;

  for (guint i = 0; i < sweep->axes->len; i++)
    size *= ((const SpSweepAxis *) sweep->axes->pdata[i])->steps->len;
  return size;
}

guint
sp_sweep_n_keys (const SpSweep *sweep)
{
  guint n = 0;

  for (guint i = 0; i < sweep->axes->len; i++)
    n += g_strv_length (((const SpSweepAxis *) sweep->axes->pdata[i])->keys);
  return n;
}

void
sp_sweep_values (const SpSweep *sweep, guint point, GPtrArray *ret)
{
  guint rest = sp_sweep_size (sweep);

  for (guint i = 0; i < sweep->axes->len; i++) {
    const SpSweepAxis *axis = sweep->axes->pdata[i];
    rest /= axis->steps->len;
    char **step = axis->steps->pdata[point / rest % axis->steps->len];
    for (guint k = 0; axis->keys[k] != NULL; k++)
      g_ptr_array_add (ret, step[k]);
  }
}
