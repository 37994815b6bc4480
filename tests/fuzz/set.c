/* SPDX-License-Identifier: Apache-2.0 */
/* Strings of --set, one a line, over a scenario and over a run file; and each value by itself. */
#include "models/inputs/ini.h"
#include "models/inputs/run-files/run-file.h"
#include "tests/fuzz/fuzz.h"

static const char scenario_text[] = "[model]\nconfig = tiny\n[cluster]\nfile = a100-1x8\n[run]\nsequence = 4K\n";
static const char run_text[] = "--tensor-model-parallel-size 2\n--num-layers 4\n--hidden-size 256\n"
                               "--num-attention-heads 4\n--vocab-size 1024\n--seq-length 1024\n";

static void
try_values (char **sets)
{
  for (guint i = 0; sets[i] != NULL && i < 8; i++) {
    const char *equals = strchr (sets[i], '='), *dot = strchr (sets[i], '.');
    const char *value = equals != NULL ? equals + 1 : sets[i];
    for (SpUnit unit = SP_UNIT_BYTES; unit <= SP_UNIT_NUMBER; unit++) {
      g_autoptr (GError) error = NULL;
      double quantity = 0;
      gboolean good = sp_parse_quantity (value, unit, &quantity, &error);
      fuzz_check (good, error);
      if (good)
        g_free (sp_format_quantity (quantity, unit));
    }
    if (equals == NULL || dot == NULL || dot > equals)
      continue;
    g_autofree char *group = g_strndup (sets[i], (gsize) (dot - sets[i]));
    g_autofree char *key = g_strndup (dot + 1, (gsize) (equals - dot - 1));
    g_autofree char *expected = NULL;
    gboolean refused = sp_scenario_takes (group, key, value, &expected) == SP_VALUE_REFUSED;
    g_assert_true (refused == (expected != NULL));
  }
}

int
LLVMFuzzerTestOneInput (const guint8 *data, size_t size)
{
  g_autoptr (GError) error = NULL, file_error = NULL;
  g_autofree char *text = fuzz_text (data, size);
  if (size > 1024)
    return -1;
  g_auto (GStrv) sets = g_strsplit (text, "\n", 64);
  const char *const *list = (const char *const *) sets;
  try_values (sets);
  g_autoptr (SpScenario) scenario = sp_scenario_parse ("run.ini", scenario_text, strlen (scenario_text), list, &error);
  fuzz_check (scenario != NULL, error);
  g_autoptr (SpRunFile) file = sp_run_file_parse ("run.sh", run_text, strlen (run_text), &file_error);
  g_assert_no_error (file_error);
  g_autoptr (GString) out = g_string_new (NULL), model = g_string_new (NULL);
  const SpRunGiven given = { .cluster = "a100-1x8", .sets = list };
  gboolean good = sp_run_file_import (file, &given, "run.ini", out, model, &file_error);
  fuzz_check (good, file_error);
  return 0;
}
