/* SPDX-License-Identifier: Apache-2.0 */
#include "models/layers/families.h"
#include "models/strategies/linear.h"
#include "sim/op-cost.h"

/*
 * Linear attention with a fixed decay a head, on one rank and over a chain of ranks; lasp-recurrent.c has the others.
 *
 * LASP (Sun et al., 2404.02882): the state (head size x head size a head, fp32, whatever the length) goes from rank to
 * rank; the local part of the output does not wait for it. The state is passed on before the own inter-chunk part is
 * computed, so a hop is one update and one send. The authors' code computes both parts between receive and send
 * (framework, lasp-local = after): then a hop holds all of the layer's attention kernels.
 *
 * LASP-2 (Sun et al., 2502.07563): each rank's own state is gathered and
 * combined at once; the gather runs beside the local part. Both keep the state from before for the backward.
 */

SpOp *
sp_linear_op (SpWriter *w, SpOpKind kind, const SpCoreSlots *c)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = c->tokens;
  op->n = c->value_size;
  op->k = c->key_size;
  op->batch = w->batch;
  op->heads = c->heads;
  op->kv_heads = c->kv_heads;
  op->flags = c->rule;
  op->group = sp_linear_places (w) > 1 ? SP_GROUP_LASP : 0;
  return op;
}

static SpOp *
core_op (SpWriter *w, SpOpKind kind, const SpCoreSlots *c)
{
  SpOp *op = sp_linear_op (w, kind, c);

  op->in[0] = c->q;
  op->in[1] = c->k;
  op->in[2] = c->v;
  return op;
}

/* Local part: output, own state, or both (0 to leave out). */
static void
local_part (SpWriter *w, const SpCoreSlots *c, guint8 o, guint8 own)
{
  SpOp *op = core_op (w, SP_OP_LINEAR_LOCAL, c);

  if (o == 0)
    op->in[0] = 0;
  op->out[0] = o;
  op->out[1] = own;
  op->flops = sp_op_flops (op, 0);
  sp_write_op_done (w, op);
}

static void
local_backward (SpWriter *w, const SpCoreSlots *c, gboolean gradients, guint8 own)
{
  SpOp *op = core_op (w, SP_OP_LINEAR_LOCAL_BWD, c);

  op->in[3] = c->d_o;
  if (gradients) {
    op->out[0] = c->dq;
    op->out[1] = c->dk;
    op->out[2] = c->dv;
  } else
    op->in[1] = op->in[2] = 0;
  op->out[3] = own;
  op->flops = sp_op_flops (op, 0);
  sp_write_op_done (w, op);
}

static void
inter_part (SpWriter *w, const SpCoreSlots *c)
{
  SpOp *op = core_op (w, SP_OP_LINEAR_INTER, c);

  op->in[1] = c->state;
  op->in[2] = 0;
  op->out[0] = c->o;
  op->guard = SP_GUARD_NOT_FIRST;
  op->flags = SP_OP_ACCUMULATE;
  op->flops = sp_op_flops (op, 0);
  sp_write_op_done (w, op);
}

/* The state from before is in dQ, the one after in dK and dV: an end of the chain lacks one of them. */
static void
inter_backward (SpWriter *w, const SpCoreSlots *c, guint8 d_state)
{
  SpOp *op = sp_linear_op (w, SP_OP_LINEAR_INTER_BWD, c);

  op->in[2] = c->d_o;
  op->in[3] = c->state;
  op->out[0] = c->dq;
  op->guard = SP_GUARD_NOT_FIRST;
  op->flags = SP_OP_ACCUMULATE;
  op->flops = sp_op_flops (op, 0);
  sp_write_op_done (w, op);

  op = sp_linear_op (w, SP_OP_LINEAR_INTER_BWD, c);
  op->in[0] = c->k;
  op->in[1] = c->v;
  op->in[4] = d_state;
  op->out[1] = c->dk;
  op->out[2] = c->dv;
  op->guard = SP_GUARD_NOT_LAST;
  op->flags = SP_OP_ACCUMULATE;
  op->flops = sp_op_flops (op, 0);
  sp_write_op_done (w, op);
}

guint8
sp_linear_travelling (SpWriter *w, gint64 elements)
{
  return sp_write_buffer (w, SP_CLASS_COMMUNICATION, SP_DTYPE_FP32, SP_LIFE_SEGMENT, elements);
}

guint8
sp_linear_kept (SpWriter *w, gint64 elements)
{
  return sp_write_buffer (w, SP_CLASS_ACTIVATIONS, SP_DTYPE_FP32, SP_LIFE_STASH, elements);
}

static guint8
travelling_state (SpWriter *w, const SpCoreSlots *c)
{
  return sp_linear_travelling (w, sp_linear_state_elements (w, c));
}

static guint8
kept_state (SpWriter *w, const SpCoreSlots *c)
{
  return sp_linear_kept (w, sp_linear_state_elements (w, c));
}

static void
make_gradients (SpWriter *w, SpCoreSlots *c)
{
  c->dq = sp_write_temporary (w, sp_linear_key_elements (w, c));
  c->dk = sp_write_temporary (w, sp_linear_key_elements (w, c));
  c->dv = sp_write_temporary (w, sp_linear_value_elements (w, c));
}

/* --- one rank ----------------------------------------------------------------------------------------------------- */

static gboolean
alone_serves (const SpWriter *w)
{
  return sp_linear_places (w) == 1 && sp_family_rule (w->arch) == 0;
}

static void
alone_forward (SpWriter *w, SpCoreSlots *c)
{
  c->o = sp_ulysses_operand (w, sp_linear_value_elements (w, c));
  local_part (w, c, c->o, 0);
}

static void
alone_backward (SpWriter *w, SpCoreSlots *c)
{
  make_gradients (w, c);
  local_backward (w, c, TRUE, 0);
}

static const SpCore alone = { "linear", SP_BLOCK_LINEAR, alone_serves, alone_forward, alone_backward };

/* --- LASP --------------------------------------------------------------------------------------------------------- */

static gboolean
chain_serves (const SpWriter *w)
{
  return sp_linear_places (w) > 1 && w->layout->lasp_version == 1 && sp_family_rule (w->arch) == 0;
}

void
sp_linear_receive (SpWriter *w, guint8 before, guint flags)
{
  sp_write_message (w, SP_OP_RECEIVE, SP_GROUP_LASP, SP_AXIS_LASP, SP_STREAM_SEQUENCE, 0, 0, before, 0, flags,
                    flags ? SP_GUARD_NOT_LAST : SP_GUARD_NOT_FIRST);
}

void
sp_linear_update_and_send (SpWriter *w, const SpCoreSlots *c, guint8 before, guint8 own, guint8 transfer, guint flags)
{
  guint has_after = flags ? SP_GUARD_NOT_FIRST : SP_GUARD_NOT_LAST;
  guint8 after = travelling_state (w, c);

  SpOp *op = sp_linear_op (w, SP_OP_STATE_UPDATE, c);
  op->in[0] = before;
  op->in[1] = own;
  op->in[2] = transfer;
  op->out[0] = after;
  op->flags |= flags;
  op->guard = has_after;
  sp_write_op_done (w, op);
  sp_write_message (w, SP_OP_SEND, SP_GROUP_LASP, SP_AXIS_LASP, SP_STREAM_SEQUENCE, after, 0, 0, 0, flags, has_after);
}

/* What does not depend on the chain comes before it, what its next rank does not need comes after; or all of it between
 * RECEIVE and SEND. */
static void
chain_forward (SpWriter *w, SpCoreSlots *c)
{
  gboolean local_after = w->framework->lasp_local_after;
  guint8 own = travelling_state (w, c);

  c->o = sp_ulysses_operand (w, sp_linear_value_elements (w, c));
  c->state = kept_state (w, c);
  if (!local_after)
    local_part (w, c, c->o, own);
  sp_linear_receive (w, c->state, 0);
  if (local_after) {
    local_part (w, c, c->o, own);
    inter_part (w, c);
  }
  sp_linear_update_and_send (w, c, c->state, own, 0, 0);
  if (!local_after)
    inter_part (w, c);
}

static void
chain_backward (SpWriter *w, SpCoreSlots *c)
{
  gboolean local_after = w->framework->lasp_local_after;
  guint8 own = travelling_state (w, c), d_state = travelling_state (w, c);

  make_gradients (w, c);
  if (!local_after)
    local_backward (w, c, TRUE, own);
  sp_linear_receive (w, d_state, SP_OP_REVERSE);
  if (local_after) {
    local_backward (w, c, TRUE, own);
    inter_backward (w, c, d_state);
  }
  sp_linear_update_and_send (w, c, d_state, own, 0, SP_OP_REVERSE);
  if (!local_after)
    inter_backward (w, c, d_state);
}

static const SpCore lasp1 = { "lasp", SP_BLOCK_LINEAR, chain_serves, chain_forward, chain_backward };

/* --- LASP-2 ------------------------------------------------------------------------------------------------------- */

static gboolean
gather_serves (const SpWriter *w)
{
  return sp_linear_places (w) > 1 && w->layout->lasp_version == 2 && sp_family_rule (w->arch) == 0;
}

guint8
sp_linear_gather (SpWriter *w, guint8 own)
{
  guint8 all = sp_linear_travelling (w, w->block->buffers[own].elements * sp_linear_places (w));

  sp_write_collective (w, SP_OP_ALL_GATHER, SP_GROUP_LASP, SP_AXIS_LASP, SP_STREAM_SEQUENCE, own, all,
                       w->layout->overlap ? SP_OP_ASYNC : 0);
  return all;
}

void
sp_linear_combine (SpWriter *w, const SpCoreSlots *c, guint8 all, guint8 out, guint flags)
{
  SpOp *op = sp_linear_op (w, SP_OP_STATE_PREFIX, c);

  op->in[0] = all;
  op->out[0] = out;
  op->flags |= flags;
  sp_write_op_done (w, op);
}

static void
gather_forward (SpWriter *w, SpCoreSlots *c)
{
  guint8 own = travelling_state (w, c);

  c->o = sp_ulysses_operand (w, sp_linear_value_elements (w, c));
  c->state = kept_state (w, c);
  local_part (w, c, 0, own);
  guint8 all = sp_linear_gather (w, own);
  local_part (w, c, c->o, 0);
  sp_linear_combine (w, c, all, c->state, 0);
  inter_part (w, c);
}

static void
gather_backward (SpWriter *w, SpCoreSlots *c)
{
  guint8 own = travelling_state (w, c), d_state = travelling_state (w, c);

  local_backward (w, c, FALSE, own);
  guint8 all = sp_linear_gather (w, own);
  make_gradients (w, c);
  local_backward (w, c, TRUE, 0);
  sp_linear_combine (w, c, all, d_state, SP_OP_REVERSE);
  inter_backward (w, c, d_state);
}

static const SpCore lasp2 = { "lasp-2", SP_BLOCK_LINEAR, gather_serves, gather_forward, gather_backward };

static const SpCore *const cores[] = {
  &alone, &lasp1, &lasp2, &sp_core_recurrent_alone, &sp_core_recurrent_lasp, &sp_core_recurrent_lasp2, NULL,
};

/* --- rules -------------------------------------------------------------------------------------------------------- */

static gboolean
has_linear (const SpCase *c)
{
  return c->layout->lasp == 1 || sp_architecture_has (c->arch, SP_LAYER_LINEAR);
}

static void
explain_linear (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "lasp = %d on a model without linear-attention layers; use ring = %d (or ulysses), lasp = 1",
                          c->layout->lasp, c->layout->lasp);
}

/* In a hybrid both factorisations number the same ranks by the same digits, so one Ulysses degree must divide the
 * other. */
static gboolean
factors_match (const SpCase *c)
{
  if (!sp_architecture_has (c->arch, SP_LAYER_LINEAR) || !sp_architecture_has (c->arch, SP_LAYER_SOFTMAX))
    return TRUE;
  gint32 s = sp_layout_sequence_ranks (c->layout, c->arch), u = c->layout->ulysses;
  gint32 linear = s / c->layout->lasp;
  return s % c->layout->lasp == 0 && (u % linear == 0 || linear % u == 0);
}

static void
explain_factors (const SpCase *c, GString *out)
{
  gint32 s = sp_layout_sequence_ranks (c->layout, c->arch);

  g_string_append_printf (
      out,
      "lasp = %d must divide the ulysses x ring = %d sequence ranks, and the heads' exchange of linear "
      "layers (sequence ranks / lasp) must divide, or be a multiple of, ulysses = %d; legal lasp: ",
      c->layout->lasp, s, c->layout->ulysses);
  sp_rule_nearest (c, G_STRUCT_OFFSET (SpLayout, lasp), s, factors_match, out);
}

static const SpRule rules[] = {
  { "lasp-linear", has_linear, explain_linear },
  { "lasp-factors", factors_match, explain_factors },
};

const SpStrategy sp_strategy_lasp = {
  "lasp", SP_AXIS_LASP,         "linear attention's state along a chain of ranks (version 1) or gathered (version 2)",
  rules,  G_N_ELEMENTS (rules), cores,
};
