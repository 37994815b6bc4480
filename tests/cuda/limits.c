/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of more than 2^31 elements, and what the kernels refuse. */
#include "tests/cuda/limits.h"

#include "kernels/device.h"
#include "kernels/reference.h"

#include <math.h>
#include <string.h>

/* --- large -------------------------------------------------------------------------------------------------------- */

#define LARGE_ROWS ((gint64) 131200) /* of 16384 elements: 2^31, and 128 rows */
#define LARGE_COLUMNS ((gint64) 16384)

static guint16
to_bf16 (float x)
{
  guint32 bits;

  memcpy (&bits, &x, sizeof bits);
  return bits >> 16;
}

static double
from_bf16 (guint16 half)
{
  guint32 bits = (guint32) half << 16;
  float x;

  memcpy (&x, &bits, sizeof x);
  return x;
}

/* Input and output on the device, of which the last row is told from the others: 0.5 and on, where they are 0. */
typedef struct {
  guint16 *in, *out;
  double *row; /* the input's last row */
} Large;

static gboolean
large_begin (Large *l)
{
  gsize elements = LARGE_ROWS * LARGE_COLUMNS, available = 0, all = 0;
  g_autofree guint16 *last = g_new (guint16, LARGE_COLUMNS);

  if (cudaMemGetInfo (&available, &all) != cudaSuccess || available < 5 * elements) {
    g_test_skip ("no GPU here with 10 GB free");
    return FALSE;
  }
  g_assert_cmpint (cudaMalloc ((void **) &l->in, elements * 2), ==, cudaSuccess);
  g_assert_cmpint (cudaMalloc ((void **) &l->out, elements * 2), ==, cudaSuccess);
  g_assert_cmpint (cudaMemset (l->in, 0, elements * 2), ==, cudaSuccess);
  g_assert_cmpint (cudaMemset (l->out, 0xff, elements * 2), ==, cudaSuccess);
  l->row = g_new (double, LARGE_COLUMNS);
  for (gint64 i = 0; i < LARGE_COLUMNS; i++) {
    last[i] = to_bf16 (0.5f + (float) (i % 64) / 64);
    l->row[i] = from_bf16 (last[i]);
  }
  g_assert_cmpint (
      cudaMemcpy (l->in + (LARGE_ROWS - 1) * LARGE_COLUMNS, last, LARGE_COLUMNS * 2, cudaMemcpyHostToDevice), ==,
      cudaSuccess);
  return TRUE;
}

/* The last row of the output, of `columns`, is what is expected but for two roundings, and the one before it 0. */
static void
large_end (Large *l, gint64 columns, const double *expected)
{
  g_autofree guint16 *rows = g_new (guint16, 2 * columns);

  g_assert_cmpint (cudaDeviceSynchronize (), ==, cudaSuccess);
  g_assert_cmpint (
      cudaMemcpy (rows, l->out + (LARGE_ROWS - 2) * columns, 2 * columns * sizeof *rows, cudaMemcpyDeviceToHost), ==,
      cudaSuccess);
  for (gint64 i = 0; i < columns; i++) {
    g_assert_cmpfloat (from_bf16 (rows[i]), ==, 0);
    g_assert_cmpfloat_with_epsilon (from_bf16 (rows[columns + i]), expected[i], 0x1p-7 * fabs (expected[i]) + 1e-6);
  }
  cudaFree (l->in);
  cudaFree (l->out);
  g_free (l->row);
}

static void
test_large_glu (void)
{
  gint64 n = LARGE_COLUMNS / 2;
  g_autofree double *expected = g_new (double, n);
  Large l;

  if (!large_begin (&l))
    return;
  sp_ref_glu (SP_REF_SILU, 1, n, l.row, expected, NULL);
  g_assert_cmpint (sp_dev_glu (SP_DEV_SILU, LARGE_ROWS, n, (SpDevTensor){ l.in, SP_DEV_BF16 },
                               (SpDevTensor){ l.out, SP_DEV_BF16 }, NULL),
                   ==, cudaSuccess);
  large_end (&l, n, expected);
}

static void
test_large_norm (void)
{
  gint64 n = LARGE_COLUMNS;
  g_autofree double *expected = g_new (double, n);
  double stat;
  float *stats = NULL;
  SpDevTensor none = { NULL, SP_DEV_BF16 };
  Large l;

  if (!large_begin (&l))
    return;
  g_assert_cmpint (cudaMalloc ((void **) &stats, LARGE_ROWS * sizeof *stats), ==, cudaSuccess);
  sp_ref_norm (FALSE, 1, n, n, l.row, NULL, NULL, NULL, 1e-5, expected, &stat);
  g_assert_cmpint (sp_dev_norm (FALSE, LARGE_ROWS, n, n, (SpDevTensor){ l.in, SP_DEV_BF16 }, none, none, NULL, 1e-5,
                                (SpDevTensor){ l.out, SP_DEV_BF16 }, stats, NULL),
                   ==, cudaSuccess);
  large_end (&l, n, expected);
  cudaFree (stats);
}

/* 2050 sequences of 64 tokens and 256 heads of 64 features. Of the last sequence only the last token x is not 0, in
 * Q, K and V: its scores are |x|^2 / 8 with itself and 0 with the 63 others. */
static void
test_large_attention (void)
{
  gint64 heads = 256, k = 64, n = LARGE_COLUMNS, tokens = 64;
  SpDevShape shape = {
    .m = tokens, .n = tokens, .k = k, .batch = LARGE_ROWS / tokens, .heads = heads, .kv_heads = heads
  };
  g_autofree double *expected = g_new (double, n);
  double square = 0;
  float *lse = NULL;
  Large l;

  g_assert_cmpint (heads * k, ==, n);
  if (!large_begin (&l))
    return;
  for (gint64 i = 0; i < k; i++)
    square += l.row[i] * l.row[i];
  for (gint64 i = 0; i < n; i++)
    expected[i] = l.row[i] * exp (square / 8) / (exp (square / 8) + (double) (tokens - 1));

  SpDevTensor in = { l.in, SP_DEV_BF16 }, out = { l.out, SP_DEV_BF16 };
  g_assert_cmpint (cudaMalloc ((void **) &lse, LARGE_ROWS * heads * sizeof *lse), ==, cudaSuccess);
  g_assert_cmpint (sp_dev_attention (shape, in, in, in, FALSE, NULL, NULL, out, lse, NULL, NULL), ==, cudaSuccess);
  large_end (&l, n, expected);
  cudaFree (lse);
}

/* --- refused: before anything is launched, so that no GPU is needed ----------------------------------------------- */

static void
test_refused (void)
{
  static guint8 memory[64] __attribute__ ((aligned (16)));
  SpDevTensor half = { memory, SP_DEV_BF16 }, ids = { memory, SP_DEV_INT32 }, single = { memory, SP_DEV_FP32 };
  SpDevTensor odd = { memory + 2, SP_DEV_BF16 }, none = { NULL, SP_DEV_BF16 };
  SpDevShape shape = { .m = 8, .n = 8, .k = 64, .batch = 1, .heads = 1, .kv_heads = 1 }, uneven = shape, wide = shape;
  SpDevShape large = shape;
  float *x = (float *) memory;

  uneven.k = 60;
  wide.k = 264;
  g_assert_cmpint (sp_dev_attention (uneven, half, half, half, FALSE, NULL, NULL, half, x, NULL, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_attention (wide, half, half, half, FALSE, NULL, NULL, half, x, NULL, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_attention (shape, single, half, half, FALSE, NULL, NULL, half, x, NULL, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_attention (shape, half, odd, half, FALSE, NULL, NULL, half, x, NULL, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_linear_local (uneven, x, half, half, half, half, NULL, memory, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_linear_forward (shape, x, half, odd, half, NULL, half, NULL, memory, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_linear_inter (wide, x, half, x, half, NULL), ==, cudaErrorInvalidValue);
  large.k = SP_DEV_DELTA_MOST_K + 8;
  SpDevRecurrence delta = { shape, SP_DEV_DECAY_HEAD }, large_delta = { large, SP_DEV_DECAY_HEAD };
  SpDevRecurrence uneven_delta = { uneven, SP_DEV_DECAY_HEAD }, feature_delta = { shape, SP_DEV_DECAY_FEATURE };
  g_assert_cmpint (sp_dev_delta (&large_delta, half, half, half, x, none, NULL, half, NULL, memory, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_delta (&delta, half, half, half, x, ids, NULL, half, NULL, memory, NULL), ==,
                   cudaErrorInvalidValue);
  /* With a decay a feature gates are there, and aligned. */
  g_assert_cmpint (sp_dev_delta (&feature_delta, half, half, half, NULL, none, NULL, half, NULL, memory, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_delta (&feature_delta, half, half, half, x + 1, none, NULL, half, NULL, memory, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_delta_own (&uneven_delta, half, half, x, none, x, x, memory, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_delta_own_bwd (&delta, half, odd, x, none, half, x, x, memory, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_delta_bwd (&delta, half, half, half, x, none, half, NULL, NULL, single, half, half, x, none,
                                     NULL, memory, NULL),
                   ==, cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_delta_prefix (shape, 2, 2, FALSE, x, x, NULL), ==, cudaErrorInvalidValue);
  /* A decay a feature goes with neither beta nor keys that heads share; a convolution is of at most 4 tokens. */
  SpDevRecurrence by_head = { wide, SP_DEV_DECAY_HEAD }, by_feature = { shape, SP_DEV_DECAY_FEATURE };
  g_assert_cmpint (sp_dev_recurrent (&by_head, half, half, half, x, none, NULL, half, NULL, memory, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_recurrent_own (&by_feature, half, half, x, half, x, x, memory, NULL), ==,
                   cudaErrorInvalidValue);
  by_feature.shape.heads = 2;
  g_assert_cmpint (sp_dev_recurrent (&by_feature, half, half, half, x, none, NULL, half, NULL, memory, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_conv (2, 1, 8, 5, half, half, none, none, half, NULL), ==, cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_glu (SP_DEV_SILU, 2, 2, ids, half, NULL), ==, cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_copy (4, ids, half, NULL), ==, cudaErrorInvalidValue);
  /* A row that is split over ranks needs its sum of squares, and a LayerNorm cannot be split. */
  g_assert_cmpint (sp_dev_norm (FALSE, 2, 2, 4, half, none, none, NULL, 1e-5, half, x, NULL), ==,
                   cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_norm (TRUE, 2, 2, 4, half, none, none, x, 1e-5, half, x, NULL), ==, cudaErrorInvalidValue);
  g_assert_cmpint (sp_dev_pack (2, 4, 2, 3, half, half, NULL), ==, cudaErrorInvalidValue);
  g_assert_cmpint (
      sp_dev_dropout (2, 2, half, none, 1, NULL, NULL, 1, half, (SpDevTensor){ memory, SP_DEV_UINT8 }, NULL), ==,
      cudaErrorInvalidValue);
  /* What is empty is no error. */
  g_assert_cmpint (sp_dev_glu (SP_DEV_SILU, 0, 2, half, half, NULL), ==, cudaSuccess);
  shape.m = delta.shape.m = 0;
  g_assert_cmpint (sp_dev_attention (shape, half, half, half, FALSE, NULL, NULL, half, x, NULL, NULL), ==, cudaSuccess);
  g_assert_cmpint (sp_dev_delta (&delta, half, half, half, x, none, NULL, half, NULL, memory, NULL), ==, cudaSuccess);
}

void
sp_add_limit_tests (void)
{
  g_test_add_func ("/kernels/refused", test_refused);
  g_test_add_func ("/kernels/large/glu", test_large_glu);
  g_test_add_func ("/kernels/large/norm", test_large_norm);
  g_test_add_func ("/kernels/large/attention", test_large_attention);
}
