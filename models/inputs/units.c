/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantities as people write them. A scale is kept as a numerator and a denominator, so that "5 us" is the double
 * nearest to 5e-6 and not the product of two rounded numbers.
 */
#include <math.h>
#include <string.h>

#include "models/inputs/ini.h"

#define SHOWN_CHARACTERS 60
#define NEAREST_LENGTH 48

typedef struct {
  const char *name;
  double times, over;
} Scale;

/* clang-format off */
static const struct {
  const char *what;   /* "expected ..." */
  const char *example; /* after the range; NULL if `what` has one */
  gboolean whole;
  Scale scales[14];   /* as messages prefer them; "" is a bare number */
} units[] = {
  [SP_UNIT_BYTES] = { "a size such as 80 GiB or 512 MB", NULL, FALSE,
    { { "TiB", 0x1p40, 1 }, { "GiB", 0x1p30, 1 }, { "MiB", 0x1p20, 1 }, { "KiB", 0x1p10, 1 }, { "TB", 1e12, 1 },
      { "GB", 1e9, 1 }, { "MB", 1e6, 1 }, { "kB", 1e3, 1 }, { "B", 1, 1 } } },
  [SP_UNIT_BYTES_PER_S] = { "a rate such as 300 GB/s or 200 Gb/s", NULL, FALSE,
    { { "TB/s", 1e12, 1 }, { "GB/s", 1e9, 1 }, { "MB/s", 1e6, 1 }, { "kB/s", 1e3, 1 }, { "TiB/s", 0x1p40, 1 },
      { "GiB/s", 0x1p30, 1 }, { "MiB/s", 0x1p20, 1 }, { "KiB/s", 0x1p10, 1 }, { "B/s", 1, 1 }, { "Tb/s", 1e12, 8 },
      { "Gb/s", 1e9, 8 }, { "Mb/s", 1e6, 8 }, { "Kb/s", 1e3, 8 }, { "b/s", 1, 8 } } },
  [SP_UNIT_SECONDS] = { "a time such as 5 us or 1.5 ms", NULL, FALSE,
    { { "s", 1, 1 }, { "ms", 1, 1e3 }, { "us", 1, 1e6 }, { "ns", 1, 1e9 } } },
  [SP_UNIT_TOKENS] = { "a token count", "208K", TRUE,
    { { "G", 0x1p30, 1 }, { "M", 0x1p20, 1 }, { "K", 0x1p10, 1 }, { "", 1, 1 } } },
  [SP_UNIT_FLOPS_PER_S] = { "a FLOP rate such as 312 TFLOP/s", NULL, FALSE,
    { { "PFLOP/s", 1e15, 1 }, { "TFLOP/s", 1e12, 1 }, { "GFLOP/s", 1e9, 1 } } },
  [SP_UNIT_FRACTION] = { "a fraction such as 0.8 or 80%", NULL, FALSE, { { "", 1, 1 }, { "%", 1, 100 } } },
  [SP_UNIT_COUNT] = { "a whole number", NULL, TRUE, { { "", 1, 1 } } },
  [SP_UNIT_NUMBER] = { "a number", NULL, FALSE, { { "", 1, 1 } } },
  [SP_UNIT_GPU_HOURS] = { "GPU time such as 20000 GPU-hours or 800 GPU-days", NULL, FALSE,
    { { "GPU-hours", 1, 1 }, { "GPU-days", 24, 1 } } },
  [SP_UNIT_WATTS] = { "a power such as 700 W", NULL, FALSE, { { "W", 1, 1 }, { "kW", 1e3, 1 } } },
  [SP_UNIT_JOULES] = { "an energy such as 1.5 pJ", NULL, FALSE,
    { { "J", 1, 1 }, { "mJ", 1, 1e3 }, { "uJ", 1, 1e6 }, { "nJ", 1, 1e9 }, { "pJ", 1, 1e12 } } },
  [SP_UNIT_TRAINED_TOKENS] = { "tokens such as 300B or 15T (10^9, 10^12)", NULL, FALSE,
    { { "T", 1e12, 1 }, { "B", 1e9, 1 }, { "", 1, 1 } } },
};
/* clang-format on */

#define MAX_SCALES G_N_ELEMENTS (units[0].scales)

char *
sp_shown (const char *value)
{
  g_autofree char *valid = g_utf8_make_valid (value, -1);
  for (char *c = valid; *c; c++)
    if (g_ascii_iscntrl (*c))
      *c = ' ';
  if (g_utf8_strlen (valid, -1) <= SHOWN_CHARACTERS)
    return g_steal_pointer (&valid);
  g_autofree char *start = g_utf8_substring (valid, 0, SHOWN_CHARACTERS);
  return g_strconcat (start, "...", NULL);
}

/* --- nearest ------------------------------------------------------------------------------------------------------ */

/* Insertions, deletions, changes and swaps of neighbours; upper and lower case are one. */
static guint
edit_distance (const char *a, guint n_a, const char *b, guint n_b)
{
  guint rows[3][NEAREST_LENGTH + 1];
  for (guint j = 0; j <= n_b; j++)
    rows[0][j] = j;
  for (guint i = 1; i <= n_a; i++) {
    guint *row = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
    row[0] = i;
    for (guint j = 1; j <= n_b; j++) {
      char x = g_ascii_tolower (a[i - 1]), y = g_ascii_tolower (b[j - 1]);
      row[j] = MIN (last[j - 1] + (x != y), MIN (last[j], row[j - 1]) + 1);
      if (i > 1 && j > 1 && x == g_ascii_tolower (b[j - 2]) && y == g_ascii_tolower (a[i - 2]))
        row[j] = MIN (row[j], before[j - 2] + 1);
    }
  }
  return rows[n_a % 3][n_b];
}

/* Near is: one edit in a short word, two from five letters on, a third of a long one; or one begins the other. */
const char *
sp_nearest (const char *word, const char *const *names)
{
  gsize length = strlen (word);
  if (length == 0 || length > NEAREST_LENGTH)
    return NULL;
  const char *nearest = NULL;
  guint best = 1 + MAX (length < 5 ? 1 : 2, (guint) length / 3);
  if (best > length)
    best = (guint) length;
  for (guint i = 0; names[i] != NULL; i++) {
    gsize other = strlen (names[i]);
    if (other == 0 || other > NEAREST_LENGTH || (other > length ? other - length : length - other) >= best)
      continue; /* as many insertions or deletions at the least */
    guint distance = edit_distance (word, (guint) length, names[i], (guint) other);
    if (distance < best) {
      best = distance;
      nearest = names[i];
    }
  }
  for (guint i = 0; nearest == NULL && length >= 2 && names[i] != NULL; i++)
    if (g_str_has_prefix (names[i], word) || (strlen (names[i]) >= 2 && g_str_has_prefix (word, names[i])))
      nearest = names[i];
  return nearest;
}

#define MOST_LISTED 6

char *
sp_did_you_mean (const char *word, const char *const *names)
{
  g_autoptr (GString) all = g_string_new (NULL);
  gsize length = strlen (word);
  const char *last = NULL;

  for (guint i = 0, n = 0; length >= 2 && names[i] != NULL && n < MOST_LISTED; i++)
    if (g_ascii_strncasecmp (names[i], word, length) == 0) {
      if (last != NULL)
        g_string_append_printf (all, "%s%s", all->len > 0 ? ", " : "", last);
      last = names[i];
      n++;
    }
  if (last == NULL)
    last = sp_nearest (word, names);
  return last == NULL ? g_strdup ("")
                      : g_strdup_printf ("; did you mean %s%s%s?", all->str, all->len > 0 ? " or " : "", last);
}

/* --- parsing ------------------------------------------------------------------------------------------------------ */

/* Length of the decimal number that `text` begins with, 0 if it begins with none. Not left to strtod alone, which also
 * takes hexadecimal, inf and nan. */
static gsize
number_length (const char *text, gboolean whole)
{
  gsize i = (text[0] == '-' || text[0] == '+') ? 1 : 0;
  gsize start = i;
  while (g_ascii_isdigit (text[i]))
    i++;
  gsize digits = i - start;
  if (whole)
    return digits > 0 ? i : 0;
  if (text[i] == '.') {
    gsize point = i++;
    while (g_ascii_isdigit (text[i]))
      i++;
    digits += i - point - 1;
  }
  if (digits == 0)
    return 0;
  if (text[i] == 'e' || text[i] == 'E') {
    gsize exponent = i + 1;
    if (text[exponent] == '-' || text[exponent] == '+')
      exponent++;
    if (g_ascii_isdigit (text[exponent])) {
      while (g_ascii_isdigit (text[exponent]))
        exponent++;
      i = exponent;
    }
  }
  return i;
}

static const Scale *
find_scale (SpUnit unit, const char *name)
{
  for (guint i = 0; i < MAX_SCALES && units[unit].scales[i].name != NULL; i++)
    if (g_str_equal (units[unit].scales[i].name, name))
      return &units[unit].scales[i];
  return NULL;
}

/* "; did you mean GB/s or Gb/s?", or "". */
static char *
suggest_scale (SpUnit unit, const char *name)
{
  if (!g_ascii_isalpha (*name))
    return g_strdup ("");
  const char *names[MAX_SCALES + 1] = { NULL };
  const char *same[MAX_SCALES + 1] = { NULL };
  guint n = 0, n_same = 0;
  for (guint i = 0; i < MAX_SCALES && units[unit].scales[i].name != NULL; i++) {
    const char *known = units[unit].scales[i].name;
    if (*known == '\0')
      continue;
    names[n++] = known;
    if (g_ascii_strcasecmp (known, name) == 0)
      same[n_same++] = known;
  }
  if (n_same == 0)
    same[0] = sp_nearest (name, names);
  if (same[0] == NULL)
    return g_strdup ("");
  g_autofree char *all = g_strjoinv (" or ", (char **) same);
  return g_strdup_printf ("; did you mean %s?", all);
}

static char *
expectation (SpUnit unit, double min, double max, const char *suggestion)
{
  GString *text = g_string_new (NULL);
  g_string_append_printf (text, "expected %s", units[unit].what);
  if (isfinite (min) && isfinite (max)) {
    g_autofree char *from = sp_format_quantity (min, unit);
    g_autofree char *to = sp_format_quantity (max, unit);
    g_string_append_printf (text, "%s from %s to %s", strstr (units[unit].what, " such as ") ? "," : "", from, to);
  }
  if (units[unit].example != NULL)
    g_string_append_printf (text, " (for example %s)", units[unit].example);
  g_string_append (text, suggestion);
  return g_string_free (text, FALSE);
}

char *
sp_quantity_problem (const char *text, SpUnit unit, double min, double max, double *ret)
{
  gsize length = number_length (text, units[unit].whole);
  if (length == 0)
    return expectation (unit, min, max, "");
  g_autofree char *number = g_strndup (text, length);
  double value = g_ascii_strtod (number, NULL);
  const char *name = text + length;
  while (*name == ' ' || *name == '\t')
    name++;
  const Scale *scale = find_scale (unit, name);
  if (scale != NULL)
    value = value * scale->times / scale->over;
  else if (*name != '\0' || value != 0) {
    g_autofree char *suggestion = suggest_scale (unit, name);
    return expectation (unit, min, max, suggestion);
  }
  if (!(value >= min && value <= max) || !isfinite (value) || (units[unit].whole && fabs (value) > 0x1p53))
    return expectation (unit, min, max, "");
  *ret = value + 0.0; /* -0 becomes 0 */
  return NULL;
}

gboolean
sp_parse_quantity (const char *text, SpUnit unit, double *ret, GError **error)
{
  g_autofree char *problem = sp_quantity_problem (text, unit, -INFINITY, INFINITY, ret);
  if (problem == NULL)
    return TRUE;
  g_autofree char *shown = sp_shown (text);
  return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "\"%s\": %s", shown, problem);
}

char *
sp_format_quantity (double value, SpUnit unit)
{
  const Scale *scales = units[unit].scales;
  char buffer[G_ASCII_DTOSTR_BUF_SIZE];
  double decimals = units[unit].whole ? 1 : 1000;
  for (guint i = 0; value != 0 && i < MAX_SCALES && scales[i].name != NULL; i++) {
    double scaled = value * scales[i].over / scales[i].times;
    if ((fabs (scaled) < 1 && *scales[i].name != '\0') ||
        fabs (scaled * decimals - rint (scaled * decimals)) > 1e-9 * fabs (scaled))
      continue;
    const char *gap = units[unit].whole || !g_ascii_isalpha (*scales[i].name) ? "" : " ";
    return g_strdup_printf ("%s%s%s", g_ascii_formatd (buffer, sizeof buffer, "%.15g", scaled), gap, scales[i].name);
  }
  const char *base = "";
  for (guint i = 0; value != 0 && i < MAX_SCALES && scales[i].name != NULL; i++)
    if (scales[i].times == 1 && scales[i].over == 1 && *scales[i].name != '\0')
      base = scales[i].name;
  if (g_ascii_strtod (g_ascii_formatd (buffer, sizeof buffer, "%.15g", value), NULL) != value)
    g_ascii_dtostr (buffer, sizeof buffer, value);
  return g_strdup_printf ("%s%s%s", buffer, *base ? " " : "", base);
}
