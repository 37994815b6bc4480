/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* O_TMPFILE */
#include "sim/trace.h"

#include "sim/program.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (256u << 10)
#define MOST_ID ((G_GUINT64_CONSTANT (1) << 53) - 1) /* numbers of JSON are doubles to its readers */
#define PS_PER_US 1000000

struct _SpTrace {
  char *path;
  char *written_path; /* until it is renamed; NULL: in place, or without a name */
  gboolean nameless;  /* it gets one when it is whole */
  int fd;             /* -1: closed */
  int failed;         /* errno of the first write that failed */
  guint64 n_events;
  gboolean to_sink; /* and no file */
  SpTraceSink sink;
  guint used;
  char buffer[BUFFER_BYTES];
};

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static void
flush (SpTrace *trace)
{
  for (guint done = 0; done < trace->used && trace->failed == 0;) {
    gssize n = write (trace->fd, trace->buffer + done, trace->used - done);
    if (n >= 0)
      done += (guint) n;
    else if (errno != EINTR)
      trace->failed = errno;
  }
  trace->used = 0;
}

/* Where `n` bytes may be written. */
static inline char *
reserve (SpTrace *trace, guint n)
{
  if (G_UNLIKELY (trace->used + n > BUFFER_BYTES))
    flush (trace);
  return trace->buffer + trace->used;
}

static inline void
put_bytes (SpTrace *trace, const char *bytes, guint n)
{
  memcpy (reserve (trace, n), bytes, n);
  trace->used += n;
}

#define put(trace, literal) put_bytes (trace, literal, sizeof (literal) - 1)

static inline void
put_char (SpTrace *trace, char c)
{
  *reserve (trace, 1) = c;
  trace->used++;
}

static void
put_unsigned (SpTrace *trace, guint64 value)
{
  char digits[20];
  guint at = sizeof digits;

  do
    digits[--at] = (char) ('0' + value % 10);
  while ((value /= 10) > 0);
  put_bytes (trace, digits + at, sizeof digits - at);
}

static void
put_number (SpTrace *trace, gint64 value)
{
  if (value < 0)
    put_char (trace, '-');
  put_unsigned (trace, value < 0 ? -(guint64) value : (guint64) value);
}

/* Microseconds, exactly. */
static void
put_time (SpTrace *trace, SpTime time_ps)
{
  guint rest = (guint) (time_ps % PS_PER_US), n = 6;
  char decimals[6];

  put_unsigned (trace, (guint64) time_ps / PS_PER_US);
  if (rest == 0)
    return;
  for (; rest % 10 == 0; rest /= 10)
    n--;
  for (guint i = n; i-- > 0; rest /= 10)
    decimals[i] = (char) ('0' + rest % 10);
  put_char (trace, '.');
  put_bytes (trace, decimals, n);
}

/* --- strings ------------------------------------------------------------------------------------------------------ */

static void
put_escaped (SpTrace *trace, guchar c)
{
  static const char hex[] = "0123456789abcdef";

  if (c == '"' || c == '\\') {
    put_char (trace, '\\');
    put_char (trace, (char) c);
  } else if (c < 0x20 || c == 0x7f) {
    put (trace, "\\u00");
    put_char (trace, hex[c >> 4]);
    put_char (trace, hex[c & 15]);
  } else
    put_char (trace, (char) c);
}

static void
put_foreign_text (SpTrace *trace, const char *text)
{
  g_autofree char *valid = g_utf8_make_valid (text, -1);

  for (const char *c = valid; *c != '\0'; c++)
    put_escaped (trace, (guchar) *c);
}

static inline gboolean
is_plain (guchar c)
{
  return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void
put_text (SpTrace *trace, const char *text)
{
  guint n = 0;

  put_char (trace, '"');
  while (is_plain ((guchar) text[n]) && n < BUFFER_BYTES)
    n++;
  put_bytes (trace, text, n);
  if (text[n] != '\0')
    put_foreign_text (trace, text + n);
  put_char (trace, '"');
}

/* --- events ------------------------------------------------------------------------------------------------------- */

/* Perfetto takes process and thread 0 for the idle task and merges them with others: so numbers are one more. */
static void
open_event (SpTrace *trace, const char *phase, guint n, gint32 process)
{
  g_assert (trace->fd >= 0 && process >= 0);
  if (trace->n_events++ > 0)
    put (trace, ",\n");
  put_bytes (trace, phase, n);
  put (trace, ",\"pid\":");
  put_unsigned (trace, (guint64) process + 1);
}

#define open_phase(trace, phase, process)                                                                              \
  open_event (trace, "{\"ph\":\"" phase, sizeof ("{\"ph\":\"" phase) - 1, process)

static void
put_thread (SpTrace *trace, gint32 thread)
{
  g_assert (thread >= 0);
  put (trace, ",\"tid\":");
  put_unsigned (trace, (guint64) thread + 1);
}

static void
put_date (SpTrace *trace, SpTime at)
{
  g_assert (at >= 0);
  put (trace, ",\"ts\":");
  put_time (trace, at);
}

static void
put_name (SpTrace *trace, const char *category, const char *name)
{
  if (category != NULL) {
    put (trace, ",\"cat\":");
    put_text (trace, category);
  }
  put (trace, ",\"name\":");
  put_text (trace, name);
}

static void
put_metadata (SpTrace *trace, gint32 process, gint32 thread, const char *what, const char *name, gint32 order)
{
  open_phase (trace, "M\"", process);
  if (thread >= 0)
    put_thread (trace, thread);
  put_name (trace, NULL, what);
  if (name != NULL) {
    put (trace, ",\"args\":{\"name\":");
    put_text (trace, name);
  } else {
    put (trace, ",\"args\":{\"sort_index\":");
    put_number (trace, order);
  }
  put (trace, "}}");
}

void
sp_trace_process (SpTrace *trace, gint32 process, gint32 order, const char *name)
{
  put_metadata (trace, process, -1, "process_name", name, 0);
  put_metadata (trace, process, -1, "process_sort_index", NULL, order);
}

void
sp_trace_thread (SpTrace *trace, gint32 process, gint32 thread, gint32 order, const char *name)
{
  if (trace->to_sink)
    return;
  put_metadata (trace, process, thread, "thread_name", name, 0);
  put_metadata (trace, process, thread, "thread_sort_index", NULL, order);
}

void
sp_trace_role (SpTrace *trace, gint32 rank, gint32 stage, gint32 n_alike)
{
  if (trace->to_sink) {
    if (trace->sink.role != NULL)
      trace->sink.role (rank, stage, n_alike, trace->sink.data);
    return;
  }
  g_autofree char *alike = n_alike > 0 ? g_strdup_printf (", +%d alike", n_alike) : g_strdup ("");
  g_autofree char *name = g_strdup_printf ("rank %d (stage %d%s)", rank, stage, alike);

  sp_trace_process (trace, rank, rank, name);
  for (gint32 stream = 0; stream < SP_N_STREAMS; stream++)
    sp_trace_thread (trace, rank, stream, stream, sp_stream_name ((SpStream) stream));
}

static void
put_args (SpTrace *trace, const SpTraceArg *args, guint n_args)
{
  put (trace, ",\"args\":{");
  for (guint i = 0; i < n_args; i++) {
    if (i > 0)
      put_char (trace, ',');
    put_text (trace, args[i].name);
    put_char (trace, ':');
    if (args[i].text != NULL)
      put_text (trace, args[i].text);
    else
      put_number (trace, args[i].number);
  }
  put_char (trace, '}');
}

void
sp_trace_slice (SpTrace *trace, gint32 process, gint32 thread, SpTime begin, SpTime duration, const char *category,
                const char *name, const SpTraceArg *args, guint n_args)
{
  g_assert (duration >= 0);
  if (trace->to_sink) {
    if (trace->sink.slice != NULL)
      trace->sink.slice (process, thread, begin, duration, category, name, trace->sink.data);
    return;
  }
  open_phase (trace, "X\"", process);
  put_thread (trace, thread);
  put_date (trace, begin);
  put (trace, ",\"dur\":");
  put_time (trace, duration);
  put_name (trace, category, name);
  if (n_args > 0)
    put_args (trace, args, n_args);
  put_char (trace, '}');
}

static void
put_arrow (SpTrace *trace, guint64 id, gint32 thread, SpTime at, const char *category, const char *name)
{
  g_assert (id <= MOST_ID);
  put_thread (trace, thread);
  put_date (trace, at);
  put (trace, ",\"id\":");
  put_unsigned (trace, id);
  put_name (trace, category, name);
  put_char (trace, '}');
}

void
sp_trace_arrow_begin (SpTrace *trace, guint64 id, gint32 process, gint32 thread, SpTime at, const char *category,
                      const char *name)
{
  if (trace->to_sink)
    return;
  open_phase (trace, "s\"", process);
  put_arrow (trace, id, thread, at, category, name);
}

/* bp: it ends at the slice around it, not at the next one. */
void
sp_trace_arrow_end (SpTrace *trace, guint64 id, gint32 process, gint32 thread, SpTime at, const char *category,
                    const char *name)
{
  if (trace->to_sink)
    return;
  open_phase (trace, "f\",\"bp\":\"e\"", process);
  put_arrow (trace, id, thread, at, category, name);
}

void
sp_trace_counter (SpTrace *trace, gint32 process, SpTime at, const char *name, const char *const *series,
                  const gint64 *values, guint n)
{
  open_phase (trace, "C\"", process);
  put_date (trace, at);
  put_name (trace, NULL, name);
  put (trace, ",\"args\":{");
  for (guint i = 0; i < n; i++) {
    if (i > 0)
      put_char (trace, ',');
    put_text (trace, series[i]);
    put_char (trace, ':');
    put_number (trace, values[i]);
  }
  put (trace, "}}");
}

void
sp_trace_memory (SpTrace *trace, gint32 process, SpTime at, const gint64 *by_class)
{
  const char *names[SP_CLASS_RESERVED];

  if (trace->to_sink)
    return;
  for (guint c = 0; c < SP_CLASS_RESERVED; c++)
    names[c] = sp_class_name ((SpClass) c);
  sp_trace_counter (trace, process, at, "memory", names, by_class, SP_CLASS_RESERVED);
}

void
sp_trace_list_memory (SpTrace *trace, gint32 process, SpTime at, const gint64 *by_class)
{
  if (trace->to_sink && trace->sink.memory != NULL)
    trace->sink.memory (process, at, by_class, trace->sink.data);
}

guint64
sp_trace_n_events (const SpTrace *trace)
{
  return trace->n_events;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static void
set_error (GError **error, int code, const char *verb, const char *path)
{
  g_set_error (error, G_FILE_ERROR, (gint) g_file_error_from_errno (code), "%s: cannot %s the trace: %s", path, verb,
               g_strerror (code));
}

/* A file without a name in the folder of `path`, which is gone if we are killed; -1 where file systems have none. */
static int
open_nameless (const char *path)
{
  g_autofree char *folder = g_path_get_dirname (path);

  return g_open (folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

/* FALSE with errno. */
static gboolean
name_it (int fd, const char *name)
{
  g_autofree char *of = g_strdup_printf ("/proc/self/fd/%d", fd);

  return linkat (AT_FDCWD, of, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
}

/* Where there is no such name yet that is all; else it has another one for a moment. */
static gboolean
name_nameless (SpTrace *trace)
{
  enum { TRIES = 100 };

  if (name_it (trace->fd, trace->path))
    return TRUE;
  for (guint i = 0; i < TRIES && errno == EEXIST; i++) {
    g_autofree char *beside = g_strdup_printf ("%s.%06x", trace->path, g_random_int () & 0xffffff);
    if (name_it (trace->fd, beside)) {
      trace->written_path = g_steal_pointer (&beside);
      return TRUE;
    }
  }
  return FALSE;
}

/* -1 with errno; ret_beside: NULL, or the name that it has until it is whole. */
static int
open_file (const char *path, gboolean *ret_nameless, char **ret_beside)
{
  GStatBuf info;

  *ret_nameless = FALSE;
  *ret_beside = NULL;
  if (g_stat (path, &info) == 0 && !S_ISREG (info.st_mode))
    return g_open (path, O_WRONLY | O_CLOEXEC, 0);
  int fd = open_nameless (path);
  *ret_nameless = fd >= 0;
  if (fd >= 0)
    return fd;
  *ret_beside = g_strconcat (path, ".XXXXXX", NULL);
  return g_mkstemp_full (*ret_beside, O_WRONLY | O_CLOEXEC, 0666);
}

SpTrace *
sp_trace_open (const char *path, GError **error)
{
  g_autofree char *beside = NULL;
  gboolean nameless;
  int fd = open_file (path, &nameless, &beside);

  if (fd < 0) {
    set_error (error, errno, "make", path);
    return NULL;
  }
  SpTrace *trace = g_new (SpTrace, 1);
  trace->path = g_strdup (path);
  trace->written_path = g_steal_pointer (&beside);
  trace->nameless = nameless;
  trace->fd = fd;
  trace->failed = 0;
  trace->n_events = 0;
  trace->to_sink = FALSE;
  trace->used = 0;
  put (trace, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  return trace;
}

SpTrace *
sp_trace_new (const SpTraceSink *sink)
{
  SpTrace *trace = g_new0 (SpTrace, 1);

  trace->fd = -1;
  trace->to_sink = TRUE;
  trace->sink = *sink;
  return trace;
}

static void
remove_written (SpTrace *trace)
{
  if (trace->written_path != NULL)
    g_unlink (trace->written_path);
  g_clear_pointer (&trace->written_path, g_free);
}

gboolean
sp_trace_close (SpTrace *trace, GError **error)
{
  g_assert (trace->fd >= 0);
  put (trace, "\n]}\n");
  flush (trace);
  if (trace->failed == 0 && trace->nameless && !name_nameless (trace))
    trace->failed = errno;
  if (close (trace->fd) != 0 && trace->failed == 0)
    trace->failed = errno;
  trace->fd = -1;
  if (trace->failed == 0 && trace->written_path != NULL && g_rename (trace->written_path, trace->path) != 0)
    trace->failed = errno;
  if (trace->failed != 0) {
    remove_written (trace);
    set_error (error, trace->failed, "write", trace->path);
    return FALSE;
  }
  g_clear_pointer (&trace->written_path, g_free);
  return TRUE;
}

void
sp_trace_free (SpTrace *trace)
{
  if (trace == NULL)
    return;
  if (trace->fd >= 0) {
    close (trace->fd);
    remove_written (trace);
  }
  g_free (trace->path);
  g_free (trace);
}
