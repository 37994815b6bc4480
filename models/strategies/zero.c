/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "sim/op-cost.h"

#include <string.h>

/*
 * Gradient reduction and ZeRO (Rajbhandari et al., 1910.02054) over the data x sequence ranks, which hold the same
 * weights. Payload a step, for m micro-batches and a block of n parameters: stage 0 all-reduce n; 1 reduce-scatter and
 * all-gather 2 n; 2 a reduce-scatter each micro-batch (m + 1) n; 3 gathers for forward and backward and a
 * reduce-scatter each 3 m n, or 2 m n where what the forward gathered is kept (reshard = false). With s slices that is
 * 3 m s n; what is kept is gathered by a sequence's first slice for all of them, and is (1 + s) m n. Under a mirrored
 * schedule two pipeline stages hold the same weights: they sum their gradients once a step, before the data reduction
 * or, where that runs after every micro-batch, the shards after the last one.
 *
 * Hybrid shard (PyTorch FSDP, 2304.11277, section 3.2.2), zero-group = N: the nearest N of these ranks share one copy, and
 * gathers and scatters stay among them; the gradients' shards, n / N, are then all-reduced over the data x sequence / N
 * copies, once a step (as FSDP2 does with set_requires_all_reduce for the last micro-batch alone), or before each copy to
 * the host.
 *
 * Offload: the optimizer's states, fp32 gradients to add up and, of stage 3, the parameters' shards lie in host memory;
 * what was reduced is copied there after each reduction, the host runs the optimizer, and the parameters come back in
 * their own type. DeepSpeed overlaps the copy of gradients with the rest of the backward; here it comes after it.
 */

static gint32
shards (const SpWriter *w, const SpFlat *flat)
{
  return w->program->groups[flat->group].size;
}

/* Nothing is reduced of what is frozen, and nothing of it changes: only stage 3 shards it. */
static gint32
stage (const SpWriter *w, const SpFlat *flat)
{
  if (shards (w, flat) == 1 || (flat->frozen && w->layout->zero < 3))
    return 0;
  return w->layout->zero;
}

static gboolean
runs_on_host (const SpWriter *w, const SpFlat *flat)
{
  return !flat->frozen && (w->layout->offload & SP_OFFLOAD_OPTIMIZER) != 0;
}

static gboolean
parameters_on_host (const SpWriter *w, const SpFlat *flat)
{
  return stage (w, flat) == 3 && (w->layout->offload & SP_OFFLOAD_PARAMETERS) != 0;
}

/* The fp32 master is where the parameters are: gathered from it in their own type, or, of an embedding under autocast
 * that is no output matrix, read as it is; or they are fp32 themselves. */
static gboolean
is_master (const SpWriter *w, guint index)
{
  const SpFlat *flat = &w->block->flats[index];
  gboolean plain = !flat->frozen && !w->flats[index].is_muon && w->layout->offload == 0;

  if (w->dtype == SP_DTYPE_FP32)
    return plain;
  if (stage (w, flat) == 3)
    return plain && w->framework->gathers_master;
  return plain && stage (w, flat) == 0 && w->framework->autocast && !w->arch->tied &&
         w->block->kind == SP_BLOCK_EMBEDDING;
}

/* Moments that one scale serves: 2110.02861, section 2.2. */
#define MOMENT_BLOCK 2048

static SpDtype
moment_dtype (const SpWriter *w)
{
  return w->run->optimizer == SP_OPTIMIZER_ADAMW_8BIT ? SP_DTYPE_UINT8 : SP_DTYPE_FP32;
}

static guint8
open_flat (SpWriter *w, SpGroupId group, gboolean frozen)
{
  SpBlock *block = w->block;
  guint8 index = block->n_flats++;

  g_assert (index < SP_MAX_FLATS);
  memset (&w->flats[index], 0, sizeof w->flats[index]);
  w->flats[index].matrices = index;
  SpFlat *flat = &block->flats[index];
  *flat = (SpFlat){ .group = group, .frozen = frozen != FALSE };
  flat->parameters =
      sp_write_buffer (w, SP_CLASS_PARAMETERS, w->dtype, stage (w, flat) == 3 ? SP_LIFE_GATHERED : SP_LIFE_ALWAYS, 0);
  if (!frozen)
    flat->gradients = sp_write_buffer (w, SP_CLASS_GRADIENTS, w->layout->gradient_dtype,
                                       stage (w, flat) >= 2 ? SP_LIFE_SUMMED : SP_LIFE_ALWAYS, 0);
  if (is_master (w, index) && stage (w, flat) == 0)
    w->block->buffers[flat->parameters].dtype = SP_DTYPE_FP32;
  return index;
}

void
sp_zero_open_flat (SpWriter *w, SpGroupId group, gboolean frozen)
{
  w->flat = open_flat (w, group, frozen);
  if (frozen || !sp_muon_serves (w))
    return;
  guint8 matrices = open_flat (w, group, FALSE);
  w->flats[w->flat].matrices = matrices;
  w->flats[matrices].is_muon = TRUE;
}

void
sp_zero_begin_block (SpWriter *w)
{
  sp_zero_open_flat (w, SP_GROUP_ZERO, w->block->frozen != SP_FROZEN_NOT);
}

/* With more micro-batches their shards add up, and are there from the start. */
static gboolean
frees_gradients (const SpWriter *w)
{
  return w->framework->frees_gradients && sp_program_runs (w->program) == 1 && w->layout->offload == 0;
}

static void
data_collective (SpWriter *w, SpOpKind kind, SpGroupId group, guint8 in, guint8 out, guint flags)
{
  sp_write_collective (w, kind, group, SP_AXIS_DATA, SP_STREAM_DATA, in, out,
                       flags | (w->layout->overlap ? SP_OP_ASYNC : 0));
}

static gint32
tensors_of (const SpBlock *block, guint flat)
{
  gint32 n = 0;

  for (guint i = 0; i < block->n_weights; i++)
    n += block->weights[i].flat == flat;
  return n;
}

/* All of a block's, or tensor by tensor. */
static void
flat_collective (SpWriter *w, SpOpKind kind, guint index, guint8 in, guint8 out, guint flags)
{
  data_collective (w, kind, w->block->flats[index].group, in, out, flags);
  SpOp *op = &w->program->ops[w->program->n_ops - 1];
  if (w->framework->tensor_calls)
    op->batch = tensors_of (w->block, index);
  if (w->framework->shards_run_free && sp_op_moves_shards (op))
    op->reach = G_MAXUINT16;
}

/* In order with the collectives that it comes before or after. */
static void
host_copy (SpWriter *w, SpOpKind kind, guint8 in, guint8 out, guint flags)
{
  sp_write_host_copy (w, kind, SP_STREAM_DATA, in, out, flags | (w->layout->overlap ? SP_OP_ASYNC : 0));
}

static void
write_gather (SpWriter *w, const SpTied *tied)
{
  const SpBlock *block = w->block;

  sp_write_begin (w, SP_PHASE_GATHER);
  for (guint i = 0; i < block->n_flats; i++)
    if (stage (w, &block->flats[i]) == 3 && w->flats[i].elements > 0) {
      guint8 shard = block->flats[i].shard_parameters;
      if (parameters_on_host (w, &block->flats[i])) {
        guint8 here =
            sp_write_buffer (w, SP_CLASS_PARAMETERS, w->dtype, SP_LIFE_GATHERED, block->buffers[shard].elements);
        host_copy (w, SP_OP_FROM_HOST, shard, here, 0);
        shard = here;
      }
      flat_collective (w, SP_OP_ALL_GATHER, i, shard, block->flats[i].parameters, 0);
    }
  if (tied->shard)
    data_collective (w, SP_OP_ALL_GATHER, SP_GROUP_ZERO, tied->shard, tied->values, 0);
  sp_write_end (w);
}

/* Norm gains and biases that each tensor rank saw a part of the tokens for are summed over the tensor group first. */
static void
write_partial_sum (SpWriter *w, guint index, guint flags)
{
  if (w->flats[index].partial == 0)
    return;
  guint8 part = sp_write_view (w, w->block->flats[index].gradients, 0, w->flats[index].partial);
  sp_write_collective (w, SP_OP_ALL_REDUCE, SP_GROUP_TENSOR, SP_AXIS_TENSOR, SP_STREAM_TENSOR, part, part, flags);
}

static void
write_mirror_sum (SpWriter *w, guint8 gradients)
{
  if (w->program->groups[SP_GROUP_MIRROR].size > 1)
    sp_write_collective (w, SP_OP_ALL_REDUCE, SP_GROUP_MIRROR, SP_AXIS_PIPELINE, SP_STREAM_PIPELINE, gradients,
                         gradients, 0);
}

/* Over the copies of a hybrid shard. */
static void
write_replica_sum (SpWriter *w, guint8 gradients, guint flags)
{
  if (w->program->groups[SP_GROUP_REPLICA].size > 1)
    data_collective (w, SP_OP_ALL_REDUCE, SP_GROUP_REPLICA, gradients, gradients, flags);
}

/* Bytes that a parameter's gradient moves after each micro-batch: to ZeRO-2's and 3's reduction, or to the sums. */
static double
copied_bytes (const SpWriter *w, const SpFlat *flat)
{
  if (stage (w, flat) >= 2)
    return w->framework->shard_copies.value;
  if (!w->framework->gradients_apart)
    return 0;
  return (double) sp_dtype_bytes (w->dtype) + 2.0 * (double) sp_dtype_bytes (w->layout->gradient_dtype);
}

/* What a framework does to gradients after each micro-batch, beside the kernels that make them. */
void
sp_zero_write_copies (SpWriter *w)
{
  for (guint i = 0; i < w->block->n_flats; i++) {
    const SpFlat *flat = &w->block->flats[i];
    double each = copied_bytes (w, flat);
    gint64 n = w->flats[i].elements; /* what sharding pads moves nothing */
    if (flat->frozen || each == 0 || n == 0)
      continue;
    SpOp *op = sp_write_op (w, SP_OP_COPY);
    op->in[0] = flat->gradients;
    op->out[0] = flat->gradients;
    op->flags = SP_OP_WEIGHT;
    op->m = 1;
    op->n = (gint32) n;
    op->bytes = (gint64) (each * (double) n);
    sp_write_op_done (w, op);
  }
}

static void
write_flat_sync (SpWriter *w, guint index, guint8 copy_gradient)
{
  const SpFlat *flat = &w->block->flats[index];
  gboolean any = w->flats[index].elements > 0; /* the head of a tied model whose norms have no gain has none */
  guint each = stage (w, flat) >= 2 ? SP_OP_PER_MICRO_BATCH : 0;

  if (flat->frozen)
    return;
  write_partial_sum (w, index, each);
  if (copy_gradient)
    sp_write_collective (w, SP_OP_ALL_REDUCE, SP_GROUP_TIE, SP_AXIS_PIPELINE, SP_STREAM_PIPELINE, copy_gradient,
                         copy_gradient, 0);
  if (any && !each)
    write_mirror_sum (w, flat->gradients);
  if (any && stage (w, flat) > 0)
    flat_collective (w, SP_OP_REDUCE_SCATTER, index, flat->gradients, flat->shard_gradients,
                     each | (each && !flat->host_gradients && !frees_gradients (w) ? SP_OP_ACCUMULATE : 0));
  else if (any && shards (w, flat) > 1)
    flat_collective (w, SP_OP_ALL_REDUCE, index, flat->gradients, flat->gradients, 0);
  if (any && stage (w, flat) > 0)
    write_replica_sum (w, flat->shard_gradients, flat->host_gradients ? each : 0);
  if (any && each)
    write_mirror_sum (w, flat->shard_gradients);
  if (any && flat->host_gradients)
    host_copy (w, SP_OP_TO_HOST, flat->shard_gradients ? flat->shard_gradients : flat->gradients, flat->host_gradients,
               each | SP_OP_ACCUMULATE);
}

static void
write_sync (SpWriter *w, const SpTied *tied)
{
  sp_write_begin (w, SP_PHASE_SYNC);
  for (guint i = 0; i < w->block->n_flats; i++)
    write_flat_sync (w, i, i == 0 ? tied->copy_gradient : 0);
  sp_write_end (w);
}

static void
write_adam (SpWriter *w, const SpFlat *flat, guint8 from, guint8 updated)
{
  const SpBuffer *gradients = &w->block->buffers[from];
  gboolean host = flat->host_gradients != 0;
  gint64 n = gradients->elements, moment = (gint64) sp_dtype_bytes (moment_dtype (w));
  gint64 value = (gint64) sp_dtype_bytes (w->dtype);
  SpOp *op = sp_write_op (w, SP_OP_ADAM);

  op->in[0] = from;
  op->out[0] = flat->master;
  op->out[1] = flat->moment1;
  op->out[2] = flat->moment2;
  op->out[3] = updated == flat->master || (host && !w->block->buffers[updated].host) ? 0 : updated;
  op->flags = host ? SP_OP_ON_HOST : 0;
  op->m = 1;
  op->n = (gint32) n;
  /* Counted as if the parameters were here, also where the host's go over the bus. */
  op->bytes =
      sp_op_bytes (op, (gint64[SP_MAX_IN]){ n * (gint64) sp_dtype_bytes (gradients->dtype) },
                   (gint64[SP_MAX_OUT]){ 4 * n, n * moment, n * moment, updated == flat->master ? 0 : n * value });
  sp_write_op_done (w, op);
}

static void
write_flat_optimizer (SpWriter *w, guint index)
{
  const SpFlat *flat = &w->block->flats[index];
  gboolean sharded = flat->shard_gradients != 0, host = flat->host_gradients != 0;
  guint8 from = host ? flat->host_gradients : sharded ? flat->shard_gradients : flat->gradients;
  guint8 updated = sharded ? flat->shard_parameters : flat->parameters;

  if (flat->frozen || w->block->buffers[from].elements == 0)
    return;
  if (w->flats[index].is_muon)
    sp_muon_write (w, index, from, updated);
  else
    write_adam (w, flat, from, updated);
  if (host && !w->block->buffers[updated].host)
    host_copy (w, SP_OP_FROM_HOST, flat->master, updated, SP_OP_AFTER_OPTIMIZER);
  if (stage (w, flat) == 1 || stage (w, flat) == 2)
    flat_collective (w, SP_OP_ALL_GATHER, index, flat->shard_parameters, flat->parameters, SP_OP_AFTER_OPTIMIZER);
}

static void
write_optimizer (SpWriter *w)
{
  sp_write_begin (w, SP_PHASE_OPTIMIZER);
  for (guint i = 0; i < w->block->n_flats; i++)
    write_flat_optimizer (w, i);
  sp_write_end (w);
}

typedef guint8 (*BufferWriter) (SpWriter *w, SpClass class, SpDtype dtype, SpLife life, gint64 elements);

/* A micro-batch's own gradients come as its activations go, and are gone when its backward is over: they take the place of
 * those. Where they are more than these (large matrices and few tokens) what is there at its end is not counted. */
static void
write_gradient_copies (SpWriter *w, const SpFlat *flat, gint64 elements)
{
  gboolean apart = w->framework->gradients_apart;
  SpDtype dtype = apart ? w->dtype : w->layout->gradient_dtype;

  if (stage (w, flat) > 1)
    return;
  if (shards (w, flat) > 1 && w->framework->gradient_copies)
    sp_write_buffer (w, SP_CLASS_GRADIENTS, dtype, SP_LIFE_ALWAYS, elements);
}

static void
size_flat (SpWriter *w, guint index)
{
  SpFlat *flat = &w->block->flats[index];
  gint32 at = stage (w, flat);
  gint64 parts = at > 0 ? shards (w, flat) : 1;
  gint64 shard = (w->flats[index].elements + parts - 1) / parts;

  sp_write_size (w, flat->parameters, shard * parts);
  if (!flat->frozen)
    sp_write_size (w, flat->gradients, shard * parts);
  BufferWriter optimizer = runs_on_host (w, flat) ? sp_write_host_buffer : sp_write_buffer;
  if (at > 0)
    flat->shard_parameters = (parameters_on_host (w, flat) ? sp_write_host_buffer : sp_write_buffer) (
        w, SP_CLASS_PARAMETERS, at == 3 && is_master (w, index) ? SP_DTYPE_FP32 : w->dtype,
        at == 3 ? SP_LIFE_ALWAYS : SP_LIFE_STEP_END, shard);
  if (w->framework->whole_state_dict)
    sp_write_buffer (w, SP_CLASS_PARAMETERS, SP_DTYPE_FP32, SP_LIFE_CHECKPOINT, shard * parts);
  if (flat->frozen)
    return;
  if (at > 0) /* on its way to the host it is a part of what SYNC has to do */
    flat->shard_gradients = sp_write_buffer (w, SP_CLASS_GRADIENTS, w->layout->gradient_dtype,
                                             at < 2 || frees_gradients (w) ? SP_LIFE_STEP_END
                                             : runs_on_host (w, flat)      ? SP_LIFE_SUMMED
                                                                           : SP_LIFE_ALWAYS,
                                             shard);
  if (runs_on_host (w, flat))
    flat->host_gradients = sp_write_host_buffer (w, SP_CLASS_GRADIENTS, SP_DTYPE_FP32, SP_LIFE_ALWAYS, shard);
  write_gradient_copies (w, flat, shard * parts);
  if (is_master (w, index))
    flat->master = at > 0 ? flat->shard_parameters : flat->parameters;
  else
    flat->master = optimizer (w, SP_CLASS_OPTIMIZER, SP_DTYPE_FP32, SP_LIFE_ALWAYS, shard);
  flat->moment1 = optimizer (w, SP_CLASS_OPTIMIZER, moment_dtype (w), SP_LIFE_ALWAYS, shard);
  if (!w->flats[index].is_muon)
    flat->moment2 = optimizer (w, SP_CLASS_OPTIMIZER, moment_dtype (w), SP_LIFE_ALWAYS, shard);
  if (moment_dtype (w) == SP_DTYPE_UINT8) /* what they are scaled by */
    optimizer (w, SP_CLASS_OPTIMIZER, SP_DTYPE_FP32, SP_LIFE_ALWAYS, 2 * ((shard + MOMENT_BLOCK - 1) / MOMENT_BLOCK));
}

static gboolean
reshards (const SpWriter *w)
{
  gboolean is_end = w->block->kind == SP_BLOCK_EMBEDDING || w->block->kind == SP_BLOCK_HEAD;

  return w->layout->reshard && !(is_end && w->framework->keeps_ends);
}

void
sp_zero_end_weights (SpWriter *w, const SpTied *tied)
{
  SpBlock *block = w->block;

  for (guint i = 0; i < block->n_flats; i++) {
    size_flat (w, i);
    block->regather |= stage (w, &block->flats[i]) == 3 && (reshards (w) || !sp_block_has_backward (block));
  }
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

static gboolean
group_divides (const SpCase *c)
{
  gint64 ranks = (gint64) c->layout->data * sp_layout_sequence_ranks (c->layout, c->arch);

  return c->layout->zero_group == 0 || (c->layout->zero > 0 && c->layout->expert == 1 && c->layout->zero_group > 1 &&
                                        ranks % c->layout->zero_group == 0);
}

static void
explain_group (const SpCase *c, GString *out)
{
  gint32 ranks = c->layout->data * sp_layout_sequence_ranks (c->layout, c->arch);
  const char *separator = "";

  g_string_append_printf (out, "zero-group = %d ", c->layout->zero_group);
  if (c->layout->zero == 0) {
    g_string_append (out, "shares the parts of zero = 1, 2 or 3, and zero = 0; use zero-group = all");
    return;
  }
  if (c->layout->expert > 1) {
    g_string_append_printf (out,
                            "with expert = %d, whose ranks share other weights; use zero-group = all or expert = 1",
                            c->layout->expert);
    return;
  }
  g_string_append_printf (out, "must be a part of the %d data x sequence ranks, more than 1; legal: ", ranks);
  for (gint32 n = 2; n <= ranks; n++)
    if (ranks % n == 0) {
      g_string_append_printf (out, "%s%d", separator, n);
      separator = ", ";
    }
  g_string_append (out, *separator ? "; or all" : "all");
}

static const SpRule rules[] = {
  { "zero-group", group_divides, explain_group },
  { "zero-tied", tied_reduces_once, explain_tied },
  { "zero-replicas", has_replicas, explain_replicas },
};

const SpStrategy sp_strategy_zero = {
  "zero", SP_AXIS_DATA,         "optimizer state (1), gradients (2), parameters (3) sharded over data x sequence ranks",
  rules,  G_N_ELEMENTS (rules), NULL,
};
