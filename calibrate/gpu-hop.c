/* SPDX-License-Identifier: Apache-2.0 */
/* From a stream to another and back: what a transfer takes more between kernels that wait for it than by itself. */
#include "calibrate/gpu-private.h"

#include <string.h>

/* The copy stands for any kernel on the other stream. */
enum { COPY_BYTES = 1024, SIDE = 1024 };

static gboolean
issue_other (SpGpu *gpu, const SpMeasuredRow *transfer, cudaStream_t stream, GError **error)
{
  if (transfer != NULL)
    return sp_gpu_issue_nccl (gpu, transfer, stream, error);
  return CUDA (cudaMemcpyAsync (gpu->receive, gpu->send, COPY_BYTES, cudaMemcpyDefault, stream));
}

static gboolean
issue_product (SpGpu *gpu, GError **error)
{
  const SpGemmShape shape = { .m = SIDE, .n = SIDE, .k = SIDE, .batch = 1, .flags = SP_GEMM_TRANS_B };

  return sp_gemms_run (gpu->gemms, &shape, gpu->send, gpu->send + (gsize) 2 * SIDE * SIDE, NULL, gpu->receive,
                       gpu->workspaces[0], gpu->plain_streams[0], error);
}

/* What an executor puts between kernels and communication: events without a time, which are quicker. */
static gboolean
issue_between (SpGpu *gpu, const SpMeasuredRow *transfer, cudaEvent_t event, GError **error)
{
  cudaStream_t plain = gpu->plain_streams[0], other = gpu->nccl_streams[0];

  return CUDA (cudaEventRecord (event, plain)) && CUDA (cudaStreamWaitEvent (other, event, 0)) &&
         issue_other (gpu, transfer, other, error) && CUDA (cudaEventRecord (event, other)) &&
         CUDA (cudaStreamWaitEvent (plain, event, 0));
}

typedef enum { PRODUCTS, WITH_OTHERS, OTHERS_BEHIND } Turns;

/* Seconds of a turn: a product; with something else on the other stream, for which the next product waits; or with that
 * behind the product on its own stream. The host has issued all turns when they begin. */
static gboolean
time_turns (SpGpu *gpu, Turns what, const SpMeasuredRow *transfer, cudaEvent_t between, double *ret_s, GError **error)
{
  enum { LEAD = 400, TURNS = 64 };
  cudaStream_t plain = gpu->plain_streams[0];
  cudaEvent_t *events = gpu->events;
  float ms = 0;

  for (int i = 0; i < LEAD; i++)
    if (!CUDA (cudaMemsetAsync (gpu->workspaces[0], 0, SP_GEMM_WORKSPACE_BYTES, plain)))
      return FALSE;
  if (!CUDA (cudaEventRecord (events[0], plain)))
    return FALSE;
  for (int i = 0; i < TURNS; i++)
    if (!issue_product (gpu, error) || (what == WITH_OTHERS && !issue_between (gpu, transfer, between, error)) ||
        (what == OTHERS_BEHIND && !issue_other (gpu, transfer, plain, error)))
      return FALSE;
  if (!CUDA (cudaEventRecord (events[1], plain)) || !sp_wait_event (events[1], sp_gpu_fine, gpu, error) ||
      !CUDA (cudaEventElapsedTime (&ms, events[0], events[1])))
    return FALSE;
  *ret_s = ms * 1e-3 / TURNS;
  return TRUE;
}

/* Half of what is more: of a transfer than in a captured batch of its kind, of the copy than on the kernels' stream. */
static gboolean
time_hops (SpGpu *gpu, const SpMeasuredRow *transfer, cudaEvent_t between, double *ret_s, GError **error)
{
  gboolean partial;
  double without_s, with_s, alone_s = 0;

  if (!time_turns (gpu, WITH_OTHERS, transfer, between, &with_s, error) || /* the first loads what they load */
      !time_turns (gpu, transfer != NULL ? PRODUCTS : OTHERS_BEHIND, transfer, between, &without_s, error) ||
      !time_turns (gpu, WITH_OTHERS, transfer, between, &with_s, error) ||
      (transfer != NULL && !sp_gpu_time (gpu, transfer, &alone_s, &partial, error)))
    return FALSE;
  *ret_s = MAX ((with_s - without_s - alone_s) / 2, 1e-9);
  return TRUE;
}

gboolean
sp_gpu_time_hop (SpGpu *gpu, const SpMeasuredRow *p, double *ret_s, GError **error)
{
  const char *of = p->variant + strlen (SP_GPU_HOP);
  int op = *of == '-' ? sp_measured_index (of + 1, sp_measured_op_names) : -1;
  SpMeasuredRow transfer = *p;
  cudaEvent_t between = NULL;

  transfer.op = (SpMeasuredOp) op, transfer.variant = "out-of-place";
  gboolean good = (op < 0 || sp_gpu_connect (gpu, "", (int) p->ranks, error)) &&
                  CUDA (cudaEventCreateWithFlags (&between, cudaEventDisableTiming)) &&
                  time_hops (gpu, op >= 0 ? &transfer : NULL, between, ret_s, error);
  if (between != NULL)
    cudaEventDestroy (between);
  return good;
}
