/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"

/*
 * Gradient reduction and ZeRO (Rajbhandari et al., 1910.02054) over the data x sequence ranks, which hold the same
 * weights. Payload a step, for m micro-batches and a block of n parameters: stage 0 all-reduce n; 1 reduce-scatter and
 * all-gather 2 n; 2 a reduce-scatter each micro-batch (m + 1) n; 3 gathers for forward and backward and a
 * reduce-scatter each 3 m n, or 2 m n where what the forward gathered is kept (reshard = false). Under a mirrored
 * schedule two pipeline stages hold the same weights: they sum their gradients once a step, before the data reduction
 * or, where that runs after every micro-batch, the shards after the last one.
 */

static gint32
shards (const SpWriter *w)
{
  return w->program->groups[SP_GROUP_ZERO].size;
}

static gint32
stage (const SpWriter *w)
{
  return shards (w) > 1 ? w->layout->zero : 0;
}

void
sp_zero_begin_block (SpWriter *w)
{
  SpLife parameters = stage (w) == 3 ? SP_LIFE_GATHERED : SP_LIFE_ALWAYS;
  SpLife gradients = stage (w) >= 2 ? SP_LIFE_SUMMED : SP_LIFE_ALWAYS;

  w->weight_elements = w->partial_elements = 0;
  w->block->flat_parameters = sp_write_buffer (w, SP_CLASS_PARAMETERS, w->dtype, parameters, 0);
  w->block->flat_gradients = sp_write_buffer (w, SP_CLASS_GRADIENTS, w->layout->gradient_dtype, gradients, 0);
}

static void
data_collective (SpWriter *w, SpOpKind kind, guint8 in, guint8 out, guint flags)
{
  sp_write_collective (w, kind, SP_GROUP_ZERO, SP_AXIS_DATA, SP_STREAM_DATA, in, out,
                       flags | (w->layout->overlap ? SP_OP_ASYNC : 0));
}

static void
write_gather (SpWriter *w, const SpTied *tied)
{
  const SpBlock *block = w->block;

  sp_write_begin (w, SP_PHASE_GATHER);
  if (stage (w) == 3 && w->weight_elements > 0)
    data_collective (w, SP_OP_ALL_GATHER, block->shard_parameters, block->flat_parameters, 0);
  if (tied->shard)
    data_collective (w, SP_OP_ALL_GATHER, tied->shard, tied->values, 0);
  sp_write_end (w);
}

/* Norm gains and biases that each tensor rank saw a part of the tokens for are summed over the tensor group first. */
static void
write_partial_sum (SpWriter *w, guint flags)
{
  if (w->partial_elements == 0)
    return;
  guint8 part = sp_write_view (w, w->block->flat_gradients, 0, w->partial_elements);
  sp_write_collective (w, SP_OP_ALL_REDUCE, SP_GROUP_TENSOR, SP_AXIS_TENSOR, SP_STREAM_TENSOR, part, part, flags);
}

static void
write_mirror_sum (SpWriter *w, guint8 gradients)
{
  if (w->program->groups[SP_GROUP_MIRROR].size > 1)
    sp_write_collective (w, SP_OP_ALL_REDUCE, SP_GROUP_MIRROR, SP_AXIS_PIPELINE, SP_STREAM_PIPELINE, gradients,
                         gradients, 0);
}

static void
write_sync (SpWriter *w, const SpTied *tied)
{
  const SpBlock *block = w->block;
  guint each = stage (w) >= 2 ? SP_OP_PER_MICRO_BATCH : 0;

  sp_write_begin (w, SP_PHASE_SYNC);
  write_partial_sum (w, each);
  if (tied->copy_gradient)
    sp_write_collective (w, SP_OP_ALL_REDUCE, SP_GROUP_TIE, SP_AXIS_PIPELINE, SP_STREAM_PIPELINE, tied->copy_gradient,
                         tied->copy_gradient, 0);
  if (w->weight_elements > 0 && !each)
    write_mirror_sum (w, block->flat_gradients);
  if (w->weight_elements == 0)
    ; /* the head of a tied model whose norms have no gain */
  else if (stage (w) > 0)
    data_collective (w, SP_OP_REDUCE_SCATTER, block->flat_gradients, block->shard_gradients,
                     each | (each ? SP_OP_ACCUMULATE : 0));
  else if (shards (w) > 1)
    data_collective (w, SP_OP_ALL_REDUCE, block->flat_gradients, block->flat_gradients, 0);
  if (w->weight_elements > 0 && each)
    write_mirror_sum (w, block->shard_gradients);
  sp_write_end (w);
}

static void
write_optimizer (SpWriter *w)
{
  const SpBlock *block = w->block;
  gboolean sharded = block->shard_gradients != 0;
  const SpBuffer *gradients = &block->buffers[sharded ? block->shard_gradients : block->flat_gradients];

  sp_write_begin (w, SP_PHASE_OPTIMIZER);
  if (gradients->elements > 0) {
    SpOp *op = sp_write_op (w, SP_OP_ADAM);
    op->in[0] = sharded ? block->shard_gradients : block->flat_gradients;
    op->out[0] = block->master;
    op->out[1] = block->moment1;
    op->out[2] = block->moment2;
    op->out[3] = sharded ? block->shard_parameters : block->flat_parameters;
    op->m = 1;
    op->n = (gint32) gradients->elements;
    /* master and moments are read and written, the parameter only written */
    op->bytes = gradients->elements * (sp_dtype_bytes (gradients->dtype) + 24 + sp_dtype_bytes (w->dtype));
    sp_write_op_done (w, op);
    if (stage (w) == 1 || stage (w) == 2)
      data_collective (w, SP_OP_ALL_GATHER, block->shard_parameters, block->flat_parameters, SP_OP_AFTER_OPTIMIZER);
  }
  sp_write_end (w);
}

void
sp_zero_end_weights (SpWriter *w, const SpTied *tied)
{
  SpBlock *block = w->block;
  gint64 parts = stage (w) > 0 ? shards (w) : 1;
  gint64 shard = (w->weight_elements + parts - 1) / parts;

  sp_write_size (w, block->flat_parameters, shard * parts);
  sp_write_size (w, block->flat_gradients, shard * parts);
  if (stage (w) > 0) {
    block->shard_parameters =
        sp_write_buffer (w, SP_CLASS_PARAMETERS, w->dtype, stage (w) == 3 ? SP_LIFE_ALWAYS : SP_LIFE_STEP_END, shard);
    block->shard_gradients = sp_write_buffer (w, SP_CLASS_GRADIENTS, w->layout->gradient_dtype,
                                              stage (w) >= 2 ? SP_LIFE_ALWAYS : SP_LIFE_STEP_END, shard);
  }
  block->master = sp_write_buffer (w, SP_CLASS_OPTIMIZER, SP_DTYPE_FP32, SP_LIFE_ALWAYS, shard);
  block->moment1 = sp_write_buffer (w, SP_CLASS_OPTIMIZER, SP_DTYPE_FP32, SP_LIFE_ALWAYS, shard);
  block->moment2 = sp_write_buffer (w, SP_CLASS_OPTIMIZER, SP_DTYPE_FP32, SP_LIFE_ALWAYS, shard);
  block->regather = stage (w) == 3 && w->layout->reshard;

  write_gather (w, tied);
  write_sync (w, tied);
  write_optimizer (w);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static gboolean
tied_reduces_once (const SpCase *c)
{
  return !c->arch->tied || c->layout->pipeline == 1 || c->layout->zero <= 1;
}

static void
explain_tied (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "zero = %d scatters gradients after every micro-batch, and the tied embedding of the first "
                          "and last of %d pipeline stages is summed once a step; use zero = 0 or 1, or pipeline = 1",
                          c->layout->zero, c->layout->pipeline);
}

static gboolean
has_replicas (const SpCase *c)
{
  return c->layout->zero < 2 || c->layout->data * sp_layout_sequence_ranks (c->layout, c->arch) > 1;
}

static void
explain_replicas (const SpCase *c, GString *out)
{
  g_string_append_printf (out, "zero = %d needs more than one data or sequence rank to shard over; use zero = 0 or 1",
                          c->layout->zero);
}

static const SpRule rules[] = {
  { "zero-tied", tied_reduces_once, explain_tied },
  { "zero-replicas", has_replicas, explain_replicas },
};

const SpStrategy sp_strategy_zero = {
  "zero", SP_AXIS_DATA,         "optimizer state (1), gradients (2), parameters (3) sharded over data x sequence ranks",
  rules,  G_N_ELEMENTS (rules), NULL,
};
