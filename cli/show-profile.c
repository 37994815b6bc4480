/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar show device|cluster|framework: every value with its unit, provenance and source. */
#include <string.h>

#include "cli/cli.h"
#include "models/inputs/ini.h"

typedef struct {
  const char *key; /* as in the file */
  SpUnit unit;
  gsize offset;      /* of an SpQuantity */
  gboolean optional; /* not shown where it is 0 */
} Row;

#define MAYBE(type, key, unit, name)                                                                                   \
  {                                                                                                                    \
    key, unit, G_STRUCT_OFFSET (type, name), TRUE                                                                      \
  }
#define DEVICE(key, unit, name)                                                                                        \
  {                                                                                                                    \
    key, unit, G_STRUCT_OFFSET (SpDevice, name)                                                                        \
  }
static const Row device_rows[] = {
  DEVICE ("peak-bf16", SP_UNIT_FLOPS_PER_S, peak_bf16_flops_per_s),
  DEVICE ("peak-fp32", SP_UNIT_FLOPS_PER_S, peak_fp32_flops_per_s),
  MAYBE (SpDevice, "peak-fp8", SP_UNIT_FLOPS_PER_S, peak_fp8_flops_per_s),
  DEVICE ("memory", SP_UNIT_BYTES, memory_bytes),
  DEVICE ("memory-rate", SP_UNIT_BYTES_PER_S, memory_bytes_per_s),
  DEVICE ("sms", SP_UNIT_COUNT, sms),
  DEVICE ("launch", SP_UNIT_SECONDS, launch_s),
  DEVICE ("gemm-efficiency", SP_UNIT_FRACTION, gemm_efficiency),
  DEVICE ("attention-efficiency", SP_UNIT_FRACTION, attention_efficiency),
  DEVICE ("attention-backward-efficiency", SP_UNIT_FRACTION, attention_backward_efficiency),
  DEVICE ("linear-efficiency", SP_UNIT_FRACTION, linear_efficiency),
  DEVICE ("memory-efficiency", SP_UNIT_FRACTION, memory_efficiency),
  DEVICE ("link-rate", SP_UNIT_BYTES_PER_S, link_bytes_per_s),
  MAYBE (SpDevice, "flash-efficiency", SP_UNIT_FRACTION, flash_efficiency),
  MAYBE (SpDevice, "flash-backward-efficiency", SP_UNIT_FRACTION, flash_backward_efficiency),
  MAYBE (SpDevice, "unaligned-efficiency", SP_UNIT_FRACTION, unaligned_efficiency),
  MAYBE (SpDevice, "pcie-rate", SP_UNIT_BYTES_PER_S, pcie_bytes_per_s),
  DEVICE ("overlap-slowdown", SP_UNIT_FRACTION, overlap_slowdown),
};

#define CLUSTER(key, unit, name)                                                                                       \
  {                                                                                                                    \
    key, unit, G_STRUCT_OFFSET (SpCluster, name)                                                                       \
  }
#define N_LINK_ROWS 5 /* the rest are of the network between nodes */
static const Row cluster_rows[] = {
  CLUSTER ("link-efficiency", SP_UNIT_FRACTION, link_efficiency),
  CLUSTER ("link-latency", SP_UNIT_SECONDS, link_latency_s),
  MAYBE (SpCluster, "host-memory", SP_UNIT_BYTES, host_memory_bytes),
  MAYBE (SpCluster, "host-rate", SP_UNIT_BYTES_PER_S, host_bytes_per_s),
  MAYBE (SpCluster, "host-memory-rate", SP_UNIT_BYTES_PER_S, host_memory_bytes_per_s),
  CLUSTER ("nics", SP_UNIT_COUNT, nics),
  CLUSTER ("nic-rate", SP_UNIT_BYTES_PER_S, nic_bytes_per_s),
  CLUSTER ("network-efficiency", SP_UNIT_FRACTION, network_efficiency),
  CLUSTER ("network-latency", SP_UNIT_SECONDS, network_latency_s),
};

#define FRAMEWORK(key, unit, name)                                                                                     \
  {                                                                                                                    \
    key, unit, G_STRUCT_OFFSET (SpFramework, name)                                                                     \
  }
static const Row framework_rows[] = {
  FRAMEWORK ("host-launch", SP_UNIT_SECONDS, host_launch_s),
  FRAMEWORK ("reserved", SP_UNIT_BYTES, reserved_bytes),
  FRAMEWORK ("allocator-slack", SP_UNIT_FRACTION, allocator_slack),
  MAYBE (SpFramework, "host-slack", SP_UNIT_FRACTION, host_slack),
  MAYBE (SpFramework, "workspace", SP_UNIT_BYTES, workspace_bytes),
  MAYBE (SpFramework, "run-ahead", SP_UNIT_NUMBER, run_ahead),
  MAYBE (SpFramework, "crowded-time", SP_UNIT_NUMBER, crowded_time),
  MAYBE (SpFramework, "host-gather", SP_UNIT_SECONDS, host_gather_s),
  MAYBE (SpFramework, "host-step", SP_UNIT_SECONDS, host_step_s),
  MAYBE (SpFramework, "host-slot", SP_UNIT_SECONDS, host_slot_s),
  MAYBE (SpFramework, "host-stall", SP_UNIT_FRACTION, host_stall),
  MAYBE (SpFramework, "elementwise-time", SP_UNIT_NUMBER, elementwise_time),
  MAYBE (SpFramework, "merge-time", SP_UNIT_NUMBER, merge_time),
  MAYBE (SpFramework, "pack-time", SP_UNIT_NUMBER, pack_time),
  MAYBE (SpFramework, "softmax-time", SP_UNIT_NUMBER, softmax_time),
  MAYBE (SpFramework, "attention-time", SP_UNIT_NUMBER, attention_time),
  MAYBE (SpFramework, "gemm-time", SP_UNIT_NUMBER, gemm_time),
  MAYBE (SpFramework, "optimizer-time", SP_UNIT_NUMBER, optimizer_time),
  MAYBE (SpFramework, "collective-wait", SP_UNIT_SECONDS, collective_wait_s),
  MAYBE (SpFramework, "rank-wait", SP_UNIT_SECONDS, rank_wait_s),
  MAYBE (SpFramework, "network-wait", SP_UNIT_SECONDS, network_wait_s),
  MAYBE (SpFramework, "shard-copies", SP_UNIT_BYTES, shard_copies),
  MAYBE (SpFramework, "shard-time", SP_UNIT_NUMBER, shard_time),
  MAYBE (SpFramework, "linear-time", SP_UNIT_NUMBER, linear_time),
  MAYBE (SpFramework, "linear-backward-time", SP_UNIT_NUMBER, linear_backward_time),
  MAYBE (SpFramework, "attention-causal-time", SP_UNIT_NUMBER, attention_causal_time),
  MAYBE (SpFramework, "attention-head-power", SP_UNIT_NUMBER, attention_head_power),
};

static const char *
unit_name (SpUnit unit)
{
  switch (unit) {
  case SP_UNIT_BYTES:
    return "bytes";
  case SP_UNIT_BYTES_PER_S:
    return "bytes/s";
  case SP_UNIT_SECONDS:
    return "s";
  case SP_UNIT_FLOPS_PER_S:
    return "FLOP/s";
  case SP_UNIT_FRACTION:
    return "fraction";
  default:
    return "count";
  }
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static const SpQuantity *
quantity_of (const Row *row, gconstpointer base)
{
  return (const SpQuantity *) (gconstpointer) ((const char *) base + row->offset);
}

static void
add_sourced (SpTable *table, const char *key, const char *value, const SpQuantity *of)
{
  sp_table_cell (table, key);
  sp_table_cell (table, value);
  sp_table_cell (table, sp_provenance_name (of->provenance));
  sp_table_cell (table, of->source != NULL ? of->source : "");
}

static void
add_rows (SpTable *table, const Row *rows, guint n, gconstpointer base)
{
  for (guint i = 0; i < n; i++) {
    const SpQuantity *q = quantity_of (&rows[i], base);
    if (rows[i].optional && q->value == 0)
      continue;
    g_autofree char *value = sp_format_quantity (q->value, rows[i].unit);
    add_sourced (table, rows[i].key, value, q);
  }
}

static void
add_plain (SpTable *table, const char *key, const char *value)
{
  sp_table_cell (table, key);
  sp_table_cell (table, value);
  sp_table_cell (table, "");
  sp_table_cell (table, "");
}

static void
add_values_json (JsonBuilder *builder, const Row *rows, guint n, gconstpointer base)
{
  sp_json_object (builder, "values");
  for (guint i = 0; i < n; i++) {
    const SpQuantity *q = quantity_of (&rows[i], base);
    if (rows[i].optional && q->value == 0)
      continue;
    sp_json_object (builder, rows[i].key);
    sp_json_number (builder, "value", q->value);
    sp_json_string (builder, "unit", unit_name (rows[i].unit));
    sp_json_string (builder, "provenance", sp_provenance_name (q->provenance));
    sp_json_string (builder, "source", q->source);
    json_builder_end_object (builder);
  }
  json_builder_end_object (builder);
}

/* --- device ------------------------------------------------------------------------------------------------------- */

static void
add_device_text (const SpDevice *device, GString *out)
{
  g_autoptr (SpTable) table = sp_table_new ("llll");
  add_rows (table, device_rows, G_N_ELEMENTS (device_rows), device);
  g_string_append_printf (out, "device %s%s\n", device->name, device->no_bf16 ? " (no bf16: peak-bf16 is fp16's)" : "");
  sp_table_print (table, 2, out);
}

static void
add_device_json (JsonBuilder *builder, const SpDevice *device)
{
  sp_json_string (builder, "name", device->name);
  sp_json_bool (builder, "bf16", !device->no_bf16);
  add_values_json (builder, device_rows, G_N_ELEMENTS (device_rows), device);
}

gboolean
sp_show_device (const SpShow *show, GString *out, GError **error)
{
  g_autofree char *path = g_file_test (show->file, G_FILE_TEST_EXISTS) || strchr (show->file, G_DIR_SEPARATOR) != NULL
                              ? g_strdup (show->file)
                              : sp_find_shipped ("devices", show->file, error);
  g_autoptr (SpDevice) device = path != NULL ? sp_device_load (path, error) : NULL;
  if (device == NULL)
    return FALSE;
  if (!show->json) {
    add_device_text (device, out);
    return TRUE;
  }
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  json_builder_begin_object (builder);
  add_device_json (builder, device);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

/* --- cluster ------------------------------------------------------------------------------------------------------ */

/* One node need not say what its network is. */
static guint
count_rows (const SpCluster *cluster)
{
  return cluster->nodes > 1 || cluster->nic_bytes_per_s.value > 0 ? G_N_ELEMENTS (cluster_rows) : N_LINK_ROWS;
}

static void
add_cluster_text (const SpCluster *cluster, GString *out)
{
  g_autoptr (SpTable) table = sp_table_new ("llll");
  g_autofree char *nodes = g_strdup_printf ("%d", cluster->nodes);
  g_autofree char *gpus = g_strdup_printf ("%d", cluster->gpus_per_node);
  add_plain (table, "nodes", nodes);
  add_plain (table, "gpus-per-node", gpus);
  add_rows (table, cluster_rows, count_rows (cluster), cluster);
  g_string_append_printf (out, "cluster %s\n", cluster->name);
  sp_table_print (table, 2, out);
  g_string_append_c (out, '\n');
  add_device_text (cluster->device, out);
}

gboolean
sp_show_cluster (const SpShow *show, GString *out, GError **error)
{
  g_autofree char *path = sp_find_cluster (show->file, error);
  g_autoptr (GError) problem = NULL;
  g_autoptr (SpTopologyDump) dump = path != NULL ? sp_topology_dump_load (path, &problem) : NULL;
  if (dump != NULL)
    return sp_show_dump (dump, show->json, out, error);
  if (problem != NULL) {
    g_propagate_error (error, g_steal_pointer (&problem));
    return FALSE;
  }
  g_autoptr (SpCluster) cluster = path != NULL ? sp_cluster_load (path, error) : NULL;
  if (cluster == NULL)
    return FALSE;
  if (!show->json) {
    add_cluster_text (cluster, out);
    return sp_show_network_text (cluster, out, error);
  }
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  json_builder_begin_object (builder);
  sp_json_string (builder, "name", cluster->name);
  sp_json_whole (builder, "nodes", cluster->nodes);
  sp_json_whole (builder, "gpus_per_node", cluster->gpus_per_node);
  add_values_json (builder, cluster_rows, count_rows (cluster), cluster);
  sp_json_object (builder, "device");
  add_device_json (builder, cluster->device);
  json_builder_end_object (builder);
  if (!sp_show_network_json (builder, cluster, error))
    return FALSE;
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

/* --- framework ---------------------------------------------------------------------------------------------------- */

static void
add_framework_text (const SpFramework *framework, GString *out)
{
  g_autoptr (SpTable) table = sp_table_new ("llll");
  const char *key, *word;
  const SpQuantity *of;

  for (guint i = 0; (key = sp_framework_flag (framework, i, &word, &of)) != NULL; i++)
    if (of->source == NULL)
      add_plain (table, key, word);
    else
      add_sourced (table, key, word, of);
  if (framework->attention_library != NULL)
    add_plain (table, "attention-library", framework->attention_library);
  add_rows (table, framework_rows, G_N_ELEMENTS (framework_rows), framework);
  g_string_append_printf (out, "framework %s\n", framework->name);
  sp_table_print (table, 2, out);
}

gboolean
sp_show_framework (const SpShow *show, GString *out, GError **error)
{
  g_autofree char *path = sp_find_framework (show->file, error);
  g_autoptr (SpFramework) framework = path != NULL ? sp_framework_load (path, error) : NULL;
  const char *key, *word;
  const SpQuantity *of;

  if (framework == NULL)
    return FALSE;
  if (!show->json) {
    add_framework_text (framework, out);
    return TRUE;
  }
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  json_builder_begin_object (builder);
  sp_json_string (builder, "name", framework->name);
  sp_json_object (builder, "flags");
  for (guint i = 0; (key = sp_framework_flag (framework, i, &word, &of)) != NULL; i++)
    sp_json_string (builder, key, word);
  if (framework->attention_library != NULL)
    sp_json_string (builder, "attention-library", framework->attention_library);
  json_builder_end_object (builder);
  add_values_json (builder, framework_rows, G_N_ELEMENTS (framework_rows), framework);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}
