/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/hardware-private.h"

#include <math.h>
#include <string.h>

#include "models/inputs/profile.h"
#include "models/inputs/topology-dump.h"

#define FIELD(name) G_STRUCT_OFFSET (SpCluster, name)

static const SpQuantityKey link_keys[] = {
  { "link-efficiency", SP_UNIT_FRACTION, 0.01, 1, FIELD (link_efficiency) },
  { "link-latency", SP_UNIT_SECONDS, 0, 1e-2, FIELD (link_latency_s) },
};

/* Needed only by a cluster of more than one node. */
static const SpQuantityKey network_keys[] = {
  { "nics", SP_UNIT_COUNT, 1, 1024, FIELD (nics) },
  { "nic-rate", SP_UNIT_BYTES_PER_S, 1e7, 1e13, FIELD (nic_bytes_per_s) },
  { "network-efficiency", SP_UNIT_FRACTION, 0.01, 1, FIELD (network_efficiency) },
  { "network-latency", SP_UNIT_SECONDS, 0, 1e-1, FIELD (network_latency_s) },
};

static const SpQuantityKey optional_keys[] = {
  { "host-memory", SP_UNIT_BYTES, 1e9, 1e15, FIELD (host_memory_bytes) },
  { "host-rate", SP_UNIT_BYTES_PER_S, 1e8, 1e13, FIELD (host_bytes_per_s) },
  { "host-memory-rate", SP_UNIT_BYTES_PER_S, 1e9, 1e14, FIELD (host_memory_bytes_per_s) },
  { "network-noise", SP_UNIT_FRACTION, 0, 1, FIELD (network_noise) },
};

/* --- keys of one kind or another ---------------------------------------------------------------------------------- */

#define OF(kind) (1u << (kind))
#define OF_PCIE (OF (SP_NODE_PCIE) | OF (SP_NODE_PAIRS))
#define OF_TREES (OF (SP_FABRIC_LEAF_SPINE) | OF (SP_FABRIC_RAILS))
#define OF_ROUTERS (OF (SP_FABRIC_TORUS) | OF (SP_FABRIC_DRAGONFLY))

typedef enum { PLAIN, QUANTITY } KindKeyType;

/* A count (from 1), or a quantity. Those that are required by their kinds, or have a default. */
static const struct {
  SpQuantityKey key;
  KindKeyType type;
  gboolean of_fabric; /* else of the node */
  guint kinds;
  gboolean required;
} kind_keys[] = {
  { { "gpus-per-switch", SP_UNIT_COUNT, 1, 1024, FIELD (gpus_per_switch) }, PLAIN, FALSE, OF_PCIE, TRUE },
  { { "switches-per-socket", SP_UNIT_COUNT, 1, 1024, FIELD (switches_per_socket) }, PLAIN, FALSE, OF_PCIE, TRUE },
  { { "uplink-rate", SP_UNIT_BYTES_PER_S, 1e8, 1e14, FIELD (uplink_bytes_per_s) }, QUANTITY, FALSE, OF_PCIE, FALSE },
  { { "socket-rate", SP_UNIT_BYTES_PER_S, 1e8, 1e14, FIELD (socket_bytes_per_s) }, QUANTITY, FALSE, OF_PCIE, FALSE },
  { { "nodes-per-leaf", SP_UNIT_COUNT, 1, 1 << 16, FIELD (nodes_per_leaf) }, PLAIN, TRUE, OF_TREES, TRUE },
  { { "spines", SP_UNIT_COUNT, 1, 1 << 12, FIELD (spines) }, PLAIN, TRUE, OF_TREES, FALSE },
  { { "oversubscription", SP_UNIT_FRACTION, 0.1, 100, FIELD (oversubscription) }, QUANTITY, TRUE, OF_TREES, FALSE },
  { { "groups", SP_UNIT_COUNT, 1, 1 << 16, FIELD (groups) }, PLAIN, TRUE, OF (SP_FABRIC_DRAGONFLY), TRUE },
  { { "routers-per-group", SP_UNIT_COUNT, 1, 1 << 16, FIELD (routers_per_group) },
    PLAIN,
    TRUE,
    OF (SP_FABRIC_DRAGONFLY),
    TRUE },
  { { "nodes-per-router", SP_UNIT_COUNT, 1, 1 << 16, FIELD (nodes_per_router) },
    PLAIN,
    TRUE,
    OF (SP_FABRIC_DRAGONFLY),
    FALSE },
  { { "router-rate", SP_UNIT_BYTES_PER_S, 1e7, 1e15, FIELD (router_bytes_per_s) }, QUANTITY, TRUE, OF_ROUTERS, FALSE },
  { { "global-rate", SP_UNIT_BYTES_PER_S, 1e7, 1e15, FIELD (global_bytes_per_s) },
    QUANTITY,
    TRUE,
    OF (SP_FABRIC_DRAGONFLY),
    FALSE },
  { { "hop-latency", SP_UNIT_SECONDS, 0, 1e-2, FIELD (hop_latency_s) }, QUANTITY, TRUE, OF_TREES | OF_ROUTERS, FALSE },
};
#undef FIELD

static const char *
kind_name (gboolean of_fabric, guint kind)
{
  return of_fabric ? sp_fabric_kind_name ((SpFabricKind) kind) : sp_node_kind_name ((SpNodeKind) kind);
}

static char *
kinds_text (gboolean of_fabric, guint kinds)
{
  GString *text = g_string_new (NULL);

  for (guint kind = 0; kind < (of_fabric ? SP_N_FABRIC_KINDS : SP_N_NODE_KINDS); kind++)
    if (kinds & OF (kind))
      g_string_append_printf (text, "%s%s", text->len > 0 ? " or " : "", kind_name (of_fabric, kind));
  return g_string_free (text, FALSE);
}

static gboolean
refuse_other_kind (SpIni *ini, const char *key, gboolean of_fabric, guint kinds, guint kind, GError **error)
{
  g_autofree char *text = kinds_text (of_fabric, kinds);
  const char *what = of_fabric ? "fabric" : "node";

  return sp_ini_refuse (ini, "cluster", key, error, "a key of %s = %s; here %s = %s", what, text, what,
                        kind_name (of_fabric, kind));
}

static gboolean
read_kind_keys (SpIni *ini, SpCluster *cluster, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (kind_keys); i++) {
    const SpQuantityKey *key = &kind_keys[i].key;
    guint kind = kind_keys[i].of_fabric ? cluster->fabric : cluster->node;
    SpIniNeed need = kind_keys[i].required ? SP_INI_REQUIRED : SP_INI_OPTIONAL;
    gboolean has = sp_ini_has (ini, "cluster", key->key);
    if (!(kind_keys[i].kinds & OF (kind))) {
      if (has)
        return refuse_other_kind (ini, key->key, kind_keys[i].of_fabric, kind_keys[i].kinds, kind, error);
      continue;
    }
    if (kind_keys[i].type == QUANTITY) {
      if (!sp_read_quantities (ini, "cluster", key, 1, need, cluster, error))
        return FALSE;
    } else if (!sp_ini_int (ini, "cluster", key->key, need, (gint64) key->min, (gint64) key->max,
                            (gint32 *) G_STRUCT_MEMBER_P (cluster, key->offset), error))
      return FALSE;
  }
  return TRUE;
}

/* 4x4x2. */
static gboolean
read_dims (SpIni *ini, SpCluster *cluster, GError **error)
{
  g_autofree char *text = NULL;
  gint64 product = 1, way = 0;

  if (cluster->fabric != SP_FABRIC_TORUS)
    return !sp_ini_has (ini, "cluster", "dims") ||
           refuse_other_kind (ini, "dims", TRUE, OF (SP_FABRIC_TORUS), cluster->fabric, error);
  if (!sp_ini_string (ini, "cluster", "dims", SP_INI_REQUIRED, &text, error))
    return FALSE;
  g_auto (GStrv) parts = g_strsplit (text, "x", -1);
  guint n = g_strv_length (parts);
  for (guint i = 0; i < n && n <= SP_TOPOLOGY_MAX_DIMS; i++) {
    guint64 size;
    if (!g_ascii_string_to_unsigned (g_strstrip (parts[i]), 10, 1, 1 << 16, &size, NULL)) {
      n = 0;
      break;
    }
    cluster->dims[i] = (gint32) size;
    product *= (gint64) size;
    way += (gint64) size / 2;
  }
  if (n == 0 || n > SP_TOPOLOGY_MAX_DIMS)
    return sp_ini_refuse (ini, "cluster", "dims", error, "expected one to %d sizes such as 8x8x4",
                          SP_TOPOLOGY_MAX_DIMS);
  if (product != cluster->nodes)
    return sp_ini_refuse (ini, "cluster", "dims", error, "%" G_GINT64_FORMAT " nodes, expected a product of nodes = %d",
                          product, cluster->nodes);
  if (way > SP_TOPOLOGY_MAX_ROUTE / 2)
    return sp_ini_refuse (ini, "cluster", "dims", error,
                          "a way of %" G_GINT64_FORMAT " hops, expected at most %d (half of each size, added up)", way,
                          SP_TOPOLOGY_MAX_ROUTE / 2);
  cluster->n_dims = (gint32) n;
  return TRUE;
}

static gboolean
check_pcie (SpIni *ini, SpCluster *cluster, GError **error)
{
  gint32 gpus = cluster->gpus_per_node, per_switch = cluster->gpus_per_switch, per_socket;

  if (!(OF (cluster->node) & OF_PCIE))
    return TRUE;
  if (cluster->node == SP_NODE_PAIRS && gpus % 2 != 0)
    return sp_ini_refuse (ini, "cluster", "node", error, "expected an even number of GPUs; gpus-per-node = %d", gpus);
  if (gpus % per_switch != 0)
    return sp_ini_refuse (ini, "cluster", "gpus-per-switch", error, "expected a divisor of gpus-per-node = %d", gpus);
  per_socket = cluster->switches_per_socket;
  if (gpus / per_switch % per_socket != 0)
    return sp_ini_refuse (ini, "cluster", "switches-per-socket", error, "expected a divisor of the node's %d switches",
                          gpus / per_switch);
  if (gpus / per_switch > per_socket && cluster->socket_bytes_per_s.value == 0)
    return sp_input_fail (error, SP_INPUT_ERROR_KEY,
                          "%s: [cluster] socket-rate: missing, expected a rate such as 20 GB/s between the node's %d "
                          "sockets",
                          sp_ini_path (ini), gpus / per_switch / per_socket);
  return TRUE;
}

static gboolean
check_dragonfly (SpIni *ini, SpCluster *cluster, GError **error)
{
  gint64 routers = (gint64) cluster->groups * cluster->routers_per_group;

  if (cluster->fabric != SP_FABRIC_DRAGONFLY)
    return TRUE;
  if (cluster->nodes % routers != 0)
    return sp_ini_refuse (ini, "cluster", "groups", error,
                          "%" G_GINT64_FORMAT " routers do not divide nodes = %d into equal parts", routers,
                          cluster->nodes);
  if (cluster->nodes_per_router == 0)
    cluster->nodes_per_router = (gint32) (cluster->nodes / routers);
  if (cluster->nodes_per_router * routers != cluster->nodes)
    return sp_ini_refuse (ini, "cluster", "nodes-per-router", error, "expected nodes / routers = %" G_GINT64_FORMAT,
                          cluster->nodes / routers);
  return TRUE;
}

static void
set_default (SpQuantity *quantity, double value, const char *source)
{
  if (quantity->value != 0)
    return;
  *quantity = (SpQuantity){ value, SP_ASSUMED, g_strdup (source) };
}

/* Host to device on an H200, 55.4 of 63 GB/s: stas00/ml-engineering. */
#define PCIE_REACHED 0.88

static void
set_defaults (SpCluster *c)
{
  double adapters = c->nics.value * c->nic_bytes_per_s.value, pcie = c->device->pcie_bytes_per_s.value;

  set_default (&c->host_bytes_per_s, pcie > 0 ? PCIE_REACHED * pcie : 25e9,
               pcie > 0 ? "by default 88 % of the device's PCIe rate, as copies reach on an H200"
                        : "by default PCIe 4.0 x16 as copies reach it");
  set_default (&c->host_memory_bytes_per_s, 136e9, "by default two sockets of six channels, about half their peak");
  if (OF (c->node) & OF_PCIE) {
    if (c->node == SP_NODE_PAIRS)
      set_default (&c->uplink_bytes_per_s, pcie, "by default the device's PCIe rate");
    else
      set_default (&c->uplink_bytes_per_s, c->device->link_bytes_per_s.value, "by default the device's link rate");
    if (c->socket_bytes_per_s.value == 0)
      c->socket_bytes_per_s.value = c->uplink_bytes_per_s.value; /* one socket: no link has it */
  }
  if (c->nodes == 1)
    return;
  if (OF (c->fabric) & OF_TREES) {
    set_default (&c->oversubscription, 1, "by default none");
    double leaf = c->nodes_per_leaf * (c->fabric == SP_FABRIC_RAILS ? 1 : MIN (c->nics.value, c->gpus_per_node));
    if (c->spines == 0)
      c->spines = (gint32) CLAMP (rint (leaf / c->oversubscription.value), 1, 1 << 12);
  }
  if (c->fabric == SP_FABRIC_TORUS)
    set_default (&c->router_bytes_per_s, adapters, "by default a node's adapters together");
  if (c->fabric == SP_FABRIC_DRAGONFLY) {
    double router = adapters * c->nodes_per_router;
    set_default (&c->router_bytes_per_s, router, "by default the adapters of a router's nodes together");
    set_default (&c->global_bytes_per_s, router * c->routers_per_group / MAX (1, c->groups - 1),
                 "by default the adapters of a group's nodes, over the other groups");
  }
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* What NCCL has between nodes. */
static gboolean
read_network (SpIni *ini, SpCluster *cluster, GError **error)
{
  static const char *const protocols[] = { "any", "simple", NULL }, *const algorithms[] = { "any", "ring", NULL };
  guint8 simple = 0, rings = 0;

  if (!sp_ini_choice (ini, "cluster", "network-protocol", SP_INI_OPTIONAL, protocols, &simple, error) ||
      !sp_ini_choice (ini, "cluster", "network-algorithm", SP_INI_OPTIONAL, algorithms, &rings, error))
    return FALSE;
  cluster->simple_network = simple;
  cluster->ring_network = rings;
  return TRUE;
}

static gboolean
read_kinds (SpIni *ini, SpCluster *cluster, GError **error)
{
  const char *nodes[SP_N_NODE_KINDS + 1] = { NULL }, *fabrics[SP_N_FABRIC_KINDS + 1] = { NULL };

  for (guint kind = 0; kind < SP_N_NODE_KINDS; kind++)
    nodes[kind] = sp_node_kind_name ((SpNodeKind) kind);
  for (guint kind = 0; kind < SP_N_FABRIC_KINDS; kind++)
    fabrics[kind] = sp_fabric_kind_name ((SpFabricKind) kind);
  if (!sp_ini_choice (ini, "cluster", "node", SP_INI_OPTIONAL, nodes, &cluster->node, error) ||
      !sp_ini_choice (ini, "cluster", "fabric", SP_INI_OPTIONAL, fabrics, &cluster->fabric, error))
    return FALSE;
  if (cluster->nodes == 1 && cluster->fabric != SP_FABRIC_FLAT)
    return sp_ini_refuse (ini, "cluster", "fabric", error, "one node has no network, expected flat or more nodes");
  return read_kind_keys (ini, cluster, error) && read_dims (ini, cluster, error) && check_pcie (ini, cluster, error) &&
         check_dragonfly (ini, cluster, error);
}

static SpDevice *
load_device (SpIni *ini, const char *path, const char *device, GError **error)
{
  g_autofree char *folder = g_path_get_dirname (path);
  g_autofree char *device_path =
      g_path_is_absolute (device) ? g_strdup (device) : g_build_filename (folder, device, NULL);

  if (!g_file_test (device_path, G_FILE_TEST_EXISTS)) {
    sp_ini_refuse (ini, "cluster", "device", error, "expected the file of a device; there is no %s", device_path);
    return NULL;
  }
  return sp_device_load (device_path, error);
}

static gboolean
load_profile (SpIni *ini, const char *path, const char *profile, SpCluster *cluster, GError **error)
{
  g_autofree char *folder = g_path_get_dirname (path);
  g_autofree char *profile_path =
      g_path_is_absolute (profile) ? g_strdup (profile) : g_build_filename (folder, profile, NULL);

  if (!g_file_test (profile_path, G_FILE_TEST_EXISTS))
    return sp_ini_refuse (ini, "cluster", "profile", error, "expected the file of a profile; there is no %s",
                          profile_path);
  cluster->profile = sp_profile_load (profile_path, error);
  return cluster->profile != NULL;
}

/* In-switch reduction needs a switch, pairs a way between them. */
static gboolean
check_device (SpIni *ini, const SpCluster *cluster, GError **error)
{
  if (cluster->node == SP_NODE_PAIRS && cluster->device->pcie_bytes_per_s.value == 0)
    return sp_ini_refuse (ini, "cluster", "node", error, "pairs need a device with pcie-rate, which %s has not",
                          cluster->device->name);
  if (!cluster->device->nvls || cluster->node == SP_NODE_SWITCH)
    return TRUE;
  return sp_ini_refuse (ini, "cluster", "node", error, "the device has nvls = true, which needs node = switch");
}

SpCluster *
sp_cluster_load (const char *path, GError **error)
{
  gsize length;
  g_autofree char *bytes = sp_read_input_bytes (path, &length, NULL);
  gboolean dump = bytes != NULL && sp_topology_dump_recognise (bytes, length) != SP_DUMP_NONE;
  g_autofree char *text = dump ? g_steal_pointer (&bytes) : sp_read_input (path, &length, error);
  SpCluster *cluster = text != NULL ? sp_cluster_parse (path, text, length, error) : NULL;

  if (text != NULL && cluster == NULL)
    sp_input_say_kind (path, SP_KIND_CLUSTER, error);
  return cluster;
}

SpCluster *
sp_cluster_parse (const char *path, const char *text, gsize length, GError **error)
{
  /* What nvidia-smi or NCCL says of a machine names no card. */
  if (sp_topology_dump_recognise (text, length) != SP_DUMP_NONE) {
    sp_input_fail (error, SP_INPUT_ERROR_FILE,
                   "%s: a dump of a machine's topology, which names no card: expected a cluster's INI, or in a "
                   "scenario's [cluster] group file = this one with device = FILE (and nodes = N)",
                   path);
    return NULL;
  }
  g_autoptr (SpIni) ini = sp_ini_parse (path, text, length, error);
  if (ini == NULL)
    return NULL;
  g_autoptr (SpCluster) cluster = g_new0 (SpCluster, 1);
  g_autofree char *device = NULL, *profile = NULL;
  if (!sp_read_name (ini, "cluster", &cluster->name, error) ||
      !sp_ini_int (ini, "cluster", "nodes", SP_INI_REQUIRED, 1, 1 << 16, &cluster->nodes, error) ||
      !sp_ini_int (ini, "cluster", "gpus-per-node", SP_INI_REQUIRED, 1, 1024, &cluster->gpus_per_node, error) ||
      !sp_ini_string (ini, "cluster", "device", SP_INI_REQUIRED, &device, error) ||
      !sp_read_quantities (ini, "cluster", link_keys, G_N_ELEMENTS (link_keys), SP_INI_REQUIRED, cluster, error) ||
      !sp_read_quantities (ini, "cluster", network_keys, G_N_ELEMENTS (network_keys),
                           cluster->nodes > 1 ? SP_INI_REQUIRED : SP_INI_OPTIONAL, cluster, error) ||
      !sp_read_quantities (ini, "cluster", optional_keys, G_N_ELEMENTS (optional_keys), SP_INI_OPTIONAL, cluster,
                           error) ||
      !sp_ini_string (ini, "cluster", "profile", SP_INI_OPTIONAL, &profile, error) ||
      !read_network (ini, cluster, error) || !read_kinds (ini, cluster, error) || !sp_ini_finish (ini, error))
    return NULL;
  cluster->device = load_device (ini, path, device, error);
  if (cluster->device == NULL || !check_device (ini, cluster, error) ||
      (profile != NULL && !load_profile (ini, path, profile, cluster, error)))
    return NULL;
  sp_cluster_complete (cluster);
  return g_steal_pointer (&cluster);
}

void
sp_cluster_complete (SpCluster *cluster)
{
  set_defaults (cluster);
  cluster->memo = sp_cluster_memo_new ();
}

char *
sp_cluster_resize (SpCluster *cluster, gint32 nodes, gint32 gpus_per_node)
{
  gint32 had = cluster->nodes, gpus = gpus_per_node > 0 ? gpus_per_node : cluster->gpus_per_node;

  nodes = nodes > 0 ? nodes : had;
  if (nodes == had && gpus == cluster->gpus_per_node)
    return NULL;
  if (nodes != had && nodes > 1 && (OF (cluster->fabric) & OF_ROUTERS))
    return g_strdup_printf ("the %s is one of %d nodes, expected those",
                            sp_fabric_kind_name ((SpFabricKind) cluster->fabric), had);
  if (nodes > 1 && cluster->nic_bytes_per_s.value == 0)
    return g_strdup ("the file says nothing of a network, expected 1 node");
  if (gpus > cluster->gpus_per_node)
    return g_strdup_printf ("more than the node has, expected at most %d", cluster->gpus_per_node);
  gboolean one = nodes == 1 && gpus == 1; /* has no links */
  if (gpus < cluster->gpus_per_node && !one && (nodes > 1 || cluster->node != SP_NODE_SWITCH))
    return g_strdup_printf ("only of one node with a switch a part can be taken, expected %d", cluster->gpus_per_node);
  if (nodes == 1)
    cluster->fabric = SP_FABRIC_FLAT;
  if (one)
    cluster->node = SP_NODE_SWITCH;
  g_autofree char *name = cluster->name;
  cluster->name = g_strdup_printf ("%s: %d x %d of it", name, nodes, gpus);
  cluster->nodes = nodes;
  cluster->gpus_per_node = gpus;
  return NULL;
}

SpClusterMemo *
sp_cluster_memo_new (void)
{
  SpClusterMemo *memo = g_new0 (SpClusterMemo, 1);

  g_mutex_init (&memo->lock);
  return memo;
}

void
sp_cluster_memo_free (SpClusterMemo *memo)
{
  if (memo == NULL)
    return;
  sp_topology_free (memo->topology);
  g_slist_free_full (memo->entries, g_free);
  g_mutex_clear (&memo->lock);
  g_free (memo);
}

SpQuantity *
sp_cluster_quantity (SpCluster *cluster, const char *key, SpQuantityRange *range)
{
  SpQuantity *found = sp_quantities_find (link_keys, G_N_ELEMENTS (link_keys), key, cluster, range);
  if (found == NULL)
    found = sp_quantities_find (network_keys, G_N_ELEMENTS (network_keys), key, cluster, range);
  return found != NULL ? found : sp_quantities_find (optional_keys, G_N_ELEMENTS (optional_keys), key, cluster, range);
}

gboolean
sp_cluster_has_key (const char *key)
{
  static const char *const others[] = { "nodes",  "gpus-per-node", "device",           "node",
                                        "fabric", "dims",          "network-protocol", "network-algorithm",
                                        NULL };
  for (guint i = 0; i < G_N_ELEMENTS (kind_keys); i++)
    if (g_str_equal (kind_keys[i].key.key, key))
      return TRUE;
  return sp_quantities_have (link_keys, G_N_ELEMENTS (link_keys), key) ||
         sp_quantities_have (network_keys, G_N_ELEMENTS (network_keys), key) ||
         sp_quantities_have (optional_keys, G_N_ELEMENTS (optional_keys), key) || g_strv_contains (others, key);
}

void
sp_cluster_free (SpCluster *cluster)
{
  if (cluster == NULL)
    return;
  sp_clear_sources (link_keys, G_N_ELEMENTS (link_keys), cluster);
  sp_clear_sources (network_keys, G_N_ELEMENTS (network_keys), cluster);
  sp_clear_sources (optional_keys, G_N_ELEMENTS (optional_keys), cluster);
  for (guint i = 0; i < G_N_ELEMENTS (kind_keys); i++)
    if (kind_keys[i].type == QUANTITY)
      sp_clear_sources (&kind_keys[i].key, 1, cluster);
  sp_cluster_memo_free (cluster->memo);
  sp_profile_free (cluster->profile);
  sp_device_free (cluster->device);
  g_clear_pointer (&cluster->notes, g_ptr_array_unref);
  g_free (cluster->name);
  g_free (cluster);
}

/* --- the network -------------------------------------------------------------------------------------------------- */

void
sp_cluster_topology_spec (const SpCluster *c, SpTopologySpec *ret)
{
  double inside = c->link_efficiency.value, outside = c->network_efficiency.value;
  double link = c->device->link_bytes_per_s.value * inside, pcie = c->device->pcie_bytes_per_s.value;
  double port = pcie * (c->node == SP_NODE_PAIRS ? inside : outside);

  *ret = (SpTopologySpec){ .node = (SpNodeKind) c->node,
                           .fabric = (SpFabricKind) c->fabric,
                           .nodes = c->nodes,
                           .gpus_per_node = c->gpus_per_node,
                           .link_bytes_per_s = link,
                           .link_latency_s = c->link_latency_s.value,
                           .gpus_per_switch = c->gpus_per_switch,
                           .switches_per_socket = c->switches_per_socket,
                           .uplink_bytes_per_s = c->uplink_bytes_per_s.value * inside,
                           .socket_bytes_per_s = c->socket_bytes_per_s.value * inside,
                           .nics = (gint32) c->nics.value,
                           .nic_bytes_per_s = c->nic_bytes_per_s.value * outside,
                           .pcie_bytes_per_s = pcie > 0 ? port : link,
                           .network_latency_s = c->network_latency_s.value,
                           .hop_latency_s = c->hop_latency_s.value,
                           .nodes_per_leaf = c->nodes_per_leaf,
                           .spines = c->spines,
                           .oversubscription = c->oversubscription.value,
                           .n_dims = c->n_dims,
                           .groups = c->groups,
                           .routers_per_group = c->routers_per_group,
                           .nodes_per_router = c->nodes_per_router,
                           .router_bytes_per_s = c->router_bytes_per_s.value * outside,
                           .global_bytes_per_s = c->global_bytes_per_s.value * outside };
  memcpy (ret->dims, c->dims, sizeof ret->dims);
}
