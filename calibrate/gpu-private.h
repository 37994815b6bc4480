/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a GPU share: its state. */
#pragma once

#include "calibrate/gemm.h"
#include "calibrate/gpu.h"
#include "calibrate/nccl.h"

#if HAVE_NCCL
typedef struct {
  ncclComm_t comm;
  char *forced; /* ALGORITHM/PROTOCOL; NULL: as NCCL likes */
  int ranks;
} SpGpuComm;
#endif

struct _SpGpu {
  SpRank *rank;
  cudaStream_t plain_streams[2], nccl_streams[2]; /* the latter of the highest priority, as the player's */
  cudaEvent_t events[4];                          /* start and end, of either place */
  SpGemms *gemms;
  void *workspaces[2]; /* of a place */
  char *send, *receive, *host;
  gsize bytes;                /* of each of them */
  GArray *comms;              /* SpGpuComm; the first is of all ranks, as NCCL likes */
  char *algorithm, *protocol; /* that the user's environment forces, or NULL */
};

/* gpu-nccl.c: groups are of neighbouring ranks, the first `ranks` of them, the next, and so on. */
gboolean sp_gpu_connect (SpGpu *gpu, const char *variant, int ranks, GError **error);
void sp_gpu_disconnect (SpGpu *gpu);
/* Has NCCL or another rank failed? */
gboolean sp_gpu_fine (gpointer gpu, GError **error);
gboolean sp_gpu_issue_nccl (SpGpu *gpu, const SpMeasuredRow *row, cudaStream_t stream, GError **error);

/* gpu-hop.c: a launch whose variant begins so: from a stream to another one, one way. "hop": of a small copy on the other
 * stream, over one on the kernels' own; "hop-OP": of a transfer of so many bytes, over a captured batch of them. */
#define SP_GPU_HOP "hop"
gboolean sp_gpu_time_hop (SpGpu *gpu, const SpMeasuredRow *row, double *ret_s, GError **error);
