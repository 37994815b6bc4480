/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/gemm.h"

#include <cublasLt.h>
#include <gio/gio.h>
#include <string.h>

struct _SpGemms {
  cublasLtHandle_t lt;
  GHashTable *plans; /* SpGemmShape -> Plan */
};

typedef struct {
  SpGemmShape shape;
  cublasLtMatmulDesc_t op;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algo;
} Plan;

gboolean
sp_check_cuda (cudaError_t status, const char *call, GError **error)
{
  if (status != cudaSuccess)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_FAILED, "%s: %s", call, cudaGetErrorString (status));
  return status == cudaSuccess;
}

gboolean
sp_wait_event (cudaEvent_t event, SpFine fine, gpointer data, GError **error)
{
  cudaError_t status;

  for (guint turn = 0; (status = cudaEventQuery (event)) == cudaErrorNotReady; turn++)
    if (turn % 1024 == 1023 && !fine (data, error))
      return FALSE;
  return CUDA (status);
}

static gboolean
check_lt (cublasStatus_t status, const char *call, GError **error)
{
  if (status != CUBLAS_STATUS_SUCCESS)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_FAILED, "%s: %s", call, cublasLtGetStatusString (status));
  return status == CUBLAS_STATUS_SUCCESS;
}
#define LT(call) check_lt (call, #call, error)

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
  return (guint) (s->m * 73856093 ^ s->n * 19349663 ^ s->k * 83492791) ^ (guint) s->flags;
}

static gboolean
shape_equal (gconstpointer a, gconstpointer b)
{
  return memcmp (a, b, sizeof (SpGemmShape)) == 0;
}

SpGemms *
sp_gemms_new (GError **error)
{
  g_autoptr (SpGemms) gemms = g_new0 (SpGemms, 1);

  gemms->plans = g_hash_table_new_full (shape_hash, shape_equal, NULL, plan_free);
  return LT (cublasLtCreate (&gemms->lt)) ? g_steal_pointer (&gemms) : NULL;
}

void
sp_gemms_free (SpGemms *gemms)
{
  g_hash_table_unref (gemms->plans);
  if (gemms->lt != NULL)
    cublasLtDestroy (gemms->lt);
  g_free (gemms);
}

/* `rows` by `columns` as it is stored; the library counts columns first, so to it each is the transposed. */
static gboolean
make_layout (cublasLtMatrixLayout_t *ret, cudaDataType type, gint64 rows, gint64 columns, gint64 stride, gint64 batch,
             GError **error)
{
  gint32 count = (gint32) batch;
  gint64 apart = rows * columns;

  return LT (cublasLtMatrixLayoutCreate (ret, type, (guint64) columns, (guint64) rows,
                                         stride > 0 ? stride : columns)) &&
         LT (cublasLtMatrixLayoutSetAttribute (*ret, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count)) &&
         LT (cublasLtMatrixLayoutSetAttribute (*ret, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart,
                                               sizeof apart));
}

/* C^T = op(B)^T op(A)^T. */
static gboolean
describe (Plan *plan, GError **error)
{
  const SpGemmShape *s = &plan->shape;
  gboolean trans_a = (s->flags & SP_GEMM_TRANS_A) != 0, trans_b = (s->flags & SP_GEMM_TRANS_B) != 0;
  gboolean biased = (s->flags & SP_GEMM_BIAS) != 0;
  cublasOperation_t first = trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, second = trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType bias_type = CUDA_R_16BF;

  return LT (cublasLtMatmulDescCreate (&plan->op, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
         LT (cublasLtMatmulDescSetAttribute (plan->op, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first)) &&
         LT (cublasLtMatmulDescSetAttribute (plan->op, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second)) &&
         LT (cublasLtMatmulDescSetAttribute (plan->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue)) &&
         (!biased || LT (cublasLtMatmulDescSetAttribute (plan->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type,
                                                         sizeof bias_type))) &&
         make_layout (&plan->a, CUDA_R_16BF, trans_b ? s->n : s->k, trans_b ? s->k : s->n, 0, s->batch, error) &&
         make_layout (&plan->b, CUDA_R_16BF, trans_a ? s->k : s->m, trans_a ? s->m : s->k, s->a_stride, s->batch,
                      error) &&
         make_layout (&plan->c, s->flags & SP_GEMM_FP32 ? CUDA_R_32F : CUDA_R_16BF, s->m, s->n, s->c_stride, s->batch,
                      error);
}

/* The kernel that the library's heuristic names first. */
static gboolean
choose (SpGemms *gemms, Plan *plan, GError **error)
{
  const SpGemmShape *s = &plan->shape;
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t found;
  size_t workspace = SP_GEMM_WORKSPACE_BYTES;
  int count = 0;
  gboolean good = LT (cublasLtMatmulPreferenceCreate (&preference)) &&
                  LT (cublasLtMatmulPreferenceSetAttribute (preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                            &workspace, sizeof workspace)) &&
                  LT (cublasLtMatmulAlgoGetHeuristic (gemms->lt, plan->op, plan->a, plan->b, plan->c, plan->c,
                                                      preference, 1, &found, &count));

  if (preference != NULL)
    cublasLtMatmulPreferenceDestroy (preference);
  if (good && count > 0) {
    plan->algo = found.algo;
    return TRUE;
  }
  g_prefix_error (error, "m,n,k = %" G_GINT64_FORMAT ",%" G_GINT64_FORMAT ",%" G_GINT64_FORMAT ": ", s->m, s->n, s->k);
  if (good)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED,
                 "cuBLASLt has no kernel for m,n,k = %" G_GINT64_FORMAT ",%" G_GINT64_FORMAT ",%" G_GINT64_FORMAT, s->m,
                 s->n, s->k);
  return FALSE;
}

gboolean
sp_gemms_run (SpGemms *gemms, const SpGemmShape *shape, const void *a, const void *b, const void *bias, void *c,
              void *workspace, cudaStream_t stream, GError **error)
{
  Plan *plan = g_hash_table_lookup (gemms->plans, shape);
  float one = 1, zero = 0;

  if (plan == NULL) {
    plan = g_new0 (Plan, 1);
    plan->shape = *shape;
    if (!describe (plan, error) || !choose (gemms, plan, error)) {
      plan_free (plan);
      return FALSE;
    }
    g_hash_table_insert (gemms->plans, &plan->shape, plan);
  }
  if (shape->flags & SP_GEMM_BIAS &&
      !LT (cublasLtMatmulDescSetAttribute (plan->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias)))
    return FALSE;
  return LT (cublasLtMatmul (gemms->lt, plan->op, &one, b, plan->a, a, plan->b,
                             shape->flags & SP_GEMM_ADD ? &one : &zero, c, plan->c, c, plan->c, &plan->algo, workspace,
                             SP_GEMM_WORKSPACE_BYTES, stream));
}
