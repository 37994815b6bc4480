/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL and nvidia-smi say of a machine, and the cluster that is made of it. */
#include "models/inputs/scenario.h"
#include "models/inputs/topology-dump.h"
#include "tests/fuzz/fuzz.h"

static void
make_cluster (const SpTopologyDump *dump, const char *device_name, gint32 nodes)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = sp_find_shipped ("devices", device_name, &error);
  SpDevice *device = sp_device_load (path, &error);
  g_assert_no_error (error);
  g_autoptr (SpCluster) cluster = sp_topology_dump_cluster (dump, device, nodes, &error);
  fuzz_check (cluster != NULL, error);
  if (cluster == NULL)
    return;
  SpTopologySpec spec;
  sp_cluster_topology_spec (cluster, &spec);
  g_autoptr (SpTopology) topology = sp_topology_new (&spec, &error);
  fuzz_check (topology != NULL, error);
}

int
LLVMFuzzerTestOneInput (const guint8 *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text = fuzz_text (data, size);
  if (size > FUZZ_MOST)
    return -1;
  g_autoptr (SpTopologyDump) dump = sp_topology_dump_parse (text, size, "dump", &error);
  fuzz_check (dump != NULL, error);
  if (dump == NULL)
    return 0;
  for (guint n = 2; n <= 4; n++) {
    guint group[4];
    gboolean any;
    if (sp_topology_dump_best_group (dump, n, group, &any))
      for (guint i = 0; i < n; i++)
        g_assert_cmpuint (group[i], <, dump->n_gpus);
  }
  for (guint i = 0; i < dump->n_gpus; i++) {
    g_assert_cmpint (sp_topology_dump_pair (dump, i), <, (gint32) dump->n_gpus);
    g_assert_cmpint (dump->gpus[i].place, <, (gint32) dump->n_places);
  }
  for (guint i = 0; i < dump->notes->len; i++)
    g_assert_null (strchr (dump->notes->pdata[i], '\n'));
  make_cluster (dump, "a40", 1);
  make_cluster (dump, "h100", 2);
  return 0;
}
