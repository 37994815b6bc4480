/* SPDX-License-Identifier: Apache-2.0 */
/* Between projections and attention. */
#include "kernels/cases/case.h"

/* --- rotary embedding --------------------------------------------------------------------------------------------- */

typedef struct {
  gint64 m, k, heads, kv_heads, rotated;
  gboolean has_gains, has_gate;
} Rope;

static const Rope ropes[] = {
  { 1, 2, 1, 1, 2, FALSE, FALSE },       { 5, 64, 4, 2, 64, FALSE, FALSE },   { 7, 64, 3, 1, 0, FALSE, TRUE },
  { 9, 128, 4, 4, 32, FALSE, TRUE },     { 5, 40, 4, 2, 24, FALSE, FALSE },   { 6, 24, 2, 1, 16, TRUE, FALSE },
  { 7, 128, 4, 2, 128, TRUE, TRUE },     { 300, 16, 3, 1, 10, TRUE, FALSE },  { 265, 6, 2, 2, 4, TRUE, TRUE },
  { 3, 256, 5, 1, 64, TRUE, FALSE },     { 6, 64, 4, 2, 0, TRUE, FALSE },     { 600, 64, 3, 1, 64, TRUE, FALSE },
  { 33, 512, 2, 1, 512, TRUE, TRUE },    { 265, 32, 2, 2, 32, TRUE, FALSE },  { 3000, 64, 6, 2, 64, TRUE, TRUE },
  { 70, 64, 6, 2, 64, FALSE, TRUE },     { 6000, 32, 2, 1, 32, TRUE, FALSE }, { 9, 128, 64, 8, 128, TRUE, TRUE },
  { 11, 128, 64, 8, 128, FALSE, FALSE },
};

static SpCase *
rope_case (const char *kernel, const Rope *r)
{
  return sp_case_new (SP_CASE_PLAIN, kernel,
                      "m = %" G_GINT64_FORMAT ", k = %" G_GINT64_FORMAT ", heads = %" G_GINT64_FORMAT
                      ", kv_heads = %" G_GINT64_FORMAT ", rotated = %" G_GINT64_FORMAT "%s%s",
                      r->m, r->k, r->heads, r->kv_heads, r->rotated, r->has_gains ? ", norms" : "",
                      r->has_gate ? ", gate" : "");
}

/* Positions up to a million tokens: angles of many turns. */
static const gint64 *
positions (SpCase *c, gint64 m, const int32_t **ret)
{
  g_autofree gint64 *values = g_new (gint64, m);

  for (gint64 i = 0; i < m; i++)
    values[i] = i % 2 ? sp_case_below (1 << 20) : i;
  return sp_case_ids (c, "positions", m, values, ret);
}

typedef struct {
  SpRefShape shape;
  SpDevShape dev_shape;
  SpRefHeads how;
  SpDevHeads dev_how;
  gint64 both, kv, qkv;
} RopeShape;

static RopeShape
rope_shape (SpCase *c, const Rope *r)
{
  gint64 gate = r->has_gate ? r->heads * r->k : 0, both = r->heads + r->kv_heads;
  RopeShape s = {
    .shape = { .m = r->m, .k = r->k, .heads = r->heads, .kv_heads = r->kv_heads },
    .dev_shape = { .m = r->m, .k = r->k, .heads = r->heads, .kv_heads = r->kv_heads },
    .how = { .rotated = r->rotated, .gate = gate, .theta = 10000, .epsilon = 1e-6 },
    .dev_how = { .rotated = r->rotated, .gate = gate, .theta = 10000, .epsilon = 1e-6 },
    .both = r->m * both,
    .kv = r->m * r->kv_heads * r->k,
    .qkv = r->m * ((both + r->kv_heads) * r->k + gate),
  };

  if (r->has_gains) {
    s.how.q_gain = sp_case_in (c, "q gain", sp_case_dtype (), r->k, 1, &s.dev_how.q_gain);
    s.how.key_gain = sp_case_in (c, "key gain", sp_case_dtype (), r->k, 1, &s.dev_how.key_gain);
  }
  return s;
}

static void
test_rope (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (ropes); i++) {
    const Rope *r = &ropes[i];
    SpCase *c = rope_case ("rope", r);
    RopeShape s = rope_shape (c, r);
    const int32_t *dev_pos;
    SpDevTensor qkv, q, keys, values, stat;
    const double *in = sp_case_in (c, "qkv", sp_case_dtype (), s.qkv, 1, &qkv);
    const gint64 *pos = positions (c, r->m, &dev_pos);
    double *q_out = sp_case_out (c, "q", sp_case_dtype (), r->m * r->heads * r->k, &q);
    double *k_out = sp_case_out (c, "keys", sp_case_dtype (), s.kv, &keys),
           *v_out = sp_case_out (c, "values", sp_case_dtype (), s.kv, &values);
    double *stats = NULL;
    if (r->has_gains)
      stats = sp_case_out (c, "stat", SP_DEV_FP32, s.both, &stat);
    else
      sp_case_in_absent (&stat);
    sp_ref_rope (s.shape, &s.how, in, pos, q_out, k_out, v_out, stats);
    SP_CASE_RUN (c, sp_dev_rope (s.dev_shape, &s.dev_how, qkv, dev_pos, q, keys, values, stat.data, NULL));
  }
}

static void
test_rope_bwd (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (ropes); i++) {
    const Rope *r = &ropes[i];
    SpCase *c = rope_case ("rope-bwd", r);
    RopeShape s = rope_shape (c, r);
    gint64 q_n = r->m * r->heads * r->k;
    const int32_t *dev_pos;
    SpDevTensor dq, dkeys, dvalues, qkv, stat, du, dqkv, dq_gain, dkey_gain;
    const double *dq_in = sp_case_in (c, "dq", sp_case_dtype (), q_n, 1, &dq),
                 *dk_in = sp_case_in (c, "dkeys", sp_case_dtype (), s.kv, 1, &dkeys);
    const double *dv_in = sp_case_in (c, "dvalues", sp_case_dtype (), s.kv, 1, &dvalues);
    const double *in = sp_case_in (c, "qkv", sp_case_dtype (), s.qkv, 1, &qkv);
    const gint64 *pos = positions (c, r->m, &dev_pos);
    const double *du_in =
        r->has_gate ? sp_case_in (c, "du", sp_case_dtype (), s.how.gate * r->m, 1, &du) : sp_case_in_absent (&du);
    const double *stats = sp_case_in_absent (&stat);
    double *q_sum = NULL, *k_sum = NULL;
    sp_case_in_absent (&dq_gain);
    sp_case_in_absent (&dkey_gain);
    if (r->has_gains) {
      double *q = sp_case_numbers (c, q_n), *k = sp_case_numbers (c, s.kv), *v = sp_case_numbers (c, s.kv);
      double *forward = sp_case_numbers (c, s.both);
      sp_ref_rope (s.shape, &s.how, in, pos, q, k, v, forward);
      stats = sp_case_in_values (c, "stat", SP_DEV_FP32, s.both, forward, &stat);
      q_sum = sp_case_in_out (c, "dq_gain", sp_case_dtype (), r->k, 1, &dq_gain);
      k_sum = sp_case_in_out (c, "dkey_gain", sp_case_dtype (), r->k, 1, &dkey_gain);
    }
    void *scratch = sp_case_scratch (c, sp_dev_rope_bwd_scratch_bytes (s.dev_shape, &s.dev_how));
    sp_ref_rope_bwd (s.shape, &s.how, dq_in, dk_in, dv_in, in, stats, du_in, pos,
                     sp_case_out (c, "dqkv", sp_case_dtype (), s.qkv, &dqkv), q_sum, k_sum);
    SP_CASE_RUN (c, sp_dev_rope_bwd (s.dev_shape, &s.dev_how, dq, dkeys, dvalues, qkv, stat.data, du, dev_pos, dqkv,
                                     dq_gain, dkey_gain, scratch, NULL));
  }
}

/* --- pieces: numbers are moved, so that nothing may differ -------------------------------------------------------- */

static void
test_split_join (void)
{
  static const gint64 shapes[][3] = { { 1, 1, 1 }, { 5, 8, 16 }, { 7, 3, 8 }, { 40, 64, 24 }, { 3, 1000, 24 } };

  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    gint64 m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
    SpDevTensor x, a, b;
    SpCase *c = sp_case_new (SP_CASE_EXACT, "split", "shape %u", i);
    const double *in = sp_case_in (c, "x", SP_DEV_BF16, m * (n + k), 1, &x);
    double *out = sp_case_out (c, "a", sp_case_dtype (), m * n, &a);
    sp_ref_split (m, n, k, in, out, sp_case_out (c, "b", sp_case_dtype (), m * k, &b));
    SP_CASE_RUN (c, sp_dev_split (m, n, k, x, a, b, NULL));

    c = sp_case_new (SP_CASE_EXACT, "join", "shape %u", i);
    in = sp_case_in (c, "a", SP_DEV_BF16, m * n, 1, &a);
    const double *in_b = sp_case_in (c, "b", SP_DEV_BF16, m * k, 1, &b);
    sp_ref_join (m, n, k, in, in_b, sp_case_out (c, "x", sp_case_dtype (), m * (n + k), &x));
    SP_CASE_RUN (c, sp_dev_join (m, n, k, a, b, x, NULL));
  }
}

/* Ranks, features of a part, parts: as many parts as ranks, or fewer, which are then repeated. */
static void
test_pack (void)
{
  static const gint64 shapes[][4] = {
    { 1, 1, 1, 1 }, { 5, 4, 8, 4 }, { 9, 4, 24, 2 }, { 6, 8, 7, 1 }, { 33, 2, 64, 2 }
  };

  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    gint64 m = shapes[i][0], n = shapes[i][1], k = shapes[i][2], parts = shapes[i][3];
    SpDevTensor x, out;
    SpCase *c = sp_case_new (SP_CASE_EXACT, "pack", "shape %u", i);
    const double *in = sp_case_in (c, "x", SP_DEV_BF16, m * parts * k, 1, &x);
    sp_ref_pack (m, n, k, parts, in, sp_case_out (c, "out", sp_case_dtype (), n * m * k, &out));
    SP_CASE_RUN (c, sp_dev_pack (m, n, k, parts, x, out, NULL));

    c = sp_case_new (SP_CASE_PLAIN, "unpack", "shape %u", i);
    in = sp_case_in (c, "in", sp_case_dtype (), n * m * k, 1, &x);
    sp_ref_unpack (m, n, k, parts, in, sp_case_out (c, "x", sp_case_dtype (), m * parts * k, &out));
    SP_CASE_RUN (c, sp_dev_unpack (m, n, k, parts, x, out, NULL));

    for (gint64 place = 0; place < n; place++) {
      c = sp_case_new (SP_CASE_EXACT, "part", "shape %u, place %" G_GINT64_FORMAT, i, place);
      in = sp_case_in (c, "x", SP_DEV_BF16, m * k * n, 1, &x);
      sp_ref_part (m, k, n, place, in, sp_case_out (c, "out", sp_case_dtype (), m * k, &out));
      SP_CASE_RUN (c, sp_dev_part (m, k, n, place, x, out, NULL));
    }
  }
}

static void
test_feature (void)
{
  static const gint64 shapes[][2] = { { 1, 1 }, { 7, 24 }, { 9, 5 }, { 30, 256 } };

  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    gint64 m = shapes[i][0], w = shapes[i][1];
    SpDevTensor x, q, k, v, dq, dk, dv, du;
    SpCase *c = sp_case_new (SP_CASE_PLAIN, "feature", "shape %u", i);
    const double *in = sp_case_in (c, "qkvu", sp_case_dtype (), 4 * m * w, 3, &x);
    double *q_out = sp_case_out (c, "q", sp_case_dtype (), m * w, &q),
           *k_out = sp_case_out (c, "keys", sp_case_dtype (), m * w, &k);
    sp_ref_feature (m, w, in, q_out, k_out, sp_case_out (c, "values", sp_case_dtype (), m * w, &v));
    SP_CASE_RUN (c, sp_dev_feature (m, w, x, q, k, v, NULL));

    c = sp_case_new (SP_CASE_PLAIN, "feature-bwd", "shape %u", i);
    in = sp_case_in (c, "qkvu", sp_case_dtype (), 4 * m * w, 3, &x);
    const double *a = sp_case_in (c, "dq", sp_case_dtype (), m * w, 1, &dq),
                 *b = sp_case_in (c, "dkeys", sp_case_dtype (), m * w, 1, &dk);
    const double *e = sp_case_in (c, "dvalues", sp_case_dtype (), m * w, 1, &dv),
                 *f = sp_case_in (c, "du", sp_case_dtype (), m * w, 1, &du);
    SpDevTensor out;
    sp_ref_feature_bwd (m, w, in, a, b, e, f, sp_case_out (c, "dqkvu", sp_case_dtype (), 4 * m * w, &out));
    SP_CASE_RUN (c, sp_dev_feature_bwd (m, w, x, dq, dk, dv, du, out, NULL));
  }
}

void
sp_add_layout_cases (void)
{
  sp_case_add ("rope", test_rope);
  sp_case_add ("rope-bwd", test_rope_bwd);
  sp_case_add ("split-join", test_split_join);
  sp_case_add ("pack-unpack-part", test_pack);
  sp_case_add ("feature", test_feature);
}
