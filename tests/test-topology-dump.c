/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/scenario.h"
#include "models/inputs/topology-dump.h"
#include "tests/input-file.h"

/* Dumps of machines: three published ones (skipped where the reference files are not there), small ones of our own with
 * the same traits, and text that is none. */

static SpTopologyDump *
parse (const char *text)
{
  g_autoptr (GError) error = NULL;
  SpTopologyDump *dump = sp_topology_dump_parse (text, strlen (text), "dump", &error);

  g_assert_no_error (error);
  return dump;
}

/* NULL: skipped. */
static SpTopologyDump *
load_reference (const char *folder, const char *name)
{
  const char *shared = g_getenv ("SEQPAR_SHARED");
  g_autofree char *path = shared != NULL ? g_build_filename (shared, "reference", folder, name, NULL) : NULL;
  g_autoptr (GError) error = NULL;

  if (path == NULL || !g_file_test (path, G_FILE_TEST_EXISTS)) {
    g_test_skip ("the reference files are not there");
    return NULL;
  }
  SpTopologyDump *dump = sp_topology_dump_load (path, &error);
  g_assert_no_error (error);
  g_assert_nonnull (dump);
  return dump;
}

static gboolean
has_note (const GPtrArray *notes, const char *words)
{
  for (guint i = 0; i < notes->len; i++)
    if (strstr (notes->pdata[i], words) != NULL)
      return TRUE;
  return FALSE;
}

static void
assert_group (const SpTopologyDump *dump, guint size, gboolean any, const guint *expected)
{
  guint gpus[4];
  gboolean is_any;

  g_assert_true (sp_topology_dump_best_group (dump, size, gpus, &is_any));
  g_assert_cmpint (is_any, ==, any);
  for (guint i = 0; i < size; i++)
    g_assert_cmpuint (gpus[i], ==, expected[i]);
}

static guint
count_at (const SpTopologyDump *dump, guint place, gboolean nics)
{
  guint n = 0;

  for (guint i = 0; i < (nics ? dump->n_nics : dump->n_gpus); i++)
    n += (nics ? dump->nics[i].place : dump->gpus[i].place) == (gint32) place;
  return n;
}

/* A device's own cluster, as a scenario makes it. */
static SpCluster *
cluster_of (const SpTopologyDump *dump, const char *device, gint32 nodes)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = sp_find_shipped ("devices", device, &error);
  g_assert_no_error (error);
  SpDevice *loaded = sp_device_load (path, &error);
  g_assert_no_error (error);
  SpCluster *cluster = sp_topology_dump_cluster (dump, loaded, nodes, &error);
  g_assert_no_error (error);
  SpTopologySpec spec;
  sp_cluster_topology_spec (cluster, &spec);
  g_autoptr (SpTopology) topology = sp_topology_new (&spec, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (sp_topology_n_gpus (topology), ==, dump->n_gpus * (guint) nodes);
  return cluster;
}

/* --- published ---------------------------------------------------------------------------------------------------- */

/* 8 A40: four bridges of 4 NVLinks, two sockets. */
static void
test_a40 (void)
{
  g_autoptr (SpTopologyDump) dump = load_reference ("cases/topo", "smi_topo_8xA40_bridges.txt");

  if (dump == NULL)
    return;
  g_assert_cmpuint (dump->n_gpus, ==, 8);
  g_assert_cmpuint (dump->n_nics, ==, 0);
  g_assert_cmpuint (dump->n_places, ==, 2);
  for (guint i = 0; i < 8; i++) {
    g_assert_cmpint (sp_topology_dump_pair (dump, i), ==, (gint32) (i ^ 1));
    g_assert_cmpuint (dump->gpus[i].nvlinks, ==, 4);
    g_assert_cmpint (dump->gpus[i].place, ==, (gint32) i / 4);
    g_assert_true (dump->places[i / 4].socket);
  }
  g_assert_false (dump->has_switch);
  assert_group (dump, 2, FALSE, (guint[]){ 0, 1 });
  assert_group (dump, 4, FALSE, (guint[]){ 0, 1, 2, 3 });
  g_assert_true (dump->partial);
  g_autoptr (SpCluster) cluster = cluster_of (dump, "a40", 1);
  g_assert_cmpint (cluster->node, ==, SP_NODE_PAIRS);
  g_assert_cmpint (cluster->switches_per_socket * cluster->gpus_per_switch, ==, 4);
  g_assert_cmpint (cluster->link_efficiency.provenance, ==, SP_ASSUMED);
}

/* 8 H100 on NVSwitch; adapters 0 to 3 are near GPUs 0, 2, 4, 6, adapters 4 and 5 near none. */
static void
test_h100_nics (void)
{
  g_autoptr (SpTopologyDump) dump = load_reference ("cases/topo", "smi_topo_8xH100_4nics.txt");

  if (dump == NULL)
    return;
  g_assert_cmpuint (dump->n_gpus, ==, 8);
  g_assert_cmpuint (dump->n_nics, ==, 6);
  g_assert_true (dump->has_switch);
  for (guint i = 0; i < 8; i++) {
    g_assert_cmpuint (dump->gpus[i].nvlinks, ==, 18);
    g_assert_cmpint (sp_topology_dump_pair (dump, i), ==, -1);
  }
  for (guint i = 0; i < 6; i++)
    g_assert_cmpint (dump->nics[i].compute, ==, i < 4);
  for (guint i = 0; i < 4; i++)
    g_assert_cmpint (sp_topology_dump_relation (dump, 2 * i, 8 + i), ==, SP_RELATION_PIX);
  g_assert_cmpuint (sp_topology_dump_compute_nics (dump), ==, 4);
  g_assert_true (has_note (dump->notes, "up to 2 share one"));
  g_assert_true (has_note (dump->notes, "the rows of its 6 adapters are not all there"));
  g_assert_true (dump->partial);
  g_assert_cmpuint (dump->n_places, ==, 2);
  g_assert_cmpstr (dump->gpus[7].affinity, ==, "48-95,144-191");
  assert_group (dump, 2, TRUE, (guint[]){ 0, 1 });

  /* 4 adapters for 8 GPUs: GPU 3 by adapter 1 */
  g_autoptr (SpCluster) cluster = cluster_of (dump, "h100", 2);
  g_assert_cmpint (cluster->node, ==, SP_NODE_SWITCH);
  g_assert_cmpfloat (cluster->nics.value, ==, 4);
  g_assert_cmpfloat (cluster->nic_bytes_per_s.value, ==, 50e9);
  g_assert_cmpint (cluster->nic_bytes_per_s.provenance, ==, SP_ASSUMED);
  g_assert_true (has_note (cluster->notes, "assumed"));
}

/* Azure's file for its A100 machines: 4 NUMA nodes of 2 GPUs and 2 adapters; no NVLinks in it. GPUs count by bus
 * address: 0001, 0002 (of NUMA node 1), 0003, 0004 (0), 000b, 000c (3), 000d, 000e (2). */
static void
test_ndv4 (void)
{
  static const gint32 numa[] = { 1, 1, 0, 0, 3, 3, 2, 2 };
  g_autoptr (SpTopologyDump) dump = load_reference ("cases/topo", "azure_ndv4_a100_topo.xml");

  if (dump == NULL)
    return;
  g_assert_cmpuint (dump->n_gpus, ==, 8);
  g_assert_cmpuint (dump->n_nics, ==, 8);
  g_assert_cmpuint (dump->n_places, ==, 4);
  for (guint i = 0; i < 4; i++) {
    g_assert_cmpint (dump->places[i].numa, ==, (gint32) i);
    g_assert_cmpuint (count_at (dump, i, FALSE), ==, 2);
    g_assert_cmpuint (count_at (dump, i, TRUE), ==, 2);
  }
  for (guint i = 0; i < 8; i++)
    g_assert_cmpint (dump->places[dump->gpus[i].place].numa, ==, numa[i]);
  g_assert_cmpstr (dump->gpus[0].name, ==, "0001:00:00.0");
  g_assert_cmpuint (sp_topology_dump_compute_nics (dump), ==, 8);
  g_assert_cmpint (sp_topology_dump_relation (dump, 0, 1), ==, SP_RELATION_PIX);
  g_assert_cmpint (sp_topology_dump_relation (dump, 1, 2), ==, SP_RELATION_SYS);
  g_assert_false (dump->tells_nvlinks);
  g_assert_true (dump->partial);
  /* 16 GT/s x 16 lanes x 128/130 / 8 */
  g_assert_cmpfloat_with_epsilon (dump->pcie_bytes_per_s, 31.508e9, 1e6);
  assert_group (dump, 2, FALSE, (guint[]){ 0, 1 });

  /* The card has NVLinks, of which the file says nothing; a card without them is on PCIe. */
  g_autoptr (SpCluster) a100 = cluster_of (dump, "a100-80", 2), l20 = cluster_of (dump, "l20", 1);
  g_assert_cmpint (a100->node, ==, SP_NODE_SWITCH);
  g_assert_cmpfloat (a100->nics.value, ==, 8);
  g_assert_true (has_note (a100->notes, "tells no NVLinks"));
  g_assert_cmpint (l20->node, ==, SP_NODE_PCIE);
  g_assert_cmpint (l20->gpus_per_switch, ==, 2);
  g_assert_cmpint (l20->switches_per_socket, ==, 1);
}

/* Our own measurements' machine, by both. */
static void
test_h100_pair (void)
{
  g_autoptr (SpTopologyDump) xml = load_reference ("measured", "h100x2-nccl-topo.xml");
  g_autoptr (SpTopologyDump) smi = xml != NULL ? load_reference ("measured", "h100x2-nvidia-smi-topo.txt") : NULL;

  if (smi == NULL)
    return;
  const SpTopologyDump *both[] = { xml, smi };
  for (guint i = 0; i < 2; i++) {
    g_assert_cmpuint (both[i]->n_gpus, ==, 2);
    g_assert_true (both[i]->has_switch);
    g_assert_cmpuint (both[i]->gpus[1].nvlinks, ==, 18);
    g_assert_cmpuint (sp_topology_dump_nvlinks (both[i], 0, 1), ==, 18);
    g_assert_false (both[i]->partial);
    g_autoptr (SpCluster) cluster = cluster_of (both[i], "h100", 1);
    g_assert_cmpint (cluster->node, ==, SP_NODE_SWITCH);
    g_assert_cmpint (cluster->gpus_per_node, ==, 2);
  }
  g_assert_cmpuint (xml->n_nics, ==, 1);
  g_assert_cmpfloat (xml->nics[0].bytes_per_s, ==, 1.25e9);
  g_assert_cmpuint (smi->n_nics, ==, 0);
  g_assert_cmpint (smi->places[0].numa, ==, 0);
}

/* --- our own: nvidia-smi ------------------------------------------------------------------------------------------ */

#define UNDERLINED "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"

/* As a terminal shows it: escape codes, tabs, an empty last but one column, carriage returns, a mark, names of adapters
 * behind the legend. */
static void
test_terminal (void)
{
  g_autoptr (SpTopologyDump) dump =
      parse ("\xef\xbb\xbf$ nvidia-smi topo -m\r\n" UNDERLINED "GPU0\t X \tPHB\tPIX\t0-31\t0\t\tN/A\r\n"
             "GPU1\tPHB\t X \tPHB\t0-31\t0\t\tN/A\n"
             "NIC0\tPIX\tPHB\t X \t\t\t\t\n\n"
             "Legend:\n\n  X    = Self\n  SYS  = over sockets\n\n"
             "NIC Legend:\n\n  NIC0: mlx5_0\n\n");

  g_assert_cmpuint (dump->n_gpus, ==, 2);
  g_assert_cmpuint (dump->n_nics, ==, 1);
  g_assert_cmpstr (dump->nics[0].name, ==, "NIC0 mlx5_0");
  g_assert_cmpint (sp_topology_dump_relation (dump, 1, 2), ==, SP_RELATION_PHB);
  g_assert_cmpuint (dump->gpus[0].nvlinks, ==, 0);
  g_assert_cmpint (dump->places[dump->gpus[1].place].numa, ==, 0);
  g_assert_cmpstr (dump->gpus[1].affinity, ==, "0-31");
  g_assert_false (dump->partial);
  g_autoptr (SpCluster) cluster = cluster_of (dump, "l20", 2);
  g_assert_cmpint (cluster->node, ==, SP_NODE_PCIE);
  g_assert_cmpint (cluster->gpus_per_switch, ==, 1);
  g_assert_cmpint (cluster->switches_per_socket, ==, 2);
  g_assert_cmpfloat (cluster->nics.value, ==, 1);
}

/* A paste without its last row's end: what the other rows say of it. Pairs 0-2 and 1-3, on one socket each: ranks go
 * pair by pair. Older drivers say SOC, and mlx5_0. */
static void
test_cut_paste (void)
{
  g_autoptr (SpTopologyDump) dump = parse ("     GPU0 GPU1 GPU2 GPU3 mlx5_0\n"
                                           "GPU0  X   SOC  NV4  SOC  PHB\n"
                                           "GPU1 SOC   X   SOC  NV4  SOC\n"
                                           "GPU2 NV4  SOC   X   SOC  PHB\n"
                                           "GPU3 SOC  NV4\n");

  g_assert_true (dump->partial);
  g_assert_true (has_note (dump->notes, "completed by symmetry"));
  g_assert_cmpint (sp_topology_dump_relation (dump, 3, 2), ==, SP_RELATION_SYS);
  g_assert_cmpint (sp_topology_dump_relation (dump, 3, 4), ==, SP_RELATION_UNKNOWN);
  g_assert_cmpint (sp_topology_dump_pair (dump, 3), ==, 1);
  g_assert_cmpuint (dump->n_places, ==, 2);
  g_assert_cmpint (dump->gpus[2].place, ==, dump->gpus[0].place);
  assert_group (dump, 2, FALSE, (guint[]){ 0, 2 });
  g_autoptr (SpCluster) cluster = cluster_of (dump, "a40", 1);
  g_assert_cmpint (cluster->node, ==, SP_NODE_PAIRS);
  g_assert_true (has_note (cluster->notes, "in the order 0,2,1,3"));
}

/* Four A100 with 4 NVLinks to each other one: 12, no more than a card has: direct. Eight V100 of a DGX-1 in part: not
 * all have links, so as if. 12 to each of 7 is more than a card has: a switch. */
static void
test_meshes (void)
{
  g_autoptr (SpTopologyDump) four = parse ("GPU0 GPU1 GPU2 GPU3\n"
                                           "GPU0  X   NV4  NV4  NV4\nGPU1 NV4   X   NV4  NV4\n"
                                           "GPU2 NV4  NV4   X   NV4\nGPU3 NV4  NV4  NV4   X\n");
  g_autoptr (SpTopologyDump) square = parse ("GPU0 GPU1 GPU2 GPU3\n"
                                             "GPU0  X   NV2  NV1  SYS\nGPU1 NV2   X   SYS  NV1\n"
                                             "GPU2 NV1  SYS   X   NV2\nGPU3 SYS  NV1  NV2   X\n");
  g_autoptr (SpTopologyDump) three = parse ("GPU0 GPU1 GPU2\n"
                                            "GPU0  X  NV12 NV12\nGPU1 NV12  X  NV12\nGPU2 NV12 NV12  X\n");
  g_autoptr (SpCluster) mesh = cluster_of (four, "a100-80", 1), ring = cluster_of (square, "v100-32", 1),
                        hub = cluster_of (three, "a100-80", 1);

  g_assert_cmpint (mesh->node, ==, SP_NODE_MESH);
  g_assert_cmpuint (four->gpus[0].nvlinks, ==, 12);
  g_assert_cmpint (ring->node, ==, SP_NODE_MESH);
  g_assert_cmpuint (square->gpus[0].nvlinks, ==, 3);
  g_assert_true (has_note (ring->notes, "not all GPUs have NVLinks to each other"));
  g_assert_cmpint (hub->node, ==, SP_NODE_SWITCH);
  g_assert_cmpuint (three->gpus[0].nvlinks, ==, 12);
}

/* --- our own: XML ------------------------------------------------------------------------------------------------- */

/* As NCCL writes it: CUDA's numbers against the bus order, a bridge to each other, one adapter of two ports behind a
 * bridge with GPU 0, another at the far CPU. */
static const char written[] = "<?xml version=\"1.0\"?>\n<!-- a comment -->\n<system version=\"1\">\n"
                              "  <cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\">\n"
                              "    <pci busid=\"0000:10:00.0\" class=\"0x060400\" link_speed=\"8.0 GT/s PCIe\" "
                              "link_width=\"16\">\n"
                              "      <pci busid=\"0000:11:00.0\" class=\"0x030200\" link_speed=\"8.0 GT/s PCIe\" "
                              "link_width=\"16\">\n"
                              "        <gpu dev=\"1\" sm=\"86\" rank=\"1\" gdr=\"1\">\n"
                              "          <nvlink target=\"0000:21:00.0\" count=\"4\" tclass=\"0x030200\"/>\n"
                              "        </gpu>\n"
                              "      </pci>\n"
                              "      <pci busid=\"0000:12:00.0\" class=\"0x020700\">\n"
                              "        <nic>\n"
                              "          <net name=\"mlx5_0\" dev=\"0\" speed=\"100000\" port=\"1\"/>\n"
                              "          <net name=\"mlx5_1\" dev=\"1\" speed=\"200000\" port=\"2\"/>\n"
                              "        </nic>\n"
                              "      </pci>\n"
                              "    </pci>\n"
                              "    <pci busid=\"0000:21:00.0\" class=\"0x030200\">\n"
                              "      <gpu dev=\"0\" sm=\"86\"><nvlink target=\"0000:11:00.0\" count=\"4\" "
                              "tclass=\"0x030200\"/></gpu>\n"
                              "    </pci>\n"
                              "  </cpu>\n"
                              "  <cpu numaid=\"1\"><pci busid=\"0000:30:00.0\" class=\"0x020000\">"
                              "<nic><net name=\"eth0\" speed=\"10000\"/></nic></pci><odd thing=\"1\"/></cpu>\n"
                              "</system>\n";

static void
test_xml (void)
{
  g_autoptr (SpTopologyDump) dump = parse (written);

  g_assert_cmpuint (dump->n_gpus, ==, 2);
  g_assert_cmpuint (dump->n_nics, ==, 3);
  g_assert_cmpstr (dump->gpus[0].name, ==, "0000:21:00.0");
  g_assert_cmpuint (sp_topology_dump_nvlinks (dump, 0, 1), ==, 4);
  g_assert_cmpint (sp_topology_dump_pair (dump, 0), ==, 1);
  g_assert_cmpint (sp_topology_dump_relation (dump, 1, 2), ==, SP_RELATION_PIX);
  g_assert_cmpint (sp_topology_dump_relation (dump, 0, 2), ==, SP_RELATION_PHB);
  g_assert_cmpint (sp_topology_dump_relation (dump, 0, 4), ==, SP_RELATION_SYS);
  g_assert_cmpint (sp_topology_dump_relation (dump, 2, 3), ==, SP_RELATION_PIX);
  g_assert_true (dump->nics[0].compute && dump->nics[1].compute && !dump->nics[2].compute);
  g_assert_false (dump->partial);
  g_assert_true (has_note (dump->notes, "<odd>"));
  /* the slower of the two ports */
  g_autoptr (SpCluster) cluster = cluster_of (dump, "a40", 4);
  g_assert_cmpfloat (cluster->nics.value, ==, 2);
  g_assert_cmpfloat (cluster->nic_bytes_per_s.value, ==, 12.5e9);
  g_assert_cmpint (cluster->nic_bytes_per_s.provenance, ==, SP_PUBLISHED);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

/* clang-format off */
static const struct Bad {
  const char *name, *text;
  const char *words[3];
} bad[] = {
  { "empty", "", { "dump:1: expected NCCL's topology" } },
  { "ini", "[cluster]\nnodes = 2\n", { "dump:1: expected NCCL's topology" } },
  { "no-header", "GPU0  X  NV4\nGPU1 NV4  X\n", { "dump:1: \"GPU0\"", "a header" } },
  { "no-rows", "GPU0 GPU1\n\n", { "dump:2:", "expected those of GPU0 and GPU1" } },
  { "one-gpu-no-row", "GPU0 CPU Affinity\n", { "dump:1:", "the row of GPU0" } },
  { "order", "GPU0 GPU2\n", { "dump:1: \"GPU2\"", "GPU1" } },
  { "late-gpu", "GPU0 NIC0 GPU1\n", { "dump:1: \"GPU1\"", "GPUs before adapters" } },
  { "twice", "GPU0 NIC0 NIC0\n", { "dump:1: \"NIC0\"", "each column once" } },
  { "affinity", "GPU0 GPU1 CPU Affinity Colour\n", { "dump:1: \"Colour\"", "NUMA Affinity" } },
  { "word", "GPU0 GPU1\nGPU0 X NX4\nGPU1 NV4 X\n", { "dump:2: \"NX4\"", "PIX" } },
  { "count", "GPU0 GPU1\nGPU0 X NV400\nGPU1 NV4 X\n", { "dump:2: \"NV400\"" } },
  { "diagonal", "GPU0 GPU1\nGPU0 PIX X\nGPU1 X PIX\n", { "dump:2: \"PIX\"", "X where" } },
  { "nic-link", "GPU0 NIC0\nGPU0 X NV4\n", { "dump:2: \"NV4\"", "between GPUs" } },
  { "short", "GPU0 GPU1 GPU2\nGPU0 X PIX\nGPU1 PIX X PIX\n", { "dump:2: 2 columns, expected 3" } },
  { "long", "GPU0 GPU1\nGPU0 X PIX PIX PIX\n", { "dump:2: more columns than the header's 2" } },
  { "skipped-row", "GPU0 GPU1 GPU2\nGPU0 X PIX PIX\nGPU2 PIX PIX X\n", { "dump:3: \"GPU2\"", "the row of GPU1" } },
  { "missing-rows", "GPU0 GPU1 GPU2\nGPU0 X PIX PIX\n", { "dump:2: the rows end", "GPU1 and GPU2" } },
  { "unlike", "GPU0 GPU1\nGPU0 X PIX\nGPU1 PXB X\n", { "dump:3: GPU1 to GPU0", "line 2" } },
  { "junk-row", "GPU0 GPU1\nGPU0 X PIX\n% exit\n", { "dump:3: \"%\"", "the row of GPU1" } },
  { "behind", "GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X\nGPU2 X\n", { "dump:4: \"GPU2\"", "a blank line" } },
  { "control", "GPU0 GPU1\nGPU0 X\x07 PIX\n", { "dump:2: control character 0x07" } },
  { "latin", "GPU0 GPU1\nGPU0 X PIX \xe9\n", { "dump:2: not UTF-8" } },
  { "xml-cut", "<system><cpu numaid=\"0\">\n<pci", { "dump:2:", "expected XML" } },
  { "xml-root", "<html>\n</html>", { "dump:1: <html>: expected <system>" } },
  { "xml-graphs", "<graphs version=\"1\"/>", { "dump:1: <graphs>", "a dump of its graphs" } },
  { "xml-two", "<system/>\n<system/>", { "dump:2: <system>: a second one" } },
  { "xml-none", "<system>\n<cpu numaid=\"0\"/></system>", { "dump:1: 0 GPUs", "expected from 1 to 64" } },
  { "xml-numa", "<system>\n<cpu numaid=\"zero\"/></system>", { "dump:2: <cpu>: numaid = \"zero\"", "whole number" } },
  { "xml-class", "<system>\n<cpu>\n<pci busid=\"1\" class=\"gpu\"/></cpu></system>",
    { "dump:3: <pci>: class = \"gpu\"" } },
  { "xml-no-class", "<system><cpu><pci busid=\"1\"/></cpu></system>", { "dump:1: <pci>: class is missing" } },
  { "xml-no-bus", "<system><cpu><pci class=\"0x030200\"/></cpu></system>", { "dump:1: <pci>: busid" } },
  { "xml-no-cpu", "<system><pci class=\"0x030200\" busid=\"1\"/></system>", { "<pci>: outside of a <cpu>" } },
  { "xml-gpu", "<system><cpu><gpu dev=\"0\"/></cpu></system>", { "<gpu>: outside of a <pci>" } },
  { "xml-net", "<system><cpu><pci class=\"0x030200\" busid=\"1\"><net/></pci></cpu></system>", { "<net>: outside" } },
  { "xml-nvlink", "<system><cpu><pci class=\"0x030200\" busid=\"1\"><gpu><nvlink count=\"0\" target=\"2\"/></gpu></pci>"
                  "</cpu></system>", { "<nvlink>: count = \"0\"", "from 1" } },
  { "xml-behind", "<system><cpu><pci class=\"0x030200\" busid=\"1\"><pci class=\"0x030200\" busid=\"2\"/></pci></cpu>"
                  "</system>", { "<pci>: behind a GPU" } },
};
/* clang-format on */

static void
test_bad (gconstpointer data)
{
  const struct Bad *row = data;
  g_autoptr (GError) error = NULL;

  g_assert_null (sp_topology_dump_parse (row->text, strlen (row->text), "dump", &error));
  g_assert_error (error, SP_INPUT_ERROR, SP_INPUT_ERROR_SYNTAX);
  input_file_assert_error (error, "dump:", row->words);
}

static void
assert_refused (const char *text, gsize length, const char *words)
{
  g_autoptr (GError) error = NULL;

  g_assert_null (sp_topology_dump_parse (text, length, "dump", &error));
  input_file_assert_error (error, "dump:", (const char *const[]){ words, NULL });
}

static char *
repeat (const char *head, const char *part, guint n, const char *tail)
{
  GString *text = g_string_new (head);

  for (guint i = 0; i < n; i++)
    g_string_append (text, part);
  g_string_append (text, tail);
  return g_string_free (text, FALSE);
}

/* Deep, long, with NULs: one line each, in no time. */
static void
test_hostile (void)
{
  const char nul[] = "GPU0 GPU1\nGPU0\0 X NV4\n";
  g_autofree char *deep = repeat ("<system><cpu>", "<pci class=\"0x060400\" busid=\"1\">", 20000, "");
  g_autofree char *odd = repeat ("<system>", "<a>", 200000, "");
  g_autofree char *wide = repeat ("GPU0", " NIC", 250000, "\n");
  g_autofree char *row = repeat ("GPU0 GPU1\nGPU0 X", " PIX", 250000, "\n");
  g_autofree char *blank = repeat ("GPU0", " ", 1000000, "\nGPU0 X\n");
  g_autofree char *attributes = repeat ("<system", " a=\"\"", 150000, "/>");
  g_autofree char *escapes = repeat ("\x1b[4mGPU0", "\x1b[0m", 200000, "\nGPU0 X \x1b[");
  g_autofree char *cpus = repeat ("<system>", "<cpu/>", 100000, "</system>");
  gint64 start = g_get_monotonic_time ();

  assert_refused (nul, sizeof nul - 1, "dump:2: a NUL");
  assert_refused (deep, strlen (deep), "nested deeper than 32");
  assert_refused (odd, strlen (odd), "nested deeper than 32");
  assert_refused (wide, strlen (wide), "each column once");
  assert_refused (row, strlen (row), "more columns than");
  assert_refused (attributes, strlen (attributes), "dump:1: "); /* of attributes, or that no GPU is in it */
  assert_refused (escapes, strlen (escapes), "control character 0x1b");
  assert_refused (cpus, strlen (cpus), "more than 4096");
  g_autoptr (SpTopologyDump) one = parse (blank);
  g_assert_cmpuint (one->n_gpus, ==, 1);
  g_autoptr (SpCluster) cluster = cluster_of (one, "h100", 1);
  g_assert_cmpint (cluster->gpus_per_node, ==, 1);
  g_assert_cmpint (g_get_monotonic_time () - start, <, 10 * G_USEC_PER_SEC);
}

/* Text with a few bytes changed, cut out or doubled is read or refused with its line; nothing else happens. */
static void
test_mutations (void)
{
  static const char smi[] = UNDERLINED "GPU0\t X \tNV4\tPIX\t0-31\t0\t\tN/A\nGPU1\tNV4\t X \tSYS\t0-31\t1\t\tN/A\n"
                                       "NIC0\tPIX\tSYS\t X \n\nNIC Legend:\n  NIC0: mlx5_0\n";
  const char *const seeds[] = { written, smi };
  guint32 seed = (guint32) g_test_rand_int ();
  GRand *rand = g_rand_new_with_seed (seed);
  guint read = 0, refused = 0;

  g_test_message ("seed %u", seed);
  for (guint i = 0; i < 20000; i++) {
    g_autoptr (GString) text = g_string_new (seeds[i % 2]);
    for (gint k = g_rand_int_range (rand, 1, 4); k > 0; k--) {
      gssize at = g_rand_int_range (rand, 0, (gint32) text->len - 8), n = g_rand_int_range (rand, 1, 8);
      g_autofree char *part = g_strndup (text->str + at, (gsize) n);
      switch (g_rand_int_range (rand, 0, 3)) {
      case 0:
        text->str[at] = (char) g_rand_int_range (rand, 0, 256);
        break;
      case 1:
        g_string_erase (text, at, n);
        break;
      default:
        g_string_insert (text, g_rand_int_range (rand, 0, (gint32) text->len), part);
      }
    }
    g_autoptr (GError) error = NULL;
    g_autoptr (SpTopologyDump) dump = sp_topology_dump_parse (text->str, text->len, "dump", &error);
    if (dump == NULL) {
      refused++;
      g_assert_true (g_str_has_prefix (error->message, "dump:") && strchr (error->message, '\n') == NULL);
      continue;
    }
    read++;
    guint gpus[4];
    gboolean any;
    sp_topology_dump_best_group (dump, 2, gpus, &any);
  }
  g_test_message ("%u read, %u refused", read, refused);
  g_assert_cmpuint (MIN (read, refused), >, 100);
  g_rand_free (rand);
}

/* --- in a scenario ------------------------------------------------------------------------------------------------ */

static const char bridges[] = "     GPU0 GPU1 GPU2 GPU3\n"
                              "GPU0  X   NV4  NODE NODE\nGPU1 NV4   X   NODE NODE\n"
                              "GPU2 NODE NODE  X   NV4\nGPU3 NODE NODE NV4   X\n";

static SpScenario *
load_scenario (const char *dump, const char *keys, GError **error)
{
  g_autofree char *text = g_strdup_printf ("[model]\nconfig = tiny\n[cluster]\nfile = %s\n%s"
                                           "[layout]\ndata = 4\n[run]\nsequence = 1K\n",
                                           dump, keys);
  char *path = input_file_new ("scenario.ini", text, -1);
  SpScenario *scenario = sp_scenario_load (path, NULL, error);

  input_file_remove (path);
  return scenario;
}

static void
assert_scenario_refused (const char *dump, const char *keys, const char *words)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpScenario) scenario = load_scenario (dump, keys, &error);

  g_assert_null (scenario);
  g_assert_nonnull (error);
  g_test_message ("%s", error->message);
  g_assert_null (strchr (error->message, '\n'));
  g_assert_nonnull (strstr (error->message, words));
}

static void
test_scenario (void)
{
  char *path = input_file_new ("machine.txt", bridges, -1);
  g_autoptr (GError) error = NULL;
  g_autoptr (SpScenario) scenario = load_scenario (path, "device = a40\n", &error);

  g_assert_no_error (error);
  g_assert_cmpint (scenario->cluster->node, ==, SP_NODE_PAIRS);
  g_assert_cmpint (scenario->cluster->nodes, ==, 1);
  g_assert_true (has_note (scenario->cluster->notes, "assumed"));
  g_assert_true (has_note (scenario->cluster->notes, "without peer-to-peer over PCIe"));
  /* what is written reads back */
  g_autoptr (GString) text = g_string_new (NULL);
  sp_scenario_write (scenario, text);
  g_assert_nonnull (strstr (text->str, "device = a40.ini\n"));
  char *again = input_file_new ("again.ini", text->str, -1);
  g_autoptr (SpScenario) second = sp_scenario_load (again, NULL, &error);
  g_assert_no_error (error);
  g_assert_cmpint (second->cluster->gpus_per_node, ==, 4);
  input_file_remove (again);

  assert_scenario_refused (path, "", "expected device = FILE beside it (and nodes = N");
  assert_scenario_refused (path, "device = a41\n", "did you mean a40?");
  assert_scenario_refused (path, "device = a40\nnodes = 2\n", "no network adapters are listed");
  assert_scenario_refused (path, "device = l20\n", "expected a device with pcie-rate");
  assert_scenario_refused ("h100-1x8", "device = h100\n", "[cluster] device = \"h100\": a key for the dump");
  assert_scenario_refused (path, "device = a40\ngpus-per-node = 2\n", "the dump has its own, 4");
  g_assert_null (sp_cluster_load (path, &error));
  g_assert_nonnull (strstr (error->message, "names no card"));
  input_file_remove (path);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/topology-dump/a40", test_a40);
  g_test_add_func ("/topology-dump/h100-nics", test_h100_nics);
  g_test_add_func ("/topology-dump/ndv4", test_ndv4);
  g_test_add_func ("/topology-dump/h100-pair", test_h100_pair);
  g_test_add_func ("/topology-dump/terminal", test_terminal);
  g_test_add_func ("/topology-dump/cut-paste", test_cut_paste);
  g_test_add_func ("/topology-dump/meshes", test_meshes);
  g_test_add_func ("/topology-dump/xml", test_xml);
  g_test_add_func ("/topology-dump/hostile", test_hostile);
  g_test_add_func ("/topology-dump/mutations", test_mutations);
  g_test_add_func ("/topology-dump/scenario", test_scenario);
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++) {
    g_autofree char *name = g_strconcat ("/topology-dump/bad/", bad[i].name, NULL);
    g_test_add_data_func (name, &bad[i], test_bad);
  }
  return g_test_run ();
}
