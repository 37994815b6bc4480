/* SPDX-License-Identifier: Apache-2.0 */
/* The INI of a device, of a cluster (its device is a shipped one) and of a framework: whichever the text is. */
#include "models/inputs/hardware.h"
#include "models/inputs/scenario.h"
#include "tests/fuzz/fuzz.h"

/* What is asked of a cluster before anything else. */
static void
use_cluster (SpCluster *cluster)
{
  SpTopologySpec spec;
  g_autoptr (GError) error = NULL;
  sp_cluster_topology_spec (cluster, &spec);
  if ((gint64) spec.nodes * spec.gpus_per_node > 4096) /* as large as any, and quick */
    return;
  g_autoptr (SpTopology) topology = sp_topology_new (&spec, &error);
  fuzz_check (topology != NULL, error);
  g_free (sp_cluster_resize (cluster, 1, 1));
}

int
LLVMFuzzerTestOneInput (const guint8 *data, size_t size)
{
  g_autoptr (GError) device_error = NULL, cluster_error = NULL, framework_error = NULL;
  g_autofree char *text = fuzz_text (data, size);
  g_autofree char *path = g_build_filename (sp_data_dir (), "clusters", "x.ini", NULL);
  if (size > FUZZ_MOST)
    return -1;
  g_autoptr (SpDevice) device = sp_device_parse (path, text, size, &device_error);
  fuzz_check (device != NULL, device_error);
  g_autoptr (SpCluster) cluster = sp_cluster_parse (path, text, size, &cluster_error);
  fuzz_check (cluster != NULL, cluster_error);
  g_autoptr (SpFramework) framework = sp_framework_parse (path, text, size, &framework_error);
  fuzz_check (framework != NULL, framework_error);
  g_assert_cmpint ((device != NULL) + (cluster != NULL) + (framework != NULL), <=, 1);
  if (cluster != NULL)
    use_cluster (cluster);
  return 0;
}
