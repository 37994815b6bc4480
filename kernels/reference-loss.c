/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference.h"

#include <math.h>

/* Column of the label in this part, or -1. */
static inline gint64
target_column (gint64 label, gint64 first, gint64 n)
{
  return label >= first && label < first + n ? label - first : -1;
}

void
sp_ref_loss_max (gint64 m, gint64 n, const double *logits, double *max)
{
  for (gint64 i = 0; i < m; i++) {
    max[i] = -INFINITY;
    for (gint64 j = 0; j < n; j++)
      max[i] = fmax (max[i], logits[i * n + j]);
  }
}

void
sp_ref_loss_sum (gint64 m, gint64 n, const double *logits, const double *max, const gint64 *labels, gint64 first,
                 double *sums)
{
  for (gint64 i = 0; i < m; i++) {
    gint64 target = target_column (labels[i], first, n);
    double sum = 0;

    for (gint64 j = 0; j < n; j++)
      sum += exp (logits[i * n + j] - max[i]);
    sums[2 * i] = sum;
    sums[2 * i + 1] = target >= 0 ? logits[i * n + target] : 0.0;
  }
}

void
sp_ref_loss (gint64 m, gint64 n, const double *logits, const double *max, const double *sums, const gint64 *labels,
             gint64 first, const double *weights, double *ret_loss, double *dlogits)
{
  double loss = 0;

  for (gint64 i = 0; i < m; i++) {
    gint64 target = target_column (labels[i], first, n);
    double sum = sums[2 * i], target_logit = sums[2 * i + 1];

    loss += weights[i] * (max[i] + log (sum) - target_logit);
    for (gint64 j = 0; j < n; j++)
      dlogits[i * n + j] = weights[i] * (exp (logits[i * n + j] - max[i]) / sum - (j == target ? 1.0 : 0.0));
  }
  if (ret_loss)
    *ret_loss = loss;
}
