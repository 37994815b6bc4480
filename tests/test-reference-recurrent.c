/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrences and what stands around them: known values, and gradients against central differences. Cut in parts:
 * tests/test-reference-recurrent-split.c.
 */
#include "tests/reference-recurrent.h"

/* --- recurrences -------------------------------------------------------------------------------------------------- */

/* All inputs -> o, state after. */
static void
op_recurrent (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;
  gint64 state_n = s.batch * s.heads * s.k * s.n;
  const double *beta = c->flags & BETA ? a->in[WEIGHT] : NULL, *state = c->flags & STATE ? a->in[STATE_IN] : NULL;
  g_autofree double *own = poison (state_n);

  if (stage == SIZES) {
    recurrent_sizes (s, c->flags, a->in_n);
    a->in_sum[LOG_RATES] = TRUE;
    a->out_n[0] = a->in_n[V];
    a->out_n[1] = state_n;
    return;
  }
  SpRefRecurrence r = recurrence_of (s, c->flags, a->in);
  g_autofree double *transfer = poison (sp_ref_transfer_elements (&r));
  g_autofree double *unused = poison (state_n);
  sp_ref_recurrent_own (&r, a->in[K], a->in[V], a->in[GATES], beta, stage == FORWARD ? own : unused, transfer);
  if (stage == FORWARD) {
    sp_ref_recurrent (&r, a->in[Q], a->in[K], a->in[V], a->in[GATES], beta, state, a->out[0]);
    sp_ref_transfer_update (&r, FALSE, transfer, state, own, a->out[1]);
    return;
  }
  sp_ref_recurrent_bwd (&r, a->in[Q], a->in[K], a->in[V], a->in[GATES], beta, a->d_out[0], state, a->d_out[1],
                        a->d_in[Q], a->d_in[K], a->d_in[V], a->d_in[GATES], beta ? a->d_in[WEIGHT] : NULL,
                        a->d_in[LOG_RATES]);
  if (state) {
    sp_ref_recurrent_own_bwd (&r, a->in[Q], a->in[K], a->in[GATES], beta, a->d_out[0], own);
    sp_ref_transfer_update (&r, TRUE, transfer, a->d_out[1], own, a->d_in[STATE_IN]);
  }
}

/* --- around them -------------------------------------------------------------------------------------------------- */

/* width in k; x, weight, bias, halo -> out. */
static void
op_conv (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;
  const SpRefConv conv = { .m = s.m, .batch = s.batch, .n = s.n, .width = s.k };
  gboolean bias = c->flags & BIAS, halo = c->flags & HALO;

  if (stage == SIZES) {
    a->in_n[0] = a->out_n[0] = s.m * s.batch * s.n;
    a->in_n[1] = s.n * s.k;
    a->in_n[2] = bias ? s.n : 0;
    a->in_n[3] = halo ? (s.k - 1) * s.batch * s.n : 0;
    a->in_sum[1] = a->in_sum[2] = TRUE;
  } else if (stage == FORWARD) {
    sp_ref_conv (&conv, a->in[0], a->in[1], bias ? a->in[2] : NULL, halo ? a->in[3] : NULL, a->out[0]);
  } else {
    sp_ref_conv_bwd (&conv, a->d_out[0], a->in[0], a->in[1], bias ? a->in[2] : NULL, halo ? a->in[3] : NULL, a->d_in[0],
                     a->d_in[1], bias ? a->d_in[2] : NULL, halo ? a->d_in[3] : NULL);
  }
}

static void
op_key_map (Stage stage, const Case *c, Arrays *a)
{
  SpRefShape s = c->shape;
  guint map = (c->flags & SILU ? SP_REF_MAP_SILU : 0) | (c->flags & L2 ? SP_REF_MAP_L2 : 0) |
              (c->flags & ROTATE ? SP_REF_MAP_ROTATE : 0) | (c->flags & SILU_VALUES ? SP_REF_MAP_SILU_VALUES : 0);
  const gint64 *pos = c->flags & ROTATE ? query_positions : NULL;

  if (stage == SIZES) {
    a->in_n[0] = s.m * (2 * s.kv_heads * s.k + s.heads * s.n);
    a->out_n[0] = a->out_n[1] = s.m * s.kv_heads * s.k;
    a->out_n[2] = s.m * s.heads * s.n;
  } else if (stage == FORWARD) {
    sp_ref_key_map (s, map, a->in[0], pos, 50, a->out[0], a->out[1], a->out[2]);
  } else {
    sp_ref_key_map_bwd (s, map, a->in[0], a->d_out[0], a->d_out[1], a->d_out[2], pos, 50, a->d_in[0]);
  }
}

static void
op_sigmoid (Stage stage, const Case *c, Arrays *a)
{
  gint64 n = c->shape.n;

  if (stage == SIZES)
    a->in_n[0] = a->out_n[0] = n;
  else if (stage == FORWARD)
    sp_ref_sigmoid_rows (n, a->in[0], a->out[0]);
  else
    sp_ref_sigmoid_rows_bwd (n, a->d_out[0], a->out[0], a->d_in[0]);
}

/* raw, bias, log rates -> gates, steps. */
static void
op_decay (Stage stage, const Case *c, Arrays *a)
{
  gint64 m = c->shape.m, n = c->shape.n, heads = c->shape.heads;
  gboolean bias = c->flags & BIAS, rates = c->flags & RATES, steps = c->flags & STEPS;
  gboolean gates = rates || !steps;

  if (stage == SIZES) {
    a->in_n[0] = m * n;
    a->in_n[1] = bias ? n : 0;
    a->in_n[2] = rates ? heads : 0;
    a->in_sum[1] = a->in_sum[2] = TRUE;
    a->out_n[0] = gates ? m * n : 0;
    a->out_n[1] = steps ? m * n : 0;
  } else if (stage == FORWARD) {
    sp_ref_decay (m, n, heads, a->in[0], bias ? a->in[1] : NULL, rates ? a->in[2] : NULL, gates ? a->out[0] : NULL,
                  steps ? a->out[1] : NULL);
  } else {
    sp_ref_decay_bwd (m, n, heads, a->in[0], bias ? a->in[1] : NULL, rates ? a->in[2] : NULL,
                      gates ? a->d_out[0] : NULL, steps ? a->d_out[1] : NULL, a->d_in[0], bias ? a->d_in[1] : NULL,
                      rates ? a->d_in[2] : NULL);
  }
}

static void
op_gate (Stage stage, const Case *c, Arrays *a)
{
  gint64 m = c->shape.m, n = c->shape.n;

  if (stage == SIZES)
    a->in_n[0] = a->in_n[1] = a->out_n[0] = m * n;
  else if (stage == FORWARD)
    sp_ref_gate (c->flags & SILU, m, n, n, a->in[0], a->in[1], a->out[0]);
  else
    sp_ref_gate_bwd (c->flags & SILU, m, n, n, a->d_out[0], a->in[0], a->in[1], a->d_in[0], a->d_in[1]);
}

/* o, values, scale -> out; out[1] is the values' other use. */
static void
op_skip (Stage stage, const Case *c, Arrays *a)
{
  gint64 m = c->shape.m, n = c->shape.n, heads = c->shape.heads;

  if (stage == SIZES) {
    a->in_n[0] = a->in_n[1] = a->out_n[0] = a->out_n[1] = m * heads * n;
    a->in_n[2] = heads;
    a->in_sum[2] = TRUE;
  } else if (stage == FORWARD) {
    sp_ref_skip (m, heads, n, a->in[0], a->in[1], a->in[2], a->out[0]);
    sp_ref_copy (m * heads * n, a->in[1], a->out[1]);
  } else {
    sp_ref_copy (m * heads * n, a->d_out[0], a->d_in[0]);
    sp_ref_skip_bwd (m, heads, n, a->d_out[0], a->in[1], a->in[2], a->d_out[1], a->d_in[1], a->d_in[2]);
  }
}

/* clang-format off */
static const Case gradient_cases[] = {
  { "none", op_recurrent, { .m = 5, .n = 3, .k = 4, .batch = 2, .heads = 2, .kv_heads = 2 }, STATE },
  { "head", op_recurrent, { .m = 5, .n = 3, .k = 4, .batch = 2, .heads = 2, .kv_heads = 2 }, HEAD },
  { "head-beta-shared", op_recurrent, { .m = 5, .n = 3, .k = 2, .batch = 2, .heads = 4, .kv_heads = 2 }, HEAD | BETA | STATE },
  { "feature", op_recurrent, { .m = 5, .n = 3, .k = 4, .batch = 2, .heads = 2, .kv_heads = 2 }, FEATURE | STATE },
  { "feature-beta-shared", op_recurrent, { .m = 4, .n = 2, .k = 3, .batch = 1, .heads = 3, .kv_heads = 1 }, FEATURE | BETA | STATE },
  { "scan", op_recurrent, { .m = 5, .n = 1, .k = 3, .batch = 2, .heads = 4, .kv_heads = 1 }, SCAN | STATE },
  { "scan-alone", op_recurrent, { .m = 3, .n = 2, .k = 3, .batch = 1, .heads = 2, .kv_heads = 2 }, SCAN },
  { "delta", op_recurrent, { .m = 5, .n = 3, .k = 4, .batch = 2, .heads = 2, .kv_heads = 2 }, DELTA | BETA | STATE },
  { "delta-head-shared", op_recurrent, { .m = 5, .n = 2, .k = 3, .batch = 2, .heads = 4, .kv_heads = 2 }, HEAD | DELTA | BETA | STATE },
  { "delta-feature", op_recurrent, { .m = 5, .n = 3, .k = 4, .batch = 2, .heads = 2, .kv_heads = 2 }, FEATURE | DELTA | BETA | STATE },
  { "delta-one-token", op_recurrent, { .m = 1, .n = 2, .k = 1, .batch = 1, .heads = 1, .kv_heads = 1 }, HEAD | DELTA | BETA | STATE },
  { "conv", op_conv, { .m = 5, .n = 3, .k = 4, .batch = 2 }, 0 },
  { "conv-bias-halo", op_conv, { .m = 5, .n = 3, .k = 4, .batch = 2 }, BIAS | HALO },
  { "conv-shorter-than-width", op_conv, { .m = 2, .n = 3, .k = 4, .batch = 1 }, HALO },
  { "conv-one-wide", op_conv, { .m = 3, .n = 2, .k = 1, .batch = 1 }, BIAS },
  { "keys", op_key_map, { .m = 3, .n = 2, .k = 4, .heads = 4, .kv_heads = 2 }, 0 },
  { "keys-silu-l2", op_key_map, { .m = 3, .n = 2, .k = 4, .heads = 4, .kv_heads = 2 }, SILU | L2 },
  { "keys-l2", op_key_map, { .m = 3, .n = 2, .k = 3, .heads = 2, .kv_heads = 2 }, L2 },
  { "keys-rotate", op_key_map, { .m = 5, .n = 2, .k = 6, .heads = 2, .kv_heads = 2 }, ROTATE },
  { "keys-all", op_key_map, { .m = 5, .n = 3, .k = 4, .heads = 2, .kv_heads = 1 }, SILU | L2 | ROTATE | SILU_VALUES },
  { "sigmoid", op_sigmoid, { .n = 9 }, 0 },
  { "decay", op_decay, { .m = 5, .n = 6, .heads = 2 }, 0 },
  { "decay-bias", op_decay, { .m = 5, .n = 6, .heads = 2 }, BIAS },
  { "decay-rates", op_decay, { .m = 5, .n = 6, .heads = 2 }, RATES | BIAS },
  { "decay-rates-steps", op_decay, { .m = 5, .n = 3, .heads = 3 }, RATES | BIAS | STEPS },
  { "decay-steps", op_decay, { .m = 5, .n = 3, .heads = 3 }, BIAS | STEPS },
  { "gate", op_gate, { .m = 5, .n = 3 }, 0 },
  { "gate-silu", op_gate, { .m = 5, .n = 3 }, SILU },
  { "skip", op_skip, { .m = 5, .n = 3, .heads = 2 }, 0 },
};
/* clang-format on */

/* --- known values ------------------------------------------------------------------------------------------------- */

/* One head, k = n = 1. Two tokens with a = 1/2, beta = 1 and 1/4, key 2, value 3, query 1:
 *     plain: S_1 = 6, S_2 = 3 + 6/4 = 4.5
 *     delta: S_1 = 6, D = 3, u = 3 - 6 = -3, S_2 = 3 - 2 * 3 / 4 = 1.5
 * so T = 1/4, and of the delta rule (1/2 (1 - 4)) (1/2 (1 - 1)) = 0. */
static void
test_values (void)
{
  const double q[] = { 1, 1 }, keys[] = { 2, 2 }, values[] = { 3, 3 }, beta[] = { 1, 0.25 };
  const double gates[] = { log (0.5), log (0.5) };
  double o[2], state, transfer;
  SpRefRecurrence r = { .shape = { .m = 2, .n = 1, .k = 1, .batch = 1, .heads = 1, .kv_heads = 1 },
                        .decay = SP_REF_DECAY_HEAD };

  sp_ref_recurrent (&r, q, keys, values, gates, beta, NULL, o);
  assert_values (o, 6, 4.5);
  sp_ref_recurrent_own (&r, keys, values, gates, beta, &state, &transfer);
  assert_values (&state, 4.5);
  assert_values (&transfer, 0.25);
  r.delta = TRUE;
  sp_ref_recurrent (&r, q, keys, values, gates, beta, NULL, o);
  assert_values (o, 6, 1.5);
  sp_ref_recurrent_own (&r, keys, values, gates, beta, &state, &transfer);
  assert_values (&state, 1.5);
  g_assert_true (fabs (transfer) < 1e-12);

  /* Scan: steps ln 2 at rate exp (0) = 1 are decays of 1/2 and weigh k v by ln 2. */
  const double steps[] = { log (2), log (2) }, rates[] = { 0 };
  r = (SpRefRecurrence){ .shape = r.shape, .decay = SP_REF_DECAY_SCAN, .rates = rates };
  sp_ref_recurrent (&r, q, keys, values, steps, NULL, NULL, o);
  assert_values (o, 6 * log (2), 9 * log (2));
}

/* A delta rule with beta = 1 and keys of length 1 writes: what was under the key is replaced by the value. */
static void
test_writes (void)
{
  enum { K_SIZE = 3, N_SIZE = 2 };
  g_autoptr (GRand) rand = g_rand_new_with_seed (17);
  g_autofree double *before = random_array (rand, K_SIZE * N_SIZE);
  g_autofree double *value = random_array (rand, N_SIZE);
  const double key[] = { 0.6, 0, 0.8 }, other[] = { 0.8, 0, -0.6 }, one[] = { 1 };
  const SpRefRecurrence r = { .shape = { .m = 1, .n = N_SIZE, .k = K_SIZE, .batch = 1, .heads = 1, .kv_heads = 1 },
                              .delta = TRUE };
  double o[N_SIZE], expected[N_SIZE];

  sp_ref_recurrent (&r, key, key, value, NULL, one, before, o);
  assert_close ("under the key", N_SIZE, o, value, TOLERANCE);
  sp_ref_recurrent (&r, other, key, value, NULL, one, before, o);
  for (int j = 0; j < N_SIZE; j++)
    expected[j] = 0.8 * before[j] - 0.6 * before[2 * N_SIZE + j];
  assert_close ("beside it", N_SIZE, o, expected, TOLERANCE);
}

/* With the same decay at every token it is linear attention with a decay a head. */
static void
test_fixed (void)
{
  const SpRefShape s = { .m = 6, .n = 3, .k = 4, .batch = 2, .heads = 3, .kv_heads = 3 };
  const gint64 kn = 6 * 2 * 3 * 4, nn = 6 * 2 * 3 * 3, state_n = 2 * 3 * 4 * 3;
  g_autoptr (GRand) rand = g_rand_new_with_seed (19);
  g_autofree double *q = random_array (rand, kn);
  g_autofree double *keys = random_array (rand, kn);
  g_autofree double *values = random_array (rand, nn);
  g_autofree double *gates = g_new (double, kn);
  g_autofree double *o = poison (nn);
  g_autofree double *state = poison (state_n);
  g_autofree double *expected_o = poison (nn);
  g_autofree double *expected_state = poison (state_n);

  sp_ref_linear_local (s, test_slopes_of_heads, q, keys, values, expected_o, expected_state);
  for (gint64 i = 0; i < kn; i++)
    gates[i] = -test_slopes_of_heads[i / s.k % s.heads];
  SpRefRecurrence r = { .shape = s, .decay = SP_REF_DECAY_FEATURE };
  sp_ref_recurrent (&r, q, keys, values, gates, NULL, NULL, o);
  assert_close ("o", nn, o, expected_o, TOLERANCE);
  for (gint64 i = 0; i < kn / s.k; i++)
    gates[i] = -test_slopes_of_heads[i % s.heads];
  r.decay = SP_REF_DECAY_HEAD;
  sp_ref_recurrent (&r, q, keys, values, gates, NULL, NULL, o);
  assert_close ("o", nn, o, expected_o, TOLERANCE);
  sp_ref_recurrent_own (&r, keys, values, gates, NULL, state, NULL);
  assert_close ("state", state_n, state, expected_state, TOLERANCE);
}

/* softplus (ln 3) = ln 4, sigmoid (ln 3) = 3/4, rate exp (ln 2) = 2; |(3, 4)| = 5; silu of ln 3 is 3/4 ln 3. */
static void
test_features (void)
{
  const double raw[] = { log (3) - 1 }, bias[] = { 1 }, rate[] = { log (2) };
  double gates[1], steps[1], y[1], q[2], keys[2], values[1], out[3];

  sp_ref_decay (1, 1, 1, raw, bias, rate, gates, steps);
  assert_values (gates, -2 * log (4));
  assert_values (steps, log (4));
  sp_ref_decay (1, 1, 1, raw, bias, NULL, gates, NULL);
  assert_values (gates, log (0.75) / 16);
  sp_ref_sigmoid_rows (1, (const double[]){ log (3) }, y);
  assert_values (y, 0.75);

  const double qkv[] = { 3, 4, 6, 8, 7 };
  const SpRefShape s = { .m = 1, .n = 1, .k = 2, .heads = 1, .kv_heads = 1 };
  sp_ref_key_map (s, SP_REF_MAP_L2, qkv, NULL, 0, q, keys, values);
  g_assert_true (is_close (q[0], 0.6, 1e-7) && is_close (keys[1], 0.8, 1e-7) && values[0] == 7);

  const SpRefConv conv = { .m = 3, .batch = 1, .n = 1, .width = 2 };
  const double x[] = { 1, 2, 3 }, weight[] = { 10, 1 }, halo[] = { 5 };
  sp_ref_conv (&conv, x, weight, NULL, halo, out);
  for (int i = 0; i < 3; i++) {
    const double sums[] = { 51, 12, 23 };
    g_assert_true (is_close (out[i], sums[i] / (1 + exp (-sums[i])), TOLERANCE));
  }
  sp_ref_skip (1, 2, 1, (const double[]){ 1, 2 }, (const double[]){ 10, 20 }, (const double[]){ 3, 4 }, out);
  assert_close ("skip", 2, out, (const double[]){ 31, 82 }, TOLERANCE);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);

  g_test_add_func ("/reference/recurrent/values", test_values);
  g_test_add_func ("/reference/recurrent/writes", test_writes);
  g_test_add_func ("/reference/recurrent/fixed", test_fixed);
  g_test_add_func ("/reference/recurrent/features", test_features);
  ADD_TABLE ("recurrent/gradient", gradient_cases, test_gradient);

  return g_test_run ();
}
