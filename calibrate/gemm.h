/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLASLt, planned once for each shape and alignment of operands; one way of saying which call to CUDA
 * failed, and of waiting. */
#pragma once

#include <cuda_runtime_api.h>
#include <glib.h>

/* Both with the call's name and the library's word for what went wrong. */
gboolean sp_check_cuda (cudaError_t status, const char *call, GError **error);
#define CUDA(call) sp_check_cuda (call, #call, error)
/* Waits by looking, and asks now and then whether all else is fine, so that a rank that failed or an error of NCCL ends
 * the wait. */
typedef gboolean (*SpFine) (gpointer data, GError **error);
gboolean sp_wait_event (cudaEvent_t event, SpFine fine, gpointer data, GError **error);

typedef enum {
  SP_GEMM_TRANS_A = 1 << 0, /* A is stored [k,m] */
  SP_GEMM_TRANS_B = 1 << 1, /* B is stored [n,k] */
  SP_GEMM_ADD = 1 << 2,
  SP_GEMM_FP32 = 1 << 3, /* C */
  SP_GEMM_BIAS = 1 << 4  /* bf16 */
} SpGemmFlags;

/* C[m,n] (+)= op(A) op(B) [+ bias[n]], row-major; A and B bf16, sums in fp32, `batch` times with all operands one behind
 * the other. */
typedef struct {
  gint64 m, n, k, batch;
  gint64 a_stride, c_stride; /* elements from row to row, of batch 1; 0: as wide as the matrix */
  guint64 flags;             /* SpGemmFlags */
} SpGemmShape;

enum { SP_GEMM_WORKSPACE_BYTES = 32 << 20 };

typedef struct _SpGemms SpGemms;

SpGemms *sp_gemms_new (GError **error);
void sp_gemms_free (SpGemms *gemms);
/* Operands may begin at any multiple of their elements' size. `workspace` is the stream's own. Errors name the shape and
 * how operands were aligned. */
gboolean sp_gemms_run (SpGemms *gemms, const SpGemmShape *shape, const void *a, const void *b, const void *bias,
                       void *c, void *workspace, cudaStream_t stream, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpGemms, sp_gemms_free)
