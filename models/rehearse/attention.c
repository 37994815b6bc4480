/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/operands.h"

#include <string.h>

/* Attention kernels, softmax and linear: operands of [tokens of a sequence, batch, heads, size]. */

/* Dimensions, with the sizes that operands have. */
typedef struct {
  SpRefShape shape;
  gint64 q;      /* [m, batch, heads, k] */
  gint64 kv;     /* [n, batch, kv_heads, k] */
  gint64 o;      /* [m, batch, heads, value_size] */
  gint64 values; /* [n, batch, kv_heads, value_size] */
  gint64 scores; /* [batch, heads, m, n] */
  gint64 rows;   /* [m, batch, heads] */
  gint64 v;      /* linear attention: [m, batch, heads, n] */
  gint64 state;  /* [batch, heads, k, n] */
} Sizes;

static Sizes
sizes_of (SpCall *c)
{
  const SpOp *op = c->op;
  SpRefShape s = {
    .m = op->m,
    .n = op->n,
    .k = op->k,
    .batch = op->batch,
    .heads = op->heads,
    .kv_heads = op->kv_heads,
    .v = op->value_size > 0 ? op->value_size : op->k,
    .window = op->window,
  };

  if (op->batch != c->variant->batch || op->heads < 1)
    sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM, "is for %d sequences and %d heads", op->batch, op->heads);
  return (Sizes){ .shape = s,
                  .q = s.m * s.batch * s.heads * s.k,
                  .kv = s.n * s.batch * s.kv_heads * s.k,
                  .o = s.m * s.batch * s.heads * s.v,
                  .values = s.n * s.batch * s.kv_heads * s.v,
                  .scores = s.batch * s.heads * s.m * s.n,
                  .rows = s.m * s.batch * s.heads,
                  .v = s.m * s.batch * s.heads * s.n,
                  .state = s.batch * s.heads * s.k * s.n };
}

static gboolean
is_causal (const SpCall *c)
{
  return (c->op->flags & SP_OP_CAUSAL) != 0;
}

/* An output that the op leaves out still has to be computed somewhere. */
static double *
or_temporary (SpCall *c, double *out, gint64 n)
{
  return out != NULL ? out : sp_call_temporary (c, n * sizeof *out);
}

/* Nor does it read what only that output needs. */
static const double *
or_zeros (SpCall *c, const double *in, gint64 n)
{
  return in != NULL || c->failed ? in : memset (sp_call_temporary (c, n * sizeof *in), 0, n * sizeof *in);
}

/* --- in steps ----------------------------------------------------------------------------------------------------- */

/* Scores of the op's n keys in a matrix of all of a ring's, where it stands in a loop around one: their first column. */
typedef struct {
  gint64 all, first, elements;
} Columns;

static Columns
columns_of (const SpCall *c, const Sizes *z)
{
  gint64 n = z->shape.n, places = c->loop != NULL ? MAX (c->in->program->groups[c->loop->group].size, 1) : 1;

  return (Columns){ .all = n * places,
                    .first = c->loop != NULL ? n * sp_call_ring_place (c) : 0,
                    .elements = z->scores * places };
}

static const double *
read_columns (SpCall *c, guint i, const Sizes *z)
{
  Columns at = columns_of (c, z);
  const double *matrix = IN (i, at.elements);

  if (matrix == NULL || c->loop == NULL)
    return matrix;
  double *columns = sp_call_temporary (c, z->scores * sizeof *columns);
  for (gint64 row = 0; row < z->scores / z->shape.n; row++)
    memcpy (columns + row * z->shape.n, matrix + row * at.all + at.first, z->shape.n * sizeof *columns);
  return columns;
}

/* Where the columns can be computed, and then put where they belong. */
static double *
columns_begin (SpCall *c, const Sizes *z)
{
  return c->loop == NULL ? OUT (0, z->scores) : sp_call_temporary (c, z->scores * sizeof (double));
}

static void
columns_end (SpCall *c, const Sizes *z, const double *columns)
{
  Columns at = columns_of (c, z);

  if (c->loop == NULL || c->op->out[0] == 0)
    return;
  double *matrix = OUT (0, at.elements);
  for (gint64 row = 0; matrix != NULL && row < z->scores / z->shape.n; row++)
    memcpy (matrix + row * at.all + at.first, columns + row * z->shape.n, z->shape.n * sizeof *columns);
}

/* What a loop adds up over its steps. */
static void
add_up (SpCall *c, const double *part, gint64 n)
{
  double *sum = OUT (0, n);

  for (gint64 i = 0; sum != NULL && i < n; i++)
    sum[i] += part[i];
}

void
sp_run_scores (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *q = IN (0, z.q), *k = IN (1, z.kv);
  double *s = columns_begin (c, &z);

  if (c->failed)
    return;
  sp_ref_scores (z.shape, q, k, s);
  columns_end (c, &z, s);
}

void
sp_run_scores_bwd (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *q = or_zeros (c, IN (0, z.q), z.q), *k = or_zeros (c, IN (1, z.kv), z.kv), *ds = read_columns (c, 2, &z);
  double *dq = c->loop == NULL ? OUT (0, z.q) : NULL, *dk = OUT (1, z.kv);

  if (c->failed)
    return;
  dq = or_temporary (c, dq, z.q);
  sp_ref_scores_bwd (z.shape, q, k, ds, dq, or_temporary (c, dk, z.kv));
  if (c->loop != NULL)
    add_up (c, dq, z.q);
}

/* Sinks of all heads of the tensor rank, of which the op has those of its place in the exchange of heads: from the
 * first of these on. */
static const double *
read_sinks (SpCall *c, guint8 slot)
{
  const double *sinks = sp_call_read (c, slot, (gint64) c->op->heads * sp_call_exchange_size (c));

  return sinks != NULL ? sinks + (gint64) c->op->heads * sp_call_exchange_place (c) : NULL;
}

static double *
write_sinks (SpCall *c, guint8 slot)
{
  double *sinks = sp_call_write (c, slot, (gint64) c->op->heads * sp_call_exchange_size (c));

  return sinks != NULL ? sinks + (gint64) c->op->heads * sp_call_exchange_place (c) : NULL;
}

void
sp_run_softmax (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *s = IN (0, z.scores), *sinks = read_sinks (c, c->op->in[1]);
  double *p = OUT (0, z.scores);
  const gint64 *qpos = sp_call_positions (c, z.shape.m);
  const gint64 *kpos = sp_call_key_positions (c, z.shape.n, z.shape.m);

  if (!c->failed)
    sp_ref_softmax (z.shape.batch * z.shape.heads, z.shape.m, z.shape.n, s, is_causal (c), z.shape.window, qpos, kpos,
                    z.shape.heads, sinks, p);
}

void
sp_run_softmax_bwd (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *p = IN (0, z.scores), *dp = IN (1, z.scores);
  double *ds = OUT (0, z.scores), *dsinks = write_sinks (c, c->op->out[1]);

  if (!c->failed)
    sp_ref_softmax_bwd (z.shape.batch * z.shape.heads, z.shape.m, z.shape.n, p, dp, z.shape.heads, dsinks, ds);
}

void
sp_run_context (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *p = read_columns (c, 0, &z), *v = IN (1, z.kv);
  double *o = or_temporary (c, c->loop == NULL ? OUT (0, z.q) : NULL, z.q);

  if (c->failed)
    return;
  sp_ref_context (z.shape, p, v, o);
  if (c->loop != NULL)
    add_up (c, o, z.q);
}

void
sp_run_context_bwd (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *p = or_zeros (c, read_columns (c, 0, &z), z.scores), *v = or_zeros (c, IN (1, z.kv), z.kv);
  const double *d_o = IN (2, z.q);
  double *dp = or_temporary (c, columns_begin (c, &z), z.scores), *dv = OUT (1, z.kv);

  if (c->failed)
    return;
  sp_ref_context_bwd (z.shape, p, v, d_o, dp, or_temporary (c, dv, z.kv));
  columns_end (c, &z, dp);
}

/* --- fused -------------------------------------------------------------------------------------------------------- */

void
sp_run_attention (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *q = IN (0, z.q), *k = IN (1, z.kv), *v = IN (2, z.values);
  double *o = OUT (0, z.o), *lse = OUT (1, z.rows);
  const gint64 *qpos = sp_call_positions (c, z.shape.m);
  const gint64 *kpos = sp_call_key_positions (c, z.shape.n, z.shape.m);

  sp_call_documents (c, z.shape.m, qpos, &z.shape.first, &z.shape.end);
  if (!c->failed)
    sp_ref_attention (z.shape, q, k, v, is_causal (c), qpos, kpos, o, lse);
}

void
sp_run_attention_merge (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *block_o = IN (0, z.q), *block_lse = IN (1, z.rows);
  double *o = OUT (0, z.q), *lse = OUT (1, z.rows);

  if (c->failed)
    return;
  if (c->op->flags & SP_OP_ACCUMULATE) {
    sp_ref_attention_merge (z.rows, z.shape.k, block_o, block_lse, o, lse);
  } else {
    sp_ref_copy (z.q, block_o, o);
    sp_ref_copy (z.rows, block_lse, lse);
  }
}

void
sp_run_attention_sink (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *sinks = read_sinks (c, c->op->in[0]);
  double *o = OUT (0, z.q), *lse = OUT (1, z.rows);

  if (!c->failed)
    sp_ref_attention_sink (z.rows, z.shape.k, z.shape.heads, sinks, o, lse);
}

void
sp_run_attention_sink_bwd (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *lse = IN (0, z.rows), *delta = IN (1, z.rows), *sinks = read_sinks (c, c->op->in[2]);
  double *dsinks = write_sinks (c, c->op->out[0]);

  if (!c->failed)
    sp_ref_attention_sink_bwd (z.rows, z.shape.heads, lse, delta, sinks, dsinks);
}

void
sp_run_attention_delta (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *d_o = IN (0, z.q), *o = IN (1, z.q);
  double *delta = OUT (0, z.rows);

  if (!c->failed)
    sp_ref_attention_delta (z.rows, z.shape.k, d_o, o, delta);
}

void
sp_run_attention_bwd (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *q = IN (0, z.q), *k = IN (1, z.kv), *v = IN (2, z.values), *d_o = IN (3, z.o), *lse = IN (4, z.rows);
  const double *delta = IN (5, z.rows);
  double *dq = OUT (0, z.q), *dk = OUT (1, z.kv), *dv = OUT (2, z.values);
  const gint64 *own = sp_call_positions (c, z.shape.m);
  const gint64 *come = sp_call_key_positions (c, z.shape.n, z.shape.m);
  gboolean queries = (c->op->flags & SP_OP_QUERIES) != 0;

  if (queries && z.shape.m != z.shape.n)
    sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM, "has queries that go around, and not as many keys");
  sp_call_documents (c, z.shape.m, queries ? come : own, &z.shape.first, &z.shape.end);
  if (!c->failed)
    sp_ref_attention_bwd (z.shape, q, k, v, d_o, lse, delta, is_causal (c), queries ? come : own, queries ? own : come,
                          dq, dk, dv);
}

/* --- linear ------------------------------------------------------------------------------------------------------- */

void
sp_run_linear_local (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *q = IN (0, z.q), *k = IN (1, z.q), *v = IN (2, z.v);
  double *o = OUT (0, z.v), *state = OUT (1, z.state);

  sp_call_check_chain (c, z.shape.m);
  if (!c->failed)
    sp_ref_linear_local (z.shape, sp_call_slopes (c), or_zeros (c, q, z.q), k, v, or_temporary (c, o, z.v), state);
}

void
sp_run_linear_inter (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *q = IN (0, z.q), *state = IN (1, z.state);
  double *o = OUT (0, z.v);

  if (!c->failed)
    sp_ref_linear_inter (z.shape, sp_call_slopes (c), q, state, o);
}

void
sp_run_linear_local_bwd (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *q = IN (0, z.q), *k = IN (1, z.q), *v = IN (2, z.v), *d_o = IN (3, z.v);
  double *dq = OUT (0, z.q), *dk = OUT (1, z.q), *dv = OUT (2, z.v), *dstate = OUT (3, z.state);

  sp_call_check_chain (c, z.shape.m);
  if (!c->failed)
    sp_ref_linear_local_bwd (z.shape, sp_call_slopes (c), q, or_zeros (c, k, z.q), or_zeros (c, v, z.v), d_o,
                             or_temporary (c, dq, z.q), or_temporary (c, dk, z.q), or_temporary (c, dv, z.v), dstate);
}

void
sp_run_linear_inter_bwd (SpCall *c)
{
  Sizes z = sizes_of (c);
  const double *k = IN (0, z.q), *v = IN (1, z.v), *d_o = IN (2, z.v), *before = IN (3, z.state);
  const double *after = IN (4, z.state);
  double *dq = OUT (0, z.q), *dk = OUT (1, z.q), *dv = OUT (2, z.v);
  guint from_before = (d_o != NULL) + (before != NULL) + (dq != NULL);
  guint from_after = (k != NULL) + (v != NULL) + (after != NULL) + (dk != NULL) + (dv != NULL);

  if (from_before % 3 != 0 || from_after % 5 != 0)
    sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM, "has a part of what makes its gradients");
  if (!c->failed)
    sp_ref_linear_inter_bwd (z.shape, sp_call_slopes (c), k, v, d_o, before, after, dq, dk, dv);
}

void
sp_run_state_update (SpCall *c)
{
  if (sp_call_is_recurrence (c)) {
    sp_run_transfer_update (c);
    return;
  }
  Sizes z = sizes_of (c);
  const double *in = IN (0, z.state), *own = IN (1, z.state);
  double *out = OUT (0, z.state);

  if (!c->failed)
    sp_ref_state_update (z.shape, sp_call_slopes (c), in, own, out);
}

void
sp_run_state_prefix (SpCall *c)
{
  if (sp_call_is_recurrence (c)) {
    sp_run_transfer_prefix (c);
    return;
  }
  Sizes z = sizes_of (c);
  gint64 places = MAX (c->in->program->groups[c->op->group].size, 1);
  const double *states = IN (0, places * z.state);
  double *out = OUT (0, z.state);

  if (!c->failed)
    sp_ref_state_prefix (z.shape, sp_call_slopes (c), places,
                         sp_program_place (c->in->program, c->op->group, c->rank->number),
                         (c->op->flags & SP_OP_REVERSE) != 0, states, out);
}
