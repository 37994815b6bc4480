/* SPDX-License-Identifier: Apache-2.0 */
#include "models/writer.h"

/*
 * The short causal convolution before a recurrence, with its silu.
 *
 * A sequence part needs the last width - 1 rows of the part before: each rank passes its own on, around the ring of all
 * sequence ranks, and the first one does not read what comes. They are kept under recompute, as the neighbour would
 * have to send them again. Back go their gradients, which the receiver adds to its last rows'.
 */

void
sp_write_conv_weights (SpWriter *w, SpConvSlots *c, const SpLinearShape *shape, gint32 features, const gint32 *sections,
                       guint n_sections)
{
  c->features = features;
  c->width = shape->conv;
  c->weight = sp_write_weight (w, "conv", features, shape->conv, SP_SPLIT_ROWS, sections, n_sections, FALSE);
  if (shape->conv_bias)
    c->bias = sp_write_weight (w, "conv.bias", features, 1, SP_SPLIT_ROWS, sections, n_sections, FALSE);
}

static gboolean
is_cut (const SpWriter *w)
{
  return w->program->groups[SP_GROUP_SEQUENCE].size > 1;
}

/* The rows of the last width - 1 tokens. */
static guint8
last_rows (SpWriter *w, const SpConvSlots *c, guint8 rows)
{
  gint64 all = (gint64) w->rows * c->features, n = (gint64) (c->width - 1) * w->batch * c->features;

  return sp_write_view (w, rows, all - n, n);
}

static void
pass_on (SpWriter *w, guint8 in, guint8 out, guint flags)
{
  sp_write_message (w, SP_OP_SEND_RECEIVE, SP_GROUP_SEQUENCE, w->layout->lasp > 1 ? SP_AXIS_LASP : SP_AXIS_ULYSSES,
                    SP_STREAM_SEQUENCE, in, 0, out, 0, flags, 0);
}

static SpOp *
conv_op (SpWriter *w, const SpConvSlots *c, SpOpKind kind)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows / w->batch;
  op->n = c->features;
  op->batch = w->batch;
  op->window = c->width;
  op->group = is_cut (w) ? SP_GROUP_SEQUENCE : 0;
  return op;
}

guint8
sp_write_conv (SpWriter *w, SpConvSlots *c, guint8 in, SpTier tier)
{
  gint64 n = (gint64) w->rows * c->features;

  c->in = in;
  if (is_cut (w) && c->width > 1) {
    guint8 last = last_rows (w, c, in);
    c->halo = sp_write_buffer (w, SP_CLASS_ACTIVATIONS, w->dtype, SP_LIFE_STASH, w->block->buffers[last].elements);
    pass_on (w, last, c->halo, 0);
  }
  guint8 out = tier == SP_N_TIERS ? sp_write_temporary (w, n) : sp_write_stash (w, tier, n);
  SpOp *op = conv_op (w, c, SP_OP_CONV);
  op->in[0] = in;
  op->in[1] = c->weight.value;
  op->in[2] = c->bias.value;
  op->in[3] = c->halo;
  op->out[0] = out;
  sp_write_op_done (w, op);
  return out;
}

/* The gradient that came back from the next place. */
static void
add_from_next (SpWriter *w, const SpConvSlots *c, guint8 d_halo, guint8 d_in)
{
  guint8 from_next =
      sp_write_buffer (w, SP_CLASS_COMMUNICATION, w->dtype, SP_LIFE_SEGMENT, w->block->buffers[d_halo].elements);

  pass_on (w, d_halo, from_next, SP_OP_REVERSE);
  SpOp *op = sp_write_op (w, SP_OP_ACCUMULATE_INTO);
  op->m = (c->width - 1) * w->batch;
  op->n = c->features;
  op->group = SP_GROUP_SEQUENCE;
  op->guard = SP_GUARD_NOT_LAST;
  op->in[0] = from_next;
  op->out[0] = last_rows (w, c, d_in);
  op->flags = SP_OP_ACCUMULATE;
  sp_write_op_done (w, op);
}

guint8
sp_write_conv_backward (SpWriter *w, const SpConvSlots *c, guint8 d_out)
{
  guint8 d_in = sp_write_temporary (w, (gint64) w->rows * c->features), d_halo = 0;

  if (c->halo)
    d_halo =
        sp_write_buffer (w, SP_CLASS_COMMUNICATION, w->dtype, SP_LIFE_SEGMENT, w->block->buffers[c->halo].elements);
  SpOp *op = conv_op (w, c, SP_OP_CONV_BWD);
  op->in[0] = d_out;
  op->in[1] = c->in;
  op->in[2] = c->weight.value;
  op->in[3] = c->bias.value;
  op->in[4] = c->halo;
  op->out[0] = d_in;
  op->out[1] = c->weight.grad;
  op->out[2] = c->bias.grad;
  op->out[3] = d_halo;
  sp_write_op_done (w, op);
  if (d_halo)
    add_from_next (w, c, d_halo, d_in);
  return d_in;
}
