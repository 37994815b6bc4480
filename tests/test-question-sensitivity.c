/* SPDX-License-Identifier: Apache-2.0 */
#include "models/questions/what-if.h"
#include "tests/question-world.h"

#include <string.h>

/* What 1 % more gives, against files whose keys are scaled by hand. */

static const SpSensitivity *
row_of (const SpPlanSensitivity *sensitivity, const char *name)
{
  for (guint i = 0; i < sensitivity->rows->len; i++)
    if (g_str_equal (g_array_index (sensitivity->rows, SpSensitivity, i).name, name))
      return &g_array_index (sensitivity->rows, SpSensitivity, i);
  g_error ("no row %s", name);
}

/* "KEY = 989 TFLOP/s" of the text with 1 % more; whether it is there. */
static gboolean
scale_key (char **text, const char *key)
{
  g_autofree char *pattern = g_strdup_printf ("(?m)^%s = ([0-9.]+)", key);
  g_autoptr (GRegex) regex = g_regex_new (pattern, 0, 0, NULL);
  g_autoptr (GMatchInfo) match = NULL;
  char buffer[G_ASCII_DTOSTR_BUF_SIZE];

  if (!g_regex_match (regex, *text, 0, &match))
    return FALSE;
  g_autofree char *number = g_match_info_fetch (match, 1);
  double more = 1.01 * g_ascii_strtod (number, NULL);
  g_autofree char *line = g_strdup_printf ("%s = %s", key, g_ascii_dtostr (buffer, sizeof buffer, more));
  char *scaled = g_regex_replace_literal (regex, *text, -1, 0, line, 0, NULL);
  g_free (*text);
  *text = scaled;
  return TRUE;
}

/* Of files of which the comma-separated keys are 1 % more; NULL: they have none of them. */
static SpCluster *
load_scaled (const char *cluster, const char *device, const char *keys)
{
  g_autoptr (GError) error = NULL;
  g_auto (GStrv) names = g_strsplit (keys, ", ", -1);
  g_autofree char *cluster_path = sp_find_cluster (cluster, NULL);
  g_autofree char *device_path = g_build_filename (g_getenv ("SEQPAR_DATA"), "devices", device, NULL);
  g_autofree char *cluster_text = NULL, *device_text = NULL;

  g_assert_true (g_file_get_contents (cluster_path, &cluster_text, NULL, NULL));
  g_assert_true (g_file_get_contents (device_path, &device_text, NULL, NULL));
  gboolean any = FALSE;
  for (guint i = 0; names[i] != NULL; i++) {
    any |= scale_key (&cluster_text, names[i]);
    any |= scale_key (&device_text, names[i]);
  }
  if (!any)
    return NULL;
  char *scaled_path = input_file_new (device, device_text, -1);
  g_autofree char *from = g_strconcat ("device = ../devices/", device, NULL),
                  *to = g_strconcat ("device = ", scaled_path, NULL);
  g_autofree char *text = input_file_replace (cluster_text, from, to);
  SpCluster *loaded = sp_cluster_parse (cluster_path, text, strlen (text), &error);
  g_assert_no_error (error);
  input_file_remove (scaled_path);
  return loaded;
}

/* Each row is what the planner says of files whose keys are scaled by hand. */
static void
test_sensitivity_files (gconstpointer data)
{
  const char *const *files = data; /* model, cluster, device */
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };

  world_init (&w, files[0], files[1], 65536, 8);
  w.question.base.offload = SP_OFFLOAD_OPTIMIZER;
  g_autoptr (SpPlanSensitivity) all = sp_plan_sensitivity (&w.estimator, &w.question, 0.01, &error);
  g_assert_no_error (error);
  const SpPlanEntry *best = sp_plan_best (all->plan);
  double sum = 0;
  guint compared = 0;
  g_assert_cmpuint (all->rows->len, ==, 7);
  for (guint i = 0; i < all->rows->len; i++) {
    const SpSensitivity *row = &g_array_index (all->rows, SpSensitivity, i);
    sum += row->gain;
    g_assert_cmpfloat (row->planned_gain, >=, row->gain);
    if (i > 0)
      g_assert_cmpfloat (row->planned_gain, <=, row[-1].planned_gain);
    if (g_str_equal (row->name, "host")) /* some of its keys are the framework's */
      continue;
    g_autoptr (SpCluster) scaled = load_scaled (files[1], files[2], row->keys);
    if (scaled == NULL)
      continue;
    compared++;
    SpEstimator estimator;
    sp_estimator_init (&estimator, w.arch, scaled, w.framework, SP_MFU_SEQPAR);
    g_autoptr (SpPlan) plan = sp_plan (&estimator, &w.question, &error);
    g_assert_no_error (error);
    g_test_message ("%s: %.5f %%", row->name, 100 * row->planned_gain);
    g_assert_cmpfloat_with_epsilon (row->planned_gain,
                                    1 - sp_plan_best (plan)->estimate.step_time_s / best->estimate.step_time_s, 1e-9);
  }
  g_assert_cmpuint (compared, >=, 4);
  /* The rest are latencies and launches. */
  g_assert_cmpfloat (sum, <=, 1 - 1 / 1.01 + 1e-6);
  g_assert_cmpfloat (sum, >, 0.5 * 0.01);
  g_assert_cmpfloat (row_of (all, "FLOP rate")->gain, >, 0);
  g_assert_cmpfloat (row_of (all, "memory capacity")->gain, ==, 0);
}

/* Where curves stand in formulas' places their rates count; a machine with nothing changed is the same machine. */
static void
test_sensitivity_profile (void)
{
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };
  g_auto (SpWhatIf) same = { 0 };

  world_init (&w, "llama-3.1-8b", "h200-1x4", 32768, 8);
  use_profile (&w, "h200-1x4");
  g_autoptr (SpPlanSensitivity) all = sp_plan_sensitivity (&w.estimator, &w.question, 0.01, &error);
  g_assert_no_error (error);
  const SpPlanEntry *best = sp_plan_best (all->plan);
  g_assert_cmpfloat (row_of (all, "FLOP rate")->gain, >, 0.005);
  g_assert_cmpfloat (row_of (all, "HBM rate")->gain, >, 0);
  g_assert_cmpfloat (row_of (all, "links inside a node")->gain, >, 0);
  g_assert_cmpfloat (row_of (all, "network")->gain, ==, 0);
  sp_what_if_init (&same, &w.estimator);
  g_autoptr (SpPlan) plan = sp_plan (&same.estimator, &w.question, &error);
  g_assert_no_error (error);
  g_assert_cmpfloat (sp_plan_best (plan)->estimate.step_time_s, ==, best->estimate.step_time_s);
}

int
main (int argc, char **argv)
{
  static const char *const machines[][3] = { { "llama-3.1-8b", "h100-1x8", "h100.ini" },
                                             { "llama-3.1-8b", "h100-2x8-tcpx", "h100.ini" },
                                             { "tnl-1b", "l40s-1x8", "l40s.ini" } };

  if (!question_test_init (&argc, &argv))
    return 0;
  for (guint i = 0; i < G_N_ELEMENTS (machines); i++) {
    g_autofree char *path = g_strdup_printf ("/question-sensitivity/%s/%s", machines[i][0], machines[i][1]);
    g_test_add_data_func (path, machines[i], test_sensitivity_files);
  }
  g_test_add_func ("/question-sensitivity/profile", test_sensitivity_profile);
  return g_test_run ();
}
