/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/operands.h"

/* Routing, and what goes to experts and comes back. */

static SpRefRoute
route_of (const SpCall *c)
{
  return (
      SpRefRoute){ .tokens = c->op->m, .experts = c->op->heads, .per_token = c->op->k, .capacity = c->op->kv_heads };
}

/* Of a balanced choice. */
static const gint64 *
positions_of (SpCall *c)
{
  return c->op->flags & SP_OP_BALANCED ? sp_call_row_positions (c, c->op->m) : NULL;
}

void
sp_run_route (SpCall *c)
{
  SpRefRoute route = route_of (c);
  gint64 choices = route.tokens * route.per_token;
  const double *logits = IN (0, route.tokens * route.experts);
  const gint64 *positions = positions_of (c);
  double *weights = OUT (0, choices), *slots = OUT (1, choices);

  if (c->failed)
    return;
  gint64 dropped = sp_ref_route (&route, logits, positions, weights, slots);
  if (positions != NULL && dropped > 0)
    sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM,
                  "finds no room for %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT
                  " tokens: this rank's do not spread evenly over the %d experts; take a sequence that does",
                  dropped, choices, c->op->heads);
}

void
sp_run_route_bwd (SpCall *c)
{
  SpRefRoute route = route_of (c);
  gint64 choices = route.tokens * route.per_token, n = route.tokens * route.experts;
  const double *logits = IN (0, n), *d_weights = IN (1, choices), *slots = IN (2, choices);
  const gint64 *positions = positions_of (c);
  double *d_logits = OUT (0, n);

  if (!c->failed)
    sp_ref_route_bwd (&route, logits, positions, d_weights, slots, d_logits);
}

static gint64
buffer_elements (const SpCall *c)
{
  return (gint64) c->op->heads * c->op->kv_heads * c->op->n;
}

void
sp_run_dispatch (SpCall *c)
{
  SpRefRoute route = route_of (c);
  const double *x = IN (0, route.tokens * c->op->n), *slots = IN (1, route.tokens * route.per_token);
  double *buffer = OUT (0, buffer_elements (c));

  if (!c->failed)
    sp_ref_dispatch (&route, c->op->n, x, slots, buffer);
}

void
sp_run_dispatch_bwd (SpCall *c)
{
  SpRefRoute route = route_of (c);
  const double *d = IN (0, buffer_elements (c)), *slots = IN (1, route.tokens * route.per_token);
  double *dx = OUT (0, route.tokens * c->op->n);

  if (!c->failed)
    sp_ref_dispatch_bwd (&route, c->op->n, d, slots, dx);
}

void
sp_run_combine (SpCall *c)
{
  SpRefRoute route = route_of (c);
  gint64 choices = route.tokens * route.per_token;
  const double *buffer = IN (0, buffer_elements (c)), *weights = IN (1, choices), *slots = IN (2, choices);
  double *out = OUT (0, route.tokens * c->op->n);

  if (!c->failed)
    sp_ref_combine (&route, c->op->n, buffer, weights, slots, out);
}

void
sp_run_combine_bwd (SpCall *c)
{
  SpRefRoute route = route_of (c);
  gint64 choices = route.tokens * route.per_token;
  const double *d = IN (0, route.tokens * c->op->n), *buffer = IN (1, buffer_elements (c));
  const double *weights = IN (2, choices), *slots = IN (3, choices);
  double *d_buffer = OUT (0, buffer_elements (c)), *d_weights = OUT (1, choices);

  if (!c->failed)
    sp_ref_combine_bwd (&route, c->op->n, d, buffer, weights, slots, d_buffer, d_weights);
}

void
sp_run_row_gate (SpCall *c)
{
  gint64 n = (gint64) c->op->m * c->op->n;
  const double *x = IN (0, n), *u = IN (1, c->op->m);
  double *out = OUT (0, n);

  if (!c->failed)
    sp_ref_row_gate (c->op->m, c->op->n, x, u, out);
}

void
sp_run_row_gate_bwd (SpCall *c)
{
  gint64 n = (gint64) c->op->m * c->op->n;
  const double *d = IN (0, n), *x = IN (1, n), *u = IN (2, c->op->m);
  double *dx = OUT (0, n), *du = OUT (1, c->op->m);

  if (!c->failed)
    sp_ref_row_gate_bwd (c->op->m, c->op->n, d, x, u, dx, du);
}
