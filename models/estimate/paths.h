/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Rates and latencies of a program's groups on a cluster: see cost.h. Closed forms where they hold (paths.c), else from
 * the graph (paths-graph.c).
 *
 * The graph's are kept in the cluster's memo, by world and digits of the group; a search comes by few of them, and only
 * the first time allocates, or takes a lock. Of groups that repeat over nodes, or over leaves of nodes, one part is
 * looked at: a group that spans 16,384 GPUs on rails takes 10 ms, one that ends in a leaf its 64th. All-to-all over many ranks takes a while to add up (P routes for every rank), so it is done
 * when an op asks for it. A cluster without a memo (made by hand) has closed forms where a switch and a flat network
 * allow them at all, whether digits line up or not; else everything is worked out anew for each program.
 */

#include "models/estimate/cost.h"

G_BEGIN_DECLS

/* Fills cost->paths and cost->alone of all groups. */
void sp_paths_set (SpCost *cost, const SpCluster *cluster, const SpProgram *program);

/* Of the groups that enter a block's work alone, and what two programs have in common if these cost both the same (but for
 * odds of 1 in 2^64). A search that only bounds goes by far fewer of them. */
void sp_paths_set_work (SpCost *cost, const SpCluster *cluster, const SpProgram *program);
guint64 sp_paths_work_identity (const SpCost *cost);
/* Of the pipeline alone. */
void sp_paths_set_pipeline (SpCost *cost, const SpCluster *cluster, const SpProgram *program);

/* Whether some of a group's members are on another node than others. */
gboolean sp_paths_leave_node (const SpCluster *cluster, const SpProgram *program, SpGroupId group);

/* From the graph. FALSE: it is too large, or the cluster has fewer GPUs than the program has ranks. */
gboolean sp_path_set_from_graph (const SpCluster *cluster, const SpProgram *program, SpGroupId group, SpPath *ret_fair,
                                 SpPath *ret_alone);

/* NVLS of a group with `members` in each of its nodes. */
void sp_path_set_nvls (SpPath *path, const SpCluster *cluster, double trees_s_per_byte);

/* Seconds of an all-to-all for each byte of payload, where they are the graph's. */
double sp_path_pairwise (const SpPath *path);

G_END_DECLS
