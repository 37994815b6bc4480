/* SPDX-License-Identifier: Apache-2.0 */
/* What other libraries' attention wants in another form. */
#include "kernels/cases/case.h"

#include <math.h>

static const gint64 row_shapes[][3] = { { 1, 1, 0 }, { 1, 40, 1 }, { 33, 31, 0 }, { 64, 96, 20 }, { 300, 5, 299 } };

static void
test_by_head (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (row_shapes); i++) {
    gint64 m = row_shapes[i][0], heads = row_shapes[i][1];
    SpDevTensor x, out;
    SpCase *c = sp_case_new (SP_CASE_EXACT, "attention-by-head", "m = %d, heads = %d", (int) m, (int) heads);
    const double *x_in = sp_case_in (c, "x", SP_DEV_FP32, m * heads, 1, &x);
    double *expected = sp_case_out (c, "out", SP_DEV_FP32, m * heads, &out);
    for (gint64 l = 0; l < m * heads; l++)
      expected[l % heads * m + l / heads] = x_in[l];
    SP_CASE_RUN (c, sp_dev_attention_by_head (m, heads, x.data, out.data, NULL));
  }
}

static void
test_by_row (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (row_shapes); i++) {
    gint64 m = row_shapes[i][0], heads = row_shapes[i][1], hidden = row_shapes[i][2], seen = m - hidden;
    SpDevTensor x, out;
    SpCase *c = sp_case_new (SP_CASE_EXACT, "attention-by-row", "m = %d, heads = %d, hidden = %d", (int) m, (int) heads,
                             (int) hidden);
    const double *x_in = sp_case_in (c, "x", SP_DEV_FP32, seen * heads, 1, &x);
    double *expected = sp_case_out (c, "out", SP_DEV_FP32, m * heads, &out);
    for (gint64 l = 0; l < m * heads; l++)
      expected[l] = l < hidden * heads ? -INFINITY : x_in[l % heads * seen + l / heads - hidden];
    SP_CASE_RUN (c, sp_dev_attention_by_row (m, heads, hidden, x.data, out.data, NULL));
  }
}

/* Gradients of ordinary size, and of one whose square is no fp32 number. */
static void
test_stand_in (void)
{
  static const gint64 shapes[][2] = { { 1, 8 }, { 9, 7 }, { 24, 64 }, { 300, 128 }, { 66, 300 } };

  for (guint i = 0; i < 2 * G_N_ELEMENTS (shapes); i++) {
    gint64 rows = shapes[i / 2][0], k = shapes[i / 2][1];
    SpDevTensor d_o, delta, o;
    SpCase *c = sp_case_new (SP_CASE_PLAIN, "attention-stand-in", "rows = %d, k = %d", (int) rows, (int) k);
    g_autofree double *values = g_new (double, rows *k);
    double scale = i % 2 ? 1e-25 : 1;
    for (gint64 l = 0; l < rows * k; l++) /* a row of zeros has no delta */
      values[l] = l / k % 5 == 4 ? 0 : scale * sp_case_between (-1, 1);
    const double *d_in = sp_case_in_values (c, "d_o", SP_DEV_BF16, rows * k, values, &d_o);
    const double *delta_in = sp_case_in (c, "delta", SP_DEV_FP32, rows, scale, &delta);
    double *expected = sp_case_out (c, "o", SP_DEV_BF16, rows * k, &o);
    for (gint64 r = 0; r < rows; r++) {
      double squares = 0;
      for (gint64 j = 0; j < k; j++)
        squares += d_in[r * k + j] * d_in[r * k + j];
      for (gint64 j = 0; j < k; j++)
        expected[r * k + j] = squares > 0 ? d_in[r * k + j] * delta_in[r] / squares : 0;
    }
    SP_CASE_RUN (c, sp_dev_attention_stand_in (rows, k, d_o, delta.data, o, NULL));
  }
}

void
sp_add_library_cases (void)
{
  sp_case_add ("attention-by-head", test_by_head);
  sp_case_add ("attention-by-row", test_by_row);
  sp_case_add ("attention-stand-in", test_stand_in);
}
