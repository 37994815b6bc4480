/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/scenario.h"
#include "tests/input-file.h"

/* A file of another kind than the one that is read is called by its kind, and one of the right kind is not. */

static gboolean
read_scenario (const char *path, GError **error)
{
  g_autoptr (SpScenario) scenario = sp_scenario_load (path, NULL, error);
  return scenario != NULL;
}

static gboolean
read_model (const char *path, GError **error)
{
  g_autoptr (SpArchitecture) arch = sp_architecture_load (path, error);
  return arch != NULL;
}

static gboolean
read_cluster (const char *path, GError **error)
{
  g_autoptr (SpCluster) cluster = sp_cluster_load (path, error);
  return cluster != NULL;
}

static gboolean
read_device (const char *path, GError **error)
{
  g_autoptr (SpDevice) device = sp_device_load (path, error);
  return device != NULL;
}

static gboolean
read_framework (const char *path, GError **error)
{
  SpFramework *framework = sp_framework_load (path, error);
  sp_framework_free (framework);
  return framework != NULL;
}

static const struct {
  const char *file, *kind;
  gboolean (*read) (const char *path, GError **error); /* NULL: it is only read as others */
} kinds[] = {
  { "tnl-1b-lasp.ini", "a scenario", read_scenario },
  { "models/tnl-1b.ini", "a model", read_model },
  { "models/llama-3.1-8b.json", "a model", read_model },
  { "clusters/a100-8x8.ini", "a cluster", read_cluster },
  { "devices/h100.ini", "a device", read_device },
  { "frameworks/flash.ini", "a framework", read_framework },
  { "profiles/h200.ini", "a profile of curves", NULL },
  { "validation/lasp-2.ini", "a set of validation", NULL },
  { "run-files/qwen-verl.sh", "a run file of another program", NULL },
  { "run-files/llama-llamafactory.yaml", "a run file of another program", NULL },
  { "run-files/mixtral-megatron.args", "a run file of another program", NULL },
};

static void
test_pairs (void)
{
  for (guint f = 0; f < G_N_ELEMENTS (kinds); f++)
    for (guint r = 0; r < G_N_ELEMENTS (kinds); r++) {
      g_autoptr (GError) error = NULL;
      g_autofree char *path = g_build_filename (sp_data_dir (), kinds[f].file, NULL);
      g_autofree char *expected = g_strdup_printf (": is %s, expected %s", kinds[f].kind, kinds[r].kind);
      if (kinds[r].read == NULL)
        continue;
      gboolean good = kinds[r].read (path, &error), same = g_str_equal (kinds[f].kind, kinds[r].kind);
      g_assert_true (good == same);
      if (!same)
        g_assert_nonnull (strstr (error->message, expected));
    }
}

/* What is wrong in a file of the right kind is still what is said, and so is a text of no kind. */
static void
test_own (void)
{
  static const struct {
    const char *text, *says;
  } rows[] = {
    { "[model]\nconfig = nothing.json\n", "[cluster] file: missing" },
    { "[model]\nconfiguration = x\n", "is a model, expected a scenario" },
    { "nothing at all\n", "expected key = value" },
    { "[layout]\ndata = x\n", "[model] config: missing" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autoptr (GError) error = NULL;
    char *path = input_file_new ("own.ini", rows[i].text, -1);
    g_assert_false (read_scenario (path, &error));
    g_test_message ("%s", error->message);
    g_assert_nonnull (strstr (error->message, rows[i].says));
    input_file_remove (path);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/file-kind/pairs", test_pairs);
  g_test_add_func ("/file-kind/own", test_own);
  return g_test_run ();
}
