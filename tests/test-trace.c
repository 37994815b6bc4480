/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* O_TMPFILE */
#include "sim/program.h"
#include "sim/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <json-glib/json-glib.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define US 1000000 /* ps */

/* An empty folder, and a file in it. */
typedef struct {
  char *folder, *path;
} Place;

static void
set_up (Place *place, gconstpointer data)
{
  g_autoptr (GError) error = NULL;

  place->folder = g_dir_make_tmp ("trace-XXXXXX", &error);
  g_assert_no_error (error);
  place->path = g_build_filename (place->folder, "a trace.json", NULL);
}

static guint
count_files (const Place *place)
{
  g_autoptr (GDir) dir = g_dir_open (place->folder, 0, NULL);
  guint n = 0;

  while (g_dir_read_name (dir) != NULL)
    n++;
  return n;
}

static void
tear_down (Place *place, gconstpointer data)
{
  g_unlink (place->path);
  g_assert_cmpint (g_rmdir (place->folder), ==, 0); /* nothing else is left in it */
  g_free (place->folder);
  g_free (place->path);
}

static SpTrace *
open_trace (const Place *place)
{
  g_autoptr (GError) error = NULL;
  SpTrace *trace = sp_trace_open (place->path, &error);

  g_assert_no_error (error);
  return trace;
}

static char *
close_trace (const Place *place, SpTrace *trace)
{
  g_autoptr (GError) error = NULL;
  char *text;

  sp_trace_close (trace, &error);
  g_assert_no_error (error);
  sp_trace_free (trace);
  g_file_get_contents (place->path, &text, NULL, &error);
  g_assert_no_error (error);
  return text;
}

/* --- the format --------------------------------------------------------------------------------------------------- */

/* One of each event, in the order of the calls. */
static const char golden[] =
    "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
    "{\"ph\":\"M\",\"pid\":6,\"name\":\"process_name\",\"args\":{\"name\":\"rank 5\"}},\n"
    "{\"ph\":\"M\",\"pid\":6,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":2}},\n"
    "{\"ph\":\"M\",\"pid\":6,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"compute\"}},\n"
    "{\"ph\":\"M\",\"pid\":6,\"tid\":1,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":-1}},\n"
    "{\"ph\":\"X\",\"pid\":6,\"tid\":1,\"ts\":1.5,\"dur\":0.000001,\"cat\":\"kernel\",\"name\":\"gemm\","
    "\"args\":{\"layer\":-1,\"phase\":\"forward\"}},\n"
    "{\"ph\":\"X\",\"pid\":6,\"tid\":2,\"ts\":0,\"dur\":3,\"cat\":\"ring\",\"name\":\"send\"},\n"
    "{\"ph\":\"s\",\"pid\":6,\"tid\":2,\"ts\":2,\"id\":9007199254740991,\"cat\":\"ring\",\"name\":\"message\"},\n"
    "{\"ph\":\"f\",\"bp\":\"e\",\"pid\":7,\"tid\":2,\"ts\":2.25,\"id\":9007199254740991,\"cat\":\"ring\","
    "\"name\":\"message\"},\n"
    "{\"ph\":\"C\",\"pid\":6,\"ts\":4,\"name\":\"memory\",\"args\":{\"a\":0,\"b\":-9223372036854775808}}\n"
    "]}\n";

static void
write_golden (SpTrace *trace)
{
  static const char *const series[] = { "a", "b" };
  const gint64 values[] = { 0, G_MININT64 };
  const SpTraceArg args[] = { { "layer", NULL, -1 }, { "phase", "forward", 0 } };

  sp_trace_process (trace, 5, 2, "rank 5");
  sp_trace_thread (trace, 5, 0, -1, "compute");
  sp_trace_slice (trace, 5, 0, 3 * US / 2, 1, "kernel", "gemm", args, 2);
  sp_trace_slice (trace, 5, 1, 0, 3 * US, "ring", "send", NULL, 0);
  sp_trace_arrow_begin (trace, (G_GUINT64_CONSTANT (1) << 53) - 1, 5, 1, 2 * US, "ring", "message");
  sp_trace_arrow_end (trace, (G_GUINT64_CONSTANT (1) << 53) - 1, 6, 1, 9 * US / 4, "ring", "message");
  sp_trace_counter (trace, 5, 4 * US, "memory", series, values, 2);
}

static void
test_golden (Place *place, gconstpointer data)
{
  SpTrace *trace = open_trace (place);

  write_golden (trace);
  g_assert_cmpuint (sp_trace_n_events (trace), ==, 9);
  g_autofree char *text = close_trace (place, trace);
  g_assert_cmpstr (text, ==, golden);
}

static JsonArray *
parse (JsonParser *parser, const char *text)
{
  g_autoptr (GError) error = NULL;

  json_parser_load_from_data (parser, text, -1, &error);
  g_assert_no_error (error);
  return json_object_get_array_member (json_node_get_object (json_parser_get_root (parser)), "traceEvents");
}

static void
test_empty (Place *place, gconstpointer data)
{
  g_autoptr (JsonParser) parser = json_parser_new ();
  g_autofree char *text = close_trace (place, open_trace (place));

  g_assert_cmpuint (json_array_get_length (parse (parser, text)), ==, 0);
}

/* Process numbers are one more than ranks. */
static void
test_role (Place *place, gconstpointer data)
{
  static const char *const names[] = { "rank 5 (stage 1, +15 alike)", "rank 0 (stage 0)" };
  g_autoptr (JsonParser) parser = json_parser_new ();
  SpTrace *trace = open_trace (place);

  sp_trace_role (trace, 5, 1, 15);
  sp_trace_role (trace, 0, 0, 0);
  g_autofree char *text = close_trace (place, trace);
  JsonArray *events = parse (parser, text);
  guint each = 2 + 2 * SP_N_STREAMS;
  g_assert_cmpuint (json_array_get_length (events), ==, 2 * each);
  for (guint i = 0; i < 2; i++) {
    JsonObject *name = json_array_get_object_element (events, i * each);
    JsonObject *stream = json_array_get_object_element (events, i * each + 2 + 2 * SP_STREAM_PIPELINE);
    g_assert_cmpint (json_object_get_int_member (name, "pid"), ==, i == 0 ? 6 : 1);
    g_assert_cmpstr (json_object_get_string_member (json_object_get_object_member (name, "args"), "name"), ==,
                     names[i]);
    g_assert_cmpint (json_object_get_int_member (stream, "tid"), ==, SP_STREAM_PIPELINE + 1);
    g_assert_cmpstr (json_object_get_string_member (json_object_get_object_member (stream, "args"), "name"), ==,
                     sp_stream_name (SP_STREAM_PIPELINE));
  }
}

static void
test_memory (Place *place, gconstpointer data)
{
  g_autoptr (JsonParser) parser = json_parser_new ();
  SpTrace *trace = open_trace (place);
  gint64 by_class[SP_N_CLASSES];

  for (guint c = 0; c < SP_N_CLASSES; c++)
    by_class[c] = (c + 1) * G_GINT64_CONSTANT (10000000000);
  sp_trace_memory (trace, 0, 0, by_class);
  g_autofree char *text = close_trace (place, trace);
  JsonObject *args = json_object_get_object_member (json_array_get_object_element (parse (parser, text), 0), "args");
  g_assert_cmpuint (json_object_get_size (args), ==, SP_CLASS_RESERVED);
  for (guint c = 0; c < SP_CLASS_RESERVED; c++)
    g_assert_cmpint (json_object_get_int_member (args, sp_class_name ((SpClass) c)), ==, by_class[c]);
}

/* 1 us = 10^6 ps, and no decimal that is not needed. */
static const struct {
  SpTime time;
  const char *text;
} times[] = {
  { 0, "0" },
  { 1, "0.000001" },
  { 10, "0.00001" },
  { 999999, "0.999999" },
  { US, "1" },
  { US + 1, "1.000001" },
  { 1234500 * (SpTime) US + 67890, "1234500.06789" },
  { G_MAXINT64, "9223372036854.775807" },
};

static void
test_decimals (Place *place, gconstpointer data)
{
  SpTrace *trace = open_trace (place);

  for (guint i = 0; i < G_N_ELEMENTS (times); i++)
    sp_trace_slice (trace, 0, 0, times[i].time, times[i].time, NULL, "x", NULL, 0);
  g_autofree char *text = close_trace (place, trace);
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; i < G_N_ELEMENTS (times); i++) {
    g_autofree char *expected = g_strdup_printf ("\"ts\":%s,\"dur\":%s,", times[i].text, times[i].text);
    g_assert_nonnull (strstr (lines[1 + i], expected));
  }
}

/* Every character comes back; what is no UTF-8 comes as its replacement. */
static void
test_strings (Place *place, gconstpointer data)
{
  g_autoptr (JsonParser) parser = json_parser_new ();
  g_autoptr (GString) all = g_string_new ("plain");
  SpTrace *trace = open_trace (place);
  const SpTraceArg arg = { "quote\"back\\slash", "\xff", 0 };

  for (char c = 1; c < 127; c++)
    g_string_append_c (all, c);
  g_string_append (all, "\x7fµs → ∞");
  g_autofree char *large = g_strnfill (1000000, 'x');
  sp_trace_slice (trace, 0, 0, 0, 1, "µ", all->str, &arg, 1);
  sp_trace_slice (trace, 0, 0, 1, 1, "", large, NULL, 0);
  g_autofree char *text = close_trace (place, trace);

  JsonArray *events = parse (parser, text);
  JsonObject *event = json_array_get_object_element (events, 0);
  g_assert_cmpstr (json_object_get_string_member (event, "name"), ==, all->str);
  g_assert_cmpstr (json_object_get_string_member (event, "cat"), ==, "µ");
  g_assert_cmpstr (json_object_get_string_member (json_object_get_object_member (event, "args"), arg.name), ==,
                   "\uFFFD");
  g_assert_cmpstr (json_object_get_string_member (json_array_get_object_element (events, 1), "name"), ==, large);
}

/* More than a buffer: all events in the order of the calls, the same the second time. */
static void
test_order (Place *place, gconstpointer data)
{
  g_autoptr (JsonParser) parser = json_parser_new ();
  g_autofree char *texts[2];
  const guint n = 20000;

  for (guint run = 0; run < 2; run++) {
    SpTrace *trace = open_trace (place);
    for (guint i = 0; i < n; i++)
      sp_trace_slice (trace, (gint32) (i % 7), (gint32) (i % 5), (SpTime) (n - i) * US, i, "order", "event", NULL, 0);
    texts[run] = close_trace (place, trace);
  }
  g_assert_cmpstr (texts[0], ==, texts[1]);
  JsonArray *events = parse (parser, texts[0]);
  g_assert_cmpuint (json_array_get_length (events), ==, n);
  for (guint i = 0; i < n; i++) {
    JsonObject *event = json_array_get_object_element (events, i);
    g_assert_cmpfloat (json_object_get_double_member (event, "ts"), ==, n - i);
    g_assert_cmpint (json_object_get_int_member (event, "pid"), ==, i % 7 + 1);
  }
  g_free (texts[1]);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void
test_dropped (Place *place, gconstpointer data)
{
  SpTrace *trace = open_trace (place);

  write_golden (trace);
  g_assert_false (g_file_test (place->path, G_FILE_TEST_EXISTS));
  sp_trace_free (trace);
  g_assert_cmpuint (count_files (place), ==, 0);
}

/* What was there stays whole until the new one is complete. */
static void
test_replaced (Place *place, gconstpointer data)
{
  g_autofree char *old = NULL;

  g_assert_true (g_file_set_contents (place->path, "old", -1, NULL));
  SpTrace *trace = open_trace (place);
  write_golden (trace);
  g_assert_true (g_file_get_contents (place->path, &old, NULL, NULL));
  g_assert_cmpstr (old, ==, "old");
  g_autofree char *text = close_trace (place, trace);
  g_assert_cmpstr (text, ==, golden);
  g_assert_cmpuint (count_files (place), ==, 1);
}

static void
check_no_trace (const char *path, gint code)
{
  g_autoptr (GError) error = NULL;

  g_assert_null (sp_trace_open (path, &error));
  g_assert_error (error, G_FILE_ERROR, code);
  g_assert_true (g_str_has_prefix (error->message, path));
}

static void
test_no_folder (Place *place, gconstpointer data)
{
  g_autofree char *path = g_build_filename (place->folder, "none", "t.json", NULL);

  check_no_trace (path, G_FILE_ERROR_NOENT);
  check_no_trace (place->folder, G_FILE_ERROR_ISDIR);
}

/* No file may grow beyond 1 MB: as a disk that is full. */
static void
test_full (Place *place, gconstpointer data)
{
  struct rlimit before, limit;
  g_autoptr (GError) error = NULL;
  g_autoptr (SpTrace) trace = open_trace (place);

  signal (SIGXFSZ, SIG_IGN);
  g_assert_cmpint (getrlimit (RLIMIT_FSIZE, &before), ==, 0);
  limit = before;
  limit.rlim_cur = 1000000;
  g_assert_cmpint (setrlimit (RLIMIT_FSIZE, &limit), ==, 0);
  for (guint i = 0; i < 100000; i++)
    sp_trace_slice (trace, 0, 0, i, 1, "full", "event", NULL, 0);
  g_assert_false (sp_trace_close (trace, &error));
  g_assert_cmpint (setrlimit (RLIMIT_FSIZE, &before), ==, 0);
  g_assert_error (error, G_FILE_ERROR, (gint) g_file_error_from_errno (EFBIG));
  g_assert_nonnull (strstr (error->message, place->path));
  g_assert_cmpuint (count_files (place), ==, 0);
}

/* A device is written in place. */
static void
test_device (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpTrace) null = sp_trace_open ("/dev/null", &error), full = NULL;

  g_assert_no_error (error);
  write_golden (null);
  g_assert_true (sp_trace_close (null, &error));
  g_assert_no_error (error);
  g_assert_false (g_file_test ("/dev/null", G_FILE_TEST_IS_REGULAR));
  if (!g_file_test ("/dev/full", G_FILE_TEST_EXISTS)) {
    g_test_skip ("no /dev/full here");
    return;
  }
  full = sp_trace_open ("/dev/full", &error);
  g_assert_no_error (error);
  g_assert_false (sp_trace_close (full, &error));
  g_assert_error (error, G_FILE_ERROR, G_FILE_ERROR_NOSPC);
}

static void
add (const char *path, void (*test) (Place *place, gconstpointer data))
{
  g_test_add (path, Place, NULL, set_up, test, tear_down);
}

/* --- a sink ------------------------------------------------------------------------------------------------------- */

/* Killed while it writes, with more than a buffer on the disk. */
static void
test_killed (Place *place, gconstpointer data)
{
  int nameless = g_open (place->folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600), status = 0;

  if (nameless < 0) {
    g_test_skip ("this file system has no files without a name");
    return;
  }
  close (nameless);
  pid_t child = fork ();
  if (child == 0) {
    SpTrace *trace = sp_trace_open (place->path, NULL);
    for (gint32 i = 0; i < 10000 && trace != NULL; i++)
      sp_trace_slice (trace, 0, 0, i * (SpTime) US, US, "forward", "gemm", NULL, 0);
    raise (SIGKILL);
  }
  g_assert_cmpint (child, >, 0);
  g_assert_cmpint (waitpid (child, &status, 0), ==, child);
  g_assert_true (WIFSIGNALED (status) && WTERMSIG (status) == SIGKILL);
  g_assert_cmpuint (count_files (place), ==, 0);
}

static void
say_role (gint32 rank, gint32 stage, gint32 n_alike, gpointer data)
{
  g_string_append_printf (data, "role %d %d %d\n", rank, stage, n_alike);
}

static void
say_slice (gint32 rank, gint32 thread, SpTime begin, SpTime duration, const char *category, const char *name,
           gpointer data)
{
  g_string_append_printf (data, "slice %d %d %d %d %s %s\n", rank, thread, (int) begin, (int) duration, category, name);
}

static void
say_memory (gint32 rank, SpTime at, const gint64 *by_class, gpointer data)
{
  g_string_append_printf (data, "memory %d %d %d\n", rank, (int) at, (int) by_class[SP_CLASS_LOGITS]);
}

/* The calls in their order; what a file alone has is dropped, as is what nobody asked for. */
static void
test_sink (void)
{
  g_autoptr (GString) said = g_string_new (NULL);
  const SpTraceSink sink = { say_role, say_slice, say_memory, said }, deaf = { .data = said };
  const gint64 bytes[SP_N_CLASSES] = { [SP_CLASS_LOGITS] = 7 };
  const SpTraceSink *const sinks[] = { &sink, &deaf };

  for (guint i = 0; i < G_N_ELEMENTS (sinks); i++) {
    g_autoptr (SpTrace) trace = sp_trace_new (sinks[i]);
    sp_trace_role (trace, 3, 1, 15);
    sp_trace_slice (trace, 3, 0, 10, 20, "forward", "gemm", NULL, 0);
    sp_trace_memory (trace, 3, 10, bytes);
    sp_trace_list_memory (trace, 3, 10, bytes);
    sp_trace_arrow_begin (trace, 1, 3, 0, 10, "ring", "message");
    sp_trace_arrow_end (trace, 1, 4, 0, 20, "ring", "message");
  }
  g_assert_cmpstr (said->str, ==, "role 3 1 15\nslice 3 0 10 20 forward gemm\nmemory 3 10 7\n");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  add ("/trace/golden", test_golden);
  add ("/trace/empty", test_empty);
  add ("/trace/role", test_role);
  add ("/trace/memory", test_memory);
  add ("/trace/decimals", test_decimals);
  add ("/trace/strings", test_strings);
  add ("/trace/order", test_order);
  add ("/trace/dropped", test_dropped);
  add ("/trace/replaced", test_replaced);
  add ("/trace/no-folder", test_no_folder);
  add ("/trace/full", test_full);
  add ("/trace/killed", test_killed);
  g_test_add_func ("/trace/device", test_device);
  g_test_add_func ("/trace/sink", test_sink);
  return g_test_run ();
}
