/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Attention blocks that the softmax cores share. */

#include "models/strategies/strategies.h"

G_BEGIN_DECLS

/* Query-key pairs of one head in a block of m x n, and under the causal mask of equal position sets. */
static inline double
sp_attention_pairs (double m, double n, gboolean diagonal)
{
  return diagonal ? m * (m + 1) / 2 : m * n;
}

/* One forward block, to o and lse: 2 GEMMs, 4 FLOP a pair and feature. */
void sp_write_attention (SpWriter *w, const SpCoreSlots *c, guint8 k, guint8 v, double pairs, guint guard);
/* Merges a block's o and lse into those of all blocks so far, `o` in fp32. Elementwise: bound by memory, and without
 * FLOPs that count. SP_OP_ACCUMULATE not in flags: the first block. */
void sp_write_attention_merge (SpWriter *w, const SpCoreSlots *block, guint8 o, guint8 lse, guint flags, guint guard);
/* One backward block, to dq, dk and dv: 5 GEMMs, 10 FLOP a pair and feature. */
void sp_write_attention_backward (SpWriter *w, const SpCoreSlots *c, guint8 k, guint8 v, guint8 delta, guint8 dk,
                                  guint8 dv, double pairs, guint guard);
/* Makes o and lse. */
void sp_write_attention_outputs (SpWriter *w, SpCoreSlots *c);
/* delta = rows of dO * O, fp32. */
guint8 sp_write_attention_delta (SpWriter *w, const SpCoreSlots *c);

gint64 sp_core_elements (const SpWriter *w, const SpCoreSlots *c, gint32 heads);

G_END_DECLS
