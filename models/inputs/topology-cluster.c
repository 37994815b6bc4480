/* SPDX-License-Identifier: Apache-2.0 */
/* From a dump and a device to a cluster. What no dump tells is taken from the shipped cluster of the nearest kind. */
#include <string.h>

#include "models/inputs/hardware-private.h"
#include "models/inputs/scenario.h"
#include "models/inputs/topology-dump.h"
#include "sim/words.h"

/* A link faster than PCIe 5.0 x16 is NVLink's. */
#define FASTEST_PCIE 64e9
/* Devices from here on are Hopper and later. */
#define HOPPER_LINK 400e9

/* --- kind --------------------------------------------------------------------------------------------------------- */

static gboolean
all_linked (const SpTopologyDump *dump)
{
  for (guint a = 0; a < dump->n_gpus; a++)
    for (guint b = 0; b < a; b++)
      if (sp_topology_dump_nvlinks (dump, a, b) == 0)
        return FALSE;
  return TRUE;
}

/* Whether NVLinks lead from every GPU to every other one, over others. */
static gboolean
is_connected (const SpTopologyDump *dump)
{
  guint queue[SP_DUMP_MAX_GPUS] = { 0 }, tail = 1;
  gboolean seen[SP_DUMP_MAX_GPUS] = { TRUE };

  for (guint head = 0; head < tail; head++)
    for (guint g = 0; g < dump->n_gpus; g++)
      if (!seen[g] && sp_topology_dump_nvlinks (dump, queue[head], g) > 0) {
        seen[g] = TRUE;
        queue[tail++] = g;
      }
  return tail == dump->n_gpus;
}

static gboolean
any_linked (const SpTopologyDump *dump)
{
  for (guint i = 0; i < dump->n_gpus * dump->n_gpus; i++)
    if (dump->nvlinks[i] > 0)
      return TRUE;
  return FALSE;
}

static SpNodeKind
find_kind (const SpTopologyDump *dump, const SpDevice *device, GPtrArray *notes)
{
  if (dump->n_gpus == 1)
    return SP_NODE_SWITCH;
  if (dump->has_switch && all_linked (dump))
    return SP_NODE_SWITCH;
  if (!any_linked (dump)) {
    gboolean nvlink = device->link_bytes_per_s.value > MAX (FASTEST_PCIE, dump->pcie_bytes_per_s);
    if (dump->tells_nvlinks || !nvlink)
      return SP_NODE_PCIE;
    g_ptr_array_add (notes, g_strdup_printf ("%s tells no NVLinks; %s has them: taken as joined by a switch",
                                             dump->name, device->name));
    return SP_NODE_SWITCH;
  }
  if (dump->n_gpus > 2 && sp_topology_dump_pair (dump, 0) >= 0)
    return SP_NODE_PAIRS;
  if (!is_connected (dump)) {
    g_ptr_array_add (notes, g_strdup_printf ("%s: NVLinks join neither all GPUs nor pairs: left out", dump->name));
    return SP_NODE_PCIE;
  }
  if (!all_linked (dump))
    g_ptr_array_add (notes, g_strdup_printf ("%s: not all GPUs have NVLinks to each other: taken as if, each with an "
                                             "equal part of its rate",
                                             dump->name));
  return SP_NODE_MESH;
}

/* --- PCIe --------------------------------------------------------------------------------------------------------- */

/* The first GPU that is behind one PCIe switch with this one. */
static guint
switch_of (const SpTopologyDump *dump, guint gpu)
{
  for (guint i = 0; i < gpu; i++)
    if (sp_topology_dump_relation (dump, i, gpu) >= SP_RELATION_PXB)
      return i;
  return gpu;
}

static guint
pair_of (const SpTopologyDump *dump, guint gpu)
{
  gint32 pair = sp_topology_dump_pair (dump, gpu);

  return pair < 0 ? gpu : MIN ((guint) pair, gpu);
}

/* Place by place, switch by switch, pair by pair. */
static gint
compare_gpus (gconstpointer a, gconstpointer b, gpointer user_data)
{
  const SpTopologyDump *dump = user_data;
  guint x = *(const guint *) a, y = *(const guint *) b;
  gint keys[][2] = { { dump->gpus[x].place, dump->gpus[y].place },
                     { (gint) switch_of (dump, x), (gint) switch_of (dump, y) },
                     { (gint) pair_of (dump, x), (gint) pair_of (dump, y) },
                     { (gint) x, (gint) y } };

  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    if (keys[i][0] != keys[i][1])
      return keys[i][0] < keys[i][1] ? -1 : 1;
  return 0;
}

/* Runs of GPUs, in that order, that have the same switch (or place); 0: of unlike lengths. */
static guint
run_length (const SpTopologyDump *dump, const guint *order, gboolean places)
{
  guint length = 0, run = 1;

  for (guint i = 1; i <= dump->n_gpus; i++) {
    if (i < dump->n_gpus && (places ? dump->gpus[order[i]].place == dump->gpus[order[i - 1]].place
                                    : switch_of (dump, order[i]) == switch_of (dump, order[i - 1]))) {
      run++;
      continue;
    }
    if (length != 0 && run != length)
      return 0;
    length = run;
    run = 1;
  }
  return length;
}

static void
note_order (const SpTopologyDump *dump, const guint *order, GPtrArray *notes)
{
  g_autoptr (GString) text = g_string_new (NULL);
  gboolean moved = FALSE;

  for (guint i = 0; i < dump->n_gpus; i++) {
    g_string_append_printf (text, "%s%u", i > 0 ? "," : "", order[i]);
    moved |= order[i] != i;
  }
  if (moved)
    g_ptr_array_add (notes,
                     g_strdup_printf ("ranks of a node are its GPUs in the order %s: neighbours are near", text->str));
}

static void
set_pcie (const SpTopologyDump *dump, SpCluster *cluster, GPtrArray *notes)
{
  guint order[SP_DUMP_MAX_GPUS];

  for (guint i = 0; i < dump->n_gpus; i++)
    order[i] = i;
  g_qsort_with_data (order, (gint) dump->n_gpus, sizeof *order, compare_gpus, (gpointer) dump);
  guint of_switch = run_length (dump, order, FALSE), of_place = run_length (dump, order, TRUE);
  if (of_switch == 0 || of_place == 0 || of_place % of_switch != 0) {
    g_ptr_array_add (notes, g_strdup_printf ("%s: GPUs are not spread evenly over switches and sockets: taken as on "
                                             "one socket, each by itself",
                                             dump->name));
    of_switch = 1;
    of_place = dump->n_gpus;
  }
  cluster->gpus_per_switch = (gint32) of_switch;
  cluster->switches_per_socket = (gint32) (of_place / of_switch);
  note_order (dump, order, notes);
}

/* --- what is assumed ---------------------------------------------------------------------------------------------- */

static const char *
nearest_shipped (SpNodeKind kind, const SpDevice *device)
{
  if (kind == SP_NODE_PAIRS)
    return "a40-1x8-pairs";
  if (kind == SP_NODE_PCIE)
    return "l20-1x8";
  return device->link_bytes_per_s.value >= HOPPER_LINK ? "h100-128x8" : "a100-16x8";
}

static void
assume (SpQuantity *quantity, const SpQuantity *from, const char *name)
{
  if (quantity->value != 0)
    return;
  *quantity = (SpQuantity){ from->value, SP_ASSUMED,
                            g_strdup_printf ("as in the shipped %s: %s", name, from->source ? from->source : "") };
}

static gboolean
assume_rest (SpCluster *cluster, GError **error)
{
  const char *name = nearest_shipped ((SpNodeKind) cluster->node, cluster->device),
             *network = nearest_shipped (SP_NODE_SWITCH, cluster->device);
  g_autofree char *path = sp_find_shipped ("clusters", name, error);
  g_autofree char *network_path = path != NULL ? sp_find_shipped ("clusters", network, error) : NULL;
  g_autoptr (SpCluster) near = network_path != NULL ? sp_cluster_load (path, error) : NULL;
  g_autoptr (SpCluster) far = near != NULL ? sp_cluster_load (network_path, error) : NULL;

  if (far == NULL)
    return FALSE;
  assume (&cluster->link_efficiency, &near->link_efficiency, name);
  assume (&cluster->link_latency_s, &near->link_latency_s, name);
  if (cluster->node == SP_NODE_PCIE || cluster->node == SP_NODE_PAIRS)
    assume (&cluster->socket_bytes_per_s, &near->socket_bytes_per_s, name);
  if (cluster->node == SP_NODE_PAIRS)
    assume (&cluster->uplink_bytes_per_s, &near->uplink_bytes_per_s, name);
  if (cluster->nodes > 1) {
    assume (&cluster->nic_bytes_per_s, &far->nic_bytes_per_s, network);
    assume (&cluster->network_efficiency, &far->network_efficiency, network);
    assume (&cluster->network_latency_s, &far->network_latency_s, network);
  }
  gboolean both = cluster->nodes > 1 && !g_str_equal (name, network);
  g_ptr_array_add (cluster->notes, g_strdup_printf ("latencies and efficiencies of links are no part of a dump: those "
                                                    "of the shipped %s%s%s, assumed",
                                                    name, both ? " and " : "", both ? network : ""));
  if (cluster->node == SP_NODE_PAIRS)
    g_ptr_array_add (cluster->notes, g_strdup ("between pairs copies are taken to go through the host, without "
                                               "peer-to-peer over PCIe: a cluster's INI can say otherwise"));
  return TRUE;
}

/* --- what is told ------------------------------------------------------------------------------------------------- */

static SpQuantity
told (double value, const SpTopologyDump *dump, const char *what)
{
  return (SpQuantity){ value, SP_PUBLISHED, g_strdup_printf ("%s, %s", dump->name, what) };
}

static void
replace (SpQuantity *quantity, SpQuantity by)
{
  g_free (quantity->source);
  *quantity = by;
}

/* GPUs without NVLinks reach each other over PCIe, whatever the device could have; only a switch adds up. */
static gboolean
fit_device (const SpTopologyDump *dump, SpCluster *cluster, GError **error)
{
  SpDevice *device = cluster->device;
  SpQuantity *pcie = &device->pcie_bytes_per_s, *link = &device->link_bytes_per_s;

  if (pcie->value == 0 && dump->pcie_bytes_per_s > 0 && dump->pcie_bytes_per_s < link->value)
    replace (pcie, told (dump->pcie_bytes_per_s, dump, "link_speed and link_width of the GPUs"));
  if (cluster->node == SP_NODE_PAIRS && pcie->value == 0)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: its GPUs have NVLinks in pairs, and PCIe between: expected a device with pcie-rate, "
                          "which %s has not",
                          dump->path, device->name);
  if (cluster->node == SP_NODE_PCIE && pcie->value > 0 && pcie->value < link->value) {
    g_ptr_array_add (cluster->notes, g_strdup_printf ("%s has no NVLinks between its GPUs: link-rate is the pcie-rate "
                                                      "of %s",
                                                      dump->name, device->name));
    replace (link, (SpQuantity){ pcie->value, pcie->provenance, g_strdup (pcie->source) });
  }
  if (device->nvls && cluster->node != SP_NODE_SWITCH) {
    g_ptr_array_add (cluster->notes, g_strdup_printf ("%s has no NVSwitch: nothing is added up in it", dump->name));
    device->nvls = FALSE;
  }
  return TRUE;
}

static gboolean
set_nics (const SpTopologyDump *dump, SpCluster *cluster, GError **error)
{
  guint n = sp_topology_dump_compute_nics (dump);
  double slowest = 0;

  if (cluster->nodes == 1)
    return TRUE;
  if (n == 0)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: no network adapters are listed, expected nodes = 1 (or a cluster's INI with nics and "
                          "nic-rate)",
                          dump->path);
  replace (&cluster->nics, told (n, dump, "adapters near its GPUs"));
  for (guint i = 0; i < dump->n_nics; i++)
    if (dump->nics[i].compute && dump->nics[i].bytes_per_s > 0)
      slowest = slowest > 0 ? MIN (slowest, dump->nics[i].bytes_per_s) : dump->nics[i].bytes_per_s;
  if (slowest > 0)
    replace (&cluster->nic_bytes_per_s, told (slowest, dump, "speed of an adapter"));
  return TRUE;
}

SpCluster *
sp_topology_dump_cluster (const SpTopologyDump *dump, SpDevice *device, gint32 nodes, GError **error)
{
  g_autoptr (SpCluster) cluster = g_new0 (SpCluster, 1);

  g_return_val_if_fail (device != NULL && nodes >= 1, NULL);
  cluster->device = device;
  cluster->notes = g_ptr_array_new_with_free_func (g_free);
  cluster->name = g_strdup_printf ("%d node%s as in %s", nodes, sp_plural (nodes), dump->name);
  cluster->nodes = nodes;
  cluster->gpus_per_node = (gint32) dump->n_gpus;
  for (guint i = 0; i < dump->notes->len; i++)
    g_ptr_array_add (cluster->notes, g_strdup_printf ("%s: %s", dump->name, (char *) dump->notes->pdata[i]));
  cluster->node = (guint8) find_kind (dump, device, cluster->notes);
  cluster->fabric = SP_FABRIC_FLAT;
  if (cluster->node == SP_NODE_PCIE || cluster->node == SP_NODE_PAIRS)
    set_pcie (dump, cluster, cluster->notes);
  if (!fit_device (dump, cluster, error) || !set_nics (dump, cluster, error) || !assume_rest (cluster, error))
    return NULL;
  sp_cluster_complete (cluster);
  return g_steal_pointer (&cluster);
}
