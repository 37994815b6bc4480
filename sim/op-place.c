/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/op-place.h"

/* Of an input that an end does not read. */
static gint64
input_bytes (const SpOp *op)
{
  if (op->kind == SP_OP_CONV || op->kind == SP_OP_CONV_BWD)
    return 2 * (gint64) MAX (op->window - 1, 0) * op->batch * op->n;
  return 4 * (gint64) op->batch * op->heads * op->k * op->n;
}

SpOp
sp_op_at (const SpOp *op, gint32 place, gint32 size)
{
  SpOpEnds ends = sp_op_ends (op);
  guint absent = (place == 0 ? ends.first : 0u) | (place >= size - 1 ? ends.last : 0u);
  SpOp at = *op;

  at.flops *= sp_op_share (op, place, size);
  at.flags &= ~(guint32) SP_OP_BY_PLACE;
  for (guint i = 0; absent >> i != 0; i++)
    if (absent >> i & 1 && at.in[i] != 0) {
      at.in[i] = 0;
      at.bytes -= input_bytes (op);
    }
  return at;
}
