/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the tests of the references share: arrays, a comparison that passes only if it is proved close, awkward ids. */

#include "kernels/reference.h"

#include <math.h>

#define TOLERANCE 1e-12

static inline double *
random_array (GRand *rand, gint64 n)
{
  double *x = g_new (double, n);
  for (gint64 i = 0; i < n; i++)
    x[i] = g_rand_double_range (rand, -1, 1);
  return x;
}

static inline double *
constant_array (gint64 n, double value)
{
  double *x = g_new (double, n);
  for (gint64 i = 0; i < n; i++)
    x[i] = value;
  return x;
}

static inline double *
poison (gint64 n)
{
  return constant_array (n, NAN);
}

static inline gboolean
is_close (double x, double expected, double tolerance)
{
  return x == expected || (isfinite (expected) && fabs (x - expected) <= tolerance * (1 + fabs (expected)));
}

static inline void
assert_close (const char *name, gint64 n, const double *x, const double *expected, double tolerance)
{
  for (gint64 i = 0; i < n; i++)
    if (!is_close (x[i], expected[i], tolerance))
      g_error ("%s[%" G_GINT64_FORMAT "] is %.17g, not %.17g", name, i, x[i], expected[i]);
}

#define assert_values(x, ...)                                                                                          \
  do {                                                                                                                 \
    const double expected_[] = { __VA_ARGS__ };                                                                        \
    assert_close (#x, G_N_ELEMENTS (expected_), x, expected_, TOLERANCE);                                              \
  } while (0)

/* Query 0 sees no key. */
static const gint64 query_positions[] = { 0, 3, 8, 9, 4 }, key_positions[] = { 1, 5, 3, 7, 2, 9, 10 };
static const gint64 row_ids[] = { 3, 17, -4, 0, 5 }, col_ids[] = { 9, 8, 7, 100, 5, 4, 3 };
/* Of the vocabulary part [4, 11): the fourth is outside, the first comes twice. */
static const gint64 token_ids[] = { 4, 6, 4, 11, 9 };
#define FIRST_ID 4
static const double test_slopes_of_heads[] = { 0.3, 0.05, 0.9 };

#define ADD_TABLE(folder, table, function)                                                                             \
  for (gsize i = 0; i < G_N_ELEMENTS (table); i++) {                                                                   \
    g_autofree char *path = g_strdup_printf ("/reference/%s/%s", folder, table[i].name);                               \
    g_test_add_data_func (path, &table[i], function);                                                                  \
  }
