/* SPDX-License-Identifier: Apache-2.0 */
/* Norms, column sums and the optimizer. */
#include "kernels/cases/case.h"

/* As many rows as blocks have, one more, and more than each gets one of, also more than it has on their way; rows that a
 * warp holds, a block, in one to eight pieces a thread, and none. Narrow ones first: what a wide row asks of a kernel stays
 * with it, as shared memory does. */
static const struct {
  gint64 m, n;
} shapes[] = { { 1, 1 },     { 3, 7 },    { 5, 64 },    { 264, 40 },  { 265, 33 },  { 600, 96 },
               { 6400, 64 }, { 5, 504 },  { 9, 1024 },  { 17, 2048 }, { 3, 2056 },  { 1600, 2056 },
               { 3, 4096 },  { 2, 8192 }, { 3, 12296 }, { 2, 13001 }, { 2, 16392 }, { 1, 32776 } };

enum { GAIN = 1, BIAS = 2, LAYERNORM = 4, SPLIT = 8, RESIDUAL = 16 };

/* Split: these n features are half of the row's. */
static gint64
whole_of (int variant, gint64 n)
{
  return variant & SPLIT ? 2 * n : n;
}

static SpCase *
new_case (const char *kernel, gint64 m, gint64 n, int variant)
{
  return sp_case_new (SP_CASE_PLAIN, kernel, "m = %" G_GINT64_FORMAT ", n = %" G_GINT64_FORMAT "%s%s%s%s%s", m, n,
                      variant & LAYERNORM ? ", layernorm" : "", variant & GAIN ? ", gain" : "",
                      variant & BIAS ? ", bias" : "", variant & SPLIT ? ", split" : "",
                      variant & RESIDUAL ? ", residual" : "");
}

static void
check_norm (gint64 m, gint64 n, int variant)
{
  gboolean layernorm = (variant & LAYERNORM) != 0;
  SpDevTensor x, gain, bias, squares, y, stat;
  SpCase *c = new_case ("norm", m, n, variant);
  const double *in = sp_case_in (c, "x", sp_case_dtype (), m * n, 2, &x);
  const double *g = variant & GAIN ? sp_case_in (c, "gain", sp_case_dtype (), n, 1, &gain) : sp_case_in_absent (&gain);
  const double *b = variant & BIAS ? sp_case_in (c, "bias", sp_case_dtype (), n, 1, &bias) : sp_case_in_absent (&bias);
  double *sums = sp_case_numbers (c, m);

  sp_ref_norm_stat (m, n, in, sums);
  for (gint64 i = 0; i < m; i++)
    sums[i] *= 2;
  const double *s =
      variant & SPLIT ? sp_case_in_values (c, "squares", SP_DEV_FP32, m, sums, &squares) : sp_case_in_absent (&squares);
  double *out = sp_case_out (c, "y", sp_case_dtype (), m * n, &y);
  sp_ref_norm (layernorm, m, n, whole_of (variant, n), in, g, b, s, 1e-5, out,
               sp_case_out (c, "stat", SP_DEV_FP32, layernorm ? 2 * m : m, &stat));
  SP_CASE_RUN (
      c, sp_dev_norm (layernorm, m, n, whole_of (variant, n), x, gain, bias, squares.data, 1e-5, y, stat.data, NULL));
}

static void
check_norm_bwd (gint64 m, gint64 n, int variant)
{
  gboolean layernorm = (variant & LAYERNORM) != 0;
  gint64 whole = whole_of (variant, n);
  SpDevTensor dy, x, stat, gain, dr, dot, dx, dgain, dbias;
  SpCase *c = new_case ("norm-bwd", m, n, variant);
  const double *d = sp_case_in (c, "dy", sp_case_dtype (), m * n, 1, &dy),
               *in = sp_case_in (c, "x", sp_case_dtype (), m * n, 2, &x);
  const double *g = variant & GAIN ? sp_case_in (c, "gain", sp_case_dtype (), n, 1, &gain) : sp_case_in_absent (&gain);
  const double *past =
      variant & RESIDUAL ? sp_case_in (c, "dr", sp_case_dtype (), m * n, 1, &dr) : sp_case_in_absent (&dr);
  double *stats = sp_case_numbers (c, 2 * m), *dots = sp_case_numbers (c, m), *y = sp_case_numbers (c, m * n);

  sp_ref_norm (layernorm, m, n, n, in, NULL, NULL, NULL, 1e-5, y, stats);
  const double *r = sp_case_in_values (c, "stat", SP_DEV_FP32, layernorm ? 2 * m : m, stats, &stat);
  sp_ref_norm_stat_bwd (m, n, d, in, g, dots);
  const double *s =
      variant & SPLIT ? sp_case_in_values (c, "dot", SP_DEV_FP32, m, dots, &dot) : sp_case_in_absent (&dot);
  double *out = sp_case_out (c, "dx", sp_case_dtype (), m * n, &dx), *sum_gain = NULL, *sum_bias = NULL;
  sp_case_in_absent (&dgain);
  sp_case_in_absent (&dbias);
  if (variant & GAIN)
    sum_gain = sp_case_in_out (c, "dgain", sp_case_dtype (), n, 1, &dgain);
  if (variant & BIAS)
    sum_bias = sp_case_in_out (c, "dbias", sp_case_dtype (), n, 1, &dbias);
  void *scratch = sp_case_scratch (c, sp_dev_norm_bwd_scratch_bytes (m, n));
  sp_ref_norm_bwd (layernorm, m, n, whole, d, in, r, g, past, s, out, sum_gain, sum_bias);
  SP_CASE_RUN (c, sp_dev_norm_bwd (layernorm, m, n, whole, dy, x, stat.data, gain, dr, dot.data, dx, dgain, dbias,
                                   scratch, NULL));
}

static void
test_norm (void)
{
  static const int variants[] = { 0, GAIN, GAIN | SPLIT, GAIN | BIAS, LAYERNORM, LAYERNORM | GAIN | BIAS };

  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    for (guint v = 0; v < G_N_ELEMENTS (variants); v++)
      check_norm (shapes[i].m, shapes[i].n, variants[v]);
}

static void
test_norm_bwd (void)
{
  static const int variants[] = {
    0, GAIN, GAIN | SPLIT, GAIN | RESIDUAL, LAYERNORM, LAYERNORM | GAIN | BIAS, LAYERNORM | GAIN | BIAS | RESIDUAL
  };

  /* Not of one feature: a norm makes it 1 or 0, and the gradient is what rounding leaves of 0. */
  for (guint i = 1; i < G_N_ELEMENTS (shapes); i++)
    for (guint v = 0; v < G_N_ELEMENTS (variants); v++)
      check_norm_bwd (shapes[i].m, shapes[i].n, variants[v]);
}

static void
test_norm_stat (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    gint64 m = shapes[i].m, n = shapes[i].n;
    SpDevTensor x, dy, gain, sums;
    SpCase *c = new_case ("norm-stat", m, n, 0);
    const double *in = sp_case_in (c, "x", sp_case_dtype (), m * n, 2, &x);
    sp_ref_norm_stat (m, n, in, sp_case_out (c, "squares", SP_DEV_FP32, m, &sums));
    SP_CASE_RUN (c, sp_dev_norm_stat (m, n, x, sums.data, NULL));

    c = new_case ("norm-stat-bwd", m, n, i % 2 ? GAIN : 0);
    in = sp_case_in (c, "x", sp_case_dtype (), m * n, 2, &x);
    const double *d = sp_case_in (c, "dy", sp_case_dtype (), m * n, 1, &dy);
    const double *g = i % 2 ? sp_case_in (c, "gain", sp_case_dtype (), n, 1, &gain) : sp_case_in_absent (&gain);
    sp_ref_norm_stat_bwd (m, n, d, in, g, sp_case_out (c, "dot", SP_DEV_FP32, m, &sums));
    SP_CASE_RUN (c, sp_dev_norm_stat_bwd (m, n, dy, x, gain, sums.data, NULL));
  }
}

static void
check_column_sum (gint64 batch, gint64 m, gint64 n)
{
  SpDevTensor x, out;
  SpCase *c = new_case ("column-sum", m, n, 0);
  const double *in = sp_case_in (c, "x", sp_case_dtype (), batch * m * n, 1, &x);
  double *sums = sp_case_in_out (c, "out", sp_case_dtype (), batch * n, 1, &out);
  void *scratch = sp_case_scratch (c, sp_dev_column_sum_scratch_bytes (batch, m, n));

  for (gint64 b = 0; b < batch; b++)
    sp_ref_column_sum (m, n, in + b * m * n, sums + b * n);
  SP_CASE_RUN (c, sp_dev_column_sum (batch, m, n, x, out, scratch, NULL));
}

static void
test_column_sum (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    for (gint64 batch = 1; batch < 4; batch += 2)
      check_column_sum (batch, shapes[i].m, shapes[i].n);
  check_column_sum (1, 1300, 3400); /* more rows than a block of the wide ones has at once */
}

/* Steps 1 and 1000, so that the corrections are far from 1 and near it. */
static void
test_adam (void)
{
  for (gint64 n = 1; n < 5000; n = 5 * n + 3)
    for (int variant = 0; variant < 8; variant++) {
      gint64 step = variant & 1 ? 1000 : 1;
      SpDevDtype moments = variant & 2 ? SP_DEV_BF16 : SP_DEV_FP32;
      SpDevTensor gradient, master, moment1, moment2, parameter;
      SpCase *c = sp_case_new (SP_CASE_PLAIN, "adam", "n = %" G_GINT64_FORMAT ", variant %d", n, variant);
      const double *g = sp_case_in (c, "gradient", sp_case_dtype (), n, 1, &gradient);
      double *p = sp_case_in_out (c, "master", SP_DEV_FP32, n, 1, &master);
      double *a = sp_case_in_out (c, "moment1", moments, n, 1, &moment1), *squares = sp_case_numbers (c, n);
      for (gint64 i = 0; i < n; i++)
        squares[i] = sp_case_between (0, 2);
      double *b = sp_case_in_out_values (c, "moment2", moments, n, squares, &moment2);
      double *out = variant & 4 ? sp_case_out (c, "parameter", SP_DEV_BF16, n, &parameter) : NULL;
      if (out == NULL)
        sp_case_in_absent (&parameter);
      sp_ref_adam (n, g, step, 0.125, 0.9, 0.95, 1e-8, p, a, b, out);
      SP_CASE_RUN (c,
                   sp_dev_adam (n, gradient, step, 0.125, 0.9, 0.95, 1e-8, master, moment1, moment2, parameter, NULL));
    }
}

static void
test_muon (void)
{
  for (gint64 n = 1; n < 5000; n = 5 * n + 3) {
    SpDevTensor gradient, momentum, update, master, parameter;
    SpCase *c = sp_case_new (SP_CASE_PLAIN, "momentum", "n = %" G_GINT64_FORMAT, n);
    const double *g = sp_case_in (c, "gradient", sp_case_dtype (), n, 1, &gradient);
    double *a = sp_case_in_out (c, "momentum", SP_DEV_FP32, n, 1, &momentum);
    sp_ref_momentum (n, g, 0.95, a, sp_case_out (c, "update", SP_DEV_BF16, n, &update));
    SP_CASE_RUN (c, sp_dev_momentum (n, gradient, 0.95, momentum, update, NULL));

    c = sp_case_new (SP_CASE_PLAIN, "descend", "n = %" G_GINT64_FORMAT, n);
    g = sp_case_in (c, "update", sp_case_dtype (), n, 1, &update);
    double *p = sp_case_in_out (c, "master", SP_DEV_FP32, n, 1, &master);
    sp_ref_descend (n, g, 0.125, p, sp_case_out (c, "parameter", SP_DEV_BF16, n, &parameter));
    SP_CASE_RUN (c, sp_dev_descend (n, update, 0.125, master, parameter, NULL));
  }
}

void
sp_add_row_cases (void)
{
  sp_case_add ("norm", test_norm);
  sp_case_add ("norm-bwd", test_norm_bwd);
  sp_case_add ("norm-stat", test_norm_stat);
  sp_case_add ("column-sum", test_column_sum);
  sp_case_add ("adam", test_adam);
  sp_case_add ("muon", test_muon);
}
