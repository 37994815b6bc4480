/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference.h"
#include "kernels/reference-private.h"

#include <string.h>

/* Row t < 0 is one of the halo's width - 1 rows, the last of them t = -1. */
static const double *
row_at (const SpRefConv *c, const double *x, const double *halo, gint64 t, gint64 b)
{
  if (t >= 0)
    return x + (t * c->batch + b) * c->n;
  return halo ? halo + ((t + c->width - 1) * c->batch + b) * c->n : NULL;
}

static double
conv_sum (const SpRefConv *c, const double *x, const double *weight, const double *bias, const double *halo, gint64 t,
          gint64 b, gint64 f)
{
  double sum = bias ? bias[f] : 0;

  for (gint64 j = 0; j < c->width; j++) {
    const double *row = row_at (c, x, halo, t - c->width + 1 + j, b);
    sum += row ? weight[f * c->width + j] * row[f] : 0;
  }
  return sum;
}

void
sp_ref_conv (const SpRefConv *c, const double *x, const double *weight, const double *bias, const double *halo,
             double *out)
{
  for (gint64 t = 0; t < c->m; t++)
    for (gint64 b = 0; b < c->batch; b++)
      for (gint64 f = 0; f < c->n; f++)
        out[(t * c->batch + b) * c->n + f] = sp_ref_silu (conv_sum (c, x, weight, bias, halo, t, b, f));
}

void
sp_ref_conv_bwd (const SpRefConv *c, const double *d_out, const double *x, const double *weight, const double *bias,
                 const double *halo, double *dx, double *dweight, double *dbias, double *dhalo)
{
  gint64 row = c->batch * c->n, before = c->width - 1;

  memset (dx, 0, sizeof (double) * c->m * row);
  if (dhalo)
    memset (dhalo, 0, sizeof (double) * before * row);
  for (gint64 t = 0; t < c->m; t++)
    for (gint64 b = 0; b < c->batch; b++)
      for (gint64 f = 0; f < c->n; f++) {
        double d = d_out[t * row + b * c->n + f] * sp_ref_silu_slope (conv_sum (c, x, weight, bias, halo, t, b, f));
        if (dbias)
          dbias[f] += d;
        for (gint64 j = 0; j < c->width; j++) {
          gint64 from = t - before + j;
          const double *at = row_at (c, x, halo, from, b);
          if (at)
            dweight[f * c->width + j] += d * at[f];
          if (from >= 0)
            dx[from * row + b * c->n + f] += d * weight[f * c->width + j];
          else if (dhalo)
            dhalo[(from + before) * row + b * c->n + f] += d * weight[f * c->width + j];
        }
      }
}
