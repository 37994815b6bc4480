/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN's attention beside the reference, as test-kernels-cuda has ours. Needs a GPU and cuDNN; each test is skipped
 * where one of them lacks. A block is one of a ring: its mask comes from positions, and in the backward other blocks
 * have as much of the softmax.
 */
#include <math.h>
#include <string.h>

#include "calibrate/cudnn.h"
#include "calibrate/mask.h"
#include "kernels/cases/case.h"

/* Positions of queries and keys. */
typedef enum {
  SAME,    /* as many, the same */
  END,     /* queries are the last of the keys */
  BEFORE,  /* keys all come before */
  AFTER,   /* and after: nothing is seen */
  EARLIER, /* a zigzag's block of an earlier rank: half of the keys are seen */
  LATER,   /* of a later one: half of the queries see */
  STRIPED  /* the key of a row comes behind it */
} Order;

typedef struct {
  gint64 m, n, batch, heads, kv_heads, k, v;
  gboolean causal;
  Order order;
} Shape;

static const Shape shapes[] = {
  { 1, 129, 1, 2, 2, 64, 64, FALSE, SAME },      { 77, 203, 2, 4, 2, 64, 64, FALSE, SAME },
  { 200, 200, 1, 4, 4, 128, 128, TRUE, SAME },   { 193, 193, 2, 4, 2, 128, 128, TRUE, SAME },
  { 150, 150, 3, 2, 1, 64, 64, TRUE, SAME },     { 192, 192, 1, 4, 4, 96, 96, TRUE, SAME },
  { 150, 150, 1, 4, 2, 256, 256, TRUE, SAME },   { 130, 130, 1, 2, 2, 256, 256, FALSE, SAME },
  { 128, 128, 1, 2, 2, 80, 80, TRUE, SAME },     { 64, 320, 1, 2, 2, 128, 128, TRUE, END },
  { 100, 230, 2, 2, 1, 64, 64, TRUE, END },      { 128, 192, 1, 4, 2, 128, 128, TRUE, BEFORE },
  { 128, 128, 1, 2, 1, 128, 128, TRUE, AFTER },  { 128, 128, 2, 2, 1, 128, 128, TRUE, EARLIER },
  { 192, 192, 1, 2, 2, 64, 64, TRUE, EARLIER },  { 128, 128, 2, 2, 1, 128, 128, TRUE, LATER },
  { 192, 192, 1, 4, 4, 64, 64, TRUE, LATER },    { 130, 130, 1, 2, 1, 128, 128, TRUE, STRIPED },
  { 140, 140, 1, 2, 2, 192, 128, TRUE, SAME },   { 1030, 1030, 1, 2, 1, 128, 128, TRUE, SAME },
  { 256, 1024, 1, 4, 4, 128, 128, FALSE, SAME },
};

static gint32
position (const Shape *s, gboolean is_key, gint64 i)
{
  gint32 at = (gint32) i, half = (gint32) s->m / 2;

  switch (s->order) {
  case END:
    return is_key ? at : (gint32) (s->n - s->m) + at;
  case BEFORE:
    return is_key ? at : (gint32) s->n + at;
  case AFTER:
    return is_key ? (gint32) s->m + at : at;
  case EARLIER: /* keys 0 .. and from 3000 on, queries from 1000 and 2000 on */
    return at % half + (is_key ? (at < half ? 0 : 3000) : (at < half ? 1000 : 2000));
  case LATER:
    return at % half + (is_key ? (at < half ? 1000 : 2000) : (at < half ? 0 : 3000));
  case STRIPED:
    return 2 * at + (is_key ? 1 : 0);
  default:
    return at;
  }
}

typedef struct {
  SpCase *c;
  SpRefShape shape;
  SpCudnnShape cudnn;
  gint64 q_n, k_n, v_n, o_n, rows;
  gint64 *qpos, *kpos;
} Block;

static SpMaskCut
cut_of (const Shape *s)
{
  g_autofree gint32 *qpos = g_new (gint32, s->m), *kpos = g_new (gint32, s->n);
  SpMaskCut cut = { .seen = s->n };

  for (gint64 i = 0; i < s->m; i++)
    qpos[i] = position (s, FALSE, i);
  for (gint64 j = 0; j < s->n; j++)
    kpos[j] = position (s, TRUE, j);
  g_assert_true (!s->causal || sp_mask_cut (s->m, qpos, s->n, kpos, &cut));
  return cut;
}

static Block
block_new (const char *kernel, const Shape *s, guint64 flags)
{
  SpMaskCut cut = cut_of (s);
  Block b = {
    .c = sp_case_new (SP_CASE_TENSOR, kernel, "m = %d, n = %d, batch = %d, heads = %d / %d, k = %d, v = %d%s, %d",
                      (int) s->m, (int) s->n, (int) s->batch, (int) s->heads, (int) s->kv_heads, (int) s->k, (int) s->v,
                      s->causal ? ", causal" : "", (int) s->order),
    .shape = { .m = s->m, .n = s->n, .k = s->k, .batch = s->batch, .heads = s->heads, .kv_heads = s->kv_heads },
    .cudnn = { s->m, s->n, s->batch, s->heads, s->kv_heads, s->k, s->v, cut.hidden, cut.seen,
               (cut.causal ? SP_CUDNN_CAUSAL : 0) | (cut.last ? SP_CUDNN_LAST : 0) | flags },
    .q_n = s->m * s->batch * s->heads * s->k,
    .k_n = s->n * s->batch * s->kv_heads * s->k,
    .v_n = s->n * s->batch * s->kv_heads * s->v,
    .o_n = s->m * s->batch * s->heads * s->v,
    .rows = s->m * s->batch * s->heads,
    .qpos = g_new (gint64, s->m),
    .kpos = g_new (gint64, s->n),
  };

  b.shape.v = s->v;
  for (gint64 i = 0; i < s->m; i++)
    b.qpos[i] = position (s, FALSE, i);
  for (gint64 j = 0; j < s->n; j++)
    b.kpos[j] = position (s, TRUE, j);
  return b;
}

static void
block_clear (Block *b)
{
  g_free (b->qpos);
  g_free (b->kpos);
}

/* NULL: not planned, which is said; heads of more than 128 have no backward before sm_90. */
static const SpCudnnPlan *
plan_of (SpCudnn *cudnn, Block *b)
{
  g_autoptr (GError) error = NULL;
  const SpCudnnPlan *plan = sp_cudnn_plan (cudnn, &b->cudnn, &error);

  if (plan == NULL) {
    g_test_message ("%s", error->message);
    if (b->cudnn.k <= 128)
      g_test_fail ();
    sp_case_free (b->c);
    block_clear (b);
  }
  return plan;
}

static cudaError_t
done (gboolean good, GError *error)
{
  if (!good) {
    g_test_message ("%s", error->message);
    g_test_fail ();
    g_error_free (error);
  }
  return good ? cudaSuccess : cudaErrorUnknown;
}

static void
test_forward (SpCudnn *cudnn)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    const Shape *s = &shapes[i];
    Block b = block_new ("cudnn attention", s, 0);
    SpDevTensor q, keys, values, o, lse;
    GError *error = NULL;
    const SpCudnnPlan *plan = plan_of (cudnn, &b);
    if (plan == NULL)
      continue;
    const double *q_in = sp_case_in (b.c, "q", SP_DEV_BF16, b.q_n, 2, &q);
    const double *k_in = sp_case_in (b.c, "keys", SP_DEV_BF16, b.k_n, 1, &keys);
    const double *v_in = sp_case_in (b.c, "values", SP_DEV_BF16, b.v_n, 1, &values);
    double *o_out = sp_case_out (b.c, "o", SP_DEV_BF16, b.o_n, &o);
    double *lse_out = sp_case_out (b.c, "lse", SP_DEV_FP32, b.rows, &lse);
    void *scratch = sp_case_scratch (b.c, (gsize) sp_cudnn_scratch_bytes (plan));
    sp_ref_attention (b.shape, q_in, k_in, v_in, s->causal, b.qpos, b.kpos, o_out, lse_out);
    SP_CASE_RUN (b.c, done (sp_cudnn_attention (cudnn, plan, q.data, keys.data, values.data, o.data, lse.data, scratch,
                                                NULL, &error),
                            error));
    block_clear (&b);
  }
}

static void
test_backward (SpCudnn *cudnn)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    const Shape *s = &shapes[i];
    Block b = block_new ("cudnn attention-bwd", s, SP_CUDNN_BACKWARD);
    SpDevTensor q, keys, values, d_o, lse, delta, dq, dk, dv;
    GError *error = NULL;
    const SpCudnnPlan *plan = plan_of (cudnn, &b);
    if (plan == NULL)
      continue;
    double *o = sp_case_numbers (b.c, b.o_n), *rows = sp_case_numbers (b.c, b.rows);
    double *sums = sp_case_numbers (b.c, b.rows);
    const double *q_in = sp_case_in (b.c, "q", SP_DEV_BF16, b.q_n, 2, &q);
    const double *k_in = sp_case_in (b.c, "keys", SP_DEV_BF16, b.k_n, 1, &keys);
    const double *v_in = sp_case_in (b.c, "values", SP_DEV_BF16, b.v_n, 1, &values);
    const double *d_in = sp_case_in (b.c, "d_o", SP_DEV_BF16, b.o_n, 1, &d_o);

    sp_ref_attention (b.shape, q_in, k_in, v_in, s->causal, b.qpos, b.kpos, o, rows);
    sp_ref_attention_delta (b.rows, s->v, d_in, o, sums);
    for (gint64 l = 0; l < b.rows; l++) {
      rows[l] = isfinite (rows[l]) ? rows[l] + log (2) : 1;
      sums[l] += sp_case_between (-1, 1);
    }
    const double *lse_in = sp_case_in_values (b.c, "lse", SP_DEV_FP32, b.rows, rows, &lse);
    const double *delta_in = sp_case_in_values (b.c, "delta", SP_DEV_FP32, b.rows, sums, &delta);
    double *dq_out = sp_case_out (b.c, "dq", SP_DEV_BF16, b.q_n, &dq);
    double *dk_out = sp_case_out (b.c, "dkeys", SP_DEV_BF16, b.k_n, &dk);
    double *dv_out = sp_case_out (b.c, "dvalues", SP_DEV_BF16, b.v_n, &dv);
    void *scratch = sp_case_scratch (b.c, (gsize) sp_cudnn_scratch_bytes (plan));
    sp_case_allow_other_bytes (b.c);
    sp_ref_attention_bwd (b.shape, q_in, k_in, v_in, d_in, lse_in, delta_in, s->causal, b.qpos, b.kpos, dq_out, dk_out,
                          dv_out);
    SP_CASE_RUN (b.c, done (sp_cudnn_attention_bwd (cudnn, plan, q.data, keys.data, values.data, d_o.data, lse.data,
                                                    delta.data, dq.data, dk.data, dv.data, scratch, NULL, &error),
                            error));
    block_clear (&b);
  }
}

/* What it has no kernel for is an error that says the shape, not a wrong result. */
static void
test_refuses (SpCudnn *cudnn)
{
  const SpCudnnShape odd = { 64, 64, 1, 2, 2, 60, 60, 0, 64, 0 };
  g_autoptr (GError) error = NULL;

  g_assert_null (sp_cudnn_plan (cudnn, &odd, &error));
  g_assert_nonnull (error);
  g_assert_nonnull (strstr (error->message, "64,64,1,2,2,60,60"));
}

/* What runs now: checks take no arguments. */
static SpCudnn *opened;
static void (*running) (SpCudnn *cudnn);

static void
run (void)
{
  running (opened);
}

static void
say (const char *message, gpointer data)
{
  (void) data;
  g_test_message ("%s", message);
}

static void
run_or_skip (gconstpointer data)
{
  const SpCheck check = { "cudnn", run };
  g_autoptr (GError) error = NULL;
  int n = 0;

  if (cudaGetDeviceCount (&n) != cudaSuccess || n == 0) {
    g_test_skip ("no GPU here");
    return;
  }
  g_autoptr (SpCudnn) cudnn = sp_cudnn_open (&error);
  if (cudnn == NULL) {
    g_test_skip (error->message);
    return;
  }
  memcpy (&running, data, sizeof running);
  opened = cudnn;
  if (sp_check_run (&check, (guint32) g_test_rand_int (), say, NULL) > 0)
    g_test_fail ();
  opened = NULL;
}

/* Without a GPU too: it is here with a version that is taken, or it is said what is missing. */
static void
test_version (void)
{
  g_autoptr (GError) error = NULL;
  guint version = sp_cudnn_version (&error);

  g_test_message ("%u %s", version, error != NULL ? error->message : "");
  g_assert_true (version == 0 ? error != NULL && strstr (error->message, "cuDNN") != NULL : version >= 91002);
}

int
main (int argc, char **argv)
{
  static void (*const tests[]) (SpCudnn * cudnn) = { test_forward, test_backward, test_refuses };

  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/cudnn/version", test_version);
  g_test_add_data_func ("/cudnn/forward", &tests[0], run_or_skip);
  g_test_add_data_func ("/cudnn/backward", &tests[1], run_or_skip);
  g_test_add_data_func ("/cudnn/refuses", &tests[2], run_or_skip);
  return g_test_run ();
}
