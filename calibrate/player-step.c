/* SPDX-License-Identifier: Apache-2.0 */
/* Playing: a step, and its kernels alone in their order. */
#include <math.h>
#include <string.h>

#include "calibrate/player-private.h"

/* --- a step ------------------------------------------------------------------------------------------------------- */

gboolean
sp_player_prepare_times (SpPlayer *player, GError **error)
{
  guint n = player->recording->commands->len;

  if (player->starts != NULL)
    return TRUE;
  player->starts = g_new0 (cudaEvent_t, MAX (n, 1));
  player->stops = g_new0 (cudaEvent_t, MAX (n, 1));
  player->start_ms = g_new0 (float, MAX (n, 1));
  player->stop_ms = g_new0 (float, MAX (n, 1));
  player->waits = g_new0 (SpPlayerWait, MAX (n, 1));
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
      if (!CUDA (cudaEventRecord (player->ends[q], player->streams[q])) ||
          !sp_wait_event (player->ends[q], sp_player_fine, player, error))
        return FALSE;
    g_clear_pointer (&player->gradients[*at], g_free);
    player->gradients[*at] = sp_player_read (player, &g_array_index (kept, SpGradients, *at).gradients, error);
    if (player->gradients[*at] == NULL)
      return FALSE;
  }
  return TRUE;
}

static gboolean
waits_on_compute (const SpCommand *command)
{
  return command->queue == SP_STREAM_COMPUTE && command->n_waits > 0;
}

/* `events` may be NULL where it is not wanted. */
static gboolean
record_if (gboolean wanted, const cudaEvent_t *events, guint number, cudaStream_t stream, GError **error)
{
  return !wanted || CUDA (cudaEventRecord (events[number], stream));
}

static gboolean
play (SpPlayer *player, guint number, SpTiming timing, GError **error)
{
  const SpCommand *command = COMMAND (player, number);
  cudaStream_t stream = player->streams[command->queue];
  gboolean waits = timing == SP_TIMING_WAITS && waits_on_compute (command);
  /* An end of a message may find the other late, so that nothing but both ends' times says what it takes. */
  gboolean message = timing == SP_TIMING_WAITS && sp_op_is_one_way (command->op.kind), timed = timing == SP_TIMING_COMMANDS;

  if (!record_if (waits, player->starts, number, stream, error))
    return FALSE;
  for (guint i = 0; i < command->n_waits; i++) {
    guint32 wait = g_array_index (player->recording->waits, guint32, command->first_wait + i);
    if (!CUDA (cudaStreamWaitEvent (stream, player->over[wait], 0)))
      return FALSE;
  }
  if (!record_if (timed || message, player->starts, number, stream, error) ||
      !record_if (waits, player->stops, number, stream, error))
    return FALSE;
  gboolean good = sp_op_is_communication (command->op.kind)
                      ? sp_player_communicate (player, command, stream, error)
                      : sp_player_kernel (command) (player, command, stream, error);
  if (!good) {
    g_prefix_error (error, "command %u, %s of layer %d, %s: ", number, sp_op_name (command->op.kind), command->layer,
                    sp_phase_name (command->phase));
    return FALSE;
  }
  /* Who waits for a message does not wait for the event that times it. */
  return record_if (timed, player->stops, number, stream, error) &&
         record_if (player->over[number] != NULL, player->over, number, stream, error) &&
         record_if (message, player->stops, number, stream, error);
}

/* Work of about 10 us each in front, so that the host has issued a part of what follows when that begins, as it has
 * when one step follows another. */
static gboolean
lead (SpPlayer *player, guint count, GError **error)
{
  for (guint i = 0; i < count; i++)
    if (!CUDA (cudaMemsetAsync (player->workspace, 0, SP_GEMM_WORKSPACE_BYTES, player->streams[SP_STREAM_COMPUTE])))
      return FALSE;
  return TRUE;
}

static gboolean
begin (SpPlayer *player, GError **error)
{
  enum { LEAD = 100 };
  cudaStream_t first = player->streams[SP_STREAM_COMPUTE];

  memset (player->payload_bytes, 0, sizeof player->payload_bytes);
  if (!lead (player, LEAD, error) || !CUDA (cudaMemsetAsync (player->loss, 0, sizeof *player->loss, first)) ||
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

  if (!CUDA (cudaEventRecord (player->last, first)))
    return FALSE;
  for (guint q = 1; q < SP_N_QUEUES; q++)
    if (!CUDA (cudaEventRecord (player->ends[q], player->streams[q])) ||
        !CUDA (cudaStreamWaitEvent (first, player->ends[q], 0)))
      return FALSE;
  if (!CUDA (cudaEventRecord (player->ends[0], first)) ||
      !sp_wait_event (player->ends[0], sp_player_fine, player, error) ||
      !CUDA (cudaEventElapsedTime (&ms, player->begin, player->ends[0])) ||
      !CUDA (cudaMemcpy (&player->loss_value, player->loss, sizeof player->loss_value, cudaMemcpyDeviceToHost)))
    return FALSE;
  *ret_s = ms * 1e-3;
  return sp_ranks_check (player->rank, TRUE, error);
}

static int
compare_seconds (const void *a, const void *b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return (x > y) - (x < y);
}

static gboolean
read_pairs (SpPlayer *player, guint n, double *ret_median_s, GError **error)
{
  g_autofree double *seconds = g_new (double, n);

  for (guint i = 0; i < n; i++) {
    float ms = 0;
    if (!CUDA (cudaEventElapsedTime (&ms, player->starts[i], player->stops[i])))
      return FALSE;
    seconds[i] = ms * 1e-3;
  }
  qsort (seconds, n, sizeof *seconds, compare_seconds);
  *ret_median_s = seconds[n / 2];
  return TRUE;
}

/* `n` kernels of COMPUTE: by themselves; each waited for by one of another queue, and that by the next; or so with events
 * around COMPUTE's waits. ret_s: of each. */
typedef enum { KERNELS, KERNELS_WAIT, KERNELS_WAIT_TIMED } Turns;

static gboolean
play_turns (SpPlayer *player, Turns what, guint n, cudaEvent_t between, double *ret_s, GError **error)
{
  enum { LEAD = 60 };
  cudaStream_t first = player->streams[SP_STREAM_COMPUTE], other = player->streams[SP_STREAM_SEQUENCE];
  float ms = 0;

  if (!lead (player, LEAD, error) || !CUDA (cudaEventRecord (player->begin, first)))
    return FALSE;
  for (guint i = 0; i < n; i++)
    if (!lead (player, 1, error) ||
        (what != KERNELS &&
         (!CUDA (cudaEventRecord (between, first)) || !CUDA (cudaStreamWaitEvent (other, between, 0)) ||
          !CUDA (cudaMemsetAsync (player->scratch, 0, 1, other)) || !CUDA (cudaEventRecord (between, other)) ||
          (what == KERNELS_WAIT_TIMED && !CUDA (cudaEventRecord (player->starts[i], first))) ||
          !CUDA (cudaStreamWaitEvent (first, between, 0)) ||
          (what == KERNELS_WAIT_TIMED && !CUDA (cudaEventRecord (player->stops[i], first))))))
      return FALSE;
  if (!CUDA (cudaEventRecord (player->last, first)) || !sp_wait_event (player->last, sp_player_fine, player, error) ||
      !CUDA (cudaEventElapsedTime (&ms, player->begin, player->last)))
    return FALSE;
  *ret_s = ms * 1e-3 / n;
  return TRUE;
}

/* What kernels lose to a wait beyond what events around it see: the kernel before has to be through, and the next one is
 * launched only then. */
static gboolean
time_drain (SpPlayer *player, guint n, GError **error)
{
  cudaEvent_t between = NULL;
  double kernels_s, waits_s, timed_s, seen_s;
  gboolean good = CUDA (cudaEventCreateWithFlags (&between, cudaEventDisableTiming)) &&
                  play_turns (player, KERNELS_WAIT, n, between, &waits_s, error) &&
                  play_turns (player, KERNELS, n, between, &kernels_s, error) &&
                  play_turns (player, KERNELS_WAIT, n, between, &waits_s, error) &&
                  play_turns (player, KERNELS_WAIT_TIMED, n, between, &timed_s, error) &&
                  read_pairs (player, n, &seen_s, error);

  if (between != NULL)
    cudaEventDestroy (between);
  if (good)
    player->drain_s = MAX (waits_s - kernels_s - (seen_s - player->events_s), 0);
  return good;
}

/* What events cost: an event before and one behind a command add to its time, and a wait takes more than they see. */
static gboolean
time_events (SpPlayer *player, GError **error)
{
  enum { PAIRS = 31, LEAD = 30 };
  guint n = MIN (player->recording->commands->len, PAIRS);
  cudaStream_t stream = player->streams[SP_STREAM_COMPUTE];

  if (player->events_s > 0 || n == 0)
    return TRUE;
  if (!lead (player, LEAD, error))
    return FALSE;
  for (guint i = 0; i < n; i++)
    if (!CUDA (cudaEventRecord (player->starts[i], stream)) || !CUDA (cudaEventRecord (player->stops[i], stream)))
      return FALSE;
  return sp_wait_event (player->stops[n - 1], sp_player_fine, player, error) &&
         read_pairs (player, n, &player->events_s, error) && time_drain (player, n, error);
}

/* A wait for `of` between two events on COMPUTE. For what was over nobody stood: then they are as near each other as
 * without it. */
static gboolean
add_wait (SpPlayer *player, guint of, cudaEvent_t from, cudaEvent_t to, GError **error)
{
  float ms = 0;

  if (!CUDA (cudaEventElapsedTime (&ms, from, to)))
    return FALSE;
  double s = ms * 1e-3 - player->events_s;
  player->waits[of].times++;
  if (s > player->events_s / 2)
    player->waits[of].waited_s += s + player->drain_s;
  return TRUE;
}

static gboolean
read_message (SpPlayer *player, guint number, GError **error)
{
  float ms = 0;

  if (!CUDA (cudaEventElapsedTime (&ms, player->starts[number], player->stops[number])))
    return FALSE;
  player->waits[number].took_s = MAX (ms * 1e-3 - player->events_s, 0);
  return TRUE;
}

static gboolean
read_waits (SpPlayer *player, GError **error)
{
  const SpRecording *r = player->recording;
  int last = -1;

  for (guint i = 0; i < r->commands->len; i++)
    player->waits[i] = (SpPlayerWait){ .took_s = -1 };
  for (guint i = 0; i < r->commands->len; i++) {
    const SpCommand *command = COMMAND (player, i);
    if (command->queue != SP_STREAM_COMPUTE)
      last = (int) i;
    if (sp_op_is_one_way (command->op.kind) && !read_message (player, i, error))
      return FALSE;
    if (!waits_on_compute (command))
      continue;
    guint32 of = g_array_index (r->waits, guint32, command->first_wait + command->n_waits - 1);
    if (!add_wait (player, of, player->starts[i], player->stops[i], error))
      return FALSE;
  }
  return last < 0 || add_wait (player, (guint) last, player->last, player->ends[0], error);
}

static gboolean
read_commands (SpPlayer *player, GError **error)
{
  for (guint i = 0; i < player->recording->commands->len; i++)
    if (!CUDA (cudaEventElapsedTime (&player->start_ms[i], player->begin, player->starts[i])) ||
        !CUDA (cudaEventElapsedTime (&player->stop_ms[i], player->begin, player->stops[i])))
      return FALSE;
  return TRUE;
}

gboolean
sp_player_step (SpPlayer *player, SpTiming timing, double *ret_s, GError **error)
{
  guint n = player->recording->commands->len, kept = 0;
  gint64 start_us = g_get_monotonic_time ();
  gboolean timed = timing != SP_TIMING_NONE;

  if ((timed && (!sp_player_prepare_times (player, error) || !time_events (player, error))) || !begin (player, error))
    return FALSE;
  for (guint i = 0; i < n; i++)
    if ((player->keeps && !keep_gradients (player, i, &kept, error)) || !play (player, i, timing, error))
      return FALSE;
  player->issue_s = (double) (g_get_monotonic_time () - start_us) * 1e-6;
  if (!end (player, ret_s, error))
    return FALSE;
  return timing == SP_TIMING_WAITS      ? read_waits (player, error)
         : timing == SP_TIMING_COMMANDS ? read_commands (player, error)
                                        : TRUE;
}

/* What keeps the card as warm as it is. */
#define STAY_WARM_S 0.1

/* --- kernels alone ------------------------------------------------------------------------------------------------ */

enum { PASSES = 3, FIRST_LEAD = 64, WARM_LEAD = 16 };

/* Commands one after another, behind a lead of so many: as many as the host can issue ahead of the card. */
typedef struct {
  guint first, end, kernels, lead;
  double plain_s[PASSES], timed_s;
} Part;

static gboolean
is_kernel (const SpCommand *command)
{
  return command->queue == SP_STREAM_COMPUTE && !sp_op_is_communication (command->op.kind);
}

static GArray *
parts_of (const SpPlayer *player)
{
  enum { MOST_KERNELS = 256 };
  GArray *parts = g_array_new (FALSE, FALSE, sizeof (Part));
  Part part = { .lead = FIRST_LEAD };

  for (guint i = 0; i < player->recording->commands->len; i++) {
    gboolean kernel = is_kernel (COMMAND (player, i));
    if (kernel && part.kernels == MOST_KERNELS) {
      part.end = i;
      g_array_append_val (parts, part);
      part = (Part){ .first = i, .lead = FIRST_LEAD };
    }
    part.kernels += kernel;
  }
  part.end = player->recording->commands->len;
  if (part.kernels > 0)
    g_array_append_val (parts, part);
  return parts;
}

/* Whether something stands in for communication between the kernel and the next. */
static gboolean
is_followed_by_others (const SpPlayer *player, const Part *part, guint kernel)
{
  return kernel + 1 < part->end && !is_kernel (COMMAND (player, kernel + 1));
}

/* In the order of commands, which needs no other queue. */
static gboolean
issue_part (SpPlayer *player, const Part *part, gboolean timed, GError **error)
{
  cudaStream_t stream = player->streams[SP_STREAM_COMPUTE];

  for (guint i = part->first; i < part->end; i++) {
    const SpCommand *command = COMMAND (player, i);
    if (!is_kernel (command)) {
      if (player->is_alone && !sp_player_stand_in (player, command, stream, error))
        return FALSE;
      continue;
    }
    if ((timed && !CUDA (cudaEventRecord (player->starts[i], stream))) ||
        !sp_player_kernel (command) (player, command, stream, error) ||
        (timed && is_followed_by_others (player, part, i) && !CUDA (cudaEventRecord (player->stops[i], stream))))
      return FALSE;
  }
  return TRUE;
}

/* Once, behind a lead of `count`. ret_late: the card may have come to wait for the host. */
static gboolean
play_once (SpPlayer *player, const Part *part, gboolean timed, guint count, gboolean *ret_late, double *ret_s,
           GError **error)
{
  cudaStream_t stream = player->streams[SP_STREAM_COMPUTE];
  float ms = 0;

  if (!lead (player, count, error) || !CUDA (cudaEventRecord (player->begin, stream)) ||
      !issue_part (player, part, timed, error) || !CUDA (cudaEventRecord (player->ends[0], stream)))
    return FALSE;
  *ret_late = cudaEventQuery (player->begin) == cudaSuccess;
  if (!sp_wait_event (player->ends[0], sp_player_fine, player, error) || !sp_ranks_check (player->rank, TRUE, error) ||
      !CUDA (cudaEventElapsedTime (&ms, player->begin, player->ends[0])))
    return FALSE;
  *ret_s = ms * 1e-3;
  return TRUE;
}

/* Again with a longer lead where the card may have come to wait for the host. Known lie: with the longest lead it is
 * taken as it is. */
static gboolean
play_part (SpPlayer *player, Part *part, gboolean timed, double *ret_s, GError **error)
{
  enum { LONGEST = 1 << 14 };

  for (gboolean late = TRUE; late;) {
    if (!play_once (player, part, timed, part->lead, &late, ret_s, error))
      return FALSE;
    late = late && part->lead < LONGEST;
    if (late)
      part->lead *= 2;
  }
  return TRUE;
}

/* Until libraries have loaded their kernels and the card's clock is what its power allows in the long run: for `least_s`
 * of the host's clock, and on as long as passes of a quarter of that differ from those before by more than half a
 * percent. The lead stays short: a host that is late once must not make thousands of passes wait. */
static gboolean
warm_up (SpPlayer *player, const GArray *parts, double least_s, GError **error)
{
  enum { MOST_TIMES = 4 };
  const double settled = 0.005;
  double window_s = 0, before_s = 0, part_s;
  gint64 start_us = g_get_monotonic_time (), window_us = start_us;
  guint passes = 0;
  gboolean late;

  for (double all_s = 0; all_s < MOST_TIMES * least_s;) {
    for (guint i = 0; i < parts->len; i++) {
      if (!play_once (player, &g_array_index (parts, Part, i), FALSE, WARM_LEAD, &late, &part_s, error))
        return FALSE;
      window_s += part_s;
    }
    gint64 now_us = g_get_monotonic_time ();
    all_s = (double) (now_us - start_us) * 1e-6;
    passes++;
    if ((double) (now_us - window_us) * 1e-6 < least_s / 4)
      continue;
    if (all_s >= least_s && fabs (window_s / passes - before_s) < settled * before_s)
      break;
    before_s = window_s / passes;
    window_s = 0;
    window_us = now_us;
    passes = 0;
  }
  return TRUE;
}

/* Of the last pass, which was timed. */
static gboolean
read_part (const SpPlayer *player, const Part *part, double *seconds, GError **error)
{
  double events_s = MAX (part->timed_s - part->plain_s[PASSES / 2], 0) / part->kernels;

  for (guint i = part->first; i < part->end; i++) {
    guint next = i + 1;
    float ms = 0;
    if (!is_kernel (COMMAND (player, i)))
      continue;
    cudaEvent_t end = next == part->end                         ? player->ends[0]
                      : is_followed_by_others (player, part, i) ? player->stops[i]
                                                                : player->starts[next];
    if (!CUDA (cudaEventElapsedTime (&ms, player->starts[i], end)))
      return FALSE;
    seconds[i] = MAX (ms * 1e-3 - events_s, ms * 1e-4); /* 0 is no kernel */
  }
  return TRUE;
}

static gboolean
time_parts (SpPlayer *player, GArray *parts, double *seconds, double *ret_s, GError **error)
{
  *ret_s = 0;
  for (guint pass = 0; pass <= PASSES; pass++)
    for (guint i = 0; i < parts->len; i++) {
      Part *part = &g_array_index (parts, Part, i);
      double *to = pass < PASSES ? &part->plain_s[pass] : &part->timed_s;
      if (!play_part (player, part, pass == PASSES, to, error))
        return FALSE;
      if (pass < PASSES)
        continue;
      qsort (part->plain_s, PASSES, sizeof *part->plain_s, compare_seconds);
      *ret_s += part->plain_s[PASSES / 2];
      if (!read_part (player, part, seconds, error))
        return FALSE;
    }
  return TRUE;
}

gboolean
sp_player_time_again (SpPlayer *player, const SpCommand *command, double *ret_s, GError **error)
{
  enum { TIMES = 4 };
  guint number = (guint) (command - COMMAND (player, 0));
  Part part = { .first = number, .end = number + 1, .kernels = 1, .lead = FIRST_LEAD };

  *ret_s = INFINITY;
  for (guint i = 0; i < TIMES; i++) {
    double s = 0;
    if (!play_part (player, &part, FALSE, &s, error))
      return FALSE;
    *ret_s = i > 0 ? MIN (*ret_s, s) : *ret_s; /* the first loads the kernel */
  }
  return TRUE;
}

gboolean
sp_player_time_kernels (SpPlayer *player, double warm_s, SpSensor *sensor, double *seconds, SpPlayerPass *ret_pass,
                        GError **error)
{
  g_autoptr (GArray) parts = parts_of (player);
  SpPlayerPass pass = { 0 };

  for (guint i = 0; i < player->recording->commands->len; i++)
    seconds[i] = 0;
  if (!sp_player_prepare_times (player, error) ||
      !warm_up (player, parts, player->is_warm ? MIN (warm_s, STAY_WARM_S) : warm_s, error))
    return FALSE;
  player->is_warm = TRUE;
  gint64 from_us = g_get_monotonic_time () - (gint64) (STAY_WARM_S * G_USEC_PER_SEC);
  if (!time_parts (player, parts, seconds, &pass.time_s, error))
    return FALSE;
  if (sensor != NULL)
    pass.reading = sp_sensor_mean (sensor, from_us, g_get_monotonic_time ());
  if (ret_pass != NULL)
    *ret_pass = pass;
  return TRUE;
}
