/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar show cluster: the links of its network, by name: what [variation] can slow or fail. */
#include <string.h>

#include "cli/cli.h"
#include "sim/topology.h"

#define MOST_NAMES 64

/* Links that one node has a part in: a name each, of the first MOST_NAMES. */
static GPtrArray *
links_of_node (const SpTopology *topology, guint node, guint *ret_n)
{
  g_autofree char *prefix = g_strdup_printf ("node%u.", node);
  g_autofree char *into = g_strdup_printf (">node%u.", node);
  GPtrArray *names = g_ptr_array_new_with_free_func (g_free);

  *ret_n = 0;
  for (guint32 l = 0; l < sp_topology_n_links (topology); l++) {
    g_autofree char *name = sp_topology_link_name (topology, l);
    if (!g_str_has_prefix (name, prefix) && strstr (name, into) == NULL)
      continue;
    if ((*ret_n)++ < MOST_NAMES)
      g_ptr_array_add (names, g_steal_pointer (&name));
  }
  return names;
}

static SpTopology *
topology_of (const SpCluster *cluster, GError **error)
{
  SpTopologySpec spec;

  sp_cluster_topology_spec (cluster, &spec);
  return sp_topology_new (&spec, error);
}

gboolean
sp_show_network_text (const SpCluster *cluster, GString *out, GError **error)
{
  g_autoptr (SpTopology) topology = topology_of (cluster, error);
  guint n;

  if (topology == NULL)
    return FALSE;
  const SpTopologySpec *spec = sp_topology_spec (topology);
  g_autoptr (GPtrArray) names = links_of_node (topology, 0, &n);
  g_string_append_printf (out, "\nnetwork: node %s, fabric %s, %u link%s; those of node 0:\n",
                          sp_node_kind_name (spec->node), sp_fabric_kind_name (spec->fabric),
                          sp_topology_n_links (topology), sp_plural (sp_topology_n_links (topology)));
  for (guint i = 0; i < names->len; i++)
    g_string_append_printf (out, "%s%s", i % 4 == 0 ? (i > 0 ? "\n  " : "  ") : "  ", (char *) names->pdata[i]);
  g_string_append_c (out, '\n');
  if (n > names->len)
    g_string_append_printf (out, "  and %u more\n", n - names->len);
  return TRUE;
}

gboolean
sp_show_network_json (JsonBuilder *builder, const SpCluster *cluster, GError **error)
{
  g_autoptr (SpTopology) topology = topology_of (cluster, error);
  guint n;

  if (topology == NULL)
    return FALSE;
  const SpTopologySpec *spec = sp_topology_spec (topology);
  g_autoptr (GPtrArray) names = links_of_node (topology, 0, &n);
  sp_json_object (builder, "network");
  sp_json_string (builder, "node", sp_node_kind_name (spec->node));
  sp_json_string (builder, "fabric", sp_fabric_kind_name (spec->fabric));
  sp_json_whole (builder, "links", sp_topology_n_links (topology));
  sp_json_strings (builder, "links_of_node_0", names);
  json_builder_end_object (builder);
  return TRUE;
}
