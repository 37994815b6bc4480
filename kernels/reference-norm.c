/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference.h"

#include <math.h>

static double
sum_of_squares_of (gint64 n, const double *x, double mean)
{
  double sum = 0;
  for (gint64 j = 0; j < n; j++)
    sum += (x[j] - mean) * (x[j] - mean);
  return sum;
}

/* sum of dy gain x */
static double
dot_of (gint64 n, const double *dy, const double *x, const double *gain)
{
  double sum = 0;
  for (gint64 j = 0; j < n; j++)
    sum += dy[j] * (gain ? gain[j] : 1.0) * x[j];
  return sum;
}

void
sp_ref_norm (gboolean layernorm, gint64 m, gint64 n, gint64 whole, const double *x, const double *gain,
             const double *bias, const double *sum_of_squares, double epsilon, double *y, double *stat)
{
  g_return_if_fail (sum_of_squares ? !layernorm : whole == n);

  for (gint64 i = 0; i < m; i++) {
    const double *row = x + i * n;
    double mean = 0;

    for (gint64 j = 0; layernorm && j < n; j++)
      mean += row[j] / n;
    double squares = sum_of_squares ? sum_of_squares[i] : sum_of_squares_of (n, row, mean);
    double r = 1 / sqrt (squares / whole + epsilon);

    for (gint64 j = 0; j < n; j++)
      y[i * n + j] = (gain ? gain[j] : 1.0) * (row[j] - mean) * r + (bias ? bias[j] : 0.0);
    if (layernorm) {
      stat[i] = mean;
      stat[m + i] = r;
    } else {
      stat[i] = r;
    }
  }
}

void
sp_ref_norm_stat (gint64 m, gint64 n, const double *x, double *sum_of_squares)
{
  for (gint64 i = 0; i < m; i++)
    sum_of_squares[i] = sum_of_squares_of (n, x + i * n, 0);
}

/*
 * Both forms are dx = r (g - shift - z * mean of g z) with g = gain dy, z = (x - mean) r and means over the whole row;
 * LayerNorm has shift = mean of g (the mean's own gradient), RMS has mean = shift = 0. The RMS form of the header is
 * this one with z = x r written out: r z * mean of g z = x r^3 / whole * dot.
 */
void
sp_ref_norm_bwd (gboolean layernorm, gint64 m, gint64 n, gint64 whole, const double *dy, const double *x,
                 const double *stat, const double *gain, const double *dr, const double *dot, double *dx, double *dgain,
                 double *dbias)
{
  g_return_if_fail (dot ? !layernorm : whole == n);

  for (gint64 i = 0; i < m; i++) {
    const double *dy_row = dy + i * n, *x_row = x + i * n;
    double mean = layernorm ? stat[i] : 0.0;
    double r = layernorm ? stat[m + i] : stat[i];
    double shift = 0, mean_gz = 0;

    if (dot)
      mean_gz = dot[i] * r / whole;
    for (gint64 j = 0; j < n; j++) {
      double g = (gain ? gain[j] : 1.0) * dy_row[j], z = (x_row[j] - mean) * r;
      if (layernorm)
        shift += g / n;
      if (!dot)
        mean_gz += g * z / whole;
      if (dgain)
        dgain[j] += dy_row[j] * z;
      if (dbias)
        dbias[j] += dy_row[j];
    }

    for (gint64 j = 0; j < n; j++) {
      double g = (gain ? gain[j] : 1.0) * dy_row[j], z = (x_row[j] - mean) * r;
      dx[i * n + j] = r * (g - shift - z * mean_gz) + (dr ? dr[i * n + j] : 0.0);
    }
  }
}

void
sp_ref_norm_stat_bwd (gint64 m, gint64 n, const double *dy, const double *x, const double *gain, double *dot)
{
  for (gint64 i = 0; i < m; i++)
    dot[i] = dot_of (n, dy + i * n, x + i * n, gain);
}
