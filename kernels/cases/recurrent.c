/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention whose decay follows the data: chunks of 64 tokens and blocks of 16, segments of several, and sizes around
 * them; heads that share keys; decays from hardly any to what forgets all at once. */
#include "kernels/cases/case.h"

#include <math.h>

static const SpRefShape shapes[] = {
  { .m = 1, .k = 8, .n = 8, .batch = 2, .heads = 5, .kv_heads = 5 }, /* of one number alone all may cancel */
  { .m = 16, .k = 64, .n = 64, .batch = 1, .heads = 2, .kv_heads = 2 },
  { .m = 63, .k = 64, .n = 64, .batch = 1, .heads = 2, .kv_heads = 1 },
  { .m = 64, .k = 64, .n = 64, .batch = 2, .heads = 2, .kv_heads = 2 },
  { .m = 65, .k = 64, .n = 128, .batch = 1, .heads = 2, .kv_heads = 2 },
  { .m = 200, .k = 128, .n = 128, .batch = 1, .heads = 3, .kv_heads = 3 },
  { .m = 129, .k = 96, .n = 96, .batch = 2, .heads = 1, .kv_heads = 1 },
  { .m = 130, .k = 128, .n = 256, .batch = 1, .heads = 1, .kv_heads = 1 },
  { .m = 100, .k = 256, .n = 72, .batch = 1, .heads = 2, .kv_heads = 2 },
  { .m = 1025, .k = 64, .n = 32, .batch = 1, .heads = 2, .kv_heads = 2 },
  { .m = 200, .k = 128, .n = 64, .batch = 2, .heads = 8, .kv_heads = 2 },
  { .m = 2100, .k = 16, .n = 16, .batch = 2, .heads = 8, .kv_heads = 1 },
  { .m = 8200, .k = 8, .n = 8, .batch = 1, .heads = 4, .kv_heads = 4 },
  { .m = 400, .k = 96, .n = 192, .batch = 1, .heads = 1, .kv_heads = 1 },
  { .m = 300, .k = 256, .n = 256, .batch = 1, .heads = 2, .kv_heads = 2 },
  { .m = 300, .k = 8, .n = 16, .batch = 2, .heads = 80, .kv_heads = 40 },
};

typedef struct {
  SpRefRecurrence ref;
  SpDevRecurrence dev;
  gint64 keys, values, state, n_gates, scalars, transfer;
  const double *gates, *beta;
  SpDevTensor dev_gates, dev_beta;
} Shape;

/* A token forgets as its head and feature do, more or less; now and then all at once. */
static double
gate_of (gint64 h)
{
  double slope = pow (2, -1.0 - 2 * (double) (h % 5)) * sp_case_between (0.1, 2);

  return sp_case_below (100) == 0 ? -200 : -slope;
}

/* Of a decay a feature chunks take turns. In some nothing is steep, though a feature comes close to it (88 powers of 2 in 32
 * tokens); in some features forget all at once or, of others, 140 powers of 2 in 32 tokens: device-linear-decay-feature.cuh. */
static double
feature_gate_of (gint64 feature, gboolean is_steep)
{
  if (feature % 7 == 6)
    return -sp_case_between (1.8, 2);
  if (is_steep)
    return gate_of (feature % 7) * (feature % 7 == 0 ? 6 : 1);
  return MAX (gate_of (feature % 7), -20);
}

static Shape
shape_of (SpCase *c, guint i, SpRefDecay decay, gboolean has_beta)
{
  SpRefShape r = shapes[i];
  SpDevDecay dev = decay == SP_REF_DECAY_HEAD ? SP_DEV_DECAY_HEAD : SP_DEV_DECAY_FEATURE;
  Shape s = { .scalars = r.m * r.batch * r.heads };

  if (decay == SP_REF_DECAY_FEATURE)
    r.kv_heads = r.heads;
  s.ref = (SpRefRecurrence){ .shape = r, .decay = decay };
  s.dev =
      (SpDevRecurrence){ { .m = r.m, .n = r.n, .k = r.k, .batch = r.batch, .heads = r.heads, .kv_heads = r.kv_heads },
                         dev };
  s.keys = r.m * r.batch * r.kv_heads * r.k;
  s.values = s.scalars * r.n;
  s.state = r.batch * r.heads * r.k * r.n;
  s.n_gates = decay == SP_REF_DECAY_FEATURE ? s.scalars * r.k : s.scalars;
  s.transfer = sp_ref_transfer_elements (&s.ref);
  double *gates = sp_case_numbers (c, s.n_gates), *beta = sp_case_numbers (c, s.scalars);
  for (gint64 j = 0; j < s.n_gates; j++)
    gates[j] = decay == SP_REF_DECAY_FEATURE ? feature_gate_of (j % r.k, (j * r.m / s.n_gates / 64 + i) % 2 == 0)
                                             : gate_of (j % r.heads);
  for (gint64 j = 0; j < s.scalars; j++)
    beta[j] = sp_case_between (0, 2);
  s.gates = sp_case_in_values (c, "gates", SP_DEV_FP32, s.n_gates, gates, &s.dev_gates);
  s.beta = has_beta ? sp_case_in_values (c, "beta", sp_case_dtype (), s.scalars, beta, &s.dev_beta)
                    : sp_case_in_absent (&s.dev_beta);
  return s;
}

static SpCase *
recurrent_case (SpCaseSums sums, const char *kernel, guint i, SpRefDecay decay, int variant)
{
  SpRefShape s = shapes[i];

  return sp_case_new (sums, kernel,
                      "m = %d, k = %d, n = %d, batch = %d, heads = %d, %d of keys, a decay a %s, variant %d", (int) s.m,
                      (int) s.k, (int) s.n, (int) s.batch, (int) s.heads, (int) s.kv_heads,
                      decay == SP_REF_DECAY_HEAD ? "head" : "feature", variant);
}

/* f of all shapes, both decays, and of a decay a head with beta and without. */
static void
each_shape (void (*f) (guint i, SpRefDecay decay, gboolean has_beta))
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    f (i, SP_REF_DECAY_HEAD, TRUE);
    f (i, SP_REF_DECAY_HEAD, FALSE);
    f (i, SP_REF_DECAY_FEATURE, FALSE);
  }
}

static void
check_own (guint i, SpRefDecay decay, gboolean has_beta)
{
  SpCase *c = recurrent_case (SP_CASE_TENSOR, "state-own", i, decay, has_beta);
  Shape s = shape_of (c, i, decay, has_beta);
  SpDevTensor k, v, state, transfer;
  const double *k_in = sp_case_in (c, "keys", SP_DEV_BF16, s.keys, 1, &k);
  const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &v);
  double *state_out = sp_case_out (c, "state", SP_DEV_FP32, s.state, &state);
  double *transfer_out = sp_case_out (c, "transfer", SP_DEV_FP32, s.transfer, &transfer);
  void *scratch = sp_case_scratch (c, sp_dev_recurrent_scratch_bytes (&s.dev));

  sp_ref_recurrent_own (&s.ref, k_in, v_in, s.gates, s.beta, state_out, transfer_out);
  SP_CASE_RUN (
      c, sp_dev_recurrent_own (&s.dev, k, v, s.dev_gates.data, s.dev_beta, state.data, transfer.data, scratch, NULL));
}

static void
check_own_bwd (guint i, SpRefDecay decay, gboolean has_beta)
{
  SpCase *c = recurrent_case (SP_CASE_TENSOR, "state-own-bwd", i, decay, has_beta);
  Shape s = shape_of (c, i, decay, has_beta);
  SpDevTensor q, d, state;
  const double *q_in = sp_case_in (c, "q", SP_DEV_BF16, s.keys, 1, &q);
  const double *d_in = sp_case_in (c, "d_o", SP_DEV_BF16, s.values, 1, &d);
  double *state_out = sp_case_out (c, "dstate", SP_DEV_FP32, s.state, &state);
  void *scratch = sp_case_scratch (c, sp_dev_recurrent_scratch_bytes (&s.dev));

  sp_ref_recurrent_own_bwd (&s.ref, q_in, q_in, s.gates, s.beta, d_in, state_out);
  SP_CASE_RUN (c, sp_dev_recurrent_own_bwd (&s.dev, q, s.dev_gates.data, d, state.data, NULL, scratch, NULL));
}

/* Variant 1: from a state, 2: the state after too, 4: misaligned output. */
static void
check_forward (guint i, SpRefDecay decay, gboolean has_beta)
{
  int variant = (int) i % 8;
  SpCase *c = recurrent_case (SP_CASE_TENSOR, "recurrent", i, decay, variant);
  Shape s = shape_of (c, i, decay, has_beta);
  SpDevTensor q, k, v, in, o, state;
  const double *q_in = sp_case_in (c, "q", SP_DEV_BF16, s.keys, 1, &q);
  const double *k_in = sp_case_in (c, "keys", SP_DEV_BF16, s.keys, 1, &k);
  const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &v);
  const double *before =
      variant & 1 ? sp_case_in (c, "state_in", SP_DEV_FP32, s.state, 4, &in) : sp_case_in_absent (&in);
  double *own = sp_case_numbers (c, s.state), *transfer = sp_case_numbers (c, s.transfer);

  sp_case_in_absent (&state);
  if (variant & 2) {
    double *after = sp_case_out (c, "state", SP_DEV_FP32, s.state, &state);
    sp_ref_recurrent_own (&s.ref, k_in, v_in, s.gates, s.beta, own, transfer);
    sp_ref_transfer_update (&s.ref, FALSE, transfer, before, own, after);
  }
  if (variant & 4)
    sp_case_misalign (c);
  double *o_out = sp_case_out (c, "o", sp_case_dtype (), s.values, &o);
  void *scratch = sp_case_scratch (c, sp_dev_recurrent_scratch_bytes (&s.dev));
  sp_ref_recurrent (&s.ref, q_in, k_in, v_in, s.gates, s.beta, before, o_out);
  SP_CASE_RUN (c,
               sp_dev_recurrent (&s.dev, q, k, v, s.dev_gates.data, s.dev_beta, in.data, o, state.data, scratch, NULL));
}

/* Variant 1: with the state before, 2: with the gradient after, 4: the gradient of the state before too. The gradient of
 * a decay a head is of the state before and of the gradient of the one after, each rounded. */
static void
check_bwd_variant (guint i, SpRefDecay decay, gboolean has_beta, int variant)
{
  SpCase *c = recurrent_case (SP_CASE_TENSOR, "recurrent-bwd", i, decay, variant);
  Shape s = shape_of (c, i, decay, has_beta);
  SpDevTensor q, k, v, d, before, after, dq, dk, dv, dgates, dbeta, dstate;
  const double *q_in = sp_case_in (c, "q", SP_DEV_BF16, s.keys, 1, &q);
  const double *k_in = sp_case_in (c, "keys", SP_DEV_BF16, s.keys, 1, &k);
  const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &v);
  const double *d_in = sp_case_in (c, "d_o", SP_DEV_BF16, s.values, 1, &d);
  const double *b =
      variant & 1 ? sp_case_in (c, "state", SP_DEV_FP32, s.state, 1, &before) : sp_case_in_absent (&before);
  const double *a =
      variant & 2 ? sp_case_in (c, "dstate", SP_DEV_FP32, s.state, 1, &after) : sp_case_in_absent (&after);
  double *dq_out = sp_case_out (c, "dq", sp_case_dtype (), s.keys, &dq);
  double *dk_out = sp_case_out (c, "dkeys", sp_case_dtype (), s.keys, &dk);
  double *dv_out = sp_case_out (c, "dvalues", sp_case_dtype (), s.values, &dv);
  sp_case_sums (c, decay == SP_REF_DECAY_HEAD ? SP_CASE_CHAIN : SP_CASE_TENSOR);
  double *dgates_out = sp_case_out (c, "dgates", SP_DEV_FP32, s.n_gates, &dgates), *dbeta_out = NULL;
  sp_case_sums (c, SP_CASE_TENSOR);
  double *own = sp_case_numbers (c, s.state), *transfer = sp_case_numbers (c, s.transfer);

  sp_case_in_absent (&dbeta);
  if (has_beta)
    dbeta_out = sp_case_out (c, "dbeta", sp_case_dtype (), s.scalars, &dbeta);
  sp_ref_recurrent_bwd (&s.ref, q_in, k_in, v_in, s.gates, s.beta, d_in, b, a, dq_out, dk_out, dv_out, dgates_out,
                        dbeta_out, NULL);
  sp_case_in_absent (&dstate);
  if (variant & 4) {
    double *dstate_out = sp_case_out (c, "dstate-in", SP_DEV_FP32, s.state, &dstate);
    sp_ref_recurrent_own (&s.ref, k_in, v_in, s.gates, s.beta, own, transfer);
    sp_ref_recurrent_own_bwd (&s.ref, q_in, k_in, s.gates, s.beta, d_in, own);
    sp_ref_transfer_update (&s.ref, TRUE, transfer, a, own, dstate_out);
  }
  void *scratch = sp_case_scratch (c, sp_dev_recurrent_bwd_scratch_bytes (&s.dev));
  SP_CASE_RUN (c, sp_dev_recurrent_bwd (&s.dev, q, k, v, s.dev_gates.data, s.dev_beta, d, before.data, after.data, dq,
                                        dk, dv, dgates.data, dbeta, dstate.data, scratch, NULL));
}

static void
check_bwd (guint i, SpRefDecay decay, gboolean has_beta)
{
  check_bwd_variant (i, decay, has_beta, 0);
  check_bwd_variant (i, decay, has_beta, 3);
  check_bwd_variant (i, decay, has_beta, 4 + (int) i % 3);
}

static void
check_chain (guint i, SpRefDecay decay, gboolean has_beta)
{
  gint64 places = 4;

  for (int variant = 0; variant < 2; variant++) {
    SpCase *c = recurrent_case (SP_CASE_PLAIN, "transfer-update", i, decay, variant);
    Shape s = shape_of (c, i, decay, has_beta);
    SpDevTensor in, own, transfer, out;
    const double *t = sp_case_in (c, "transfer", SP_DEV_FP32, s.transfer, 1, &transfer);
    const double *before = variant ? sp_case_in (c, "in", SP_DEV_FP32, s.state, 1, &in) : sp_case_in_absent (&in);
    const double *mine = sp_case_in (c, "own", SP_DEV_FP32, s.state, 1, &own);
    sp_ref_transfer_update (&s.ref, FALSE, t, before, mine, sp_case_out (c, "out", SP_DEV_FP32, s.state, &out));
    SP_CASE_RUN (c, sp_dev_transfer_update (&s.dev, transfer.data, in.data, own.data, out.data, NULL));
  }
  for (gint64 place = 0; place < places; place++)
    for (int reverse = 0; reverse < 2; reverse++) {
      SpCase *c = recurrent_case (SP_CASE_PLAIN, reverse ? "transfer-prefix, reverse" : "transfer-prefix", i, decay,
                                  (int) place);
      Shape s = shape_of (c, i, decay, has_beta);
      SpDevTensor parts, out;
      const double *all = sp_case_in (c, "parts", SP_DEV_FP32, places * (s.state + s.transfer), 1, &parts);
      sp_ref_transfer_prefix (&s.ref, places, place, reverse, all, sp_case_out (c, "out", SP_DEV_FP32, s.state, &out));
      SP_CASE_RUN (c, sp_dev_transfer_prefix (&s.dev, places, place, reverse, parts.data, out.data, NULL));
    }
}

#define CHECK(name)                                                                                                    \
  static void test_##name (void)                                                                                       \
  {                                                                                                                    \
    each_shape (check_##name);                                                                                         \
  }

CHECK (own)
CHECK (own_bwd)
CHECK (forward)
CHECK (bwd)
CHECK (chain)

void
sp_add_recurrent_cases (void)
{
  sp_case_add ("recurrent-own", test_own);
  sp_case_add ("recurrent-own-bwd", test_own_bwd);
  sp_case_add ("recurrent", test_forward);
  sp_case_add ("recurrent-bwd", test_bwd);
  sp_case_add ("recurrent-chain", test_chain);
}
