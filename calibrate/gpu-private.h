/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a GPU share: its state. */
#pragma once

#include "calibrate/gemm.h"
#include "calibrate/gpu.h"
#include "calibrate/nccl.h"

struct _SpGpu {
  SpRank *rank;
  cudaStream_t plain_streams[2], nccl_streams[2]; /* the latter of the highest priority, as the player's */
  cudaEvent_t events[4]; /* start and end, of either place */
  SpGemms *gemms;
  void *workspaces[2]; /* of a place */
  char *send, *receive, *host;
  gsize bytes; /* of each of them */
#if HAVE_NCCL
  GPtrArray *comms; /* ncclComm_t, and how they were made: the first as NCCL likes */
  GPtrArray *comm_variants;
#endif
};

/* gpu-nccl.c */
gboolean sp_gpu_connect (SpGpu *gpu, const char *variant, GError **error);
void sp_gpu_disconnect (SpGpu *gpu);
gboolean sp_gpu_nccl_fine (SpGpu *gpu, GError **error);
gboolean sp_gpu_issue_nccl (SpGpu *gpu, const SpMeasuredRow *row, cudaStream_t stream, GError **error);
