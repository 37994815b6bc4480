/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A pipeline's estimate beside a pass through its slots: how near it has to be. */

#include <glib.h>

/* How many pipelines a comparison draws. */
#define DRAWS 400

/* Draws with up to `most` times the micro-batches that the estimate walks. Returns the largest relative error, and how
 * many draws are above `tolerance`. */
typedef double (*ScheduleComparison) (gint32 most, double tolerance, guint *ret_above);

/* What the estimate walks is exact. */
static inline void
check_walked (ScheduleComparison compare)
{
  guint above = 0;
  double worst = compare (1, 1e-11, &above);

  g_test_message ("largest difference %.3g", worst);
  g_assert_cmpuint (above, ==, 0);
}

/* Beyond it the estimate extrapolates: within 0.1 % but for one layout in a hundred. */
static inline void
check_extended (ScheduleComparison compare, gint32 most)
{
  guint above = 0;
  double worst = compare (most, 1e-3, &above);

  g_test_message ("largest difference %.4f %%, %u of %d above 0.1 %%", 100 * worst, above, DRAWS);
  g_assert_cmpuint (above, <=, DRAWS / 100);
  g_assert_true (worst <= 0.015);
}
