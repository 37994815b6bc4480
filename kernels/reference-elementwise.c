/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference.h"
#include "kernels/reference-private.h"

#include <math.h>
#include <string.h>

/* --- dropout ------------------------------------------------------------------------------------------------------ */

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014; constants: Stafford's mix 13): each input bit flips each output
 * bit with a probability near one half. */
static guint64
mix (guint64 x)
{
  x = (x ^ (x >> 30)) * G_GUINT64_CONSTANT (0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * G_GUINT64_CONSTANT (0x94d049bb133111eb);
  return x ^ (x >> 31);
}

#define GOLDEN_GAMMA G_GUINT64_CONSTANT (0x9e3779b97f4a7c15)

/* A mix after each word, so that (row, column) and (column, row), or a seed and a row with the same sum, differ. */
static guint64
row_key (guint64 seed, gint64 row_id)
{
  return mix (mix (seed + GOLDEN_GAMMA) + ((guint64) row_id + 1) * GOLDEN_GAMMA);
}

/* Uniform in [0, 1), of 53 bits. */
static double
uniform (guint64 key, gint64 col_id)
{
  return (mix (key + ((guint64) col_id + 1) * GOLDEN_GAMMA) >> 11) * 0x1p-53;
}

void
sp_ref_dropout (gint64 m, gint64 n, const double *x, guint64 seed, const gint64 *row_ids, const gint64 *col_ids,
                double p, double *y, double *mask)
{
  g_return_if_fail (p >= 0 && p < 1);

  for (gint64 i = 0; i < m; i++) {
    guint64 key = row_key (seed, row_ids[i]);
    for (gint64 j = 0; j < n; j++) {
      mask[i * n + j] = uniform (key, col_ids[j]) >= p ? 1.0 : 0.0;
      y[i * n + j] = x[i * n + j] * mask[i * n + j] / (1 - p);
    }
  }
}

void
sp_ref_dropout_bwd (gint64 m, gint64 n, const double *dy, const double *mask, double p, double *dx)
{
  g_return_if_fail (p >= 0 && p < 1);

  for (gint64 i = 0; i < m * n; i++)
    dx[i] = dy[i] * mask[i] / (1 - p);
}

/* --- gates and activations ---------------------------------------------------------------------------------------- */

#define GELU_CUBE 0.044715

static double
gelu_tanh (double x)
{
  return tanh (sqrt (2 / G_PI) * (x + GELU_CUBE * x * x * x));
}

static double
gelu_slope (double x)
{
  double t = gelu_tanh (x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt (2 / G_PI) * (1 + 3 * GELU_CUBE * x * x);
}

static double
gate_of (SpRefGate f, double x)
{
  switch (f) {
  case SP_REF_SILU:
    return sp_ref_silu (x);
  case SP_REF_GELU:
    return 0.5 * x * (1 + gelu_tanh (x));
  default:
    return x;
  }
}

static double
gate_slope (SpRefGate f, double x)
{
  switch (f) {
  case SP_REF_SILU:
    return sp_ref_silu_slope (x);
  case SP_REF_GELU:
    return gelu_slope (x);
  default:
    return 1;
  }
}

void
sp_ref_glu (SpRefGate f, gint64 m, gint64 n, const double *gu, double *out, double *gate)
{
  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < n; j++) {
      double g = gu[i * 2 * n + j], u = gu[i * 2 * n + n + j];
      out[i * n + j] = gate_of (f, g) * u;
      if (gate != NULL)
        gate[i * n + j] = gate_of (f, g);
    }
}

void
sp_ref_glu_bwd (SpRefGate f, gint64 m, gint64 n, const double *da, const double *gu, const double *gate, double *dgu)
{
  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < n; j++) {
      double g = gu[i * 2 * n + j], u = gu[i * 2 * n + n + j], d = da[i * n + j];
      dgu[i * 2 * n + j] = d * u * gate_slope (f, g);
      dgu[i * 2 * n + n + j] = d * (gate != NULL ? gate[i * n + j] : gate_of (f, g));
    }
}

void
sp_ref_gelu (gint64 n, const double *x, double *out)
{
  for (gint64 i = 0; i < n; i++)
    out[i] = gate_of (SP_REF_GELU, x[i]);
}

void
sp_ref_gelu_bwd (gint64 n, const double *da, const double *x, double *dx)
{
  for (gint64 i = 0; i < n; i++)
    dx[i] = da[i] * gelu_slope (x[i]);
}

/* NaN in, NaN out: it is not below 0. */
void
sp_ref_relu (gboolean squared, gint64 n, const double *x, double *out)
{
  for (gint64 i = 0; i < n; i++) {
    double y = x[i] < 0 ? 0 : x[i];
    out[i] = squared ? y * y : y;
  }
}

void
sp_ref_relu_bwd (gboolean squared, gint64 n, const double *da, const double *x, double *dx)
{
  for (gint64 i = 0; i < n; i++) {
    double y = x[i] < 0 ? 0 : x[i];
    dx[i] = squared ? da[i] * 2 * y : x[i] < 0 ? 0 : da[i];
  }
}

void
sp_ref_gate (gboolean silu, gint64 m, gint64 n, gint64 width, const double *o, const double *gates, double *out)
{
  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < n; j++) {
      double u = gates[(i + 1) * width - n + j];
      out[i * n + j] = o[i * n + j] * (silu ? sp_ref_silu (u) : sp_ref_sigmoid (u));
    }
}

void
sp_ref_gate_bwd (gboolean silu, gint64 m, gint64 n, gint64 width, const double *d, const double *o, const double *gates,
                 double *d_o, double *du)
{
  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < n; j++) {
      double u = gates[(i + 1) * width - n + j], s = sp_ref_sigmoid (u), d_ij = d[i * n + j];
      du[i * n + j] = d_ij * o[i * n + j] * (silu ? sp_ref_silu_slope (u) : s * (1 - s));
      d_o[i * n + j] = d_ij * (silu ? sp_ref_silu (u) : s);
    }
}

/* --- sums and copies ---------------------------------------------------------------------------------------------- */

void
sp_ref_add (gint64 n, const double *a, const double *b, double *out)
{
  for (gint64 i = 0; i < n; i++)
    out[i] = a[i] + b[i];
}

void
sp_ref_accumulate (gint64 n, const double *x, double *out)
{
  for (gint64 i = 0; i < n; i++)
    out[i] += x[i];
}

void
sp_ref_copy (gint64 n, const double *x, double *out)
{
  if (n > 0) /* NULL is a fine array of nothing, but not for memcpy */
    memcpy (out, x, sizeof (double) * n);
}

void
sp_ref_zero (gint64 n, double *out)
{
  if (n > 0)
    memset (out, 0, sizeof (double) * n);
}

void
sp_ref_column_sum (gint64 m, gint64 n, const double *x, double *out)
{
  for (gint64 i = 0; i < m; i++)
    sp_ref_accumulate (n, x + i * n, out);
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

void
sp_ref_embed (gint64 m, gint64 n, gint64 k, const gint64 *ids, gint64 first, const double *table, double *x)
{
  for (gint64 i = 0; i < m; i++) {
    gint64 row = ids[i] - first;
    if (row >= 0 && row < n)
      sp_ref_copy (k, table + row * k, x + i * k);
    else
      sp_ref_zero (k, x + i * k);
  }
}

void
sp_ref_embed_bwd (gint64 m, gint64 n, gint64 k, const gint64 *ids, gint64 first, const double *dx, double *dtable)
{
  for (gint64 i = 0; i < m; i++) {
    gint64 row = ids[i] - first;
    if (row >= 0 && row < n)
      sp_ref_accumulate (k, dx + i * k, dtable + row * k);
  }
}

void
sp_ref_position (gint64 m, gint64 n, gint64 k, const gint64 *pos, const double *x, const double *table, double *out)
{
  for (gint64 i = 0; i < m; i++) {
    g_return_if_fail (pos[i] >= 0 && pos[i] < n);
    sp_ref_add (k, x + i * k, table + pos[i] * k, out + i * k);
  }
}

void
sp_ref_position_bwd (gint64 m, gint64 n, gint64 k, const gint64 *pos, const double *dx, double *dtable)
{
  for (gint64 i = 0; i < m; i++) {
    g_return_if_fail (pos[i] >= 0 && pos[i] < n);
    sp_ref_accumulate (k, dx + i * k, dtable + pos[i] * k);
  }
}
