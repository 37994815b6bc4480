/* SPDX-License-Identifier: Apache-2.0 */
/* Run files of other programs: recognised, read, imported with the model of the file and with a given one, and written
 * again in every format. */
#include "models/inputs/run-files/run-file.h"
#include "tests/fuzz/fuzz.h"

static void export(const GString *text)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpScenario) scenario = sp_scenario_parse ("run.ini", text->str, text->len, NULL, &error);
  g_assert_no_error (error);
  for (guint i = 0; sp_run_format_names[i] != NULL; i++) {
    g_autoptr (GError) problem = NULL;
    g_autoptr (GString) out = g_string_new (NULL);
    g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
    gboolean good = sp_run_file_export (scenario, sp_run_format_names[i], out, lost, &problem);
    fuzz_check (good, problem);
  }
}

static void
import (const char *text, gsize size, const SpRunGiven *given)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpRunFile) file = sp_run_file_parse ("run", text, size, &error);
  g_autoptr (GString) scenario = g_string_new (NULL), model = g_string_new (NULL);
  fuzz_check (file != NULL, error);
  if (file == NULL)
    return;
  for (guint i = 0; i < sp_run_file_notes (file)->len; i++)
    g_assert_null (strchr (sp_run_file_notes (file)->pdata[i], '\n'));
  gboolean good = sp_run_file_import (file, given, "run.ini", scenario, model, &error);
  fuzz_check (good, error);
  if (good && model->len == 0)
    export(scenario);
}

int
LLVMFuzzerTestOneInput (const guint8 *data, size_t size)
{
  static const char *const sets[] = { "run.sequence=4096", NULL };
  if (size > FUZZ_MOST)
    return -1;
  const SpRunGiven own = { .cluster = "a100-8x8.ini" };
  const SpRunGiven given = { .model = "tiny", .cluster = "a100-1x8.ini", .sets = sets };
  import ((const char *) data, size, &own);
  import ((const char *) data, size, &given);
  return 0;
}
