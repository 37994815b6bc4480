/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA kernels beside their references: kernels/cases/case.h says what is checked, and how near is near. Needs a GPU;
 * where there is none every test is skipped. GLib prints the seed; --seed takes it again.
 */
#include "kernels/cases/case.h"
#include "tests/cuda/limits.h"

static void
say (const char *message, gpointer data)
{
  (void) data;
  g_test_message ("%s", message);
}

static void
test_check (gconstpointer data)
{
  int n = 0;

  if (cudaGetDeviceCount (&n) != cudaSuccess || n == 0)
    g_test_skip ("no GPU here");
  else if (sp_check_run (data, (guint32) g_test_rand_int (), say, NULL) > 0)
    g_test_fail ();
}

int
main (int argc, char **argv)
{
  guint n = 0;
  const SpCheck *checks = sp_checks (&n);

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < n; i++) {
    g_autofree char *path = g_strconcat ("/kernels/", checks[i].name, NULL);
    g_test_add_data_func (path, &checks[i], test_check);
  }
  sp_add_limit_tests ();
  return g_test_run ();
}
