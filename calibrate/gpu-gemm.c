/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLASLt: the kernel that its heuristic names first for a shape, asked once. */
#include "calibrate/gpu-private.h"

#include <gio/gio.h>
#include <string.h>

typedef struct {
  SpGemmShape shape;
  cublasLtMatmulDesc_t op;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algo;
} Plan;

static void
plan_free (gpointer data)
{
  Plan *plan = data;
  cublasLtMatrixLayout_t layouts[] = { plan->a, plan->b, plan->c };

  if (plan->op != NULL)
    cublasLtMatmulDescDestroy (plan->op);
  for (guint i = 0; i < G_N_ELEMENTS (layouts); i++)
    if (layouts[i] != NULL)
      cublasLtMatrixLayoutDestroy (layouts[i]);
  g_free (plan);
}

static guint
shape_hash (gconstpointer key)
{
  const SpGemmShape *s = key;
  return (guint) (s->m * 73856093 ^ s->n * 19349663 ^ s->k * 83492791) ^ (guint) (s->trans_a << 1 | s->trans_b);
}

static gboolean
shape_equal (gconstpointer a, gconstpointer b)
{
  const SpGemmShape *x = a, *y = b;
  return x->m == y->m && x->n == y->n && x->k == y->k && x->trans_a == y->trans_a && x->trans_b == y->trans_b;
}

GHashTable *
sp_gpu_plans_new (void)
{
  return g_hash_table_new_full (shape_hash, shape_equal, NULL, plan_free);
}

SpGemmShape
sp_gpu_gemm_of (const SpMeasuredRow *row)
{
  SpGemmShape shape = { row->m, row->n, row->k, FALSE, TRUE };
  const char *slash = strchr (row->variant, '/');

  if (slash != NULL) {
    shape.trans_a = slash[1] == 't';
    shape.trans_b = slash[1] != '\0' && slash[2] == 't';
  }
  return shape;
}

/* Row-major C = op(A) op(B) is, to a library that counts columns first, C^T = op(B)^T op(A)^T. */
static gboolean
make (SpGpu *gpu, Plan *plan, GError **error)
{
  const SpGemmShape *s = &plan->shape;
  guint64 m = (guint64) s->m, n = (guint64) s->n, k = (guint64) s->k;
  cublasOperation_t first = s->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, second = s->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t found;
  size_t workspace = SP_GPU_WORKSPACE_BYTES;
  int count = 0;
  gboolean good = LT (cublasLtMatmulDescCreate (&plan->op, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
                  LT (cublasLtMatmulDescSetAttribute (plan->op, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first)) &&
                  LT (cublasLtMatmulDescSetAttribute (plan->op, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second)) &&
                  LT (cublasLtMatrixLayoutCreate (&plan->a, CUDA_R_16BF, s->trans_b ? k : n, s->trans_b ? n : k,
                                                  (gint64) (s->trans_b ? k : n))) &&
                  LT (cublasLtMatrixLayoutCreate (&plan->b, CUDA_R_16BF, s->trans_a ? m : k, s->trans_a ? k : m,
                                                  (gint64) (s->trans_a ? m : k))) &&
                  LT (cublasLtMatrixLayoutCreate (&plan->c, CUDA_R_16BF, n, m, (gint64) n)) &&
                  LT (cublasLtMatmulPreferenceCreate (&preference)) &&
                  LT (cublasLtMatmulPreferenceSetAttribute (preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                            &workspace, sizeof workspace)) &&
                  LT (cublasLtMatmulAlgoGetHeuristic (gpu->lt, plan->op, plan->a, plan->b, plan->c, plan->c, preference,
                                                      1, &found, &count));

  if (preference != NULL)
    cublasLtMatmulPreferenceDestroy (preference);
  if (!good)
    return FALSE;
  if (count == 0) {
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED,
                 "cuBLASLt has no kernel for m,n,k = %" G_GINT64_FORMAT ",%" G_GINT64_FORMAT ",%" G_GINT64_FORMAT, s->m,
                 s->n, s->k);
    return FALSE;
  }
  plan->algo = found.algo;
  return TRUE;
}

gboolean
sp_gpu_gemm (SpGpu *gpu, const SpGemmShape *shape, const void *a, const void *b, void *c, int stream, GError **error)
{
  Plan *plan = g_hash_table_lookup (gpu->plans, shape);
  float one = 1, zero = 0;

  if (plan == NULL) {
    plan = g_new0 (Plan, 1);
    plan->shape = *shape;
    if (!make (gpu, plan, error)) {
      plan_free (plan);
      return FALSE;
    }
    g_hash_table_insert (gpu->plans, &plan->shape, plan);
  }
  return LT (cublasLtMatmul (gpu->lt, plan->op, &one, b, plan->a, a, plan->b, &zero, c, plan->c, c, plan->c,
                             &plan->algo, gpu->workspaces[stream], SP_GPU_WORKSPACE_BYTES, gpu->streams[stream]));
}
