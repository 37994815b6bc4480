/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Attention blocks that the softmax cores share. */

#include "models/strategies/strategies.h"

G_BEGIN_DECLS

/* Query-key pairs of one head: queries of place `place` of a ring with the keys of place `place` - `step` (around), each
 * with `tokens` of the sequence, cut by `split`. causal: key j counts for query i if 0 <= i - j, and i - j < window
 * unless that is 0. A sequence on one rank is a ring of one. */
double sp_attention_pairs (SpTokenSplit split, gint32 ring, gint32 place, gint32 step, double tokens, gboolean causal,
                           double window);
/* What the open block's core sees: whether it is causal, and of how many keys the last (0: all of them). */
gboolean sp_core_is_causal (const SpWriter *w);
gint32 sp_core_window (const SpWriter *w);
/* With a window, how many parts of a ring's tokens back a query may see: parts are what a place holds, in zigzag half of
 * that. Keys of the parts after these do no work: away from place and step 0, steps up to it and, in zigzag, the same at
 * the ring's end. */
guint16 sp_core_reach (const SpWriter *w, const SpCoreSlots *c);
/* Those of packed documents, where there are such. */
gboolean sp_core_packed_pairs (const SpWriter *w, SpPackedPairs *ret);
/* Pairs of all tokens with all, on one rank. */
double sp_core_pairs (const SpWriter *w, const SpCoreSlots *c);
/* Of a ring's last place, which no place has more pairs than, with its own keys and with those of all others. Striped,
 * the mean of the last and the first place. Of packed documents of the place that has most, with other keys at each
 * step. */
double sp_core_home_pairs (const SpWriter *w, const SpCoreSlots *c);
double sp_core_away_pairs (const SpWriter *w, const SpCoreSlots *c);
/* The same at once, of a place that has all keys. */
double sp_core_ring_pairs (const SpWriter *w, const SpCoreSlots *c);

/* One forward block, to o and lse: 2 GEMMs, 2 FLOP a pair and feature of keys and of values. The keys are as many as slot
 * k has. */
void sp_write_attention (SpWriter *w, const SpCoreSlots *c, guint8 k, guint8 v, double pairs, guint guard);
/* Merges a block's o and lse into those of all blocks so far, `o` in fp32. Elementwise: bound by memory, and without
 * FLOPs that count. SP_OP_ACCUMULATE not in flags: the first block. */
void sp_write_attention_merge (SpWriter *w, const SpCoreSlots *block, guint8 o, guint8 lse, guint flags, guint guard);
/* One backward block, to dq, dk and dv: 5 GEMMs, 3 of a key's features and 2 of a value's. */
void sp_write_attention_backward (SpWriter *w, const SpCoreSlots *c, guint8 k, guint8 v, guint8 delta, guint8 dk,
                                  guint8 dv, double pairs, guint guard);
/* The sinks' share of o and lse, where the model has them, and their gradient. */
void sp_write_attention_sink (SpWriter *w, const SpCoreSlots *c);
void sp_write_attention_sink_backward (SpWriter *w, const SpCoreSlots *c, guint8 delta);
/* Makes o and lse. */
void sp_write_attention_outputs (SpWriter *w, SpCoreSlots *c);
/* delta = rows of dO * O, fp32. */
guint8 sp_write_attention_delta (SpWriter *w, const SpCoreSlots *c);

void sp_write_copy (SpWriter *w, const SpCoreSlots *c, guint8 in, guint8 out);
/* In the dtype of activations: a copy, or `slot` itself where it has it. */
guint8 sp_write_to_dtype (SpWriter *w, const SpCoreSlots *c, guint8 slot);

/* Of queries or keys, and of values, of so many heads. */
gint64 sp_core_elements (const SpWriter *w, const SpCoreSlots *c, gint32 heads);
gint64 sp_core_values (const SpWriter *w, const SpCoreSlots *c, gint32 heads);

G_END_DECLS
