/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that seqpar calibrate SCENARIO|CLUSTER executes, and those whose kernels it times. */
#include <glib/gstdio.h>

#include "cli/calibrate-all.h"
#include "models/writer.h"

gboolean
sp_calibration_write_program (const SpCalibration *job, const SpTrial *trial, GError **error)
{
  const SpScenario *s = trial->scenario;
  g_autofree char *ini = sp_calibration_path (job, trial->name, ".ini");
  g_autofree char *prog = sp_calibration_path (job, trial->name, ".prog");
  g_autofree char *csv = sp_calibration_path (job, trial->name, ".csv"), *before = NULL;
  g_autoptr (GString) text = g_string_new (NULL), scenario = g_string_new (NULL);
  g_autoptr (SpProgram) program = sp_program_new ();

  sp_program_write (program, s->arch, s->framework, &s->layout, &s->run);
  sp_program_write_text (program, text);
  sp_scenario_write (s, scenario);
  if (g_file_get_contents (prog, &before, NULL, NULL) && g_str_equal (before, text->str))
    return sp_cli_write_file (ini, scenario, error);
  g_remove (csv);
  return sp_cli_write_file (ini, scenario, error) && sp_cli_write_file (prog, text, error);
}

/* The trial's program on a part of its sequence and of few layers; NULL: that is not legal. */
static GString *
shortened (const SpTrial *trial, gint64 sequence)
{
  enum { MOST_LAYERS = 4 };
  SpScenario *s = trial->scenario;
  SpArchitecture arch = *s->arch, *whole = s->arch;
  SpRun run = s->run;
  GString *text = NULL;

  arch.layers = MIN (arch.layers, MAX (MOST_LAYERS, s->layout.pipeline * s->layout.virtual_stages));
  s->arch = &arch;
  s->run.sequence = sequence;
  if (sp_cli_check_layout (s, NULL)) {
    g_autoptr (SpProgram) program = sp_program_new ();
    text = g_string_new (NULL);
    sp_program_write (program, s->arch, s->framework, &s->layout, &s->run);
    sp_program_write_text (program, text);
  }
  s->arch = whole;
  s->run = run;
  return text;
}

gboolean
sp_calibration_write_kernels (SpCalibration *job, gboolean dry, GError **error)
{
  static const gint64 eighths[] = { 10, 7, 5 };
  g_autoptr (GHashTable) known = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);

  job->kernels = g_ptr_array_new_with_free_func (g_free);
  for (guint i = 0; i < job->trials->len; i++)
    for (guint j = 0; j < G_N_ELEMENTS (eighths); j++) {
      const SpTrial *trial = sp_calibration_trial (job, i);
      gint64 sequence = trial->scenario->run.sequence * eighths[j] / 8;
      g_autoptr (GString) text = shortened (trial, sequence);
      if (text == NULL || !g_hash_table_add (known, g_strdup (text->str)))
        continue;
      char *name = g_strdup_printf ("kernels-%s-%" G_GINT64_FORMAT, trial->name, sequence);
      g_autofree char *path = sp_calibration_path (job, name, ".prog");
      g_ptr_array_add (job->kernels, name);
      if (!dry && !sp_cli_write_file (path, text, error))
        return FALSE;
    }
  return TRUE;
}
