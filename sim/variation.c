/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/variation.h"

#include "sim/hash.h"

/* In (0, 1): never 0, so that its logarithm is finite. */
static double
uniform (guint64 bits)
{
  return ((double) (bits >> 11) + 0.5) * 0x1p-53;
}

double
sp_variation_factor (guint64 seed, guint64 thing, guint64 index, double sd)
{
  guint64 base = sp_hash2 (sp_hash2 (seed, thing), index);
  /* Box and Muller: two uniform numbers make one normal. */
  double radius = sqrt (-2 * log (uniform (sp_hash (base)))), angle = 2 * G_PI * uniform (sp_hash (~base));

  return exp (sd * radius * cos (angle) - sd * sd / 2);
}
