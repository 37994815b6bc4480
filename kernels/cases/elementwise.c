/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cases/case.h"

/* Rows that 16 bytes divide, and rows that they do not; one element; more elements than a block has threads. */
static const struct {
  gint64 m, n;
} shapes[] = { { 1, 1 }, { 3, 7 }, { 5, 8 }, { 17, 40 }, { 33, 129 }, { 64, 256 }, { 3, 2056 } };

#define EACH_SHAPE(i) for (guint i = 0; i < 2 * G_N_ELEMENTS (shapes); i++)
#define M(i) shapes[(i) / 2].m
#define N(i) shapes[(i) / 2].n

/* Every second case of a shape lies as no vector can. */
static SpCase *
new_case (const char *kernel, guint i, int variant)
{
  SpCase *c = sp_case_new (SP_CASE_PLAIN, kernel, "m = %" G_GINT64_FORMAT ", n = %" G_GINT64_FORMAT ", variant %d%s",
                           M (i), N (i), variant, i % 2 ? ", misaligned" : "");

  if (i % 2)
    sp_case_misalign (c);
  return c;
}

static void
test_glu (void)
{
  static const SpRefGate gates[] = { SP_REF_SILU, SP_REF_IDENTITY, SP_REF_GELU };
  static const SpDevGate device_gates[] = { SP_DEV_SILU, SP_DEV_IDENTITY, SP_DEV_GELU };

  EACH_SHAPE (i)
  for (int f = 0; f < 3; f++) {
    gint64 m = M (i), n = N (i);
    SpDevTensor gu, da, out;
    SpCase *c = new_case ("glu", i, f);
    const double *in = sp_case_in (c, "gu", sp_case_dtype (), 2 * m * n, 3, &gu);
    sp_ref_glu (gates[f], m, n, in, sp_case_out (c, "out", sp_case_dtype (), m * n, &out), NULL);
    SP_CASE_RUN (c, sp_dev_glu (device_gates[f], m, n, gu, out, NULL));

    c = new_case ("glu-bwd", i, f);
    in = sp_case_in (c, "gu", sp_case_dtype (), 2 * m * n, 3, &gu);
    const double *d = sp_case_in (c, "da", sp_case_dtype (), m * n, 1, &da);
    sp_ref_glu_bwd (gates[f], m, n, d, in, NULL, sp_case_out (c, "dgu", sp_case_dtype (), 2 * m * n, &out));
    SP_CASE_RUN (c, sp_dev_glu_bwd (device_gates[f], m, n, da, gu, out, NULL));
  }
}

typedef struct {
  const char *name, *bwd_name;
  void (*ref) (gint64 n, const double *x, double *out);
  void (*ref_bwd) (gint64 n, const double *d, const double *x, double *dx);
  cudaError_t (*dev) (int64_t n, SpDevTensor x, SpDevTensor out, cudaStream_t stream);
  cudaError_t (*dev_bwd) (int64_t n, SpDevTensor d, SpDevTensor x, SpDevTensor dx, cudaStream_t stream);
} Map;

#define RELU(suffix, squared)                                                                                          \
  static void ref_relu##suffix (gint64 n, const double *x, double *out)                                                \
  {                                                                                                                    \
    sp_ref_relu (squared, n, x, out);                                                                                  \
  }                                                                                                                    \
  static void ref_relu##suffix##_bwd (gint64 n, const double *d, const double *x, double *dx)                          \
  {                                                                                                                    \
    sp_ref_relu_bwd (squared, n, d, x, dx);                                                                            \
  }                                                                                                                    \
  static cudaError_t dev_relu##suffix (int64_t n, SpDevTensor x, SpDevTensor out, cudaStream_t stream)                 \
  {                                                                                                                    \
    return sp_dev_relu (squared, n, x, out, stream);                                                                   \
  }                                                                                                                    \
  static cudaError_t dev_relu##suffix##_bwd (int64_t n, SpDevTensor d, SpDevTensor x, SpDevTensor dx,                  \
                                             cudaStream_t stream)                                                      \
  {                                                                                                                    \
    return sp_dev_relu_bwd (squared, n, d, x, dx, stream);                                                             \
  }
RELU (, FALSE)
RELU (_squared, TRUE)

static void
test_maps (void)
{
  static const Map maps[] = {
    { "gelu", "gelu-bwd", sp_ref_gelu, sp_ref_gelu_bwd, sp_dev_gelu, sp_dev_gelu_bwd },
    { "relu", "relu-bwd", ref_relu, ref_relu_bwd, dev_relu, dev_relu_bwd },
    { "relu squared", "relu-bwd squared", ref_relu_squared, ref_relu_squared_bwd, dev_relu_squared,
      dev_relu_squared_bwd },
    { "sigmoid", "sigmoid-bwd", sp_ref_sigmoid_rows, sp_ref_sigmoid_rows_bwd, sp_dev_sigmoid_rows,
      sp_dev_sigmoid_rows_bwd },
  };

  EACH_SHAPE (i)
  for (guint f = 0; f < G_N_ELEMENTS (maps); f++) {
    gint64 n = M (i) * N (i);
    SpDevTensor x, d, out;
    SpCase *c = new_case (maps[f].name, i, (int) f);
    const double *in = sp_case_in (c, "x", sp_case_dtype (), n, 4, &x);
    maps[f].ref (n, in, sp_case_out (c, "out", sp_case_dtype (), n, &out));
    SP_CASE_RUN (c, maps[f].dev (n, x, out, NULL));

    c = new_case (maps[f].bwd_name, i, (int) f);
    in = sp_case_in (c, "x", sp_case_dtype (), n, 4, &x);
    const double *d_in = sp_case_in (c, "d", sp_case_dtype (), n, 1, &d);
    maps[f].ref_bwd (n, d_in, in, sp_case_out (c, "dx", sp_case_dtype (), n, &out));
    SP_CASE_RUN (c, maps[f].dev_bwd (n, d, x, out, NULL));
  }
}

static void
test_gate (void)
{
  EACH_SHAPE (i)
  for (int silu = 0; silu < 2; silu++) {
    gint64 m = M (i), n = N (i), width = n + (silu ? n : 3 * n);
    SpDevTensor o, gates, d, out, du;
    SpCase *c = new_case ("gate", i, silu);
    const double *a = sp_case_in (c, "o", sp_case_dtype (), m * n, 1, &o);
    const double *u = sp_case_in (c, "gates", sp_case_dtype (), m * width, 3, &gates);
    sp_ref_gate (silu, m, n, width, a, u, sp_case_out (c, "out", sp_case_dtype (), m * n, &out));
    SP_CASE_RUN (c, sp_dev_gate (silu, m, n, width, o, gates, out, NULL));

    c = new_case ("gate-bwd", i, silu);
    const double *dy = sp_case_in (c, "d", sp_case_dtype (), m * n, 1, &d);
    a = sp_case_in (c, "o", sp_case_dtype (), m * n, 1, &o);
    u = sp_case_in (c, "gates", sp_case_dtype (), m * width, 3, &gates);
    double *d_o = sp_case_out (c, "d_o", sp_case_dtype (), m * n, &out);
    sp_ref_gate_bwd (silu, m, n, width, dy, a, u, d_o, sp_case_out (c, "du", sp_case_dtype (), m * n, &du));
    SP_CASE_RUN (c, sp_dev_gate_bwd (silu, m, n, width, d, o, gates, out, du, NULL));
  }
}

static void
test_row_gate (void)
{
  EACH_SHAPE (i)
  {
    gint64 m = M (i), n = N (i);
    SpDevTensor x, u, d, out, du;
    SpCase *c = new_case ("row-gate", i, 0);
    const double *a = sp_case_in (c, "x", sp_case_dtype (), m * n, 1, &x),
                 *b = sp_case_in (c, "u", sp_case_dtype (), m, 2, &u);
    sp_ref_row_gate (m, n, a, b, sp_case_out (c, "out", sp_case_dtype (), m * n, &out));
    SP_CASE_RUN (c, sp_dev_row_gate (m, n, x, u, out, NULL));

    c = new_case ("row-gate-bwd", i, 0);
    const double *dy = sp_case_in (c, "d", sp_case_dtype (), m * n, 1, &d);
    a = sp_case_in (c, "x", sp_case_dtype (), m * n, 1, &x);
    b = sp_case_in (c, "u", sp_case_dtype (), m, 2, &u);
    double *dx = sp_case_out (c, "dx", sp_case_dtype (), m * n, &out);
    sp_ref_row_gate_bwd (m, n, dy, a, b, dx, sp_case_out (c, "du", SP_DEV_FP32, m, &du));
    SP_CASE_RUN (c, sp_dev_row_gate_bwd (m, n, d, x, u, out, du, NULL));
  }
}

static void
test_add (void)
{
  EACH_SHAPE (i)
  for (int biases = 0; biases < 3; biases++) {
    gint64 m = M (i), n = N (i);
    SpDevTensor a, b, bias, more, out;
    SpCase *c = new_case ("add", i, biases);
    const double *x = sp_case_in (c, "a", sp_case_dtype (), m * n, 1, &a),
                 *y = sp_case_in (c, "b", sp_case_dtype (), m * n, 1, &b);
    const double *z = biases > 0 ? sp_case_in (c, "bias", sp_case_dtype (), n, 1, &bias) : sp_case_in_absent (&bias);
    const double *w = biases > 1 ? sp_case_in (c, "more", sp_case_dtype (), n, 1, &more) : sp_case_in_absent (&more);
    double *sum = sp_case_out (c, "out", sp_case_dtype (), m * n, &out);
    for (gint64 l = 0; l < m * n; l++)
      sum[l] = x[l] + y[l] + (z ? z[l % n] : 0) + (w ? w[l % n] : 0);
    SP_CASE_RUN (c, sp_dev_add (m, n, a, b, bias, more, out, NULL));
  }
}

static void
test_accumulate_copy_zero (void)
{
  EACH_SHAPE (i)
  {
    gint64 n = M (i) * N (i);
    SpDevTensor x, out;
    SpCase *c = new_case ("accumulate", i, 0);
    const double *in = sp_case_in (c, "x", sp_case_dtype (), n, 1, &x);
    sp_ref_accumulate (n, in, sp_case_in_out (c, "out", sp_case_dtype (), n, 1, &out));
    SP_CASE_RUN (c, sp_dev_accumulate (n, x, out, NULL));

    for (int variant = 0; variant < 4; variant++) {
      c = new_case ("copy", i, variant);
      in = sp_case_in (c, "x", variant & 1 ? SP_DEV_BF16 : SP_DEV_FP32, n, 1, &x);
      sp_ref_copy (n, in, sp_case_out (c, "out", variant & 2 ? SP_DEV_BF16 : SP_DEV_FP32, n, &out));
      SP_CASE_RUN (c, sp_dev_copy (n, x, out, NULL));
    }

    c = new_case ("zero", i, 0);
    sp_ref_zero (n, sp_case_out (c, "out", sp_case_dtype (), n, &out));
    SP_CASE_RUN (c, sp_dev_zero (n, out, NULL));
  }
}

/* The mask has to be the reference's, also where p is a float's neighbour: it is compared as numbers, 0 or 1. */
static void
test_dropout (void)
{
  static const double probabilities[] = { 0, 0.1, 0.5, 0.9 };

  EACH_SHAPE (i)
  for (guint v = 0; v < G_N_ELEMENTS (probabilities); v++) {
    gint64 m = M (i), n = N (i), *rows = g_new (gint64, m), *columns = g_new (gint64, n);
    double p = probabilities[v];
    guint64 seed = (guint64) sp_case_below (1ll << 52) << 12;
    const int64_t *row_ids, *col_ids;
    SpDevTensor x, bias, y, mask, d;
    SpCase *c = new_case ("dropout", i, (int) v);

    for (gint64 l = 0; l < m; l++)
      rows[l] = sp_case_below (1ll << 40);
    for (gint64 l = 0; l < n; l++)
      columns[l] = 5 + l;
    const double *in = sp_case_in (c, "x", sp_case_dtype (), m * n, 1, &x);
    const double *b = v % 2 ? sp_case_in (c, "bias", sp_case_dtype (), n, 1, &bias) : sp_case_in_absent (&bias);
    const gint64 *r = sp_case_wide_ids (c, "row ids", m, rows, &row_ids);
    const gint64 *k = sp_case_wide_ids (c, "column ids", n, columns, &col_ids);
    double *sum = sp_case_numbers (c, m * n), *kept = sp_case_out (c, "mask", SP_DEV_UINT8, m * n, &mask);
    for (gint64 l = 0; l < m * n; l++)
      sum[l] = in[l] + (b ? b[l % n] : 0);
    sp_ref_dropout (m, n, sum, seed, r, k, p, sp_case_out (c, "y", sp_case_dtype (), m * n, &y), kept);
    g_autofree double *kept_copy = g_memdup2 (kept, m * n * sizeof *kept);
    SP_CASE_RUN (c, sp_dev_dropout (m, n, x, bias, seed, row_ids, col_ids, p, y, mask, NULL));

    c = new_case ("dropout-bwd", i, (int) v);
    in = sp_case_in (c, "dy", sp_case_dtype (), m * n, 1, &d);
    const double *was_kept = sp_case_in_values (c, "mask", SP_DEV_UINT8, m * n, kept_copy, &mask);
    sp_ref_dropout_bwd (m, n, in, was_kept, p, sp_case_out (c, "dx", sp_case_dtype (), m * n, &y));
    SP_CASE_RUN (c, sp_dev_dropout_bwd (m, n, d, mask, p, y, NULL));
    g_free (rows);
    g_free (columns);
  }
}

void
sp_add_elementwise_cases (void)
{
  sp_case_add ("glu", test_glu);
  sp_case_add ("maps", test_maps);
  sp_case_add ("gate", test_gate);
  sp_case_add ("row-gate", test_row_gate);
  sp_case_add ("add", test_add);
  sp_case_add ("accumulate-copy-zero", test_accumulate_copy_zero);
  sp_case_add ("dropout", test_dropout);
}
