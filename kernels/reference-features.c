/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference.h"
#include "kernels/reference-private.h"

/* What stands around a recurrence: the maps to q, k and v, the decays, the skip past it. */

/* --- q, k, v ------------------------------------------------------------------------------------------------------ */

#define L2_EPSILON 1e-6

/* One key-size vector of the row at `pos`. */
static void
map_key (guint map, gint64 k, const double *x, gint64 pos, double theta, double *y)
{
  double squares = L2_EPSILON;

  for (gint64 i = 0; i < k; i++) {
    y[i] = map & SP_REF_MAP_SILU ? sp_ref_silu (x[i]) : x[i];
    squares += y[i] * y[i];
  }
  for (gint64 i = 0; map & SP_REF_MAP_L2 && i < k; i++)
    y[i] /= sqrt (squares);
  for (gint64 i = 0; map & SP_REF_MAP_ROTATE && i < k / 2; i++) {
    double angle = pos * pow (theta, -2.0 * i / k), low = y[i], high = y[i + k / 2];
    y[i] = low * cos (angle) - high * sin (angle);
    y[i + k / 2] = high * cos (angle) + low * sin (angle);
  }
}

static void
map_key_bwd (guint map, gint64 k, const double *x, const double *dy, gint64 pos, double theta, double *dx)
{
  double squares = L2_EPSILON, dot = 0;

  for (gint64 i = 0; i < k; i++)
    dx[i] = dy[i];
  for (gint64 i = 0; map & SP_REF_MAP_ROTATE && i < k / 2; i++) {
    double angle = pos * pow (theta, -2.0 * i / k), low = dx[i], high = dx[i + k / 2];
    dx[i] = low * cos (angle) + high * sin (angle);
    dx[i + k / 2] = high * cos (angle) - low * sin (angle);
  }
  for (gint64 i = 0; i < k; i++) {
    double y = map & SP_REF_MAP_SILU ? sp_ref_silu (x[i]) : x[i];
    squares += y * y;
    dot += y * dx[i];
  }
  for (gint64 i = 0; i < k; i++) {
    double y = map & SP_REF_MAP_SILU ? sp_ref_silu (x[i]) : x[i];
    if (map & SP_REF_MAP_L2)
      dx[i] = (dx[i] - y * dot / squares) / sqrt (squares);
    if (map & SP_REF_MAP_SILU)
      dx[i] *= sp_ref_silu_slope (x[i]);
  }
}

void
sp_ref_key_map (SpRefShape s, guint map, const double *qkv, const gint64 *pos, double theta, double *q, double *keys,
                double *values)
{
  gint64 kw = s.kv_heads * s.k, vw = s.heads * s.n, row = 2 * kw + vw;

  for (gint64 i = 0; i < s.m; i++) {
    gint64 at = pos ? pos[i] : 0;
    for (gint64 h = 0; h < s.kv_heads; h++) {
      map_key (map, s.k, qkv + i * row + h * s.k, at, theta, q + i * kw + h * s.k);
      map_key (map, s.k, qkv + i * row + kw + h * s.k, at, theta, keys + i * kw + h * s.k);
    }
    for (gint64 j = 0; j < vw; j++) {
      double v = qkv[i * row + 2 * kw + j];
      values[i * vw + j] = map & SP_REF_MAP_SILU_VALUES ? sp_ref_silu (v) : v;
    }
  }
}

void
sp_ref_key_map_bwd (SpRefShape s, guint map, const double *qkv, const double *dq, const double *dkeys,
                    const double *dvalues, const gint64 *pos, double theta, double *dqkv)
{
  gint64 kw = s.kv_heads * s.k, vw = s.heads * s.n, row = 2 * kw + vw;

  for (gint64 i = 0; i < s.m; i++) {
    gint64 at = pos ? pos[i] : 0;
    for (gint64 h = 0; h < s.kv_heads; h++) {
      gint64 q_at = i * row + h * s.k, k_at = q_at + kw, d_at = i * kw + h * s.k;
      map_key_bwd (map, s.k, qkv + q_at, dq + d_at, at, theta, dqkv + q_at);
      map_key_bwd (map, s.k, qkv + k_at, dkeys + d_at, at, theta, dqkv + k_at);
    }
    for (gint64 j = 0; j < vw; j++) {
      gint64 at_v = i * row + 2 * kw + j;
      dqkv[at_v] = dvalues[i * vw + j] * (map & SP_REF_MAP_SILU_VALUES ? sp_ref_silu_slope (qkv[at_v]) : 1);
    }
  }
}

/* --- gates -------------------------------------------------------------------------------------------------------- */

static double
softplus (double x)
{
  return x > 0 ? x + log1p (exp (-x)) : log1p (exp (x));
}

void
sp_ref_sigmoid_rows (gint64 n, const double *x, double *y)
{
  for (gint64 i = 0; i < n; i++)
    y[i] = sp_ref_sigmoid (x[i]);
}

void
sp_ref_sigmoid_rows_bwd (gint64 n, const double *dy, const double *y, double *dx)
{
  for (gint64 i = 0; i < n; i++)
    dx[i] = dy[i] * y[i] * (1 - y[i]);
}

#define GATE_NORMALIZER 16

void
sp_ref_decay (gint64 m, gint64 n, gint64 heads, const double *raw, const double *bias, const double *log_rate,
              double *gates, double *steps)
{
  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < n; j++) {
      double x = raw[i * n + j] + (bias ? bias[j] : 0), step = softplus (x);
      if (steps)
        steps[i * n + j] = step;
      if (gates)
        gates[i * n + j] = log_rate ? -exp (log_rate[j * heads / n]) * step : -softplus (-x) / GATE_NORMALIZER;
    }
}

void
sp_ref_decay_bwd (gint64 m, gint64 n, gint64 heads, const double *raw, const double *bias, const double *log_rate,
                  const double *dgates, const double *dsteps, double *draw, double *dbias, double *dlog_rate)
{
  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < n; j++) {
      gint64 at = i * n + j, h = j * heads / n;
      double x = raw[at] + (bias ? bias[j] : 0), dg = dgates ? dgates[at] : 0;
      double slope = sp_ref_sigmoid (x); /* of softplus */
      double dstep = dsteps ? dsteps[at] : 0;

      if (log_rate)
        dstep += -exp (log_rate[h]) * dg;
      draw[at] = dstep * slope + (log_rate ? 0 : dg * (1 - slope) / GATE_NORMALIZER);
      if (dlog_rate)
        dlog_rate[h] += -exp (log_rate[h]) * softplus (x) * dg;
      if (dbias)
        dbias[j] += draw[at];
    }
}

/* --- skip --------------------------------------------------------------------------------------------------------- */

void
sp_ref_skip (gint64 m, gint64 heads, gint64 n, const double *o, const double *values, const double *scale, double *out)
{
  for (gint64 i = 0; i < m * heads; i++)
    for (gint64 j = 0; j < n; j++)
      out[i * n + j] = o[i * n + j] + scale[i % heads] * values[i * n + j];
}

void
sp_ref_skip_bwd (gint64 m, gint64 heads, gint64 n, const double *d, const double *values, const double *scale,
                 const double *dvalues, double *out, double *dscale)
{
  for (gint64 i = 0; i < m * heads; i++)
    for (gint64 j = 0; j < n; j++) {
      dscale[i % heads] += d[i * n + j] * values[i * n + j];
      out[i * n + j] = dvalues[i * n + j] + scale[i % heads] * d[i * n + j];
    }
}
