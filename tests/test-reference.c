/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The references of kernels/ on small examples worked out by hand, and what their header promises beside values: in
 * place, NaN in and NaN out, the bits of dropout. Gradients: test-reference-gradient.c; parts: test-reference-split.c.
 */
#include "tests/reference-data.h"

static void
test_comparison (void)
{
  g_assert_true (is_close (1 + 1e-13, 1, TOLERANCE));
  g_assert_true (is_close (-INFINITY, -INFINITY, TOLERANCE));
  g_assert_false (is_close (1 + 1e-11, 1, TOLERANCE));
  g_assert_false (is_close (NAN, 1, TOLERANCE));
  g_assert_false (is_close (1, NAN, TOLERANCE));
  g_assert_false (is_close (NAN, NAN, TOLERANCE));
  g_assert_false (is_close (INFINITY, 1, TOLERANCE));
  g_assert_false (is_close (-INFINITY, INFINITY, TOLERANCE));
}

/* --- values by hand ----------------------------------------------------------------------------------------------- */

/* [1 2; 3 4] [5 6; 7 8] = [5+14 6+16; 15+28 18+32] = [19 22; 43 50]; the bias (10, 20) is added to each row; to
 * accumulate adds all of it again. */
static void
test_gemm (void)
{
  const double a[] = { 1, 2, 3, 4 }, a_t[] = { 1, 3, 2, 4 }, b[] = { 5, 6, 7, 8 }, b_t[] = { 5, 7, 6, 8 };
  const double bias[] = { 10, 20 };
  double c[] = { NAN, NAN, NAN, NAN };

  for (gboolean ta = FALSE; ta <= TRUE; ta++)
    for (gboolean tb = FALSE; tb <= TRUE; tb++) {
      sp_ref_gemm (ta, tb, FALSE, 1, 2, 2, 2, ta ? a_t : a, 0, tb ? b_t : b, 0, bias, 0, c, 0);
      assert_values (c, 29, 42, 53, 70);
    }
  sp_ref_gemm (FALSE, FALSE, TRUE, 1, 2, 2, 2, a, 0, b, 0, bias, 0, c, 0);
  assert_values (c, 58, 84, 106, 140);

  /* Strides: rows 0 and 1 of a as two 1x2 matrices, one shared b, c with a gap. */
  double gap[] = { NAN, NAN, -1, NAN, NAN };
  sp_ref_gemm (FALSE, FALSE, FALSE, 2, 1, 2, 2, a, 2, b, 0, NULL, 0, gap, 3);
  assert_values (gap, 19, 22, -1, 43, 50);

  sp_ref_gemm (FALSE, FALSE, FALSE, 1, 2, 2, 0, a, 0, b, 0, bias, 0, c, 0);
  assert_values (c, 10, 20, 10, 20);
}

static void
attend_and_merge (SpRefShape shape, const double *q, const double *keys, const double *values, gboolean causal,
                  const gint64 *qpos, const gint64 *kpos, double *o, double *lse)
{
  gint64 rows = shape.m * shape.batch * shape.heads;
  g_autofree double *block_o = g_new (double, rows *shape.k);
  g_autofree double *block_lse = g_new (double, rows);

  sp_ref_attention (shape, q, keys, values, causal, qpos, kpos, block_o, block_lse);
  sp_ref_attention_merge (rows, shape.k, block_o, block_lse, o, lse);
}

/* k = 4, so scale 1/2. q = (2,0,0,0): scores of keys (ln 2, 0, 0, 0) and (ln 4, ..) are ln 2 and ln 4, weights 1/3 and
 * 2/3, lse = ln 6. */
static void
test_attention (void)
{
  const SpRefShape shape = { .m = 1, .n = 2, .k = 4, .batch = 1, .heads = 1, .kv_heads = 1 };
  const double q[] = { 2, 0, 0, 0 }, keys[] = { log (2), 0, 5, 0, log (4), 0, 0, 5 };
  const double values[] = { 3, 0, 0, 6, 0, 3, 0, 6 };
  const gint64 qpos[] = { 4 }, kpos[] = { 4, 5 }, late[] = { 6, 7 };
  double s[] = { NAN, NAN }, o[] = { NAN, NAN, NAN, NAN }, lse[] = { NAN };

  sp_ref_scores (shape, q, keys, s);
  assert_values (s, log (2), log (4));
  sp_ref_softmax (1, 1, 2, s, FALSE, 0, NULL, NULL, 1, NULL, s);
  assert_values (s, 1 / 3.0, 2 / 3.0);
  sp_ref_context (shape, s, values, o);
  assert_values (o, 1, 2, 0, 6);
  sp_ref_attention (shape, q, keys, values, FALSE, NULL, NULL, o, lse);
  assert_values (o, 1, 2, 0, 6);
  assert_values (lse, log (6));

  /* Key 5 is in the future of query 4: all weight on the first. A later block adds nothing. */
  sp_ref_attention (shape, q, keys, values, TRUE, qpos, kpos, o, lse);
  attend_and_merge (shape, q, keys, values, TRUE, qpos, late, o, lse);
  assert_values (o, 3, 0, 0, 6);
  assert_values (lse, log (2));

  /* Nothing visible at all; then the first visible block is taken as it is. */
  sp_ref_softmax (1, 1, 2, keys, TRUE, 0, qpos, late, 1, NULL, s);
  assert_values (s, 0, 0);
  sp_ref_attention (shape, q, keys, values, TRUE, qpos, late, o, lse);
  assert_values (o, 0, 0, 0, 0);
  assert_values (lse, -INFINITY);
  attend_and_merge (shape, q, keys, values, TRUE, qpos, kpos, o, lse);
  assert_values (o, 3, 0, 0, 6);
  assert_values (lse, log (2));
}

/* k = 1, scores are q times keys: weights 1, 2, 3 of positions 3, 4, 5 seen from 5. A window of 2 hides the first: shares
 * 2/5 and 3/5. A sink of weight 5 halves them; values have 2 features where keys have 1. */
static void
test_attention_window_and_sink (void)
{
  const SpRefShape shape = { .m = 1, .n = 3, .k = 1, .v = 2, .window = 2, .batch = 1, .heads = 1, .kv_heads = 1 };
  const double q[] = { 1 }, keys[] = { 0, log (2), log (3) }, values[] = { 100, 100, 5, 0, 0, 10 }, sinks[] = { log (5) };
  const gint64 qpos[] = { 5 }, kpos[] = { 3, 4, 5 };
  double o[] = { NAN, NAN }, lse[] = { NAN }, p[3], dsinks[] = { 1 };

  sp_ref_attention (shape, q, keys, values, TRUE, qpos, kpos, o, lse);
  assert_values (o, 2, 6);
  assert_values (lse, log (5));
  sp_ref_attention_sink (1, 2, 1, sinks, o, lse);
  assert_values (o, 1, 3);
  assert_values (lse, log (10));
  sp_ref_softmax (1, 1, 3, keys, TRUE, 2, qpos, kpos, 1, sinks, p);
  assert_values (p, 0, 0.2, 0.3);

  /* delta = 4: the sink's share of 1/2 times -4, on the 1 that is there. From p: delta = 0.2 * 5 + 0.3 * 10 = 4. */
  sp_ref_attention_sink_bwd (1, 1, lse, (const double[]){ 4 }, sinks, dsinks);
  assert_values (dsinks, -1);
  sp_ref_softmax_bwd (1, 1, 3, p, (const double[]){ 7, 5, 10 }, 1, dsinks, p);
  assert_values (dsinks, -3);
}

/* Two rows of k = 2, two blocks: lse ln 1 and ln 3 give shares 1/4 and 3/4 and lse ln 4; equal ones halves. */
static void
test_attention_merge (void)
{
  const double block_o[] = { 4, 8, 1, 3 }, block_lse[] = { log (3), 7 };
  double o[] = { 0, 4, 5, -3 }, lse[] = { 0, 7 };

  sp_ref_attention_merge (2, 2, block_o, block_lse, o, lse);
  assert_values (o, 3, 7, 3, 0);
  assert_values (lse, log (4), 7 + log (2));
}

/* exp of +-5000 overflows: the maximum must come off first, in the merge too. */
static void
test_attention_large (void)
{
  const double scores[] = { 5000, 5000, -5000, -5000 };
  double p[4];

  sp_ref_softmax (1, 2, 2, scores, FALSE, 0, NULL, NULL, 1, NULL, p);
  assert_values (p, 0.5, 0.5, 0.5, 0.5);

  const SpRefShape shape = { .m = 1, .n = 1, .k = 1, .batch = 1, .heads = 1, .kv_heads = 1 };
  const double q[] = { 5000 }, low[] = { -1 }, high[] = { 1 }, value1[] = { 2 }, value2[] = { 4 };
  double o[1], lse[1];

  sp_ref_attention (shape, q, low, value1, FALSE, NULL, NULL, o, lse);
  assert_values (lse, -5000);
  attend_and_merge (shape, q, high, value2, FALSE, NULL, NULL, o, lse);
  assert_values (o, 4);
  assert_values (lse, 5000);
  attend_and_merge (shape, q, high, value1, FALSE, NULL, NULL, o, lse);
  assert_values (o, 3);
  assert_values (lse, 5000 + log (2));
}

/* lambda = 1/2, k = n = 1. S_0 = 3 * 5 = 15, S_1 = 15/2 + 11 * 13 = 150.5 = M; o_0 = 2 S_0 = 30, o_1 = 7 S_1 = 1053.5.
 * A state 8 from before adds q_0 * 8/2 = 8 and q_1 * 8/4 = 14, and leaves 150.5 + 8/4. */
static void
test_linear (void)
{
  const SpRefShape shape = { .m = 2, .n = 1, .k = 1, .batch = 1, .heads = 1, .kv_heads = 1 };
  const double slopes[] = { log (2) }, q[] = { 2, 7 }, keys[] = { 3, 11 }, values[] = { 5, 13 }, before[] = { 8 };
  const double d_o[] = { 1, 1 };
  double o[] = { NAN, NAN }, state[] = { NAN }, after[] = { NAN }, dq[2], dkeys[2], dvalues[2], dstate[] = { NAN };

  sp_ref_linear_local (shape, slopes, q, keys, values, o, state);
  assert_values (o, 30, 1053.5);
  assert_values (state, 150.5);
  sp_ref_linear_inter (shape, slopes, q, before, o);
  assert_values (o, 38, 1067.5);
  sp_ref_state_update (shape, slopes, before, state, after);
  assert_values (after, 152.5);
  sp_ref_state_update (shape, slopes, NULL, state, after);
  assert_values (after, 150.5);

  /* dM = q_0/2 + q_1/4 */
  sp_ref_linear_local_bwd (shape, slopes, q, keys, values, d_o, dq, dkeys, dvalues, dstate);
  assert_values (dq, 15, 150.5);
  assert_values (dkeys, 5 * (2 + 3.5), 13 * 7);
  assert_values (dvalues, 3 * (2 + 3.5), 11 * 7);
  assert_values (dstate, 2.75);

  /* Three places, lambda^2 = 1/4: before place 2 come 16/4 + 20; after place 0 come 20 + 24/4. */
  const double states[] = { 16, 20, 24 };
  sp_ref_state_prefix (shape, slopes, 3, 2, FALSE, states, after);
  assert_values (after, 24);
  sp_ref_state_prefix (shape, slopes, 3, 0, FALSE, states, after);
  assert_values (after, 0);
  sp_ref_state_prefix (shape, slopes, 3, 0, TRUE, states, after);
  assert_values (after, 26);
  sp_ref_state_prefix (shape, slopes, 3, 2, TRUE, states, after);
  assert_values (after, 0);
}

/* 8 heads: 2^-1 .. 2^-8. 6 heads: the four of 4 heads (2^-2 2^-4 2^-6 2^-8), then numbers 0 and 2 of 8 heads. */
static void
test_slopes (void)
{
  double slopes[6];

  sp_ref_decay_slopes (0, 6, 8, 0, 3, slopes);
  for (int i = 0; i < 6; i++)
    g_assert_true (is_close (slopes[i], ldexp (1, -1 - i) * (1 + 1e-5), TOLERANCE));
  sp_ref_decay_slopes (2, 6, 8, 1, 3, slopes);
  for (int i = 0; i < 6; i++)
    g_assert_true (is_close (slopes[i], ldexp (1, -3 - i) * (0.5 + 1e-5), TOLERANCE));
  sp_ref_decay_slopes (0, 6, 6, 0, 1, slopes);
  const double powers[] = { 2, 4, 6, 8, 1, 3 };
  for (int i = 0; i < 6; i++)
    g_assert_true (is_close (slopes[i], exp2 (-powers[i]) * (1 + 1e-5), TOLERANCE));
  g_assert_true (is_close (sp_ref_decay_slope (0, 1, 2, 3), exp2 (-8) * 1e-5, 1e-15));
}

/* (3, 4): mean square 12.5; (1, 3): mean 2, variance 1. */
static void
test_norm (void)
{
  const double x[] = { 3, 4 }, centred[] = { 1, 3 }, gain[] = { 2, 10 }, bias[] = { 100, 200 };
  double y[2], stat[2];

  sp_ref_norm (FALSE, 1, 2, 2, x, NULL, NULL, NULL, 12.5, y, stat);
  assert_values (y, 0.6, 0.8);
  g_assert_true (is_close (stat[0], 0.2, TOLERANCE));
  sp_ref_norm (FALSE, 1, 2, 2, x, gain, NULL, NULL, 12.5, y, stat);
  assert_values (y, 1.2, 8);
  sp_ref_norm_stat (1, 2, x, y);
  g_assert_true (is_close (y[0], 25, TOLERANCE));
  sp_ref_norm_stat_bwd (1, 2, centred, x, gain, y);
  g_assert_true (is_close (y[0], 1 * 2 * 3 + 3 * 10 * 4, TOLERANCE));
  sp_ref_norm_stat_bwd (1, 2, centred, x, NULL, y);
  g_assert_true (is_close (y[0], 1 * 3 + 3 * 4, TOLERANCE));
  sp_ref_norm (TRUE, 1, 2, 2, centred, gain, bias, NULL, 3, y, stat);
  assert_values (y, 99, 205);
  assert_values (stat, 2, 0.5);
}

/* k = 4, theta = 16: plane (0,2) turns by pos, plane (1,3) by pos/4. One q head of ones on 0 and 1, a key head of ones
 * on 2 and 3, position 2. */
static void
test_rope (void)
{
  const SpRefShape shape = { .m = 1, .k = 4, .heads = 1, .kv_heads = 1 };
  const double qkv[] = { 1, 1, 0, 0, 0, 0, 1, 1, 5, 6, 7, 8 };
  const gint64 pos[] = { 2 };
  double q[4], keys[4], values[4];

  sp_ref_rope (shape, &(const SpRefHeads){ .rotated = 4, .theta = 16 }, qkv, pos, q, keys, values, NULL);
  assert_values (q, cos (2), cos (0.5), sin (2), sin (0.5));
  assert_values (keys, -sin (2), -sin (0.5), cos (2), cos (0.5));
  assert_values (values, 5, 6, 7, 8);
  sp_ref_rope (shape, &(const SpRefHeads){ 0 }, qkv, NULL, q, keys, values, NULL);
  assert_values (q, 1, 1, 0, 0);
  assert_values (keys, 0, 0, 1, 1);

  /* Of 2 features the one plane (0,1) turns by pos: (1, 1) to (cos - sin, cos + sin). Mean squares are 1/2, so with
   * epsilon 1/2 the norms are 1 and the gains 3 and 5 all that they do. A gate at the row's end is passed by. */
  const double gated[] = { 1, 1, 0, 0, 0, 0, 1, 1, 5, 6, 7, 8, 9, 9 };
  const double q_gain[] = { 3, 3, 3, 3 }, key_gain[] = { 5, 5, 5, 5 };
  const SpRefHeads how = { .rotated = 2, .theta = 16, .gate = 2, .epsilon = 0.5, .q_gain = q_gain, .key_gain = key_gain };
  double stat[2];

  sp_ref_rope (shape, &how, gated, pos, q, keys, values, stat);
  assert_values (q, 3 * (cos (2) - sin (2)), 3 * (cos (2) + sin (2)), 0, 0);
  assert_values (keys, 0, 0, 5, 5);
  assert_values (values, 5, 6, 7, 8);
  assert_values (stat, 1, 1);
}

/* One head, keys of 1 + 2 features, values of 2; position 2 turns the plane of the last two features by 2. */
static void
test_latent (void)
{
  const SpRefShape shape = { .m = 1, .n = 2, .k = 3, .heads = 1, .v = 2 };
  const double q_up[] = { 7, 1, 0 }, kv_up[] = { 3, 5, 6 }, shared[] = { 0, 1 };
  const gint64 pos[] = { 2 };
  double q[3], keys[3], values[2];

  sp_ref_latent (shape, q_up, kv_up, shared, pos, 16, q, keys, values);
  assert_values (q, 7, cos (2), sin (2));
  assert_values (keys, 3, -sin (2), cos (2));
  assert_values (values, 5, 6);

  double x[6];
  sp_ref_join (2, 1, 2, (const double[]){ 1, 4 }, (const double[]){ 2, 3, 5, 6 }, x);
  assert_values (x, 1, 2, 3, 4, 5, 6);
}

/* silu (ln 3) = 3/4 ln 3; sigmoid (ln 3) = 3/4; gelu (1) = (1 + tanh (0.797884.. * 1.044715)) / 2. */
static void
test_elementwise (void)
{
  const double g = log (3), gu[] = { g, 2 }, qkvu[] = { g, g, 5, g }, o[] = { 8 }, one[] = { 1 };
  double out[] = { NAN }, q[1], keys[1], values[1];

  sp_ref_glu (FALSE, 1, 1, gu, out, NULL);
  assert_values (out, 1.5 * g);
  sp_ref_glu (TRUE, 1, 1, gu, out, NULL);
  assert_values (out, 2 * g);
  sp_ref_gate (FALSE, 1, 1, 4, o, qkvu, out);
  assert_values (out, 6);
  sp_ref_feature (1, 1, qkvu, q, keys, values);
  assert_values (q, 0.75 * g);
  assert_values (keys, 0.75 * g);
  assert_values (values, 5);
  sp_ref_gelu (1, one, out);
  g_assert_true (is_close (out[0], 0.841191990608276, 1e-12));

  double x[] = { 1, 2, 3, 4 }, sum[] = { 10, 20 };
  sp_ref_column_sum (2, 2, x, sum);
  assert_values (sum, 14, 26);
  sp_ref_add (2, x, x + 2, sum);
  assert_values (sum, 4, 6);
  sp_ref_copy (2, x, sum);
  assert_values (sum, 1, 2);
  sp_ref_zero (2, sum);
  assert_values (sum, 0, 0);
}

/* Two equal logits: loss ln 2, softmax 1/2. The second row, logits (0, ln 3), label 1: loss -ln 3/4. Weight 1/2 each.
 * The third is padding. */
static void
test_loss (void)
{
  const double logits[] = { 7, 7, 0, log (3), 2, 1 }, weights[] = { 0.5, 0.5, 0 };
  const gint64 labels[] = { 10, 11, -1 };
  double max[3], sums[6], loss = NAN, d[6];

  sp_ref_loss_max (3, 2, logits, max);
  assert_values (max, 7, log (3), 2);
  sp_ref_loss_sum (3, 2, logits, max, labels, 10, sums);
  assert_values (sums, 2, 7, 4 / 3.0, log (3), 1 + exp (-1), 0);
  sp_ref_loss (3, 2, logits, max, sums, labels, 10, weights, &loss, d);
  g_assert_true (is_close (loss, 0.5 * (log (2) + log (4 / 3.0)), TOLERANCE));
  assert_values (d, -0.25, 0.25, 0.125, -0.125, 0, 0);
}

/* Betas 1/2, rate 0.3, epsilon 1. Step 1: the corrections undo the betas, so the move is rate * g / (|g| + epsilon):
 * 2/3 of the rate for gradient 2. Step 2, gradient -1: moment 1 is 1/2 * 1 - 1/2 * 1 = 0, so no move. */
static void
test_adam (void)
{
  double master[] = { 10 }, moment1[] = { 0 }, moment2[] = { 0 }, parameter[] = { NAN };

  sp_ref_adam (1, (const double[]){ 2 }, 1, 0.3, 0.5, 0.5, 1, master, moment1, moment2, parameter);
  assert_values (moment1, 1);
  assert_values (moment2, 2);
  assert_values (master, 9.8);
  assert_values (parameter, 9.8);
  sp_ref_adam (1, (const double[]){ -1 }, 2, 0.3, 0.5, 0.5, 1, master, moment1, moment2, parameter);
  assert_values (moment1, 0);
  assert_values (moment2, 1.5);
  assert_values (parameter, 9.8);
  /* Step 3, gradient 2: m = 1, v = 2.75; corrections 7/8: rate (8/7) / (sqrt (22/7) + 1). */
  sp_ref_adam (1, (const double[]){ 2 }, 3, 0.3, 0.5, 0.5, 1, master, moment1, moment2, parameter);
  assert_values (parameter, 9.8 - 0.3 * 8 / 7 / (sqrt (22.0 / 7) + 1));
}

static double
newton_schulz (double s)
{
  for (guint i = 0; i < 5; i++)
    s = 3.4445 * s - 4.7750 * pow (s, 3) + 2.0315 * pow (s, 5);
  return s;
}

/* Rows 3 e1 and 4 e2 of norm 5: singular values 0.6 and 0.8, each of which goes through the polynomial by itself; the
 * transpose the same way. A rotation of the columns goes through. */
static void
test_orthogonalize (void)
{
  double wide[] = { 3, 0, 0, 0, 4, 0 }, tall[] = { 3, 0, 0, 4, 0, 0 }, turned[] = { 3 * 0.6, 3 * 0.8, 0, -4 * 0.8, 4 * 0.6, 0 };
  double a = newton_schulz (0.6), b = newton_schulz (0.8);

  sp_ref_orthogonalize (2, 3, wide);
  sp_ref_orthogonalize (3, 2, tall);
  sp_ref_orthogonalize (2, 3, turned);
  const double all[] = { a, 0, 0, 0, b, 0 }, turned_all[] = { a * 0.6, a * 0.8, 0, -b * 0.8, b * 0.6, 0 };
  const double tall_all[] = { a, 0, 0, b, 0, 0 };
  g_assert_cmpfloat (a, >, 0.65);
  g_assert_cmpfloat (a, <, 1.25);
  for (guint i = 0; i < 6; i++) { /* the norm has 1e-7 added */
    g_assert_cmpfloat (fabs (wide[i] - all[i]), <, 1e-6);
    g_assert_cmpfloat (fabs (tall[i] - tall_all[i]), <, 1e-6);
    g_assert_cmpfloat (fabs (turned[i] - turned_all[i]), <, 1e-6);
  }
}

/* beta 1/2 on M = 4, g = 2: M = 4, update 2 + 2 = 4; then with rate 1/4 from 10: 9. */
static void
test_momentum (void)
{
  double moment[] = { 4 }, update[] = { NAN }, master[] = { 10 }, parameter[] = { NAN };

  sp_ref_momentum (1, (const double[]){ 2 }, 0.5, moment, update);
  assert_values (moment, 4);
  assert_values (update, 4);
  sp_ref_descend (1, update, 0.25, master, parameter);
  assert_values (master, 9);
  assert_values (parameter, 9);
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

/* The hash is a format: a CUDA kernel must draw the same bits. These come from another implementation of the header's
 * formula, in arbitrary integers, whose mix gives splitmix64's first output for seed 0, 0xe220a8397b1dcdaf. */
static void
test_dropout_bits (void)
{
  const gint64 rows[] = { 0, 3, -4 }, cols[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
  const char *kept = "001101111010101001111111100101010110";
  double y[36], mask[36];

  g_autofree double *x = constant_array (36, 3);
  sp_ref_dropout (3, 12, x, 99, rows, cols, 0.5, y, mask);
  for (int i = 0; i < 36; i++) {
    g_assert_true (mask[i] == kept[i] - '0');
    g_assert_true (y[i] == 6 * mask[i]);
  }
}

/* Share of places where two masks agree. */
static double
agreement (gint64 n, const double *a, const double *b)
{
  gint64 same = 0;
  for (gint64 i = 0; i < n; i++)
    same += a[i] == b[i];
  return (double) same / n;
}

/* n = 90000 draws with p = 0.3 keep 0.7 +- 0.0015; independent masks agree in 0.7^2 + 0.3^2 = 0.58 +- 0.0016. Five
 * deviations are allowed; the seed is fixed, so a pass stays a pass. */
static void
test_dropout_statistics (void)
{
  enum { N = 300 };
  const double p = 0.3;
  gint64 ids[N + 1];
  g_autofree double *x = constant_array (N * N, 1);
  g_autofree double *y = poison (N * N);
  g_autofree double *mask = poison (N * N);
  g_autofree double *other = poison (N * N);
  double kept = 0;

  for (int i = 0; i <= N; i++)
    ids[i] = i;
  sp_ref_dropout (N, N, x, 1, ids, ids, p, y, mask);
  for (int i = 0; i < N * N; i++)
    kept += mask[i] / (N * N);
  g_assert_cmpfloat_with_epsilon (kept, 1 - p, 0.0075);

  /* Next seed, next row, next column, next seed and row before, transposed. */
  sp_ref_dropout (N, N, x, 2, ids, ids, p, y, other);
  g_assert_cmpfloat_with_epsilon (agreement (N * N, mask, other), 0.58, 0.008);
  sp_ref_dropout (N, N, x, 1, ids + 1, ids, p, y, other);
  g_assert_cmpfloat_with_epsilon (agreement (N * N, mask, other), 0.58, 0.008);
  sp_ref_dropout (N, N, x, 1, ids, ids + 1, p, y, other);
  g_assert_cmpfloat_with_epsilon (agreement (N * N, mask, other), 0.58, 0.008);
  sp_ref_dropout (N - 1, N, x, 2, ids, ids, p, y, other);
  g_assert_cmpfloat_with_epsilon (agreement ((N - 1) * N, mask + N, other), 0.58, 0.008);
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++)
      other[i * N + j] = mask[j * N + i];
  /* Half the pairs are free and the diagonal agrees: 0.58 (1 - 1/300) + 1/300, deviation times sqrt 2. */
  g_assert_cmpfloat_with_epsilon (agreement (N * N, mask, other), 0.5814, 0.012);
}

/* --- in place ----------------------------------------------------------------------------------------------------- */

/* `call` computes `out` from a; the same call with a copy of a as the output gives the same. */
#define CHECK_IN_PLACE(count, in, call)                                                                                \
  do {                                                                                                                 \
    g_autofree double *apart_ = poison (count);                                                                        \
    g_autofree double *same_ = g_new (double, count);                                                                  \
    const double *a = in;                                                                                              \
    double *out = apart_;                                                                                              \
    call;                                                                                                              \
    sp_ref_copy (count, in, same_);                                                                                    \
    a = out = same_;                                                                                                   \
    call;                                                                                                              \
    assert_close (#call, count, same_, apart_, 0);                                                                     \
  } while (0)

static void
test_in_place (void)
{
  enum { M = 5, N = 7 };
  const SpRefShape state = { .m = 3, .n = 7, .k = 5, .batch = 1, .heads = 1 };
  g_autoptr (GRand) rand = g_rand_new_with_seed (13);
  g_autofree double *x = random_array (rand, M * N);
  g_autofree double *y = random_array (rand, M * N);
  g_autofree double *z = random_array (rand, M * N);
  g_autofree double *qkvu = random_array (rand, M * 4 * N);
  double stat[2 * M], other[M * N], max[M], sums[2 * M];

  CHECK_IN_PLACE (M * N, x, sp_ref_softmax (1, M, N, a, TRUE, 0, query_positions, key_positions, 1, NULL, out));
  CHECK_IN_PLACE (M * N, x, sp_ref_softmax_bwd (1, M, N, y, a, 1, NULL, out));
  CHECK_IN_PLACE (M * N, x, sp_ref_dropout (M, N, a, 1, row_ids, col_ids, 0.5, out, other));
  CHECK_IN_PLACE (M * N, x, sp_ref_dropout_bwd (M, N, a, other, 0.5, out));
  CHECK_IN_PLACE (M * N, x, sp_ref_gelu (M * N, a, out));
  CHECK_IN_PLACE (M * N, x, sp_ref_gelu_bwd (M * N, a, y, out));
  CHECK_IN_PLACE (M * N, x, sp_ref_gate (FALSE, M, N, 4 * N, a, qkvu, out));
  CHECK_IN_PLACE (M * N, x, sp_ref_gate_bwd (FALSE, M, N, 4 * N, a, y, qkvu, out, other));
  CHECK_IN_PLACE (M * N, x, sp_ref_add (M * N, a, y, out));
  CHECK_IN_PLACE (M * N, x, sp_ref_add (M * N, y, a, out));
  CHECK_IN_PLACE (M * N, x, sp_ref_position (M, 2, N, (const gint64[]){ 0, 1, 1, 0, 1 }, a, y, out));
  CHECK_IN_PLACE (M * N, x, sp_ref_state_update (state, test_slopes_of_heads, a, y, out));
  CHECK_IN_PLACE (M * N, x, sp_ref_state_update (state, test_slopes_of_heads, y, a, out));
  for (gboolean layernorm = FALSE; layernorm <= TRUE; layernorm++) {
    CHECK_IN_PLACE (M * N, x, sp_ref_norm (layernorm, M, N, N, a, y, NULL, NULL, 1e-3, out, stat));
    CHECK_IN_PLACE (M * N, x, sp_ref_norm_bwd (layernorm, M, N, N, a, y, stat, z, NULL, NULL, out, NULL, NULL));
    CHECK_IN_PLACE (M * N, x, sp_ref_norm_bwd (layernorm, M, N, N, y, z, stat, NULL, a, NULL, out, NULL, NULL));
  }

  const double weights[] = { 1, 2, 3, 0, 5 };
  sp_ref_loss_max (M, N, x, max);
  sp_ref_loss_sum (M, N, x, max, token_ids, FIRST_ID, sums);
  CHECK_IN_PLACE (M * N, x, sp_ref_loss (M, N, a, max, sums, token_ids, FIRST_ID, weights, NULL, out));
}

/* A NaN among the inputs is not lost on the way, even where a maximum is taken. */
static void
test_nan (void)
{
  const SpRefShape shape = { .m = 1, .n = 2, .k = 1, .batch = 1, .heads = 1, .kv_heads = 1 };
  const double one[] = { 1, 1 }, bad[] = { NAN, 1 };
  double out[2], max[1], sums[2], lse[1];

  sp_ref_softmax (1, 1, 2, bad, FALSE, 0, NULL, NULL, 1, NULL, out);
  g_assert_true (isnan (out[0]) && isnan (out[1]));
  sp_ref_attention (shape, one, one, one, FALSE, NULL, NULL, out, lse);
  attend_and_merge (shape, one, bad, one, FALSE, NULL, NULL, out, lse);
  g_assert_true (isnan (out[0]) && isnan (lse[0]));
  sp_ref_loss_max (1, 2, bad, max);
  sp_ref_loss_sum (1, 2, bad, max, (const gint64[]){ 1 }, 0, sums);
  g_assert_true (isnan (sums[0]));
  sp_ref_gemm (FALSE, FALSE, FALSE, 1, 1, 1, 2, (const double[]){ 0, 0 }, 0, bad, 0, NULL, 0, out, 0);
  g_assert_true (isnan (out[0]));
}

/* Three tokens of two experts each, of three with room for one. Logits 1, 3, 3: experts 1 and 2, the tie to the lower
 * number, weights 1/2 each: slots 1 and 2. Logits 0, ln 3, 0: experts 1, which is full, and 0: dropped and slot 0, with
 * weights 0 and 1 / (3 + 1), as the others stay. The third finds no room. Balanced, positions 4, 0, 2 start at experts
 * 8, 0 and 4 mod 3. */
static void
test_route (void)
{
  const SpRefRoute route = { 3, 3, 2, 1 };
  const double logits[] = { 1, 3, 3, 0, log (3), 0, 5, 6, 7 };
  const gint64 positions[] = { 4, 0, 2 };
  double weights[6], slots[6], buffer[6], out[6], gated[2];

  g_assert_cmpint (sp_ref_route (&route, logits, NULL, weights, slots), ==, 3);
  assert_values (slots, 1, 2, -1, 0, -1, -1);
  assert_values (weights, 0.5, 0.5, 0, 0.25, 0, 0);
  sp_ref_dispatch (&route, 2, (const double[]){ 1, 2, 3, 4, 5, 6 }, slots, buffer);
  assert_values (buffer, 3, 4, 1, 2, 1, 2);
  sp_ref_combine (&route, 2, buffer, weights, slots, out);
  assert_values (out, 1, 2, 0.75, 1, 0, 0);
  g_assert_cmpint (sp_ref_route (&(const SpRefRoute){ 3, 3, 2, 2 }, logits, positions, weights, slots), ==, 0);
  assert_values (slots, 4, 0, 1, 2, 3, 5);
  sp_ref_row_gate (1, 2, (const double[]){ 4, 8 }, (const double[]){ log (3) }, gated);
  assert_values (gated, 3, 6);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);

  g_test_add_func ("/reference/comparison", test_comparison);
  g_test_add_func ("/reference/value/gemm", test_gemm);
  g_test_add_func ("/reference/value/attention", test_attention);
  g_test_add_func ("/reference/value/attention-merge", test_attention_merge);
  g_test_add_func ("/reference/value/attention-window-and-sink", test_attention_window_and_sink);
  g_test_add_func ("/reference/value/attention-large", test_attention_large);
  g_test_add_func ("/reference/value/linear", test_linear);
  g_test_add_func ("/reference/value/slopes", test_slopes);
  g_test_add_func ("/reference/value/norm", test_norm);
  g_test_add_func ("/reference/value/rope", test_rope);
  g_test_add_func ("/reference/value/latent", test_latent);
  g_test_add_func ("/reference/value/elementwise", test_elementwise);
  g_test_add_func ("/reference/value/loss", test_loss);
  g_test_add_func ("/reference/value/route", test_route);
  g_test_add_func ("/reference/value/adam", test_adam);
  g_test_add_func ("/reference/value/orthogonalize", test_orthogonalize);
  g_test_add_func ("/reference/value/momentum", test_momentum);
  g_test_add_func ("/reference/value/dropout-bits", test_dropout_bits);
  g_test_add_func ("/reference/value/dropout-statistics", test_dropout_statistics);
  g_test_add_func ("/reference/in-place", test_in_place);
  g_test_add_func ("/reference/nan", test_nan);

  return g_test_run ();
}
