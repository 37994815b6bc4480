/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a machine says of its own links: NCCL's topology XML and `nvidia-smi topo -m`.
 *
 * Both tell which GPUs there are, what is between them (NVLinks, PCIe bridges, host bridges, sockets) and which network
 * adapters are near which. Neither tells the card's model or any rate that a program reaches: a device goes with a
 * dump wherever it is to be a cluster (sp_topology_dump_cluster).
 *
 * Two kinds of XML exist. What NCCL writes at run time (NCCL_TOPO_DUMP_FILE) lists GPUs as <gpu> with their NVLinks,
 * and adapters as <net> with their speed. What it is given (NCCL_TOPO_FILE, as clouds ship it for their machines) has
 * PCI devices by class alone: 0x03.... is a GPU, 0x02.... an adapter; such a file is partial.
 *
 * Relations are nvidia-smi's words. In XML: one PCIe bridge between the two is PIX, several PXB, none but one <cpu> is
 * PHB, two are SYS. nvidia-smi shows NV# in their place where there are NVLinks, so what is behind them is unknown.
 *
 * Adapters of compute are those in the nearest relation to any GPU that an adapter of the machine has: behind a PCIe
 * bridge with a GPU, if any is; else at its host bridge; else in its NUMA node; else all.
 *
 * Places are NUMA nodes where the dump names them, else sockets: GPUs that no SYS separates.
 *
 * Pure functions of the text: no file is opened but by sp_topology_dump_load, nothing is printed. Malformed text gives
 * one line, "NAME:LINE: ...", in SP_INPUT_ERROR. Cost: linear in the text, and (GPUs + adapters)^2.
 *
 * Known lies. A file of sub-NUMA clustering shows its NUMA nodes, and they pass for sockets.
 */

#include "models/inputs/hardware.h"

G_BEGIN_DECLS

#define SP_DUMP_MAX_GPUS 64
#define SP_DUMP_MAX_NICS 128

typedef enum { SP_DUMP_NONE, SP_DUMP_XML, SP_DUMP_SMI } SpDumpFormat;

/* From far to near. */
typedef enum {
  SP_RELATION_UNKNOWN,
  SP_RELATION_SYS,  /* over the link between sockets */
  SP_RELATION_NODE, /* between host bridges of one NUMA node */
  SP_RELATION_PHB,  /* one host bridge */
  SP_RELATION_PXB,  /* several PCIe bridges */
  SP_RELATION_PIX,  /* one PCIe bridge */
  SP_RELATION_SELF,
  SP_N_RELATIONS
} SpRelation;

const char *sp_relation_name (SpRelation relation); /* "SYS"; "?" for unknown */

typedef struct {
  char *name;     /* its bus address; NULL: the dump has none */
  char *affinity; /* CPUs, as written; NULL: none */
  gint32 place;   /* index; -1: unknown */
  guint nvlinks;  /* of the GPU, to all its peers or to the switch */
} SpDumpGpu;

typedef struct {
  char *name;
  gint32 place;
  double bytes_per_s; /* 0: not told */
  gboolean compute;
} SpDumpNic;

typedef struct {
  gint32 numa;     /* its number; -1: the dump has none */
  gboolean socket; /* no NUMA node, but what SYS sets apart */
} SpDumpPlace;

typedef struct {
  char *path, *name; /* as given; without its folders */
  SpDumpFormat format;
  guint n_gpus, n_nics, n_places;
  SpDumpGpu *gpus;
  SpDumpNic *nics;
  SpDumpPlace *places;
  guint8 *nvlinks;   /* [n_gpus * n_gpus]: links that the two have, to each other or both to a switch */
  guint8 *relations; /* [(n_gpus + n_nics)^2], SpRelation; GPUs first */
  gboolean has_switch;
  gboolean tells_nvlinks;  /* FALSE: there may be some all the same */
  double pcie_bytes_per_s; /* of a GPU's port, one direction; 0: not told */
  gboolean partial;        /* more could have been in it */
  GPtrArray *notes;        /* char* */
} SpTopologyDump;

SpDumpFormat sp_topology_dump_recognise (const char *text, gsize length);
SpTopologyDump *sp_topology_dump_parse (const char *text, gsize length, const char *name, GError **error);
/* NULL without an error: the file is no dump. */
SpTopologyDump *sp_topology_dump_load (const char *path, GError **error);
void sp_topology_dump_free (SpTopologyDump *dump);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpTopologyDump, sp_topology_dump_free)

SpRelation sp_topology_dump_relation (const SpTopologyDump *dump, guint a, guint b); /* NICs from n_gpus */
guint sp_topology_dump_nvlinks (const SpTopologyDump *dump, guint a, guint b);
guint sp_topology_dump_compute_nics (const SpTopologyDump *dump);

/* The GPU that has NVLinks with this one alone, where all GPUs are in such pairs and no switch is between; else -1. */
gint32 sp_topology_dump_pair (const SpTopologyDump *dump, guint gpu);

/* The `size` GPUs whose farthest two are nearest, then those nearest in sum, then the lowest numbers. *ret_any: all
 * groups of that size are as good. FALSE: fewer GPUs than that; size 2 to 4. */
gboolean sp_topology_dump_best_group (const SpTopologyDump *dump, guint size, guint *ret_gpus, gboolean *ret_any);

/* Nodes like this one, of the device (taken, also on failure). Latencies and efficiencies are those of the shipped
 * cluster of the nearest kind, assumed. The cluster's notes say what was made of the dump. */
SpCluster *sp_topology_dump_cluster (const SpTopologyDump *dump, SpDevice *device, gint32 nodes, GError **error);

G_END_DECLS
