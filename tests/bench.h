/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Timing for the benchmarks: CPU time of this process, because the machine may be shared, and medians. */

#include <glib.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static inline double
bench_clock_s (clockid_t clock)
{
  struct timespec t;

  clock_gettime (clock, &t);
  return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static inline double
bench_cpu_s (void)
{
  return bench_clock_s (CLOCK_PROCESS_CPUTIME_ID);
}

/* The most memory this process ever held. Only grows: measure the small cases first. */
static inline double
bench_peak_mb (void)
{
  struct rusage usage;

  getrusage (RUSAGE_SELF, &usage);
  return (double) usage.ru_maxrss * 1024 / 1e6;
}

static inline int
bench_compare (const void *a, const void *b)
{
  double left = *(const double *) a, right = *(const double *) b;

  return (left > right) - (left < right);
}

/* Sorts them. */
static inline double
bench_median (double *values, guint n)
{
  qsort (values, n, sizeof (double), bench_compare);
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}
