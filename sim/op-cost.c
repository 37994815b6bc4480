/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/op-cost.h"

static gint64
sum (const gint64 *bytes, guint n)
{
  gint64 all = 0;

  for (guint i = 0; i < n; i++)
    all += bytes[i];
  return all;
}

/* Of m rows of k features, as many as `whole` bytes have in `rows` rows. */
static gint64
rows_of (const SpOp *op, gint64 whole, gint64 rows)
{
  return whole / MAX (rows, 1) * op->m;
}

static gint64
share_of (gint64 whole, gint64 columns, gint64 of)
{
  return whole / MAX (of, 1) * columns;
}

/* Of operands whose rows are wider than what is read of them. */
static gint64
unread (const SpOp *op, const gint64 in[SP_MAX_IN])
{
  gint64 qkv_heads = op->heads + 2 * op->kv_heads, gate_heads = op->flags & SP_OP_GATED ? op->heads : 0;

  switch (op->kind) {
  case SP_OP_GATE:
    return share_of (in[1], op->k - op->n, op->k);
  case SP_OP_GATE_BWD:
    return share_of (in[2], op->k - op->n, op->k);
  case SP_OP_FEATURE: /* not U */
    return share_of (in[0], 1, 4);
  case SP_OP_FEATURE_BWD: /* Q and K alone */
    return share_of (in[0], 2, 4);
  case SP_OP_ROPE:
    return share_of (in[0], gate_heads, qkv_heads + gate_heads);
  case SP_OP_ROPE_BWD:
    return share_of (in[4], op->kv_heads + gate_heads, qkv_heads + gate_heads);
  default:
    return 0;
  }
}

gint64
sp_op_bytes (const SpOp *op, const gint64 in[SP_MAX_IN], const gint64 out[SP_MAX_OUT])
{
  gint64 read = sum (in, SP_MAX_IN) - unread (op, in), written = sum (out, SP_MAX_OUT);

  switch (op->kind) {
  case SP_OP_EMBED:
    return rows_of (op, in[0], op->n) + out[0];
  case SP_OP_POSITION:
    return in[0] + rows_of (op, in[1], op->n) + out[0];
  case SP_OP_EMBED_BWD:
  case SP_OP_POSITION_BWD:
    return in[0] + 2 * rows_of (op, out[0], op->n);
  case SP_OP_ADAM:
    return read + 2 * (out[0] + out[1] + out[2]) + out[3];
  default:
    return read + (op->flags & SP_OP_ACCUMULATE ? 2 : 1) * written;
  }
}

static double
linear_flops (const SpOp *op)
{
  double tokens = (double) op->m * op->batch, keys = tokens * op->kv_heads * op->k, values = tokens * op->heads * op->n;
  double chunk = 2 * op->k * (keys + values), state = 2 * values * op->k;

  switch (op->kind) {
  case SP_OP_LINEAR_LOCAL:
    /* Within the kernel the state of earlier chunks is built and applied too, so the output costs all four products. */
    return op->out[0] ? chunk + 2 * state : state;
  case SP_OP_LINEAR_LOCAL_BWD:
    /* Within the chunk 5 products of the forward's 2; dq, dk, dv and the two states' builds and uses: 5 of 2 k n. */
    return op->out[0] ? 2.5 * chunk + 5 * state : state;
  case SP_OP_LINEAR_INTER:
    return state;
  default: /* the inter part's backward: dq of the state before, dk and dv of the gradient of that after */
    return (op->out[0] ? state : 0) + (op->out[1] ? 2 * state : 0);
  }
}

/* A recurrence's, of a token and value head; see the header. */
typedef struct {
  double heads;  /* token-heads */
  double shared; /* of them, those that do products of q and k */
  double chunk;
  double state; /* of all */
} Recurrence;

#define DELTA_CHUNK 64

static Recurrence
recurrence_of (const SpOp *op)
{
  double tokens = (double) op->m * op->batch;
  gboolean delta = (op->flags & SP_OP_DELTA) != 0, once = !delta && op->flags & SP_OP_HEAD_DECAY;

  return (Recurrence){ .heads = tokens * op->heads,
                       .shared = tokens * (once ? op->kv_heads : op->heads),
                       .chunk = delta ? DELTA_CHUNK : op->k,
                       .state = 2 * tokens * op->heads * op->k * op->n };
}

static double
recurrent_flops (const SpOp *op, gboolean backward)
{
  Recurrence f = recurrence_of (op);
  double k = op->k, n = op->n, chunk = 2 * f.chunk * (f.shared * k + f.heads * n);

  if (op->flags & SP_OP_SCAN)
    return (backward ? 2.5 : 1) * 3 * f.state;
  if (!(op->flags & SP_OP_DELTA))
    return backward ? 2.5 * chunk + 5 * f.state : chunk + 2 * f.state;
  if (backward)
    return 8 * f.state + f.heads * (2 * f.chunk * (10 * k + 5 * n) + 4 * f.chunk * f.chunk);
  return chunk + f.heads * (2 * f.chunk * (2 * k + n) + f.chunk * f.chunk / 3) + 3 * f.state;
}

static double
own_flops (const SpOp *op, gboolean backward)
{
  Recurrence f = recurrence_of (op);

  if (op->flags & SP_OP_SCAN)
    return 2 * f.state;
  return op->flags & SP_OP_DELTA ? (backward ? 3 : 2) * f.state + 4 * f.heads * op->k * op->k : f.state;
}

double
sp_op_flops (const SpOp *op, double pairs)
{
  double value_size = op->value_size > 0 ? op->value_size : op->k;

  switch (op->kind) {
  case SP_OP_GEMM:
    return 2.0 * MAX (op->batch, 1) * op->m * op->n * op->k;
  case SP_OP_ATTENTION:
    return 2 * pairs * (op->k + value_size) * op->heads * op->batch;
  case SP_OP_ATTENTION_BWD:
    return pairs * (6 * op->k + 4 * value_size) * op->heads * op->batch;
  case SP_OP_LINEAR_LOCAL:
  case SP_OP_LINEAR_LOCAL_BWD:
  case SP_OP_LINEAR_INTER:
  case SP_OP_LINEAR_INTER_BWD:
    return linear_flops (op);
  case SP_OP_RECURRENT:
  case SP_OP_RECURRENT_BWD:
    return recurrent_flops (op, op->kind == SP_OP_RECURRENT_BWD);
  case SP_OP_STATE_OWN:
  case SP_OP_STATE_OWN_BWD:
    return own_flops (op, op->kind == SP_OP_STATE_OWN_BWD);
  default:
    return 0;
  }
}
