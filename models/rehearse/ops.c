/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/operands.h"

#include <string.h>

/*
 * Kernels: one handler and one row of the table for each kind. A handler names the size of each operand, which must be
 * that of its slot, and calls the reference.
 */

static SpRefShape
shape_of (const SpCall *c)
{
  return (SpRefShape){
    .m = M, .n = N, .k = K, .batch = c->op->batch, .heads = HEADS, .kv_heads = c->op->kv_heads, .v = c->op->value_size
  };
}

/* x[m,n] + bias[n], or x itself without a bias. */
static const double *
with_bias (SpCall *c, const double *x, const double *bias)
{
  double *sum;

  if (bias == NULL || c->failed)
    return x;
  sum = sp_call_temporary (c, M * N * sizeof *sum);
  for (gint64 i = 0; i < M * N; i++)
    sum[i] = x[i] + bias[i % N];
  return sum;
}

/* --- matrices ----------------------------------------------------------------------------------------------------- */

/* What this place of the group adds of it. */
static const double *
bias_part (SpCall *c, gint64 n)
{
  gint32 places = MAX (c->in->program->groups[c->op->group].size, 1);
  const double *bias = IN (2, n);

  if (bias == NULL || places == 1)
    return bias;
  double *part = sp_call_temporary (c, n * sizeof *part);
  for (gint64 i = 0; i < n; i++)
    part[i] = bias[i] / places;
  return part;
}

static void
copy_rows (gint64 rows, gint64 columns, const double *from, gint64 from_stride, double *to, gint64 to_stride)
{
  for (gint64 row = 0; row < rows; row++)
    memcpy (to + row * to_stride, from + row * from_stride, columns * sizeof *to);
}

/* Of which an operand is columns of something wider. */
static void
strided_gemm (SpCall *c)
{
  gint64 rows = FLAG (TRANS_A) ? K : M, columns = FLAG (TRANS_A) ? M : K;
  gint64 a_stride = c->op->heads > 0 ? c->op->heads : columns, out_stride = c->op->kv_heads > 0 ? c->op->kv_heads : N;
  const double *a = IN (0, (rows - 1) * a_stride + columns), *b = IN (1, K * N);
  double *out = OUT (0, (M - 1) * out_stride + N);
  double *own_a = sp_call_temporary (c, M * K * sizeof *own_a);
  double *own_out = sp_call_temporary (c, M * N * sizeof *own_out);

  if (c->failed)
    return;
  copy_rows (rows, columns, a, a_stride, own_a, columns);
  copy_rows (M, N, out, out_stride, own_out, N);
  sp_ref_gemm (FLAG (TRANS_A), FLAG (TRANS_B), FLAG (ACCUMULATE), 1, M, N, K, own_a, M * K, b, K * N, NULL, N, own_out,
               M * N);
  copy_rows (M, N, own_out, N, out, out_stride);
}

static void
gemm (SpCall *c)
{
  gint64 batch = MAX (c->op->batch, 1);

  if (c->op->heads > 0 || c->op->kv_heads > 0) {
    strided_gemm (c);
    return;
  }
  const double *a = IN (0, batch * M * K), *b = IN (1, batch * K * N), *bias = bias_part (c, batch * N);
  double *out = OUT (0, batch * M * N);

  if (!c->failed)
    sp_ref_gemm (FLAG (TRANS_A), FLAG (TRANS_B), FLAG (ACCUMULATE), batch, M, N, K, a, M * K, b, K * N, bias, N, out,
                 M * N);
}

/* --- dropout and norms -------------------------------------------------------------------------------------------- */

static const gint64 *
column_ids (SpCall *c, gint64 first, gint64 n)
{
  gint64 *ids = sp_call_temporary (c, n * sizeof *ids);

  for (gint64 i = 0; i < n; i++)
    ids[i] = first + i;
  return ids;
}

static void
dropout (SpCall *c)
{
  gint64 rows = HEADS > 0 ? c->op->batch * HEADS * M : M, hidden = c->in->program->numbers.hidden;
  const double *bias = HEADS > 0 ? NULL : IN (1, N), *x = with_bias (c, IN (0, rows * N), bias);
  double *y = OUT (0, rows * N), *mask = OUT (1, rows * N);
  const gint64 *row_ids, *col_ids;

  if (c->failed)
    return;
  row_ids = HEADS > 0 ? sp_call_score_ids (c) : sp_call_row_ids (c, M);
  if (HEADS > 0)
    col_ids = sp_call_key_positions (c, N, M);
  else
    col_ids = column_ids (c, N < hidden ? sp_call_tensor_place (c) * N : 0, N);
  if (!c->failed)
    sp_ref_dropout (rows, N, x, sp_call_dropout_seed (c), row_ids, col_ids, c->in->program->numbers.dropout, y, mask);
}

static void
dropout_bwd (SpCall *c)
{
  gint64 n = (HEADS > 0 ? c->op->batch * HEADS : 1) * M * N;
  const double *dy = IN (0, n), *mask = IN (1, n);
  double *dx = OUT (0, n);

  if (!c->failed)
    sp_ref_dropout_bwd (1, n, dy, mask, c->in->program->numbers.dropout, dx);
}

static void
norm (SpCall *c)
{
  const double *x = IN (0, M * N), *gain = IN (1, N), *bias = IN (2, N), *squares = IN (3, M);
  double *y = OUT (0, M * N), *stat = OUT (1, FLAG (LAYERNORM) ? 2 * M : M);

  if (!c->failed)
    sp_ref_norm (FLAG (LAYERNORM), M, N, K, x, gain, bias, squares, c->in->program->numbers.norm_epsilon, y, stat);
}

static void
norm_stat (SpCall *c)
{
  const double *x = IN (0, M * N);
  double *squares = OUT (0, M);

  if (!c->failed)
    sp_ref_norm_stat (M, N, x, squares);
}

static void
norm_bwd (SpCall *c)
{
  const double *dy = IN (0, M * N), *x = IN (1, M * N), *stat = IN (2, FLAG (LAYERNORM) ? 2 * M : M), *gain = IN (3, N);
  const double *dr = IN (4, M * N), *dot = IN (5, M);
  double *dx = OUT (0, M * N), *dgain = OUT (1, N), *dbias = OUT (2, N);

  if (!c->failed)
    sp_ref_norm_bwd (FLAG (LAYERNORM), M, N, K, dy, x, stat, gain, dr, dot, dx, dgain, dbias);
}

static void
norm_stat_bwd (SpCall *c)
{
  const double *dy = IN (0, M * N), *x = IN (1, M * N), *gain = IN (2, N);
  double *dot = OUT (0, M);

  if (!c->failed)
    sp_ref_norm_stat_bwd (M, N, dy, x, gain, dot);
}

/* --- between projections and attention ---------------------------------------------------------------------------- */

static SpRefHeads
heads_of (SpCall *c, const double *q_gain, const double *key_gain)
{
  return (SpRefHeads){ .rotated = FLAG (NO_ROTATE) ? 0
                                  : N > 0          ? N
                                                   : K,
                       .gate = FLAG (GATED) ? HEADS * K : 0,
                       .theta = c->in->program->numbers.rope_theta,
                       .epsilon = c->in->program->numbers.norm_epsilon,
                       .q_gain = q_gain,
                       .key_gain = key_gain };
}

static gint64
qkv_elements (SpCall *c)
{
  return M * (HEADS + 2 * c->op->kv_heads + (FLAG (GATED) ? HEADS : 0)) * K;
}

static void
rope (SpCall *c)
{
  gint64 kv = M * c->op->kv_heads * K;
  const double *qkv = IN (0, qkv_elements (c)), *q_gain = IN (1, K), *key_gain = IN (2, K);
  const gint64 *positions = sp_call_document_positions (c, M);
  double *q = OUT (0, M * HEADS * K), *k = OUT (1, kv), *v = OUT (2, kv);
  double *stat = OUT (3, M * (HEADS + c->op->kv_heads));
  SpRefHeads how = heads_of (c, q_gain, key_gain);

  if (!c->failed)
    sp_ref_rope (shape_of (c), &how, qkv, positions, q, k, v, stat);
}

static void
rope_bwd (SpCall *c)
{
  gint64 kv = M * c->op->kv_heads * K;
  const double *dq = IN (0, M * HEADS * K), *dk = IN (1, kv), *dv = IN (2, kv), *du = IN (3, M * HEADS * K);
  const double *qkv = IN (4, qkv_elements (c)), *stat = IN (5, M * (HEADS + c->op->kv_heads));
  const double *q_gain = IN (6, K), *key_gain = IN (7, K);
  const gint64 *positions = sp_call_document_positions (c, M);
  double *dqkv = OUT (0, qkv_elements (c)), *dq_gain = OUT (1, K), *dkey_gain = OUT (2, K);
  SpRefHeads how = heads_of (c, q_gain, key_gain);

  if (!c->failed)
    sp_ref_rope_bwd (shape_of (c), &how, dq, dk, dv, qkv, stat, du, positions, dqkv, dq_gain, dkey_gain);
}

static void
latent (SpCall *c)
{
  gint64 v = c->op->value_size;
  const double *q_up = IN (0, M * HEADS * K), *kv_up = IN (1, M * HEADS * (K - N + v)), *shared = IN (2, M * N);
  const gint64 *positions = FLAG (NO_ROTATE) ? NULL : sp_call_document_positions (c, M);
  double *q = OUT (0, M * HEADS * K), *k = OUT (1, M * HEADS * K), *values = OUT (2, M * HEADS * v);

  if (!c->failed)
    sp_ref_latent (shape_of (c), q_up, kv_up, shared, positions, c->in->program->numbers.rope_theta, q, k, values);
}

static void
latent_bwd (SpCall *c)
{
  gint64 v = c->op->value_size;
  const double *dq = IN (0, M * HEADS * K), *dk = IN (1, M * HEADS * K), *dv = IN (2, M * HEADS * v);
  const gint64 *positions = FLAG (NO_ROTATE) ? NULL : sp_call_document_positions (c, M);
  double *dq_up = OUT (0, M * HEADS * K), *dkv_up = OUT (1, M * HEADS * (K - N + v)), *dshared = OUT (2, M * N);

  if (!c->failed)
    sp_ref_latent_bwd (shape_of (c), dq, dk, dv, positions, c->in->program->numbers.rope_theta, dq_up, dkv_up, dshared);
}

static void
split (SpCall *c)
{
  const double *x = IN (0, M * (N + K));
  double *a = OUT (0, M * N), *b = OUT (1, M * K);

  if (!c->failed)
    sp_ref_split (M, N, K, x, a, b);
}

static void
join (SpCall *c)
{
  const double *a = IN (0, M * N), *b = IN (1, M * K);
  double *x = OUT (0, M * (N + K));

  if (!c->failed)
    sp_ref_join (M, N, K, a, b, x);
}

static void
feature (SpCall *c)
{
  gint64 w = HEADS * K;
  const double *qkvu = IN (0, 4 * M * w);
  double *q = OUT (0, M * w), *k = OUT (1, M * w), *v = OUT (2, M * w);

  if (!c->failed)
    sp_ref_feature (M, w, qkvu, q, k, v);
}

static void
feature_bwd (SpCall *c)
{
  gint64 w = HEADS * K;
  const double *qkvu = IN (0, 4 * M * w), *dq = IN (1, M * w), *dk = IN (2, M * w), *dv = IN (3, M * w);
  const double *du = IN (4, M * w);
  double *dqkvu = OUT (0, 4 * M * w);

  if (!c->failed)
    sp_ref_feature_bwd (M, w, qkvu, dq, dk, dv, du, dqkvu);
}

static void
pack (SpCall *c)
{
  const double *x = IN (0, M * HEADS * K);
  double *out = OUT (0, N * M * K);

  if (!c->failed)
    sp_ref_pack (M, N, K, HEADS, x, out);
}

static void
unpack (SpCall *c)
{
  const double *x = IN (0, N * M * K);
  double *out = OUT (0, M * HEADS * K);

  if (!c->failed)
    sp_ref_unpack (M, N, K, HEADS, x, out);
}

static void
part (SpCall *c)
{
  gint32 parts = c->in->program->groups[c->op->group].size;
  gint32 place = sp_program_place (c->in->program, c->op->group, c->rank->number);
  const double *x = IN (0, M * N * parts);
  double *out = OUT (0, M * N);

  if (!c->failed)
    sp_ref_part (M, N, parts, place, x, out);
}

/* --- elementwise -------------------------------------------------------------------------------------------------- */

static SpRefGate
gate_of (const SpCall *c)
{
  return FLAG (LINEAR_GATE) ? SP_REF_IDENTITY : FLAG (GELU_GATE) ? SP_REF_GELU : SP_REF_SILU;
}

static void
glu (SpCall *c)
{
  const double *gu = IN (0, 2 * M * N);
  double *out = OUT (0, M * N), *gate = OUT (1, M * N);

  if (!c->failed)
    sp_ref_glu (gate_of (c), M, N, gu, out, gate);
}

static void
glu_bwd (SpCall *c)
{
  const double *da = IN (0, M * N), *gu = IN (1, 2 * M * N), *gate = IN (2, M * N);
  double *dgu = OUT (0, 2 * M * N);

  if (!c->failed)
    sp_ref_glu_bwd (gate_of (c), M, N, da, gu, gate, dgu);
}

static void
gelu (SpCall *c)
{
  const double *x = IN (0, M * N);
  double *out = OUT (0, M * N);

  if (c->failed)
    return;
  if (FLAG (RELU))
    sp_ref_relu (FLAG (SQUARE), M * N, x, out);
  else
    sp_ref_gelu (M * N, x, out);
}

static void
gelu_bwd (SpCall *c)
{
  const double *da = IN (0, M * N), *x = IN (1, M * N);
  double *dx = OUT (0, M * N);

  if (c->failed)
    return;
  if (FLAG (RELU))
    sp_ref_relu_bwd (FLAG (SQUARE), M * N, da, x, dx);
  else
    sp_ref_gelu_bwd (M * N, da, x, dx);
}

static void
gate (SpCall *c)
{
  const double *o = IN (0, M * N), *gates = IN (1, M * K);
  double *out = OUT (0, M * N);

  if (!c->failed)
    sp_ref_gate (FLAG (SILU), M, N, K, o, gates, out);
}

static void
gate_bwd (SpCall *c)
{
  const double *d = IN (0, M * N), *o = IN (1, M * N), *gates = IN (2, M * K);
  double *d_o = OUT (0, M * N), *du = OUT (1, M * N);

  if (!c->failed)
    sp_ref_gate_bwd (FLAG (SILU), M, N, K, d, o, gates, d_o, du);
}

static void
add (SpCall *c)
{
  const double *a = IN (0, M * N), *b = IN (1, M * N), *bias = IN (2, N), *more = IN (3, N);
  double *out;

  b = with_bias (c, with_bias (c, b, bias), more);
  out = OUT (0, M * N);
  if (!c->failed)
    sp_ref_add (M * N, a, b, out);
}

static void
accumulate (SpCall *c)
{
  const double *x = IN (0, M * N);
  double *out = OUT (0, M * N);

  if (!c->failed)
    sp_ref_accumulate (M * N, x, out);
}

static void
copy (SpCall *c)
{
  gint32 parts = MAX (c->in->program->groups[c->op->group].size, 1);
  gint64 n = sp_call_buffer (c, c->op->in[0])->elements;
  gboolean has_all = c->op->group != SP_GROUP_NONE && n == parts * M * N;
  const double *x = IN (0, has_all ? n : M * N);
  double *out = OUT (0, M * N);

  if (c->failed)
    return;
  gint32 place = sp_program_place (c->in->program, c->op->group, c->rank->number);
  sp_ref_copy (M * N, x + (has_all ? place * M * N : 0), out);
}

static void
column_sum (SpCall *c)
{
  gint64 batch = MAX (c->op->batch, 1);
  const double *x = IN (0, batch * M * N);
  double *out = OUT (0, batch * N);

  for (gint64 i = 0; i < batch && !c->failed; i++)
    sp_ref_column_sum (M, N, x + i * M * N, out + i * N);
}

static void
zero (SpCall *c)
{
  double *out = OUT (0, M * N);

  if (!c->failed)
    sp_ref_zero (M * N, out);
}

/* --- table -------------------------------------------------------------------------------------------------------- */

static const SpHandler handlers[SP_OP_ALL_GATHER] = {
  [SP_OP_GEMM] = gemm,
  [SP_OP_SCORES] = sp_run_scores,
  [SP_OP_SCORES_BWD] = sp_run_scores_bwd,
  [SP_OP_SOFTMAX] = sp_run_softmax,
  [SP_OP_SOFTMAX_BWD] = sp_run_softmax_bwd,
  [SP_OP_CONTEXT] = sp_run_context,
  [SP_OP_CONTEXT_BWD] = sp_run_context_bwd,
  [SP_OP_DROPOUT] = dropout,
  [SP_OP_DROPOUT_BWD] = dropout_bwd,
  [SP_OP_NORM] = norm,
  [SP_OP_NORM_STAT] = norm_stat,
  [SP_OP_NORM_BWD] = norm_bwd,
  [SP_OP_NORM_STAT_BWD] = norm_stat_bwd,
  [SP_OP_ROPE] = rope,
  [SP_OP_ROPE_BWD] = rope_bwd,
  [SP_OP_LATENT] = latent,
  [SP_OP_LATENT_BWD] = latent_bwd,
  [SP_OP_SPLIT] = split,
  [SP_OP_JOIN] = join,
  [SP_OP_FEATURE] = feature,
  [SP_OP_FEATURE_BWD] = feature_bwd,
  [SP_OP_PACK] = pack,
  [SP_OP_UNPACK] = unpack,
  [SP_OP_PART] = part,
  [SP_OP_ATTENTION] = sp_run_attention,
  [SP_OP_ATTENTION_MERGE] = sp_run_attention_merge,
  [SP_OP_ATTENTION_SINK] = sp_run_attention_sink,
  [SP_OP_ATTENTION_SINK_BWD] = sp_run_attention_sink_bwd,
  [SP_OP_ATTENTION_DELTA] = sp_run_attention_delta,
  [SP_OP_ATTENTION_BWD] = sp_run_attention_bwd,
  [SP_OP_LINEAR_LOCAL] = sp_run_linear_local,
  [SP_OP_LINEAR_INTER] = sp_run_linear_inter,
  [SP_OP_LINEAR_LOCAL_BWD] = sp_run_linear_local_bwd,
  [SP_OP_LINEAR_INTER_BWD] = sp_run_linear_inter_bwd,
  [SP_OP_STATE_UPDATE] = sp_run_state_update,
  [SP_OP_STATE_PREFIX] = sp_run_state_prefix,
  [SP_OP_STATE_OWN] = sp_run_state_own,
  [SP_OP_RECURRENT] = sp_run_recurrent,
  [SP_OP_STATE_OWN_BWD] = sp_run_state_own_bwd,
  [SP_OP_RECURRENT_BWD] = sp_run_recurrent_bwd,
  [SP_OP_CONV] = sp_run_conv,
  [SP_OP_CONV_BWD] = sp_run_conv_bwd,
  [SP_OP_KEY_MAP] = sp_run_key_map,
  [SP_OP_KEY_MAP_BWD] = sp_run_key_map_bwd,
  [SP_OP_SIGMOID] = sp_run_sigmoid,
  [SP_OP_SIGMOID_BWD] = sp_run_sigmoid_bwd,
  [SP_OP_DECAY] = sp_run_decay,
  [SP_OP_DECAY_BWD] = sp_run_decay_bwd,
  [SP_OP_SKIP] = sp_run_skip,
  [SP_OP_SKIP_BWD] = sp_run_skip_bwd,
  [SP_OP_GLU] = glu,
  [SP_OP_GLU_BWD] = glu_bwd,
  [SP_OP_GELU] = gelu,
  [SP_OP_GELU_BWD] = gelu_bwd,
  [SP_OP_GATE] = gate,
  [SP_OP_GATE_BWD] = gate_bwd,
  [SP_OP_ROW_GATE] = sp_run_row_gate,
  [SP_OP_ROW_GATE_BWD] = sp_run_row_gate_bwd,
  [SP_OP_ROUTE] = sp_run_route,
  [SP_OP_ROUTE_BWD] = sp_run_route_bwd,
  [SP_OP_DISPATCH] = sp_run_dispatch,
  [SP_OP_DISPATCH_BWD] = sp_run_dispatch_bwd,
  [SP_OP_COMBINE] = sp_run_combine,
  [SP_OP_COMBINE_BWD] = sp_run_combine_bwd,
  [SP_OP_ADD] = add,
  [SP_OP_ACCUMULATE_INTO] = accumulate,
  [SP_OP_COPY] = copy,
  [SP_OP_COLUMN_SUM] = column_sum,
  [SP_OP_EMBED] = sp_run_embed,
  [SP_OP_EMBED_BWD] = sp_run_embed_bwd,
  [SP_OP_POSITION] = sp_run_position,
  [SP_OP_POSITION_BWD] = sp_run_position_bwd,
  [SP_OP_LOSS_MAX] = sp_run_loss_max,
  [SP_OP_LOSS_SUM] = sp_run_loss_sum,
  [SP_OP_LOSS] = sp_run_loss,
  [SP_OP_ADAM] = sp_run_adam,
  [SP_OP_MOMENTUM] = sp_run_momentum,
  [SP_OP_ORTHOGONALIZE] = sp_run_orthogonalize,
  [SP_OP_DESCEND] = sp_run_descend,
  [SP_OP_ZERO] = zero,
};

void
sp_call_run (SpCall *call)
{
  handlers[call->op->kind](call);
  sp_call_check_written (call);
}
