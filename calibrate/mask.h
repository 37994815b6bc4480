/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a causal mask by positions comes to for one block of queries and one of keys: whether it is one rectangle, of
 * rows from some row on and keys up to some key, that is either seen whole or by index. Blocks of a ring are: the own
 * one in any split, those of another rank contiguous (all or nothing), zigzag (half of the keys, or half of the
 * queries) and striped; of an all-gather the contiguous one. That is what a library's attention can be asked for.
 */

#include <glib.h>

G_BEGIN_DECLS

typedef struct {
  gint64 hidden;   /* the first rows, which see no key: all of them, if nothing is seen */
  gint64 seen;     /* the first keys; the rest no row sees */
  gboolean causal; /* row i sees keys up to i - hidden, else all that are seen */
  gboolean last;   /* with causal: row i sees keys up to i + seen - rows, aligned at the end */
} SpMaskCut;

/* Key j is visible to row i if kpos[j] <= qpos[i]. FALSE: it is no such rectangle. */
gboolean sp_mask_cut (gint64 m, const gint32 *qpos, gint64 n, const gint32 *kpos, SpMaskCut *ret);

G_END_DECLS
