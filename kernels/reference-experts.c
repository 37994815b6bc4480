/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference.h"
#include "kernels/reference-private.h"

#include <string.h>

/* --- routing ------------------------------------------------------------------------------------------------------ */

/* The `per_token` experts of one token. The number of those so far is small, so is the search. */
static void
choose (const SpRefRoute *route, const double *logits, const gint64 *position, gint64 *ret)
{
  for (gint64 j = 0; j < route->per_token; j++) {
    gint64 best = -1;
    if (position != NULL) {
      ret[j] = (*position * route->per_token + j) % route->experts;
      continue;
    }
    for (gint64 e = 0; e < route->experts; e++) {
      gboolean taken = FALSE;
      for (gint64 i = 0; i < j; i++)
        taken |= ret[i] == e;
      if (!taken && (best < 0 || logits[e] > logits[best]))
        best = e;
    }
    ret[j] = best;
  }
}

/* Softmax over the chosen experts' logits. */
static void
weigh (const SpRefRoute *route, const double *logits, const gint64 *chosen, double *ret)
{
  double largest = logits[chosen[0]], sum = 0;

  for (gint64 j = 1; j < route->per_token; j++)
    largest = MAX (largest, logits[chosen[j]]);
  for (gint64 j = 0; j < route->per_token; j++)
    sum += ret[j] = exp (logits[chosen[j]] - largest);
  for (gint64 j = 0; j < route->per_token; j++)
    ret[j] /= sum;
}

gint64
sp_ref_route (const SpRefRoute *route, const double *logits, const gint64 *positions, double *weights, double *slots)
{
  g_autofree gint64 *filled = g_new0 (gint64, route->experts), *chosen = g_new (gint64, route->per_token);
  gint64 dropped = 0;

  g_return_val_if_fail (route->per_token >= 1 && route->per_token <= route->experts, 0);
  for (gint64 i = 0; i < route->tokens; i++) {
    const double *row = logits + i * route->experts;
    double *weight = weights + i * route->per_token, *slot = slots + i * route->per_token;
    choose (route, row, positions != NULL ? &positions[i] : NULL, chosen);
    weigh (route, row, chosen, weight);
    for (gint64 j = 0; j < route->per_token; j++) {
      gint64 at = filled[chosen[j]];
      gboolean fits = at < route->capacity;
      filled[chosen[j]] += fits;
      slot[j] = fits ? (double) (chosen[j] * route->capacity + at) : -1;
      weight[j] = fits ? weight[j] : 0;
      dropped += !fits;
    }
  }
  return dropped;
}

void
sp_ref_route_bwd (const SpRefRoute *route, const double *logits, const gint64 *positions, const double *d_weights,
                  const double *slots, double *d_logits)
{
  g_autofree gint64 *chosen = g_new (gint64, route->per_token);
  g_autofree double *weight = g_new (double, route->per_token);

  g_return_if_fail (route->per_token >= 1 && route->per_token <= route->experts);
  for (gint64 i = 0; i < route->tokens; i++) {
    const double *row = logits + i * route->experts;
    const double *d = d_weights + i * route->per_token, *slot = slots + i * route->per_token;
    double mean = 0;
    choose (route, row, positions != NULL ? &positions[i] : NULL, chosen);
    weigh (route, row, chosen, weight);
    for (gint64 j = 0; j < route->per_token; j++)
      mean += slot[j] >= 0 ? weight[j] * d[j] : 0;
    sp_ref_zero (route->experts, d_logits + i * route->experts);
    for (gint64 j = 0; j < route->per_token; j++)
      d_logits[i * route->experts + chosen[j]] = weight[j] * ((slot[j] >= 0 ? d[j] : 0) - mean);
  }
}

/* --- there and back ----------------------------------------------------------------------------------------------- */

void
sp_ref_dispatch (const SpRefRoute *route, gint64 n, const double *x, const double *slots, double *buffer)
{
  sp_ref_zero (route->experts * route->capacity * n, buffer);
  for (gint64 i = 0; i < route->tokens * route->per_token; i++)
    if (slots[i] >= 0)
      sp_ref_copy (n, x + i / route->per_token * n, buffer + (gint64) slots[i] * n);
}

void
sp_ref_dispatch_bwd (const SpRefRoute *route, gint64 n, const double *d_buffer, const double *slots, double *dx)
{
  sp_ref_zero (route->tokens * n, dx);
  for (gint64 i = 0; i < route->tokens * route->per_token; i++)
    if (slots[i] >= 0)
      sp_ref_accumulate (n, d_buffer + (gint64) slots[i] * n, dx + i / route->per_token * n);
}

void
sp_ref_combine (const SpRefRoute *route, gint64 n, const double *buffer, const double *weights, const double *slots,
                double *out)
{
  sp_ref_zero (route->tokens * n, out);
  for (gint64 i = 0; i < route->tokens * route->per_token; i++)
    for (gint64 j = 0; j < n && slots[i] >= 0; j++)
      out[i / route->per_token * n + j] += weights[i] * buffer[(gint64) slots[i] * n + j];
}

void
sp_ref_combine_bwd (const SpRefRoute *route, gint64 n, const double *d, const double *buffer, const double *weights,
                    const double *slots, double *d_buffer, double *d_weights)
{
  sp_ref_zero (route->experts * route->capacity * n, d_buffer);
  for (gint64 i = 0; i < route->tokens * route->per_token; i++) {
    const double *row = d + i / route->per_token * n;
    d_weights[i] = 0;
    for (gint64 j = 0; j < n && slots[i] >= 0; j++) {
      d_buffer[(gint64) slots[i] * n + j] = weights[i] * row[j];
      d_weights[i] += row[j] * buffer[(gint64) slots[i] * n + j];
    }
  }
}

/* --- a gate on a row ---------------------------------------------------------------------------------------------- */

void
sp_ref_row_gate (gint64 m, gint64 n, const double *x, const double *u, double *out)
{
  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < n; j++)
      out[i * n + j] = x[i * n + j] * sp_ref_sigmoid (u[i]);
}

void
sp_ref_row_gate_bwd (gint64 m, gint64 n, const double *d, const double *x, const double *u, double *dx, double *du)
{
  for (gint64 i = 0; i < m; i++) {
    double s = sp_ref_sigmoid (u[i]), sum = 0;
    for (gint64 j = 0; j < n; j++) {
      sum += d[i * n + j] * x[i * n + j];
      dx[i * n + j] = d[i * n + j] * s;
    }
    du[i] = sum * s * (1 - s);
  }
}
