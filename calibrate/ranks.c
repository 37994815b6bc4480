/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/ranks.h"

#include <gio/gio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct _SpRanks {
  const SpRanksOptions *options;
  int size;
  gboolean launcher;
  gint64 progress_us; /* monotonic, of the last progress; under lock */
  GMutex lock;
  GCond changed;
  GError *failed; /* of the first rank that failed */
  GByteArray *shared;
  int arrived;
  int left;
  GSocketConnection **peers; /* rank 0: of every other; else [0] alone */
  char *waits_for;           /* while ranks call each other, what for; under lock */
  gboolean over;
};

typedef struct {
  SpRank rank;
  SpRankFunc run;
  gpointer data;
} Start;

static gboolean
read_variable (const char *name, int lowest, int highest, int *ret_value, GError **error)
{
  const char *text = g_getenv (name);
  gint64 value = 0;
  if (text == NULL || !g_ascii_string_to_signed (text, 10, lowest, highest, &value, NULL)) {
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT, "%s=%s: a whole number from %d to %d was expected",
                 name, text ? text : "", lowest, highest);
    return FALSE;
  }
  *ret_value = (int) value;
  return TRUE;
}

static const struct {
  SpLauncher launcher;
  const char *rank, *size, *local_rank;
} known[] = {
  { SP_LAUNCHER_TORCHRUN, "RANK", "WORLD_SIZE", "LOCAL_RANK" },
  { SP_LAUNCHER_MPIRUN, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK" },
  { SP_LAUNCHER_SRUN, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID" },
};

static gboolean
is_there (guint launchers, guint i)
{
  return launchers & known[i].launcher && g_getenv (known[i].rank) != NULL && g_getenv (known[i].size) != NULL;
}

/* The variable that says how many there are. */
static const char *
size_variable (guint launchers)
{
  for (guint i = 0; i < G_N_ELEMENTS (known); i++)
    if (is_there (launchers, i))
      return known[i].size;
  return "";
}

char **
sp_ranks_environment_alone (void)
{
  char **environment = g_get_environ ();

  for (guint i = 0; i < G_N_ELEMENTS (known); i++)
    environment = g_environ_unsetenv (environment, known[i].rank);
  return environment;
}

gboolean
sp_ranks_launched (guint launchers, int *ret_rank, int *ret_size, int *ret_local_rank, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (known); i++) {
    if (!is_there (launchers, i))
      continue;
    int size = 0;
    if (!read_variable (known[i].size, 1, 1 << 20, &size, error) ||
        !read_variable (known[i].rank, 0, size - 1, ret_rank, error) ||
        !read_variable (known[i].local_rank, 0, size - 1, ret_local_rank, error))
      return FALSE;
    *ret_size = size;
    return TRUE;
  }
  return FALSE;
}

static void
fail_all (SpRanks *ranks, int rank, const GError *cause)
{
  g_mutex_lock (&ranks->lock);
  if (ranks->failed == NULL)
    ranks->failed = g_error_new (cause->domain, cause->code, "rank %d: %s", rank, cause->message);
  g_cond_broadcast (&ranks->changed);
  g_mutex_unlock (&ranks->lock);
}

static gpointer
watch (gpointer data)
{
  SpRanks *ranks = data;
  const SpRanksOptions *o = ranks->options;
  g_mutex_lock (&ranks->lock);
  while (!ranks->over) {
    gint64 end = ranks->progress_us + o->timeout_s * G_TIME_SPAN_SECOND;
    if (g_get_monotonic_time () > end) {
      const char *why = ranks->failed ? ranks->failed->message : ranks->waits_for;
      fprintf (stderr, "%s: no progress for %d s%s%s; %s\n", o->program, o->timeout_s,
               ranks->failed ? ", after "
               : why         ? ", waiting for "
                             : "",
               why ? why : "", o->remark);
      _exit (1);
    }
    g_cond_wait_until (&ranks->changed, &ranks->lock, end + G_TIME_SPAN_MILLISECOND);
  }
  g_mutex_unlock (&ranks->lock);
  return NULL;
}

static gboolean
gather_threads (SpRank *rank, const void *mine, gsize bytes, void *all, GError **error)
{
  SpRanks *r = rank->ranks;
  g_mutex_lock (&r->lock);
  while (r->left > 0 && r->failed == NULL) /* some still copy out of the gather before */
    g_cond_wait (&r->changed, &r->lock);
  g_byte_array_set_size (r->shared, (guint) (bytes * (gsize) r->size));
  memcpy (r->shared->data + bytes * (gsize) rank->rank, mine, bytes);
  if (++r->arrived == r->size) {
    r->arrived = 0;
    r->left = r->size;
    g_cond_broadcast (&r->changed);
  }
  while (r->left == 0 && r->failed == NULL)
    g_cond_wait (&r->changed, &r->lock);
  gboolean good = r->failed == NULL;
  if (good) {
    memcpy (all, r->shared->data, bytes * (gsize) r->size);
    if (--r->left == 0)
      g_cond_broadcast (&r->changed);
  } else {
    g_propagate_error (error, g_error_copy (r->failed));
  }
  r->progress_us = g_get_monotonic_time ();
  g_mutex_unlock (&r->lock);
  return good;
}

static gboolean
transfer (SpRank *rank, int peer, gboolean send, void *data, gsize bytes, GError **error)
{
  GIOStream *stream = G_IO_STREAM (rank->ranks->peers[peer]);
  g_autoptr (GError) cause = NULL;
  gsize done = 0;
  gboolean good =
      send ? g_output_stream_write_all (g_io_stream_get_output_stream (stream), data, bytes, &done, NULL, &cause)
           : g_input_stream_read_all (g_io_stream_get_input_stream (stream), data, bytes, &done, NULL, &cause);
  if (good && done == bytes)
    return TRUE;
  g_set_error (error, G_IO_ERROR, G_IO_ERROR_CLOSED, "rank %d ended or is out of reach%s%s", peer, cause ? ": " : "",
               cause ? cause->message : "");
  return FALSE;
}

static gboolean
gather_processes (SpRank *rank, const void *mine, gsize bytes, void *all, GError **error)
{
  SpRanks *r = rank->ranks;
  gsize total = bytes * (gsize) r->size;
  if (rank->rank != 0) {
    g_autofree void *copy = g_memdup2 (mine, bytes);
    return transfer (rank, 0, TRUE, copy, bytes, error) && transfer (rank, 0, FALSE, all, total, error);
  }
  memmove (all, mine, bytes);
  for (int i = 1; i < r->size; i++)
    if (!transfer (rank, i, FALSE, (char *) all + bytes * (gsize) i, bytes, error))
      return FALSE;
  for (int i = 1; i < r->size; i++)
    if (!transfer (rank, i, TRUE, all, total, error))
      return FALSE;
  return TRUE;
}

gboolean
sp_ranks_gather (SpRank *rank, const void *mine, gsize bytes, void *all, GError **error)
{
  SpRanks *r = rank->ranks;
  if (!r->launcher)
    return gather_threads (rank, mine, bytes, all, error);
  gboolean good = gather_processes (rank, mine, bytes, all, error);
  g_mutex_lock (&r->lock);
  r->progress_us = g_get_monotonic_time ();
  g_mutex_unlock (&r->lock);
  return good;
}

gboolean
sp_ranks_broadcast (SpRank *rank, void *data, gsize bytes, GError **error)
{
  g_autofree char *all = g_malloc (bytes * (gsize) rank->ranks->size);
  if (!sp_ranks_gather (rank, data, bytes, all, error))
    return FALSE;
  memcpy (data, all, bytes);
  return TRUE;
}

gboolean
sp_ranks_check (SpRank *rank, gboolean progress, GError **error)
{
  SpRanks *r = rank->ranks;
  g_mutex_lock (&r->lock);
  gboolean good = r->failed == NULL;
  if (!good)
    g_propagate_error (error, g_error_copy (r->failed));
  if (progress)
    r->progress_us = g_get_monotonic_time ();
  g_mutex_unlock (&r->lock);
  for (int i = 0; good && r->launcher && i < r->size; i++) {
    if (r->peers[i] == NULL)
      continue;
    char byte;
    if (recv (g_socket_get_fd (g_socket_connection_get_socket (r->peers[i])), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_CLOSED, "rank %d ended", i);
      good = FALSE;
    }
  }
  return good;
}

int
sp_ranks_size (const SpRank *rank)
{
  return rank->ranks->size;
}

gboolean
sp_ranks_launcher (const SpRank *rank)
{
  return rank->ranks->launcher;
}

/* For the watchdog's line; NULL: the ranks have found each other. */
static void
say_waiting (SpRanks *r, char *what)
{
  g_mutex_lock (&r->lock);
  g_free (r->waits_for);
  r->waits_for = what;
  g_mutex_unlock (&r->lock);
}

static gboolean
accept_ranks (SpRank *rank, guint16 port, GError **error)
{
  SpRanks *r = rank->ranks;
  g_autoptr (GSocketListener) listener = g_socket_listener_new ();
  if (!g_socket_listener_add_inet_port (listener, port, NULL, error)) {
    g_prefix_error (error, "MASTER_PORT=%u: ", port);
    return FALSE;
  }
  for (int i = 1; i < r->size; i++) {
    say_waiting (r, g_strdup_printf ("%d of %d ranks to call at port %u, which %s says there are; without it in the "
                                     "environment this is one process",
                                     r->size - i, r->size, port, size_variable (r->options->launchers)));
    g_autoptr (GSocketConnection) peer = g_socket_listener_accept (listener, NULL, NULL, error);
    gint32 number = 0;
    gsize done = 0;
    if (peer == NULL)
      return FALSE;
    GInputStream *in = g_io_stream_get_input_stream (G_IO_STREAM (peer));
    if (!g_input_stream_read_all (in, &number, sizeof number, &done, NULL, error))
      return FALSE;
    if (done != sizeof number || number < 1 || number >= r->size || r->peers[number] != NULL) {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_DATA, "MASTER_PORT=%u: a stranger, or a rank twice, called",
                   port);
      return FALSE;
    }
    r->peers[number] = g_steal_pointer (&peer);
  }
  return TRUE;
}

static gboolean
call_rank_0 (SpRank *rank, const char *host, guint16 port, GError **error)
{
  SpRanks *r = rank->ranks;
  g_autoptr (GSocketClient) client = g_socket_client_new ();
  gint64 end = g_get_monotonic_time () + r->options->timeout_s * G_TIME_SPAN_SECOND;
  say_waiting (r, g_strdup_printf ("rank 0 of %d at %s:%u, which %s says there are", r->size, host, port,
                                   size_variable (r->options->launchers)));
  while (r->peers[0] == NULL) {
    g_clear_error (error);
    r->peers[0] = g_socket_client_connect_to_host (client, host, port, NULL, error);
    if (r->peers[0] == NULL && g_get_monotonic_time () > end) {
      g_prefix_error (error, "rank 0 at %s:%u: ", host, port);
      return FALSE;
    }
    if (r->peers[0] == NULL)
      g_usleep (100000);
  }
  g_clear_error (error);
  gint32 number = rank->rank;
  return transfer (rank, 0, TRUE, &number, sizeof number, error);
}

static gboolean
connect_ranks (SpRank *rank, GError **error)
{
  const char *host = g_getenv ("MASTER_ADDR") ? g_getenv ("MASTER_ADDR") : "127.0.0.1";
  int port = 29511;
  if (g_getenv ("MASTER_PORT") != NULL && !read_variable ("MASTER_PORT", 1, 65535, &port, error))
    return FALSE;
  /* torchrun's own agent may listen at its port */
  if (g_getenv ("TORCHELASTIC_RUN_ID") != NULL)
    port = port == 65535 ? 65534 : port + 1;
  gboolean good =
      rank->rank == 0 ? accept_ranks (rank, (guint16) port, error) : call_rank_0 (rank, host, (guint16) port, error);
  say_waiting (rank->ranks, NULL);
  return good;
}

static gpointer
start (gpointer data)
{
  Start *s = data;
  g_autoptr (GError) error = NULL;
  if (!s->run (&s->rank, s->data, &error))
    fail_all (s->rank.ranks, s->rank.rank, error);
  return NULL;
}

static void
run_threads (SpRanks *ranks, SpRankFunc run, gpointer data)
{
  g_autofree Start *starts = g_new0 (Start, ranks->size);
  g_autofree GThread **threads = g_new0 (GThread *, ranks->size);
  for (int i = 0; i < ranks->size; i++) {
    starts[i] = (Start){ .rank = { ranks, i, i }, .run = run, .data = data };
    threads[i] = g_thread_new ("rank", start, &starts[i]);
  }
  for (int i = 0; i < ranks->size; i++)
    g_thread_join (threads[i]);
}

gboolean
sp_ranks_run (const SpRanksOptions *options, SpRankFunc run, gpointer data, GError **error)
{
  SpRanks ranks = { .options = options, .size = options->threads, .progress_us = g_get_monotonic_time () };
  int rank = 0, local_rank = 0;
  GError *wrong = NULL;
  ranks.launcher = sp_ranks_launched (options->launchers, &rank, &ranks.size, &local_rank, &wrong);
  if (wrong != NULL) {
    g_propagate_error (error, wrong);
    return FALSE;
  }
  g_mutex_init (&ranks.lock);
  g_cond_init (&ranks.changed);
  ranks.shared = g_byte_array_new ();
  ranks.peers = g_new0 (GSocketConnection *, ranks.size);
  GThread *watchdog = g_thread_new ("watchdog", watch, &ranks);
  if (ranks.launcher) {
    Start s = { .rank = { &ranks, rank, local_rank }, .run = run, .data = data };
    g_autoptr (GError) cause = NULL;
    if (connect_ranks (&s.rank, &cause))
      start (&s);
    else
      fail_all (&ranks, rank, cause);
  } else {
    run_threads (&ranks, run, data);
  }
  g_mutex_lock (&ranks.lock);
  ranks.over = TRUE;
  g_cond_broadcast (&ranks.changed);
  g_mutex_unlock (&ranks.lock);
  g_thread_join (watchdog);
  for (int i = 0; i < ranks.size; i++)
    g_clear_object (&ranks.peers[i]);
  g_free (ranks.peers);
  g_byte_array_unref (ranks.shared);
  g_mutex_clear (&ranks.lock);
  g_cond_clear (&ranks.changed);
  if (ranks.failed != NULL)
    g_propagate_error (error, ranks.failed);
  return ranks.failed == NULL;
}
