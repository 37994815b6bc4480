/* SPDX-License-Identifier: Apache-2.0 */
/* The most of n normal draws: by hand, and against draws. */
#include "models/estimate/slowest.h"

#include <math.h>

/* Of two 1 / sqrt (pi) and 1 - 1 / pi, of three 3 / (2 sqrt (pi)) and 1 - 9 / (4 pi) + sqrt (3) / (2 pi); of four and five
 * as tables of order statistics have them (Teichroew 1956). */
static void
test_known (void)
{
  const struct {
    gint32 n;
    double mean, variance;
  } known[] = {
    { 1, 0, 1 },
    { 2, 1 / sqrt (G_PI), 1 - 1 / G_PI },
    { 3, 1.5 / sqrt (G_PI), 1 - 2.25 / G_PI + sqrt (3) / (2 * G_PI) },
    { 4, 1.0293753730, 0.4917152369 },
    { 5, 1.1629644736, 0.4475340690 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (known); i++) {
    SpSlowest of = sp_slowest_of (known[i].n);
    g_assert_cmpfloat (fabs (of.mean - known[i].mean), <, 1e-9);
    g_assert_cmpfloat (fabs (of.deviation * of.deviation - known[i].variance), <, 1e-9);
  }
}

/* More cards have a worse one, by less and less; of very many it lies where one of them is to be expected beyond. */
static void
test_many (void)
{
  double before = 0, step = G_MAXDOUBLE;

  for (gint32 n = 2; n <= 1 << 20; n *= 2) {
    SpSlowest of = sp_slowest_of (n);
    g_assert_cmpfloat (of.mean, >, before);
    g_assert_cmpfloat (of.mean - before, <, step);
    double beyond = n * erfc (of.mean / G_SQRT2) / 2;
    g_test_message ("%d: %.4f +- %.4f, %.3f expected beyond", n, of.mean, of.deviation, beyond);
    g_assert_true (n < 64 || (beyond > 0.5 && beyond < 0.65));
    step = of.mean - before;
    before = of.mean;
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/slowest/known", test_known);
  g_test_add_func ("/slowest/many", test_many);
  return g_test_run ();
}
