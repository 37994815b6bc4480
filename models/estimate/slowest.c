/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/slowest.h"

#include <math.h>

/* Of the most of n: that of one times that of all others below it. */
static double
density (double x, gint32 n)
{
  return n * exp (-x * x / 2) / sqrt (2 * G_PI) * pow (erfc (-x * G_SQRT2 / 2) / 2, n - 1);
}

/* A sum over a grid is as good as the integral here: the density is smooth and falls off at both ends. */
SpSlowest
sp_slowest_of (gint32 n)
{
  enum { A_UNIT = 16, END = 9 }; /* points; 1e-19 of one card are beyond */
  double sum = 0, square = 0;

  g_return_val_if_fail (n >= 1, ((SpSlowest){ 0, 1 }));
  if (n == 1)
    return (SpSlowest){ 0, 1 };
  for (int i = -END * A_UNIT; i <= END * A_UNIT; i++) {
    double x = (double) i / A_UNIT, share = density (x, n) / A_UNIT;
    sum += share * x;
    square += share * x * x;
  }
  return (SpSlowest){ sum, sqrt (square - sum * sum) };
}
