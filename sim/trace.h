/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A timeline in the Trace Event Format, JSON that ui.perfetto.dev and chrome://tracing open: ranks are processes,
 * streams are threads, ops are slices, messages are arrows, memory and link load are counters.
 *
 * It is streamed: events go through one buffer to the disk in the order of the calls, nothing is kept, and the same
 * calls give the same file byte for byte. The file gets its name when it is complete, so a run that fails or is killed
 * leaves none behind; where the file system has no files without a name it is written under another one beside it, which
 * stays if the run is killed. What exists and is no regular file (a device, a pipe) is written in place.
 *
 * Dates are exact: microseconds, as the format has them, with the decimals that the picoseconds need. Viewers round
 * to nanoseconds.
 *
 * What the format asks of the caller: slices of one thread nest or do not overlap. Both ends of an arrow stand on a
 * slice: their dates lie within it, its end not included.
 *
 * Failure. Writing is checked when the trace is closed: the first error is reported there and what comes after it is
 * dropped. Programmer errors (a negative duration) are asserted.
 *
 * Costs: about 0.2 us and 150 bytes an event (bench-trace).
 */

#include "sim/clock.h"

G_BEGIN_DECLS

typedef struct _SpTrace SpTrace;

/* NULL: the file cannot be made (G_FILE_ERROR). */
SpTrace *sp_trace_open (const char *path, GError **error);

/* Who draws a timeline and wants no file: the calls are handed on. Each may be NULL. */
typedef struct {
  void (*role) (gint32 rank, gint32 stage, gint32 n_alike, gpointer data);
  void (*slice) (gint32 rank, gint32 thread, SpTime begin, SpTime duration, const char *category, const char *name,
                 gpointer data);
  /* Of the list that begins: what lives at its fullest moment, by SpClass. */
  void (*memory) (gint32 rank, SpTime at, const gint64 *by_class, gpointer data);
  gpointer data;
} SpTraceSink;
/* Borrows nothing. Not to be closed. */
SpTrace *sp_trace_new (const SpTraceSink *sink);

/* Completes the file. FALSE, with an error and without a file, if it could not be written whole. To be freed all the
 * same. */
gboolean sp_trace_close (SpTrace *trace, GError **error);
/* Of a trace that is not closed, removes what was written. */
void sp_trace_free (SpTrace *trace);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpTrace, sp_trace_free)

/* Names of a process (a rank) and of its threads (streams); both are listed by `order`. */
void sp_trace_process (SpTrace *trace, gint32 process, gint32 order, const char *name);
void sp_trace_thread (SpTrace *trace, gint32 process, gint32 thread, gint32 order, const char *name);
/* A role as a process: "rank 5 (stage 1, +15 alike)", and its streams (SpStream) as threads. */
void sp_trace_role (SpTrace *trace, gint32 rank, gint32 stage, gint32 n_alike);

/* Shown when a slice is selected. */
typedef struct {
  const char *name;
  const char *text; /* NULL: the number */
  gint64 number;
} SpTraceArg;

/* A slice. */
void sp_trace_slice (SpTrace *trace, gint32 process, gint32 thread, SpTime begin, SpTime duration, const char *category,
                     const char *name, const SpTraceArg *args, guint n_args);

/* The two ends of an arrow, from a slice that contains one date to a slice that contains the other. `id` is less than
 * 2^53 and of one arrow; category and name are the same at both ends. */
void sp_trace_arrow_begin (SpTrace *trace, guint64 id, gint32 process, gint32 thread, SpTime at, const char *category,
                           const char *name);
void sp_trace_arrow_end (SpTrace *trace, guint64 id, gint32 process, gint32 thread, SpTime at, const char *category,
                         const char *name);

/* Samples of a stacked counter: its values from this date on. */
void sp_trace_counter (SpTrace *trace, gint32 process, SpTime at, const char *name, const char *const *series,
                       const gint64 *values, guint n);
/* Live bytes by SpClass, without RESERVED: a counter "memory". */
void sp_trace_memory (SpTrace *trace, gint32 process, SpTime at, const gint64 *by_class);
/* For a sink alone: the most that lives within the list that begins at this date. */
void sp_trace_list_memory (SpTrace *trace, gint32 process, SpTime at, const gint64 *by_class);

/* So far. */
guint64 sp_trace_n_events (const SpTrace *trace);

G_END_DECLS
