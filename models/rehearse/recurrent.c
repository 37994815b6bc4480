/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/operands.h"

#include <string.h>

/* Recurrences, and what stands around them. */

/* --- the rule ----------------------------------------------------------------------------------------------------- */

gboolean
sp_call_is_recurrence (const SpCall *c)
{
  return (c->op->flags & (SP_OP_DELTA | SP_OP_HEAD_DECAY | SP_OP_FEATURE_DECAY | SP_OP_SCAN)) != 0;
}

static SpRefDecay
decay_of (SpCall *c)
{
  guint kinds = FLAG (HEAD_DECAY) + FLAG (FEATURE_DECAY) + FLAG (SCAN);

  if (kinds > 1 || (FLAG (SCAN) && FLAG (DELTA)) || !sp_call_is_recurrence (c))
    sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM, "has no one rule");
  if (FLAG (SCAN))
    return SP_REF_DECAY_SCAN;
  if (FLAG (FEATURE_DECAY))
    return SP_REF_DECAY_FEATURE;
  return FLAG (HEAD_DECAY) ? SP_REF_DECAY_HEAD : SP_REF_DECAY_NONE;
}

SpRefRecurrence
sp_call_recurrence (SpCall *c)
{
  const SpOp *op = c->op;

  if (op->batch != c->variant->batch || op->heads < 1 || op->kv_heads < 1 || op->heads % op->kv_heads != 0)
    sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM, "is for %d sequences, %d heads and %d key heads", op->batch, op->heads,
                  op->kv_heads);
  return (SpRefRecurrence){
    .shape = { .m = op->m, .n = op->n, .k = op->k, .batch = op->batch, .heads = op->heads, .kv_heads = op->kv_heads },
    .decay = decay_of (c),
    .delta = FLAG (DELTA),
  };
}

typedef struct {
  gint64 keys, values, scalars, gates, state, transfer, rates;
} Sizes;

static Sizes
sizes_of (SpCall *c, const SpRefRecurrence *r)
{
  SpRefShape s = r->shape;
  gint64 scalars = s.m * s.batch * s.heads;

  return (Sizes){ .keys = s.m * s.batch * s.kv_heads * s.k,
                  .values = scalars * s.n,
                  .scalars = scalars,
                  .gates = r->decay == SP_REF_DECAY_FEATURE ? scalars * s.k : scalars,
                  .state = s.batch * s.heads * s.k * s.n,
                  .transfer = sp_ref_transfer_elements (r),
                  .rates = sp_call_exchange_size (c) * s.heads * s.k };
}

/* What decays the state and weighs keys and values: G and beta, or a scan's steps and rates. */
typedef struct {
  const double *gates, *beta;
} Gates;

static Gates
read_gates (SpCall *c, SpRefRecurrence *r, const Sizes *z, guint in)
{
  Gates g = { .gates = IN (in, z->gates) };

  if ((g.gates != NULL) != (r->decay != SP_REF_DECAY_NONE) && !c->failed)
    sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM, "has a decay, or has none, against its flags");
  if (r->decay != SP_REF_DECAY_SCAN) {
    g.beta = IN (in + 1, z->scalars);
    return g;
  }
  const double *rates = IN (in + 1, z->rates);
  if (rates != NULL)
    r->rates = rates + sp_call_exchange_place (c) * r->shape.heads * r->shape.k;
  return g;
}

/* --- the recurrence ----------------------------------------------------------------------------------------------- */

void
sp_run_state_own (SpCall *c)
{
  SpRefRecurrence r = sp_call_recurrence (c);
  Sizes z = sizes_of (c, &r);
  const double *k = IN (0, z.keys), *v = IN (1, z.values);
  Gates g = read_gates (c, &r, &z, 2);
  double *state = OUT (0, z.state), *transfer = OUT (1, z.transfer);

  sp_call_check_chain (c, r.shape.m);
  if (!c->failed)
    sp_ref_recurrent_own (&r, k, v, g.gates, g.beta, state, transfer);
}

void
sp_run_recurrent (SpCall *c)
{
  SpRefRecurrence r = sp_call_recurrence (c);
  Sizes z = sizes_of (c, &r);
  const double *q = IN (0, z.keys), *k = IN (1, z.keys), *v = IN (2, z.values);
  Gates g = read_gates (c, &r, &z, 3);
  const double *before = IN (5, z.state);
  double *o = OUT (0, z.values);

  sp_call_check_chain (c, r.shape.m);
  if (!c->failed)
    sp_ref_recurrent (&r, q, k, v, g.gates, g.beta, before, o);
}

/* T alone, of an op that does not read V: of any values. */
static void
write_transfer (SpCall *c, const SpRefRecurrence *r, const Sizes *z, const double *k, Gates g, double *transfer)
{
  double *v = sp_call_temporary (c, (gsize) z->values * sizeof *v);
  double *state = sp_call_temporary (c, (gsize) z->state * sizeof *state);

  memset (v, 0, (gsize) z->values * sizeof *v);
  sp_ref_recurrent_own (r, k, v, g.gates, g.beta, state, transfer);
}

void
sp_run_state_own_bwd (SpCall *c)
{
  SpRefRecurrence r = sp_call_recurrence (c);
  Sizes z = sizes_of (c, &r);
  const double *q = IN (0, z.keys), *k = IN (1, z.keys);
  Gates g = read_gates (c, &r, &z, 2);
  const double *d_o = IN (4, z.values);
  double *dstate = OUT (0, z.state), *transfer = OUT (1, z.transfer);

  sp_call_check_chain (c, r.shape.m);
  if (c->failed)
    return;
  sp_ref_recurrent_own_bwd (&r, q, k, g.gates, g.beta, d_o, dstate);
  if (transfer != NULL)
    write_transfer (c, &r, &z, k, g, transfer);
}

void
sp_run_recurrent_bwd (SpCall *c)
{
  SpRefRecurrence r = sp_call_recurrence (c);
  Sizes z = sizes_of (c, &r);
  const double *q = IN (0, z.keys), *k = IN (1, z.keys), *v = IN (2, z.values);
  Gates g = read_gates (c, &r, &z, 3);
  const double *d_o = IN (5, z.values);
  const double *before = IN (6, z.state), *after = IN (7, z.state);
  double *dq = OUT (0, z.keys), *dk = OUT (1, z.keys), *dv = OUT (2, z.values), *dgates = OUT (3, z.gates);
  double *dbeta = FLAG (SCAN) ? NULL : OUT (4, z.scalars), *drates = FLAG (SCAN) ? OUT (4, z.rates) : NULL;

  sp_call_check_chain (c, r.shape.m);
  if ((dgates == NULL) != (g.gates == NULL) && !c->failed)
    sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM, "has no gradient for its decay");
  if (c->failed)
    return;
  if (drates != NULL)
    drates += sp_call_exchange_place (c) * r.shape.heads * r.shape.k;
  sp_ref_recurrent_bwd (&r, q, k, v, g.gates, g.beta, d_o, before, after, dq, dk, dv, dgates, dbeta, drates);
}

/* --- states ------------------------------------------------------------------------------------------------------- */

void
sp_run_transfer_update (SpCall *c)
{
  SpRefRecurrence r = sp_call_recurrence (c);
  Sizes z = sizes_of (c, &r);
  const double *in = IN (0, z.state), *own = IN (1, z.state);
  const double *transfer = IN (2, z.transfer);
  double *out = OUT (0, z.state);

  if (!c->failed)
    sp_ref_transfer_update (&r, FLAG (REVERSE), transfer, in, own, out);
}

void
sp_run_transfer_prefix (SpCall *c)
{
  SpRefRecurrence r = sp_call_recurrence (c);
  Sizes z = sizes_of (c, &r);
  gint64 places = MAX (c->in->program->groups[c->op->group].size, 1);
  const double *parts = IN (0, places * (z.state + z.transfer));
  double *out = OUT (0, z.state);

  if (!c->failed)
    sp_ref_transfer_prefix (&r, places, sp_program_place (c->in->program, c->op->group, c->rank->number),
                            FLAG (REVERSE), parts, out);
}

/* --- around it ---------------------------------------------------------------------------------------------------- */

static SpRefConv
conv_of (SpCall *c)
{
  const SpOp *op = c->op;

  if (op->batch != c->variant->batch || op->window < 1)
    sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM, "is for %d sequences and %d tokens", op->batch, op->window);
  return (SpRefConv){ .m = op->m, .batch = op->batch, .n = op->n, .width = op->window };
}

void
sp_run_conv (SpCall *c)
{
  SpRefConv v = conv_of (c);
  gint64 row = v.batch * v.n;
  const double *x = IN (0, v.m * row), *weight = IN (1, v.n * v.width), *bias = IN (2, v.n);
  const double *halo = IN (3, (v.width - 1) * row);
  double *out = OUT (0, v.m * row);

  sp_call_check_chain (c, v.m);
  if (!c->failed)
    sp_ref_conv (&v, x, weight, bias, halo, out);
}

void
sp_run_conv_bwd (SpCall *c)
{
  SpRefConv v = conv_of (c);
  gint64 row = v.batch * v.n, halo_n = (v.width - 1) * row;
  const double *dy = IN (0, v.m * row), *x = IN (1, v.m * row), *weight = IN (2, v.n * v.width), *bias = IN (3, v.n);
  const double *halo = IN (4, halo_n);
  double *dx = OUT (0, v.m * row), *dweight = OUT (1, v.n * v.width), *dbias = OUT (2, v.n), *dhalo = OUT (3, halo_n);

  sp_call_check_chain (c, v.m);
  if (!c->failed)
    sp_ref_conv_bwd (&v, dy, x, weight, bias, halo, dx, dweight, dbias, dhalo);
}

static guint
map_of (const SpCall *c)
{
  return (FLAG (SILU) ? SP_REF_MAP_SILU : 0) | (FLAG (SILU_VALUES) ? SP_REF_MAP_SILU_VALUES : 0) |
         (FLAG (L2) ? SP_REF_MAP_L2 : 0) | (FLAG (ROTATE) ? SP_REF_MAP_ROTATE : 0);
}

static SpRefShape
map_shape (const SpCall *c)
{
  return (SpRefShape){ .m = M, .n = N, .k = c->op->k, .heads = HEADS, .kv_heads = c->op->kv_heads };
}

void
sp_run_key_map (SpCall *c)
{
  SpRefShape s = map_shape (c);
  gint64 keys = s.m * s.kv_heads * s.k, values = s.m * s.heads * s.n;
  const double *qkv = IN (0, 2 * keys + values);
  const gint64 *positions = FLAG (ROTATE) ? sp_call_document_positions (c, M) : NULL;
  double *q = OUT (0, keys), *k = OUT (1, keys), *v = OUT (2, values);

  if (!c->failed)
    sp_ref_key_map (s, map_of (c), qkv, positions, c->in->program->numbers.rope_theta, q, k, v);
}

void
sp_run_key_map_bwd (SpCall *c)
{
  SpRefShape s = map_shape (c);
  gint64 keys = s.m * s.kv_heads * s.k, values = s.m * s.heads * s.n;
  const double *qkv = IN (0, 2 * keys + values), *dq = IN (1, keys), *dk = IN (2, keys), *dv = IN (3, values);
  const gint64 *positions = FLAG (ROTATE) ? sp_call_document_positions (c, M) : NULL;
  double *out = OUT (0, 2 * keys + values);

  if (c->failed)
    return;
  if (qkv == NULL && FLAG (SILU) + FLAG (SILU_VALUES) + FLAG (L2) > 0)
    sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM, "needs the input of its map");
  else if (qkv == NULL) /* of any values: a rotation and a cut are the same everywhere */
    qkv = memset (sp_call_temporary (c, (gsize) (2 * keys + values) * sizeof *qkv), 0,
                  (gsize) (2 * keys + values) * sizeof *qkv);
  if (!c->failed)
    sp_ref_key_map_bwd (s, map_of (c), qkv, dq, dk, dv, positions, c->in->program->numbers.rope_theta, out);
}

void
sp_run_sigmoid (SpCall *c)
{
  const double *x = IN (0, M * N);
  double *y = OUT (0, M * N);

  if (!c->failed)
    sp_ref_sigmoid_rows (M * N, x, y);
}

void
sp_run_sigmoid_bwd (SpCall *c)
{
  const double *dy = IN (0, M * N), *y = IN (1, M * N);
  double *dx = OUT (0, M * N);

  if (!c->failed)
    sp_ref_sigmoid_rows_bwd (M * N, dy, y, dx);
}

void
sp_run_decay (SpCall *c)
{
  const double *x = IN (0, M * N), *bias = IN (1, N), *rates = IN (2, HEADS);
  double *gates = OUT (0, M * N), *steps = OUT (1, M * N);

  if (!c->failed)
    sp_ref_decay (M, N, HEADS, x, bias, rates, gates, steps);
}

void
sp_run_decay_bwd (SpCall *c)
{
  const double *x = IN (0, M * N), *bias = IN (1, N), *rates = IN (2, HEADS), *dgates = IN (3, M * N),
               *dsteps = IN (4, M * N);
  double *dx = OUT (0, M * N), *dbias = OUT (1, N), *drates = OUT (2, HEADS);

  if (!c->failed)
    sp_ref_decay_bwd (M, N, HEADS, x, bias, rates, dgates, dsteps, dx, dbias, drates);
}

void
sp_run_skip (SpCall *c)
{
  const double *o = IN (0, M * HEADS * N), *v = IN (1, M * HEADS * N), *scale = IN (2, HEADS);
  double *out = OUT (0, M * HEADS * N);

  if (!c->failed)
    sp_ref_skip (M, HEADS, N, o, v, scale, out);
}

void
sp_run_skip_bwd (SpCall *c)
{
  const double *d = IN (0, M * HEADS * N), *v = IN (1, M * HEADS * N), *scale = IN (2, HEADS);
  const double *dv = IN (3, M * HEADS * N);
  double *out = OUT (0, M * HEADS * N), *dscale = OUT (1, HEADS);

  if (!c->failed)
    sp_ref_skip_bwd (M, HEADS, N, d, v, scale, dv, out, dscale);
}
