/* SPDX-License-Identifier: Apache-2.0 */
/* A model's INI. */
#include "models/inputs/architecture.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput (const guint8 *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text = fuzz_text (data, size);
  if (size > FUZZ_MOST)
    return -1;
  g_autoptr (SpArchitecture) arch = sp_architecture_parse_ini ("model.ini", text, size, &error);
  fuzz_check (arch != NULL, error);
  if (arch == NULL)
    return 0;
  g_assert_cmpint (sp_architecture_parameters (arch), >, 0);
  g_assert_cmpint (sp_architecture_active_parameters (arch), >, 0);
  g_assert_cmpint (sp_architecture_state_bytes (arch), >=, 0);
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GString) first = g_string_new (NULL), second = g_string_new (NULL);
  sp_architecture_write_ini (arch, first, lost);
  g_assert_cmpuint (lost->len, ==, 0); /* it came from an INI */
  g_autoptr (SpArchitecture) back = sp_architecture_parse_ini ("model.ini", first->str, first->len, &error);
  g_assert_no_error (error);
  sp_architecture_write_ini (back, second, lost);
  g_assert_cmpstr (first->str, ==, second->str);
  g_assert_cmpint (sp_architecture_parameters (back), ==, sp_architecture_parameters (arch));
  return 0;
}
