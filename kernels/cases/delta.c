/* SPDX-License-Identifier: Apache-2.0 */
/* The delta rule, with a decay a head, a feature and without: chunks of 64 tokens, sequences that are cut in segments, and
 * sizes around both. Queries and keys have a norm of 1, as models' have: without it the rule is not stable. */
#include "kernels/cases/case.h"

#include <math.h>

static const SpRefShape shapes[] = {
  { .m = 1, .k = 16, .n = 8, .batch = 2, .heads = 16, .kv_heads = 8 },
  { .m = 63, .k = 64, .n = 64, .batch = 1, .heads = 2, .kv_heads = 2 },
  { .m = 64, .k = 64, .n = 64, .batch = 2, .heads = 2, .kv_heads = 1 },
  { .m = 65, .k = 64, .n = 128, .batch = 1, .heads = 4, .kv_heads = 2 },
  { .m = 200, .k = 128, .n = 128, .batch = 1, .heads = 3, .kv_heads = 3 },
  { .m = 129, .k = 96, .n = 96, .batch = 2, .heads = 1, .kv_heads = 1 },
  { .m = 300, .k = 128, .n = 256, .batch = 1, .heads = 2, .kv_heads = 1 },
  { .m = 100, .k = 24, .n = 72, .batch = 3, .heads = 2, .kv_heads = 2 },
  { .m = 1025, .k = 64, .n = 32, .batch = 1, .heads = 2, .kv_heads = 2 },
  { .m = 2500, .k = 32, .n = 64, .batch = 2, .heads = 2, .kv_heads = 1 },
  { .m = 2100, .k = 128, .n = 128, .batch = 1, .heads = 1, .kv_heads = 1 },
  { .m = 8200, .k = 16, .n = 16, .batch = 1, .heads = 4, .kv_heads = 4 },
  { .m = 300, .k = 16, .n = 16, .batch = 2, .heads = 80, .kv_heads = 40 },
};

#define N_CASES (2 * G_N_ELEMENTS (shapes)) /* of which the second half has a decay a feature */
#define STATE_SCALE 0.25                    /* about what tokens leave */

typedef struct {
  SpRefRecurrence ref;
  SpDevRecurrence dev;
  gint64 keys, values, scalars, gates, state, transfer;
} Shape;

/* Every third without decay, among them the token that is alone: the gradient of its gate is a difference of two
 * numbers that nearly are the same, and there are no others to measure it by. Nor is it asked for with a decay a feature. */
static SpRefDecay
decay_of (guint i)
{
  if (i >= G_N_ELEMENTS (shapes))
    return SP_REF_DECAY_FEATURE;
  return i % 3 == 0 ? SP_REF_DECAY_NONE : SP_REF_DECAY_HEAD;
}

static Shape
shape_of (guint i)
{
  SpRefShape r = shapes[i % G_N_ELEMENTS (shapes)];
  SpRefDecay decay = decay_of (i);
  gint64 scalars = r.m * r.batch * r.heads;

  return (Shape){
    .ref = { .shape = r, .decay = decay, .delta = TRUE },
    .dev = { { .m = r.m, .n = r.n, .k = r.k, .batch = r.batch, .heads = r.heads, .kv_heads = r.kv_heads },
             decay == SP_REF_DECAY_FEATURE ? SP_DEV_DECAY_FEATURE : SP_DEV_DECAY_HEAD },
    .keys = r.m * r.batch * r.kv_heads * r.k,
    .values = scalars * r.n,
    .scalars = scalars,
    .gates = decay == SP_REF_DECAY_FEATURE ? scalars * r.k : scalars,
    .state = r.batch * r.heads * r.k * r.n,
    .transfer = r.batch * r.heads * r.k * r.k,
  };
}

static SpCase *
delta_case (SpCaseSums sums, const char *kernel, guint i, int variant)
{
  static const char *const decays[] = { "no decay", "a decay a head", "a decay a feature" };
  SpRefShape s = shapes[i % G_N_ELEMENTS (shapes)];

  return sp_case_new (sums, kernel, "m = %d, k = %d, n = %d, batch = %d, heads = %d of %d, %s, variant %d", (int) s.m,
                      (int) s.k, (int) s.n, (int) s.batch, (int) s.heads, (int) s.kv_heads,
                      decays[decay_of (i) == SP_REF_DECAY_NONE   ? 0
                             : decay_of (i) == SP_REF_DECAY_HEAD ? 1
                                                                 : 2],
                      variant);
}

/* Rows of k with a norm of 1. */
static const double *
unit_rows (SpCase *c, const char *name, const Shape *s, SpDevTensor *ret)
{
  gint64 k = s->ref.shape.k;
  double *x = sp_case_numbers (c, s->keys);

  for (gint64 row = 0; row < s->keys; row += k) {
    double squares = 1e-12;
    for (gint64 i = 0; i < k; i++) {
      x[row + i] = sp_case_between (-1, 1);
      squares += x[row + i] * x[row + i];
    }
    for (gint64 i = 0; i < k; i++)
      x[row + i] /= sqrt (squares);
  }
  return sp_case_in_values (c, name, SP_DEV_BF16, s->keys, x, ret);
}

typedef struct {
  const double *gates, *beta;
  SpDevTensor dev_gates, dev_beta;
} Gates;

/* Features forget from hardly anything, in a whole sequence, to e^-2 a token, and each seventh up to e^-8. Chunks take turns:
 * in the steep ones that one forgets up to e^-20, beyond which pairs of 16 tokens go apart (device-delta-feature.cuh: 2^-100
 * in 8 tokens), and now and then some forget all at once. */
static double
feature_gate (const Shape *s, gint64 feature, gboolean is_steep)
{
  static const double rates[] = { 2, 0.25, 0.03, 0, 0.25, 2, 8 };
  gint64 kind = feature % (gint64) G_N_ELEMENTS (rates);

  if (is_steep && kind > 3 && sp_case_below (50) == 0)
    return -200;
  if (kind == 3)
    return -sp_case_between (0, MIN (0.004, 4 / (double) s->ref.shape.m));
  return -sp_case_between (0, is_steep && kind == 6 ? 20 : rates[kind]);
}

/* Decays of a head from hardly any to e^-2 a token, betas of up to 1; of every fifth case none. Betas are smaller
 * where a chunk has more tokens than keys have features, which would leave less of a state than a rounding of it,
 * and where a sequence has so many that nothing would come through it. */
static Gates
gates_of (SpCase *c, const Shape *s, guint i)
{
  double *gates = sp_case_numbers (c, s->gates), *beta = sp_case_numbers (c, s->scalars);
  double k = (double) s->ref.shape.k, most = MIN (1, MIN (k / 64, 8 * k / (double) s->ref.shape.m));
  Gates g;

  for (gint64 j = 0; j < s->gates; j++)
    gates[j] = s->ref.decay == SP_REF_DECAY_FEATURE
                   ? feature_gate (s, j % s->ref.shape.k, (j / (s->gates / s->ref.shape.m) / 64 + i) % 2 == 0)
                   : -sp_case_between (0, pow (2, 1 - 3 * (double) (j % s->ref.shape.heads % 4)));
  for (gint64 j = 0; j < s->scalars; j++)
    beta[j] = sp_case_between (0, most);
  g.gates = s->ref.decay == SP_REF_DECAY_NONE
                ? sp_case_in_absent (&g.dev_gates)
                : sp_case_in_values (c, "gates", SP_DEV_FP32, s->gates, gates, &g.dev_gates);
  g.beta = i % 5 == 4 && s->ref.shape.k >= 64
               ? sp_case_in_absent (&g.dev_beta)
               : sp_case_in_values (c, "beta", i % 2 ? SP_DEV_BF16 : SP_DEV_FP32, s->scalars, beta, &g.dev_beta);
  return g;
}

/* What a state of the tokens after `before` is. */
static void
state_after (const Shape *s, const double *keys, const double *values, Gates g, const double *before, double *state)
{
  g_autofree double *own = g_new (double, s->state), *transfer = g_new (double, s->transfer);

  sp_ref_recurrent_own (&s->ref, keys, values, g.gates, g.beta, own, transfer);
  sp_ref_transfer_update (&s->ref, FALSE, transfer, before, own, state);
}

/* Variant 1: from a state, 2: with the state after. */
static void
test_forward (void)
{
  for (guint i = 0; i < N_CASES; i++)
    for (int variant = 0; variant < 4; variant++) {
      SpCase *c = delta_case (SP_CASE_CHAIN, "delta", i, variant);
      Shape s = shape_of (i);
      SpDevTensor q, k, v, in, o, state;
      const double *q_in = unit_rows (c, "q", &s, &q), *k_in = unit_rows (c, "keys", &s, &k);
      const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &v);
      Gates g = gates_of (c, &s, i);
      const double *before =
          variant & 1 ? sp_case_in (c, "state_in", SP_DEV_FP32, s.state, STATE_SCALE, &in) : sp_case_in_absent (&in);
      sp_ref_recurrent (&s.ref, q_in, k_in, v_in, g.gates, g.beta, before,
                        sp_case_out (c, "o", SP_DEV_BF16, s.values, &o));
      sp_case_in_absent (&state);
      if (variant & 2)
        state_after (&s, k_in, v_in, g, before, sp_case_out (c, "state", SP_DEV_FP32, s.state, &state));
      void *scratch = sp_case_scratch (c, sp_dev_delta_scratch_bytes (&s.dev));
      SP_CASE_RUN (c,
                   sp_dev_delta (&s.dev, q, k, v, g.dev_gates.data, g.dev_beta, in.data, o, state.data, scratch, NULL));
    }
}

/* Variant 1: with the transfer. */
static void
test_own (void)
{
  for (guint i = 0; i < N_CASES; i++)
    for (int variant = 0; variant < 2; variant++) {
      SpCase *c = delta_case (SP_CASE_CHAIN, "delta-own", i, variant);
      Shape s = shape_of (i);
      SpDevTensor k, v, state, transfer;
      const double *k_in = unit_rows (c, "keys", &s, &k);
      const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &v);
      Gates g = gates_of (c, &s, i);
      double *state_out = sp_case_out (c, "state", SP_DEV_FP32, s.state, &state), *transfer_out = NULL;
      sp_case_in_absent (&transfer);
      if (variant & 1)
        transfer_out = sp_case_out (c, "transfer", SP_DEV_FP32, s.transfer, &transfer);
      sp_ref_recurrent_own (&s.ref, k_in, v_in, g.gates, g.beta, state_out, transfer_out);
      void *scratch = sp_case_scratch (c, sp_dev_delta_scratch_bytes (&s.dev));
      SP_CASE_RUN (
          c, sp_dev_delta_own (&s.dev, k, v, g.dev_gates.data, g.dev_beta, state.data, transfer.data, scratch, NULL));
    }
}

static void
test_own_bwd (void)
{
  for (guint i = 0; i < N_CASES; i++)
    for (int variant = 0; variant < 2; variant++) {
      SpCase *c = delta_case (SP_CASE_CHAIN, "delta-own-bwd", i, variant);
      Shape s = shape_of (i);
      SpDevTensor q, k, d, dstate, transfer;
      const double *q_in = unit_rows (c, "q", &s, &q), *k_in = unit_rows (c, "keys", &s, &k);
      const double *d_in = sp_case_in (c, "d_o", SP_DEV_BF16, s.values, 1, &d);
      Gates g = gates_of (c, &s, i);
      sp_ref_recurrent_own_bwd (&s.ref, q_in, k_in, g.gates, g.beta, d_in,
                                sp_case_out (c, "dstate", SP_DEV_FP32, s.state, &dstate));
      sp_case_in_absent (&transfer);
      if (variant & 1) /* of any values */
        sp_ref_recurrent_own (&s.ref, k_in, d_in, g.gates, g.beta, sp_case_numbers (c, s.state),
                              sp_case_out (c, "transfer", SP_DEV_FP32, s.transfer, &transfer));
      void *scratch = sp_case_scratch (c, sp_dev_delta_scratch_bytes (&s.dev));
      SP_CASE_RUN (c, sp_dev_delta_own_bwd (&s.dev, q, k, g.dev_gates.data, g.dev_beta, d, dstate.data, transfer.data,
                                            scratch, NULL));
    }
}

/* Of the state before the tokens. */
static void
dstate_before (const Shape *s, const double *q, const double *keys, const double *d_o, Gates g, const double *after,
               double *dstate)
{
  g_autofree double *own = g_new (double, s->state), *transfer = g_new (double, s->transfer);

  sp_ref_recurrent_own (&s->ref, keys, d_o, g.gates, g.beta, own, transfer);
  sp_ref_recurrent_own_bwd (&s->ref, q, keys, g.gates, g.beta, d_o, own);
  sp_ref_transfer_update (&s->ref, TRUE, transfer, after, own, dstate);
}

/* Variant 1: from a state, 2: with a gradient of the state after, 4: with that of the state before. */
static void
test_bwd (void)
{
  static const int variants[] = { 0, 5, 6, 7 };

  for (guint i = 0; i < N_CASES; i++)
    for (guint j = 0; j < G_N_ELEMENTS (variants); j++) {
      int variant = variants[j];
      SpCase *c = delta_case (SP_CASE_CHAIN, "delta-bwd", i, variant);
      Shape s = shape_of (i);
      SpDevTensor q, k, v, d, in, after, dq, dk, dv, dgates, dbeta, dstate;
      const double *q_in = unit_rows (c, "q", &s, &q), *k_in = unit_rows (c, "keys", &s, &k);
      const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &v);
      const double *d_in = sp_case_in (c, "d_o", SP_DEV_BF16, s.values, 1, &d);
      Gates g = gates_of (c, &s, i);
      const double *b =
          variant & 1 ? sp_case_in (c, "state_in", SP_DEV_FP32, s.state, STATE_SCALE, &in) : sp_case_in_absent (&in);
      const double *a = variant & 2 ? sp_case_in (c, "dstate_out", SP_DEV_FP32, s.state, STATE_SCALE, &after)
                                    : sp_case_in_absent (&after);
      double *dq_out = sp_case_out (c, "dq", SP_DEV_BF16, s.keys, &dq);
      double *dk_out = sp_case_out (c, "dkeys", SP_DEV_BF16, s.keys, &dk);
      double *dv_out = sp_case_out (c, "dvalues", SP_DEV_BF16, s.values, &dv);
      double *dgates_out = NULL, *dbeta_out = NULL;
      sp_case_in_absent (&dgates);
      sp_case_in_absent (&dbeta);
      sp_case_in_absent (&dstate);
      if (g.gates != NULL && s.ref.shape.m > 1)
        dgates_out = sp_case_out (c, "dgates", SP_DEV_FP32, s.gates, &dgates);
      else if (g.gates != NULL)
        dgates_out = sp_case_numbers (c, s.gates);
      if (g.beta != NULL)
        dbeta_out = sp_case_out (c, "dbeta", i % 2 ? SP_DEV_BF16 : SP_DEV_FP32, s.scalars, &dbeta);
      sp_ref_recurrent_bwd (&s.ref, q_in, k_in, v_in, g.gates, g.beta, d_in, b, a, dq_out, dk_out, dv_out, dgates_out,
                            dbeta_out, NULL);
      if (variant & 4)
        dstate_before (&s, q_in, k_in, d_in, g, a, sp_case_out (c, "dstate_in", SP_DEV_FP32, s.state, &dstate));
      void *scratch = sp_case_scratch (c, sp_dev_delta_bwd_scratch_bytes (&s.dev));
      SP_CASE_RUN (c, sp_dev_delta_bwd (&s.dev, q, k, v, g.dev_gates.data, g.dev_beta, d, in.data, after.data, dq, dk,
                                        dv, dgates.data, dbeta, dstate.data, scratch, NULL));
    }
}

/* Transfers about as large as keep a state's size. */
static void
fill_parts (const Shape *s, gint64 places, double *parts)
{
  double scale = 1 / sqrt ((double) s->ref.shape.k);

  for (gint64 place = 0; place < places; place++, parts += s->state + s->transfer)
    for (gint64 i = 0; i < s->state + s->transfer; i++)
      parts[i] = sp_case_between (-1, 1) * (i < s->state ? 1 : scale);
}

static void
test_chain (void)
{
  enum { PLACES = 4 };

  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    for (int reverse = 0; reverse < 2; reverse++) {
      Shape s = shape_of (i);
      gint64 each = s.state + s.transfer;
      for (gint64 place = 0; place < PLACES; place++) {
        SpCase *c = delta_case (SP_CASE_PLAIN, reverse ? "delta-prefix, reverse" : "delta-prefix", i, (int) place);
        SpDevTensor parts, out;
        double *numbers = sp_case_numbers (c, PLACES * each);
        fill_parts (&s, PLACES, numbers);
        const double *all = sp_case_in_values (c, "parts", SP_DEV_FP32, PLACES * each, numbers, &parts);
        sp_ref_transfer_prefix (&s.ref, PLACES, place, reverse, all,
                                sp_case_out (c, "out", SP_DEV_FP32, s.state, &out));
        SP_CASE_RUN (c, sp_dev_delta_prefix (s.dev.shape, PLACES, place, reverse, parts.data, out.data, NULL));
      }
      for (int variant = 0; variant < 2; variant++) {
        SpCase *c = delta_case (SP_CASE_PLAIN, reverse ? "delta-update, reverse" : "delta-update", i, variant);
        SpDevTensor part, own, in;
        double *numbers = sp_case_numbers (c, each);
        fill_parts (&s, 1, numbers);
        const double *transfer = sp_case_in_values (c, "transfer", SP_DEV_FP32, s.transfer, numbers + s.state, &part);
        const double *before = variant ? sp_case_in (c, "in", SP_DEV_FP32, s.state, 1, &in) : sp_case_in_absent (&in);
        double *out = sp_case_in_out_values (c, "own", SP_DEV_FP32, s.state, numbers, &own);
        sp_ref_transfer_update (&s.ref, reverse, transfer, before, out, out);
        SP_CASE_RUN (c, sp_dev_delta_update (s.dev.shape, reverse, part.data, in.data, own.data, own.data, NULL));
      }
    }
}

void
sp_add_delta_cases (void)
{
  sp_case_add ("delta", test_forward);
  sp_case_add ("delta-own", test_own);
  sp_case_add ("delta-own-bwd", test_own_bwd);
  sp_case_add ("delta-bwd", test_bwd);
  sp_case_add ("delta-chain", test_chain);
}
