/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference.h"

#include <math.h>

void
sp_ref_adam (gint64 n, const double *gradient, gint64 step, double rate, double beta1, double beta2, double epsilon,
             double *master, double *moment1, double *moment2, double *parameter)
{
  g_return_if_fail (step >= 1);

  double correction1 = 1 - pow (beta1, step), correction2 = 1 - pow (beta2, step);

  for (gint64 i = 0; i < n; i++) {
    double g = gradient[i];
    moment1[i] = beta1 * moment1[i] + (1 - beta1) * g;
    moment2[i] = beta2 * moment2[i] + (1 - beta2) * g * g;
    master[i] -= rate * (moment1[i] / correction1) / (sqrt (moment2[i] / correction2) + epsilon);
    if (parameter != NULL)
      parameter[i] = master[i];
  }
}

void
sp_ref_momentum (gint64 n, const double *gradient, double beta, double *momentum, double *update)
{
  for (gint64 i = 0; i < n; i++) {
    momentum[i] = beta * momentum[i] + gradient[i];
    update[i] = gradient[i] + beta * momentum[i];
  }
}

/* out[m,n] = a[m,k] op(b), b [n,k] if transposed. */
static void
multiply (gboolean transposed, gint64 m, gint64 n, gint64 k, const double *a, const double *b, double *out)
{
  sp_ref_gemm (FALSE, transposed, FALSE, 1, m, n, k, a, 0, b, 0, NULL, 0, out, 0);
}

static void
transpose (gint64 rows, gint64 cols, const double *x, double *out)
{
  for (gint64 i = 0; i < rows; i++)
    for (gint64 j = 0; j < cols; j++)
      out[j * rows + i] = x[i * cols + j];
}

/* x[m,n], m <= n. */
static void
iterate (gint64 m, gint64 n, double *x)
{
  g_autofree double *a = g_new (double, m * m), *squared = g_new (double, m * m), *product = g_new (double, m * n);

  multiply (TRUE, m, m, n, x, x, a);
  multiply (FALSE, m, m, m, a, a, squared);
  for (gint64 i = 0; i < m * m; i++)
    squared[i] = -4.7750 * a[i] + 2.0315 * squared[i];
  multiply (FALSE, m, n, m, squared, x, product);
  for (gint64 i = 0; i < m * n; i++)
    x[i] = 3.4445 * x[i] + product[i];
}

void
sp_ref_orthogonalize (gint64 rows, gint64 cols, double *x)
{
  g_autofree double *y = g_new (double, rows * cols);
  gboolean tall = rows > cols;
  double sum = 0;

  for (gint64 i = 0; i < rows * cols; i++)
    sum += x[i] * x[i];
  for (gint64 i = 0; i < rows * cols; i++)
    x[i] /= sqrt (sum) + 1e-7;
  if (tall) {
    transpose (rows, cols, x, y);
    for (guint i = 0; i < 5; i++)
      iterate (cols, rows, y);
    transpose (cols, rows, y, x);
    return;
  }
  for (guint i = 0; i < 5; i++)
    iterate (rows, cols, x);
}

void
sp_ref_descend (gint64 n, const double *update, double rate, double *master, double *parameter)
{
  for (gint64 i = 0; i < n; i++) {
    master[i] -= rate * update[i];
    parameter[i] = master[i];
  }
}
