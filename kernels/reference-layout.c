/* SPDX-License-Identifier: Apache-2.0 */
/* Between the projections and the attention: cut QKV into heads and pieces, turn them, and put them back. */
#include "kernels/reference.h"
#include "kernels/reference-private.h"

#include <math.h>

/* --- rotary embedding --------------------------------------------------------------------------------------------- */

/* out = in turned by angle position * theta^(-2i/k) in each plane (i, i + k/2). */
static void
turn (gint64 k, double position, double theta, const double *in, double *out)
{
  for (gint64 i = 0; i < k / 2; i++) {
    double angle = position * pow (theta, -2.0 * i / k);
    double c = cos (angle), s = sin (angle), x = in[i], y = in[i + k / 2];
    out[i] = x * c - y * s;
    out[i + k / 2] = y * c + x * s;
  }
}

/* `sign` -1 turns back: a rotation's transpose, hence its backward. */
static void
turn_heads (gint64 heads, gint64 k, gboolean rotate, double sign, gint64 position, double theta, const double *in,
            double *out)
{
  if (!rotate) {
    sp_ref_copy (heads * k, in, out);
    return;
  }
  for (gint64 h = 0; h < heads; h++)
    turn (k, sign * position, theta, in + h * k, out + h * k);
}

void
sp_ref_rope (SpRefShape shape, const double *qkv, gboolean rotate, const gint64 *pos, double theta, double *q,
             double *keys, double *values)
{
  g_return_if_fail (!rotate || (pos && shape.k % 2 == 0));

  gint64 qw = shape.heads * shape.k, kvw = shape.kv_heads * shape.k;

  for (gint64 i = 0; i < shape.m; i++) {
    const double *row = qkv + i * (qw + 2 * kvw);
    gint64 position = rotate ? pos[i] : 0;

    turn_heads (shape.heads, shape.k, rotate, 1, position, theta, row, q + i * qw);
    turn_heads (shape.kv_heads, shape.k, rotate, 1, position, theta, row + qw, keys + i * kvw);
    sp_ref_copy (kvw, row + qw + kvw, values + i * kvw);
  }
}

void
sp_ref_rope_bwd (SpRefShape shape, const double *dq, const double *dkeys, const double *dvalues, gboolean rotate,
                 const gint64 *pos, double theta, double *dqkv)
{
  g_return_if_fail (!rotate || (pos && shape.k % 2 == 0));

  gint64 qw = shape.heads * shape.k, kvw = shape.kv_heads * shape.k;

  for (gint64 i = 0; i < shape.m; i++) {
    double *row = dqkv + i * (qw + 2 * kvw);
    gint64 position = rotate ? pos[i] : 0;

    turn_heads (shape.heads, shape.k, rotate, -1, position, theta, dq + i * qw, row);
    turn_heads (shape.kv_heads, shape.k, rotate, -1, position, theta, dkeys + i * kvw, row + qw);
    sp_ref_copy (kvw, dvalues + i * kvw, row + qw + kvw);
  }
}

/* --- features of linear attention --------------------------------------------------------------------------------- */

void
sp_ref_feature (gint64 m, gint64 w, const double *qkvu, double *q, double *keys, double *values)
{
  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < w; j++) {
      const double *row = qkvu + i * 4 * w;
      q[i * w + j] = sp_ref_silu (row[j]);
      keys[i * w + j] = sp_ref_silu (row[w + j]);
      values[i * w + j] = row[2 * w + j];
    }
}

void
sp_ref_feature_bwd (gint64 m, gint64 w, const double *qkvu, const double *dq, const double *dkeys,
                    const double *dvalues, const double *du, double *dqkvu)
{
  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < w; j++) {
      const double *row = qkvu + i * 4 * w;
      double *out = dqkvu + i * 4 * w;
      out[j] = dq[i * w + j] * sp_ref_silu_slope (row[j]);
      out[w + j] = dkeys[i * w + j] * sp_ref_silu_slope (row[w + j]);
      out[2 * w + j] = dvalues[i * w + j];
      out[3 * w + j] = du[i * w + j];
    }
}

/* --- parts for an all-to-all -------------------------------------------------------------------------------------- */

void
sp_ref_pack (gint64 m, gint64 n, gint64 k, gint64 parts, const double *x, double *out)
{
  g_return_if_fail (parts > 0 && n % parts == 0);

  for (gint64 j = 0; j < n; j++)
    for (gint64 i = 0; i < m; i++)
      sp_ref_copy (k, x + (i * parts + j * parts / n) * k, out + (j * m + i) * k);
}

void
sp_ref_unpack (gint64 m, gint64 n, gint64 k, gint64 parts, const double *in, double *x)
{
  g_return_if_fail (parts > 0 && n % parts == 0);

  sp_ref_zero (m * parts * k, x);
  for (gint64 j = 0; j < n; j++)
    for (gint64 i = 0; i < m; i++)
      sp_ref_accumulate (k, in + (j * m + i) * k, x + (i * parts + j * parts / n) * k);
}
