/* SPDX-License-Identifier: Apache-2.0 */
#include "models/layers/families.h"
#include "models/strategies/linear.h"
#include "sim/op-cost.h"

/*
 * Recurrences whose decay follows the data, and delta rules, on one rank and over a chain of ranks.
 *
 * As flash-linear-attention's context parallelism does it: a first kernel runs over the own tokens from a state of
 * zero, for the state M that they leave and their transfer T; the state from before is put together from those of the
 * places before; then the kernel of one rank runs, with that state as its initial one. The backward is the same the
 * other way round, with T's transpose.
 *   LASP    the state alone goes from rank to rank, each applies its own T: B A k n elements fp32, as of any kind
 *   LASP-2  M and T are gathered, P (k n + t) elements a head: t = k k of a delta rule (P k (k + n) in all), k of a
 *           decay a feature, 1 of a decay a head
 * Nothing runs beside the gather: the kernel that follows wants the state. (LASP-2's own split, the part within chunks
 * beside the gather, is that of lasp.c.)
 *
 * FLOP of the chunked kernels: sim/op-cost.h.
 *
 * Known lies. What flash-linear-attention keeps beside the operands (the inverse, bf16, C a token and head of a delta
 * rule) and the states of all chunks while a kernel runs (k n / C a token and head) are not counted as memory, nor are
 * their bytes. A decay a feature costs more within the chunk than said: it is no mask on one product. mamba_ssm's
 * kernels use chunks of 256. A selective scan is no matrix product: its FLOP, 3 x 2 k n a token and head, 2.5 times
 * that backward, are priced at the rate of the others.
 */

/* --- ops ---------------------------------------------------------------------------------------------------------- */

static void
put_gates (const SpCoreSlots *c, SpOp *op, guint in)
{
  op->in[in] = c->gates;
  op->in[in + 1] = c->rule & SP_OP_SCAN ? c->rates.value : c->beta;
}

static SpOp *
main_op (SpWriter *w, SpOpKind kind, const SpCoreSlots *c)
{
  SpOp *op = sp_linear_op (w, kind, c);

  op->in[0] = c->q;
  op->in[1] = c->k;
  op->in[2] = c->v;
  put_gates (c, op, 3);
  return op;
}

static void
main_forward (SpWriter *w, SpCoreSlots *c)
{
  c->o = sp_ulysses_operand (w, sp_linear_value_elements (w, c));
  SpOp *op = main_op (w, SP_OP_RECURRENT, c);
  op->in[5] = c->state;
  op->out[0] = c->o;
  op->flops = sp_op_flops (op, 0);
  sp_write_op_done (w, op);
}

static guint8
gradient_like (SpWriter *w, guint8 slot)
{
  const SpBuffer *buffer = &w->block->buffers[slot];

  return slot ? sp_write_temporary_of (w, buffer->dtype, buffer->elements) : 0;
}

static void
main_backward (SpWriter *w, SpCoreSlots *c, guint8 d_state)
{
  c->dq = gradient_like (w, c->q);
  c->dk = gradient_like (w, c->k);
  c->dv = gradient_like (w, c->v);
  c->d_gates = gradient_like (w, c->gates);
  c->d_beta = gradient_like (w, c->beta);
  SpOp *op = main_op (w, SP_OP_RECURRENT_BWD, c);
  op->in[5] = c->d_o;
  op->in[6] = c->state;
  op->in[7] = d_state;
  op->out[0] = c->dq;
  op->out[1] = c->dk;
  op->out[2] = c->dv;
  op->out[3] = c->d_gates;
  op->out[4] = c->rule & SP_OP_SCAN ? c->rates.grad : c->d_beta;
  op->flops = sp_op_flops (op, 0);
  sp_write_op_done (w, op);
}

/* What the own tokens leave, M or its gradient's counterpart, and T, in one buffer. */
typedef struct {
  guint8 both, state, transfer;
} Own;

static gint64
transfer_elements (const SpWriter *w, const SpCoreSlots *c)
{
  gint64 heads = (gint64) w->batch * c->heads;

  if (c->rule & SP_OP_DELTA)
    return heads * c->key_size * c->key_size;
  return c->rule & SP_OP_HEAD_DECAY ? heads : heads * c->key_size;
}

static Own
make_own (SpWriter *w, const SpCoreSlots *c)
{
  gint64 state = sp_linear_state_elements (w, c), transfer = transfer_elements (w, c);
  Own own = { .both = sp_linear_travelling (w, state + transfer) };

  own.state = sp_write_view (w, own.both, 0, state);
  own.transfer = sp_write_view (w, own.both, state, transfer);
  return own;
}

/* Of the keys with the values or, in the backward, of the queries with the output's gradient. */
static Own
own_part (SpWriter *w, const SpCoreSlots *c, gboolean backward)
{
  Own own = make_own (w, c);
  SpOp *op = sp_linear_op (w, backward ? SP_OP_STATE_OWN_BWD : SP_OP_STATE_OWN, c);

  op->in[0] = backward ? c->q : c->k;
  op->in[1] = backward ? c->k : c->v;
  put_gates (c, op, 2);
  op->in[4] = backward ? c->d_o : 0;
  op->out[0] = own.state;
  op->out[1] = own.transfer;
  op->flops = sp_op_flops (op, 0);
  sp_write_op_done (w, op);
  return own;
}

/* --- one rank ----------------------------------------------------------------------------------------------------- */

static gboolean
alone_serves (const SpWriter *w)
{
  return sp_linear_places (w) == 1 && sp_family_rule (w->arch) != 0;
}

static void
alone_backward (SpWriter *w, SpCoreSlots *c)
{
  main_backward (w, c, 0);
}

const SpCore sp_core_recurrent_alone = { "recurrent", SP_BLOCK_LINEAR, alone_serves, main_forward, alone_backward };

/* --- LASP --------------------------------------------------------------------------------------------------------- */

static gboolean
chain_serves (const SpWriter *w)
{
  return sp_linear_places (w) > 1 && w->layout->lasp_version == 1 && sp_family_rule (w->arch) != 0;
}

static void
chain_forward (SpWriter *w, SpCoreSlots *c)
{
  c->state = sp_linear_kept (w, sp_linear_state_elements (w, c));
  Own own = own_part (w, c, FALSE);
  sp_linear_receive (w, c->state, 0);
  sp_linear_update_and_send (w, c, c->state, own.state, own.transfer, 0);
  main_forward (w, c);
}

static void
chain_backward (SpWriter *w, SpCoreSlots *c)
{
  guint8 d_state = sp_linear_travelling (w, sp_linear_state_elements (w, c));
  Own own = own_part (w, c, TRUE);

  sp_linear_receive (w, d_state, SP_OP_REVERSE);
  sp_linear_update_and_send (w, c, d_state, own.state, own.transfer, SP_OP_REVERSE);
  main_backward (w, c, d_state);
}

const SpCore sp_core_recurrent_lasp = { "recurrent-lasp", SP_BLOCK_LINEAR, chain_serves, chain_forward,
                                        chain_backward };

/* --- LASP-2 ------------------------------------------------------------------------------------------------------- */

static gboolean
gather_serves (const SpWriter *w)
{
  return sp_linear_places (w) > 1 && w->layout->lasp_version == 2 && sp_family_rule (w->arch) != 0;
}

static void
gather_forward (SpWriter *w, SpCoreSlots *c)
{
  c->state = sp_linear_kept (w, sp_linear_state_elements (w, c));
  Own own = own_part (w, c, FALSE);
  sp_linear_combine (w, c, sp_linear_gather (w, own.both), c->state, 0);
  main_forward (w, c);
}

static void
gather_backward (SpWriter *w, SpCoreSlots *c)
{
  guint8 d_state = sp_linear_travelling (w, sp_linear_state_elements (w, c));
  Own own = own_part (w, c, TRUE);

  sp_linear_combine (w, c, sp_linear_gather (w, own.both), d_state, SP_OP_REVERSE);
  main_backward (w, c, d_state);
}

const SpCore sp_core_recurrent_lasp2 = { "recurrent-lasp-2", SP_BLOCK_LINEAR, gather_serves, gather_forward,
                                         gather_backward };
