/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

/* The embedding, split over tensor ranks by vocabulary: ids of other parts give zero rows and the sum over the group is
 * the row. Learned positions and dropout are on this rank's rows. */

typedef struct {
  SpWeightSlots table, positions;
  guint8 mask;
} Embedding;

/* A sequence longer than the table needs a longer table. */
static gint32
position_rows (const SpWriter *w)
{
  return w->arch->positions ? (gint32) MAX ((gint64) w->arch->positions, w->run->sequence) : 0;
}

static SpOp *
lookup_op (SpWriter *w, SpOpKind kind, gint32 rows, gint32 table_rows, guint8 in0, guint8 in1, guint8 out)
{
  SpOp *op = sp_write_op (w, kind);
  gint64 row_bytes = w->hidden * sp_dtype_bytes (w->dtype);
  gboolean backward = kind == SP_OP_EMBED_BWD || kind == SP_OP_POSITION_BWD;

  op->m = rows;
  op->n = table_rows;
  op->k = w->hidden;
  op->in[0] = in0;
  op->in[1] = in1;
  op->out[0] = out;
  op->flags = backward ? SP_OP_ACCUMULATE | SP_OP_WEIGHT : 0;
  /* Only the rows that are looked up move: one row in and one out, and a sum besides. */
  op->bytes = rows * (backward ? row_bytes + 2 * (gint64) w->hidden * sp_dtype_bytes (w->layout->gradient_dtype)
                      : in1    ? 3 * row_bytes
                               : 2 * row_bytes);
  sp_write_op_done (w, op);
  return op;
}

static void
write_forward (SpWriter *w, Embedding *e)
{
  gboolean positions = e->positions.value != 0, dropout = w->arch->dropout > 0;
  gint64 elements = (gint64) w->region_rows * w->hidden;
  gboolean sums = w->layout->tensor > 1;

  guint8 rows = !sums && !positions && !dropout ? SP_SLOT_Y : sp_write_temporary (w, (gint64) w->rows * w->hidden);
  lookup_op (w, SP_OP_EMBED, w->rows, w->vocabulary, e->table.value, 0, rows);
  if (sums)
    rows = sp_tensor_leave (w, rows);
  if (positions) {
    guint8 out = dropout ? sp_write_temporary (w, elements) : SP_SLOT_Y;
    lookup_op (w, SP_OP_POSITION, w->region_rows, position_rows (w), rows, e->positions.value, out);
    rows = out;
  }
  if (dropout) {
    e->mask = sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_UINT8, elements);
    sp_write_rows (w, SP_OP_DROPOUT, w->region_rows, w->hidden, rows, 0, 0, SP_SLOT_Y, e->mask, 0);
  } else if (rows != SP_SLOT_Y)
    sp_write_rows (w, SP_OP_COPY, w->region_rows, w->hidden, rows, 0, 0, SP_SLOT_Y, 0, 0);
}

static void
write_backward (SpWriter *w, Embedding *e)
{
  guint8 d = SP_SLOT_DY;

  if (w->arch->dropout > 0) {
    d = sp_write_temporary (w, (gint64) w->region_rows * w->hidden);
    sp_write_rows (w, SP_OP_DROPOUT_BWD, w->region_rows, w->hidden, SP_SLOT_DY, e->mask, 0, d, 0, 0);
  }
  if (e->positions.value)
    lookup_op (w, SP_OP_POSITION_BWD, w->region_rows, position_rows (w), d, 0, e->positions.grad);
  lookup_op (w, SP_OP_EMBED_BWD, w->rows, w->vocabulary, sp_tensor_leave_backward (w, d), 0, e->table.grad);
}

void
sp_write_embedding (SpWriter *w)
{
  Embedding e = { 0 };

  if (w->arch->positions)
    e.positions = sp_write_weight (w, "positions", position_rows (w), w->hidden, SP_SPLIT_NONE, NULL, 0,
                                   w->program->sequence_regions);
  e.table = sp_write_weight (w, "embedding", w->vocabulary, w->hidden, SP_SPLIT_VOCABULARY, NULL, 0, FALSE);
  SpTied tied = { .copy_gradient = w->arch->tied && w->layout->pipeline > 1 ? e.table.grad : 0 };
  sp_zero_end_weights (w, &tied);
  if (w->state_only)
    return;

  sp_write_begin (w, SP_PHASE_FORWARD);
  write_forward (w, &e);
  sp_write_end (w);

  sp_write_begin (w, SP_PHASE_BACKWARD);
  write_backward (w, &e);
  sp_write_end (w);
}
