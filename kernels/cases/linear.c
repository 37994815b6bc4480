/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention with a decay: chunks of 64 tokens, segments of 1024, and sizes around both. */
#include "kernels/cases/case.h"

#include <math.h>

static SpDevDtype
any (void)
{
  return sp_case_below (2) == 0 ? SP_DEV_BF16 : SP_DEV_FP32;
}

static const SpRefShape shapes[] = {
  { .m = 1, .k = 8, .n = 8, .batch = 1, .heads = 1 },       { .m = 63, .k = 64, .n = 64, .batch = 1, .heads = 2 },
  { .m = 64, .k = 64, .n = 64, .batch = 2, .heads = 2 },    { .m = 65, .k = 64, .n = 128, .batch = 1, .heads = 2 },
  { .m = 200, .k = 128, .n = 128, .batch = 1, .heads = 3 }, { .m = 129, .k = 96, .n = 96, .batch = 2, .heads = 1 },
  { .m = 130, .k = 128, .n = 256, .batch = 1, .heads = 1 }, { .m = 100, .k = 256, .n = 72, .batch = 1, .heads = 2 },
  { .m = 1024, .k = 16, .n = 16, .batch = 1, .heads = 2 },  { .m = 1025, .k = 64, .n = 32, .batch = 1, .heads = 2 },
  { .m = 2500, .k = 32, .n = 64, .batch = 2, .heads = 2 },
};

typedef struct {
  SpRefShape ref;
  SpDevShape dev;
  gint64 keys, values, state;
  const double *slopes;
  const float *dev_slopes;
} Shape;

/* Slopes as a model has them: from a decay of half in a token to one that is hardly any; of the last case some none. */
static Shape
shape_of (SpCase *c, guint i)
{
  SpRefShape r = shapes[i];
  Shape s = {
    .ref = r,
    .dev = { .m = r.m, .n = r.n, .k = r.k, .batch = r.batch, .heads = r.heads },
    .keys = r.m * r.batch * r.heads * r.k,
    .values = r.m * r.batch * r.heads * r.n,
    .state = r.batch * r.heads * r.k * r.n,
  };
  double *slopes = sp_case_numbers (c, r.heads);
  SpDevTensor t;

  for (gint64 h = 0; h < r.heads; h++)
    slopes[h] = h == 1 && i % 3 == 0 ? 0 : pow (2, -1.0 - 3 * h - i % 4);
  s.slopes = sp_case_in_values (c, "slopes", SP_DEV_FP32, r.heads, slopes, &t);
  s.dev_slopes = t.data;
  return s;
}

static SpCase *
linear_case (SpCaseSums sums, const char *kernel, guint i, int variant)
{
  SpRefShape s = shapes[i];

  return sp_case_new (sums, kernel, "m = %d, k = %d, n = %d, batch = %d, heads = %d, variant %d", (int) s.m, (int) s.k,
                      (int) s.n, (int) s.batch, (int) s.heads, variant);
}

/* Variant 1: the output alone, 2: the state alone, 3: both. */
static void
test_local (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    for (int variant = 1; variant < 4; variant++) {
      SpCase *c = linear_case (SP_CASE_TENSOR, "linear-local", i, variant);
      Shape s = shape_of (c, i);
      SpDevTensor q, k, v, o, state;
      const double *k_in = sp_case_in (c, "keys", SP_DEV_BF16, s.keys, 1, &k);
      const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &v);
      const double *q_in = sp_case_in_absent (&q);
      double *o_out, *state_out = NULL;
      if (variant & 1) {
        q_in = sp_case_in (c, "q", SP_DEV_BF16, s.keys, 1, &q);
        o_out = sp_case_out (c, "o", any (), s.values, &o);
      } else {
        q_in = k_in;
        sp_case_in_absent (&o);
        o_out = sp_case_numbers (c, s.values);
      }
      sp_case_in_absent (&state);
      if (variant & 2)
        state_out = sp_case_out (c, "state", SP_DEV_FP32, s.state, &state);
      void *scratch = sp_case_scratch (c, sp_dev_linear_scratch_bytes (s.dev));
      sp_ref_linear_local (s.ref, s.slopes, q_in, k_in, v_in, o_out, state_out);
      SP_CASE_RUN (c, sp_dev_linear_local (s.dev, s.dev_slopes, q, k, v, o, state.data, scratch, NULL));
    }
}

/* Variant 1: the gradients alone, 2: that of the state alone, 3: both. */
static void
test_local_bwd (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    for (int variant = 1; variant < 4; variant++) {
      SpCase *c = linear_case (SP_CASE_TENSOR, "linear-local-bwd", i, variant);
      Shape s = shape_of (c, i);
      SpDevTensor q, k, v, d, dq, dk, dv, dstate;
      const double *q_in = sp_case_in (c, "q", SP_DEV_BF16, s.keys, 1, &q);
      const double *d_in = sp_case_in (c, "d_o", SP_DEV_BF16, s.values, 1, &d);
      const double *k_in, *v_in;
      double *dq_out, *dk_out, *dv_out, *dstate_out = NULL;
      if (variant & 1) {
        k_in = sp_case_in (c, "keys", SP_DEV_BF16, s.keys, 1, &k);
        v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &v);
        dq_out = sp_case_out (c, "dq", any (), s.keys, &dq);
        dk_out = sp_case_out (c, "dkeys", any (), s.keys, &dk);
        dv_out = sp_case_out (c, "dvalues", any (), s.values, &dv);
      } else {
        k_in = sp_case_numbers (c, s.keys);
        v_in = sp_case_numbers (c, s.values);
        dq_out = sp_case_numbers (c, s.keys);
        dk_out = sp_case_numbers (c, s.keys);
        dv_out = sp_case_numbers (c, s.values);
        sp_case_in_absent (&k);
        sp_case_in_absent (&v);
        sp_case_in_absent (&dq);
        sp_case_in_absent (&dk);
        sp_case_in_absent (&dv);
      }
      sp_case_in_absent (&dstate);
      if (variant & 2)
        dstate_out = sp_case_out (c, "dstate", SP_DEV_FP32, s.state, &dstate);
      void *scratch = sp_case_scratch (c, sp_dev_linear_scratch_bytes (s.dev));
      sp_ref_linear_local_bwd (s.ref, s.slopes, q_in, k_in, v_in, d_in, dq_out, dk_out, dv_out, dstate_out);
      SP_CASE_RUN (c,
                   sp_dev_linear_local_bwd (s.dev, s.dev_slopes, q, k, v, d, dq, dk, dv, dstate.data, scratch, NULL));
    }
}

static void
test_inter (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    SpCase *c = linear_case (SP_CASE_TENSOR, "linear-inter", i, 0);
    Shape s = shape_of (c, i);
    SpDevTensor q, state, o;
    const double *q_in = sp_case_in (c, "q", SP_DEV_BF16, s.keys, 1, &q);
    const double *state_in = sp_case_in (c, "state", SP_DEV_FP32, s.state, 1, &state);
    sp_ref_linear_inter (s.ref, s.slopes, q_in, state_in, sp_case_in_out (c, "o", any (), s.values, 1, &o));
    SP_CASE_RUN (c, sp_dev_linear_inter (s.dev, s.dev_slopes, q, state.data, o, NULL));
  }
}

/* Variant 1: no gradient after, 2: no state before, 3: both there. */
static void
test_inter_bwd (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    for (int variant = 1; variant < 4; variant++) {
      SpCase *c = linear_case (SP_CASE_TENSOR, "linear-inter-bwd", i, variant);
      Shape s = shape_of (c, i);
      SpDevTensor k, v, d, before, after, dq, dk, dv;
      const double *k_in = sp_case_in (c, "keys", SP_DEV_BF16, s.keys, 1, &k);
      const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &v);
      const double *d_in = sp_case_in (c, "d_o", SP_DEV_BF16, s.values, 1, &d);
      const double *b =
          variant & 1 ? sp_case_in (c, "state", SP_DEV_FP32, s.state, 1, &before) : sp_case_in_absent (&before);
      const double *a =
          variant & 2 ? sp_case_in (c, "dstate", SP_DEV_FP32, s.state, 1, &after) : sp_case_in_absent (&after);
      double *dq_out = sp_case_in_out (c, "dq", any (), s.keys, 1, &dq);
      double *dk_out = sp_case_in_out (c, "dkeys", any (), s.keys, 1, &dk);
      sp_ref_linear_inter_bwd (s.ref, s.slopes, k_in, v_in, d_in, b, a, dq_out, dk_out,
                               sp_case_in_out (c, "dvalues", any (), s.values, 1, &dv));
      SP_CASE_RUN (c,
                   sp_dev_linear_inter_bwd (s.dev, s.dev_slopes, k, v, d, before.data, after.data, dq, dk, dv, NULL));
    }
}

/* lambda^m is a power of an fp32 number of up to a thousand: the exponent's rounding counts as that many. */
static void
test_chain (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    for (int variant = 0; variant < 2; variant++) {
      SpCase *c = linear_case (SP_CASE_PLAIN, "state-update", i, variant);
      Shape s = shape_of (c, i);
      SpDevTensor in, own, out;
      const double *before = variant ? sp_case_in (c, "in", SP_DEV_FP32, s.state, 1, &in) : sp_case_in_absent (&in);
      const double *mine = sp_case_in (c, "own", SP_DEV_FP32, s.state, 1, &own);
      sp_ref_state_update (s.ref, s.slopes, before, mine, sp_case_out (c, "out", SP_DEV_FP32, s.state, &out));
      SP_CASE_RUN (c, sp_dev_state_update (s.dev, s.dev_slopes, in.data, own.data, out.data, NULL));
    }
    for (gint64 place = 0; place < 4; place++)
      for (int reverse = 0; reverse < 2; reverse++) {
        SpCase *c = linear_case (SP_CASE_PLAIN, reverse ? "state-prefix, reverse" : "state-prefix", i, (int) place);
        Shape s = shape_of (c, i);
        SpDevTensor states, out;
        const double *all = sp_case_in (c, "states", SP_DEV_FP32, 4 * s.state, 1, &states);
        sp_ref_state_prefix (s.ref, s.slopes, 4, place, reverse, all,
                             sp_case_out (c, "out", SP_DEV_FP32, s.state, &out));
        SP_CASE_RUN (c, sp_dev_state_prefix (s.dev, s.dev_slopes, 4, place, reverse, states.data, out.data, NULL));
      }
  }
}

void
sp_add_linear_cases (void)
{
  sp_case_add ("linear-local", test_local);
  sp_case_add ("linear-local-bwd", test_local_bwd);
  sp_case_add ("linear-inter", test_inter);
  sp_case_add ("linear-inter-bwd", test_inter_bwd);
  sp_case_add ("linear-chain", test_chain);
}
