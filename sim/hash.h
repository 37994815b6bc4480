/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Hashes of numbers: colours of roles, draws of noise. The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): every
 * bit of the result depends on every bit of the input. */

#include <glib.h>

static inline guint64
sp_hash (guint64 x)
{
  x += G_GUINT64_CONSTANT (0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * G_GUINT64_CONSTANT (0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * G_GUINT64_CONSTANT (0x94d049bb133111eb);
  return x ^ x >> 31;
}

static inline guint64
sp_hash2 (guint64 a, guint64 b)
{
  return sp_hash (sp_hash (a) ^ b);
}
