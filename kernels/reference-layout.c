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

/* One head of k features, of which the first `rotated` turn; `sign` -1 turns back: a rotation's transpose, hence its
 * backward. In place. */
static void
turn_head (gint64 k, gint64 rotated, double sign, gint64 position, double theta, double *x)
{
  g_return_if_fail (rotated <= k && rotated % 2 == 0);

  if (rotated > 0)
    turn (rotated, sign * position, theta, x, x);
}

/* in -> out, brought to RMS 1 and scaled by the gain. */
static double
norm_head (gint64 k, const double *gain, double epsilon, const double *in, double *out)
{
  double stat;

  sp_ref_norm (FALSE, 1, k, k, in, gain, NULL, NULL, epsilon, out, &stat);
  return stat;
}

void
sp_ref_rope (SpRefShape shape, const SpRefHeads *how, const double *qkv, const gint64 *pos, double *q, double *keys,
             double *values, double *stat)
{
  gint64 k = shape.k, heads = shape.heads, both = heads + shape.kv_heads, kvw = shape.kv_heads * k;

  for (gint64 i = 0; i < shape.m; i++) {
    const double *row = qkv + i * (both * k + kvw + how->gate);

    for (gint64 h = 0; h < both; h++) {
      double *out = h < heads ? q + (i * heads + h) * k : keys + i * kvw + (h - heads) * k;

      if (how->q_gain)
        stat[i * both + h] = norm_head (k, h < heads ? how->q_gain : how->key_gain, how->epsilon, row + h * k, out);
      else
        sp_ref_copy (k, row + h * k, out);
      turn_head (k, how->rotated, 1, how->rotated ? pos[i] : 0, how->theta, out);
    }
    sp_ref_copy (kvw, row + both * k, values + i * kvw);
  }
}

void
sp_ref_rope_bwd (SpRefShape shape, const SpRefHeads *how, const double *dq, const double *dkeys, const double *dvalues,
                 const double *qkv, const double *stat, const double *du, const gint64 *pos, double *dqkv,
                 double *dq_gain, double *dkey_gain)
{
  gint64 k = shape.k, heads = shape.heads, both = heads + shape.kv_heads, kvw = shape.kv_heads * k;
  gint64 width = both * k + kvw + how->gate;

  for (gint64 i = 0; i < shape.m; i++) {
    double *row = dqkv + i * width;

    for (gint64 h = 0; h < both; h++) {
      double *out = row + h * k;

      sp_ref_copy (k, h < heads ? dq + (i * heads + h) * k : dkeys + i * kvw + (h - heads) * k, out);
      turn_head (k, how->rotated, -1, how->rotated ? pos[i] : 0, how->theta, out);
      if (how->q_gain)
        sp_ref_norm_bwd (FALSE, 1, k, k, out, qkv + i * width + h * k, stat + i * both + h,
                         h < heads ? how->q_gain : how->key_gain, NULL, NULL, out, h < heads ? dq_gain : dkey_gain,
                         NULL);
    }
    sp_ref_copy (kvw, dvalues + i * kvw, row + both * k);
    if (how->gate > 0)
      sp_ref_copy (how->gate, du + i * how->gate, row + both * k + kvw);
  }
}

/* --- latent attention --------------------------------------------------------------------------------------------- */

void
sp_ref_latent (SpRefShape shape, const double *q_up, const double *kv_up, const double *shared, const gint64 *pos,
               double theta, double *q, double *keys, double *values)
{
  gint64 k = shape.k, n = shape.n, own = k - n, v = shape.v;

  for (gint64 i = 0; i < shape.m; i++)
    for (gint64 h = 0; h < shape.heads; h++) {
      gint64 head = i * shape.heads + h;
      const double *up = kv_up + head * (own + v);

      sp_ref_copy (k, q_up + head * k, q + head * k);
      turn_head (n, pos ? n : 0, 1, pos ? pos[i] : 0, theta, q + head * k + own);
      sp_ref_copy (own, up, keys + head * k);
      sp_ref_copy (n, shared + i * n, keys + head * k + own);
      turn_head (n, pos ? n : 0, 1, pos ? pos[i] : 0, theta, keys + head * k + own);
      sp_ref_copy (v, up + own, values + head * v);
    }
}

void
sp_ref_latent_bwd (SpRefShape shape, const double *dq, const double *dkeys, const double *dvalues, const gint64 *pos,
                   double theta, double *dq_up, double *dkv_up, double *dshared)
{
  gint64 k = shape.k, n = shape.n, own = k - n, v = shape.v;

  sp_ref_zero (shape.m * n, dshared);
  for (gint64 i = 0; i < shape.m; i++) {
    for (gint64 h = 0; h < shape.heads; h++) {
      gint64 head = i * shape.heads + h;
      double *up = dkv_up + head * (own + v);

      sp_ref_copy (k, dq + head * k, dq_up + head * k);
      turn_head (n, pos ? n : 0, -1, pos ? pos[i] : 0, theta, dq_up + head * k + own);
      sp_ref_copy (own, dkeys + head * k, up);
      sp_ref_copy (v, dvalues + head * v, up + own);
      sp_ref_accumulate (n, dkeys + head * k + own, dshared + i * n);
    }
    turn_head (n, pos ? n : 0, -1, pos ? pos[i] : 0, theta, dshared + i * n);
  }
}

void
sp_ref_split (gint64 m, gint64 n, gint64 k, const double *x, double *a, double *b)
{
  for (gint64 i = 0; i < m; i++) {
    sp_ref_copy (n, x + i * (n + k), a + i * n);
    sp_ref_copy (k, x + i * (n + k) + n, b + i * k);
  }
}

void
sp_ref_join (gint64 m, gint64 n, gint64 k, const double *a, const double *b, double *x)
{
  for (gint64 i = 0; i < m; i++) {
    sp_ref_copy (n, a + i * n, x + i * (n + k));
    sp_ref_copy (k, b + i * k, x + i * (n + k) + n);
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

void
sp_ref_part (gint64 m, gint64 n, gint64 parts, gint64 place, const double *x, double *out)
{
  for (gint64 i = 0; i < m; i++)
    sp_ref_copy (n, x + (i * parts + place) * n, out + i * n);
}
