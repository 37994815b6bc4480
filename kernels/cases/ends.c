/* SPDX-License-Identifier: Apache-2.0 */
/* The embedding and the loss. */
#include "kernels/cases/case.h"

#include <math.h>

/* Tokens, rows of the table, features, different ids. Few ids: lists of more tokens than are sorted, and of as many. */
static const struct {
  gint64 m, n, k, ids;
} tables[] = {
  { 1, 1, 1, 1 },    { 9, 5, 8, 20 },    { 300, 40, 24, 60 },  { 257, 1000, 33, 1500 },
  { 1024, 3, 8, 1 }, { 1025, 3, 16, 1 }, { 3000, 4, 1032, 2 }, { 2500, 2, 7, 4 },
};

static const gint64 *
ids_below (SpCase *c, gint64 m, gint64 first, gint64 n, const int32_t **ret)
{
  g_autofree gint64 *values = g_new (gint64, m);

  for (gint64 i = 0; i < m; i++)
    values[i] = first + sp_case_below (n);
  return sp_case_ids (c, "ids", m, values, ret);
}

#define TABLE(i)                                                                                                       \
  gint64 m = tables[i].m, n = tables[i].n, k = tables[i].k;                                                            \
  const int32_t *dev_ids

static SpCase *
table_case (SpCaseSums sums, const char *kernel, guint i)
{
  return sp_case_new (sums, kernel,
                      "m = %" G_GINT64_FORMAT ", n = %" G_GINT64_FORMAT ", k = %" G_GINT64_FORMAT ", %" G_GINT64_FORMAT
                      " ids",
                      tables[i].m, tables[i].n, tables[i].k, tables[i].ids);
}

/* A part of the vocabulary from 7 on; ids from 5 on, so that some lie before the part, and some behind it. */
static void
test_embed (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (tables); i++) {
    TABLE (i);
    SpDevTensor table, x;
    SpCase *c = table_case (SP_CASE_EXACT, "embed", i);
    const double *rows = sp_case_in (c, "table", SP_DEV_BF16, n * k, 1, &table);
    const gint64 *ids = ids_below (c, m, 5, tables[i].ids + 4, &dev_ids);
    sp_ref_embed (m, n, k, ids, 7, rows, sp_case_out (c, "x", sp_case_dtype (), m * k, &x));
    SP_CASE_RUN (c, sp_dev_embed (m, n, k, dev_ids, 7, table, x, NULL));

    c = table_case (SP_CASE_PLAIN, "embed-bwd", i);
    const double *d = sp_case_in (c, "dx", sp_case_dtype (), m * k, 1, &x);
    ids = ids_below (c, m, i % 2 ? 5 : 7, tables[i].ids + (i % 2 ? 4 : 0), &dev_ids);
    sp_ref_embed_bwd (m, n, k, ids, 7, d, sp_case_in_out (c, "dtable", sp_case_dtype (), n * k, 1, &table));
    void *scratch = sp_case_scratch (c, sp_dev_embed_bwd_scratch_bytes (m, n));
    SP_CASE_RUN (c, sp_dev_embed_bwd (m, n, k, dev_ids, 7, x, table, scratch, NULL));
  }
}

static void
test_position (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (tables); i++) {
    TABLE (i);
    SpDevTensor x, table, out;
    SpCase *c = table_case (SP_CASE_PLAIN, "position", i);
    const double *in = sp_case_in (c, "x", sp_case_dtype (), m * k, 1, &x),
                 *rows = sp_case_in (c, "table", sp_case_dtype (), n * k, 1, &table);
    const gint64 *pos = ids_below (c, m, 0, n, &dev_ids);
    sp_ref_position (m, n, k, pos, in, rows, sp_case_out (c, "out", sp_case_dtype (), m * k, &out));
    SP_CASE_RUN (c, sp_dev_position (m, n, k, dev_ids, x, table, out, NULL));

    c = table_case (SP_CASE_PLAIN, "position-bwd", i);
    in = sp_case_in (c, "dx", sp_case_dtype (), m * k, 1, &x);
    pos = ids_below (c, m, 0, n, &dev_ids);
    sp_ref_position_bwd (m, n, k, pos, in, sp_case_in_out (c, "dtable", sp_case_dtype (), n * k, 1, &table));
    void *scratch = sp_case_scratch (c, sp_dev_embed_bwd_scratch_bytes (m, n));
    SP_CASE_RUN (c, sp_dev_position_bwd (m, n, k, dev_ids, x, table, scratch, NULL));
  }
}

/* --- loss --------------------------------------------------------------------------------------------------------- */

/* Rows, columns, of them real: the rest is padding. */
static const struct {
  gint64 m, n, columns;
} losses[] = { { 1, 1, 1 }, { 5, 16, 16 }, { 7, 33, 30 }, { 3, 5000, 5000 }, { 40, 520, 513 }, { 2, 20008, 20001 } };

/* What the reference reads: padding as -inf. */
static double *
masked (SpCase *c, guint i, const double *logits)
{
  gint64 m = losses[i].m, n = losses[i].n;
  double *copy = sp_case_numbers (c, m * n);

  for (gint64 l = 0; l < m * n; l++)
    copy[l] = l % n < losses[i].columns ? logits[l] : -INFINITY;
  return copy;
}

static SpCase *
loss_case (const char *kernel, guint i)
{
  return sp_case_new (SP_CASE_PLAIN, kernel, "m = %" G_GINT64_FORMAT ", n = %" G_GINT64_FORMAT, losses[i].m,
                      losses[i].n);
}

#define LOSS(i)                                                                                                        \
  gint64 m = losses[i].m, n = losses[i].n, first = 100;                                                                \
  SpDevTensor logits, max, sums;                                                                                       \
  const int32_t *dev_labels

static void
test_loss_max (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (losses); i++) {
    LOSS (i);
    SpCase *c = loss_case ("loss-max", i);
    const double *x = masked (c, i, sp_case_in (c, "logits", sp_case_dtype (), m * n, 5, &logits));
    sp_ref_loss_max (m, n, x, sp_case_out (c, "max", SP_DEV_FP32, m, &max));
    SP_CASE_RUN (c, sp_dev_loss_max (m, n, losses[i].columns, logits, max.data, NULL));

    c = loss_case ("loss-sum", i);
    x = masked (c, i, sp_case_in (c, "logits", sp_case_dtype (), m * n, 5, &logits));
    double *most = sp_case_numbers (c, m);
    sp_ref_loss_max (m, n, x, most);
    const double *most_in = sp_case_in_values (c, "max", SP_DEV_FP32, m, most, &max);
    const gint64 *labels = ids_below (c, m, first - 1, losses[i].columns + 1, &dev_labels);
    sp_ref_loss_sum (m, n, x, most_in, labels, first, sp_case_out (c, "sums", SP_DEV_FP32, 2 * m, &sums));
    SP_CASE_RUN (c, sp_dev_loss_sum (m, n, losses[i].columns, logits, max.data, dev_labels, first, sums.data, NULL));
  }
}

/* Every third row does not count. In place in every second case. */
static void
test_loss (void)
{
  for (guint v = 0; v < 2 * G_N_ELEMENTS (losses); v++) {
    guint i = v / 2;
    LOSS (i);
    SpDevTensor weights, dlogits;
    SpDevDtype dtype = sp_case_dtype ();
    SpCase *c = loss_case (v % 2 ? "loss in place" : "loss", i);
    g_autofree double *weight = g_new (double, m);
    double *most = sp_case_numbers (c, m), *sum = sp_case_numbers (c, 2 * m), *out, *in_place = NULL;
    const double *x;

    for (gint64 l = 0; l < m; l++)
      weight[l] = l % 3 == 2 ? 0 : 1.0 / 64;
    if (v % 2) {
      x = out = in_place = sp_case_in_out (c, "logits", dtype, m * n, 5, &logits);
      dlogits = logits;
    } else {
      x = sp_case_in (c, "logits", dtype, m * n, 5, &logits);
      out = sp_case_out (c, "dlogits", sp_case_dtype (), m * n, &dlogits);
    }
    x = masked (c, i, x);
    const gint64 *labels = ids_below (c, m, first, losses[i].columns, &dev_labels);
    const double *w = sp_case_in_values (c, "weights", SP_DEV_FP32, m, weight, &weights);
    sp_ref_loss_max (m, n, x, most);
    const double *most_in = sp_case_in_values (c, "max", SP_DEV_FP32, m, most, &max);
    sp_ref_loss_sum (m, n, x, most_in, labels, first, sum);
    const double *sum_in = sp_case_in_values (c, "sums", SP_DEV_FP32, 2 * m, sum, &sums);
    double loss = 0, *total = sp_case_scratch (c, sizeof *total);
    sp_ref_loss (m, n, x, most_in, sum_in, labels, first, w, &loss, out);

    /* The sum is added to what was there: 3. */
    double before = 3, got = NAN;
    while (sp_case_again (c)) {
      cudaMemcpy (total, &before, sizeof before, cudaMemcpyHostToDevice);
      sp_case_launched (c, sp_dev_loss (m, n, losses[i].columns, logits, max.data, sums.data, dev_labels, first,
                                        weights.data, total, dlogits, NULL));
    }
    cudaMemcpy (&got, total, sizeof got, cudaMemcpyDeviceToHost);
    sp_case_expect (c, "loss", got, before + loss, 1e-9 * (1 + ABS (loss)));
    sp_case_free (c);
  }
}

void
sp_add_end_cases (void)
{
  sp_case_add ("embed", test_embed);
  sp_case_add ("position", test_position);
  sp_case_add ("loss-max-sum", test_loss_max);
  sp_case_add ("loss", test_loss);
}
