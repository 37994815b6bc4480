/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL moves among the ranks of a group. */
#include "calibrate/gpu-private.h"

#include <gio/gio.h>
#include <string.h>

#if HAVE_NCCL

gboolean
sp_check_nccl (ncclComm_t comm, ncclResult_t status, const char *call, GError **error)
{
  if (status != ncclSuccess)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_FAILED, "%s: %s: %s", call, ncclGetErrorString (status),
                 ncclGetLastError (comm));
  return status == ncclSuccess;
}

static gboolean
barrier (SpGpu *gpu, GError **error)
{
  g_autofree char *all = g_malloc ((gsize) sp_ranks_size (gpu->rank));
  return sp_ranks_gather (gpu->rank, "", 1, all, error);
}

static void
set_variable (const char *name, const char *value)
{
  if (value != NULL)
    g_setenv (name, value, TRUE);
  else
    g_unsetenv (name);
}

/* NCCL reads these when a communicator is made: ALGORITHM/PROTOCOL, or what the user's environment has. Threads of one
 * process share them: one sets them, while all wait. */
static gboolean
force (SpGpu *gpu, const char *variant, GError **error)
{
  const char *slash = strchr (variant, '/');
  g_autofree char *algorithm = slash != NULL ? g_strndup (variant, (gsize) (slash - variant)) : NULL;

  if (!barrier (gpu, error))
    return FALSE;
  if (sp_ranks_launcher (gpu->rank) || gpu->rank->rank == 0) {
    set_variable ("NCCL_ALGO", slash != NULL ? algorithm : gpu->algorithm);
    set_variable ("NCCL_PROTO", slash != NULL ? slash + 1 : gpu->protocol);
  }
  return barrier (gpu, error);
}

static ncclComm_t
find (const SpGpu *gpu, const char *variant, int ranks)
{
  const char *forced = strchr (variant, '/') != NULL ? variant : NULL;

  for (guint i = 0; i < gpu->comms->len; i++) {
    const SpGpuComm *comm = &g_array_index (gpu->comms, SpGpuComm, i);
    if (comm->ranks == ranks && g_strcmp0 (comm->forced, forced) == 0)
      return comm->comm;
  }
  return NULL;
}

/* Every group makes its own. */
static gboolean
connect (SpGpu *gpu, const char *variant, int ranks, GError **error)
{
  int rank = gpu->rank->rank, first = rank / ranks * ranks, left = sp_ranks_size (gpu->rank) - first;
  ncclComm_t comm = NULL;
  ncclUniqueId mine = { { 0 } };
  g_autofree ncclUniqueId *all = g_new (ncclUniqueId, sp_ranks_size (gpu->rank));

  if ((rank == first && !NCCL (ncclGetUniqueId (&mine))) ||
      !sp_ranks_gather (gpu->rank, &mine, sizeof mine, all, error) ||
      !NCCL (ncclCommInitRank (&comm, MIN (ranks, left), all[first], rank - first)))
    return FALSE;
  SpGpuComm made = { comm, strchr (variant, '/') != NULL ? g_strdup (variant) : NULL, ranks };
  g_array_append_val (gpu->comms, made);
  return TRUE;
}

gboolean
sp_gpu_connect (SpGpu *gpu, const char *variant, int ranks, GError **error)
{
  return find (gpu, variant, ranks) != NULL || (force (gpu, variant, error) && connect (gpu, variant, ranks, error));
}

/* One more: made, used for collectives, then for sends; what each takes beyond the one before. */
gboolean
sp_gpu_measure_communicator (SpGpu *gpu, int ranks, SpCommunicatorBytes *ret, GError **error)
{
  static const SpMeasuredOp ops[] = { SP_MEASURED_ALL_GATHER, SP_MEASURED_REDUCE_SCATTER, SP_MEASURED_ALL_REDUCE,
                                      SP_MEASURED_SEND_RECEIVE, SP_MEASURED_ALL_TO_ALL };
  /* The last ranks may be too few for a group: theirs is made, as the others' is, and carries nothing. */
  gboolean whole = gpu->rank->rank / ranks * ranks + ranks <= sp_ranks_size (gpu->rank);
  gint64 before, made, between = 0;

  if (!barrier (gpu, error) || !CUDA (cudaDeviceSynchronize ()))
    return FALSE;
  before = sp_gpu_used_bytes ();
  if (!connect (gpu, "memory/", ranks, error))
    return FALSE;
  made = sp_gpu_used_bytes ();
  for (guint i = 0; i < G_N_ELEMENTS (ops); i++) {
    SpMeasuredRow row = sp_measured_row (ops[i]);
    row.variant = "memory/", row.ranks = ranks;
    row.bytes = (gint64) MIN (gpu->bytes, (gsize) 64 << 20);
    if (i == 3)
      between = sp_gpu_used_bytes ();
    if (whole && (!sp_gpu_issue_nccl (gpu, &row, gpu->nccl_streams[0], error) ||
                  !CUDA (cudaStreamSynchronize (gpu->nccl_streams[0]))))
      return FALSE;
  }
  *ret = (SpCommunicatorBytes){ made - before, between - made, sp_gpu_used_bytes () - between };
  return TRUE;
}

void
sp_gpu_disconnect (SpGpu *gpu)
{
  /* Abort, never destroy: it does not wait for ranks that failed. All work of a good end is done by now. */
  for (guint i = 0; gpu->comms != NULL && i < gpu->comms->len; i++) {
    SpGpuComm *comm = &g_array_index (gpu->comms, SpGpuComm, i);
    ncclCommAbort (comm->comm);
    g_free (comm->forced);
  }
  g_clear_pointer (&gpu->comms, g_array_unref);
  g_clear_pointer (&gpu->algorithm, g_free);
  g_clear_pointer (&gpu->protocol, g_free);
}

gboolean
sp_gpu_fine (gpointer data, GError **error)
{
  SpGpu *gpu = data;

  if (!sp_ranks_check (gpu->rank, FALSE, error))
    return FALSE;
  for (guint i = 0; i < gpu->comms->len; i++) {
    ncclComm_t comm = g_array_index (gpu->comms, SpGpuComm, i).comm;
    ncclResult_t async = ncclSuccess;
    if (!NCCL (ncclCommGetAsyncError (comm, &async)) || !NCCL (async))
      return FALSE;
  }
  return TRUE;
}

/* Of every two neighbours the first sends; one that is left over does nothing. */
static gboolean
issue_one_way (SpGpu *gpu, ncclComm_t comm, const SpMeasuredRow *row, cudaStream_t stream, GError **error)
{
  int size = (int) row->ranks, rank = gpu->rank->rank % size;

  if (rank % 2 == 1)
    return NCCL (ncclRecv (gpu->receive, (gsize) row->bytes, ncclInt8, rank - 1, comm, stream));
  return rank + 1 == size || NCCL (ncclSend (gpu->send, (gsize) row->bytes, ncclInt8, rank + 1, comm, stream));
}

static gboolean
issue_grouped (SpGpu *gpu, ncclComm_t comm, const SpMeasuredRow *row, cudaStream_t stream, GError **error)
{
  int size = (int) row->ranks, rank = gpu->rank->rank % size;
  gboolean ring = row->op == SP_MEASURED_SEND_RECEIVE;
  gsize each = (gsize) (ring ? row->bytes : row->bytes / size);
  gboolean good = NCCL (ncclGroupStart ());

  for (int i = 0; good && i < (ring ? 1 : size); i++) {
    int to = ring ? (rank + 1) % size : i, from = ring ? (rank + size - 1) % size : i;
    gsize at = ring ? 0 : each * (gsize) i;
    good = NCCL (ncclSend (gpu->send + at, each, ncclInt8, to, comm, stream)) &&
           NCCL (ncclRecv (gpu->receive + at, each, ncclInt8, from, comm, stream));
  }
  return NCCL (ncclGroupEnd ()) && good;
}

gboolean
sp_gpu_issue_nccl (SpGpu *gpu, const SpMeasuredRow *row, cudaStream_t stream, GError **error)
{
  ncclComm_t comm = find (gpu, row->variant, (int) row->ranks);
  gsize count = (gsize) row->bytes / 2, share = count / (gsize) row->ranks;
  gboolean in_place = g_str_equal (row->variant, "in-place"); /* of what reduces all */

  switch (row->op) {
  case SP_MEASURED_ALL_GATHER:
    return NCCL (ncclAllGather (gpu->send, gpu->receive, share, ncclBfloat16, comm, stream));
  case SP_MEASURED_REDUCE_SCATTER:
    return NCCL (ncclReduceScatter (gpu->send, gpu->receive, share, ncclBfloat16, ncclSum, comm, stream));
  case SP_MEASURED_ALL_REDUCE:
    return NCCL (
        ncclAllReduce (in_place ? gpu->receive : gpu->send, gpu->receive, count, ncclBfloat16, ncclSum, comm, stream));
  case SP_MEASURED_ONE_WAY:
    return issue_one_way (gpu, comm, row, stream, error);
  case SP_MEASURED_SEND_RECEIVE:
  case SP_MEASURED_ALL_TO_ALL:
    return issue_grouped (gpu, comm, row, stream, error);
  default:
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED, "%s cannot be timed", sp_measured_op_names[row->op]);
    return FALSE;
  }
}

#else

gboolean
sp_gpu_connect (SpGpu *gpu, const char *variant, int ranks, GError **error)
{
  return TRUE;
}

gboolean
sp_gpu_measure_communicator (SpGpu *gpu, int ranks, SpCommunicatorBytes *ret, GError **error)
{
  *ret = (SpCommunicatorBytes){ 0 };
  return TRUE;
}

void
sp_gpu_disconnect (SpGpu *gpu)
{
}

gboolean
sp_gpu_fine (gpointer data, GError **error)
{
  return sp_ranks_check (((SpGpu *) data)->rank, FALSE, error);
}

gboolean
sp_gpu_issue_nccl (SpGpu *gpu, const SpMeasuredRow *row, cudaStream_t stream, GError **error)
{
  g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED, "%s: this program was built without NCCL",
               sp_measured_op_names[row->op]);
  return FALSE;
}

#endif
