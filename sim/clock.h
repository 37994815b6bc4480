/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Simulated time: int64 picoseconds from the start of the run, which span 106 days. Integers, because equal dates are
 * the normal case in a symmetric ring and a tie must be exact: sums of doubles taken in another order differ in the
 * last bit. Durations are computed in double seconds and rounded once, to the nearest picosecond, so that no step of
 * a long chain is early on average.
 */

#include <glib.h>
#include <math.h>

G_BEGIN_DECLS

typedef gint64 SpTime; /* ps */

#define SP_TIME_NEVER G_MAXINT64
#define SP_PS_PER_S 1e12

/* The nearest picosecond. What does not fit in 106 days (infinite too) is SP_TIME_NEVER. */
static inline SpTime
sp_time_from_s (double time_s)
{
  double time_ps = time_s * SP_PS_PER_S;

  return time_ps < 0x1p63 ? (SpTime) llrint (time_ps) : SP_TIME_NEVER;
}

static inline double
sp_time_to_s (SpTime time_ps)
{
  return (double) time_ps / SP_PS_PER_S;
}

/* A date plus a duration. Never is later than any date. */
static inline SpTime
sp_time_add (SpTime date, SpTime duration)
{
  SpTime sum;

  return __builtin_add_overflow (date, duration, &sum) ? SP_TIME_NEVER : sum;
}

G_END_DECLS
