/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference.h"

#include <math.h>
#include <string.h>

/*
 * One token of one head, as all functions here take it:
 *     D = a S,   u = v - D^T k (delta) or v,   S' = D + beta k u^T,   o = S'^T q
 * which is S' = A S + beta k v^T with A = (I - beta k k^T) diag (a).
 */

/* --- where things lie --------------------------------------------------------------------------------------------- */

/* Arrays of one token and head, and its scalars. */
typedef struct {
  gint64 key, value; /* offsets in [m,batch,kv_heads,k] and [m,batch,heads,n] */
  gint64 gate;       /* in [m,batch,heads], or [m,batch,heads,k] */
  gint64 scalar;     /* in [m,batch,heads] */
} Place;

static Place
place_of (const SpRefRecurrence *r, gint64 token, gint64 b, gint64 h)
{
  SpRefShape s = r->shape;
  gint64 row = token * s.batch + b, scalar = row * s.heads + h;

  return (Place){ .key = (row * s.kv_heads + h * s.kv_heads / s.heads) * s.k,
                  .value = scalar * s.n,
                  .gate = r->decay == SP_REF_DECAY_FEATURE ? scalar * s.k : scalar,
                  .scalar = scalar };
}

static gint64
state_size (const SpRefRecurrence *r)
{
  return r->shape.k * r->shape.n;
}

static gint64
transfer_size (const SpRefRecurrence *r)
{
  if (r->delta)
    return r->shape.k * r->shape.k;
  if (r->decay == SP_REF_DECAY_NONE)
    return 0;
  return r->decay == SP_REF_DECAY_HEAD ? 1 : r->shape.k;
}

gint64
sp_ref_transfer_elements (const SpRefRecurrence *r)
{
  return r->shape.batch * r->shape.heads * transfer_size (r);
}

/* Logarithm of the decay of feature i. */
static double
log_decay (const SpRefRecurrence *r, const double *gates, Place p, gint64 h, gint64 i)
{
  switch (r->decay) {
  case SP_REF_DECAY_HEAD:
    return gates[p.gate];
  case SP_REF_DECAY_FEATURE:
    return gates[p.gate + i];
  case SP_REF_DECAY_SCAN:
    return -exp (r->rates[h * r->shape.k + i]) * gates[p.gate];
  default:
    return 0;
  }
}

/* What k v^T is multiplied by: of a scan, the step. */
static double
weight_of (const SpRefRecurrence *r, const double *gates, const double *beta, Place p)
{
  if (r->decay == SP_REF_DECAY_SCAN)
    return gates[p.gate];
  return beta ? beta[p.scalar] : 1;
}

/* --- one token ---------------------------------------------------------------------------------------------------- */

/* out[width] += factor * state[k,width]^T x[k] */
static void
read_by_key (gint64 k, gint64 width, double factor, const double *state, const double *x, double *out)
{
  for (gint64 i = 0; i < k; i++)
    for (gint64 j = 0; j < width; j++)
      out[j] += factor * state[i * width + j] * x[i];
}

/* out[k] += factor * state[k,width] x[width] */
static void
read_by_value (gint64 k, gint64 width, double factor, const double *state, const double *x, double *out)
{
  for (gint64 i = 0; i < k; i++)
    for (gint64 j = 0; j < width; j++)
      out[i] += factor * state[i * width + j] * x[j];
}

/* state[k,width] += factor * x[k] y[width]^T */
static void
add_outer (gint64 k, gint64 width, double factor, const double *x, const double *y, double *state)
{
  for (gint64 i = 0; i < k; i++)
    for (gint64 j = 0; j < width; j++)
      state[i * width + j] += factor * x[i] * y[j];
}

static void
scale_rows (const SpRefRecurrence *r, const double *gates, Place p, gint64 h, gint64 width, double *state)
{
  for (gint64 i = 0; i < r->shape.k; i++) {
    double a = exp (log_decay (r, gates, p, h, i));
    for (gint64 j = 0; j < width; j++)
      state[i * width + j] *= a;
  }
}

/* u[width] of a decayed state; `value` NULL counts as zero. */
static void
error_of (const SpRefRecurrence *r, const double *decayed, const double *key, const double *value, gint64 width,
          double *u)
{
  for (gint64 j = 0; j < width; j++)
    u[j] = value ? value[j] : 0;
  if (r->delta)
    read_by_key (r->shape.k, width, -1, decayed, key, u);
}

/* state[k,width] = A state + beta key value^T. */
static void
step (const SpRefRecurrence *r, const double *gates, const double *beta, Place p, gint64 h, gint64 width,
      const double *key, const double *value, double *u, double *state)
{
  scale_rows (r, gates, p, h, width, state);
  error_of (r, state, key, value, width, u);
  add_outer (r->shape.k, width, weight_of (r, gates, beta, p), key, u, state);
}

/* state[k,width] = A^T state, A^T = diag (a) (I - beta k k^T). */
static void
step_back (const SpRefRecurrence *r, const double *gates, const double *beta, Place p, gint64 h, gint64 width,
           const double *key, double *u, double *state)
{
  if (r->delta) {
    error_of (r, state, key, NULL, width, u);
    add_outer (r->shape.k, width, weight_of (r, gates, beta, p), key, u, state);
  }
  scale_rows (r, gates, p, h, width, state);
}

/* --- what the own tokens leave ------------------------------------------------------------------------------------ */

/* The product of the own tokens' A. Without the delta rule it is diagonal, and its logarithm a sum. */
static void
own_transfer (const SpRefRecurrence *r, const double *keys, const double *gates, const double *beta, gint64 b, gint64 h,
              double *u, double *transfer)
{
  gint64 k = r->shape.k, n = transfer_size (r);

  memset (transfer, 0, sizeof (double) * n);
  for (gint64 i = 0; r->delta && i < k; i++)
    transfer[i * k + i] = 1;
  for (gint64 t = 0; t < r->shape.m; t++) {
    Place p = place_of (r, t, b, h);
    if (r->delta)
      step (r, gates, beta, p, h, k, keys + p.key, NULL, u, transfer);
    else
      for (gint64 i = 0; i < n; i++)
        transfer[i] += log_decay (r, gates, p, h, i);
  }
  for (gint64 i = 0; !r->delta && i < n; i++)
    transfer[i] = exp (transfer[i]);
}

void
sp_ref_recurrent_own (const SpRefRecurrence *r, const double *keys, const double *values, const double *gates,
                      const double *beta, double *state, double *transfer)
{
  SpRefShape s = r->shape;
  g_autofree double *u = g_new (double, MAX (s.k, s.n));

  for (gint64 b = 0; b < s.batch; b++)
    for (gint64 h = 0; h < s.heads; h++) {
      double *running = state + (b * s.heads + h) * state_size (r);
      memset (running, 0, sizeof (double) * state_size (r));
      for (gint64 t = 0; t < s.m; t++) {
        Place p = place_of (r, t, b, h);
        step (r, gates, beta, p, h, s.n, keys + p.key, values + p.value, u, running);
      }
      if (transfer)
        own_transfer (r, keys, gates, beta, b, h, u, transfer + (b * s.heads + h) * transfer_size (r));
    }
}

void
sp_ref_recurrent_own_bwd (const SpRefRecurrence *r, const double *q, const double *keys, const double *gates,
                          const double *beta, const double *d_o, double *dstate)
{
  SpRefShape s = r->shape;
  g_autofree double *u = g_new (double, s.n);

  for (gint64 b = 0; b < s.batch; b++)
    for (gint64 h = 0; h < s.heads; h++) {
      double *running = dstate + (b * s.heads + h) * state_size (r);
      memset (running, 0, sizeof (double) * state_size (r));
      for (gint64 t = s.m - 1; t >= 0; t--) {
        Place p = place_of (r, t, b, h);
        add_outer (s.k, s.n, 1, q + p.key, d_o + p.value, running);
        step_back (r, gates, beta, p, h, s.n, keys + p.key, u, running);
      }
    }
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

void
sp_ref_recurrent (const SpRefRecurrence *r, const double *q, const double *keys, const double *values,
                  const double *gates, const double *beta, const double *state_in, double *o)
{
  SpRefShape s = r->shape;
  g_autofree double *u = g_new (double, s.n);
  g_autofree double *running = g_new (double, state_size (r));

  memset (o, 0, sizeof (double) * s.m * s.batch * s.heads * s.n);
  for (gint64 b = 0; b < s.batch; b++)
    for (gint64 h = 0; h < s.heads; h++) {
      gint64 at = (b * s.heads + h) * state_size (r);
      for (gint64 l = 0; l < state_size (r); l++)
        running[l] = state_in ? state_in[at + l] : 0;
      for (gint64 t = 0; t < s.m; t++) {
        Place p = place_of (r, t, b, h);
        step (r, gates, beta, p, h, s.n, keys + p.key, values + p.value, u, running);
        read_by_key (s.k, s.n, 1, running, q + p.key, o + p.value);
      }
    }
}

typedef struct {
  const double *q, *keys, *values, *gates, *beta, *d_o;
  double *dq, *dkeys, *dvalues, *dgates, *dbeta, *drates;
} Gradients;

/* Gradients of the decays from dD, the gradient of the decayed state D: of log a_i it is sum over j of dD_ij D_ij. */
static void
decay_gradients (const SpRefRecurrence *r, const Gradients *g, Place p, gint64 h, const double *decayed,
                 const double *d_decayed)
{
  SpRefShape s = r->shape;
  double sum = 0;

  for (gint64 i = 0; r->decay != SP_REF_DECAY_NONE && i < s.k; i++) {
    double slope = 0;
    for (gint64 j = 0; j < s.n; j++)
      slope += d_decayed[i * s.n + j] * decayed[i * s.n + j];
    if (r->decay == SP_REF_DECAY_FEATURE) {
      g->dgates[p.gate + i] = slope;
    } else if (r->decay == SP_REF_DECAY_SCAN) {
      double rate = -exp (r->rates[h * s.k + i]);
      sum += slope * rate;
      g->drates[h * s.k + i] += slope * rate * g->gates[p.gate];
    } else {
      sum += slope;
    }
  }
  if (r->decay == SP_REF_DECAY_HEAD || r->decay == SP_REF_DECAY_SCAN)
    g->dgates[p.gate] = sum;
}

/* dstate: of the state after the token, then of the one before it. `before` is that state; u, du: [n]. */
static void
token_bwd (const SpRefRecurrence *r, const Gradients *g, Place p, gint64 h, double *before, double *u, double *du,
           double *dstate)
{
  SpRefShape s = r->shape;
  const double *key = g->keys + p.key;
  double weight = weight_of (r, g->gates, g->beta, p), dweight = 0;

  scale_rows (r, g->gates, p, h, s.n, before);
  error_of (r, before, key, g->values + p.value, s.n, u);

  /* o = S'^T q with S' = D + beta k u^T */
  add_outer (s.k, s.n, 1, g->q + p.key, g->d_o + p.value, dstate);
  read_by_value (s.k, s.n, 1, before, g->d_o + p.value, g->dq + p.key);
  for (gint64 i = 0; i < s.k; i++)
    for (gint64 j = 0; j < s.n; j++) {
      g->dq[p.key + i] += weight * key[i] * u[j] * g->d_o[p.value + j];
      dweight += key[i] * dstate[i * s.n + j] * u[j];
    }
  memset (du, 0, sizeof (double) * s.n);
  read_by_key (s.k, s.n, weight, dstate, key, du);
  read_by_value (s.k, s.n, weight, dstate, u, g->dkeys + p.key);

  /* u = v - D^T k */
  for (gint64 j = 0; j < s.n; j++)
    g->dvalues[p.value + j] = du[j];
  if (r->delta) {
    read_by_value (s.k, s.n, -1, before, du, g->dkeys + p.key);
    add_outer (s.k, s.n, -1, key, du, dstate);
  }

  /* D = a S */
  decay_gradients (r, g, p, h, before, dstate);
  scale_rows (r, g->gates, p, h, s.n, dstate);
  if (r->decay == SP_REF_DECAY_SCAN)
    g->dgates[p.gate] += dweight;
  else if (g->dbeta)
    g->dbeta[p.scalar] = dweight;
}

void
sp_ref_recurrent_bwd (const SpRefRecurrence *r, const double *q, const double *keys, const double *values,
                      const double *gates, const double *beta, const double *d_o, const double *state_in,
                      const double *dstate_out, double *dq, double *dkeys, double *dvalues, double *dgates,
                      double *dbeta, double *drates)
{
  SpRefShape s = r->shape;
  const Gradients g = { q, keys, values, gates, beta, d_o, dq, dkeys, dvalues, dgates, dbeta, drates };
  gint64 size = state_size (r);
  g_autofree double *states = g_new (double, (s.m + 1) * size); /* before each token */
  g_autofree double *dstate = g_new (double, size);
  g_autofree double *u = g_new (double, s.n);
  g_autofree double *du = g_new (double, s.n);

  memset (dq, 0, sizeof (double) * s.m * s.batch * s.kv_heads * s.k);
  memset (dkeys, 0, sizeof (double) * s.m * s.batch * s.kv_heads * s.k);
  for (gint64 b = 0; b < s.batch; b++)
    for (gint64 h = 0; h < s.heads; h++) {
      gint64 at = (b * s.heads + h) * size;
      for (gint64 l = 0; l < size; l++) {
        states[l] = state_in ? state_in[at + l] : 0;
        dstate[l] = dstate_out ? dstate_out[at + l] : 0;
      }
      for (gint64 t = 0; t < s.m; t++) {
        Place p = place_of (r, t, b, h);
        memcpy (states + (t + 1) * size, states + t * size, sizeof (double) * size);
        step (r, gates, beta, p, h, s.n, keys + p.key, values + p.value, u, states + (t + 1) * size);
      }
      for (gint64 t = s.m - 1; t >= 0; t--)
        token_bwd (r, &g, place_of (r, t, b, h), h, states + t * size, u, du, dstate);
    }
}

/* --- states ------------------------------------------------------------------------------------------------------- */

/* out[k,n] = transfer in, or transfer^T in. */
static void
apply_transfer (const SpRefRecurrence *r, gboolean reverse, const double *transfers, gint64 bh, const double *in,
                double *out)
{
  gint64 k = r->shape.k, n = r->shape.n;
  const double *transfer =
      transfers != NULL ? transfers + bh * transfer_size (r) : NULL; /* without decay there is none */

  if (!r->delta) {
    for (gint64 i = 0; i < k; i++)
      for (gint64 j = 0; j < n; j++)
        out[i * n + j] =
            (r->decay == SP_REF_DECAY_NONE ? 1 : transfer[r->decay == SP_REF_DECAY_HEAD ? 0 : i]) * in[i * n + j];
    return;
  }
  memset (out, 0, sizeof (double) * k * n);
  for (gint64 i = 0; i < k; i++)
    for (gint64 l = 0; l < k; l++)
      for (gint64 j = 0; j < n; j++)
        out[i * n + j] += (reverse ? transfer[l * k + i] : transfer[i * k + l]) * in[l * n + j];
}

void
sp_ref_transfer_update (const SpRefRecurrence *r, gboolean reverse, const double *transfer, const double *in,
                        const double *own, double *out)
{
  gint64 size = state_size (r), heads = r->shape.batch * r->shape.heads;
  g_autofree double *moved = g_new (double, size);

  for (gint64 bh = 0; bh < heads; bh++) {
    memset (moved, 0, sizeof (double) * size);
    if (in)
      apply_transfer (r, reverse, transfer, bh, in + bh * size, moved);
    for (gint64 l = 0; l < size; l++)
      out[bh * size + l] = moved[l] + own[bh * size + l];
  }
}

void
sp_ref_transfer_prefix (const SpRefRecurrence *r, gint64 places, gint64 place, gboolean reverse, const double *parts,
                        double *out)
{
  g_return_if_fail (place >= 0 && place < places);

  gint64 size = r->shape.batch * r->shape.heads * state_size (r), each = size + sp_ref_transfer_elements (r);
  gint64 steps = reverse ? places - 1 - place : place;

  memset (out, 0, sizeof (double) * size);
  for (gint64 i = 0; i < steps; i++) {
    const double *part = parts + (reverse ? places - 1 - i : i) * each;
    sp_ref_transfer_update (r, reverse, part + size, out, part, out);
  }
}
