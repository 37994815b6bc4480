/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference.h"

#include <math.h>
#include <string.h>

/* Start of one head's vector of k elements in [tokens,batch,heads,k]. */
static inline gint64
head_at (SpRefShape s, gint64 token, gint64 batch, gint64 heads, gint64 head)
{
  return ((token * s.batch + batch) * heads + head) * s.k;
}

/* The same in [tokens,batch,heads,v]. */
static inline gint64
value_size (SpRefShape s)
{
  return s.v > 0 ? s.v : s.k;
}

static inline gint64
value_at (SpRefShape s, gint64 token, gint64 batch, gint64 heads, gint64 head)
{
  return ((token * s.batch + batch) * heads + head) * value_size (s);
}

static inline gint64
kv_head (SpRefShape s, gint64 head)
{
  return head * s.kv_heads / s.heads;
}

static inline double
dot (gint64 k, const double *a, const double *b)
{
  double sum = 0;
  for (gint64 l = 0; l < k; l++)
    sum += a[l] * b[l];
  return sum;
}

static inline void
add_scaled (gint64 k, double factor, const double *x, double *out)
{
  for (gint64 l = 0; l < k; l++)
    out[l] += factor * x[l];
}

static inline gboolean
is_visible (gboolean causal, gint64 window, const gint64 *qpos, const gint64 *kpos, gint64 i, gint64 j)
{
  return !causal || (kpos[j] <= qpos[i] && (window == 0 || qpos[i] - kpos[j] < window));
}

/* The same, within the query's document. */
static inline gboolean
sees (SpRefShape s, gboolean causal, const gint64 *qpos, const gint64 *kpos, gint64 b, gint64 i, gint64 j)
{
  gint64 row = i * s.batch + b;

  return is_visible (causal, s.window, qpos, kpos, i, j) &&
         (s.first == NULL || (kpos[j] >= s.first[row] && kpos[j] < s.end[row]));
}

static void
clear_heads (SpRefShape s, gint64 tokens, gint64 heads, double *x)
{
  memset (x, 0, sizeof (double) * tokens * s.batch * heads * s.k);
}

/* --- in steps ----------------------------------------------------------------------------------------------------- */

/* scores and context are the same two products with other names: left[b,h,i,j] = factor * x_i . y_j, with x on query
 * heads and y on K/V heads, and its two gradients. */

static void
products (SpRefShape s, double factor, const double *x, const double *y, double *out)
{
  for (gint64 b = 0; b < s.batch; b++)
    for (gint64 h = 0; h < s.heads; h++)
      for (gint64 i = 0; i < s.m; i++)
        for (gint64 j = 0; j < s.n; j++) {
          const double *query = x + head_at (s, i, b, s.heads, h);
          const double *key = y + head_at (s, j, b, s.kv_heads, kv_head (s, h));
          out[((b * s.heads + h) * s.m + i) * s.n + j] = factor * dot (s.k, query, key);
        }
}

/* x[m,batch,heads,k] = factor * c y */
static void
combine_keys (SpRefShape s, double factor, const double *c, const double *y, double *x)
{
  clear_heads (s, s.m, s.heads, x);
  for (gint64 b = 0; b < s.batch; b++)
    for (gint64 h = 0; h < s.heads; h++)
      for (gint64 i = 0; i < s.m; i++)
        for (gint64 j = 0; j < s.n; j++)
          add_scaled (s.k, factor * c[((b * s.heads + h) * s.m + i) * s.n + j],
                      y + head_at (s, j, b, s.kv_heads, kv_head (s, h)), x + head_at (s, i, b, s.heads, h));
}

/* y[n,batch,kv_heads,k] = factor * c^T x */
static void
combine_queries (SpRefShape s, double factor, const double *c, const double *x, double *y)
{
  clear_heads (s, s.n, s.kv_heads, y);
  for (gint64 b = 0; b < s.batch; b++)
    for (gint64 h = 0; h < s.heads; h++)
      for (gint64 i = 0; i < s.m; i++)
        for (gint64 j = 0; j < s.n; j++)
          add_scaled (s.k, factor * c[((b * s.heads + h) * s.m + i) * s.n + j], x + head_at (s, i, b, s.heads, h),
                      y + head_at (s, j, b, s.kv_heads, kv_head (s, h)));
}

void
sp_ref_scores (SpRefShape shape, const double *q, const double *keys, double *s)
{
  products (shape, 1 / sqrt (shape.k), q, keys, s);
}

void
sp_ref_scores_bwd (SpRefShape shape, const double *q, const double *keys, const double *ds, double *dq, double *dkeys)
{
  double scale = 1 / sqrt (shape.k);

  combine_keys (shape, scale, ds, keys, dq);
  combine_queries (shape, scale, ds, q, dkeys);
}

void
sp_ref_context (SpRefShape shape, const double *p, const double *values, double *o)
{
  combine_keys (shape, 1, p, values, o);
}

void
sp_ref_context_bwd (SpRefShape shape, const double *p, const double *values, const double *d_o, double *dp,
                    double *dvalues)
{
  products (shape, 1, d_o, values, dp);
  combine_queries (shape, 1, p, d_o, dvalues);
}

void
sp_ref_softmax (gint64 parts, gint64 m, gint64 n, const double *s, gboolean causal, gint64 window, const gint64 *qpos,
                const gint64 *kpos, gint64 heads, const double *sinks, double *p)
{
  for (gint64 row = 0; row < parts * m; row++) {
    gint64 i = row % m;
    const double *in = s + row * n;
    double *out = p + row * n;
    double sink = sinks ? sinks[row / m % heads] : -INFINITY, max = sink, sum = 0;

    for (gint64 j = 0; j < n; j++)
      if (is_visible (causal, window, qpos, kpos, i, j))
        max = fmax (max, in[j]);
    if (sinks)
      sum = exp (sink - max);
    for (gint64 j = 0; j < n; j++) {
      out[j] = is_visible (causal, window, qpos, kpos, i, j) ? exp (in[j] - max) : 0.0;
      sum += out[j];
    }
    /* A row that sees nothing has sum 0 and stays 0; a NaN sum must not stay hidden. */
    for (gint64 j = 0; sum != 0 && j < n; j++)
      out[j] /= sum;
  }
}

void
sp_ref_softmax_bwd (gint64 parts, gint64 m, gint64 n, const double *p, const double *dp, gint64 heads, double *dsinks,
                    double *ds)
{
  for (gint64 row = 0; row < parts * m; row++) {
    double delta = dot (n, p + row * n, dp + row * n), rest = 1;
    for (gint64 j = row * n; j < (row + 1) * n; j++) {
      rest -= p[j];
      ds[j] = p[j] * (dp[j] - delta);
    }
    if (dsinks)
      dsinks[row / m % heads] -= rest * delta;
  }
}

/* --- fused, in blocks of keys ------------------------------------------------------------------------------------- */

/* Softmax of one query over one block: scores s[n] in, o[v] = weighted mean of the values out; returns the lse. */
static double
attend_block (SpRefShape shape, const double *values, gint64 b, gint64 h, gint64 i, gboolean causal, const gint64 *qpos,
              const gint64 *kpos, const double *s, double *o)
{
  double max = -INFINITY, sum = 0;

  memset (o, 0, sizeof (double) * value_size (shape));
  for (gint64 j = 0; j < shape.n; j++)
    if (sees (shape, causal, qpos, kpos, b, i, j))
      max = fmax (max, s[j]);
  for (gint64 j = 0; j < shape.n; j++) {
    if (!sees (shape, causal, qpos, kpos, b, i, j))
      continue;
    double weight = exp (s[j] - max);
    sum += weight;
    add_scaled (value_size (shape), weight, values + value_at (shape, j, b, shape.kv_heads, kv_head (shape, h)), o);
  }
  if (sum == 0)
    return -INFINITY;
  for (gint64 l = 0; l < value_size (shape); l++)
    o[l] /= sum;
  return max + log (sum);
}

void
sp_ref_attention (SpRefShape shape, const double *q, const double *keys, const double *values, gboolean causal,
                  const gint64 *qpos, const gint64 *kpos, double *o, double *lse)
{
  g_autofree double *s = g_new (double, shape.n);
  double scale = 1 / sqrt (shape.k);

  for (gint64 i = 0; i < shape.m; i++)
    for (gint64 b = 0; b < shape.batch; b++)
      for (gint64 h = 0; h < shape.heads; h++) {
        gint64 at = head_at (shape, i, b, shape.heads, h);

        for (gint64 j = 0; j < shape.n; j++)
          s[j] = scale * dot (shape.k, q + at, keys + head_at (shape, j, b, shape.kv_heads, kv_head (shape, h)));

        lse[(i * shape.batch + b) * shape.heads + h] =
            attend_block (shape, values, b, h, i, causal, qpos, kpos, s, o + value_at (shape, i, b, shape.heads, h));
      }
}

void
sp_ref_attention_merge (gint64 rows, gint64 k, const double *block_o, const double *block_lse, double *o, double *lse)
{
  for (gint64 row = 0; row < rows; row++) {
    if (block_lse[row] == -INFINITY)
      continue;

    double max = fmax (lse[row], block_lse[row]);
    double before = exp (lse[row] - max), here = exp (block_lse[row] - max);
    for (gint64 l = row * k; l < (row + 1) * k; l++)
      o[l] = (o[l] * before + block_o[l] * here) / (before + here);
    lse[row] = max + log (before + here);
  }
}

void
sp_ref_attention_delta (gint64 rows, gint64 k, const double *d_o, const double *o, double *delta)
{
  for (gint64 i = 0; i < rows; i++)
    delta[i] = dot (k, d_o + i * k, o + i * k);
}

void
sp_ref_attention_bwd (SpRefShape shape, const double *q, const double *keys, const double *values, const double *d_o,
                      const double *lse, const double *delta, gboolean causal, const gint64 *qpos, const gint64 *kpos,
                      double *dq, double *dkeys, double *dvalues)
{
  double scale = 1 / sqrt (shape.k);

  clear_heads (shape, shape.m, shape.heads, dq);
  clear_heads (shape, shape.n, shape.kv_heads, dkeys);
  memset (dvalues, 0, sizeof (double) * value_at (shape, shape.n, 0, shape.kv_heads, 0));

  for (gint64 i = 0; i < shape.m; i++)
    for (gint64 b = 0; b < shape.batch; b++)
      for (gint64 h = 0; h < shape.heads; h++) {
        gint64 at = head_at (shape, i, b, shape.heads, h);
        gint64 row = (i * shape.batch + b) * shape.heads + h, v = value_size (shape);
        const double *d_out = d_o + value_at (shape, i, b, shape.heads, h);

        for (gint64 j = 0; j < shape.n; j++) {
          if (!sees (shape, causal, qpos, kpos, b, i, j))
            continue;
          gint64 key = head_at (shape, j, b, shape.kv_heads, kv_head (shape, h));
          gint64 value = value_at (shape, j, b, shape.kv_heads, kv_head (shape, h));
          double p = exp (scale * dot (shape.k, q + at, keys + key) - lse[row]);
          double ds = p * (dot (v, d_out, values + value) - delta[row]);

          add_scaled (shape.k, scale * ds, keys + key, dq + at);
          add_scaled (shape.k, scale * ds, q + at, dkeys + key);
          add_scaled (v, p, d_out, dvalues + value);
        }
      }
}

/* --- sinks -------------------------------------------------------------------------------------------------------- */

void
sp_ref_attention_sink (gint64 rows, gint64 k, gint64 heads, const double *sinks, double *o, double *lse)
{
  for (gint64 row = 0; row < rows; row++) {
    double sink = sinks[row % heads], max = fmax (lse[row], sink);
    double all = max + log (exp (lse[row] - max) + exp (sink - max)), share = exp (lse[row] - all);

    for (gint64 l = row * k; l < (row + 1) * k; l++)
      o[l] *= share;
    lse[row] = all;
  }
}

void
sp_ref_attention_sink_bwd (gint64 rows, gint64 heads, const double *lse, const double *delta, const double *sinks,
                           double *dsinks)
{
  for (gint64 row = 0; row < rows; row++)
    dsinks[row % heads] -= exp (sinks[row % heads] - lse[row]) * delta[row];
}
