/* SPDX-License-Identifier: Apache-2.0 */
/* A scenario, with the shipped files that it names. */
#include "models/inputs/scenario.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput (const guint8 *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text = fuzz_text (data, size);
  if (size > FUZZ_MOST)
    return -1;
  g_autoptr (SpScenario) scenario = sp_scenario_parse ("run.ini", text, size, NULL, &error);
  fuzz_check (scenario != NULL, error);
  if (scenario == NULL)
    return 0;
  g_autoptr (GString) first = g_string_new (NULL), second = g_string_new (NULL);
  sp_scenario_write (scenario, first);
  g_autoptr (SpScenario) back = sp_scenario_parse ("run.ini", first->str, first->len, NULL, &error);
  g_assert_no_error (error);
  sp_scenario_write (back, second);
  g_assert_cmpstr (first->str, ==, second->str);
  gint32 gpus = scenario->cluster->nodes * scenario->cluster->gpus_per_node;
  gboolean legal =
      sp_layout_check (&scenario->layout, scenario->arch, scenario->framework, &scenario->run, gpus, &error);
  fuzz_check (legal, error);
  return 0;
}
