/* SPDX-License-Identifier: Apache-2.0 */
/* What seqpar calibrate executes: runs that nothing is fitted to. */
#include <string.h>

#include "cli/calibrate.h"

#define FRAMEWORK "seqpar-measure"

enum { LEAST_SEQUENCE = 1024 };

static void
free_trial (gpointer data)
{
  SpTrial *trial = data;

  g_free (trial->name);
  sp_scenario_free (trial->scenario);
  g_free (trial);
}

static gint
by_name (gconstpointer a, gconstpointer b)
{
  return strcmp ((*(const SpTrial *const *) a)->name, (*(const SpTrial *const *) b)->name);
}

static gboolean
fits (const SpScenario *s)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  SpEstimator estimator;
  SpEstimate estimate;

  sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
  sp_estimate_layout (&estimator, program, &s->layout, &s->run, &estimate);
  return estimate.fits;
}

/* Whether it was legal and fits; takes the scenario. */
static gboolean
take (GPtrArray *all, const char *name, SpScenario *scenario)
{
  g_autoptr (SpScenario) s = scenario;

  if (!sp_layout_check (&s->layout, s->arch, s->framework, &s->run, sp_cli_gpus (s->cluster), NULL) || !fits (s))
    return FALSE;
  SpTrial *trial = g_new0 (SpTrial, 1);
  trial->name = g_strdup (name);
  trial->scenario = g_steal_pointer (&s);
  g_ptr_array_add (all, trial);
  return TRUE;
}

/* --- of a cluster ------------------------------------------------------------------------------------------------- */

static gboolean
add_shipped (GPtrArray *all, const char *folder, const char *file, const char *cluster, int gpus, GError **error)
{
  g_autofree char *path = g_build_filename (folder, file, NULL);
  g_autofree char *name = g_strndup (file, strlen (file) - strlen (".ini"));
  g_autofree char *set_cluster = g_strconcat ("cluster.file=", cluster, NULL);
  g_autoptr (SpScenario) as_is = sp_scenario_load (path, NULL, error);
  if (as_is == NULL)
    return FALSE;
  const SpLayout *l = &as_is->layout;
  const struct {
    const char *key;
    gint32 degree;
  } axes[] = { { "data", l->data },       { "tensor", l->tensor }, { "pipeline", l->pipeline },
               { "ulysses", l->ulysses }, { "ring", l->ring },     { "lasp", l->lasp } };
  gint32 world = sp_layout_world (l, as_is->arch), wanted = world > 1 ? gpus : 1;
  g_autoptr (GPtrArray) sets = g_ptr_array_new_with_free_func (g_free);

  if (world > wanted || wanted % world != 0)
    return TRUE;
  g_ptr_array_add (sets, g_steal_pointer (&set_cluster));
  g_ptr_array_add (sets, g_strdup ("cluster.nodes=1"));
  g_ptr_array_add (sets, g_strdup_printf ("cluster.gpus-per-node=%d", wanted));
  for (guint i = 0; i < G_N_ELEMENTS (axes) && wanted != world; i++)
    if (axes[i].degree > 1) { /* of a mix the first axis alone */
      g_ptr_array_add (sets, g_strdup_printf ("layout.%s=%d", axes[i].key, wanted / world * axes[i].degree));
      break;
    }
  if (wanted != world && l->data > 1)
    g_ptr_array_add (sets, g_strdup_printf ("run.global-batch=%d", as_is->run.global_batch / l->data * wanted));
  g_ptr_array_add (sets, NULL);
  SpScenario *scenario = sp_scenario_load (path, (const char *const *) sets->pdata, error);
  if (scenario == NULL)
    return FALSE;
  g_autofree char *own = wanted == world ? g_strdup (name) : g_strdup_printf ("%s-on-%d", name, wanted);
  take (all, own, scenario);
  return TRUE;
}

static gboolean
add_all_shipped (GPtrArray *all, const char *cluster, int gpus, GError **error)
{
  g_autofree char *folder = g_build_filename (sp_data_dir (), "executed", NULL);
  g_autoptr (GDir) dir = g_dir_open (folder, 0, error);

  if (dir == NULL)
    return FALSE;
  for (const char *file; (file = g_dir_read_name (dir)) != NULL;)
    if (g_str_has_suffix (file, ".ini") && !add_shipped (all, folder, file, cluster, gpus, error))
      return FALSE;
  return TRUE;
}

/* --- of a scenario ------------------------------------------------------------------------------------------------ */

/* Layouts of one axis. P stands for the GPUs. */
static const struct {
  const char *name, *axis, *keys;
} templates[] = {
  { "plain", NULL, "" },
  { "recompute", NULL, "recompute = full\n" },
  { "data-zero1", "data", "zero = 1\n" },
  { "data-zero3", "data", "zero = 3\n" },
  { "tensor", "tensor", "" },
  { "ulysses-zero1", "ulysses", "zero = 1\n" },
  { "ulysses-zero3-recompute", "ulysses", "zero = 3\nrecompute = full\n" },
  { "ring-zero1", "ring", "zero = 1\n" },
  { "ring-zero3-recompute", "ring", "zero = 3\nrecompute = full\n" },
  { "lasp-zero1", "lasp", "lasp-version = 1\nzero = 1\n" },
  { "lasp2-zero3", "lasp", "lasp-version = 2\nzero = 3\n" },
  { "pipeline-recompute", "pipeline", "recompute = full\n" },
};

static char *
text_of (const SpScenario *s, const char *axis, const char *keys, int gpus, gint64 sequence)
{
  gboolean data = g_strcmp0 (axis, "data") == 0, pipeline = g_strcmp0 (axis, "pipeline") == 0;
  g_autofree char *degree = axis != NULL ? g_strdup_printf ("%s = %d\n", axis, gpus) : g_strdup ("");
  g_autofree char *device = s->device_path != NULL ? g_strdup_printf ("device = %s\n", s->device_path) : g_strdup ("");

  return g_strdup_printf ("[model]\nconfig = %s\n[cluster]\nfile = %s\n%snodes = 1\ngpus-per-node = %d\n[layout]\n%s%s"
                          "[run]\nsequence = %" G_GINT64_FORMAT "\nglobal-batch = %d\nframework = " FRAMEWORK "\n",
                          s->model_path, s->cluster_path, device, axis != NULL ? gpus : 1, degree, keys, sequence,
                          data       ? gpus
                          : pipeline ? 2 * gpus
                                     : 1);
}

/* The longest part of the scenario's sequence that fits, and a quarter of that. */
static void
add_template (GPtrArray *all, const SpScenario *s, guint i, int gpus)
{
  int P = templates[i].axis != NULL ? gpus : 1;
  gint64 next = 0;
  guint taken = 0;

  for (gint64 sequence = s->run.sequence; sequence >= LEAST_SEQUENCE && taken < 2; sequence /= 2) {
    if (next > 0 && sequence > next)
      continue;
    g_autofree char *name = g_strdup_printf ("%s%s-%" G_GINT64_FORMAT, templates[i].name, P > 1 ? "" : "-1", sequence);
    g_autofree char *text = text_of (s, templates[i].axis, templates[i].keys, gpus, sequence);
    SpScenario *scenario = sp_scenario_parse (s->path, text, strlen (text), NULL, NULL);
    if (scenario != NULL && take (all, name, scenario)) {
      taken++;
      next = sequence / 4;
    }
  }
}

/* --- both --------------------------------------------------------------------------------------------------------- */

static gboolean
is_scenario (const char *path)
{
  g_autoptr (GKeyFile) file = g_key_file_new ();

  return g_key_file_load_from_file (file, path, G_KEY_FILE_NONE, NULL) && g_key_file_has_group (file, "model");
}

gboolean
sp_is_calibrated (const char *target)
{
  g_autofree char *scenario = sp_cli_find_scenario (target, NULL), *cluster = sp_find_cluster (target, NULL);

  return scenario != NULL || cluster != NULL || strchr (target, G_DIR_SEPARATOR) != NULL ||
         g_str_has_suffix (target, ".ini");
}

/* More would be refused of each layout alone. */
static gboolean
check_node (const char *cluster_path, int gpus, GError **error)
{
  g_autoptr (SpCluster) cluster = sp_cluster_load (cluster_path, NULL);

  if (cluster == NULL) /* what is wrong with it is said where it is read as a whole */
    return TRUE;
  if (gpus > cluster->gpus_per_node)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                        "%s: a node of it has %d GPU%s, and %d are to be calibrated: expected --gpus %d, or a cluster "
                        "of larger nodes",
                        cluster_path, cluster->gpus_per_node, sp_plural (cluster->gpus_per_node), gpus,
                        cluster->gpus_per_node);
  g_autofree char *problem = sp_cluster_resize (cluster, 1, gpus);
  return problem == NULL ||
         sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: %d GPU%s of a node: %s", cluster_path, gpus, sp_plural (gpus),
                      problem);
}

static gboolean
add_scenario (GPtrArray *all, const char *path, int gpus, GError **error)
{
  g_autoptr (SpScenario) s = sp_scenario_load (path, NULL, error);

  if (s == NULL || !check_node (s->cluster_path, gpus, error))
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (templates); i++)
    if (templates[i].axis == NULL || gpus > 1)
      add_template (all, s, i, gpus);
  return all->len > 0 || sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                                      "%s: its model fits on %d GPU%s in no layout of one axis: give a scenario of a "
                                      "smaller model, or the cluster alone, for the models that are shipped",
                                      path, gpus, sp_plural (gpus));
}

GPtrArray *
sp_trials_new (const char *target, int gpus, GError **error)
{
  g_autoptr (GPtrArray) all = g_ptr_array_new_with_free_func (free_trial);
  g_autofree char *scenario = sp_cli_find_scenario (target, NULL);

  if (scenario != NULL && is_scenario (scenario)) {
    g_autofree char *path = g_canonicalize_filename (scenario, NULL);
    if (!add_scenario (all, path, gpus, error))
      return NULL;
  } else {
    g_autofree char *cluster = sp_find_cluster (target, error);
    g_autofree char *path = cluster != NULL ? g_canonicalize_filename (cluster, NULL) : NULL;
    if (path == NULL || !check_node (path, gpus, error) || !add_all_shipped (all, path, gpus, error))
      return NULL;
    if (all->len == 0) {
      sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: none of the shipped runs fits on its GPUs", path);
      return NULL;
    }
  }
  g_ptr_array_sort (all, by_name);
  return g_steal_pointer (&all);
}
