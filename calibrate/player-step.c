/* SPDX-License-Identifier: Apache-2.0 */
/* Playing: a step, and one kernel again and again. */
#include <string.h>

#include "calibrate/player-private.h"

/* --- a step ------------------------------------------------------------------------------------------------------- */

/* Waits by looking, so that a rank that failed or an error of NCCL ends the wait. */
static gboolean
wait_event (SpPlayer *player, cudaEvent_t event, GError **error)
{
  cudaError_t status;

  for (guint turn = 0; (status = cudaEventQuery (event)) == cudaErrorNotReady; turn++)
    if (turn % 1024 == 1023 && !sp_player_fine (player, error))
      return FALSE;
  return CUDA (status);
}

static gboolean
prepare_times (SpPlayer *player, GError **error)
{
  guint n = player->recording->commands->len;

  if (player->starts != NULL)
    return TRUE;
  player->starts = g_new0 (cudaEvent_t, MAX (n, 1));
  player->stops = g_new0 (cudaEvent_t, MAX (n, 1));
  player->start_ms = g_new0 (float, MAX (n, 1));
  player->stop_ms = g_new0 (float, MAX (n, 1));
  for (guint i = 0; i < n; i++)
    if (!CUDA (cudaEventCreate (&player->starts[i])) || !CUDA (cudaEventCreate (&player->stops[i])))
      return FALSE;
  return TRUE;
}

/* What the optimizer is about to use: everything before it is waited for. */
static gboolean
keep_gradients (SpPlayer *player, guint number, guint *at, GError **error)
{
  const GArray *kept = player->recording->gradients;

  for (; *at < kept->len && g_array_index (kept, SpGradients, *at).before == (gint32) number; (*at)++) {
    for (guint q = 0; q < SP_N_QUEUES; q++)
      if (!CUDA (cudaEventRecord (player->ends[q], player->streams[q])) || !wait_event (player, player->ends[q], error))
        return FALSE;
    g_clear_pointer (&player->gradients[*at], g_free);
    player->gradients[*at] = sp_player_read (player, &g_array_index (kept, SpGradients, *at).gradients, error);
    if (player->gradients[*at] == NULL)
      return FALSE;
  }
  return TRUE;
}

static gboolean
play (SpPlayer *player, guint number, gboolean timed, GError **error)
{
  const SpCommand *command = COMMAND (player, number);
  cudaStream_t stream = player->streams[command->queue];

  for (guint i = 0; i < command->n_waits; i++) {
    guint32 wait = g_array_index (player->recording->waits, guint32, command->first_wait + i);
    if (!CUDA (cudaStreamWaitEvent (stream, player->over[wait], 0)))
      return FALSE;
  }
  if (timed && !CUDA (cudaEventRecord (player->starts[number], stream)))
    return FALSE;
  gboolean good = sp_op_is_communication (command->op.kind)
                      ? sp_player_communicate (player, command, stream, error)
                      : sp_player_kernel (command) (player, command, stream, error);
  if (!good) {
    g_prefix_error (error, "command %u, %s of layer %d, %s: ", number, sp_op_name (command->op.kind), command->layer,
                    sp_phase_name (command->phase));
    return FALSE;
  }
  return (!timed || CUDA (cudaEventRecord (player->stops[number], stream))) &&
         (player->over[number] == NULL || CUDA (cudaEventRecord (player->over[number], stream)));
}

static gboolean
begin (SpPlayer *player, GError **error)
{
  cudaStream_t first = player->streams[SP_STREAM_COMPUTE];

  memset (player->payload_bytes, 0, sizeof player->payload_bytes);
  if (!CUDA (cudaMemsetAsync (player->loss, 0, sizeof *player->loss, first)) ||
      !CUDA (cudaEventRecord (player->begin, first)))
    return FALSE;
  for (guint q = 1; q < SP_N_QUEUES; q++)
    if (!CUDA (cudaStreamWaitEvent (player->streams[q], player->begin, 0)))
      return FALSE;
  return TRUE;
}

/* COMPUTE ends last: it waits for all. */
static gboolean
end (SpPlayer *player, double *ret_s, GError **error)
{
  cudaStream_t first = player->streams[SP_STREAM_COMPUTE];
  float ms = 0;

  for (guint q = 1; q < SP_N_QUEUES; q++)
    if (!CUDA (cudaEventRecord (player->ends[q], player->streams[q])) ||
        !CUDA (cudaStreamWaitEvent (first, player->ends[q], 0)))
      return FALSE;
  if (!CUDA (cudaEventRecord (player->ends[0], first)) || !wait_event (player, player->ends[0], error) ||
      !CUDA (cudaEventElapsedTime (&ms, player->begin, player->ends[0])) ||
      !CUDA (cudaMemcpy (&player->loss_value, player->loss, sizeof player->loss_value, cudaMemcpyDeviceToHost)))
    return FALSE;
  *ret_s = ms * 1e-3;
  return sp_ranks_check (player->rank, TRUE, error);
}

gboolean
sp_player_step (SpPlayer *player, gboolean timed, double *ret_s, GError **error)
{
  guint n = player->recording->commands->len, kept = 0;
  gint64 start_us = g_get_monotonic_time ();

  if ((timed && !prepare_times (player, error)) || !begin (player, error))
    return FALSE;
  for (guint i = 0; i < n; i++)
    if ((player->keeps && !keep_gradients (player, i, &kept, error)) || !play (player, i, timed, error))
      return FALSE;
  player->issue_s = (double) (g_get_monotonic_time () - start_us) * 1e-6;
  if (!end (player, ret_s, error))
    return FALSE;
  for (guint i = 0; timed && i < n; i++)
    if (!CUDA (cudaEventElapsedTime (&player->start_ms[i], player->begin, player->starts[i])) ||
        !CUDA (cudaEventElapsedTime (&player->stop_ms[i], player->begin, player->stops[i])))
      return FALSE;
  return TRUE;
}

/* --- one kernel --------------------------------------------------------------------------------------------------- */

static gboolean
capture (SpPlayer *player, const SpCommand *command, int batch, cudaGraphExec_t *ret_graph, GError **error)
{
  cudaStream_t stream = player->streams[SP_STREAM_COMPUTE];
  cudaGraph_t graph = NULL;

  if (!CUDA (cudaStreamBeginCapture (stream, cudaStreamCaptureModeThreadLocal)))
    return FALSE;
  gboolean good = TRUE;
  for (int i = 0; good && i < batch; i++)
    good = sp_player_kernel (command) (player, command, stream, error);
  cudaError_t status = cudaStreamEndCapture (stream, &graph);
  good = good && CUDA (status) && CUDA (cudaGraphInstantiate (ret_graph, graph, 0));
  if (graph != NULL)
    cudaGraphDestroy (graph);
  return good;
}

gboolean
sp_player_time_kernel (SpPlayer *player, guint number, int batch, double *ret_s, GError **error)
{
  const SpCommand *command = COMMAND (player, number);
  cudaStream_t stream = player->streams[SP_STREAM_COMPUTE];
  cudaGraphExec_t graph = NULL;
  float ms = 0;

  g_return_val_if_fail (!sp_op_is_communication (command->op.kind), FALSE);
  /* Once outside a graph first: the library loads its kernel. */
  gboolean good =
      sp_player_kernel (command) (player, command, stream, error) && capture (player, command, batch, &graph, error);
  for (int i = 0; good && i < 2; i++)
    good = CUDA (cudaEventRecord (player->begin, stream)) && CUDA (cudaGraphLaunch (graph, stream)) &&
           CUDA (cudaEventRecord (player->ends[0], stream)) && wait_event (player, player->ends[0], error);
  good = good && CUDA (cudaEventElapsedTime (&ms, player->begin, player->ends[0]));
  if (graph != NULL)
    cudaGraphExecDestroy (graph);
  *ret_s = ms * 1e-3 / batch;
  return good && sp_ranks_check (player->rank, TRUE, error);
}
