/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/gemm.h"

#include <cublasLt.h>
#include <gio/gio.h>
#include <string.h>

struct _SpGemms {
  cublasLtHandle_t lt;
  GHashTable *plans; /* Key -> Plan */
};

/* What decides which kernel the library may take: the shape, and the powers of two at whose multiples operands begin. It
 * knows rows' and batches' strides from the layouts. */
typedef struct {
  SpGemmShape shape;
  guint32 a_bytes, b_bytes, c_bytes, unused; /* without padding, for it is compared as bytes */
} Key;

typedef struct {
  Key key;
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
key_hash (gconstpointer key)
{
  const SpGemmShape *s = &((const Key *) key)->shape;
  return (guint) (s->m * 73856093 ^ s->n * 19349663 ^ s->k * 83492791) ^ (guint) s->flags;
}

static gboolean
key_equal (gconstpointer a, gconstpointer b)
{
  return memcmp (a, b, sizeof (Key)) == 0;
}

SpGemms *
sp_gemms_new (GError **error)
{
  g_autoptr (SpGemms) gemms = g_new0 (SpGemms, 1);

  gemms->plans = g_hash_table_new_full (key_hash, key_equal, NULL, plan_free);
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
  const SpGemmShape *s = &plan->key.shape;
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

/* Weights lie one behind the other, so that a matrix begins wherever the one before it ends: behind a few numbers a head
 * at a multiple of 8 bytes. Told nothing, the library counts on LARGEST_ALIGNMENT, and its kernel then refuses the pointer. */
#define LARGEST_ALIGNMENT 256

static guint32
alignment_of (const void *pointer)
{
  gsize address = (gsize) pointer | LARGEST_ALIGNMENT;

  return (guint32) (address & -address);
}

static gboolean
prefer (cublasLtMatmulPreference_t preference, const Key *key, GError **error)
{
  size_t workspace = SP_GEMM_WORKSPACE_BYTES;

  return LT (cublasLtMatmulPreferenceSetAttribute (preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                   sizeof workspace)) &&
         LT (cublasLtMatmulPreferenceSetAttribute (preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                   &key->b_bytes, sizeof key->b_bytes)) &&
         LT (cublasLtMatmulPreferenceSetAttribute (preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                   &key->a_bytes, sizeof key->a_bytes)) &&
         LT (cublasLtMatmulPreferenceSetAttribute (preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                   &key->c_bytes, sizeof key->c_bytes)) &&
         LT (cublasLtMatmulPreferenceSetAttribute (preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                                   &key->c_bytes, sizeof key->c_bytes));
}

/* The kernel that the library's heuristic names first. */
static gboolean
choose (SpGemms *gemms, Plan *plan, GError **error)
{
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  gboolean good = LT (cublasLtMatmulPreferenceCreate (&preference)) && prefer (preference, &plan->key, error) &&
                  LT (cublasLtMatmulAlgoGetHeuristic (gemms->lt, plan->op, plan->a, plan->b, plan->c, plan->c,
                                                      preference, 1, &found, &count));

  if (preference != NULL)
    cublasLtMatmulPreferenceDestroy (preference);
  if (good && count == 0)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED, "cuBLASLt has no kernel");
  if (!good || count == 0)
    return FALSE;
  plan->algo = found.algo;
  return TRUE;
}

/* Which product it was. */
static gboolean
fail (const Key *key, GError **error)
{
  const SpGemmShape *s = &key->shape;

  g_prefix_error (error,
                  "m,n,k = %" G_GINT64_FORMAT ",%" G_GINT64_FORMAT ",%" G_GINT64_FORMAT
                  ", A, B and C at multiples of %u, %u and %u bytes: ",
                  s->m, s->n, s->k, key->a_bytes, key->b_bytes, key->c_bytes);
  return FALSE;
}

static Plan *
find_plan (SpGemms *gemms, const Key *key, GError **error)
{
  Plan *plan = g_hash_table_lookup (gemms->plans, key);

  if (plan != NULL)
    return plan;
  plan = g_new0 (Plan, 1);
  plan->key = *key;
  if (!describe (plan, error) || !choose (gemms, plan, error)) {
    plan_free (plan);
    return NULL;
  }
  g_hash_table_insert (gemms->plans, &plan->key, plan);
  return plan;
}

gboolean
sp_gemms_run (SpGemms *gemms, const SpGemmShape *shape, const void *a, const void *b, const void *bias, void *c,
              void *workspace, cudaStream_t stream, GError **error)
{
  const Key key = { *shape, alignment_of (a), alignment_of (b), alignment_of (c), 0 };
  Plan *plan = find_plan (gemms, &key, error);
  float one = 1, zero = 0;

  if (plan == NULL)
    return fail (&key, error);
  if (shape->flags & SP_GEMM_BIAS &&
      !LT (cublasLtMatmulDescSetAttribute (plan->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias)))
    return fail (&key, error);
  cublasStatus_t status =
      cublasLtMatmul (gemms->lt, plan->op, &one, b, plan->a, a, plan->b, shape->flags & SP_GEMM_ADD ? &one : &zero, c,
                      plan->c, c, plan->c, &plan->algo, workspace, SP_GEMM_WORKSPACE_BYTES, stream);
  return check_lt (status, "cublasLtMatmul", error) || fail (&key, error);
}
