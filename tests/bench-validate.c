/* SPDX-License-Identifier: Apache-2.0 */
/* How long the whole validation takes on one thread: all sets that are shipped, priced. */
#include "calibrate/validate/validation.h"
#include "tests/bench.h"

int
main (void)
{
  g_auto (GStrv) names = sp_list_shipped ("validation");
  double begin = bench_cpu_s (), all = 0;
  guint runs = 0;

  for (guint i = 0; names[i] != NULL; i++) {
    g_autoptr (GError) error = NULL;
    g_autofree char *path = sp_find_shipped ("validation", names[i], &error);
    g_autoptr (SpValidation) v = sp_validation_load (path, &error);
    if (v == NULL || !sp_validation_price (v, NULL, NULL, &error)) {
      g_printerr ("%s\n", error->message);
      return 1;
    }
    double now = bench_cpu_s ();
    g_print ("%-24s %6u runs %8.3f s\n", names[i], v->runs->len, now - begin - all);
    all = now - begin;
    runs += v->runs->len;
  }
  g_print ("%-24s %6u runs %8.3f s\n", "all", runs, all);
  return 0;
}
