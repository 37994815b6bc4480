/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/topology-private.h"

#include <math.h>
#include <string.h>

/* clang-format off */
G_DEFINE_QUARK (sp-topology-error-quark, sp_topology_error)
/* clang-format on */

static const SpInterior *const interiors[] = { &sp_interior_switch, &sp_interior_mesh, &sp_interior_pcie,
                                             &sp_interior_pairs };
static const SpFabric *const fabrics[] = { &sp_fabric_flat, &sp_fabric_leaf_spine, &sp_fabric_rails, &sp_fabric_torus,
                                           &sp_fabric_dragonfly };

G_STATIC_ASSERT (G_N_ELEMENTS (interiors) == SP_N_NODE_KINDS);
G_STATIC_ASSERT (G_N_ELEMENTS (fabrics) == SP_N_FABRIC_KINDS);

/* 24 bytes a link: 0.8 GB. */
#define MOST_LINKS (1u << 25)

const char *
sp_node_kind_name (SpNodeKind kind)
{
  g_return_val_if_fail (kind < SP_N_NODE_KINDS, NULL);
  return interiors[kind]->name;
}

const char *
sp_fabric_kind_name (SpFabricKind kind)
{
  g_return_val_if_fail (kind < SP_N_FABRIC_KINDS, NULL);
  return fabrics[kind]->name;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static char *
problem_of (const SpTopologySpec *s)
{
  if (s->node >= SP_N_NODE_KINDS || s->fabric >= SP_N_FABRIC_KINDS)
    return g_strdup ("no such kind of node or fabric");
  if (s->nodes < 1 || s->gpus_per_node < 1)
    return g_strdup ("nodes and GPUs of a node must be positive");
  if (!(s->link_bytes_per_s > 0))
    return g_strdup ("the GPUs' link rate must be positive");
  gboolean pcie = s->node == SP_NODE_PCIE || s->node == SP_NODE_PAIRS;
  if (s->node == SP_NODE_PAIRS && !(s->pcie_bytes_per_s > 0))
    return g_strdup ("the GPUs' PCIe rate must be positive");
  if (pcie && (s->gpus_per_switch < 1 || s->switches_per_socket < 1 ||
                                  !(s->uplink_bytes_per_s > 0) || !(s->socket_bytes_per_s > 0)))
    return g_strdup ("GPUs of a PCIe switch, switches of a socket and their rates must be positive");
  if (s->nodes == 1)
    return NULL;
  if (s->nics < 1 || !(s->nic_bytes_per_s > 0) || !(s->pcie_bytes_per_s > 0))
    return g_strdup ("adapters of a node, their rate and that of the way to them must be positive");
  return fabrics[s->fabric]->problem != NULL ? fabrics[s->fabric]->problem (s) : NULL;
}

void
sp_topology_add_link (SpTopology *t, guint from, guint to, double bytes_per_s, double latency_s)
{
  t->from[t->n_links] = from;
  t->to[t->n_links] = to;
  t->capacity[t->n_links] = bytes_per_s;
  t->latency[t->n_links++] = latency_s;
}

static guint
nic_vertex (const SpTopology *t, guint nic_of_all)
{
  return sp_local_of_node (t, nic_of_all / t->nics, sp_local_nic (t, nic_of_all % t->nics));
}

static void
add_nic_links (SpTopology *t)
{
  for (guint way = 0; way < 2; way++)
    for (guint i = 0; i < t->n_nics; i++) {
      guint nic = nic_vertex (t, i), at = t->first_fabric_vertex + t->fabric->attached (t, i / t->nics, i % t->nics);
      sp_topology_add_link (t, way ? at : nic, way ? nic : at, t->nic_bytes_per_s, way ? 0 : t->spec.network_latency_s);
    }
}

SpTopology *
sp_topology_new (const SpTopologySpec *spec, GError **error)
{
  g_autofree char *problem = problem_of (spec);
  guint64 node_vertices, node_links, fabric_vertices = 0, fabric_links = 0;

  if (problem != NULL) {
    g_set_error_literal (error, SP_TOPOLOGY_ERROR, SP_TOPOLOGY_ERROR_SPEC, problem);
    return NULL;
  }
  guint64 nodes = (guint64) spec->nodes, gpus = (guint64) spec->gpus_per_node, nics = sp_graph_nics (spec);
  interiors[spec->node]->count (spec, nics, &node_vertices, &node_links);
  node_vertices += gpus + nics;
  if (nodes > 1)
    fabrics[spec->fabric]->count (spec, nics, &fabric_vertices, &fabric_links);
  guint64 n_links = nodes * node_links + 2 * nodes * nics + fabric_links;
  if (n_links > MOST_LINKS) {
    g_set_error (error, SP_TOPOLOGY_ERROR, SP_TOPOLOGY_ERROR_SPEC,
                 "a network of %" G_GUINT64_FORMAT " links, at most %u", n_links, MOST_LINKS);
    return NULL;
  }

  SpTopology *t = g_new0 (SpTopology, 1);
  *t = (SpTopology){ .spec = *spec,
                     .interior = interiors[spec->node],
                     .fabric = fabrics[spec->fabric],
                     .gpus = (guint) gpus,
                     .nics = (guint) nics,
                     .node_vertices = (guint) node_vertices,
                     .node_links = (guint) node_links,
                     .n_nics = (guint) (nodes * nics),
                     .first_fabric_vertex = (guint) (nodes * node_vertices),
                     .first_fabric_link = (guint) (nodes * node_links),
                     .n_vertices = (guint) (nodes * node_vertices + fabric_vertices) };
  t->first_inner_link = t->first_fabric_link + 2 * t->n_nics;
  t->nic_bytes_per_s = nics > 0 ? spec->nic_bytes_per_s * spec->nics / MIN (spec->nics, spec->gpus_per_node) : 0;
  if (nics > 0 && spec->nics <= spec->gpus_per_node)
    t->nic_bytes_per_s = spec->nic_bytes_per_s; /* exactly */
  t->from = g_new (guint32, n_links);
  t->to = g_new (guint32, n_links);
  t->capacity = g_new (double, n_links);
  t->latency = g_new (double, n_links);
  for (guint node = 0; node < (guint) nodes; node++)
    t->interior->build (t, node);
  if (nodes > 1) {
    add_nic_links (t);
    t->fabric->build (t);
  }
  g_assert (t->n_links == n_links);
  return t;
}

void
sp_topology_free (SpTopology *t)
{
  if (t == NULL)
    return;
  g_free (t->from);
  g_free (t->to);
  g_free (t->capacity);
  g_free (t->latency);
  g_free (t->failed);
  g_free (t->out_first);
  g_free (t->out);
  g_free (t->queue);
  g_free (t->came_by);
  g_free (t);
}

/* --- what there is ------------------------------------------------------------------------------------------------ */

const SpTopologySpec *
sp_topology_spec (const SpTopology *t)
{
  return &t->spec;
}

guint
sp_topology_n_gpus (const SpTopology *t)
{
  return (guint) t->spec.nodes * t->gpus;
}

guint
sp_topology_n_links (const SpTopology *t)
{
  return t->n_links;
}

guint
sp_topology_n_vertices (const SpTopology *t)
{
  return t->n_vertices;
}

const double *
sp_topology_capacities (const SpTopology *t)
{
  return t->capacity;
}

double
sp_topology_capacity (const SpTopology *t, guint32 link)
{
  g_return_val_if_fail (link < t->n_links, 0);
  return t->capacity[link];
}

double
sp_topology_latency (const SpTopology *t, guint32 link)
{
  g_return_val_if_fail (link < t->n_links, 0);
  return t->latency[link];
}

guint32
sp_topology_from (const SpTopology *t, guint32 link)
{
  g_return_val_if_fail (link < t->n_links, 0);
  return t->from[link];
}

guint32
sp_topology_to (const SpTopology *t, guint32 link)
{
  g_return_val_if_fail (link < t->n_links, 0);
  return t->to[link];
}

guint32
sp_topology_gpu_vertex (const SpTopology *t, guint32 gpu)
{
  return sp_local_of_node (t, gpu / t->gpus, gpu % t->gpus);
}

SpVertexKind
sp_topology_vertex_kind (const SpTopology *t, guint32 vertex)
{
  g_return_val_if_fail (vertex < t->n_vertices, SP_N_VERTEX_KINDS);
  if (vertex >= t->first_fabric_vertex)
    return t->fabric->vertex_kind (t, vertex - t->first_fabric_vertex);
  guint local = vertex % t->node_vertices;
  if (local < t->gpus)
    return SP_VERTEX_GPU;
  return local < t->gpus + t->nics ? SP_VERTEX_NIC : t->interior->vertex_kind (t, local - t->gpus - t->nics);
}

gboolean
sp_topology_same_node (const SpTopology *t, guint32 a, guint32 b)
{
  return a / t->gpus == b / t->gpus;
}

guint
sp_topology_nic (const SpTopology *t, guint32 gpu)
{
  return sp_local_nic_of (t, gpu % t->gpus);
}

guint
sp_topology_nics_per_node (const SpTopology *t)
{
  return t->nics;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static void
append_vertex (const SpTopology *t, guint vertex, gboolean with_node, GString *out)
{
  if (vertex >= t->first_fabric_vertex) {
    t->fabric->vertex_name (t, vertex - t->first_fabric_vertex, out);
    return;
  }
  guint local = vertex % t->node_vertices;
  if (with_node)
    g_string_append_printf (out, "node%u.", vertex / t->node_vertices);
  if (local < t->gpus)
    g_string_append_printf (out, "gpu%u", local);
  else if (local < t->gpus + t->nics)
    g_string_append_printf (out, "nic%u", local - t->gpus);
  else
    t->interior->vertex_name (t, local - t->gpus - t->nics, out);
}

/* Inside a node its name is said once. */
static void
append_link (const SpTopology *t, guint link, GString *out)
{
  append_vertex (t, t->from[link], TRUE, out);
  g_string_append_c (out, '>');
  append_vertex (t, t->to[link], link >= t->first_fabric_link, out);
}

char *
sp_topology_vertex_name (const SpTopology *t, guint32 vertex)
{
  g_return_val_if_fail (vertex < t->n_vertices, NULL);
  GString *name = g_string_new (NULL);
  append_vertex (t, vertex, TRUE, name);
  return g_string_free (name, FALSE);
}

char *
sp_topology_link_name (const SpTopology *t, guint32 link)
{
  g_return_val_if_fail (link < t->n_links, NULL);
  GString *name = g_string_new (NULL);
  append_link (t, link, name);
  return g_string_free (name, FALSE);
}

gboolean
sp_topology_find_link (const SpTopology *t, const char *name, guint32 *ret_link)
{
  g_autoptr (GString) of_link = g_string_new (NULL);

  for (guint link = 0; link < t->n_links; link++) {
    g_string_truncate (of_link, 0);
    append_link (t, link, of_link);
    if (g_str_equal (of_link->str, name)) {
      *ret_link = link;
      return TRUE;
    }
  }
  return FALSE;
}

/* --- routes ------------------------------------------------------------------------------------------------------- */

static guint
usual_route (const SpTopology *t, guint from, guint to, guint32 *links)
{
  guint from_node = from / t->gpus, to_node = to / t->gpus, a = from % t->gpus, b = to % t->gpus, n = 0;
  guint nic = sp_local_nic_of (t, a), far_nic = sp_local_nic_of (t, b);

  if (from == to)
    return 0;
  if (from_node == to_node)
    return t->interior->route (t, from_node, a, b, links);
  if (t->fabric->rails && t->interior->nvlink && nic != far_nic) {
    n += t->interior->route (t, from_node, a, b, links);
    a = b;
    nic = far_nic;
  }
  n += t->interior->to_nic (t, from_node, a, nic, links + n);
  links[n++] = t->first_fabric_link + from_node * t->nics + nic;
  n += t->fabric->route (t, from_node, nic, to_node, far_nic, links + n);
  links[n++] = t->first_fabric_link + t->n_nics + to_node * t->nics + far_nic;
  return n + t->interior->from_nic (t, to_node, far_nic, b, links + n);
}

/* Only the two nodes themselves may be passed through. */
static gboolean
may_enter (const SpTopology *t, guint vertex, guint from_node, guint to_node)
{
  guint node = vertex / t->node_vertices;

  return vertex >= t->first_fabric_vertex || node == from_node || node == to_node;
}

/* Breadth first, links in order of their numbers. */
static guint
search_route (const SpTopology *t, guint from, guint to, guint32 *links)
{
  guint start = sp_topology_gpu_vertex (t, from), goal = sp_topology_gpu_vertex (t, to), head = 0, tail = 0, n = 0;

  memset (t->came_by, 0xff, t->n_vertices * sizeof *t->came_by);
  t->queue[tail++] = start;
  while (head < tail && t->came_by[goal] == G_MAXUINT32) {
    guint vertex = t->queue[head++];
    for (guint i = t->out_first[vertex]; i < t->out_first[vertex + 1]; i++) {
      guint32 link = t->out[i], next = t->to[link];
      if (t->failed[link] || next == start || t->came_by[next] != G_MAXUINT32 ||
          !may_enter (t, next, from / t->gpus, to / t->gpus))
        continue;
      t->came_by[next] = link;
      t->queue[tail++] = next;
    }
  }
  if (t->came_by[goal] == G_MAXUINT32)
    return SP_TOPOLOGY_CUT;
  for (guint vertex = goal; vertex != start; vertex = t->from[t->came_by[vertex]])
    n++;
  if (n > SP_TOPOLOGY_MAX_ROUTE)
    return SP_TOPOLOGY_CUT;
  guint i = n;
  for (guint vertex = goal; vertex != start; vertex = t->from[t->came_by[vertex]])
    links[--i] = t->came_by[vertex];
  return n;
}

guint
sp_topology_route (const SpTopology *t, guint32 from, guint32 to, guint32 *ret_links)
{
  g_return_val_if_fail (from < sp_topology_n_gpus (t) && to < sp_topology_n_gpus (t), 0);
  guint n = usual_route (t, from, to, ret_links);
  for (guint i = 0; i < n && t->n_failed > 0; i++)
    if (t->failed[ret_links[i]])
      return search_route (t, from, to, ret_links);
  return n;
}

double
sp_topology_route_latency (const SpTopology *t, guint32 from, guint32 to)
{
  guint32 links[SP_TOPOLOGY_MAX_ROUTE];
  guint n = sp_topology_route (t, from, to, links);
  double sum = 0;

  if (n == SP_TOPOLOGY_CUT)
    return INFINITY;
  for (guint i = 0; i < n; i++)
    sum += t->latency[links[i]];
  return sum;
}

/* --- faults ------------------------------------------------------------------------------------------------------- */

/* The graph by vertices, which usual routes do not need. */
static void
make_adjacency (SpTopology *t)
{
  t->failed = g_new0 (guint8, t->n_links);
  t->out_first = g_new0 (guint32, t->n_vertices + 1);
  t->out = g_new (guint32, t->n_links);
  t->queue = g_new (guint32, t->n_vertices);
  t->came_by = g_new (guint32, t->n_vertices);
  for (guint link = 0; link < t->n_links; link++)
    t->out_first[t->from[link] + 1]++;
  for (guint v = 0; v < t->n_vertices; v++)
    t->out_first[v + 1] += t->out_first[v];
  guint32 *next = t->queue;
  memcpy (next, t->out_first, t->n_vertices * sizeof *next);
  for (guint link = 0; link < t->n_links; link++)
    t->out[next[t->from[link]]++] = link;
}

void
sp_topology_fail_link (SpTopology *t, guint32 link)
{
  g_return_if_fail (link < t->n_links);
  if (t->failed == NULL)
    make_adjacency (t);
  if (t->failed[link])
    return;
  t->failed[link] = 1;
  t->n_failed++;
  t->capacity[link] = 0;
}

void
sp_topology_slow_link (SpTopology *t, guint32 link, double factor)
{
  g_return_if_fail (link < t->n_links && factor > 0 && isfinite (factor));
  t->capacity[link] *= factor;
}

gboolean
sp_topology_is_failed (const SpTopology *t, guint32 link)
{
  g_return_val_if_fail (link < t->n_links, FALSE);
  return t->failed != NULL && t->failed[link];
}
