/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each backward of the references against central differences of its forward, on awkward sizes: one table, one row an
 * op and case.
 */
#include "tests/reference-gradient.h"

enum {
  TRANS_A = 1 << 0,
  TRANS_B = 1 << 1,
  BIAS = 1 << 2,
  CAUSAL = 1 << 3,
  LAYERNORM = 1 << 4,
  GAIN = 1 << 5,
  RESIDUAL = 1 << 6, /* x goes past the op as well */
  NO_ROTATE = 1 << 7,
  LINEAR_GATE = 1 << 8,
  BALANCED = 1 << 9,
  SINK = 1 << 10,
  PARTIAL = 1 << 11, /* two features turn, and a gate follows */
  GELU_GATE = 1 << 12,
  SQUARE = 1 << 13
};

static void
op_gemm (Stage stage, const Case *c, Arrays *a)
{
  gint64 m = c->shape.m, n = c->shape.n, k = c->shape.k, batch = c->shape.batch;
  gboolean ta = c->flags & TRANS_A, tb = c->flags & TRANS_B, bias = c->flags & BIAS;

  if (stage == SIZES) {
    a->in_n[0] = batch * m * k;
    a->in_n[1] = batch * k * n;
    a->in_n[2] = bias ? batch * n : 0;
    a->out_n[0] = batch * m * n;
    a->in_sum[2] = TRUE;
  } else if (stage == FORWARD) {
    sp_ref_gemm (ta, tb, FALSE, batch, m, n, k, a->in[0], m * k, a->in[1], k * n, bias ? a->in[2] : NULL, n, a->out[0],
                 m * n);
  } else {
    /* dA = dC B^T, dB = A^T dC, or their transposes. */
    if (ta)
      sp_ref_gemm (tb, TRUE, FALSE, batch, k, m, n, a->in[1], k * n, a->d_out[0], m * n, NULL, 0, a->d_in[0], m * k);
    else
      sp_ref_gemm (FALSE, !tb, FALSE, batch, m, k, n, a->d_out[0], m * n, a->in[1], k * n, NULL, 0, a->d_in[0], m * k);
    if (tb)
      sp_ref_gemm (TRUE, ta, FALSE, batch, n, k, m, a->d_out[0], m * n, a->in[0], m * k, NULL, 0, a->d_in[1], k * n);
    else
      sp_ref_gemm (!ta, FALSE, FALSE, batch, k, n, m, a->in[0], m * k, a->d_out[0], m * n, NULL, 0, a->d_in[1], k * n);
    for (gint64 b = 0; bias && b < batch; b++)
      sp_ref_column_sum (m, n, a->d_out[0] + b * m * n, a->d_in[2] + b * n);
  }
}

static void
op_scores (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;

  if (stage == SIZES) {
    a->in_n[0] = s.m * s.batch * s.heads * s.k;
    a->in_n[1] = s.n * s.batch * s.kv_heads * s.k;
    a->out_n[0] = s.batch * s.heads * s.m * s.n;
  } else if (stage == FORWARD) {
    sp_ref_scores (s, a->in[0], a->in[1], a->out[0]);
  } else {
    sp_ref_scores_bwd (s, a->in[0], a->in[1], a->d_out[0], a->d_in[0], a->d_in[1]);
  }
}

static void
op_softmax (Stage stage, const Case *c, Arrays *a)
{
  gint64 heads = c->shape.heads, parts = c->shape.batch * heads, m = c->shape.m, n = c->shape.n;
  gboolean sink = c->flags & SINK;

  if (stage == SIZES) {
    a->in_n[0] = a->out_n[0] = parts * m * n;
    a->in_n[1] = sink ? heads : 0;
    a->in_sum[1] = TRUE;
  } else if (stage == FORWARD)
    sp_ref_softmax (parts, m, n, a->in[0], c->flags & CAUSAL, c->shape.window, query_positions, key_positions, heads,
                    sink ? a->in[1] : NULL, a->out[0]);
  else
    sp_ref_softmax_bwd (parts, m, n, a->out[0], a->d_out[0], heads, sink ? a->d_in[1] : NULL, a->d_in[0]);
}

static void
op_context (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;

  if (stage == SIZES) {
    a->in_n[0] = s.batch * s.heads * s.m * s.n;
    a->in_n[1] = s.n * s.batch * s.kv_heads * s.k;
    a->out_n[0] = s.m * s.batch * s.heads * s.k;
  } else if (stage == FORWARD) {
    sp_ref_context (s, a->in[0], a->in[1], a->out[0]);
  } else {
    sp_ref_context_bwd (s, a->in[0], a->in[1], a->d_out[0], a->d_in[0], a->d_in[1]);
  }
}

/* In blocks of all keys, so with the sinks at once. */
static void
op_attention (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;
  gint64 rows = s.m * s.batch * s.heads, v = s.v > 0 ? s.v : s.k;
  gboolean causal = c->flags & CAUSAL, sink = c->flags & SINK;

  if (stage == SIZES) {
    a->in_n[0] = rows * s.k;
    a->in_n[1] = s.n * s.batch * s.kv_heads * s.k;
    a->in_n[2] = s.n * s.batch * s.kv_heads * v;
    a->in_n[3] = sink ? s.heads : 0;
    a->in_sum[3] = TRUE;
    a->out_n[0] = rows * v;
    a->out_n[1] = rows;
    a->out_auxiliary[1] = TRUE;
  } else if (stage == FORWARD) {
    sp_ref_attention (s, a->in[0], a->in[1], a->in[2], causal, query_positions, key_positions, a->out[0], a->out[1]);
    if (sink)
      sp_ref_attention_sink (rows, v, s.heads, a->in[3], a->out[0], a->out[1]);
  } else {
    g_autofree double *delta = poison (rows);
    sp_ref_attention_delta (rows, v, a->d_out[0], a->out[0], delta);
    sp_ref_attention_bwd (s, a->in[0], a->in[1], a->in[2], a->d_out[0], a->out[1], delta, causal, query_positions,
                          key_positions, a->d_in[0], a->d_in[1], a->d_in[2]);
    if (sink)
      sp_ref_attention_sink_bwd (rows, s.heads, a->out[1], delta, a->in[3], a->d_in[3]);
  }
}

/* q, keys, values, state before -> o, state after. */
static void
op_linear (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;
  gint64 rows = s.m * s.batch * s.heads, state_n = s.batch * s.heads * s.k * s.n;
  const double *slopes = test_slopes_of_heads;
  g_autofree double *own = poison (state_n);

  if (stage == SIZES) {
    a->in_n[0] = a->in_n[1] = rows * s.k;
    a->in_n[2] = a->out_n[0] = rows * s.n;
    a->in_n[3] = a->out_n[1] = state_n;
  } else if (stage == FORWARD) {
    sp_ref_linear_local (s, slopes, a->in[0], a->in[1], a->in[2], a->out[0], own);
    sp_ref_linear_inter (s, slopes, a->in[0], a->in[3], a->out[0]);
    sp_ref_state_update (s, slopes, a->in[3], own, a->out[1]);
  } else {
    sp_ref_linear_local_bwd (s, slopes, a->in[0], a->in[1], a->in[2], a->d_out[0], a->d_in[0], a->d_in[1], a->d_in[2],
                             own);
    sp_ref_linear_inter_bwd (s, slopes, a->in[1], a->in[2], a->d_out[0], a->in[3], a->d_out[1], a->d_in[0], a->d_in[1],
                             a->d_in[2]);
    sp_ref_state_update (s, slopes, a->d_out[1], own, a->d_in[3]);
  }
}

static void
op_dropout (Stage stage, const Case *c, Arrays *a)
{
  gint64 m = c->shape.m, n = c->shape.n;

  if (stage == SIZES) {
    a->in_n[0] = a->out_n[0] = a->out_n[1] = m * n;
    a->out_auxiliary[1] = TRUE;
  } else if (stage == FORWARD) {
    sp_ref_dropout (m, n, a->in[0], 42, row_ids, col_ids, 0.4, a->out[0], a->out[1]);
  } else {
    sp_ref_dropout_bwd (m, n, a->d_out[0], a->out[1], 0.4, a->d_in[0]);
  }
}

/* With RESIDUAL a second output is x itself, whose gradient is dR. */
static void
op_norm (Stage stage, const Case *c, Arrays *a)
{
  gint64 m = c->shape.m, n = c->shape.n;
  gboolean layernorm = c->flags & LAYERNORM, residual = c->flags & RESIDUAL;
  gboolean gain = c->flags & GAIN, bias = c->flags & BIAS;

  if (stage == SIZES) {
    a->in_n[0] = a->out_n[0] = m * n;
    a->in_n[1] = gain ? n : 0;
    a->in_n[2] = bias ? n : 0;
    a->in_sum[1] = a->in_sum[2] = TRUE;
    a->out_n[1] = residual ? m * n : 0;
    a->out_n[2] = layernorm ? 2 * m : m;
    a->out_auxiliary[2] = TRUE;
  } else if (stage == FORWARD) {
    sp_ref_norm (layernorm, m, n, n, a->in[0], gain ? a->in[1] : NULL, bias ? a->in[2] : NULL, NULL, 1e-3, a->out[0],
                 a->out[2]);
    sp_ref_copy (a->out_n[1], a->in[0], a->out[1]);
  } else {
    sp_ref_norm_bwd (layernorm, m, n, n, a->d_out[0], a->in[0], a->out[2], gain ? a->in[1] : NULL,
                     residual ? a->d_out[1] : NULL, NULL, a->d_in[0], gain ? a->d_in[1] : NULL,
                     bias ? a->d_in[2] : NULL);
  }
}

/* out[4] is what a gate at the row's end makes of itself. */
static void
op_rope (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;
  gint64 gate = c->flags & PARTIAL ? s.heads * s.k : 0, width = (s.heads + 2 * s.kv_heads) * s.k + gate;
  gboolean gains = c->flags & GAIN;
  SpRefHeads how = { .rotated = c->flags & NO_ROTATE ? 0 : c->flags & PARTIAL ? 2 : s.k,
                     .gate = gate,
                     .theta = 50,
                     .epsilon = 1e-3,
                     .q_gain = gains ? a->in[1] : NULL,
                     .key_gain = gains ? a->in[2] : NULL };

  if (stage == SIZES) {
    a->in_n[0] = s.m * width;
    a->in_n[1] = a->in_n[2] = gains ? s.k : 0;
    a->in_sum[1] = a->in_sum[2] = TRUE;
    a->out_n[0] = s.m * s.heads * s.k;
    a->out_n[1] = a->out_n[2] = s.m * s.kv_heads * s.k;
    a->out_n[3] = gains ? s.m * (s.heads + s.kv_heads) : 0;
    a->out_auxiliary[3] = TRUE;
    a->out_n[4] = s.m * gate;
  } else if (stage == FORWARD) {
    sp_ref_rope (s, &how, a->in[0], query_positions, a->out[0], a->out[1], a->out[2], a->out[3]);
    for (gint64 i = 0; gate > 0 && i < s.m; i++)
      sp_ref_copy (gate, a->in[0] + (i + 1) * width - gate, a->out[4] + i * gate);
  } else {
    sp_ref_rope_bwd (s, &how, a->d_out[0], a->d_out[1], a->d_out[2], a->in[0], a->out[3], a->d_out[4],
                     query_positions, a->d_in[0], a->d_in[1], a->d_in[2]);
  }
}

static void
op_latent (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;

  if (stage == SIZES) {
    a->in_n[0] = a->out_n[0] = a->out_n[1] = s.m * s.heads * s.k;
    a->in_n[1] = s.m * s.heads * (s.k - s.n + s.v);
    a->in_n[2] = s.m * s.n;
    a->out_n[2] = s.m * s.heads * s.v;
  } else if (stage == FORWARD) {
    sp_ref_latent (s, a->in[0], a->in[1], a->in[2], query_positions, 50, a->out[0], a->out[1], a->out[2]);
  } else {
    sp_ref_latent_bwd (s, a->d_out[0], a->d_out[1], a->d_out[2], query_positions, 50, a->d_in[0], a->d_in[1],
                       a->d_in[2]);
  }
}

static void
op_split (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;

  if (stage == SIZES) {
    a->in_n[0] = s.m * (s.n + s.k);
    a->out_n[0] = s.m * s.n;
    a->out_n[1] = s.m * s.k;
  } else if (stage == FORWARD) {
    sp_ref_split (s.m, s.n, s.k, a->in[0], a->out[0], a->out[1]);
  } else {
    sp_ref_join (s.m, s.n, s.k, a->d_out[0], a->d_out[1], a->d_in[0]);
  }
}

/* u's gradient is what reaches it through the gate: out[3] is a copy of u. */
static void
op_feature (Stage stage, const Case *c, Arrays *a)
{
  gint64 m = c->shape.m, w = c->shape.heads * c->shape.k;

  if (stage == SIZES) {
    a->in_n[0] = m * 4 * w;
    for (int i = 0; i < 4; i++)
      a->out_n[i] = m * w;
  } else if (stage == FORWARD) {
    sp_ref_feature (m, w, a->in[0], a->out[0], a->out[1], a->out[2]);
    for (gint64 i = 0; i < m; i++)
      sp_ref_copy (w, a->in[0] + i * 4 * w + 3 * w, a->out[3] + i * w);
  } else {
    sp_ref_feature_bwd (m, w, a->in[0], a->d_out[0], a->d_out[1], a->d_out[2], a->d_out[3], a->d_in[0]);
  }
}

/* m rows, n ranks, `heads` parts of k. */
static void
op_pack (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;

  if (stage == SIZES) {
    a->in_n[0] = s.m * s.heads * s.k;
    a->out_n[0] = s.m * s.n * s.k;
  } else if (stage == FORWARD) {
    sp_ref_pack (s.m, s.n, s.k, s.heads, a->in[0], a->out[0]);
  } else {
    sp_ref_unpack (s.m, s.n, s.k, s.heads, a->d_out[0], a->d_in[0]);
  }
}

static void
op_glu (Stage stage, const Case *c, Arrays *a)
{
  gint64 m = c->shape.m, n = c->shape.n;
  SpRefGate f = c->flags & LINEAR_GATE ? SP_REF_IDENTITY : c->flags & GELU_GATE ? SP_REF_GELU : SP_REF_SILU;

  if (stage == SIZES) {
    a->in_n[0] = m * 2 * n;
    a->out_n[0] = m * n;
  } else if (stage == FORWARD) {
    sp_ref_glu (f, m, n, a->in[0], a->out[0], NULL);
  } else {
    sp_ref_glu_bwd (f, m, n, a->d_out[0], a->in[0], NULL, a->d_in[0]);
  }
}

static void
op_gelu (Stage stage, const Case *c, Arrays *a)
{
  if (stage == SIZES)
    a->in_n[0] = a->out_n[0] = c->shape.n;
  else if (stage == FORWARD)
    sp_ref_gelu (c->shape.n, a->in[0], a->out[0]);
  else
    sp_ref_gelu_bwd (c->shape.n, a->d_out[0], a->in[0], a->d_in[0]);
}

static void
op_relu (Stage stage, const Case *c, Arrays *a)
{
  if (stage == SIZES)
    a->in_n[0] = a->out_n[0] = c->shape.n;
  else if (stage == FORWARD)
    sp_ref_relu (c->flags & SQUARE, c->shape.n, a->in[0], a->out[0]);
  else
    sp_ref_relu_bwd (c->flags & SQUARE, c->shape.n, a->d_out[0], a->in[0], a->d_in[0]);
}

/* in[1] is QKVU, of which only u has a gradient. */
static void
op_gate (Stage stage, const Case *c, Arrays *a)
{
  gint64 m = c->shape.m, n = c->shape.n;

  if (stage == SIZES) {
    a->in_n[0] = a->out_n[0] = m * n;
    a->in_n[1] = m * 4 * n;
  } else if (stage == FORWARD) {
    sp_ref_gate (FALSE, m, n, 4 * n, a->in[0], a->in[1], a->out[0]);
  } else {
    g_autofree double *du = poison (m * n);
    sp_ref_gate_bwd (FALSE, m, n, 4 * n, a->d_out[0], a->in[0], a->in[1], a->d_in[0], du);
    sp_ref_zero (m * 4 * n, a->d_in[1]);
    for (gint64 i = 0; i < m; i++)
      sp_ref_copy (n, du + i * n, a->d_in[1] + i * 4 * n + 3 * n);
  }
}

/* heads: experts; kv_heads: rows of each one's buffer. */
static SpRefRoute
route_of (const Case *c)
{
  return (SpRefRoute){ c->shape.m, c->shape.heads, c->shape.k, c->shape.kv_heads };
}

static void
op_route (Stage stage, const Case *c, Arrays *a)
{
  SpRefRoute r = route_of (c);
  const gint64 *positions = c->flags & BALANCED ? query_positions : NULL;

  if (stage == SIZES) {
    a->in_n[0] = r.tokens * r.experts;
    a->out_n[0] = a->out_n[1] = r.tokens * r.per_token;
    a->out_auxiliary[1] = TRUE;
  } else if (stage == FORWARD)
    sp_ref_route (&r, a->in[0], positions, a->out[0], a->out[1]);
  else
    sp_ref_route_bwd (&r, a->in[0], positions, a->d_out[0], a->out[1], a->d_in[0]);
}

/* Slots of a fixed choice. */
static double *
slots_of (const SpRefRoute *r)
{
  double *slots = poison (r->tokens * r->per_token);
  g_autofree double *logits = g_new (double, r->tokens * r->experts), *weights = poison (r->tokens * r->per_token);

  for (gint64 i = 0; i < r->tokens * r->experts; i++)
    logits[i] = (double) (i * 7 % 11);
  sp_ref_route (r, logits, NULL, weights, slots);
  return slots;
}

static void
op_dispatch (Stage stage, const Case *c, Arrays *a)
{
  SpRefRoute r = route_of (c);
  g_autofree double *slots = slots_of (&r);

  if (stage == SIZES) {
    a->in_n[0] = r.tokens * c->shape.n;
    a->out_n[0] = r.experts * r.capacity * c->shape.n;
  } else if (stage == FORWARD)
    sp_ref_dispatch (&r, c->shape.n, a->in[0], slots, a->out[0]);
  else
    sp_ref_dispatch_bwd (&r, c->shape.n, a->d_out[0], slots, a->d_in[0]);
}

static void
op_combine (Stage stage, const Case *c, Arrays *a)
{
  SpRefRoute r = route_of (c);
  g_autofree double *slots = slots_of (&r);

  if (stage == SIZES) {
    a->in_n[0] = r.experts * r.capacity * c->shape.n;
    a->in_n[1] = r.tokens * r.per_token;
    a->out_n[0] = r.tokens * c->shape.n;
  } else if (stage == FORWARD)
    sp_ref_combine (&r, c->shape.n, a->in[0], a->in[1], slots, a->out[0]);
  else
    sp_ref_combine_bwd (&r, c->shape.n, a->d_out[0], a->in[0], a->in[1], slots, a->d_in[0], a->d_in[1]);
}

static void
op_row_gate (Stage stage, const Case *c, Arrays *a)
{
  gint64 m = c->shape.m, n = c->shape.n;

  if (stage == SIZES) {
    a->in_n[0] = a->out_n[0] = m * n;
    a->in_n[1] = m;
  } else if (stage == FORWARD)
    sp_ref_row_gate (m, n, a->in[0], a->in[1], a->out[0]);
  else
    sp_ref_row_gate_bwd (m, n, a->d_out[0], a->in[0], a->in[1], a->d_in[0], a->d_in[1]);
}

static void
op_embed (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;

  if (stage == SIZES) {
    a->in_n[0] = s.n * s.k;
    a->out_n[0] = s.m * s.k;
    a->in_sum[0] = TRUE;
  } else if (stage == FORWARD) {
    sp_ref_embed (s.m, s.n, s.k, token_ids, FIRST_ID, a->in[0], a->out[0]);
  } else {
    sp_ref_embed_bwd (s.m, s.n, s.k, token_ids, FIRST_ID, a->d_out[0], a->d_in[0]);
  }
}

static void
op_position (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;

  if (stage == SIZES) {
    a->in_n[0] = a->out_n[0] = s.m * s.k;
    a->in_n[1] = s.n * s.k;
    a->in_sum[1] = TRUE;
  } else if (stage == FORWARD) {
    sp_ref_position (s.m, s.n, s.k, query_positions, a->in[0], a->in[1], a->out[0]);
  } else {
    sp_ref_copy (s.m * s.k, a->d_out[0], a->d_in[0]);
    sp_ref_position_bwd (s.m, s.n, s.k, query_positions, a->d_out[0], a->d_in[1]);
  }
}

/* The whole vocabulary in one part; the fourth label is outside it, so its row has weight 0. */
static void
op_loss (Stage stage, const Case *c, Arrays *a)
{
  gint64 m = c->shape.m, n = c->shape.n;
  const double weights[] = { 0.25, 0.25, 0.5, 0, 0.125 };

  if (stage == SIZES) {
    a->in_n[0] = m * n;
    a->out_n[0] = 1;
    a->out_n[1] = m * n;
    a->out_auxiliary[1] = TRUE;
  } else if (stage == FORWARD) {
    g_autofree double *max = poison (m);
    g_autofree double *sums = poison (2 * m);
    sp_ref_loss_max (m, n, a->in[0], max);
    sp_ref_loss_sum (m, n, a->in[0], max, token_ids, FIRST_ID, sums);
    sp_ref_loss (m, n, a->in[0], max, sums, token_ids, FIRST_ID, weights, a->out[0], a->out[1]);
  } else {
    for (gint64 i = 0; i < m * n; i++)
      a->d_in[0][i] = a->d_out[0][0] * a->out[1][i];
  }
}

/* clang-format off */
static const Case gradient_cases[] = {
  { "gemm", op_gemm, { .m = 5, .n = 3, .k = 4, .batch = 1 }, 0 },
  { "gemm-bias-batch", op_gemm, { .m = 5, .n = 3, .k = 4, .batch = 3 }, BIAS },
  { "gemm-trans-a", op_gemm, { .m = 5, .n = 3, .k = 4, .batch = 2 }, TRANS_A },
  { "gemm-trans-b", op_gemm, { .m = 5, .n = 3, .k = 4, .batch = 2 }, TRANS_B | BIAS },
  { "gemm-trans-both", op_gemm, { .m = 5, .n = 3, .k = 4, .batch = 1 }, TRANS_A | TRANS_B },
  { "scores", op_scores, { .m = 5, .n = 7, .k = 3, .batch = 2, .heads = 6, .kv_heads = 2 }, 0 },
  { "softmax", op_softmax, { .m = 5, .n = 7, .batch = 2, .heads = 3 }, 0 },
  { "softmax-causal", op_softmax, { .m = 5, .n = 7, .batch = 2, .heads = 3 }, CAUSAL },
  { "softmax-window-sink", op_softmax, { .m = 5, .n = 7, .batch = 2, .heads = 3, .window = 4 }, CAUSAL | SINK },
  { "context", op_context, { .m = 5, .n = 7, .k = 3, .batch = 2, .heads = 6, .kv_heads = 3 }, 0 },
  { "attention", op_attention, { .m = 5, .n = 7, .k = 3, .batch = 2, .heads = 3, .kv_heads = 3 }, 0 },
  { "attention-causal-gqa", op_attention, { .m = 5, .n = 7, .k = 4, .batch = 2, .heads = 6, .kv_heads = 2 }, CAUSAL },
  { "attention-causal-mqa", op_attention, { .m = 5, .n = 6, .k = 1, .batch = 1, .heads = 3, .kv_heads = 1 }, CAUSAL },
  { "attention-window", op_attention, { .m = 5, .n = 7, .k = 4, .batch = 2, .heads = 6, .kv_heads = 2, .window = 4 }, CAUSAL },
  { "attention-value-size", op_attention, { .m = 5, .n = 7, .k = 3, .batch = 2, .heads = 6, .kv_heads = 2, .v = 5 }, CAUSAL },
  { "attention-sink", op_attention, { .m = 5, .n = 7, .k = 3, .batch = 2, .heads = 6, .kv_heads = 2, .v = 2, .window = 4 }, CAUSAL | SINK },
  { "linear", op_linear, { .m = 5, .n = 3, .k = 4, .batch = 2, .heads = 3 }, 0 },
  { "linear-one-token", op_linear, { .m = 1, .n = 2, .k = 1, .batch = 1, .heads = 1 }, 0 },
  { "dropout", op_dropout, { .m = 5, .n = 7 }, 0 },
  { "rms", op_norm, { .m = 5, .n = 7 }, 0 },
  { "rms-gain", op_norm, { .m = 5, .n = 7 }, GAIN },
  { "rms-gain-residual", op_norm, { .m = 5, .n = 7 }, GAIN | RESIDUAL },
  { "rms-gain-bias", op_norm, { .m = 5, .n = 7 }, GAIN | BIAS },
  { "layernorm", op_norm, { .m = 5, .n = 7 }, LAYERNORM },
  { "layernorm-gain-bias-residual", op_norm, { .m = 5, .n = 7 }, LAYERNORM | GAIN | BIAS | RESIDUAL },
  { "rope", op_rope, { .m = 5, .k = 6, .heads = 3, .kv_heads = 1 }, 0 },
  { "rope-no-rotate", op_rope, { .m = 5, .k = 3, .heads = 3, .kv_heads = 1 }, NO_ROTATE },
  { "rope-norms", op_rope, { .m = 5, .k = 6, .heads = 3, .kv_heads = 1 }, GAIN },
  { "rope-norms-partial-gate", op_rope, { .m = 5, .k = 6, .heads = 4, .kv_heads = 2 }, GAIN | PARTIAL },
  { "rope-partial-gate", op_rope, { .m = 5, .k = 6, .heads = 4, .kv_heads = 2 }, PARTIAL },
  { "latent", op_latent, { .m = 5, .n = 2, .k = 5, .heads = 3, .v = 4 }, 0 },
  { "split", op_split, { .m = 5, .n = 2, .k = 5 }, 0 },
  { "feature", op_feature, { .m = 5, .k = 3, .heads = 3 }, 0 },
  { "pack", op_pack, { .m = 5, .n = 3, .k = 2, .heads = 3 }, 0 },
  { "pack-repeated", op_pack, { .m = 5, .n = 6, .k = 3, .heads = 2 }, 0 },
  { "glu", op_glu, { .m = 5, .n = 3 }, 0 },
  { "glu-linear", op_glu, { .m = 5, .n = 3 }, LINEAR_GATE },
  { "glu-gelu", op_glu, { .m = 5, .n = 3 }, GELU_GATE },
  { "gelu", op_gelu, { .n = 17 }, 0 },
  { "relu", op_relu, { .n = 17 }, 0 },
  { "relu-squared", op_relu, { .n = 17 }, SQUARE },
  { "gate", op_gate, { .m = 5, .n = 3 }, 0 },
  { "route", op_route, { .m = 5, .k = 2, .heads = 4, .kv_heads = 5 }, 0 },
  { "route-drops", op_route, { .m = 5, .k = 3, .heads = 4, .kv_heads = 2 }, 0 },
  { "route-one", op_route, { .m = 5, .k = 1, .heads = 3, .kv_heads = 5 }, 0 },
  { "route-balanced", op_route, { .m = 5, .k = 2, .heads = 7, .kv_heads = 3 }, BALANCED },
  { "dispatch", op_dispatch, { .m = 5, .n = 3, .k = 2, .heads = 4, .kv_heads = 5 }, 0 },
  { "dispatch-drops", op_dispatch, { .m = 5, .n = 3, .k = 3, .heads = 4, .kv_heads = 2 }, 0 },
  { "combine", op_combine, { .m = 5, .n = 3, .k = 2, .heads = 4, .kv_heads = 5 }, 0 },
  { "combine-drops", op_combine, { .m = 5, .n = 3, .k = 3, .heads = 4, .kv_heads = 2 }, 0 },
  { "row-gate", op_row_gate, { .m = 5, .n = 3 }, 0 },
  { "embed", op_embed, { .m = 5, .n = 7, .k = 3 }, 0 },
  { "position", op_position, { .m = 5, .n = 10, .k = 3 }, 0 },
  { "loss", op_loss, { .m = 5, .n = 7 }, 0 },
};
/* clang-format on */

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);

  ADD_TABLE ("gradient", gradient_cases, test_gradient);

  return g_test_run ();
}
