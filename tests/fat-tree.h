/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A two-level fat tree for tests and benchmarks of the flow solver: hosts, leaves, and a spine that is one switch.
 * Every host has a link up and one down, and so has every leaf. */

#include "sim/flows.h"

typedef struct {
  guint n_hosts, hosts_per_leaf;
  double host_bytes_per_s, leaf_bytes_per_s;
} FatTree;

static inline guint
fat_tree_n_links (const FatTree *tree)
{
  return 2 * (tree->n_hosts + tree->n_hosts / tree->hosts_per_leaf);
}

static inline SpFlows *
fat_tree_flows_new (const FatTree *tree)
{
  guint n_links = fat_tree_n_links (tree);
  g_autofree double *capacities = g_new (double, n_links);

  for (guint i = 0; i < n_links; i++)
    capacities[i] = i < 2 * tree->n_hosts ? tree->host_bytes_per_s : tree->leaf_bytes_per_s;
  return sp_flows_new (n_links, capacities);
}

/* Writes the links from one host to another; says how many. */
static inline guint
fat_tree_route (const FatTree *tree, guint from, guint to, guint32 links[4])
{
  guint from_leaf = from / tree->hosts_per_leaf, to_leaf = to / tree->hosts_per_leaf, n = 0;

  links[n++] = 2 * from;
  if (from_leaf != to_leaf) {
    links[n++] = 2 * (tree->n_hosts + from_leaf);
    links[n++] = 2 * (tree->n_hosts + to_leaf) + 1;
  }
  links[n++] = 2 * to + 1;
  return n;
}
