/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What hardware.c (devices, frameworks) and cluster.c share: quantities with their sources. */

#include "models/inputs/hardware.h"
#include "models/inputs/ini.h"

G_BEGIN_DECLS

typedef struct {
  const char *key;
  SpUnit unit;
  double min, max;
  gsize offset; /* of an SpQuantity */
} SpQuantityKey;

/* Each with its `.source`; those that are absent stay as they are, `assumed`. */
gboolean sp_read_quantities (SpIni *ini, const char *group, const SpQuantityKey *rows, guint n, SpIniNeed need,
                             gpointer base, GError **error);
gboolean sp_quantities_have (const SpQuantityKey *rows, guint n, const char *key);
/* The quantity of a key, and what it may be; NULL: none of the rows is of that key. */
SpQuantity *sp_quantities_find (const SpQuantityKey *rows, guint n, const char *key, gpointer base,
                                SpQuantityRange *range);
void sp_clear_sources (const SpQuantityKey *rows, guint n, gpointer base);

/* Defaults of what a cluster's kind has and its file left out, and its memo: the last step of making one. */
void sp_cluster_complete (SpCluster *cluster);

/* The name key, else the file's name without its suffix. */
gboolean sp_read_name (SpIni *ini, const char *group, char **ret, GError **error);

G_END_DECLS
