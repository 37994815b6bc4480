/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face config.json, all families. */
#include "models/inputs/architecture.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput (const guint8 *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text = fuzz_text (data, size);
  if (size > FUZZ_MOST)
    return -1;
  g_autoptr (SpArchitecture) arch = sp_architecture_parse_json ("config.json", text, size, &error);
  fuzz_check (arch != NULL, error);
  if (arch == NULL)
    return 0;
  g_assert_cmpint (arch->layers, >, 0);
  g_assert_cmpint (sp_architecture_parameters (arch), >, 0);
  g_assert_cmpint (sp_architecture_active_parameters (arch), >, 0);
  g_assert_cmpint (sp_architecture_state_bytes (arch), >=, 0);
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GString) ini = g_string_new (NULL);
  sp_architecture_write_ini (arch, ini, lost);
  if (lost->len > 0)
    return 0;
  g_autoptr (SpArchitecture) back = sp_architecture_parse_ini ("model.ini", ini->str, ini->len, &error);
  g_assert_no_error (error);
  g_assert_cmpint (sp_architecture_parameters (back), ==, sp_architecture_parameters (arch));
  g_assert_cmpmem (back->layer_kind, sizeof back->layer_kind, arch->layer_kind, sizeof arch->layer_kind);
  return 0;
}
