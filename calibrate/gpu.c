/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/gpu-private.h"

#include <gio/gio.h>
#include <string.h>

#include "calibrate/sensor.h"

int
sp_gpu_count (GError **error)
{
  int count = 0;
  cudaError_t status = cudaGetDeviceCount (&count);

  if (status == cudaSuccess && count > 0)
    return count;
  g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_FOUND, "no GPU was found (%s): measuring needs one, planning does not",
               status == cudaSuccess ? "0 devices" : cudaGetErrorString (status));
  return 0;
}

gint64
sp_gpu_used_bytes (void)
{
  size_t free_bytes = 0, total = 0;

  cudaMemGetInfo (&free_bytes, &total);
  return (gint64) (total - free_bytes);
}

gboolean
sp_gpu_describe (int device, SpMeasured *measured, GError **error)
{
  struct cudaDeviceProp properties;
  g_autoptr (GDateTime) now = g_date_time_new_now_utc ();
  g_autofree char *date = g_date_time_format_iso8601 (now), *driver = NULL;
  int version = 0;

  if (!CUDA (cudaGetDeviceProperties (&properties, device)) || !CUDA (cudaRuntimeGetVersion (&version)))
    return FALSE;
  sp_measured_say (measured, "date", date);
  sp_measured_say (measured, "card", properties.name);
  if (g_file_get_contents ("/sys/module/nvidia/version", &driver, NULL, NULL))
    sp_measured_say (measured, "driver", driver);
  g_autofree char *cuda = g_strdup_printf ("%d.%d", version / 1000, version % 1000 / 10);
  sp_measured_say (measured, "cuda", cuda);
#if HAVE_NCCL
  if (ncclGetVersion (&version) == ncclSuccess) {
    g_autofree char *nccl = g_strdup_printf ("%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
    sp_measured_say (measured, "nccl", nccl);
  }
#endif
  sp_measured_say (measured, "host", g_get_host_name ());
  sp_sensor_describe (device, measured);
  return TRUE;
}

/* Sign and mantissa by chance: magnitudes from 0.5 to 2. */
static gboolean
fill (char *buffer, gsize bytes, guint32 seed, GError **error)
{
  enum { BLOCK = 4 << 20 };
  g_autofree guint16 *block = g_malloc (BLOCK);
  g_autoptr (GRand) random = g_rand_new_with_seed (seed);

  for (guint i = 0; i < BLOCK / 2; i++)
    block[i] = (guint16) (0x3f00 | (g_rand_int (random) & 0x80ff));
  for (gsize at = 0; at < bytes; at += BLOCK)
    if (!CUDA (cudaMemcpy (buffer + at, block, MIN (bytes - at, (gsize) BLOCK), cudaMemcpyHostToDevice)))
      return FALSE;
  return TRUE;
}

static gboolean
start (SpGpu *gpu, gboolean nccl, GError **error)
{
  int least = 0, most = 0;

  if (!CUDA (cudaSetDevice (gpu->rank->local_rank)) || !CUDA (cudaFree (NULL)))
    return FALSE;
  if (!CUDA (cudaDeviceGetStreamPriorityRange (&least, &most)))
    return FALSE;
  for (int i = 0; i < 2; i++)
    if (!CUDA (cudaStreamCreateWithPriority (&gpu->plain_streams[i], cudaStreamNonBlocking, least)) ||
        !CUDA (cudaStreamCreateWithPriority (&gpu->nccl_streams[i], cudaStreamNonBlocking, most)) ||
        !CUDA (cudaMalloc (&gpu->workspaces[i], SP_GEMM_WORKSPACE_BYTES)))
      return FALSE;
  for (int i = 0; i < 4; i++)
    if (!CUDA (cudaEventCreate (&gpu->events[i])))
      return FALSE;
  gpu->gemms = sp_gemms_new (error);
  return gpu->gemms != NULL && (!nccl || sp_gpu_connect (gpu, "", sp_ranks_size (gpu->rank), error));
}

SpGpu *
sp_gpu_new (SpRank *rank, gboolean nccl, gsize bytes, GError **error)
{
  g_autoptr (SpGpu) gpu = g_new0 (SpGpu, 1);

  gpu->rank = rank;
  gpu->bytes = bytes;
#if HAVE_NCCL
  gpu->comms = g_array_new (FALSE, FALSE, sizeof (SpGpuComm));
  gpu->algorithm = g_strdup (g_getenv ("NCCL_ALGO"));
  gpu->protocol = g_strdup (g_getenv ("NCCL_PROTO"));
#endif
  if (!start (gpu, nccl, error) || !CUDA (cudaMalloc ((void **) &gpu->send, bytes)) ||
      !CUDA (cudaMalloc ((void **) &gpu->receive, bytes)) || !CUDA (cudaMallocHost ((void **) &gpu->host, bytes)) ||
      !fill (gpu->send, bytes, 1, error) || !fill (gpu->receive, bytes, 2, error))
    return NULL;
  memset (gpu->host, 1, bytes);
  return g_steal_pointer (&gpu);
}

void
sp_gpu_free (SpGpu *gpu)
{
  sp_gpu_disconnect (gpu);
  g_clear_pointer (&gpu->gemms, sp_gemms_free);
  cudaFree (gpu->send);
  cudaFree (gpu->receive);
  cudaFreeHost (gpu->host);
  for (int i = 0; i < 2; i++) {
    cudaFree (gpu->workspaces[i]);
    if (gpu->plain_streams[i] != NULL)
      cudaStreamDestroy (gpu->plain_streams[i]);
    if (gpu->nccl_streams[i] != NULL)
      cudaStreamDestroy (gpu->nccl_streams[i]);
  }
  for (int i = 0; i < 4; i++)
    if (gpu->events[i] != NULL)
      cudaEventDestroy (gpu->events[i]);
  g_free (gpu);
}

gint64
sp_gpu_overhead_bytes (const SpGpu *gpu)
{
  enum { PAGE = 2 << 20 };
  gint64 buffers = 2 * (gint64) ((gpu->bytes + PAGE - 1) / PAGE * PAGE) + 2 * SP_GEMM_WORKSPACE_BYTES;

  return sp_gpu_used_bytes () - buffers;
}
