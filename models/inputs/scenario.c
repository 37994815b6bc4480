/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/scenario.h"

#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/profile.h"
#include "models/inputs/scenario-keys.h"
#include "models/inputs/topology-dump.h"

/* Absolute, or beside the scenario; of a --set that is not there, from where the command runs. */
static char *
path_of (const SpIni *ini, const char *group, const char *key, const char *name)
{
  g_autofree char *folder = g_path_get_dirname (sp_ini_path (ini));
  g_autofree char *beside = g_path_is_absolute (name) ? g_strdup (name) : g_build_filename (folder, name, NULL);

  if (!sp_ini_is_set (ini, group, key) || g_file_test (beside, G_FILE_TEST_EXISTS) ||
      !g_file_test (name, G_FILE_TEST_IS_REGULAR))
    return g_steal_pointer (&beside);
  return g_canonicalize_filename (name, NULL);
}

/* It is wrong whatever the other keys are: cli/sweep-values.c asks. */
static gboolean
refuse_no_file (const SpIni *ini, const char *group, const char *key, const char *expected, const char *path,
                GError **error)
{
  sp_ini_refuse (ini, group, key, error, "expected %s; there is no %s", expected, path);
  if (error != NULL)
    (*error)->code = SP_INPUT_ERROR_FILE;
  return FALSE;
}

/* A file that the scenario names: absolute, beside the scenario, or shipped. */
static char *
resolve (const SpIni *ini, const char *group, const char *key, const char *name, const char *folder, GError **error)
{
  gboolean bare = strchr (name, G_DIR_SEPARATOR) == NULL;
  g_autofree char *path = path_of (ini, group, key, name);
  if (g_file_test (path, bare ? G_FILE_TEST_IS_REGULAR : G_FILE_TEST_EXISTS))
    return g_canonicalize_filename (path, NULL);
  g_autoptr (GError) cause = NULL;
  g_autofree char *shipped = bare ? sp_find_shipped (folder, name, &cause) : NULL;
  if (shipped != NULL)
    return g_canonicalize_filename (shipped, NULL);
  if (cause == NULL)
    refuse_no_file (ini, group, key, "a file", path, error);
  else
    sp_input_fail (error, SP_INPUT_ERROR_FILE, "%s: [%s] %s = %s", sp_ini_path (ini), group, key, cause->message);
  return NULL;
}

/* An INI says its device; nodes and GPUs of them can be fewer or more. */
static gboolean
load_cluster_ini (SpScenario *scenario, const SpIni *ini, const SpValues *values, GError **error)
{
  if (values->device != NULL)
    return sp_ini_refuse (ini, "cluster", "device", error,
                          "a key for the dump of a machine; %s is an INI with its own device", values->cluster);
  scenario->cluster = sp_cluster_load (scenario->cluster_path, error);
  if (scenario->cluster == NULL)
    return FALSE;
  g_autofree char *problem = sp_cluster_resize (scenario->cluster, values->nodes, values->gpus_per_node);
  const char *key = values->gpus_per_node > 0 ? "gpus-per-node" : "nodes";
  return problem == NULL || sp_ini_refuse (ini, "cluster", key, error, "%s", problem);
}

/* A dump of a machine names neither its card nor how many there are. */
static gboolean
load_cluster (SpScenario *scenario, const SpIni *ini, const SpValues *values, GError **error)
{
  g_autoptr (GError) problem = NULL;
  g_autoptr (SpTopologyDump) dump = sp_topology_dump_load (scenario->cluster_path, &problem);

  if (problem != NULL) {
    g_propagate_error (error, g_steal_pointer (&problem));
    return FALSE;
  }
  scenario->nodes = values->nodes;
  scenario->gpus_per_node = values->gpus_per_node;
  if (dump == NULL)
    return load_cluster_ini (scenario, ini, values, error);
  if (values->gpus_per_node > 0)
    return sp_ini_refuse (ini, "cluster", "gpus-per-node", error, "the dump has its own, %u: expected none",
                          dump->n_gpus);
  if (values->device == NULL)
    return sp_ini_refuse (ini, "cluster", "file", error,
                          "a dump of a machine's topology, which names no card: expected device = FILE beside it (and "
                          "nodes = N for more than one)");
  scenario->device_path = resolve (ini, "cluster", "device", values->device, "devices", error);
  SpDevice *device = scenario->device_path != NULL ? sp_device_load (scenario->device_path, error) : NULL;
  if (device != NULL)
    scenario->cluster = sp_topology_dump_cluster (dump, device, MAX (values->nodes, 1), error);
  return scenario->cluster != NULL;
}

/* Of any kind of cluster, in place of its own. */
static gboolean
load_profile (SpScenario *scenario, const SpIni *ini, const char *name, GError **error)
{
  if (name == NULL)
    return TRUE;
  scenario->profile_path = resolve (ini, "cluster", "profile", name, "profiles", error);
  SpProfile *profile = scenario->profile_path != NULL ? sp_profile_load (scenario->profile_path, error) : NULL;
  if (profile == NULL)
    return FALSE;
  sp_profile_free (scenario->cluster->profile);
  scenario->cluster->profile = profile;
  return TRUE;
}

/* Where the device has no bf16, fp16 has to be asked for: its loss scaling is another recipe. */
static gboolean
check_precision (const SpScenario *scenario, const SpIni *ini, const SpValues *values, GError **error)
{
  const SpDevice *device = scenario->cluster->device;

  if (values->run.fp8 && device->peak_fp8_flops_per_s.value == 0)
    return sp_ini_refuse (ini, "run", "precision", error, "%s has no peak-fp8, expected %s", device->name,
                          device->no_bf16 ? "fp16" : "bf16");
  if (values->run.precision != SP_DTYPE_BF16 || !device->no_bf16)
    return TRUE;
  return sp_ini_refuse (ini, "run", "precision", error, "%s has no bf16, expected fp16 or fp32%s", device->name,
                        sp_ini_has (ini, "run", "precision") ? "" : " (bf16 is the default)");
}

/* A library that the profile has not timed would be priced as whichever is quickest. */
static gboolean
check_library (const SpScenario *scenario, GError **error)
{
  const SpProfile *profile = scenario->cluster->profile;
  const char *library = scenario->framework->attention_library;
  g_autofree char *timed = NULL;

  if (profile == NULL || library == NULL || sp_profile_has_library (profile, library, &timed))
    return TRUE;
  return *timed == '\0' ||
         sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                        "%s: [framework] attention-library = \"%s\": the profile %s has timed others: expected %s",
                        scenario->framework_path, library, profile->name, timed);
}

/* Absolute, or beside the scenario. */
static gboolean
load_packing (SpScenario *scenario, const SpIni *ini, const char *name, GError **error)
{
  if (name == NULL || g_str_equal (name, "none"))
    return TRUE;
  g_autofree char *joined = path_of (ini, "run", "packing", name);
  g_autofree char *path = g_canonicalize_filename (joined, NULL);
  g_autoptr (GError) cause = NULL;
  if (!g_file_test (path, G_FILE_TEST_EXISTS))
    return refuse_no_file (ini, "run", "packing", "none, or a file of documents' lengths", path, error);
  scenario->packing = sp_packing_load (path, &cause);
  if (cause != NULL)
    return sp_ini_refuse (ini, "run", "packing", error, "expected none, or a file of documents' lengths; %s",
                          cause->message);
  return scenario->packing != NULL;
}

static gboolean
load_files (SpScenario *scenario, const SpIni *ini, const SpValues *values, GError **error)
{
  scenario->model_path = resolve (ini, "model", "config", values->model, "models", error);
  if (scenario->model_path == NULL)
    return FALSE;
  scenario->cluster_path = resolve (ini, "cluster", "file", values->cluster, "clusters", error);
  if (scenario->cluster_path == NULL)
    return FALSE;
  scenario->framework_path = resolve (ini, "run", "framework", values->framework, "frameworks", error);
  if (scenario->framework_path == NULL)
    return FALSE;
  scenario->arch = sp_architecture_load (scenario->model_path, error);
  if (scenario->arch == NULL)
    return FALSE;
  if (!load_cluster (scenario, ini, values, error) || !load_profile (scenario, ini, values->profile, error) ||
      !check_precision (scenario, ini, values, error))
    return FALSE;
  scenario->framework = sp_framework_load (scenario->framework_path, error);
  return scenario->framework != NULL && check_library (scenario, error) &&
         load_packing (scenario, ini, values->packing, error);
}

/* Axes that the order has nearer than those of `until`, as " (tensor = 8 is nearer)", or "". */
static char *
nearer_axes (const SpLayout *layout, guint until)
{
  const gint32 degrees[SP_N_RANK_AXES] = {
    [SP_AXIS_TENSOR] = layout->tensor, [SP_AXIS_ULYSSES] = layout->ulysses, [SP_AXIS_RING] = layout->ring,
    [SP_AXIS_LASP] = layout->lasp,     [SP_AXIS_DATA] = layout->data,       [SP_AXIS_PIPELINE] = layout->pipeline,
  };
  g_autoptr (GString) text = g_string_new (NULL);

  for (guint i = 0; i < SP_N_RANK_AXES; i++) {
    guint axis = layout->order.axis[i];
    if (degrees[axis] > 1 && until & 1u << axis)
      break;
    if (degrees[axis] > 1)
      g_string_append_printf (text, "%s%s = %d", text->len > 0 ? ", " : " (nearer: ", sp_axis_name ((SpAxis) axis),
                              degrees[axis]);
  }
  return g_strconcat (text->str, text->len > 0 ? ")" : "", NULL);
}

/* `node` is a number of ranks once the cluster is known. */
static gboolean
resolve_nodes (SpScenario *scenario, const SpIni *ini, GError **error)
{
  SpLayout *layout = &scenario->layout;
  gint32 gpus = scenario->cluster->gpus_per_node;

  if (layout->zero_group == ZERO_GROUP_NODE) {
    layout->zero_group = sp_layout_zero_in_node (layout, scenario->arch, gpus);
    g_autofree char *nearer =
        nearer_axes (layout, 1 << SP_AXIS_DATA | 1 << SP_AXIS_ULYSSES | 1 << SP_AXIS_RING | 1 << SP_AXIS_LASP);
    if (layout->zero_group == 1)
      return sp_ini_refuse (ini, "layout", "zero-group", error,
                            "comes to 1: nodes of %d GPUs hold one each of the %d data x sequence ranks%s, or unequal "
                            "parts; expected all, or a number of ranks",
                            gpus, sp_layout_replicas (layout, scenario->arch), nearer);
  }
  if (layout->ring_kind == SP_RING_DOUBLE && layout->ring_inner == 0) {
    layout->ring_inner = sp_layout_ring_in_node (layout, scenario->arch, gpus);
    g_autofree char *nearer = nearer_axes (layout, 1 << SP_AXIS_RING);
    if (layout->ring_inner == 1 && layout->ring > 1)
      return sp_ini_refuse (
          ini, "layout", "ring-kind", error,
          "its ring-inner = node comes to 1: nodes of %d GPUs hold one each of the ring = %d ranks%s, or "
          "unequal parts; expected ring-inner = a number of ranks, or ring-kind = p2p",
          gpus, layout->ring, nearer);
  }
  return TRUE;
}

typedef enum {
  OVER_FILE, /* a set that makes no difference is refused */
  TO_VARY,   /* nothing is looked at */
  AS_WRITTEN /* it is a note, as it is of the file's */
} SetsMode;

static SpScenario *
load (SpIni *ini, const char *const *sets, SetsMode mode, GError **error)
{
  for (guint i = 0; sets != NULL && sets[i] != NULL; i++)
    if (!sp_values_apply_set (ini, sets[i], error))
      return NULL;
  if (mode == AS_WRITTEN)
    sp_ini_own (ini);
  g_auto (SpValues) values = sp_values_default ();
  g_autoptr (SpScenario) scenario = g_new0 (SpScenario, 1);
  scenario->variations = (SpVariations) SP_VARIATIONS_DEFAULT;
  scenario->notes = g_ptr_array_new_with_free_func (g_free);
  if (!sp_values_read (ini, &values, &scenario->variations, error) || !load_files (scenario, ini, &values, error))
    return NULL;
  scenario->path = g_strdup (sp_ini_path (ini));
  scenario->layout = values.layout;
  scenario->run = values.run;
  scenario->origin = values.origin;
  values.origin.hub_name = NULL;
  scenario->run.packing = scenario->packing;
  if (mode != TO_VARY && !sp_scenario_check_effects (scenario, ini, &values, error))
    return NULL;
  if (!resolve_nodes (scenario, ini, error))
    return NULL;
  return g_steal_pointer (&scenario);
}

static SpScenario *
load_file (const char *path, const char *const *sets, SetsMode mode, GError **error)
{
  g_autoptr (SpIni) ini = sp_ini_load (path, error);
  SpScenario *scenario = ini != NULL ? load (ini, sets, mode, error) : NULL;

  if (scenario == NULL)
    sp_input_say_kind (path, SP_KIND_SCENARIO, error);
  return scenario;
}

SpScenario *
sp_scenario_load (const char *path, const char *const *sets, GError **error)
{
  return load_file (path, sets, OVER_FILE, error);
}

SpScenario *
sp_scenario_load_to_vary (const char *path, const char *const *sets, GError **error)
{
  return load_file (path, sets, TO_VARY, error);
}

SpScenario *
sp_scenario_load_as_written (const char *path, const char *const *sets, GError **error)
{
  return load_file (path, sets, AS_WRITTEN, error);
}

SpScenario *
sp_scenario_parse (const char *path, const char *text, gsize length, const char *const *sets, GError **error)
{
  g_autoptr (SpIni) ini = sp_ini_parse (path, text, length, error);
  SpScenario *scenario = ini != NULL ? load (ini, sets, OVER_FILE, error) : NULL;

  if (scenario == NULL)
    sp_input_say_kind (path, SP_KIND_SCENARIO, error);
  return scenario;
}

void
sp_scenario_free (SpScenario *scenario)
{
  if (scenario == NULL)
    return;
  g_free (scenario->path);
  g_free (scenario->model_path);
  g_free (scenario->cluster_path);
  g_free (scenario->device_path);
  g_free (scenario->profile_path);
  g_free (scenario->framework_path);
  g_free (scenario->origin.hub_name);
  sp_architecture_free (scenario->arch);
  sp_cluster_free (scenario->cluster);
  sp_framework_free (scenario->framework);
  sp_packing_free (scenario->packing);
  sp_variations_clear (&scenario->variations);
  g_ptr_array_unref (scenario->notes);
  g_free (scenario);
}

/* A shipped file by its bare name, so that what is printed is the same on every machine; others by their path. */
static char *
written_name (const char *path, const char *folder)
{
  g_autofree char *shipped = g_build_filename (sp_data_dir (), folder, NULL);
  g_autofree char *canonical = g_canonicalize_filename (shipped, NULL);
  g_autofree char *own = g_path_get_dirname (path);
  return g_str_equal (own, canonical) ? g_path_get_basename (path) : g_strdup (path);
}

void
sp_scenario_write (const SpScenario *scenario, GString *out)
{
  g_auto (SpValues) values = {
    .model = written_name (scenario->model_path, "models"),
    .cluster = written_name (scenario->cluster_path, "clusters"),
    .device = scenario->device_path != NULL ? written_name (scenario->device_path, "devices") : NULL,
    .profile = scenario->profile_path != NULL ? written_name (scenario->profile_path, "profiles") : NULL,
    .nodes = scenario->nodes,
    .gpus_per_node = scenario->gpus_per_node,
    .framework = written_name (scenario->framework_path, "frameworks"),
    .layout = scenario->layout,
    .run = scenario->run,
    .origin = scenario->origin,
  };
  values.origin.hub_name = g_strdup (scenario->origin.hub_name);
  sp_values_write (&values, out);
  sp_variations_write (&scenario->variations, out);
}
