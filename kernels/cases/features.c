/* SPDX-License-Identifier: Apache-2.0 */
/* Around a recurrence: the short convolution, the maps to q, keys and values, decays, the skip. */
#include "kernels/cases/case.h"

#include <math.h>

/* --- the convolution ---------------------------------------------------------------------------------------------- */

/* Runs of 16 tokens, and of more where all warps of a card have one; fewer tokens than the convolution has. */
static const SpRefConv convs[] = {
  { 1, 1, 8, 4 },  { 2, 2, 16, 4 },    { 16, 1, 24, 4 },  { 17, 1, 8, 3 },    { 40, 3, 40, 2 },   { 33, 2, 7, 4 },
  { 20, 1, 5, 1 }, { 300, 1, 264, 4 }, { 9000, 1, 8, 4 }, { 64, 1, 1544, 4 }, { 80000, 1, 8, 4 },
};

/* Variant 1: with a bias, 2: with rows before. */
static void
check_conv (const SpRefConv *v, int variant)
{
  gint64 n = v->m * v->batch * v->n, halo_n = (v->width - 1) * v->batch * v->n;
  SpCase *c = sp_case_new (SP_CASE_PLAIN, "conv", "m = %d, batch = %d, n = %d, width = %d, variant %d", (int) v->m,
                           (int) v->batch, (int) v->n, (int) v->width, variant);
  SpDevTensor x, weight, bias, halo, out;
  const double *x_in = sp_case_in (c, "x", sp_case_dtype (), n, 1, &x);
  const double *w = sp_case_in (c, "weight", sp_case_dtype (), v->n * v->width, 1, &weight);
  const double *b = variant & 1 ? sp_case_in (c, "bias", sp_case_dtype (), v->n, 1, &bias) : sp_case_in_absent (&bias);
  const double *before =
      variant & 2 ? sp_case_in (c, "halo", sp_case_dtype (), halo_n, 1, &halo) : sp_case_in_absent (&halo);

  sp_ref_conv (v, x_in, w, b, before, sp_case_out (c, "out", sp_case_dtype (), n, &out));
  SP_CASE_RUN (c, sp_dev_conv (v->m, v->batch, v->n, v->width, x, weight, bias, halo, out, NULL));
}

static void
check_conv_bwd (const SpRefConv *v, int variant)
{
  gint64 n = v->m * v->batch * v->n, halo_n = (v->width - 1) * v->batch * v->n;
  SpCase *c = sp_case_new (SP_CASE_PLAIN, "conv-bwd", "m = %d, batch = %d, n = %d, width = %d, variant %d", (int) v->m,
                           (int) v->batch, (int) v->n, (int) v->width, variant);
  SpDevTensor d, x, weight, bias, halo, dx, dweight, dbias, dhalo;
  const double *d_in = sp_case_in (c, "d", sp_case_dtype (), n, 1, &d);
  const double *x_in = sp_case_in (c, "x", sp_case_dtype (), n, 1, &x);
  const double *w = sp_case_in (c, "weight", sp_case_dtype (), v->n * v->width, 1, &weight);
  const double *b = variant & 1 ? sp_case_in (c, "bias", sp_case_dtype (), v->n, 1, &bias) : sp_case_in_absent (&bias);
  const double *before =
      variant & 2 ? sp_case_in (c, "halo", sp_case_dtype (), halo_n, 1, &halo) : sp_case_in_absent (&halo);
  double *dx_out = sp_case_out (c, "dx", sp_case_dtype (), n, &dx);
  double *dw_out = sp_case_in_out (c, "dweight", SP_DEV_FP32, v->n * v->width, 1, &dweight);
  double *db_out = NULL, *dh_out = NULL;

  sp_case_in_absent (&dbias);
  sp_case_in_absent (&dhalo);
  if (variant & 1)
    db_out = sp_case_in_out (c, "dbias", SP_DEV_FP32, v->n, 1, &dbias);
  if (variant & 2)
    dh_out = sp_case_out (c, "dhalo", sp_case_dtype (), halo_n, &dhalo);
  void *scratch = sp_case_scratch (c, sp_dev_conv_bwd_scratch_bytes (v->m, v->batch, v->n, v->width));
  sp_ref_conv_bwd (v, d_in, x_in, w, b, before, dx_out, dw_out, db_out, dh_out);
  SP_CASE_RUN (c, sp_dev_conv_bwd (v->m, v->batch, v->n, v->width, d, x, weight, bias, halo, dx, dweight, dbias, dhalo,
                                   scratch, NULL));
}

static void
test_conv (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (convs); i++)
    for (int variant = 0; variant < 4; variant++) {
      int there = convs[i].width > 1 ? variant : variant & 1;
      check_conv (&convs[i], there);
      check_conv_bwd (&convs[i], there);
    }
}

/* --- the maps ----------------------------------------------------------------------------------------------------- */

static const SpRefShape maps[] = {
  { .m = 1, .k = 8, .n = 8, .heads = 1, .kv_heads = 1 },      { .m = 5, .k = 64, .n = 64, .heads = 4, .kv_heads = 2 },
  { .m = 33, .k = 128, .n = 256, .heads = 2, .kv_heads = 2 }, { .m = 20, .k = 96, .n = 40, .heads = 6, .kv_heads = 1 },
  { .m = 3, .k = 512, .n = 64, .heads = 2, .kv_heads = 1 },   { .m = 7, .k = 6, .n = 3, .heads = 3, .kv_heads = 3 },
};

static const gint64 *
positions_of (SpCase *c, gint64 m, const int32_t **pos)
{
  g_autofree gint64 *values = g_new (gint64, m);

  for (gint64 i = 0; i < m; i++)
    values[i] = sp_case_below (1 << 20);
  return sp_case_ids (c, "positions", m, values, pos);
}

static void
check_map (const SpRefShape *s, guint map, gboolean backward)
{
  gint64 keys = s->m * s->kv_heads * s->k, values = s->m * s->heads * s->n, all = 2 * keys + values;
  SpDevShape dev = { .m = s->m, .n = s->n, .k = s->k, .heads = s->heads, .kv_heads = s->kv_heads };
  SpCase *c = sp_case_new (SP_CASE_PLAIN, backward ? "key-map-bwd" : "key-map",
                           "m = %d, k = %d, n = %d, heads = %d, %d of keys, map %u", (int) s->m, (int) s->k, (int) s->n,
                           (int) s->heads, (int) s->kv_heads, map);
  gboolean has_input = !backward || (map & ~(guint) SP_REF_MAP_ROTATE) != 0;
  SpDevTensor qkv, q, k, v, dqkv;
  const int32_t *pos = NULL;
  const gint64 *at = map & SP_REF_MAP_ROTATE ? positions_of (c, s->m, &pos) : NULL;
  const double *in = has_input ? sp_case_in (c, "qkv", sp_case_dtype (), all, 1, &qkv) : sp_case_in_absent (&qkv);

  if (!backward) {
    double *q_out = sp_case_out (c, "q", sp_case_dtype (), keys, &q);
    double *k_out = sp_case_out (c, "keys", sp_case_dtype (), keys, &k);
    double *v_out = sp_case_out (c, "values", sp_case_dtype (), values, &v);
    sp_ref_key_map (*s, map, in, at, 1e4, q_out, k_out, v_out);
    SP_CASE_RUN (c, sp_dev_key_map (dev, map, qkv, pos, 1e4, q, k, v, NULL));
    return;
  }
  const double *dq = sp_case_in (c, "dq", sp_case_dtype (), keys, 1, &q);
  const double *dk = sp_case_in (c, "dkeys", sp_case_dtype (), keys, 1, &k);
  const double *dv = sp_case_in (c, "dvalues", sp_case_dtype (), values, 1, &v);
  double *out = sp_case_out (c, "dqkv", sp_case_dtype (), all, &dqkv);
  sp_ref_key_map_bwd (*s, map, in != NULL ? in : sp_case_numbers (c, all), dq, dk, dv, at, 1e4, out);
  SP_CASE_RUN (c, sp_dev_key_map_bwd (dev, map, qkv, q, k, v, pos, 1e4, dqkv, NULL));
}

static void
test_map (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (maps); i++)
    for (guint map = 0; map < 16; map++) {
      check_map (&maps[i], map, FALSE);
      check_map (&maps[i], map, TRUE);
    }
}

/* --- decays, and the skip ----------------------------------------------------------------------------------------- */

/* Several heads: what is added up for each has both signs, and of one or two by chance all is next to nothing, with no others
 * to measure the roundings by. */
static const struct {
  gint64 m, heads, each;
} rows[] = { { 1, 9, 1 },   { 7, 11, 1 },     { 265, 16, 1 }, { 40, 64, 1 },
             { 33, 4, 16 }, { 600, 16, 128 }, { 529, 5, 8 },  { 4500, 33, 8 } };

/* Variant 1: with a bias, 2: with rates, and then steps too. */
static void
check_decay (guint i, int variant)
{
  gint64 m = rows[i].m, heads = rows[i].heads, n = heads * rows[i].each;
  gboolean has_rates = (variant & 2) != 0;
  SpCase *c = sp_case_new (SP_CASE_PLAIN, "decay", "m = %d, n = %d, heads = %d, variant %d", (int) m, (int) n,
                           (int) heads, variant);
  SpDevTensor raw, bias, rate, gates, steps;
  const double *x = sp_case_in (c, "raw", sp_case_dtype (), m * n, 3, &raw);
  const double *b = variant & 1 ? sp_case_in (c, "bias", sp_case_dtype (), n, 1, &bias) : sp_case_in_absent (&bias);
  const double *r = has_rates ? sp_case_in (c, "rates", sp_case_dtype (), heads, 1, &rate) : sp_case_in_absent (&rate);
  double *g = sp_case_out (c, "gates", SP_DEV_FP32, m * n, &gates), *s = NULL;

  sp_case_in_absent (&steps);
  if (has_rates)
    s = sp_case_out (c, "steps", SP_DEV_FP32, m * n, &steps);
  sp_ref_decay (m, n, heads, x, b, r, g, s);
  SP_CASE_RUN (c, sp_dev_decay (m, n, heads, raw, bias, rate, gates, steps, NULL));
}

static void
check_decay_bwd (guint i, int variant)
{
  gint64 m = rows[i].m, heads = rows[i].heads, n = heads * rows[i].each;
  gboolean has_rates = (variant & 2) != 0;
  SpCase *c = sp_case_new (SP_CASE_PLAIN, "decay-bwd", "m = %d, n = %d, heads = %d, variant %d", (int) m, (int) n,
                           (int) heads, variant);
  SpDevTensor raw, bias, rate, dgates, dsteps, draw, dbias, drate;
  const double *x = sp_case_in (c, "raw", sp_case_dtype (), m * n, 3, &raw);
  const double *b = variant & 1 ? sp_case_in (c, "bias", sp_case_dtype (), n, 1, &bias) : sp_case_in_absent (&bias);
  const double *r = has_rates ? sp_case_in (c, "rates", sp_case_dtype (), heads, 1, &rate) : sp_case_in_absent (&rate);
  const double *dg = sp_case_in (c, "dgates", SP_DEV_FP32, m * n, 1, &dgates);
  const double *ds = has_rates ? sp_case_in (c, "dsteps", SP_DEV_FP32, m * n, 1, &dsteps) : sp_case_in_absent (&dsteps);
  double *out = sp_case_out (c, "draw", sp_case_dtype (), m * n, &draw), *db = NULL, *dr = NULL;

  sp_case_in_absent (&dbias);
  sp_case_in_absent (&drate);
  if (variant & 1)
    db = sp_case_in_out (c, "dbias", SP_DEV_FP32, n, 1, &dbias);
  if (has_rates)
    dr = sp_case_in_out (c, "drates", SP_DEV_FP32, heads, 1, &drate);
  void *scratch = sp_case_scratch (c, sp_dev_decay_bwd_scratch_bytes (m, n));
  sp_ref_decay_bwd (m, n, heads, x, b, r, dg, ds, out, db, dr);
  SP_CASE_RUN (c, sp_dev_decay_bwd (m, n, heads, raw, bias, rate, dgates, dsteps, draw, dbias, drate, scratch, NULL));
}

static void
test_decay (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    for (int variant = 0; variant < 4; variant++) {
      check_decay (i, variant);
      check_decay_bwd (i, variant);
    }
}

static void
check_skip (guint i, gboolean backward)
{
  gint64 m = rows[i].m, heads = rows[i].heads, n = rows[i].each, all = m * heads * n;
  SpCase *c = sp_case_new (SP_CASE_PLAIN, backward ? "skip-bwd" : "skip", "m = %d, heads = %d, n = %d", (int) m,
                           (int) heads, (int) n);
  SpDevTensor o, v, scale, dv, out, dscale;
  const double *o_in = sp_case_in (c, "o", sp_case_dtype (), all, 1, &o);
  const double *v_in = sp_case_in (c, "values", sp_case_dtype (), all, 1, &v);
  const double *s = sp_case_in (c, "scale", sp_case_dtype (), heads, 1, &scale);

  if (!backward) {
    sp_ref_skip (m, heads, n, o_in, v_in, s, sp_case_out (c, "out", sp_case_dtype (), all, &out));
    SP_CASE_RUN (c, sp_dev_skip (m, heads, n, o, v, scale, out, NULL));
    return;
  }
  const double *dv_in = sp_case_in (c, "dvalues", sp_case_dtype (), all, 1, &dv);
  double *dv_out = sp_case_out (c, "out", sp_case_dtype (), all, &out);
  double *ds_out = sp_case_in_out (c, "dscale", SP_DEV_FP32, heads, 1, &dscale);
  void *scratch = sp_case_scratch (c, sp_dev_skip_bwd_scratch_bytes (m, heads));
  sp_ref_skip_bwd (m, heads, n, o_in, v_in, s, dv_in, dv_out, ds_out);
  SP_CASE_RUN (c, sp_dev_skip_bwd (m, heads, n, o, v, scale, dv, out, dscale, scratch, NULL));
}

static void
test_skip (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    check_skip (i, FALSE);
    check_skip (i, TRUE);
  }
}

void
sp_add_feature_cases (void)
{
  sp_case_add ("conv", test_conv);
  sp_case_add ("key-map", test_map);
  sp_case_add ("decay", test_decay);
  sp_case_add ("skip", test_skip);
}
