/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax attention. Kernels work on tiles of 64 to 256 queries and 64 or 128 keys, so sizes are around multiples of 64. */
#include "kernels/cases/case.h"

#include <math.h>

static SpDevDtype
any (void)
{
  return sp_case_below (2) == 0 ? SP_DEV_BF16 : SP_DEV_FP32;
}

/* How positions of queries and keys lie: of one rank, or of two of a ring. */
typedef enum {
  SAME,    /* both from 0 on */
  BEFORE,  /* keys all come before queries */
  AFTER,   /* and after: under a causal mask all are hidden */
  ZIGZAG,  /* each two pieces, an early and a late one, the keys' within the queries' */
  STRIPED, /* each every third */
  SHUFFLED
} Order;

typedef struct {
  gint64 m, n, batch, heads, kv_heads, k, v, window;
  gboolean causal;
  gint64 documents; /* of about as many tokens; 0: none */
  Order order;
} Shape;

static const Shape shapes[] = {
  { 1, 1, 1, 1, 1, 8, 0, 0, FALSE, 0, SAME },          { 1, 130, 1, 2, 1, 64, 0, 0, FALSE, 0, SAME },
  { 63, 65, 1, 2, 2, 64, 0, 0, FALSE, 0, SAME },       { 64, 64, 2, 2, 1, 64, 0, 0, TRUE, 0, SAME },
  { 65, 65, 1, 3, 1, 64, 0, 0, TRUE, 0, SAME },        { 200, 200, 1, 2, 1, 128, 0, 0, TRUE, 0, SAME },
  { 193, 193, 2, 4, 2, 128, 0, 0, TRUE, 0, SAME },     { 130, 300, 1, 2, 2, 128, 0, 0, FALSE, 0, SAME },
  { 129, 127, 1, 2, 2, 80, 0, 0, TRUE, 0, SAME },      { 150, 150, 1, 2, 1, 256, 0, 0, TRUE, 0, SAME },
  { 100, 100, 1, 2, 2, 96, 64, 0, TRUE, 0, SAME },     { 100, 140, 1, 2, 2, 192, 128, 0, TRUE, 0, SAME },
  { 70, 70, 1, 1, 1, 64, 128, 0, FALSE, 0, SAME },     { 128, 128, 1, 2, 1, 128, 0, 0, TRUE, 0, BEFORE },
  { 128, 128, 1, 2, 1, 128, 0, 0, TRUE, 0, AFTER },    { 128, 192, 1, 2, 1, 64, 0, 0, TRUE, 0, ZIGZAG },
  { 96, 96, 2, 2, 2, 128, 0, 0, TRUE, 0, STRIPED },    { 140, 200, 1, 2, 1, 64, 0, 0, TRUE, 0, SHUFFLED },
  { 260, 260, 1, 2, 1, 64, 0, 1, TRUE, 0, SAME },      { 260, 260, 1, 2, 1, 64, 0, 70, TRUE, 0, SAME },
  { 200, 200, 1, 2, 1, 128, 0, 100, TRUE, 0, BEFORE }, { 400, 400, 1, 2, 1, 64, 0, 0, TRUE, 50, SAME },
  { 300, 300, 2, 2, 2, 64, 0, 60, TRUE, 90, SAME },    { 150, 150, 2, 2, 1, 128, 0, 0, FALSE, 40, SAME },
  { 128, 128, 1, 2, 2, 64, 0, 0, TRUE, 200, ZIGZAG },  { 2300, 70, 1, 1, 1, 64, 0, 0, TRUE, 0, SHUFFLED },
  { 70, 2300, 1, 1, 1, 64, 0, 0, TRUE, 0, BEFORE },    { 70, 4500, 1, 1, 1, 16, 0, 40, TRUE, 0, BEFORE },
  { 385, 449, 2, 4, 1, 128, 0, 0, FALSE, 0, SAME },    { 513, 513, 1, 6, 3, 96, 0, 0, TRUE, 0, SAME },
  { 320, 320, 1, 2, 1, 192, 128, 0, TRUE, 0, ZIGZAG }, { 257, 300, 1, 2, 1, 256, 0, 90, TRUE, 60, SHUFFLED },
  { 300, 300, 1, 4, 2, 128, 64, 0, TRUE, 0, STRIPED }, { 640, 300, 2, 3, 1, 128, 0, 130, TRUE, 170, SAME },
};

typedef struct {
  SpRefShape shape;
  SpDevShape dev;
  gint64 v, q_n, k_n, v_n, o_n, rows;
  const gint64 *qpos, *kpos;
  const int32_t *dev_qpos, *dev_kpos;
} Operands;

static gint64
position (Order order, gboolean is_key, gint64 i, gint64 n, const Shape *s)
{
  switch (order) {
  case BEFORE:
    return is_key ? i : s->n - 30 + i + (s->window ? 0 : 30);
  case AFTER:
    return is_key ? s->m + i : i;
  case ZIGZAG:
    return (is_key ? 100 : 0) + (i < n / 2 ? i : 1000 - 2 * (is_key ? 100 : 0) + i);
  case STRIPED:
    return 3 * i + (is_key ? 1 : 0);
  default:
    return i;
  }
}

static const gint64 *
positions (SpCase *c, const Shape *s, gboolean is_key, const int32_t **ret)
{
  gint64 n = is_key ? s->n : s->m;
  g_autofree gint64 *values = g_new (gint64, n);

  for (gint64 i = 0; i < n; i++)
    values[i] = position (s->order, is_key, i, n, s);
  for (gint64 i = n - 1; s->order == SHUFFLED && i > 0; i--) {
    gint64 j = sp_case_below (i + 1), kept = values[i];
    values[i] = values[j];
    values[j] = kept;
  }
  return sp_case_ids (c, is_key ? "kpos" : "qpos", n, values, ret);
}

/* Documents end at other positions in each sequence. */
static void
documents (SpCase *c, const Shape *s, Operands *o)
{
  g_autofree gint64 *first = g_new (gint64, s->m * s->batch), *end = g_new (gint64, s->m * s->batch);

  for (gint64 i = 0; i < s->m; i++)
    for (gint64 b = 0; b < s->batch; b++) {
      gint64 length = s->documents + 7 * b, from = o->qpos[i] / length * length;
      first[i * s->batch + b] = from;
      end[i * s->batch + b] = from + length;
    }
  o->shape.first = sp_case_ids (c, "first", s->m * s->batch, first, &o->dev.first);
  o->shape.end = sp_case_ids (c, "end", s->m * s->batch, end, &o->dev.end);
}

static Operands
operands (SpCase *c, const Shape *s)
{
  gint64 v = s->v > 0 ? s->v : s->k;
  Operands o = {
    .shape = { .m = s->m,
               .n = s->n,
               .k = s->k,
               .batch = s->batch,
               .heads = s->heads,
               .kv_heads = s->kv_heads,
               .v = s->v,
               .window = s->window },
    .dev = { .m = s->m,
             .n = s->n,
             .k = s->k,
             .batch = s->batch,
             .heads = s->heads,
             .kv_heads = s->kv_heads,
             .v = s->v,
             .window = s->window },
    .v = v,
    .q_n = s->m * s->batch * s->heads * s->k,
    .k_n = s->n * s->batch * s->kv_heads * s->k,
    .v_n = s->n * s->batch * s->kv_heads * v,
    .o_n = s->m * s->batch * s->heads * v,
    .rows = s->m * s->batch * s->heads,
  };

  o.qpos = positions (c, s, FALSE, &o.dev_qpos);
  o.kpos = positions (c, s, TRUE, &o.dev_kpos);
  if (s->documents > 0)
    documents (c, s, &o);
  return o;
}

static SpCase *
attention_case (const char *kernel, const Shape *s)
{
  static const char *const orders[] = { "", ", before", ", after", ", zigzag", ", striped", ", shuffled" };

  return sp_case_new (SP_CASE_TENSOR, kernel,
                      "m = %d, n = %d, batch = %d, heads = %d / %d, k = %d, v = %d, window = %d%s, documents = %d%s",
                      (int) s->m, (int) s->n, (int) s->batch, (int) s->heads, (int) s->kv_heads, (int) s->k, (int) s->v,
                      (int) s->window, s->causal ? ", causal" : "", (int) s->documents, orders[s->order]);
}

static void
test_attention (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    const Shape *s = &shapes[i];
    SpCase *c = attention_case ("attention", s);
    Operands p = operands (c, s);
    SpDevTensor q, keys, values, o, lse;
    const double *q_in = sp_case_in (c, "q", SP_DEV_BF16, p.q_n, 2, &q);
    const double *k_in = sp_case_in (c, "keys", SP_DEV_BF16, p.k_n, 1, &keys);
    const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, p.v_n, 1, &values);
    double *o_out = sp_case_out (c, "o", i % 3 ? SP_DEV_BF16 : SP_DEV_FP32, p.o_n, &o);
    void *scratch = sp_case_scratch (c, sp_dev_attention_scratch_bytes (p.dev));
    sp_ref_attention (p.shape, q_in, k_in, v_in, s->causal, p.qpos, p.kpos, o_out,
                      sp_case_out (c, "lse", SP_DEV_FP32, p.rows, &lse));
    SP_CASE_RUN (
        c, sp_dev_attention (p.dev, q, keys, values, s->causal, p.dev_qpos, p.dev_kpos, o, lse.data, scratch, NULL));
  }
}

/* In every second case other blocks of keys have as much of the softmax, so that rows which see none of these keys have
 * a finite lse too. And where a query sees one key: of all its keys dq would be what rounding leaves of 0. */
static void
test_attention_bwd (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    const Shape *s = &shapes[i];
    SpCase *c = attention_case ("attention-bwd", s);
    Operands p = operands (c, s);
    SpDevTensor q, keys, values, d_o, lse, delta, dq, dk, dv;
    double *o = sp_case_numbers (c, p.o_n), *rows = sp_case_numbers (c, p.rows), *sums = sp_case_numbers (c, p.rows);
    const double *q_in = sp_case_in (c, "q", SP_DEV_BF16, p.q_n, 2, &q);
    const double *k_in = sp_case_in (c, "keys", SP_DEV_BF16, p.k_n, 1, &keys);
    const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, p.v_n, 1, &values);
    const double *d_in = sp_case_in (c, "d_o", SP_DEV_BF16, p.o_n, 1, &d_o);

    sp_ref_attention (p.shape, q_in, k_in, v_in, s->causal, p.qpos, p.kpos, o, rows);
    sp_ref_attention_delta (p.rows, p.v, d_in, o, sums);
    for (gint64 l = 0; (i % 2 || s->window == 1 || s->n == 1) && l < p.rows; l++) {
      rows[l] = isfinite (rows[l]) ? rows[l] + log (2) : 1;
      sums[l] += sp_case_between (-1, 1);
    }
    const double *lse_in = sp_case_in_values (c, "lse", SP_DEV_FP32, p.rows, rows, &lse);
    const double *delta_in = sp_case_in_values (c, "delta", SP_DEV_FP32, p.rows, sums, &delta);
    double *dq_out = sp_case_out (c, "dq", any (), p.q_n, &dq), *dk_out = sp_case_out (c, "dkeys", any (), p.k_n, &dk);
    double *dv_out = sp_case_out (c, "dvalues", any (), p.v_n, &dv);
    void *scratch = sp_case_scratch (c, sp_dev_attention_bwd_scratch_bytes (p.dev));
    sp_ref_attention_bwd (p.shape, q_in, k_in, v_in, d_in, lse_in, delta_in, s->causal, p.qpos, p.kpos, dq_out, dk_out,
                          dv_out);
    SP_CASE_RUN (c, sp_dev_attention_bwd (p.dev, q, keys, values, d_o, lse.data, delta.data, s->causal, p.dev_qpos,
                                          p.dev_kpos, dq, dk, dv, scratch, NULL));
  }
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static const gint64 row_shapes[][3] = { { 1, 8, 1 }, { 9, 7, 3 }, { 24, 64, 4 }, { 300, 128, 3 }, { 66, 300, 2 } };

/* Of each five rows one has no key before, one none here, one neither. */
static void
lse_values (gint64 rows, gint64 none, double *lse)
{
  for (gint64 i = 0; i < rows; i++)
    lse[i] = i % 5 == none || i % 5 == 3 ? -INFINITY : sp_case_between (-3, 3);
}

static void
test_merge (void)
{
  for (guint i = 0; i < 2 * G_N_ELEMENTS (row_shapes); i++) {
    gint64 rows = row_shapes[i / 2][0], k = row_shapes[i / 2][1];
    gboolean accumulate = i % 2;
    SpDevTensor block_o, block_lse, o, lse;
    SpCase *c = sp_case_new (SP_CASE_PLAIN, "attention-merge", "rows = %d, k = %d%s", (int) rows, (int) k,
                             accumulate ? ", accumulate" : "");
    double *here = sp_case_numbers (c, rows), *before = sp_case_numbers (c, rows);
    const double *o_in = sp_case_in (c, "block o", any (), rows * k, 1, &block_o);
    lse_values (rows, 1, here);
    lse_values (rows, 2, before);
    const double *lse_in = sp_case_in_values (c, "block lse", SP_DEV_FP32, rows, here, &block_lse);
    if (accumulate) {
      double *o_out = sp_case_in_out (c, "o", SP_DEV_FP32, rows * k, 1, &o);
      double *lse_out = sp_case_in_out_values (c, "lse", SP_DEV_FP32, rows, before, &lse);
      sp_ref_attention_merge (rows, k, o_in, lse_in, o_out, lse_out);
    } else {
      sp_ref_copy (rows * k, o_in, sp_case_out (c, "o", SP_DEV_FP32, rows * k, &o));
      sp_ref_copy (rows, lse_in, sp_case_out (c, "lse", SP_DEV_FP32, rows, &lse));
    }
    SP_CASE_RUN (c, sp_dev_attention_merge (rows, k, accumulate, block_o, block_lse.data, o, lse.data, NULL));
  }
}

static void
test_delta (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (row_shapes); i++) {
    gint64 rows = row_shapes[i][0], k = row_shapes[i][1];
    SpDevTensor d_o, o, delta;
    SpCase *c = sp_case_new (SP_CASE_PLAIN, "attention-delta", "rows = %d, k = %d", (int) rows, (int) k);
    const double *d_in = sp_case_in (c, "d_o", any (), rows * k, 1, &d_o);
    const double *o_in = sp_case_in (c, "o", any (), rows * k, 1, &o);
    sp_ref_attention_delta (rows, k, d_in, o_in, sp_case_out (c, "delta", SP_DEV_FP32, rows, &delta));
    SP_CASE_RUN (c, sp_dev_attention_delta (rows, k, d_o, o, delta.data, NULL));
  }
}

static void
test_sinks (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (row_shapes); i++) {
    gint64 rows = row_shapes[i][0], k = row_shapes[i][1], heads = row_shapes[i][2];
    SpDevTensor sinks, o, lse, delta, dsinks;
    SpCase *c = sp_case_new (SP_CASE_PLAIN, "attention-sink", "rows = %d, k = %d", (int) rows, (int) k);
    double *before = sp_case_numbers (c, rows);
    const double *sink = sp_case_in (c, "sinks", any (), heads, 1, &sinks);
    double *o_out = sp_case_in_out (c, "o", any (), rows * k, 1, &o);
    lse_values (rows, 1, before);
    double *lse_out = sp_case_in_out_values (c, "lse", SP_DEV_FP32, rows, before, &lse);
    sp_ref_attention_sink (rows, k, heads, sink, o_out, lse_out);
    SP_CASE_RUN (c, sp_dev_attention_sink (rows, k, heads, sinks, o, lse.data, NULL));

    c = sp_case_new (SP_CASE_PLAIN, "attention-sink-bwd", "rows = %d, heads = %d", (int) rows, (int) heads);
    const double *lse_in = sp_case_in (c, "lse", SP_DEV_FP32, rows, 1, &lse);
    const double *delta_in = sp_case_in (c, "delta", SP_DEV_FP32, rows, 1, &delta);
    sink = sp_case_in (c, "sinks", any (), heads, 1, &sinks);
    sp_ref_attention_sink_bwd (rows, heads, lse_in, delta_in, sink,
                               sp_case_in_out (c, "dsinks", any (), heads, 1, &dsinks));
    SP_CASE_RUN (c, sp_dev_attention_sink_bwd (rows, heads, lse.data, delta.data, sinks, dsinks, NULL));
  }
}

/* Those of sm_80, on a card that has its own. */
static void
test_baseline (void)
{
  sp_dev_attention_baseline (TRUE);
  test_attention ();
  test_attention_bwd ();
  sp_dev_attention_baseline (FALSE);
}

void
sp_add_attention_cases (void)
{
  sp_case_add ("attention", test_attention);
  sp_case_add ("attention-bwd", test_attention_bwd);
  sp_case_add ("attention-baseline", test_baseline);
  sp_case_add ("attention-merge", test_merge);
  sp_case_add ("attention-delta", test_delta);
  sp_case_add ("attention-sink", test_sinks);
}
