/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"
#include "sim/op-cost.h"

/* The embedding, split over tensor ranks by vocabulary: ids of other parts give zero rows and the sum over the group is
 * the row. Learned positions, segments (BERT's token types), a norm and dropout are on this rank's rows. */

typedef struct {
  SpWeightSlots table, positions, segments;
  SpNormSlots norm;
  guint8 mask;
  guint left; /* steps that still have to write the output */
} Embedding;

/* A sequence longer than the table needs a longer table. */
static gint32
position_rows (const SpWriter *w)
{
  const SpArchitecture *arch = w->arch;

  return arch->positions ? (gint32) MAX ((gint64) arch->positions, sp_run_positions (w->run) + arch->position_offset)
                         : 0;
}

static SpOp *
lookup_op (SpWriter *w, SpOpKind kind, gint32 rows, gint32 table_rows, guint8 in0, guint8 in1, guint8 out, guint flags)
{
  SpOp *op = sp_write_op (w, kind);
  gint64 row = (gint64) w->hidden * (gint64) sp_dtype_bytes (w->dtype);
  gint64 sum_row = (gint64) w->hidden * (gint64) sp_dtype_bytes (w->layout->gradient_dtype);
  gboolean backward = kind == SP_OP_EMBED_BWD || kind == SP_OP_POSITION_BWD;

  op->m = rows;
  op->n = table_rows;
  op->k = w->hidden;
  op->in[0] = in0;
  op->in[1] = in1;
  op->out[0] = out;
  op->flags = flags | (backward ? SP_OP_ACCUMULATE | SP_OP_WEIGHT : 0);
  /* As if all were of the layer's type: under autocast the table's own depends on how it is sharded, and what a forward
   * costs does not. */
  if (backward)
    op->bytes = sp_op_bytes (op, (gint64[SP_MAX_IN]){ rows * row }, (gint64[SP_MAX_OUT]){ table_rows * sum_row });
  else
    op->bytes = sp_op_bytes (
        op, in1 ? (gint64[SP_MAX_IN]){ rows * row, table_rows * row } : (gint64[SP_MAX_IN]){ table_rows * row },
        (gint64[SP_MAX_OUT]){ rows * row });
  sp_write_op_done (w, op);
  return op;
}

/* Where the next step writes: the last one to the block's output. */
static guint8
next_rows (SpWriter *w, Embedding *e)
{
  return e->left-- == 1 ? SP_SLOT_Y : sp_write_temporary (w, (gint64) w->region_rows * w->hidden);
}

static guint8
write_lookup (SpWriter *w, Embedding *e, guint8 rows, gint32 table_rows, guint8 table, guint flags)
{
  guint8 out = next_rows (w, e);

  lookup_op (w, SP_OP_POSITION, w->region_rows, table_rows, rows, table, out, flags);
  return out;
}

static void
write_forward (SpWriter *w, Embedding *e)
{
  const SpArchitecture *arch = w->arch;
  gint32 m = w->region_rows, n = w->hidden;
  gboolean sums = w->layout->tensor > 1, dropout = arch->dropout > 0;

  e->left = (arch->positions > 0) + (arch->token_types > 0) + arch->embedding_norm + dropout;
  guint8 rows = !sums && e->left == 0 ? SP_SLOT_Y : sp_write_temporary (w, (gint64) w->rows * n);
  lookup_op (w, SP_OP_EMBED, w->rows, w->vocabulary, e->table.value, 0, rows, 0);
  if (sums)
    rows = sp_tensor_leave (w, rows);
  if (arch->positions)
    rows = write_lookup (w, e, rows, position_rows (w), e->positions.value, 0);
  if (arch->token_types)
    rows = write_lookup (w, e, rows, arch->token_types, e->segments.value, SP_OP_SEGMENT);
  if (arch->embedding_norm) {
    sp_write_keep (w, rows, SP_TIER_KEEP);
    sp_write_norm_to (w, &e->norm, rows, m, n, next_rows (w, e));
    rows = e->norm.y;
  }
  if (dropout) {
    e->mask = sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_UINT8, (gint64) m * n);
    sp_write_rows (w, SP_OP_DROPOUT, m, n, rows, 0, 0, SP_SLOT_Y, e->mask, 0);
  } else if (rows != SP_SLOT_Y)
    sp_write_rows (w, SP_OP_COPY, m, n, rows, 0, 0, SP_SLOT_Y, 0, 0);
}

static void
write_backward (SpWriter *w, Embedding *e)
{
  gint32 m = w->region_rows, n = w->hidden;
  guint8 d = SP_SLOT_DY;

  if (w->arch->dropout > 0) {
    d = sp_write_temporary (w, (gint64) m * n);
    sp_write_rows (w, SP_OP_DROPOUT_BWD, m, n, SP_SLOT_DY, e->mask, 0, d, 0, 0);
  }
  if (w->arch->embedding_norm) {
    guint8 d_rows = sp_write_temporary (w, (gint64) m * n);
    sp_write_norm_backward (w, &e->norm, d, 0, d_rows);
    d = d_rows;
  }
  if (e->segments.value)
    lookup_op (w, SP_OP_POSITION_BWD, m, w->arch->token_types, d, 0, e->segments.grad, SP_OP_SEGMENT);
  if (e->positions.value)
    lookup_op (w, SP_OP_POSITION_BWD, m, position_rows (w), d, 0, e->positions.grad, 0);
  lookup_op (w, SP_OP_EMBED_BWD, w->rows, w->vocabulary, sp_tensor_leave_backward (w, d), 0, e->table.grad, 0);
}

void
sp_write_embedding (SpWriter *w)
{
  gboolean partial = w->program->sequence_regions;
  Embedding e = { 0 };

  if (w->arch->positions)
    e.positions = sp_write_weight (w, "positions", position_rows (w), w->hidden, SP_SPLIT_NONE, NULL, 0, partial);
  if (w->arch->token_types)
    e.segments = sp_write_weight (w, "segments", w->arch->token_types, w->hidden, SP_SPLIT_NONE, NULL, 0, partial);
  if (w->arch->embedding_norm)
    sp_write_norm_weights (w, &e.norm, "norm", w->hidden);
  /* The last one: a tied head finds it there. */
  e.table = sp_write_weight (w, "embedding", w->vocabulary, w->hidden, SP_SPLIT_VOCABULARY, NULL, 0, FALSE);
  SpTied tied = { .copy_gradient = w->arch->tied && w->layout->pipeline > 1 ? e.table.grad : 0 };
  sp_zero_end_weights (w, &tied);
  if (w->state_only)
    return;

  sp_write_begin (w, SP_PHASE_FORWARD);
  write_forward (w, &e);
  sp_write_end (w);

  if (!sp_block_has_backward (w->block))
    return;
  sp_write_begin (w, SP_PHASE_BACKWARD);
  write_backward (w, &e);
  sp_zero_write_copies (w);
  sp_write_end (w);
}
