/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/variations.h"

#include <string.h>

#define GROUP SP_VARIATION_GROUP

const char *const sp_variation_keys[SP_N_VARIATION_KEYS + 1] = { "seed",       "kernel-noise", "network-noise", "expert-imbalance-noise",
                                          "slow-ranks", "slow-links",   "failed-links",  NULL };

static void
clear_link (gpointer link)
{
  g_free (((SpLinkChange *) link)->name);
}

static GArray *
links_of (SpVariations *variations)
{
  if (variations->links == NULL) {
    variations->links = g_array_new (FALSE, TRUE, sizeof (SpLinkChange));
    g_array_set_clear_func (variations->links, clear_link);
  }
  return variations->links;
}

/* "WORD x FACTOR" into its parts. */
static gboolean
split_factor (const char *text, char **ret_word, double *ret_factor)
{
  const char *cross = strrchr (text, 'x');

  if (cross == NULL || cross == text || !g_ascii_isspace (cross[-1]))
    return FALSE;
  g_autofree char *factor = g_strstrip (g_strdup (cross + 1));
  g_autofree char *problem = sp_quantity_problem (factor, SP_UNIT_NUMBER, 1e-3, 1e3, ret_factor);
  *ret_word = g_strstrip (g_strndup (text, (gsize) (cross - text)));
  return problem == NULL && **ret_word != '\0';
}

static gboolean
read_slow_ranks (SpIni *ini, SpVariations *ret, GError **error)
{
  g_autofree char *text = NULL;

  if (!sp_ini_string (ini, GROUP, "slow-ranks", SP_INI_OPTIONAL, &text, error))
    return FALSE;
  g_auto (GStrv) parts = text != NULL ? g_strsplit (text, ",", -1) : NULL;
  for (guint i = 0; parts != NULL && parts[i] != NULL; i++) {
    g_autofree char *word = NULL;
    SpSlowRank slow;
    double rank;
    gboolean is_split = split_factor (parts[i], &word, &slow.factor);
    g_autofree char *problem = is_split ? sp_quantity_problem (word, SP_UNIT_COUNT, 0, 1 << 24, &rank) : NULL;
    if (!is_split || problem != NULL)
      return sp_ini_refuse (ini, GROUP, "slow-ranks", error,
                            "expected ranks and how many times as long their kernels take (0.001 to 1000), such as 3 x "
                            "1.2, 17 x 2");
    slow.rank = (gint32) rank;
    for (guint j = 0; j < i; j++)
      if (g_array_index (ret->slow_ranks, SpSlowRank, j).rank == slow.rank)
        return sp_ini_refuse (ini, GROUP, "slow-ranks", error, "rank %d is there already: expected each once",
                              slow.rank);
    if (ret->slow_ranks == NULL)
      ret->slow_ranks = g_array_new (FALSE, FALSE, sizeof (SpSlowRank));
    g_array_append_val (ret->slow_ranks, slow);
  }
  return TRUE;
}

static gboolean
read_links (SpIni *ini, const char *key, gboolean failed, SpVariations *ret, GError **error)
{
  g_autofree char *text = NULL;

  if (!sp_ini_string (ini, GROUP, key, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  g_auto (GStrv) parts = text != NULL ? g_strsplit (text, ",", -1) : NULL;
  for (guint i = 0; parts != NULL && parts[i] != NULL; i++) {
    SpLinkChange change = { 0 };
    g_strstrip (parts[i]);
    if (failed ? *parts[i] == '\0' : !split_factor (parts[i], &change.name, &change.factor)) {
      g_free (change.name);
      return sp_ini_refuse (ini, GROUP, key, error, "expected %s",
                            failed ? "names of links, such as node0.nic3>leaf0; `show cluster` lists them"
                                   : "links and the factor on their rate (0.001 to 1000), such as node0.nic3>leaf0 x "
                                     "0.5; `show cluster` lists links");
    }
    if (failed)
      change.name = g_strdup (parts[i]);
    for (guint j = 0; j < links_of (ret)->len; j++)
      if (g_str_equal (g_array_index (ret->links, SpLinkChange, j).name, change.name)) {
        g_autofree char *name = change.name;
        return sp_ini_refuse (ini, GROUP, key, error, "%s is there already: expected each link once", name);
      }
    g_array_append_val (links_of (ret), change);
  }
  return TRUE;
}

gboolean
sp_variations_read (SpIni *ini, SpVariations *ret, GError **error)
{
  gint32 seed = (gint32) ret->seed;

  if (!sp_ini_int (ini, GROUP, "seed", SP_INI_OPTIONAL, 0, G_MAXINT32, &seed, error) ||
      !sp_ini_quantity (ini, GROUP, "kernel-noise", SP_INI_OPTIONAL, SP_UNIT_FRACTION, 0, 1, &ret->kernel_noise,
                        error) ||
      !sp_ini_quantity (ini, GROUP, "network-noise", SP_INI_OPTIONAL, SP_UNIT_FRACTION, 0, 1, &ret->network_noise,
                        error) ||
      !sp_ini_bool (ini, GROUP, "expert-imbalance-noise", SP_INI_OPTIONAL, &ret->load_noise, error))
    return FALSE;
  ret->seed = (guint64) seed;
  g_free (ret->path);
  ret->path = g_strdup (sp_ini_path (ini));
  for (guint i = 0; i < SP_N_VARIATION_KEYS; i++) {
    if (sp_ini_has (ini, GROUP, sp_variation_keys[i]) &&
        !sp_ini_string (ini, GROUP, sp_variation_keys[i], SP_INI_OPTIONAL, &ret->given[i], error))
      return FALSE;
    ret->is_set[i] = sp_ini_is_set (ini, GROUP, sp_variation_keys[i]);
  }
  return read_slow_ranks (ini, ret, error) && read_links (ini, "slow-links", FALSE, ret, error) &&
         read_links (ini, "failed-links", TRUE, ret, error);
}

gboolean
sp_variations_refuse (const SpVariations *variations, const char *key, GError **error, const char *format, ...)
{
  g_autofree char *where = g_strdup (""), *shown = NULL;
  va_list arguments;

  for (guint i = 0; i < SP_N_VARIATION_KEYS; i++)
    if (g_str_equal (key, sp_variation_keys[i]) && variations->path != NULL) {
      g_free (where);
      where = g_strconcat (variations->path, variations->is_set[i] ? " (--set): " : ": ", NULL);
      shown = variations->given[i] != NULL ? sp_shown (variations->given[i]) : NULL;
    }
  va_start (arguments, format);
  g_autofree char *problem = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s[" GROUP "] %s%s%s%s: %s", where, key,
                        shown != NULL ? " = \"" : "", shown != NULL ? shown : "", shown != NULL ? "\"" : "", problem);
}

void
sp_variations_clear (SpVariations *variations)
{
  g_clear_pointer (&variations->slow_ranks, g_array_unref);
  g_clear_pointer (&variations->links, g_array_unref);
  g_clear_pointer (&variations->path, g_free);
  for (guint i = 0; i < SP_N_VARIATION_KEYS; i++)
    g_clear_pointer (&variations->given[i], g_free);
}

static void
write_links (const SpVariations *variations, const char *key, gboolean failed, GString *out)
{
  guint n = 0;

  for (guint i = 0; variations->links != NULL && i < variations->links->len; i++) {
    const SpLinkChange *change = &g_array_index (variations->links, SpLinkChange, i);
    if ((change->factor == 0) != failed)
      continue;
    if (n++ == 0)
      g_string_append_printf (out, "%s = ", key);
    else
      g_string_append (out, ", ");
    g_string_append (out, change->name);
    if (!failed)
      g_string_append_printf (out, " x %g", change->factor);
  }
  if (n > 0)
    g_string_append_c (out, '\n');
}

void
sp_variations_write (const SpVariations *variations, GString *out)
{
  const SpVariations usual = SP_VARIATIONS_DEFAULT;
  gboolean has_ranks = variations->slow_ranks != NULL && variations->slow_ranks->len > 0;
  gboolean has_links = variations->links != NULL && variations->links->len > 0;

  if (variations->seed == usual.seed && variations->kernel_noise < 0 && variations->network_noise < 0 &&
      !variations->load_noise && !has_ranks && !has_links)
    return;
  g_string_append_printf (out, "\n[" SP_VARIATION_GROUP "]\nseed = %" G_GUINT64_FORMAT "\n", variations->seed);
  if (variations->kernel_noise >= 0)
    g_string_append_printf (out, "kernel-noise = %g\n", variations->kernel_noise);
  if (variations->network_noise >= 0)
    g_string_append_printf (out, "network-noise = %g\n", variations->network_noise);
  if (variations->load_noise)
    g_string_append (out, "expert-imbalance-noise = true\n");
  for (guint i = 0; has_ranks && i < variations->slow_ranks->len; i++) {
    const SpSlowRank *slow = &g_array_index (variations->slow_ranks, SpSlowRank, i);
    g_string_append_printf (out, "%s%d x %g", i > 0 ? ", " : "slow-ranks = ", slow->rank, slow->factor);
  }
  if (has_ranks)
    g_string_append_c (out, '\n');
  write_links (variations, "slow-links", FALSE, out);
  write_links (variations, "failed-links", TRUE, out);
}
