/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the two readers of dumps share. A reader fills what stands in the text; topology-dump.c works out the rest. */

#include "models/inputs/ini.h"
#include "models/inputs/topology-dump.h"

G_BEGIN_DECLS

SpTopologyDump *sp_topology_dump_new (const char *name, SpDumpFormat format, guint n_gpus, guint n_nics);
void sp_topology_dump_set_relation (SpTopologyDump *dump, guint a, guint b, SpRelation relation);
void sp_topology_dump_set_nvlinks (SpTopologyDump *dump, guint a, guint b, guint links);
/* Index of the place with this NUMA number, added if it is new. */
gint32 sp_topology_dump_numa_place (SpTopologyDump *dump, gint32 numa);
void sp_topology_dump_note (SpTopologyDump *dump, gboolean partial, const char *format, ...) G_GNUC_PRINTF (3, 4);

/* Text without NULs, valid UTF-8, `length` bytes and a NUL behind them. */
SpTopologyDump *sp_topology_xml_parse (const char *text, gsize length, const char *name, GError **error);
SpTopologyDump *sp_topology_smi_parse (const char *text, gsize length, const char *name, GError **error);

/* Whether a line is the header of nvidia-smi's matrix: its first word is GPU0. */
gboolean sp_topology_smi_is_header (const char *line, gsize length);

G_END_DECLS
