/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference.h"

#include <math.h>
#include <string.h>

/* Start of one head's vector of `width` elements in [m,batch,heads,width]. */
static inline gint64
head_at (SpRefShape s, gint64 token, gint64 b, gint64 h, gint64 width)
{
  return ((token * s.batch + b) * s.heads + h) * width;
}

static inline gint64
state_at (SpRefShape s, gint64 b, gint64 h)
{
  return (b * s.heads + h) * s.k * s.n;
}

static inline gint64
state_size (SpRefShape s)
{
  return s.k * s.n;
}

/* lambda^power */
static inline double
decay (double slope, gint64 power)
{
  return exp (-slope * power);
}

/* state[k,n] = factor * state + key value^T */
static void
state_step (SpRefShape s, double factor, const double *key, const double *value, double *state)
{
  for (gint64 i = 0; i < s.k; i++)
    for (gint64 j = 0; j < s.n; j++)
      state[i * s.n + j] = factor * state[i * s.n + j] + key[i] * value[j];
}

/* out[n] += factor * state^T x[k] */
static void
read_by_key (SpRefShape s, double factor, const double *state, const double *x, double *out)
{
  for (gint64 i = 0; i < s.k; i++)
    for (gint64 j = 0; j < s.n; j++)
      out[j] += factor * state[i * s.n + j] * x[i];
}

/* out[k] += factor * state x[n] */
static void
read_by_value (SpRefShape s, double factor, const double *state, const double *x, double *out)
{
  for (gint64 i = 0; i < s.k; i++)
    for (gint64 j = 0; j < s.n; j++)
      out[i] += factor * state[i * s.n + j] * x[j];
}

static void
clear_heads (SpRefShape s, gint64 width, double *x)
{
  memset (x, 0, sizeof (double) * s.m * s.batch * s.heads * width);
}

/* --- slopes ------------------------------------------------------------------------------------------------------- */

static double
alibi_slope (gint64 head, gint64 heads)
{
  gint64 below = 1; /* largest power of two up to heads */
  while (below * 2 <= heads)
    below *= 2;

  if (head < below)
    return exp2 (-8.0 * (head + 1) / below);
  /* Slopes 0, 2, 4 ... of 2 * below heads. */
  return exp2 (-8.0 * (2 * (head - below) + 1) / (2 * below));
}

double
sp_ref_decay_slope (gint64 head, gint64 heads, gint64 layer, gint64 layers)
{
  g_return_val_if_fail (head >= 0 && head < heads && layer >= 0 && layer < layers, NAN);

  double depth = layers > 1 ? (double) layer / (layers - 1) : 0.0;
  return alibi_slope (head, heads) * (1 - depth + 1e-5);
}

void
sp_ref_decay_slopes (gint64 first, gint64 n, gint64 heads, gint64 layer, gint64 layers, double *slopes)
{
  for (gint64 i = 0; i < n; i++)
    slopes[i] = sp_ref_decay_slope (first + i, heads, layer, layers);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

void
sp_ref_linear_local (SpRefShape shape, const double *slopes, const double *q, const double *keys, const double *values,
                     double *o, double *state)
{
  g_autofree double *running = g_new (double, state_size (shape));

  clear_heads (shape, shape.n, o);
  for (gint64 b = 0; b < shape.batch; b++)
    for (gint64 h = 0; h < shape.heads; h++) {
      memset (running, 0, sizeof (double) * state_size (shape));
      for (gint64 i = 0; i < shape.m; i++) {
        gint64 key = head_at (shape, i, b, h, shape.k), value = head_at (shape, i, b, h, shape.n);
        state_step (shape, decay (slopes[h], 1), keys + key, values + value, running);
        read_by_key (shape, 1, running, q + key, o + value);
      }
      if (state)
        memcpy (state + state_at (shape, b, h), running, sizeof (double) * state_size (shape));
    }
}

void
sp_ref_linear_inter (SpRefShape shape, const double *slopes, const double *q, const double *state_in, double *o)
{
  for (gint64 i = 0; i < shape.m; i++)
    for (gint64 b = 0; b < shape.batch; b++)
      for (gint64 h = 0; h < shape.heads; h++)
        read_by_key (shape, decay (slopes[h], i + 1), state_in + state_at (shape, b, h),
                     q + head_at (shape, i, b, h, shape.k), o + head_at (shape, i, b, h, shape.n));
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* dQ wants the state at each token: the forward recurrence again. dK and dV want the gradient of that state, which runs
 * from the last token to the first: D_i = sum over j >= i of lambda^(j-i) q_j dO_j^T. Then dM = lambda D_0. */
void
sp_ref_linear_local_bwd (SpRefShape shape, const double *slopes, const double *q, const double *keys,
                         const double *values, const double *d_o, double *dq, double *dkeys, double *dvalues,
                         double *dstate)
{
  g_autofree double *running = g_new (double, state_size (shape));

  clear_heads (shape, shape.k, dq);
  clear_heads (shape, shape.k, dkeys);
  clear_heads (shape, shape.n, dvalues);
  for (gint64 b = 0; b < shape.batch; b++)
    for (gint64 h = 0; h < shape.heads; h++) {
      double lambda = decay (slopes[h], 1);

      memset (running, 0, sizeof (double) * state_size (shape));
      for (gint64 i = 0; i < shape.m; i++) {
        gint64 key = head_at (shape, i, b, h, shape.k), value = head_at (shape, i, b, h, shape.n);
        state_step (shape, lambda, keys + key, values + value, running);
        read_by_value (shape, 1, running, d_o + value, dq + key);
      }

      memset (running, 0, sizeof (double) * state_size (shape));
      for (gint64 i = shape.m - 1; i >= 0; i--) {
        gint64 key = head_at (shape, i, b, h, shape.k), value = head_at (shape, i, b, h, shape.n);
        state_step (shape, lambda, q + key, d_o + value, running);
        read_by_value (shape, 1, running, values + value, dkeys + key);
        read_by_key (shape, 1, running, keys + key, dvalues + value);
      }

      for (gint64 l = 0; dstate && l < state_size (shape); l++)
        dstate[state_at (shape, b, h) + l] = lambda * running[l];
    }
}

void
sp_ref_linear_inter_bwd (SpRefShape shape, const double *slopes, const double *keys, const double *values,
                         const double *d_o, const double *state_in, const double *dstate_out, double *dq, double *dkeys,
                         double *dvalues)
{
  for (gint64 i = 0; i < shape.m; i++)
    for (gint64 b = 0; b < shape.batch; b++)
      for (gint64 h = 0; h < shape.heads; h++) {
        gint64 key = head_at (shape, i, b, h, shape.k), value = head_at (shape, i, b, h, shape.n);
        gint64 at = state_at (shape, b, h);
        double since_start = decay (slopes[h], i + 1), to_end = decay (slopes[h], shape.m - 1 - i);

        if (state_in)
          read_by_value (shape, since_start, state_in + at, d_o + value, dq + key);
        if (dstate_out) {
          read_by_value (shape, to_end, dstate_out + at, values + value, dkeys + key);
          read_by_key (shape, to_end, dstate_out + at, keys + key, dvalues + value);
        }
      }
}

/* --- states ------------------------------------------------------------------------------------------------------- */

void
sp_ref_state_update (SpRefShape shape, const double *slopes, const double *in, const double *own, double *out)
{
  for (gint64 b = 0; b < shape.batch; b++)
    for (gint64 h = 0; h < shape.heads; h++) {
      double factor = decay (slopes[h], shape.m);
      gint64 at = state_at (shape, b, h);
      for (gint64 l = at; l < at + state_size (shape); l++)
        out[l] = (in ? factor * in[l] : 0.0) + own[l];
    }
}

/* Horner's rule from the farthest place to the nearest: the chain of state_update, one after the other. */
void
sp_ref_state_prefix (SpRefShape shape, const double *slopes, gint64 places, gint64 place, gboolean reverse,
                     const double *states, double *out)
{
  g_return_if_fail (place >= 0 && place < places);

  gint64 size = shape.batch * shape.heads * state_size (shape);
  gint64 steps = reverse ? places - 1 - place : place;

  memset (out, 0, sizeof (double) * size);
  for (gint64 i = 0; i < steps; i++) {
    gint64 from = reverse ? places - 1 - i : i;
    sp_ref_state_update (shape, slopes, out, states + from * size, out);
  }
}
