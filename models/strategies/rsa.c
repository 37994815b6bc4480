/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/attention.h"

/*
 * Ring Self-Attention (Li et al., 2105.13120), as it was in 2021: unfused. K goes around the ring and fills a rank's
 * rows of the whole score matrix, tokens x sequence a head; softmax and dropout are over whole rows; then V goes
 * around. In the backward V goes around for the gradient of the scores, K for that of the queries, and the gradients of
 * all keys and values are all-reduced, of which a rank takes its own (ColossalAI's RingQK and RingAV). Nothing overlaps.
 *
 * Elements a layer, with x = B A (N / P) D: forward (P - 1) x for K and for V. Backward the same again, and two
 * all-reduces of P x: on the wire 2 (P - 1) x each, together 6 (P - 1) x.
 *
 * The code sums dK and dV in the activations' dtype; here it is ring-gradient-dtype. K and V have their own number of
 * heads, where the paper, of before grouped heads, has A.
 */

static gboolean
serves (const SpWriter *w)
{
  return w->layout->ring > 1 && w->layout->ring_kind == SP_RING_RSA;
}

static gint64
score_elements (const SpWriter *w, const SpCoreSlots *c)
{
  return (gint64) c->tokens * c->tokens * w->layout->ring * c->heads * w->batch;
}

static gint64
bytes_of (const SpWriter *w, guint8 slot)
{
  return w->block->buffers[slot].elements * sp_dtype_bytes (w->block->buffers[slot].dtype);
}

static SpOp *
core_op (SpWriter *w, SpOpKind kind, const SpCoreSlots *c, gint32 keys)
{
  gboolean values = kind == SP_OP_CONTEXT || kind == SP_OP_CONTEXT_BWD;
  SpOp *op = sp_write_op (w, kind);

  op->m = c->tokens;
  op->n = keys;
  op->k = values ? w->value_size : w->head_size;
  op->batch = w->batch;
  op->heads = c->heads;
  op->kv_heads = c->kv_heads;
  op->window = sp_core_window (w);
  op->flags = sp_core_is_causal (w) ? SP_OP_CAUSAL : 0;
  op->group = SP_GROUP_RING;
  return op;
}

/* Elementwise, on the whole rows. */
static void
rows_op (SpWriter *w, SpOpKind kind, const SpCoreSlots *c, guint8 in0, guint8 in1, guint8 out0, guint8 out1)
{
  SpOp *op = core_op (w, kind, c, c->tokens * w->layout->ring);

  op->in[0] = in0;
  op->in[1] = in1;
  op->out[0] = out0;
  op->out[1] = out1;
  sp_write_op_done (w, op);
}

/* One product: of a block of keys in a loop, `scores` being the columns of it; else of all keys. */
static void
product (SpWriter *w, SpOpKind kind, const SpCoreSlots *c, const guint8 *in, const guint8 *out, guint8 scores)
{
  gint32 parts = w->loop ? 1 : w->layout->ring;
  SpOp *op = core_op (w, kind, c, c->tokens * parts);

  for (guint i = 0; i < 3; i++) {
    op->in[i] = in[i];
    op->bytes += bytes_of (w, in[i]);
  }
  for (guint i = 0; i < 2; i++) {
    op->out[i] = out[i];
    op->bytes += bytes_of (w, out[i]);
  }
  op->bytes -= bytes_of (w, scores) / w->layout->ring * (w->layout->ring - parts);
  if (w->loop && out[0] != scores) { /* a sum over the steps, read and written */
    op->flags |= SP_OP_ACCUMULATE;
    op->bytes += bytes_of (w, out[0]);
  }
  op->flops = 2.0 * op->m * op->n * op->k * c->heads * w->batch;
  sp_write_op_done (w, op);
}

static void
clear (SpWriter *w, const SpCoreSlots *c, guint8 slot)
{
  gint64 rows = (gint64) c->tokens * c->heads * w->batch;

  sp_write_rows (w, SP_OP_ZERO, (gint32) rows, (gint32) (w->block->buffers[slot].elements / rows), 0, 0, 0, slot, 0, 0);
}

/* The ring of K, or of V; returns what is here at a step. */
static guint8
begin_ring (SpWriter *w, guint8 own, SpLoop **ret_loop)
{
  gint64 n = w->block->buffers[own].elements;

  *ret_loop = sp_write_loop_begin (w, SP_GROUP_RING);
  SpCarry *carry = &(*ret_loop)->carries[(*ret_loop)->n_carries++];
  carry->init = own;
  carry->current = sp_write_buffer (w, SP_CLASS_COMMUNICATION, w->dtype, SP_LIFE_SEGMENT, n);
  carry->next = sp_write_buffer (w, SP_CLASS_COMMUNICATION, w->dtype, SP_LIFE_SEGMENT, n);
  return carry->current;
}

static void
end_ring (SpWriter *w, SpLoop *loop)
{
  sp_write_message (w, SP_OP_SEND_RECEIVE, SP_GROUP_RING, SP_AXIS_RING, SP_STREAM_SEQUENCE, loop->carries[0].current, 0,
                    loop->carries[0].next, 0, 0, SP_GUARD_NOT_LAST_STEP);
  sp_write_loop_end (w, loop);
}

static void
forward (SpWriter *w, SpCoreSlots *c)
{
  gint64 n = score_elements (w, c);
  guint8 raw = sp_write_temporary (w, n);
  SpLoop *loop;

  clear (w, c, raw);
  guint8 k = begin_ring (w, c->k, &loop);
  product (w, SP_OP_SCORES, c, (const guint8[]){ c->q, k, 0 }, (const guint8[]){ raw, 0 }, raw);
  end_ring (w, loop);

  c->scores[0] = c->scores[2] = sp_write_stash (w, SP_TIER_SCORES, n);
  rows_op (w, SP_OP_SOFTMAX, c, raw, c->sinks.value, c->scores[0], 0);
  if (w->arch->dropout > 0) {
    c->scores[1] = sp_write_stash_of (w, SP_TIER_SCORES, SP_DTYPE_UINT8, n);
    c->scores[2] = sp_write_stash (w, SP_TIER_SCORES, n);
    rows_op (w, SP_OP_DROPOUT, c, c->scores[0], 0, c->scores[2], c->scores[1]);
  }

  c->o = sp_ulysses_operand (w, sp_core_values (w, c, c->heads));
  clear (w, c, c->o);
  guint8 v = begin_ring (w, c->v, &loop);
  product (w, SP_OP_CONTEXT, c, (const guint8[]){ c->scores[2], v, 0 }, (const guint8[]){ c->o, 0 }, c->scores[2]);
  end_ring (w, loop);
}

static guint8
all_of (SpWriter *w, guint8 own)
{
  return sp_write_buffer (w, SP_CLASS_COMMUNICATION, w->layout->ring_gradient_dtype, SP_LIFE_SEGMENT,
                          w->block->buffers[own].elements * w->layout->ring);
}

/* The sum over all ranks of the gradients of all keys, of which this rank's are its part. */
static guint8
reduce (SpWriter *w, const SpCoreSlots *c, guint8 d_all)
{
  gint64 n = w->block->buffers[d_all].elements / w->layout->ring;
  guint8 own = sp_write_temporary (w, n);

  sp_write_collective (w, SP_OP_ALL_REDUCE, SP_GROUP_RING, SP_AXIS_RING, SP_STREAM_SEQUENCE, d_all, d_all, 0);
  SpOp *op = sp_write_op (w, SP_OP_COPY);
  op->m = c->tokens;
  op->n = (gint32) (n / c->tokens);
  op->in[0] = d_all;
  op->out[0] = own;
  op->group = SP_GROUP_RING;
  op->bytes = bytes_of (w, own) + bytes_of (w, d_all) / w->layout->ring;
  sp_write_op_done (w, op);
  return own;
}

static void
backward (SpWriter *w, SpCoreSlots *c)
{
  gint64 n = score_elements (w, c);
  guint8 dv = all_of (w, c->v);
  SpLoop *loop;

  product (w, SP_OP_CONTEXT_BWD, c, (const guint8[]){ c->scores[2], 0, c->d_o }, (const guint8[]){ 0, dv }, 0);
  c->dv = reduce (w, c, dv);
  guint8 d_dropped = sp_write_temporary (w, n), d_probabilities = d_dropped;
  clear (w, c, d_dropped);
  guint8 v = begin_ring (w, c->v, &loop);
  product (w, SP_OP_CONTEXT_BWD, c, (const guint8[]){ 0, v, c->d_o }, (const guint8[]){ d_dropped, 0 }, d_dropped);
  end_ring (w, loop);

  if (w->arch->dropout > 0) {
    d_probabilities = sp_write_temporary (w, n);
    rows_op (w, SP_OP_DROPOUT_BWD, c, d_dropped, c->scores[1], d_probabilities, 0);
  }
  guint8 d_scores = sp_write_temporary (w, n);
  rows_op (w, SP_OP_SOFTMAX_BWD, c, c->scores[0], d_probabilities, d_scores, c->sinks.grad);

  guint8 dk = all_of (w, c->k);
  product (w, SP_OP_SCORES_BWD, c, (const guint8[]){ c->q, 0, d_scores }, (const guint8[]){ 0, dk }, 0);
  c->dk = reduce (w, c, dk);
  c->dq = sp_write_temporary (w, sp_core_elements (w, c, c->heads));
  clear (w, c, c->dq);
  guint8 k = begin_ring (w, c->k, &loop);
  product (w, SP_OP_SCORES_BWD, c, (const guint8[]){ 0, k, d_scores }, (const guint8[]){ c->dq, 0 }, d_scores);
  end_ring (w, loop);
}

static const SpCore core = { "rsa", SP_BLOCK_SOFTMAX, serves, forward, backward };
static const SpCore *const cores[] = { &core, NULL };

const SpStrategy sp_strategy_rsa = {
  "rsa", SP_AXIS_RING, "Ring Self-Attention of 2021 (ring-kind = rsa): unfused, whole rows of scores kept", NULL,
  0,     cores,
};
