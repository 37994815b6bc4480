/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What of an op depends on the place in its group, beside its guard. All readers of a program see the op so: what is
 * computed, which kernel it is (sim/op-form.h), what it moves and computes, and what it takes.
 *   operands   inputs that count as zero at an end of a chain (sim/op.h) are not read there: a state, of
 *              [batch,heads,k,n] in fp32, or the last tokens of the place before, of [window - 1,batch,n] in two bytes.
 *              FLOP stay as they are: a kernel with a state goes the same way through its tokens without one
 *   work       of an op flagged SP_OP_BY_PLACE each place has more FLOP than the one before
 */

#include "sim/op.h"

G_BEGIN_DECLS

/* Inputs that are not read at the first place of the op's group, and at the last: bit i is in[i]. Of neither end: 0. */
typedef struct {
  guint8 first, last;
} SpOpEnds;

static inline SpOpEnds
sp_op_ends (const SpOp *op)
{
  switch (op->kind) {
  case SP_OP_STATE_UPDATE:
    return op->flags & SP_OP_REVERSE ? (SpOpEnds){ 0, 1 << 0 } : (SpOpEnds){ 1 << 0, 0 };
  case SP_OP_RECURRENT:
    return (SpOpEnds){ 1 << 5, 0 };
  case SP_OP_RECURRENT_BWD:
    return (SpOpEnds){ 1 << 6, 1 << 7 };
  case SP_OP_CONV:
    return (SpOpEnds){ 1 << 3, 0 };
  case SP_OP_CONV_BWD:
    return (SpOpEnds){ 1 << 4, 0 };
  default:
    return (SpOpEnds){ 0, 0 };
  }
}

/* Whether an input that the op has is not read at one of the two. */
static inline gboolean
sp_op_has_ends (const SpOp *op)
{
  SpOpEnds ends = sp_op_ends (op);
  guint either = (guint) ends.first | ends.last;

  for (guint i = 0; either >> i != 0; i++)
    if (either >> i & 1 && op->in[i] != 0)
      return TRUE;
  return FALSE;
}

/* Part of an op's FLOP that a place of its group of `size` has: of causal attention of m queries, m x m pairs with the
 * keys of each place before it and m (m + 1) / 2 with its own. */
static inline double
sp_op_share (const SpOp *op, gint32 place, gint32 size)
{
  if (!(op->flags & SP_OP_BY_PLACE))
    return 1;
  return (2.0 * place * op->m + op->m + 1) / (2.0 * (size - 1) * op->m + op->m + 1);
}

/* The op at a place of its group of `size` (a group of one is both ends): inputs that are not read there are 0, and
 * their bytes are not among its own; FLOP are the place's, and it is no longer flagged SP_OP_BY_PLACE. */
SpOp sp_op_at (const SpOp *op, gint32 place, gint32 size);

G_END_DECLS
