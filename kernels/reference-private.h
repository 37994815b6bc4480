/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Scalars that more than one reference file needs. */

#include <glib.h>
#include <math.h>

static inline double
sp_ref_sigmoid (double x)
{
  return 1 / (1 + exp (-x));
}

static inline double
sp_ref_silu (double x)
{
  return x * sp_ref_sigmoid (x);
}

static inline double
sp_ref_silu_slope (double x)
{
  double s = sp_ref_sigmoid (x);
  return s + x * s * (1 - s);
}
