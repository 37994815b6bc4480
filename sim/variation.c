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

double
sp_variation_load (const SpVariation *variation, gint32 rank, gint32 position, gint32 micro_batch)
{
  const guint64 salt = G_GUINT64_CONSTANT (0x6c6f6164); /* its draws are not those of kernels */
  guint64 index = (guint64) (guint32) position << 32 | (guint32) micro_batch;

  return sp_variation_factor (sp_hash2 (variation->seed, salt), (guint64) rank, index, variation->load_sd);
}

/* The mean of the largest of n: the integral of exp (sd z - sd^2 / 2) over the density n phi (z) Phi (z)^(n - 1). */
static double
mean_of_largest (gint32 n, double sd)
{
  const double from = -8, to = 12, step = 1.0 / 64;
  double sum = 0;

  for (double z = from; z <= to; z += step)
    sum += exp (sd * z - sd * sd / 2 - z * z / 2) * pow (0.5 * erfc (-z * M_SQRT1_2), n - 1);
  return sum * step * n / sqrt (2 * G_PI);
}

double
sp_variation_sd_of_largest (gint32 n, double largest)
{
  double low = 0, high = 3;

  if (n < 2 || largest <= 1)
    return 0;
  while (high - low > 1e-9) {
    double middle = (low + high) / 2;
    if (mean_of_largest (n, middle) < largest)
      low = middle;
    else
      high = middle;
  }
  return (low + high) / 2;
}
