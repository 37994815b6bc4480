/* SPDX-License-Identifier: Apache-2.0 */
/* Products by cuBLASLt beside the reference, of operands that begin anywhere: as weights do that lie one behind the other.
 * Needs a GPU, and is skipped where there is none. */
#include "calibrate/gemm.h"
#include "kernels/cases/case.h"

static const SpGemmShape shapes[] = {
  { .m = 100, .n = 64, .k = 128, .batch = 1, .flags = SP_GEMM_TRANS_B }, /* a projection */
  { .m = 100, .n = 4, .k = 64, .batch = 1, .flags = SP_GEMM_TRANS_B },   /* of a number a head */
  { .m = 100, .n = 64, .k = 4, .batch = 1, .flags = SP_GEMM_ADD },       /* its gradients */
  { .m = 4, .n = 64, .k = 100, .batch = 1, .flags = SP_GEMM_TRANS_A | SP_GEMM_ADD | SP_GEMM_FP32 },
  { .m = 256, .n = 384, .k = 512, .batch = 2, .flags = SP_GEMM_TRANS_B },
};

/* Elements before A, B and C; what follows a multiple of 256 bytes is 2, 8 or 16 bytes on. */
static const gint64 before[][3] = { { 0, 0, 0 }, { 0, 4, 0 }, { 0, 8, 0 }, { 4, 0, 4 },
                                    { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } };

static SpGemms *gemms;
static void *workspace;

static cudaError_t
launch (const SpGemmShape *s, const void *a, const void *b, void *c)
{
  g_autoptr (GError) error = NULL;

  if (sp_gemms_run (gemms, s, a, b, NULL, c, workspace, NULL, &error))
    return cudaSuccess;
  g_test_message ("%s", error->message);
  return cudaErrorUnknown;
}

static void
check_shape (const SpGemmShape *s, const gint64 skip[3])
{
  SpCase *c =
      sp_case_new (SP_CASE_TENSOR, "gemm", "m,n,k = %d,%d,%d, batch %d, flags %d, from %d, %d, %d", (int) s->m,
                   (int) s->n, (int) s->k, (int) s->batch, (int) s->flags, (int) skip[0], (int) skip[1], (int) skip[2]);
  gint64 a_n = s->m * s->k, b_n = s->k * s->n, c_n = s->m * s->n;
  gboolean adds = (s->flags & SP_GEMM_ADD) != 0, is_fp32 = (s->flags & SP_GEMM_FP32) != 0;
  SpDevTensor a, b, out;
  const double *a_in = sp_case_in (c, "a", SP_DEV_BF16, skip[0] + a_n * s->batch, 1, &a);
  const double *b_in = sp_case_in (c, "b", SP_DEV_BF16, skip[1] + b_n * s->batch, 1, &b);
  double *c_out = sp_case_in_out (c, "c", is_fp32 ? SP_DEV_FP32 : SP_DEV_BF16, skip[2] + c_n * s->batch, 1, &out);

  sp_ref_gemm ((s->flags & SP_GEMM_TRANS_A) != 0, (s->flags & SP_GEMM_TRANS_B) != 0, adds, s->batch, s->m, s->n, s->k,
               a_in + skip[0], a_n, b_in + skip[1], b_n, NULL, 0, c_out + skip[2], c_n);
  SP_CASE_RUN (c, launch (s, (const guint16 *) a.data + skip[0], (const guint16 *) b.data + skip[1],
                          (char *) out.data + skip[2] * (is_fp32 ? 4 : 2)));
}

static void
check_all (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    for (guint j = 0; j < G_N_ELEMENTS (before); j++)
      check_shape (&shapes[i], before[j]);
}

static void
say (const char *message, gpointer data)
{
  (void) data;
  g_test_message ("%s", message);
}

static void
test_anywhere (void)
{
  const SpCheck check = { "gemm", check_all };
  g_autoptr (GError) error = NULL;
  int n = 0;

  if (cudaGetDeviceCount (&n) != cudaSuccess || n == 0) {
    g_test_skip ("no GPU here");
    return;
  }
  gemms = sp_gemms_new (&error);
  g_assert_no_error (error);
  g_assert_true (cudaMalloc (&workspace, SP_GEMM_WORKSPACE_BYTES) == cudaSuccess);
  if (sp_check_run (&check, (guint32) g_test_rand_int (), say, NULL) > 0)
    g_test_fail ();
  cudaFree (workspace);
  sp_gemms_free (gemms);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/gemm/anywhere", test_anywhere);
  return g_test_run ();
}
