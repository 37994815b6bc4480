/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Beside figures that were published. */

#include <glib.h>

#include <math.h>

#define GIB ((double) (1 << 30))

static inline gboolean
is_near (double x, double published, double tolerance)
{
  return fabs (x - published) <= tolerance * fabs (published);
}
