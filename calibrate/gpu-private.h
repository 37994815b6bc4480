/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a GPU share: its state, and one way of saying which call failed. */
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#if HAVE_NCCL
#include <nccl.h>
#endif

#include "calibrate/gpu.h"

enum { SP_GPU_WORKSPACE_BYTES = 32 << 20 };

struct _SpGpu {
  SpRank *rank;
  char card[256];
  cudaStream_t streams[2];
  cudaEvent_t events[4]; /* start and end, on either stream */
  cublasLtHandle_t lt;
  void *workspaces[2]; /* of a stream */
  char *send, *receive, *host;
  gsize bytes; /* of each of them */
  gint64 context_bytes, communicator_bytes;
  GHashTable *plans; /* of GEMMs */
#if HAVE_NCCL
  GPtrArray *comms; /* ncclComm_t, and how they were made: the first as NCCL likes */
  GPtrArray *comm_variants;
#endif
};

/* C[m,n] = op(A) op(B), row-major, all bf16, sums in fp32. */
typedef struct {
  gint64 m, n, k;
  gboolean trans_a, trans_b; /* A is stored [k,m], B [n,k] */
} SpGemmShape;

gboolean sp_gpu_check_cuda (cudaError_t status, const char *call, GError **error);
gboolean sp_gpu_check_lt (cublasStatus_t status, const char *call, GError **error);
#define CUDA(call) sp_gpu_check_cuda (call, #call, error)
#define LT(call) sp_gpu_check_lt (call, #call, error)

gint64 sp_gpu_used_bytes (void);

/* gpu-gemm.c */
GHashTable *sp_gpu_plans_new (void);
/* A linear layer's is "cublaslt"; else op(A) and op(B) follow as n or t: "cublaslt/nn". */
SpGemmShape sp_gpu_gemm_of (const SpMeasuredRow *row);
gboolean sp_gpu_gemm (SpGpu *gpu, const SpGemmShape *shape, const void *a, const void *b, void *c, int stream,
                      GError **error);

/* gpu-nccl.c */
gboolean sp_gpu_connect (SpGpu *gpu, const char *variant, GError **error);
void sp_gpu_disconnect (SpGpu *gpu);
gboolean sp_gpu_nccl_fine (SpGpu *gpu, GError **error);
gboolean sp_gpu_issue_nccl (SpGpu *gpu, const SpMeasuredRow *row, cudaStream_t stream, GError **error);
