/* SPDX-License-Identifier: Apache-2.0 */
/* The time of an op: captured batches between events, alone or beside another. */
#include "calibrate/gpu-private.h"

#include <gio/gio.h>
#include <math.h>
#include <string.h>

enum { N_LAUNCHES = 100, MAX_BATCH = 64, MAX_COVER = 4096 };

/* A linear layer's is "cublaslt"; else op(A) and op(B) follow as n or t: "cublaslt/tn". */
static SpGemmShape
gemm_of (const SpMeasuredRow *row)
{
  SpGemmShape shape = { .m = row->m, .n = row->n, .k = row->k, .batch = 1 };

  if (g_str_has_suffix (row->variant, "/tn"))
    shape.flags = SP_GEMM_TRANS_A;
  else if (!g_str_has_suffix (row->variant, "/nn"))
    shape.flags = SP_GEMM_TRANS_B;
  return shape;
}

/* Whether this rank is of none of the groups that take part: the first, or as many as the variant says. */
static gboolean
is_idle (const SpGpu *gpu, const SpMeasuredRow *row)
{
  static const char several[] = "groups-";
  gint64 groups =
      g_str_has_prefix (row->variant, several) ? g_ascii_strtoll (row->variant + strlen (several), NULL, 10) : 1;

  /* What one GPU does every rank does at once. */
  return row->ranks > 1 && gpu->rank->rank >= row->ranks * groups;
}

static gboolean
is_plain (SpMeasuredOp op)
{
  return op == SP_MEASURED_GEMM || op == SP_MEASURED_COPY || op == SP_MEASURED_LAUNCH;
}

/* There are two places, for an op and what runs beside it. */
static cudaStream_t
stream_of (const SpGpu *gpu, const SpMeasuredRow *row, int place)
{
  return is_plain (row->op) ? gpu->plain_streams[place] : gpu->nccl_streams[place];
}

static gboolean
issue (SpGpu *gpu, const SpMeasuredRow *row, int place, GError **error)
{
  cudaStream_t stream = stream_of (gpu, row, place);

  if (is_idle (gpu, row))
    return TRUE;
  if (row->op == SP_MEASURED_GEMM) {
    SpGemmShape shape = gemm_of (row);
    gsize a_bytes = (gsize) (row->m * row->k) * 2;
    return sp_gemms_run (gpu->gemms, &shape, gpu->send, gpu->send + (a_bytes + 255) / 256 * 256, NULL, gpu->receive,
                         gpu->workspaces[place], stream, error);
  }
  if (row->op == SP_MEASURED_COPY) {
    gboolean up = g_str_equal (row->variant, "host-to-device"), down = g_str_equal (row->variant, "device-to-host");
    gsize bytes = (gsize) (row->beside != SP_MEASURED_NONE ? row->m : row->bytes);
    return CUDA (cudaMemcpyAsync (down ? gpu->host : gpu->receive, up ? gpu->host : gpu->send, bytes, cudaMemcpyDefault,
                                  stream));
  }
  return sp_gpu_issue_nccl (gpu, row, stream, error);
}

static gboolean
capture (SpGpu *gpu, const SpMeasuredRow *p, int place, int batch, cudaGraphExec_t *ret_graph, GError **error)
{
  cudaStream_t s = stream_of (gpu, p, place);
  cudaGraph_t graph = NULL;
  if (!CUDA (cudaStreamBeginCapture (s, cudaStreamCaptureModeThreadLocal)))
    return FALSE;
  gboolean good = TRUE;
  for (int i = 0; good && i < batch; i++)
    good = issue (gpu, p, place, error);
  cudaError_t status = cudaStreamEndCapture (s, &graph);
  good = good && CUDA (status) && CUDA (cudaGraphInstantiate (ret_graph, graph, 0)) &&
         CUDA (cudaGraphUpload (*ret_graph, s));
  if (graph != NULL)
    cudaGraphDestroy (graph);
  return good;
}

/* Before it work of about 10 us each, as long as the host needs to launch the graph: else its time is in what a batch takes,
 * 2 us of each of four transfers. */
static gboolean
replay (SpGpu *gpu, const SpMeasuredRow *row, cudaGraphExec_t graph, int place, GError **error)
{
  enum { LEAD = 6 };
  cudaEvent_t *events = &gpu->events[2 * place];
  cudaStream_t stream = stream_of (gpu, row, place);

  for (int i = 0; i < LEAD; i++)
    if (!CUDA (cudaMemsetAsync (gpu->workspaces[place], 0, SP_GEMM_WORKSPACE_BYTES, stream)))
      return FALSE;
  return CUDA (cudaEventRecord (events[0], stream)) && CUDA (cudaGraphLaunch (graph, stream)) &&
         CUDA (cudaEventRecord (events[1], stream));
}

static gboolean
barrier (SpGpu *gpu, GError **error)
{
  g_autofree char *all = g_malloc ((gsize) sp_ranks_size (gpu->rank));
  return sp_ranks_gather (gpu->rank, "", 1, all, error);
}

/* One batch alone, after a warm-up: seconds of the batch. */
static gboolean
time_alone (SpGpu *gpu, const SpMeasuredRow *p, cudaGraphExec_t graph, int place, double *ret_s, GError **error)
{
  float ms = 0;
  for (int i = 0; i < 2; i++)
    if (!barrier (gpu, error) || !replay (gpu, p, graph, place, error) ||
        !sp_wait_event (gpu->events[2 * place + 1], sp_gpu_fine, gpu, error))
      return FALSE;
  if (!CUDA (cudaEventElapsedTime (&ms, gpu->events[2 * place], gpu->events[2 * place + 1])))
    return FALSE;
  *ret_s = ms * 1e-3;
  return TRUE;
}

/* About 64 MiB or 2e11 multiply-adds a batch: the same on every rank, long against the events' half microsecond. */
static int
batch_of (const SpMeasuredRow *p)
{
  double bytes = p->op == SP_MEASURED_COPY && p->beside != SP_MEASURED_NONE ? (double) p->m : (double) p->bytes;
  double work = p->op == SP_MEASURED_GEMM ? (double) p->m * (double) p->n * (double) p->k / 2e11 : bytes / (64 << 20);
  return (int) CLAMP (1 / work, 4, MAX_BATCH);
}

typedef struct {
  double time_s;  /* of the graph */
  double short_s; /* by which what ran beside missed a part of it */
} Covered;

/* `count` of the cover start first, and the graph once they run. */
static gboolean
run_covered (SpGpu *gpu, const SpMeasuredRow *p, cudaGraphExec_t graph, const SpMeasuredRow *cover, int count,
             Covered *ret, GError **error)
{
  cudaGraphExec_t beside = NULL;
  float ms = 0, before = 0, after = 0;
  gboolean good = capture (gpu, cover, 1, count, &beside, error) && barrier (gpu, error) &&
                  replay (gpu, cover, beside, 1, error) && replay (gpu, p, graph, 0, error) &&
                  sp_wait_event (gpu->events[1], sp_gpu_fine, gpu, error) &&
                  sp_wait_event (gpu->events[3], sp_gpu_fine, gpu, error) &&
                  CUDA (cudaEventElapsedTime (&ms, gpu->events[0], gpu->events[1])) &&
                  CUDA (cudaEventElapsedTime (&before, gpu->events[2], gpu->events[0])) &&
                  CUDA (cudaEventElapsedTime (&after, gpu->events[1], gpu->events[3]));

  if (beside != NULL)
    cudaGraphExecDestroy (beside);
  *ret = (Covered){ ms * 1e-3, -MIN (MIN (before, after), 0) * 1e-3 };
  return good;
}

/* The largest of all ranks'. */
static gboolean
largest (SpGpu *gpu, double *value, GError **error)
{
  int size = sp_ranks_size (gpu->rank);
  g_autofree double *all = g_new (double, size);

  if (!sp_ranks_gather (gpu->rank, value, sizeof *value, all, error))
    return FALSE;
  for (int i = 0; i < size; i++)
    *value = MAX (*value, all[i]);
  return TRUE;
}

/* How much slower the graph gets is not known before: as long as what runs beside ends too early, there is more of it,
 * on all ranks the same. */
static gboolean
time_beside (SpGpu *gpu, const SpMeasuredRow *p, cudaGraphExec_t graph, const SpMeasuredRow *cover, double alone_s,
             double *ret_s, gboolean *ret_partial, GError **error)
{
  int batch = batch_of (cover);
  cudaGraphExec_t beside = NULL;
  Covered covered = { 0 };
  double cover_s = 0, count;
  gboolean good = capture (gpu, cover, 1, batch, &beside, error) && time_alone (gpu, cover, beside, 1, &cover_s, error);

  if (beside != NULL)
    cudaGraphExecDestroy (beside);
  if (!good)
    return FALSE;
  gboolean idle = is_idle (gpu, p);
  cover_s /= batch;
  count = idle ? 0 : ceil (2 * alone_s / cover_s) + 4;
  for (int turn = 0; turn < 4; turn++) {
    if (!largest (gpu, &count, error) ||
        !run_covered (gpu, p, graph, cover, (int) MIN (count, MAX_COVER), &covered, error))
      return FALSE;
    double missed_s = idle ? 0 : covered.short_s;
    if (!largest (gpu, &missed_s, error))
      return FALSE;
    *ret_s = covered.time_s;
    *ret_partial = missed_s > 0;
    if (missed_s == 0 || count >= MAX_COVER)
      break;
    count = ceil (idle ? 0 : MAX (1.5 * covered.time_s / cover_s, 2 * count)) + 4;
  }
  return TRUE;
}

/* All that was issued at place 0 is over. */
static gboolean
drain (SpGpu *gpu, GError **error)
{
  return CUDA (cudaEventRecord (gpu->events[1], gpu->plain_streams[0])) &&
         CUDA (cudaEventRecord (gpu->events[3], gpu->nccl_streams[0])) &&
         sp_wait_event (gpu->events[1], sp_gpu_fine, gpu, error) &&
         sp_wait_event (gpu->events[3], sp_gpu_fine, gpu, error);
}

static SpMeasuredRow
sized (SpMeasuredOp op, const char *variant, gint64 ranks, gint64 bytes, gint64 side)
{
  SpMeasuredRow row = sp_measured_row (op);

  row.variant = variant, row.ranks = ranks, row.bytes = bytes, row.m = row.n = row.k = side;
  return row;
}

static gboolean
time_launch (SpGpu *gpu, const SpMeasuredRow *p, double *ret_s, GError **error)
{
  SpMeasuredRow op = sized (SP_MEASURED_GEMM, "cublaslt", 1, 0, 128);
  if (g_str_equal (p->variant, "copy"))
    op = sized (SP_MEASURED_COPY, "device-to-device", 1, 1024, 0);
  else if (g_str_equal (p->variant, "all-reduce"))
    op = sized (SP_MEASURED_ALL_REDUCE, "", p->ranks, 1024, 0);
  else if (g_str_has_prefix (p->variant, SP_GPU_HOP))
    return sp_gpu_time_hop (gpu, p, ret_s, error) && barrier (gpu, error);
  if (!issue (gpu, &op, 0, error) || !drain (gpu, error) || !barrier (gpu, error))
    return FALSE;
  gint64 start = g_get_monotonic_time ();
  for (int i = 0; i < N_LAUNCHES; i++)
    if (!issue (gpu, &op, 0, error))
      return FALSE;
  *ret_s = (double) (g_get_monotonic_time () - start) * 1e-6 / N_LAUNCHES;
  return drain (gpu, error);
}

gboolean
sp_gpu_time (SpGpu *gpu, const SpMeasuredRow *p, double *ret_time_s, gboolean *ret_partial, GError **error)
{
  *ret_partial = FALSE;
  if (p->op == SP_MEASURED_LAUNCH)
    return time_launch (gpu, p, ret_time_s, error);
  gboolean beside = p->beside != SP_MEASURED_NONE;
  SpMeasuredRow cover = p->beside == SP_MEASURED_GEMM ? sized (SP_MEASURED_GEMM, "cublaslt", p->ranks, 0, p->m)
                        : p->beside == SP_MEASURED_COPY
                            ? sized (SP_MEASURED_COPY, "device-to-device", p->ranks, p->m, 0)
                            : sized (p->beside, "", p->ranks, p->bytes, 0);
  int batch = batch_of (p);
  cudaGraphExec_t graph = NULL;
  double time_s = 0;
  /* Once outside a graph first: NCCL connects, and the library loads its kernel. */
  gboolean good = (p->ranks <= 1 || sp_gpu_connect (gpu, is_plain (p->op) ? "" : p->variant, (int) p->ranks, error)) &&
                  issue (gpu, p, 0, error) && (!beside || issue (gpu, &cover, 0, error)) && drain (gpu, error) &&
                  capture (gpu, p, 0, batch, &graph, error) && time_alone (gpu, p, graph, 0, &time_s, error) &&
                  (!beside || time_beside (gpu, p, graph, &cover, time_s, &time_s, ret_partial, error));
  if (graph != NULL)
    cudaGraphExecDestroy (graph);
  *ret_time_s = time_s / batch;
  return good && sp_ranks_check (gpu->rank, TRUE, error);
}
