/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "models/inputs/hardware.h"
#include "models/inputs/ini.h"
#include "models/inputs/scenario.h"
#include "tests/input-file.h"

static char *
shipped (const char *folder, const char *name)
{
  return g_build_filename (sp_data_dir (), folder, name, NULL);
}

static void
assert_quantity (const SpQuantity *quantity, double value, SpProvenance provenance)
{
  g_assert_cmpfloat (quantity->value, ==, value);
  g_assert_cmpint (quantity->provenance, ==, provenance);
  g_assert_nonnull (quantity->source);
}

static void
test_h100 (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = shipped ("devices", "h100.ini");
  g_autoptr (SpDevice) device = sp_device_load (path, &error);
  g_assert_no_error (error);
  g_assert_cmpstr (device->name, ==, "H100 SXM 80GB");
  assert_quantity (&device->peak_bf16_flops_per_s, 989e12, SP_DATASHEET);
  assert_quantity (&device->memory_bytes, 81559 * 0x1p20, SP_PUBLISHED);
  assert_quantity (&device->memory_efficiency, 0.887, SP_MEASURED);
  assert_quantity (&device->launch_s, 3e-6, SP_ASSUMED);
  assert_quantity (&device->link_bytes_per_s, 450e9, SP_DATASHEET);
  g_assert_cmpstr (sp_provenance_name (device->gemm_efficiency.provenance), ==, "measured");
}

/* Cards with what sets them apart: the peak (dense), what they are linked by, whether they have bf16 and fp8. */
static void
test_cards (void)
{
  static const struct {
    const char *name;
    double peak, memory_rate, link, fp8;
    gboolean no_bf16;
  } rows[] = {
    { "p100-16", 21.2e12, 732e9, 80e9, 0, TRUE },          { "p100-pcie-16", 18.7e12, 732e9, 15.75e9, 0, TRUE },
    { "v100-32", 125e12, 900e9, 150e9, 0, TRUE },          { "titan-rtx", 130.5e12, 672e9, 15.75e9, 0, TRUE },
    { "a100-40", 312e12, 1555e9, 300e9, 0, FALSE },        { "a100-pcie-40", 312e12, 1555e9, 31e9, 0, FALSE },
    { "a40", 149.7e12, 696e9, 56.25e9, 0, FALSE },         { "l20", 119.5e12, 864e9, 31e9, 239e12, FALSE },
    { "l40s", 362.05e12, 864e9, 31e9, 733e12, FALSE },     { "rtx-4090", 165.2e12, 1008e9, 31e9, 330.3e12, FALSE },
    { "rtx-5090", 209.5e12, 1792e9, 63e9, 419e12, FALSE }, { "h100", 989e12, 3350e9, 450e9, 1979e12, FALSE },
    { "h100-pcie", 756e12, 2000e9, 63e9, 1513e12, FALSE }, { "h100-96", 989e12, 2400e9, 450e9, 1979e12, FALSE },
    { "h800", 989e12, 3350e9, 200e9, 1979e12, FALSE },     { "h200", 989e12, 4800e9, 450e9, 1979e12, FALSE },
    { "b200", 2250e12, 8000e9, 900e9, 4500e12, FALSE },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autoptr (GError) error = NULL;
    g_autofree char *path = sp_find_shipped ("devices", rows[i].name, &error);
    g_autoptr (SpDevice) device = path != NULL ? sp_device_load (path, &error) : NULL;
    g_assert_no_error (error);
    g_assert_cmpfloat (device->peak_bf16_flops_per_s.value, ==, rows[i].peak);
    g_assert_cmpfloat (device->memory_bytes_per_s.value, ==, rows[i].memory_rate);
    g_assert_cmpfloat (device->link_bytes_per_s.value, ==, rows[i].link);
    g_assert_cmpfloat (device->peak_fp8_flops_per_s.value, ==, rows[i].fp8);
    g_assert_cmpint (device->no_bf16, ==, rows[i].no_bf16);
    /* What a copy to the host goes at is known of every card. */
    g_assert_true (device->pcie_bytes_per_s.value > 0 || rows[i].link <= 63e9);
    /* Chunked linear attention goes by memory, 97 TFLOP/s at 3350 GB/s, up to what a GEMM reaches. */
    double linear = MIN (97e12 * rows[i].memory_rate / 3350e9 / rows[i].peak, device->gemm_efficiency.value);
    g_assert_cmpfloat (fabs (device->linear_efficiency.value / linear - 1), <, 0.05);
  }
}

/* Bridges, sockets and the host's memory, as the files say. */
static void
test_kinds_of_node (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *pairs_path = shipped ("clusters", "a40-1x8-pairs.ini"),
                  *efa_path = shipped ("clusters", "h100-64x8-efa.ini");
  g_autoptr (SpCluster) pairs = sp_cluster_load (pairs_path, &error), efa = sp_cluster_load (efa_path, &error);
  SpTopologySpec spec;

  g_assert_no_error (error);
  g_assert_cmpint (pairs->node, ==, SP_NODE_PAIRS);
  sp_cluster_topology_spec (pairs, &spec);
  g_autoptr (SpTopology) topology = sp_topology_new (&spec, &error);
  g_assert_no_error (error);
  /* 47.5 GB/s on a bridge, 3.86 between pairs of a socket, 1.40 between sockets: a GPU hardware note's all-reduces */
  g_assert_cmpfloat_with_epsilon (spec.link_bytes_per_s, 47.5e9, 0.1e9);
  g_assert_cmpfloat_with_epsilon (spec.uplink_bytes_per_s, 3.86e9, 0.01e9);
  g_assert_cmpfloat_with_epsilon (spec.socket_bytes_per_s, 1.40e9, 0.01e9);
  g_assert_cmpfloat (efa->host_memory_bytes.value, ==, 1.9e12);
  g_assert_cmpfloat (efa->host_bytes_per_s.value, ==, 0.88 * 63e9);
  g_assert_cmpint (efa->host_bytes_per_s.provenance, ==, SP_ASSUMED);
  g_assert_cmpfloat (efa->nics.value * efa->nic_bytes_per_s.value, ==, 400e9);
  g_assert_cmpfloat (pairs->host_memory_bytes.value, ==, 0);
}

static char *
resize (const char *name, gint32 nodes, gint32 gpus, SpCluster **ret)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = sp_find_shipped ("clusters", name, &error);
  *ret = sp_cluster_load (path, &error);
  g_assert_no_error (error);
  return sp_cluster_resize (*ret, nodes, gpus);
}

/* More or fewer nodes of a cluster, or a part of its one. */
static void
test_resize (void)
{
  static const struct {
    const char *name;
    gint32 nodes, gpus;
    const char *problem; /* NULL: none */
  } rows[] = {
    { "h100-64x8-efa", 4, 0, NULL },
    { "h100-64x8-efa", 1, 4, NULL },
    { "h100-128x8", 1, 0, NULL }, /* rails of one node are none */
    { "a100-1x8", 0, 2, NULL },
    { "a100-1x8", 0, 0, NULL },
    { "a100-1x8", 2, 0, "nothing of a network" },
    { "a100-1x8", 1, 16, "at most 8" },
    { "h100-64x8-efa", 2, 4, "expected 8" },
    { "l20-1x8", 1, 4, "only of one node with a switch" },
    { "l20-1x8", 1, 1, NULL }, /* one GPU has no links */
    { "a100-64x8-torus", 1, 1, NULL },
    { "a100-64x8-torus", 1, 0, NULL },
    { "a100-64x8-torus", 8, 0, "the torus is one of 64 nodes" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autoptr (SpCluster) cluster = NULL;
    g_autofree char *problem = resize (rows[i].name, rows[i].nodes, rows[i].gpus, &cluster);
    g_assert_cmpint (problem != NULL, ==, rows[i].problem != NULL);
    if (problem != NULL) {
      g_assert_nonnull (strstr (problem, rows[i].problem));
      continue;
    }
    g_autoptr (GError) error = NULL;
    SpTopologySpec spec;
    sp_cluster_topology_spec (cluster, &spec);
    g_autoptr (SpTopology) topology = sp_topology_new (&spec, &error);
    g_assert_no_error (error);
    gint32 nodes = rows[i].nodes > 0 ? rows[i].nodes : 1, gpus = rows[i].gpus > 0 ? rows[i].gpus : 8;
    g_assert_cmpuint (sp_topology_n_gpus (topology), ==, (guint) (nodes * gpus));
  }
}

static SpScenario *
scenario_on (const char *cluster, const char *run, GError **error)
{
  g_autofree char *text = g_strdup_printf ("[model]\nconfig = tiny\n[cluster]\nfile = %s\n[layout]\ndata = 8\n"
                                           "[run]\nsequence = 1K\n%s",
                                           cluster, run);
  char *path = input_file_new ("scenario.ini", text, -1);
  SpScenario *scenario = sp_scenario_load (path, NULL, error);

  input_file_remove (path);
  return scenario;
}

/* A card without bf16 runs fp16, when asked to; a cluster of more nodes says so when written out. */
static void
test_in_scenario (void)
{
  static const char *const runs[] = { "", "precision = bf16\n" };
  g_autoptr (GError) error = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (runs); i++) {
    g_assert_null (scenario_on ("v100-1x8", runs[i], &error));
    g_assert_nonnull (strstr (error->message, "V100 SXM2 32GB has no bf16, expected fp16"));
    g_clear_error (&error);
  }
  g_autoptr (SpScenario) fp16 = scenario_on ("v100-1x8", "precision = fp16\n", &error);
  g_assert_no_error (error);
  g_assert_true (fp16->cluster->device->no_bf16);
  g_autoptr (SpScenario) efa = scenario_on ("h100-64x8-efa\nnodes = 4", "", &error);
  g_assert_no_error (error);
  g_assert_cmpint (efa->cluster->nodes, ==, 4);
  g_autoptr (GString) text = g_string_new (NULL);
  sp_scenario_write (efa, text);
  g_assert_nonnull (strstr (text->str, "file = h100-64x8-efa.ini\nnodes = 4\n"));
  g_assert_null (scenario_on ("l20-1x8\ngpus-per-node = 4", "", &error));
  g_assert_nonnull (strstr (error->message, "[cluster] gpus-per-node = \"4\": only of one node with a switch"));
}

static void
test_a800_cluster (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = shipped ("clusters", "a800-2x8.ini");
  g_autoptr (SpCluster) cluster = sp_cluster_load (path, &error);
  g_assert_no_error (error);
  g_assert_cmpint (cluster->nodes * cluster->gpus_per_node, ==, 16);
  g_assert_cmpfloat (cluster->device->link_bytes_per_s.value, ==, 200e9);
  g_assert_cmpfloat (cluster->device->peak_bf16_flops_per_s.value, ==, 312e12);
  assert_quantity (&cluster->nics, 8, SP_ASSUMED);
  assert_quantity (&cluster->nic_bytes_per_s, 25e9, SP_ASSUMED);
}

static void
test_frameworks (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *flash = shipped ("frameworks", "flash.ini");
  g_autoptr (SpFramework) a = sp_framework_load (flash, &error);
  g_assert_no_error (error);
  g_assert_true (a->fused_attention && !a->selective_attention && !a->recompute_whole && a->host_eager);
  g_assert_true (a->fp32_logits);
  g_assert_cmpfloat (a->reserved_bytes.value, ==, 1597 * 0x1p20);
  g_autofree char *megatron = shipped ("frameworks", "megatron-2022.ini");
  g_autoptr (SpFramework) b = sp_framework_load (megatron, &error);
  g_assert_no_error (error);
  g_assert_true (!b->fused_attention && b->selective_attention && b->recompute_whole);
}

/* A flag may say where it is from; one that does not has no source. */
static void
test_flags (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = shipped ("frameworks", "deepspeed.ini");
  g_autoptr (SpFramework) f = sp_framework_load (path, &error);
  const SpQuantity *source;
  const char *key, *word;
  guint sourced = 0, row;

  g_assert_no_error (error);
  for (row = 0; (key = sp_framework_flag (f, row, &word, &source)) != NULL; row++) {
    g_assert_true (sp_framework_has_key (key));
    sourced += source->source != NULL;
    if (g_str_equal (key, "chunked-loss")) {
      g_assert_cmpstr (word, ==, "true");
      g_assert_cmpint (source->provenance, ==, SP_PUBLISHED);
      g_assert_nonnull (strstr (source->source, "2506.13996"));
    }
  }
  g_assert_cmpuint (row, ==, SP_N_FRAMEWORK_FLAGS);
  g_assert_cmpuint (sourced, ==, 1);
}

/* What tells the profiles of stacks apart, by name. Of 2 H100: pool over live tensors at least 39362 / 34847 = 1.1296
 * with FSDP2, 38474 / 37686 = 1.0209 with DDP; in use beyond the pool 1597 and 1601 MiB. */
static void
test_stacks (void)
{
  static const struct {
    const char *name;
    gboolean selective_attention, recompute_whole, host_eager, fp32_logits, loss_copies;
    double slack, host_slack, reserved_mib;
    SpProvenance provenance; /* of the slack */
  } rows[] = {
    { "fsdp2", 0, 0, 1, 1, 1, 0.129, 0, 1597, SP_MEASURED },
    { "ddp", 0, 0, 1, 1, 1, 0.02, 0, 1601, SP_MEASURED },
    { "compile", 0, 0, 0, 1, 0, 0.129, 0, 1597, SP_ASSUMED },
    { "megatron-core", 1, 1, 1, 1, 0, 0.02, 0, 1601, SP_ASSUMED },
    { "deepspeed", 0, 1, 1, 1, 1, 0.02, 0.5, 1597, SP_ASSUMED },
    { "llm-foundry", 0, 0, 1, 0, 0, 0.02, 0, 1597, SP_ASSUMED },
    { "flash-linear-attention", 0, 0, 1, 0, 0, 0.129, 0, 1597, SP_ASSUMED },
  };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autoptr (GError) error = NULL;
    g_autofree char *file = g_strconcat (rows[i].name, ".ini", NULL);
    g_autofree char *path = shipped ("frameworks", file);
    g_autoptr (SpFramework) f = sp_framework_load (path, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (f->name, ==, rows[i].name);
    g_assert_true (f->fused_attention);
    g_assert_cmpint (f->selective_attention, ==, rows[i].selective_attention);
    g_assert_cmpint (f->recompute_whole, ==, rows[i].recompute_whole);
    g_assert_cmpint (f->host_eager, ==, rows[i].host_eager);
    g_assert_cmpint (f->fp32_logits, ==, rows[i].fp32_logits);
    g_assert_cmpint (f->loss_copies, ==, rows[i].loss_copies);
    assert_quantity (&f->allocator_slack, rows[i].slack, rows[i].provenance);
    g_assert_cmpfloat (f->host_slack.value, ==, rows[i].host_slack);
    g_assert_cmpfloat (f->reserved_bytes.value, ==, rows[i].reserved_mib * 0x1p20);
  }
}

typedef gboolean (*LoadFunc) (const char *path, GError **error);

static gboolean
load_device (const char *path, GError **error)
{
  g_autoptr (SpDevice) device = sp_device_load (path, error);
  return device != NULL;
}

static gboolean
load_cluster (const char *path, GError **error)
{
  g_autoptr (SpCluster) cluster = sp_cluster_load (path, error);
  return cluster != NULL;
}

static gboolean
load_framework (const char *path, GError **error)
{
  g_autoptr (SpFramework) framework = sp_framework_load (path, error);
  return framework != NULL;
}

/* Every shipped file loads, and no value in it lacks a source. */
static void
test_all_shipped (void)
{
  static const struct {
    const char *folder;
    LoadFunc load;
  } rows[] = { { "devices", load_device }, { "clusters", load_cluster }, { "frameworks", load_framework } };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autofree char *folder = g_build_filename (sp_data_dir (), rows[i].folder, NULL);
    g_autoptr (GDir) dir = g_dir_open (folder, 0, NULL);
    g_assert_nonnull (dir);
    for (const char *name; (name = g_dir_read_name (dir)) != NULL;) {
      g_autoptr (GError) error = NULL;
      g_autofree char *path = shipped (rows[i].folder, name);
      g_assert_true (rows[i].load (path, &error));
      g_assert_no_error (error);
      g_autoptr (GKeyFile) keys = g_key_file_new ();
      g_assert_true (g_key_file_load_from_file (keys, path, G_KEY_FILE_NONE, NULL));
      g_autofree char *group = g_key_file_get_start_group (keys);
      static const char *const unsourced[] = {
        "name", "bf16", "nodes", "gpus-per-node", "device", "fused-attention", "selective", "recompute-whole", "host",
        "fp32-logits", "loss-gradient", "lasp-local", "host-ahead", "glu", "attention-output", "attention-blocks",
        "attention-heads", "gathers", "ends", "gradients", "autocast", "gradient-buckets", "attention-library",
        "sequence-gather", "gather-buffers", "gradient-sums", "network-protocol", "network-algorithm", "shards",
        "state-dict", "data-calls", "tensor-backward", "pipeline-scatter", "ring-of-one",
        /* shapes of networks */
        "node", "gpus-per-switch", "switches-per-socket", "fabric", "nodes-per-leaf", "dims", "groups",
        "routers-per-group", "nodes-per-router", NULL
      };
      g_auto (GStrv) names = g_key_file_get_keys (keys, group, NULL, NULL);
      for (guint k = 0; names[k] != NULL; k++) {
        g_autofree char *source = g_strconcat (names[k], ".source", NULL);
        if (!g_str_has_suffix (names[k], ".source") && !g_strv_contains (unsourced, names[k]))
          g_assert_true (g_key_file_has_key (keys, group, source, NULL));
      }
    }
  }
}

/* --- what must be refused ----------------------------------------------------------------------------------------- */

static const char device[] = "[device]\n"
                             "peak-bf16 = 312 TFLOP/s\n"
                             "peak-bf16.source = datasheet: a data sheet: page 3\n"
                             "peak-fp32 = 19.5 TFLOP/s\n"
                             "sms = 108\n"
                             "memory = 80 GiB\n"
                             "memory-rate = 2039 GB/s\n"
                             "link-rate = 300 GB/s\n"
                             "gemm-efficiency = 80%\n"
                             "attention-efficiency = 0.7\n"
                             "attention-backward-efficiency = 0.6\n"
                             "linear-efficiency = 0.1\n"
                             "memory-efficiency = 0.9\n"
                             "launch = 3 us\n"
                             "overlap-slowdown = 0\n";

static const char cluster[] = "[cluster]\n"
                              "name = two boxes\n"
                              "nodes = 2\n"
                              "gpus-per-node = 8\n"
                              "device = /absent/device.ini\n"
                              "link-efficiency = 0.8\n"
                              "link-latency = 3 us\n"
                              "nics = 8\n"
                              "nic-rate = 200 Gb/s\n"
                              "network-efficiency = 0.9\n"
                              "network-latency = 14 us\n";

static const char framework[] = "[framework]\n"
                                "fused-attention = true\n"
                                "selective = elementwise\n"
                                "recompute-whole = false\n"
                                "host = eager\n"
                                "fp32-logits = true\n"
                                "loss-gradient = in-place\n"
                                "host-launch = 5 us\n"
                                "reserved = 1597 MiB\n"
                                "allocator-slack = 2%\n";

static void
test_unsourced (void)
{
  g_autoptr (GError) error = NULL;
  char *path = input_file_new ("box.ini", device, -1);
  g_autoptr (SpDevice) read = sp_device_load (path, &error);
  g_assert_no_error (error);
  g_assert_cmpstr (read->name, ==, "box");
  g_assert_cmpstr (read->peak_bf16_flops_per_s.source, ==, "a data sheet: page 3");
  g_assert_cmpint (read->sms.provenance, ==, SP_ASSUMED);
  g_assert_null (read->sms.source);
  input_file_remove (path);
}

/* clang-format off */
static const struct Bad {
  const char *name;
  const char *base;
  LoadFunc load;
  const char *from, *to;
  const char *words[4];
} bad[] = {
  { "no-word", device, load_device, "datasheet: a data sheet: page 3", "a data sheet",
    { ": [device] peak-bf16.source = \"a data sheet\"", "measured, published, datasheet or assumed" } },
  { "near-word", device, load_device, "datasheet:", "data-sheet:", { "peak-bf16.source", "did you mean datasheet?" } },
  { "no-text", device, load_device, "datasheet: a data sheet: page 3", "datasheet:",
    { "peak-bf16.source", "a colon" } },
  { "rate", device, load_device, "2039 GB/s", "2039", { ": [device] memory-rate = \"2039\"", "a rate such as" } },
  { "flops", device, load_device, "312 TFLOP/s", "312 TFLOPS", { ": [device] peak-bf16 = ", "did you mean TFLOP/s?" } },
  { "flops-small", device, load_device, "312 TFLOP/s", "0.001 GFLOP/s",
    { ": [device] peak-bf16 = ", "from 100 GFLOP/s" } },
  { "efficiency", device, load_device, "80%", "120%", { ": [device] gemm-efficiency = \"120%\"", "from 0.01 to 1" } },
  { "sms", device, load_device, "108", "108.5", { ": [device] sms = \"108.5\"", "a whole number" } },
  { "missing", device, load_device, "launch = 3 us\n", "", { ": [device] launch: missing", "such as 5 us" } },
  { "unknown", device, load_device, "sms", "sm", { ": [device] sms: missing", "is \"sm\" meant for it?" } },
  { "unknown-source", device, load_device, "sms = 108", "sms = 108\nsmss.source = assumed: a guess",
    { ": [device] smss.source = ", "did you mean sms.source?" } },
  { "twice", device, load_device, "sms = 108", "sms = 108\nsms = 132", { ":6:", "twice" } },
  { "group", device, load_device, "[device]", "[gpu]", { ": [device] peak-bf16: missing" } },
  { "no-device", cluster, load_cluster, "", "", { ": [cluster] device = \"/absent/device.ini\"", "there is no" } },
  { "nodes", cluster, load_cluster, "nodes = 2", "nodes = 0", { ": [cluster] nodes = \"0\"", "from 1 to 65536" } },
  { "no-nics", cluster, load_cluster, "nics = 8\n", "", { ": [cluster] nics: missing" } },
  { "bits", cluster, load_cluster, "200 Gb/s", "200 gbps", { ": [cluster] nic-rate = \"200 gbps\"", "200 Gb/s" } },
  { "fabric", cluster, load_cluster, "nodes = 2", "nodes = 2\nfabric = tours",
    { ": [cluster] fabric = \"tours\"", "did you mean torus?" } },
  { "fabric-key", cluster, load_cluster, "nodes = 2", "nodes = 2\nspines = 3",
    { ": [cluster] spines = \"3\"", "fabric = leaf-spine or rails", "fabric = flat" } },
  { "fabric-needs", cluster, load_cluster, "nodes = 2", "nodes = 2\nfabric = dragonfly\ngroups = 2",
    { ": [cluster] routers-per-group: missing" } },
  { "torus-dims", cluster, load_cluster, "nodes = 2", "nodes = 2\nfabric = torus\ndims = 3x2",
    { ": [cluster] dims = \"3x2\"", "product of nodes = 2" } },
  { "node-needs", cluster, load_cluster, "nodes = 2", "nodes = 2\nnode = pcie",
    { ": [cluster] gpus-per-switch: missing" } },
  { "pairs-odd", cluster, load_cluster, "gpus-per-node = 8",
    "gpus-per-node = 3\nnode = pairs\ngpus-per-switch = 1\nswitches-per-socket = 3",
    { ": [cluster] node = \"pairs\"", "an even number" } },
  { "host-memory", cluster, load_cluster, "nodes = 2", "nodes = 2\nhost-memory = 2000",
    { ": [cluster] host-memory = \"2000\"", "a size such as" } },
  { "fp8", device, load_device, "sms = 108", "sms = 108\npeak-fp8 = 1 GFLOP/s", { ": [device] peak-fp8", "from 100" } },
  { "bf16", device, load_device, "sms = 108", "sms = 108\nbf16 = no", { ": [device] bf16 = \"no\"", "false" } },
  { "noise", cluster, load_cluster, "nodes = 2", "nodes = 2\nnetwork-noise = 200%",
    { ": [cluster] network-noise = \"200%\"", "from 0 to 1" } },
  { "choice", framework, load_framework, "host = eager", "host = compiled",
    { ": [framework] host = ", "graph, eager" } },
  { "selective", framework, load_framework, "elementwise", "norms", { ": [framework] selective = ", "attention" } },
  { "flag", framework, load_framework, "fp32-logits = true\n", "", { ": [framework] fp32-logits: missing" } },
  { "flag-rumour", framework, load_framework, "host = eager\n", "host = eager\nhost.source = rumour: somebody\n",
    { ": [framework] host.source", "measured, published, datasheet or assumed" } },
  { "flag-of-nothing", framework, load_framework, "host = eager\n", "host = eager\nchunked-loss.source = assumed: x\n",
    { ": [framework] chunked-loss.source", "a source of nothing" } },
  { "slack", framework, load_framework, "2%", "nan", { ": [framework] allocator-slack = \"nan\"", "a fraction" } },
};
/* clang-format on */

static void
test_bad (gconstpointer data)
{
  const struct Bad *row = data;
  g_autofree char *text = input_file_replace (row->base, row->from, row->to);
  char *path = input_file_new ("bad.ini", text, -1);
  g_autoptr (GError) error = NULL;
  g_assert_false (row->load (path, &error));
  input_file_assert_error (error, path, row->words);
  input_file_remove (path);
}

/* A single node needs no network; a source of what is not there is a mistake. */
static void
test_single_node (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *device_path = shipped ("devices", "h100.ini");
  g_autofree char *absolute = g_canonicalize_filename (device_path, NULL);
  g_autofree char *text = g_strdup_printf ("[cluster]\nnodes = 1\ngpus-per-node = 4\ndevice = %s\n"
                                           "link-efficiency = 0.8\nlink-latency = 0\n",
                                           absolute);
  char *path = input_file_new ("one.ini", text, -1);
  g_autoptr (SpCluster) read = sp_cluster_load (path, &error);
  g_assert_no_error (error);
  g_assert_cmpstr (read->name, ==, "one");
  g_assert_cmpfloat (read->nics.value, ==, 0);
  input_file_remove (path);

  g_autofree char *more = g_strconcat (text, "nics.source = assumed: none\n", NULL);
  path = input_file_new ("one.ini", more, -1);
  g_assert_null (sp_cluster_load (path, &error));
  input_file_assert_error (error, path, (const char *const[]){ "[cluster] nics.source", "expected nics", NULL });
  input_file_remove (path);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/hardware/h100", test_h100);
  g_test_add_func ("/hardware/a800-cluster", test_a800_cluster);
  g_test_add_func ("/hardware/cards", test_cards);
  g_test_add_func ("/hardware/kinds-of-node", test_kinds_of_node);
  g_test_add_func ("/hardware/resize", test_resize);
  g_test_add_func ("/hardware/in-scenario", test_in_scenario);
  g_test_add_func ("/hardware/frameworks", test_frameworks);
  g_test_add_func ("/hardware/flags", test_flags);
  g_test_add_func ("/hardware/stacks", test_stacks);
  g_test_add_func ("/hardware/all-shipped", test_all_shipped);
  g_test_add_func ("/hardware/unsourced", test_unsourced);
  g_test_add_func ("/hardware/single-node", test_single_node);
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++) {
    g_autofree char *name = g_strconcat ("/hardware/bad/", bad[i].name, NULL);
    g_test_add_data_func (name, &bad[i], test_bad);
  }
  return g_test_run ();
}
