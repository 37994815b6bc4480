/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench.h"
#include "tests/loggp-events.h"

/*
 * Message patterns with LogGP costs. Times are CPU time of a run, building the pattern excluded (it is a list of some
 * steps). Memory is the peak of the process, above what it was before the first run; the sizes grow, so that it is that
 * of the last. In the end the same with an event queue, as the tests run it.
 */

#define REPEATS 5

static SpPattern *
build (const char *name, guint32 n_ranks, guint64 bytes)
{
  SpPatternRequest request = { .n_ranks = n_ranks, .bytes = bytes };

  return sp_pattern_build (sp_pattern_kind_find (name), &request);
}

/* Assumed: of the size of LogGOPSim's defaults, an MPI over InfiniBand. */
static SpLoggp
costs_with (SpJitter jitter)
{
  return (SpLoggp){ .latency = 2500000,
                    .overhead = 1500000,
                    .gap = 1000000,
                    .gap_per_byte_ps = 6000,
                    .jitter = jitter,
                    .spread = 0.1,
                    .seed = 1 };
}

static const char *
name_of (SpJitter jitter)
{
  return jitter == SP_JITTER_NONE ? "no jitter" : jitter == SP_JITTER_UNIFORM ? "uniform" : "log-normal";
}

static void
bench (const char *name, guint32 n_ranks, guint64 bytes, SpJitter jitter, double before_mb, const char *goal)
{
  g_autoptr (SpPattern) pattern = build (name, n_ranks, bytes);
  SpLoggp costs = costs_with (jitter);
  SpLoggpResult result = { 0 };
  double cpu_s[REPEATS];

  for (guint r = 0; r < REPEATS; r++) {
    double start_s = bench_cpu_s ();
    if (!sp_loggp_run (&costs, pattern, NULL, NULL, &result, NULL))
      g_error ("%s does not end", name);
    cpu_s[r] = bench_cpu_s () - start_s;
  }
  double median_s = bench_median (cpu_s, REPEATS);
  g_print ("%-19s %6u ranks, %-10s %8.2f ms  %8" G_GUINT64_FORMAT
           " messages %6.1f M/s  makespan %.12f s  +%.1f MB  %s\n",
           name, n_ranks, name_of (jitter), 1e3 * median_s, result.messages, (double) result.messages / median_s / 1e6,
           sp_time_to_s (result.makespan), bench_peak_mb () - before_mb, goal);
}

static void
bench_events (guint32 n_ranks, SpJitter jitter)
{
  g_autoptr (SpPattern) pattern = build ("dissemination", n_ranks, 8);
  g_autofree SpTime *finishes = g_new (SpTime, n_ranks);
  SpLoggp costs = costs_with (jitter);
  double cpu_s[REPEATS], n_messages = (double) n_ranks * pattern->steps->len;
  SpTime makespan = 0;

  for (guint r = 0; r < REPEATS; r++) {
    double start_s = bench_cpu_s ();
    event_run (&costs, pattern, 4 * n_ranks, NULL, finishes);
    cpu_s[r] = bench_cpu_s () - start_s;
  }
  for (guint32 id = 0; id < n_ranks; id++)
    makespan = MAX (makespan, finishes[id]);
  double median_s = bench_median (cpu_s, REPEATS);
  g_print ("with an event queue %6u ranks, %-10s %8.2f ms                    %6.1f M/s  makespan %.12f s\n", n_ranks,
           name_of (jitter), 1e3 * median_s, n_messages / median_s / 1e6, sp_time_to_s (makespan));
}

int
main (void)
{
  double before_mb = bench_peak_mb ();

  bench ("dissemination", 4096, 8, SP_JITTER_LOG_NORMAL, before_mb, "");
  bench ("dissemination", 16384, 8, SP_JITTER_LOG_NORMAL, before_mb, "");
  bench ("dissemination", 65536, 8, SP_JITTER_LOG_NORMAL, before_mb, "goal 250 ms, 30 MB; must 600, 100");
  bench ("dissemination", 65536, 8, SP_JITTER_UNIFORM, before_mb, "goal 250 ms, 30 MB; must 600, 100");
  bench ("dissemination", 65536, 8, SP_JITTER_NONE, before_mb, "");
  bench ("dissemination", 262144, 8, SP_JITTER_LOG_NORMAL, before_mb, "");
  bench ("ring-all-reduce", 1024, 1 << 20, SP_JITTER_LOG_NORMAL, before_mb, "");
  bench ("pairwise-all-to-all", 1024, 1024, SP_JITTER_LOG_NORMAL, before_mb, "");
  bench ("recursive-doubling", 65536, 4096, SP_JITTER_LOG_NORMAL, before_mb, "");
  bench ("binomial-broadcast", 65536, 4096, SP_JITTER_LOG_NORMAL, before_mb, "");
  bench_events (65536, SP_JITTER_LOG_NORMAL);
  bench_events (65536, SP_JITTER_NONE);
  return 0;
}
