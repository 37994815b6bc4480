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
