/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the cores of linear layers share: lasp.c has the fixed decay, lasp-recurrent.c the recurrences. */

#include "models/strategies/strategies.h"

G_BEGIN_DECLS

static inline gint32
sp_linear_places (const SpWriter *w)
{
  return w->program->groups[SP_GROUP_LASP].size;
}

static inline gint64
sp_linear_state_elements (const SpWriter *w, const SpCoreSlots *c)
{
  return (gint64) w->batch * c->heads * c->key_size * c->value_size;
}

/* Of q and k: [tokens, batch, kv_heads, key_size]; of v and o: [tokens, batch, heads, value_size]. */
static inline gint64
sp_linear_key_elements (const SpWriter *w, const SpCoreSlots *c)
{
  return (gint64) c->tokens * w->batch * c->kv_heads * c->key_size;
}

static inline gint64
sp_linear_value_elements (const SpWriter *w, const SpCoreSlots *c)
{
  return (gint64) c->tokens * w->batch * c->heads * c->value_size;
}

/* An op with the core's dimensions, rule and group, without operands. */
SpOp *sp_linear_op (SpWriter *w, SpOpKind kind, const SpCoreSlots *c);
/* A state on its way, and one from before, which is kept under every recompute mode: it is small, and to rebuild it
 * would take the chain or the gather again. `elements` as the caller counts them. */
guint8 sp_linear_travelling (SpWriter *w, gint64 elements);
guint8 sp_linear_kept (SpWriter *w, gint64 elements);
/* The two ends of a chain's hop: `flags` = SP_OP_REVERSE for the gradient's chain, which runs the other way. What is
 * sent is the state before, moved through the own tokens (by `transfer` or a fixed decay), plus the own one. */
void sp_linear_receive (SpWriter *w, guint8 before, guint flags);
void sp_linear_update_and_send (SpWriter *w, const SpCoreSlots *c, guint8 before, guint8 own, guint8 transfer,
                                guint flags);
/* Of all places; and from that the state before this one, or the gradient after it. */
guint8 sp_linear_gather (SpWriter *w, guint8 own);
void sp_linear_combine (SpWriter *w, const SpCoreSlots *c, guint8 all, guint8 out, guint flags);

extern const SpCore sp_core_recurrent_alone, sp_core_recurrent_lasp, sp_core_recurrent_lasp2;

G_END_DECLS
