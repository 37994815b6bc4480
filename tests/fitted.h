/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Measurements that a test of the fit draws, and what is fitted to them. */

#include "calibrate/fit.h"

#include <math.h>
#include <string.h>

#include "models/estimate/cost-curves.h"

#define SMS 132

static const SpFitGiven given = { SMS, 2.6e12 };

static inline double
normal (GRand *rand)
{
  return sqrt (-2 * log (1 - g_rand_double (rand))) * cos (2 * G_PI * g_rand_double (rand));
}

/* Bounds on noise are statistical, and one draw in some hundred is beyond them: one seed, or $SEQPAR_FIT_SEED. */
static inline GRand *
seeded (void)
{
  const char *given_seed = g_getenv ("SEQPAR_FIT_SEED");
  guint32 seed = given_seed != NULL ? (guint32) g_ascii_strtoull (given_seed, NULL, 10) : 20261128;

  g_test_message ("seed %u", seed);
  return g_rand_new_with_seed (seed);
}

static inline SpFit *
fit_of (SpMeasured *measured)
{
  g_autoptr (SpPoints) points = sp_points_new (&measured, 1);

  return sp_fit_points (points, &given, "test", NULL, "a test");
}

static inline const SpCurve *
curve_of (const SpFit *fit, SpCurveKind kind)
{
  const SpCurve *curve = sp_profile_find (fit->profile, kind, NULL, 0, 0);

  g_assert_nonnull (curve);
  return curve;
}

static inline char *
profile_text (const SpFit *fit)
{
  GString *text = g_string_new (NULL);

  sp_profile_write (fit->profile, text);
  return g_string_free (text, FALSE);
}

static inline SpKernelSizes
kernel_sizes (SpOpKind op, gint64 m, gint64 n)
{
  gboolean softmax = op == SP_OP_ATTENTION;
  double bytes = softmax ? 2.0 * 4 * m * 16 * 64 : 4.0 * 2 * m * n;

  return (SpKernelSizes){ .op = op,
                          .m = m,
                          .n = softmax ? m : n,
                          .k = softmax ? 64 : n,
                          .heads = softmax ? 16 : 1,
                          .bytes = bytes,
                          .flops = softmax ? 2.0 * m * m * 64 * 16 : 0 };
}
