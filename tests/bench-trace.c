/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/program.h"
#include "sim/trace.h"
#include "tests/bench.h"

#include <glib/gstdio.h>

/*
 * The trace as an engine writes it: for each op a slice with four args, an arrow for every tenth, a memory sample for
 * every twentieth. Million events a second, median (best) of the repeats, to a file in the temporary folder and to
 * nowhere, and bytes an event.
 */

#define REPEATS 7
#define OPS 1000000
#define RANKS 64

static guint64
write_events (SpTrace *trace)
{
  static const SpOpKind kinds[] = { SP_OP_GEMM, SP_OP_ATTENTION, SP_OP_NORM_BWD, SP_OP_SEND_RECEIVE };
  gint64 by_class[SP_N_CLASSES] = { 16060522496, 32121044992, 96363134976, 0, 0, 0, 0, 0 };

  for (gint32 rank = 0; rank < RANKS; rank++)
    sp_trace_role (trace, rank, rank % 4, 15);
  for (gint32 i = 0; i < OPS; i++) {
    gint32 rank = i % RANKS, stream = i % 4 == 3 ? SP_STREAM_SEQUENCE : SP_STREAM_COMPUTE;
    SpTime begin = i * G_GINT64_CONSTANT (1234567), duration = 123456 + i % 1000;
    SpTraceArg args[] = { { "layer", NULL, i % 32 },
                          { "phase", sp_phase_name (SP_PHASE_BACKWARD), 0 },
                          { "micro-batch", NULL, i % 16 },
                          { "bytes", NULL, 536870912 } };
    sp_trace_slice (trace, rank, stream, begin, duration, stream == SP_STREAM_COMPUTE ? "kernel" : "ring",
                    sp_op_name (kinds[i % 4]), args, G_N_ELEMENTS (args));
    if (i % 10 == 0) {
      sp_trace_arrow_begin (trace, (guint64) i, rank, stream, begin, "ring", "message");
      sp_trace_arrow_end (trace, (guint64) i, (rank + 1) % RANKS, stream, begin + duration, "ring", "message");
    }
    if (i % 20 == 0) {
      by_class[SP_CLASS_ACTIVATIONS] = i * G_GINT64_CONSTANT (4096);
      sp_trace_memory (trace, rank, begin, by_class);
    }
  }
  return sp_trace_n_events (trace);
}

static void
measure (const char *label, const char *path)
{
  double rates[REPEATS];
  guint64 n = 0;
  GStatBuf info;

  for (guint r = 0; r < REPEATS; r++) {
    g_autoptr (GError) error = NULL;
    double start_s = bench_cpu_s ();
    g_autoptr (SpTrace) trace = sp_trace_open (path, &error);
    g_assert_no_error (error);
    n = write_events (trace);
    sp_trace_close (trace, &error);
    g_assert_no_error (error);
    rates[r] = (double) n / (bench_cpu_s () - start_s) / 1e6;
  }
  double median = bench_median (rates, REPEATS);
  g_assert_cmpint (g_stat (path, &info), ==, 0);
  g_print ("%-16s  %6.2f (%5.2f)  %6.1f\n", label, median, rates[REPEATS - 1],
           S_ISREG (info.st_mode) ? (double) info.st_size / (double) n : 0.0);
}

int
main (void)
{
  g_autofree char *folder = g_dir_make_tmp ("bench-trace-XXXXXX", NULL);
  g_autofree char *path = g_build_filename (folder, "trace.json", NULL);

  g_print ("trace: M events/s of CPU time, median (best) of %d, must 2; bytes an event\n", REPEATS);
  measure ("to nowhere", "/dev/null");
  measure ("to a file", path);
  g_unlink (path);
  g_rmdir (folder);
  return 0;
}
