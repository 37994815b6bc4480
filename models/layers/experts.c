/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

/*
 * A mixture of experts in the place of a layer's MLP, with a dense MLP of its own width beside it where the model has
 * shared experts.
 *
 *    route -> dispatch -> [all-to-all] -> up, activation, down of each local expert -> [all-to-all] -> combine
 *
 * Tokens lie in buffers of equal rows for each (rank, expert) pair, so the all-to-all's parts are equal. Without a
 * capacity that stands for a dropless exchange: rows are the mean, tokens x k / experts, times what the busiest rank has
 * more than that (rounded up to a row), and so are the GEMMs'. With one the buffers are padded to it, the padding is
 * computed on and what does not fit is dropped, as GShard and Switch do.
 *
 * Tensor ranks each route whole rows and split every expert's width; the combined rows are summed with the shared
 * experts' in one reduction. What comes back to the router is then a part of its gradient on each of them, and so is the
 * router's: all are linear in it, so they are summed with the other gradients of that kind (`partial`).
 *
 * Known lies. Megatron-LM routes rows of the sequence region and gathers them over tensor ranks after the all-to-all,
 * which then carries 1 / tensor of the bytes that it has here. The all-to-all's own buffers are of the busiest rank's
 * size on the sender's side too. Router losses and the bias that balances loads are not counted. GPT-OSS's clamped
 * activation, (u + 1) times x sigmoid (1.702 x), is SwiGLU here: the same passes over the same bytes.
 */

static gint32
up_width (const SpWriter *w, gint32 ffn)
{
  return sp_mlp_is_gated (w->arch->mlp) ? 2 * ffn : ffn;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static void
write_partial_weights (SpWriter *w, SpExpertSlots *e)
{
  const SpExpertShape *moe = &w->arch->moe;
  gboolean partial = w->layout->tensor > 1;

  *e = (SpExpertSlots){ .local = moe->experts / w->layout->expert };
  e->router = sp_write_weight (w, "router", moe->experts, w->hidden, SP_SPLIT_NONE, NULL, 0, partial);
  if (moe->bias)
    e->router_bias = sp_write_weight (w, "router.bias", 1, moe->experts, SP_SPLIT_NONE, NULL, 0, partial);
  if (moe->shared_ffn > 0 && moe->shared_gate)
    e->shared_gate = sp_write_weight (w, "shared.gate", 1, w->hidden, SP_SPLIT_NONE, NULL, 0, partial);
}

static void
write_own_weights (SpWriter *w, SpExpertSlots *e)
{
  guint n = sp_mlp_is_gated (w->arch->mlp) ? 2 : 1;
  guint8 flat = w->flat;

  if (w->arch->moe.shared_ffn > 0) {
    const gint32 sections[] = { w->shared_ffn, w->shared_ffn };
    e->shared_up =
        sp_write_weight (w, "shared.up", up_width (w, w->shared_ffn), w->hidden, SP_SPLIT_ROWS, sections, n, FALSE);
    e->shared_down = sp_write_weight (w, "shared.down", w->hidden, w->shared_ffn, SP_SPLIT_COLS, NULL, 0, FALSE);
  }
  const gint32 sections[] = { w->expert_ffn, w->expert_ffn };
  sp_zero_open_flat (w, SP_GROUP_EXPERT_DATA, w->block->frozen != SP_FROZEN_NOT);
  e->up = sp_write_expert_weight (w, "expert.up", e->local, up_width (w, w->expert_ffn), w->hidden, SP_SPLIT_ROWS,
                                  sections, n);
  e->down = sp_write_expert_weight (w, "expert.down", e->local, w->hidden, w->expert_ffn, SP_SPLIT_COLS, NULL, 0);
  if (w->arch->moe.bias) {
    e->up_bias = sp_write_expert_weight (w, "e.up.bias", e->local, up_width (w, w->expert_ffn), 1, SP_SPLIT_ROWS,
                                         sections, n);
    e->down_bias = sp_write_expert_weight (w, "e.down.bias", e->local, w->hidden, 1, SP_SPLIT_NONE, NULL, 0);
  }
  w->flat = flat;
}

static void
write_weights (SpWriter *w, gpointer self, SpWeightPass pass)
{
  if (pass == SP_WEIGHTS_PARTIAL)
    write_partial_weights (w, self);
  else if (pass == SP_WEIGHTS_OWN)
    write_own_weights (w, self);
}

/* --- routing and the exchange ------------------------------------------------------------------------------------- */

/* An op of `rows` tokens, `n` features each, and the experts' buffers. */
static SpOp *
route_op (SpWriter *w, const SpExpertSlots *e, SpOpKind kind, gint32 n, guint flags)
{
  const SpExpertShape *moe = &w->arch->moe;
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows;
  op->n = n;
  op->k = moe->experts_per_token;
  op->heads = moe->experts;
  op->kv_heads = e->rows;
  op->flags = flags;
  return op;
}

/* Without a capacity nothing is padded: as many rows as tokens are sent, `passes` times, and the tokens' own. */
static void
end_exchange_op (SpWriter *w, SpOp *op, gint64 passes)
{
  gint64 row = (gint64) op->n * sp_dtype_bytes (w->dtype);

  if (w->layout->expert_capacity == 0)
    op->bytes = (gint64) op->m * row * (1 + passes * op->k) + (gint64) op->m * op->k * 8;
  sp_write_op_done (w, op);
}

static gint64
buffer_elements (const SpWriter *w, const SpExpertSlots *e, gint32 features)
{
  return (gint64) w->arch->moe.experts * e->rows * features;
}

/* [places][local experts][rows] <-> [local experts][places][rows] */
static void
reorder (SpWriter *w, const SpExpertSlots *e, gint32 parts, gint32 n, guint8 in, guint8 out)
{
  SpOp *op = sp_write_op (w, SP_OP_PACK);

  op->m = parts;
  op->n = op->heads = n;
  op->k = e->rows * w->hidden;
  op->in[0] = in;
  op->out[0] = out;
  op->flags = SP_OP_VARIES;
  sp_write_op_done (w, op);
}

static void
exchange (SpWriter *w, guint8 in, guint8 out)
{
  sp_write_collective (w, SP_OP_ALL_TO_ALL, SP_GROUP_EXPERT, SP_AXIS_EXPERT, SP_STREAM_SEQUENCE, in, out, SP_OP_VARIES);
}

static gboolean
is_spread (const SpWriter *w)
{
  return w->layout->expert > 1;
}

/* Tokens by expert of all, from this rank -> tokens by expert of this rank, from all ranks; into `out`. */
static void
send_out (SpWriter *w, const SpExpertSlots *e, guint8 sent, guint8 out)
{
  guint8 arrived = e->local > 1 ? sp_write_temporary (w, buffer_elements (w, e, w->hidden)) : out;

  exchange (w, sent, arrived);
  if (e->local > 1)
    reorder (w, e, w->layout->expert, e->local, arrived, out);
}

static void
send_back (SpWriter *w, const SpExpertSlots *e, guint8 done, guint8 out)
{
  guint8 sorted = done;

  if (e->local > 1) {
    sorted = sp_write_temporary (w, buffer_elements (w, e, w->hidden));
    reorder (w, e, e->local, w->layout->expert, done, sorted);
  }
  exchange (w, sorted, out);
}

/* --- the shared experts ------------------------------------------------------------------------------------------- */

static void
write_activation (SpWriter *w, gboolean backward, gint32 rows, gint32 ffn, guint8 in0, guint8 in1, guint8 out,
                  guint flags)
{
  gboolean gated = sp_mlp_is_gated (w->arch->mlp);
  SpOpKind kind = backward ? gated ? SP_OP_GLU_BWD : SP_OP_GELU_BWD : gated ? SP_OP_GLU : SP_OP_GELU;

  sp_write_rows (w, kind, rows, ffn, in0, in1, 0, out, 0, flags | sp_mlp_flags (w->arch->mlp));
}

static guint8
write_shared (SpWriter *w, SpExpertSlots *e, guint8 whole)
{
  gint32 up = up_width (w, w->shared_ffn);
  gint64 rows = w->rows;
  gboolean gate = e->shared_gate.value != 0;

  e->shared_gate_up = sp_write_stash (w, SP_TIER_KEEP, rows * up);
  sp_write_linear (w, w->rows, up, w->hidden, whole, e->shared_up, 0, e->shared_gate_up);
  e->shared_act = sp_write_stash (w, SP_TIER_ELEMENTWISE, rows * w->shared_ffn);
  write_activation (w, FALSE, w->rows, w->shared_ffn, e->shared_gate_up, 0, e->shared_act, 0);
  e->shared_out = gate ? sp_write_stash (w, SP_TIER_KEEP, rows * w->hidden) : sp_write_temporary (w, rows * w->hidden);
  sp_write_linear (w, w->rows, w->hidden, w->shared_ffn, e->shared_act, e->shared_down, 0, e->shared_out);
  if (!gate)
    return e->shared_out;
  e->shared_logit = sp_write_stash (w, SP_TIER_KEEP, rows);
  sp_write_linear (w, w->rows, 1, w->hidden, whole, e->shared_gate, 0, e->shared_logit);
  guint8 gated = sp_write_temporary (w, rows * w->hidden);
  sp_write_rows (w, SP_OP_ROW_GATE, w->rows, w->hidden, e->shared_out, e->shared_logit, 0, gated, 0, 0);
  return gated;
}

/* Adds to d_whole. */
static void
write_shared_backward (SpWriter *w, const SpExpertSlots *e, guint8 whole, guint8 d, guint8 d_whole)
{
  gint32 up = up_width (w, w->shared_ffn);
  gint64 rows = w->rows;

  if (e->shared_gate.value) {
    guint8 d_out = sp_write_temporary (w, rows * w->hidden), d_logit = sp_write_temporary (w, rows);
    sp_write_rows (w, SP_OP_ROW_GATE_BWD, w->rows, w->hidden, d, e->shared_out, e->shared_logit, d_out, d_logit, 0);
    sp_write_gemm (w, w->rows, w->hidden, 1, d_logit, e->shared_gate.value, d_whole, 0, SP_OP_ACCUMULATE);
    sp_write_linear_wgrad (w, w->rows, 1, w->hidden, d_logit, whole, e->shared_gate);
    d = d_out;
  }
  guint8 d_act = sp_write_temporary (w, rows * w->shared_ffn), d_up = sp_write_temporary (w, rows * up);
  sp_write_linear_dgrad (w, w->rows, w->hidden, w->shared_ffn, d, e->shared_down, d_act);
  sp_write_linear_wgrad (w, w->rows, w->hidden, w->shared_ffn, d, e->shared_act, e->shared_down);
  write_activation (w, TRUE, w->rows, w->shared_ffn, d_act, e->shared_gate_up, d_up, 0);
  sp_write_gemm (w, w->rows, w->hidden, up, d_up, e->shared_up.value, d_whole, 0, SP_OP_ACCUMULATE);
  sp_write_linear_wgrad (w, w->rows, up, w->hidden, d_up, whole, e->shared_up);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void
write_route (SpWriter *w, SpExpertSlots *e, guint8 whole)
{
  const SpExpertShape *moe = &w->arch->moe;
  gint64 choices = (gint64) w->rows * moe->experts_per_token;

  e->rows = (gint32) sp_layout_expert_rows (w->layout, w->arch, w->run, w->rows);
  e->logits = sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_FP32, (gint64) w->rows * moe->experts);
  sp_write_linear (w, w->rows, moe->experts, w->hidden, whole, e->router, e->router_bias.value, e->logits);
  e->weights = sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_FP32, choices);
  e->slots = sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_INT32, choices);
  SpOp *op = route_op (w, e, SP_OP_ROUTE, 0, w->layout->expert_capacity > 0 ? 0 : SP_OP_BALANCED);
  op->in[0] = e->logits;
  op->out[0] = e->weights;
  op->out[1] = e->slots;
  sp_write_op_done (w, op);
}

/* Tensor ranks' outputs are summed once they are combined: each adds its part of the bias. */
static void
write_down (SpWriter *w, const SpExpertSlots *e, gint32 rows, guint8 out)
{
  SpOp *op = sp_write_op (w, SP_OP_GEMM);

  op->m = rows;
  op->n = w->hidden;
  op->k = w->expert_ffn;
  op->batch = e->local;
  op->in[0] = e->act;
  op->in[1] = e->down.value;
  op->in[2] = e->down_bias.value;
  op->out[0] = out;
  op->group = e->down_bias.value && w->layout->tensor > 1 ? SP_GROUP_TENSOR : SP_GROUP_NONE;
  op->flags = SP_OP_TRANS_B | SP_OP_VARIES;
  op->flops = 2.0 * op->batch * op->m * op->n * op->k;
  sp_write_op_done (w, op);
}

/* The local experts on the tokens of all ranks that they are spread over; into `out`. */
static void
write_local_experts (SpWriter *w, SpExpertSlots *e, guint8 out)
{
  gint32 rows = w->layout->expert * e->rows, up = up_width (w, w->expert_ffn);

  e->gate_up = sp_write_stash (w, SP_TIER_KEEP, buffer_elements (w, e, up));
  sp_write_gemms (w, e->local, rows, up, w->hidden, e->input, e->up.value, e->gate_up, e->up_bias.value,
                  SP_OP_TRANS_B | SP_OP_VARIES);
  e->act = sp_write_stash (w, SP_TIER_ELEMENTWISE, buffer_elements (w, e, w->expert_ffn));
  write_activation (w, FALSE, e->local * rows, w->expert_ffn, e->gate_up, 0, e->act, SP_OP_VARIES);
  write_down (w, e, rows, out);
}

static SpRows
write_forward (SpWriter *w, gpointer self, SpPort *port)
{
  SpExpertSlots *e = self;
  guint8 whole = sp_branch_whole (w, port);

  write_route (w, e, whole);
  gint64 buffer = buffer_elements (w, e, w->hidden), rows = (gint64) w->rows * w->hidden;
  e->input = sp_write_stash (w, SP_TIER_KEEP, buffer);
  guint8 sent = is_spread (w) ? sp_write_temporary (w, buffer) : e->input;
  SpOp *op = route_op (w, e, SP_OP_DISPATCH, w->hidden, 0);
  op->in[0] = whole;
  op->in[1] = e->slots;
  op->out[0] = sent;
  end_exchange_op (w, op, 1);
  if (is_spread (w))
    send_out (w, e, sent, e->input);

  e->output = sp_write_stash (w, SP_TIER_KEEP, buffer);
  guint8 done = is_spread (w) ? sp_write_temporary (w, buffer) : e->output;
  write_local_experts (w, e, done);
  if (is_spread (w))
    send_back (w, e, done, e->output);
  guint8 out = sp_write_temporary (w, rows);
  op = route_op (w, e, SP_OP_COMBINE, w->hidden, 0);
  op->in[0] = e->output;
  op->in[1] = e->weights;
  op->in[2] = e->slots;
  op->out[0] = out;
  end_exchange_op (w, op, 1);
  if (w->arch->moe.shared_ffn > 0) {
    guint8 sum = sp_write_temporary (w, rows);
    sp_write_rows (w, SP_OP_ADD, w->rows, w->hidden, out, write_shared (w, e, whole), 0, sum, 0, 0);
    out = sum;
  }
  return (SpRows){ out, TRUE };
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* From the gradient of what came out of the local experts to that of what went in. */
static void
write_local_experts_backward (SpWriter *w, const SpExpertSlots *e, guint8 d_done, guint8 d_input)
{
  gint32 rows = w->layout->expert * e->rows, up = up_width (w, w->expert_ffn), ffn = w->expert_ffn;
  const guint weight = SP_OP_TRANS_A | SP_OP_ACCUMULATE | SP_OP_WEIGHT | SP_OP_VARIES;

  guint8 d_act = sp_write_temporary (w, buffer_elements (w, e, ffn));
  sp_write_gemms (w, e->local, rows, ffn, w->hidden, d_done, e->down.value, d_act, 0, SP_OP_VARIES);
  if (e->down.grad)
    sp_write_gemms (w, e->local, w->hidden, ffn, rows, d_done, e->act, e->down.grad, 0, weight);
  sp_write_bias_grads (w, e->local, rows, w->hidden, d_done, e->down_bias, SP_OP_VARIES);
  guint8 d_up = sp_write_temporary (w, buffer_elements (w, e, up));
  write_activation (w, TRUE, e->local * rows, ffn, d_act, e->gate_up, d_up, SP_OP_VARIES);
  sp_write_gemms (w, e->local, rows, w->hidden, up, d_up, e->up.value, d_input, 0, SP_OP_VARIES);
  if (e->up.grad)
    sp_write_gemms (w, e->local, up, w->hidden, rows, d_up, e->input, e->up.grad, 0, weight);
  sp_write_bias_grads (w, e->local, rows, up, d_up, e->up_bias, SP_OP_VARIES);
}

/* The gradient of the combined rows -> of what came back; and, through its weights, of the logits. */
static guint8
write_combine_backward (SpWriter *w, const SpExpertSlots *e, guint8 d, guint8 d_output)
{
  const SpExpertShape *moe = &w->arch->moe;
  guint8 d_weights = sp_write_temporary_of (w, SP_DTYPE_FP32, (gint64) w->rows * moe->experts_per_token);
  guint8 d_logits = sp_write_temporary_of (w, SP_DTYPE_FP32, (gint64) w->rows * moe->experts);

  SpOp *op = route_op (w, e, SP_OP_COMBINE_BWD, w->hidden, 0);
  op->in[0] = d;
  op->in[1] = e->output;
  op->in[2] = e->weights;
  op->in[3] = e->slots;
  op->out[0] = d_output;
  op->out[1] = d_weights;
  end_exchange_op (w, op, 2);
  op = route_op (w, e, SP_OP_ROUTE_BWD, 0, w->layout->expert_capacity > 0 ? 0 : SP_OP_BALANCED);
  op->in[0] = e->logits;
  op->in[1] = d_weights;
  op->in[2] = e->slots;
  op->out[0] = d_logits;
  sp_write_op_done (w, op);
  return d_logits;
}

static SpRows
write_backward (SpWriter *w, gpointer self, SpPort *port)
{
  SpExpertSlots *e = self;
  const SpExpertShape *moe = &w->arch->moe;
  gint64 buffer = buffer_elements (w, e, w->hidden);

  guint8 d = sp_branch_d_whole (w, port);
  guint8 d_output = sp_write_temporary (w, buffer);
  guint8 d_logits = write_combine_backward (w, e, d, d_output), d_done = d_output;
  if (is_spread (w)) {
    d_done = sp_write_temporary (w, buffer);
    send_out (w, e, d_output, d_done);
  }
  guint8 d_input = sp_write_temporary (w, buffer), d_sent = d_input;
  write_local_experts_backward (w, e, d_done, d_input);
  if (is_spread (w)) {
    d_sent = sp_write_temporary (w, buffer);
    send_back (w, e, d_input, d_sent);
  }
  guint8 d_whole = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  SpOp *op = route_op (w, e, SP_OP_DISPATCH_BWD, w->hidden, 0);
  op->in[0] = d_sent;
  op->in[1] = e->slots;
  op->out[0] = d_whole;
  end_exchange_op (w, op, 1);
  sp_write_gemm (w, w->rows, w->hidden, moe->experts, d_logits, e->router.value, d_whole, 0, SP_OP_ACCUMULATE);
  guint8 whole = sp_branch_again_for (w, port, e->router); /* the others learn where it does */
  sp_write_linear_wgrad (w, w->rows, moe->experts, w->hidden, d_logits, whole, e->router);
  sp_write_bias_grad (w, w->rows, moe->experts, d_logits, e->router_bias);
  if (moe->shared_ffn > 0)
    write_shared_backward (w, e, whole, d, d_whole);
  return (SpRows){ d_whole, TRUE };
}

const SpBranch sp_experts_branch = { write_weights, write_forward, write_backward };
