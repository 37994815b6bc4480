/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "sim/op-cost.h"

#include <string.h>

/* --- buffers ---------------------------------------------------------------------------------------------------- */

/* Beyond the room that there is: the last one again, so that who counts what a layout needs gets to its end. */
static guint8
new_slot (SpWriter *w)
{
  SpBlock *block = w->block;

  if (block->n_buffers == SP_MAX_SLOTS) {
    w->lacking++;
    return SP_MAX_SLOTS - 1;
  }
  return block->n_buffers++;
}

guint8
sp_write_buffer (SpWriter *w, SpClass class, SpDtype dtype, SpLife life, gint64 elements)
{
  guint8 slot = new_slot (w);

  w->block->buffers[slot] = (SpBuffer){ .class = class, .dtype = dtype, .life = life };
  w->slot[slot].root = slot;
  sp_write_size (w, slot, elements);
  return slot;
}

guint8
sp_write_host_buffer (SpWriter *w, SpClass class, SpDtype dtype, SpLife life, gint64 elements)
{
  guint8 slot = sp_write_buffer (w, class, dtype, life, elements);

  w->block->buffers[slot].host = 1;
  w->block->buffers[slot].bytes = 0;
  w->program->offloads = 1;
  return slot;
}

void
sp_write_size (SpWriter *w, guint8 slot, gint64 elements)
{
  SpBuffer *buffer = &w->block->buffers[slot];

  buffer->elements = elements;
  w->slot[slot].traffic = elements * sp_dtype_bytes (buffer->dtype);
  buffer->bytes = buffer->host ? 0 : w->slot[slot].traffic;
}

guint8
sp_write_view (SpWriter *w, guint8 of, gint64 offset, gint64 elements)
{
  guint8 slot = new_slot (w);
  const SpBuffer *parent = &w->block->buffers[of];

  w->block->buffers[slot] = (SpBuffer){ .elements = elements,
                                        .offset = offset,
                                        .class = parent->class,
                                        .dtype = parent->dtype,
                                        .life = parent->life,
                                        .alias = of };
  w->slot[slot].root = of;
  w->slot[slot].traffic = elements * sp_dtype_bytes (parent->dtype);
  return slot;
}

guint8
sp_write_tile (SpWriter *w, guint8 of)
{
  gint32 tiles = w->block->loops[w->loop - 1].steps;
  guint8 slot = sp_write_view (w, of, 0, w->block->buffers[of].elements / tiles);

  w->block->buffers[slot].moves = 1;
  return slot;
}

guint8
sp_write_temporary_of (SpWriter *w, SpDtype dtype, gint64 elements)
{
  return sp_write_buffer (w, SP_CLASS_ACTIVATIONS, dtype, SP_LIFE_SEGMENT, elements);
}

guint8
sp_write_temporary (SpWriter *w, gint64 elements)
{
  return sp_write_temporary_of (w, w->dtype, elements);
}

static gboolean
is_dropped (const SpWriter *w, SpTier tier)
{
  if (w->recompute == SP_RECOMPUTE_NONE)
    return FALSE;
  if (w->recompute == SP_RECOMPUTE_FULL)
    return TRUE;
  return tier == (w->framework->selective_attention ? SP_TIER_SCORES : SP_TIER_ELEMENTWISE);
}

guint8
sp_write_stash_of (SpWriter *w, SpTier tier, SpDtype dtype, gint64 elements)
{
  return sp_write_buffer (w, SP_CLASS_ACTIVATIONS, dtype, is_dropped (w, tier) ? SP_LIFE_REBUILT : SP_LIFE_STASH,
                          elements);
}

guint8
sp_write_stash (SpWriter *w, SpTier tier, gint64 elements)
{
  return sp_write_stash_of (w, tier, w->dtype, elements);
}

void
sp_write_keep (SpWriter *w, guint8 slot, SpTier tier)
{
  SpBuffer *buffer = &w->block->buffers[slot];

  g_assert (w->lacking > 0 || (buffer->life == SP_LIFE_SEGMENT && buffer->alias == 0));
  buffer->life = is_dropped (w, tier) ? SP_LIFE_REBUILT : SP_LIFE_STASH;
}

/* --- weights ---------------------------------------------------------------------------------------------------- */

SpWeightSlots
sp_write_weight (SpWriter *w, const char *name, gint32 rows, gint32 cols, SpSplit split, const gint32 *sections,
                 guint n_sections, gboolean partial)
{
  SpBlock *block = w->block;
  gboolean is_matrix = w->flats[w->flat].matrices != w->flat && sp_muon_is_matrix (name, rows, cols);
  guint8 at = is_matrix ? w->flats[w->flat].matrices : w->flat;
  const SpFlat *flat = &block->flats[at];
  gint64 elements = (gint64) rows * cols, first = w->flats[at].elements;
  SpWeightSlots slots = { .value = sp_write_view (w, flat->parameters, first, elements) };

  g_assert (block->n_weights < SP_MAX_WEIGHTS);
  g_assert (!partial || w->flats[at].partial == first);
  if (flat->gradients)
    slots.grad = sp_write_view (w, flat->gradients, first, elements);

  SpWeight *weight = &block->weights[block->n_weights++];
  *weight = (SpWeight){
    .flat = at, .slot = slots.value, .grad = slots.grad, .split = split, .rows = rows, .cols = cols
  };
  g_strlcpy (weight->name, name, sizeof weight->name);
  weight->n_sections = sections ? n_sections : 1;
  weight->sections[0] = rows;
  for (guint i = 0; sections && i < n_sections; i++)
    weight->sections[i] = sections[i];

  w->flats[at].elements += elements;
  if (partial)
    w->flats[at].partial = w->flats[at].elements;
  return slots;
}

SpWeightSlots
sp_write_expert_weight (SpWriter *w, const char *name, gint32 experts, gint32 rows, gint32 cols, SpSplit split,
                        const gint32 *sections, guint n_sections)
{
  const gint32 whole[] = { rows };
  SpWeightSlots slots = sp_write_weight (w, name, experts * rows, cols, split, sections ? sections : whole,
                                         sections ? n_sections : 1, FALSE);

  w->block->weights[w->block->n_weights - 1].experts = experts;
  return slots;
}

/* --- ops -------------------------------------------------------------------------------------------------------- */

void
sp_write_begin (SpWriter *w, SpPhase phase)
{
  gboolean tracked = phase == SP_PHASE_FORWARD || phase == SP_PHASE_BACKWARD;
  guint list = phase == SP_PHASE_BACKWARD;

  w->phase = phase;
  w->segment_start = w->program->n_ops;
  w->loop = 0;
  w->flags = 0;
  w->stamp++;
  w->first_use = tracked ? w->block->first_use[list] : w->untracked;
  w->last_use = tracked ? w->block->last_use[list] : w->untracked;
}

void
sp_write_end (SpWriter *w)
{
  w->block->segments[w->phase] = (SpSegment){ .first = w->segment_start, .n = w->program->n_ops - w->segment_start };
}

SpOp *
sp_write_op (SpWriter *w, SpOpKind kind)
{
  SpProgram *program = w->program;

  if (program->n_ops == program->ops_capacity) {
    program->ops_capacity = MAX (256, 2 * program->ops_capacity);
    program->ops = g_renew (SpOp, program->ops, program->ops_capacity);
  }
  SpOp *op = &program->ops[program->n_ops++];
  *op = (SpOp){ .kind = kind, .loop = w->loop };
  return op;
}

/* Ops of one stream are over in order: where there is no more room, the last of them stands for all. */
static void
add_wait (const SpWriter *w, SpOp *op, guint16 writer)
{
  const SpOp *ops = w->program->ops + w->segment_start;

  if (w->lacking > 0)
    return;
  for (guint i = 0; i < G_N_ELEMENTS (op->wait); i++) {
    if (op->wait[i] == writer)
      return;
    if (op->wait[i] == 0) {
      op->wait[i] = writer;
      return;
    }
  }
  for (guint i = 0; i < G_N_ELEMENTS (op->wait); i++)
    if (ops[op->wait[i] - 1].stream == ops[writer - 1].stream) {
      op->wait[i] = MAX (op->wait[i], writer);
      return;
    }
  g_assert_not_reached ();
}

/* Notes a use of the slot by op `index`; returns the bytes of one pass over it. */
static inline gint64
use_slot (SpWriter *w, SpOp *op, guint16 index, guint8 slot, gboolean reads)
{
  guint8 root = w->slot[slot].root;

  if (reads && w->slot[root].stamp == w->stamp && w->slot[root].stream != op->stream)
    add_wait (w, op, w->slot[root].op);
  w->first_use[root] = w->first_use[root] ? w->first_use[root] : index;
  w->last_use[root] = index;
  return w->slot[slot].traffic;
}

void
sp_write_wait_for (SpWriter *w, guint8 slot)
{
  SpOp *op = &w->program->ops[w->program->n_ops - 1];
  guint8 root = w->slot[slot].root;

  if (w->slot[root].stamp == w->stamp && w->slot[root].stream != op->stream)
    add_wait (w, op, w->slot[root].op);
}

void
sp_write_op_done (SpWriter *w, SpOp *op)
{
  guint16 index = (guint16) (w->program->n_ops - w->segment_start);
  gboolean accumulates = (op->flags & SP_OP_ACCUMULATE) != 0;
  gint64 read[SP_MAX_IN] = { 0 }, written[SP_MAX_OUT] = { 0 };

  op->flags = (op->flags | w->flags) & ~(w->loop ? SP_OP_WEIGHT : 0);
  for (guint i = 0; i < SP_MAX_IN; i++)
    if (op->in[i])
      read[i] = use_slot (w, op, index, op->in[i], TRUE);
  for (guint i = 0; i < SP_MAX_OUT; i++)
    if (op->out[i])
      written[i] = use_slot (w, op, index, op->out[i], accumulates);
  for (guint i = 0; i < SP_MAX_OUT; i++)
    if (op->out[i]) {
      guint8 root = w->slot[op->out[i]].root;
      w->slot[root].stamp = w->stamp;
      w->slot[root].op = index;
      w->slot[root].stream = op->stream;
    }
  if (op->bytes == 0 && !sp_op_is_communication (op->kind))
    op->bytes = sp_op_bytes (op, read, written);
}

void
sp_write_gemms (SpWriter *w, gint32 batch, gint32 m, gint32 n, gint32 k, guint8 a, guint8 b, guint8 c, guint8 bias,
                guint flags)
{
  SpOp *op = sp_write_op (w, SP_OP_GEMM);

  op->m = m;
  op->n = n;
  op->k = k;
  op->batch = batch;
  op->in[0] = a;
  op->in[1] = b;
  op->in[2] = bias;
  op->out[0] = c;
  op->flags = flags;
  op->flops = sp_op_flops (op, 0);
  sp_write_op_done (w, op);
}

void
sp_write_gemm (SpWriter *w, gint32 m, gint32 n, gint32 k, guint8 a, guint8 b, guint8 c, guint8 bias, guint flags)
{
  sp_write_gemms (w, 1, m, n, k, a, b, c, bias, flags);
}

/* Of a layer's products with weights; the output matrix and the experts' stay as they are, as torchtitan's do. Each
 * operand is cast by a kernel of its own: known lie, compilers fuse it with what made the operand. */
static gboolean
multiplies_in_fp8 (const SpWriter *w)
{
  return w->run->fp8 && w->block->kind != SP_BLOCK_HEAD && w->block->kind != SP_BLOCK_EMBEDDING;
}

static guint8
to_fp8 (SpWriter *w, gint32 rows, gint32 columns, guint8 slot, guint flags)
{
  guint8 cast = sp_write_temporary_of (w, SP_DTYPE_UINT8, (gint64) rows * columns);

  sp_write_rows (w, SP_OP_COPY, rows, columns, slot, 0, 0, cast, 0, flags & SP_OP_WEIGHT);
  return cast;
}

/* A product of m x n, over k, of [m,k] or [k,m] and [k,n] or [n,k]. */
static void
linear_gemm (SpWriter *w, gint32 m, gint32 n, gint32 k, guint8 a, guint8 b, guint8 c, guint8 bias, guint flags)
{
  if (multiplies_in_fp8 (w)) {
    a = flags & SP_OP_TRANS_A ? to_fp8 (w, k, m, a, flags) : to_fp8 (w, m, k, a, flags);
    b = flags & SP_OP_TRANS_B ? to_fp8 (w, n, k, b, flags) : to_fp8 (w, k, n, b, flags);
    flags |= SP_OP_FP8;
  }
  sp_write_gemm (w, m, n, k, a, b, c, bias, flags);
}

void
sp_write_linear (SpWriter *w, gint32 m, gint32 out, gint32 in, guint8 x, SpWeightSlots weight, guint8 bias, guint8 y)
{
  linear_gemm (w, m, out, in, x, weight.value, y, bias, SP_OP_TRANS_B);
  if (weight.lora)
    sp_lora_forward (w, weight.lora, m, x, y);
}

void
sp_write_linear_dgrad (SpWriter *w, gint32 m, gint32 out, gint32 in, guint8 dy, SpWeightSlots weight, guint8 dx)
{
  linear_gemm (w, m, in, out, dy, weight.value, dx, 0, 0);
  if (weight.lora)
    sp_lora_dgrad (w, weight.lora, m, dy, dx);
}

void
sp_write_linear_dgrad_add (SpWriter *w, gint32 m, gint32 out, gint32 in, guint8 dy, SpWeightSlots weight, guint8 dx)
{
  sp_write_gemm (w, m, in, out, dy, weight.value, dx, 0, SP_OP_ACCUMULATE);
  if (weight.lora)
    sp_lora_dgrad (w, weight.lora, m, dy, dx);
}

gboolean
sp_weight_learns (SpWeightSlots weight)
{
  return weight.grad != 0 || weight.lora != 0;
}

void
sp_write_linear_wgrad (SpWriter *w, gint32 m, gint32 out, gint32 in, guint8 dy, guint8 x, SpWeightSlots weight)
{
  if (weight.grad)
    linear_gemm (w, out, in, m, dy, x, weight.grad, 0, SP_OP_TRANS_A | SP_OP_ACCUMULATE | SP_OP_WEIGHT);
  if (weight.lora)
    sp_lora_wgrad (w, weight.lora, m, dy, x);
}

SpOp *
sp_write_rows (SpWriter *w, SpOpKind kind, gint32 m, gint32 n, guint8 in0, guint8 in1, guint8 in2, guint8 out0,
               guint8 out1, guint flags)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = m;
  op->n = n;
  op->in[0] = in0;
  op->in[1] = in1;
  op->in[2] = in2;
  op->out[0] = out0;
  op->out[1] = out1;
  op->flags = flags;
  sp_write_op_done (w, op);
  return op;
}

void
sp_write_autocast (SpWriter *w, guint8 x, gint32 m, gint32 n, guint matrices)
{
  for (guint i = 1; w->framework->autocast && i < matrices; i++)
    sp_write_rows (w, SP_OP_COPY, m, n, x, 0, 0, sp_write_stash (w, SP_TIER_ELEMENTWISE, (gint64) m * n), 0, 0);
}

void
sp_write_bias_grad (SpWriter *w, gint32 m, gint32 n, guint8 dy, SpWeightSlots bias)
{
  if (bias.grad)
    sp_write_rows (w, SP_OP_COLUMN_SUM, m, n, dy, 0, 0, bias.grad, 0, SP_OP_ACCUMULATE | SP_OP_WEIGHT);
}

void
sp_write_bias_grads (SpWriter *w, gint32 batch, gint32 m, gint32 n, guint8 dy, SpWeightSlots bias, guint flags)
{
  if (!bias.grad)
    return;
  SpOp *op = sp_write_op (w, SP_OP_COLUMN_SUM);
  op->m = m;
  op->n = n;
  op->batch = batch;
  op->in[0] = dy;
  op->out[0] = bias.grad;
  op->flags = flags | SP_OP_ACCUMULATE | SP_OP_WEIGHT;
  sp_write_op_done (w, op);
}

/* --- communication ------------------------------------------------------------------------------------------------ */

static gint64
message_bytes (const SpWriter *w, guint8 slot)
{
  const SpBuffer *buffer = &w->block->buffers[slot];

  return slot ? buffer->elements * sp_dtype_bytes (buffer->dtype) : 0;
}

void
sp_write_collective (SpWriter *w, SpOpKind kind, SpGroupId group, SpAxis axis, SpStream stream, guint8 in, guint8 out,
                     guint flags)
{
  SpOp *op = sp_write_op (w, kind);

  op->group = group;
  op->axis = axis;
  op->stream = stream;
  op->in[0] = in;
  op->out[0] = out;
  op->flags = flags;
  op->bytes = message_bytes (w, kind == SP_OP_ALL_GATHER ? out : in);
  sp_write_op_done (w, op);
}

void
sp_write_message (SpWriter *w, SpOpKind kind, SpGroupId group, SpAxis axis, SpStream stream, guint8 in0, guint8 in1,
                  guint8 out0, guint8 out1, guint flags, guint guard)
{
  SpOp *op = sp_write_op (w, kind);

  op->group = group;
  op->axis = axis;
  op->stream = stream;
  op->in[0] = in0;
  op->in[1] = in1;
  op->out[0] = out0;
  op->out[1] = out1;
  op->flags = flags;
  op->guard = guard;
  op->bytes = kind == SP_OP_RECEIVE ? message_bytes (w, out0) + message_bytes (w, out1)
                                    : message_bytes (w, in0) + message_bytes (w, in1);
  sp_write_op_done (w, op);
}

void
sp_write_host_copy (SpWriter *w, SpOpKind kind, SpStream stream, guint8 in, guint8 out, guint flags)
{
  const SpBuffer *from = &w->block->buffers[in], *to = &w->block->buffers[out];
  SpOp *op = sp_write_op (w, kind);

  g_assert (w->lacking > 0 || from->elements == to->elements);
  op->group = SP_GROUP_SELF;
  op->axis = SP_AXIS_HOST;
  op->stream = stream;
  op->in[0] = in;
  op->out[0] = out;
  op->flags = flags;
  op->bytes = from->elements * MIN (sp_dtype_bytes (from->dtype), sp_dtype_bytes (to->dtype));
  sp_write_op_done (w, op);
}

static SpLoop *
begin_loop (SpWriter *w, SpGroupId group, gint32 steps)
{
  SpBlock *block = w->block;

  g_assert (block->n_loops < SP_MAX_LOOPS && w->loop == 0);
  SpLoop *loop = &block->loops[block->n_loops++];
  *loop = (SpLoop){
    .phase = w->phase, .group = group, .steps = steps, .first = (guint16) (w->program->n_ops - w->segment_start)
  };
  w->loop = block->n_loops;
  return loop;
}

SpLoop *
sp_write_loop_begin (SpWriter *w, SpGroupId ring)
{
  return begin_loop (w, ring, w->program->groups[ring].size);
}

SpLoop *
sp_write_tiles_begin (SpWriter *w, gint32 tiles)
{
  return begin_loop (w, SP_GROUP_NONE, tiles);
}

void
sp_write_loop_uses (SpBlock *block, const SpLoop *loop)
{
  guint list = loop->phase == SP_PHASE_FORWARD ? 0 : 1;
  guint16 *first = block->first_use[list], *last = block->last_use[list];

  guint8 is_tiled[SP_MAX_SLOTS] = { 0 };

  for (guint slot = 1; slot < block->n_buffers; slot++)
    is_tiled[block->buffers[slot].alias] |= block->buffers[slot].moves;
  for (guint slot = 1; slot < block->n_buffers; slot++) {
    gboolean starts = (first[slot] > loop->first) & (first[slot] <= loop->end);
    gboolean ends = (last[slot] > loop->first) & (last[slot] <= loop->end);
    if (loop->group == SP_GROUP_NONE && starts && ends && !is_tiled[slot] &&
        block->buffers[slot].life == SP_LIFE_SEGMENT)
      continue;
    /* In a tile that is the only one there is nothing from an earlier one. */
    first[slot] = starts && !(loop->group == SP_GROUP_NONE && loop->steps == 1) ? loop->first + 1 : first[slot];
    last[slot] = ends ? loop->end : last[slot];
  }
  for (guint i = 0; i < loop->n_carries; i++)
    if (loop->carries[i].init)
      last[loop->carries[i].init] = MAX (last[loop->carries[i].init], loop->end);
}

void
sp_write_loop_end (SpWriter *w, SpLoop *loop)
{
  loop->end = (guint16) (w->program->n_ops - w->segment_start);
  w->loop = 0;
  sp_write_loop_uses (w->block, loop);
}
