/* SPDX-License-Identifier: Apache-2.0 */
/* What of profiles may be fitted: [fit]. */
#include <string.h>

#include "calibrate/validate/private.h"

void
sp_constant_clear (gpointer data)
{
  g_free (((SpConstant *) data)->profile);
  g_free (((SpConstant *) data)->key);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* framework.KEY, framework.NAME.KEY ...: NAME may have dots, KEY has none. */
static gboolean
read_constant_name (const char *text, SpConstant *ret, SpQuantityRange *range)
{
  static const char *const kinds[] = { "framework.", "device.", "cluster." };
  SpFramework framework = { 0 };
  SpDevice device = { 0 };
  SpCluster cluster = { 0 };
  guint kind = 0;

  while (kind < G_N_ELEMENTS (kinds) && !g_str_has_prefix (text, kinds[kind]))
    kind++;
  if (kind == G_N_ELEMENTS (kinds))
    return FALSE;
  const char *rest = text + strlen (kinds[kind]), *dot = strrchr (rest, '.');
  ret->of = (SpConstantOf) kind;
  ret->profile = dot != NULL ? g_strndup (rest, (gsize) (dot - rest)) : NULL;
  ret->key = g_strdup (dot != NULL ? dot + 1 : rest);
  SpQuantity *found = kind == SP_CONSTANT_FRAMEWORK ? sp_framework_quantity (&framework, ret->key, range)
                      : kind == SP_CONSTANT_DEVICE  ? sp_device_quantity (&device, ret->key, range)
                                                    : sp_cluster_quantity (&cluster, ret->key, range);
  return found != NULL;
}

gboolean
sp_constant_read (SpIni *ini, const char *key, SpValidation *v, GError **error)
{
  SpConstant constant = { 0 };
  SpQuantityRange range;
  g_autofree char *text = NULL, *problem = NULL;

  if (!sp_ini_string (ini, "fit", key, SP_INI_REQUIRED, &text, error))
    return FALSE;
  gboolean known = read_constant_name (key, &constant, &range);
  g_array_append_val (v->constants, constant);
  SpConstant *added = &g_array_index (v->constants, SpConstant, v->constants->len - 1);
  if (!known)
    return sp_ini_refuse (
        ini, "fit", key, error,
        "expected framework.KEY, device.KEY or cluster.KEY (framework.NAME.KEY of one profile), KEY a "
        "number of such a file");
  g_auto (GStrv) parts = g_strsplit (text, "..", -1);
  if (g_strv_length (parts) != 2)
    return sp_ini_refuse (ini, "fit", key, error, "expected LOW .. HIGH");
  added->unit = (SpUnit) range.unit;
  problem = sp_quantity_problem (g_strstrip (parts[0]), added->unit, range.min, range.max, &added->low);
  if (problem == NULL)
    problem = sp_quantity_problem (g_strstrip (parts[1]), added->unit, range.min, range.max, &added->high);
  if (problem != NULL)
    return sp_ini_refuse (ini, "fit", key, error, "%s, as LOW .. HIGH", problem);
  if (!(added->low > 0 && added->low < added->high))
    return sp_ini_refuse (ini, "fit", key, error, "expected LOW above 0, and HIGH above it");
  return TRUE;
}

/* --- whose they are ----------------------------------------------------------------------------------------------- */

/* The name of a profile's file, without its suffix, or the name that stands in it. */
static char *
file_name (const SpConstant *constant, const SpScenario *s)
{
  const char *path = constant->of == SP_CONSTANT_FRAMEWORK ? s->framework_path
                     : constant->of == SP_CONSTANT_CLUSTER ? s->cluster_path
                                                           : NULL;
  char *base = path != NULL ? g_path_get_basename (path) : g_strdup (s->cluster->device->name);

  if (g_str_has_suffix (base, ".ini"))
    base[strlen (base) - strlen (".ini")] = '\0';
  return base;
}

gboolean
sp_constant_is_of (const SpConstant *constant, const SpScenario *s)
{
  const char *name = constant->of == SP_CONSTANT_FRAMEWORK ? s->framework->name
                     : constant->of == SP_CONSTANT_DEVICE  ? s->cluster->device->name
                                                           : s->cluster->name;
  g_autofree char *base = file_name (constant, s);

  return constant->profile == NULL || g_str_equal (constant->profile, name) || g_str_equal (constant->profile, base);
}

/* A constant of [fit], and names of profiles that runs have in place of its own. */
typedef struct {
  const SpConstant *constant;
  const char *key;
  gboolean found;
  GPtrArray *others;
} Sought;

static void
sought_clear (gpointer data)
{
  g_ptr_array_unref (((Sought *) data)->others);
}

static GArray *
sought_new (const SpValidation *v, char **keys)
{
  GArray *all = g_array_new (FALSE, FALSE, sizeof (Sought));

  g_array_set_clear_func (all, sought_clear);
  for (guint i = 0; i < v->constants->len; i++) {
    Sought sought = { &g_array_index (v->constants, SpConstant, i), keys[i], FALSE,
                      g_ptr_array_new_with_free_func (g_free) };
    g_array_append_val (all, sought);
  }
  return all;
}

static gboolean
is_same_number (const SpConstant *a, const SpConstant *b)
{
  return a->of == b->of && g_str_equal (a->key, b->key);
}

/* Notes what a run has; an error where two constants are the same number of it. */
static gboolean
check_scenario (SpIni *ini, GArray *all, const SpScenario *s, GError **error)
{
  for (guint i = 0; i < all->len; i++) {
    Sought *sought = &g_array_index (all, Sought, i);
    if (!sp_constant_is_of (sought->constant, s)) {
      g_autofree char *name = file_name (sought->constant, s);
      if (!g_ptr_array_find_with_equal_func (sought->others, name, g_str_equal, NULL))
        g_ptr_array_add (sought->others, g_steal_pointer (&name));
      continue;
    }
    sought->found = TRUE;
    for (guint j = 0; j < i; j++) {
      const Sought *before = &g_array_index (all, Sought, j);
      if (is_same_number (before->constant, sought->constant) && sp_constant_is_of (before->constant, s))
        return sp_ini_refuse (ini, "fit", sought->key, error, "the same number as %s: expected it once", before->key);
    }
  }
  return TRUE;
}

static gboolean
check_found (SpIni *ini, const GArray *all, GError **error)
{
  for (guint i = 0; i < all->len; i++) {
    const Sought *sought = &g_array_index (all, Sought, i);
    if (sought->found)
      continue;
    if (sought->others->len == 0)
      return sp_ini_refuse (ini, "fit", sought->key, error, "no run is fitted to: expected a split that says some");
    g_ptr_array_add (sought->others, NULL);
    g_autofree char *names = g_strjoinv (", ", (char **) sought->others->pdata);
    return sp_ini_refuse (ini, "fit", sought->key, error, "no fitted run has such a profile: expected %s", names);
  }
  return TRUE;
}

gboolean
sp_constants_check (SpIni *ini, const SpValidation *v, GError **error)
{
  g_auto (GStrv) keys = sp_ini_keys (ini, "fit");
  g_autoptr (GArray) all = sought_new (v, keys);

  for (guint r = 0; all->len > 0 && r < v->runs->len; r++) {
    const SpMeasuredRun *run = v->runs->pdata[r];
    g_autoptr (GError) refusal = NULL;
    if (!run->is_fitted || sp_run_is_aside (run))
      continue;
    g_autoptr (SpScenario) s = sp_run_load (v, run, &refusal, error);
    if (s == NULL && refusal == NULL)
      return FALSE;
    if (s != NULL && !check_scenario (ini, all, s, error))
      return FALSE;
  }
  return check_found (ini, all, error);
}
