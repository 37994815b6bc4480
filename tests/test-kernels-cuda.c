/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA kernels beside their references. Needs a GPU; where there is none every test is skipped. See cuda/case.h for
 * what is checked, and how near is near. GLib prints the seed; --seed takes it again.
 */
#include "tests/cuda/case.h"

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);

  sp_add_elementwise_cases ();
  sp_add_row_cases ();
  sp_add_layout_cases ();
  sp_add_end_cases ();
  sp_add_attention_cases ();
  sp_add_library_cases ();
  sp_add_linear_cases ();
  sp_add_limit_cases ();
  return g_test_run ();
}
