/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference.h"

/* Row i of c, in i-k-j order: the inner loop runs along rows of c and b, unless b is transposed, where each element is
 * a dot product of two rows. */
static void
gemm_row (gboolean trans_a, gboolean trans_b, gint64 m, gint64 n, gint64 k, gint64 i, const double *a, const double *b,
          double *c_row)
{
  for (gint64 j = 0; trans_b && j < n; j++) {
    double sum = 0;
    for (gint64 l = 0; l < k; l++)
      sum += (trans_a ? a[l * m + i] : a[i * k + l]) * b[j * k + l];
    c_row[j] += sum;
  }

  for (gint64 l = 0; !trans_b && l < k; l++) {
    double a_il = trans_a ? a[l * m + i] : a[i * k + l];
    for (gint64 j = 0; j < n; j++)
      c_row[j] += a_il * b[l * n + j];
  }
}

void
sp_ref_gemm (gboolean trans_a, gboolean trans_b, gboolean accumulate, gint64 batch, gint64 m, gint64 n, gint64 k,
             const double *a, gint64 stride_a, const double *b, gint64 stride_b, const double *bias, gint64 stride_bias,
             double *c, gint64 stride_c)
{
  for (gint64 l = 0; l < batch; l++) {
    const double *bias_l = bias ? bias + l * stride_bias : NULL;

    for (gint64 i = 0; i < m; i++) {
      double *row = c + l * stride_c + i * n;
      for (gint64 j = 0; j < n; j++)
        row[j] = (accumulate ? row[j] : 0.0) + (bias_l ? bias_l[j] : 0.0);
      gemm_row (trans_a, trans_b, m, n, k, i, a + l * stride_a, b + l * stride_b, row);
    }
  }
}
